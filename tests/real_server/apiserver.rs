//! The scenarios of `tests/cluster/scenarios.rs` against a real kube-apiserver, in real time. The pod simulator and the
//! collectors of the sandbox are the rest of the cluster.
//!
//! Beside them the program itself, under exactly the rights of `deploy/rbac.yaml` and held by
//! `deploy/admissionpolicy.yaml`.

use std::sync::Arc;
use std::time::Duration;

use crate::daemon_sets::a_daemon_set_lives_its_life;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::apiserver::{
    ApiServer, DAEMON, User, on_a_real_server, run_the_rest_of_the_cluster, said,
};
use windlass_testkit::https;
use windlass_testkit::manifests;
use windlass_testkit::process::{Process, WAIT_TIMEOUT, windlass};
use windlass_testkit::rights::{self, Rights};
use windlass_testkit::stage::{Seen, Stage, Writes, name, recorded};
use windlass_testkit::{every_scenario, every_scenario_with_its_own_daemons, scenarios};

/// A scenario by its name.
type Scenario = (&'static str, fn(Arc<Stage>) -> BoxFuture<'static, ()>);

macro_rules! named {
    ($($name:ident)*) => {
        [$((stringify!($name), |stage| async move { scenarios::$name(&stage).await }.boxed())),*]
    };
}

pub(crate) fn the_scenarios_hold_on_a_real_api_server() {
    on_a_real_server(async |folder| play_all(&ApiServer::start(folder).await).await);
}

async fn play_all(server: &ApiServer) {
    let end = CancellationToken::new();
    run_the_rest_of_the_cluster(server, &end).await;
    let (client, writes) = (server.client().await, Writes::default());
    let daemon = recorded(server.client_of_the_daemon().await, writes.clone());
    let stage = |number: usize| {
        let namespace = format!("scenario-{number}");
        Stage::on_real(client.clone(), daemon.clone(), writes.clone(), namespace)
    };

    let mut failures = Vec::new();
    let together: &[Scenario] = &every_scenario!(named);
    let controllers = stage(0).await.start_controllers(1);
    let mut running = JoinSet::new();
    for (number, &(name, play)) in (1..).zip(together) {
        let stage = Arc::new(stage(number).await);
        running.spawn(async move {
            let played = tokio::spawn(async move {
                play(stage.clone()).await;
                stage.converges().await;
            });
            (name, played.await)
        });
    }
    while let Some(ended) = running.join_next().await {
        let (name, result) = ended.unwrap();
        failures.extend(result.err().map(|error| format!("{name}: {}", said(error))));
    }
    controllers.stop().await;

    let alone: &[Scenario] = &every_scenario_with_its_own_daemons!(named);
    for (number, &(name, play)) in (together.len() + 1..).zip(alone) {
        let result = tokio::spawn(play(Arc::new(stage(number).await))).await;
        failures.extend(result.err().map(|error| format!("{name}: {}", said(error))));
    }
    end.cancel();
    assert!(failures.is_empty(), "{} failed:\n\n{}", failures.len(), failures.join("\n\n"));
}

const SCRAPER: User = User { token: "token-of-the-scraper", name: "prometheus", groups: "monitoring" };

const STRANGER: User = User { token: "token-of-a-stranger", name: "stranger", groups: "monitoring" };

/// The rights that `deploy/rbac.yaml` grants and whose use this test does not see.
const UNSEEN: [(&str, &str); 8] = [
    (
        "get pods",
        "only after the answer to a creation or deletion was lost; tests/cluster/faults.rs loses answers",
    ),
    ("update deployments.apps/finalizers", ADMISSION),
    ("update replicasets.apps/finalizers", ADMISSION),
    ("update replicationcontrollers/finalizers", ADMISSION),
    ("update daemonsets.apps/finalizers", ADMISSION),
    ("update statefulsets.apps/finalizers", ADMISSION),
    ("update cronjobs.batch/finalizers", ADMISSION),
    ("update pods/finalizers", ADMISSION),
];

const ADMISSION: &str = "asked by an admission plugin, which the audit log does not show; without it the \
                         plugin, which is on here, refuses";

/// The requests that it makes by the rights that the API server ships, to which `deploy/rbac.yaml` binds it.
const BOUND: [&str; 3] = [
    "create subjectaccessreviews.authorization.k8s.io",
    "create tokenreviews.authentication.k8s.io",
    "get configmaps",
];

