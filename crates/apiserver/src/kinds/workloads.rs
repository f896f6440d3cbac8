//! The kinds that make pods, and those that watch over them: the groups apps, autoscaling and policy.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::Subresource::{Scale, Status};
use super::{Generation, Kind, Nulls, lists, of};
use crate::rest::{counts, strategy};
use crate::selector::By;
use crate::validate::{daemonset, workload};
use crate::{defaults, strict, table};

pub(super) static APPS: &[Kind] = &[
    Kind {
        nulls: Nulls::Opaque("data"),
        defaults: defaults::controller_revision,
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
        decode: strict::daemon_set,
        lists: &lists::WORKLOAD,
        defaults: defaults::daemon_set,
        validate: daemonset::daemon_set,
        validate_update: Some(daemonset::update),
        validate_status: daemonset::status,
        status_form: counts::of_a_daemon_set,
        on_create: strategy::first_template_generation,
        on_update: strategy::keep_template_generation,
        after_update: strategy::count_template,
        on_status: strategy::keep_template_generation,
        columns: table::DAEMON_SET,
        cells: table::daemon_set,
        ..of::<DaemonSet>()
    },
    Kind {
        short_names: &["deploy"],
        categories: &["all"],
        subresources: &[Scale, Status],
        generation: Generation::SpecAndAnnotations,
        lists: &lists::WORKLOAD,
        defaults: defaults::deployment,
        validate: workload::deployment,
        validate_update: Some(workload::deployment_update),
        validate_status: workload::deployment_status,
        status_form: counts::of_a_deployment,
        on_status: strategy::keep_labels,
        columns: table::DEPLOYMENT,
        cells: table::deployment,
        ..of::<Deployment>()
    },
    Kind {
        short_names: &["rs"],
        categories: &["all"],
        subresources: &[Scale, Status],
        generation: Generation::Spec,
        lists: &lists::WORKLOAD,
        defaults: defaults::replica_set,
        validate: workload::replica_set,
        validate_update: Some(workload::replica_set_update),
        validate_status: |new, _, errors| workload::replica_set_status(new, errors),
        status_form: counts::with_replicas,
        columns: table::REPLICA_SET,
        cells: |row| table::replica_set(row, table::label_selector(row.at("/spec/selector"))),
        selectable: &[("status.replicas", By::Number)],
        ..of::<ReplicaSet>()
    },
    // Kept and watched like the rest, but no controller here makes pods of it.
    Kind {
        short_names: &["sts"],
        categories: &["all"],
        subresources: &[Status],
        generation: Generation::Spec,
        lists: &lists::WORKLOAD,
        ..of::<StatefulSet>()
    },
];

pub(super) static AUTOSCALING: &[Kind] = &[Kind {
    short_names: &["hpa"],
    subresources: &[Status],
    lists: &lists::WITH_CONDITIONS,
    ..of::<HorizontalPodAutoscaler>()
}];

pub(super) static POLICY: &[Kind] = &[Kind {
    short_names: &["pdb"],
    subresources: &[Status],
    generation: Generation::Spec,
    lists: &lists::BUDGET,
    ..of::<PodDisruptionBudget>()
}];
