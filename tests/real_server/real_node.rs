//! A real kubelet with containerd, kube-scheduler, and Windlass as the only controller manager: what pods report here,
//! nobody has simulated.

pub(crate) mod machine;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::apiserver::{ApiServer, TOKEN, assets, on_a_real_server};
use windlass_testkit::process::{Process, windlass};
use windlass_testkit::user::send;

use machine::{Machine, NODE};

/// A container that fails is started again after 10, 20 and 40 seconds.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn workloads_run_in_real_containers_with_windlass_as_the_only_controller_manager() {
    on_a_real_server(async |_| {
        let server = ApiServer::start_with_accounts(&assets().unwrap(), &[]).await;
        let config = server.kubeconfig(TOKEN);
        let kubeconfig = format!("--kubeconfig={}", config.display());
        let certificate = format!("--root-ca-file={}", server.file("certificates/apiserver.crt").display());
        let log = server.file("windlass.log");
        let daemon = Process::start(&windlass(), &["--test-bed", &kubeconfig, &certificate], &log);
        let scheduler = assets().unwrap().join("kube-scheduler");
        let flags = [&*kubeconfig, "--leader-elect=false", "--secure-port=0"];
        let _scheduler = Process::start(&scheduler, &flags, &server.file("scheduler.log"));
        let began = Instant::now();
        let node = Machine::start(&server);

        let shop = Shop { client: server.client().await, config, volumes: server.file("volumes") };
        let played = tokio::spawn(async move { shop.play(began).await }).await;
        let text = fs::read_to_string(&log).unwrap();
        let kubelet = fs::read_to_string(node.kubelet_log()).unwrap();
        played.unwrap_or_else(|error| panic!("{error}\n{text}\n{kubelet}"));
        let end = Instant::now() + PATIENCE;
        while !node.running().is_empty() {
            assert!(Instant::now() < end, "containers outlive their namespace: {:?}", node.running());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        daemon.terminate();
        assert!(!text.contains("ERROR"), "{text}");
    });
}

struct Shop {
    client: Client,
    config: PathBuf,
    /// The folder on the node with the data of the claims.
    volumes: PathBuf,
}

const CORE: &str = "/api/v1/namespaces/shop";
const APPS: &str = "/apis/apps/v1/namespaces/shop";
const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";
const WORKLOADS: [&str; 3] = ["deployments/web", "statefulsets/db", "daemonsets/agent"];

