//! Bytes in, bytes out: the seam between the engine and whatever keeps its bytes.
//!
//! # Promises
//!
//! 1. A [`Vfs`] opens directories; a [`Directory`] opens files and changes names; a [`File`] reads,
//!    writes and syncs at absolute offsets; a [`Batch`] runs many operations at once. A directory
//!    and a file are handles: what becomes of their paths is nothing to them. Tested by
//!    `a_moved_directory_stays_the_same`, `names_change`, `batches_mix_operations`.
//! 2. `write_at` returning `Ok` means that later reads through the same `Vfs` see the bytes. It
//!    promises nothing about power loss. Tested by `reads_see_writes`.
//! 3. [`File::sync`] returning `Ok` means that every write to that file that had returned before
//!    the call began survives power loss. A failed sync promises nothing, and must never be retried
//!    (the kernel may have dropped the pages): the caller poisons itself. What is read past the
//!    cache ([`OpenOptions::direct`]) after a sync returned `Ok` survives power loss, whatever
//!    failed before; so does what is read after [`File::sync_and_forget`], where the file system
//!    takes the advice. Tested by `sectors_are_as_durable_or_as_written_later`,
//!    `giving_up_the_cache_shows_what_a_failed_sync_lost`, `power_loss_loses_nothing_promised`.
//! 4. Creating, renaming or removing a name survives power loss only after [`Directory::sync`] of
//!    its directory returned. Tested by `a_synced_file_may_lose_its_name`,
//!    `removals_are_durable_when_synced`, `names_are_as_before_or_as_after`.
//! 5. No short reads or writes: an operation does all of its bytes or fails. Reading past the end
//!    of a file is `UnexpectedEof`. Tested by `reading_past_the_end_fails`,
//!    `short_writes_go_on_where_they_stopped`, `short_reads_are_continued_until_the_stream_ends`.
//!
//! [`overlay`] keeps what is written in memory, [`scratch`] as long as the process lives. Three
//! backends keep these promises: [`posix`] (pread, pwrite, fdatasync), [`uring`] (batches through
//! io_uring), and [`sim`] (a disk in memory that forgets, tears and reorders what was not synced,
//! and fails on command).

pub mod backend;
pub mod buffer;
pub mod limits;
pub mod overlay;
pub mod posix;
pub mod process;
pub mod scratch;
pub mod sim;
pub mod temporary;
pub mod uring;

#[cfg(test)]
mod conformance;

use std::collections::VecDeque;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

pub use backend::{BackendChoice, default_vfs};
pub use buffer::{AlignedBuffer, MemoryHandle};
pub use std::io::{Error, ErrorKind, Result};

/// Alignment in bytes of buffers, offsets and lengths for unbuffered (`O_DIRECT`) files.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// How opening treats a name that is, or is not, there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// It must exist.
    Never,
    /// Create it if it does not exist.
    IfMissing,
    /// It must not exist.
    New,
}

/// Options of [`Directory::open`].
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// What to do when the file is missing or present.
    pub create: Create,
    /// Open for reading only.
    pub read_only: bool,
    /// Bypass the page cache (`O_DIRECT`). Offsets, lengths and buffer addresses must then be
    /// multiples of [`DIRECT_ALIGNMENT`].
    pub direct: bool,
    /// Each write is durable when it returns (`O_DSYNC`).
    pub dsync: bool,
}

/// Sizes in bytes for which a file takes writes that never tear (`RWF_ATOMIC`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicWriteLimits {
    /// Smallest untorn write.
    pub unit_min: u32,
    /// Largest untorn write.
    pub unit_max: u32,
    /// Largest untorn write that the hardware does by itself; 0 when unknown or when the file
    /// system emulates all of it (by copy-on-write).
    pub unit_max_opt: u32,
}

/// What tells a file from all others that are there: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity(pub u64, pub u64);

