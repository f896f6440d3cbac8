//! Watches that many followers share: one of each resource, whose changes go to those that they concern.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass::model::{Job, Node, PersistentVolumeClaim, Pod, Record as _, ReplicaSet, Resource, Selector};

use super::follower::{Follower, Message, News, Nodes};
use crate::api::{Api, ApiError, Listed};
use crate::exit::CommandError;
use crate::rollout::live;
use crate::rollout::shared::{controller, labels, text};
use crate::target::Kind;
use crate::watch::{self, Change, Selection};

/// How long events are kept before they are read again.
const EVENTS_KEPT: Duration = Duration::from_secs(10);

/// The watches of one kind in one scope.
pub struct Feeds {
    kind: Kind,
    namespace: Option<String>,
    labels: String,
    follows: bool,
    /// The followers by namespace and name of their workloads.
    by_name: BTreeMap<(String, String), usize>,
    /// The followers by the UIDs of their workloads, and of the ReplicaSets of these.
    by_uid: BTreeMap<String, usize>,
    selectors: BTreeMap<String, Vec<(usize, Selector)>>,
    /// The followers that have an object, by its resource and UID: those that it no longer concerns lose it.
    holders: BTreeMap<(&'static str, String), BTreeSet<usize>>,
    /// Pods whose ReplicaSet no watch has shown yet, by its UID.
    early: BTreeMap<String, Vec<Value>>,
    events_asked: Option<Instant>,
    /// Whether the user may read events, as far as is known.
    may_read_events: bool,
    /// Whether the events that were wanted first have been read, or none was.
    is_settled: bool,
}

impl Feeds {
    /// Gives each follower its workload, and starts the watches. `listed` are the workloads.
    ///
    /// # Errors
    /// When a workload is not what its kind says.
    pub fn start(
        (kind, namespace, labels): (Kind, Option<&str>, &str),
        listed: Listed,
        followers: &mut [Follower],
        follows: bool,
        api: &Arc<Api>,
        sender: &mpsc::Sender<Message>,
    ) -> Result<Self, CommandError> {
        let mut feeds = Feeds {
            kind,
            namespace: namespace.map(str::to_owned),
            labels: labels.to_owned(),
            follows,
            by_name: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            selectors: BTreeMap::new(),
            holders: BTreeMap::new(),
            early: BTreeMap::new(),
            events_asked: None,
            may_read_events: true,
            is_settled: false,
        };
        let nodes = Nodes::default();
        let resources: Vec<Resource> =
            live::parts(kind, "").into_iter().map(|(resource, _)| resource).collect();
        for (index, (follower, object)) in followers.iter_mut().zip(listed.items).enumerate() {
            let (namespace, name, uid) =
                (text(&object, "namespace"), text(&object, "name"), text(&object, "uid"));
            feeds.by_name.insert((namespace.to_owned(), name.to_owned()), index);
            feeds.by_uid.insert(uid.to_owned(), index);
            let selector = live::selector(kind, &object)
                .map_err(|error| CommandError::Unreadable { object: follower.key.described(), error })?;
            // No controller acts on a workload that selects nothing or everything: it has no parts.
            follower.shares(if selector.is_some() { &resources } else { &[] }, &nodes);
            if let Some(Some(selector)) = selector {
                feeds.selectors.entry(namespace.to_owned()).or_default().push((index, selector));
            }
            let news = News::Change(kind.resource(), Change::Listed(vec![object]));
            follower.receive(Message { follower: Some(index), news }, api, sender)?;
        }
        if follows {
            feeds.watch(kind.resource(), Some(listed.resource_version), api, sender);
        }
        for resource in resources {
            feeds.watch(resource, None, api, sender);
        }
        Ok(feeds)
    }

    fn watch(
        &self,
        resource: Resource,
        known: Option<String>,
        api: &Arc<Api>,
        sender: &mpsc::Sender<Message>,
    ) {
        let namespace = live::scope_of(resource, self.namespace.as_deref()).map(str::to_owned);
        let labels = if resource == self.kind.resource() { self.labels.clone() } else { String::new() };
        let (fields, follows) = (String::new(), self.follows);
        let selection = Selection { resource, namespace, labels, fields, follows, known };
        let wrap = move |change| Message { follower: None, news: News::Change(resource, change) };
        tokio::spawn(watch::watch(api.clone(), selection, sender.clone(), wrap));
    }

