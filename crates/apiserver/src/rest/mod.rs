//! The requests, from the wire to the store and back.
//!
//! Everything between reading a body and writing an answer is synchronous: a write computes the next
//! state from the stored one and commits it if that is still stored, else starts again. Only watches
//! and injected delays wait.

mod apply;
mod body;
pub(crate) mod counts;
mod create;
mod definitions;
mod delete;
mod documents;
mod evict;
mod logs;
mod operations;
mod ownership;
mod patch;
mod profiles;
mod read;
mod reply;
mod reviews;
mod scale;
pub(crate) mod strategy;
mod subresources;
mod update;

pub(crate) use create::insert;
pub(crate) use definitions::follow as follow_definitions;
pub(crate) use reply::Reply;

use reply::Content;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, IF_NONE_MATCH, USER_AGENT};
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio_util::sync::CancellationToken;

use super::collect;
use super::fault_injection::{ConnectionLost, FaultDecision, RequestInfo};
use super::kinds::Subresource;
use super::negotiate::{Form, Offer, negotiate};
use super::object::to_bytes;
use super::params::Params;
use super::protobuf;
use super::request::{self, Document, Request, Target, Verb};
use super::server::Server;
use super::status::Failure;
use super::watch;
use crate::openapi;

/// A larger body is refused, as a real server does.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// The command that kubectl carries out (KEP-859).
const KUBECTL_COMMAND: HeaderName = HeaderName::from_static("kubectl-command");

/// How long a request waits for the account `default` of a new namespace: upstream's plugin looks ten times.
const ACCOUNT_WAITS: u32 = 9;
const ACCOUNT_WAIT: Duration = Duration::from_millis(150);

/// Answers one request. `closing` is cancelled when its connection's server goes down.
pub(crate) async fn answer(
    server: Arc<Server>,
    closing: CancellationToken,
    request: axum::extract::Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(failure) => return Reply::from(failure).into_response(),
    };
    let incoming = match Incoming::parse(&server, &parts, body) {
        Ok(incoming) => incoming,
        Err(failure) => return Reply::from(failure).into_response(),
    };
    let fault_injector = server.fault_injector.read().clone();
    let decision = fault_injector
        .map_or(FaultDecision::Proceed, |fault_injector| fault_injector(&incoming.info(&parts)));
    let (verb, path) = (incoming.verb(&parts), parts.uri.path().to_owned());
    let perform = move || incoming.perform(&server, closing.clone());
    let reply = match decision {
        FaultDecision::Proceed => {
            let mut reply = perform();
            for _ in 0..ACCOUNT_WAITS {
                if !reply.is_premature {
                    break;
                }
                tokio::time::sleep(ACCOUNT_WAIT).await;
                reply = perform();
            }
            reply
        }
        FaultDecision::Refuse { code, message, reason } => Failure::new(code, reason, message).into(),
        FaultDecision::RetryAfter { code, seconds, carried_out } => {
            if carried_out {
                perform();
            }
            let reply = Reply::from(Failure::asks_to_wait(code, seconds));
            let mut response = reply.into_response();
            response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
            return response;
        }
        FaultDecision::LoseRequest => return lost(),
        FaultDecision::LoseReply => {
            perform();
            return lost();
        }
        FaultDecision::Delay(time) => {
            // On a task of its own, so that it happens even if the client hangs up meanwhile: a late
            // write is what this fault is for.
            let task = tokio::spawn(async move {
                tokio::time::sleep(time).await;
                perform()
            });
            match task.await {
                Ok(reply) => reply,
                Err(error) => Failure::internal(error).into(),
            }
        }
        FaultDecision::DelayReply(time) => {
            let reply = perform();
            tokio::time::sleep(time).await;
            reply
        }
    };
    tracing::debug!(verb, path, code = reply.code, "request");
    reply.into_response()
}

/// Carries out a request of the server itself, which no fault hits.
pub(crate) fn carry_out(server: &Arc<Server>, request: http::Request<Vec<u8>>) {
    let (parts, body) = request.into_parts();
    // A refusal shows that the object has changed: it is looked at again.
    if let Ok(incoming) = Incoming::parse(server, &parts, body.into()) {
        incoming.perform(server, CancellationToken::new());
    }
}

/// An answer that breaks off. The status is a success on purpose: a client that does not read the body
/// to its end would otherwise take the loss for a refusal.
fn lost() -> Response {
    Response::new(Body::from_stream(futures::stream::once(async { Err::<Bytes, _>(ConnectionLost) })))
}

async fn read_body(body: Body) -> Result<Bytes, Failure> {
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::too_large(BODY_LIMIT)),
        Err(error) => Err(Failure::bad_request(format!("cannot read the request body: {error}"))),
    }
}

