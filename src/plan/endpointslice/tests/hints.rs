//! Hints, by the traffic distribution and by the CPUs of zones.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::world::{World, endpoint, ready};
use crate::plan::endpointslice::{CpuShares, NodeChange, node_change, topology_is_concerned};

const AUTO: &str = "service.kubernetes.io/topology-mode";

/// A Service with pods `web-0`, `web-1`, … in these zones, of which each has a node with so many CPUs.
fn world(pods: &[&str], zones: &[(&str, u32)]) -> World {
    let mut world = World::new();
    world.merge_node("n1", json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}));
    for (zone, cpus) in zones {
        world.node(&format!("node-{zone}"), zone, *cpus);
    }
    for (at, zone) in pods.iter().enumerate() {
        let name = format!("web-{at}");
        world.pod(&name, ready());
        world.merge_pod(&name, json!({"spec": {"nodeName": format!("node-{zone}")}}));
    }
    world
}

fn auto(mut world: World) -> World {
    world.service["metadata"]["annotations"] = json!({AUTO: "Auto"});
    world
}

/// The number of endpoints for each zone.
fn hinted(world: &World) -> BTreeMap<String, usize> {
    let mut zones = BTreeMap::new();
    for slice in world.slices.values() {
        for endpoint in slice["endpoints"].as_array().unwrap() {
            for zone in endpoint["hints"]["forZones"].as_array().into_iter().flatten() {
                *zones.entry(zone["name"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
    }
    zones
}

fn counts(zones: &[(&str, usize)]) -> BTreeMap<String, usize> {
    zones.iter().map(|(zone, count)| ((*zone).to_owned(), *count)).collect()
}

#[test]
fn the_traffic_distribution_gives_ready_endpoints_hints() {
    let mut world = world(&["a", "b"], &[("a", 4), ("b", 4)]);
    world.pod("web-2", json!({"spec": {"nodeName": "node-a"}}));
    world.sync();
    let hints = |world: &World, pod: &str| endpoint(&world.only_slice(), pod)["hints"].clone();
    let zone = json!({"forZones": [{"name": "a"}]});
    for distribution in ["PreferClose", "PreferSameZone"] {
        world.service["spec"]["trafficDistribution"] = json!(distribution);
        world.sync();
        assert_eq!(hints(&world, "web-0"), zone, "{distribution}");
        assert_eq!((hints(&world, "web-2"), world.sync()), (Value::Null, Vec::new()), "not ready");
    }
    world.service["spec"]["trafficDistribution"] = json!("PreferSameNode");
    assert_eq!(world.sync(), ["update 3"]);
    let both = json!({"forZones": [{"name": "b"}], "forNodes": [{"name": "node-b"}]});
    assert_eq!(hints(&world, "web-1"), both);
    world.service["spec"]["trafficDistribution"] = Value::Null;
    assert_eq!(world.sync(), ["update 3"]);
    assert_eq!((hints(&world, "web-0"), world.sync(), world.events()), (Value::Null, Vec::new(), Vec::new()));
}

#[test]
fn zones_get_endpoints_by_their_share_of_the_cpus() {
    let zones = [("a", 4), ("b", 4), ("c", 4)];
    let mut even = auto(world(&["a", "b", "c", "a", "b", "c"], &zones));
    even.sync();
    assert_eq!(hinted(&even), counts(&[("a", 2), ("b", 2), ("c", 2)]));
    let reason = "TopologyAwareHintsEnabled Topology Aware Hints has been enabled, addressType: IPv4";
    assert_eq!((even.events(), even.sync()), (vec![reason.to_owned()], Vec::new()));
    // All pods are in one zone: the others get some of its endpoints.
    let mut uneven = auto(world(&["a"; 6], &zones));
    uneven.sync();
    assert_eq!((hinted(&uneven), uneven.sync()), (counts(&[("a", 2), ("b", 2), ("c", 2)]), Vec::new()));
    let mut large = auto(world(&["a", "a", "a", "b", "b", "b"], &[("a", 16), ("b", 8)]));
    large.sync();
    assert_eq!(hinted(&large), counts(&[("a", 4), ("b", 2)]));
}

#[test]
fn hints_go_where_they_cannot_be_given() {
    let zones = [("a", 4), ("b", 4)];
    let disabled = |words: &str| vec![format!("TopologyAwareHintsDisabled {words}, addressType: IPv4")];
    let mut few = auto(world(&["a"], &zones));
    few.sync();
    assert_eq!(few.events(), disabled("Insufficient number of endpoints (1 endpoints, 2 zones)"));
    few.merge_pod("web-0", json!({"status": {"conditions": []}}));
    few.sync();
    assert_eq!(few.events(), disabled("Insufficient number of endpoints (0 endpoints, 2 zones)"));
    few.sync();
    assert_eq!(few.events(), [""; 0], "said once");

    let mut world = auto(world(&["a", "b", "a", "b"], &zones));
    world.sync();
    assert_eq!((hinted(&world).len(), world.events().len()), (2, 1));
    world.merge_node("node-b", json!({"status": {"allocatable": {"cpu": "0"}}}));
    assert_eq!(world.sync(), ["update 4"]);
    let words = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
    assert_eq!((hinted(&world).len(), world.events()), (0, disabled(words)));
    world.merge_node("node-b", json!({"status": {"allocatable": {"cpu": "4"}}}));
    world.sync();
    assert_eq!((hinted(&world).len(), world.events().len()), (2, 1));
    world.service["metadata"]["annotations"] = json!({});
    assert_eq!(world.sync(), ["update 4"]);
    let words = "Topology Aware Hints has been disabled";
    assert_eq!((hinted(&world).len(), world.events()), (0, disabled(words)));

    let mut small = auto(self::world(&["a", "b", "c"], &[("a", 1), ("b", 1), ("c", 100)]));
    small.sync();
    let words = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
                 (3 endpoints, 3 zones)";
    assert_eq!((hinted(&small).len(), small.events()), (0, disabled(words)));
}

#[test]
fn a_ready_endpoint_without_a_zone_ends_the_hints_of_all() {
    let mut world = auto(world(&["a", "b", "a"], &[("a", 4), ("b", 4)]));
    world.sync();
    world.events();
    world.node("bare", "", 4);
    world.merge_node("bare", json!({"status": {"conditions": []}}));
    world.pod("web-9", json!({"spec": {"nodeName": "bare"}}));
    world.merge_pod("web-9", ready());
    assert_eq!(world.sync(), ["update 4"]);
    let words = "One or more endpoints do not have a zone specified, addressType: IPv4";
    let event = format!("TopologyAwareHintsDisabled {words}");
    assert_eq!((hinted(&world).len(), world.events()), (0, vec![event]));
}

#[test]
fn a_slice_keeps_hints_that_fit_and_loses_those_that_do_not() {
    let zones = [("a", 4), ("b", 4)];
    let mut world = auto(world(&["a", "a", "b", "b"], &zones));
    world.limits.endpoints_per_slice = 2;
    assert_eq!(world.sync(), ["create IPv4 2", "create IPv4 2"]);
    for (name, node) in [("web-4", "node-a"), ("web-5", "node-b")] {
        world.pod(name, ready());
        world.merge_pod(name, json!({"spec": {"nodeName": node}}));
    }
    assert_eq!(world.sync(), ["create IPv4 2"], "the others have hints already");
    // A zone that is no longer there.
    world.merge_node("node-b", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "c"}}}));
    world.sync();
    assert_eq!(
        (hinted(&world).keys().cloned().collect::<Vec<_>>(), world.sync()),
        (vec!["a".into(), "c".into()], Vec::new())
    );
}

