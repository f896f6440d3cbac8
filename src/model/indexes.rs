//! Sets of completion indexes: `1,3-5,7,8`, as `status.completedIndexes` has them.
//!
//! Kept as intervals: a Job may have 10⁵ indexes and more, and most of them complete in long runs.

use std::fmt;

/// Completion indexes. Sorted intervals, both ends included, that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Box<[(i32, i32)]>);

impl Indexes {
    /// Reads a list. Parts that do not parse are skipped, as upstream does (`parseIndexesFromString`).
    pub fn parse(text: &str) -> Self {
        let number = |text: &str| text.parse::<i32>().ok().filter(|index| *index >= 0);
        let interval = |part: &str| match part.split_once('-') {
            None => number(part).map(|index| (index, index)),
            Some((first, last)) => number(first).zip(number(last)).filter(|(first, last)| first <= last),
        };
        Indexes::of(text.split(',').filter_map(interval).collect())
    }

    /// The union of intervals in any order.
    fn of(mut intervals: Vec<(i32, i32)>) -> Self {
        intervals.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Indexes(merged.into())
    }

    /// Whether it has this index.
    pub fn contains(&self, index: i32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|(_, last)| index <= *last)
    }

    /// How many indexes there are.
    pub fn len(&self) -> i32 {
        let count: i64 = self.0.iter().map(|(first, last)| i64::from(*last) - i64::from(*first) + 1).sum();
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// With more indexes.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = i32>) -> Self {
        let more = more.into_iter().map(|index| (index, index));
        Indexes::of(self.0.iter().copied().chain(more).collect())
    }

    /// With all of another set.
    #[must_use]
    pub fn with_all(&self, other: &Indexes) -> Self {
        Indexes::of(self.0.iter().chain(&other.0).copied().collect())
    }

    /// Those below a limit: `completions` of an elastic Job may fall.
    #[must_use]
    pub fn below(&self, limit: i32) -> Self {
        let kept = self.0.iter().filter(|(first, _)| *first < limit);
        Indexes(kept.map(|(first, last)| (*first, (*last).min(limit - 1))).collect())
    }

    /// Those that the other set does not have.
    #[must_use]
    pub fn without(&self, other: &Indexes) -> Self {
        let mut kept = Vec::new();
        for &(mut first, last) in &self.0 {
            let from = other.0.partition_point(|(_, end)| *end < first);
            let cuts = other.0.iter().skip(from).take_while(|(begin, _)| *begin <= last);
            let mut is_left = true;
            for &(begin, end) in cuts {
                if begin > first {
                    kept.push((first, begin - 1));
                }
                is_left = end < last;
                if !is_left {
                    break;
                }
                first = end + 1;
            }
            if is_left {
                kept.push((first, last));
            }
        }
        Indexes(kept.into())
    }

    /// How many of them the other set has, too.
    pub fn shared_with(&self, other: &Indexes) -> i32 {
        self.len() - self.without(other).len()
    }

    /// The indexes from 0 to below `limit` that are not in it, ascending.
    pub fn missing_below(&self, limit: i32) -> impl Iterator<Item = i32> {
        let begins = std::iter::once(0).chain(self.0.iter().map(|(_, last)| last.saturating_add(1)));
        let ends = self.0.iter().map(|(first, _)| *first).chain([limit]);
        begins.zip(ends).flat_map(move |(begin, end)| begin..end.min(limit))
    }

    /// The bytes of heap that it takes.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// In the form of the API: an interval of three and more is `a-b`, one of two `a,b`.
impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, canonical: &str, count: i32) {
        let indexes = Indexes::parse(text);
        assert_eq!((indexes.to_string().as_str(), indexes.len()), (canonical, count), "{text}");
    }

    #[test]
    fn runs_of_three_are_intervals_and_runs_of_two_are_not() {
        check("", "", 0);
        check("7", "7", 1);
        check("1,2", "1,2", 2);
        check("1-2", "1,2", 2);
        check("1,2,3", "1-3", 3);
        check("1,3-5,7,8", "1,3-5,7,8", 6);
        check("0-2147483647", "0-2147483647", i32::MAX);
    }

    #[test]
    fn junk_is_skipped_and_any_order_is_read() {
        check("a,1,b-3,4-c,,5-,-6,7", "1,7", 2);
        check("8-6,3,1,2,3-4,99999999999", "1-4", 4);
        check("-1,+3", "3", 1);
    }

    #[test]
    fn completions_that_fall_cut_the_last_interval() {
        let indexes = Indexes::parse("1,3-9,12");
        let below = |limit| indexes.below(limit).to_string();
        assert_eq!(
            [below(0), below(3), below(5), below(10), below(13)],
            ["", "1", "1,3,4", "1,3-9", "1,3-9,12"]
        );
    }

    #[test]
    fn the_missing_indexes_come_in_ascending_order() {
        let missing = |text, limit| Indexes::parse(text).missing_below(limit).collect::<Vec<_>>();
        assert_eq!(missing("", 3), [0, 1, 2]);
        assert_eq!(missing("0,2-3,9", 6), [1, 4, 5]);
        assert_eq!(missing("0-5", 3), [0; 0]);
        assert_eq!(Indexes::parse("1").missing_below(i32::MAX).nth(1), Some(2), "lazily");
    }

    proptest! {
        #[test]
        fn sets_of_intervals_are_sets(a: Vec<u8>, b: Vec<u8>, limit in 0..300i32) {
            let set = |all: &[u8]| all.iter().map(|index| i32::from(*index)).collect::<BTreeSet<i32>>();
            let (x, y) = (set(&a), set(&b));
            let of = |set: &BTreeSet<i32>| Indexes::default().with(set.iter().copied());
            let all = |indexes: &Indexes| (0..=300).filter(|index| indexes.contains(*index)).collect::<BTreeSet<i32>>();
            prop_assert_eq!(all(&of(&x)), x.clone());
            prop_assert_eq!(of(&x).len() as usize, x.len());
            prop_assert_eq!(all(&of(&x).without(&of(&y))), &x - &y);
            prop_assert_eq!(of(&x).without(&of(&y)), of(&(&x - &y)));
            prop_assert_eq!(of(&x).shared_with(&of(&y)) as usize, (&x & &y).len());
            prop_assert_eq!(of(&x).with(y.iter().copied()), of(&(&x | &y)));
            prop_assert_eq!(of(&x).with_all(&of(&y)), of(&(&x | &y)));
            prop_assert_eq!(all(&of(&x).below(limit)), x.range(..limit).copied().collect::<BTreeSet<i32>>());
            let missing: Vec<i32> = (0..limit).filter(|index| !x.contains(index)).collect();
            prop_assert_eq!(of(&x).missing_below(limit).collect::<Vec<_>>(), missing);
            prop_assert_eq!(Indexes::parse(&of(&x).to_string()), of(&x));
        }

        #[test]
        fn no_text_panics(text in ".{0,80}") {
            let indexes = Indexes::parse(&text);
            prop_assert!(indexes.len() >= 0);
            prop_assert_eq!(Indexes::parse(&indexes.to_string()), indexes);
        }
    }
}
