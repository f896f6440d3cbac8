//! Discovery, health, and paths that lead nowhere.

use super::*;

#[tokio::test(start_paused = true)]
async fn discovery_lists_the_table_of_kinds() {
    let sandbox = sandbox();
    let groups = sandbox.get("/apis").await.ok();
    let names: Vec<_> =
        groups["groups"].as_array().unwrap().iter().map(|group| group["name"].clone()).collect();
    let served = [
        "apps",
        "events.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "networking.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "storage.k8s.io",
        "apiextensions.k8s.io",
        "admissionregistration.k8s.io",
        "scheduling.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
        "discovery.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "resource.k8s.io",
        "apiregistration.k8s.io",
    ];
    assert_eq!(names, served);
    let resources = sandbox.get("/apis/apps/v1").await.ok();
    let names: Vec<_> =
        resources["resources"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
    let expected = [
        "controllerrevisions",
        "daemonsets",
        "daemonsets/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status",
    ];
    assert_eq!(names, expected);
    assert_eq!(resources["resources"][4]["kind"], "Scale");
    let core = sandbox.get("/api/v1").await.ok();
    let entries = core["resources"].as_array().unwrap();
    let entry = |name: &str| entries.iter().find(|entry| entry["name"] == name).unwrap();
    let controllers = entry("replicationcontrollers");
    assert_eq!(controllers["kind"], "ReplicationController");
    assert_eq!(controllers["shortNames"], json!(["rc"]));
    assert_eq!(controllers["categories"], json!(["all"]));
    let scale = entry("replicationcontrollers/scale");
    assert_eq!((&scale["group"], &scale["kind"]), (&json!("autoscaling"), &json!("Scale")));
    assert_eq!(entry("replicationcontrollers/status")["kind"], "ReplicationController");
    sandbox.get("/apis/apps/v2").await.refused(404);
}

#[tokio::test(start_paused = true)]
async fn aggregated_discovery_is_served_on_request() {
    let sandbox = sandbox();
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let core = sandbox.get_as("/api", accept).await.ok();
    let resources = core["items"][0]["versions"][0]["resources"].as_array().unwrap();
    let pods = resources.iter().find(|entry| entry["resource"] == "pods").unwrap();
    assert_eq!(pods["scope"], "Namespaced");
    assert_eq!(pods["shortNames"], json!(["po"]));
    let groups = sandbox.get_as("/apis", accept).await.ok();
    assert_eq!(groups["items"].as_array().map(Vec::len), Some(20));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_knows_the_aggregated_discovery_is_told_that_it_is_unchanged() {
    let sandbox = sandbox();
    let ask = async |etag: &str| {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let request = Request::get("/apis").header("accept", accept).header("if-none-match", etag);
        let response = sandbox.router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let etag = response.headers()["etag"].to_str().unwrap().to_owned();
        let code = response.status().as_u16();
        (code, etag, response.into_body().collect().await.unwrap().to_bytes())
    };
    let (code, etag, body) = ask("").await;
    assert!(code == 200 && !body.is_empty());
    assert_eq!(ask(&etag).await, (304, etag.clone(), "".into()));
    assert_eq!(ask("\"another\"").await, (200, etag, body));
}

#[tokio::test(start_paused = true)]
async fn a_client_can_ask_for_health_and_version() {
    let sandbox = sandbox();
    for path in ["/healthz", "/livez", "/readyz", "/readyz/ping"] {
        assert_eq!(sandbox.get(path).await.code, 200, "{path}");
    }
    assert_eq!(sandbox.get("/version").await.ok()["minor"], "36");
    assert!(sandbox.get("/openapi/v3").await.ok()["paths"].is_object());
    sandbox.get("/openapi/v3/apis/apps/v1").await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_is_not_found() {
    let sandbox = sandbox();
    for path in ["/apis/batch/v1/works", "/api/v1/pods/a/b/c/d", "/api/v1/namespaces/x/pods/y/nothing"] {
        let message = sandbox.get(path).await.refused(404);
        assert_eq!(message, "the server could not find the requested resource", "{path}");
    }
    sandbox.post(&format!("{PODS}/a"), pod("a")).await.refused(405);
    assert_eq!(
        sandbox.get_as(PODS, "application/cbor").await.refused(406),
        "only the following media types are accepted: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf"
    );
}

#[tokio::test(start_paused = true)]
async fn kubectl_finds_an_older_document_without_kinds() {
    let accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let request = Request::get("/openapi/v2").header("accept", accept).body(Body::empty()).unwrap();
    let response = sandbox().router().oneshot(request).await.unwrap();
    let content_type = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &content_type.parse().unwrap())
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.as_ref(), [0x0a, 0x03, 0x32, 0x2e, 0x30]);
    assert_eq!(sandbox().get("/openapi/v2").await.ok()["swagger"], "2.0");
}

#[tokio::test(start_paused = true)]
async fn only_kubectl_top_sees_the_group_of_metrics_and_learns_why_there_are_none() {
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let sandbox = sandbox();
    for accept in ["application/json", AGGREGATED] {
        for (command, expected) in [("kubectl top node", true), ("kubectl get", false)] {
            let request = Request::get("/apis").header("accept", accept).header("kubectl-command", command);
            let groups = sandbox.send(request.body(Body::empty()).unwrap()).await.ok();
            assert_eq!(groups.to_string().contains("metrics.k8s.io"), expected, "{groups}");
        }
    }
    let said =
        "the containers of this API server are simulated: there is no process whose usage could be measured";
    for path in ["nodes", "nodes/a", "pods", "namespaces/default/pods", "namespaces/default/pods/a"] {
        assert_eq!(sandbox.get(&format!("/apis/metrics.k8s.io/v1beta1/{path}")).await.refused(501), said);
    }
    for path in ["/apis/metrics.k8s.io", "/apis/metrics.k8s.io/v1beta1", "/apis/metrics.k8s.io/v1beta1/x"] {
        sandbox.get(path).await.refused(404);
    }
}

#[tokio::test(start_paused = true)]
async fn the_paths_and_the_parts_of_health_are_listed() {
    let sandbox = sandbox();
    let paths = sandbox.get("/").await.ok()["paths"].as_array().unwrap().clone();
    for path in ["/api/v1", "/apis/apps", "/apis/apps/v1", "/livez/ping", "/openapi/v3", "/version"] {
        assert!(paths.contains(&json!(path)), "{path} of {paths:?}");
    }
    let text = async |path: &str| {
        let response =
            sandbox.router().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    assert_eq!(text("/readyz").await, "ok");
    assert_eq!(text("/readyz/ping").await, "ok");
    assert_eq!(text("/readyz?verbose").await, "[+]ping ok\nreadyz check passed\n");
    sandbox.get("/readyz/nope").await.refused(404);
}

#[tokio::test(start_paused = true)]
async fn people_read_indented_json_and_send_yaml() {
    let sandbox = sandbox();
    let send = async |request: http::request::Builder, body: &'static str| {
        let response = sandbox.router().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    let map = "metadata: {name: a}\ndata: {k: v}\n";
    let sent = send(Request::post(CONFIG_MAPS).header("content-type", "application/yaml"), map).await;
    assert!(sent.contains("\"data\":{\"k\":\"v\"}"), "{sent}");
    let path = format!("{CONFIG_MAPS}/a");
    for (agent, query, indented) in [
        ("curl/8.5", "", true),
        ("curl/8.5", "?pretty=false", false),
        ("kubectl/v1.36", "", false),
        ("kubectl", "?pretty=1", true),
    ] {
        let answer = send(Request::get(format!("{path}{query}")).header("user-agent", agent), "").await;
        assert_eq!(answer.contains("\n  \"data\": {"), indented, "{agent} {query}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_lists_and_failures_are_shown_in_yaml() {
    let sandbox = sandbox();
    sandbox.post("/api/v1/namespaces/default/configmaps", config_map("a")).await.ok();
    for (path, expected) in [
        ("/api/v1/namespaces/default/configmaps/a", "kind: ConfigMap\n"),
        ("/api/v1/namespaces/default/configmaps", "kind: ConfigMapList\n"),
        ("/api/v1/namespaces/default/configmaps/b", "reason: NotFound\n"),
    ] {
        let request = Request::get(path).header("accept", "application/yaml").body(Body::empty()).unwrap();
        let response = sandbox.router().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/yaml");
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&text).contains(expected), "{text:?}");
    }
    let watch = sandbox.get_as("/api/v1/namespaces/default/configmaps?watch=true", "application/yaml").await;
    assert_eq!(
        watch.refused(406),
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch"
    );
}
