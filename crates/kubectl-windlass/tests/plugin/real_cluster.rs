//! On a real API server, with kube-controller-manager and without Windlass.

use http::{Method, Request};
use kubectl_windlass::api::Api;
use kubectl_windlass::cli::GlobalArgs;
use kubectl_windlass::connection::connect;
use kubectl_windlass::write;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass_testkit::apiserver::{ApiServer, TOKEN, on_a_real_server, run_the_rest_of_the_cluster};
use windlass_testkit::controllers::Side;

use crate::harness::{DEPLOYMENTS, Ended, PLUGIN};

const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";

async fn call(client: &kube::Client, method: Method, path: &str, body: &Value) -> Value {
    let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", media).body(body);
    client.request(request.unwrap()).await.unwrap()
}

async fn plugin(server: &ApiServer, args: &[&str]) -> Ended {
    let mut command = tokio::process::Command::new(PLUGIN);
    command.args(args).env("KUBECONFIG", server.kubeconfig(TOKEN)).env("LC_ALL", "C.UTF-8");
    Ended::of(&command.output().await.unwrap())
}

fn spec(image: &str, selector: &Value) -> Value {
    json!({"replicas": 3, "selector": selector, "template": {
        "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": image}]}}})
}

#[test]
#[ignore = "needs KUBEBUILDER_ASSETS with kube-controller-manager"]
fn it_works_on_the_rollouts_of_kube_controller_manager() {
    on_a_real_server(async |assets| {
        let server = ApiServer::start(assets).await;
        let end = CancellationToken::new();
        run_the_rest_of_the_cluster(&server, &end).await;
        let controllers = "deployment-controller,replicaset-controller,replicationcontroller-controller";
        let (config, log) = (server.kubeconfig(TOKEN), server.file("upstream.log"));
        let _upstream = Side::Upstream.start(assets, &config, controllers, &["--leader-elect=false"], &log);
        let client = server.client().await;
        rollouts(&server, &client).await;
        conflicts(&server, &client).await;
        rolling_updates(&server, &client).await;
        end.cancel();
    });
}

async fn rollouts(server: &ApiServer, client: &kube::Client) {
    let (web, selector) = (format!("{DEPLOYMENTS}/web"), json!({"matchLabels": {"app": "web"}}));
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                      "spec": spec("app:1", &selector)});
    call(client, Method::POST, DEPLOYMENTS, &body).await;
    let ended = plugin(server, &["status", "web", "--timeout=60s"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // Only kube-controller-manager can tell how it will name its next ReplicaSet.
    let ended = plugin(server, &["plan", "web", "--image", "app:2"]).await;
    assert!(ended.out.contains("  web-HASH (2) new  "), "{ended:?}");

    let mut broken = spec("app:broken", &selector);
    broken["progressDeadlineSeconds"] = json!(3);
    call(client, Method::PATCH, &web, &json!({"spec": broken})).await;
    let ended = plugin(server, &["status", "web", "--timeout=60s", "-o", "json"]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let last = ended.json_lines().pop().unwrap();
    assert_eq!((&last["type"], &last["verdict"]), (&json!("Failed"), &json!("stuck")));
    let explained = plugin(server, &["explain", "web"]).await;
    for part in [
        "revision 2: stuck",
        "3 old pods must stay",
        "ImagePullBackOff",
        "ACTS    kube-controller-manager (last status write",
        "TRY     kubectl windlass undo -n default deploy/web    (revision 1, image app:1)",
    ] {
        assert!(explained.out.contains(part), "{part:?} is not in\n{}", explained.out);
    }
    // The condition of the broken template is still there, and no failure of this one.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    call(client, Method::PATCH, &web, &json!({"spec": spec("app:1", &selector)})).await;
    let ended = plugin(server, &["status", "web", "--timeout=60s"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    call(client, Method::DELETE, &web, &Value::Null).await;
}

/// A patch of an object that has changed, or was created again, is a conflict; and a test of a JSON patch that fails is
/// answered without a reason.
async fn conflicts(server: &ApiServer, client: &kube::Client) {
    let web = format!("{DEPLOYMENTS}/web");
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                      "spec": spec("app:1", &json!({"matchLabels": {"app": "web"}}))});
    let seen = call(client, Method::POST, DEPLOYMENTS, &body).await;
    call(client, Method::PATCH, &web, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    let args = GlobalArgs { kubeconfig: Some(server.kubeconfig(TOKEN)), ..GlobalArgs::default() };
    let api = Api::new(connect(&args, &|_| None).await.unwrap(), args.request_timeout);
    let operation = json!({"op": "add", "path": "/spec/replicas", "value": 1});
    let replace = async |seen: &Value| write::replace(&api, "web", &web, seen, vec![operation.clone()]).await;
    assert_eq!(replace(&seen).await.unwrap_err().code(), Some(409), "changed");
    let mut namesake = seen.clone();
    namesake["metadata"]["uid"] = json!("11111111-2222-3333-4444-555555555555");
    assert_eq!(replace(&namesake).await.unwrap_err().code(), Some(409), "created again");
    // Its controllers write the status at any time.
    let mut written = Err(String::new());
    for _ in 0..20 {
        let current = call(client, Method::GET, &web, &Value::Null).await;
        written = replace(&current).await.map_err(|error| error.to_string());
        if written.is_ok() {
            break;
        }
    }
    assert_eq!(written.unwrap()["spec"]["replicas"], 1);
    let test = json!([{"op": "test", "path": "/metadata/name", "value": "other"}]);
    let request = Request::builder().method(Method::PATCH).uri(&web);
    let request =
        request.header("content-type", "application/json-patch+json").body(test.to_string().into_bytes());
    let Err(kube::Error::Api(status)) = client.request::<Value>(request.unwrap()).await else {
        panic!("no refusal")
    };
    assert_eq!(
        (status.code, status.message.as_str()),
        (422, "the server rejected our request due to an error in our request")
    );
    call(client, Method::DELETE, &web, &Value::Null).await;
}

async fn rolling_updates(server: &ApiServer, client: &kube::Client) {
    let body = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "api"}, "spec": {
        "replicas": 3, "selector": {"app": "api"},
        "template": {"metadata": {"labels": {"app": "api"}},
                     "spec": {"containers": [{"name": "app", "image": "api:1"}]}}}});
    let uid = call(client, Method::POST, CONTROLLERS, &body).await["metadata"]["uid"].clone();
    let quick = ["--update-period=500ms", "--poll-interval=500ms", "--timeout=60s"];
    let ended = plugin(server, &[&["rolling-update", "api", "--image=api:2"], &quick[..]].concat()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let all = call(client, Method::GET, CONTROLLERS, &Value::Null).await;
    let all = all["items"].as_array().unwrap();
    assert_eq!((all.len(), &all[0]["metadata"]["uid"], &all[0]["spec"]["replicas"]), (1, &uid, &json!(3)));
    let events = call(client, Method::GET, "/api/v1/namespaces/default/events", &Value::Null).await;
    let created = |event: &&Value| {
        event["reason"] == "SuccessfulCreate" && event["involvedObject"]["kind"] == "ReplicationController"
    };
    let created = events["items"].as_array().unwrap().iter().filter(created).count();
    assert_eq!(created, 6, "the hand-over of the name creates no pod");
}
