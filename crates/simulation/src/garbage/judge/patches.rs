//! GC5: what a patch of the collector changes.

use std::time::Duration;

use serde_json::Value;

use super::Judge;
use crate::engine::objects::text;
use crate::garbage::truth::{self, Stored, Truth};

impl Judge {
    /// GC5: a patch changes nothing but references to owners that are gone, wait or release their dependents, what blocks
    /// in a circle, and the two finalizers.
    pub(super) fn patch(
        &self,
        at: Duration,
        before: &Value,
        after: &Value,
        all: &Stored,
    ) -> Result<(), String> {
        let namespace = text(before, "/metadata/namespace");
        let without = |object: &Value| {
            let mut rest = object.clone();
            if let Some(metadata) = rest["metadata"].as_object_mut() {
                for field in
                    ["ownerReferences", "finalizers", "resourceVersion", "managedFields", "generation"]
                {
                    metadata.remove(field);
                }
            }
            rest
        };
        if without(before) != without(after) {
            return Err("it changes something else".to_owned());
        }
        let kept: Vec<&Value> = truth::references(after).collect();
        for reference in truth::references(before) {
            let owner = text(reference, "/uid");
            match kept.iter().find(|kept| kept["uid"] == *owner) {
                Some(kept) if *kept == reference => {}
                Some(kept) => {
                    let mut unblocked = reference.clone();
                    unblocked["blockOwnerDeletion"] = false.into();
                    let waits = self.was_so(self.waited.get(owner), at);
                    if **kept != unblocked || !waits {
                        return Err(format!("it changes {reference} to {kept}"));
                    }
                }
                None => {
                    let may_go = match truth::of(reference, namespace, all) {
                        Truth::Absent | Truth::Waits => true,
                        Truth::Exists => {
                            self.was_so(self.waited.get(owner), at)
                                || self.was_so(self.orphaned.get(owner), at)
                        }
                        Truth::Unresolvable => self.is_gone(owner, all) || self.orphaned.contains_key(owner),
                    };
                    if !may_go {
                        return Err(format!("it removes the reference to a living owner: {reference}"));
                    }
                }
            }
        }
        if kept.len() > truth::references(before).count() {
            return Err("it adds a reference".to_owned());
        }
        let finalizers =
            |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let foreign = |object: &Value| -> Vec<Value> {
            let ours = ["orphan", "foregroundDeletion"];
            finalizers(object).into_iter().filter(|known| !ours.iter().any(|our| known == our)).collect()
        };
        if foreign(before) != foreign(after) || finalizers(after).len() > finalizers(before).len() {
            return Err("it changes the finalizers of others".to_owned());
        }
        Ok(())
    }
}
