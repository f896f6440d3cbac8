//! Discovery of the embedded API server, by the client that the daemon uses.

use std::sync::Arc;

use windlass::metrics::Metrics;
use windlass::runtime::discovery::{Discovery, Verb};
use windlass::runtime::{Api, RateLimiter};
use windlass_testkit::cluster::Cluster;

#[tokio::test(start_paused = true)]
async fn the_resources_of_the_api_server_are_found_and_asked_for_again_at_no_cost() {
    let cluster = Cluster::new().await;
    let metrics = Metrics::new();
    let api = Api::new(cluster.client.clone(), "sandbox", RateLimiter::unlimited(), metrics.clone());
    let mut discovery = Discovery::new(api);
    let found = discovery.refresh().await.unwrap();
    assert_eq!(found.failed, []);
    for (group, kind, path) in [
        ("", "Pod", "/api/v1/namespaces/shop/pods"),
        ("apps", "Deployment", "/apis/apps/v1/namespaces/shop/deployments"),
        ("policy", "PodDisruptionBudget", "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"),
    ] {
        let resource = found.of_kind(group, kind).unwrap();
        assert_eq!(resource.path(Some("shop")), path);
        assert!(resource.namespaced && resource.verbs.has_all(&[Verb::List, Verb::Delete]), "{resource:?}");
    }
    assert!(!found.of_kind("", "Namespace").unwrap().namespaced);
    assert!(Arc::ptr_eq(&found, &discovery.refresh().await.unwrap()));
    let text = metrics.render();
    let unchanged = r#"rest_client_requests_total{code="304",host="sandbox",method="GET"} 2"#;
    assert!(text.contains(unchanged), "{text}");
}
