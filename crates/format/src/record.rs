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

use crate::codec::{
    Reader, get_shared_key, increment, is_successor, pack, put_bytes, put_shared_key, put_varint,
    unpack,
};
use crate::tree_page::{CELL_OVERFLOW, TreePageInit};
use crate::{Corrupt, Lsn, PageId, PageNo, SpaceId, TreeId, TrxId};
use std::collections::HashMap;

/// The transaction of a row record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrxRef {
    /// Small number that names the transaction while it is active.
    pub slot: u32,
    /// Its id, in its first record.
    pub first: Option<TrxId>,
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
    (0x18, "ROW_UNDO", "page, trx slot, slot, undo"),
    (0x20, "COMMIT", "trx slot"),
    (0x21, "ROLLBACK_END", "trx slot"),
    (0x22, "PREPARE", "trx slot, xid"),
    (
        0x23,
        "UNDO_COPY",
        "trx slot, trx id, flags u8 (1 first, 2 last, 4 xid follows), count, entries",
    ),
    (0x28, "FILE_CREATE", "space"),
    (0x29, "FILE_DELETE", "space"),
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
}

impl Context {
    /// Forgets everything: the next insert is written in full.
    pub fn clear(&mut self) {
        self.known = false;
        self.key.clear();
        self.value.clear();
    }

    /// Whether the next insert may be coded against this.
    pub fn is_known(&self) -> bool {
        self.known
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

fn put_page(out: &mut Vec<u8>, page: PageId) {
    put_varint(out, u64::from(page.space.0));
    put_varint(out, u64::from(page.page.0));
}

fn put_trx(out: &mut Vec<u8>, trx: TrxRef) {
    // One number: the slot twice, plus one if the id follows.
    put_varint(
        out,
        u64::from(trx.slot) << 1 | u64::from(trx.first.is_some()),
    );
    if let Some(id) = trx.first {
        put_varint(out, id.0);
    }
}

fn put_high(out: &mut Vec<u8>, high: Option<&[u8]>) {
    match high {
        None => out.push(0),
        Some(high) => {
            out.push(1);
            put_bytes(out, high);
        }
    }
}

fn put_packed(out: &mut Vec<u8>, value: &[u8], reference: &[u8]) {
    put_varint(out, value.len() as u64);
    pack(out, value, reference);
}

fn put_diff(out: &mut Vec<u8>, diff: &Diff) {
    put_varint(out, diff.prefix as u64);
    put_varint(out, diff.suffix as u64);
    put_packed(out, &diff.old, &[]);
    put_packed(out, &diff.new, &diff.old);
}

const ROW_SAME_FLAGS: u8 = 0x80;

/// Appends a row coded against the one before it: flags (bit 7: the key is the last one plus one),
/// shared key, length, packed value.
fn put_row(out: &mut Vec<u8>, flags: u8, key: &[u8], value: &[u8], last: &mut (Vec<u8>, Vec<u8>)) {
    let next = is_successor(key, &last.0);
    let (raw, packed_at) = (value.len(), out.len());
    out.push(flags | if next { ROW_SAME_FLAGS } else { 0 });
    if !next {
        put_shared_key(out, key, &last.0);
    }
    put_varint(out, raw as u64);
    pack(out, value, &last.1);
    debug_assert!(out.len() > packed_at);
    last.0.clear();
    last.0.extend_from_slice(key);
    last.1.clear();
    last.1.extend_from_slice(value);
}

fn get_row(r: &mut Reader<'_>, last: &mut (Vec<u8>, Vec<u8>)) -> Result<Row, Corrupt> {
    let flags = r.u8()?;
    if flags & ROW_SAME_FLAGS != 0 {
        if !increment(&mut last.0) {
            return Err(r.corrupt("the key has no successor"));
        }
    } else {
        get_shared_key(r, &mut last.0)?;
    }
    let len = r.varint_max(1 << 17, "value length")? as usize;
    let mut value = Vec::with_capacity(len);
    unpack(r, len, &last.1, &mut value)?;
    last.1.clone_from(&value);
    Ok(Row {
        flags: flags & !ROW_SAME_FLAGS,
        key: last.0.clone(),
        value,
    })
}

fn put_rows<'a>(
    out: &mut Vec<u8>,
    count: usize,
    rows: impl Iterator<Item = (u8, &'a [u8], &'a [u8])>,
) -> (Vec<u8>, Vec<u8>) {
    put_varint(out, count as u64);
    let mut last = (Vec::new(), Vec::new());
    for (flags, key, value) in rows {
        put_row(out, flags, key, value, &mut last);
    }
    last
}

fn put_undo(out: &mut Vec<u8>, undo: &Undo) {
    match undo {
        Undo::Insert => out.push(0),
        Undo::Update { flags, diff } => {
            out.extend_from_slice(&[1, *flags]);
            put_diff(out, diff);
        }
        Undo::Restore { flags, value } => {
            out.extend_from_slice(&[2, *flags]);
            put_packed(out, value, &[]);
        }
        Undo::Mark => out.push(3),
        Undo::Revive => out.push(4),
    }
}

/// Appends a row insert, coded against the context when that is known, and moves the context on.
#[expect(
    clippy::too_many_arguments,
    reason = "the fields of one record, on the hottest path"
)]
pub fn put_insert(
    out: &mut Vec<u8>,
    context: &mut Context,
    trx: TrxRef,
    page: PageId,
    tree: TreeId,
    slot: u16,
    flags: u8,
    key: &[u8],
    value: &[u8],
) {
    if !context.known || trx.first.is_some() {
        out.push(0x10);
        put_trx(out, trx);
        put_page(out, page);
        put_varint(out, u64::from(tree.0));
        put_varint(out, u64::from(slot));
        put_rows(out, 1, std::iter::once((flags, key, value)));
        context.set(page, tree, slot, key, value);
        return;
    }
    let same_page = context.page == page && context.tree == tree;
    let next_slot = slot
        == if same_page {
            context.slot.wrapping_add(1)
        } else {
            0
        };
    let next_key = is_successor(key, &context.key);
    let kind_at = out.len();
    out.push(0);
    put_varint(out, u64::from(trx.slot));
    if !same_page {
        put_page(out, page);
        put_varint(out, u64::from(tree.0));
    }
    if !next_slot {
        put_varint(out, u64::from(slot));
    }
    if !next_key {
        put_shared_key(out, key, &context.key);
    }
    let mode = put_context_value(out, value, &context.value);
    out[kind_at] = 0x40
        | if same_page { SAME_PAGE } else { 0 }
        | if next_slot { NEXT_SLOT } else { 0 }
        | if next_key { NEXT_KEY } else { 0 }
        | mode << VALUE_SHIFT
        | if flags & CELL_OVERFLOW != 0 {
            OVERFLOW
        } else {
            0
        };
    context.set(page, tree, slot, key, value);
}

