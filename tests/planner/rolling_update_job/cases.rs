//! Every row of the decision table, in whatever order all act and whoever dies.

use windlass::model::Condition;
use windlass::plan::rolling_update::bookkeeping::{DESIRED_REPLICAS, ORIGINAL_REPLICAS, SOURCE};
use windlass::plan::rolling_update::job::Write;
use windlass::plan::rolling_update::report::{Count, Reason, Report};
use windlass::plan::rolling_update::request::{REQUEST, Request};

use super::World;

/// An update of 3 pods under way, or at its beginning.
pub fn requested(options: &[(&str, &str)]) -> World {
    let mut world = World::new(3, 0, 3);
    world.request(options);
    world
}

/// The end of an update.
#[derive(Debug, PartialEq)]
pub struct End {
    rcs: Vec<(String, i32, String, usize)>,
    leftovers: usize,
    pods: usize,
}

impl End {
    /// Name, size and number of pods of each, whatever it reports.
    fn sizes(&self) -> Vec<(&str, i32, usize)> {
        self.rcs.iter().map(|(name, size, _, owned)| (name.as_str(), *size, *owned)).collect()
    }
}

pub fn end(world: &World) -> End {
    let rcs = world
        .sizes()
        .into_iter()
        .map(|(name, size)| (name.to_owned(), size, world.reason(name), world.owned(name)));
    End {
        rcs: rcs.collect(),
        leftovers: world.objects.replica_sets.values().map(|rc| rc.annotations.len()).sum(),
        pods: world.objects.pods.len(),
    }
}

pub fn ends(expected: &[(&str, i32, &str, usize)]) -> End {
    let rcs: Vec<_> = expected
        .iter()
        .map(|(name, size, reason, owned)| ((*name).to_owned(), *size, (*reason).to_owned(), *owned))
        .collect();
    let pods = rcs.iter().map(|rc| rc.3).sum();
    End { rcs, leftovers: 0, pods }
}

const DELETE: &[(&str, &str)] = &[("cleanup", "Delete")];
pub const KEEP_NAME: &[(&str, &str)] = &[("cleanup", "KeepName")];
const PRESERVE: &[(&str, &str)] = &[("cleanup", "Preserve")];

/// The three ends of an update of 3 pods.
fn all_ends() -> [(&'static [(&'static str, &'static str)], End); 3] {
    [
        (DELETE, ends(&[("new", 3, "False Complete", 3)])),
        (KEEP_NAME, ends(&[("old", 3, "False Complete", 3)])),
        (PRESERVE, ends(&[("new", 3, " ", 3), ("old", 0, "False Complete", 0)])),
    ]
}

#[test]
fn each_cleanup_has_its_end_and_leaves_no_annotation() {
    for (options, expected) in all_ends() {
        let mut world = requested(options);
        world.run();
        assert_eq!(end(&world), expected, "{options:?}: {:?}", world.log);
        assert_eq!(world.log.first().map(String::as_str), Some("old: Progressing"), "the answer comes first");
    }
    let mut empty = World::new(3, 0, 0);
    empty.request(&[]);
    empty.run();
    assert_eq!(end(&empty), ends(&[("new", 0, "False Complete", 0)]), "{:?}", empty.log);
}

#[test]
fn whoever_goes_on_after_whichever_write_reaches_the_same_end() {
    for (options, expected) in all_ends() {
        for writes in 0.. {
            let mut world = requested(options);
            // The daemon dies after so many writes; the other controllers go on.
            while world.log.len() < writes {
                let wrote = world.sync("old") || world.sync("new");
                world.controllers_act();
                world.make_ready(usize::MAX);
                if !wrote {
                    break;
                }
            }
            let is_whole = world.log.len() < writes;
            for _ in 0..3 {
                world.controllers_act();
            }
            world.make_ready(usize::MAX);
            world.advance(3600);
            world.run();
            assert_eq!(end(&world), expected, "{options:?} after {writes}: {:?}", world.log);
            if is_whole {
                assert!(writes > 8, "{:?}", world.log);
                break;
            }
        }
    }
}

#[test]
fn in_whatever_order_all_act_the_bounds_hold_and_a_hand_over_neither_creates_nor_deletes_a_pod() {
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (options, expected) = &all_ends()[random.usize(..3)];
        let mut world = requested(options);
        let mut at_hand_over = None;
        for _ in 0..5000 {
            match random.usize(..6) {
                0 | 1 => drop(world.sync("old")),
                2 => drop(world.sync("new")),
                3 => world.controller_acts("old"),
                4 => world.controller_acts("new"),
                _ => {
                    let ready = random.usize(..5);
                    let before = world.available();
                    let more = ready.max(before);
                    world.make_ready(more);
                }
            }
            let desired: i32 = world.sizes().iter().map(|(_, size)| size).sum();
            assert!(desired <= 4 && world.objects.pods.len() <= 4, "seed {seed}: {:?}", world.log);
            assert!(world.available() >= 3, "seed {seed}: {:?}", world.log);
            if world.log.last().is_some_and(|last| last == "step aside") {
                at_hand_over.get_or_insert((world.created, world.deleted));
            }
            if let Some(before) = at_hand_over {
                assert_eq!((world.created, world.deleted), before, "seed {seed}: {:?}", world.log);
            }
            if end(&world) == *expected {
                break;
            }
        }
        assert_eq!(end(&world), *expected, "seed {seed}: {:?}", world.log);
    }
}

