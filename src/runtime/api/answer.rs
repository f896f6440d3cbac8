//! Reads the bodies of answers, within limits.

use bytes::{Bytes, BytesMut};
use http::header::RETRY_AFTER;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use kube::core::Status;
use kube::core::response::{StatusDetails, reason};

use super::{ApiError, LARGEST_ERROR, LONGEST_RETRY_AFTER, NO_STATUS, transport};
use crate::model::protobuf::unwrap_object;
use crate::runtime::client::Answer;
use crate::runtime::encoding::is_protobuf;
use crate::runtime::protobuf_decoder;

/// Reads a body of at most `largest` bytes. One frame is passed on as it is; several are copied once.
pub(in crate::runtime) async fn collect(
    response: Response<Answer>,
    largest: usize,
) -> Result<Bytes, ApiError> {
    let mut body = response.into_body();
    let expected = body.size_hint().lower();
    if expected > largest as u64 {
        return Err(ApiError::TooLarge(largest));
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(transport)?.into_data() else { continue };
        if first.len() + all.len() + data.len() > largest {
            return Err(ApiError::TooLarge(largest));
        }
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        if all.is_empty() {
            // The length is the server's claim; memory follows what really arrives.
            all.reserve((expected as usize).clamp(first.len() + data.len(), LARGEST_ERROR));
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&data);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Decodes an answer that is no success.
pub(super) async fn refusal(response: Response<Answer>) -> ApiError {
    let code = response.status();
    let asked = retry_after(response.headers());
    let is_protobuf = is_protobuf(response.headers());
    let body = collect(response, LARGEST_ERROR).await.unwrap_or_default();
    let read = match is_protobuf {
        true => unwrap_object(&body).and_then(protobuf_decoder::status).ok(),
        false => serde_json::from_slice::<Status>(&body).ok(),
    };
    let mut status = match read {
        Some(status) if status.is_failure() || !status.reason.is_empty() => status,
        // A proxy's page, or nothing. Its text is the proxy's, so it is kept out of our logs.
        _ => Status::failure(&format!("the server answered {code} without saying why"), reason_for(code)),
    };
    // The status line counts: a body may leave the code out.
    status.code = code.as_u16();
    if let Some(seconds) = asked {
        let details = status.details.get_or_insert_with(|| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        });
        if details.retry_after_seconds == 0 {
            details.retry_after_seconds = seconds;
        }
    }
    ApiError::Status(status.boxed())
}

fn retry_after(headers: &HeaderMap) -> Option<u32> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(seconds.min(LONGEST_RETRY_AFTER.as_secs()) as u32)
}

fn reason_for(code: StatusCode) -> &'static str {
    match code {
        StatusCode::UNAUTHORIZED => reason::UNAUTHORIZED,
        StatusCode::FORBIDDEN => reason::FORBIDDEN,
        StatusCode::NOT_FOUND => reason::NOT_FOUND,
        StatusCode::CONFLICT => reason::CONFLICT,
        StatusCode::GONE => reason::GONE,
        code if code.is_server_error() => NO_STATUS,
        _ => reason::UNKNOWN,
    }
}
