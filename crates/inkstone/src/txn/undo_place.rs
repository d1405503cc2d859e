//! Where the undo of a transaction is.
//!
//! # Words
//!
//! - *short*: before-images are in the log with the row's change, and in memory. The log from the
//!   transaction's first record on must be kept.
//! - *moved*: before-images have logged versions (`mvcc/versions/saved.rs`), and row records name
//!   their addresses. A row that carries the address of a transaction without an end is invisible
//!   and locked, in this run and after a crash, before any of its undo has been read.
//! - *saved*: the segments of logged versions are in the undo file, with a list of them; the log
//!   from the moment of saving on has the rest.
//!
//! ```text
//!         large, bulk, or keeps too much log    too much log, or not saved
//! short ------------------------------> moved ----------------------> saved, and again
//!        versions copied, rows renamed          segments and list synced,
//!        UNDO_MOVED logged                      UNDO_SAVED logged
//! ```
//!
//! # Promises
//!
//! 1. A transaction's place changes at one record. Before UNDO_MOVED it is rolled back from the
//!    log, by what its records say; from then on by its versions: a change is undone if the row
//!    still carries its address, so undoing again does no harm. Tested by
//!    `a_large_transaction_is_undone_after_a_crash`. Tested by
//!    `undo_that_a_crash_caught_on_its_way_is_where_it_was`. Tested by the simulator
//!    (`moved-rows-forgotten`).
//! 2. The log from [`TrxState::first_lsn`](crate::mvcc::system::TrxState::first_lsn) on has all
//!    that recovery needs beside the list that it names: that LSN moves behind an UNDO_SAVED
//!    record, to the moment at which its segments were sealed. Tested by
//!    `an_idle_transaction_does_not_keep_the_log`. Tested by the simulator
//!    (`undo-saved-unsynced`).
//! 3. What is saved is written once, outside of the transaction's latch. Tested by
//!    `an_idle_transaction_does_not_keep_the_log`.
//! 4. Versions that are not saved, of all transactions, are half of the memory for versions at
//!    most, but for what is made within one round of checkpoints, and half a mebibyte of each.
//!    Tested by `what_is_not_saved_of_all_fits_the_memory_for_versions`.

use crate::btree::Target;
use crate::buffer::Exclusive;
use crate::counters::Counter;
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::mvcc::versions::{
    RUN, SPLICED, SavedList, ToSave, VersionKind, VersionRef, run_of, spliced,
};
use crate::paranoid::paranoid;
use crate::sync::HashMap;
use crate::sync::atomic::Ordering;
use crate::txn::core::Core;
use crate::txn::state::{Inner, Phase, Shared};
use crate::{Error, Result};
use inkstone_format::record::{Record, Undo, UndoEntry};
use inkstone_format::tree_page::{TreePage, TreePageMut};
use inkstone_format::{Lsn, SpaceId, TreeId, VersionAddress};
use std::sync::Arc;

/// Bytes of versions of which a transaction counts as large. (In the simulator many are.)
const LARGE_BYTES: u64 = if cfg!(inkstone_sim) { 8 } else { 128 } << 10;
/// Changes of which it does: each row is visited when its undo moves.
const LARGE_CHANGES: u64 = 4096;
/// The most that moves at once.
const MOVED_BYTES_MAX: u64 = 512 << 10;
const MOVED_CHANGES_MAX: u64 = 1 << 16;
/// Undo is saved when a transaction keeps this part of the log, or [`SAVED_EVERY_MAX`]; or when as
/// many bytes of versions are not saved: an opening holds those in memory, and they may be eight
/// times what the log has of them.
const SAVED_PARTS: u64 = if cfg!(inkstone_sim) { 256 } else { 8 };
const SAVED_EVERY_MAX: u64 = 16 << 20;
/// What is not saved of all transactions is to be this part of the memory for versions at most.
const UNSAVED_PARTS: u64 = 2;
/// Less than this is not saved for that reason: a save takes two syncs.
const UNSAVED_MIN: u64 = 4 * LARGE_BYTES;

