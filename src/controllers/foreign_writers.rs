//! Detects another controller that acts on the same objects, such as a kube-controller-manager whose own
//! loops were not switched off. Both would then create and delete each other's pods.
//!
//! No other client has a reason to write the status of a Deployment or ReplicaSet. So a change of status that
//! none of our own writes caused is suspicious. One alone proves nothing: the reply to a write of ours
//! may be lost, or a person may have edited a status. Where three objects are concerned within a minute,
//! one of them is read, and its `managedFields` name the writer. Only that counts as proof. Records hold no
//! `managedFields`, so this costs nothing in normal operation.
//!
//! The limits: another Windlass has our own field manager and is not distinguished (leader election protects
//! against that one). With `--field-manager=kube-controller-manager` the same holds for a real one: its
//! writes and ours have the same manager, operation and subresource, so that nothing proves a conflict. A controller
//! that writes no status, or fewer than three objects a minute, is not detected. An API server without
//! `managedFields` proves nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use super::context::Context;
use super::error::SyncError;
use super::registry::{CONTROLLERS, ControllerEntry};
use crate::model::{Meta, Record, Resource, Uid};
use crate::runtime::events::{EventTarget, EventType};
use crate::runtime::request;
use crate::runtime::store::Change;

/// The watch may show a write of ours before its reply is read.
const GRACE: Duration = Duration::from_secs(5);

/// How long a suspicion counts, and the shortest time between two alarms.
const WINDOW: Duration = Duration::from_secs(60);

/// The number of objects that must be suspicious.
const OBJECTS: usize = 3;

/// How many of our own writes are remembered. At the default rate limit a window has 1230. Where there are
/// more, the forgotten ones look suspicious, and the read of the object clears them.
const REMEMBERED: usize = 8192;

/// How many suspicious objects are remembered; more prove no more.
const SUSPECTS: usize = 1024;

/// How recent the entry of another controller must be, before the latest write of the status.
const RECENT: SignedDuration = SignedDuration::from_secs(60);

/// The field manager of kube-controller-manager.
const UPSTREAM: &str = "kube-controller-manager";

/// What to do when another controller acts on the same objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Report it: an event, a metric, a log line.
    #[default]
    Warn,
    /// Report it, and end with an error.
    Exit,
    /// Do not look for it.
    Ignore,
}

/// An object whose status another client has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The object.
    pub target: EventTarget,
    /// How often.
    pub times: u64,
    first: Instant,
    last: Instant,
}

/// Collects suspicious writes, and tells when they suffice.
#[derive(Debug, Default)]
pub struct Detector {
    /// Off until the controllers act: before that every write is legitimately another's.
    enabled: bool,
    ours: BTreeSet<(Uid, u64)>,
    order: VecDeque<(Instant, Uid, u64)>,
    suspects: BTreeMap<Uid, Suspect>,
}

impl Detector {
    /// From now on the controllers act.
    pub fn enable(&mut self) {
        *self = Detector { enabled: true, ..Detector::default() };
    }

    /// A write of ours was answered with this version.
    pub fn status_written(&mut self, uid: &Uid, version: u64, now: Instant) {
        self.expire(now);
        if self.suspects.get(uid).is_some_and(|suspect| suspect.target.resource_version == Some(version)) {
            self.clear_one(uid);
        }
        if self.ours.insert((uid.clone(), version)) {
            self.order.push_back((now, uid.clone(), version));
        }
    }

    /// The watch shows a change of status with this version.
    pub fn status_changed(&mut self, target: EventTarget, now: Instant) {
        let version = target.resource_version.unwrap_or(0);
        if !self.enabled || self.ours.contains(&(target.uid.clone(), version)) {
            return;
        }
        self.expire(now);
        if let Some(suspect) = self.suspects.get_mut(&target.uid) {
            suspect.times += 1;
            suspect.last = now;
            suspect.target = target;
        } else if self.suspects.len() < SUSPECTS {
            self.suspects.insert(target.uid.clone(), Suspect { target, times: 1, first: now, last: now });
        }
    }

