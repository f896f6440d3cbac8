//! The objects that an API server refuses, in the words that users know (upstream `pkg/apis/*/validation` and
//! apimachinery `api/validation`).
//!
//! Objects come here decoded ([`super::strict`]) and defaulted ([`super::defaults`]); shapes that the
//! decoder would have refused are not reported again, and never panic.

use serde_json::Value;

use crate::custom;
use crate::kinds::{self, Kind};

pub(crate) mod access;
pub(crate) mod app_armor;
pub(crate) mod certificates;
pub(crate) mod classes;
mod container;
pub(crate) mod cron_job;
pub(crate) mod daemonset;
mod dns;
pub(crate) mod endpoints;
mod environment;
mod errors;
mod index_list;
pub(crate) mod internal_types;
pub(crate) mod job;
mod job_policies;
pub(crate) mod job_status;
pub(crate) mod limits;
mod line_diff;
mod metadata;
mod mounts;
pub mod names;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod objects;
mod os;
pub(crate) mod pod;
pub(crate) mod pod_update;
mod probes;
mod resources;
pub(crate) mod reviews;
pub(crate) mod scaling;
mod schedule;
mod scheduling;
mod security;
mod selectors;
pub(crate) mod service;
pub(crate) mod statefulset;
pub(crate) mod storage;
mod volume;
pub(crate) mod webhooks;
pub(crate) mod workload;

pub(crate) use errors::Errors;
pub use errors::FieldError;

/// Everything that is wrong with a new object of `kind`.
pub fn create(kind: &str, object: &Value) -> Vec<FieldError> {
    create_of(kinds::named(kind), object)
}

/// Everything that is wrong with replacing `old` by `new` through the main resource.
pub fn update(kind: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    update_of(kinds::named(kind), new, old)
}

/// Everything that is wrong with replacing `old` by `new` through `/status`.
pub fn update_status(kind: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    update_status_of(kinds::named(kind), new, old)
}

/// [`create`] for built-in and custom kinds.
pub(crate) fn create_of(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::validate(kind, &object["metadata"], &mut errors);
    match kind.custom {
        Some(custom) => custom::check::object(&custom.schema, object, &mut errors),
        None => (kind.validate)(object, &mut errors),
    }
    errors.into_vec()
}

/// [`update`] for built-in and custom kinds.
pub(crate) fn update_of(kind: &Kind, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::validate_update(kind, &new["metadata"], &old["metadata"], &mut errors);
    match (kind.custom, kind.validate_update) {
        (Some(custom), _) => custom::check::object(&custom.schema, new, &mut errors),
        (None, Some(validate)) => validate(new, old, &mut errors),
        (None, None) => (kind.validate)(new, &mut errors),
    }
    errors.into_vec()
}

/// [`update_status`] for built-in and custom kinds.
pub(crate) fn update_status_of(kind: &Kind, new: &Value, old: &Value) -> Vec<FieldError> {
    if kind.custom.is_some() {
        return update_of(kind, new, old);
    }
    let mut errors = Errors::default();
    metadata::validate_update(kind, &new["metadata"], &old["metadata"], &mut errors);
    (kind.validate_status)(new, old, &mut errors);
    errors.into_vec()
}

