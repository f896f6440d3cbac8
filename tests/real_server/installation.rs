//! The shipped manifests on a real kube-apiserver: they are accepted, and their permissions and admission policy allow
//! what the daemon needs and nothing else. The same for the chart rendered with each of its files of values (see
//! `tests/house/manifests.rs`).

use std::path::Path;

use crate::apiserver::becomes;
use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass_testkit::apiserver::{
    self, ApiServer, DAEMON, TOKEN, User, on_a_real_server, run_the_rest_of_the_cluster,
};
use windlass_testkit::controllers::Side;
use windlass_testkit::process::{Process, windlass};
use windlass_testkit::rights;
use windlass_testkit::stage::{self, Seen, Stage, Writes};
use windlass_testkit::{https, manifests, scenarios};

/// The output of `.ci/chart check`.
fn rendered() -> Vec<(String, Vec<Value>)> {
    let rendered = manifests::rendered();
    assert!(!rendered.is_empty(), "WINDLASS_RENDERED must name the output folder of .ci/chart check");
    rendered
}

/// Whether the server accepts an object: a dry run.
async fn dry_run(client: &kube::Client, object: &Value) -> kube::Result<()> {
    let path = format!("{}?dryRun=All&fieldValidation=Strict", manifests::collection(object));
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    client.request::<Value>(request).await.map(drop)
}

/// The namespaces for installations of the chart.
async fn create_namespaces(client: &kube::Client) {
    let namespaces = ["windlass", "shop", "monitoring", "restricted"].map(|name| {
        let enforce = if name == "restricted" { "restricted" } else { "privileged" };
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": name, "labels": {"pod-security.kubernetes.io/enforce": enforce}}})
    });
    rights::create(client, &namespaces).await;
}

pub(crate) fn the_shipped_manifests_are_accepted() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start(folder).await;
        let client = server.client().await;
        for file in ["rbac", "windlass", "networkpolicy", "admissionpolicy"] {
            rights::create(&client, &manifests::file(&format!("deploy/{file}.yaml"))).await;
        }
        create_namespaces(&client).await;
        // The pod security standard, as the admission plugin understands it.
        for object in manifests::file("deploy/windlass.yaml") {
            let template = &object["spec"]["template"];
            if template["spec"].is_object() {
                let metadata = json!({"name": "one", "namespace": "restricted"});
                let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]});
                dry_run(&client, &pod).await.unwrap();
                pod["spec"]["hostNetwork"] = json!(true);
                let refused = dry_run(&client, &pod).await.unwrap_err().to_string();
                assert!(refused.contains("violates PodSecurity"), "{refused}");
            }
        }
    });
}

pub(crate) fn the_rendered_chart_is_accepted() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start(folder).await;
        let client = server.client().await;
        create_namespaces(&client).await;
        // Validated, not stored: the files of values share names.
        for (origin, objects) in rendered() {
            for mut object in objects {
                if object["apiVersion"] == "monitoring.coreos.com/v1" {
                    continue;
                }
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                object["metadata"]["name"] = json!(format!("new-{name}"));
                let answer = dry_run(&client, &object).await;
                assert!(answer.is_ok(), "{origin}: {name}: {answer:?}");
            }
        }
    });
}

/// As the chart names it for the release `windlass` in the namespace `windlass`.
pub(crate) const SCOPED: User = User {
    token: "token-of-a-scoped-daemon",
    name: "system:serviceaccount:windlass:windlass",
    groups: "system:serviceaccounts,system:serviceaccounts:windlass",
};

pub(crate) fn the_chart_gives_a_daemon_of_one_namespace_the_permissions_that_it_needs() {
    for values in ["namespace-windlass", "own-namespace-kube-system"] {
        on_a_real_server(async |folder| {
            let (_, objects) = rendered().into_iter().find(|(origin, _)| origin == values).unwrap();
            let user = if values.starts_with("own") { DAEMON } else { SCOPED };
            let server = ApiServer::start_with(folder, &[user]).await;
            let client = server.client().await;
            let namespace =
                |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            rights::create(&client, &["windlass", "shop", "elsewhere"].map(namespace)).await;
            let kinds = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
            let is_a_right = |object: &&Value| {
                kinds.iter().any(|kind| object["kind"] == *kind)
                    && !object["metadata"]["name"].as_str().unwrap().ends_with("-test")
            };
            rights::create(&client, &objects.iter().filter(is_a_right).cloned().collect::<Vec<_>>()).await;
            let scope = if values.starts_with("own") { "kube-system" } else { "shop" };
            let needed = json!({"verb": "create", "resource": "pods", "namespace": scope});
            rights::wait_until_allowed(&client, user.name, &[needed]).await;
            let end = CancellationToken::new();
            run_the_rest_of_the_cluster(&server, &end).await;

            let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let (config, log) = (server.kubeconfig(user.token), server.file("windlass.log"));
            let own = [
                format!("--kubeconfig={}", config.display()),
                format!("--secure-port={port}"),
                "--bind-address=127.0.0.1".to_owned(),
            ];
            let arguments =
                deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
            let given = arguments.iter().map(|it| it.as_str().unwrap());
            let flags: Vec<&str> = given
                .filter(|flag| !flag.starts_with("--secure-port"))
                .chain(own.iter().map(String::as_str))
                .collect();
            let daemon = Process::start(&windlass(), &flags, &log);
            let stage = Stage::in_namespace(client.clone(), client.clone(), Writes::default(), scope.into());
            let played = tokio::spawn(async move {
                scenarios::a_deployment_rolls_out_and_rolls_back(&stage).await;
            });
            let played = played.await;
            let said = std::fs::read_to_string(&log).unwrap();
            played.unwrap_or_else(|error| panic!("{values}: {}\n{said}", apiserver::said(error)));
            for path in ["/livez", "/readyz"] {
                assert_eq!(https::get(port, path, None).await.0, 200, "{values}: {path}\n{said}");
            }
            let is_of_the_test = |object: &&Value| object["metadata"]["name"] == "windlass-test";
            let of_the_test: Vec<Value> = objects.iter().filter(is_of_the_test).cloned().collect();
            tokio::task::block_in_place(|| run_the_charts_test(folder, &server, &of_the_test, scope));
            // The daemon takes the part of the pod of the bootstrap, which creates the first pods of the Deployment.
            if deployment["metadata"]["namespace"] == scope {
                rights::create(&client, std::slice::from_ref(deployment)).await;
                let stage = Stage::in_namespace(client.clone(), client, Writes::default(), scope.into());
                stage.rolled_out(deployment["metadata"]["name"].as_str().unwrap()).await;
            }
            daemon.terminate();
            end.cancel();
            let audit = server.audit();
            let refused = |event: &&Value| {
                event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("windlass"))
                    && event["responseStatus"]["code"] == 403
            };
            let refused: Vec<&Value> = audit.iter().filter(refused).collect();
            assert!(refused.is_empty(), "{values}: {refused:#?}");
        });
    }
}

