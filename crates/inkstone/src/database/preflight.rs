//! What is checked before an existing database is changed, and before a new one is made: a
//! refused call leaves every file as it was.
//!
//! An open that gets past these checks can still fail: a page that recovery needs may be damaged, a
//! log that does not fit recovery's memory may be damaged behind what was applied by then. What was
//! changed in that case is what recovery does anyway, and does again.

use super::open::{LOG_DIRECTORY, log_directory};
use crate::catalog::CATALOG_SPACE;
use crate::log::{LogReader, ReadParams};
use crate::space::{SYSTEM_PAGES, check_header};
use crate::store::{
    DoublewriteFound, SpaceFile, SpaceFiles, check_doublewrite, parse_space_file_name,
};
use crate::{Error, Result};
use inkstone_format::apply::{bit, map_pages};
use inkstone_format::control::Control;
use inkstone_format::header::page_lsn;
use inkstone_format::segment::parse_segment_file_name;
use inkstone_format::{Corrupt, Lsn, PageId, PageNo};
use inkstone_io::{AlignedBuffer, Create, Directory, ErrorKind, OpenOptions};

/// Present while a database is being created: what is there without a control file is rubbish.
pub(super) const CREATING: &str = "creating";
pub(super) const LOCK: &str = "lock";

/// Refuses a directory that holds anything but what an interrupted creation left.
pub(super) fn check_creation(directory: &dyn Directory) -> Result<()> {
    let names = directory.list();
    let names = names.map_err(|e| Error::io("list", directory.path(), e))?;
    if names.iter().any(|name| name == CREATING) {
        // No creation comes so far: tables were put there since.
        return match names.iter().find(|name| is_table(name)) {
            None => Ok(()),
            Some(table) => Err(Error::NotADatabase {
                path: directory.path().to_owned(),
                reason: format!(
                    "its creation was interrupted (there is a file {CREATING}), and yet there is a \
                     table, {table}; move it away, or put the control file that belongs to it there \
                     and remove {CREATING}"
                ),
            }),
        };
    }
    let log = directory.subdirectory(LOG_DIRECTORY, Create::Never);
    let segments = match log.and_then(|log| log.list()) {
        Ok(names) => names,
        Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(Error::io("list", &directory.path_of(LOG_DIRECTORY), e)),
    };
    let segments = segments
        .iter()
        .map(|name| format!("{LOG_DIRECTORY}/{name}"));
    match names.into_iter().chain(segments).find(|name| name != LOCK) {
        None => Ok(()),
        Some(name) => Err(Error::NotADatabase {
            path: directory.path().to_owned(),
            reason: format!(
                "there is a file {name} but no file named control; restore the control file if \
                 this was a database, or give an empty directory for a new one"
            ),
        }),
    }
}

fn is_table(name: &str) -> bool {
    parse_space_file_name(name).is_some_and(|space| space != CATALOG_SPACE)
}

/// Removes what an interrupted creation left, but for the marker. The caller knows that there is no
/// control file.
pub(super) fn clear_creation(directory: &dyn Directory) -> Result<()> {
    clear(directory, |name| name != CREATING && name != LOCK)?;
    // Durably, before the marker is removed: power loss must not bring names back without it.
    match directory.subdirectory(LOG_DIRECTORY, Create::Never) {
        Ok(log) => clear(&*log, |_| true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io("open", &directory.path_of(LOG_DIRECTORY), e)),
    }
}

/// Removes files, durably.
fn clear(directory: &dyn Directory, is_rubbish: impl Fn(&str) -> bool) -> Result<()> {
    let names = directory.list();
    let names = names.map_err(|e| Error::io("list", directory.path(), e))?;
    for name in names.iter().filter(|name| is_rubbish(name)) {
        directory
            .remove(name)
            .map_err(|e| Error::io("remove", &directory.path_of(name), e))?;
    }
    let synced = directory.sync();
    synced.map_err(|e| Error::io("sync", directory.path(), e))
}

/// Log segments can be opened for writing: those that another user made (a run as root) are found
/// before anything is changed. What else is wrong with them is for others to say.
fn check_writable(directory: &dyn Directory) -> Result<()> {
    let options = OpenOptions {
        create: Create::Never,
        read_only: false,
        direct: false,
        dsync: false,
    };
    let log = log_directory(directory, Create::Never)?;
    let names = log.list();
    let names = names.map_err(|e| Error::io("list", log.path(), e))?;
    let segments = names
        .iter()
        .filter(|name| parse_segment_file_name(name).is_some());
    for name in segments {
        match log.open(name, options) {
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                return Err(Error::io("open for writing", &log.path_of(name), e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks the files of a database without changing any. `reads` says where the log is read. Tells
/// what became of the doublewrite file: without it a database opens, unless a page is torn.
pub(super) fn check_files(
    directory: &dyn Directory,
    control: &Control,
    files: &SpaceFiles,
    reads: &ReadParams,
) -> Result<DoublewriteFound> {
    check_writable(directory)?;
    check_catalog(control, files)?;
    let doublewrite = check_doublewrite(directory, control.uuid, control.page_size)?;
    if doublewrite != DoublewriteFound::Whole {
        // It will be made anew before the log is read: the log is read once more, first.
        let mut log = LogReader::open(reads.clone())?;
        while log.next()?.is_some() {}
    }
    Ok(doublewrite)
}

/// The catalog must be there and be this database's. After a clean shutdown all of its pages must
/// be whole; after a crash recovery may have to mend them first.
fn check_catalog(control: &Control, files: &SpaceFiles) -> Result<()> {
    let file = files.open(CATALOG_SPACE)?;
    let mut page = AlignedBuffer::zeroed(control.page_size as usize);
    let clean = control.clean_shutdown;
    match file.read_page(PageNo(0), &mut page) {
        Ok(()) => check_header(&page, &control.uuid, &file)?,
        Err(Error::Corrupt { .. }) if !clean => return Ok(()),
        Err(error) => return Err(error),
    }
    if clean {
        file.require_pages(SYSTEM_PAGES)?;
        check_pages(control, &file, page)?;
    }
    Ok(())
}

fn check_pages(control: &Control, file: &SpaceFile, mut page: AlignedBuffer) -> Result<()> {
    let covered = map_pages(control.page_size as usize);
    let mut map = AlignedBuffer::zeroed(control.page_size as usize);
    let maps = inkstone_format::space::more_maps(&page);
    for region in 0..=maps {
        let first = region.saturating_mul(covered);
        file.read_page(PageNo(first.saturating_add(1)), &mut map)?;
        for n in (0..covered).filter(|&n| bit(&map, n)) {
            let number = PageNo(first.saturating_add(n));
            file.read_page(number, &mut page)?;
            check_lsn(file, number, &page, control.known_durable_lsn)?;
        }
    }
    Ok(())
}

/// Fails if a page was changed after the log had ended.
pub(super) fn check_lsn(file: &SpaceFile, page: PageNo, bytes: &[u8], end: Lsn) -> Result<()> {
    let lsn = page_lsn(bytes);
    if lsn <= end {
        return Ok(());
    }
    let detail = format!(
        "page LSN {lsn} is in the future: the log ends at LSN {end}; the file is of another time \
         than the log"
    );
    let id = PageId::new(file.space(), page);
    Err(Error::corrupt_page(
        file.path(),
        id,
        Corrupt::at(16, detail),
    ))
}
