//! Opening a database to read it, also where it cannot be written: on a file system that is mounted
//! read-only, or in a directory without the right to write.
//!
//! There recovery runs in memory, over an [`OverlayVfs`], as for `verify`. It locks what is there
//! shared: no process of this system opens the database to change it meanwhile. A file that is not
//! there is not made, and protects nothing, nor is one locked for processes of other systems that
//! have the file system mounted to write.

use crate::failure::Result;
use inkstone::{Database, Error, Options};
use inkstone_bench::Failure;
use inkstone_bench::database::{open_existing, open_on, vfs};
use inkstone_io::overlay::OverlayVfs;
use inkstone_io::{Batch, Create, Directory, ErrorKind, File, OpenOptions, Vfs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a database that must exist; in memory, and says so, where it cannot be written.
pub fn open_to_read(directory: &Path, options: &Options) -> Result<Database> {
    let why = match open_existing(directory, options.clone()) {
        Err(Failure::Engine(error)) if is_refusal_to_write(&error) => error,
        opened => return Ok(opened?),
    };
    let over = Over {
        database: directory.to_owned(),
        overlay: OverlayVfs::new(vfs(options)?),
        beside: vfs(options)?,
    };
    let db = open_on(Arc::new(over), directory, options.clone())?;
    eprintln!("inkstone: recovered in memory only, as it cannot be written: {why}");
    Ok(db)
}

/// Whether the database may be read all the same.
fn is_refusal_to_write(error: &Error) -> bool {
    let Error::Io { source, .. } = error else {
        return false;
    };
    matches!(
        source.kind(),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
    )
}

/// The database's directory through an overlay, all else as it is: a copy is made there.
#[derive(Debug)]
struct Over {
    database: PathBuf,
    overlay: OverlayVfs,
    beside: Arc<dyn Vfs>,
}

impl Vfs for Over {
    fn open_directory(
        &self,
        path: &Path,
        create: Create,
    ) -> inkstone_io::Result<Arc<dyn Directory>> {
        if path == self.database {
            self.overlay.open_directory(path, create)
        } else {
            self.beside.open_directory(path, create)
        }
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> inkstone_io::Result<Arc<dyn File>> {
        self.beside.open_file(path, options)
    }

    /// For files of both.
    fn batch(&self, depth: usize) -> inkstone_io::Result<Box<dyn Batch>> {
        self.overlay.batch(depth)
    }

    fn name(&self) -> &'static str {
        self.overlay.name()
    }

    fn memory_limit(&self) -> Option<u64> {
        self.overlay.memory_limit()
    }
}
