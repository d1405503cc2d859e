//! Undoing changes, newest first, each with a compensation record.
//!
//! A compensation record changes the page back and says that the transaction's last change that was
//! not undone is undone now. So a crash in the middle of a rollback loses nothing: recovery goes on
//! with what is left.

use crate::btree::{SplitFor, Target, Tree};
use crate::counters::Counter;
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::mvcc::versions::{BulkRows, MARK_ONLY, RUN, VersionKind, VersionView};
use crate::paranoid::paranoid;
use crate::txn::core::Core;
use crate::txn::state::{Inner, Shared};
use crate::unlogged::init_like;
use crate::{Error, Result};
use inkstone_format::record::{Diff, Record, Undo};
use inkstone_format::space::CLUSTERED_TREE;
use inkstone_format::tree_page::{
    CELL_DELETED, CELL_VERSIONED, Cell, TreePage, TreePageMut, cell_len,
};
use inkstone_format::{Corrupt, PageId, VersionAddress};
use std::sync::Arc;

/// Undoes the transaction's changes made after version entry `until` (0: all).
pub(crate) fn undo_until(
    core: &Arc<Core>,
    shared: &Shared,
    inner: &mut Inner,
    until: VersionAddress,
) -> Result<()> {
    inner.orphans = true;
    inner.bulks.clear();
    loop {
        core.before_undo(Some((shared, inner)))?;
        let address = inner.undo_last;
        // The undo may have moved before this step.
        if address == inner.undo_place.now(until) || address == VersionAddress(0) {
            return Ok(());
        }
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
        core.versions.unlist_milestone(&view, address);
        let first = view.undo_previous == VersionAddress(0);
        if first && mutants::on(Mutant::UndoSkipsFirst) {
            return Ok(());
        }
        let undone = undo_entry(core, shared, inner, address, &view)?;
        paranoid!(
            inner.undo_last == address,
            "version {} was the last one while {address} was undone",
            inner.undo_last
        );
        let (Undone::All(rows) | Undone::Part(rows)) = undone;
        inner.undo_count = inner.undo_count.saturating_sub(rows);
        if view.tree == CLUSTERED_TREE {
            shared.state.take_back_rows(rows);
        }
        paranoid!(
            inner.undo_place.undone_rows == 0 || view.flags & RUN != 0,
            "version {address} is of one row, of which {} are undone",
            inner.undo_place.undone_rows
        );
        if let Undone::Part(rows) = undone {
            inner.undo_place.undone_rows += rows as usize;
            continue;
        }
        inner.undo_place.undone_rows = 0;
        inner.undo_last = view.undo_previous;
        if inner.undo_last == VersionAddress(0) {
            // Of a dropped table's bulk the rows were not counted.
            inner.undo_count = 0;
        }
    }
}

/// Undoes a version, or as much of it as the log has room for.
fn undo_entry(
    core: &Arc<Core>,
    shared: &Shared,
    inner: &mut Inner,
    address: VersionAddress,
    view: &VersionView<'_>,
) -> Result<Undone> {
    let tree = core.tree(view.space, view.tree);
    let undone = tree.and_then(|tree| {
        let undo = |tree: Tree| {
            if !view.is_bulk() {
                return undo_version(core, shared, inner, &tree, address, view);
            }
            let mut before_step = || core.before_undo(Some((shared, inner)));
            undo_bulk(core, &tree, &view.bulk_rows(address), &mut before_step).map(Undone::All)
        };
        tree.map(undo).transpose()
    });
    match undone {
        Ok(Some(undone)) => Ok(undone),
        // The table may be dropped while it is looked for, or changed back.
        Err(error) if !core.is_space_dropped(view.space) => Err(error),
        Ok(None) | Err(_) => {
            inner.undo_place.passed_over = true;
            let left = view.rows().saturating_sub(inner.undo_place.undone_rows);
            Ok(Undone::All(left as u64))
        }
    }
}

/// Whether the transaction has come past version entry `place`, and has not undone it: an entry
/// that was undone is never met on the way back.
pub(crate) fn leads_to(core: &Core, inner: &Inner, place: VersionAddress) -> Result<bool> {
    let mut at = inner.undo_last;
    while at != place && at != VersionAddress(0) {
        let Some(entry) = core.versions.read(at)? else {
            return Err(core.versions.corrupt(
                at,
                Corrupt {
                    offset: 0,
                    detail: "the version of an open transaction is gone".to_owned(),
                },
            ));
        };
        at = entry.view().undo_previous;
    }
    Ok(at == place)
}

