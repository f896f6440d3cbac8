//! The loop: look, plan one step, write it, and say so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use windlass::model::{Interner, Pod, Record as _, ReplicaSet};
use windlass::plan::rolling_update::bookkeeping::{ORIGINAL_REPLICAS, SOURCE};
use windlass::plan::rolling_update::{Bounds, Cleanup, Observed, Step, Wait, available, plan};

use super::fail_fast::{Failing, is_in_the_way, reason_of};
use super::outage::Outage;
use super::prepare::{self, selector};
use super::reporter::Reporter;
use super::{Cluster, described, hand_over, refused, server_side};
use crate::api::ApiError;
use crate::cli::RollingUpdateArgs;
use crate::exit::CommandError;
use crate::rollout::pods::PodView;
use crate::text::harmless;
use crate::write;

/// How long the caches of a controller manager may lag: pods without a controller are handed over after it, or a
/// controller that still counts them as its own might act on them.
const CACHES_LAG: Duration = Duration::from_secs(5);

/// After a write the next look comes sooner than --poll-interval.
const AFTER_A_WRITE: Duration = Duration::from_secs(1);

/// One of the two controllers.
#[derive(Clone, Debug)]
pub(super) struct Side {
    name: String,
    uid: String,
}

impl Side {
    /// This object, and no other of its name.
    pub(super) fn of(controller: &Value) -> Self {
        let uid = controller["metadata"]["uid"].as_str().unwrap_or_default();
        Side { name: prepare::name(controller).to_owned(), uid: uid.to_owned() }
    }
}

/// A rolling update, in either direction.
pub(super) struct Drive<'a> {
    /// The API server.
    pub cluster: &'a Cluster<'a>,
    /// The controller that shrinks; `None` if there is none.
    pub shrinking: Option<Side>,
    /// The controller that grows.
    pub growing: Side,
    /// The source that NEW must name.
    pub source: &'a str,
    /// Whether the roles are swapped.
    pub is_rollback: bool,
    /// The bounds.
    pub bounds: Bounds,
    /// The last step.
    pub cleanup: Cleanup,
    /// The label key in which the selectors of the two differ.
    pub label_key: &'a str,
    /// The flags.
    pub args: &'a RollingUpdateArgs,
}

/// How a rolling update ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing is left to do.
    Complete,
    /// There was no progress in time, or there can be none.
    Failed,
}

/// The state that one look shows.
struct Snapshot {
    shrinking: Option<Value>,
    growing: Value,
    decoded: (Option<ReplicaSet>, ReplicaSet),
    pods: Vec<(Arc<Pod>, Value)>,
}

/// The events since the last progress.
struct Clock {
    progress: Instant,
    grown: Option<Instant>,
    ownerless: Option<Instant>,
    most_available: i64,
    said: String,
    looked: Option<Instant>,
    has_deleted: bool,
    /// A write without an answer, and what it was computed from.
    unanswered: Option<(Step, Snapshot)>,
    failing: Failing,
}

/// The object under the name of a controller.
enum Lookup {
    There(Value),
    Gone,
    /// Another object of that name.
    Namesake,
}

