//! The PersistentVolumeClaims that a pod uses.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, de::IgnoredAny};

use crate::model::wire::Text;

/// The claims of a pod's volumes. Most pods have none, and for them this is one word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(Option<Box<List>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct List {
    all: Box<[Claim]>,
}

/// A claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The name of the PersistentVolumeClaim, in the namespace of the pod.
    pub name: Arc<str>,
    /// Whether it is the claim of a generic ephemeral volume, which the pod owns: a claim of that name that the pod
    /// does not own is another one.
    pub is_ephemeral: bool,
}

impl Claims {
    /// The claims.
    pub fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.0.iter().flat_map(|list| &list.all)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// About how many bytes of heap they take.
    pub(super) fn heap_bytes(&self) -> usize {
        let names: usize = self.iter().map(|claim| claim.name.len() + 2 * size_of::<usize>()).sum();
        self.0.as_ref().map_or(0, |list| size_of::<List>() + size_of_val(&*list.all) + names)
    }
}

/// The volumes of a pod that use a claim. All others, which are most, are stepped over.
#[derive(Default)]
pub(super) struct VolumesWire<'a>(pub(super) Vec<VolumeWire<'a>>);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VolumeWire<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) persistent_volume_claim: Option<SourceWire<'a>>,
    #[serde(default)]
    pub(super) ephemeral: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceWire<'a> {
    #[serde(borrow, default)]
    pub(super) claim_name: Text<'a>,
}

impl<'a> VolumesWire<'a> {
    /// Keeps a volume if it uses a claim.
    pub(super) fn push(&mut self, volume: VolumeWire<'a>) {
        if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
            self.0.push(volume);
        }
    }

    /// The claims of a pod of this name. One that is shut down uses its ephemeral volumes no more (upstream:
    /// `podIsShutDown`): it may wait for them to be deleted.
    pub(super) fn claims(&self, pod: &str, is_shut_down: bool) -> Claims {
        let claim = |volume: &VolumeWire<'_>| match &volume.persistent_volume_claim {
            Some(source) => Some(Claim { name: source.claim_name.as_str().into(), is_ephemeral: false }),
            // Upstream: `ephemeral.VolumeClaimName`.
            None if volume.ephemeral.is_some() && !is_shut_down => {
                Some(Claim { name: format!("{pod}-{}", volume.name.as_str()).into(), is_ephemeral: true })
            }
            None => None,
        };
        let all: Box<[Claim]> = self.0.iter().filter_map(claim).collect();
        Claims((!all.is_empty()).then(|| Box::new(List { all })))
    }
}

struct VolumesVisitor;

impl<'de> Visitor<'de> for VolumesVisitor {
    type Value = VolumesWire<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of volumes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut volumes = VolumesWire::default();
        while let Some(volume) = items.next_element()? {
            volumes.push(volume);
        }
        Ok(volumes)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(VolumesWire::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for VolumesWire<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VolumesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{Interner, Pod, Record};

    fn claims(metadata: &str, volumes: &str) -> Vec<(String, bool)> {
        let json = format!(
            r#"{{"metadata":{{"name":"db-0","namespace":"shop","uid":"u","resourceVersion":"1"{metadata}}},
                "spec":{{"volumes":{volumes}}}}}"#
        );
        let pod = Pod::decode(&json, &mut Interner::default()).unwrap();
        pod.claims.iter().map(|claim| (claim.name.to_string(), claim.is_ephemeral)).collect()
    }

    const VOLUMES: &str = r#"[{"name":"token","projected":{"sources":[]}},
        {"name":"data","persistentVolumeClaim":{"claimName":"data-db-0","readOnly":true}},
        {"name":"scratch","ephemeral":{"volumeClaimTemplate":{"spec":{}}}}]"#;

    #[test]
    fn a_pod_uses_the_claims_of_its_volumes_and_those_that_are_made_for_it() {
        let expected = [("data-db-0".to_owned(), false), ("db-0-scratch".to_owned(), true)];
        assert_eq!(claims("", VOLUMES), expected);
        let ending = r#","deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":30"#;
        assert_eq!(claims(ending, VOLUMES), expected);
    }

    #[test]
    fn a_pod_that_is_shut_down_uses_its_ephemeral_volumes_no_more() {
        let shut_down = r#","deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0"#;
        assert_eq!(claims(shut_down, VOLUMES), [("data-db-0".to_owned(), false)]);
    }

    #[test]
    fn most_pods_have_none_and_that_costs_a_word() {
        assert_eq!(claims("", r#"[{"name":"token","projected":{}}]"#), []);
        assert_eq!(claims("", "null"), []);
        assert_eq!(claims("", r#"[{"name":"a","persistentVolumeClaim":null,"ephemeral":null}]"#), []);
        assert_eq!(size_of::<super::Claims>(), size_of::<usize>());
    }
}
