//! The objects of one Deployment as watches report them, and what they say.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass::model::{Deployment, Pod, Record as _, ReplicaSet, Resource};

use super::verdicts::{self, End, Rules};
use crate::api::Api;
use crate::cli::StatusArgs;
use crate::exit::CommandError;
use crate::rollout::doom::FailingPods;
use crate::rollout::{self, Assessment, Workload, live};
use crate::watch::{self, Change, Selection};

/// How long the events of a pod are kept before they are read again.
const EVENTS_KEPT: Duration = Duration::from_secs(10);

/// A change for a follower.
pub struct Message {
    /// The index of the follower.
    pub follower: usize,
    /// Which of its watches reports it.
    part: Part,
    change: Change,
}

/// The watches of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Deployment,
    ReplicaSets,
    Pods,
}

/// Follows one Deployment.
pub struct Follower {
    index: usize,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    deployment: Option<Value>,
    /// The first Deployment of that name: a namesake is another one.
    uid: Option<String>,
    is_deleted: bool,
    replica_sets: Option<BTreeMap<String, Value>>,
    pods: Option<BTreeMap<String, Value>>,
    events: BTreeMap<String, (Instant, Vec<Value>)>,
    may_read_events: bool,
    pods_are_unknown: bool,
    unreadable: Vec<String>,
    failing: FailingPods,
    trouble: Option<String>,
    trouble_is_new: Cell<bool>,
    assessment: Option<Assessment>,
    end: Option<End>,
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

impl Follower {
    /// Starts to watch the Deployment. Its ReplicaSets and pods follow once its selector is known.
    pub fn start(
        index: usize,
        namespace: String,
        name: String,
        api: &Arc<Api>,
        sender: &mpsc::Sender<Message>,
    ) -> Self {
        let follower = Follower {
            index,
            namespace,
            name,
            deployment: None,
            uid: None,
            is_deleted: false,
            replica_sets: None,
            pods: None,
            events: BTreeMap::new(),
            may_read_events: true,
            pods_are_unknown: false,
            unreadable: Vec::new(),
            failing: FailingPods::default(),
            trouble: None,
            trouble_is_new: Cell::new(false),
            assessment: None,
            end: None,
        };
        let fields = format!("metadata.name={}", follower.name);
        follower.watch(Part::Deployment, Deployment::RESOURCE, String::new(), fields, api, sender);
        follower
    }

    fn watch(
        &self,
        part: Part,
        resource: Resource,
        labels: String,
        fields: String,
        api: &Arc<Api>,
        sender: &mpsc::Sender<Message>,
    ) {
        let selection = Selection { resource, namespace: self.namespace.clone(), labels, fields };
        let follower = self.index;
        let wrap = move |change| Message { follower, part, change };
        tokio::spawn(watch::watch(api.clone(), selection, sender.clone(), wrap));
    }

    /// `namespace/name`.
    pub fn label(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Takes note of a change. Returns whether the Deployment exists, or has existed.
    ///
    /// # Errors
    /// When the user may not read the Deployment, or it cannot be decoded.
    pub fn receive(
        &mut self,
        message: Message,
        api: &Arc<Api>,
        sender: &mpsc::Sender<Message>,
    ) -> Result<bool, CommandError> {
        let Message { part, change, .. } = message;
        match change {
            Change::Interrupted(trouble) => {
                self.trouble_is_new.set(self.trouble.as_ref() != Some(&trouble));
                self.trouble = Some(trouble);
                return Ok(true);
            }
            Change::Forbidden(why) => {
                let none = || Some(BTreeMap::new());
                match part {
                    Part::Deployment => return Err(CommandError::Argument(why)),
                    Part::ReplicaSets => self.replica_sets = none(),
                    Part::Pods => (self.pods, self.pods_are_unknown) = (none(), true),
                }
                self.unreadable.push(why);
                return Ok(true);
            }
            Change::Listed(_) | Change::Applied(_) | Change::Deleted(_) => self.trouble = None,
        }
        let objects = match part {
            Part::Deployment => return self.receive_deployment(change, api, sender),
            Part::ReplicaSets => &mut self.replica_sets,
            Part::Pods => &mut self.pods,
        };
        let objects = objects.get_or_insert_default();
        match change {
            Change::Listed(all) => {
                *objects = all.into_iter().map(|object| (text(&object, "uid"), object)).collect();
            }
            Change::Applied(object) => {
                objects.insert(text(&object, "uid"), object);
            }
            Change::Deleted(object) => {
                objects.remove(&text(&object, "uid"));
            }
            Change::Interrupted(_) | Change::Forbidden(_) => {}
        }
        Ok(true)
    }

    fn receive_deployment(
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
            Some(_) => self.deployment = Some(object),
            None => {
                let selector = live::label_selector(&object).map_err(|error| {
                    let object = format!("deployment {}", self.label());
                    CommandError::Unreadable { object, error }
                })?;
                (self.uid, self.deployment) = (Some(uid), Some(object));
                match selector {
                    Some(labels) => {
                        let none = String::new;
                        self.watch(
                            Part::ReplicaSets,
                            ReplicaSet::RESOURCE,
                            labels.clone(),
                            none(),
                            api,
                            sender,
                        );
                        self.watch(Part::Pods, Pod::RESOURCE, labels, none(), api, sender);
                    }
                    // It selects nothing or everything, and no controller acts on it.
                    None => {
                        (self.replica_sets, self.pods) = (Some(BTreeMap::new()), Some(BTreeMap::new()));
                    }
                }
            }
        }
        Ok(true)
    }

