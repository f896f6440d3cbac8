//! The objects of one workload as watches report them, and what they say.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass::model::{
    ControllerRevision, Interner, Job, Node, PersistentVolumeClaim, Pod, Record, ReplicaSet, Resource,
};

use super::verdicts::{self, End, Rules};
use crate::api::{Api, ApiError};
use crate::cli::StatusArgs;
use crate::exit::CommandError;
use crate::rollout::failing_pods::FailingPods;
use crate::rollout::{self, Assessment, Records, live, shared};
use crate::target::{Kind, WorkloadKey};
use crate::watch::{self, Change, Selection, Silence};

/// How long the events of a pod are kept before they are read again, and the pause after a failed attempt.
const EVENTS_KEPT: Duration = Duration::from_secs(10);

/// How often a state without a change is assessed: for ages, deadlines and estimates.
const CLOCK: Duration = Duration::from_secs(1);

/// News for a follower.
pub struct Message {
    /// The index of the follower; `None` for all that it concerns.
    pub follower: Option<usize>,
    /// The change.
    pub news: News,
}

/// A change to take in.
pub enum News {
    /// The watch of a resource reports a change. Of the kind that is followed, it is about the workload itself.
    Change(Resource, Change),
    /// The nodes have changed, which all followers share: another one has taken the change in.
    Nodes,
    /// The events of objects, each with its UID.
    Events(Vec<(String, Result<Vec<Value>, ApiError>)>),
}

/// An object, decoded once for all assessments.
struct Seen<T> {
    object: Value,
    record: Arc<T>,
}

/// The objects of one watch by their UIDs. What cannot be decoded is left out.
type Objects<T> = BTreeMap<String, Seen<T>>;

/// The nodes, which several DaemonSets share: a cluster may have thousands of them, and of DaemonSets a hundred.
#[derive(Clone, Default)]
pub struct Nodes(Rc<RefCell<Option<Objects<Node>>>>);

/// The objects that tell a rollout; `None` until they are listed.
#[derive(Default)]
struct Parts {
    replica_sets: Option<Objects<ReplicaSet>>,
    revisions: Option<Objects<ControllerRevision>>,
    pods: Option<Objects<Pod>>,
    claims: Option<Objects<PersistentVolumeClaim>>,
    nodes: Nodes,
    jobs: Option<Objects<Job>>,
}

impl Parts {
    /// Lists that the kind does not need count as read.
    fn that_need(resources: &[Resource]) -> Self {
        let is_there = |resource: Resource| !resources.contains(&resource);
        Parts {
            replica_sets: is_there(ReplicaSet::RESOURCE).then(BTreeMap::new),
            revisions: is_there(ControllerRevision::RESOURCE).then(BTreeMap::new),
            pods: is_there(Pod::RESOURCE).then(BTreeMap::new),
            claims: is_there(PersistentVolumeClaim::RESOURCE).then(BTreeMap::new),
            nodes: Nodes(Rc::new(RefCell::new(is_there(Node::RESOURCE).then(BTreeMap::new)))),
            jobs: is_there(Job::RESOURCE).then(BTreeMap::new),
        }
    }

    fn take(&mut self, resource: Resource, change: Change, interner: &mut Interner) {
        match resource {
            ReplicaSet::RESOURCE => take(&mut self.replica_sets, change, interner),
            ControllerRevision::RESOURCE => take(&mut self.revisions, change, interner),
            PersistentVolumeClaim::RESOURCE => take(&mut self.claims, change, interner),
            Node::RESOURCE => take(&mut self.nodes.0.borrow_mut(), change, interner),
            Job::RESOURCE => take(&mut self.jobs, change, interner),
            _ => take(&mut self.pods, change, interner),
        }
    }
}

