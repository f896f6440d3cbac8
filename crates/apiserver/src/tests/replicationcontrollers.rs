//! ReplicationControllers through the router: the strategy, the subresources, and the old default of
//! letting their pods go (upstream `pkg/registry/core/replicationcontroller`).

use super::*;

#[tokio::test(start_paused = true)]
async fn a_minimal_replication_controller_gets_all_defaults() {
    let sandbox = sandbox();
    let mut object = controller("web");
    object["metadata"]["generation"] = json!(100);
    object["status"] = json!({"replicas": 1, "observedGeneration": 10});
    let created = sandbox.post(CONTROLLERS, object).await.ok();
    assert_eq!(created["spec"]["replicas"], 1);
    assert_eq!(created["spec"]["selector"], json!({"app": "web"}));
    assert_eq!(created["metadata"]["labels"], json!({"app": "web"}));
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["status"], json!({"replicas": 0}), "a status is nothing to be created with");
    assert_eq!(sandbox.get(&format!("{CONTROLLERS}/web")).await.ok(), created);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_replication_controller_is_refused_in_the_words_of_the_core_group() {
    let sandbox = sandbox();
    let mut object = controller("web");
    object["spec"]["selector"] = json!({"app": "other"});
    assert_eq!(
        sandbox.post(CONTROLLERS, object).await.refused(422),
        "ReplicationController \"web\" is invalid: spec.template.metadata.labels: Invalid value: \
         {\"app\":\"web\"}: `selector` does not match template `labels`"
    );
    let mut object = controller("web");
    object["spec"]["template"] = Value::Null;
    assert_eq!(
        sandbox.post(CONTROLLERS, object).await.refused(422),
        "ReplicationController \"web\" is invalid: [spec.selector: Required value, spec.template: Required \
         value]"
    );
    sandbox.post(CONTROLLERS, controller("web")).await.ok();
    let taken = sandbox.post(CONTROLLERS, controller("web")).await.refused(409);
    assert_eq!(taken, "replicationcontrollers \"web\" already exists");
    sandbox.put(&format!("{CONTROLLERS}/nobody"), controller("nobody")).await.refused(404);
}

#[tokio::test(start_paused = true)]
async fn the_generation_follows_the_spec_and_status_is_written_apart() {
    let sandbox = sandbox();
    let path = format!("{CONTROLLERS}/web");
    sandbox.post(CONTROLLERS, controller("web")).await.ok();
    let annotated = json!({"metadata": {"annotations": {"a": "b"}}, "status": {"replicas": 9}});
    let patched = sandbox.patch(&path, MERGE, annotated).await.ok();
    assert_eq!((&patched["metadata"]["generation"], &patched["status"]["replicas"]), (&json!(1), &json!(0)));
    let grown = sandbox.patch(&path, STRATEGIC, json!({"spec": {"replicas": 2}})).await.ok();
    assert_eq!(grown["metadata"]["generation"], 2);
    let mut both = grown.clone();
    both["spec"]["replicas"] = json!(7);
    both["status"] = json!({"replicas": 2, "readyReplicas": 1, "observedGeneration": 2,
                            "conditions": [{"type": "ReplicaFailure", "status": "True"}]});
    let status = sandbox.put(&format!("{path}/status"), both.clone()).await.ok();
    assert_eq!(status["spec"]["replicas"], 2);
    assert_eq!(status["status"], both["status"]);
    assert_eq!(status["metadata"]["generation"], 2);
    let counted = json!({"status": {"replicas": 3, "terminatingReplicas": 1}});
    let unknown = sandbox.patch(&format!("{path}/status"), MERGE, counted).await;
    assert_eq!(unknown.warnings, ["299 - \"unknown field \\\"status.terminatingReplicas\\\"\""]);
    assert_eq!(unknown.ok()["status"]["terminatingReplicas"], Value::Null);
    let mut deaf = both;
    deaf["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    sandbox.put(&path, deaf).await.ok();
}

#[tokio::test(start_paused = true)]
async fn it_is_scaled_through_its_scale_and_its_selector_may_change() {
    let sandbox = sandbox();
    let path = format!("{CONTROLLERS}/web");
    let created = sandbox.post(CONTROLLERS, controller("web")).await.ok();
    let mut scale = sandbox.get(&format!("{path}/scale")).await.ok();
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(scale["spec"], json!({"replicas": 1}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "app=web"}));
    scale["spec"]["replicas"] = json!(12);
    assert_eq!(sandbox.put(&format!("{path}/scale"), scale.clone()).await.ok()["spec"]["replicas"], 12);
    scale["spec"]["replicas"] = json!(15);
    sandbox.put(&format!("{path}/scale"), scale).await.refused(409);
    let found = sandbox.get(&path).await.ok();
    assert_eq!((&found["spec"]["replicas"], &found["metadata"]["generation"]), (&json!(12), &json!(2)));
    let labels = json!({"app": "web", "shiny": "new"});
    let change = json!({"spec": {"selector": labels, "template": {"metadata": {"labels": labels}}}});
    let changed = sandbox.patch(&path, MERGE, change).await.ok();
    assert_eq!(changed["spec"]["selector"], labels);
    let scale = sandbox.get(&format!("{path}/scale")).await.ok();
    assert_eq!(scale["status"]["selector"], "app=web,shiny=new");
}

