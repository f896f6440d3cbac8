//! A line for each change that a reader would act on.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::verdicts::End;
use crate::rollout::Assessment;
use crate::rollout::headline::headline;
use crate::rollout::work::Work;
use crate::text::{counted, span};

/// The least time between two lines about one object.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// After this time without a change, the state is repeated.
const HEARTBEAT: SignedDuration = SignedDuration::from_secs(30);

/// The content of the last line, and the state of the output.
#[derive(Debug, Default)]
pub struct Lines {
    last: Option<(Timestamp, Shown)>,
    before: Option<Assessment>,
    has_ended: bool,
    is_shown: bool,
}

/// The part of a line that makes it new when it differs. Messages count up, and are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    verdict: &'static str,
    revision: Option<i64>,
    counts: [i64; 4],
    work: Option<Work>,
    failing: Option<(String, String)>,
}

impl Shown {
    fn of(assessment: &Assessment) -> Self {
        let counts = &assessment.counts;
        let failing = assessment.pods.iter().find(|pod| pod.is_failing);
        Shown {
            verdict: assessment.verdict.word(),
            revision: assessment.revision,
            counts: [
                counts.desired,
                counts.replicas,
                counts.updated,
                assessment.new_available().unwrap_or(counts.available),
            ],
            work: assessment.work.clone(),
            failing: failing.map(|pod| (pod.name.clone(), pod.state.clone())),
        }
    }
}

impl Lines {
    /// Whether nothing has been shown yet.
    pub fn is_first(&mut self) -> bool {
        !std::mem::replace(&mut self.is_shown, true)
    }

    /// The lines that an assessment adds.
    pub fn update(&mut self, assessment: &Assessment, ended: Option<&End>, label: &str) -> Vec<String> {
        if self.has_ended {
            return Vec::new();
        }
        let before = self.before.replace(assessment.clone());
        let mut lines = Vec::new();
        if let Some(before) = before.filter(|before| assessment.supersedes(before)) {
            let revision = before.revision.map_or(String::new(), |revision| format!(" revision {revision}"));
            lines.push(format!(
                "{} {label} Superseded: the template has changed, and the rollout of{revision} ends with {} of {} available",
                time(assessment.now),
                before.new_available().unwrap_or_default(),
                counted(before.desired_new, "new pod"),
            ));
            self.last = None;
        }
        if let Some(end_of_wait) = ended {
            self.has_ended = true;
            lines.push(end(end_of_wait, assessment, label));
            return lines;
        }
        let shown = Shown::of(assessment);
        let is_due = match &self.last {
            None => true,
            Some((at, before)) => {
                let passed = assessment.now.duration_since(*at);
                passed >= HEARTBEAT || (passed >= PAUSE && *before != shown)
            }
        };
        if is_due {
            self.last = Some((assessment.now, shown));
            lines.push(line(assessment, label));
        }
        lines
    }
}

/// The time of day, in UTC.
fn time(now: Timestamp) -> String {
    let text = now.to_string();
    let clock = text.split_once('T').map_or("", |(_, clock)| clock);
    clock.get(..8).map_or_else(|| text.clone(), |clock| format!("{clock}Z"))
}

/// The state in one line.
fn line(assessment: &Assessment, label: &str) -> String {
    let counts = &assessment.counts;
    let revision = assessment.revision.map_or(String::new(), |revision| format!(" revision {revision}:"));
    let pods = counted(counts.replicas, "pod");
    let numbers = match (assessment.new_available(), &assessment.work) {
        (_, Some(work)) => work.words(assessment.now),
        (Some(available), None) => {
            format!("{available} of {} available, {pods}", counted(assessment.desired_new, "new pod"))
        }
        (None, None) => format!("{} of {pods} available, {} desired", counts.available, counts.desired),
    };
    let mut line = format!("{} {label}{revision} {numbers}", time(assessment.now));
    if let Some(left) = assessment.estimate {
        line.push_str(&format!(", ETA {}", seconds(left)));
    }
    if let Some(why) = headline(assessment) {
        line.push_str(&format!(": {why}"));
    }
    line
}

fn seconds(left: Duration) -> String {
    span(SignedDuration::try_from(left).unwrap_or_default())
}

/// The last line.
pub fn end(end: &End, assessment: &Assessment, label: &str) -> String {
    let revision = assessment.revision.map_or(String::new(), |revision| format!(" revision {revision}"));
    let start = format!("{} {label}{revision}", time(assessment.now));
    match end {
        End::Complete if !assessment.kind.has_revisions() => {
            let numbers = match &assessment.work {
                Some(work) => work.words(assessment.now),
                None => format!("{} available", counted(assessment.counts.available, "pod")),
            };
            format!("{start} {}: {numbers}", assessment.verdict.word())
        }
        End::Complete => {
            let (desired, all) = (assessment.desired_new, assessment.counts.desired);
            let held = match all - desired {
                0 => String::new(),
                held => format!("; the partition keeps {} of the older template", counted(held, "pod")),
            };
            format!("{start} complete: {desired} of {} available{held}", counted(desired, "new pod"))
        }
        End::Failed(why) => format!("{start} failed: {why}"),
        End::TimedOut(why) | End::Unfinished(why) => format!("{start} {why}"),
    }
}
