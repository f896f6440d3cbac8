//! The loop: look, plan one step, write it, and say so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use windlass::model::{Interner, Pod, Record as _, ReplicaSet};
use windlass::plan::rolling_update::bookkeeping::ORIGINAL_REPLICAS;
use windlass::plan::rolling_update::{Bounds, Cleanup, Observed, Step, Wait, available, plan};

use super::prepare::{self, selector};
use super::{Cluster, described, hand_over, refused, server_side};
use crate::api::ApiError;
use crate::cli::RollingUpdateArgs;
use crate::exit::CommandError;
use crate::output::Output;
use crate::rollout::pods::PodView;
use crate::write;

/// How long the caches of a controller manager may lag: pods without a controller are handed over after it, or a
/// controller that still counts them as its own might act on them.
const CACHES_LAG: Duration = Duration::from_secs(5);

/// After a write the next look comes sooner than --poll-interval.
const AFTER_A_WRITE: Duration = Duration::from_secs(1);

/// A rolling update, in either direction.
pub(super) struct Drive<'a> {
    /// The API server.
    pub cluster: &'a Cluster<'a>,
    /// The name of the controller that shrinks; empty if there is none.
    pub shrinking: &'a str,
    /// The name of the controller that grows.
    pub growing: &'a str,
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
    /// There was no progress in time.
    Failed,
}

/// What one look shows.
struct Look {
    shrinking: Option<Value>,
    growing: Value,
    decoded: (Option<ReplicaSet>, ReplicaSet),
    pods: Vec<(Arc<Pod>, Value)>,
}

/// What has happened since the last progress.
struct Clock {
    progress: Instant,
    grown: Option<Instant>,
    ownerless: Option<Instant>,
    most_available: i64,
    said: String,
}

