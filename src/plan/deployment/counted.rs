//! Numbers for metrics about a course: why it holds, and why its rollout has failed.

use super::Plan;
use super::course::{Course, Hold};
use crate::plan::policy::StepHold;
use crate::plan::policy::state::ABORTED;

/// The causes of a failure that [`Course::cause`] tells apart.
pub const CAUSES: [&str; 6] = ["image", "crash", "config", "refused", "deadline", "aborted"];

/// The reasons for a hold that [`Plan::held_by`] tells apart.
pub const HOLDS: [&str; 4] = ["step", "batch-delay", "terminating", "invalid-policy"];

impl Plan {
    /// Why the policy holds the rollout now: one of [`HOLDS`].
    pub fn held_by(&self) -> Option<&'static str> {
        match &self.course.hold {
            Some(Hold::Invalid { .. }) => Some("invalid-policy"),
            Some(Hold::Step(StepHold { since: Some(_), .. })) => Some("step"),
            Some(Hold::Batch { .. }) => Some("batch-delay"),
            None if self.course.waits_for > 0 && self.writes.is_empty() => Some("terminating"),
            Some(Hold::Step(_) | Hold::Failed { .. }) | None => None,
        }
    }
}

impl Course {
    /// Why the rollout has failed: one of [`CAUSES`].
    pub fn cause(&self) -> Option<&'static str> {
        let stored = self.state.as_ref().and_then(|state| state.failed.as_ref());
        if let Some(verdict) = stored {
            return Some(kind_of(&verdict.cause));
        }
        let Some(Hold::Failed { message, .. }) = &self.hold else { return None };
        message.split_once(" failed: ").map(|(_, cause)| kind_of(cause))
    }
}

/// The kind of a cause as [`super::failure`] words it: `POD: REASON for 2m`, `REASON for 2m: TEXT` of a refusal,
/// `no progress for 600s`.
fn kind_of(cause: &str) -> &'static str {
    if cause == ABORTED {
        return "aborted";
    }
    if cause.starts_with("no progress for ") {
        return "deadline";
    }
    let first = |text: &str| text.split([' ', ':']).next().unwrap_or_default().to_owned();
    if ["FailedCreate", "FailedDelete", "ReplicaSetCreateError"].contains(&first(cause).as_str()) {
        return "refused";
    }
    let reason = cause.split_once(": ").map_or(String::new(), |(_, reason)| first(reason));
    match reason.as_str() {
        "InvalidImageName" | "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull"
        | "ImageInspectError" => "image",
        "CreateContainerError" | "CreateContainerConfigError" | "RunContainerError" => "config",
        _ => "crash",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_counted_by_its_kind() {
        for (cause, kind) in [
            ("web-7b8d755b58-l72gb: ImagePullBackOff for 2m: Back-off pulling image \"a: b\"", "image"),
            ("web-1: CrashLoopBackOff for 90s", "crash"),
            ("web-1: not ready after two crashes for 2m", "crash"),
            ("web-1: CreateContainerConfigError for 2m: secret \"x\" not found", "config"),
            ("FailedCreate for 2m: pods \"web-1\" is forbidden: exceeded quota", "refused"),
            ("no progress for 600s", "deadline"),
            ("Aborted", "aborted"),
        ] {
            assert_eq!(kind_of(cause), kind, "{cause}");
            assert!(CAUSES.contains(&kind));
        }
    }

    #[test]
    fn a_failure_that_is_only_reported_has_a_cause_too() {
        let message = "Revision 7 failed: web-1: ErrImagePull for 2m".to_owned();
        let hold = Some(Hold::Failed { message, serves: None, attempt: 0 });
        assert_eq!(Course { hold, ..Course::default() }.cause(), Some("image"));
        assert_eq!(Course::default().cause(), None);
    }
}
