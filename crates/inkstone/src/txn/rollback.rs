//! Undoing changes, newest first, each with a compensation record.
//!
//! A compensation record changes the page back and says that the transaction's last change that was
//! not undone is undone now. So a crash in the middle of a rollback loses nothing: recovery goes on
//! with what is left.

use crate::btree::{SplitFor, Target, Tree};
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::mvcc::versions::{VersionKind, VersionView};
use crate::paranoid::paranoid;
use crate::txn::core::Core;
use crate::txn::promise::rollback_step_bytes;
use crate::txn::transaction::{Inner, Shared};
use crate::{Error, Result};
use inkstone_format::record::{Diff, Record, Undo};
use inkstone_format::space::CLUSTERED_TREE;
use inkstone_format::tree_page::{CELL_DELETED, CELL_VERSIONED, TreePage, TreePageMut, cell_len};
use inkstone_format::{PageId, VersionAddress};
use std::sync::Arc;

/// Undoes the transaction's changes made after version entry `until` (0: all).
pub(crate) fn undo_until(
    core: &Arc<Core>,
    shared: &Shared,
    inner: &mut Inner,
    until: VersionAddress,
) -> Result<()> {
    inner.orphans = true;
    while inner.undo_last != until && inner.undo_last != VersionAddress(0) {
        let address = inner.undo_last;
        let entry = core.versions.read(address)?;
        let Some(entry) = entry else {
            return Err(core
                .storage
                .poison
                .set(format!("version {address} of an open transaction is gone")));
        };
        let view = entry.view();
        paranoid!(
            view.trx.id() == shared.state.id(),
            "{:?} would undo version {address} of {:?}",
            shared.state.id(),
            view.trx.id()
        );
        paranoid!(
            view.undo_previous != address,
            "version {address} was made before itself"
        );
        let first = view.undo_previous == VersionAddress(0);
        if first && mutants::on(Mutant::UndoSkipsFirst) {
            break;
        }
        if let Some(tree) = core.tree(view.space, view.tree)? {
            undo_entry(core, shared.state.slot(), &tree, address, &view)?;
        }
        inner.undo_last = view.undo_previous;
        inner.undo_count = inner.undo_count.saturating_sub(1);
        if view.tree == CLUSTERED_TREE {
            shared.state.take_back_row();
        }
    }
    Ok(())
}

/// Undoes one change that this run has made.
fn undo_entry(
    core: &Arc<Core>,
    trx_slot: u32,
    tree: &Tree,
    address: VersionAddress,
    entry: &VersionView<'_>,
) -> Result<()> {
    undo_row(
        core,
        trx_slot,
        tree,
        entry.key,
        |cell_version, cell_value| {
            if cell_version != Some(address) {
                return Err(format!(
                    "the row's version is {cell_version:?}, not {address}"
                ));
            }
            let previous =
                Some(entry.previous).filter(|&p| p != VersionAddress(0) && core.is_live(p));
            let value = match entry.kind {
                VersionKind::Insert => return Ok(None),
                VersionKind::DeleteMark => cell_value.to_vec(),
                VersionKind::Update | VersionKind::Unmark => entry.old_value.to_vec(),
            };
            let undo = match entry.kind {
                VersionKind::DeleteMark => Undo::Mark,
                VersionKind::Update => Undo::Update {
                    flags: entry.old_flags,
                    diff: Diff::between(cell_value, &value),
                },
                _ => Undo::Restore {
                    flags: entry.old_flags,
                    value: value.clone(),
                },
            };
            Ok(Some(Restored {
                flags: entry.old_flags,
                version: previous,
                value,
                undo,
            }))
        },
    )
}

/// What a row becomes when a change is undone.
pub(crate) struct Restored {
    flags: u8,
    version: Option<VersionAddress>,
    value: Vec<u8>,
    undo: Undo,
}

