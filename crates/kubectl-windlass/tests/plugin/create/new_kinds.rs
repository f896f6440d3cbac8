//! An API server that takes a while to serve a kind that was just defined, as real ones do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::urls::{Web, answer};
use super::{WIDGET, WIDGETS, file, server};

#[test]
fn an_object_waits_until_the_kind_that_this_run_has_defined_is_served() {
    let sandbox = server();
    let looks = Arc::new(AtomicUsize::new(0));
    let count = looks.clone();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Widget"}, "versions": [{"name": "v1", "served": true}]}});
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
    let resources = |plural: &str, kind: &str| json!({"resources": [{"name": plural, "kind": kind, "namespaced": false}]});
    let web = Web::serve(move |_, line| {
        let (method, path) = line.split_once(' ').unwrap();
        let body = match (method, path.split([' ', '?']).next().unwrap()) {
            (_, "/version") => json!({"major": "1", "minor": "36"}),
            (_, "/apis/apiextensions.k8s.io/v1") => {
                resources("customresourcedefinitions", "CustomResourceDefinition")
            }
            ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions") => definition.clone(),
            ("GET", "/apis/example.com/v1") if count.fetch_add(1, Ordering::SeqCst) >= 3 => {
                resources("widgets", "Widget")
            }
            ("POST", "/apis/example.com/v1/widgets") => widget.clone(),
            _ => return Some(answer("404 Not Found", "", "{}")),
        };
        Some(answer("200 OK", "Content-Type: application/json\r\n", &body.to_string()))
    });
    let address = format!("http://{}", web.address);
    let path = file(&sandbox, "a.yaml", &[WIDGETS, WIDGET].join("---\n"));
    let ended = sandbox.plugin(&["create", "-f", &path, "-s", &address]);
    assert_eq!((ended.code, looks.load(Ordering::SeqCst)), (Some(0), 4), "{ended:?}");
    assert!(ended.out.ends_with("widget.example.com/a created\n"), "{ended:?}");
    // A kind that nobody has defined is looked for once.
    let path = file(&sandbox, "b.yaml", &WIDGET.replace("kind: Widget", "kind: Gadget"));
    let ended = sandbox.plugin(&["create", "-f", &path, "-s", &address]);
    assert_eq!((ended.code, looks.load(Ordering::SeqCst)), (Some(1), 5), "{ended:?}");
}
