//! Deleting the rows of a range: those that stand side by side in a leaf are marked under one
//! latch and logged in one record.
//!
//! # Bulk deletes
//!
//! A *plain* row has no version that any snapshot, living or to come, may need to look behind, and
//! no long value. All plain rows of a call get the same version, whose address is logged: it is
//! their lock, and a reader that does not see it takes the row as its bytes are. Its undo is to
//! take the mark from every row that has it, in the range from the first key of the call on. Other
//! rows of the range are deleted one by one, in the same call: those that another transaction is
//! changing, or an old snapshot sees otherwise.
//!
//! The range is locked exclusively first, so no explicit lock of another transaction is on a row,
//! and no row comes in. An uncommitted version of another transaction is found at the row.
//!
//! # Promises
//!
//! 1. A row is marked by a bulk only if all snapshots, living or to be taken, see it as its cell
//!    is. Tested by `old_snapshots_see_the_rows`, `rows_that_are_not_plain_go_one_by_one`.
//! 2. Undoing a bulk gives back its rows and no others, after a crash too. Tested by
//!    `what_was_deleted_comes_back`, `a_loser_is_undone_after_a_crash`. Tested by the simulator
//!    (`bulk-delete-left-after-crash`).

use crate::Error;
use crate::Result;
use crate::btree::{SplitFor, Target, Tree};
use crate::buffer::Exclusive;
use crate::counters::Counter;
use crate::locks::{LockMode, Newest};
use crate::mtr::Mtr;
use crate::mvcc::system::TrxStatus;
use crate::mvcc::versions::{BULK, NewVersion, VersionKind, bulk_end};
use crate::paranoid::paranoid;
use crate::rows::change::{Room, Written, make_room};
use crate::rows::tables::TreeRef;
use crate::rows::write::Write;
use crate::txn::change::{Change, Coding, Made};
use crate::txn::promise::undo_log_bytes;
use crate::txn::state::Inner;
use crate::txn::transaction::Transaction;
use inkstone_format::VersionAddress;
use inkstone_format::record::Record;
use inkstone_format::space::CLUSTERED_TREE;
use inkstone_format::tree_page::{TreePage, TreePageMut};
use std::ops::{Bound, Range, RangeBounds};

/// Rows side by side for which a bulk is begun, where the transaction's undo has moved already.
const BULK_ROWS_MOVED: usize = if cfg!(inkstone_sim) { 4 } else { 32 };
/// Rows of one call for which it is moved: it takes space in the undo file, and the versions of
/// other changes are logged from then on. Those before are deleted one by one.
const BULK_ROWS: u64 = if cfg!(inkstone_sim) { 12 } else { 512 };

/// Bytes of a version's address in a cell.
const ADDRESS_LEN: usize = 8;

/// What a call has still to delete.
struct Deleting<'t> {
    tree: &'t Tree,
    /// The least key that was not looked at.
    at: Vec<u8>,
    /// The end of the range.
    to: Option<Vec<u8>>,
    /// The version of the bulk, once there is one.
    address: Option<VersionAddress>,
    deleted: u64,
}

/// What became of the rows at the front.
enum Step {
    /// Some were passed, deleted or not; or a bulk has begun, or there is room now.
    Again,
    /// The row of this key is to be deleted alone.
    Single(Vec<u8>),
    Done,
}

/// How a row stands to a bulk delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is deleted already.
    Gone,
    Plain,
    Other,
}

