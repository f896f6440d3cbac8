//! Decides how an event is written: as a new object, a higher count on an old one, or not at all.
//!
//! The rules are client-go's (`tools/record/events_cache.go`). Events that are equal in everything are
//! counted; those that differ in the message only are combined once there are too many; and an object
//! that causes very many is throttled. Distinct messages stay distinct until then: "from 3 to 6"
//! must not disappear into the count of "from 0 to 3".

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::lru::Lru;
use super::{Exact, Kind, Recorded, Subject};

/// How long an event is remembered after it last happened.
const WINDOW: Duration = Duration::from_secs(600);

/// How many messages of one kind within the window stay separate; further ones are combined. client-go combines from
/// the tenth on.
const DISTINCT: usize = 9;

/// How many events per source and object pass at once; after that one in each interval.
const BURST: u32 = 25;
const INTERVAL: Duration = Duration::from_secs(300);

/// How many events, kinds and objects are remembered.
const REMEMBERED: usize = 4096;

/// The start of the message of a combined event.
const COMBINED: &str = "(combined from similar events): ";

/// The longest name of an object in the API.
const LONGEST_NAME: usize = 253;

/// An event as it has to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    /// The name of the event object.
    pub(super) name: String,
    /// The message, or the latest of the combined ones.
    pub(super) message: String,
    /// How often it happened.
    pub(super) count: u64,
    /// When it happened first.
    pub(super) first: Timestamp,
    /// The key that identifies it here.
    pub(super) exact: Exact,
}

impl Decided {
    /// Whether the event stands for several similar ones.
    pub(super) fn is_combined(&self) -> bool {
        &*self.exact.message == COMBINED
    }
}

#[derive(Debug)]
struct Seen {
    name: String,
    count: u64,
    first: Timestamp,
    last: Instant,
}

#[derive(Debug)]
struct Similar {
    messages: BTreeSet<Arc<str>>,
    last: Instant,
}

#[derive(Debug)]
struct Budget {
    left: u32,
    /// When the next token is added, from now on.
    since: Instant,
}

/// The state of recent events.
#[derive(Debug)]
pub(super) struct Correlator {
    seen: Lru<Exact, Seen>,
    similar: Lru<Kind, Similar>,
    budgets: Lru<Subject, Budget>,
    /// The source of the names: a random start, counted up.
    next_name: u64,
}

impl Correlator {
    pub(super) fn new(seed: u64) -> Self {
        Correlator {
            seen: Lru::new(REMEMBERED),
            similar: Lru::new(REMEMBERED),
            budgets: Lru::new(REMEMBERED),
            next_name: fastrand::Rng::with_seed(seed).u64(..),
        }
    }

    /// Decides; `None` means that the object has had too many events.
    pub(super) fn observe(&mut self, event: &Recorded, now: Instant) -> Option<Decided> {
        let subject = Subject {
            source: event.source,
            resource: event.target.resource,
            object: event.target.key.clone(),
            uid: event.target.uid.clone(),
        };
        let kind = Kind { subject, kind: event.kind, reason: event.reason };
        let (message, exact) = self.combine(event, kind, now);
        let name = self.name(&event.target.key.name);
        let fresh = || Seen { name: name.clone(), count: 0, first: event.at, last: now };
        let seen = self.seen.get_or_insert_with(&exact, fresh);
        if now.saturating_duration_since(seen.last) > WINDOW {
            *seen = fresh();
        }
        // A dropped event counts all the same, so that the next one that is written includes it.
        seen.count += 1;
        seen.last = now;
        let decided =
            Decided { name: seen.name.clone(), message, count: seen.count, first: seen.first, exact };
        self.spend(&decided.exact.kind.subject, now).then_some(decided)
    }

    /// Forgets an event whose object does not exist (any more): the next one creates a new object.
    pub(super) fn forget(&mut self, exact: &Exact) {
        self.seen.remove(exact);
    }

    /// The message, and what the event counts as: itself, or all that are similar.
    fn combine(&mut self, event: &Recorded, kind: Kind, now: Instant) -> (String, Exact) {
        let similar =
            self.similar.get_or_insert_with(&kind, || Similar { messages: BTreeSet::new(), last: now });
        if now.saturating_duration_since(similar.last) > WINDOW {
            similar.messages.clear();
        }
        similar.last = now;
        let message: Arc<str> = event.message.as_str().into();
        if similar.messages.contains(&message) || similar.messages.len() < DISTINCT {
            similar.messages.insert(message.clone());
            return (event.message.clone(), Exact { kind, message });
        }
        let combined = super::truncate(format!("{COMBINED}{message}"));
        (combined, Exact { kind, message: COMBINED.into() })
    }

    /// Takes a token from the object's budget, if one is left.
    fn spend(&mut self, subject: &Subject, now: Instant) -> bool {
        let budget = self.budgets.get_or_insert_with(subject, || Budget { left: BURST, since: now });
        let back = now.saturating_duration_since(budget.since).as_secs() / INTERVAL.as_secs();
        let back = u32::try_from(back).unwrap_or(u32::MAX);
        budget.since += INTERVAL.saturating_mul(back);
        budget.left = budget.left.saturating_add(back).min(BURST);
        if budget.left == BURST {
            budget.since = now;
        }
        let may = budget.left > 0;
        budget.left = budget.left.saturating_sub(1);
        may
    }

