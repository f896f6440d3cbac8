//! The progress of an update, as the two ReplicationControllers show it. Pure.

use serde_json::{Value, json};
use windlass::plan::rolling_update::bookkeeping::{HANDING_OVER, SOURCE};
use windlass::plan::rolling_update::report::{ROLLING_UPDATE, Reason};

use super::prepare::name;
use super::server_side::request_of;
use crate::text::harmless;
use crate::watch::Change;

/// The condition of a ReplicationController, or null.
pub(super) fn condition(controller: &Value) -> Value {
    let all = controller["status"]["conditions"].as_array().into_iter().flatten();
    all.into_iter().find(|one| one["type"] == ROLLING_UPDATE).cloned().unwrap_or_default()
}

/// How an update ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All pods are new.
    Complete {
        /// The name of the controller that has them.
        survivor: String,
    },
    /// All pods are old again.
    RolledBack,
    /// Something is in the way.
    Refused(String),
    /// Somebody has removed the request.
    Stopped(String),
    /// Neither controller exists.
    Gone,
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct News {
    /// Its type.
    pub kind: &'static str,
    /// For people.
    pub text: String,
    /// For programs.
    pub more: Value,
}

/// An update as it is seen.
#[derive(Debug)]
pub(super) struct Follow {
    /// The name of OLD.
    pub old_name: String,
    /// The name of NEW.
    pub new_name: String,
    old: Option<Value>,
    new: Option<Value>,
    /// The condition from before the request, which is no answer to it.
    before: Value,
    /// The sizes that were printed last.
    printed: [Option<i64>; 2],
    is_handing_over: bool,
    is_seen: bool,
}

fn size(controller: &Value) -> i64 {
    controller["spec"]["replicas"].as_i64().unwrap_or(1)
}

fn hands_over(new: &Value) -> bool {
    new["metadata"]["annotations"][HANDING_OVER].is_string()
}

impl Follow {
    /// An update that begins, or goes on, from here.
    pub(super) fn new(
        (old_name, old): (&str, Option<&Value>),
        (new_name, new): (&str, Option<&Value>),
        before: Value,
    ) -> Self {
        Follow {
            old_name: old_name.to_owned(),
            new_name: new_name.to_owned(),
            old: old.cloned(),
            new: new.cloned(),
            before,
            printed: [old.map(size), new.map(size)],
            is_handing_over: new.is_some_and(hands_over),
            is_seen: false,
        }
    }

    /// Takes a change in.
    pub(super) fn take(&mut self, change: Change) {
        match change {
            Change::Listed(all) => {
                let find = |wanted: &str| all.iter().find(|one| name(one) == wanted).cloned();
                (self.old, self.new) = (find(&self.old_name), find(&self.new_name));
                self.is_seen = true;
            }
            Change::Applied(one) if name(&one) == self.old_name => self.old = Some(one),
            Change::Applied(one) if name(&one) == self.new_name => self.new = Some(one),
            Change::Deleted(one) if name(&one) == self.old_name => self.old = None,
            Change::Deleted(one) if name(&one) == self.new_name => self.new = None,
            Change::Applied(_) | Change::Deleted(_) | Change::Interrupted(_) | Change::Forbidden(_) => {}
        }
    }

    /// Whether the watch has begun.
    pub(super) fn is_seen(&self) -> bool {
        self.is_seen
    }

    /// Whether OLD was seen to take the pods of NEW over.
    pub(super) fn is_handing_over(&self) -> bool {
        self.is_handing_over
    }

    /// The news since the last call.
    pub(super) fn news(&mut self) -> Vec<News> {
        let mut all = Vec::new();
        // The sizes change while the pods stay.
        if !self.is_handing_over && self.new.as_ref().is_some_and(hands_over) {
            self.is_handing_over = true;
            let text =
                format!("Update succeeded. {} takes the pods of {} over", self.old_name, self.new_name);
            all.push(News { kind: "HandingOver", text, more: json!({}) });
        }
        let is_handing_over = self.is_handing_over;
        let (old, new) = (&self.old_name, &self.new_name);
        let away = match is_handing_over {
            true => format!("Renaming {new} to {old}: {old} owns its pods, {new} is deleted"),
            false => format!("Rollback succeeded. Deleting {new}"),
        };
        let both = [(old, &self.old, format!("Update succeeded. Deleting {old}")), (new, &self.new, away)];
        for ((name, now, at_its_end), printed) in both.into_iter().zip(&mut self.printed) {
            let size = now.as_ref().map(size);
            match (*printed, size) {
                (Some(before), Some(size)) if before != size && !is_handing_over => {
                    let text = format!("Scaling {name} from {before} to {size}");
                    let more = json!({"controller": name, "from": before, "to": size});
                    all.push(News { kind: "Scaled", text, more });
                }
                (Some(size), None) => {
                    let text = if size == 0 { at_its_end } else { format!("Deleted {name}") };
                    all.push(News { kind: "Deleted", text, more: json!({"controller": name}) });
                }
                _ => {}
            }
            *printed = size;
        }
        all
    }