/// Where a transaction's undo is, and what is known of it there.
#[derive(Debug, Default)]
pub(crate) struct UndoPlace {
    stage: Stage,
    /// Bytes of versions made so far.
    bytes: u64,
    /// Those of them that were made before its undo was last saved.
    saved_bytes: u64,
    /// For each version that was moved, where it is now.
    moved: HashMap<VersionAddress, VersionAddress>,
    /// One save at a time: a later one must not be named before an earlier one.
    is_being_saved: bool,
    /// Segments, the newest first, of which nothing is left to undo.
    pub undone: usize,
    /// Rows of the newest version, the last ones, that are undone while others of it are not.
    pub undone_rows: usize,
    /// A rollback has passed over rows of a dropped table: what the log has of them is still there.
    pub passed_over: bool,
    /// It was taken over from an earlier run: there is no chain of versions.
    pub is_recovered: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Short,
    /// Versions were copied; rows may carry the old addresses or the new ones.
    Moving,
    Moved,
}

impl UndoPlace {
    /// For a transaction that an earlier run has moved.
    pub fn recovered() -> Self {
        Self {
            stage: Stage::Moved,
            is_recovered: true,
            ..Self::default()
        }
    }

    /// Whether records name the versions.
    pub fn is_moved(&self) -> bool {
        self.stage == Stage::Moved
    }

    /// Where a version is now.
    pub fn now(&self, address: VersionAddress) -> VersionAddress {
        self.moved.get(&address).copied().unwrap_or(address)
    }

    /// A version of so many bytes is made.
    pub fn add(&mut self, bytes: u64, shared: &Shared) {
        self.bytes += bytes;
        self.tell_unsaved(shared);
    }

    /// All is saved but what was made behind these bytes of versions.
    fn note_saved(&mut self, bytes: u64, shared: &Shared) {
        paranoid!(
            self.saved_bytes <= bytes && bytes <= self.bytes,
            "{bytes} bytes of versions of {} are saved, and {} were",
            self.bytes,
            self.saved_bytes
        );
        self.saved_bytes = bytes;
        self.tell_unsaved(shared);
    }

    fn tell_unsaved(&self, shared: &Shared) {
        shared.unsaved_undo.store(self.unsaved(), Ordering::Relaxed);
    }

    /// Bytes of versions that were made since it was last saved.
    fn unsaved(&self) -> u64 {
        paranoid!(
            self.saved_bytes <= self.bytes,
            "{} bytes of versions were saved of {}",
            self.saved_bytes,
            self.bytes
        );
        self.bytes - self.saved_bytes
    }

    /// Whether a row with version `found` has the change of version `address` as its newest.
    pub fn is_version(&self, found: Option<VersionAddress>, address: VersionAddress) -> bool {
        found.is_some_and(|found| found == address || self.now(found) == address)
    }
}

impl Inner {
    /// An earlier build may have left a prepared transaction of any size. What says that undo has
    /// moved must fit in one frame of the log, so such a one keeps the log, as it did there.
    fn is_too_large_to_move(&self) -> bool {
        self.undo_place.bytes > MOVED_BYTES_MAX || self.undo_count > MOVED_CHANGES_MAX
    }
}

/// Bytes of log that a transaction may keep before its undo is saved. (In the simulator few in a
/// log that has room for many: what keeps a small one is tested, too.)
pub(crate) fn saved_every(log_file_size: u64) -> u64 {
    if cfg!(inkstone_sim) && log_file_size >= 16 << 20 {
        return 512;
    }
    (log_file_size / SAVED_PARTS).min(SAVED_EVERY_MAX)
}

/// What the head of a spliced value takes, in whole units of versions.
const SPLICED_HEAD: u64 = 16;

/// A row of which the newest version is moved.
type Row = (SpaceId, TreeId, Vec<u8>);

