//! The last writer of an object, by `metadata.managedFields`.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::text::harmless;

/// The newest writes to a Deployment or ReplicationController.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastWrites {
    /// The newest write of the spec.
    pub spec: Option<Timestamp>,
    /// The newest write by a manager of the pod template.
    pub template: Option<Timestamp>,
    /// The newest write of the status.
    pub status: Option<Actor>,
}

/// The writer of a status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Actor {
    /// The field manager: `windlass`, `kube-controller-manager`.
    pub manager: String,
    /// When it wrote last.
    #[serde(serialize_with = "as_text")]
    pub at: Timestamp,
}

fn as_text<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

impl LastWrites {
    /// The newest writes to this object.
    pub fn of(object: &Value) -> Self {
        let mut last = LastWrites::default();
        for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
            let Some(at) = entry["time"].as_str().and_then(|time| time.parse::<Timestamp>().ok()) else {
                continue;
            };
            let fields = &entry["fieldsV1"];
            if entry["subresource"] == "status" {
                if last.status.as_ref().is_none_or(|known| known.at <= at) {
                    let manager = harmless(entry["manager"].as_str().unwrap_or_default());
                    last.status = Some(Actor { manager, at });
                }
                continue;
            }
            if fields["f:spec"].is_object() {
                last.spec = last.spec.max(Some(at));
            }
            if fields["f:spec"]["f:template"].is_object() {
                last.template = last.template.max(Some(at));
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_writer_of_each_part_is_found() {
        let entry = |manager: &str, time: &str, subresource: Value, fields: Value| json!({"manager": manager, "time": time, "subresource": subresource, "fieldsV1": fields});
        let template = json!({"f:spec": {"f:template": {"f:spec": {}}}});
        let object = json!({"metadata": {"managedFields": [
            entry("kubectl-create", "2026-01-01T00:00:00Z", Value::Null, template.clone()),
            entry("kubectl-rollout", "2026-01-01T00:05:00Z", Value::Null, template),
            entry("kubectl", "2026-01-01T00:07:00Z", json!("scale"), json!({"f:spec": {"f:replicas": {}}})),
            entry("kube-controller-manager", "2026-01-01T00:06:00Z", json!("status"), json!({"f:status": {}})),
            entry("broken", "yesterday", Value::Null, json!({"f:spec": {"f:template": {}}})),
        ]}});
        let last = LastWrites::of(&object);
        let text = |at: Option<Timestamp>| at.map(|at| at.to_string());
        assert_eq!(text(last.template).as_deref(), Some("2026-01-01T00:05:00Z"));
        assert_eq!(text(last.spec).as_deref(), Some("2026-01-01T00:07:00Z"));
        assert_eq!(last.status.unwrap().manager, "kube-controller-manager");
        assert_eq!(LastWrites::of(&json!({})), LastWrites::default());
    }
}