/// A parsed request.
enum Incoming {
    Object(Box<Request>),
    Document { document: Document, form: Form, pretty: bool, body: Bytes, known: String },
}

impl Incoming {
    fn parse(server: &Server, parts: &Parts, body: Bytes) -> Result<Self, Failure> {
        let target = request::resolve(parts.uri.path(), &server.registry.read())?;
        let params = Params::parse(&parts.method, &parts.uri)?;
        let accept = header(&parts.headers, &ACCEPT);
        // To people, unless they say otherwise.
        let is_read_by_people =
            |agent: &str| ["curl", "Wget", "Mozilla/5.0"].iter().any(|one| agent.starts_with(one));
        let user_agent = header(&parts.headers, &USER_AGENT);
        let pretty = params.pretty.unwrap_or_else(|| is_read_by_people(user_agent));
        let params = Params { pretty: Some(pretty), ..params };
        match target {
            Target::Place(place) => {
                let is_read = parts.method == http::Method::GET && place.subresource.is_none();
                let protobuf_metadata = server.options.protobuf && is_read;
                // Their table is complete.
                let protobuf = protobuf_metadata && place.kind.protobuf;
                let form = negotiate(accept, Offer { aggregated: false, protobuf, protobuf_metadata })?;
                let verb = request::verb(&parts.method, &place, params.watch)?;
                if verb == Verb::Watch && form == Form::Yaml {
                    return Err(Failure::not_acceptable(&[
                        "application/json;stream=watch",
                        "application/vnd.kubernetes.protobuf;stream=watch",
                    ]));
                }
                match (&params.bad_version, verb) {
                    (Some(why), Verb::List) => {
                        return Err(Failure::bad_request(format!("invalid resource version: {why}")));
                    }
                    // Only a list checks it before the store does.
                    (Some(why), Verb::Get | Verb::Watch) => return Err(Failure::unknown(why)),
                    _ => {}
                }
                let (content_type, body) = json_body(header(&parts.headers, &CONTENT_TYPE), body)?;
                let user_agent = user_agent.to_owned();
                let request = Request { verb, place, params, form, content_type, user_agent, body };
                Ok(Incoming::Object(Box::new(request)))
            }
            Target::Document(document) => {
                if parts.method != http::Method::GET && parts.method != http::Method::HEAD {
                    return Err(Failure::method_not_allowed());
                }
                let aggregated = matches!(document, Document::CoreVersions | Document::Groups);
                // Clients request health and OpenAPI with all kinds of Accept headers.
                let form = if aggregated {
                    negotiate(accept, Offer { aggregated: true, ..Offer::default() })?
                } else if document == Document::OpenApiV2 && accept.contains(openapi::V2_ACCEPTED) {
                    Form::Protobuf
                } else {
                    Form::Plain
                };
                let known = header(&parts.headers, &IF_NONE_MATCH).to_owned();
                let is_top = header(&parts.headers, &KUBECTL_COMMAND).starts_with("kubectl top ");
                let document = match document {
                    Document::Groups if is_top => Document::GroupsWithMetrics,
                    Document::Health { check, .. } => Document::Health { check, verbose: params.verbose },
                    other => other,
                };
                Ok(Incoming::Document { document, form, pretty, body, known })
            }
        }
    }

    fn verb(&self, parts: &Parts) -> &'static str {
        match self {
            Incoming::Object(request) => request.verb.name(),
            Incoming::Document { .. } if parts.method == http::Method::HEAD => "head",
            Incoming::Document { .. } => "get",
        }
    }

    fn info(&self, parts: &Parts) -> RequestInfo {
        let (place, body, content_type) = match self {
            Incoming::Object(request) => (Some(&request.place), &request.body, request.content_type.as_str()),
            Incoming::Document { body, .. } => (None, body, header(&parts.headers, &CONTENT_TYPE)),
        };
        RequestInfo {
            verb: self.verb(parts),
            group: place.map_or("", |place| place.kind.group),
            kind: place.map_or("", |place| place.kind.kind),
            namespace: place.map(|place| place.namespace.clone()).unwrap_or_default(),
            name: place.map(|place| place.name.clone()).unwrap_or_default(),
            subresource: place.and_then(|place| place.subresource).map_or("", Subresource::name),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            content_type: content_type.to_owned(),
            user_agent: header(&parts.headers, &USER_AGENT).to_owned(),
            body: body.clone(),
        }
    }

    fn perform(&self, server: &Arc<Server>, closing: CancellationToken) -> Reply {
        let (outcome, pretty, aggregated) = match self {
            Incoming::Object(request) => {
                let before = server.store.revision();
                let reply = object_reply(server, closing, request);
                if definitions::concerns(server, request) {
                    definitions::follow(server);
                }
                if server.options.collect_after.is_some()
                    && server.store.revision() != before
                    && collect::concerns(server, request)
                {
                    collect::soon(server, carry_out);
                }
                (reply, request.params.pretty.unwrap_or_default(), None)
            }
            Incoming::Document { document, form, pretty, known, .. } => {
                let aggregated = (*form == Form::AggregatedDiscovery).then_some(known);
                (documents::reply(&server.registry.read(), document, *form), *pretty, aggregated)
            }
        };
        let mut reply = outcome.unwrap_or_else(Reply::from);
        if let Incoming::Object(request) = self
            && !request.kind().deprecated.is_empty()
        {
            reply.warnings.insert(0, request.kind().deprecated.to_owned());
        }
        let reply = match self {
            Incoming::Object(request) if request.form == Form::Yaml => reply.in_yaml(),
            _ if pretty => reply.prettified(),
            _ => reply,
        };
        match aggregated {
            Some(known) => reply.tagged(known),
            None => reply,
        }
    }
}

