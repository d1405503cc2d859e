//! The transaction table: what the log says about transactions, as far as it has been read.
//!
//! # Promises
//!
//! 1. After the last frame the table holds exactly the transactions that have no end in the log,
//!    each with what undoes it, oldest first. Tested by `each_change_is_undone_by_its_inverse`,
//!    `ends_compensation_and_preparation_count`.
//! 2. Nothing that has to be rolled back is forgotten silently: a transaction that is open at the
//!    end, and whose beginning was not read although it wrote at or after the checkpoint, is an
//!    error. Tested by `an_open_transaction_of_unknown_beginning_is_an_error`. Tested by the
//!    simulator (`loser-forgotten`).
//! 3. A copy of an undo stack counts only when its last part was read, and nothing of the
//!    transaction stands between its parts; until then the stack from before the copy counts.
//!    Tested by `a_whole_copy_replaces_the_stack_and_a_part_does_not`,
//!    `a_copy_that_was_given_up_is_ignored`.
//!
//! Rollback skips changes of tablespaces that were dropped, without a compensation record. So what
//! stands on a stack above a change that is compensated, and is of another tablespace, was skipped;
//! the caller checks that those tablespaces are gone ([`Unfinished::skipped`]).
//!
//! A prepared transaction whose rollback has begun is a loser: part of its changes are gone.
//!
//! A transaction that began before the scan and ended before the checkpoint leaves records of an
//! unknown slot: they are redo only.
//!
//! The undo of a large transaction has moved (`txn/undo_place.rs`): of it the table keeps what was
//! logged since the undo file got the rest, as segments of versions. The scan may begin before
//! that, also between inserts that are coded against each other: of each that cannot be decoded a
//! later record must say that its undo is saved, or copied, or that its transaction has ended.

use super::moved::Row;
use crate::mutants::{self, Mutant};
use crate::mvcc::versions::RebuiltSegments;
use crate::paranoid::paranoid;
use crate::sync::HashMap;
use inkstone_format::record::{Record, TrxRef, Undo, UndoEntry, UndoList};
use inkstone_format::{IdHash, Lsn, SpaceId, TreeId, TrxId, VersionAddress};
use std::collections::{BTreeMap, BTreeSet};

/// A transaction without an end in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// The slot by which its records name it. Compensation records and the end that are logged
    /// for it must use the same slot, and no other transaction may until then.
    pub slot: u32,
    /// Its id.
    pub id: TrxId,
    /// Start of the frame with its first record, or with the first part of the last whole copy of
    /// its undo: the log must be kept from here on.
    pub first_lsn: Lsn,
    /// What is to be undone, oldest first: rolled back from the end.
    pub undo: Vec<UndoEntry>,
    /// The XID, once it is prepared.
    pub xid: Option<Vec<u8>>,
    /// Its undo, if that is not in the log.
    pub moved: Option<MovedUndo>,
}

impl OpenTransaction {
    /// How many changes it made that are to be undone, about.
    pub fn changes(&self) -> u64 {
        let moved = self.moved.as_ref().map_or(0, |moved| moved.changes);
        self.undo.len() as u64 + moved
    }

    /// What the undo file has of its undo.
    pub fn list(&self) -> UndoList {
        self.moved
            .as_ref()
            .map_or_else(UndoList::default, |moved| moved.list)
    }
}

/// The undo of a transaction whose versions have logged addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovedUndo {
    /// What the undo file has.
    pub list: UndoList,
    /// What was made anew of the log.
    pub(crate) rebuilt: RebuiltSegments,
    /// Changes that it made, about.
    pub changes: u64,
}

/// Parts of an [`Record::UndoCopy`] that wait for the last one.
struct UndoCopy {
    id: TrxId,
    first_lsn: Lsn,
    entries: Vec<UndoEntry>,
    xid: Option<Vec<u8>>,
}

/// Why the table cannot follow the log.
type Reason = String;

/// Numbers of transactions are below this: none ever comes near.
const TRX_ID_LIMIT: u64 = 1 << 62;

