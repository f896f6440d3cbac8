//! A preview as text, as Markdown, and as JSON. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass::plan::preview::{End, Held, Preview, Step};
use windlass::plan::{Reason, daemonset, statefulset};

use super::{Report, changes, limits};
use crate::target::Kind;
use crate::text::{columns, counted, harmless, span};

/// The rows of the table: a heading, and a row for each step.
fn rows(report: &Report) -> Vec<Vec<String>> {
    let preview = &report.preview;
    let head = |part: &windlass::plan::preview::Part| {
        let revision = part.revision.map(|revision| format!(" ({revision})")).unwrap_or_default();
        format!("{}{revision}{}", part.name, if part.is_new { " new" } else { "" })
    };
    let mut heads = vec!["STEP".to_owned(), "AFTER".to_owned()];
    heads.extend(preview.parts.iter().map(head));
    heads.extend(["PODS", "AVAILABLE"].map(str::to_owned));
    let names_pods = is_by_revision(report) && preview.steps.len() > 1;
    heads.push(if names_pods { "CHANGES".to_owned() } else { String::new() });
    let mut rows = vec![heads];
    let last = preview.steps.len().saturating_sub(1);
    for (nth, step) in preview.steps.iter().enumerate() {
        let mut row = vec![nth.to_string(), span(step.after)];
        row.extend(preview.parts.iter().map(|part| size(step, &part.name).to_string()));
        row.extend([step.pods.to_string(), step.available.to_string()]);
        let mut remarks = vec![changes::text(&step.changes)];
        remarks.push(match preview.end {
            End::Complete if nth == last => "complete".to_owned(),
            _ if step.refused > 0 => format!("{} refused", step.refused),
            _ => String::new(),
        });
        remarks.extend(step.held.map(held));
        remarks.retain(|remark| !remark.is_empty());
        row.push(remarks.join("; "));
        rows.push(row);
    }
    fold(rows)
}

/// The steps at both ends of a long rollout.
fn fold(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let (first, last) = (30, 20);
    if rows.len() > first + last + 1 {
        let left_out = rows.len() - first - last;
        rows.splice(first..first + left_out, [vec!["…".to_owned(), format!("{left_out} steps")]]);
    }
    rows
}

/// Whether its steps have names of pods or nodes.
fn is_by_revision(report: &Report) -> bool {
    matches!(report.kind, Kind::StatefulSet | Kind::DaemonSet)
}

fn is_creation(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Ordinals(statefulset::PlanReason::Creating { .. })
            | Reason::Nodes(daemonset::PlanReason::Creating { .. })
    )
}

/// A hold at a step of the rollout policy.
fn held(held: Held) -> String {
    let Held { step, of, time } = held;
    let time = time.map_or("until approved".to_owned(), span);
    format!("step {step} of {of}: HELD {time}")
}

/// How many holds wait for an approval, in words; empty without one.
fn approvals(preview: &Preview) -> String {
    let is_manual = |step: &&Step| step.held.is_some_and(|held| held.time.is_none());
    match preview.steps.iter().filter(is_manual).count() {
        0 => String::new(),
        1 => ", without the wait for 1 approval".to_owned(),
        count => format!(", without the waits for {count} approvals"),
    }
}

fn size(step: &Step, name: &str) -> i32 {
    step.sizes.get(name).copied().unwrap_or(0)
}

fn heading(report: &Report) -> String {
    let change = if report.said.is_empty() { "no change".to_owned() } else { report.said.join(", ") };
    let Report { preview, replicas, .. } = report;
    if let Some(bounds) = &report.bounds {
        return format!("{}: {change}. {bounds}", report.object);
    }
    format!(
        "{}: {change}. {}, never more than {} pods, never fewer than {} available",
        report.object,
        counted(*replicas, "replica"),
        preview.most_allowed,
        preview.least_allowed
    )
}