/// Undoes one change that was gathered from the log. The row is as the change left it.
pub(crate) fn undo_logged(
    core: &Arc<Core>,
    trx_slot: u32,
    tree: &Tree,
    key: &[u8],
    undo: &Undo,
) -> Result<()> {
    undo_row(core, trx_slot, tree, key, |_, cell_value| {
        let (flags, value) = match undo {
            Undo::Insert => return Ok(None),
            Undo::Update { flags, diff } => (
                *flags,
                diff.apply(cell_value)
                    .map_err(|corrupt| corrupt.to_string())?,
            ),
            Undo::Restore { flags, value } => (*flags, value.clone()),
            // The flags of the cell, which `undo_row` knows: only the mark changes.
            Undo::Mark => (KEEP_FLAGS, cell_value.to_vec()),
            Undo::Revive => (KEEP_FLAGS | CELL_DELETED, cell_value.to_vec()),
        };
        Ok(Some(Restored {
            flags,
            version: None,
            value,
            undo: undo.clone(),
        }))
    })
}

/// Says that only the delete mark of a cell's flags is meant.
const KEEP_FLAGS: u8 = 0x80;

/// Finds a row and changes it back. `restore` looks at version and value of the cell and says what
/// they become; `None`: the row is removed; an error: the row is not what it should be.
fn undo_row(
    core: &Arc<Core>,
    trx_slot: u32,
    tree: &Tree,
    key: &[u8],
    restore: impl Fn(Option<VersionAddress>, &[u8]) -> std::result::Result<Option<Restored>, String>,
) -> Result<()> {
    let live = |address| core.is_live(address);
    loop {
        core.storage.poison.check()?;
        let log = &core.storage.log;
        log.prepare_rollback_step(rollback_step_bytes(core))?;
        log.wait_for_space()?;
        let leaf = tree.leaf_exclusive(Target::Key(key))?;
        let page = TreePage(&leaf);
        let id = leaf.id();
        let Ok(slot) = page.search(key) else {
            if core.options.rows_may_be_lost {
                return Ok(());
            }
            return Err(broken(core, tree, id, "the row is missing"));
        };
        let cell = page.cell(slot);
        let restored =
            restore(cell.version, cell.value).map_err(|why| broken(core, tree, id, &why))?;
        let Some(mut restored) = restored else {
            let mut mtr = Mtr::new(&core.storage);
            let index = mtr.push(leaf);
            let record = Record::RowUndo {
                page: id,
                trx_slot,
                slot: slot as u16,
                undo: Undo::Insert,
            };
            mtr.replay(index, &record);
            let thin = TreePage(mtr.page(index)).count() == 0;
            mtr.commit()?;
            // An empty leaf does no harm; the log may be short.
            if thin && log.has_room() {
                tree.merge_around(key, &live)?;
            }
            return Ok(());
        };
        if restored.flags & KEEP_FLAGS != 0 {
            let kept = cell.flags & !(CELL_DELETED | CELL_VERSIONED);
            restored.flags = kept | restored.flags & CELL_DELETED;
        }
        let len = cell_len(
            cell.suffix.len(),
            restored.value.len(),
            restored.version.is_some(),
        );
        let need = if len <= cell.len {
            0
        } else {
            len - cell.len + 8
        };
        if !page.has_room(need, &live) {
            drop(leaf);
            tree.split_leaf(
                SplitFor {
                    key,
                    need,
                    ascending: false,
                },
                &live,
            )?;
            continue;
        }
        let mut mtr = Mtr::new(&core.storage);
        let index = mtr.push(leaf);
        let Restored {
            flags,
            version,
            value,
            undo,
        } = restored;
        let record = Record::RowUndo {
            page: id,
            trx_slot,
            slot: slot as u16,
            undo,
        };
        mtr.change(index, |bytes, payload| {
            let mut target = TreePageMut(bytes);
            let placed = target.replace(slot, flags, version, &value, &live);
            crate::invariant!(
                placed.is_ok(),
                "an old row does not fit page {id} after all"
            );
            record.put(payload);
        });
        return mtr.commit().map(drop);
    }
}

fn broken(core: &Core, tree: &Tree, page: PageId, why: &str) -> Error {
    let corrupt = inkstone_format::Corrupt::at(0, format!("a change cannot be undone: {why}"));
    let error = Error::corrupt_page(tree.space.file().path(), page, corrupt);
    core.storage.poison.set(&error);
    error
}
