//! Several daemons, one API server, virtual time: one acts at a time despite any fault, and another
//! takes over in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use windlass::clock::Clock;
use windlass::metrics::Metrics;
use windlass::runtime::events::EventRecorder;
use windlass::runtime::leader_election::fence::{Fence, fence};
use windlass::runtime::leader_election::history::OnSetBack;
use windlass::runtime::leader_election::lease::{Election, Tools, Watchdog};
use windlass::runtime::{Api, RateLimiter, request};
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Daemon, tag};
use windlass_testkit::election::{A, B, C, LEASE, MS, Rig, S, acts, ends, leads, led_by_a, options};

/// Whether this is a write of the Lease by `agent`.
fn writes_lease(request: &RequestInfo, agent: &str) -> bool {
    request.user_agent == agent && request.kind == "Lease" && request.verb != "get"
}

async fn get(daemon: &Daemon, path: &str) -> (u16, String) {
    let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
    let response = daemon.http.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (code, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test(start_paused = true)]
async fn one_of_three_acts_and_the_others_only_watch() {
    let rig = Rig::new().await;
    let daemons = [rig.start(A, 1), rig.start(B, 2), rig.start(C, 3)];
    rig.cluster.create(deployment("web").replicas(3)).await;
    rig.cluster.rolled_out("web").await;
    tokio::time::sleep(60 * S).await;
    let leader = rig.holder();
    assert!(rig.acts().iter().all(|sent| sent.agent == leader), "H4: {:?}", rig.acts());
    rig.one_at_a_time();
    assert_eq!(rig.cluster.pods_created(), 3);
    let names = ["a", "b", "c"];
    for (daemon, name) in daemons.iter().zip(names) {
        let (code, text) = get(daemon, "/readyz?verbose").await;
        assert_eq!(code, 200, "a standby is ready: {text}");
        assert!(text.contains("[+]leaderElection ok"), "{text}");
        assert_eq!(leads(daemon), name == leader);
    }
    let events = rig.cluster.sandbox.objects("Event");
    let event = events.iter().find(|event| event["reason"] == "LeaderElection").expect("an event says so");
    assert_eq!(event["message"], format!("{leader} became leader"));
    assert_eq!(
        (&event["involvedObject"]["kind"], &event["involvedObject"]["namespace"]),
        (&json!("Lease"), &json!("kube-system"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_crashed_leader_is_replaced_after_the_lease_duration_and_one_retry_period() {
    for phase in 0..6 {
        let (rig, a, _b, _unrest) = led_by_a(|_, _| FaultDecision::Proceed).await;
        tokio::time::sleep(20 * S + 340 * MS * phase).await;
        let renewed = rig.sent().into_iter().rfind(|sent| sent.lease).unwrap().at;
        let crashed = rig.start.elapsed();
        a.kill();
        let took_over = acts(&rig, 30, "b").await;
        assert!(took_over - crashed <= 17 * S + 50 * MS, "H4: {:?}", took_over - crashed);
        assert!(took_over - renewed >= 15 * S, "not before the lease has ended: {:?}", took_over - renewed);
        rig.one_at_a_time();
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_acts_within_a_second_on_changes_made_without_a_leader() {
    let rig = Rig::new().await;
    let a = rig.start(A, 1);
    rig.until(5, "a leads", |rig| rig.holder() == "a").await;
    let _b = rig.start(B, 2);
    rig.cluster.create(deployment("web").replicas(2)).await;
    rig.cluster.rolled_out("web").await;
    a.kill();
    rig.cluster.set_image("web", "v2").await;
    rig.cluster.create(deployment("late").replicas(1)).await;
    rig.until(20, "b leads", |rig| rig.holder() == "b").await;
    let elected = rig.start.elapsed();
    assert!(acts(&rig, 5, "b").await <= elected + S);
    rig.cluster.rolled_out("web").await;
    rig.cluster.rolled_out("late").await;
    assert_eq!(rig.cluster.pods_created(), 5);
    rig.one_at_a_time();
}

#[tokio::test(start_paused = true)]
async fn slow_or_unanswered_renewals_do_not_lose_the_leadership() {
    for fault in [
        FaultDecision::DelayReply(4 * S),
        FaultDecision::Delay(4 * S),
        FaultDecision::LoseReply,
        FaultDecision::LoseRequest,
    ] {
        let (count, slow) = (AtomicUsize::new(0), fault.clone());
        let (rig, a, _b, _unrest) = led_by_a(move |request, at| {
            let often = || count.fetch_add(1, Ordering::Relaxed) % 3 != 0;
            if at > 5 * S && writes_lease(request, A) && often() {
                slow.clone()
            } else {
                FaultDecision::Proceed
            }
        })
        .await;
        tokio::time::sleep(60 * S).await;
        assert_eq!(rig.holder(), "a", "{fault:?}");
        assert_eq!(rig.lease()["spec"]["leaseTransitions"], 0, "{fault:?}");
        let late = rig.acts().into_iter().filter(|sent| sent.at > 50 * S).count();
        assert!(late > 0 && rig.acts().iter().all(|sent| sent.agent == "a"), "{fault:?}");
        rig.one_at_a_time();
        let slow_path = a.metrics.render();
        let exercised = slow_path.contains("leader_election_slowpath_total{name=\"windlass\"}");
        assert!(
            exercised || matches!(fault, FaultDecision::DelayReply(_) | FaultDecision::Delay(_)),
            "{slow_path}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_another_starts() {
    let refused =
        FaultDecision::Refuse { code: 500, message: "disk is slow".into(), reason: "InternalError".into() };
    for fault in [
        FaultDecision::LoseRequest,
        FaultDecision::Delay(40 * S),
        FaultDecision::DelayReply(40 * S),
        FaultDecision::LoseReply,
        refused,
    ] {
        let broken = fault.clone();
        let (rig, a, _b, _unrest) = led_by_a(move |request, at| {
            // Only writes of the Lease have the fault: all other requests of `a` would arrive.
            let lease = request.user_agent == A && request.kind == "Lease";
            if at > 30 * S && lease { broken.clone() } else { FaultDecision::Proceed }
        })
        .await;
        let error = ends(a).await;
        assert!(error.contains("leader election lost") && error.contains("kube-system/windlass"), "{error}");
        let last = rig.acts().into_iter().rfind(|sent| sent.agent == "a").unwrap().at;
        assert!(last > 35 * S, "it acts until the deadline: {last:?}");
        let first = acts(&rig, 60, "b").await;
        assert!(first > last + 4 * S, "{fault:?}: {last:?} {first:?}");
        tokio::time::sleep(10 * S).await;
        rig.one_at_a_time();
    }
}

#[tokio::test(start_paused = true)]
async fn writes_in_flight_are_cancelled_when_the_leadership_ends() {
    let ended = Arc::new(AtomicBool::new(false));
    let seen = ended.clone();
    let (rig, a, _b, _unrest) = led_by_a(move |request, at| match request.kind {
        "Lease" if request.user_agent == A && at > 30 * S => FaultDecision::LoseRequest,
        // Carried out at once, answered only when `a` should have hung up long since.
        "Pod" | "ReplicaSet" if request.user_agent == A && at > 37 * S && request.verb != "watch" => {
            seen.store(true, Ordering::Relaxed);
            FaultDecision::DelayReply(25 * S)
        }
        _ => FaultDecision::Proceed,
    })
    .await;
    let error = ends(a).await;
    assert!(error.contains("not renewed within 10s"), "{error}");
    assert!(ended.load(Ordering::Relaxed), "writes were under way");
    let renewed = rig.sent().into_iter().rfind(|sent| sent.lease && sent.arrived && sent.agent == "a");
    assert!(rig.start.elapsed() <= renewed.unwrap().at + 10 * S + 50 * MS, "it ended at its deadline");
    rig.one_at_a_time();
}

#[tokio::test(start_paused = true)]
async fn an_api_server_outage_of_a_minute_costs_only_the_leadership() {
    let (rig, a, _b, _unrest) = led_by_a(|request, at| {
        let away = (30 * S..90 * S).contains(&at) && request.user_agent.starts_with("candidate-");
        if away { FaultDecision::LoseRequest } else { FaultDecision::Proceed }
    })
    .await;
    tokio::time::sleep(30 * S).await;
    rig.cluster.sandbox.break_watches();
    assert!(ends(a).await.contains("leader election lost"));
    let again = rig.start(C, 3); // As the kubelet would.
    let first = acts(&rig, 120, "b").await;
    assert!((90 * S..97 * S).contains(&first), "{first:?}");
    tokio::time::sleep(60 * S).await;
    rig.one_at_a_time();
    assert!(!leads(&again) && rig.acts().iter().all(|sent| sent.agent != "c"));
}

#[tokio::test(start_paused = true)]
async fn constant_edits_of_the_lease_are_kept_and_do_not_cost_the_leadership() {
    let rig = Rig::new().await;
    let namespaces = rig.cluster.sandbox.objects("Namespace");
    let owner = namespaces.iter().find(|namespace| namespace["metadata"]["name"] == "kube-system").unwrap();
    let owner = owner["metadata"]["uid"].clone();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "windlass", "annotations": {"note": "mine"},
                     "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": owner}]},
        "spec": {"strategy": "OldestEmulationVersion"},
    });
    rig.cluster.call(Method::POST, LEASE.strip_suffix("/windlass").unwrap(), &lease).await;
    let a = rig.start(A, 1);
    let _b = rig.start(B, 2);
    rig.until(5, "a leads", |rig| rig.holder() == "a").await;
    for n in 0..100 {
        rig.cluster.call(Method::PATCH, LEASE, &json!({"metadata": {"labels": {"n": n.to_string()}}})).await;
        tokio::time::sleep(500 * MS).await;
    }
    let lease = rig.lease();
    assert_eq!((rig.holder().as_str(), &lease["metadata"]["labels"]["n"]), ("a", &json!("99")));
    assert_eq!(lease["metadata"]["annotations"]["note"], "mine");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], owner);
    assert_eq!(lease["spec"]["strategy"], "OldestEmulationVersion");
    assert!(a.metrics.render().contains("leader_election_slowpath_total{name=\"windlass\"}"));
    rig.one_at_a_time();
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_is_overwritten_ends_and_names_the_new_holder() {
    let (rig, a, _b, _unrest) = led_by_a(|_, _| FaultDecision::Proceed).await;
    let patch = json!({"spec": {"holderIdentity": "kubectl", "leaseDurationSeconds": 30}});
    rig.cluster.call(Method::PATCH, LEASE, &patch).await;
    let taken = rig.start.elapsed();
    let error = ends(a).await;
    assert!(error.contains("kubectl holds it now"), "{error}");
    assert!(rig.start.elapsed() <= taken + 2 * S + 50 * MS, "noticed at the next renewal");
    let first = acts(&rig, 60, "b").await;
    assert!(first >= taken + 30 * S, "the other candidate has the lease duration that it claimed: {first:?}");
    rig.one_at_a_time();
}

#[tokio::test(start_paused = true)]
async fn two_candidates_at_the_same_moment_elect_one() {
    for seed in 0..6 {
        let rig = Rig::with(|request, _| match request.kind {
            // Both read that there is none before either can create it.
            "Lease" if request.verb == "get" => FaultDecision::DelayReply(300 * MS),
            _ => FaultDecision::Proceed,
        })
        .await;
        let daemons = [rig.start(A, seed), rig.start(B, seed + 1), rig.start(C, seed + 2)];
        let _unrest = rig.unrest().await;
        tokio::time::sleep(10 * S).await;
        assert_eq!(daemons.iter().filter(|daemon| leads(daemon)).count(), 1);
        assert_eq!(rig.lease()["spec"]["leaseTransitions"], 0);
        rig.one_at_a_time();
    }
}

/// One election without a daemon around it.
fn election(rig: &Rig, agent: &'static str) -> (Election, Fence, Watchdog) {
    let api = |agent| {
        let client = kube::Client::new(tag(rig.cluster.sandbox.router(), agent), "default");
        Api::new(client, "sandbox", RateLimiter::unlimited(), Metrics::new())
    };
    let (control, fence) = fence();
    let clock: Clock = rig.cluster.clock.clone();
    let (recorder, _) = EventRecorder::new(api(agent), clock.clone(), 1);
    let on_set_back = OnSetBack { call: Box::new(|| {}), lost_history: Default::default() };
    let tools = Tools { api: api(agent), clock, recorder, control, seed: 1, on_set_back };
    let election = Election::new(&options(agent), tools);
    let watchdog = Watchdog::new(fence.clone(), &election, &options(agent));
    (election, fence, watchdog)
}

/// Writes ten times a second through a fence, for ever.
fn writer(rig: &Rig, agent: &'static str, fence: Fence) -> tokio_util::task::AbortOnDropHandle<()> {
    let client = kube::Client::new(tag(rig.cluster.sandbox.router(), agent), "default");
    let api = Api::new(client, "sandbox", RateLimiter::unlimited(), Metrics::new()).fenced(fence);
    tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let body = json!({"metadata": {"generateName": "x-"}});
            let request = request::post("/api/v1/namespaces/shop/configmaps", &[], &body).unwrap();
            let _ = api.call::<Value>(request).await; // The fence may be shut.
            tokio::time::sleep(100 * MS).await;
        }
    }))
}

