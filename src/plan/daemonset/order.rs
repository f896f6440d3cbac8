//! The orders of pods and nodes, each a key with a derived order.

use std::sync::Arc;

use jiff::Timestamp;

use super::names::fnv1a_64;
use crate::model::Pod;

/// Which of several pods on one node stays: bound before unbound, then the older, then by name (upstream:
/// `podByCreationTimestampAndPhase`). Readiness and revision do not count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seniority {
    is_unbound: bool,
    created: Timestamp,
    name: Arc<str>,
}

impl Seniority {
    /// The key of a pod.
    pub fn of(pod: &Pod) -> Self {
        Seniority {
            is_unbound: pod.node().is_none(),
            created: pod.meta.created,
            name: pod.meta.key.name.clone(),
        }
    }
}

/// The place of a node in a rollout. Every process computes the same order, and each revision has another one, so
/// that not always the same nodes come first. Two leaders who each see a part of the rollout choose the same nodes:
/// the one with the older view chooses what is done already.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RolloutPosition<'a> {
    hash: u64,
    node: &'a str,
}

impl<'a> RolloutPosition<'a> {
    /// The place of a node in the rollout of a revision.
    pub fn of(revision: &str, node: &'a str) -> Self {
        RolloutPosition { hash: mixed(fnv1a_64([node.as_bytes(), b"/", revision.as_bytes()])), node }
    }
}

/// Mixes the last bytes of a hash, which FNV leaves where they do not affect the order.
fn mixed(hash: u64) -> u64 {
    let step = |hash: u64| (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = step(step(hash));
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};

    fn pod(name: &str, node: &str, created: &str) -> Pod {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"ops","uid":"u-{name}","resourceVersion":"1",
                "creationTimestamp":"{created}"}},"spec":{{"nodeName":"{node}"}}}}"#
        );
        Pod::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn the_bound_pod_stays_then_the_older_then_the_first_by_name() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z");
        let mut pods =
            [pod("a", "", early), pod("c", "n1", late), pod("b", "n1", late), pod("d", "n1", early)];
        pods.sort_by_cached_key(Seniority::of);
        assert_eq!(pods.map(|pod| pod.meta.key.name.to_string()), ["d", "b", "c", "a"]);
    }

    #[test]
    fn each_revision_has_an_order_of_its_own_and_always_the_same() {
        let nodes: Vec<String> = (0..9).map(|n| format!("n{n}")).collect();
        let order = |revision: &str| {
            let mut positions: Vec<RolloutPosition<'_>> =
                nodes.iter().map(|node| RolloutPosition::of(revision, node)).collect();
            positions.sort();
            positions.into_iter().map(|turn| turn.node.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(order("abc"), order("abc"));
        assert_ne!(order("abc"), order("abd"));
        assert_eq!(
            order("abc"),
            ["n2", "n7", "n8", "n3", "n0", "n4", "n6", "n5", "n1"],
            "the order of earlier releases"
        );
    }
}
