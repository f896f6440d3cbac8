mod evictions;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::plan::disruption::{stale_target, wakes};
use world::{Situation, at, budget, pod, reference};

#[test]
fn an_integer_minimum_counts_the_pods_themselves() {
    let mut web = Situation::new(json!({"minAvailable": 2}));
    web.ready(3, None);
    assert_eq!(web.numbers(), (3, 2, 3, 1));
    web.pods[0] = pod("a", json!({"status": {"conditions": []}}), None);
    assert_eq!(web.numbers(), (2, 2, 3, 0));
}

#[test]
fn shares_and_maxima_are_of_the_scale_and_rounded_up() {
    for (spec, desired, allowed) in [
        (json!({"minAvailable": "50%"}), 4, 1),
        (json!({"maxUnavailable": "30%"}), 4, 1),
        (json!({"maxUnavailable": 1}), 6, 0),
        (json!({"maxUnavailable": 9}), 0, 5),
        (json!({"maxUnavailable": "0%"}), 7, 0),
        (json!({}), 0, 0),
    ] {
        let mut web = Situation::new(spec.clone());
        web.ready(5, Some(reference("apps/v1", "ReplicaSet", "web")));
        web.replica_set("web", 7, None);
        let expected = if spec == json!({}) { 0 } else { 7 };
        assert_eq!(web.numbers(), (5, desired, expected, allowed), "{spec}");
    }
}

#[test]
fn numbers_that_users_choose_do_not_overflow() {
    for spec in [
        json!({"minAvailable": 2_147_483_647}),
        json!({"maxUnavailable": 2_147_483_647}),
        json!({"minAvailable": "99999999999999999999%"}),
        json!({"maxUnavailable": "99999999999999999999%"}),
    ] {
        let mut web = Situation::new(spec);
        web.ready(1, Some(reference("apps/v1", "ReplicaSet", "a")));
        web.ready(1, Some(reference("apps/v1", "ReplicaSet", "b")));
        web.replica_set("a", i32::MAX, None);
        web.replica_set("b", i32::MAX, None);
        let (healthy, ..) = web.numbers();
        assert_eq!(healthy, 2);
    }
}

#[test]
fn the_replica_sets_of_a_deployment_count_once_by_its_replicas() {
    let mut web = Situation::new(json!({"maxUnavailable": 1}));
    web.ready(3, Some(reference("apps/v1", "ReplicaSet", "web-1")));
    web.ready(2, Some(reference("apps/v1", "ReplicaSet", "web-2")));
    web.replica_set("web-1", 3, Some(("web", 4)));
    web.replica_set("web-2", 2, Some(("web", 4)));
    assert_eq!(web.numbers(), (5, 3, 4, 2));
    // A Deployment that does not exist is none.
    web.replica_set("web-1", 3, None);
    web.replica_set("web-2", 2, None);
    assert_eq!(web.numbers(), (5, 4, 5, 1));
}

#[test]
fn the_scale_of_other_owners_is_asked_for_once_each() {
    let mut web = Situation::new(json!({"maxUnavailable": 1}));
    let custom = reference("example.com/v1", "Shop", "s");
    web.ready(3, Some(custom.clone()));
    web.ready(2, Some(reference("apps/v1", "StatefulSet", "db")));
    let pods: Vec<Arc<Pod>> = web.pods.iter().cloned().map(Arc::new).collect();
    let asked = live_owners(&web.budget, &pods);
    assert_eq!(asked.values().map(|it| &*it.kind).collect::<Vec<_>>(), ["Shop"]);
    let plan = web.plan();
    assert_eq!(
        (plan.look_again, &plan.status),
        (Some(UNREAD), &web.budget.status),
        "nothing is decided before it is read"
    );
    let mut failing = Situation::new(json!({"maxUnavailable": 1}));
    failing.pods = web.pods.clone();
    failing.failed(&custom, "no");
    assert_eq!(failing.plan().failure.as_deref(), Some("no"), "whatever else is not read");
    web.scaled(&reference("apps/v1", "StatefulSet", "db"), 2);
    web.scaled(&custom, 3);
    assert_eq!(web.numbers(), (5, 4, 5, 1));
    let integer = Situation::new(json!({"minAvailable": 1}));
    assert!(live_owners(&integer.budget, &pods).is_empty(), "nobody needs it");
}

