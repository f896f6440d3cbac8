//! The same manifests to kubectl and to the plugin on a real API server, each in a namespace of its own: what the sandbox
//! lacks, such as the schemas by which kubectl validates lists.

use std::path::Path;

use serde_json::Value;
use windlass_testkit::apiserver::{ApiServer, TOKEN, on_a_real_server};

use super::{WIDGET, WIDGETS, map};
use crate::harness::{Ended, PLUGIN};

async fn run(server: &ApiServer, program: &Path, args: &[&str]) -> Ended {
    let mut command = tokio::process::Command::new(program);
    command.args(args).env("KUBECONFIG", server.kubeconfig(TOKEN)).env("HOME", server.file("home"));
    Ended::of(&command.env("LC_ALL", "C.UTF-8").output().await.unwrap())
}

#[test]
#[ignore = "needs KUBEBUILDER_ASSETS with kube-controller-manager and kubectl"]
fn both_create_the_same_on_a_real_server() {
    on_a_real_server(async |assets| {
        let server = ApiServer::start(assets).await;
        let kubectl = assets.join("kubectl");
        for name in ["ours", "theirs"] {
            assert_eq!(run(&server, &kubectl, &["create", "namespace", name]).await.code, Some(0));
        }
        for (code, manifest, flags) in cases() {
            let mut ended = Vec::new();
            for (side, program) in [("ours", Path::new(PLUGIN)), ("theirs", &kubectl)] {
                let file = server.file("manifest.yaml");
                std::fs::write(&file, manifest.replace("SIDE", side)).unwrap();
                let args = [&["create", "-n", side, "-f", file.to_str().unwrap()], flags].concat();
                let Ended { code, out, err } = run(&server, program, &args).await;
                ended.push(Ended { code, out: out.replace(side, "SIDE"), err });
            }
            assert_eq!((&ended[0].out, ended[0].code), (&ended[1].out, Some(code)), "{manifest}: {ended:?}");
            assert_eq!(ended[1].code, Some(code), "{manifest}: {ended:?}");
        }
        let mut kept = Vec::new();
        for side in ["ours", "theirs"] {
            let all = run(&server, &kubectl, &["get", "configmaps", "-n", side, "-o", "json"]).await;
            let all: Value = serde_json::from_str(&all.out).unwrap();
            let data = |map: &Value| (map["metadata"]["name"].clone(), map["data"].clone());
            kept.push(all["items"].as_array().unwrap().iter().map(data).collect::<Vec<_>>());
        }
        assert_eq!(kept[0], kept[1]);
        assert!(kept[0].len() > 8, "{kept:?}");
    });
}

/// Exit codes, manifests and flags.
fn cases() -> Vec<(i32, String, &'static [&'static str])> {
    let item = |name: &str| format!("- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}\n");
    let list = |items: &str| format!("apiVersion: v1\nkind: List\nitems:\n{items}");
    let both = |first: &str, second: &str| format!("{first}---\n{second}");
    let foreign = "apiVersion: x/v1\nkind: Foo\nmetadata: {name: a}\n";
    let unknown = format!("{}colour: red\n", map("u"));
    let widgets = WIDGETS.replace("example.com", "SIDE.com");
    let widget = WIDGET.replace("example.com", "SIDE.com");
    vec![
        (0, both(&map("a"), &map("b")), &[]),
        (0, list(&(item("c") + &item("d"))), &[]),
        (1, list("- {metadata: {name: x}}\n") + &item("x"), &[]),
        (1, both(&list("- {apiVersion: x/v1, kind: Foo, metadata: {name: x}}\n"), &map("e")), &[]),
        (1, both(foreign, &map("f")), &[]),
        (1, both("kind: ConfigMap\nmetadata: {name: x}\n", &map("x")), &[]),
        (1, both(&unknown, &map("g")), &[]),
        (0, unknown.clone(), &["--validate=warn", "--dry-run=server"]),
        (0, unknown, &["--validate=ignore"]),
        (
            0,
            "apiVersion: v1\nkind: ConfigMapList\nitems:\n- {metadata: {name: h}}\n".to_owned(),
            &["--validate=false"],
        ),
        // The server takes a moment to serve a new kind.
        (0, both(&widgets, &widget), &[]),
        (0, map("i") + "data: {a: '1', b: \"<&>\"}\n", &["--save-config", "-o", "name"]),
        (1, both(&widget.replace("size: 1", "size: big"), &map("j")), &[]),
        (1, both("apiVersion: a/b/c\nkind: Foo\nmetadata: {name: x}\n", &map("x")), &[]),
        (1, both("apiVersion: v1\nkind: Foo\nmetadata: {name: x}\n", &map("k")), &[]),
        (1, both("apiVersion: v1\nkind: ConfigMap\n", &map("l")), &[]),
        (0, "apiVersion: v1\nkind: ConfigMapList\nitems:\n- {metadata: {name: m}}\n".to_owned(), &[]),
    ]
}