impl Drive<'_> {
    /// Drives the update to its end.
    pub(super) async fn run(&self, output: &mut Output) -> Result<Ended, CommandError> {
        let mut clock = Clock {
            progress: Instant::now(),
            grown: None,
            ownerless: None,
            most_available: 0,
            said: String::new(),
        };
        loop {
            let Some(look) = self.look().await? else { return Ok(Ended::Complete) };
            let pods: Vec<Arc<Pod>> = look.pods.iter().map(|(pod, _)| pod.clone()).collect();
            let (shrinking, growing) = (look.decoded.0.as_ref(), &look.decoded.1);
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
                return Ok(Ended::Complete);
            }
            let pause = match self.wait(&step, &mut clock) {
                Some(pause) => {
                    self.report(&step, &look, &mut clock, output)?;
                    if clock.progress.elapsed() >= self.args.timeout && matches!(step, Step::Wait(_)) {
                        self.give_up(&step, &look, output);
                        return Ok(Ended::Failed);
                    }
                    pause
                }
                None => {
                    match self.write(&step, &look).await {
                        Ok(()) => {
                            self.announce(&step, &look, output)?;
                            clock.progress = Instant::now();
                            if matches!(step, Step::Grow { .. }) {
                                clock.grown = Some(Instant::now());
                            }
                        }
                        // Someone else has written, or deleted it: look again.
                        Err(error) if is_outdated(&error) => {}
                        Err(error) => return Err(error.into()),
                    }
                    self.args.poll_interval.min(AFTER_A_WRITE)
                }
            };
            tokio::time::sleep(pause).await;
        }
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

    /// What is there now; `None` once the hand-over has deleted the growing one.
    async fn look(&self) -> Result<Option<Look>, CommandError> {
        let shrinking = match self.shrinking {
            "" => None,
            name => self.cluster.get(name).await?,
        };
        let Some(growing) = self.cluster.get(self.growing).await? else {
            if self.cleanup == Cleanup::KeepName && shrinking.as_ref().is_some_and(has_taken_over) {
                return Ok(None);
            }
            return Err(refused(format!(
                "replicationcontroller {} was deleted in the middle of the update; {} has {} replicas",
                self.growing,
                self.shrinking,
                shrinking.map_or(Value::Null, |other| other["spec"]["replicas"].clone())
            )));
        };
        if shrinking.is_none() && !self.shrinking.is_empty() && self.cleanup == Cleanup::KeepName {
            return Err(refused(format!(
                "replicationcontroller {} was deleted in the middle of the update; {} remains",
                self.shrinking, self.growing
            )));
        }
        for controller in [shrinking.as_ref(), Some(&growing)].into_iter().flatten() {
            server_side::refuse_request(controller).map_err(refused)?;
        }
        let decode = |object: &Value| prepare::decode(object).map_err(refused);
        let mut decoded = (shrinking.as_ref().map(decode).transpose()?, decode(&growing)?);
        if let Some(seconds) = self.args.min_ready_seconds {
            decoded.1.min_ready_seconds = seconds;
        }
        // The labels that the pods of both have: in a hand-over, neither selector matches.
        let mut common = selector(&growing);
        if let Some(other) = &shrinking {
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
            .filter_map(|object| Some((Arc::new(Pod::decode(&object.to_string(), interner).ok()?), object)))
            .collect();
        Ok(Some(Look { shrinking, growing, decoded, pods }))
    }

    async fn write(&self, step: &Step, look: &Look) -> Result<(), ApiError> {
        let cluster = self.cluster;
        let key = self.label_key;
        let resize = async |name: &str, seen: &Value, to: i32| {
            let body = json!({"spec": {"replicas": to}});
            write::merge(cluster.api, &described(name), &cluster.path(name), seen, body).await
        };
        let delete = async |name: &str, seen: &Value| {
            write::delete(cluster.api, &described(name), &cluster.path(name), seen).await
        };
        let growing = &look.growing;
        let written = match (step, &look.shrinking) {
            (Step::Grow { to }, _) => resize(self.growing, growing, *to).await,
            (Step::Shrink { to }, Some(shrinking)) => resize(self.shrinking, shrinking, *to).await,
            (Step::StepAside { value }, _) => hand_over::step_aside(cluster, growing, key, value).await,
            (Step::TakeOver { value }, Some(shrinking)) => {
                hand_over::take_over(cluster, shrinking, growing, key, value, self.bounds.desired).await
            }
            (Step::DeleteGrowing, _) => delete(self.growing, growing).await,
            (Step::DeleteShrinking, Some(shrinking)) => delete(self.shrinking, shrinking).await,
            (Step::Shrink { .. } | Step::TakeOver { .. } | Step::DeleteShrinking, None)
            | (Step::Wait(_) | Step::Finished, _) => return Ok(()),
        };
        written.map(drop)
    }

    fn announce(&self, step: &Step, look: &Look, output: &mut Output) -> Result<(), CommandError> {
        let (old, new) = (self.shrinking, self.growing);
        let from = |object: &Value| object["spec"]["replicas"].as_i64().unwrap_or(1);
        let line = match (step, &look.shrinking) {
            (Step::Grow { to }, _) => format!("Scaling {new} from {} to {to}", from(&look.growing)),
            (Step::Shrink { to }, Some(shrinking)) => {
                format!("Scaling {old} from {} to {to}", from(shrinking))
            }
            (Step::DeleteShrinking, _) if self.is_rollback => format!("Rollback succeeded. Deleting {old}"),
            (Step::DeleteShrinking, _) => format!("Update succeeded. Deleting {old}"),
            (Step::StepAside { .. }, _) => format!("Update succeeded. {old} takes the pods of {new} over"),
            (Step::DeleteGrowing, _) => {
                format!("Renaming {new} to {old}: {old} owns its pods, {new} is deleted")
            }
            _ => return Ok(()),
        };
        output.line(&line)
    }

    /// Notes what the update waits for, once for each reason.
    fn report(
        &self,
        step: &Step,
        look: &Look,
        clock: &mut Clock,
        output: &mut Output,
    ) -> Result<(), CommandError> {
        let Step::Wait(wait) = step else { return Ok(()) };
        let pod = self.failing(look);
        let said = format!(
            "{wait}{}",
            pod.as_ref().map_or(String::new(), |pod| format!("; {}: {}", pod.name, pod.state))
        );
        // What every step passes through is no news.
        let is_news = pod.is_some() || matches!(wait, Wait::Count { refusal: Some(_), .. });
        if is_news && clock.said != said {
            let reason =
                pod.map_or(String::new(), |pod| format!("; {}: {}: {}", pod.name, pod.state, pod.reason));
            output.note(&format!("note: {}{}", crate::text::harmless(&wait.to_string()), reason));
            clock.said = said;
        }
        Ok(())
    }

    /// A pod of the growing controller that fails.
    fn failing(&self, look: &Look) -> Option<PodView> {
        let now = self.cluster.api.now();
        let own = look.pods.iter().filter(|(pod, _)| look.decoded.1.controls(&pod.meta));
        own.map(|(pod, object)| PodView::new(pod, object, &look.decoded.1, true, &BTreeMap::new(), now))
            .find(|pod| pod.is_failing && !pod.is_deleting)
    }

    fn give_up(&self, step: &Step, look: &Look, output: &mut Output) {
        let Step::Wait(wait) = step else { return };
        let pod = self.failing(look);
        let because =
            pod.map_or(String::new(), |pod| format!(" ({}: {}: {})", pod.name, pod.state, pod.reason));
        let back = if self.is_rollback { "" } else { ", or back with --rollback" };
        output.error(&format!(
            "no progress for {:?}: {}{because}. Both are left as they are: go on with the same command{back}",
            self.args.timeout,
            crate::text::harmless(&wait.to_string())
        ));
    }
}

/// Whether OLD has taken the pods over: the write that does it also removes its size from before the update.
fn has_taken_over(old: &Value) -> bool {
    !old["metadata"]["annotations"][ORIGINAL_REPLICAS].is_string()
}

/// Whether the object has changed since it was read: a conflict, a failed test of a JSON patch, or it is gone.
fn is_outdated(error: &ApiError) -> bool {
    match error {
        ApiError::Refused { code: 404 | 409, .. } => true,
        ApiError::Refused { code: 422, message, .. } => message.contains("test"),
        _ => false,
    }
}
