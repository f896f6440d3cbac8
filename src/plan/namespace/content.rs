//! The content of a namespace, by resource.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Name;
use crate::model::discovered::DiscoveredResource;

/// The finalizers by which a deletion orphans its dependents or waits for them. A deletion in the background takes them
/// off, and in a namespace that goes as a whole nobody needs them.
const COLLECTORS: [&str; 2] = ["orphan", "foregroundDeletion"];

/// How many objects are deleted one by one in a round. The others are deleted in the next: a round is to take minutes at
/// most.
pub const ONE_BY_ONE: usize = 5000;

/// An object, as far as its deletion depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// By when it should be gone: a pod has until then to end. `None` if it is not being deleted.
    pub due: Option<Timestamp>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
}

impl Item {
    /// Whether a request to delete it changes anything.
    pub fn needs_deletion(&self) -> bool {
        let is_kept = self.finalizers.iter().any(|name| COLLECTORS.contains(&name.as_str()));
        !self.is_deleting || is_kept
    }
}

/// A list of the objects of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The objects.
    pub items: Vec<Item>,
    /// Whether these are all.
    pub is_whole: bool,
}

impl Listed {
    /// Whether there is something to delete, or may be.
    pub fn needs_deletion(&self) -> bool {
        !self.is_whole || self.items.iter().any(Item::needs_deletion)
    }
}

/// The remaining objects of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version in which it was looked at.
    pub version: String,
    /// The name in URLs.
    pub plural: String,
    /// How many objects.
    pub count: usize,
    /// How many of them have which finalizer.
    pub finalizers: BTreeMap<String, usize>,
    /// Whether one of them should not be there: it is not being deleted, and nothing keeps it.
    pub is_unexpected: bool,
    /// Whether all of them are being deleted, and no further request is needed.
    pub is_ending: bool,
    /// By when the last of those that are being deleted should be gone.
    pub due: Option<Timestamp>,
}

impl Left {
    /// Counts what a list shows after the deletion; `None` if that is nothing. `were_all_deleted` is false if the
    /// deletion of some was left to the next round.
    pub fn of(resource: &DiscoveredResource, items: &[Item], were_all_deleted: bool) -> Option<Self> {
        if items.is_empty() {
            return None;
        }
        let mut finalizers = BTreeMap::new();
        for name in items.iter().flat_map(|item| &item.finalizers) {
            *finalizers.entry(name.clone()).or_default() += 1;
        }
        let DiscoveredResource { group, version, plural, .. } = resource;
        Some(Left {
            group: group.clone(),
            version: version.clone(),
            plural: plural.clone(),
            count: items.len(),
            finalizers,
            is_ending: were_all_deleted && !items.iter().any(Item::needs_deletion),
            due: items.iter().filter_map(|item| item.due).max(),
            is_unexpected: were_all_deleted
                && items.iter().any(|item| !item.is_deleting && item.finalizers.is_empty()),
        })
    }
}

/// A resource whose objects could not be listed or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The resource.
    pub resource: Name,
    /// The failure, and its reason.
    pub message: String,
}

/// The content of a namespace that a round has found. Resources without objects are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The remaining objects.
    pub left: Vec<Left>,
    /// The resources that could not be read.
    pub errors: Vec<Failure>,
}

impl Content {
    /// Adds what was found of one resource.
    pub fn add(&mut self, found: Result<Option<Left>, Failure>) {
        match found {
            Ok(left) => self.left.extend(left),
            Err(_) if planted!("a kind that cannot be read counts as empty") => {}
            Err(failure) => self.errors.push(failure),
        }
    }

    /// Whether everything that was looked at is empty.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty() && self.errors.is_empty()
    }

    /// How many objects are left.
    pub fn count(&self) -> usize {
        self.left.iter().map(|left| left.count).sum()
    }

    /// The resources whose objects are all on their way out, if that is so of all that is left: then there is nothing to do
    /// before the last object of one has gone. `None` if there is something to do, or nothing left.
    pub fn ends_by_itself(&self) -> Option<BTreeSet<Name>> {
        let is_ending = self.errors.is_empty() && self.left.iter().all(|left| left.is_ending);
        (is_ending && !self.left.is_empty()).then(|| self.open().collect())
    }

    /// The resources that are not known to be empty.
    pub(super) fn open(&self) -> impl Iterator<Item = Name> {
        let left = self.left.iter().map(|left| (left.group.clone(), left.plural.clone()));
        left.chain(self.errors.iter().map(|failure| failure.resource.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::discovered::Verbs;

    fn left(plural: &str, items: &[Item], were_all_deleted: bool) -> Option<Left> {
        let resource = DiscoveredResource {
            group: String::new(),
            version: "v1".into(),
            kind: "Kind".into(),
            plural: plural.into(),
            namespaced: true,
            verbs: Verbs::named(["delete", "list"]),
            other_versions: Vec::new(),
        };
        Left::of(&resource, items, were_all_deleted)
    }

    fn item(is_deleting: bool, finalizers: &[&str]) -> Item {
        let finalizers = finalizers.iter().map(ToString::to_string).collect();
        Item { is_deleting, finalizers, ..Item::default() }
    }

    #[test]
    fn content_ends_by_itself_once_every_object_is_being_deleted_and_nothing_is_unknown() {
        let ends = |left: Vec<Option<Left>>, errors: Vec<Failure>| {
            let content = Content { left: left.into_iter().flatten().collect(), errors };
            content
                .ends_by_itself()
                .map(|names| names.into_iter().map(|(_, plural)| plural).collect::<Vec<_>>())
        };
        let deleting = || left("pods", &[item(true, &["example.com/keep"])], true);
        assert_eq!(ends(vec![deleting()], vec![]), Some(vec!["pods".to_owned()]));
        assert_eq!(ends(vec![], vec![]), None, "there is nothing to wait for");
        let new = || left("secrets", &[item(true, &[]), item(false, &[])], true);
        assert_eq!(ends(vec![deleting(), new()], vec![]), None, "one was created late");
        assert_eq!(
            ends(vec![left("pods", &[item(true, &[])], false)], vec![]),
            None,
            "others are left to the next round"
        );
        let held = left("pods", &[item(true, &["foregroundDeletion"])], true);
        assert_eq!(ends(vec![held], vec![]), None, "a deletion takes the finalizer off");
        let failure = Failure { resource: (String::new(), "things".into()), message: "down".into() };
        assert_eq!(ends(vec![deleting()], vec![failure]), None);
    }
}