/// What a version of several rows keeps beside its first key where the last ones are undone: the
/// log has compensation records of those.
fn keys_left(keys: &[Vec<u8>], undone_rows: usize) -> Vec<u8> {
    let left = keys.len().saturating_sub(undone_rows);
    paranoid!(left > 0, "all {} rows of a version are undone", keys.len());
    run_of(keys[..left].iter().map(|key| &key[..]))
}

impl Core {
    /// Before an operation, with no page latched: moves the undo of a transaction that has become
    /// large.
    #[inline]
    pub(crate) fn move_large_undo(&self, shared: &Shared, inner: &mut Inner) -> Result<()> {
        let place = &inner.undo_place;
        let is_large = place.bytes > LARGE_BYTES || inner.undo_count > LARGE_CHANGES;
        match place.stage {
            Stage::Short if is_large => self.move_undo(shared, inner),
            Stage::Moving => self.move_undo(shared, inner),
            Stage::Moved if place.unsaved() > self.unsaved_undo_max.load(Ordering::Relaxed) => {
                self.ask_for_saving(shared, inner)
            }
            _ => Ok(()),
        }
    }

    /// The checkpoint would hardly find a busy transaction between two operations: it is given what
    /// is to be saved.
    #[cold]
    fn ask_for_saving(&self, shared: &Shared, inner: &mut Inner) -> Result<()> {
        if let Some(sealed) = self.seal_undo(shared, inner)? {
            shared.ask_for_saving(sealed);
        }
        Ok(())
    }

    /// As [`Core::move_large_undo`], of one that is about to become large.
    pub(crate) fn move_undo_early(&self, shared: &Shared, inner: &mut Inner) -> Result<()> {
        if inner.undo_place.is_moved() {
            Ok(())
        } else {
            self.move_undo(shared, inner)
        }
    }

    /// Gives the transaction's changes logged versions. After an error it is the same transaction,
    /// which must not write before this is called again.
    #[cold]
    fn move_undo(&self, shared: &Shared, inner: &mut Inner) -> Result<()> {
        paranoid!(
            inner.undo_place.stage != Stage::Moved && !inner.undo_place.is_recovered,
            "the undo of {:?} moves, and has moved",
            shared.state.id()
        );
        if inner.undo_place.stage == Stage::Short {
            self.copy_versions(shared, inner)?;
        }
        let chain = self.chain(inner)?;
        self.rename_rows(inner, &chain)?;
        let addresses = chain
            .iter()
            .map(|(address, entry)| (*address, entry.view().rows() as u32));
        let mut mtr = Mtr::new(&self.storage);
        if inner.undo_place.passed_over {
            mtr.note(&self.whole_undo(shared, inner, &chain)?);
        }
        mtr.note(&Record::UndoMoved {
            trx_slot: shared.state.slot(),
            addresses: addresses.collect(),
        });
        mtr.commit()?;
        inner.undo_place.stage = Stage::Moved;
        inner.promise.undo_moved(self);
        // The next insert names its version.
        inner.context.clear();
        self.storage.counters.add(Counter::UndoMoves, 1);
        Ok(())
    }

    /// The transaction's versions, the oldest first.
    fn chain(&self, inner: &Inner) -> Result<Vec<(VersionAddress, VersionRef)>> {
        let entries = (self.versions).undo_entries(inner.undo_last, VersionAddress(0));
        let mut chain = entries.collect::<Result<Vec<_>>>()?;
        chain.reverse();
        let last = chain.last().map(|(address, _)| *address);
        paranoid!(
            last.unwrap_or_default() == inner.undo_last,
            "a chain of versions ends at {last:?}, not at {}",
            inner.undo_last
        );
        Ok(chain)
    }

