//! `/statusz` and `/flagz`: what runs, since when, and with which flags, as the components of Kubernetes serve them
//! (KEP-4827, KEP-4828): for people as text, for programs as an object of `config.k8s.io`.

use std::collections::BTreeMap;

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use super::router::plain;
use crate::clock::Clock;
use crate::version;

/// The component, as the pages name it.
const COMPONENT: &str = "windlass";

/// The media types that are served.
const ACCEPTED: [&str; 3] = ["application/json", "application/yaml", "text/plain"];

/// The first parts of all paths that are served, in their order.
const PATHS: [&str; 8] =
    ["/configz", "/debug", "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz"];

/// Both pages. `settings` are the flags in force, by name; no secret is among them.
pub fn zpages(clock: Clock, settings: &Value) -> Router {
    let started = clock.now();
    let flags = settings.as_object().map(flags).unwrap_or_default();
    let status = move |headers: HeaderMap| async move {
        let up = clock.now().duration_since(started).as_secs().max(0);
        let text = || status_text(started, up);
        answer(&headers, "Statusz", text, || {
            json!({"startTime": whole(started), "uptimeSeconds": up, "binaryVersion": version::version(),
                "paths": PATHS})
        })
    };
    let flagz = move |headers: HeaderMap| async move {
        let lines = || flags.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        answer(&headers, "Flagz", lines, || json!({ "flags": flags }))
    };
    Router::new().route("/statusz", get(status)).route("/flagz", get(flagz))
}

fn whole(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn status_text(started: Timestamp, up: i64) -> String {
    let since = started.to_zoned(TimeZone::UTC).strftime("%a %b %e %H:%M:%S %Z %Y").to_string();
    let (version, paths) = (version::version(), PATHS.join(" "));
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    format!(
        "\nStarted: {since}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nBinary version: {version}\nPaths: {paths}\n"
    )
}

/// The flags as text, as a command line has them.
fn flags(settings: &Map<String, Value>) -> BTreeMap<String, String> {
    fn text(value: &Value) -> String {
        match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(","),
            other => other.to_string(),
        }
    }
    settings.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

/// The answer in the form that the client asks for.
fn answer(
    headers: &HeaderMap,
    kind: &str,
    text: impl FnOnce() -> String,
    fields: impl FnOnce() -> Value,
) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    let Some(form) = negotiate(accept, kind) else { return not_acceptable() };
    let (media_type, version) = match form {
        Form::Text => {
            let head = format!(
                "\n{COMPONENT} {}\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
                 compatibility guarantees and is for debugging purposes only.\n",
                kind.to_ascii_lowercase()
            );
            return plain(StatusCode::OK, head + &text());
        }
        Form::Object { media_type, version } => (media_type, version),
    };
    let mut object = json!({"kind": kind, "apiVersion": format!("config.k8s.io/{version}"),
        "metadata": {"name": COMPONENT}});
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields()) {
        object.extend(fields);
    }
    // JSON is YAML, too.
    let body = format!("{object:#}\n");
    let mut response = ([(header::CONTENT_TYPE, media_type)], body).into_response();
    if version == "v1alpha1" {
        let page = kind.to_ascii_lowercase();
        let warning = format!(
            "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
        );
        let warning = HeaderValue::from_str(&warning).ok();
        warning.into_iter().for_each(|warning| {
            response.headers_mut().insert(header::WARNING, warning);
        });
    }
    response
}

fn not_acceptable() -> Response {
    let message = format!("only the following media types are accepted: {}", ACCEPTED.join(", "));
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "NotAcceptable", "code": 406});
    let headers = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::NOT_ACCEPTABLE, headers, format!("{status:#}\n")).into_response()
}

/// The form of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Form {
    /// For people.
    Text,
    /// An object of this version.
    Object { media_type: &'static str, version: &'static str },
}

/// The first form that the client accepts, by its order of preference. An object has to be asked for with its group, version
/// and kind.
fn negotiate(accept: &str, kind: &str) -> Option<Form> {
    if accept.trim().is_empty() {
        return Some(Form::Text);
    }
    let mut clauses: Vec<(f32, Form)> = accept.split(',').filter_map(|clause| read(clause, kind)).collect();
    clauses.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    clauses.into_iter().map(|(_, form)| form).next()
}

