//! Creating and updating.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_new_object_gets_the_fields_that_the_server_sets() {
    let sandbox = sandbox();
    tokio::time::sleep(Duration::from_millis(90_500)).await;
    let created = sandbox.post(DEPLOYMENTS, deployment("web")).await;
    assert_eq!(created.code, 201);
    let metadata = created.body["metadata"].clone();
    assert_eq!(metadata["creationTimestamp"], "2026-01-01T00:01:30Z");
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["uid"].as_str().map(str::len), Some(36));
    assert_eq!(created.body["spec"]["strategy"]["type"], "RollingUpdate", "defaults are applied");
    assert_eq!(sandbox.get(&format!("{DEPLOYMENTS}/web")).await.ok(), created.body);
}

#[tokio::test(start_paused = true)]
async fn one_seed_makes_the_same_cluster_twice() {
    let (a, b) = (sandbox(), sandbox());
    for sandbox in [&a, &b] {
        let mut generated = pod("");
        generated["metadata"] = json!({"generateName": "web-"});
        sandbox.post(PODS, generated).await.ok();
    }
    assert_eq!(a.objects("Pod"), b.objects("Pod"));
    let name = a.objects("Pod")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
}

#[tokio::test(start_paused = true)]
async fn errors_name_an_existing_and_a_missing_object() {
    let sandbox = sandbox();
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let taken = sandbox.post(DEPLOYMENTS, deployment("web")).await;
    assert_eq!(taken.body["reason"], "AlreadyExists");
    assert_eq!(taken.refused(409), "deployments.apps \"web\" already exists");
    let missing = sandbox.get(&format!("{PODS}/nobody")).await;
    assert_eq!(missing.body["details"], json!({"name": "nobody", "kind": "pods"}));
    assert_eq!(missing.refused(404), "pods \"nobody\" not found");
}

#[tokio::test(start_paused = true)]
async fn the_name_of_an_object_that_waits_for_its_finalizers_is_in_use() {
    let sandbox = sandbox();
    let object = json!({"metadata": {"name": "i", "finalizers": ["example.com/a"]}});
    sandbox.post(CONFIG_MAPS, object.clone()).await.ok();
    sandbox.delete(&format!("{CONFIG_MAPS}/i")).await.ok();
    let taken = sandbox.post(CONFIG_MAPS, object).await;
    assert_eq!(taken.body["reason"], "AlreadyExists");
    assert_eq!(taken.refused(409), "object is being deleted: configmaps \"i\" already exists");
}

