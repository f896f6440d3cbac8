//! Server-side apply as its clients see it.

use super::*;

/// A configuration of the Deployment `web`, with what `spec` adds to the least that is valid.
fn configuration(spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "app", "image": "registry.example/app:v1"}]},
            },
        },
    });
    json_patch::merge(&mut object, &json!({ "spec": spec }));
    object
}

async fn apply(sandbox: &Sandbox, manager: &str, config: Value) -> Answer {
    sandbox.patch(&format!("{DEPLOYMENTS}/web?fieldManager={manager}"), APPLY, config).await
}

/// Manager, operation and fields of each entry.
fn owners(object: &Value) -> Vec<(String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let entry =
        |entry: &Value| (text(&entry["manager"]), text(&entry["operation"]), entry["fieldsV1"].clone());
    entries.iter().map(entry).collect()
}

#[tokio::test(start_paused = true)]
async fn what_does_not_exist_is_created_by_an_apply_and_owned_by_its_author() {
    let sandbox = sandbox();
    let answer = apply(&sandbox, "ci", configuration(&json!({"replicas": 2}))).await;
    assert_eq!(answer.code, 201);
    let created = answer.ok();
    assert_eq!((&created["spec"]["replicas"], &created["metadata"]["generation"]), (&json!(2), &json!(1)));
    let fields = json!({
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {".": {}, "f:image": {}, "f:name": {}}}},
            },
        },
    });
    assert_eq!(owners(&created), [("ci".to_owned(), "Apply".to_owned(), fields)]);
}

#[tokio::test(start_paused = true)]
async fn the_same_configuration_once_more_writes_nothing() {
    let sandbox = sandbox();
    let config = configuration(&json!({"replicas": 2}));
    let created = apply(&sandbox, "ci", config.clone()).await.ok();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(apply(&sandbox, "ci", config).await.ok(), created);
}

#[tokio::test(start_paused = true)]
async fn a_field_of_another_owner_is_a_conflict_unless_the_value_is_the_same_or_it_is_forced() {
    let sandbox = sandbox();
    apply(&sandbox, "ci", configuration(&json!({"replicas": 2}))).await.ok();
    apply(&sandbox, "ops", configuration(&json!({"replicas": 2}))).await.ok();
    let refused = apply(&sandbox, "ops", configuration(&json!({"replicas": 3}))).await;
    let causes = refused.body["details"]["causes"].clone();
    let message = refused.refused(409);
    assert_eq!(message, "Apply failed with 1 conflict: conflict with \"ci\": .spec.replicas");
    let cause = json!([{"reason": "FieldManagerConflict", "message": "conflict with \"ci\"", "field": ".spec.replicas"}]);
    assert_eq!(causes, cause);
    let forced = apply(&sandbox, "ops&force=true", configuration(&json!({"replicas": 3}))).await.ok();
    assert_eq!(forced["spec"]["replicas"], 3);
    let owns_size = |object: &Value, manager: &str| {
        let all = owners(object);
        all.iter().any(|(name, _, fields)| name == manager && fields.pointer("/f:spec/f:replicas").is_some())
    };
    assert!(owns_size(&forced, "ops") && !owns_size(&forced, "ci"));
}

#[tokio::test(start_paused = true)]
async fn several_conflicts_are_told_by_owner() {
    let sandbox = sandbox();
    apply(&sandbox, "ci", configuration(&json!({"replicas": 2, "minReadySeconds": 1}))).await.ok();
    let other = configuration(&json!({"replicas": 3, "minReadySeconds": 2}));
    let message = apply(&sandbox, "ops", other).await.refused(409);
    let expected =
        "Apply failed with 2 conflicts: conflicts with \"ci\":\n- .spec.minReadySeconds\n- .spec.replicas";
    assert_eq!(message, expected);
}

