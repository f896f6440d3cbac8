//! Which node a pod gets, and what the scheduler says of one that gets none.

use serde_json::{Value, json};

use super::*;

fn nodes(values: &[Value]) -> BTreeMap<String, Node> {
    values
        .iter()
        .map(|value| {
            let node: Node = serde_json::from_value(value.clone()).unwrap();
            (node.metadata.name.clone().unwrap(), node)
        })
        .collect()
}

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

/// The load of these nodes with a pod for each name in `pods`.
fn load(nodes: &BTreeMap<String, Node>, pods: &[&str]) -> Load {
    let mut load = Load::default();
    nodes.keys().for_each(|name| load.node_added(name));
    pods.iter().for_each(|name| load.pod_added(&Pod::default(), name));
    load
}

/// The node that a pod gets where only the load knows of others.
fn choose(pod: &Pod, nodes: &BTreeMap<String, Node>, load: &mut Load) -> Result<String, String> {
    super::choose(pod, nodes, load, &|_| ())
}

/// Nodes, and pods that are on them.
struct Cluster {
    nodes: BTreeMap<String, Node>,
    load: Load,
    placed: Vec<(Pod, String)>,
}

impl Cluster {
    fn new(values: &[Value]) -> Self {
        let nodes = nodes(values);
        Cluster { load: load(&nodes, &[]), nodes, placed: Vec::new() }
    }

    /// Places a pod with these labels.
    fn place(&mut self, labels: Value, spec: Value) -> Result<String, String> {
        let metadata = json!({"name": "p", "namespace": "shop", "labels": labels});
        let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        let placed = self.placed.clone();
        let each = |count: &mut dyn FnMut(&Pod, &str)| placed.iter().for_each(|(pod, node)| count(pod, node));
        let node = super::choose(&pod, &self.nodes, &mut self.load, &each)?;
        self.load.pod_added(&pod, &node);
        self.placed.push((pod, node.clone()));
        Ok(node)
    }

    /// The reason why a pod with these labels gets no node, without what is said of preemption.
    fn refused(&mut self, labels: Value, spec: Value) -> String {
        let message = self.place(labels, spec).unwrap_err();
        message.split(" preemption: ").next().unwrap().to_owned()
    }

    /// The pods of a node are deleted.
    fn empty(&mut self, node: &str) {
        for (pod, place) in std::mem::take(&mut self.placed) {
            if place == node {
                self.load.pod_removed(&pod, node);
            } else {
                self.placed.push((pod, place));
            }
        }
    }
}

/// A container with these requests.
fn asking(requests: Value) -> Value {
    json!({"name": "main", "image": "i", "resources": {"requests": requests}})
}

fn sized(name: &str, allocatable: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": {"allocatable": allocatable}})
}

fn zoned(name: &str, zone: &str) -> Value {
    let mut node = node(name);
    node["status"]["allocatable"]["pods"] = json!("100");
    if !zone.is_empty() {
        node["metadata"]["labels"]["zone"] = json!(zone);
    }
    node
}

fn node(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
           "status": {"allocatable": {"pods": "2"}}})
}

#[test]
fn the_node_with_the_fewest_pods_wins_and_the_first_by_name_among_equals() {
    let nodes = nodes(&[node("a"), node("b"), node("c")]);
    assert_eq!(choose(&pod(json!({})), &nodes, &mut load(&nodes, &["a"])).unwrap(), "b");
    assert_eq!(choose(&pod(json!({})), &nodes, &mut load(&nodes, &[])).unwrap(), "a");
}

#[test]
fn a_node_that_comes_back_still_has_its_pods() {
    let nodes = nodes(&[node("a"), node("b")]);
    let mut load = load(&nodes, &["a", "b"]);
    load.node_removed("a");
    load.pod_added(&Pod::default(), "a");
    assert_eq!(choose(&pod(json!({})), &nodes, &mut load).unwrap(), "b");
    load.pod_removed(&Pod::default(), "a");
    load.pod_removed(&Pod::default(), "a");
    load.node_added("a");
    assert_eq!(choose(&pod(json!({})), &nodes, &mut load).unwrap(), "a");
    assert_eq!((load.of("a"), load.of("b"), load.of("c")), (0, 1, 0));
}

