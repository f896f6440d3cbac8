//! Notices that the history of the API server was set back: by a restore of etcd, or by another server at the same address.
//!
//! The Lease is read or written every two seconds, so that it tells soon. A watch does not tell: it is resumed at a version
//! that is still to come, and shows nothing until then. A Lease that a person has deleted looks the same, which costs one
//! list of each kind.

use serde_json::Value;

use crate::model::ObjectKey;
use crate::runtime::lost_history::LostHistory;

/// The reaction to a Lease that is another, or older, than before.
pub struct OnSetBack {
    /// Called then.
    pub call: Box<dyn Fn() + Send + Sync>,
    /// The other parts that have noticed.
    pub lost_history: LostHistory,
}

impl std::fmt::Debug for OnSetBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnSetBack")
    }
}

/// The Lease as it was when it was last there.
#[derive(Debug)]
pub(super) struct History {
    /// Its UID and resourceVersion.
    seen: Option<(String, u64)>,
    on_set_back: OnSetBack,
}

impl History {
    pub(super) fn new(on_set_back: OnSetBack) -> Self {
        History { seen: None, on_set_back }
    }

    /// Compares an answer about the Lease with the one before; `None` where there is no Lease.
    pub(super) fn compare(&mut self, lease: &ObjectKey, object: Option<&Value>) {
        let now = object.map(|object| {
            let metadata = &object["metadata"];
            let version = metadata["resourceVersion"].as_str().and_then(|version| version.parse().ok());
            (metadata["uid"].as_str().unwrap_or_default().to_owned(), version.unwrap_or(u64::MAX))
        });
        let before = std::mem::replace(&mut self.seen, now);
        let (Some(before), now) = (before, &self.seen) else { return };
        if now.as_ref().is_some_and(|(uid, version)| *uid == before.0 && *version >= before.1) {
            return;
        }
        let (was, is) = (before.1, now.as_ref().map(|now| now.1));
        if self.on_set_back.lost_history.is_news() {
            tracing::error!(
                %lease, was, is,
                "the Lease is gone, another, or older than before, as after a restore of etcd; all caches are listed anew"
            );
        } else {
            tracing::info!(%lease, was, is, "the Lease is gone, another, or older than before");
        }
        (self.on_set_back.call)();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    #[test]
    fn another_an_older_and_a_missing_lease_tell_of_another_history_once() {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let called = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let mut history =
            History::new(OnSetBack { call: Box::new(called), lost_history: LostHistory::default() });
        let lease = |uid: &str, version: &str| json!({"metadata": {"uid": uid, "resourceVersion": version}});
        let key = ObjectKey::new("kube-system", "windlass");
        for (what, object, expected) in [
            ("there is none at first", None, 0),
            ("it is created", Some(lease("a", "7")), 0),
            ("it is renewed", Some(lease("a", "9")), 0),
            ("it is read", Some(lease("a", "9")), 0),
            ("it is older", Some(lease("a", "7")), 1),
            ("and stays so", Some(lease("a", "7")), 1),
            ("it is another", Some(lease("b", "8")), 2),
            ("it is gone", None, 3),
            ("and stays so", None, 3),
            ("it is created again", Some(lease("c", "2")), 3),
        ] {
            history.compare(&key, object.as_ref());
            assert_eq!(count.load(Ordering::Relaxed), expected, "{what}");
        }
    }
}
