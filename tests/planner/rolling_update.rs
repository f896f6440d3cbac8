//! Upstream's situations as sequences: `D7` shrinks the old controller to 7, `U3` grows the new one to 3, `-` allows
//! nothing. In brackets stand the new pods that are available at that look; without brackets all are.

use std::sync::Arc;

use windlass::model::int_or_percent::IntOrPercent;
use windlass::model::{Interner, Pod, Record as _, ReplicaSet, ReplicationController};
use windlass::plan::rolling_update::{Bounds, Cleanup, Observed, Resize, Sizes, Step, Wait, plan, resize};

fn number(text: &str) -> IntOrPercent {
    match text.strip_suffix('%') {
        Some(percent) => IntOrPercent::Percent(percent.parse().unwrap()),
        None => IntOrPercent::Int(text.parse().unwrap()),
    }
}

/// Plays a sequence from `start` (`10`, or `7+3` for one that is resumed) to `desired`.
#[track_caller]
fn check(start: &str, desired: i32, unavailable_and_surge: &str, expected: &str) {
    let (old, new) = start.split_once('+').unwrap_or((start, "0"));
    let (mut old, mut new): (i32, i32) = (old.parse().unwrap(), new.parse().unwrap());
    let (unavailable, surge) = unavailable_and_surge.split_once('/').unwrap();
    let bounds = Bounds::resolve(desired, number(surge), number(unavailable));
    let mut looks = expected.split_whitespace();
    let mut played = Vec::new();
    for _ in 0..100 {
        let look = looks.next();
        let slow = look.and_then(|look| look.split_once('('));
        let available =
            slow.map_or(i64::from(new), |(_, count)| count.trim_end_matches(')').parse().unwrap());
        let brackets = slow.map_or(String::new(), |(_, count)| format!("({count}"));
        match resize(&bounds, &Sizes { shrinking: old, growing: new, available }) {
            Some(Resize::Up(to)) => {
                new = to;
                played.push(format!("U{to}{brackets}"));
            }
            Some(Resize::Down(to)) => {
                old = to;
                played.push(format!("D{to}{brackets}"));
            }
            None if look.is_none() => break,
            None => played.push(format!("-{brackets}")),
        }
    }
    assert_eq!(played.join(" "), expected, "{start} to {desired}, {unavailable_and_surge}");
    assert_eq!((old, new), (0, desired));
    // The daemon's job takes the same steps.
    super::rolling_update_job::check(start, desired, unavailable_and_surge, expected);
}

#[test]
fn unavailable_pods_make_room_for_new_ones() {
    check("10", 10, "30%/0", "D7 U3 D4 U6 D1 U9 D0 U10");
    check("10", 10, "30%/0", "D7 U3 -(0) D6(1) U4 D3(4) U7 D0(7) U10");
    check("7+3", 10, "30%/0", "D4 U6 D1 U9 D0 U10");
    check("7+0", 10, "30%/0", "U3 -(0) D4(3) U6 D1 U9 D0 U10");
    check("10", 10, "100%/0", "D0 U10");
}

#[test]
fn surge_comes_before_the_old_pods_go() {
    check("10", 10, "0/30%", "U3 D7 U6 D4 U9 D1 U10 D0");
    check("10", 10, "0/30%", "U3 -(0) D9(1) U4 D7(3) U6 D4(6) U9 D1(9) U10 -(9) D0");
    check("10", 10, "0/100%", "U10 D0");
    check("10", 10, "0/100%", "U10 -(0) D8(2) D3(7) D0");
    check("10", 20, "0/300%", "U20 D0");
    check("6+5", 10, "0/20%", "U6 D4 U8 D2 U10 D0");
    check("3", 3, "0/1", "U1 D2 U2 D1 U3 D0");
}

#[test]
fn surge_and_unavailable_pods_work_together() {
    check("10", 10, "10%/20%", "U2 D7 U5 D4 U8 D1 U10 D0");
    check("10", 10, "10%/20%", "U2 D7(2) U5 D5(4) U7 -(4) D2(7) U10 D0(9)");
    check("10+2", 10, "10%/20%", "D7 U5 D4 U8 D1 U10 D0");
    check("2", 2, "1/0", "D1 U1 D0 U2");
    check("30", 2, "50%/0", "D1 U1 D0 U2");
}

#[test]
fn one_and_two_pods_keep_the_bounds() {
    check("1", 1, "1%/0", "D0 U1");
    check("1", 2, "25%/25%", "U2 D0");
    check("2", 2, "25%/1%", "U1 D1 U2 D0");
    check("2", 2, "25%/0", "D1 U1 D0 U2");
    for bounds in ["25%/25%", "0/10%", "10%/10%"] {
        check("1", 1, bounds, "U1 -(0) D0");
    }
}

#[test]
fn the_end_may_be_nothing_and_a_broken_old_pod_blocks_nothing() {
    for bounds in ["1/1", "10%/10%"] {
        check("3", 0, bounds, "D0");
    }
    check("0", 0, "1/1", "");
    check("1+1", 1, "0/1", "D0");
}

#[test]
fn huge_numbers_of_users_cause_no_overflow() {
    let bounds = Bounds::resolve(i32::MAX, IntOrPercent::Percent(i64::MAX), IntOrPercent::Int(i64::MAX));
    let sizes = Sizes { shrinking: i32::MAX, growing: -1, available: i64::MAX };
    assert_eq!(resize(&bounds, &sizes), Some(Resize::Up(i32::MAX)));
    assert_eq!(Bounds::resolve(-5, number("1"), number("0")).desired, 0);
}

