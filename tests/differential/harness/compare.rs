//! Compares the facts of two plays of a workload, and finds out which differences are declared.

use std::collections::{BTreeMap, BTreeSet};

use super::declared::{Declared, Noise, fits};
use super::facts::{ALL_STEPS, EXISTS, Facts, Key};

/// The value of a fact that only the other side has.
pub const ABSENT: &str = "absent";

/// Facts that differ in the same way, in the steps in which they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub section: &'static str,
    pub object: String,
    pub path: String,
    pub upstream: String,
    pub windlass: String,
    pub steps: Vec<usize>,
}

/// All differences, in the order in which they first show.
pub fn compare(upstream: &Facts, windlass: &Facts) -> Vec<Difference> {
    let mut found: BTreeMap<(&'static str, String, String, String, String), Vec<usize>> = BTreeMap::new();
    let keys: BTreeSet<&Key> = upstream.keys().chain(windlass.keys()).collect();
    let same_lines = |key: &Key| {
        let of = |facts: &Facts| -> Vec<String> {
            let lines = facts
                .keys()
                .filter(|it| it.section == "events" && it.step == key.step && it.object == key.object);
            lines.map(|it| it.path.clone()).collect()
        };
        of(upstream) == of(windlass)
    };
    let last = |facts: &Facts| facts.keys().map(|key| key.step).filter(|step| *step != ALL_STEPS).max();
    let both = last(upstream).min(last(windlass));
    if last(upstream) != last(windlass) {
        let [theirs, ours] =
            [upstream, windlass].map(|facts| last(facts).map_or(0, |last| last + 1).to_string());
        let what = ("script", "script".to_owned(), "steps".to_owned(), theirs, ours);
        found.insert(what, vec![both.unwrap_or_default()]);
    }
    for key in keys {
        // After a surplus step the facts belong to another step.
        if key.step != ALL_STEPS && Some(key.step) > both {
            continue;
        }
        let value = |facts: &Facts| facts.get(key).cloned().unwrap_or_else(|| ABSENT.into());
        let (theirs, ours) = (value(upstream), value(windlass));
        // Of an object that only one side has, this is enough.
        let exists = Key { path: EXISTS.into(), ..key.clone() };
        if key.section == "rest"
            && key.path != EXISTS
            && upstream.contains_key(&exists) != windlass.contains_key(&exists)
        {
            continue;
        }
        // Where the events themselves differ, their order has no meaning.
        if theirs != ours && (key.section != "event order" || same_lines(key)) {
            let difference = (key.section, key.object.clone(), key.path.clone(), theirs, ours);
            found.entry(difference).or_default().push(key.step);
        }
    }
    let mut found: Vec<Difference> = found
        .into_iter()
        .map(|((section, object, path, upstream, windlass), steps)| Difference {
            section,
            object,
            path,
            upstream,
            windlass,
            steps,
        })
        .collect();
    found.sort_by_key(|it| it.steps[0]);
    found
}

impl Declared {
    pub fn covers(&self, difference: &Difference) -> bool {
        fits(self.section, difference.section)
            && fits(self.object, &difference.object)
            && fits(self.path, &difference.path)
            && fits(self.upstream, &difference.upstream)
            && fits(self.windlass, &difference.windlass)
    }
}

impl Noise {
    pub fn covers(&self, difference: &Difference) -> bool {
        let Difference { section, object, path, upstream, windlass, .. } = difference;
        let [one, other] = self.values;
        fits(self.section, section)
            && fits(self.object, object)
            && fits(self.path, path)
            && (fits(one, upstream) && fits(other, windlass) || fits(other, upstream) && fits(one, windlass))
    }
}
