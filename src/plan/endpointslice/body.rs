//! The bodies of the writes: what a slice has, as the API has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::endpoints::Endpoint;
use crate::model::endpointslice::{ENDPOINT_SLICE_CONTROLLER, MANAGED_BY, PortView, SERVICE_NAME};
use crate::model::{AddressType, EndpointSlice, Record as _, Service};
use crate::plan::OwnerReference;

/// The label of the slices of a headless Service.
const HEADLESS: &str = "service.kubernetes.io/headless";

/// The annotation with the time of the change that led to a write, from which proxies compute their latency.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Labels, by key.
pub(super) type Labels<'a> = BTreeMap<&'a str, &'a str>;

/// The part of a slice that a patch writes besides labels and annotations.
#[derive(Default)]
pub(super) struct Content<'a> {
    /// The endpoints.
    pub endpoints: Option<&'a [&'a Endpoint<'a>]>,
    /// The ports.
    pub ports: Option<&'a [PortView<'a>]>,
}

/// The labels of the slices of a Service: its own, and those that tell what the slices are.
pub(super) fn labels(service: &Service) -> Labels<'_> {
    let own = service.meta.labels.iter();
    let mut labels: Labels<'_> =
        own.filter(|(key, _)| ![SERVICE_NAME, MANAGED_BY, HEADLESS].contains(key)).collect();
    labels.insert(SERVICE_NAME, &service.meta.key.name);
    labels.insert(MANAGED_BY, ENDPOINT_SLICE_CONTROLLER);
    if service.is_headless {
        labels.insert(HEADLESS, "");
    }
    labels
}

/// Whether a slice has these labels and no others. Upstream does not compare its own ones, so that one which is lost stays lost.
pub(super) fn has_labels(slice: &EndpointSlice, labels: &Labels<'_>) -> bool {
    let there = &slice.meta.labels;
    there.len() == labels.len() && there.iter().all(|(key, value)| labels.get(key) == Some(&value))
}

/// The annotations of a slice that is written. Without a time the annotation is removed.
pub(super) fn annotation(trigger: Option<Timestamp>) -> Value {
    json!({TRIGGER_TIME: trigger.map(|time| time.to_string())})
}

/// A new slice.
pub(super) fn new_slice(
    service: &Service,
    (name, address_type): (&str, AddressType),
    labels: &Labels<'_>,
    annotation: &Value,
    (endpoints, ports): (&[&Endpoint<'_>], &[PortView<'_>]),
) -> Value {
    let key = &service.meta.key;
    let api_version = Service::RESOURCE.api_version();
    let owner =
        OwnerReference::controller(&api_version, Service::RESOURCE.kind, &key.name, &service.meta.uid);
    let mut annotations = annotation.clone();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.retain(|_, value| !value.is_null());
    }
    json!({
        "apiVersion": EndpointSlice::RESOURCE.api_version(),
        "kind": EndpointSlice::RESOURCE.kind,
        "metadata": {
            "name": name,
            "generateName": format!("{}-", key.name),
            "namespace": key.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "addressType": address_type.as_str(),
        "endpoints": endpoints_of(endpoints),
        "ports": ports_of(ports),
    })
}

/// The merge patch of a slice, for the state that was observed.
pub(super) fn patch(
    slice: &Arc<EndpointSlice>,
    labels: &Labels<'_>,
    annotation: &Value,
    content: &Content<'_>,
) -> Value {
    let meta = &slice.meta;
    let mut metadata = json!({
        "uid": meta.uid,
        "resourceVersion": meta.resource_version.to_string(),
        "annotations": annotation,
    });
    if !has_labels(slice, labels) {
        let unwanted = meta.labels.iter().filter(|(key, _)| !labels.contains_key(key));
        let removed = unwanted.map(|(key, _)| (key.to_owned(), Value::Null));
        let wanted = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).into()));
        metadata["labels"] = Value::Object(removed.chain(wanted).collect());
    }
    let mut body = json!({"metadata": metadata});
    if let Some(endpoints) = content.endpoints {
        body["endpoints"] = endpoints_of(endpoints);
    }
    if let Some(ports) = content.ports {
        body["ports"] = ports_of(ports);
    }
    body
}

fn endpoints_of(endpoints: &[&Endpoint<'_>]) -> Value {
    endpoints.iter().map(|endpoint| endpoint_of(endpoint)).collect()
}

fn endpoint_of(endpoint: &Endpoint<'_>) -> Value {
    let meta = &endpoint.pod.meta;
    let mut body = Map::new();
    body.insert("addresses".into(), endpoint.addresses.as_slice().into());
    let conditions = json!({
        "ready": endpoint.is_ready,
        "serving": endpoint.is_serving,
        "terminating": endpoint.is_terminating,
    });
    body.insert("conditions".into(), conditions);
    let target = json!({
        "kind": "Pod",
        "namespace": meta.key.namespace,
        "name": meta.key.name,
        "uid": meta.uid,
    });
    body.insert("targetRef".into(), target);
    let texts = [("hostname", endpoint.hostname), ("nodeName", endpoint.node), ("zone", endpoint.zone)];
    for (key, text) in texts {
        body.extend(text.map(|text| (key.to_owned(), text.into())));
    }
    let mut hints = Map::new();
    for (key, name) in [("forZones", endpoint.hint.zone), ("forNodes", endpoint.hint.node)] {
        hints.extend(name.map(|name| (key.to_owned(), json!([{"name": name}]))));
    }
    if !hints.is_empty() {
        body.insert("hints".into(), hints.into());
    }
    body.into()
}

fn ports_of(ports: &[PortView<'_>]) -> Value {
    let port_of = |port: &PortView<'_>| {
        let mut body = json!({"name": port.name, "protocol": port.protocol, "port": port.port});
        if let Some(protocol) = port.app_protocol {
            body["appProtocol"] = protocol.into();
        }
        body
    };
    ports.iter().map(port_of).collect()
}