/// A pod of the Job that ends well is followed by another, and the budget of the Deployment can be computed.
pub(crate) fn kube_controller_manager_keeps_a_pod_of_the_bootstrap_and_evictions_go_on() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start(folder).await;
        let client = server.client().await;
        rights::create(&client, &manifests::file("deploy/windlass.yaml")).await;
        let end = CancellationToken::new();
        run_the_rest_of_the_cluster(&server, &end).await;
        let (config, log) = (server.kubeconfig(TOKEN), server.file("controllers.log"));
        let controllers = "deployment-controller,disruption-controller,job-controller,replicaset-controller";
        let manager = Side::Upstream.start(folder, &config, controllers, &["--leader-elect=false"], &log);
        let stage =
            Stage::in_namespace(client, server.client().await, Writes::default(), "kube-system".into());
        let ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.filter(|it| it["type"] == "Ready" && it["status"] == "True").count() == 1
        };
        let of = |seen: &Seen, component: &str| {
            let label = "app.kubernetes.io/component";
            let is_of = |pod: &&Value| pod["metadata"]["labels"][label] == component;
            seen.pods.iter().filter(is_of).filter(ready).cloned().collect::<Vec<_>>()
        };
        let both =
            |seen: &Seen| of(seen, "bootstrap").len() == 1 && of(seen, "controller-manager").len() == 2;
        stage.eventually(60, "a pod of the Job and two of the Deployment are ready", both).await;
        let first = stage::name(&of(&stage.seen().await, "bootstrap")[0]).to_owned();
        let path = format!("{}/{first}/status", stage.path("Pod"));
        let ended = json!({"status": {"phase": "Succeeded", "conditions": []}});
        stage.call(Method::PATCH, &path, &ended).await;
        let another = |seen: &Seen| of(seen, "bootstrap").iter().any(|pod| stage::name(pod) != first);
        stage.eventually(60, "another pod of the Job is ready", another).await;
        let budget = "/apis/policy/v1/namespaces/kube-system/poddisruptionbudgets/windlass";
        let is_computed = |budget: &Value| {
            budget["status"]["disruptionsAllowed"] == 1 && budget["status"]["currentHealthy"] == 2
        };
        becomes(&stage, budget, "an eviction is allowed", is_computed).await;
        manager.terminate();
        end.cancel();
    });
}

/// The steps of `helm test`: the pod's containers in turn, with the permissions of its account, here by kubectl.
fn run_the_charts_test(assets: &Path, server: &ApiServer, objects: &[Value], namespace: &str) {
    let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let admin = server.kubeconfig(TOKEN);
    let kubectl = |arguments: &[String]| {
        let own = assets.join("kubectl");
        let program = if own.is_file() { own } else { "kubectl".into() };
        let output = std::process::Command::new(program)
            .env("KUBECONFIG", &admin)
            .env("KUBECACHEDIR", server.file("kubectl"))
            .args(arguments)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
    };
    for kind in ["ServiceAccount", "Role", "RoleBinding"] {
        let file = server.file("rights.json");
        std::fs::write(&file, of(kind).to_string()).unwrap();
        kubectl(&["create".into(), format!("--filename={}", file.display())]);
    }
    let manifest = server.file("deployment.yaml");
    std::fs::write(&manifest, of("ConfigMap")["data"]["deployment.yaml"].as_str().unwrap()).unwrap();
    let spec = &of("Pod")["spec"];
    let steps = ["initContainers", "containers"].map(|list| spec[list].as_array().unwrap().clone()).concat();
    assert!(steps.len() > 5);
    for step in steps {
        let text = |word: &Value| {
            word.as_str().unwrap().replace("/manifests/deployment.yaml", manifest.to_str().unwrap())
        };
        let account = spec["serviceAccountName"].as_str().unwrap();
        let mut arguments = vec![format!("--as=system:serviceaccount:{namespace}:{account}")];
        arguments.extend(step["args"].as_array().unwrap().iter().map(text));
        kubectl(&arguments);
    }
}