/// See the module.
#[derive(Default)]
pub(super) struct TransactionTable {
    open: HashMap<u32, OpenTransaction, IdHash>,
    copies: HashMap<u32, UndoCopy, IdHash>,
    /// Moved undo of slots without a known beginning.
    unknown_moved: HashMap<u32, MovedUndo, IdHash>,
    /// Slots that wrote at or after the checkpoint without a known beginning, and where first.
    unknown: BTreeMap<u32, Lsn>,
    /// Where the transaction of a slot last had an insert that could not be decoded, if it has not
    /// ended, and its undo is not known from a later place on.
    undecoded: BTreeMap<u32, Lsn>,
    skipped: BTreeSet<SpaceId>,
    id_max: TrxId,
}

/// What stays open at the end of the log.
pub(super) struct Unfinished {
    pub losers: Vec<OpenTransaction>,
    pub prepared: Vec<OpenTransaction>,
    pub id_max: TrxId,
    /// Tablespaces whose changes were passed over by a rollback.
    pub skipped: BTreeSet<SpaceId>,
}

impl TransactionTable {
    /// Takes notice of an insert before the checkpoint that is coded against one that was not read.
    /// Its page is on disk; its undo must not be needed.
    pub fn note_undecoded(&mut self, slot: u32, start: Lsn) {
        let is_open = self.open.contains_key(&slot);
        let at = if mutants::on(Mutant::SavedInsertNeeded) && is_open {
            Lsn(u64::MAX)
        } else {
            start
        };
        self.undecoded.insert(slot, at);
    }

    /// The undo of a slot's transaction is elsewhere, or in the log from `since` on.
    fn known_since(&mut self, slot: u32, since: Lsn) {
        if self.undecoded.get(&slot).is_some_and(|&at| at < since) {
            self.undecoded.remove(&slot);
        }
    }

