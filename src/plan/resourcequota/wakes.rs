//! Which changes of objects make a quota be counted again.

use jiff::Timestamp;

use super::usage::{self, Amounts};
use crate::model::quantity::Quantity;
use crate::model::{PersistentVolumeClaim, Pod, ResourceQuota, Service};

/// The meaning of a change of an object for a quota.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meaning {
    /// By how much more it uses.
    pub more: Amounts,
    /// Whether it uses less of something.
    pub is_less: bool,
}

impl Meaning {
    /// Whether it means anything.
    pub fn is_none(&self) -> bool {
        self.more.is_empty() && !self.is_less
    }

    /// From what the object used, and uses, as far as the quota names it.
    fn of(quota: &ResourceQuota, before: &Amounts, after: &Amounts) -> Self {
        let mut meaning = Meaning::default();
        for (key, _) in quota.hard.iter() {
            let of = |amounts: &Amounts| amounts.get(key).copied().unwrap_or(Quantity::ZERO);
            let (before, after) = (of(before), of(after));
            if after > before {
                meaning.more.insert(key.to_owned(), after.minus(before));
            }
            meaning.is_less |= after < before;
        }
        meaning
    }
}

/// Whether a change of a quota leaves what it limits as it is: the API server has charged it, or somebody has written its numbers.
pub fn is_of_numbers(old: &ResourceQuota, new: &ResourceQuota) -> bool {
    old.hard == new.hard && old.scopes == new.scopes && old.status_hard == new.status_hard
}

fn of_change<T>(
    quota: &ResourceQuota,
    old: Option<&T>,
    new: Option<&T>,
    usage: impl Fn(&ResourceQuota, &T) -> Amounts,
) -> Meaning {
    let of = |object: Option<&T>| object.map(|object| usage(quota, object)).unwrap_or_default();
    Meaning::of(quota, &of(old), &of(new))
}

/// Whether a change of a pod can mean anything for a quota: a quick answer for the many that do not.
pub fn may_concern(old: Option<&Pod>, new: Option<&Pod>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return true };
    old.is_terminal() != new.is_terminal() || old.meta.deletion != new.meta.deletion || old.shape != new.shape
}

/// The meaning of a change of a pod. A pod whose deletion has begun uses less from some time on.
pub fn of_pod(quota: &ResourceQuota, old: Option<&Pod>, new: Option<&Pod>, now: Timestamp) -> Meaning {
    let mut meaning = of_change(quota, old, new, |quota, pod| usage::of_pod(quota, pod, now));
    let due = |pod: Option<&Pod>| pod.and_then(usage::overdue_after);
    meaning.is_less |= due(new).is_some() && due(old) != due(new);
    meaning
}

/// The meaning of a change of a Service.
pub fn of_service(quota: &ResourceQuota, old: Option<&Service>, new: Option<&Service>) -> Meaning {
    of_change(quota, old, new, usage::of_service)
}

/// The meaning of a change of a claim.
pub fn of_claim(
    quota: &ResourceQuota,
    old: Option<&PersistentVolumeClaim>,
    new: Option<&PersistentVolumeClaim>,
) -> Meaning {
    of_change(quota, old, new, usage::of_claim)
}

/// The meaning of one object more, or less, of a resource.
pub fn of_object(quota: &ResourceQuota, resource: &str, is_more: bool) -> Meaning {
    let (none, one) = (Amounts::new(), usage::of_objects(quota, resource, 1));
    let (before, after) = if is_more { (none, one) } else { (one, none) };
    Meaning::of(quota, &before, &after)
}
