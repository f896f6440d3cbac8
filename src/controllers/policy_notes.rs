//! The events about policies that were recorded: a bad value causes one, and not one per sync.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::model::Uid;
use crate::model::meta::Meta;
use crate::plan::event_note::{EventNote, ROLLOUT_FAILED};

/// The events about the policy of each object, with the generation at which they were recorded. A process that was
/// restarted records them once more.
#[derive(Debug, Default)]
pub struct PolicyNotes(Mutex<BTreeMap<Uid, (i64, Vec<EventNote>)>>);

impl PolicyNotes {
    /// The events that were not recorded for this generation yet.
    pub fn to_record<'a>(&self, object: &Meta, notes: &'a [EventNote]) -> Vec<&'a EventNote> {
        let mut all = self.0.lock();
        if notes.is_empty() {
            all.remove(&object.uid);
            return Vec::new();
        }
        let (generation, recorded) = all.entry(object.uid.clone()).or_default();
        if *generation != object.generation {
            (*generation, *recorded) = (object.generation, Vec::new());
        }
        let new: Vec<&EventNote> =
            notes.iter().filter(|note| !recorded.iter().any(|recorded| is_same(recorded, note))).collect();
        *recorded = notes.to_vec();
        new
    }
}

/// Whether two events tell the same. While a rollout stays failed, the pod that is named and the kubelet's reason change.
fn is_same(one: &EventNote, other: &EventNote) -> bool {
    one.message == other.message || (one.reason == ROLLOUT_FAILED && other.reason == ROLLOUT_FAILED)
}

impl Forget for PolicyNotes {
    fn forget(&self, object: &Uid) {
        self.0.lock().remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Deployment, Interner, Record as _};

    #[test]
    fn an_event_is_recorded_once_per_generation_and_text() {
        let meta = |generation: i64| {
            let json = format!(
                r#"{{"metadata":{{"name":"web","namespace":"n","uid":"u","resourceVersion":"1","generation":{generation}}},
                    "spec":{{"template":{{}}}}}}"#
            );
            Deployment::decode(&json, &mut Interner::default()).unwrap().meta
        };
        let (notes, said) =
            (PolicyNotes::default(), |text: &str| EventNote::warning("InvalidPolicy", text.into()));
        let (a, b) = ([said("a")], [said("a"), said("b")]);
        assert_eq!(notes.to_record(&meta(1), &a).len(), 1);
        assert_eq!(notes.to_record(&meta(1), &a).len(), 0);
        assert_eq!(notes.to_record(&meta(1), &b), [&b[1]]);
        assert_eq!(notes.to_record(&meta(2), &b).len(), 2, "another generation");
        assert!(notes.to_record(&meta(2), &[]).is_empty());
        assert_eq!(notes.to_record(&meta(2), &a).len(), 1, "it was corrected in between");
        let failed = |pod: &str| [EventNote::warning(ROLLOUT_FAILED, format!("Revision 2 failed: {pod}"))];
        assert_eq!(notes.to_record(&meta(3), &failed("web-1: ErrImagePull")).len(), 1);
        assert_eq!(notes.to_record(&meta(3), &failed("web-1: ImagePullBackOff")).len(), 0);
        assert_eq!(notes.to_record(&meta(4), &failed("web-2: ImagePullBackOff")).len(), 1);
    }
}
