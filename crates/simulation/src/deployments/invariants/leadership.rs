//! H1 and H4: a daemon that writes has renewed within the deadline, and does not write again after another has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::deployments::scenario::{Scenario, Skew};
use crate::engine::breach::Breach;
use crate::engine::call::{Call, daemon_of};

/// The renew deadline of the default options, by a right clock.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// After this time another daemon may act. It counts from when it saw the last renewal, which is later, by a right
/// clock: see [`Skew::speed`].
const LEASE_DURATION: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(super) struct Leadership {
    election: bool,
    clocks: Vec<Skew>,
    renewed: BTreeMap<String, Duration>,
    released: BTreeSet<String>,
    terms: Vec<String>,
}

impl Leadership {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let clocks = scenario.clocks.clone();
        Leadership { election: scenario.election, clocks, ..Leadership::default() }
    }

    /// How long after a renewal a daemon may act: ten seconds by its own clock.
    fn deadline(&self, agent: &str) -> Duration {
        let skew = daemon_of(agent).and_then(|daemon| self.clocks.get(daemon)).copied();
        skew.unwrap_or_default().takes_for(RENEW_DEADLINE)
    }

    pub(super) fn renewed(&mut self, at: Duration, call: &Call) {
        if call.body["spec"]["holderIdentity"] == "" {
            self.released.insert(call.agent.to_string());
        } else {
            self.renewed.insert(call.agent.to_string(), at);
        }
    }

    pub(super) fn sent(&mut self, at: Duration, call: &Call) -> Result<(), Breach> {
        // A standby reports its own end; events change no workload.
        if !self.election || !call.is_workload_write() {
            return Ok(());
        }
        let agent = call.agent.to_string();
        let breach = |invariant, what: String| Err(Breach::new(invariant, format!("{what}: {call}")));
        let Some(renewed) = self.renewed.get(&agent) else {
            return breach("H4", "writes without having been elected".into());
        };
        if at >= *renewed + self.deadline(&agent) {
            return breach("H1", format!("writes although it last renewed at {renewed:?}"));
        }
        if self.released.contains(&agent) {
            return breach("H4", "writes after it released the Lease".into());
        }
        let holds = |other: &&String, renewed: Duration| {
            **other != agent && !self.released.contains(*other) && at < renewed + LEASE_DURATION
        };
        if let Some((other, renewed)) = self.renewed.iter().find(|(other, at)| holds(other, **at)) {
            return breach("H1", format!("writes while {other} holds the Lease, renewed at {renewed:?}"));
        }
        if self.terms.last() != Some(&agent) {
            if self.terms.contains(&agent) {
                return breach("H1", format!("two leaders, {:?}", self.terms));
            }
            self.terms.push(agent);
        }
        Ok(())
    }

    /// A daemon's call has ended: at the end of the term it must have been cut off.
    pub(super) fn over(&self, at: Duration, agent: &str) -> Result<(), Breach> {
        match self.renewed.get(agent) {
            Some(renewed) if self.election && at > *renewed + self.deadline(agent) => {
                let what = format!(
                    "a call of {agent} is still open at {at:?}, although it last renewed at {renewed:?}"
                );
                Err(Breach::new("H1", what))
            }
            _ => Ok(()),
        }
    }
}
