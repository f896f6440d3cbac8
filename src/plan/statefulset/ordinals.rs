//! Ordinals: which pods a StatefulSet has by name, and which of them it wants.

use std::ops::Range;

use crate::model::StatefulSet;

/// The number behind the last hyphen of a pod's name.
pub type Ordinal = i32;

/// Ordinals from `start` on, at most 2147483647; half open.
pub fn wanted(set: &StatefulSet) -> Range<i64> {
    let start = i64::from(set.start);
    start..(start + i64::from(set.replicas)).min(i64::from(Ordinal::MAX) + 1)
}

/// How many pods the StatefulSet wants that no ordinal is left for.
pub fn beyond(set: &StatefulSet) -> i64 {
    let Range { start, end } = wanted(set);
    i64::from(set.replicas) - (end - start).max(0)
}

/// The name of the pod of an ordinal.
pub fn pod_name(set: &StatefulSet, ordinal: Ordinal) -> String {
    format!("{}-{ordinal}", set.meta.key.name)
}

/// The name of a claim of an ordinal. Not cut: an API server refuses one that is too long.
pub fn claim_name(template: &str, set: &StatefulSet, ordinal: Ordinal) -> String {
    format!("{template}-{}-{ordinal}", set.meta.key.name)
}

/// A name in two: the parent, and the digits behind the last hyphen (upstream: `getParentNameAndOrdinal`).
pub fn split(name: &str) -> Option<(&str, &str)> {
    let (parent, digits) = name.rsplit_once('-')?;
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some((parent, digits))
}

/// The ordinal that these digits mean. A name stands for one ordinal only: `01` is none, and neither is a number above
/// 2147483647.
pub fn ordinal(digits: &str) -> Option<Ordinal> {
    let is_canonical = digits == "0" || digits.starts_with(|digit: char| ('1'..='9').contains(&digit));
    if is_canonical { digits.parse().ok() } else { None }
}

/// The names of StatefulSets, with those of their templates, to which a claim of this name may belong.
pub fn owners_of_claim(claim: &str) -> impl Iterator<Item = (&str, &str)> {
    let parent = split(claim).map(|(parent, _)| parent).unwrap_or_default();
    parent.match_indices('-').map(|(at, _)| (&parent[..at], &parent[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};

    fn set(replicas: i32, start: i32) -> StatefulSet {
        let json = format!(
            r#"{{"metadata":{{"name":"db","namespace":"shop","uid":"u","resourceVersion":"1"}},
                "spec":{{"replicas":{replicas},"ordinals":{{"start":{start}}}}}}}"#
        );
        StatefulSet::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn ordinals_begin_at_the_start_and_end_at_the_largest_number_of_32_bits() {
        assert_eq!((wanted(&set(3, 2)), beyond(&set(3, 2))), (2..5, 0));
        assert_eq!(wanted(&set(0, 4)), 4..4);
        let last = i64::from(i32::MAX);
        assert_eq!((wanted(&set(2, i32::MAX)), beyond(&set(2, i32::MAX))), (last..last + 1, 1));
        assert_eq!(beyond(&set(i32::MAX, i32::MAX)), last - 1);
    }

    #[test]
    fn a_name_stands_for_one_ordinal_and_an_ordinal_for_one_name() {
        assert_eq!(split("my-db-10"), Some(("my-db", "10")));
        assert_eq!(
            [split("db"), split("db-"), split("db-1a"), split("db--1")],
            [None, None, None, Some(("db-", "1"))]
        );
        assert_eq!(["0", "7", "2147483647"].map(ordinal), [Some(0), Some(7), Some(i32::MAX)]);
        assert_eq!(["01", "00", "2147483648", "99999999999999999999", ""].map(ordinal), [None; 5]);
    }

    #[test]
    fn a_claim_may_belong_to_each_way_of_cutting_its_name() {
        let owners = |claim| owners_of_claim(claim).collect::<Vec<_>>();
        assert_eq!(owners("data-my-db-0"), [("data", "my-db"), ("data-my", "db")]);
        assert_eq!(owners("data-0"), []);
        assert_eq!(owners("data"), []);
    }
}
