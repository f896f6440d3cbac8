//! Obstacles to an update.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass::model::{ControllerRef, DaemonSet, Interner, Record, ReplicaSet, Uid};
use windlass::plan::rolling_update::bookkeeping::{DESIRED_REPLICAS, ORIGINAL_REPLICAS, SOURCE};
use windlass::plan::rolling_update::request::{REQUEST, STEP_AT};

use super::World;
use super::cases::{KEEP_NAME, end, ends, requested};
use super::world::{self, rc, target};

/// Nothing but the condition is written, and it says this.
#[track_caller]
fn check_refused(world: &mut World, parts: &[&str]) {
    let sizes = |world: &World| {
        world
            .objects
            .replica_sets
            .values()
            .map(|rc| (rc.replicas, rc.annotations.clone()))
            .collect::<Vec<_>>()
    };
    let before = sizes(world);
    world.run();
    assert_eq!(world.log, ["old: Refused"]);
    assert_eq!((sizes(world), world.reason("old")), (before, "False Refused".to_owned()));
    for part in parts {
        assert!(world.message("old").contains(part), "{part:?}: {}", world.message("old"));
    }
}

#[test]
fn what_is_in_the_way_is_named_and_nothing_else_is_written() {
    let mut world = requested(&[]);
    world.delete("new");
    check_refused(&mut world, &["new does not exist", "old has 3 replicas", "rolling-update-rollback=true"]);
    let mut world = requested(&[("max-surge", "1.5")]);
    check_refused(&mut world, &["windlass.dev/rolling-update-max-surge", "\"1.5\""]);
    let mut world = requested(&[]);
    world.annotate("new", SOURCE, "other:uid-other");
    check_refused(&mut world, &["new is the target of another update, that of other:uid-other"]);
    for (missing, value) in [(SOURCE, "old:uid-old"), (DESIRED_REPLICAS, "3")] {
        let mut world = requested(&[]);
        world.remove_annotation("new", missing);
        check_refused(&mut world, &["new", &format!("{missing}={value}")]);
    }
    for (on, key) in [("new", DESIRED_REPLICAS), ("old", ORIGINAL_REPLICAS), ("new", STEP_AT)] {
        for value in ["abc", "-1", "4294967295"] {
            let mut world = requested(&[]);
            world.annotate(on, key, value);
            check_refused(&mut world, &[key, value]);
        }
    }
    for name in ["old", "new"] {
        let mut world = requested(&[]);
        world.rc_mut(name).meta.controller = Some(Arc::new(ControllerRef {
            api_version: "apps.openshift.io/v1".into(),
            kind: "DeploymentConfig".into(),
            name: "web".into(),
            uid: Uid::new("dc"),
        }));
        check_refused(&mut world, &[name, "is controlled by DeploymentConfig web"]);
    }
    let mut world = requested(&[]);
    let new = world.rc_mut("new");
    new.selector = new.selector.with_label("deployment", "1");
    check_refused(&mut world, &["a key in common with different values", "deployment=1"]);
    let mut world = requested(&[]);
    world.add(world::selecting("greedy", 0, &json!({"app": "web"})));
    check_refused(&mut world, &["greedy selects the pods of new"]);
    let mut world = requested(KEEP_NAME);
    world.controls_pods = false;
    check_refused(&mut world, &["KeepName", "replicationcontroller-controller"]);
}

/// A wrong name in a request would delete OLD, or the stranger: both run without the other's pods.
#[test]
fn a_stranger_is_no_target_of_an_update_or_of_a_rollback() {
    for options in [&[][..], &[("rollback", "true")]] {
        for (size, original) in [(5, None), (0, None), (5, Some("1"))] {
            let mut world = World::new(3, size, 3);
            world.rc_mut("new").annotations = Arc::default();
            if let Some(size) = original {
                world.annotate("old", ORIGINAL_REPLICAS, size);
            }
            world.request(options);
            check_refused(
                &mut world,
                &["new is not the target of an update from old", SOURCE, "rolling-update"],
            );
        }
    }
}

/// OLD at 0 is no size to go back to: all pods would be deleted.
#[test]
fn a_complete_update_is_not_taken_back() {
    let mut world = requested(&[("cleanup", "Preserve")]);
    world.run();
    world.log.clear();
    world.request(&[("rollback", "true")]);
    check_refused(&mut world, &["new is not the target of an update from old"]);
    // In the midst of the last writes NEW still names its source.
    let mut world = World::new(0, 3, 3);
    world.request(&[("rollback", "true")]);
    check_refused(&mut world, &["size that old had", ORIGINAL_REPLICAS]);
}

#[test]
fn a_rollback_goes_to_no_size_that_nobody_knows() {
    // Midway: OLD has lost one pod already.
    let mut world = World::new(2, 2, 3);
    world.request(&[("rollback", "true")]);
    check_refused(&mut world, &["size that old had", &format!("{ORIGINAL_REPLICAS}=N")]);
    // NEW is deleted, by whomever.
    let mut world = requested(&[("rollback", "true")]);
    world.delete("new");
    check_refused(&mut world, &["size that old had"]);
}

