//! How endpoints with the same ports are distributed over slices (upstream: `reconcileByPortMapping`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::body::Frame;
use super::endpoints::Group;
use crate::model::EndpointSlice;

/// The rules of a pass.
pub(super) struct Rules<'a> {
    /// The most endpoints of a slice that is filled.
    pub most: usize,
    /// The labels and annotations of each slice.
    pub frame: &'a Frame<'a>,
    /// Whether the hints of the endpoints are known by now.
    pub compares_hints: bool,
}

/// A slice, and the endpoints that it should have.
#[derive(Debug)]
pub(in crate::plan) struct PackedSlice<'a> {
    /// The slice, if it exists.
    pub slice: Option<&'a Arc<EndpointSlice>>,
    /// The index of its group.
    pub group: usize,
    /// The indexes of its endpoints in that group.
    pub endpoints: Vec<usize>,
    /// The change that it needs.
    pub state: State,
}

/// The change that a slice needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plan) enum State {
    /// None.
    Unchanged,
    /// Other labels or annotations only.
    Relabeled,
    /// Other endpoints; it may be a new slice.
    Changed,
    /// It has no endpoint that is wanted.
    Emptied,
}

impl<'a> PackedSlice<'a> {
    /// A slice without endpoints, which exists or is new.
    pub(super) fn placeholder(slice: Option<&'a Arc<EndpointSlice>>, group: usize) -> Self {
        let state = if slice.is_some() { State::Unchanged } else { State::Changed };
        PackedSlice { slice, group, endpoints: Vec::new(), state }
    }

    fn is_written(&self) -> bool {
        matches!(self.state, State::Relabeled | State::Changed)
    }
}

/// The slices of a group.
pub(super) struct Packed<'a> {
    /// All of them.
    pub slices: Vec<PackedSlice<'a>>,
    /// How many endpoints are in no slice yet.
    pub added: usize,
    /// How many endpoints slices lose.
    pub removed: usize,
}

/// The endpoints of a group that are in no slice yet, in their order.
struct Left {
    /// By identity. Two endpoints may have one, if their hashes are equal: neither is lost.
    by_identity: BTreeMap<u64, Vec<usize>>,
    count: usize,
}

impl Left {
    fn all(group: &Group<'_>) -> Self {
        let mut by_identity: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, endpoint) in group.endpoints.iter().enumerate().rev() {
            by_identity.entry(endpoint.fingerprint.identity).or_default().push(at);
        }
        Left { by_identity, count: group.endpoints.len() }
    }

    fn take(&mut self, identity: u64) -> Option<usize> {
        let taken = self.by_identity.get_mut(&identity)?.pop();
        self.count -= usize::from(taken.is_some());
        taken
    }

    /// The rest, in the order of the endpoints.
    fn into_rest(self) -> std::vec::IntoIter<usize> {
        let mut rest: Vec<usize> = self.by_identity.into_values().flatten().collect();
        rest.sort_unstable();
        rest.into_iter()
    }
}

/// Distributes the endpoints of a group over its slices, which are in the order of their names.
pub(super) fn pack<'a>(
    at: usize,
    group: &Group<'_>,
    existing: Vec<&'a Arc<EndpointSlice>>,
    rules: &Rules<'_>,
) -> Packed<'a> {
    let mut left = Left::all(group);
    let mut removed = 0;
    let mut slices: Vec<PackedSlice<'a>> = Vec::with_capacity(existing.len());
    for slice in existing {
        let packed = keep(at, group, slice, &mut left, rules);
        removed += slice.endpoints.len().saturating_sub(packed.endpoints.len());
        slices.push(packed);
    }
    let added = left.count;
    let mut rest = left.into_rest();
    fill(&mut slices, &mut rest, rules.most);
    while rest.len() > 0 {
        let slice = match roomiest(&mut slices, rest.len(), rules.most) {
            Some(slice) => slice,
            None => {
                slices.push(PackedSlice::placeholder(None, at));
                let Some(new) = slices.last_mut() else { break };
                new
            }
        };
        let room = rules.most.max(1).saturating_sub(slice.endpoints.len());
        slice.endpoints.extend(rest.by_ref().take(room));
        slice.state = State::Changed;
    }
    Packed { slices, added, removed }
}

/// Of the endpoints of a slice those that are wanted, in their new form.
fn keep<'a>(
    at: usize,
    group: &Group<'_>,
    slice: &'a Arc<EndpointSlice>,
    left: &mut Left,
    rules: &Rules<'_>,
) -> PackedSlice<'a> {
    let mut kept = Vec::with_capacity(slice.endpoints.len());
    let (mut is_changed, mut hints) = (false, 0_u64);
    for there in &slice.endpoints {
        let Some(index) = left.take(there.identity) else { continue };
        if let Some(wanted) = group.endpoints.get(index) {
            is_changed |= wanted.fingerprint.contents != there.contents;
            hints = hints.wrapping_add(wanted.hint_hash());
        }
        kept.push(index);
    }
    let has_lost = kept.len() != slice.endpoints.len();
    // Also one that was empty before: a new slice takes its place, or it goes.
    let state = if kept.is_empty() {
        State::Emptied
    } else if has_lost || is_changed || (rules.compares_hints && hints != slice.hints.sum) {
        State::Changed
    } else if !rules.frame.fits(slice) {
        State::Relabeled
    } else {
        State::Unchanged
    };
    PackedSlice { slice: Some(slice), group: at, endpoints: kept, state }
}

/// Fills the slices that are written anyway, the fullest first.
fn fill(slices: &mut [PackedSlice<'_>], rest: &mut impl ExactSizeIterator<Item = usize>, most: usize) {
    let mut written: Vec<&mut PackedSlice<'_>> =
        slices.iter_mut().filter(|slice| slice.is_written()).collect();
    // A stable sort: equal ones stay in the order of their names.
    written.sort_by_key(|slice| std::cmp::Reverse(slice.endpoints.len()));
    for slice in written {
        let room = most.saturating_sub(slice.endpoints.len());
        if room > 0 && rest.len() > 0 {
            slice.endpoints.extend(rest.by_ref().take(room));
            slice.state = State::Changed;
        }
    }
}

/// Of the slices that need no write, the one that is fullest once it has taken all that is left; `None` where that is too much
/// for each.
fn roomiest<'s, 'a>(
    slices: &'s mut [PackedSlice<'a>],
    left: usize,
    most: usize,
) -> Option<&'s mut PackedSlice<'a>> {
    if left >= most {
        return None;
    }
    let fits = |slice: &&mut PackedSlice<'a>| {
        slice.state == State::Unchanged && slice.endpoints.len().saturating_add(left) <= most
    };
    // Of several the first by name.
    slices.iter_mut().filter(fits).min_by_key(|slice| std::cmp::Reverse(slice.endpoints.len()))
}
