//! The protection of PersistentVolumes: a volume that is bound to a claim is not deleted.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::context::Context;
use super::controller::{Controller, Executed, Settled};
use super::driver::{Driver, Worker};
use super::patch;
use super::registry::{ControllerEntry, Requests};
use super::setup::Setup;
use crate::model::{PersistentVolume, Record};
use crate::plan::protection::{self as planner, Protection};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "persistentvolume-protection-controller",
    aliases: &["pv-protection"],
    kind: PersistentVolume::RESOURCE,
    objects: "PersistentVolumes",
    flag: "concurrent-pv-protection-syncs",
    workers: 1,
    queue: "pvprotection",
    component: "persistentvolume-protection-controller",
    watches: &[PersistentVolume::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install: |setup: &mut Setup| -> Box<dyn Worker> {
        let controller = VolumeProtection { context: setup.context().clone() };
        Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
    },
};

/// The protection of volumes.
pub struct VolumeProtection {
    context: Arc<Context>,
}

impl Controller for VolumeProtection {
    type Object = PersistentVolume;
    type Status = ();
    type Observed<'a> = &'a PersistentVolume;
    type Plan = Protection;
    type Outcome = ();

    fn in_scope(&self, _: &PersistentVolume) -> bool {
        self.context.settings().scope.includes_the_cluster()
    }

    fn observe<'a>(&self, volume: &'a PersistentVolume, _: bool) -> &'a PersistentVolume {
        volume
    }

    fn plan(&self, volume: &&PersistentVolume) -> Protection {
        planner::of_volume(volume)
    }

    fn writes(&self, plan: &Protection) -> bool {
        *plan != Protection::Keep
    }

    fn execute<'a>(
        &'a self,
        volume: &'a PersistentVolume,
        _: &'a &PersistentVolume,
        plan: &'a Protection,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move {
            let finalizers = match plan {
                Protection::Keep => return Executed::new((), None),
                Protection::Add(finalizers) | Protection::Remove(finalizers) => finalizers,
            };
            let body = patch::finalizers(&volume.meta, finalizers);
            let key = &volume.meta.key;
            let written = self.context.merge_as::<PersistentVolume>(&ENTRY, volume, key, &body).await;
            Executed::new((), written.err())
        })
    }

    fn settle(&self, _: &&PersistentVolume, _: &Protection, _: &Executed<()>) -> Settled<()> {
        Settled::default()
    }

    fn status<'a>(&self, _: &'a PersistentVolume) -> &'a () {
        &()
    }
}
