//! Before anything is read on whose strength something is written: the files of an earlier process
//! are made what the disk has.
//!
//! A process that was killed leaves bytes that only the page cache holds. A sync makes them
//! durable. A process whose sync failed leaves bytes that only the page cache holds, that
//! the kernel takes for clean, and that no sync will ever write: they must not be seen. So each file
//! is synced, and then let go of. After that it is as if power had been lost at the failed
//! sync, which recovery is made for. See docs/decisions/0012.
//!
//! After an orderly close there is nothing to do: the control file says so only after everything
//! else was synced, and it was settled itself when it was read.

use super::open::LOG_DIRECTORY;
use crate::store::{DOUBLEWRITE_FILE, PAGE_LSN_MAP_FILE, parse_space_file_name};
use crate::{Error, Result};
use inkstone_format::segment::parse_segment_file_name;
use inkstone_io::{Create, Directory, ErrorKind, OpenOptions};

/// What can be read of log, tablespaces, doublewrite file and page LSN map from here on survives power loss, and
/// so do their names. Changes no byte that was durable.
pub(super) fn settle(directory: &dyn Directory) -> Result<()> {
    settle_in(directory, |name| {
        [DOUBLEWRITE_FILE, PAGE_LSN_MAP_FILE].contains(&name)
            || parse_space_file_name(name).is_some()
    })?;
    match directory.subdirectory(LOG_DIRECTORY, Create::Never) {
        // Those who read the files say what is missing.
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io("open", &directory.path_of(LOG_DIRECTORY), e)),
        Ok(log) => settle_in(&*log, |name| parse_segment_file_name(name).is_some()),
    }
}

fn settle_in(directory: &dyn Directory, is_ours: impl Fn(&str) -> bool) -> Result<()> {
    let options = OpenOptions {
        create: Create::Never,
        read_only: true,
        direct: false,
        dsync: false,
    };
    let names = directory.list();
    let names = names.map_err(|e| Error::io("list", directory.path(), e))?;
    for name in names.iter().filter(|name| is_ours(name)) {
        directory
            .open(name, options)
            .and_then(|file| file.sync_and_forget())
            .map_err(|e| Error::io("sync", &directory.path_of(name), e))?;
    }
    directory
        .sync()
        .map_err(|e| Error::io("sync", directory.path(), e))
}