pub(crate) fn the_daemon_needs_exactly_the_shipped_permissions() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start_with(folder, &[DAEMON, SCRAPER, STRANGER]).await;
        let client = server.client().await;
        let objects = rights::manifest();
        rights::create(&client, &objects).await;
        rights::create(&client, &may_delete_claims()).await;
        // The refusals by the policy show as a 403 below.
        rights::create(&client, &manifests::file("deploy/admissionpolicy.yaml")).await;
        rights::wait_for_the_admission_policy(&server).await;
        rights::wait_until_allowed(&client, DAEMON.name, &rights::one_of_each_binding()).await;
        let deletion = json!({"verb": "delete", "resource": "persistentvolumeclaims"});
        rights::wait_until_allowed(&client, DAEMON.name, &[deletion]).await;
        let end = CancellationToken::new();
        run_the_rest_of_the_cluster(&server, &end).await;

        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (config, log) = (server.kubeconfig(DAEMON.token), server.file("windlass.log"));
        let flags = [
            &format!("--kubeconfig={}", config.display()),
            &format!("--secure-port={port}"),
            "--bind-address=127.0.0.1",
            // As in `deploy/windlass.yaml`, whose rights these are.
            "--controllers=*,-job-controller",
        ];
        let daemon = Process::start(&windlass(), &flags, &log);
        let played = tokio::spawn(play_workloads(client.clone())).await;
        let log = std::fs::read_to_string(log).unwrap();
        played.unwrap_or_else(|error| panic!("{}\n{log}", said(error)));
        metrics_require_permission(&client, port).await;
        let (_, metrics) = https::get(port, "/metrics", Some(SCRAPER.token)).await;
        daemon.terminate();
        end.cancel();

        let refused = |line: &&str| {
            line.starts_with("rest_client_requests_total")
                && ["401", "403"].iter().any(|code| line.contains(&format!("code=\"{code}\"")))
        };
        assert_eq!(metrics.lines().filter(refused).collect::<Vec<_>>(), [""; 0], "{log}");
        assert!(metrics.contains("leader_election_master_status{name=\"windlass\"} 1"), "{metrics}");
        let audit = server.audit();
        // The test has sent a request in its name to check whether the policy is in force.
        let is_its_own =
            |event: &Value| event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("windlass"));
        let asked: Vec<&Value> = audit
            .iter()
            .filter(|event| event["user"]["username"] == DAEMON.name && is_its_own(event))
            .collect();
        let of = |codes: [u16; 2]| {
            let is_one = |event: &&&Value| codes.iter().any(|code| event["responseStatus"]["code"] == *code);
            rights::used(asked.iter().filter(is_one).copied())
        };
        assert_eq!(of([401, 403]), Rights::new(), "refused by the API server\n{log}");

        let used = rights::used(asked.iter().copied());
        let unseen = UNSEEN.iter().map(|(right, _)| (*right).to_string());
        let expected: Rights = used.iter().cloned().chain(unseen).collect();
        let bound = BOUND.map(str::to_string);
        let granted: Rights = rights::granted(&objects).into_iter().chain(bound).collect();
        let never_used: Vec<_> = granted.difference(&expected).collect();
        let by_other_roles: Vec<_> = used.difference(&granted).collect();
        assert!(never_used.is_empty() && by_other_roles.is_empty(), "{never_used:?} {by_other_roles:?}");
    });
}

/// The right that docs/install.md names for clusters with the plugin, which asks for it before the owners of a claim
/// change. It is not among those that ship, so a claim that the daemon deletes would fail the test.
fn may_delete_claims() -> [Value; 2] {
    let (api, group) = ("rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io");
    let name = "windlass-claims";
    [
        json!({
            "apiVersion": api, "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["delete"]}],
        }),
        json!({
            "apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "User", "apiGroup": group, "name": DAEMON.name}],
        }),
    ]
}

/// Everything that the daemon does to workloads, each in a namespace of its own.
async fn play_workloads(client: kube::Client) {
    let mut number = 0;
    let mut stage = || {
        number += 1;
        Stage::on_real(client.clone(), client.clone(), Writes::default(), format!("rights-{number}"))
    };
    let stages = [stage().await, stage().await, stage().await, stage().await, stage().await];
    let [rolls, annotated, orphans, left, taken] = &stages;
    let own = [stage().await, stage().await, stage().await, stage().await, stage().await];
    tokio::join!(
        scenarios::a_deployment_rolls_out_and_rolls_back(rolls),
        scenarios::a_rollback_by_annotation_changes_the_template_once_and_keeps_new_fields(annotated),
        scenarios::matching_orphans_are_adopted_and_pods_that_stop_matching_are_released(orphans),
        scenarios::an_orphaned_replica_set_is_adopted_with_its_pods(left),
        scenarios::a_name_in_use_is_counted_as_a_collision_and_another_is_used(taken),
        history_is_cleaned_up_and_a_cascade_ends_it(&own[0]),
        a_replication_controller_adopts_releases_and_scales(&own[1]),
        a_daemon_set_lives_its_life(&own[2]),
        a_stateful_set_decides_about_its_claims(&own[3]),
        a_cron_job_runs_and_its_job_expires(&own[4]),
    );
}

