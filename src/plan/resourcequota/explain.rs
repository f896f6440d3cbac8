//! The reasons for the numbers of a quota, as sentences and as data.

use std::fmt::{self, Display, Formatter};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{Kept, Plan};
use crate::plan::{EventNote, shorten};

/// A reason for the numbers of a quota.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlanReason {
    /// The numbers are those of the objects.
    Counted,
    /// Objects of a resource cannot be counted.
    Kept {
        /// The resource.
        resource: String,
        /// The names in `spec.hard` whose numbers stay as they were.
        names: Vec<String>,
        /// Why.
        why: String,
    },
    /// Numbers wait for objects that the API server may know already.
    Awaited {
        /// The names in `spec.hard`.
        names: Vec<String>,
    },
    /// Names for which nothing is counted.
    Uncounted {
        /// The names in `spec.hard`.
        names: Vec<String>,
    },
}

impl Plan {
    /// The reasons.
    pub fn reasons(&self) -> Vec<PlanReason> {
        let kept = self.kept.iter().map(|Kept { source, keys, reason, .. }| PlanReason::Kept {
            resource: source.to_string(),
            names: keys.clone(),
            why: reason.clone(),
        });
        let some = |names: &Vec<String>| (!names.is_empty()).then(|| names.clone());
        let awaited = some(&self.waiting).map(|names| PlanReason::Awaited { names });
        let uncounted = some(&self.uncounted).map(|names| PlanReason::Uncounted { names });
        let all: Vec<PlanReason> = kept.chain(awaited).chain(uncounted).collect();
        if all.is_empty() { vec![PlanReason::Counted] } else { all }
    }
}

/// How long a failure may last before it is worth an event, and how long a first list may take.
const FAILURE: SignedDuration = SignedDuration::from_secs(5);
const FIRST_LIST: SignedDuration = SignedDuration::from_secs(30);

impl Kept {
    /// Whether it is worth an event, after it has been so since then.
    pub fn is_worth_an_event(&self, since: Timestamp, now: Timestamp) -> bool {
        now.duration_since(since) >= if self.has_failed { FAILURE } else { FIRST_LIST }
    }

    /// The event that says so.
    pub fn event(&self) -> EventNote {
        let (resource, names, why) = (&self.source, self.keys.join(", "), &self.reason);
        let message = format!(
            "The usage of {names} stays as it was: {resource} cannot be counted: {why}. It is counted as soon as that is possible; \
             other resources are counted."
        );
        EventNote::warning("UsageUnknown", message)
    }
}

/// About how many bytes of names are kept in an explanation.
const NAMES: usize = 50;

impl PlanReason {
    /// Cuts texts of unbounded length to this many bytes.
    pub fn shorten(&mut self, longest: usize) {
        match self {
            PlanReason::Counted => {}
            PlanReason::Kept { resource, names, why } => {
                shorten(resource, longest);
                shorten(why, longest);
                names.truncate(NAMES);
            }
            PlanReason::Awaited { names } | PlanReason::Uncounted { names } => names.truncate(NAMES),
        }
    }

    /// The bytes on the heap.
    pub fn heap(&self) -> usize {
        let of = |names: &[String]| -> usize {
            names.iter().map(|name| size_of::<String>() + name.capacity()).sum()
        };
        match self {
            PlanReason::Counted => 0,
            PlanReason::Kept { resource, names, why } => resource.capacity() + why.capacity() + of(names),
            PlanReason::Awaited { names } | PlanReason::Uncounted { names } => of(names),
        }
    }

    /// Whether this reason leaves nothing to do.
    pub fn is_at_rest(&self) -> bool {
        matches!(self, PlanReason::Counted | PlanReason::Uncounted { .. })
    }
}

impl Display for PlanReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PlanReason::Counted => f.write_str("The usage is that of the objects."),
            PlanReason::Kept { resource, names, why } => {
                let names = names.join(", ");
                write!(f, "The usage of {names} stays as it was: {resource} cannot be counted: {why}.")
            }
            PlanReason::Awaited { names } => {
                let names = names.join(", ");
                write!(
                    f,
                    "The usage of {names} stays for a moment: the API server may know of objects that are not seen yet."
                )
            }
            PlanReason::Uncounted { names } => {
                let names = names.join(", ");
                write!(
                    f,
                    "Nothing is counted for {names}: the API server serves no such resource, or no object uses it."
                )
            }
        }
    }
}
