//! An update that is under way: what may be in its way, the next step, and what it waits for.

use std::time::Duration;

use jiff::Timestamp;

use super::{Adopter, Observed, Plan, Side, Write, end, second};
use crate::model::{Condition, Record as _, ReplicaSet, StringMap};
use crate::plan::rolling_update::bookkeeping::{
    HANDING_OVER, LABEL_KEY, ORIGINAL_REPLICAS, SOURCE, moved, size, size_to_reach, size_to_return_to,
    source_of,
};
use crate::plan::rolling_update::report::{Reason, Report, current};
use crate::plan::rolling_update::request::{REQUEST, ROLLBACK, Request, STEP_AT, step_at};
use crate::plan::rolling_update::{self as steps, Bounds, Cleanup, Step, Wait, available, value_of};

/// The work that a request leads to.
pub(super) enum RequestedWork<'a> {
    /// An update to go on with.
    Job(Job<'a>),
    /// Its end: the other controller is deleted already.
    End(Reason),
}

/// An update that nothing is in the way of.
pub(super) struct Job<'a> {
    observed: &'a Observed<'a>,
    request: &'a Request,
    old: &'a ReplicaSet,
    new: Option<&'a ReplicaSet>,
    is_rollback: bool,
    desired: i32,
    label_key: String,
    /// The last resizes of OLD and of NEW.
    step_at: [Option<Timestamp>; 2],
}