/// Each call is a statement: if it fails it has no effect, and the transaction goes on (after
/// [`Error::Deadlock`] it is rolled back).
impl Transaction {
    /// Deletes all rows of a range of keys; how many there were. It locks the whole range
    /// exclusively, existing rows or not, until the transaction ends, and waits for the
    /// transactions that have locks or changes in it. At repeatable read
    /// [`Error::WriteConflict`] if a row of it was changed by a transaction that committed after
    /// this one's snapshot.
    ///
    /// Of many rows it costs one short log record and one change of the page for each leaf, not for
    /// each row: rows that are committed, and that all snapshots see alike, have one version
    /// together. Others, those with long values among them, are deleted one by one in the same
    /// call. Older snapshots see the rows still; a rollback, or a savepoint's, gives them back; the
    /// pages come back when no snapshot needs them. A commit makes it durable as any other change.
    ///
    /// Of a table it deletes the rows, and no entries of its secondary trees: call it for those
    /// as well.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("events", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// for day in 1..=9u8 {
    ///     txn.insert(&table, &[day], b"an event")?;
    /// }
    /// let old = &[7u8][..];
    /// assert_eq!(txn.delete_range(&table, ..old)?, 6);
    /// assert_eq!(txn.delete_range(&table, ..)?, 3);
    /// txn.commit()?;
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn delete_range<'k>(
        &self,
        tree: &impl TreeRef,
        range: impl RangeBounds<&'k [u8]>,
    ) -> Result<u64> {
        let bound = |bound: Bound<&&'k [u8]>| bound.cloned();
        let bounds = (bound(range.start_bound()), bound(range.end_bound()));
        self.statement(|transaction| {
            transaction.lock_to_delete(tree, bounds)?;
            let tree = tree.tree_ref().live(&self.core)?;
            let Some(mut deleting) = Deleting::new(tree, bounds) else {
                return Ok(0);
            };
            while transaction.delete_some(&mut deleting)? {}
            Ok(deleting.deleted)
        })
    }

    /// Locks a range exclusively, existing rows or not.
    pub(crate) fn lock_to_delete(
        &self,
        tree: &impl TreeRef,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<()> {
        let tree = tree.tree_ref().live(&self.core)?;
        let mut inner = self.begin_write()?;
        self.pin_snapshot(&mut inner);
        let (mode, deadline) = (LockMode::Exclusive, Some(self.deadline()));
        let result = self.lock_range(&mut inner, tree, bounds, mode, deadline);
        self.after_error(inner, result)
    }

    /// Deletes rows of one leaf, or one row; false if there are no more.
    fn delete_some(&self, deleting: &mut Deleting<'_>) -> Result<bool> {
        self.check_interrupt()?;
        let mut inner = self.begin_write()?;
        let result = self.delete_run(&mut inner, deleting);
        match self.after_error(inner, result)? {
            Step::Done => Ok(false),
            Step::Again => Ok(true),
            Step::Single(key) => {
                let written = self.write(deleting.tree, &key, Write::Delete)?;
                paranoid!(
                    matches!(written, Written::Changed | Written::Missing),
                    "a delete came to {written:?}"
                );
                deleting.deleted += u64::from(written == Written::Changed);
                deleting.at = behind(&key);
                Ok(true)
            }
        }
    }

    /// Deletes the plain rows at the front that stand side by side in one leaf.
    fn delete_run(&self, inner: &mut Inner, deleting: &mut Deleting<'_>) -> Result<Step> {
        if self.shared.state.is_doomed() {
            return Err(Error::Deadlock);
        }
        self.pin_snapshot(inner);
        let tree = deleting.tree;
        let leaf = tree.leaf_exclusive(Target::Key(&deleting.at))?;
        let page = TreePage(&leaf);
        let (slots, next) = deleting.part_of(page);
        let run = self.plain_run(inner, page, slots)?;
        let Some((run, is_plain)) = run else {
            let Some(next) = next else {
                return Ok(Step::Done);
            };
            deleting.at = next;
            return Ok(Step::Again);
        };
        let first = page.key(run.start);
        let is_begun = deleting.address.is_some();
        if !is_plain || !is_begun && !deleting.takes_bulk(inner, run.len()) {
            return Ok(Step::Single(first));
        }
        let Some(address) = deleting.address else {
            drop(leaf);
            deleting.at = first;
            self.begin_bulk_delete(inner, deleting)?;
            return Ok(Step::Again);
        };
        let count = self.marks_that_fit(page, run.clone());
        if count == 0 {
            return match make_room(&self.core, leaf, ADDRESS_LEN, &first)? {
                Room::Yes(_) => Ok(Step::Single(first)),
                Room::Cleaned => Ok(Step::Again),
                Room::No => {
                    let wanted = SplitFor::row(&first, ADDRESS_LEN);
                    let split = tree.split_leaf(wanted, &self.core.liveness());
                    split.map(|()| Step::Again)
                }
            };
        }
        let run = run.start..run.start + count;
        let last = page.key(run.end - 1);
        self.mark_run(inner, deleting, leaf, run, address)?;
        deleting.at = behind(&last);
        Ok(Step::Again)
    }

    /// The plain rows side by side among these, behind those that are deleted already; or the one
    /// behind them that is not plain, and false. `None`: all are deleted.
    fn plain_run(
        &self,
        inner: &Inner,
        page: TreePage<'_>,
        slots: Range<usize>,
    ) -> Result<Option<(Range<usize>, bool)>> {
        let oldest = self.core.trxs.oldest_snapshot();
        let (mut run, mut known): (Option<Range<usize>>, _) = (None, None);
        for slot in slots {
            let cell = page.cell(slot);
            let of = (cell.flags, cell.version);
            let standing = match known {
                Some((same, standing)) if same == of => standing,
                _ => self.standing(inner, of, oldest, cell.is_overflow())?,
            };
            known = Some((of, standing));
            match (&mut run, standing) {
                (None, Standing::Gone) => {}
                (None, _) => {
                    run = Some(slot..slot + 1);
                    if standing == Standing::Other {
                        return Ok(run.map(|run| (run, false)));
                    }
                }
                (Some(run), Standing::Plain) => run.end = slot + 1,
                (Some(_), _) => break,
            }
        }
        paranoid!(
            run.as_ref()
                .is_none_or(|run| !run.is_empty() && run.end <= page.count()),
            "rows {run:?} of a page of {} are to be deleted",
            page.count()
        );
        Ok(run.map(|run| (run, true)))
    }

    /// How the row of a cell stands to a bulk delete, of which the leaf is latched.
    fn standing(
        &self,
        inner: &Inner,
        (flags, version): (u8, Option<VersionAddress>),
        oldest: u64,
        is_long: bool,
    ) -> Result<Standing> {
        if flags & inkstone_format::tree_page::CELL_DELETED != 0 {
            return match self.newest(inner, version) {
                Ok(Newest::Free | Newest::Own) => Ok(Standing::Gone),
                // Whichever it is, the delete of that row says so.
                Ok(_) | Err(Error::WriteConflict) => Ok(Standing::Other),
                Err(error) => Err(error),
            };
        }
        if is_long {
            return Ok(Standing::Other);
        }
        let Some(address) = version else {
            return Ok(Standing::Plain);
        };
        let Some(trx) = self.core.versions.trx_of(address, oldest)? else {
            return Ok(Standing::Plain);
        };
        Ok(match trx.settled_status() {
            TrxStatus::Committed(number) if number <= oldest => Standing::Plain,
            _ => Standing::Other,
        })
    }

    /// How many rows from the front of a run have room for an address, compaction counted.
    fn marks_that_fit(&self, page: TreePage<'_>, run: Range<usize>) -> usize {
        let live = self.core.liveness();
        let is_dead = |slot| page.version(slot).is_some_and(|v| !live(v));
        let dead = (0..page.count()).filter(|&slot| is_dead(slot)).count();
        let mut room = page.free() + dead * ADDRESS_LEN;
        let len = run.len();
        let first = run.start;
        for slot in run {
            // A dead address is not free any more when it is replaced.
            let takes = page.version(slot).is_none() || is_dead(slot);
            if takes && room < ADDRESS_LEN {
                return slot - first;
            }
            room -= if takes { ADDRESS_LEN } else { 0 };
        }
        len
    }

    /// Makes the version of the bulk's rows. No page is latched.
    fn begin_bulk_delete(&self, inner: &mut Inner, deleting: &mut Deleting<'_>) -> Result<()> {
        let (core, tree) = (&self.core, deleting.tree);
        core.move_undo_early(&self.shared, inner)?;
        core.versions.reserve_undo(&mut inner.touched, 1)?;
        let mut change = Change {
            core,
            shared: &self.shared,
            inner,
        };
        let address = change.version(NewVersion {
            kind: VersionKind::DeleteMark,
            flags: BULK,
            space: tree.space.id,
            tree: tree.id,
            key: &deleting.at,
            old_flags: 0,
            old_value: &bulk_end(deleting.to.as_deref()),
            previous: VersionAddress(0),
            undo_previous: change.inner.undo_last,
            steps: 0,
        })?;
        paranoid!(
            address.is_logged() && change.inner.logged,
            "a bulk delete with version {address} begins a transaction, or is not logged"
        );
        let mut mtr = Mtr::new(&core.storage);
        mtr.note(&Record::BulkDelete {
            trx_slot: self.shared.state.slot(),
            address,
            space: tree.space.id,
            tree: tree.id,
            from: deleting.at.clone(),
            to: deleting.to.clone(),
        });
        mtr.commit()?;
        inner.undo_last = address;
        deleting.address = Some(address);
        core.storage.counters.add(Counter::BulkDeletes, 1);
        Ok(())
    }

    /// Marks rows of a leaf deleted.
    fn mark_run(
        &self,
        inner: &mut Inner,
        deleting: &mut Deleting<'_>,
        leaf: Exclusive<'_>,
        run: Range<usize>,
        address: VersionAddress,
    ) -> Result<()> {
        let (core, page, tree) = (&self.core, leaf.id(), deleting.tree);
        let mut key = Vec::new();
        for slot in run.clone() {
            TreePage(&leaf).key_into(slot, &mut key);
            core.note_change((page.space, tree.id), &key, &self.shared.state);
        }
        let live = core.liveness();
        let rows = run.len() as u64;
        if tree.id == CLUSTERED_TREE {
            (0..rows).for_each(|_| self.shared.state.add_cost());
        }
        let mut mtr = Mtr::new(&core.storage);
        let index = mtr.push(leaf);
        mtr.change(index, |bytes, payload| {
            let placed = TreePageMut(bytes).mark(run.clone(), Some(address), &live);
            crate::invariant!(placed.is_ok(), "marks do not fit page {page} after all");
            let record = Record::RowsMark {
                page,
                version: Some(address),
                slot: run.start as u16,
                count: run.len() as u16,
            };
            record.put(payload);
        });
        paranoid!(
            run.clone().all(|slot| {
                let page = TreePage(mtr.page(index));
                page.is_deleted(slot) && page.version(slot) == Some(address)
            }),
            "rows {run:?} of page {page} are not marked with version {address}"
        );
        let change = Change {
            core,
            shared: &self.shared,
            inner,
        };
        change.commit(
            mtr,
            Made {
                address,
                tree: tree.id,
                rows,
                undo_bytes: undo_log_bytes(0, 0),
                coding: Coding::Apart,
                is_of_bulk: true,
            },
        )?;
        core.storage.counters.add(Counter::RowsDeleted, rows);
        core.storage.counters.add(Counter::RowsBulkDeleted, rows);
        deleting.deleted += rows;
        Ok(())
    }
}