#[test]
fn without_an_answer_the_last_scale_counts_and_the_allowance_only_falls() {
    let custom = reference("example.com/v1", "Shop", "s");
    let mut web = Situation::new(json!({"maxUnavailable": 1}));
    web.ready(4, Some(custom.clone()));
    web.unanswered(&custom, "no reply");
    let plan = web.sync();
    assert_eq!((plan.failure.as_deref(), plan.status.disruptions_allowed), (Some("no reply"), 0));
    web.scaled(&custom, 4);
    web.write();
    assert_eq!(web.numbers(), (4, 3, 4, 1));
    web.unanswered(&custom, "no reply");
    web.pods.pop();
    assert_eq!(web.numbers(), (3, 3, 4, 0), "a pod has crashed");
    web.write();
    web.ready(3, Some(custom.clone()));
    assert_eq!(web.numbers(), (6, 3, 4, 0), "it may have grown since");
    web.failed(&custom, "gone");
    assert_eq!(web.sync().failure.as_deref(), Some("gone"), "that is an answer");
    web.unanswered(&custom, "no reply");
    assert_eq!(web.sync().failure.as_deref(), Some("no reply"), "and what was before it is of no use");
}

#[test]
fn scales_that_no_watch_shows_are_read_every_half_minute() {
    let custom = reference("example.com/v1", "Shop", "s");
    let mut web = Situation::new(json!({"maxUnavailable": 1}));
    web.ready(2, Some(custom.clone()));
    web.scaled(&custom, 2);
    let mut waits = BTreeSet::new();
    for _ in 0..20 {
        web.elapsed += Duration::from_secs(30);
        let wait = web.plan().look_again.unwrap();
        assert!((27..33).contains(&wait.as_secs()), "{wait:?}");
        waits.insert(wait);
    }
    assert!(waits.len() > 10, "not all at once: {waits:?}");
    let mut web = Situation::new(json!({"maxUnavailable": 1}));
    web.ready(2, Some(reference("apps/v1", "StatefulSet", "db")));
    web.scaled(&reference("apps/v1", "StatefulSet", "db"), 2);
    assert_eq!(web.plan().look_again, None, "a watch shows these");
}

#[test]
fn owners_are_found_by_group_and_kind() {
    let found = |api_version: &str, kind: &str| {
        source(pod("a", json!({}), Some(reference(api_version, kind, "x"))).meta.controller.as_ref().unwrap())
    };
    assert_eq!(found("v1", "ReplicationController"), Source::ReplicationController);
    assert_eq!(found("extensions/v1beta1", "ReplicaSet"), Source::ReplicaSet);
    assert_eq!(found("apps/v1beta2", "StatefulSet"), Source::StatefulSet);
    assert_eq!(found("example.com/v1", "ReplicaSet"), Source::Live);
    assert_eq!(found("batch/v1", "Job"), Source::Live);
}

#[test]
fn without_pods_nothing_is_allowed_and_the_event_comes_once() {
    let mut web = Situation::new(json!({"maxUnavailable": 1}));
    assert_eq!(web.numbers(), (0, 0, 0, 0));
    assert_eq!(web.told(), ["Normal NoPods No matching pods found"]);
    assert_eq!(web.told(), [""; 0], "kubernetes#104487 counted 525");
    web.ready(1, Some(reference("apps/v1", "ReplicaSet", "web")));
    web.replica_set("web", 1, None);
    assert_eq!(web.told(), [""; 0]);
    web.pods.clear();
    assert_eq!(web.told().len(), 1, "they are gone again");
}

#[test]
fn bare_pods_are_told_of_and_do_not_stand_in_for_managed_ones() {
    let mut web = Situation::new(json!({"maxUnavailable": 1}));
    web.ready(4, None);
    web.ready(3, Some(reference("apps/v1", "ReplicaSet", "web")));
    web.replica_set("web", 3, None);
    // Upstream would allow 5, with which all managed pods might go (operator-for-redis-cluster#57).
    assert_eq!(web.numbers(), (7, 2, 3, 1));
    let told = web.told();
    assert_eq!(
        told,
        ["Warning UnmanagedPods Pods selected by this PodDisruptionBudget (selector: \
             &LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},}) were found \
             to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined \
             behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."]
    );
    assert_eq!(web.told(), [""; 0]);
    let mut integer = Situation::new(json!({"minAvailable": 2}));
    integer.ready(4, None);
    assert_eq!((integer.numbers(), integer.told()), ((4, 2, 4, 2), vec![]));
}

#[test]
fn requirements_are_printed_as_go_does() {
    let selector = json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]},
                                               {"key": "x", "operator": "Exists"}]});
    let selector = budget(json!({"selector": selector})).selector.unwrap();
    assert_eq!(
        in_words(&selector),
        "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{\
         LabelSelectorRequirement{Key:tier,Operator:In,Values:[a b],},LabelSelectorRequirement{Key:x,Operator:Exists,Values:[],},},}"
    );
}