fn put_context_value(out: &mut Vec<u8>, value: &[u8], reference: &[u8]) -> u8 {
    if value == reference {
        return VALUE_SAME;
    }
    if value.len() != reference.len() {
        put_packed(out, value, reference);
        return VALUE_ANY;
    }
    let at = out.len();
    pack(out, value, reference);
    if out.len() - at < value.len() {
        return VALUE_PACKED;
    }
    out.truncate(at);
    out.extend_from_slice(value);
    VALUE_RAW
}

impl Record {
    /// Appends the record. Row inserts go through [`put_insert`] or [`put_rows_insert`] instead
    /// when there is a context to keep.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::TreeInit { page, init } => {
                out.push(0x01);
                put_page(out, *page);
                put_varint(out, u64::from(init.tree.0));
                out.push(init.level);
                put_bytes(out, &init.low);
                put_high(out, init.high.as_deref());
            }
            Self::PageInit { page, page_type } => {
                out.push(0x02);
                put_page(out, *page);
                out.push(*page_type);
            }
            Self::PageFree { page } => {
                out.push(0x03);
                put_page(out, *page);
            }
            Self::Bytes {
                page,
                offset,
                bytes,
            } => {
                out.push(0x04);
                put_page(out, *page);
                put_varint(out, u64::from(*offset));
                put_packed(out, bytes, &[]);
            }
            Self::Bits {
                page,
                first,
                count,
                set,
            } => {
                out.push(0x05);
                put_page(out, *page);
                put_varint(out, u64::from(*first));
                put_varint(out, u64::from(*count));
                out.push(u8::from(*set));
            }
            Self::LeafCells { page, slot, rows } => {
                put_leaf_cells(out, *page, *slot, rows.len(), rows.iter().map(row_parts));
            }
            Self::InnerCells {
                page,
                slot,
                children,
            } => {
                out.push(0x07);
                put_page(out, *page);
                put_varint(out, u64::from(*slot));
                put_varint(out, children.len() as u64);
                let mut last: &[u8] = &[];
                for (key, child) in children {
                    put_shared_key(out, key, last);
                    put_varint(out, u64::from(child.0));
                    last = key;
                }
            }
            Self::Remove { page, slot, count } => {
                out.push(0x08);
                put_page(out, *page);
                put_varint(out, u64::from(*slot));
                put_varint(out, u64::from(*count));
            }
            Self::SetHigh { page, keep, high } => {
                out.push(0x09);
                put_page(out, *page);
                put_varint(out, u64::from(*keep));
                put_high(out, high.as_deref());
            }
            Self::RowsInsert {
                page,
                trx,
                tree,
                slot,
                rows,
            } => {
                let mut context = Context::default();
                put_rows_insert(out, &mut context, *trx, *page, *tree, *slot, rows);
            }
            Self::RowUpdate {
                page,
                trx,
                tree,
                slot,
                key,
                old_flags,
                flags,
                diff,
            } => {
                put_row_head(out, 0x11, *page, *trx, *tree, *slot);
                put_bytes(out, key);
                out.extend_from_slice(&[*old_flags, *flags]);
                put_diff(out, diff);
            }
            Self::RowMark {
                page,
                trx,
                tree,
                slot,
                key,
            } => {
                put_row_head(out, 0x12, *page, *trx, *tree, *slot);
                put_bytes(out, key);
            }
            Self::RowRevive {
                page,
                trx,
                tree,
                slot,
                flags,
                key,
                value,
            } => {
                put_row_head(out, 0x13, *page, *trx, *tree, *slot);
                out.push(*flags);
                put_bytes(out, key);
                put_packed(out, value, &[]);
            }
            Self::RowUndo {
                page,
                trx_slot,
                slot,
                undo,
            } => {
                out.push(0x18);
                put_page(out, *page);
                put_varint(out, u64::from(*trx_slot));
                put_varint(out, u64::from(*slot));
                put_undo(out, undo);
            }
            _ => self.put_without_page(out),
        }
    }

    fn put_without_page(&self, out: &mut Vec<u8>) {
        match self {
            Self::Commit { trx_slot } => {
                out.push(0x20);
                put_varint(out, u64::from(*trx_slot));
            }
            Self::RollbackEnd { trx_slot } => {
                out.push(0x21);
                put_varint(out, u64::from(*trx_slot));
            }
            Self::Prepare { trx_slot, xid } => {
                out.push(0x22);
                put_varint(out, u64::from(*trx_slot));
                put_bytes(out, xid);
            }
            Self::UndoCopy {
                trx_slot,
                trx,
                first,
                last,
                xid,
                entries,
            } => {
                out.push(0x23);
                put_varint(out, u64::from(*trx_slot));
                put_varint(out, trx.0);
                out.push(u8::from(*first) | u8::from(*last) << 1 | u8::from(xid.is_some()) << 2);
                if let Some(xid) = xid {
                    put_bytes(out, xid);
                }
                put_varint(out, entries.len() as u64);
                for entry in entries {
                    put_varint(out, u64::from(entry.space.0));
                    put_varint(out, u64::from(entry.tree.0));
                    put_bytes(out, &entry.key);
                    put_undo(out, &entry.undo);
                }
            }
            Self::FileCreate { space } => {
                out.push(0x28);
                put_varint(out, u64::from(space.0));
            }
            Self::FileDelete { space } => {
                out.push(0x29);
                put_varint(out, u64::from(space.0));
            }
            Self::Epoch {
                epoch,
                end_of_previous,
            } => {
                put_optional(out, 0x80, &[*epoch, end_of_previous.0]);
            }
            Self::Checkpoint {
                checkpoint,
                scan_start,
            } => {
                put_optional(out, 0x81, &[checkpoint.0, scan_start.0]);
            }
            Self::Unknown { kind, body } => {
                out.push(*kind);
                put_bytes(out, body);
            }
            _ => unreachable!("records with a page are put by `put`"),
        }
    }

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
            Self::RowUndo { .. } => "ROW_UNDO",
            Self::Commit { .. } => "COMMIT",
            Self::RollbackEnd { .. } => "ROLLBACK_END",
            Self::Prepare { .. } => "PREPARE",
            Self::UndoCopy { .. } => "UNDO_COPY",
            Self::FileCreate { .. } => "FILE_CREATE",
            Self::FileDelete { .. } => "FILE_DELETE",
            Self::Epoch { .. } => "EPOCH",
            Self::Checkpoint { .. } => "CHECKPOINT",
            Self::Unknown { .. } => "UNKNOWN",
        }
    }
}