impl<'a> Job<'a> {
    /// Checks what is there.
    pub(super) fn find(
        observed: &'a Observed<'a>,
        request: &'a Request,
    ) -> Result<RequestedWork<'a>, String> {
        let old = observed.own;
        let (name, target) = (&old.meta.key.name, &request.target);
        let named = observed.all.iter().map(|one| &one.0).find(|one| *one.meta.key.name == **target);
        let new = named.filter(|new| !new.meta.is_deleting());
        let is_handing_over = new.is_some_and(|new| new.annotations.get(HANDING_OVER).is_some());
        // Once OLD takes the pods over, there is nothing to roll back to.
        let is_rollback = request.is_rollback && !is_handing_over;
        let original = size(old, ORIGINAL_REPLICAS)?;
        let own_step = step_at(old)?;
        // The write that takes the pods over resizes OLD and removes its original size.
        let has_taken_over = request.cleanup == Cleanup::KeepName && original.is_none() && own_step.is_some();
        for one in [Some(old), new].into_iter().flatten() {
            if let Some(owner) = &one.meta.controller {
                let (one, kind) = (&one.meta.key.name, &owner.kind);
                return Err(format!("{one} is controlled by {kind} {}: update that instead", owner.name));
            }
            if let Some(defect) = one.selector.defect() {
                return Err(format!("{}: {defect}", one.meta.key.name));
            }
        }
        if let Some(problem) = overlap(observed, new) {
            return Err(problem);
        }
        let Some(new) = new else {
            return match () {
                () if has_taken_over => Ok(RequestedWork::End(Reason::Complete)),
                () if is_rollback => Ok(RequestedWork::Job(Job {
                    observed,
                    request,
                    old,
                    new: None,
                    is_rollback,
                    desired: size_to_return_to(old, None)?,
                    label_key: LABEL_KEY.to_owned(),
                    step_at: [own_step, None],
                })),
                () => Err(format!(
                    "{target} {}; {name} has {} replicas. Create {target}, or take the update back with --rollback or \
                     the annotation {ROLLBACK}=true",
                    if named.is_some() { "is being deleted" } else { "does not exist" },
                    old.replicas
                )),
            };
        };
        let desired = match is_rollback {
            true if planted!("a rollback keeps the size that OLD has") => old.replicas,
            true => size_to_return_to(old, Some(new))?,
            false => size_to_reach(old, new)?,
        };
        let label_key = label_key(old, new).ok_or_else(|| {
            format!(
                "the selectors of {name} ({}) and {target} ({}) must have a key in common with different values, or each \
                 would take the other's pods",
                old.selector, new.selector
            )
        })?;
        if !is_handing_over {
            let labels = &new.template.labels;
            let is_other = |one: &&ReplicaSet| one.meta.uid != old.meta.uid && one.meta.uid != new.meta.uid;
            let selects =
                |one: &&ReplicaSet| !one.selector.selects_everything() && one.selector.matches(labels);
            let mut others = observed.all.iter().map(|one| &one.0).filter(is_other).filter(selects);
            if let Some(rival) = others.next() {
                let rival = &rival.meta.key.name;
                return Err(format!(
                    "{rival} selects the pods of {target}, too ({}): change one of the selectors",
                    new.selector
                ));
            }
            if request.cleanup == Cleanup::KeepName
                && let Some(Adopter { kind, name: rival, .. }) = adopter(observed, labels)
            {
                return Err(format!(
                    "{kind} {rival} selects the pods of {target}, too ({}), and could adopt them while the name changes: \
                     change one of the selectors, or choose the cleanup Delete or Preserve",
                    new.selector
                ));
            }
            if request.cleanup == Cleanup::KeepName && !observed.controls_pods {
                return Err(
                    "the cleanup KeepName needs replicationcontroller-controller in the same process: choose Delete or \
                     Preserve, or drive the update from the client"
                        .to_owned(),
                );
            }
        }
        Ok(RequestedWork::Job(Job {
            observed,
            request,
            old,
            new: Some(new),
            is_rollback,
            desired,
            label_key,
            step_at: [own_step, step_at(new)?],
        }))
    }

    pub(super) fn plan(&self) -> Plan {
        let Job { observed, request, old, new, .. } = self;
        let is_handing_over = new.is_some_and(|new| new.annotations.get(HANDING_OVER).is_some());
        let step = self.step();
        let marks_survivor = !self.is_rollback && self.step_at[1].is_none();
        // By that, NEW is known as the survivor once OLD is gone, or done with.
        let mark = || {
            let time = second(observed.now).to_string();
            Plan::write(Write::Annotate(Side::Target, vec![(STEP_AT, Some(time))]))
        };
        if let Some(Step::Finished) = step {
            if marks_survivor && new.is_some() {
                return mark();
            }
            let reason = if self.is_rollback { Reason::RolledBack } else { Reason::Complete };
            return end(old, reason, &request.target);
        }
        if !current(old).is_some_and(Condition::is_true) {
            let reason = if self.is_rollback { Reason::RollingBack } else { Reason::Progressing };
            return Plan::report_then(old, Report::new(reason, self.summary()), None);
        }
        if !is_handing_over {
            let is_overwritten = planted!("the original size is overwritten by each step")
                && old.annotations.get(ORIGINAL_REPLICAS) != Some(&old.replicas.to_string());
            if old.annotations.get(ORIGINAL_REPLICAS).is_none() || is_overwritten {
                let original = old.replicas.to_string();
                return Plan::write(Write::Annotate(Side::Own, vec![(ORIGINAL_REPLICAS, Some(original))]));
            }
        }
        if request.is_paused && !is_handing_over {
            let message = format!("{}; remove the annotation that pauses it to go on", self.summary());
            return Plan::report_then(old, Report::new(Reason::Paused, message), None);
        }
        let Some(step) = step else { return Plan::NOTHING };
        if let Some(left) = self.period_left(&step) {
            let report = Report::new(self.under_way(Reason::Waiting), self.summary());
            return Plan { look_again: Some(left), ..Plan::report_then(old, report, None) };
        }
        let write = match step {
            Step::Grow { to } => Write::Resize(if self.is_rollback { Side::Own } else { Side::Target }, to),
            Step::Shrink { to } => Write::Resize(if self.is_rollback { Side::Target } else { Side::Own }, to),
            Step::DeleteShrinking if self.is_rollback => Write::Delete(Side::Target),
            Step::DeleteShrinking if marks_survivor => return mark(),
            Step::DeleteShrinking => Write::Delete(Side::Own),
            Step::StepAside { value } => Write::StepAside { key: self.label_key.clone(), value },
            Step::TakeOver { value } => {
                Write::TakeOver { key: self.label_key.clone(), value, replicas: self.desired }
            }
            Step::DeleteGrowing => Write::Delete(Side::Target),
            Step::Wait(wait) => return self.wait(&wait),
            Step::Finished => return Plan::NOTHING,
        };
        let is_hand_over =
            matches!(write, Write::StepAside { .. } | Write::TakeOver { .. }) || is_handing_over;
        let reason = if is_hand_over { Reason::HandingOver } else { Reason::Progressing };
        let report = Report::new(self.under_way(reason), self.summary());
        Plan { report: Some(report), ..Plan::write(write) }
    }

    /// The next step.
    fn step(&self) -> Option<Step> {
        let Job { observed, request, old, new, .. } = self;
        let (shrinking, growing) = if self.is_rollback { (*new, *old) } else { (Some(*old), (*new)?) };
        let bounds = Bounds::resolve(self.desired, request.max_surge, request.max_unavailable);
        Some(steps::plan(&steps::Observed {
            shrinking,
            growing,
            pods: observed.pods,
            bounds,
            cleanup: if self.is_rollback { Cleanup::Delete } else { request.cleanup },
            label_key: &self.label_key,
            now: observed.now,
        }))
    }

    fn growing(&self) -> &ReplicaSet {
        if self.is_rollback { self.old } else { self.new.unwrap_or(self.old) }
    }

    /// How much of the pause between new pods and the end of old ones is left.
    fn period_left(&self, step: &Step) -> Option<Duration> {
        let Step::Shrink { .. } = step else { return None };
        let grown = self.step_at[usize::from(!self.is_rollback)]?;
        left(grown, self.request.period, self.observed.now)
    }

    /// Waits, and warns when there was no progress for too long. Nothing is given up.
    fn wait(&self, wait: &Wait) -> Plan {
        let Job { observed, request, old, .. } = self;
        let now = observed.now;
        let since = current(old).and_then(|condition| condition.last_transition);
        // A request that is made again has its whole time again.
        let progress = self.step_at.into_iter().flatten().chain(self.last_available()).chain(since).max();
        let until_timeout = progress.and_then(|progress| left(progress, request.timeout, now));
        let is_late = progress.is_some() && until_timeout.is_none();
        let reason = match wait {
            Wait::Release { .. } | Wait::Adopt { .. } => Reason::HandingOver,
            _ if is_late => Reason::TimedOut,
            // The other controller has yet to do what it was asked for.
            Wait::Count { refusal: None, .. } | Wait::Gone { .. } => self.under_way(Reason::Progressing),
            Wait::Count { .. } | Wait::Available { .. } => self.under_way(Reason::Waiting),
        };
        let late = match is_late {
            true => format!("No progress for {:?}: ", request.timeout),
            false => String::new(),
        };
        let message = format!("{late}{wait}{}; {}", self.failing_pod(), self.summary());
        let plan = Plan::report_then(old, Report::new(reason, message), None);
        let next = self.next_available().into_iter().chain(until_timeout).min();
        Plan { look_again: next, is_late, ..plan }
    }

    fn under_way(&self, reason: Reason) -> Reason {
        if self.is_rollback { Reason::RollingBack } else { reason }
    }

    /// When the last pod of the growing controller became available.
    fn last_available(&self) -> Option<Timestamp> {
        self.available_at().filter(|at| *at <= self.observed.now).max()
    }

    /// How long until the next one is.
    fn next_available(&self) -> Option<Duration> {
        let now = self.observed.now;
        let next = self.available_at().filter(|at| *at > now).min()?;
        Duration::try_from(next.duration_since(now)).ok()
    }

    fn available_at(&self) -> impl Iterator<Item = Timestamp> {
        let growing = self.growing();
        let own = self.observed.pods.iter().filter(|pod| growing.controls(&pod.meta) && pod.is_active());
        own.filter_map(|pod| pod.available_at(growing.min_ready_seconds))
    }

    /// A pod of the growing controller that fails, and why.
    fn failing_pod(&self) -> String {
        let growing = self.growing();
        let mut own = self.observed.pods.iter().filter(|pod| growing.controls(&pod.meta) && pod.is_active());
        let failing = own.find_map(|pod| Some((pod, pod.startup_failure()?)));
        failing.map_or(String::new(), |(pod, waiting)| {
            let text = waiting.message.as_ref().map_or(String::new(), |message| format!(": {message}"));
            format!("; {}: {}{text}", pod.meta.key.name, waiting.reason)
        })
    }

    fn summary(&self) -> String {
        let other = if self.is_rollback { self.new } else { Some(self.old) };
        let of_other = |one: &ReplicaSet| format!("{} is at {} replicas, ", one.meta.key.name, one.replicas);
        let growing = self.growing();
        let ready = available(growing, self.observed.pods, self.observed.now);
        let (name, replicas, desired) = (&growing.meta.key.name, growing.replicas, self.desired);
        format!(
            "{}{name} at {replicas} of {desired}, {ready} available",
            other.map_or(String::new(), of_other)
        )
    }
}

