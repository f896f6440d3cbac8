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
fn the_name_of_a_new_replica_set_is_foretold_only_where_windlass_acts() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    sandbox.create_web("app:1", &Value::Null);
    let names = || -> Vec<String> {
        let plan = planned(&sandbox, &["--image", "app:2"]);
        let last = plan["steps"].as_array().unwrap().last().unwrap().clone();
        last["replicaSets"].as_object().unwrap().keys().cloned().collect()
    };
    let [foretold] = &names()[..] else { panic!("{:?}", names()) };
    assert!(foretold.starts_with("web-") && foretold != "web-HASH", "{foretold}");
    for (manager, expected) in [("windlass", foretold.as_str()), ("kube-controller-manager", "web-HASH")] {
        let entry = json!({"manager": manager, "operation": "Update", "subresource": "status", "fieldsType": "FieldsV1",
                           "apiVersion": "apps/v1", "time": "2026-01-01T00:00:00Z",
                           "fieldsV1": {"f:status": {"f:observedGeneration": {}}}});
        let body = json!({"metadata": {"managedFields": [entry]}, "status": {"observedGeneration": 1}});
        sandbox.call("PATCH", &format!("{DEPLOYMENTS}/web"), &body);
        assert_eq!(names(), [expected], "{manager}");
    }
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
        (&["rc/old", "--image", "app:2"], 1, "replicationcontroller default/old does not exist"),
        (&["rc/old", "--image", "app:2", "--restart"], 2, "--restart: a rolling update"),
        (&["rc/old", "--max-surge", "2"], 2, "--image: a rolling update"),
        (&["web", "--image", "app:2", "--update-period", "1s"], 2, "--update-period"),
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

/// The Deployment `web` as a file would have it that created it.
fn web_file(sandbox: &Sandbox, name: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": {"app": "web"}},
                         "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
        }
    });
    change(&mut web);
    let file = sandbox.file(name);
    std::fs::write(&file, web.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_file_is_compared_after_the_servers_defaults() {
    let sandbox = with_web();
    let same = web_file(&sandbox, "same.json", |_| {});
    let ended = sandbox.plugin(&["plan", "-f", &same]);
    assert!(ended.code == Some(0) && ended.out.contains("no change"), "{ended:?}");
    assert!(ended.out.contains("nothing to roll out"), "{ended:?}");
    let ended = sandbox.plugin(&["plan", "-f", &same, "--server-dry-run=false"]);
    assert!(ended.code == Some(0) && ended.out.contains("nothing to roll out"), "{ended:?}");
    let without_replicas = web_file(&sandbox, "size.json", |web| {
        web["spec"].as_object_mut().unwrap().remove("replicas");
    });
    let ended = sandbox.plugin(&["plan", "-f", &without_replicas]);
    assert!(ended.out.contains("3 replicas") && ended.out.contains("nothing to roll out"), "{ended:?}");
}

#[test]
fn a_key_that_occurs_twice_in_a_file_is_said() {
    let sandbox = with_web();
    let file = web_file(&sandbox, "web.json", |_| ());
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"replicas\":3", "\"replicas\":5,\"replicas\":3")).unwrap();
    let ended = sandbox.plugin(&["plan", "-f", &file]);
    let problem = "spec: the key \"replicas\" occurs twice in one mapping; the last one counts";
    assert_eq!((ended.code, ended.err), (Some(0), format!("warning: {file}: document 1: {problem}\n")));
    assert!(ended.out.contains("3 replicas"), "{}", ended.out);
}

