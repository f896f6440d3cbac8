//! Replies that the network and the API server create themselves.

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use crate::engine::request_fault::WAITS;

const JSON: http::HeaderValue = http::HeaderValue::from_static("application/json");

/// A refusal with this code, reason and message.
pub(crate) fn refused(code: u16, reason: &str, message: &str, causes: &[Value]) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
                        "message": message, "details": {"causes": causes}, "code": code});
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert(http::header::CONTENT_TYPE, JSON);
    response
}

/// A reply with `Retry-After`.
pub(crate) fn retry_after(code: u16, seconds: u32) -> Response<Body> {
    let (reason, message) = match code {
        429 => ("TooManyRequests", WAITS[0]),
        _ => ("ServiceUnavailable", WAITS[1]),
    };
    let mut response = refused(code, reason, message, &[]);
    response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    response
}

/// Marks a reply that never arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost;

/// A success that breaks off, as in the sandbox: the client cannot mistake it for a refusal.
pub(crate) fn lost() -> Response<Body> {
    let broken = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the connection was lost");
    let body = Body::from_stream(futures::stream::once(async { Err::<Bytes, _>(broken) }));
    let mut response = Response::new(body);
    response.extensions_mut().insert(Lost);
    response
}
