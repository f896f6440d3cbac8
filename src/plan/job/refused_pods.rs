//! Pods that their nodes refuse, and the next ones with them.
//!
//! A node that refuses a pod (`OutOfcpu`, a taint) or evicts it at once leaves a failed pod of which no container ever
//! started, and the next one may get no further: where such failures are ignored, upstream creates as many as the
//! parallelism again and again (kubernetes#76370, kubernetes#119378, with 84,000 pods). Here one pod after three of them
//! is created alone. Once a container of it starts, or it has lived for a minute, all missing ones follow.
//!
//! As many of the missing pods wait as were refused. Where more are missing, since the parallelism was raised, the others
//! are created at once: one bad node does not hold them up.
//!
//! It is computed from the pods themselves, so that a restart continues. The price: where three nodes refuse their pods
//! and others do not, the replacements come as long after each other as a container takes to start.

use jiff::{SignedDuration, Timestamp};

use super::pods::{JobPods, Owned};
use crate::model::Phase;

/// So many refused pods in a row hold up the next ones.
const MOST: usize = 3;
/// A pod that has lived for this long is not refused.
const SURVIVED: SignedDuration = SignedDuration::from_secs(60);
/// Older ones say nothing about now: twice the longest backoff.
const FORGOTTEN: SignedDuration = SignedDuration::from_secs(2 * super::backoff::MAX);

/// The newest pods of a Job, of which nodes have refused so many that the next one is likely to be refused, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedPods {
    /// How many were refused since the last one of which a container started.
    pub count: usize,
    /// Until when the pod that was created to try is awaited; `None` if there is none.
    pub awaited_until: Option<Timestamp>,
}

impl RefusedPods {
    /// Computed from the pods; `None` if no pod is held up.
    pub fn of(pods: &JobPods, now: Timestamp) -> Option<RefusedPods> {
        let age = |owned: &Owned| now.duration_since(owned.pod.meta.created);
        let is_healthy =
            |owned: &&Owned| owned.pod.has_started || owned.has_succeeded() || lives(owned, age(owned));
        let created = |owned: &Owned| owned.pod.meta.created;
        let last_healthy = pods.owned.iter().filter(is_healthy).map(created).max();
        let is_later = |owned: &&Owned| last_healthy.is_none_or(|healthy| created(owned) > healthy);
        let is_recent = |owned: &&Owned| age(owned).abs() <= FORGOTTEN;
        let refused = pods.owned.iter().filter(|owned| is_refused(owned));
        let count = refused.filter(is_later).filter(is_recent).count();
        let awaited = pods.active().filter(|owned| !owned.pod.has_started && age(owned).abs() < SURVIVED);
        let survives = awaited.map(|owned| created(owned).saturating_add(SURVIVED).unwrap_or(Timestamp::MAX));
        (count >= MOST).then(|| RefusedPods { count, awaited_until: survives.max() })
    }

    /// How many of so many missing pods may be created now.
    pub fn room(self, missing: usize) -> usize {
        let waits = self.count.min(missing);
        let tried = usize::from(self.awaited_until.is_none()).min(waits);
        missing - waits + tried
    }
}

fn lives(owned: &Owned, age: SignedDuration) -> bool {
    owned.pod.is_active() && age >= SURVIVED
}

