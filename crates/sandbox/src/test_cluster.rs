//! A cluster in the process of a test.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass::clock::Clock;
use windlass_apiserver::{Admission, Options, Sandbox};
use windlass_nodes::{api_client::Now, kubelet};

use super::cluster::{Cluster, Followed, ObjectChange};
use super::controllers::{self, Running};
use super::manifest::{self, ManifestError, Manifests};
use super::nodes;
use super::progress::{self, Completion, Progress, Target};

/// How often the state is looked at, in the time of the test.
const POLL: Duration = Duration::from_millis(100);

/// The settings of a [`TestCluster`].
#[derive(Clone)]
pub struct TestOptions {
    /// The seed of UIDs, generated names and jitter: the same one gives the same history. The default is 0.
    pub seed: u64,
    /// The time of the clock at the start. The default is 2026-01-01T00:00:00Z.
    pub start: Timestamp,
    /// Whether the controllers of workloads run; without them, only yours do. The default is true.
    pub controllers: bool,
    /// The number of simulated nodes. The default is 3.
    pub nodes: usize,
    /// From a pod's binding to its readiness. The default is 500 ms.
    pub ready_delay: Duration,
    /// From a pod's deletion to its end, unless its grace period is shorter. The default is 500 ms.
    pub shutdown_delay: Duration,
    /// Containers whose image matches never start. The default is none.
    pub never_ready: Option<regex_lite::Regex>,
    /// Whether claims are bound where a StorageClass allows it, and pods wait for their claims. The default is true.
    pub volumes: bool,
    /// How long [`TestCluster::rolled_out`] waits. The default is 10 minutes.
    pub patience: Duration,
}

impl Default for TestOptions {
    fn default() -> Self {
        TestOptions {
            seed: 0,
            start: Timestamp::constant(1_767_225_600, 0),
            controllers: true,
            nodes: 3,
            ready_delay: Duration::from_millis(500),
            shutdown_delay: Duration::from_millis(500),
            never_ready: None,
            volumes: true,
            patience: Duration::from_secs(600),
        }
    }
}

/// An API server, simulated nodes, a garbage collector, a namespace controller and Windlass's controllers, for the time
/// of a test. They end when this is dropped.
///
/// The cluster's clock follows tokio's. Under a paused clock (`#[tokio::test(start_paused = true)]`) a rollout of minutes
/// takes milliseconds, and one seed gives one history.
pub struct TestCluster {
    sandbox: Sandbox,
    client: Client,
    now: Now,
    patience: Duration,
    _end: DropGuard,
}

/// A workload was not rolled out: which one, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotRolledOut(String);

impl TestCluster {
    /// Starts a cluster with the default options.
    ///
    /// # Panics
    /// Outside of a tokio runtime with a clock.
    pub fn start() -> Self {
        Self::with(TestOptions::default())
    }

    /// Starts a cluster.
    ///
    /// # Panics
    /// Outside of a tokio runtime with a clock.
    pub fn with(options: TestOptions) -> Self {
        let TestOptions {
            seed,
            start,
            controllers,
            nodes,
            ready_delay,
            shutdown_delay,
            never_ready,
            volumes,
            patience,
        } = options;
        let clock = Clock::virtual_from(start);
        let time = clock.clone();
        let now: Now = Arc::new(move || time.now());
        let mut options = Options::new(now.clone());
        options.seed = seed;
        // As in any cluster, pods stay for a while on a node that is not ready.
        options.admission = &[Admission::DefaultTolerationSeconds];
        let sandbox = Sandbox::new(options);
        let client = Client::new(sandbox.router(), "default");
        let end = CancellationToken::new();
        let simulated = kubelet::Options {
            nodes,
            // Two controllers of this process look after the nodes.
            node_lifecycle: false,
            ready_delay,
            shutdown_delay,
            never_ready,
            volumes,
            ..kubelet::Options::new(now.clone())
        };
        tokio::spawn(kubelet::run(client.clone(), simulated, end.clone()));
        let running = Running { workloads: controllers, ..Running::ALL };
        let (api_server, own_client, until) = (sandbox.clone(), client.clone(), end.clone());
        tokio::spawn(async move {
            nodes::created(&api_server, nodes).await;
            controllers::start(own_client, running, clock, seed, until);
        });
        TestCluster { sandbox, client, now, patience, _end: end.drop_guard() }
    }