    /// The condition of the update: on OLD, or on NEW once OLD is gone.
    fn condition(&self) -> Value {
        self.old.as_ref().or(self.new.as_ref()).map(condition).unwrap_or_default()
    }

    fn has_reason(&self, reason: Reason) -> bool {
        self.condition()["reason"] == reason.name()
    }

    /// The message of the condition.
    pub(super) fn message(&self) -> String {
        harmless(self.condition()["message"].as_str().unwrap_or_default())
    }

    /// Whether a controller has taken the request up or refused it.
    pub(super) fn is_answered(&self) -> bool {
        let condition = self.condition();
        self.is_seen && (self.old.is_none() || condition["status"] == "True" || condition != self.before)
    }

    /// Whether the condition is the refusal from before the request. The controller does not write it anew.
    pub(super) fn is_refused_as_before(&self) -> bool {
        self.is_seen && self.has_reason(Reason::Refused) && self.condition() == self.before
    }

    /// Takes the condition from before the request for its answer.
    pub(super) fn take_earlier_answer(&mut self) {
        self.before = Value::Null;
    }

    /// Whether there was no progress in time.
    pub(super) fn has_timed_out(&self) -> bool {
        self.has_reason(Reason::TimedOut)
    }

    /// The condition that the update waits for; empty while it goes on.
    pub(super) fn waits_for(&self) -> String {
        let waits = [Reason::Waiting, Reason::TimedOut, Reason::Paused, Reason::RollingBack];
        if waits.into_iter().any(|reason| self.has_reason(reason)) { self.message() } else { String::new() }
    }

    /// The end, once it has come.
    pub(super) fn end(&self) -> Option<End> {
        let is_refused = self.has_reason(Reason::Refused) && self.condition() != self.before;
        let new_is_bare = |new: &Value| !new["metadata"]["annotations"][SOURCE].is_string();
        match (&self.old, &self.new) {
            (None, None) => Some(End::Gone),
            _ if is_refused => Some(End::Refused(self.message())),
            (None, Some(new)) => (self.has_reason(Reason::Complete) && new_is_bare(new))
                .then(|| End::Complete { survivor: self.new_name.clone() }),
            (Some(old), _) if request_of(old).is_some() => None,
            (Some(old), new) if self.has_reason(Reason::Complete) => match new {
                // OLD stays with 0 replicas.
                Some(new) if size(old) == 0 => {
                    new_is_bare(new).then(|| End::Complete { survivor: self.new_name.clone() })
                }
                _ => Some(End::Complete { survivor: self.old_name.clone() }),
            },
            (Some(_), _) if self.has_reason(Reason::RolledBack) => Some(End::RolledBack),
            (Some(_), _) if self.has_reason(Reason::Stopped) => Some(End::Stopped(self.message())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn controller(name: &str, replicas: i64, annotations: &Value, reason: &str) -> Value {
        let status = if ["Progressing", "Waiting", "TimedOut"].contains(&reason) { "True" } else { "False" };
        let condition = json!({"type": "RollingUpdate", "status": status, "reason": reason, "message": "m"});
        let conditions = if reason.is_empty() { json!([]) } else { json!([condition]) };
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"replicas": replicas},
               "status": {"conditions": conditions}})
    }

    fn requested(replicas: i64, reason: &str) -> Value {
        controller("old", replicas, &json!({"windlass.dev/rolling-update-to": "new"}), reason)
    }

    fn done(replicas: i64, reason: &str) -> Value {
        controller("old", replicas, &json!({}), reason)
    }

    fn seen(before: Value, old: Option<Value>, new: Option<Value>) -> Follow {
        let mut follow = Follow::new(("old", Some(&requested(3, ""))), ("new", None), before);
        follow.take(Change::Listed(old.into_iter().chain(new).collect()));
        follow
    }

    fn lines(follow: &mut Follow) -> Vec<String> {
        follow.news().into_iter().map(|news| news.text).collect()
    }

