//! The bodies of the writes: what a slice has, as the API has it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::endpoints::Endpoint;
use crate::model::endpointslice::{MANAGED_BY, PortView, SERVICE_NAME, TargetView};
use crate::model::{AddressType, EndpointSlice, Meta, Owner, Record as _, Resource, StringMap, Uid};
use crate::plan::OwnerReference;

/// The label of the endpoints of a headless Service.
pub(in crate::plan) const HEADLESS: &str = "service.kubernetes.io/headless";

/// The annotation with the time of the change that led to a write, from which proxies compute their latency.
pub(in crate::plan) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Labels or annotations, by key.
pub(in crate::plan) type Pairs<'a> = BTreeMap<&'a str, &'a str>;

/// The part of all slices of an object that does not depend on their endpoints.
pub(in crate::plan) struct Frame<'a> {
    /// The kind of the object that owns them.
    pub resource: &'static Resource,
    /// The object.
    pub owner: &'a Meta,
    /// The labels, and no others.
    pub labels: Pairs<'a>,
    /// The annotations.
    pub annotations: Annotations<'a>,
}

/// The annotations of slices.
pub(in crate::plan) enum Annotations<'a> {
    /// The time of the change that leads to a write, if it is known. Others are left alone.
    Trigger(Option<Timestamp>),
    /// These and no others.
    Exactly(Pairs<'a>),
}

/// The part of a slice that a patch writes besides labels and annotations.
#[derive(Default)]
pub(super) struct Content<'a> {
    /// The endpoints.
    pub endpoints: Option<&'a [&'a Endpoint<'a>]>,
    /// The ports.
    pub ports: Option<&'a [PortView<'a>]>,
}

/// These labels without those that tell what slices are, which are set to the name of the Service and to the writer.
pub(in crate::plan) fn labels<'a>(own: &'a Meta, writer: &'static str) -> Pairs<'a> {
    let mut labels: Pairs<'a> = own.labels.iter().collect();
    labels.insert(SERVICE_NAME, &own.key.name);
    labels.insert(MANAGED_BY, writer);
    labels
}

/// Whether an object has these pairs and no others.
pub(in crate::plan) fn are_equal(there: &StringMap, wanted: &Pairs<'_>) -> bool {
    there.len() == wanted.len() && there.iter().all(|(key, value)| wanted.get(key) == Some(&value))
}

/// The merge patch that turns pairs into others.
pub(in crate::plan) fn changes(there: &StringMap, wanted: &Pairs<'_>) -> Value {
    let unwanted = there.iter().filter(|(key, _)| !wanted.contains_key(key));
    let removed = unwanted.map(|(key, _)| (key.to_owned(), Value::Null));
    let wanted = wanted.iter().map(|(key, value)| ((*key).to_owned(), (*value).into()));
    Value::Object(removed.chain(wanted).collect())
}

/// The annotation with the time of a change, as a merge patch: without a time it is removed.
pub(in crate::plan) fn trigger_time(trigger: Option<Timestamp>) -> Value {
    json!({TRIGGER_TIME: trigger.map(|time| time.to_string())})
}

impl Frame<'_> {
    /// Whether the object owns a slice.
    pub(in crate::plan) fn owns(&self, slice: &EndpointSlice) -> bool {
        let Meta { key, uid, .. } = self.owner;
        slice.meta.owner() == Some(Owner::by_uid(self.resource, &key.namespace, uid))
    }

    /// Whether a slice has the labels and annotations. Upstream does not compare the labels that tell what slices are, so that one
    /// which is lost stays lost.
    pub(in crate::plan) fn fits(&self, slice: &EndpointSlice) -> bool {
        let annotations = match &self.annotations {
            Annotations::Trigger(_) => true,
            Annotations::Exactly(wanted) => are_equal(&slice.annotations, wanted),
        };
        annotations && are_equal(&slice.meta.labels, &self.labels)
    }

    /// A new slice.
    pub(super) fn new_slice(
        &self,
        (name, address_type): (&str, AddressType),
        (endpoints, ports): (&[&Endpoint<'_>], &[PortView<'_>]),
    ) -> Value {
        let key = &self.owner.key;
        let annotations = match &self.annotations {
            Annotations::Trigger(None) => json!({}),
            Annotations::Trigger(trigger) => trigger_time(*trigger),
            Annotations::Exactly(wanted) => json!(wanted),
        };
        json!({
            "apiVersion": EndpointSlice::RESOURCE.api_version(),
            "kind": EndpointSlice::RESOURCE.kind,
            "metadata": {
                "name": name,
                "generateName": format!("{}-", key.name),
                "namespace": key.namespace,
                "labels": self.labels,
                "annotations": annotations,
                "ownerReferences": self.owner_references(),
            },
            "addressType": address_type.as_str(),
            "endpoints": endpoints_of(endpoints),
            "ports": ports_of(ports),
        })
    }

    fn owner_references(&self) -> Value {
        let (meta, api_version) = (self.owner, self.resource.api_version());
        json!([OwnerReference::controller(&api_version, self.resource.kind, &meta.key.name, &meta.uid)])
    }

    /// The merge patch of a slice, for the state that was observed.
    pub(super) fn patch(&self, slice: &EndpointSlice, content: &Content<'_>) -> Value {
        let meta = &slice.meta;
        let mut metadata = json!({
            "uid": meta.uid,
            "resourceVersion": meta.resource_version.to_string(),
            "annotations": match &self.annotations {
                Annotations::Trigger(trigger) => trigger_time(*trigger),
                Annotations::Exactly(wanted) => changes(&slice.annotations, wanted),
            },
        });
        if !are_equal(&meta.labels, &self.labels) {
            metadata["labels"] = changes(&meta.labels, &self.labels);
        }
        if !self.owns(slice) {
            metadata["ownerReferences"] = self.owner_references();
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
}

fn endpoints_of(endpoints: &[&Endpoint<'_>]) -> Value {
    endpoints.iter().map(|endpoint| endpoint_of(endpoint)).collect()
}

fn endpoint_of(endpoint: &Endpoint<'_>) -> Value {
    let mut body = Map::new();
    body.insert("addresses".into(), endpoint.addresses.as_slice().into());
    let conditions = ["ready", "serving", "terminating"].into_iter().zip(endpoint.conditions);
    let conditions = conditions.filter_map(|(name, status)| Some((name.to_owned(), status?.into())));
    body.insert("conditions".into(), Value::Object(conditions.collect()));
    body.extend(endpoint.target.as_ref().map(|target| ("targetRef".to_owned(), target_of(target))));
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

/// The object behind an endpoint, without fields that it does not have.
pub(in crate::plan) fn target_of(target: &TargetView<'_>) -> Value {
    let TargetView { api_version, kind, namespace, name, uid, field_path } = target;
    let mut body = Map::new();
    let texts = [
        ("apiVersion", api_version),
        ("kind", kind),
        ("namespace", namespace),
        ("name", name),
        ("fieldPath", field_path),
    ];
    for (key, text) in texts {
        if !text.is_empty() {
            body.insert(key.into(), (*text).into());
        }
    }
    if *uid != Uid::new("") {
        body.insert("uid".into(), uid.to_string().into());
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
