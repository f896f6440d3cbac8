//! Claims, the volumes that they get, and the pods that wait for them.

use super::*;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

impl Rig {
    fn with_volumes(self) -> Self {
        let options = kubelet::Options { volumes: true, ..kubelet::Options::new(self.now.clone()) };
        self.with_pods_that(options)
    }

    async fn create_claim(&self, name: &str, spec: Value) {
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        });
        json_patch::merge(&mut claim["spec"], &spec);
        self.create(CLAIMS, claim).await;
    }

    async fn create_class(&self, name: &str, provisioner: &str, mode: &str, is_default: bool) {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": is_default.to_string()});
        let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": provisioner,
                           "metadata": {"name": name, "annotations": annotations}, "volumeBindingMode": mode});
        self.create(CLASSES, class).await;
    }

    async fn create_volume(&self, name: &str, size: &str, spec: Value) {
        let mut volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "hostPath": {"path": "/data"}},
        });
        json_patch::merge(&mut volume["spec"], &spec);
        self.create(VOLUMES, volume).await;
    }

    async fn claim_phase(&self, name: &str) -> String {
        let claim = self.get(CLAIMS, name).await.unwrap();
        claim["status"]["phase"].as_str().unwrap_or_default().to_owned()
    }

    async fn complaint(&self, pod: &str) -> String {
        let pod = self.get(PODS, pod).await.unwrap();
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|condition| condition["type"] == "PodScheduled").unwrap();
        found["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// The spec of a pod with a claim.
fn with_claim(claim: &str) -> Value {
    json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]})
}

