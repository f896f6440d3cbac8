use serde_json::{Value, json};

use crate::harness::{DEPLOYMENTS, Sandbox};

fn with_a_broken_rollout() -> Sandbox {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    sandbox.web_reports("NewReplicaSetAvailable");
    sandbox.set_image("app:broken");
    sandbox.eventually("/api/v1/namespaces/default/pods", |pods| {
        let waits = |pod: &Value| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        };
        pods["items"].as_array().into_iter().flatten().any(waits)
    });
    sandbox.eventually(&format!("{DEPLOYMENTS}/web"), |web| {
        web["status"]["observedGeneration"] == web["metadata"]["generation"]
            && web["status"]["updatedReplicas"] == 1
    });
    sandbox
}

#[test]
fn a_broken_rollout_is_explained_with_pods_numbers_and_advice() {
    let sandbox = with_a_broken_rollout();
    let ended = sandbox.plugin(&["explain", "deploy/web"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    for part in [
        "Deployment default/web, revision 2: waiting",
        "At most 4 pods may exist and 4 are desired, at least 3 must be available and 3 are",
        "3 old pods must stay",
        "ImagePullBackOff",
        "Back-off pulling image \"app:broken\"",
        "NEXT    the rollout continues when web-",
        "without progress, it counts as stuck at",
        "ACTS    windlass (last status write ",
        "TRY     kubectl windlass undo -n default deploy/web    (revision 1, image app:1)",
    ] {
        assert!(ended.out.contains(part), "{part:?} is not in\n{}", ended.out);
    }
}

#[test]
fn the_json_has_the_reasons_as_data_and_as_sentences() {
    let sandbox = with_a_broken_rollout();
    let ended = sandbox.plugin(&["explain", "web", "-o", "json"]);
    let value: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (&value["verdict"], &value["revision"], &value["kind"]),
        (&json!("waiting"), &json!(2), &json!("Deployment"))
    );
    let why = value["why"].as_array().unwrap();
    let budget = why.iter().find(|reason| reason["kind"] == "budget").unwrap();
    assert_eq!((&budget["most"], &budget["least"], &budget["up"]), (&json!(4), &json!(3), &json!(0)));
    assert!(budget["text"].as_str().unwrap().starts_with("At most 4 pods"));
    assert_eq!(value["pods"][0]["state"], "ImagePullBackOff");
    // Several objects are a list.
    sandbox.call("POST", DEPLOYMENTS, &{
        let mut other = sandbox.get(&format!("{DEPLOYMENTS}/web"));
        other["metadata"] = json!({"name": "api"});
        other["spec"]["selector"] = json!({"matchLabels": {"app": "api"}});
        other["spec"]["template"]["metadata"] = json!({"labels": {"app": "api"}});
        other
    });
    let both: Value = serde_json::from_str(&sandbox.plugin(&["explain", "-A", "-o", "json"]).out).unwrap();
    assert_eq!(both["items"].as_array().unwrap().len(), 2);
}

#[test]
fn without_a_controller_it_says_so() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    sandbox.create_web("app:1", &Value::Null);
    std::thread::sleep(std::time::Duration::from_millis(6100));
    let ended = sandbox.plugin(&["explain", "web"]);
    assert!(
        ended.out.contains("unobserved") && ended.out.contains("is a controller manager running?"),
        "{ended:?}"
    );
    let once = sandbox.plugin(&["status", "web", "--watch=false", "--ascii"]);
    assert_eq!(once.code, Some(4), "{once:?}");
    assert!(once.out.contains("no controller has observed generation 1"), "{once:?}");
}