fn row_parts(row: &Row) -> (u8, &[u8], &[u8]) {
    (row.flags, &row.key, &row.value)
}

/// Appends a [`Record::LeafCells`] without making the record first.
pub fn put_leaf_cells<'a>(
    out: &mut Vec<u8>,
    page: PageId,
    slot: u16,
    count: usize,
    rows: impl Iterator<Item = (u8, &'a [u8], &'a [u8])>,
) {
    out.push(0x06);
    put_page(out, page);
    put_varint(out, u64::from(slot));
    put_rows(out, count, rows);
}

/// Appends a [`Record::RowsInsert`] in full and sets the context to its last row.
pub fn put_rows_insert(
    out: &mut Vec<u8>,
    context: &mut Context,
    trx: TrxRef,
    page: PageId,
    tree: TreeId,
    slot: u16,
    rows: &[Row],
) {
    put_row_head(out, 0x10, page, trx, tree, slot);
    let (key, value) = put_rows(out, rows.len(), rows.iter().map(row_parts));
    let last = slot.wrapping_add(rows.len() as u16).wrapping_sub(1);
    context.set(page, tree, last, &key, &value);
}

fn put_row_head(out: &mut Vec<u8>, kind: u8, page: PageId, trx: TrxRef, tree: TreeId, slot: u16) {
    out.push(kind);
    put_trx(out, trx);
    put_page(out, page);
    put_varint(out, u64::from(tree.0));
    put_varint(out, u64::from(slot));
}

