//! Every plan says why it is what it is and what it waits for.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass::model::{Deployment, Pod, ReplicaSet, Uid, Waiting};
use windlass::plan::deployment::progress::{Outcome, settle};
use windlass::plan::deployment::revision::size_annotations;
use windlass::plan::deployment::{Observed, explain, plan};
use windlass_planner_testkit::objects::{self, DeploymentBuilder, NOW, decode, deployment, now};

/// A ReplicaSet of the Deployment `web`: image tag, size, pods that it has, that are ready, that are available.
fn replica_set(tag: &str, replicas: i32, [created, ready, available]: [i32; 3]) -> ReplicaSet {
    let replica_set = objects::replica_set(tag, replicas).has(created).available(available).ready(ready);
    Arc::unwrap_or_clone(replica_set.build())
}

/// A pod that waits for this reason; ready when the reason is a time.
fn pod(name: &str, reason: &str) -> Pod {
    let running = objects::pod(name).on("n1").phase("Running");
    let pod = match reason.parse::<Timestamp>() {
        Ok(since) => running.ready(now().duration_since(since).as_secs()),
        Err(_) if reason.is_empty() => running,
        Err(_) => running.phase("Pending").waiting(reason),
    };
    Arc::unwrap_or_clone(pod.build())
}

/// The observed state: the Deployment, its ReplicaSets, and pods by image tag.
struct Seen {
    deployment: Value,
    replica_sets: Vec<ReplicaSet>,
    orphans: Vec<ReplicaSet>,
    pods: Vec<(&'static str, Vec<Pod>)>,
}

/// The ReplicaSets are in the order of their revisions, and their annotations up to date unless they have some.
fn seen(start: DeploymentBuilder, mut replica_sets: Vec<ReplicaSet>) -> Seen {
    let deployment = start.json();
    let decoded: Deployment = decode(&deployment);
    for (revision, replica_set) in
        (1..).zip(&mut replica_sets).filter(|(_, replica_set)| replica_set.annotations.is_empty())
    {
        let revision: (&str, String) = ("deployment.kubernetes.io/revision", format!("{revision}"));
        replica_set.annotations =
            Arc::new(size_annotations(&decoded).into_iter().chain([revision]).collect());
    }
    Seen { deployment, replica_sets, orphans: Vec::new(), pods: Vec::new() }
}

impl Seen {
    fn pods(mut self, tag: &'static str, pods: Vec<Pod>) -> Self {
        self.pods.push((tag, pods));
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Seen)) -> Self {
        change(&mut self);
        self
    }

    /// The sentences, including the one about the deadline once the status is known.
    fn sentences(&self) -> Vec<String> {
        let deployment: Deployment = decode(&self.deployment);
        let shared = |replica_sets: &[ReplicaSet]| -> Vec<Arc<ReplicaSet>> {
            replica_sets.iter().cloned().map(Arc::new).collect()
        };
        let by_replica_set = |tag: &str| Uid::new(&format!("uid-{tag}"));
        let counted = |(tag, pods): &(&str, Vec<Pod>)| (by_replica_set(tag), pods.len());
        let awaited = |(tag, pods): &(&str, Vec<Pod>)| {
            (by_replica_set(tag), pods.iter().cloned().map(Arc::new).collect::<Vec<_>>())
        };
        let observed = Observed {
            owned: shared(&self.replica_sets),
            orphans: shared(&self.orphans),
            may_adopt: true,
            running_pods: self.pods.iter().map(counted).collect::<BTreeMap<_, _>>(),
            awaited_pods: self.pods.iter().map(awaited).collect(),
            ..Observed::new(&deployment, now())
        };
        let plan = plan(&observed);
        let status = settle(&observed, &plan, &Outcome::default()).status;
        let deadline = explain::progress(&deployment, &plan, &status);
        plan.reasons.iter().chain(&deadline).map(ToString::to_string).collect()
    }

    #[track_caller]
    fn says(&self, expected: &[&str]) {
        assert_eq!(self.sentences(), expected);
    }

    #[track_caller]
    fn says_among_others(&self, expected: &str) {
        let all = self.sentences();
        assert!(all.iter().any(|sentence| sentence == expected), "{expected:?} is missing: {all:#?}");
    }
}

fn waiting(reason: &str, message: Option<&str>) -> Waiting {
    Waiting {
        reason: reason.into(),
        message: message.map(Into::into),
        lacks_room: false,
        termination_message: None,
        since: None,
    }
}

fn no_deadline(start: DeploymentBuilder) -> DeploymentBuilder {
    start.deadline(i32::MAX)
}

#[test]
fn an_invalid_selector_is_named() {
    seen(deployment("web"), Vec::new()).with(|seen| seen.deployment["spec"]["selector"] = json!({})).says(&[
        "Windlass does not act on the Deployment: This deployment is selecting all pods. A non-empty selector is required.",
    ]);
}

