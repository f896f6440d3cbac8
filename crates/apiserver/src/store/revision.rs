//! The revisions that can be read.

/// Why a revision cannot be read or watched from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unreadable {
    /// Its history has been compacted; `oldest` is the first revision that still works.
    Compacted { oldest: u64 },
    /// It has not happened yet.
    Future { current: u64 },
}