    /// All that would undo the transaction, in place of what the log has.
    fn whole_undo(
        &self,
        shared: &Shared,
        inner: &Inner,
        chain: &[(VersionAddress, VersionRef)],
    ) -> Result<Record> {
        let mut entries = Vec::new();
        for (address, entry) in chain {
            let view = entry.view();
            let corrupt = |c| self.versions.corrupt(*address, c);
            let undo = match view.kind {
                VersionKind::Insert => Undo::Insert,
                VersionKind::DeleteMark => Undo::Mark,
                VersionKind::Update | VersionKind::Unmark => Undo::Restore {
                    flags: view.old_flags,
                    value: view.old_value(&[]).map_err(corrupt)?.into_owned(),
                },
            };
            for key in view.keys().map_err(corrupt)? {
                entries.push(UndoEntry {
                    space: view.space,
                    tree: view.tree,
                    key,
                    undo: undo.clone(),
                });
            }
        }
        Ok(Record::UndoCopy {
            trx_slot: shared.state.slot(),
            trx: shared.state.id(),
            first: true,
            last: true,
            xid: inner.xid.clone(),
            entries,
        })
    }

    fn copy_versions(&self, shared: &Shared, inner: &mut Inner) -> Result<()> {
        let chain = self.chain(inner)?;
        // Nothing is copied that would not find its space.
        let bytes = chain.iter().map(|(_, entry)| {
            let version = entry.view().again(VersionAddress(0)).encoded_bytes();
            version as u64 + SPLICED_HEAD
        });
        let bytes = bytes.sum();
        self.versions.reserve_undo(&mut inner.touched, bytes)?;
        let mut moved = HashMap::with_capacity_and_hasher(chain.len(), Default::default());
        let mut last = VersionAddress(0);
        inner.touched.log_versions(true);
        for (nth, (old, entry)) in chain.iter().enumerate() {
            let view = entry.view();
            // Its change is undone by its new address.
            self.versions.unlist_milestone(&view, *old);
            let previous = moved.get(&view.previous).copied();
            let whole;
            let others;
            let mut version = view.again(last);
            version.previous = previous.unwrap_or(view.previous);
            let undone_rows = inner.undo_place.undone_rows;
            if undone_rows > 0 && nth + 1 == chain.len() && !mutants::on(Mutant::UndonePartMoves) {
                let keys = view.keys().map_err(|c| self.versions.corrupt(*old, c))?;
                others = keys_left(&keys, undone_rows);
                version.old_value = &others;
                if others.is_empty() {
                    version.flags &= !RUN;
                }
            }
            // As recovery makes it anew of the log, which has no more than the difference: what it
            // makes has room here.
            if view.kind == VersionKind::Update || view.kind == VersionKind::Unmark {
                whole = spliced(0, 0, version.old_value);
                version.old_value = &whole;
                version.flags |= SPLICED;
            }
            let made = (self.versions).append(&shared.state, &mut inner.touched, version);
            let Ok(address) = made else {
                // What was copied is part of no chain, and goes with the transaction.
                inner.touched.log_versions(false);
                return made.map(drop);
            };
            paranoid!(
                address.is_logged(),
                "version {old} has moved to {address}, which is not logged"
            );
            moved.insert(*old, address);
            last = address;
        }
        paranoid!(
            moved.len() == chain.len(),
            "{} of {} versions have moved",
            moved.len(),
            chain.len()
        );
        inner.undo_place.moved = moved;
        inner.undo_place.undone_rows = 0;
        inner.undo_place.stage = Stage::Moving;
        Self::go_to_copies(inner, last);
        Ok(())
    }

    /// What is undone later begins at the copies, the last of which is `last`.
    fn go_to_copies(inner: &mut Inner, last: VersionAddress) {
        let place = &inner.undo_place;
        inner.undo_last = place.now(inner.undo_last);
        paranoid!(
            inner.undo_last == last,
            "the last version has moved to {}, and {last} was copied last",
            inner.undo_last
        );
        for savepoint in &mut inner.savepoints {
            savepoint.place.undo_last = place.now(savepoint.place.undo_last);
        }
        if let Some(statement) = &mut inner.statement {
            statement.undo_last = place.now(statement.undo_last);
        }
    }

