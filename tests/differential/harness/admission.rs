//! Refusals: an admission policy that denies, and a webhook that cannot be called.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::stage::Stage;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// The requests that are refused in a namespace.
#[derive(Clone, Copy)]
pub struct Refused {
    pub group: &'static str,
    pub resource: &'static str,
    pub operation: &'static str,
}

pub const CREATE_PODS: Refused = Refused { group: "", resource: "pods", operation: "CREATE" };
pub const DELETE_PODS: Refused = Refused { group: "", resource: "pods", operation: "DELETE" };
pub const UPDATE_PODS: Refused = Refused { group: "", resource: "pods", operation: "UPDATE" };
pub const CREATE_REPLICA_SETS: Refused =
    Refused { group: "apps", resource: "replicasets", operation: "CREATE" };
pub const UPDATE_REPLICA_SETS: Refused =
    Refused { group: "apps", resource: "replicasets", operation: "UPDATE" };
pub const DELETE_REPLICA_SETS: Refused =
    Refused { group: "apps", resource: "replicasets", operation: "DELETE" };

impl Stage {
    fn here(&self) -> Value {
        json!({"matchLabels": {"kubernetes.io/metadata.name": self.namespace}})
    }

    /// A ConfigMap is refused beside it, so that one sees when the refusal is in force.
    fn rules(refused: Refused) -> Value {
        let rule = |group: &str, resource: &str, operation: &str| json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]});
        json!([rule(refused.group, refused.resource, refused.operation), rule("", "configmaps", "CREATE")])
    }

    /// An admission policy denies this from now on.
    pub async fn deny(&self, refused: Refused) {
        self.act(format!("deny {} {}", refused.operation, refused.resource));
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": self.namespace},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": Self::rules(refused)},
                "validations": [{"expression": "false", "message": "denied by the policy of this namespace"}],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": self.namespace},
            "spec": {
                "policyName": self.namespace, "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": self.here()},
            },
        });
        self.call(Method::POST, &format!("{GROUP}/validatingadmissionpolicies"), &policy).await;
        self.call(Method::POST, &format!("{GROUP}/validatingadmissionpolicybindings"), &binding).await;
        self.until_refused(true).await;
    }

    /// Allows again the requests that [`Stage::deny`] has denied.
    pub async fn allow(&self) {
        self.act("allow it again");
        let path = format!("{GROUP}/validatingadmissionpolicybindings/{}", self.namespace);
        self.call(Method::DELETE, &path, &Value::Null).await;
        self.until_refused(false).await;
    }

    /// From now on the API server calls a webhook without a backend for this.
    pub async fn break_webhook(&self, refused: Refused) {
        self.act(format!("a webhook for {} {} fails", refused.operation, refused.resource));
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self.namespace},
            "webhooks": [{
                "name": "unreachable.example.com", "failurePolicy": "Fail", "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
                "namespaceSelector": self.here(), "rules": Self::rules(refused),
                // No server listens there.
                "clientConfig": {"url": "https://127.0.0.1:1/"},
            }],
        });
        self.call(Method::POST, &format!("{GROUP}/validatingwebhookconfigurations"), &configuration).await;
        self.until_refused(true).await;
    }

    /// The API server no longer calls the webhook.
    pub async fn remove_webhook(&self) {
        self.act("the webhook is gone");
        let path = format!("{GROUP}/validatingwebhookconfigurations/{}", self.namespace);
        self.call(Method::DELETE, &path, &Value::Null).await;
        self.until_refused(false).await;
    }

    async fn until_refused(&self, refused: bool) {
        let path = format!("{}?dryRun=All", self.path("ConfigMap"));
        let probe = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}});
        let end = Instant::now() + Duration::from_secs(30);
        while self.try_call(Method::POST, &path, &probe).await.is_err() != refused {
            assert!(Instant::now() < end, "whether it is refused does not change within 30 s");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
