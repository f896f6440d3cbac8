//! The same failure with as little as possible happening: acts and faults are left out as long as the same
//! invariant is broken without them.

use super::run::{Outcome, run};
use super::scenario::Scenario;

/// How many runs may be spent.
const RUNS: usize = 400;

/// A scenario in which nothing can be left out, and how it ends. `None` if `scenario` does not fail.
///
/// # Errors
/// When there is no runtime to be had.
pub fn shrink(scenario: &Scenario) -> std::io::Result<Option<(Scenario, Outcome)>> {
    let first = run(scenario, false)?;
    let Some(invariant) = first.failure.as_ref().map(|failure| failure.invariant) else { return Ok(None) };
    let mut best = (scenario.clone(), first);
    let mut runs = 0;
    // Large pieces first, then single ones, until a whole round changes nothing.
    let mut piece = best.0.acts.len().div_ceil(2).max(1);
    loop {
        let mut changed = false;
        let candidates = |best: &Scenario, at: usize| -> Option<Scenario> {
            let mut less = best.clone();
            let faults = best.faults.len();
            if at < faults {
                less.faults.remove(at);
            } else if at - faults < best.acts.len() {
                let from = at - faults;
                less.acts.drain(from..(from + piece).min(best.acts.len()));
            } else {
                return None;
            }
            Some(less)
        };
        let mut at = 0;
        while let Some(less) = candidates(&best.0, at) {
            if runs == RUNS {
                return Ok(Some(best));
            }
            runs += 1;
            let outcome = run(&less, false)?;
            if outcome.failure.as_ref().is_some_and(|failure| failure.invariant == invariant) {
                best = (less, outcome);
                changed = true;
            } else {
                at += if at < best.0.faults.len() { 1 } else { piece };
            }
        }
        if piece == 1 && !changed {
            return Ok(Some(best));
        }
        piece = (piece / 2).max(1);
    }
}
