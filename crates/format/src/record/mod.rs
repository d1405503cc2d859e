//! Redo records: what a mini-transaction says in the log.
//!
//! The payload of a frame is a sequence of records. A record changes exactly one page, and replay
//! needs that page alone; transaction and file records change none. Kinds from `0x80` on are
//! optional: they carry a length, and a reader that does not know them skips them.
//!
//! # Row records and their context
//!
//! A row record (insert, update, delete mark, revive) belongs to a transaction, named by its small
//! slot number; the first record of a transaction also carries its 64-bit id. A row record is both
//! redo and undo: it holds the key, and for an update what the old value had in place of the new
//! bytes. So that a row costs few bytes, an insert may be coded against the transaction's
//! *context*, the page, slot, key and value of the insert before it: see [`Context`]. Decoding such
//! a record needs every record of that transaction since its last full one, never a page.
//!
//! Kinds `0x40..0x80` are contextual inserts; the low bits are flags:
//!
//! | bits | meaning                                                                        |
//! |------|--------------------------------------------------------------------------------|
//! | 0    | same page and tree as the context; else page and tree follow                    |
//! | 1    | slot is the context's plus one (same page), or 0 (other page); else it follows  |
//! | 2    | the key is the context's plus one; else a shared key follows                    |
//! | 3..5 | value: 0 length and packed, 1 same length and packed, 2 same length and raw, 3 identical |
//! | 5    | the value is an overflow reference                                              |

mod decode;
mod encode;
mod skim;
#[cfg(test)]
mod tests;
mod undo_copy;

pub use decode::{DecodeError, Decoder, decode_one};
pub use encode::{put_insert, put_leaf_cells, put_rows_insert};
pub use skim::{SkimError, Skimmed, Skimmer, check_against_decoder, initialises_page};

use crate::tree_page::TreePageInit;
use crate::version::{VERSION_UNIT, VERSION_UNIT_BITS, version_bytes};
use crate::{Corrupt, Lsn, PageId, PageNo, SpaceId, TreeId, TrxId, VersionAddress};

/// The transaction of a row record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrxRef {
    /// Small number that names the transaction while it is active.
    pub slot: u32,
    /// Its id, in its first record.
    pub first: Option<TrxId>,
    /// Where the rows' version is, if the transaction's undo is kept apart from the log
    /// ([`Record::UndoMoved`]): the cells carry its address.
    pub version: Option<LoggedVersion>,
}

/// The version that a row record makes, and that a later run finds again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedVersion {
    /// Its address.
    pub address: VersionAddress,
    /// The row's older version, if that has a logged address; else 0.
    pub previous: VersionAddress,
}

impl LoggedVersion {
    /// The version that all rows of a bulk insert have, which a [`Record::BulkInsert`] has made.
    pub fn of_bulk(address: VersionAddress) -> Self {
        Self {
            address,
            previous: address,
        }
    }

    /// Whether it is such a version: the record makes none.
    pub fn is_of_bulk(&self) -> bool {
        self.previous == self.address
    }
}

/// How one value became another: what is between the bytes that both begin and end with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff {
    /// Bytes at the start that both share.
    pub prefix: usize,
    /// Bytes at the end that both share.
    pub suffix: usize,
    /// The old value's middle.
    pub old: Vec<u8>,
    /// The new value's middle.
    pub new: Vec<u8>,
}

impl Diff {
    /// The difference between two values.
    pub fn between(old: &[u8], new: &[u8]) -> Self {
        let prefix = crate::codec::common_prefix(old, new);
        let limit = old.len().min(new.len()) - prefix;
        let suffix = (1..=limit)
            .take_while(|&n| old[old.len() - n] == new[new.len() - n])
            .count();
        Self {
            prefix,
            suffix,
            old: old[prefix..old.len() - suffix].to_vec(),
            new: new[prefix..new.len() - suffix].to_vec(),
        }
    }

    /// The difference in the other direction.
    pub fn reversed(self) -> Self {
        Self {
            old: self.new,
            new: self.old,
            ..self
        }
    }

