//! Whether the API server keeps `status.terminatingReplicas`.
//!
//! Servers before 1.33 do not know the field, and later ones drop it while the feature gate
//! `DeploymentReplicaSetTerminatingReplicas` is off, which is the default before 1.35. Absent is not 0, so
//! that the count differs from what such a server stores, at every sync and for ever. A write of nothing else
//! shows it: the returned object has the same resourceVersion as before. From then on the field alone causes no
//! write. It is still part of every other write, and the first object with the field shows that the
//! server stores it now.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::Value;

/// The knowledge about the server.
#[derive(Debug, Default)]
pub struct GatedField {
    dropped: AtomicBool,
}

impl GatedField {
    /// Whether the field alone justifies a write.
    pub fn is_kept(&self) -> bool {
        !self.dropped.load(Relaxed)
    }

    /// An object has this value.
    pub fn observed(&self, value: Option<i32>) {
        if value.is_some() && !self.is_kept() {
            self.dropped.store(false, Relaxed);
        }
    }

    /// The status `body` was accepted for an object that had the value `before`. `is_other` tells whether its
    /// resourceVersion is another one since.
    pub fn wrote(&self, before: Option<i32>, body: &Value, is_other: bool) {
        if before.is_none() && body["status"]["terminatingReplicas"].is_number() && !is_other {
            self.dropped.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_write_that_leaves_the_object_as_it_was_shows_that_the_field_is_dropped() {
        let field = GatedField::default();
        assert!(field.is_kept(), "until there is proof");
        let counted = json!({"status": {"terminatingReplicas": 0}});
        field.wrote(None, &counted, true);
        field.wrote(Some(1), &counted, false);
        field.wrote(None, &json!({"status": {"replicas": 0}}), false);
        field.wrote(Some(1), &json!({"status": {"terminatingReplicas": null}}), false);
        assert!(field.is_kept());
        field.wrote(None, &counted, false);
        assert!(!field.is_kept());
        field.observed(None);
        assert!(!field.is_kept());
        field.observed(Some(0));
        assert!(field.is_kept());
    }
}