/// A file system, or a simulation of one.
pub trait Vfs: Send + Sync + std::fmt::Debug {
    /// Opens a directory. A relative path is resolved now and never again: a later change of the
    /// process's current directory, or a move of the directory itself, changes nothing for the
    /// handle. Parents that are missing are made too, unless `create` is [`Create::Never`]. New
    /// directories are durable on return, so that no caller has to sync directories above its own.
    fn open_directory(&self, path: &Path, create: Create) -> Result<Arc<dyn Directory>>;
    /// Opens one file by its path, as the process sees it now: for files that a user names. The
    /// files of a database are opened through its [`Directory`].
    fn open_file(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>>;
    /// A queue for at most `depth` operations in flight, for the use of one thread at a time.
    fn batch(&self, depth: usize) -> Result<Box<dyn Batch>>;
    /// Short name of the backend, for messages: `posix`, `io_uring`, `sim`.
    fn name(&self) -> &'static str;
    /// The most memory in bytes that the processes beside which this one runs may use together,
    /// where the system sets a limit ([`limits::memory`]): a process that uses more is killed.
    fn memory_limit(&self) -> Option<u64> {
        None
    }
}

/// An open directory. All methods may be called from many threads at once.
///
/// Names are relative paths: of a file in the directory, or in one below it
/// (`log/0000000000000001`). They never leave it.
pub trait Directory: Send + Sync + std::fmt::Debug {
    /// Opens a file.
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn File>>;
    /// Removes a file's name.
    fn remove(&self, name: &str) -> Result<()>;
    /// Renames a file, replacing the target.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Makes everything durable that was written to the file system of this directory, by any
    /// process (`syncfs`): one call where there are tens of thousands of files. Other than
    /// [`File::sync`] it tells of failed writes only since the handle was opened (before Linux 5.8
    /// of none), and may leave the device's own cache as it is: a [`File::sync`] of any file of the
    /// file system must follow. `Unsupported` where there is no such call.
    fn sync_file_system(&self) -> Result<()>;
    /// Whether [`Directory::sync_file_system`] reaches a file: not if its name leads to another
    /// file system.
    fn is_on_file_system(&self, name: &str) -> Result<bool> {
        let _ = name;
        Ok(true)
    }
    /// Makes earlier creations, renames and removals in this directory durable (not those in
    /// directories below it). Opens nothing, so it does not fail for want of descriptors.
    fn sync(&self) -> Result<()>;
    /// Names of the files in this directory, sorted. Subdirectories, and names that are not UTF-8
    /// (so none of ours), are left out.
    fn list(&self) -> Result<Vec<String>>;
    /// Whether there is a file or a directory of this name.
    fn exists(&self, name: &str) -> Result<bool>;
    /// Opens a directory in this one. A new one is durable on return.
    fn subdirectory(&self, name: &str, create: Create) -> Result<Arc<dyn Directory>>;
    /// Takes an exclusive lock, held until the returned guard is dropped. `WouldBlock` when it is
    /// held already, in this process or another one. Creates the file if it is missing.
    fn lock(&self, name: &str) -> Result<Box<dyn Send + Sync>>;
    /// As [`Directory::lock`], but shared with other shared locks, and of a file that is there:
    /// nothing is created or opened for writing.
    fn lock_shared(&self, name: &str) -> Result<Box<dyn Send + Sync>> {
        self.lock(name)
    }
    /// Locks the directory itself, as [`Directory::lock`] a file: there is no name that could be
    /// removed. Does nothing where the file system cannot lock directories.
    fn lock_itself(&self) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }
    /// Which file a name leads to now; `None` where that cannot be told. See [`File::identity`].
    fn identity(&self, name: &str) -> Result<Option<Identity>> {
        let _ = name;
        Ok(None)
    }
    /// Where the directory was when it was opened, absolute: for messages.
    fn path(&self) -> &Path;
    /// Where a file of this directory was then: for messages.
    fn path_of(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// A name that cannot lead out of its directory.
fn check_inside(name: &str) -> Result<&Path> {
    let path = Path::new(name);
    let is_normal = |part| matches!(part, Component::Normal(_));
    if name.is_empty() || !path.components().all(is_normal) {
        let message = format!("{name:?} is no name of a file in a directory");
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(path)
}

/// Opens a file to read what the disk has of it: past the cache where the file system can do that
/// and the file has whole blocks ([`File::is_direct`] tells), else through it. After a sync, what
/// is found past the cache survives power loss.
pub fn open_past_cache(directory: &dyn Directory, name: &str) -> Result<Arc<dyn File>> {
    let buffered = OpenOptions {
        create: Create::Never,
        read_only: true,
        direct: false,
        dsync: false,
    };
    let direct = OpenOptions {
        direct: true,
        ..buffered
    };
    match directory.open(name, direct) {
        Ok(file) if file.len()?.is_multiple_of(DIRECT_ALIGNMENT as u64) => Ok(file),
        Err(error) if error.kind() != ErrorKind::Unsupported => Err(error),
        _ => directory.open(name, buffered),
    }
}

/// An open file. All methods may be called from many threads at once.
pub trait File: Send + Sync + std::fmt::Debug {
    /// Fills `buffer` from `offset` (bytes).
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;
    /// Writes all of `buffer` at `offset` (bytes), extending the file when needed.
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()>;
    /// As `write_at`, and untorn by power loss (`RWF_ATOMIC`); `Unsupported` where the file
    /// cannot promise it for this length.
    fn write_atomic_at(&self, buffer: &[u8], offset: u64) -> Result<()>;
    /// Writes buffers one after the other from `offset` on, as one write where the backend can
    /// (`pwritev`); untorn when `atomic`.
    fn write_vectored_at(&self, buffers: &[&[u8]], offset: u64, atomic: bool) -> Result<()> {
        match buffers {
            [buffer] if atomic => self.write_atomic_at(buffer, offset),
            _ if atomic => Err(Error::new(
                ErrorKind::Unsupported,
                "an atomic write of several buffers",
            )),
            _ => {
                let mut position = offset;
                for buffer in buffers {
                    self.write_at(buffer, position)?;
                    position += buffer.len() as u64;
                }
                Ok(())
            }
        }
    }
    /// Makes all finished writes durable (`fdatasync`).
    fn sync(&self) -> Result<()>;
    /// As [`File::sync`], and then lets go of what is cached of the file, so that later reads see
    /// what the disk has. For a file of an earlier process: if a sync of that one failed, the
    /// kernel has taken its writes for clean, shows them to readers, and will never write them;
    /// another sync succeeds and changes nothing about it. Letting go is advice, which a file
    /// system may ignore; unbuffered reads need none. (A backend without a cache has nothing to let
    /// go of.)
    fn sync_and_forget(&self) -> Result<()> {
        self.sync()?;
        self.forget()
    }
    /// Lets go of what is cached of the file and need not be written any more. See
    /// [`File::sync_and_forget`].
    fn forget(&self) -> Result<()> {
        Ok(())
    }
    /// Length in bytes.
    fn len(&self) -> Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeroes) to `length` bytes.
    fn set_len(&self, length: u64) -> Result<()>;
    /// Reserves disk space for the byte range and extends the file to cover it; fresh bytes read
    /// as zero. `StorageFull` when the disk is full: then nothing that was there is changed, nor
    /// the length. Must not run together with other changes of the length of the same file.
    fn allocate(&self, offset: u64, length: u64) -> Result<()>;
    /// What `write_atomic_at` can do here, if anything.
    fn atomic_write_limits(&self) -> Option<AtomicWriteLimits>;
    /// Which file this is, whatever name it has by now; `None` where that cannot be told.
    fn identity(&self) -> Result<Option<Identity>> {
        Ok(None)
    }
    /// Where the file was when it was opened: for messages.
    fn path(&self) -> &Path;
    /// Whether the file was opened with [`OpenOptions::direct`], so that transfers must be aligned.
    fn is_direct(&self) -> bool {
        false
    }
    /// The file descriptor for backends that have one (io_uring needs it).
    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

/// One operation of a [`Batch`]. Results of reads may be looked at when the batch has returned.
pub enum Op<'a> {
    /// Fill the buffer from the offset.
    Read {
        /// The file to read.
        file: &'a dyn File,
        /// Where the bytes go.
        buffer: &'a mut [u8],
        /// Offset in the file, bytes.
        offset: u64,
    },
    /// Write buffers one after the other from the offset on (one `pwritev`).
    Write {
        /// The file to write.
        file: &'a dyn File,
        /// The bytes, in order.
        buffers: Vec<&'a [u8]>,
        /// Offset in the file, bytes.
        offset: u64,
        /// Whether the whole write must be untorn (`RWF_ATOMIC`).
        atomic: bool,
    },
    /// Make all writes to the file durable that finished before this batch began, and those
    /// writes of this batch that stand before it in the list ([`Batch::run`]), or whose completion
    /// was told before this was submitted ([`Batch::drive`]).
    Sync {
        /// The file to sync.
        file: &'a dyn File,
    },
}

impl Op<'_> {
    /// The same operation, lent.
    fn reborrow(&mut self) -> Op<'_> {
        match self {
            Op::Read {
                file,
                buffer,
                offset,
            } => Op::Read {
                file: *file,
                buffer,
                offset: *offset,
            },
            Op::Write {
                file,
                buffers,
                offset,
                atomic,
            } => Op::Write {
                file: *file,
                buffers: buffers.clone(),
                offset: *offset,
                atomic: *atomic,
            },
            Op::Sync { file } => Op::Sync { file: *file },
        }
    }