fn put_optional(out: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    let mut body = Vec::new();
    for &number in numbers {
        put_varint(&mut body, number);
    }
    out.push(kind);
    put_bytes(out, &body);
}

fn get_page(r: &mut Reader<'_>) -> Result<PageId, Corrupt> {
    let space = r.varint_max(u64::from(u32::MAX), "tablespace")?;
    let page = r.varint_max(u64::from(u32::MAX), "page")?;
    Ok(PageId::new(SpaceId(space as u32), PageNo(page as u32)))
}

fn get_u16v(r: &mut Reader<'_>, what: &str) -> Result<u16, Corrupt> {
    Ok(r.varint_max(u64::from(u16::MAX), what)? as u16)
}

fn get_u32v(r: &mut Reader<'_>, what: &str) -> Result<u32, Corrupt> {
    Ok(r.varint_max(u64::from(u32::MAX), what)? as u32)
}

fn get_high(r: &mut Reader<'_>) -> Result<Option<Vec<u8>>, Corrupt> {
    Ok(match r.u8()? {
        0 => None,
        1 => Some(r.bytes()?.to_vec()),
        other => return Err(r.corrupt(format!("{other} is neither no fence nor a fence"))),
    })
}

fn get_packed(r: &mut Reader<'_>, reference: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let len = r.varint_max(1 << 20, "packed length")? as usize;
    let mut out = Vec::new();
    unpack(r, len, reference, &mut out)?;
    Ok(out)
}

