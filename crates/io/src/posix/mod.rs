//! The POSIX backend: pread, pwritev, fdatasync, fallocate, flock.
//!
//! # What this module promises
//!
//! What the crate promises, by plain system calls. What waits for the device side by side does so
//! in threads: `queue`.
//!
//! # Notes
//!
//! - Interrupted and short transfers are continued; a sync is never repeated, not even after
//!   `EINTR`, because the second one could claim what the first one lost.
//! - `O_DIRECT` on a file system that does not take it is `Unsupported`, not silently buffered:
//!   the caller relies on it.
//! - `flock` locks belong to an open file description; [`Directory::lock`] opens its own, so two
//!   guards exclude each other inside a process as well. (Record locks of `fcntl` would not, and
//!   closing any other descriptor of the file would free them.) A forked child has a copy of the
//!   description, so the guard unlocks explicitly. Only a parent that is killed while its child
//!   lives leaves the lock to it, until it ends or calls exec (`O_CLOEXEC`).
//! - Directories are file descriptors, and every name is resolved from one of them: `directory`.

mod directory;
mod queue;

use crate::buffer::{check_transfer, check_vectored};
use crate::{
    AtomicWriteLimits, Batch, Create, DIRECT_ALIGNMENT, Directory, Error, ErrorKind, File,
    Identity, OpenOptions, Result, Vfs,
};
pub(crate) use directory::PosixDirectory;
use queue::PosixBatch;
use rustix::fs::{Advice, AtFlags, CWD, FallocateFlags, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `RWF_ATOMIC` (Linux 6.11), which rustix does not name yet.
pub(crate) const RWF_ATOMIC: u32 = 0x40;
/// `STATX_WRITE_ATOMIC` (Linux 6.11), which rustix does not name yet.
const STATX_WRITE_ATOMIC: u32 = 0x1_0000;
/// Most buffers that one system call takes (`IOV_MAX`).
pub(crate) const VECTOR_BUFFERS_MAX: usize = 1024;
/// Zeroes are written in pieces of this size where the file system has no `fallocate`.
const ZERO_PIECE_BYTES: usize = 1 << 20;

/// The file system of this machine through POSIX calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct PosixVfs;

impl PosixVfs {
    /// The one there is.
    pub fn new() -> Self {
        Self
    }
}

impl Vfs for PosixVfs {
    fn open_directory(&self, path: &Path, create: Create) -> Result<Arc<dyn Directory>> {
        Ok(Arc::new(PosixDirectory::open(path, create)?))
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        Ok(Arc::new(PosixFile::open(CWD, path, path, options)?))
    }

    fn batch(&self, depth: usize) -> Result<Box<dyn Batch>> {
        Ok(Box::new(PosixBatch::new(depth)))
    }

    fn name(&self) -> &'static str {
        "posix"
    }

    fn memory_limit(&self) -> Option<u64> {
        crate::limits::memory()
    }
}

fn file_mode() -> Mode {
    Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP
}

/// An open file of the POSIX and io_uring backends.
#[derive(Debug)]
pub(crate) struct PosixFile {
    fd: OwnedFd,
    path: PathBuf,
    direct: bool,
    read_only: bool,
}

impl PosixFile {
    /// Opens `name` as seen from the directory `at`. `path` is for messages.
    pub(crate) fn open(
        at: BorrowedFd<'_>,
        name: &Path,
        path: &Path,
        options: OpenOptions,
    ) -> Result<Self> {
        let mut flags = OFlags::CLOEXEC;
        flags |= if options.read_only {
            OFlags::RDONLY
        } else {
            OFlags::RDWR
        };
        flags |= match options.create {
            Create::Never => OFlags::empty(),
            Create::IfMissing => OFlags::CREATE,
            Create::New => OFlags::CREATE | OFlags::EXCL,
        };
        flags.set(OFlags::DIRECT, options.direct);
        flags.set(OFlags::DSYNC, options.dsync);
        let fd = match retry_on_intr(|| rustix::fs::openat(at, name, flags, file_mode())) {
            Err(Errno::INVAL) if options.direct => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "this file system takes no unbuffered files (O_DIRECT); a database on it needs \
                     flush_method=fsync, log_file_buffering=on, and doublewrite=on or off",
                ));
            }
            opened => opened?,
        };
        Ok(Self {
            fd,
            path: path.to_path_buf(),
            direct: options.direct,
            read_only: options.read_only,
        })
    }

    fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(read_only());
        }
        Ok(())
    }

    fn write_slices(&self, mut slices: &mut [IoSlice<'_>], offset: u64) -> Result<()> {
        let mut position = offset;
        // Empty buffers would look like a write that does nothing.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let some = &slices[..slices.len().min(VECTOR_BUFFERS_MAX)];
            let written = retry_on_intr(|| rustix::io::pwritev(&self.fd, some, position))
                .map_err(storage_error)?;
            if written == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            position += written as u64;
            IoSlice::advance_slices(&mut slices, written);
        }
        Ok(())
    }

    fn write_slices_atomic(&self, slices: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let flags = ReadWriteFlags::from_bits_retain(RWF_ATOMIC);
        let written = retry_on_intr(|| rustix::io::pwritev2(&self.fd, slices, offset, flags))
            .map_err(atomic_error)?;
        if written != length {
            return Err(short_atomic(written, length));
        }
        Ok(())
    }

    /// Extends the file with written zeroes: what is left where there is no `fallocate`.
    fn write_zeroes_to(&self, end: u64) -> Result<()> {
        let old_length = self.len()?;
        let alignment = DIRECT_ALIGNMENT as u64;
        let start = old_length.next_multiple_of(alignment);
        if end <= start {
            return if end > old_length {
                self.set_len(end)
            } else {
                Ok(())
            };
        }
        let zeroes = crate::AlignedBuffer::zeroed(ZERO_PIECE_BYTES);
        let result = (|| {
            let mut position = start;
            let padded_end = end.next_multiple_of(alignment);
            while position < padded_end {
                let piece = (padded_end - position).min(ZERO_PIECE_BYTES as u64);
                self.write_at(&zeroes[..piece as usize], position)?;
                position += piece;
            }
            self.set_len(end)
        })();
        if result.is_err() {
            // The first error is the one to tell; a file left too long holds zeroes only.
            let _ = self.set_len(old_length);
        }
        result
    }
}

