//! Tablespace files that no table has, when the database is opened.
//!
//! # Promises
//!
//! 1. Removed is a file of which this database's own log says that it may go: its creation was read
//!    and no table has it, or its deletion was read. No page of it is of a later time than the log.
//!    And a file of nothing but zeroes, which a crash leaves before the log names it; a place map
//!    that has no place and maps no file. Tested by
//!    `a_log_that_was_cut_removes_no_table_of_a_later_time`,
//!    `what_an_interrupted_creation_left_is_removed_and_named`.
//! 2. Any other file is set aside, whole: a table of a later time than the catalog, a file of
//!    another database. (But one that a prepared transaction has changed stays.) Recovery does not
//!    miss it: a checkpoint is behind all that the log says of it. Tested by
//!    `an_older_catalog_destroys_no_newer_table`, `a_file_of_another_database_is_not_removed`.
//! 3. Both are named in the report of opening. Tested by
//!    `an_older_catalog_destroys_no_newer_table`,
//!    `what_an_interrupted_creation_left_is_removed_and_named`.
//!
//! So that a crash leaves only what may be removed, the log of a creation or a drop is kept,
//! whatever checkpoints do, until the catalog says the same as the directory
//! ([`Checkpoints::hold`]).
//!
//! [`Checkpoints::hold`]: crate::database::checkpoint::Checkpoints::hold

use crate::aside::SetAside;
use crate::database::Inner;
use crate::database::checkpoint::Occasion;
use crate::paranoid::paranoid;
use crate::recovery::RedoOutcome;
use crate::store::{SpaceFile, SpaceFiles, space_file_name};
use crate::txn::core::Core;
use crate::{Error, Result};
use inkstone_format::header::page_lsn;
use inkstone_format::place_map::{self, BLOCK_LEN};
use inkstone_format::{Lsn, PageNo, SpaceId};
use inkstone_io::{AlignedBuffer, Create, Directory, OpenOptions};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Bytes that are looked at in one read.
const LOOK_BYTES: usize = 64 << 10;

/// Files that no table has.
#[derive(Debug, Default)]
pub(super) struct Unowned {
    /// They were removed.
    pub removed: Vec<PathBuf>,
    /// They are to be set aside.
    pub unknown: Vec<SpaceId>,
}

/// Removes files that the log says may go, and names those that are neither so nor `known`.
pub(super) fn remove_unowned(
    directory: &dyn Directory,
    files: &SpaceFiles,
    core: &Core,
    redone: &RedoOutcome,
    known: &BTreeSet<SpaceId>,
) -> Result<Unowned> {
    let mut found = Unowned::default();
    files.remove_empty_place_maps()?;
    for space in files.list()? {
        if known.contains(&space) {
            continue;
        }
        let path = files.path(space);
        let made = redone.files_created.contains(&space)
            && is_not_later(&*files.open(space)?, files.page_size(), redone.end)?;
        if made || is_zeroes(directory, space)? {
            core.log_file_delete(space)?;
            core.forget_space(space);
            files.remove(space)?;
            found.removed.push(path);
        } else if !is_prepared_in(redone, space) {
            found.unknown.push(space);
        }
    }
    paranoid!(
        found.unknown.iter().all(|space| !known.contains(space)),
        "the file of a table is to be set aside: {:?}",
        found.unknown
    );
    Ok(found)
}

/// Whether a prepared transaction has changes in it: then this does not decide to which table it
/// belongs.
fn is_prepared_in(redone: &RedoOutcome, space: SpaceId) -> bool {
    let mut undo = redone.prepared.iter().flat_map(|open| &open.undo);
    undo.any(|entry| entry.space == space)
}

/// Whether no page of a file is of a later time than the end of the log.
fn is_not_later(file: &SpaceFile, page_size: u32, end: Lsn) -> Result<bool> {
    let mut page = AlignedBuffer::zeroed(page_size as usize);
    for number in (0..file.pages()).map(PageNo) {
        match file.read_page(number, &mut page) {
            Ok(()) if page_lsn(&page) > end => return Ok(false),
            // Pages that were never written, or that redo has made and not written yet.
            Ok(()) | Err(Error::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn is_zeroes(directory: &dyn Directory, space: SpaceId) -> Result<bool> {
    let name = space_file_name(space);
    let path = &directory.path_of(&name);
    let options = OpenOptions {
        create: Create::Never,
        read_only: true,
        direct: false,
        dsync: false,
    };
    let file = directory.open(&name, options);
    let file = file.map_err(|e| Error::io("open", path, e))?;
    let length = file.len().map_err(|e| Error::io("measure", path, e))?;
    let mut bytes = vec![0; LOOK_BYTES];
    let mut at = 0;
    while at < length {
        let part = &mut bytes[..(length - at).min(LOOK_BYTES as u64) as usize];
        let read = file.read_at(part, at);
        read.map_err(|e| Error::io("read", path, e))?;
        // What says that pages are placed is there before any.
        let header = if at == 0 && place_map::is_placed(part) {
            BLOCK_LEN.min(part.len())
        } else {
            0
        };
        if part[header..].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += part.len() as u64;
    }
    paranoid!(at == length, "{at} bytes were looked at of {length}");
    Ok(true)
}

impl Inner {
    /// Sets tablespace files aside. No other thread uses the database yet.
    pub(super) fn set_aside(&self, unknown: &[SpaceId]) -> Result<Vec<SetAside>> {
        if unknown.is_empty() {
            return Ok(Vec::new());
        }
        // What the log has for them goes into them; behind the checkpoint it is not needed again.
        self.finish_redo()?;
        self.core.storage.pool.flush_all()?;
        self.checkpoint(Occasion::Demand)?;
        let aside = |&space: &SpaceId| {
            self.core.forget_space(space);
            self.files
                .set_aside(space, "belongs to no table that the catalog names")
        };
        unknown.iter().map(aside).collect()
    }
}
