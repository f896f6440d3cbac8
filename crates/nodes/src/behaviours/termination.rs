//! Namespaces are deleted with all their content.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_reports_remaining_content_until_it_is_empty() {
    let rig = Rig::new().with_pods().with_garbage().with_namespaces();
    rig.create(SPACES, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "zoo"}})).await;
    pass(1_000).await;
    let accounts = "/api/v1/namespaces/zoo/serviceaccounts";
    assert_eq!(rig.names(accounts).await, ["default"]);
    let maps = "/api/v1/namespaces/zoo/configmaps";
    let held = json!({"name": "held", "finalizers": ["example.com/hold"]});
    rig.create(maps, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held})).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lion"},
                     "spec": {"containers": [{"name": "main", "image": "nginx"}]}});
    rig.create("/api/v1/namespaces/zoo/pods", pod).await;
    pass(2_000).await;
    rig.delete(SPACES, "zoo", &DeleteParams::default()).await;
    pass(30_000).await;
    let zoo = rig.get(SPACES, "zoo").await.expect("a finalizer holds its content");
    let conditions = zoo["status"]["conditions"].as_array().unwrap();
    let message = |type_: &str| {
        let found = conditions.iter().find(|c| c["type"] == type_).unwrap();
        (found["status"].as_str().unwrap(), found["message"].as_str().unwrap())
    };
    assert_eq!(
        message("NamespaceContentRemaining"),
        ("True", "Some resources are remaining: configmaps. has 1 resource instances")
    );
    assert_eq!(
        message("NamespaceFinalizersRemaining"),
        (
            "True",
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        )
    );
    rig.patch(maps, "held", json!({"metadata": {"finalizers": null}})).await;
    pass(30_000).await;
    assert!(rig.get(SPACES, "zoo").await.is_none());
}

/// A ReplicationController in `namespace` and two pods that it controls, as its controller makes them.
async fn controller_with_pods(rig: &Rig, namespace: &str) -> String {
    let controllers = format!("/api/v1/namespaces/{namespace}/replicationcontrollers");
    let spec =
        json!({"containers": [{"name": "main", "image": "nginx"}], "terminationGracePeriodSeconds": 1});
    let template = json!({"metadata": {"labels": {"app": "old"}}, "spec": spec});
    let created = rig
        .create(
            &controllers,
            json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "old"},
                   "spec": {"replicas": 2, "template": template}}),
        )
        .await;
    for name in ["old-1", "old-2"] {
        let owner = json!({"apiVersion": "v1", "kind": "ReplicationController", "name": "old",
                           "uid": created["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true});
        let metadata = json!({"name": name, "labels": {"app": "old"}, "ownerReferences": [owner]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        rig.create(&format!("/api/v1/namespaces/{namespace}/pods"), pod).await;
    }
    controllers
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_replication_controller_are_deleted_by_propagation_policy() {
    for (parameters, first, last) in [
        (DeleteParams::background(), 0, 0),
        (DeleteParams::foreground(), 1, 0),
        (DeleteParams::orphan(), 0, 2),
        // The options of a client from before the garbage collector.
        (DeleteParams::default(), 0, 2),
    ] {
        let rig = Rig::new().with_pods().with_garbage();
        let controllers = controller_with_pods(&rig, "default").await;
        pass(5_000).await;
        rig.delete(&controllers, "old", &parameters).await;
        pass(100).await;
        assert_eq!(rig.names(&controllers).await.len(), first, "{parameters:?}");
        pass(10_000).await;
        assert_eq!(rig.names(&controllers).await.len(), 0, "{parameters:?}");
        let pods = rig.list(PODS).await;
        assert_eq!(pods.len(), last, "{parameters:?}");
        assert!(pods.iter().all(|pod| pod["metadata"].get("ownerReferences").is_none()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_replication_controllers_and_pods_of_a_deleted_namespace_are_deleted() {
    let rig = Rig::new().with_pods().with_garbage().with_namespaces();
    rig.create(SPACES, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "zoo"}})).await;
    pass(1_000).await;
    let controllers = controller_with_pods(&rig, "zoo").await;
    pass(5_000).await;
    rig.delete(SPACES, "zoo", &DeleteParams::default()).await;
    pass(60_000).await;
    assert!(rig.get(SPACES, "zoo").await.is_none());
    assert!(rig.names(&controllers).await.is_empty());
    assert!(rig.names("/api/v1/pods").await.is_empty());
}
