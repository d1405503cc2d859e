//! Changing a row in its leaf, which is latched: the version, the page and the record.

use crate::Result;
use crate::btree::Tree;
use crate::buffer::Exclusive;
use crate::counters::Counter;
use crate::locks::Waiting;
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::mvcc::versions::{NO_PURGE, NewVersion, SPLICED, VersionKind, is_milestone, spliced};
use crate::paranoid::paranoid;
use crate::rows::overflow::chains;
use crate::txn::change::{Change, Coding, Made};
use crate::txn::core::Core;
use crate::txn::promise::undo_log_bytes;
use crate::txn::state::Inner;
use crate::txn::transaction::Transaction;
use inkstone_format::record::{Diff, Record, TrxRef, put_insert};
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::tree_page::{
    CELL_DELETED, CELL_OVERFLOW, CELL_VERSIONED, SLOT_LEN, TreePage, TreePageMut, cell_len,
};
use inkstone_format::{PageId, PageNo, TreeId, VersionAddress};
use std::borrow::Cow;

/// A row's place: a slot of its leaf, which is latched.
pub(super) struct Here<'h> {
    pub tree: &'h Tree,
    pub leaf: Exclusive<'h>,
    /// Where the row is, or belongs.
    pub slot: usize,
    pub key: &'h [u8],
}

/// What a write found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// There was no row.
    Inserted,
    /// The row was changed or deleted.
    Changed,
    /// There is a row, and the write wanted none.
    Exists,
    /// There is no row, and the write wanted one.
    Missing,
}

/// A value as it is put into a cell.
#[derive(Clone, Copy)]
pub(super) struct CellValue<'a> {
    pub bytes: &'a [u8],
    /// 0 or `CELL_OVERFLOW`.
    pub flags: u8,
    /// Chains that the row has already, and keeps: it is locked.
    pub kept: &'a [PageNo],
}

/// One attempt's outcome.
pub(super) enum Attempt<'l> {
    Done(Written),
    Wait(Waiting<'l>),
    /// The leaf was cleaned under a latch that is gone now: look again.
    Again,
    Split {
        need: usize,
        ascending: bool,
    },
}

/// A row's change, but for its place.
struct Replacement<'r> {
    old: &'r OldCell,
    value: CellValue<'r>,
    kind: VersionKind,
    kept: KeptValue<'r>,
    logged: Logged,
}

/// What the log has of a change.
enum Logged {
    Update(Diff),
    /// The whole new value.
    Revive,
    Mark,
}

impl Core {
    /// Counts a change of a row; long values that wait to be freed are none.
    fn count_row(&self, tree: &Tree, counter: Counter) {
        if tree.id != PENDING_FREE_TREE {
            self.storage.counters.add(counter, 1);
        }
    }
}

impl Transaction {
    /// Whether this transaction made the newest version of a row.
    fn is_own(&self, version: Option<VersionAddress>) -> Result<bool> {
        let Some(address) = version else {
            return Ok(false);
        };
        let trx = self.core.versions.trx_of(address, u64::MAX)?;
        Ok(trx.is_some_and(|trx| trx.id() == self.shared.state.id()))
    }

    fn change<'a>(&'a self, inner: &'a mut Inner) -> Change<'a> {
        Change {
            core: &self.core,
            shared: &self.shared,
            inner,
        }
    }

