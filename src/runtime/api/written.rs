//! Writes, whose answers tell the version that a cache must reach, and little else.

use http::header::ACCEPT;
use http::{HeaderValue, Request};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Api, ApiError};
use crate::model::Uid;
use crate::model::protobuf::{Fields, MAGIC, Malformed, Value, find, unwrap_object};
use crate::runtime::request::{METADATA, METADATA_PROTOBUF};

/// The answer to a write, as far as it is read.
#[derive(Debug, Default, Deserialize)]
pub struct Written {
    metadata: Option<Meta>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
}

impl Written {
    /// Reads an answer in protobuf or in JSON.
    fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        if !body.starts_with(MAGIC) {
            return serde_json::from_slice(body);
        }
        let Some(metadata) = find(unwrap_object(body)?, 1)? else { return Ok(Written::default()) };
        let mut meta = Meta::default();
        for field in Fields(metadata.bytes()?) {
            let text = |value: Value<'_>| Ok::<_, Malformed>(Some(value.text()?.as_str().to_owned()));
            match field? {
                (5, value) => meta.uid = text(value)?,
                (6, value) => meta.resource_version = text(value)?,
                (9, _) => meta.deletion_timestamp = Some(IgnoredAny),
                _ => {}
            }
        }
        Ok(Written { metadata: Some(meta) })
    }

    /// The resourceVersion, where it is a number.
    pub fn resource_version(&self) -> Option<u64> {
        self.metadata.as_ref()?.resource_version.as_ref()?.parse().ok()
    }

    /// The identity of what was written.
    pub fn uid(&self) -> Option<Uid> {
        self.metadata.as_ref()?.uid.as_deref().map(Uid::new)
    }

    /// The version of a deletion that has begun. An object that is removed at once is returned as it was, from
    /// older servers with the version that it had: that version does not tell when it was removed.
    pub fn deletion_version(&self) -> Option<u64> {
        self.metadata.as_ref()?.deletion_timestamp.as_ref()?;
        self.resource_version()
    }
}

impl Api {
    /// Sends a write. Its answer is asked for as metadata only: for a pod of 15 KB that is less than half, and in
    /// protobuf its managed fields are skipped by their length. A server that supports neither answers with the whole object.
    ///
    /// # Errors
    /// See [`ApiError`]. Only requests that the server asks to repeat are retried: see [`Api::retrying`].
    pub async fn write(&self, request: Request<Vec<u8>>) -> Result<Written, ApiError> {
        self.write_while(request, || true).await
    }

