//! What the network and the API server say of themselves.

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

const JSON: http::HeaderValue = http::HeaderValue::from_static("application/json");

/// A refusal with this code, reason and message.
pub(super) fn refused(code: u16, reason: &str, message: &str, causes: &[Value]) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
                        "message": message, "details": {"causes": causes}, "code": code});
    let mut response = Response::new(Body::from(status.to_string()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert(http::header::CONTENT_TYPE, JSON);
    response
}

/// A success that breaks off, as in the sandbox: the client cannot take it for a refusal.
pub(super) fn lost() -> Response<Body> {
    let broken = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the connection was lost");
    Response::new(Body::from_stream(futures::stream::once(async { Err::<Bytes, _>(broken) })))
}
