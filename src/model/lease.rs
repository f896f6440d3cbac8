//! A Lease of `kube-node-lease`: the heartbeat of a node.

use jiff::Timestamp;
use serde::Deserialize;

use super::intern::Interner;
use super::meta::Meta;
use super::record::{Record, Resource};
use super::wire::{MetaWire, Time};

/// The namespace with a Lease for each node, of its name.
pub const NODE_LEASES: &str = "kube-node-lease";

/// The Lease of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Metadata.
    pub meta: Meta,
    /// When the kubelet last renewed it, by its own clock.
    pub renew_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct LeaseWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(default)]
    spec: Option<SpecWire>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecWire {
    #[serde(default)]
    renew_time: Option<Time>,
}

impl Record for Lease {
    const RESOURCE: Resource =
        Resource { group: "coordination.k8s.io", version: "v1", kind: "Lease", plural: "leases" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let LeaseWire { metadata, spec } = serde_json::from_str(json)?;
        let renew_time = spec.unwrap_or_default().renew_time.map(|time| time.0);
        Ok(Lease { renew_time, meta: metadata.into_meta(interner)? })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_its_time_of_renewal() {
        let lease = |spec: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"n1","namespace":"kube-node-lease","uid":"u","resourceVersion":"1"}},"spec":{spec}}}"#
            );
            Lease::decode(&json, &mut Interner::default()).unwrap().renew_time
        };
        let renewed = lease(r#"{"holderIdentity":"n1","renewTime":"2026-01-01T00:00:00.123456Z"}"#);
        assert_eq!(renewed, Some("2026-01-01T00:00:00.123456Z".parse().unwrap()));
        assert_eq!([lease("{}"), lease(r#"{"renewTime":null}"#), lease("null")], [None; 3]);
    }
}
