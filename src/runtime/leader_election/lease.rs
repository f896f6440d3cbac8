//! The election's calls and waits: reads, creates and replaces the Lease, and moves the fence.
//!
//! The rules are in [`super::rules`]. The guarantees here: the fence is never open longer than the
//! rules allow, every call is bounded in time and none is retried silently, and no foreign field of the Lease
//! is lost. The object is replaced as it was read, except for the fields that an election
//! writes; labels, owner references and fields that are newer than this program stay as they are.

use std::time::Duration;

use prometheus::{IntCounter, IntGauge};
use serde::de::Error as _;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::LEASES;
use super::fence::{Fence, FenceControl};
use super::history::{History, OnSetBack};
use super::rules::{ElectionOptions, Elector, LeaseRecord, Loss, Step};
use crate::clock::Clock;
use crate::model::{ObjectKey, Uid};
use crate::runtime::api::{Api, ApiError};
use crate::runtime::events::{EventRecorder, EventTarget, EventType};
use crate::runtime::reachability::Reachability;
use crate::runtime::request;

/// Where a pod finds the name of its namespace.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Where the Lease lives if we are in no pod; upstream's default.
const DEFAULT_NAMESPACE: &str = "kube-system";

/// How long the release of the lease may take. If it fails, the effect is that of a crash.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// How long after the end of a lease its holder may still act as leader before it counts as wedged, as
/// in kube-controller-manager.
const TOLERANCE: Duration = Duration::from_secs(20);

/// The source of the election's events.
const COMPONENT: &str = "windlass";

/// The lease is lost, and with it the right to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election lost: this process no longer holds the lease {lease}: {loss}")]
pub struct LeaseLost {
    /// Namespace and name of the Lease.
    pub lease: ObjectKey,
    /// How it was lost.
    pub loss: Loss,
}

/// One candidate in the election.
#[derive(Debug)]
pub struct Election {
    api: Api,
    elector: Elector,
    clock: Clock,
    control: FenceControl,
    recorder: EventRecorder,
    key: ObjectKey,
    /// The Lease as last read or written.
    object: Option<Value>,
    history: History,
    renew_deadline: Duration,
    /// How long one call may take.
    call_timeout: Duration,
    release: bool,
    leads: bool,
    status: IntGauge,
    reachability: Reachability,
    /// When a write of the Lease last was carried out, or none was due; and its last refusal.
    writes: Reachability,
    slow_path: IntCounter,
}

/// The services that a candidate uses.
#[derive(Debug)]
pub struct Tools {
    /// The API server, through a client and a rate limit that nothing else uses: a renewal must not wait
    /// behind other calls.
    pub api: Api,
    /// The time of day, for human readers of the Lease.
    pub clock: Clock,
    /// Where leadership is announced; its writer is behind the same fence.
    pub recorder: EventRecorder,
    /// Controls the fence that all other writes must pass.
    pub control: FenceControl,
    /// Seeds the jitter and, where none is given, the identity.
    pub seed: u64,
    /// Called when the history of the API server was set back; see [`super::history`].
    pub on_set_back: OnSetBack,
}

impl Election {
    /// A candidate; see [`Election::run`]. Reads the host's name and the pod's namespace where the
    /// options leave them open.
    pub fn new(options: &ElectionOptions, tools: Tools) -> Self {
        let Tools { api, clock, recorder, control, seed, on_set_back } = tools;
        let identity = options.identity.clone().unwrap_or_else(|| identity(&host_name(), seed));
        let metrics = api.metrics().clone();
        let status = metrics.leader_election_master_status.with_label_values(&[&options.name]);
        status.set(0);
        Election {
            renew_deadline: options.renew_deadline,
            // Half of the deadline, as in upstream, so that one silent call does not cost the leadership.
            call_timeout: (options.renew_deadline / 2).max(Duration::from_secs(1)),
            elector: Elector::new(options, &identity, seed),
            key: key(options),
            release: options.release_on_cancel,
            slow_path: metrics.leader_election_slowpath.with_label_values(&[&options.name]),
            api,
            clock,
            control,
            recorder,
            object: None,
            history: History::new(on_set_back),
            leads: false,
            status,
            reachability: Reachability::default(),
            writes: Reachability::default(),
        }
    }

