//! The schemas of the served kinds, from the types that requests are decoded with.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    ReplicationController, ResourceQuota, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::events::v1::Event as EventsEvent;
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Every schema that the given kinds need, by name.
pub(super) fn of(group: &str, version: &str, kinds: &BTreeSet<&str>) -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let names: Vec<(String, &str)> =
        kinds.iter().filter_map(|kind| Some((add(group, kind, &mut generator)?, *kind))).collect();
    let mut schemas = generator.take_definitions(true);
    for schema in schemas.values_mut() {
        wrap_references(schema);
    }
    for (name, kind) in names {
        if let Some(Value::Object(schema)) = schemas.get_mut(&name) {
            let gvk = json!([{"group": group, "version": version, "kind": kind}]);
            schema.insert("x-kubernetes-group-version-kind".to_owned(), gvk);
        }
    }
    schemas
}

/// A reference to the schema of metadata, and the schemas that it needs.
pub(super) fn metadata() -> (Value, Map<String, Value>) {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let reference = generator.subschema_for::<ObjectMeta>();
    let mut schemas = generator.take_definitions(true);
    schemas.values_mut().for_each(wrap_references);
    (reference.into(), schemas)
}

/// Adds the schema of a kind; its name.
fn add(group: &str, kind: &str, generator: &mut SchemaGenerator) -> Option<String> {
    fn name<T: JsonSchema>(generator: &mut SchemaGenerator) -> String {
        generator.subschema_for::<T>();
        T::schema_name().into_owned()
    }
    let add: fn(&mut SchemaGenerator) -> String = match (group, kind) {
        ("", "ConfigMap") => name::<ConfigMap>,
        ("", "Event") => name::<Event>,
        ("", "LimitRange") => name::<LimitRange>,
        ("", "Namespace") => name::<Namespace>,
        ("", "Node") => name::<Node>,
        ("", "PersistentVolume") => name::<PersistentVolume>,
        ("", "PersistentVolumeClaim") => name::<PersistentVolumeClaim>,
        ("", "Pod") => name::<Pod>,
        ("", "ReplicationController") => name::<ReplicationController>,
        ("", "ResourceQuota") => name::<ResourceQuota>,
        ("", "Secret") => name::<Secret>,
        ("", "Service") => name::<Service>,
        ("", "ServiceAccount") => name::<ServiceAccount>,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => name::<ValidatingAdmissionPolicy>,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            name::<ValidatingAdmissionPolicyBinding>
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => name::<CustomResourceDefinition>,
        ("apps", "ControllerRevision") => name::<ControllerRevision>,
        ("apps", "DaemonSet") => name::<DaemonSet>,
        ("apps", "Deployment") => name::<Deployment>,
        ("apps", "ReplicaSet") => name::<ReplicaSet>,
        ("apps", "StatefulSet") => name::<StatefulSet>,
        ("autoscaling", "HorizontalPodAutoscaler") => name::<HorizontalPodAutoscaler>,
        ("coordination.k8s.io", "Lease") => name::<Lease>,
        ("events.k8s.io", "Event") => name::<EventsEvent>,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => name::<FlowSchema>,
        ("networking.k8s.io", "NetworkPolicy") => name::<NetworkPolicy>,
        ("policy", "PodDisruptionBudget") => name::<PodDisruptionBudget>,
        ("rbac.authorization.k8s.io", "ClusterRole") => name::<ClusterRole>,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => name::<ClusterRoleBinding>,
        ("rbac.authorization.k8s.io", "Role") => name::<Role>,
        ("rbac.authorization.k8s.io", "RoleBinding") => name::<RoleBinding>,
        _ => return None,
    };
    Some(add(generator))
}

/// In OpenAPI 3.0 nothing may stand beside a `$ref`; a description there needs an `allOf` around the reference.
fn wrap_references(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.len() > 1 && map.get("$ref").is_some_and(Value::is_string) {
                let reference = map.remove("$ref");
                map.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
            }
            map.values_mut().for_each(wrap_references);
        }
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KINDS;

    #[test]
    fn every_served_kind_has_a_schema_with_descriptions() {
        for row in KINDS {
            let schemas = of(row.group, row.version, &BTreeSet::from([row.kind]));
            let is_kind = |schema: &&Value| schema["x-kubernetes-group-version-kind"][0]["kind"] == row.kind;
            let schema =
                schemas.values().find(is_kind).unwrap_or_else(|| panic!("{} {}", row.group, row.kind));
            assert!(schema["description"].is_string(), "{}", row.kind);
            assert!(schema["properties"]["metadata"].is_object(), "{}", row.kind);
        }
    }

    #[test]
    fn no_reference_leads_nowhere_or_has_anything_beside_it() {
        fn check(schema: &Value, schemas: &Map<String, Value>) {
            if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
                assert_eq!(schema.as_object().map(Map::len), Some(1), "{schema}");
                let name = reference.strip_prefix("#/components/schemas/").unwrap();
                assert!(schemas.contains_key(name), "{reference}");
            }
            match schema {
                Value::Object(map) => map.values().for_each(|value| check(value, schemas)),
                Value::Array(items) => items.iter().for_each(|value| check(value, schemas)),
                _ => {}
            }
        }
        let schemas = of("apps", "v1", &BTreeSet::from(["DaemonSet", "Deployment"]));
        assert!(schemas.len() > 100);
        schemas.values().for_each(|schema| check(schema, &schemas));
    }
}
