//! The slices that a controller writes, and the wakes of their owners by their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::indexes::{SliceIndex, service_of};
use super::memory::SyncMemory;
use crate::model::{EndpointSlice, ObjectKey, Owner};
use crate::plan::endpointslice::{self as planner, Memory};
use crate::runtime::store::{Change, Store};

/// The slices with the label of one writer.
pub(in crate::controllers) struct ManagedSlices {
    writer: &'static str,
    slices: Arc<Store<EndpointSlice>>,
    /// The slices by the Service that their label names.
    by_service: SliceIndex,
}

impl ManagedSlices {
    /// The slices of this writer.
    pub(in crate::controllers) fn new(writer: &'static str, slices: Arc<Store<EndpointSlice>>) -> Self {
        ManagedSlices { writer, slices, by_service: SliceIndex::default() }
    }

    /// The store of all slices.
    pub(in crate::controllers) fn store(&self) -> &Store<EndpointSlice> {
        &self.slices
    }

    /// The slices of a Service that are not being deleted, whoever owns them, in the order of their names. The index may be behind
    /// the store; the slices of the owner are found there.
    pub(in crate::controllers) fn of(
        &self,
        service: &ObjectKey,
        owner: Option<&Owner>,
    ) -> Vec<Arc<EndpointSlice>> {
        let owned = owner.map(|owner| self.slices.owned_by(owner)).unwrap_or_default();
        let named = self.by_service.of(service).into_iter();
        let named =
            named.filter_map(|name| self.slices.get(&ObjectKey::new(service.namespace.clone(), name)));
        let is_of_service = |slice: &Arc<EndpointSlice>| {
            slice.is_managed_by(self.writer)
                && slice.service() == Some(&*service.name)
                && !slice.meta.is_deleting()
        };
        let all = owned.into_iter().chain(named).filter(is_of_service);
        let by_name: BTreeMap<Arc<str>, Arc<EndpointSlice>> =
            all.map(|slice| (slice.meta.key.name.clone(), slice)).collect();
        by_name.into_values().collect()
    }

    /// The Service of a slice, if the slice has the label of the writer.
    pub(in crate::controllers) fn key_of(&self, slice: &EndpointSlice) -> Option<ObjectKey> {
        service_of(self.writer, slice)
    }

    /// The names in a namespace that begin as those of the slices of a Service do.
    pub(in crate::controllers) fn taken(&self, service: &ObjectKey) -> BTreeSet<Arc<str>> {
        let named = self.slices.named(&service.namespace, &planner::name_base(&service.name));
        named.iter().map(|slice| slice.meta.key.name.clone()).collect()
    }

    /// Follows a change of a slice: the Services to wake, and after which time. A change by others is undone after `repair`; one
    /// that this process has made wakes none, but for the end of a slice: until the cache shows it, the Service is not planned,
    /// and its version, by which a cache is known to have come so far, is in no answer.
    pub(in crate::controllers) fn changed(
        &self,
        change: &Change<EndpointSlice>,
        memory: &SyncMemory<Memory>,
        repair: Duration,
    ) -> (Vec<ObjectKey>, Duration) {
        self.by_service.update(self.writer, change);
        let (old, new) = change.states();
        let is_expected = match change {
            Change::Deleted(slice) if memory.has_deleted(&slice.meta) => {
                return (self.key_of(slice).into_iter().collect(), Duration::ZERO);
            }
            // A restore of etcd: later versions may be those of others.
            Change::Updated { old, new } if new.meta.resource_version < old.meta.resource_version => {
                memory.forget_object(&new.meta.uid);
                false
            }
            // The owners are in the queue already.
            Change::Added(_) if !self.slices.is_synced() => true,
            Change::Added(slice) | Change::Updated { new: slice, .. } => memory.has_written(&slice.meta),
            Change::Deleted(_) => false,
        };
        let namespace = &change.object().meta.key.namespace;
        let services = planner::services_of_slice(self.writer, old, new, is_expected);
        (services.map(|name| ObjectKey::new(namespace.clone(), name)).collect(), repair)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::fixture::rig;
    use crate::model::endpointslice::ENDPOINT_SLICE_CONTROLLER;
    use crate::model::{Interner, Record as _, Uid};

    fn slice(version: u64) -> Arc<EndpointSlice> {
        let labels = json!({
            "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": ENDPOINT_SLICE_CONTROLLER,
        });
        let slice = json!({
            "metadata": {"name": "web-a", "namespace": "shop", "uid": "u-a", "resourceVersion": version.to_string(), "labels": labels},
            "addressType": "IPv4", "endpoints": [],
        });
        Arc::new(EndpointSlice::decode(&slice.to_string(), &mut Interner::default()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn of_own_changes_only_the_end_of_a_slice_wakes_its_service_and_at_once() {
        let rig = rig(200, |_| {});
        let slices = ManagedSlices::new(ENDPOINT_SLICE_CONTROLLER, rig.context.store());
        let (memory, owner, repair) = (SyncMemory::default(), Uid::new("u-web"), Duration::from_secs(1));
        let woken = |change| {
            let (keys, delay) = slices.changed(&change, &memory, repair);
            (keys.len(), delay)
        };
        memory.wrote(&owner, Uid::new("u-a"), 7);
        let updated = |old, new| Change::Updated { old: slice(old), new: slice(new) };
        assert_eq!(woken(updated(6, 7)).0, 0);
        assert_eq!(woken(updated(7, 8)), (1, repair), "by others");
        assert_eq!(woken(updated(8, 3)), (1, repair), "restored");
        assert_eq!(woken(updated(3, 4)), (1, repair), "by others after that");
        memory.deletes(&owner, Uid::new("u-a"));
        assert_eq!(woken(Change::Deleted(slice(9))), (1, Duration::ZERO));
        assert_eq!(woken(Change::Deleted(slice(9))), (1, repair), "by others");
    }
}
