//! The version store: before-images of rows, for rollback and for snapshots.
//!
//! # Words
//!
//! - *entry*: what one change to one row replaced. Its *address* stands in the row's cell while it
//!   may matter. `previous` leads to the row's older entry, `undo_previous` to the entry that the
//!   same transaction made before.
//! - *segment*: entries that were appended together and go together. *Open*: being appended to by
//!   the threads of one stripe, and by transactions that have begun there; *sealed*: unchangeable;
//!   *spilled*: sealed, and its bytes are in the spill file, with its writers that had ended;
//!   memory keeps some 300 bytes of it. *Retired*: gone, its addresses are *dead*.
//! - *finish*: a transaction tells each segment that it wrote to its commit or rollback number.
//!
//! ```text
//!        append            full, idle              over budget
//!  (none) ----> open ------------------> sealed ----------------> spilled
//!                                          |    visible to all      |
//!                                          +------> retired <-------+
//! ```
//!
//! # Promises
//!
//! 1. An address never repeats, also across restarts: it is `segment number << 14 | offset / 16`,
//!    and numbers ascend from `version_epoch << 26`. (If one run needs more than 2^26 segments, 16
//!    TiB, it goes on in the range of the next epochs; see [`VersionStore::highest_epoch`].) 0 is
//!    no address. Tested by `epochs_do_not_share_addresses`, `addresses_that_were_never_given_out`,
//!    `the_store_matches_a_model`.
//! 2. A segment retires only when it is sealed, all its writers have finished, and the largest of
//!    their numbers is at most the oldest snapshot. So a **dead address means: the content that it
//!    hangs on is visible to every snapshot, and its transaction has ended.** Segments retire in
//!    any order. Addresses of earlier epochs are dead: recovery has rolled back what was
//!    unfinished. Tested by `retiring_waits_for_snapshots_and_writers`,
//!    `the_store_matches_a_model`. Tested by the simulator (`version-retired-early`).
//! 3. While it is live an entry can be read and never changes, wherever its bytes are. Tested by
//!    `the_store_matches_a_model`, `rollback_walks_back_through_spilled_segments`.
//! 4. A full disk fails the appender (`DiskFull`) and no other thread: a segment leaves memory only
//!    after it was written. Tested by `a_full_disk_fails_appenders_only`.
//! 5. When nothing is appended any more and no snapshot needs anything, memory and spill file
//!    shrink to nothing: [`VersionStore::seal_idle`] and [`VersionStore::retire`] called now and
//!    then. Tested by `rollback_walks_back_through_spilled_segments`, `the_store_matches_a_model`.
//!
//! A reader without a registered snapshot (a writer that looks at the newest version) must resolve
//! the address before it lets go of the leaf's latch; one with a snapshot may do it later, from a
//! copy of the cell, because the number of the transaction that wrote the entry, if that was still
//! invisible, is larger than the snapshot's. This holds for rollbacks too, which take a number.
//!
//! # Latches, in order
//!
//! `retiring`; `spill`; a stripe; `sealed`; `milestones`; `directory`; a segment's `storage`; a
//! segment's `writers`. Only `spill` is held across writes, and only `retiring` and one segment's
//! `storage` (shared) across reads of the spill file; all else for a few instructions.
//! [`VersionStore::append`] does no I/O below five quarters of the budget: call
//! [`VersionStore::make_room`] before latching a page.

mod entry;
mod live;
mod milestones;
mod retire;
mod saved;
mod segment;
mod spill;
mod undo_copy;
mod undo_end;
mod view;
mod writers;

#[cfg(test)]
mod test_vfs;
#[cfg(test)]
mod tests;

pub use entry::NewVersion;
pub(crate) use saved::{RebuiltSegments, SavedList, ToSave, UNDO_FILE};
pub use view::{
    BULK, BulkRows, MARK_ONLY, NO_PURGE, RUN, SPLICED, VersionKind, VersionRef, VersionView,
    bulk_end, run_of, spliced,
};

