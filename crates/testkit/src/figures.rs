//! Figures measured several times for each of two sides, and the table that compares them.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::controllers::Side;

/// The unit of a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Megabytes, of 1,000,000 bytes.
    Megabytes,
    /// Seconds.
    Seconds,
    /// Thousandths of a second.
    Milliseconds,
    /// Whole numbers, such as calls.
    Calls,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::Megabytes => format!("{value:.1} MB"),
            Unit::Seconds => format!("{value:.2} s"),
            Unit::Milliseconds => format!("{value:.2} ms"),
            Unit::Calls => format!("{value:.0}"),
        }
    }
}

/// A row of the table: the measured figure, and its limit for Windlass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The measured figure.
    pub name: &'static str,
    /// In what unit.
    pub unit: Unit,
    /// The upper bound for the median of Windlass.
    pub goal: Goal,
}

/// The upper bound for the median of Windlass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// In the unit of the row.
    AtMost(f64),
    /// As a part of the median of kube-controller-manager.
    Part(f64),
    /// Nothing is promised.
    None,
}

/// The measurements of all rows, in the order in which rows were first measured.
#[derive(Debug, Default)]
pub struct Figures {
    rows: Vec<Row>,
    values: BTreeMap<(&'static str, Side), Vec<f64>>,
}

impl Figures {
    /// Adds a measurement.
    pub fn add(&mut self, row: Row, side: Side, value: f64) {
        if self.rows.iter().all(|known| known.name != row.name) {
            self.rows.push(row);
        }
        self.values.entry((row.name, side)).or_default().push(value);
    }

    fn median(&self, row: &Row, side: Side) -> Option<f64> {
        median(self.values.get(&(row.name, side))?)
    }

    /// The table in Markdown: medians, between parentheses the least and the greatest value, and the ratio of the
    /// medians.
    pub fn table(&self) -> String {
        let mut table = String::from(
            "| Figure | kube-controller-manager | Windlass | Ratio | Goal | Reached |\n|---|---|---|---|---|---|\n",
        );
        for row in &self.rows {
            let [upstream, windlass] =
                [Side::Upstream, Side::Windlass].map(|side| self.values.get(&(row.name, side)));
            let medians = self.median(row, Side::Upstream).zip(self.median(row, Side::Windlass));
            let ratio =
                medians.map_or("—".into(), |(upstream, windlass)| format!("{:.2}", windlass / upstream));
            let (goal, limit) = match row.goal {
                Goal::AtMost(limit) => (format!("≤ {}", row.unit.show(limit)), Some(limit)),
                Goal::Part(part) => (
                    format!("ratio ≤ {part:.2}"),
                    self.median(row, Side::Upstream).map(|median| median * part),
                ),
                Goal::None => ("—".into(), None),
            };
            let reached = match limit.zip(self.median(row, Side::Windlass)) {
                Some((limit, reached)) if reached <= limit => "yes",
                Some(_) => "**no**",
                None => "—",
            };
            let (name, upstream, windlass) = (row.name, shown(row.unit, upstream), shown(row.unit, windlass));
            let _ = writeln!(table, "| {name} | {upstream} | {windlass} | {ratio} | {goal} | {reached} |");
        }
        table
    }
}

fn shown(unit: Unit, values: Option<&Vec<f64>>) -> String {
    let Some((values, median)) = values.and_then(|values| Some((values, median(values)?))) else {
        return "—".into();
    };
    let (least, greatest) = values
        .iter()
        .fold((f64::MAX, f64::MIN), |(least, greatest), &value| (least.min(value), greatest.max(value)));
    format!("{} ({} to {})", unit.show(median), unit.show(least), unit.show(greatest))
}

/// The value in the middle; of an even number, the mean of the two in the middle.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        _ if sorted.is_empty() => None,
        1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 5.0, 6.0]), Some(5.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_row_shows_medians_spreads_and_whether_the_goal_is_reached() {
        let mut figures = Figures::default();
        let calls = Row { name: "calls", unit: Unit::Calls, goal: Goal::AtMost(290.0) };
        let restart = Row { name: "restart", unit: Unit::Seconds, goal: Goal::Part(0.5) };
        for value in [700.0, 800.0, 729.0] {
            figures.add(calls, Side::Upstream, value);
            figures.add(calls, Side::Windlass, value - 439.0);
        }
        figures.add(restart, Side::Upstream, 4.0);
        figures.add(restart, Side::Windlass, 2.5);
        let table = figures.table();
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| calls | 729 (700 to 800) | 290 (261 to 361) | 0.40 | ≤ 290 | yes |",
                "| restart | 4.00 s (4.00 s to 4.00 s) | 2.50 s (2.50 s to 2.50 s) | 0.62 | ratio ≤ 0.50 | **no** |",
            ]
        );
    }

    #[test]
    fn a_row_that_one_side_lacks_is_shown_without_a_ratio() {
        let mut figures = Figures::default();
        figures.add(Row { name: "memory", unit: Unit::Megabytes, goal: Goal::None }, Side::Windlass, 12.34);
        assert!(figures.table().ends_with("| memory | — | 12.3 MB (12.3 MB to 12.3 MB) | — | — | — |\n"));
    }
}
