//! Requests to the API server, as plain HTTP: paths, queries and JSON bodies.
//!
//! Nothing here needs a type of the API, so no field is lost to a type that is older than the cluster.

use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, Method, Request};
use serde::Serialize;

/// The media type of JSON.
pub const JSON: &str = "application/json";

/// Protobuf where the server offers it for a kind, JSON where it does not.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf,application/json";

/// The metadata of an object only, where the server supports that.
pub const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The same for each object of a list.
pub const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The metadata of an object in protobuf where the server offers it, in JSON elsewhere: of an object with managed fields
/// that is hardly smaller, but they are skipped by their length and not parsed.
pub const METADATA_PROTOBUF: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
    application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The same for each object of a list.
pub const METADATA_LIST_PROTOBUF: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
    application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// How a patch is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 7396: objects are merged, everything else is replaced.
    Merge,
    /// Kubernetes' own: lists with a merge key are merged item by item.
    Strategic,
    /// RFC 6902: a list of operations.
    Json,
    /// Server-side apply: the object as this field manager wants it. The body is JSON, which is YAML.
    Apply,
}

impl PatchType {
    /// Its `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            PatchType::Merge => "application/merge-patch+json",
            PatchType::Strategic => "application/strategic-merge-patch+json",
            PatchType::Json => "application/json-patch+json",
            PatchType::Apply => "application/apply-patch+yaml",
        }
    }
}

/// Reads an object or a collection.
pub fn get(path: &str, query: &[(&str, &str)]) -> Request<Vec<u8>> {
    build(Method::GET, path, query, None, Vec::new())
}

/// The same for an answer of another media type than JSON.
pub fn get_as(accept: &'static str, path: &str, query: &[(&str, &str)]) -> Request<Vec<u8>> {
    let mut request = get(path, query);
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
    request
}

/// The same request, answered with the metadata of the object only: for a pod of 15 KB that is a tenth.
/// A server that does not support that answers with the whole object.
#[must_use]
pub fn metadata_only(mut request: Request<Vec<u8>>) -> Request<Vec<u8>> {
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA));
    request
}

/// Creates an object in the collection at `path`.
///
/// # Errors
/// When the body cannot be written as JSON.
pub fn post(
    path: &str,
    query: &[(&str, &str)],
    body: &impl Serialize,
) -> Result<Request<Vec<u8>>, serde_json::Error> {
    Ok(build(Method::POST, path, query, Some(JSON), serde_json::to_vec(body)?))
}

/// Replaces the object at `path`.
///
/// # Errors
/// When the body cannot be written as JSON.
pub fn put(
    path: &str,
    query: &[(&str, &str)],
    body: &impl Serialize,
) -> Result<Request<Vec<u8>>, serde_json::Error> {
    Ok(build(Method::PUT, path, query, Some(JSON), serde_json::to_vec(body)?))
}

/// Changes a part of the object at `path`.
///
/// # Errors
/// When the body cannot be written as JSON.
pub fn patch(
    path: &str,
    query: &[(&str, &str)],
    kind: PatchType,
    body: &impl Serialize,
) -> Result<Request<Vec<u8>>, serde_json::Error> {
    Ok(build(Method::PATCH, path, query, Some(kind.content_type()), serde_json::to_vec(body)?))
}

/// Deletes the object at `path`. `options` is a `DeleteOptions`, with preconditions for example.
///
/// # Errors
/// When the options cannot be written as JSON.
pub fn delete(
    path: &str,
    query: &[(&str, &str)],
    options: &impl Serialize,
) -> Result<Request<Vec<u8>>, serde_json::Error> {
    Ok(build(Method::DELETE, path, query, Some(JSON), serde_json::to_vec(options)?))
}

fn build(
    method: Method,
    path: &str,
    query: &[(&str, &str)],
    content_type: Option<&str>,
    body: Vec<u8>,
) -> Request<Vec<u8>> {
    let mut uri = String::with_capacity(path.len() + 64);
    escape(path, &mut uri, true);
    for (at, (name, value)) in query.iter().enumerate() {
        uri.push(if at == 0 { '?' } else { '&' });
        escape(name, &mut uri, false);
        uri.push('=');
        escape(value, &mut uri, false);
    }
    let mut request = Request::builder().method(method).uri(uri).header(ACCEPT, JSON);
    // Since 1.37 the API server gzips watches, one member per event, which few decoders read to the
    // end. On a list compression would cost the server more than it saves on a cluster's network.
    request = request.header(ACCEPT_ENCODING, "identity");
    if let Some(content_type) = content_type {
        request = request.header(CONTENT_TYPE, content_type);
    }
    request.body(body).expect("an escaped path, an escaped query and literal headers are always valid")
}

/// Percent-encodes what is not unreserved (RFC 3986), so that a name or selector of any content stays
/// within its place in the URL.
fn escape(text: &str, into: &mut String, is_path: bool) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    if is_path && !text.starts_with('/') {
        into.push('/');
    }
    for &byte in text.as_bytes() {
        let plain = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~')
            || is_path && matches!(byte, b'/' | b':');
        if plain {
            into.push(char::from(byte));
        } else {
            into.push('%');
            into.push(char::from(HEX[usize::from(byte >> 4)]));
            into.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_stays_within_its_parameter() {
        let request = get("/api/v1/pods", &[("labelSelector", "a in (b,c),d=e&f=ü"), ("limit", "500")]);
        assert_eq!(
            request.uri().to_string(),
            "/api/v1/pods?labelSelector=a%20in%20%28b%2Cc%29%2Cd%3De%26f%3D%C3%BC&limit=500"
        );
        assert_eq!(request.headers()[ACCEPT_ENCODING], "identity");
    }

    #[test]
    fn no_name_can_break_out_of_the_path_or_the_request() {
        for name in ["a?b=c", "a#b", "a b", "a\r\nX: y", "\u{0}", "ä", ""] {
            let request = get(&format!("/api/v1/namespaces/shop/pods/{name}"), &[]);
            assert!(request.uri().path().starts_with("/api/v1/namespaces/shop/pods/"));
            assert_eq!(request.uri().query(), None);
        }
        assert_eq!(get("", &[]).uri().path(), "/");
    }

    #[test]
    fn an_answer_may_be_requested_as_metadata_only() {
        let request = metadata_only(post("/api/v1/x", &[], &json!({})).unwrap());
        let accepted: Vec<&str> = request.headers()[ACCEPT].to_str().unwrap().split(',').collect();
        assert_eq!(
            accepted,
            ["application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json"]
        );
        assert_eq!(request.headers().get_all(ACCEPT).iter().count(), 1);
    }

    #[test]
    fn a_patch_says_how_it_is_meant() {
        let request = patch("/api/v1/x", &[], PatchType::Merge, &json!({"a": 1})).unwrap();
        assert_eq!(request.headers()[CONTENT_TYPE], "application/merge-patch+json");
        assert_eq!(request.body(), br#"{"a":1}"#);
    }
}
