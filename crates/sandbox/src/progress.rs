//! The progress of rollouts, in the words of `kubectl rollout status`, and whether all applied workloads are rolled
//! out. Pure.

mod job;

use std::collections::BTreeSet;

use serde_json::Value;

use super::cluster::{Cluster, Followed, Key, Pod, desired_replicas, key, number};
use super::event_lines::plain;
pub use job::{completions, counts, job_rollout, job_state};

/// The progress of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rollout {
    /// In progress.
    Waiting(String),
    /// All desired pods have the newest template and are available, and a Deployment has no others.
    Complete(String),
    /// No progress within `progressDeadlineSeconds`.
    Failed(String),
}

impl Rollout {
    /// The message.
    pub fn text(&self) -> &str {
        let (Rollout::Waiting(text) | Rollout::Complete(text) | Rollout::Failed(text)) = self;
        text
    }
}

/// The progress of a Deployment as `kubectl rollout status` reports it.
pub fn rollout(deployment: &Value) -> Rollout {
    let (_, name) = key(deployment);
    if number(deployment, "/status/observedGeneration") < number(deployment, "/metadata/generation") {
        return Rollout::Waiting("Waiting for deployment spec update to be observed...".to_owned());
    }
    if condition(deployment, "Progressing").is_some_and(|c| c["reason"] == "ProgressDeadlineExceeded") {
        return Rollout::Failed(format!("deployment \"{name}\" exceeded its progress deadline"));
    }
    let desired = desired_replicas(deployment);
    let updated = number(deployment, "/status/updatedReplicas");
    let all = number(deployment, "/status/replicas");
    let available = number(deployment, "/status/availableReplicas");
    let waiting = format!("Waiting for deployment \"{name}\" rollout to finish:");
    match () {
        () if updated < desired => Rollout::Waiting(format!(
            "{waiting} {updated} out of {desired} new replicas have been updated..."
        )),
        () if all > updated => {
            Rollout::Waiting(format!("{waiting} {} old replicas are pending termination...", all - updated))
        }
        () if available < updated => {
            Rollout::Waiting(format!("{waiting} {available} of {updated} updated replicas are available..."))
        }
        () => Rollout::Complete(format!("deployment \"{name}\" successfully rolled out")),
    }
}

/// The progress of a DaemonSet as `kubectl rollout status` reports it. kubectl refuses the strategy `OnDelete`; here
/// only the availability counts for it.
pub fn daemon_rollout(daemon_set: &Value) -> Rollout {
    let (_, name) = key(daemon_set);
    if number(daemon_set, "/status/observedGeneration") < number(daemon_set, "/metadata/generation") {
        return Rollout::Waiting("Waiting for daemon set spec update to be observed...".to_owned());
    }
    let desired = number(daemon_set, "/status/desiredNumberScheduled");
    let updated = number(daemon_set, "/status/updatedNumberScheduled");
    let available = number(daemon_set, "/status/numberAvailable");
    let waiting = format!("Waiting for daemon set \"{name}\" rollout to finish:");
    let by_hand = daemon_set["spec"]["updateStrategy"]["type"] == "OnDelete";
    match () {
        () if updated < desired && !by_hand => {
            Rollout::Waiting(format!("{waiting} {updated} out of {desired} new pods have been updated..."))
        }
        () if available < desired => {
            Rollout::Waiting(format!("{waiting} {available} of {desired} updated pods are available..."))
        }
        () => Rollout::Complete(format!("daemon set \"{name}\" successfully rolled out")),
    }
}