#[tokio::test(start_paused = true)]
async fn a_field_that_is_no_longer_applied_goes_unless_another_owns_it() {
    let sandbox = sandbox();
    let labels = |config: Value, labels: Value| labelled(config, labels);
    apply(&sandbox, "ci", labels(configuration(&json!({})), json!({"a": "1", "b": "1"}))).await.ok();
    apply(&sandbox, "ops", labels(configuration(&json!({})), json!({"b": "1"}))).await.ok();
    let left = apply(&sandbox, "ci", configuration(&json!({}))).await.ok();
    assert_eq!(left["metadata"]["labels"], json!({"b": "1"}));
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_takes_the_items_of_another_owner_away() {
    let sandbox = sandbox();
    let with = |args: Value| {
        let container = json!({"name": "app", "image": "registry.example/app:v1", "args": args});
        configuration(&json!({"template": {"spec": {"containers": [container]}}}))
    };
    apply(&sandbox, "ci", with(json!(["a"]))).await.ok();
    assert_eq!(apply(&sandbox, "ops", with(json!([]))).await.code, 409);
    let new = apply(&sandbox, "ops&force=true", with(json!([]))).await.ok();
    assert_eq!(new.pointer("/spec/template/spec/containers/0/args"), None);
}

#[tokio::test(start_paused = true)]
async fn a_size_that_is_no_longer_applied_falls_back_to_its_default() {
    let sandbox = sandbox();
    apply(&sandbox, "ci", configuration(&json!({"replicas": 3}))).await.ok();
    assert_eq!(apply(&sandbox, "ci", configuration(&json!({}))).await.ok()["spec"]["replicas"], 1);
}

#[tokio::test(start_paused = true)]
async fn containers_of_other_owners_stay_and_ours_go_when_they_are_dropped() {
    let sandbox = sandbox();
    let with = |names: &[&str]| {
        let containers: Vec<Value> =
            names.iter().map(|name| json!({"name": name, "image": "registry.example/app:v1"})).collect();
        configuration(&json!({"template": {"spec": {"containers": containers}}}))
    };
    let names = |object: &Value| -> Vec<String> {
        let containers = object["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap();
        containers.iter().map(|container| container["name"].as_str().unwrap().to_owned()).collect()
    };
    apply(&sandbox, "ci", with(&["app", "log"])).await.ok();
    let both = apply(&sandbox, "mesh", with(&["proxy"])).await.ok();
    assert_eq!(names(&both), ["app", "log", "proxy"]);
    let left = apply(&sandbox, "ci", with(&["app"])).await.ok();
    assert_eq!(names(&left), ["app", "proxy"]);
}

#[tokio::test(start_paused = true)]
async fn an_update_takes_what_it_changes_and_only_that() {
    let sandbox = sandbox();
    apply(&sandbox, "ci", configuration(&json!({"replicas": 2}))).await.ok();
    let path = format!("{DEPLOYMENTS}/web?fieldManager=kubectl-edit");
    let edited = sandbox.patch(&path, MERGE, json!({"spec": {"replicas": 5}})).await.ok();
    let edit = ("kubectl-edit".to_owned(), "Update".to_owned(), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(owners(&edited).last(), Some(&edit));
    let message = apply(&sandbox, "ci", configuration(&json!({"replicas": 2}))).await.refused(409);
    let expected =
        "Apply failed with 1 conflict: conflict with \"kubectl-edit\" using apps/v1: .spec.replicas";
    assert_eq!(message, expected);
    // A manager that no longer names the field gives it up.
    let given_up = apply(&sandbox, "ci", configuration(&json!({}))).await.ok();
    assert_eq!(given_up["spec"]["replicas"], 5);
}

/// Creates the Deployment `web` as kubectl does: its replicas, and how kubectl calls itself.
async fn create(sandbox: &Sandbox, manager: &str, object: Value) -> Value {
    sandbox.post(&format!("{DEPLOYMENTS}?fieldManager={manager}"), object).await.ok()
}

#[tokio::test(start_paused = true)]
async fn who_creates_an_object_owns_its_fields_and_is_named_without_a_time() {
    let sandbox = sandbox();
    let created = create(&sandbox, "kubectl-create", configuration(&json!({"replicas": 2}))).await;
    let owned = owners(&created);
    assert_eq!((owned.len(), owned[0].0.as_str(), owned[0].1.as_str()), (1, "kubectl-create", "Update"));
    assert!(owned[0].2.pointer("/f:spec/f:progressDeadlineSeconds").is_some(), "{owned:?}");
    let message = apply(&sandbox, "ci", configuration(&json!({"replicas": 3}))).await.refused(409);
    let expected =
        "Apply failed with 1 conflict: conflict with \"kubectl-create\" using apps/v1: .spec.replicas";
    assert_eq!(message, expected);
    // A PUT that creates, and a client that does not say what it is called.
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {"holderIdentity": "x"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
    assert_eq!(owners(&sandbox.put(path, lease).await.ok())[0].0, "unknown");
}

#[tokio::test(start_paused = true)]
async fn what_a_controller_owns_is_tracked_from_its_first_apply_on() {
    let sandbox = sandbox();
    let mut object = configuration(&json!({"replicas": 2}));
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Shop", "name": "a", "uid": "u", "controller": true}]);
    let created = create(&sandbox, "operator", object).await;
    assert_eq!(created["metadata"].get("managedFields"), None);
    let message = apply(&sandbox, "ci", configuration(&json!({"replicas": 3}))).await.refused(409);
    let expected =
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using apps/v1: .spec.replicas";
    assert_eq!(message, expected);
    let applied = apply(&sandbox, "ci", configuration(&json!({"replicas": 2}))).await.ok();
    assert_eq!(owners(&applied).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn kubectl_may_apply_on_the_server_what_it_has_applied_without_it_unless_it_was_changed_since() {
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let sandbox = sandbox();
    let mut object = configuration(&json!({"replicas": 2, "minReadySeconds": 1}));
    object["metadata"]["annotations"] = json!({LAST_APPLIED: object.to_string()});
    create(&sandbox, "kubectl-client-side-apply", object).await;
    let path = format!("{DEPLOYMENTS}/web?fieldManager=kubectl-edit");
    sandbox.patch(&path, MERGE, json!({"spec": {"minReadySeconds": 5}})).await.ok();
    let both = configuration(&json!({"replicas": 3, "minReadySeconds": 2}));
    let edited =
        "Apply failed with 1 conflict: conflict with \"kubectl-edit\" using apps/v1: .spec.minReadySeconds";
    assert_eq!(apply(&sandbox, "kubectl", both.clone()).await.refused(409), edited);
    let message = apply(&sandbox, "ci", both).await.refused(409);
    assert!(message.contains("\"kubectl-client-side-apply\" using apps/v1:\n- .spec.replicas"), "{message}");
    let config = configuration(&json!({"replicas": 3}));
    let applied = apply(&sandbox, "kubectl", config.clone()).await.ok();
    assert_eq!(applied["spec"]["replicas"], 3);
    assert_eq!(applied["metadata"]["annotations"][LAST_APPLIED], format!("{config}\n"));
}

#[tokio::test(start_paused = true)]
async fn a_status_is_applied_apart_from_the_rest() {
    let sandbox = sandbox();
    apply(&sandbox, "ci", configuration(&json!({"replicas": 2}))).await.ok();
    let condition = json!({"type": "Seen", "status": "True", "reason": "A", "message": "b",
        "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let mut config = configuration(&json!({"replicas": 7}));
    config["status"] = json!({"conditions": [condition]});
    let path = format!("{DEPLOYMENTS}/web/status?fieldManager=probe");
    let applied = sandbox.patch(&path, APPLY, config).await.ok();
    assert_eq!(
        (&applied["spec"]["replicas"], &applied["status"]["conditions"][0]["type"]),
        (&json!(2), &json!("Seen"))
    );
    let entries = applied["metadata"]["managedFields"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["manager"] == "probe" && entry["subresource"] == "status"));
}

#[tokio::test(start_paused = true)]
async fn a_configuration_may_be_yaml() {
    let sandbox = sandbox();
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  key: value\n";
    let path = "/api/v1/namespaces/default/configmaps/a?fieldManager=ci";
    let request = Request::patch(path).header("content-type", APPLY).body(Body::from(yaml)).unwrap();
    assert_eq!(sandbox.send(request).await.ok()["data"], json!({"key": "value"}));
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_cannot_be_meant_is_refused_with_the_reason() {
    let sandbox = sandbox();
    let path = format!("{DEPLOYMENTS}/web");
    let nameless = sandbox.patch(&path, APPLY, configuration(&json!({}))).await.refused(422);
    assert!(nameless.contains("fieldManager: Required value: is required for apply patch"), "{nameless}");
    let mut owned = configuration(&json!({}));
    owned["metadata"]["managedFields"] = json!([{}]);
    assert_eq!(apply(&sandbox, "ci", owned).await.refused(400), "metadata.managedFields must be nil");
    let twice = json!([{"name": "a", "image": "x"}, {"name": "a", "image": "y"}]);
    let twice = configuration(&json!({"template": {"spec": {"containers": twice}}}));
    let message = apply(&sandbox, "ci", twice).await.refused(500);
    assert!(message.contains("duplicate entries for key"), "{message}");
    let strict = configuration(&json!({"replica": 1}));
    let path = format!("{DEPLOYMENTS}/web?fieldManager=ci&fieldValidation=Strict");
    let unknown = sandbox.patch(&path, APPLY, strict).await.refused(500);
    assert!(unknown.ends_with(".spec.replica: field not declared in schema"), "{unknown}");
    let forced = sandbox.patch(&format!("{path}&force=true"), MERGE, json!({})).await.refused(422);
    assert!(forced.contains("may not be specified for non-apply patch"), "{forced}");
    let stale = {
        apply(&sandbox, "ci", configuration(&json!({}))).await.ok();
        let mut config = configuration(&json!({"replicas": 4}));
        config["metadata"]["resourceVersion"] = json!("1");
        apply(&sandbox, "ci", config).await
    };
    stale.refused(409);
}

#[tokio::test(start_paused = true)]
async fn an_apply_creates_what_is_gone_whatever_revision_it_had() {
    let sandbox = sandbox();
    let mut config = configuration(&json!({}));
    config["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(apply(&sandbox, "ci", config).await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn who_sets_a_field_once_more_did_it_now_and_who_removes_one_did_not() {
    let sandbox = sandbox();
    let path = format!("{CONFIG_MAPS}/a?fieldManager=ci");
    let object = json!({"metadata": {"name": "a"}, "data": {"a": "1", "b": "1"}});
    sandbox.post(&format!("{CONFIG_MAPS}?fieldManager=ci"), object).await.ok();
    let patched = async |data: Value| {
        tokio::time::advance(Duration::from_secs(60)).await;
        let new = sandbox.patch(&path, MERGE, json!({ "data": data })).await.ok();
        new["metadata"]["managedFields"][0]["time"].clone()
    };
    assert_eq!(patched(json!({"a": "1"})).await, "2026-01-01T00:00:00Z");
    assert_eq!(patched(json!({"a": "2"})).await, "2026-01-01T00:02:00Z");
    assert_eq!(patched(json!({"b": null})).await, "2026-01-01T00:02:00Z");
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_of_owners_ends_the_tracking() {
    let sandbox = sandbox();
    let mut created = apply(&sandbox, "ci", configuration(&json!({}))).await.ok();
    let path = format!("{DEPLOYMENTS}/web");
    created["metadata"]["managedFields"] = json!([]);
    assert_eq!(sandbox.put(&path, created).await.ok()["metadata"].get("managedFields"), None);
    apply(&sandbox, "ci", configuration(&json!({}))).await.ok();
    let ended = sandbox.patch(&path, MERGE, json!({"metadata": {"managedFields": [{}]}})).await.ok();
    assert_eq!(ended["metadata"].get("managedFields"), None);
}

/// The sentences of a kube-apiserver 1.36.
#[tokio::test(start_paused = true)]
async fn a_configuration_that_does_not_fit_the_schema_is_refused_by_the_path_of_its_field() {
    let sandbox = sandbox();
    apply(&sandbox, "ci", configuration(&json!({}))).await.ok();
    let with_container =
        |container: Value| configuration(&json!({"template": {"spec": {"containers": [container]}}}));
    let container = ".spec.template.spec.containers[name=\"c\"]";
    for (config, expected) in [
        (
            configuration(&json!({"replicas": "abc"})),
            ".spec.replicas: expected numeric (int or float), got string",
        ),
        (
            configuration(
                &json!({"replicas": "abc", "paused": "no", "template": {"spec": {"hostNetwork": 1}}}),
            ),
            "errors:\n  .spec.paused: expected boolean, got &{no}\n  .spec.replicas: expected numeric (int or float), got \
             string\n  .spec.template.spec.hostNetwork: expected boolean, got &{1}",
        ),
        (configuration(&json!({"replicaz": 0})), ".spec.replicaz: field not declared in schema"),
        (configuration(&json!({"paused": "no"})), ".spec.paused: expected boolean, got &{no}"),
        (configuration(&json!({"strategy": []})), ".spec.strategy: expected map, got &{[]}"),
        (
            with_container(json!({"name": "c", "image": "a", "env": {"A": "b"}})),
            &format!("{container}.env: expected list, got &{{map[A:b]}}"),
        ),
        (
            with_container(json!({"name": "c", "image": "a", "env": [{"name": "A", "value": 1}]})),
            &format!(
                "{container}.env[name=\"A\"].value: expected string, got &value.valueUnstructured{{Value:1}}"
            ),
        ),
        (
            with_container(json!({"name": "c", "image": "a", "env": [{"name": "A"}, {"name": "A"}]})),
            &format!("{container}.env: duplicate entries for key [name=\"A\"]"),
        ),
        (
            with_container(json!({"name": "c", "ports": [{"containerPort": "80"}]})),
            &format!(
                "{container}.ports[containerPort=\"80\",protocol=\"TCP\"].containerPort: \
                 expected numeric (int or float), got string"
            ),
        ),
    ] {
        let refused = apply(&sandbox, "ci", config).await.refused(500);
        // The namespace is that of the body.
        let about = "failed to create typed patch object (/web; apps/v1, Kind=Deployment): ";
        assert_eq!(refused, format!("{about}{expected}"));
    }
    let unnamed = apply(&sandbox, "ci", with_container(json!({"image": "a"}))).await.refused(422);
    assert!(unnamed.contains("spec.template.spec.containers[0].name: Required value"), "{unnamed}");
}