    /// The suspicious objects, once enough of them are old enough; they are forgotten then.
    pub fn evidence(&mut self, now: Instant) -> Option<Vec<Suspect>> {
        self.expire(now);
        let is_old = |suspect: &Suspect| now.saturating_duration_since(suspect.first) >= GRACE;
        if self.suspects.values().filter(|suspect| is_old(suspect)).count() < OBJECTS {
            return None;
        }
        let (old, young) = std::mem::take(&mut self.suspects).into_iter().partition(|(_, it)| is_old(it));
        self.suspects = young;
        let old: BTreeMap<Uid, Suspect> = old;
        Some(old.into_values().collect())
    }

    /// The last suspicious write was our own.
    fn clear_one(&mut self, uid: &Uid) {
        if let Some(suspect) = self.suspects.get_mut(uid) {
            suspect.times -= 1;
            if suspect.times == 0 {
                self.suspects.remove(uid);
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) > WINDOW;
        while self.order.front().is_some_and(|(at, ..)| is_old(*at)) || self.order.len() > REMEMBERED {
            let Some((_, uid, version)) = self.order.pop_front() else { break };
            self.ours.remove(&(uid, version));
        }
        self.suspects.retain(|_, suspect| !is_old(suspect.last));
    }
}

/// The detector of a daemon.
#[derive(Debug, Default)]
pub struct ForeignWriters(Mutex<Detector>);

impl ForeignWriters {
    /// A change in a store of an object in scope; `differs` compares the status.
    pub fn status_changed<T: Record>(&self, change: &Change<T>, differs: impl Fn(&T, &T) -> bool) {
        let Change::Updated { old, new } = change else { return };
        if differs(old, new) {
            let meta = new.meta();
            let target = EventTarget {
                resource: T::RESOURCE,
                key: meta.key.clone(),
                uid: meta.uid.clone(),
                resource_version: Some(meta.resource_version),
            };
            self.0.lock().status_changed(target, Instant::now());
        }
    }
}

/// An entry of `managedFields`, as far as it identifies the writer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Manager {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Managed {
    metadata: ManagedMeta,
}

#[derive(Deserialize)]
struct ManagedMeta {
    #[serde(default, rename = "managedFields")]
    managed_fields: Vec<Manager>,
}

/// The other writer of this status: its manager's entry is as recent as the latest of them. An old entry is
/// that of a controller which was switched off; one of kubectl is a person's.
fn foreign_manager<'a>(managers: &'a [Manager], ours: &str) -> Option<&'a str> {
    let of_status = || managers.iter().filter(|entry| entry.subresource == "status");
    let latest = of_status().filter_map(|entry| entry.time).max()?;
    let is_recent = |at: Timestamp| latest.duration_since(at) <= RECENT;
    of_status()
        .find(|entry| {
            entry.manager != ours
                && !entry.manager.starts_with("kubectl")
                && entry.time.is_some_and(is_recent)
        })
        .map(|entry| entry.manager.as_str())
}

/// The values of `--controllers` that switch our controllers off in a kube-controller-manager: those that run by default,
/// and that of this kind.
fn without_ours(kind: &str) -> String {
    let concerns = |entry: &&&ControllerEntry| entry.is_on_by_default || entry.kind.kind == kind;
    let ours = CONTROLLERS.iter().filter(|entry| entry.is_upstream).filter(concerns);
    ours.map(|controller| format!("-{}", controller.name)).collect::<Vec<_>>().join(",")
}

/// Another controller acts on the same objects.
#[derive(Debug, thiserror::Error)]
#[error(
    "{manager:?} also writes the status of {kind} {key}: switch its controllers off, for \
     kube-controller-manager by adding {without} to its list of --controllers, or run Windlass with --on-conflict=warn",
    without = without_ours(kind)
)]
pub struct Conflict {
    /// Its field manager.
    pub manager: String,
    /// The kind of an object.
    pub kind: &'static str,
    /// Its name.
    pub key: String,
}