#[test]
fn pods_of_an_owner_that_has_just_gone_stop_no_eviction_for_ten_seconds() {
    let mut web = Situation::new(json!({"maxUnavailable": 1}));
    let gone = reference("apps/v1", "ReplicaSet", "gone");
    web.ready(2, Some(gone.clone()));
    web.ready(3, Some(reference("apps/v1", "ReplicaSet", "web")));
    web.replica_set("web", 3, None);
    web.absent(&gone);
    assert_eq!(web.numbers(), (5, 2, 3, 1), "and they allow none");
    assert_eq!(web.sync().look_again, Some(Duration::from_secs(10)));
    web.elapsed += Duration::from_secs(9);
    let plan = web.sync();
    assert_eq!((plan.failure, plan.look_again), (None, Some(Duration::from_secs(1))));
    web.elapsed += Duration::from_secs(1);
    let plan = web.sync();
    assert_eq!(plan.failure.as_deref(), Some("found no controllers for pod \"a0\""));
    assert_eq!(plan.status.disruptions_allowed, 0);
    // It has come, late.
    web.replica_set("gone", 2, None);
    assert_eq!(web.numbers(), (5, 4, 5, 1));
    let _ = web.sync();
    web.absent(&gone);
    assert_eq!(web.sync().failure, None, "ten seconds anew");
}

#[test]
fn a_sync_that_fails_allows_nothing_and_keeps_the_rest() {
    let mut web = Situation::new(json!({"maxUnavailable": 1}));
    web.ready(3, Some(reference("apps/v1", "ReplicaSet", "web")));
    web.replica_set("web", 3, None);
    web.write();
    let before = web.budget.status.clone();
    web.budget.meta.generation += 1;
    web.failed(
        &reference("apps/v1", "ReplicaSet", "web"),
        "jobs.batch does not implement the scale subresource",
    );
    let plan = web.sync();
    let DisruptionStatus { observed_generation, current_healthy, desired_healthy, expected_pods, .. } =
        plan.status;
    assert_eq!((observed_generation, current_healthy, desired_healthy, expected_pods), (1, 3, 2, 3));
    assert_eq!((before.disruptions_allowed, plan.status.disruptions_allowed), (1, 0));
    let condition = &plan.status.conditions[0];
    assert_eq!((&*condition.status, &*condition.reason), ("False", "SyncFailed"));
    assert_eq!(&*condition.message, "jobs.batch does not implement the scale subresource");
    assert_eq!(plan.status.condition_generation, 1);
    let event = &plan.events[0];
    let text = "Failed to calculate the number of expected pods: jobs.batch does not implement the scale subresource";
    assert_eq!((event.reason, &*event.message), ("CalculateExpectedPodCountFailed", text));
    assert_eq!(web.sync().events, [], "once");
    // It works again.
    web.replica_set("web", 3, None);
    web.write();
    let status = &web.budget.status;
    assert_eq!(
        (status.observed_generation, status.disruptions_allowed, &*status.conditions[0].message),
        (2, 1, "")
    );
}

#[test]
fn a_selector_that_cannot_be_evaluated_allows_nothing() {
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Odd"}]});
    let mut web = Situation::new(json!({"minAvailable": 0, "selector": selector}));
    let plan = web.sync();
    assert!(plan.events[0].message.starts_with("Failed to get pods: "), "{:?}", plan.events);
    assert_eq!(&*plan.status.conditions[0].reason, "SyncFailed");
}

#[test]
fn a_status_that_is_right_is_left_alone_whoever_wrote_it() {
    let mut web = Situation::new(json!({"minAvailable": 2}));
    web.ready(3, None);
    web.write();
    let written = web.budget.status.clone();
    let condition = &written.conditions[0];
    assert_eq!((&*condition.status, &*condition.reason, &*condition.message), ("True", "SufficientPods", ""));
    assert_eq!((written.observed_generation, written.condition_generation), (1, 1));
    web.now = at(500);
    assert_eq!(web.plan().status, written);
    // Upstream compares neither the text nor the generation of the condition.
    web.budget.status.condition_generation = 0;
    web.budget.status.conditions[0].message = "theirs".into();
    let theirs = web.budget.status.clone();
    assert_eq!(web.plan().status, theirs);
    // The transition is timed.
    web.pods.truncate(2);
    let after = web.plan().status;
    assert_eq!(
        (&*after.conditions[0].reason, after.conditions[0].last_transition),
        ("InsufficientPods", Some(at(500)))
    );
}