/// A deleted pod may have failed because of its deletion.
fn is_refused(owned: &Owned) -> bool {
    let pod = &owned.pod;
    pod.phase == Phase::Failed && pod.failed_early && !pod.has_started && !pod.meta.is_deleting()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{PodOf, at, job, job_pods, observed, pod};
    use super::super::{PlanReason, Write, plan};
    use super::*;

    const REFUSED: &str = r#""reason":"OutOfcpu","message":"no cpu""#;
    const RAN: &str = r#""containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":1,"startedAt":
        "2027-01-15T08:00:01Z","finishedAt":"2027-01-15T08:00:02Z"}}}]"#;

    fn refused(name: &str) -> PodOf {
        pod(name).failed().untracked().status(REFUSED)
    }

    fn count(pods: &[PodOf], second: i64) -> Option<(usize, usize)> {
        let job = job(r#""parallelism":9"#, "");
        RefusedPods::of(&job_pods(&job, pods.iter().cloned()), at(second))
            .map(|refused| (refused.count, refused.room(9)))
    }

    #[test]
    fn three_refused_pods_hold_up_the_next_ones() {
        let of = |names: &[&str]| names.iter().map(|name| refused(name)).collect::<Vec<_>>();
        assert_eq!(count(&of(&["a", "b"]), 30), None);
        assert_eq!(count(&of(&["a", "b", "c"]), 30), Some((3, 7)), "two of nine wait, and one is tried");
        let with = |other: PodOf| of(&["a", "b", "c"]).into_iter().chain([other]).collect::<Vec<_>>();
        assert_eq!(
            count(&with(pod("d").pending().status(r#""conditions":[]"#)), 30),
            Some((3, 6)),
            "one is on its way"
        );
        assert_eq!(
            count(&with(pod("d").pending().status(r#""conditions":[]"#)), 60),
            None,
            "it has lived for a minute"
        );
        assert_eq!(
            count(&with(refused("d").deleting()), 30),
            Some((3, 7)),
            "one that was deleted says nothing"
        );
    }

    #[test]
    fn a_pod_that_started_lets_all_follow() {
        let three = || ["a", "b", "c"].map(refused).to_vec();
        for healthy in [pod("d").succeeded(), pod("d").failed().status(RAN)] {
            let pods: Vec<PodOf> = three().into_iter().chain([healthy]).collect();
            assert_eq!(count(&pods, 30), None);
        }
    }

    #[test]
    fn a_pod_that_started_before_them_says_nothing_about_the_next_one() {
        let later = ["a", "b", "c"].map(|name| refused(name).created_at(20));
        let with = |other: PodOf| later.iter().cloned().chain([other]).collect::<Vec<_>>();
        assert_eq!(count(&with(pod("d").succeeded()), 30), Some((3, 7)));
        assert_eq!(count(&with(pod("d").succeeded().created_at(21)), 30), None);
    }

    #[test]
    fn a_pod_that_is_awaited_without_an_event_ends_the_wait_after_a_minute() {
        let job = job(r#""parallelism":9,"completions":9,"backoffLimit":90"#, r#""failed":3"#);
        let pods = ["a", "b", "c"].map(refused).into_iter();
        let tried = pod("d").pending().status(r#""conditions":[]"#).created_at(480);
        let plan = plan(&observed(&job, pods.chain([tried]), 500));
        assert_eq!(plan.requeue_after.map(|wait| wait.as_secs()), Some(40));
    }

    #[test]
    fn indexes_that_have_failed_for_good_wait_for_nothing() {
        let spec = r#""parallelism":4,"completions":4,"completionMode":"Indexed","backoffLimitPerIndex":0"#;
        let job = job(spec, r#""failed":3,"failedIndexes":"0-2""#);
        let pods = ["a", "b", "c"].map(refused).into_iter().enumerate();
        let pods = pods.map(|(at, pod)| pod.index(at as i32));
        let plan = plan(&observed(&job, pods.chain([pod("d").index(3).created_at(0)]), 500));
        assert!(
            !plan.reasons.iter().any(|reason| matches!(reason, PlanReason::Trying { .. })),
            "{:?}",
            plan.reasons
        );
    }

    #[test]
    fn refusals_of_twenty_minutes_ago_and_of_a_wrong_clock_hold_up_nothing() {
        let three = ["a", "b", "c"].map(refused);
        assert_eq!(count(&three, 1_200), Some((3, 7)));
        assert_eq!(count(&three, 1_201), None);
        assert_eq!(count(&three, -1_201), None);
    }

    #[test]
    fn one_of_three_refused_pods_is_replaced_and_the_explanation_says_why() {
        let job = job(r#""parallelism":9,"completions":9,"backoffLimit":90"#, r#""failed":3"#);
        let plan = plan(&observed(&job, ["a", "b", "c"].map(refused), 500));
        let creations = plan.writes.iter().find_map(|write| match write {
            Write::Create(pods) => Some(pods.len()),
            _ => None,
        });
        assert_eq!(creations, Some(7));
        let said: Vec<String> = plan
            .reasons
            .iter()
            .filter(|reason| matches!(reason, PlanReason::Trying { .. }))
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            said,
            [
                "The last 3 pods failed before a container started: they are replaced one at a time, and 2 missing pods wait \
              until a container of the next one starts or it has lived for a minute; the last failure: OutOfcpu: no cpu"
            ]
        );
    }
}
