//! `create -f`, on a sandbox without controllers. `beside_kubectl` compares it with the real kubectl.

mod beside_kubectl;
mod lost_replies;
mod new_kinds;
mod real_server;
mod urls;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Ended, PLUGIN, Sandbox};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A ConfigMap of this name.
fn map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\n")
}

/// Nothing but an API server, so that everything in it was created by the test.
fn server() -> Sandbox {
    Sandbox::start(&["--no-controllers", "--no-pod-simulator", "--no-garbage-collector"])
}

fn file(sandbox: &Sandbox, name: &str, text: &str) -> String {
    let path: PathBuf = sandbox.file(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The names of the ConfigMaps that the tests made.
fn maps(sandbox: &Sandbox) -> Vec<String> {
    let all = sandbox.get(MAPS);
    let names = all["items"].as_array().unwrap().iter().map(|map| map["metadata"]["name"].as_str().unwrap());
    names.filter(|name| *name != "kube-root-ca.crt").map(str::to_owned).collect()
}

fn with_stdin(sandbox: &Sandbox, args: &[&str], text: &str) -> Ended {
    let mut command = sandbox.command(PLUGIN, args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    Ended::of(&child.wait_with_output().unwrap())
}

#[test]
fn what_is_refused_does_not_hold_up_the_others_and_is_told_at_the_end_in_order() {
    let sandbox = server();
    let path = file(&sandbox, "a.yaml", &["a", "b", "a", "c"].map(map).join("---\n"));
    let broken = file(&sandbox, "b.yaml", &format!("{}---\na: [\n---\n{}", map("d"), map("e")));
    let last = file(&sandbox, "c.json", &json!({"apiVersion": "x/v1", "kind": "Foo"}).to_string());
    let ended = sandbox.plugin(&["create", "-f", &format!("{path},{broken}"), "-f", &last]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let made = ["a", "b", "c", "d"].map(|name| format!("configmap/{name} created\n"));
    assert_eq!(ended.out, made.concat());
    let errors: Vec<&str> = ended.err.lines().collect();
    for (error, parts) in errors.iter().zip([
        [path.as_str(), "document 3", "configmap/a", "already exists"],
        [broken.as_str(), "document 2", "line", "column"],
        [last.as_str(), "document 1", "no kind Foo in x/v1", "CustomResourceDefinition"],
    ]) {
        assert!(parts.iter().all(|part| error.contains(part)), "{error}: {parts:?}");
    }
    assert_eq!((errors.len(), maps(&sandbox)), (3, ["a", "b", "c", "d"].map(str::to_owned).to_vec()));
}

#[test]
fn what_kubectl_takes_and_nobody_means_is_created_and_said() {
    let sandbox = server();
    let text =
        format!("{}data:\n  text: 'first\n  second'\n  x: a\n  x: b\n---\n{}...\nrest\n", map("a"), map("b"));
    let path = file(&sandbox, "a.yaml", &text);
    let warnings = [
        "document 1: data: the key \"x\" occurs twice in one mapping; the last one counts",
        "document 2: the document ends before line 14; the rest up to the next --- is left out",
    ];
    let warnings = warnings.map(|warning| format!("warning: {path}: {warning}\n")).concat();
    for more in [&["--dry-run=server"][..], &["--check-first"]] {
        let ended = sandbox.plugin(&[&["create", "-f", &path], more].concat());
        assert_eq!((ended.code, &ended.err), (Some(0), &warnings), "{ended:?}");
    }
    assert_eq!(maps(&sandbox), ["a", "b"]);
    let data = &sandbox.get(&format!("{MAPS}/a"))["data"];
    assert_eq!(*data, json!({"text": "first second", "x": "b"}));
}

#[test]
fn an_invalid_object_has_a_line_for_each_cause() {
    let sandbox = server();
    let text =
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: -1, selector: {}}\n";
    let ended = sandbox.plugin(&["create", "-f", &file(&sandbox, "web.yaml", text)]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let lines: Vec<&str> = ended.err.lines().collect();
    assert!(lines[0].ends_with("web.yaml: document 1: deployment.apps/web is invalid:"), "{ended:?}");
    assert!(lines[1].starts_with("  spec.replicas: ") && lines.len() > 2, "{ended:?}");
}

#[test]
fn an_unknown_field_is_an_error_a_warning_or_nothing() {
    let sandbox = server();
    let path = file(&sandbox, "a.yaml", &format!("{}colour: red\n", map("a")));
    let create = |more: &[&str]| sandbox.plugin(&[&["create", "-f", &path], more].concat());
    let ended = create(&[]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.err.contains("unknown field \"colour\""), "{ended:?}");
    let ended = create(&["--validate=warn", "--dry-run=server"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.err, "Warning: unknown field \"colour\"\n");
    let ended = create(&["--validate=false"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(maps(&sandbox), ["a"]);
}

#[test]
fn a_dry_run_keeps_nothing_and_a_dry_run_of_the_client_sends_nothing() {
    let sandbox = server();
    let path = file(&sandbox, "a.yaml", &map("a"));
    for (flag, suffix) in [("--dry-run=client", "(dry run)"), ("--dry-run=server", "(server dry run)")] {
        let ended = sandbox.plugin(&["create", "-f", &path, flag]);
        assert_eq!((ended.code, ended.out), (Some(0), format!("configmap/a created {suffix}\n")));
    }
    assert!(maps(&sandbox).is_empty());
    let web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n";
    let web = file(&sandbox, "web.yaml", web);
    assert_eq!(sandbox.plugin(&["create", "-f", &web, "--dry-run=client"]).code, Some(0), "nobody judges it");
    assert_eq!(sandbox.plugin(&["create", "-f", &web, "--dry-run=server"]).code, Some(1));
}

#[test]
fn stdin_is_read_once_and_to_its_end() {
    let sandbox = server();
    let ended = with_stdin(&sandbox, &["create", "-f", "-"], &format!("{}---\n{}", map("a"), map("b")));
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 2), "{ended:?}");
    let ended = with_stdin(&sandbox, &["create", "-f", "-"], "a: [");
    assert!(
        ended.code == Some(1) && ended.err.starts_with("error: standard input: document 1: "),
        "{ended:?}"
    );
    let ended = with_stdin(&sandbox, &["create", "-f", "-,-"], "");
    assert!(ended.code == Some(1) && ended.err.contains("stdin can be read once"), "{ended:?}");
}

#[test]
fn nothing_is_created_if_an_argument_leads_nowhere() {
    let sandbox = server();
    let path = file(&sandbox, "a.yaml", &map("a"));
    let ended = sandbox.plugin(&["create", "-f", &path, "-f", "/no/such", "-f", "/no*such"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 2, "{ended:?}");
    let empty = file(&sandbox, "empty.yaml", "# nothing\n---\n");
    let ended = sandbox.plugin(&["create", "-f", &empty]);
    assert!(ended.code == Some(1) && ended.err.contains("no object to create"), "{ended:?}");
    let ended = sandbox.plugin(&["create", "-f", &path, "-l", "app=b"]);
    assert!(ended.code == Some(1) && ended.err.contains("no object to create"), "{ended:?}");
    assert!(maps(&sandbox).is_empty());
}

#[test]
fn check_first_creates_all_or_nothing() {
    let sandbox = server();
    let bad = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n";
    let path = file(&sandbox, "a.yaml", &format!("{}---\n{bad}", map("a")));
    let ended = sandbox.plugin(&["create", "--check-first", "-f", &path]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.err.contains("nothing is created") && ended.err.contains("spec.selector"), "{ended:?}");
    assert!(maps(&sandbox).is_empty());

    let new = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
    let bad = bad.replace("name: web", "name: web, namespace: shop");
    let path = file(&sandbox, "c.yaml", &format!("{new}---\n{bad}"));
    let ended = sandbox.plugin(&["create", "--check-first", "-f", &path]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.err.contains("c.yaml: document 2: deployment.apps/web is invalid"), "{ended:?}");

    let inside = map("b").replace("name: b,", "name: b, namespace: shop,");
    let path = file(&sandbox, "b.yaml", &[new, &inside, WIDGETS, WIDGET].join("---\n"));
    let ended = sandbox.plugin(&["create", "--check-first", "-f", &path]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.out.lines().count(), 4);
    assert!(ended.err.contains("document 4: not checked: its kind"), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
}

const WIDGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
";
const WIDGET: &str = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 1}\n";

#[test]
fn an_object_may_follow_the_definition_of_its_kind() {
    let sandbox = server();
    // Discovery has been read once, and lacks the kind, when the definition comes.
    let early = WIDGET.replace("name: a", "name: early");
    let path = file(&sandbox, "a.yaml", &[&early, WIDGETS, WIDGET].join("---\n"));
    let ended = sandbox.plugin(&["create", "-f", &path]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.ends_with("widget.example.com/a created\n"), "{ended:?}");
    assert!(ended.err.contains("no kind Widget in example.com/v1 (name early)"), "{ended:?}");
    let other = WIDGET.replace("example.com/v1", "example.com/v2");
    let ended = sandbox.plugin(&["create", "-f", &file(&sandbox, "b.yaml", &other)]);
    assert!(ended.err.contains("the server has example.com in version v1"), "{ended:?}");
    let kustomization =
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n";
    let ended = sandbox.plugin(&["create", "-f", &file(&sandbox, "kustomization.yaml", kustomization)]);
    assert!(ended.code == Some(1) && ended.err.contains("kubectl kustomize DIR |"), "{ended:?}");
}

#[test]
fn without_a_server_there_is_one_error_and_not_one_for_each_object() {
    let sandbox = server();
    let path = file(&sandbox, "a.yaml", &format!("{}---\n{}", map("a"), map("b")));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = sandbox.plugin(&["create", "-f", &path, "-s", &format!("http://{nobody}")]);
    assert_eq!((ended.code, ended.err.lines().count()), (Some(1), 1), "{ended:?}");
    assert!(
        ended.err.contains("no answer from the API server") && ended.err.contains("refused"),
        "{ended:?}"
    );
}

#[test]
fn refused_credentials_are_reported_once() {
    let sandbox = server();
    let path = file(&sandbox, "a.yaml", &format!("{}---\n{}", map("a"), map("b")));
    let web = urls::Web::serve(|_, _| Some(urls::answer("401 Unauthorized", "", "{}")));
    let ended = sandbox.plugin(&["create", "-f", &path, "-s", &format!("http://{}", web.address)]);
    assert_eq!((ended.code, ended.err.lines().count()), (Some(1), 1), "{ended:?}");
    assert!(ended.err.contains("a.yaml: document 1") && ended.err.contains("log in again"), "{ended:?}");
}

#[test]
fn usage_errors_name_the_flag_and_kubectls_own_command() {
    let sandbox = server();
    for (args, part) in [
        (&["-k", "dir"][..], "kubectl kustomize dir | kubectl windlass create -f -"),
        (&["-f", "a", "--edit"], "kubectl create --edit"),
        (&["-f", ""], "-f has an empty name"),
        (&[], "-f"),
        (&["-f", "a", "deployment"], "deployment"),
        (&["-f", "a", "-l", "a in"], "--selector"),
        (&["-f", "a", "--validate=x"], "strict"),
        (&["-f", "a", "--dry-run=x"], "client"),
        (&["-f", "a", "-o", "wide"], "yaml"),
    ] {
        let ended = sandbox.plugin(&[&["create"], args].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains(part), "{part:?}: {ended:?}");
    }
}

#[test]
fn what_is_recorded_is_the_command_without_the_flags_of_the_connection() {
    let sandbox = server();
    let path = file(&sandbox, "a.yaml", &map("a"));
    let ended = sandbox.plugin(&["create", "-f", &path, "--record", "--token=secret", "--save-config"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("--record is deprecated"), "{ended:?}");
    let annotations = sandbox.get(&format!("{MAPS}/a"))["metadata"]["annotations"].clone();
    let line = format!("kubectl windlass create --filename={path} --save-config=true --record=true");
    assert_eq!(annotations["kubernetes.io/change-cause"], line);
    let kept: Value = serde_json::from_str(
        annotations["kubectl.kubernetes.io/last-applied-configuration"].as_str().unwrap(),
    )
    .unwrap();
    assert_eq!(kept["metadata"]["name"], "a");
}

/// A credential plugin that reads stdin to its end would take the manifests away.
#[cfg(unix)]
#[test]
fn a_credential_plugin_does_not_get_the_manifests_from_stdin() {
    let sandbox = server();
    let config = std::fs::read_to_string(sandbox.file("kubeconfig")).unwrap();
    let server = config.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
    let credential =
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}"#;
    let script = format!("cat > {}; echo '{credential}'", sandbox.file("taken").display());
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.trim_matches('"')}}],
        "users": [{"name": "u", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "interactiveMode": "IfAvailable"}}}],
    });
    let config = file(&sandbox, "with-plugin", &config.to_string());
    let ended = with_stdin(&sandbox, &["create", "-f", "-", "--kubeconfig", &config], &map("a"));
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "configmap/a created\n"), "{ended:?}");
    assert_eq!(std::fs::read_to_string(sandbox.file("taken")).unwrap(), "");
}
