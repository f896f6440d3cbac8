//! When the wait for a rollout ends, and how.

use crate::exit::Exit;
use crate::rollout::headline::headline;
use crate::rollout::{Assessment, Verdict};
use crate::target::Kind;

/// The end of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The rollout is complete.
    Complete,
    /// The rollout has failed: why.
    Failed(String),
    /// The rollout goes on when `--timeout` passes: why.
    TimedOut(String),
    /// The rollout goes on, and nobody waits for it: why.
    Unfinished(String),
}

/// The rules that end a wait, besides the state of the rollout.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Only this revision counts.
    pub revision: Option<i64>,
    /// A deadline that has passed is no end.
    pub past_deadline: bool,
    /// The reason to give up at once.
    pub hopeless_because: Option<String>,
    /// `--timeout` has passed.
    pub timed_out: bool,
    /// Whether the command waits at all.
    pub waits: bool,
}

impl End {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            End::Complete => Exit::Success,
            End::Failed(_) => Exit::RolloutFailed,
            End::TimedOut(_) | End::Unfinished(_) => Exit::NotFinished,
        }
    }
}

/// Whether the wait ends in this state.
pub fn judge(assessment: &Assessment, rules: &Rules) -> Option<End> {
    // Before the generation is observed, the revision is that of the earlier template.
    let is_observed = assessment.is_observed();
    if let (Some(wanted), Some(current)) = (rules.revision, assessment.revision.filter(|_| is_observed))
        && wanted != current
    {
        return Some(End::Failed(format!("revision {current} runs, and not revision {wanted}")));
    }
    match assessment.verdict {
        Verdict::Complete | Verdict::Scheduled => return Some(End::Complete),
        // A run that no controller begins is nothing to wait for.
        Verdict::Suspended if assessment.kind == Kind::CronJob => return Some(End::Complete),
        Verdict::Failed => return Some(End::Failed(headline(assessment).unwrap_or_default())),
        Verdict::Deleting => {
            return Some(End::Failed(format!("the {} is being deleted", assessment.kind.title())));
        }
        Verdict::Halted => {
            return Some(End::Failed(headline(assessment).unwrap_or_default()));
        }
        Verdict::Stuck if !rules.past_deadline => {
            let because = headline(assessment).map_or(String::new(), |text| format!(": {text}"));
            return Some(End::Failed(format!("the rollout exceeded its progress deadline{because}")));
        }
        Verdict::Refused if rules.hopeless_because.is_none() => {
            return Some(End::Failed(headline(assessment).unwrap_or_default()));
        }
        _ => {}
    }
    if let Some(hopeless_because) = &rules.hopeless_because {
        return Some(End::Failed(format!("the rollout cannot complete by itself: {hopeless_because}")));
    }
    let because = || headline(assessment).map_or(String::new(), |text| format!(": {text}"));
    if rules.timed_out {
        return Some(End::TimedOut(format!("not finished when --timeout passed{}", because())));
    }
    (!rules.waits).then(|| End::Unfinished(format!("not finished{}", because())))
}