fn get_diff(r: &mut Reader<'_>) -> Result<Diff, Corrupt> {
    let prefix = r.varint_max(1 << 20, "shared prefix")? as usize;
    let suffix = r.varint_max(1 << 20, "shared suffix")? as usize;
    let old = get_packed(r, &[])?;
    let new = get_packed(r, &old)?;
    Ok(Diff {
        prefix,
        suffix,
        old,
        new,
    })
}

fn get_rows(r: &mut Reader<'_>) -> Result<Vec<Row>, Corrupt> {
    let count = r.varint_max(1 << 16, "number of rows")?;
    let mut last = (Vec::new(), Vec::new());
    (0..count).map(|_| get_row(r, &mut last)).collect()
}

fn get_undo(r: &mut Reader<'_>) -> Result<Undo, Corrupt> {
    Ok(match r.u8()? {
        0 => Undo::Insert,
        1 => Undo::Update {
            flags: r.u8()?,
            diff: get_diff(r)?,
        },
        2 => Undo::Restore {
            flags: r.u8()?,
            value: get_packed(r, &[])?,
        },
        3 => Undo::Mark,
        4 => Undo::Revive,
        other => return Err(r.corrupt(format!("{other} is no kind of undo"))),
    })
}

struct RowHead {
    trx: TrxRef,
    page: PageId,
    tree: TreeId,
    slot: u16,
}

fn get_row_head(r: &mut Reader<'_>) -> Result<RowHead, Corrupt> {
    let word = r.varint_max(u64::from(u32::MAX) * 2 + 1, "transaction slot")?;
    let first = if word & 1 != 0 {
        Some(TrxId(r.varint()?))
    } else {
        None
    };
    let trx = TrxRef {
        slot: (word >> 1) as u32,
        first,
    };
    let page = get_page(r)?;
    let tree = TreeId(get_u32v(r, "tree")?);
    Ok(RowHead {
        trx,
        page,
        tree,
        slot: get_u16v(r, "slot")?,
    })
}

/// Why a frame could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A contextual record of a transaction whose earlier records were not read. Harmless before
    /// the checkpoint, corruption after it.
    NoContext {
        /// The transaction's slot.
        trx_slot: u32,
    },
    /// The bytes are no records.
    Corrupt(Corrupt),
}

impl From<Corrupt> for DecodeError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

/// Decodes frames in log order, keeping the context of each transaction.
#[derive(Default)]
pub struct Decoder {
    contexts: HashMap<u32, Context>,
}

impl Decoder {
    /// Decodes all records of a frame's payload.
    pub fn decode(&mut self, payload: &[u8]) -> Result<Vec<Record>, DecodeError> {
        let mut r = Reader::new(payload);
        let mut records = Vec::new();
        while !r.is_empty() {
            records.push(self.next(&mut r)?);
        }
        Ok(records)
    }

    /// As [`Decoder::decode`] for whoever shows a log: each record with its kind byte, up to the
    /// first one that cannot be decoded, and why not.
    pub fn decode_prefix(&mut self, payload: &[u8]) -> (Vec<(u8, Record)>, Option<DecodeError>) {
        let mut r = Reader::new(payload);
        let mut records = Vec::new();
        while !r.is_empty() {
            let kind = payload[r.offset()];
            match self.next(&mut r) {
                Ok(record) => records.push((kind, record)),
                Err(error) => return (records, Some(error)),
            }
        }
        (records, None)
    }

    fn next(&mut self, r: &mut Reader<'_>) -> Result<Record, DecodeError> {
        let kind = r.u8()?;
        match kind {
            0x40..0x80 => self.contextual_insert(kind, r),
            0x10 => {
                let RowHead {
                    trx,
                    page,
                    tree,
                    slot,
                } = get_row_head(r)?;
                let rows = get_rows(r)?;
                let last = rows
                    .last()
                    .ok_or_else(|| r.corrupt("an insert of no rows"))?;
                let context = self.contexts.entry(trx.slot).or_default();
                let last_slot = slot.wrapping_add(rows.len() as u16).wrapping_sub(1);
                context.set(page, tree, last_slot, &last.key, &last.value);
                Ok(Record::RowsInsert {
                    page,
                    trx,
                    tree,
                    slot,
                    rows,
                })
            }
            _ => {
                let record = get_plain(kind, r)?;
                match &record {
                    Record::Commit { trx_slot } | Record::RollbackEnd { trx_slot } => {
                        self.contexts.remove(trx_slot);
                    }
                    // A slot used again: what is known belongs to its last user.
                    Record::RowUpdate { trx, .. }
                    | Record::RowMark { trx, .. }
                    | Record::RowRevive { trx, .. }
                        if trx.first.is_some() =>
                    {
                        self.contexts.remove(&trx.slot);
                    }
                    _ => {}
                }
                Ok(record)
            }
        }
    }

