//! Which of the forms of an answer the client's Accept header asks for.

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
            _ => "application/json",
        }
    }
}

/// The first media range of `accept` that can be served wins: clients list them by preference, and
/// quality values do not occur in practice. `aggregated` says that the path has aggregated discovery.
pub(crate) fn negotiate(accept: &str, aggregated: bool) -> Result<Form, Failure> {
    if accept.trim().is_empty() {
        return Ok(Form::Plain);
    }
    accept.split(',').find_map(|range| form_of(range, aggregated)).ok_or_else(Failure::not_acceptable)
}

fn form_of(range: &str, aggregated: bool) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?;
    if !matches!(media, "application/json" | "application/*" | "*/*") {
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
        assert_eq!(negotiate(kubectl, false), Ok(Form::Table));
        assert_eq!(negotiate("application/vnd.kubernetes.protobuf,application/json", false), Ok(Form::Plain));
        assert_eq!(negotiate("", false), Ok(Form::Plain));
    }

    #[test]
    fn a_client_that_takes_no_json_is_told_so() {
        assert_eq!(negotiate("application/cbor", false).unwrap_err().code, 406);
    }

    #[test]
    fn discovery_is_aggregated_only_where_it_exists() {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(negotiate(accept, true), Ok(Form::AggregatedDiscovery));
        assert_eq!(negotiate(accept, false), Ok(Form::Plain));
    }
}
