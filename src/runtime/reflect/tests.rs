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
use crate::runtime::expectations::{Caches, Expectations, Freshness};
use crate::runtime::fixture::{THINGS, Thing, json_of, key, uid};
use crate::runtime::informer::{Informer, Ready, Relist};
use crate::runtime::limit::Limiter;
use crate::runtime::store::{Change, Store};
use crate::runtime::waiters::Waiters;
use crate::runtime::worker::{Next, SyncFailure, WorkQueue, run_workers};

const S: Duration = Duration::from_secs(1);

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
            Answer::Stream(steps) => (200, streaming(steps)),
            Answer::Status(code, value) => (code, once(value)),
            Answer::Page(value) => (200, once(value)),
        };
        Response::builder().status(code).body(body).unwrap()
    }
}

/// An informer at work, with the server's log and what the handlers were told.
struct World {
    requests: Arc<Mutex<Vec<(Duration, String)>>>,
    told: Arc<Mutex<Vec<String>>>,
    store: Arc<Store<Thing>>,
    metrics: Arc<Metrics>,
    ready: Ready,
    relist: Relist,
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
        async move { Ok::<_, Infallible>(answer.respond()) }
    });
    let metrics = Metrics::new();
    let client = kube::Client::new(service, "default");
    let api = Api::new(client, "h", Limiter::unlimited(), metrics.clone());
    let mut informer = Informer::<Thing>::new(api, options);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = told.clone();
    informer.on_change(move |change| {
        let sign = match change {
            Change::Added(_) => '+',
            Change::Updated { .. } => '~',
            Change::Deleted(_) => '-',
        };
        let meta = change.object().meta();
        log.lock().push(format!("{sign}{}@{}", meta.key.name, meta.resource_version));
    });
    let log = told.clone();
    informer.on_position(move |position| log.lock().push(format!("={position}")));
    let (store, ready, relist) = (informer.store(), informer.ready(), informer.relist());
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(informer.run(shutdown.clone()));
    World { requests, told, store, metrics, ready, relist, shutdown, running }
}

