//! The slices of Services in a toy cluster, in which each plan is carried out.

mod hints;
mod packing;
pub(crate) mod world;

use serde_json::{Value, json};

use super::{Affected, affected, services_of_slice};
use crate::model::endpointslice::ENDPOINT_SLICE_CONTROLLER;
use crate::model::{Interner, Pod, Record};
use world::{World, endpoint, ready};

#[test]
fn a_service_without_pods_has_a_placeholder_for_each_family() {
    let mut world = World::new();
    world.service["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
    assert_eq!(world.sync(), ["create IPv4 0", "create IPv6 0"]);
    assert_eq!(world.sync(), [""; 0]);
    for slice in world.slices.values() {
        assert_eq!((&slice["endpoints"], &slice["ports"]), (&json!([]), &json!([])));
    }
}

#[test]
fn a_slice_has_all_that_proxies_read() {
    let mut world = World::new();
    world.service["metadata"]["labels"] = json!({"team": "a", "kubernetes.io/service-name": "other"});
    world.service["spec"]["ports"][0]["appProtocol"] = json!("h2c");
    world.pod("web-1", ready());
    assert_eq!(world.sync(), ["create IPv4 1"]);
    let slice = world.only_slice();
    assert!(slice["metadata"]["name"].as_str().unwrap().starts_with("web-"));
    assert_eq!(slice["metadata"]["generateName"], "web-");
    let labels = json!({
        "team": "a",
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    assert_eq!(slice["metadata"]["labels"], labels);
    let owner = json!([{"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "u-web",
                        "controller": true, "blockOwnerDeletion": true}]);
    assert_eq!(slice["metadata"]["ownerReferences"], owner);
    assert_eq!(slice["addressType"], "IPv4");
    let ports = json!([{"name": "http", "protocol": "TCP", "port": 8080, "appProtocol": "h2c"}]);
    assert_eq!(slice["ports"], ports);
    let endpoint = json!({
        "addresses": ["10.0.0.1"],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "u-web-1"},
        "nodeName": "n1",
        "zone": "z1",
    });
    assert_eq!(slice["endpoints"], json!([endpoint]));
    assert_eq!(world.sync(), [""; 0]);
}

#[test]
fn a_headless_service_has_its_label_and_the_hostnames_of_its_pods() {
    let mut world = World::new();
    world.service["spec"]["clusterIP"] = json!("None");
    world.service["spec"]["ports"] = json!(null);
    let names = |subdomain| json!({"spec": {"hostname": "db-0", "subdomain": subdomain}});
    world.pod("web-1", ready());
    world.merge_pod("web-1", names("web"));
    world.pod("web-2", ready());
    world.merge_pod("web-2", names("other"));
    assert_eq!(world.sync(), ["create IPv4 2"]);
    let slice = world.only_slice();
    assert_eq!(slice["metadata"]["labels"]["service.kubernetes.io/headless"], "");
    assert_eq!((&slice["ports"], &slice["endpoints"][0]["hostname"]), (&json!([]), &json!("db-0")));
    assert_eq!(slice["endpoints"][1].get("hostname"), None);
}

#[test]
fn the_conditions_of_an_endpoint_follow_its_pod() {
    let mut world = World::new();
    world.pod("web-1", ready());
    world.sync();
    let conditions = |world: &World| {
        let slice = world.only_slice();
        let conditions = &endpoint(&slice, "web-1")["conditions"];
        ["ready", "serving", "terminating"].map(|name| conditions[name].as_bool().unwrap())
    };
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    world.merge_pod("web-1", unready.clone());
    assert_eq!((world.sync().len(), conditions(&world)), (1, [false, false, false]));
    world.service["spec"]["publishNotReadyAddresses"] = json!(true);
    assert_eq!((world.sync().len(), conditions(&world)), (1, [true, false, false]));
    world.service["spec"]["publishNotReadyAddresses"] = json!(false);
    world.merge_pod("web-1", ready());
    world.merge_pod("web-1", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}}));
    assert_eq!((world.sync().len(), conditions(&world)), (1, [false, true, true]));
    // The end of a pod ends its endpoint: the last one leaves a placeholder, in the same slice.
    world.merge_pod("web-1", json!({"status": {"phase": "Failed"}}));
    assert_eq!(world.sync(), ["update 0"]);
    assert_eq!((&world.only_slice()["endpoints"], &world.only_slice()["ports"]), (&json!([]), &json!([])));
}