/// The progress of a StatefulSet as `kubectl rollout status` reports it, but that a pod counts once it is available. kubectl
/// refuses the strategy `OnDelete`; here only the availability counts for it.
pub fn stateful_rollout(stateful_set: &Value) -> Rollout {
    let status = |field: &str| number(stateful_set, &format!("/status/{field}"));
    let revision = |field: &str| stateful_set["status"][field].as_str().unwrap_or_default();
    let observed = status("observedGeneration");
    if observed == 0 || observed < number(stateful_set, "/metadata/generation") {
        return Rollout::Waiting("Waiting for statefulset spec update to be observed...".to_owned());
    }
    let desired = desired_replicas(stateful_set);
    let (updated, missing) = (status("updatedReplicas"), desired - status("availableReplicas"));
    let strategy = &stateful_set["spec"]["updateStrategy"];
    let partition = strategy["rollingUpdate"]["partition"].as_i64();
    match (missing, partition) {
        (1.., _) => Rollout::Waiting(format!("Waiting for {missing} pods to be ready...")),
        (_, Some(partition)) if updated < desired - partition => Rollout::Waiting(format!(
            "Waiting for partitioned roll out to finish: {updated} out of {} new pods have been updated...",
            desired - partition
        )),
        (_, Some(_)) => Rollout::Complete(format!(
            "partitioned roll out complete: {updated} new pods have been updated..."
        )),
        (_, None)
            if strategy["type"] != "OnDelete"
                && revision("updateRevision") != revision("currentRevision") =>
        {
            Rollout::Waiting(format!(
                "waiting for statefulset rolling update to complete {updated} pods at revision {}...",
                revision("updateRevision")
            ))
        }
        (_, None) => Rollout::Complete(format!(
            "statefulset rolling update complete {} pods at revision {}...",
            status("currentReplicas"),
            revision("currentRevision")
        )),
    }
}

/// The progress of a ReplicaSet or a ReplicationController, of which kubectl reports none.
pub fn replica_rollout(replicas: &Value) -> Rollout {
    let (_, name) = key(replicas);
    if number(replicas, "/status/observedGeneration") < number(replicas, "/metadata/generation") {
        return Rollout::Waiting(format!("Waiting for the spec update of \"{name}\" to be observed..."));
    }
    let desired = desired_replicas(replicas);
    let all = number(replicas, "/status/replicas");
    let available = number(replicas, "/status/availableReplicas");
    match () {
        () if available < desired => Rollout::Waiting(format!(
            "Waiting for \"{name}\" to finish: {available} of {desired} replicas are available..."
        )),
        () if all > desired => Rollout::Waiting(format!(
            "Waiting for \"{name}\" to finish: {} surplus replicas are pending termination...",
            all - desired
        )),
        () => Rollout::Complete(format!("\"{name}\" has all of its {desired} replicas")),
    }
}

/// The progress of a pod of its own: it has to succeed if it does not run for ever, else to become ready.
pub fn pod_rollout(name: &str, pod: &Pod) -> Rollout {
    match (&*pod.state, pod.runs_for_ever) {
        ("Failed", _) => Rollout::Failed(format!("pod \"{name}\" has failed")),
        ("Succeeded", _) => Rollout::Complete(format!("pod \"{name}\" has succeeded")),
        ("Ready", true) => Rollout::Complete(format!("pod \"{name}\" is ready")),
        (state, true) => Rollout::Waiting(format!("Waiting for pod \"{name}\" to become ready: {state}...")),
        (state, false) => Rollout::Waiting(format!("Waiting for pod \"{name}\" to succeed: {state}...")),
    }
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

/// The progress of all applied workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Some rollouts are in progress.
    Pending,
    /// All rollouts are complete.
    Complete,
    /// A rollout cannot complete: which one, and why.
    Failed(String),
}

/// A kind that is waited for.
#[derive(Clone, Copy)]
struct Row {
    kind: &'static str,
    followed: Followed,
    /// The progress of an object of the kind. Of pods the cluster keeps no objects.
    rollout: fn(&Value) -> Rollout,
    /// Whether its objects are said to be rolled out, and not just complete.
    rolls_out: bool,
}

/// The kinds that are waited for: those that the sandbox runs.
const KINDS: [Row; 7] = [
    Row { kind: "Deployment", followed: Followed::Deployment, rollout, rolls_out: true },
    Row { kind: "DaemonSet", followed: Followed::DaemonSet, rollout: daemon_rollout, rolls_out: true },
    Row { kind: "StatefulSet", followed: Followed::StatefulSet, rollout: stateful_rollout, rolls_out: true },
    Row { kind: "ReplicaSet", followed: Followed::ReplicaSet, rollout: replica_rollout, rolls_out: false },
    Row {
        kind: "ReplicationController",
        followed: Followed::ReplicationController,
        rollout: replica_rollout,
        rolls_out: false,
    },
    Row { kind: "Job", followed: Followed::Job, rollout: job_rollout, rolls_out: false },
    Row {
        kind: "Pod",
        followed: Followed::Pod,
        rollout: |pod| pod_rollout(&key(pod).1, &Pod::of(pod)),
        rolls_out: false,
    },
];