fn no_node_because(reason: &str) -> String {
    format!(
        "0/3 nodes are available: {reason}. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_its_claim_and_the_claim_for_a_class() {
    let rig = Rig::new().with_volumes();
    rig.create_pod("web", with_claim("data")).await;
    pass(2_000).await;
    let missing = no_node_because("persistentvolumeclaim \"data\" not found");
    assert_eq!(rig.complaint("web").await, missing);
    assert_eq!(rig.events("web").await, [format!("FailedScheduling {missing}")]);

    rig.create_claim("data", json!({"storageClassName": "fast"})).await;
    pass(2_000).await;
    let unbound = no_node_because("pod has unbound immediate PersistentVolumeClaims");
    assert_eq!(rig.complaint("web").await, unbound);
    let missing = "ProvisioningFailed storageclass.storage.k8s.io \"fast\" not found".to_owned();
    assert_eq!(rig.events("data").await, std::slice::from_ref(&missing));
    let before = rig.sandbox.revision();
    pass(3_600_000).await;
    assert_eq!(rig.sandbox.revision(), before, "it waits without writing");

    rig.create_class("fast", "disk.example.com", "Immediate", false).await;
    pass(2_000).await;
    assert_eq!(rig.phase("web").await, "Running");
    let claim = rig.get(CLAIMS, "data").await.unwrap();
    let uid = claim["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(claim["status"]["phase"], "Bound");
    assert_eq!(claim["status"]["capacity"], json!({"storage": "1Gi"}));
    assert_eq!(claim["status"]["accessModes"], json!(["ReadWriteOnce"]));
    assert_eq!(claim["spec"]["volumeName"], format!("pvc-{uid}"));
    assert_eq!(claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"], "yes");
    let volume = rig.get(VOLUMES, &format!("pvc-{uid}")).await.unwrap();
    assert_eq!(
        (&volume["status"]["phase"], &volume["spec"]["claimRef"]["uid"]),
        (&json!("Bound"), &json!(uid))
    );
    assert_eq!(volume["spec"]["storageClassName"], "fast");
    assert_eq!(volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"], "disk.example.com");
    let provisioned = format!("ProvisioningSucceeded Successfully provisioned volume pvc-{uid} using fast");
    assert_eq!(rig.events("data").await, [missing, provisioned]);

    let before = rig.sandbox.revision();
    pass(3_600_000).await;
    assert_eq!(rig.sandbox.revision(), before, "it is settled");
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_for_the_successor_of_a_claim_that_is_being_deleted() {
    let rig = Rig::new().with_volumes();
    rig.create_class("fast", "disk.example.com", "Immediate", false).await;
    let fast = json!({"storageClassName": "fast"});
    rig.create_claim("data", fast.clone()).await;
    rig.delete(CLAIMS, "data", &DeleteParams::default()).await;
    rig.create_pod("web", with_claim("data")).await;
    pass(10_000).await;
    let ending = no_node_because("persistentvolumeclaim \"data\" is being deleted");
    assert_eq!((rig.phase("web").await, rig.complaint("web").await), ("Pending".to_owned(), ending));
    // The finalizer that protects it goes.
    rig.patch(CLAIMS, "data", json!({"metadata": {"finalizers": null}})).await;
    pass(2_000).await;
    assert_eq!(rig.complaint("web").await, no_node_because("persistentvolumeclaim \"data\" not found"));
    rig.create_claim("data", fast).await;
    pass(2_000).await;
    assert_eq!(rig.phase("web").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_for_its_first_consumer_is_bound_for_a_pod_that_fits() {
    let rig = Rig::new().with_volumes();
    rig.create_class("late", "disk.example.com", "WaitForFirstConsumer", false).await;
    rig.create_claim("data", json!({"storageClassName": "late"})).await;
    let mut huge = with_claim("data");
    let asking = json!([{"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "5000"}}}]);
    huge["containers"] = asking;
    rig.create_pod("huge", huge).await;
    pass(10_000).await;
    assert_eq!(rig.claim_phase("data").await, "Pending", "no node takes that pod");
    assert_eq!(
        rig.events("data").await,
        ["WaitForFirstConsumer waiting for first consumer to be created before binding"]
    );
    let mut web = with_claim("data");
    web["nodeSelector"] = json!({"kubernetes.io/hostname": "sandbox-node-2"});
    rig.create_pod("web", web).await;
    pass(2_000).await;
    assert_eq!(
        (rig.claim_phase("data").await, rig.phase("web").await),
        ("Bound".to_owned(), "Running".to_owned())
    );
    let claim = rig.get(CLAIMS, "data").await.unwrap();
    assert_eq!(claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "sandbox-node-2");
    assert_eq!(rig.phase("huge").await, "Pending");
    assert!(!rig.events("web").await.iter().any(|event| event.starts_with("FailedScheduling")));
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_class_gets_the_default_or_waits() {
    let rig = Rig::new().with_volumes();
    rig.create_claim("data", json!({})).await;
    rig.create_claim("none", json!({"storageClassName": ""})).await;
    rig.create_pod("web", with_claim("data")).await;
    pass(10_000).await;
    for name in ["data", "none"] {
        assert_eq!(rig.claim_phase(name).await, "Pending", "{name}");
        let why = "FailedBinding no persistent volumes available for this claim and no storage class is set";
        assert_eq!(rig.events(name).await, [why], "{name}");
    }
    assert_eq!(
        rig.complaint("web").await,
        no_node_because("pod has unbound immediate PersistentVolumeClaims")
    );
    rig.create_class("other", "disk.example.com", "Immediate", false).await;
    pass(1_000).await;
    assert_eq!(rig.claim_phase("data").await, "Pending");
    rig.create_class("standard", "disk.example.com", "WaitForFirstConsumer", true).await;
    pass(2_000).await;
    assert_eq!(rig.get(CLAIMS, "data").await.unwrap()["spec"]["storageClassName"], "standard");
    assert_eq!(rig.phase("web").await, "Running");
    assert_eq!(rig.claim_phase("none").await, "Pending", "it asked for no class");
}

#[tokio::test(start_paused = true)]
async fn a_claim_says_why_no_volume_is_made_up_for_it() {
    let rig = Rig::new().with_volumes();
    rig.create_class("disk", "disk.example.com", "Immediate", false).await;
    rig.create_claim("by-hand", json!({"storageClassName": "local"})).await;
    let source = json!({"kind": "PersistentVolumeClaim", "name": "by-hand"});
    rig.create_claim("copy", json!({"storageClassName": "disk", "dataSource": source})).await;
    pass(2_000).await;
    rig.create_class("local", "kubernetes.io/no-provisioner", "Immediate", false).await;
    pass(2_000).await;
    assert_eq!(
        rig.events("by-hand").await,
        [
            "ProvisioningFailed storageclass.storage.k8s.io \"local\" not found",
            "ProvisioningFailed no volume plugin matched name: kubernetes.io/no-provisioner"
        ]
    );
    let waits = "ExternalProvisioning Waiting for a volume to be created either by the external provisioner \
                 'disk.example.com' or manually by the system administrator. If volume creation is delayed, please \
                 verify that the provisioner is running and correctly registered.";
    assert_eq!(rig.events("copy").await, [waits]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_exists_is_taken_before_one_is_made_up() {
    let rig = Rig::new().with_volumes();
    rig.create_class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer", false).await;
    let local = json!({"storageClassName": "local"});
    rig.create_claim("data", local.clone()).await;
    rig.create_pod("web", with_claim("data")).await;
    pass(2_000).await;
    assert_eq!(
        rig.complaint("web").await,
        no_node_because("3 node(s) didn't find available persistent volumes to bind")
    );
    rig.create_volume("small", "500Mi", local.clone()).await;
    rig.create_volume("other", "10Gi", json!({"storageClassName": "elsewhere"})).await;
    rig.create_volume("large", "100Gi", local.clone()).await;
    pass(2_000).await;
    assert_eq!(rig.get(CLAIMS, "data").await.unwrap()["spec"]["volumeName"], "large");
    assert_eq!(rig.phase("web").await, "Running");
    for (name, phase) in [("large", "Bound"), ("small", "Available"), ("other", "Available")] {
        assert_eq!(rig.get(VOLUMES, name).await.unwrap()["status"]["phase"], phase, "{name}");
    }
    // One that an administrator meant for a claim, and one that a claim names.
    let meant = json!({"storageClassName": "", "claimRef": {"namespace": "default", "name": "meant"}});
    rig.create_volume("reserved", "1Ti", meant).await;
    rig.create_volume("free", "1Gi", json!({"storageClassName": ""})).await;
    rig.create_claim("meant", json!({"storageClassName": ""})).await;
    rig.create_claim("named", json!({"storageClassName": "", "volumeName": "free"})).await;
    pass(2_000).await;
    assert_eq!(rig.get(CLAIMS, "meant").await.unwrap()["spec"]["volumeName"], "reserved");
    assert_eq!(
        (rig.claim_phase("meant").await, rig.claim_phase("named").await),
        ("Bound".to_owned(), "Bound".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_whose_claim_is_gone_is_released_before_it_is_deleted_so_that_nothing_protects_it() {
    let rig = Rig::new().with_volumes();
    rig.create_class("fast", "disk.example.com", "Immediate", false).await;
    for name in ["deleted-with-it", "deleted-before"] {
        rig.create_claim(name, json!({"storageClassName": "fast"})).await;
        pass(1_000).await;
        let volume = rig.get(CLAIMS, name).await.unwrap()["spec"]["volumeName"].as_str().unwrap().to_owned();
        if name == "deleted-before" {
            rig.delete(VOLUMES, &volume, &DeleteParams::default()).await;
            pass(1_000).await;
            assert_eq!(rig.get(VOLUMES, &volume).await.unwrap()["status"]["phase"], "Bound");
        }
        rig.patch(CLAIMS, name, json!({"metadata": {"finalizers": null}})).await;
        rig.delete(CLAIMS, name, &DeleteParams::default()).await;
        pass(1_000).await;
        let volume = rig.get(VOLUMES, &volume).await.unwrap();
        assert!(volume["metadata"]["deletionTimestamp"].is_string(), "{name}");
        assert_eq!(volume["status"]["phase"], "Released", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_made_up_volume_ends_with_its_claim_and_any_other_is_released() {
    let rig = Rig::new().with_volumes();
    rig.create_class("fast", "disk.example.com", "Immediate", false).await;
    rig.create_volume("disk", "1Gi", json!({"storageClassName": ""})).await;
    rig.create_claim("made-up", json!({"storageClassName": "fast"})).await;
    rig.create_claim("taken", json!({"storageClassName": ""})).await;
    pass(2_000).await;
    assert_eq!(rig.list(VOLUMES).await.len(), 2);
    for name in ["made-up", "taken"] {
        assert_eq!(rig.claim_phase(name).await, "Bound", "{name}");
        rig.patch(CLAIMS, name, json!({"metadata": {"finalizers": null}})).await;
        rig.delete(CLAIMS, name, &DeleteParams::default()).await;
    }
    pass(1_000).await;
    // Its protection is another controller's.
    for volume in rig.list(VOLUMES).await {
        let name = volume["metadata"]["name"].as_str().unwrap().to_owned();
        assert_eq!(volume["metadata"]["deletionTimestamp"].is_string(), name != "disk", "{name}");
        rig.patch(VOLUMES, &name, json!({"metadata": {"finalizers": null}})).await;
    }
    pass(1_000).await;
    assert_eq!(rig.names(VOLUMES).await, ["disk"]);
    assert_eq!(rig.get(VOLUMES, "disk").await.unwrap()["status"]["phase"], "Released");
    rig.create_claim("taken", json!({"storageClassName": ""})).await;
    pass(1_000).await;
    assert_eq!(rig.claim_phase("taken").await, "Pending", "what is released has to be cleaned first");
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_does_not_mount_a_claim_that_is_not_bound() {
    let rig = Rig::new().with_volumes();
    pass(10).await;
    let mut spec = with_claim("data");
    spec["nodeName"] = json!("sandbox-node-1");
    rig.create_pod("web", spec).await;
    pass(2_000).await;
    let why = "FailedMount Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to \
               process volumes=[data]: error processing PVC default/data: failed to fetch PVC from API server: \
               persistentvolumeclaims \"data\" not found";
    assert_eq!(rig.events("web").await, [why]);
    rig.create_class("fast", "disk.example.com", "Immediate", false).await;
    rig.create_claim("data", json!({"storageClassName": "fast"})).await;
    pass(2_000).await;
    assert_eq!(rig.phase("web").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn many_claims_and_broken_watches_end_in_the_same() {
    let rig = Rig::new().with_volumes();
    rig.create_class("late", "disk.example.com", "WaitForFirstConsumer", true).await;
    for number in 0..60 {
        let name = format!("data-{number}");
        rig.create_claim(&name, json!({})).await;
        rig.create_pod(&format!("web-{number}"), with_claim(&name)).await;
        if number == 30 {
            rig.sandbox.break_watches();
        }
    }
    rig.create_pod("plain", json!({})).await;
    pass(60_000).await;
    assert!(rig.list(PODS).await.iter().all(ready));
    assert_eq!(rig.list(VOLUMES).await.len(), 60);
}

#[tokio::test(start_paused = true)]
async fn without_volumes_claims_stop_no_pod() {
    let rig = Rig::new().with_pods();
    rig.create_pod("web", with_claim("data")).await;
    pass(2_000).await;
    assert_eq!(rig.phase("web").await, "Running");
}
