//! Finds the smallest scenario with the same failure. It leaves out acts and faults and lowers numbers as long as the
//! same invariant still breaks.
//!
//! Values are simplified in the JSON form of the scenario ([`replay`](super::replay)), so that a new kind of act
//! needs no code here.

use std::time::Duration;

use serde_json::Value;

use super::crash_points::CrashPoint;
use super::replay::check;
use super::run::run;
use super::scenario::{Act, Scenario, Skew};

/// A history with more acts, faults and crash points than this is hard to follow.
const FEW: usize = 20;

/// The limits of a search.
pub struct Budget<'a> {
    /// The number of histories.
    pub runs: usize,
    /// Real time, measured by `elapsed`: the library must not read the machine's clock.
    pub time: Duration,
    /// The real time since some fixed moment.
    pub elapsed: &'a dyn Fn() -> Duration,
}

/// A scenario from which nothing can be left out, or as near to it as the budget allows. `None` if `scenario` does
/// not fail.
///
/// # Errors
/// When no runtime can be started.
pub fn shrink(scenario: &Scenario, budget: &Budget<'_>) -> std::io::Result<Option<Scenario>> {
    let end = (budget.elapsed)() + budget.time;
    let mut runs = 0;
    let mut judge = |scenario: &Scenario| -> std::io::Result<Verdict> {
        if runs >= budget.runs || (runs > 0 && (budget.elapsed)() >= end) {
            return Ok(Verdict::Spent);
        }
        runs += 1;
        let failure = run(scenario, false)?.failure;
        Ok(failure.map_or(Verdict::Fine, |failure| Verdict::Breaks(failure.invariant)))
    };
    shrink_by(scenario, &mut judge)
}

/// The result of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    Breaks(&'static str),
    /// Not attempted: the budget is spent.
    Spent,
}

type Judge<'a> = &'a mut dyn FnMut(&Scenario) -> std::io::Result<Verdict>;

fn shrink_by(scenario: &Scenario, judge: Judge<'_>) -> std::io::Result<Option<Scenario>> {
    let Verdict::Breaks(invariant) = judge(scenario)? else { return Ok(None) };
    let mut search = Search { best: scenario.clone(), invariant: Some(invariant), judge, spent: false };
    search.go_on()?;
    if search.events() > FEW {
        // A breach of another invariant may be simpler, and is a failure too.
        search.invariant = None;
        search.go_on()?;
    }
    Ok(Some(search.best))
}

struct Search<'a> {
    best: Scenario,
    /// The invariant that must still break; any if there is none.
    invariant: Option<&'static str>,
    judge: Judge<'a>,
    spent: bool,
}

