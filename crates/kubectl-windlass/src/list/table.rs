//! The list as a table: the worst first, and those at rest as a count. Pure.

use std::cmp::Reverse;

use crate::output::Style;
use crate::rollout::headline::headline;
use crate::rollout::verdict::Severity;
use crate::rollout::{Assessment, Verdict};
use crate::text::age;
use windlass_terminal::layout::{self, Row, Tone, columns_of, cut, cut_row, indented, wrap};

/// The least room for a column of reasons. With less, each has lines of its own.
const REASON_COLUMNS: usize = 50;

/// The most lines of a reason.
const REASON_LINES: usize = 3;

/// The look of the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Colours and signs.
    pub style: Style,
    /// The columns of the terminal, if there is one.
    pub width: Option<usize>,
    /// Whether there are more columns.
    pub is_wide: bool,
    /// Whether the namespace is a column.
    pub shows_namespace: bool,
    /// Whether workloads at rest have lines, too.
    pub shows_all: bool,
}

/// Sorts workloads: what needs a look most comes first, and what has needed it for longest.
pub fn worst_first(workloads: &mut [Assessment]) {
    workloads.sort_by_cached_key(|it| {
        let is_failing = it.pods.iter().any(|pod| pod.is_failing);
        let age = it.since.map(|since| it.now.duration_since(since));
        let name = (it.namespace.clone(), it.kind, it.name.clone());
        // A rollout that proceeds while a pod fails will hardly come far.
        let severity = match it.verdict.severity() {
            Severity::Proceeds if is_failing => Severity::Waits,
            severity => severity,
        };
        (severity, urgency(it.verdict), Reverse(is_failing), Reverse(age), name)
    });
}

/// The order of states of one severity.
fn urgency(verdict: Verdict) -> usize {
    const ORDER: [Verdict; 6] = [
        Verdict::Stuck,
        Verdict::Halted,
        Verdict::Failed,
        Verdict::Unobserved,
        Verdict::Refused,
        Verdict::Blocked,
    ];
    ORDER.iter().position(|of| *of == verdict).unwrap_or(ORDER.len())
}

/// A column: its head, and a cell for each workload.
struct Column {
    head: &'static str,
    cells: Vec<String>,
    /// Whether the cell has the colour of the state.
    is_state: bool,
    /// The narrower the terminal, the more columns go, the highest number first; 0 for one that stays.
    goes: usize,
}

impl Column {
    fn width(&self) -> usize {
        self.cells.iter().map(|cell| columns_of(cell)).max().unwrap_or(0).max(self.head.len())
    }
}

/// The table as text.
pub fn text(workloads: &[Assessment], look: &Look) -> String {
    let rows = rows(workloads, look);
    rows.iter().map(|row| format!("{}\n", layout::line(row, look.style.colour))).collect()
}

/// The rows of the table, with its head.
pub fn rows(workloads: &[Assessment], look: &Look) -> Vec<Row> {
    let is_shown = |it: &&Assessment| look.shows_all || it.verdict.severity() != Severity::AtRest;
    let shown: Vec<&Assessment> = workloads.iter().filter(is_shown).collect();
    let mut rows = Vec::new();
    if !shown.is_empty() {
        let Table { head, workloads } = table(&shown, look);
        rows.push(head);
        rows.extend(workloads.into_iter().flatten());
    }
    rows.extend(at_rest(workloads, look).map(|line| vec![(line, Tone::Plain)]));
    match look.width {
        Some(width) => rows.into_iter().map(|row| cut_row(row, width)).collect(),
        None => rows,
    }
}

/// How many workloads at rest have no line.
pub fn at_rest(workloads: &[Assessment], look: &Look) -> Option<String> {
    let count = |verdict: Verdict| workloads.iter().filter(|it| it.verdict == verdict).count();
    let counts: Vec<String> = [Verdict::Complete, Verdict::Scheduled, Verdict::Suspended]
        .into_iter()
        .filter(|_| !look.shows_all)
        .filter_map(|verdict| match count(verdict) {
            0 => None,
            count => Some(format!("{count} {}", verdict.word())),
        })
        .collect();
    (!counts.is_empty()).then(|| format!("{}: list --all names them", counts.join(", ")))
}

/// A head, and the lines of each workload.
pub struct Table {
    /// The names of the columns.
    pub head: Row,
    /// For each workload a line, and more for a reason that is long.
    pub workloads: Vec<Vec<Row>>,
}

