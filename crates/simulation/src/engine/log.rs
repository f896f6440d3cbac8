//! The history, in order: always as a fingerprint, and as entries where they are printed.
//!
//! Most histories pass and are never printed, so only a fingerprint is taken of their log entries. The same scenario
//! has the same history: one that failed is run once more, and its entries are kept.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::call::Call;
use super::request_fault::RequestFault;

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When, since the beginning of the history.
    pub at: Duration,
    /// What.
    pub event: Event,
}

/// One event of the history.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request, and its fault.
    Sent(Box<Call>, RequestFault),
    /// A request that would change something has been carried out.
    Done {
        /// The request.
        call: Box<Call>,
        /// The status code of the reply.
        code: u16,
        /// The object before the request, if it existed and is a workload.
        before: Option<Arc<Value>>,
        /// The object after the request.
        after: Option<Arc<Value>>,
    },
    /// Anything else, such as an act of the scenario.
    Note(String),
    /// An invariant was broken.
    Breach(String),
}

/// The raw entry in one line.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3} ", self.at.as_secs_f64())?;
        match &self.event {
            Event::Sent(call, request_fault) => {
                write!(f, "{call}")?;
                if !call.query.is_empty() {
                    write!(f, "?{}", call.query)?;
                }
                if *request_fault != RequestFault::Proceed {
                    write!(f, " ({request_fault})")?;
                }
                if call.is_write() { write!(f, " {}", call.body) } else { Ok(()) }
            }
            Event::Done { call, code, .. } => write!(f, "{call} -> {code}"),
            Event::Note(text) => write!(f, "{text}"),
            Event::Breach(text) => write!(f, "BREACH {text}"),
        }
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Log {
    digest: DefaultHasher,
    entries: Option<Vec<Entry>>,
}

impl Log {
    /// A log. `record` keeps the entries.
    pub fn new(record: bool) -> Self {
        Log { entries: record.then(Vec::new), ..Log::default() }
    }

    fn keep(&mut self, at: Duration, event: impl FnOnce() -> Event) {
        at.hash(&mut self.digest);
        if let Some(entries) = &mut self.entries {
            entries.push(Entry { at, event: event() });
        }
    }

    /// A request has been sent; `body` is as it was on the wire.
    pub fn sent(&mut self, at: Duration, call: &Call, body: &[u8], request_fault: &RequestFault) {
        (&call.agent, call.method.as_str(), &call.path, &call.query, body, request_fault)
            .hash(&mut self.digest);
        self.keep(at, || Event::Sent(Box::new(call.clone()), request_fault.clone()));
    }

    /// A request that would change something has been carried out.
    pub fn done(
        &mut self,
        at: Duration,
        call: &Call,
        code: u16,
        before: Option<&Arc<Value>>,
        after: Option<&Arc<Value>>,
    ) {
        (&call.agent, call.method.as_str(), &call.path, &call.name, code).hash(&mut self.digest);
        let (before, after) = (before.cloned(), after.cloned());
        self.keep(at, || Event::Done { call: Box::new(call.clone()), code, before, after });
    }

    /// Something else has happened.
    pub fn note(&mut self, at: Duration, text: &str) {
        text.hash(&mut self.digest);
        self.keep(at, || Event::Note(text.to_owned()));
    }

    /// An invariant was broken.
    pub fn breach(&mut self, at: Duration, text: &str) {
        text.hash(&mut self.digest);
        self.keep(at, || Event::Breach(text.to_owned()));
    }

    /// A fingerprint of everything.
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// The entries, if they were kept.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_fingerprint_is_the_same_whether_entries_are_kept_or_not() {
        let (mut kept, mut not) = (Log::new(true), Log::new(false));
        for log in [&mut kept, &mut not] {
            log.note(at(1), "one");
            log.breach(at(2), "two");
        }
        assert_eq!(kept.digest(), not.digest());
        assert_eq!((kept.entries().len(), not.entries().len()), (2, 0));
    }

    #[test]
    fn another_time_query_or_body_is_another_fingerprint() {
        let digest_of = |seconds: u64, query: &str, body: &str| {
            let uri = format!("/api/v1/namespaces/shop/pods{query}");
            let (parts, ()) = http::Request::get(uri).body(()).unwrap().into_parts();
            let mut log = Log::new(false);
            log.sent(
                at(seconds),
                &Call::new("d0.1".into(), &parts, b"{}"),
                body.as_bytes(),
                &RequestFault::Proceed,
            );
            log.digest()
        };
        let digest = |seconds: u64, body: &str| digest_of(seconds, "", body);
        let watch = |version: u64| digest_of(1, &format!("?watch=true&resourceVersion={version}"), "");
        assert_eq!(watch(7), watch(7));
        assert_ne!(watch(7), watch(8));
        assert_eq!(digest(1, "a"), digest(1, "a"));
        assert_ne!(digest(1, "a"), digest(2, "a"));
        assert_ne!(digest(1, "a"), digest(1, "b"));
    }
}
