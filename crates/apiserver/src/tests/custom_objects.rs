//! Objects of custom kinds.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_custom_object_is_pruned_defaulted_and_validated() {
    let sandbox = with_widgets().await;
    let unknown = widget("a", json!({"size": 1, "sise": 2}));
    let answer = sandbox.post(&format!("{WIDGETS}?fieldValidation=Warn"), unknown.clone()).await;
    assert_eq!(answer.warnings, ["299 - \"unknown field \\\"spec.sise\\\"\""]);
    let created = answer.ok();
    assert_eq!(created["spec"], json!({"size": 1, "mode": "plain"}));
    assert_eq!(created["metadata"]["generation"], 1);
    let message = sandbox.post(&format!("{WIDGETS}?fieldValidation=Strict"), unknown).await.refused(400);
    assert!(message.ends_with("strict decoding error: unknown field \"spec.sise\""), "{message}");
    let answer = sandbox.post(WIDGETS, widget("b", json!({"mode": "odd", "tags": ["x", "x"]}))).await;
    let causes: Vec<Value> = answer.body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cause| json!([cause["field"], cause["reason"]]))
        .collect();
    let expected = json!([
        ["spec.mode", "FieldValueNotSupported"],
        ["spec.tags[1]", "FieldValueDuplicate"],
        ["spec.size", "FieldValueRequired"],
    ]);
    assert_eq!(json!(causes), expected);
    answer.refused(422);
}

