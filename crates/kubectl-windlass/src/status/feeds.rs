//! Watches that many followers share: one of each resource, whose changes go to those that they concern.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass::model::{Job, Node, PersistentVolumeClaim, Pod, Record as _, ReplicaSet, Resource, Selector};

use super::follower::{Follower, Message, News};
use crate::api::{Api, Listed};
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
    /// Pods whose ReplicaSet no watch has shown yet, by its UID.
    early: BTreeMap<String, Vec<Value>>,
    events_asked: Option<Instant>,
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
            early: BTreeMap::new(),
            events_asked: None,
            is_settled: false,
        };
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
            follower.shares(if selector.is_some() { &resources } else { &[] });
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
        match news {
            News::Events(all) => {
                self.is_settled = true;
                let wanted = followers.iter().enumerate();
                let wanted =
                    wanted.flat_map(|(at, it)| it.worth_events().into_iter().map(move |uid| (uid, at)));
                let wanted: BTreeMap<String, usize> = wanted.collect();
                let mut by_follower: BTreeMap<usize, Vec<_>> = BTreeMap::new();
                for (uid, events) in all {
                    if let Some(index) = wanted.get(&uid) {
                        by_follower.entry(*index).or_default().push((uid, events));
                    }
                }
                by_follower.into_iter().map(|(index, events)| of(index, News::Events(events))).collect()
            }
            News::Change(resource, Change::Listed(objects)) => {
                let mut lists: Vec<Vec<Value>> = followers.iter().map(|_| Vec::new()).collect();
                let mut more = Vec::new();
                for object in objects {
                    let (concerned, found) = self.concerned(resource, &object);
                    for index in concerned {
                        if let Some(list) = lists.get_mut(index) {
                            list.push(object.clone());
                        }
                    }
                    more.extend(found);
                }
                let listed = lists.into_iter().enumerate();
                let listed =
                    listed.map(|(index, list)| of(index, News::Change(resource, Change::Listed(list))));
                listed.chain(more).collect()
            }
            News::Change(resource, Change::Applied(object)) => {
                let (concerned, found) = self.concerned(resource, &object);
                let news = |index| of(index, News::Change(resource, Change::Applied(object.clone())));
                concerned.into_iter().map(news).chain(found).collect()
            }
            News::Change(resource, Change::Deleted(object)) => {
                let (concerned, _) = self.concerned(resource, &object);
                if let Some(pods) = controller(&object).and_then(|uid| self.early.get_mut(uid)) {
                    pods.retain(|pod| text(pod, "uid") != text(&object, "uid"));
                }
                let news = |index| of(index, News::Change(resource, Change::Deleted(object.clone())));
                concerned.into_iter().map(news).collect()
            }
            News::Change(resource, Change::Interrupted(why)) => {
                let news = |index| of(index, News::Change(resource, Change::Interrupted(why.clone())));
                (0..followers.len()).map(news).collect()
            }
            News::Change(resource, Change::Forbidden(why)) => {
                let news = |index| of(index, News::Change(resource, Change::Forbidden(why.clone())));
                (0..followers.len()).map(news).collect()
            }
        }
    }

    /// The followers that an object concerns. A ReplicaSet that is seen for the first time brings its pods along.
    fn concerned(&mut self, resource: Resource, object: &Value) -> (BTreeSet<usize>, Vec<Message>) {
        let (namespace, name) = (text(object, "namespace"), text(object, "name"));
        if resource == self.kind.resource() {
            let key = (namespace.to_owned(), name.to_owned());
            return (self.by_name.get(&key).copied().into_iter().collect(), Vec::new());
        }
        if resource == Node::RESOURCE {
            return (self.by_name.values().copied().collect(), Vec::new());
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
                        let uid = text(object, "uid").to_owned();
                        let pods = self.early.remove(&uid).unwrap_or_default();
                        self.by_uid.insert(uid, index);
                        let news = |pod| News::Change(Pod::RESOURCE, Change::Applied(pod));
                        let early =
                            pods.into_iter().map(|pod| Message { follower: Some(index), news: news(pod) });
                        return (concerned, early.collect());
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

    /// Reads the events of what is in the way of the followers, in one list, if it is time.
    pub fn ask_for_events(&mut self, followers: &[Follower], api: &Arc<Api>, sender: &mpsc::Sender<Message>) {
        if self.events_asked.is_some_and(|asked| asked.elapsed() < EVENTS_KEPT) {
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
