//! The kinds that make pods, and those that watch over them: the groups apps, batch, autoscaling and policy.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v1;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::Value;

use super::lists;
use super::row::Subresource::{Scale, Status};
use super::row::{By, Generation, Kind, Nulls, Wire, of};
use crate::rest::{counts, strategy};
use crate::validate::{cron_job, daemonset, job, job_status, names, scaling, statefulset, workload};
use crate::warnings;
use crate::{defaults, strict, table};

pub(super) static APPS: &[Kind] = &[
    Kind {
        nulls: Nulls::Opaque("data"),
        defaults: defaults::workloads::controller_revision,
        validate: daemonset::new_revision,
        validate_update: Some(daemonset::revision_update),
        columns: &["Name", "Controller", "Revision", "Age"],
        cells: |row| vec![row.name(), row.controller(), row.number("/revision"), row.age()],
        ..of::<ControllerRevision>()
    },
    Kind {
        short_names: &["ds"],
        categories: &["all"],
        subresources: &[Status],
        generation: Generation::Spec,
        decode: strict::decode::daemon_set,
        lists: &lists::WORKLOAD,
        defaults: defaults::workloads::daemon_set,
        validate: daemonset::daemon_set,
        validate_update: Some(daemonset::update),
        validate_status: daemonset::status,
        status_form: counts::of_a_daemon_set,
        on_create: strategy::first_template_generation,
        on_update: |_, new, old| strategy::keep_template_generation(new, old),
        after_update: strategy::count_template,
        on_status: |_, new, old| strategy::keep_template_generation(new, old),
        warn: warnings::objects::daemon_set,
        columns: table::workloads::DAEMON_SET,
        cells: table::workloads::daemon_set,
        ..of::<DaemonSet>()
    },
    Kind {
        short_names: &["deploy"],
        categories: &["all"],
        subresources: &[Scale, Status],
        generation: Generation::SpecAndAnnotations,
        lists: &lists::WORKLOAD,
        defaults: defaults::workloads::deployment,
        validate: workload::deployment,
        validate_update: Some(workload::deployment_update),
        validate_status: workload::deployment_status,
        status_form: counts::of_a_deployment,
        on_status: strategy::keep_labels,
        warn: warnings::objects::workload,
        columns: table::workloads::DEPLOYMENT,
        cells: table::workloads::deployment,
        ..of::<Deployment>()
    },
    Kind {
        short_names: &["rs"],
        categories: &["all"],
        subresources: &[Scale, Status],
        generation: Generation::Spec,
        lists: &lists::WORKLOAD,
        defaults: defaults::workloads::replica_set,
        validate: workload::replica_set,
        validate_update: Some(workload::replica_set_update),
        validate_status: |new, _, errors| workload::replica_set_status(new, errors),
        status_form: counts::with_replicas,
        warn: warnings::objects::workload,
        columns: table::workloads::REPLICA_SET,
        cells: |row| table::workloads::replica_set(row, table::row::label_selector(row.at("/spec/selector"))),
        ..of::<ReplicaSet>()
    },
    Kind {
        short_names: &["sts"],
        categories: &["all"],
        subresources: &[Scale, Status],
        generation: Generation::Spec,
        lists: &lists::WORKLOAD,
        defaults: defaults::workloads::stateful_set,
        name: names::dns1123_label,
        validate: statefulset::stateful_set,
        validate_update: Some(statefulset::update),
        validate_status: statefulset::status,
        status_form: counts::of_a_stateful_set,
        on_create: |context, object| strategy::gate_max_unavailable(context, object, &Value::Null),
        on_update: strategy::gate_max_unavailable,
        warn: warnings::objects::stateful_set,
        columns: table::workloads::STATEFUL_SET,
        cells: table::workloads::stateful_set,
        ..of::<StatefulSet>()
    },
];

/// Of a DELETE that does not say what becomes of the pods.
const DELETED_JOB: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                           remove them or set propagationPolicy=Orphan to suppress this warning";

pub(super) static BATCH: &[Kind] = &[
    Kind {
        short_names: &["cj"],
        categories: &["all"],
        subresources: &[Status],
        generation: Generation::Spec,
        lists: &lists::CRON_JOB,
        defaults: defaults::workloads::cron_job,
        validate: cron_job::cron_job,
        validate_update: Some(cron_job::update),
        warn: warnings::objects::cron_job,
        columns: table::workloads::CRON_JOB,
        cells: table::workloads::cron_job,
        ..of::<CronJob>()
    },
    Kind {
        categories: &["all"],
        subresources: &[Status],
        generation: Generation::Spec,
        orphans_dependents: true,
        delete_warning: DELETED_JOB,
        lists: &lists::JOB,
        defaults: defaults::workloads::job,
        validate: job::job,
        validate_update: Some(job::update),
        validate_status: job_status::update,
        on_create: strategy::generate_selector,
        warn: warnings::objects::job,
        columns: table::workloads::JOB,
        cells: table::workloads::job,
        selectable: &[("status.successful", By::Succeeded)],
        ..of::<Job>()
    },
];

/// The columns of both versions.
const AUTOSCALER: &[&str] = &["Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"];

pub(super) static AUTOSCALING: &[Kind] = &[
    Kind {
        short_names: &["hpa"],
        categories: &["all"],
        subresources: &[Status],
        lists: &lists::WITH_CONDITIONS,
        defaults: defaults::workloads::autoscaler,
        validate: scaling::autoscaler,
        validate_status: scaling::autoscaler_status,
        columns: AUTOSCALER,
        cells: table::workloads::autoscaler,
        ..of::<HorizontalPodAutoscaler>()
    },
    Kind {
        short_names: &["hpa"],
        categories: &["all"],
        wire: Wire::AutoscalerV1,
        subresources: &[Status],
        lists: &lists::AUTOSCALER_V1,
        defaults: defaults::workloads::autoscaler,
        validate: scaling::autoscaler,
        validate_status: scaling::autoscaler_status,
        columns: AUTOSCALER,
        cells: table::workloads::autoscaler,
        ..of::<v1::HorizontalPodAutoscaler>()
    },
];

pub(super) static POLICY: &[Kind] = &[Kind {
    short_names: &["pdb"],
    name: names::path_segment,
    subresources: &[Status],
    generation: Generation::Spec,
    unconditional_update: false,
    lists: &lists::BUDGET,
    defaults: defaults::workloads::disruption_budget,
    validate: scaling::disruption_budget,
    validate_status: scaling::disruption_budget_status,
    columns: &["Name", "Min Available", "Max Unavailable", "#Allowed Disruptions", "Age"],
    cells: table::workloads::disruption_budget,
    ..of::<PodDisruptionBudget>()
}];