    /// Puts the new addresses into the rows.
    fn rename_rows(&self, inner: &Inner, chain: &[(VersionAddress, VersionRef)]) -> Result<()> {
        let mut rows: Vec<(Row, VersionAddress)> = Vec::with_capacity(chain.len());
        // The newest version of a row is the first one of it.
        for (address, entry) in chain.iter().rev() {
            let view = entry.view();
            let keys = view
                .keys()
                .map_err(|c| self.versions.corrupt(*address, c))?;
            rows.extend(
                keys.into_iter()
                    .map(|key| ((view.space, view.tree, key), *address)),
            );
        }
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        rows.dedup_by(|(later, _), (first, _)| later == first);
        if mutants::on(Mutant::MovedRowsForgotten) {
            rows.pop();
        }
        let mut rows = &rows[..];
        while !rows.is_empty() {
            let renamed = self.rename_rows_of_leaf(inner, rows)?;
            rows = &rows[renamed..];
        }
        Ok(())
    }

    /// Of the first row's leaf; how many of `rows` those are.
    fn rename_rows_of_leaf(&self, inner: &Inner, rows: &[(Row, VersionAddress)]) -> Result<usize> {
        let Some(((space, tree, first), _)) = rows.first() else {
            return Ok(0);
        };
        let is_same = |((s, t, _), _): &&(Row, _)| (s, t) == (space, tree);
        let of_tree = || rows.iter().take_while(is_same).count();
        let Some(tree) = self.tree(*space, *tree)? else {
            return Ok(of_tree());
        };
        self.before_renaming()?;
        let leaf = match tree.leaf_exclusive(Target::Key(first)) {
            // Its table was dropped meanwhile.
            Err(Error::NotFound(_)) => return Ok(of_tree()),
            leaf => leaf?,
        };
        let page = TreePage(&leaf);
        let is_here = |row: &&(Row, _)| is_same(row) && page.covers(&row.0.2);
        let count = rows.iter().take_while(is_here).count();
        paranoid!(count > 0, "page {} does not cover a row of it", leaf.id());
        let mut versions = Vec::with_capacity(count);
        for ((_, _, key), address) in &rows[..count] {
            paranoid!(
                address.is_logged(),
                "row {key:x?} is to name version {address}, which is not logged"
            );
            let Ok(slot) = page.search(key) else {
                return Err(self.unnamed(*address, "the row is missing"));
            };
            let found = page.version(slot);
            if !inner.undo_place.is_version(found, *address) {
                return Err(self.unnamed(*address, "the row has another version"));
            }
            if found != Some(*address) {
                versions.push((slot as u16, Some(*address)));
            }
        }
        if !versions.is_empty() {
            self.set_versions(leaf, versions)?;
        }
        Ok(count)
    }

    fn set_versions(
        &self,
        leaf: Exclusive<'_>,
        versions: Vec<(u16, Option<VersionAddress>)>,
    ) -> Result<()> {
        let page = leaf.id();
        let live = self.liveness();
        let mut mtr = Mtr::new(&self.storage);
        let index = mtr.push(leaf);
        mtr.change(index, |bytes, payload| {
            for &(slot, address) in &versions {
                let placed = TreePageMut(bytes).set_version(usize::from(slot), address, &live);
                crate::invariant!(placed.is_ok(), "an address takes more room than another");
            }
            Record::SetVersions { page, versions }.put(payload);
        });
        mtr.commit().map(drop)
    }

    fn unnamed(&self, address: VersionAddress, why: &str) -> Error {
        self.storage
            .poison
            .set(format!("version {address} of an open transaction: {why}"))
    }

