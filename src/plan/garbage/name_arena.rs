//! Names in a few bytes more than their own: those of one length lie side by side, without an allocation each.

use std::collections::BTreeMap;

/// How many names of one length lie in a block.
const BLOCK: usize = 256;

/// The longest name that lies in a block: names of most kinds have at most 253 bytes.
const LONGEST: usize = 253;

/// Where a name is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NameRef {
    at: u32,
    /// The length; 255 for one of the long names.
    length: u8,
}

/// The mark of a name that is longer than [`LONGEST`].
const LONG: u8 = 255;

#[derive(Debug, Default)]
struct Shelf {
    blocks: Vec<Box<[u8]>>,
    used: u32,
    free: Vec<u32>,
}

/// Texts of any length.
#[derive(Debug, Default)]
pub(super) struct NameArena {
    /// By the length of their texts.
    shelves: BTreeMap<u8, Shelf>,
    long: BTreeMap<u32, Box<str>>,
    next_long: u32,
}

impl NameRef {
    /// The text without a letter.
    pub(super) const EMPTY: NameRef = NameRef { at: 0, length: 0 };
}

impl NameArena {
    /// Keeps a text.
    pub(super) fn insert(&mut self, text: &str) -> NameRef {
        if text.len() > LONGEST {
            while self.long.contains_key(&self.next_long) {
                self.next_long = self.next_long.wrapping_add(1);
            }
            self.long.insert(self.next_long, text.into());
            return NameRef { at: self.next_long, length: LONG };
        }
        let length = text.len() as u8;
        if length == 0 {
            return NameRef::default();
        }
        let shelf = self.shelves.entry(length).or_default();
        let at = shelf.free.pop().unwrap_or_else(|| {
            let at = shelf.used;
            shelf.used += 1;
            if at as usize / BLOCK == shelf.blocks.len() {
                shelf.blocks.push(vec![0; BLOCK * text.len()].into_boxed_slice());
            }
            at
        });
        shelf.blocks[at as usize / BLOCK][place(at, length)].copy_from_slice(text.as_bytes());
        NameRef { at, length }
    }

    /// The text.
    pub(super) fn get(&self, text: NameRef) -> &str {
        if text.length == LONG {
            return self.long.get(&text.at).map_or("", |long| long);
        }
        let Some(shelf) = self.shelves.get(&text.length) else { return "" };
        let bytes = &shelf.blocks[text.at as usize / BLOCK][place(text.at, text.length)];
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Frees the text.
    pub(super) fn remove(&mut self, text: NameRef) {
        if text.length == LONG {
            self.long.remove(&text.at);
        } else if let Some(shelf) = self.shelves.get_mut(&text.length) {
            shelf.free.push(text.at);
        }
    }

    /// About how many bytes all of it takes.
    pub(super) fn bytes(&self) -> usize {
        let shelf = |(length, shelf): (&u8, &Shelf)| {
            shelf.blocks.len() * BLOCK * usize::from(*length) + shelf.free.capacity() * size_of::<u32>()
        };
        self.shelves.iter().map(shelf).sum::<usize>()
            + self.long.values().map(|text| text.len()).sum::<usize>()
    }
}

fn place(at: u32, length: u8) -> std::ops::Range<usize> {
    let start = at as usize % BLOCK * usize::from(length);
    start..start + usize::from(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_any_length_are_kept_and_freed() {
        let mut texts = NameArena::default();
        let words: Vec<String> =
            (0..2000).map(|n| format!("web-{n}")).chain(["ü".repeat(400), String::new()]).collect();
        let kept: Vec<NameRef> = words.iter().map(|word| texts.insert(word)).collect();
        for (word, text) in words.iter().zip(&kept) {
            assert_eq!(texts.get(*text), word);
        }
        texts.remove(kept[5]);
        let again = texts.insert("abc-5");
        assert_eq!((again, texts.get(again)), (kept[5], "abc-5"));
        texts.remove(kept[2000]);
        assert_eq!(texts.get(kept[2000]), "");
        assert!(texts.bytes() < 40_000, "{}", texts.bytes());
    }
}
