//! Finds the smallest scenario with the same failure. It leaves out acts and faults and lowers numbers as long as the
//! same invariant still breaks.
//!
//! All of that happens in the JSON form of the scenario ([`replay`](super::replay)), so that a new game or a new kind of
//! act needs no code here.

use std::time::Duration;

use serde_json::{Value, json};

use super::game::{Game, Scenario};
use super::replay::check;

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
pub fn shrink<G: Game>(scenario: &G::Scenario, budget: &Budget<'_>) -> std::io::Result<Option<G::Scenario>> {
    let end = (budget.elapsed)() + budget.time;
    let mut runs = 0;
    let mut judge = |scenario: &G::Scenario| -> std::io::Result<Verdict> {
        if runs >= budget.runs || (runs > 0 && (budget.elapsed)() >= end) {
            return Ok(Verdict::Spent);
        }
        runs += 1;
        let failure = G::run(scenario, false)?.failure;
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

type Judge<'a, S> = &'a mut dyn FnMut(&S) -> std::io::Result<Verdict>;

fn shrink_by<S: Scenario>(scenario: &S, judge: Judge<'_, S>) -> std::io::Result<Option<S>> {
    let Verdict::Breaks(invariant) = judge(scenario)? else { return Ok(None) };
    let mut search = Search { best: scenario.clone(), invariant: Some(invariant), judge, spent: false };
    search.go_on()?;
    if search.events()? > FEW {
        // A breach of another invariant may be simpler, and is a failure too.
        search.invariant = None;
        search.go_on()?;
    }
    Ok(Some(search.best))
}

struct Search<'a, S> {
    best: S,
    /// The invariant that must still break; any if there is none.
    invariant: Option<&'static str>,
    judge: Judge<'a, S>,
    spent: bool,
}

/// A list of the scenario; there is none of some in some games.
fn list<'a>(scenario: &'a mut Value, name: &str) -> Option<&'a mut Vec<Value>> {
    scenario.get_mut(name)?.as_array_mut()
}

/// Rounds milliseconds up.
fn round(time: &mut Value, unit: u64) {
    if let Some(milliseconds) = time.as_u64() {
        *time = milliseconds.div_ceil(unit).saturating_mul(unit).into();
    }
}

