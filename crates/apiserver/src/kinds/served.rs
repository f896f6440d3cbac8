//! The kinds whose objects clients can create.

use super::row::{Kind, Wire};

/// A kind whose objects can be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedKind {
    /// `v1` or `apps/v1`.
    pub api_version: String,
    /// `Deployment`.
    pub kind: &'static str,
    /// `deployments`.
    pub plural: &'static str,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
}

/// The kinds of `rows` whose objects can be created and are stored, in the order of their names.
pub(crate) fn served(rows: impl Iterator<Item = &'static Kind>) -> Vec<ServedKind> {
    let stored = rows.filter(|row| row.wire != Wire::EventsV1 && !row.is_review());
    let mut served: Vec<ServedKind> = stored
        .map(|row| ServedKind {
            api_version: row.api_version(),
            kind: row.kind,
            plural: row.plural,
            namespaced: row.namespaced,
        })
        .collect();
    served.sort_by_key(|row| row.kind);
    served
}
