//! The choice of a backend for real files.

use crate::posix::PosixVfs;
use crate::uring::UringVfs;
use crate::{Result, Vfs};
use std::sync::Arc;

/// Which backend [`default_vfs`] gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// io_uring where the kernel allows it, POSIX calls otherwise.
    #[default]
    Auto,
    /// POSIX calls.
    Posix,
    /// io_uring, or an error where the kernel forbids it.
    IoUring,
}

/// The file system of this machine through the chosen backend.
///
/// ```
/// use inkstone_io::{BackendChoice, default_vfs};
/// let vfs = default_vfs(BackendChoice::Auto)?;
/// assert!(["posix", "io_uring"].contains(&vfs.name()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn default_vfs(choice: BackendChoice) -> Result<Arc<dyn Vfs>> {
    match choice {
        BackendChoice::Posix => Ok(Arc::new(PosixVfs::new())),
        BackendChoice::IoUring => Ok(Arc::new(UringVfs::new()?)),
        BackendChoice::Auto => Ok(match UringVfs::new() {
            Ok(vfs) => Arc::new(vfs),
            Err(_) => Arc::new(PosixVfs::new()),
        }),
    }
}
