//! Manifests played on the embedded API server and on a real one: the answers must be alike.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use kube::core::GroupVersionKind;
use kube::{Client, discovery};
use serde_json::{Value, json};
use windlass_manifest::{Origin, documents, expand};
use windlass_testkit::answers::{RECORDINGS, answer, differences};
use windlass_testkit::apiserver::{ApiServer, on_a_real_server};

/// The environment variable with the folder of [`a_folder_is_answered_alike`].
pub(crate) const FOLDER: &str = "WINDLASS_MANIFESTS";

pub(crate) fn the_recorded_answers_are_those_of_a_real_server() {
    on_a_real_server(async |folder| {
        let mut lines = Vec::new();
        for recording in RECORDINGS {
            let server = match recording.accounts {
                true => ApiServer::start_with_accounts(folder, &[]).await,
                false => ApiServer::start(folder).await,
            };
            let client = server.client().await;
            let mut recorded = recording.read();
            for request in &mut recorded {
                let (got, found) = request.replay(&client).await;
                request.answer = got;
                lines.extend(found.into_iter().map(|line| format!("{}: {line}", recording.file)));
            }
            if std::env::var_os("UPDATE_EXPECT").is_some() {
                recording.write(&recorded);
                lines.clear();
            }
        }
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    });
}

/// Each file on a fresh embedded server, and on the real one in turn, which is cleaned after each.
pub(crate) fn a_folder_is_answered_alike() {
    on_a_real_server(async |assets| {
        let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap_or_else(|| panic!("{FOLDER} is not set")));
        let server = ApiServer::start(assets).await;
        let real = server.client().await;
        let files = files(&folder);
        let (mut alike, mut lines) = (0, Vec::new());
        for file in &files {
            let found = play(&real, file).await;
            alike += usize::from(found.is_empty());
            lines.extend(found.into_iter().map(|line| format!("{}: {line}", file.display())));
        }
        let count = files.len();
        assert!(lines.is_empty(), "{}\n{alike} of {count} files are answered alike", lines.join("\n"));
    });
}

/// The manifests in a folder and below it, by name.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found = BTreeSet::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(files(&path));
        } else if path
            .extension()
            .is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known))
        {
            found.insert(path);
        }
    }
    found
}

/// The differences between the answers to the objects of a file.
async fn play(real: &Client, file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let name = file.to_string_lossy();
    let mut lines = Vec::new();
    let here = RECORDINGS[0].embedded();
    let mut created = Vec::new();
    for (index, document) in documents(&name, &text).into_iter().enumerate() {
        let document = match document {
            Ok(document) => document.value,
            Err(error) => {
                lines.push(format!("not read: {error}"));
                continue;
            }
        };
        for object in expand(&Origin::new(&name, index), document).into_iter().flatten() {
            let object = object.body;
            let [left, right] = [path_of(real, &object).await, path_of(&here, &object).await];
            if left != right {
                lines.push(format!("{}: real: {left:?}, here: {right:?}", object["kind"]));
            }
            let (Ok((path, namespace)), Ok(_)) = (left, right) else { continue };
            if let Some(namespace) = namespace {
                let object = json!({"metadata": {"name": namespace}});
                for client in [real, &here] {
                    answer(client, Method::POST, "/api/v1/namespaces", &object).await;
                }
            }
            let [left, right] = [
                answer(real, Method::POST, &path, &object).await,
                answer(&here, Method::POST, &path, &object).await,
            ];
            let [kind, name] =
                ["/kind", "/metadata/name"].map(|at| object.pointer(at).cloned().unwrap_or_default());
            let [(name, left), (_, right)] = [left, right].map(|answer| {
                // Each server generates another.
                let given = answer["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let is_generated = name.is_null() && !given.is_empty();
                let text = answer.to_string();
                let text = if is_generated { text.replace(&given, "GENERATED") } else { text };
                (given, serde_json::from_str::<Value>(&text).unwrap())
            });
            lines.extend(
                differences(&left, &right, &[]).into_iter().map(|line| format!("{kind} {name}: {line}")),
            );
            if kind == "CustomResourceDefinition" && left["code"] == 201 {
                established(real, &object).await;
            }
            if !name.is_empty() {
                created.push(format!("{path}/{}", name.replace(' ', "%20")));
            }
        }
    }
    for path in created.iter().rev() {
        delete(real, path).await;
    }
    lines
}

/// Waits until a real server serves a new kind.
async fn established(real: &Client, definition: &Value) {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    for version in spec["versions"].as_array().into_iter().flatten().filter(|it| it["served"] == true) {
        let path = format!("/apis/{group}/{}/{plural}", text(&version["name"]));
        let kind = json!({"apiVersion": format!("{group}/{}", text(&version["name"])), "kind": spec["names"]["kind"]});
        for _ in 0..100 {
            let is_served = answer(real, Method::GET, &path, &Value::Null).await["code"] == 200;
            if is_served && path_of(real, &kind).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Deletes an object, and waits until it is gone. The finalizers of volumes go, because no controller removes them.
async fn delete(real: &Client, path: &str) {
    answer(real, Method::DELETE, path, &json!({"gracePeriodSeconds": 0})).await;
    for _ in 0..50 {
        let found = answer(real, Method::GET, path, &Value::Null).await;
        if found["code"] == 404 {
            return;
        }
        let mut object = found["object"].clone();
        if ["PersistentVolume", "PersistentVolumeClaim"].iter().any(|kind| object["kind"] == *kind) {
            object["metadata"]["finalizers"] = json!([]);
            answer(real, Method::PUT, path, &object).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Where an object is created, and the namespace that it needs.
async fn path_of(client: &Client, object: &Value) -> Result<(String, Option<String>), String> {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let kind = GroupVersionKind::gvk(group, version, &kind);
    let (resource, capabilities) =
        discovery::pinned_kind(client, &kind).await.map_err(|_| "no such kind".to_owned())?;
    let is_namespaced = capabilities.scope == discovery::Scope::Namespaced;
    let namespace = is_namespaced.then(|| Some(text("/metadata/namespace")).filter(|name| !name.is_empty()));
    let namespace = namespace.map(|name| name.unwrap_or_else(|| "default".to_owned()));
    let root = if group.is_empty() { "/api" } else { "/apis" };
    let within = namespace.as_ref().map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    Ok((format!("{root}/{api_version}{within}/{}", resource.plural), namespace))
}
