//! Labels whose values users choose.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// The most values of one such label: a registry keeps each of them for ever.
const MOST: usize = 100;

/// The label of all values beyond.
pub const OTHER: &str = "other";

/// The values of a label, the first hundred; any other is [`OTHER`].
#[derive(Debug, Default)]
pub struct BoundedLabel(Mutex<BTreeSet<Arc<str>>>);

impl BoundedLabel {
    /// The label of a value.
    pub fn of(&self, value: &Arc<str>) -> Arc<str> {
        let mut known = self.0.lock();
        if known.len() < MOST {
            known.insert(value.clone());
        }
        if known.contains(value) { value.clone() } else { OTHER.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hundred_values_have_labels_of_their_own() {
        let label = BoundedLabel::default();
        let of = |n: usize| label.of(&format!("v-{n}").into()).to_string();
        assert_eq!((of(0), of(0)), ("v-0".to_owned(), "v-0".to_owned()));
        (1..MOST).for_each(|n| drop(of(n)));
        assert_eq!((of(MOST), of(MOST - 1)), (OTHER.to_owned(), format!("v-{}", MOST - 1)));
    }
}
