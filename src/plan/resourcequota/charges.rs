//! What the API server has charged a quota for objects that the caches do not show yet.
//!
//! The API server adds to `used` before it stores an object, and the object arrives by another watch than the quota. A count of the
//! objects in between would take the charge back, and let the namespace have more than it may. So what `used` has risen by counts
//! for a while, less what has appeared in that while, in whichever order the two watches bring them. A charge whose object never
//! appears, since its creation failed, ends with the while. Upstream takes such a charge back, and keeps the wrong number until the
//! next object of the namespace is deleted.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::usage::{Amounts, add};
use crate::model::quantity::Quantity;
use crate::model::{ResourceQuota, StringMap};

/// How long a charge counts whose object does not appear.
pub const WHILE: SignedDuration = SignedDuration::from_secs(5);

/// Changes that are so close together are kept as one.
const TOGETHER: SignedDuration = SignedDuration::from_millis(100);

/// The charges of a quota.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Charges(VecDeque<Moment>);

/// What has risen and appeared in a moment.
#[derive(Clone, Debug, PartialEq)]
struct Moment {
    begins: Timestamp,
    /// The rise of `used`, less what has appeared.
    open: Amounts,
}

impl Charges {
    /// The status of a quota has changed.
    pub fn changed(&mut self, old: &ResourceQuota, new: &ResourceQuota, now: Timestamp) {
        let amount = |map: &StringMap, key: &str| Quantity::parse(map.get(key)?);
        let rise = |(key, after): (&str, &str)| {
            let (before, after) = (amount(&old.status_used, key)?, Quantity::parse(after)?);
            (after > before).then(|| (key.to_owned(), after.minus(before)))
        };
        self.add(&new.status_used.iter().filter_map(rise).collect(), now);
    }

    /// Objects that use this have appeared, or an object has come to use so much more.
    pub fn appeared(&mut self, used: &Amounts, now: Timestamp) {
        let less = |(key, amount): (&String, &Quantity)| (key.clone(), Quantity::ZERO.minus(*amount));
        self.add(&used.iter().filter(|(_, amount)| amount.is_positive()).map(less).collect(), now);
    }

    fn add(&mut self, open: &Amounts, now: Timestamp) {
        self.forget(now);
        if open.is_empty() {
            return;
        }
        match self.0.back_mut().filter(|last| now.duration_since(last.begins) < TOGETHER) {
            Some(last) => add(&mut last.open, open),
            None => self.0.push_back(Moment { begins: now, open: open.clone() }),
        }
    }

    /// Drops what has had its while, and what a clock that was set back has left in the future.
    fn forget(&mut self, now: Timestamp) {
        self.0.retain(|moment| {
            let age = now.duration_since(moment.begins);
            age < WHILE && age > SignedDuration::ZERO - WHILE
        });
    }

    /// What is charged for objects that have not appeared.
    pub fn open(&mut self, now: Timestamp) -> Amounts {
        self.forget(now);
        let mut sum = Amounts::new();
        self.0.iter().for_each(|moment| add(&mut sum, &moment.open));
        sum.retain(|_, open| open.is_positive());
        sum
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
