//! What an entry says: kind and flags, the keys of its rows, and the value that was there before.

use super::entry::{Header, NewVersion};
use crate::mvcc::system::TrxState;
use crate::paranoid::paranoid;
use inkstone_format::codec::{Reader, get_shared_key, put_shared_key};
use inkstone_format::{Corrupt, SpaceId, TreeId, VersionAddress};
use std::borrow::Cow;
use std::sync::Arc;

/// Flag of an entry: purge has nothing to do for it and is not called. An insert, or an update that
/// replaced a value without overflow pages, is such an entry.
pub const NO_PURGE: u8 = 1;

/// Flag of an entry: of the old value only what differed is kept; see [`spliced`].
pub const SPLICED: u8 = 2;
/// Flag of an [`VersionKind::Unmark`] entry: the old value is not known, it was delete-marked.
pub const MARK_ONLY: u8 = 4;

/// Flag of an [`VersionKind::Insert`] entry: several rows are new, which were inserted side by
/// side; see [`run_of`].
pub const RUN: u8 = 8;

/// Flag of an [`VersionKind::Insert`] entry: all rows of the tree, from its key on, that have its
/// address were inserted with it, as a bulk; it does not name them. Of a
/// [`VersionKind::DeleteMark`] entry: all that have it were deleted with it; see [`bulk_end`].
pub const BULK: u8 = 16;

/// What the entry of a bulk delete keeps beside the least key of its range: the end, if it has one.
pub fn bulk_end(to: Option<&[u8]>) -> Vec<u8> {
    let mut out = vec![u8::from(to.is_some())];
    out.extend_from_slice(to.unwrap_or_default());
    out
}

/// The rows of a bulk: those of these keys that have its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkRows {
    /// Its version.
    pub address: VersionAddress,
    /// Tablespace of the rows.
    pub space: SpaceId,
    /// Tree of the rows.
    pub tree: TreeId,
    /// The least key.
    pub from: Vec<u8>,
    /// They were deleted, and not inserted, below this key, if there is one.
    pub deleted_to: Option<Option<Vec<u8>>>,
}

/// What a [`RUN`] entry keeps beside its first key: the other keys, each coded against the one
/// before.
pub fn run_of<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> Vec<u8> {
    let (mut out, mut last): (_, Option<&[u8]>) = (Vec::new(), None);
    for key in keys {
        if let Some(last) = last {
            put_shared_key(&mut out, key, last);
        }
        last = Some(key);
    }
    out
}

/// The old value of a [`SPLICED`] entry: how many bytes at its beginning and at its end it shares
/// with the newer one, four bytes each, and what stood between them.
pub fn spliced(prefix: usize, suffix: usize, middle: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + middle.len());
    out.extend_from_slice(&(prefix as u32).to_le_bytes());
    out.extend_from_slice(&(suffix as u32).to_le_bytes());
    out.extend_from_slice(middle);
    out
}

fn splice(old: &[u8], newer: &[u8]) -> std::result::Result<Vec<u8>, Corrupt> {
    let part = |at: usize| -> Option<usize> {
        let bytes = old.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    };
    let put = || {
        let (prefix, suffix) = (part(0)?, part(4)?);
        let mut out = newer.get(..prefix)?.to_vec();
        out.extend_from_slice(&old[8..]);
        out.extend_from_slice(&newer[prefix.max(newer.len().checked_sub(suffix)?)..]);
        Some(out)
    };
    put().ok_or_else(|| {
        Corrupt::at(
            0,
            "an old value does not fit the row that it was changed to",
        )
    })
}

/// What a change did to its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum VersionKind {
    /// The row is new. There is no old value.
    Insert = 1,
    /// The value was replaced.
    Update = 2,
    /// The row was marked deleted. The value stays in the cell.
    DeleteMark = 3,
    /// The row was inserted over a delete-marked one, whose value this holds.
    Unmark = 4,
}

impl VersionKind {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Insert, Self::Update, Self::DeleteMark, Self::Unmark]
            .into_iter()
            .find(|&kind| kind as u8 == byte)
    }
}