    /// Saves a transaction's undo if it keeps more than `limit` bytes of the log, or much of it is
    /// not saved. Does nothing while the transaction is in the middle of an operation, and waits
    /// for none: it is tried again, and what was saved is named by the transaction's own thread.
    pub(crate) fn save_undo(&self, shared: &Shared, limit: u64) -> Result<()> {
        let sealed = match shared.take_to_save() {
            Some(sealed) => Some(sealed),
            None => self.seal_idle(shared, limit)?,
        };
        let Some(sealed) = sealed else {
            return Ok(());
        };
        let saved = self.write_undo(&sealed);
        let failed = saved.as_ref().err().cloned();
        if let Some((sealed, saved)) = shared.hand_over(sealed, saved.unwrap_or_default()) {
            self.give_up_sealed(sealed, saved);
        } else if let Some(mut inner) = shared.inner.try_lock() {
            self.name_saved(shared, &mut inner)?;
        }
        failed.map_or(Ok(()), Err)
    }

    /// What is to be saved of a transaction that is in no operation.
    fn seal_idle(&self, shared: &Shared, limit: u64) -> Result<Option<Sealed>> {
        let Some(mut inner) = shared.inner.try_lock() else {
            return Ok(None);
        };
        if inner.phase == Phase::Ended || !inner.logged || !self.is_to_save(shared, &inner, limit) {
            return Ok(None);
        }
        self.name_saved(shared, &mut inner)?;
        self.seal_undo(shared, &mut inner)
    }

    /// As [`Core::save_undo`], for a thread that has the transaction's latch, and is not in the
    /// middle of an operation.
    pub(crate) fn save_own_undo(
        &self,
        shared: &Shared,
        inner: &mut Inner,
        limit: u64,
    ) -> Result<()> {
        if !inner.logged || !self.is_to_save(shared, inner, limit) {
            return Ok(());
        }
        self.name_saved(shared, inner)?;
        let Some(sealed) = self.seal_undo(shared, inner)? else {
            return Ok(());
        };
        match self.write_undo(&sealed) {
            Ok(saved) => self.name_undo(shared, inner, sealed, saved),
            Err(error) => {
                inner.undo_place.is_being_saved = false;
                self.versions.keep_room(&mut inner.touched, sealed.what);
                Err(error)
            }
        }
    }

    /// Whether a transaction is open that keeps the log, and whose undo cannot be moved. (No latch
    /// is waited for.)
    pub(crate) fn keeps_log_for_good(&self) -> bool {
        self.writers().iter().any(|writer| {
            let inner = writer.inner.try_lock();
            inner.is_some_and(|inner| {
                !inner.undo_place.is_moved()
                    && (inner.is_too_large_to_move() || inner.phase == Phase::RollingBack)
            })
        })
    }

    /// For a thread that waits for a row lock, with its latch.
    pub(crate) fn save_undo_of_waiter(&self, shared: &Shared, inner: &mut Inner) -> Result<()> {
        let limit = saved_every(self.storage.log.capacity_bytes());
        match self.save_own_undo(shared, inner, limit) {
            Err(error) if error.is_final() => Err(error),
            // It is tried again. Until then the log has it.
            _ => Ok(()),
        }
    }

    /// For a thread that rolls the transaction back, with its latch: between two steps.
    pub(crate) fn save_undo_of_rollback(&self, shared: &Shared, inner: &mut Inner) -> Result<()> {
        if !inner.undo_place.is_moved() {
            return Ok(());
        }
        let limit = saved_every(self.storage.log.capacity_bytes());
        match self.save_own_undo(shared, inner, limit) {
            // Of an earlier build, without space for it: the log has it still.
            Err(Error::DiskFull { .. }) => Ok(()),
            saved => saved,
        }
    }

    fn is_to_save(&self, shared: &Shared, inner: &Inner, limit: u64) -> bool {
        let end = self.storage.log.current_lsn();
        let first = shared.state.first_lsn().unwrap_or(end);
        end.0.saturating_sub(first.0) > limit
            || inner.undo_place.unsaved() > self.unsaved_undo_max.load(Ordering::Relaxed)
    }

