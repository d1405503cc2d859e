//! A disk in memory that forgets, tears and reorders what was not synced, and fails on command.
//!
//! # Words
//!
//! - *Disk*: the files and names. *Process*: one life of a user of the disk; a [`SimVfs`] is the
//!   view that a process has of its disk, and its clones are the same process.
//! - *Crash*: power loss. Ends the process and leaves a new disk, made from what was durable and
//!   from a part of what was not, drawn at random from a seed.
//! - *Kill*: the end of a process alone (`kill -9`). The disk keeps everything written, and goes
//!   on knowing what of it is durable.
//! - *Mutation*: a write, sync, change of length, rename, removal, sync of a directory, or the
//!   creation of a file. [`SimVfs::crash_at`] counts them.
//!
//! # Promises
//!
//! 1. Without faults it behaves as the other backends (one suite tests all), including the
//!    alignment that unbuffered files demand. Directories are durable when created. Tested by
//!    `reads_see_writes`, `unbuffered_files_want_alignment`, `names_change`.
//! 2. After a crash, everything that a finished [`File::sync`] or
//!    [`Directory::sync`] covered, and every finished write to a `dsync` file, is there (and what
//!    [`SimVfs::set_volatile_cache`] says of a disk without a cache). A sync
//!    covers what had been written when it began, not what was written meanwhile. Tested by
//!    `sectors_are_as_durable_or_as_written_later`,
//!    `a_sync_covers_only_what_was_written_before_it_began`,
//!    `a_disk_without_a_cache_keeps_replaced_bytes_and_promises_no_more`.
//! 3. After a crash, each write that was not durable is there, or not, or torn at a multiple of
//!    512 or 4096 bytes (the first units survive, or any subset), independently of other
//!    writes. Atomic writes are not torn. Changes of length survive in order up to some point.
//!    A name changed without [`Directory::sync`] is as before or as after, even if the file was
//!    synced; renames are all or nothing.
//!    What a failed sync should have made durable stays readable, and no later sync makes it so;
//!    [`File::sync_and_forget`] and unbuffered reads show what of it the disk has. Tested by
//!    `sectors_are_as_durable_or_as_written_later`, `crashes_find_every_combination`,
//!    `atomic_writes_are_not_torn`, `lengths_survive_in_order`, `names_are_as_before_or_as_after`,
//!    `a_sync_does_not_mend_an_earlier_one_that_failed`,
//!    `giving_up_the_cache_shows_what_a_failed_sync_lost`.
//! 4. After the end of a process all of its operations fail with [`is_dead_error`], and its locks
//!    are free. No operation of it changes a disk after [`SimVfs::crash`] or [`SimVfs::kill`]
//!    returned. Tested by `a_dead_process_can_do_nothing`.
//! 5. A single thread sees the same for the same seeds. Several threads see what their order of
//!    operations gives. Tested by `sectors_are_as_durable_or_as_written_later`.
//!
//! # Latches
//!
//! Names, then a node, then the process's state or the disk's random numbers (`dice`). One node at
//! a time.
//!
//! # Not simulated
//!
//! Bytes that change without a write, misdirected and lost writes: use [`SimVfs::flip_bit`] and
//! [`SimVfs::write_raw`]. Reads that answer wrong bytes once are faults ([`Fault::FlippedBit`],
//! [`Fault::WrongPlace`]).
//!
//! ```
//! use inkstone_io::sim::SimVfs;
//! use inkstone_io::{Create, OpenOptions};
//! use std::path::Path;
//!
//! let vfs = SimVfs::new(1);
//! let options = OpenOptions { create: Create::IfMissing, read_only: false, direct: false, dsync: false };
//! let file = vfs.open(Path::new("file"), options)?;
//! file.write_at(b"kept", 0)?;
//! file.sync()?;
//! vfs.sync_dir(Path::new(""))?;
//! file.write_at(b"lost", 0)?; // or kept: the seed decides
//! for seed in 0..20 {
//!     let bytes = vfs.crash(seed).read_raw(Path::new("file"))?;
//!     assert!(bytes == b"kept" || bytes == b"lost");
//! }
//! assert!(file.sync().is_err()); // a file of the dead process
//! # Ok::<(), std::io::Error>(())
//! ```

