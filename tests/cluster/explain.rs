//! The daemon's explanations over HTTP: why each Deployment is as it is and what it waits for.

use serde_json::{Value, json};
use windlass_apiserver::FaultDecision;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{self, Cluster, Daemon, condition};

/// Asks the daemon as an operator would.
async fn ask(daemon: &Daemon, name: &str) -> (u16, String) {
    cluster::ask(&daemon.http, &format!("/debug/deployments/shop/{name}")).await
}

async fn explained(daemon: &Daemon, name: &str) -> Value {
    let (code, text) = ask(daemon, name).await;
    assert_eq!(code, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The sentences of an explanation.
fn texts(explanation: &Value) -> Vec<String> {
    let why = explanation["why"].as_array().unwrap();
    why.iter().map(|why| why["text"].as_str().unwrap().to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_broken_image_is_explained_with_the_name_of_the_pod_and_the_reason_of_the_kubelet() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3).surge(1).unavailable(0)).await;
    cluster.rolled_out("web").await;
    cluster.set_image("web", "broken").await;
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;

    let pods = cluster.objects("Pod");
    let broken = pods.iter().find(|pod| pod["spec"]["containers"][0]["image"] == "app:broken").unwrap();
    let name = broken["metadata"]["name"].as_str().unwrap();
    let web = explained(&daemon, "web").await;
    let said = texts(&web["current"]);
    assert!(
        said.contains(&format!(
            "1 of 1 new pods is not ready ({name}: ImagePullBackOff (Back-off pulling image \"app:broken\"))"
        )),
        "{said:#?}"
    );
    assert!(said.iter().any(|s| s.ends_with("the budget allows scaling up by 0 and down by 0")), "{said:#?}");
    assert_eq!(web["current"]["writes"], json!([]));
    assert!(web["current"]["lookAgainAfterSeconds"].as_u64().is_some_and(|wait| wait <= 600), "{web:#}");
    let earlier = web["earlier"].as_array().unwrap();
    assert!((1..=4).contains(&earlier.len()), "{web:#}");
    let created = |plan: &Value| plan["writes"][0].as_str().is_some_and(|w| w.starts_with("create web-"));
    assert!(earlier.iter().any(created), "{web:#}");

    tokio::time::sleep(std::time::Duration::from_secs(700)).await;
    assert_eq!(condition(&cluster.deployment("web"), "Progressing"), "ProgressDeadlineExceeded");
    let said = texts(&explained(&daemon, "web").await["current"]);
    assert!(
        said.contains(
            &"The rollout has made no progress for 600 s; it continues as soon as its pods become available"
                .into()
        )
    );
}

#[tokio::test(start_paused = true)]
async fn the_index_lists_what_is_unfinished_with_its_first_reason_and_counts_the_rest() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    for name in ["web", "db"] {
        cluster.create(deployment(name).replicas(2).surge(1).unavailable(0)).await;
        cluster.rolled_out(name).await;
    }
    let index = || async {
        let (code, text) = cluster::ask(&daemon.http, "/debug/workloads").await;
        assert_eq!(code, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    let at_rest = index().await;
    assert_eq!((&at_rest["unfinished"], &at_rest["atRest"]), (&json!([]), &json!({"Deployment": 2})));
    cluster.set_image("web", "broken").await;
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    let stuck = index().await;
    let only = &stuck["unfinished"][0];
    assert_eq!(stuck["atRest"], json!({"Deployment": 1}));
    assert_eq!(
        (&only["kind"], &only["namespace"], &only["name"], &only["path"]),
        (&json!("Deployment"), &json!("shop"), &json!("web"), &json!("/debug/deployments/shop/web"))
    );
    assert_eq!(
        only["why"].as_str(),
        texts(&explained(&daemon, "web").await["current"]).first().map(|s| &**s)
    );
}

/// The gauge of the memory that explanations take.
fn explanations_bytes(daemon: &Daemon) -> usize {
    let text = daemon.metrics.render();
    let value = text.lines().find_map(|line| line.strip_prefix("windlass_explanations_bytes "));
    value.unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_quota_and_a_write_that_fails_are_explained() {
    let cluster = Cluster::answering(|request| match (request.verb, request.kind) {
        ("create", "Pod") => FaultDecision::Refuse {
            code: 403,
            message: "exceeded quota: pods".into(),
            reason: "Forbidden".into(),
        },
        ("create", "ReplicaSet")
            if request.namespace == "shop" && String::from_utf8_lossy(&request.body).contains("app:v2") =>
        {
            FaultDecision::Refuse {
                code: 403,
                message: "the webhook refuses ReplicaSets".into(),
                reason: "Forbidden".into(),
            }
        }
        _ => FaultDecision::Proceed,
    })
    .await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(2)).await;
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let said = texts(&explained(&daemon, "web").await["current"]);
    assert!(said.iter().any(|s| s.contains("FailedCreate") && s.contains("exceeded quota")), "{said:#?}");

    cluster.set_image("web", "v2").await;
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let current = explained(&daemon, "web").await["current"].clone();
    assert!(
        current["error"].as_str().is_some_and(|error| error.contains("the webhook refuses ReplicaSets")),
        "{current:#}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_answers_indented_json_and_404_with_a_reason() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(1)).await;
    cluster.rolled_out("web").await;
    let (code, text) = ask(&daemon, "web").await;
    assert_eq!(code, 200);
    assert!(text.starts_with("{\n  \"deployment\": \"shop/web\",\n  \"current\": {\n"), "{text}");
    let explanations = explained(&daemon, "web").await;
    let said = texts(&explanations["current"]);
    assert_eq!(said, ["Complete: 1 of 1 pods is new and available, and no other pod exists"]);
    assert_eq!(explanations["earlier"], json!([]), "a settled Deployment keeps one explanation");
    assert!((200..2000).contains(&explanations_bytes(&daemon)), "{}", explanations_bytes(&daemon));

    assert_eq!(ask(&daemon, "missing").await, (404, "no Deployment shop/missing is in the cache\n".into()));
    cluster.call(http::Method::DELETE, "/apis/apps/v1/namespaces/shop/deployments/web", &Value::Null).await;
    cluster.eventually(60, "the Deployment is gone", |c| c.deployment("web").is_null()).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(ask(&daemon, "web").await.0, 404);
    assert_eq!(explanations_bytes(&daemon), 0);
}