/// Watches for other controllers for as long as ours act. Returns only where a conflict must end the program.
pub async fn guard(context: Arc<Context>, on_conflict: OnConflict) -> Conflict {
    if context.settings.field_manager == UPSTREAM {
        tracing::warn!(
            "--field-manager={UPSTREAM}: Windlass cannot detect a kube-controller-manager that writes the same \
             objects, and --on-conflict has no effect; make sure that its controllers are switched off"
        );
    }
    if on_conflict == OnConflict::Ignore {
        return std::future::pending().await;
    }
    context.foreign_writers.0.lock().enable();
    loop {
        tokio::time::sleep(GRACE).await;
        let Some(suspects) = context.foreign_writers.0.lock().evidence(Instant::now()) else { continue };
        let Some((manager, target)) = context.confirm(&suspects).await else { continue };
        for Suspect { target, times, .. } in &suspects {
            let resource = target.resource.plural;
            context.metrics.workloads.foreign_writes.with_label_values(&[resource]).inc_by(*times);
        }
        let Resource { kind, .. } = target.resource;
        let message = format!(
            "{manager} also writes the status of this object. Two controllers act on it: switch one of them off."
        );
        context.recorder.record(&target, EventType::Warning, "ConflictingController", message, "windlass");
        let conflict = Conflict { manager, kind, key: target.key.to_string() };
        tracing::error!(objects = suspects.len(), "another controller acts on the same objects: {conflict}");
        if on_conflict == OnConflict::Exit {
            return conflict;
        }
        // Reported once a minute; writes seen meanwhile count for the next report.
        tokio::time::sleep(WINDOW - GRACE).await;
    }
}

impl Context {
    /// A status write of ours was answered with this version: the cache must reach it, and it counts as our own.
    pub(super) fn wrote_status(&self, object: &Meta, resource: Resource, version: u64) {
        self.expectations.expect_write(&object.uid, resource, version);
        self.status_throttle.wrote(&object.uid, Instant::now());
        self.foreign_writers.0.lock().status_written(&object.uid, version, Instant::now());
    }

    /// Reads suspicious objects until one of them names another writer, at most as many as raise the suspicion.
    async fn confirm(&self, suspects: &[Suspect]) -> Option<(String, EventTarget)> {
        for Suspect { target, .. } in suspects.iter().take(OBJECTS) {
            match self.managers(target).await {
                Ok(managers) => match foreign_manager(&managers, &self.settings.field_manager) {
                    Some(manager) => return Some((manager.to_owned(), target.clone())),
                    None => {
                        tracing::debug!(object = %target.key, ?managers, "status write by another field manager is not confirmed")
                    }
                },
                Err(error) => {
                    tracing::debug!(object = %target.key, %error, "could not read the field managers of an object")
                }
            }
        }
        None
    }

