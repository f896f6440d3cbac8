//! The PersistentVolumeClaims that a pod uses.

use std::fmt;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, de::IgnoredAny};

use crate::model::texts::Texts;
use crate::model::wire::Text;

/// The claims of a pod's volumes. Most pods have none, and for them this is one word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(Option<Box<List>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct List {
    /// The name of the pod, with which the claims of its ephemeral volumes begin: a name of 253 bytes before each of
    /// 50,000 volumes would be ten times the pod's JSON.
    pod: Box<str>,
    /// The names of the claims, and behind them those of the ephemeral volumes.
    names: Texts,
    /// How many of them are claims.
    claims: usize,
}

/// A claim of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The pod, where the claim is that of a generic ephemeral volume.
    pod: Option<&'a str>,
    /// The name of the claim, or of the volume.
    name: &'a str,
}

impl Claim<'_> {
    /// The name of the PersistentVolumeClaim, in the namespace of the pod. Upstream: `ephemeral.VolumeClaimName`.
    pub fn name(&self) -> String {
        self.pod.map_or_else(|| self.name.to_owned(), |pod| format!("{pod}-{}", self.name))
    }

    /// Whether this is its name.
    pub fn is_called(&self, name: &str) -> bool {
        let rest = |pod| name.strip_prefix(pod).and_then(|rest: &str| rest.strip_prefix('-'));
        self.pod.map_or(Some(name), rest) == Some(self.name)
    }

    /// Whether it is the claim of a generic ephemeral volume, which the pod owns: a claim of that name that the pod
    /// does not own is another one.
    pub fn is_ephemeral(&self) -> bool {
        self.pod.is_some()
    }
}

impl Claims {
    /// The claims.
    pub fn iter(&self) -> impl Iterator<Item = Claim<'_>> {
        self.0.iter().flat_map(|list| {
            let named = |(at, name)| Claim { pod: (at >= list.claims).then_some(&*list.pod), name };
            list.names.iter().enumerate().map(named)
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// About how many bytes of heap they take.
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |list| size_of::<List>() + list.pod.len() + list.names.heap_bytes())
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
        let of_claims = self.0.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        let claims: Vec<&str> = of_claims.map(|source| source.claim_name.as_str()).collect();
        let is_ephemeral =
            |volume: &&VolumeWire<'_>| volume.persistent_volume_claim.is_none() && volume.ephemeral.is_some();
        let ephemeral = self.0.iter().filter(|_| !is_shut_down).filter(is_ephemeral);
        let names: Texts =
            claims.iter().copied().chain(ephemeral.map(|volume| volume.name.as_str())).collect();
        let pod = if names.len() > claims.len() { pod.into() } else { Box::default() };
        let list = List { pod, names, claims: claims.len() };
        Claims((!list.names.is_empty()).then(|| Box::new(list)))
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
        pod.claims.iter().map(|claim| (claim.name(), claim.is_ephemeral())).collect()
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