mod content;
mod directory;
mod faults;
mod file;
mod losses;
mod names;
mod node;
mod observer;
mod rng;

pub use faults::{DiskDead, Fault, FaultRule, OpKind, is_dead_error};
pub use losses::Losses;

use crate::{
    AtomicWriteLimits, Batch, Create, Directory, Error, ErrorKind, File, OpenOptions, Result, Vfs,
};
use content::{BLOCK_BYTES, Content};
use directory::SimDirectory;
use faults::Process;
use file::SimBatch;
use names::Names;
use node::{Node, NodeState};
use observer::{Clock, Observer};
use parking_lot::Mutex;
use rng::Rng;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Size of a new disk. [`SimVfs::set_capacity_bytes`] changes it.
pub const CAPACITY_BYTES: u64 = 64 << 30;

/// A process's view of a simulated disk. See the [module](self).
#[derive(Clone, Debug)]
pub struct SimVfs {
    disk: Arc<Disk>,
    process: Arc<Process>,
}

/// What outlives a process.
#[derive(Debug)]
struct Disk {
    names: Mutex<Names>,
    dice: Mutex<Rng>,
    next_node: AtomicU64,
    capacity_blocks: AtomicU64,
    /// Blocks of files that have a name or an open handle.
    used_blocks: AtomicU64,
    /// What a sync of a file takes whose path contains the text; the last that fits.
    sync_delays: Mutex<Vec<(String, Duration)>>,
    atomic_write_limits: Mutex<Option<AtomicWriteLimits>>,
    observer: Observer,
    clock: Clock,
    /// Crashes tear writes at multiples of this only; 0: at whatever a disk can.
    untorn_bytes: AtomicU64,
    /// Whether [`File::sync_and_forget`] leaves the cache as it is.
    keeps_cache: AtomicBool,
    /// What the crash that left this disk took.
    losses: Losses,
    /// Whether finished unbuffered writes may be lost.
    volatile_cache: AtomicBool,
    /// Whether finished writes are durable, as with `dsync`.
    writes_through: AtomicBool,
}

impl Disk {
    fn new(seed: u64) -> Self {
        Self {
            names: Mutex::default(),
            dice: Mutex::new(Rng::fork(seed, u64::MAX)),
            next_node: AtomicU64::new(0),
            capacity_blocks: AtomicU64::new(CAPACITY_BYTES / BLOCK_BYTES as u64),
            used_blocks: AtomicU64::new(0),
            sync_delays: Mutex::default(),
            atomic_write_limits: Mutex::new(None),
            observer: Observer::default(),
            clock: Clock::default(),
            untorn_bytes: AtomicU64::new(0),
            keeps_cache: AtomicBool::new(false),
            losses: Losses::default(),
            volatile_cache: AtomicBool::new(true),
            writes_through: AtomicBool::new(false),
        }
    }

    /// What a sync of a file takes.
    fn sync_delay(&self, path: &Path) -> Duration {
        let path = path.to_string_lossy();
        let delays = self.sync_delays.lock();
        let of_path = |(text, _): &&(String, Duration)| path.contains(text.as_str());
        let found = delays.iter().rev().find(of_path);
        found.map_or(Duration::ZERO, |&(_, delay)| delay)
    }

    /// A number below `bound`.
    fn dice(&self, bound: u64) -> u64 {
        self.dice.lock().below(bound)
    }

