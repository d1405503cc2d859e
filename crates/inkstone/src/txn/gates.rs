//! What a thread passes before it changes pages, with no page latched: where it is held back, and
//! where a full disk is noticed.
//!
//! The gates of a statement that writes, in this order:
//!
//! | gate | protects | waits for | fails with |
//! |---|---|---|---|
//! | handle: `TableTree::live` | what was dropped, from handles that outlive it; the log, from pages of another database | nothing | `NotFound`, `OtherDatabase` |
//! | poison: `Poison::check` | the disk, from memory that a failed write or sync has made wrong; the files of the next opener | nothing | `Poisoned`, `Closed`, `Forked` |
//! | opened to be written: `Core::check_writable` | the disk, where nothing may be changed | nothing | `ReadOnly` |
//! | log on disk: `Log::prepare` | on a full disk what is left of the log, for rollbacks | a segment to be made | `DiskFull` |
//! | age of pages: `BufferPool::throttle` | the time that recovery takes, from pages that are dirty for long | the cleaner | `Poisoned` |
//! | age of the checkpoint: `Core::hold_back` | the length of the log, from checkpoints that are late | a pause of 10 ms at most | |
//! | log in memory: `Log::wait_for_space` | the ring's last half, for writers that hold latches | the log's writer | `Poisoned` |
//! | old versions: `VersionStore::make_room` | memory | segments to be written to their file | `DiskFull`, `Io` |
//! | state: `Transaction::active` | a transaction that is prepared, being rolled back or over | its latch: a checkpoint that moves its undo | `TransactionState` |
//! | place of undo: `Core::move_large_undo` | the log, from a transaction that would keep much of it | its rows to be renamed | `DiskFull`, `Io` |
//! | promise: `LogPromise::cover_operation` | its rollback, on a full disk | a segment to be made | `DiskFull` |
//!
//! Behind them, under the leaf's latch, only locks of other transactions are in the way (`locks`):
//! the thread waits for those without the latch, and does not pass the gates again.
//!
//! What passes which of them:
//!
//! | work | gates |
//! |---|---|
//! | a statement's write: `Transaction::begin_write` | from poison on; the handle was looked at by its caller |
//! | the next pages of a long value: `Transaction::go_on_writing` | the same, without the state: it has the latch |
//! | a first record that is no change: `Core::before_write` | poison to old versions |
//! | a step of a rollback: `Core::before_undo` | poison; log on disk, of which the promise is used up; log in memory |
//! | purge, freeing pages: `Core::before_upkeep` | poison, log on disk, log in memory |
//! | a reader that removes dead rows: `Core::before_cleaning` | log on disk, without waiting: otherwise it is left; log in memory |
//! | a row whose version is renamed: `Core::before_renaming` | log in memory: the statement, or the checkpoint, has passed the others |
//!
//! The last four but the rollback also look whether the tablespace is to be left as it is while it
//! is exported (`Space::tidy`), and hold that off. Statements do not: an export's caller keeps them
//! away.

use crate::counters::{Counter, Timed};
use crate::paranoid::CheckedGuard;
use crate::sync::atomic::Ordering;
use crate::sync::thread;
use crate::txn::core::Core;
use crate::txn::promise::rollback_step_bytes;
use crate::txn::transaction::{Inner, Transaction};
use crate::{Error, Result};
use std::time::Duration;

/// The longest time that one write is held back when the log that recovery needs is too long.
const HELD_BACK_MAX: Duration = Duration::from_millis(10);

impl Transaction {
    /// Before a statement writes. The inner state of the transaction, which may write one operation
    /// now.
    pub(crate) fn begin_write(&self) -> Result<CheckedGuard<'_, Inner>> {
        self.core.before_write()?;
        let mut inner = self.active()?;
        self.ready_undo(&mut inner)?;
        Ok(inner)
    }

    /// Before one more operation of a statement that [`begin_write`](Self::begin_write) has begun.
    pub(crate) fn go_on_writing(&self, inner: &mut Inner) -> Result<()> {
        self.core.before_write()?;
        self.ready_undo(inner)
    }

    /// Its undo has a place, and the log has room for it.
    fn ready_undo(&self, inner: &mut Inner) -> Result<()> {
        self.core.move_large_undo(&self.shared, inner)?;
        inner.promise.cover_operation(&self.core)
    }
}

impl Core {
    /// [`Error::ReadOnly`] if nothing may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.options.read_only {
            true => Err(Error::ReadOnly),
            false => Ok(()),
        }
    }

    /// Before a transaction logs something.
    pub(crate) fn before_write(&self) -> Result<()> {
        self.storage.poison.check()?;
        self.check_writable()?;
        self.storage.log.prepare()?;
        self.storage.pool.throttle()?;
        self.hold_back();
        self.storage.log.wait_for_space()?;
        self.versions.make_room()
    }

    /// Before one step of a rollback: it may go on where the disk is too full for others.
    pub(crate) fn before_undo(&self) -> Result<()> {
        let log = &self.storage.log;
        self.storage.poison.check()?;
        log.prepare_rollback_step(rollback_step_bytes(self))?;
        log.wait_for_space()
    }

    /// Before one step of work that no statement asks for. On a full disk it fails: what is left of
    /// the log is for rollbacks.
    pub(crate) fn before_upkeep(&self) -> Result<()> {
        self.storage.poison.check()?;
        self.storage.log.prepare()?;
        self.storage.log.wait_for_space()
    }

    /// Before a reader removes what it has found dead; false if it is to leave that.
    pub(crate) fn before_cleaning(&self) -> Result<bool> {
        if !self.storage.log.has_room() {
            return Ok(false);
        }
        self.storage.log.wait_for_space()?;
        Ok(true)
    }

    /// Before a row's version gets another address.
    pub(crate) fn before_renaming(&self) -> Result<()> {
        self.storage.log.wait_for_space()
    }

    /// Slows a writer down while the log since the last checkpoint is longer than `log_file_size`,
    /// so that checkpoints can keep up. Not for log that an open transaction keeps: no pause brings
    /// its end nearer, and its undo is saved (`undo_place`).
    fn hold_back(&self) {
        let log = &self.storage.log;
        let checkpoint = self.checkpoint_lsn.load(Ordering::Relaxed);
        let age = log.current_lsn().0.saturating_sub(checkpoint);
        let capacity = log.capacity_bytes();
        if age > capacity {
            self.storage.counters.add(Counter::CheckpointWaits, 1);
            let _timing = self.storage.counters.time(Timed::LogSpaceWait);
            let over = (age - capacity) as f64 / capacity as f64;
            thread::sleep(HELD_BACK_MAX.mul_f64(over.min(1.0)));
        }
    }
}
