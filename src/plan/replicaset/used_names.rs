//! Which names of its sequence the pods of a ReplicaSet have had, so that no name is used for another pod.
//!
//! A claim, a lock or a log may bear the name of a pod: a new pod under the name of a deleted one would be mistaken
//! for it. So new pods get the names behind a high-water mark. The mark alone does not suffice. Up to 32 creations are
//! in flight at once, and the name of one whose outcome is unknown must be requested again, also when a later one has
//! succeeded: under another name there could be a pod too many. So the positions before the mark that no pod is known
//! to have had are kept beside it.
//!
//! A process that starts has no memory. It places the mark behind the known pods, and requests nothing before the
//! mark. Positions between known pods may be those of deleted pods, or of creations of the process before it that
//! have yet to arrive. If a later pod is young they are in doubt: a place is kept free for each, until nothing
//! can arrive any more.
//!
//! Pods that are adopted do not count: those of an earlier ReplicaSet of the same name have their names from another
//! sequence, which has a given name among the next ones once in 14 million times.
//!
//! Positions that are not in this process's memory come from names that others may choose. A sequence is a circle, and
//! a position up to half of it ahead counts as later. Whoever creates pods with chosen names and our owner reference
//! can move the mark to another stretch of free names, and so cause a name to be used again in their own ReplicaSet. No
//! wait and no memory grows from it.

use std::collections::BTreeSet;
use std::ops::Range;

use super::names::LENGTH;

/// The most positions that are kept beside the mark. A batch has no more than 500 creations.
const MOST: u64 = 1024;

/// The most places that are kept free for creations of another process: as many are in flight at once. Where more
/// names are missing in a row, their pods were deleted, or a user chose a name far off.
const MOST_IN_DOUBT: u64 = 32;

/// The knowledge about the names between the mark and a used name beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// This process has seen all pods that existed: these names are free.
    Free,
    /// This process may not have seen all pods, or not yet.
    InDoubt,
}

/// See the module. A position is counted on beyond the end of the sequence, and stands for a name modulo
/// [`LENGTH`].
#[derive(Clone, Debug, Default)]
pub struct UsedNames {
    /// The high-water mark: no pod is known to have had a name from here on, nor was one requested.
    next: u64,
    /// Positions before the mark that are free: requested, and not known to have become a pod.
    free: BTreeSet<u64>,
    /// Positions before the mark that another process may have requested.
    in_doubt: BTreeSet<u64>,
}

impl UsedNames {
    /// The state of a process without a memory: the positions of the existing pods, and whether each of these is so
    /// young that a creation before it may still arrive.
    ///
    /// The mark stands where the longest run of free names begins. That is behind the last pod, wherever on the
    /// circle; a single name far off, by chance or on purpose, does not move it.
    pub fn of(pods: impl IntoIterator<Item = (u64, bool)>) -> Self {
        let mut pods: Vec<(u64, bool)> = pods.into_iter().map(|(at, young)| (at % LENGTH, young)).collect();
        pods.sort_unstable();
        pods.dedup_by_key(|(at, _)| *at);
        let Some((first, _)) =
            pods.first().copied().filter(|_| !planted!("used pod names are forgotten at a restart"))
        else {
            return UsedNames::default();
        };
        let following = pods.iter().map(|(at, _)| *at).skip(1).chain([first + LENGTH]);
        let runs = pods.iter().zip(following).map(|((at, _), following)| (following - at, *at));
        // Of two runs of the same length the one that begins first.
        let last = runs.max_by_key(|(length, at)| (*length, std::cmp::Reverse(*at))).map_or(0, |(_, at)| at);
        let mut used = UsedNames { next: last + 1, ..UsedNames::default() };
        let mut later_is_young = false;
        let mut following = last;
        let from_the_last = pods.iter().rev().skip_while(|(at, _)| *at > last);
        for (at, young) in from_the_last {
            if later_is_young {
                used.doubt(at + 1..following);
            }
            later_is_young |= young;
            following = *at;
        }
        used.trim();
        used
    }

    fn doubt(&mut self, positions: Range<u64>) {
        if positions.end.saturating_sub(positions.start) <= MOST_IN_DOUBT {
            self.in_doubt.extend(positions);
        }
    }

    fn leave_free(&mut self, positions: Range<u64>) {
        // With the one behind them no more than are remembered.
        if positions.end.saturating_sub(positions.start) < MOST {
            self.free.extend(positions);
        }
    }