#[test]
fn deletion_pause_and_adoption_are_reported_before_any_rollout() {
    let replica_sets = || vec![replica_set("v1", 1, [1, 1, 1])];
    seen(deployment("web"), replica_sets())
        .with(|seen| seen.deployment["metadata"]["deletionTimestamp"] = NOW.into())
        .says(&["The Deployment is being deleted: Windlass only updates its status"]);
    seen(deployment("web").image("v2"), replica_sets())
        .with(|seen| seen.deployment["spec"]["paused"] = true.into())
        .says(&["The Deployment is paused: Windlass scales it proportionally, and rolls nothing out"]);
    let mut orphan = replica_set("v1", 1, [1, 1, 1]);
    orphan.meta.controller = None;
    seen(deployment("web"), Vec::new()).with(|seen| seen.orphans = vec![orphan]).says(&[
        "Windlass adopts web-v1 first: all other writes wait until the cache shows the new owner references",
    ]);
}

#[test]
fn scaling_reports_the_old_and_the_new_replicas() {
    let mut sized = replica_set("v1", 3, [3, 3, 3]);
    let annotation = [("deployment.kubernetes.io/desired-replicas", "3")];
    sized.annotations = Arc::new(annotation.into_iter().collect());
    seen(deployment("web").replicas(5), vec![sized]).says(&[
        "spec.replicas changed from 3 to 5: Windlass scales the ReplicaSets proportionally before the rollout continues",
    ]);
}

#[test]
fn a_new_template_gets_a_new_replica_set_within_the_budget() {
    let start = no_deadline(deployment("web").replicas(3).surge(1).unavailable(0).image("v2"));
    let said = seen(start, vec![replica_set("v1", 3, [3, 3, 3])]).sentences();
    assert!(said[0].starts_with("No ReplicaSet has the current template: Windlass creates web-"), "{said:?}");
    assert!(said[0].ends_with(" with 1 replica"), "{said:?}");
    assert_eq!(
        said[1..],
        [
            "At most 4 pods may exist and 3 are desired, at least 3 must be available and 3 are: the budget \
             allows scaling up by 1 and down by 0",
            "3 old pods must stay: at least 3 must be available, and 3 are",
        ]
    );
}

#[test]
fn a_step_of_a_policy_keeps_the_old_pods_and_not_their_availability() {
    let web = no_deadline(deployment("web").replicas(8).surge(2).unavailable(2).image("v2"));
    let web = web.annotation("windlass.dev/steps", "1, 50%");
    let said = seen(web, vec![replica_set("v1", 7, [7, 7, 7]), replica_set("v2", 1, [1, 1, 1])]).sentences();
    let has = |text: &str| said.iter().any(|sentence| sentence.contains(text));
    assert!(has("the budget allows scaling up by 0 and down by 0"), "{said:?}");
    assert!(has("7 old pods must stay: the rollout policy keeps 7"), "{said:?}");
}

#[test]
fn a_crash_looping_version_uses_up_the_budget_and_its_pods_are_named_with_the_reasons() {
    let start = no_deadline(deployment("web").replicas(10).surge(3).unavailable(2).image("v2"));
    let replica_sets = vec![replica_set("v1", 8, [8, 8, 8]), replica_set("v2", 5, [5, 0, 0])];
    let mut pods = vec![pod("web-v2-a", "ContainerCreating"), pod("web-v2-b", "")];
    pods.extend(["c", "d", "e", "f"].map(|name| pod(&format!("web-v2-{name}"), "CrashLoopBackOff")));
    seen(start, replica_sets).pods("v2", pods).says(&[
        "At most 13 pods may exist and 13 are desired, at least 8 must be available and 8 are: the budget allows \
         scaling up by 0 and down by 0",
        "8 old pods must stay: maxUnavailable is used up by 5 unavailable new pods",
        "5 of 5 new pods are not ready (web-v2-c: CrashLoopBackOff, web-v2-d: CrashLoopBackOff, web-v2-e: \
         CrashLoopBackOff, web-v2-f: CrashLoopBackOff, web-v2-a: ContainerCreating and 1 more)",
    ]);
}

#[test]
fn a_message_equal_to_its_reason_is_reported_once() {
    let loops = |name: &str, message: &str| {
        let mut pod = pod(name, "CrashLoopBackOff");
        pod.waiting = Some(Box::new(waiting("CrashLoopBackOff", Some(message))));
        pod
    };
    let replica_sets = vec![replica_set("v1", 4, [4, 1, 1])];
    let pods = vec![
        loops("web-v1-a", "panic: no config"),
        loops("web-v1-b", "panic: no config at 0x7f"),
        pod("web-v1-c", "ErrImagePull"),
    ];
    seen(no_deadline(deployment("web").replicas(4)), replica_sets).pods("v1", pods).says(&[
        "3 of 4 new pods are not ready (web-v1-a: CrashLoopBackOff (panic: no config), web-v1-b: CrashLoopBackOff, \
         web-v1-c: ErrImagePull)",
    ]);
}