    /// Takes notice of a record of the frame that starts at `start`; `tail`: the frame is at or
    /// after the checkpoint.
    pub fn note(&mut self, record: &Record, start: Lsn, tail: bool) -> Result<(), Reason> {
        if let Some(row) = Row::of(record) {
            return self.note_moved(&row, start, tail);
        }
        match record {
            Record::RowsInsert {
                page,
                trx,
                tree,
                rows,
                ..
            } => {
                if let Some(open) = self.writer(*trx, start, tail)? {
                    open.undo.reserve(rows.len());
                    for row in rows {
                        push(open, page.space, *tree, &row.key, Undo::Insert);
                    }
                }
            }
            Record::RowUpdate {
                page,
                trx,
                tree,
                key,
                old_flags,
                diff,
                ..
            } => {
                if let Some(open) = self.writer(*trx, start, tail)? {
                    let (flags, diff) = (*old_flags, diff.clone().reversed());
                    push(open, page.space, *tree, key, Undo::Update { flags, diff });
                }
            }
            Record::RowMark {
                page,
                trx,
                tree,
                key,
                ..
            } => {
                if let Some(open) = self.writer(*trx, start, tail)? {
                    push(open, page.space, *tree, key, Undo::Mark);
                }
            }
            Record::RowRevive {
                page,
                trx,
                tree,
                key,
                ..
            } => {
                if let Some(open) = self.writer(*trx, start, tail)? {
                    push(open, page.space, *tree, key, Undo::Revive);
                }
            }
            Record::RowUndo { page, trx_slot, .. } => {
                if let Some(open) = self.active(*trx_slot, start, tail) {
                    // Its rollback has begun: it cannot be committed any more.
                    open.xid = None;
                    let skipped = undo_last(open, page.space)?;
                    self.skipped.extend(skipped);
                }
            }
            Record::Prepare { trx_slot, xid } => {
                if let Some(open) = self.active(*trx_slot, start, tail)
                    && !mutants::on(Mutant::PreparedForgotten)
                {
                    // Without an XID: it is being rolled back.
                    open.xid = Some(xid.clone()).filter(|xid| !xid.is_empty());
                }
            }
            Record::Commit { trx_slot } | Record::RollbackEnd { trx_slot } => {
                self.end(*trx_slot);
            }
            Record::UndoMoved {
                trx_slot,
                addresses,
            } => self.undo_moved(*trx_slot, addresses, start, tail)?,
            Record::BulkInsert {
                trx_slot,
                address,
                space,
                tree,
                from,
            } => {
                let rows = (*space, *tree, from.as_slice());
                let moved = self.moved(*trx_slot, start, tail);
                super::moved::rebuild_bulk(&mut moved.rebuilt, *address, rows, start)?;
            }
            Record::BulkDelete {
                trx_slot,
                address,
                space,
                tree,
                from,
                to,
            } => {
                let rows = (*space, *tree, from.as_slice());
                let segments = &mut self.moved(*trx_slot, start, tail).rebuilt;
                super::moved::rebuild_bulk_delete(segments, *address, rows, to.as_deref(), start)?;
            }
            Record::UndoSaved {
                trx_slot,
                trx,
                since,
                changes,
                xid,
                list,
            } => {
                check_saved(*since, *changes, start)?;
                self.undo_saved(*trx_slot, *trx, (*since, *changes), xid, *list)?;
            }
            Record::UndoCopy {
                trx_slot,
                trx,
                first,
                last,
                xid,
                entries,
            } => {
                self.copy_part(*trx_slot, *trx, (*first, *last), xid, entries, start, tail)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// As [`Self::note`] of all records of a transaction that only changes rows, from its first one
    /// to its end.
    pub fn note_whole(&mut self, slot: u32, id: TrxId, start: Lsn) -> Result<(), Reason> {
        self.note_begin(slot, id)?;
        paranoid!(
            self.open
                .get(&slot)
                .is_none_or(|open| open.first_lsn <= start),
            "the transaction of slot {slot} begins behind LSN {start}"
        );
        self.end(slot);
        Ok(())
    }

    fn end(&mut self, slot: u32) {
        // Every transaction of the log comes by, and mostly there is nothing in them.
        if !self.open.is_empty() {
            self.open.remove(&slot);
        }
        if !self.unknown_moved.is_empty() {
            self.unknown_moved.remove(&slot);
        }
        if !self.copies.is_empty() {
            self.copies.remove(&slot);
        }
        self.unknown.remove(&slot);
        self.undecoded.remove(&slot);
    }

    /// The transaction of a row record, opened if this is its first record; `None` if unknown.
    fn writer(
        &mut self,
        trx: TrxRef,
        start: Lsn,
        tail: bool,
    ) -> Result<Option<&mut OpenTransaction>, Reason> {
        if let Some(id) = trx.first {
            self.begin(trx.slot, id, start)?;
        }
        Ok(self.active(trx.slot, start, tail))
    }

    /// A transaction's number was read.
    fn note_id(&mut self, id: TrxId) -> Result<(), Reason> {
        if id.0 == 0 || id.0 >= TRX_ID_LIMIT {
            return Err(format!("{id} is no number of a transaction"));
        }
        self.id_max = self.id_max.max(id);
        Ok(())
    }

    fn begin(&mut self, slot: u32, id: TrxId, start: Lsn) -> Result<(), Reason> {
        if self.note_begin(slot, id)? {
            return Ok(());
        }
        let open = OpenTransaction {
            slot,
            id,
            first_lsn: start,
            undo: Vec::new(),
            xid: None,
            moved: None,
        };
        let before = self.open.insert(slot, open);
        paranoid!(before.is_none(), "slot {slot} has two transactions");
        Ok(())
    }

    /// A transaction begins in a slot: whether it is open there already.
    fn note_begin(&mut self, slot: u32, id: TrxId) -> Result<bool, Reason> {
        self.note_id(id)?;
        if let Some(open) = self.open.get(&slot) {
            return if open.id == id {
                Ok(true)
            } else {
                Err(format!(
                    "transaction {id} begins in slot {slot}, where transaction {} is open since LSN {}",
                    open.id, open.first_lsn
                ))
            };
        }
        let before = self.unknown.get(&slot).or(self.undecoded.get(&slot));
        if let Some(since) = before {
            return Err(format!(
                "transaction {id} begins in slot {slot}, where another is open since before LSN {since}"
            ));
        }
        Ok(false)
    }

    /// A row record of a transaction whose undo has moved.
    fn note_moved(&mut self, row: &Row<'_>, start: Lsn, tail: bool) -> Result<(), Reason> {
        if let Some(id) = row.trx.first {
            return Err(format!("transaction {id} begins with moved undo"));
        }
        let open = self.open.get(&row.trx.slot);
        if let Some(open) = open.filter(|open| !open.undo.is_empty()) {
            return Err(format!(
                "transaction {} names versions, and has {} changes in the log",
                open.id,
                open.undo.len()
            ));
        }
        let moved = self.moved(row.trx.slot, start, tail);
        moved.changes += row.rows;
        row.rebuild(&mut moved.rebuilt, start)
    }

    /// The moved undo of a transaction whose beginning may be unknown.
    fn moved(&mut self, slot: u32, start: Lsn, tail: bool) -> &mut MovedUndo {
        if let Some(open) = self.open.get_mut(&slot) {
            return open.moved.get_or_insert_default();
        }
        if tail {
            self.unknown.entry(slot).or_insert(start);
        }
        self.unknown_moved.entry(slot).or_default()
    }

    fn undo_moved(
        &mut self,
        slot: u32,
        addresses: &[(VersionAddress, u32)],
        start: Lsn,
        tail: bool,
    ) -> Result<(), Reason> {
        let undo = self
            .open
            .get_mut(&slot)
            .map(|open| std::mem::take(&mut open.undo));
        let moved = self.moved(slot, start, tail);
        // Of one that began before the scan a list tells, or it has ended before the checkpoint.
        let Some(undo) = undo else { return Ok(()) };
        moved.changes = undo.len() as u64;
        super::moved::rebuild_moved(&mut moved.rebuilt, &undo, addresses, start)
    }

    fn undo_saved(
        &mut self,
        slot: u32,
        id: TrxId,
        (since, changes): (Lsn, u64),
        xid: &Option<Vec<u8>>,
        list: UndoList,
    ) -> Result<(), Reason> {
        self.note_id(id)?;
        self.unknown.remove(&slot);
        let found = self.unknown_moved.remove(&slot);
        let open = self.open.entry(slot).or_insert_with(|| OpenTransaction {
            slot,
            id,
            first_lsn: since,
            undo: Vec::new(),
            xid: None,
            moved: found,
        });
        if open.id != id || !open.undo.is_empty() {
            return Err(format!(
                "the undo of transaction {id} is saved in slot {slot}, where transaction {} is \
                 open with {} changes in the log",
                open.id,
                open.undo.len()
            ));
        }
        if open.first_lsn > since {
            return Err(format!(
                "the undo of transaction {id} is saved up to LSN {since}, and was up to {}",
                open.first_lsn
            ));
        }
        open.first_lsn = since;
        open.xid.clone_from(xid);
        let moved = open.moved.get_or_insert_default();
        moved.rebuilt.forget_before(since);
        moved.list = list;
        moved.changes = changes;
        self.known_since(slot, since);
        Ok(())
    }

    /// The transaction of a slot that has a record here. A copy under way is thereby given up.
    fn active(&mut self, slot: u32, start: Lsn, tail: bool) -> Option<&mut OpenTransaction> {
        if !self.copies.is_empty() {
            self.copies.remove(&slot);
        }
        let open = self.open.get_mut(&slot);
        paranoid!(
            open.as_ref()
                .is_none_or(|open| open.slot == slot && open.first_lsn <= start),
            "the transaction of slot {slot} begins behind LSN {start}"
        );
        if open.is_none() && tail {
            self.unknown.entry(slot).or_insert(start);
        }
        open
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one record")]
    fn copy_part(
        &mut self,
        slot: u32,
        id: TrxId,
        (first, last): (bool, bool),
        xid: &Option<Vec<u8>>,
        entries: &[UndoEntry],
        start: Lsn,
        tail: bool,
    ) -> Result<(), Reason> {
        self.note_id(id)?;
        if let Some(open) = self.open.get(&slot).filter(|open| open.id != id) {
            return Err(format!(
                "the undo of transaction {id} is copied in slot {slot}, where transaction {} is open",
                open.id
            ));
        }
        if first {
            let copy = UndoCopy {
                id,
                first_lsn: start,
                entries: Vec::new(),
                xid: None,
            };
            self.copies.insert(slot, copy);
        }
        if tail && !self.open.contains_key(&slot) {
            self.unknown.entry(slot).or_insert(start);
        }
        let Some(copy) = self.copies.get_mut(&slot).filter(|copy| copy.id == id) else {
            // A copy that began before the scan is of a transaction that ended before the
            // checkpoint; one that begins later was read from its first part.
            return if !self.open.contains_key(&slot) {
                Ok(())
            } else {
                Err(format!(
                    "a part of a copy of the undo of transaction {id}, and not the first one"
                ))
            };
        };
        copy.entries.extend_from_slice(entries);
        if xid.is_some() {
            copy.xid.clone_from(xid);
        }
        if last {
            self.finish_copy(slot);
        }
        Ok(())
    }

    fn finish_copy(&mut self, slot: u32) {
        let Some(copy) = self.copies.remove(&slot) else {
            return;
        };
        let before = self.open.remove(&slot);
        let xid = copy.xid.or(before.and_then(|open| open.xid));
        self.unknown.remove(&slot);
        self.known_since(slot, copy.first_lsn);
        paranoid!(
            copy.id <= self.id_max,
            "transaction {} is above the highest one, {}",
            copy.id,
            self.id_max
        );
        let open = OpenTransaction {
            slot,
            id: copy.id,
            first_lsn: copy.first_lsn,
            undo: copy.entries,
            xid,
            moved: None,
        };
        self.open.insert(slot, open);
    }

    /// The end of the log: what is open now stays open. By id.
    pub fn finish(self) -> Result<Unfinished, Reason> {
        if let Some((slot, since)) = self.unknown.first_key_value() {
            return Err(format!(
                "the transaction in slot {slot} wrote at LSN {since} and has not ended, but its \
                 beginning lies before the part of the log that recovery may read"
            ));
        }
        if let Some((slot, at)) = self.undecoded.first_key_value() {
            return Err(format!(
                "the transaction in slot {slot} has not ended, and its insert at LSN {at} is coded \
                 against one that was not read"
            ));
        }
        let mut all: Vec<_> = self.open.into_values().collect();
        all.sort_unstable_by_key(|open| (open.id, open.slot));
        if let Some(twice) = all.windows(2).find(|two| two[0].id == two[1].id) {
            return Err(format!(
                "transaction {} is open in slot {} and in slot {}",
                twice[0].id, twice[0].slot, twice[1].slot
            ));
        }
        let in_both = |open: &&OpenTransaction| open.moved.is_some() && !open.undo.is_empty();
        if let Some(open) = all.iter().find(in_both) {
            return Err(format!(
                "the undo of transaction {} has moved, and {} changes behind that name no version",
                open.id,
                open.undo.len()
            ));
        }
        let (prepared, losers) = all.into_iter().partition(|open| open.xid.is_some());
        Ok(Unfinished {
            losers,
            prepared,
            id_max: self.id_max,
            skipped: self.skipped,
        })
    }
}

/// Whether a record that starts at `start` can say of a transaction that its undo is saved up to
/// `since`, and that it has made so many changes: each takes a byte of log or more.
fn check_saved(since: Lsn, changes: u64, start: Lsn) -> Result<(), Reason> {
    if since.0 == 0 || since > start {
        return Err(format!(
            "undo is saved up to LSN {since}, says a record at LSN {start}"
        ));
    }
    if changes > start.0 {
        return Err(format!(
            "a transaction has made {changes} changes, says a record at LSN {start}"
        ));
    }
    Ok(())
}

fn push(open: &mut OpenTransaction, space: SpaceId, tree: TreeId, key: &[u8], undo: Undo) {
    open.undo.push(UndoEntry {
        space,
        tree,
        key: key.to_vec(),
        undo,
    });
}

/// Takes the last change of a tablespace off the stack, with those above it, which were skipped.
fn undo_last(open: &mut OpenTransaction, space: SpaceId) -> Result<Vec<SpaceId>, Reason> {
    let Some(at) = open.undo.iter().rposition(|entry| entry.space == space) else {
        return Err(format!(
            "transaction {} undoes a change of tablespace {space} and has none left",
            open.id
        ));
    };
    let skipped = open.undo.drain(at..).skip(1);
    Ok(skipped.map(|entry| entry.space).collect())
}
