//! The writes that bring slices to the form that was packed.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::body::{Content, Frame};
use super::endpoints::Group;
use super::names::Names;
use super::packing::{PackedSlice, State};
use crate::model::{AddressType, EndpointSlice};

/// The writes for one address type, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Writes {
    /// New slices.
    pub creates: Vec<Create>,
    /// Changes of slices.
    pub updates: Vec<Update>,
    /// Slices to delete.
    pub deletes: Vec<Arc<EndpointSlice>>,
}

/// A new slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Create {
    /// Its name.
    pub name: String,
    /// The object.
    pub body: Value,
}

/// A change of a slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The slice as it was observed.
    pub slice: Arc<EndpointSlice>,
    /// The merge patch.
    pub body: Value,
}

impl Writes {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.creates.len() + self.updates.len() + self.deletes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The writes for slices of one address type. Of a slice to delete and one to create, the one is changed into the other: that is
/// one event for each node instead of two. `taken` are the names that new slices must not have.
pub(in crate::plan) fn writes(
    frame: &Frame<'_>,
    address_type: AddressType,
    taken: &BTreeSet<Arc<str>>,
    groups: &[Group<'_>],
    packed: Vec<PackedSlice<'_>>,
    mut deletes: Vec<&Arc<EndpointSlice>>,
) -> Writes {
    let mut writes = Writes::default();
    let mut names = Names::new(frame.owner, address_type, taken);
    for PackedSlice { slice, group: at, endpoints, state } in packed {
        let Some(group) = groups.get(at) else { continue };
        let endpoints: Vec<_> = endpoints.iter().filter_map(|at| group.endpoints.get(*at)).collect();
        let update = |slice: &Arc<EndpointSlice>, content: Content<'_>| Update {
            slice: slice.clone(),
            body: frame.patch(slice, &content),
        };
        match (slice, state) {
            (_, State::Unchanged | State::Emptied) => {}
            (Some(slice), State::Relabeled) => writes.updates.push(update(slice, Content::default())),
            (Some(slice), State::Changed) => {
                let content = Content { endpoints: Some(&endpoints), ports: None };
                writes.updates.push(update(slice, content));
            }
            (None, _) => {
                if let Some(at) = deletes.iter().position(|slice| frame.owns(slice)) {
                    let content = Content { endpoints: Some(&endpoints), ports: Some(&group.ports) };
                    writes.updates.push(update(deletes.remove(at), content));
                    continue;
                }
                // An object that is being deleted gets no new slices, which the garbage collector may not know of.
                if frame.owner.is_deleting() {
                    continue;
                }
                let name = names.next(group);
                let body = frame.new_slice((&name, address_type), (&endpoints, &group.ports));
                writes.creates.push(Create { name, body });
            }
        }
    }
    writes.deletes = deletes.into_iter().cloned().collect();
    writes
}
