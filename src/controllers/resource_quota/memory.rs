//! The memory of each quota between syncs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::model::{ResourceQuota, Uid};
use crate::plan::resourcequota::charges::{Charges, ON_THE_WAY};
use crate::plan::resourcequota::{Amounts, Kept, Plan, Source};

/// The memory of all quotas, by UID.
#[derive(Debug, Default)]
pub(super) struct QuotaMemory(Mutex<BTreeMap<Uid, OfQuota>>);

#[derive(Debug, Default)]
struct OfQuota {
    charges: Charges,
    /// When its numbers last changed.
    changed: Option<Timestamp>,
    /// The numbers that this program writes, and the version of its last write.
    writes: Option<BTreeMap<String, String>>,
    wrote: u64,
    /// Since when a source cannot be counted, and whether an event has said so.
    unknown: BTreeMap<Source, (Timestamp, bool)>,
}

impl QuotaMemory {
    /// The status of a quota has changed.
    pub(super) fn changed(&self, old: &ResourceQuota, new: &ResourceQuota, now: Timestamp) {
        if old.status_used == new.status_used {
            return;
        }
        let mut all = self.0.lock();
        let of = all.entry(new.meta.uid.clone()).or_default();
        if of.wrote != new.meta.resource_version {
            of.charges.changed(old, new, now);
        }
        of.changed = Some(now);
    }

    /// Numbers are written.
    pub(super) fn writes(&self, quota: &Uid, used: &BTreeMap<String, String>) {
        self.0.lock().entry(quota.clone()).or_default().writes = Some(used.clone());
    }

    /// They are written, as this version, or refused. The cache may have shown that version before.
    pub(super) fn wrote(&self, quota: &Uid, version: Option<u64>) {
        let mut all = self.0.lock();
        let of = all.entry(quota.clone()).or_default();
        of.writes = None;
        if let Some(version) = version {
            of.wrote = version;
            of.charges.wrote(version);
        }
    }

    /// Whether a quota is as this program has written it.
    pub(super) fn has_written(&self, quota: &ResourceQuota) -> bool {
        let all = self.0.lock();
        let Some(of) = all.get(&quota.meta.uid) else { return false };
        let is_written = |used: &BTreeMap<String, String>| {
            quota.status_used.iter().eq(used.iter().map(|(key, value)| (key.as_str(), value.as_str())))
        };
        of.wrote == quota.meta.resource_version || of.writes.as_ref().is_some_and(is_written)
    }

    /// Objects that use so much have appeared.
    pub(super) fn appeared(&self, quota: &Uid, used: &Amounts, now: Timestamp) {
        if !used.is_empty() {
            self.0.lock().entry(quota.clone()).or_default().charges.appeared(used, now);
        }
    }

    /// The charges for objects that have not appeared, and whether the numbers have changed a moment ago.
    pub(super) fn charged(
        &self,
        quota: &Uid,
        position: impl Fn(&str) -> u64,
        now: Timestamp,
    ) -> (Amounts, bool) {
        let mut all = self.0.lock();
        let Some(of) = all.get_mut(quota) else { return Default::default() };
        let is_recent = |at: Timestamp| now.duration_since(at) < ON_THE_WAY && at <= now;
        (of.charges.open(position, now), of.changed.is_some_and(is_recent))
    }

    /// The sources that cannot be counted and of which no event has said so yet.
    pub(super) fn to_tell<'p>(&self, quota: &Uid, plan: &'p Plan, now: Timestamp) -> Vec<&'p Kept> {
        let mut all = self.0.lock();
        if plan.kept.is_empty() && !all.contains_key(quota) {
            return Vec::new();
        }
        let unknown = &mut all.entry(quota.clone()).or_default().unknown;
        unknown.retain(|source, _| plan.kept.iter().any(|kept| kept.source == *source));
        let mut to_tell = Vec::new();
        for kept in &plan.kept {
            let (since, is_told) = unknown.entry(kept.source.clone()).or_insert((now, false));
            if !*is_told && kept.is_worth_an_event(*since, now) {
                *is_told = true;
                to_tell.push(kept);
            }
        }
        to_tell
    }
}

impl Forget for QuotaMemory {
    fn forget(&self, quota: &Uid) {
        self.0.lock().remove(quota);
    }
}
