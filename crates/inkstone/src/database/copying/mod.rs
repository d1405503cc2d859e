//! A copy of an open database, made while it is used
//! ([decision 0047](../../../../../docs/decisions/0047-a-copy-is-a-crash-that-is-copied.md)).
//!
//! What is copied is what a crash would leave, and opening the copy is recovery from it: the log
//! from a checkpoint's scan start to an LSN, the *end*, the pages of all tables as they were at any
//! moment between that checkpoint and the end, and what the log names in the undo file at the end.
//!
//! # Promises
//!
//! 1. The copy has all that was committed before the call, and of each transaction all or nothing.
//!    Tested by `a_copy_beside_writers_has_what_was_acknowledged`.
//! 2. What there is of a copy that has failed, or that a crash has interrupted, does not open: the
//!    control file comes last. Tested by `no_crash_leaves_half_a_copy_that_opens`,
//!    `a_copy_to_a_full_disk_is_refused_and_harms_nothing`.
//! 3. Each page is checked when it is copied. Tested by `a_damaged_page_ends_the_copy`.
//! 4. Log is kept until it is copied, and no longer for that. Tested by
//!    `a_copy_keeps_no_more_log_than_it_has_to_copy`.
//! 5. What a bulk insert leaves out of the log is on disk before pages are copied. Tested by
//!    `rows_that_are_not_in_the_log_are_in_the_copy`.

mod options;
mod target;

pub use options::{CheckpointOptions, CheckpointProgress, CheckpointReport};

use super::checkpoint::{CopyUnderWay, Occasion};
use super::temporary::Unkept;
use super::{Database, Inner};
use crate::catalog::CATALOG_SPACE;
use crate::log::LogCopy;
use crate::paranoid::paranoid;
use crate::store::{SpaceCopy, SpaceFile};
use crate::sync::{Instant, MutexGuard, thread};
use crate::unlogged::Unlogged;
use crate::{Error, Result};
use inkstone_format::{Lsn, SpaceId};
use inkstone_io::{BackendChoice, Vfs};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use target::Target;

/// Rounds of tables that were made meanwhile; those of the last one are copied with no more made.
const ROUNDS_MAX: u32 = 8;
/// The longest pause before the log is looked after again.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// How long a copy waits for a checkpoint behind rows that the log lacks.
const PATIENCE: Duration = Duration::from_secs(10);

impl Database {
    /// Copies the database, while it is used, to a directory that is empty or missing: the copy has
    /// all that was committed before the call, and what was committed while it was made up to one
    /// moment. [`Database::open`] opens it as any database, by recovery. Nothing waits for the
    /// copy, but for statements that create or drop tables at its end, for a moment.
    ///
    /// It is a copy of this moment, apart from this database. It has the same UUID, page LSNs and
    /// numbers, so segments of the log that are archived (`log_archive`) follow it; prepared
    /// transactions are prepared in both.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, backup) = (dir.path().join("db"), dir.path().join("backup"));
    /// let db = Database::open(&path, Options::default())?;
    /// let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"key", b"value")?;
    /// txn.commit()?;
    /// db.checkpoint_to(&backup)?;
    ///
    /// let copy = Database::open(&backup, Options::default())?;
    /// let txn = copy.begin(Isolation::RepeatableRead)?;
    /// assert_eq!(txn.get(&copy.table("t")?, b"key")?, Some(b"value".to_vec()));
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// One copy is made at a time; a second call waits. Meanwhile files of tables are seldom
    /// shortened, and all rows of bulk inserts are logged ([`BulkLogging`](crate::BulkLogging)).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] for a directory with anything in it; [`Error::DiskFull`] or
    /// [`Error::Io`] where the copy cannot be written, or the database not be read;
    /// [`Error::Corrupt`] for a page that is damaged; [`Error::ReadOnly`], as what recovery has
    /// done is in memory then. What there is of the copy is removed, the directory stays. What a
    /// crash leaves of one is refused by [`Database::open`].
    pub fn checkpoint_to(&self, directory: impl AsRef<Path>) -> Result<CheckpointReport> {
        self.checkpoint_to_with(directory, &CheckpointOptions::new())
    }

