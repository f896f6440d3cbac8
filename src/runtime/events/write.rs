//! Writes events, one after the other, in a task of its own.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::correlate::{Correlator, Decided};
use super::repeats::Repeats;
use super::{EventTarget, EventType, Recorded, truncate};
use crate::model::{ObjectKey, Resource};
use crate::runtime::api::{Api, ApiError};
use crate::runtime::leader_election::LEASES;
use crate::runtime::request::{self, PatchType};

const EVENTS: Resource = Resource { group: "", version: "v1", kind: "Event", plural: "events" };

/// How long one write may take. Others wait behind it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The pauses between the retries of one event. After the last it is dropped: a user prefers the next
/// event now to this one in an hour.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// How long the last events may take at shutdown.
const FLUSH: Duration = Duration::from_secs(2);

/// Writes what an [`super::EventRecorder`] recorded; see [`EventWriter::run`].
pub struct EventWriter {
    api: Api,
    recorded: mpsc::Receiver<Recorded>,
    correlator: Correlator,
    repeats: Repeats,
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWriter").field("api", &self.api).finish_non_exhaustive()
    }
}

impl EventWriter {
    pub(super) fn new(api: Api, recorded: mpsc::Receiver<Recorded>, seed: u64) -> Self {
        EventWriter {
            api: api.with_timeout(TIMEOUT),
            recorded,
            correlator: Correlator::new(seed),
            repeats: Repeats::new(),
        }
    }

    /// Writes events until `shutdown`, and then for two seconds those that are still queued. Returns whether all
    /// were written or dropped; if not, the last write may still be in flight.
    pub async fn run(mut self, shutdown: CancellationToken) -> bool {
        let all = async {
            loop {
                let due = self.repeats.due();
                // A write is never interrupted by the shutdown alone: it may be the last event.
                tokio::select! {
                    biased;
                    () = at(due) => self.write_next_repeat().await,
                    event = self.recorded.recv() => match event {
                        Some(event) => self.take(event).await,
                        None => break,
                    },
                    () = shutdown.cancelled() => break,
                }
            }
            while self.repeats.due().is_some() {
                self.write_next_repeat().await;
            }
        };
        let overdue = async {
            shutdown.cancelled().await;
            tokio::time::sleep(FLUSH).await;
        };
        tokio::select! {
            biased;
            () = all => return true,
            () = overdue => {}
        }
        let left = self.recorded.len() + self.repeats.len();
        tracing::warn!(left, "shutdown dropped events that were not written yet");
        false
    }

    /// Decides about an event, and writes it unless it is the count of one that was written a moment ago.
    async fn take(&mut self, event: Recorded) {
        let now = Instant::now();
        let Some(decided) = self.correlator.observe(&event, now) else {
            self.drop_event("spam_filter");
            return;
        };
        if let Some((event, decided)) = self.repeats.take((event, decided), now) {
            self.write(event, decided).await;
        }
    }

    async fn write_next_repeat(&mut self) {
        if let Some((event, decided)) = self.repeats.next(Instant::now()) {
            self.write(event, decided).await;
        }
    }

    async fn write(&mut self, event: Recorded, decided: Decided) {
        let mut create = decided.count == 1;
        let mut pauses = PAUSES.iter();
        loop {
            let error = match self.send(&event, &decided, create).await {
                Ok(()) => return,
                Err(error) => error,
            };
            if error.is_namespace_terminating() || error.is_namespace_missing() {
                tracing::debug!(object = %event.target.key, "event dropped: the namespace is deleted");
                break self.drop_event("namespace_terminating");
            }
            if create && error.is_already_exists() {
                return; // An earlier try whose answer was lost.
            }
            if !create && error.is_not_found() {
                // The event has expired at the server; it is created again, with the count it has.
                create = true;
                continue;
            }
            let again = error.outcome_unknown()
                || matches!(error, ApiError::Transport { .. })
                || error.retry_after().is_some();
            let Some(pause) = pauses.next().filter(|_| again) else {
                let (reason, object) = (event.reason, &event.target.key);
                tracing::warn!(%object, reason, %error, "event could not be written; it is dropped");
                self.correlator.forget(&decided.exact);
                break self.drop_event(error.label());
            };
            tokio::time::sleep(error.retry_after().unwrap_or_default().max(*pause)).await;
        }
    }

