//! The answers of an API server to the creation of objects, in a form in which those of two servers can be compared.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use windlass_apiserver::{Admission, Options, Sandbox};

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Without what a pod needs of its namespace, and without the volume of its token.
const WITHOUT_ACCOUNTS: &[Admission] = &[
    Admission::Priority,
    Admission::DefaultTolerationSeconds,
    Admission::DefaultStorageClass,
    Admission::DefaultIngressClass,
    Admission::DisruptionBudgets,
];

/// Recorded requests that are sent one after the other to a server of their own.
#[derive(Clone, Copy, Debug)]
pub struct Recording {
    /// The file in `tests/cluster/recorded`.
    pub file: &'static str,
    /// Whether pods need a ServiceAccount: there are no controllers that create it.
    pub accounts: bool,
}

/// All of them: objects of each kind and their mistakes; more mistakes, most of them in pods; the rules for Jobs and CronJobs;
/// addresses and ports of Services; warnings; what admission gives and looks up.
pub const RECORDINGS: [Recording; 6] = [
    Recording { file: "objects.json", accounts: false },
    Recording { file: "mistakes.json", accounts: false },
    Recording { file: "jobs.json", accounts: false },
    Recording { file: "services.json", accounts: false },
    Recording { file: "warnings.json", accounts: false },
    Recording { file: "admission.json", accounts: true },
];

impl Recording {
    /// The file's requests and answers.
    pub fn read(self) -> Vec<Recorded> {
        serde_json::from_str(&std::fs::read_to_string(self.path()).unwrap()).unwrap()
    }

