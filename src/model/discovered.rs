//! The resources that the API server serves, as discovery found them.
//!
//! The one guarantee: what could not be read is listed as failed, and never looks as if it did not exist.

use std::fmt;

/// An operation on a resource. Other verbs than these occur nowhere and are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verb {
    /// `create`
    Create,
    /// `delete`
    Delete,
    /// `deletecollection`
    DeleteCollection,
    /// `get`
    Get,
    /// `list`
    List,
    /// `patch`
    Patch,
    /// `update`
    Update,
    /// `watch`
    Watch,
}

impl Verb {
    const ALL: [Verb; 8] = [
        Verb::Create,
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Update,
        Verb::Watch,
    ];

    /// Its name in discovery and in RBAC.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Patch => "patch",
            Verb::Update => "update",
            Verb::Watch => "watch",
        }
    }
}

/// A set of verbs.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Verbs(u8);

impl Verbs {
    /// The set of the verbs with these names. Unknown names are left out.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let known = |name| Verb::ALL.into_iter().find(|verb| verb.name() == name);
        names.into_iter().filter_map(known).collect()
    }

    /// Whether the verb is in the set.
    pub fn has(self, verb: Verb) -> bool {
        self.0 & (1 << verb as u8) != 0
    }

    /// Whether all these verbs are in the set.
    pub fn has_all(self, verbs: &[Verb]) -> bool {
        verbs.iter().all(|verb| self.has(*verb))
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        Verbs(verbs.into_iter().fold(0, |set, verb| set | 1 << verb as u8))
    }
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Verb::ALL.into_iter().filter(|verb| self.has(*verb))).finish()
    }
}

/// A resource in the version that the server prefers. Unlike a [`Resource`](super::Resource) it is found at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The first listed version of the group that serves the resource.
    pub version: String,
    /// The kind of its objects.
    pub kind: String,
    /// The name in URLs. It has no character that would leave its place in a path.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// The operations that clients may ask of it.
    pub verbs: Verbs,
    /// The other versions that serve the same kind, in the server's order.
    pub other_versions: Vec<String>,
}

impl DiscoveredResource {
    /// The URL path of the collection: in one namespace, or over all of them with `None`.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let DiscoveredResource { group, version, plural, .. } = self;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        }
    }

    /// The `apiVersion` of its objects: `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// Whether this version serves the kind.
    pub fn is_served_in(&self, version: &str) -> bool {
        self.version == version || self.other_versions.iter().any(|other| other == version)
    }
}

/// A version of a group whose resources are not known at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedGroup {
    /// The API group.
    pub group: String,
    /// The version; empty if all of the group is unreadable.
    pub version: String,
    /// The error, in the words of the server or of our decoder.
    pub message: String,
    /// The resources of this version when it was last read, in their own version. `None` if it has never been.
    pub last_good: Option<Vec<DiscoveredResource>>,
}

impl FailedGroup {
    /// The group and version as in an `apiVersion`.
    pub fn group_version(&self) -> String {
        if self.version.is_empty() { self.group.clone() } else { group_version(&self.group, &self.version) }
    }

    /// Whether it is known beforehand that the group holds no objects that could be deleted.
    pub fn stores_nothing(&self) -> bool {
        STORE_NOTHING.contains(&self.group.as_str())
    }
}

/// Groups of aggregated API servers that compute what they show and store nothing.
const STORE_NOTHING: [&str; 3] = ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"];

/// All resources of a server, without subresources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// The served resources, each once, in the server's order of groups.
    pub resources: Vec<DiscoveredResource>,
    /// The groups and versions whose resources are unknown.
    pub failed: Vec<FailedGroup>,
}

impl Discovered {
    /// The resource of this kind, whichever versions serve it. All in lower case it is the same kind, as for upstream's
    /// mapper (`client-go/restmapper/discovery.go`): people write `kind: configmap` into owner references.
    pub fn of_kind(&self, group: &str, kind: &str) -> Option<&DiscoveredResource> {
        let is_lower = !kind.contains(|c: char| c.is_ascii_uppercase());
        let is_it = |known: &str| known == kind || is_lower && known.eq_ignore_ascii_case(kind);
        self.resources.iter().find(|resource| resource.group == group && is_it(&resource.kind))
    }
}

/// Whether a request for this name stays below the path that it is asked at, whatever server says it.
pub fn is_path_segment(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':');
    name.chars().all(fits) && !name.trim_matches('.').is_empty()
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_verbs_that_it_was_made_of() {
        let verbs = Verbs::named(["list", "deletecollection", "impersonate"]);
        assert!(verbs.has_all(&[Verb::List, Verb::DeleteCollection]) && !verbs.has(Verb::Delete));
        assert_eq!(format!("{verbs:?}"), "{DeleteCollection, List}");
    }

    #[test]
    fn a_resource_knows_its_paths_and_versions() {
        let jobs = DiscoveredResource {
            group: "batch".into(),
            version: "v1".into(),
            kind: "CronJob".into(),
            plural: "cronjobs".into(),
            namespaced: true,
            verbs: Verbs::default(),
            other_versions: vec!["v1beta1".into()],
        };
        assert_eq!(jobs.path(Some("shop")), "/apis/batch/v1/namespaces/shop/cronjobs");
        assert_eq!(jobs.path(None), "/apis/batch/v1/cronjobs");
        assert_eq!(jobs.api_version(), "batch/v1");
        assert!(jobs.is_served_in("v1beta1") && !jobs.is_served_in("v2"));
    }
}