/// Runs `task` only while `stalled` is false, as if its thread hung otherwise.
async fn gated<T>(task: impl Future<Output = T>, stalled: Arc<AtomicBool>) -> T {
    let mut task = std::pin::pin!(task);
    loop {
        if stalled.load(Ordering::Relaxed) {
            tokio::time::sleep(10 * MS).await;
            continue;
        }
        tokio::select! {
            ended = &mut task => return ended,
            () = tokio::time::sleep(10 * MS) => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_workers_stop_at_the_fence_without_a_signal() {
    let rig = Rig::with(|request, at| {
        let lease = request.user_agent == A && request.kind == "Lease";
        if at > 20 * S && lease { FaultDecision::LoseRequest } else { FaultDecision::Proceed }
    })
    .await;
    let (controllers, _) = rig.cluster.controllers(1, A, Some(options(A)));
    let stalled = Arc::new(AtomicBool::new(false));
    // The future that would end the workers hangs; they, and the events, are tasks of their own and go on.
    let run = controllers.run(CancellationToken::new(), S);
    let run = tokio::spawn(gated(run, stalled.clone()));
    let _unrest = rig.unrest().await;
    rig.until(5, "a acts", |rig| rig.acts().iter().any(|sent| sent.what.contains("Pod"))).await;
    tokio::time::sleep(10 * S).await;
    stalled.store(true, Ordering::Relaxed);
    tokio::time::sleep(30 * S).await;
    let last = rig.acts().into_iter().next_back().unwrap().at;
    assert!((25 * S..31 * S).contains(&last), "{last:?}");
    rig.one_at_a_time();
    stalled.store(false, Ordering::Relaxed);
    assert!(run.await.unwrap().unwrap_err().to_string().contains("leader election lost"));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_election_stops_the_writes_too_and_notices_its_loss_afterwards() {
    let rig = Rig::new().await;
    let (first, a_fence, watchdog) = election(&rig, A);
    let (second, b_fence, _) = election(&rig, B);
    let _writers = [writer(&rig, A, a_fence), writer(&rig, B, b_fence)];
    let stalled = Arc::new(AtomicBool::new(false));
    let run = tokio::spawn(gated(first.run(CancellationToken::new()), stalled.clone()));
    rig.until(5, "a leads", |rig| rig.holder() == "a").await;
    let _second = tokio::spawn(second.run(CancellationToken::new()));
    tokio::time::sleep(20 * S).await;
    assert_eq!(watchdog.check(), Ok(()));
    stalled.store(true, Ordering::Relaxed);
    let first = acts(&rig, 30, "b").await;
    let last = rig.acts().into_iter().rfind(|sent| sent.agent == "a").unwrap().at;
    assert!(first >= last + 4 * S, "{last:?} {first:?}");
    tokio::time::sleep(10 * S).await;
    assert_eq!(watchdog.check(), Ok(()), "within the tolerance");
    tokio::time::sleep(20 * S).await;
    assert!(
        watchdog.check().unwrap_err().contains("kube-system/windlass"),
        "a wedged leader fails its check"
    );
    stalled.store(false, Ordering::Relaxed);
    let lost = run.await.unwrap().expect_err("it wakes up to its loss");
    assert!(lost.to_string().contains("not renewed within 10s"), "{lost}");
    assert_eq!(watchdog.check(), Ok(()), "it does not believe to lead any more");
    rig.one_at_a_time();
}

#[tokio::test(start_paused = true)]
async fn an_election_won_with_a_lost_reply_is_released_at_a_stop() {
    for fault in [FaultDecision::LoseReply, FaultDecision::DelayReply(3 * S)] {
        let rig = Rig::with(move |request, _| {
            if writes_lease(request, A) && request.verb == "create" {
                fault.clone()
            } else {
                FaultDecision::Proceed
            }
        })
        .await;
        let (election, fence, _) = election(&rig, A);
        let stop = CancellationToken::new();
        let run = tokio::spawn(election.run(stop.clone()));
        rig.until(5, "the lease is ours", |rig| rig.holder() == "a").await;
        stop.cancel();
        let election = run.await.unwrap().unwrap();
        assert!(election.release().await);
        assert_eq!(rig.holder(), "");
        assert!(fence.check().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn candidates_that_may_not_write_or_read_the_lease_are_not_ready() {
    for (verb, code) in [("update", 403), ("update", 401), ("create", 403), ("create", 404), ("get", 403)] {
        let rig = Rig::with(move |request, _| {
            if request.kind != "Lease" || request.verb != verb {
                return FaultDecision::Proceed;
            }
            FaultDecision::Refuse { code, message: "refused".into(), reason: "Forbidden".into() }
        })
        .await;
        if verb == "update" {
            // A Lease that nobody holds.
            let lease = json!({"metadata": {"name": "windlass", "namespace": "kube-system"}, "spec": {}});
            let (path, _) = LEASE.rsplit_once('/').unwrap();
            rig.cluster.call(Method::POST, path, &lease).await;
        }
        let daemons = [rig.start(A, 1), rig.start(B, 2)];
        tokio::time::sleep(70 * S).await;
        for daemon in &daemons {
            let (status, text) = get(daemon, "/readyz").await;
            assert_eq!(status, 500, "{verb} {code}: {text}");
            assert!(text.contains("[-]lease failed: ") && text.contains("refused"), "{verb} {code}: {text}");
            assert_eq!(get(daemon, "/healthz").await.0, 200, "a restart would not help");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_forgotten_once_another_candidate_leads() {
    let rig = Rig::with(|request, _| match (request.kind, request.verb) {
        ("Lease", "create" | "update") if request.user_agent == B => {
            FaultDecision::Refuse { code: 403, message: "refused".into(), reason: "Forbidden".into() }
        }
        _ => FaultDecision::Proceed,
    })
    .await;
    let standby = rig.start(B, 2);
    tokio::time::sleep(30 * S).await;
    let _leader = rig.start(A, 1);
    tokio::time::sleep(120 * S).await;
    assert_eq!(rig.holder(), "a");
    assert_eq!(get(&standby, "/readyz").await.0, 200);
}