#[test]
fn clients_that_carry_out_the_same_update_at_the_same_time_do_no_harm_and_the_daemon_finishes_it() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (options, expected) = &all_ends()[random.usize(..3)];
        let request = Request::read(requested(options).rc("old").unwrap()).unwrap().unwrap();
        let mut world = World::new(3, 0, 3);
        let mut reports = [None, None];
        for _ in 0..400 {
            match random.usize(..7) {
                0 => drop(world.sync("old")),
                1 => drop(world.sync("new")),
                2 | 3 => world.client_acts(&request, &mut reports[random.usize(..2)]),
                4 => world.controller_acts("old"),
                5 => world.controller_acts("new"),
                _ => world.make_ready(world.available().max(random.usize(..5))),
            }
            assert!(world.objects.pods.len() <= 4 && world.available() >= 3, "seed {seed}: {:?}", world.log);
        }
        let end = end(&world);
        assert_eq!((end.sizes(), end.leftovers), (expected.sizes(), 0), "seed {seed}: {:?}", world.log);
        assert_eq!(world.created, 3, "seed {seed}: {:?}", world.log);
    }
}

#[test]
fn the_original_size_is_written_once_and_never_over_what_is_there() {
    for (known, expected) in [(None, "3"), (Some("7"), "7")] {
        let mut world = requested(DELETE);
        if let Some(size) = known {
            world.annotate("old", ORIGINAL_REPLICAS, size);
        }
        let new = world.rc("new").unwrap().annotations.clone();
        for _ in 0..2 {
            assert!(world.next_resize().is_some());
            world.controllers_act();
            world.make_ready(usize::MAX);
        }
        assert_eq!(world.rc("old").unwrap().annotations.get(ORIGINAL_REPLICAS), Some(expected));
        let now = &world.rc("new").unwrap().annotations;
        assert_eq!(
            [SOURCE, DESIRED_REPLICAS].map(|key| now.get(key)),
            [SOURCE, DESIRED_REPLICAS].map(|key| new.get(key))
        );
    }
}

/// The client was killed, or changed its mind, before anybody has resized one of the two: OLD has its original size.
#[test]
fn a_rollback_before_the_first_resize_deletes_the_new_one() {
    for writes in 0.. {
        let mut world = requested(&[("rollback", "true")]);
        // The daemon dies after so many writes.
        let has_more = (0..writes).all(|_| world.sync("old"));
        world.advance(3600);
        world.run();
        assert_eq!(end(&world), ends(&[("old", 3, "False RolledBack", 3)]), "{writes}: {:?}", world.log);
        if !has_more {
            break;
        }
    }
}

#[test]
fn a_paused_update_keeps_its_sizes_until_it_is_resumed() {
    let mut world = requested(&[]);
    assert_eq!(world.next_resize().as_deref(), Some("U1"));
    world.request(&[("paused", "true")]);
    world.run();
    assert_eq!((world.reason("old").as_str(), world.owned("old"), world.owned("new")), ("True Paused", 3, 1));
    world.remove_annotation("old", "windlass.dev/rolling-update-paused");
    world.run();
    assert_eq!(end(&world), ends(&[("new", 3, "False Complete", 3)]));
}

