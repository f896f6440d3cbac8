//! DaemonSets and ControllerRevisions through the router (upstream `pkg/registry/apps/{daemonset,controllerrevision}`).

use super::*;

const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn daemon_set(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "registry.example/agent:v1"}]},
            },
        },
    })
}

fn controller_revision(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {"name": name},
        "revision": 1,
        "data": {"spec": {"template": {"$patch": "replace", "spec": {"nodeName": null, "containers": []}}}},
    })
}

fn template_generation(object: &Value) -> &Value {
    &object["metadata"]["annotations"][TEMPLATE_GENERATION]
}

#[tokio::test(start_paused = true)]
async fn a_minimal_daemon_set_gets_all_defaults() {
    let sandbox = sandbox();
    let mut object = daemon_set("agent");
    object["metadata"]["generation"] = json!(100);
    object["status"] = json!({"numberReady": 7, "collisionCount": 3});
    let created = sandbox.post(DAEMON_SETS, object).await.ok();
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["metadata"]["annotations"], json!({TEMPLATE_GENERATION: "1"}));
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
    assert_eq!(created["spec"]["updateStrategy"], rolling);
    assert_eq!(created["spec"]["revisionHistoryLimit"], 10);
    assert_eq!(created["spec"]["template"]["spec"]["restartPolicy"], "Always");
    let nothing = json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0,
                         "numberReady": 0});
    assert_eq!(created["status"], nothing, "a status is nothing to be created with");
    assert_eq!(sandbox.get(&format!("{DAEMON_SETS}/agent")).await.ok(), created);

    let mut by_hand = daemon_set("by-hand");
    by_hand["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    let created = sandbox.post(DAEMON_SETS, by_hand).await.ok();
    assert_eq!(created["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_object_is_refused_in_upstreams_words() {
    let sandbox = sandbox();
    let mut object = daemon_set("agent");
    object["spec"]["updateStrategy"] = json!({"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}});
    assert_eq!(
        sandbox.post(DAEMON_SETS, object).await.refused(422),
        "DaemonSet.apps \"agent\" is invalid: spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may \
         not be set when maxUnavailable is non-zero"
    );
    let mut object = daemon_set("agent");
    object["spec"]["replicas"] = json!(3);
    assert_eq!(
        sandbox.post(&format!("{DAEMON_SETS}?fieldValidation=Strict"), object).await.refused(400),
        "DaemonSet in version \"v1\" cannot be handled as a DaemonSet: strict decoding error: unknown field \
         \"spec.replicas\""
    );
    let mut object = daemon_set("agent");
    object["metadata"]["annotations"] = json!({TEMPLATE_GENERATION: "two"});
    assert_eq!(
        sandbox.post(DAEMON_SETS, object).await.refused(400),
        "DaemonSet in version \"v1\" cannot be handled as a DaemonSet: strconv.ParseInt: parsing \"two\": invalid \
         syntax"
    );
    sandbox.post(DAEMON_SETS, daemon_set("agent")).await.ok();
    let change = json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}});
    let message = sandbox.patch(&format!("{DAEMON_SETS}/agent"), MERGE, change).await.refused(422);
    assert!(message.contains("spec.selector: Invalid value: "), "{message}");
    assert!(message.contains("field is immutable"), "{message}");
    sandbox.get(&format!("{DAEMON_SETS}/agent/scale")).await.refused(404);
}

#[tokio::test(start_paused = true)]
async fn the_generation_follows_the_spec_and_that_of_the_template_the_template() {
    let sandbox = sandbox();
    let path = format!("{DAEMON_SETS}/agent");
    sandbox.post(DAEMON_SETS, daemon_set("agent")).await.ok();
    let annotated = json!({"metadata": {"annotations": {"a": "b", TEMPLATE_GENERATION: "77"}},
                           "status": {"numberReady": 9}});
    let patched = sandbox.patch(&path, MERGE, annotated).await.ok();
    assert_eq!((&patched["metadata"]["generation"], template_generation(&patched)), (&json!(1), &json!("1")));
    assert_eq!(patched["status"]["numberReady"], 0);

    let slower = sandbox.patch(&path, MERGE, json!({"spec": {"minReadySeconds": 5}})).await.ok();
    assert_eq!((&slower["metadata"]["generation"], template_generation(&slower)), (&json!(2), &json!("1")));

    let image =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "agent:v2"}]}}}});
    let changed = sandbox.patch(&path, STRATEGIC, image).await.ok();
    assert_eq!((&changed["metadata"]["generation"], template_generation(&changed)), (&json!(3), &json!("2")));

    let mut bare = changed;
    bare["metadata"] = json!({"name": "agent"});
    let kept = sandbox.put(&path, bare).await.ok();
    assert_eq!(kept["metadata"]["annotations"], json!({TEMPLATE_GENERATION: "2"}), "it cannot be taken away");

    let mut old = daemon_set("old");
    old["metadata"]["annotations"] = json!({TEMPLATE_GENERATION: "41"});
    assert_eq!(template_generation(&sandbox.post(DAEMON_SETS, old).await.ok()), "41");
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_apart() {
    let sandbox = sandbox();
    let path = format!("{DAEMON_SETS}/agent");
    let mut object = sandbox.post(DAEMON_SETS, daemon_set("agent")).await.ok();
    object["spec"]["minReadySeconds"] = json!(60);
    object["metadata"]["annotations"] = json!({"a": "b"});
    object["status"] = json!({"desiredNumberScheduled": 3, "numberReady": 2, "observedGeneration": 1,
                              "numberUnavailable": 0, "collisionCount": 1});
    let written = sandbox.put(&format!("{path}/status"), object).await.ok();
    assert_eq!(written["spec"]["minReadySeconds"], Value::Null);
    assert_eq!(written["metadata"]["annotations"], json!({"a": "b", TEMPLATE_GENERATION: "1"}));
    assert_eq!(
        written["status"],
        json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": 2,
               "observedGeneration": 1, "collisionCount": 1})
    );
    let fewer = json!({"status": {"collisionCount": 0}});
    let message = sandbox.patch(&format!("{path}/status"), MERGE, fewer).await.refused(422);
    assert!(message.ends_with("status.collisionCount: Invalid value: 0: cannot be decremented"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn the_data_of_a_revision_is_stored_byte_by_byte() {
    let sandbox = sandbox();
    let path = format!("{REVISIONS}/web-1");
    let mut object = controller_revision("web-1");
    object["data"]["spec"]["template"]["spec"]["args"] = json!(["a<b && c>d\u{2028}"]);
    let created = sandbox.post(REVISIONS, object.clone()).await.ok();
    assert_eq!(created["data"], object["data"], "nulls included");
    assert_eq!(created["metadata"]["generation"], Value::Null);
    assert_eq!(sandbox.get(&path).await.ok(), created);
    let response = sandbox.router().oneshot(Request::get(&path).body(Body::empty()).unwrap()).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains(r#"["a\u003cb \u0026\u0026 c\u003ed\u2028"]"#), "as Go writes it: {text}");

    let raised = sandbox.patch(&path, MERGE, json!({"revision": 5})).await.ok();
    assert_eq!((&raised["revision"], &raised["data"]), (&json!(5), &object["data"]));
    let mut edited = raised.clone();
    edited["data"]["spec"]["template"]["spec"]["containers"] = json!([{"name": "a"}]);
    let message = sandbox.put(&path, edited).await.refused(422);
    assert!(
        message.starts_with("ControllerRevision.apps \"web-1\" is invalid: data: Invalid value: {"),
        "{message}"
    );
    assert!(message.ends_with(": field is immutable"), "{message}");

    let mut without = controller_revision("web-2");
    without["data"] = Value::Null;
    assert_eq!(
        sandbox.post(REVISIONS, without).await.refused(422),
        "ControllerRevision.apps \"web-2\" is invalid: data: Required value: data is mandatory"
    );
}

#[tokio::test(start_paused = true)]
async fn both_kinds_are_listed_and_printed_as_tables() {
    let sandbox = sandbox();
    let mut object = daemon_set("agent");
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a", "disk": "ssd"});
    let created = sandbox.post(DAEMON_SETS, object).await.ok();
    let numbers = json!({"status": {"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
                                    "updatedNumberScheduled": 2, "numberAvailable": 1}});
    sandbox.patch(&format!("{DAEMON_SETS}/agent/status"), MERGE, numbers).await.ok();
    let table = sandbox.get_as(DAEMON_SETS, TABLE).await.ok();
    let names: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names.join(" ").to_uppercase(),
        "NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE SELECTOR AGE CONTAINERS IMAGES SELECTOR"
    );
    let row = json!([
        "agent",
        5,
        4,
        3,
        2,
        1,
        "disk=ssd,zone=a",
        "0s",
        "main",
        "registry.example/agent:v1",
        "app=agent"
    ]);
    assert_eq!(table["rows"][0]["cells"], row);

    let mut owned = controller_revision("agent-1");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent",
        "uid": created["metadata"]["uid"], "controller": true}]);
    sandbox.post(REVISIONS, owned).await.ok();
    sandbox.post(REVISIONS, labelled(controller_revision("orphan"), json!({"app": "x"}))).await.ok();
    let table = sandbox.get_as(REVISIONS, TABLE).await.ok();
    assert_eq!(table["rows"][0]["cells"], json!(["agent-1", "daemonset.apps/agent", 1, "0s"]));
    assert_eq!(table["rows"][1]["cells"], json!(["orphan", "<none>", 1, "0s"]));
    let selected = sandbox.get(&format!("{REVISIONS}?labelSelector=app%3Dx")).await.ok();
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    let resources = sandbox.get("/apis/apps/v1").await.ok();
    let found =
        resources["resources"].as_array().unwrap().iter().find(|row| row["name"] == "daemonsets").unwrap();
    assert_eq!((&found["shortNames"], &found["categories"]), (&json!(["ds"]), &json!(["all"])));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_a_policy_is_in_the_background_and_orphaning_waits() {
    let sandbox = sandbox();
    let path = format!("{DAEMON_SETS}/agent");
    sandbox.post(DAEMON_SETS, daemon_set("agent")).await.ok();
    sandbox.delete(&path).await.ok();
    sandbox.get(&path).await.refused(404);
    sandbox.post(DAEMON_SETS, daemon_set("agent")).await.ok();
    let marked = sandbox.delete(&format!("{path}?propagationPolicy=Orphan")).await.ok();
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
    // A PUT of a revision without a resourceVersion overwrites what is there.
    let mut revision = sandbox.post(REVISIONS, controller_revision("web-1")).await.ok();
    revision["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    revision["revision"] = json!(9);
    assert_eq!(sandbox.put(&format!("{REVISIONS}/web-1"), revision).await.ok()["revision"], 9);
}