    fn take_space(&self, blocks: u64) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        let capacity = self.capacity_blocks.load(Ordering::Relaxed);
        self.used_blocks
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(blocks).filter(|&used| used <= capacity)
            })
            .map(drop)
            .map_err(|_| rustix::io::Errno::NOSPC.into())
    }

    fn give_space(&self, blocks: u64) {
        self.used_blocks.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// Gives back the space of a file that has just lost its last name or handle.
    fn give_back_if_gone(&self, state: &NodeState) {
        if !state.linked && state.handles == 0 {
            self.give_space(state.content().block_count());
        }
    }

    /// Gives up what is cached of a file.
    fn forget(&self, state: &mut NodeState) {
        let before = state.content().block_count();
        let untorn = self.untorn_bytes.load(Ordering::Relaxed);
        state.forget(&mut Rng::new(self.dice(u64::MAX)), untorn);
        self.give_space(before - state.content().block_count());
    }

    fn unlink(&self, node: &Node) {
        let mut state = node.state.lock();
        state.linked = false;
        self.give_back_if_gone(&state);
    }

    fn create(&self, names: &mut Names, path: &Path) -> Arc<Node> {
        let id = self.next_node.fetch_add(1, Ordering::Relaxed);
        let node = Arc::new(Node::new(id, Content::default(), Content::default()));
        names.create(path.to_path_buf(), Arc::clone(&node));
        node
    }
}

/// Paths that mean the same compare equal.
fn normal(path: &Path) -> PathBuf {
    let parts = path.components();
    parts.filter(|part| *part != Component::CurDir).collect()
}

fn not_found(path: &Path) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("no {} on the simulated disk", path.display()),
    )
}

/// Making, ending and steering a simulation.
impl SimVfs {
    /// A process with an empty disk of [`CAPACITY_BYTES`]. The seed decides the random choices of
    /// batches and short writes; crashes take a seed of their own.
    pub fn new(seed: u64) -> Self {
        Self::of(Disk::new(seed))
    }

    fn of(disk: Disk) -> Self {
        Self {
            disk: Arc::new(disk),
            process: Arc::default(),
        }
    }

    /// Power loss: the process dies, and a new one finds what the disk kept. May be called
    /// again with other seeds: each call gives a new disk that is independent of the others.
    pub fn crash(&self, seed: u64) -> SimVfs {
        self.process.die();
        let names = self.disk.names.lock();
        let mut disk = Disk::new(seed);
        let mut files = names.after_crash(&mut Rng::fork(seed, 0), &mut disk.losses);
        let untorn = self.disk.untorn_bytes.load(Ordering::Relaxed);
        let mut used_blocks = 0;
        for node in files.values_mut() {
            let state = node.state.lock();
            let rng = &mut Rng::fork(seed, node.id + 1);
            let content = state.after_crash(rng, untorn, &mut disk.losses);
            let before = state.before().clone();
            drop(state);
            used_blocks += content.block_count();
            *node = Arc::new(Node::new(node.id, content, before));
        }
        *disk.names.get_mut() = Names::found(files, names.directories.clone());
        *disk.used_blocks.get_mut() = used_blocks;
        *disk.next_node.get_mut() = self.disk.next_node.load(Ordering::Relaxed);
        *disk.capacity_blocks.get_mut() = self.disk.capacity_blocks.load(Ordering::Relaxed);
        *disk.sync_delays.get_mut() = self.disk.sync_delays.lock().clone();
        *disk.atomic_write_limits.get_mut() = *self.disk.atomic_write_limits.lock();
        *disk.untorn_bytes.get_mut() = untorn;
        *disk.keeps_cache.get_mut() = self.disk.keeps_cache.load(Ordering::Relaxed);
        disk.observer = self.disk.observer.copy();
        disk.clock = self.disk.clock.copy();
        *disk.volatile_cache.get_mut() = self.disk.volatile_cache.load(Ordering::Relaxed);
        *disk.writes_through.get_mut() = self.disk.writes_through.load(Ordering::Relaxed);
        Self::of(disk)
    }

