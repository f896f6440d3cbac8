//! Parsing method and path into a verb and an object.

use bytes::Bytes;
use http::Method;

use super::kinds::{Kind, Subresource};
use super::negotiate::Form;
use super::params::Params;
use super::registry::Registry;
use super::status::Failure;
use super::store::Key;

/// The requested operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }
}

/// An object or a collection. Empty strings stand for "all namespaces" and "the collection".
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: Option<Subresource>,
}

/// A path that is not of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Document {
    /// `/version`
    Version,
    /// `/`
    Paths,
    /// `/healthz`, `/livez` and `/readyz`. Their only part is `ping`.
    Health { check: &'static str, verbose: bool },
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis` as `kubectl top` is shown it: it asks for usage only if the group is listed, and so learns why there is none.
    GroupsWithMetrics,
    /// `/apis/<group>`
    Group(String),
    /// `/api/v1` and `/apis/<group>/<version>`
    Resources(String, String),
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/api/v1` and `/openapi/v3/apis/<group>/<version>`
    OpenApi(String, String),
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Place(Place),
    Document(Document),
}

/// A request to an object or a collection, ready to be carried out.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) place: Place,
    pub(crate) params: Params,
    pub(crate) form: Form,
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    pub(crate) body: Bytes,
}

impl Request {
    pub(crate) fn kind(&self) -> &'static Kind {
        self.place.kind
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(&self.place.namespace, &self.place.name)
    }

    /// The name of the writer in `managedFields`: what it calls itself, or its program.
    pub(crate) fn field_manager(&self) -> &str {
        match self.params.field_manager.as_str() {
            "" => Some(self.user_agent.split('/').next().unwrap_or_default())
                .filter(|program| !program.is_empty())
                .unwrap_or("unknown"),
            named => named,
        }
    }
}

/// The group of the usage of nodes and pods, which nothing serves here.
pub(crate) const METRICS: &str = "metrics.k8s.io";

/// The checks of health.
pub(crate) const HEALTH: [&str; 3] = ["healthz", "livez", "readyz"];

/// Where `path` leads, if anywhere.
pub(crate) fn resolve(path: &str, registry: &Registry) -> Result<Target, Failure> {
    let segments: Vec<String> = path.split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let document = match segments.as_slice() {
        ["version"] => Document::Version,
        [] => Document::Paths,
        [check] | [check, "ping"] if let Some(check) = HEALTH.iter().find(|known| *known == check) => {
            Document::Health { check, verbose: false }
        }
        ["api"] => Document::CoreVersions,
        ["apis"] => Document::Groups,
        ["apis", group] => Document::Group((*group).to_owned()),
        ["api", version] => Document::Resources(String::new(), (*version).to_owned()),
        ["apis", group, version] => Document::Resources((*group).to_owned(), (*version).to_owned()),
        ["openapi", "v2"] => Document::OpenApiV2,
        ["openapi", "v3"] => Document::OpenApiIndex,
        ["openapi", "v3", "api", version] => Document::OpenApi(String::new(), (*version).to_owned()),
        ["openapi", "v3", "apis", group, version] => {
            Document::OpenApi((*group).to_owned(), (*version).to_owned())
        }
        ["api", version, rest @ ..] => return place(registry, "", version, rest),
        ["apis", group, version, rest @ ..] => return place(registry, group, version, rest),
        _ => return Err(Failure::unknown_path()),
    };
    Ok(Target::Document(document))
}

fn place(registry: &Registry, group: &str, version: &str, rest: &[&str]) -> Result<Target, Failure> {
    let (namespace, plural, name, subresource) = match rest {
        ["namespaces", name, sub @ ("status" | "finalize")] => ("", "namespaces", *name, *sub),
        ["namespaces", namespace, plural] => (*namespace, *plural, "", ""),
        ["namespaces", namespace, plural, name] => (*namespace, *plural, *name, ""),
        ["namespaces", namespace, plural, name, sub] => (*namespace, *plural, *name, *sub),
        [plural] => ("", *plural, "", ""),
        [plural, name] => ("", *plural, *name, ""),
        [plural, name, sub] => ("", *plural, *name, *sub),
        _ => return Err(Failure::unknown_path()),
    };
    let kind = registry.find(group, version, plural).ok_or_else(|| match (group, plural) {
        (METRICS, "nodes" | "pods") => {
            Failure::simulated("there is no process whose usage could be measured")
        }
        _ => Failure::unknown_path(),
    })?;
    let fits = match (kind.namespaced, namespace.is_empty()) {
        (true, true) => name.is_empty(),
        (scoped, absent) => scoped != absent,
    };
    let sub = kind.subresources.iter().copied().find(|sub| sub.name() == subresource);
    if !fits || (sub.is_none() && !subresource.is_empty()) {
        return Err(Failure::unknown_path());
    }
    Ok(Target::Place(Place {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: sub,
    }))
}

