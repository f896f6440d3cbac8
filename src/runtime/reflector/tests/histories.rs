//! Random histories through random faults.

use super::*;

/// The history of the server: one object each second. `(time, version, kind, JSON)`.
type History = Vec<(Duration, u64, &'static str, Value)>;

/// Builds a history of random steps: each names an object, which is created, changed or deleted.
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

/// The server's answer to a request at `now`, with a fault after some steps.
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

    /// Whatever fails on the way, in the end the store shows what exists, and so does the sum of the
    /// changes that the handlers got.
    #[test]
    fn after_any_faults_the_store_and_the_reported_changes_agree_with_the_server(
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
            let api = Api::new(kube::Client::new(service, "d"), "h", RateLimiter::unlimited(), Metrics::new());
            let mut informer = Informer::<Thing>::new(api, InformerOptions { seed, ..InformerOptions::default() });
            let sum = Arc::new(Mutex::new(std::collections::BTreeMap::new()));
            let dispatched = sum.clone();
            informer.on_change(move |change| {
                let meta = change.object().meta();
                let (name, is) = (meta.key.name.to_string(), (meta.uid.clone(), meta.resource_version));
                let mut dispatched = dispatched.lock();
                let was = match change {
                    Change::Deleted(_) => dispatched.remove(&name),
                    _ => dispatched.insert(name, is.clone()),
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
            let dispatched: Vec<(String, u64)> = sum.lock().values().map(|(uid, version)| (uid.to_string(), *version)).collect();
            assert_eq!(dispatched, truth);
            assert!(store.position() >= history.last().unwrap().1);
        });
    }
}
