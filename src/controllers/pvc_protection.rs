//! The protection of PersistentVolumeClaims: a claim that a pod uses is deleted only after the pod.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::patch;
use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::error::SyncError;
use crate::engine::one_write::{OneWrite, install};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{ObjectKey, PersistentVolumeClaim, Pod, Record};
use crate::plan::protection::{self as planner, Protection};
use crate::runtime::live_list;
use crate::runtime::store::{Change, Store};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "persistentvolumeclaim-protection-controller",
    aliases: &["pvc-protection"],
    kind: PersistentVolumeClaim::RESOURCE,
    objects: "PersistentVolumeClaims",
    flag: "concurrent-pvc-protection-syncs",
    workers: 1,
    queue: "pvcprotection",
    component: "persistentvolumeclaim-protection-controller",
    watches: &[PersistentVolumeClaim::RESOURCE, Pod::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install: |setup: &mut Setup| -> Box<dyn Worker> {
        let context = setup.context().clone();
        let controller = ClaimProtection { pods: context.store(), context };
        install(controller, &ENTRY, setup)
    },
};

/// The protection of claims.
pub struct ClaimProtection {
    context: Arc<Context>,
    pods: Arc<Store<Pod>>,
}

impl OneWrite for ClaimProtection {
    type Object = PersistentVolumeClaim;
    type Write = Protection;

    fn watch(&self, setup: &mut Setup) {
        // Pods change often, and are watched for others, too.
        if !setup.is_enabled(&ENTRY) {
            return;
        }
        let context = self.context.clone();
        setup.on_change(HandlerOrder::Indirect, move |change: &Change<Pod>| {
            let (before, after) = change.states();
            let namespace = &change.object().meta.key.namespace;
            for claim in planner::freed(before, after) {
                let key = ObjectKey::new(namespace.clone(), claim.clone());
                context.queue_of_controller(&ENTRY).add(key);
            }
        });
    }

    fn in_scope(&self, _: &PersistentVolumeClaim) -> bool {
        true
    }

    fn decide(&self, claim: &PersistentVolumeClaim) -> Option<Protection> {
        let plan = planner::of_claim(claim, || self.pods.in_namespace(&claim.meta.key.namespace));
        (plan != Protection::Keep).then_some(plan)
    }

    fn write<'a>(
        &'a self,
        claim: &'a PersistentVolumeClaim,
        plan: &'a Protection,
    ) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async move {
            let finalizers = match plan {
                Protection::Keep => return Ok(()),
                Protection::Add(finalizers) => finalizers,
                Protection::Remove(_) if self.is_used(claim).await? => return Ok(()),
                Protection::Remove(finalizers) => finalizers,
            };
            let body = patch::finalizers(&claim.meta, finalizers);
            self.context.merge_as::<PersistentVolumeClaim>(&ENTRY, claim, &claim.meta.key, &body).await
        })
    }
}

impl ClaimProtection {
    /// Whether a pod uses a claim, past the cache. The change that sets the claim free wakes it again.
    async fn is_used(&self, claim: &PersistentVolumeClaim) -> Result<bool, SyncError> {
        let api = self.context.api_of_controller(&ENTRY, claim);
        let namespace = &claim.meta.key.namespace;
        let used = live_list::any::<Pod>(&api, namespace, |pod| planner::uses(pod, claim)).await;
        used.map_err(|error| {
            SyncError::api(format!("listing the pods that may use {}", claim.meta.key), error)
        })
    }
}
