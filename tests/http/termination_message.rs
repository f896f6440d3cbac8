//! Only authorized clients may read the termination message of a container.
//!
//! No other test of this program runs controllers: which lines of a thread are logged can depend on who was the first
//! to get to them, and whether that thread has a subscriber.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, ask};

const WEB: &str = "/debug/deployments/shop/web";

/// The log of a test.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn the_termination_message_of_a_container_is_shown_to_authorized_clients_only_and_never_logged() {
    const SECRET: &str = "postgres://admin:hunter2@db";
    let log = Log::default();
    let writer = log.clone();
    let filter = Some("windlass=trace,windlass_apiserver=off,windlass_nodes=off".into());
    let options = windlass::logging::LogOptions { filter, ..Default::default() };
    let subscriber = windlass::logging::subscriber(&options, move || writer.clone(), false).unwrap();
    let _logs = tracing::subscriber::set_default(subscriber);

    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(1)).await;
    cluster.rolled_out("web").await;
    let pod = cluster.objects("Pod").remove(0);
    let name = pod["metadata"]["name"].as_str().unwrap();
    let terminated = json!({"exitCode": 3, "reason": "Error", "message": format!("cannot reach {SECRET}")});
    let waiting =
        json!({"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"});
    let container = json!({"name": "app", "state": {"waiting": waiting, "running": null},
                           "lastState": {"terminated": terminated}});
    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [container],
    }});
    let path = format!("/api/v1/namespaces/shop/pods/{name}/status");
    let stored = cluster.call(http::Method::PATCH, &path, &status).await;
    assert!(stored.to_string().contains(SECRET), "{stored:#}");
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;

    let (code, open) = ask(&daemon.http, WEB).await;
    assert!(code == 200 && open.contains(&format!("{name}: CrashLoopBackOff (exit code 3)")), "{open}");
    assert!(!open.contains("hunter2"), "{open}");
    let (_, closed) = ask(&daemon.https, WEB).await;
    let closed: Value = serde_json::from_str(&closed).unwrap();
    assert_eq!(closed["current"]["terminationMessages"][name], format!("cannot reach {SECRET}"));
    let events = cluster.objects("Event").iter().map(ToString::to_string).collect::<String>();
    let deployment = cluster.deployment("web").to_string();
    assert!(!events.contains("hunter2") && !deployment.contains("hunter2"));
    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(logged.contains("CrashLoopBackOff"), "the plan is logged: {logged}");
    assert!(!logged.contains("hunter2"), "{logged}");
}
