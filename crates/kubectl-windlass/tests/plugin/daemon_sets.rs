//! DaemonSets: their history, and their rollouts before they begin.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::front::{Fate, Front};
use crate::harness::{Ended, Sandbox};

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/namespaces/default/events";

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "app", "image": image}]}})
}

fn agent() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
           "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template("app:1")}})
}

fn rolled_out(sandbox: &Sandbox, nodes: usize) {
    sandbox.eventually(&format!("{SETS}/agent"), |it| {
        let status = &it["status"];
        status["observedGeneration"] == it["metadata"]["generation"]
            && status["desiredNumberScheduled"] == nodes
            && status["updatedNumberScheduled"] == nodes
            && status["numberAvailable"] == nodes
    });
}

/// The DaemonSet `agent` on so many nodes, with the image `app:1`.
fn with_agent(nodes: usize) -> Sandbox {
    let sandbox = Sandbox::start(&["--nodes", &nodes.to_string()]);
    sandbox.call("POST", SETS, &agent());
    rolled_out(&sandbox, nodes);
    sandbox
}

fn patch(sandbox: &Sandbox, spec: Value) {
    sandbox.call("PATCH", &format!("{SETS}/agent"), &json!({"spec": spec}));
}

fn has(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    for part in parts {
        assert!(ended.out.contains(part), "{part:?} is missing: {ended:?}");
    }
}

