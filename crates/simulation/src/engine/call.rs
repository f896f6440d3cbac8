//! A parsed request, and those whose answers are awaited.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;

/// A parsed request.
#[derive(Clone, Debug)]
pub struct Call {
    /// The client: `d0.1` is the first daemon in its second incarnation.
    pub agent: Arc<str>,
    /// The HTTP method.
    pub method: Method,
    /// The path.
    pub path: String,
    /// The query: from which version a watch continues, and its selectors.
    pub query: String,
    /// The resource in the plural, such as "pods"; "" for paths without one.
    pub resource: String,
    /// The name in the path, or that of the object to create.
    pub name: String,
    /// Such as "status", or "".
    pub subresource: String,
    /// The namespace, or "".
    pub namespace: String,
    /// Whether it is a watch.
    pub watch: bool,
    /// The body, if it is JSON.
    pub body: Value,
    /// Identifies the call; 0 for calls that are not judged.
    pub id: u64,
    /// Its author could know everything that happened until then, since the beginning of the history.
    pub known: Duration,
    /// It arrives after its author has abandoned it, or has ended.
    pub abandoned: bool,
    /// By how much the member of the API server that replies lags behind the others.
    pub behind: Duration,
}

impl Call {
    /// Parses a request.
    pub fn new(agent: Arc<str>, parts: &http::request::Parts, body: &[u8]) -> Self {
        let path = parts.uri.path().to_owned();
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut segments = path.split('/').skip(1);
        let skipped = if segments.next() == Some("api") { 1 } else { 2 };
        let mut rest: Vec<&str> = segments.skip(skipped).collect();
        let mut namespace = String::new();
        if rest.first() == Some(&"namespaces") && rest.len() > 2 {
            namespace = rest.get(1).copied().unwrap_or_default().to_owned();
            rest.drain(..2);
        }
        let at = |n: usize| rest.get(n).copied().unwrap_or_default().to_owned();
        let (resource, mut name, subresource) = (at(0), at(1), at(2));
        if name.is_empty() {
            name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        }
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let watch = query.contains("watch=true");
        let method = parts.method.clone();
        Call {
            agent,
            method,
            path,
            query,
            resource,
            name,
            subresource,
            namespace,
            watch,
            body,
            id: 0,
            known: Duration::MAX,
            abandoned: false,
            behind: Duration::ZERO,
        }
    }

    /// Whether it would change something.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Whether it is a list or a watch.
    pub fn lists(&self) -> bool {
        !self.is_write() && self.name.is_empty()
    }

    /// Whether it fills a cache, by a list or a watch. A list of one object only reads the current resourceVersion,
    /// and a list with a label selector reads past the cache.
    pub fn fills_a_cache(&self) -> bool {
        let cached = matches!(&*self.resource, "deployments" | "replicasets" | "pods");
        let is_partial = self.query.split('&').any(|pair| pair == "limit=1") || self.selector().is_some();
        self.lists() && cached && !is_partial
    }

    /// Its label selector, as `key=value,key=value`.
    fn selector(&self) -> Option<String> {
        let encoded = self.query.split('&').find_map(|pair| pair.strip_prefix("labelSelector="))?;
        Some(encoded.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/"))
    }

    /// Whether its label selector matches this object.
    pub fn selects(&self, object: &Value) -> bool {
        let has = |pair: &str| {
            pair.split_once('=').is_some_and(|(key, value)| object["metadata"]["labels"][key] == value)
        };
        self.selector().is_some_and(|selector| selector.split(',').all(has))
    }

    /// Whether a daemon sent it.
    pub fn of_daemon(&self) -> bool {
        self.agent.starts_with('d')
    }

    /// The client that knows of it: "" for an abandoned call.
    pub fn author(&self) -> &str {
        if self.abandoned { "" } else { &self.agent }
    }

    /// Whether it would change a workload: neither an event nor the Lease.
    pub fn is_workload_write(&self) -> bool {
        self.is_write() && !matches!(&*self.resource, "events" | "leases")
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { agent, method, resource, name, subresource, watch, .. } = self;
        let method = if *watch { "WATCH" } else { method.as_str() };
        write!(f, "{agent:<8} {method} {resource}/{name}")?;
        if !subresource.is_empty() {
            write!(f, "/{subresource}")?;
        }
        Ok(())
    }
}

/// The calls whose authors wait for an answer, for judges that excuse those of others.
#[derive(Debug, Default)]
pub struct OpenCalls {
    begun: u64,
    open: BTreeSet<u64>,
}

impl OpenCalls {
    /// A call begins, and gets its number.
    pub fn begin(&mut self, call: &mut Call) {
        self.begun += 1;
        call.id = self.begun;
        self.open.insert(call.id);
    }

    /// Its author has the answer, or has given up.
    pub fn end(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// Whether nobody waits for the answer.
    pub fn is_abandoned(&self, call: &Call) -> bool {
        !self.open.contains(&call.id)
    }
}

/// `d0.1` is an incarnation of daemon 0.
pub fn daemon_of(agent: &str) -> Option<usize> {
    agent.strip_prefix('d')?.split('.').next()?.parse().ok()
}
