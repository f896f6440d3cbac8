//! The admission policies for the annotations of rollout policies on a real kube-apiserver: they accept and refuse what the
//! daemon does, and only who may approve sets a command.

use std::time::Duration;

use http::{Method, Request};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass::model::StringMap;
use windlass::plan::policy::{Kind, Policy};
use windlass_testkit::apiserver::{ApiServer, User, on_a_real_server};
use windlass_testkit::manifests;
use windlass_testkit::rights::{self, MERGE};

const CI: User = User { token: "token-of-ci", name: "ci", groups: "" };
const MANAGER: User = User { token: "token-of-the-manager", name: "manager", groups: "" };
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

fn workload(kind: &str, annotations: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind,
           "metadata": {"name": "web", "namespace": "default", "annotations": annotations},
           "spec": {"selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}},
                                 "spec": {"containers": [{"name": "c", "image": "app:v1"}]}}}})
}

fn role(user: &str, resources: &[&str], verbs: &[&str]) -> [Value; 2] {
    let (api, name) = ("rbac.authorization.k8s.io", format!("{user}-{}", verbs[0]));
    let version = format!("{api}/v1");
    [
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name},
               "rules": [{"apiGroups": ["apps"], "resources": resources, "verbs": verbs}]}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
               "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
               "subjects": [{"apiGroup": api, "kind": "User", "name": user}]}),
    ]
}

/// Does this as a user: the message of the refusal, or nothing.
async fn refusal(server: &ApiServer, user: User, method: Method, path: &str, body: &Value) -> String {
    let media = if method == Method::PATCH { MERGE } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let request = request.body(body.to_string().into_bytes()).unwrap();
    match server.client_of(user.token).await.request::<Value>(request).await {
        Ok(_) => String::new(),
        Err(kube::Error::Api(status)) => status.message.clone(),
        Err(error) => panic!("{path}: {error}"),
    }
}

async fn annotate(server: &ApiServer, user: User, plural: &str, key: &str, value: &Value) -> String {
    let body = json!({"metadata": {"annotations": {format!("windlass.dev/{key}"): value}}});
    refusal(server, user, Method::PATCH, &format!("{plural}/web"), &body).await
}

/// Values that are read, and values that are not.
const VALUES: [(&str, &[&str], &[&str]); 8] = [
    (
        "steps",
        &[
            "1",
            "1, 25% for 10m, 50%",
            "1 for 1h30m,100%",
            " 10 % ",
            "1,\n\t25\t%\tfor\n10m\n",
            "\u{b}1 for 1h\t30m\r\n",
        ],
        &["", "1,", "0", "101%", "25%%", "1 for", "1 for 10", "one", "-1", "1 for 1h\u{b}30m"],
    ),
    ("fail-after", &["2m", "90s", "1h30m", "\t1h 30m\n"], &["2", "", "-1s", "0s", "soon"]),
    ("on-failure", &["halt", "rollback"], &["stop", "true", ""]),
    ("when-unschedulable", &["terminate-first"], &["true", "terminate"]),
    ("pod-replacement", &["TerminationStarted", "TerminationComplete"], &["terminationComplete"]),
    ("batch-delay", &["30s"], &["30"]),
    ("keep-failed-pods", &["3", "3 for 1h", "\n3\tfor 1h\n"], &["0", "3 for", "for 1h"]),
    ("bypass-until", &["2026-01-01T01:00:00Z"], &["tomorrow", "30m"]),
];

