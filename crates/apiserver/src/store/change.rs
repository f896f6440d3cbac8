//! A committed write.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::object::recent::Recent;
use crate::object::{Object, set_meta};

/// Where an object of a kind is: namespace ("" for cluster-scoped kinds) and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Key { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// One committed write.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: Arc<Key>,
    /// The object before, unless this created it.
    pub(crate) before: Option<Arc<Object>>,
    /// The object after, unless this removed it.
    pub(crate) after: Option<Arc<Object>>,
    pub(super) departed: OnceLock<Arc<Object>>,
}

impl Change {
    /// The object that a DELETED event carries: the state before, under this change's revision.
    pub(crate) fn departed(&self) -> Option<Arc<Object>> {
        let before = self.before.as_ref()?;
        Some(
            self.departed
                .get_or_init(|| {
                    Arc::new(at_revision(Value::clone(&before.peek()), self.revision, before.recent()))
                })
                .clone(),
        )
    }
}

pub(super) fn at_revision(mut value: Value, revision: u64, recent: &Arc<Recent>) -> Object {
    set_meta(&mut value, "resourceVersion", revision.to_string());
    Object::stored(value, recent.clone())
}
