//! Quotas and limit ranges. `tests/real_server/quotas.rs` compares them with a real API server.

use super::*;

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";

fn sized(name: &str, cpu: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

async fn used(sandbox: &Sandbox, quota: &str) -> Value {
    sandbox.get(&format!("{QUOTAS}/{quota}")).await.ok()["status"]["used"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_quota_counts_what_is_there_and_what_comes_and_goes() {
    let sandbox = sandbox();
    sandbox.post(PODS, sized("a", "300m")).await.ok();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": 2, "cpu": "1"}}});
    let created = sandbox.post(QUOTAS, quota).await.ok();
    assert_eq!(
        created["status"],
        json!({"hard": {"pods": "2", "cpu": "1"}, "used": {"pods": "1", "cpu": "300m"}})
    );
    sandbox.post(PODS, sized("b", "0.7")).await.ok();
    assert_eq!(used(&sandbox, "q").await, json!({"pods": "2", "cpu": "1"}));
    let message = sandbox.post(PODS, sized("c", "1m")).await.refused(403);
    assert_eq!(
        message,
        "pods \"c\" is forbidden: exceeded quota: q, requested: cpu=1m,pods=1, used: cpu=1,pods=2, limited: cpu=1,pods=2"
    );
    // A client cannot say what is used.
    let nothing = json!({"status": {"used": {"pods": "0", "cpu": "0"}}});
    sandbox.patch(&format!("{QUOTAS}/q/status"), MERGE, nothing).await.ok();
    assert_eq!(used(&sandbox, "q").await, json!({"pods": "2", "cpu": "1"}));
    sandbox.patch(&format!("{PODS}/a/status"), MERGE, json!({"status": {"phase": "Failed"}})).await.ok();
    assert_eq!(used(&sandbox, "q").await, json!({"pods": "1", "cpu": "700m"}));
    sandbox
        .write(Method::DELETE, &format!("{PODS}/b"), "application/json", json!({"gracePeriodSeconds": 0}))
        .await
        .ok();
    assert_eq!(used(&sandbox, "q").await, json!({"pods": "0", "cpu": "0"}));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_is_judged_by_the_quota_and_not_charged() {
    let sandbox = sandbox();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}});
    sandbox.post(QUOTAS, quota).await.ok();
    let dry = format!("{PODS}?dryRun=All");
    for _ in 0..2 {
        sandbox.post(&dry, pod("a")).await.ok();
    }
    assert_eq!(used(&sandbox, "q").await["pods"], "0");
    sandbox.post(PODS, pod("a")).await.ok();
    assert!(sandbox.post(&dry, pod("b")).await.refused(403).contains("exceeded quota: q, requested: pods=1"));
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_demands_a_request_names_the_containers_that_lack_it() {
    let sandbox = sandbox();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"limits.cpu": "1", "cpu": "1"}}});
    sandbox.post(QUOTAS, quota).await.ok();
    let bare = pod("a");
    let container = bare["spec"]["containers"][0]["name"].as_str().unwrap().to_owned();
    assert_eq!(
        sandbox.post(PODS, bare).await.refused(403),
        format!(
            "pods \"a\" is forbidden: failed quota: q: must specify cpu for: {container}; limits.cpu for: {container}"
        )
    );
    // A LimitRange comes first.
    let items = json!([{"type": "Container", "max": {"cpu": "500m"}}]);
    sandbox.post(RANGES, json!({"metadata": {"name": "r"}, "spec": {"limits": items}})).await.ok();
    let made = sandbox.post(PODS, pod("a")).await.ok();
    let both = json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}});
    assert_eq!(made["spec"]["containers"][0]["resources"], both);
    assert!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"]
            .as_str()
            .unwrap()
            .contains("cpu request")
    );
    assert_eq!(made["status"]["qosClass"], "Burstable");
}