impl<S: Scenario> Search<'_, S> {
    fn json(&self) -> std::io::Result<Value> {
        serde_json::to_value(&self.best).map_err(std::io::Error::other)
    }

    fn count(&self, name: &str) -> std::io::Result<usize> {
        Ok(list(&mut self.json()?, name).map_or(0, |list| list.len()))
    }

    fn events(&self) -> std::io::Result<usize> {
        ["acts", "faults", "points", "clocks"].into_iter().map(|name| self.count(name)).sum()
    }

    /// Whether this candidate fails too; then it is the best so far.
    fn take(&mut self, candidate: S) -> std::io::Result<bool> {
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

    fn with(&mut self, change: impl FnOnce(&mut Value)) -> std::io::Result<bool> {
        let mut candidate = self.json()?;
        change(&mut candidate);
        // A value that does not deserialize is no scenario.
        serde_json::from_value(candidate).map_or(Ok(false), |candidate| self.take(candidate))
    }

    /// Repeats until a whole round changes nothing.
    fn go_on(&mut self) -> std::io::Result<()> {
        loop {
            let before = self.best.clone();
            self.leave_out()?;
            self.own_simplifications()?;
            self.round_times()?;
            self.simpler_values()?;
            if self.best == before || self.spent {
                return Ok(());
            }
        }
    }

    /// Leaves out large parts first, then single elements.
    fn leave_out(&mut self) -> std::io::Result<()> {
        self.with(|less| match &mut less["faults"] {
            Value::Array(faults) => faults.clear(),
            // A rate for each.
            Value::Object(rates) => rates.values_mut().for_each(|rate| *rate = 0.into()),
            _ => {}
        })?;
        self.with(|less| list(less, "clocks").into_iter().for_each(Vec::clear))?;
        let mut piece = self.count("acts")?.div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < self.count("acts")? && !self.spent {
                let is_out = self.with(|less| {
                    if let Some(acts) = list(less, "acts") {
                        acts.drain(at..(at + piece).min(acts.len()));
                    }
                })?;
                if !is_out {
                    at += piece;
                }
            }
            if piece == 1 {
                break;
            }
            piece = piece.div_ceil(2);
        }
        for name in ["faults", "points"] {
            for at in (0..self.count(name)?).rev() {
                self.with(|less| {
                    if let Some(list) = list(less, name) {
                        list.remove(at);
                    }
                })?;
            }
        }
        Ok(())
    }

    /// Those of the game.
    fn own_simplifications(&mut self) -> std::io::Result<()> {
        let mut nth = 0;
        while let Some(simpler) = self.best.simpler().into_iter().nth(nth) {
            self.take(simpler)?;
            nth += 1;
        }
        Ok(())
    }

    fn round_times(&mut self) -> std::io::Result<()> {
        for unit in [1000, 100] {
            let all = self.with(|rounder| {
                let acts = list(rounder, "acts").into_iter().flatten();
                acts.for_each(|step| round(&mut step["at"], unit));
            })?;
            for n in 0..if all { 0 } else { self.count("acts")? } {
                // Later acts move along, so that the order stays.
                self.with(|rounder| {
                    let Some(acts) = list(rounder, "acts") else { return };
                    let at = |step: &Value| step["at"].as_u64().unwrap_or(0);
                    let mut rounded = acts.get(n).map(|step| step["at"].clone()).unwrap_or_default();
                    round(&mut rounded, unit);
                    let more = rounded.as_u64().unwrap_or(0) - acts.get(n).map_or(0, at);
                    acts.iter_mut().skip(n).for_each(|step| step["at"] = json!(at(step) + more));
                })?;
            }
            for name in ["readiness", "shutdown", "delay"] {
                self.with(|rounder| rounder.get_mut(name).into_iter().for_each(|time| round(time, unit)))?;
            }
        }
        Ok(())
    }

    /// Smaller numbers, and `false` instead of `true`.
    fn simpler_values(&mut self) -> std::io::Result<()> {
        let mut leaves = Vec::new();
        collect(&self.json()?, String::new(), &mut leaves);
        for leaf in leaves {
            // A value that could be lowered may be lowered again.
            while !self.spent {
                let candidates = self.json()?.pointer(&leaf).map(simpler).unwrap_or_default();
                let mut better = false;
                for simpler in candidates {
                    better = self.with(|whole| {
                        if let Some(value) = whole.pointer_mut(&leaf) {
                            *value = simpler;
                        }
                    })?;
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
                !matches!(&***name, "seed" | "at" | "readiness" | "shutdown" | "delay" | "repair" | "speed")
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
    use std::time::Duration;

    use super::{Verdict, shrink_by};
    use crate::deployments::scenario::{Act, Fault, Scenario, Skew};
    use crate::engine::game::{self, Scenario as _};

    fn shrunk<S: game::Scenario>(scenario: &S, judge: impl Fn(&S) -> Verdict) -> Option<S> {
        shrink_by(scenario, &mut |scenario| Ok(judge(scenario))).unwrap()
    }

    #[test]
    fn every_game_is_shrunk_to_the_act_that_breaks_it() {
        use crate::namespaces::scenario::{Act, Scenario};
        let crashes = |scenario: &Scenario| scenario.acts.iter().any(|(_, act)| *act == Act::Crash);
        let mut drawn = (1..).map(Scenario::draw);
        let one = drawn.find(|one| crashes(one) && one.faults.lost_replies > 0).unwrap();
        let least = shrunk(&one, |scenario| breaks(crashes(scenario))).unwrap();
        assert_eq!(least.faults, Default::default());
        assert!(matches!(least.acts[..], [(at, Act::Crash)] if at.subsec_nanos() == 0), "{least:?}");
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
            .map(Scenario::draw)
            .find(|scenario| {
                scenario.daemons == 2
                    && scenario.faults.len() > 3
                    && lags(scenario).any(|seconds| seconds > 9)
            })
            .unwrap()
    }

    #[test]
    fn a_passing_scenario_is_not_shrunk() {
        assert_eq!(shrunk(&Scenario::draw(1), |_| Verdict::Fine), None);
    }

    #[test]
    fn everything_unnecessary_is_left_out() {
        let least = shrunk(&busy(), |scenario| breaks(lags(scenario).any(|seconds| seconds >= 4))).unwrap();
        assert_eq!((least.acts.len(), least.faults.len(), least.daemons), (1, 0, 1), "{least:?}");
        assert!(!least.election && !least.streaming_lists, "{least:?}");
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
