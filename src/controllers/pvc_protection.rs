//! The protection of PersistentVolumeClaims: a claim that a pod uses is deleted only after the pod.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::context::Context;
use super::controller::{Controller, Executed, Settled};
use super::driver::{Driver, Worker};
use super::error::SyncError;
use super::patch;
use super::registry::{ControllerEntry, Requests};
use super::setup::{HandlerOrder, Setup};
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
        Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
    },
};

/// The protection of claims.
pub struct ClaimProtection {
    context: Arc<Context>,
    pods: Arc<Store<Pod>>,
}

impl Controller for ClaimProtection {
    type Object = PersistentVolumeClaim;
    type Status = ();
    type Observed<'a> = &'a PersistentVolumeClaim;
    type Plan = Protection;
    type Outcome = ();

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        // Pods change often, and are watched for others, too.
        if !setup.is_enabled(&ENTRY) {
            return;
        }
        let context = self.context.clone();
        setup.on_change(HandlerOrder::Indirect, move |change: &Change<Pod>| {
            let (before, after) = match change {
                Change::Added(pod) => (None, Some(&**pod)),
                Change::Updated { old, new } => (Some(&**old), Some(&**new)),
                Change::Deleted(pod) => (Some(&**pod), None),
            };
            let namespace = &change.object().meta.key.namespace;
            for claim in planner::freed(before, after) {
                let key = ObjectKey::new(namespace.clone(), claim);
                context.queue_of_controller(&ENTRY).add(key);
            }
        });
    }

    fn in_scope(&self, _: &PersistentVolumeClaim) -> bool {
        true
    }

    fn observe<'a>(&self, claim: &'a PersistentVolumeClaim, _: bool) -> &'a PersistentVolumeClaim {
        claim
    }

    fn plan(&self, claim: &&PersistentVolumeClaim) -> Protection {
        planner::of_claim(claim, || self.pods.in_namespace(&claim.meta.key.namespace))
    }

    fn writes(&self, plan: &Protection) -> bool {
        *plan != Protection::Keep
    }

    fn execute<'a>(
        &'a self,
        claim: &'a PersistentVolumeClaim,
        _: &'a &PersistentVolumeClaim,
        plan: &'a Protection,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move { Executed::new((), self.carry_out(claim, plan).await.err()) })
    }

    fn settle(&self, _: &&PersistentVolumeClaim, _: &Protection, _: &Executed<()>) -> Settled<()> {
        Settled::default()
    }

    fn status<'a>(&self, _: &'a PersistentVolumeClaim) -> &'a () {
        &()
    }
}

impl ClaimProtection {
    async fn carry_out(&self, claim: &PersistentVolumeClaim, plan: &Protection) -> Result<(), SyncError> {
        let finalizers = match plan {
            Protection::Keep => return Ok(()),
            Protection::Add(finalizers) => finalizers,
            Protection::Remove(finalizers) => {
                if self.is_used(claim).await? {
                    return Ok(());
                }
                finalizers
            }
        };
        let body = patch::finalizers(&claim.meta, finalizers);
        self.context.merge_as::<PersistentVolumeClaim>(&ENTRY, claim, &claim.meta.key, &body).await
    }

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