    /// A client of the cluster, for the test and for the controllers under test.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The API server: its objects without a request, its faults, its HTTP router.
    pub fn api_server(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The time in the cluster.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// The clock of the cluster, for controllers that take one.
    pub fn clock(&self) -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
        self.now.clone()
    }

    /// Creates or changes the objects of manifests in YAML, once all of them are found valid.
    ///
    /// # Errors
    /// The error names the document and its defect.
    pub async fn apply(&self, manifests: &str) -> Result<(), ManifestError> {
        let Manifests { mut objects, warnings } =
            manifest::parse("the manifest", manifests, self.sandbox.served_kinds())?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        manifest::apply::check(&self.client, &objects).await?;
        manifest::apply::apply(&self.client, &mut objects, |_, _| {}).await
    }

    /// Waits until a Deployment, DaemonSet or StatefulSet is rolled out, as `kubectl rollout status` does, a ReplicaSet or
    /// ReplicationController has its replicas, a Job is complete, or a pod is ready, or has succeeded if it does not run for
    /// ever.
    ///
    /// # Errors
    /// The reasons, those of its pods included, if it exceeds its progress deadline or [`TestOptions::patience`].
    pub async fn rolled_out(&self, kind: &str, namespace: &str, name: &str) -> Result<(), NotRolledOut> {
        let key = (namespace.to_owned(), name.to_owned());
        let target = Target::new(kind, key.clone()).ok_or_else(|| {
            NotRolledOut(format!(
                "{kind} {namespace}/{name}: only {} are waited for",
                progress::waited_for("and")
            ))
        })?;
        let followed = target.followed();
        let mut progress = Progress::new([target]);
        let deadline = Instant::now() + self.patience;
        loop {
            let mut cluster = Cluster::default();
            if let Some(object) = self.sandbox.object(kind, namespace, name) {
                let object = Value::clone(&object);
                cluster.observe(ObjectChange { kind: followed, object, deleted: false });
            }
            match progress.completion_after(followed, key.clone(), &cluster) {
                Completion::Complete => return Ok(()),
                Completion::Pending if Instant::now() < deadline => tokio::time::sleep(POLL).await,
                Completion::Pending => {
                    let why = progress.unfinished(&self.cache());
                    return Err(NotRolledOut(format!("not within {:?}: {why}", self.patience)));
                }
                Completion::Failed(_) => {
                    return Err(NotRolledOut(progress.unfinished(&self.cache())));
                }
            }
        }
    }

    /// Waits until `holds`; false if that takes longer than `patience`.
    pub async fn until(&self, patience: Duration, holds: impl Fn(&TestCluster) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        while !holds(self) {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }

    /// Everything that explains a rollout.
    fn cache(&self) -> Cluster {
        let mut cluster = Cluster::default();
        for (kind, name) in [
            (Followed::Deployment, "Deployment"),
            (Followed::DaemonSet, "DaemonSet"),
            (Followed::StatefulSet, "StatefulSet"),
            (Followed::ReplicaSet, "ReplicaSet"),
            (Followed::ReplicationController, "ReplicationController"),
            (Followed::Job, "Job"),
            (Followed::Pod, "Pod"),
        ] {
            for object in self.sandbox.objects(name) {
                cluster.observe(ObjectChange { kind, object, deleted: false });
            }
        }
        cluster
    }
}

impl fmt::Debug for TestCluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TestCluster").field("api_server", &self.sandbox).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Request;
    use kube::core::params::{DeleteParams, Patch, PatchParams};
    use regex_lite::Regex;
    use serde_json::json;
    use windlass_nodes::api_client::send;

    use super::*;

    const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: nginx}]}
