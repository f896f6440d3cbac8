//! Which Services a change concerns.

use super::pods::counts;
use crate::model::node::Ready;
use crate::model::{EndpointSlice, Node, Pod};

/// The Services that a change of a pod concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affected {
    /// None.
    None,
    /// Those that select the pod now or did before.
    All,
    /// Those that select it now and did not before, or the other way round.
    Changed,
}

/// Whether a change of a pod concerns its Services (upstream: `podEndpointsChanged`). Other than upstream, the end of a pod does;
/// a later time of its deletion does not, and neither does a pod before it has an address. `None` stands for a pod that does not
/// exist: of one that was deleted, the last state of the cache is not known.
pub fn affected(old: Option<&Pod>, new: Option<&Pod>) -> Affected {
    match (old, new) {
        (_, None) => Affected::All,
        (None, Some(new)) => {
            if counts(new) {
                Affected::All
            } else {
                Affected::None
            }
        }
        (Some(old), Some(new)) => changed(old, new),
    }
}

fn changed(old: &Pod, new: &Pod) -> Affected {
    if !counts(old) && !counts(new) {
        return Affected::None;
    }
    let content = |pod: &Pod| (pod.meta.is_deleting(), pod.is_terminal(), pod.ready_since.is_some());
    let is_same_place = old.network == new.network || {
        let names = |pod: &Pod| {
            (pod.network.hostname().map(str::to_owned), pod.network.subdomain().map(str::to_owned))
        };
        old.network.addresses().eq(new.network.addresses()) && names(old) == names(new)
    };
    let is_same_node = old.node() == new.node();
    if content(old) != content(new) || !is_same_place || !is_same_node {
        Affected::All
    } else if old.meta.labels != new.meta.labels {
        Affected::Changed
    } else {
        Affected::None
    }
}

/// The names of the Services that a change of a slice concerns, of those that this writer looks after. `is_expected`: this process
/// has made the change.
pub fn services_of_slice<'a>(
    writer: &str,
    old: Option<&'a EndpointSlice>,
    new: Option<&'a EndpointSlice>,
    is_expected: bool,
) -> impl Iterator<Item = &'a str> {
    let is_managed = |slice: Option<&EndpointSlice>| slice.is_some_and(|slice| slice.is_managed_by(writer));
    let (before, after) = (old.and_then(EndpointSlice::service), new.and_then(EndpointSlice::service));
    let is_moved = old.is_some() && new.is_some() && before != after;
    let is_handed_over = old.is_some() && new.is_some() && is_managed(old) != is_managed(new);
    let is_changed = !is_expected && (is_managed(new) || (new.is_none() && is_managed(old)));
    let concerned = is_moved || is_handed_over || is_changed;
    let second = before.filter(|_| is_moved || after.is_none());
    after.into_iter().chain(second).filter(move |_| concerned)
}

/// The meaning of a change of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    /// The shares of the zones in the CPUs may be others.
    pub changes_shares: bool,
    /// The endpoints of its pods may be others.
    pub changes_endpoints: bool,
}

/// The meaning of a change of a node; `None` stands for a node that does not exist.
pub fn node_change(old: Option<&Node>, new: Option<&Node>) -> NodeChange {
    let share =
        |node: &Node| (node.ready == Ready::True, node.zone().map(str::to_owned), node.allocatable_cpu);
    NodeChange {
        changes_shares: old.map(share) != new.map(share),
        // A pod of a node that is gone stays where it is until the Service is looked at again: upstream has it so.
        changes_endpoints: new.is_some_and(|new| old.is_none_or(|old| old.zone() != new.zone())),
    }
}