#[tokio::test(start_paused = true)]
async fn the_class_of_a_pod_follows_from_what_it_says_as_a_whole() {
    let sandbox = sandbox();
    let mut whole = pod("whole");
    whole["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
    assert_eq!(sandbox.post(PODS, whole).await.ok()["status"]["qosClass"], "Burstable");
}

#[tokio::test(start_paused = true)]
async fn objects_of_custom_kinds_are_counted_by_their_resource() {
    let sandbox = sandbox();
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true,
                      "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    sandbox.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await.ok();
    let hard = json!({"count/widgets.example.com": "1", "count/gadgets.example.com": "1"});
    sandbox.post(QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.ok();
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget =
        |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    sandbox.post(widgets, widget("a")).await.ok();
    assert_eq!(
        used(&sandbox, "q").await,
        json!({"count/widgets.example.com": "1"}),
        "no kind is called gadgets"
    );
    let message = sandbox.post(widgets, widget("b")).await.refused(403);
    assert!(message.starts_with("widgets.example.com \"b\" is forbidden: exceeded quota: q"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_status_follows_each_write_as_a_count_of_everything_would() {
    let sandbox = sandbox();
    let hard = json!({"pods": "9", "requests.cpu": "9", "limits.memory": "9Gi", "count/pods": "9"});
    for (name, scopes) in
        [("all", json!([])), ("best", json!(["BestEffort"])), ("ends", json!(["Terminating"]))]
    {
        let hard = if name == "all" { hard.clone() } else { json!({"pods": "9"}) };
        let spec = json!({"hard": hard, "scopes": scopes});
        sandbox.post(QUOTAS, json!({"metadata": {"name": name}, "spec": spec})).await.ok();
    }
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let name = format!("p{}", random.u8(0..6));
        let path = format!("{PODS}/{name}");
        match random.u8(0..4) {
            0 => drop(sandbox.post(PODS, sized(&name, ["10m", "1", "0"][random.usize(0..3)])).await),
            1 => drop(sandbox.post(PODS, pod(&name)).await),
            2 => drop(
                sandbox
                    .patch(&format!("{path}/status"), MERGE, json!({"status": {"phase": "Succeeded"}}))
                    .await,
            ),
            _ => drop(
                sandbox
                    .write(Method::DELETE, &path, "application/json", json!({"gracePeriodSeconds": 0}))
                    .await,
            ),
        }
        for quota in sandbox.objects("ResourceQuota") {
            let is_best = |pod: &Value| pod["status"]["qosClass"] == "BestEffort";
            let pods = sandbox.objects("Pod");
            let live: Vec<&Value> = pods.iter().filter(|pod| pod["status"]["phase"] == "Pending").collect();
            let expected = match quota["metadata"]["name"].as_str().unwrap() {
                "all" => live.len(),
                "best" => live.iter().filter(|pod| is_best(pod)).count(),
                _ => 0,
            };
            assert_eq!(quota["status"]["used"]["pods"], expected.to_string());
            if quota["metadata"]["name"] == "all" {
                let cpu = |pod: &&Value| match pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
                    .as_str()
                {
                    Some("10m") => 10,
                    Some("1") => 1000,
                    _ => 0,
                };
                let millis: i128 = live.iter().map(cpu).sum();
                let used = quota["status"]["used"]["requests.cpu"].as_str().unwrap();
                assert_eq!(
                    crate::quantity::Quantity::parse(used),
                    crate::quantity::Quantity::parse(&format!("{millis}m"))
                );
                assert_eq!(quota["status"]["used"]["count/pods"], pods.len().to_string());
            }
        }
    }
}

const SERVICES: &str = "/api/v1/namespaces/default/services";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn service(name: &str, kind: &str, ports: i64) -> Value {
    let ports: Vec<Value> = (0..ports).map(|at| json!({"name": format!("p{at}"), "port": 80 + at})).collect();
    json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": ports}})
}

#[tokio::test(start_paused = true)]
async fn services_count_with_their_type_and_a_change_of_it_may_be_refused() {
    let sandbox = sandbox();
    let hard = json!({"services": "3", "services.nodeports": "3", "services.loadbalancers": "1"});
    sandbox.post(QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.ok();
    sandbox.post(SERVICES, service("a", "NodePort", 2)).await.ok();
    sandbox.post(SERVICES, service("b", "LoadBalancer", 1)).await.ok();
    let counts = |services: &str, ports: &str, balancers: &str| json!({"services": services, "services.nodeports": ports, "services.loadbalancers": balancers});
    assert_eq!(used(&sandbox, "q").await, counts("2", "3", "1"));
    let message = sandbox.post(SERVICES, service("c", "LoadBalancer", 1)).await.refused(403);
    assert!(
        message.contains(
            "requested: services.loadbalancers=1,services.nodeports=1, used: services.loadbalancers=1,services.nodeports=3"
        ),
        "{message}"
    );
    sandbox.post(SERVICES, service("c", "ClusterIP", 1)).await.ok();
    let to_ports = json!({"spec": {"type": "NodePort"}});
    let message = sandbox.patch(&format!("{SERVICES}/c"), MERGE, to_ports.clone()).await.refused(403);
    assert!(message.contains("exceeded quota: q, requested: services.nodeports=1"), "{message}");
    sandbox.patch(&format!("{SERVICES}/a"), MERGE, json!({"spec": {"type": "ClusterIP"}})).await.ok();
    assert_eq!(used(&sandbox, "q").await, counts("3", "1", "1"));
    sandbox.patch(&format!("{SERVICES}/c"), MERGE, to_ports).await.ok();
    assert_eq!(used(&sandbox, "q").await, counts("3", "2", "1"));
}

fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
           "resources": {"requests": {"storage": size}}}})
}

#[tokio::test(start_paused = true)]
async fn claims_count_their_storage_in_all_and_of_their_class() {
    const FAST: &str = "fast.storageclass.storage.k8s.io/requests.storage";
    let sandbox = sandbox();
    let hard = json!({"persistentvolumeclaims": "5", "requests.storage": "10Gi", FAST: "2Gi"});
    sandbox.post(QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.ok();
    sandbox.post(CLAIMS, claim("a", "fast", "1Gi")).await.ok();
    sandbox.post(CLAIMS, claim("b", "slow", "4Gi")).await.ok();
    let message = sandbox.post(CLAIMS, claim("c", "fast", "2Gi")).await.refused(403);
    assert!(
        message.contains(&format!("requested: {FAST}=2Gi, used: {FAST}=1Gi, limited: {FAST}=2Gi")),
        "{message}"
    );
    let counts = json!({"persistentvolumeclaims": "2", "requests.storage": "5Gi", FAST: "1Gi"});
    assert_eq!(used(&sandbox, "q").await, counts);
    let allocated = json!({"status": {"allocatedResources": {"storage": "1500Mi"}}});
    sandbox.patch(&format!("{CLAIMS}/a/status"), MERGE, allocated).await.ok();
    assert_eq!(used(&sandbox, "q").await[FAST], "1500Mi");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_outstays_its_deletion_is_not_counted_once_anybody_looks() {
    let sandbox = sandbox();
    let hard = json!({"pods": "2", "count/pods": "2"});
    sandbox.post(QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.ok();
    let mut lost = pod("lost");
    lost["spec"]["nodeName"] = "n1".into();
    sandbox.post(PODS, lost).await.ok();
    sandbox
        .write(Method::DELETE, &format!("{PODS}/lost"), "application/json", json!({"gracePeriodSeconds": 10}))
        .await
        .ok();
    tokio::time::sleep(Duration::from_secs(19)).await;
    let look = json!({"status": {"used": {"pods": "0"}}});
    sandbox.patch(&format!("{QUOTAS}/q/status"), MERGE, look.clone()).await.ok();
    assert_eq!(used(&sandbox, "q").await, json!({"pods": "1", "count/pods": "1"}));
    tokio::time::sleep(Duration::from_secs(2)).await;
    sandbox.patch(&format!("{QUOTAS}/q/status"), MERGE, look).await.ok();
    assert_eq!(used(&sandbox, "q").await, json!({"pods": "0", "count/pods": "1"}));
    let end = json!({"gracePeriodSeconds": 0});
    sandbox.write(Method::DELETE, &format!("{PODS}/lost"), "application/json", end).await.ok();
    assert_eq!(
        used(&sandbox, "q").await,
        json!({"pods": "0", "count/pods": "0"}),
        "it is not taken off twice"
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_that_a_client_writes_in_vain_is_no_change() {
    let sandbox = sandbox();
    sandbox.post(QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})).await.ok();
    let path = format!("{QUOTAS}/q/status");
    let mut versions = Vec::new();
    for pods in ["1", "2", "3"] {
        let written = sandbox.patch(&path, MERGE, json!({"status": {"used": {"pods": pods}}})).await.ok();
        assert_eq!(written["status"]["used"]["pods"], "0");
        versions.push(written["metadata"]["resourceVersion"].clone());
    }
    assert_eq!(versions[1], versions[2]);
}

#[tokio::test(start_paused = true)]
async fn without_counting_quotas_are_charged_and_a_controller_does_the_rest() {
    let sandbox = Sandbox::new(Options { counts_quotas: false, ..options() });
    sandbox.post(PODS, pod("before")).await.ok();
    let spec = json!({"hard": {"pods": "2"}});
    let created = sandbox.post(QUOTAS, json!({"metadata": {"name": "q"}, "spec": spec})).await.ok();
    assert!(created["status"]["used"].is_null(), "{created}");
    sandbox.post(PODS, pod("unlimited")).await.ok();
    let path = format!("{QUOTAS}/q/status");
    sandbox.patch(&path, MERGE, json!({"status": {"hard": {"pods": "2"}}})).await.ok();
    let message = sandbox.post(PODS, pod("a")).await.refused(403);
    assert!(message.ends_with("status unknown for quota: q, resources: pods"), "{message}");
    sandbox.patch(&path, MERGE, json!({"status": {"used": {"pods": "1"}}})).await.ok();
    sandbox.post(PODS, pod("a")).await.ok();
    assert_eq!(used(&sandbox, "q").await, json!({"pods": "2"}));
    let gone = json!({"gracePeriodSeconds": 0});
    sandbox.write(Method::DELETE, &format!("{PODS}/a"), "application/json", gone).await.ok();
    assert_eq!(used(&sandbox, "q").await, json!({"pods": "2"}));
    assert!(sandbox.post(PODS, pod("b")).await.refused(403).contains("exceeded quota: q"));
}