    /// An opening holds in memory what was not saved of all these transactions: it is to be no more
    /// than half of what the version store may have. Where it is more, each large one gets an equal
    /// part of that, and what has more is saved.
    pub(crate) fn bound_unsaved_undo(&self, writers: &[Arc<Shared>]) {
        let unsaved = writers
            .iter()
            .map(|writer| writer.unsaved_undo.load(Ordering::Relaxed));
        let (bytes, large) = unsaved.fold((0, 0), |(bytes, large), unsaved| {
            (bytes + unsaved, large + u64::from(unsaved > LARGE_BYTES))
        });
        let budget = self.versions.budget() / UNSAVED_PARTS;
        let most = if bytes > budget && large > 0 {
            (budget / large).max(UNSAVED_MIN)
        } else {
            u64::MAX
        };
        paranoid!(
            most >= UNSAVED_MIN && bytes >= large * LARGE_BYTES,
            "{large} large transactions have {bytes} bytes unsaved, and may have {most} each"
        );
        let every = saved_every(self.storage.log.capacity_bytes());
        (self.unsaved_undo_max).store(every.min(most), Ordering::Relaxed);
    }

    /// The first part: what is to be saved, and up to where in the log. The transaction is latched.
    fn seal_undo(&self, shared: &Shared, inner: &mut Inner) -> Result<Option<Sealed>> {
        if inner.undo_place.is_being_saved {
            return Ok(None);
        }
        if !inner.undo_place.is_moved() {
            let place = &inner.undo_place;
            // A version is made shorter, of which a part is undone, when it is copied.
            let is_part_copied = place.stage == Stage::Moving && place.undone_rows > 0;
            if inner.phase == Phase::RollingBack || inner.is_too_large_to_move() || is_part_copied {
                return Ok(None);
            }
            self.move_undo(shared, inner)?;
        }
        paranoid!(
            inner.logged && inner.undo_place.is_moved(),
            "undo of {:?} is saved that the log does not name",
            shared.state.id()
        );
        let undone = inner.undo_place.undone;
        let what = self.versions.seal_logged(&mut inner.touched, undone);
        // With the latch no record of the transaction is under way: all before this are of
        // versions in these segments, all behind it of later ones.
        let since = self.storage.log.current_lsn();
        inner.undo_place.is_being_saved = true;
        let bytes = inner.undo_place.bytes;
        Ok(Some(Sealed { what, since, bytes }))
    }

    /// The second part, without the latch.
    fn write_undo(&self, sealed: &Sealed) -> Result<Option<SavedList>> {
        // A former list was there.
        self.storage.log.wait_durable(sealed.what.after())?;
        self.versions.save(&sealed.what, &self.storage.poison)
    }

    /// The third part, of what the checkpoint has saved meanwhile, if it has: the log names it. The
    /// transaction is latched.
    pub(crate) fn name_saved(&self, shared: &Shared, inner: &mut Inner) -> Result<()> {
        if !inner.undo_place.is_being_saved {
            return Ok(());
        }
        match shared.take_saved() {
            Some((sealed, saved)) => self.name_undo(shared, inner, sealed, saved),
            None => Ok(()),
        }
    }

    /// `saved`: none if that failed.
    fn name_undo(
        &self,
        shared: &Shared,
        inner: &mut Inner,
        sealed: Sealed,
        saved: Option<SavedList>,
    ) -> Result<()> {
        paranoid!(
            inner.undo_place.is_being_saved,
            "undo of {:?} was saved that was not sealed",
            shared.state.id()
        );
        inner.undo_place.is_being_saved = false;
        let Some(saved) = saved else {
            self.versions.keep_room(&mut inner.touched, sealed.what);
            return Ok(());
        };
        let log = &self.storage.log;
        if inner.phase == Phase::Ended {
            self.give_up_sealed(sealed, Some(saved));
            return Ok(());
        }
        paranoid!(
            sealed.since <= log.current_lsn(),
            "saved up to LSN {}, the log ends at {}",
            sealed.since,
            log.current_lsn()
        );
        let mut mtr = Mtr::new(&self.storage);
        mtr.note(&Record::UndoSaved {
            trx_slot: shared.state.slot(),
            trx: shared.state.id(),
            since: sealed.since,
            changes: inner.undo_count,
            xid: inner.xid.clone(),
            list: saved.list,
        });
        let (_, end) = mtr.commit()?;
        inner.undo_place.note_saved(sealed.bytes, shared);
        self.versions
            .list_named(&mut inner.touched, sealed.what, saved, end);
        shared.state.move_first_lsn(sealed.since);
        self.storage.counters.add(Counter::UndoSaves, 1);
        Ok(())
    }

