//! The row of a kind: all that is special about it, and the functions that do it.

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, Resource, SubResourceScope};
use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::lists;
use crate::custom::Custom;
use crate::names::Names;
use crate::options::Options;
use crate::store::Store;
use crate::strict::decode::{Surplus, decode_as};
use crate::table::row::Row;
use crate::validate::{Errors, names};
use crate::warnings::Warnings;

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
    /// `/approval`: the conditions of a request for a certificate.
    Approval,
    /// `/eviction`: a graceful deletion that a disruption budget may refuse.
    Eviction,
    /// `/log`: the lines of a container.
    Log,
    /// `/exec`: a command in a container, which no container here has.
    Exec,
    /// `/attach`, the same.
    Attach,
    /// `/portforward`, the same.
    PortForward,
    /// `/ephemeralcontainers`: one more container in a pod, for `kubectl debug`.
    EphemeralContainers,
    /// `/resize`: other resources for the containers of a pod.
    Resize,
    /// `/token` of a ServiceAccount.
    Token,
}

impl Subresource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Subresource::Status => "status",
            Subresource::Scale => "scale",
            Subresource::Finalize => "finalize",
            Subresource::Approval => "approval",
            Subresource::Binding => "binding",
            Subresource::Eviction => "eviction",
            Subresource::Log => "log",
            Subresource::Exec => "exec",
            Subresource::Attach => "attach",
            Subresource::PortForward => "portforward",
            Subresource::EphemeralContainers => "ephemeralcontainers",
            Subresource::Resize => "resize",
            Subresource::Token => "token",
        }
    }

    /// Verbs as discovery lists them.
    pub(crate) fn verbs(self) -> &'static [&'static str] {
        match self {
            Subresource::Approval
            | Subresource::Status
            | Subresource::Scale
            | Subresource::EphemeralContainers
            | Subresource::Resize => &["get", "patch", "update"],
            Subresource::Finalize => &["update"],
            Subresource::Binding | Subresource::Eviction | Subresource::Token => &["create"],
            Subresource::Log => &["get"],
            Subresource::Exec | Subresource::Attach | Subresource::PortForward => &["create", "get"],
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
    /// `autoscaling/v1`: the stored `v2` HorizontalPodAutoscaler.
    AutoscalerV1,
}

/// Where a null in a body is not the same as an absent field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// Nowhere.
    Absent,
    /// In the values of the map `spec.selector`, where it is "". Of other kinds the selector is an object with fields.
    PlainSelector,
    /// In this field, which is opaque to the server: in the data of a revision a null deletes something.
    Opaque(&'static str),
    /// In `spec`, which holds schemas: their names are the user's, and their defaults may be null.
    Schemas,
}

/// How a field becomes the text that a selector compares with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum By {
    /// As it stands.
    Text,
    /// True or false; absent is false.
    Flag,
    /// Absent is 0.
    Number,
    /// How many pods of a Job have succeeded.
    Succeeded,
    /// The `ip` of each element.
    Addresses,
    /// The component of an event's source, or the newer field for it, as upstream's `ToSelectableFields` does.
    Source,
}