/// Follows one workload.
pub struct Follower {
    index: usize,
    /// The object.
    pub key: WorkloadKey,
    object: Option<Value>,
    /// The first object of that name: a namesake is another one.
    uid: Option<String>,
    is_deleted: bool,
    parts: Parts,
    interner: Interner,
    events: BTreeMap<String, Vec<Value>>,
    /// When the events of a pod were asked for last.
    events_asked: BTreeMap<String, Instant>,
    events_are_awaited: bool,
    may_read_events: bool,
    /// Whether the watches go on after the lists.
    follows: bool,
    /// Whether others watch the same lists, so that it watches nothing itself.
    is_shared: bool,
    /// Lists that the user may not read.
    lacking: Vec<Resource>,
    unreadable: Vec<String>,
    /// How many of those the user knows.
    told: usize,
    failing: FailingPods,
    /// Of each watch.
    silences: BTreeMap<&'static str, Silence>,
    has_changed: bool,
    assessed: Option<Instant>,
    is_news: bool,
    assessment: Option<Assessment>,
    end: Option<End>,
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

impl Follower {
    /// A follower that knows nothing yet. One that shares its watches with others starts none.
    pub fn new(index: usize, key: WorkloadKey, follows: bool, is_shared: bool) -> Self {
        Follower {
            index,
            key,
            object: None,
            uid: None,
            is_deleted: false,
            parts: Parts::default(),
            interner: Interner::default(),
            events: BTreeMap::new(),
            events_asked: BTreeMap::new(),
            events_are_awaited: false,
            may_read_events: true,
            follows,
            is_shared,
            lacking: Vec::new(),
            unreadable: Vec::new(),
            told: 0,
            failing: FailingPods::default(),
            silences: BTreeMap::new(),
            has_changed: false,
            assessed: None,
            is_news: false,
            assessment: None,
            end: None,
        }
    }

    /// Starts to watch the object, or to list it if it is not followed. The objects that tell its rollout follow once its
    /// selector is known.
    pub fn start(&self, api: &Arc<Api>, sender: &mpsc::Sender<Message>) {
        let fields = format!("metadata.name={}", self.key.name);
        self.watch(self.key.kind.resource(), String::new(), fields, api, sender);
    }

    fn watch(
        &self,
        resource: Resource,
        labels: String,
        fields: String,
        api: &Arc<Api>,
        sender: &mpsc::Sender<Message>,
    ) {
        let namespace = live::scope_of(resource, Some(&self.key.namespace)).map(str::to_owned);
        let selection = Selection { resource, namespace, labels, fields, follows: self.follows, known: None };
        let follower = Some(self.index);
        let wrap = move |change| Message { follower, news: News::Change(resource, change) };
        tokio::spawn(watch::watch(api.clone(), selection, sender.clone(), wrap));
    }

    /// `namespace/name`.
    pub fn label(&self) -> String {
        format!("{}/{}", self.key.namespace, self.key.name)
    }

    /// Takes note of a change. Returns whether the object exists, or has existed.
    ///
    /// # Errors
    /// When the user may not read the object, or it cannot be decoded.
    pub fn receive(
        &mut self,
        message: Message,
        api: &Arc<Api>,
        sender: &mpsc::Sender<Message>,
    ) -> Result<bool, CommandError> {
        let (resource, change) = match message.news {
            News::Change(resource, change) => (resource, change),
            News::Nodes => {
                self.silences.remove(Node::RESOURCE.plural);
                self.has_changed = true;
                return Ok(true);
            }
            News::Events(all) => {
                self.receive_events(all);
                return Ok(true);
            }
        };
        let is_own = resource == self.key.kind.resource();
        match change {
            Change::Interrupted(trouble) => {
                self.silences.entry(resource.plural).or_default().begin(&trouble);
                return Ok(true);
            }
            Change::Forbidden(why) => {
                if is_own {
                    return Err(CommandError::Argument(why));
                }
                self.parts.take(resource, Change::Listed(Vec::new()), &mut self.interner);
                self.lacking.push(resource);
                self.unreadable.push(why);
                self.has_changed = true;
                return Ok(true);
            }
            Change::Listed(_) | Change::Applied(_) | Change::Deleted(_) => {
                self.silences.remove(resource.plural);
            }
        }
        self.has_changed = true;
        if is_own {
            return self.receive_object(change, api, sender);
        }
        self.parts.take(resource, change, &mut self.interner);
        Ok(true)
    }

    fn receive_events(&mut self, all: Vec<(String, Result<Vec<Value>, ApiError>)>) {
        (self.events_are_awaited, self.has_changed) = (false, true);
        for (uid, events) in all {
            match events {
                Ok(events) => drop(self.events.insert(uid, events)),
                Err(error) if error.is_forbidden() && self.may_read_events => {
                    self.may_read_events = false;
                    self.unreadable.push(error.to_string());
                }
                // Asked for again after a pause.
                Err(_) => {}
            }
        }
    }