    async fn managers(&self, target: &EventTarget) -> Result<Vec<Manager>, SyncError> {
        let what = || format!("reading {} {}", target.resource.kind, target.key);
        let path = format!("{}/{}", target.resource.path(Some(&target.key.namespace)), target.key.name);
        let managed: Managed = self
            .control(target.resource)
            .api
            .call(request::get(&path, &[]))
            .await
            .map_err(|error| SyncError::api(what(), error))?;
        Ok(managed.metadata.managed_fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Deployment, ObjectKey};

    const S: Duration = Duration::from_secs(1);

    fn target(uid: &str, version: u64) -> EventTarget {
        EventTarget {
            resource: Deployment::RESOURCE,
            key: ObjectKey::new("shop", uid),
            uid: Uid::new(uid),
            resource_version: Some(version),
        }
    }

    /// The names that a detector finds suspicious after these writes, six seconds later.
    fn suspicious(events: &[(&str, u64, bool)]) -> Option<Vec<String>> {
        let (mut detector, now) = (Detector::default(), Instant::now());
        detector.enable();
        for (uid, version, ours) in events {
            if *ours {
                detector.status_written(&Uid::new(uid), *version, now);
            } else {
                detector.status_changed(target(uid, *version), now);
            }
        }
        let suspects = detector.evidence(now + 6 * S)?;
        Some(suspects.iter().map(|suspect| suspect.target.key.name.to_string()).collect())
    }

    #[test]
    fn three_objects_raise_an_alarm_and_one_that_is_written_often_does_not() {
        assert_eq!(suspicious(&[("a", 1, false), ("b", 2, false)]), None);
        assert_eq!(suspicious(&[("a", 1, false), ("a", 2, false), ("a", 3, false)]), None);
        let all = suspicious(&[("a", 1, false), ("b", 2, false), ("c", 3, false)]).unwrap();
        assert_eq!(all, ["a", "b", "c"]);
    }

    #[test]
    fn our_own_writes_are_never_suspicious_whichever_comes_first() {
        let ours_first = [("a", 1, true), ("a", 1, false), ("b", 2, false), ("c", 3, false)];
        assert_eq!(suspicious(&ours_first), None);
        let reply_later = [("a", 1, false), ("a", 1, true), ("b", 2, false), ("c", 3, false)];
        assert_eq!(suspicious(&reply_later), None);
        let both = [("a", 1, false), ("a", 2, false), ("a", 2, true), ("b", 2, false), ("c", 3, false)];
        assert!(suspicious(&both).is_some(), "one of two writes was another's");
    }

    #[test]
    fn a_suspicion_needs_time_for_our_reply_and_is_forgotten_after_a_minute() {
        let (mut detector, now) = (Detector::default(), Instant::now());
        detector.enable();
        for uid in ["a", "b", "c"] {
            detector.status_changed(target(uid, 1), now);
        }
        assert_eq!(detector.evidence(now + 4 * S), None);
        assert_eq!(detector.evidence(now + 61 * S), None);
        detector.status_changed(target("d", 1), now + 61 * S);
        assert_eq!(detector.evidence(now + 70 * S), None, "the first three are forgotten");
    }

    #[test]
    fn a_standby_has_no_suspicions_and_starts_empty_when_it_leads() {
        let (mut detector, now) = (Detector::default(), Instant::now());
        for uid in ["a", "b", "c"] {
            detector.status_changed(target(uid, 1), now);
        }
        detector.enable();
        assert_eq!(detector.evidence(now + 6 * S), None);
    }

    #[test]
    fn memory_is_bounded_for_any_input() {
        let (mut detector, now) = (Detector::default(), Instant::now());
        detector.enable();
        for n in 0..20_000 {
            detector.status_written(&Uid::new("a"), n, now);
            detector.status_changed(target(&format!("u{n}"), 1), now);
        }
        assert!(detector.ours.len() <= REMEMBERED + 1 && detector.suspects.len() <= SUSPECTS);
        detector.expire(now + 61 * S);
        assert!(detector.ours.is_empty() && detector.suspects.is_empty());
    }

    #[track_caller]
    fn check_rival(entries: &[(&str, &str, i64)], expected: Option<&str>) {
        let managers: Vec<Manager> = entries
            .iter()
            .map(|(manager, subresource, seconds)| Manager {
                manager: (*manager).into(),
                subresource: (*subresource).into(),
                time: Timestamp::from_second(1_000_000 + seconds).ok(),
            })
            .collect();
        assert_eq!(foreign_manager(&managers, "windlass"), expected, "{entries:?}");
    }

    #[test]
    fn another_writer_is_the_manager_of_a_recent_status_entry() {
        check_rival(
            &[("windlass", "status", 0), ("kube-controller-manager", "status", 1)],
            Some("kube-controller-manager"),
        );
        check_rival(
            &[("kube-controller-manager", "status", 0), ("windlass", "status", 30)],
            Some("kube-controller-manager"),
        );
        check_rival(&[("kube-controller-manager", "status", 0), ("windlass", "status", 3600)], None);
        check_rival(&[("windlass", "status", 0), ("kubectl-edit", "status", 1)], None);
        check_rival(&[("windlass", "status", 0), ("argocd", "", 1)], None);
        check_rival(&[("other", "status", 0)], Some("other"));
        check_rival(&[], None);
        // Under upstream's name its writes are taken for ours, and those of others are not.
        let entry = |manager: &str| Manager {
            manager: manager.into(),
            subresource: "status".into(),
            time: Some(Timestamp::UNIX_EPOCH),
        };
        assert_eq!(foreign_manager(&[entry(UPSTREAM)], UPSTREAM), None);
        assert_eq!(foreign_manager(&[entry(UPSTREAM), entry("windlass")], UPSTREAM), Some("windlass"));
    }

    #[test]
    fn managed_fields_are_read_from_an_object_and_may_be_missing() {
        let json = r#"{"metadata":{"managedFields":[{"manager":"m","operation":"Update","apiVersion":"apps/v1",
            "time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{},"subresource":"status"}]}}"#;
        let managed: Managed = serde_json::from_str(json).unwrap();
        assert_eq!(foreign_manager(&managed.metadata.managed_fields, "windlass"), Some("m"));
        let managed: Managed = serde_json::from_str(r#"{"metadata":{}}"#).unwrap();
        assert_eq!(foreign_manager(&managed.metadata.managed_fields, "windlass"), None);
    }
}