/// Everything that is wrong with replacing `old` by `new` through the `/finalize` of a namespace.
pub(crate) fn finalize(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::validate_update(kinds::named("Namespace"), &new["metadata"], &old["metadata"], &mut errors);
    metadata::namespace_finalizers(new, &mut errors);
    errors.into_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{FieldError, create, update, update_status};

    /// Sets the value at a JSON pointer, making objects on the way.
    #[track_caller]
    pub(super) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
        let mut at = &mut object;
        for key in pointer.split('/').skip(1) {
            at = match key.parse::<usize>() {
                Ok(index) => &mut at[index],
                Err(_) => &mut at[key],
            };
        }
        *at = value;
        object
    }

    pub(super) fn said(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    pub(super) fn check_create(kind: &str, object: Value, expected: &[&str]) {
        assert_eq!(said(create(kind, &object)), expected, "{object:#}");
    }

    #[track_caller]
    pub(super) fn check_update(kind: &str, new: Value, old: Value, expected: &[&str]) {
        assert_eq!(said(update(kind, &new, &old)), expected);
    }

    #[track_caller]
    pub(super) fn check_status(kind: &str, new: Value, old: Value, expected: &[&str]) {
        assert_eq!(said(update_status(kind, &new, &old)), expected);
    }

    pub(super) fn pod() -> Value {
        let mut pod = json!({
            "metadata": {"name": "p", "namespace": "shop"},
            "spec": {"containers": [{"name": "app", "image": "nginx:1"}]},
        });
        crate::defaults::apply("Pod", &mut pod);
        pod
    }

    pub(super) fn workload(kind: &str) -> Value {
        let mut workload = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "app", "image": "nginx:1"}]},
                },
            },
        });
        if kind == "ReplicationController" {
            workload["spec"]["selector"] = json!({"app": "web"});
        }
        crate::defaults::apply(kind, &mut workload);
        workload
    }

    #[test]
    fn a_usual_manifest_passes_every_gate() {
        let manifest = br#"{
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": null, "labels": {"app": "web"}},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}, "annotations": {"Example.com/Note": "yes"}},
                    "spec": {
                        "initContainers": [{"name": "wait", "image": "busybox", "command": ["true"]}],
                        "containers": [{
                            "name": "app", "image": "nginx:1.27",
                            "ports": [{"name": "http", "containerPort": 80}],
                            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                            "resources": {"requests": {"cpu": 0.1}, "limits": {"cpu": "1", "memory": "64Mi"}},
                            "readinessProbe": {"httpGet": {"port": "http"}},
                            "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}
                        }],
                        "volumes": [{"name": "tmp"}],
                        "tolerations": [{"operator": "Exists"}]
                    }
                }
            },
            "status": {}
        }"#;
        let checked = crate::strict::check("apps/v1", "Deployment", manifest).unwrap();
        assert_eq!((checked.unknown.len(), checked.duplicates.len()), (0, 0));
        let mut deployment = checked.object;
        crate::defaults::apply("Deployment", &mut deployment);
        check_create("Deployment", deployment.clone(), &[]);
        check_update("Deployment", deployment.clone(), deployment.clone(), &[]);

        // The pod that its controller would make of the template.
        let mut pod = deployment["spec"]["template"].clone();
        pod["metadata"]["name"] = json!("web-1");
        pod["metadata"]["namespace"] = json!("shop");
        let mut pod = crate::strict::check_value("v1", "Pod", pod).unwrap().object;
        crate::defaults::apply("Pod", &mut pod);
        check_create("Pod", pod.clone(), &[]);
        check_update("Pod", pod.clone(), pod, &[]);
    }

    #[test]
    fn malformed_objects_do_not_panic() {
        let kinds = "ControllerRevision DaemonSet Deployment ReplicaSet ReplicationController Pod Service Namespace Node Secret ConfigMap \
                     ServiceAccount Lease Event Scale";
        for kind in kinds.split(' ') {
            for strange in [
                json!(null),
                json!([1]),
                json!({"spec": 7, "status": [], "metadata": "x"}),
                json!({"metadata": {"labels": [], "ownerReferences": [1], "finalizers": {}, "name": 1}}),
                json!({"spec": {"template": {"spec": {"containers": [3, {"ports": [1], "env": [1]}]}}}}),
                json!({"spec": {"containers": {"a": 1}, "volumes": [1], "ports": [7], "selector": []}}),
            ] {
                create(kind, &strange);
                update(kind, &strange, &json!({}));
                update(kind, &json!({}), &strange);
                update_status(kind, &strange, &strange);
            }
        }
    }
}
