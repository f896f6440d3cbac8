//! How a history ended.

use std::fmt;
use std::time::Duration;

use super::breach::Breach;
use super::log::Entry;
use super::objects::Picture;

/// How a history ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first breach, if any.
    pub failure: Option<Breach>,
    /// A fingerprint of the whole log.
    pub digest: u64,
    /// The log, if it was kept.
    pub log: Vec<Entry>,
    /// The objects at the breach, or at the end.
    pub picture: Picture,
    /// Requests of all clients. This and the two times below include histories that it is compared with.
    pub requests: u64,
    /// The daemons' writes about workloads.
    pub writes: u64,
    /// Virtual time of the whole history.
    pub lasted: Duration,
    /// Virtual time until the cluster was settled.
    pub busy: Duration,
}

/// The result in one line.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            Some(failure) => write!(f, "{failure}"),
            None => write!(f, "passed"),
        }
    }
}
