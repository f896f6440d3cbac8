//! The bodies of the writes: what Endpoints have, as the API has it.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::model::endpoints::{
    AddressView, ENDPOINT_CONTROLLER, Endpoints, MANAGED_BY, OVER_CAPACITY, SubsetView,
};
use crate::model::endpointslice::PortView;
use crate::model::{Record as _, Service};
use crate::plan::endpointslice::body::{HEADLESS, Pairs, are_equal, changes, target_of, trigger_time};

/// The value of [`OVER_CAPACITY`] where addresses are left out.
const TRUNCATED: &str = "truncated";

/// The part of Endpoints that does not depend on their addresses.
pub(super) struct Frame<'a> {
    /// The Service.
    pub service: &'a Service,
    /// The labels, and no others.
    pub labels: Pairs<'a>,
    /// The time of the change that leads to a write, if it is known.
    pub trigger: Option<Timestamp>,
    /// Whether addresses are left out.
    pub is_truncated: bool,
}

/// The labels of a Service, and those that tell what its Endpoints are.
pub(super) fn labels(service: &Service) -> Pairs<'_> {
    let mut labels: Pairs<'_> = service.meta.labels.iter().collect();
    labels.remove(HEADLESS);
    if service.is_headless {
        labels.insert(HEADLESS, "");
    }
    labels.insert(MANAGED_BY, ENDPOINT_CONTROLLER);
    labels
}

impl Frame<'_> {
    /// Whether Endpoints have the labels, and the annotation where addresses are left out.
    pub(super) fn fits(&self, there: &Endpoints) -> bool {
        let over_capacity = self.is_truncated.then_some(TRUNCATED);
        are_equal(&there.meta.labels, &self.labels) && there.over_capacity.as_deref() == over_capacity
    }

    /// The annotations, as a merge patch.
    fn annotations(&self) -> Value {
        let mut annotations = trigger_time(self.trigger);
        annotations[OVER_CAPACITY] = self.is_truncated.then_some(TRUNCATED).into();
        annotations
    }

    /// New Endpoints.
    pub(super) fn new_endpoints(&self, subsets: &[SubsetView<'_>]) -> Value {
        let key = &self.service.meta.key;
        let mut annotations = self.annotations();
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.retain(|_, value| !value.is_null());
        }
        let mut body = json!({
            "apiVersion": Endpoints::RESOURCE.api_version(),
            "kind": Endpoints::RESOURCE.kind,
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "labels": self.labels,
                "annotations": annotations,
            },
        });
        if !subsets.is_empty() {
            body["subsets"] = subsets_of(subsets);
        }
        body
    }

    /// The merge patch of Endpoints, for the state that was observed.
    pub(super) fn patch(&self, there: &Endpoints, subsets: &[SubsetView<'_>]) -> Value {
        let meta = &there.meta;
        json!({
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version.to_string(),
                "labels": changes(&meta.labels, &self.labels),
                "annotations": self.annotations(),
            },
            // Without any the field is absent, as an API server stores it.
            "subsets": if subsets.is_empty() { Value::Null } else { subsets_of(subsets) },
        })
    }
}

fn subsets_of(subsets: &[SubsetView<'_>]) -> Value {
    let subset_of = |subset: &SubsetView<'_>| {
        let mut body = Map::new();
        for (key, addresses) in [("addresses", &subset.ready), ("notReadyAddresses", &subset.not_ready)] {
            if !addresses.is_empty() {
                body.insert(key.into(), addresses.iter().map(address_of).collect());
            }
        }
        if !subset.ports.is_empty() {
            body.insert("ports".into(), subset.ports.iter().map(port_of).collect());
        }
        Value::Object(body)
    };
    subsets.iter().map(subset_of).collect()
}

fn address_of(address: &AddressView<'_>) -> Value {
    let mut body = Map::new();
    body.insert("ip".into(), (&*address.ip).into());
    for (key, text) in [("hostname", address.hostname), ("nodeName", address.node)] {
        body.extend(text.map(|text| (key.to_owned(), text.into())));
    }
    body.extend(address.target.as_ref().map(|target| ("targetRef".to_owned(), target_of(target))));
    body.into()
}

fn port_of(port: &PortView<'_>) -> Value {
    let mut body = Map::new();
    if !port.name.is_empty() {
        body.insert("name".into(), port.name.into());
    }
    body.insert("port".into(), port.port.into());
    body.insert("protocol".into(), port.protocol.into());
    body.extend(port.app_protocol.map(|protocol| ("appProtocol".to_owned(), protocol.into())));
    body.into()
}
