//! Closing a database.

use super::Inner;
use super::checkpoint::Occasion;
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use crate::{Error, Result};

impl Inner {
    /// Stops the background threads and, if all is well, writes what is left and a last checkpoint.
    pub(super) fn shut_down(&self) -> Result<()> {
        if self.core.storage.poison.is_forked() {
            return Err(Error::Forked);
        }
        let Some(background) = self.background.lock().take() else {
            return Ok(());
        };
        self.core.stopping.store(true, Ordering::Release);
        background.stop();
        let result = self.write_everything();
        self.core.storage.pool.close();
        let closed = self.core.storage.log.close();
        // A transaction that outlives the database must not touch files that the next opener owns.
        let was = self.core.storage.poison.check();
        self.core.storage.poison.close();
        was.and(result).and(closed)
    }

    fn write_everything(&self) -> Result<()> {
        self.core.storage.poison.check()?;
        // A hint for the next open: failing to write it spoils nothing else.
        let _ = self.dump_buffer_pool();
        let log = &self.core.storage.log;
        log.wait_durable(log.current_lsn())?;
        self.core.storage.pool.flush_all()?;
        self.files.sync_all(&*self.vfs)?;
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