/// Two updates of one controller would undo each other's steps for ever.
#[test]
fn the_target_of_an_update_is_updated_itself_only_afterwards() {
    let mut world = requested(&[]);
    world.add(target("third", "9", "new", 3));
    world.annotate("new", REQUEST, "third");
    world.sync("new");
    assert_eq!(world.reason("new"), "False Refused");
    assert!(world.message("new").contains("new takes the pods of old"), "{}", world.message("new"));
    world.run();
    assert_eq!((world.sizes(), world.reason("third")), (vec![("third", 3)], "False Complete".to_owned()));
}

/// NEW of an update whose OLD somebody deleted midway is updated itself, and no size of that update is in the way.
#[test]
fn what_is_left_of_an_earlier_update_stops_no_later_one() {
    for (options, ends) in
        [(&[][..], &[("third", 1)][..]), (&[("cleanup", "Preserve")], &[("new", 0), ("third", 1)])]
    {
        let mut world = World::new(0, 1, 1);
        world.delete("old");
        world.add(target("third", "9", "new", 1));
        world.annotate("new", REQUEST, "third");
        for (option, value) in options {
            world.annotate("new", &format!("windlass.dev/rolling-update-{option}"), value);
        }
        world.run();
        assert_eq!(world.sizes(), ends, "{:?}", world.log);
        let left: Vec<(&str, &str)> =
            world.objects.replica_sets.values().flat_map(|rc| rc.annotations.iter()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_controller_that_is_being_updated_itself_is_no_target() {
    let mut world = requested(&[]);
    world.add(rc("third", "9", 0));
    world.remove_annotation("new", SOURCE);
    world.annotate("new", REQUEST, "third");
    world.sync("old");
    assert_eq!(world.reason("old"), "False Refused");
    assert!(world.message("old").contains("new is being updated to third"), "{}", world.message("old"));
    // The other way round it is a circle, and no less refused.
    let mut world = requested(&[]);
    world.annotate("new", REQUEST, "old");
    world.run();
    assert_eq!(world.sizes(), [("new", 3)], "{:?}", world.log);
}

/// A ReplicaSet or a DaemonSet that selects these labels.
fn selecting<T: Record>(labels: &Value) -> Arc<T> {
    let object = json!({
        "metadata": {"name": "greedy", "namespace": "n", "uid": "g", "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels}, "spec": {"containers": []}}},
    });
    Arc::new(T::decode(&object.to_string(), &mut Interner::default()).unwrap())
}

#[test]
fn a_controller_of_another_kind_that_would_adopt_the_pods_is_in_the_way_of_a_hand_over() {
    let pods = json!({"app": "web"});
    let mut world = requested(KEEP_NAME);
    world.replica_sets.push(selecting::<ReplicaSet>(&pods));
    check_refused(&mut world, &["ReplicaSet greedy selects the pods of new", "Delete or Preserve"]);
    let mut world = requested(KEEP_NAME);
    world.daemon_sets.push(selecting::<DaemonSet>(&pods));
    check_refused(&mut world, &["DaemonSet greedy selects the pods of new"]);
    // Without a hand-over, no pod is ever without a controller; and those of a Deployment have labels of their own.
    let hashed = json!({"app": "web", "pod-template-hash": "x"});
    for (options, labels) in [(&[][..], &pods), (KEEP_NAME, &hashed)] {
        let mut world = requested(options);
        world.replica_sets.push(selecting::<ReplicaSet>(labels));
        world.run();
        assert!(world.log.iter().all(|write| !write.contains("Refused")), "{:?}", world.log);
    }
}

#[test]
fn a_refused_request_that_is_removed_is_reported_once_so_that_the_next_one_gets_an_answer() {
    let mut world = requested(&[("max-surge", "1.5")]);
    world.run();
    let refusal = world.message("old").to_owned();
    world.remove_annotation("old", REQUEST);
    world.run();
    assert_eq!(world.reason("old"), "False Stopped");
    let settled = world.log.len();
    world.run();
    assert_eq!((world.log.len(), world.plan("old")), (settled, None), "a settled object gets no write");
    world.request(&[("max-surge", "1.5")]);
    world.run();
    assert_eq!((world.reason("old").as_str(), world.message("old")), ("False Refused", refusal.as_str()));
}

#[test]
fn what_is_repaired_goes_on() {
    let mut world = requested(&[("period", "soon")]);
    world.run();
    assert_eq!(world.reason("old"), "False Refused");
    world.remove_annotation("old", "windlass.dev/rolling-update-period");
    world.run();
    assert_eq!(end(&world), ends(&[("new", 3, "False Complete", 3)]));
}