#[test]
fn what_a_file_no_longer_has_is_removed() {
    let sandbox = with_web();
    let labelled = json!({"spec": {"template": {"metadata": {"annotations": {"a": "1"}}}}});
    sandbox.call("PATCH", &format!("{DEPLOYMENTS}/web"), &labelled);
    sandbox.web_reports("NewReplicaSetAvailable");
    let file = web_file(&sandbox, "web.json", |_| {});
    let ended = sandbox.plugin(&["plan", "-f", &file, "-o", "json"]);
    let plan: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(plan["changes"], json!([format!("-f {file}")]), "the annotation goes: {plan:#}");
    // Applied by kubectl, what others have set stays.
    let mut applied = sandbox.get(&format!("{DEPLOYMENTS}/web"));
    applied = json!({"spec": applied["spec"].take()});
    applied["spec"]["template"]["metadata"].as_object_mut().unwrap().remove("annotations");
    let annotation = json!({"kubectl.kubernetes.io/last-applied-configuration": applied.to_string()});
    sandbox.call("PATCH", &format!("{DEPLOYMENTS}/web"), &json!({"metadata": {"annotations": annotation}}));
    let ended = sandbox.plugin(&["plan", "-f", &file]);
    assert!(ended.out.contains("nothing to roll out"), "{ended:?}");
}

