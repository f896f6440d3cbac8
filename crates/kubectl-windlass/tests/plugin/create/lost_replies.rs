//! An API server that closes the connection instead of answering a POST.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::urls::{Web, answer};
use super::{file, map, server};
use crate::harness::Ended;

/// Creates a ConfigMap there. `there` is what the server has afterwards. Returns how often an object was sent, too.
fn create(manifest: &str, there: Value) -> (Ended, usize) {
    let sandbox = server();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let web = Web::serve(move |_, line| {
        let found = match line.split(' ').collect::<Vec<_>>()[..] {
            ["POST", ..] => {
                count.fetch_add(1, Ordering::SeqCst);
                return None;
            }
            [_, path, _] if path.starts_with("/version") => json!({"major": "1", "minor": "36"}),
            [_, "/api/v1", _] => {
                json!({"resources": [{"name": "configmaps", "kind": "ConfigMap", "namespaced": true}]})
            }
            [_, "/api/v1/namespaces/default/configmaps/a", _] if there.is_object() => there.clone(),
            _ => return Some(answer("404 Not Found", "", "{}")),
        };
        Some(answer("200 OK", "Content-Type: application/json\r\n", &found.to_string()))
    });
    let path = file(&sandbox, "a.yaml", manifest);
    let ended = sandbox.plugin(&["create", "-f", &path, "-s", &format!("http://{}", web.address)]);
    (ended, sent.load(Ordering::SeqCst))
}

fn stored(label: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": "a", "namespace": "default", "uid": "1", "labels": {"app": label}}})
}

#[test]
fn an_object_that_is_there_as_it_was_sent_was_created() {
    let (ended, sent) = create(&map("a"), stored("a"));
    assert_eq!((ended.code, ended.out.as_str(), sent), (Some(0), "configmap/a created\n", 1), "{ended:?}");
    assert!(ended.err.contains("the reply was lost"), "{ended:?}");
}

#[test]
fn nothing_is_sent_twice_and_the_user_learns_what_is_there() {
    let generated = map("a").replace("name: a,", "generateName: a-,");
    for (manifest, there, part) in [
        (map("a"), stored("b"), "exists with different content"),
        (map("a"), Value::Null, "it was not created"),
        (generated, Value::Null, "check whether an object with this generateName was created"),
    ] {
        let (ended, sent) = create(&manifest, there);
        assert_eq!((ended.code, ended.out.as_str(), sent), (Some(1), "", 1), "{ended:?}");
        assert!(ended.err.contains(part), "{part:?}: {ended:?}");
    }
}
