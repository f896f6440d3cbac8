//! The eviction of one pod.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::{ENTRY, TaintEviction};
use crate::engine::error::SyncError;
use crate::model::{Node, ObjectKey, Pod, Record};
use crate::plan::taint_eviction::{self as planner, Active};

impl TaintEviction {
    /// The credible taints of a pod's node past the cache; `None` if there is no such node.
    pub(super) async fn live_taints(
        &self,
        pod: &Pod,
        node: &Arc<str>,
    ) -> Result<Option<Arc<[Active]>>, SyncError> {
        if let Some(taints) = self.memory.live(node) {
            return Ok(Some(taints));
        }
        let api = self.context.api_of_controller(&ENTRY, pod);
        let path = Node::RESOURCE.path_of(&ObjectKey::new("", node.clone()));
        match self.context.read_by::<Node>(&api, &path).await {
            Ok(live) => {
                let cached = self.nodes.get(&live.meta.key);
                Ok(Some(self.memory.was_read(&live, cached.as_deref(), self.context.now())))
            }
            Err(SyncError::Gone { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Marks a pod and deletes it gracefully. A pod that is gone needs nothing. A conflict is tried again: the pod has another UID,
    /// which the cache shows then, or the storage of the API server was busy, which nobody else would tell of.
    pub(super) async fn evict(&self, pod: &Pod, due: Timestamp) -> Result<(), SyncError> {
        let (context, meta) = (&self.context, &pod.meta);
        if self.memory.reports(&meta.uid) {
            context.record_event(ENTRY.component, pod, planner::eviction(pod));
        }
        let mark = planner::disrupted(pod, context.now()).filter(|_| !self.memory.is_marked(&meta.uid));
        if let Some(body) = mark {
            let what = || format!("marking pod {} as disrupted", meta.key);
            match context.patch_status_as::<Pod>(&ENTRY, pod, what, &meta.key, &body).await {
                Ok(_) => self.memory.mark(&meta.uid),
                Err(SyncError::Gone { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        match context.delete_as(&ENTRY, pod, pod, json!({"preconditions": {"uid": meta.uid}})).await {
            Ok(_) => {
                let late = context.now().duration_since(due);
                let metrics = &context.metrics.nodes;
                metrics.pod_deletions.inc();
                metrics
                    .pod_deletion_duration
                    .observe(Duration::try_from(late).unwrap_or(Duration::ZERO).as_secs_f64());
                tracing::info!(pod = %meta.key, "evicted a pod because of a taint of its node");
                Ok(())
            }
            Err(error) => Err(SyncError::api(format!("evicting pod {}", meta.key), error)),
        }
    }
}