async fn history_is_cleaned_up_and_a_cascade_ends_it(stage: &Stage) {
    stage.create(deployment("web").replicas(2).history(0)).await;
    stage.rolled_out("web").await;
    stage.set_image("web", "v2").await;
    stage.rolled_out("web").await;
    stage.eventually(30, "the old ReplicaSet is deleted", |seen| seen.replica_sets.len() == 1).await;
    stage.delete("web", "Foreground").await;
    let nothing_left =
        |seen: &Seen| seen.deployments.is_empty() && seen.replica_sets.is_empty() && seen.pods.is_empty();
    stage.eventually(60, "the cascade ends", nothing_left).await;
}

async fn a_replication_controller_adopts_releases_and_scales(stage: &Stage) {
    let collection = format!("/api/v1/namespaces/{}/replicationcontrollers", stage.namespace);
    let controller = format!("{collection}/old");
    let body = json!({"metadata": {"name": "old"}, "spec": {
        "replicas": 2, "selector": {"app": "old"},
        "template": {"metadata": {"labels": {"app": "old"}}, "spec": {"containers": [{"name": "c", "image": "app:v1"}]}},
    }});
    stage.call(Method::POST, &collection, &body).await;
    stage.eventually(30, "two pods", |seen| seen.pods.len() == 2).await;

    let pod = format!("{}/{}", stage.path("Pod"), name(&stage.seen().await.pods[0]));
    let label = |value: &str| json!({"metadata": {"labels": {"app": value}}});
    stage.call(Method::PATCH, &pod, &label("debug")).await;
    stage.eventually(30, "one is released and replaced", |seen| seen.pods.len() == 3).await;
    stage.call(Method::PATCH, &pod, &label("old")).await;
    let owned = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicationController";
    let adopted = |seen: &Seen| seen.pods.len() == 2 && seen.pods.iter().all(owned);
    stage.eventually(30, "it is adopted, and one of three pods is deleted", adopted).await;

    stage.call(Method::PATCH, &controller, &json!({"spec": {"replicas": 1}})).await;
    stage.eventually(30, "one is deleted", |seen| seen.pods.len() == 1).await;
    let is_settled = |controller: &Value| {
        let status = &controller["status"];
        status["replicas"] == 1 && status["availableReplicas"] == 1
    };
    becomes(stage, &controller, "one is left", is_settled).await;
    let cascade = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    stage.call(Method::DELETE, &controller, &cascade).await;
    stage.eventually(30, "its pods go with it", |seen| seen.pods.is_empty()).await;
}

/// Pods are rolled and corrected, and their claims are kept, given to the StatefulSet, and given to a pod.
async fn a_stateful_set_decides_about_its_claims(stage: &Stage) {
    let collection = format!("/apis/apps/v1/namespaces/{}/statefulsets", stage.namespace);
    let claims = format!("/api/v1/namespaces/{}/persistentvolumeclaims", stage.namespace);
    let (db, pods) = (format!("{collection}/db"), stage.path("Pod"));
    let body = json!({"metadata": {"name": "db"}, "spec": {
        "replicas": 2, "serviceName": "db", "revisionHistoryLimit": 0, "selector": {"matchLabels": {"app": "db"}},
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "db:v1"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
    }});
    stage.call(Method::POST, &collection, &body).await;
    let ready = |count: i64| {
        move |set: &Value| {
            let status = &set["status"];
            let all =
                ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "currentReplicas"];
            status["observedGeneration"] == set["metadata"]["generation"]
                && all.iter().all(|field| status[field] == count)
        }
    };
    becomes(stage, &db, "two pods are ready", ready(2)).await;
    let image = json!([{"name": "c", "image": "db:v2"}]);
    let spec = json!({"spec": {"template": {"spec": {"containers": image}}}});
    stage.call(Method::PATCH, &db, &spec).await;
    becomes(stage, &db, "both are updated", ready(2)).await;

    let [first, second] = ["db-0", "db-1"].map(|name| format!("{pods}/{name}"));
    let label = "statefulset.kubernetes.io/pod-name";
    stage.call(Method::PATCH, &first, &json!({"metadata": {"labels": {label: "another"}}})).await;
    becomes(stage, &first, "its label is corrected", |pod| pod["metadata"]["labels"][label] == "db-0").await;

    let [kept, gone] = ["data-db-0", "data-db-1"].map(|name| format!("{claims}/{name}"));
    let owned_by =
        |kind: &'static str| move |claim: &Value| claim["metadata"]["ownerReferences"][0]["kind"] == kind;
    becomes(stage, &kept, "nobody owns a claim", |it| it["metadata"]["ownerReferences"].is_null()).await;
    let policy = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    let policy = json!({"spec": {"persistentVolumeClaimRetentionPolicy": policy}});
    stage.call(Method::PATCH, &db, &policy).await;
    becomes(stage, &gone, "the StatefulSet owns a claim", owned_by("StatefulSet")).await;

    // Its claim is there, and may be deleted: it is read.
    let before = stage.call(Method::DELETE, &second, &Value::Null).await["metadata"]["uid"].clone();
    stage
        .eventually(60, "the pod is replaced", |seen| {
            seen.pods.len() == 2 && seen.pods.iter().all(|pod| pod["metadata"]["uid"] != before)
        })
        .await;
    becomes(stage, &db, "two pods are ready again", ready(2)).await;

    stage.call(Method::PATCH, &db, &json!({"spec": {"replicas": 1}})).await;
    becomes(stage, &gone, "the pod owns a claim", owned_by("Pod")).await;
    becomes(stage, &db, "one pod is left", ready(1)).await;
    becomes(stage, &kept, "the StatefulSet keeps the other", owned_by("StatefulSet")).await;
    let cascade = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"});
    stage.call(Method::DELETE, &db, &cascade).await;
    stage.eventually(60, "its pods go with it", |seen| seen.pods.is_empty()).await;
}

