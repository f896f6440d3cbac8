//! The annotation that a command writes, or why it writes none. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use windlass::plan::deployment::course::Hold;
use windlass::plan::deployment::progress::ROLLOUT_STEP;
use windlass::plan::policy::{BATCH_DELAY, BYPASS_UNTIL, LONGEST_BYPASS, ROLLOUT, STEPS, StepHold};

use super::standing::Standing;
use crate::text::span;

/// A command of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Through this step; `None` the one that holds.
    Approve {
        /// The last step.
        step: Option<usize>,
        /// All of them.
        all: bool,
    },
    /// A verdict by hand.
    Abort,
    /// Forgives a failure.
    Retry,
    /// Steps and delays hold nothing for this time.
    Bypass(Duration),
    /// They do again.
    EndBypass,
}

/// A write, and what is said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The annotation.
    pub key: &'static str,
    /// Its value; `None` removes it.
    pub value: Option<String>,
    /// The question before it.
    pub question: String,
    /// The sentence after it.
    pub done: String,
    /// The sign that a controller has accepted it; `None` where nothing does.
    pub effect: Option<Effect>,
}

/// The effect of a command on the state that the controller records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// So many steps of this revision are passed.
    Passed {
        /// The revision.
        revision: i64,
        /// How many.
        steps: usize,
    },
    /// A verdict stands on this revision.
    Failed {
        /// The revision.
        revision: i64,
    },
    /// None stands on this revision any more.
    Forgiven {
        /// The revision.
        revision: i64,
    },
    /// The rollout is no longer held at a step.
    Unheld,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is nothing to do: why.
    Skipped(String),
    /// This is to be written.
    Write(Request),
}

impl Action {
    /// The annotation to write.
    ///
    /// # Errors
    /// Why the command makes no sense now. `wanted` is the revision that the user means, if they say so.
    pub fn request(self, standing: &Standing, wanted: Option<i64>, now: Timestamp) -> Result<Answer, String> {
        match self {
            Action::Bypass(time) => return bypass(standing, time, now),
            Action::EndBypass => return Ok(end_bypass(standing)),
            Action::Approve { .. } | Action::Abort | Action::Retry => {}
        }
        if let Some(Hold::Invalid { defect }) = &standing.hold {
            return Err(format!("it is held until its policy can be read: {defect}"));
        }
        let Some(revision) = standing.revision else {
            let text = "no controller has begun the rollout of its template: there is nothing to decide yet";
            return Err(text.to_owned());
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != revision) {
            return Err(other_revision(wanted, revision));
        }
        if standing.is_paused {
            return Err("it is paused: resume it first".to_owned());
        }
        match self {
            Action::Approve { step, all } => approve(standing, revision, step, all),
            Action::Abort => abort(standing, revision),
            _ => retry(standing, revision),
        }
    }
}

fn other_revision(wanted: i64, current: i64) -> String {
    if wanted < current {
        format!("revision {current} has replaced {wanted}")
    } else {
        format!("there is no revision {wanted} yet: the current one is {current}")
    }
}

