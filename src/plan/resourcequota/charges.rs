//! Charges of the API server to a quota for objects that the caches do not show yet.
//!
//! The API server adds to `used` before it stores an object, and the object arrives by another watch than the quota. A count of the
//! objects in between would take the charge back, and let the namespace have more than it may. So what `used` has risen by counts
//! for a while, less what has appeared in that while, in whichever order the two watches bring them. The while begins when the cache
//! of the objects is as new as the charge, since a watch may be dead for long before anybody notices. A charge whose object never
//! appears, since its creation failed, ends with the while. Upstream takes such a charge back, and keeps the wrong number until the
//! next object of the namespace is deleted.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::usage::{Amounts, add};
use crate::model::quantity::Quantity;
use crate::model::{ResourceQuota, StringMap};

/// How long a charge counts whose object does not appear, once the cache of the objects is as new as the charge.
pub const WHILE: SignedDuration = SignedDuration::from_secs(5);

/// How long it counts at most: a dead watch and the list that replaces it take no longer. Where an API server numbers the versions of a
/// resource apart from those of quotas, its cache is never known to be as new.
pub const LONGEST: SignedDuration = SignedDuration::from_secs(120);

/// How long after a change of its numbers the objects that a quota has changed for may be on their way.
pub const ON_THE_WAY: SignedDuration = SignedDuration::from_millis(500);

/// Changes that are so close together are kept as one, if there are so many.
const TOGETHER: SignedDuration = SignedDuration::from_millis(100);
const MANY: usize = 64;

/// The charges of a quota.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Charges(VecDeque<Moment>);

/// The rest of a moment that has found no counterpart yet.
#[derive(Clone, Debug, PartialEq)]
struct Moment {
    begins: Timestamp,
    /// The version of the quota that showed the rise.
    version: u64,
    /// By how much `used` has risen.
    risen: Amounts,
    /// Since when the caches of the objects have been as new as that, by the name of the number.
    reached: BTreeMap<String, Timestamp>,
    /// The use that has appeared.
    appeared: Amounts,
}

/// The two things that are each other's counterparts.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Risen,
    Appeared,
}

impl Moment {
    fn side(&mut self, side: Side) -> &mut Amounts {
        match side {
            Side::Risen => &mut self.risen,
            Side::Appeared => &mut self.appeared,
        }
    }
}

impl Charges {
    /// The status of a quota has changed.
    pub fn changed(&mut self, old: &ResourceQuota, new: &ResourceQuota, now: Timestamp) {
        let amount = |map: &StringMap, key: &str| Quantity::parse(map.get(key)?);
        let rise = |(key, after): (&str, &str)| {
            let (before, after) = (amount(&old.status_used, key)?, Quantity::parse(after)?);
            (after > before).then(|| (key.to_owned(), after.minus(before)))
        };
        let risen = new.status_used.iter().filter_map(rise).collect();
        self.add(Side::Risen, risen, new.meta.resource_version, now);
    }

    /// This version of the quota is one that this program has written: what rose by it is no charge.
    pub fn wrote(&mut self, version: u64) {
        self.0.iter_mut().filter(|moment| moment.version == version).for_each(|moment| moment.risen.clear());
    }

    /// Objects that use this have appeared, or an object has come to use so much more.
    pub fn appeared(&mut self, used: &Amounts, now: Timestamp) {
        self.add(Side::Appeared, used.clone(), 0, now);
    }

    /// Takes off the counterparts, the oldest first, and keeps the rest: a pair that is complete must not outlive its first half, or the
    /// second would take off a later charge.
    fn add(&mut self, side: Side, mut amounts: Amounts, version: u64, now: Timestamp) {
        self.forget(now);
        let counterpart = if side == Side::Risen { Side::Appeared } else { Side::Risen };
        for moment in &mut self.0 {
            let open = moment.side(counterpart);
            for (key, left) in &mut amounts {
                if let Some(open) = open.get_mut(key) {
                    let taken = (*left).min(*open);
                    (*open, *left) = (open.minus(taken), left.minus(taken));
                }
            }
            open.retain(|_, open| open.is_positive());
        }
        amounts.retain(|_, left| left.is_positive());
        if amounts.is_empty() {
            return;
        }
        let may_join = side == Side::Appeared || self.0.len() > MANY;
        match self.0.back_mut().filter(|last| may_join && now.duration_since(last.begins) < TOGETHER) {
            Some(last) => {
                if side == Side::Risen {
                    last.version = last.version.max(version);
                    last.reached.clear();
                }
                add(last.side(side), &amounts);
            }
            None => {
                let (risen, reached, appeared) = Default::default();
                let mut moment = Moment { begins: now, version, risen, reached, appeared };
                *moment.side(side) = amounts;
                self.0.push_back(moment);
            }
        }
    }

    /// Drops what has had its time, and what a clock that was set back has left in the future.
    fn forget(&mut self, now: Timestamp) {
        for moment in &mut self.0 {
            let age = now.duration_since(moment.begins);
            let is_ahead = age <= SignedDuration::ZERO - WHILE;
            if age >= WHILE || is_ahead {
                moment.appeared.clear();
            }
            if age >= LONGEST || is_ahead {
                moment.risen.clear();
            }
        }
        self.0.retain(|moment| !moment.risen.is_empty() || !moment.appeared.is_empty());
    }

    /// The charges for objects that have not appeared. `position` has the version that the cache of the objects shows which a number
    /// counts.
    pub fn open(&mut self, position: impl Fn(&str) -> u64, now: Timestamp) -> Amounts {
        self.forget(now);
        let mut sum = Amounts::new();
        for Moment { version, risen, reached, .. } in &mut self.0 {
            risen.retain(|key, _| {
                if !reached.contains_key(key) && position(key) >= *version {
                    reached.insert(key.clone(), now);
                }
                reached.get(key).is_none_or(|since| now.duration_since(*since) < WHILE)
            });
            add(&mut sum, risen);
        }
        sum
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|moment| moment.risen.is_empty() && moment.appeared.is_empty())
    }
}
