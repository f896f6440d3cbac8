//! A user of the cluster, who sends what nobody checks before.

use http::Method;
use serde_json::Value;

/// The content type of a merge patch.
pub const MERGE: &str = "application/merge-patch+json";
/// The content type of a strategic merge patch.
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// The content type of an object.
pub const JSON: &str = "application/json";

/// See the module documentation.
#[derive(Clone)]
pub struct User(pub kube::Client);

impl User {
    /// Sends a request. A refused request (the object does not exist, or exists already) has no effect, and no answer
    /// here.
    pub async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Option<Value> {
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        self.0.request(request.body(body.to_string().into_bytes()).ok()?).await.ok()
    }
}
