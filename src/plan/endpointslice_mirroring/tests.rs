//! The slices that mirror Endpoints in a toy cluster, in which each plan is carried out.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Observed, is_concerned, plan};
use crate::model::endpoints::FullEndpoints;
use crate::model::endpointslice::ENDPOINT_SLICE_MIRRORING_CONTROLLER;
use crate::model::{EndpointSlice, Endpoints, Service};
use crate::plan::endpointslice::Memory;
use crate::plan::endpointslice::tests::world::{decode, merge};

struct World {
    endpoints: Value,
    service: Option<Value>,
    slices: BTreeMap<String, Value>,
    memory: Memory,
    most: usize,
    version: u64,
    events: Vec<String>,
}

impl World {
    /// Endpoints `db` with these subsets, of a Service without selector.
    fn new(subsets: Value) -> Self {
        let endpoints = json!({
            "metadata": {"name": "db", "namespace": "shop", "uid": "u-db", "resourceVersion": "1",
                         "labels": {"team": "a"}},
            "subsets": subsets,
        });
        World {
            endpoints,
            service: Some(
                json!({"metadata": {"name": "db", "namespace": "shop", "uid": "u-s", "resourceVersion": "1"},
                                 "spec": {}}),
            ),
            slices: BTreeMap::new(),
            memory: Memory::default(),
            most: 1000,
            version: 10,
            events: Vec::new(),
        }
    }

    /// Plans, and carries out the plan. The writes in words: `create IPv4 3`, `update 3`, `update metadata`, `delete IPv4`.
    fn sync(&mut self) -> Vec<String> {
        let slices = self.slices.values().map(decode::<EndpointSlice>);
        let plan = plan(&Observed {
            endpoints: decode::<Endpoints>(&self.endpoints),
            service: self.service.as_ref().map(decode::<Service>),
            slices: slices.filter(|it| it.is_managed_by(ENDPOINT_SLICE_MIRRORING_CONTROLLER)).collect(),
            taken: self.slices.keys().map(|name| name.as_str().into()).collect(),
            memory: self.memory.clone(),
            most: self.most,
        });
        let mut words = Vec::new();
        for writes in &plan.by_type {
            for create in &writes.creates {
                let mut slice = create.body.clone();
                self.version += 1;
                slice["metadata"]["resourceVersion"] = json!(self.version.to_string());
                slice["metadata"]["uid"] = json!(format!("u-{}", self.version));
                let count = slice["endpoints"].as_array().unwrap().len();
                words.push(format!("create {} {count}", slice["addressType"].as_str().unwrap()));
                assert!(self.slices.insert(create.name.clone(), slice).is_none());
            }
            for update in &writes.updates {
                let slice = self.slices.get_mut(&*update.slice.meta.key.name).unwrap();
                for field in ["uid", "resourceVersion"] {
                    assert_eq!(update.body["metadata"][field], slice["metadata"][field]);
                }
                merge(slice, &update.body);
                self.version += 1;
                slice["metadata"]["resourceVersion"] = json!(self.version.to_string());
                let count = update.body["endpoints"].as_array().map(|all| all.len().to_string());
                words.push(format!("update {}", count.unwrap_or_else(|| "metadata".into())));
            }
        }
        for slice in plan.by_type.iter().flat_map(|writes| &writes.deletes).chain(&plan.left_over) {
            words.push(format!("delete {}", slice.address_type.as_str()));
            self.slices.remove(&*slice.meta.key.name).unwrap();
        }
        self.events.extend(plan.events.iter().map(|event| format!("{} {}", event.reason, event.message)));
        self.memory = plan.memory;
        words
    }

    #[track_caller]
    fn only_slice(&self) -> &Value {
        assert_eq!(self.slices.len(), 1, "{:?}", self.slices);
        self.slices.values().next().unwrap()
    }

    fn merge_slice(&mut self, patch: Value) {
        let slice = self.slices.values_mut().next().unwrap();
        merge(slice, &patch);
    }

    fn merge_endpoints(&mut self, patch: Value) {
        merge(&mut self.endpoints, &patch);
    }
}

fn addresses(ips: &[&str]) -> Value {
    ips.iter().map(|ip| json!({"ip": ip})).collect()
}

