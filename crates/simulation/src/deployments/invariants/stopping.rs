//! L10: a daemon that got the signal to stop finishes its running syncs, and begins no other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::breach::Breach;
use crate::engine::call::Call;

/// The open calls, and the daemons that have to stop.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    /// How many calls of an agent are open.
    under_way: BTreeMap<Arc<str>, u32>,
    /// Which agents got the signal to stop, and since when they have had no open call.
    signalled: BTreeMap<Arc<str>, Option<Duration>>,
}

impl Stopping {
    /// A daemon gets the signal to stop.
    pub(super) fn signalled(&mut self, at: Duration, agent: &str) {
        let is_idle = self.under_way.get(agent).is_none_or(|calls| *calls == 0);
        self.signalled.insert(agent.into(), is_idle.then_some(at));
    }

    /// A call begins. The calls of a sync follow each other at the same instant.
    pub(super) fn begins(&mut self, at: Duration, call: &Call) -> Result<(), Breach> {
        *self.under_way.entry(call.agent.clone()).or_default() += 1;
        let Some(idle) = self.signalled.get_mut(&call.agent) else { return Ok(()) };
        match *idle {
            Some(since) if since < at && call.is_workload_write() => {
                Err(Breach::new("L10", format!("a sync that begins after the signal to stop: {call}")))
            }
            Some(since) if since < at => Ok(()),
            _ => {
                *idle = None;
                Ok(())
            }
        }
    }

    /// A call has ended, with whatever result.
    pub(super) fn ends(&mut self, at: Duration, agent: &str) {
        let Some(calls) = self.under_way.get_mut(agent) else { return };
        *calls = calls.saturating_sub(1);
        if *calls == 0
            && let Some(idle) = self.signalled.get_mut(agent)
        {
            idle.get_or_insert(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        let path = "/apis/apps/v1/namespaces/shop/replicasets/web";
        let (parts, ()) = http::Request::patch(path).body(()).unwrap().into_parts();
        Call::new("d0.1".into(), &parts, b"{}")
    }

    #[test]
    fn a_running_sync_may_finish_after_the_signal_and_no_other_begins() {
        let (mut stopping, at) = (Stopping::default(), Duration::from_secs);
        assert_eq!(stopping.begins(at(1), &call()), Ok(()));
        stopping.signalled(at(2), "d0.1");
        stopping.ends(at(3), "d0.1");
        assert_eq!(stopping.begins(at(3), &call()), Ok(()), "the same sync");
        stopping.ends(at(4), "d0.1");
        assert!(stopping.begins(at(5), &call()).is_err());
    }

    #[test]
    fn an_idle_daemon_begins_no_sync_after_the_signal() {
        let (mut stopping, at) = (Stopping::default(), Duration::from_secs);
        stopping.signalled(at(2), "d0.1");
        assert!(stopping.begins(at(3), &call()).is_err());
    }
}