    /// As [`checkpoint_to`](Self::checkpoint_to), slower, or telling how far it has come.
    ///
    /// ```
    /// # use inkstone::{CheckpointOptions, Database, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, backup) = (dir.path().join("db"), dir.path().join("backup"));
    /// # let db = Database::open(&path, Options::default())?;
    /// let progress = |now: inkstone::CheckpointProgress| {
    ///     eprintln!("{} of {} bytes", now.page_bytes, now.page_bytes_total);
    /// };
    /// let options = CheckpointOptions::new()
    ///     .bytes_per_second(50 << 20)
    ///     .progress(&progress);
    /// let report = db.checkpoint_to_with(&backup, &options)?;
    /// println!("a copy as of LSN {}", report.end);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`checkpoint_to`](Self::checkpoint_to).
    pub fn checkpoint_to_with(
        &self,
        directory: impl AsRef<Path>,
        options: &CheckpointOptions<'_>,
    ) -> Result<CheckpointReport> {
        self.inner.core.storage.poison.check()?;
        self.inner.core.check_writable()?;
        let _one = self.inner.copying.lock();
        let target = Target::prepare(&self.inner, directory.as_ref())?;
        let copied = self.copy_to(&target, options);
        if copied.is_err() {
            target.remove();
        }
        copied
    }

    fn copy_to(
        &self,
        target: &Target,
        options: &CheckpointOptions<'_>,
    ) -> Result<CheckpointReport> {
        let (inner, log) = (&self.inner, &self.inner.core.storage.log);
        let all_logged = inner.log_all_rows();
        self.checkpoint()?;
        inner.checkpoint_behind(all_logged.floor)?;
        let under_way = {
            let _ddl = inner.begin_ddl()?;
            inner.checkpoints.begin_copy(log)
        };
        let control = under_way.control.clone();
        paranoid!(
            control.checkpoint_lsn >= all_logged.floor,
            "the log lacks rows below LSN {}, and a copy begins at the checkpoint at {}",
            all_logged.floor,
            control.checkpoint_lsn
        );
        let mut copy = Copying {
            inner,
            target,
            options,
            log: log.begin_copy(control.scan_start_lsn, target.log.clone()),
            under_way,
            begun: Instant::now(),
            progress: CheckpointProgress::default(),
        };
        let (tables, ddl) = self.copy_tables(&mut copy)?;
        let undo = inner.core.versions.hold_undo(log.durable_lsn());
        let end = log.current_lsn();
        drop((ddl, all_logged));
        log.wait_durable(end)?;
        copy.progress.log_bytes += copy.log.finish(end)?;
        drop(copy.under_way);
        let undo_bytes = target.copy_undo(inner)?;
        drop(undo);
        target.finish(inner, &control, end)?;
        Ok(CheckpointReport {
            checkpoint: control.checkpoint_lsn,
            end,
            tables,
            page_bytes: copy.progress.page_bytes,
            log_bytes: copy.progress.log_bytes,
            undo_bytes,
        })
    }

    /// Copies all tables, and those that are made meanwhile: how many there are, and what keeps
    /// more from being made.
    fn copy_tables(&self, copy: &mut Copying<'_>) -> Result<(usize, MutexGuard<'_, ()>)> {
        let mut copied = BTreeSet::new();
        for round in 1.. {
            let ddl = self.inner.begin_ddl()?;
            let spaces = self.definitions()?.into_iter().map(|table| table.space);
            let all: BTreeSet<SpaceId> = spaces.chain([CATALOG_SPACE]).collect();
            let new: Vec<SpaceId> = all.difference(&copied).copied().collect();
            let is_last = new.is_empty() || round == ROUNDS_MAX;
            paranoid!(
                self.inner.is_ddl_latched(),
                "tables are listed beside changes of tables"
            );
            let ddl = Some(ddl).filter(|_| is_last);
            copy.copy_all(&new)?;
            copied.extend(new);
            if let Some(ddl) = ddl {
                return Ok((all.len() - 1, ddl));
            }
        }
        crate::error::broken_invariant(format_args!("rounds have no end"), file!(), line!())
    }
}

/// A copy under way.
struct Copying<'c> {
    inner: &'c Inner,
    target: &'c Target,
    options: &'c CheckpointOptions<'c>,
    log: LogCopy<'c>,
    under_way: CopyUnderWay<'c>,
    begun: Instant,
    progress: CheckpointProgress,
}