    /// `kill -9`: the process dies, and a new one finds everything that was written. What was not
    /// synced can still be lost by a later crash. Of files whose sync failed some have been evicted
    /// from the cache by then, chosen at random: of these the new process finds what the disk has.
    pub fn kill(&self) -> SimVfs {
        self.process.die();
        // Wait for operations that were let through before.
        for node in self.disk.names.lock().files().values() {
            let mut state = node.state.lock();
            if state.is_forsaken() && self.disk.dice(4) == 0 {
                self.disk.forget(&mut state);
            }
        }
        Self {
            disk: Arc::clone(&self.disk),
            process: Arc::default(),
        }
    }

    /// Whether the process is dead: by [`SimVfs::crash`], [`SimVfs::kill`] or a reached
    /// [`SimVfs::crash_at`].
    pub fn is_dead(&self) -> bool {
        self.process.is_dead()
    }

    /// Power is lost during the `mutation`-th mutation from now, counted from 1: it fails, and its
    /// effect may reach the disk or not. Call [`SimVfs::crash`] then.
    pub fn crash_at(&self, mutation: u64) {
        self.process.crash_at("", mutation);
    }

    /// As [`SimVfs::crash_at`], but only mutations of files whose path contains `path_contains`
    /// count.
    pub fn crash_at_in(&self, path_contains: &str, mutation: u64) {
        self.process.crash_at(path_contains, mutation);
    }

    /// What the crash that left this disk took; nothing for a new disk.
    pub fn losses(&self) -> Losses {
        self.disk.losses
    }

    /// Mutations of this process so far.
    pub fn mutations(&self) -> u64 {
        self.process.mutations()
    }

    /// Operations of this process so far.
    pub fn operations(&self) -> u64 {
        self.process.count_all()
    }

    /// Operations of one kind of this process so far.
    pub fn operations_of(&self, kind: OpKind) -> u64 {
        self.process.count(kind)
    }

    /// Makes the `nth` operation of a kind from now (counted from 1) fail.
    pub fn fail_nth(&self, kind: OpKind, nth: u64, fault: Fault) {
        self.fail(FaultRule {
            kind: Some(kind),
            path_contains: String::new(),
            nth,
            times: 1,
            fault,
        });
    }

    /// Makes the `nth` operation of any kind from now (counted from 1) fail.
    pub fn fail_nth_of_all(&self, nth: u64, fault: Fault) {
        self.fail(FaultRule {
            kind: None,
            path_contains: String::new(),
            nth,
            times: 1,
            fault,
        });
    }

    /// Makes operations fail by a rule. Rules end with the process.
    pub fn fail(&self, rule: FaultRule) {
        self.process.add_rule(rule, None);
    }

    /// Makes reads and writes fail by a rule, if they touch these bytes of a file.
    pub fn fail_bytes(&self, rule: FaultRule, bytes: Range<u64>) {
        self.process.add_rule(rule, Some(bytes));
    }

    /// Lets the process have so many files, directories and locks open at once: what would open one
    /// more, or list a directory, fails with `EMFILE`. What is open stays so.
    pub fn limit_handles(&self, limit: u64) {
        self.process.limit_handles(limit);
    }

    /// The files, directories and locks that the process has open now.
    pub fn handles(&self) -> u64 {
        self.process.handles()
    }

    /// The most files, directories and locks that the process had open at once.
    pub fn handles_max(&self) -> u64 {
        self.process.handles_max()
    }

    /// The kernel writes back what no sync has covered, of files whose path contains the text, and
    /// fails: it takes those writes for clean, whether the disk has them or not. The next sync of
    /// each handle that is open now fails; to handles that are opened later nothing is told, as if
    /// the kernel had let go of the file's inode meanwhile.
    pub fn fail_write_back(&self, path_contains: &str) {
        let names = self.disk.names.lock();
        for (path, node) in names.files() {
            if path.to_string_lossy().contains(path_contains) {
                node.state.lock().fail_write_back();
            }
        }
    }

    /// The files whose operations have failed by rules, in order, one for each failure.
    pub fn faulted(&self) -> Vec<PathBuf> {
        self.process.hit()
    }

