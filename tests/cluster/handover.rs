//! A leader that shuts down, in virtual time: what must have ended before another may lead, and when the lease is
//! released or left to expire.

use tokio::time::Instant;
use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::Daemon;
use windlass_testkit::election::{A, MS, Rig, S, Sent, acts, ends, leads, led_by_a, options};

#[tokio::test(start_paused = true)]
async fn a_clean_stop_releases_the_lease_within_the_retry_period_and_after_the_last_write() {
    for phase in 0..6 {
        let (rig, a, b, _unrest) = led_by_a(|_, _| FaultDecision::Proceed).await;
        tokio::time::sleep(5 * S + 340 * MS * phase).await;
        a.stop().await;
        let released = rig.sent().into_iter().find(|sent| sent.release).expect("the lease is released");
        let last = rig.acts().into_iter().rfind(|sent| sent.agent == "a").unwrap();
        assert!(last.at <= released.at, "released before the last write: {last:?} {released:?}");
        assert_eq!(rig.lease()["spec"]["leaseDurationSeconds"], 1);
        let took_over = acts(&rig, 10, "b").await - released.at;
        assert!(took_over <= 2 * S + 50 * MS, "H4: {took_over:?}");
        assert_eq!(rig.lease()["spec"]["leaseTransitions"], 1);
        tokio::time::sleep(5 * S).await;
        rig.one_at_a_time();
        let said = |what: &str| rig.cluster.sandbox.objects("Event").iter().any(|e| e["message"] == what);
        assert!(said("a stopped leading") && said("b became leader"));
        assert!(leads(&b));
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_stopped_ends_at_once_and_writes_nothing() {
    let (rig, _a, b, _unrest) = led_by_a(|_, _| FaultDecision::Proceed).await;
    tokio::time::sleep(5 * S).await;
    let before = Instant::now();
    b.stop().await;
    assert!(before.elapsed() <= 100 * MS, "{:?}", before.elapsed());
    assert_eq!(rig.holder(), "a");
    assert!(rig.sent().iter().all(|sent| sent.agent == "a"), "H4");
}

#[tokio::test(start_paused = true)]
async fn a_running_sync_ends_before_the_lease_is_released() {
    let (rig, a, _b, unrest) = led_by_a(|request, at| match request.kind {
        "Pod" | "ReplicaSet" if request.user_agent == A && at > 30 * S && request.verb != "watch" => {
            FaultDecision::Delay(4 * S)
        }
        _ => FaultDecision::Proceed,
    })
    .await;
    tokio::time::sleep(31 * S).await;
    let stopped = rig.start.elapsed();
    drop(unrest);
    a.stop().await;
    let released = rig.sent().into_iter().find(|sent| sent.release).expect("released").at;
    assert!(released > stopped + S && released <= stopped + 10 * S, "{stopped:?} {released:?}");
    rig.one_at_a_time();
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_does_not_end_lets_the_lease_expire() {
    let (rig, a, _b, _unrest) = led_by_a(|request, at| match request.kind {
        "Pod" | "ReplicaSet" if request.user_agent == A && at > 30 * S && request.verb != "watch" => {
            FaultDecision::Delay(25 * S)
        }
        _ => FaultDecision::Proceed,
    })
    .await;
    tokio::time::sleep(33 * S).await;
    a.shutdown.cancel();
    let error = ends(a).await;
    assert!(error.contains("did not finish within 10s"), "{error}");
    assert_eq!(rig.holder(), "a", "a write may still arrive");
    let ended = rig.start.elapsed();
    assert!(acts(&rig, 30, "b").await > ended + 10 * S);
    rig.one_at_a_time();
}

/// A rig in which only the creations of pods sent from 30 s to 32 s have this `fault`.
async fn with_pods_created_badly(fault: FaultDecision) -> (Rig, Daemon, [Daemon; 1]) {
    let (rig, a, b, unrest) = led_by_a(move |request, at| {
        let pod = request.user_agent == A && request.kind == "Pod" && request.verb == "create";
        if pod && (30 * S..32 * S).contains(&at) { fault.clone() } else { FaultDecision::Proceed }
    })
    .await;
    tokio::time::sleep_until(rig.start + 33 * S).await;
    drop(unrest);
    let tried = |sent: &Sent| sent.at > 30 * S && sent.what.contains("create Pod");
    assert!(rig.acts().iter().any(tried), "{:?}", rig.acts());
    (rig, a, [b])
}

#[tokio::test(start_paused = true)]
async fn a_write_that_timed_out_in_the_drain_lets_the_lease_expire() {
    // Given up after 30 s, while the daemon drains, and carried out 6 s later.
    let (rig, a, _b) = with_pods_created_badly(FaultDecision::Delay(36 * S)).await;
    tokio::time::sleep_until(rig.start + 58 * S).await;
    a.stop().await;
    let ended = rig.start.elapsed();
    assert!((59 * S..63 * S).contains(&ended), "the drain waited for the write: {ended:?}");
    assert_eq!(rig.holder(), "a", "the write may still arrive");
    rig.until(30, "b leads", |rig| rig.holder() == "b").await;
    let took_over = rig.start.elapsed();
    assert!(took_over > 70 * S && took_over < ended + 17 * S, "after it has arrived: {took_over:?}");
    rig.one_at_a_time();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_timed_out_long_ago_or_was_refused_does_not_prevent_the_release_of_the_lease() {
    let refused =
        |code, reason: &str| FaultDecision::Refuse { code, message: "no".into(), reason: reason.into() };
    for (fault, wait, is_released) in [
        (FaultDecision::Delay(36 * S), 125 * S, true),
        (FaultDecision::Delay(36 * S), 115 * S, false),
        (refused(403, "Forbidden"), 35 * S, true),
        (refused(500, "InternalError"), 35 * S, true),
        (refused(504, "Timeout"), 35 * S, false),
    ] {
        let (rig, a, _b) = with_pods_created_badly(fault.clone()).await;
        tokio::time::sleep_until(rig.start + wait).await;
        a.stop().await;
        assert_eq!(rig.holder() != "a", is_released, "{fault:?} {wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_at_a_clean_stop_if_the_options_say_so() {
    let rig = Rig::new().await;
    let mut keep = options(A);
    keep.release_on_cancel = false;
    let a = rig.cluster.start(1, A, Some(keep));
    rig.until(5, "a leads", |rig| rig.holder() == "a").await;
    a.stop().await;
    assert_eq!(rig.holder(), "a");
}