/// How much of a version was undone, in rows.
enum Undone {
    All(u64),
    /// The log has no room just now for the others.
    Part(u64),
}

/// Undoes one change that this run has made, of a row or of those of several that are left, the
/// last one first.
fn undo_version(
    core: &Arc<Core>,
    shared: &Shared,
    inner: &Inner,
    tree: &Tree,
    address: VersionAddress,
    entry: &VersionView<'_>,
) -> Result<Undone> {
    let place = &inner.undo_place;
    let log_as = if place.is_moved() {
        LogAs::Restore
    } else {
        LogAs::Undo(shared.state.slot())
    };
    let keys = entry
        .keys()
        .map_err(|c| core.versions.corrupt(address, c))?;
    let mut rows = 0;
    for key in keys.iter().rev().skip(place.undone_rows) {
        let is_undone = undo_row(core, log_as, tree, key, |found| {
            // Of several rows some may have been undone before a failure.
            let is_its = found.is_some_and(|cell| place.is_version(cell.version, address));
            match (found, is_its) {
                (Some(cell), true) => {
                    restored(core, entry, cell.value).map_err(|corrupt| corrupt.detail)
                }
                _ if entry.flags & RUN != 0 => Ok(After::AsItIs),
                (None, _) => Err("the row is missing".to_owned()),
                (Some(cell), _) => {
                    let version = cell.version;
                    Err(format!("the row's version is {version:?}, not {address}"))
                }
            }
        })?;
        if !is_undone {
            return Ok(Undone::Part(rows));
        }
        rows += 1;
    }
    Ok(Undone::All(rows))
}

/// What undoing a version makes of its row, which has the value that the change gave it.
fn restored(
    core: &Core,
    entry: &VersionView<'_>,
    value: &[u8],
) -> std::result::Result<After, Corrupt> {
    let previous = Some(entry.previous).filter(|&p| p != VersionAddress(0) && core.is_live(p));
    let (flags, value, undo) = match entry.kind {
        VersionKind::Insert => return Ok(After::Gone),
        VersionKind::DeleteMark => (Flags::Unmarked, value.to_vec(), Undo::Mark),
        VersionKind::Unmark if entry.flags & MARK_ONLY != 0 => {
            (Flags::Marked, value.to_vec(), Undo::Revive)
        }
        VersionKind::Update => {
            let (flags, old) = (entry.old_flags, entry.old_value(value)?.into_owned());
            let diff = Diff::between(value, &old);
            (Flags::These(flags), old, Undo::Update { flags, diff })
        }
        VersionKind::Unmark => {
            let (flags, old) = (entry.old_flags, entry.old_value(value)?.into_owned());
            let value = old.clone();
            (Flags::These(flags), old, Undo::Restore { flags, value })
        }
    };
    Ok(After::Restored(Restored {
        flags,
        version: previous,
        value,
        undo,
    }))
}

/// Undoes one version that an earlier run has made, of the rows that still have it. Counts those in
/// `undone`; false if the log has no room just now, so that it must be undone again.
pub(crate) fn undo_recovered_version(
    core: &Arc<Core>,
    tree: &Tree,
    address: VersionAddress,
    entry: &VersionView<'_>,
    undone: &mut u64,
) -> Result<bool> {
    let keys = entry
        .keys()
        .map_err(|c| core.versions.corrupt(address, c))?;
    for key in keys.iter().rev() {
        let mut is_its = false;
        let is_done = undo_row(core, LogAs::Restore, tree, key, |found| {
            is_its = found.is_some_and(|cell| cell.version == Some(address));
            match found {
                Some(cell) if is_its => {
                    restored(core, entry, cell.value).map_err(|corrupt| corrupt.detail)
                }
                _ => Ok(After::AsItIs),
            }
        })?;
        if !is_done {
            return Ok(false);
        }
        *undone += u64::from(is_its);
    }
    Ok(true)
}

/// Undoes a bulk. Undoing it again finds nothing. `before_step`: waits for room in the log, with no
/// page latched. How many rows.
pub(crate) fn undo_bulk(
    core: &Arc<Core>,
    tree: &Tree,
    rows: &BulkRows,
    before_step: &mut dyn FnMut() -> Result<()>,
) -> Result<u64> {
    paranoid!(
        (rows.space, rows.tree) == (tree.space.id, tree.id) && rows.address.is_logged(),
        "{rows:?} are undone in tree {} of tablespace {}",
        tree.id,
        tree.space.id
    );
    match &rows.deleted_to {
        Some(to) => undo_bulk_delete(core, tree, rows, to.as_deref(), before_step),
        None => undo_bulk_insert(core, tree, rows.address, &rows.from, before_step),
    }
}

