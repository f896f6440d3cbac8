//! Why the last plans of each Deployment were what they were, for people who ask.
//!
//! Bounded: five explanations for each Deployment, forgotten with it. A plan that only says again what one
//! of them says makes that one current again; a pod that crashes every minute cannot push out how the
//! rollout got to where it is.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};

use crate::model::{Meta, Uid};
use crate::plan::deployment::Why;

/// So many explanations are kept of each Deployment.
const KEPT: usize = 5;

/// So many writes of one plan are listed; a history that is trimmed at last may have hundreds.
const WRITES: usize = 20;

/// The longest text of an error, in bytes. A webhook may answer with a page.
const LONGEST_ERROR: usize = 1000;

/// What is kept of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// When a plan was first explained so.
    #[serde(serialize_with = "as_text")]
    pub since: Timestamp,
    /// When one was last explained so.
    #[serde(serialize_with = "as_text")]
    pub last: Timestamp,
    /// How many plans were.
    pub times: u64,
    /// The reasons.
    #[serde(serialize_with = "with_sentences")]
    pub why: Vec<Why>,
    /// What the plan writes, by name and size, in order.
    pub writes: Vec<String>,
    /// Which of the writes failed, and how; the rest of them was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When the Deployment is looked at again even if nothing changes, in seconds.
    #[serde(rename = "lookAgainAfterSeconds", serialize_with = "as_seconds")]
    pub look_again: Option<Duration>,
}

impl Explanation {
    /// Of one plan, at this time.
    pub fn new(now: Timestamp, why: Vec<Why>, writes: &[impl Display]) -> Self {
        let mut listed: Vec<String> = writes.iter().take(WRITES).map(ToString::to_string).collect();
        if let Some(more) = writes.len().checked_sub(WRITES).filter(|&more| more > 0) {
            listed.push(format!("and {more} more"));
        }
        Explanation { since: now, last: now, times: 1, why, writes: listed, error: None, look_again: None }
    }

    /// The plan failed.
    pub fn fail(&mut self, error: &impl Display) {
        let mut text = error.to_string();
        if text.len() > LONGEST_ERROR {
            text.truncate(text.floor_char_boundary(LONGEST_ERROR));
            text.push('…');
        }
        self.error = Some(text);
    }

    fn says_the_same_as(&self, other: &Explanation) -> bool {
        self.why == other.why && self.writes == other.writes && self.error == other.error
    }
}

/// In one line, for logs.
impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, why) in self.why.iter().enumerate() {
            write!(f, "{}{why}", if at == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// The explanations of one Deployment, as they are served.
#[derive(Debug, Serialize)]
pub struct Explained {
    /// Its namespace and name.
    pub deployment: String,
    /// Of the last plan.
    pub current: Explanation,
    /// Of the plans before it, the latest first.
    pub earlier: Vec<Explanation>,
}

/// The last explanations of all Deployments.
#[derive(Debug, Default)]
pub struct Explanations(Mutex<BTreeMap<Uid, VecDeque<Explanation>>>);

impl Explanations {
    /// Keeps an explanation as the current one.
    pub fn keep(&self, owner: &Uid, mut new: Explanation) {
        let mut all = self.0.lock();
        let kept = all.entry(owner.clone()).or_default();
        let before = kept.iter().position(|old| old.says_the_same_as(&new));
        if let Some(old) = before.and_then(|at| kept.remove(at)) {
            new.since = old.since;
            new.times = old.times.saturating_add(1);
        }
        kept.push_front(new);
        kept.truncate(KEPT);
    }

    /// The explanations of a Deployment; `None` before its first plan.
    pub fn of(&self, deployment: &Meta) -> Option<Explained> {
        let mut kept = self.0.lock().get(&deployment.uid)?.iter().cloned().collect::<VecDeque<_>>();
        let current = kept.pop_front()?;
        Some(Explained { deployment: deployment.key.to_string(), current, earlier: kept.into() })
    }

    /// The owner is gone.
    pub fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

/// A reason as people and programs read it.
#[derive(Serialize)]
struct Told<'a> {
    text: String,
    #[serde(flatten)]
    why: &'a Why,
}

fn with_sentences<S: Serializer>(why: &[Why], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(why.iter().map(|why| Told { text: why.to_string(), why }))
}

fn as_text<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

fn as_seconds<S: Serializer>(wait: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    wait.map(|wait| wait.as_secs()).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Pod, Record};
    use crate::plan::deployment::why::{NamedPod, Pods};

    fn at(second: i64, writes: &[&str]) -> Explanation {
        Explanation::new(Timestamp::from_second(second).unwrap(), vec![Why::Paused], writes)
    }

    #[test]
    fn five_are_kept_and_what_is_said_again_becomes_current_again() {
        let json =
            r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1"}}"#;
        let web = Pod::decode(json, &mut Interner::default()).unwrap().meta;
        let (all, owner) = (Explanations::default(), web.uid.clone());
        for second in 0..7 {
            all.keep(&owner, at(second, &[&second.to_string()]));
        }
        all.keep(&owner, at(10, &["4"]));
        all.keep(&owner, at(11, &["4"]));
        let Explained { current, earlier, .. } = all.of(&web).unwrap();
        let writes: Vec<&str> =
            [&current].into_iter().chain(&earlier).map(|e| e.writes[0].as_str()).collect();
        assert_eq!(writes, ["4", "6", "5", "3", "2"]);
        let times = (current.since.as_second(), current.last.as_second(), current.times);
        assert_eq!(times, (4, 11, 3));
        all.forget(&owner);
        assert!(all.of(&web).is_none());
    }

    #[test]
    fn another_message_of_a_pod_is_no_other_explanation_and_the_newest_is_told() {
        let json =
            r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1"}}"#;
        let web = Pod::decode(json, &mut Interner::default()).unwrap().meta;
        let all = Explanations::default();
        for wait in ["back-off 10s", "back-off 20s"] {
            let pod = NamedPod {
                name: "web-1".into(),
                reason: "CrashLoopBackOff".into(),
                message: Some(wait.into()),
            };
            let why = Why::OldPodsEnding { running: 1, pods: Pods { named: vec![pod], more: 0 } };
            all.keep(&web.uid, Explanation::new(Timestamp::UNIX_EPOCH, vec![why], &[""; 0]));
        }
        let Explained { current, earlier, .. } = all.of(&web).unwrap();
        assert_eq!((current.times, earlier.len()), (2, 0));
        assert!(current.why[0].to_string().contains("back-off 20s"), "{}", current.why[0]);
    }

    #[test]
    fn neither_a_long_answer_nor_many_writes_fill_the_memory() {
        let mut long = at(0, &["w"; 300]);
        long.fail(&"ä".repeat(100_000));
        assert_eq!((long.writes.len(), long.writes[20].as_str()), (21, "and 280 more"));
        assert!(long.error.unwrap().len() <= LONGEST_ERROR + 3);
    }
}
