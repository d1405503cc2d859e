//! Whether there is a database, and that no other process or handle has it.

use super::parts::Parts;
use super::report::OpenReport;
use super::vacant::{LOCK, Vacant, check_new};
use crate::control::{CONTROL_FILE, ControlFile};
use crate::counters::Counters;
use crate::options::Options;
use crate::poison::Poison;
use crate::store::SpaceFiles;
use crate::{Error, Result};
use inkstone_format::control::Control;
use inkstone_io::{Create, Directory, ErrorKind, Vfs};
use std::path::Path;
use std::sync::Arc;

/// Where the database is, and how it is opened.
pub(super) struct Site {
    pub vfs: Arc<dyn Vfs>,
    pub directory: Arc<dyn Directory>,
    pub options: Parts,
    pub counters: Arc<Counters>,
    pub poison: Poison,
}

impl Site {
    /// Splits `options`, which were checked against the database that there is, or will be.
    pub fn new(
        vfs: Arc<dyn Vfs>,
        directory: Arc<dyn Directory>,
        options: Options,
        poison: Poison,
    ) -> Self {
        let options = Parts::split(options, vfs.memory_limit());
        let counters = Counters::default();
        counters.set_slow_from(options.slow_wait);
        Self {
            vfs,
            directory,
            options,
            counters: Arc::new(counters),
            poison,
        }
    }

    /// The tablespace files, none of them open. From here on the directory closes one of them where
    /// there are too few descriptors.
    pub fn space_files(&mut self) -> Result<Arc<SpaceFiles>> {
        let (counters, poison) = (self.counters.clone(), self.poison.clone());
        let directory = self.directory.clone();
        let files = SpaceFiles::new(directory, self.options.store, counters, poison)?;
        self.directory = files.directory().clone();
        Ok(Arc::new(files))
    }
}

/// What keeps other processes out, and other handles in this one, until it is dropped: after
/// everything else.
pub(in crate::database) struct Locks {
    /// Of the directory and the file `lock`.
    pub first: Arc<dyn Send + Sync>,
    /// Of the control file, as soon as there is one.
    pub control: Option<Box<dyn Send + Sync>>,
}

impl Locks {
    /// Locks what is there before the control file is, for creators at the same time: the
    /// directory itself, where the file system can, and the file `lock`, which older programs ask.
    /// That file is empty, and may be taken for rubbish and removed.
    fn take(directory: &dyn Directory) -> Result<Self> {
        let itself = directory.lock_itself();
        let itself = itself.map_err(|e| lock_error(directory, directory.path(), e))?;
        Ok(Self {
            first: Arc::new((itself, lock(directory, LOCK)?)),
            control: None,
        })
    }

    /// Locks the control file too. It is there as long as there is a database, and it is noticed
    /// when it is replaced; a copy by hard links shares it, and is locked with it.
    pub fn take_control(&mut self, directory: &dyn Directory) -> Result<()> {
        self.control = Some(lock(directory, CONTROL_FILE)?);
        Ok(())
    }
}

/// The control file of a database that is locked.
pub(super) struct Ownership {
    pub file: ControlFile,
    /// What it said.
    pub old: Control,
    /// What it will say before anything else is changed: the next epoch.
    pub new: Control,
    /// The database was closed in order, and no opening has changed anything since: both copies of
    /// the control file can be read, and the newer one says so. Then all that it is made of is
    /// durable, the log ends where the file says, and no page is torn.
    pub was_closed: bool,
    pub locks: Locks,
}

/// Stage 1. The directory and the control file are locked, so the database is ours until this is
/// dropped; the control file has been read, and it fits the options. No byte has been changed, nor
/// has any other file been looked at.
pub(super) struct Locked {
    pub site: Site,
    pub report: OpenReport,
    pub ownership: Ownership,
}

/// What there is in a directory.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one, and it is moved once"
)]
pub(super) enum Found {
    Database(Locked),
    Nothing(Vacant),
}

