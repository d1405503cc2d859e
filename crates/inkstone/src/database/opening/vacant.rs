//! Where there is no database: making one, until it is as complete as one that was opened.

use super::complete::{Complete, Joined};
use super::foundation::{Foundation, LOG_DIRECTORY, LogStart, log_directory};
use super::locked::{Locks, Site};
use super::parts::Parts;
use super::report::OpenReport;
use crate::btree::Tree;
use crate::catalog::{CATALOG_SPACE, CATALOG_TREE};
use crate::control::ControlFile;
use crate::options::{Doublewrite, Options};
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::space::{SYSTEM_PAGES, Space};
use crate::store::{Placement, create_first, parse_space_file_name};
use crate::sync::random_bits;
use crate::{Error, Result};
use inkstone_format::control::Control;
use inkstone_format::segment::segment_bytes_for;
use inkstone_format::{Lsn, SpaceId, TrxId};
use inkstone_io::{Create, Directory, ErrorKind, OpenOptions, Vfs};
use std::sync::Arc;

/// Present while a database is being created: what is there without a control file is rubbish.
const CREATING: &str = "creating";
pub(super) const LOCK: &str = "lock";

/// Instead of stage 1. The directory is locked, and has no control file. It may hold what an
/// interrupted creation left.
pub(super) struct Vacant {
    pub vfs: Arc<dyn Vfs>,
    pub directory: Arc<dyn Directory>,
    pub options: Options,
    pub locks: Locks,
}

impl Vacant {
    /// Creates a database; after a failure what was made is removed again. The control file comes
    /// last: without it what is there is rubbish.
    pub fn create(mut self) -> Result<Complete> {
        let directory = self.directory.clone();
        check_new(&mut self.options, Some(&*directory))?;
        // Held until what a failure leaves is removed.
        let lock = self.locks.first.clone();
        let created = self.create_files();
        if created.is_err() && matches!(ControlFile::exists(&*directory), Ok(false)) {
            // What stays, if this fails too, the next creation removes.
            let _ = clear_creation(&*directory).and_then(|()| remove_marker(&*directory));
        }
        drop(lock);
        created
    }

    fn create_files(mut self) -> Result<Complete> {
        let directory = self.directory.clone();
        clear_creation(&*directory)?;
        mark_creation(&*directory)?;
        log_directory(&*directory, Create::IfMissing)?;
        directory
            .sync()
            .map_err(|e| Error::io("sync", directory.path(), e))?;
        let mut site = Site::new(self.vfs, self.directory, self.options, Poison::default());
        let report = OpenReport {
            created: true,
            memory_bound: site.options.memory_bound,
            ..OpenReport::default()
        };
        let control = first_control(&site.options);
        let files = site.space_files()?;
        if site.options.store.doublewrite == Doublewrite::On {
            let store = &site.options.store;
            create_first(
                &*site.directory,
                control.uuid,
                store.page_size,
                store.flush_method,
                &site.poison,
            )?;
        }
        let foundation = Foundation::new(site, files, &control)?;
        foundation
            .files
            .page_lsns()
            .create(control.uuid, control.epoch)?;
        let start = LogStart {
            lsn: control.checkpoint_lsn,
            end_block: Vec::new(),
            is_new: true,
            is_closed: false,
        };
        let core = foundation.open_log(&control, start, control.next_trx_id)?;
        let file = foundation
            .files
            .create(CATALOG_SPACE, SYSTEM_PAGES + 14, Placement::InPlace)?;
        let space = Arc::new(Space::new(CATALOG_SPACE, core.storage.clone(), file));
        space.initialise(&control.uuid)?;
        core.add_space(&space);
        let catalog = Tree::create(space, CATALOG_TREE, core.storage.clone())?;
        foundation.pool.start_cleaners()?;
        foundation.pool.flush_all()?;
        foundation.files.sync_all(&*foundation.site.vfs)?;
        let log = &core.storage.log;
        log.wait_durable(log.current_lsn())?;
        let site = &foundation.site;
        paranoid!(
            log.durable_lsn() > control.checkpoint_lsn,
            "a new database has no log behind LSN {}",
            control.checkpoint_lsn
        );
        let control_file = ControlFile::create(&*site.directory, &control, &site.poison)?;
        remove_marker(&*site.directory)?;
        self.locks.take_control(&*directory)?;
        Ok(Complete::join(Joined {
            core,
            catalog,
            next_space: control.next_space_id.0,
            run_start: control.checkpoint_lsn,
            left: None,
            report,
            foundation,
            control: control_file,
            locks: self.locks,
        }))
    }
}

/// What the control file of a new database says.
fn first_control(options: &Parts) -> Control {
    let log_segment_bytes = segment_bytes_for(options.log.capacity_bytes);
    let start = Lsn(log_segment_bytes);
    paranoid!(
        log_segment_bytes > 0 && log_segment_bytes <= options.log.capacity_bytes,
        "segments of {log_segment_bytes} bytes for a log of {}",
        options.log.capacity_bytes
    );
    Control {
        page_size: options.store.page_size,
        uuid: random_uuid(),
        sequence: 1,
        epoch: 1,
        checkpoint_lsn: start,
        scan_start_lsn: start,
        scan_start_epoch: 1,
        known_durable_lsn: start,
        log_segment_bytes,
        next_trx_id: TrxId(1),
        next_space_id: SpaceId(1),
        version_epoch: 1,
        next_commit: 0,
        clean_shutdown: false,
    }
}

fn random_uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    for half in uuid.chunks_mut(8) {
        half.copy_from_slice(&random_bits().to_le_bytes());
    }
    uuid
}

/// Refuses options that no new database can have, and a directory in which none can be made.
pub(super) fn check_new(options: &mut Options, directory: Option<&dyn Directory>) -> Result<()> {
    if options.page_size == 0 {
        options.page_size = Options::default().page_size;
    }
    options.validate()?;
    directory.map_or(Ok(()), check_creation)
}

/// Refuses a directory that holds anything but what an interrupted creation left.
fn check_creation(directory: &dyn Directory) -> Result<()> {
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
fn clear_creation(directory: &dyn Directory) -> Result<()> {
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

fn mark_creation(directory: &dyn Directory) -> Result<()> {
    let options = OpenOptions {
        create: Create::IfMissing,
        read_only: false,
        direct: false,
        dsync: false,
    };
    let marker = directory.open(CREATING, options);
    marker.map_err(|e| Error::io("create", &directory.path_of(CREATING), e))?;
    Ok(())
}

fn remove_marker(directory: &dyn Directory) -> Result<()> {
    directory
        .remove(CREATING)
        .and_then(|()| directory.sync())
        .map_err(|e| Error::io("remove", &directory.path_of(CREATING), e))
}

/// The names of the database's files are durable, also where a process was killed that had just
/// created it, and no marker is left by which its files could be taken for rubbish. `was_closed`:
/// it was in use since, and closed in order.
pub(super) fn finish_creation(
    directory: &dyn Directory,
    was_closed: bool,
    poison: &Poison,
) -> Result<()> {
    let unsynced = |e| poison.set(Error::io("sync", directory.path(), e));
    let marker = || directory.path_of(CREATING);
    if !was_closed {
        directory.sync().map_err(unsynced)?;
    }
    let left = directory.exists(CREATING);
    if left.map_err(|e| Error::io("look for", &marker(), e))? {
        directory
            .remove(CREATING)
            .map_err(|e| Error::io("remove", &marker(), e))?;
        directory.sync().map_err(unsynced)?;
    }
    Ok(())
}