    /// A pod is about to be created under the name at this position. The free positions before it are those that an
    /// observer of the pod takes for free: both must request the same name next.
    pub fn requested(&mut self, position: u64) {
        let Some(at) = self.place(position).filter(|at| *at >= self.next) else { return };
        self.leave_free(self.next..at);
        self.free.insert(at);
        self.next = at.saturating_add(1);
        self.trim();
    }

    /// A pod has or had the name at this position.
    pub fn had(&mut self, position: u64, between: Between) {
        let Some(at) = self.place(position) else { return };
        if at < self.next {
            self.free.remove(&at);
            self.in_doubt.remove(&at);
            return;
        }
        match between {
            Between::Free => self.leave_free(self.next..at),
            Between::InDoubt => self.doubt(self.next..at),
        }
        self.next = at.saturating_add(1);
        self.trim();
    }

    /// No request of another process can arrive any more.
    pub fn end_doubts(&mut self) {
        self.in_doubt.clear();
    }

    /// How many pods another process may have requested that do not exist yet.
    pub fn in_doubt(&self) -> usize {
        self.in_doubt.len()
    }

    /// Whether a pod is known to have had the name at this position.
    pub fn is_used(&self, position: u64) -> bool {
        let before = self.place(position).filter(|at| *at < self.next);
        before.is_some_and(|at| !self.free.contains(&at) && !self.in_doubt.contains(&at))
    }

    /// The positions for new pods, in the order of their use. After its end the sequence begins
    /// again.
    pub fn unused(&self) -> impl Iterator<Item = u64> + use<> {
        let next = if planted!("names of deleted pods are used again") { 0 } else { self.next };
        let further = (0..LENGTH).map(move |ahead| next.wrapping_add(ahead));
        self.free.clone().into_iter().chain(further)
    }

    /// The position, counted on: up to half of the sequence ahead of the mark, or else behind it. `None` is
    /// behind the beginning.
    fn place(&self, position: u64) -> Option<u64> {
        let ahead = (position % LENGTH + LENGTH - self.next % LENGTH) % LENGTH;
        if ahead < LENGTH / 2 { self.next.checked_add(ahead) } else { self.next.checked_sub(LENGTH - ahead) }
    }