    /// The system lets the process have so many bytes of memory ([`Vfs::memory_limit`]).
    pub fn limit_memory(&self, bytes: u64) {
        self.process.limit_memory(bytes);
    }

    /// Forgets all rules.
    pub fn clear_faults(&self) {
        self.process.clear_rules();
    }

    /// Limits the disk to so many bytes, rounded down to blocks of 4096. Beyond it writes and
    /// allocations are `StorageFull`.
    pub fn set_capacity_bytes(&self, capacity: u64) {
        let blocks = capacity / BLOCK_BYTES as u64;
        self.disk.capacity_blocks.store(blocks, Ordering::Relaxed);
    }

    /// Bytes that files take, in whole blocks.
    pub fn used_bytes(&self) -> u64 {
        self.disk.used_blocks.load(Ordering::Relaxed) * BLOCK_BYTES as u64
    }

    /// Makes each sync take a while, also one that fails, so that others go on meanwhile.
    pub fn set_sync_delay(&self, delay: Duration) {
        self.set_sync_delay_of("", delay);
    }

    /// As [`SimVfs::set_sync_delay`], for files whose path contains `path_contains`. The last call
    /// that fits a file counts.
    pub fn set_sync_delay_of(&self, path_contains: &str, delay: Duration) {
        let mut delays = self.disk.sync_delays.lock();
        delays.push((path_contains.to_owned(), delay));
    }

    /// Has `observer` called before each operation on this disk, and on what crashes leave of it,
    /// with its path and what it writes; and again in the middle of each sync. It may take its time
    /// and let other threads run: no lock of the disk is held.
    pub fn observe(&self, observer: impl Fn(OpKind, &Path, &[u8]) + Send + Sync + 'static) {
        self.disk.observer.set(Arc::new(observer));
    }

    /// Has `sleep` let the time pass that syncs take ([`SimVfs::set_sync_delay`]), on this disk and
    /// on what crashes leave of it; without it, threads sleep.
    pub fn sleep_by(&self, sleep: impl Fn(Duration) + Send + Sync + 'static) {
        self.disk.clock.set(Arc::new(sleep));
    }

    /// Makes crashes tear writes only at multiples of so many bytes (a power of two), as file
    /// systems do that journal data; 0 (as at first): wherever a disk can.
    pub fn set_untorn_bytes(&self, bytes: u64) {
        self.disk.untorn_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Makes [`File::sync_and_forget`] keep what is cached, as a file system may: letting go of it
    /// is advice. Unbuffered reads still see what the disk has.
    pub fn set_keeps_cache(&self, keeps: bool) {
        self.disk.keeps_cache.store(keeps, Ordering::Relaxed);
    }

    /// Whether the disk has a cache that forgets (as at first). Without one a finished write to an
    /// unbuffered file is durable, if it only replaces bytes: not if the length, the file's space,
    /// or the note that there is data, changed with it.
    pub fn set_volatile_cache(&self, has: bool) {
        self.disk.volatile_cache.store(has, Ordering::Relaxed);
    }

    /// Whether every finished write is durable, as if all files were opened with `dsync` (at first
    /// not). Such a disk notes nothing of what it could lose: it takes no memory for files that are
    /// written and never synced.
    pub fn set_writes_through(&self, through: bool) {
        self.disk.writes_through.store(through, Ordering::Relaxed);
    }

    /// What unbuffered files answer for atomic writes; `None` (as at first) for no such writes.
    pub fn set_atomic_write_limits(&self, limits: Option<AtomicWriteLimits>) {
        *self.disk.atomic_write_limits.lock() = limits;
    }
}

/// Looking at and corrupting the disk from outside: works on disks of dead processes too, counts
/// as no operation and meets no faults.
impl SimVfs {
    /// A handle of a directory, whether it is there or not.
    pub fn directory(&self, path: impl AsRef<Path>) -> Arc<dyn Directory> {
        Arc::new(SimDirectory::at(self, path.as_ref()))
    }

    /// Paths of all files, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.disk.names.lock().files().keys().cloned().collect()
    }

