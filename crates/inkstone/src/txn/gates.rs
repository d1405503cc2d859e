//! What a thread passes before it changes pages, with no page latched: where it is held back, and
//! where a full disk is noticed.
//!
//! The gates of a statement that writes, in this order:
//!
//! | gate | protects | waits for | fails with |
//! |---|---|---|---|
//! | handle: `TableTree::live` | what was dropped, from handles that outlive it; the log, from pages of another database | nothing | `NotFound`, `OtherDatabase` |
//! | place of pages: `Space::check_room` | reads and rollbacks, from pages that no longer fit into a placed file | on a full disk, the tablespace's dirty pages to be written | `DiskFull` |
//! | poison: `Poison::check` | the disk, from memory that a failed write or sync has made wrong; the files of the next opener | nothing | `Poisoned`, `Closed`, `Forked` |
//! | opened to be written: `Core::check_writable` | the disk, where nothing may be changed | nothing | `ReadOnly` |
//! | log on disk: `Log::prepare` | what is left of the log, for rollbacks | a segment to be made, or let go of by a checkpoint | `DiskFull` |
//! | age of pages: `BufferPool::throttle` | the time that recovery takes, from pages that are dirty for long | the cleaner | `Poisoned` |
//! | log in memory: `Log::wait_for_space` | the ring's last half, for writers that hold latches | the log's writer | `Poisoned` |
//! | old versions: `VersionStore::make_room` | memory | segments to be written to their file | `DiskFull`, `Io` |
//! | state: `Transaction::latch_active` | a transaction that is prepared, being rolled back or over | its latch: a checkpoint that moves its undo | `TransactionState` |
//! | place of undo: `Core::move_large_undo` | the log, from a transaction that would keep much of it | its rows to be renamed | `DiskFull`, `Io` |
//! | space for undo: `VersionStore::reserve_undo` | the log, from undo that cannot be saved | space in the undo file | `DiskFull`, `Io` |
//! | promise: `LogPromise::cover_operation` | its rollback | as log on disk | `DiskFull` |
//!
//! Behind them, under the leaf's latch, only locks of other transactions are in the way (`locks`):
//! the thread waits for those without the latch, and does not pass the gates again.
//!
//! What passes which of them:
//!
//! | work | gates |
//! |---|---|
//! | a statement's write: `Transaction::begin_write` | from poison on; the handle was looked at by its caller, and the place of pages, unless it deletes |
//! | the next pages of a long value: `Transaction::go_on_writing` | the same, without the state: it has the latch |
//! | a first record that is no change: `Core::before_write` | poison to old versions |
//! | before a step of a rollback: `Core::before_undo` | poison; log on disk, first of what was promised, then waited for |
//! | the step: `Core::begin_undo` | the same, without waiting: otherwise back to the former; log in memory |
//! | purge, freeing pages: `Core::before_upkeep` | poison, log on disk, log in memory |
//! | a round of purge that a program asks for: `Core::before_round` | poison, log on disk |
//! | a reader that removes dead rows: `Core::before_cleaning` | log on disk, without waiting: otherwise it is left; log in memory |
//! | a row whose version is renamed: `Core::before_renaming` | log in memory: the statement, or the checkpoint, has passed the others |
//!
//! The last four but the rollback also look whether the tablespace is to be left as it is while it
//! is exported (`Space::tidy`), and hold that off. Statements do not: an export's caller keeps them
//! away.

use crate::counters::{Counter, Timed};
use crate::log::Log;
use crate::mutants::{self, Mutant};
use crate::paranoid::CheckedGuard;
use crate::sync::Instant;
use crate::sync::atomic::Ordering;
use crate::txn::core::Core;
use crate::txn::promise::rollback_step_bytes;
use crate::txn::state::{Inner, Shared};
use crate::txn::transaction::Transaction;
use crate::txn::undo_place::saved_every;
use crate::{Error, Result};
use std::time::Duration;

/// How long a writer waits for room in the log while checkpoints make none. (On a disk that stands
/// still there are none: it waits as long as that does.)
const PATIENCE: Duration = Duration::from_secs(10);
/// On a full disk, where there are fewer files that may be used again.
const PATIENCE_ON_FULL_DISK: Duration = Duration::from_secs(1);
/// It looks as often, at least.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The checkpoint that is under way when a wait begins, and one that has seen all of what it waits
/// for.
pub(super) const ROUNDS: u64 = 2;