impl Copying<'_> {
    fn copy_all(&mut self, spaces: &[SpaceId]) -> Result<()> {
        let mut files = Vec::with_capacity(spaces.len());
        for &space in spaces {
            match self.inner.files.find(space)? {
                Some(file) => files.push(file),
                None if self.inner.files.is_removed(space) => {}
                // It says what is missing.
                None => files.push(self.inner.files.open(space)?),
            }
        }
        let page_bytes = |file: &Arc<SpaceFile>| {
            u64::from(file.pages()) * self.inner.core.storage.page_size as u64
        };
        self.progress.page_bytes_total += files.iter().map(page_bytes).sum::<u64>();
        paranoid!(
            files.len() <= spaces.len(),
            "{} files of {} tables",
            files.len(),
            spaces.len()
        );
        files.into_iter().try_for_each(|file| self.copy(file))
    }

    /// Of a table that is dropped meanwhile nothing is needed: the log says so before its end.
    fn copy(&mut self, file: Arc<SpaceFile>) -> Result<()> {
        match self.copy_pages(file.clone()) {
            Err(_) if file.is_removed() => self.target.files.remove(file.space()),
            copied => copied,
        }
    }

    fn copy_pages(&mut self, file: Arc<SpaceFile>) -> Result<()> {
        let mut pages = SpaceCopy::begin(&self.inner.files, file, &self.target.files)?;
        loop {
            let bytes = pages.step()?;
            self.progress.page_bytes += bytes;
            self.look_after_log()?;
            if bytes == 0 {
                return pages.finish();
            }
            if let Some(tell) = self.options.progress {
                tell(self.progress);
            }
            self.pause()?;
        }
    }

    fn look_after_log(&mut self) -> Result<()> {
        self.inner.core.storage.poison.check()?;
        let bytes = self.log.catch_up()?;
        self.progress.log_bytes += bytes;
        if bytes > 0 {
            self.under_way.log_is_copied(self.log.copied());
        }
        Ok(())
    }

    /// Waits where pages were copied faster than they are to be.
    fn pause(&mut self) -> Result<()> {
        let Some(rate) = self.options.bytes_per_second else {
            return Ok(());
        };
        paranoid!(rate > 0, "a copy that is never to end");
        let due = Duration::from_secs_f64(self.progress.page_bytes as f64 / rate as f64);
        paranoid!(
            self.log.copied() >= self.under_way.control.scan_start_lsn,
            "the log is copied to LSN {}",
            self.log.copied()
        );
        loop {
            let early = due.saturating_sub(self.begun.elapsed());
            if early.is_zero() {
                return Ok(());
            }
            thread::sleep(early.min(PAUSE_MAX));
            self.look_after_log()?;
        }
    }
}

/// While it lives the log has all rows of bulk inserts.
struct AllLogged<'u> {
    unlogged: &'u Unlogged,
    /// The log lacks rows of changes below this, and of no others.
    floor: Lsn,
}

impl Drop for AllLogged<'_> {
    fn drop(&mut self) {
        self.unlogged.resume();
    }
}

impl Inner {
    /// Where copies are made: of a database in memory, on the real file system.
    fn vfs_of_copies(&self) -> Result<Arc<dyn Vfs>> {
        match self.unkept.get() {
            None => return Ok(self.vfs.clone()),
            Some(Unkept::InMemory) => {}
            Some(Unkept::Scratch) => {
                let why = "a copy of a scratch database, whose log is not kept";
                return Err(Error::Unsupported(why.to_owned()));
            }
        }
        inkstone_io::default_vfs(BackendChoice::Auto)
            .map_err(|e| Error::Unsupported(format!("a copy on the file system: {e}")))
    }

    /// From now on no rows are left out of the log (decision 0041). A transaction that has left
    /// some out is waited for until its operation is over.
    fn log_all_rows(&self) -> AllLogged<'_> {
        let unlogged = &*self.core.storage.unlogged;
        let is_any = unlogged.pause();
        let mut all_logged = AllLogged {
            unlogged,
            floor: Lsn(0),
        };
        let writers = if is_any {
            self.core.writers()
        } else {
            Vec::new()
        };
        for writer in writers {
            let last = writer.inner.lock().leave_out_no_more();
            all_logged.floor = all_logged.floor.max(last);
        }
        all_logged
    }

    /// Writes checkpoints until one is at or behind an LSN.
    fn checkpoint_behind(&self, floor: Lsn) -> Result<()> {
        let (storage, begun) = (&self.core.storage, Instant::now());
        while storage.log.checkpoint_lsn() < floor {
            storage.poison.check()?;
            storage.pool.flush_older(floor)?;
            self.checkpoint(Occasion::Demand)?;
            if storage.log.checkpoint_lsn() < floor && begun.elapsed() > PATIENCE {
                return Err(Error::TransactionState(
                    "not alone: rows of a bulk insert are not in the log, and no checkpoint passes them",
                ));
            }
        }
        Ok(())
    }
}
