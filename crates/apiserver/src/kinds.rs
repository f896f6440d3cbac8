//! The kinds the sandbox serves, in one table. A kind without subresources of its own is one row.

mod served;

use super::custom::Custom;
pub(crate) use served::served;
pub use served::{ServedKind, served_kinds};

/// A path below an object with its own rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subresource {
    /// `/status`: writes change the status and what the kind's status strategy allows besides.
    Status,
    /// `/scale`: the object seen as an `autoscaling/v1` Scale.
    Scale,
    /// `/finalize`: the way a namespace loses its `spec.finalizers`.
    Finalize,
    /// `/binding`: gives a pod its node.
    Binding,
    /// `/eviction`: a graceful deletion that a disruption budget may refuse (there are none here).
    Eviction,
}

impl Subresource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Subresource::Status => "status",
            Subresource::Scale => "scale",
            Subresource::Finalize => "finalize",
            Subresource::Binding => "binding",
            Subresource::Eviction => "eviction",
        }
    }

    /// Verbs as discovery lists them.
    pub(crate) fn verbs(self) -> &'static [&'static str] {
        match self {
            Subresource::Status | Subresource::Scale => &["get", "patch", "update"],
            Subresource::Finalize => &["update"],
            Subresource::Binding | Subresource::Eviction => &["create"],
        }
    }
}

/// The changes that raise `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// The kind has none.
    None,
    /// A change of `spec`.
    Spec,
    /// A change of `spec` or of annotations: a Deployment's annotations are copied to its ReplicaSets,
    /// so its controller has to act on them (apps/deployment/strategy.go).
    SpecAndAnnotations,
    /// A change of anything but the metadata, and the status where it is a subresource: custom kinds.
    Content,
}

/// How the bytes on the wire relate to the stored object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// The stored object is what clients see.
    AsStored,
    /// `events.k8s.io/v1`: the stored `v1` Event under other field names.
    EventsV1,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) subresources: &'static [Subresource],
    pub(crate) generation: Generation,
    /// Whether a PUT without a resourceVersion overwrites what is there (`AllowUnconditionalUpdate`).
    pub(crate) unconditional_update: bool,
    /// Whether a PUT of an object that does not exist creates it (`AllowCreateOnUpdate`).
    pub(crate) create_on_update: bool,
    /// Whether DELETE answers with the removed object instead of a Status (`ReturnDeletedObject`).
    pub(crate) returns_deleted: bool,
    /// Whether a DELETE without a propagation policy orphans the dependents instead of deleting them
    /// (`DefaultGarbageCollectionPolicy`). Older than the garbage collector, and kept for its old clients;
    /// kubectl always sends a policy.
    pub(crate) orphans_dependents: bool,
    pub(crate) wire: Wire,
    /// The definition of a custom kind.
    pub(crate) custom: Option<&'static Custom>,
}

const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The fields that most rows have in common.
const NAMESPACED: Kind = Kind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL_VERBS,
    subresources: &[],
    generation: Generation::None,
    unconditional_update: true,
    create_on_update: false,
    returns_deleted: false,
    orphans_dependents: false,
    wire: Wire::AsStored,
    custom: None,
};