#[test]
fn a_pod_with_two_addresses_is_in_the_slices_of_both_families() {
    let mut world = World::new();
    world.service["spec"]["ipFamilies"] = json!(["IPv6", "IPv4"]);
    world.pod("web-1", ready());
    world.merge_pod("web-1", json!({"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "FD00::0:1"}]}}));
    world.pod("web-2", ready());
    assert_eq!(world.sync(), ["create IPv4 2", "create IPv6 1"]);
    let ipv6 = world.slices.values().find(|slice| slice["addressType"] == "IPv6").unwrap();
    assert_eq!(ipv6["endpoints"][0]["addresses"], json!(["fd00::1"]));
    // A family that the Service loses: its slices go last.
    world.service["spec"]["ipFamilies"] = json!(["IPv4"]);
    assert_eq!(world.sync(), ["delete IPv6"]);
}

#[test]
fn pods_whose_ports_differ_are_in_slices_of_their_own() {
    let mut world = World::new();
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"},
                       {"name": "admin", "port": 81, "protocol": "TCP", "targetPort": "admin"}]);
    world.service["spec"]["ports"] = ports;
    let container = |ports: Value| json!({"spec": {"containers": [{"name": "c", "ports": ports}]}});
    let port = |name: &str, number: i32| json!({"name": name, "containerPort": number, "protocol": "TCP"});
    for (name, ports) in [
        ("web-1", json!([port("web", 8080), port("admin", 9000)])),
        ("web-2", json!([port("admin", 9000), port("web", 8080)])),
        ("web-3", json!([port("web", 8081), port("admin", 9000)])),
        ("web-4", json!([port("web", 8080)])),
        ("web-5", json!([{"name": "web", "containerPort": 8080, "protocol": "UDP"}])),
    ] {
        world.pod(name, ready());
        world.merge_pod(name, container(ports));
    }
    assert_eq!(world.sync().len(), 4);
    assert_eq!(world.sync(), [""; 0]);
    let mut found: Vec<(usize, String)> = Vec::new();
    for slice in world.slices.values() {
        let names =
            slice["endpoints"].as_array().unwrap().iter().map(|it| it["targetRef"]["name"].to_string());
        found.push((slice["ports"].as_array().unwrap().len(), names.collect::<Vec<_>>().join(" ")));
    }
    found.sort();
    let expected = [(0, r#""web-5""#), (1, r#""web-4""#), (2, r#""web-1" "web-2""#), (2, r#""web-3""#)];
    assert_eq!(found, expected.map(|(ports, names)| (ports, names.to_owned())));
}

/// kubernetes#107927: upstream fails the sync of the whole Service, with an event each time.
#[test]
fn a_pod_on_an_unknown_node_is_left_out_and_the_rest_is_written() {
    let mut world = World::new();
    world.pod("web-1", ready());
    world.pod("web-2", ready());
    world.merge_pod("web-2", json!({"spec": {"nodeName": "gone"}}));
    assert_eq!(world.sync(), ["create IPv4 1"]);
    let message = "Error updating Endpoint Slices for Service shop/web: skipping Pod web-2 for Service shop/web: \
                   Node gone Not Found";
    assert_eq!(world.events(), [format!("FailedToUpdateEndpointSlices {message}")]);
    assert_eq!((world.sync(), world.events()), (Vec::new(), Vec::new()), "it is reported once");
    world.service["spec"]["publishNotReadyAddresses"] = json!(true);
    assert_eq!(world.sync(), ["update 2"]);
    assert_eq!(endpoint(&world.only_slice(), "web-2").get("zone"), None);
    world.service["spec"]["publishNotReadyAddresses"] = json!(false);
    assert_eq!(world.sync(), ["update 1"]);
    world.node("gone", "z2", 4);
    assert_eq!((world.sync(), world.events().len()), (vec!["update 2".to_owned()], 1));
    assert_eq!(endpoint(&world.only_slice(), "web-2")["zone"], "z2");
}

/// kubernetes#118376, kubernetes#120775: upstream leaves the slices, which point to pods of the past.
#[test]
fn slices_of_a_service_that_lost_its_selector_go_where_that_is_wanted() {
    let without: [fn(&mut Value); 2] = [
        |service| service["spec"]["selector"] = Value::Null,
        |service| service["spec"]["type"] = json!("ExternalName"),
    ];
    for change in without {
        let mut world = World::new();
        world.pod("web-1", ready());
        world.sync();
        world.by_hand("web-by-hand", json!({"kubernetes.io/service-name": "web"}));
        change(&mut world.service);
        assert_eq!(world.sync(), [""; 0]);
        world.limits.deletes_left_over = true;
        assert_eq!(world.sync(), ["delete IPv4"]);
        assert!(world.slices.contains_key("web-by-hand"), "those of other writers stay");
    }
}

/// By reading: upstream compares all labels but its own.
#[test]
fn labels_that_others_change_are_set_again() {
    let mut world = World::new();
    world.service["spec"]["clusterIP"] = json!("None");
    world.service["metadata"]["labels"] = json!({"team": "a"});
    world.pod("web-1", ready());
    world.sync();
    let good = world.only_slice()["metadata"]["labels"].clone();
    for (label, value) in
        [("service.kubernetes.io/headless", Value::Null), ("team", json!("b")), ("more", json!("x"))]
    {
        let name = world.only_slice()["metadata"]["name"].as_str().unwrap().to_owned();
        world.merge_slice(&name, json!({"metadata": {"labels": {label: value}}}));
        assert_eq!(world.sync(), ["update labels"]);
        assert_eq!(world.only_slice()["metadata"]["labels"], good, "{label}");
    }
    world.service["metadata"]["labels"] = json!({});
    assert_eq!(world.sync(), ["update labels"]);
    assert_eq!(world.only_slice()["metadata"]["labels"].get("team"), None);
}

/// kubernetes#85353.
#[test]
fn endpoints_that_others_change_are_set_again() {
    let mut world = World::new();
    world.pod("web-1", ready());
    world.pod("web-2", ready());
    world.sync();
    let good = world.only_slice();
    let name = good["metadata"]["name"].as_str().unwrap().to_owned();
    let edits: [fn(&mut Value); 7] = [
        |slice| slice["endpoints"][0]["conditions"] = json!({"ready": false}),
        |slice| slice["endpoints"][0]["zone"] = json!("mars"),
        |slice| slice["endpoints"][0]["addresses"] = json!(["10.9.9.9"]),
        |slice| slice["endpoints"][0]["targetRef"]["uid"] = json!("u-forged"),
        |slice| slice["endpoints"][0]["hints"] = json!({"forZones": [{"name": "z9"}]}),
        |slice| slice["endpoints"] = Value::Null,
        |slice| {
            let first = slice["endpoints"][0].clone();
            slice["endpoints"].as_array_mut().unwrap().push(first);
        },
    ];
    for (at, edit) in edits.into_iter().enumerate() {
        edit(world.slices.get_mut(&name).unwrap());
        assert_eq!(world.sync(), ["update 2"], "edit {at}");
        let mut names: Vec<&Value> = Vec::new();
        let slice = world.only_slice();
        for endpoint in slice["endpoints"].as_array().unwrap() {
            names.push(&endpoint["targetRef"]["name"]);
            assert!(good["endpoints"].as_array().unwrap().contains(endpoint), "edit {at}: {endpoint}");
        }
        assert_eq!(names.len(), 2, "edit {at}");
    }
    // Other ports: the slice is of another group by now, and is used again.
    world.slices.get_mut(&name).unwrap()["ports"][0]["port"] = json!(1);
    assert_eq!(world.sync(), ["update 2"]);
    assert_eq!(world.only_slice()["ports"], good["ports"]);
}

/// kubernetes#92928, kubernetes#93520: the name follows from what a slice is for.
#[test]
fn a_creation_is_repeated_under_the_same_name() {
    let mut world = World::new();
    world.pod("web-1", ready());
    world.limits.endpoints_per_slice = 1;
    let names = |world: &World| {
        let plan = world.plan();
        plan.by_type.iter().flat_map(|it| it.creates.iter().map(|it| it.name.clone())).collect::<Vec<_>>()
    };
    let first = names(&world);
    assert_eq!((first.len(), names(&world)), (1, first.clone()));
    world.sync();
    world.pod("web-2", ready());
    let second = names(&world);
    assert!(second.len() == 1 && second != first, "{second:?}");
    world.service["metadata"]["uid"] = json!("u-another");
    assert!(names(&world).iter().all(|name| !first.contains(name)), "of another Service of that name");
}

#[test]
fn slices_of_an_earlier_service_of_the_name_go_and_those_of_others_stay() {
    let mut world = World::new();
    world.pod("web-1", ready());
    world.sync();
    let old = world.only_slice()["metadata"]["name"].as_str().unwrap().to_owned();
    world.by_hand("web-by-hand", json!({"kubernetes.io/service-name": "web"}));
    world.service["metadata"]["uid"] = json!("u-new");
    assert_eq!(world.sync(), ["create IPv4 1", "delete IPv4"]);
    assert!(!world.slices.contains_key(&old) && world.slices.contains_key("web-by-hand"));
    assert_eq!(world.sync(), [""; 0]);
}

#[test]
fn a_service_that_is_being_deleted_gets_no_new_slice() {
    let mut world = World::new();
    world.pod("web-1", ready());
    world.sync();
    world.limits.endpoints_per_slice = 1;
    world.pod("web-2", ready());
    world.service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(world.sync(), [""; 0]);
}

#[test]
fn a_write_is_annotated_with_the_earliest_change_since_the_last_sync() {
    let mut world = World::new();
    let at = |time: &str| json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}]}});
    let annotation = |world: &World| {
        let annotations = &world.only_slice()["metadata"]["annotations"];
        annotations["endpoints.kubernetes.io/last-change-trigger-time"].clone()
    };
    world.pod("web-1", ready());
    world.merge_pod("web-1", at("2026-01-01T01:00:00Z"));
    world.sync();
    assert_eq!(annotation(&world), "2026-01-01T00:00:00Z", "that of the Service, at first");
    for (name, time) in [("web-2", "2026-01-01T03:00:00Z"), ("web-3", "2026-01-01T02:00:00Z")] {
        world.pod(name, ready());
        world.merge_pod(name, at(time));
    }
    world.sync();
    assert_eq!(annotation(&world), "2026-01-01T02:00:00Z");
    // A pod that became unready counts with that time.
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False",
                                                    "lastTransitionTime": "2026-01-01T04:00:00Z"}]}});
    world.merge_pod("web-2", unready);
    world.sync();
    assert_eq!(annotation(&world), "2026-01-01T04:00:00Z");
    world.pods.remove("web-3");
    assert_eq!((world.sync(), annotation(&world)), (vec!["update 2".to_owned()], Value::Null));
}