/// The lines below the table, each with a key.
fn remarks(report: &Report) -> Vec<(&'static str, String)> {
    let Report { preview, .. } = report;
    let mut lines = Vec::new();
    let law = format!("a pod is ready {} after its start ({})", span(report.ready_after), report.ready_from);
    lines.push(match preview.end {
        _ if report.said.is_empty() => ("end", "nothing to roll out".to_owned()),
        End::Complete => {
            let (took, approvals) = (span(preview.took), approvals(preview));
            ("end", format!("complete after about {took}{approvals} if {law}"))
        }
        End::Halted => ("end", halted(preview)),
        End::GoesOn => {
            let ends = "the preview ends here, as it plays at most 100000 pods and takes some seconds";
            ("end", format!("goes on after {}: {ends}, if {law}", span(preview.took)))
        }
        End::Stuck | End::Waits if preview.stopped_by.is_some() => {
            let why = preview.stopped_by.as_deref().map(harmless).unwrap_or_default();
            ("end", format!("not complete after {}: {why}", span(preview.took)))
        }
        End::Stuck if report.kind == Kind::ReplicationController => {
            ("end", format!("stuck: no progress any more after {}, if {law}", span(preview.took)))
        }
        End::Stuck => {
            ("end", format!("stuck: the progress deadline passes after {}, if {law}", span(preview.took)))
        }
        End::Waits => match &report.held {
            Some(held) => ("end", held.clone()),
            None => {
                // A pod that is to be created and is not was refused, which is said below.
                let waits = preview.waits_for.iter().filter(|reason| !is_creation(reason));
                let waits = waits.map(ToString::to_string).collect::<Vec<_>>().join("; ");
                let waits = if waits.is_empty() { waits } else { format!(": {}", harmless(&waits)) };
                ("end", format!("not complete after {}, and nothing more happens{waits}", span(preview.took)))
            }
        },
    });
    lines.extend(report.claims.iter().cloned());
    if let Some((nth, step)) = preview.lowest() {
        lines.push(("lowest", format!("{} available at step {nth}", step.available)));
    }
    lines.push(("most", most(report)));
    lines.extend(report.refusal.iter().map(|why| ("refused", format!("each new pod, by the server: {why}"))));
    lines.extend(report.quota.iter().map(|line| ("quota", line.clone())));
    lines.extend(report.budgets.iter().map(|line| ("pdb", line.clone())));
    lines.extend(report.autoscaler.iter().map(|line| ("hpa", line.clone())));
    if let Some(broken) = &report.broken {
        let last = broken.steps.last();
        let stands = last.map(|step| format!("{} pods, {} available", step.pods, step.available));
        let stuck = match broken.end {
            End::Stuck => format!(", stuck after {}", span(broken.took)),
            _ => String::new(),
        };
        let nth = broken.steps.len().saturating_sub(1);
        let stands = stands.unwrap_or_default();
        let text = match broken.end {
            End::Halted => format!("if no new pod gets ready: ends with {stands} {}", halted(broken)),
            _ => format!("if no new pod gets ready: stops at step {nth} with {stands}{stuck}"),
        };
        lines.push(("broken", text));
    }
    lines.extend(report.crossed.iter().map(|line| ("bound", line.clone())));
    let checked = match report.checked.as_slice() {
        [] => "nothing".to_owned(),
        parts => parts.join(", "),
    };
    let judged = ["room on nodes", "pulls", "probes"].map(str::to_owned);
    let unjudged: Vec<String> = report.unjudged.iter().cloned().chain(judged).collect();
    lines.push((
        "checked",
        format!("by the server (dry run): {checked}. Not judged: {}", unjudged.join("; ")),
    ));
    lines
}

/// The end of a rollout that fails and goes back.
fn halted(preview: &Preview) -> String {
    let why = preview.stopped_by.as_deref().map(harmless).unwrap_or_default();
    format!("after {}: {why}", span(preview.took))
}

