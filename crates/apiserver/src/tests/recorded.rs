//! Requests and what a kube-apiserver 1.36 answered to them, about what the server itself gives, fills in, or warns of. The
//! answers were recorded, not written; each file has one request a line. Fields with null are left out.

use serde_json::Map;

use super::*;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Takes out what differs each time: the UID, times, and the metadata that are the server's.
fn stripped(mut object: Value) -> Value {
    let uid = object["metadata"]["uid"].as_str().unwrap_or("-").to_owned();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    let mut stripped: Value = serde_json::from_str(&object.to_string().replace(&uid, "UID")).unwrap();
    hide_times(&mut stripped);
    stripped
}

fn hide_times(value: &mut Value) {
    match value {
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => *text = "TIME".to_owned(),
        Value::Array(items) => items.iter_mut().for_each(hide_times),
        Value::Object(map) => map.values_mut().for_each(hide_times),
        _ => {}
    }
}

/// A row of a table, without ages.
fn row(table: &Value, uid: &str) -> Value {
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    let cell = |cell: &Value| match cell.as_str() {
        Some(text) if text.parse::<jiff::Timestamp>().is_ok() => json!("TIME"),
        Some(text) if text.strip_suffix('s').is_some_and(|age| age.parse::<u32>().is_ok()) => json!("TIME"),
        Some(text) => json!(text.replace(uid, "UID")),
        None => cell.clone(),
    };
    cells.iter().map(cell).collect()
}

/// Addresses and node ports of Services: which may be chosen, which are kept, and which fields follow from the type.
#[tokio::test(start_paused = true)]
async fn services_are_given_addresses_and_ports_as_by_a_real_server() {
    let recorded: Vec<Map<String, Value>> =
        serde_json::from_str(include_str!("recorded_services.json")).unwrap();
    assert!(recorded.len() > 50);
    play(&sandbox(), recorded).await;
}

/// Warnings: a field is deprecated, has no effect, or does something else than it seems.
#[tokio::test(start_paused = true)]
async fn a_request_gets_the_warnings_of_a_real_server() {
    let recorded: Vec<Map<String, Value>> =
        serde_json::from_str(include_str!("recorded_warnings.json")).unwrap();
    assert!(recorded.len() > 40);
    play(&sandbox(), recorded).await;
}

/// Sends the requests and compares the answers; objects and warnings where they were recorded.
pub(super) async fn play(sandbox: &Sandbox, recorded: Vec<Map<String, Value>>) {
    let mut differences = Vec::new();
    for entry in recorded {
        let text = |field: &str| entry[field].as_str().unwrap();
        let method = text("method").parse().unwrap();
        let content_type = entry.get("type").map_or("application/json", |found| found.as_str().unwrap());
        let answer = sandbox.write(method, text("path"), content_type, entry["body"].clone()).await;
        let mut got = json!({"code": answer.code});
        if entry.contains_key("warnings") {
            got["warnings"] = json!(answer.warnings);
        }
        if answer.code < 300 && entry.contains_key("object") {
            let (name, uid) = (&answer.body["metadata"]["name"], answer.body["metadata"]["uid"].clone());
            let name = name.as_str().unwrap();
            let path = match text("method") {
                "POST" => format!("{}/{name}", text("path")),
                _ => text("path").trim_end_matches("/approval").to_owned(),
            };
            let table = sandbox.get_as(&path, TABLE).await.ok();
            let column = |column: &Value| json!([column["name"], column["type"], column["priority"]]);
            got["columns"] = table["columnDefinitions"].as_array().unwrap().iter().map(column).collect();
            got["cells"] = row(&table, uid.as_str().unwrap());
            got["object"] = stripped(answer.body);
        } else if answer.code >= 300 {
            got["message"] = answer.body["message"].clone();
        }
        for (field, value) in got.as_object().unwrap() {
            if entry.get(field) != Some(value) {
                let wanted = entry.get(field).unwrap_or(&Value::Null);
                differences.push(format!("{}: {field}\n  real: {wanted}\n  here: {value}", text("it")));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