/// One clause of an Accept header, with its weight.
fn read(clause: &str, kind: &str) -> Option<(f32, Form)> {
    let mut parts = clause.split(';').map(str::trim);
    let media_type = parts.next()?;
    let parameters: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
    let weight = parameters.get("q").map_or(Some(1.0), |q| q.parse().ok())?;
    let form = match media_type {
        "*/*" | "text/*" | "text/plain" => Form::Text,
        _ => {
            let media_type = ACCEPTED[..2].iter().find(|accepted| **accepted == media_type)?;
            let named = |name| parameters.get(name).copied();
            if named("g") != Some("config.k8s.io") || named("as") != Some(kind) {
                return None;
            }
            let version = ["v1beta1", "v1alpha1"].into_iter().find(|version| named("v") == Some(version))?;
            Form::Object { media_type, version }
        }
    };
    (weight > 0.0).then_some((weight, form))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(path: &str, accept: &str) -> (u16, String, String) {
        let settings =
            json!({"kube-api-qps": 20.5, "controllers": ["*", "-gc"], "kubeconfig": null, "v": "2"});
        let clock = Clock::virtual_from("2026-01-02T03:04:05Z".parse().unwrap());
        let app = zpages(clock, &settings);
        tokio::time::advance(std::time::Duration::from_secs(3725)).await;
        let request = axum::http::Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
        let response = app.oneshot(request).await.unwrap();
        let warning =
            response.headers().get("warning").map_or("", |warning| warning.to_str().unwrap()).to_owned();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap(), warning)
    }

    #[tokio::test(start_paused = true)]
    async fn people_get_text() {
        for accept in ["", "*/*", "text/html, */*;q=0.1"] {
            let (code, text, _) = ask("/statusz", accept).await;
            assert_eq!(code, 200);
            assert!(text.starts_with("\nwindlass statusz\nWarning: This endpoint"), "{text}");
            assert!(
                text.contains("\nStarted: Fri Jan  2 03:04:05 UTC 2026\nUp: 1 hr 02 min 05 sec\n"),
                "{text}"
            );
            assert!(text.contains("\nPaths: /configz /debug /flagz "), "{text}");
        }
        let (_, text, _) = ask("/flagz", "").await;
        assert!(text.contains("only.\ncontrollers=*,-gc\nkube-api-qps=20.5\nkubeconfig=\nv=2\n"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn programs_get_the_object_that_they_name() {
        let beta = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
        let (code, text, warning) = ask("/statusz", beta).await;
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, &*warning), (200, ""));
        assert_eq!(object["apiVersion"], "config.k8s.io/v1beta1");
        assert_eq!(object["metadata"]["name"], "windlass");
        assert_eq!(object["startTime"], "2026-01-02T03:04:05Z");
        assert_eq!(object["uptimeSeconds"], 3725);
        let alpha = "application/yaml; v=v1alpha1; g=config.k8s.io; as=Flagz";
        let (code, text, warning) = ask("/flagz", alpha).await;
        assert_eq!(code, 200);
        assert!(text.contains("\"kube-api-qps\": \"20.5\""), "{text}");
        assert!(warning.contains("flagz endpoint is deprecated"), "{warning}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_not_named_in_full_is_refused() {
        for accept in ["application/json", "application/json;v=v9;g=config.k8s.io;as=Statusz", "text/html"] {
            let (code, text, _) = ask("/statusz", accept).await;
            assert_eq!(code, 406, "{accept}");
            assert!(text.contains("application/json, application/yaml, text/plain"), "{text}");
        }
    }

    #[test]
    fn the_form_with_the_largest_weight_wins() {
        let object = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
        assert_eq!(
            negotiate(&format!("text/plain;q=0.5, {object}"), "Statusz"),
            read(object, "Statusz").map(|(_, form)| form)
        );
        assert_eq!(negotiate(&format!("text/plain, {object};q=0.5"), "Statusz"), Some(Form::Text));
        assert_eq!(negotiate("text/plain;q=0", "Statusz"), None);
    }
}
