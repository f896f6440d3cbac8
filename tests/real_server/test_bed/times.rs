//! How long the test bed takes for what tests wait for most, beside the goals. Nothing fails for being slow: the machine
//! decides that too.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Bed, DELETE};
use crate::namespaces::fill;

/// How often each is measured.
const ROUNDS: usize = 5;

/// The actions that are measured, and how long each may take.
const GOALS: [(&str, u64); 7] = [
    ("a Deployment of 3 is Available, in a new namespace", 1000),
    ("a Deployment of 3 is deleted, and its pods are gone", 500),
    ("the same in the foreground, and it is gone too", 1000),
    ("it is deleted and orphans its ReplicaSet", 1000),
    ("an empty namespace is deleted", 300),
    ("a namespace with 20 objects of 8 kinds is deleted", 1000),
    ("a namespace with a Deployment of 3 is deleted", 1000),
];

pub(super) async fn measure(bed: &Bed) {
    let mut times: [Vec<Duration>; GOALS.len()] = Default::default();
    for round in 0..ROUNDS {
        let in_one = |name: &str| format!("{name}-{round}");
        let background = in_one("background");
        let began = Instant::now();
        bed.create_namespace(&background).await;
        times[0].push(bed.available(&background, began).await);
        times[1].push(cascade(bed, &background, "Background").await);
        let foreground = in_one("foreground");
        deploy(bed, &foreground).await;
        times[2].push(cascade(bed, &foreground, "Foreground").await);
        let orphan = in_one("orphan");
        deploy(bed, &orphan).await;
        times[3].push(orphaning(bed, &orphan).await);
        // It is empty but for what every namespace has.
        times[4].push(end(bed, &background).await);
        let full = in_one("full");
        bed.create_namespace(&full).await;
        let account = format!("/api/v1/namespaces/{full}/serviceaccounts/default");
        bed.eventually(&account, "it has an account", |account| account["metadata"].is_object()).await;
        fill(&bed.client, &full).await;
        times[5].push(end(bed, &full).await);
        let deployed = in_one("deployed");
        deploy(bed, &deployed).await;
        times[6].push(end(bed, &deployed).await);
    }
    print(&mut times);
}

#[allow(clippy::print_stdout)] // The figures are for whoever runs it.
fn print(times: &mut [Vec<Duration>; GOALS.len()]) {
    println!("     median    slowest       goal");
    for (times, (what, goal)) in times.iter_mut().zip(GOALS) {
        times.sort();
        let (median, slowest) = (times[ROUNDS / 2].as_millis(), times[ROUNDS - 1].as_millis());
        println!("    {median:>4} ms    {slowest:>4} ms  <={goal:>5} ms  {what}");
    }
}

async fn deploy(bed: &Bed, namespace: &str) {
    bed.create_namespace(namespace).await;
    bed.available(namespace, Instant::now()).await;
}

fn web(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments/web")
}

async fn delete(bed: &Bed, namespace: &str, policy: &str) -> Instant {
    let began = Instant::now();
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    bed.call(Method::DELETE, &web(namespace), &options).await;
    began
}

/// Deletes the Deployment; the time until its ReplicaSet and pods are gone, and itself.
async fn cascade(bed: &Bed, namespace: &str, policy: &str) -> Duration {
    let began = delete(bed, namespace, policy).await;
    let sets = format!("/apis/apps/v1/namespaces/{namespace}/replicasets");
    for collection in [sets, format!("/api/v1/namespaces/{namespace}/pods")] {
        let is_empty = |list: &Value| list["items"].as_array().is_some_and(Vec::is_empty);
        bed.eventually(&collection, "it is empty", is_empty).await;
    }
    bed.eventually(&web(namespace), "it is gone", Value::is_null).await;
    began.elapsed()
}

/// Deletes the Deployment alone; the time until it is gone. Its pods stay.
async fn orphaning(bed: &Bed, namespace: &str) -> Duration {
    let began = delete(bed, namespace, "Orphan").await;
    bed.eventually(&web(namespace), "it is gone", Value::is_null).await;
    let took = began.elapsed();
    let pods = bed.call(Method::GET, &format!("/api/v1/namespaces/{namespace}/pods"), &Value::Null).await;
    assert_eq!(pods["items"].as_array().map(Vec::len), Some(3), "{pods}");
    took
}

/// Deletes the namespace; the time until it is gone.
async fn end(bed: &Bed, namespace: &str) -> Duration {
    let path = format!("/api/v1/namespaces/{namespace}");
    let began = Instant::now();
    bed.call(Method::DELETE, &path, &DELETE).await;
    bed.eventually(&path, "the namespace is gone", Value::is_null).await;
    began.elapsed()
}