impl<'t> Deleting<'t> {
    /// `None`: no key is in the range.
    fn new(tree: &'t Tree, (low, high): (Bound<&[u8]>, Bound<&[u8]>)) -> Option<Self> {
        let at = match low {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Vec::new(),
        };
        let to = match high {
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        if to.as_ref().is_some_and(|to| *to <= at) {
            return None;
        }
        Some(Self {
            tree,
            at,
            to,
            address: None,
            deleted: 0,
        })
    }

    /// The slots of a leaf that are to be looked at, and the key to go on with behind it.
    fn part_of(&self, page: TreePage<'_>) -> (Range<usize>, Option<Vec<u8>>) {
        let first = page.search(&self.at).unwrap_or_else(|slot| slot);
        let ends_here = match (&self.to, page.high()) {
            (_, None) => true,
            (Some(to), Some(high)) => to[..] <= *high,
            (None, Some(_)) => false,
        };
        let last = match &self.to {
            Some(to) if ends_here && page.covers(to) => page.search(to).unwrap_or_else(|slot| slot),
            _ => page.count(),
        };
        paranoid!(
            page.covers(&self.at) && first <= page.count(),
            "a leaf is looked at that does not cover {:x?}",
            self.at
        );
        let next = page.high().filter(|_| !ends_here).map(<[u8]>::to_vec);
        (first..last.max(first), next)
    }

    /// Whether so many rows side by side are worth a bulk.
    fn takes_bulk(&self, inner: &Inner, rows: usize) -> bool {
        // What begins a bulk begins no transaction.
        inner.logged
            && rows >= BULK_ROWS_MOVED
            && (inner.undo_place.is_moved() || self.deleted + rows as u64 >= BULK_ROWS)
    }
}

/// The least key behind another.
fn behind(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}