    /// Runs this operation by itself, through the methods of its file.
    pub fn run_alone(&mut self) -> Result<()> {
        match self {
            Op::Read {
                file,
                buffer,
                offset,
            } => file.read_at(buffer, *offset),
            Op::Write {
                file,
                buffers,
                offset,
                atomic,
            } => file.write_vectored_at(buffers, *offset, *atomic),
            Op::Sync { file } => file.sync(),
        }
    }
}

/// An operation for [`Batch::drive`], and the number by which its submitter knows it.
pub struct Submission<'a> {
    /// What [`Completed`] is told. Any number, the same one more than once if the submitter likes.
    pub number: u64,
    /// What is to be done.
    pub operation: Op<'a>,
}

/// Told by [`Batch::drive`] that an operation is over: its number, its result, and where to put
/// what is to be done now.
pub type Completed<'a, 'f> = dyn FnMut(u64, Result<()>, &mut Vec<Submission<'a>>) + 'f;

/// A queue of operations. See [`Vfs::batch`].
pub trait Batch: Send {
    /// Runs all operations, in no particular order except that a `Sync` starts after everything
    /// before it in the list has finished, and returns when all have finished: one result each.
    /// What stands after a `Sync` may run before it. A failed operation stops no other.
    fn run(&mut self, operations: &mut [Op<'_>]) -> Vec<Result<()>>;

    /// Runs operations that complete one by one, in any order, and lead to others: `first`, and
    /// what `completed` adds. Each result is told to `completed`, in the calling thread, as soon as
    /// it is there and while others are under way; what it adds then begins at once, as far as the
    /// depth of the queue allows. Returns when nothing is left.
    ///
    /// There is no order but the one that the submitter makes: a `Sync` makes durable what
    /// `completed` was told of before the sync was submitted, and nothing else for certain,
    /// whatever stands before it in a list. Buffers are borrowed until this returns. Each operation
    /// is told of exactly once, also when the queue itself fails: then with an error, as is all
    /// that is added later, so that a caller that repeats what failed must do so a limited number
    /// of times.
    ///
    /// If `completed` panics, this waits for what is under way before the panic goes on.
    ///
    /// ```
    /// use inkstone_io::{BackendChoice, Create, Op, OpenOptions, Submission, default_vfs};
    ///
    /// // Two files are written and synced side by side, each synced when its own write is over.
    /// let place = tempfile::tempdir()?;
    /// let vfs = default_vfs(BackendChoice::Auto)?;
    /// let directory = vfs.open_directory(place.path(), Create::Never)?;
    /// let options = OpenOptions { create: Create::New, read_only: false, direct: false, dsync: false };
    /// let files = [directory.open("a", options)?, directory.open("b", options)?];
    /// let write = |number: usize| Submission {
    ///     number: number as u64,
    ///     operation: Op::Write { file: &*files[number], buffers: vec![b"text"], offset: 0, atomic: false },
    /// };
    /// let mut synced = [false; 2];
    /// let mut outcome = Ok(());
    /// vfs.batch(8)?.drive(vec![write(0), write(1)], &mut |number, result, next| match number {
    ///     _ if result.is_err() => outcome = result,
    ///     0 | 1 => next.push(Submission {
    ///         number: number + 10,
    ///         operation: Op::Sync { file: &*files[number as usize] },
    ///     }),
    ///     _ => synced[number as usize - 10] = true,
    /// });
    /// outcome?;
    /// assert_eq!(synced, [true, true]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn drive<'a>(&mut self, first: Vec<Submission<'a>>, completed: &mut Completed<'a, '_>) {
        // One after the other is one of the orders.
        let mut waiting = VecDeque::from(first);
        let mut next = Vec::new();
        while let Some(mut one) = waiting.pop_front() {
            let results = self.run(std::slice::from_mut(&mut one.operation));
            let result = results.into_iter().next();
            let never = || Err(Error::other("an operation that did not run"));
            completed(one.number, result.unwrap_or_else(never), &mut next);
            waiting.extend(next.drain(..));
        }
    }

    /// Tells which memory most operations of this batch will use, so that a backend can prepare it
    /// once (io_uring registers it with the kernel) and not at each operation. Replaces what was
    /// told before; the batch keeps it alive. Nothing but the cost depends on it. Returns whether
    /// the backend made use of it.
    fn register(&mut self, memory: &[MemoryHandle]) -> bool {
        let _ = memory;
        false
    }
}

/// [`Batch::run`] by [`Batch::drive`]: what stands between two syncs at once, each sync by itself.
fn run_in_phases<B: Batch + ?Sized>(batch: &mut B, operations: &mut [Op<'_>]) -> Vec<Result<()>> {
    let never = || Err(Error::other("an operation that did not run"));
    let mut results: Vec<Result<()>> = operations.iter().map(|_| never()).collect();
    let mut rest = (&mut operations[..], &mut results[..]);
    while !rest.0.is_empty() {
        let end = phase_end(rest.0);
        let (now, later) = rest.0.split_at_mut(end);
        let (told, untold) = rest.1.split_at_mut(end);
        let numbered = (0..).zip(now.iter_mut());
        let first = numbered.map(|(number, operation)| Submission {
            number,
            operation: operation.reborrow(),
        });
        batch.drive(first.collect(), &mut |number, result, _| {
            told[number as usize] = result;
        });
        rest = (later, untold);
    }
    results
}

/// Where the phase that begins with the first operation ends.
fn phase_end(operations: &[Op<'_>]) -> usize {
    let is_sync = |operation: &Op<'_>| matches!(operation, Op::Sync { .. });
    let transfers = operations.iter().position(is_sync);
    transfers.unwrap_or(operations.len()).max(1)
}
