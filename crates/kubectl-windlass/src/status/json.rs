//! A JSON object for each change, one a line. Fields are only ever added, and the last object of a Deployment is of type
//! `Complete`, `Failed`, `TimedOut` or, with `--watch=false`, `Unfinished`.

use serde_json::{Value, json};

use super::verdicts::End;
use crate::rollout::headline::headline;
use crate::rollout::{Assessment, Verdict, json as as_json};

/// The state of the stream of one Deployment.
#[derive(Debug, Default)]
pub struct Stream {
    last: Option<Assessment>,
    has_ended: bool,
}

impl Stream {
    /// The objects that an assessment adds.
    pub fn update(&mut self, now: &Assessment, ended: Option<&End>) -> Vec<Value> {
        if self.has_ended {
            return Vec::new();
        }
        let mut events = match &self.last {
            None => vec![event(now, "Started", json!({}))],
            Some(before) => changes(before, now),
        };
        if self.last.as_ref().is_none_or(|before| before.verdict != now.verdict)
            && now.verdict == Verdict::Paused
        {
            events.push(event(now, "Paused", json!({})));
        }
        if let Some(end) = ended {
            self.has_ended = true;
            let (kind, more) = match end {
                End::Complete => ("Complete", json!({})),
                End::Failed(message) => ("Failed", json!({"message": message, "why": why(now)})),
                End::TimedOut(message) => ("TimedOut", json!({"message": message, "why": why(now)})),
                End::Unfinished(message) => ("Unfinished", json!({"message": message, "why": why(now)})),
            };
            events.push(event(now, kind, more));
        }
        self.last = Some(now.clone());
        events
    }
}

/// The reasons; null where none is known.
fn why(now: &Assessment) -> Value {
    if now.is_partial { Value::Null } else { as_json::why(&now.reasons) }
}

fn event(now: &Assessment, kind: &str, more: Value) -> Value {
    let mut event = json!({
        "time": now.now.to_string(), "type": kind, "kind": now.kind.title(), "namespace": now.namespace, "name": now.name,
        "revision": now.revision, "verdict": now.verdict, "counts": as_json::counts(now),
        "newAvailable": now.new_available(),
        "secondsLeft": now.estimate.map(|left| left.as_secs()),
    });
    if now.is_partial {
        event["unreadable"] = json!(now.unreadable);
    }
    if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
        event.extend(more);
    }
    event
}

fn changes(before: &Assessment, now: &Assessment) -> Vec<Value> {
    let mut events = Vec::new();
    if now.supersedes(before) {
        events.push(event(now, "Superseded", json!({"from": before.revision})));
    }
    for part in &now.parts {
        let known = before.parts.iter().find(|known| known.name == part.name);
        let from = known.map_or(0, |known| known.desired);
        if from != part.desired {
            let name = if now.kind.has_controller_revisions() { "controllerRevision" } else { "replicaSet" };
            let more = json!({name: part.name, "from": from, "to": part.desired});
            events.push(event(now, "Scaled", more));
        }
    }
    for pod in now.pods.iter().filter(|pod| pod.is_failing) {
        let known = before.pods.iter().find(|known| known.uid == pod.uid);
        if known.is_none_or(|known| known.state != pod.state) {
            events.push(event(now, "Pod", json!({"pod": pod})));
        }
    }
    let numbers = |it: &Assessment| (it.new_available(), it.counts, it.work.clone());
    if numbers(now) != numbers(before) {
        events.push(event(now, "Progress", json!({})));
    }
    let waits = |assessment: &Assessment| match assessment.verdict {
        Verdict::Waiting
        | Verdict::Held
        | Verdict::Halted
        | Verdict::Unfinished
        | Verdict::Stuck
        | Verdict::Blocked
        | Verdict::Unobserved => {
            let pod = assessment.pods.iter().find(|pod| pod.is_failing);
            Some((assessment.verdict, pod.map(|pod| (pod.uid.clone(), pod.state.clone()))))
        }
        _ => None,
    };
    if waits(now).is_some() && waits(now) != waits(before) {
        let more = json!({"message": headline(now), "why": why(now)});
        events.push(event(now, "Waiting", more));
    }
    events
}
