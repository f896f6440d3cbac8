//! Why a sync could not be finished. Every error is retried; none drops a key.

use std::time::Duration;

use super::status_throttle::SPACING;
use crate::runtime::api::ApiError;
use crate::runtime::worker::SyncFailure;

/// The reason why a sync ended early.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The object has changed since the cache saw it; the retry sees the new state.
    #[error("{what}: {error}")]
    Conflict {
        /// The operation, in words.
        what: String,
        /// The API server's answer.
        error: ApiError,
    },
    /// The object does not exist; the cache will show it.
    #[error("{what}: {error}")]
    Gone {
        /// The operation, in words.
        what: String,
        /// The API server's answer.
        error: ApiError,
    },
    /// The namespace is being deleted; nothing can be created in it.
    #[error("{what}: {error}")]
    NamespaceTerminating {
        /// The operation, in words.
        what: String,
        /// The API server's answer.
        error: ApiError,
    },
    /// There was no conclusive answer to the write. Its outcome is read before the next
    /// decision.
    #[error("{what}: {error}; the outcome is unknown until the cache shows it")]
    OutcomeUnknown {
        /// The operation, in words.
        what: String,
        /// The failure.
        error: ApiError,
    },
    /// There was no answer, and the request certainly was not carried out.
    #[error("{what}: {error}")]
    Unsent {
        /// The operation, in words.
        what: String,
        /// The failure.
        error: ApiError,
    },
    /// The API server refused: a quota, a webhook that refuses or cannot be called, a missing permission. Behind
    /// some refusals the write may have happened all the same: see [`SyncError::may_have_happened`].
    #[error("{what}: {error}")]
    Refused {
        /// The operation, in words.
        what: String,
        /// The API server's answer.
        error: ApiError,
    },
    /// The object has changed since the decision, which the cache does not show yet.
    #[error("{what}: not sent, because the object has changed; it is retried once the cache shows that")]
    Overtaken {
        /// The operation, in words.
        what: String,
    },
    /// The name of the new ReplicaSet or revision is taken; the next sync tries the next name.
    #[error("the name {name:?} is taken by an object with another owner")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// An object that a decision needs could not be read; nothing was written.
    #[error("{what}: {reason}")]
    Unread {
        /// The operation, in words.
        what: String,
        /// The API server's answer, or the defect in it.
        reason: String,
    },
    /// An object could not be encoded as JSON, or an answer has an unexpected shape.
    #[error("{what}: {error}")]
    Json {
        /// The operation, in words.
        what: String,
        /// The defect.
        error: serde_json::Error,
    },
}

impl SyncError {
    /// Classifies an error of the API by its meaning for the sync.
    pub fn api(what: impl Into<String>, error: ApiError) -> Self {
        let what = what.into();
        if error.is_conflict() {
            SyncError::Conflict { what, error }
        } else if error.is_not_found() {
            SyncError::Gone { what, error }
        } else if error.is_namespace_terminating() {
            SyncError::NamespaceTerminating { what, error }
        } else if error.is_refusal() && !error.may_follow_from_own_attempt() {
            SyncError::Refused { what, error }
        } else if error.outcome_unknown() {
            SyncError::OutcomeUnknown { what, error }
        } else {
            SyncError::Unsent { what, error }
        }
    }

    /// The same for a creation. It is computed from no version and names no object, so that a conflict and a
    /// missing object are refusals too: of a quota that could not be counted, for example.
    pub fn creation(what: impl Into<String>, error: ApiError) -> Self {
        if error.is_conflict() || error.is_not_found() {
            return SyncError::Refused { what: what.into(), error };
        }
        SyncError::api(what, error)
    }

    /// The error of the call, if there was one.
    fn call(&self) -> Option<&ApiError> {
        match self {
            SyncError::Conflict { error, .. }
            | SyncError::Gone { error, .. }
            | SyncError::NamespaceTerminating { error, .. }
            | SyncError::OutcomeUnknown { error, .. }
            | SyncError::Unsent { error, .. }
            | SyncError::Refused { error, .. } => Some(error),
            SyncError::NameTaken { .. }
            | SyncError::Overtaken { .. }
            | SyncError::Unread { .. }
            | SyncError::Json { .. } => None,
        }
    }

    /// The HTTP status of the answer; 500 where there was none, as upstream counts it.
    pub fn code(&self) -> u16 {
        self.call().and_then(ApiError::status).map_or(500, |status| status.code)
    }

    /// Whether the write may have been carried out, whatever the answer is: then its object is read
    /// before the next decision.
    pub fn may_have_happened(&self) -> bool {
        self.call().is_some_and(ApiError::outcome_unknown)
    }

    /// The API server's text, without our own.
    pub fn reason(&self) -> String {
        match self {
            SyncError::Json { error, .. } => error.to_string(),
            _ => self.call().map_or_else(|| self.to_string(), ToString::to_string),
        }
    }

    /// Whether the decision was based on an outdated object: its consequences are worth no write.
    pub fn is_stale(&self) -> bool {
        matches!(self, SyncError::Conflict { .. } | SyncError::Gone { .. } | SyncError::Overtaken { .. })
    }

