//! Backoff for pods that fail at startup.
//!
//! A node that refuses every pod (`OutOfcpu`, `NodeAffinity`) or evicts it at once leaves a failed pod for
//! each creation, and upstream creates the next one right away: thousands, until the pod garbage collector
//! starts to delete at 12 500 ended pods. Here the ReplicaSet replaces such pods one at a time, after 5, 10,
//! 20, … seconds and at most every five minutes. The first pod that becomes ready, or lives for a minute,
//! ends the backoff, and all missing pods are created at once.
//!
//! As many of the missing pods wait as have failed. Where more are missing, since the ReplicaSet was scaled up or other
//! pods were deleted, the others are created at once: one bad node does not hold up a scale-up.
//!
//! The bound: a ReplicaSet of `n` pods none of which can run creates at most `n` pods, then about six more in
//! five minutes, and then twelve an hour. The price: a pod that its node refuses is replaced five seconds
//! after its creation instead of at once.
//!
//! The backoff is computed from the pods themselves, so that a restart, or another leader, continues where the
//! last one was. Deleting the failed pods resets the backoff.
//!
//! The pods' times are the API server's. Where our clock is ahead, the first waits are too short by that;
//! they double until they are longer. Where the two are more than ten minutes apart, the times say nothing,
//! and no pod is delayed.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::pod_sets::PodSets;
use super::status::until;
use crate::model::Pod;
use crate::plan::EventNote;

/// The wait after the first round of failures; it doubles with each further one.
const FIRST: SignedDuration = SignedDuration::from_secs(5);
/// The longest wait.
const LONGEST: SignedDuration = SignedDuration::from_secs(300);
/// Failures further apart than this have nothing to do with each other, or with now.
const APART: SignedDuration = SignedDuration::from_secs(600);
/// Pods created within this time are one round: times of creation are whole seconds.
const ONE_ROUND: SignedDuration = SignedDuration::from_secs(1);
/// A pod that has lived for this long counts as healthy.
const SURVIVED: SignedDuration = SignedDuration::from_secs(60);

/// The state of a ReplicaSet whose newest pods failed at startup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedPodBackoff {
    /// How many pods failed since the last healthy one: at least one. As many of the missing pods wait.
    pub failures: usize,
    /// The newest failed pod's reason, such as `Evicted`.
    pub reason: Option<Arc<str>>,
    /// When the next pod may be created: one, not all.
    pub next: Timestamp,
}

impl FailedPodBackoff {
    /// Computed from the pods of a ReplicaSet; `None` without a backoff.
    pub fn of(pod_sets: &PodSets, now: Timestamp) -> Option<FailedPodBackoff> {
        let survived =
            |pod: &Pod| pod.ready_since.is_some() || now.duration_since(pod.meta.created) >= SURVIVED;
        let healthy = pod_sets.active.iter().filter(|pod| survived(pod));
        let healthy = healthy.chain(pod_sets.terminal.iter().filter(|pod| !pod.failed_early));
        let last_healthy = healthy.map(|pod| pod.meta.created).max();
        let mut failed: Vec<&Arc<Pod>> = pod_sets
            .terminal
            .iter()
            // A deleted pod may have failed because of its deletion.
            .filter(|pod| pod.failed_early && !pod.meta.is_deleting())
            .filter(|pod| last_healthy.is_none_or(|healthy| pod.meta.created > healthy))
            .collect();
        failed.sort_unstable_by(|a, b| (b.meta.created, &b.meta.uid).cmp(&(a.meta.created, &a.meta.uid)));
        let newest = failed.first()?;
        if now.duration_since(newest.meta.created).abs() > APART {
            return None;
        }
        let (mut more_rounds, mut failures) = (0u32, 0);
        let (mut round, mut before) = (newest.meta.created, newest.meta.created);
        for pod in &failed {
            let created = pod.meta.created;
            let gap = before.duration_since(created);
            if gap > APART {
                break;
            }
            // Failures without a pause are many rounds too: by our clock each wait may have passed.
            if gap > ONE_ROUND || round.duration_since(created) > FIRST {
                more_rounds = more_rounds.saturating_add(1);
                round = created;
            }
            failures += 1;
            before = created;
        }
        let wait = FIRST.saturating_mul(2i32.saturating_pow(more_rounds)).min(LONGEST);
        let due = newest.meta.created.saturating_add(wait).unwrap_or(Timestamp::MAX);
        // The next pod waits until the one created after the failures is ready or has lived for a minute.
        let ahead = pod_sets.active.iter().filter(|pod| pod.meta.created > newest.meta.created);
        let ahead =
            ahead.map(|pod| pod.meta.created.saturating_add(SURVIVED).unwrap_or(Timestamp::MAX)).max();
        Some(FailedPodBackoff {
            failures,
            reason: newest.waiting.as_ref().map(|waiting| waiting.reason.clone()),
            next: ahead.map_or(due, |survives| survives.max(due)),
        })
    }

    /// How long to wait for the next pod, or until the clock is read again: it may be corrected meanwhile.
    /// `None` when the pod may be created now.
    pub fn wait(&self, now: Timestamp) -> Option<Duration> {
        (self.next > now).then(|| until(self.next, now).min(LONGEST.unsigned_abs()))
    }

    /// The event while the ReplicaSet backs off.
    pub fn note(&self) -> EventNote {
        let FailedPodBackoff { failures, reason, next } = self;
        let reason = reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
        let message = format!(
            "The last {failures} pods failed at startup{reason}. Next attempt to replace one of them at {next}; the \
             others follow once a pod becomes ready or has lived for a minute."
        );
        EventNote::warning("FailedPodsBackOff", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};

    const START: i64 = 1_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(START + second).unwrap()
    }

