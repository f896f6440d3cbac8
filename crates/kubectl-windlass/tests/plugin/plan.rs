use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{DEPLOYMENTS, Ended, Sandbox};

const EVENTS: &str = "/api/v1/namespaces/default/events";

fn with_web() -> Sandbox {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    sandbox.web_reports("NewReplicaSetAvailable");
    sandbox
}

fn planned(sandbox: &Sandbox, args: &[&str]) -> Value {
    let ended = sandbox.plugin(&[&["plan", "web", "-o", "json"], args].concat());
    serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{ended:?}"))
}

#[test]
fn the_rollout_that_follows_takes_the_steps_that_were_foretold() {
    let sandbox = with_web();
    let plan = planned(&sandbox, &["--image", "app:2"]);
    assert_eq!((&plan["end"], &plan["changes"]), (&json!("complete"), &json!(["image app:1 -> app:2"])));
    let sizes: BTreeSet<(String, i64)> = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|step| step["replicaSets"].as_object().unwrap().clone())
        .map(|(name, size)| (name, size.as_i64().unwrap()))
        .collect();
    sandbox.set_image("app:2");
    sandbox.eventually(&format!("{DEPLOYMENTS}/web"), |web| {
        let status = &web["status"];
        status["observedGeneration"] == web["metadata"]["generation"]
            && status["updatedReplicas"] == 3
            && status["replicas"] == 3
            && status["availableReplicas"] == 3
    });
    // The sizes that the controller reported, from the events of the API alone.
    let scaled = |events: &Value| -> BTreeSet<(String, i64)> {
        let message = |event: &Value| Some(event["message"].as_str()?.to_owned());
        let size = |message: String| {
            let rest = message.split_once("replica set ")?.1.to_owned();
            let (name, _) = rest.split_once(' ')?;
            Some((name.to_owned(), rest.rsplit_once("to ")?.1.parse().ok()?))
        };
        events["items"].as_array().into_iter().flatten().filter_map(message).filter_map(size).collect()
    };
    let events = sandbox.eventually(EVENTS, |events| scaled(events).iter().any(|(_, size)| *size == 0));
    let reported = scaled(&events);
    // The new one begins at 0, which nobody reports.
    let foretold: BTreeSet<_> = sizes.into_iter().collect();
    assert!(reported.is_subset(&foretold), "reported {reported:?}, foretold {foretold:?}");
    assert_eq!(reported.len(), 7, "the first size of the old one, and three of each: {reported:?}");
}