";

    #[tokio::test(start_paused = true)]
    async fn a_deployment_rolls_out_and_goes_with_its_pods() {
        let cluster = TestCluster::start();
        cluster.apply(WEB).await.unwrap();
        cluster.rolled_out("Deployment", "default", "web").await.unwrap();
        assert_eq!(cluster.api_server().objects("Pod").len(), 2);
        let deployments = Request::new("/apis/apps/v1/namespaces/default/deployments");
        send(&cluster.client(), deployments.delete("web", &DeleteParams::background())).await.unwrap();
        let minute = Duration::from_secs(60);
        assert!(cluster.until(minute, |cluster| cluster.api_server().objects("Pod").is_empty()).await);
        assert!(!cluster.until(minute, |_| false).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rollout_that_fails_says_why() {
        let never_ready = Some(Regex::new("nginx").unwrap());
        let cluster = TestCluster::with(TestOptions { never_ready, ..TestOptions::default() });
        cluster
            .apply(&WEB.replace("replicas: 2", "replicas: 2\n  progressDeadlineSeconds: 30"))
            .await
            .unwrap();
        let why = cluster.rolled_out("Deployment", "default", "web").await.unwrap_err().to_string();
        assert!(
            why.starts_with("Deployment default/web: deployment \"web\" exceeded its progress deadline"),
            "{why}"
        );
        assert!(why.contains(" and 1 more: container main: ImagePullBackOff"), "{why}");
        let missing = cluster.rolled_out("DaemonSet", "default", "web").await.unwrap_err().to_string();
        assert_eq!(missing, "not within 600s: DaemonSet default/web does not exist");
        let other = cluster.rolled_out("ConfigMap", "default", "web").await.unwrap_err().to_string();
        assert_eq!(
            other,
            "ConfigMap default/web: only Deployments, DaemonSets, StatefulSets, ReplicaSets, ReplicationControllers, Jobs \
             and Pods are waited for"
        );
    }

    /// The names of the nodes of pods that are ready, and the number of those that are not.
    fn places(cluster: &TestCluster) -> (Vec<String>, usize) {
        let (mut nodes, mut unready) = (Vec::new(), 0);
        for pod in cluster.api_server().objects("Pod") {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            match conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True") {
                true => nodes.push(pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()),
                false => unready += 1,
            }
        }
        nodes.sort();
        (nodes, unready)
    }

    #[tokio::test(start_paused = true)]
    async fn the_pods_of_a_node_that_stops_to_answer_are_replaced_after_five_minutes() {
        let cluster = TestCluster::start();
        cluster.apply(WEB).await.unwrap();
        cluster.rolled_out("Deployment", "default", "web").await.unwrap();
        let (nodes, _) = places(&cluster);
        let (lost, other) = (nodes[0].clone(), nodes[1].clone());
        // As kubectl patches one condition: the time of the last change stays.
        let report = async |status: &str| {
            let condition = json!({"type": "Ready", "status": status});
            let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
            let nodes = Request::new("/api/v1/nodes");
            let request = nodes.patch_subresource("status", &lost, &PatchParams::default(), &patch);
            send(&cluster.client(), request).await.unwrap();
        };
        let seconds = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        for status in ["False", "Unknown"] {
            report(status).await;
            seconds(2).await;
            assert_eq!(places(&cluster), (vec![other.clone()], 1), "{status}");
            report("True").await;
            seconds(2).await;
            assert_eq!(places(&cluster), (nodes.clone(), 0), "it is back");
        }
        report("Unknown").await;
        seconds(290).await;
        assert_eq!(places(&cluster), (vec![other], 1));
        seconds(20).await;
        let (now, _) = places(&cluster);
        assert!(now.len() == 2 && !now.contains(&lost), "{now:?}");
    }

    const CLASS: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: standard, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}
