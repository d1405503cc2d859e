//! Where a copy is made.

use crate::control::{CONTROL_FILE, ControlFile};
use crate::counters::Counters;
use crate::database::Inner;
use crate::database::opening::{LOG_DIRECTORY, lock_error};
use crate::mvcc::versions::UNDO_FILE;
use crate::options::{Doublewrite, OPEN_FILES_MIN};
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::store::{DoublewriteFile, SpaceFiles, StoreOptions};
use crate::sync::atomic::Ordering;
use crate::{Error, Result};
use inkstone_format::control::Control;
use inkstone_format::{Lsn, SpaceId};
use inkstone_io::{AlignedBuffer, Create, Directory, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// Bytes of the undo file that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// A directory that is to become a database. Its failures are its own: they do not stop the
/// database that is copied.
pub(super) struct Target {
    directory: Arc<dyn Directory>,
    pub log: Arc<dyn Directory>,
    pub files: SpaceFiles,
    poison: Poison,
    /// No database is made there meanwhile.
    _lock: Box<dyn Send + Sync>,
}

impl Target {
    /// Takes a directory in which nothing is, which is made if it is missing.
    pub fn prepare(inner: &Inner, path: &Path) -> Result<Self> {
        let directory = inner
            .vfs_of_copies()?
            .open_directory(path, Create::IfMissing);
        let directory = directory.map_err(|e| Error::io("open or create", path, e))?;
        check_empty(&*directory)?;
        let lock = directory.lock_itself();
        let lock = lock.map_err(|e| lock_error(&*directory, directory.path(), e))?;
        // Nor was it filled since.
        check_empty(&*directory)?;
        let log = directory.subdirectory(LOG_DIRECTORY, Create::IfMissing);
        let log = log.map_err(|e| Error::io("create", &directory.path_of(LOG_DIRECTORY), e))?;
        let (options, poison) = (&inner.options, Poison::default());
        let store = StoreOptions {
            page_size: inner.core.storage.page_size as u32,
            doublewrite: Doublewrite::Off,
            doublewrite_skip_fresh: false,
            flush_method: options.flush_method,
            open_files: OPEN_FILES_MIN,
            pool_bytes: 0,
        };
        let counters = Arc::new(Counters::default());
        let files = SpaceFiles::new(directory.clone(), store, counters, poison.clone())?;
        Ok(Self {
            directory,
            log,
            files,
            poison,
            _lock: lock,
        })
    }

    /// Copies the undo file, if there is one, durably but for its name. How many bytes that was.
    pub fn copy_undo(&self, inner: &Inner) -> Result<u64> {
        let source = &*inner.directory;
        let failed = |e| Error::io("read", &source.path_of(UNDO_FILE), e);
        if !source.exists(UNDO_FILE).map_err(failed)? {
            return Ok(0);
        }
        let read_only = OpenOptions {
            create: Create::Never,
            read_only: true,
            direct: false,
            dsync: false,
        };
        let from = source.open(UNDO_FILE, read_only).map_err(failed)?;
        let options = OpenOptions {
            create: Create::New,
            read_only: false,
            ..read_only
        };
        let path = self.directory.path_of(UNDO_FILE);
        let to = self.directory.open(UNDO_FILE, options);
        let to = to.map_err(|e| Error::io("create", &path, e))?;
        let length = from.len().map_err(failed)?;
        let mut buffer = AlignedBuffer::zeroed(PIECE_BYTES);
        let mut at = 0;
        while at < length {
            inner.core.storage.poison.check()?;
            let piece = (length - at).min(PIECE_BYTES as u64) as usize;
            from.read_at(&mut buffer[..piece], at).map_err(failed)?;
            let written = to.write_at(&buffer[..piece], at);
            written.map_err(|e| Error::io("write", &path, e))?;
            at += piece as u64;
        }
        paranoid!(at == length, "{at} of {length} bytes of undo are copied");
        to.sync().map_err(|e| Error::io("sync", &path, e))?;
        Ok(length)
    }

    /// Makes a database of what is there: everything else is durable before the control file is
    /// there. `begin`: what the database's control file said when the copy was begun.
    pub fn finish(&self, inner: &Inner, begin: &Control, end: Lsn) -> Result<()> {
        let core = &inner.core;
        if inner.options.doublewrite == Doublewrite::On {
            DoublewriteFile::open(
                &*self.directory,
                inner.uuid,
                begin.page_size,
                inner.options.flush_method,
                Arc::new(Counters::default()),
                self.poison.clone(),
            )?;
        }
        let synced = self.directory.sync();
        synced.map_err(|e| Error::io("sync", self.directory.path(), e))?;
        paranoid!(
            begin.checkpoint_lsn <= end && begin.scan_start_lsn <= begin.checkpoint_lsn,
            "a copy from the checkpoint at LSN {} to {end}",
            begin.checkpoint_lsn
        );
        // Numbers that were given out by the end are not given out again.
        let control = Control {
            known_durable_lsn: end,
            next_trx_id: core.trxs.peek_next_trx_id(),
            next_space_id: SpaceId(inner.next_space.load(Ordering::SeqCst)),
            version_epoch: begin.version_epoch.max(core.versions.highest_epoch()),
            clean_shutdown: false,
            ..begin.clone()
        };
        // What was read since a close may be another opening's.
        core.storage.poison.check()?;
        ControlFile::create(&*self.directory, &control, &self.poison).map(drop)
    }

    /// Removes what there is of a copy that has failed, as far as that goes: the control file
    /// first, as without it the rest is no database.
    pub fn remove(&self) {
        let directory = &*self.directory;
        let _ = directory.remove(CONTROL_FILE);
        for directory in [directory, &*self.log] {
            for name in directory.list().unwrap_or_default() {
                let _ = directory.remove(&name);
            }
            let _ = directory.sync();
        }
    }
}

fn check_empty(directory: &dyn Directory) -> Result<()> {
    let failed = |e| Error::io("list", directory.path(), e);
    let names = directory.list().map_err(failed)?;
    let log = if directory.exists(LOG_DIRECTORY).map_err(failed)? {
        let log = directory.subdirectory(LOG_DIRECTORY, Create::Never);
        log.and_then(|log| log.list()).map_err(failed)?
    } else {
        Vec::new()
    };
    match names.iter().chain(&log).next() {
        None => Ok(()),
        Some(name) => Err(Error::InvalidOption {
            name: "directory".to_owned(),
            value: directory.path().display().to_string(),
            reason: format!(
                "there is a file {name} in it, and a copy is made in an empty directory alone"
            ),
        }),
    }
}