/// How long a thread waits for room in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// On a full disk not long, as its caller can do something about that.
    Statement,
    Rollback,
}

impl Patience {
    fn time(self, log: &Log) -> Duration {
        match self {
            Self::Statement if log.is_disk_full() => PATIENCE_ON_FULL_DISK,
            _ => PATIENCE,
        }
    }
}

/// A transaction that the thread has latched, and is not in the middle of an operation.
pub(crate) struct Own<'a> {
    pub shared: &'a Shared,
    pub inner: &'a mut Inner,
}

impl Transaction {
    /// Before a statement writes. The inner state of the transaction, which may write one operation
    /// now.
    pub(crate) fn begin_write(&self) -> Result<CheckedGuard<'_, Inner>> {
        self.core.before_write()?;
        let mut inner = self.latch_active()?;
        self.ready_undo(&mut inner)?;
        Ok(inner)
    }

    /// Before one more operation of a statement that [`begin_write`](Self::begin_write) has begun.
    pub(crate) fn go_on_writing(&self, inner: &mut Inner) -> Result<()> {
        let shared = &*self.shared;
        self.core.before_write_of(Some(Own { shared, inner }))?;
        self.ready_undo(inner)
    }

    /// Its undo has a place, and the log has room for it.
    fn ready_undo(&self, inner: &mut Inner) -> Result<()> {
        self.core.name_saved(&self.shared, inner)?;
        self.core.move_large_undo(&self.shared, inner)?;
        if inner.undo_place.is_moved() {
            self.core.versions.reserve_undo(&mut inner.touched, 1)?;
        }
        if inner.promise.covers_operation(&self.core) {
            return Ok(());
        }
        let (core, shared) = (&self.core, &*self.shared);
        core.wait_for_log(Some(Own { shared, inner }), Patience::Statement, |inner| {
            inner.map_or(Ok(()), |inner| inner.promise.cover_operation(core))
        })
    }
}

impl Core {
    /// [`Error::ReadOnly`] if nothing may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            Err(Error::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Before a transaction logs something.
    pub(crate) fn before_write(&self) -> Result<()> {
        self.before_write_of(None)
    }

    /// `own`: the transaction that the thread has latched.
    fn before_write_of(&self, own: Option<Own<'_>>) -> Result<()> {
        self.storage.poison.check()?;
        self.check_writable()?;
        self.wait_for_log(own, Patience::Statement, |_| self.storage.log.prepare())?;
        self.storage.pool.throttle()?;
        self.storage.log.wait_for_space()?;
        self.versions.make_room()
    }

    /// Before a step of a rollback of `own`, which the thread has latched: waits until the log has
    /// room for it. Of the transaction itself the log need keep nothing meanwhile: its undo moves
    /// and is saved, so what was known of its versions before may be at another place. None: of a
    /// transaction that is being rolled back from what recovery found in the log.
    pub(crate) fn before_undo(&self, own: Option<(&Shared, &mut Inner)>) -> Result<()> {
        let mut own = own.map(|(shared, inner)| Own { shared, inner });
        if let Some(own) = &mut own {
            self.save_undo_of_rollback(own.shared, own.inner)?;
        }
        self.storage.poison.check()?;
        let is_moved = own
            .as_ref()
            .is_some_and(|own| own.inner.undo_place.is_moved());
        let own = own.filter(|_| !mutants::on(Mutant::RollbackKeepsLog));
        self.wait_for_log(own, Patience::Rollback, |inner| {
            let inner = inner.map(|inner| inner.undo_place.is_moved());
            self.room_for_undo(inner.unwrap_or(is_moved))
        })
    }

    /// The step itself, behind [`before_undo`](Self::before_undo): false if other threads have
    /// taken the room. The thread must not wait here, where the place of undo cannot change.
    pub(crate) fn begin_undo(&self, is_moved: bool) -> Result<bool> {
        self.storage.poison.check()?;
        match self.room_for_undo(is_moved) {
            Err(Error::DiskFull { .. }) => return Ok(false),
            looked => looked?,
        }
        self.storage.log.wait_for_space()?;
        Ok(true)
    }

