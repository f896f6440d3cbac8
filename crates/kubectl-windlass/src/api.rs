//! Reads of the API, as plain JSON: no field is lost to a type that is older than the cluster.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{DATE, WARNING};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use windlass::clock::Clock;
use windlass::runtime::request;

use crate::connection::{Connection, explain, unreached};
use crate::text::harmless;
use crate::trace;

/// The objects of a page of a list.
const PAGE: &str = "500";

/// The objects of a page of a list that spans a namespace or the cluster. An informer asks for all at once; a few large
/// pages cost the server less than many small ones, and a page is decoded object by object. One of pods has 50 MB, which
/// a slow line brings in minutes: see [`Limit::EachPart`].
const LARGE_PAGE: &str = "5000";

/// The wait that `--request-timeout` limits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// Of a request with its answer.
    Whole,
    /// For the answer to begin, and for each part of it: a large answer takes long although nothing is wrong.
    EachPart,
}

/// The API server, for one command.
pub struct Api {
    /// The client.
    pub client: kube::Client,
    /// The namespace of the command.
    pub namespace: String,
    /// Its address, for messages.
    server: String,
    /// The longest time that a request may take; zero sets no limit.
    timeout: Duration,
    /// By how many seconds the server's clock is ahead of ours.
    ahead: AtomicI64,
}

/// A failed request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ApiError {
    /// The server answered with an error.
    #[error("{what}: {message}")]
    Refused {
        /// The request, in words.
        what: String,
        /// The HTTP code.
        code: u16,
        /// The machine-readable reason, such as `AlreadyExists`.
        reason: String,
        /// The server's message.
        message: String,
        /// Of an invalid object: each field with what is wrong. The texts are the server's, unchanged.
        causes: Vec<String>,
    },
    /// There is no answer.
    #[error("{what}: {message}")]
    Unanswered {
        /// The request, in words.
        what: String,
        /// The client's report.
        message: String,
    },
}

impl ApiError {
    /// The HTTP code, if there was an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            ApiError::Refused { code, .. } => Some(*code),
            ApiError::Unanswered { .. } => None,
        }
    }

    /// Whether the user lacks a right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.code(), Some(401 | 403))
    }

    /// kube's error, for a request of this description.
    pub fn of(what: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => ApiError::Refused {
                what: what.to_owned(),
                code: status.code,
                reason: status.reason.clone(),
                message: harmless(&status.message),
                causes: Vec::new(),
            },
            other => ApiError::Unanswered { what: what.to_owned(), message: explain(other) },
        }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The object, or whatever else was asked for.
    pub object: Value,
    /// The server's warnings, in its own words.
    pub warnings: Vec<String>,
}

/// A list, and where a watch continues.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// The objects. Each has `kind` and `apiVersion` only if the server sent them.
    pub items: Vec<Value>,
    /// The resourceVersion of the list.
    pub resource_version: String,
}

impl Api {
    /// The API server of a connection.
    pub fn new(connection: Connection, timeout: Duration) -> Self {
        let Connection { client, namespace, namespace_is_enforced: _, server } = connection;
        Api { client, namespace, server, timeout, ahead: AtomicI64::new(0) }
    }