    /// The messages of the followers that a message concerns.
    pub fn route(&mut self, news: News, followers: &[Follower]) -> Vec<Message> {
        let of = |follower: usize, news: News| Message { follower: Some(follower), news };
        let to_all = |news: &dyn Fn() -> News| (0..followers.len()).map(|index| of(index, news())).collect();
        match news {
            News::Events(all) => self.events(all, followers),
            News::Nodes => to_all(&|| News::Nodes),
            News::Change(resource, Change::Interrupted(why)) => {
                to_all(&|| News::Change(resource, Change::Interrupted(why.clone())))
            }
            News::Change(resource, Change::Forbidden(why)) => {
                to_all(&|| News::Change(resource, Change::Forbidden(why.clone())))
            }
            // One of them takes the change in for all.
            News::Change(Node::RESOURCE, change) => {
                let first = of(0, News::Change(Node::RESOURCE, change));
                let others = (1..followers.len()).map(|index| of(index, News::Nodes));
                std::iter::once(first).chain(others).collect()
            }
            News::Change(resource, Change::Listed(objects)) => {
                self.holders.retain(|(of, _), _| *of != resource.plural);
                if resource == Pod::RESOURCE {
                    self.early.clear();
                }
                let mut lists: Vec<Vec<Value>> = followers.iter().map(|_| Vec::new()).collect();
                let mut more = Vec::new();
                for object in objects {
                    let (concerned, found) = self.concerned(resource, &object, followers);
                    for index in &concerned {
                        if let Some(list) = lists.get_mut(*index) {
                            list.push(object.clone());
                        }
                    }
                    self.hold(resource, &object, concerned);
                    more.extend(found);
                }
                let listed = lists.into_iter().enumerate();
                let listed =
                    listed.map(|(index, list)| of(index, News::Change(resource, Change::Listed(list))));
                listed.chain(more).collect()
            }
            News::Change(resource, Change::Applied(object)) => {
                let (concerned, found) = self.concerned(resource, &object, followers);
                let lost = self.hold(resource, &object, concerned.clone());
                let loses = |index| of(index, News::Change(resource, Change::Deleted(object.clone())));
                let gets = |index| of(index, News::Change(resource, Change::Applied(object.clone())));
                lost.into_iter().map(loses).chain(concerned.into_iter().map(gets)).chain(found).collect()
            }
            News::Change(resource, Change::Deleted(object)) => {
                let (mut concerned, _) = self.concerned(resource, &object, followers);
                concerned.extend(self.hold(resource, &object, BTreeSet::new()));
                if let Some(pods) = controller(&object).and_then(|uid| self.early.get_mut(uid)) {
                    pods.retain(|pod| text(pod, "uid") != text(&object, "uid"));
                }
                let news = |index| of(index, News::Change(resource, Change::Deleted(object.clone())));
                concerned.into_iter().map(news).collect()
            }
        }
    }

    /// The messages about events: those of each follower, or once that they may not be read.
    fn events(
        &mut self,
        all: Vec<(String, Result<Vec<Value>, ApiError>)>,
        followers: &[Follower],
    ) -> Vec<Message> {
        self.is_settled = true;
        let wanted = followers.iter().enumerate();
        let wanted = wanted.flat_map(|(at, it)| it.worth_events().into_iter().map(move |uid| (uid, at)));
        let wanted: BTreeMap<String, usize> = wanted.collect();
        let mut by_follower: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for (uid, events) in all {
            let is_forbidden = events.as_ref().is_err_and(ApiError::is_forbidden);
            self.may_read_events &= !is_forbidden;
            // The pod may have become ready while the answer was on its way.
            let index = wanted.get(&uid).copied().or_else(|| is_forbidden.then_some(0));
            if let Some(index) = index {
                by_follower.entry(index).or_default().push((uid, events));
            }
        }
        let of = |(index, events)| Message { follower: Some(index), news: News::Events(events) };
        by_follower.into_iter().map(of).collect()
    }

    /// Notes which followers an object concerns now, and returns those that it no longer does.
    fn hold(&mut self, resource: Resource, object: &Value, concerned: BTreeSet<usize>) -> BTreeSet<usize> {
        // A workload is its follower's for good, and nodes are everybody's.
        if resource == self.kind.resource() || resource == Node::RESOURCE {
            return BTreeSet::new();
        }
        let key = (resource.plural, text(object, "uid").to_owned());
        let before = match concerned.is_empty() {
            true => self.holders.remove(&key),
            false => self.holders.insert(key, concerned.clone()),
        };
        before.unwrap_or_default().difference(&concerned).copied().collect()
    }