    /// Makes the new value of the old one.
    pub fn apply(&self, value: &[u8]) -> Result<Vec<u8>, Corrupt> {
        let shared = self.prefix + self.suffix;
        if value.len() != shared + self.old.len()
            || value[self.prefix..value.len() - self.suffix] != self.old[..]
        {
            return Err(Corrupt::at(
                0,
                format!(
                    "a change of {} bytes at {} does not fit the value of {} bytes",
                    self.old.len(),
                    self.prefix,
                    value.len()
                ),
            ));
        }
        let mut out = Vec::with_capacity(shared + self.new.len());
        out.extend_from_slice(&value[..self.prefix]);
        out.extend_from_slice(&self.new);
        out.extend_from_slice(&value[value.len() - self.suffix..]);
        Ok(out)
    }
}

/// A row of a leaf, as it is moved between pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `CELL_DELETED`, `CELL_OVERFLOW`.
    pub flags: u8,
    /// The whole key.
    pub key: Vec<u8>,
    /// The value or overflow reference.
    pub value: Vec<u8>,
}

/// What undoes one row change; carried forward by [`Record::UndoCopy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    /// Remove the row.
    Insert,
    /// Put back the old value and flags.
    Update {
        /// Flags of the old cell.
        flags: u8,
        /// From the value that is there to the one before.
        diff: Diff,
    },
    /// Put back the whole old value and flags.
    Restore {
        /// Flags of the old cell.
        flags: u8,
        /// The old value.
        value: Vec<u8>,
    },
    /// Clear the delete mark.
    Mark,
    /// Set the delete mark again.
    Revive,
}

/// One change to be undone: where, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoEntry {
    /// Tablespace of the row.
    pub space: SpaceId,
    /// Tree of the row.
    pub tree: TreeId,
    /// The row's key.
    pub key: Vec<u8>,
    /// What to do.
    pub undo: Undo,
}

/// Where in the undo file the list of a transaction's saved segments is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UndoList {
    /// Byte offset in the file.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u32,
    /// CRC-32C of them.
    pub checksum: u32,
}