#[test]
fn nodes_wake_services_whose_zones_have_too_few_endpoints() {
    let mut world = auto(world(&["a", "a", "b", "b"], &[("a", 4), ("b", 4)]));
    world.sync();
    let slices = world.decoded_slices();
    let shares = |a: u32, b: u32| {
        let world = self::world(&[], &[("a", a), ("b", b)]);
        world.shares()
    };
    let concerns = |a: u32, b: u32| topology_is_concerned(&slices, shares(a, b).as_deref());
    assert_eq!([concerns(4, 4), concerns(5, 4), concerns(12, 4)], [false, false, true]);
    assert!(topology_is_concerned(&slices, None), "its hints must go");
    assert!(!topology_is_concerned(&[], None));
    assert!(topology_is_concerned(&[], shares(4, 4).as_deref()), "hints have become possible");
    assert_eq!(CpuShares::of(&[]), None);
}

#[test]
fn a_heartbeat_of_a_node_means_nothing() {
    let decode = |node: Value| {
        use crate::model::Record as _;
        crate::model::Node::decode(&node.to_string(), &mut crate::model::Interner::default()).unwrap()
    };
    let node = |version: u32, zone: &str, ready: &str| {
        decode(json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": version.to_string(),
                                   "labels": {"topology.kubernetes.io/zone": zone}},
                      "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
    };
    let change = |old: Option<&_>, new: Option<&_>| {
        let NodeChange { changes_shares, changes_endpoints } = node_change(old, new);
        (changes_shares, changes_endpoints)
    };
    let first = node(1, "a", "True");
    assert_eq!(change(Some(&first), Some(&node(2, "a", "True"))), (false, false));
    assert_eq!(change(Some(&first), Some(&node(2, "a", "False"))), (true, false));
    assert_eq!(change(Some(&first), Some(&node(2, "b", "True"))), (true, true));
    assert_eq!((change(None, Some(&first)), change(Some(&first), None)), ((true, true), (true, false)));
}