#[test]
fn a_rollback_returns_to_the_original_size_from_anywhere() {
    for resizes in 0..6 {
        let mut world = requested(KEEP_NAME);
        for _ in 0..resizes {
            world.next_resize();
            world.controllers_act();
            world.make_ready(usize::MAX);
        }
        world.request(&[("rollback", "true")]);
        world.run();
        assert_eq!(end(&world), ends(&[("old", 3, "False RolledBack", 3)]), "{resizes}: {:?}", world.log);
    }
    let mut without_new = requested(&[]);
    while without_new.next_resize().as_deref() != Some("D2") {
        without_new.controllers_act();
        without_new.make_ready(usize::MAX);
    }
    without_new.delete_with_pods("new");
    without_new.run();
    assert_eq!(without_new.reason("old"), "False Refused");
    without_new.request(&[("rollback", "true")]);
    without_new.run();
    assert_eq!(end(&without_new), ends(&[("old", 3, "False RolledBack", 3)]), "{:?}", without_new.log);
}

#[test]
fn a_rollback_that_comes_after_the_hand_over_began_is_too_late() {
    let mut world = requested(KEEP_NAME);
    while world.log.last().is_none_or(|last| last != "step aside") {
        world.sync("old");
        world.controllers_act();
        world.make_ready(usize::MAX);
    }
    world.request(&[("rollback", "true"), ("paused", "true")]);
    world.run();
    assert_eq!(end(&world), ends(&[("old", 3, "False Complete", 3)]), "{:?}", world.log);
}

#[test]
fn new_pods_get_their_period_before_old_ones_go_and_a_restart_does_not_shorten_it() {
    let mut world = requested(&[("period", "1m")]);
    assert_eq!(world.next_resize().as_deref(), Some("U1"));
    world.controllers_act();
    world.make_ready(usize::MAX);
    world.advance(20);
    while world.sync("old") {}
    let plan = world.plan("old").unwrap();
    assert_eq!((plan.write, plan.look_again.map(|left| left.as_secs())), (None, Some(40)));
    assert_eq!(world.reason("old"), "True Waiting");
    world.advance(40);
    assert_eq!(world.next_resize().as_deref(), Some("D2"));
}

#[test]
fn without_progress_it_warns_in_time_with_the_reason_and_goes_on_when_a_pod_is_there() {
    let mut world = requested(&[("timeout", "2m")]);
    assert_eq!(world.next_resize().as_deref(), Some("U1"));
    world.controllers_act();
    while world.sync("old") {}
    assert_eq!(world.reason("old"), "True Waiting");
    let message = world.message("old").to_owned();
    assert!(
        message.contains("0 of 1 pods of new are available; new-4: ImagePullBackOff: no such image"),
        "{message}"
    );
    assert_eq!(world.plan("old").unwrap().look_again.map(|left| left.as_secs()), Some(120));
    world.advance(120);
    while world.sync("old") {}
    assert_eq!(world.reason("old"), "True TimedOut");
    assert!(world.message("old").starts_with("No progress for 120s: "), "{}", world.message("old"));
    assert_eq!(world.plan("old").unwrap().look_again, None);
    world.run();
    assert_eq!(end(&world), ends(&[("new", 3, "False Complete", 3)]));
}

#[test]
fn a_quota_that_refuses_pods_is_the_reason() {
    let mut world = requested(&[]);
    assert_eq!(world.next_resize().as_deref(), Some("U1"));
    let now = world.objects.now;
    let failure = Condition::new("ReplicaFailure", "True", "FailedCreate", "exceeded quota", now);
    world.rc_mut("new").status.conditions.push(failure);
    while world.sync("old") {}
    assert_eq!(world.reason("old"), "True Waiting");
    assert!(
        world.message("old").contains("new reports 0 pods and wants 1: exceeded quota"),
        "{}",
        world.message("old")
    );
}

