//! Which volume a claim gets, and the next write on the way there. Pure.
//!
//! A claim is bound in four writes, each of which is skipped if it is done already: the volume names the claim, the claim
//! names the volume, and both report it. So a bind that was broken off is completed from where it stands (upstream:
//! pkg/controller/volume/persistentvolume).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use serde_json::{Value, json};

use crate::{kubelet::quantity::nanos, scheduler::labels_match};

/// The annotation by which the scheduler says that a pod with the claim is to run on a node.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The provisioner of classes whose volumes an administrator makes.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Marks the volumes that were made up here, which are deleted with their claims.
pub(super) const MADE_UP: &str = "windlass.dev/made-up-volume";

/// Namespace and name.
pub(super) type ClaimKey = (String, String);

/// A write that is due.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    /// A merge patch of the claim, or of its status.
    Claim { status: bool, patch: Value },
    /// The same of a volume.
    Volume { name: String, status: bool, patch: Value },
    /// A new volume.
    Create(Value),
    /// The volume is deleted, if its claim of that UID does not exist any more.
    Delete { name: String, uid: String, claim: ClaimKey, claim_uid: String },
}

/// The decision about a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Due {
    Nothing,
    Write(Write),
    /// It stays as it is, which an event says.
    Waits(Told),
}

/// An event about a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    /// `Normal` or `Warning`.
    pub(super) kind: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The claims, volumes and classes that exist.
#[derive(Debug, Default)]
pub(super) struct Storage {
    pub(super) claims: BTreeMap<ClaimKey, PersistentVolumeClaim>,
    pub(super) volumes: BTreeMap<String, PersistentVolume>,
    pub(super) classes: BTreeMap<String, StorageClass>,
}

