//! The namespace controller as a process, with the rights that the chart gives it and no others, on a real API server.

use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::apiserver::{ApiServer, DAEMON, TOKEN, on_a_real_server};
use windlass_testkit::controllers::Side;
use windlass_testkit::process::{Process, windlass};
use windlass_testkit::user::send;
use windlass_testkit::{manifests, rights};

const CONTROLLER: &str = "--controllers=namespace-controller";

/// The ServiceAccount of the daemon may do what the shipped manifests say, and is held by their policies.
async fn grant(server: &ApiServer, client: &Client, own: &[Value]) {
    rights::create(client, &rights::manifest()).await;
    rights::create(client, own).await;
    rights::create(client, &manifests::file("deploy/admissionpolicy.yaml")).await;
    rights::wait_for_the_admission_policy(server).await;
    let wanted = [
        json!({"verb": "deletecollection", "group": "*", "resource": "*", "namespace": "a"}),
        json!({"verb": "update", "group": "coordination.k8s.io", "resource": "leases", "name": "windlass",
               "namespace": "kube-system"}),
    ];
    rights::wait_until_allowed(client, DAEMON.name, &wanted).await;
}

/// RBAC allows it and the policy refuses it, once the server has learned of the policy.
async fn nothing_in_a_living_namespace_can_be_deleted(server: &ApiServer) {
    let client = server.client().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        create(&client, maps, json!({"metadata": {"name": "precious"}})).await;
        let path = format!("{maps}/precious");
        let (code, message) = rights::try_as_the_daemon(server, Method::DELETE, &path, &Value::Null).await;
        if code == 403 && message.contains("only namespaces that are being deleted") {
            break;
        }
        assert!(code == 200 && Instant::now() < end, "{code} {message}");
    }
    let maps = "/api/v1/namespaces/default";
    let (code, message) = rights::try_as_the_daemon(server, Method::GET, maps, &Value::Null).await;
    assert_eq!(code, 200, "{message}");
    let mut namespace: Value = send(&client, Method::GET, maps, &Value::Null).await.unwrap();
    namespace["spec"]["finalizers"] = json!([]);
    let finalize = format!("{maps}/finalize");
    let (code, message) = rights::try_as_the_daemon(server, Method::PUT, &finalize, &namespace).await;
    assert!(code == 403 && message.contains("only namespaces that are being deleted"), "{code} {message}");
}

async fn create(client: &Client, path: &str, object: Value) {
    send(client, Method::POST, path, &object).await.unwrap_or_else(|error| panic!("{path}: {error}"));
}