    /// The time, by the server's clock if it differs from ours: ages and deadlines are counted from times that the
    /// server wrote.
    pub fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.ahead.load(Ordering::Relaxed));
        Clock::System.now().saturating_add(ahead).unwrap_or(Timestamp::MAX)
    }

    /// Sends a request and returns the JSON of the answer. `what` describes it in errors.
    ///
    /// # Errors
    /// When there is no answer in time, the server refuses, or the answer is not JSON.
    pub async fn send(&self, what: &str, request: Request<Vec<u8>>) -> Result<Value, ApiError> {
        Ok(self.exchange(what, request).await?.object)
    }

    /// The same, with the server's warnings.
    ///
    /// # Errors
    /// As [`Api::send`].
    pub async fn exchange(&self, what: &str, request: Request<Vec<u8>>) -> Result<Answer, ApiError> {
        let (body, warnings) = self.answer(what, request, Limit::Whole).await?;
        let object = serde_json::from_slice(&body).map_err(|error| not_json(what, &error))?;
        Ok(Answer { object, warnings })
    }

    /// Reads a text, such as the log of a container.
    ///
    /// # Errors
    /// When there is no answer in time, or the server refuses.
    pub async fn text(&self, what: &str, path: &str, query: &[(&str, &str)]) -> Result<String, ApiError> {
        let (body, _) = self.answer(what, request::get_as("*/*", path, query), Limit::Whole).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// The body of an answer that is no refusal, and the warnings.
    async fn answer(
        &self,
        what: &str,
        request: Request<Vec<u8>>,
        limit: Limit,
    ) -> Result<(Bytes, Vec<String>), ApiError> {
        let unanswered = |message: String| ApiError::Unanswered { what: what.to_owned(), message };
        let (method, uri, started) = (request.method().clone(), request.uri().clone(), Instant::now());
        let traced = |outcome: &str| trace::request(&method, &uri, outcome, started.elapsed());
        let limited = |of: Limit| Some(self.timeout).filter(|timeout| limit == of && !timeout.is_zero());
        let part = limited(Limit::EachPart);
        let exchange = async {
            let request = request.map(kube::client::Body::from);
            let response = in_time(part, self.client.send(request)).await??;
            self.set_clock(response.headers().get(DATE).and_then(|date| date.to_str().ok()));
            let code = response.status();
            let headers = response.headers().get_all(WARNING).iter();
            let warnings: Vec<String> =
                headers.filter_map(|warning| warning.to_str().ok()).filter_map(warning_text).collect();
            let mut incoming = response.into_body();
            let mut body = Vec::new();
            while let Some(frame) = in_time(part, incoming.frame()).await.map_err(|_| NoAnswer::NoMore)? {
                if let Ok(data) = frame?.into_data() {
                    body.extend_from_slice(&data);
                }
            }
            Ok::<_, NoAnswer>((code, warnings, Bytes::from(body)))
        };
        let exchanged = in_time(limited(Limit::Whole), exchange).await.and_then(|exchanged| exchanged);
        let (code, warnings, body) = exchanged.map_err(|error| {
            traced("no answer");
            unanswered(match error {
                NoAnswer::InTime => format!("no answer within --request-timeout {:?}", self.timeout),
                NoAnswer::NoMore => {
                    format!("no more of the answer within --request-timeout {:?}", self.timeout)
                }
                NoAnswer::Because(error) => unreached(&error, &self.server),
            })
        })?;
        traced(&code.to_string());
        if code.is_success() {
            return Ok((body, warnings));
        }
        // A body that is no Status is a sentence at most, such as that of a daemon.
        let status: Value = serde_json::from_slice(&body).unwrap_or_else(
            |_| serde_json::json!({"message": String::from_utf8_lossy(&body).lines().next().unwrap_or_default()}),
        );
        let field = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        let mut message = harmless(&field("message"));
        if message.is_empty() || message.starts_with('<') {
            message = format!("the server answered {code}");
        }
        Err(ApiError::Refused {
            what: what.to_owned(),
            code: code.as_u16(),
            reason: field("reason"),
            message,
            causes: causes(&status),
        })
    }

    /// The header has whole seconds, so that less than two say nothing.
    fn set_clock(&self, date: Option<&str>) {
        let Some(server) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) else { return };
        let ahead = server.timestamp().as_second() - Clock::System.now().as_second();
        self.ahead.store(if ahead.abs() < 2 { 0 } else { ahead }, Ordering::Relaxed);
    }

    /// Reads one object; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Api::send`], for everything but 404.
    pub async fn get(&self, what: &str, path: &str) -> Result<Option<Value>, ApiError> {
        match self.send(&format!("cannot read {what}"), request::get(path, &[])).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists the objects at `path`, page by page.
    ///
    /// # Errors
    /// As [`Api::send`].
    pub async fn list(&self, what: &str, path: &str, query: &[(&str, &str)]) -> Result<Listed, ApiError> {
        self.list_pages(what, path, query, (PAGE, Limit::Whole), &|object| Some(object)).await
    }

    /// The same in large pages; of each object only what `keep` returns stays in memory.
    ///
    /// # Errors
    /// As [`Api::send`].
    pub async fn list_kept(
        &self,
        what: &str,
        path: &str,
        query: &[(&str, &str)],
        keep: &(dyn Fn(Value) -> Option<Value> + Sync),
    ) -> Result<Listed, ApiError> {
        self.list_pages(what, path, query, (LARGE_PAGE, Limit::EachPart), keep).await
    }

    async fn list_pages(
        &self,
        what: &str,
        path: &str,
        query: &[(&str, &str)],
        (size, limit): (&str, Limit),
        keep: &(dyn Fn(Value) -> Option<Value> + Sync),
    ) -> Result<Listed, ApiError> {
        let what = format!("cannot list {what}");
        'whole: loop {
            let mut listed = Listed::default();
            let mut token = String::new();
            loop {
                let mut query = query.to_vec();
                query.push(("limit", size));
                if !token.is_empty() {
                    query.push(("continue", &token));
                }
                let body = match self.answer(&what, request::get(path, &query), limit).await {
                    // The pages took so long that the server no longer has the version of the first.
                    Err(error) if error.code() == Some(410) && !token.is_empty() => continue 'whole,
                    answer => answer?.0,
                };
                let page = Page::read(&body, keep, &mut listed.items);
                let page = page.map_err(|error| not_json(&what, &error))?;
                listed.resource_version = page.resource_version.unwrap_or_default();
                token = page.continues.unwrap_or_default();
                if token.is_empty() {
                    return Ok(listed);
                }
            }
        }
    }
}