fn port(name: &str, number: i32) -> Value {
    json!({"name": name, "port": number, "protocol": "TCP"})
}

#[test]
fn a_slice_has_what_its_endpoints_have() {
    let mut world = World::new(json!([{
        "addresses": [{"ip": "010.0.0.1", "hostname": "one", "nodeName": "n1", "targetRef":
            {"kind": "Pod", "namespace": "shop", "name": "a", "uid": "u-a", "resourceVersion": "7"}}],
        "notReadyAddresses": [{"ip": "10.0.0.2"}],
        "ports": [{"name": "sql", "port": 5432, "protocol": "TCP", "appProtocol": "postgres"}],
    }]));
    world.merge_endpoints(json!({"metadata": {"annotations": {
        "note": "x",
        "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }}}));
    assert_eq!(world.sync(), ["create IPv4 2"]);
    let slice = world.only_slice();
    let labels = json!({
        "team": "a",
        "kubernetes.io/service-name": "db",
        "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
    });
    assert_eq!(
        (&slice["metadata"]["labels"], &slice["metadata"]["annotations"]),
        (&labels, &json!({"note": "x"}))
    );
    let owner = json!([{"apiVersion": "v1", "kind": "Endpoints", "name": "db", "uid": "u-db",
                        "controller": true, "blockOwnerDeletion": true}]);
    assert_eq!(slice["metadata"]["ownerReferences"], owner);
    assert_eq!(
        slice["ports"],
        json!([{"name": "sql", "port": 5432, "protocol": "TCP", "appProtocol": "postgres"}])
    );
    let endpoints = json!([
        {"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "hostname": "one", "nodeName": "n1",
         "targetRef": {"kind": "Pod", "namespace": "shop", "name": "a", "uid": "u-a"}},
        {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
    ]);
    assert_eq!(slice["endpoints"], endpoints);
    assert_eq!(world.sync(), [""; 0]);
}

#[test]
fn a_slice_has_all_of_the_object_behind_an_address() {
    let target = json!({"apiVersion": "example.com/v1", "kind": "Database", "namespace": "shop", "name": "a",
                        "uid": "u-a", "fieldPath": "spec.primary"});
    let mut world = World::new(
        json!([{"addresses": [{"ip": "10.0.0.1", "targetRef": target}], "ports": [port("a", 1)]}]),
    );
    world.sync();
    assert_eq!(world.only_slice()["endpoints"][0]["targetRef"], target);
    assert_eq!(world.sync(), [""; 0]);
    world.merge_slice(json!({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true},
        "targetRef": {"kind": "Database", "namespace": "shop", "name": "a", "uid": "u-a"}}]}));
    assert_eq!(world.sync(), ["update 1"], "written before these fields were");
}

#[test]
fn each_family_and_each_list_of_ports_has_one_slice() {
    let mut world = World::new(json!([
        {"addresses": addresses(&["10.0.0.1", "fd00::1"]), "ports": [port("a", 1)]},
        {"addresses": addresses(&["10.0.0.2"]), "ports": [port("b", 2), port("c", 3)]},
    ]));
    assert_eq!(world.sync(), ["create IPv4 1", "create IPv4 1", "create IPv6 1"]);
    assert_eq!(world.sync(), [""; 0]);
    // Ports with the same addresses share a slice, however they were written.
    world.merge_endpoints(json!({"subsets": [
        {"addresses": addresses(&["10.0.0.1"]), "ports": [port("a", 1)]},
        {"addresses": addresses(&["10.0.0.1"]), "ports": [port("b", 2)]},
    ]}));
    assert_eq!(world.sync(), ["update 1", "delete IPv4", "delete IPv6"]);
    assert_eq!(world.only_slice()["ports"], json!([port("a", 1), port("b", 2)]));
    world.merge_endpoints(json!({"subsets": null}));
    assert_eq!(world.sync(), ["delete IPv4"]);
}

#[test]
fn slices_follow_their_endpoints_and_the_order_means_nothing() {
    let mut world =
        World::new(json!([{"addresses": addresses(&["10.0.0.1", "10.0.0.2"]), "ports": [port("a", 1)]}]));
    world.sync();
    world.slices.values_mut().next().unwrap()["endpoints"].as_array_mut().unwrap().reverse();
    assert_eq!(world.sync(), [""; 0], "a slice of upstream, whose order is random");
    world.merge_endpoints(json!({"subsets": [{"addresses": addresses(&["10.0.0.2", "10.0.0.3"]),
        "notReadyAddresses": addresses(&["10.0.0.2"]), "ports": [port("a", 1)]}]}));
    assert_eq!(world.sync(), ["update 2"]);
    let slice = world.only_slice();
    let ready = slice["endpoints"].as_array().unwrap().iter().map(|it| it["conditions"]["ready"].as_bool());
    assert_eq!(ready.collect::<Vec<_>>(), [Some(true), Some(false)], "not ready wins");
    let counts = world.memory.counts;
    assert_eq!((counts.added, counts.updated, counts.removed), (1, 1, 1));
}

#[test]
fn metadata_that_differ_are_written_and_edits_undone() {
    let mut world = World::new(json!([{"addresses": addresses(&["10.0.0.1"]), "ports": [port("a", 1)]}]));
    world.sync();
    world.merge_endpoints(json!({"metadata": {"labels": {"team": "b"}, "annotations": {"note": "y"}}}));
    assert_eq!(world.sync(), ["update metadata"]);
    let before = world.only_slice().clone();
    for patch in [
        json!({"metadata": {"annotations": {"note": "z", "more": "x"}}}),
        json!({"metadata": {"labels": {"team": null}}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Endpoints", "name": "db", "uid": "u-old",
                                                 "controller": true}]}}),
        json!({"endpoints": []}),
    ] {
        world.merge_slice(patch.clone());
        assert_eq!(world.sync().len(), 1, "{patch}");
        let after = world.only_slice();
        for field in ["labels", "annotations", "ownerReferences"] {
            assert_eq!(after["metadata"][field], before["metadata"][field], "{patch}");
        }
        assert_eq!(after["endpoints"], before["endpoints"]);
        assert_eq!(world.sync(), [""; 0]);
    }
}

