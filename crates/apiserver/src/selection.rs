//! Which objects of a kind a list or watch is about: namespace, name, labels and fields.

use super::conversion;
use super::object::Object;
use super::request::Request;
use super::selector::{FieldSelector, LabelSelector};
use super::status::Failure;
use super::store::Key;

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
                let parsed = FieldSelector::parse(request.kind().storage(), &stored);
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

    /// Whether the object is selected. Its tree is needed for a field selector only.
    pub(crate) fn matches(&self, key: &Key, object: &Object) -> bool {
        (self.namespace.is_empty() || key.namespace == self.namespace)
            && (self.name.is_empty() || key.name == self.name)
            && self.fields.as_ref().and_then(FieldSelector::name).is_none_or(|name| key.name == name)
            && self.labels.as_ref().is_none_or(|labels| labels.matches(&object.labels()))
            && self.fields.as_ref().is_none_or(|fields| fields.matches(&object.peek()))
    }
}