#[test]
fn missing_unready_and_not_yet_available_pods_are_distinguished() {
    let start = no_deadline(deployment("web").replicas(5).min_ready(30));
    let mut new = replica_set("v1", 5, [4, 3, 2]);
    new.min_ready_seconds = 30;
    let pods = vec![pod("web-v1-a", "2025-12-31T23:59:50Z"), pod("web-v1-b", "Unschedulable")];
    seen(start, vec![new]).pods("v1", pods).says(&[
        "3 of 5 new pods are not available: 1 not created; 1 not ready (web-v1-b: Unschedulable); 1 ready for \
         less than 30 s (the next becomes available at 2026-01-01T00:00:20Z)",
    ]);
}

#[test]
fn unavailable_old_pods_and_failed_pods_are_reported_too() {
    let start = no_deadline(deployment("web").replicas(4).surge(0).unavailable(1).image("v2"));
    let mut evicted = pod("web-v1-x", "");
    evicted.phase = windlass::model::Phase::Failed;
    evicted.waiting = Some(Box::new(waiting("Evicted", None)));
    let replica_sets = vec![replica_set("v1", 4, [4, 2, 2]), replica_set("v2", 0, [0, 0, 0])];
    let seen = seen(start, replica_sets).pods("v1", vec![pod("web-v1-a", ""), evicted]);
    seen.says_among_others(
        "2 of 4 old pods are not ready (web-v1-a: running, not ready); 1 failed (web-v1-x: Evicted)",
    );
    seen.says_among_others("3 old pods must stay: at least 3 must be available, and 2 are");
}

#[test]
fn recreate_names_the_old_pods_that_it_waits_for() {
    let start = || no_deadline(deployment("web").replicas(2).recreate().image("v2"));
    seen(start(), vec![replica_set("v1", 2, [2, 2, 2])])
        .pods("v1", vec![pod("web-v1-a", NOW), pod("web-v1-b", NOW)])
        .says(&["Recreate: 2 old pods must end before a new pod is created"]);
    let mut leaving = pod("web-v1-a", NOW);
    leaving.meta.deletion = Some(now());
    seen(start(), vec![replica_set("v1", 0, [0, 0, 0])])
        .pods("v1", vec![leaving])
        .says(&["Recreate: the rollout waits until 1 old pod ends (web-v1-a: Terminating)"]);
}

#[test]
fn recreate_reports_when_nothing_blocks_the_new_replica_set() {
    let start = no_deadline(deployment("web").replicas(2).recreate().image("v2"));
    seen(start, vec![replica_set("v1", 0, [0, 0, 0]), replica_set("v2", 0, [0, 0, 0])])
        .says(&["Recreate: no old pod runs, so Windlass scales web-v2 from 0 to 2"]);
}

#[test]
fn a_status_that_lags_behind_its_replica_set_is_waited_for() {
    let mut new = replica_set("v1", 3, [3, 3, 3]);
    new.meta.generation = 4;
    seen(no_deadline(deployment("web").replicas(3).surge(1).unavailable(0)), vec![
        replica_set("v0", 1, [1, 1, 1]),
        new,
    ])
    .says_among_others(
        "ReplicaSet web-v1 has generation 4, and its status reports generation 1: its pods count as unavailable \
         until the status catches up",
    );
}

#[test]
fn a_quota_is_reported_with_the_message_of_the_api_server() {
    let mut new = replica_set("v1", 3, [1, 1, 1]);
    new.status.conditions = vec![windlass::model::Condition::new(
        "ReplicaFailure",
        "True",
        "FailedCreate",
        "pods \"web-v1-b\" is forbidden: exceeded quota: pods",
        now(),
    )];
    seen(no_deadline(deployment("web").replicas(3)), vec![new]).says(&[
        "2 of 3 new pods are not available: 2 not created",
        "ReplicaSet web-v1 reports FailedCreate: pods \"web-v1-b\" is forbidden: exceeded quota: pods",
    ]);
}

#[test]
fn completion_is_reported_and_trimmed_replica_sets_are_named() {
    let seen = |limit| {
        let replica_sets = vec![replica_set("v1", 0, [0, 0, 0]), replica_set("v2", 2, [2, 2, 2])];
        seen(deployment("web").replicas(2).history(limit).image("v2"), replica_sets)
    };
    let complete = "Complete: 2 of 2 pods are new and available, and no other pod exists";
    seen(10).says(&[complete]);
    seen(0).says(&[complete, "revisionHistoryLimit is 0: Windlass deletes web-v1"]);
}