#[test]
fn more_slices_of_one_kind_are_deleted_and_others_left_alone() {
    let mut world = World::new(json!([{"addresses": addresses(&["10.0.0.1"]), "ports": [port("a", 1)]}]));
    world.sync();
    let (name, slice) = world.slices.pop_first().unwrap();
    for more in ["db-a", "db-b"] {
        let mut copy = slice.clone();
        copy["metadata"]["name"] = json!(more);
        copy["endpoints"] = json!([]);
        world.slices.insert(more.into(), copy);
    }
    let mut other = slice.clone();
    other["metadata"]["name"] = json!("by-hand");
    other["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] = json!("example.com");
    world.slices.insert("by-hand".into(), other);
    world.slices.insert(name.clone(), slice);
    assert_eq!(world.sync(), ["delete IPv4", "delete IPv4"], "the one that is right stays");
    let left: Vec<&str> = world.slices.keys().map(String::as_str).collect();
    assert_eq!(left, ["by-hand", name.as_str()]);
}

#[test]
fn only_endpoints_of_services_without_selector_are_mirrored() {
    let subsets = json!([{"addresses": addresses(&["10.0.0.1"]), "ports": [port("a", 1)]}]);
    for change in [
        |world: &mut World| world.service = None,
        |world: &mut World| {
            merge(world.service.as_mut().unwrap(), &json!({"spec": {"selector": {"a": "b"}}}))
        },
        |world: &mut World| {
            world.merge_endpoints(
                json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}),
            )
        },
        |world: &mut World| {
            world.merge_endpoints(
                json!({"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": ""}}}),
            )
        },
    ] {
        let mut world = World::new(subsets.clone());
        assert_eq!(world.sync(), ["create IPv4 1"]);
        change(&mut world);
        assert_eq!(world.sync(), ["delete IPv4"]);
        assert_eq!(world.sync(), [""; 0]);
    }
    let mut world = World::new(subsets);
    world.merge_endpoints(
        json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "false"}}}),
    );
    assert_eq!(world.sync(), ["create IPv4 1"]);
}