#[test]
fn a_daemon_set_has_a_history_and_goes_back_in_it() {
    let sandbox = with_agent(2);
    patch(&sandbox, json!({"template": template("app:2")}));
    rolled_out(&sandbox, 2);
    let ended = sandbox.plugin(&["history", "ds/agent"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let current = ended.out.lines().find(|line| line.contains("(current)")).unwrap();
    assert!(current.starts_with("2 ") && current.contains(" 2 ") && current.contains("app:2"), "{ended:?}");
    let ended = sandbox.plugin(&["history", "ds/agent", "1..2"]);
    assert!(ended.out.contains("app:1") && ended.out.contains("app:2"), "{ended:?}");
    let ended = sandbox.plugin(&["undo", "ds/agent", "--yes"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("daemonset default/agent rolled back to revision 1"), "{ended:?}");
    assert!(ended.out.contains("2 nodes; at most 1 at a time without an available pod"), "{ended:?}");
    sandbox.eventually(&format!("{SETS}/agent"), |it| {
        it["spec"]["template"]["spec"]["containers"][0]["image"] == "app:1"
    });
    for refused in [&["history", "job/x"][..], &["undo", "cj/x", "--yes"]] {
        let ended = sandbox.plugin(refused);
        assert!(ended.code == Some(1) && ended.err.contains("has no revisions"), "{ended:?}");
    }
}

#[test]
fn the_rollout_that_follows_takes_the_nodes_in_the_order_that_was_foretold() {
    let sandbox = with_agent(3);
    let planned = sandbox.plugin(&["plan", "ds/agent", "--image=app:2", "-o=json"]);
    has(&planned, 0, &["\"end\":\"complete\"", "image app:1 -> app:2"]);
    let planned: Value = serde_json::from_str(&planned.out).unwrap();
    assert_eq!((&planned["mostAllowed"], &planned["leastAllowed"]), (&json!(3), &json!(2)), "{planned:#}");
    let steps = planned["steps"].as_array().unwrap().iter();
    let changes = steps.flat_map(|step| step["changes"].as_array().unwrap());
    let foretold: Vec<&str> = changes.filter_map(|change| change["createPodOn"].as_str()).collect();

    patch(&sandbox, json!({"template": template("app:2")}));
    rolled_out(&sandbox, 3);
    let pods = sandbox.get(PODS);
    let node_of: BTreeMap<&str, &str> = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| (pod["metadata"]["name"].as_str().unwrap(), pod["spec"]["nodeName"].as_str().unwrap()))
        .collect();
    // The order of the creations, from the events of the API alone.
    let created = |events: &Value| -> Vec<String> {
        let of = |event: &Value| {
            let pod = event["message"].as_str()?.strip_prefix("Created pod: ")?;
            let node = node_of.get(pod)?;
            Some((event["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok()?, (*node).to_owned()))
        };
        let mut found: Vec<_> = events["items"].as_array().into_iter().flatten().filter_map(of).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, node)| node).collect()
    };
    let events = sandbox.eventually(EVENTS, |events| created(events).len() == 3);
    assert_eq!(created(&events), foretold);
}

#[test]
fn a_daemon_set_that_suits_no_node_says_why() {
    let sandbox = Sandbox::start(&["--nodes", "2", "--node-taint", "all=gpu=yes:NoSchedule"]);
    sandbox.call("POST", SETS, &agent());
    sandbox.eventually(&format!("{SETS}/agent"), |it| it["status"]["observedGeneration"] == 1);
    let line =
        "2 of 2 nodes run no pod of it (2: the template does not tolerate the taint gpu=yes:NoSchedule)";
    has(&sandbox.plugin(&["explain", "ds/agent"]), 0, &["complete", line]);
}

#[test]
fn a_preview_names_the_nodes_of_each_step() {
    let sandbox = with_agent(2);
    let image = sandbox.plugin(&["plan", "ds/agent", "--image=app:2", "--ready-after=5s", "--stop-after=1s"]);
    has(
        &image,
        0,
        &[
            "DaemonSet default/agent: image app:1 -> app:2. 2 nodes; at most 1 at a time without an available pod\n",
            "delete the pod on sandbox-node-",
            "create the pod on sandbox-node-",
            "complete after about 12s",
            "by the server (dry run): the DaemonSet, one pod",
        ],
    );
    let surge =
        ["plan", "ds/agent", "--restart", "--max-surge=50%", "--max-unavailable=0", "--ready-after=5s"];
    let surge = sandbox.plugin(&surge);
    has(
        &surge,
        0,
        &[
            "restart, maxSurge 0 -> 50%, maxUnavailable 1 -> 0. 2 nodes; at most 1 at a time with a new pod beside the old",
            "lowest   2 available at step 0",
            "Not judged: the order of the nodes; ",
            "most     3 pods",
        ],
    );
    let broken = sandbox.plugin(&["plan", "ds/agent", "--image=app:2", "--assume=broken"]);
    has(&broken, 5, &["not complete after", "Node sandbox-node-", "the pod is not ready"]);
    for flag in ["--replicas=3", "--partition=1", "--strategy=Recreate"] {
        let refused = sandbox.plugin(&["plan", "ds/agent", flag]);
        let name = flag.split('=').next().unwrap();
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.starts_with(&format!("error: daemonset default/agent: {name}: ")), "{refused:?}");
    }
    patch(&sandbox, json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}));
    let by_hand = sandbox.plugin(&["plan", "ds/agent", "--image=app:2"]);
    has(&by_hand, 0, &["2 nodes; OnDelete: ", "nothing more happens. The strategy is OnDelete: 2 pods"]);
}

#[test]
fn a_daemonset_of_a_file_is_previewed_before_it_exists() {
    let sandbox = Sandbox::start(&["--nodes", "3"]);
    let file = sandbox.file("agent.json");
    let mut object = agent();
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "sandbox-node-2"});
    std::fs::write(&file, object.to_string()).unwrap();
    let planned = sandbox.plugin(&["plan", "-f", file.to_str().unwrap()]);
    has(
        &planned,
        0,
        &[
            "DaemonSet default/agent: it is created. 1 node; ",
            "create the pod on sandbox-node-2",
            "complete after",
        ],
    );
}

#[test]
fn without_the_nodes_nothing_is_previewed() {
    let sandbox = with_agent(1);
    let front = Front::start(sandbox.address(), |_, target| match target.contains("/api/v1/nodes") {
        true => Fate::Refuse(403, "cannot list nodes at all".to_owned()),
        false => Fate::Forward,
    });
    let planned = sandbox.plugin_through(&front, &["plan", "ds/agent", "--image=app:2"]);
    assert_eq!((planned.code, planned.out.as_str()), (Some(1), ""), "{planned:?}");
    assert!(planned.err.contains("cannot list nodes"), "{planned:?}");
}
