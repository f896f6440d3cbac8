//! Which changes concern the budgets of a pod.

use std::sync::Arc;

use crate::model::{ControllerRef, Pod};

/// Whether a change of a pod concerns the budgets that select it or did. `None` stands for a pod that does not exist.
pub fn is_concerned(old: Option<&Pod>, new: Option<&Pod>) -> bool {
    let content = |pod: &Pod| {
        let meta = &pod.meta;
        let labels_and_owner = (meta.labels.clone(), meta.controller.clone());
        (meta.uid.clone(), meta.is_deleting(), pod.ready_since.is_some(), labels_and_owner)
    };
    old.map(content) != new.map(content)
}

/// The part of a workload that budgets depend on: its replicas and its controller.
pub type WorkloadScale = (i32, Option<Arc<ControllerRef>>);

/// Whether a change of a workload concerns the budgets of its pods. `None` stands for one that does not exist.
pub fn changes_scale(old: Option<WorkloadScale>, new: Option<WorkloadScale>) -> bool {
    old != new
}
