//! The kinds of the group "", which has no name.

use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount,
};

use super::lists;
use super::row::Subresource::{
    Attach, Binding, EphemeralContainers, Eviction, Exec, Finalize, Log, PortForward, Resize, Scale, Status,
    Token,
};
use super::row::{By, Generation, Kind, Nulls, of};
use crate::rest::{counts, strategy};
use crate::validate::{endpoints, limits, names, node, objects, pod, pod_update, service, storage, workload};
use crate::warnings;
use crate::{defaults, table};

const POD_FIELDS: &[(&str, By)] = &[
    ("spec.nodeName", By::Text),
    ("spec.restartPolicy", By::Text),
    ("spec.schedulerName", By::Text),
    ("spec.serviceAccountName", By::Text),
    ("spec.hostNetwork", By::Flag),
    ("status.phase", By::Text),
    ("status.podIP", By::Text),
    ("status.podIPs", By::Addresses),
    ("status.nominatedNodeName", By::Text),
];

const EVENT_FIELDS: &[(&str, By)] = &[
    ("involvedObject.kind", By::Text),
    ("involvedObject.namespace", By::Text),
    ("involvedObject.name", By::Text),
    ("involvedObject.uid", By::Text),
    ("involvedObject.apiVersion", By::Text),
    ("involvedObject.resourceVersion", By::Text),
    ("involvedObject.fieldPath", By::Text),
    ("reason", By::Text),
    ("reportingComponent", By::Text),
    ("source", By::Source),
    ("type", By::Text),
];

/// The row of events, in both of their groups.
pub(super) const fn event(kind: Kind) -> Kind {
    Kind {
        short_names: &["ev"],
        create_on_update: true,
        name: names::path_segment,
        lists: &lists::EVENT,
        defaults: defaults::core::event,
        validate: objects::event,
        // Old events may predate the rules.
        validate_update: Some(|_, _, _| {}),
        columns: table::core::EVENT,
        cells: table::core::event,
        selectable: EVENT_FIELDS,
        ..kind
    }
}