/// The verb of `method` at `place`, if it is served there.
pub(crate) fn verb(method: &Method, place: &Place, watch: bool) -> Result<Verb, Failure> {
    let unscoped = place.kind.namespaced && place.namespace.is_empty();
    let verb = match (method.as_str(), place.name.is_empty(), place.subresource) {
        ("GET", true, _) if watch => Verb::Watch,
        ("GET", true, _) => Verb::List,
        ("GET", false, None) if watch => Verb::Watch,
        ("GET", false, None) => Verb::Get,
        ("POST", true, _) if !unscoped => Verb::Create,
        ("DELETE", true, _) if !unscoped => Verb::DeleteCollection,
        ("PUT", false, None) => Verb::Update,
        ("PATCH", false, None) => Verb::Patch,
        ("DELETE", false, None) => Verb::Delete,
        ("GET", false, Some(sub)) if sub.verbs().contains(&"get") => Verb::Get,
        ("PUT", false, Some(sub)) if !sub.verbs().contains(&"update") => {
            return Err(Failure::method_not_allowed());
        }
        ("PUT", false, Some(_)) => Verb::Update,
        ("PATCH", false, Some(sub)) if sub.verbs().contains(&"patch") => Verb::Patch,
        ("POST", false, Some(sub)) if sub.verbs().contains(&"create") => Verb::Create,
        _ => return Err(Failure::method_not_allowed()),
    };
    let served = place.subresource.is_some() || place.kind.verbs.contains(&verb.name());
    if served { Ok(verb) } else { Err(Failure::method_not_allowed()) }
}

/// A path segment without its percent escapes; a broken escape stands for itself.
fn decode(segment: &str) -> String {
    let bytes = segment.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = match bytes.get(at + 1..at + 3) {
            Some(hex) if byte == b'%' => {
                std::str::from_utf8(hex).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok())
            }
            _ => None,
        };
        decoded.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> Option<(&'static str, String, String, Option<Subresource>)> {
        match resolve(path, &Registry::default()).ok()? {
            Target::Place(place) => Some((place.kind.kind, place.namespace, place.name, place.subresource)),
            Target::Document(_) => None,
        }
    }

    fn some(
        kind: &'static str,
        namespace: &str,
        name: &str,
        sub: Option<Subresource>,
    ) -> Option<(&'static str, String, String, Option<Subresource>)> {
        Some((kind, namespace.to_owned(), name.to_owned(), sub))
    }

    #[test]
    fn paths_lead_to_objects_and_collections() {
        assert_eq!(
            at("/api/v1/namespaces/a/pods/b/status"),
            some("Pod", "a", "b", Some(Subresource::Status))
        );
        assert_eq!(at("/apis/apps/v1/deployments"), some("Deployment", "", "", None));
        assert_eq!(
            at("/api/v1/namespaces/a/finalize"),
            some("Namespace", "", "a", Some(Subresource::Finalize))
        );
        assert_eq!(at("/api/v1/nodes/n%31"), some("Node", "", "n1", None));
    }

    #[test]
    fn a_path_with_the_wrong_scope_is_not_found() {
        assert_eq!(at("/api/v1/pods/a"), None);
        assert_eq!(at("/api/v1/namespaces/a/nodes"), None);
        assert_eq!(at("/api/v1/namespaces/a/configmaps/b/status"), None);
        assert_eq!(at("/api/v2/pods"), None);
    }

    #[test]
    fn nothing_is_created_or_swept_in_all_namespaces_at_once() {
        let Ok(Target::Place(place)) = resolve("/api/v1/pods", &Registry::default()) else {
            panic!("a place")
        };
        assert_eq!(verb(&Method::POST, &place, false).unwrap_err().code, 405);
        assert_eq!(verb(&Method::DELETE, &place, false).unwrap_err().code, 405);
        assert_eq!(verb(&Method::GET, &place, true), Ok(Verb::Watch));
    }
}