    /// Whether to report it: the API server refused a write that should be possible.
    pub fn is_refusal(&self) -> bool {
        matches!(self, SyncError::Refused { .. } | SyncError::Json { .. })
    }

    /// Whether a quota refused it: there is room for more once a pod of the namespace ends. Other refusals, such as a
    /// policy's or a webhook's, do not end with a pod.
    pub fn is_over_quota(&self) -> bool {
        let SyncError::Refused { error, .. } = self else { return false };
        // As the API server's admission plugin words it; the reason is `Forbidden` for everything that is forbidden.
        error.is_forbidden() && error.to_string().contains("exceeded quota")
    }
}

impl SyncFailure for SyncError {
    fn label(&self) -> &'static str {
        match self {
            SyncError::Conflict { .. } => "conflict",
            SyncError::Gone { .. } => "gone",
            SyncError::NamespaceTerminating { .. } => "namespace_terminating",
            SyncError::OutcomeUnknown { .. } => "outcome_unknown",
            SyncError::Refused { error, .. } | SyncError::Unsent { error, .. } => error.label(),
            SyncError::NameTaken { .. } => "name_taken",
            SyncError::Overtaken { .. } => "overtaken",
            SyncError::Unread { .. } => "unread",
            SyncError::Json { .. } => "json",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            SyncError::OutcomeUnknown { error, .. } | SyncError::Refused { error, .. } => error.retry_after(),
            _ => None,
        }
    }

    /// No wake-up is needed for the key of a write that conflicts: the other write was in the cache before it was
    /// answered. The key may be that of a ReplicaSet whose pods were refused for an hour, with a backoff of a minute.
    fn retry_within(&self) -> Duration {
        match self {
            SyncError::Overtaken { .. } => SPACING,
            _ => Duration::MAX,
        }
    }

    /// A namespace is deleted after its objects, but their deletions may reach the caches in another order: that of a
    /// ReplicaSet first, so that its Deployment creates it once more.
    fn is_ordinary(&self) -> bool {
        self.call().is_some_and(ApiError::is_namespace_missing)
            || matches!(
                self,
                SyncError::Conflict { .. }
                    | SyncError::Gone { .. }
                    | SyncError::NamespaceTerminating { .. }
                    | SyncError::NameTaken { .. }
                    | SyncError::Overtaken { .. }
                    | SyncError::Unsent { error: ApiError::NotSent(_), .. }
            )
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answered(code: u16, reason: &str) -> ApiError {
        ApiError::Status(Status { code, ..Status::failure("no", reason) }.boxed())
    }

    fn classes(error: impl Fn() -> ApiError) -> (bool, bool) {
        let sorted = SyncError::api("creating", error());
        (sorted.is_refusal(), sorted.may_have_happened())
    }

    #[test]
    fn a_refusal_is_reported_even_if_the_write_may_have_happened() {
        let cases =
            [(400, false), (403, false), (405, false), (413, false), (422, false), (500, true), (503, true)];
        for (code, may_have_happened) in cases {
            assert_eq!(classes(|| answered(code, "Whatever")), (true, may_have_happened), "{code}");
        }
    }

    #[test]
    fn an_unknown_outcome_is_no_refusal() {
        assert_eq!(classes(|| ApiError::Timeout(Duration::from_secs(30))), (false, true));
        assert_eq!(classes(|| ApiError::CutOff("the lease ended")), (false, true));
        assert_eq!(classes(|| ApiError::NotSent("this process does not lead")), (false, false));
        assert_eq!(classes(|| answered(504, "Timeout")), (false, true));
        let unsent = SyncError::api("creating", ApiError::NotSent("this process does not lead"));
        assert!(matches!(unsent, SyncError::Unsent { .. }) && unsent.is_ordinary());
    }

    #[test]
    fn a_repeated_change_that_is_invalid_now_may_have_happened_by_the_first_attempt() {
        let invalid = |code| Status { code, ..Status::failure("no", "Invalid") }.boxed();
        let repeated = SyncError::api("rolling back", ApiError::Repeated(invalid(422)));
        assert!(matches!(repeated, SyncError::OutcomeUnknown { .. }));
        assert!(SyncError::api("rolling back", ApiError::Status(invalid(422))).is_refusal());
    }

    #[test]
    fn a_creation_that_meets_a_conflict_is_refused_and_a_change_is_out_of_date() {
        let conflict = || answered(409, "Conflict");
        assert!(SyncError::creation("creating", conflict()).is_refusal());
        assert!(SyncError::api("changing", conflict()).is_stale());
    }

    #[test]
    fn a_creation_in_a_deleted_namespace_is_reported_without_a_warning() {
        let missing = |kind: &str| {
            let details = serde_json::json!({"name": "zoo", "kind": kind});
            let status = Status { details: serde_json::from_value(details).ok(), ..Status::default() };
            ApiError::Status(Status { code: 404, reason: "NotFound".into(), ..status }.boxed())
        };
        let refused = SyncError::creation("creating", missing("namespaces"));
        assert!(refused.is_refusal() && refused.is_ordinary());
        assert!(!SyncError::creation("creating", missing("serviceaccounts")).is_ordinary());
    }
}