/// The most pods at a time, and what they request.
fn most(report: &Report) -> String {
    let preview = &report.preview;
    let [old, new] = &report.needs;
    let requested = |step: &Step| {
        let mut sum: BTreeMap<&str, i128> = BTreeMap::new();
        for part in &preview.parts {
            let pods = i128::from(size(step, &part.name));
            for (resource, amount) in if part.is_new { new } else { old } {
                *sum.entry(resource).or_default() += pods.saturating_mul(*amount);
            }
        }
        sum
    };
    let mut peak: BTreeMap<&str, i128> = BTreeMap::new();
    for (resource, amount) in preview.steps.iter().flat_map(requested) {
        let entry = peak.entry(resource).or_default();
        *entry = amount.max(*entry);
    }
    let now = preview.steps.first().map(requested).unwrap_or_default();
    let asked: Vec<String> = ["cpu", "memory"]
        .iter()
        .filter_map(|resource| {
            let key = format!("requests.{resource}");
            let (most, now) = (*peak.get(key.as_str())?, now.get(key.as_str()).copied().unwrap_or(0));
            Some(format!("{} {resource} (now {})", limits::shown(&key, most), limits::shown(&key, now)))
        })
        .collect();
    let pods = counted(preview.most(), "pod");
    if asked.is_empty() { pods } else { format!("{pods}; requested: {}", asked.join(", ")) }
}

/// For people.
pub(super) fn text(report: &Report) -> String {
    let remarks: Vec<Vec<String>> =
        remarks(report).into_iter().map(|(key, line)| vec![key.to_owned(), line]).collect();
    format!("{}\n{}{}", heading(report), columns(&rows(report)), columns(&remarks))
}

/// For a comment on a pull request.
pub(super) fn markdown(report: &Report) -> String {
    // A bar would begin another cell.
    let cell = |text: &String| text.replace('|', "\\|");
    let line = |row: &Vec<String>| format!("| {} |\n", row.iter().map(cell).collect::<Vec<_>>().join(" | "));
    let rows = rows(report);
    let mut text = format!("**{}**\n\n", heading(report).replace('*', "\\*"));
    for (nth, row) in rows.iter().enumerate() {
        text.push_str(&line(row));
        if nth == 0 {
            text.push_str(&format!("|{}\n", "---|".repeat(row.len())));
        }
    }
    text.push('\n');
    for (key, remark) in remarks(report) {
        text.push_str(&format!("- {key}: {remark}\n"));
    }
    text
}

/// For programs. Fields are only ever added.
pub(super) fn json(report: &Report) -> Value {
    let of = |preview: &Preview| {
        let steps: Vec<Value> = preview
            .steps
            .iter()
            .map(|step| {
                let sizes: serde_json::Map<String, Value> = preview
                    .parts
                    .iter()
                    .map(|part| (part.name.to_string(), size(step, &part.name).into()))
                    .collect();
                let mut shown = json!({"afterSeconds": step.after.as_secs(), "pods": step.pods,
                       "available": step.available, "refused": step.refused});
                if let Some(Held { step, of, time }) = step.held {
                    shown["held"] =
                        json!({"step": step, "of": of, "seconds": time.map(|time| time.as_secs())});
                }
                if is_by_revision(report) {
                    shown["revisions"] = sizes.into();
                    shown["changes"] = changes::data(&step.changes);
                } else {
                    shown["replicaSets"] = sizes.into();
                }
                shown
            })
            .collect();
        let end = match preview.end {
            End::Complete => "complete",
            End::Stuck => "stuck",
            End::Waits => "waits",
            End::Halted => "halted",
            End::GoesOn => "goesOn",
        };
        json!({"steps": steps, "end": end, "tookSeconds": preview.took.as_secs(), "stoppedBy": preview.stopped_by})
    };
    let mut object = of(&report.preview);
    let waits: Vec<String> = report.preview.waits_for.iter().map(ToString::to_string).collect();
    let more = json!({
        "kind": "Plan",
        "object": report.object,
        "changes": report.said,
        "replicas": report.replicas,
        "mostAllowed": report.preview.most_allowed,
        "leastAllowed": report.preview.least_allowed,
        "lowestAvailable": report.preview.lowest().map(|(_, step)| step.available),
        "mostPods": report.preview.most(),
        "readyAfterSeconds": report.ready_after.as_secs(),
        "waitsFor": waits,
        "held": report.held,
        "claims": report.claims.iter().map(|(_, line)| line).collect::<Vec<_>>(),
        "refusal": report.refusal,
        "quota": report.quota,
        "disruptionBudgets": report.budgets,
        "autoscaler": report.autoscaler,
        "ifBroken": report.broken.as_ref().map(of),
        "crossed": report.crossed,
        "checked": report.checked,
        "notJudged": report.unjudged,
    });
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}
