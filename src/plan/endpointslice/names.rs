//! The names of new slices, by rule: two processes that see the same create a slice under the same name. A creation whose answer
//! was lost then meets a name that is taken, instead of a second slice with the same endpoints (kubernetes#92928).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::endpoints::Group;
use crate::model::template::SAFE_ALPHABET;
use crate::model::{AddressType, Meta};

/// The number of letters behind the name of the Service.
const SUFFIX: usize = 10;

/// How much of the name of a Service that of a slice keeps, so that both have at most 63 characters.
const LONGEST_BASE: usize = 52;

/// The beginning of the names of the slices of a Service.
pub fn base(service: &str) -> String {
    let cut = (0..=service.len().min(LONGEST_BASE)).rev().find(|at| service.is_char_boundary(*at));
    format!("{}-", service.get(..cut.unwrap_or(0)).unwrap_or_default())
}

/// Gives names that are free.
pub(super) struct Names<'a> {
    base: String,
    of_owner: String,
    taken: &'a BTreeSet<Arc<str>>,
    given: BTreeSet<String>,
}

impl<'a> Names<'a> {
    pub(super) fn new(owner: &Meta, address_type: AddressType, taken: &'a BTreeSet<Arc<str>>) -> Self {
        let base = base(&owner.key.name);
        let of_owner = format!("{}/{}", owner.uid, address_type.as_str());
        Names { base, of_owner, taken, given: BTreeSet::new() }
    }

    /// The first free name for a slice of this group.
    pub(super) fn next(&mut self, group: &Group<'_>) -> String {
        let mut ports = group.ports.clone();
        ports.sort_unstable();
        let mut seed = self.of_owner.clone();
        for port in ports {
            let number = port.port.unwrap_or(-1);
            let application = port.app_protocol.map_or_else(String::new, |name| format!("={name}"));
            seed.push_str(&format!("/{}/{}/{number}{application}", port.name, port.protocol));
        }
        let mut slot = 0_u64;
        loop {
            let name = format!("{}{}", self.base, letters(&format!("{seed}/{slot}")));
            if !self.taken.contains(&*name) && self.given.insert(name.clone()) {
                return name;
            }
            slot = slot.wrapping_add(1);
        }
    }
}

/// Ten letters from a text: they are the same in each version of this program.
fn letters(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The last bits of FNV-1a depend on all bytes; its first ones do hardly on the last byte.
    let mut number = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    number ^= number >> 29;
    let count = SAFE_ALPHABET.len() as u64;
    let mut name = String::with_capacity(SUFFIX);
    for _ in 0..SUFFIX {
        let at = usize::try_from(number % count).unwrap_or(0);
        name.extend(SAFE_ALPHABET.get(at).map(|letter| char::from(*letter)));
        number /= count;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_of_a_service_is_cut() {
        assert_eq!(base("web"), "web-");
        let long = base(&"x".repeat(63));
        assert_eq!(long.len() + SUFFIX, 63);
    }

    #[test]
    fn letters_are_ten_and_differ_with_each_byte() {
        let all: BTreeSet<String> = (0..1000).map(|n| letters(&format!("u/IPv4/{n}"))).collect();
        assert_eq!(all.len(), 1000);
        assert!(all.iter().all(|name| name.len() == SUFFIX));
        assert_eq!(letters("u/IPv4/0"), letters("u/IPv4/0"));
    }
}
