//! Giving the free ends of tablespace files, and of the undo file, back to the file system: what
//! does it, and when. How it is done without losing a page: `space/tail.rs`; a version:
//! `mvcc/versions/undo_end.rs`.

use super::{Database, Inner};
use crate::Result;
use crate::mvcc::versions::Cut;
use crate::paranoid::{MANY, paranoid};
use crate::rows::{Table, TreeRef};
use crate::space::{Space, Worth};
use std::sync::Arc;

/// Spaces that are looked at in one round of `ink-checkpoint`: a look may read two pages.
const LOOKS_MAX: usize = 8;

impl Inner {
    /// One round, once a second: looks at space maps that are still unknown, where pages are
    /// wanted; cuts tails that were found before a checkpoint that is durable by now, and looks for
    /// new ones. `round`: its number.
    pub(super) fn look_after_space(&self, round: u64) -> Result<()> {
        let checkpoint = self.checkpoints.behind_recoveries();
        let mut spaces: Vec<Arc<Space>> = self.core.known_spaces();
        spaces.sort_unstable_by_key(|space| space.id);
        let mut first = spaces.windows(2).take(MANY);
        paranoid!(
            first.all(|two| two[0].id < two[1].id),
            "a tablespace is known twice"
        );
        // Each has its turn, also if many others free pages all the time.
        let first = round as usize * LOOKS_MAX % spaces.len().max(1);
        spaces.rotate_left(first);
        let (mut looks, mut failed) = (0, None);
        for space in spaces.iter().filter(|space| !space.is_dropped()) {
            let mut round = || {
                space.look_around()?;
                if space.cut_tail(checkpoint)? == 0 && looks < LOOKS_MAX && space.may_have_tail() {
                    looks += 1;
                    space.find_tail(Worth::Much)?;
                }
                Ok(())
            };
            if let Err(error) = round() {
                // The others are served all the same.
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Gives the free end of the undo file back. In the background this happens about once a
    /// second. What fails is tried again.
    pub(super) fn cut_undo_file(&self, cut: Cut) {
        if self.options.is_read_only() {
            return;
        }
        let log = &self.core.storage.log;
        let cut = if log.is_disk_full() { Cut::All } else { cut };
        self.core.versions.cut_undo_file(cut, log.durable_lsn());
    }
}

impl Database {
    /// Gives what is free at the end of a table's file back to the file system now, and tells how
    /// many bytes that was. In the background this happens about once a second, when it is an
    /// eighth of the file, or a megabyte if that is more. Writes all changed pages and a
    /// checkpoint. What is free in the middle of the file is used again by the same table. While
    /// the database is [copied](Database::checkpoint_to) nothing more is given back.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"long", &vec![1; 10 << 20])?;
    /// txn.delete(&table, b"long")?;
    /// txn.commit()?;
    /// // Purge, in the background, frees the pages when no snapshot can see them.
    /// let bytes = db.shrink_table(&table)?;
    /// println!("{bytes} bytes are the file system's again");
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn shrink_table(&self, table: &Table) -> Result<u64> {
        self.inner.core.check_writable()?;
        let space = &table.tree_ref().live(&self.inner.core)?.space;
        if !space.find_tail(Worth::Anything)? {
            return Ok(0);
        }
        self.checkpoint()?;
        let checkpoint = self.inner.checkpoints.behind_recoveries();
        let pages = space.cut_tail(checkpoint)?;
        Ok(u64::from(pages) * self.inner.core.storage.page_size as u64)
    }
}
