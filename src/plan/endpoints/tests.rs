//! The Endpoints of a Service in a toy cluster, in which each plan is carried out.

mod game;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Observed, Write, is_left_over, plan};
use crate::model::{Endpoints, Service};
use crate::plan::endpointslice::TriggerTimes;
use crate::plan::endpointslice::tests::world::{decode, merge, ready};

struct World {
    service: Value,
    pods: BTreeMap<String, Value>,
    endpoints: Option<Value>,
    times: Option<Arc<TriggerTimes>>,
    version: u64,
}

impl World {
    /// A Service `web` of IPv4 without pods.
    fn new() -> Self {
        let service = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-web", "resourceVersion": "1",
                         "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"team": "a"}},
            "spec": {"selector": {"app": "web"}, "clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"],
                     "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}]},
        });
        World { service, pods: BTreeMap::new(), endpoints: None, times: None, version: 10 }
    }

    /// Adds a pod on the node `n1`; its address ends with the number in its name.
    fn pod(&mut self, name: &str, more: Value) {
        let number: u32 = name.rsplit('-').next().unwrap().parse().unwrap();
        let address = format!("10.0.{}.{}", number / 256, number % 256);
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}"), "resourceVersion": "1",
                         "labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
            "status": {"podIP": address, "podIPs": [{"ip": address}]},
        });
        merge(&mut pod, &more);
        self.pods.insert(name.into(), pod);
    }

    fn merge_pod(&mut self, name: &str, patch: Value) {
        merge(self.pods.get_mut(name).unwrap(), &patch);
    }

    /// Plans, and carries out the plan: the write in a word.
    fn sync(&mut self) -> &'static str {
        let service = decode::<Service>(&self.service);
        let plan = plan(&Observed {
            service: &service,
            pods: self.pods.values().map(decode).collect(),
            endpoints: self.endpoints.as_ref().map(decode),
            trigger_times: self.times.clone(),
        });
        self.times = plan.trigger_times;
        self.version += 1;
        let word = match plan.write {
            None => return "nothing",
            Some(Write::Create(body)) => {
                assert!(self.endpoints.is_none());
                self.endpoints = Some(body);
                "create"
            }
            Some(Write::Update(there, body)) => {
                let endpoints = self.endpoints.as_mut().unwrap();
                for (field, expected) in [
                    ("uid", there.meta.uid.to_string()),
                    ("resourceVersion", there.meta.resource_version.to_string()),
                ] {
                    assert_eq!(
                        (&body["metadata"][field], &endpoints["metadata"][field]),
                        (&json!(expected), &json!(expected))
                    );
                }
                merge(endpoints, &body);
                "update"
            }
        };
        let endpoints = self.endpoints.as_mut().unwrap();
        endpoints["metadata"]["uid"] = json!("u-endpoints");
        endpoints["metadata"]["resourceVersion"] = json!(self.version.to_string());
        word
    }

    fn subsets(&self) -> &Value {
        &self.endpoints.as_ref().unwrap()["subsets"]
    }

    /// How many addresses there are, ready ones and others.
    fn counts(&self) -> [usize; 2] {
        let subsets = self.subsets().as_array().cloned().unwrap_or_default();
        ["addresses", "notReadyAddresses"]
            .map(|list| subsets.iter().map(|subset| subset[list].as_array().map_or(0, Vec::len)).sum())
    }
}

fn container(ports: &[(&str, i32)]) -> Value {
    let port =
        |(name, number): &(&str, i32)| json!({"name": name, "containerPort": number, "protocol": "TCP"});
    let ports: Vec<Value> = ports.iter().map(port).collect();
    json!({"spec": {"containers": [{"name": "c", "ports": ports}]}})
}

fn unready() -> Value {
    json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}})
}