    fn receive_object(
        &mut self,
        change: Change,
        api: &Arc<Api>,
        sender: &mpsc::Sender<Message>,
    ) -> Result<bool, CommandError> {
        let object = match change {
            Change::Listed(all) => all.into_iter().next(),
            Change::Applied(object) => Some(object),
            _ => None,
        };
        let Some(object) = object else {
            self.is_deleted = self.uid.is_some();
            return Ok(self.is_deleted);
        };
        let uid = text(&object, "uid");
        match &self.uid {
            Some(known) if *known != uid => self.is_deleted = true,
            Some(_) => self.object = Some(object),
            None => {
                let kind = self.key.kind;
                let selector = live::label_selector(kind, &object)
                    .map_err(|error| CommandError::Unreadable { object: self.key.described(), error })?;
                (self.uid, self.object) = (Some(uid), Some(object));
                // Where it selects nothing or everything, no controller acts on it, and no list is needed.
                let parts: Vec<(Resource, String)> = selector
                    .iter()
                    .flat_map(|labels| live::parts(kind, labels))
                    .map(|(resource, labels)| (resource, labels.unwrap_or_default().to_owned()))
                    .collect();
                if !self.is_shared {
                    let resources: Vec<Resource> = parts.iter().map(|(resource, _)| *resource).collect();
                    self.parts = Parts::that_need(&resources);
                    for (resource, labels) in parts {
                        self.watch(resource, labels, String::new(), api, sender);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Whether there is anything to assess: a change, or time that has passed.
    pub fn is_due(&self) -> bool {
        self.has_changed || self.assessed.is_none_or(|at| at.elapsed() >= CLOCK)
    }

    /// Assesses the state. Returns false until all objects have been listed; with `needs_events`, until the events of the
    /// pods in the way have been read once, too.
    ///
    /// # Errors
    /// When the object cannot be decoded.
    pub fn assess(
        &mut self,
        api: &Arc<Api>,
        sender: &mpsc::Sender<Message>,
        needs_events: bool,
    ) -> Result<bool, CommandError> {
        (self.has_changed, self.assessed) = (false, Some(Instant::now()));
        if self.is_deleted && self.assessment.is_some() {
            self.is_news = true;
            return Ok(true);
        }
        let Parts { replica_sets, revisions, pods, claims, nodes, jobs } = &self.parts;
        let all_nodes = nodes.0.borrow();
        let (
            Some(object),
            Some(replica_sets),
            Some(revisions),
            Some(pods),
            Some(claims),
            Some(nodes),
            Some(jobs),
        ) = (&self.object, replica_sets, revisions, pods, claims, &*all_nodes, jobs)
        else {
            return Ok(false);
        };
        let records = Records {
            kind: self.key.kind,
            object,
            replica_sets: replica_sets.values().map(|seen| seen.record.clone()).collect(),
            revisions: decoded(revisions),
            pods: decoded(pods),
            claims: decoded(claims),
            nodes: decoded(nodes),
            jobs: decoded(jobs),
            events: &self.events,
            is_partial: !self.lacking.is_empty(),
            knows_pods: self.lacking.iter().all(|resource| *resource == Node::RESOURCE),
            unreadable: &self.unreadable,
        };
        let unreadable = |error| CommandError::Unreadable { object: self.key.described(), error };
        let assessment = rollout::assess_records(records, api.now()).map_err(unreadable)?;
        drop(all_nodes);
        self.ask_for_events(&assessment, api, sender);
        if needs_events && self.events_are_awaited {
            return Ok(false);
        }
        self.failing.observe(&assessment);
        self.assessment = Some(assessment);
        self.is_news = true;
        Ok(true)
    }

    /// Reads the events of what is in the way, in a task of its own: keys and changes are not held up.
    fn ask_for_events(&mut self, assessment: &Assessment, api: &Arc<Api>, sender: &mpsc::Sender<Message>) {
        let wanted = live::worth_events(assessment);
        self.events.retain(|uid, _| wanted.contains(uid));
        self.events_asked.retain(|uid, _| wanted.contains(uid));
        let is_idle = assessment.verdict.is_at_rest() || self.is_shared;
        if self.events_are_awaited || !self.may_read_events || is_idle {
            return;
        }
        let is_stale =
            |uid: &String| self.events_asked.get(uid).is_none_or(|asked| asked.elapsed() >= EVENTS_KEPT);
        let stale: Vec<String> = wanted.into_iter().filter(is_stale).collect();
        if stale.is_empty() {
            return;
        }
        self.events_are_awaited = true;
        self.events_asked.extend(stale.iter().map(|uid| (uid.clone(), Instant::now())));
        let (api, sender, follower) = (api.clone(), sender.clone(), self.index);
        let namespace = self.key.namespace.clone();
        tokio::spawn(async move {
            let mut all = Vec::new();
            for uid in stale {
                let events = live::events_of(&api, &namespace, &uid).await;
                let is_over = events.is_err();
                all.push((uid, events));
                if is_over {
                    break;
                }
            }
            // The command has ended otherwise.
            let _ = sender.send(Message { follower: Some(follower), news: News::Events(all) }).await;
        });
    }

    /// Decides whether the wait ends.
    pub fn judge(&mut self, args: &StatusArgs, timed_out: bool) {
        let Some(assessment) = &self.assessment else { return };
        if self.is_deleted {
            self.end = Some(End::Failed(format!("the {} was deleted", self.key.kind.title())));
            return;
        }
        let rules = Rules {
            revision: args.revision,
            past_deadline: args.past_deadline,
            hopeless_because: args
                .fail_fast
                .and_then(|patience| self.failing.hopeless_because(assessment, patience)),
            timed_out,
            waits: args.watch,
        };
        self.end = verdicts::judge(assessment, &rules);
    }

    /// The lists that its kind needs are those that others share: those of the others count as read.
    pub fn shares(&mut self, resources: &[Resource], nodes: &Nodes) {
        self.parts = Parts::that_need(resources);
        // Whatever it selects: the first of them takes the nodes in for all.
        if self.key.kind == Kind::DaemonSet {
            self.parts.nodes = nodes.clone();
        }
    }

    /// The pods that it holds of a controller, such as a ReplicaSet.
    pub fn pods_of(&self, controller: &str) -> Vec<Value> {
        let pods = self.parts.pods.iter().flat_map(Objects::values);
        pods.map(|seen| &seen.object)
            .filter(|pod| shared::controller(pod) == Some(controller))
            .cloned()
            .collect()
    }

    /// The UIDs of the objects whose events say more than they do themselves.
    pub fn worth_events(&self) -> Vec<String> {
        let going_on = self.assessment.as_ref().filter(|it| !it.verdict.is_at_rest());
        going_on.map(live::worth_events).unwrap_or_default()
    }

    /// The newest assessment.
    pub fn assessment(&self) -> Option<&Assessment> {
        self.assessment.as_ref()
    }

    /// The end of the wait, with the last assessment.
    pub fn ended(&self) -> Option<(&End, &Assessment)> {
        self.end.as_ref().zip(self.assessment.as_ref())
    }

    /// Why a watch is interrupted at the moment.
    pub fn trouble(&self) -> Option<&str> {
        self.silences.values().find_map(Silence::trouble)
    }

    /// The same, if the interruption lasts, with the name of the workload.
    pub fn lasting_line(&self) -> Option<String> {
        let trouble = self.silences.values().find_map(Silence::lasting)?;
        Some(format!("{}: {trouble}", self.label()))
    }

    /// The same, once for each interruption that lasts.
    pub fn new_trouble(&mut self) -> Option<String> {
        self.silences.values_mut().find_map(Silence::news)
    }

    /// The objects that could not be read, each once.
    pub fn new_unreadable(&mut self) -> Vec<String> {
        let new = self.unreadable.get(self.told..).unwrap_or_default().to_vec();
        self.told = self.unreadable.len();
        new
    }

    /// Whether there is a newer assessment than at the last call.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }
}

fn decoded<T>(objects: &Objects<T>) -> Vec<rollout::Decoded<'_, T>> {
    objects.values().map(|seen| (seen.record.clone(), &seen.object)).collect()
}

/// Takes a change of one watch in.
fn take<T: Record>(objects: &mut Option<Objects<T>>, change: Change, interner: &mut Interner) {
    let objects = objects.get_or_insert_default();
    let mut insert = |objects: &mut Objects<T>, object: Value| {
        let uid = text(&object, "uid");
        match rollout::decode(&object, interner) {
            Ok(record) => drop(objects.insert(uid, Seen { object, record: Arc::new(record) })),
            Err(_) => drop(objects.remove(&uid)),
        }
    };
    match change {
        Change::Listed(all) => {
            objects.clear();
            all.into_iter().for_each(|object| insert(objects, object));
        }
        Change::Applied(object) => insert(objects, object),
        Change::Deleted(object) => drop(objects.remove(&text(&object, "uid"))),
        Change::Interrupted(_) | Change::Forbidden(_) => {}
    }
}
