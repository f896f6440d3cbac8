//! Which objects of a kind a list or watch is about: namespace, name, labels and fields.

use serde_json::Value;

use super::conversion;
use super::object::{Object, meta};
use super::request::Request;
use super::selector::{FieldSelector, LabelSelector};
use super::status::Failure;

/// The filters of one request.
pub(crate) struct Selection {
    namespace: String,
    name: String,
    labels: Option<LabelSelector>,
    fields: Option<FieldSelector>,
}

impl Selection {
    pub(crate) fn of(request: &Request) -> Result<Self, Failure> {
        let labels = match request.params.label_selector.as_str() {
            "" => None,
            text => Some(LabelSelector::parse(text).map_err(Failure::bad_request)?),
        };
        let fields = match request.params.field_selector.as_str() {
            "" => None,
            text => {
                let stored = conversion::stored_fields(request.kind(), text);
                let parsed = FieldSelector::parse(request.kind().kind, &stored);
                Some(parsed.map_err(Failure::bad_request)?)
            }
        };
        let (namespace, name) = (request.place.namespace.clone(), request.place.name.clone());
        Ok(Selection { namespace, name, labels, fields })
    }

    /// Whether objects are left out for anything but their namespace.
    pub(crate) fn is_partial(&self) -> bool {
        self.labels.is_some() || self.fields.is_some() || !self.name.is_empty()
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        let value = &object.value;
        (self.namespace.is_empty() || meta(value, "namespace") == self.namespace)
            && (self.name.is_empty() || meta(value, "name") == self.name)
            && self.labels.as_ref().is_none_or(|labels| {
                labels.matches(value.pointer("/metadata/labels").unwrap_or(&Value::Null))
            })
            && self.fields.as_ref().is_none_or(|fields| fields.matches(value))
    }
}
