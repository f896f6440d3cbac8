mod evictions;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::plan::disruption::{stale_target, wakes};
use world::{Situation, at, budget, pod, reference};

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
