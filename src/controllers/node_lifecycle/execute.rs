//! The writes for one node: its conditions, taints and labels, and the readiness of its pods.

use futures::StreamExt as _;

use super::{ENTRY, NodeLifecycle};
use crate::engine::error::SyncError;
use crate::engine::execute::{AT_ONCE, first_open};
use crate::model::lease::NODE_LEASES;
use crate::model::{Lease, Node, ObjectKey, Pod, Record};
use crate::plan::node_lifecycle::{self as planner, Plan, pods, zones};

impl NodeLifecycle {
    /// Executes the plan for a node, and remembers it once all is written.
    pub(super) async fn carry_out(&self, node: &Node, plan: &Plan) -> Result<(), SyncError> {
        if plan.is_lost {
            self.report_lost(node).await?;
        }
        if plan.taints.is_some() || !plan.labels.is_empty() {
            let body = planner::node_patch(&node.meta, plan.taints.as_ref(), &plan.labels);
            self.context.merge_as::<Node>(&ENTRY, node, &node.meta.key, &body).await?;
        }
        if plan.taints.as_ref().is_some_and(|change| change.begins_eviction) {
            let zone = self.zone_labels.of(&zones::zone_of(node).into());
            self.context.metrics().nodes.evictions.with_label_values(&[&*zone]).inc();
            tracing::info!(node = %node.meta.key.name, "the pods of a node that is not ready will be evicted");
        }
        let calls =
            plan.pods.iter().cloned().map(|pod| async move { self.report_not_ready(node, &pod).await });
        let results: Vec<Result<(), SyncError>> =
            futures::stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
        // Told once: a sync that failed is repeated as a whole.
        if let Some(error) = first_open(results.into_iter().filter_map(Result::err)) {
            return Err(error);
        }
        if let Some(uid) = &plan.replaced {
            self.record_removal(&node.meta.key, uid.clone());
        }
        for event in &plan.events {
            self.context.record_event(ENTRY.component, node, event.clone());
        }
        self.memory.known.lock().insert(node.meta.key.clone(), planner::remember(node));
        Ok(())
    }

    /// Reports a silent node as unknown, unless its Lease has been renewed: then it is this cache that was silent.
    async fn report_lost(&self, node: &Node) -> Result<(), SyncError> {
        let name = &node.meta.key.name;
        let api = self.context.api_of_controller(&ENTRY, node);
        let lease = Lease::RESOURCE.path_of(&ObjectKey::new(NODE_LEASES, name.clone()));
        match self.context.read_by::<Lease>(&api, &lease).await {
            Ok(lease) => {
                if self.memory.health.lock().lease(name, lease.renew_time, self.elapsed()) {
                    return Ok(());
                }
            }
            Err(SyncError::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
        let body = planner::lost_status(node, self.context.now());
        let what = || format!("reporting that node {name} is silent");
        let written = self.context.patch_status_as::<Node>(&ENTRY, node, what, &node.meta.key, &body).await;
        match written {
            Ok(version) => {
                self.context.expect_write(node, Node::RESOURCE, version);
                tracing::warn!(node = %name, "the kubelet of a node has stopped posting its status");
                Ok(())
            }
            Err(SyncError::Gone { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn report_not_ready(&self, node: &Node, pod: &Pod) -> Result<(), SyncError> {
        let key = &pod.meta.key;
        let body = pods::status(pod, self.context.now());
        let what = || format!("reporting that pod {key} is not ready");
        match self.context.patch_status_as::<Pod>(&ENTRY, node, what, key, &body).await {
            Ok(version) => {
                self.context.expect_write(node, Pod::RESOURCE, version);
                self.context.record_event(ENTRY.component, pod, pods::not_ready());
                self.memory.reported(node, &pod.meta.uid);
                Ok(())
            }
            // A pod that is gone needs nothing.
            Err(SyncError::Gone { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
