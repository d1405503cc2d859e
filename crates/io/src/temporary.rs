//! Directories that are gone when they are no longer used.

use crate::process::Owner;
use crate::{ErrorKind, Result};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory in the system's folder for temporary files (`TMPDIR`, or `/tmp`), for this user
/// alone. Dropping it removes it, with all that is in it; a process that is killed leaves it there.
///
/// ```
/// use inkstone_io::temporary::TemporaryDirectory;
///
/// let directory = TemporaryDirectory::create("example")?;
/// let path = directory.path().to_owned();
/// std::fs::write(path.join("file"), "bytes")?;
/// drop(directory);
/// assert!(!path.exists());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TemporaryDirectory {
    path: PathBuf,
    owner: Owner,
}

impl TemporaryDirectory {
    /// Makes one, whose name begins with `prefix`.
    pub fn create(prefix: &str) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let folder = std::path::absolute(std::env::temp_dir())?;
        let process = std::process::id();
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{prefix}-{process}-{number}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let owner = Owner::this_process();
                    return Ok(Self { path, owner });
                }
                // Left by a process of the same number that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // In a forked child it is the parent's, which goes on using it.
        if self.owner.is_this_process() {
            // What cannot be removed is the system's to clear away.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TemporaryDirectory;
    use std::collections::HashSet;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn each_has_a_name_of_its_own_and_is_removed() {
        let make = || TemporaryDirectory::create("inkstone-io-test").unwrap();
        let made: Vec<_> = (0..10).map(|_| make()).collect();
        let paths: HashSet<_> = made.iter().map(|made| made.path().to_owned()).collect();
        assert_eq!(paths.len(), 10);
        for path in &paths {
            let mode = path.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
            std::fs::create_dir(path.join("inside")).unwrap();
            std::fs::write(path.join("inside/file"), "bytes").unwrap();
        }
        drop(made);
        assert!(paths.iter().all(|path| !path.exists()));
    }
}
