//! What becomes of what is owned when its owner goes.

use super::*;

#[tokio::test(start_paused = true)]
async fn background_deletion_cascades_to_dependents_of_dependents() {
    let rig = Rig::new().with_garbage();
    let owner = rig.create_map("owner", &[]).await;
    let child = rig.create_map("child", &[("owner", &owner)]).await;
    rig.create_map("grandchild", &[("child", &child)]).await;
    rig.create_map("bystander", &[]).await;
    pass(1_000).await;
    rig.delete(MAPS, "owner", &DeleteParams::background()).await;
    pass(5_000).await;
    assert_eq!(rig.names(MAPS).await, ["bystander"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_with_one_living_owner_stays_and_forgets_the_dead_one() {
    let rig = Rig::new().with_garbage();
    let (living, dead) = (rig.create_map("living", &[]).await, rig.create_map("dead", &[]).await);
    rig.create_map("child", &[("living", &living), ("dead", &dead)]).await;
    pass(1_000).await;
    rig.delete(MAPS, "dead", &DeleteParams::background()).await;
    pass(5_000).await;
    let child = rig.get(MAPS, "child").await.unwrap();
    let owners = child["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0]["name"], "living");
}

#[tokio::test(start_paused = true)]
async fn an_owner_with_the_right_name_and_another_uid_is_absent() {
    let rig = Rig::new().with_garbage();
    rig.create_map("owner", &[]).await;
    rig.create_map("child", &[("owner", "00000000-0000-0000-0000-000000000000")]).await;
    pass(5_000).await;
    assert_eq!(rig.names(MAPS).await, ["owner"]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_a_kind_that_nobody_knows_keeps_its_dependents_safe() {
    let rig = Rig::new().with_garbage();
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u"});
    let metadata = json!({"name": "child", "namespace": "default", "ownerReferences": [owner]});
    rig.create(MAPS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).await;
    pass(60_000).await;
    assert_eq!(rig.names(MAPS).await, ["child"]);
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_goes_last() {
    let rig = Rig::new().with_garbage();
    let owner = rig.create_map("owner", &[]).await;
    rig.create_map("child", &[("owner", &owner)]).await;
    rig.patch(MAPS, "child", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    pass(1_000).await;
    rig.delete(MAPS, "owner", &DeleteParams::foreground()).await;
    pass(10_000).await;
    assert_eq!(rig.names(MAPS).await, ["child", "owner"], "the child is held, so the owner waits");
    let child = rig.get(MAPS, "child").await.unwrap();
    assert!(child["metadata"]["deletionTimestamp"].is_string());
    rig.patch(MAPS, "child", json!({"metadata": {"finalizers": null}})).await;
    pass(5_000).await;
    assert!(rig.names(MAPS).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn orphaned_dependents_stay_without_an_owner() {
    let rig = Rig::new().with_garbage();
    let owner = rig.create_map("owner", &[]).await;
    rig.create_map("a", &[("owner", &owner)]).await;
    rig.create_map("b", &[("owner", &owner)]).await;
    pass(1_000).await;
    rig.delete(MAPS, "owner", &DeleteParams::orphan()).await;
    pass(10_000).await;
    assert_eq!(rig.names(MAPS).await, ["a", "b"]);
    for map in rig.list(MAPS).await {
        assert!(map["metadata"].get("ownerReferences").is_none(), "{map}");
    }
}