/// A body in protobuf or YAML becomes one in JSON here, so that nothing else has to know of them.
fn json_body(content_type: &str, body: Bytes) -> Result<(String, Bytes), Failure> {
    if content_type.split(';').next().is_some_and(|media| media.trim() == "application/yaml") {
        let object = body::read_yaml(&body)
            .map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))?;
        return Ok(("application/json".to_owned(), to_bytes(&object)));
    }
    if !content_type.starts_with(protobuf::MEDIA_TYPE) || body.is_empty() {
        return Ok((content_type.to_owned(), body));
    }
    let object = protobuf::to_json(&body).map_err(|error| match error {
        protobuf::Error::Malformed => Failure::bad_request(error.to_string()),
        _ => Failure::unsupported_media_type(error.to_string()),
    })?;
    Ok(("application/json".to_owned(), to_bytes(&object)))
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn object_reply(
    server: &Arc<Server>,
    closing: CancellationToken,
    request: &Request,
) -> Result<Reply, Failure> {
    refuse_conversion(server, request)?;
    ownership::check_manager(request)?;
    match (request.verb, request.place.subresource) {
        (Verb::Watch, _) => {
            let content = Content::Stream(watch::open(server, closing, request)?);
            let content_type = request.form.watch_content_type();
            Ok(Reply {
                code: 200,
                content_type,
                content,
                warnings: Vec::new(),
                etag: None,
                is_premature: false,
            })
        }
        (
            _,
            Some(
                sub @ (Subresource::Exec
                | Subresource::Attach
                | Subresource::PortForward
                | Subresource::EphemeralContainers
                | Subresource::Resize
                | Subresource::Token),
            ),
        ) => Err(logs::refuse(sub)),
        (Verb::Get, Some(Subresource::Log)) => logs::log(server, request),
        (Verb::Get, Some(Subresource::Scale)) => scale::get(server, request),
        (Verb::Get, _) => read::get(server, request),
        (Verb::List, _) => read::list(server, request),
        (Verb::Create, Some(Subresource::Binding)) => subresources::bind(server, request),
        (Verb::Create, Some(_)) => evict::evict(server, request),
        (Verb::Create, None) if request.kind().is_review() => reviews::answer(request),
        (Verb::Create, None) => create::create(server, request),
        (Verb::Update, Some(Subresource::Scale)) => scale::update(server, request),
        (Verb::Update, _) => update::update(server, request),
        (Verb::Patch, Some(Subresource::Scale)) => scale::patch(server, request),
        (Verb::Patch, _) => patch::patch(server, request),
        (Verb::Delete, _) => delete::delete(server, request),
        (Verb::DeleteCollection, _) => delete::delete_collection(server, request),
    }
}

/// Whoever reads or writes objects in a version that a webhook would have to convert gets an error, as where no webhook
/// answers. Lists are possible as long as there are no objects.
fn refuse_conversion(server: &Server, request: &Request) -> Result<(), Failure> {
    let kind = request.kind();
    let Some(custom) = kind.custom.filter(|custom| custom.needs_webhook) else { return Ok(()) };
    let is_empty =
        || server.store.list(kind.storage(), "", None, None).is_ok_and(|all| all.objects.is_empty());
    if matches!(request.verb, Verb::List | Verb::Watch) && is_empty() {
        return Ok(());
    }
    let (stored, name) = (&custom.storage_version, kind.kind);
    Err(Failure::internal(format!(
        "conversion webhook for {stored}, Kind={name} failed: this server calls no webhooks"
    )))
}