use crate::counters::{Counter, Counters, STRIPES, thread_stripe};
use crate::mutants::{self, Mutant};
use crate::mvcc::system::TrxState;
use crate::paranoid::{Check, Checked, MANY, paranoid};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, ShardedLock};
use crate::{Error, Result};
use crossbeam_utils::CachePadded;
use entry::UNIT;
use inkstone_format::version::VERSION_UNIT_BITS as UNIT_BITS;
use inkstone_format::{Corrupt, SpaceId, TreeId, VersionAddress};
use live::{Directory, OldestLive};
pub(crate) use milestones::is_milestone;
use milestones::{MILESTONE, Milestones, row_of, steps_between};
use saved::{Saving, UndoSpace};
use segment::{MemoryChange, Segment};
use spill::SPILL_FILE;
pub(crate) use spill::{Extent, Lifetime, SpillFile};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
pub(crate) use undo_end::Cut;

/// Bits of a segment number below the epoch.
const SEGMENT_BITS: u32 = 26;
/// Epochs are below this.
pub const EPOCH_LIMIT: u32 = 1 << (63 - UNIT_BITS - SEGMENT_BITS);
/// Bytes in a segment, at most (but a large entry has one of its own).
const SEGMENT_BYTES_MAX: usize = UNIT << UNIT_BITS;
const SEGMENT_BYTES_MIN: usize = 8 << 10;
/// The least bytes in a segment of logged versions: the versions of one operation fit one.
const LOGGED_SEGMENT_BYTES_MIN: usize = 64 << 10;

/// The segments that a transaction wrote to. Kept by the transaction, and given to
/// [`VersionStore::finish`] at its end: without that, the segments never retire.
#[derive(Debug, Default)]
#[must_use = "pass it to VersionStore::finish"]
pub struct TouchedSegments {
    segments: Vec<(Arc<Segment>, u32)>,
    /// New versions get logged addresses.
    logged: bool,
    /// What it has of the undo file beside the segments.
    undo_space: UndoSpace,
}

impl TouchedSegments {
    /// Whether the transaction has written no versions.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether a segment is among the latest.
    fn touches(&self, number: u64) -> bool {
        let latest = self.segments.iter().rev();
        let few = self.segments.len() <= MANY;
        latest
            .take(MANY)
            .any(|(segment, _)| segment.number == number)
            || !few
    }

    fn writer_in(&self, segment: &Arc<Segment>) -> Option<u32> {
        // Nearly always the last one; else one of the few last, and once for each new segment none.
        let mut touched = self.segments.iter().rev();
        let found = touched.find(|(s, _)| Arc::ptr_eq(s, segment));
        found.map(|&(_, writer)| writer)
    }
}

/// Figures for the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionStats {
    /// Bytes of memory in use.
    pub memory_bytes: u64,
    /// Segments that are live.
    pub segments: usize,
    /// Of those, segments whose bytes are in memory and could be spilled.
    pub sealed_in_memory: usize,
    /// Bytes in use in the spill file.
    pub spilled_bytes: u64,
}

/// What a stripe of threads appends to.
#[derive(Debug, Default)]
struct Stripe {
    open: Option<Arc<Segment>>,
    /// The segment that was open when `seal_idle` last looked.
    seen: u64,
}

#[derive(Debug, Default)]
struct Sealed {
    all: BTreeMap<u64, Arc<Segment>>,
    /// Those that may be spilled.
    in_memory: BTreeMap<u64, Arc<Segment>>,
}

impl Check for Stripe {
    fn check(&self) {
        let open = self.open.as_ref().map(|open| open.number);
        paranoid!(
            open.is_none_or(|open| open >= self.seen),
            "segment {open:?} is open, and a later one was: {}",
            self.seen
        );
    }
}

impl Check for Sealed {
    fn check(&self) {
        paranoid!(
            self.in_memory.len() <= self.all.len(),
            "{} sealed segments, {} of them in memory",
            self.all.len(),
            self.in_memory.len()
        );
        for (number, segment) in self.in_memory.iter().take(MANY) {
            paranoid!(
                segment.number == *number,
                "segment {} is listed as {number}",
                segment.number
            );
            let listed = self.all.get(number);
            paranoid!(
                listed.is_some_and(|other| Arc::ptr_eq(other, segment)),
                "segment {number} is in memory and not sealed"
            );
        }
    }
}

