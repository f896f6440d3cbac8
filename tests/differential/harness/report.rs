//! The report of a run.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::compare::{Difference, compare};
use super::declared::{Declared, GENERAL, NOISE, fits};
use super::play::Played;
use super::stage::Step;
use super::workloads::Workload;

/// The outcome of a run.
#[derive(Default)]
pub struct Report {
    pub text: String,
    pub undeclared: usize,
    pub broken: usize,
    /// Declarations that nothing in this run corresponds to.
    pub unused: usize,
    pub declared: usize,
}

/// The options of the report.
#[derive(Clone, Copy, Default)]
pub struct Scope<'a> {
    /// Whether a declaration for all workloads has to occur, which can be said only when all were played.
    pub all_were_played: bool,
    /// Both plays are upstream's, for which nothing is declared.
    pub noise: bool,
    /// Paths that are ignored.
    pub ignored: Option<&'a str>,
}

/// Compares two plays of the same workloads.
pub fn report(
    workloads: &[&'static Workload],
    upstream: &BTreeMap<&str, Played>,
    windlass: &BTreeMap<&str, Played>,
    scope: Scope<'_>,
) -> Report {
    let mut report = Report::default();
    let Scope { all_were_played, noise, ignored } = scope;
    let general: &[Declared] = if noise { &[] } else { GENERAL };
    let mut used = vec![false; general.len()];
    for workload in workloads {
        let (theirs, ours) = (&upstream[workload.name], &windlass[workload.name]);
        report.broken_scripts(workload, theirs, ours);
        let declared = if noise { &[] } else { workload.declared };
        let mut own_used = vec![false; declared.len()];
        let mut undeclared = Vec::new();
        for difference in compare(&theirs.facts, &ours.facts) {
            if ignored.is_some_and(|text| difference.path.contains(text)) {
                continue;
            }
            if NOISE.iter().any(|noise| fits(noise.workload, workload.name) && noise.covers(&difference)) {
                continue;
            }
            let in_general = mark(general, &difference, &mut used);
            let here = mark(declared, &difference, &mut own_used);
            if in_general || here {
                report.declared += 1;
            } else {
                undeclared.push(difference);
            }
        }
        report.undeclared += undeclared.len();
        if !undeclared.is_empty() {
            let _ =
                writeln!(report.text, "\n=== {}: {} undeclared differences", workload.name, undeclared.len());
            for difference in &undeclared {
                report.difference(difference, &theirs.steps);
            }
        }
        report.unused_ones(workload.name, declared, &own_used);
    }
    if all_were_played {
        report.unused_ones("all workloads", general, &used);
    }
    report
}

/// Marks all declarations that cover this difference; whether there is any.
fn mark(declared: &[Declared], difference: &Difference, used: &mut [bool]) -> bool {
    let mut any = false;
    for (declared, used) in declared.iter().zip(used) {
        if declared.covers(difference) {
            (*used, any) = (true, true);
        }
    }
    any
}

impl Report {
    fn broken_scripts(&mut self, workload: &Workload, theirs: &Played, ours: &Played) {
        for (side, played) in [("kube-controller-manager", theirs), ("Windlass", ours)] {
            if let Some(panic) = &played.panic {
                self.broken += 1;
                let panic: String = panic.chars().take(300).collect();
                let _ =
                    writeln!(self.text, "\n=== {}: the script failed with {side}: {panic}", workload.name);
            }
            for tie in &played.ties {
                self.broken += 1;
                let _ = writeln!(self.text, "\n=== {}, with {side}: {tie}", workload.name);
            }
        }
        // With upstream a script gets what it waits for, or it waits for the wrong thing.
        for (number, step) in theirs.steps.iter().enumerate() {
            if !step.complaints.is_empty() {
                self.broken += 1;
                let what = step.complaints.join("; ");
                let _ = writeln!(
                    self.text,
                    "\n=== {}: step {number} with kube-controller-manager: {what}",
                    workload.name
                );
            }
        }
    }

    fn difference(&mut self, difference: &Difference, steps: &[Step]) {
        let Difference { section, object, path, upstream, windlass, steps: at } = difference;
        let labels: Vec<String> = at
            .iter()
            .take(3)
            .map(|&number| match steps.get(number) {
                Some(step) => format!("{number} ({})", step.label),
                None => "all".into(),
            })
            .collect();
        let more = if at.len() > 3 { format!(" and {} more", at.len() - 3) } else { String::new() };
        let _ = writeln!(self.text, "{section}: {object} {path}\n  in step {}{more}", labels.join(", "));
        let _ = writeln!(self.text, "  upstream: {upstream}\n  windlass: {windlass}");
    }

    fn unused_ones(&mut self, whose: &str, declared: &[Declared], used: &[bool]) {
        for (declared, _) in declared.iter().zip(used).filter(|(declared, used)| declared.always && !**used) {
            self.unused += 1;
            let Declared { section, object, path, upstream, windlass, .. } = declared;
            let what = format!("{section}: {object} {path}, upstream {upstream}, windlass {windlass}");
            let _ = writeln!(self.text, "\n=== {whose}: declared, and no longer there: {what}");
        }
    }
}
