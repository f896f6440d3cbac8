//! How many calls the daemons have sent. [`cost`](crate::deployments::cost) says how many they may.

use crate::engine::call::Call;

/// The calls of the daemons so far, without watches and the Lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// All calls.
    pub calls: u64,
    /// How many of them are events about workloads.
    pub events: u64,
    /// How many of them set the size of a ReplicaSet.
    pub scalings: u64,
    /// How many of them changed nothing, because another writer was faster.
    pub conflicts: u64,
}

impl Cost {
    /// Counts a request.
    pub fn sent(&mut self, call: &Call) {
        let counts = call.of_daemon() && !call.watch && call.resource != "leases";
        self.calls += u64::from(counts);
        let scales = call.resource == "replicasets" && call.body["spec"]["replicas"].is_u64();
        self.scalings += u64::from(counts && scales);
        let tells = call.resource == "events" && call.body["involvedObject"]["kind"] != "Lease";
        self.events += u64::from(counts && tells);
    }

    /// Counts a conflict.
    pub fn refused(&mut self, call: &Call) {
        self.conflicts += u64::from(call.of_daemon() && call.is_workload_write());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_and_the_lease_cost_nothing() {
        let mut cost = Cost::default();
        let paths = [
            "/apis/apps/v1/deployments?watch=true",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/windlass",
            "/api/v1/namespaces/shop/pods/web",
        ];
        for path in paths {
            let (parts, ()) = http::Request::get(path).body(()).unwrap().into_parts();
            for agent in ["d0.1", "user"] {
                let call = Call::new(agent.into(), &parts, b"");
                cost.sent(&call);
                cost.refused(&call);
            }
        }
        // None of them would change anything.
        assert_eq!(cost, Cost { calls: 1, ..Cost::default() });
    }
}