    fn drop_event(&self, cause: &str) {
        self.api.metrics().events_dropped.with_label_values(&[cause]).inc();
    }

    async fn send(&self, event: &Recorded, decided: &Decided, create: bool) -> Result<(), ApiError> {
        let path = EVENTS.path(Some(namespace(&event.target)));
        let (request, verb) = if create {
            (request::post(&path, &[], &body(event, decided)), "create")
        } else {
            let path = format!("{path}/{}", decided.name);
            let change = json!({
                "count": decided.count,
                "lastTimestamp": seconds(event.at),
                "message": decided.message,
            });
            (request::patch(&path, &[], PatchType::Merge, &change), "patch")
        };
        let request = request.map(request::metadata_only).map_err(ApiError::Decode)?;
        self.api.call::<IgnoredAny>(request).await?;
        self.api.metrics().events_written.with_label_values(&[event.kind.as_str(), verb]).inc();
        Ok(())
    }
}

/// Creates an event of this name beside the Lease `lease`. While the API server keeps it (`--event-ttl`, an hour), the name
/// is taken, for other processes as well.
///
/// # Errors
/// The API server's error: "already exists" where the name is taken.
pub async fn create_once(
    api: &Api,
    lease: &ObjectKey,
    name: &str,
    reason: &str,
    message: String,
    at: Timestamp,
) -> Result<(), ApiError> {
    let namespace = &*lease.namespace;
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"apiVersion": LEASES.api_version(), "kind": LEASES.kind, "namespace": namespace, "name": lease.name},
        "type": EventType::Warning.as_str(),
        "reason": reason,
        "message": truncate(message),
        "source": {"component": "windlass"},
        "reportingComponent": "windlass",
        "reportingInstance": "",
        "count": 1,
        "firstTimestamp": seconds(at),
        "lastTimestamp": seconds(at),
    });
    let request = request::post(&EVENTS.path(Some(namespace)), &[], &event).map_err(ApiError::Decode)?;
    api.call::<IgnoredAny>(request::metadata_only(request)).await?;
    Ok(())
}

/// Waits until then; for ever where there is nothing to wait for.
async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Where the event lives: beside its object, or in `default` where the object has no namespace.
fn namespace(target: &EventTarget) -> &str {
    if target.key.namespace.is_empty() { "default" } else { &target.key.namespace }
}