/// Takes the mark from the rows of a bulk delete, leaf by leaf from the first one: no row moves,
/// and none needs room.
fn undo_bulk_delete(
    core: &Arc<Core>,
    tree: &Tree,
    rows: &BulkRows,
    to: Option<&[u8]>,
    before_step: &mut dyn FnMut() -> Result<()>,
) -> Result<u64> {
    let (mut undone, mut at) = (0, rows.from.clone());
    loop {
        before_step()?;
        if !core.begin_undo(true)? {
            continue;
        }
        let leaf = tree.leaf_exclusive(Target::Key(&at))?;
        let (page, runs) = (leaf.id(), runs_of(TreePage(&leaf), rows.address));
        let next = TreePage(&leaf).high().map(<[u8]>::to_vec);
        if !runs.is_empty() {
            let mut mtr = Mtr::new(&core.storage);
            let index = mtr.push(leaf);
            for &(slot, count) in &runs {
                paranoid!(
                    TreePage(mtr.page(index)).is_deleted(slot),
                    "slot {slot} of page {page} has the version of a bulk delete, and is there"
                );
                // Not replayed: that keeps the logged addresses of other rows only.
                let live = core.liveness();
                mtr.change(index, |bytes, payload| {
                    let placed = TreePageMut(bytes).mark(slot..slot + count, None, &live);
                    crate::invariant!(placed.is_ok(), "rows without marks do not fit {page}");
                    let (slot, count) = (slot as u16, count as u16);
                    let record = Record::RowsMark {
                        page,
                        version: None,
                        slot,
                        count,
                    };
                    record.put(payload);
                });
            }
            mtr.commit()?;
            undone += runs.iter().map(|&(_, count)| count as u64).sum::<u64>();
        }
        match next.filter(|next| to.is_none_or(|to| &next[..] < to)) {
            Some(next) => at = next,
            None => {
                let any = u64::from(undone > 0);
                core.storage.counters.add(Counter::BulkDeletesUndone, any);
                return Ok(undone);
            }
        }
    }
}

/// Removes the rows of a bulk delete for good, leaf by leaf from the last one, as the rows of a
/// bulk insert go: an empty leaf goes from its parent, and no row moves. `before_step` says whether
/// to go on.
pub(crate) fn purge_bulk_delete(
    core: &Arc<Core>,
    tree: &Tree,
    rows: &BulkRows,
    before_step: &mut dyn FnMut() -> Result<bool>,
) -> Result<()> {
    let mut above = rows.deleted_to.clone().flatten();
    while before_step()? {
        let target = above.as_deref().map_or(Target::Last, Target::Before);
        let leaf = tree.leaf_exclusive(target)?;
        let low = TreePage(&leaf).low().to_vec();
        let runs = runs_of(TreePage(&leaf), rows.address);
        let mut thin = TreePage(&leaf).count() == 0;
        if !runs.is_empty() {
            let mut mtr = Mtr::new(&core.storage);
            let index = mtr.push(leaf);
            paranoid!(
                runs.iter()
                    .all(|&(slot, _)| TreePage(mtr.page(index)).is_deleted(slot)),
                "a row of {rows:?} is purged, and is there"
            );
            remove_runs(&mut mtr, index, &runs);
            thin = Tree::is_thin(TreePage(mtr.page(index)));
            mtr.commit()?;
            let removed = runs.iter().map(|&(_, count)| count as u64).sum::<u64>();
            core.storage.counters.add(Counter::RowsPurged, removed);
        } else {
            drop(leaf);
        }
        // An empty leaf does no harm; the log may be short.
        if thin && core.storage.log.has_room() {
            core.merge_around(tree, &low)?;
        }
        if low <= rows.from {
            return Ok(());
        }
        above = Some(low);
    }
    Ok(())
}

