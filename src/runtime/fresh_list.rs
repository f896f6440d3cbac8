//! Lists and reads past the cache: the current objects of one owner.

use std::sync::Arc;

use http_body_util::BodyExt;

use super::api::{Api, ApiError, LARGEST_BODY, LIST_TIMEOUT};
use super::delta_handler::Sink;
use super::expectations::{Cache, Shown};
use super::lazy_read_barrier::Listed;
use super::list_decoder::{AnyListDecoder, Part};
use super::request;
use super::watch_decoder::Identity;
use crate::model::record::Encoded;
use crate::model::{Interner, ObjectKey, Record, Resource, Selector};

/// Puts an object into the store before the first list of its kind ends.
type PutEarly = dyn Fn(Encoded<'_>, &mut Interner) + Send + Sync;

/// Reads the objects of one kind past its cache. Clones share the cache.
#[derive(Clone)]
pub struct FreshList {
    resource: Resource,
    /// The part of the kind that the informer watches.
    scope: Option<Arc<str>>,
    has_protobuf: bool,
    cache: Cache,
    put_early: Arc<PutEarly>,
}

impl std::fmt::Debug for FreshList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FreshList").field("resource", &self.resource.plural).finish_non_exhaustive()
    }
}

impl FreshList {
    pub(crate) fn new<T: Record>(resource: Resource, scope: Option<&str>, sink: &Arc<Sink<T>>) -> Self {
        // The handlers of the sink hold the controllers, which hold this: neither would ever be freed.
        let weak = Arc::downgrade(sink);
        let put_early = move |object: Encoded<'_>, interner: &mut Interner| {
            weak.upgrade().iter().for_each(|sink| sink.put_early(object, interner));
        };
        FreshList {
            resource,
            scope: scope.filter(|scope| !scope.is_empty()).map(Arc::from),
            has_protobuf: T::HAS_PROTOBUF,
            cache: sink.store.clone(),
            put_early: Arc::new(put_early),
        }
    }

    /// Lists the objects of a namespace that the selector matches: their metadata, or, while the first list of the
    /// cache is under way, all of them, which the cache then shows early.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn list(&self, api: &Api, namespace: &str, selector: &Selector) -> Result<Listed, ApiError> {
        let is_early = self.cache.lists(self.resource).completed == 0;
        let accept = match is_early {
            false => request::METADATA_LIST,
            true if self.has_protobuf => request::PROTOBUF,
            true => request::JSON,
        };
        let selector = match &self.scope {
            Some(scope) => format!("{selector},{scope}"),
            None => selector.to_string(),
        };
        // Without a version the answer is not older than the request.
        let path = self.resource.path(Some(namespace));
        let request = request::get_as(accept, &path, &[("labelSelector", &selector)]);
        let reading = self.read(api.with_timeout(LIST_TIMEOUT), request, is_early);
        tokio::time::timeout(LIST_TIMEOUT, reading).await.unwrap_or(Err(ApiError::Timeout(LIST_TIMEOUT)))
    }

    async fn read(
        &self,
        api: Api,
        request: http::Request<Vec<u8>>,
        is_early: bool,
    ) -> Result<Listed, ApiError> {
        let response = api.stream(request).await?;
        let mut decoder = AnyListDecoder::of(response.headers());
        let (mut body, mut received) = (response.into_body(), 0);
        let (mut objects, mut interner) = (Vec::new(), Interner::default());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(super::api::transport)?.into_data() else { continue };
            received += data.len();
            if received > LARGEST_BODY {
                return Err(ApiError::TooLarge(LARGEST_BODY));
            }
            decoder.push(data);
            while let Some(part) = decoder.next().map_err(ApiError::from)? {
                let Part::Item(item) = part else { continue };
                let object = decoder.encoded(&item);
                objects.extend(Identity::read(object).map(shown));
                if is_early {
                    (self.put_early)(object, &mut interner);
                }
            }
        }
        api.received("GET", received);
        let version = decoder.finish().map_err(ApiError::from)?.version;
        let version = version.number().map_err(ApiError::Decode)?;
        Ok(Listed { version, objects })
    }

    /// Reads one object; `None` if it does not exist.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn get(&self, api: &Api, key: &ObjectKey) -> Result<Option<Shown>, ApiError> {
        let request = request::get_as(request::METADATA, &self.resource.path_of(key), &[]);
        match api.call_bytes(request).await {
            Ok(body) => {
                let text = std::str::from_utf8(&body).unwrap_or_default();
                Ok(Identity::read(Encoded::Json(text)).map(shown))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn shown(Identity { key, uid, version }: Identity) -> Shown {
    Shown { key, uid, version }
}