impl Storage {
    /// The decision about a claim.
    pub(super) fn claim(&self, key: &ClaimKey) -> Due {
        let Some(claim) = self.claims.get(key) else { return Due::Nothing };
        let Some(spec) = claim.spec.as_ref().filter(|_| claim.metadata.deletion_timestamp.is_none()) else {
            return Due::Nothing;
        };
        if let Some(name) = spec.volume_name.as_deref().filter(|name| !name.is_empty()) {
            return self.named(claim, name);
        }
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        let ours = self.volumes.values().find(|volume| claimed_by(volume).is_some_and(|ours| ours == uid));
        if let Some(volume) = ours {
            let mut patch = versioned(&claim.metadata);
            patch["spec"] = json!({"volumeName": volume.metadata.name});
            patch["metadata"]["annotations"] = json!({BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"});
            return Due::Write(Write::Claim { status: false, patch });
        }
        let Some(class) = &spec.storage_class_name else {
            return match (self.default_class(), self.best(key, claim)) {
                (Some(default), _) => {
                    let mut patch = versioned(&claim.metadata);
                    patch["spec"] = json!({"storageClassName": default});
                    Due::Write(Write::Claim { status: false, patch })
                }
                (None, Some(volume)) => Due::Write(take(volume, claim)),
                (None, None) => no_class(),
            };
        };
        let known = self.classes.get(class);
        let late = known.is_some_and(waits_for_consumer);
        let selected = claim.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(SELECTED_NODE));
        if late && !selected {
            return waits(
                "WaitForFirstConsumer",
                "waiting for first consumer to be created before binding".to_owned(),
            );
        }
        if let Some(volume) = self.best(key, claim) {
            return Due::Write(take(volume, claim));
        }
        match known {
            None if class.is_empty() => no_class(),
            None => fails(format!("storageclass.storage.k8s.io {class:?} not found")),
            Some(class) if class.provisioner == NO_PROVISIONER => {
                fails(format!("no volume plugin matched name: {NO_PROVISIONER}"))
            }
            // A claim with a source would be a volume with data.
            Some(class) if spec.data_source.is_some() || spec.data_source_ref.is_some() => waits(
                "ExternalProvisioning",
                format!(
                    "Waiting for a volume to be created either by the external provisioner '{}' or manually by the \
                     system administrator. If volume creation is delayed, please verify that the provisioner is running \
                     and correctly registered.",
                    class.provisioner
                ),
            ),
            Some(class) => Due::Write(Write::Create(made_up(claim, class))),
        }
    }

    /// The decision about a claim that names its volume.
    fn named(&self, claim: &PersistentVolumeClaim, name: &str) -> Due {
        let Some(volume) = self.volumes.get(name) else { return Due::Nothing };
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        let key = key_of(&claim.metadata);
        match claimed_by(volume) {
            Some(claimer) if claimer == uid => {}
            None if self.is_free(volume, &key) => return Due::Write(take(volume, claim)),
            _ => return Due::Nothing,
        }
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        if phase == Some("Bound") {
            return Due::Nothing;
        }
        let spec = volume.spec.as_ref();
        let mut patch = versioned(&claim.metadata);
        patch["status"] = json!({
            "phase": "Bound",
            "accessModes": spec.and_then(|spec| spec.access_modes.clone()),
            "capacity": spec.and_then(|spec| spec.capacity.clone()),
        });
        Due::Write(Write::Claim { status: true, patch })
    }

    /// The write that is due about a volume: of its phase, or of its end if it was made up for a claim that is gone. The
    /// phase comes first, also where the volume is being deleted: the controller that protects volumes keeps those that
    /// are bound.
    pub(super) fn volume(&self, name: &str) -> Option<Write> {
        let volume = self.volumes.get(name)?;
        let is_deleting = volume.metadata.deletion_timestamp.is_some();
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let claimed = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let wanted = match claimed.and_then(|claimed| Some((claimed, claimed.uid.as_deref()?))) {
            None => "Available",
            Some((claimed, uid)) => {
                let key = claimed_key(claimed);
                let claim = self.claims.get(&key).filter(|claim| claim.metadata.uid.as_deref() == Some(uid));
                let made_up =
                    volume.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MADE_UP));
                let deletes =
                    volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref())
                        == Some("Delete");
                match claim.map(|claim| claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref())) {
                    Some(Some(bound)) if bound == name => "Bound",
                    Some(_) => return None,
                    None if made_up && deletes && !is_deleting && phase == Some("Released") => {
                        let volume_uid = volume.metadata.uid.clone().unwrap_or_default();
                        let name = name.to_owned();
                        return Some(Write::Delete {
                            name,
                            uid: volume_uid,
                            claim: key,
                            claim_uid: uid.to_owned(),
                        });
                    }
                    None => "Released",
                }
            }
        };
        if phase == Some(wanted) || (is_deleting && wanted != "Released") {
            return None;
        }
        let mut patch = versioned(&volume.metadata);
        patch["status"] = json!({"phase": wanted});
        Some(Write::Volume { name: name.to_owned(), status: true, patch })
    }

    /// Of the free volumes that suit, one that is meant for the claim, or the one with the fewest other access modes, or the
    /// smallest.
    fn best(&self, key: &ClaimKey, claim: &PersistentVolumeClaim) -> Option<&PersistentVolume> {
        let suits = |volume: &&PersistentVolume| self.is_free(volume, key) && fits(claim, volume);
        self.volumes.values().filter(suits).min_by_key(|volume| {
            let spec = volume.spec.as_ref();
            let modes = spec.and_then(|spec| spec.access_modes.as_ref()).map_or(0, Vec::len);
            let is_meant = spec.is_some_and(|spec| spec.claim_ref.is_some());
            (!is_meant, modes, size(spec.and_then(|spec| spec.capacity.as_ref())))
        })
    }

    /// Whether the volume is nobody's, or meant for the claim by the one who made it.
    fn is_free(&self, volume: &PersistentVolume, key: &ClaimKey) -> bool {
        let Some(spec) = volume.spec.as_ref().filter(|_| volume.metadata.deletion_timestamp.is_none()) else {
            return false;
        };
        spec.claim_ref.as_ref().is_none_or(|claimed| {
            claimed.uid.is_none()
                && (claimed.namespace.as_ref(), claimed.name.as_ref()) == (Some(&key.0), Some(&key.1))
        })
    }

    /// The newest of the classes that are marked as the default.
    fn default_class(&self) -> Option<&str> {
        let is_default = |class: &&StorageClass| {
            let marks = class.metadata.annotations.as_ref();
            marks
                .and_then(|all| all.get("storageclass.kubernetes.io/is-default-class"))
                .is_some_and(|is| is == "true")
        };
        let newest = self
            .classes
            .values()
            .filter(is_default)
            .max_by_key(|class| class.metadata.creation_timestamp.clone());
        newest.and_then(|class| class.metadata.name.as_deref())
    }
}