/// A redo record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are described in `KINDS` and docs/format.md"
)]
pub enum Record {
    /// Initialise a tree page, whatever it held.
    TreeInit { page: PageId, init: TreePageInit },
    /// Initialise a page of another type with zeroes after the header.
    PageInit { page: PageId, page_type: u8 },
    /// The page is free: its content no longer matters.
    PageFree { page: PageId },
    /// Write bytes.
    Bytes {
        page: PageId,
        offset: u32,
        bytes: Vec<u8>,
    },
    /// Set or clear bits of a space map page.
    Bits {
        page: PageId,
        first: u32,
        count: u32,
        set: bool,
    },
    /// Insert rows into a leaf from a slot on (part of a split or merge: no undo).
    LeafCells {
        page: PageId,
        slot: u16,
        rows: Vec<Row>,
    },
    /// Insert children into an inner node from a slot on.
    InnerCells {
        page: PageId,
        slot: u16,
        children: Vec<(Vec<u8>, PageNo)>,
    },
    /// Remove cells from a slot on (purge, merge: no undo).
    Remove { page: PageId, slot: u16, count: u16 },
    /// Keep the first cells and set the high fence.
    SetHigh {
        page: PageId,
        keep: u16,
        high: Option<Vec<u8>>,
    },
    /// Insert rows (undo: remove them).
    RowsInsert {
        page: PageId,
        trx: TrxRef,
        tree: TreeId,
        slot: u16,
        rows: Vec<Row>,
    },
    /// Change a row's value.
    RowUpdate {
        page: PageId,
        trx: TrxRef,
        tree: TreeId,
        slot: u16,
        key: Vec<u8>,
        old_flags: u8,
        flags: u8,
        diff: Diff,
    },
    /// Mark a row deleted.
    RowMark {
        page: PageId,
        trx: TrxRef,
        tree: TreeId,
        slot: u16,
        key: Vec<u8>,
    },
    /// Insert over a row that is marked deleted.
    RowRevive {
        page: PageId,
        trx: TrxRef,
        tree: TreeId,
        slot: u16,
        flags: u8,
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// Give the versions of cells these addresses, or none.
    SetVersions {
        page: PageId,
        versions: Vec<(u16, Option<VersionAddress>)>,
    },
    /// Mark rows side by side deleted, and give them the version of a [`Record::BulkDelete`];
    /// without a version: take mark and version from them (its undo).
    RowsMark {
        page: PageId,
        version: Option<VersionAddress>,
        slot: u16,
        count: u16,
    },
    /// As [`Record::RowUndo`], where the row's version tells whether its change is undone.
    RowRestore {
        page: PageId,
        slot: u16,
        version: Option<VersionAddress>,
        undo: Undo,
    },
    /// Compensation: undo the transaction's last change that is not undone yet.
    RowUndo {
        page: PageId,
        trx_slot: u32,
        slot: u16,
        undo: Undo,
    },
    /// The transaction is committed.
    Commit { trx_slot: u32 },
    /// All changes of the transaction are undone.
    RollbackEnd { trx_slot: u32 },
    /// The transaction is prepared under an XID, and survives restarts until it is decided.
    Prepare { trx_slot: u32, xid: Vec<u8> },
    /// All that would undo the transaction, oldest first, so that the log before this need not be
    /// kept. Parts follow one another; the first part replaces what was known.
    UndoCopy {
        trx_slot: u32,
        trx: TrxId,
        first: bool,
        last: bool,
        xid: Option<Vec<u8>>,
        entries: Vec<UndoEntry>,
    },
    /// The transaction's changes so far have logged versions, at these addresses, oldest first,
    /// each of so many rows; its later row records name theirs.
    UndoMoved {
        trx_slot: u32,
        addresses: Vec<(VersionAddress, u32)>,
    },
    /// The transaction begins to insert many rows of a tree, all with one version at this address:
    /// whatever row of a key from `from` on has it is to be removed. Its row records name the
    /// version as the one before, too ([`LoggedVersion::is_of_bulk`]).
    BulkInsert {
        trx_slot: u32,
        address: VersionAddress,
        space: SpaceId,
        tree: TreeId,
        from: Vec<u8>,
    },
    /// The transaction begins to delete many rows of a tree, with one version at this address: rows
    /// of keys from `from` on, and below `to`, that have it are to be there again.
    /// [`Record::RowsMark`] says which.
    BulkDelete {
        trx_slot: u32,
        address: VersionAddress,
        space: SpaceId,
        tree: TreeId,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
    },
    /// Segments of the transaction's versions are in the undo file, as the list says that lies
    /// there: those that it had at the LSN `since`; the log from there on has the rest.
    UndoSaved {
        trx_slot: u32,
        trx: TrxId,
        since: Lsn,
        changes: u64,
        xid: Option<Vec<u8>>,
        list: UndoList,
    },
    /// A tablespace file exists from here on.
    FileCreate { space: SpaceId },
    /// A tablespace file is no longer needed.
    FileDelete { space: SpaceId },
    /// A new incarnation of the database begins to write. Optional.
    Epoch { epoch: u64, end_of_previous: Lsn },
    /// A checkpoint was written. Optional.
    Checkpoint { checkpoint: Lsn, scan_start: Lsn },
    /// An optional record that this program does not know.
    Unknown { kind: u8, body: Vec<u8> },
}

/// Record kinds: the byte that each record begins with, its name, and what follows.
pub const KINDS: &[(u8, &str, &str)] = &[
    (
        0x01,
        "TREE_INIT",
        "page, tree, level, low fence, high fence (0, or 1 and bytes)",
    ),
    (0x02, "PAGE_INIT", "page, page type u8"),
    (0x03, "PAGE_FREE", "page"),
    (0x04, "BYTES", "page, offset, length, packed bytes"),
    (0x05, "BITS", "page, first, count, 0 or 1"),
    (0x06, "LEAF_CELLS", "page, slot, count, rows"),
    (
        0x07,
        "INNER_CELLS",
        "page, slot, count, (shared key, child)",
    ),
    (0x08, "REMOVE", "page, slot, count"),
    (
        0x09,
        "SET_HIGH",
        "page, keep, high fence (0, or 1 and bytes)",
    ),
    (
        0x0a,
        "SET_VERSIONS",
        "page, count, (slot, logged address or 0)",
    ),
    (0x0b, "ROWS_MARK", "page, logged address or 0, slot, count"),
    (0x10, "ROWS_INSERT", "trx, page, tree, slot, count, rows"),
    (
        0x11,
        "ROW_UPDATE",
        "trx, page, tree, slot, key, old flags u8, flags u8, diff",
    ),
    (0x12, "ROW_MARK", "trx, page, tree, slot, key"),
    (
        0x13,
        "ROW_REVIVE",
        "trx, page, tree, slot, flags u8, key, length, packed value",
    ),
    (
        0x14,
        "ROWS_INSERT",
        "version, and what follows a ROWS_INSERT without one",
    ),
    (
        0x15,
        "ROW_UPDATE",
        "version, and what follows a ROW_UPDATE without one",
    ),
    (
        0x16,
        "ROW_MARK",
        "version, and what follows a ROW_MARK without one",
    ),
    (
        0x17,
        "ROW_REVIVE",
        "version, and what follows a ROW_REVIVE without one",
    ),
    (0x18, "ROW_UNDO", "page, trx slot, slot, undo"),
    (0x19, "ROW_RESTORE", "page, slot, logged address or 0, undo"),
    (0x20, "COMMIT", "trx slot"),
    (0x21, "ROLLBACK_END", "trx slot"),
    (0x22, "PREPARE", "trx slot, xid"),
    (
        0x23,
        "UNDO_COPY_PLAIN",
        "trx slot, trx id, flags u8 (1 first, 2 last, 4 xid follows), count, (tablespace, tree, key, undo)",
    ),
    (
        0x24,
        "UNDO_COPY",
        "trx slot, trx id, flags u8 (1 first, 2 last, 4 xid follows), count, entries",
    ),
    (
        0x25,
        "UNDO_MOVED",
        "trx slot, count, (difference to the logged address before, rows)",
    ),
    (
        0x26,
        "UNDO_SAVED",
        "trx slot, trx id, LSN, changes, 0 or 1 and xid, list (offset, bytes, checksum u32)",
    ),
    (
        0x27,
        "BULK_INSERT",
        "trx slot, logged address, tablespace, tree, least key",
    ),
    (0x28, "FILE_CREATE", "space"),
    (0x29, "FILE_DELETE", "space"),
    (
        0x2a,
        "BULK_DELETE",
        "trx slot, logged address, tablespace, tree, least key, end of the keys (0, or 1 and bytes)",
    ),
    (
        0x40,
        "LEAF_INSERT",
        "trx slot and what the flags leave to say (0x40 to 0x7f)",
    ),
    (
        0x80,
        "EPOCH",
        "length, epoch, end of the previous incarnation's log",
    ),
    (0x81, "CHECKPOINT", "length, checkpoint LSN, scan start LSN"),
];

const SAME_PAGE: u8 = 1;
const NEXT_SLOT: u8 = 2;
const NEXT_KEY: u8 = 4;
const VALUE_SHIFT: u8 = 3;
const VALUE_ANY: u8 = 0;
const VALUE_PACKED: u8 = 1;
const VALUE_RAW: u8 = 2;
const VALUE_SAME: u8 = 3;
const OVERFLOW: u8 = 32;

/// Added to the kind of a row record that names its version.
const WITH_VERSION: u8 = 4;

/// In the flags byte of a row of several: its key is the one before it plus one.
const ROW_NEXT_KEY: u8 = 0x80;

/// Values longer than this are not kept in a context.
const CONTEXT_VALUE_MAX: usize = 8192;
/// A full record is written after this many contextual ones, so that decoding can begin near.
pub const CONTEXT_CHAIN_MAX: u32 = 64;

/// What a transaction's next contextual insert is coded against. Writer and reader keep it alike:
/// every [`Record::RowsInsert`] of the transaction sets it to its last row.
#[derive(Clone, Debug, Default)]
pub struct Context {
    page: PageId,
    tree: TreeId,
    slot: u16,
    key: Vec<u8>,
    value: Vec<u8>,
    known: bool,
    /// The version that the next insert must have to be coded against this.
    next_version: Option<VersionAddress>,
}

impl Context {
    /// Forgets everything: the next insert is written in full.
    pub fn clear(&mut self) {
        self.known = false;
        self.next_version = None;
        self.key.clear();
        self.value.clear();
    }

