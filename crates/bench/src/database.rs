//! Opening databases with progress, engine options, temporary directories.

use crate::failure::{Failure, Result};
use crate::progress::RecoveryBar;
use clap::Args;
use inkstone::internals::control::ControlFile;
use inkstone::internals::options::{IoBackend, OptionValue};
use inkstone::{Database, Error, Options};
use inkstone_io::{BackendChoice, Create, ErrorKind, Vfs, default_vfs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of the engine, on every command that opens a database.
#[derive(Args, Clone, Debug, Default)]
pub struct EngineArguments {
    /// Set an option of the engine, as in `--set buffer_pool_size=1g`; repeat for several.
    /// `inkstone options` lists them
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
}

impl EngineArguments {
    /// `base` with what the command line sets.
    pub fn over(&self, mut base: Options) -> Result<Options> {
        for assignment in &self.set {
            let (name, value) = assignment.split_once('=').ok_or_else(|| {
                Failure::Usage(format!(
                    "--set {assignment}: expected NAME=VALUE, as in --set doublewrite=off"
                ))
            })?;
            base.set(name.trim(), value.trim())?;
        }
        Ok(base)
    }

    /// Options for a database that exists: its own page size unless `--set` names one.
    pub fn for_existing(&self) -> Result<Options> {
        self.over(Options {
            page_size: 0,
            ..Options::default()
        })
    }
}

/// A value on the command line, as the engine's options understand it.
pub fn parse<V: OptionValue>(text: &str) -> Result<V, String> {
    V::parse(text).map_err(|e| format!("expected {e}"))
}

/// A number of bytes or rows on the command line: `65536`, `64k`, `16m`, `2g`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse(text)
}

/// The file system that the options choose.
pub fn vfs(options: &Options) -> Result<Arc<dyn Vfs>> {
    let choice = match options.io_backend {
        IoBackend::Auto => BackendChoice::Auto,
        IoBackend::Posix => BackendChoice::Posix,
        IoBackend::IoUring => BackendChoice::IoUring,
    };
    default_vfs(choice).map_err(|e| Failure::io("set up I/O", Path::new("."), e))
}

/// Opens or creates a database, showing recovery's progress.
pub fn open_or_create(directory: &Path, options: Options) -> Result<Database> {
    open_on(vfs(&options)?, directory, options)
}

/// As [`open_or_create`], over a file system.
pub fn open_on(vfs: Arc<dyn Vfs>, directory: &Path, options: Options) -> Result<Database> {
    let bar = RecoveryBar::new();
    Ok(Database::open_on(vfs, directory, options, &|progress| {
        bar.show(progress);
    })?)
}

/// Opens a database that must exist.
pub fn open_existing(directory: &Path, options: Options) -> Result<Database> {
    require(&*vfs(&options)?, directory)?;
    open_or_create(directory, options)
}

/// An error that says what to do, unless the directory holds a database.
pub fn require(vfs: &dyn Vfs, directory: &Path) -> Result<()> {
    let reason = match vfs.open_directory(directory, Create::Never) {
        Ok(found) if ControlFile::exists(&*found)? => return Ok(()),
        Ok(_) => "there is no database (no control file) in this directory",
        Err(e) if e.kind() == ErrorKind::NotFound => "there is no such directory",
        Err(e) if e.kind() == ErrorKind::NotADirectory => "it is, or lies below, a file",
        Err(e) => return Err(Failure::io("open", directory, e)),
    };
    Err(Failure::Engine(Error::NotADatabase {
        path: directory.to_owned(),
        reason: reason.to_owned(),
    }))
}

/// A directory that is removed when this is dropped, unless it is to be kept.
#[derive(Debug)]
pub struct WorkDirectory {
    path: PathBuf,
    remove: bool,
}

impl WorkDirectory {
    /// `chosen`, which must be empty or missing and is kept; or a fresh temporary directory, which
    /// is removed unless `keep`.
    pub fn chosen_or_fresh(chosen: Option<&Path>, keep: bool, name: &str) -> Result<Self> {
        let Some(path) = chosen else {
            let mut fresh = Self::fresh_in(&std::env::temp_dir(), name)?;
            fresh.remove = !keep;
            return Ok(fresh);
        };
        let mut entries = match path.read_dir() {
            Ok(entries) => entries,
            Err(_) => {
                std::fs::create_dir_all(path).map_err(|e| Failure::io("create", path, e))?;
                path.read_dir().map_err(|e| Failure::io("list", path, e))?
            }
        };
        if entries.next().is_some() {
            return Err(Failure::Usage(format!(
                "--directory {}: must be empty or not exist yet",
                path.display()
            )));
        }
        Ok(Self {
            path: path.to_owned(),
            remove: false,
        })
    }

    /// A fresh directory in `parent`.
    pub fn fresh_in(parent: &Path, name: &str) -> Result<Self> {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
        let nanos = now.map_or(0, |d| d.as_nanos() as u64);
        let path = parent.join(format!("inkstone-{name}-{}-{nanos:x}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|e| Failure::io("create", &path, e))?;
        Ok(Self { path, remove: true })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it stays.
    pub fn is_kept(&self) -> bool {
        !self.remove
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        if self.remove
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("inkstone: remove {}: {error}", self.path.display());
        }
    }
}