/// The old versions of one open database. See the module's text.
#[derive(Debug)]
pub struct VersionStore {
    stripes: Box<[CachePadded<Checked<Stripe>>]>,
    directory: ShardedLock<Directory>,
    oldest_live: CachePadded<OldestLive>,
    memory: CachePadded<AtomicU64>,
    /// Of that what spilled segments keep, which no spilling makes less.
    kept: CachePadded<AtomicU64>,
    sealed: Checked<Sealed>,
    spill: Checked<SpillFile>,
    /// Latched after `spill`, never both.
    undo: Checked<SpillFile>,
    saving: Saving,
    milestones: Checked<Milestones>,
    /// What of the undo file was passed over.
    lost_undo: Mutex<Vec<Error>>,
    directory_handle: Arc<dyn inkstone_io::Directory>,
    retiring: Mutex<()>,
    spill_path: PathBuf,
    undo_path: PathBuf,
    segment_bytes: usize,
    /// Changes of a row from one milestone to the next.
    steps_between: u8,
    budget: u64,
    counters: Arc<Counters>,
}

/// Puts a version into a segment that was made with room for it.
fn append_to_new(
    segment: &Segment,
    writer: u32,
    version: &NewVersion<'_>,
    bytes: usize,
) -> VersionAddress {
    let address = segment.append(writer, version, bytes);
    crate::invariant!(
        address.is_some(),
        "a version of {bytes} bytes does not fit a segment made for it"
    );
    address.unwrap_or_default()
}

fn address_of(segment: u64, unit: usize) -> VersionAddress {
    paranoid!(
        unit >> UNIT_BITS == 0 && segment >> (u64::BITS - UNIT_BITS) == 0,
        "no address for unit {unit} of segment {segment}"
    );
    VersionAddress(segment << UNIT_BITS | unit as u64)
}

#[inline]
fn segment_of(address: VersionAddress) -> u64 {
    address.0 >> UNIT_BITS
}

fn unit_of(address: VersionAddress) -> usize {
    (address.0 & ((1 << UNIT_BITS) - 1)) as usize
}

impl VersionStore {
    /// An empty store that keeps about `memory_budget` bytes in memory and more in a temporary file
    /// in `directory`. `version_epoch` must be larger than [`VersionStore::highest_epoch`] of any
    /// earlier store of the database, from 1 on and below [`EPOCH_LIMIT`]. Removes an old spill
    /// file.
    pub fn open(
        directory: Arc<dyn inkstone_io::Directory>,
        memory_budget: u64,
        version_epoch: u32,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        if version_epoch == 0 || version_epoch >= EPOCH_LIMIT {
            return Err(Error::Unsupported(format!(
                "version epoch {version_epoch}: must be from 1 to {}",
                EPOCH_LIMIT - 1
            )));
        }
        let spill = SpillFile::open(directory.clone(), SPILL_FILE, Lifetime::Temporary)?;
        let undo = SpillFile::open(directory.clone(), UNDO_FILE, Lifetime::Kept)?;
        let next_number = u64::from(version_epoch) << SEGMENT_BITS;
        // So that the open segments of all stripes are a quarter of the budget.
        let segment_bytes = (memory_budget / (4 * STRIPES as u64))
            .clamp(SEGMENT_BYTES_MIN as u64, SEGMENT_BYTES_MAX as u64);
        Ok(Self {
            stripes: (0..STRIPES).map(|_| CachePadded::default()).collect(),
            directory: ShardedLock::new(Directory {
                live: BTreeMap::new(),
                next_number,
            }),
            oldest_live: CachePadded::new(OldestLive::new(next_number)),
            memory: CachePadded::default(),
            kept: CachePadded::default(),
            sealed: Checked::default(),
            spill_path: spill.path().to_owned(),
            undo_path: undo.path().to_owned(),
            spill: Checked::new(spill),
            undo: Checked::new(undo),
            saving: Saving::default(),
            milestones: Checked::new(Milestones::new(memory_budget)),
            lost_undo: Mutex::default(),
            directory_handle: directory,
            retiring: Mutex::default(),
            segment_bytes: segment_bytes as usize / UNIT * UNIT,
            steps_between: steps_between(memory_budget),
            budget: memory_budget,
            counters,
        })
    }

    /// Bytes that it keeps in memory, about.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// The largest epoch of which this store may soon use addresses: the one that it was opened
    /// with, unless it has been open for very long. To be kept in the control file with every
    /// checkpoint (it looks 16 GiB of versions ahead).
    pub fn highest_epoch(&self) -> u32 {
        let ahead = self.directory.read().next_number + (1 << 16);
        (ahead >> SEGMENT_BITS) as u32
    }

