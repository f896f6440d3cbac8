//! The assessment of a workload from its objects. Pure, and on the daemon's own functions: the plan, its reasons and the
//! deadline are computed by `windlass::plan`, and nothing is decided twice.

pub mod claims;
mod cron_job;
pub(crate) mod daemon_set;
mod deployment;
pub mod estimate;
pub mod failing_pods;
pub mod headline;
mod job;
pub mod json;
pub mod last_writes;
pub mod live;
mod partial;
pub mod pods;
pub mod policy;
mod refusal;
mod replicas;
pub mod shared;
mod stateful_set;
pub mod verdict;
pub mod work;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{
    ControllerRevision, Interner, Job, Node, PersistentVolumeClaim, Pod, Record, ReplicaSet, Resource,
};
use windlass::plan::Reason;
use windlass::plan::statefulset::PlanReason;
use windlass::plan::statefulset::explain::Waiting;

use crate::target::Kind;
use claims::ClaimView;
use last_writes::Actor;
use pods::PodView;
pub use verdict::Verdict;
use work::Work;

/// The objects of one workload, as the API server sent them.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// Its kind.
    pub kind: Kind,
    /// The Deployment, StatefulSet, or other workload.
    pub object: Value,
    /// ReplicaSets that a Deployment selects.
    pub replica_sets: Vec<Value>,
    /// ControllerRevisions that a StatefulSet or DaemonSet selects.
    pub revisions: Vec<Value>,
    /// Pods that the workload selects. Of a StatefulSet all pods of the namespace: another one may have the name of one
    /// of its own.
    pub pods: Vec<Value>,
    /// Of a StatefulSet: the claims of the namespace.
    pub claims: Vec<Value>,
    /// Of a DaemonSet: the nodes, which all share.
    pub nodes: Arc<Vec<Value>>,
    /// Of a CronJob: the Jobs of the namespace, since one of another owner may have the name of one of its own.
    pub jobs: Vec<Value>,
    /// Events, by the UID of the object.
    pub events: BTreeMap<String, Vec<Value>>,
    /// Whether one of these lists could not be read: then nothing is planned, and the status counts alone.
    pub is_partial: bool,
    /// Whether the nodes alone could not be read, so that what the pods report can be told.
    pub lacks_nodes_only: bool,
    /// The objects that could not be read, with the server's answer.
    pub unreadable: Vec<String>,
}

impl Workload {
    /// The list of a resource that tells the rollout.
    pub fn list_mut(&mut self, resource: Resource) -> &mut Vec<Value> {
        match resource {
            ReplicaSet::RESOURCE => &mut self.replica_sets,
            ControllerRevision::RESOURCE => &mut self.revisions,
            PersistentVolumeClaim::RESOURCE => &mut self.claims,
            Node::RESOURCE => Arc::make_mut(&mut self.nodes),
            Job::RESOURCE => &mut self.jobs,
            _ => &mut self.pods,
        }
    }

    /// Takes note of a list that the user may not read.
    pub fn lacks(&mut self, resource: Resource, why: String) {
        self.lacks_nodes_only = resource == Node::RESOURCE && (!self.is_partial || self.lacks_nodes_only);
        self.is_partial = true;
        self.unreadable.push(why);
    }
}

/// The same, decoded.
pub struct Records<'a> {
    /// As [`Workload::kind`].
    pub kind: Kind,
    /// The workload, which tells its writers besides.
    pub object: &'a Value,
    /// As [`Workload::replica_sets`].
    pub replica_sets: Vec<Arc<ReplicaSet>>,
    /// As [`Workload::revisions`].
    pub revisions: Vec<Decoded<'a, ControllerRevision>>,
    /// As [`Workload::pods`].
    pub pods: Vec<Decoded<'a, Pod>>,
    /// As [`Workload::claims`].
    pub claims: Vec<Decoded<'a, PersistentVolumeClaim>>,
    /// As [`Workload::nodes`].
    pub nodes: Vec<Decoded<'a, Node>>,
    /// As [`Workload::jobs`].
    pub jobs: Vec<Decoded<'a, Job>>,
    /// As [`Workload::events`].
    pub events: &'a BTreeMap<String, Vec<Value>>,
    /// As [`Workload::is_partial`].
    pub is_partial: bool,
    /// Whether the pods, and what tells which of them are new, are known.
    pub knows_pods: bool,
    /// As [`Workload::unreadable`].
    pub unreadable: &'a [String],
}

