//! A rollout as a tree: the object, its ReplicaSets or revisions, and the pods and claims that are in the way.

use jiff::SignedDuration;
use windlass::plan::Reason;
use windlass::plan::deployment::PlanReason;

use crate::output::Style;
use crate::rollout::headline::headline;
use crate::rollout::pods::{PodView, SHOWN};
use crate::rollout::{Assessment, PartView};
use crate::text::{age, counted, span};
use windlass_terminal::layout::{self, Row, Tone, cut_row, indented, with_text};

/// The width of a bar.
const BAR: usize = 12;

/// Narrower terminals have room for one bar only.
const TWO_BARS: usize = 120;

/// A pod that starts is not in the way before this time.
const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// The tree as text. With a width, no line is longer.
pub fn text(assessment: &Assessment, style: Style, width: Option<usize>) -> String {
    let rows = rows(assessment, style, width);
    rows.iter().map(|row| format!("{}\n", layout::line(row, style.colour))).collect()
}

/// The rows of the tree: of at most `width` columns each, if there is one.
pub fn rows(assessment: &Assessment, style: Style, width: Option<usize>) -> Vec<Row> {
    let Assessment { kind, namespace, name, verdict, now, .. } = assessment;
    let kind = if kind.has_revisions() { String::new() } else { format!("{} ", kind.singular()) };
    let revision = assessment.revision.map_or(String::new(), |revision| format!("  revision {revision}"));
    let mut head: Row = vec![(format!("{kind}{namespace}/{name}{revision}  "), Tone::Plain)];
    head.extend(numbers(assessment, style));
    head.push((verdict.word().to_owned(), verdict.tone()));
    if let Some(left) = assessment.estimate {
        let left = SignedDuration::try_from(left).unwrap_or_default();
        head.push((format!("   ETA {}", span(left)), Tone::Plain));
    }
    if let Some(at) = assessment.deadline.filter(|at| at > now && !verdict.is_at_rest()) {
        head.push((format!("   deadline in {}", span(at.duration_since(*now))), Tone::Plain));
    }
    let mut rows = match width {
        // The words say the same, and have more room without it.
        Some(width) if layout::row_columns(&head) > width => {
            vec![head.into_iter().filter(|(text, _)| !is_bar(text)).collect()]
        }
        _ => vec![head],
    };
    let parts = &assessment.parts;
    for (at, part) in parts.iter().enumerate() {
        let is_last = at + 1 == parts.len();
        let stem = if is_last { "   " } else { style.stem() };
        rows.extend(part_rows(assessment, part, style, is_last, width));
        rows.extend(pod_rows(assessment, |pod| pod.owner == part.name, stem, style, width));
    }
    if parts.is_empty() {
        rows.extend(pod_rows(assessment, |_| true, "", style, width));
    }
    let is_told = assessment.pods.iter().any(|pod| pod.is_failing) && assessment.knows_pods;
    let says_why = verdict.tone() == Tone::Bad
        || parts.is_empty() && !is_told
        || assessment.kind.has_controller_revisions() && !is_told;
    if let Some(why) = headline(assessment).filter(|_| says_why && (is_told || !assessment.is_partial)) {
        match width {
            Some(width) => rows.extend(indented(&why, Tone::Bad, "", width)),
            None => rows.push(vec![(why, Tone::Bad)]),
        }
    }
    match width {
        Some(width) => rows.into_iter().map(|row| cut_row(row, width)).collect(),
        None => rows,
    }
}

fn is_bar(text: &str) -> bool {
    text == " " || text.starts_with(['█', '▒', '░', '#', '+', '.'])
}