/// Another update of one of the two: each would undo the steps of the other. The one that came first goes on, which NEW's
/// bookkeeping tells.
fn overlap(observed: &Observed<'_>, new: Option<&ReplicaSet>) -> Option<String> {
    let old = observed.own;
    let name = &old.meta.key.name;
    let source = old.annotations.get(SOURCE);
    let takes_from = |one: &&ReplicaSet| {
        !one.meta.is_deleting()
            && source == Some(&source_of(&one.meta))
            && one.annotations.get(REQUEST) == Some(&**name)
    };
    if let Some(first) = observed.all.iter().map(|one| &one.0).find(takes_from) {
        let first = &first.meta.key.name;
        return Some(format!("{name} takes the pods of {first}: wait until that update is complete"));
    }
    let new = new.filter(|new| new.annotations.get(SOURCE) != Some(&source_of(&old.meta)))?;
    let other = new.annotations.get(REQUEST)?;
    Some(format!("{} is being updated to {other}: wait until that is complete", new.meta.key.name))
}

/// A controller of another kind that adopts pods with these labels once they have no controller.
fn adopter<'a>(observed: &Observed<'a>, labels: &StringMap) -> Option<&'a Adopter<'a>> {
    observed.adopters.iter().find(|one| one.selector.matches(labels))
}

/// The label key that tells the pods of the two apart, in the midst of a hand-over, too.
fn label_key(old: &ReplicaSet, new: &ReplicaSet) -> Option<String> {
    let mut keys = new.selector.match_labels();
    if let Some(value) = new.annotations.get(HANDING_OVER) {
        let moved = moved(value);
        return keys.find(|(_, value)| **value == *moved).map(|(key, _)| key.to_string());
    }
    let differs = |(key, value): &(&str, &str)| value_of(old, key).is_some_and(|of_old| of_old != **value);
    let differing: Vec<&str> = keys.filter(differs).map(|(key, _)| key).collect();
    let preferred = differing.iter().find(|key| **key == LABEL_KEY).or(differing.first());
    preferred.map(|key| (*key).to_owned())
}

/// How much of a time is left that began then: all of it, where a clock was set back.
fn left(since: Timestamp, time: Duration, now: Timestamp) -> Option<Duration> {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    time.checked_sub(passed).filter(|left| !left.is_zero())
}
