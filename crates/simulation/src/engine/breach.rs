//! A broken invariant.

use std::fmt;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Its code in the list of invariants, such as "S11".
    pub invariant: &'static str,
    /// A description of the event.
    pub what: String,
}

impl Breach {
    /// A breach of `invariant`.
    pub fn new(invariant: &'static str, what: impl Into<String>) -> Self {
        Breach { invariant, what: what.into() }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}