/// Whether volumes of the class are chosen once a pod needs them.
pub(crate) fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The namespace and the name.
pub(super) fn key_of(metadata: &ObjectMeta) -> ClaimKey {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// The namespace and the name of the claim of a volume.
pub(super) fn claimed_key(claimed: &ObjectReference) -> ClaimKey {
    (claimed.namespace.clone().unwrap_or_default(), claimed.name.clone().unwrap_or_default())
}

/// The UID of the claim that has the volume.
pub(super) fn claimed_by(volume: &PersistentVolume) -> Option<&str> {
    volume.spec.as_ref()?.claim_ref.as_ref()?.uid.as_deref()
}

fn no_class() -> Due {
    waits(
        "FailedBinding",
        "no persistent volumes available for this claim and no storage class is set".to_owned(),
    )
}

fn waits(reason: &'static str, message: String) -> Due {
    Due::Waits(Told { kind: "Normal", reason, message })
}

fn fails(message: String) -> Due {
    Due::Waits(Told { kind: "Warning", reason: "ProvisioningFailed", message })
}

/// A patch that a concurrent write of another refuses.
fn versioned(metadata: &ObjectMeta) -> Value {
    json!({"metadata": {"resourceVersion": metadata.resource_version}})
}

fn reference(claim: &PersistentVolumeClaim) -> Value {
    json!(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        ..ObjectReference::default()
    })
}

/// The volume names the claim.
fn take(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Write {
    let mut patch = versioned(&volume.metadata);
    patch["spec"] = json!({"claimRef": reference(claim)});
    let is_meant = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some());
    if !is_meant {
        patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
    }
    Write::Volume { name: volume.metadata.name.clone().unwrap_or_default(), status: false, patch }
}

/// The volume that a provisioner would make for the claim. There is nothing in it.
fn made_up(claim: &PersistentVolumeClaim, class: &StorageClass) -> Value {
    let name = format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default());
    let spec = claim.spec.as_ref();
    let requests =
        spec.and_then(|spec| spec.resources.as_ref()).and_then(|resources| resources.requests.as_ref());
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {
            "pv.kubernetes.io/provisioned-by": class.provisioner, MADE_UP: "true"}},
        "spec": {
            "capacity": {"storage": requests.and_then(|requests| requests.get("storage"))},
            "accessModes": spec.and_then(|spec| spec.access_modes.clone()),
            "volumeMode": spec.and_then(|spec| spec.volume_mode.clone()).unwrap_or_else(|| "Filesystem".to_owned()),
            "storageClassName": class.metadata.name,
            "mountOptions": class.mount_options,
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "hostPath": {"path": format!("/windlass/{name}"), "type": "DirectoryOrCreate"},
            "claimRef": reference(claim),
        },
    })
}

/// Whether the volume has what the claim asks for.
fn fits(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let (Some(asked), Some(has)) = (claim.spec.as_ref(), volume.spec.as_ref()) else { return false };
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let modes: BTreeSet<&String> = has.access_modes.iter().flatten().collect();
    let labels = volume.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let requests = asked.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    asked.storage_class_name.as_deref().unwrap_or_default()
        == has.storage_class_name.as_deref().unwrap_or_default()
        && mode(&asked.volume_mode) == mode(&has.volume_mode)
        && asked.volume_attributes_class_name.as_deref().unwrap_or_default()
            == has.volume_attributes_class_name.as_deref().unwrap_or_default()
        && asked.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && asked.selector.as_ref().is_none_or(|selector| labels_match(selector, label))
        && size(has.capacity.as_ref()) >= size(requests)
}

/// In billionths of a byte; of what cannot be read, nothing.
fn size(resources: Option<&BTreeMap<String, Quantity>>) -> i128 {
    resources.and_then(|all| all.get("storage")).and_then(|quantity| nanos(&quantity.0)).unwrap_or(0)
}