#[tokio::test(start_paused = true)]
async fn a_removed_selector_is_defaulted_from_the_template() {
    let sandbox = sandbox();
    let path = format!("{CONTROLLERS}/web");
    let created = sandbox.post(CONTROLLERS, controller("web")).await.ok();
    let emptied = sandbox.patch(&path, MERGE, json!({"spec": {"selector": null}})).await.ok();
    assert_eq!(emptied, created);
}

#[tokio::test(start_paused = true)]
async fn it_is_listed_by_labels_and_fields_and_printed_as_a_table() {
    let sandbox = sandbox();
    sandbox.post(CONTROLLERS, controller("a")).await.ok();
    sandbox.post(CONTROLLERS, controller("b")).await.ok();
    let names = |list: Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let of = |query: &str| format!("{CONTROLLERS}?{query}");
    assert_eq!(names(sandbox.get(&of("labelSelector=app%3Da")).await.ok()), ["a"]);
    assert_eq!(names(sandbox.get(&of("fieldSelector=status.replicas%3D0")).await.ok()), ["a", "b"]);
    assert_eq!(names(sandbox.get("/api/v1/replicationcontrollers").await.ok()), ["a", "b"]);
    let mut watch = sandbox.watch(&format!("{CONTROLLERS}?labelSelector=app%3Db")).await;
    assert_eq!(watch.next_name().await, event("ADDED", "b"));
    let table = sandbox.get_as(CONTROLLERS, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    let row = json!(["a", 1, 0, 0, "0s", "main", "registry.example/app:v1", "app=a"]);
    assert_eq!(table["rows"][0]["cells"], row);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_a_policy_orphans_the_pods() {
    let sandbox = sandbox();
    let path = format!("{CONTROLLERS}/web");
    sandbox.post(CONTROLLERS, controller("web")).await.ok();
    let marked = sandbox.delete(&path).await.ok();
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(marked["metadata"]["generation"], 2);
    assert_eq!(sandbox.delete(&path).await.ok(), marked);
    let foreground = sandbox.delete(&format!("{path}?propagationPolicy=Foreground")).await.ok();
    assert_eq!(foreground["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(sandbox.delete(&path).await.ok(), foreground, "what was asked for stays");
    let background = sandbox.delete(&format!("{path}?propagationPolicy=Background")).await.ok();
    assert_eq!(background["status"], "Success");
    sandbox.get(&path).await.refused(404);
    sandbox.post(CONTROLLERS, controller("web")).await.ok();
    sandbox.delete_with(&path, json!({"orphanDependents": false})).await.ok();
    sandbox.get(&path).await.refused(404);
}