#[test]
fn the_reasons_of_all_unsuitable_nodes_are_counted() {
    let mut cordoned = node("a");
    cordoned["spec"] = json!({"unschedulable": true});
    let mut tainted = node("b");
    tainted["spec"] = json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]});
    let nodes = nodes(&[cordoned, tainted, node("c"), node("d")]);
    let mut load = load(&nodes, &["c", "c", "d", "d"]);
    assert_eq!(
        choose(&pod(json!({})), &nodes, &mut load).unwrap_err(),
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Too many pods. \
         preemption: 0/4 nodes are available: 2 No preemption victims found for incoming pod, 2 Preemption is not \
         helpful for scheduling."
    );
}

#[test]
fn without_nodes_the_reason_is_that_there_are_none() {
    let none = BTreeMap::new();
    assert_eq!(
        choose(&pod(json!({})), &none, &mut Load::default()).unwrap_err(),
        "no nodes available to schedule pods"
    );
}

#[test]
fn a_toleration_makes_a_tainted_node_suitable() {
    let mut tainted = node("b");
    tainted["spec"] = json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]});
    let nodes = nodes(&[tainted]);
    let place = |tolerations: Value| {
        choose(&pod(json!({"tolerations": tolerations})), &nodes, &mut load(&nodes, &[]))
    };
    assert!(place(json!([{"key": "gpu", "operator": "Exists"}])).is_ok());
    assert!(place(json!([{"operator": "Exists"}])).is_ok());
    assert!(place(json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])).is_ok());
    assert!(place(json!([{"key": "gpu", "value": "no"}])).is_err());
    assert!(place(json!([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}])).is_err());
}

#[test]
fn a_daemon_pod_runs_on_its_node_or_not_at_all() {
    let mut tainted = node("b");
    tainted["spec"] = json!({"unschedulable": true, "taints": [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, {"key": "gpu", "effect": "NoExecute"}]});
    let nodes = nodes(&[node("a"), tainted, node("c")]);
    let place = |fields: Value, tolerations: Value| {
        let terms: Vec<Value> = fields
            .as_array()
            .unwrap()
            .iter()
            .map(|names| {
                let fields: Vec<Value> = names
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|name| json!({"key": "metadata.name", "operator": "In", "values": [name]}))
                    .collect();
                json!({"matchFields": fields})
            })
            .collect();
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let spec = json!({"affinity": {"nodeAffinity": required}, "tolerations": tolerations});
        choose(&pod(spec), &nodes, &mut load(&nodes, &["c"]))
    };
    assert_eq!(place(json!([["c"]]), json!([])).unwrap(), "c", "though it has more pods than another");
    assert_eq!(place(json!([["c"], ["a"]]), json!([])).unwrap(), "a");
    let cordoned = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"});
    assert_eq!(place(json!([["b"]]), json!([cordoned, {"key": "gpu", "operator": "Exists"}])).unwrap(), "b");
    assert_eq!(
        place(json!([["b"]]), json!([cordoned])).unwrap_err(),
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't satisfy plugin(s) \
         [NodeAffinity]. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    );
    assert_eq!(
        place(json!([["gone"]]), json!([])).unwrap_err(),
        "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are \
         available: 3 Preemption is not helpful for scheduling."
    );
    assert_eq!(
        place(json!([["a", "c"]]), json!([])).unwrap_err(),
        "0/3 nodes are available: pod affinity terms conflict. preemption: 0/3 nodes are available: 3 Preemption is \
         not helpful for scheduling."
    );
}

#[test]
fn required_node_affinity_is_one_of_its_terms() {
    let nodes = nodes(&[node("a"), node("b")]);
    let place = |terms: Value| {
        let required = json!({"nodeSelectorTerms": terms});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        choose(&pod(json!({"affinity": affinity})), &nodes, &mut load(&nodes, &[]))
    };
    let hostname = |operator: &str, values: Value| {
        json!({"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": operator, "values": values}]})
    };
    assert_eq!(place(json!([hostname("In", json!(["b"]))])).unwrap(), "b");
    assert_eq!(place(json!([hostname("NotIn", json!(["a"]))])).unwrap(), "b");
    assert_eq!(place(json!([hostname("In", json!(["z"])), hostname("Exists", json!([]))])).unwrap(), "a");
    assert!(place(json!([{}])).is_err());
    let field = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]);
    assert_eq!(place(field).unwrap(), "b");
}

