//! Addresses and node ports of Services. What a client chooses is compared with a real server in
//! `tests/cluster/recorded/services.json`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::*;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    for (field, value) in spec.as_object().unwrap() {
        service["spec"][field] = value.clone();
    }
    service
}

fn address(service: &Value) -> u32 {
    service["spec"]["clusterIP"].as_str().unwrap().parse::<Ipv4Addr>().unwrap().to_bits()
}

/// The node ports of a Service, that of its health check at last.
fn ports(service: &Value) -> Vec<u64> {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().unwrap().iter().map(|port| &port["nodePort"]);
    ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_u64).collect()
}

#[tokio::test(start_paused = true)]
async fn services_get_addresses_and_ports_of_their_own_and_keep_them() {
    let sandbox = sandbox();
    let balancer = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let (mut addresses, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..50 {
        let name = format!("s{number}");
        let made = sandbox.post(SERVICES, service(&name, balancer.clone())).await.ok();
        // The numbers below are for clients to choose from.
        let dynamic = address(&made) - Ipv4Addr::new(10, 96, 0, 0).to_bits();
        assert!((257..(1 << 20) - 1).contains(&dynamic), "{dynamic}");
        assert!(addresses.insert(dynamic));
        assert_eq!(ports(&made).len(), 2);
        for port in ports(&made) {
            assert!((30_086..=32_767).contains(&port), "{port}");
            assert!(taken.insert(port), "{port} twice");
        }
        let again = sandbox.put(&format!("{SERVICES}/{name}"), service(&name, balancer.clone())).await.ok();
        assert_eq!(again, made, "an update that leaves them out changes nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_service_held_is_free_when_it_is_deleted_or_needs_it_no_longer() {
    let sandbox = sandbox();
    let chosen =
        json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "nodePort": 31000}]});
    sandbox.post(SERVICES, service("a", chosen.clone())).await.ok();
    let taken = sandbox.post(SERVICES, service("b", chosen.clone())).await.refused(422);
    assert!(taken.ends_with("failed to allocate IP 10.96.0.9: provided IP is already allocated"), "{taken}");
    sandbox.delete(&format!("{SERVICES}/a")).await.ok();
    sandbox.post(SERVICES, service("b", chosen.clone())).await.ok();
    let named = json!({"spec": {"type": "ExternalName", "externalName": "a.example.com"}});
    sandbox.patch(&format!("{SERVICES}/b"), MERGE, named).await.ok();
    sandbox.post(SERVICES, service("c", chosen)).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_and_a_refused_write_take_nothing() {
    let sandbox = sandbox();
    let chosen =
        json!({"type": "NodePort", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "nodePort": 31000}]});
    let shown = sandbox.post(&format!("{SERVICES}?dryRun=All"), service("a", chosen.clone())).await.ok();
    assert_eq!(shown["spec"]["ports"][0]["nodePort"], 31000);
    let mut bad = chosen.clone();
    bad["sessionAffinity"] = json!("Odd");
    sandbox.post(SERVICES, service("a", bad)).await.refused(422);
    sandbox.post(SERVICES, service("a", chosen)).await.ok();
}

#[tokio::test(start_paused = true)]
async fn after_a_restore_what_the_stored_services_hold_is_taken_and_no_more() {
    let sandbox = sandbox();
    let at = |address: &str| json!({"clusterIP": address});
    sandbox.post(SERVICES, service("kept", at("10.96.0.9"))).await.ok();
    let backup = sandbox.back_up();
    sandbox.delete(&format!("{SERVICES}/kept")).await.ok();
    sandbox.post(SERVICES, service("lost", at("10.96.0.10"))).await.ok();
    sandbox.restore(&backup, true);
    sandbox.post(SERVICES, service("a", at("10.96.0.9"))).await.refused(422);
    sandbox.post(SERVICES, service("a", at("10.96.0.10"))).await.ok();
}

#[tokio::test(start_paused = true)]
async fn when_all_node_ports_are_held_the_next_service_is_refused() {
    let sandbox = sandbox();
    let many = |count: u32| {
        let ports: Vec<Value> =
            (1..=count).map(|port| json!({"port": port, "name": format!("p{port}")})).collect();
        json!({"type": "NodePort", "ports": ports})
    };
    let all = sandbox.post(SERVICES, service("all", many(2768))).await.ok();
    assert_eq!(ports(&all).into_iter().collect::<BTreeSet<_>>(), (30_000..=32_767).collect());
    let why = sandbox.post(SERVICES, service("more", many(1))).await.refused(500);
    assert_eq!(why, "Internal error occurred: failed to allocate a nodePort: range is full");
}