fn approve(standing: &Standing, revision: i64, step: Option<usize>, all: bool) -> Result<Answer, String> {
    let object = &standing.object;
    if standing.policy.steps.is_empty() {
        return Err(format!("it has no annotation {STEPS}: there is nothing to approve"));
    }
    if standing.is_complete {
        return Ok(Answer::Skipped(format!("the rollout of revision {revision} of {object} is complete")));
    }
    let StepHold { step: holds, of, since, .. } = match &standing.hold {
        Some(Hold::Failed { attempt, .. }) => {
            return Err(format!("revision {revision} has failed (attempt {attempt}): retry it, or undo it"));
        }
        Some(Hold::Step(step)) => step.clone(),
        _ => return Ok(Answer::Skipped(format!("no step holds revision {revision} of {object}"))),
    };
    // The same command twice must not pass a step that nobody has seen.
    if since.is_none() && step.is_none() && !all {
        return Ok(Answer::Skipped(format!(
            "no step of revision {revision} of {object} waits for approval: step {holds} of {of} has not got its pods \
             yet (--step {holds} approves it beforehand)"
        )));
    }
    let last = if all { of } else { step.unwrap_or(holds) };
    if last > of {
        let steps = if of == 1 { "step 1 alone holds".to_owned() } else { format!("{of} steps hold") };
        return Err(format!("there is no step {last}: at its size {steps}"));
    }
    if last < holds {
        return Ok(Answer::Skipped(format!(
            "step {last} of revision {revision} of {object} is passed already"
        )));
    }
    let (value, what) = match all {
        true => (format!("approve {revision}"), "all steps".to_owned()),
        false => (format!("approve {revision}/{last}"), steps(holds, last, of)),
    };
    Ok(Answer::Write(Request {
        key: ROLLOUT,
        value: Some(value),
        question: format!("Approve {what} of revision {revision} of {object}?"),
        done: format!("{object}: {what} of revision {revision} approved"),
        effect: Some(Effect::Passed { revision, steps: if all { of } else { holds } }),
    }))
}

fn steps(first: usize, last: usize, of: usize) -> String {
    if first == last { format!("step {last} of {of}") } else { format!("steps {first} to {last} of {of}") }
}

fn abort(standing: &Standing, revision: i64) -> Result<Answer, String> {
    let object = &standing.object;
    if standing.is_complete {
        return Err(format!("the rollout of revision {revision} is complete: undo it instead"));
    }
    if let Some(Hold::Failed { serves: Some(serves), .. }) = &standing.hold {
        return Ok(Answer::Skipped(format!(
            "revision {revision} of {object} has failed already, {serves} serves"
        )));
    }
    if !standing.can_go_back {
        return Err(format!("no older pod serves: there is nothing that revision {revision} can go back to"));
    }
    Ok(Answer::Write(Request {
        key: ROLLOUT,
        value: Some(format!("abort {revision}")),
        question: format!("Abort the rollout of revision {revision} of {object}?"),
        done: format!("{object}: the rollout of revision {revision} is aborted"),
        effect: Some(Effect::Failed { revision }),
    }))
}

fn retry(standing: &Standing, revision: i64) -> Result<Answer, String> {
    let object = &standing.object;
    let attempt = standing.state.attempt;
    if standing.state.failed.is_none() {
        return Ok(Answer::Skipped(format!("revision {revision} of {object} has not failed")));
    }
    Ok(Answer::Write(Request {
        key: ROLLOUT,
        value: Some(format!("retry {revision}/{attempt}")),
        question: format!("Try revision {revision} of {object} again after failure {attempt}?"),
        done: format!("{object}: revision {revision} is tried again"),
        effect: Some(Effect::Forgiven { revision }),
    }))
}

fn bypass(standing: &Standing, time: Duration, now: Timestamp) -> Result<Answer, String> {
    let object = &standing.object;
    let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    if time > LONGEST_BYPASS {
        return Err("a bypass lasts 7 days at most: change the policy instead".to_owned());
    }
    if time.as_secs() < 1 {
        return Err("a bypass lasts at least a second".to_owned());
    }
    // A bypass that cannot be read itself is overwritten by this one.
    if let Some(defect) = standing.policy.defects.iter().find(|defect| !defect.contains(BYPASS_UNTIL)) {
        return Err(format!(
            "it is held until its policy can be read, and a bypass does not change that: {defect}"
        ));
    }
    if standing.policy.steps.is_empty() && standing.policy.batch_delay.is_none() {
        return Err(format!("it has neither {STEPS} nor {BATCH_DELAY}: there is nothing to bypass"));
    }
    let until = now.saturating_add(time).unwrap_or(Timestamp::MAX);
    let until = Timestamp::from_second(until.as_second()).unwrap_or(until);
    Ok(Answer::Write(Request {
        key: BYPASS_UNTIL,
        value: Some(until.to_string()),
        question: format!("Let no step and no delay hold {object} for {}, until {until}?", span(time)),
        done: format!("{object}: steps and delays hold nothing until {until}"),
        effect: (standing.progress == ROLLOUT_STEP).then_some(Effect::Unheld),
    }))
}

