//! The texts of stored objects, compressed once they are cold.
//!
//! The objects of a kind are alike, so a text is compressed against a dictionary: the text of an earlier object of that kind.
//! One that differs in its name takes less than a tenth. The newest texts stay as they are, because watches are about to read them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use lz4_flex::block;
use parking_lot::Mutex;

/// The newest texts, up to so many bytes, are not compressed. Some of them may be gone.
const WARM: usize = 2 << 20;

/// The compressor reads the whole dictionary for each text, so a longer text is none.
const LARGEST_DICTIONARY: usize = 16 << 10;

/// After so many texts another one is the dictionary, in case that the first is unlike the others.
const USES: u32 = 1024;

/// The texts that are not compressed yet, oldest first, and the dictionary of each kind.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    warm: Mutex<Warm>,
    dictionaries: Mutex<BTreeMap<String, Dictionary>>,
}

#[derive(Debug, Default)]
struct Warm {
    texts: VecDeque<(usize, Weak<Text>)>,
    bytes: usize,
}

#[derive(Debug)]
struct Dictionary {
    text: Arc<[u8]>,
    uses: u32,
}

impl Packer {
    /// Keeps the text of an object of this kind.
    pub(super) fn keep(&self, kind: &str, text: Bytes) -> Arc<Text> {
        let size = text.len();
        let dictionary = self.dictionary(kind, &text);
        let kept = Arc::new(Text { size, dictionary, content: Mutex::new(Content::Plain(text)) });
        let mut warm = self.warm.lock();
        warm.bytes += size;
        warm.texts.push_back((size, Arc::downgrade(&kept)));
        kept
    }

    /// Compresses the texts that have become cold. A large write can make many so: the store calls it when it has released its
    /// lock.
    pub(crate) fn pack(&self) {
        let mut cold = Vec::new();
        let mut warm = self.warm.lock();
        while warm.bytes > WARM
            && warm.texts.len() > 1
            && let Some((size, text)) = warm.texts.pop_front()
        {
            warm.bytes -= size;
            cold.extend(text.upgrade());
        }
        drop(warm);
        cold.iter().for_each(|text| text.pack());
    }

    /// The dictionary for a text of this kind. A text that is longer by a quarter, such as that of a pod with a status after
    /// those without one, becomes the dictionary of the following ones, so that a kind has few at a time.
    fn dictionary(&self, kind: &str, text: &[u8]) -> Arc<[u8]> {
        let mut known = self.dictionaries.lock();
        let Some(dictionary) = known.get_mut(kind) else {
            if text.len() <= LARGEST_DICTIONARY {
                known.insert(kind.to_owned(), Dictionary { text: text.into(), uses: 0 });
            }
            return Arc::default();
        };
        dictionary.uses += 1;
        let is_longer = text.len() * 4 > dictionary.text.len() * 5;
        if text.len() > LARGEST_DICTIONARY || !is_longer && dictionary.uses < USES {
            return dictionary.text.clone();
        }
        std::mem::replace(dictionary, Dictionary { text: text.into(), uses: 0 }).text
    }
}

/// The text of an object.
#[derive(Debug)]
pub(super) struct Text {
    size: usize,
    dictionary: Arc<[u8]>,
    content: Mutex<Content>,
}

#[derive(Clone, Debug)]
enum Content {
    Plain(Bytes),
    Packed(Bytes),
}

impl Text {
    /// A text that is never compressed.
    pub(super) fn plain(text: Bytes) -> Arc<Self> {
        let size = text.len();
        Arc::new(Text { size, dictionary: Arc::default(), content: Mutex::new(Content::Plain(text)) })
    }

    /// How many bytes the text has.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The text itself. Only a block that we compressed is read here, so this cannot fail.
    pub(super) fn bytes(&self) -> Bytes {
        let content = self.content.lock().clone();
        match content {
            Content::Plain(text) => text,
            Content::Packed(block) => {
                block::decompress_with_dict(&block, self.size, &self.dictionary).unwrap_or_default().into()
            }
        }
    }

