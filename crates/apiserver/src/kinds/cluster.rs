//! The kinds of the cluster itself: events, leases, rights, certificates, classes of pods, admission, further kinds. Of most
//! of these nothing here takes any notice: they stand beside a workload in a manifest.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenReview};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::flowcontrol::v1::{FlowSchema, PriorityLevelConfiguration};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;

use super::core::event;
use super::lists;
use super::row::Subresource::{Approval, Status};
use super::row::{By, Generation, Kind, Nulls, REVIEW_VERBS, Wire, of};
use crate::custom::definition;
use crate::defaults::cluster as defaults;
use crate::rest::strategy;
use crate::table::{self, cluster};
use crate::validate::{access, certificates, classes, names, objects, reviews, webhooks};
use crate::warnings;

/// The category of the kinds that extend the API.
const EXTENDS: &[&str] = &["api-extensions"];

/// The row of a binding of admission policies.
const fn policy_binding(kind: Kind) -> Kind {
    Kind {
        categories: EXTENDS,
        generation: Generation::Spec,
        unconditional_update: false,
        lists: &lists::ADMISSION_POLICY_BINDING,
        defaults: defaults::admission_policy_binding,
        columns: cluster::ADMISSION_BINDING,
        cells: cluster::admission_binding,
        plain_finalizers: true,
        ..kind
    }
}

pub(super) static EVENTS: &[Kind] =
    &[Kind { wire: Wire::EventsV1, validate: objects::new_event, ..event(of::<Event>()) }];

const fn review(kind: Kind) -> Kind {
    Kind { verbs: REVIEW_VERBS, ..kind }
}

pub(super) static AUTHENTICATION: &[Kind] = &[review(of::<SelfSubjectReview>()), review(of::<TokenReview>())];

pub(super) static AUTHORIZATION: &[Kind] = &[
    Kind { validate: reviews::of_subject_in_namespace, ..review(of::<LocalSubjectAccessReview>()) },
    Kind { validate: reviews::of_self, ..review(of::<SelfSubjectAccessReview>()) },
    review(of::<SelfSubjectRulesReview>()),
    Kind { validate: reviews::of_subject, ..review(of::<SubjectAccessReview>()) },
];

pub(super) static CERTIFICATES: &[Kind] = &[Kind {
    short_names: &["csr"],
    name: names::path_segment,
    subresources: &[Approval, Status],
    lists: &lists::WITH_OWNED_CONDITIONS,
    defaults: defaults::empty_status,
    validate: certificates::request,
    validate_status: certificates::request_status,
    on_create: strategy::sign_request,
    on_update: |_, new, old| strategy::keep_spec(new, old),
    on_status: strategy::date_conditions,
    columns: &["Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"],
    cells: cluster::certificate_request,
    selectable: &[("spec.signerName", By::Text)],
    ..of::<CertificateSigningRequest>()
}];

pub(super) static RBAC: &[Kind] = &[
    Kind {
        create_on_update: true,
        name: names::path_segment,
        validate: access::cluster_role,
        columns: table::core::CREATED,
        cells: table::core::created,
        ..of::<ClusterRole>()
    },
    Kind {
        create_on_update: true,
        lists: &lists::ROLE_BINDING,
        defaults: defaults::role_binding,
        name: names::path_segment,
        validate: access::cluster_role_binding,
        validate_update: Some(access::cluster_role_binding_update),
        columns: cluster::BINDING,
        cells: cluster::binding,
        ..of::<ClusterRoleBinding>()
    },
    Kind {
        create_on_update: true,
        name: names::path_segment,
        validate: access::role,
        columns: table::core::CREATED,
        cells: table::core::created,
        ..of::<Role>()
    },
    Kind {
        create_on_update: true,
        lists: &lists::ROLE_BINDING,
        defaults: defaults::role_binding,
        name: names::path_segment,
        validate: access::role_binding,
        validate_update: Some(access::role_binding_update),
        columns: cluster::BINDING,
        cells: cluster::binding,
        ..of::<RoleBinding>()
    },
];

pub(super) static EXTENSIONS: &[Kind] = &[Kind {
    short_names: &["crd", "crds"],
    categories: EXTENDS,
    subresources: &[Status],
    generation: Generation::Spec,
    unconditional_update: false,
    nulls: Nulls::Schemas,
    lists: &lists::WITH_OWNED_CONDITIONS,
    defaults: definition::fill,
    validate: definition::validate,
    validate_update: Some(definition::validate_update),
    warn: warnings::definitions::unknown_formats,
    on_create: definition::new_status,
    columns: table::core::CREATED,
    cells: table::core::created,
    plain_finalizers: true,
    ..of::<CustomResourceDefinition>()
}];