    /// Assesses the state. Returns false until all objects have been listed.
    ///
    /// # Errors
    /// When the Deployment cannot be decoded.
    pub async fn assess(&mut self, api: &Api) -> Result<bool, CommandError> {
        if self.is_deleted && self.assessment.is_some() {
            return Ok(true);
        }
        let (Some(deployment), Some(replica_sets), Some(pods)) =
            (&self.deployment, &self.replica_sets, &self.pods)
        else {
            return Ok(false);
        };
        let mut workload = Workload {
            deployment: deployment.clone(),
            replica_sets: replica_sets.values().cloned().collect(),
            pods: pods.values().cloned().collect(),
            events: self.events.iter().map(|(uid, (_, events))| (uid.clone(), events.clone())).collect(),
            pods_are_unknown: self.pods_are_unknown,
            unreadable: self.unreadable.clone(),
        };
        let label = self.label();
        let unreadable = |error| CommandError::Unreadable { object: format!("deployment {label}"), error };
        let mut assessment = rollout::assess(&workload, api.now()).map_err(unreadable)?;
        let wanted = live::worth_events(&assessment);
        self.events.retain(|uid, _| wanted.contains(uid));
        let stale: Vec<String> = wanted
            .into_iter()
            .filter(|uid| self.events.get(uid).is_none_or(|(read, _)| read.elapsed() >= EVENTS_KEPT))
            .collect();
        if self.may_read_events && !stale.is_empty() && !assessment.verdict.is_at_rest() {
            for uid in stale {
                match live::events_of(api, &self.namespace, &uid).await {
                    Ok(events) => {
                        workload.events.insert(uid.clone(), events.clone());
                        self.events.insert(uid, (Instant::now(), events));
                    }
                    Err(error) => {
                        if error.is_forbidden() {
                            self.may_read_events = false;
                            self.unreadable.push(error.to_string());
                        }
                        break;
                    }
                }
            }
            assessment = rollout::assess(&workload, api.now()).map_err(unreadable)?;
        }
        self.failing.observe(&assessment);
        self.assessment = Some(assessment);
        Ok(true)
    }

    /// Decides whether the wait ends.
    pub fn judge(&mut self, args: &StatusArgs, timed_out: bool) {
        let Some(assessment) = &self.assessment else { return };
        if self.is_deleted {
            self.end = Some(End::Failed("the Deployment was deleted".to_owned()));
            return;
        }
        let rules = Rules {
            revision: args.revision,
            past_deadline: args.past_deadline,
            doom: args.fail_fast.and_then(|patience| self.failing.doom(assessment, patience)),
            timed_out,
            waits: args.watch,
        };
        self.end = verdicts::judge(assessment, &rules);
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
        self.trouble.as_deref()
    }

    /// The same, once for each reason.
    pub fn new_trouble(&self) -> Option<&str> {
        self.trouble().filter(|_| self.trouble_is_new.replace(false))
    }
}