#[test]
fn endpoints_have_all_that_their_readers_expect() {
    let mut world = World::new();
    world.service["spec"]["ports"][0]["appProtocol"] = json!("h2c");
    world.pod("web-1", ready());
    world.pod("web-2", unready());
    world.merge_pod("web-1", json!({"spec": {"hostname": "one", "subdomain": "web"}}));
    assert_eq!(world.sync(), "create");
    let endpoints = world.endpoints.clone().unwrap();
    let labels = json!({"team": "a", "endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    assert_eq!(endpoints["metadata"]["labels"], labels);
    assert_eq!(endpoints["metadata"].get("ownerReferences"), None);
    let target =
        |name: &str| json!({"kind": "Pod", "namespace": "shop", "name": name, "uid": format!("u-{name}")});
    let expected = json!([{
        "addresses": [{"ip": "10.0.0.1", "hostname": "one", "nodeName": "n1", "targetRef": target("web-1")}],
        "notReadyAddresses": [{"ip": "10.0.0.2", "nodeName": "n1", "targetRef": target("web-2")}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "h2c"}],
    }]);
    assert_eq!(world.subsets(), &expected);
    assert_eq!(world.sync(), "nothing");
}

#[test]
fn an_address_follows_its_pod() {
    let mut world = World::new();
    world.pod("web-1", ready());
    world.sync();
    assert_eq!(world.counts(), [1, 0]);
    world.merge_pod("web-1", unready());
    assert_eq!((world.sync(), world.counts()), ("update", [0, 1]));
    world.service["spec"]["publishNotReadyAddresses"] = json!(true);
    assert_eq!((world.sync(), world.counts()), ("update", [1, 0]));
    world.merge_pod("web-1", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}}));
    assert_eq!(world.sync(), "nothing");
    world.service["spec"]["publishNotReadyAddresses"] = json!(false);
    assert_eq!((world.sync(), world.counts()), ("update", [0, 0]));
    assert_eq!(world.endpoints.as_ref().unwrap().get("subsets"), None);
    assert_eq!(world.sync(), "nothing");
    world.pod("web-2", ready());
    world.sync();
    world.merge_pod("web-2", json!({"status": {"phase": "Failed"}}));
    assert_eq!((world.sync(), world.counts()), ("update", [0, 0]));
}

#[test]
fn ports_with_the_same_addresses_share_a_subset() {
    let mut world = World::new();
    world.service["spec"]["ports"] = json!([
        {"name": "web", "port": 80, "protocol": "TCP", "targetPort": "web"},
        {"name": "fixed", "port": 81, "protocol": "TCP", "targetPort": 81},
        {"name": "admin", "port": 82, "protocol": "TCP", "targetPort": "admin"},
    ]);
    for (name, ports) in [
        ("web-1", &[("web", 8080), ("admin", 9000)][..]),
        ("web-2", &[("admin", 9000), ("web", 8080)]),
        ("web-3", &[("web", 8081), ("admin", 9000)]),
        ("web-4", &[]),
    ] {
        world.pod(name, ready());
        world.merge_pod(name, container(ports));
    }
    world.sync();
    let found: Vec<(String, String)> = world
        .subsets()
        .as_array()
        .unwrap()
        .iter()
        .map(|subset| {
            let ports = subset["ports"].as_array().unwrap().iter().map(|port| port["port"].to_string());
            let pods = subset["addresses"].as_array().unwrap().iter().map(|it| it["ip"].as_str().unwrap());
            (ports.collect::<Vec<_>>().join(","), pods.collect::<Vec<_>>().join(","))
        })
        .collect();
    let expected = [
        ("9000", "10.0.0.1,10.0.0.2,10.0.0.3"),
        ("81", "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4"),
        ("8080", "10.0.0.1,10.0.0.2"),
        ("8081", "10.0.0.3"),
    ];
    assert_eq!(found, expected.map(|(ports, pods)| (ports.to_owned(), pods.to_owned())));
    assert_eq!(world.sync(), "nothing");
    // Another order, as upstream's hash makes it, means nothing.
    let endpoints = world.endpoints.as_mut().unwrap();
    let subsets = endpoints["subsets"].as_array_mut().unwrap();
    subsets.reverse();
    for subset in subsets {
        subset["addresses"].as_array_mut().unwrap().reverse();
        for address in subset["addresses"].as_array_mut().unwrap() {
            address["targetRef"]["resourceVersion"] = json!("77");
        }
    }
    assert_eq!(world.sync(), "nothing");
}

