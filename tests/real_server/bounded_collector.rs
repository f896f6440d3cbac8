//! The garbage collector under the rights that the chart renders for a list of resources, and for one namespace.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::apiserver::{ApiServer, DAEMON, User, on_a_real_server};
use windlass_testkit::manifests;
use windlass_testkit::process::{Process, WAIT_TIMEOUT, windlass};
use windlass_testkit::rights::{self, Rights};
use windlass_testkit::user::send;

use super::installation::SCOPED;

/// The time that a test waits to see that an object stays.
const A_WHILE: Duration = Duration::from_secs(5);

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Starts the daemon as the chart does, and plays with it. Its rights, those that it used, and those that it lacked.
fn with_the_chart(values: &str, user: User, play: impl AsyncFn(Client) + Copy) -> (Rights, Rights, Rights) {
    let mut found = Default::default();
    on_a_real_server(async |folder| {
        let (_, objects) =
            manifests::rendered().into_iter().find(|(origin, _)| origin == values).expect(values);
        let server = ApiServer::start_with(folder, &[user]).await;
        let client = server.client().await;
        let namespace =
            |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        rights::create(&client, &["windlass", "shop", "elsewhere"].map(namespace)).await;
        let is_of = |kinds: &[&str]| -> Vec<Value> {
            let is_meant = |object: &&Value| {
                kinds.iter().any(|kind| object["kind"] == *kind)
                    && !object["metadata"]["name"].as_str().unwrap().ends_with("-test")
            };
            objects.iter().filter(is_meant).cloned().collect()
        };
        let roles = ["Role", "ClusterRole"];
        rights::create(&client, &is_of(&["ServiceAccount", "RoleBinding", "ClusterRoleBinding"])).await;
        rights::create(&client, &is_of(&roles)).await;
        rights::create(&client, &is_of(&["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]))
            .await;
        let needed = json!({"verb": "delete", "resource": "configmaps", "namespace": "shop"});
        rights::wait_until_allowed(&client, user.name, &[needed]).await;
        let deployment = is_of(&["Deployment"]).remove(0);
        let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].clone();
        let (config, log) = (server.kubeconfig(user.token), server.file("windlass.log"));
        let own = [format!("--kubeconfig={}", config.display()), "--secure-port=0".to_owned()];
        let given = arguments.as_array().unwrap().iter().map(|it| it.as_str().unwrap());
        let flags: Vec<&str> = given
            .filter(|flag| !flag.starts_with("--secure-port"))
            .chain(own.iter().map(String::as_str))
            .collect();
        let daemon = Process::start(&windlass(), &flags, &log);
        play(client).await;
        daemon.terminate();
        let audit = server.audit();
        let is_its_own =
            |event: &&Value| event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("windlass"));
        let (refused, done): (Vec<&Value>, Vec<&Value>) =
            audit.iter().filter(is_its_own).partition(|event| event["responseStatus"]["code"] == 403);
        let is_the_collectors = |object: &&Value| {
            let name = object["metadata"]["name"].as_str().unwrap();
            name.contains("-garbage")
        };
        let granted: Vec<Value> = is_of(&roles).iter().filter(is_the_collectors).cloned().collect();
        found = (rights::granted(&granted), rights::used(done), rights::used(refused));
    });
    found
}

async fn create(client: &Client, path: &str, object: &Value) -> Value {
    send(client, Method::POST, path, object).await.unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn in_namespace(namespace: &str, plural: &str) -> String {
    match plural {
        "controllerrevisions" => format!("/apis/apps/v1/namespaces/{namespace}/controllerrevisions"),
        _ => format!("/api/v1/namespaces/{namespace}/{plural}"),
    }
}

fn object(name: &str, owners: &[Value]) -> Value {
    // A revision needs data and its number, which other kinds ignore; a Secret takes base64.
    json!({"metadata": {"name": name, "ownerReferences": owners}, "revision": 1, "data": {"a": "Yg=="}})
}

fn to(owner: &Value) -> Value {
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
           "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true})
}

fn to_nobody(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": "nobody", "uid": format!("uid-of-no-{kind}")})
}

async fn exists(client: &Client, path: &str) -> bool {
    match send(client, Method::GET, path, &Value::Null).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 404 => false,
        Err(error) => panic!("{path}: {error}"),
    }
}

async fn are_gone(client: &Client, paths: &[String]) {
    let end = Instant::now() + WAIT_TIMEOUT;
    for path in paths {
        while exists(client, path).await {
            assert!(Instant::now() < end, "{path} is still there");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// An owner of this kind for each policy, with a dependent of that kind. Their ends are those of any collector.
async fn three_policies(client: &Client, namespace: &str, owners: &str, dependents: &str) {
    let (owners, dependents) = (in_namespace(namespace, owners), in_namespace(namespace, dependents));
    for policy in ["Background", "Foreground", "Orphan"] {
        let name = policy.to_lowercase();
        let owner = create(client, &owners, &object(&name, &[])).await;
        create(client, &dependents, &object(&format!("of-{name}"), &[to(&owner)])).await;
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
        send(client, Method::DELETE, &format!("{owners}/{name}"), &options).await.unwrap();
    }
    let owners = ["background", "foreground", "orphan"].map(|name| format!("{owners}/{name}"));
    are_gone(client, &owners).await;
    are_gone(client, &["background", "foreground"].map(|name| format!("{dependents}/of-{name}"))).await;
    let orphan = send(client, Method::GET, &format!("{dependents}/of-orphan"), &Value::Null).await.unwrap();
    assert!(orphan["metadata"]["ownerReferences"].is_null(), "{orphan}");
}

/// Objects with one owner each: those whose path comes first go, and the others stay.
async fn go_and_stay(client: &Client, go: &[(String, &str, Value)], stay: &[(String, &str, Value)]) {
    let path = |(collection, name, _): &(String, &str, Value)| format!("{collection}/{name}");
    for (collection, name, owner) in go.iter().chain(stay) {
        create(client, collection, &object(name, std::slice::from_ref(owner))).await;
    }
    are_gone(client, &go.iter().map(path).collect::<Vec<_>>()).await;
    tokio::time::sleep(A_WHILE).await;
    for it in stay {
        assert!(exists(client, &path(it)).await, "{} is gone", path(it));
    }
}

async fn a_role(client: &Client) -> Value {
    create(client, ROLES, &object("owner", &[])).await
}

pub(crate) fn the_chart_gives_a_collector_of_some_resources_of_a_namespace_exactly_what_it_needs() {
    let (granted, used, lacked) = with_the_chart("garbage-bounded-windlass", SCOPED, async |client| {
        let maps = in_namespace("shop", "configmaps");
        let secret = create(&client, &in_namespace("shop", "secrets"), &object("owner", &[])).await;
        let role = a_role(&client).await;
        three_policies(&client, "shop", "configmaps", "controllerrevisions").await;
        three_policies(&client, "shop", "controllerrevisions", "configmaps").await;
        let go = [
            (maps.clone(), "of-a-missing-secret", to_nobody("v1", "Secret")),
            (maps.clone(), "of-a-missing-role", to_nobody("rbac.authorization.k8s.io/v1", "ClusterRole")),
        ];
        let stay = [
            (maps.clone(), "of-a-secret", to(&secret)),
            (maps.clone(), "of-a-role", to(&role)),
            // Nothing may read it.
            (maps.clone(), "of-a-missing-service", to_nobody("v1", "Service")),
            (in_namespace("shop", "serviceaccounts"), "not-listed", to_nobody("v1", "ConfigMap")),
            (in_namespace("elsewhere", "configmaps"), "not-here", to_nobody("v1", "ConfigMap")),
        ];
        go_and_stay(&client, &go, &stay).await;
    });
    assert_eq!(lacked, Rights::from(["get services".to_owned()]));
    let unused: BTreeSet<&String> = granted.difference(&used).collect();
    assert!(unused.is_empty(), "granted and not used: {unused:?}");
}

pub(crate) fn the_chart_gives_a_collector_of_a_namespace_rights_in_it_alone() {
    let (granted, used, lacked) = with_the_chart("garbage-namespace-windlass", SCOPED, async |client| {
        let (maps, role) = (in_namespace("shop", "configmaps"), a_role(&client).await);
        three_policies(&client, "shop", "configmaps", "secrets").await;
        let go = [(maps.clone(), "of-a-missing-secret", to_nobody("v1", "Secret"))];
        let stay = [
            (maps.clone(), "of-a-role", to(&role)),
            // It may not look for it.
            (maps.clone(), "of-a-missing-role", to_nobody("rbac.authorization.k8s.io/v1", "ClusterRole")),
            (in_namespace("elsewhere", "configmaps"), "not-here", to_nobody("v1", "Secret")),
        ];
        go_and_stay(&client, &go, &stay).await;
    });
    assert_eq!(lacked, Rights::from(["get clusterroles.rbac.authorization.k8s.io".to_owned()]));
    let verbs = granted.iter().map(|right| right.split(' ').next().unwrap());
    for verb in verbs {
        assert!(used.iter().any(|right| right.starts_with(verb)), "{verb} is granted and not used");
    }
}

pub(crate) fn the_chart_gives_a_collector_of_some_resources_exactly_what_it_needs() {
    let (granted, _, lacked) = with_the_chart("garbage-kube-system", DAEMON, async |client| {
        let role = a_role(&client).await;
        for namespace in ["shop", "elsewhere"] {
            let maps = in_namespace(namespace, "configmaps");
            three_policies(&client, namespace, "configmaps", "configmaps").await;
            let go = [
                (maps.clone(), "of-a-missing-set", to_nobody("apps/v1", "StatefulSet")),
                (maps.clone(), "of-a-missing-role", to_nobody("rbac.authorization.k8s.io/v1", "ClusterRole")),
            ];
            let stay = [
                (maps.clone(), "of-a-role", to(&role)),
                (in_namespace(namespace, "secrets"), "ignored", to_nobody("v1", "ConfigMap")),
            ];
            go_and_stay(&client, &go, &stay).await;
        }
    });
    assert_eq!(lacked, Rights::new());
    let expected = ["get", "list", "watch", "patch", "delete"].iter().flat_map(|verb| {
        ["pods", "configmaps", "replicasets.apps"].map(|resource| format!("{verb} {resource}"))
    });
    let owners = ["statefulsets.apps", "deployments.apps", "clusterroles.rbac.authorization.k8s.io"];
    let owners = owners.iter().map(|resource| format!("get {resource}"));
    assert_eq!(granted, expected.chain(owners).collect());
}