    fn trim(&mut self) {
        // A name that is half of the sequence behind may be ahead as well.
        let oldest = self.next.saturating_sub(LENGTH / 2);
        while self.free.len() as u64 > MOST || self.free.first().is_some_and(|first| *first < oldest) {
            self.free.pop_first();
        }
        while self.in_doubt.len() as u64 > MOST_IN_DOUBT {
            self.in_doubt.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unused(used: &UsedNames, count: usize) -> Vec<u64> {
        used.unused().take(count).collect()
    }

    fn old(pods: &[u64]) -> UsedNames {
        UsedNames::of(pods.iter().map(|at| (*at, false)))
    }

    #[test]
    fn a_name_that_a_pod_has_had_is_not_given_again() {
        let mut used = UsedNames::default();
        for at in 0..3 {
            used.requested(at);
            used.had(at, Between::Free);
        }
        assert!(used.is_used(2) && !used.is_used(3));
        assert_eq!(unused(&used, 2), [3, 4]);
    }

    #[test]
    fn a_name_whose_outcome_is_unknown_comes_before_later_ones() {
        let mut used = UsedNames::default();
        (0..4).for_each(|at| used.requested(at));
        used.had(3, Between::Free);
        used.had(1, Between::Free);
        assert_eq!(unused(&used, 4), [0, 2, 4, 5]);
        assert!(!used.is_used(2));
        // The reply was lost, and the cache shows the pod.
        used.had(2, Between::Free);
        assert_eq!(unused(&used, 2), [0, 4]);
    }

    #[test]
    fn creations_that_were_all_refused_do_not_move_on() {
        let mut used = old(&[0, 1]);
        for _ in 0..3 {
            let asked = unused(&used, 5);
            assert_eq!(asked, [2, 3, 4, 5, 6]);
            asked.into_iter().for_each(|at| used.requested(at));
        }
    }

    #[test]
    fn an_observer_of_all_creations_requests_the_missing_names_between() {
        let mut used = old(&[0]);
        used.had(3, Between::Free);
        assert_eq!(unused(&used, 3), [1, 2, 4]);
        assert_eq!(used.in_doubt(), 0);
    }

    #[test]
    fn a_process_that_has_not_watched_keeps_places_for_the_missing_names_between() {
        let mut used = old(&[0]);
        used.had(3, Between::InDoubt);
        assert_eq!((unused(&used, 2), used.in_doubt()), (vec![4, 5], 2));
        used.had(1, Between::Free);
        assert_eq!(used.in_doubt(), 1);
        assert!(!used.is_used(2));
        used.end_doubts();
        assert!(used.is_used(2));
        assert_eq!((unused(&used, 2), used.in_doubt()), (vec![4, 5], 0));
    }

    #[test]
    fn after_a_restart_no_name_before_a_known_pods_is_given() {
        assert_eq!(unused(&UsedNames::of([]), 2), [0, 1]);
        assert_eq!(unused(&old(&[7]), 2), [8, 9]);
        assert_eq!(unused(&old(&[9, 2, 4, 2]), 2), [10, 11]);
        assert_eq!(old(&[9, 2, 4]).in_doubt(), 0);
    }

    #[test]
    fn after_a_restart_a_place_is_kept_for_each_name_that_is_missing_before_a_young_pod() {
        let used = UsedNames::of([(0, false), (2, true), (5, false), (7, false)]);
        assert_eq!(used.in_doubt(), 1, "before 5 and 7 nothing is on its way any more");
        let used = UsedNames::of([(10, true), (14, true), (12, true)]);
        assert_eq!((used.in_doubt(), unused(&used, 1)), (2, vec![15]));
        assert_eq!(
            UsedNames::of([(0, true), (5000, true)]).in_doubt(),
            0,
            "far more than are under way at once"
        );
        let far_apart = UsedNames::of([(0, true), (30, true), (60, true)]);
        assert_eq!(far_apart.in_doubt() as u64, MOST_IN_DOUBT);
    }

    #[test]
    fn a_single_name_far_off_does_not_move_the_mark_of_a_restart() {
        assert_eq!(unused(&old(&[0, 1, 2, LENGTH - 1]), 1), [3]);
        assert_eq!(unused(&old(&[0, 1, 2, LENGTH - 9_000_000]), 1), [LENGTH - 9_000_000 + 1]);
    }

    #[test]
    fn creator_and_observer_of_a_pod_far_ahead_continue_with_the_same_name() {
        for at in [3, MOST, MOST + 1, 5_000_000] {
            let (mut requesting, mut watching) = (old(&[0]), old(&[0]));
            requesting.requested(at);
            requesting.had(at, Between::Free);
            watching.had(at, Between::Free);
            assert_eq!(unused(&requesting, 9), unused(&watching, 9), "{at}");
        }
    }

    #[test]
    fn the_sequence_begins_again_behind_its_end() {
        let mut used = old(&[LENGTH - 3, LENGTH - 2]);
        for expected in [LENGTH - 1, LENGTH, LENGTH + 1] {
            assert_eq!(unused(&used, 1), [expected]);
            used.requested(expected % LENGTH);
            used.had(expected % LENGTH, Between::Free);
        }
        assert!(used.is_used(0) && used.is_used(LENGTH - 1) && !used.is_used(2));
        assert_eq!(unused(&old(&[LENGTH - 1, 0, 1]), 1), [2], "a restart behind the end");
    }

    #[test]
    fn a_name_far_ahead_moves_the_mark_and_costs_no_memory() {
        let mut used = old(&[0]);
        used.had(5_000_000, Between::Free);
        assert_eq!((unused(&used, 1), used.free.len()), (vec![5_000_001], 0));
        // More than half of the sequence ahead is behind.
        used.had(1, Between::Free);
        assert_eq!(unused(&used, 1), [5_000_001]);
    }

    proptest! {
        /// Whatever names come, in whatever order: none that is known as used is given, memory is bounded, and there is
        /// always a name.
        #[test]
        fn no_name_that_was_had_is_given(
            known in prop::collection::vec((0..LENGTH, any::<bool>()), 0..20),
            steps in prop::collection::vec((0..4u8, 0..LENGTH, 0..9u64), 0..200),
        ) {
            let mut used = UsedNames::of(known);
            let mut had = BTreeSet::new();
            for (what, anywhere, near) in steps {
                let given = used.unused().next().unwrap();
                prop_assert!(!had.contains(&(given % LENGTH)), "{} of {:?}", given, used);
                match what {
                    0 => used.requested(given + near),
                    1 => {
                        used.requested(given);
                        used.had(given % LENGTH, Between::Free);
                        had.insert(given % LENGTH);
                    }
                    2 => used.had((given + near) % LENGTH, Between::InDoubt),
                    // By other clients: the mark may move anywhere, and earlier positions do not count.
                    _ => {
                        used.had(anywhere, Between::Free);
                        had.clear();
                    }
                }
                prop_assert!(used.free.len() as u64 <= MOST && used.in_doubt.len() as u64 <= MOST_IN_DOUBT);
            }
        }
    }
}
