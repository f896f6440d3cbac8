//! The media types that are asked for, and what follows when a server refuses them.

use super::Reflector;
use crate::runtime::api::ApiError;

impl Reflector {
    pub(super) fn accept_watch(&self) -> &'static str {
        let accept = self.destination.accept();
        if self.json_only { accept.watch_in_json } else { accept.watch }
    }

    pub(super) fn accept_list(&self) -> &'static str {
        let accept = self.destination.accept();
        if self.json_only { accept.list_in_json } else { accept.list }
    }

    /// Whether the request is to be repeated for JSON, from now on. A server that knows no protobuf takes the next of the
    /// media types, and so sends JSON; some that are no Kubernetes refuse them all.
    pub(super) fn falls_back_to_json(&mut self, error: &ApiError) -> bool {
        let accept = self.destination.accept();
        let refused = error.status().is_some_and(|status| matches!(status.code, 406 | 415));
        refused && accept.watch != accept.watch_in_json && !std::mem::replace(&mut self.json_only, true)
    }
}
