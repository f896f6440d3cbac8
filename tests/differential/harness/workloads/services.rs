//! Services and their endpoints: EndpointSlices, Endpoints, and the slices of Endpoints that people write.

use http::Method;
use serde_json::{Value, json};

use super::super::declared::{Declared, differs, may_differ};
use super::super::objects::{Object, pod};
use super::super::rows::{ENDPOINTS_ORDER, MIRROR_GENERATE_NAME, SLICE_WAKES};
use super::super::stage::Stage;

super::workloads! {
    svc_follows_its_pods,
    svc_without_a_pod,
    svc_publishes_unready_pods,
    svc_headless_with_hostnames,
    svc_named_ports_of_pods_that_differ: ORDERED_SUBSETS,
    svc_two_protocols_of_one_number: ORDERED_PORTS,
    svc_selector_is_changed,
    svc_labels_are_changed,
    svc_ports_are_changed,
    svc_is_deleted_and_comes_again,
    svc_pods_end_and_go: ONE_MORE_WRITE,
    svc_two_services_share_pods,
    svc_headless_without_ports,
    svc_slice_is_edited_by_hand,
    svc_slice_is_deleted_by_hand,
    svc_endpoints_are_edited_and_deleted_by_hand,
    svc_zones_as_hints,
    svc_pod_on_an_unknown_node,
    svc_pod_of_other_labels_joins,
    svc_slice_of_another_manager,
    mirror_endpoints_of_a_service_without_selector: KEPT_PREFIX,
    mirror_is_switched_off_and_on,
    mirror_ends_with_a_selector,
    mirror_two_subsets,
    mirror_both_families,
}

static ORDERED_PORTS: &[Declared] =
    &[differs(&ENDPOINTS_ORDER, ["rest", "Endpoints/web", "subsets.0.ports.*"], "*", "*")];

static ORDERED_SUBSETS: &[Declared] =
    &[may_differ(&ENDPOINTS_ORDER, ["rest", "Endpoints/web", "subsets.*"], "*", "*")];

static ONE_MORE_WRITE: &[Declared] =
    &[differs(&SLICE_WAKES, ["rest", "EndpointSlice/web#*", "metadata.generation"], "*", "*")];

static KEPT_PREFIX: &[Declared] = &[differs(
    &MIRROR_GENERATE_NAME,
    ["rest", "EndpointSlice/web#*", "metadata.generateName"],
    "absent",
    "web-",
)];

fn service(spec: Value) -> Object {
    Object(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}))
}

fn port(number: i64) -> Value {
    json!([{"name": "http", "port": number, "targetPort": 8080}])
}

fn plain() -> Object {
    service(json!({"selector": {"app": "web"}, "ports": port(80)}))
}

/// A pod with a named port, on a node.
fn server(s: &Stage, name: &str, number: i64) -> Object {
    let containers =
        json!([{"name": "app", "image": "app:v1", "ports": [{"name": "http", "containerPort": number}]}]);
    pod(name, "web").spec("containers", containers).spec("nodeName", s.node("near"))
}

