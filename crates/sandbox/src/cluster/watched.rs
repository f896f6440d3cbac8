//! Objects as they are watched: without the fields that nothing here shows, most of what there is of a pod.

use std::borrow::Cow;
use std::fmt;

use kube::{
    Resource,
    core::{DynamicResourceScope, ObjectMeta},
    discovery::ApiResource,
};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The fields that are skipped, wherever they stand: most of what is read otherwise.
#[rustfmt::skip]
const SKIPPED: [&str; 47] = [
    "managedFields", "kubectl.kubernetes.io/last-applied-configuration", "template", "selector", "containers",
    "initContainers", "volumes", "tolerations", "affinity", "securityContext", "terminationGracePeriodSeconds",
    "enableServiceLinks", "preemptionPolicy", "serviceAccount", "serviceAccountName", "dnsPolicy", "schedulerName",
    "priority", "strategy", "hostIP", "hostIPs", "podIP", "podIPs", "image", "imageID", "imagePullPolicy",
    "containerID", "resources", "restartCount", "started", "startedAt", "startTime", "lastState", "lastProbeTime",
    "lastTransitionTime", "qosClass", "apiVersion", "generateName", "creationTimestamp", "blockOwnerDeletion",
    "reportingComponent", "reportingInstance", "source", "firstTimestamp", "lastTimestamp", "eventTime", "count",
];

/// One object.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    /// Only what identifies the object.
    metadata: ObjectMeta,
    pub(super) object: Value,
}

impl<'de> Deserialize<'de> for Watched {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Pruned.deserialize(deserializer)?;
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Watched { metadata, object })
    }
}

impl Resource for Watched {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Reads a value without the skipped fields.
struct Pruned;

impl<'de> DeserializeSeed<'de> for Pruned {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Pruned {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Pruned)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(field) = fields.next_key::<Cow<'_, str>>()? {
            if SKIPPED.contains(&&*field) {
                fields.next_value::<IgnoredAny>()?;
            } else {
                let value = fields.next_value_seed(Pruned)?;
                map.insert(field.into_owned(), value);
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_read_without_the_fields_that_are_not_shown() {
        let object = json!({"metadata": {"name": "web", "uid": "u", "labels": {"a": "b"}},
                            "spec": {"replicas": 3, "template": {"spec": {}}},
                            "status": {"conditions": [{"type": "Ready", "status": "True", "n": [1, -1, 0.5, null]}]}});
        let watched: Watched = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(watched.meta().uid.as_deref(), Some("u"));
        assert_eq!(watched.object["metadata"], object["metadata"]);
        assert_eq!(watched.object["spec"], json!({"replicas": 3}));
        assert_eq!(watched.object["status"], object["status"]);
    }
}