async fn create_namespace(client: &Client, name: &str) {
    create(client, "/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
}

async fn delete_namespace(client: &Client, name: &str) {
    send(client, Method::DELETE, &format!("/api/v1/namespaces/{name}"), &Value::Null).await.unwrap();
}

/// The namespace; null once it is gone.
async fn namespace(client: &Client, name: &str) -> Value {
    match send(client, Method::GET, &format!("/api/v1/namespaces/{name}"), &Value::Null).await {
        Ok(found) => found,
        Err(kube::Error::Api(status)) if status.code == 404 => Value::Null,
        Err(error) => panic!("{error}"),
    }
}

/// How long the namespace still takes to go.
async fn time_until_gone(client: &Client, name: &str, most: Duration) -> Duration {
    let start = Instant::now();
    loop {
        let found = namespace(client, name).await;
        if found.is_null() {
            return start.elapsed();
        }
        assert!(start.elapsed() < most, "{name} is still there: {found:#}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a condition has this status and holds these words.
async fn condition(client: &Client, name: &str, kind: &str, status: &str, words: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let found = namespace(client, name).await;
        let all = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let holds = all.iter().any(|condition| {
            condition["type"] == kind
                && condition["status"] == status
                && condition["message"].as_str().is_some_and(|message| message.contains(words))
        });
        if holds {
            return;
        }
        assert!(Instant::now() < end, "{kind} is not {status} with {words:?}: {all:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// 20 objects of 8 kinds.
pub(crate) async fn fill(client: &Client, name: &str) {
    let core = |plural: &str| format!("/api/v1/namespaces/{name}/{plural}");
    let group = |group: &str, plural: &str| format!("/apis/{group}/v1/namespaces/{name}/{plural}");
    let template = json!({"metadata": {"labels": {"app": "a"}},
                          "spec": {"containers": [{"name": "c", "image": "app"}]}});
    for number in 0..5 {
        let meta = json!({"name": format!("object-{number}")});
        create(client, &core("configmaps"), json!({"metadata": meta, "data": {"a": "b"}})).await;
        create(client, &core("secrets"), json!({"metadata": meta})).await;
        if number >= 2 {
            continue;
        }
        create(client, &core("serviceaccounts"), json!({"metadata": meta})).await;
        let ports = json!([{"port": 80 + number}]);
        create(client, &core("services"), json!({"metadata": meta, "spec": {"ports": ports}})).await;
        let mut pod = template.clone();
        pod["metadata"]["name"] = meta["name"].clone();
        create(client, &core("pods"), pod).await;
        let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template});
        create(client, &group("apps", "deployments"), json!({"metadata": meta, "spec": spec})).await;
        if number >= 1 {
            continue;
        }
        let policy = json!({"metadata": meta, "spec": {"podSelector": {}}});
        create(client, &group("networking.k8s.io", "networkpolicies"), policy).await;
        let mut job = template.clone();
        job["spec"]["restartPolicy"] = "Never".into();
        create(client, &group("batch", "jobs"), json!({"metadata": meta, "spec": {"template": job}})).await;
    }
}

pub(crate) fn namespaces_end_with_what_is_in_them() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start_with(folder, &[DAEMON]).await;
        let client = server.client().await;
        let own = manifests::file("deploy/namespaces/namespace-controller.yaml");
        grant(&server, &client, &own).await;
        nothing_in_a_living_namespace_can_be_deleted(&server).await;
        let (config, log) = (server.kubeconfig(DAEMON.token), server.file("windlass.log"));
        let config = format!("--kubeconfig={}", config.display());
        let flags = [&config, CONTROLLER, "--namespace-deletion-delay=0s", "--secure-port=0"];
        let daemon = Process::start(&windlass(), &flags, &log);
        let played = tokio::spawn(play(client)).await;
        daemon.terminate();
        let log = std::fs::read_to_string(log).unwrap();
        played.unwrap_or_else(|error| panic!("{}\n{log}", windlass_testkit::apiserver::said(error)));

        let audit = server.audit();
        let is_its_own =
            |event: &&Value| event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("windlass"));
        let asked: Vec<&Value> = audit.iter().filter(is_its_own).collect();
        let refused: Vec<_> = asked.iter().filter(|event| event["responseStatus"]["code"] == 403).collect();
        assert!(refused.is_empty(), "{refused:#?}");
        // Each verb of its role is used, for whatever resource, but for the one that kinds without a deletion of collections
        // need: this server has none, and tests/cluster does.
        let used = rights::used(asked.iter().copied());
        let rules = own.iter().find_map(|object| object["rules"].as_array()).unwrap();
        let expected = rules.iter().flat_map(|rule| {
            let resource = rule["resources"][0].as_str().unwrap().to_owned();
            rule["verbs"]
                .as_array()
                .unwrap()
                .iter()
                .map(move |verb| (verb.as_str().unwrap(), resource.clone()))
        });
        for (verb, resource) in expected {
            let is_used = used.iter().any(|right| {
                right.starts_with(&format!("{verb} ")) && (resource == "*" || right.ends_with(&resource))
            });
            assert!(is_used || verb == "delete", "never used: {verb} {resource}");
        }
    });
}

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// Registers a group that nobody serves.
async fn break_a_group(client: &Client) {
    let spec = json!({
        "group": "broken.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "service": {"name": "nobody", "namespace": "default"}, "insecureSkipTLSVerify": true,
    });
    let service = json!({"metadata": {"name": "v1.broken.example.com"}, "spec": spec});
    create(client, SERVICES, service).await;
    // The server learns of it in its own time.
    tokio::time::sleep(Duration::from_secs(2)).await;
}

async fn play(client: Client) {
    // The first one waits for the election, too.
    create_namespace(&client, "first").await;
    delete_namespace(&client, "first").await;
    time_until_gone(&client, "first", Duration::from_secs(60)).await;

    create_namespace(&client, "full").await;
    fill(&client, "full").await;
    delete_namespace(&client, "full").await;
    let full = time_until_gone(&client, "full", Duration::from_secs(60)).await;
    create_namespace(&client, "empty").await;
    delete_namespace(&client, "empty").await;
    let empty = time_until_gone(&client, "empty", Duration::from_secs(60)).await;
    #[allow(clippy::print_stdout)] // The figures are what a reader of the run wants.
    {
        println!("a namespace with 20 objects of 8 kinds took {full:?}, and an empty one {empty:?}");
    }

    // A foreign finalizer keeps a namespace, which says so.
    create_namespace(&client, "kept").await;
    let map = json!({"metadata": {"name": "map", "finalizers": ["example.com/keep"]}});
    create(&client, "/api/v1/namespaces/kept/configmaps", map).await;
    delete_namespace(&client, "kept").await;
    let words =
        "Some content in the namespace has finalizers remaining: example.com/keep in 1 resource instances";
    condition(&client, "kept", "NamespaceFinalizersRemaining", "True", words).await;
    let words = "Some resources are remaining: configmaps. has 1 resource instances";
    condition(&client, "kept", "NamespaceContentRemaining", "True", words).await;
    let map = "/api/v1/namespaces/kept/configmaps/map";
    send(&client, Method::PATCH, map, &json!({"metadata": {"finalizers": null}})).await.unwrap();
    time_until_gone(&client, "kept", Duration::from_secs(5)).await;

    // A group that cannot be discovered keeps a namespace until it is back.
    break_a_group(&client).await;
    create_namespace(&client, "unknown").await;
    fill(&client, "unknown").await;
    delete_namespace(&client, "unknown").await;
    let words = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
                 broken.example.com/v1: stale GroupVersion discovery: broken.example.com/v1";
    condition(&client, "unknown", "NamespaceDeletionDiscoveryFailure", "True", words).await;
    condition(&client, "unknown", "NamespaceContentRemaining", "False", "All content successfully removed")
        .await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!namespace(&client, "unknown").await.is_null(), "nobody knows what the broken group holds");
    send(&client, Method::DELETE, &format!("{SERVICES}/v1.broken.example.com"), &Value::Null).await.unwrap();
    time_until_gone(&client, "unknown", Duration::from_secs(30)).await;
}

