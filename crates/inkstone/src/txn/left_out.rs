//! Transactions with rows that the log does not have (decision 0041; see `unlogged.rs`).
//!
//! # Promises
//!
//! 1. The log says that such a transaction is committed, or prepared, only when a checkpoint has
//!    passed all its changes that left rows out: the disk has them, and no recovery makes their
//!    pages anew. Checked by `LeftOut::check_settled`. Tested by the simulator
//!    (`left-out-unsettled`).

use crate::counters::Counter;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::sync::Instant;
use crate::txn::core::Core;
use crate::txn::gates::ROUNDS;
use crate::txn::state::Inner;
use crate::txn::transaction::Transaction;
use crate::{Error, Result};
use inkstone_format::{Lsn, VersionAddress};
use std::time::Duration;

/// Bytes of bulk inserts of a transaction from which on the log may lack rows: less is not worth a
/// checkpoint.
const BYTES_MIN: u64 = if cfg!(inkstone_sim) { 1 << 10 } else { 4 << 20 };
/// The checkpoint at the end writes whatever is dirty. So much of that there may be for each byte
/// inserted. (In the simulator all that there is.)
const DIRTY_PARTS: u64 = if cfg!(inkstone_sim) { 1 << 20 } else { 4 };
/// How long a transaction waits for a checkpoint that does not come nearer.
const PATIENCE: Duration = Duration::from_secs(10);
/// It looks as often, at least.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What the log lacks of a transaction.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Bytes of rows that its bulk inserts have inserted.
    bytes: u64,
    /// Those bulk inserts of which the log lacks rows.
    bulks: Vec<VersionAddress>,
    /// The log's end behind the last change that left rows out.
    end: Lsn,
    /// Whatever follows is logged.
    is_over: bool,
}

impl LeftOut {
    /// Counts bytes of rows of a bulk insert. Whether there are enough for the log to lack more.
    pub fn count(&mut self, core: &Core, bytes: u64) -> bool {
        self.bytes += bytes;
        if !core.options.bulks_leave_rows_out || self.bytes < BYTES_MIN {
            return false;
        }
        // Once it has begun there will be a checkpoint anyway.
        let storage = &core.storage;
        let dirty = || storage.pool.dirty_pages() as u64 * storage.page_size as u64;
        !self.bulks.is_empty() || dirty() / DIRTY_PARTS <= self.bytes
    }

    /// From now on the log may lack rows of this bulk insert; false: not now.
    pub fn begin(&mut self, core: &Core, address: VersionAddress) -> bool {
        let begun = !self.is_over && core.storage.unlogged.begin(address);
        if begun {
            self.bulks.push(address);
        }
        begun
    }

    /// A change has left rows out.
    pub fn note(&mut self, core: &Core) {
        self.end = core.storage.log.current_lsn();
    }

    /// The transaction is committed, or its rows are gone.
    pub fn end(&mut self, core: &Core) {
        core.storage.unlogged.end(&std::mem::take(&mut self.bulks));
    }

    pub fn check_settled(&self, core: &Core) {
        let checkpoint = core.storage.log.checkpoint_lsn();
        paranoid!(
            self.end <= checkpoint || mutants::on(Mutant::LeftOutUnsettled),
            "the log lacks rows from before LSN {}, and the checkpoint is at {checkpoint}",
            self.end
        );
    }
}

impl Inner {
    /// Has all rows that follow logged, for good. The log's end behind the last change that left
    /// some out; 0 if there is none.
    pub(crate) fn leave_out_no_more(&mut self) -> Lsn {
        self.left_out.is_over = true;
        for bulk in &mut self.bulks {
            bulk.is_unlogged = false;
        }
        self.left_out.end
    }
}

impl Transaction {
    /// Before the log says that the transaction is committed or prepared. If it fails the
    /// transaction is rolled back: its rows are nowhere but in memory.
    pub(crate) fn settle_left_out(&self, inner: &mut Inner) -> Result<()> {
        let end = inner.left_out.end;
        if end == Lsn(0) || mutants::on(Mutant::LeftOutUnsettled) {
            return Ok(());
        }
        if let Err(error) = self.settle(end) {
            self.roll_back(inner)?;
            return Err(error);
        }
        self.core.storage.counters.add(Counter::UnloggedCommits, 1);
        Ok(())
    }

    /// Waits for a checkpoint that has passed `end`, for which it writes the pages.
    fn settle(&self, end: Lsn) -> Result<()> {
        let (core, log) = (&self.core, &self.core.storage.log);
        let (mut since, mut round, mut stage) = (Instant::now(), 0, None);
        while log.checkpoint_lsn() < end {
            core.storage.poison.check()?;
            self.check_interrupt()?;
            let written = core.storage.pool.flush_older(end);
            let dirty = core.storage.pool.oldest_dirty_lsn();
            let now = (log.checkpoint_lsn(), dirty.filter(|&dirty| dirty < end));
            if stage != Some(now) {
                (since, round, stage) = (Instant::now(), log.checkpoint_rounds(), Some(now));
            }
            if since.elapsed() > PATIENCE && log.checkpoint_rounds() >= round + ROUNDS {
                written?;
                return Err(log.checkpoint_failure().unwrap_or(Error::TransactionState(
                    "its rows are not in the log, and no checkpoint has passed them",
                )));
            }
            if !log.call_checkpoint() {
                return Err(Error::Closed);
            }
            log.wait_for_checkpoint(end, LOOK_EVERY);
        }
        Ok(())
    }
}