/// The names of the kinds that are waited for, such as `Deployments`, with a word before the last of them.
pub fn waited_for(word: &str) -> String {
    listed(&KINDS.map(|row| format!("{}s", row.kind)), word)
}

/// `A, B and C` for the word `and`.
fn listed(names: &[String], word: &str) -> String {
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} {word} {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// A workload that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its place in [`KINDS`].
    row: usize,
    key: Key,
}

impl Target {
    /// The target of that kind and name; `None` for a kind that nobody waits for.
    pub fn new(kind: &str, key: Key) -> Option<Self> {
        Some(Target { row: KINDS.iter().position(|row| row.kind == kind)?, key })
    }

    fn of(followed: Followed, key: Key) -> Option<Self> {
        Some(Target { row: KINDS.iter().position(|row| row.followed == followed)?, key })
    }

    fn row(&self) -> Row {
        KINDS[self.row]
    }

    /// The kind as it is watched.
    pub fn followed(&self) -> Followed {
        self.row().followed
    }

    /// The progress; `None` if the cluster has no such object.
    fn rollout(&self, cluster: &Cluster) -> Option<Rollout> {
        match self.followed() {
            Followed::Pod => cluster.pods.get(&self.key).map(|pod| pod_rollout(&self.key.1, pod)),
            followed => cluster.objects(followed).get(&self.key).map(self.row().rollout),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (namespace, name) = &self.key;
        write!(f, "{} {namespace}/{name}", self.row().kind)
    }
}

/// The workloads that were applied.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    targets: BTreeSet<Target>,
    /// Those that were observed, to distinguish a deleted target from one that does not exist yet.
    seen: BTreeSet<Target>,
    complete: BTreeSet<Target>,
}

impl Progress {
    /// The progress of these targets.
    pub fn new(targets: impl IntoIterator<Item = Target>) -> Self {
        Progress { targets: targets.into_iter().collect(), ..Progress::default() }
    }

    /// Whether there is nothing to wait for.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The message at the end: `all Deployments are rolled out: 3`. It names DaemonSets that no node fits, which are complete
    /// without a pod, and Jobs that somebody has to resume.
    pub fn done(&self, cluster: &Cluster) -> String {
        let rows: BTreeSet<usize> = self.targets.iter().map(|target| target.row).collect();
        let rows: Vec<Row> = rows.into_iter().map(|row| KINDS[row]).collect();
        let kinds: Vec<String> = rows.iter().map(|row| format!("{}s", row.kind)).collect();
        let end = if rows.iter().all(|row| row.rolls_out) { "rolled out" } else { "complete" };
        let has_no_pod = |target: &&Target| {
            let is_one = target.followed() == Followed::DaemonSet;
            let daemon_set = cluster.daemon_sets.get(&target.key).filter(|_| is_one);
            daemon_set.is_some_and(|object| number(object, "/status/desiredNumberScheduled") == 0)
        };
        let empty = self.targets.iter().filter(has_no_pod);
        let empty: String =
            empty.map(|target| format!("; {target} has no pod: it matches no node")).collect();
        let is_suspended = |target: &&Target| {
            let job = cluster.jobs.get(&target.key).filter(|_| target.followed() == Followed::Job);
            job.is_some_and(|job| job_state(job) == "Suspended")
        };
        let suspended = self.targets.iter().filter(is_suspended);
        let suspended: String = suspended.map(|target| format!("; {target} is suspended")).collect();
        format!("all {} are {end}: {}{empty}{suspended}", listed(&kinds, "and"), self.targets.len())
    }

