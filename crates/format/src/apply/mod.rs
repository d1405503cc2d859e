//! Applies a redo record to its page: the one code that changes pages, used by mini-transactions
//! while they run and by recovery.

use crate::header::{PAGE_HEADER_LEN, PAGE_TYPE_AT, PageType, init_page, page_type};
use crate::record::{Diff, Record, Undo};
use crate::tree_page::{
    CELL_DELETED, CELL_FLAGS_KNOWN, CELL_VERSIONED, LEVEL_MAX, LOGGED_LIVE, SLOTS_AT, TreePage,
    TreePageInit, TreePageMut, key_len_max,
};
use crate::{Corrupt, PageId, VersionAddress};

/// Offset of the first bit in a space map page.
pub const MAP_BITS_AT: usize = 32;

/// Pages that one space map page keeps a bit for.
pub const fn map_pages(page_size: usize) -> u32 {
    ((page_size - MAP_BITS_AT) * 8) as u32
}

/// Sets or clears bits of a space map page.
pub fn set_bits(page: &mut [u8], first: u32, count: u32, set: bool) {
    for bit in first..first + count {
        let (at, mask) = (MAP_BITS_AT + (bit / 8) as usize, 1 << (bit % 8));
        if set {
            page[at] |= mask;
        } else {
            page[at] &= !mask;
        }
    }
}

/// Whether a bit of a space map page is set.
pub fn bit(page: &[u8], bit: u32) -> bool {
    page[MAP_BITS_AT + (bit / 8) as usize] & 1 << (bit % 8) != 0
}