#[test]
fn what_does_not_exist_is_named_with_what_is_alike() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    let error = |args: &[&str]| {
        let ended = sandbox.plugin(args);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        ended.err
    };
    assert_eq!(error(&["explain", "wbe"]), "error: deployment default/wbe does not exist; there is web\n");
    assert_eq!(error(&["status", "other"]), "error: deployment default/other does not exist\n");
    assert_eq!(
        error(&["explain", "web", "-n", "nowhere"]),
        "error: deployment web: namespace nowhere does not exist\n"
    );
    assert!(error(&["explain", "rs/web-1"]).contains("replicaset default/web-1 does not exist"));
    assert!(error(&["explain", "-l", "app=none"]).contains("no Deployment in namespace default is selected"));
    assert!(error(&["explain", "web", "--context", "x"]).contains("context \"x\" does not exist"));
}

#[test]
fn a_replica_set_and_a_pod_stand_for_their_owner() {
    let sandbox = Sandbox::start(&[]);
    sandbox.create_web("app:1", &Value::Null);
    sandbox.web_reports("NewReplicaSetAvailable");
    let first = |path: &str| {
        let all = sandbox.get(path);
        all["items"][0]["metadata"]["name"].as_str().unwrap().to_owned()
    };
    let set = first("/apis/apps/v1/namespaces/default/replicasets");
    let pod = first("/api/v1/namespaces/default/pods");
    for command in [&["explain"][..], &["status", "--watch=false"], &["history"]] {
        let of_web = sandbox.plugin(&[command, &["web"]].concat());
        let ended = sandbox.plugin(&[command, &[&format!("rs/{set}")]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.err, format!("note: rs/{set} is controlled by deploy/web\n"), "{ended:?}");
        let words = |text: &str| text.split_whitespace().next().map(str::to_owned);
        assert_eq!(words(&ended.out), words(&of_web.out), "{ended:?}");
        let ended = sandbox.plugin(&[command, &[&format!("pod/{pod}")]].concat());
        let text = format!("note: pod/{pod} is controlled by rs/{set}, which is controlled by deploy/web\n");
        assert_eq!((ended.code, ended.err), (Some(0), text));
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_named_with_its_address() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    let ended = sandbox.plugin(&["explain", "web", "--server=http://127.0.0.1:9"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let file = sandbox.file("kubeconfig");
    let said =
        format!("cannot reach http://127.0.0.1:9 (KUBECONFIG={}): Connection refused\n", file.display());
    assert!(ended.err.ends_with(&said) && !ended.err.contains("ServiceError"), "{ended:?}");
    let https = format!("--server=https://{}", sandbox.address());
    let ended = sandbox.plugin(&["list", "--context=windlass-sandbox", &https]);
    for part in ["cannot reach https://127.0.0.1", "context windlass-sandbox", "does not answer in TLS"] {
        assert!(ended.err.contains(part), "{part:?}: {ended:?}");
    }
}

#[test]
fn no_object_and_names_beside_a_selector_are_usage_errors() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    for command in ["explain", "status", "undo", "history"] {
        // Without a name these two list what there is.
        let lists = ["explain", "status"].contains(&command);
        let ended = sandbox.plugin(&[command]);
        assert_eq!(ended.code, Some(if lists { 0 } else { 2 }), "{command}: {ended:?}");
        let ended = sandbox.plugin(&[command, "web", "-l", "app=web"]);
        assert_eq!(ended.code, Some(2), "{command}: {ended:?}");
    }
}

#[test]
fn a_replication_controller_that_does_not_exist_is_named_with_what_is_alike() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    let body = json!({
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "backend"},
        "spec": {"replicas": 1, "selector": {"app": "b"}, "template": {
            "metadata": {"labels": {"app": "b"}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}}
    });
    sandbox.call("POST", "/api/v1/namespaces/default/replicationcontrollers", &body);
    for args in [&["explain", "rc/backed"][..], &["rolling-update", "backed", "--image=a:2"]] {
        let ended = sandbox.plugin(args);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let text = "replicationcontroller default/backed does not exist; there is backend";
        assert!(ended.err.contains(text), "{ended:?}");
        let ended = sandbox.plugin(&[args, &["-n", "nowhere"]].concat());
        assert!(
            ended.err.contains("replicationcontroller backed: namespace nowhere does not exist"),
            "{ended:?}"
        );
    }
}