#[test]
fn requests_are_summed_on_each_node_and_given_back() {
    let mut cluster = Cluster::new(&[
        sized("a", json!({"cpu": "2", "memory": "1Gi", "pods": "10"})),
        sized("b", json!({"cpu": "1", "memory": "1Gi", "pods": "10", "example.com/gpu": "1"})),
    ]);
    let cpu = |cpu: &str| json!({"containers": [asking(json!({"cpu": cpu})), asking(json!({"cpu": cpu}))]});
    assert_eq!(cluster.place(json!({}), cpu("750m")).unwrap(), "a");
    assert_eq!(
        cluster.place(json!({}), cpu("600m")).unwrap_err(),
        "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 1 No preemption victims found \
         for incoming pod, 1 Preemption is not helpful for scheduling."
    );
    assert_eq!(cluster.place(json!({}), cpu("250m")).unwrap(), "b");
    let gpu =
        |number: &str| json!({"containers": [asking(json!({"example.com/gpu": number, "memory": "512Mi"}))]});
    assert_eq!(
        cluster.refused(json!({}), gpu("4")),
        "0/2 nodes are available: 2 Insufficient example.com/gpu."
    );
    assert_eq!(cluster.place(json!({}), gpu("1")).unwrap(), "b");
    let memory = json!({"containers": [asking(json!({"memory": "600Mi", "cpu": "0.6"}))]});
    assert_eq!(
        cluster.refused(json!({}), memory.clone()),
        "0/2 nodes are available: 1 Insufficient memory, 2 Insufficient cpu.",
        "a node counts for each resource that it lacks"
    );
    cluster.empty("a");
    assert_eq!(cluster.place(json!({}), memory).unwrap(), "a");
}

#[test]
fn a_pod_asks_for_what_its_most_demanding_moment_needs_and_its_overhead() {
    let requests = |spec: Value| -> i128 {
        let cpu = pod(spec).requests().get("cpu").copied().unwrap_or(0);
        cpu / 1_000_000
    };
    let cpu = |cpu: &str| asking(json!({"cpu": cpu}));
    let mut sidecar = cpu("100m");
    sidecar["restartPolicy"] = json!("Always");
    let two = json!([cpu("1"), cpu("500m")]);
    assert_eq!(requests(json!({"containers": two, "initContainers": [cpu("1")]})), 1500);
    assert_eq!(requests(json!({"containers": two, "initContainers": [cpu("2")]})), 2000);
    assert_eq!(requests(json!({"containers": two, "initContainers": [sidecar, cpu("2")]})), 2100);
    assert_eq!(requests(json!({"containers": two, "initContainers": [cpu("2"), sidecar]})), 2000);
    assert_eq!(requests(json!({"containers": two, "initContainers": [sidecar]})), 1600);
    assert_eq!(requests(json!({"containers": two, "overhead": {"cpu": "10m"}})), 1510);
    let of_the_pod = json!({"requests": {"cpu": "3"}});
    assert_eq!(
        requests(json!({"containers": two, "resources": of_the_pod, "overhead": {"cpu": "10m"}})),
        3010
    );
}

#[test]
fn a_quantity_that_nobody_can_read_fits_nowhere_and_does_no_harm_to_others() {
    let mut cluster = Cluster::new(&[sized("a", json!({"cpu": "1", "pods": "10"}))]);
    for nonsense in ["999999999999999999999999999999E", "much", "-1"] {
        let placed = cluster.place(json!({}), json!({"containers": [asking(json!({"cpu": nonsense}))]}));
        assert_eq!(placed.is_ok(), nonsense == "-1", "{nonsense}");
    }
    assert_eq!(cluster.place(json!({}), json!({"containers": [asking(json!({"cpu": "1"}))]})).unwrap(), "a");
}

#[test]
fn a_port_of_a_node_is_taken_once() {
    let mut cluster = Cluster::new(&[zoned("a", ""), zoned("b", "")]);
    let port = |port: Value| json!({"containers": [{"name": "main", "image": "i", "ports": [port]}]});
    let plain = port(json!({"containerPort": 80, "hostPort": 9999}));
    assert_eq!(cluster.place(json!({}), plain.clone()).unwrap(), "a");
    assert_eq!(cluster.place(json!({}), plain.clone()).unwrap(), "b");
    assert_eq!(
        cluster.place(json!({}), plain.clone()).unwrap_err(),
        "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports. preemption: 0/2 nodes \
         are available: 2 No preemption victims found for incoming pod."
    );
    assert!(cluster.place(json!({}), port(json!({"containerPort": 9999}))).is_ok(), "not one of the node");
    assert!(cluster.place(json!({}), port(json!({"hostPort": 9999, "protocol": "UDP"}))).is_ok());
    let mut in_host_network = port(json!({"containerPort": 9999}));
    in_host_network["hostNetwork"] = json!(true);
    assert!(cluster.place(json!({}), in_host_network).is_err());
    let local = port(json!({"hostPort": 53, "hostIP": "127.0.0.1"}));
    assert_eq!(cluster.place(json!({}), local.clone()).unwrap(), cluster.placed.last().unwrap().1);
    let other = port(json!({"hostPort": 53, "hostIP": "10.0.0.1"}));
    assert!(cluster.place(json!({}), other).is_ok(), "of another address");
    cluster.empty("b");
    assert_eq!(cluster.place(json!({}), plain).unwrap(), "b");
}

