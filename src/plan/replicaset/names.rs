//! The names of a ReplicaSet's pods: chosen before the pods are created, and the same in every process.
//!
//! The UID of a ReplicaSet gives one sequence of 14 348 907 names. A new pod takes the first name of it that is not
//! known to have been used ([`UsedNames`](super::used_names::UsedNames)). So two processes that have seen the same pods
//! create under the same names: a daemon that was restarted, another leader, or the same one after a reply was lost.
//! A creation that is still on its way then meets a taken name instead of an empty place, and "already exists" with our
//! owner reference is success. With random names each of them would be one pod too many (upstream, with a third of the
//! replies lost, created 237 pods for 200).

use crate::model::Uid;
use crate::model::template::SAFE_ALPHABET;

/// The number of characters behind the ReplicaSet's name.
const SUFFIX: usize = 5;

/// How much of the ReplicaSet's name a pod's name keeps: 63 characters with the suffix, as the API server has
/// it for `generateName`.
const LONGEST_BASE: usize = 58;

/// The number of letters that a suffix is made of.
const LETTERS: u64 = SAFE_ALPHABET.len() as u64;

/// The number of names in a sequence: 27 to the power of 5, 14 348 907.
pub const LENGTH: u64 = LETTERS.pow(SUFFIX as u32);

/// All names for the pods of one ReplicaSet, in its own order, each once: `web-5d8f-x7k2p`, ….
#[derive(Clone, Debug)]
pub struct Sequence {
    base: String,
    start: u64,
    /// From one name to the next. Shares no factor with [`LENGTH`].
    width: u64,
    /// `width * inverse` is 1 modulo [`LENGTH`].
    inverse: u64,
}

impl Sequence {
    /// The names of the ReplicaSet, or ReplicationController, with this name and UID.
    pub fn of(owner: &str, uid: &Uid) -> Self {
        let base = format!("{owner}-");
        let cut = (0..=base.len().min(LONGEST_BASE)).rev().find(|&at| base.is_char_boundary(at)).unwrap_or(0);
        let base = base.get(..cut).unwrap_or_default().to_owned();
        let (start, width) = start_and_width(fnv1a_64(uid.to_string().as_bytes()));
        Sequence { base, start, width, inverse: inverse_of(width) }
    }

    /// The beginning that all of its names share.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Whether the base may be that of other owners too, since it was cut: the ReplicaSets of a Deployment with a
    /// long name differ behind it.
    pub fn shares_its_base(&self) -> bool {
        self.base.len() >= LONGEST_BASE
    }

    /// The name at a position. Behind the last one the first comes again.
    pub fn name(&self, position: u64) -> String {
        // No product here is larger than the square of LENGTH, which has 48 bits.
        let mut suffix = (self.start + position % LENGTH * self.width) % LENGTH;
        let mut name = String::with_capacity(self.base.len() + SUFFIX);
        name.push_str(&self.base);
        for _ in 0..SUFFIX {
            name.extend(SAFE_ALPHABET.get((suffix % LETTERS) as usize).map(|letter| char::from(*letter)));
            suffix /= LETTERS;
        }
        name
    }

    /// The position of a name, less than [`LENGTH`]; `None` for a name that is not in the sequence.
    pub fn position(&self, name: &str) -> Option<u64> {
        let suffix = name.strip_prefix(&*self.base).filter(|suffix| suffix.len() == SUFFIX)?;
        let suffix = suffix.bytes().rev().try_fold(0, |number, byte| {
            let digit = SAFE_ALPHABET.iter().position(|letter| *letter == byte)?;
            Some(number * LETTERS + u64::try_from(digit).ok()?)
        })?;
        Some((suffix + LENGTH - self.start) % LENGTH * self.inverse % LENGTH)
    }
}

/// Steps of a width that shares no factor with the number of suffixes visit each once. That number is a power of 27, so
/// that a width that is not divisible by three is enough.
fn start_and_width(hash: u64) -> (u64, u64) {
    ((hash >> 32) % LENGTH, hash % (LENGTH / 3) * 3 + 1 + hash % 2)
}

