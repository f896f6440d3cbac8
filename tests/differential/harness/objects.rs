//! Builders of the objects that scripts create.

use serde_json::{Value, json};

/// A pod template with the label `app`.
fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "app", "image": "app:v1"}], "terminationGracePeriodSeconds": 30},
    })
}

/// An object being described.
#[derive(Clone, Debug)]
pub struct Object(pub Value);

/// A Deployment of one replica, with the server's defaults for absent fields.
pub fn deployment(name: &str) -> Object {
    Object(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template(name)},
    }))
}

/// A ReplicaSet without a Deployment.
pub fn replica_set(name: &str) -> Object {
    let mut object = deployment(name);
    object.0["kind"] = "ReplicaSet".into();
    object
}

/// A ReplicationController.
pub fn replication_controller(name: &str) -> Object {
    Object(json!({
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"app": name}, "template": template(name)},
    }))
}

/// A DaemonSet, for the nodes of its namespace's workload.
pub fn daemon_set(name: &str, namespace: &str) -> Object {
    let mut template = template(name);
    template["spec"]["nodeSelector"] = json!({"workload": namespace});
    Object(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    }))
}

/// A StatefulSet of one replica, without claims.
pub fn stateful_set(name: &str) -> Object {
    Object(json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {
            "replicas": 1, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": template(name),
        },
    }))
}

/// A Job of one pod.
pub fn job(name: &str) -> Object {
    let mut template = template(name);
    template["spec"]["restartPolicy"] = "Never".into();
    Object(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template},
    }))
}

/// A PersistentVolumeClaim.
pub fn claim(name: &str) -> Object {
    Object(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))
}

/// A pod by itself, with the label `app`.
pub fn pod(name: &str, app: &str) -> Object {
    let mut pod = template(app);
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    Object(pod)
}

/// A ConfigMap.
pub fn config_map(name: &str) -> Object {
    Object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}))
}

/// At most so many pods in the namespace.
pub fn pod_quota(pods: i64) -> Object {
    quota("pods", pods)
}

/// At most so many objects of a resource in the namespace.
pub fn quota(resource: &str, count: i64) -> Object {
    Object(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"},
        "spec": {"hard": {resource: count.to_string()}},
    }))
}

impl Object {
    /// Sets a field of the metadata.
    #[must_use]
    pub fn metadata(mut self, field: &str, value: Value) -> Self {
        self.0["metadata"][field] = value;
        self
    }

    /// Sets a field of the spec.
    #[must_use]
    pub fn spec(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0["spec"][field] = value.into();
        self
    }

    #[must_use]
    pub fn replicas(self, replicas: i64) -> Self {
        self.spec("replicas", replicas)
    }

    #[must_use]
    pub fn rolling(self, surge: impl Into<Value>, unavailable: impl Into<Value>) -> Self {
        let rolling = json!({"maxSurge": surge.into(), "maxUnavailable": unavailable.into()});
        self.spec("strategy", json!({"type": "RollingUpdate", "rollingUpdate": rolling}))
    }

    /// Updates a DaemonSet in this way.
    #[must_use]
    pub fn updating(self, surge: impl Into<Value>, unavailable: impl Into<Value>) -> Self {
        let rolling = json!({"maxSurge": surge.into(), "maxUnavailable": unavailable.into()});
        self.spec("updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": rolling}))
    }

    /// Has these claims for each pod of a StatefulSet.
    #[must_use]
    pub fn claims(self, names: &[&str]) -> Self {
        let templates =
            names.iter().map(|name| json!({"metadata": {"name": name}, "spec": claim(name).0["spec"]}));
        self.spec("volumeClaimTemplates", templates.collect::<Vec<Value>>())
    }

    /// Deletes the claims of a StatefulSet when it is deleted, and when it is scaled.
    #[must_use]
    pub fn retention(self, when_deleted: &str, when_scaled: &str) -> Self {
        let policy = json!({"whenDeleted": when_deleted, "whenScaled": when_scaled});
        self.spec("persistentVolumeClaimRetentionPolicy", policy)
    }

    /// Creates and deletes the pods of a StatefulSet all at once.
    #[must_use]
    pub fn parallel(self) -> Self {
        self.spec("podManagementPolicy", "Parallel")
    }

    #[must_use]
    pub fn recreate(self) -> Self {
        self.spec("strategy", json!({"type": "Recreate"}))
    }

    #[must_use]
    pub fn image(mut self, tag: &str) -> Self {
        let template = if self.0["kind"] == "Pod" { &mut self.0 } else { &mut self.0["spec"]["template"] };
        template["spec"]["containers"][0]["image"] = format!("app:{tag}").into();
        self
    }

    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = value.into();
        self
    }

    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    /// Sets a label of the template.
    #[must_use]
    pub fn template_label(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["template"]["metadata"]["labels"][key] = value.into();
        self
    }

    /// Matches these labels and no others.
    #[must_use]
    pub fn selecting(self, labels: Value) -> Self {
        let is_controller = self.0["kind"] == "ReplicationController";
        let selector = if is_controller { labels } else { json!({"matchLabels": labels}) };
        self.spec("selector", selector)
    }

    /// Owned by this object, which controls it or does not.
    #[must_use]
    pub fn owned_by(mut self, owner: &Value, controls: bool) -> Self {
        self.0["metadata"]["ownerReferences"] = json!([{
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "controller": controls, "blockOwnerDeletion": controls,
        }]);
        self
    }

    pub fn kind(&self) -> &str {
        self.0["kind"].as_str().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// Whether a pod has all labels of a template.
pub fn has_all_labels(pod: &Value, template: &Value) -> bool {
    let labels = template["metadata"]["labels"].as_object();
    labels.is_none_or(|labels| labels.iter().all(|(key, value)| pod["metadata"]["labels"][key] == *value))
}