/// A spec with one constraint.
fn spread(key: &str, more: Value) -> Value {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
                                "labelSelector": {"matchLabels": {"app": "web"}}});
    json_patch::merge(&mut constraint, &more);
    json!({"topologySpreadConstraints": [constraint]})
}

#[test]
fn pods_spread_over_zones_as_evenly_as_they_must() {
    let mut cluster = Cluster::new(&[zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"), zoned("c1", "")]);
    let web = json!({"app": "web"});
    let spec = spread("zone", json!({}));
    let zones: Vec<String> = (0..4).map(|_| cluster.place(web.clone(), spec.clone()).unwrap()).collect();
    assert_eq!(zones, ["a1", "b1", "a2", "b1"]);
    cluster.nodes.get_mut("b1").unwrap().spec.get_or_insert_default().unschedulable = Some(true);
    assert!(cluster.place(web.clone(), spec.clone()).is_ok(), "the skew is 1");
    assert_eq!(
        cluster.place(web.clone(), spec.clone()).unwrap_err(),
        "0/4 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label), \
         1 node(s) were unschedulable, 2 node(s) didn't match pod topology spread constraints. preemption: 0/4 nodes \
         are available: 2 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
    );
    assert!(cluster.place(web.clone(), spread("zone", json!({"maxSkew": 2}))).is_ok());
    assert!(
        cluster.place(web.clone(), spread("zone", json!({"whenUnsatisfiable": "ScheduleAnyway"}))).is_ok()
    );
    let mut all = spread("zone", json!({}));
    all["topologySpreadConstraints"][0]["labelSelector"] = json!({});
    assert!(cluster.place(web.clone(), all).is_ok(), "counts none");
    // A zone without a node that the pod may use is no zone.
    let mut only_a = spread("zone", json!({}));
    only_a["nodeSelector"] = json!({"zone": "a"});
    assert!(cluster.place(web.clone(), only_a).is_ok());
    let three = spread("zone", json!({"minDomains": 3, "maxSkew": 3}));
    assert!(cluster.refused(web, three).contains("didn't match pod topology spread constraints"));
}

#[test]
fn of_a_rollout_only_pods_with_the_same_hash_count_if_the_constraint_says_so() {
    let mut cluster = Cluster::new(&[zoned("a", "a"), zoned("b", "b")]);
    let spec = spread("zone", json!({"matchLabelKeys": ["hash"]}));
    let mut place = |hash: &str| cluster.place(json!({"app": "web", "hash": hash}), spec.clone()).unwrap();
    assert_eq!([place("1"), place("1"), place("2"), place("2")], ["a", "b", "a", "b"]);
}

fn term(key: &str, app: &str) -> Value {
    let required = json!([{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]);
    json!({"requiredDuringSchedulingIgnoredDuringExecution": required})
}

#[test]
fn a_pod_stays_away_from_those_that_it_or_that_they_avoid() {
    let mut cluster = Cluster::new(&[zoned("a", "a"), zoned("b", "b")]);
    let alone = json!({"affinity": {"podAntiAffinity": term("kubernetes.io/hostname", "web")}});
    let web = json!({"app": "web"});
    assert_eq!(cluster.place(web.clone(), alone.clone()).unwrap(), "a");
    assert_eq!(cluster.place(web.clone(), alone.clone()).unwrap(), "b");
    assert_eq!(
        cluster.place(web.clone(), alone.clone()).unwrap_err(),
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules. preemption: 0/2 nodes are available: \
         2 No preemption victims found for incoming pod."
    );
    assert_eq!(
        cluster.refused(web.clone(), json!({})),
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules."
    );
    assert!(cluster.place(json!({"app": "other"}), json!({})).is_ok());
    cluster.empty("b");
    assert_eq!(cluster.place(web, alone).unwrap(), "b");
}

#[test]
fn a_pod_joins_those_that_it_needs_and_the_first_of_its_kind_may_begin() {
    let mut cluster = Cluster::new(&[zoned("a", "a"), zoned("b", "b"), zoned("c", "")]);
    let near = |app: &str| json!({"affinity": {"podAffinity": term("zone", app)}});
    assert_eq!(
        cluster.place(json!({"app": "web"}), near("db")).unwrap_err(),
        "0/3 nodes are available: 3 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are available: \
         3 Preemption is not helpful for scheduling."
    );
    let mut on_b = near("db");
    on_b["nodeSelector"] = json!({"zone": "b"});
    assert_eq!(cluster.place(json!({"app": "db"}), on_b).unwrap(), "b", "the first of its kind");
    assert_eq!(cluster.place(json!({"app": "web"}), near("db")).unwrap(), "b");
    assert_eq!(cluster.place(json!({"app": "db"}), near("db")).unwrap(), "b");
    let mut elsewhere = near("db");
    let required =
        &mut elsewhere["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    required["namespaces"] = json!(["other"]);
    assert!(cluster.place(json!({"app": "web"}), elsewhere.clone()).is_err());
    elsewhere["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]["namespaceSelector"] =
        json!({});
    assert_eq!(cluster.place(json!({"app": "web"}), elsewhere).unwrap(), "b", "of every namespace");
}

#[test]
fn an_invalid_selector_matches_nothing() {
    let mut cluster = Cluster::new(&[zoned("a", "a")]);
    assert!(cluster.place(json!({"app": "web"}), json!({})).is_ok());
    let odd = json!({"matchExpressions": [{"key": "app", "operator": "Resembles", "values": null}]});
    let mut spread = spread("zone", json!({}));
    spread["topologySpreadConstraints"][0]["labelSelector"] = odd.clone();
    assert!(cluster.place(json!({"app": "web"}), spread).is_ok());
    let mut near =
        json!({"affinity": {"podAffinity": term("zone", "web"), "podAntiAffinity": term("zone", "web")}});
    for kind in ["podAffinity", "podAntiAffinity"] {
        near["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"][0]["labelSelector"] =
            odd.clone();
    }
    assert!(cluster.refused(json!({"app": "web"}), near).contains("didn't match pod affinity rules"));
}

#[test]
fn what_is_kept_of_selectors_is_bounded() {
    let mut cluster = Cluster::new(&[zoned("a", "a")]);
    cluster.nodes.get_mut("a").unwrap().status = None;
    for number in 0..600 {
        let app = format!("web-{number}");
        let away = json!({"affinity": {"podAntiAffinity": term("zone", &app)}});
        assert!(cluster.place(json!({"app": "web"}), away).is_ok());
    }
    assert!(
        cluster.refused(json!({"app": "web-7"}), json!({})).contains("existing pods anti-affinity rules")
    );
    let joins = json!({"affinity": {"podAffinity": term("zone", "web")}});
    assert_eq!(cluster.place(json!({"app": "web"}), joins).unwrap(), "a");
}

#[test]
fn ten_thousand_pods_are_placed_without_a_look_at_each_other() {
    let room = json!({"cpu": "1000", "pods": "10000"});
    let nodes = nodes(&(0..20).map(|number| sized(&format!("n{number}"), room.clone())).collect::<Vec<_>>());
    let mut load = load(&nodes, &[]);
    let mut spec = spread("kubernetes.io/hostname", json!({}));
    spec["affinity"] = json!({"podAntiAffinity": term("kubernetes.io/hostname", "other")});
    spec["containers"] = json!([asking(json!({"cpu": "100m"}))]);
    let metadata = json!({"name": "p", "namespace": "shop", "labels": {"app": "web"}});
    let pod: Pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    let scans = std::cell::Cell::new(0);
    for _ in 0..10_000 {
        let each = |_: &mut dyn FnMut(&Pod, &str)| scans.set(scans.get() + 1);
        let node = super::choose(&pod, &nodes, &mut load, &each).unwrap();
        load.pod_added(&pod, &node);
    }
    assert_eq!(scans.get(), 2, "one for each of its two selectors");
    assert!(nodes.keys().all(|name| load.of(name) == 500));
    assert_eq!(load.node("n7").unwrap().requested["cpu"], 50_000_000_000);
}