    fn contextual_insert(&mut self, kind: u8, r: &mut Reader<'_>) -> Result<Record, DecodeError> {
        let trx_slot = get_u32v(r, "transaction slot")?;
        let context = self.contexts.get_mut(&trx_slot).filter(|c| c.known);
        let context = context.ok_or(DecodeError::NoContext { trx_slot })?;
        let same_page = kind & SAME_PAGE != 0;
        let (page, tree) = if same_page {
            (context.page, context.tree)
        } else {
            (get_page(r)?, TreeId(get_u32v(r, "tree")?))
        };
        let slot = match (kind & NEXT_SLOT != 0, same_page) {
            (true, true) => context.slot.wrapping_add(1),
            (true, false) => 0,
            (false, _) => get_u16v(r, "slot")?,
        };
        let mut key = std::mem::take(&mut context.key);
        if kind & NEXT_KEY == 0 {
            get_shared_key(r, &mut key)?;
        } else if !increment(&mut key) {
            return Err(r.corrupt("the key has no successor").into());
        }
        let value = get_context_value(kind >> VALUE_SHIFT & 3, r, &context.value)?;
        let flags = if kind & OVERFLOW != 0 {
            CELL_OVERFLOW
        } else {
            0
        };
        context.set(page, tree, slot, &key, &value);
        let trx = TrxRef {
            slot: trx_slot,
            first: None,
        };
        Ok(Record::RowsInsert {
            page,
            trx,
            tree,
            slot,
            rows: vec![Row { flags, key, value }],
        })
    }
}

fn get_context_value(mode: u8, r: &mut Reader<'_>, reference: &[u8]) -> Result<Vec<u8>, Corrupt> {
    Ok(match mode {
        VALUE_SAME => reference.to_vec(),
        VALUE_RAW => r.take(reference.len())?.to_vec(),
        VALUE_PACKED => {
            let mut value = Vec::with_capacity(reference.len());
            unpack(r, reference.len(), reference, &mut value)?;
            value
        }
        _ => get_packed(r, reference)?,
    })
}

