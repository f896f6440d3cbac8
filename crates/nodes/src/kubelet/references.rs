//! The ConfigMaps and Secrets without which a pod does not run, and what is known of them.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream, stream::BoxStream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use serde::Deserialize;

use super::record::{Container, Pod};
use crate::reflector::{Change, follow, for_a_day};

/// Published into every namespace by a controller of a real control plane, and mounted into every pod by its API server.
/// A test bed may have the one and not the other: its absence stops no pod.
const ROOT_CA: &str = "kube-root-ca.crt";

/// The volume by which an API server gives every pod its token. What a distribution adds to it, as OpenShift does with
/// `openshift-service-ca.crt`, is published by a controller of its own, and stops no pod either.
const API_ACCESS: &str = "kube-api-access-";

/// A variable of a container's environment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvVar {
    value_from: Option<Box<ValueFrom>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ValueFrom {
    config_map_key_ref: Option<NameAndKey>,
    secret_key_ref: Option<NameAndKey>,
}

/// A whole ConfigMap or Secret as environment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvFrom {
    config_map_ref: Option<NameAndKey>,
    secret_ref: Option<NameAndKey>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NameAndKey {
    name: Box<str>,
    key: Option<Box<str>>,
    optional: Option<bool>,
}

/// A volume of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    /// Unique in the pod.
    pub name: Box<str>,
    config_map: Option<Box<Files>>,
    secret: Option<Box<Files>>,
    projected: Option<Box<Projected>>,
    persistent_volume_claim: Option<Box<ClaimSource>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimSource {
    claim_name: Box<str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Files {
    #[serde(alias = "secretName")]
    name: Option<Box<str>>,
    items: Option<Box<[NameAndKey]>>,
    optional: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Projected {
    sources: Option<Box<[Projection]>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Projection {
    config_map: Option<Files>,
    secret: Option<Files>,
}

/// A kind of object that holds configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

/// One thing that has to exist.
#[derive(Clone, Copy, Debug)]
struct Reference<'a> {
    kind: Kind,
    name: &'a str,
    key: Option<&'a str>,
}

impl<'a> Reference<'a> {
    fn to(kind: Kind, what: &'a Option<NameAndKey>) -> Option<Self> {
        let what = what.as_ref().filter(|what| what.optional != Some(true))?;
        Some(Reference { kind, name: &what.name, key: what.key.as_deref() })
    }

    /// The object itself, and then each of the keys that are named.
    fn to_files(kind: Kind, files: &'a Files) -> Vec<Self> {
        let Some(name) = files.name.as_deref().filter(|_| files.optional != Some(true)) else {
            return Vec::new();
        };
        let keys = files.items.iter().flatten().map(|item| item.key.as_deref());
        std::iter::once(None).chain(keys).map(|key| Reference { kind, name, key }).collect()
    }
}

impl Container {
    fn references(&self) -> impl Iterator<Item = Reference<'_>> {
        let whole = self.env_from.iter().flatten().flat_map(|from| {
            [
                Reference::to(Kind::ConfigMap, &from.config_map_ref),
                Reference::to(Kind::Secret, &from.secret_ref),
            ]
        });
        let single = self.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
        let single = single.flat_map(|from| {
            [
                Reference::to(Kind::ConfigMap, &from.config_map_key_ref),
                Reference::to(Kind::Secret, &from.secret_key_ref),
            ]
        });
        whole.chain(single).flatten()
    }
}

impl Volume {
    /// The name of its claim.
    pub fn claim(&self) -> Option<&str> {
        self.persistent_volume_claim.as_ref().map(|source| &*source.claim_name)
    }

    fn references(&self) -> impl Iterator<Item = Reference<'_>> {
        let whole = [(Kind::ConfigMap, self.config_map.as_deref()), (Kind::Secret, self.secret.as_deref())];
        let projected = self.projected.iter().filter(|_| !self.name.starts_with(API_ACCESS));
        let projections = projected.flat_map(|projected| projected.sources.iter().flatten());
        let projections = projections.flat_map(|source| {
            [(Kind::ConfigMap, source.config_map.as_ref()), (Kind::Secret, source.secret.as_ref())]
        });
        whole
            .into_iter()
            .chain(projections)
            .filter_map(|(kind, files)| Some((kind, files?)))
            .flat_map(|(kind, files)| Reference::to_files(kind, files))
            .filter(|reference| reference.name != ROOT_CA)
    }
}

impl Pod {
    /// The names of its claims.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.spec.volumes.iter().flatten().filter_map(Volume::claim)
    }

    /// Whether it needs the object, or with `None` whether it needs any.
    pub fn needs(&self, object: Option<(Kind, &str)>) -> bool {
        let containers = self.init_containers().iter().chain(&self.spec.containers);
        let volumes = self.spec.volumes.iter().flatten().flat_map(Volume::references);
        let mut all = containers.flat_map(Container::references).chain(volumes);
        all.any(|reference| object.is_none_or(|object| object == (reference.kind, reference.name)))
    }
}