#[test]
fn without_the_content_nothing_is_planned() {
    let mut world = World::new(json!([{"addresses": addresses(&["10.0.0.1"]), "ports": [port("a", 1)]}]));
    world.sync();
    world.merge_endpoints(json!({"subsets": [], "metadata": {"labels":
        {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}}}));
    assert_eq!(world.sync(), [""; 0], "the cache holds a hash of it");
    let full = decode::<FullEndpoints>(&world.endpoints);
    let observed = Observed {
        endpoints: Arc::new(full.0.clone()),
        service: world.service.as_ref().map(decode::<Service>),
        slices: world.slices.values().map(decode::<EndpointSlice>).collect(),
        taken: Default::default(),
        memory: Memory::default(),
        most: 1000,
    };
    assert_eq!(plan(&observed).len(), 1);
}

#[test]
fn endpoints_that_are_deleted_get_no_new_slice() {
    let mut world = World::new(json!([{"addresses": addresses(&["10.0.0.1"]), "ports": [port("a", 1)]}]));
    world.merge_endpoints(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(world.sync(), [""; 0]);
}

#[test]
fn addresses_that_are_left_out_are_events_once() {
    let mut world = World::new(json!([{"addresses": addresses(&["10.0.0.1", "db.example.com", "10.0.0.2"]),
        "notReadyAddresses": addresses(&["10.0.0.3", "10.0.0.4"]), "ports": [port("a", 1)]}]));
    world.most = 3;
    assert_eq!(world.sync(), ["create IPv4 3"]);
    let ready = world.only_slice()["endpoints"].as_array().unwrap().iter();
    assert_eq!(ready.filter(|it| it["conditions"]["ready"] == true).count(), 2, "ready ones come first");
    let expected = [
        "InvalidIPAddress Skipped 1 invalid IP addresses when mirroring to EndpointSlices",
        "TooManyAddressesToMirror A max of 3 addresses can be mirrored to EndpointSlices per Endpoints subset. 2 addresses \
         were skipped",
    ];
    assert_eq!(world.events, expected);
    world.merge_endpoints(json!({"metadata": {"labels": {"team": "c"}}}));
    world.sync();
    assert_eq!(world.events.len(), 2);
    world.most = 5;
    world.sync();
    assert_eq!(world.events.len(), 3, "{:?}", world.events);
}

#[test]
fn addresses_that_no_reader_can_tell_apart_are_one() {
    let mut world = World::new(json!([{"addresses": addresses(&["10.0.0.1", "10.0.0.2"]),
        "notReadyAddresses": addresses(&["010.0.0.1"]), "ports": [port("a", 1)]}]));
    assert_eq!(world.sync(), ["create IPv4 2"]);
    let slice = world.only_slice()["endpoints"].as_array().unwrap();
    let one = slice.iter().find(|it| it["addresses"][0] == "10.0.0.1").unwrap();
    assert_eq!(one["conditions"]["ready"], false);
    assert_eq!(world.sync(), [""; 0]);
}

#[test]
fn subsets_that_ask_for_millions_of_addresses_take_no_time() {
    let subset = |n: usize| {
        let ips: Vec<Value> =
            (0..1_500).map(|at| json!({"ip": format!("10.{n}.{}.{}", at / 250, at % 250)})).collect();
        let ports: Vec<Value> = (0..1_500).filter(|at| at >> n & 1 == 1).map(|at| port("", at + 1)).collect();
        json!({"addresses": ips, "ports": ports})
    };
    let mut world = World::new((0..11).map(subset).collect());
    assert_eq!(world.sync().len(), 11);
    assert_eq!(world.sync(), [""; 0]);
}

#[test]
fn a_service_decides_by_having_no_selector() {
    let service = |selector: Value| {
        decode::<Service>(&json!({"metadata": {"name": "db", "uid": "u", "resourceVersion": "1"},
                                  "spec": {"selector": selector}}))
    };
    let (none, some) = (service(Value::Null), service(json!({"a": "b"})));
    assert!(is_concerned(None, Some(&none)) && is_concerned(Some(&none), None));
    assert!(is_concerned(Some(&none), Some(&some)) && is_concerned(Some(&some), Some(&none)));
    assert!(!is_concerned(None, Some(&some)) && !is_concerned(Some(&some), None));
    assert!(!is_concerned(Some(&none), Some(&none)));
}
