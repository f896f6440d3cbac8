//! Schemas as a server of 1.36 has them: `k8s-openapi` has other fields, and its own view of which fields are required.

use serde_json::Value;

use crate::kinds::release;

/// Fields that only the types here require, by type.
#[rustfmt::skip]
const OPTIONAL: &[(&str, &[&str])] = &[
    ("name", &["ConfigMapEnvSource", "ConfigMapKeySelector", "ConfigMapProjection", "ConfigMapVolumeSource",
               "LocalObjectReference", "SecretEnvSource", "SecretKeySelector", "SecretProjection"]),
    ("spec", &["DaemonSet", "Deployment", "FlowSchema", "PriorityLevelConfiguration", "ReplicaSet", "StatefulSet"]),
    ("type", &["FlowSchemaCondition", "PriorityLevelConfigurationCondition"]),
    ("data", &["ControllerRevision"]),
    ("limitResponse", &["LimitedPriorityLevelConfiguration"]),
];

/// Fields that a server requires besides.
#[rustfmt::skip]
const REQUIRED: &[(&str, &[&str])] = &[
    ("revision", &["ControllerRevision"]),
    ("status", &["DaemonSetCondition", "DeploymentCondition", "ReplicaSetCondition", "StatefulSetCondition"]),
    ("type", &["DaemonSetCondition", "DeploymentCondition", "ReplicaSetCondition", "StatefulSetCondition"]),
    ("spec", &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceClaimTemplateSpec"]),
];

/// The type of the older events, whose metadata are required.
const EVENT: &str = "io.k8s.api.core.v1.Event";

/// Gives the schema of this name the fields of 1.36 and what is required there.
pub(super) fn amend(name: &str, schema: &mut Value) {
    let of = name.rsplit('.').next().unwrap_or_default();
    let has = |table: &[(&str, &[&str])], field: &str| {
        table.iter().any(|(known, types)| *known == field && types.contains(&of))
    };
    let Some(schema) = schema.as_object_mut() else { return };
    let is_kind = schema
        .get("properties")
        .is_some_and(|fields| !fields["kind"].is_null() && !fields["metadata"].is_null());
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|field, _| !release::is_newer(of, field));
    }
    let before = schema.remove("required");
    let mut required: Vec<&str> =
        before.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    required.retain(|field| {
        let is_metadata = *field == "metadata" && is_kind && name != EVENT;
        !is_metadata && !has(OPTIONAL, field) && !release::is_newer(of, field)
    });
    required.extend(REQUIRED.iter().map(|(field, _)| *field).filter(|field| has(REQUIRED, field)));
    if name == "io.k8s.api.events.v1.Event" {
        required.push("eventTime");
    }
    required.sort_unstable();
    required.dedup();
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
}