    /// Puts a row where there is none of its key.
    pub(super) fn insert_row(
        &self,
        inner: &mut Inner,
        here: Here<'_>,
        value: CellValue<'_>,
    ) -> Result<Attempt<'_>> {
        let Here {
            tree,
            leaf,
            slot,
            key,
        } = here;
        let (core, page) = (&self.core, leaf.id());
        let live = core.liveness();
        paranoid!(
            slot <= TreePage(&leaf).count() && TreePage(&leaf).covers(key),
            "a row goes to slot {slot} of page {page}, which does not cover it"
        );
        paranoid!(
            value.flags & !CELL_OVERFLOW == 0,
            "a new row has flags {:#x}",
            value.flags
        );
        crate::invariant!(
            value.kept.is_empty(),
            "a new row keeps the chains {:?}",
            value.kept
        );
        let prefix_len = TreePage(&leaf).prefix_len();
        let need = cell_len(key.len() - prefix_len, value.bytes.len(), true) + SLOT_LEN;
        let last = inner.last_insert;
        let beside = |at: usize| last == Some((page.space, tree.id, page.page, at as u16));
        let ascending = slot > 0 && beside(slot - 1);
        let leaf = match make_room(core, leaf, need, key)? {
            Room::Yes(leaf) => leaf,
            Room::Cleaned => return Ok(Attempt::Again),
            Room::No => return Ok(Attempt::Split { need, ascending }),
        };
        let mut change = self.change(inner);
        let coding = change.ready_context();
        let address = change.version(NewVersion {
            kind: VersionKind::Insert,
            flags: purge_flag(tree.id),
            space: page.space,
            tree: tree.id,
            key,
            old_flags: 0,
            old_value: &[],
            previous: VersionAddress(0),
            undo_previous: change.inner.undo_last,
            steps: 0,
        })?;
        let trx = change.shared.trx_ref(change.inner, address, None);
        let mut mtr = Mtr::new(&core.storage);
        let index = mtr.push(leaf);
        let context = &mut change.inner.context;
        mtr.change(index, |bytes, payload| {
            let mut target = TreePageMut(bytes);
            let placed = target.insert(slot, value.flags, Some(address), key, value.bytes, &live);
            crate::invariant!(placed.is_ok(), "a row does not fit page {page} after all");
            let slot = slot as u16;
            put_insert(
                payload,
                context,
                trx,
                page,
                tree.id,
                slot,
                value.flags,
                key,
                value.bytes,
            );
        });
        paranoid!(
            TreePage(mtr.page(index)).version(slot) == Some(address),
            "slot {slot} of page {page} does not have version {address}"
        );
        let made = Made {
            address,
            tree: tree.id,
            rows: 1,
            undo_bytes: undo_log_bytes(0, 0),
            coding,
            is_of_bulk: false,
        };
        change.commit(mtr, made)?;
        inner.last_insert = Some((page.space, tree.id, page.page, slot as u16));
        core.count_row(tree, Counter::RowsInserted);
        Ok(Attempt::Done(Written::Inserted))
    }

    /// Gives a row that is there another value.
    pub(super) fn update_row(
        &self,
        inner: &mut Inner,
        here: Here<'_>,
        value: CellValue<'_>,
    ) -> Result<Attempt<'_>> {
        let (tree, old) = (here.tree, OldCell::of(&here));
        let diff = Diff::between(&old.value, value.bytes);
        paranoid!(
            (old.flags | value.flags) & CELL_DELETED == 0,
            "a row with flags {:#x} is updated to one with {:#x}",
            old.flags,
            value.flags
        );
        check_kept(&old, value.kept);
        let purge = if old.flags & CELL_OVERFLOW != 0 {
            0
        } else {
            NO_PURGE
        };
        let change = Replacement {
            kept: KeptValue::of(inner, &old, Some(&diff), purge),
            old: &old,
            value,
            kind: VersionKind::Update,
            logged: Logged::Update(diff),
        };
        let done = self.replace_row(inner, here, change)?;
        if matches!(done, Attempt::Done(_)) {
            self.core.count_row(tree, Counter::RowsUpdated);
            self.drop_long_value(inner, tree, &old, value.kept)?;
        }
        Ok(done)
    }

    /// Puts a row where there is a delete-marked one of its key.
    pub(super) fn revive_row(
        &self,
        inner: &mut Inner,
        here: Here<'_>,
        value: CellValue<'_>,
    ) -> Result<Attempt<'_>> {
        let old = OldCell::of(&here);
        paranoid!(
            old.flags & CELL_DELETED != 0 && value.flags & CELL_DELETED == 0,
            "a row with flags {:#x} is revived with {:#x}",
            old.flags,
            value.flags
        );
        crate::invariant!(
            value.kept.is_empty(),
            "a row that was deleted keeps the chains {:?}",
            value.kept
        );
        // If this transaction has deleted the row, undoing that needs the old value again, which a
        // revival's record does not hold.
        let own = self.is_own(old.version)?;
        let diff = own.then(|| Diff::between(&old.value, value.bytes));
        let change = Replacement {
            kept: KeptValue::of(inner, &old, diff.as_ref(), purge_flag(here.tree.id)),
            old: &old,
            value,
            kind: VersionKind::Unmark,
            logged: diff.map_or(Logged::Revive, Logged::Update),
        };
        let tree = here.tree;
        let done = self.replace_row(inner, here, change)?;
        if let Attempt::Done(_) = done {
            self.core.count_row(tree, Counter::RowsInserted);
            return Ok(Attempt::Done(Written::Inserted));
        }
        Ok(done)
    }

    /// Delete-marks a row.
    pub(super) fn mark_row(&self, inner: &mut Inner, here: Here<'_>) -> Result<Attempt<'_>> {
        let (tree, old) = (here.tree, OldCell::of(&here));
        paranoid!(
            old.flags & CELL_DELETED == 0,
            "a row is deleted that is not there: flags {:#x}",
            old.flags
        );
        let kept = old.value.clone();
        let change = Replacement {
            old: &old,
            value: CellValue {
                bytes: &kept,
                flags: old.flags | CELL_DELETED,
                kept: &[],
            },
            kind: VersionKind::DeleteMark,
            kept: KeptValue {
                bytes: Cow::Borrowed(&[]),
                flags: 0,
            },
            logged: Logged::Mark,
        };
        let done = self.replace_row(inner, here, change)?;
        if matches!(done, Attempt::Done(_)) {
            self.core.count_row(tree, Counter::RowsDeleted);
            self.drop_long_value(inner, tree, &old, &[])?;
        }
        Ok(done)
    }

    fn replace_row(
        &self,
        inner: &mut Inner,
        here: Here<'_>,
        change: Replacement<'_>,
    ) -> Result<Attempt<'_>> {
        let Replacement {
            old, value, kind, ..
        } = change;
        let (core, page, tree) = (&self.core, here.leaf.id(), here.tree.id);
        let (key, slot) = (here.key, here.slot);
        let live = core.liveness();
        let suffix = key.len() - TreePage(&here.leaf).prefix_len();
        let len = cell_len(suffix, value.bytes.len(), true);
        // An address that no longer matters is part of the old cell's length already.
        let own_dead = if old.version.is_some_and(|v| !core.keeps(v)) {
            8
        } else {
            0
        };
        let need = if len <= old.len {
            0
        } else {
            len - old.len + own_dead
        };
        let leaf = match make_room(core, here.leaf, need, key)? {
            Room::Yes(leaf) => leaf,
            Room::Cleaned => return Ok(Attempt::Again),
            Room::No => {
                return Ok(Attempt::Split {
                    need,
                    ascending: false,
                });
            }
        };
        let put_back = change.bytes_to_put_back();
        let previous = old.version.filter(|&address| core.is_live(address));
        let mut steps = core.versions.steps_after(previous);
        if kind != VersionKind::DeleteMark {
            steps = core.versions.or_milestone(steps);
        }
        let whole;
        let kept = if is_milestone(steps) && change.kept.flags & SPLICED != 0 {
            whole = spliced(0, 0, &old.value);
            &*whole
        } else {
            &*change.kept.bytes
        };
        let mut row = self.change(inner);
        let address = row.version(NewVersion {
            kind,
            flags: change.kept.flags,
            space: page.space,
            tree,
            key,
            old_flags: old.flags,
            old_value: kept,
            previous: previous.unwrap_or_default(),
            undo_previous: row.inner.undo_last,
            steps,
        })?;
        paranoid!(
            previous != Some(address),
            "version {address} of a row is its own predecessor"
        );
        let trx = row.shared.trx_ref(row.inner, address, previous);
        let record = change.record(page, trx, tree, slot as u16, key);
        let mut mtr = Mtr::new(&core.storage);
        let index = mtr.push(leaf);
        mtr.change(index, |bytes, payload| {
            let mut target = TreePageMut(bytes);
            let placed = target.replace(slot, value.flags, Some(address), value.bytes, &live);
            crate::invariant!(placed.is_ok(), "a row does not fit page {page} after all");
            record.put(payload);
        });
        paranoid!(
            TreePage(mtr.page(index)).version(slot) == Some(address),
            "slot {slot} of page {page} does not have version {address}"
        );
        let made = Made {
            address,
            tree,
            rows: 1,
            undo_bytes: undo_log_bytes(put_back, old.len.saturating_sub(len)),
            coding: Coding::Apart,
            is_of_bulk: false,
        };
        row.commit(mtr, made)?;
        Ok(Attempt::Done(Written::Changed))
    }
}