    /// Whether this candidate could take over: the API server answers about the Lease, and carries its writes out.
    pub fn readiness(&self) -> Readiness {
        Readiness { reads: self.reachability.clone(), writes: self.writes.clone(), lease: self.key.clone() }
    }

    /// Namespace and name of the Lease.
    pub fn lease(&self) -> &ObjectKey {
        &self.key
    }

    /// Our identity.
    pub fn identity(&self) -> &str {
        self.elector.identity()
    }

    /// Takes part in the election, and renews the lease once elected, until `stop`. The fence tells whether and
    /// until when we lead. A call that is in flight at `stop` is awaited, since it may decide the election.
    ///
    /// # Errors
    /// When the lease is lost. The fence is shut then, and no write has been sent since its deadline.
    pub async fn run(mut self, stop: CancellationToken) -> Result<Election, LeaseLost> {
        let mut step = self.elector.begin(Instant::now(), self.clock.now());
        loop {
            self.settle(&step)?;
            step = match step {
                Step::Read => self.read().await,
                Step::Create(record) => self.write(record, true).await,
                Step::Update(record) => self.write(record, false).await,
                Step::Wait(until) => {
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return Ok(self),
                        () = tokio::time::sleep_until(until) => {}
                    }
                    self.elector.begin(Instant::now(), self.clock.now())
                }
                // `settle` has returned with it.
                Step::Lost(loss) => return Err(self.lost(loss)),
            };
        }
    }

    /// Whether the lease is or may be ours.
    pub fn may_hold(&self) -> bool {
        self.elector.may_hold()
    }

    /// Announces the end of the leadership, as long as events are still written.
    pub fn announce_end(&self) {
        if self.leads {
            self.announce("stopped leading");
        }
    }

    /// Releases the lease, if it is or may be ours and the options say so. To be called when the last
    /// write has ended: another may lead from the next moment on. Returns whether the lease is free now, or
    /// was never ours.
    pub async fn release(mut self) -> bool {
        self.control.close("the lease was given up");
        self.status.set(0);
        if !self.elector.may_hold() {
            return true;
        }
        if !self.release {
            return false;
        }
        let lease = self.key.clone();
        match tokio::time::timeout(RELEASE_TIMEOUT, self.give_up()).await {
            Ok(Ok(())) => {
                tracing::info!(%lease, "lease is released");
                return true;
            }
            Ok(Err(error)) => {
                tracing::warn!(%lease, %error, "lease could not be released; it expires by itself")
            }
            Err(_) => tracing::warn!(%lease, "lease could not be released in time; it expires by itself"),
        }
        false
    }

    async fn give_up(&mut self) -> Result<(), ApiError> {
        loop {
            let Some(found) = self.get().await? else { return Ok(()) };
            let Some(record) = self.elector.release(&found, self.clock.now()) else { return Ok(()) };
            match self.put(&record).await {
                // Another client wrote the Lease, or our own last renewal arrived late.
                Err(error) if error.is_conflict() => {}
                result => return result,
            }
        }
    }

    /// Updates fence, metrics and log after a step.
    fn settle(&mut self, next: &Step) -> Result<(), LeaseLost> {
        if let Step::Lost(loss) = next {
            return Err(self.lost(loss.clone()));
        }
        let Some(until) = self.elector.leads_until() else { return Ok(()) };
        if !self.control.extend(until) {
            return Err(self.lost(Loss::Overdue(self.renew_deadline)));
        }
        if !self.leads {
            self.leads = true;
            self.status.set(1);
            tracing::info!(lease = %self.key, identity = self.identity(), "lease is acquired; this process leads");
            self.announce("became leader");
        }
        Ok(())
    }

    fn lost(&mut self, loss: Loss) -> LeaseLost {
        self.control.close("the lease is lost");
        self.leads = false;
        self.status.set(0);
        tracing::error!(lease = %self.key, identity = self.identity(), %loss, "lease is lost; this process ends");
        LeaseLost { lease: self.key.clone(), loss }
    }

    fn announce(&self, what: &str) {
        let metadata = self.object.as_ref().map_or(&Value::Null, |object| &object["metadata"]);
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let target = EventTarget {
            resource: LEASES,
            key: self.key.clone(),
            uid: Uid::new(text("uid")),
            resource_version: text("resourceVersion").parse().ok(),
        };
        let message = format!("{} {what}", self.identity());
        self.recorder.record(&target, EventType::Normal, "LeaderElection", message, COMPONENT);
    }

    async fn read(&mut self) -> Step {
        let led = self.elector.leads_until().is_some();
        let found = self.bounded(async |election| election.get().await).await;
        let now = Instant::now();
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                // An outage has a line of its own.
                if error.status().is_none() && self.api.is_out() {
                    tracing::debug!(lease = %self.key, %error, "lease could not be read; retrying");
                } else {
                    tracing::warn!(lease = %self.key, %error, "lease could not be read; retrying");
                }
                return self.elector.failed(now);
            }
        };
        let before = self.elector.holder().to_owned();
        let step = self.elector.observe(found, now, self.clock.now());
        let holder = self.elector.holder();
        if before != holder && !holder.is_empty() && holder != self.identity() {
            tracing::info!(lease = %self.key, holder, "another process leads; standing by");
        }
        if !matches!(step, Step::Update(_) | Step::Create(_)) {
            // None is due, so that an earlier refusal says nothing any more.
            self.writes.record();
        } else if led {
            self.slow_path.inc();
        }
        step
    }

    async fn write(&mut self, record: LeaseRecord, create: bool) -> Step {
        let sent = Instant::now();
        let written = self.bounded(async |election| match create {
            true => election.post(&record).await,
            false => election.put(&record).await,
        });
        match written.await {
            Ok(()) => {
                self.writes.record();
                self.elector.written(record, sent, Instant::now())
            }
            // Another candidate was faster, or the Lease is not as it was read.
            Err(error) if error.is_conflict() => {
                self.writes.record();
                tracing::info!(lease = %self.key, %error, "lease was written by another process; retrying");
                self.elector.failed(Instant::now())
            }
            Err(error) => {
                self.writes.failed(&error);
                let verb = if create { "create" } else { "update" };
                if error.status().is_some_and(|status| matches!(status.code, 401 | 403)) {
                    tracing::warn!(
                        lease = %self.key, %error,
                        "lease cannot be written: this process needs the right to {verb} leases.coordination.k8s.io \
                         in its namespace; without it, it never leads; retrying"
                    );
                } else if self.leads {
                    tracing::warn!(lease = %self.key, %error, "lease could not be renewed; retrying");
                } else {
                    tracing::info!(lease = %self.key, %error, "lease could not be acquired; retrying");
                }
                self.elector.failed(Instant::now())
            }
        }
    }

    /// Bounds a call, with its wait for the rate limit, by `call_timeout` and by the end of our leadership.
    async fn bounded<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut Self) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let timeout = self.call_timeout;
        let end = Instant::now() + timeout;
        let end = self.elector.leads_until().map_or(end, |deadline| deadline.min(end));
        let called = tokio::time::timeout_at(end, call(self)).await;
        let called = called.unwrap_or(Err(ApiError::Timeout(timeout)));
        match &called {
            // A candidate that may not read the Lease never leads.
            Err(error)
                if error
                    .status()
                    .is_none_or(|status| status.code >= 500 || matches!(status.code, 401 | 403)) =>
            {
                self.reachability.failed(error)
            }
            _ => self.reachability.record(),
        }
        called
    }

    async fn get(&mut self) -> Result<Option<LeaseRecord>, ApiError> {
        match self.api.call::<Value>(request::get(&self.path(true), &[])).await {
            Ok(object) => {
                let record = record(&object);
                self.history.compare(&self.key, Some(&object));
                self.object = Some(object);
                Ok(Some(record))
            }
            Err(error) if error.is_not_found() => {
                self.history.compare(&self.key, None);
                self.object = None;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn post(&mut self, record: &LeaseRecord) -> Result<(), ApiError> {
        let mut object = json!({
            "apiVersion": LEASES.api_version(),
            "kind": LEASES.kind,
            "metadata": {"name": &*self.key.name, "namespace": &*self.key.namespace},
        });
        fill(&mut object, record);
        let request = request::post(&self.path(false), &[], &object).map_err(ApiError::Decode)?;
        self.wrote(self.api.call(request).await?);
        Ok(())
    }

    async fn put(&mut self, record: &LeaseRecord) -> Result<(), ApiError> {
        let mut object = self.object.clone().unwrap_or_default();
        if object["metadata"]["resourceVersion"].as_str().is_none_or(str::is_empty) {
            // Without one a server may overwrite any version.
            let reason = "the Lease has no resourceVersion";
            return Err(ApiError::Decode(serde_json::Error::custom(reason)));
        }
        fill(&mut object, record);
        let request = request::put(&self.path(true), &[], &object).map_err(ApiError::Decode)?;
        self.wrote(self.api.call(request).await?);
        Ok(())
    }

    fn wrote(&mut self, object: Value) {
        self.history.compare(&self.key, Some(&object));
        self.object = Some(object);
    }

    fn path(&self, object: bool) -> String {
        let collection = LEASES.path(Some(&self.key.namespace));
        if object { format!("{collection}/{}", self.key.name) } else { collection }
    }
}

/// Whether a candidate could take over, for `/readyz`. Clones share the state.
#[derive(Clone, Debug)]
pub struct Readiness {
    reads: Reachability,
    writes: Reachability,
    lease: ObjectKey,
}

impl Readiness {
    /// Whether the Lease can be read, and the writes that were due were carried out, within
    /// [`OUT_OF_REACH`](crate::runtime::reachability::OUT_OF_REACH).
    ///
    /// # Errors
    /// When not: the time and the last error, as text for `/readyz`.
    pub fn check(&self) -> Result<(), String> {
        self.writes.failing_for().map_or(Ok(()), |(time, error)| {
            let (lease, seconds) = (&self.lease, time.as_secs());
            Err(format!(
                "the lease {lease} could not be written for {seconds} s, so this process cannot lead: {error}"
            ))
        })?;
        self.reads.check()
    }
}

/// Checks whether a leader is wedged: it acts as leader, but has not renewed for longer than the lease
/// and a tolerance of 20 s. client-go's `HealthzAdaptor`.
#[derive(Clone, Debug)]
pub struct Watchdog {
    fence: Fence,
    lease: ObjectKey,
    overdue: Duration,
}

impl Watchdog {
    /// Monitors an election by its fence.
    pub fn new(fence: Fence, election: &Election, options: &ElectionOptions) -> Self {
        let overdue = options.lease_duration.saturating_sub(options.renew_deadline) + TOLERANCE;
        Watchdog { fence, lease: election.lease().clone(), overdue }
    }

    /// Whether the leader is not wedged.
    ///
    /// # Errors
    /// When the leader is wedged, with the text for `/healthz`.
    pub fn check(&self) -> Result<(), String> {
        if self.fence.overdue() > self.overdue {
            return Err(format!("the lease {} has not been renewed for too long", self.lease));
        }
        Ok(())
    }
}

/// Reads the election's fields of a Lease. A field that is absent or of the wrong type is empty; a holder that
/// is no string is still a holder.
fn record(object: &Value) -> LeaseRecord {
    let spec = &object["spec"];
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let holder = match &spec["holderIdentity"] {
        Value::Null => String::new(),
        Value::String(holder) => holder.clone(),
        other => other.to_string(),
    };
    LeaseRecord {
        holder,
        duration_seconds: spec["leaseDurationSeconds"].as_i64().unwrap_or(0),
        acquire_time: text("acquireTime"),
        renew_time: text("renewTime"),
        transitions: spec["leaseTransitions"].as_i64().unwrap_or(0),
    }
}

/// Writes a record into a Lease and leaves everything else in it alone.
fn fill(object: &mut Value, record: &LeaseRecord) {
    let LeaseRecord { holder, duration_seconds, acquire_time, renew_time, transitions } = record;
    if !object["spec"].is_object() {
        object["spec"] = Value::Object(Map::new());
    }
    let spec = &mut object["spec"];
    spec["holderIdentity"] = holder.as_str().into();
    spec["leaseDurationSeconds"] = (*duration_seconds).into();
    spec["acquireTime"] = acquire_time.as_str().into();
    spec["renewTime"] = renew_time.as_str().into();
    spec["leaseTransitions"] = (*transitions).into();
}

/// `hostname_uuid`, as upstream has it. In a pod the host's name is that of the pod.
fn identity(host: &str, seed: u64) -> String {
    // Apart from the seed's other uses, of which the log may show a part.
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x1eade5);
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    let mut bits = u128::from_be_bytes(bytes);
    // RFC 9562: version 4, variant 1.
    bits = bits & !(0xf << 76) | 0x4 << 76;
    bits = bits & !(0b11 << 62) | 0b10 << 62;
    let hex = format!("{bits:032x}");
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    format!("{host}_{a}-{b}-{c}-{d}-{e}")
}

fn host_name() -> String {
    match hostname::get() {
        Ok(name) if !name.is_empty() => name.to_string_lossy().into_owned(),
        _ => "windlass".to_owned(),
    }
}

/// Namespace and name of the Lease. Reads the pod's namespace where the options leave it open.
pub fn key(options: &ElectionOptions) -> ObjectKey {
    let namespace = options.namespace.clone().unwrap_or_else(own_namespace);
    ObjectKey::new(namespace, options.name.as_str())
}

fn own_namespace() -> String {
    let read = std::fs::read_to_string(POD_NAMESPACE).unwrap_or_default();
    match read.trim() {
        "" => DEFAULT_NAMESPACE.to_owned(),
        namespace => namespace.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_fields_of_the_lease_stay() {
        let mut object = json!({
            "metadata": {"name": "x", "labels": {"a": "b"}, "ownerReferences": [{"uid": "u"}]},
            "spec": {"holderIdentity": "old", "strategy": "OldestEmulationVersion", "preferredHolder": "p",
                     "fieldOfTomorrow": {"deep": [1]}},
            "statusOfTomorrow": true,
        });
        let written = LeaseRecord {
            holder: "me".into(),
            duration_seconds: 15,
            acquire_time: "a".into(),
            renew_time: "r".into(),
            transitions: 2,
        };
        fill(&mut object, &written);
        assert_eq!(record(&object), written);
        for (place, value) in [
            ("/metadata/labels/a", json!("b")),
            ("/metadata/ownerReferences/0/uid", json!("u")),
            ("/spec/strategy", json!("OldestEmulationVersion")),
            ("/spec/preferredHolder", json!("p")),
            ("/spec/fieldOfTomorrow/deep/0", json!(1)),
            ("/statusOfTomorrow", json!(true)),
        ] {
            assert_eq!(object.pointer(place), Some(&value), "{place}");
        }
    }

    #[test]
    fn a_lease_of_any_shape_can_be_read() {
        for object in [json!({}), json!({"spec": null}), json!({"spec": 5}), json!([]), json!("x")] {
            assert_eq!(record(&object), LeaseRecord::default(), "{object}");
        }
        let odd = json!({"spec": {"holderIdentity": {"a": 1}, "leaseDurationSeconds": "15", "leaseTransitions": 1e300,
                                  "renewTime": 7}});
        let odd = record(&odd);
        assert_eq!((odd.holder.as_str(), odd.duration_seconds, odd.transitions), ("{\"a\":1}", 0, 0));
        let mut bare = json!({"spec": 5});
        fill(&mut bare, &LeaseRecord::default());
        assert_eq!(bare["spec"]["holderIdentity"], "");
    }

    #[test]
    fn an_identity_is_the_host_and_a_random_uuid() {
        let one = identity("node-7", 1);
        let (host, uuid) = one.split_once('_').unwrap();
        assert_eq!((host, uuid.len()), ("node-7", 36));
        assert!(matches!(Uid::new(uuid), Uid::Uuid(_)), "{uuid}");
        assert_eq!((&uuid[14..15], "89ab".contains(&uuid[19..20])), ("4", true), "{uuid}");
        assert_ne!(identity("node-7", 2), one);
    }
}