pub(super) static ADMISSION: &[Kind] = &[
    Kind {
        categories: EXTENDS,
        generation: Generation::Content,
        unconditional_update: false,
        lists: &lists::WEBHOOKS,
        defaults: defaults::mutating_webhooks,
        validate: webhooks::mutating,
        columns: &["Name", "#Webhooks", "Age"],
        cells: |row| vec![row.name(), row.size("/webhooks").into(), row.age()],
        plain_finalizers: true,
        ..of::<MutatingWebhookConfiguration>()
    },
    Kind {
        categories: EXTENDS,
        generation: Generation::Content,
        unconditional_update: false,
        lists: &lists::WEBHOOKS,
        defaults: defaults::validating_webhooks,
        validate: webhooks::validating,
        columns: &["Name", "#Webhooks", "Age"],
        cells: |row| vec![row.name(), row.size("/webhooks").into(), row.age()],
        plain_finalizers: true,
        ..of::<ValidatingWebhookConfiguration>()
    },
    Kind {
        categories: EXTENDS,
        subresources: &[Status],
        generation: Generation::Spec,
        unconditional_update: false,
        lists: &lists::ADMISSION_POLICY,
        defaults: defaults::validating_admission_policy,
        columns: &["Name", "#Validations", "ParamKind", "Age"],
        cells: |row| {
            vec![row.name(), row.size("/spec/validations").into(), cluster::parameters(row), row.age()]
        },
        plain_finalizers: true,
        ..of::<ValidatingAdmissionPolicy>()
    },
    policy_binding(of::<ValidatingAdmissionPolicyBinding>()),
    Kind {
        categories: EXTENDS,
        generation: Generation::Spec,
        unconditional_update: false,
        lists: &lists::ADMISSION_POLICY,
        defaults: defaults::admission_policy,
        columns: &["Name", "#Mutations", "ParamKind", "Age"],
        cells: |row| {
            vec![row.name(), row.size("/spec/mutations").into(), cluster::parameters(row), row.age()]
        },
        plain_finalizers: true,
        ..of::<MutatingAdmissionPolicy>()
    },
    policy_binding(of::<MutatingAdmissionPolicyBinding>()),
];

pub(super) static SCHEDULING: &[Kind] = &[Kind {
    short_names: &["pc"],
    generation: Generation::Spec,
    defaults: defaults::priority_class,
    validate: classes::priority_class,
    validate_update: Some(classes::priority_class_update),
    columns: &["Name", "#Value", "?Global-Default", "Age", "PreemptionPolicy"],
    cells: |row| {
        let policy = row.text("/preemptionPolicy");
        vec![row.name(), row.number("/value"), row.flag("/globalDefault"), row.age(), policy]
    },
    ..of::<PriorityClass>()
}];

pub(super) static COORDINATION: &[Kind] = &[Kind {
    unconditional_update: false,
    create_on_update: true,
    defaults: defaults::empty_spec,
    validate: objects::lease,
    columns: &["Name", "Holder", "Age"],
    cells: |row| vec![row.name(), row.text("/spec/holderIdentity"), row.age()],
    ..of::<Lease>()
}];

pub(super) static NODE: &[Kind] = &[Kind {
    unconditional_update: false,
    create_on_update: true,
    lists: &lists::RUNTIME_CLASS,
    validate: classes::runtime_class,
    validate_update: Some(classes::runtime_class_update),
    warn: warnings::objects::runtime_class,
    columns: &["Name", "Handler", "Age"],
    cells: |row| vec![row.name(), row.text("/handler"), row.age()],
    plain_finalizers: true,
    ..of::<RuntimeClass>()
}];

pub(super) static FLOW_CONTROL: &[Kind] = &[
    Kind {
        subresources: &[Status],
        generation: Generation::Spec,
        lists: &lists::WITH_CONDITIONS,
        defaults: defaults::flow_schema,
        columns: &["Name", "PriorityLevel", "MatchingPrecedence", "DistinguisherMethod", "Age", "MissingPL"],
        cells: cluster::flow_schema,
        ..of::<FlowSchema>()
    },
    Kind {
        subresources: &[Status],
        generation: Generation::Spec,
        lists: &lists::WITH_CONDITIONS,
        defaults: defaults::priority_level,
        columns: cluster::PRIORITY_LEVEL,
        cells: cluster::priority_level,
        ..of::<PriorityLevelConfiguration>()
    },
];

pub(super) static AGGREGATION: &[Kind] = &[Kind {
    categories: EXTENDS,
    subresources: &[Status],
    unconditional_update: false,
    name: names::path_segment,
    lists: &lists::WITH_CONDITIONS,
    defaults: defaults::api_service,
    on_create: strategy::announce_group,
    validate: webhooks::api_service,
    columns: &["Name", "Service", "Available", "Age"],
    cells: cluster::api_service,
    ..of::<APIService>()
}];
