//! Which resources the server has for a kind, by discovery.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::api::{Api, ApiError};

/// How long a server may take to serve a kind that was just defined, and how often to look.
const NEW_KIND_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// The group of kustomization files, which no server has.
const KUSTOMIZE: &str = "kustomize.config.k8s.io";

/// The resource of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Such as `deployments`.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
}

/// A cache of discovery, by `apiVersion` and kind.
#[derive(Debug, Default)]
pub struct Kinds {
    known: BTreeMap<String, BTreeMap<String, Resource>>,
}

impl Kinds {
    /// Returns the resource of a kind, or `None` if the server has none. Reads discovery again if the cached answer lacks
    /// the kind: a CustomResourceDefinition may have been created since.
    ///
    /// # Errors
    /// As [`Api::send`], for everything but 404.
    pub async fn find(
        &mut self,
        api: &Api,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<Resource>, ApiError> {
        let known = |kinds: &Self| kinds.known.get(api_version)?.get(kind).cloned();
        if let Some(resource) = known(self) {
            return Ok(Some(resource));
        }
        let Some(path) = path(api_version) else { return Ok(None) };
        let resources = match api.get(&format!("the kinds of {api_version}"), &path).await? {
            Some(answer) => resources(&answer),
            None => BTreeMap::new(),
        };
        self.known.insert(api_version.to_owned(), resources);
        Ok(known(self))
    }

    /// The same for a kind whose CustomResourceDefinition this run has created: waits until the server serves it.
    ///
    /// # Errors
    /// As [`Kinds::find`].
    pub async fn find_new(
        &mut self,
        api: &Api,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<Resource>, ApiError> {
        let served = async {
            loop {
                if let Some(resource) = self.find(api, api_version, kind).await? {
                    return Ok(Some(resource));
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(NEW_KIND_TIMEOUT, served).await.unwrap_or(Ok(None))
    }

    /// Returns a hint for an unknown kind: the other versions of its group, if there are any.
    pub async fn hint(&self, api: &Api, api_version: &str) -> String {
        let Some((group, version)) = api_version.split_once('/').filter(|_| path(api_version).is_some())
        else {
            return "check kind and apiVersion".to_owned();
        };
        if group == KUSTOMIZE {
            return "build a kustomization first: `kubectl kustomize DIR | kubectl windlass create -f -`"
                .to_owned();
        }
        let answer =
            api.get("the versions", &format!("/apis/{group}")).await.ok().flatten().unwrap_or_default();
        let versions = answer["versions"].as_array().into_iter().flatten();
        let others: Vec<&str> = versions
            .filter_map(|entry| entry["version"].as_str())
            .filter(|other| *other != version)
            .collect();
        match others.is_empty() {
            true => {
                "create its CustomResourceDefinition first; if it was just created, run this again".to_owned()
            }
            false => format!("the server has {group} in version {}", others.join(", ")),
        }
    }
}

/// Returns the discovery path of an `apiVersion`, or `None` if it is malformed.
fn path(api_version: &str) -> Option<String> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    };
    match api_version.split_once('/') {
        Some((group, version)) if is_name(group) && is_name(version) => Some(format!("/apis/{api_version}")),
        None if is_name(api_version) => Some(format!("/api/{api_version}")),
        _ => None,
    }
}

/// Parses an `APIResourceList` without its subresources. If two resources have the same kind, the first one wins.
fn resources(list: &Value) -> BTreeMap<String, Resource> {
    let mut found = BTreeMap::new();
    for entry in list["resources"].as_array().into_iter().flatten() {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let (plural, is_namespaced) = (text("name"), entry["namespaced"] == true);
        if !plural.is_empty() && !plural.contains('/') {
            found.entry(text("kind")).or_insert(Resource { plural, is_namespaced });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subresources_are_no_resources_of_their_kind() {
        let list = json!({"resources": [
            {"name": "deployments/scale", "kind": "Scale", "namespaced": true},
            {"name": "deployments", "kind": "Deployment", "namespaced": true},
            {"name": "deployments/status", "kind": "Deployment", "namespaced": true},
            {"name": "namespaces", "kind": "Namespace", "namespaced": false},
        ]});
        let found = resources(&list);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["Deployment", "Namespace"]);
        let namespaces = Resource { plural: "namespaces".to_owned(), is_namespaced: false };
        assert_eq!((&found["Deployment"].plural[..], &found["Namespace"]), ("deployments", &namespaces));
    }

    #[test]
    fn what_cannot_be_an_api_version_is_never_asked_for() {
        assert_eq!(path("v1").unwrap(), "/api/v1");
        assert_eq!(path("apps/v1").unwrap(), "/apis/apps/v1");
        for wrong in ["", "/v1", "apps/", "a/b/c", "../v1", "apps/..", "v1?x", "a b/v1"] {
            assert_eq!(path(wrong), None, "{wrong:?}");
        }
    }
}