    /// Compresses the text if that makes it smaller.
    pub(super) fn pack(&self) {
        let Content::Plain(text) = self.content.lock().clone() else { return };
        let block = block::compress_with_dict(&text, &self.dictionary);
        if block.len() < text.len() {
            *self.content.lock() = Content::Packed(Bytes::copy_from_slice(&block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, status: &str) -> String {
        let rest =
            "\"containers\":[{\"image\":\"nginx\",\"name\":\"main\"}],\"restartPolicy\":\"Always\"".repeat(8);
        format!("{{\"metadata\":{{\"name\":\"{name}\"}},\"spec\":{{{rest}}},\"status\":{{{status}}}}}")
    }

    /// How many bytes a text takes.
    fn taken(text: &Text) -> usize {
        match &*text.content.lock() {
            Content::Plain(bytes) | Content::Packed(bytes) => bytes.len(),
        }
    }

    #[test]
    fn a_text_like_an_earlier_one_of_its_kind_takes_a_fraction_and_reads_back() {
        let packer = Packer::default();
        let status =
            "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"},{\"type\":\"Initialized\"}]".repeat(3);
        let texts = [pod("a", ""), pod("b", ""), pod("c", &status), pod("d", &status), String::new()];
        let kept: Vec<_> = texts.iter().map(|text| packer.keep("Pod", text.clone().into())).collect();
        for _ in 0..2 {
            for (text, kept) in texts.iter().zip(&kept) {
                assert_eq!((kept.bytes(), kept.size()), (Bytes::from(text.clone()), text.len()));
                kept.pack();
            }
        }
        assert!(taken(&kept[1]) * 10 < texts[1].len(), "{}", taken(&kept[1]));
        assert!(taken(&kept[3]) * 10 < texts[3].len(), "{}", taken(&kept[3]));
        assert!(Arc::ptr_eq(&kept[1].dictionary, &kept[2].dictionary), "replaced after it was used");
    }

    #[test]
    fn the_newest_texts_stay_as_they_are_and_those_that_are_gone_are_passed_over() {
        let packer = Packer::default();
        let text = Bytes::from("x".repeat(WARM / 4));
        let mut kept: Vec<_> = (0..6).map(|_| packer.keep("Secret", text.clone())).collect();
        kept.remove(0);
        packer.pack();
        let is_plain: Vec<bool> = kept.iter().map(|kept| taken(kept) == text.len()).collect();
        assert_eq!(is_plain, [false, true, true, true, true]);
        let huge = packer.keep("Secret", "x".repeat(2 * WARM).into());
        packer.pack();
        assert!(taken(&huge) == 2 * WARM && taken(&kept[4]) < text.len());
    }

    #[test]
    fn a_text_that_does_not_become_smaller_stays_as_it_is() {
        let text = Packer::default().keep("Secret", Bytes::from_static(b"{}"));
        text.pack();
        assert_eq!((taken(&text), text.bytes()), (2, Bytes::from_static(b"{}")));
    }

    #[test]
    fn one_text_unlike_the_others_does_not_stay_the_dictionary() {
        let packer = Packer::default();
        packer.keep("Pod", "y".repeat(10 * LARGEST_DICTIONARY).into());
        packer.keep("Pod", "x".repeat(LARGEST_DICTIONARY).into());
        packer.keep("Pod", "y".repeat(10 * LARGEST_DICTIONARY).into());
        let alike: Vec<_> = (0..=USES).map(|n| packer.keep("Pod", pod(&n.to_string(), "").into())).collect();
        let last = &alike[USES as usize];
        assert_eq!(alike[0].dictionary.len(), LARGEST_DICTIONARY);
        last.pack();
        assert!(taken(last) * 10 < last.size(), "{}", taken(last));
        assert_eq!(packer.dictionary("Service", b"{}").len(), 0, "another kind has its own");
    }
}
