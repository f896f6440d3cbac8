//! Watches: resumed, broken, silent, and how they are reported.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_watch_that_the_server_ends_is_resumed_at_the_last_position_without_delay() {
    let steps = [vec![complete(10)], bookmarks(20, 15), vec![Step::End]].concat();
    let world = start(vec![Answer::Stream(steps), Answer::Stream(vec![added("a", 25)])]);
    tokio::time::sleep(301 * S).await;
    assert_eq!(world.requests(), ["watch list", "watch resourceVersion=20"]);
    assert_eq!(world.times(), [0, 300_000]);
    assert_eq!(world.dispatched(), ["=10", "=20", "+a@25", "=25"]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_is_resumed_and_no_change_is_reported_twice() {
    let world = start(vec![
        Answer::Stream(vec![added("a", 5), complete(10), added("b", 11), Step::Break]),
        Answer::Stream(vec![added("b", 11), added("c", 12)]),
    ]);
    tokio::time::sleep(5 * S).await;
    assert_eq!(world.requests(), ["watch list", "watch resourceVersion=11"]);
    assert_eq!(world.dispatched(), ["+a@5", "=10", "+b@11", "=11", "+c@12", "=12"]);
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

/// A change 1 s after the connection of a watch has frozen is seen within 45 s, however long the watch has lasted.
async fn check_frozen(before: Vec<Answer>, frozen_at: Duration) {
    let mut script = before;
    // The next watch goes over a connection that was idle when all froze; the one after it over a new one.
    script.extend([Answer::Nothing, Answer::Stream(vec![added("a", 25)])]);
    let world = start(script);
    tokio::time::sleep(frozen_at + 45 * S).await;
    assert_eq!(world.names(), ["a"], "{:?} at {:?}", world.requests(), world.times());
    assert_eq!(
        world.metrics.render().matches("lists_total{group=\"test.io\",resource=\"things\"} 1").count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_connection_relays_nothing_is_replaced_within_45_seconds() {
    check_frozen(vec![Answer::Stream(vec![complete(10)])], Duration::ZERO).await;
    let busy = [vec![complete(10)], bookmarks(20, 15)].concat();
    check_frozen(vec![Answer::Stream(busy)], 300 * S).await;
    // A kind that has been quiet for a minute; its watch freezes as soon as it has begun, or after its last bookmark.
    let quiet = |steps| vec![Answer::Stream(vec![complete(10)]), Answer::Stream(steps)];
    check_frozen(quiet(vec![]), 30 * S).await;
    check_frozen(quiet(vec![Step::Wait(23 * S), bookmark(20)]), 53 * S).await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_kind_costs_a_small_request_each_25_seconds_and_no_list_and_no_alarm() {
    let piece = || Answer::Stream(vec![Step::Wait(23 * S), bookmark(20), Step::Wait(2 * S), Step::End]);
    let mut script = vec![Answer::Stream(vec![complete(10)])];
    script.extend((0..40).map(|_| piece()));
    let world = start(script);
    tokio::time::sleep(600 * S).await;
    let requests = world.requests();
    assert!((20..=25).contains(&requests.len()), "{} requests in ten minutes", requests.len());
    assert_eq!(requests[..3], ["watch list", "watch resourceVersion=10", "watch resourceVersion=20"]);
    assert!(!world.metrics.render().contains("windlass_informer_breaks_total{"));
    assert_eq!(world.dispatched(), ["=10", "=20"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_outlives_its_end_is_counted_as_silent_and_resumed_at_once() {
    let busy = [vec![complete(10)], bookmarks(20, 40)].concat();
    let world = start(vec![Answer::Stream(busy)]);
    tokio::time::sleep(610 * S).await;
    assert_eq!(world.requests()[..2], ["watch list", "watch resourceVersion=20"]);
    let resumed = world.times()[1];
    assert!((305_000..=605_000).contains(&resumed), "{resumed}");
    assert!(world.counted("silent"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_in_which_something_happens_again_is_watched_for_long_again() {
    let world = start(vec![
        Answer::Stream(vec![complete(10)]),
        Answer::Stream(vec![Step::Wait(5 * S), added("a", 12), Step::Wait(20 * S), Step::End]),
        Answer::Stream(bookmarks(20, 10)),
    ]);
    tokio::time::sleep(200 * S).await;
    assert_eq!(
        world.requests(),
        ["watch list", "watch resourceVersion=10", "watch resourceVersion=12"],
        "{:?}",
        world.times()
    );
}

#[tokio::test(start_paused = true)]
async fn an_informer_without_the_server_for_a_minute_is_not_ready_and_reports_why() {
    let mut script = vec![Answer::Stream(vec![complete(10)])];
    script.extend(vec![Answer::Status(503, json!({})); 8]);
    script.push(Answer::Stream(vec![]));
    let world = start(script);
    assert!(world.ready.check().is_err(), "nothing is listed yet");
    tokio::time::sleep(59 * S).await;
    assert_eq!(world.ready.check(), Ok(()), "the last answer was 59 s ago");
    tokio::time::sleep(46 * S).await;
    let why = world.ready.check().unwrap_err();
    assert!(why.starts_with("the API server has been out of reach for ") && why.contains("503"), "{why}");
    tokio::time::sleep(120 * S).await;
    assert_eq!(world.ready.check(), Ok(()), "{:?}", world.times());
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
async fn an_unreachable_server_is_retried_with_growing_jittered_delays() {
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
async fn a_watch_is_opened_no_sooner_than_the_server_asks_for() {
    let mut busy = status(429, "TooManyRequests");
    busy["details"] = json!({"retryAfterSeconds": 20});
    let world = start(vec![Answer::Status(429, busy), Answer::Stream(vec![complete(10)])]);
    tokio::time::sleep(40 * S).await;
    assert_eq!(world.times(), [0, 20_000]);
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_may_list_and_not_watch_lists_again_and_again() {
    let no = Answer::Status(403, status(403, "Forbidden"));
    let world =
        start(vec![no.clone(), page(30, &[("a", 5)], ""), no.clone(), page(40, &[("b", 35)], ""), no]);
    tokio::time::sleep(2 * S).await;
    let again = "resourceVersion=30&resourceVersionMatch=NotOlderThan";
    assert_eq!(world.requests()[..4], ["watch list", "limit=500", "watch resourceVersion=30", again]);
    assert_eq!(world.dispatched(), ["+a@5", "=30", "+b@35", "-a@5", "=40"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_for_the_cache_runs_as_soon_as_a_bookmark_shows_the_version() {
    let script = vec![Answer::Stream(vec![complete(10), Step::Wait(7 * S), bookmark(50)])];
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    let service = tower::service_fn(move |_: Request<Body>| {
        let answer = script.lock().pop_front().unwrap_or(Answer::Stream(Vec::new()));
        async move { Ok::<_, Infallible>(answer.respond()) }
    });
    let metrics = Metrics::new();
    let api = Api::new(kube::Client::new(service, "d"), "h", RateLimiter::unlimited(), metrics.clone());
    let mut informer = Informer::<Thing>::new(api, InformerOptions::default());
    let queue = WorkQueue::new("test", &metrics);
    let parked_keys = ParkedKeys::new(queue.clone());
    let woken = parked_keys.clone();
    informer.on_position(move |position| woken.reached(THINGS, position));
    let caches = Caches::default().with(informer.store());
    let ready = informer.ready();
    tokio::spawn(informer.run(CancellationToken::new()));
    assert!(ready.wait().await);

    let expectations = Expectations::new(metrics.clone());
    expectations.expect_write(&uid("o"), THINGS, 50);
    let (planned, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let log = planned.clone();
    queue.add("owner");
    tokio::spawn(run_workers(queue, 1, move |key| {
        let (log, parked_keys) = (log.clone(), parked_keys.clone());
        let (expectations, caches) = (expectations.clone(), caches.clone());
        async move {
            match expectations.check(&uid("o"), &caches, Instant::now()) {
                Freshness::Fresh => log.lock().push(start.elapsed()),
                Freshness::Behind(behind) => {
                    parked_keys.park(&key, &behind, &caches);
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
async fn an_informer_ends_only_at_the_shutdown() {
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
