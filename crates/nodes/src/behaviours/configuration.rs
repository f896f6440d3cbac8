//! Pods that cannot start: names of images that are none, ConfigMaps and Secrets that do not exist.

use super::*;

/// Why a container of a pod waits.
async fn waiting(rig: &Rig, name: &str, container: usize) -> Value {
    rig.get(PODS, name).await.unwrap()["status"]["containerStatuses"][container]["state"]["waiting"].clone()
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
}

#[tokio::test(start_paused = true)]
async fn an_image_name_that_is_a_placeholder_is_invalid() {
    let rig = Rig::new().with_pods();
    let main = json!({"name": "main", "image": "<your image>"});
    rig.create_pod("web", json!({"containers": [main, {"name": "side", "image": "good"}]})).await;
    pass(600_000).await;
    let message = "Failed to apply default image tag \"<your image>\": couldn't parse image name \"<your image>\": invalid \
                   reference format";
    assert_eq!(waiting(&rig, "web", 0).await, json!({"reason": "InvalidImageName", "message": message}));
    let pod = rig.get(PODS, "web").await.unwrap();
    assert_eq!((&pod["status"]["phase"], ready(&pod)), (&json!("Pending"), false));
    assert!(pod["status"]["containerStatuses"][1]["state"]["running"].is_object());
    let events = rig.events("web").await;
    assert!(events.contains(&format!("InspectFailed {message}")), "{events:#?}");
    assert!(events.contains(&"Failed Error: InvalidImageName".to_owned()), "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_container_without_its_environment_starts_once_that_exists() {
    let rig = Rig::new().with_pods();
    let env = json!([{"name": "PLAIN", "value": "x"},
                     {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "nowhere", "key": "k", "optional": true}}},
                     {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "level"}}}]);
    let main =
        json!({"name": "main", "image": "i", "env": env, "envFrom": [{"secretRef": {"name": "keys"}}]});
    rig.create_pod("web", json!({"containers": [main, {"name": "side", "image": "i"}]})).await;
    pass(2_000).await;
    let error = |message: &str| json!({"reason": "CreateContainerConfigError", "message": message});
    assert_eq!(waiting(&rig, "web", 0).await, error("secret \"keys\" not found"));
    let pod = rig.get(PODS, "web").await.unwrap();
    assert_eq!((&pod["status"]["phase"], ready(&pod)), (&json!("Pending"), false));
    assert!(pod["status"]["containerStatuses"][1]["state"]["running"].is_object(), "the other one runs");
    assert!(rig.events("web").await.contains(&"Failed Error: secret \"keys\" not found".to_owned()));

    let before = rig.sandbox.revision();
    pass(3_600_000).await;
    assert_eq!(rig.sandbox.revision(), before, "it waits without writing");
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"}});
    rig.create("/api/v1/namespaces/default/secrets", secret).await;
    pass(1_000).await;
    assert_eq!(waiting(&rig, "web", 0).await, error("configmap \"settings\" not found"));
    rig.create(CONFIG_MAPS, config_map("settings", json!({"other": "x"}))).await;
    pass(1_000).await;
    assert_eq!(waiting(&rig, "web", 0).await, error("couldn't find key level in ConfigMap default/settings"));
    rig.patch(CONFIG_MAPS, "settings", json!({"data": {"level": "debug"}})).await;
    pass(1_000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert!(ready(&pod) && pod["status"]["phase"] == "Running", "{pod:#}");
    rig.delete(CONFIG_MAPS, "settings", &DeleteParams::default()).await;
    pass(1_000).await;
    assert!(ready(&rig.get(PODS, "web").await.unwrap()), "a running container keeps its environment");
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_the_configuration_that_it_mounts_is_being_created() {
    let rig = Rig::new().with_pods();
    let items = json!([{"key": "site.conf", "path": "site.conf"}]);
    let root_ca =
        json!({"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}});
    let volumes = json!([
        {"name": "maybe", "secret": {"secretName": "nowhere", "optional": true}},
        {"name": "api", "projected": {"sources": [root_ca]}},
        {"name": "kube-api-access-x7w2p", "projected": {"sources": [{"configMap": {"name": "of-a-distribution"}}]}},
        {"name": "conf", "configMap": {"name": "site", "items": items}}]);
    rig.create_pod("web", json!({"volumes": volumes})).await;
    pass(600_000).await;
    assert_eq!(waiting(&rig, "web", 0).await, json!({"reason": "ContainerCreating"}));
    let missing = "FailedMount MountVolume.SetUp failed for volume \"conf\" : configmap \"site\" not found";
    assert_eq!(rig.events("web").await.iter().filter(|event| *event == missing).count(), 1);
    rig.create(CONFIG_MAPS, config_map("site", json!({}))).await;
    pass(1_000).await;
    let missing = "FailedMount MountVolume.SetUp failed for volume \"conf\" : configmap references non-existent config key: \
                   site.conf";
    assert!(rig.events("web").await.contains(&missing.to_owned()));
    rig.patch(CONFIG_MAPS, "site", json!({"data": {"site.conf": "x"}})).await;
    pass(1_000).await;
    assert_eq!(rig.phase("web").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn pods_that_wait_stop_no_other_and_end_like_any() {
    let rig = Rig::new().with_pods();
    let volumes = json!([{"name": "keys", "secret": {"secretName": "keys"}}]);
    for number in 0..100 {
        rig.create_pod(&format!("waits-{number}"), json!({"volumes": volumes})).await;
    }
    rig.create_pod("web", json!({})).await;
    pass(2_000).await;
    assert_eq!(rig.phase("web").await, "Running");
    rig.delete(PODS, "waits-7", &DeleteParams::default()).await;
    pass(2_000).await;
    assert!(rig.get(PODS, "waits-7").await.is_none());
    let keys =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"}});
    rig.create("/api/v1/namespaces/default/secrets", keys).await;
    pass(2_000).await;
    let running = rig.list(PODS).await.iter().filter(|pod| ready(pod)).count();
    assert_eq!(running, 100);
}
