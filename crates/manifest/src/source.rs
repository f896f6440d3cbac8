//! From bytes to text.

use std::io::Read;

/// The maximum size of a source.
pub const LARGEST_SOURCE: u64 = 64 * 1024 * 1024;

/// Why a source cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(#[from] std::io::Error),
    /// It is larger than [`LARGEST_SOURCE`].
    #[error("larger than {} MiB", LARGEST_SOURCE / 1024 / 1024)]
    TooLarge,
    /// It is neither UTF-8 nor UTF-16.
    #[error("not a text file: {0}")]
    NotText(String),
}

/// Reads a source to its end. The text is UTF-8, or UTF-16 with a byte order mark.
///
/// # Errors
/// When it cannot be read, is too large, or is no text.
pub fn text(source: &mut dyn Read) -> Result<String, SourceError> {
    let mut bytes = Vec::new();
    source.take(LARGEST_SOURCE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST_SOURCE {
        return Err(SourceError::TooLarge);
    }
    let unit: fn([u8; 2]) -> u16 = match bytes.get(..2) {
        Some([0xff, 0xfe]) => u16::from_le_bytes,
        Some([0xfe, 0xff]) => u16::from_be_bytes,
        _ => return utf8(bytes),
    };
    let (pairs, rest) = bytes[2..].as_chunks::<2>();
    let units = pairs.iter().map(|pair| unit(*pair));
    let text: Result<String, _> = char::decode_utf16(units).collect();
    match text {
        Ok(text) if rest.is_empty() => Ok(text),
        _ => Err(SourceError::NotText("its byte order mark says UTF-16, which it is not".to_owned())),
    }
}

fn utf8(bytes: Vec<u8>) -> Result<String, SourceError> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        SourceError::NotText(format!("byte {at} is not valid UTF-8"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Result<String, String> {
        text(&mut bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn a_byte_order_mark_selects_utf_16() {
        assert_eq!(read(b"a: \xc3\xa4").unwrap(), "a: ä");
        assert_eq!(read(b"\xff\xfea\0:\0").unwrap(), "a:");
        assert_eq!(read(b"\xfe\xff\0a\xd8\x3d\xde\x80").unwrap(), "a🚀");
        for wrong in [&b"\xff\xfea"[..], b"\xfe\xff\xd8\x3d"] {
            assert!(read(wrong).unwrap_err().contains("UTF-16"));
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_first_wrong_byte() {
        assert_eq!(read(b"a: \x80").unwrap_err(), "not a text file: byte 3 is not valid UTF-8");
        let mut endless = std::io::repeat(b' ');
        assert!(matches!(text(&mut endless), Err(SourceError::TooLarge)));
    }
}
