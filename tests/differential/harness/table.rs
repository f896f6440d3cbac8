//! The table "otherwise than upstream", generated from the declarations, so that it is always right.

use std::fmt::Write;

use super::declared::GENERAL;
use super::rows::{ALL, Row};
use super::unseen::UNSEEN;
use super::workloads;

pub const BEGIN: &str = "<!-- differences -->\n";
pub const END: &str = "<!-- /differences -->\n";

/// Where a row is tested: workloads of the differential run, or tests.
pub fn shown_by(row: &Row) -> Vec<String> {
    let mut places = Vec::new();
    if GENERAL.iter().any(|declared| declared.row == row) {
        places.push("many workloads".to_owned());
    }
    for workload in workloads::all() {
        if workload.declared.iter().any(|declared| declared.row == row) {
            places.push(format!("`{}`", workload.name));
        }
    }
    let tests = UNSEEN.iter().filter(|(unseen, _)| *unseen == row).map(|(_, test)| format!("`{test}`"));
    places.extend(tests);
    places
}

/// The table in Markdown.
pub fn table() -> String {
    let mut table = String::from("| Upstream | Windlass | Why | Shown by |\n|---|---|---|---|\n");
    for row in ALL.iter() {
        let Row { upstream, windlass, why } = row;
        let shown = shown_by(row);
        let more = if shown.len() > 3 { format!(" and {} more", shown.len() - 3) } else { String::new() };
        let shown = shown.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        let _ = writeln!(table, "| {upstream} | {windlass} | {why} | {shown}{more} |");
    }
    table
}