/// A run of a CronJob succeeds, as a Job controller would say, and expires.
async fn a_cron_job_runs_and_its_job_expires(stage: &Stage) {
    let [cron_jobs, jobs] =
        ["cronjobs", "jobs"].map(|kind| format!("/apis/batch/v1/namespaces/{}/{kind}", stage.namespace));
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "tick:v1"}]});
    let body = json!({"metadata": {"name": "tick"}, "spec": {
        "schedule": "* * * * *", "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"ttlSecondsAfterFinished": 0, "template": {"spec": pod}}},
    }});
    stage.call(Method::POST, &cron_jobs, &body).await;
    let mut job = Value::Null;
    for _ in 0..400 {
        job = stage.call(Method::GET, &jobs, &Value::Null).await["items"][0].clone();
        if job.is_object() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(job.is_object(), "no run of the CronJob within 80 s");
    stage.call(Method::PATCH, &format!("{cron_jobs}/tick"), &json!({"spec": {"suspend": true}})).await;
    let now = job["metadata"]["creationTimestamp"].clone();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let status = json!({"status": {
        "startTime": now, "completionTime": now, "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    let job = format!("{jobs}/{}", name(&job));
    stage.call(Method::PATCH, &format!("{job}/status"), &status).await;
    becomes(stage, &job, "the Job expires", Value::is_null).await;
    becomes(stage, &format!("{cron_jobs}/tick"), "its end is in the status", |tick| {
        tick["status"]["active"].is_null() && tick["status"]["lastSuccessfulTime"].is_string()
    })
    .await;
}

/// Waits until an object is so.
pub(crate) async fn becomes(stage: &Stage, path: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
    let end = tokio::time::Instant::now() + WAIT_TIMEOUT;
    loop {
        let object = stage.try_call(Method::GET, path, &Value::Null).await.unwrap_or_default();
        if is_so(&object) {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "{what}: {object}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Binds only the scraper to the shipped role.
async fn metrics_require_permission(client: &kube::Client, port: u16) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "scraper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "windlass-metrics-reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": SCRAPER.name}],
    });
    rights::create(client, &[binding]).await;
    let code = async |path: &str, token: Option<&str>| https::get(port, path, token).await.0;
    // The API server's own authorizer learns of the binding by a watch, and a no is remembered for 10 s.
    let end = tokio::time::Instant::now() + WAIT_TIMEOUT;
    while code("/metrics", Some(SCRAPER.token)).await != 200 {
        assert!(tokio::time::Instant::now() < end, "the scraper may not scrape");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(code("/metrics/slis", Some(SCRAPER.token)).await, 200);
    assert_eq!(code("/configz", Some(SCRAPER.token)).await, 403, "it may read metrics and nothing else");
    assert_eq!(code("/metrics", Some(STRANGER.token)).await, 403);
    assert_eq!(code("/metrics", None).await, 403);
    assert_eq!(code("/metrics", Some("unknown-token")).await, 401);
    for path in ["/healthz", "/livez", "/readyz"] {
        for token in [None, Some(STRANGER.token), Some(SCRAPER.token)] {
            assert_eq!(code(path, token).await, 200, "{path} {token:?}");
        }
    }
}