/// The inverse of a width modulo [`LENGTH`], by Newton's iteration. The width is its own inverse modulo 3, and
/// each of four steps doubles the power of 3 for which the inverse is right: 3, 9, 81, 6561, and then 3 to the
/// power of 16, which is more than the 15 of LENGTH.
fn inverse_of(width: u64) -> u64 {
    let width = width % LENGTH;
    (0..4).fold(width, |inverse, _| {
        let error = (2 + LENGTH - width * inverse % LENGTH) % LENGTH;
        inverse * error % LENGTH
    })
}

fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn first(owner: &str, uid: &str, count: u64) -> Vec<String> {
        let sequence = Sequence::of(owner, &Uid::new(uid));
        (0..count).map(|position| sequence.name(position)).collect()
    }

    #[test]
    fn names_look_like_generated_ones_and_stay_within_63_characters() {
        for name in first("web-1", "0f8fad5b-d9cb-469f-a165-70867728950e", 50) {
            let suffix = name.strip_prefix("web-1-").unwrap();
            assert_eq!(suffix.len(), 5);
            assert!(suffix.bytes().all(|byte| SAFE_ALPHABET.contains(&byte)), "{name}");
        }
        assert_eq!(first(&"a".repeat(253), "u", 1)[0].len(), 63);
    }

    #[test]
    fn one_replica_set_never_gives_a_name_twice_and_always_in_the_same_order() {
        for uid in ["a", "b", "c", "0f8fad5b-d9cb-469f-a165-70867728950e"] {
            let all = first("web", uid, 20_000);
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
            assert_eq!(all[..9], first("web", uid, 9));
        }
    }

    #[test]
    fn the_names_are_those_of_earlier_releases() {
        assert_eq!(first("web", "u-1", 3), OF_EARLIER_RELEASES);
    }

    const OF_EARLIER_RELEASES: [&str; 3] = ["web-cvhgw", "web-wnvgk", "web-jhbh7"];

    #[test]
    fn a_recreated_replica_set_has_other_pod_names() {
        let (old, new) = (first("web", "u-1", 1000), first("web", "u-2", 1000));
        let shared = old.iter().filter(|name| new.contains(name)).count();
        assert!(shared < 5, "{shared}");
    }

    #[test]
    fn a_name_that_is_not_in_the_sequence_has_no_position() {
        let sequence = Sequence::of("web", &Uid::new("u"));
        for name in
            ["", "web", "web-", "web-bcdf", "web-bcdfgh", "api-bcdfg", "web-bcdfa", "web-bcdé", "web-BCDFG"]
        {
            assert_eq!(sequence.position(name), None, "{name}");
        }
        assert!(sequence.position("web-bcdfg").is_some());
    }

    proptest! {
        #[test]
        fn the_position_of_a_name_is_where_it_stands(owner in "[a-zé.-]{0,70}", uid in ".{0,40}", at in 0..LENGTH) {
            let sequence = Sequence::of(&owner, &Uid::new(&uid));
            prop_assert_eq!(sequence.position(&sequence.name(at)), Some(at));
            prop_assert_eq!(sequence.name(at + LENGTH), sequence.name(at));
        }

        #[test]
        fn no_hash_gives_a_width_that_leaves_names_out(hash: u64) {
            let (start, width) = start_and_width(hash);
            prop_assert!(start < LENGTH && width <= LENGTH && !width.is_multiple_of(3));
            prop_assert_eq!(width % LENGTH * inverse_of(width) % LENGTH, 1);
        }

        #[test]
        fn no_name_panics(name in ".{0,80}") {
            let position = Sequence::of("web", &Uid::new("u")).position(&name);
            prop_assert!(position.is_none_or(|position| position < LENGTH));
        }
    }

    #[test]
    fn fnv_gives_its_published_value() {
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
