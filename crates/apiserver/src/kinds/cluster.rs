//! The kinds of the cluster itself: leases, events, networks, rights, admission and further kinds. Of most of these nothing
//! here takes any notice: they stand beside a workload in a manifest.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::Subresource::Status;
use super::{Generation, Kind, Nulls, Wire, lists, of};
use crate::custom::definition;
use crate::selector::EVENT_FIELDS;
use crate::table;
use crate::validate::{names, objects};

pub(super) static EVENTS: &[Kind] = &[Kind {
    short_names: &["ev"],
    create_on_update: true,
    wire: Wire::EventsV1,
    lists: &lists::EVENT,
    validate: objects::event,
    validate_update: Some(|_, _, _| {}),
    columns: table::EVENT,
    cells: table::event,
    selectable: EVENT_FIELDS,
    ..of::<Event>()
}];

pub(super) static NETWORKING: &[Kind] = &[Kind {
    short_names: &["netpol"],
    generation: Generation::Spec,
    lists: &lists::NETWORK_POLICY,
    ..of::<NetworkPolicy>()
}];

pub(super) static RBAC: &[Kind] = &[
    Kind { name: names::path_segment, ..of::<ClusterRole>() },
    Kind { name: names::path_segment, lists: &lists::ROLE_BINDING, ..of::<ClusterRoleBinding>() },
    Kind { name: names::path_segment, ..of::<Role>() },
    Kind { name: names::path_segment, lists: &lists::ROLE_BINDING, ..of::<RoleBinding>() },
];

pub(super) static EXTENSIONS: &[Kind] = &[Kind {
    short_names: &["crd", "crds"],
    categories: &["api-extensions"],
    subresources: &[Status],
    generation: Generation::Spec,
    unconditional_update: false,
    nulls: Nulls::Schemas,
    lists: &lists::WITH_OWNED_CONDITIONS,
    defaults: definition::fill,
    validate: definition::validate,
    validate_update: Some(definition::validate_update),
    on_create: definition::new_status,
    columns: &["Name", "Created At"],
    cells: |row| vec![row.name(), row.at("/metadata/creationTimestamp").clone()],
    ..of::<CustomResourceDefinition>()
}];

pub(super) static ADMISSION: &[Kind] = &[
    Kind {
        subresources: &[Status],
        generation: Generation::Spec,
        lists: &lists::ADMISSION_POLICY,
        ..of::<ValidatingAdmissionPolicy>()
    },
    Kind {
        generation: Generation::Spec,
        lists: &lists::ADMISSION_POLICY_BINDING,
        ..of::<ValidatingAdmissionPolicyBinding>()
    },
];

pub(super) static COORDINATION: &[Kind] = &[Kind {
    unconditional_update: false,
    create_on_update: true,
    validate: objects::lease,
    columns: &["Name", "Holder", "Age"],
    cells: |row| vec![row.name(), row.text("/spec/holderIdentity"), row.age()],
    ..of::<Lease>()
}];

pub(super) static FLOW_CONTROL: &[Kind] = &[Kind {
    subresources: &[Status],
    generation: Generation::Spec,
    lists: &lists::WITH_CONDITIONS,
    ..of::<FlowSchema>()
}];
