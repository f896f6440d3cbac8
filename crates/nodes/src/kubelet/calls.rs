//! The requests that a step of the pod simulator consists of.

use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams},
    core::{Request, params::Preconditions},
};
use serde_json::Value;

use super::{lifecycle::Outcome, record::Pod};
use crate::api_client::{CallError, merge_patch, post, send_only};

/// The path of the pods of a namespace.
pub(super) fn pods_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// One request.
pub(super) enum Call {
    /// To a path.
    Post(String, Value),
    /// Of the pod.
    PatchStatus(Value),
    /// A merge patch of another object, at a path.
    Patch(String, Value),
    /// Of the pod: at once, and only this one.
    Delete,
    /// Of the pod, with its own grace period.
    DeleteGracefully,
}

/// The requests of one step.
pub(super) struct Calls {
    /// In this order; the first that fails ends the step.
    pub(super) needed: Vec<Call>,
    /// Events: sent if all requests succeeded; their own failures are ignored.
    pub(super) events: Vec<Call>,
    /// The outcome if all requests succeeded.
    result: Outcome,
}

impl Calls {
    pub(super) fn new(result: Outcome) -> Self {
        Calls { needed: Vec::new(), events: Vec::new(), result }
    }

    /// The same with another outcome.
    pub(super) fn with(self, result: Outcome) -> Self {
        Calls { result, ..self }
    }

    pub(super) async fn carry_out(self, client: &Client, pod: &Pod) -> Outcome {
        for call in self.needed {
            let of_another = matches!(call, Call::Patch(..));
            if let Err(error) = call.send(client, pod).await {
                // Its change makes the pod be looked at again.
                if of_another && (error.is_not_found() || error.is_conflict()) {
                    continue;
                }
                if error.is_not_found() || error.is_conflict() {
                    return Outcome::Moot;
                }
                let (namespace, name) = (pod.namespace(), pod.name());
                tracing::warn!(namespace, pod = name, %error, "a request of the pod simulator failed");
                return if error.is_final() { Outcome::Moot } else { Outcome::Failed };
            }
        }
        for call in self.events {
            if let Err(error) = call.send(client, pod).await {
                tracing::debug!(%error, "an event was dropped");
            }
        }
        self.result
    }
}

impl Call {
    async fn send(self, client: &Client, pod: &Pod) -> Result<(), CallError> {
        let pods = Request::new(pods_path(pod.namespace()));
        let at_once = matches!(self, Call::Delete);
        match self {
            Call::Post(path, body) => send_only(client, post(path, &body)).await,
            Call::Patch(path, body) => send_only(client, merge_patch(path, &body)).await,
            Call::PatchStatus(body) => {
                let parameters = PatchParams::default();
                let patch = Patch::Strategic(body);
                send_only(client, pods.patch_subresource("status", pod.name(), &parameters, &patch)).await
            }
            Call::Delete | Call::DeleteGracefully => {
                let parameters = DeleteParams {
                    grace_period_seconds: at_once.then_some(0),
                    preconditions: Some(Preconditions {
                        uid: pod.metadata.uid.clone(),
                        resource_version: None,
                    }),
                    ..DeleteParams::default()
                };
                send_only(client, pods.delete(pod.name(), &parameters)).await
            }
        }
    }
}
