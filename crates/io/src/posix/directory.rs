//! Directories as file descriptors.
//!
//! # Promises
//!
//! 1. A path is resolved once, when a directory is opened. After that every name is resolved from
//!    the open descriptor: two directories never mix, whatever the process's current directory is
//!    and however the directories are renamed. Tested by `a_moved_directory_stays_the_same`,
//!    `a_relative_path_is_resolved_once`.
//!
//! [`Directory::sync`] is one `fsync` of the descriptor that is open already. A new directory is
//! durable when it is open: its parent was synced.

use super::{PosixFile, file_mode, identity_of};
use crate::process::Owner;
use crate::{Create, Directory, ErrorKind, File, Identity, OpenOptions, Result, check_inside};
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open directory of the POSIX and io_uring backends.
#[derive(Debug)]
pub(crate) struct PosixDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

impl PosixDirectory {
    /// See [`crate::Vfs::open_directory`].
    pub(crate) fn open(path: &Path, create: Create) -> Result<Self> {
        let empty = path.as_os_str().is_empty();
        let path = if empty { Path::new(".") } else { path };
        Self::open_absolute(&std::path::absolute(path)?, create)
    }

    fn open_absolute(path: &Path, create: Create) -> Result<Self> {
        let found = open_fd(CWD, path);
        let missing = matches!(&found, Err(error) if error.kind() == ErrorKind::NotFound);
        let fd = match (create, path.parent(), path.file_name()) {
            (Create::IfMissing, Some(parent), Some(name)) if missing => {
                let parent = Self::open_absolute(parent, Create::IfMissing)?;
                make(&parent.fd, Path::new(name), create)?
            }
            (Create::New, Some(parent), Some(name)) => {
                let parent = Self::open_absolute(parent, Create::IfMissing)?;
                make(&parent.fd, Path::new(name), create)?
            }
            _ => found?,
        };
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }
}

/// Makes a directory in another one, durably, and opens it.
fn make(parent: &OwnedFd, name: &Path, create: Create) -> Result<OwnedFd> {
    let mode = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    match rustix::fs::mkdirat(parent, name, mode) {
        Ok(()) => rustix::fs::fsync(parent)?,
        // Its maker, in the meantime, may not have synced it yet.
        Err(Errno::EXIST) if create == Create::IfMissing => rustix::fs::fsync(parent)?,
        Err(error) => return Err(error.into()),
    }
    open_fd(parent.as_fd(), name)
}

fn open_fd(at: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(retry_on_intr(|| {
        rustix::fs::openat(at, name, flags, Mode::empty())
    })?)
}

/// A lock that is held. It belongs to the open file description, of which a forked child has a
/// copy: closing the descriptor alone would leave the file locked as long as the child lives. And
/// the child's copy must not unlock it for the parent.
struct Lock {
    fd: OwnedFd,
    owner: Owner,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.owner.is_this_process() {
            // The descriptor is closed next in any case.
            let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
        }
    }
}

fn lock_fd(
    fd: OwnedFd,
    operation: FlockOperation,
) -> std::result::Result<Box<dyn Send + Sync>, Errno> {
    retry_on_intr(|| rustix::fs::flock(&fd, operation))?;
    Ok(Box::new(Lock {
        fd,
        owner: Owner::this_process(),
    }))
}

impl Directory for PosixDirectory {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn File>> {
        let (name, path) = (check_inside(name)?, self.path_of(name));
        let file = PosixFile::open(self.fd.as_fd(), name, &path, options)?;
        Ok(Arc::new(file))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let removed = rustix::fs::unlinkat(&self.fd, check_inside(name)?, AtFlags::empty());
        Ok(removed?)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (check_inside(from)?, check_inside(to)?);
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    fn sync_file_system(&self) -> Result<()> {
        match rustix::fs::syncfs(&self.fd) {
            Err(Errno::NOSYS) => Err(ErrorKind::Unsupported.into()),
            synced => Ok(synced?),
        }
    }

    fn is_on_file_system(&self, name: &str) -> Result<bool> {
        let file = rustix::fs::statat(&self.fd, check_inside(name)?, AtFlags::empty())?;
        Ok(file.st_dev == rustix::fs::fstat(&self.fd)?.st_dev)
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        // A description of its own: the position in the directory is not shared.
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    let found = rustix::fs::statat(&self.fd, name, flags)?;
                    FileType::from_raw_mode(found.st_mode)
                }
                kind => kind,
            };
            if kind != FileType::Directory {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        match rustix::fs::statat(&self.fd, check_inside(name)?, AtFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn subdirectory(&self, name: &str, create: Create) -> Result<Arc<dyn Directory>> {
        let below = check_inside(name)?;
        let fd = match (create, open_fd(self.fd.as_fd(), below)) {
            (Create::New, _) => make(&self.fd, below, create)?,
            (Create::IfMissing, Err(error)) if error.kind() == ErrorKind::NotFound => {
                make(&self.fd, below, create)?
            }
            (_, opened) => opened?,
        };
        Ok(Arc::new(Self {
            fd,
            path: self.path_of(name),
        }))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn Send + Sync>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let name = check_inside(name)?;
        let fd = retry_on_intr(|| rustix::fs::openat(&self.fd, name, flags, file_mode()))?;
        Ok(lock_fd(fd, FlockOperation::NonBlockingLockExclusive)?)
    }

    fn lock_shared(&self, name: &str) -> Result<Box<dyn Send + Sync>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let name = check_inside(name)?;
        let fd = retry_on_intr(|| rustix::fs::openat(&self.fd, name, flags, Mode::empty()))?;
        Ok(lock_fd(fd, FlockOperation::NonBlockingLockShared)?)
    }

    fn lock_itself(&self) -> Result<Box<dyn Send + Sync>> {
        // A description of its own, as the lock belongs to it.
        let fd = open_fd(self.fd.as_fd(), Path::new("."))?;
        match lock_fd(fd, FlockOperation::NonBlockingLockExclusive) {
            // NFS wants a descriptor that can write.
            Err(Errno::BADF | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NOLCK) => {
                Ok(Box::new(()))
            }
            locked => Ok(locked?),
        }
    }

    fn identity(&self, name: &str) -> Result<Option<Identity>> {
        let name = check_inside(name)?;
        let found = rustix::fs::statat(&self.fd, name, AtFlags::empty())?;
        Ok(Some(identity_of(&found)))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
