//! The loop of an update that the client carries out: look, let the job decide, send its write, and say what has happened.
//!
//! It is the daemon's job, on a request made from the flags. The report is kept here, where the daemon stores it as a
//! condition.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::time::Instant;
use windlass::model::{
    Condition, Interner, Pod, Record as _, ReplicaSet, ReplicationController, Selector, Uid, condition,
};
use windlass::plan::rolling_update::bookkeeping::SOURCE;
use windlass::plan::rolling_update::job::{self, Adopter, Observed, Plan, Side, Write, second};
use windlass::plan::rolling_update::report::{ROLLING_UPDATE, Reason, Report};
use windlass::plan::rolling_update::request::{ALL_OF_OLD, Request};
use windlass::plan::rolling_update::{Cleanup, patches, refusal};

use super::adopters::adopters;
use super::fail_fast::Failing;
use super::follow::Follow;
use super::outage::Outage;
use super::prepare::{self, name, selector};
use super::reporter::Reporter;
use super::{Cluster, deleted, described, refused, server_side};
use crate::cli::RollingUpdateArgs;
use crate::exit::CommandError;
use crate::rollout::pods::PodView;
use crate::text::harmless;
use crate::watch::Change;
use crate::write;

/// How long the caches of a controller manager may lag: pods without a controller are handed over after it, or a
/// controller that still counts them as its own might act on them.
const CACHES_LAG: Duration = Duration::from_secs(5);

/// After a write the next look comes sooner than --poll-interval.
const AFTER_A_WRITE: Duration = Duration::from_secs(1);

/// An update that the client carries out, in either direction.
pub(super) struct Drive<'a> {
    cluster: &'a Cluster<'a>,
    args: &'a RollingUpdateArgs,
    request: Request,
    /// The UID of OLD; `None` if it is deleted already.
    old: Option<Uid>,
    /// The line about the start, and its numbers, until it is printed.
    started: Option<(String, Value)>,
    /// Kind, name and selector of those that could adopt the pods of a hand-over.
    adopters: Vec<(&'static str, String, Selector)>,
    follow: Follow,
    /// The last report.
    condition: Option<Condition>,
    /// Since when the pods of a hand-over belong to no controller.
    ownerless: Option<Instant>,
    failing: Failing,
}

/// How an update ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing is left to do. The name of the controller that survives.
    Complete(String),
    /// There was no progress in time, or there can be none.
    Failed,
}

/// The result of a turn.
enum Turn {
    Pause(Duration),
    Ended(Ended),
}

/// The state that one look shows.
struct Look {
    /// OLD and NEW.
    objects: Vec<Value>,
    /// The controllers of the namespace.
    all: Vec<Arc<ReplicationController>>,
    pods: Vec<Arc<Pod>>,
    pod_objects: Vec<Value>,
}

impl<'a> Drive<'a> {
    /// An update from OLD to the target of the request. `started` is the line about its start, with its numbers.
    ///
    /// # Errors
    /// When OLD is no ReplicationController.
    pub(super) fn new(
        cluster: &'a Cluster<'a>,
        old: (&str, Option<&Value>),
        new: Option<&Value>,
        request: Request,
        started: Option<(String, Value)>,
        args: &'a RollingUpdateArgs,
    ) -> Result<Self, CommandError> {
        let decoded = old.1.map(prepare::decode).transpose().map_err(refused)?;
        Ok(Drive {
            cluster,
            args,
            old: decoded.map(|old| old.meta.uid),
            started,
            adopters: Vec::new(),
            follow: Follow::new(old, (&request.target, new), Value::Null),
            request,
            condition: None,
            ownerless: None,
            failing: Failing::default(),
        })
    }

    /// Carries the update out to its end.
    pub(super) async fn run(mut self, reporter: &mut Reporter<'_>) -> Result<Ended, CommandError> {
        if self.request.cleanup == Cleanup::KeepName {
            self.adopters = adopters(self.cluster, reporter).await?;
        }
        let mut outage = Outage::new(self.args.timeout);
        loop {
            match self.turn(reporter).await {
                Ok(Turn::Ended(ended)) => return Ok(ended),
                Ok(Turn::Pause(pause)) => {
                    outage.over();
                    tokio::time::sleep(pause).await;
                }
                Err(error) => outage.wait(error, reporter).await?,
            }
        }
    }

