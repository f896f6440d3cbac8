//! Conditions and events tell what is so: RU9. The conditions of others stay: RU5.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::judge::{Judge, Write};
use super::scenario::Cleanup;
use super::truth::{self, HANDING_OVER, ORIGINAL, REQUEST, SOURCE, STEP_AT, Terms, condition, reason};
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::{name, text, uid};

/// The reasons of an update that is under way.
const UNDER_WAY: [&str; 6] = ["Progressing", "Waiting", "Paused", "RollingBack", "TimedOut", "HandingOver"];

/// A condition but for our own.
fn others(controller: &Value) -> usize {
    let all = controller["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter(|condition| condition["type"] == "example.com/Foreign").count()
}

impl Judge {
    /// A status is written, by the controller of the pods or with a report.
    pub(super) fn status(&self, write: &Write<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
        if before["spec"] != after["spec"] || others(before) != others(after) {
            return Err(write.breach("RU5", "a write of a status changes something else"));
        }
        let Some(is) = condition(after) else {
            return match condition(before) {
                Some(_) => Err(write.breach("RU9", "the condition of an update is removed")),
                None => Ok(()),
            };
        };
        if condition(before) == Some(is) {
            return Ok(());
        }
        let said = reason(after);
        if (is["status"] == "True") != UNDER_WAY.contains(&said) {
            return Err(write.breach("RU9", format!("{said} is {}", is["status"])));
        }
        match is_true(write, after, said) {
            true => self.in_time(write, after, said),
            false => Err(write.breach("RU9", format!("{} says {said}, which is not so", name(after)))),
        }
    }

    /// `TimedOut` comes after the time without a resize, and not before.
    fn in_time(&self, write: &Write<'_>, after: &Value, said: &str) -> Result<(), Breach> {
        if said != "TimedOut" {
            return Ok(());
        }
        let all = write.known.iter().flat_map(|state| state.pairs(name(after)));
        let timeout = all.filter_map(|(old, new)| Terms::read(old, new)).map(|terms| terms.timeout).min();
        let limit = Duration::from_secs(timeout.unwrap_or_default() as u64);
        let target = truth::annotation(after, REQUEST).unwrap_or_default();
        let uids =
            [Some(after), write.of(target).next().map(|facts| &facts.object)].into_iter().flatten().map(uid);
        let last = uids.filter_map(|uid| self.resized.get(uid)).max();
        match last.is_some_and(|last| write.at.saturating_sub(*last) + Duration::from_secs(1) < limit) {
            true => Err(write.breach("RU9", format!("TimedOut less than {limit:?} after a resize"))),
            false => Ok(()),
        }
    }

    /// An event of the controller tells what has happened.
    pub(super) fn event(&self, call: &Call) -> Result<(), Breach> {
        let body = &call.body;
        let is_ours = body["source"]["component"] == "rollingupdate-controller";
        if call.method != Method::POST || !is_ours {
            return Ok(());
        }
        let (message, said) = (text(body, "/message"), text(body, "/reason"));
        let message = message.strip_prefix("(combined from similar events): ").unwrap_or(message);
        let is_known = match said {
            "ScalingReplicationController" => self.resizes.contains(message),
            "RollingUpdateWriteFailed" | "RollingUpdateSizeChanged" => true,
            _ => self.reports.contains(message),
        };
        match is_known {
            true => Ok(()),
            false => {
                Err(Breach::new("RU9", format!("an event tells what has not happened: {said} {message}")))
            }
        }
    }
}

/// Whether a report was true at a moment that its author could know.
fn is_true(write: &Write<'_>, after: &Value, said: &str) -> bool {
    write.known.iter().any(|state| {
        let Some(own) = state.facts.get(name(after)) else { return false };
        let named = own.get(REQUEST).and_then(|target| state.facts.get(target));
        let new = named.filter(|new| !new.is_going());
        let terms = Terms::read(own, new);
        let goes_on = |is: fn(&Terms) -> bool| terms.as_ref().is_some_and(is);
        match said {
            "Progressing" | "Waiting" => goes_on(|terms| !terms.is_rollback),
            "Paused" => goes_on(|terms| terms.is_paused),
            "RollingBack" => goes_on(|terms| terms.is_rollback),
            "TimedOut" => goes_on(|_| true),
            "HandingOver" => {
                new.is_some_and(|new| new.get(HANDING_OVER).is_some())
                    || (goes_on(|terms| terms.cleanup == Cleanup::KeepName) && own.size == 0)
            }
            "Stopped" => own.get(REQUEST).is_none(),
            "RolledBack" => {
                goes_on(|terms| terms.is_rollback)
                    && new.is_none()
                    && terms.is_some_and(|terms| own.size == terms.desired)
            }
            // `obstacle` judges it once everything is settled.
            "Refused" => own.get(REQUEST).is_some() || own.get(STEP_AT).is_some(),
            // NEW of another update, whose OLD is deleted. A size that a client has noted on it is no update of its own.
            "Complete"
                if (own.get(ORIGINAL).is_none() || own.get(REQUEST).is_none())
                    && own.get(SOURCE).is_some_and(|source| !state.has(source)) =>
            {
                own.sized(truth::DESIRED).is_none_or(|desired| own.size == desired)
            }
            "Complete" => match (&terms, new) {
                (None, _) => false,
                (Some(terms), None) => terms.cleanup == Cleanup::KeepName && own.get(ORIGINAL).is_none(),
                (Some(terms), Some(new)) => {
                    terms.cleanup == Cleanup::Preserve
                        && own.size == 0
                        && new.size == terms.desired
                        && new.available >= terms.desired
                }
            },
            _ => false,
        }
    })
}