/// The facts that the server's own decisions about an object rest on.
pub(crate) struct StrategyContext<'a> {
    pub(crate) now: jiff::Timestamp,
    pub(crate) options: &'a Options,
    pub(crate) store: &'a Store,
    pub(crate) names: &'a Names,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    /// "" stands for the kind in lower case.
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
    /// The warning of a DELETE without a propagation policy.
    pub(crate) delete_warning: &'static str,
    pub(crate) wire: Wire,
    /// Whether objects are served in protobuf: only where their table of messages is complete.
    pub(crate) protobuf: bool,
    /// The definition of a custom kind. What follows is for built-in kinds.
    pub(crate) custom: Option<&'static Custom>,

    /// Decodes an object for the sake of the errors and of what is not stored.
    pub(crate) decode: fn(&Value) -> Result<Surplus, String>,
    pub(crate) nulls: Nulls,
    /// Adds the schema to a document; its name.
    pub(crate) schema: fn(&mut SchemaGenerator) -> String,
    pub(crate) lists: &'static lists::Schema,
    /// Fills in what is absent. Applying it twice changes nothing.
    pub(crate) defaults: fn(&mut Map<String, Value>),
    /// Why a name is refused.
    pub(crate) name: fn(&str) -> Vec<String>,
    /// Whether a finalizer may lack a prefix: the validation of kinds outside of pkg/apis/core asks for less.
    pub(crate) plain_finalizers: bool,
    /// Adds what is wrong with a new object, beyond its metadata.
    pub(crate) validate: fn(&Value, &mut Errors),
    /// Adds what is wrong with replacing the second object by the first; `validate` unless set.
    pub(crate) validate_update: Option<fn(&Value, &Value, &mut Errors)>,
    /// The same for a write through `/status`.
    pub(crate) validate_status: fn(&Value, &Value, &mut Errors),

    /// Adds warnings about a new object, or about one that replaces another. The request is carried out all the same.
    pub(crate) warn: fn(&Value, Option<&Value>, &mut Warnings),
    /// A warning for each request about this kind.
    pub(crate) deprecated: &'static str,

    /// Whether a client can create an object with its status (registry/core/node).
    pub(crate) created_with_status: bool,
    /// Brings a status into the form that is stored.
    pub(crate) status_form: fn(&mut Value),
    /// The server's own decisions about a new object, before defaults.
    pub(crate) on_create: fn(&StrategyContext<'_>, &mut Value),
    /// The same for the first object, which replaces the second.
    pub(crate) on_update: fn(&StrategyContext<'_>, &mut Value, &Value),
    /// The same after defaults.
    pub(crate) after_update: fn(&mut Value, &Value),
    /// The same for a write through `/status`.
    pub(crate) on_status: fn(&StrategyContext<'_>, &mut Value, &Value),

    /// The columns of `kubectl get`. A star marks what only `-o wide` shows; then a hash marks a
    /// number, a question mark a boolean, and an at sign a date.
    pub(crate) columns: &'static [&'static str],
    /// The cells, in the order of the columns.
    pub(crate) cells: fn(&Row<'_>) -> Vec<Value>,
    /// The fields besides name and namespace that objects can be selected by.
    pub(crate) selectable: &'static [(&'static str, By)],
}

const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The verbs of a review.
pub(super) const REVIEW_VERBS: &[&str] = &["create"];

/// The fields that most rows have in common. As a kind of its own: one that is not known.
pub(crate) const BASE: Kind = Kind {
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
    delete_warning: "",
    wire: Wire::AsStored,
    protobuf: false,
    custom: None,
    decode: |_| Ok(Surplus::default()),
    nulls: Nulls::Absent,
    schema: |_| String::new(),
    lists: &lists::METADATA_ONLY,
    defaults: |_| {},
    name: names::dns1123_subdomain,
    plain_finalizers: false,
    validate: |_, _| {},
    validate_update: None,
    validate_status: |_, _, _| {},
    warn: |_, _, _| {},
    deprecated: "",
    created_with_status: false,
    status_form: |_| {},
    on_create: |_, _| {},
    on_update: |_, _, _| {},
    after_update: |_, _| {},
    on_status: |_, _, _| {},
    columns: &["Name", "Age"],
    cells: |row| vec![row.name(), row.age()],
    selectable: &[],
};

/// Whether objects live in namespaces, by the type of a scope.
pub(super) trait Scope {
    const NAMESPACED: bool;
}

impl Scope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Scope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

impl Scope for SubResourceScope {
    const NAMESPACED: bool = true;
}

/// The row of a kind about which nothing is special: names, scope, decoding and schema follow from its type.
pub(super) const fn of<T: Resource<Scope: Scope> + DeserializeOwned + JsonSchema>() -> Kind {
    Kind {
        group: T::GROUP,
        version: T::VERSION,
        kind: T::KIND,
        plural: T::URL_PATH_SEGMENT,
        namespaced: <T::Scope as Scope>::NAMESPACED,
        decode: decode_as::<T>,
        schema: schema_of::<T>,
        ..BASE
    }
}

/// Adds the schema of a type; its name.
fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> String {
    generator.subschema_for::<T>();
    T::schema_name().into_owned()
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

    /// The singular name.
    pub(crate) fn singular(&self) -> String {
        if self.singular.is_empty() { self.kind.to_lowercase() } else { self.singular.to_owned() }
    }

    /// `deployments.apps`, as messages about one object name its resource.
    pub(crate) fn resource(&self) -> String {
        qualified(self.plural, self.group)
    }

    /// Where the store keeps the objects. A custom kind may have the name of a built-in one, so it goes by the name of its
    /// definition.
    pub(crate) fn storage(&self) -> &'static str {
        self.custom.map_or(self.kind, |custom| &custom.definition)
    }

    /// Whether its objects are questions, which are answered and not stored.
    pub(crate) fn is_review(&self) -> bool {
        self.verbs == REVIEW_VERBS
    }

    pub(crate) fn has(&self, subresource: Subresource) -> bool {
        self.subresources.contains(&subresource)
    }
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}