/// Undoes a bulk insert: the rows of keys from `from` on that have its version go, leaf by leaf
/// from the last one, so that each empty leaf is left of nothing that would have to move. Undoing
/// it again finds none. `before_step`: waits for room in the log, with no page latched. How many
/// rows.
fn undo_bulk_insert(
    core: &Arc<Core>,
    tree: &Tree,
    address: VersionAddress,
    from: &[u8],
    before_step: &mut dyn FnMut() -> Result<()>,
) -> Result<u64> {
    let (mut undone, mut above): (u64, Option<Vec<u8>>) = (0, None);
    loop {
        before_step()?;
        if !core.begin_undo(true)? {
            continue;
        }
        let target = above.as_deref().map_or(Target::Last, Target::Before);
        let leaf = tree.leaf_exclusive(target)?;
        let low = TreePage(&leaf).low().to_vec();
        let is_last = TreePage(&leaf).high().is_none();
        paranoid!(
            above.as_deref().is_none_or(|above| &low[..] < above),
            "the leaf before {above:x?} begins at {low:x?}"
        );
        let runs = runs_of(TreePage(&leaf), address);
        let mut thin = TreePage(&leaf).count() == 0;
        if thin || !runs.is_empty() {
            let mut mtr = Mtr::new(&core.storage);
            let index = mtr.push(leaf);
            remove_runs(&mut mtr, index, &runs);
            thin = Tree::is_thin(TreePage(mtr.page(index)));
            mtr.commit()?;
            undone += runs.iter().map(|&(_, count)| count as u64).sum::<u64>();
        } else {
            drop(leaf);
        }
        let is_first = &low[..] <= from;
        // The last leaf waits for the one before it to be empty, too: with rows that the log lacks
        // that would have to be logged whole.
        let left_out = core.storage.unlogged.has(address);
        let around = match (thin, left_out) {
            (true, _) if is_first || !is_last || !left_out => Some(&low),
            (false, true) if is_first => above.as_ref(),
            _ => None,
        };
        // An empty leaf does no harm; the log may be short.
        if let Some(key) = around.filter(|_| core.storage.log.has_room()) {
            core.merge_around(tree, key)?;
        }
        if is_first {
            let any = u64::from(undone > 0);
            core.storage.counters.add(Counter::BulksUndone, any);
            return Ok(undone);
        }
        above = Some(low);
    }
}

/// Removes rows of a bulk. A leaf of which the log may lack some is emptied as a whole. So
/// is one that is empty already: redo may have made it so, with the LSN of a version with rows that
/// the disk may have, and from now on that version is known for older.
fn remove_runs(mtr: &mut Mtr<'_>, index: usize, runs: &[(usize, usize)]) {
    let (page, leaf) = (mtr.id(index), TreePage(mtr.page(index)));
    if runs.iter().map(|&(_, count)| count).sum::<usize>() == leaf.count() {
        let init = init_like(leaf);
        return mtr.replay(index, &Record::TreeInit { page, init });
    }
    for &(slot, count) in runs.iter().rev() {
        let (slot, count) = (slot as u16, count as u16);
        mtr.replay(index, &Record::Remove { page, slot, count });
    }
}

/// The rows of a leaf that have a version: slots where rows stand side by side, and how many.
fn runs_of(page: TreePage<'_>, address: VersionAddress) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    paranoid!(
        address.is_logged(),
        "a bulk has version {address}, which the log does not name"
    );
    for slot in (0..page.count()).filter(|&slot| page.version(slot) == Some(address)) {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == slot => *count += 1,
            _ => runs.push((slot, 1)),
        }
    }
    runs
}

/// What a row becomes.
enum After {
    Restored(Restored),
    Gone,
    /// It was undone before.
    AsItIs,
}

/// How a change back is logged.
#[derive(Clone, Copy)]
enum LogAs {
    /// For a transaction in this slot, whose undo is in the log.
    Undo(u32),
    /// The row's version tells that it is undone.
    Restore,
}

impl LogAs {
    fn record(
        self,
        page: PageId,
        slot: usize,
        version: Option<VersionAddress>,
        undo: Undo,
    ) -> Record {
        let slot = slot as u16;
        match self {
            Self::Undo(trx_slot) => Record::RowUndo {
                page,
                trx_slot,
                slot,
                undo,
            },
            Self::Restore => Record::RowRestore {
                page,
                slot,
                version: version.filter(|version| version.is_logged()),
                undo,
            },
        }
    }
}

/// What a row becomes when a change is undone.
pub(crate) struct Restored {
    flags: Flags,
    version: Option<VersionAddress>,
    value: Vec<u8>,
    undo: Undo,
}

/// The flags that a row's cell gets back.
#[derive(Clone, Copy)]
enum Flags {
    These(u8),
    /// Its own, without a delete mark.
    Unmarked,
    /// Its own, with one.
    Marked,
}