    /// `<object>.<sixteen digits>`, as event names look, within the length of a name.
    fn name(&mut self, object: &str) -> String {
        let number = self.next_name;
        self.next_name = number.wrapping_add(1);
        let suffix = format!(".{number:016x}");
        let object = &object[..object.floor_char_boundary(LONGEST_NAME - suffix.len())];
        // A name must not end in a dot before the suffix, nor be empty.
        let object = match object.trim_end_matches(['.', '-']) {
            "" => "event",
            object => object,
        };
        format!("{object}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ObjectKey;
    use crate::runtime::events::{EventTarget, EventType};
    use crate::runtime::fixture::{THINGS, uid};

    const S: Duration = Duration::from_secs(1);

    fn event(object: &str, message: &str) -> Recorded {
        let target = EventTarget {
            resource: THINGS,
            key: ObjectKey::new("shop", object),
            uid: uid(object),
            resource_version: None,
        };
        let (kind, reason) = (EventType::Normal, "Scaled");
        Recorded { target, kind, reason, message: message.into(), source: "test", at: Timestamp::UNIX_EPOCH }
    }

    #[test]
    fn equal_events_are_counted_on_one_object_and_distinct_messages_stay_distinct() {
        let (mut correlator, now) = (Correlator::new(1), Instant::now());
        let mut observe = |message: &str| correlator.observe(&event("web", message), now).unwrap();
        let (first, other, again) = (observe("from 0 to 3"), observe("from 3 to 6"), observe("from 0 to 3"));
        assert_eq!((first.count, other.count, again.count), (1, 1, 2));
        assert_eq!(first.name, again.name);
        assert_ne!(first.name, other.name);
        assert_eq!(other.message, "from 3 to 6");
    }

    #[test]
    fn an_event_that_recurs_after_ten_minutes_is_a_new_one() {
        let (mut correlator, now) = (Correlator::new(1), Instant::now());
        let mut observe = |after: u32| correlator.observe(&event("web", "m"), now + S * after).unwrap();
        let (first, within, after) = (observe(0), observe(600), observe(1201));
        assert_eq!((within.count, after.count), (2, 1));
        assert_eq!(first.name, within.name);
        assert_ne!(first.name, after.name);
    }

    #[test]
    fn from_the_tenth_message_on_similar_events_are_combined() {
        let (mut correlator, now) = (Correlator::new(1), Instant::now());
        let mut observe = |n: usize| correlator.observe(&event("web", &format!("pod {n}")), now).unwrap();
        for n in 1..=9 {
            assert_eq!(observe(n).message, format!("pod {n}"));
        }
        let (tenth, eleventh, known) = (observe(10), observe(11), observe(3));
        assert_eq!(tenth.message, "(combined from similar events): pod 10");
        assert_eq!(eleventh.message, "(combined from similar events): pod 11");
        assert_eq!((tenth.name == eleventh.name, eleventh.count), (true, 2));
        assert_eq!([tenth.is_combined(), known.is_combined()], [true, false]);
        assert_eq!((known.message.as_str(), known.count), ("pod 3", 2), "a known message stays itself");
    }

    #[test]
    fn a_noisy_object_gets_25_events_and_then_one_in_five_minutes() {
        let (mut correlator, now) = (Correlator::new(1), Instant::now());
        let mut heard = |object: &str, after: u32| {
            (0..100).filter(|_| correlator.observe(&event(object, "m"), now + S * after).is_some()).count()
        };
        assert_eq!(heard("noisy", 0), 25);
        assert_eq!(heard("quiet", 0), 25, "others have a budget of their own");
        assert_eq!(heard("noisy", 299), 0);
        assert_eq!(heard("noisy", 300), 1);
        assert_eq!(heard("noisy", 1000), 2);
        assert_eq!(heard("noisy", 1_000_000), 25);
    }

    #[test]
    fn names_are_unique_valid_and_the_same_for_the_same_seed() {
        let mut correlator = Correlator::new(7);
        let long = "a".repeat(253);
        assert_eq!(correlator.name(&long).len(), 253);
        assert_ne!(correlator.name("web"), correlator.name("web"));
        assert!(correlator.name("web").starts_with("web."));
        assert!(correlator.name("...").starts_with("event."));
        assert_eq!(Correlator::new(3).name("web"), Correlator::new(3).name("web"));
    }

    #[test]
    fn memory_of_events_is_bounded() {
        let (mut correlator, now) = (Correlator::new(1), Instant::now());
        for n in 0..REMEMBERED + 10 {
            correlator.observe(&event(&format!("o{n}"), "m"), now);
        }
        assert_eq!(correlator.observe(&event("o0", "m"), now).unwrap().count, 1, "forgotten");
        let recent = format!("o{}", REMEMBERED + 5);
        assert_eq!(correlator.observe(&event(&recent, "m"), now).unwrap().count, 2);
    }
}