    /// The followers that an object concerns. A ReplicaSet that is seen for the first time, or whose owner is another one
    /// now, brings its pods along.
    fn concerned(
        &mut self,
        resource: Resource,
        object: &Value,
        followers: &[Follower],
    ) -> (BTreeSet<usize>, Vec<Message>) {
        let (namespace, name) = (text(object, "namespace"), text(object, "name"));
        if resource == self.kind.resource() {
            let key = (namespace.to_owned(), name.to_owned());
            return (self.by_name.get(&key).copied().into_iter().collect(), Vec::new());
        }
        let mut concerned = BTreeSet::new();
        let in_namespace = || self.by_name.range((namespace.to_owned(), String::new())..);
        let in_namespace = || in_namespace().take_while(|((of, _), _)| of == namespace);
        let by_name: Option<fn(&str, &str) -> bool> = match (self.kind, resource) {
            (_, PersistentVolumeClaim::RESOURCE) => Some(|name, of| name.contains(&format!("-{of}-"))),
            (_, Job::RESOURCE) | (Kind::StatefulSet, Pod::RESOURCE) => {
                Some(|name, of| name.strip_prefix(of).is_some_and(|rest| rest.starts_with('-')))
            }
            _ => None,
        };
        if let Some(is_of) = by_name {
            concerned.extend(in_namespace().filter(|((_, of), _)| is_of(name, of)).map(|(_, index)| *index));
        }
        match controller(object) {
            Some(owner) => match self.by_uid.get(owner).copied() {
                Some(index) => {
                    concerned.insert(index);
                    if resource == ReplicaSet::RESOURCE {
                        return (concerned, self.pods_of(text(object, "uid"), index, followers));
                    }
                }
                None if self.kind == Kind::Deployment && resource == Pod::RESOURCE => {
                    let pods = self.early.entry(owner.to_owned()).or_default();
                    pods.retain(|pod| text(pod, "uid") != text(object, "uid"));
                    pods.push(object.clone());
                }
                None => drop(self.early.remove(text(object, "uid"))),
            },
            None => {
                let labels = labels(object);
                let all = self.selectors.get(namespace).into_iter().flatten();
                concerned
                    .extend(all.filter(|(_, selector)| selector.matches(&labels)).map(|(index, _)| *index));
            }
        }
        (concerned, Vec::new())
    }

    /// The messages that give a follower the pods of its ReplicaSet, which another one may have had.
    fn pods_of(&mut self, uid: &str, index: usize, followers: &[Follower]) -> Vec<Message> {
        let before = self.by_uid.insert(uid.to_owned(), index).filter(|before| *before != index);
        let mut pods = self.early.remove(uid).unwrap_or_default();
        pods.extend(
            before.and_then(|before| followers.get(before)).map(|it| it.pods_of(uid)).unwrap_or_default(),
        );
        let mut messages = Vec::new();
        for pod in pods {
            let lost = self.hold(Pod::RESOURCE, &pod, BTreeSet::from([index]));
            let changes = lost.into_iter().map(|loser| (loser, Change::Deleted(pod.clone())));
            let changes = changes.chain([(index, Change::Applied(pod.clone()))]);
            messages.extend(changes.map(|(follower, change)| Message {
                follower: Some(follower),
                news: News::Change(Pod::RESOURCE, change),
            }));
        }
        messages
    }

    /// Reads the events of what is in the way of the followers, in one list, if it is time.
    pub fn ask_for_events(&mut self, followers: &[Follower], api: &Arc<Api>, sender: &mpsc::Sender<Message>) {
        if !self.may_read_events || self.events_asked.is_some_and(|asked| asked.elapsed() < EVENTS_KEPT) {
            return;
        }
        let wanted: BTreeSet<String> = followers.iter().flat_map(Follower::worth_events).collect();
        if wanted.is_empty() {
            self.is_settled |= followers.iter().all(|follower| follower.assessment().is_some());
            return;
        }
        self.events_asked = Some(Instant::now());
        let (api, sender, namespace) = (api.clone(), sender.clone(), self.namespace.clone());
        tokio::spawn(async move {
            let all = live::warnings(&api, namespace.as_deref(), &wanted).await;
            let events = match all {
                Ok(by_uid) => wanted
                    .into_iter()
                    .map(|uid| (uid.clone(), Ok(by_uid.get(&uid).cloned().unwrap_or_default())))
                    .collect(),
                Err(error) => wanted.into_iter().take(1).map(|uid| (uid, Err(error.clone()))).collect(),
            };
            // The command has ended otherwise.
            let _ = sender.send(Message { follower: None, news: News::Events(events) }).await;
        });
    }

