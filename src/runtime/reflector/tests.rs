//! The informer against a server that follows a script.

use std::collections::VecDeque;
use std::convert::Infallible;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body::Frame as BodyFrame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::metrics::Metrics;
use crate::model::Record;
use crate::runtime::expectations::{Caches, Expectations, Freshness};
use crate::runtime::fixture::{THINGS, Thing, json_of, key, uid};
use crate::runtime::informer::{Informer, Ready, Relist};
use crate::runtime::parked_keys::ParkedKeys;
use crate::runtime::rate_limiter::RateLimiter;
use crate::runtime::read_barrier::ReadBarrier;
use crate::runtime::store::{Change, Store};
use crate::runtime::worker::{Next, SyncFailure, WorkQueue, run_workers};

mod encodings;
mod histories;
mod lists;
mod read_barrier;
mod watches;

const S: Duration = Duration::from_secs(1);

/// A stream of bookmarks that come often enough for the watch not to be silent.
fn bookmarks(version: u64, times: usize) -> Vec<Step> {
    (0..times).flat_map(|_| [Step::Wait(20 * S), bookmark(version)]).collect()
}

/// One thing that the server does within a streaming answer.
#[derive(Clone)]
enum Step {
    Send(Vec<u8>),
    Wait(Duration),
    /// The connection breaks.
    Break,
    /// The answer ends.
    End,
}

/// An answer of the server.
#[derive(Clone)]
enum Answer {
    /// The steps, and then silence.
    Stream(Vec<Step>),
    Status(u16, Value),
    Page(Value),
    /// Nothing, for ever: the connection is open and relays nothing.
    Nothing,
}

type AnswerBody = UnsyncBoxBody<Bytes, std::io::Error>;

fn streaming(steps: Vec<Step>) -> AnswerBody {
    let stream = futures::stream::unfold(VecDeque::from(steps), |mut steps| async move {
        loop {
            match steps.pop_front() {
                Some(Step::Send(bytes)) => return Some((Ok(BodyFrame::data(Bytes::from(bytes))), steps)),
                Some(Step::Wait(time)) => tokio::time::sleep(time).await,
                Some(Step::Break) => return Some((Err(std::io::ErrorKind::ConnectionReset.into()), steps)),
                Some(Step::End) => return None,
                None => std::future::pending().await,
            }
        }
    });
    StreamBody::new(stream).boxed_unsync()
}

impl Answer {
    fn respond(self) -> Response<AnswerBody> {
        let once = |value: Value| {
            let bytes = Bytes::from(value.to_string());
            StreamBody::new(futures::stream::once(async { Ok(BodyFrame::data(bytes)) }).boxed())
                .boxed_unsync()
        };
        let (code, body) = match self {
            Answer::Nothing => (200, streaming(Vec::new())),
            Answer::Stream(steps) => (200, streaming(steps)),
            Answer::Status(code, value) => (code, once(value)),
            Answer::Page(value) => (200, once(value)),
        };
        Response::builder().status(code).body(body).unwrap()
    }
}

/// A running informer, with the server's log and the calls of the handlers.
struct World {
    requests: Arc<Mutex<Vec<(Duration, String)>>>,
    dispatched: Arc<Mutex<Vec<String>>>,
    store: Arc<Store<Thing>>,
    metrics: Arc<Metrics>,
    ready: Ready,
    relist: Relist,
    read_barrier: ReadBarrier,
    shutdown: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

/// Starts an informer whose requests get these answers, and silence afterwards.
fn start(script: Vec<Answer>) -> World {
    start_with(script, InformerOptions::default())
}

fn start_with(script: Vec<Answer>, options: InformerOptions) -> World {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let (log, script, begin) =
        (requests.clone(), Arc::new(Mutex::new(VecDeque::from(script))), Instant::now());
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let shown: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("timeoutSeconds=")).collect();
        log.lock().push((begin.elapsed(), format!("{}?{}", uri.path(), shown.join("&"))));
        let answer = script.lock().pop_front().unwrap_or(Answer::Stream(Vec::new()));
        async move {
            if matches!(answer, Answer::Nothing) {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(answer.respond())
        }
    });
    let metrics = Metrics::new();
    let client = kube::Client::new(service, "default");
    let api = Api::new(client, "h", RateLimiter::unlimited(), metrics.clone());
    let mut informer = Informer::<Thing>::new(api, options);
    let dispatched: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = dispatched.clone();
    informer.on_change(move |change| {
        let sign = match change {
            Change::Added(_) => '+',
            Change::Updated { .. } => '~',
            Change::Deleted(_) => '-',
        };
        let meta = change.object().meta();
        log.lock().push(format!("{sign}{}@{}", meta.key.name, meta.resource_version));
    });
    let log = dispatched.clone();
    informer.on_position(move |position| log.lock().push(format!("={position}")));
    let (store, ready, relist, read_barrier) =
        (informer.store(), informer.ready(), informer.relist(), informer.read_barrier());
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(informer.run(shutdown.clone()));
    World { requests, dispatched, store, metrics, ready, relist, read_barrier, shutdown, running }
}

impl World {
    /// The calls of the handlers since the last check, as text.
    fn dispatched(&self) -> Vec<String> {
        std::mem::take(&mut *self.dispatched.lock())
    }

    /// The requests since the start, without the parameters that every watch has.
    fn requests(&self) -> Vec<String> {
        let short = |text: &str| {
            text.trim_start_matches("/apis/test.io/v1/things?")
                .replace("watch=true&allowWatchBookmarks=true&", "watch ")
                .replace("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "list")
        };
        self.requests.lock().iter().map(|(_, request)| short(request)).collect()
    }

    /// The times of the requests since the start, in milliseconds.
    fn times(&self) -> Vec<u128> {
        self.requests.lock().iter().map(|(at, _)| at.as_millis()).collect()
    }

    fn names(&self) -> Vec<String> {
        self.store.all().iter().map(|thing| thing.meta.key.name.to_string()).collect()
    }

    fn counted(&self, reason: &str) -> bool {
        let line = format!(
            "windlass_informer_breaks_total{{group=\"test.io\",reason=\"{reason}\",resource=\"things\"}}"
        );
        self.metrics.render().contains(&line)
    }
}

fn line(kind: &str, object: Value) -> Step {
    Step::Send(format!("{}\n", json!({"type": kind, "object": object})).into_bytes())
}

fn added(name: &str, version: u64) -> Step {
    line("ADDED", json_of(name, name, version))
}

fn modified(name: &str, version: u64) -> Step {
    line("MODIFIED", json_of(name, name, version))
}

fn deleted(name: &str, version: u64) -> Step {
    line("DELETED", json_of(name, name, version))
}

fn bookmark(version: u64) -> Step {
    line("BOOKMARK", json!({"metadata": {"resourceVersion": version.to_string()}}))
}

/// The bookmark that ends a streaming list.
fn complete(version: u64) -> Step {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    line("BOOKMARK", json!({"metadata": metadata}))
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "m"})
}

fn refused() -> Answer {
    Answer::Status(422, status(422, "Invalid"))
}

fn page(version: u64, names: &[(&str, u64)], next: &str) -> Answer {
    let items: Vec<Value> = names.iter().map(|(name, version)| json_of(name, name, *version)).collect();
    Answer::Page(json!({
        "kind": "ThingList",
        "metadata": {"resourceVersion": version.to_string(), "continue": next},
        "items": items,
    }))
}