/// The conditions as type, status, reason and message, in their order, once there are some and they stay for a while.
async fn settled_conditions(client: &Client, name: &str) -> Vec<[String; 4]> {
    let (mut last, mut since) = (Vec::new(), Instant::now());
    let end = Instant::now() + Duration::from_secs(90);
    loop {
        let found = namespace(client, name).await;
        let all = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
        let fields = ["type", "status", "reason", "message"];
        let now: Vec<[String; 4]> = all.iter().map(|it| fields.map(|field| text(it, field))).collect();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        // The longest pause of upstream is that for finalizers, of 8 s.
        if !last.is_empty() && since.elapsed() > Duration::from_secs(12) {
            return last;
        }
        assert!(Instant::now() < end, "the conditions of {name} do not settle: {last:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

pub(crate) fn the_conditions_are_those_of_kube_controller_manager() {
    on_a_real_server(async |folder| {
        let mut said = Vec::new();
        for side in Side::BOTH {
            let server = ApiServer::start(folder).await;
            let (config, log) = (server.kubeconfig(TOKEN), server.file("controllers.log"));
            let _controllers = side.start(folder, &config, "namespace-controller", &[], &log);
            said.push(what_is_said(&server.client().await).await);
        }
        let [upstream, ours] = said.try_into().unwrap();
        let [finalizers, pods, unknown] = upstream;
        assert_eq!(ours[0], finalizers);
        assert_eq!(ours[2], unknown);
        // While a pod is left, upstream says that nothing is (kubernetes#138208).
        let remaining =
            |all: &[[String; 4]]| all.iter().position(|it| it[0] == "NamespaceContentRemaining").unwrap();
        let (of_upstream, of_ours) = (&pods[remaining(&pods)], &ours[1][remaining(&ours[1])]);
        let text = "Some resources are remaining: pods. has 1 resource instances";
        assert_eq!((of_ours[1].as_str(), of_ours[3].as_str()), ("True", text));
        let others = |all: &[[String; 4]]| -> Vec<[String; 4]> {
            let differ = ["NamespaceContentRemaining", "NamespaceFinalizersRemaining"];
            all.iter().filter(|it| !differ.contains(&it[0].as_str())).cloned().collect()
        };
        assert_eq!(others(&ours[1]), others(&pods), "upstream on the pod: {of_upstream:?}");
    });
}

/// The conditions of namespaces that finalizers of two kinds, a pod, and an unknown group keep.
async fn what_is_said(client: &Client) -> [Vec<[String; 4]>; 3] {
    for name in ["finalizers", "pod", "unknown"] {
        create_namespace(client, name).await;
        fill(client, name).await;
    }
    let kept = |name: &str, finalizer: &str| json!({"metadata": {"name": name, "finalizers": [finalizer]}});
    for (number, finalizer) in ["b.example.com/f", "a.example.com/f", "a.example.com/f"].iter().enumerate() {
        let map = kept(&format!("kept-{number}"), finalizer);
        create(client, "/api/v1/namespaces/finalizers/configmaps", map).await;
    }
    create(client, "/api/v1/namespaces/finalizers/secrets", kept("kept", "a.example.com/f")).await;
    let pod = "/api/v1/namespaces/pod/pods/object-0";
    let keep = json!({"metadata": {"finalizers": ["a.example.com/f"]}});
    send(client, Method::PATCH, pod, &keep).await.unwrap();
    for name in ["finalizers", "pod"] {
        delete_namespace(client, name).await;
    }
    let finalizers = settled_conditions(client, "finalizers").await;
    let pod = settled_conditions(client, "pod").await;
    break_a_group(client).await;
    delete_namespace(client, "unknown").await;
    [finalizers, pod, settled_conditions(client, "unknown").await]
}