impl Drive<'_> {
    /// Drives the update to its end.
    pub(super) async fn run(&self, reporter: &mut Reporter<'_>) -> Result<Ended, CommandError> {
        let mut clock = Clock {
            progress: Instant::now(),
            grown: None,
            ownerless: None,
            most_available: 0,
            said: String::new(),
            looked: None,
            has_deleted: false,
            unanswered: None,
            failing: Failing::default(),
        };
        let mut outage = Outage::new(self.args.timeout);
        loop {
            match self.turn(&mut clock, reporter).await {
                Ok(Turn::Ended(ended)) => return Ok(ended),
                Ok(Turn::Pause(pause)) => {
                    outage.over();
                    tokio::time::sleep(pause).await;
                }
                Err(error) => outage.wait(error, reporter).await?,
            }
        }
    }

    /// One look, and the step that follows from it.
    async fn turn(&self, clock: &mut Clock, reporter: &mut Reporter<'_>) -> Result<Turn, CommandError> {
        let Some(snapshot) = self.observe(clock).await? else { return Ok(Turn::Ended(Ended::Complete)) };
        clock.looked = Some(Instant::now());
        if let Some((step, before)) = clock.unanswered.take()
            && was_carried_out(&step, &snapshot)
        {
            self.done(&step, &before, clock, reporter)?;
        }
        let pods: Vec<Arc<Pod>> = snapshot.pods.iter().map(|(pod, _)| pod.clone()).collect();
        let (shrinking, growing) = (snapshot.decoded.0.as_ref(), &snapshot.decoded.1);
        let step = plan(&Observed {
            shrinking,
            growing,
            pods: &pods,
            bounds: self.bounds,
            cleanup: self.cleanup,
            label_key: self.label_key,
            now: self.cluster.api.now(),
        });
        let ready = available(growing, &pods, self.cluster.api.now());
        if ready > clock.most_available {
            (clock.most_available, clock.progress) = (ready, Instant::now());
        }
        if step == Step::Finished {
            return Ok(Turn::Ended(Ended::Complete));
        }
        if let Some(pause) = self.wait(&step, clock) {
            self.report(&step, &snapshot, clock, reporter)?;
            if let Some(why) = self.reason_to_give_up(&step, &snapshot, clock).await {
                self.give_up(&why, reporter)?;
                return Ok(Turn::Ended(Ended::Failed));
            }
            return Ok(Turn::Pause(pause));
        }
        match self.write(&step, &snapshot).await {
            Ok(()) => self.done(&step, &snapshot, clock, reporter)?,
            // Someone else has written, or deleted it: look again.
            Err(error) if is_outdated(&error) => {}
            Err(error) => {
                if matches!(error, ApiError::Unanswered { .. }) {
                    clock.unanswered = Some((step, snapshot));
                }
                return Err(error.into());
            }
        }
        Ok(Turn::Pause(self.args.poll_interval.min(AFTER_A_WRITE)))
    }

    /// A step has been taken.
    fn done(
        &self,
        step: &Step,
        snapshot: &Snapshot,
        clock: &mut Clock,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), CommandError> {
        clock.progress = Instant::now();
        if matches!(step, Step::Grow { .. }) {
            clock.grown = Some(Instant::now());
        }
        clock.has_deleted |= matches!(step, Step::DeleteShrinking | Step::DeleteGrowing);
        self.announce(step, snapshot, reporter)
    }

    /// How long to wait before the step, or to look again; `None` to take the step now.
    fn wait(&self, step: &Step, clock: &mut Clock) -> Option<Duration> {
        let poll = self.args.poll_interval;
        let until = |since: Instant, time: Duration| {
            time.checked_sub(since.elapsed()).filter(|left| !left.is_zero()).map(|left| left.min(poll))
        };
        match step {
            Step::Wait(_) => Some(poll),
            Step::Shrink { .. } => until(clock.grown?, self.args.update_period),
            Step::TakeOver { .. } => {
                let since = *clock.ownerless.get_or_insert_with(Instant::now);
                until(since, CACHES_LAG)
            }
            _ => None,
        }
    }

    async fn find(&self, side: &Side) -> Result<Lookup, CommandError> {
        Ok(match self.cluster.get(&side.name).await? {
            None => Lookup::Gone,
            Some(object) if object["metadata"]["uid"] == side.uid.as_str() => Lookup::There(object),
            Some(_) => Lookup::Namesake,
        })
    }

    /// A controller is not there that must be.
    fn lost(&self, lost: &Side, is_namesake: bool, other: Option<&Value>, clock: &Clock) -> CommandError {
        let again = if is_namesake { " and created again" } else { "" };
        let seen = clock.looked.map_or(String::new(), |at| format!(" (last seen {:?} ago)", at.elapsed()));
        let remains = other.map_or(String::new(), |other| {
            let size = other["spec"]["replicas"].as_i64().unwrap_or(1);
            format!("; {} remains with {size} replicas", prepare::name(other))
        });
        refused(format!(
            "replicationcontroller {} was deleted{again} in the middle of the update{seen}{remains}",
            lost.name
        ))
    }

    /// The present state; `None` once the hand-over has deleted the growing one.
    async fn observe(&self, clock: &Clock) -> Result<Option<Snapshot>, CommandError> {
        let shrinking = match &self.shrinking {
            None => None,
            Some(side) => match self.find(side).await? {
                Lookup::There(object) => Some(object),
                Lookup::Namesake if !clock.has_deleted => return Err(self.lost(side, true, None, clock)),
                Lookup::Namesake | Lookup::Gone => None,
            },
        };
        let growing = match self.find(&self.growing).await? {
            Lookup::There(growing) => growing,
            _ if self.cleanup == Cleanup::KeepName && shrinking.as_ref().is_some_and(has_taken_over) => {
                return Ok(None);
            }
            found => {
                let is_namesake = matches!(found, Lookup::Namesake);
                return Err(self.lost(&self.growing, is_namesake, shrinking.as_ref(), clock));
            }
        };
        if let (None, Some(side), Cleanup::KeepName) = (&shrinking, &self.shrinking, self.cleanup) {
            return Err(self.lost(side, false, Some(&growing), clock));
        }
        let (old, new) = match self.is_rollback {
            true => (Some(&growing), shrinking.as_ref()),
            false => (shrinking.as_ref(), Some(&growing)),
        };
        self.check_source(old, new)?;
        for controller in [shrinking.as_ref(), Some(&growing)].into_iter().flatten() {
            server_side::refuse_request(controller).map_err(refused)?;
        }
        let decode = |object: &Value| prepare::decode(object).map_err(refused);
        let mut decoded = (shrinking.as_ref().map(decode).transpose()?, decode(&growing)?);
        if let Some(seconds) = self.args.min_ready_seconds {
            decoded.1.min_ready_seconds = seconds;
        }
        let pods = self.pods(shrinking.as_ref(), &growing).await?;
        Ok(Some(Snapshot { shrinking, growing, decoded, pods }))
    }

    /// Refuses to go on once NEW belongs to another update. At its end, an update removes the source.
    fn check_source(&self, old: Option<&Value>, new: Option<&Value>) -> Result<(), CommandError> {
        let Some(new) = new else { return Ok(()) };
        let source = new["metadata"]["annotations"][SOURCE].as_str();
        let is_at_end = !self.is_rollback && old.is_none_or(|old| old["spec"]["replicas"] == 0);
        if source == Some(self.source) || (source.is_none() && is_at_end) {
            return Ok(());
        }
        let of = source.map_or("none".to_owned(), |source| format!("{:?}", harmless(source)));
        Err(refused(format!(
            "replicationcontroller {} is no longer the target of this update: its annotation {SOURCE} is {of}, not {:?}. \
             Both controllers are left as they are",
            prepare::name(new),
            self.source
        )))
    }

    /// The pods with the labels that those of both have: in a hand-over, neither selector matches.
    async fn pods(
        &self,
        shrinking: Option<&Value>,
        growing: &Value,
    ) -> Result<Vec<(Arc<Pod>, Value)>, CommandError> {
        let mut common = selector(growing);
        if let Some(other) = shrinking {
            let other = selector(other);
            common.retain(|key, value| other.get(key) == Some(value));
        }
        common.remove(self.label_key);
        let labels: Vec<String> = common
            .iter()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        let labels = labels.join(",");
        let query: Vec<(&str, &str)> =
            Some(("labelSelector", labels.as_str())).filter(|_| !labels.is_empty()).into_iter().collect();
        let path = Pod::RESOURCE.path(Some(self.cluster.namespace));
        let listed = self.cluster.api.list("pods", &path, &query).await?.items;
        let interner = &mut Interner::default();
        let pods = listed
            .into_iter()
            .filter_map(|object| Some((Arc::new(Pod::decode(&object.to_string(), interner).ok()?), object)));
        Ok(pods.collect())
    }

    /// The name of the controller that shrinks.
    fn shrinks(&self) -> &str {
        self.shrinking.as_ref().map_or("", |side| &side.name)
    }

    async fn write(&self, step: &Step, snapshot: &Snapshot) -> Result<(), ApiError> {
        let cluster = self.cluster;
        let key = self.label_key;
        let resize = async |name: &str, seen: &Value, to: i32| {
            let body = json!({"spec": {"replicas": to}});
            write::merge(cluster.api, &described(name), &cluster.path(name), seen, body).await
        };
        let delete = async |name: &str, seen: &Value| {
            write::delete(cluster.api, &described(name), &cluster.path(name), seen).await
        };
        let growing = &snapshot.growing;
        let written = match (step, &snapshot.shrinking) {
            (Step::Grow { to }, _) => resize(&self.growing.name, growing, *to).await,
            (Step::Shrink { to }, Some(shrinking)) => resize(self.shrinks(), shrinking, *to).await,
            (Step::StepAside { value }, _) => hand_over::step_aside(cluster, growing, key, value).await,
            (Step::TakeOver { value }, Some(shrinking)) => {
                hand_over::take_over(cluster, shrinking, growing, key, value, self.bounds.desired).await
            }
            (Step::DeleteGrowing, _) => delete(&self.growing.name, growing).await,
            (Step::DeleteShrinking, Some(shrinking)) => delete(self.shrinks(), shrinking).await,
            (Step::Shrink { .. } | Step::TakeOver { .. } | Step::DeleteShrinking, None)
            | (Step::Wait(_) | Step::Finished, _) => return Ok(()),
        };
        written.map(drop)
    }

    fn announce(
        &self,
        step: &Step,
        snapshot: &Snapshot,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), CommandError> {
        let (old, new) = (self.shrinks(), self.growing.name.as_str());
        let from = |object: &Value| object["spec"]["replicas"].as_i64().unwrap_or(1);
        let scaled = |controller: &str, from: i64, to: i32| {
            let more = json!({"controller": controller, "from": from, "to": to});
            ("Scaled", format!("Scaling {controller} from {from} to {to}"), more)
        };
        let deleted = |controller: &str| json!({"controller": controller});
        let (kind, text, more) = match (step, &snapshot.shrinking) {
            (Step::Grow { to }, _) => scaled(new, from(&snapshot.growing), *to),
            (Step::Shrink { to }, Some(shrinking)) => scaled(old, from(shrinking), *to),
            (Step::DeleteShrinking, _) => {
                let what = if self.is_rollback { "Rollback" } else { "Update" };
                ("Deleted", format!("{what} succeeded. Deleting {old}"), deleted(old))
            }
            (Step::StepAside { .. }, _) => {
                ("HandingOver", format!("Update succeeded. {old} takes the pods of {new} over"), json!({}))
            }
            (Step::DeleteGrowing, _) => (
                "Deleted",
                format!("Renaming {new} to {old}: {old} owns its pods, {new} is deleted"),
                deleted(new),
            ),
            _ => return Ok(()),
        };
        reporter.event(kind, &text, more)
    }

    /// Notes what the update waits for, once for each reason.
    fn report(
        &self,
        step: &Step,
        snapshot: &Snapshot,
        clock: &mut Clock,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), CommandError> {
        let Step::Wait(wait) = step else { return Ok(()) };
        let pod = self.growing_pods(snapshot, clock.failing.events()).into_iter().find(is_in_the_way);
        let state = |pod: &PodView| format!("; {}: {}", pod.name, pod.state);
        let said = format!("{wait}{}", pod.as_ref().map_or(String::new(), state));
        // A state that every step passes through is no news.
        let is_news = pod.is_some() || matches!(wait, Wait::Count { refusal: Some(_), .. });
        if is_news && clock.said != said {
            let text = format!("{}{}", harmless(&wait.to_string()), reason_of(pod.as_ref(), "; ", ""));
            reporter.note(&format!("note: {text}"));
            reporter.object("Waiting", &text, json!({"pod": pod}))?;
            clock.said = said;
        }
        Ok(())
    }

    /// The pods of the growing controller.
    fn growing_pods(&self, snapshot: &Snapshot, events: &BTreeMap<String, Vec<Value>>) -> Vec<PodView> {
        let now = self.cluster.api.now();
        let own = snapshot.pods.iter().filter(|(pod, _)| snapshot.decoded.1.controls(&pod.meta));
        own.map(|(pod, object)| PodView::new(pod, object, &snapshot.decoded.1, true, events, now)).collect()
    }

    /// Why to give up: there was no progress in time, or with --fail-fast there can be none.
    async fn reason_to_give_up(&self, step: &Step, snapshot: &Snapshot, clock: &mut Clock) -> Option<String> {
        let Step::Wait(wait) = step else { return None };
        let what = harmless(&wait.to_string());
        if self.args.fail_fast && !self.is_rollback {
            if matches!(wait, Wait::Count { refusal: Some(_), .. }) {
                return Some(format!("no progress is possible: {what}"));
            }
            let pods = |events: &BTreeMap<String, Vec<Value>>| self.growing_pods(snapshot, events);
            let Cluster { api, namespace, .. } = self.cluster;
            if let Some(failing) = clock.failing.lasting(api, namespace, pods).await {
                return Some(format!("no new pod can become ready: {failing}"));
            }
        }
        (clock.progress.elapsed() >= self.args.timeout).then(|| {
            let pods = self.growing_pods(snapshot, clock.failing.events());
            let pod = pods.iter().find(|pod| is_in_the_way(pod));
            format!("no progress for {:?}: {what}{}", self.args.timeout, reason_of(pod, " (", ")"))
        })
    }

    fn give_up(&self, why: &str, reporter: &mut Reporter<'_>) -> Result<(), CommandError> {
        let back = if self.is_rollback { "" } else { ", or back with --rollback" };
        reporter
            .failed("Failed", &format!("{why}. Both are left as they are: go on with the same command{back}"))
    }
}

/// The result of a turn.
enum Turn {
    Pause(Duration),
    Ended(Ended),
}

/// Whether a write without an answer was carried out, as far as a resize shows.
fn was_carried_out(step: &Step, snapshot: &Snapshot) -> bool {
    let is_at = |object: &Value, to: i32| object["spec"]["replicas"] == to;
    match (step, &snapshot.shrinking) {
        (Step::Grow { to }, _) => is_at(&snapshot.growing, *to),
        (Step::Shrink { to }, Some(shrinking)) => is_at(shrinking, *to),
        (Step::DeleteShrinking, None) => true,
        _ => false,
    }
}

/// Whether OLD has taken the pods over: the write that does it also removes its size from before the update.
fn has_taken_over(old: &Value) -> bool {
    !old["metadata"]["annotations"][ORIGINAL_REPLICAS].is_string()
}

/// Whether the object has changed since it was read, or is gone.
fn is_outdated(error: &ApiError) -> bool {
    matches!(error.code(), Some(404 | 409))
}
