//! The controllers of other kinds that could adopt the pods while OLD takes them over.

use windlass::model::selector::{Selector, SelectorWire};
use windlass::model::{DaemonSet, Record as _, ReplicaSet, Resource};

use super::Cluster;
use super::prepare::name;
use super::reporter::Reporter;
use crate::exit::CommandError;

/// The other kinds whose controllers adopt pods by labels alone. StatefulSets adopt by name, too.
const OTHER_KINDS: [Resource; 3] = [
    ReplicaSet::RESOURCE,
    DaemonSet::RESOURCE,
    Resource { group: "batch", version: "v1", kind: "Job", plural: "jobs" },
];

/// Kind, name and selector of the ReplicaSets, DaemonSets and Jobs of the namespace. Notes which the user may not list.
pub(super) async fn adopters(
    cluster: &Cluster<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<Vec<(&'static str, String, Selector)>, CommandError> {
    let mut all = Vec::new();
    for resource in OTHER_KINDS {
        let path = resource.path(Some(cluster.namespace));
        match cluster.api.list(resource.plural, &path, &[]).await {
            Ok(listed) => all.extend(listed.items.iter().filter_map(|object| {
                let selector = object["spec"]["selector"].to_string();
                let selector = serde_json::from_str::<SelectorWire<'_>>(&selector).ok()?;
                Some((resource.kind, name(object).to_owned(), Selector::compile(Some(selector))))
            })),
            // The server does not serve the kind.
            Err(error) if error.code() == Some(404) => {}
            Err(error) if error.is_forbidden() => {
                reporter.note(&format!(
                    "note: {error}: none of them may select the new pods, or it could adopt them while the name changes"
                ));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}
