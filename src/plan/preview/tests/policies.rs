//! Rollouts under a policy, before they begin.

use super::*;
use crate::plan::outcome_of::annotate;
use crate::plan::policy::{FAIL_AFTER, ON_FAILURE, ROLLOUT, STEPS};

/// Four pods with this policy, and a new image.
fn under(policy: &[(&str, &str)]) -> Start {
    let mut start = start(4, |spec| {
        new_image(spec);
        spec["strategy"]["rollingUpdate"] = json!({"maxSurge": 1, "maxUnavailable": 0});
    });
    for (key, value) in policy {
        annotate(&mut start.deployment.annotations, key, value);
    }
    start
}

fn holds(preview: &Preview) -> Vec<String> {
    let held = preview.steps.iter().filter_map(|step| Some((step, step.held?)));
    let said = held.map(|(step, Held { step: number, of, time })| {
        let time = time.map_or("approved".to_owned(), |time| time.as_secs().to_string());
        format!("{}s, {} pods: {number}/{of} {time}", step.after.as_secs(), step.pods)
    });
    said.collect()
}

#[test]
fn a_step_is_shown_with_its_wait_and_an_approval_takes_no_time() {
    let preview = preview(under(&[(STEPS, "1, 50% for 10m")]));
    assert_eq!(holds(&preview), ["12s, 4 pods: 1/2 approved", "24s, 4 pods: 2/2 600"]);
    assert_eq!((preview.end, preview.took.as_secs()), (End::Complete, 24 + 600 + 24));
    assert_eq!(preview.stopped_by, None);
}

#[test]
fn a_policy_that_cannot_be_read_stops_the_rollout_before_it_begins() {
    let preview = preview(under(&[(STEPS, "1,25%%")]));
    assert_eq!((preview.end, preview.steps.len()), (End::Waits, 1));
    assert!(preview.stopped_by.unwrap().contains("25%%"));
}

#[test]
fn a_failure_that_halts_is_played_until_the_old_pods_are_back() {
    for on_failure in ["halt", "rollback"] {
        let mut start = under(&[(ON_FAILURE, on_failure), (FAIL_AFTER, "2m")]);
        start.kubelet.broken = usize::MAX;
        let preview = preview(start);
        assert_eq!(preview.end, End::Halted, "{on_failure}: {:?}", rows(&preview));
        let last = preview.steps.last().unwrap();
        assert_eq!((last.pods, last.available), (4, 4), "{on_failure}");
        assert!(preview.stopped_by.unwrap().contains("Revision 8 failed"));
    }
}

#[test]
fn a_command_is_previewed_from_where_the_rollout_stands() {
    let mut start = under(&[(STEPS, "1"), (ROLLOUT, "approve 8")]);
    start.kubelet.ready_after = SignedDuration::from_secs(1);
    let preview = preview(start);
    assert_eq!(holds(&preview), Vec::<String>::new(), "approved in advance");
    assert_eq!(preview.end, End::Complete);
}

#[test]
fn a_quota_that_refuses_the_new_pods_fails_the_rollout_after_its_time() {
    let mut start = under(&[(ON_FAILURE, "halt"), (FAIL_AFTER, "2m")]);
    start.rooms = vec![Room { free: 0, new_pod: 1, old_pod: 1 }];
    let preview = preview(start);
    assert_eq!(preview.end, End::Halted, "{:?}", rows(&preview));
    assert_eq!(preview.took.as_secs(), 120);
    assert!(preview.stopped_by.unwrap().contains("FailedCreate for 2m: exceeded quota"));
}