fn decoded(pod: &Value) -> Pod {
    Pod::decode(&pod.to_string(), &mut Interner::default()).unwrap()
}

fn merged(pod: &Value, patch: Value) -> Pod {
    let mut pod = pod.clone();
    world::merge(&mut pod, &patch);
    decoded(&pod)
}

#[test]
fn services_are_woken_by_what_their_endpoints_depend_on() {
    let mut world = World::new();
    world.pod("web-1", ready());
    let pod = &world.pods["web-1"];
    let before = decoded(pod);
    let check = |patch: Value, expected: Affected| {
        let after = merged(pod, patch.clone());
        assert_eq!(affected(Some(&before), Some(&after)), expected, "{patch}");
    };
    check(json!({"metadata": {"annotations": {"a": "b"}}, "status": {"reason": "x"}}), Affected::None);
    check(json!({"metadata": {"labels": {"b": "c"}}}), Affected::Changed);
    check(json!({"metadata": {"labels": {"b": "c"}}, "status": {"conditions": []}}), Affected::All);
    check(json!({"status": {"podIPs": [{"ip": "10.0.0.2"}]}}), Affected::All);
    check(json!({"spec": {"hostname": "h"}}), Affected::All);
    check(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), Affected::All);
    // By reading: upstream overlooks the end of a pod that was not ready.
    let unready = merged(pod, json!({"status": {"conditions": []}}));
    let failed = merged(pod, json!({"status": {"conditions": [], "phase": "Failed"}}));
    assert_eq!(affected(Some(&unready), Some(&failed)), Affected::All);
    // By reading: upstream takes each write to a pod that is being deleted for a change.
    let deleting = |time: &str| merged(pod, json!({"metadata": {"deletionTimestamp": time}}));
    let (first, second) = (deleting("2026-01-01T00:00:00Z"), deleting("2026-01-01T00:00:30Z"));
    assert_eq!(affected(Some(&first), Some(&second)), Affected::None);
    let pending = merged(pod, json!({"status": {"podIP": null, "podIPs": null}}));
    assert_eq!(affected(None, Some(&pending)), Affected::None);
    assert_eq!(affected(Some(&pending), Some(&before)), Affected::All);
    assert_eq!(
        (affected(None, Some(&before)), affected(Some(&failed), None)),
        (Affected::All, Affected::All)
    );
}