    /// Whether the next insert may be coded against this.
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// The version that the next insert of one row must have to be coded against this; `None`: no
    /// logged one.
    pub fn next_version(&self) -> Option<VersionAddress> {
        self.next_version
    }

    /// The last insert, of one row, had this version: the next one's is expected behind it.
    fn set_version(&mut self, version: Option<LoggedVersion>) {
        self.next_version = version.and_then(|v| {
            let units = version_bytes(self.key.len(), 0) / VERSION_UNIT;
            let unit = v.address.unit() + units;
            (unit >> VERSION_UNIT_BITS == 0).then(|| VersionAddress::of(v.address.segment(), unit))
        });
    }

    fn set(&mut self, page: PageId, tree: TreeId, slot: u16, key: &[u8], value: &[u8]) {
        self.page = page;
        self.tree = tree;
        self.slot = slot;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value.clear();
        if value.len() <= CONTEXT_VALUE_MAX {
            self.value.extend_from_slice(value);
        }
        self.known = true;
    }
}

impl Record {
    /// The page that the record changes.
    pub fn page(&self) -> Option<PageId> {
        match self {
            Self::TreeInit { page, .. }
            | Self::PageInit { page, .. }
            | Self::PageFree { page }
            | Self::Bytes { page, .. }
            | Self::Bits { page, .. }
            | Self::LeafCells { page, .. }
            | Self::InnerCells { page, .. }
            | Self::Remove { page, .. }
            | Self::SetHigh { page, .. }
            | Self::RowsInsert { page, .. }
            | Self::RowUpdate { page, .. }
            | Self::RowMark { page, .. }
            | Self::RowRevive { page, .. }
            | Self::SetVersions { page, .. }
            | Self::RowsMark { page, .. }
            | Self::RowRestore { page, .. }
            | Self::RowUndo { page, .. } => Some(*page),
            _ => None,
        }
    }

