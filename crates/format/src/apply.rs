//! Applies a redo record to its page: the one code that changes pages, used by mini-transactions
//! while they run and by recovery.

use crate::header::{PageType, init_page, page_type};
use crate::record::{Record, Undo};
use crate::tree_page::{CELL_DELETED, NOTHING_LIVE, SLOTS_AT, TreePage, TreePageMut, key_len_max};
use crate::{Corrupt, PageId};

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

/// Replays `record` on the page that it belongs to. Records that change no page are not for here.
/// An error means that log and page do not fit together: the page must not be used.
pub fn replay(page: &mut [u8], id: PageId, record: &Record) -> Result<(), Corrupt> {
    match record {
        Record::TreeInit { init, .. } => {
            let limit = key_len_max(page.len());
            if init.low.len() > limit || init.high.as_ref().is_some_and(|h| h.len() > limit) {
                return Err(Corrupt::at(
                    0,
                    "a fence is longer than any key of this page size",
                ));
            }
            TreePageMut(page).init(id, init);
            Ok(())
        }
        Record::PageInit { page_type, .. } => {
            let kind = PageType::from_u8(*page_type);
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

fn replay_tree(page: &mut [u8], record: &Record) -> Result<(), Corrupt> {
    if !matches!(page_type(page), Some(PageType::Leaf | PageType::Inner)) {
        return Err(Corrupt::at(
            12,
            format!("{} on a page of type {}", record.name(), page[12]),
        ));
    }
    let mut tree = TreePageMut(page);
    let count = tree.read().count();
    match record {
        Record::LeafCells { slot, rows, .. } | Record::RowsInsert { slot, rows, .. } => {
            for (n, row) in rows.iter().enumerate() {
                let slot = usize::from(*slot) + n;
                check_insert(tree.read(), slot, &row.key, 0)?;
                tree.insert(slot, row.flags, None, &row.key, &row.value, NOTHING_LIVE)
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
            tree.remove(slot, removed);
            Ok(())
        }
        Record::SetHigh { keep, high, .. } => {
            let keep = usize::from(*keep);
            let low = tree.read().low();
            if keep > count || high.as_ref().is_some_and(|h| h.as_slice() <= low) {
                return Err(missing_slot(keep, count));
            }
            if let (Some(high), true) = (high, keep > 0)
                && *high <= tree.read().key(keep - 1)
            {
                return Err(Corrupt::at(0, "the high fence is below a key that is kept"));
            }
            tree.set_high(keep, high.as_deref(), NOTHING_LIVE)
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
        Record::RowUndo { slot, .. } => (usize::from(*slot), None),
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
    let cell_flags = cell.flags;
    let (flags, value) = match record {
        Record::RowUpdate { flags, diff, .. }
        | Record::RowUndo {
            undo: Undo::Update { flags, diff },
            ..
        } => (*flags, diff.apply(cell.value)?),
        Record::RowRevive { flags, value, .. }
        | Record::RowUndo {
            undo: Undo::Restore { flags, value },
            ..
        } => (*flags, value.clone()),
        Record::RowMark { .. }
        | Record::RowUndo {
            undo: Undo::Revive, ..
        } => {
            tree.set_flags(slot, cell_flags | CELL_DELETED);
            return Ok(());
        }
        Record::RowUndo {
            undo: Undo::Mark, ..
        } => {
            tree.set_flags(slot, cell_flags & !CELL_DELETED);
            return Ok(());
        }
        _ => {
            tree.remove(slot, 1);
            return Ok(());
        }
    };
    tree.replace(slot, flags, None, &value, NOTHING_LIVE)
        .map_err(|_| no_room(tree.read(), slot))
}

fn check_insert(page: TreePage<'_>, slot: usize, key: &[u8], first: usize) -> Result<(), Corrupt> {
    let count = page.count();
    if slot > count || page.is_leaf() != (first == 0) {
        return Err(missing_slot(slot, count));
    }
    let above =
        slot <= first || page.cell(slot - 1).suffix < &key[page.prefix_len().min(key.len())..];
    let below = slot >= count
        || slot < first
        || &key[page.prefix_len().min(key.len())..] < page.cell(slot).suffix;
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