#[test]
fn services_are_woken_by_changes_of_their_slices_that_others_make() {
    let mut world = World::new();
    world.pod("web-1", ready());
    world.sync();
    let slice = world.only_slice();
    let decode = |slice: &Value| {
        crate::model::EndpointSlice::decode(&slice.to_string(), &mut Interner::default()).unwrap()
    };
    let with = |label: &str, value: &str| {
        let mut slice = slice.clone();
        slice["metadata"]["labels"][label] = json!(value);
        decode(&slice)
    };
    let ours = decode(&slice);
    let moved = with("kubernetes.io/service-name", "other");
    let given = with("endpointslice.kubernetes.io/managed-by", "example.com");
    let woken = |old, new, expected| {
        services_of_slice(ENDPOINT_SLICE_CONTROLLER, old, new, expected).collect::<Vec<_>>()
    };
    assert_eq!(woken(None, Some(&ours), false), ["web"]);
    assert_eq!(woken(Some(&ours), Some(&ours), false), ["web"]);
    assert_eq!(woken(Some(&ours), Some(&ours), true), [""; 0]);
    assert_eq!(woken(Some(&ours), None, false), ["web"]);
    assert_eq!(woken(Some(&ours), None, true), [""; 0]);
    assert_eq!(woken(Some(&ours), Some(&moved), true), ["other", "web"]);
    assert_eq!(woken(Some(&ours), Some(&given), true), ["web"]);
    assert_eq!(woken(Some(&given), Some(&ours), true), ["web"]);
    assert_eq!(woken(Some(&given), Some(&given), false), [""; 0]);
    assert_eq!(woken(None, Some(&given), false), [""; 0]);
    assert_eq!(woken(Some(&given), None, false), [""; 0]);
}
