//! The values of flags, and why one cannot be used.

use std::time::Duration;

/// A flag that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A value that is not allowed.
    #[error("--{flag} must be {allowed}; it is {given}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// The values that are allowed.
        allowed: String,
        /// The value that was given.
        given: String,
    },
    /// Flags that cannot go together.
    #[error("{0}")]
    Contradiction(String),
}

pub(super) fn error(flag: &'static str, allowed: impl Into<String>, given: impl ToString) -> ConfigError {
    ConfigError::Value { flag, allowed: allowed.into(), given: given.to_string() }
}

pub(super) fn contradiction(text: impl Into<String>) -> ConfigError {
    ConfigError::Contradiction(text.into())
}

/// Reads a duration as Go writes it: `10s`, `1m30s`, `500ms`, and `0`.
pub(super) fn duration(flag: &'static str, given: &str) -> Result<Duration, ConfigError> {
    if given == "0" {
        return Ok(Duration::ZERO);
    }
    given
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| error(flag, "a duration such as 10s or 1m30s", format!("{given:?}")))
}

/// Whether a namespace or another object may have this name (RFC 1123, as the API server checks it).
pub(super) fn is_dns_name(name: &str, longest: usize, dots: bool) -> bool {
    let is_label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= longest && if dots { name.split('.').all(is_label) } else { is_label(name) }
}
