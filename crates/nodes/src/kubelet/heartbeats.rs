//! The heartbeats of the simulated nodes: each renews its Lease in `kube-node-lease`, as a kubelet does (KEP-589).
//!
//! Where the node lifecycle controller of kube-controller-manager runs, a node without heartbeats is reported as `Unknown`
//! after 50 seconds, gets taints, and loses its pods five minutes later. A node that was reported so while the simulator
//! was away, such as on a laptop that slept, is reported as ready again. A Ready condition that a user set stays: it has
//! another reason.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::Request,
};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::{Options, nodes};
use crate::api_client::{CallError, post, send};
use crate::reflector::{Change, follow, for_a_day};

/// The Leases of nodes; the API server creates the namespace.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// How many Leases are renewed at the same time.
const AT_ONCE: usize = 8;

/// For how many heartbeats a Lease counts: 40 s with the kubelet's 10 s.
const COUNTS_FOR: u64 = 4;

/// Renews the Leases of all simulated nodes, once in `every`, for ever.
pub(super) async fn run(client: &Client, options: &Options, every: Duration) {
    let mut changes = follow(Api::<Node>::all(client.clone()), for_a_day());
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Name and UID.
    let mut simulated: BTreeMap<String, String> = BTreeMap::new();
    let mut is_failing = false;
    loop {
        tokio::select! {
            biased;
            Some(change) = changes.next() => match change {
                Change::Put(node) => {
                    let Ok(node) = serde_json::to_value(node) else { continue };
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let (name, uid) = (text(&node["metadata"]["name"]), text(&node["metadata"]["uid"]));
                    if !nodes::is_simulated(&node) {
                        simulated.remove(&name);
                        continue;
                    }
                    if simulated.get(&name) != Some(&uid) {
                        // So that a new node does not wait for the next round.
                        report(renew(client, options, every, &name, &uid).await.err().into_iter(), &mut is_failing);
                        simulated.insert(name.clone(), uid);
                    }
                    if let Some(status) = nodes::revived(&node, (options.now)()) {
                        let patch = Patch::Merge(status);
                        let request = Request::new("/api/v1/nodes")
                            .patch_subresource("status", &name, &PatchParams::default(), &patch);
                        // A conflict comes with another version of the node, and any other failure with the next round
                        // of the node lifecycle controller.
                        if let Err(error) = send(client, request).await {
                            tracing::debug!(%error, node = name, "cannot report the node as ready again");
                        }
                    }
                }
                Change::Deleted(node) => drop(simulated.remove(&node.name)),
                Change::Synced => {}
            },
            _ = ticks.tick() => {
                let mut renewals: Vec<BoxFuture<'_, _>> = Vec::new();
                for (name, uid) in &simulated {
                    renewals.push(renew(client, options, every, name, uid).boxed());
                }
                let results: Vec<_> = stream::iter(renewals).buffer_unordered(AT_ONCE).collect().await;
                report(results.into_iter().filter_map(Result::err), &mut is_failing);
            }
        }
    }
}

/// Warns of the first of these failures, unless those before have not ended.
fn report(mut failures: impl Iterator<Item = CallError>, is_failing: &mut bool) {
    let first = failures.next();
    match &first {
        Some(error) if !*is_failing => {
            tracing::warn!(%error, "cannot renew the Leases of the simulated nodes; retrying");
        }
        Some(error) => tracing::debug!(%error, "cannot renew the Leases of the simulated nodes; retrying"),
        None => {}
    }
    *is_failing = first.is_some();
}

/// Renews the Lease of a node, or creates it.
async fn renew(
    client: &Client,
    options: &Options,
    every: Duration,
    name: &str,
    uid: &str,
) -> Result<(), CallError> {
    let now = (options.now)().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let spec = json!({"holderIdentity": name, "renewTime": now,
                      "leaseDurationSeconds": every.as_secs().max(1) * COUNTS_FOR});
    // With the owner: a node that was created again has another UID, and the collector would delete the Lease.
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]);
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owner}, "spec": spec}));
    let renewed = send(client, Request::new(LEASES).patch(name, &PatchParams::default(), &patch)).await;
    match renewed {
        Err(error) if error.names_absent(name) => {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                               "metadata": {"name": name, "ownerReferences": owner}, "spec": spec});
            send(client, post(LEASES.to_owned(), &lease)).await.map(drop)
        }
        other => other.map(drop),
    }
}