impl Flags {
    /// For a cell that has `own` now.
    fn of(self, own: u8) -> u8 {
        let kept = own & !(CELL_DELETED | CELL_VERSIONED);
        match self {
            Self::These(flags) => flags,
            Self::Unmarked => kept,
            Self::Marked => kept | CELL_DELETED,
        }
    }
}

/// Undoes one change that was gathered from the log. The row is as the change left it.
pub(crate) fn undo_logged(
    core: &Arc<Core>,
    trx_slot: u32,
    tree: &Tree,
    key: &[u8],
    undo: &Undo,
) -> Result<()> {
    let restore = |found: Option<Cell<'_>>| {
        let cell_value = found.ok_or("the row is missing")?.value;
        let (flags, value) = match undo {
            Undo::Insert => return Ok(After::Gone),
            Undo::Update { flags, diff } => (
                Flags::These(*flags),
                diff.apply(cell_value)
                    .map_err(|corrupt| corrupt.to_string())?,
            ),
            Undo::Restore { flags, value } => (Flags::These(*flags), value.clone()),
            Undo::Mark => (Flags::Unmarked, cell_value.to_vec()),
            Undo::Revive => (Flags::Marked, cell_value.to_vec()),
        };
        Ok(After::Restored(Restored {
            flags,
            version: None,
            value,
            undo: undo.clone(),
        }))
    };
    loop {
        core.before_undo(None)?;
        if undo_row(core, LogAs::Undo(trx_slot), tree, key, restore)? {
            return Ok(());
        }
    }
}

/// Finds a row and changes it back; false if the log has no room just now. `restore` looks at the
/// cell and says what becomes of it; an error: the row is not what it should be.
fn undo_row(
    core: &Arc<Core>,
    log_as: LogAs,
    tree: &Tree,
    key: &[u8],
    mut restore: impl FnMut(Option<Cell<'_>>) -> std::result::Result<After, String>,
) -> Result<bool> {
    let live = |address| core.keeps(address);
    loop {
        if !core.begin_undo(matches!(log_as, LogAs::Restore))? {
            return Ok(false);
        }
        let leaf = tree.leaf_exclusive(Target::Key(key))?;
        let page = TreePage(&leaf);
        let id = leaf.id();
        let found = page.search(key);
        if found.is_err() && core.options.rows_may_be_lost {
            return Ok(true);
        }
        let restored = restore(found.ok().map(|slot| page.cell(slot)))
            .map_err(|why| broken(core, tree, id, &why))?;
        let (Ok(slot), false) = (found, matches!(restored, After::AsItIs)) else {
            return Ok(true);
        };
        let cell = page.cell(slot);
        let After::Restored(restored) = restored else {
            let mut mtr = Mtr::new(&core.storage);
            let index = mtr.push(leaf);
            mtr.replay(index, &log_as.record(id, slot, None, Undo::Insert));
            let left = TreePage(mtr.page(index));
            paranoid!(
                left.search(key).is_err(),
                "row {key:x?} is still in page {id} after its insert was undone"
            );
            let thin = left.count() == 0;
            mtr.commit()?;
            // An empty leaf does no harm; the log may be short.
            if thin && core.storage.log.has_room() {
                core.merge_around(tree, key)?;
            }
            return Ok(true);
        };
        let flags = restored.flags.of(cell.flags);
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
            tree.split_leaf(SplitFor::row(key, need), &live)?;
            continue;
        }
        let mut mtr = Mtr::new(&core.storage);
        let index = mtr.push(leaf);
        let Restored {
            version,
            value,
            undo,
            ..
        } = restored;
        let record = log_as.record(id, slot, version, undo);
        mtr.change(index, |bytes, payload| {
            let mut target = TreePageMut(bytes);
            let placed = target.replace(slot, flags, version, &value, &live);
            crate::invariant!(
                placed.is_ok(),
                "an old row does not fit page {id} after all"
            );
            record.put(payload);
        });
        paranoid!(
            TreePage(mtr.page(index)).version(slot) == version,
            "row {key:x?} of page {id} does not have its version {version:?} back"
        );
        return mtr.commit().map(|_| true);
    }
}

fn broken(core: &Core, tree: &Tree, page: PageId, why: &str) -> Error {
    let corrupt = inkstone_format::Corrupt::at(0, format!("a change cannot be undone: {why}"));
    let error = Error::corrupt_page(tree.space.file().path(), page, corrupt);
    core.storage.poison.set(&error);
    error
}
