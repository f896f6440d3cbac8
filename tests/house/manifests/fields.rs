//! Which fields Kubernetes and the Prometheus operator know.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The fields that the type does not know, by path.
fn unknown<T: DeserializeOwned>(object: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let result: Result<T, _> = serde_ignored::deserialize(object, |path| unknown.push(path.to_string()));
    unknown.extend(result.err().map(|error| error.to_string()));
    unknown
}

/// The same for kinds of the Prometheus operator, as far as we use them (its API reference,
/// `monitoring.coreos.com/v1`).
fn unknown_to_the_operator(object: &Value, known: &[&str]) -> Vec<String> {
    fn walk(value: &Value, path: &str, known: &[&str], unknown: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let path = format!("{path}.{key}");
                    // The keys of labels and annotations are ours.
                    if path.ends_with(".*") || known.contains(&format!("{path}.*").as_str()) {
                        continue;
                    }
                    if !known.contains(&path.as_str()) {
                        unknown.push(path.clone());
                    }
                    walk(value, &path, known, unknown);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, path, known, unknown)),
            _ => {}
        }
    }
    let mut unknown = Vec::new();
    walk(&object["spec"], "", known, &mut unknown);
    unknown
}

const SERVICE_MONITOR: [&str; 24] = [
    ".namespaceSelector",
    ".namespaceSelector.matchNames",
    ".selector",
    ".selector.matchLabels.*",
    ".endpoints",
    ".endpoints.port",
    ".endpoints.scheme",
    ".endpoints.path",
    ".endpoints.interval",
    ".endpoints.scrapeTimeout",
    ".endpoints.bearerTokenFile",
    ".endpoints.authorization",
    ".endpoints.authorization.credentials",
    ".endpoints.authorization.credentials.name",
    ".endpoints.authorization.credentials.key",
    ".endpoints.tlsConfig",
    ".endpoints.tlsConfig.serverName",
    ".endpoints.tlsConfig.insecureSkipVerify",
    ".endpoints.tlsConfig.ca",
    ".endpoints.tlsConfig.ca.secret",
    ".endpoints.tlsConfig.ca.secret.name",
    ".endpoints.tlsConfig.ca.secret.key",
    ".endpoints.tlsConfig.cert",
    ".endpoints.tlsConfig.keySecret",
];

const PROMETHEUS_RULE: [&str; 8] = [
    ".groups",
    ".groups.name",
    ".groups.rules",
    ".groups.rules.alert",
    ".groups.rules.expr",
    ".groups.rules.for",
    ".groups.rules.labels.*",
    ".groups.rules.annotations.*",
];

/// The fields of an object that its kind does not have, by path.
pub fn unknown_fields(object: &Value) -> Vec<String> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("v1", "ConfigMap") => unknown::<ConfigMap>(object),
        ("v1", "Pod") => unknown::<Pod>(object),
        ("v1", "Service") => unknown::<Service>(object),
        ("v1", "ServiceAccount") => unknown::<ServiceAccount>(object),
        ("apps/v1", "Deployment") => unknown::<Deployment>(object),
        ("apps/v1", "StatefulSet") => unknown::<StatefulSet>(object),
        ("batch/v1", "Job") => unknown::<Job>(object),
        ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema") => unknown::<FlowSchema>(object),
        ("networking.k8s.io/v1", "NetworkPolicy") => unknown::<NetworkPolicy>(object),
        ("policy/v1", "PodDisruptionBudget") => unknown::<PodDisruptionBudget>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => unknown::<ClusterRole>(object),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => unknown::<ClusterRoleBinding>(object),
        ("rbac.authorization.k8s.io/v1", "Role") => unknown::<Role>(object),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => unknown::<RoleBinding>(object),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy") => {
            unknown::<ValidatingAdmissionPolicy>(object)
        }
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding") => {
            unknown::<ValidatingAdmissionPolicyBinding>(object)
        }
        ("monitoring.coreos.com/v1", "ServiceMonitor") => unknown_to_the_operator(object, &SERVICE_MONITOR),
        ("monitoring.coreos.com/v1", "PrometheusRule") => unknown_to_the_operator(object, &PROMETHEUS_RULE),
        (version, kind) => vec![format!("unexpected: {kind} of {version}")],
    }
}
