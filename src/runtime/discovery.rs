//! Which resources the API server serves, asked again and again at little cost.
//!
//! The one guarantee: a group that cannot be read hides no other and is reported as failed. When nothing can be read, an
//! error says so, and what was known before stays.
//!
//! Aggregated discovery (KEP-3352) answers with all groups in two documents, and with 304 if they are as before. A
//! server without it is asked group by group.

mod documents;

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::header::{ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Response, StatusCode};

use super::api::{Api, ApiError, LARGEST_BODY, collect};
use super::client::Answer;
use super::request;
pub use crate::model::discovered::{Discovered, DiscoveredResource, FailedGroup, Verb, Verbs};
use documents::{Document, History, ServedVersion};

/// All groups in one document, in the form of 1.30 or of 1.27; else the names of groups.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// How many groups are asked at a time, of a server without aggregated discovery.
const AT_A_TIME: usize = 8;

/// Why nothing was learned.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The documents themselves could not be read.
    #[error("discovery failed: {0}")]
    Api(#[from] ApiError),
    /// The server names no resource at all, which no working server does.
    #[error("discovery failed: the API server serves no resource{}", describe(failed))]
    Empty {
        /// The groups that failed, one of which may be the reason.
        failed: Vec<FailedGroup>,
    },
}

fn describe(failed: &[FailedGroup]) -> String {
    match failed.first() {
        None => String::new(),
        Some(first) => format!("; {} failed: {}", first.group_version(), first.message),
    }
}

/// One of the two documents, `/api` or `/apis`, as it was last read.
#[derive(Debug, Default)]
struct Half {
    etag: Option<HeaderValue>,
    versions: Vec<ServedVersion>,
}

/// Asks one API server, and remembers what it said.
#[derive(Debug)]
pub struct Discovery {
    api: Api,
    core: Half,
    groups: Half,
    history: History,
    current: Option<Arc<Discovered>>,
}

impl Discovery {
    /// Nothing is asked before the first [`Discovery::refresh`].
    pub fn new(api: Api) -> Self {
        let (core, groups) = (Half::default(), Half::default());
        Discovery { api, core, groups, history: History::default(), current: None }
    }

    /// The result of the last refresh that succeeded.
    pub fn current(&self) -> Option<&Arc<Discovered>> {
        self.current.as_ref()
    }

    /// Asks the server. While nothing changes, each call returns the same `Arc`.
    ///
    /// # Errors
    /// If `/api` or `/apis` cannot be read, or if they name no resource. [`Discovery::current`] stays as it was.
    pub async fn refresh(&mut self) -> Result<Arc<Discovered>, DiscoveryError> {
        let core = read(&self.api, "/api", self.core.etag.as_ref());
        let groups = read(&self.api, "/apis", self.groups.etag.as_ref());
        let (core, groups) = futures::future::try_join(core, groups).await?;
        if let (None, None, Some(current)) = (&core, &groups, &self.current) {
            return Ok(current.clone());
        }
        let of = |new: &Option<Half>, old: &Half| new.as_ref().unwrap_or(old).versions.clone();
        let versions = [of(&core, &self.core), of(&groups, &self.groups)].concat();
        let (found, history) = documents::merge(&versions, &self.history);
        if found.resources.is_empty() {
            return Err(DiscoveryError::Empty { failed: found.failed });
        }
        self.core = core.unwrap_or_else(|| std::mem::take(&mut self.core));
        self.groups = groups.unwrap_or_else(|| std::mem::take(&mut self.groups));
        self.history = history;
        if let Some(current) = self.current.as_ref().filter(|current| ***current == found) {
            return Ok(current.clone());
        }
        Ok(self.current.insert(Arc::new(found)).clone())
    }
}

/// Reads one document; `None` if it is as it was when it had this ETag.
async fn read(api: &Api, path: &str, etag: Option<&HeaderValue>) -> Result<Option<Half>, ApiError> {
    let mut request = request::get_as(ACCEPT, path, &[]);
    if let Some(etag) = etag {
        request.headers_mut().insert(IF_NONE_MATCH, etag.clone());
    }
    let whole = async |response: Response<Answer>| {
        let etag = response.headers().get(ETAG).cloned();
        Ok::<(Option<HeaderValue>, Bytes), ApiError>((etag, collect(response, LARGEST_BODY).await?))
    };
    let (new_etag, body) = match api.measured(request, false, whole).await {
        Err(ApiError::Status(status)) if etag.is_some() && status.code == StatusCode::NOT_MODIFIED => {
            return Ok(None);
        }
        answer => answer?,
    };
    api.received("GET", body.len());
    match documents::read(&body).map_err(ApiError::Decode)? {
        Document::Aggregated(versions) => Ok(Some(Half { etag: new_etag, versions })),
        // Its ETag would say nothing about the resources of the groups.
        Document::Names(names) => {
            let versions = futures::stream::iter(names)
                .map(async |(group, version)| Ok::<_, ApiError>(read_version(api, group, version).await))
                .buffered(AT_A_TIME)
                .try_collect()
                .await?;
            Ok(Some(Half { etag: None, versions }))
        }
    }
}

async fn read_version(api: &Api, group: String, version: String) -> ServedVersion {
    let path = match group.is_empty() {
        true => format!("/api/{version}"),
        false => format!("/apis/{group}/{version}"),
    };
    let resources = match api.call_bytes(request::get(&path, &[])).await {
        Ok(body) => documents::read_resources(&group, &version, &body).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    ServedVersion { group, version, resources, stale: Vec::new() }
}

#[cfg(test)]
mod tests;
