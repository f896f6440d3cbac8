//! Acts of chaos monkeys on pods.

use serde_json::{Value, json};

use super::{Actors, is_running};
use crate::engine::request_fault::OrderedFault;

impl Actors {
    pub(super) async fn edit_nth_pod(&self, nth: u32, metadata: Value) {
        if let Some(pod) = self.pod(nth) {
            self.edit_pod(&pod, metadata).await;
        }
    }

    pub(super) async fn delete_nth_pod(&self, nth: u32, options: Value) {
        if let Some(pod) = self.pod(nth) {
            self.delete_pod(&pod, options).await;
        }
    }

    pub(super) async fn ready(&self, nth: u32, ready: bool) {
        if let Some(pod) = self.pod(nth).filter(|pod| is_running(pod)) {
            self.set_ready(&pod, ready).await;
        }
    }

    pub(super) async fn fail(&self, nth: u32) {
        let Some(pod) = self.pod(nth) else { return };
        let now = self.server.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let unready = json!({"type": "Ready", "status": "False", "lastTransitionTime": now});
        self.pod_status(&pod, json!({"phase": "Failed", "conditions": [unready]})).await;
    }

    /// Deletes a pod; the creation of its replacement arrives late.
    pub(super) async fn replace_late(&self, nth: u32) {
        let Some(pod) = self.pod(nth) else { return };
        self.server.order(0, OrderedFault::AfterAbandoned);
        self.delete_pod(&pod, json!({})).await;
    }

    pub(super) async fn orphan_nth_terminating_pod(&self, nth: u32) {
        if let Some(pod) = self.pod(nth) {
            self.orphan_terminating(&pod).await;
        }
    }

    pub(super) async fn change_owner_of_nth_pod(&self, nth: u32) {
        if let Some(pod) = self.pod(nth) {
            self.change_owner(&pod).await;
        }
    }

    /// Gives a pod to an owner that does not exist: the garbage collector deletes it.
    pub(super) async fn change_owner(&self, pod: &Value) {
        let mut owners = pod["metadata"]["ownerReferences"].clone();
        if let Some(owner) = owners.get_mut(0) {
            owner["name"] = "another-owner".into();
            owner["uid"] = "00000000-0000-4000-8000-000000000000".into();
            self.edit_pod(pod, json!({"ownerReferences": owners})).await;
        }
    }

    /// Removes the owner reference of a pod while it terminates.
    pub(super) async fn orphan_terminating(&self, pod: &Value) {
        self.delete_pod(pod, json!({})).await;
        self.edit_pod(pod, json!({"ownerReferences": null})).await;
    }
}