    /// Whether replay needs nothing of the page as it was before.
    pub fn initialises_page(&self) -> bool {
        matches!(
            self,
            Self::TreeInit { .. } | Self::PageInit { .. } | Self::PageFree { .. }
        )
    }

    /// The record's name, as in [`KINDS`].
    pub fn name(&self) -> &'static str {
        match self {
            Self::TreeInit { .. } => "TREE_INIT",
            Self::PageInit { .. } => "PAGE_INIT",
            Self::PageFree { .. } => "PAGE_FREE",
            Self::Bytes { .. } => "BYTES",
            Self::Bits { .. } => "BITS",
            Self::LeafCells { .. } => "LEAF_CELLS",
            Self::InnerCells { .. } => "INNER_CELLS",
            Self::Remove { .. } => "REMOVE",
            Self::SetHigh { .. } => "SET_HIGH",
            Self::RowsInsert { rows, .. } if rows.len() == 1 => "LEAF_INSERT",
            Self::RowsInsert { .. } => "ROWS_INSERT",
            Self::RowUpdate { .. } => "ROW_UPDATE",
            Self::RowMark { .. } => "ROW_MARK",
            Self::RowRevive { .. } => "ROW_REVIVE",
            Self::SetVersions { .. } => "SET_VERSIONS",
            Self::RowsMark { .. } => "ROWS_MARK",
            Self::RowRestore { .. } => "ROW_RESTORE",
            Self::RowUndo { .. } => "ROW_UNDO",
            Self::Commit { .. } => "COMMIT",
            Self::RollbackEnd { .. } => "ROLLBACK_END",
            Self::Prepare { .. } => "PREPARE",
            Self::UndoCopy { .. } => "UNDO_COPY",
            Self::UndoMoved { .. } => "UNDO_MOVED",
            Self::BulkInsert { .. } => "BULK_INSERT",
            Self::BulkDelete { .. } => "BULK_DELETE",
            Self::UndoSaved { .. } => "UNDO_SAVED",
            Self::FileCreate { .. } => "FILE_CREATE",
            Self::FileDelete { .. } => "FILE_DELETE",
            Self::Epoch { .. } => "EPOCH",
            Self::Checkpoint { .. } => "CHECKPOINT",
            Self::Unknown { .. } => "UNKNOWN",
        }
    }
}