    /// Stores a version and returns its address. Does no I/O if [`VersionStore::make_room`] was
    /// called not long ago.
    ///
    /// # Errors
    /// [`Error::DiskFull`] if memory is full and nothing can be spilled: nothing was appended.
    pub fn append(
        &self,
        trx: &Arc<TrxState>,
        touched: &mut TouchedSegments,
        version: NewVersion<'_>,
    ) -> Result<VersionAddress> {
        let length = version.old_value.len();
        if version.key.len() > u32::MAX as usize || length > u32::MAX as usize {
            return Err(Error::ValueTooLong {
                length: length as u64,
                limit: u32::MAX.into(),
            });
        }
        let bytes = version.encoded_bytes();
        paranoid!(
            bytes.is_multiple_of(UNIT) && bytes > length,
            "a version of {bytes} bytes with a value of {length}"
        );
        let address = if touched.logged {
            self.append_logged(trx, touched, &version, bytes)?
        } else if bytes > self.segment_bytes / 4 {
            self.backstop()?;
            self.append_alone(trx, touched, &version, bytes)?
        } else {
            self.append_to_stripe(trx, touched, &version, bytes)?
        };
        // So that its rollback and its end find the entry.
        paranoid!(
            touched.touches(segment_of(address)),
            "version {address:#x?} in a segment that {:?} has not touched",
            trx.id()
        );
        self.counters.add(Counter::VersionBytes, bytes as u64);
        Ok(address)
    }

    /// Bytes of a segment of logged versions.
    fn logged_segment_bytes(&self) -> usize {
        self.segment_bytes.max(LOGGED_SEGMENT_BYTES_MIN)
    }

    fn append_to_stripe(
        &self,
        trx: &Arc<TrxState>,
        touched: &mut TouchedSegments,
        version: &NewVersion<'_>,
        bytes: usize,
    ) -> Result<VersionAddress> {
        // Where the transaction has written last it goes on without a look at the stripe: as long
        // as it has not finished, the segment does not retire.
        if let Some((segment, writer)) = touched.segments.last()
            && !segment.is_logged()
            && let Some(address) = segment.append(*writer, version, bytes)
        {
            return Ok(address);
        }
        let stripe = &self.stripes[thread_stripe()];
        let mut room_made = false;
        loop {
            let mut stripe = stripe.lock();
            if let Some(open) = &stripe.open
                && open.has_room(bytes)
            {
                let writer = self.writer(open, trx, touched);
                if let Some(address) = open.append(writer, version, bytes) {
                    return Ok(address);
                }
            }
            if let Some(full) = stripe.open.take() {
                self.seal(&full);
            }
            if room_made {
                stripe.open = Some(self.create(self.segment_bytes, false)?);
            } else {
                drop(stripe);
                self.backstop()?;
                room_made = true;
            }
        }
    }

    /// Stores a version in a segment that is the transaction's alone.
    fn append_logged(
        &self,
        trx: &Arc<TrxState>,
        touched: &mut TouchedSegments,
        version: &NewVersion<'_>,
        bytes: usize,
    ) -> Result<VersionAddress> {
        if let Some((segment, writer)) = touched.segments.last()
            && segment.is_logged()
        {
            if let Some(address) = segment.append(*writer, version, bytes) {
                return Ok(address);
            }
            if !segment.is_sealed() {
                self.seal(segment);
            }
        }
        self.backstop()?;
        let capacity = self.logged_segment_bytes().max(bytes);
        // A version that is larger than most, or one operation with very many.
        let room = match touched.undo_space.take_ahead(capacity as u64) {
            Some(room) => room,
            None => self.reserve_segment(capacity as u64)?,
        };
        let segment = match self.create(capacity, true) {
            Ok(segment) => segment,
            Err(error) => {
                self.undo.lock().release(room);
                return Err(error);
            }
        };
        segment.set_room(room);
        let writer = self.writer(&segment, trx, touched);
        Ok(append_to_new(&segment, writer, version, bytes))
    }

    /// Stores a large version in a segment of its own.
    fn append_alone(
        &self,
        trx: &Arc<TrxState>,
        touched: &mut TouchedSegments,
        version: &NewVersion<'_>,
        bytes: usize,
    ) -> Result<VersionAddress> {
        let segment = self.create(bytes, false)?;
        let writer = self.writer(&segment, trx, touched);
        let address = append_to_new(&segment, writer, version, bytes);
        self.seal(&segment);
        Ok(address)
    }

