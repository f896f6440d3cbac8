//! StatefulSets through the router (upstream `pkg/registry/apps/statefulset`). Their defaults and refusals are among the
//! recorded answers of `tests/cluster/recorded/objects.json`.

use super::*;

const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn stateful_set(name: &str, strategy: Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]},
            "updateStrategy": strategy,
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "db:v1"}]}},
        },
    })
}

fn with_feature() -> Sandbox {
    Sandbox::new(Options { stateful_set_max_unavailable: true, ..options() })
}

fn rolling(object: &Value) -> &Value {
    &object["spec"]["updateStrategy"]["rollingUpdate"]
}

#[tokio::test(start_paused = true)]
async fn with_the_feature_max_unavailable_is_kept_defaulted_and_judged() {
    let sandbox = with_feature();
    for (name, strategy, expected) in [
        ("none", json!({}), json!({"partition": 0, "maxUnavailable": 1})),
        (
            "some",
            json!({"rollingUpdate": {"maxUnavailable": "50%"}}),
            json!({"partition": 0, "maxUnavailable": "50%"}),
        ),
        ("named", json!({"type": "RollingUpdate"}), Value::Null),
        ("by-hand", json!({"type": "OnDelete"}), Value::Null),
    ] {
        let created = sandbox.post(STATEFUL_SETS, stateful_set(name, strategy)).await.ok();
        assert_eq!(rolling(&created), &expected, "{name}");
    }
    let field = "spec.updateStrategy.rollingUpdate.maxUnavailable";
    for (max, why) in [
        (json!(0), format!("{field}: Invalid value: 0: cannot be 0")),
        (json!("0%"), format!("{field}: Invalid value: \"0%\": cannot be 0")),
        (json!("101%"), format!("{field}: Invalid value: \"101%\": must not be greater than 100%")),
        (json!(-1), format!("{field}: Invalid value: -1: must be greater than or equal to 0")),
    ] {
        let object = stateful_set("bad", json!({"rollingUpdate": {"maxUnavailable": max}}));
        let refused = sandbox.post(STATEFUL_SETS, object).await.refused(422);
        assert_eq!(refused, format!("StatefulSet.apps \"bad\" is invalid: {why}"));
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_feature_only_an_object_that_has_max_unavailable_keeps_it() {
    let before = with_feature();
    let two = json!({"rollingUpdate": {"maxUnavailable": 2}});
    before.post(STATEFUL_SETS, stateful_set("old", two.clone())).await.ok();
    let sandbox = sandbox();
    sandbox.restore(&before.back_up(), false);
    let created = sandbox.post(STATEFUL_SETS, stateful_set("new", two)).await.ok();
    assert_eq!(rolling(&created), &json!({"partition": 0}));
    let three = json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 3}}}});
    let changed = sandbox.patch(&format!("{STATEFUL_SETS}/old"), MERGE, three.clone()).await.ok();
    assert_eq!(
        (rolling(&changed)["maxUnavailable"].as_i64(), &changed["metadata"]["generation"]),
        (Some(3), &json!(2))
    );
    let changed = sandbox.patch(&format!("{STATEFUL_SETS}/new"), MERGE, three).await.ok();
    assert_eq!(
        (rolling(&changed), &changed["metadata"]["generation"]),
        (&json!({"partition": 0}), &json!(1))
    );
}

#[tokio::test(start_paused = true)]
async fn it_is_scaled_through_its_scale() {
    let sandbox = sandbox();
    let path = format!("{STATEFUL_SETS}/db");
    let created = sandbox.post(STATEFUL_SETS, stateful_set("db", json!({}))).await.ok();
    let status = json!({"status": {"replicas": 1, "readyReplicas": 1}});
    sandbox.patch(&format!("{path}/status"), MERGE, status).await.ok();
    let scale = sandbox.get(&format!("{path}/scale")).await.ok();
    assert_eq!((&scale["apiVersion"], &scale["kind"]), (&json!("autoscaling/v1"), &json!("Scale")));
    assert_eq!(scale["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(scale["spec"], json!({"replicas": 1}));
    assert_eq!(scale["status"], json!({"replicas": 1, "selector": "!tier,app=db"}));
    let mut four = scale.clone();
    four["spec"]["replicas"] = json!(4);
    sandbox.put(&format!("{path}/scale"), four.clone()).await.ok();
    let scaled = sandbox.get(&path).await.ok();
    assert_eq!((&scaled["spec"]["replicas"], &scaled["metadata"]["generation"]), (&json!(4), &json!(2)));
    assert_eq!(scaled["status"]["readyReplicas"], 1);
    four["metadata"]["resourceVersion"] = Value::Null;
    four["metadata"]["uid"] = json!("another");
    let refused = sandbox.put(&format!("{path}/scale"), four).await.refused(409);
    let uid = created["metadata"]["uid"].as_str().unwrap();
    assert!(
        refused.ends_with(&format!(
            "Precondition failed: UID in precondition: another, UID in object meta: {uid}"
        )),
        "{refused}"
    );
    let negative =
        sandbox.patch(&format!("{path}/scale"), MERGE, json!({"spec": {"replicas": -1}})).await.refused(422);
    let why = "spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    assert_eq!(negative, format!("Scale.autoscaling \"db\" is invalid: {why}"));
    let table = sandbox.get_as(&path, TABLE).await.ok();
    assert_eq!(table["rows"][0]["cells"], json!(["db", "1/4", "0s", "main", "db:v1"]));
}