    /// Length of the files that stand in a directory itself, in bytes.
    pub fn bytes_in(&self, directory: &Path) -> u64 {
        let (names, directory) = (self.disk.names.lock(), normal(directory));
        let inside = names.files().iter();
        let inside = inside.filter(|(path, _)| path.parent() == Some(&*directory));
        let lengths = inside.map(|(_, node)| node.state.lock().content().length());
        lengths.sum()
    }

    fn node(&self, path: &Path) -> Result<Arc<Node>> {
        let names = self.disk.names.lock();
        let node = names.get(&normal(path));
        node.cloned().ok_or_else(|| not_found(path))
    }

    /// Makes everything durable: contents, lengths and names. Crashes then give copies of the disk
    /// as it is.
    pub fn settle(&self) {
        let mut names = self.disk.names.lock();
        for directory in names.directories.clone() {
            names.sync(&directory);
        }
        for node in names.files().values() {
            node.state.lock().make_durable();
        }
    }

    /// Removes a file, durably.
    pub fn remove_raw(&self, path: &Path) -> Result<()> {
        let (path, node) = (normal(path), self.node(path)?);
        let mut names = self.disk.names.lock();
        names.remove(path.clone());
        self.disk.unlink(&node);
        path.parent().into_iter().for_each(|dir| names.sync(dir));
        Ok(())
    }

    /// All bytes of a file.
    pub fn read_raw(&self, path: &Path) -> Result<Vec<u8>> {
        let node = self.node(path)?;
        let state = node.state.lock();
        let mut bytes = vec![0; state.content().length() as usize];
        state.content().read(&mut bytes, 0);
        Ok(bytes)
    }

    /// Overwrites (or extends) bytes of a file, durably.
    pub fn write_raw(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
        let node = self.node(path)?;
        let mut state = node.state.lock();
        let before = state.content().block_count();
        state.write(bytes, offset, true, true);
        let added = state.content().block_count() - before;
        self.disk.used_blocks.fetch_add(added, Ordering::Relaxed);
        Ok(())
    }

    /// Takes `length` bytes back to what stood there before they were last written, zeroes if
    /// nothing did, durably: that write was torn. A stale read ([`Fault::Stale`]) gives what it
    /// gave before.
    pub fn tear_raw(&self, path: &Path, offset: u64, length: u64) -> Result<()> {
        let node = self.node(path)?;
        node.state.lock().tear(offset, length as usize);
        Ok(())
    }

    /// Flips a bit (0 to 7) of the byte at `offset`, durably.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> Result<()> {
        let node = self.node(path)?;
        let mut state = node.state.lock();
        if offset >= state.content().length() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut byte = [0];
        state.content().read(&mut byte, offset);
        state.write(&[byte[0] ^ (1 << (bit % 8))], offset, true, true);
        Ok(())
    }

    /// Cuts (or extends) a file, durably.
    pub fn truncate_raw(&self, path: &Path, length: u64) -> Result<()> {
        let node = self.node(path)?;
        let mut state = node.state.lock();
        let before = state.content().block_count();
        state.set_length(length);
        let mark = state.sync_mark();
        state.finish_sync(mark);
        self.disk.give_space(before - state.content().block_count());
        Ok(())
    }
}

impl Vfs for SimVfs {
    fn open_directory(&self, path: &Path, create: Create) -> Result<Arc<dyn Directory>> {
        Ok(Arc::new(SimDirectory::open(self, path, create)?))
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.open(path, options)
    }

    fn batch(&self, depth: usize) -> Result<Box<dyn Batch>> {
        self.process.check_alive()?;
        let rng = Rng::new(self.disk.dice(u64::MAX));
        let depth = depth.max(1);
        Ok(Box::new(SimBatch { rng, depth }))
    }

    fn name(&self) -> &'static str {
        "sim"
    }

    fn memory_limit(&self) -> Option<u64> {
        self.process.memory_limit()
    }
}

#[cfg(test)]
mod tests;
