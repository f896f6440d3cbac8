//! Faults that begin with a certain write of a daemon and not at a certain time: so every position among the daemon's
//! writes can be visited. See [`exhaustive`](super::exhaustive).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::bounds::resource;
use crate::engine::replay::StaticName;

/// A fault that begins with a daemon's n-th write about workloads, counted from 1 over all its incarnations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CrashPoint {
    /// The daemon is killed at this write: after it was carried out and before the reply, or before it arrives.
    Crash {
        /// The daemon.
        daemon: usize,
        /// Which write.
        write: u32,
        /// Whether the write is carried out.
        carried_out: bool,
    },
    /// From right before the write, the daemon's watch of a resource shows nothing new for a while.
    Lag {
        /// The daemon.
        daemon: usize,
        /// The resource in the plural.
        #[serde(deserialize_with = "resource")]
        resource: StaticName,
        /// Which write.
        write: u32,
        /// For how long.
        milliseconds: u32,
    },
}

/// The crash points of a history, and how many writes each daemon has sent.
#[derive(Debug, Default)]
pub struct CrashPoints {
    points: Vec<CrashPoint>,
    writes: BTreeMap<usize, u32>,
    lags: BTreeMap<(usize, &'static str), Instant>,
}

impl CrashPoints {
    /// None of `points` is reached yet.
    pub fn new(points: Vec<CrashPoint>) -> Self {
        CrashPoints { points, ..CrashPoints::default() }
    }

    /// A daemon sends its next write. If the daemon is killed at it, returns whether the write is carried out.
    pub fn reach(&mut self, daemon: usize) -> Option<bool> {
        if self.points.is_empty() {
            return None;
        }
        let count = self.writes.entry(daemon).or_default();
        *count += 1;
        let (count, mut crash) = (*count, None);
        for point in &self.points {
            match *point {
                CrashPoint::Crash { daemon: whose, write, carried_out }
                    if (whose, write) == (daemon, count) =>
                {
                    crash = Some(carried_out);
                }
                CrashPoint::Lag { daemon: whose, resource, write, milliseconds }
                    if (whose, write) == (daemon, count) =>
                {
                    let until = Instant::now() + Duration::from_millis(milliseconds.into());
                    self.lags.insert((daemon, resource), until);
                }
                _ => {}
            }
        }
        crash
    }

    /// Until when a daemon's watch of a resource shows nothing new.
    pub fn held_until(&self, daemon: usize, resource: &str) -> Option<Instant> {
        let mut lags = self.lags.iter();
        lags.find(|((whose, what), _)| (*whose, *what) == (daemon, resource)).map(|(_, until)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_comes_with_its_write_and_once() {
        let crash = CrashPoint::Crash { daemon: 0, write: 2, carried_out: true };
        let mut points = CrashPoints::new(vec![crash]);
        assert_eq!(points.reach(1), None);
        assert_eq!(points.reach(0), None);
        assert_eq!(points.reach(0), Some(true));
        assert_eq!(points.reach(0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stale_window_begins_with_its_write() {
        let lag = CrashPoint::Lag { daemon: 0, resource: "pods", write: 2, milliseconds: 500 };
        let mut points = CrashPoints::new(vec![lag]);
        points.reach(0);
        assert_eq!(points.held_until(0, "pods"), None);
        points.reach(0);
        assert_eq!(points.held_until(0, "pods"), Some(Instant::now() + Duration::from_millis(500)));
        assert_eq!(points.held_until(0, "replicasets"), None);
        assert_eq!(points.held_until(1, "pods"), None);
    }
}
