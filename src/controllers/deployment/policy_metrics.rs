//! Holds and verdicts of rollout policies, for the metrics.
//!
//! A verdict that is stored is counted with the write that stores it, so a restart counts none twice. A hold is counted
//! when it ends, from the time in the state of the rollout, whichever process wrote that.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::metrics::{WorkloadMetrics, set_gauge};
use crate::model::{Deployment, Uid, condition};
use crate::plan::deployment::counted::HOLDS;
use crate::plan::deployment::course::Hold;
use crate::plan::deployment::progress::{PROGRESSING, TIMED_OUT};
use crate::plan::deployment::{Plan, Write};
use crate::plan::event_note::{EventNote, ROLLOUT_FAILED};
use crate::plan::policy::{StepHold, bypassed_until};
use crate::runtime::store::Store;

/// How the policy of one Deployment held its rollout in the last plan.
#[derive(Clone, Debug, Default, PartialEq)]
struct Standing {
    held_by: Option<&'static str>,
    step: Option<StepHold>,
    is_reported: bool,
}

impl Standing {
    fn of(plan: &Plan) -> Self {
        let step = match &plan.course.hold {
            Some(Hold::Step(step)) if step.since.is_some() => Some(step.clone()),
            _ => None,
        };
        let is_reported = matches!(&plan.course.hold, Some(Hold::Failed { serves: None, .. }));
        Standing { held_by: plan.held_by(), step, is_reported }
    }
}

/// The Deployments that a policy holds; no entry for the others.
#[derive(Debug, Default)]
pub struct PolicyMetrics(Mutex<BTreeMap<Uid, Standing>>);

impl PolicyMetrics {
    /// Counts the change from the last plan to this one.
    pub fn note(&self, deployment: &Deployment, plan: &Plan, now: Timestamp, metrics: &WorkloadMetrics) {
        let standing = Standing::of(plan);
        let mut all = self.0.lock();
        let before = all.remove(&deployment.meta.uid).unwrap_or_default();
        if let Some(ended) = before.step.as_ref().filter(|before| !is_same(before, standing.step.as_ref()))
            && let Some(since) = ended.since
        {
            let kind = if ended.is_timed { "timed" } else { "manual" };
            let held = now.duration_since(since).as_secs_f64().max(0.0);
            metrics.rollout_hold.with_label_values(&[kind]).observe(held);
        }
        let progress = condition::find(&deployment.status.conditions, PROGRESSING);
        let was_reported = before.is_reported || progress.is_some_and(|it| &*it.reason == TIMED_OUT);
        if standing.is_reported && !was_reported {
            count_verdict("reported", plan, metrics);
        }
        if standing != Standing::default() {
            all.insert(deployment.meta.uid.clone(), standing);
        }
    }

    /// Sets the gauge of rollouts that are held.
    pub fn show(&self, metrics: &WorkloadMetrics) {
        let all = self.0.lock();
        for reason in HOLDS {
            let held = all.values().filter(|standing| standing.held_by == Some(reason)).count();
            set_gauge(&metrics.rollouts_held.with_label_values(&[reason]), held);
        }
    }
}

/// Whether a hold goes on, as far as its duration is concerned.
fn is_same(before: &StepHold, after: Option<&StepHold>) -> bool {
    after.is_some_and(|after| (after.step, after.revision) == (before.step, before.revision))
}

impl Forget for PolicyMetrics {
    fn forget(&self, deployment: &Uid) {
        self.0.lock().remove(deployment);
    }
}

fn count_verdict(action: &str, plan: &Plan, metrics: &WorkloadMetrics) {
    if let Some(cause) = plan.course.cause() {
        metrics.rollout_verdicts.with_label_values(&[action, cause]).inc();
    }
}

/// Counts a write that has succeeded, and the event that it causes.
pub fn count(write: &Write, note: &EventNote, plan: &Plan, metrics: &WorkloadMetrics) {
    match (write, note.reason) {
        (Write::RollBack(_), _) => count_verdict("rolled-back", plan, metrics),
        (_, ROLLOUT_FAILED) => count_verdict("halted", plan, metrics),
        (_, "TerminatedFirst") if !note.warning => metrics.terminated_first.inc(),
        _ => {}
    }
}