#[tokio::test(start_paused = true)]
async fn the_profile_in_an_annotation_of_a_pod_becomes_a_field_and_a_warning() {
    const KEY: &str = "container.apparmor.security.beta.kubernetes.io/app";
    let sandbox = sandbox();
    let mut annotated = pod("web");
    annotated["spec"]["containers"][0]["name"] = json!("app");
    annotated["metadata"]["annotations"] = json!({ KEY: "runtime/default" });
    let created = sandbox.post(PODS, annotated).await;
    let profile = created.body.pointer("/spec/containers/0/securityContext/appArmorProfile");
    assert_eq!(profile, Some(&json!({"type": "RuntimeDefault"})));
    let expected = format!(
        "299 - \"metadata.annotations[{KEY}]: deprecated since v1.30; use the \\\"appArmorProfile\\\" field instead\""
    );
    assert_eq!(created.warnings, [expected]);
    let mut own = created.ok();
    own["metadata"] = json!({"name": "own", "annotations": own["metadata"]["annotations"]});
    assert_eq!(sandbox.post(PODS, own).await.warnings, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_that_is_unknown_is_refused_with_the_options_of_the_verb() {
    let sandbox = sandbox();
    let why =
        "Options.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\"";
    let path = format!("{CONFIG_MAPS}/a?dryRun=x");
    let created = sandbox.post(&format!("{CONFIG_MAPS}?dryRun=x"), json!({})).await.refused(422);
    assert_eq!(created, format!("Create{why}"));
    assert_eq!(sandbox.put(&path, json!({})).await.refused(422), format!("Update{why}"));
    assert_eq!(sandbox.patch(&path, MERGE, json!({})).await.refused(422), format!("Patch{why}"));
}

#[tokio::test(start_paused = true)]
async fn a_stale_write_is_refused() {
    let sandbox = sandbox();
    let path = format!("{DEPLOYMENTS}/web");
    let mut first = sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let mut second = first.clone();
    first["spec"]["replicas"] = json!(4);
    sandbox.put(&path, first).await.ok();
    second["spec"]["replicas"] = json!(5);
    let stale = sandbox.put(&path, second.clone()).await.refused(409);
    assert_eq!(
        stale,
        "Operation cannot be fulfilled on deployments.apps \"web\": the object has been modified; please \
         apply your changes to the latest version and try again"
    );
    second["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    sandbox.put(&path, second).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_write_for_an_earlier_object_of_the_same_name_is_refused() {
    let sandbox = sandbox();
    let path = format!("{CONFIG_MAPS}/a");
    let mut earlier = sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    sandbox.delete(&path).await.ok();
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    earlier["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let refusal = sandbox.put(&path, earlier).await.refused(409);
    assert!(refusal.contains("Precondition failed: UID in precondition"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn a_patch_for_an_earlier_object_of_the_same_name_is_invalid_or_else_stale() {
    let sandbox = sandbox();
    let path = format!("{CONFIG_MAPS}/a");
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    let patch = json!({"metadata": {"uid": "earlier"}, "data": {"k": "new"}});
    let refusal = sandbox.patch(&path, MERGE, patch.clone()).await.refused(422);
    assert!(refusal.ends_with("metadata.uid: Invalid value: \"earlier\": field is immutable"), "{refusal}");
    let mut stale = patch;
    stale["metadata"]["resourceVersion"] = json!("1");
    let refusal = sandbox.patch(&path, STRATEGIC, stale).await.refused(409);
    assert!(refusal.contains("the object has been modified"), "{refusal}");
}

#[tokio::test(start_paused = true)]
async fn the_generation_counts_spec_changes_only() {
    let sandbox = sandbox();
    let path = format!("{DEPLOYMENTS}/web");
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(sandbox.patch(&path, MERGE, labels).await.ok()["metadata"]["generation"], 1);
    let spec = json!({"spec": {"replicas": 5}});
    assert_eq!(sandbox.patch(&path, MERGE, spec).await.ok()["metadata"]["generation"], 2);
    let status = json!({"status": {"replicas": 5, "observedGeneration": 2}});
    let patched = sandbox.patch(&format!("{path}/status"), MERGE, status).await.ok();
    assert_eq!(patched["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn annotations_of_a_deployment_raise_its_generation() {
    let sandbox = sandbox();
    let path = format!("{DEPLOYMENTS}/web");
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let annotations = json!({"metadata": {"annotations": {"a": "b"}}});
    assert_eq!(sandbox.patch(&path, MERGE, annotations).await.ok()["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart() {
    let sandbox = sandbox();
    let path = format!("{DEPLOYMENTS}/web");
    let mut both = sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    both["spec"]["replicas"] = json!(7);
    both["status"] = json!({"replicas": 7});
    both["metadata"]["labels"] = json!({"new": "label"});
    both["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "1"});
    let status_only = sandbox.put(&format!("{path}/status"), both.clone()).await.ok();
    assert_eq!(status_only["spec"]["replicas"], 3);
    assert_eq!(status_only["status"]["replicas"], 7);
    assert_eq!(status_only["metadata"]["labels"], Value::Null);
    assert_eq!(
        status_only["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1",
        "the Deployment controller writes its revision through the status"
    );
    both["metadata"]["resourceVersion"] = status_only["metadata"]["resourceVersion"].clone();
    both["status"] = json!({"replicas": 99});
    let spec_only = sandbox.put(&path, both).await.ok();
    assert_eq!(spec_only["spec"]["replicas"], 7);
    assert_eq!(spec_only["status"]["replicas"], 7);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_is_no_write() {
    let sandbox = sandbox();
    let created = sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let mut watch = sandbox.watch(&format!("{DEPLOYMENTS}?resourceVersion={}", revision(&created))).await;
    let again = sandbox.put(&format!("{DEPLOYMENTS}/web"), deployment("web")).await.ok();
    assert_eq!(again, created);
    sandbox.patch(&format!("{DEPLOYMENTS}/web"), MERGE, json!({"metadata": {"annotations": {}}})).await.ok();
    assert_eq!(sandbox.revision(), revision(&created));
    watch.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_gives_the_response_and_stores_nothing() {
    let sandbox = sandbox();
    let before = sandbox.revision();
    let created = sandbox.post(&format!("{DEPLOYMENTS}?dryRun=All"), deployment("web")).await;
    assert_eq!(created.code, 201);
    assert_eq!(sandbox.revision(), before);
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let before = sandbox.revision();
    sandbox.post(&format!("{DEPLOYMENTS}?dryRun=All"), deployment("web")).await.refused(409);
    let path = format!("{DEPLOYMENTS}/web?dryRun=All");
    let patched = sandbox.patch(&path, MERGE, json!({"spec": {"replicas": 9}})).await.ok();
    assert_eq!(patched["spec"]["replicas"], 9);
    sandbox.delete(&path).await.ok();
    assert_eq!(sandbox.revision(), before);
    assert_eq!(sandbox.get(&format!("{DEPLOYMENTS}/web")).await.ok()["spec"]["replicas"], 3);
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_refused_warned_of_or_ignored_as_asked() {
    let sandbox = sandbox();
    let mut object = deployment("web");
    object["spec"]["foo"] = json!(1);
    let strict = sandbox.post(&format!("{DEPLOYMENTS}?fieldValidation=Strict"), object.clone()).await;
    assert_eq!(
        strict.refused(400),
        "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown \
         field \"spec.foo\""
    );
    let ignored =
        sandbox.post(&format!("{DEPLOYMENTS}?fieldValidation=Ignore&dryRun=All"), object.clone()).await;
    assert_eq!((ignored.code, ignored.warnings.len()), (201, 0));
    let warned = sandbox.post(DEPLOYMENTS, object).await;
    assert_eq!(warned.warnings, ["299 - \"unknown field \\\"spec.foo\\\"\""]);
    assert_eq!(warned.ok()["spec"]["foo"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_object_is_refused_with_its_causes() {
    let sandbox = sandbox();
    let mut object = deployment("web");
    object["spec"]["replicas"] = json!(-1);
    let refused = sandbox.post(DEPLOYMENTS, object).await;
    assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.replicas");
    assert_eq!(
        refused.refused(422),
        "Deployment.apps \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_not_the_object_are_refused() {
    let sandbox = sandbox();
    let raw = |body: &'static str, content_type: &'static str| {
        Request::post(CONFIG_MAPS).header("content-type", content_type).body(Body::from(body)).unwrap()
    };
    sandbox.send(raw("{", "application/json")).await.refused(400);
    sandbox.send(raw("[]", "application/json")).await.refused(400);
    sandbox.send(raw("kind: ConfigMap", "text/plain")).await.refused(415);
    sandbox.post(CONFIG_MAPS, pod("a")).await.refused(400);
    let mut elsewhere = config_map("a");
    elsewhere["metadata"]["namespace"] = json!("other");
    sandbox.post(CONFIG_MAPS, elsewhere).await.refused(400);
    sandbox.put(&format!("{CONFIG_MAPS}/b"), config_map("a")).await.refused(400);
    let huge = json!({"data": "x".repeat(3 * 1024 * 1024)});
    sandbox.post(CONFIG_MAPS, huge).await.refused(413);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_created_by_put_and_never_overwritten_blindly() {
    let sandbox = sandbox();
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/leader";
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    });
    assert_eq!(sandbox.put(path, lease.clone()).await.code, 201);
    let message = sandbox.put(path, lease).await.refused(422);
    assert!(message.contains("metadata.resourceVersion"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_where_there_is_no_namespace() {
    let sandbox = sandbox();
    let refused = sandbox.post("/api/v1/namespaces/x/configmaps", config_map("a")).await.refused(404);
    assert_eq!(refused, "namespaces \"x\" not found");
}

#[tokio::test(start_paused = true)]
async fn an_event_is_one_object_in_both_groups() {
    let sandbox = sandbox();
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "note": "hello", "type": "Normal",
        "reason": "Started", "action": "Start", "reportingController": "example.com/c", "reportingInstance": "c-0",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    assert_eq!(sandbox.post(events, event).await.ok()["note"], "hello");
    let core =
        sandbox.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dp").await.ok();
    assert_eq!(core["items"][0]["message"], "hello");
    assert_eq!(core["items"][0]["involvedObject"]["name"], "p");
    let again = sandbox.get(&format!("{events}/e")).await.ok();
    assert_eq!(again["regarding"]["name"], "p");
    assert_eq!(again["apiVersion"], "events.k8s.io/v1");
}

#[tokio::test(start_paused = true)]
async fn a_binding_gives_a_pod_its_node_once() {
    let sandbox = sandbox();
    sandbox.post(PODS, pod("a")).await.ok();
    let binding = |node: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": node}});
    sandbox.post(&format!("{PODS}/a/binding"), binding("n1")).await.ok();
    let bound = sandbox.get(&format!("{PODS}/a")).await.ok();
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let again = sandbox.post(&format!("{PODS}/a/binding"), binding("n2")).await.refused(409);
    assert_eq!(
        again,
        "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n1\""
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_node_is_tainted_as_not_ready_once() {
    let sandbox = sandbox();
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let gpu = json!({"key": "gpu", "effect": "NoSchedule"});
    for (name, given, stored) in [
        ("bare", Value::Null, json!([taint])),
        ("gpu", json!({"taints": [gpu]}), json!([gpu, taint])),
        ("tainted", json!({"taints": [taint]}), json!([taint])),
    ] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": given});
        assert_eq!(sandbox.post("/api/v1/nodes", node).await.ok()["spec"]["taints"], stored, "{name}");
    }
    let open = json!({"spec": {"taints": null}});
    let opened = sandbox.patch("/api/v1/nodes/gpu", MERGE, open).await.ok();
    assert!(opened["spec"]["taints"].is_null(), "an update does not bring it back");
}

/// Arbitrary bodies: JSON of any shape, often under the names that the server reads.
pub(super) fn any_json() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    const NAMES: &[&str] =
        &["metadata", "spec", "status", "kind", "apiVersion", "name", "labels", "finalizers", "replicas"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let name = prop_oneof![3 => prop::sample::select(NAMES).prop_map(str::to_owned), 1 => ".{0,8}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn no_body_and_no_patch_breaks_the_server(body in any_json(), patch in any_json()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let sandbox = sandbox();
            for kind in super::super::kinds::all() {
                let group = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
                let scope = if kind.namespaced { "/namespaces/default" } else { "" };
                let collection = format!("{group}/{}{scope}/{}", kind.version, kind.plural);
                let mut named = body.clone();
                if named.is_object() {
                    named["metadata"] = json!({"name": "a", "finalizers": body["metadata"]["finalizers"]});
                    named["kind"] = json!(kind.kind);
                    named["apiVersion"] = json!(kind.api_version());
                }
                sandbox.post(&collection, named.clone()).await;
                let item = format!("{collection}/a");
                for content_type in [MERGE, STRATEGIC, JSON_PATCH] {
                    let answer = sandbox.patch(&item, content_type, patch.clone()).await;
                    assert!(answer.code < 500, "{}", answer.body);
                }
                sandbox.put(&item, named).await;
                let listed = sandbox.get_as(&collection, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
                assert_eq!(listed.code, if kind.is_review() { 405 } else { 200 }, "{}", listed.body);
                sandbox.delete_with(&item, patch.clone()).await;
            }
        });
    }
}
