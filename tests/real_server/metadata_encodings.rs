//! A real API server serves the metadata of all kinds in protobuf, and they are those that it serves in JSON.

use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use windlass::model::metadata::Metadata;
use windlass::model::protobuf::{Fields, find, unwrap_object};
use windlass::runtime::request::{METADATA_LIST, METADATA_LIST_PROTOBUF, METADATA_PROTOBUF};
use windlass_testkit::apiserver::{ApiServer, on_a_real_server};
use windlass_testkit::user::send;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const THINGS: &str = "/apis/encodings.example.com/v1/namespaces/default/things";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The media type of an answer, and its body: all of it, or the first chunks of a watch.
async fn read(client: &Client, accept: &str, path: &str, enough: usize) -> (String, Vec<u8>) {
    let request = Request::get(path).header(ACCEPT, accept).body(Body::empty()).unwrap();
    let answer = client.send(request).await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    let media_type = answer.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
    let (mut body, mut bytes) = (answer.into_body(), Vec::new());
    while bytes.len() < enough {
        let Some(frame) = body.frame().await else { break };
        bytes.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
    }
    (media_type, bytes)
}

fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"metadata": {"name": "things.encodings.example.com"},
           "spec": {"group": "encodings.example.com", "scope": "Namespaced",
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
                    "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}}})
}

/// Objects with references and finalizers, one of them on its way out.
async fn fill(client: &Client) {
    send(client, Method::POST, CRDS, &definition()).await.unwrap();
    let owner = send(client, Method::POST, MAPS, &json!({"metadata": {"name": "owner"}})).await.unwrap();
    let mut reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": true,
                               "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true});
    let metadata = |name: &str, reference: &Value| {
        json!({"name": name, "ownerReferences": [reference], "finalizers": ["example.com/keep", "orphan"],
               "labels": {"a": "b"}, "annotations": {"text": "ü".repeat(300)}})
    };
    for name in ["a", "b"] {
        send(client, Method::POST, MAPS, &json!({"metadata": metadata(name, &reference)})).await.unwrap();
    }
    send(client, Method::DELETE, &format!("{MAPS}/b"), &json!({})).await.unwrap();
    reference["blockOwnerDeletion"] = false.into();
    let thing = json!({"apiVersion": "encodings.example.com/v1", "kind": "Thing", "metadata": metadata("t", &reference),
                       "spec": {"deep": [[[{"a": null}]]]}});
    for _ in 0..100 {
        // The kind is served a moment after its definition.
        if send(client, Method::POST, THINGS, &thing).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the kind is not served");
}

/// Every collection that can be listed.
async fn collections(client: &Client) -> Vec<String> {
    let mut all = Vec::new();
    for root in [
        "/api/v1",
        "/apis/apps/v1",
        "/apis/rbac.authorization.k8s.io/v1",
        "/apis/encodings.example.com/v1",
        "/apis/apiextensions.k8s.io/v1",
        "/apis/apiregistration.k8s.io/v1",
        "/apis/coordination.k8s.io/v1",
    ] {
        let found = send(client, Method::GET, root, &Value::Null).await.unwrap();
        for resource in found["resources"].as_array().unwrap() {
            let is_listed = resource["verbs"].as_array().unwrap().iter().any(|verb| verb == "watch");
            if is_listed {
                all.push(format!("{root}/{}", resource["name"].as_str().unwrap()));
            }
        }
    }
    all
}

pub(crate) fn metadata_are_the_same_in_protobuf_and_in_json_for_custom_resources_too() {
    on_a_real_server(async |folder| {
        let server = ApiServer::start(folder).await;
        let client = server.client().await;
        fill(&client).await;
        let (mut kinds, mut objects) = (0, 0);
        for path in collections(&client).await {
            // Leases are renewed meanwhile.
            let mut tries = 0;
            while !compared(&client, &path, &mut objects).await {
                tries += 1;
                assert!(tries < 5, "{path}: the encodings differ");
            }
            kinds += 1;
        }
        assert!(kinds > 20 && objects > 100, "{kinds} kinds, {objects} objects");
        watched(&client, MAPS, &["a", "b", "owner"]).await;
        watched(&client, THINGS, &["t"]).await;
    });
}

/// Whether a collection is the same in both encodings.
async fn compared(client: &Client, path: &str, objects: &mut usize) -> bool {
    let (media_type, protobuf) = read(client, METADATA_LIST_PROTOBUF, path, usize::MAX).await;
    assert_eq!(media_type, PROTOBUF, "{path}");
    let (media_type, json) = read(client, METADATA_LIST, path, usize::MAX).await;
    assert!(media_type.starts_with("application/json"), "{path}: {media_type}");
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["kind"], "PartialObjectMetadataList");
    let texts: Vec<String> =
        json["items"].as_array().into_iter().flatten().map(ToString::to_string).collect();
    let from_json: Vec<_> = texts.iter().map(|text| Metadata::decode(text).unwrap()).collect();
    let list = Fields(unwrap_object(&protobuf).unwrap());
    let items = list.map(Result::unwrap).filter(|(number, _)| *number == 2);
    let from_protobuf: Vec<_> =
        items.map(|(_, item)| Metadata::decode_protobuf(item.bytes().unwrap()).unwrap()).collect();
    *objects += from_json.len();
    from_json == from_protobuf
}

/// A watch begins with what is there.
async fn watched(client: &Client, path: &str, expected: &[&str]) {
    let query = format!(
        "{path}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
                         &resourceVersionMatch=NotOlderThan&timeoutSeconds=2"
    );
    let (media_type, bytes) = read(client, METADATA_PROTOBUF, &query, usize::MAX).await;
    assert_eq!(media_type, format!("{PROTOBUF};stream=watch"));
    let (mut rest, mut names) = (&bytes[..], Vec::new());
    while let Some((length, event)) = rest.split_first_chunk::<4>() {
        let (event, after) = event.split_at(u32::from_be_bytes(*length) as usize);
        rest = after;
        let kind = find(event, 1).unwrap().unwrap().text().unwrap();
        let object = find(find(event, 2).unwrap().unwrap().bytes().unwrap(), 1).unwrap().unwrap();
        let object = unwrap_object(object.bytes().unwrap()).unwrap();
        if kind.as_str() == "ADDED" {
            let object = Metadata::decode_protobuf(object).unwrap();
            let is_owned = object.name.as_str() != "owner" && object.name.as_str() != "kube-root-ca.crt";
            assert_eq!(object.owners.len(), usize::from(is_owned), "{object:?}");
            names.push(object.name.as_str().to_owned());
        }
    }
    names.sort();
    names.retain(|name| name != "kube-root-ca.crt");
    assert_eq!(names, expected);
}