/// The pod runs at this address.
async fn run(s: &Stage, name: &str, address: &str, is_ready: bool) {
    let ready = if is_ready { "True" } else { "False" };
    s.act(format!("pod {name} runs at {address}, ready {ready}"));
    let status = json!({
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    s.call(Method::PATCH, &format!("{}/{name}/status", s.path("Pod")), &json!({"status": status})).await;
    s.rest().await;
}

/// Two pods that run and are ready.
async fn two_servers(s: &Stage) {
    s.add_node("near").await;
    for (name, address) in [("a", "10.1.0.1"), ("b", "10.1.0.2")] {
        s.create(server(s, name, 8080)).await;
        run(s, name, address, true).await;
    }
}

async fn set(s: &Stage, spec: Value) {
    s.patch("Service", "web", json!({"spec": spec})).await;
    s.rest().await;
}

/// The slice that a controller has made.
fn slice(s: &Stage) -> String {
    let slices = s.all("EndpointSlice");
    slices.first().and_then(|one| one["metadata"]["name"].as_str()).unwrap_or_default().to_owned()
}

/// The UID of the only object of this kind.
fn uid(s: &Stage, kind: &str) -> Option<String> {
    s.all(kind).first()?["metadata"]["uid"].as_str().map(str::to_owned)
}

async fn svc_follows_its_pods(s: &Stage) {
    s.create(plain()).await;
    s.rest().await;
    two_servers(s).await;
    run(s, "a", "10.1.0.1", false).await;
    run(s, "a", "10.1.0.1", true).await;
    run(s, "b", "10.1.0.9", true).await;
    s.delete("Pod", "b", "Background").await;
    s.rest().await;
}

async fn svc_without_a_pod(s: &Stage) {
    s.create(plain()).await;
    s.rest().await;
}

async fn svc_publishes_unready_pods(s: &Stage) {
    let spec = json!({"selector": {"app": "web"}, "ports": port(80), "publishNotReadyAddresses": true});
    s.create(service(spec)).await;
    s.add_node("near").await;
    s.create(server(s, "a", 8080)).await;
    run(s, "a", "10.1.0.1", false).await;
    s.delete("Pod", "a", "Background").await;
    s.rest().await;
    set(s, json!({"publishNotReadyAddresses": false})).await;
}

async fn svc_headless_with_hostnames(s: &Stage) {
    let spec = json!({"selector": {"app": "web"}, "ports": port(80), "clusterIP": "None"});
    s.create(service(spec)).await;
    s.add_node("near").await;
    s.create(server(s, "a", 8080).spec("hostname", "first").spec("subdomain", "web")).await;
    s.create(server(s, "b", 8080).spec("hostname", "second").spec("subdomain", "other")).await;
    run(s, "a", "10.1.0.1", true).await;
    run(s, "b", "10.1.0.2", true).await;
}

async fn svc_named_ports_of_pods_that_differ(s: &Stage) {
    let ports = json!([{"name": "web", "port": 80, "targetPort": "http"}]);
    s.create(service(json!({"selector": {"app": "web"}, "ports": ports}))).await;
    s.add_node("near").await;
    s.create(server(s, "a", 8080)).await;
    s.create(server(s, "b", 9090)).await;
    s.create(pod("c", "web").spec("nodeName", s.node("near"))).await;
    for (name, address) in [("a", "10.1.0.1"), ("b", "10.1.0.2"), ("c", "10.1.0.3")] {
        run(s, name, address, true).await;
    }
}

async fn svc_two_protocols_of_one_number(s: &Stage) {
    let ports = json!([
        {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
        {"name": "web", "port": 80, "appProtocol": "kubernetes.io/h2c"},
    ]);
    s.create(service(json!({"selector": {"app": "web"}, "ports": ports}))).await;
    two_servers(s).await;
}

async fn svc_selector_is_changed(s: &Stage) {
    s.create(plain()).await;
    two_servers(s).await;
    set(s, json!({"selector": {"app": "other"}})).await;
    set(s, json!({"selector": {"app": "web"}})).await;
}

async fn svc_labels_are_changed(s: &Stage) {
    s.create(plain().label("tier", "front")).await;
    two_servers(s).await;
    s.patch("Service", "web", json!({"metadata": {"labels": {"tier": "back", "more": "x"}}})).await;
    s.rest().await;
    s.patch("Service", "web", json!({"metadata": {"labels": {"tier": null}}})).await;
    s.rest().await;
}

async fn svc_ports_are_changed(s: &Stage) {
    s.create(plain()).await;
    two_servers(s).await;
    set(s, json!({"ports": [{"name": "http", "port": 80, "targetPort": 9000}]})).await;
    set(s, json!({"ports": [{"name": "web", "port": 81, "targetPort": 9000}]})).await;
}

async fn svc_is_deleted_and_comes_again(s: &Stage) {
    s.create(plain()).await;
    two_servers(s).await;
    s.delete("Service", "web", "Background").await;
    s.until("nothing is left", 30, |s| s.all("EndpointSlice").is_empty() && s.all("Endpoints").is_empty())
        .await;
    s.create(plain()).await;
    s.rest().await;
}

async fn svc_pods_end_and_go(s: &Stage) {
    s.create(plain()).await;
    two_servers(s).await;
    let failed = json!({"status": {"phase": "Failed"}});
    s.call(Method::PATCH, &format!("{}/a/status", s.path("Pod")), &failed).await;
    // A change of the phase alone wakes no controller of upstream.
    run(s, "b", "10.1.0.2", false).await;
    s.delete("Pod", "b", "Background").await;
    s.rest().await;
    s.end_terminating().await;
}

async fn svc_two_services_share_pods(s: &Stage) {
    s.create(plain()).await;
    let mut other = service(json!({"selector": {"app": "web"}, "ports": port(81)}));
    other.0["metadata"]["name"] = "all".into();
    s.create(other).await;
    two_servers(s).await;
    run(s, "a", "10.1.0.1", false).await;
}

async fn svc_headless_without_ports(s: &Stage) {
    s.create(service(json!({"selector": {"app": "web"}, "clusterIP": "None"}))).await;
    two_servers(s).await;
}

async fn svc_slice_is_edited_by_hand(s: &Stage) {
    s.create(plain()).await;
    two_servers(s).await;
    let generation = |s: &Stage| s.all("EndpointSlice")[0]["metadata"]["generation"].as_i64();
    let before = generation(s);
    s.patch("EndpointSlice", &slice(s), json!({"endpoints": []})).await;
    let is_repaired = move |s: &Stage| generation(s) >= before.map(|before| before + 2);
    s.until("the endpoints are back", 10, is_repaired).await;
}

async fn svc_slice_is_deleted_by_hand(s: &Stage) {
    s.create(plain()).await;
    two_servers(s).await;
    let before = uid(s, "EndpointSlice");
    s.delete("EndpointSlice", &slice(s), "Background").await;
    s.until("there is another", 10, |s| uid(s, "EndpointSlice").is_some_and(|uid| Some(uid) != before)).await;
}

async fn svc_endpoints_are_edited_and_deleted_by_hand(s: &Stage) {
    s.create(plain()).await;
    two_servers(s).await;
    let before = uid(s, "Endpoints");
    s.delete("Endpoints", "web", "Background").await;
    s.until("they are back", 10, |s| uid(s, "Endpoints").is_some_and(|uid| Some(uid) != before)).await;
}

async fn svc_zones_as_hints(s: &Stage) {
    s.add_node("near").await;
    s.label_node("near", "topology.kubernetes.io/zone", Some("east")).await;
    let spec = json!({"selector": {"app": "web"}, "ports": port(80), "trafficDistribution": "PreferClose"});
    s.create(service(spec)).await;
    s.create(server(s, "a", 8080)).await;
    run(s, "a", "10.1.0.1", true).await;
    set(s, json!({"trafficDistribution": "PreferSameNode"})).await;
    set(s, json!({"trafficDistribution": null})).await;
}

async fn svc_pod_on_an_unknown_node(s: &Stage) {
    s.create(plain()).await;
    two_servers(s).await;
    s.create(server(s, "c", 8080).spec("nodeName", s.node("far"))).await;
    run(s, "c", "10.1.0.3", true).await;
    s.add_node("far").await;
    s.until("it is listed", 40, |s| s.all("EndpointSlice")[0]["endpoints"][2].is_object()).await;
}

async fn svc_pod_of_other_labels_joins(s: &Stage) {
    s.create(plain()).await;
    two_servers(s).await;
    let label = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    s.patch("Pod", "a", label("other")).await;
    s.rest().await;
    s.patch("Pod", "a", label("web")).await;
    s.rest().await;
}

async fn svc_slice_of_another_manager(s: &Stage) {
    let labels = json!({
        "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "other.example.com",
    });
    let other = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-others", "labels": labels}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.9.9.9"]}], "ports": [],
    });
    s.create(Object(other)).await;
    s.create(plain()).await;
    two_servers(s).await;
}