/// A record, with the object that it was decoded from.
pub type Decoded<'a, T> = (Arc<T>, &'a Value);

/// Everything known of a rollout at one time.
#[derive(Clone, Debug)]
pub struct Assessment {
    /// The kind of the workload.
    pub kind: Kind,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`.
    pub observed_generation: i64,
    /// The revision of the current template, as the object reports it.
    pub revision: Option<i64>,
    /// The state in one word.
    pub verdict: Verdict,
    /// Since when the object is in that state: as its conditions report it, or the first pod that it waits for.
    pub since: Option<Timestamp>,
    /// The reasons of the plan, as the daemon publishes them.
    pub reasons: Vec<Reason>,
    /// Why the API server refuses a pod or claim of a StatefulSet, as an event says; foreign text, already harmless.
    pub refusal: Option<String>,
    /// The writes of the plan, in words.
    pub writes: Vec<String>,
    /// The counts of its status.
    pub counts: Counts,
    /// How many pods are to have the new template: fewer than are desired where a partition holds some back.
    pub desired_new: i64,
    /// The next pods that a StatefulSet creates or deletes once it waits no more: words such as `creates db-2`.
    pub then: Option<String>,
    /// Pods with an older template that stay until a user deletes them.
    pub by_hand: Vec<String>,
    /// The conditions of its status, in words.
    pub conditions: Vec<String>,
    /// Its ReplicaSets or revisions with pods, the new one first.
    pub parts: Vec<PartView>,
    /// Pods that are not ready, the worst first. Those of a Deployment that are being deleted are left out; a StatefulSet
    /// waits for them.
    pub pods: Vec<PodView>,
    /// Claims of a StatefulSet that are in the way.
    pub claims: Vec<ClaimView>,
    /// When the progress deadline passes.
    pub deadline: Option<Timestamp>,
    /// The time until the rollout is complete, if that can be told.
    pub estimate: Option<std::time::Duration>,
    /// The last writer of the status.
    pub acts: Option<Actor>,
    /// When the template was written last.
    pub template_written: Option<Timestamp>,
    /// The revision to go back to, with its images: of those before this one in the history the newest, of a Deployment
    /// the newest that has available pods.
    pub previous: Option<(i64, String)>,
    /// The numbers of a Job or CronJob.
    pub work: Option<Work>,
    /// The state in a sentence, where neither a reason nor a pod tells more. Foreign text in it is harmless.
    pub summary: Option<String>,
    /// The rollout policy of a Deployment or DaemonSet that is in force, in one line.
    pub policy: Option<String>,
    /// Whether something could not be read: reasons and writes are then empty, and say nothing.
    pub is_partial: bool,
    /// Whether the pods are known: else parts and pods are empty, and say nothing.
    pub knows_pods: bool,
    /// The objects that could not be read.
    pub unreadable: Vec<String>,
    /// The time of the assessment.
    pub now: Timestamp,
}

impl Assessment {
    /// Whether a controller has observed the newest generation.
    pub fn is_observed(&self) -> bool {
        self.observed_generation >= self.generation
    }

    /// The pods of the new template.
    pub fn new_part(&self) -> Option<&PartView> {
        self.parts.iter().find(|part| part.is_new)
    }

    /// The object as the arguments of commands name it, such as `sts/db`.
    pub fn argument(&self) -> String {
        format!("{}/{}", self.kind.short(), self.name)
    }

    /// Whether another template runs than in an earlier assessment.
    pub fn supersedes(&self, before: &Assessment) -> bool {
        let name_of_new = |assessment: &Assessment| assessment.new_part().map(|new| new.name.clone());
        self.knows_pods
            && name_of_new(before).is_some()
            && name_of_new(before) != name_of_new(self)
            && before.generation != self.generation
    }

    /// How many new pods are available; `None` where only the status is known, which counts all pods alike.
    pub fn new_available(&self) -> Option<i64> {
        let has_parts = self.knows_pods && self.kind.has_revisions();
        has_parts.then(|| self.new_part().map_or(0, |new| new.available))
    }
}

/// The numbers of pods that the object reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `spec.replicas`.
    pub desired: i64,
    /// `status.replicas`.
    pub replicas: i64,
    /// `status.updatedReplicas`.
    pub updated: i64,
    /// `status.readyReplicas`.
    pub ready: i64,
    /// `status.availableReplicas`.
    pub available: i64,
}

/// The pods of one template: of a ReplicaSet of a Deployment, or of a revision of a StatefulSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartView {
    /// The name of the ReplicaSet or ControllerRevision.
    pub name: String,
    /// Whether it has the current template.
    pub is_new: bool,
    /// `spec.replicas`; of a revision, how many pods there are.
    pub desired: i64,
    /// How many pods there are.
    pub replicas: i64,
    /// How many of them are ready.
    pub ready: i64,
    /// How many of them are available.
    pub available: i64,
    /// How many of its pods are in each state, most first.
    pub states: Vec<(String, usize)>,
}

/// Decodes a record of the daemon from an object.
///
/// # Errors
/// When the object is not what its kind says.
pub fn decode<T: Record>(object: &Value, interner: &mut Interner) -> Result<T, serde_json::Error> {
    T::decode(&object.to_string(), interner)
}

fn decoded<'a, T: Record>(objects: &'a [Value], interner: &mut Interner) -> Vec<Decoded<'a, T>> {
    objects.iter().filter_map(|object| Some((Arc::new(decode(object, interner).ok()?), object))).collect()
}

/// Assesses a rollout.
///
/// # Errors
/// When the object is not what its kind says. Other objects that cannot be read are left out.
pub fn assess(workload: &Workload, now: Timestamp) -> Result<Assessment, serde_json::Error> {
    let interner = &mut Interner::default();
    let records = Records {
        kind: workload.kind,
        object: &workload.object,
        replica_sets: decoded(&workload.replica_sets, interner).into_iter().map(|(it, _)| it).collect(),
        revisions: decoded(&workload.revisions, interner),
        pods: decoded(&workload.pods, interner),
        claims: decoded(&workload.claims, interner),
        nodes: decoded(&workload.nodes, interner),
        jobs: decoded(&workload.jobs, interner),
        events: &workload.events,
        is_partial: workload.is_partial,
        knows_pods: !workload.is_partial || workload.lacks_nodes_only,
        unreadable: &workload.unreadable,
    };
    assess_records(records, now)
}

/// The same, where the objects are decoded already.
///
/// # Errors
/// When the object is not what its kind says.
pub fn assess_records(records: Records<'_>, now: Timestamp) -> Result<Assessment, serde_json::Error> {
    match records.kind {
        Kind::Deployment | Kind::Pod => deployment::assess(records, now),
        Kind::StatefulSet => stateful_set::assess(records, now),
        Kind::DaemonSet => daemon_set::assess(records, now),
        Kind::ReplicationController | Kind::ReplicaSet => replicas::assess(records, now),
        Kind::Job => job::assess(records, now),
        Kind::CronJob => cron_job::assess(records, now),
    }
}

/// The pods that a StatefulSet waits for, each with what helps.
pub fn waiting(assessment: &Assessment) -> impl Iterator<Item = &Waiting> {
    assessment.reasons.iter().flat_map(|reason| match reason {
        Reason::Ordinals(PlanReason::Waiting { pods, .. }) => pods.as_slice(),
        _ => &[],
    })
}

/// The images of the containers of a pod template, in their order.
fn images(template: &Value) -> String {
    let containers = template["spec"]["containers"].as_array().into_iter().flatten();
    let images: Vec<String> = containers
        .filter_map(|container| Some(crate::text::harmless(container["image"].as_str()?)))
        .collect();
    images.join(", ")
}

#[cfg(test)]
pub(crate) mod tests;
