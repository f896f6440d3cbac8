//! The texts of stored objects, compressed once they are cold.
//!
//! The objects of a kind are alike, so a text is compressed against a dictionary: the text of an earlier object of that kind.
//! A pod of 5 KB takes some 600 bytes. Most texts are soon replaced, so the newest ones stay as they are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use lz4_flex::block;
use parking_lot::Mutex;

/// How many bytes of text are not compressed yet.
const WARM: usize = 2 << 20;

/// The compressor reads the whole dictionary for each text, a thousand bytes in half a microsecond.
const LARGEST_DICTIONARY: usize = 16 << 10;

/// The texts that are not compressed yet, oldest first, and the dictionary of each kind.
#[derive(Debug, Default)]
pub(super) struct Packer {
    warm: Mutex<Warm>,
    dictionaries: Mutex<BTreeMap<String, Arc<[u8]>>>,
}

#[derive(Debug, Default)]
struct Warm {
    texts: VecDeque<(usize, Weak<Text>)>,
    bytes: usize,
}

impl Packer {
    /// Keeps the text of an object of this kind, and compresses those that have become cold.
    pub(super) fn keep(&self, kind: &str, text: Bytes) -> Arc<Text> {
        let size = text.len();
        let dictionary = self.dictionary(kind, &text);
        let kept = Arc::new(Text { size, dictionary, content: Mutex::new(Content::Plain(text)) });
        let mut cold = Vec::new();
        {
            let mut warm = self.warm.lock();
            warm.bytes += size;
            warm.texts.push_back((size, Arc::downgrade(&kept)));
            while warm.bytes > WARM
                && let Some((size, text)) = warm.texts.pop_front()
            {
                warm.bytes -= size;
                cold.extend(text.upgrade());
            }
        }
        cold.iter().for_each(|text| text.pack());
        kept
    }

    /// The dictionary for a text of this kind. A text that is longer by a quarter, such as that of a pod with a status after
    /// those without one, becomes the dictionary of the following ones, so that a kind has few at a time.
    fn dictionary(&self, kind: &str, text: &[u8]) -> Arc<[u8]> {
        let offered = &text[..text.len().min(LARGEST_DICTIONARY)];
        let mut known = self.dictionaries.lock();
        match known.get_mut(kind) {
            Some(dictionary) if offered.len() * 4 <= dictionary.len() * 5 => dictionary.clone(),
            Some(dictionary) => std::mem::replace(dictionary, offered.into()),
            None => {
                known.insert(kind.to_owned(), offered.into());
                Arc::default()
            }
        }
    }
}

/// The text of an object.
#[derive(Debug)]
pub(super) struct Text {
    size: usize,
    dictionary: Arc<[u8]>,
    content: Mutex<Content>,
}

#[derive(Debug)]
enum Content {
    Plain(Bytes),
    Packed(Box<[u8]>),
}

impl Text {
    /// How many bytes the text has.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The text itself. Only a block that we compressed is read here, so this cannot fail.
    pub(super) fn bytes(&self) -> Bytes {
        match &*self.content.lock() {
            Content::Plain(text) => text.clone(),
            Content::Packed(block) => {
                block::decompress_with_dict(block, self.size, &self.dictionary).unwrap_or_default().into()
            }
        }
    }

    pub(super) fn pack(&self) {
        let mut content = self.content.lock();
        if let Content::Plain(text) = &*content {
            *content = Content::Packed(block::compress_with_dict(text, &self.dictionary).into());
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
            Content::Plain(text) => text.len(),
            Content::Packed(block) => block.len(),
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
    fn the_newest_texts_stay_as_they_are() {
        let packer = Packer::default();
        let text = Bytes::from("x".repeat(WARM / 4));
        let kept: Vec<_> = (0..6).map(|_| packer.keep("Secret", text.clone())).collect();
        let is_plain: Vec<bool> = kept.iter().map(|kept| taken(kept) == text.len()).collect();
        assert_eq!(is_plain, [false, false, true, true, true, true]);
    }

    #[test]
    fn a_huge_text_gives_a_small_dictionary_and_another_kind_has_its_own() {
        let packer = Packer::default();
        packer.keep("Secret", "x".repeat(10 * LARGEST_DICTIONARY).into());
        assert_eq!(packer.dictionary("Secret", b"").len(), LARGEST_DICTIONARY);
        assert_eq!(packer.dictionary("Pod", b"{}").len(), 0);
        assert_eq!(packer.dictionary("Pod", b"{}").len(), 2);
    }
}