#[test]
fn nothing_is_written_and_nobody_has_to_be_able_to_write() {
    let sandbox = with_web();
    let before = sandbox.get(&format!("{DEPLOYMENTS}/web"));
    let ended = sandbox.plugin(&["plan", "web", "--image", "app:2", "--replicas", "5", "--restart"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.out.contains("checked  by the server (dry run): the Deployment, one pod."), "{ended:?}");
    assert_eq!(sandbox.get(&format!("{DEPLOYMENTS}/web")), before);
    assert_eq!(sandbox.get("/api/v1/namespaces/default/pods")["items"].as_array().unwrap().len(), 3);
    let ended = sandbox.plugin(&["plan", "web", "--image", "app:2", "--server-dry-run=false"]);
    assert!(ended.out.contains("checked  by the server (dry run): nothing."), "{ended:?}");
}

#[test]
fn obstacles_end_with_five() {
    let sandbox = with_web();
    let code = |args: &[&str]| -> (Option<i32>, Ended) {
        let ended = sandbox.plugin(&[&["plan", "web"], args].concat());
        (ended.code, ended)
    };
    for (args, part) in [
        (&["--image", "app:2", "--assume", "broken"][..], "stuck: the progress deadline passes after"),
        (&["--image", "app:2", "--max-pods", "3"], "4 pods exist at the same time; --max-pods 3"),
        (&["--image", "app:2", "--strategy", "recreate", "--min-available", "1"], "has 0 available"),
    ] {
        let (code, ended) = code(args);
        assert!(code == Some(5) && ended.out.contains(part), "{ended:?}");
    }
    let (fine, ended) = code(&["--image", "app:2", "--max-pods", "4", "--min-available", "3"]);
    assert!(
        fine == Some(0) && ended.out.contains("broken   if no new pod gets ready: stops at step 1"),
        "{ended:?}"
    );
}

#[test]
fn a_change_that_the_server_refuses_is_an_error_and_a_wrong_flag_a_usage() {
    let sandbox = with_web();
    let ended = sandbox.plugin(&["plan", "web", "--image", "app:2", "--min-ready-seconds", "700"]);
    assert!(ended.code == Some(1) && ended.err.contains("progressDeadlineSeconds"), "{ended:?}");
    for (args, code, part) in [
        (&["web"][..], 2, "nothing to preview"),
        (&["web", "--max-surge", "0", "--max-unavailable", "0"], 2, "--max-surge and --max-unavailable"),
        (&["web", "--image", "proxy=app:2"], 1, "no container \"proxy\"; there are "),
        (&["web", "--to-revision", "7"], 1, "--to-revision: revision 7 is not in the history; it has 1"),
        (&["rc/old", "--image", "app:2"], 1, "rolling-update --dry-run"),
        (&["wbe", "--image", "app:2"], 1, "there is web"),
        (&["-f", "/nonexistent/x.yaml"], 1, "-f /nonexistent/x.yaml"),
    ] {
        let ended = sandbox.plugin(&[&["plan"], args].concat());
        assert!(ended.code == Some(code) && ended.err.contains(part), "{ended:?}");
    }
}

#[test]
fn each_deployment_of_a_file_is_previewed_and_the_others_are_named() {
    let sandbox = with_web();
    let mut web = sandbox.get(&format!("{DEPLOYMENTS}/web"));
    web["spec"]["replicas"] = 4.into();
    web["metadata"] = json!({"name": "web"});
    let mut new = web.clone();
    new["metadata"]["name"] = "api".into();
    new["metadata"]["namespace"] = "not-there-yet".into();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [web, service, new]});
    let file = sandbox.file("all.json");
    std::fs::write(&file, list.to_string()).unwrap();
    let ended = sandbox.plugin(&["plan", "-f", file.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.err, "not previewed: Service web\n");
    assert!(
        ended.out.contains("Deployment default/web: -f ") && ended.out.contains("4 replicas"),
        "{ended:?}"
    );
    assert!(ended.out.contains("Deployment not-there-yet/api: it is created"), "{ended:?}");
    assert!(ended.out.contains("Not judged: the Deployment by the server"), "{ended:?}");
}

#[test]
fn limits_of_the_namespace_are_judged() {
    let sandbox = with_web();
    let labels = sandbox.get(&format!("{DEPLOYMENTS}/web"))["spec"]["selector"]["matchLabels"].clone();
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"},
        "spec": {"hard": {"pods": "5"}}});
    let status = json!({"status": {"hard": {"pods": "5"}, "used": {"pods": "3"}}});
    sandbox.call("POST", "/api/v1/namespaces/default/resourcequotas", &quota);
    sandbox.call("PATCH", "/api/v1/namespaces/default/resourcequotas/pods/status", &status);
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": "100%", "selector": {"matchLabels": labels}}});
    sandbox.call("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget);
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"}, "spec": {"minReplicas": 2, "maxReplicas": 9,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    sandbox.call("POST", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", &autoscaler);
    let plan = planned(&sandbox, &["--image", "app:2", "--max-surge", "3"]);
    assert_eq!(plan["steps"][1]["refused"], 1, "{plan:#}");
    let quota = plan["quota"].to_string();
    assert!(quota.contains("pods: 2 of pods left") && quota.contains("1 of the new pods refused"), "{quota}");
    assert!(plan["disruptionBudgets"][0].as_str().unwrap().contains("allows no eviction"), "{plan:#}");
    assert_eq!(plan["autoscaler"], "web: 2 to 9 replicas");
}

#[test]
fn markdown_is_a_table() {
    let sandbox = with_web();
    let ended = sandbox.plugin(&["plan", "web", "--image", "app:2", "-o", "markdown"]);
    assert!(ended.out.contains("| STEP | AFTER | ") && ended.out.contains("\n|---|---|"), "{ended:?}");
    assert!(ended.out.starts_with("**Deployment default/web: image app:1 -> app:2. 3 replicas"), "{ended:?}");
}