    fn writer(
        &self,
        segment: &Arc<Segment>,
        trx: &Arc<TrxState>,
        touched: &mut TouchedSegments,
    ) -> u32 {
        if let Some(writer) = touched.writer_in(segment) {
            return writer;
        }
        let (writer, change) = segment.add_writer(trx);
        self.charge(change);
        touched.segments.push((segment.clone(), writer));
        writer
    }

    fn charge(&self, change: MemoryChange) {
        let before = self.memory.fetch_add(change as u64, Ordering::Relaxed);
        paranoid!(
            before.checked_add_signed(change).is_some(),
            "{before} bytes of versions, changed by {change}"
        );
    }

    fn create(&self, capacity: usize, logged: bool) -> Result<Arc<Segment>> {
        let mut directory = self.directory.write();
        let number = directory.next_number;
        if number >> (63 - UNIT_BITS) != 0 {
            return Err(Error::Unsupported(
                "all version addresses are used up".to_owned(),
            ));
        }
        directory.next_number += 1;
        let number = if logged {
            VersionAddress::logged_segment(number)
        } else {
            number
        };
        let segment = Arc::new(Segment::new(number, capacity));
        let other = directory.live.insert(number, segment.clone());
        paranoid!(
            other.is_none() && !self.oldest_live.is_above(number),
            "segment {number} was made twice, or passes for dead"
        );
        drop(directory);
        self.charge(segment.memory() as i64);
        Ok(segment)
    }

    /// The caller holds the segment's stripe, or no other thread appends to it.
    fn seal(&self, segment: &Arc<Segment>) {
        self.charge(segment.seal());
        let mut sealed = self.sealed.lock();
        let other = sealed.all.insert(segment.number, segment.clone());
        paranoid!(
            other.is_none(),
            "segment {} was sealed before",
            segment.number
        );
        sealed.in_memory.insert(segment.number, segment.clone());
    }

    /// Brings memory back to the budget by writing sealed segments to the spill file. One atomic
    /// load when there is nothing to do. To be called before a statement latches a page that it
    /// will change.
    ///
    /// # Errors
    /// [`Error::DiskFull`], [`Error::Io`]: the statement must fail; what was stored stays readable.
    pub fn make_room(&self) -> Result<()> {
        while self.in_memory() > self.budget {
            let first = self
                .sealed
                .lock()
                .in_memory
                .first_key_value()
                .map(|(_, s)| s.clone());
            let Some(segment) = first else {
                break;
            };
            if segment.is_logged() {
                self.spill_segment(&segment, &mut self.undo.lock())?;
            } else {
                self.spill_segment(&segment, &mut self.spill.lock())?;
            }
        }
        Ok(())
    }

    /// Bytes that spilling can make less.
    #[inline]
    fn in_memory(&self) -> u64 {
        let kept = self.kept.load(Ordering::Relaxed);
        self.memory.load(Ordering::Relaxed).saturating_sub(kept)
    }

    /// For an appender that did not call `make_room`.
    fn backstop(&self) -> Result<()> {
        if self.in_memory() <= self.budget / 4 * 5 {
            return Ok(());
        }
        self.make_room()
    }

    /// Reads an entry; `None` if the address is dead (promise 2).
    ///
    /// # Errors
    /// The spill file cannot be read, or the address was never given out.
    pub fn read(&self, address: VersionAddress) -> Result<Option<VersionRef>> {
        let number = segment_of(address);
        if self.oldest_live.is_above(number) {
            return Ok(None);
        }
        let segment = self.directory.read().live.get(&number).cloned();
        match segment {
            Some(segment) => segment.read(unit_of(address), self.path_of(&segment)),
            None => Ok(None),
        }
    }

    /// An entry that does not fit its row, or cannot be understood.
    pub(crate) fn corrupt(&self, address: VersionAddress, corrupt: Corrupt) -> Error {
        let path = if address.is_logged() {
            &self.undo_path
        } else {
            &self.spill_path
        };
        Error::corrupt_file(path, address.0, corrupt.detail)
    }

    /// The path of the file that a segment goes to.
    fn path_of(&self, segment: &Segment) -> &std::path::Path {
        if segment.is_logged() {
            &self.undo_path
        } else {
            &self.spill_path
        }
    }