/// Every kind, in the order of discovery: groups together, core first.
pub(crate) static KINDS: &[Kind] = &[
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        ..NAMESPACED
    },
    Kind {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        create_on_update: true,
        ..NAMESPACED
    },
    Kind {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        subresources: &[Subresource::Finalize, Subresource::Status],
        ..NAMESPACED
    },
    Kind {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        subresources: &[Subresource::Status],
        ..NAMESPACED
    },
    // No controller binds one to the other.
    Kind {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        short_names: &["pv"],
        namespaced: false,
        subresources: &[Subresource::Status],
        returns_deleted: true,
        ..NAMESPACED
    },
    Kind {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        subresources: &[Subresource::Status],
        returns_deleted: true,
        ..NAMESPACED
    },
    Kind {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: &[Subresource::Binding, Subresource::Eviction, Subresource::Status],
        generation: Generation::Spec,
        returns_deleted: true,
        ..NAMESPACED
    },
    Kind {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        singular: "replicationcontroller",
        short_names: &["rc"],
        categories: &["all"],
        subresources: &[Subresource::Scale, Subresource::Status],
        generation: Generation::Spec,
        orphans_dependents: true,
        ..NAMESPACED
    },
    Kind {
        kind: "LimitRange",
        plural: "limitranges",
        singular: "limitrange",
        short_names: &["limits"],
        ..NAMESPACED
    },
    Kind {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        singular: "resourcequota",
        short_names: &["quota"],
        subresources: &[Subresource::Status],
        ..NAMESPACED
    },
    Kind { kind: "Secret", plural: "secrets", singular: "secret", ..NAMESPACED },
    Kind {
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[Subresource::Status],
        returns_deleted: true,
        ..NAMESPACED
    },
    Kind {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        returns_deleted: true,
        ..NAMESPACED
    },
    Kind {
        group: "apps",
        kind: "ControllerRevision",
        plural: "controllerrevisions",
        singular: "controllerrevision",
        ..NAMESPACED
    },
    Kind {
        group: "apps",
        kind: "DaemonSet",
        plural: "daemonsets",
        singular: "daemonset",
        short_names: &["ds"],
        categories: &["all"],
        subresources: &[Subresource::Status],
        generation: Generation::Spec,
        ..NAMESPACED
    },
    Kind {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        categories: &["all"],
        subresources: &[Subresource::Scale, Subresource::Status],
        generation: Generation::SpecAndAnnotations,
        ..NAMESPACED
    },
    Kind {
        group: "apps",
        kind: "ReplicaSet",
        plural: "replicasets",
        singular: "replicaset",
        short_names: &["rs"],
        categories: &["all"],
        subresources: &[Subresource::Scale, Subresource::Status],
        generation: Generation::Spec,
        ..NAMESPACED
    },
    // Kept and watched like the rest, but no controller here makes pods of it.
    Kind {
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
        categories: &["all"],
        subresources: &[Subresource::Status],
        generation: Generation::Spec,
        ..NAMESPACED
    },
    Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        unconditional_update: false,
        create_on_update: true,
        ..NAMESPACED
    },
    Kind {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        create_on_update: true,
        wire: Wire::EventsV1,
        ..NAMESPACED
    },
    // Of these nothing here takes any notice: they stand beside a workload in a manifest.
    Kind {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingAdmissionPolicy",
        plural: "validatingadmissionpolicies",
        singular: "validatingadmissionpolicy",
        namespaced: false,
        subresources: &[Subresource::Status],
        generation: Generation::Spec,
        ..NAMESPACED
    },
    Kind {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingAdmissionPolicyBinding",
        plural: "validatingadmissionpolicybindings",
        singular: "validatingadmissionpolicybinding",
        namespaced: false,
        generation: Generation::Spec,
        ..NAMESPACED
    },
    Kind {
        group: "flowcontrol.apiserver.k8s.io",
        kind: "FlowSchema",
        plural: "flowschemas",
        singular: "flowschema",
        namespaced: false,
        subresources: &[Subresource::Status],
        generation: Generation::Spec,
        ..NAMESPACED
    },
    Kind {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        singular: "networkpolicy",
        short_names: &["netpol"],
        generation: Generation::Spec,
        ..NAMESPACED
    },
    Kind {
        group: "autoscaling",
        version: "v2",
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        singular: "horizontalpodautoscaler",
        short_names: &["hpa"],
        subresources: &[Subresource::Status],
        ..NAMESPACED
    },
    Kind {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        short_names: &["pdb"],
        subresources: &[Subresource::Status],
        generation: Generation::Spec,
        ..NAMESPACED
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        namespaced: false,
        ..NAMESPACED
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        namespaced: false,
        ..NAMESPACED
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        kind: "Role",
        plural: "roles",
        singular: "role",
        ..NAMESPACED
    },
    Kind {
        group: "rbac.authorization.k8s.io",
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        ..NAMESPACED
    },
    Kind {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        subresources: &[Subresource::Status],
        generation: Generation::Spec,
        unconditional_update: false,
        ..NAMESPACED
    },
];

/// The fields that the rows of custom kinds have in common.
pub(crate) const fn custom_row() -> Kind {
    Kind { unconditional_update: false, ..NAMESPACED }
}

impl Kind {
    /// `v1` or `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `deployments.apps`, as messages about one object name its resource.
    pub(crate) fn resource(&self) -> String {
        qualified(self.plural, self.group)
    }

    /// Where the store keeps the objects, and the name of the kind's own rules. A custom kind may have the name of a
    /// built-in one, so it goes by the name of its definition.
    pub(crate) fn storage(&self) -> &'static str {
        self.custom.map_or(self.kind, |custom| &custom.definition)
    }

    pub(crate) fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

#[cfg(test)]
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|row| row.group == group && row.version == version && row.plural == plural)
}

/// The row named `kind`; of the two Event rows the stored one.
pub(crate) fn named(kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|row| row.kind == kind)
}