impl Shop {
    async fn play(&self, mut began: Instant) {
        let joined = |node: &Value| condition(node, "Ready") == "True" && node["spec"]["taints"].is_null();
        self.eventually(&format!("/api/v1/nodes/{NODE}"), "the node is ready, without a taint", joined).await;
        done("the node is ready, and its taint is gone", &mut began);

        self.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
        let account = format!("{CORE}/serviceaccounts/default");
        self.eventually(&account, "it has an account", Value::is_object).await;
        self.create(&format!("{CORE}/services"), &service()).await;
        self.create(&format!("{APPS}/deployments"), &web()).await;
        self.create(&format!("{APPS}/statefulsets"), &db()).await;
        self.create(&format!("{APPS}/daemonsets"), &agent()).await;
        self.create(JOBS, &a_job("report", "job:1", 3)).await;
        for index in 0..2 {
            self.bind(index).await;
        }
        self.rolled_out("localhost/app:1").await;
        done("a Deployment of 4, a StatefulSet of 2 and a DaemonSet run", &mut began);
        let report = format!("{JOBS}/report");
        let job = self.eventually(&report, "the Job ends", |job| condition(job, "Complete") == "True").await;
        assert_eq!(job["status"]["succeeded"], 3, "{job}");
        done("a Job of 3 is complete", &mut began);

        for path in WORKLOADS {
            self.change_image(path, "localhost/app:2").await;
        }
        self.rolled_out("localhost/app:2").await;
        done("another image of each", &mut began);
        for index in 0..2 {
            let starts = fs::read_to_string(self.volumes.join(index.to_string()).join("starts")).unwrap();
            assert_eq!(starts.lines().count(), 2, "the second pod has the data of the first");
        }

        self.change_image(WORKLOADS[0], "localhost/crash:1").await;
        let pods = format!("{CORE}/pods?labelSelector=app=web");
        let crashes = |pods: &Value| {
            let waits = |pod: &Value| {
                pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
            };
            items(pods).filter(|pod| waits(pod)).count() == 2
        };
        self.eventually(&pods, "the new pods crash", crashes).await;
        done("the pods of an image that crashes wait for their next start", &mut began);
        let (code, text) = self.plugin(&["explain", "deploy/web"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("CrashLoopBackOff") && text.contains("exit code 3"), "{text}");
        done(&format!("explained:\n{text}"), &mut began);
        let web = self.get(&format!("{APPS}/deployments/web")).await;
        assert_eq!(web["status"]["availableReplicas"], 3, "{web}");
        self.only_ready_pods_are_listed(3).await;
        self.create(JOBS, &a_job("broken", "crash:1", 1)).await;
        let failed = |job: &Value| condition(job, "Failed") == "True";
        let job = self.eventually(&format!("{JOBS}/broken"), "the Job fails", failed).await;
        assert!(job.to_string().contains("BackoffLimitExceeded"), "{job}");
        done("a Job of that image has failed", &mut began);

        let (code, text) = self.plugin(&["undo", "deploy/web", "--yes"]);
        assert_eq!(code, Some(0), "{text}");
        self.rolled_out("localhost/app:2").await;
        self.only_ready_pods_are_listed(4).await;
        done("an undo", &mut began);

        send(&self.client, Method::DELETE, "/api/v1/namespaces/shop", &Value::Null).await.unwrap();
        self.eventually("/api/v1/namespaces/shop", "the namespace is gone", Value::is_null).await;
        done("the namespace is deleted, with all that is in it", &mut began);
    }

    /// Waits until every workload runs this image in all of its pods.
    async fn rolled_out(&self, image: &str) {
        for path in WORKLOADS {
            let is_done = |object: &Value| {
                let (spec, status) = (&object["spec"], &object["status"]);
                let desired = status.get("desiredNumberScheduled").unwrap_or(&spec["replicas"]);
                let all = |counts: [&str; 2]| {
                    counts.iter().any(|count| &status[*count] == desired && *desired != json!(0))
                };
                spec["template"]["spec"]["containers"][0]["image"] == image
                    && status["observedGeneration"] == object["metadata"]["generation"]
                    && all(["updatedReplicas", "updatedNumberScheduled"])
                    && all(["availableReplicas", "numberAvailable"])
                    && status.get("replicas").is_none_or(|replicas| replicas == desired)
            };
            self.eventually(&format!("{APPS}/{path}"), "it is rolled out", is_done).await;
        }
    }

    async fn only_ready_pods_are_listed(&self, expected: usize) {
        let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
        let listed = |slices: &Value| -> Vec<Value> {
            let endpoints = items(slices).flat_map(|slice| slice["endpoints"].as_array().cloned());
            endpoints.flatten().filter(|one| one["conditions"]["ready"] == true).collect()
        };
        let complete = |slices: &Value| listed(slices).len() == expected;
        let slices = self.eventually(slices, "the ready pods are endpoints", complete).await;
        for endpoint in listed(&slices) {
            let name = endpoint["targetRef"]["name"].as_str().unwrap();
            let pod = self.get(&format!("{CORE}/pods/{name}")).await;
            assert_eq!(condition(&pod, "Ready"), "True", "{pod}");
        }
    }

    /// Binds the claim of a pod to a folder of the node, as a storage administrator does without a provisioner.
    async fn bind(&self, index: usize) {
        let claim = format!("{CORE}/persistentvolumeclaims/data-db-{index}");
        let found = self.eventually(&claim, "the claim is created", Value::is_object).await;
        let folder = self.volumes.join(index.to_string());
        fs::create_dir_all(&folder).unwrap();
        let reference = json!({"kind": "PersistentVolumeClaim", "namespace": "shop", "apiVersion": "v1",
                               "name": found["metadata"]["name"], "uid": found["metadata"]["uid"]});
        let name = format!("volume-{index}");
        self.create(
            "/api/v1/persistentvolumes",
            &json!({"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "claimRef": reference,
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": folder}}}),
        )
        .await;
        let bound = json!({"status": {"phase": "Bound"}});
        self.patch(&format!("/api/v1/persistentvolumes/{name}/status"), &bound).await;
        let annotations = json!({"pv.kubernetes.io/bind-completed": "yes"});
        self.patch(&claim, &json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": name}}))
            .await;
        self.patch(&format!("{claim}/status"), &bound).await;
    }

    async fn change_image(&self, path: &str, image: &str) {
        let mut template = json!({"spec": {"containers": [container(image)]}});
        if path.starts_with("statefulsets") {
            template["spec"]["containers"] = json!([container_of_db(image)]);
        }
        self.patch(&format!("{APPS}/{path}"), &json!({"spec": {"template": template}})).await;
    }

    /// The exit code, and all that it printed.
    fn plugin(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let program = windlass().with_file_name("kubectl-windlass");
        assert!(program.is_file(), "{} is missing: cargo build --workspace", program.display());
        let mut command = Command::new(program);
        let ended = command.args(arguments).args(["-n", "shop"]).env("KUBECONFIG", &self.config).output();
        let ended = ended.unwrap();
        (ended.status.code(), String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned())
    }

    async fn create(&self, collection: &str, object: &Value) {
        send(&self.client, Method::POST, collection, object)
            .await
            .unwrap_or_else(|error| panic!("{collection}: {error}"));
    }

    async fn patch(&self, path: &str, patch: &Value) {
        let patched = send(&self.client, Method::PATCH, path, patch).await;
        patched.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    async fn get(&self, path: &str) -> Value {
        send(&self.client, Method::GET, path, &Value::Null).await.unwrap_or_default()
    }

    /// Waits until an object is as it should be; null as long as it does not exist.
    async fn eventually(&self, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let object = self.get(path).await;
            if holds(&object) {
                return object;
            }
            assert!(Instant::now() < end, "{path}: {what}: {object}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[allow(clippy::print_stdout)] // The figures are for whoever runs it.
fn done(what: &str, began: &mut Instant) {
    println!("    {:>6} ms  {what}", began.elapsed().as_millis());
    *began = Instant::now();
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|one| one["type"] == kind).find_map(|one| one["status"].as_str()).unwrap_or_default()
}

fn container(image: &str) -> Value {
    json!({"name": "app", "image": image, "imagePullPolicy": "Never",
           "readinessProbe": {"exec": {"command": ["/bin/true"]}, "periodSeconds": 1}})
}

/// Notes in its volume that it has started.
fn container_of_db(image: &str) -> Value {
    let mut container = container(image);
    let script = "echo started >> /data/starts; trap 'exit 0' TERM; while true; do sleep 0.2; done";
    container["command"] = json!(["/bin/sh", "-c", script]);
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    container
}

/// On the host's network, as there is no other; without a token, which no container here needs.
fn template(labels: &Value, container: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {
        "hostNetwork": true, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 5,
        "containers": [container]}})
}

fn service() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}})
}

fn web() -> Value {
    let labels = json!({"app": "web"});
    json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 4, "selector": {"matchLabels": labels},
        "template": template(&labels, container("localhost/app:1"))}})
}

fn db() -> Value {
    let labels = json!({"app": "db"});
    json!({"metadata": {"name": "db"}, "spec": {
        "replicas": 2, "serviceName": "db", "selector": {"matchLabels": labels},
        "template": template(&labels, container_of_db("localhost/app:1")),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}})
}

fn agent() -> Value {
    let labels = json!({"app": "agent"});
    json!({"metadata": {"name": "agent"}, "spec": {
        "selector": {"matchLabels": labels}, "template": template(&labels, container("localhost/app:1"))}})
}

fn a_job(name: &str, image: &str, completions: u32) -> Value {
    let container = json!({"name": "app", "image": format!("localhost/{image}"), "imagePullPolicy": "Never"});
    let mut template = template(&json!({"app": name}), container);
    template["spec"]["restartPolicy"] = "Never".into();
    json!({"metadata": {"name": name}, "spec": {
        "completions": completions, "parallelism": 2, "backoffLimit": 0, "template": template}})
}