    /// The same, for a write that may become useless during a wait for a retry: it is retried only
    /// if `still_wanted` returns true then.
    ///
    /// # Errors
    /// See [`ApiError`]; a write that is no longer needed is [`ApiError::NotSent`] or [`ApiError::CutOff`].
    pub async fn write_while(
        &self,
        mut request: Request<Vec<u8>>,
        still_wanted: impl Fn() -> bool,
    ) -> Result<Written, ApiError> {
        let known = *self.answers_in_protobuf.lock();
        let accept = if known == Some(false) { METADATA } else { METADATA_PROTOBUF };
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
        let again = known.is_none().then(|| request.clone());
        let error = match self.bytes_while(request, &still_wanted).await {
            Ok(body) => {
                if known.is_none() {
                    *self.answers_in_protobuf.lock() = Some(true);
                }
                return Written::read(&body).map_err(ApiError::Decode);
            }
            Err(error) => error,
        };
        // A server that knows no protobuf takes the next of the media types; some that are no Kubernetes refuse them all.
        // It has not carried out what it refuses.
        let code = match &error {
            ApiError::Status(status) => status.code,
            _ => return Err(error),
        };
        let Some(mut again) = again.filter(|_| matches!(code, 406 | 415)) else {
            // One behind this server, for a group of its own: its next write is answered. A 415 is about the body here.
            if code == 406 {
                *self.answers_in_protobuf.lock() = Some(false);
            }
            return Err(error);
        };
        again.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA));
        let body = self.bytes_while(again, still_wanted).await?;
        *self.answers_in_protobuf.lock() = Some(false);
        Written::read(&body).map_err(ApiError::Decode)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use bytes::Bytes;
    use http::Response;
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::metrics::Metrics;
    use crate::runtime::RateLimiter;
    use crate::runtime::request;

    /// An API whose server refuses `refused` with this code, and the media types that it was asked for.
    fn refusing(refused: &'static str, code: u16) -> (Api, Arc<Mutex<Vec<&'static str>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let accept = request.headers()[ACCEPT].to_str().unwrap();
            let is_refused = accept.contains(refused);
            log.lock().push(if accept.contains("protobuf") { "protobuf" } else { "json" });
            let (code, body) =
                if is_refused { (code, "") } else { (201, r#"{"metadata":{"resourceVersion":"9"}}"#) };
            let answer = Response::builder().status(code).body(Body::from(Bytes::from(body))).unwrap();
            async move { Ok::<_, Infallible>(answer) }
        });
        let client = kube::Client::new(service, "default");
        (Api::new(client, "test:443", RateLimiter::unlimited(), Metrics::new()), asked)
    }

    async fn write(api: &Api) -> Result<Option<u64>, ApiError> {
        let request = request::post_json("/api/v1/x", &[], b"{}".to_vec());
        api.write(request).await.map(|written| written.resource_version())
    }

    #[tokio::test]
    async fn a_server_that_refuses_protobuf_is_asked_for_json_from_then_on() {
        for code in [406, 415] {
            let (api, asked) = refusing("protobuf", code);
            for _ in 0..3 {
                assert_eq!(write(&api.clone()).await.unwrap(), Some(9));
            }
            assert_eq!(*asked.lock(), ["protobuf", "json", "json", "json"]);
        }
    }

    #[tokio::test]
    async fn a_write_that_is_refused_for_its_own_media_type_says_nothing_of_protobuf() {
        let (api, asked) = refusing("json", 415);
        assert_eq!(write(&api).await.unwrap_err().status().unwrap().code, 415);
        assert!(write(&api).await.is_err());
        assert_eq!(*asked.lock(), ["protobuf", "json", "protobuf", "json"]);
    }

    #[tokio::test]
    async fn a_server_that_takes_protobuf_is_asked_for_nothing_else() {
        let (api, asked) = refusing("nothing", 406);
        for _ in 0..2 {
            assert_eq!(write(&api).await.unwrap(), Some(9));
        }
        assert_eq!(*asked.lock(), ["protobuf", "protobuf"]);
    }

    #[tokio::test]
    async fn a_server_behind_the_server_that_refuses_protobuf_is_asked_for_json_the_next_time() {
        for (code, then) in [(406, "json"), (415, "protobuf")] {
            let (api, asked) = refusing("protobuf", code);
            *api.answers_in_protobuf.lock() = Some(true);
            assert_eq!(write(&api).await.unwrap_err().status().unwrap().code, code);
            let _ = write(&api).await;
            assert_eq!(*asked.lock(), ["protobuf", then]);
        }
    }

    #[tokio::test]
    async fn any_other_refusal_is_not_repeated() {
        let (api, asked) = refusing("protobuf", 403);
        assert!(write(&api).await.is_err());
        assert_eq!(*asked.lock(), ["protobuf"]);
    }

    /// A message of these fields, each of less than 128 bytes.
    fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
        let field = |(number, bytes): &(u8, &[u8])| [&[number << 3 | 2, bytes.len() as u8], *bytes].concat();
        fields.iter().flat_map(field).collect()
    }

    /// An answer in protobuf whose object has this metadata.
    fn protobuf(metadata: &[(u8, &[u8])]) -> Vec<u8> {
        let kind = message(&[(1, b"meta.k8s.io/v1"), (2, b"PartialObjectMetadata")]);
        let object = message(&[(1, &message(metadata))]);
        [MAGIC, &message(&[(1, &kind), (2, &object)])].concat()
    }

    fn read(body: &[u8]) -> (Option<String>, Option<u64>, Option<u64>) {
        let written = Written::read(body).unwrap();
        (written.uid().map(|uid| uid.to_string()), written.resource_version(), written.deletion_version())
    }

    #[test]
    fn an_answer_tells_the_same_in_protobuf_and_in_json() {
        let living = br#"{"metadata":{"name":"a","uid":"u1","resourceVersion":"70","managedFields":[{}]}}"#;
        let expected = (Some("u1".to_owned()), Some(70), None);
        assert_eq!(read(living), expected);
        assert_eq!(read(&protobuf(&[(1, b"a"), (5, b"u1"), (6, b"70"), (13, b"x")])), expected);
        let leaving =
            br#"{"metadata":{"uid":"u1","resourceVersion":"71","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let expected = (Some("u1".to_owned()), Some(71), Some(71));
        assert_eq!(read(leaving), expected);
        assert_eq!(read(&protobuf(&[(5, b"u1"), (6, b"71"), (9, &[8, 1])])), expected);
    }

    #[test]
    fn the_status_that_a_deletion_is_answered_with_has_no_version() {
        let nothing = (None, None, None);
        assert_eq!(read(br#"{"kind":"Status","metadata":{},"status":"Success"}"#), nothing);
        assert_eq!(read(br#"{"kind":"Status","status":"Success"}"#), nothing);
        let status = message(&[(1, &message(&[(2, b"7")])), (2, b"Success")]);
        assert_eq!(read(&[MAGIC, &message(&[(2, &status)])].concat()), nothing);
        assert_eq!(read(MAGIC), nothing);
    }

    #[test]
    fn what_is_neither_is_an_error() {
        for body in [&b"<html>"[..], b"", b"k8s", b"k8s\0\xff", b"{\"metadata\":7}"] {
            assert!(Written::read(body).is_err(), "{body:?}");
        }
        let cut = protobuf(&[(5, b"u1"), (6, b"71")]);
        assert!(Written::read(&cut[..cut.len() - 1]).is_err());
    }
}