/// The first clear bit of a space map page in `from..end`.
pub fn next_clear_bit(page: &[u8], from: u32, end: u32) -> Option<u32> {
    let mut at = from;
    while at < end {
        let clear = !word(page, at / 64) >> (at % 64);
        if clear != 0 {
            let found = at + clear.trailing_zeros();
            return (found < end).then_some(found);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

/// How many of the first `end` bits of a space map page are clear.
pub fn count_clear_bits(page: &[u8], end: u32) -> u32 {
    let whole: u32 = (0..end / 64).map(|n| word(page, n).count_zeros()).sum();
    let rest = end % 64;
    match rest {
        0 => whole,
        _ => whole + (!word(page, end / 64) & ((1 << rest) - 1)).count_ones(),
    }
}

/// Bits 64 n to 64 n + 63 of a space map page. A map has whole words of them.
fn word(page: &[u8], n: u32) -> u64 {
    let at = MAP_BITS_AT + 8 * n as usize;
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

/// Replays `record` on the page that it belongs to. Records that change no page are not for here.
/// An error means that log and page do not fit together: the page must not be used.
///
/// A sound page, as [`TreePage::check`] understands it, stays sound under every record that is
/// accepted, whatever the log says; but for an inner node that has lost its children, or has none
/// yet: they follow in the same mini-transaction.
pub fn replay(page: &mut [u8], id: PageId, record: &Record) -> Result<(), Corrupt> {
    match record {
        Record::TreeInit { init, .. } => {
            check_init(page.len(), init)?;
            TreePageMut(page).init(id, init);
            Ok(())
        }
        Record::PageInit { page_type, .. } => {
            let kind = PageType::from_u8(*page_type);
            // Tree pages have a record of their own.
            let kind = kind.filter(|kind| !matches!(kind, PageType::Leaf | PageType::Inner));
            let kind = kind.ok_or_else(|| Corrupt::at(0, format!("page type {page_type}")))?;
            init_page(page, id, kind);
            Ok(())
        }
        Record::PageFree { .. } => {
            init_page(page, id, PageType::Free);
            Ok(())
        }
        Record::Bytes { offset, bytes, .. } => {
            let at = *offset as usize;
            if at < PAGE_HEADER_LEN || is_tree_page(page) {
                return Err(Corrupt::at(at, "bytes that no record may set one by one"));
            }
            let end = at.checked_add(bytes.len());
            let to = end.and_then(|end| page.get_mut(at..end));
            let to = to.ok_or_else(|| Corrupt::at(at, "bytes beyond the end of the page"))?;
            to.copy_from_slice(bytes);
            Ok(())
        }
        Record::Bits {
            first, count, set, ..
        } => {
            let end = u64::from(*first) + u64::from(*count);
            if page_type(page) != Some(PageType::SpaceMap) || end > u64::from(map_pages(page.len()))
            {
                return Err(Corrupt::at(
                    0,
                    format!("bits {first}..{end} of a page that has none such"),
                ));
            }
            set_bits(page, *first, *count, *set);
            Ok(())
        }
        _ => replay_tree(page, record),
    }
}

fn is_tree_page(page: &[u8]) -> bool {
    matches!(page_type(page), Some(PageType::Leaf | PageType::Inner))
}

fn check_init(page_size: usize, init: &TreePageInit) -> Result<(), Corrupt> {
    let TreePageInit {
        level, low, high, ..
    } = init;
    if *level > LEVEL_MAX {
        return Err(Corrupt::at(0, format!("a tree page of level {level}")));
    }
    if high.as_ref().is_some_and(|high| high <= low) {
        return Err(Corrupt::at(0, "the high fence is not above the low one"));
    }
    check_key(page_size, low)?;
    check_key(page_size, high.as_deref().unwrap_or_default())
}

fn check_key(page_size: usize, key: &[u8]) -> Result<(), Corrupt> {
    let (length, limit) = (key.len(), key_len_max(page_size));
    if length > limit {
        let detail = format!("a key of {length} bytes, where {limit} is the longest");
        return Err(Corrupt::at(0, detail));
    }
    Ok(())
}

fn check_flags(flags: u8) -> Result<(), Corrupt> {
    if flags & !CELL_FLAGS_KNOWN != 0 {
        return Err(Corrupt::at(0, format!("cell flags {flags:02x}")));
    }
    Ok(())
}

fn replay_tree(page: &mut [u8], record: &Record) -> Result<(), Corrupt> {
    if !is_tree_page(page) {
        return Err(Corrupt::at(
            12,
            format!("{} on a page of type {}", record.name(), page[PAGE_TYPE_AT]),
        ));
    }
    let mut tree = TreePageMut(page);
    let count = tree.read().count();
    match record {
        Record::LeafCells { slot, rows, .. } | Record::RowsInsert { slot, rows, .. } => {
            let version = version_of(record);
            for (n, row) in rows.iter().enumerate() {
                let slot = usize::from(*slot) + n;
                check_insert(tree.read(), slot, &row.key, 0)?;
                check_flags(row.flags)?;
                tree.insert(slot, row.flags, version, &row.key, &row.value, LOGGED_LIVE)
                    .map_err(|_| no_room(tree.read(), slot))?;
            }
            Ok(())
        }
        Record::InnerCells { slot, children, .. } => {
            for (n, (key, child)) in children.iter().enumerate() {
                let slot = usize::from(*slot) + n;
                check_insert(tree.read(), slot, key, 1)?;
                tree.insert_child(slot, key, *child)
                    .map_err(|_| no_room(tree.read(), slot))?;
            }
            Ok(())
        }
        Record::Remove {
            slot,
            count: removed,
            ..
        } => {
            let (slot, removed) = (usize::from(*slot), usize::from(*removed));
            if slot + removed > count {
                return Err(missing_slot(slot + removed, count));
            }
            if slot == 0 && removed < count && !tree.read().is_leaf() {
                let detail = "the first child of an inner node alone cannot be removed";
                return Err(Corrupt::at(SLOTS_AT, detail));
            }
            tree.remove(slot, removed);
            Ok(())
        }
        Record::SetHigh { keep, high, .. } => {
            let keep = usize::from(*keep);
            let low = tree.read().low();
            check_key(tree.0.len(), high.as_deref().unwrap_or_default())?;
            if keep > count || high.as_ref().is_some_and(|h| h.as_slice() <= low) {
                return Err(missing_slot(keep, count));
            }
            if let (Some(high), true) = (high, keep > 0)
                && *high <= tree.read().key(keep - 1)
            {
                return Err(Corrupt::at(0, "the high fence is below a key that is kept"));
            }
            tree.set_high(keep, high.as_deref(), LOGGED_LIVE)
                .map_err(|_| no_room(tree.read(), keep))
        }
        _ => replay_row(&mut tree, record),
    }
}

fn replay_row(tree: &mut TreePageMut<'_>, record: &Record) -> Result<(), Corrupt> {
    let (slot, key) = match record {
        Record::RowUpdate { slot, key, .. }
        | Record::RowMark { slot, key, .. }
        | Record::RowRevive { slot, key, .. } => (usize::from(*slot), Some(key)),
        Record::RowUndo { slot, .. } | Record::RowRestore { slot, .. } => {
            (usize::from(*slot), None)
        }
        Record::SetVersions { versions, .. } => return set_versions(tree, versions),
        Record::RowsMark {
            version,
            slot,
            count,
            ..
        } => return mark_rows(tree, *version, (*slot, *count)),
        _ => return Err(Corrupt::at(0, format!("{} changes no page", record.name()))),
    };
    let count = tree.read().count();
    if slot >= count || !tree.read().is_leaf() {
        return Err(missing_slot(slot, count));
    }
    if key.is_some_and(|key| tree.read().key(slot) != *key) {
        return Err(Corrupt::at(
            0,
            format!("{}: slot {slot} holds another key", record.name()),
        ));
    }
    let cell = tree.read().cell(slot);
    let kept = cell.flags & !(CELL_DELETED | CELL_VERSIONED);
    let (flags, value) = match row_change(record) {
        RowChange::Remove => {
            tree.remove(slot, 1);
            return Ok(());
        }
        RowChange::Replace(flags, value) => (flags, value.to_vec()),
        RowChange::Change(flags, diff) => (flags, diff.apply(cell.value)?),
        RowChange::Mark => (kept | CELL_DELETED, cell.value.to_vec()),
        RowChange::Unmark => (kept, cell.value.to_vec()),
    };
    check_flags(flags)?;
    tree.replace(slot, flags, version_of(record), &value, LOGGED_LIVE)
        .map_err(|_| no_room(tree.read(), slot))
}

/// What becomes of a row.
enum RowChange<'r> {
    Remove,
    Replace(u8, &'r [u8]),
    Change(u8, &'r Diff),
    Mark,
    Unmark,
}

fn row_change(record: &Record) -> RowChange<'_> {
    match record {
        Record::RowUpdate { flags, diff, .. } => RowChange::Change(*flags, diff),
        Record::RowRevive { flags, value, .. } => RowChange::Replace(*flags, value),
        Record::RowMark { .. } => RowChange::Mark,
        Record::RowUndo { undo, .. } | Record::RowRestore { undo, .. } => match undo {
            Undo::Insert => RowChange::Remove,
            Undo::Update { flags, diff } => RowChange::Change(*flags, diff),
            Undo::Restore { flags, value } => RowChange::Replace(*flags, value),
            Undo::Mark => RowChange::Unmark,
            Undo::Revive => RowChange::Mark,
        },
        _ => RowChange::Remove,
    }
}

/// The logged version that a record gives to its rows. Other addresses mean nothing to a later run.
fn version_of(record: &Record) -> Option<VersionAddress> {
    match record {
        Record::RowsInsert { trx, .. }
        | Record::RowUpdate { trx, .. }
        | Record::RowMark { trx, .. }
        | Record::RowRevive { trx, .. } => trx.version.map(|version| version.address),
        Record::RowRestore { version, .. } => *version,
        _ => None,
    }
}

fn set_versions(
    tree: &mut TreePageMut<'_>,
    versions: &[(u16, Option<VersionAddress>)],
) -> Result<(), Corrupt> {
    let count = tree.read().count();
    for &(slot, version) in versions {
        let slot = usize::from(slot);
        if slot >= count || !tree.read().is_leaf() {
            return Err(missing_slot(slot, count));
        }
        tree.set_version(slot, version, LOGGED_LIVE)
            .map_err(|_| no_room(tree.read(), slot))?;
    }
    Ok(())
}

/// Marks rows side by side, or takes the mark from them.
fn mark_rows(
    tree: &mut TreePageMut<'_>,
    version: Option<VersionAddress>,
    (slot, rows): (u16, u16),
) -> Result<(), Corrupt> {
    let count = tree.read().count();
    let (slot, end) = (usize::from(slot), usize::from(slot) + usize::from(rows));
    if end > count || rows == 0 || !tree.read().is_leaf() {
        return Err(missing_slot(end, count));
    }
    let is_marked = version.is_none();
    let other = |slot: &usize| tree.read().is_deleted(*slot) != is_marked;
    if let Some(other) = (slot..end).find(other) {
        let what = if is_marked { "not deleted" } else { "deleted" };
        return Err(Corrupt::at(0, format!("ROWS_MARK: slot {other} is {what}")));
    }
    tree.mark(slot..end, version, LOGGED_LIVE)
        .map_err(|_| no_room(tree.read(), slot))
}

fn check_insert(page: TreePage<'_>, slot: usize, key: &[u8], first: usize) -> Result<(), Corrupt> {
    let count = page.count();
    // Slot 0 of an inner node stands for the low fence: nothing goes before it.
    if slot > count || page.is_leaf() != (first == 0) || (slot < first && count > 0) {
        return Err(missing_slot(slot, count));
    }
    check_key(page.0.len(), key)?;
    let above =
        slot <= first || page.cell(slot - 1).suffix < &key[page.prefix_len().min(key.len())..];
    let below = slot >= count || &key[page.prefix_len().min(key.len())..] < page.cell(slot).suffix;
    if !page.covers(key) || !above || !below {
        return Err(Corrupt::at(
            SLOTS_AT,
            format!(
                "a key of {} bytes does not belong at slot {slot} of {count}",
                key.len()
            ),
        ));
    }
    Ok(())
}

fn missing_slot(slot: usize, count: usize) -> Corrupt {
    Corrupt::at(
        SLOTS_AT,
        format!("slot {slot} is named, the page has {count}"),
    )
}

fn no_room(page: TreePage<'_>, slot: usize) -> Corrupt {
    Corrupt::at(
        SLOTS_AT,
        format!("no room at slot {slot}: {} bytes are free", page.free()),
    )
}

#[cfg(test)]
mod tests;