fn end_bypass(standing: &Standing) -> Answer {
    let object = &standing.object;
    if !standing.has_bypass {
        return Answer::Skipped(format!("{object} has no bypass"));
    }
    Answer::Write(Request {
        key: BYPASS_UNTIL,
        value: None,
        question: format!("End the bypass of {object}?"),
        done: format!("{object}: the bypass has ended, and what is not done is held again"),
        effect: None,
    })
}

impl Effect {
    /// Whether a controller has accepted the command.
    ///
    /// # Errors
    /// When another revision has replaced the one that the command names.
    pub fn is_seen(self, standing: &Standing) -> Result<bool, String> {
        let named = match self {
            Effect::Passed { revision, .. } | Effect::Failed { revision } | Effect::Forgiven { revision } => {
                Some(revision)
            }
            Effect::Unheld => None,
        };
        if let Some((named, current)) = named.zip(standing.revision)
            && named != current
        {
            return Err(format!("{}: the command has no effect", other_revision(named, current)));
        }
        let state = &standing.state;
        Ok(match self {
            Effect::Passed { revision, steps } => state.revision == revision && state.passed >= steps,
            Effect::Failed { .. } => state.failed.is_some(),
            Effect::Forgiven { .. } => state.failed.is_none(),
            Effect::Unheld => standing.progress != ROLLOUT_STEP,
        })
    }
}

#[cfg(test)]
mod tests {
    use windlass::model::StringMap;
    use windlass::plan::policy::{Kind, Policy, State, Verdict};

    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    /// Revision 7 of web, held at this step of three.
    fn held(step: usize) -> Standing {
        let annotations: StringMap = [(STEPS, "1, 25% for 10m, 50%")].into_iter().collect();
        Standing {
            object: "deployment shop/web".into(),
            policy: Policy::of(Kind::Deployment, &annotations, true, now()),
            has_bypass: false,
            revision: Some(7),
            state: State { revision: 7, passed: step - 1, ..State::default() },
            hold: Some(Hold::Step(StepHold {
                step,
                of: 3,
                is_timed: false,
                bound: 1,
                replicas: 8,
                revision: 7,
                since: Some(now()),
                passes_at: None,
            })),
            progress: ROLLOUT_STEP.into(),
            is_complete: false,
            is_paused: false,
            can_go_back: true,
            foreign: None,
        }
    }

    const APPROVE: Action = Action::Approve { step: None, all: false };