    /// Whether the events that were wanted first have been read, or none was.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass::model::ControllerRevision;

    use super::*;
    use crate::connection::Connection;
    use crate::rollout::tests::stuck;
    use crate::target::WorkloadKey;

    /// Two Deployments, `web` with a rollout that is stuck and `api`, whose watches nothing answers.
    struct Shared {
        feeds: Feeds,
        followers: Vec<Follower>,
        api: Arc<Api>,
        sender: mpsc::Sender<Message>,
        _messages: mpsc::Receiver<Message>,
    }

    fn named(object: &Value, name: &str) -> Value {
        let mut object = object.clone();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["uid"] = json!(format!("uid-{name}"));
        object
    }

    fn owned_by(object: &Value, owner: Option<&str>) -> Value {
        let mut object = object.clone();
        object["metadata"]["ownerReferences"] = match owner {
            Some(name) => {
                json!([{"apiVersion": "apps/v1", "kind": "Any", "name": name, "uid": format!("uid-{name}"),
                                  "controller": true}])
            }
            None => json!([]),
        };
        object
    }

    impl Shared {
        fn of(kind: Kind, objects: Vec<Value>) -> Self {
            let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
            let connection = Connection {
                client: kube::Client::try_from(config).unwrap(),
                namespace: "shop".to_owned(),
                namespace_is_enforced: false,
                server: "nowhere".to_owned(),
            };
            let api = Arc::new(Api::new(connection, Duration::from_secs(1)));
            let (sender, messages) = mpsc::channel(1024);
            let keys = objects.iter().map(|object| WorkloadKey::of(kind, object)).enumerate();
            let mut followers: Vec<Follower> =
                keys.map(|(index, key)| Follower::new(index, key, true, true)).collect();
            let listed = Listed { items: objects, resource_version: "9".to_owned() };
            let scope = (kind, Some("shop"), "");
            let feeds = Feeds::start(scope, listed, &mut followers, true, &api, &sender).unwrap();
            Shared { feeds, followers, api, sender, _messages: messages }
        }

        fn of_deployments() -> Self {
            let web = stuck();
            let mut api = named(&web.object, "api");
            api["spec"]["selector"] = json!({"matchLabels": {"app": "api"}});
            let mut shared = Shared::of(Kind::Deployment, vec![web.object.clone(), api]);
            shared.take(ReplicaSet::RESOURCE, Change::Listed(web.replica_sets));
            shared.take(Pod::RESOURCE, Change::Listed(web.pods));
            shared
        }

        /// Routes a change to the followers; returns who has got what.
        fn take(&mut self, resource: Resource, change: Change) -> Vec<(usize, &'static str)> {
            let mut got = Vec::new();
            for message in self.feeds.route(News::Change(resource, change), &self.followers) {
                let index = message.follower.unwrap();
                got.push((
                    index,
                    match &message.news {
                        News::Change(_, Change::Listed(_)) => "a list",
                        News::Change(_, Change::Applied(_)) => "an object",
                        News::Change(_, Change::Deleted(_)) => "a loss",
                        News::Nodes => "word of nodes",
                        _ => "another message",
                    },
                ));
                self.followers[index].receive(message, &self.api, &self.sender).unwrap();
            }
            got
        }

        /// The names of the pods that a follower has of these ReplicaSets.
        fn pods(&self, follower: usize, replica_sets: [&str; 2]) -> Vec<String> {
            let pods = replica_sets.iter().flat_map(|uid| self.followers[follower].pods_of(uid));
            pods.map(|pod| text(&pod, "name").to_owned()).collect()
        }
    }

    const BOTH: [&str; 2] = ["uid-web-1", "uid-web-2"];

