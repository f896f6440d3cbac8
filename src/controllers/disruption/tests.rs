use serde_json::{Value, json};

use super::*;
use crate::controllers::fixture::{Rig, rig};
use crate::model::Interner;

fn decode<T: Record>(object: &Value) -> T {
    T::decode(&object.to_string(), &mut Interner::default()).unwrap()
}

fn pod(labels: Value, owner: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": "shop", "uid": "u-p", "resourceVersion": "2", "labels": labels,
                        "ownerReferences": owner}})
}

/// Two budgets of `app=web`, one of `app=db`, and one of everything in another namespace.
fn shop() -> Rig {
    let rig = rig(200, |_| {});
    for (namespace, name, selector) in [
        ("shop", "web", json!({"matchLabels": {"app": "web"}})),
        (
            "shop",
            "web-too",
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}),
        ),
        ("shop", "db", json!({"matchLabels": {"app": "db"}})),
        ("shop", "none", Value::Null),
        ("other", "all", json!({})),
    ] {
        let budget = json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("u-{name}"), "resourceVersion": "1"},
            "spec": {"selector": selector, "minAvailable": 1},
        });
        rig.context.store::<PodDisruptionBudget>().put(decode(&budget));
    }
    rig
}

fn woken<T: Record>(rig: &mut Rig, change: Change<T>) -> Vec<String> {
    rig.dispatch(change);
    let woken = rig.woken();
    let ours = woken.iter().filter_map(|key| key.strip_prefix("disruption "));
    ours.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_wakes_every_budget_that_selects_it_or_did() {
    let mut rig = shop();
    let (web, db) = (pod(json!({"app": "web"}), json!([])), pod(json!({"app": "db"}), json!([])));
    let added = |pod: &Value| Change::<Pod>::Added(Arc::new(decode(pod)));
    assert_eq!(woken(&mut rig, added(&web)), ["shop/web", "shop/web-too"]);
    let moved = Change::<Pod>::Updated { old: Arc::new(decode(&web)), new: Arc::new(decode(&db)) };
    assert_eq!(woken(&mut rig, moved), ["shop/db", "shop/web", "shop/web-too"]);
    let same = Change::<Pod>::Updated { old: Arc::new(decode(&web)), new: Arc::new(decode(&web)) };
    assert_eq!(woken(&mut rig, same), [""; 0]);
    assert_eq!(woken(&mut rig, Change::<Pod>::Deleted(Arc::new(decode(&db)))), ["shop/db"]);
}

#[tokio::test(start_paused = true)]
async fn the_replicas_of_a_workload_wake_the_budgets_of_its_pods() {
    let mut rig = shop();
    let meta = |name: &str, owner: Value| {
        json!({"name": name, "namespace": "shop", "uid": format!("u-{name}"), "resourceVersion": "3",
               "ownerReferences": owner})
    };
    let owner = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": format!("u-{name}"), "controller": true}]);
    let set = json!({"metadata": meta("web-1", owner("Deployment", "web")), "spec": {"template": {}}});
    rig.context.store::<ReplicaSet>().put(decode(&set));
    rig.context.store::<Pod>().put(decode(&pod(json!({"app": "web"}), owner("ReplicaSet", "web-1"))));
    let deployment = |replicas: i32| -> Arc<Deployment> {
        let spec = json!({"replicas": replicas, "template": {}});
        Arc::new(decode(&json!({"metadata": meta("web", json!([])), "spec": spec})))
    };
    let scaled = Change::Updated { old: deployment(1), new: deployment(2) };
    assert_eq!(woken(&mut rig, scaled), ["shop/web", "shop/web-too"]);
    let same = Change::Updated { old: deployment(2), new: deployment(2) };
    assert_eq!(woken(&mut rig, same), [""; 0]);
    let gone = Change::<ReplicaSet>::Deleted(Arc::new(decode(&set)));
    assert_eq!(woken(&mut rig, gone), ["shop/web", "shop/web-too"]);
}
