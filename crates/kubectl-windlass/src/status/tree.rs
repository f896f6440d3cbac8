//! A rollout as a tree: the object, its ReplicaSets or revisions, and the pods and claims that are in the way.

use jiff::SignedDuration;
use windlass::plan::Reason;
use windlass::plan::deployment::PlanReason;

use super::verdicts::headline;
use crate::output::Style;
use crate::rollout::pods::{PodView, SHOWN};
use crate::rollout::{Assessment, PartView, Verdict};
use crate::target::Kind;
use crate::text::{age, span};

/// The width of a bar.
const BAR: usize = 12;

/// A pod that starts is not in the way before this time.
const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// The meaning of a part of a row, for its colour. The words say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A name or a number.
    Plain,
    /// It is done.
    Good,
    /// It is under way.
    Waiting,
    /// It fails.
    Bad,
}

/// A row: texts with their tones.
pub type Row = Vec<(String, Tone)>;

/// The tree as text.
pub fn text(assessment: &Assessment, style: Style) -> String {
    let mut text = String::new();
    for row in rows(assessment, style) {
        let line: String = row.into_iter().map(|(part, _)| part).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Complete => Tone::Good,
        Verdict::Rolling | Verdict::Waiting | Verdict::Unfinished | Verdict::Scaling | Verdict::Paused => {
            Tone::Waiting
        }
        Verdict::Stuck | Verdict::Blocked | Verdict::Refused | Verdict::Unobserved | Verdict::Deleting => {
            Tone::Bad
        }
    }
}

/// The rows of the tree.
pub fn rows(assessment: &Assessment, style: Style) -> Vec<Row> {
    let Assessment { namespace, name, counts, verdict, now, .. } = assessment;
    let revision = assessment.revision.map_or(String::new(), |revision| format!("  revision {revision}"));
    let (available, desired) = match assessment.new_available() {
        Some(available) => (available, assessment.desired_new),
        None => (counts.available, counts.desired),
    };
    let mut head: Row = vec![
        (format!("{namespace}/{name}{revision}  "), Tone::Plain),
        (style.bar(available, desired, BAR), tone(*verdict)),
        (format!(" {available}/{desired} available   "), Tone::Plain),
        (verdict.word().to_owned(), tone(*verdict)),
    ];
    if let Some(left) = assessment.estimate {
        let left = SignedDuration::try_from(left).unwrap_or_default();
        head.push((format!("   ETA {}", span(left)), Tone::Plain));
    }
    if let Some(at) = assessment.deadline.filter(|at| at > now && !verdict.is_at_rest()) {
        head.push((format!("   deadline in {}", span(at.duration_since(*now))), Tone::Plain));
    }
    let mut rows = vec![head];
    let parts = &assessment.parts;
    for (at, part) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        rows.push(part_row(assessment, part, branch(style, is_last), style));
        let pods: Vec<&PodView> = assessment
            .pods
            .iter()
            .filter(|pod| pod.owner == part.name)
            .filter(|pod| pod.is_failing || now.duration_since(pod.since) >= STARTUP_GRACE)
            .collect();
        let stem = if is_last {
            "   "
        } else if style.unicode {
            "│  "
        } else {
            "|  "
        };
        let more = pods.len().saturating_sub(SHOWN);
        for (at, pod) in pods.iter().take(SHOWN).enumerate() {
            let is_last = more == 0 && at + 1 == pods.len();
            let node = pod.node.as_deref().unwrap_or("-");
            rows.push(vec![
                (format!("{stem}{}{}  {node}  ", branch(style, is_last), pod.name), Tone::Plain),
                (pod.state.clone(), if pod.is_failing { Tone::Bad } else { Tone::Waiting }),
                (format!("  {}  {}", age(pod.since, *now), pod.reason), Tone::Plain),
            ]);
        }
        if more > 0 {
            rows.push(vec![(format!("{stem}{}and {more} more", branch(style, true)), Tone::Plain)]);
        }
    }
    let says_why = tone(*verdict) == Tone::Bad
        || parts.is_empty()
        || (assessment.kind == Kind::StatefulSet && assessment.pods.iter().all(|pod| !pod.is_failing));
    if let Some(why) = headline(assessment).filter(|_| says_why && !assessment.is_partial) {
        rows.push(vec![(why, Tone::Bad)]);
    }
    rows
}

fn branch(style: Style, is_last: bool) -> &'static str {
    match (style.unicode, is_last) {
        (true, true) => "└─ ",
        (true, false) => "├─ ",
        (false, true) => "`- ",
        (false, false) => "|- ",
    }
}

fn part_row(assessment: &Assessment, part: &PartView, branch: &str, style: Style) -> Row {
    let role = if part.is_new { "new" } else { "old" };
    let shown = if part.is_new { part.available } else { part.replicas };
    let desired = if part.is_new { assessment.desired_new } else { assessment.counts.desired };
    let numbers = if part.is_new { format!("{shown}/{desired}") } else { shown.to_string() };
    let states: Vec<String> = part.states.iter().map(|(state, count)| format!("{state} {count}")).collect();
    let mut row = vec![
        (format!("{branch}{}  {role}  ", part.name), Tone::Plain),
        (style.bar(shown, desired, BAR), if part.is_new { tone(assessment.verdict) } else { Tone::Plain }),
        (format!(" {numbers:<5}  {}", states.join(", ")), Tone::Plain),
    ];
    if !part.is_new && !assessment.verdict.is_at_rest() {
        let stays = |reason: &&Reason| match reason {
            Reason::Sizes(reason) => matches!(reason, PlanReason::OldPodsStay { .. }),
            Reason::Nodes(_)
            | Reason::Ordinals(_)
            | Reason::Completions(_)
            | Reason::Runs(_)
            | Reason::Usage(_) => false,
        };
        let stay = assessment.reasons.iter().find(stays);
        row.extend(stay.map(|reason| (format!("   {reason}"), Tone::Plain)));
    }
    row
}
