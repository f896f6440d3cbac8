//! Content negotiation: the form of a response by the client's Accept header.

use std::iter;

use super::protobuf::MEDIA_TYPE;
use super::status::Failure;

/// A form of objects, lists and watch events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects themselves.
    Plain,
    /// Rows for people, as `kubectl get` prints them.
    Table,
    /// Objects without anything but their metadata.
    PartialMetadata,
    /// The objects themselves in protobuf.
    Protobuf,
    /// Their metadata in protobuf.
    ProtobufMetadata,
    /// The objects themselves in YAML.
    Yaml,
    /// Discovery documents of all groups in one. Only `/api` and `/apis` have it.
    AggregatedDiscovery,
}

impl Form {
    /// The Content-Type of an answer in this form.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Form::AggregatedDiscovery => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            Form::Protobuf | Form::ProtobufMetadata => MEDIA_TYPE,
            Form::Yaml => "application/yaml",
            _ => "application/json",
        }
    }

    /// The Content-Type of a watch in this form.
    pub(crate) fn watch_content_type(self) -> &'static str {
        match self {
            Form::Protobuf | Form::ProtobufMetadata => "application/vnd.kubernetes.protobuf;stream=watch",
            _ => "application/json",
        }
    }
}

/// The forms that a path offers besides JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Discovery documents of all groups in one.
    pub(crate) aggregated: bool,
    /// Objects in protobuf.
    pub(crate) protobuf: bool,
    /// The metadata of objects in protobuf.
    pub(crate) protobuf_metadata: bool,
}

/// The first media range of `accept` that can be served wins: clients list them by preference, and
/// quality values do not occur in practice.
pub(crate) fn negotiate(accept: &str, offer: Offer) -> Result<Form, Failure> {
    if accept.trim().is_empty() {
        return Ok(Form::Plain);
    }
    accept.split(',').find_map(|range| form_of(range, offer)).ok_or_else(|| {
        let others = [
            ("application/yaml", !offer.aggregated),
            (MEDIA_TYPE, offer.protobuf || offer.protobuf_metadata),
        ];
        let others = others.into_iter().filter_map(|(media, is_offered)| is_offered.then_some(media));
        Failure::not_acceptable(&iter::once("application/json").chain(others).collect::<Vec<_>>())
    })
}

fn form_of(range: &str, Offer { aggregated, protobuf, protobuf_metadata }: Offer) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?;
    if range.trim() == "application/yaml" && !aggregated {
        return Some(Form::Yaml);
    }
    let is_protobuf = (protobuf || protobuf_metadata) && media == MEDIA_TYPE;
    if !is_protobuf && !matches!(media, "application/json" | "application/*" | "*/*") {
        return None;
    }
    let (mut form, mut group, mut version) = ("", "", "");
    for part in parts {
        match part.split_once('=') {
            Some(("as", value)) => form = value,
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            _ => {}
        }
    }
    match (form, group, version) {
        ("", _, _) if is_protobuf => protobuf.then_some(Form::Protobuf),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") if is_protobuf => {
            protobuf_metadata.then_some(Form::ProtobufMetadata)
        }
        _ if is_protobuf => None,
        ("", _, _) => Some(Form::Plain),
        ("Table", "meta.k8s.io", "v1") if !aggregated => Some(Form::Table),
        ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") if !aggregated => {
            Some(Form::PartialMetadata)
        }
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") if aggregated => {
            Some(Form::AggregatedDiscovery)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_is_served_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(negotiate(kubectl, Offer::default()), Ok(Form::Table));
        assert_eq!(
            negotiate("application/vnd.kubernetes.protobuf,application/json", Offer::default()),
            Ok(Form::Plain)
        );
        assert_eq!(negotiate("", Offer::default()), Ok(Form::Plain));
    }

    #[test]
    fn protobuf_is_served_where_it_is_offered_and_as_nothing_but_the_objects() {
        let offer = Offer { protobuf: true, ..Offer::default() };
        let accept = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(negotiate(accept, offer), Ok(Form::Protobuf));
        let table = "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1,application/json";
        assert_eq!(negotiate(table, offer), Ok(Form::Plain));
        assert_eq!(negotiate("application/json,application/vnd.kubernetes.protobuf", offer), Ok(Form::Plain));
    }

    #[test]
    fn metadata_in_protobuf_is_offered_apart_from_the_objects() {
        let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                      application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        let offer = Offer { protobuf_metadata: true, ..Offer::default() };
        assert_eq!(negotiate(accept, offer), Ok(Form::ProtobufMetadata));
        assert_eq!(negotiate(accept, Offer::default()), Ok(Form::PartialMetadata));
        let objects = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(negotiate(objects, offer), Ok(Form::Plain));
    }

    #[test]
    fn a_client_that_does_not_accept_json_gets_an_error() {
        assert_eq!(negotiate("application/cbor", Offer::default()).unwrap_err().code, 406);
    }

    #[test]
    fn discovery_is_aggregated_only_where_it_exists() {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(
            negotiate(accept, Offer { aggregated: true, ..Offer::default() }),
            Ok(Form::AggregatedDiscovery)
        );
        assert_eq!(negotiate(accept, Offer::default()), Ok(Form::Plain));
    }
}
