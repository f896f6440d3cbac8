//! Reads all objects of a kind in a namespace past its cache, for a decision that must not rest on a cache that lags.

use http_body_util::BodyExt;

use super::api::{Api, ApiError, LARGEST_BODY, LIST_TIMEOUT};
use super::list_decoder::{AnyListDecoder, Part};
use super::request;
use crate::model::{Interner, Record};

/// Whether one of the objects in a namespace is as sought: the list is read until then. It needs the memory of one
/// object, however many there are.
///
/// # Errors
/// The API server's error. An object that cannot be decoded is an error as well: it may be the one that is sought.
pub async fn any<T: Record>(
    api: &Api,
    namespace: &str,
    is_sought: impl Fn(&T) -> bool + Send,
) -> Result<bool, ApiError> {
    let searching = search(api.with_timeout(LIST_TIMEOUT), namespace, is_sought);
    tokio::time::timeout(LIST_TIMEOUT, searching).await.unwrap_or(Err(ApiError::Timeout(LIST_TIMEOUT)))
}

async fn search<T: Record>(
    api: Api,
    namespace: &str,
    is_sought: impl Fn(&T) -> bool + Send,
) -> Result<bool, ApiError> {
    let accept = if T::HAS_PROTOBUF { request::PROTOBUF } else { request::JSON };
    // Without a version the answer is not older than the request.
    let response = api.stream(request::get_as(accept, &T::RESOURCE.path(Some(namespace)), &[])).await?;
    let mut decoder = AnyListDecoder::of(response.headers());
    let (mut body, mut received, mut interner) = (response.into_body(), 0, Interner::default());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(super::api::transport)?.into_data() else { continue };
        received += data.len();
        if received > LARGEST_BODY {
            return Err(ApiError::TooLarge(LARGEST_BODY));
        }
        decoder.push(data);
        while let Some(part) = decoder.next().map_err(ApiError::from)? {
            let Part::Item(item) = part else { continue };
            let object: T = decoder.encoded(&item).decode(&mut interner).map_err(ApiError::Decode)?;
            if is_sought(&object) {
                api.received("GET", received);
                return Ok(true);
            }
        }
    }
    api.received("GET", received);
    decoder.finish().map_err(ApiError::from)?;
    Ok(false)
}
