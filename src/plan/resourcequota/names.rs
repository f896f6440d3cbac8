//! The names of resources in `spec.hard`: the objects whose use each stands for.

use std::fmt;

/// The objects that use a resource of a quota.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Pods.
    Pods,
    /// Services.
    Services,
    /// PersistentVolumeClaims.
    Claims,
    /// Objects of which only the number counts, by their resource: `configmaps`, `deployments.apps`.
    Objects(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Pods => "pods",
            Source::Services => "services",
            Source::Claims => "persistentvolumeclaims",
            Source::Objects(resource) => resource,
        })
    }
}

/// The prefix of a resource whose objects are counted.
const COUNT: &str = "count/";

/// Resources whose objects are counted by their plain names, too (upstream: `legacyObjectCountAliases`).
const ALIASES: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// Resources that no quota counts (upstream: `pkg/quota/v1/install`).
const IGNORED: [&str; 2] = ["events", "events.events.k8s.io"];

/// The part that follows the name of a StorageClass.
pub const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";

/// The prefix of the requests of pods.
pub const REQUESTS: &str = "requests.";

/// The prefix of resources that stand for a class of devices.
const OF_DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// The objects that use a resource; `None` for a name that stands for nothing that is counted.
pub fn source(key: &str) -> Option<Source> {
    if let Some(resource) = key.strip_prefix(COUNT) {
        return match resource {
            "pods" => Some(Source::Pods),
            "services" => Some(Source::Services),
            "persistentvolumeclaims" => Some(Source::Claims),
            _ if resource.is_empty() || IGNORED.contains(&resource) => None,
            _ => Some(Source::Objects(resource.to_owned())),
        };
    }
    let is_of_class = || {
        let of_class = key.split_once(OF_STORAGE_CLASS).map(|(_, rest)| rest);
        matches!(of_class, Some("persistentvolumeclaims" | "requests.storage"))
    };
    match key {
        "services" | "services.nodeports" | "services.loadbalancers" => Some(Source::Services),
        "persistentvolumeclaims" | "requests.storage" => Some(Source::Claims),
        _ if ALIASES.contains(&key) => Some(Source::Objects(key.to_owned())),
        _ if is_of_class() => Some(Source::Claims),
        _ => is_of_pods(key).then_some(Source::Pods),
    }
}

fn is_of_pods(key: &str) -> bool {
    match (key.strip_prefix(REQUESTS), key.strip_prefix("limits.")) {
        (Some(name), _) => is_computing(name) || is_huge_page(name) || is_extended(name),
        (_, Some(name)) => is_computing(name),
        _ => key == "pods" || is_computing(key) || is_huge_page(key),
    }
}

/// CPU, memory, and space on the node.
pub fn is_computing(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage")
}

/// Memory in large pages.
pub fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// A resource with a domain that is not Kubernetes' own, or one that stands for a class of devices (upstream:
/// `IsDRAExtendedResourceName`).
pub fn is_extended(name: &str) -> bool {
    let is_foreign = name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with(REQUESTS);
    is_foreign || name.starts_with(OF_DEVICE_CLASS)
}

/// The names under which the objects of a resource are counted.
pub fn of_objects(resource: &str) -> Vec<String> {
    let alias = ALIASES.contains(&resource).then(|| resource.to_owned());
    alias.into_iter().chain([format!("{COUNT}{resource}")]).collect()
}