#[test]
fn a_pod_that_is_to_be_evicted_does_not_count_for_two_minutes() {
    let mut web = Situation::new(json!({"minAvailable": 2}));
    web.ready(4, None);
    web.now = at(130);
    web.disrupt("a1", 100);
    let plan = web.sync();
    assert_eq!((plan.status.current_healthy, plan.status.disruptions_allowed), (3, 1));
    assert_eq!(plan.look_again, Some(Duration::from_secs(90)));
    assert_eq!(plan.status.disrupted_pods.len(), 1);
    web.now = at(220);
    web.elapsed += Duration::from_secs(90);
    let plan = web.sync();
    assert_eq!((plan.status.current_healthy, plan.status.disrupted_pods.len()), (4, 0));
    assert_eq!(plan.overdue[0].meta.key.name.as_ref(), "a1");
    let text = "Pod was expected by PDB shop/web to be deleted but it wasn't";
    assert_eq!(not_deleted(&web.budget), EventNote::warning("NotDeleted", text.to_owned()));
}

#[test]
fn an_entry_leaves_with_its_pod_once_the_cache_is_as_new_as_the_entry() {
    let mut web = Situation::new(json!({"minAvailable": 1}));
    web.ready(2, None);
    web.disrupt("a0", 100);
    web.disrupt("gone", 100);
    web.budget.meta.resource_version = 50;
    web.pods_version = 49;
    let plan = web.sync();
    assert_eq!(plan.status.disrupted_pods.len(), 2, "the cache may not show yet the pod that is gone");
    assert_eq!(plan.look_again, Some(Duration::from_secs(5)));
    // Our own status is no news of it.
    web.budget.meta.resource_version = 60;
    web.pods_version = 50;
    assert_eq!(web.sync().status.disrupted_pods.keys().map(|name| &**name).collect::<Vec<_>>(), ["a0"]);
    web.pods[0] = pod("a0", json!({"metadata": {"deletionTimestamp": "1970-01-01T00:01:41Z"}}), None);
    assert!(web.sync().status.disrupted_pods.is_empty());
}

/// The API server and this process have clocks of their own.
#[test]
fn an_entry_of_any_time_stays_for_half_a_minute_and_for_two_at_most() {
    let mut web = Situation::new(json!({"minAvailable": 1}));
    web.ready(3, None);
    web.now = at(5000);
    web.disrupt("a0", 100);
    web.budget.status.disrupted_pods.insert("a1".into(), Timestamp::MAX);
    let begun = web.elapsed;
    let mut after = |seconds| {
        web.elapsed = begun + Duration::from_secs(seconds);
        let plan = web.sync();
        let overdue: Vec<_> = plan.overdue.iter().map(|pod| pod.meta.key.name.to_string()).collect();
        (plan.status.current_healthy, overdue, plan.look_again.map(|wait| wait.as_secs()))
    };
    assert_eq!(after(0), (1, vec![], Some(30)));
    assert_eq!(after(29), (1, vec![], Some(1)));
    assert_eq!(after(30), (2, vec!["a0".to_owned()], Some(90)));
    assert_eq!(after(120), (3, vec!["a0".to_owned(), "a1".to_owned()], None));
}

#[test]
fn evictions_do_not_wait_for_a_status_and_numbers_do() {
    let status = |allowed: i32, healthy: i32| DisruptionStatus {
        disruptions_allowed: allowed,
        current_healthy: healthy,
        ..DisruptionStatus::default()
    };
    assert_eq!(urgency(&status(2, 5), &status(1, 5)), Urgency::Immediate);
    assert_eq!(urgency(&status(1, 5), &status(2, 6)), Urgency::Throttled);
    let observed = DisruptionStatus { observed_generation: 2, ..status(1, 5) };
    assert_eq!(urgency(&status(1, 5), &observed), Urgency::Immediate);
}

/// The API server deletes pods that are not ready while `currentHealthy` is not below `desiredHealthy` (IfHealthyBudget).
#[test]
fn the_loss_of_the_last_healthy_pod_that_is_needed_is_told_at_once() {
    let status = |current_healthy: i32, desired_healthy: i32| DisruptionStatus {
        current_healthy,
        desired_healthy,
        ..DisruptionStatus::default()
    };
    assert_eq!(urgency(&status(3, 3), &status(2, 3)), Urgency::Immediate);
    assert_eq!(urgency(&status(3, 3), &status(3, 4)), Urgency::Immediate);
    assert_eq!(urgency(&status(2, 3), &status(1, 3)), Urgency::Throttled);
    assert_eq!(urgency(&status(2, 3), &status(3, 3)), Urgency::Throttled);
}