/// The table of these workloads.
pub fn table(shown: &[&Assessment], look: &Look) -> Table {
    let mut columns = columns(shown, look);
    let total = |columns: &[Column]| columns.iter().map(|column| column.width() + 2).sum::<usize>();
    if let Some(width) = look.width {
        while total(&columns) > width {
            let most = columns.iter().map(|column| column.goes).max().unwrap_or(0);
            if most == 0 {
                break;
            }
            columns.retain(|column| column.goes != most);
        }
        // A long name must not push the state out of sight.
        let excess = total(&columns).saturating_sub(width + 2);
        if let Some(names) = columns.iter_mut().find(|column| column.head == "NAME").filter(|_| excess > 0) {
            let room = names.width().saturating_sub(excess).max(8);
            names.cells.iter_mut().for_each(|cell| *cell = cut(cell, room));
        }
    }
    let left = total(&columns);
    let room = look.width.map(|width| width.saturating_sub(left));
    let has_column = room.is_none_or(|room| room >= REASON_COLUMNS);
    let mut head: Row = columns
        .iter()
        .map(|column| (format!("{:<width$}  ", column.head, width = column.width()), Tone::Plain))
        .collect();
    if has_column {
        head.push(("REASON".to_owned(), Tone::Plain));
    }
    let mut workloads = Vec::new();
    for (at, it) in shown.iter().enumerate() {
        let mut row: Row = columns
            .iter()
            .map(|column| {
                let cell = column.cells.get(at).map_or("", String::as_str);
                let padding = column.width().saturating_sub(columns_of(cell)) + 2;
                let tone = if column.is_state { it.verdict.tone() } else { Tone::Plain };
                (format!("{cell}{}", " ".repeat(padding)), tone)
            })
            .collect();
        let reason = headline(it).unwrap_or_default();
        let mut rows = Vec::new();
        match (room, has_column) {
            (None, _) => {
                row.push((reason, Tone::Plain));
                rows.push(row);
            }
            (Some(room), true) => {
                let mut lines = shortened(wrap(&reason, room), room).into_iter();
                row.push((lines.next().unwrap_or_default(), Tone::Plain));
                rows.push(row);
                rows.extend(lines.map(|line| vec![(" ".repeat(left), Tone::Plain), (line, Tone::Plain)]));
            }
            (Some(_), false) => {
                rows.push(row);
                let width = look.width.unwrap_or_default();
                let lines = indented(&reason, Tone::Plain, "    ", width);
                let room = width.saturating_sub(4);
                let texts =
                    lines.into_iter().filter_map(|mut line| line.pop()).map(|(text, _)| text).collect();
                let texts = shortened(texts, room).into_iter();
                rows.extend(texts.map(|text| vec![("    ".to_owned(), Tone::Plain), (text, Tone::Plain)]));
            }
        }
        workloads.push(rows);
    }
    Table { head, workloads }
}

/// The first lines; the last of them says whether there are more.
fn shortened(mut lines: Vec<String>, width: usize) -> Vec<String> {
    if lines.len() > REASON_LINES {
        lines.truncate(REASON_LINES);
        if let Some(last) = lines.last_mut() {
            *last = cut(
                &format!("{last}{}", " ".repeat(width)),
                columns_of(last).min(width.saturating_sub(1)) + 1,
            );
        }
    }
    lines
}

fn columns(shown: &[&Assessment], look: &Look) -> Vec<Column> {
    let column = |head, goes, cell: &dyn Fn(&Assessment) -> String| Column {
        head,
        cells: shown.iter().map(|it| cell(it)).collect(),
        is_state: head == "STATE",
        goes,
    };
    // Jobs and CronJobs have numbers of their own, which their reasons tell.
    let of_pods = |it: &Assessment, text: String| if it.work.is_some() { "-".to_owned() } else { text };
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut columns = vec![
        column("NAMESPACE", 0, &|it| it.namespace.clone()),
        column("NAME", 0, &Assessment::argument),
        column("REV", 3, &|it| or_none(it.revision.map(|revision| revision.to_string()))),
        column("STATE", 0, &|it| it.verdict.word().to_owned()),
        column("NEW", 2, &|it| match it.kind.has_revisions() {
            true => format!("{}/{}", it.counts.updated, it.desired_new),
            false => "-".to_owned(),
        }),
        column("AVAILABLE", 1, &|it| of_pods(it, format!("{}/{}", it.counts.available, it.counts.desired))),
        column("FOR", 4, &|it| or_none(it.since.map(|since| age(since, it.now)))),
    ];
    if look.is_wide {
        columns.push(column("READY", 5, &|it| of_pods(it, it.counts.ready.to_string())));
        columns.push(column("PODS", 5, &|it| of_pods(it, it.counts.replicas.to_string())));
        columns.push(column("DEADLINE", 5, &|it| {
            or_none(it.deadline.filter(|at| *at > it.now).map(|at| format!("in {}", age(it.now, at))))
        }));
        columns.push(column("ACTS", 5, &|it| or_none(it.acts.as_ref().map(|actor| actor.manager.clone()))));
    }
    columns.retain(|column| look.shows_namespace || column.head != "NAMESPACE");
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The states in the order of the row about it in `docs/plugin.md`.
    fn documented() -> Vec<String> {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plugin.md");
        let page = std::fs::read_to_string(page).unwrap();
        let row = page.lines().find(|line| line.starts_with("| order |")).unwrap();
        row.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_documented_order_is_that_of_the_list() {
        const ALL: [Verdict; 17] = [
            Verdict::Complete,
            Verdict::Rolling,
            Verdict::Waiting,
            Verdict::Unfinished,
            Verdict::Held,
            Verdict::Halted,
            Verdict::Stuck,
            Verdict::Paused,
            Verdict::Scaling,
            Verdict::Blocked,
            Verdict::Refused,
            Verdict::Unobserved,
            Verdict::Deleting,
            Verdict::Failed,
            Verdict::Running,
            Verdict::Suspended,
            Verdict::Scheduled,
        ];
        let documented = documented();
        let place = |verdict: &Verdict| (verdict.severity(), urgency(*verdict));
        let verdict = |word: &String| *ALL.iter().find(|it| it.word() == word).unwrap();
        let verdicts: Vec<Verdict> = documented.iter().map(verdict).collect();
        assert!(verdicts.is_sorted_by_key(place), "{documented:?}");
        for verdict in ALL {
            let has_place = matches!(verdict.severity(), Severity::Trouble | Severity::Held);
            assert_eq!(verdicts.contains(&verdict), has_place, "{}", verdict.word());
        }
    }
}