    #[tokio::test]
    async fn a_pod_that_its_owner_has_released_no_longer_counts_for_it() {
        let pods = stuck().pods;
        let mut shared = Shared::of_deployments();
        assert_eq!(shared.pods(0, BOTH), ["web-1-a", "web-1-b", "web-1-c", "web-2-a"]);
        // Another controller has adopted it; its labels are as they were.
        let adopted = owned_by(&pods[0], Some("other"));
        assert_eq!(shared.take(Pod::RESOURCE, Change::Applied(adopted)), [(0, "a loss")]);
        assert_eq!(shared.pods(0, BOTH), ["web-1-b", "web-1-c", "web-2-a"]);
        // It has other labels, and no owner.
        let mut released = owned_by(&pods[1], None);
        released["metadata"]["labels"] = json!({"app": "aside"});
        assert_eq!(shared.take(Pod::RESOURCE, Change::Applied(released)), [(0, "a loss")]);
        // It has no owner, and is still selected: an orphan that may be adopted again.
        let orphan = owned_by(&pods[2], None);
        assert_eq!(shared.take(Pod::RESOURCE, Change::Applied(orphan.clone())), [(0, "an object")]);
        assert_eq!(shared.pods(0, BOTH), ["web-2-a"]);
        let again = shared.take(Pod::RESOURCE, Change::Applied(pods[2].clone()));
        assert_eq!((again, shared.pods(0, BOTH).len()), (vec![(0, "an object")], 2));
        // It was released, and is deleted: who had it hears of that.
        let unowned = owned_by(&pods[2], Some("other"));
        assert_eq!(shared.take(Pod::RESOURCE, Change::Deleted(unowned)), [(0, "a loss")]);
    }

    #[tokio::test]
    async fn a_replica_set_takes_its_pods_along_to_another_owner() {
        let replica_sets = stuck().replica_sets;
        let mut shared = Shared::of_deployments();
        let moved = owned_by(&replica_sets[0], Some("api"));
        let got = shared.take(ReplicaSet::RESOURCE, Change::Applied(moved));
        assert_eq!(&got[..2], [(0, "a loss"), (1, "an object")]);
        assert_eq!((shared.pods(0, BOTH).len(), shared.pods(1, BOTH).len()), (1, 3));
        let pod = stuck().pods[0].clone();
        assert_eq!(shared.take(Pod::RESOURCE, Change::Deleted(pod)), [(1, "a loss")]);
    }

    #[tokio::test]
    async fn nodes_are_taken_in_once_for_all_daemon_sets() {
        let agent = |name: &str| {
            json!({"metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "5",
                                "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
                   "spec": {"selector": {"matchLabels": {"app": name}}, "template": {}}})
        };
        let mut of_none = agent("one");
        of_none["spec"]["selector"] = json!({});
        let mut shared = Shared::of(Kind::DaemonSet, vec![of_none, agent("two"), agent("three")]);
        let node = json!({"metadata": {"name": "n1", "uid": "uid-n1", "resourceVersion": "5"}});
        let got = shared.take(Node::RESOURCE, Change::Listed(vec![node]));
        assert_eq!(got, [(0, "a list"), (1, "word of nodes"), (2, "word of nodes")]);
        shared.take(ControllerRevision::RESOURCE, Change::Listed(Vec::new()));
        shared.take(Pod::RESOURCE, Change::Listed(Vec::new()));
        for follower in &mut shared.followers {
            assert!(follower.assess(&shared.api, &shared.sender, false).unwrap(), "all have the nodes");
        }
    }

    #[tokio::test]
    async fn events_that_may_not_be_read_are_asked_for_once() {
        let mut shared = Shared::of_deployments();
        shared.followers[0].assess(&shared.api, &shared.sender, false).unwrap();
        shared.feeds.ask_for_events(&shared.followers, &shared.api, &shared.sender);
        assert!(shared.feeds.events_asked.take().is_some());
        let forbidden = ApiError::Refused {
            what: "cannot list events".to_owned(),
            code: 403,
            reason: "Forbidden".to_owned(),
            message: "no".to_owned(),
            causes: Vec::new(),
        };
        // The pod that they were asked for may be gone by now.
        let answer = News::Events(vec![("uid-gone".to_owned(), Err(forbidden))]);
        for message in shared.feeds.route(answer, &shared.followers) {
            shared.followers[0].receive(message, &shared.api, &shared.sender).unwrap();
        }
        assert_eq!(shared.followers[0].new_unreadable(), ["cannot list events: no"]);
        shared.feeds.ask_for_events(&shared.followers, &shared.api, &shared.sender);
        assert!(shared.feeds.events_asked.is_none() && shared.feeds.is_settled());
    }
}
