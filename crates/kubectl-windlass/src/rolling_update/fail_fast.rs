//! `--fail-fast`: whether new pods fail for good.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::api::Api;
use crate::rollout::failing_pods::FailingPods;
use crate::rollout::live::events_of;
use crate::rollout::pods::{PodView, SHOWN};

/// How long every new pod that is not ready must have been failing.
const FAILING_FOR: Duration = Duration::from_secs(30);

/// How long events are kept before they are read again.
const EVENTS_KEPT: Duration = Duration::from_secs(10);

/// Since when new pods have been failing, and what their events say: a registry's answer stands in events alone.
#[derive(Default)]
pub(super) struct Failing {
    pods: FailingPods,
    events: BTreeMap<String, Vec<Value>>,
    read: Option<Instant>,
}

impl Failing {
    /// The reason that keeps every new pod that is not ready from starting, once it has for long enough. `pods`
    /// describes the new pods by their events.
    pub(super) async fn lasting(
        &mut self,
        api: &Api,
        namespace: &str,
        pods: impl Fn(&BTreeMap<String, Vec<Value>>) -> Vec<PodView>,
    ) -> Option<String> {
        if self.read.is_none_or(|read| read.elapsed() >= EVENTS_KEPT) {
            let all = pods(&self.events);
            let failing: Vec<&PodView> = all.iter().filter(|pod| is_in_the_way(pod)).take(SHOWN).collect();
            if !failing.is_empty() {
                self.read = Some(Instant::now());
            }
            for pod in failing {
                // Without them, the states of the pods count alone.
                let Ok(events) = events_of(api, namespace, &pod.uid).await else { break };
                self.events.insert(pod.uid.clone(), events);
            }
        }
        let all = pods(&self.events);
        let unready: Vec<&PodView> = all.iter().filter(|pod| !pod.is_ready && !pod.is_deleting).collect();
        self.pods.note(&unready, api.now());
        self.pods.lasting(&unready, api.now(), FAILING_FOR)
    }
}

/// Whether a pod fails that is not being deleted.
fn is_in_the_way(pod: &PodView) -> bool {
    pod.is_failing && !pod.is_deleting
}
