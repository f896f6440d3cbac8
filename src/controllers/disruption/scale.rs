//! Live reads of the scales of owners that are of no kind of ours.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::engine::SyncError;
use crate::model::discovered::is_path_segment;
use crate::model::{ControllerRef, Scale, ScaledResource};
use crate::plan::disruption::Found;
use crate::runtime::api::{Api, ApiError};
use crate::runtime::request;

/// The most kinds whose resources are known at a time.
const MOST_KINDS: usize = 256;

/// The resources of kinds, by `apiVersion` and kind. Discovery is asked once for each, and again after a scale was not found.
#[derive(Debug, Default)]
pub(super) struct Scales(Mutex<BTreeMap<(String, String), ScaledResource>>);

impl Scales {
    /// Reads the scale of an owner.
    ///
    /// # Errors
    /// Without a conclusive answer of the API server. A refusal is one.
    pub(super) async fn read(
        &self,
        api: &Api,
        namespace: &str,
        reference: &ControllerRef,
    ) -> Result<Found, SyncError> {
        let ControllerRef { api_version, kind, name, uid } = reference;
        let segments: Vec<&str> = api_version.split('/').collect();
        let root = match segments.as_slice() {
            [version] if is_path_segment(version) => format!("/api/{version}"),
            [group, version] if is_path_segment(group) && is_path_segment(version) => {
                format!("/apis/{group}/{version}")
            }
            _ => return Ok(Found::Failed(format!("unexpected GroupVersion string: {api_version}"))),
        };
        let known = (api_version.to_string(), kind.to_string());
        let cached = self.0.lock().get(&known).cloned();
        let resource = match cached {
            Some(resource) => resource,
            None => match find(api, &root, kind).await {
                Ok(Some(resource)) => resource,
                Ok(None) => {
                    let why = format!("no matches for kind {kind:?} in version {:?}", &**api_version);
                    return Ok(Found::Failed(why));
                }
                Err(error) => return failed(&root, error),
            },
        };
        if !resource.has_scale {
            let group = reference.group();
            let dot = if group.is_empty() { "" } else { "." };
            let why = format!("{}{dot}{group} does not implement the scale subresource", resource.plural);
            return Ok(Found::Failed(why));
        }
        {
            let mut all = self.0.lock();
            if all.len() >= MOST_KINDS {
                all.clear();
            }
            all.insert(known.clone(), resource.clone());
        }
        if !is_path_segment(name) {
            return Ok(Found::Absent);
        }
        let path = format!("{root}/namespaces/{namespace}/{}/{name}/scale", resource.plural);
        match api.call_bytes(request::get(&path, &[])).await {
            Ok(body) => Ok(match Scale::decode(&body) {
                Ok(scale) if scale.uid == *uid => Found::Scaled(scale),
                Ok(_) => Found::Absent,
                Err(error) => Found::Failed(format!("reading {path}: {error}")),
            }),
            Err(error) if error.is_not_found() => {
                // The kind may have lost its subresource.
                self.0.lock().remove(&known);
                Ok(Found::Absent)
            }
            Err(error) => failed(&path, error),
        }
    }
}

/// The resource of a kind; `None` if it is not served in this version of its group.
async fn find(api: &Api, root: &str, kind: &str) -> Result<Option<ScaledResource>, ApiError> {
    match api.call_bytes(request::get(root, &[])).await {
        Ok(body) => ScaledResource::find(&body, kind).map_err(ApiError::Decode),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A refusal, such as of a missing right or of a webhook that cannot convert the owner, is an answer. A request to wait and a lost
/// reply are not.
fn failed(path: &str, error: ApiError) -> Result<Found, SyncError> {
    if error.is_refusal() && error.asks_to_wait().is_none() {
        return Ok(Found::Failed(error.to_string()));
    }
    Err(SyncError::api(format!("reading {path}"), error))
}