    #[test]
    fn a_refusal_that_stands_from_before_the_request_can_be_taken_for_its_answer() {
        let earlier = condition(&requested(3, "Refused"));
        let mut follow = seen(earlier, Some(requested(3, "Refused")), None);
        assert!(!follow.is_answered() && follow.is_refused_as_before());
        assert_eq!(follow.end(), None);
        follow.take_earlier_answer();
        assert_eq!(follow.end(), Some(End::Refused("m".to_owned())));
        let earlier = condition(&requested(3, "Complete"));
        assert!(!seen(earlier, Some(requested(3, "Complete")), None).is_refused_as_before());
    }

    #[test]
    fn each_resize_and_deletion_is_a_line() {
        let (old, new) = (requested(3, ""), controller("new", 0, &json!({}), ""));
        let mut follow = Follow::new(("old", Some(&old)), ("new", Some(&new)), Value::Null);
        follow.take(Change::Applied(controller("new", 1, &json!({}), "")));
        assert_eq!(lines(&mut follow), ["Scaling new from 0 to 1"]);
        follow.take(Change::Applied(controller("other", 9, &json!({}), "")));
        follow.take(Change::Applied(requested(2, "Progressing")));
        assert_eq!(lines(&mut follow), ["Scaling old from 3 to 2"]);
        follow.take(Change::Deleted(requested(2, "Progressing")));
        assert_eq!((lines(&mut follow), lines(&mut follow)), (vec!["Deleted old".to_owned()], vec![]));
        for (deleted, line) in [
            (requested(0, ""), "Update succeeded. Deleting old"),
            (controller("new", 0, &json!({}), ""), "Rollback succeeded. Deleting new"),
        ] {
            let mut follow = Follow::new(("old", Some(&requested(0, ""))), ("new", Some(&new)), Value::Null);
            follow.take(Change::Deleted(deleted));
            assert_eq!(lines(&mut follow), [line]);
        }
    }

    #[test]
    fn a_hand_over_is_one_line_and_no_resize() {
        let new = controller("new", 3, &json!({}), "");
        let mut follow = Follow::new(("old", Some(&requested(0, ""))), ("new", Some(&new)), Value::Null);
        follow.take(Change::Applied(controller("new", 0, &json!({HANDING_OVER: "v"}), "")));
        assert_eq!(lines(&mut follow), ["Update succeeded. old takes the pods of new over"]);
        follow.take(Change::Applied(requested(3, "HandingOver")));
        assert_eq!(lines(&mut follow), [""; 0]);
        follow.take(Change::Deleted(new));
        assert_eq!(lines(&mut follow), ["Renaming new to old: old owns its pods, new is deleted"]);
    }

    #[test]
    fn an_answer_is_a_condition_that_was_not_there_before() {
        assert!(!seen(Value::Null, Some(requested(3, "")), None).is_answered());
        assert!(seen(Value::Null, Some(requested(3, "Progressing")), None).is_answered());
        let earlier = condition(&requested(3, "Complete"));
        assert!(!seen(earlier.clone(), Some(requested(3, "Complete")), None).is_answered());
        assert!(seen(earlier, Some(requested(3, "Refused")), None).is_answered());
    }

    #[test]
    fn the_end_is_read_off_both_and_comes_after_the_last_write() {
        let new = |reason: &str| Some(controller("new", 3, &json!({}), reason));
        let busy = controller("new", 3, &json!({SOURCE: "old:u"}), "Complete");
        let end = |old, new| seen(Value::Null, old, new).end();
        let complete = |name: &str| Some(End::Complete { survivor: name.to_owned() });
        assert_eq!(end(Some(requested(1, "Waiting")), new("")), None);
        assert_eq!(end(Some(requested(3, "Complete")), None), None, "the request is still there");
        assert_eq!(end(Some(done(3, "Complete")), None), complete("old"));
        assert_eq!(end(Some(done(0, "Complete")), new("")), complete("new"));
        assert_eq!((end(None, Some(busy)), end(None, new("Complete"))), (None, complete("new")));
        assert_eq!(end(Some(done(3, "RolledBack")), None), Some(End::RolledBack));
        assert_eq!(end(Some(done(3, "Stopped")), new("")), Some(End::Stopped("m".to_owned())));
        assert_eq!(end(Some(requested(3, "Refused")), None), Some(End::Refused("m".to_owned())));
        assert_eq!(end(None, None), Some(End::Gone));
        let earlier = condition(&requested(3, "Refused"));
        assert_eq!(seen(earlier, Some(requested(3, "Refused")), None).end(), None, "of an earlier request");
    }
}