#[tokio::test(start_paused = true)]
async fn the_generation_counts_changes_of_the_spec_and_the_status_has_its_own_path() {
    let sandbox = with_widgets().await;
    let mut object = widget("a", json!({"size": 1}));
    object["status"] = json!({"size": 7});
    let created = sandbox.post(WIDGETS, object).await.ok();
    assert_eq!(created["status"], Value::Null);
    let path = format!("{WIDGETS}/a");
    let labelled = sandbox.patch(&path, MERGE, json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    assert_eq!(labelled["metadata"]["generation"], 1);
    let patch = json!({"status": {"size": 1}, "spec": {"size": 5}, "metadata": {"labels": {"a": "c"}}});
    let status = sandbox.patch(&format!("{path}/status"), MERGE, patch).await.ok();
    assert_eq!((&status["status"]["size"], &status["spec"]["size"]), (&json!(1), &json!(1)));
    assert_eq!(status["metadata"]["labels"], json!({"a": "b"}));
    let patch = json!([{"op": "replace", "path": "/spec/size", "value": 2}]);
    let changed = sandbox.patch(&path, JSON_PATCH, patch).await.ok();
    assert_eq!((&changed["metadata"]["generation"], &changed["status"]["size"]), (&json!(2), &json!(1)));
    sandbox.patch(&path, STRATEGIC, json!({"spec": {"size": 3}})).await.refused(415);
    let mut blind = changed;
    blind["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    sandbox.put(&path, blind).await.refused(422);
}

#[tokio::test(start_paused = true)]
async fn a_custom_object_can_be_scaled() {
    let sandbox = with_widgets().await;
    sandbox.post(WIDGETS, widget("a", json!({"size": 1}))).await.ok();
    let status = json!({"status": {"size": 1, "selector": "app=a"}});
    sandbox.patch(&format!("{WIDGETS}/a/status"), MERGE, status).await.ok();
    let scale = format!("{WIDGETS}/a/scale");
    let found = sandbox.get(&scale).await.ok();
    assert_eq!(
        (&found["spec"]["replicas"], &found["status"]),
        (&json!(1), &json!({"replicas": 1, "selector": "app=a"}))
    );
    sandbox.patch(&scale, MERGE, json!({"spec": {"replicas": 4}})).await.ok();
    assert_eq!(sandbox.get(&format!("{WIDGETS}/a")).await.ok()["spec"]["size"], 4);
    let message = sandbox.patch(&scale, MERGE, json!({"spec": {"replicas": 40}})).await.refused(422);
    assert!(message.contains("spec.size in body should be less than or equal to 9"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn tables_have_the_printer_columns_and_lists_their_kind() {
    let sandbox = with_widgets().await;
    sandbox.post(WIDGETS, widget("a", json!({"size": 3}))).await.ok();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    sandbox.patch(&format!("{WIDGETS}/a/status"), MERGE, ready).await.ok();
    let table = sandbox.get_as(WIDGETS, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    let names: Vec<&Value> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
    assert_eq!(names, ["Name", "Size", "Ready"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3, "True"]));
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    assert_eq!(sandbox.get_as(WIDGETS, accept).await.ok()["items"][0]["metadata"]["name"], "a");
    let selected = sandbox.get(&format!("{WIDGETS}?fieldSelector=metadata.name=b")).await.ok();
    assert_eq!((&selected["kind"], &selected["items"]), (&json!("WidgetList"), &json!([])));
    assert_eq!(sandbox.objects("widgets.example.com").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_definition_with_a_column_that_cannot_be_read_is_taken_and_prints_the_columns_before_it() {
    let sandbox = sandbox();
    let mut odd = definition(&widget_spec());
    odd["spec"]["versions"][0]["additionalPrinterColumns"][1]["jsonPath"] = json!("...");
    sandbox.post(DEFINITIONS, odd).await.ok();
    sandbox.post(WIDGETS, widget("a", json!({"size": 3}))).await.ok();
    let table = sandbox.get_as(WIDGETS, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3]));
}

#[tokio::test(start_paused = true)]
async fn a_custom_object_can_be_applied_and_its_sets_are_merged() {
    let sandbox = with_widgets().await;
    let apply = async |manager: &str, spec: Value| {
        sandbox.patch(&format!("{WIDGETS}/a?fieldManager={manager}"), APPLY, widget("a", spec)).await
    };
    assert_eq!(apply("ci", json!({"size": 1, "tags": ["x"]})).await.code, 201);
    let merged = apply("ops", json!({"tags": ["y"]})).await.ok();
    assert_eq!(merged["spec"], json!({"size": 1, "mode": "plain", "tags": ["x", "y"]}));
    let message = apply("ops", json!({"size": 2, "tags": ["y"]})).await.refused(409);
    assert_eq!(message, "Apply failed with 1 conflict: conflict with \"ci\": .spec.size");
}

#[tokio::test(start_paused = true)]
async fn every_served_version_shows_the_same_objects() {
    let sandbox = sandbox();
    let mut two = definition(&widget_spec());
    let mut beta = two["spec"]["versions"][0].clone();
    beta["name"] = json!("v1beta1");
    beta["storage"] = json!(false);
    two["spec"]["versions"].as_array_mut().unwrap().insert(0, beta);
    sandbox.post(DEFINITIONS, two).await.ok();
    let old = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let mut object = widget("a", json!({"size": 1}));
    object["apiVersion"] = json!("example.com/v1beta1");
    assert_eq!(sandbox.post(old, object).await.ok()["apiVersion"], "example.com/v1beta1");
    assert_eq!(sandbox.get(&format!("{WIDGETS}/a")).await.ok()["apiVersion"], "example.com/v1");
    let patched = sandbox.patch(&format!("{old}/a"), MERGE, json!({"spec": {"size": 2}})).await.ok();
    assert_eq!(
        (&patched["apiVersion"], &patched["spec"]["size"]),
        (&json!("example.com/v1beta1"), &json!(2))
    );
    assert_eq!(sandbox.get("/apis/example.com").await.ok()["preferredVersion"]["version"], "v1");
}

#[tokio::test(start_paused = true)]
async fn a_custom_kind_may_have_the_name_of_a_built_in_one() {
    let sandbox = sandbox();
    let mut pods = definition(&json!({"type": "object", "properties": {"size": {"type": "integer"}}}));
    pods["metadata"]["name"] = json!("pods.example.com");
    pods["spec"]["names"] = json!({"plural": "pods", "kind": "Pod"});
    pods["spec"]["scope"] = json!("Cluster");
    sandbox.post(DEFINITIONS, pods).await.ok();
    let object = json!({"apiVersion": "example.com/v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"size": 1}});
    let created = sandbox.post("/apis/example.com/v1/pods", object).await.ok();
    assert_eq!(created["spec"], json!({"size": 1}));
    assert_eq!(sandbox.get("/api/v1/pods").await.ok()["items"], json!([]));
    sandbox.delete("/apis/example.com/v1/pods/a").await.ok();
    sandbox.get("/apis/example.com/v1/pods/a").await.refused(404);
}
