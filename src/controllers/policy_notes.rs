//! The events about policies that were recorded: a bad value causes one, and not one per sync.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::model::Uid;
use crate::model::meta::Meta;
use crate::plan::EventNote;

/// The texts about the policy of each object, with the generation at which they were recorded. A process that was
/// restarted records them once more.
#[derive(Debug, Default)]
pub struct PolicyNotes(Mutex<BTreeMap<Uid, (i64, Vec<String>)>>);

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
        let new: Vec<&EventNote> = notes.iter().filter(|note| !recorded.contains(&note.message)).collect();
        *recorded = notes.iter().map(|note| note.message.clone()).collect();
        new
    }
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
    }
}