    /// A rollback may go on where the disk is too full for others, as long as its promise holds.
    /// That of a transaction whose undo has moved has none.
    fn room_for_undo(&self, is_moved: bool) -> Result<()> {
        let (log, step) = (&self.storage.log, rollback_step_bytes(self));
        if is_moved {
            log.prepare_step_beside(step)
        } else {
            log.prepare_rollback_step(step)
        }
    }

    /// Before one step of work that no statement asks for. On a full disk it fails: what is left of
    /// the log is for rollbacks.
    pub(crate) fn before_upkeep(&self) -> Result<()> {
        self.storage.poison.check()?;
        self.storage.log.prepare()?;
        self.storage.log.wait_for_space()
    }

    /// Before a round of upkeep that a program asks for: it waits, as a statement does.
    pub(crate) fn before_round(&self) -> Result<()> {
        self.storage.poison.check()?;
        self.wait_for_log(None, Patience::Statement, |_| self.storage.log.prepare())
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

    /// Waits until `look` finds the room in the log that it wants, which checkpoints make. No page
    /// is latched. Of the transaction that the thread has latched the undo is saved meanwhile.
    ///
    /// # Errors
    /// That of `look`, at once if no checkpoint can make room, or when none has for
    /// [`PATIENCE`]; after that at once, until one has.
    #[inline]
    pub(crate) fn wait_for_log(
        &self,
        mut own: Option<Own<'_>>,
        patience: Patience,
        mut look: impl FnMut(Option<&mut Inner>) -> Result<()>,
    ) -> Result<()> {
        match look(own.as_mut().map(|own| &mut *own.inner)) {
            Err(error @ Error::DiskFull { .. }) => {
                self.wait_for_room(own, patience, &mut look, error)
            }
            other => other,
        }
    }

    #[cold]
    fn wait_for_room(
        &self,
        mut own: Option<Own<'_>>,
        patience: Patience,
        look: &mut dyn FnMut(Option<&mut Inner>) -> Result<()>,
        mut error: Error,
    ) -> Result<()> {
        let log = &self.storage.log;
        let mut freed = self.log_freed();
        let is_stuck = self.log_stuck_at.load(Ordering::Relaxed) == freed + 1;
        if is_stuck && patience == Patience::Statement || !log.call_checkpoint() {
            return Err(error);
        }
        self.storage.counters.add(Counter::CheckpointWaits, 1);
        if patience == Patience::Rollback {
            self.storage.counters.add(Counter::RollbackWaits, 1);
        }
        let _timing = self.storage.counters.time(Timed::LogSpaceWait);
        let (mut since, mut round) = (Instant::now(), log.checkpoint_rounds());
        loop {
            if let Some(own) = &mut own {
                let limit = saved_every(log.capacity_bytes()) / 4;
                match self.save_own_undo(own.shared, own.inner, limit) {
                    // A rollback goes on in what it was promised of the log.
                    Err(Error::DiskFull { .. }) if patience == Patience::Rollback => {}
                    saved => saved?,
                }
            }
            log.wait_for_room(LOOK_EVERY);
            self.storage.poison.check()?;
            match look(own.as_mut().map(|own| &mut *own.inner)) {
                Err(again @ Error::DiskFull { .. }) => error = again,
                other => return other,
            }
            let now = self.log_freed();
            if now != freed {
                (freed, since, round) = (now, Instant::now(), log.checkpoint_rounds());
            } else if since.elapsed() > patience.time(log)
                && log.checkpoint_rounds() >= round + ROUNDS
            {
                if self.keeps_log_for_good() {
                    log.grow_beyond();
                    since = Instant::now();
                    continue;
                }
                self.log_stuck_at.store(freed + 1, Ordering::Relaxed);
                return Err(error);
            }
            if !log.call_checkpoint() {
                return Err(error);
            }
        }
    }

    /// A number that changes when log is freed, or comes nearer to that.
    fn log_freed(&self) -> u64 {
        let keep_from = self.storage.log.keep_from();
        let dirty = self.storage.pool.oldest_dirty_lsn();
        keep_from.0 + dirty.map_or(0, |dirty| dirty.0)
    }
}