    fn pod(second: i64, status: &str) -> Arc<Pod> {
        let json = format!(
            r#"{{"metadata":{{"name":"p{second}","namespace":"shop","uid":"u{second}","resourceVersion":"1",
                "creationTimestamp":"{}"}},"status":{status}}}"#,
            at(second)
        );
        Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
    }

    fn failed(seconds: &[i64]) -> PodSets {
        let terminal =
            seconds.iter().map(|second| pod(*second, r#"{"phase":"Failed","reason":"OutOfcpu"}"#)).collect();
        PodSets { terminal, ..PodSets::default() }
    }

    fn starting(second: i64) -> Arc<Pod> {
        pod(second, r#"{"phase":"Pending"}"#)
    }

    fn ready(second: i64) -> Arc<Pod> {
        let status = format!(
            r#"{{"phase":"Running","conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"{}"}}]}}"#,
            at(second + 1)
        );
        pod(second, &status)
    }

    #[track_caller]
    fn check(pod_sets: &PodSets, now: i64, next: Option<i64>) {
        let backoff = FailedPodBackoff::of(pod_sets, at(now));
        assert_eq!(backoff.map(|backoff| backoff.next.as_second() - START), next);
    }

    #[test]
    fn each_round_of_failures_doubles_the_wait_up_to_five_minutes() {
        check(&failed(&[]), 0, None);
        check(&failed(&[0]), 1, Some(5));
        check(&failed(&[0, 0, 1, 1, 2]), 3, Some(2 + 5));
        check(&failed(&[0, 5]), 6, Some(5 + 10));
        check(&failed(&[0, 5, 15]), 16, Some(15 + 20));
        check(&failed(&[0, 5, 15, 35, 75, 155, 315]), 316, Some(315 + 300));
        let long: Vec<i64> = (0..80).map(|n| n * 300).collect();
        check(&failed(&long), 79 * 300, Some(80 * 300));
    }

    #[test]
    fn no_number_of_rounds_shortens_the_wait() {
        for rounds in 7..70 {
            let times: Vec<i64> = (0..rounds).map(|n| n * 300).collect();
            check(&failed(&times), (rounds - 1) * 300, Some(rounds * 300));
        }
    }

    #[test]
    fn failures_without_a_pause_back_off_too_as_when_our_clock_is_ahead() {
        let stream: Vec<i64> = (0..=30).collect();
        // Six rounds of five seconds each.
        check(&failed(&stream), 31, Some(30 + 160));
        let long: Vec<i64> = (0..1000).collect();
        check(&failed(&long), 1000, Some(999 + 300));
    }

    #[test]
    fn a_clock_far_behind_the_api_server_causes_no_backoff() {
        check(&failed(&[0]), -600, Some(5));
        check(&failed(&[0]), -601, None);
        let backoff = FailedPodBackoff::of(&failed(&[0]), at(-600)).unwrap();
        assert_eq!(backoff.wait(at(-600)), Some(Duration::from_secs(300)), "the clock may be set meanwhile");
    }

    #[test]
    fn a_deleted_pod_that_failed_causes_no_backoff() {
        let mut pod_sets = failed(&[0]);
        let pod = Arc::make_mut(&mut pod_sets.terminal[0]);
        pod.meta.deletion = Some(at(1));
        check(&pod_sets, 2, None);
    }

    #[test]
    fn a_healthy_pod_ends_the_backoff() {
        let mut pod_sets = failed(&[0, 5]);
        pod_sets.active = vec![ready(15)];
        check(&pod_sets, 17, None);
        pod_sets.active = vec![ready(0)];
        check(&pod_sets, 17, Some(5 + 5));
    }

    #[test]
    fn the_first_retry_must_be_ready_or_live_for_a_minute_before_the_others_follow() {
        let mut pod_sets = failed(&[0, 5]);
        pod_sets.active = vec![starting(15)];
        check(&pod_sets, 17, Some(75));
        check(&pod_sets, 75, None);
    }

    #[test]
    fn pods_created_together_with_the_failed_ones_do_not_extend_the_backoff() {
        let mut pod_sets = failed(&[0]);
        pod_sets.active = vec![starting(0), starting(0)];
        check(&pod_sets, 2, Some(5));
        pod_sets.active = vec![ready(0), starting(0)];
        check(&pod_sets, 4, None);
    }

    #[test]
    fn a_pod_that_failed_after_a_long_life_is_replaced_at_once() {
        let evicted = format!(
            r#"{{"phase":"Failed","reason":"Evicted","conditions":[{{"type":"DisruptionTarget","status":"True",
                "lastTransitionTime":"{}"}}]}}"#,
            at(5000)
        );
        let pod_sets = PodSets { terminal: vec![pod(0, &evicted)], ..PodSets::default() };
        check(&pod_sets, 5001, None);
    }

    #[test]
    fn old_failures_are_forgotten() {
        check(&failed(&[0, 5]), 606, None);
        check(&failed(&[0, 5, 900]), 901, Some(905));
    }

    #[test]
    fn a_clock_far_behind_the_servers_does_not_stop_a_replica_set() {
        check(&failed(&[300]), 0, Some(305));
        check(&failed(&[3600]), 0, None);
    }

    #[test]
    fn the_event_has_the_number_the_reason_and_the_time() {
        let backoff = FailedPodBackoff::of(&failed(&[0, 5]), at(6)).unwrap();
        let message = backoff.note().message;
        assert!(message.contains("last 2 pods") && message.contains("(OutOfcpu)"), "{message}");
        assert!(message.contains(&at(15).to_string()), "{message}");
        assert_eq!((backoff.wait(at(6)), backoff.wait(at(15))), (Some(Duration::from_secs(9)), None));
    }
}
