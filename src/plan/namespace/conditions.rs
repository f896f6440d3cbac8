//! The conditions of a namespace that is being deleted. Types, reasons and texts are upstream's
//! (`pkg/controller/namespace/deletion/status_condition_utils.go`), which people and programs search for.
//!
//! They say what the last round has found. What a round did not look at stays as it was.

use jiff::Timestamp;

use super::content::{Content, Left};
use super::{DiscoveryState, Findings};
use crate::model::condition::{self, Condition};
use crate::model::discovered::FailedGroup;
use crate::model::namespace::CONDITIONS;
use crate::model::{Namespace, NamespaceStatus};

/// The status after a round.
pub fn after(namespace: &Namespace, findings: &Findings, now: Timestamp) -> NamespaceStatus {
    let Findings { discovery: DiscoveryState { failure, .. }, content, .. } = findings;
    let [discovery, parsing, deletion, remain, finalizing] = CONDITIONS;
    let mut status = namespace.status.clone();
    let mut set = |kind: &str, bad: Option<(&str, String)>, (reason, message): (&str, &str)| {
        let new = match bad {
            Some((reason, message)) => Condition::new(kind, "True", reason, message, now),
            None => Condition::new(kind, "False", reason, message, now),
        };
        // The API has no time of the last update for these.
        condition::set(&mut status.conditions, Condition { last_update: None, ..new });
    };
    let failure = failure.clone().map(|text| ("DiscoveryFailed", text));
    set(discovery, failure, ("ResourcesDiscovered", "All resources successfully discovered"));
    // A version that is no version counts as a failure of discovery here.
    set(parsing, None, ("ParsedGroupVersions", "All legacy kube types successfully parsed"));
    let Some(content) = content else { return status };
    let name = &namespace.meta.key.name;
    let failed = failed_deletions(name, content).map(|text| ("ContentDeletionFailed", text));
    let well = "All content successfully deleted, may be waiting on finalization";
    set(deletion, failed, ("ContentDeleted", well));
    if content.left.is_empty() && !content.errors.is_empty() {
        // Whether something is left is not known.
        return status;
    }
    let left = remaining(&content.left).map(|text| ("SomeResourcesRemain", text));
    set(remain, left, ("ContentRemoved", "All content successfully removed"));
    let kept = finalizers(&content.left).map(|text| ("SomeFinalizersRemain", text));
    set(finalizing, kept, ("ContentHasNoFinalizers", "All content-preserving finalizers finished"));
    status
}

/// The text of the condition about groups whose resources are unknown.
pub fn failed_groups(failed: &[FailedGroup]) -> Option<String> {
    let each = failed.iter().map(|group| format!("{}: {}", group.group_version(), group.message));
    let count = failed.len();
    let list = "unable to retrieve the complete list of server APIs";
    joined(each).map(|all| format!("Discovery failed for some groups, {count} failing: {list}: {all}"))
}

fn failed_deletions(name: &str, content: &Content) -> Option<String> {
    let unexpected = content.left.iter().filter(|left| left.is_unexpected).map(|left| {
        let Left { group, version, plural, .. } = left;
        let resource = format!("{group}/{version}, Resource={plural}");
        format!("unexpected items still remain in namespace: {name} for gvr: {resource}")
    });
    let failed: Vec<String> =
        content.errors.iter().map(|failure| failure.message.clone()).chain(unexpected).collect();
    let count = failed.len();
    let all = joined(failed.into_iter())?;
    Some(format!("Failed to delete all resource types, {count} remaining: {all}"))
}

fn remaining(left: &[Left]) -> Option<String> {
    let each = left
        .iter()
        .map(|left| format!("{}.{} has {} resource instances", left.plural, left.group, left.count));
    joined(each).map(|all| format!("Some resources are remaining: {all}"))
}

fn finalizers(left: &[Left]) -> Option<String> {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for (name, count) in left.iter().flat_map(|left| &left.finalizers) {
        *counts.entry(name).or_default() += count;
    }
    let each = counts.iter().map(|(name, count)| format!("{name} in {count} resource instances"));
    joined(each).map(|all| format!("Some content in the namespace has finalizers remaining: {all}"))
}

/// Sorted, so that the text is the same as long as what it says is.
fn joined(texts: impl Iterator<Item = String>) -> Option<String> {
    let mut all: Vec<String> = texts.collect();
    all.sort();
    (!all.is_empty()).then(|| all.join(", "))
}
