//! The protection of PersistentVolumes: a volume that is bound to a claim is not deleted.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::patch;
use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::one_write::{OneWrite, install};
use crate::engine::setup::Setup;
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
        install(controller, &ENTRY, setup)
    },
};

/// The protection of volumes.
pub struct VolumeProtection {
    context: Arc<Context>,
}

impl OneWrite for VolumeProtection {
    type Object = PersistentVolume;
    type Write = Arc<[Arc<str>]>;

    fn in_scope(&self, _: &PersistentVolume) -> bool {
        self.context.settings().scope.includes_the_cluster()
    }

    fn decide(&self, volume: &PersistentVolume) -> Option<Self::Write> {
        match planner::of_volume(volume) {
            Protection::Keep => None,
            Protection::Add(finalizers) | Protection::Remove(finalizers) => Some(finalizers.into()),
        }
    }

    fn write<'a>(
        &'a self,
        volume: &'a PersistentVolume,
        finalizers: &'a Self::Write,
    ) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async move {
            let body = patch::finalizers(&volume.meta, finalizers);
            self.context.merge_as::<PersistentVolume>(&ENTRY, volume, &volume.meta.key, &body).await
        })
    }
}
