//! Dependents after the deletion of their owner, and namespaces that end.

use super::*;

const NAMESPACES: &str = "/api/v1/namespaces";
/// So long after each write.
const DELAY: Duration = Duration::from_millis(100);

fn collecting() -> Sandbox {
    Sandbox::new(Options { collect_after: Some(DELAY), ..options() })
}

async fn pass() {
    tokio::time::sleep(DELAY * 2).await;
}

impl Sandbox {
    /// Creates a ConfigMap; `owners` are other ConfigMaps, as (name, UID). Its UID.
    async fn create_map(&self, name: &str, owners: &[(&str, &str)]) -> String {
        let owners: Vec<Value> = owners.iter().map(|(name, uid)| reference("ConfigMap", name, uid)).collect();
        let mut map = config_map(name);
        map["metadata"]["ownerReferences"] = json!(owners);
        self.post(CONFIG_MAPS, map).await.ok()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    async fn patch_map(&self, name: &str, metadata: Value) {
        self.patch(&format!("{CONFIG_MAPS}/{name}"), MERGE, json!({"metadata": metadata})).await.ok();
    }

    async fn delete_by(&self, path: &str, policy: &str) {
        self.delete_with(path, json!({"propagationPolicy": policy})).await.ok();
    }

    fn names(&self, kind: &str) -> Vec<String> {
        let name = |object: Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        self.objects(kind).into_iter().map(name).collect()
    }
}

fn reference(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "blockOwnerDeletion": true})
}

#[tokio::test(start_paused = true)]
async fn a_deletion_in_the_background_goes_on_to_the_dependents_of_dependents_after_the_delay() {
    let sandbox = collecting();
    let owner = sandbox.create_map("owner", &[]).await;
    let child = sandbox.create_map("child", &[("owner", &owner)]).await;
    sandbox.create_map("grandchild", &[("child", &child)]).await;
    sandbox.create_map("bystander", &[]).await;
    pass().await;
    assert_eq!(sandbox.names("ConfigMap").len(), 4);
    sandbox.delete_by(&format!("{CONFIG_MAPS}/owner"), "Background").await;
    tokio::time::sleep(DELAY / 2).await;
    assert_eq!(sandbox.names("ConfigMap"), ["bystander", "child", "grandchild"]);
    pass().await;
    assert_eq!(sandbox.names("ConfigMap"), ["bystander"]);
}

/// A sweep reads all objects: a rollout of thousands of pods would read each of them thousands of times.
#[tokio::test(start_paused = true)]
async fn the_creation_of_an_object_whose_owner_exists_causes_no_sweep() {
    let sandbox = collecting();
    let is_planned = || sandbox.server.sweeps.is_planned.load(std::sync::atomic::Ordering::SeqCst);
    let owner = sandbox.create_map("owner", &[]).await;
    sandbox.create_map("child", &[("owner", &owner)]).await;
    assert!(!is_planned());
    sandbox.create_map("orphan", &[("owner", &owner), ("dead", "u")]).await;
    assert!(is_planned());
    pass().await;
    sandbox.delete_by(&format!("{CONFIG_MAPS}/owner"), "Orphan").await;
    pass().await;
    sandbox.create_map("late", &[("owner", &owner)]).await;
    assert!(is_planned(), "its owner is gone");
}