#[test]
fn a_request_that_is_removed_stops_the_update_where_it_stands() {
    let mut world = requested(&[]);
    assert_eq!(world.next_resize().as_deref(), Some("U1"));
    world.remove_annotation("old", REQUEST);
    world.run();
    assert_eq!(
        (world.reason("old").as_str(), world.owned("old"), world.owned("new")),
        ("False Stopped", 3, 1)
    );
    let before = world.log.len();
    world.run();
    assert_eq!(world.log.len(), before);
    world.request(&[]);
    world.run();
    assert_eq!(end(&world), ends(&[("new", 3, "False Complete", 3)]));
}

#[test]
fn sizes_that_someone_changes_midway_are_the_start_of_the_next_step() {
    let mut world = requested(&[]);
    assert_eq!(world.next_resize().as_deref(), Some("U1"));
    world.rc_mut("old").replicas = 5;
    world.rc_mut("new").replicas = 0;
    world.run();
    assert_eq!(end(&world), ends(&[("new", 3, "False Complete", 3)]), "{:?}", world.log);
    // Another size for the end is the user's to choose.
    let mut world = requested(&[]);
    world.next_resize();
    world.annotate("new", DESIRED_REPLICAS, "6");
    world.run();
    assert_eq!(end(&world), ends(&[("new", 6, "False Complete", 6)]), "{:?}", world.log);
}

#[test]
fn an_old_one_that_someone_deletes_midway_is_named_by_the_new_one() {
    let mut world = requested(&[]);
    assert_eq!(world.next_resize().as_deref(), Some("U1"));
    world.delete_with_pods("old");
    world.run();
    assert_eq!(world.reason("new"), "False Refused");
    assert!(world.message("new").contains("scale it to 3"), "{}", world.message("new"));
    world.rc_mut("new").replicas = 3;
    world.run();
    assert_eq!(end(&world), ends(&[("new", 3, "False Complete", 3)]));
}

#[test]
fn a_controller_without_a_request_is_left_alone() {
    let mut world = World::new(3, 2, 3);
    assert_eq!((world.plan("old"), world.plan("new")), (None, None));
    // NEW of a client that drives its update.
    world.delete("old");
    world.run();
    assert!(world.log.is_empty());
}

#[test]
fn events_and_counts_follow_the_transitions_of_the_condition() {
    let mut world = requested(&[]);
    let news = |world: &World, reason| {
        let own = world.rc("old").unwrap();
        Report::new(reason, "m".to_owned()).news(own).map(|news| (news.note.reason, news.count))
    };
    assert_eq!(news(&world, Reason::Progressing), Some(("RollingUpdateStarted", Some(Count::Started))));
    let refused = ("RollingUpdateRefused", Some(Count::Failed(Reason::Refused)));
    assert_eq!(news(&world, Reason::Refused), Some(refused));
    world.sync("old");
    for (reason, expected) in [
        (Reason::Progressing, None),
        (Reason::Waiting, None),
        (Reason::Paused, Some(("RollingUpdatePaused", None))),
        (Reason::TimedOut, Some(("RollingUpdateTimedOut", Some(Count::Failed(Reason::TimedOut))))),
        (Reason::HandingOver, Some(("RollingUpdateHandingOver", None))),
        (Reason::Complete, Some(("RollingUpdateComplete", Some(Count::Finished)))),
        (Reason::RolledBack, Some(("RollingUpdateRolledBack", Some(Count::Failed(Reason::RolledBack))))),
    ] {
        assert_eq!(news(&world, reason), expected, "{reason}");
    }
}

#[test]
fn a_condition_stays_within_its_length_and_keeps_the_others() {
    let mut world = requested(&[]);
    let now = world.objects.now;
    let failure = Condition::new("ReplicaFailure", "True", "FailedCreate", "", now);
    world.rc_mut("old").status.conditions.push(failure);
    let own = world.rc("old").unwrap();
    let conditions = Report::new(Reason::Waiting, "ä".repeat(5000)).conditions(own, now);
    assert_eq!(
        conditions.iter().map(|one| &*one.kind).collect::<Vec<_>>(),
        ["ReplicaFailure", "RollingUpdate"]
    );
    assert_eq!(conditions[1].message.chars().count(), 1001);
    let plan = world.plan("old").unwrap();
    assert_eq!(plan.write, Some(Write::Report));
}
