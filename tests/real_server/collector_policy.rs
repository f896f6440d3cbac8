//! The admission policies of the garbage collector on a real kube-apiserver: with its rights over everything, a token
//! changes references and two finalizers, and nothing else.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::apiserver::{ApiServer, DAEMON, on_a_real_server};
use windlass_testkit::rights;

use super::garbage::grant;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

fn owner(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("uid-of-{name}"), "blockOwnerDeletion": true})
}

fn object(kind: &str, api_version: &str, name: &str, owners: &[Value]) -> Value {
    json!({"apiVersion": api_version, "kind": kind,
           "metadata": {"name": name, "namespace": "default", "ownerReferences": owners}})
}

pub(crate) fn the_collectors_token_changes_only_references_and_its_finalizers() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start_with(folder, &[DAEMON]).await;
        let client = server.client().await;
        grant(&server, &client).await;
        let mut revision = object("ControllerRevision", "apps/v1", "of-a-stateful-set", &[owner("a")]);
        revision["revision"] = 1.into();
        revision["data"] = json!({"other": 1});
        let mut held = object("ConfigMap", "v1", "held", &[]);
        held["metadata"]["finalizers"] = json!(["example.com/keep", "orphan"]);
        let there = [
            object("ConfigMap", "v1", "owned", &[owner("a"), owner("b")]),
            object("ConfigMap", "v1", "free", &[]),
            revision,
            held,
        ];
        rights::create(&client, &there).await;
        let held = format!("{MAPS}/held");
        let delete = http::Request::delete(&held).body(Vec::new()).unwrap();
        client.request::<Value>(delete).await.unwrap();
        let label = |path: &str| (path.to_owned(), json!({"metadata": {"labels": {"a": "b"}}}));
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let (path, body) = label(&format!("{MAPS}/free"));
            let (code, _) = rights::try_as_the_daemon(&server, Method::PATCH, &path, &body).await;
            if code == 403 {
                break;
            }
            assert!(Instant::now() < end, "the policy has no effect");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let references = |owners: &[Value]| json!({"metadata": {"ownerReferences": owners}});
        let finalizers = |all: &[&str]| json!({"metadata": {"finalizers": all}});
        let mut not_blocking = owner("a");
        not_blocking["blockOwnerDeletion"] = false.into();
        let (owned, revision) = (format!("{MAPS}/owned"), format!("{REVISIONS}/of-a-stateful-set"));
        let status = "/api/v1/namespaces/default/status".to_owned();
        let refused = Some("only references to owners may be removed");
        let of_others = Some("only objects controlled by");
        let mut another = owner("c");
        another["blockOwnerDeletion"] = false.into();
        let all = [owner("a"), owner("b"), another];
        for (what, (path, body), refusal) in [
            ("labels a namespace", label("/api/v1/namespaces/default"), refused),
            ("labels it by its status", label(&status), refused),
            ("changes a ConfigMap", (owned.clone(), json!({"data": {"a": "b"}})), refused),
            ("adds an owner", (owned.clone(), references(&all)), refused),
            ("lets it block no more", (owned.clone(), references(&[not_blocking, owner("b")])), None),
            ("removes a reference", (owned, references(&all[1..2])), None),
            ("removes the finalizer of somebody else", (held.clone(), finalizers(&["orphan"])), refused),
            ("ends an orphaning deletion", (held, finalizers(&["example.com/keep"])), None),
            ("changes a revision of others", (revision.clone(), json!({"revision": 2})), of_others),
            ("orphans a revision of others", (revision, references(&[])), None),
        ] {
            let (code, message) = rights::try_as_the_daemon(&server, Method::PATCH, &path, &body).await;
            match refusal {
                None => assert_eq!((code, &*message), (200, ""), "{what}"),
                Some(words) => assert!(code == 403 && message.contains(words), "{what}: {code} {message}"),
            }
        }
        // To read and to delete everything includes the proxies.
        for path in [
            "nodes/one/proxy/",
            "namespaces/default/pods/one/proxy/",
            "namespaces/default/services/one/proxy/",
        ] {
            for method in [Method::GET, Method::DELETE] {
                let path = format!("/api/v1/{path}");
                let (code, message) = rights::try_as_the_daemon(&server, method, &path, &Value::Null).await;
                assert!(
                    code == 403 && message.contains("no connections may be opened"),
                    "{path}: {code} {message}"
                );
            }
        }
    });
}