/// Sets the gauge of Deployments whose policy is bypassed.
pub fn show_bypasses(deployments: &Store<Deployment>, now: Timestamp, metrics: &WorkloadMetrics) {
    let mut bypasses = 0;
    deployments.for_each(|deployment| {
        bypasses += usize::from(bypassed_until(&deployment.annotations, now).is_some());
    });
    set_gauge(&metrics.rollout_bypasses, bypasses);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::model::{Interner, Record as _};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn web(reason: &str) -> Deployment {
        let json = format!(
            r#"{{"metadata":{{"name":"web","namespace":"n","uid":"u","resourceVersion":"1"}},"spec":{{"template":{{}}}},
                "status":{{"conditions":[{{"type":"Progressing","status":"True","reason":"{reason}"}}]}}}}"#
        );
        Deployment::decode(&json, &mut Interner::default()).unwrap()
    }

    fn with(hold: Option<Hold>) -> Plan {
        let mut plan = Plan::default();
        plan.course.hold = hold;
        plan
    }

    fn at_step(step: usize, is_timed: bool, since: Option<Timestamp>) -> Plan {
        let (bound, replicas, passes_at) = (1, 4, None);
        let step = StepHold { step, of: 2, is_timed, bound, replicas, revision: 7, since, passes_at };
        with(Some(Hold::Step(step)))
    }

    fn has(metrics: &Metrics, line: &str) {
        let text = metrics.render();
        assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
    }

    #[test]
    fn a_hold_is_shown_while_it_lasts_and_counted_once_when_it_ends() {
        let (metrics, held) = (Metrics::new(), PolicyMetrics::default());
        let web = web("RolloutStep");
        let note = |plan: &Plan, seconds: i64| {
            held.note(&web, plan, at(seconds), &metrics.workloads);
            held.show(&metrics.workloads);
        };
        note(&at_step(1, false, None), 0);
        has(&metrics, "windlass_rollouts_held{reason=\"step\"} 0");
        note(&at_step(1, false, Some(at(10))), 10);
        note(&at_step(1, false, Some(at(10))), 20);
        has(&metrics, "windlass_rollouts_held{reason=\"step\"} 1");
        note(&at_step(2, true, Some(at(70))), 70);
        has(&metrics, "windlass_rollout_hold_seconds_sum{kind=\"manual\"} 60");
        note(&with(None), 100);
        note(&with(None), 110);
        has(&metrics, "windlass_rollouts_held{reason=\"step\"} 0");
        has(&metrics, "windlass_rollout_hold_seconds_sum{kind=\"timed\"} 30");
        has(&metrics, "windlass_rollout_hold_seconds_count{kind=\"manual\"} 1");
        note(&with(Some(Hold::Invalid { defect: "bad".into() })), 120);
        has(&metrics, "windlass_rollouts_held{reason=\"invalid-policy\"} 1");
        held.forget(&web.meta.uid);
        held.show(&metrics.workloads);
        has(&metrics, "windlass_rollouts_held{reason=\"invalid-policy\"} 0");
    }

    #[test]
    fn a_failure_that_is_only_reported_is_counted_once_and_not_again_after_a_restart() {
        let message = "Revision 7 failed: web-1: CrashLoopBackOff for 2m".to_owned();
        let failed = with(Some(Hold::Failed { message, serves: None, attempt: 0 }));
        let metrics = Metrics::new();
        let first = PolicyMetrics::default();
        first.note(&web("ReplicaSetUpdated"), &failed, at(0), &metrics.workloads);
        first.note(&web("ReplicaSetUpdated"), &failed, at(1), &metrics.workloads);
        PolicyMetrics::default().note(&web(TIMED_OUT), &failed, at(2), &metrics.workloads);
        has(&metrics, "windlass_rollout_verdicts_total{action=\"reported\",cause=\"crash\"} 1");
    }
}