#[test]
fn only_the_first_family_is_there() {
    let mut world = World::new();
    world.pod("web-1", ready());
    world.merge_pod("web-1", json!({"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "FD00::0:1"}]}}));
    world.pod("web-2", ready());
    world.sync();
    assert_eq!(world.counts(), [2, 0]);
    world.service["spec"]["ipFamilies"] = json!(["IPv6", "IPv4"]);
    assert_eq!((world.sync(), world.counts()), ("update", [1, 0]));
    assert_eq!(world.subsets()[0]["addresses"][0]["ip"], "fd00::1");
    // Where the Service says nothing, the pod decides.
    world.service["spec"]["ipFamilies"] = json!(null);
    world.service["spec"]["clusterIP"] = json!("None");
    assert_eq!((world.sync(), world.counts()), ("update", [2, 0]));
}

#[test]
fn a_headless_service_needs_no_ports_and_any_other_does() {
    let mut world = World::new();
    world.pod("web-1", ready());
    world.service["spec"]["ports"] = json!([]);
    world.sync();
    assert_eq!(world.counts(), [0, 0]);
    world.service["spec"]["clusterIP"] = json!("None");
    assert_eq!((world.sync(), world.counts()), ("update", [1, 0]));
    assert_eq!(world.subsets()[0].get("ports"), None);
    let labels = &world.endpoints.as_ref().unwrap()["metadata"]["labels"];
    assert_eq!(labels["service.kubernetes.io/headless"], "");
    // A port that no pod has leaves nobody, although there would be an address without ports.
    world.service["spec"]["ports"] =
        json!([{"name": "web", "port": 80, "targetPort": "web", "protocol": "TCP"}]);
    assert_eq!((world.sync(), world.counts()), ("update", [0, 0]));
}

#[test]
fn above_a_thousand_addresses_ready_ones_come_first() {
    let mut world = World::new();
    for n in 0..900 {
        world.pod(&format!("web-{n}"), ready());
    }
    for n in 900..1_100 {
        world.pod(&format!("web-{n}"), unready());
    }
    let annotation = |world: &World| {
        world.endpoints.as_ref().unwrap()["metadata"]["annotations"]
            .get("endpoints.kubernetes.io/over-capacity")
            .cloned()
    };
    assert_eq!((world.sync(), world.counts()), ("create", [900, 100]));
    assert_eq!(annotation(&world), Some(json!("truncated")));
    assert_eq!(world.sync(), "nothing", "the annotation is as it should be");
    for n in 900..1_050 {
        world.merge_pod(&format!("web-{n}"), ready());
    }
    assert_eq!((world.sync(), world.counts()), ("update", [1000, 0]));
    assert_eq!(world.sync(), "nothing");
    world.pods.retain(|_, pod| pod["metadata"]["name"].as_str().unwrap().len() < 7);
    assert_eq!((world.sync(), world.counts()), ("update", [100, 0]));
    assert_eq!(annotation(&world), None);
}

#[test]
fn each_subset_loses_in_proportion_and_none_is_empty() {
    let mut world = World::new();
    let port = |name: &str| json!({"name": name, "port": 80, "protocol": "TCP", "targetPort": name});
    world.service["spec"]["ports"] = json!([port("a"), port("b"), port("c")]);
    for n in 0..1_500 {
        let name = format!("web-{n}");
        world.pod(&name, if n < 1_499 { ready() } else { unready() });
        let port = match n {
            0..500 => "a",
            500..1_499 => "b",
            _ => "c",
        };
        world.merge_pod(&name, container(&[(port, 80)]));
    }
    assert_eq!((world.sync(), world.counts()), ("create", [1000, 0]));
    let subsets = world.subsets().as_array().unwrap();
    let sizes: Vec<usize> =
        subsets.iter().map(|subset| subset["addresses"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [334, 666], "the last one has what is left, and the third would be empty");
}

#[test]
fn labels_that_others_change_are_set_again_and_their_endpoints_are_taken_over() {
    let mut world = World::new();
    world.pod("web-1", ready());
    world.sync();
    for patch in [
        json!({"metadata": {"labels": {"endpoints.kubernetes.io/managed-by": null}}}),
        json!({"metadata": {"labels": {"team": "b", "more": "x"}}}),
        json!({"metadata": {"annotations": {"endpoints.kubernetes.io/over-capacity": "warning"}}}),
        json!({"subsets": []}),
    ] {
        merge(world.endpoints.as_mut().unwrap(), &patch);
        assert_eq!(world.sync(), "update", "{patch}");
        assert_eq!(world.sync(), "nothing");
        assert_eq!(world.counts(), [1, 0]);
    }
    let labels = json!({"team": "a", "endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    assert_eq!(world.endpoints.as_ref().unwrap()["metadata"]["labels"], labels);
    // A Service whose labels say otherwise does not make a write each time.
    world.service["metadata"]["labels"] =
        json!({"service.kubernetes.io/headless": "", "endpoints.kubernetes.io/managed-by": "x"});
    assert_eq!((world.sync(), world.sync()), ("update", "nothing"));
}

#[test]
fn the_annotation_has_the_time_of_the_change() {
    let mut world = World::new();
    let annotation = |world: &World| {
        let metadata = &world.endpoints.as_ref().unwrap()["metadata"];
        metadata["annotations"].get("endpoints.kubernetes.io/last-change-trigger-time").cloned()
    };
    world.pod("web-1", ready());
    world.sync();
    assert_eq!(annotation(&world), Some(json!("2026-01-01T00:00:00Z")), "that of the Service");
    let later = json!({"status": {"conditions": [{"type": "Ready", "status": "False",
                       "lastTransitionTime": "2026-01-01T00:05:00Z"}]}});
    world.merge_pod("web-1", later);
    world.sync();
    assert_eq!(annotation(&world), Some(json!("2026-01-01T00:05:00Z")));
    world.service["metadata"]["labels"] = json!({});
    world.sync();
    assert_eq!(annotation(&world), None);
}

#[test]
fn services_without_pods_are_left_to_others() {
    for spec in [json!({"selector": null}), json!({"type": "ExternalName"})] {
        let mut world = World::new();
        world.pod("web-1", ready());
        merge(&mut world.service["spec"], &spec);
        assert_eq!(world.sync(), "nothing");
    }
    let mut world = World::new();
    world.service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    assert_eq!(world.sync(), "nothing", "they would be left over");
}

#[test]
fn only_what_was_written_for_a_service_is_left_over() {
    let of = |metadata: Value| {
        let mut endpoints = json!({"metadata": {"name": "web", "uid": "u", "resourceVersion": "1"}});
        merge(&mut endpoints["metadata"], &metadata);
        is_left_over(&decode::<Endpoints>(&endpoints))
    };
    let ours = json!({"labels": {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}});
    assert!(of(ours.clone()));
    assert!(!of(json!({})), "a user has written it");
    assert!(!of(json!({"labels": {"endpoints.kubernetes.io/managed-by": "example.com"}})));
    let with = |more: Value| {
        let mut metadata = ours.clone();
        merge(&mut metadata, &more);
        metadata
    };
    assert!(!of(with(json!({"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}))));
    assert!(!of(with(json!({"deletionTimestamp": "2026-01-01T00:01:00Z"}))));
}