    /// The completion after the object of this kind and name has changed in the cluster. Only this one is judged.
    pub fn completion_after(&mut self, kind: Followed, key: Key, cluster: &Cluster) -> Completion {
        let target = Target::of(kind, key).filter(|target| self.targets.contains(target));
        let Some(target) = target else { return Completion::Pending };
        let Some(rollout) = target.rollout(cluster) else {
            // A Job may go once it has succeeded, such as by `ttlSecondsAfterFinished: 0`.
            if kind == Followed::Job && self.complete.contains(&target) {
                return self.completion();
            }
            self.complete.remove(&target);
            return match self.seen.contains(&target) {
                true => Completion::Failed(format!("{target} was deleted")),
                false => Completion::Pending,
            };
        };
        match rollout {
            Rollout::Complete(_) => self.complete.insert(target.clone()),
            Rollout::Waiting(_) => self.complete.remove(&target),
            Rollout::Failed(why) => return Completion::Failed(explain(&target, &why, cluster)),
        };
        self.seen.insert(target);
        self.completion()
    }

    fn completion(&self) -> Completion {
        if self.complete.len() == self.targets.len() { Completion::Complete } else { Completion::Pending }
    }

    /// Why each incomplete target is not complete; a paragraph each.
    pub fn unfinished(&self, cluster: &Cluster) -> String {
        let mut paragraphs = Vec::new();
        for target in &self.targets {
            match target.rollout(cluster) {
                None if self.complete.contains(target) => {}
                None => paragraphs.push(format!("{target} does not exist")),
                Some(Rollout::Complete(_)) => {}
                Some(Rollout::Waiting(why) | Rollout::Failed(why)) => {
                    paragraphs.push(explain(target, &why, cluster));
                }
            }
        }
        paragraphs.join("\n")
    }
}