    #[track_caller]
    fn writes(action: Action, standing: &Standing) -> (Option<String>, Option<Effect>) {
        match action.request(standing, None, now()) {
            Ok(Answer::Write(request)) => (request.value, request.effect),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn skips(action: Action, standing: &Standing) -> String {
        match action.request(standing, None, now()) {
            Ok(Answer::Skipped(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_approval_names_the_revision_that_is_shown_and_the_step_that_holds() {
        let passed = |steps| Some(Effect::Passed { revision: 7, steps });
        assert_eq!(writes(APPROVE, &held(2)), (Some("approve 7/2".into()), passed(2)));
        let third = Action::Approve { step: Some(3), all: false };
        assert_eq!(writes(third, &held(2)), (Some("approve 7/3".into()), passed(2)));
        let all = Action::Approve { step: None, all: true };
        assert_eq!(writes(all, &held(2)), (Some("approve 7".into()), passed(3)));
    }

    #[test]
    fn an_approval_of_another_revision_is_refused() {
        let refused = |wanted| APPROVE.request(&held(1), Some(wanted), now()).unwrap_err();
        assert_eq!(refused(6), "revision 7 has replaced 6");
        assert!(refused(8).contains("the current one is 7"));
        assert!(APPROVE.request(&held(1), Some(7), now()).is_ok());
    }

    #[test]
    fn a_step_that_is_passed_or_does_not_exist_is_not_approved() {
        let step = |step| Action::Approve { step: Some(step), all: false };
        assert!(skips(step(1), &held(2)).contains("passed already"));
        assert!(step(4).request(&held(2), None, now()).unwrap_err().contains("no step 4"));
        assert!(skips(APPROVE, &Standing { hold: None, ..held(1) }).contains("no step holds"));
        assert!(skips(APPROVE, &Standing { is_complete: true, ..held(1) }).contains("complete"));
        let without = Standing { policy: Policy::default(), ..held(1) };
        assert!(APPROVE.request(&without, None, now()).unwrap_err().contains(STEPS));
        let paused = Standing { is_paused: true, ..held(1) };
        assert!(APPROVE.request(&paused, None, now()).unwrap_err().contains("resume"));
        let invalid = Standing { hold: Some(Hold::Invalid { defect: "bad".into() }), ..held(1) };
        assert!(APPROVE.request(&invalid, None, now()).unwrap_err().contains("bad"));
    }

    fn failed() -> Standing {
        let hold = Hold::Failed { message: "m".into(), serves: Some("web-1".into()), attempt: 2 };
        let state = State { revision: 7, attempt: 2, failed: Some(Verdict::default()), ..State::default() };
        Standing { hold: Some(hold), state, ..held(1) }
    }

    #[test]
    fn an_abort_needs_something_to_go_back_to() {
        let effect = Some(Effect::Failed { revision: 7 });
        assert_eq!(writes(Action::Abort, &held(1)), (Some("abort 7".into()), effect));
        let alone = Standing { can_go_back: false, ..held(1) };
        assert!(Action::Abort.request(&alone, None, now()).unwrap_err().contains("no older pod serves"));
        let complete = Standing { is_complete: true, ..held(1) };
        assert!(Action::Abort.request(&complete, None, now()).unwrap_err().contains("undo"));
        assert!(skips(Action::Abort, &failed()).contains("web-1 serves"));
    }

    #[test]
    fn a_retry_forgives_the_failure_that_is_shown() {
        let effect = Some(Effect::Forgiven { revision: 7 });
        assert_eq!(writes(Action::Retry, &failed()), (Some("retry 7/2".into()), effect));
        assert!(skips(Action::Retry, &held(1)).contains("has not failed"));
        assert!(APPROVE.request(&failed(), None, now()).unwrap_err().contains("retry"));
    }

    #[test]
    fn a_bypass_ends_by_itself_within_a_week() {
        let bypass = |seconds| Action::Bypass(Duration::from_secs(seconds));
        let until = Some("2026-01-01T00:30:00Z".to_owned());
        assert_eq!(writes(bypass(1800), &held(1)), (until, Some(Effect::Unheld)));
        assert!(bypass(0).request(&held(1), None, now()).is_err());
        assert!(bypass(7 * 86_400 + 1).request(&held(1), None, now()).unwrap_err().contains("7 days"));
        let nothing = Standing { policy: Policy::default(), ..held(1) };
        assert!(bypass(60).request(&nothing, None, now()).unwrap_err().contains(STEPS));
        assert!(skips(Action::EndBypass, &held(1)).contains("no bypass"));
    }

    #[test]
    fn an_effect_is_seen_in_the_state_of_the_revision_that_was_named() {
        let effect = Effect::Passed { revision: 7, steps: 1 };
        assert_eq!(effect.is_seen(&held(1)), Ok(false));
        assert_eq!(effect.is_seen(&held(2)), Ok(true));
        let replaced = Standing { revision: Some(8), ..held(2) };
        assert!(effect.is_seen(&replaced).unwrap_err().contains("revision 8 has replaced 7"));
        assert_eq!(Effect::Failed { revision: 7 }.is_seen(&held(1)), Ok(false));
        assert_eq!(Effect::Failed { revision: 7 }.is_seen(&failed()), Ok(true));
        assert_eq!(Effect::Forgiven { revision: 7 }.is_seen(&failed()), Ok(false));
        assert_eq!(Effect::Unheld.is_seen(&held(1)), Ok(false));
    }
}