fn get_plain(kind: u8, r: &mut Reader<'_>) -> Result<Record, Corrupt> {
    Ok(match kind {
        0x01 => {
            let page = get_page(r)?;
            let tree = TreeId(get_u32v(r, "tree")?);
            let level = r.u8()?;
            let low = r.bytes()?.to_vec();
            let high = get_high(r)?;
            if low.len() + high.as_ref().map_or(0, Vec::len) > 1 << 14 {
                return Err(r.corrupt("fences longer than any key"));
            }
            Record::TreeInit {
                page,
                init: TreePageInit {
                    tree,
                    level,
                    low,
                    high,
                },
            }
        }
        0x02 => Record::PageInit {
            page: get_page(r)?,
            page_type: r.u8()?,
        },
        0x03 => Record::PageFree { page: get_page(r)? },
        0x04 => Record::Bytes {
            page: get_page(r)?,
            offset: get_u32v(r, "offset")?,
            bytes: get_packed(r, &[])?,
        },
        0x05 => Record::Bits {
            page: get_page(r)?,
            first: get_u32v(r, "first bit")?,
            count: get_u32v(r, "number of bits")?,
            set: r.u8()? != 0,
        },
        0x06 => Record::LeafCells {
            page: get_page(r)?,
            slot: get_u16v(r, "slot")?,
            rows: get_rows(r)?,
        },
        0x07 => {
            let (page, slot) = (get_page(r)?, get_u16v(r, "slot")?);
            let count = r.varint_max(1 << 16, "number of children")?;
            let mut key = Vec::new();
            let mut children = Vec::new();
            for _ in 0..count {
                get_shared_key(r, &mut key)?;
                children.push((key.clone(), PageNo(get_u32v(r, "child")?)));
            }
            Record::InnerCells {
                page,
                slot,
                children,
            }
        }
        0x08 => Record::Remove {
            page: get_page(r)?,
            slot: get_u16v(r, "slot")?,
            count: get_u16v(r, "count")?,
        },
        0x09 => Record::SetHigh {
            page: get_page(r)?,
            keep: get_u16v(r, "keep")?,
            high: get_high(r)?,
        },
        0x11 => {
            let RowHead {
                trx,
                page,
                tree,
                slot,
            } = get_row_head(r)?;
            let key = r.bytes()?.to_vec();
            let (old_flags, flags) = (r.u8()?, r.u8()?);
            Record::RowUpdate {
                page,
                trx,
                tree,
                slot,
                key,
                old_flags,
                flags,
                diff: get_diff(r)?,
            }
        }
        0x12 => {
            let RowHead {
                trx,
                page,
                tree,
                slot,
            } = get_row_head(r)?;
            Record::RowMark {
                page,
                trx,
                tree,
                slot,
                key: r.bytes()?.to_vec(),
            }
        }
        0x13 => {
            let RowHead {
                trx,
                page,
                tree,
                slot,
            } = get_row_head(r)?;
            let flags = r.u8()?;
            let key = r.bytes()?.to_vec();
            Record::RowRevive {
                page,
                trx,
                tree,
                slot,
                flags,
                key,
                value: get_packed(r, &[])?,
            }
        }
        0x18 => Record::RowUndo {
            page: get_page(r)?,
            trx_slot: get_u32v(r, "transaction slot")?,
            slot: get_u16v(r, "slot")?,
            undo: get_undo(r)?,
        },
        _ => get_without_page(kind, r)?,
    })
}

fn get_without_page(kind: u8, r: &mut Reader<'_>) -> Result<Record, Corrupt> {
    Ok(match kind {
        0x20 => Record::Commit {
            trx_slot: get_u32v(r, "transaction slot")?,
        },
        0x21 => Record::RollbackEnd {
            trx_slot: get_u32v(r, "transaction slot")?,
        },
        0x22 => Record::Prepare {
            trx_slot: get_u32v(r, "transaction slot")?,
            xid: r.bytes()?.to_vec(),
        },
        0x23 => {
            let trx_slot = get_u32v(r, "transaction slot")?;
            let trx = TrxId(r.varint()?);
            let flags = r.u8()?;
            let xid = if flags & 4 != 0 {
                Some(r.bytes()?.to_vec())
            } else {
                None
            };
            let count = r.varint_max(1 << 20, "number of entries")?;
            let mut entries = Vec::new();
            for _ in 0..count {
                let space = SpaceId(get_u32v(r, "tablespace")?);
                let tree = TreeId(get_u32v(r, "tree")?);
                let key = r.bytes()?.to_vec();
                entries.push(UndoEntry {
                    space,
                    tree,
                    key,
                    undo: get_undo(r)?,
                });
            }
            Record::UndoCopy {
                trx_slot,
                trx,
                first: flags & 1 != 0,
                last: flags & 2 != 0,
                xid,
                entries,
            }
        }
        0x28 => Record::FileCreate {
            space: SpaceId(get_u32v(r, "tablespace")?),
        },
        0x29 => Record::FileDelete {
            space: SpaceId(get_u32v(r, "tablespace")?),
        },
        0x80.. => {
            let body = r.bytes()?;
            let mut inner = Reader::new(body);
            match kind {
                0x80 => Record::Epoch {
                    epoch: inner.varint()?,
                    end_of_previous: Lsn(inner.varint()?),
                },
                0x81 => Record::Checkpoint {
                    checkpoint: Lsn(inner.varint()?),
                    scan_start: Lsn(inner.varint()?),
                },
                _ => Record::Unknown {
                    kind,
                    body: body.to_vec(),
                },
            }
        }
        _ => return Err(r.corrupt(format!("unknown record kind {kind:02x}"))),
    })
}

#[cfg(test)]
mod tests;