#[test]
fn an_entry_that_leaves_is_written_at_once() {
    let mut before = DisruptionStatus::default();
    before.disrupted_pods.insert("a".into(), at(100));
    assert_eq!(urgency(&before, &DisruptionStatus::default()), Urgency::Immediate);
    assert_eq!(urgency(&DisruptionStatus::default(), &before), Urgency::Throttled);
}

#[test]
fn the_entry_of_an_evicted_pod_is_not_that_of_its_successor() {
    let successor = |second: i64| {
        let change = json!({"metadata": {"uid": "u-2", "creationTimestamp": at(second).to_string()}});
        pod("a0", change, None)
    };
    // Created in the second of the eviction: only the UID tells them apart.
    let mut web = Situation::new(json!({"minAvailable": 1}));
    web.ready(2, None);
    web.disrupt("a0", 100);
    assert_eq!(web.sync().status.disrupted_pods.len(), 1);
    web.pods[0] = successor(100);
    let plan = web.sync();
    assert_eq!((plan.status.disrupted_pods.len(), plan.status.current_healthy), (0, 2));
    // Another process knows neither, but the one that was created later.
    for (second, kept) in [(100, 1), (101, 0)] {
        let mut web = Situation::new(json!({"minAvailable": 1}));
        web.ready(2, None);
        web.disrupt("a0", 100);
        web.pods[0] = successor(second);
        assert_eq!(web.sync().status.disrupted_pods.len(), kept);
    }
    // A cache that is older than the entry may show a pod of before the one that is evicted.
    let mut web = Situation::new(json!({"minAvailable": 1}));
    web.ready(2, None);
    web.disrupt("a0", 100);
    web.budget.meta.resource_version = 150;
    assert_eq!(web.sync().status.disrupted_pods.len(), 1);
    web.pods[0] = successor(100);
    assert_eq!(web.sync().status.disrupted_pods.len(), 1);
    web.pods_version = 150;
    assert_eq!(web.sync().status.disrupted_pods.len(), 1, "it may be the one that is evicted");
}

#[test]
fn budgets_are_woken_by_what_their_status_depends_on() {
    let plain = pod("a", json!({}), None);
    let concerned =
        |change: serde_json::Value| wakes::is_concerned(Some(&plain), Some(&pod("a", change, None)));
    assert!(!concerned(json!({})) && !concerned(json!({"spec": {"nodeName": "n2"}})));
    assert!(
        concerned(json!({"metadata": {"labels": {"app": "db"}}})),
        "kept by one budget, gained by another"
    );
    assert!(concerned(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
    assert!(concerned(json!({"metadata": {"uid": "other"}})));
    assert!(concerned(json!({"status": {"conditions": []}})));
    assert!(wakes::is_concerned(Some(&plain), None) && wakes::is_concerned(None, Some(&plain)));
    let owned = pod("a", json!({}), Some(reference("v1", "ReplicationController", "x")));
    assert!(wakes::is_concerned(Some(&plain), Some(&owned)));
    assert!(
        wakes::changes_scale(Some((3, None)), Some((4, None))) && wakes::changes_scale(None, Some((3, None)))
    );
    assert!(!wakes::changes_scale(Some((3, None)), Some((3, None))));
}

#[test]
fn a_disruption_that_did_not_come_is_taken_back_after_two_minutes() {
    let target = |reason: &str, more: serde_json::Value| {
        let mut pod = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason,
                                                        "lastTransitionTime": "1970-01-01T00:01:40Z"}]}});
        world::merge(&mut pod, &more);
        world::pod("a", pod, None)
    };
    let evicted = target("EvictionByEvictionAPI", json!({}));
    assert_eq!(stale_target::clear_in(&evicted, at(130)), Some(Duration::from_secs(90)));
    assert_eq!(stale_target::clear_in(&evicted, at(220)), Some(Duration::ZERO));
    let none = |pod: &Pod| stale_target::clear_in(pod, at(500)).is_none();
    assert!(none(&target("TerminationByKubelet", json!({}))));
    assert!(none(&target("x", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))));
    assert!(none(&target("x", json!({"status": {"phase": "Failed"}}))));
    let patch = stale_target::cleared(&evicted.meta, at(220));
    assert_eq!(patch["status"]["conditions"][0]["status"], "False");
    assert_eq!(
        (&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]),
        (&json!("u-a"), &json!("5"))
    );
}
