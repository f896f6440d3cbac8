//! The names of a set's pods: chosen before they are asked for, and the same by whoever chooses.
//!
//! A set has one sequence of names, given by its UID, and a new pod takes the first that no pod in the
//! cache has. So whoever has seen the same pods asks for the same names: a daemon that was started
//! again, another leader, or the same one after a reply was lost. A creation that is still on its way
//! then meets a taken name instead of an empty place, and "already exists" with our UID is success. With
//! names drawn by chance each of them would be one pod too many (upstream, with a third of the replies
//! lost, made 237 pods for 200).
//!
//! The price: a name comes back once its pod is gone, as with a StatefulSet; UIDs tell the two apart. A
//! set of `n` pods uses few more than `n` names in its whole life.

use crate::model::Uid;
use crate::model::template::SAFE_ALPHABET;

/// The number of characters behind the set's name.
const SUFFIX: usize = 5;

/// How much of the set's name a pod's name keeps: 63 characters with the suffix, as the API server has
/// it for `generateName`.
const LONGEST_BASE: usize = 58;

/// So many suffixes there are: 14 348 907.
const ALL: u64 = (SAFE_ALPHABET.len() as u64).pow(SUFFIX as u32);

/// All names for the pods of a set, in the set's own order, each once: `web-5d8f-x7k2p`, ….
pub fn names(set: &str, uid: &Uid) -> impl Iterator<Item = String> + use<> {
    let base = format!("{set}-");
    let cut = (0..=base.len().min(LONGEST_BASE)).rev().find(|&at| base.is_char_boundary(at)).unwrap_or(0);
    let base = base[..cut].to_owned();
    let hash = fnv1a_64(uid.to_string().as_bytes());
    // Steps of a width that shares no factor with the number of suffixes visit each once. The number is
    // a power of 27, so that not to be divisible by three is enough.
    let width = hash % (ALL / 3) * 3 + 1 + hash % 2;
    let start = (hash >> 32) % ALL;
    (0..ALL).map(move |nth| {
        let mut at = (start + nth * width) % ALL;
        let mut name = String::with_capacity(base.len() + SUFFIX);
        name.push_str(&base);
        for _ in 0..SUFFIX {
            let letters = SAFE_ALPHABET.len() as u64;
            name.extend(SAFE_ALPHABET.get((at % letters) as usize).map(|letter| char::from(*letter)));
            at /= letters;
        }
        name
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

    use super::*;

    fn first(set: &str, uid: &str, count: usize) -> Vec<String> {
        names(set, &Uid::new(uid)).take(count).collect()
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
    fn one_set_never_gives_a_name_twice_and_always_in_the_same_order() {
        for uid in ["a", "b", "c", "0f8fad5b-d9cb-469f-a165-70867728950e"] {
            let all = first("web", uid, 20_000);
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
            assert_eq!(all[..9], first("web", uid, 9));
        }
    }

    #[test]
    fn a_set_made_anew_under_the_same_name_has_other_names() {
        let (old, new) = (first("web", "u-1", 1000), first("web", "u-2", 1000));
        let shared = old.iter().filter(|name| new.contains(name)).count();
        assert!(shared < 5, "{shared}");
    }

    #[test]
    fn each_suffix_comes_once_before_any_comes_again() {
        assert_eq!(names("web", &Uid::new("u")).size_hint(), (14_348_907, Some(14_348_907)));
        for hash in [0, 1, 2, 3, u64::MAX, 14_348_907, 0xdead_beef] {
            let width: u64 = hash % (ALL / 3) * 3 + 1 + hash % 2;
            assert!(!width.is_multiple_of(3));
        }
    }

    #[test]
    fn fnv_gives_its_published_value() {
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
