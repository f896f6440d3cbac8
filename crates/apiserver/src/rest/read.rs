//! GET of one object, and lists in consistent pages.

use std::sync::Arc;

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reply::Reply;
use crate::object::Object;
use crate::params::{Match, Params};
use crate::render::{ListMeta, Renderer};
use crate::request::Request;
use crate::selection::Selection;
use crate::server::Server;
use crate::status::Failure;
use crate::store::{Key, Unreadable};

pub(super) fn get(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let object = server
        .store
        .get(request.kind().storage(), &request.key())
        .ok_or_else(|| Failure::not_found(request.kind(), &request.place.name))?;
    let current = server.store.revision();
    match request.params.resource_version {
        Some(wanted) if wanted > current => Err(Failure::unreadable(wanted, Unreadable::Future { current })),
        _ => Ok(Reply::object(server, request, 200, &object)),
    }
}

pub(super) fn list(server: &Server, request: &Request) -> Result<Reply, Failure> {
    let selection = Selection::of(request)?;
    let (kind, params) = (request.kind(), &request.params);
    let page = Page::of(params)?;
    let listed = server.store.list(kind.storage(), &request.place.namespace, page.after.as_ref(), page.at);
    let snapshot = match (listed, &page.after, page.at) {
        (Ok(snapshot), _, _) => snapshot,
        (Err(Unreadable::Compacted { .. }), Some(after), _) => {
            return Err(Failure::continue_expired(Token { revision: None, after: after.clone() }.encode()));
        }
        (Err(why), _, at) => return Err(Failure::unreadable(at.unwrap_or_default(), why)),
    };
    if let Some(at_least) = page.at_least
        && at_least > snapshot.revision
    {
        return Err(Failure::unreadable(at_least, Unreadable::Future { current: snapshot.revision }));
    }
    let mut matching = snapshot.objects.iter().filter(|(key, object)| selection.matches(key, object));
    let taken: Vec<&(Arc<Key>, Arc<Object>)> = match params.limit {
        0 => matching.by_ref().collect(),
        limit => matching.by_ref().take(limit).collect(),
    };
    let rest = matching.count();
    let mut meta = ListMeta { revision: snapshot.revision, ..ListMeta::default() };
    if let (Some((last, _)), true) = (taken.last(), rest > 0) {
        let token = Token { revision: Some(snapshot.revision), after: Key::clone(last) };
        meta.continue_token = Some(token.encode());
        // Upstream cannot count what a selector leaves out, so the count is omitted then.
        meta.remaining = (!selection.is_partial()).then_some(rest);
    }
    let objects: Vec<Arc<Object>> = taken.into_iter().map(|(_, object)| object.clone()).collect();
    let renderer = Renderer { kind, form: request.form, include: params.include };
    let text = renderer.list(&objects, &meta, (server.options.now)());
    Ok(Reply::text(200, request.form, text))
}

/// Which part of which revision a list is about.
#[derive(Debug, Default)]
struct Page {
    after: Option<Key>,
    /// Exactly this revision; None is the current one.
    at: Option<u64>,
    /// The current one, if it is not older than this.
    at_least: Option<u64>,
}

impl Page {
    /// The rules of the API's concepts page, "the resourceVersion parameter" for lists.
    fn of(params: &Params) -> Result<Self, Failure> {
        let forbidden = |field, why: &str| {
            Err(Failure::invalid_option("ListOptions", field, format!("Forbidden: {why}")))
        };
        if params.send_initial_events.is_some() {
            return forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        if !params.continue_token.is_empty() {
            if params.resource_version.is_some_and(|revision| revision > 0) {
                return Err(Failure::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            if params.resource_version_match.is_some() {
                return forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden when continue is provided",
                );
            }
            let token = Token::decode(&params.continue_token)?;
            return Ok(Page { after: Some(token.after), at: token.revision, at_least: None });
        }
        match (params.resource_version_match, params.resource_version) {
            (Some(_), None) => forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (Some(Match::Exact), Some(0)) => forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
            (Some(Match::Exact), at) => Ok(Page { at, ..Page::default() }),
            // An old rule that paginating clients rely on: a limit makes the revision exact.
            (None, Some(revision)) if revision > 0 && params.limit > 0 => {
                Ok(Page { at: Some(revision), ..Page::default() })
            }
            (_, at_least) => Ok(Page { at_least, ..Page::default() }),
        }
    }
}

/// The content of a continue token. Clients see it as an opaque string.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    /// None: the token of a list whose snapshot is compacted, which continues at the current revision.
    revision: Option<u64>,
    after: Key,
}

impl Token {
    fn encode(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        match serde_json::to_value(ByteString(json)) {
            Ok(Value::String(token)) => token,
            _ => String::new(),
        }
    }

    fn decode(token: &str) -> Result<Self, Failure> {
        serde_json::from_value::<ByteString>(Value::from(token))
            .ok()
            .and_then(|ByteString(json)| serde_json::from_slice(&json).ok())
            .ok_or_else(|| {
                Failure::bad_request("continue key is not valid: this server did not issue the token")
            })
    }
}
