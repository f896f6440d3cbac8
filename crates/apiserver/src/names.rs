//! Random values: UIDs and the suffixes of generated names, from one seeded source.

use parking_lot::Mutex;

/// The letters of generated names: no vowels and no look-alikes, so that no words come out.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters appended to a generateName.
const SUFFIX: usize = 5;
/// A generated name fits in 63 characters, the length of a DNS label.
const BASE: usize = 63 - SUFFIX;

#[derive(Debug)]
pub(crate) struct Names {
    random: Mutex<fastrand::Rng>,
}

impl Names {
    pub(crate) fn new(seed: u64) -> Self {
        Names { random: Mutex::new(fastrand::Rng::with_seed(seed)) }
    }

    /// A UUID of version 4.
    pub(crate) fn uid(&self) -> String {
        let bits = self.random.lock().u128(..);
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let hex = format!("{bits:032x}");
        let (a, rest) = hex.split_at(8);
        let (b, rest) = rest.split_at(4);
        let (c, rest) = rest.split_at(4);
        let (d, e) = rest.split_at(4);
        format!("{a}-{b}-{c}-{d}-{e}")
    }

    /// `base` with five random characters after it; a long base is cut so that the whole fits a label.
    pub(crate) fn generate(&self, base: &str) -> String {
        let mut name: String = base.chars().take(BASE).collect();
        let mut random = self.random.lock();
        name.extend((0..SUFFIX).filter_map(|_| random.choice(LETTERS)).map(|letter| char::from(*letter)));
        name
    }

    /// A number below `end` (0 if `end` is 0).
    pub(crate) fn below(&self, end: u32) -> u32 {
        if end == 0 { 0 } else { self.random.lock().u32(..end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_says_that_it_is_random() {
        let uid = Names::new(1).uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]));
    }

    #[test]
    fn one_seed_makes_the_same_names() {
        assert_eq!(Names::new(7).generate("web-"), Names::new(7).generate("web-"));
        assert_ne!(Names::new(7).generate("web-"), Names::new(8).generate("web-"));
    }

    #[test]
    fn a_generated_name_fits_in_a_label() {
        assert_eq!(Names::new(1).generate(&"x".repeat(100)).len(), 63);
    }
}