impl Search<'_> {
    fn events(&self) -> usize {
        let Scenario { acts, faults, points, clocks, .. } = &self.best;
        acts.len() + faults.len() + points.len() + clocks.iter().filter(|skew| !skew.is_right()).count()
    }

    /// Whether this candidate fails too; then it is the best so far.
    fn take(&mut self, candidate: Scenario) -> std::io::Result<bool> {
        if self.spent || candidate == self.best || check(&candidate).is_err() {
            return Ok(false);
        }
        let fails = match (self.judge)(&candidate)? {
            Verdict::Fine => false,
            Verdict::Breaks(broken) => {
                broken != "the simulation" && self.invariant.is_none_or(|invariant| invariant == broken)
            }
            Verdict::Spent => {
                self.spent = true;
                false
            }
        };
        if fails {
            self.best = candidate;
        }
        Ok(fails)
    }

    fn with(&mut self, change: impl FnOnce(&mut Scenario)) -> std::io::Result<bool> {
        let mut candidate = self.best.clone();
        change(&mut candidate);
        self.take(candidate)
    }

    /// Repeats until a whole round changes nothing.
    fn go_on(&mut self) -> std::io::Result<()> {
        loop {
            let before = self.best.clone();
            self.leave_out()?;
            self.one_daemon()?;
            self.right_clocks()?;
            self.round_times()?;
            self.simpler_values()?;
            if self.best == before || self.spent {
                return Ok(());
            }
        }
    }

    /// Leaves out large parts first, then single elements.
    fn leave_out(&mut self) -> std::io::Result<()> {
        self.with(|less| less.faults.clear())?;
        self.with(|less| less.clocks.clear())?;
        let mut piece = self.best.acts.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < self.best.acts.len() && !self.spent {
                let end = (at + piece).min(self.best.acts.len());
                if !self.with(|less| drop(less.acts.drain(at..end)))? {
                    at += piece;
                }
            }
            if piece == 1 {
                break;
            }
            piece = piece.div_ceil(2);
        }
        for at in (0..self.best.faults.len()).rev() {
            self.with(|less| {
                less.faults.remove(at);
            })?;
        }
        for at in (0..self.best.points.len()).rev() {
            self.with(|less| {
                less.points.remove(at);
            })?;
        }
        Ok(())
    }

    /// Removes the second daemon, with all that is done to it and the election.
    fn one_daemon(&mut self) -> std::io::Result<()> {
        self.with(|less| {
            less.daemons = 1;
            less.election = false;
            less.acts.retain(|(_, act)| {
                !matches!(
                    act,
                    Act::Lag { daemon: 1.., .. }
                        | Act::Crash { daemon: 1.., .. }
                        | Act::Stop { daemon: 1.. }
                        | Act::SlowLease { daemon: 1.., .. }
                )
            });
            less.points.retain(|point| {
                !matches!(point, CrashPoint::Crash { daemon: 1.., .. } | CrashPoint::Lag { daemon: 1.., .. })
            });
            less.clocks.truncate(1);
        })?;
        self.with(|less| less.daemons = 1)?;
        Ok(())
    }

    /// A right clock is the simplest, although its speed of 100 is the largest number.
    fn right_clocks(&mut self) -> std::io::Result<()> {
        for n in 0..self.best.clocks.len() {
            let parts: [fn(&mut Skew); 3] =
                [|skew| *skew = Skew::default(), |skew| skew.speed = 100, |skew| skew.ahead = 0];
            for part in parts {
                self.with(|righter| righter.clocks.iter_mut().skip(n).take(1).for_each(part))?;
            }
        }
        Ok(())
    }

    fn round_times(&mut self) -> std::io::Result<()> {
        for unit in [1000, 100] {
            let round = |time: Duration| {
                let units = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).div_ceil(unit);
                Duration::from_millis(units.saturating_mul(unit))
            };
            let all = self.with(|rounder| rounder.acts.iter_mut().for_each(|(at, _)| *at = round(*at)))?;
            for n in 0..if all { 0 } else { self.best.acts.len() } {
                // Later acts move along, so that the order stays.
                self.with(|rounder| {
                    let Some((at, _)) = rounder.acts.get(n) else { return };
                    let more = round(*at).saturating_sub(*at);
                    rounder.acts.iter_mut().skip(n).for_each(|(at, _)| *at += more);
                })?;
            }
            self.with(|rounder| rounder.readiness = round(rounder.readiness))?;
            self.with(|rounder| rounder.shutdown = round(rounder.shutdown))?;
        }
        Ok(())
    }

    /// Smaller numbers, and `false` instead of `true`.
    fn simpler_values(&mut self) -> std::io::Result<()> {
        let json = |scenario: &Scenario| serde_json::to_value(scenario).map_err(std::io::Error::other);
        let mut leaves = Vec::new();
        collect(&json(&self.best)?, String::new(), &mut leaves);
        for leaf in leaves {
            // A value that could be lowered may be lowered again.
            while !self.spent {
                let whole = json(&self.best)?;
                let Some(value) = whole.pointer(&leaf) else { break };
                let mut better = false;
                for simpler in simpler(value) {
                    let mut candidate = whole.clone();
                    if let Some(value) = candidate.pointer_mut(&leaf) {
                        *value = simpler;
                    }
                    // A value that does not deserialize is no scenario.
                    let Ok(candidate) = serde_json::from_value(candidate) else { continue };
                    better = self.take(candidate)?;
                    if better {
                        break;
                    }
                }
                if !better {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The pointers to all values that may be simplified. Excluded are the seed, since another seed is another history;
/// times, which are rounded instead; and the speed of clocks, since a slower clock is not simpler.
fn collect(value: &Value, at: String, leaves: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| {
                !matches!(&***name, "seed" | "at" | "readiness" | "shutdown" | "repair" | "speed")
            });
            fields.for_each(|(name, value)| collect(value, format!("{at}/{name}"), leaves));
        }
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(n, value)| collect(value, format!("{at}/{n}"), leaves));
        }
        Value::Number(_) | Value::Bool(true) => leaves.push(at),
        _ => {}
    }
}