impl File for PosixFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        check_transfer(self.direct, buffer, offset)?;
        let mut done = 0;
        while done < buffer.len() {
            let position = offset + done as u64;
            let rest = &mut buffer[done..];
            let read = retry_on_intr(|| rustix::io::pread(&self.fd, &mut *rest, position))?;
            // An unbuffered read stops at an unaligned place only where the file ends.
            let at_end = self.direct && read % DIRECT_ALIGNMENT != 0 && read < rest.len();
            if read == 0 || at_end {
                return Err(past_end(offset, buffer.len()));
            }
            done += read;
        }
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.write_vectored_at(&[buffer], offset, false)
    }

    fn write_atomic_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.write_vectored_at(&[buffer], offset, true)
    }

    fn write_vectored_at(&self, buffers: &[&[u8]], offset: u64, atomic: bool) -> Result<()> {
        self.check_writable()?;
        check_vectored(self.direct, buffers, offset)?;
        let mut slices: Vec<_> = buffers.iter().map(|buffer| IoSlice::new(buffer)).collect();
        if atomic {
            self.write_slices_atomic(&slices, offset)
        } else {
            self.write_slices(&mut slices, offset)
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::fdatasync(&self.fd)?)
    }

    fn forget(&self) -> Result<()> {
        match rustix::fs::fadvise(&self.fd, 0, None, Advice::DontNeed) {
            // An advice that the file system does not know.
            Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn len(&self) -> Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_size as u64)
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.check_writable()?;
        retry_on_intr(|| rustix::fs::ftruncate(&self.fd, length)).map_err(storage_error)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.check_writable()?;
        if length == 0 {
            return Ok(());
        }
        let reserve =
            |flags| retry_on_intr(|| rustix::fs::fallocate(&self.fd, flags, offset, length));
        // First the space, then the length: a full disk leaves the length as it was.
        match reserve(FallocateFlags::KEEP_SIZE).and_then(|()| reserve(FallocateFlags::empty())) {
            Ok(()) => Ok(()),
            // Not every file system has it, and seccomp filters of containers forbid it with one of
            // the other errors. What is truly wrong with the call the writes will say.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::INVAL) => {
                let end = offset.checked_add(length);
                let end = end.filter(|&end| end <= i64::MAX as u64);
                self.write_zeroes_to(end.ok_or(ErrorKind::InvalidInput)?)
            }
            Err(error) => Err(storage_error(error)),
        }
    }

    fn identity(&self) -> Result<Option<Identity>> {
        Ok(Some(identity_of(&rustix::fs::fstat(&self.fd)?)))
    }

    fn atomic_write_limits(&self) -> Option<AtomicWriteLimits> {
        if !self.direct {
            // RWF_ATOMIC needs O_DIRECT.
            return None;
        }
        let flags = StatxFlags::from_bits_retain(STATX_WRITE_ATOMIC);
        let found = rustix::fs::statx(&self.fd, c"", AtFlags::EMPTY_PATH, flags).ok()?;
        let known = found.stx_mask & STATX_WRITE_ATOMIC != 0;
        (known && found.stx_atomic_write_unit_max > 0).then_some(AtomicWriteLimits {
            unit_min: found.stx_atomic_write_unit_min,
            unit_max: found.stx_atomic_write_unit_max,
            unit_max_opt: found.stx_atomic_write_unit_max_opt,
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn raw_fd(&self) -> Option<i32> {
        Some(self.fd.as_raw_fd())
    }
}

fn identity_of(found: &rustix::fs::Stat) -> Identity {
    Identity(found.st_dev, found.st_ino)
}

/// The error of a write that could not be done: a full disk, a used-up quota and a file that may
/// not grow look alike.
pub(crate) fn storage_error(errno: Errno) -> Error {
    match errno {
        Errno::DQUOT => Error::new(ErrorKind::StorageFull, "the disk quota is used up"),
        Errno::FBIG => Error::new(
            ErrorKind::StorageFull,
            "the file would be larger than the file system, or the limit on file sizes (ulimit -f), \
             allows",
        ),
        other => other.into(),
    }
}

/// The error of an atomic write: what the kernel refuses is `Unsupported`.
pub(crate) fn atomic_error(errno: Errno) -> Error {
    match errno {
        Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS => Error::new(
            ErrorKind::Unsupported,
            "the file takes no atomic write of this length and place",
        ),
        other => storage_error(other),
    }
}

pub(crate) fn short_atomic(written: usize, length: usize) -> Error {
    Error::other(format!(
        "atomic write of {length} bytes stopped after {written}"
    ))
}

pub(crate) fn past_end(offset: u64, length: usize) -> Error {
    Error::new(
        ErrorKind::UnexpectedEof,
        format!("the file ends before offset {offset} + {length} bytes"),
    )
}

pub(crate) fn read_only() -> Error {
    Error::new(
        ErrorKind::PermissionDenied,
        "the file is open for reading only",
    )
}

#[cfg(test)]
mod tests;
