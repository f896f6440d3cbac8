//! The admission plugins of a cluster, where they are on.

use super::*;
use crate::Admission;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

fn with(admission: &'static [Admission]) -> Sandbox {
    Sandbox::new(Options { admission, ..options() })
}

/// A server with all that a cluster has, and the account that a controller would make.
async fn cluster() -> Sandbox {
    let sandbox = with(Admission::CLUSTER);
    sandbox.post(ACCOUNTS, json!({"metadata": {"name": "default"}})).await.ok();
    sandbox
}

fn eviction(pod: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}})
}

impl Sandbox {
    async fn evict(&self, pod: &str) -> Answer {
        self.post(&format!("{PODS}/{pod}/eviction"), eviction(pod)).await
    }

    /// A pod that is bound, runs and is ready.
    async fn run_pod(&self, name: &str, labels: Value) {
        let mut bound = labelled(pod(name), labels);
        bound["spec"]["nodeName"] = json!("n");
        self.post(PODS, bound).await.ok();
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        self.patch(&format!("{PODS}/{name}/status"), MERGE, json!({"status": status})).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_options_nothing_is_looked_up_and_nothing_filled_in() {
    let mut asked = pod("a");
    asked["spec"]["serviceAccountName"] = json!("absent");
    asked["spec"]["priorityClassName"] = json!("absent");
    let made = sandbox().post(PODS, asked).await.ok();
    assert_eq!((&made["spec"]["priority"], &made["spec"]["tolerations"]), (&Value::Null, &Value::Null));
    let classes = sandbox().get("/apis/scheduling.k8s.io/v1/priorityclasses").await.ok();
    assert_eq!(classes["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_the_account_of_a_new_namespace_but_not_for_others() {
    let sandbox = with(Admission::CLUSTER);
    let start = Instant::now();
    let account = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        sandbox.post(ACCOUNTS, json!({"metadata": {"name": "default"}})).await.ok()
    };
    let (made, _) = tokio::join!(sandbox.post(PODS, pod("a")), account);
    assert_eq!(made.ok()["spec"]["serviceAccountName"], "default");
    assert!(start.elapsed() < Duration::from_secs(1));

    let mut other = pod("b");
    other["spec"]["serviceAccountName"] = json!("absent");
    let start = Instant::now();
    sandbox.post(PODS, other).await.refused(403);
    assert_eq!(start.elapsed(), Duration::ZERO);

    sandbox.delete(&format!("{ACCOUNTS}/default")).await.ok();
    let why = sandbox.post(PODS, pod("b")).await.refused(403);
    assert!(
        why.ends_with(
            "error looking up service account default/default: serviceaccount \"default\" not found"
        )
    );
    assert!(start.elapsed() > Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_mounted_only_where_it_is_asked_for_and_nothing_is_in_its_place() {
    let sandbox = with(&[Admission::ServiceAccount, Admission::TokenVolume]);
    sandbox.post(ACCOUNTS, json!({"metadata": {"name": "default"}})).await.ok();
    let path = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mut asked = pod("a");
    let own = json!({"name": "own", "mountPath": path});
    asked["spec"]["volumes"] = json!([{"name": "own", "emptyDir": {}}]);
    asked["spec"]["initContainers"] = json!([{"name": "init", "image": "i:1", "volumeMounts": [own]}]);
    let made = sandbox.post(PODS, asked).await.ok();
    let volume = &made["spec"]["volumes"][1];
    assert!(volume["name"].as_str().unwrap().starts_with("kube-api-access-"));
    assert_eq!(volume["projected"]["sources"].as_array().unwrap().len(), 3);
    let mount = json!([{"name": volume["name"], "readOnly": true, "mountPath": path}]);
    assert_eq!(made["spec"]["containers"][0]["volumeMounts"], mount);
    assert_eq!(made["spec"]["initContainers"][0]["volumeMounts"], json!([own]));

    let mut refuses = pod("b");
    refuses["spec"]["automountServiceAccountToken"] = json!(false);
    let made = sandbox.post(PODS, refuses).await.ok();
    assert_eq!(made["spec"]["volumes"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn an_update_of_a_pod_keeps_what_admission_gave() {
    let sandbox = cluster().await;
    let made = sandbox.post(PODS, pod("a")).await.ok();
    let mut again = made.clone();
    for field in ["priority", "preemptionPolicy"] {
        again["spec"].as_object_mut().unwrap().remove(field);
    }
    let after = sandbox.put(&format!("{PODS}/a"), again).await.ok();
    assert_eq!(after, made);
}

#[tokio::test(start_paused = true)]
async fn the_newest_default_class_is_given_to_claims_and_ingresses() {
    let sandbox = cluster().await;
    let class = |name: &str, annotation: &str, spec: Value| {
        let mut class = json!({"metadata": {"name": name, "annotations": {annotation: "true"}}});
        class.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        class
    };
    let storage = "storageclass.kubernetes.io/is-default-class";
    let ingress = "ingressclass.kubernetes.io/is-default-class";
    for name in ["b-newer", "a-newest", "z-newest"] {
        let provisioner = json!({"provisioner": "example.com/x"});
        sandbox.post("/apis/storage.k8s.io/v1/storageclasses", class(name, storage, provisioner)).await.ok();
        let spec = json!({"spec": {"controller": "example.com/x"}});
        sandbox.post("/apis/networking.k8s.io/v1/ingressclasses", class(name, ingress, spec)).await.ok();
        if name == "b-newer" {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"metadata": {"name": "a"}, "spec": spec});
    let made = sandbox.post("/api/v1/namespaces/default/persistentvolumeclaims", claim).await.ok();
    assert_eq!(made["spec"]["storageClassName"], "a-newest");
    let backend = json!({"service": {"name": "a", "port": {"number": 80}}});
    let asked = json!({"metadata": {"name": "a"}, "spec": {"defaultBackend": backend}});
    let made = sandbox.post("/apis/networking.k8s.io/v1/namespaces/default/ingresses", asked).await.ok();
    assert_eq!(made["spec"]["ingressClassName"], "a-newest");
}

fn cause(answer: &Answer) -> String {
    answer.body["details"]["causes"][0]["message"].as_str().unwrap().to_owned()
}

/// A budget of the pods with `app=web`, and a status of it.
async fn budget(sandbox: &Sandbox, spec: Value, status: Value) {
    let mut budget =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    budget["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    sandbox.post(BUDGETS, budget).await.ok();
    sandbox_patch(sandbox, status).await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_whose_status_nobody_keeps_refuses_until_somebody_does() {
    let sandbox = cluster().await;
    sandbox.run_pod("a", json!({"app": "web"})).await;
    budget(&sandbox, json!({"minAvailable": 0}), json!({})).await;
    let refused = sandbox.evict("a").await;
    let why = json!([{"reason": "DisruptionBudget",
                      "message": "The disruption budget web is still being processed by the server."}]);
    assert_eq!(refused.body["details"], json!({"causes": why, "retryAfterSeconds": 10}));
    assert_eq!(refused.refused(429), "Cannot evict pod as it would violate the pod's disruption budget.");
    sandbox_patch(&sandbox, json!({"observedGeneration": 1, "disruptionsAllowed": 1})).await;
    sandbox.evict("a").await.ok();
    let condition = &sandbox.get(&format!("{PODS}/a")).await.ok()["status"]["conditions"][1];
    let (kind, reason) = (&condition["type"], &condition["reason"]);
    assert_eq!((kind, reason), (&json!("DisruptionTarget"), &json!("EvictionByEvictionAPI")));
    // It is on its way out: nobody is asked.
    sandbox.evict("a").await.ok();
    let all = json!({"metadata": {"name": "all"}, "spec": {"minAvailable": 0, "selector": {}}});
    sandbox.post(BUDGETS, all).await.ok();
    sandbox.run_pod("b", json!({"app": "web"})).await;
    let why = sandbox.evict("b").await.refused(500);
    assert!(why.starts_with("This pod has more than one PodDisruptionBudget"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_do_not_run_ask_no_budget() {
    let sandbox = cluster().await;
    budget(&sandbox, json!({"minAvailable": 9}), json!({})).await;
    sandbox.post(PODS, labelled(pod("pending"), json!({"app": "web"}))).await.ok();
    sandbox.evict("pending").await.ok();
    sandbox.get(&format!("{PODS}/pending")).await.refused(404);
    sandbox.run_pod("ended", json!({"app": "web"})).await;
    let ended = json!({"status": {"phase": "Failed"}});
    sandbox.patch(&format!("{PODS}/ended/status"), MERGE, ended).await.ok();
    sandbox.evict("ended").await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_ready_goes_if_its_budget_has_enough_or_lets_it() {
    let sandbox = cluster().await;
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    for name in ["a", "b"] {
        sandbox.run_pod(name, json!({"app": "web"})).await;
        sandbox.patch(&format!("{PODS}/{name}/status"), MERGE, unready.clone()).await.ok();
    }
    let short = json!({"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 2});
    budget(&sandbox, json!({"minAvailable": 2}), short).await;
    assert_eq!(
        cause(&sandbox.evict("a").await),
        "The disruption budget web needs 2 healthy pods and has 1 currently"
    );
    sandbox_patch(&sandbox, json!({"currentHealthy": 2})).await;
    sandbox.evict("a").await.ok();
    let status = sandbox.get(&format!("{BUDGETS}/web")).await.ok()["status"].clone();
    assert_eq!(
        (&status["disruptionsAllowed"], &status["disruptedPods"]),
        (&json!(0), &Value::Null),
        "not counted"
    );
    sandbox_patch(&sandbox, json!({"currentHealthy": 0})).await;
    let lets = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    sandbox.patch(&format!("{BUDGETS}/web"), MERGE, lets).await.ok();
    sandbox.evict("b").await.ok();
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_of_the_pod_of_its_url_and_of_either_version() {
    let sandbox = cluster().await;
    sandbox.run_pod("a", json!({"app": "web"})).await;
    let path = format!("{PODS}/a/eviction");
    for other in [eviction("b"), json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {}})] {
        let why = sandbox.post(&path, other).await.refused(400);
        assert_eq!(why, "name in URL does not match name in Eviction object");
    }
    budget(&sandbox, json!({"minAvailable": 0}), json!({"observedGeneration": 1, "disruptionsAllowed": 1}))
        .await;
    let dry = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"},
                     "deleteOptions": {"dryRun": ["All"]}});
    sandbox.post(&path, dry).await.ok();
    let stale = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"},
                       "deleteOptions": {"preconditions": {"uid": "another"}}});
    let left = sandbox.get(&format!("{BUDGETS}/web")).await.ok()["status"]["disruptionsAllowed"].clone();
    assert_eq!(left, 1);
    sandbox.post(&path, stale).await.refused(409);
    sandbox_patch(&sandbox, json!({"disruptionsAllowed": 1, "disruptedPods": null})).await;
    let version = sandbox.get(&format!("{PODS}/a")).await.ok()["metadata"]["resourceVersion"].clone();
    let older = json!({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "a"},
                       "deleteOptions": {"preconditions": {"resourceVersion": version}}});
    sandbox.post(&path, older).await.ok();
    let evicted = sandbox.get(&format!("{PODS}/a")).await.ok();
    assert!(evicted["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(evicted["status"]["conditions"][1]["type"], "DisruptionTarget");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_a_controller_keeps_is_judged_and_charged_by_its_status() {
    let sandbox = cluster().await;
    sandbox.run_pod("a", json!({"app": "web"})).await;
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}});
    sandbox.post(BUDGETS, json!({"metadata": {"name": "web"}, "spec": spec})).await.ok();
    let status = |status: Value| sandbox_patch(&sandbox, status);
    status(
        json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}),
    )
    .await;
    let message = |answer: Answer| {
        let message = answer.body["details"]["causes"][0]["message"].as_str().unwrap().to_owned();
        answer.refused(429);
        message
    };
    let why = message(sandbox.evict("a").await);
    assert_eq!(why, "The disruption budget web needs 1 healthy pods and has 1 currently");
    status(json!({"disruptionsAllowed": 1, "currentHealthy": 2})).await;
    sandbox.evict("a").await.ok();
    let after = sandbox.get(&format!("{BUDGETS}/web")).await.ok();
    assert_eq!(after["status"]["disruptionsAllowed"], 0);
    assert!(after["status"]["disruptedPods"]["a"].is_string());
    assert_eq!(after["status"]["conditions"][0]["reason"], "InsufficientPods");

    sandbox.run_pod("b", json!({"app": "web"})).await;
    let why = message(sandbox.evict("b").await);
    assert_eq!(why, "The disruption budget web does not allow evicting pods currently");
    sandbox.patch(&format!("{BUDGETS}/web"), MERGE, json!({"spec": {"minAvailable": 0}})).await.ok();
    let behind = sandbox.evict("b").await;
    assert_eq!(behind.body["details"]["retryAfterSeconds"], 10);
    assert_eq!(message(behind), "The disruption budget web is still being processed by the server.");
}

async fn sandbox_patch(sandbox: &Sandbox, status: Value) {
    sandbox.patch(&format!("{BUDGETS}/web/status"), MERGE, json!({"status": status})).await.ok();
}
