//! C1: what a rollout may cost where there are no faults, and that the daemon's controllers never cause conflicts
//! with each other.

use std::time::Duration;

use super::scenario::Act;
use super::server::{Cost, Server};
use crate::engine::breach::Breach;

/// Events have a budget of their own.
const EVENTS: u64 = 35;

/// The cost of one change of a Deployment.
#[derive(Debug)]
pub struct ChangeCost {
    change: String,
    before: Cost,
    /// The most pods that the Deployment had or wants.
    replicas: u64,
    since: Duration,
    lasted: Duration,
}

impl ChangeCost {
    /// The change is made now.
    pub fn begin(server: &Server, act: &Act) -> Self {
        let wished = match act {
            Act::Create { replicas, .. } | Act::Scale { replicas, .. } => u64::from(*replicas),
            _ => 0,
        };
        let (before, since) = (server.cost(), server.start.elapsed());
        let replicas = server.largest_deployment().max(wished);
        ChangeCost { change: format!("{act:?}"), before, replicas, since, lasted: Duration::ZERO }
    }

    /// The change is rolled out now; later calls still count, but not the time.
    pub fn fulfilled(&mut self, server: &Server) {
        self.lasted = server.start.elapsed().saturating_sub(self.since);
    }

    /// Nothing is left to do for the change.
    ///
    /// # Errors
    /// When it cost more than it may.
    pub fn end(&self, server: &Server) -> Result<(), Breach> {
        let cost = server.cost();
        let calls = cost.calls - self.before.calls;
        let conflicts = cost.conflicts - self.before.conflicts;
        let allowed = allowed(self.replicas, self.lasted, cost.scalings - self.before.scalings);
        let ChangeCost { change, lasted, .. } = self;
        if conflicts > 0 {
            return Err(Breach::new("C1", format!("{conflicts} conflicts without another writer: {change}")));
        }
        if calls > allowed {
            let what = format!("{calls} calls in {lasted:?}, {allowed} allowed: {change}");
            return Err(Breach::new("C1", what));
        }
        Ok(())
    }
}

/// `2R + W + 1 + 3 x (max(T/1 s, waves) + 2) + 35`, where W is two scalings per wave or second. There are at most R +
/// 1 waves.
///
/// Each wave has three statuses that are needed: those of the ReplicaSet that shrinks and of the one that grows, and
/// the one that reports its pods as available. Where pods are ready within less than a second there are more waves
/// than seconds. The waves that occurred are allowed for, not those that could have occurred.
fn allowed(replicas: u64, time: Duration, scalings: u64) -> u64 {
    let seconds = time.as_secs() + 1;
    let most = replicas + 1;
    let waves = (scalings / 2).min(most);
    2 * replicas + 2 * most.max(seconds) + 1 + 3 * (seconds.max(waves) + 2) + EVENTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_grows_with_the_pods_and_with_the_time() {
        assert_eq!(allowed(3, Duration::ZERO, 0), 6 + 8 + 1 + 9 + 35);
        assert_eq!(allowed(3, Duration::from_secs(9), 8), 6 + 20 + 1 + 36 + 35);
    }

    #[test]
    fn the_bound_grows_with_the_waves_that_occurred_up_to_a_limit() {
        let at_once = |scalings| allowed(3, Duration::ZERO, scalings);
        assert_eq!(at_once(2), at_once(0));
        assert_eq!(at_once(6), at_once(0) + 6);
        assert_eq!(at_once(800), at_once(8));
    }
}