    /// Writes them, one request a line.
    pub fn write(self, requests: &[Recorded]) {
        let lines: Vec<String> = requests.iter().map(|request| json!(request).to_string()).collect();
        std::fs::write(self.path(), format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
    }

    fn path(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cluster/recorded").join(self.file)
    }

    /// A client of a fresh embedded API server, without nodes and controllers.
    pub fn embedded(self) -> Client {
        let mut options = Options::new(Arc::new(|| "2026-01-01T00:00:00Z".parse().unwrap()));
        options.admission = if self.accounts { Admission::CLUSTER } else { WITHOUT_ACCOUNTS };
        Client::new(Sandbox::new(options).router(), "default")
    }
}

/// Sends a request with `body`: the code, the warnings, and the object and its line in a table, or else the message.
pub async fn answer(client: &Client, method: Method, path: &str, body: &Value) -> Value {
    answer_as(client, method, path, JSON, body).await
}

async fn answer_as(client: &Client, method: Method, path: &str, content_type: &str, body: &Value) -> Value {
    let (code, warnings, object) = send(client, method.clone(), path, [JSON, content_type], body).await;
    let mut answer = json!({"code": code});
    if !warnings.is_empty() {
        answer["warnings"] = json!(warnings);
    }
    if code >= 300 {
        // Some name an immutable field, and then show how the Go values differ.
        let message = object["message"].as_str().unwrap_or_default();
        let message = message.split("\n@@ ").next().unwrap_or_default();
        // The embedded server says in brackets which field has a value that cannot be read.
        let is_of_go = message.contains(" cannot be handled as a ");
        let message = message.split(" (").next().filter(|_| is_of_go).unwrap_or(message);
        answer["message"] = hide_uids(message).into();
        return answer;
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let path = match method {
        Method::POST => format!("{path}/{}", name.replace(' ', "%20")),
        _ => path.trim_end_matches("/approval").trim_end_matches("/status").to_owned(),
    };
    let (_, _, table) = send(client, Method::GET, &path, [TABLE, JSON], &Value::Null).await;
    let column = |column: &Value| json!([column["name"], column["type"], column["priority"]]);
    let columns = table["columnDefinitions"].as_array().into_iter().flatten();
    answer["columns"] = columns.map(column).collect();
    answer["cells"] = cells(&table, object["metadata"]["uid"].as_str().unwrap_or("-"));
    answer["object"] = stripped(object);
    hide_given(answer, body)
}

/// Without the addresses and node ports that a server gives to a Service which asks for none.
fn hide_given(answer: Value, body: &Value) -> Value {
    let spec = &answer["object"]["spec"];
    let asked = body.to_string();
    let ports = spec["ports"].as_array().into_iter().flatten();
    let given = std::iter::once(&spec["clusterIP"]).chain(ports.map(|port| &port["nodePort"]));
    let given = given
        .map(Value::to_string)
        .filter(|value| value.len() > 4 && value != "\"None\"" && !asked.contains(value));
    let text = given.fold(answer.to_string(), |text, value| match value.trim_matches('"') {
        bare if bare == value => text.replace(&value, "\"PORT\"").replace(":\"PORT\"/", ":PORT/"),
        bare => text.replace(bare, "IP"),
    });
    serde_json::from_str(&text).unwrap()
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    [accept, content_type]: [&str; 2],
    body: &Value,
) -> (u16, Vec<String>, Value) {
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::ACCEPT, accept)
        .header(http::header::CONTENT_TYPE, content_type)
        .body(kube::client::Body::from(body))
        .unwrap();
    let response = client.send(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
    let warnings = response.headers().get_all(http::header::WARNING).iter();
    let warnings = warnings.filter_map(|value| {
        // The code, a dash, and the text in quotes.
        let text = value.to_str().ok()?.strip_prefix("299 - ")?;
        Some(text.trim_matches('"').replace("\\\"", "\""))
    });
    let (code, warnings) = (response.status().as_u16(), warnings.collect());
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (
        code,
        warnings,
        serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| json!({"message": bytes.escape_ascii().to_string()})),
    )
}

/// Without what differs each time: the UID, times, and the metadata that are the server's.
fn stripped(mut object: Value) -> Value {
    // The answer to a deletion has it in the details.
    let uid = object["metadata"]["uid"].as_str().or(object["details"]["uid"].as_str());
    let uid = uid.unwrap_or("-").to_owned();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    let mut stripped: Value = serde_json::from_str(&object.to_string().replace(&uid, "UID")).unwrap();
    hide_times(&mut stripped);
    stripped
}

/// The UIDs in a message, such as that of an object which was not created.
fn hide_uids(message: &str) -> String {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let is_uid = |text: &str| {
        let groups: Vec<&str> = text.split('-').collect();
        groups.len() == GROUPS.len()
            && groups.iter().zip(GROUPS).all(|(group, length)| {
                group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
    };
    let parts = message.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let hidden = parts.map(|part| {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        if is_uid(word) { part.replace(word, "UID") } else { part.to_owned() }
    });
    hidden.collect()
}

fn hide_times(value: &mut Value) {
    match value {
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => *text = "TIME".to_owned(),
        Value::Array(items) => items.iter_mut().for_each(hide_times),
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(hide_times);
        }
        _ => {}
    }
}

/// The first row of a table, without ages.
fn cells(table: &Value, uid: &str) -> Value {
    let cell = |cell: &Value| match cell.as_str() {
        Some(text) if text.parse::<jiff::Timestamp>().is_ok() => json!("TIME"),
        Some(text) if is_span(text) => json!("TIME"),
        Some(text) => json!(text.replace(uid, "UID")),
        None => cell.clone(),
    };
    table["rows"][0]["cells"].as_array().into_iter().flatten().map(cell).collect()
}

/// Whether a cell is a span of time, such as `329d` or `5m30s`.
fn is_span(text: &str) -> bool {
    let is_unit = |c: char| "smhdy".contains(c);
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(is_unit)
        && text.chars().all(|c| c.is_ascii_digit() || is_unit(c))
}

/// A line for each field in which two answers differ, but for those that begin with one of `but_for`.
pub fn differences(real: &Value, here: &Value, but_for: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    compare(real, here, "", &mut lines);
    lines.retain(|line| !but_for.iter().any(|path| line.starts_with(path)));
    lines
}

/// A request of which the answer is recorded.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Recorded {
    /// The thing that it shows.
    pub it: String,
    /// The HTTP method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The media type of the body, JSON if it is absent.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The object.
    pub body: Value,
    /// The beginnings of paths in the answer that are not compared: controllers and the user differ, or nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub but_for: Vec<String>,
    /// The answer of the real server, as [`answer`] gives it.
    #[serde(flatten)]
    pub answer: Value,
}

impl Recorded {
    /// Sends the request: the answer, and its differences from the recorded one.
    pub async fn replay(&self, client: &Client) -> (Value, Vec<String>) {
        let method = self.method.parse().unwrap();
        let content_type = self.content_type.as_deref().unwrap_or(JSON);
        let got = answer_as(client, method, &self.path, content_type, &self.body).await;
        let found = differences(&self.answer, &got, &self.but_for);
        let lines = found.into_iter().map(|line| format!("{}: {line}", self.it)).collect();
        (got, lines)
    }
}

fn compare(real: &Value, here: &Value, path: &str, lines: &mut Vec<String>) {
    match (real, here) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let (left, right) =
                    (left.get(key).unwrap_or(&Value::Null), right.get(key).unwrap_or(&Value::Null));
                compare(left, right, &format!("{path}.{key}"), lines);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                compare(left, right, &format!("{path}[{index}]"), lines);
            }
        }
        _ if real == here => {}
        _ => lines.push(format!("{}\n    real: {real}\n    here: {here}", path.trim_start_matches('.'))),
    }
}
