//! The message about an object that does not exist.

use windlass::model::{Namespace, ObjectKey, Record as _, Resource};

use crate::api::Api;
use crate::exit::CommandError;

/// The error for an object that does not exist: with the names of others that may be meant, or that there is no such
/// namespace.
pub async fn error(api: &Api, resource: &Resource, namespace: &str, name: &str) -> CommandError {
    let kind = resource.kind.to_lowercase();
    let path = Namespace::RESOURCE.path_of(&ObjectKey::new("", namespace));
    if let Ok(None) = api.get("the namespace", &path).await {
        return CommandError::Argument(format!("{kind} {name}: namespace {namespace} does not exist"));
    }
    let mut text = format!("{kind} {namespace}/{name} does not exist");
    let listed = api.list(resource.plural, &resource.path(Some(namespace)), &[]).await;
    let names = listed.map(|listed| listed.items).unwrap_or_default();
    let names = names.iter().filter_map(|object| object["metadata"]["name"].as_str());
    let close: Vec<&str> = names.filter(|known| is_close(known, name)).take(3).collect();
    if !close.is_empty() {
        text.push_str(&format!("; there is {}", close.join(", ")));
    }
    CommandError::Argument(text)
}

/// Whether a name may be meant by another: one contains the other, or they differ in at most two letters.
fn is_close(known: &str, name: &str) -> bool {
    let differing = known.chars().zip(name.chars()).filter(|(a, b)| a != b).count();
    let shorter = known.chars().count().abs_diff(name.chars().count());
    known.contains(name) || name.contains(known) || differing + shorter <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_alike_are_offered() {
        assert!(is_close("web-frontend", "web") && is_close("web", "wbe") && is_close("api", "apis"));
        assert!(!is_close("database", "web"));
    }
}