fn endpoints(subsets: Value) -> Object {
    Object(json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web"}, "subsets": subsets}))
}

fn subset(addresses: &[&str], number: i64) -> Value {
    let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"addresses": addresses, "ports": [{"name": "http", "port": number}]})
}

async fn by_hand(s: &Stage, subsets: Value) {
    s.create(service(json!({"ports": port(80)}))).await;
    s.create(endpoints(subsets).label("made", "by-hand").annotation("example.com/why", "outside")).await;
    s.rest().await;
}

async fn mirror_endpoints_of_a_service_without_selector(s: &Stage) {
    by_hand(s, json!([subset(&["192.0.2.1", "192.0.2.2"], 8080)])).await;
    s.patch("Endpoints", "web", json!({"subsets": [subset(&["192.0.2.2", "192.0.2.3"], 8080)]})).await;
    s.rest().await;
    s.delete("Endpoints", "web", "Background").await;
    s.rest().await;
}

async fn mirror_is_switched_off_and_on(s: &Stage) {
    by_hand(s, json!([subset(&["192.0.2.1"], 8080)])).await;
    let skip =
        |value: Value| json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": value}}});
    s.patch("Endpoints", "web", skip("true".into())).await;
    s.rest().await;
    s.patch("Endpoints", "web", skip(Value::Null)).await;
    s.rest().await;
}

async fn mirror_ends_with_a_selector(s: &Stage) {
    by_hand(s, json!([subset(&["192.0.2.1"], 8080)])).await;
    set(s, json!({"selector": {"app": "web"}})).await;
    s.wait(3).await;
}

async fn mirror_two_subsets(s: &Stage) {
    let unready = json!({
        "notReadyAddresses": [{"ip": "192.0.2.9", "hostname": "nine"}], "ports": [{"name": "http", "port": 9090}],
    });
    by_hand(s, json!([subset(&["192.0.2.1"], 8080), unready])).await;
}

async fn mirror_both_families(s: &Stage) {
    by_hand(s, json!([subset(&["192.0.2.1", "2001:db8::1"], 8080)])).await;
}