/// Why a workload is not rolled out: the message, its own conditions, and why its pods are not ready.
fn explain(target: &Target, why: &str, cluster: &Cluster) -> String {
    let mut lines = vec![format!("{target}: {}", plain(why))];
    if target.followed() == Followed::Pod {
        let reason = cluster.pods.get(&target.key).and_then(|pod| pod.not_ready_reason.as_deref());
        lines.extend(reason.map(|reason| format!("  {reason}")));
        return lines.join("\n");
    }
    let Some(object) = cluster.objects(target.followed()).get(&target.key) else { return lines.concat() };
    if object["spec"]["paused"] == true {
        lines.push("  the rollout is paused; continue it with `kubectl rollout resume`".to_owned());
    }
    for type_ in ["Progressing", "ReplicaFailure"] {
        if let Some(condition) = condition(object, type_) {
            let text = |field: &str| plain(condition[field].as_str().unwrap_or_default());
            lines.push(format!("  {type_}={}, {}: {}", text("status"), text("reason"), text("message")));
        }
    }
    // Ten pods with the same reason are one line.
    let mut reasons: Vec<(String, String, usize)> = Vec::new();
    for ((_, name), pod) in cluster.pods_of(object) {
        let Some(reason) = pod.not_ready_reason.as_deref() else { continue };
        match reasons.iter_mut().find(|(known, _, _)| known == reason) {
            Some((_, _, count)) => *count += 1,
            None => reasons.push((reason.to_owned(), name.clone(), 1)),
        }
    }
    for (reason, pod, count) in reasons {
        let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        lines.push(format!("  pod {pod}{others}: {reason}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::ObjectChange;

    fn deployment(status: Value) -> Value {
        json!({"metadata": {"namespace": "shop", "name": "web", "uid": "d", "generation": 2},
               "spec": {"replicas": 3}, "status": status})
    }

    fn waits(status: Value) -> String {
        match rollout(&deployment(status)) {
            Rollout::Waiting(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_progress_of_a_deployment_has_the_order_and_words_of_kubectl() {
        assert_eq!(
            waits(json!({"observedGeneration": 1})),
            "Waiting for deployment spec update to be observed..."
        );
        assert_eq!(
            waits(json!({"observedGeneration": 2, "updatedReplicas": 1, "replicas": 3})),
            "Waiting for deployment \"web\" rollout to finish: 1 out of 3 new replicas have been updated..."
        );
        assert_eq!(
            waits(json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 4})),
            "Waiting for deployment \"web\" rollout to finish: 1 old replicas are pending termination..."
        );
        assert_eq!(
            waits(
                json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 2})
            ),
            "Waiting for deployment \"web\" rollout to finish: 2 of 3 updated replicas are available..."
        );
        let done =
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3});
        assert_eq!(
            rollout(&deployment(done)),
            Rollout::Complete("deployment \"web\" successfully rolled out".to_owned())
        );
    }

    fn cluster(status: Value) -> Cluster {
        let mut cluster = Cluster::default();
        let owned = |uid: &str, owner: &str, status: Value| {
            json!({"metadata": {"namespace": "shop", "name": uid, "uid": uid,
                                "ownerReferences": [{"uid": owner, "controller": true}]}, "status": status})
        };
        let stuck = json!({"phase": "Pending", "containerStatuses": [
            {"name": "nginx", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        for (kind, object) in [
            (Followed::Deployment, deployment(status)),
            (Followed::ReplicaSet, owned("web-1", "d", json!({}))),
            (Followed::Pod, owned("web-1-a", "web-1", stuck.clone())),
            (Followed::Pod, owned("web-1-b", "web-1", stuck)),
        ] {
            cluster.observe(ObjectChange { kind, object, deleted: false });
        }
        cluster
    }

    /// The verdict after a change of the Deployment.
    fn judged(progress: &mut Progress, cluster: &Cluster) -> Completion {
        let web = ("shop".to_owned(), "web".to_owned());
        progress.completion_after(Followed::Deployment, web, cluster)
    }

    fn progress() -> Progress {
        Progress::new(Target::new("Deployment", ("shop".to_owned(), "web".to_owned())))
    }

    #[test]
    fn an_exceeded_deadline_fails_with_the_reasons_of_the_pods() {
        let status = json!({"observedGeneration": 2, "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
             "message": "ReplicaSet \"web-1\" has timed out progressing."}]});
        let Completion::Failed(why) = judged(&mut progress(), &cluster(status)) else {
            panic!("must have failed")
        };
        assert_eq!(
            why,
            "Deployment shop/web: deployment \"web\" exceeded its progress deadline\n  \
             Progressing=False, ProgressDeadlineExceeded: ReplicaSet \"web-1\" has timed out progressing.\n  \
             pod web-1-a and 1 more: container nginx: ImagePullBackOff"
        );
    }

    #[test]
    fn all_targets_must_complete_and_a_deleted_one_fails() {
        let done =
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3});
        let api = ("shop".to_owned(), "api".to_owned());
        let targets = [progress().targets.pop_first(), Target::new("Deployment", api.clone())];
        let mut progress = Progress::new(targets.into_iter().flatten());
        let mut rolled_out = cluster(done);
        assert_eq!(judged(&mut progress, &Cluster::default()), Completion::Pending, "not seen yet");
        assert_eq!(judged(&mut progress, &rolled_out), Completion::Pending, "only one of them");
        let mut other = rolled_out.deployments.values().next().unwrap().clone();
        other["metadata"]["name"] = json!("api");
        rolled_out.observe(ObjectChange { kind: Followed::Deployment, object: other, deleted: false });
        let of_a_pod = progress.completion_after(Followed::Pod, api.clone(), &rolled_out);
        assert_eq!(of_a_pod, Completion::Pending);
        let of_the_other = progress.completion_after(Followed::Deployment, api, &rolled_out);
        assert_eq!(of_the_other, Completion::Complete);
        assert_eq!(
            judged(&mut progress, &Cluster::default()),
            Completion::Failed("Deployment shop/web was deleted".to_owned())
        );
    }

    #[test]
    fn the_progress_of_a_daemon_set_has_the_order_and_words_of_kubectl() {
        let judge = |strategy: &str, status: Value| {
            let daemon_set = json!({"metadata": {"namespace": "shop", "name": "agent", "generation": 2},
                             "spec": {"updateStrategy": {"type": strategy}}, "status": status});
            daemon_rollout(&daemon_set)
        };
        let waits = |status: Value| match judge("RollingUpdate", status) {
            Rollout::Waiting(text) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            waits(json!({"observedGeneration": 1})),
            "Waiting for daemon set spec update to be observed..."
        );
        assert_eq!(
            waits(json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 1})),
            "Waiting for daemon set \"agent\" rollout to finish: 1 out of 3 new pods have been updated..."
        );
        let updated = json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3,
                             "numberAvailable": 2});
        assert_eq!(
            waits(updated),
            "Waiting for daemon set \"agent\" rollout to finish: 2 of 3 updated pods are available..."
        );
        let done = Rollout::Complete("daemon set \"agent\" successfully rolled out".to_owned());
        assert_eq!(judge("RollingUpdate", json!({"observedGeneration": 2})), done, "it runs on no node");
        let old = json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "numberAvailable": 3});
        assert_eq!(judge("OnDelete", old), done, "its pods wait to be deleted");
    }

    #[test]
    fn the_progress_of_a_stateful_set_has_the_order_and_words_of_kubectl() {
        let judge = |strategy: Value, status: Value| {
            stateful_rollout(&json!({"metadata": {"namespace": "shop", "name": "db", "generation": 2},
                "spec": {"replicas": 3, "updateStrategy": strategy}, "status": status}))
        };
        let rolling =
            |partition: i64| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
        let without = json!({"type": "RollingUpdate"});
        let status = |updated: i64, available: i64, revision: &str| {
            json!({"observedGeneration": 2, "readyReplicas": 3, "availableReplicas": available, "updatedReplicas": updated,
                   "currentReplicas": 3, "currentRevision": "db-a", "updateRevision": revision})
        };
        let waiting = |text: &str| Rollout::Waiting(text.to_owned());
        let complete = |text: &str| Rollout::Complete(text.to_owned());
        for (strategy, status, expected) in [
            (
                rolling(0),
                json!({"observedGeneration": 1}),
                waiting("Waiting for statefulset spec update to be observed..."),
            ),
            (rolling(0), status(3, 1, "db-b"), waiting("Waiting for 2 pods to be ready...")),
            (
                rolling(1),
                status(1, 3, "db-b"),
                waiting(
                    "Waiting for partitioned roll out to finish: 1 out of 2 new pods have been updated...",
                ),
            ),
            (
                rolling(1),
                status(2, 3, "db-b"),
                complete("partitioned roll out complete: 2 new pods have been updated..."),
            ),
            (
                without.clone(),
                status(2, 3, "db-b"),
                waiting("waiting for statefulset rolling update to complete 2 pods at revision db-b..."),
            ),
            (
                without,
                status(3, 3, "db-a"),
                complete("statefulset rolling update complete 3 pods at revision db-a..."),
            ),
            (
                json!({"type": "OnDelete"}),
                status(0, 3, "db-b"),
                complete("statefulset rolling update complete 3 pods at revision db-a..."),
            ),
        ] {
            assert_eq!(judge(strategy, status), expected);
        }
    }

    #[test]
    fn the_end_names_the_kinds_that_were_waited_for() {
        let target = |kind: &str| Target::new(kind, ("shop".to_owned(), "a".to_owned()));
        let said = |kinds: &[&str]| {
            Progress::new(kinds.iter().filter_map(|kind| target(kind))).done(&Cluster::default())
        };
        assert_eq!(said(&["StatefulSet"]), "all StatefulSets are rolled out: 1");
        assert_eq!(
            said(&["StatefulSet", "Deployment", "DaemonSet"]),
            "all Deployments, DaemonSets and StatefulSets are rolled out: 3"
        );
        assert_eq!(said(&["DaemonSet", "Deployment"]), "all Deployments and DaemonSets are rolled out: 2");
        assert_eq!(said(&["Pod", "Deployment"]), "all Deployments and Pods are complete: 2");
        assert_eq!(
            waited_for("or"),
            "Deployments, DaemonSets, StatefulSets, ReplicaSets, ReplicationControllers, Jobs or Pods"
        );
    }

    #[test]
    fn a_job_ends_the_wait_when_it_is_complete_or_failed_and_is_named_when_it_is_suspended() {
        let setup = ("shop".to_owned(), "setup".to_owned());
        let judge = |status: Value| {
            let object =
                json!({"metadata": {"namespace": "shop", "name": "setup", "uid": "j"}, "status": status});
            let mut cluster = Cluster::default();
            cluster.observe(ObjectChange { kind: Followed::Job, object, deleted: false });
            let mut progress = Progress::new(Target::new("Job", setup.clone()));
            let completion = progress.completion_after(Followed::Job, setup.clone(), &cluster);
            (completion, progress.done(&cluster), progress.unfinished(&cluster))
        };
        let is_true = |kind: &str| json!([{"type": kind, "status": "True", "reason": "R", "message": "why"}]);
        let (completion, _, unfinished) = judge(json!({"active": 1}));
        assert_eq!(completion, Completion::Pending);
        let waiting = "Waiting for job \"setup\" to finish: 0 of 1 completions, 1 active...";
        assert_eq!(unfinished, format!("Job shop/setup: {waiting}"));
        assert_eq!(judge(json!({"succeeded": 1, "conditions": is_true("Complete")})).0, Completion::Complete);
        let failed = "Job shop/setup: job \"setup\" has failed: R: why".to_owned();
        assert_eq!(judge(json!({"conditions": is_true("Failed")})).0, Completion::Failed(failed));
        let (completion, done, _) = judge(json!({"conditions": is_true("Suspended")}));
        assert_eq!(completion, Completion::Complete);
        assert_eq!(done, "all Jobs are complete: 1; Job shop/setup is suspended");
    }

    #[test]
    fn a_job_that_goes_after_its_success_stays_complete() {
        let [setup, other] = ["setup", "other"].map(|name| ("shop".to_owned(), name.to_owned()));
        let targets = [&setup, &other].into_iter().filter_map(|key| Target::new("Job", key.clone()));
        let mut progress = Progress::new(targets);
        let mut cluster = Cluster::default();
        let mut ends = |(namespace, name): &Key, deleted: bool| {
            let condition = json!([{"type": "Complete", "status": "True"}]);
            let object = json!({"metadata": {"namespace": namespace, "name": name, "uid": name},
                                "status": {"succeeded": 1, "conditions": condition}});
            cluster.observe(ObjectChange { kind: Followed::Job, object, deleted });
            progress.completion_after(Followed::Job, (namespace.clone(), name.clone()), &cluster)
        };
        assert_eq!(ends(&setup, false), Completion::Pending);
        assert_eq!(ends(&setup, true), Completion::Pending, "as ttlSecondsAfterFinished: 0 has it");
        assert_eq!(ends(&other, false), Completion::Complete);
        assert_eq!(progress.unfinished(&cluster), "");
    }

    #[test]
    fn a_replica_set_or_controller_is_complete_with_its_replicas_and_no_more() {
        let judge = |status: Value| {
            replica_rollout(&json!({"metadata": {"namespace": "shop", "name": "web", "generation": 2},
                "spec": {"replicas": 3}, "status": status}))
        };
        let waits = |status: Value| match judge(status) {
            Rollout::Waiting(text) => text,
            other => panic!("{other:?}"),
        };
        let said = "Waiting for the spec update of \"web\" to be observed...";
        assert_eq!(waits(json!({"observedGeneration": 1, "replicas": 3, "availableReplicas": 3})), said);
        let few = json!({"observedGeneration": 2, "replicas": 3, "availableReplicas": 2});
        assert_eq!(waits(few), "Waiting for \"web\" to finish: 2 of 3 replicas are available...");
        let many = json!({"observedGeneration": 2, "replicas": 4, "availableReplicas": 4});
        let said = "Waiting for \"web\" to finish: 1 surplus replicas are pending termination...";
        assert_eq!(waits(many), said);
        let done = json!({"observedGeneration": 2, "replicas": 3, "availableReplicas": 3});
        assert_eq!(judge(done), Rollout::Complete("\"web\" has all of its 3 replicas".to_owned()));
    }

    #[test]
    fn a_pod_succeeds_or_becomes_ready_as_its_restart_policy_says() {
        let key = ("shop".to_owned(), "once".to_owned());
        let judge = |policy: &str, status: Value| {
            let pod = json!({"metadata": {"namespace": "shop", "name": "once", "uid": "u"},
                "spec": {"restartPolicy": policy, "nodeName": "n"}, "status": status});
            let mut cluster = Cluster::default();
            cluster.observe(ObjectChange { kind: Followed::Pod, object: pod, deleted: false });
            let mut progress = Progress::new(Target::new("Pod", key.clone()));
            (progress.completion_after(Followed::Pod, key.clone(), &cluster), progress.unfinished(&cluster))
        };
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let succeeded = json!({"phase": "Succeeded"});
        assert_eq!(judge("Always", ready.clone()).0, Completion::Complete);
        for policy in ["Never", "OnFailure"] {
            let said = "Pod shop/once: Waiting for pod \"once\" to succeed: Ready...";
            assert_eq!(judge(policy, ready.clone()), (Completion::Pending, said.to_owned()));
            assert_eq!(judge(policy, succeeded.clone()).0, Completion::Complete);
            let failed = "Pod shop/once: pod \"once\" has failed".to_owned();
            assert_eq!(judge(policy, json!({"phase": "Failed"})).0, Completion::Failed(failed));
        }
        let waiting = json!({"phase": "Pending", "containerStatuses": [
            {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        let said = "Pod shop/once: Waiting for pod \"once\" to become ready: ImagePullBackOff...\n  \
                    container c: ImagePullBackOff";
        assert_eq!(judge("Always", waiting), (Completion::Pending, said.to_owned()));
    }

    #[test]
    fn a_waiting_daemon_set_names_its_unready_pods() {
        let mut cluster = Cluster::default();
        let daemon_set = json!({"metadata": {"namespace": "shop", "name": "agent", "uid": "a", "generation": 1},
                         "status": {"observedGeneration": 1, "desiredNumberScheduled": 1,
                                    "updatedNumberScheduled": 1}});
        let pod = json!({"metadata": {"namespace": "shop", "name": "agent-x", "uid": "x",
                                      "ownerReferences": [{"uid": "a", "controller": true}]},
                         "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no"}]}});
        let mut progress = Progress::new(Target::new("DaemonSet", ("shop".to_owned(), "agent".to_owned())));
        assert_eq!(progress.done(&cluster), "all DaemonSets are rolled out: 1");
        let nowhere = json!({"metadata": {"namespace": "shop", "name": "agent", "uid": "a"}, "status": {}});
        let mut empty = Cluster::default();
        empty.observe(ObjectChange { kind: Followed::DaemonSet, object: nowhere, deleted: false });
        let said = "all DaemonSets are rolled out: 1; DaemonSet shop/agent has no pod: it matches no node";
        assert_eq!(progress.done(&empty), said);
        assert_eq!(progress.unfinished(&cluster), "DaemonSet shop/agent does not exist");
        for (kind, object) in [(Followed::DaemonSet, daemon_set), (Followed::Pod, pod)] {
            cluster.observe(ObjectChange { kind, object, deleted: false });
        }
        let agent = ("shop".to_owned(), "agent".to_owned());
        assert_eq!(progress.completion_after(Followed::DaemonSet, agent, &cluster), Completion::Pending);
        assert_eq!(
            progress.unfinished(&cluster),
            "DaemonSet shop/agent: Waiting for daemon set \"agent\" rollout to finish: 0 of 1 updated pods are \
             available...\n  pod agent-x: no"
        );
        assert_eq!(Target::new("ConfigMap", ("shop".to_owned(), "a".to_owned())), None);
    }

    #[test]
    fn a_paused_deployment_is_reported_as_paused() {
        let mut cluster = cluster(json!({"observedGeneration": 2}));
        let paused = cluster.deployments.values_mut().next().unwrap();
        paused["spec"]["paused"] = json!(true);
        assert!(progress().unfinished(&cluster).contains("the rollout is paused"));
    }
}
