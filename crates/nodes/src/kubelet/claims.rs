//! The claims that a pod waits for, as a scheduler and a kubelet judge them.
//!
//! The claims of ephemeral volumes are not judged: no part of the simulated cluster creates them.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream, stream::BoxStream};
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};
use kube::{Api, Client};

use super::record::Pod;
use crate::{
    reflector::{Change, Identity, follow, for_a_day},
    volumes::binding::{NO_PROVISIONER, SELECTED_NODE, waits_for_consumer},
};

/// A change of the known claims and classes.
pub(super) enum ClaimChange {
    Claim(Identity, Option<Claim>),
    Class(String, Option<Class>),
    Synced,
}

/// A claim, as far as pods depend on it.
pub(super) struct Claim {
    class: Option<String>,
    /// The volume, once it is bound.
    volume: Option<String>,
    is_lost: bool,
    is_ending: bool,
    selected_node: Option<String>,
}

pub(super) struct Class {
    waits_for_consumer: bool,
    has_provisioner: bool,
}

/// Whether a pod's claims let it be placed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The pod can be placed.
    Ready,
    /// It cannot be placed, for this reason.
    Refused(String),
    /// A node is chosen first, and then volumes for these claims. Those with `Some` name that node already.
    NodeFirst {
        claims: Vec<(String, Option<String>)>,
        /// Nobody makes a volume for one of them.
        is_hopeless: bool,
    },
}

/// All claims and classes.
#[derive(Default)]
pub(super) struct Claims {
    claims: BTreeMap<(String, String), Claim>,
    classes: BTreeMap<String, Class>,
    synced: usize,
}

impl Claims {
    /// Follows all claims and classes.
    pub(super) fn follow(client: &Client) -> BoxStream<'static, ClaimChange> {
        let claims =
            follow(Api::<PersistentVolumeClaim>::all(client.clone()), for_a_day()).map(
                |change| match change {
                    Change::Put(claim) => {
                        let (identity, claim) = read(claim);
                        ClaimChange::Claim(identity, Some(claim))
                    }
                    Change::Deleted(gone) => ClaimChange::Claim(gone, None),
                    Change::Synced => ClaimChange::Synced,
                },
            );
        let classes =
            follow(Api::<StorageClass>::all(client.clone()), for_a_day()).map(|change| match change {
                Change::Put(class) => {
                    let known = Class {
                        waits_for_consumer: waits_for_consumer(&class),
                        has_provisioner: class.provisioner != NO_PROVISIONER,
                    };
                    ClaimChange::Class(class.metadata.name.unwrap_or_default(), Some(known))
                }
                Change::Deleted(gone) => ClaimChange::Class(gone.name, None),
                Change::Synced => ClaimChange::Synced,
            });
        stream::select(claims, classes).boxed()
    }

    /// Takes in a change, and returns whether it may matter to a pod.
    pub(super) fn observe(&mut self, change: ClaimChange) -> impl Fn(&Pod) -> bool + use<> {
        let mut meant = None;
        match change {
            ClaimChange::Claim(Identity { namespace, name, .. }, claim) => {
                let key = (namespace, name);
                match claim {
                    Some(claim) => drop(self.claims.insert(key.clone(), claim)),
                    None => drop(self.claims.remove(&key)),
                }
                meant = Some(key);
            }
            ClaimChange::Class(name, Some(class)) => drop(self.classes.insert(name, class)),
            ClaimChange::Class(name, None) => drop(self.classes.remove(&name)),
            ClaimChange::Synced => self.synced += 1,
        }
        move |pod| match &meant {
            Some((namespace, name)) => {
                pod.namespace() == namespace && pod.claims().any(|claim| claim == name)
            }
            None => pod.claims().next().is_some(),
        }
    }

    /// Whether it is known what exists.
    pub(super) fn are_known(&self) -> bool {
        self.synced >= 2
    }

    /// Whether the pod can be placed, in the words of kube-scheduler (framework/plugins/volumebinding).
    pub(super) fn judge(&self, pod: &Pod) -> Verdict {
        let (mut unbound, mut is_hopeless, mut is_immediate) = (Vec::new(), false, false);
        for name in pod.claims() {
            let claim = match self.find(pod, name) {
                Ok(claim) => claim,
                Err(why) => return Verdict::Refused(why),
            };
            if claim.volume.is_some() {
                continue;
            }
            let class = claim.class.as_ref().and_then(|class| self.classes.get(class));
            match class.filter(|class| class.waits_for_consumer) {
                Some(class) => {
                    is_hopeless |= !class.has_provisioner;
                    unbound.push((name.to_owned(), claim.selected_node.clone()));
                }
                None => is_immediate = true,
            }
        }
        if is_immediate {
            return Verdict::Refused("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        if unbound.is_empty() { Verdict::Ready } else { Verdict::NodeFirst { claims: unbound, is_hopeless } }
    }

    fn find(&self, pod: &Pod, name: &str) -> Result<&Claim, String> {
        let claim = self.claims.get(&(pod.namespace().to_owned(), name.to_owned()));
        let claim = claim.ok_or_else(|| format!("persistentvolumeclaim \"{name}\" not found"))?;
        if claim.is_lost {
            let volume = claim.volume.as_deref().unwrap_or_default();
            return Err(format!(
                "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
            ));
        }
        if claim.is_ending {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        Ok(claim)
    }

    /// Why the kubelet cannot mount the volumes of a pod that has a node already.
    pub(super) fn unmountable(&self, pod: &Pod) -> Option<String> {
        pod.spec.volumes.iter().flatten().find_map(|volume| {
            let name = volume.claim()?;
            let namespace = pod.namespace();
            let why = match self.claims.get(&(namespace.to_owned(), name.to_owned())) {
                None => format!("failed to fetch PVC from API server: persistentvolumeclaims \"{name}\" not found"),
                Some(claim) if claim.volume.is_none() => "PVC is not bound".to_owned(),
                Some(_) => return None,
            };
            let volume = &volume.name;
            Some(format!(
                "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process \
                 volumes=[{volume}]: error processing PVC {namespace}/{name}: {why}"
            ))
        })
    }
}

fn read(claim: PersistentVolumeClaim) -> (Identity, Claim) {
    let metadata = claim.metadata;
    let spec = claim.spec.unwrap_or_default();
    let phase = claim.status.and_then(|status| status.phase);
    let identity = Identity {
        uid: metadata.uid.unwrap_or_default(),
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
    };
    let is_bound = matches!(phase.as_deref(), Some("Bound" | "Lost"));
    let known = Claim {
        class: spec.storage_class_name,
        volume: spec.volume_name.filter(|_| is_bound),
        is_lost: phase.as_deref() == Some("Lost"),
        is_ending: metadata.deletion_timestamp.is_some(),
        selected_node: metadata.annotations.unwrap_or_default().remove(SELECTED_NODE),
    };
    (identity, known)
}