/// An entry, as readers see it.
#[derive(Clone, Copy, Debug)]
pub struct VersionView<'a> {
    /// What the change did to the row.
    pub kind: VersionKind,
    /// Flags given by the appender.
    pub flags: u8,
    /// Tablespace of the row.
    pub space: SpaceId,
    /// Tree of the row.
    pub tree: TreeId,
    /// The row's key.
    pub key: &'a [u8],
    /// Flags of the cell before the change.
    pub old_flags: u8,
    /// Value of the cell before the change, as it is kept: see [`VersionView::old_value`].
    pub(super) kept_value: &'a [u8],
    /// The version that the cell had before the change; 0 if none.
    pub previous: VersionAddress,
    /// The entry that the same transaction made before this one; 0 if none.
    pub undo_previous: VersionAddress,
    /// See [`NewVersion::steps`].
    pub(super) steps: u8,
    /// The transaction that made the change. Of a transaction that ended long ago only id and
    /// status were kept, so compare ids, not pointers.
    pub trx: &'a Arc<TrxState>,
}

impl<'a> VersionView<'a> {
    pub(super) fn new(header: &Header, bytes: &'a [u8], at: usize, trx: &'a Arc<TrxState>) -> Self {
        Self {
            kind: header.kind,
            flags: header.flags,
            space: header.space,
            tree: header.tree,
            key: header.key(bytes, at),
            old_flags: header.old_flags,
            kept_value: header.old_value(bytes, at),
            previous: header.previous,
            undo_previous: header.undo_previous,
            steps: header.steps,
            trx,
        }
    }
}

impl VersionView<'_> {
    /// Value of the cell before the change; `newer`: its value after it.
    pub fn old_value(&self, newer: &[u8]) -> std::result::Result<Cow<'_, [u8]>, Corrupt> {
        match self.flags & SPLICED {
            0 => Ok(Cow::Borrowed(self.kept_value)),
            _ => splice(self.kept_value, newer).map(Cow::Owned),
        }
    }

    /// Whether it is the one entry of all rows of a bulk.
    pub fn is_bulk(&self) -> bool {
        self.flags & BULK != 0
    }

    /// The rows of a bulk, whose entry has this address.
    pub fn bulk_rows(&self, address: VersionAddress) -> BulkRows {
        paranoid!(self.is_bulk(), "version {address} is of no bulk");
        let is_delete = self.kind == VersionKind::DeleteMark;
        let end = || match self.kept_value {
            [1, to @ ..] => Some(to.to_vec()),
            _ => None,
        };
        BulkRows {
            address,
            space: self.space,
            tree: self.tree,
            from: self.key.to_vec(),
            deleted_to: is_delete.then(end),
        }
    }

    /// The keys of the rows that the change concerns, but for a bulk's.
    pub fn keys(&self) -> std::result::Result<Vec<Vec<u8>>, Corrupt> {
        let mut keys = vec![self.key.to_vec()];
        if self.flags & RUN != 0 {
            let (mut rest, mut key) = (Reader::new(self.kept_value), self.key.to_vec());
            while !rest.is_empty() {
                get_shared_key(&mut rest, &mut key)?;
                keys.push(key.clone());
            }
        }
        Ok(keys)
    }

    /// How many rows those are; one, where the entry is damaged.
    pub fn rows(&self) -> usize {
        if self.flags & RUN == 0 {
            return 1;
        }
        self.keys().map_or(1, |keys| keys.len())
    }

    /// Bytes that are kept of the value.
    pub fn kept_bytes(&self) -> usize {
        self.kept_value.len()
    }

    /// The entry as a new one of the same content, but for the entry made before it.
    pub fn again(&self, undo_previous: VersionAddress) -> NewVersion<'_> {
        NewVersion {
            kind: self.kind,
            flags: self.flags,
            space: self.space,
            tree: self.tree,
            key: self.key,
            old_flags: self.old_flags,
            old_value: self.kept_value,
            previous: self.previous,
            undo_previous,
            steps: self.steps,
        }
    }
}

/// An entry that stays readable as long as this is kept, whatever becomes of its segment.
#[derive(Clone, Debug)]
pub struct VersionRef {
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) at: usize,
    pub(super) header: Header,
    pub(super) trx: Arc<TrxState>,
}

impl VersionRef {
    /// The entry's content.
    pub fn view(&self) -> VersionView<'_> {
        VersionView::new(&self.header, &self.bytes, self.at, &self.trx)
    }
}
