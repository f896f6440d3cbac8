//! Objects with very many owners, none of which exists: each owner costs a request.

use super::*;

const EVIL: &str = "/api/v1/namespaces/evil/configmaps";

#[tokio::test(start_paused = true)]
async fn objects_with_very_many_owners_in_one_namespace_hold_up_no_other_and_go_in_the_end() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    cluster.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": "evil"}})).await;
    for object in 0..25 {
        let owner = |number: usize| {
            let name = format!("nobody-{object}-{number}");
            json!({"apiVersion": "v1", "kind": "Secret", "name": name, "uid": format!("u-{object}-{number}")})
        };
        let owners: Vec<Value> = (0..240).map(owner).collect();
        cluster.call(Method::POST, EVIL, &map(&format!("evil-{object}"), &owners, &[])).await;
    }
    let owner = create(&cluster, "owner", &[]).await;
    let child = create(&cluster, "child", &[to(&owner)]).await;
    for name in ["a", "b", "c"] {
        create(&cluster, name, &[to(&child)]).await;
    }
    // A hundred requests in a second, so that the 6,000 owners take 60 s.
    let slow = ControllerConfig { qps: 20.0, burst: 1, ..config() };
    let _daemon = cluster.start_with(1, slow, |router| router);
    seconds(30).await;
    delete_map(&cluster, "owner", "Background").await;
    cluster.eventually(5, "the tree is gone", |cluster| are_gone(cluster, &["child", "a", "b", "c"])).await;
    let evil = |cluster: &Cluster| {
        cluster
            .sandbox
            .objects("ConfigMap")
            .iter()
            .filter(|map| map["metadata"]["namespace"] == "evil")
            .count()
    };
    assert!(evil(&cluster) > 0, "there is still something to do");
    cluster.eventually(120, "they are gone", |cluster| evil(cluster) == 0).await;
}
