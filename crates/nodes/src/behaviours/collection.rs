//! Dependents after the deletion of their owner.

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
async fn an_object_with_one_existing_owner_is_kept_without_its_absent_one() {
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
async fn dependents_of_an_owner_of_an_unknown_kind_are_kept() {
    let rig = Rig::new().with_garbage();
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u"});
    let metadata = json!({"name": "child", "namespace": "default", "ownerReferences": [owner]});
    rig.create(MAPS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).await;
    pass(60_000).await;
    assert_eq!(rig.names(MAPS).await, ["child"]);
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_is_deleted_last() {
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

#[tokio::test(start_paused = true)]
async fn three_that_own_each_other_in_a_circle_end_by_a_foreground_deletion() {
    let rig = Rig::new().with_garbage();
    let names = ["a", "b", "c"];
    let mut uids = Vec::new();
    for name in names {
        uids.push(rig.create_map(name, &[]).await);
    }
    for (at, name) in names.into_iter().enumerate() {
        let owner = (at + 2) % 3;
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": names[owner], "uid": uids[owner],
                               "blockOwnerDeletion": true});
        rig.patch(MAPS, name, json!({"metadata": {"ownerReferences": [reference]}})).await;
    }
    pass(1_000).await;
    rig.delete(MAPS, "a", &DeleteParams::foreground()).await;
    pass(10_000).await;
    assert!(rig.names(MAPS).await.is_empty());
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

#[tokio::test(start_paused = true)]
async fn objects_of_a_kind_that_came_later_are_owners_and_dependents() {
    let rig = Rig::new().with_garbage();
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
    });
    pass(5_000).await;
    rig.create(DEFINITIONS, definition).await;
    pass(1_000).await;
    let widget = |name: &str, owners: Value| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget",
               "metadata": {"name": name, "namespace": "default", "ownerReferences": owners}})
    };
    let owner = rig.create(WIDGETS, widget("owner", json!([]))).await["metadata"]["uid"].clone();
    let owners = json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "owner", "uid": owner}]);
    rig.create(WIDGETS, widget("dependent", owners.clone())).await;
    let metadata = json!({"name": "map", "namespace": "default", "ownerReferences": owners});
    rig.create(MAPS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).await;
    pass(60_000).await;
    assert_eq!(rig.names(MAPS).await, ["map"]);
    rig.delete(WIDGETS, "owner", &DeleteParams::background()).await;
    pass(60_000).await;
    assert_eq!((rig.names(WIDGETS).await.len(), rig.names(MAPS).await.len()), (0, 0));
}

const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

/// A DaemonSet with a pod and a revision, as its controller creates them.
async fn create_daemon_set(rig: &Rig) {
    let template = json!({"metadata": {"labels": {"app": "agent"}},
                          "spec": {"containers": [{"name": "main", "image": "nginx"}]}});
    let daemon_set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
                     "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template}});
    let daemon_set = rig.create(DAEMON_SETS, daemon_set).await;
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": daemon_set["metadata"]["uid"],
                       "controller": true, "blockOwnerDeletion": true});
    let metadata = |name: &str| json!({"name": name, "labels": {"app": "agent"}, "ownerReferences": [owner]});
    let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata("agent-1"),
                          "revision": 1, "data": {"spec": {"template": template}}});
    rig.create(REVISIONS, revision).await;
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata("agent-x"), "spec": template["spec"]});
    rig.create(PODS, pod).await;
    pass(2_000).await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_and_revisions_of_a_deleted_daemon_set_are_deleted() {
    for how in [DeleteParams::background(), DeleteParams::foreground(), DeleteParams::default()] {
        let rig = Rig::new().with_pods().with_garbage();
        create_daemon_set(&rig).await;
        rig.delete(DAEMON_SETS, "agent", &how).await;
        pass(10_000).await;
        for path in [DAEMON_SETS, PODS, REVISIONS] {
            assert!(rig.names(path).await.is_empty(), "{path} {how:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_deletion_of_a_daemon_set_keeps_its_pods_and_revisions() {
    let rig = Rig::new().with_pods().with_garbage();
    create_daemon_set(&rig).await;
    rig.delete(DAEMON_SETS, "agent", &DeleteParams::orphan()).await;
    pass(10_000).await;
    assert!(rig.names(DAEMON_SETS).await.is_empty());
    for (path, name) in [(PODS, "agent-x"), (REVISIONS, "agent-1")] {
        let left = rig.get(path, name).await.unwrap();
        assert!(left["metadata"].get("ownerReferences").is_none(), "{left}");
    }
}