/// The numbers of the status, each with its name.
fn numbers(assessment: &Assessment, style: Style) -> Row {
    if let Some(work) = &assessment.work {
        return vec![(format!("{}   ", work.words(assessment.now)), Tone::Plain)];
    }
    let (counts, wanted_new) = (&assessment.counts, assessment.desired_new);
    let new = assessment.new_available().unwrap_or(0).min(counts.available);
    let [new, old, rest] = style.bar(new, counts.available - new, counts.desired, BAR);
    let updated = match assessment.kind.has_revisions() {
        true => format!(" · {}/{wanted_new} updated", counts.updated),
        false => String::new(),
    };
    let updated = if style.unicode { updated } else { updated.replace('·', "-") };
    vec![
        (new, assessment.verdict.tone()),
        (old, Tone::Plain),
        (rest, Tone::Plain),
        (" ".to_owned(), Tone::Plain),
        (format!("{}/{} available{updated}   ", counts.available, counts.desired), Tone::Plain),
    ]
}

fn branch(style: Style, is_last: bool) -> &'static str {
    match (style.unicode, is_last) {
        (true, true) => "└─ ",
        (true, false) => "├─ ",
        (false, true) => "`- ",
        (false, false) => "|- ",
    }
}

fn part_rows(
    assessment: &Assessment,
    part: &PartView,
    style: Style,
    is_last: bool,
    width: Option<usize>,
) -> Vec<Row> {
    let role = if part.is_new { "new" } else { "old" };
    let shown = if part.is_new { part.available } else { part.replicas };
    let desired = if part.is_new { assessment.desired_new } else { assessment.counts.desired };
    let numbers = match part.is_new {
        true => format!("{shown}/{desired} available"),
        false => counted(shown, "pod"),
    };
    let states: Vec<String> = part.states.iter().map(|(state, count)| format!("{state} {count}")).collect();
    let mut row = vec![(format!("{}{}  {role}  ", branch(style, is_last), part.name), Tone::Plain)];
    if width.is_none_or(|width| width >= TWO_BARS) {
        let (new, old) = if part.is_new { (shown, 0) } else { (0, shown) };
        let [new, old, rest] = style.bar(new, old, desired, BAR);
        row.extend([(new, assessment.verdict.tone()), (old, Tone::Plain), (rest, Tone::Plain)]);
        row.push((" ".to_owned(), Tone::Plain));
    }
    row.push((format!("{numbers:<5}  {}", states.join(", ")), Tone::Plain));
    let stays = |reason: &&Reason| matches!(reason, Reason::Sizes(PlanReason::OldPodsStay { .. }));
    let is_waiting = !part.is_new && !assessment.verdict.is_at_rest();
    match assessment.reasons.iter().find(stays).filter(|_| is_waiting) {
        Some(reason) => {
            row.push(("   ".to_owned(), Tone::Plain));
            let stem = if is_last { "   " } else { style.stem() };
            with_text(row, &reason.to_string(), Tone::Plain, &format!("{stem}   "), width)
        }
        None => vec![row],
    }
}

/// The pods that are in the way: the first five, and how many more there are.
fn pod_rows(
    assessment: &Assessment,
    is_meant: impl Fn(&PodView) -> bool,
    stem: &str,
    style: Style,
    width: Option<usize>,
) -> Vec<Row> {
    let now = assessment.now;
    let pods: Vec<&PodView> = assessment
        .pods
        .iter()
        .filter(|pod| is_meant(pod))
        .filter(|pod| pod.is_failing || now.duration_since(pod.since) >= STARTUP_GRACE)
        .collect();
    let more = pods.len().saturating_sub(SHOWN);
    let mut rows = Vec::new();
    for (at, pod) in pods.iter().take(SHOWN).enumerate() {
        let is_last = more == 0 && at + 1 == pods.len();
        let node = pod.node.as_deref().unwrap_or("-");
        let row = vec![
            (format!("{stem}{}{}  {node}  ", branch(style, is_last), pod.name), Tone::Plain),
            (pod.state.clone(), if pod.is_failing { Tone::Bad } else { Tone::Waiting }),
            (format!("  {}  ", age(pod.since, now)), Tone::Plain),
        ];
        let below = if is_last { "   " } else { style.stem() };
        rows.extend(with_text(row, &pod.reason, Tone::Plain, &format!("{stem}{below}   "), width));
    }
    if more > 0 {
        rows.push(vec![(format!("{stem}{}and {more} more", branch(style, true)), Tone::Plain)]);
    }
    rows
}
