//! The terms of a Deployment at one moment, from its annotations: an own reading of what the documentation says.

use std::time::Duration;

use serde_json::Value;

use crate::engine::objects::{self, number, text};

/// The one Deployment.
pub const NAME: &str = "web";

/// A text of an annotation below `windlass.dev/`, or "".
pub fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["annotations"][format!("windlass.dev/{key}")].as_str().unwrap_or_default()
}

/// The revision of a Deployment or ReplicaSet; 0 without one.
pub fn revision(object: &Value) -> i64 {
    text(object, "/metadata/annotations/deployment.kubernetes.io~1revision").parse().unwrap_or(0)
}

/// The template without the hash.
pub fn template(object: &Value) -> Value {
    let mut template = object["spec"]["template"].clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove("pod-template-hash");
    }
    template
}

/// The terms of a Deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// `spec.replicas`.
    pub replicas: i64,
    /// The most pods.
    pub most: i64,
    /// The fewest available pods.
    pub least: i64,
    /// `spec.paused`: no ReplicaSet is created, and no failure judged.
    pub paused: bool,
    /// `spec.template`.
    pub template: Value,
    /// The steps, each with its pods and its wait in seconds; `None`: they cannot be read.
    pub steps: Option<Vec<(i64, Option<u64>)>>,
    /// Whether another value of the policy cannot be read.
    pub is_bad: bool,
    /// Until when it is bypassed, as written.
    pub bypass: String,
    /// Whether failures roll back.
    pub rolls_back: bool,
    /// How long pods must have failed, in seconds.
    pub fail_after: Option<u64>,
    /// Whether something follows from a failure.
    pub acts_on_failure: bool,
    /// Whether terminating pods take room.
    pub counts_ending: bool,
    /// Whether an old pod goes first, where a new one fits no node.
    pub terminates_first: bool,
}

/// The seconds of a duration such as `90s`, `2m`.
pub fn seconds(text: &str) -> Option<u64> {
    let (number, unit) = text.trim().split_at_checked(text.trim().len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    match unit {
        "s" => Some(number),
        "m" => Some(number * 60),
        _ => None,
    }
}

/// Steps, each with its pods and its wait in seconds; `None`: they cannot be read.
pub fn steps(written: &str, replicas: i64) -> Option<Vec<(i64, Option<u64>)>> {
    if written.is_empty() {
        return Some(Vec::new());
    }
    let mut highest = 0;
    let step = |part: &str| {
        let mut words = part.split_whitespace();
        let size = words.next()?;
        let pods = match size.strip_suffix('%') {
            Some(percent) => {
                let percent: i64 = percent.parse().ok().filter(|percent| (1..=100).contains(percent))?;
                ((replicas * percent + 99) / 100).max(1)
            }
            None => size.parse().ok().filter(|pods| *pods > 0)?,
        };
        highest = pods.max(highest);
        match (words.next(), words.next()) {
            (None, None) => Some((highest, None)),
            (Some("for"), Some(wait)) => Some((highest, Some(seconds(wait)?))),
            _ => None,
        }
    };
    written.split(',').map(step).collect()
}

impl Terms {
    /// The terms of this Deployment.
    pub fn of(deployment: &Value) -> Self {
        let replicas = number(deployment, "/spec/replicas");
        let of = |field: &str| number(&deployment["spec"]["strategy"]["rollingUpdate"], field);
        let (surge, unavailable) = (of("/maxSurge"), of("/maxUnavailable"));
        let fail_after = annotation(deployment, "fail-after");
        let on_failure = annotation(deployment, "on-failure");
        Terms {
            replicas,
            most: replicas + surge,
            least: replicas - unavailable,
            paused: deployment["spec"]["paused"] == true,
            template: template(deployment),
            steps: steps(annotation(deployment, "steps"), replicas),
            is_bad: fail_after == "soon" || on_failure == "explode",
            bypass: annotation(deployment, "bypass-until").to_owned(),
            rolls_back: on_failure == "rollback",
            fail_after: seconds(fail_after),
            acts_on_failure: !on_failure.is_empty(),
            counts_ending: annotation(deployment, "pod-replacement") == "TerminationComplete",
            terminates_first: annotation(deployment, "when-unschedulable") == "terminate-first"
                && unavailable == 0,
        }
    }

    /// Whether a value cannot be read.
    pub fn is_invalid(&self) -> bool {
        self.is_bad || self.steps.is_none()
    }

    /// Whether it is bypassed at this time, which is a text, too.
    pub fn is_bypassed(&self, now: &str) -> bool {
        !self.bypass.is_empty() && *self.bypass > *now
    }
}

/// The state of a rollout that a ReplicaSet has; `Null` where it is none of its own.
pub fn state(replica_set: &Value) -> Value {
    let stored: Value = serde_json::from_str(annotation(replica_set, "rollout-state")).unwrap_or_default();
    let is_own = stored["hash"] == replica_set["metadata"]["labels"]["pod-template-hash"];
    if is_own { stored } else { Value::Null }
}

/// Whether a command approves a step of a revision.
pub fn approves(command: &str, revision: i64, step: usize) -> bool {
    let Some(rest) = command.strip_prefix("approve ") else { return false };
    let (named, through) = rest.split_once('/').unwrap_or((rest, ""));
    named.parse() == Ok(revision)
        && (through.is_empty() || through.parse().is_ok_and(|through: usize| through >= step))
}

/// A time as the API server writes it, some time ago.
pub fn written(now: jiff::Timestamp, ago: Duration) -> String {
    objects::written(now.saturating_sub(ago).unwrap_or(now))
}