provisioner: example.com/made-up
volumeBindingMode: WaitForFirstConsumer
";

    #[tokio::test(start_paused = true)]
    async fn the_examples_with_stateful_sets_are_rolled_out_on_their_claims() {
        for (text, name, claims) in [
            (include_str!("../../../examples/cassandra.yaml"), "ring", 6),
            (include_str!("../../../examples/postgres.yaml"), "postgres", 3),
        ] {
            let patience = Duration::from_secs(60);
            let options = TestOptions { volumes: true, patience, ..TestOptions::default() };
            let cluster = TestCluster::with(options);
            cluster.apply(text).await.unwrap();
            let why = cluster.rolled_out("StatefulSet", "default", name).await.unwrap_err().to_string();
            assert!(
                why.contains(&format!("pod {name}-0")) && why.contains("PersistentVolumeClaims"),
                "{why}"
            );
            cluster.apply(CLASS).await.unwrap();
            cluster.rolled_out("StatefulSet", "default", name).await.unwrap();
            let bound = cluster.api_server().objects("PersistentVolumeClaim");
            assert_eq!(bound.iter().filter(|claim| claim["status"]["phase"] == "Bound").count(), claims);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pods_wait_for_claims_that_a_class_has_bound() {
        const CLAIM: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
        let volumes = "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]";
        let web = WEB.replace("spec: {containers", &format!("spec: {{{volumes}, containers"));
        let start = |volumes: bool| {
            let patience = Duration::from_secs(30);
            TestCluster::with(TestOptions { volumes, patience, ..TestOptions::default() })
        };
        let cluster = start(true);
        cluster.apply(CLAIM).await.unwrap();
        cluster.apply(&web).await.unwrap();
        let why = cluster.rolled_out("Deployment", "default", "web").await.unwrap_err().to_string();
        assert!(why.contains("pod has unbound immediate PersistentVolumeClaims"), "{why}");
        cluster.apply(CLASS).await.unwrap();
        cluster.rolled_out("Deployment", "default", "web").await.unwrap();
        let claim = cluster.api_server().object("PersistentVolumeClaim", "default", "data").unwrap();
        assert_eq!(
            (&claim["status"]["phase"], &claim["spec"]["storageClassName"]),
            (&"Bound".into(), &"standard".into())
        );
        let carefree = start(false);
        carefree.apply(&web).await.unwrap();
        carefree.rolled_out("Deployment", "default", "web").await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_set_that_is_applied_at_once_is_not_rolled_out_before_its_pods_are_ready() {
        let options = TestOptions {
            never_ready: Some(Regex::new("broken").unwrap()),
            patience: Duration::from_secs(30),
            ..TestOptions::default()
        };
        let cluster = TestCluster::with(options);
        let agent = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: main, image: 'agent:broken'}]}}
";
        cluster.apply(agent).await.unwrap();
        let why = cluster.rolled_out("DaemonSet", "default", "agent").await.unwrap_err().to_string();
        assert!(why.contains("0 of 3"), "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_controllers_nothing_is_rolled_out() {
        let options =
            TestOptions { controllers: false, patience: Duration::from_secs(30), ..TestOptions::default() };
        let cluster = TestCluster::with(options);
        cluster.apply(WEB).await.unwrap();
        assert!(cluster.rolled_out("Deployment", "default", "web").await.is_err());
        assert_eq!(cluster.api_server().objects("ReplicaSet").len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operators_own_kind_is_served_once_its_definition_is_applied() {
        let cluster = TestCluster::start();
        let definition = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.shop.example.com}
spec:
  group: shop.example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";
        let widget = "{apiVersion: shop.example.com/v1, kind: Widget, metadata: {name: a}}";
        let unknown = cluster.apply(widget).await.unwrap_err().to_string();
        assert!(unknown.contains("unknown kind \"Widget\""), "{unknown}");
        cluster.apply(definition).await.unwrap();
        cluster.apply(widget).await.unwrap();
        assert_eq!(cluster.api_server().objects("widgets.shop.example.com").len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_invalid_manifest_is_refused() {
        let error =
            TestCluster::start().apply(&WEB.replace("replicas: 2", "replicas: -1")).await.unwrap_err();
        assert!(error.to_string().contains("spec.replicas"), "{error}");
    }

    #[test]
    fn one_seed_gives_one_history() {
        let play = |seed| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                let cluster = TestCluster::with(TestOptions { seed, ..TestOptions::default() });
                cluster.apply(WEB).await.unwrap();
                cluster.rolled_out("Deployment", "default", "web").await.unwrap();
                cluster.api_server().objects("Pod")
            })
        };
        assert_eq!(play(1), play(1));
        assert_ne!(play(1), play(2));
    }
}