/// Locks the directory, which is made if it is missing. One that can have no database made in it,
/// or not with these options, is refused before.
pub(super) fn lock_directory(
    vfs: Arc<dyn Vfs>,
    path: &Path,
    mut options: Options,
) -> Result<Found> {
    inkstone_io::limits::raise_open_files();
    let found = find_directory(&*vfs, path)?;
    let exists = match &found {
        Some(directory) => ControlFile::exists(&**directory)?,
        None => false,
    };
    if !exists && options.is_read_only() {
        return Err(Error::NotADatabase {
            path: path.to_owned(),
            reason: "there is no database here, and none is made where nothing may be changed"
                .to_owned(),
        });
    }
    if !exists {
        check_new(&mut options, found.as_deref())?;
    }
    let directory = match found {
        Some(directory) => directory,
        None => vfs
            .open_directory(path, Create::IfMissing)
            .map_err(|e| Error::io("create", path, e))?,
    };
    let locks = Locks::take(&*directory)?;
    if ControlFile::exists(&*directory)? {
        return Locked::new(vfs, directory, options, locks).map(Found::Database);
    }
    Ok(Found::Nothing(Vacant {
        vfs,
        directory,
        options,
        locks,
    }))
}

impl Locked {
    fn new(
        vfs: Arc<dyn Vfs>,
        directory: Arc<dyn Directory>,
        mut options: Options,
        mut locks: Locks,
    ) -> Result<Self> {
        locks.take_control(&*directory)?;
        let poison = Poison::default();
        let file = ControlFile::open(&*directory, &poison)?;
        let old = file.current().clone();
        check_page_size(directory.path(), &mut options, &old)?;
        let site = Site::new(vfs, directory, options, poison);
        let report = OpenReport {
            clean: old.clean_shutdown,
            memory_bound: site.options.memory_bound,
            ..OpenReport::default()
        };
        let epoch = file.next_epoch();
        let new = Control {
            epoch,
            version_epoch: old.version_epoch + (epoch - old.epoch) as u32,
            clean_shutdown: false,
            ..old.clone()
        };
        Ok(Self {
            site,
            report,
            ownership: Ownership {
                was_closed: old.clean_shutdown && file.knows_the_newest(),
                file,
                old,
                new,
                locks,
            },
        })
    }
}

/// The directory, if it is there.
fn find_directory(vfs: &dyn Vfs, path: &Path) -> Result<Option<Arc<dyn Directory>>> {
    match vfs.open_directory(path, Create::Never) {
        Ok(directory) => Ok(Some(directory)),
        Err(e) => match e.kind() {
            ErrorKind::NotFound => Ok(None),
            ErrorKind::NotADirectory => Err(Error::NotADatabase {
                path: path.to_owned(),
                reason: "it is, or lies below, a file: not a directory".to_owned(),
            }),
            _ => Err(Error::io("open", path, e)),
        },
    }
}

fn lock(directory: &dyn Directory, name: &str) -> Result<Box<dyn Send + Sync>> {
    let locked = directory.lock(name);
    locked.map_err(|e| lock_error(directory, &directory.path_of(name), e))
}

pub(in crate::database) fn lock_error(
    directory: &dyn Directory,
    path: &Path,
    error: std::io::Error,
) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock => Error::InUse {
            path: directory.path().to_owned(),
        },
        _ => Error::io("lock", path, error),
    }
}

fn check_page_size(directory: &Path, options: &mut Options, control: &Control) -> Result<()> {
    let found = u64::from(control.page_size);
    if options.page_size != 0 {
        options.validate()?;
    }
    if options.page_size != 0 && options.page_size != found {
        return Err(Error::InvalidOption {
            name: "page_size".to_owned(),
            value: options.page_size.to_string(),
            reason: format!(
                "{} was created with pages of {found} bytes; give that, or 0 for whatever the database has",
                directory.display()
            ),
        });
    }
    options.page_size = found;
    options.validate()
}
