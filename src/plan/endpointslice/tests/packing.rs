//! How endpoints are packed.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{World, ready};

fn world(most: usize, pods: std::ops::Range<u32>) -> World {
    let mut world = World::new();
    world.limits.endpoints_per_slice = most;
    pods.for_each(|number| world.pod(&format!("web-{number}"), ready()));
    world
}

/// The numbers of endpoints of all slices, sorted.
fn sizes(world: &World) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        world.slices.values().map(|slice| slice["endpoints"].as_array().unwrap().len()).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn new_endpoints_fill_whole_slices_and_a_last_one() {
    let mut world = world(3, 0..7);
    assert_eq!(world.sync(), ["create IPv4 3", "create IPv4 3", "create IPv4 1"]);
    assert_eq!(world.sync(), [""; 0]);
}

#[test]
fn an_endpoint_goes_into_the_slice_that_it_makes_fullest() {
    let mut world = world(4, 0..10);
    world.sync();
    assert_eq!(sizes(&world), [2, 4, 4]);
    world.pod("web-10", ready());
    assert_eq!((world.sync(), sizes(&world)), (vec!["update 3".to_owned()], vec![3, 4, 4]));
    // Two do not fit into it: no slice is filled in part, and none is rebalanced.
    world.pod("web-11", ready());
    world.pod("web-12", ready());
    assert_eq!((world.sync(), sizes(&world)), (vec!["create IPv4 2".to_owned()], vec![2, 3, 4, 4]));
    world.pod("web-13", ready());
    assert_eq!((world.sync(), sizes(&world)), (vec!["update 4".to_owned()], vec![2, 4, 4, 4]));
}

#[test]
fn a_slice_that_is_written_anyway_is_filled_first() {
    let mut world = world(4, 0..8);
    world.sync();
    world.pods.remove("web-0");
    world.pods.remove("web-1");
    world.pod("web-8", ready());
    world.pod("web-9", ready());
    assert_eq!((world.sync(), sizes(&world)), (vec!["update 4".to_owned()], vec![4, 4]));
}

#[test]
fn an_emptied_slice_is_deleted_and_a_new_one_takes_its_place_instead() {
    let mut world = world(2, 0..4);
    world.sync();
    world.pods.remove("web-0");
    world.pods.remove("web-1");
    assert_eq!((world.sync(), sizes(&world)), (vec!["delete IPv4".to_owned()], vec![2]));
    // All pods are others: one slice becomes the new one.
    world.pods.clear();
    world.pod("web-7", ready());
    world.pod("web-8", ready());
    let name = world.only_slice()["metadata"]["name"].clone();
    assert_eq!(world.sync(), ["update 2"]);
    assert_eq!(world.only_slice()["metadata"]["name"], name);
}

#[test]
fn a_pod_that_was_created_again_under_its_name_and_address_changes_its_endpoint_in_place() {
    let mut world = world(2, 0..2);
    world.sync();
    world.merge_pod("web-0", json!({"metadata": {"uid": "u-again"}}));
    assert_eq!(world.sync(), ["update 2"]);
    assert_eq!(world.only_slice()["endpoints"][0]["targetRef"]["uid"], "u-again");
}

#[test]
fn slices_above_a_lowered_maximum_stay_as_they_are() {
    let mut world = world(4, 0..4);
    world.sync();
    world.limits.endpoints_per_slice = 2;
    assert_eq!(world.sync(), [""; 0]);
    world.pod("web-4", ready());
    assert_eq!((world.sync(), sizes(&world)), (vec!["create IPv4 1".to_owned()], vec![1, 4]));
}

#[test]
fn of_two_slices_with_one_endpoint_only_one_keeps_it() {
    let mut world = world(4, 0..2);
    world.sync();
    let mut copy = world.only_slice();
    copy["metadata"]["name"] = json!("web-copy");
    copy["metadata"]["uid"] = json!("u-copy");
    world.slices.insert("web-copy".into(), copy);
    assert_eq!(world.sync(), ["delete IPv4"]);
    assert_eq!((sizes(&world), world.sync()), (vec![2], Vec::new()));
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// This pod comes, with this target port.
    Come(u32, u8),
    Go(u32),
    Unready(u32),
    /// The endpoints of this slice are lost.
    Lose(usize),
    /// The Service gets these labels.
    Label(u8),
    Most(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12_u32, 0..2_u8).prop_map(|(pod, port)| Step::Come(pod, port)),
        3 => (0..12_u32).prop_map(Step::Go),
        2 => (0..12_u32).prop_map(Step::Unready),
        1 => (0..4_usize).prop_map(Step::Lose),
        1 => (0..3_u8).prop_map(Step::Label),
        1 => (1..5_usize).prop_map(Step::Most),
    ]
}

fn take(world: &mut World, step: Step) {
    match step {
        Step::Come(pod, port) => {
            let ports = json!([{"name": "web", "containerPort": 8080 + i32::from(port), "protocol": "TCP"}]);
            let name = format!("web-{pod}");
            world.pod(&name, ready());
            world.merge_pod(&name, json!({"spec": {"containers": [{"name": "c", "ports": ports}]}}));
        }
        Step::Go(pod) => drop(world.pods.remove(&format!("web-{pod}"))),
        Step::Unready(pod) => {
            if let Some(pod) = world.pods.get_mut(&format!("web-{pod}")) {
                pod["status"]["conditions"] = Value::Null;
            }
        }
        Step::Lose(at) => {
            if let Some(slice) = world.slices.values_mut().nth(at) {
                slice["endpoints"] = json!([]);
            }
        }
        Step::Label(label) => world.service["metadata"]["labels"] = json!({"l": label.to_string()}),
        Step::Most(most) => world.limits.endpoints_per_slice = most,
    }
}

proptest! {
    #[test]
    fn every_pod_is_in_one_slice_of_its_ports_and_nothing_else_is(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = world(2, 0..3);
        world.service["spec"]["ports"][0]["targetPort"] = json!("web");
        let mut largest = 2;
        for step in steps {
            if let Step::Most(most) = step {
                largest = largest.max(most);
            }
            take(&mut world, step);
            world.sync();
            prop_assert_eq!(world.sync(), Vec::<String>::new(), "a second sync writes nothing");
            let mut places: BTreeMap<String, Value> = BTreeMap::new();
            let mut placeholders = 0;
            for slice in world.slices.values() {
                let endpoints = slice["endpoints"].as_array().unwrap();
                placeholders += usize::from(endpoints.is_empty());
                prop_assert!(endpoints.len() <= largest);
                for endpoint in endpoints {
                    let pod = endpoint["targetRef"]["name"].as_str().unwrap().to_owned();
                    prop_assert!(places.insert(pod, slice["ports"].clone()).is_none());
                }
            }
            prop_assert_eq!(placeholders, usize::from(world.pods.is_empty()));
            prop_assert!(places.keys().eq(world.pods.keys()));
            for (name, ports) in places {
                let there = &world.pods[&name]["spec"]["containers"][0]["ports"][0]["containerPort"];
                let expected = if there.is_null() { json!([]) } else {
                    json!([{"name": "http", "port": there, "protocol": "TCP"}])
                };
                prop_assert_eq!(ports, expected);
            }
        }
    }
}
