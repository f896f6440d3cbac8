//! The heap that a cached object costs: as our record in an informer's store, indexes included, and
//! next to it the typed form of k8s-openapi. `cargo bench --bench memory`.
//!
//! The figures are counted, not sampled, and do not depend on the machine's load. The run fails if a
//! cached pod, StatefulSet or claim costs more than its target.

mod support;

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use k8s_openapi::api::apps::v1::{ReplicaSet as TypedReplicaSet, StatefulSet as TypedStatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim as TypedClaim, Pod as TypedPod};
use kube::client::Body;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use windlass::metrics::Metrics;
use windlass::model::{Interner, PersistentVolumeClaim, Pod, Record, ReplicaSet, StatefulSet};
use windlass::runtime::api::Api;
use windlass::runtime::informer::{Informer, InformerOptions};
use windlass::runtime::rate_limiter::RateLimiter;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// The most that a cached pod may cost, in bytes of heap, indexes included.
const TARGET: usize = 500;
/// The same for a StatefulSet without its templates, which are kept compressed.
const STATEFUL_SET_TARGET: usize = 1_300;
/// The same for a claim.
const CLAIM_TARGET: usize = 320;
const PODS: usize = 3_000;
const REPLICA_SETS: usize = 600;
const STATEFUL_SETS: usize = 600;
const CLAIMS: usize = 3_000;
const TYPED: usize = 100;

fn live() -> usize {
    dhat::HeapStats::get().curr_bytes
}

