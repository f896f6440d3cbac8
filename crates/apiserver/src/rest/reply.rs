//! The answers to requests.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, HeaderValue, WARNING};
use serde_json::Value;

use crate::negotiate::Form;
use crate::object::{Object, to_bytes};
use crate::render::Renderer;
use crate::request::Request;
use crate::server::Server;
use crate::status::Failure;

/// The answer to a request that was carried out.
pub(crate) struct Reply {
    pub(super) code: u16,
    pub(super) content_type: &'static str,
    pub(super) content: Content,
    pub(super) warnings: Vec<String>,
    /// The value that a client may send back to ask whether the answer has changed.
    pub(super) etag: Option<HeaderValue>,
    /// Whether the request is to be tried again in a moment, see [`Failure::is_premature`].
    pub(super) is_premature: bool,
}

pub(super) enum Content {
    Text(Bytes),
    Stream(Body),
}

impl Reply {
    pub(super) fn json(code: u16, text: Bytes) -> Self {
        Reply::text(code, Form::Plain, text)
    }

    /// An answer that was rendered in this form.
    pub(super) fn text(code: u16, form: Form, text: Bytes) -> Self {
        let content_type = form.content_type();
        let content = Content::Text(text);
        Reply { code, content_type, content, warnings: Vec::new(), etag: None, is_premature: false }
    }

    /// Lines of text.
    pub(super) fn plain(text: String) -> Self {
        let content_type = "text/plain; charset=utf-8";
        Reply {
            code: 200,
            content_type,
            content: Content::Text(text.into()),
            warnings: Vec::new(),
            etag: None,
            is_premature: false,
        }
    }

    pub(super) fn value(code: u16, value: &Value) -> Self {
        Self::json(code, to_bytes(value))
    }

    /// An object in the requested form.
    pub(super) fn object(server: &Server, request: &Request, code: u16, object: &Object) -> Self {
        let renderer = Renderer { kind: request.kind(), form: request.form, include: request.params.include };
        Self::text(code, request.form, renderer.object(object, (server.options.now)(), true))
    }

    pub(super) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }

    /// With the ETag of its text, or with the ETag alone for a client that knows the text already.
    pub(super) fn tagged(mut self, known: &str) -> Self {
        let Content::Text(text) = &mut self.content else { return self };
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let etag = format!("\"{:016X}\"", hasher.finish());
        if known.split(',').any(|one| one.trim() == etag) {
            self.code = 304;
            text.clear();
        }
        self.etag = HeaderValue::from_str(&etag).ok();
        self
    }

    /// Indented, as `?pretty=true` requests.
    pub(super) fn prettified(mut self) -> Self {
        if let Content::Text(text) = &self.content
            && let Ok(value) = serde_json::from_slice::<Value>(text)
            && let Ok(mut pretty) = serde_json::to_vec_pretty(&value)
        {
            pretty.push(b'\n');
            self.content = Content::Text(pretty.into());
        }
        self
    }

    /// In YAML, also where it is a failure.
    pub(super) fn in_yaml(mut self) -> Self {
        if let Content::Text(text) = &self.content
            && self.content_type.starts_with("application/")
            && let Ok(value) = serde_json::from_slice::<Value>(text)
            && let Ok(yaml) = serde_saphyr::to_string(&value)
        {
            self.content = Content::Text(yaml.into());
            self.content_type = Form::Yaml.content_type();
        }
        self
    }

    pub(crate) fn into_response(self) -> Response {
        let body = match self.content {
            Content::Text(text) => Body::from(text),
            Content::Stream(body) => body,
        };
        let mut response = Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(self.code).unwrap_or_default();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Some(etag) = self.etag {
            headers.insert(ETAG, etag);
        }
        for warning in self.warnings {
            let printable = warning.replace(char::is_control, " ");
            let quoted = printable.replace('\\', "\\\\").replace('"', "\\\"");
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
                headers.append(WARNING, value);
            }
        }
        response
    }
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        let reply = Reply::value(failure.code, &failure.to_value());
        Reply { is_premature: failure.is_premature, warnings: failure.warnings, ..reply }
    }
}