/// That a row has the chains which its new version keeps: others may be freed, or another row's.
fn check_kept(old: &OldCell, kept: &[PageNo]) {
    if kept.is_empty() {
        return;
    }
    let has = if old.flags & CELL_OVERFLOW != 0 {
        chains(&old.value)
    } else {
        Vec::new()
    };
    crate::invariant!(
        kept.iter().all(|first| has.contains(first)),
        "a row with the chains {has:?} keeps {kept:?}"
    );
}

/// A flag of versions that purge passes over. The entry of a long value's reference must be shown
/// to it: see `overflow`.
fn purge_flag(tree: TreeId) -> u8 {
    if tree == PENDING_FREE_TREE {
        0
    } else {
        NO_PURGE
    }
}

impl Replacement<'_> {
    /// Bytes that the record of undoing it has.
    fn bytes_to_put_back(&self) -> usize {
        match &self.logged {
            Logged::Mark => 0,
            Logged::Update(diff) if self.kind == VersionKind::Update => {
                diff.old.len() + diff.new.len()
            }
            Logged::Update(_) | Logged::Revive => self.old.value.len(),
        }
    }

    fn record(self, page: PageId, trx: TrxRef, tree: TreeId, slot: u16, key: &[u8]) -> Record {
        paranoid!(
            matches!(self.logged, Logged::Mark) == (self.kind == VersionKind::DeleteMark),
            "a change of kind {:?} is logged as another",
            self.kind
        );
        let key = key.to_vec();
        match self.logged {
            Logged::Update(diff) => Record::RowUpdate {
                page,
                trx,
                tree,
                slot,
                key,
                old_flags: self.old.flags,
                flags: self.value.flags,
                diff,
            },
            Logged::Revive => Record::RowRevive {
                page,
                trx,
                tree,
                slot,
                flags: self.value.flags,
                key,
                value: self.value.bytes.to_vec(),
            },
            Logged::Mark => Record::RowMark {
                page,
                trx,
                tree,
                slot,
                key,
            },
        }
    }
}

