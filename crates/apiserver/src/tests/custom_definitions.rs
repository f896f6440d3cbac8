//! CustomResourceDefinitions: what they have the server serve, and their end.

use super::*;

fn condition(object: &Value, name: &str) -> (String, String) {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|one| one["type"] == name).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn pair(a: &str, b: &str) -> (String, String) {
    (a.to_owned(), b.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_definition_is_established_with_its_defaults() {
    let sandbox = with_widgets().await;
    let found = sandbox.get(&format!("{DEFINITIONS}/widgets.example.com")).await.ok();
    assert_eq!(condition(&found, "Established"), pair("True", "InitialNamesAccepted"));
    assert_eq!(condition(&found, "NamesAccepted"), pair("True", "NoConflicts"));
    assert_eq!(found["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(found["status"]["acceptedNames"]["listKind"], "WidgetList");
    assert_eq!(found["spec"]["names"]["singular"], "widget");
    assert_eq!(found["spec"]["conversion"], json!({"strategy": "None"}));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_definition_is_refused_with_the_path_of_each_field() {
    let sandbox = sandbox();
    let refused = async |pointer: &str, value: Value| {
        let mut wrong = definition(&widget_spec());
        *wrong.pointer_mut(pointer).unwrap() = value;
        sandbox.post(DEFINITIONS, wrong).await.refused(422)
    };
    let message = refused("/metadata/name", json!("widgets")).await;
    assert!(
        message.contains("metadata.name: Invalid value: \"widgets\": must be spec.names.plural"),
        "{message}"
    );
    let message = refused("/spec/versions/0/storage", json!(false)).await;
    assert!(message.contains("exactly one version marked as storage version"), "{message}");
    let message = refused("/spec/versions/0/schema/openAPIV3Schema/properties/spec", json!({})).await;
    assert!(message.contains("openAPIV3Schema.properties[spec].type: Required value"), "{message}");
    let pattern = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(((("}}});
    let message = refused("/spec/versions/0/schema/openAPIV3Schema/properties/spec", pattern).await;
    assert!(message.contains("must be a valid regular expression"), "{message}");
    sandbox.get(WIDGETS).await.refused(404);
}

#[tokio::test(start_paused = true)]
async fn scope_and_kind_of_an_established_definition_are_immutable() {
    let sandbox = with_widgets().await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let message = sandbox.patch(&path, MERGE, json!({"spec": {"scope": "Cluster"}})).await.refused(422);
    assert!(message.contains("spec.scope: Invalid value: \"Cluster\": field is immutable"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_name_in_use_is_not_accepted_until_its_owner_is_gone() {
    let sandbox = with_widgets().await;
    let mut other = definition(&widget_spec());
    other["metadata"]["name"] = json!("gadgets.example.com");
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget", "shortNames": ["wd"]});
    sandbox.post(DEFINITIONS, other).await.ok();
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let found = sandbox.get(&path).await.ok();
    assert_eq!(condition(&found, "NamesAccepted"), pair("False", "ShortNamesConflict"));
    assert_eq!(condition(&found, "Established"), pair("False", "NotAccepted"));
    sandbox.get("/apis/example.com/v1/gadgets").await.refused(404);
    sandbox.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.ok();
    assert_eq!(condition(&sandbox.get(&path).await.ok(), "Established").0, "True");
    sandbox.get("/apis/example.com/v1/gadgets").await.ok();
}

#[tokio::test(start_paused = true)]
async fn discovery_and_openapi_have_the_custom_kind_while_it_is_served() {
    let sandbox = with_widgets().await;
    let resources = sandbox.get("/apis/example.com/v1").await.ok();
    let names: Vec<&str> =
        resources["resources"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["widgets", "widgets/scale", "widgets/status"]);
    assert_eq!(sandbox.get("/apis/example.com").await.ok()["preferredVersion"]["version"], "v1");
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let groups = sandbox.get_as("/apis", accept).await.ok();
    let group =
        groups["items"].as_array().unwrap().iter().find(|one| one["metadata"]["name"] == "example.com");
    assert_eq!(group.unwrap()["versions"][0]["resources"][0]["shortNames"], json!(["wd"]));
    assert!(sandbox.served_kinds().iter().any(|kind| kind.kind == "Widget"));

    let url = async || {
        let index = sandbox.get("/openapi/v3").await.ok();
        index["paths"]["apis/example.com/v1"]["serverRelativeURL"].as_str().unwrap_or_default().to_owned()
    };
    let before = url().await;
    let document = sandbox.get(&before).await.ok();
    let schema = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(schema["properties"]["spec"]["properties"]["size"]["description"], "How large.");
    let reference = schema["properties"]["metadata"]["allOf"][0]["$ref"].as_str().unwrap();
    let name = reference.strip_prefix("#/components/schemas/").unwrap();
    assert!(document["components"]["schemas"][name]["properties"]["labels"].is_object());
    let patch = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/description", "value": "x"}]);
    sandbox.patch(&format!("{DEFINITIONS}/widgets.example.com"), JSON_PATCH, patch).await.ok();
    assert_ne!(url().await, before);

    sandbox.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.ok();
    sandbox.get("/apis/example.com/v1").await.refused(404);
    assert_eq!(url().await, "");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_definition_takes_its_objects_and_ends_their_watches() {
    let sandbox = with_widgets().await;
    sandbox.post(WIDGETS, widget("a", json!({"size": 1}))).await.ok();
    let request = Request::get(format!("{WIDGETS}?watch=true")).body(Body::empty()).unwrap();
    let response = sandbox.router().oneshot(request).await.unwrap();
    sandbox.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.ok();
    sandbox.get(&format!("{DEFINITIONS}/widgets.example.com")).await.refused(404);
    let events = response.into_body().collect().await.unwrap().to_bytes();
    let events = String::from_utf8(events.to_vec()).unwrap();
    let types: Vec<Value> =
        events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone()).collect();
    assert_eq!(types, ["ADDED", "DELETED"]);
    sandbox.get(WIDGETS).await.refused(404);

    let mut other = definition(&json!({"type": "object", "properties": {"colour": {"type": "string"}}}));
    other["spec"]["versions"][0]["subresources"] = json!({});
    sandbox.post(DEFINITIONS, other).await.ok();
    assert_eq!(sandbox.get(WIDGETS).await.ok()["items"], json!([]));
    let created = sandbox.post(WIDGETS, widget("a", json!({"colour": "red"}))).await.ok();
    assert_eq!(created["spec"], json!({"colour": "red"}));
}

#[tokio::test(start_paused = true)]
async fn an_object_with_a_finalizer_holds_its_definition() {
    let sandbox = with_widgets().await;
    let mut held = widget("a", json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    sandbox.post(WIDGETS, held).await.ok();
    let path = format!("{DEFINITIONS}/widgets.example.com");
    sandbox.delete(&path).await.ok();
    let found = sandbox.get(&path).await.ok();
    assert_eq!(condition(&found, "Terminating").0, "True");
    assert_eq!(found["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    sandbox.post(WIDGETS, widget("b", json!({"size": 1}))).await.refused(405);
    let free = json!({"metadata": {"finalizers": null}});
    sandbox.patch(&format!("{WIDGETS}/a"), MERGE, free).await.ok();
    sandbox.get(&path).await.refused(404);
}

#[tokio::test(start_paused = true)]
async fn a_deep_schema_is_refused_and_breaks_nothing() {
    let sandbox = sandbox();
    let mut deep = json!({"type": "string"});
    for _ in 0..50 {
        deep = json!({"type": "array", "items": deep});
    }
    sandbox.post(DEFINITIONS, definition(&deep)).await.refused(422);
    for _ in 0..50 {
        deep = json!({"type": "array", "items": deep});
    }
    sandbox.post(DEFINITIONS, definition(&deep)).await.refused(400);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn no_schema_and_no_custom_object_breaks_the_server(
        schema in writes::any_json(),
        body in writes::any_json(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let sandbox = sandbox();
            let answer = sandbox.post(DEFINITIONS, definition(&schema)).await;
            assert!(answer.code < 500, "{}", answer.body);
            let mut open = definition(&json!({"x-kubernetes-preserve-unknown-fields": true}));
            open["metadata"]["name"] = json!("opens.example.com");
            open["spec"]["names"] = json!({"plural": "opens", "kind": "Open"});
            sandbox.post(DEFINITIONS, open).await.ok();
            let collection = "/apis/example.com/v1/namespaces/default/opens";
            let mut object = widget("a", body.clone());
            object["kind"] = json!("Open");
            sandbox.post(collection, object).await.ok();
            for content_type in [MERGE, APPLY, JSON_PATCH] {
                let item = format!("{collection}/a?fieldManager=test");
                let answer = sandbox.patch(&item, content_type, json!({"spec": schema, "status": body})).await;
                assert!(answer.code < 500, "{}", answer.body);
            }
            sandbox.get_as(collection, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
            sandbox.get(&format!("{collection}/a/scale")).await;
            sandbox.delete(&format!("{DEFINITIONS}/opens.example.com")).await.ok();
        });
    }
}