struct Rc {
    name: &'static str,
    size: i32,
    reported: i32,
    label: &'static str,
    handing_over: bool,
}

impl Rc {
    fn new(name: &'static str, size: i32) -> Self {
        Rc { name, size, reported: size, label: name, handing_over: false }
    }

    fn decoded(&self) -> ReplicaSet {
        let Rc { name, size, reported, label, .. } = self;
        let annotations = if self.handing_over { r#"{"windlass.dev/handing-over":"new"}"# } else { "{}" };
        let json = format!(
            r#"{{"metadata":{{"namespace":"n","name":"{name}","uid":"uid-{name}","resourceVersion":"1","generation":2,
                 "annotations":{annotations}}},
                 "spec":{{"replicas":{size},"selector":{{"app":"web","deployment":"{label}"}}}},
                 "status":{{"replicas":{reported},"observedGeneration":2}}}}"#
        );
        ReplicationController::decode(&json, &mut Interner::default()).unwrap().0
    }
}

fn pods(owner: &str, count: usize, more: &str) -> Vec<Arc<Pod>> {
    let pod = |number: usize| {
        let json = format!(
            r#"{{"metadata":{{"namespace":"n","name":"{owner}-{number}","uid":"{owner}-{number}","resourceVersion":"1"
                 {more},"ownerReferences":[{{"apiVersion":"v1","kind":"ReplicationController","name":"{owner}",
                 "uid":"uid-{owner}","controller":true}}]}},
                 "status":{{"phase":"Running","conditions":[{{"type":"Ready","status":"True",
                 "lastTransitionTime":"2026-01-01T00:00:00Z"}}]}}}}"#
        );
        Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
    };
    (0..count).map(pod).collect()
}

fn step(old: &Rc, new: &Rc, pods: &[Arc<Pod>], cleanup: Cleanup) -> Step {
    let (old, new) = (old.decoded(), new.decoded());
    plan(&Observed {
        shrinking: Some(&old),
        growing: &new,
        pods,
        bounds: Bounds::resolve(2, number("1"), number("0")),
        cleanup,
        label_key: "deployment",
        now: "2026-01-01T00:01:00Z".parse().unwrap(),
    })
}

#[test]
fn a_resize_waits_until_the_controller_has_done_the_last_one() {
    let slow = Rc { reported: 1, ..Rc::new("new", 2) };
    let step = step(&Rc::new("old", 1), &slow, &pods("new", 1, ""), Cleanup::Delete);
    assert_eq!(
        step,
        Step::Wait(Wait::Count { controller: "new".into(), wanted: 2, reported: 1, refusal: None })
    );
}

#[test]
fn pods_of_others_and_pods_that_are_being_deleted_are_not_available() {
    let leaving = r#","deletionTimestamp":"2026-01-01T00:00:30Z""#;
    let mut all = pods("new", 1, leaving);
    all.extend(pods("other", 5, ""));
    let wait = step(&Rc::new("old", 2), &Rc::new("new", 1), &all, Cleanup::Delete);
    assert_eq!(wait, Step::Wait(Wait::Available { controller: "new".into(), wanted: 1, available: 0 }));
    all.extend(pods("new", 1, ""));
    assert_eq!(step(&Rc::new("old", 2), &Rc::new("new", 1), &all, Cleanup::Delete), Step::Shrink { to: 1 });
}

#[test]
fn the_last_old_pod_is_gone_and_the_update_waits_for_all_new_ones() {
    let (old, new) = (Rc::new("old", 0), Rc::new("new", 2));
    let wait = step(&old, &new, &pods("new", 1, ""), Cleanup::Delete);
    assert_eq!(wait, Step::Wait(Wait::Available { controller: "new".into(), wanted: 2, available: 1 }));
}

#[test]
fn the_old_controller_is_deleted_once_its_last_pod_is_gone() {
    let (old, new) = (Rc::new("old", 0), Rc::new("new", 2));
    let mut all = pods("new", 2, "");
    assert_eq!(step(&old, &new, &all, Cleanup::Delete), Step::DeleteShrinking);
    assert_eq!(step(&old, &new, &all, Cleanup::Preserve), Step::Finished);
    all.extend(pods("old", 1, r#","deletionTimestamp":"2026-01-01T00:00:30Z""#));
    let gone = Step::Wait(Wait::Gone { controller: "old".into(), pods: 1 });
    assert_eq!(step(&old, &new, &all, Cleanup::Delete), gone);
}

#[test]
fn a_hand_over_never_deletes_a_pod_and_never_creates_one() {
    let (old, new) = (Rc::new("old", 0), Rc::new("new", 2));
    let all = pods("new", 2, "");
    let value = || "new".to_owned();
    assert_eq!(step(&old, &new, &all, Cleanup::KeepName), Step::StepAside { value: value() });
    let aside = Rc { label: "new-moved", handing_over: true, ..Rc::new("new", 0) };
    let release = Step::Wait(Wait::Release { controller: "new".into(), pods: 2 });
    assert_eq!(step(&old, &aside, &all, Cleanup::KeepName), release);
    assert_eq!(step(&old, &aside, &[], Cleanup::KeepName), Step::TakeOver { value: value() });
    let survivor = Rc { label: "new", reported: 0, ..Rc::new("old", 2) };
    let adopt = Step::Wait(Wait::Adopt { controller: "old".into(), pods: 0, wanted: 2 });
    assert_eq!(step(&survivor, &aside, &[], Cleanup::KeepName), adopt);
    assert_eq!(step(&survivor, &aside, &pods("old", 2, ""), Cleanup::KeepName), Step::DeleteGrowing);
}
