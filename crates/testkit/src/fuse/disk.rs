//! What outlives a mount.

use crate::Rng;
use inkstone_io::Result;
use inkstone_io::sim::{Losses, SimVfs};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// How the device under the file system treats writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// It has a volatile cache and tears writes at sectors.
    Plain,
    /// It has a volatile cache, and tears writes only at multiples of so many bytes.
    Untorn(u64),
    /// It has no volatile cache: what is written with `O_DIRECT` is durable when it returns. Names
    /// and what went through the page cache are not.
    NoCache,
}

/// When the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// At the n-th write, sync, allocation or change of a name from now, counted from 1.
    Mutation(u64),
    /// At the n-th change of a name or sync of a directory from now: rarer, and as delicate.
    Name(u64),
}

/// A disk with files and directories. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Disk {
    vfs: SimVfs,
    surface: Surface,
    /// Every directory by path, the root by the empty one: whether its name is durable.
    directories: Arc<Mutex<BTreeMap<PathBuf, bool>>>,
    /// Changes of names until the power fails; 0: it does not.
    names_left: Arc<AtomicU64>,
}

impl Disk {
    /// An empty disk.
    pub fn new(surface: Surface) -> Self {
        let vfs = SimVfs::new(0);
        if let Surface::Untorn(bytes) = surface {
            vfs.set_untorn_bytes(bytes);
        }
        Self {
            vfs,
            surface,
            directories: Arc::new(Mutex::new([(PathBuf::new(), true)].into())),
            names_left: Arc::default(),
        }
    }

    /// The power fails: every later request to this disk fails, and a disk is left that has what
    /// was durable, and of the rest what the seed keeps. Says too what it took, and how many new
    /// directories.
    pub fn power_loss(&self, seed: u64) -> Result<(Disk, Losses, u64)> {
        let vfs = self.vfs.crash(seed);
        let mut rng = Rng::new(seed);
        let keep_percent = rng.pick(&[0, 50, 100]);
        let mut left: BTreeMap<PathBuf, bool> = BTreeMap::new();
        let mut lost = 0;
        // A parent comes before its children.
        for (path, durable) in self.directories().iter() {
            let parent_is_there = path.parent().is_none_or(|parent| left.contains_key(parent));
            if parent_is_there && (*durable || rng.chance(keep_percent)) {
                left.insert(path.clone(), true);
            } else {
                lost += 1;
            }
        }
        for file in vfs.files() {
            let parent = file.parent().unwrap_or(Path::new(""));
            if !left.contains_key(parent) {
                vfs.remove(&file)?;
                vfs.sync_dir(parent)?;
            }
        }
        let losses = vfs.losses();
        let disk = Self {
            vfs,
            surface: self.surface,
            directories: Arc::new(Mutex::new(left)),
            names_left: Arc::default(),
        };
        Ok((disk, losses, lost))
    }

    /// Lets the power fail: the operation fails, and its effect may survive or not.
    pub fn arm(&self, trigger: Trigger) {
        match trigger {
            Trigger::Mutation(mutation) => self.vfs.crash_at(mutation),
            Trigger::Name(name) => self.names_left.store(name, Ordering::Relaxed),
        }
    }

    /// Undoes [`Disk::arm`].
    pub fn disarm(&self) {
        self.names_left.store(0, Ordering::Relaxed);
        self.vfs.crash_at(u64::MAX);
    }

    /// To be called before a change of a name or a sync of a directory.
    pub(super) fn before_name(&self) {
        let less = |left: u64| left.checked_sub(1);
        let order = Ordering::Relaxed;
        if self.names_left.fetch_update(order, order, less) == Ok(1) {
            self.vfs.crash_at(1);
        }
    }

    /// Whether the power has failed.
    pub fn is_dead(&self) -> bool {
        self.vfs.is_dead()
    }

    pub(super) fn vfs(&self) -> &SimVfs {
        &self.vfs
    }

    pub(super) fn surface(&self) -> Surface {
        self.surface
    }

    fn directories(&self) -> MutexGuard<'_, BTreeMap<PathBuf, bool>> {
        self.directories.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn has_directory(&self, path: &Path) -> bool {
        self.directories().contains_key(path)
    }

    /// Makes a directory, whose name is not durable. False if it is there.
    pub(super) fn make_directory(&self, path: &Path) -> Result<bool> {
        // The simulated disk has to know it before files can be in it; whether it survives is
        // decided here.
        self.vfs.create_dir_all(path)?;
        let mut directories = self.directories();
        if directories.contains_key(path) {
            return Ok(false);
        }
        directories.insert(path.to_path_buf(), false);
        Ok(true)
    }

    /// Makes the names in a directory durable.
    pub(super) fn sync_directory(&self, path: &Path) -> Result<()> {
        // Not what is made while the sync is under way.
        let mut directories = self.directories();
        self.vfs.sync_dir(path)?;
        for (child, durable) in directories.iter_mut() {
            *durable |= child.parent() == Some(path);
        }
        Ok(())
    }

    /// Names in a directory, subdirectories first; whether each is a directory.
    pub(super) fn list(&self, path: &Path) -> Result<Vec<(String, bool)>> {
        let mut names = Vec::new();
        for directory in self.directories().keys() {
            if directory.parent() == Some(path) {
                let name = directory.file_name().and_then(|name| name.to_str());
                names.extend(name.map(|name| (name.to_owned(), true)));
            }
        }
        let files = self.vfs.read_dir(path)?;
        names.extend(files.into_iter().map(|name| (name, false)));
        Ok(names)
    }
}
