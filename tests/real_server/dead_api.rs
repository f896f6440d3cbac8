//! An API that is registered and that nobody serves, beside what operators do: they delete a StatefulSet without its pods, to
//! create it again with what could not be changed, and the collector is replaced afterwards. The run prints how long that
//! takes with either collector.

use std::path::Path;
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::apiserver::{ApiServer, DAEMON, TOKEN, on_a_real_server};
use windlass_testkit::controllers::Side;
use windlass_testkit::user::send;

use super::garbage::grant;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// How long anything may take on a busy machine: two minutes are what an orphaning deletion waits for.
const WAIT_TIMEOUT: Duration = Duration::from_secs(240);

pub(crate) fn an_operator_goes_on_beside_an_api_that_is_down() {
    play(Side::Windlass);
}

pub(crate) fn kube_controller_manager_waits_for_no_api_and_deletes_what_turns_up_late() {
    play(Side::Upstream);
}

fn play(side: Side) {
    on_a_real_server(async |folder| {
        let server = ApiServer::start_with(folder, &[DAEMON]).await;
        let client = server.client().await;
        let token = match side {
            Side::Upstream => TOKEN,
            Side::Windlass => {
                grant(&server, &client).await;
                DAEMON.token
            }
        };
        let log = server.file("controllers.log");
        let config = server.kubeconfig(token);
        let start = || side.start(folder, &config, "garbage-collector-controller", &[], &log);
        let collector = start();
        let old = outcome(tokio::spawn(operate(side, client.clone())).await, &log);
        drop(collector);
        let _next = start();
        outcome(tokio::spawn(goes_on(side, client, old)).await, &log);
    });
}

/// The result of a task; one that failed shows what the collectors have logged.
fn outcome<T>(played: Result<T, tokio::task::JoinError>, log: &Path) -> T {
    played.unwrap_or_else(|error| {
        let log = std::fs::read_to_string(log).unwrap_or_default();
        panic!("{}\n{log}", windlass_testkit::apiserver::said(error))
    })
}

async fn call(client: &Client, method: Method, path: &str, body: &Value) -> Value {
    send(client, method, path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

async fn get(client: &Client, path: &str) -> Option<Value> {
    match send(client, Method::GET, path, &Value::Null).await {
        Ok(found) => Some(found),
        Err(kube::Error::Api(status)) if status.code == 404 => None,
        Err(error) => panic!("{path}: {error}"),
    }
}

async fn delete(client: &Client, path: &str, policy: &str) {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    call(client, Method::DELETE, path, &options).await;
}

/// How long it takes until the object at a path, with this UID, is gone.
async fn gone(client: &Client, path: &str, uid: &Value) -> Duration {
    let began = Instant::now();
    while get(client, path).await.is_some_and(|object| object["metadata"]["uid"] == *uid) {
        assert!(began.elapsed() < WAIT_TIMEOUT, "{path} is still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

fn to(owner: &Value) -> Value {
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
           "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true})
}

fn map(name: &str, owners: &[Value]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners}})
}

/// Without a controller of StatefulSets its pods are the script's.
fn stateful_set(service: &str) -> Value {
    let pods =
        json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    json!({"metadata": {"name": "db"}, "spec": {"replicas": 2, "serviceName": service,
           "selector": {"matchLabels": {"app": "db"}}, "template": pods}})
}

/// Registers a group that nobody serves, and waits until the API server says so.
async fn register_a_dead_api(client: &Client) {
    let spec = json!({
        "group": "dead.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "service": {"name": "nobody", "namespace": "default"}, "insecureSkipTLSVerify": true,
    });
    let service = json!({"metadata": {"name": "v1.dead.example.com"}, "spec": spec});
    call(client, Method::POST, SERVICES, &service).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
}

/// Deletes and creates the StatefulSet; returns the old one.
async fn operate(side: Side, client: Client) -> Value {
    // The collector works.
    let owner = call(&client, Method::POST, MAPS, &map("first", &[])).await;
    let dependent = call(&client, Method::POST, MAPS, &map("of-first", &[to(&owner)])).await;
    delete(&client, &format!("{MAPS}/first"), "Background").await;
    gone(&client, &format!("{MAPS}/of-first"), &dependent["metadata"]["uid"]).await;

    let old = call(&client, Method::POST, STATEFUL_SETS, &stateful_set("before")).await;
    for number in 0..2 {
        let mut pod = json!({"metadata": {"name": format!("db-{number}"), "labels": {"app": "db"}},
                             "spec": {"containers": [{"name": "c", "image": "i"}]}});
        pod["metadata"]["ownerReferences"] = json!([to(&old)]);
        call(&client, Method::POST, PODS, &pod).await;
    }
    let waiting = call(&client, Method::POST, MAPS, &map("waiting", &[])).await;
    call(&client, Method::POST, MAPS, &map("of-waiting", &[to(&waiting)])).await;
    // Upstream's collector deletes dependents that it has not seen.
    tokio::time::sleep(Duration::from_secs(5)).await;
    register_a_dead_api(&client).await;

    let stateful = format!("{STATEFUL_SETS}/db");
    delete(&client, &stateful, "Orphan").await;
    delete(&client, &format!("{MAPS}/waiting"), "Foreground").await;
    let waiting_path = format!("{MAPS}/waiting");
    let (orphaning, foreground) = tokio::join!(
        gone(&client, &stateful, &old["metadata"]["uid"]),
        gone(&client, &waiting_path, &waiting["metadata"]["uid"]),
    );
    #[allow(clippy::print_stdout)] // The figures are what a reader of the run wants.
    {
        println!(
            "    {:<24} beside a dead API: an orphaning deletion took {orphaning:.1?}, a foreground deletion {foreground:.1?}",
            side.name()
        );
    }
    assert!(get(&client, &format!("{MAPS}/of-waiting")).await.is_none(), "it goes before its owner");
    call(&client, Method::POST, STATEFUL_SETS, &stateful_set("after")).await;
    old
}

/// After a restart of the collector, one more object turns up that was made for the old StatefulSet.
async fn goes_on(side: Side, client: Client, old: Value) {
    let late = call(&client, Method::POST, MAPS, &map("late", &[to(&old)])).await;
    let path = format!("{MAPS}/late");
    match side {
        Side::Upstream => {
            gone(&client, &path, &late["metadata"]["uid"]).await;
        }
        Side::Windlass => {
            let began = Instant::now();
            while !get(&client, &path).await.expect("it lives")["metadata"]["ownerReferences"].is_null() {
                assert!(began.elapsed() < WAIT_TIMEOUT, "it still refers to the old one");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    for number in 0..2 {
        let pod = get(&client, &format!("{PODS}/db-{number}")).await.expect("the pods live");
        let owners = &pod["metadata"]["ownerReferences"];
        assert!(pod["metadata"]["deletionTimestamp"].is_null() && owners.is_null(), "{pod}");
    }
    let new = get(&client, &format!("{STATEFUL_SETS}/db")).await.expect("the new one lives");
    assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
}