    /// Whether the address is not dead.
    #[inline]
    pub fn is_live(&self, address: VersionAddress) -> bool {
        let number = segment_of(address);
        !self.oldest_live.is_above(number) && self.has_segment(number)
    }

    fn has_segment(&self, number: u64) -> bool {
        self.directory.read().live.contains_key(&number)
    }

    /// As [`VersionStore::is_live`], for the cells of a page: an answer is good for all addresses
    /// of its segment. It may be old, which only means that a segment that has retired since passes
    /// for live: a dead one never comes back.
    pub fn liveness(&self) -> impl Fn(VersionAddress) -> bool + '_ {
        let last = Cell::new((u64::MAX, false));
        move |address| {
            let (number, live) = last.get();
            if number == segment_of(address) {
                return live;
            }
            let live = self.is_live(address);
            last.set((segment_of(address), live));
            live
        }
    }

    /// The transaction that made the change that the entry describes; `None` if the address is
    /// dead, or that transaction and all others of its segment have ended with numbers up to
    /// `settled`. Does no I/O but for a version that has been spilled and is not as old as that.
    ///
    /// # Errors
    /// The spill file cannot be read, or the address was never given out.
    pub fn trx_of(&self, address: VersionAddress, settled: u64) -> Result<Option<Arc<TrxState>>> {
        let number = segment_of(address);
        if self.oldest_live.is_above(number) {
            return Ok(None);
        }
        let directory = self.directory.read();
        let Some(segment) = directory.live.get(&number) else {
            return Ok(None);
        };
        if segment.has_ended_by(settled) {
            return Ok(None);
        }
        let segment = segment.clone();
        drop(directory);
        segment.trx_of(unit_of(address), self.path_of(&segment))
    }

    /// How many of a row's live changes a new one is after the last milestone, if this was the
    /// row's newest version, as far as memory tells.
    pub fn steps_after(&self, previous: Option<VersionAddress>) -> u8 {
        let Some(address) = previous else {
            return 0;
        };
        let number = segment_of(address);
        if self.oldest_live.is_above(number) {
            return 0;
        }
        let directory = self.directory.read();
        let segment = directory.live.get(&number);
        match segment.and_then(|segment| segment.steps_of(unit_of(address))) {
            None => 0,
            Some(MILESTONE) => 1,
            Some(steps) => {
                paranoid!(
                    steps <= self.steps_between || address.is_logged(),
                    "version {address} is {steps} steps after a milestone"
                );
                self.steps_between.min(steps.saturating_add(1))
            }
        }
    }

    /// What a change so many steps after the last milestone says of itself if it keeps the row's
    /// whole old value: it is the next one when that is due.
    pub fn or_milestone(&self, steps: u8) -> u8 {
        paranoid!(
            steps <= self.steps_between,
            "{steps} steps, and a milestone is due after {}",
            self.steps_between
        );
        if steps < self.steps_between {
            steps
        } else {
            MILESTONE
        }
    }

    /// Lists a version that was just made, and is in its row's cell soon, if it is a milestone.
    #[inline]
    pub fn list_milestone(&self, version: &NewVersion<'_>, address: VersionAddress) {
        if is_milestone(version.steps) {
            self.add_milestone(version, address);
        }
    }

    #[cold]
    fn add_milestone(&self, version: &NewVersion<'_>, address: VersionAddress) {
        let row = (version.space, version.tree, version.key.into());
        self.milestones.lock().add(row, address);
    }

    /// Takes a version off the list. To be called before its change is undone.
    pub fn unlist_milestone(&self, version: &VersionView<'_>, address: VersionAddress) {
        if is_milestone(version.steps) && !mutants::on(Mutant::MilestoneUndone) {
            self.milestones.lock().remove(row_of(version), address);
        }
    }

    /// Takes the versions of a tree off the list.
    pub fn unlist_milestones_of(&self, space: SpaceId, tree: TreeId) {
        self.milestones.lock().remove_tree(space, tree);
    }

    /// How many unseen versions a reader goes through before it looks for a milestone.
    pub fn steps_between_milestones(&self) -> usize {
        self.steps_between.into()
    }

    /// The oldest milestone of the row of a version that is not seen, as the version is not.
    ///
    /// # Errors
    /// Those of [`VersionStore::read`].
    pub fn oldest_unseen(
        &self,
        version: &VersionView<'_>,
        sees: impl Fn(&TrxState) -> bool,
    ) -> Result<Option<(VersionAddress, VersionRef)>> {
        if version.is_bulk() {
            // It names no row, and has no version before it.
            return Ok(None);
        }
        let row = row_of(version);
        let (mut low, mut high) = self.milestones.lock().numbers(&row);
        let mut oldest = None;
        while low < high {
            let middle = low + (high - low) / 2;
            // Promise 1 of the list is of the moment at which it is asked.
            let address = self.milestones.lock().nth(&row, middle);
            let entry = match address {
                Some(address) => self.read(address)?.map(|entry| (address, entry)),
                None => None,
            };
            match entry {
                Some(entry) if !sees(entry.1.view().trx) => {
                    paranoid!(
                        is_milestone(entry.1.view().steps) && row_of(&entry.1.view()) == row,
                        "version {} is no milestone of row {row:x?}",
                        entry.0
                    );
                    high = middle;
                    oldest = Some(entry);
                }
                // A dead one is seen by all.
                _ => low = middle + 1,
            }
        }
        Ok(oldest)
    }

    /// The entries of a transaction from `last` backwards, for rollback; stops before `until` (a
    /// savepoint; 0: goes back to the first).
    pub fn undo_entries(&self, last: VersionAddress, until: VersionAddress) -> UndoEntries<'_> {
        UndoEntries {
            store: self,
            next: last,
            until,
        }
    }

    /// A transaction has ended with this number: of its commit, or what `finish_abort` returned.
    pub fn finish(&self, touched: TouchedSegments, seq: u64) {
        if let Some((last, _)) = touched.segments.last()
            && last.is_logged()
            && !last.is_sealed()
        {
            self.seal(last);
        }
        for (segment, _) in touched.segments {
            segment.finish_writer(seq);
        }
    }

    /// Enters a segment that an earlier run has left.
    fn enter_adopted(&self, segment: &Arc<Segment>) -> Result<()> {
        let corrupt = |detail| Error::corrupt_file(&self.undo_path, segment.number, detail);
        let mut directory = self.directory.write();
        if segment.number >= VersionAddress::logged_segment(directory.next_number) {
            return Err(corrupt("a segment of versions has a number of a later run"));
        }
        let other = directory.live.insert(segment.number, segment.clone());
        self.oldest_live.set(&directory);
        drop(directory);
        if other.is_some() {
            return Err(corrupt("two transactions have versions in one segment"));
        }
        let mut sealed = self.sealed.lock();
        sealed.all.insert(segment.number, segment.clone());
        if segment.place().is_none() {
            sealed.in_memory.insert(segment.number, segment.clone());
        } else {
            self.kept.fetch_add(segment.memory(), Ordering::Relaxed);
        }
        drop(sealed);
        self.charge(segment.memory() as i64);
        Ok(())
    }

    /// Figures for the status.
    pub fn stats(&self) -> VersionStats {
        let spilled_bytes = self.spill.lock().used_bytes();
        VersionStats {
            memory_bytes: self.memory.load(Ordering::Relaxed) + self.milestones.lock().bytes(),
            segments: self.directory.read().live.len(),
            sealed_in_memory: self.sealed.lock().in_memory.len(),
            spilled_bytes,
        }
    }
}

/// See [`VersionStore::undo_entries`].
#[derive(Debug)]
pub struct UndoEntries<'a> {
    store: &'a VersionStore,
    next: VersionAddress,
    until: VersionAddress,
}

impl Iterator for UndoEntries<'_> {
    type Item = Result<(VersionAddress, VersionRef)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.until || self.next == VersionAddress(0) {
            return None;
        }
        let address = self.next;
        // After an error there is no way on.
        self.next = VersionAddress(0);
        let entry = match self.store.read(address) {
            Ok(entry) => entry,
            Err(error) => return Some(Err(error)),
        };
        crate::invariant!(
            entry.is_some(),
            "version {address:#x?} retired before its transaction ended"
        );
        let entry = entry?;
        self.next = entry.view().undo_previous;
        paranoid!(
            self.next != address,
            "version {address:#x?} was made before itself"
        );
        Some(Ok((address, entry)))
    }
}