/// Answers lists in pages and leaves watches open.
async fn answer(request: Request<Body>, total: usize, object: fn(usize) -> String) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default().to_string();
    let value = |name: &str| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name))
            .map(|text| text.trim_start_matches('=').to_string())
    };
    let body = |code: u16, text: String| {
        Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap()
    };
    if value("sendInitialEvents").is_some() {
        return body(
            422,
            r#"{"kind":"Status","code":422,"reason":"Invalid","message":"no streaming lists"}"#.into(),
        );
    }
    if value("watch").is_some() {
        std::future::pending::<()>().await;
    }
    let from: usize = value("continue").and_then(|text| text.parse().ok()).unwrap_or(0);
    let to = (from + 500).min(total);
    let items: Vec<String> = (from..to).map(object).collect();
    let next = if to < total { format!(r#","continue":"{to}""#) } else { String::new() };
    body(
        200,
        format!(
            r#"{{"metadata":{{"resourceVersion":"{}"{next}}},"items":[{}]}}"#,
            total + 1,
            items.join(",")
        ),
    )
}

/// Fills an informer's store through the client and returns the live bytes per object.
async fn cached<T: Record>(total: usize, object: fn(usize) -> String) -> usize {
    let service = tower::service_fn(move |request| async move {
        Ok::<_, std::convert::Infallible>(answer(request, total, object).await)
    });
    let api =
        Api::new(kube::Client::new(service, "default"), "bench", RateLimiter::unlimited(), Metrics::new());
    let informer = Informer::<T>::new(api, InformerOptions::default());
    let (store, ready) = (informer.store(), informer.ready());
    let before = live();
    let stop = CancellationToken::new();
    let task = tokio::spawn(informer.run(stop.clone()));
    ready.wait().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(store.len(), total);
    let bytes = live() - before;
    let mut recorded = 0;
    store.for_each(|object| recorded += object.heap_bytes());
    // The metric may leave out shared memory, but must not count memory that does not exist.
    let recorded = recorded / total;
    let measured = bytes / total;
    assert!(
        measured / 2 < recorded && recorded <= measured,
        "recorded {recorded} bytes, measured {measured}"
    );
    stop.cancel();
    task.await.unwrap();
    measured
}

/// The most bytes of heap that a ReplicaSet of 1.5 MB takes for each byte of its JSON, whatever its user filled it with.
/// The metric reports at most as much as the allocator.
fn largest() -> f64 {
    let filled = |before: &str, after: &str, entry: &dyn Fn(usize) -> String| {
        let (mut entries, mut n) = (String::new(), 0);
        while entries.len() < 1_500_000 {
            entries.push_str(&entry(n));
            entries.push(',');
            n += 1;
        }
        entries.pop();
        let metadata = r#""name":"a","namespace":"b","uid":"u","resourceVersion":"1""#;
        format!(r#"{{"metadata":{{{metadata}{before}{entries}{after}"#)
    };
    let pair = |n: usize| format!(r#""k{n}":"""#);
    let selector = |before: &str| format!(r#"}},"spec":{{"selector":{{{before}"#);
    let shapes = [
        filled(r#","labels":{"#, r#"}},"spec":{}}"#, &pair),
        filled(r#","annotations":{"#, r#"}},"spec":{}}"#, &pair),
        filled(&selector(r#""matchLabels":{"#), "}}}}", &pair),
        filled(
            &selector(r#""matchExpressions":[{"key":"k","operator":"NotIn","values":["#),
            "]}]}}}",
            &|n| format!(r#""v{n}""#),
        ),
        filled(&selector(r#""matchExpressions":["#), "]}}}", &|n| {
            format!(r#"{{"key":"k{n}","operator":"Exists"}}"#)
        }),
        filled(&selector(r#""matchExpressions":["#), "]}}}", &|n| {
            format!(r#"{{"key":"k{n}","operator":"In","values":["a"]}}"#)
        }),
        filled(r#"},"spec":{"template":{"metadata":{"labels":{"#, "}}}}}", &pair),
    ];
    let mut most: f64 = 0.0;
    for json in shapes {
        let (mut interner, before) = (Interner::default(), live());
        let record = Arc::new(ReplicaSet::decode(&json, &mut interner).unwrap());
        let (measured, recorded) = (live() - before, record.heap_bytes());
        assert!(measured / 2 < recorded && recorded <= measured, "recorded {recorded}, measured {measured}");
        most = most.max(measured as f64 / json.len() as f64);
    }
    most
}

/// The live bytes per object of a vector of typed objects, without and with their managed fields.
fn typed<
    T: DeserializeOwned + k8s_openapi::Metadata<Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>,
>(
    object: fn(usize) -> String,
) -> (usize, usize) {
    let before = live();
    let mut all: Vec<Arc<T>> =
        (0..TYPED).map(|n| Arc::new(serde_json::from_str(&object(n)).unwrap())).collect();
    let full = (live() - before) / TYPED;
    for object in &mut all {
        Arc::get_mut(object).unwrap().metadata_mut().managed_fields = None;
    }
    ((live() - before) / TYPED, full)
}

/// The bytes of the templates of a StatefulSet, compressed.
fn packed_templates(json: &str) -> usize {
    let set: serde_json::Value = serde_json::from_str(json).unwrap();
    let packed =
        |field: &str| lz4_flex::compress_prepend_size(set["spec"][field].to_string().as_bytes()).len();
    packed("template") + packed("volumeClaimTemplates")
}

#[tokio::main(flavor = "current_thread")]
#[allow(clippy::print_stdout)] // The table is what it is for.
async fn main() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let pod = cached::<Pod>(PODS, support::pod).await;
    let replica_set = cached::<ReplicaSet>(REPLICA_SETS, support::replica_set).await;
    let stateful_set = cached::<StatefulSet>(STATEFUL_SETS, support::stateful_set).await;
    let claim = cached::<PersistentVolumeClaim>(CLAIMS, support::claim).await;
    println!(
        "| bytes of heap per object | JSON | windlass, indexes included | k8s-openapi, managedFields dropped | k8s-openapi |"
    );
    println!("|---|---|---|---|---|");
    let row = |name: &str, json: String, ours: usize, (slim, full): (usize, usize)| {
        println!("| {name} | {} | {ours} | {slim} | {full} |", json.len());
    };
    row("pod", support::pod(0), pod, typed::<TypedPod>(support::pod));
    row("ReplicaSet", support::replica_set(0), replica_set, typed::<TypedReplicaSet>(support::replica_set));
    row(
        "StatefulSet",
        support::stateful_set(0),
        stateful_set,
        typed::<TypedStatefulSet>(support::stateful_set),
    );
    row("claim", support::claim(0), claim, typed::<TypedClaim>(support::claim));
    let packed = packed_templates(&support::stateful_set(0));
    println!("of each StatefulSet, its compressed templates: {packed}");
    let largest = largest();
    println!("the largest ReplicaSets: at most {largest:.2} bytes of heap for each byte of JSON");
    assert!(largest <= 2.0, "a large ReplicaSet costs {largest:.2} times its size");
    assert!(pod <= TARGET, "a cached pod costs {pod} bytes; the target is {TARGET}");
    let bare = stateful_set.saturating_sub(packed);
    assert!(
        bare <= STATEFUL_SET_TARGET,
        "a cached StatefulSet costs {bare} bytes; the target is {STATEFUL_SET_TARGET}"
    );
    assert!(claim <= CLAIM_TARGET, "a cached claim costs {claim} bytes; the target is {CLAIM_TARGET}");
}
