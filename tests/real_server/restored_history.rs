//! etcd is restored to an earlier state, without higher revisions, while daemons run.

use std::path::Path;
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::apiserver::{ApiServer, TOKEN, on_a_real_server};
use windlass_testkit::process::{Process, windlass};
use windlass_testkit::user::{new_deployment, send};

/// The namespaces of the two daemons.
const WITH_LEASE: &str = "with-lease";
const WITHOUT: &str = "without-lease";

/// How long the pods of a new Deployment may take on a busy machine; on an idle one the daemons notice within 10 s.
const WAIT_TIMEOUT: Duration = Duration::from_secs(40);

/// The deadlines of a leader that outlives the restart of an API server.
const LONG_LEASE: [&str; 3] = [
    "--leader-elect-lease-duration=150s",
    "--leader-elect-renew-deadline=120s",
    "--leader-elect-resource-namespace=with-lease",
];

async fn create(client: &Client, namespace: &str, name: &str, replicas: u32) {
    let object = new_deployment(deployment(name).replicas(replicas as _));
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    send(client, Method::POST, &path, &object).await.unwrap();
}

/// The number of pods of a Deployment.
async fn pods(client: &Client, namespace: &str, name: &str) -> usize {
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{name}");
    let list = send(client, Method::GET, &path, &Value::Null).await.unwrap();
    list["items"].as_array().map_or(0, Vec::len)
}

/// Waits until the Deployment has so many pods in both namespaces.
async fn eventually(client: &Client, name: &str, expected: usize, logs: &[std::path::PathBuf]) {
    let end = Instant::now() + WAIT_TIMEOUT;
    for namespace in [WITH_LEASE, WITHOUT] {
        while pods(client, namespace, name).await != expected {
            let said = || logs.iter().map(|log| std::fs::read_to_string(log).unwrap()).collect::<String>();
            assert!(Instant::now() < end, "{namespace}/{name} has not {expected} pods\n{}", said());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)
        } else {
            drop(std::fs::copy(entry.path(), target))
        }
    }
}

pub(crate) fn daemons_go_on_after_a_restore_of_etcd_with_and_without_a_lease() {
    on_a_real_server(async |folder| {
        let mut server = ApiServer::start(folder).await;
        let client = server.client().await;
        for namespace in [WITH_LEASE, WITHOUT] {
            let object = json!({"metadata": {"name": namespace}});
            send(&client, Method::POST, "/api/v1/namespaces", &object).await.unwrap();
            create(&client, namespace, "kept", 2).await;
        }
        let backup = server.file("backup");
        server.restart(|etcd| copy(etcd, &backup)).await;

        let config = server.kubeconfig(TOKEN);
        let logs = [WITH_LEASE, WITHOUT].map(|name| server.file(&format!("{name}.log")));
        let start = |namespace: &str, log: &Path, more: &[&str]| {
            let (config, scope) =
                (format!("--kubeconfig={}", config.display()), format!("--namespace={namespace}"));
            let flags = [&[&*config, &*scope, "--secure-port=0"], more].concat();
            Process::start(&windlass(), &flags, log)
        };
        let mut daemons =
            [start(WITH_LEASE, &logs[0], &LONG_LEASE), start(WITHOUT, &logs[1], &["--leader-elect=false"])];
        eventually(&client, "kept", 2, &logs).await;
        for number in 0..10 {
            for namespace in [WITH_LEASE, WITHOUT] {
                create(&client, namespace, &format!("lost-{number}"), 3).await;
            }
        }
        eventually(&client, "lost-9", 3, &logs).await;

        server
            .restart(|etcd| {
                std::fs::remove_dir_all(etcd).unwrap();
                copy(&backup, etcd);
            })
            .await;
        for namespace in [WITH_LEASE, WITHOUT] {
            create(&client, namespace, "late", 1).await;
        }
        eventually(&client, "late", 1, &logs).await;
        eventually(&client, "kept", 2, &logs).await;
        for log in &logs {
            let text = std::fs::read_to_string(log).unwrap();
            assert_eq!(text.matches("as after a restore of etcd").count(), 1, "{text}");
        }
        for daemon in &mut daemons {
            assert!(daemon.0.try_wait().unwrap().is_none(), "it goes on");
        }
    });
}