#[test]
fn one_refused_deployment_does_not_keep_the_others_from_being_previewed() {
    let sandbox = with_web();
    let bad = web_file(&sandbox, "bad.json", |web| {
        let mut refused = web.clone();
        refused["metadata"]["name"] = "refused".into();
        refused["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
        web["spec"]["replicas"] = 4.into();
        *web = json!({"apiVersion": "v1", "kind": "List", "items": [refused, web.clone()]});
    });
    let ended = sandbox.plugin(&["plan", "-f", &bad]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("deployment default/refused") && ended.err.contains("selector"), "{ended:?}");
    assert!(ended.out.contains("Deployment default/web: -f ") && ended.out.contains("complete"), "{ended:?}");
}

#[test]
fn a_file_that_is_not_built_as_a_deployment_is_refused_with_its_field() {
    let sandbox = with_web();
    for (field, value) in [("spec", json!("text")), ("strategy", json!("Recreate")), ("template", json!([1]))]
    {
        let file = web_file(&sandbox, "shape.json", |web| match field {
            "spec" => web["spec"] = value.clone(),
            field => web["spec"][field] = value.clone(),
        });
        let ended = sandbox.plugin(&["plan", "-f", &file, "--max-surge", "2"]);
        assert!(ended.code == Some(1) && ended.err.contains(field), "{ended:?}");
        assert!(ended.err.contains("must be a map"), "{ended:?}");
    }
}

#[test]
fn pods_that_the_server_refuses_are_an_obstacle_with_the_servers_reason() {
    let sandbox = with_web();
    let post = |kind: &str, spec: Value| {
        let path = format!("/api/v1/namespaces/default/{kind}");
        sandbox.call("POST", &path, &json!({"metadata": {"name": "x"}, "spec": spec}));
    };
    let delete = |kind: &str| {
        sandbox.call("DELETE", &format!("/api/v1/namespaces/default/{kind}/x"), &Value::Null);
    };
    let refused = |reason: &str| {
        let ended = sandbox.plugin(&["plan", "web", "--image", "app:2"]);
        assert_eq!(ended.code, Some(5), "{ended:?}");
        let line = ended.out.lines().find(|line| line.starts_with("refused ")).unwrap_or_default();
        assert!(line.contains(reason), "{reason} is not in {ended:?}");
        assert!(ended.out.contains("stuck: the progress deadline passes"), "{ended:?}");
    };
    let limits =
        json!([{"type": "Container", "min": {"cpu": "10m"}, "maxLimitRequestRatio": {"memory": "2"}}]);
    post("limitranges", json!({"limits": limits}));
    refused("each new pod, by the server: memory max limit to request ratio per Container is 2");
    delete("limitranges");
    post("resourcequotas", json!({"hard": {"limits.cpu": "4"}}));
    refused("each new pod, by the server: failed quota: x: must specify limits.cpu for: app");
    // Where the pods exist already, nothing is refused.
    let ended = sandbox.plugin(&["plan", "web", "--replicas", "2"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    delete("resourcequotas");
    // A quota that is used up and becomes free again is judged step by step.
    post("resourcequotas", json!({"hard": {"pods": "3"}}));
    let ended =
        sandbox.plugin(&["plan", "web", "--image", "app:2", "--max-surge", "0", "--max-unavailable", "1"]);
    assert!(ended.code == Some(0) && ended.out.contains("exceeded quota: x"), "{ended:?}");
    let ended = sandbox.plugin(&["plan", "web", "--image", "app:2"]);
    assert!(ended.code == Some(5) && ended.out.contains("x: 0 of pods left"), "{ended:?}");
}

#[test]
fn a_quota_of_replica_sets_is_an_obstacle_for_a_new_template_only() {
    let sandbox = with_web();
    let quota = json!({"metadata": {"name": "sets"}, "spec": {"hard": {"count/replicasets.apps": "1"}}});
    sandbox.call("POST", "/api/v1/namespaces/default/resourcequotas", &quota);
    let ended = sandbox.plugin(&["plan", "web", "--image", "app:2"]);
    assert!(ended.code == Some(5) && ended.out.contains("the new ReplicaSet is refused"), "{ended:?}");
    let ended = sandbox.plugin(&["plan", "web", "--replicas", "4"]);
    assert!(ended.code == Some(0) && !ended.out.contains("refused"), "{ended:?}");
}

#[test]
fn a_rolling_update_takes_the_sizes_that_were_foretold() {
    let sandbox = Sandbox::start(&[]);
    let controllers = "/api/v1/namespaces/default/replicationcontrollers";
    let body = json!({"metadata": {"name": "old"}, "spec": {"replicas": 3, "selector": {"app": "old"}, "template": {
        "metadata": {"labels": {"app": "old"}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}}});
    sandbox.call("POST", controllers, &body);
    sandbox.eventually(&format!("{controllers}/old"), |old| old["status"]["availableReplicas"] == 3);
    let ended = sandbox.plugin(&["plan", "rc/old", "--image", "app:2", "-o", "json", "--update-period", "0"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let plan: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(sandbox.get(controllers)["items"].as_array().unwrap().len(), 1, "nothing is written");
    assert_eq!((&plan["changes"], &plan["end"]), (&json!(["image app:1 -> app:2"]), &json!("complete")));
    let sizes = |old: &str| -> Vec<(i64, i64)> {
        let mut sizes: Vec<(i64, i64)> = Vec::new();
        for step in plan["steps"].as_array().unwrap() {
            let size = |is_old: bool| {
                let all = step["replicaSets"].as_object().unwrap().iter();
                all.filter(|(name, _)| (*name == old) == is_old)
                    .map(|(_, size)| size.as_i64().unwrap())
                    .sum::<i64>()
            };
            let both = (size(true), size(false));
            if sizes.last() != Some(&both) {
                sizes.push(both);
            }
        }
        sizes
    };
    let quick = ["--update-period=0", "--poll-interval=100ms"];
    let ended = sandbox.plugin(&[&["rolling-update", "old", "new", "--image=app:2"], &quick[..]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut now = (3, 0);
    let mut taken = vec![now];
    for line in ended.out.lines().filter_map(|line| line.strip_prefix("Scaling ")) {
        let to: i64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
        if line.starts_with("old ") {
            now.0 = to
        } else {
            now.1 = to
        }
        taken.push(now);
    }
    assert_eq!(taken, sizes("old"));
    let ended = sandbox.plugin(&["plan", "rc/new", "--image", "app:3", "--assume", "broken"]);
    assert!(ended.code == Some(5) && ended.out.contains("stuck: no progress any more after"), "{ended:?}");
}

#[test]
fn limits_of_the_namespace_are_judged() {
    let sandbox = with_web();
    let labels = sandbox.get(&format!("{DEPLOYMENTS}/web"))["spec"]["selector"]["matchLabels"].clone();
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"},
        "spec": {"hard": {"pods": "5"}}});
    sandbox.call("POST", "/api/v1/namespaces/default/resourcequotas", &quota);
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