impl World {
    /// What the handlers were told since the last look, in words.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock())
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

#[tokio::test(start_paused = true)]
async fn a_streaming_list_fills_the_store_and_the_same_stream_goes_on_as_a_watch() {
    let world = start(vec![Answer::Stream(vec![
        added("b", 7),
        added("a", 5),
        Step::Wait(S),
        complete(10),
        Step::Wait(S),
        modified("a", 12),
        deleted("b", 13),
        bookmark(20),
    ])]);
    tokio::time::sleep(S / 2).await;
    assert_eq!(world.told(), ["+b@7", "+a@5"]);
    assert!(!world.ready.is_ready() && !world.store.is_synced());
    assert!(world.ready.wait().await);
    assert_eq!(world.told(), ["=10"]);
    tokio::time::sleep(2 * S).await;
    assert_eq!(world.told(), ["~a@12", "=12", "-b@13", "=13", "=20"]);
    assert_eq!(world.requests(), ["watch list"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_the_server_ends_is_resumed_at_the_last_position_without_delay() {
    let world = start(vec![
        Answer::Stream(vec![complete(10), Step::Wait(300 * S), bookmark(20), Step::End]),
        Answer::Stream(vec![added("a", 25)]),
    ]);
    tokio::time::sleep(301 * S).await;
    assert_eq!(world.requests(), ["watch list", "watch resourceVersion=20"]);
    assert_eq!(world.times(), [0, 300_000]);
    assert_eq!(world.told(), ["=10", "=20", "+a@25", "=25"]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_is_resumed_and_nothing_is_told_twice() {
    let world = start(vec![
        Answer::Stream(vec![added("a", 5), complete(10), added("b", 11), Step::Break]),
        Answer::Stream(vec![added("b", 11), added("c", 12)]),
    ]);
    tokio::time::sleep(5 * S).await;
    assert_eq!(world.requests(), ["watch list", "watch resourceVersion=11"]);
    assert_eq!(world.told(), ["+a@5", "=10", "+b@11", "=11", "+c@12", "=12"]);
    assert!(world.counted("transport"));
    let wait = world.times()[1];
    assert!((800..=1601).contains(&wait), "{wait}");
}

#[tokio::test(start_paused = true)]
async fn a_line_cut_off_or_garbled_ends_the_watch_which_is_resumed() {
    for (bytes, end, reason) in [
        (&b"{\"type\":\"ADDED\",\"obj"[..], Step::End, "truncated"),
        (b"{\"type\":\"ADDED\",\"object\":{\"a\":\"\xff\"}}\n", Step::Wait(S), "malformed"),
        (b"<html>\n", Step::Wait(S), "malformed"),
    ] {
        let world = start(vec![
            Answer::Stream(vec![complete(10), Step::Send(bytes.to_vec()), end]),
            Answer::Stream(vec![added("a", 12)]),
        ]);
        tokio::time::sleep(5 * S).await;
        assert_eq!(world.requests(), ["watch list", "watch resourceVersion=10"], "{reason}");
        assert_eq!(world.names(), ["a"]);
        assert!(world.counted(reason), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_never_ends_breaks_the_watch_before_it_fills_the_memory() {
    let endless = vec![Step::Send(vec![b'x'; 1 << 20]); 40];
    let mut steps = vec![complete(10)];
    steps.extend(endless);
    let world = start(vec![Answer::Stream(steps), Answer::Stream(vec![added("a", 12)])]);
    tokio::time::sleep(5 * S).await;
    assert_eq!(world.names(), ["a"]);
    assert!(world.counted("too_long"));
}

#[tokio::test(start_paused = true)]
async fn either_form_of_410_leads_to_a_list_that_makes_up_for_missed_deletions() {
    let event = Answer::Stream(vec![line("ERROR", status(410, "Expired"))]);
    let answer = Answer::Status(410, status(410, "Expired"));
    let ahead = json!({"status": "Failure", "reason": "Timeout", "code": 504,
        "details": {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1}});
    for gone in [event, answer, Answer::Status(504, ahead)] {
        let world = start(vec![
            Answer::Stream(vec![added("a", 5), added("b", 6), complete(10), Step::Wait(2 * S), Step::End]),
            gone,
            Answer::Stream(vec![added("b", 6), added("c", 14), complete(20)]),
        ]);
        tokio::time::sleep(10 * S).await;
        assert_eq!(world.requests(), ["watch list", "watch resourceVersion=10", "watch list"]);
        assert_eq!(world.told(), ["+a@5", "+b@6", "=10", "+c@14", "-a@5", "=20"]);
        assert_eq!(world.times(), [0, 2000, 2000], "the list follows at once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_410_to_everything_is_asked_ever_more_slowly() {
    let mut script = vec![Answer::Stream(vec![complete(10), Step::Wait(2 * S), Step::End])];
    for _ in 0..50 {
        script.push(Answer::Status(410, status(410, "Gone")));
    }
    let world = start(script);
    tokio::time::sleep(300 * S).await;
    let requests = world.times().len();
    assert!((10..30).contains(&requests), "{requests} requests in five minutes");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed_in_pages_and_asked_only_once() {
    let world = start(vec![
        refused(),
        page(30, &[("a", 5), ("b", 6)], "two"),
        page(30, &[("c", 7)], ""),
        Answer::Stream(vec![added("d", 31), line("ERROR", status(410, "Expired"))]),
        page(40, &[("d", 31)], ""),
    ]);
    tokio::time::sleep(10 * S).await;
    assert_eq!(
        world.requests(),
        [
            "watch list",
            "limit=500",
            "limit=500&continue=two",
            "watch resourceVersion=30",
            "limit=500",
            "watch resourceVersion=40"
        ]
    );
    let told = world.told();
    assert_eq!(told, ["+a@5", "+b@6", "+c@7", "=30", "+d@31", "=31", "-a@5", "-b@6", "-c@7", "=40"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_the_wish_for_a_streaming_list_is_found_out() {
    let world = start(vec![Answer::Stream(vec![added("a", 5)]), page(30, &[("a", 5)], "")]);
    tokio::time::sleep(29 * S).await;
    assert!(!world.ready.is_ready());
    tokio::time::sleep(2 * S).await;
    assert!(world.ready.is_ready());
    assert_eq!(world.requests(), ["watch list", "limit=500", "watch resourceVersion=30"]);
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_that_are_always_cut_off_give_way_to_pages() {
    let cut = Answer::Stream(vec![added("a", 5), Step::Break]);
    let world = start(vec![cut.clone(), cut.clone(), cut, page(30, &[("a", 5)], "")]);
    tokio::time::sleep(60 * S).await;
    assert_eq!(world.requests()[3..], ["limit=500", "watch resourceVersion=30"]);
    assert_eq!(world.told(), ["+a@5", "=30"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_asked_for_again_with_its_token() {
    let mut busy = status(429, "TooManyRequests");
    busy["details"] = json!({"retryAfterSeconds": 20});
    let world = start(vec![
        refused(),
        page(30, &[("a", 5)], "two"),
        Answer::Status(500, status(500, "InternalError")),
        Answer::Page(json!({"items": "what?"})),
        Answer::Status(429, busy),
        page(30, &[("b", 6)], ""),
    ]);
    tokio::time::sleep(60 * S).await;
    let again = "limit=500&continue=two";
    assert_eq!(world.requests()[1..6], ["limit=500", again, again, again, again]);
    assert!(world.times()[5] - world.times()[4] >= 20_000, "as the server wished");
    assert_eq!(world.names(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_on_the_way_begins_anew_and_at_last_comes_in_one_piece() {
    let gone = Answer::Status(410, status(410, "Expired"));
    let world = start(vec![
        refused(),
        page(30, &[("a", 5), ("gone", 6)], "two"),
        gone.clone(),
        page(40, &[("a", 5)], "two"),
        gone,
        page(50, &[("a", 5), ("b", 6)], ""),
    ]);
    tokio::time::sleep(60 * S).await;
    let requests = world.requests();
    assert_eq!(
        requests[1..],
        [
            "limit=500",
            "limit=500&continue=two",
            "limit=500",
            "limit=500&continue=two",
            "limit=0",
            "watch resourceVersion=50"
        ]
    );
    assert_eq!(world.told(), ["+a@5", "+gone@6", "+b@6", "-gone@6", "=50"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_be_silent_until_its_own_end_and_is_reopened_after_that() {
    let world = start(vec![Answer::Stream(vec![complete(10)])]);
    tokio::time::sleep(300 * S).await;
    assert_eq!(world.requests().len(), 1);
    tokio::time::sleep(310 * S).await;
    assert_eq!(world.requests(), ["watch list", "watch resourceVersion=10"]);
    assert!(world.counted("silent"));
}

#[tokio::test(start_paused = true)]
async fn one_unreadable_object_does_not_stall_the_others() {
    let mut broken = json_of("bad", "bad", 6);
    broken["spec"]["size"] = json!({"not": "a number"});
    let world = start(vec![Answer::Stream(vec![
        added("a", 5),
        line("ADDED", broken.clone()),
        complete(10),
        line("MODIFIED", broken),
        line("NEWS", json!({})),
        line("ADDED", json!("not even an object")),
        added("c", 12),
    ])]);
    tokio::time::sleep(S).await;
    assert_eq!(world.names(), ["a", "c"]);
    assert_eq!(world.requests().len(), 1);
    let text = world.metrics.render();
    let counter = "windlass_informer_undecodable_objects_total{group=\"test.io\",resource=\"things\"} 3";
    assert!(text.contains(counter), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_is_tried_again_with_growing_jittered_delays() {
    let world = start(vec![Answer::Status(503, json!({})); 12]);
    tokio::time::sleep(200 * S).await;
    let gaps: Vec<u128> = world.times().windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (at, gap) in gaps.iter().enumerate() {
        let least = (800u128 << at.min(10)).min(30_000);
        assert!((least..=(2 * least).min(30_000) + 1).contains(gap), "{gaps:?}");
    }
    assert!(gaps.len() >= 7, "{gaps:?}");
    assert!(!world.ready.is_ready());
}

#[tokio::test(start_paused = true)]
async fn who_may_list_and_not_watch_lists_again_and_again() {
    let no = Answer::Status(403, status(403, "Forbidden"));
    let world =
        start(vec![no.clone(), page(30, &[("a", 5)], ""), no.clone(), page(40, &[("b", 35)], ""), no]);
    tokio::time::sleep(2 * S).await;
    assert_eq!(world.requests()[..4], ["watch list", "limit=500", "watch resourceVersion=30", "limit=500"]);
    assert_eq!(world.told(), ["+a@5", "=30", "+b@35", "-a@5", "=40"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_for_the_cache_runs_as_soon_as_a_bookmark_says_so() {
    let script = vec![Answer::Stream(vec![complete(10), Step::Wait(7 * S), bookmark(50)])];
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    let service = tower::service_fn(move |_: Request<Body>| {
        let answer = script.lock().pop_front().unwrap_or(Answer::Stream(Vec::new()));
        async move { Ok::<_, Infallible>(answer.respond()) }
    });
    let metrics = Metrics::new();
    let api = Api::new(kube::Client::new(service, "d"), "h", Limiter::unlimited(), metrics.clone());
    let mut informer = Informer::<Thing>::new(api, InformerOptions::default());
    let queue = WorkQueue::new("test", &metrics);
    let waiters = Waiters::new(queue.clone());
    let woken = waiters.clone();
    informer.on_position(move |position| woken.reached(THINGS, position));
    let caches = Caches::default().with(informer.store());
    let ready = informer.ready();
    tokio::spawn(informer.run(CancellationToken::new()));
    assert!(ready.wait().await);

    let expectations = Expectations::new(metrics.clone());
    expectations.wrote(&uid("o"), THINGS, 50);
    let (planned, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let log = planned.clone();
    queue.add("owner");
    tokio::spawn(run_workers(queue, 1, move |key| {
        let (log, waiters) = (log.clone(), waiters.clone());
        let (expectations, caches) = (expectations.clone(), caches.clone());
        async move {
            match expectations.check(&uid("o"), &caches, Instant::now()) {
                Freshness::Fresh => log.lock().push(start.elapsed()),
                Freshness::Behind(behind) => {
                    waiters.park(&key, &behind, &caches);
                    return Ok(Next::After(behind.check_again));
                }
            }
            Ok::<_, Never>(Next::Settled)
        }
    }));
    tokio::time::sleep(60 * S).await;
    assert_eq!(*planned.lock(), [7 * S]);
}

#[derive(Debug)]
enum Never {}

impl std::fmt::Display for Never {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

impl SyncFailure for Never {
    fn label(&self) -> &'static str {
        match *self {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_older_than_the_cache_is_refused_until_the_server_insists() {
    let mut script = vec![
        Answer::Stream(vec![added("a", 50), complete(100), Step::Wait(2 * S), Step::End]),
        Answer::Status(410, status(410, "Gone")),
    ];
    for _ in 0..4 {
        script.push(Answer::Stream(vec![added("b", 7), complete(90)]));
    }
    let world = start(script);
    tokio::time::sleep(3 * S).await;
    assert_eq!((world.store.position(), world.names()), (100, vec!["a".into(), "b".into()]));
    tokio::time::sleep(60 * S).await;
    assert_eq!((world.store.position(), world.names()), (90, vec!["b".into()]), "restored from a backup");
    assert!(world.counted("stale_list"));
}

#[tokio::test(start_paused = true)]
async fn a_list_can_be_demanded_and_demands_that_come_together_are_one() {
    let world =
        start(vec![Answer::Stream(vec![added("a", 5), complete(10)]), Answer::Stream(vec![complete(20)])]);
    tokio::time::sleep(S).await;
    for _ in 0..3 {
        world.relist.demand();
    }
    tokio::time::sleep(S).await;
    assert_eq!(world.requests(), ["watch list", "watch list"]);
    assert_eq!(world.told(), ["+a@5", "=10", "-a@5", "=20"]);
}

#[tokio::test(start_paused = true)]
async fn namespace_and_selector_are_part_of_every_request() {
    let options = InformerOptions {
        namespace: Some("shop".into()),
        label_selector: Some("app=web,tier in (a,b)".into()),
        page_size: 2,
        ..InformerOptions::default()
    };
    let world = start_with(vec![refused(), page(30, &[], "")], options);
    tokio::time::sleep(S).await;
    let selector = "labelSelector=app%3Dweb%2Ctier%20in%20%28a%2Cb%29";
    for (_, request) in world.requests.lock().iter() {
        assert!(request.starts_with("/apis/test.io/v1/namespaces/shop/things?"), "{request}");
        assert!(request.ends_with(selector), "{request}");
    }
    assert_eq!(world.requests.lock().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_informer_ends_at_the_shutdown_and_at_no_other_time() {
    let world = start(vec![Answer::Stream(vec![complete(10)])]);
    tokio::time::sleep(3600 * S).await;
    assert!(!world.running.is_finished());
    world.shutdown.cancel();
    world.running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_always_ends_at_once_is_not_reopened_in_a_hot_loop() {
    let mut script = vec![Answer::Stream(vec![added("a", 5), complete(10), Step::End])];
    for version in 0..200 {
        script.push(Answer::Stream(vec![bookmark(20 + version), Step::End]));
    }
    let world = start(script);
    tokio::time::sleep(60 * S).await;
    let requests = world.times().len();
    assert!((30..=80).contains(&requests), "{requests} requests in a minute");
}

#[tokio::test(start_paused = true)]
async fn what_the_store_held_is_exported() {
    let world = start(vec![Answer::Stream(vec![added("a", 5), complete(10)])]);
    tokio::time::sleep(S).await;
    assert!(world.store.get(&key("a")).is_some());
    let text = world.metrics.render();
    for line in [
        "windlass_informer_objects{group=\"test.io\",resource=\"things\"} 1",
        "windlass_informer_lists_total{group=\"test.io\",resource=\"things\"} 1",
        "informer_store_resource_version{group=\"test.io\",name=\"windlass\",resource=\"things\",version=\"v1\"} 10",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

/// What happened at the server: one object each second. `(time, version, kind, JSON)`.
type History = Vec<(Duration, u64, &'static str, Value)>;

/// Makes a history of random wishes: each wish names an object, which is created, changed or deleted.
fn history(wishes: &[(u8, bool)]) -> History {
    let mut alive = std::collections::BTreeMap::<u8, u64>::new();
    let mut history = Vec::new();
    for (at, &(name, delete)) in wishes.iter().enumerate() {
        let version = 100 + 3 * at as u64;
        let kind = match alive.get(&name) {
            None => "ADDED",
            Some(_) if delete => "DELETED",
            Some(_) => "MODIFIED",
        };
        // The UID is the version of the creation, so that a name is used again for another object.
        let born = *alive.entry(name).or_insert(version);
        if kind == "DELETED" {
            alive.remove(&name);
        }
        let json = json_of(&format!("n{name}"), &format!("u{born}"), version);
        history.push((S * at as u32, version, kind, json));
    }
    history
}

/// The objects that exist after the changes up to `version`.
fn state(history: &History, version: u64) -> std::collections::BTreeMap<String, Value> {
    let mut state = std::collections::BTreeMap::new();
    for (_, _, kind, json) in history.iter().filter(|(_, at, ..)| *at <= version) {
        let name = json["metadata"]["name"].as_str().unwrap().to_owned();
        if *kind == "DELETED" {
            state.remove(&name)
        } else {
            state.insert(name, json.clone())
        };
    }
    state
}

/// What the server says to a request at `now`, with a fault after some steps.
fn answer(history: &History, query: &str, now: Duration, fault: Option<(u8, u8)>) -> Answer {
    let parameter = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
    };
    let current =
        history.iter().filter(|(at, ..)| *at <= now).map(|(_, version, ..)| *version).max().unwrap_or(99);
    let is_list = query.contains("sendInitialEvents");
    if parameter("watch").is_none() {
        let items: Vec<Value> = state(history, current).into_values().collect();
        return Answer::Page(json!({"metadata": {"resourceVersion": current.to_string()}, "items": items}));
    }
    let from = parameter("resourceVersion").map_or(current, |version| version.parse().unwrap());
    let mut steps = Vec::new();
    if is_list {
        steps.extend(state(history, current).into_values().map(|json| line("ADDED", json)));
        steps.push(complete(current));
    }
    let mut clock = now;
    for (at, version, kind, json) in history.iter().filter(|(_, version, ..)| *version > from) {
        steps.push(Step::Wait(at.saturating_sub(clock)));
        clock = clock.max(*at);
        steps.push(line(kind, json.clone()));
        if version % 2 == 0 {
            steps.push(bookmark(version + 1));
        }
    }
    match fault {
        None => {}
        Some((0, _)) if !is_list => return Answer::Status(410, status(410, "Gone")),
        Some((1, _)) => return Answer::Status(503, json!({})),
        Some((2, _)) if is_list => return Answer::Status(400, status(400, "BadRequest")),
        Some((kind, after)) => {
            steps.truncate(after.into());
            steps.push(match kind {
                3 => Step::End,
                4 => line("ERROR", status(410, "Expired")),
                5 => line("ERROR", status(500, "InternalError")),
                6 => Step::Send(b"{\"type\":\"MODIF".to_vec()),
                7 => Step::Send(b"\xff\xfe\n".to_vec()),
                _ => Step::Break,
            });
            steps.push(Step::End);
        }
    }
    Answer::Stream(steps)
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]

    /// Whatever breaks on the way, in the end the store shows what exists, and so does the sum of the
    /// changes that the handlers were told.
    #[test]
    fn after_any_faults_the_store_and_the_told_changes_agree_with_the_server(
        wishes in proptest::collection::vec((0..5u8, proptest::bool::ANY), 1..60),
        faults in proptest::collection::vec((0..9u8, 0..12u8), 0..12),
        seed in 0..1000u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let history = Arc::new(history(&wishes));
            let (server, begin) = (history.clone(), Instant::now());
            let faults = Arc::new(Mutex::new(VecDeque::from(faults)));
            let service = tower::service_fn(move |request: Request<Body>| {
                let query = request.uri().query().unwrap_or_default();
                let answer = answer(&server, query, begin.elapsed(), faults.lock().pop_front());
                async move { Ok::<_, Infallible>(answer.respond()) }
            });
            let api = Api::new(kube::Client::new(service, "d"), "h", Limiter::unlimited(), Metrics::new());
            let mut informer = Informer::<Thing>::new(api, InformerOptions { seed, ..InformerOptions::default() });
            let sum = Arc::new(Mutex::new(std::collections::BTreeMap::new()));
            let told = sum.clone();
            informer.on_change(move |change| {
                let meta = change.object().meta();
                let (name, is) = (meta.key.name.to_string(), (meta.uid.clone(), meta.resource_version));
                let mut told = told.lock();
                let was = match change {
                    Change::Deleted(_) => told.remove(&name),
                    _ => told.insert(name, is.clone()),
                };
                match change {
                    Change::Added(_) => assert!(was.is_none(), "added twice"),
                    Change::Updated { old, .. } => {
                        assert_eq!(was, Some((old.meta.uid.clone(), old.meta.resource_version)));
                        assert!(old.meta.resource_version < is.1 && old.meta.uid == is.0);
                    }
                    Change::Deleted(_) => assert_eq!(was.map(|was| was.0), Some(is.0)),
                }
            });
            let store = informer.store();
            let shutdown = CancellationToken::new();
            let running = tokio::spawn(informer.run(shutdown.clone()));
            tokio::time::sleep(S * 600).await;
            shutdown.cancel();
            running.await.unwrap();
            let truth: Vec<(String, u64)> = state(&history, u64::MAX).values().map(|json| {
                let meta = &json["metadata"];
                (meta["uid"].as_str().unwrap().to_owned(), meta["resourceVersion"].as_str().unwrap().parse().unwrap())
            }).collect();
            let stored: Vec<(String, u64)> =
                store.all().iter().map(|thing| (thing.meta.uid.to_string(), thing.meta.resource_version)).collect();
            assert_eq!(stored, truth);
            let told: Vec<(String, u64)> = sum.lock().values().map(|(uid, version)| (uid.to_string(), *version)).collect();
            assert_eq!(told, truth);
            assert!(store.position() >= history.last().unwrap().1);
        });
    }
}