    /// What was saved of a transaction that has ended.
    fn give_up_sealed(&self, sealed: Sealed, saved: Option<SavedList>) {
        let end = self.storage.log.current_lsn();
        self.versions
            .give_up_saved(sealed.what, saved.unwrap_or_default(), end);
    }

    /// The transaction has ended: what it has saved is needed until the log that says so is
    /// durable.
    pub(crate) fn forget_saved(&self, shared: &Shared, inner: &mut Inner) {
        if let Some((sealed, saved)) = shared.end_saving() {
            self.give_up_sealed(sealed, saved);
        }
        let end = self.storage.log.current_lsn();
        self.versions.give_up_space(&mut inner.touched, end);
        inner.undo_place.moved = HashMap::default();
    }
}

/// What is about to be saved.
#[derive(Debug)]
pub(crate) struct Sealed {
    what: ToSave,
    since: Lsn,
    /// Of versions made until then.
    bytes: u64,
}

/// What was sealed, and the list that was saved of it, if it was.
type Saved = (Sealed, Option<SavedList>);

/// What a transaction's thread and the checkpoint, which does not wait for the transaction's latch,
/// hand over to each other.
#[derive(Debug, Default)]
pub(crate) enum HandedOver {
    #[default]
    Nothing,
    /// To the checkpoint.
    ToSave(Sealed),
    /// To the thread that has the latch.
    Saved(Box<Saved>),
    /// The transaction has ended, and takes nothing any more.
    Ended,
}

impl Shared {
    /// With the transaction's latch.
    fn ask_for_saving(&self, sealed: Sealed) {
        let before = std::mem::replace(&mut *self.handed_over.lock(), HandedOver::ToSave(sealed));
        paranoid!(
            matches!(before, HandedOver::Nothing),
            "{:?} is to be saved twice at a time",
            self.state.id()
        );
    }

    fn take_to_save(&self) -> Option<Sealed> {
        let mut handed_over = self.handed_over.lock();
        match std::mem::take(&mut *handed_over) {
            HandedOver::ToSave(sealed) => Some(sealed),
            other => {
                *handed_over = other;
                None
            }
        }
    }

    /// Gives it to the transaction; back if that has ended.
    fn hand_over(&self, sealed: Sealed, saved: Option<SavedList>) -> Option<Saved> {
        let mut handed_over = self.handed_over.lock();
        if matches!(*handed_over, HandedOver::Ended) {
            return Some((sealed, saved));
        }
        let before = std::mem::replace(
            &mut *handed_over,
            HandedOver::Saved(Box::new((sealed, saved))),
        );
        paranoid!(
            matches!(before, HandedOver::Nothing),
            "{:?} was saved twice at a time",
            self.state.id()
        );
        None
    }

    fn take_saved(&self) -> Option<Saved> {
        let mut handed_over = self.handed_over.lock();
        match std::mem::take(&mut *handed_over) {
            HandedOver::Saved(saved) => Some(*saved),
            other => {
                *handed_over = other;
                None
            }
        }
    }

    fn end_saving(&self) -> Option<Saved> {
        match std::mem::replace(&mut *self.handed_over.lock(), HandedOver::Ended) {
            HandedOver::Saved(saved) => Some(*saved),
            HandedOver::ToSave(sealed) => Some((sealed, None)),
            HandedOver::Nothing | HandedOver::Ended => None,
        }
    }
}
