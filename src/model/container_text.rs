//! Text that a container wrote, which may be confidential.

use std::fmt;
use std::sync::Arc;

/// The termination message of a container: the end of its log, or a file of its own.
///
/// It may hold a connection string or a key that the program printed when it crashed, and whoever may read a
/// Deployment or a log collector need not be allowed to read that pod's log. So `Debug` and `Display` do not
/// show it, it does not serialize, and [`reveal`](Self::reveal) is for answers to authorized requests only.
#[derive(Clone, PartialEq, Eq)]
pub struct ContainerText(Arc<str>);

impl ContainerText {
    /// Keeps a text.
    pub fn new(text: Arc<str>) -> Self {
        ContainerText(text)
    }

    /// The text, for authenticated clients that may read it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for ContainerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<not shown>")
    }
}

impl fmt::Display for ContainerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
