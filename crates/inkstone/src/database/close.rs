//! Closing a database.
//!
//! | [`Shutdown`] | what is done before the background threads stop | what is written behind that |
//! |---|---|---|
//! | `Slow` | purge, and the rollbacks and the redo of recovery, come to their end | log, pages, a last checkpoint |
//! | `Fast` | the redo of recovery comes to its end | log, pages, a last checkpoint |
//! | `LogOnly` | | log |
//!
//! A database that was opened for reading only has changed nothing but memory, and writes nothing.
//! Without the last checkpoint the control file goes on saying that the database is open, so the
//! next opening recovers, as from a kill.
//!
//! # Promises
//!
//! 1. When a close has returned without an error all that was committed is durable, whatever the
//!    commits waited for. Tested by the simulator (`closed-log-unsynced`).

use super::Inner;
use super::checkpoint::Occasion;
use crate::mvcc::versions::Cut;
use crate::options::Shutdown;
use crate::paranoid::paranoid;
use crate::rows::purge;
use crate::sync::atomic::Ordering;
use crate::{Error, Result};

/// A version segment is sealed by the second round of purge that finds it quiet, and retired by the
/// next: so many rounds that retire nothing, and there is nothing left.
const IDLE_ROUNDS: usize = 3;

impl Inner {
    /// Stops the background threads and, if all is well, writes what is left to write.
    pub(super) fn shut_down(&self, how: Shutdown) -> Result<()> {
        if self.core.storage.poison.is_forked() {
            return Err(Error::Forked);
        }
        let Some(background) = self.background.lock().take() else {
            return Ok(());
        };
        let how = if self.options.is_read_only() {
            Shutdown::LogOnly
        } else {
            how
        };
        let tidied = match how {
            Shutdown::Slow => self.purge_everything(),
            Shutdown::Fast | Shutdown::LogOnly => Ok(()),
        };
        let redone = match how {
            Shutdown::Slow | Shutdown::Fast => self.finish_redo(),
            Shutdown::LogOnly => Ok(()),
        };
        self.core.stopping.store(true, Ordering::Release);
        self.sort_file.close();
        background.stop();
        let written = match how {
            Shutdown::Slow | Shutdown::Fast => self.write_everything(),
            Shutdown::LogOnly => Ok(()),
        };
        self.core.storage.pool.close();
        // It syncs what it has.
        let closed = self.core.storage.log.close();
        // A transaction that outlives the database must not touch files that the next opener owns.
        let was = self.core.storage.poison.check();
        self.core.storage.poison.close();
        was.and(written).and(closed).and(redone).and(tidied)
    }

    /// Rolls back what recovery has left, and purges until no more can be: open transactions keep
    /// what their snapshots need.
    fn purge_everything(&self) -> Result<()> {
        let core = &self.core;
        core.storage.poison.check()?;
        core.finish_recovered()?;
        let log = &core.storage.log;
        let mut idle = 0;
        while idle < IDLE_ROUNDS {
            // What is not durable is not purged.
            log.wait_durable(log.current_lsn())?;
            match purge::run(core)? {
                0 => idle += 1,
                _ => idle = 0,
            }
        }
        Ok(())
    }

    fn write_everything(&self) -> Result<()> {
        self.core.storage.poison.check()?;
        // A hint for the next open: failing to write it spoils nothing else.
        let _ = self.dump_buffer_pool();
        let log = &self.core.storage.log;
        log.wait_durable(log.current_lsn())?;
        self.core.storage.pool.flush_all()?;
        self.files.sync_all(&*self.vfs)?;
        self.cut_undo_file(Cut::Most);
        self.checkpoint(Occasion::Close)?;
        let control = self.checkpoints.control();
        paranoid!(
            !control.clean_shutdown || control.checkpoint_lsn == control.known_durable_lsn,
            "an orderly close leaves log behind the checkpoint at LSN {}",
            control.checkpoint_lsn
        );
        Ok(())
    }
}