/// The simplest first.
fn simpler(value: &Value) -> Vec<Value> {
    match value {
        Value::Bool(true) => vec![false.into()],
        Value::Number(number) => {
            // The offset of a clock that is behind.
            if let Some(number) = number.as_i64().filter(|number| *number < 0) {
                return [0, -1, number / 2].into_iter().filter(|n| *n > number).map(Value::from).collect();
            }
            let Some(number) = number.as_u64() else { return Vec::new() };
            let mut less = vec![0, 1, number / 2];
            if number <= 10 {
                less.push(number.saturating_sub(1));
            }
            less.retain(|less| *less < number);
            less.dedup();
            less.into_iter().map(Value::from).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Fault;
    use super::*;

    fn shrunk(scenario: &Scenario, judge: impl Fn(&Scenario) -> Verdict) -> Option<Scenario> {
        shrink_by(scenario, &mut |scenario| Ok(judge(scenario))).unwrap()
    }

    fn breaks(is: bool) -> Verdict {
        if is { Verdict::Breaks("S1") } else { Verdict::Fine }
    }

    fn lags(scenario: &Scenario) -> impl Iterator<Item = u32> {
        scenario.acts.iter().filter_map(|(_, act)| match act {
            Act::Lag { seconds, .. } => Some(*seconds),
            _ => None,
        })
    }

    fn busy() -> Scenario {
        (1..10_000)
            .map(Scenario::new)
            .find(|scenario| {
                scenario.daemons == 2
                    && scenario.faults.len() > 3
                    && lags(scenario).any(|seconds| seconds > 9)
            })
            .unwrap()
    }

    #[test]
    fn a_passing_scenario_is_not_shrunk() {
        assert_eq!(shrunk(&Scenario::new(1), |_| Verdict::Fine), None);
    }

    #[test]
    fn everything_unnecessary_is_left_out() {
        let least = shrunk(&busy(), |scenario| breaks(lags(scenario).any(|seconds| seconds >= 4))).unwrap();
        assert_eq!((least.acts.len(), least.faults.len(), least.daemons), (1, 0, 1), "{least}");
        assert!(!least.election && !least.streaming_lists, "{least}");
        assert!(
            matches!(least.acts[..], [(at, Act::Lag { daemon: 0, seconds: 4, .. })] if at.subsec_nanos() == 0)
        );
    }

    #[test]
    fn a_needed_fault_is_kept_at_its_lowest_rate() {
        let needs = |fault: &Fault| matches!(fault, Fault::LostReplies(3..));
        let busy = Scenario { faults: vec![Fault::Conflicts(9), Fault::LostReplies(14)], ..busy() };
        let least = shrunk(&busy, |scenario| breaks(scenario.faults.iter().any(needs))).unwrap();
        assert_eq!((least.acts.len(), least.faults), (0, vec![Fault::LostReplies(3)]));
    }

    #[test]
    fn clocks_become_right_as_far_as_the_failure_allows() {
        let wrong = Skew { ahead: -3_600_000, speed: 68 };
        let scenario = Scenario { clocks: vec![wrong, wrong], ..busy() };
        let behind = |scenario: &Scenario| scenario.clocks.iter().any(|skew| skew.ahead <= -400);
        let least = shrunk(&scenario, |scenario| breaks(behind(scenario))).unwrap();
        let [Skew { ahead, speed: 100 }] = least.clocks[..] else { panic!("{:?}", least.clocks) };
        assert!((-800..=-400).contains(&ahead), "{ahead}");
        let slow = |scenario: &Scenario| scenario.clocks.iter().any(|skew| skew.speed < 100);
        let least = shrunk(&scenario, |scenario| breaks(slow(scenario))).unwrap();
        assert_eq!(least.clocks, [Skew { ahead: 0, speed: 68 }]);
    }

    #[test]
    fn another_invariant_counts_only_in_a_long_scenario() {
        // With fewer than three acts another invariant breaks.
        let judge = |scenario: &Scenario| {
            if scenario.acts.len() < 3 { Verdict::Breaks("S2") } else { Verdict::Breaks("S1") }
        };
        assert_eq!(shrunk(&busy(), judge).unwrap().acts.len(), 3);
        let mut long = busy();
        let acts = long.acts.clone();
        long.acts = acts.into_iter().cycle().take(60).collect();
        long.acts.iter_mut().for_each(|(at, _)| *at = Duration::ZERO);
        let judge = |scenario: &Scenario| {
            if scenario.acts.len() < 40 { Verdict::Breaks("S2") } else { Verdict::Breaks("S1") }
        };
        assert_eq!(shrunk(&long, judge).unwrap().acts.len(), 0);
    }

    #[test]
    fn it_ends_when_the_budget_is_spent() {
        let runs = std::cell::Cell::new(0);
        let least = shrunk(&busy(), |_| {
            runs.set(runs.get() + 1);
            if runs.get() < 4 { Verdict::Breaks("S1") } else { Verdict::Spent }
        });
        assert!(least.is_some());
        assert_eq!(runs.get(), 4);
    }
}