/// A cell as it was before a change.
pub(crate) struct OldCell {
    pub flags: u8,
    pub version: Option<VersionAddress>,
    pub value: Vec<u8>,
    pub len: usize,
}

impl OldCell {
    fn of(here: &Here<'_>) -> Self {
        paranoid!(
            here.slot < TreePage(&here.leaf).count()
                && TreePage(&here.leaf).key(here.slot) == here.key,
            "slot {} of page {} has another row",
            here.slot,
            here.leaf.id()
        );
        let cell = TreePage(&here.leaf).cell(here.slot);
        Self {
            flags: cell.flags & !CELL_VERSIONED,
            version: cell.version,
            value: cell.value.to_vec(),
            len: cell.len,
        }
    }
}

/// What a version keeps of its row's old value.
struct KeptValue<'o> {
    bytes: Cow<'o, [u8]>,
    flags: u8,
}

impl<'o> KeptValue<'o> {
    /// The whole value, or for a transaction whose versions are made anew of the log what the
    /// record has of it. Without a difference the record has none: then it is for this run only.
    fn of(inner: &Inner, old: &'o OldCell, diff: Option<&Diff>, flags: u8) -> Self {
        paranoid!(
            flags & SPLICED == 0 && old.flags & CELL_VERSIONED == 0,
            "a version with flags {flags:#x} of a row with {:#x}",
            old.flags
        );
        match diff.filter(|_| inner.undo_place.is_moved()) {
            Some(diff) => Self {
                bytes: Cow::Owned(spliced(diff.prefix, diff.suffix, &diff.old)),
                flags: flags | SPLICED,
            },
            None => Self {
                bytes: Cow::Borrowed(&old.value),
                flags,
            },
        }
    }
}