pub(super) static ROWS: &[Kind] = &[
    Kind {
        short_names: &["cm"],
        validate: objects::config_map,
        validate_update: Some(objects::config_map_update),
        columns: &["Name", "Data", "Age"],
        cells: |row| vec![row.name(), (row.size("/data") + row.size("/binaryData")).into(), row.age()],
        ..of::<ConfigMap>()
    },
    Kind {
        short_names: &["ep"],
        create_on_update: true,
        defaults: defaults::cluster::endpoints,
        validate: endpoints::endpoints,
        deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        columns: &["Name", "Endpoints", "Age"],
        cells: table::cluster::endpoints,
        ..of::<Endpoints>()
    },
    event(of::<Event>()),
    Kind {
        short_names: &["ns"],
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        subresources: &[Finalize, Status],
        lists: &lists::WITH_CONDITIONS,
        defaults: defaults::core::namespace,
        validate: objects::namespace,
        name: names::dns1123_label,
        on_create: strategy::new_namespace,
        on_update: |_, new, old| strategy::keep_namespace_spec(new, old),
        columns: &["Name", "Status", "Age"],
        cells: |row| vec![row.name(), row.text("/status/phase"), row.age()],
        selectable: &[("status.phase", By::Text)],
        ..of::<Namespace>()
    },
    Kind {
        short_names: &["no"],
        subresources: &[Status],
        lists: &lists::NODE,
        defaults: defaults::core::node,
        validate: node::node,
        validate_update: Some(node::update),
        validate_status: |new, _, errors| node::resources(new, errors),
        created_with_status: true,
        on_create: strategy::taint_by_condition,
        warn: warnings::objects::node,
        columns: table::core::NODE,
        cells: table::core::node,
        selectable: &[("spec.unschedulable", By::Flag)],
        ..of::<Node>()
    },
    // No controller binds one to the other.
    Kind {
        short_names: &["pv"],
        subresources: &[Status],
        returns_deleted: true,
        lists: &lists::VOLUME_OBJECT,
        defaults: defaults::core::volume,
        validate: storage::volume,
        validate_update: Some(storage::volume_update),
        on_create: strategy::new_volume,
        on_status: strategy::date_phase,
        warn: warnings::objects::volume,
        columns: table::cluster::VOLUME,
        cells: table::cluster::volume,
        ..of::<PersistentVolume>()
    },
    Kind {
        short_names: &["pvc"],
        subresources: &[Status],
        returns_deleted: true,
        lists: &lists::CLAIM,
        defaults: defaults::core::claim,
        validate: storage::claim,
        validate_update: Some(storage::claim_update),
        on_create: |_, claim| strategy::protect(claim, "kubernetes.io/pvc-protection"),
        warn: warnings::objects::claim,
        columns: table::cluster::CLAIM,
        cells: table::cluster::claim,
        ..of::<PersistentVolumeClaim>()
    },
    Kind {
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            Attach,
            Binding,
            EphemeralContainers,
            Eviction,
            Exec,
            Log,
            PortForward,
            Resize,
            Status,
        ],
        generation: Generation::Spec,
        returns_deleted: true,
        protobuf: true,
        lists: &lists::POD,
        defaults: defaults::pods::pod,
        validate: pod::new_pod,
        validate_update: Some(pod_update::update),
        validate_status: pod_update::update_status,
        on_create: strategy::new_pod,
        on_status: strategy::keep_owners_and_class,
        warn: warnings::pod::pod,
        columns: table::pod::COLUMNS,
        cells: table::pod::cells,
        selectable: POD_FIELDS,
        ..of::<Pod>()
    },
    Kind {
        generation: Generation::Content,
        lists: &lists::POD_TEMPLATE,
        defaults: defaults::workloads::pod_template,
        validate: objects::pod_template,
        warn: warnings::objects::pod_template,
        columns: &["Name", "Containers", "Images", "Pod Labels"],
        cells: |row| {
            let [containers, images] = row.containers_at("/template/spec/containers");
            vec![row.name(), containers, images, table::row::label_map(row.at("/template/metadata/labels"))]
        },
        ..of::<PodTemplate>()
    },
    Kind {
        short_names: &["rc"],
        categories: &["all"],
        subresources: &[Scale, Status],
        generation: Generation::Spec,
        orphans_dependents: true,
        nulls: Nulls::PlainSelector,
        lists: &lists::WORKLOAD,
        defaults: defaults::workloads::replication_controller,
        // Its selector may change: it is older than the rule.
        name: |name| names::subdomain(name, "bytes"),
        validate: workload::replication_controller,
        validate_status: |new, _, errors| workload::replica_set_status(new, errors),
        status_form: counts::with_replicas,
        warn: warnings::objects::workload,
        columns: table::workloads::REPLICA_SET,
        cells: |row| table::workloads::replica_set(row, table::row::label_map(row.at("/spec/selector"))),
        selectable: &[("status.replicas", By::Number)],
        ..of::<ReplicationController>()
    },
    Kind {
        short_names: &["limits"],
        create_on_update: true,
        defaults: defaults::core::limit_range,
        validate: limits::range,
        columns: table::core::CREATED,
        cells: table::core::created,
        ..of::<LimitRange>()
    },
    Kind {
        short_names: &["quota"],
        subresources: &[Status],
        lists: &lists::QUOTA,
        defaults: defaults::cluster::empty_spec,
        validate: limits::quota,
        validate_update: Some(limits::quota_update),
        warn: warnings::objects::quota,
        columns: &["Name", "Request", "Limit", "Age"],
        cells: table::workloads::quota,
        ..of::<ResourceQuota>()
    },
    Kind {
        defaults: defaults::core::secret,
        validate: objects::secret,
        validate_update: Some(objects::secret_update),
        warn: warnings::objects::secret,
        columns: &["Name", "Type", "Data", "Age"],
        cells: |row| vec![row.name(), row.text("/type"), row.size("/data").into(), row.age()],
        selectable: &[("type", By::Text)],
        ..of::<Secret>()
    },
    Kind {
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[Status],
        create_on_update: true,
        returns_deleted: true,
        nulls: Nulls::PlainSelector,
        lists: &lists::SERVICE,
        defaults: defaults::core::service,
        name: names::dns1123_label,
        validate: service::service,
        validate_update: Some(service::update),
        validate_status: service::status,
        warn: warnings::service::service,
        columns: &["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "*Selector"],
        cells: table::core::service,
        selectable: &[("spec.clusterIP", By::Text), ("spec.type", By::Text)],
        ..of::<Service>()
    },
    Kind {
        short_names: &["sa"],
        subresources: &[Token],
        returns_deleted: true,
        lists: &lists::SERVICE_ACCOUNT,
        ..of::<ServiceAccount>()
    },
];
