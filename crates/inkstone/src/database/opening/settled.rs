//! What is in the files is what the disk has, and whatever can be refused has been.
//!
//! Before anything is read on whose strength something is written, the files of an earlier process
//! are made what the disk has.
//!
//! A process that was killed leaves bytes that only the page cache holds. A sync makes them
//! durable. A process whose sync failed leaves bytes that only the page cache holds, that the
//! kernel takes for clean, and that no sync will ever write: they must not be seen. So everything
//! is synced, and then let go of, where it will be read through the cache. After that it is as if
//! power had been lost at the failed sync, which recovery is made for. See docs/decisions/0012.
//!
//! The files of tables and their place maps, of which there may be tens of thousands, are synced by
//! one `syncfs`, the others, after it, one by one. That settles two things: what failed before, or
//! fails now, need not be told of (the files are read past the cache, or after they were let go of,
//! so a lost write is an old page, as after a power loss); and the device's cache is flushed by the
//! syncs that follow, also where `syncfs` finds nothing to do and leaves it alone. Where `syncfs`
//! fails, or a file lies on another file system, each is synced.
//!
//! After an orderly close there is nothing to do: the control file says so only after everything
//! else was synced, and it was settled itself when it was read.

use super::foundation::{LOG_DIRECTORY, log_directory};
use super::locked::{Locked, Ownership, Site};
use super::preflight::check_files;
use super::report::OpenReport;
use crate::catalog::CATALOG_SPACE;
use crate::log::ReadParams;
use crate::mvcc::versions::UNDO_FILE;
use crate::store::{
    DOUBLEWRITE_FILE, DoublewriteFound, PAGE_LSN_MAP_FILE, SpaceFiles, is_place_map_file_name,
    parse_space_file_name,
};
use crate::{Error, Result};
use inkstone_format::segment::parse_segment_file_name;
use inkstone_io::{Create, Directory, ErrorKind, OpenOptions};
use std::sync::Arc;

/// Stage 2. What is read of the database's files from here on survives power loss, and what can be
/// refused without reading the log has been refused. No byte has been changed.
pub(super) struct Settled {
    /// Where the log is read.
    pub log: ReadParams,
    pub doublewrite: DoublewriteFound,
    pub files: Arc<SpaceFiles>,
    pub site: Site,
    pub report: OpenReport,
    pub ownership: Ownership,
}

impl Locked {
    /// Makes the files what the disk has, and checks them.
    pub fn settle(mut self) -> Result<Settled> {
        let files = self.site.space_files()?;
        let directory = &*self.site.directory;
        let store = &self.site.options.store;
        let Ownership { old, new, .. } = &self.ownership;
        if !self.ownership.was_closed {
            settle(directory, store.flush_method.is_direct())?;
        }
        let mut log = ReadParams::of(new, log_directory(directory, Create::Never)?);
        log.closed_at = self.ownership.was_closed.then_some(old.known_durable_lsn);
        let doublewrite = check_files(directory, old, &files, &log)?;
        Ok(Settled {
            log,
            doublewrite,
            files,
            site: self.site,
            report: self.report,
            ownership: self.ownership,
        })
    }
}

/// What can be read of log, tablespaces, doublewrite file and page LSN map from here on survives
/// power loss, and so do their names. Changes no byte that was durable. `past_cache`: how the files
/// of tables are read.
pub(super) fn settle(directory: &dyn Directory, past_cache: bool) -> Result<()> {
    let tables = Tables {
        directory,
        are_synced: directory.sync_file_system().is_ok(),
        past_cache,
    };
    settle_in(directory, |name| match parse_space_file_name(name) {
        None if is_place_map_file_name(name) => tables.needs_sync(name),
        None => Ok([DOUBLEWRITE_FILE, PAGE_LSN_MAP_FILE, UNDO_FILE].contains(&name)),
        Some(CATALOG_SPACE) => Ok(true),
        Some(_) => tables.needs_sync(name),
    })?;
    match directory.subdirectory(LOG_DIRECTORY, Create::Never) {
        // The readers of the files say what is missing.
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io("open", &directory.path_of(LOG_DIRECTORY), e)),
        Ok(log) => settle_in(&*log, |name| Ok(parse_segment_file_name(name).is_some())),
    }
}

/// The files of tables, and their place maps.
struct Tables<'a> {
    directory: &'a dyn Directory,
    /// Those on the directory's file system.
    are_synced: bool,
    past_cache: bool,
}

impl Tables<'_> {
    /// Whether a file is still to be synced. What needs no sync is let go of here, if need be.
    fn needs_sync(&self, name: &str) -> Result<bool> {
        let error = |e| Error::io("settle", &self.directory.path_of(name), e);
        if !self.are_synced || !self.directory.is_on_file_system(name).map_err(error)? {
            return Ok(true);
        }
        if !self.past_cache {
            let file = self.directory.open(name, READ_ONLY);
            file.and_then(|file| file.forget()).map_err(error)?;
        }
        Ok(false)
    }
}

const READ_ONLY: OpenOptions = OpenOptions {
    create: Create::Never,
    read_only: true,
    direct: false,
    dsync: false,
};

/// Syncs the files of a directory that are to be synced, and lets go of what is cached of them.
fn settle_in(
    directory: &dyn Directory,
    mut needs_sync: impl FnMut(&str) -> Result<bool>,
) -> Result<()> {
    let names = directory.list();
    let names = names.map_err(|e| Error::io("list", directory.path(), e))?;
    for name in &names {
        if !needs_sync(name)? {
            continue;
        }
        let file = match directory.open(name, READ_ONLY) {
            // A database that cannot open it does without.
            Err(_) if name == PAGE_LSN_MAP_FILE => continue,
            opened => opened,
        };
        file.and_then(|file| file.sync_and_forget())
            .map_err(|e| Error::io("sync", &directory.path_of(name), e))?;
    }
    directory
        .sync()
        .map_err(|e| Error::io("sync", directory.path(), e))
}
