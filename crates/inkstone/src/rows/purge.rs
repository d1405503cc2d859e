//! Purge: removing what no snapshot can see any more.
//!
//! Version segments retire as a whole. Before one goes, its entries are looked through: rows that
//! were delete-marked by them and still are, are removed physically; long values that lost their
//! row are freed. Leaves that became thin and could not be merged then are tried again. Marks of
//! earlier runs of the database, which no version tells of, are removed by a write that needs room
//! in their leaf. Trees that were dropped are removed as well.

use crate::Result;
use crate::btree::{Target, Tree};
use crate::counters::Counter;
use crate::mtr::Mtr;
use crate::mvcc::versions::{VersionKind, VersionView};
use crate::paranoid::paranoid;
use crate::txn::core::Core;
use crate::txn::rollback::purge_bulk_delete;
use crate::txn::thin_leaves::ThinLeaf;
use inkstone_format::VersionAddress;
use inkstone_format::record::Record;
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::tree_page::TreePage;
use std::sync::Arc;

/// One round: seals quiet segments, purges and retires what can be, frees long values of
/// rolled-back transactions. Returns the number of retired segments.
pub fn run(core: &Arc<Core>) -> Result<usize> {
    core.storage.poison.check()?;
    let _one_round = core.purging.lock();
    let finished = core.finish_rollbacks();
    if core.storage.log.is_unused() {
        // Nor has anything been written that could be purged.
        return finished.map(|_| 0);
    }
    // On a full disk what is left of the log is for rollbacks: here, and at each row.
    core.storage.log.prepare()?;
    core.versions.seal_idle();
    core.versions.reclaim(core.storage.log.durable_lsn());
    let oldest = core.trxs.oldest_snapshot();
    let retired = core.versions.retire(
        oldest,
        core.storage.log.current_lsn(),
        &mut |address, entry| {
            // What is left is found by the next run, or by a write that needs the room.
            core.check_stopping()?;
            purge_entry(core, address, entry)
        },
    );
    let waiting = std::mem::take(&mut *core.pending_free.lock());
    let mut failed = None;
    for space in waiting {
        if let Err(error) = core.free_pending(space) {
            // Tried again in the next round.
            core.pending_free.lock().insert(space);
            failed.get_or_insert(error);
        }
    }
    let removed = core.remove_dropped_trees();
    let merged = merge_thin_leaves(core);
    finished?;
    removed?;
    merged?;
    retired.and_then(|retired| failed.map_or(Ok(retired), Err))
}

fn purge_entry(core: &Arc<Core>, address: VersionAddress, entry: &VersionView<'_>) -> Result<()> {
    let Some(tree) = core.tree_to_purge(entry.space, entry.tree)? else {
        return Ok(());
    };
    let mut tidy = None;
    if entry.kind == VersionKind::DeleteMark && entry.is_bulk() {
        let rows = entry.bulk_rows(address);
        return purge_bulk_delete(core, &tree, &rows, &mut || {
            core.check_stopping()?;
            core.before_upkeep()?;
            // What is left is left for a write that needs the room, as after a restart.
            drop(tidy.take());
            tidy = tree.space.tidy();
            Ok(tidy.is_some())
        });
    }
    if entry.kind == VersionKind::DeleteMark {
        return remove_marked(core, &tree, address, entry.key);
    }
    if entry.tree == PENDING_FREE_TREE {
        core.pending_free.lock().insert(entry.space);
    }
    Ok(())
}

/// Merges thin leaves that earlier could not be, because of readers.
fn merge_thin_leaves(core: &Arc<Core>) -> Result<()> {
    paranoid!(
        core.purging.try_lock().is_none(),
        "thin leaves are merged outside a round of purge"
    );
    let mut leaves = core.thin_leaves.lock().take();
    while let Some(leaf) = leaves.pop_first() {
        if let Err(error) = merge_thin_leaf(core, leaf) {
            // The others are tried again in the next round.
            let mut waiting = core.thin_leaves.lock();
            leaves.into_iter().for_each(|leaf| waiting.add(leaf));
            return Err(error);
        }
    }
    Ok(())
}

fn merge_thin_leaf(core: &Arc<Core>, (space, tree, key): ThinLeaf) -> Result<()> {
    core.check_stopping()?;
    core.before_upkeep()?;
    let Some(tree) = core.tree_to_purge(space, tree)? else {
        return Ok(());
    };
    let Some(_tidy) = tree.space.tidy() else {
        return Ok(());
    };
    core.merge_around(&tree, &key)
}

/// Removes a row if it is still delete-marked by the entry at `address`.
fn remove_marked(core: &Arc<Core>, tree: &Tree, address: VersionAddress, key: &[u8]) -> Result<()> {
    core.before_upkeep()?;
    let Some(_tidy) = tree.space.tidy() else {
        // It is left for a write that needs the room, as after a restart.
        return Ok(());
    };
    let leaf = tree.leaf_exclusive(Target::Key(key))?;
    let page = TreePage(&leaf);
    let Ok(slot) = page.search(key) else {
        return Ok(());
    };
    let cell = page.cell(slot);
    if !cell.is_deleted() || cell.version != Some(address) {
        return Ok(());
    }
    let id = leaf.id();
    let mut mtr = Mtr::new(&core.storage);
    let index = mtr.push(leaf);
    mtr.replay(
        index,
        &Record::Remove {
            page: id,
            slot: slot as u16,
            count: 1,
        },
    );
    let page = TreePage(mtr.page(index));
    paranoid!(
        page.search(key).is_err(),
        "row {key:x?} is still in page {id} after it was purged"
    );
    // Not at every row: merging is tried when a page has become thin by some margin.
    let thin = page.count() == 0 || Tree::is_thin(page) && page.count() % 8 == 0;
    mtr.commit()?;
    core.storage.counters.add(Counter::RowsPurged, 1);
    if thin {
        core.merge_around(tree, key)?;
    }
    Ok(())
}
