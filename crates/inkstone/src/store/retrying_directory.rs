//! A directory that closes an idle tablespace file where there are too few descriptors.
//!
//! Whatever the engine opens beside tablespace files (log segments, the control file, the list of a
//! directory) it opens through this: see [`open_files`](super::open_files). A thread that opens
//! something has no tablespace file in use.

use super::open_files::OpenFiles;
use inkstone_io::{Create, Directory, File, Identity, OpenOptions, Result};
use std::path::Path;
use std::sync::Arc;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct RetryingDirectory {
    directory: Arc<dyn Directory>,
    open_files: Arc<OpenFiles>,
}

impl RetryingDirectory {
    pub fn new(directory: Arc<dyn Directory>, open_files: Arc<OpenFiles>) -> Self {
        Self {
            directory,
            open_files,
        }
    }
}

impl Directory for RetryingDirectory {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.open_files
            .with_descriptor(|| self.directory.open(name, options))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.directory.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.directory.rename(from, to)
    }

    fn sync_file_system(&self) -> Result<()> {
        self.directory.sync_file_system()
    }

    fn is_on_file_system(&self, name: &str) -> Result<bool> {
        self.directory.is_on_file_system(name)
    }

    fn sync(&self) -> Result<()> {
        self.directory.sync()
    }

    fn list(&self) -> Result<Vec<String>> {
        self.open_files.with_descriptor(|| self.directory.list())
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.directory.exists(name)
    }

    fn subdirectory(&self, name: &str, create: Create) -> Result<Arc<dyn Directory>> {
        let directory = self
            .open_files
            .with_descriptor(|| self.directory.subdirectory(name, create))?;
        Ok(Arc::new(Self::new(directory, self.open_files.clone())))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn Send + Sync>> {
        self.open_files
            .with_descriptor(|| self.directory.lock(name))
    }

    fn lock_shared(&self, name: &str) -> Result<Box<dyn Send + Sync>> {
        self.open_files
            .with_descriptor(|| self.directory.lock_shared(name))
    }

    fn lock_itself(&self) -> Result<Box<dyn Send + Sync>> {
        self.open_files
            .with_descriptor(|| self.directory.lock_itself())
    }

    fn identity(&self, name: &str) -> Result<Option<Identity>> {
        self.directory.identity(name)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}