#[tokio::test(start_paused = true)]
async fn without_the_option_what_has_no_owner_stays() {
    let sandbox = sandbox();
    sandbox.create_map("child", &[("owner", "u")]).await;
    pass().await;
    assert_eq!(sandbox.names("ConfigMap"), ["child"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_with_one_existing_owner_is_kept_without_its_absent_one() {
    let sandbox = collecting();
    let living = sandbox.create_map("living", &[]).await;
    sandbox.create_map("child", &[("living", &living), ("dead", "u")]).await;
    pass().await;
    let child = sandbox.object("ConfigMap", "default", "child").unwrap();
    assert_eq!(child["metadata"]["ownerReferences"], json!([reference("ConfigMap", "living", &living)]));
}

#[tokio::test(start_paused = true)]
async fn a_reference_must_agree_in_group_kind_name_namespace_and_uid() {
    let sandbox = collecting();
    sandbox.post(NAMESPACES, namespace("elsewhere")).await.ok();
    let owner = sandbox.create_map("owner", &[]).await;
    let references = [
        reference("ConfigMap", "owner", "00000000-0000-0000-0000-000000000000"),
        reference("ConfigMap", "another", &owner),
        reference("Secret", "owner", &owner),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "owner", "uid": owner}),
    ];
    for (number, reference) in references.iter().enumerate() {
        let mut map = config_map(&format!("wrong-{number}"));
        map["metadata"]["ownerReferences"] = json!([reference]);
        sandbox.post(CONFIG_MAPS, map).await.ok();
    }
    let mut right = config_map("elsewhere");
    right["metadata"]["ownerReferences"] = json!([reference("ConfigMap", "owner", &owner)]);
    sandbox.post("/api/v1/namespaces/elsewhere/configmaps", right.clone()).await.ok();
    right["metadata"]["name"] = json!("right");
    sandbox.post(CONFIG_MAPS, right).await.ok();
    pass().await;
    assert_eq!(sandbox.names("ConfigMap"), ["owner", "right"]);
}

#[tokio::test(start_paused = true)]
async fn what_has_an_owner_of_which_nobody_can_tell_is_kept() {
    let sandbox = collecting();
    let owner = sandbox.create_map("owner", &[]).await;
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "u"});
    let mut map = config_map("child");
    map["metadata"]["ownerReferences"] = json!([unknown, reference("ConfigMap", "dead", "d")]);
    sandbox.post(CONFIG_MAPS, map).await.ok();
    let mut space = namespace("child");
    space["metadata"]["ownerReferences"] = json!([reference("ConfigMap", "owner", &owner)]);
    sandbox.post(NAMESPACES, space).await.ok();
    pass().await;
    let child = sandbox.object("ConfigMap", "default", "child").unwrap();
    assert_eq!(child["metadata"]["ownerReferences"], json!([unknown]));
    assert!(sandbox.object("Namespace", "", "child").is_some());
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_is_deleted_last() {
    let sandbox = collecting();
    let owner = sandbox.create_map("owner", &[]).await;
    let child = sandbox.create_map("child", &[("owner", &owner)]).await;
    sandbox.create_map("grandchild", &[("child", &child)]).await;
    sandbox.patch_map("grandchild", json!({"finalizers": ["example.com/hold"]})).await;
    sandbox.delete_by(&format!("{CONFIG_MAPS}/owner"), "Foreground").await;
    pass().await;
    assert_eq!(
        sandbox.names("ConfigMap"),
        ["child", "grandchild", "owner"],
        "one is held, so the others wait"
    );
    let all = sandbox.objects("ConfigMap");
    assert!(all.iter().all(|map| map["metadata"]["deletionTimestamp"].is_string()), "{all:?}");
    sandbox.patch_map("grandchild", json!({"finalizers": null})).await;
    pass().await;
    assert!(sandbox.names("ConfigMap").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dependent_that_does_not_block_is_deleted_and_holds_up_nobody() {
    let sandbox = collecting();
    let owner = sandbox.create_map("owner", &[]).await;
    sandbox.create_map("child", &[("owner", &owner)]).await;
    let mut unblocked = reference("ConfigMap", "owner", &owner);
    unblocked["blockOwnerDeletion"] = json!(false);
    let held = json!({"ownerReferences": [unblocked], "finalizers": ["example.com/hold"]});
    sandbox.patch_map("child", held).await;
    sandbox.delete_by(&format!("{CONFIG_MAPS}/owner"), "Foreground").await;
    pass().await;
    assert_eq!(sandbox.names("ConfigMap"), ["child"]);
    let child = sandbox.object("ConfigMap", "default", "child").unwrap();
    assert!(child["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test(start_paused = true)]
async fn orphaned_dependents_stay_without_an_owner() {
    let sandbox = collecting();
    let owner = sandbox.create_map("owner", &[]).await;
    sandbox.create_map("a", &[("owner", &owner)]).await;
    sandbox.create_map("b", &[("owner", &owner), ("dead", "u")]).await;
    sandbox.delete_by(&format!("{CONFIG_MAPS}/owner"), "Orphan").await;
    pass().await;
    assert_eq!(sandbox.names("ConfigMap"), ["a", "b"]);
    for map in sandbox.objects("ConfigMap") {
        assert!(map["metadata"].get("ownerReferences").is_none(), "{map}");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_that_own_each_other_in_a_circle_end_by_a_foreground_deletion() {
    for names in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
        let sandbox = collecting();
        let mut uids = Vec::new();
        for name in names {
            uids.push(sandbox.create_map(name, &[]).await);
        }
        for (at, name) in names.iter().enumerate() {
            let owner = (at + names.len() - 1) % names.len();
            let owners = json!([reference("ConfigMap", names[owner], &uids[owner])]);
            sandbox.patch_map(name, json!({"ownerReferences": owners})).await;
        }
        pass().await;
        assert_eq!(sandbox.names("ConfigMap"), names);
        sandbox.delete_by(&format!("{CONFIG_MAPS}/a"), "Foreground").await;
        pass().await;
        assert!(sandbox.names("ConfigMap").is_empty(), "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_of_custom_kinds_are_owners_and_dependents() {
    let sandbox = collecting();
    sandbox.post(DEFINITIONS, definition(&widget_spec())).await.ok();
    let owner = sandbox.post(WIDGETS, widget("owner", json!({"size": 1}))).await.ok();
    let owners = json!([{"apiVersion": "example.com/v1", "kind": "Widget", "name": "owner",
                         "uid": owner["metadata"]["uid"]}]);
    for (path, mut object) in
        [(WIDGETS, widget("dependent", json!({"size": 1}))), (CONFIG_MAPS, config_map("dependent"))]
    {
        object["metadata"]["ownerReferences"] = owners.clone();
        sandbox.post(path, object).await.ok();
    }
    pass().await;
    assert_eq!((sandbox.objects("widgets.example.com").len(), sandbox.names("ConfigMap").len()), (2, 1));
    sandbox.delete_by(&format!("{WIDGETS}/owner"), "Background").await;
    pass().await;
    assert_eq!((sandbox.objects("widgets.example.com").len(), sandbox.names("ConfigMap").len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_controller_end_gracefully_unless_they_are_orphaned() {
    // Without a policy a ReplicationController is orphaned, for clients from before the garbage collector.
    for (policy, first, last) in [("Background", 0, 0), ("Foreground", 1, 0), ("Orphan", 0, 1), ("", 0, 1)] {
        let sandbox = collecting();
        let owner = sandbox.post(CONTROLLERS, controller("old")).await.ok();
        let mut pod = pod("old-1");
        pod["metadata"]["ownerReferences"] =
            json!([reference("ReplicationController", "old", owner["metadata"]["uid"].as_str().unwrap())]);
        pod["spec"]["nodeName"] = json!("node-1");
        sandbox.post(PODS, pod).await.ok();
        sandbox.delete_by(&format!("{CONTROLLERS}/old"), policy).await;
        pass().await;
        assert_eq!(sandbox.names("ReplicationController").len(), first, "{policy}");
        let stored = sandbox.objects("Pod");
        assert_eq!(stored[0]["metadata"]["deletionTimestamp"].is_string(), last == 0, "{policy}");
        if last == 0 {
            // As its kubelet does.
            sandbox.delete_with(&format!("{PODS}/old-1"), json!({"gracePeriodSeconds": 0})).await.ok();
            pass().await;
        }
        assert_eq!(sandbox.names("ReplicationController").len(), 0, "{policy}");
        assert_eq!(sandbox.names("Pod").len(), last, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_loses_its_pods_first_and_ends_when_it_is_empty() {
    let sandbox = collecting();
    sandbox.post(NAMESPACES, namespace("zoo")).await.ok();
    let within = |plural: &str| format!("{NAMESPACES}/zoo/{plural}");
    let mut lion = pod("lion");
    lion["spec"]["nodeName"] = json!("node-1");
    sandbox.post(&within("pods"), lion).await.ok();
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold", "orphan"]);
    sandbox.post(&within("configmaps"), held).await.ok();
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "zoo"},
                       "involvedObject": {"namespace": "zoo"}});
    sandbox.post(&within("events"), event).await.ok();
    sandbox.create_map("elsewhere", &[]).await;
    sandbox.delete(&format!("{NAMESPACES}/zoo")).await.ok();
    pass().await;
    let map = || sandbox.object("ConfigMap", "zoo", "held");
    assert!(map().unwrap()["metadata"].get("deletionTimestamp").is_none(), "a pod exists");
    sandbox.delete_with(&within("pods/lion"), json!({"gracePeriodSeconds": 0})).await.ok();
    pass().await;
    assert_eq!(map().unwrap()["metadata"]["finalizers"], json!(["example.com/hold"]));
    assert!(sandbox.object("Namespace", "", "zoo").is_some());
    sandbox.patch(&within("configmaps/held"), MERGE, json!({"metadata": {"finalizers": null}})).await.ok();
    pass().await;
    assert!(sandbox.object("Namespace", "", "zoo").is_none());
    assert_eq!(sandbox.names("Event").len(), 0);
    assert_eq!(sandbox.names("ConfigMap"), ["elsewhere"]);
}

#[tokio::test(start_paused = true)]
async fn foreign_tokens_keep_a_namespace_that_is_empty() {
    let sandbox = collecting();
    let mut zoo = namespace("zoo");
    zoo["spec"] = json!({"finalizers": ["example.com/hold"]});
    zoo["metadata"]["labels"] = json!({"a": "b"});
    sandbox.post(NAMESPACES, zoo).await.ok();
    sandbox.delete(&format!("{NAMESPACES}/zoo")).await.ok();
    pass().await;
    let zoo = sandbox.object("Namespace", "", "zoo").unwrap();
    assert_eq!(zoo["spec"]["finalizers"], json!(["example.com/hold"]));
    assert_eq!(zoo["metadata"]["labels"]["a"], "b");
}

#[tokio::test(start_paused = true)]
async fn garbage_that_cannot_be_deleted_is_not_tried_for_ever() {
    let sandbox = collecting();
    let tries = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = tries.clone();
    sandbox.collect_by(move |_| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    });
    sandbox.create_map("child", &[("owner", "u")]).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(tries.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_restore_brings_back_without_its_owner_is_deleted_again() {
    let sandbox = collecting();
    let owner = sandbox.create_map("owner", &[]).await;
    sandbox.create_map("child", &[("owner", &owner)]).await;
    sandbox.delete(&format!("{CONFIG_MAPS}/owner")).await.ok();
    let backup = sandbox.back_up();
    pass().await;
    sandbox.restore(&backup, true);
    assert_eq!(sandbox.names("ConfigMap"), ["child"]);
    pass().await;
    assert!(sandbox.names("ConfigMap").is_empty());
}