#[test]
fn the_deletion_of_surplus_pods_is_waited_for() {
    let replica_sets = vec![replica_set("v1", 0, [2, 2, 2]), replica_set("v2", 2, [2, 2, 2])];
    seen(no_deadline(deployment("web").replicas(2).image("v2")), replica_sets)
        .says_among_others("2 surplus pods are not deleted yet");
}

#[test]
fn the_deadline_is_reported_before_and_after_it_passes() {
    let stuck = |since: &str| {
        seen(deployment("web").replicas(2).deadline(60), vec![replica_set("v1", 2, [2, 0, 0])]).with(|seen| {
            seen.deployment["status"] = json!({
                "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2,
                "conditions": [{"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated",
                                "lastUpdateTime": since, "lastTransitionTime": since}]
            });
        })
    };
    stuck("2025-12-31T23:59:50Z")
        .says_among_others("Without progress, the deadline of 60 s passes at 2026-01-01T00:00:50Z");
    stuck("2025-12-31T23:00:00Z").says_among_others(
        "The rollout has made no progress for 60 s; it continues as soon as its pods become available",
    );
}

#[test]
fn a_reason_is_structured_data_with_a_kind_and_numbers() {
    let start = no_deadline(deployment("web").replicas(2).surge(1).unavailable(0).image("v2"));
    let web: Deployment = decode(&start.json());
    let observed = Observed {
        owned: vec![Arc::new(replica_set("v1", 2, [2, 2, 2])), Arc::new(replica_set("v2", 1, [1, 0, 0]))],
        awaited_pods: [(Uid::new("uid-v2"), vec![Arc::new(pod("web-v2-a", "ImagePullBackOff"))])].into(),
        ..Observed::new(&web, now())
    };
    let plan = plan(&observed);
    let of_kind = |kind: &str| {
        let all = serde_json::to_value(&plan.reasons).unwrap();
        all.as_array().unwrap().iter().find(|reason| reason["kind"] == kind).cloned().unwrap_or_default()
    };
    assert_eq!(
        of_kind("budget"),
        json!({"kind": "budget", "most": 3, "least": 2, "wanted": 3, "available": 2, "missing": 1, "up": 0, "down": 0})
    );
    assert_eq!(of_kind("oldPodsStay")["because"], json!({"limit": "newPodsMissing", "missing": 1}));
    let named = json!({"named": [{"name": "web-v2-a", "reason": "ImagePullBackOff"}], "more": 0});
    assert_eq!(of_kind("unavailable")["pods"], named);
}

#[test]
fn a_failure_that_is_due_is_announced_with_what_follows() {
    let broken = |policy: &[(&str, &str)]| {
        let start = no_deadline(deployment("web").replicas(2).surge(1).unavailable(0).image("v2"));
        let start = policy
            .iter()
            .fold(start, |start, (key, value)| start.annotation(&format!("windlass.dev/{key}"), value));
        let replica_sets = vec![replica_set("v1", 2, [2, 2, 2]), replica_set("v2", 1, [1, 0, 0])];
        let mut broken = pod("web-v2-a", "ImagePullBackOff");
        let since = Some(now() - jiff::SignedDuration::from_secs(30));
        broken.waiting = Some(Waiting { since, ..waiting("ImagePullBackOff", None) }.into());
        seen(start, replica_sets).pods("v2", vec![broken])
    };
    let fails = "Unless its pods recover, the rollout counts as failed at 2026-01-01T00:01:30Z";
    broken(&[("fail-after", "2m")]).says_among_others(fails);
    broken(&[("fail-after", "2m"), ("on-failure", "halt")])
        .says_among_others(&format!("{fails}: then it halts, and web-v1 serves"));
    broken(&[("fail-after", "2m"), ("on-failure", "rollback")])
        .says_among_others(&format!("{fails}: the Deployment then goes back to web-v1"));
}

#[test]
fn an_old_pod_that_makes_room_soon_is_announced() {
    let start = no_deadline(deployment("web").replicas(2).surge(1).unavailable(0).image("v2"));
    let start = start.annotation("windlass.dev/when-unschedulable", "terminate-first");
    let mut unfit = objects::pod("web-v2-a").phase("Pending").build();
    let since = Some(now() - jiff::SignedDuration::from_secs(10));
    let waits =
        Waiting { since, lacks_room: true, ..waiting("Unschedulable", Some("0/1 nodes are available")) };
    Arc::make_mut(&mut unfit).waiting = Some(waits.into());
    let replica_sets = vec![replica_set("v1", 2, [2, 2, 2]), replica_set("v2", 1, [1, 0, 0])];
    seen(start, replica_sets).pods("v2", vec![Arc::unwrap_or_clone(unfit)]).says_among_others(
        "If the new pod fits no node until 2026-01-01T00:00:20Z, an old pod is deleted first: \
         windlass.dev/when-unschedulable",
    );
}
