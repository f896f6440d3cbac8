//! The three kinds of patches, and the scale.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_merge_patch_replaces_lists_and_a_strategic_one_merges_them() {
    let sandbox = sandbox();
    let path = format!("{DEPLOYMENTS}/web");
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let containers = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let sidecar = containers(json!([{"name": "sidecar", "image": "registry.example/side:v1"}]));
    let merged = sandbox.patch(&path, STRATEGIC, sidecar.clone()).await.ok();
    assert_eq!(merged["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len), Some(2));
    let replaced = sandbox.patch(&path, MERGE, sidecar).await.ok();
    assert_eq!(replaced["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_is_applied_whole_or_not_at_all() {
    let sandbox = sandbox();
    let path = format!("{CONFIG_MAPS}/a");
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    let failing = json!([
        {"op": "replace", "path": "/data/a", "value": "2"},
        {"op": "test", "path": "/data/a", "value": "3"},
    ]);
    sandbox.patch(&path, JSON_PATCH, failing).await.refused(422);
    assert_eq!(sandbox.get(&path).await.ok()["data"]["a"], "1");
    let add = json!([{"op": "add", "path": "/data/b", "value": "2"}]);
    assert_eq!(sandbox.patch(&path, JSON_PATCH, add).await.ok()["data"]["b"], "2");
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_carries_a_revision_is_refused_when_it_is_stale() {
    let sandbox = sandbox();
    let path = format!("{CONFIG_MAPS}/a");
    let created = sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    sandbox.patch(&path, MERGE, json!({"data": {"a": "2"}})).await.ok();
    let version = created["metadata"]["resourceVersion"].clone();
    let stale = json!({"metadata": {"resourceVersion": version}, "data": {"a": "3"}});
    sandbox.patch(&path, MERGE, stale).await.refused(409);
}

#[tokio::test(start_paused = true)]
async fn patches_are_checked_as_strictly_as_asked() {
    let sandbox = sandbox();
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let unknown = json!({"spec": {"foo": 1}});
    let strict = format!("{DEPLOYMENTS}/web?fieldValidation=Strict");
    let refused = sandbox.patch(&strict, MERGE, unknown.clone()).await.refused(422);
    assert!(refused.contains("unknown field \"spec.foo\""), "{refused}");
    let warned = sandbox.patch(&format!("{DEPLOYMENTS}/web"), MERGE, unknown).await;
    assert_eq!((warned.code, warned.warnings.len()), (200, 1));
    let wrong = json!({"spec": {"replicas": "three"}});
    sandbox.patch(&format!("{DEPLOYMENTS}/web"), MERGE, wrong).await.refused(422);
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_feature_is_refused_with_a_reason() {
    let sandbox = sandbox();
    let path = format!("{DEPLOYMENTS}/web");
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2}});
    let applied = sandbox.patch(&format!("{path}/scale?fieldManager=a"), APPLY, scale).await.refused(415);
    assert!(applied.contains("a scale cannot be applied"), "{applied}");
    sandbox.patch(&path, "text/plain", json!({})).await.refused(415);
    sandbox.patch(&format!("{DEPLOYMENTS}/nobody"), MERGE, json!({})).await.refused(404);
}

#[tokio::test(start_paused = true)]
async fn the_scale_is_a_view_of_the_deployment() {
    let sandbox = sandbox();
    let path = format!("{DEPLOYMENTS}/web/scale");
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let mut scale = sandbox.get(&path).await.ok();
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["spec"]["replicas"], 3);
    assert_eq!(scale["status"]["selector"], "app=web");
    scale["spec"]["replicas"] = json!(5);
    assert_eq!(sandbox.put(&path, scale.clone()).await.ok()["spec"]["replicas"], 5);
    let stale = sandbox.put(&path, json!({"metadata": scale["metadata"], "spec": {"replicas": 6}})).await;
    assert_eq!(stale.code, 409, "{}", stale.body);
    sandbox.patch(&path, MERGE, json!({"spec": {"replicas": 7}})).await.ok();
    let deployment = sandbox.get(&format!("{DEPLOYMENTS}/web")).await.ok();
    assert_eq!(
        (&deployment["spec"]["replicas"], &deployment["metadata"]["generation"]),
        (&json!(7), &json!(3))
    );
    let negative = sandbox.patch(&path, MERGE, json!({"spec": {"replicas": -1}})).await.refused(422);
    assert_eq!(
        negative,
        "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
}

#[tokio::test(start_paused = true)]
async fn a_json_patch_cannot_grow_an_object_without_bounds() {
    let sandbox = sandbox();
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    let copy = |to: String| json!({"op": "copy", "from": "/data", "path": to});
    let wider: Vec<Value> = (0..40).map(|step| copy(format!("/data/{step}"))).collect();
    let deeper: Vec<Value> = (0..200).map(|_| copy("/data/a".to_owned())).collect();
    for operations in [wider, deeper] {
        sandbox.patch(&format!("{CONFIG_MAPS}/a"), JSON_PATCH, operations.into()).await.refused(413);
    }
}

/// The sentences of a kube-apiserver 1.36; ours follow those about a field in brackets.
#[tokio::test(start_paused = true)]
async fn a_patch_that_cannot_be_carried_out_is_refused_in_the_words_of_a_real_server() {
    let sandbox = sandbox();
    let path = format!("{DEPLOYMENTS}/web");
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let containers = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    for (media, patch, code, expected) in [
        (
            STRATEGIC,
            json!({"spec": {"replicas": "x"}}),
            422,
            "\"map[spec:map[replicas:x]]\": unrecognized type: int32 (",
        ),
        (STRATEGIC, containers(json!({"image": "x"})), 422, "cannot restore slice from map ("),
        (
            STRATEGIC,
            containers(json!([{"image": "x"}])),
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            STRATEGIC,
            containers(json!([{"name": "c", "$patch": "bogus"}])),
            500,
            "unknown patch type: bogus in map: map[$patch:bogus name:c]",
        ),
        (STRATEGIC, json!({"$retainKeys": "x"}), 400, "invalid patch format of retainKeys"),
        (
            STRATEGIC,
            json!({"metadata": {"$setElementOrder/finalizers": "x"}}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (STRATEGIC, containers(json!(["x"])), 500, "list element types are not identical: [[map["),
        (
            STRATEGIC,
            json!({"spec": {"$patch": 5}}),
            500,
            "unknown patch type: %!s(int64=5) in map: map[$patch:5]",
        ),
        (
            STRATEGIC,
            json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": true}}}}),
            422,
            ": json: cannot unmarshal bool into Go value of type int32 (",
        ),
        (
            STRATEGIC,
            json!({"metadata": {"creationTimestamp": 5}}),
            422,
            ": json: cannot unmarshal number into Go value of type string (",
        ),
        (MERGE, json!(null), 400, "Invalid JSON Patch"),
        (MERGE, json!({"metadata": null}), 400, "was undeterminable: name must be provided"),
        (
            STRATEGIC,
            json!([]),
            400,
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            MERGE,
            json!(3),
            400,
            "error decoding patch: json: cannot unmarshal number into Go value of type map[string]",
        ),
        (
            JSON_PATCH,
            json!({}),
            400,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            JSON_PATCH,
            json!([3]),
            400,
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            JSON_PATCH,
            json!([{"op": "bogus", "path": "/spec"}]),
            422,
            "the server rejected our request due to an error in our request",
        ),
        (
            JSON_PATCH,
            json!([{"op": "add"}]),
            422,
            "the server rejected our request due to an error in our request",
        ),
    ] {
        let refused = sandbox.patch(&path, media, patch).await.refused(code);
        assert!(refused.contains(expected), "{refused}");
    }
    // A list that is none is passed over, and so is a patch that is none.
    let nothing = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}});
    sandbox.patch(&path, STRATEGIC, nothing).await.ok();
    sandbox.patch(&path, STRATEGIC, json!(null)).await.ok();
    // A type in the patch is ignored.
    let typed = sandbox.patch(&path, STRATEGIC, json!({"kind": "Pod", "apiVersion": "v1"})).await.ok();
    assert_eq!((&typed["kind"], &typed["apiVersion"]), (&json!("Deployment"), &json!("apps/v1")));
    // A field that is replaced need not be there.
    let label = json!([{"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}}]);
    sandbox.patch(&path, JSON_PATCH, label).await.ok();
}

#[tokio::test(start_paused = true)]
async fn an_object_without_its_name_is_refused_and_keeps_its_labels() {
    let sandbox = sandbox();
    let path = format!("{DEPLOYMENTS}/web");
    let labelled = sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let expected = "the name of the object (web based on URL) was undeterminable: name must be provided";
    for (path, media, patch) in [
        (path.clone(), MERGE, json!({"metadata": null})),
        (path.clone(), MERGE, json!({"metadata": {"name": null}})),
        (path.clone(), JSON_PATCH, json!([{"op": "remove", "path": "/metadata"}])),
        (format!("{path}/status"), MERGE, json!({"metadata": null})),
        (format!("{path}/scale"), MERGE, json!({"metadata": null})),
    ] {
        assert_eq!(sandbox.patch(&path, media, patch).await.refused(400), expected, "{path}");
    }
    let unnamed = json!({"spec": labelled["spec"]});
    assert_eq!(sandbox.put(&path, unnamed).await.refused(400), expected);
    let scale = json!({"spec": {"replicas": 2}});
    assert_eq!(sandbox.put(&format!("{path}/scale"), scale).await.refused(400), expected);
    assert_eq!(sandbox.get(&path).await.ok(), labelled);
    // A configuration that is applied says so by its path where there is something to apply it to.
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let created = sandbox.patch(&format!("{CONFIG_MAPS}/a?fieldManager=m"), APPLY, config).await.refused(400);
    assert!(created.contains("(a based on URL) was undeterminable"), "{created}");
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_is_no_number_is_no_conflict() {
    let sandbox = sandbox();
    let path = format!("{CONFIG_MAPS}/a");
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    for (version, expected) in [
        ("abc", "strconv.ParseUint: parsing \"abc\": invalid syntax"),
        ("-1", "strconv.ParseUint: parsing \"-1\": invalid syntax"),
        ("18446744073709551616", "strconv.ParseUint: parsing \"18446744073709551616\": value out of range"),
    ] {
        let patch = json!({"metadata": {"resourceVersion": version}});
        for media in [MERGE, STRATEGIC] {
            assert_eq!(sandbox.patch(&path, media, patch.clone()).await.refused(500), expected);
        }
        let mut object = config_map("a");
        object["metadata"]["resourceVersion"] = json!(version);
        assert_eq!(sandbox.put(&path, object.clone()).await.refused(500), expected);
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("ConfigMap");
        let applied = sandbox.patch(&format!("{path}?fieldManager=m"), APPLY, object).await;
        assert_eq!(applied.refused(500), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_cannot_set_when_an_object_is_to_go() {
    let sandbox = sandbox();
    let path = format!("{CONFIG_MAPS}/a");
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    let going =
        json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}});
    assert_eq!(
        sandbox.patch(&path, MERGE, going).await.refused(422),
        "ConfigMap \"a\" is invalid: [metadata.deletionTimestamp: Invalid value: \"2020-01-01T00:00:00Z\": field \
         is immutable, metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable]"
    );
}

/// As a kube-apiserver 1.36 shows it, up to our own words.
#[tokio::test(start_paused = true)]
async fn the_message_about_a_refused_patch_shows_the_patched_object() {
    let sandbox = sandbox();
    let path = format!("{CONFIG_MAPS}/a?fieldValidation=Strict");
    let created = sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    let (uid, version) = (&created["metadata"]["uid"], &created["metadata"]["resourceVersion"]);
    let object = |data: &str, kind: &str| {
        format!(
            "{{\"apiVersion\":\"v1\",\"data\":{data},\"kind\":\"{kind}\",\"metadata\":{{\"name\":\"a\",\
             \"namespace\":\"default\",\"uid\":{uid},\"resourceVersion\":{version},\
             \"creationTimestamp\":\"2026-01-01T00:00:00Z\",\"managedFields\":[{{\"manager\":"
        )
    };
    for (media, patch, data, kind, why) in [
        (
            MERGE,
            json!({"data": {"z": 1, "b": "<", "n": null}}),
            r#"{"a":"1","b":"\u003c","z":1}"#,
            "ConfigMap",
            ": json: cannot unmarshal number into Go struct field ConfigMap.data of type string (",
        ),
        (
            JSON_PATCH,
            json!([{"op": "add", "path": "/data/z", "value": 1}]),
            r#"{"a":"1","z":1}"#,
            "ConfigMap",
            ": json: cannot unmarshal number into Go struct field ConfigMap.data of type string (",
        ),
        (
            JSON_PATCH,
            json!([{"op": "add", "path": "/kind", "value": "Pod"}]),
            r#"{"a":"1"}"#,
            "Pod",
            ": converting (v1.Pod) to (core.ConfigMap): unknown conversion",
        ),
        (
            MERGE,
            json!({"kind": "Foo"}),
            r#"{"a":"1"}"#,
            "Foo",
            ": no kind \"Foo\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
    ] {
        let refused = sandbox.patch(&path, media, patch).await.refused(422);
        let shown = format!("{:?}", object(data, kind));
        let expected = format!(" \"\" is invalid: patch: Invalid value: {}", shown.trim_end_matches('"'));
        assert!(refused.starts_with(&expected), "{refused}\n{expected}");
        assert!(refused.contains(why), "{refused}");
    }
    sandbox.patch(&path, MERGE, json!({"kind": null})).await.ok();
    let scaled = json!({"spec": {"replicas": "x"}});
    sandbox.post(DEPLOYMENTS, deployment("web")).await.ok();
    let refused = sandbox.patch(&format!("{DEPLOYMENTS}/web/scale"), MERGE, scaled).await.refused(422);
    assert!(refused.contains("\\\"spec\\\":{\\\"replicas\\\":\\\"x\\\"}"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn repeated_fields_of_a_patch_are_reported() {
    let sandbox = sandbox();
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    let path = format!("{CONFIG_MAPS}/a");
    for (media, patch, expected) in [
        (MERGE, r#"{"data":{"a":"2","a":"3"},"foo":1}"#, "duplicate field \"data.a\", unknown field \"foo\""),
        (STRATEGIC, r#"{"data":{"a":"2","a":"3"}}"#, "duplicate field \"data.a\""),
        (
            JSON_PATCH,
            r#"[{"op":"add","path":"/data/a","path":"/data/b","value":"1","x":1}]"#,
            "json patch unknown field \"[0].x\", json patch duplicate field \"[0].path\"",
        ),
    ] {
        let request = |path: &str| {
            let request = Request::patch(path).header("Content-Type", media);
            request.body(Body::from(patch)).unwrap()
        };
        let strict = request(&format!("{path}?fieldValidation=Strict"));
        let refused = sandbox.send(strict).await.refused(422);
        assert!(refused.ends_with(&format!(": strict decoding error: {expected}")), "{refused}");
        let warned = sandbox.send(request(&path)).await;
        assert_eq!(warned.code, 200, "{}", warned.body);
        assert_eq!(warned.warnings.len(), expected.split(", ").count(), "{:?}", warned.warnings);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_list_of_owners_leaves_them_and_an_empty_one_ends_the_tracking() {
    let sandbox = sandbox();
    let path = format!("{CONFIG_MAPS}/a");
    let created = sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    let owners = |list: Value| json!({"metadata": {"managedFields": list}});
    for unreadable in [json!([{"manager": "x"}]), Value::Null] {
        let kept = sandbox.patch(&path, MERGE, owners(unreadable)).await.ok();
        assert_eq!(kept["metadata"]["managedFields"], created["metadata"]["managedFields"]);
    }
    let cleared = sandbox.patch(&path, MERGE, owners(json!([]))).await.ok();
    assert_eq!(cleared["metadata"]["managedFields"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn parameters_that_are_no_numbers_are_refused_in_the_words_of_go() {
    let sandbox = sandbox();
    for (query, expected) in [
        ("limit=abc", "strconv.ParseInt: parsing \"abc\": invalid syntax"),
        (
            "timeoutSeconds=99999999999999999999",
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
        ),
        (
            "resourceVersion=abc",
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax",
        ),
    ] {
        assert_eq!(sandbox.get(&format!("{DEPLOYMENTS}?{query}")).await.refused(400), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_writer_is_short_and_can_be_shown() {
    let sandbox = sandbox();
    sandbox.post(CONFIG_MAPS, config_map("a")).await.ok();
    for (manager, expected) in [
        ("a".repeat(129), "fieldManager: Too long: may not be more than 128 bytes"),
        (
            "a%0Ab".to_owned(),
            "fieldManager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)",
        ),
    ] {
        let query = format!("fieldManager={manager}");
        let refused = |kind: &str| format!("{kind}.meta.k8s.io \"\" is invalid: {expected}");
        let patched = sandbox.patch(&format!("{CONFIG_MAPS}/a?{query}"), MERGE, json!({})).await;
        assert_eq!(patched.refused(422), refused("PatchOptions"));
        let created = sandbox.post(&format!("{CONFIG_MAPS}?{query}"), config_map("b")).await;
        assert_eq!(created.refused(422), refused("CreateOptions"));
    }
    let named = format!("{CONFIG_MAPS}/a?fieldManager={}", "a%20".repeat(64));
    sandbox.patch(&named, MERGE, json!({"data": {"a": "b"}})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn the_first_address_of_a_pod_is_its_address() {
    let sandbox = sandbox();
    sandbox.post(PODS, pod("a")).await.ok();
    let status = format!("{PODS}/a/status");
    for (patch, ip, ips) in [
        (json!({"podIP": "10.0.0.1"}), "10.0.0.1", json!([{"ip": "10.0.0.1"}])),
        (json!({"podIP": "10.0.0.2"}), "10.0.0.2", json!([{"ip": "10.0.0.2"}])),
        (json!({"podIP": null, "podIPs": [{"ip": "10.0.0.3"}]}), "10.0.0.3", json!([{"ip": "10.0.0.3"}])),
    ] {
        let patched = sandbox.patch(&status, MERGE, json!({"status": patch})).await.ok();
        assert_eq!((&patched["status"]["podIP"], &patched["status"]["podIPs"]), (&json!(ip), &ips));
    }
}
