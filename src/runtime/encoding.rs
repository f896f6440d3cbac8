//! The encodings of answers: which of them an answer has, and why one cannot be decoded.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

use crate::model::protobuf::Malformed;

/// The longest line that a watch may send. The largest object that the API server stores has about
/// 1.5 MiB; a longer line is no event, and must not fill the memory.
pub(crate) const LONGEST_LINE: usize = 16 << 20;

/// Why the bytes of a watch or list cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    /// A line has no end.
    #[error("a line of the watch is longer than {0} bytes")]
    TooLong(usize),
    /// Not JSON, or not of this shape.
    #[error("malformed watch event or list: {0}")]
    Malformed(#[from] serde_json::Error),
}

impl From<Malformed> for DecodeError {
    fn from(error: Malformed) -> Self {
        DecodeError::Malformed(error.into())
    }
}

/// Whether an answer is in protobuf: an object, a list or the events of a watch.
pub(crate) fn is_protobuf(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    media_type.starts_with(b"application/vnd.kubernetes.protobuf")
}