/// Whether a leaf has room.
pub(crate) enum Room<'p> {
    /// As it is, or by compaction.
    Yes(Exclusive<'p>),
    /// Dead rows were removed; the latch is gone.
    Cleaned,
    /// It must be split.
    No,
}

/// Looks for `need` bytes in a leaf: free, held by addresses that no longer matter, or held by
/// delete-marked rows that no transaction can see, which are then removed.
pub(crate) fn make_room<'p>(
    core: &Core,
    leaf: Exclusive<'p>,
    need: usize,
    key: &[u8],
) -> Result<Room<'p>> {
    let live = core.liveness();
    paranoid!(
        TreePage(&leaf).covers(key),
        "room is looked for in page {}, which does not cover the key",
        leaf.id()
    );
    if TreePage(&leaf).has_room(need, &live) {
        return Ok(Room::Yes(leaf));
    }
    if remove_dead_rows(core, leaf, Some(key))? > 0 {
        Ok(Room::Cleaned)
    } else {
        Ok(Room::No)
    }
}

/// Removes the delete-marked rows of a leaf whose version no transaction can need, apart from the
/// row of `except`, and logged addresses that no longer matter. How many of both.
pub(crate) fn remove_dead_rows(
    core: &Core,
    leaf: Exclusive<'_>,
    except: Option<&[u8]>,
) -> Result<u64> {
    let page = TreePage(&leaf);
    let live = core.liveness();
    let is_dead = |slot: &usize| {
        page.version(*slot)
            .is_some_and(|v| v.is_logged() && !live(v))
    };
    let dead: Vec<usize> = (0..page.count())
        .filter(|&slot| page.is_deleted(slot))
        .filter(|&slot| {
            let dead = page.version(slot).is_none_or(|address| !live(address));
            dead || mutants::on(Mutant::MarkedRowRemovedEarly)
        })
        .filter(|&slot| except.is_none_or(|key| page.key(slot) != key))
        .collect();
    let addresses: Vec<_> = (0..page.count())
        .filter(is_dead)
        .filter(|slot| dead.binary_search(slot).is_err())
        .map(|slot| (slot as u16, None))
        .collect();
    if dead.is_empty() && addresses.is_empty() {
        return Ok(0);
    }
    let before = page.count();
    let id = leaf.id();
    let freed = (dead.len() + addresses.len()) as u64;
    let mut mtr = Mtr::new(&core.storage);
    let index = mtr.push(leaf);
    if !addresses.is_empty() {
        let record = Record::SetVersions {
            page: id,
            versions: addresses,
        };
        mtr.replay(index, &record);
    }
    for &slot in dead.iter().rev() {
        mtr.replay(
            index,
            &Record::Remove {
                page: id,
                slot: slot as u16,
                count: 1,
            },
        );
    }
    paranoid!(
        TreePage(mtr.page(index)).count() + dead.len() == before,
        "page {id} of {before} rows has {} without {} dead ones",
        TreePage(mtr.page(index)).count(),
        dead.len()
    );
    mtr.commit()?;
    core.storage
        .counters
        .add(Counter::RowsPurged, dead.len() as u64);
    Ok(freed)
}