/// Why there is no answer.
enum NoAnswer {
    InTime,
    /// A part came, and the next one did not.
    NoMore,
    Because(Box<kube::Error>),
}

impl From<kube::Error> for NoAnswer {
    fn from(error: kube::Error) -> Self {
        NoAnswer::Because(Box::new(error))
    }
}

/// The result of a future, if it is there within this time.
async fn in_time<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Result<T, NoAnswer> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, future).await.map_err(|_| NoAnswer::InTime),
        None => Ok(future.await),
    }
}

/// The metadata of a page of a list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(default, rename = "continue")]
    continues: Option<String>,
}

/// A page whose objects are not decoded yet.
#[derive(Deserialize)]
struct RawPage<'a> {
    #[serde(default)]
    metadata: Page,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

impl Page {
    /// Decodes the objects of a page one by one, since together they take five times the memory of the answer.
    fn read(
        body: &[u8],
        keep: &(dyn Fn(Value) -> Option<Value> + Sync),
        items: &mut Vec<Value>,
    ) -> Result<Self, serde_json::Error> {
        let page: RawPage<'_> = serde_json::from_slice(body)?;
        for item in page.items.unwrap_or_default() {
            items.extend(keep(serde_json::from_str(item.get())?));
        }
        Ok(page.metadata)
    }
}

fn not_json(what: &str, error: &serde_json::Error) -> ApiError {
    ApiError::Unanswered { what: what.to_owned(), message: format!("the answer is not JSON: {error}") }
}

/// The text of a `Warning` header: `299 - "text"`, with a backslash in front of quotation marks and backslashes.
fn warning_text(header: &str) -> Option<String> {
    let (_, quoted) = header.split_once('"')?;
    let mut text = String::new();
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => text.push(rest.next()?),
            c => text.push(c),
        }
    }
}

/// The causes that a `Status` gives for the fields of an invalid object.
fn causes(status: &Value) -> Vec<String> {
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap_or_default().to_owned();
    let shown = causes.map(|cause| match text(cause, "field") {
        field if field.is_empty() => text(cause, "message"),
        field => format!("{field}: {}", text(cause, "message")),
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_warning_is_what_stands_in_quotes() {
        assert_eq!(warning_text(r#"299 - "unknown field \"a\\b\"""#).unwrap(), r#"unknown field "a\b""#);
        assert_eq!(warning_text(r#"299 - "endless"#), None);
        assert_eq!(warning_text("299"), None);
    }

    #[test]
    fn a_cause_names_its_field_if_it_has_one() {
        let status =
            json!({"details": {"causes": [{"field": "spec.a", "message": "bad"}, {"message": "worse"}]}});
        assert_eq!(causes(&status), ["spec.a: bad", "worse"]);
        assert!(causes(&json!({"details": null})).is_empty());
    }
}