    /// Refuses a hand-over that the job refuses, before the daemon is asked for it: the daemon knows no Jobs.
    ///
    /// # Errors
    /// With the refusal, or when a request fails.
    pub(super) async fn check(mut self, reporter: &mut Reporter<'_>) -> Result<(), CommandError> {
        self.adopters = adopters(self.cluster, reporter).await?;
        let look = self.look().await?;
        let old = look.all.iter().find(|one| Some(&one.0.meta.uid) == self.old.as_ref());
        let Some(old) = old.map(|one| one.0.clone()) else { return Err(deleted(&self.follow.old_name)) };
        self.plan(&mut { old }, &look, self.cluster.api.now(), reporter).map(drop)
    }

    /// One look, and the write that follows from it.
    async fn turn(&mut self, reporter: &mut Reporter<'_>) -> Result<Turn, CommandError> {
        let look = self.look().await?;
        self.follow.take(Change::Listed(look.objects.clone()));
        server_side::show(&mut self.follow, reporter)?;
        for controller in &look.objects {
            server_side::refuse_request(controller).map_err(refused)?;
        }
        let mut all = look.all.iter().map(|one| &one.0);
        let new = all.clone().find(|one| *one.meta.key.name == *self.request.target);
        let old = all.find(|one| Some(&one.meta.uid) == self.old.as_ref());
        if let Some(survivor) = self.ended_by_another(old, new) {
            return Ok(complete(survivor));
        }
        let keeps_old = self.request.is_rollback || self.request.cleanup == Cleanup::KeepName;
        let own = match old {
            Some(old) if !self.is_over(old) => old,
            Some(old) if keeps_old => return Ok(complete(old)),
            None if self.request.is_rollback => return Err(deleted(&self.follow.old_name)),
            _ => new.ok_or_else(|| deleted(&self.request.target))?,
        };
        if own.meta.is_deleting() {
            return Err(refused(format!("replicationcontroller {} is being deleted", own.meta.key.name)));
        }
        let now = self.cluster.api.now();
        let mut own = own.clone();
        let Some(plan) = self.plan(&mut own, &look, now, reporter)? else { return Ok(complete(&own)) };
        let poll = self.args.poll_interval;
        let Some(write) = &plan.write else { return self.wait(&plan, new, &look, reporter).await };
        if self.is_over(&own) {
            return Ok(Turn::Pause(Duration::ZERO));
        }
        if matches!(write, Write::TakeOver { .. }) {
            let since = *self.ownerless.get_or_insert_with(Instant::now);
            if let Some(left) = CACHES_LAG.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
                return Ok(Turn::Pause(left.min(poll)));
            }
        }
        match self.send(write, &own, new, &look, now).await {
            Ok(change) => {
                if let Some(change) = change {
                    self.follow.take(change);
                    server_side::show(&mut self.follow, reporter)?;
                }
                if matches!(write, Write::Annotate(..)) {
                    return Ok(Turn::Pause(Duration::ZERO));
                }
            }
            // Someone else has written, or deleted it: look again.
            Err(CommandError::Api(error)) if matches!(error.code(), Some(404 | 409)) => {}
            Err(error) => return Err(error),
        }
        Ok(Turn::Pause(poll.min(AFTER_A_WRITE)))
    }

    /// Whether OLD's part is over: its end is reported, and it has no bookkeeping.
    fn is_over(&self, old: &ReplicaSet) -> bool {
        self.condition.as_ref().is_some_and(|condition| !condition.is_true())
            && Some(&old.meta.uid) == self.old.as_ref()
            && has_no_bookkeeping(old)
    }

    /// The survivor, where another client or the daemon has made the last writes of an update that keeps OLD.
    fn ended_by_another<'b>(
        &self,
        old: Option<&'b ReplicaSet>,
        new: Option<&'b ReplicaSet>,
    ) -> Option<&'b ReplicaSet> {
        let old = old.filter(|old| has_no_bookkeeping(old) && !self.request.is_rollback)?;
        match self.request.cleanup {
            Cleanup::Preserve => new.filter(|new| old.replicas == 0 && new.annotations.get(SOURCE).is_none()),
            // Once it has begun, nobody takes the update back.
            Cleanup::KeepName => Some(old).filter(|_| new.is_none() && self.follow.is_handing_over()),
            Cleanup::Delete => None,
        }
    }

    /// The plan, once all that it reports is kept; `None` where nothing is left to do for NEW.
    fn plan(
        &mut self,
        own: &mut ReplicaSet,
        look: &Look,
        now: Timestamp,
        reporter: &mut Reporter<'_>,
    ) -> Result<Option<Plan>, CommandError> {
        let adopters = self.adopters.iter().map(|(kind, name, selector)| Adopter { kind, name, selector });
        let adopters: Vec<Adopter<'_>> = adopters.collect();
        loop {
            own.status.conditions.retain(|one| *one.kind != *ROLLING_UPDATE);
            own.status.conditions.extend(self.condition.clone());
            let (all, pods, is_old) = (&look.all, &look.pods, Some(&own.meta.uid) == self.old.as_ref());
            let observed = Observed { own, all, adopters: &adopters, pods, controls_pods: true, now };
            let plan = match is_old {
                true => job::carry_out(&observed, &self.request),
                false => match job::finish(&observed) {
                    Some(plan) => plan,
                    None => return Ok(None),
                },
            };
            let (Some(Write::Report), Some(report)) = (&plan.write, &plan.report) else {
                return Ok(Some(plan));
            };
            if report.reason == Reason::Refused {
                return Err(refused(harmless(&report.message)));
            }
            if let Some((text, numbers)) = self.started.take() {
                reporter.event("Started", &text, numbers)?;
            }
            self.condition = condition::find(&report.conditions(own, now), ROLLING_UPDATE).cloned();
        }
    }

    /// Waits, says for what, and gives up where there is no progress.
    async fn wait(
        &mut self,
        plan: &Plan,
        new: Option<&ReplicaSet>,
        look: &Look,
        reporter: &mut Reporter<'_>,
    ) -> Result<Turn, CommandError> {
        let poll = self.args.poll_interval;
        let pause = Turn::Pause(plan.look_again.map_or(poll, |left| left.min(poll)));
        let Some(Report { reason, message }) = &plan.report else { return Ok(pause) };
        let message = harmless(message);
        let why = match new {
            _ if plan.is_late => Some(message.replacen("No progress", "no progress", 1)),
            Some(new) if self.args.fail_fast && !self.request.is_rollback => {
                self.obstacle(new, look, &message).await
            }
            _ => None,
        };
        let Some(why) = why else {
            let waits = matches!(reason, Reason::Waiting | Reason::TimedOut | Reason::RollingBack);
            reporter.waits_for(if waits { &message } else { "" }, false)?;
            return Ok(pause);
        };
        let back = if self.request.is_rollback { "" } else { ", or back with --rollback" };
        let text = format!("{why}. Both are left as they are: go on with the same command{back}");
        reporter.failed("Failed", &text)?;
        Ok(Turn::Ended(Ended::Failed))
    }

    /// Why there can be no progress.
    async fn obstacle(&mut self, new: &ReplicaSet, look: &Look, message: &str) -> Option<String> {
        if refusal(new).is_some() && new.status.replicas < new.replicas {
            return Some(format!("no progress is possible: {message}"));
        }
        let Cluster { api, namespace, .. } = self.cluster;
        let pods = |events: &BTreeMap<String, Vec<Value>>| -> Vec<PodView> {
            let all = look.pods.iter().zip(&look.pod_objects).filter(|(pod, _)| new.controls(&pod.meta));
            all.map(|(pod, object)| PodView::new(pod, object, &new.meta.key.name, true, events, api.now()))
                .collect()
        };
        let failing = self.failing.lasting(api, namespace, pods).await?;
        Some(format!("no new pod can become ready: {failing}"))
    }

    /// The present state.
    async fn look(&self) -> Result<Look, CommandError> {
        let mut objects = self.cluster.all().await?;
        let decoded = objects.iter().filter_map(|object| prepare::decode(object).ok());
        let all: Vec<_> = decoded
            .map(|mut one| {
                one.min_ready_seconds = self.args.min_ready_seconds.unwrap_or(one.min_ready_seconds);
                Arc::new(ReplicationController(one))
            })
            .collect();
        let old = self.old.as_ref().map(Uid::to_string);
        objects.retain(|one| {
            name(one) == self.request.target || one["metadata"]["uid"].as_str() == old.as_deref()
        });
        let (pods, pod_objects) = self.pods(&objects).await?;
        Ok(Look { objects, all, pods, pod_objects })
    }

    /// The pods with the labels that those of both have: in a hand-over, neither selector matches.
    async fn pods(&self, both: &[Value]) -> Result<(Vec<Arc<Pod>>, Vec<Value>), CommandError> {
        let mut selectors = both.iter().map(selector);
        let mut common: Map<String, Value> = selectors.next().unwrap_or_default();
        for other in selectors {
            common.retain(|key, value| other.get(key) == Some(value));
        }
        let labels =
            common.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
        let labels = labels.collect::<Vec<_>>().join(",");
        let query: Vec<(&str, &str)> =
            Some(("labelSelector", labels.as_str())).filter(|_| !labels.is_empty()).into_iter().collect();
        let path = Pod::RESOURCE.path(Some(self.cluster.namespace));
        let listed = self.cluster.api.list("pods", &path, &query).await?.items;
        let interner = &mut Interner::default();
        let pods = listed
            .into_iter()
            .filter_map(|object| Some((Arc::new(Pod::decode(&object.to_string(), interner).ok()?), object)));
        Ok(pods.unzip())
    }

    /// Sends a write. Returns the change that it has made.
    async fn send(
        &self,
        write: &Write,
        own: &ReplicaSet,
        target: Option<&ReplicaSet>,
        look: &Look,
        now: Timestamp,
    ) -> Result<Option<Change>, CommandError> {
        let side = match write {
            Write::Report => return Ok(None),
            Write::Annotate(side, _) | Write::Resize(side, _) | Write::Delete(side) => *side,
            Write::StepAside { .. } => Side::Target,
            Write::TakeOver { .. } => Side::Own,
        };
        let on = if side == Side::Own { Some(own) } else { target };
        let seen = |on: &&ReplicaSet| look.objects.iter().find(|one| name(one) == &*on.meta.key.name);
        let Some((on, seen)) = on.and_then(|on| Some((on, seen(&on)?))) else { return Ok(None) };
        let (meta, now, api) = (&on.meta, second(now), self.cluster.api);
        let (what, path) = (described(name(seen)), self.cluster.path(name(seen)));
        let body = match (write, target) {
            (Write::Annotate(_, annotations), _) => patches::annotate(meta, annotations),
            (Write::Resize(_, to), _) => patches::resize(meta, *to, now),
            (Write::StepAside { key, value }, _) => patches::step_aside(meta, key, value, now),
            (Write::TakeOver { key, value, replicas }, Some(new)) => {
                let operations = patches::take_over(own, new, (key, value), *replicas, now);
                let operations = operations.map_err(|error| refused(error.to_string()))?;
                return Ok(Some(Change::Applied(write::replace(api, &what, &path, seen, operations).await?)));
            }
            (Write::Delete(_), _) => {
                write::delete(api, &what, &path, seen).await?;
                return Ok(Some(Change::Deleted(seen.clone())));
            }
            (Write::TakeOver { .. }, None) | (Write::Report, _) => return Ok(None),
        };
        Ok(Some(Change::Applied(write::merge(api, &what, &path, seen, body).await?)))
    }
}

fn has_no_bookkeeping(old: &ReplicaSet) -> bool {
    ALL_OF_OLD.iter().all(|annotation| old.annotations.get(annotation).is_none())
}

fn complete(survivor: &ReplicaSet) -> Turn {
    Turn::Ended(Ended::Complete(survivor.meta.key.name.to_string()))
}
