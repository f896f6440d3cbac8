//! Completion: by kubectl where there is one, and by the plugin's own protocol.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Ended, Sandbox};
use crate::kubectl::{plugin_directory, run};

const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";

fn create_controller(sandbox: &Sandbox, name: &str) {
    let template = json!({"metadata": {"labels": {"app": name}},
                          "spec": {"containers": [{"name": "main", "image": "api:1"}, {"name": "side", "image": "s:1"}]}});
    let spec = json!({"replicas": 0, "selector": {"app": name}, "template": template});
    let object = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name}, "spec": spec});
    sandbox.call("POST", CONTROLLERS, &object);
}

/// The candidates without their help, and the directive.
fn words(ended: &Ended) -> Vec<String> {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.out.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

#[test]
#[ignore = "needs kubectl"]
fn kubectl_completes_the_plugin_once_the_link_is_installed() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    sandbox.create_web("app:1", &Value::Null);
    create_controller(&sandbox, "old");
    let ask = |line: &[&str]| run(&sandbox, &[&["__complete", "windlass"], line].concat());
    let before = ask(&["explain", ""]);
    assert!(!before.out.contains("web"), "kubectl completes without our help: {before:?}");
    let directory = plugin_directory(&sandbox);
    let plugin = directory.join(format!("kubectl-windlass{}", std::env::consts::EXE_SUFFIX));
    let installed = Ended::of(&sandbox.command(&plugin, &["completion", "install"]).output().unwrap());
    let link = directory.join(format!("kubectl_complete-windlass{}", std::env::consts::EXE_SUFFIX));
    assert!(link.exists() && installed.out.starts_with(&link.display().to_string()), "{installed:?}");

    let objects = ask(&["explain", ""]);
    assert_eq!(words(&objects), ["web", "rc/old", ":4"]);
    assert_eq!(words(&ask(&["status", "deploy/w"])), ["deploy/web", ":4"]);
    assert_eq!(words(&ask(&["expl"])), ["explain", ":4"]);
    let namespaces = words(&ask(&["status", "-n", "kube-"]));
    assert!(namespaces.contains(&"kube-system".to_owned()), "{namespaces:?}");
    assert_eq!(words(&ask(&["status", "-n", "kube-system", "--timeout", "1m", ""])), [":4"]);
    let listed = run(&sandbox, &["plugin", "list"]);
    assert!(!listed.err.contains("warning"), "{listed:?}");
}

#[test]
fn containers_and_revisions_are_those_of_the_named_object() {
    let sandbox = Sandbox::start(&[]);
    create_controller(&sandbox, "old");
    sandbox.create_web("app:1", &Value::Null);
    sandbox.web_reports("NewReplicaSetAvailable");
    sandbox.set_image("app:2");
    sandbox.web_reports("NewReplicaSetAvailable");
    let ask = |line: &[&str]| sandbox.plugin(&[&["__complete"], line].concat());
    let revisions = ask(&["undo", "deploy", "web", "--to-revision", ""]);
    assert_eq!(revisions.out, "2\tapp:2 (current)\n1\tapp:1\n:36\n", "{revisions:?}");
    assert_eq!(ask(&["plan", "deploy/web", "--image", ""]).out, "app=\tapp:2\n:6\n");
    assert_eq!(words(&ask(&["rolling-update", "old", "--image=x", "--container", "s"])), ["side", ":4"]);
    assert_eq!(words(&ask(&["rolling-update", ""])), ["old", ":4"]);
    // Objects that are named already are not offered again, and one object is enough for an undo.
    assert_eq!(words(&ask(&["status", "web", ""])), [":4"]);
    assert_eq!(words(&ask(&["undo", "web", ""])), [":4"]);
}

#[test]
fn a_completion_is_silent_and_short_where_no_server_answers() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    // It accepts connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("--server=http://{}", silent.local_addr().unwrap());
    let started = Instant::now();
    let ended = sandbox.plugin(&["__complete", &server, "explain", ""]);
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (Some(0), ":4\n", ""), "{ended:?}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    let ended = sandbox.plugin(&["__complete", "--context=missing", "explain", ""]);
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (Some(0), ":4\n", ""), "{ended:?}");
}

/// A credential plugin that blocks, as one that waits for a login does.
#[cfg(unix)]
#[test]
fn a_credential_plugin_that_hangs_does_not_hold_the_completion_up() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    let config = sandbox.file("exec.kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n\
                - {name: a, context: {cluster: c, user: u}}\nclusters:\n\
                - {name: c, cluster: {server: 'https://127.0.0.1:1'}}\nusers:\n\
                - name: u\n  user:\n    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      \
                command: sleep\n      args: ['20']\n      interactiveMode: Never\n";
    std::fs::write(&config, text).unwrap();
    let started = Instant::now();
    let ended = sandbox.plugin(&["__complete", "--kubeconfig", config.to_str().unwrap(), "explain", ""]);
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (Some(0), ":4\n", ""), "{ended:?}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn each_command_has_a_manual_page() {
    let sandbox = Sandbox::start(&["--no-controllers"]);
    let directory = sandbox.file("man");
    std::fs::create_dir(&directory).unwrap();
    let ended = sandbox.plugin(&["__man", directory.to_str().unwrap()]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    let page = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let commands = words(&sandbox.plugin(&["__complete", ""]));
    for command in commands.iter().filter(|word| !["watch", "promote", "help", ":4"].contains(&word.as_str()))
    {
        let page = page(&format!("kubectl-windlass-{command}.1"));
        assert!(page.contains(&format!("kubectl windlass {command}").replace('-', "\\-")), "{page}");
        assert!(page.contains("\\-\\-namespace"), "{page}");
    }
    let whole = page("kubectl-windlass.1");
    assert!(whole.contains("explain") && !whole.contains("__complete"), "{whole}");
    assert_eq!(sandbox.plugin(&["__man", "/missing"]).code, Some(1));
}
