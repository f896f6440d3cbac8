//! Why a sync could not be finished. Every error is retried; none drops a key.

use std::time::Duration;

use crate::runtime::api::ApiError;
use crate::runtime::worker::SyncFailure;

/// What ended a sync before its time.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The object has changed since the cache saw it; the retry sees the new state.
    #[error("{what}: {error}")]
    Conflict {
        /// What was being done.
        what: String,
        /// What the API server said.
        error: ApiError,
    },
    /// The object is gone; the cache will show it.
    #[error("{what}: {error}")]
    Gone {
        /// What was being done.
        what: String,
        /// What the API server said.
        error: ApiError,
    },
    /// The namespace is on its way out; nothing can be created in it.
    #[error("{what}: {error}")]
    NamespaceTerminating {
        /// What was being done.
        what: String,
        /// What the API server said.
        error: ApiError,
    },
    /// Nobody knows whether the write happened. It is looked up before anything else is decided.
    #[error("{what}: {error}; whether it happened is not known yet")]
    OutcomeUnknown {
        /// What was being done.
        what: String,
        /// What went wrong.
        error: ApiError,
    },
    /// The API server refused: a quota, a webhook, a missing right.
    #[error("{what}: {error}")]
    Refused {
        /// What was being done.
        what: String,
        /// What the API server said.
        error: ApiError,
    },
    /// Another write of ours to the same object is under way, or has not reached the cache yet.
    #[error("{what}: another write of ours comes first; it is tried again when that is seen")]
    Overtaken {
        /// What was being done.
        what: String,
    },
    /// The name of the new set was taken; the next sync tries the next name.
    #[error("the name {name:?} is taken by a ReplicaSet that is not ours")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// An object could not be written as JSON, or an answer was not what it should be.
    #[error("{what}: {error}")]
    Json {
        /// What was being done.
        what: String,
        /// What was wrong.
        error: serde_json::Error,
    },
}

impl SyncError {
    /// Sorts an error of the API by what it means for the sync.
    pub fn api(what: impl Into<String>, error: ApiError) -> Self {
        let what = what.into();
        if error.is_conflict() {
            SyncError::Conflict { what, error }
        } else if error.is_not_found() {
            SyncError::Gone { what, error }
        } else if error.is_namespace_terminating() {
            SyncError::NamespaceTerminating { what, error }
        } else if error.outcome_unknown() {
            SyncError::OutcomeUnknown { what, error }
        } else {
            SyncError::Refused { what, error }
        }
    }

    /// What the API server said, without our own words.
    pub fn reason(&self) -> String {
        match self {
            SyncError::Conflict { error, .. }
            | SyncError::Gone { error, .. }
            | SyncError::NamespaceTerminating { error, .. }
            | SyncError::OutcomeUnknown { error, .. }
            | SyncError::Refused { error, .. } => error.to_string(),
            SyncError::NameTaken { .. } | SyncError::Overtaken { .. } => self.to_string(),
            SyncError::Json { error, .. } => error.to_string(),
        }
    }

    /// Whether it was decided on what is no longer so: nothing that follows from it is worth a write.
    pub fn is_stale(&self) -> bool {
        matches!(self, SyncError::Conflict { .. } | SyncError::Gone { .. } | SyncError::Overtaken { .. })
    }

    /// Whether somebody should be told: the API server said no to something that ought to be possible.
    pub fn is_refusal(&self) -> bool {
        matches!(self, SyncError::Refused { .. } | SyncError::Json { .. })
    }
}

impl SyncFailure for SyncError {
    fn label(&self) -> &'static str {
        match self {
            SyncError::Conflict { .. } => "conflict",
            SyncError::Gone { .. } => "gone",
            SyncError::NamespaceTerminating { .. } => "namespace_terminating",
            SyncError::OutcomeUnknown { .. } => "outcome_unknown",
            SyncError::Refused { error, .. } => error.label(),
            SyncError::NameTaken { .. } => "name_taken",
            SyncError::Overtaken { .. } => "overtaken",
            SyncError::Json { .. } => "json",
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            SyncError::OutcomeUnknown { error, .. } | SyncError::Refused { error, .. } => error.retry_after(),
            _ => None,
        }
    }

    fn is_ordinary(&self) -> bool {
        matches!(
            self,
            SyncError::Conflict { .. }
                | SyncError::Gone { .. }
                | SyncError::NamespaceTerminating { .. }
                | SyncError::NameTaken { .. }
                | SyncError::Overtaken { .. }
        )
    }
}
