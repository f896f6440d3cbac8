//! How long a proof of absence counts.

use super::record::{Flag, UNSERVED};
use super::{Graph, ResourceId};

impl Graph {
    /// The watch of a resource has ended. Until its next list or watch shows something, the API server may have gone back to
    /// an earlier state, as after a restore of etcd, so that objects exist whose end was seen: they are asked for.
    pub fn doubt(&mut self, resource: ResourceId) {
        // An owner of a kind that is not watched may have come back with the others.
        let is_meant = |slot: &u32| [resource.0, UNSERVED].contains(&self.records[*slot].resource);
        let doubted: Vec<u32> = self.absent.iter().copied().filter(is_meant).collect();
        for slot in doubted {
            self.absent.remove(&slot);
            self.records[slot].set(Flag::Deleted, false);
            self.records[slot].set(Flag::Absent, false);
            self.unseen.insert(slot);
        }
    }
}