/// A change of the known ConfigMaps and Secrets.
#[derive(Debug)]
pub struct ConfigChange {
    kind: Kind,
    /// The namespace, the name, and the keys unless it is deleted; `None` says that all of the kind are known by now.
    object: Option<(String, String, Option<BTreeSet<String>>)>,
}

/// The keys of all ConfigMaps and Secrets.
#[derive(Debug, Default)]
pub struct Configs {
    keys: BTreeMap<(Kind, String, String), BTreeSet<String>>,
    synced: BTreeSet<Kind>,
}

impl Configs {
    /// Follows all ConfigMaps and Secrets.
    pub fn follow(client: &Client) -> BoxStream<'static, ConfigChange> {
        let maps = follow(Api::<ConfigMap>::all(client.clone()), for_a_day()).map(|change| {
            let object = match change {
                Change::Put(map) => {
                    let keys = map.data.into_iter().flatten().map(|(key, _)| key);
                    let keys =
                        keys.chain(map.binary_data.into_iter().flatten().map(|(key, _)| key)).collect();
                    let (namespace, name) = (map.metadata.namespace, map.metadata.name);
                    Some((namespace.unwrap_or_default(), name.unwrap_or_default(), Some(keys)))
                }
                Change::Deleted(gone) => Some((gone.namespace, gone.name, None)),
                Change::Synced => None,
            };
            ConfigChange { kind: Kind::ConfigMap, object }
        });
        let secrets = follow(Api::<Secret>::all(client.clone()), for_a_day()).map(|change| {
            let object = match change {
                Change::Put(secret) => {
                    let keys = secret.data.into_iter().flatten().map(|(key, _)| key).collect();
                    let (namespace, name) = (secret.metadata.namespace, secret.metadata.name);
                    Some((namespace.unwrap_or_default(), name.unwrap_or_default(), Some(keys)))
                }
                Change::Deleted(gone) => Some((gone.namespace, gone.name, None)),
                Change::Synced => None,
            };
            ConfigChange { kind: Kind::Secret, object }
        });
        stream::select(maps, secrets).boxed()
    }

    /// Takes in a change, and returns whether it may matter to a pod.
    pub fn observe(&mut self, change: ConfigChange) -> impl Fn(&Pod) -> bool + use<> {
        let kind = change.kind;
        let meant = change.object.map(|(namespace, name, keys)| {
            let object = (kind, namespace, name);
            match keys {
                Some(keys) => drop(self.keys.insert(object.clone(), keys)),
                None => drop(self.keys.remove(&object)),
            }
            (object.1, object.2)
        });
        if meant.is_none() {
            self.synced.insert(kind);
        }
        move |pod| match &meant {
            Some((namespace, name)) => pod.namespace() == namespace && pod.needs(Some((kind, name))),
            None => true,
        }
    }

    /// Whether it is known what exists.
    pub fn are_known(&self) -> bool {
        self.synced.len() == 2
    }

    /// The first thing that the environment of a container lacks, in the words of a kubelet.
    pub fn missing_env(&self, pod: &Pod, container: &Container) -> Option<String> {
        container.references().find_map(|reference| {
            self.missing(pod, reference, |key| {
                let kind = if reference.kind == Kind::ConfigMap { "ConfigMap" } else { "Secret" };
                format!("couldn't find key {key} in {kind} {}/{}", pod.namespace(), reference.name)
            })
        })
    }

    /// Why the first volume that cannot be mounted cannot be.
    pub fn missing_volume(&self, pod: &Pod) -> Option<String> {
        pod.spec.volumes.iter().flatten().find_map(|volume| {
            let why = volume.references().find_map(|reference| {
                self.missing(pod, reference, |key| match reference.kind {
                    Kind::ConfigMap => format!("configmap references non-existent config key: {key}"),
                    Kind::Secret => format!("references non-existent secret key: {key}"),
                })
            })?;
            Some(format!("MountVolume.SetUp failed for volume \"{}\" : {why}", volume.name))
        })
    }

    fn missing(
        &self,
        pod: &Pod,
        reference: Reference<'_>,
        no_key: impl Fn(&str) -> String,
    ) -> Option<String> {
        let Reference { kind, name, key } = reference;
        let Some(keys) = self.keys.get(&(kind, pod.namespace().to_owned(), name.to_owned())) else {
            let kind = if kind == Kind::ConfigMap { "configmap" } else { "secret" };
            return Some(format!("{kind} \"{name}\" not found"));
        };
        key.filter(|key| !keys.contains(*key)).map(no_key)
    }
}
