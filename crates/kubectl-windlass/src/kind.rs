//! The kinds that commands work on, and how the command line names them.

use windlass::model::{
    CronJob, DaemonSet, Deployment, Job, Pod, Record as _, ReplicaSet, ReplicationController, Resource,
    StatefulSet,
};

/// The kind of an object that a command works on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A Deployment.
    #[default]
    Deployment,
    /// A StatefulSet.
    StatefulSet,
    /// A DaemonSet.
    DaemonSet,
    /// A ReplicationController.
    ReplicationController,
    /// A ReplicaSet. One that another object controls stands for its owner.
    ReplicaSet,
    /// A Job.
    Job,
    /// A CronJob.
    CronJob,
    /// A pod. It stands for its owner.
    Pod,
}

impl Kind {
    /// The kinds of workloads, in the order in which they are listed.
    pub const WORKLOADS: [Kind; 7] = [
        Kind::Deployment,
        Kind::StatefulSet,
        Kind::DaemonSet,
        Kind::ReplicationController,
        Kind::ReplicaSet,
        Kind::Job,
        Kind::CronJob,
    ];

    /// The name for messages, as kubectl writes it in front of a slash.
    pub fn singular(self) -> &'static str {
        match self {
            Kind::Deployment => "deployment",
            Kind::StatefulSet => "statefulset",
            Kind::DaemonSet => "daemonset",
            Kind::ReplicationController => "replicationcontroller",
            Kind::ReplicaSet => "replicaset",
            Kind::Job => "job",
            Kind::CronJob => "cronjob",
            Kind::Pod => "pod",
        }
    }

    /// The short name for commands.
    pub fn short(self) -> &'static str {
        match self {
            Kind::Deployment => "deploy",
            Kind::StatefulSet => "sts",
            Kind::DaemonSet => "ds",
            Kind::ReplicationController => "rc",
            Kind::ReplicaSet => "rs",
            Kind::Job => "job",
            Kind::CronJob => "cj",
            Kind::Pod => "pod",
        }
    }

    /// The name in sentences.
    pub fn title(self) -> &'static str {
        self.resource().kind
    }

    /// Where its objects are.
    pub fn resource(self) -> Resource {
        match self {
            Kind::Deployment => Deployment::RESOURCE,
            Kind::StatefulSet => StatefulSet::RESOURCE,
            Kind::DaemonSet => DaemonSet::RESOURCE,
            Kind::ReplicationController => ReplicationController::RESOURCE,
            Kind::ReplicaSet => ReplicaSet::RESOURCE,
            Kind::Job => Job::RESOURCE,
            Kind::CronJob => CronJob::RESOURCE,
            Kind::Pod => Pod::RESOURCE,
        }
    }

    /// Whether its rollouts have revisions that one can look at and go back to.
    pub fn has_revisions(self) -> bool {
        matches!(self, Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet)
    }

    /// Why a command about revisions does not take it.
    pub fn lacks_revisions(self) -> Option<&'static str> {
        let why = "it has no revisions; Deployments, StatefulSets and DaemonSets have";
        (!self.has_revisions()).then_some(why)
    }

    /// Whether its revisions are ControllerRevisions.
    pub fn has_controller_revisions(self) -> bool {
        matches!(self, Kind::StatefulSet | Kind::DaemonSet)
    }

    /// Reads a resource name: singular, plural or short, with or without its group. `None` for a word that names none.
    pub fn parse(word: &str) -> Option<Kind> {
        let word = word.to_ascii_lowercase();
        if word == "po" {
            return Some(Kind::Pod);
        }
        Kind::WORKLOADS.into_iter().chain([Kind::Pod]).find(|kind| {
            let Resource { group, plural, .. } = kind.resource();
            let (name, version_or_group) = word.split_once('.').unwrap_or((&word, ""));
            let is_of_group = match version_or_group.split_once('.') {
                // `deployments.v1.apps`, as kubectl reads it.
                Some((version, of)) => version == "v1" && of == group,
                None => version_or_group.is_empty() || version_or_group == group,
            };
            is_of_group && [kind.singular(), kind.short(), plural].contains(&name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_known_by_each_name_that_kubectl_knows() {
        for (kind, words) in [
            (
                Kind::Deployment,
                &["deploy", "deployment", "Deployments", "deploy.apps", "deployments.v1.apps"][..],
            ),
            (Kind::DaemonSet, &["ds", "daemonset", "daemonsets.apps"]),
            (Kind::CronJob, &["cj", "cronjob", "cronjobs", "cronjobs.batch"]),
            (Kind::Pod, &["po", "pod", "pods"]),
            (Kind::ReplicationController, &["rc", "replicationcontrollers"]),
        ] {
            for word in words {
                assert_eq!(Kind::parse(word), Some(kind), "{word}");
            }
        }
        for word in ["svc", "deployments.extensions", "", ".apps", "job.apps"] {
            assert_eq!(Kind::parse(word), None, "{word}");
        }
    }
}
