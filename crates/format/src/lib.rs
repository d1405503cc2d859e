//! Inkstone's on-disk formats as pure functions between bytes and values.
//!
//! Nothing here does I/O, nothing here is `unsafe`, and nothing panics on bytes from disk: what
//! cannot be understood is a [`Corrupt`] that says where and why.
#![forbid(unsafe_code)]

pub mod apply;
pub mod catalog;
pub mod codec;
pub mod control;
pub mod doublewrite;
pub mod field;
pub mod frame;
pub mod header;
pub mod ids;
pub mod image;
pub mod overflow;
pub mod page_lsn_map;
pub mod place_map;
pub mod pool_dump;
pub mod record;
pub mod segment;
pub mod space;
pub mod tree_page;
pub mod version;

pub use ids::*;

/// Bytes that cannot be what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {detail}")]
pub struct Corrupt {
    /// Byte offset within the page, record or file part that was parsed.
    pub offset: usize,
    /// What was found and what was expected.
    pub detail: String,
}

impl Corrupt {
    /// Corruption at a byte offset.
    pub fn at(offset: usize, detail: impl Into<String>) -> Self {
        Self {
            offset,
            detail: detail.into(),
        }
    }
}