pub(crate) fn values_are_judged_as_the_daemon_reads_them_and_approvals_are_a_right_of_their_own() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start_with(folder, &[CI, MANAGER]).await;
        let client = server.client().await;
        let default = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
        let request = Request::post("/api/v1/namespaces").header("content-type", "application/json");
        let _ = client.request::<Value>(request.body(default.to_string().into_bytes()).unwrap()).await;
        let both = ["deployments", "daemonsets"];
        let write = ["create", "patch", "update"];
        let approve = ["deployments/approve"];
        rights::create(&client, &role("ci", &both, &write)).await;
        rights::create(&client, &role("manager", &both, &write)).await;
        rights::create(&client, &role("manager", &approve, &["update"])).await;
        rights::create(&client, &manifests::file("deploy/policies/rollout-policy.yaml")).await;
        rights::create(&client, &[workload("Deployment", json!({})), workload("DaemonSet", json!({}))]).await;
        let end = Instant::now() + Duration::from_secs(30);
        while annotate(&server, CI, DEPLOYMENTS, "rollout", &json!("approve 1")).await.is_empty()
            || annotate(&server, CI, DEPLOYMENTS, "step", &json!("1")).await.is_empty()
            || !annotate(&server, MANAGER, DEPLOYMENTS, "rollout", &json!("approve 1")).await.is_empty()
        {
            assert!(Instant::now() < end, "the policies have no effect");
            tokio::time::sleep(Duration::from_millis(200)).await;
            // A command that CI could set before the policy was in force is no change when it sets it again.
            annotate(&server, MANAGER, DEPLOYMENTS, "rollout", &Value::Null).await;
        }

        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        for (key, good, bad) in VALUES {
            for (value, is_good) in
                good.iter().map(|value| (*value, true)).chain(bad.iter().map(|value| (*value, false)))
            {
                let name = format!("windlass.dev/{key}");
                let annotations: StringMap = [(name.as_str(), value)].into_iter().collect();
                let read = Policy::of(Kind::Deployment, &annotations, true, now);
                assert_eq!(read.defects.is_empty() && read.remarks.is_empty(), is_good, "{name}: {value:?}");
                let said = annotate(&server, MANAGER, DEPLOYMENTS, key, &json!(value)).await;
                assert_eq!(said.is_empty(), is_good, "{name}: {value:?}: {said}");
                assert!(is_good || (said.contains(&name) && said.contains("accepted is")), "{said}");
            }
        }
        let unknown = annotate(&server, CI, DEPLOYMENTS, "not-ready-nodes", &json!("ignore")).await;
        assert!(unknown.contains("is unknown; known are windlass.dev/steps"), "{unknown}");
        assert_eq!(annotate(&server, CI, DAEMON_SETS, "not-ready-nodes", &json!("ignore")).await, "");
        assert_eq!(annotate(&server, CI, DAEMON_SETS, "progress-deadline", &json!("30m")).await, "");
        assert!(annotate(&server, CI, DAEMON_SETS, "on-failure", &json!("halt")).await.contains("unknown"));

        for (key, value) in [
            ("rollout", "approve 7/2"),
            ("rollout", "\tapprove\n7 / 2\n"),
            ("bypass-until", "2026-01-01T02:00:00Z"),
        ] {
            let said = annotate(&server, CI, DEPLOYMENTS, key, &json!(value)).await;
            assert!(said.contains("the right to update deployments/approve"), "{key}: {said}");
            assert_eq!(annotate(&server, MANAGER, DEPLOYMENTS, key, &json!(value)).await, "", "{key}");
        }
        let of_all = annotate(&server, MANAGER, DAEMON_SETS, "rollout", &json!("approve 1")).await;
        assert!(of_all.contains("update daemonsets/approve"), "{of_all}");
        assert!(
            annotate(&server, MANAGER, DEPLOYMENTS, "rollout", &json!("go")).await.contains("accepted is")
        );
        // Whoever may change the image goes on doing so beside a command, and may remove it.
        let image =
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "app:v2"}]}}}});
        assert_eq!(refusal(&server, CI, Method::PATCH, &format!("{DEPLOYMENTS}/web"), &image).await, "");
        assert_eq!(annotate(&server, CI, DEPLOYMENTS, "rollout", &Value::Null).await, "");
        // As docs/rollout-policy.md says: the right guards approvals, not the policy itself.
        assert_eq!(annotate(&server, CI, DEPLOYMENTS, "steps", &json!("50%")).await, "");
        assert_eq!(annotate(&server, CI, DEPLOYMENTS, "steps", &Value::Null).await, "");
        let mut born = workload("Deployment", json!({"windlass.dev/rollout": "approve 1"}));
        born["metadata"]["name"] = json!("born");
        assert!(refusal(&server, CI, Method::POST, DEPLOYMENTS, &born).await.contains("deployments/approve"));

        let recreate = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}});
        let said = refusal(&server, CI, Method::PATCH, &format!("{DEPLOYMENTS}/web"), &recreate).await;
        assert!(said.contains("the strategy Recreate has no steps"), "{said}");
    });
}
