//! Pods that fail at startup: how many of the missing pods a ReplicaSet creates, and when.

use std::time::Duration;

use windlass::plan::replicaset::Write;
use windlass_planner_testkit::objects::{PodBuilder, bare_replica_set, pod};

use crate::replicaset_tables::check;

fn running(name: &str) -> PodBuilder {
    pod(name).on("n").ready(600)
}

/// Plays an hour and ten minutes of a ReplicaSet of `size` whose pods fail a second after their creation, until
/// the nodes are well again; then they are ready after a second. Returns how many were made within five
/// minutes, within the hour, and when all of them were ready.
fn failed_pod_backoff(size: i32, well_from: i64) -> (usize, usize, i64) {
    let mut made: Vec<i64> = Vec::new();
    let (mut in_five_minutes, mut in_an_hour) = (0, 0);
    let mut now = 0;
    while now < 4200 {
        let pods: Vec<PodBuilder> = made
            .iter()
            .enumerate()
            .map(|(nth, &at)| match pod(&format!("p{nth}")).on("n").created(now - at) {
                young if now <= at => young,
                young if at < well_from => young.phase("Failed"),
                young => young.ready(now - at - 1).created(now - at),
            })
            .collect();
        let plan = bare_replica_set(size).plan(&pods);
        for write in &plan.writes {
            let Write::Create { count, .. } = write else { panic!("{write:?}") };
            made.extend(std::iter::repeat_n(now, *count));
        }
        assert!(plan.writes.is_empty() || plan.requeue_after.is_none());
        let ready = made.iter().filter(|&&at| at >= well_from && now > at).count();
        if ready == size as usize {
            return (in_five_minutes, in_an_hour, now);
        }
        if now <= 300 {
            in_five_minutes = made.len();
        }
        if now <= 3600 {
            in_an_hour = made.len();
        }
        // Nothing changes while it waits, but the pod that was sent ahead.
        now += plan.requeue_after.map_or(1, |wait| (wait.as_secs() as i64).clamp(1, 5));
    }
    panic!("{} pods were created and the ReplicaSet is not complete: {made:?}", made.len());
}

#[test]
fn pods_that_fail_at_startup_are_created_with_backoff_until_one_runs() {
    assert_eq!(failed_pod_backoff(10, 0).2, 1, "a healthy ReplicaSet waits for nothing");
    let (in_five_minutes, in_an_hour, full) = failed_pod_backoff(10, 3600);
    assert!((10..=17).contains(&in_five_minutes), "{in_five_minutes}");
    assert!((20..=29).contains(&in_an_hour), "{in_an_hour}");
    assert!(full <= 3600 + 310, "{full}");
    // A short trouble costs a short wait.
    let (_, _, full) = failed_pod_backoff(10, 20);
    assert!(full <= 45, "{full}");
}

#[test]
fn pods_that_fail_at_startup_hold_back_as_many_of_the_missing_pods_and_no_more() {
    let failed = |name: &str, seconds: i64| pod(name).on("n").created(seconds).phase("Failed");
    let two = || vec![running("a"), running("b")];
    let one_failed = [two(), vec![failed("c", 1)]].concat();
    check("scaled up beside a pod that failed", bare_replica_set(13), &one_failed, &["create 10"]);
    check("its replacement waits", bare_replica_set(3), &one_failed, &[]);
    let plan = bare_replica_set(13).plan(&one_failed);
    assert_eq!(plan.requeue_after, Some(Duration::from_secs(4)), "the eleventh waits for the backoff");
    assert!(plan.notes[0].message.contains("last 1 pods failed"), "{:?}", plan.notes);

    let due = [two(), vec![failed("c", 6)]].concat();
    check("the wait is over", bare_replica_set(13), &due, &["create 11"]);
    check("for one pod", bare_replica_set(3), &due, &["create 1"]);
    let three = |seconds: i64| ["c", "d", "e"].map(|name| failed(name, seconds)).to_vec();
    check("three have failed", bare_replica_set(13), &[two(), three(1)].concat(), &["create 8"]);
    check("one of three is tried", bare_replica_set(13), &[two(), three(6)].concat(), &["create 9"]);
    check("fewer are missing", bare_replica_set(4), &[two(), three(6)].concat(), &["create 1"]);
    check("a large scale-up", bare_replica_set(2000), &one_failed, &["create 500"]);
    let ten = (0..10).map(|nth| pod(&format!("n{nth}")).on("n").created(0)).collect();
    check("the others were created", bare_replica_set(13), &[one_failed, ten].concat(), &[]);
}
