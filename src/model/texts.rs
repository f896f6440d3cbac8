//! Strings in one buffer.
//!
//! Users choose labels, annotations and selectors, up to 1.5 MB of them in one object. A string of its own costs 16 bytes
//! for its pointer and as many for its allocation; here it costs its text and 4 bytes, so that a record takes about as
//! much as the object's JSON.

use std::fmt;

/// Strings, one after the other. Nothing can be added.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Texts {
    text: Box<str>,
    /// Where each string ends. No object is longer than a watch accepts, 16 MiB.
    ends: Box<[u32]>,
}

impl Texts {
    /// The string at this index; empty beyond the last.
    pub fn get(&self, at: usize) -> &str {
        let end = |at: usize| self.ends.get(at).map(|end| *end as usize);
        let start = at.checked_sub(1).map_or(Some(0), end);
        start.zip(end(at)).and_then(|(start, end)| self.text.get(start..end)).unwrap_or_default()
    }

    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// All, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Finds a string by binary search among `count` that are sorted, of which the first is at `first` and each other is
    /// `step` behind the one before. Returns its index.
    pub fn find(&self, text: &str, first: usize, step: usize, count: usize) -> Option<usize> {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            let at = first + step * middle;
            match self.get(at).cmp(text) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(at),
            }
        }
        None
    }

    /// The bytes of heap that the strings take.
    pub fn heap_bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.ends)
    }
}

impl<S: AsRef<str>> FromIterator<S> for Texts {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for one in texts {
            text.push_str(one.as_ref());
            ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        }
        Texts { text: text.into(), ends: ends.into() }
    }
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_by_index_and_by_search() {
        let texts: Texts = ["", "b", "häß", "z"].into_iter().collect();
        assert_eq!(texts.iter().collect::<Vec<_>>(), ["", "b", "häß", "z"]);
        assert_eq!(texts.get(4), "");
        assert_eq!((texts.find("häß", 0, 1, 4), texts.find("c", 0, 1, 4)), (Some(2), None));
        assert_eq!((texts.find("z", 1, 2, 2), texts.find("häß", 1, 2, 2)), (Some(3), None));
        assert_eq!(Texts::default().find("", 0, 1, 0), None);
        assert_eq!(texts.heap_bytes(), 7 + 4 * 4);
    }
}