/// A time as `metav1.Time` has it, to the second.
fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn body(event: &Recorded, decided: &Decided) -> Value {
    let Recorded { target, kind, reason, message: _, source, at } = event;
    let EventTarget { resource, key, uid, resource_version } = target;
    let mut object = json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "name": &*key.name,
        "uid": uid,
    });
    if !key.namespace.is_empty() {
        object["namespace"] = (*key.namespace).into();
    }
    if let Some(version) = resource_version {
        object["resourceVersion"] = version.to_string().into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": decided.name, "namespace": namespace(target)},
        "involvedObject": object,
        "type": kind.as_str(),
        "reason": reason,
        "message": decided.message,
        "source": {"component": source},
        // client-go leaves it out of an event that stands for several.
        "reportingComponent": if decided.is_combined() { "" } else { source },
        "reportingInstance": "",
        "count": decided.count,
        "firstTimestamp": seconds(decided.first),
        "lastTimestamp": seconds(*at),
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::clock::Clock;
    use crate::metrics::Metrics;
    use crate::model::{ObjectKey, Uid};
    use crate::runtime::events::{EventRecorder, EventType};
    use crate::runtime::fixture::THINGS;
    use crate::runtime::rate_limiter::RateLimiter;

    /// The requests that reached the server: method, path and body.
    type Log = Arc<Mutex<Vec<(String, String, Value)>>>;

    /// A server that answers the n-th request with the n-th code, and the last code from then on; each
    /// after `delay`.
    fn server(codes: &'static [u16], delay: Duration) -> (Api, Log) {
        let log: Log = Arc::default();
        let seen = log.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let seen = seen.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                tokio::time::sleep(delay).await;
                let code = {
                    let mut log = seen.lock();
                    let code = codes[log.len().min(codes.len() - 1)];
                    let json = serde_json::from_slice(&body).unwrap();
                    log.push((head.method.to_string(), head.uri.path().to_owned(), json));
                    code
                };
                let reply = match code {
                    403 => json!({"status": "Failure", "reason": "Forbidden",
                        "details": {"causes": [{"reason": "NamespaceTerminating"}]}}),
                    404 => json!({"status": "Failure", "reason": "NotFound",
                        "details": {"kind": if head.method == "PATCH" { "events" } else { "namespaces" }}}),
                    409 => json!({"status": "Failure", "reason": "AlreadyExists"}),
                    _ => json!({}),
                };
                Ok::<_, Infallible>(
                    Response::builder()
                        .status(code)
                        .body(Body::from(reply.to_string().into_bytes()))
                        .unwrap(),
                )
            }
        });
        let client = kube::Client::new(service, "default");
        (Api::new(client, "h", RateLimiter::unlimited(), Metrics::new()), log)
    }

    fn target(namespace: &str) -> EventTarget {
        EventTarget {
            resource: THINGS,
            key: ObjectKey::new(namespace, "web"),
            uid: Uid::new("u-1"),
            resource_version: Some(42),
        }
    }

    /// Records these messages, lets the writer run for `time`, and shuts it down.
    async fn run(api: &Api, target: &EventTarget, messages: &[&str], time: Duration) {
        run_with(api, target, "Scaled", messages, time).await;
    }

    /// The same with another reason.
    async fn run_with(
        api: &Api,
        target: &EventTarget,
        reason: &'static str,
        messages: &[&str],
        time: Duration,
    ) {
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
        let (recorder, writer) = EventRecorder::new(api.clone(), clock, 1);
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(writer.run(shutdown.clone()));
        for message in messages {
            recorder.record(target, EventType::Normal, reason, (*message).into(), "test-controller");
        }
        tokio::time::sleep(time).await;
        shutdown.cancel();
        running.await.unwrap();
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn an_event_has_the_fields_that_kubectl_shows() {
        let (api, log) = server(&[201], Duration::ZERO);
        run(&api, &target("shop"), &["hello"], MINUTE).await;
        let log = log.lock();
        let (method, path, body) = &log[0];
        assert_eq!((method.as_str(), path.as_str()), ("POST", "/api/v1/namespaces/shop/events"));
        assert!(body["metadata"]["name"].as_str().unwrap().starts_with("web."));
        let expected = json!({"apiVersion": "test.io/v1", "kind": "Thing", "namespace": "shop", "name": "web",
            "uid": "u-1", "resourceVersion": "42"});
        assert_eq!(body["involvedObject"], expected);
        assert_eq!(body["source"]["component"], "test-controller");
        assert_eq!(body["reportingComponent"], "test-controller");
        assert_eq!(
            (&body["type"], &body["reason"], &body["message"]),
            (&json!("Normal"), &json!("Scaled"), &json!("hello"))
        );
        assert_eq!((&body["count"], &body["lastTimestamp"]), (&json!(1), &json!("2026-01-01T00:00:00Z")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_repetition_raises_the_count_of_the_first() {
        let (api, log) = server(&[201], Duration::ZERO);
        run(&api, &target("shop"), &["a", "b", "a"], MINUTE).await;
        let log = log.lock();
        assert_eq!(log.iter().map(|(m, ..)| m.as_str()).collect::<Vec<_>>(), ["POST", "POST", "PATCH"]);
        assert_eq!(log[2].1, format!("{}/{}", log[0].1, log[0].2["metadata"]["name"].as_str().unwrap()));
        assert_eq!(log[2].2["count"], 2);
        assert!(
            api.metrics()
                .render()
                .contains("windlass_events_written_total{type=\"Normal\",verb=\"patch\"} 1")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_of_pods_is_written_once_a_second_with_the_newest_text_and_at_the_end() {
        let (api, log) = server(&[201], Duration::ZERO);
        let pods: Vec<String> = (0..30).map(|n| format!("Created pod: web-{n}")).collect();
        let messages: Vec<&str> = pods.iter().map(String::as_str).collect();
        run_with(&api, &target("shop"), "SuccessfulCreate", &messages, Duration::from_millis(1500)).await;
        // The first nine, and the combined one at once and a second later: the budget of an object is 25.
        let written = |log: &Log| -> Vec<(String, Value, Value)> {
            let log = log.lock();
            log.iter()
                .skip(9)
                .map(|(m, _, b)| (m.clone(), b["count"].clone(), b["message"].clone()))
                .collect()
        };
        let combined = |pod: &str| json!(format!("(combined from similar events): Created pod: web-{pod}"));
        let expected =
            [("POST".to_owned(), json!(1), combined("9")), ("PATCH".to_owned(), json!(16), combined("24"))];
        assert_eq!(written(&log), expected);
        // A shutdown does not wait for the second to end.
        let (api, log) = server(&[201], Duration::ZERO);
        let start = Instant::now();
        run_with(&api, &target("shop"), "SuccessfulCreate", &messages, Duration::from_millis(10)).await;
        assert_eq!((written(&log), start.elapsed().as_millis()), (expected.to_vec(), 10));
        // Each step of a rollout is written.
        let (api, log) = server(&[201], Duration::ZERO);
        run(&api, &target("shop"), &messages, Duration::from_millis(10)).await;
        assert_eq!(written(&log).len(), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_expired_at_the_server_is_created_again_with_its_count() {
        let (api, log) = server(&[201, 404, 201], Duration::ZERO);
        run(&api, &target("shop"), &["a", "a"], MINUTE).await;
        let log = log.lock();
        assert_eq!(log.iter().map(|(m, ..)| m.as_str()).collect::<Vec<_>>(), ["POST", "PATCH", "POST"]);
        assert_eq!(
            (&log[2].2["count"], &log[2].2["metadata"]["name"]),
            (&json!(2), &log[0].2["metadata"]["name"])
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_is_retried_under_the_same_name() {
        let (api, log) = server(&[504, 409], Duration::ZERO);
        run(&api, &target("shop"), &["a"], MINUTE).await;
        let log = log.lock();
        assert_eq!(log.len(), 2);
        assert_eq!(log[0].2["metadata"]["name"], log[1].2["metadata"]["name"]);
        assert!(!api.metrics().render().contains("windlass_events_dropped_total"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_terminating_namespace_and_a_broken_server_cost_the_event_and_nothing_else() {
        let (api, log) = server(&[403], Duration::ZERO);
        run(&api, &target("shop"), &["a"], MINUTE).await;
        assert_eq!(log.lock().len(), 1);
        assert!(
            api.metrics()
                .render()
                .contains("windlass_events_dropped_total{reason=\"namespace_terminating\"} 1")
        );
        let (api, log) = server(&[500], Duration::ZERO);
        run(&api, &target("shop"), &["a"], MINUTE).await;
        assert_eq!(log.lock().len(), 1 + PAUSES.len());
        assert!(api.metrics().render().contains("windlass_events_dropped_total{reason=\"server_error\"} 1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_namespace_costs_the_event_without_a_warning() {
        let (api, log) = server(&[404], Duration::ZERO);
        run(&api, &target("shop"), &["a"], MINUTE).await;
        assert_eq!(log.lock().len(), 1);
        let dropped = "windlass_events_dropped_total{reason=\"namespace_terminating\"} 1";
        assert!(api.metrics().render().contains(dropped));
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_without_a_namespace_has_its_events_in_default() {
        let (api, log) = server(&[201], Duration::ZERO);
        run(&api, &target(""), &["a"], MINUTE).await;
        assert_eq!(log.lock()[0].1, "/api/v1/namespaces/default/events");
        assert_eq!(log.lock()[0].2["involvedObject"].get("namespace"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn queued_events_are_written_within_two_seconds_of_the_shutdown_or_not_at_all() {
        let (api, log) = server(&[201], Duration::from_millis(700));
        let start = Instant::now();
        run(&api, &target("shop"), &["a", "b", "c", "d", "e", "f"], Duration::ZERO).await;
        assert_eq!(log.lock().len(), 2);
        assert!(start.elapsed() <= FLUSH + Duration::from_millis(10), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn recording_never_waits_and_dropped_events_are_counted() {
        let (api, _) = server(&[201], MINUTE);
        let clock = Clock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
        let (recorder, _writer) = EventRecorder::new(api.clone(), clock, 1);
        for n in 0..1005 {
            recorder.record(&target("shop"), EventType::Warning, "R", n.to_string(), "c");
        }
        assert!(api.metrics().render().contains("windlass_events_dropped_total{reason=\"queue_full\"} 5"));
    }
}
