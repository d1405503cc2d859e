//! Writing records.

use super::*;
use crate::codec::{is_successor, pack, put_bytes, put_shared_key, put_varint};
use crate::tree_page::CELL_OVERFLOW;

pub(super) fn put_page(out: &mut Vec<u8>, page: PageId) {
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

/// Appends a row coded against the one before it: flags (bit 7: the key is the last one plus one),
/// shared key, length, packed value.
fn put_row(out: &mut Vec<u8>, flags: u8, key: &[u8], value: &[u8], last: (&[u8], &[u8])) {
    let next = is_successor(key, last.0);
    out.push(flags | if next { ROW_NEXT_KEY } else { 0 });
    if !next {
        put_shared_key(out, key, last.0);
    }
    put_varint(out, value.len() as u64);
    pack(out, value, last.1);
}

/// Appends `count` rows; returns the last one's key and value.
fn put_rows<'a>(
    out: &mut Vec<u8>,
    count: usize,
    rows: impl Iterator<Item = (u8, &'a [u8], &'a [u8])>,
) -> (&'a [u8], &'a [u8]) {
    put_varint(out, count as u64);
    let mut last: (&[u8], &[u8]) = (&[], &[]);
    for (flags, key, value) in rows {
        put_row(out, flags, key, value, last);
        last = (key, value);
    }
    last
}

/// The number of an undo's kind.
pub(super) fn undo_kind(undo: &Undo) -> u8 {
    match undo {
        Undo::Insert => 0,
        Undo::Update { .. } => 1,
        Undo::Restore { .. } => 2,
        Undo::Mark => 3,
        Undo::Revive => 4,
    }
}

/// What follows the kind; a whole value is packed against the reference.
pub(super) fn put_undo_body(out: &mut Vec<u8>, undo: &Undo, reference: &[u8]) {
    match undo {
        Undo::Update { flags, diff } => {
            out.push(*flags);
            put_diff(out, diff);
        }
        Undo::Restore { flags, value } => {
            out.push(*flags);
            put_packed(out, value, reference);
        }
        Undo::Insert | Undo::Mark | Undo::Revive => {}
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
    let expected = trx.version.map(|version| version.address) == context.next_version;
    if !context.known || trx.first.is_some() || !expected {
        put_row_head(out, 0x10, page, trx, tree, slot);
        put_rows(out, 1, std::iter::once((flags, key, value)));
        context.set(page, tree, slot, key, value);
        context.set_version(trx.version);
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
    context.set_version(trx.version);
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
                let (context, count) = (&mut context, rows.len());
                let rows = rows.iter().map(row_parts);
                put_rows_insert(out, context, *trx, *page, *tree, *slot, count, rows);
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
            Self::SetVersions { page, versions } => {
                out.push(0x0a);
                put_page(out, *page);
                put_varint(out, versions.len() as u64);
                for (slot, version) in versions {
                    put_varint(out, u64::from(*slot));
                    put_varint(out, version.unwrap_or_default().to_log());
                }
            }
            Self::RowsMark {
                page,
                version,
                slot,
                count,
            } => {
                out.push(0x0b);
                put_page(out, *page);
                put_varint(out, version.unwrap_or_default().to_log());
                put_varint(out, u64::from(*slot));
                put_varint(out, u64::from(*count));
            }
            Self::RowRestore {
                page,
                slot,
                version,
                undo,
            } => {
                out.push(0x19);
                put_page(out, *page);
                put_varint(out, u64::from(*slot));
                put_varint(out, version.unwrap_or_default().to_log());
                out.push(undo_kind(undo));
                put_undo_body(out, undo, &[]);
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
                out.push(undo_kind(undo));
                put_undo_body(out, undo, &[]);
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
                out.push(0x24);
                put_varint(out, u64::from(*trx_slot));
                put_varint(out, trx.0);
                out.push(u8::from(*first) | u8::from(*last) << 1 | u8::from(xid.is_some()) << 2);
                if let Some(xid) = xid {
                    put_bytes(out, xid);
                }
                undo_copy::put_entries(out, entries);
            }
            Self::BulkInsert {
                trx_slot,
                address,
                space,
                tree,
                from,
            } => {
                out.push(0x27);
                put_varint(out, u64::from(*trx_slot));
                put_varint(out, address.to_log());
                put_varint(out, u64::from(space.0));
                put_varint(out, u64::from(tree.0));
                put_bytes(out, from);
            }
            Self::BulkDelete {
                trx_slot,
                address,
                space,
                tree,
                from,
                to,
            } => {
                out.push(0x2a);
                put_varint(out, u64::from(*trx_slot));
                put_varint(out, address.to_log());
                put_varint(out, u64::from(space.0));
                put_varint(out, u64::from(tree.0));
                put_bytes(out, from);
                put_high(out, to.as_deref());
            }
            Self::UndoMoved {
                trx_slot,
                addresses,
            } => {
                out.push(0x25);
                put_varint(out, u64::from(*trx_slot));
                put_varint(out, addresses.len() as u64);
                let mut last = 0;
                for (address, rows) in addresses {
                    put_varint(out, address.to_log().wrapping_sub(last));
                    put_varint(out, u64::from(*rows));
                    last = address.to_log();
                }
            }
            Self::UndoSaved {
                trx_slot,
                trx,
                since,
                changes,
                xid,
                list,
            } => {
                out.push(0x26);
                put_varint(out, u64::from(*trx_slot));
                put_varint(out, trx.0);
                put_varint(out, since.0);
                put_varint(out, *changes);
                put_high(out, xid.as_deref());
                put_varint(out, list.offset);
                put_varint(out, u64::from(list.bytes));
                out.extend_from_slice(&list.checksum.to_le_bytes());
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

/// Appends a [`Record::RowsInsert`] in full, without making the record first, and sets the context
/// to its last row.
#[expect(
    clippy::too_many_arguments,
    reason = "the fields of one record, on a hot path"
)]
pub fn put_rows_insert<'a>(
    out: &mut Vec<u8>,
    context: &mut Context,
    trx: TrxRef,
    page: PageId,
    tree: TreeId,
    slot: u16,
    count: usize,
    rows: impl Iterator<Item = (u8, &'a [u8], &'a [u8])>,
) {
    put_row_head(out, 0x10, page, trx, tree, slot);
    let (key, value) = put_rows(out, count, rows);
    let last = slot.wrapping_add(count as u16).wrapping_sub(1);
    context.set(page, tree, last, key, value);
    context.set_version(trx.version.filter(|_| count == 1));
}

#[inline]
pub(super) fn put_row_head(
    out: &mut Vec<u8>,
    kind: u8,
    page: PageId,
    trx: TrxRef,
    tree: TreeId,
    slot: u16,
) {
    out.push(kind | trx.version.map_or(0, |_| WITH_VERSION));
    if let Some(version) = trx.version {
        put_varint(out, version.address.to_log());
        put_varint(out, version.previous.to_log());
    }
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
