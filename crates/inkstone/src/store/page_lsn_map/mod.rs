//! The page LSN map: what each page's LSN on disk must be at least, kept apart from the pages. It
//! finds an older version of a page in the page's own place, which has a sound checksum and the
//! right number: a write that the disk acknowledged and lost, or a read that it answered with old
//! bytes.
//!
//! # Promises
//!
//! 1. It never says more than is true: an LSN is noted when the write in place that has it is
//!    durable, and LSNs of pages only rise (but while redo builds a page anew, see below). So a
//!    block of it that is lost, torn, stale or damaged finds less, and never a fault that is none.
//!    Tested by `damage_finds_less_and_never_more`, `a_map_of_another_history_is_begun_anew`.
//! 2. A page that was written by this process, or read by redo, is known to the last write. Of the
//!    writes of earlier ones the file knows, from the checkpoint that recovery begins at, the last
//!    one that brought changes from below that checkpoint to the disk (see below). Exceptions are
//!    counted (`page_lsn_map_failures`): blocks that could not be read or written. Tested by
//!    `redo_believes_what_it_makes_up_for_and_only_that`,
//!    `each_page_that_goes_back_in_time_is_found`.
//! 3. Memory is bounded: at most [`share`] of the buffer pool for notes and for blocks. Tested by
//!    `notes_are_bounded`, `many_pages_take_many_groups`.
//! 4. It stops nothing: if its file cannot be had, read, written or grown, databases open, tables
//!    grow and checkpoints go on without it, or without that part of it. Only a failed sync
//!    poisons, as everywhere. Tested by `a_full_disk_stops_growth_and_nothing_else`,
//!    `a_map_that_cannot_be_written_stops_nothing_and_is_written_later`.
//!
//! # Notes, and what settles them
//!
//! A write in place leaves a *note* in memory: page, its LSN, and the start of the oldest change
//! that the write brought. A checkpoint *settles* those whose oldest change lies below it: it
//! writes them to their blocks and syncs, before the control file states it. The others stay notes.
//! If the process ends now, recovery begins at this checkpoint, so it does all over again what they
//! brought; but it needs all that lies below, and that is in the page exactly if its LSN is not
//! below the settled one. So a lost write that redo can make up for is made up for, and one that it
//! cannot is found.
//!
//! While redo runs, a page whose LSN is at or above the checkpoint is believed whatever the file
//! says: it has all that lies below the checkpoint, and redo has the rest. That it was read so is
//! noted: redo may find that it has nothing to do for it, and later reads must not find it older.
//! Unless redo itself writes it older, from an initialisation that a later part of the log has:
//! then that write is the newest. It is not below the checkpoint, and redo brings the page forward
//! again; but the next checkpoint may come before the page has reached the disk once more, so it
//! settles the older LSN.
//!
//! # When the file is not believed
//!
//! It must be of the same history as the rest of the directory. Its header names the epoch that had
//! it in use (the control file's, or the next one, where a crash came between) and the highest LSN
//! in it, which the log must reach. A file that is missing, unreadable or of another history (the
//! rest was restored from a backup) is begun anew, with nothing in it. [Decision
//! 0015](../../../../../docs/decisions/0015-a-map-of-page-lsns.md).
//!
//! # Latches
//!
//! `settling` (held across I/O; taken by checkpoints, and tried by a page writer when there are too
//! many notes), then `MapFile::growing` (held across I/O while the file grows; taken when a
//! tablespace file grows, under `SpaceFile::grow`), then one of `MapFile::slots`, a shard of the
//! notes, a shard of the cache: never held across I/O.

mod cache;
mod file;
mod notes;
mod slots;
#[cfg(test)]
mod tests;

pub use file::PAGE_LSN_MAP_FILE;

use crate::buffer::LateRedo;
use crate::counters::{Counter, Counters};
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{HashMap, Mutex, OnceLock, RwLock};
use crate::{Error, Result};
use cache::{BlockCache, Lsns, Run};
use file::{Block, Context, MapFile, WRITE_BLOCKS_MAX};
use inkstone_format::page_lsn_map::{BLOCK_ENTRIES, BLOCK_LEN, MapHeader, run_of};
use inkstone_format::{Lsn, PageId, SpaceId};
use inkstone_io::Directory;
use notes::{Note, Notes};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Part of the buffer pool that notes, and blocks, may take each.
const SHARE: u64 = 128;
/// Bytes that they may take in a small pool.
const SHARE_BYTES_MIN: u64 = 256 << 10;
/// Bytes that a note takes, about.
const NOTE_BYTES: u64 = 96;
/// Blocks that are settled together.
const SETTLED_TOGETHER: usize = 4 * WRITE_BLOCKS_MAX;
/// Blocks that are read ahead of those that are wanted one after the other, and the part of the
/// cache that they may take.
const AHEAD_MAX: u32 = 16;
const AHEAD_PART: usize = 8;

/// What is to be settled of a run, and its slot.
type Due<'a> = (u32, &'a [(PageId, Lsn)]);

/// Bytes for notes, and for blocks, beside a buffer pool.
fn share(buffer_pool_bytes: u64) -> u64 {
    (buffer_pool_bytes / SHARE).max(SHARE_BYTES_MIN)
}

/// The map of an open database. Until [`PageLsnMap::open`] or [`PageLsnMap::create`] it has no
/// file, and knows only what is written meanwhile.
pub struct PageLsnMap {
    context: Context,
    file: RwLock<Option<Arc<MapFile>>>,
    notes: Notes,
    notes_max: usize,
    cache: BlockCache,
    ahead_max: u32,
    settling: Mutex<Settling>,
    /// While redo runs, or is late: the checkpoint. Else `u64::MAX`.
    redo_from: AtomicU64,
    /// What is left of redo behind the opening: then `redo_from` holds for its pages alone.
    /// The buffer pool keeps it: it refers to the files, and they to this map.
    late: OnceLock<Weak<dyn LateRedo>>,
}

/// The state of settling, for the one thread that settles.
struct Settling {
    header: MapHeader,
    /// Something was written since the last sync.
    unsynced: bool,
}

impl std::fmt::Debug for PageLsnMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageLsnMap").finish_non_exhaustive()
    }
}

impl PageLsnMap {
    /// A map without a file. `direct`: past the page cache, as the tablespace files.
    pub fn new(
        directory: Arc<dyn Directory>,
        direct: bool,
        buffer_pool_bytes: u64,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Self {
        let bytes = share(buffer_pool_bytes);
        let blocks = bytes as usize / BLOCK_LEN;
        let header = MapHeader {
            uuid: [0; 16],
            epoch: 0,
            newest: Lsn(0),
        };
        Self {
            context: Context {
                directory,
                direct,
                counters,
                poison,
            },
            file: RwLock::new(None),
            notes: Notes::default(),
            notes_max: (bytes / NOTE_BYTES) as usize,
            cache: BlockCache::new(blocks),
            ahead_max: AHEAD_MAX.min((blocks / AHEAD_PART) as u32).max(1),
            settling: Mutex::new(Settling {
                header,
                unsynced: false,
            }),
            redo_from: AtomicU64::new(u64::MAX),
            late: OnceLock::new(),
        }
    }

    /// Creates the file of a new database, or of one that had none that can be believed. If that
    /// fails the map goes without. An older file that cannot be removed is not believed later: its
    /// epoch is past, or it says less than is true (promise 1).
    pub fn create(&self, uuid: [u8; 16], epoch: u64) -> Result<()> {
        let header = MapHeader {
            uuid,
            epoch,
            newest: Lsn(0),
        };
        *self.file.write() = None;
        self.cache.retain(|_| false);
        match MapFile::create(&self.context, &header) {
            Ok(file) => self.take(file, header),
            Err(error) if error.is_final() => return Err(error),
            Err(_) => self.failure(),
        }
        Ok(())
    }

    /// Opens the file for the incarnation after `epoch`, which the control file has; for redo from
    /// `checkpoint`. `log_end`: where the log ends, if that is known yet. To be called before the
    /// control file names the new epoch. Returns why the file that was there could not be used, if
    /// it could not be read or written: then it was begun anew, or the map goes without.
    pub fn open(
        &self,
        uuid: [u8; 16],
        epoch: u64,
        checkpoint: Lsn,
        log_end: Option<Lsn>,
    ) -> Result<Option<Error>> {
        self.redo_from.store(checkpoint.0, Ordering::Release);
        match self.open_for(uuid, epoch, log_end) {
            Ok(true) => Ok(None),
            Ok(false) => self.create(uuid, epoch + 1).map(|()| None),
            Err(error) if error.is_final() => Err(error),
            Err(error) => {
                self.failure();
                self.create(uuid, epoch + 1).map(|()| Some(error))
            }
        }
    }

    /// Opens the file for the incarnation after `epoch`, if there is one of this history.
    fn open_for(&self, uuid: [u8; 16], epoch: u64, log_end: Option<Lsn>) -> Result<bool> {
        let found = MapFile::open(&self.context, uuid, false)?;
        let of_this_history = |header: &MapHeader| {
            (epoch..=epoch + 1).contains(&header.epoch)
                && log_end.is_none_or(|end| header.newest <= end)
        };
        let Some((file, header)) = found.filter(|(_, header)| of_this_history(header)) else {
            return Ok(false);
        };
        let header = MapHeader {
            epoch: epoch + 1,
            ..header
        };
        file.write_header(&header)?;
        file.sync()?;
        self.take(file, header);
        Ok(true)
    }

    /// Opens the file to look at it, of a database whose control file has `epoch`. Whether there is
    /// one.
    pub fn open_to_look(&self, uuid: [u8; 16], epoch: u64) -> Result<bool> {
        match MapFile::open(&self.context, uuid, true) {
            Ok(Some((file, header))) if (epoch..=epoch + 1).contains(&header.epoch) => {
                self.take(file, header);
                Ok(true)
            }
            Err(error) if error.is_final() => Err(error),
            _ => Ok(false),
        }
    }

    fn take(&self, file: MapFile, header: MapHeader) {
        *self.file.write() = Some(Arc::new(file));
        *self.settling.lock() = Settling {
            header,
            unsynced: false,
        };
    }

    /// Redo is done, but for what is `left` to be done when pages are read, and the log was proven
    /// to end at `log_end`.
    pub fn redo_done(&self, log_end: Lsn, left: Option<Arc<dyn LateRedo>>) -> Result<()> {
        match left {
            None => self.redo_from.store(u64::MAX, Ordering::Release),
            Some(left) => drop(self.late.set(Arc::downgrade(&left))),
        }
        let header = self.settling.lock().header;
        if header.newest > log_end {
            self.create(header.uuid, header.epoch)
        } else {
            Ok(())
        }
    }

    fn failure(&self) {
        self.context.counters.add(Counter::PageLsnMapFailures, 1);
    }

    fn file(&self) -> Option<Arc<MapFile>> {
        self.file.read().clone()
    }

    /// From which LSN on a version of the page will do, as redo makes up for the rest.
    fn redo_from(&self, id: PageId) -> u64 {
        let is_left =
            |late: &Weak<dyn LateRedo>| late.upgrade().is_some_and(|late| late.of(id).is_some());
        if self.late.get().is_none_or(is_left) {
            self.redo_from.load(Ordering::Acquire)
        } else {
            u64::MAX
        }
    }

    /// The page LSN that the page was written with, if that is above the one that was `found` in
    /// place: then what was read is an older version of it.
    pub fn newer_than(&self, id: PageId, found: Lsn) -> Option<Lsn> {
        if mutants::on(Mutant::PageLsnMapUnchecked) {
            return None;
        }
        // In this order: what is no note any more is in the file, or in the cache.
        if let Some(noted) = self.notes.newest(id) {
            return (noted > found).then_some(noted);
        }
        if found.0 >= self.redo_from(id) {
            return None;
        }
        // A block that cannot be read says nothing.
        let lsns = self.lsns(id)?;
        let settled = Lsn(lsns[id.page.0 as usize % BLOCK_ENTRIES]);
        (settled > found).then_some(settled)
    }

    /// The block of a page, from the cache or the file. `None`: it cannot be read.
    fn lsns(&self, id: PageId) -> Option<Lsns> {
        let run = (id.space, run_of(id.page));
        let changes = match self.cache.get(run) {
            Ok(lsns) => return Some(lsns),
            Err(changes) => changes,
        };
        let nothing = || Arc::new([0; BLOCK_ENTRIES]);
        let Some(file) = self.file() else {
            return Some(nothing());
        };
        let wanted = file.ahead(run, self.ahead_max);
        if wanted.is_empty() {
            self.cache.fill(run, &nothing(), changes);
            return Some(nothing());
        }
        let found = self.fetch_from(&file, &wanted);
        let mut found = found.into_iter().filter(|(of, _)| *of == run);
        found.next().map(|(_, lsns)| lsns)
    }

    /// Reads blocks, each with its slot and in order of these, and keeps them in the cache.
    fn fetch_from(&self, file: &MapFile, wanted: &[(u32, Run)]) -> Vec<(Run, Lsns)> {
        let lacks = wanted.iter().map(|&(_, run)| (run, self.cache.lacks(run)));
        let lacks: HashMap<Run, Option<u64>> = lacks.collect();
        let found = file.read(wanted);
        for (run, lsns) in &found {
            if let Some(changes) = lacks[run] {
                self.cache.fill(*run, lsns, changes);
            }
        }
        found
    }

    /// Pages, in order, are about to be read: has their blocks at hand, as far as the cache takes
    /// them.
    pub(crate) fn fetch(&self, pages: impl Iterator<Item = PageId>) {
        let Some(file) = self.file() else { return };
        let mut runs: Vec<Run> = pages.map(|id| (id.space, run_of(id.page))).collect();
        runs.dedup();
        runs.retain(|&run| self.cache.lacks(run).is_some());
        let slots = runs
            .into_iter()
            .filter_map(|run| Some((file.slot(run)?, run)));
        let mut wanted: Vec<_> = slots.collect();
        if wanted.len() > 1 {
            wanted.sort_unstable();
            self.fetch_from(&file, &wanted);
        }
    }

    /// A page was written in place, with this page LSN, and that is durable; `oldest` is the start
    /// of the oldest change that the disk lacked before.
    pub(crate) fn note(&self, id: PageId, oldest: Lsn, lsn: Lsn) {
        self.notes.add(id, Note { oldest, lsn });
    }

    /// The page was read in place, and is no older version as far as is known. If redo reads it and
    /// it is newer than the file of the map has to know, then the process before wrote it and died:
    /// from now on it may not be older again.
    pub(crate) fn note_read(&self, id: PageId, found: Lsn) {
        let redo_from = self.redo_from(id);
        if found.0 >= redo_from && self.notes.newest(id).is_none_or(|noted| noted < found) {
            self.note(id, Lsn(redo_from), found);
            self.bound_notes();
        }
    }

    /// To be called now and then after `note`, by a thread that may do I/O: keeps the number of
    /// notes bounded.
    pub(crate) fn bound_notes(&self) {
        if self.notes.count() <= self.notes_max {
            return;
        }
        let Some(mut settling) = self.settling.try_lock() else {
            return;
        };
        // This settles more than it must: redo will report lost writes that it could make up for.
        // Such an error is needless, but no danger.
        let settled = self.settle(&mut settling, Lsn(u64::MAX));
        if settled.is_err() || self.notes.count() > self.notes_max {
            self.failure();
            self.notes.retain(|_| false);
        }
    }

    /// Settles what has to be before the control file states this checkpoint. Fails only if the
    /// engine is poisoned.
    pub(crate) fn settle_before(&self, checkpoint: Lsn) -> Result<()> {
        let mut settling = self.settling.lock();
        match self.settle(&mut settling, checkpoint) {
            Err(error) if error.is_final() => return Err(error),
            // The next checkpoint tries again.
            Err(_) => self.failure(),
            Ok(()) => {}
        }
        match self.file().filter(|_| settling.unsynced) {
            None => Ok(()),
            Some(file) => {
                file.sync()?;
                settling.unsynced = false;
                Ok(())
            }
        }
    }

    /// Writes notes of changes below `checkpoint` to the file, and forgets them.
    fn settle(&self, settling: &mut Settling, checkpoint: Lsn) -> Result<()> {
        self.context.poison.check()?;
        let due = self.notes.due(checkpoint);
        let (Some(file), Some(newest)) = (self.file(), due.iter().map(|&(_, lsn)| lsn).max())
        else {
            return Ok(());
        };
        settling.unsynced = true;
        if newest > settling.header.newest {
            // First: unless power is lost before the sync, nothing in the map is above it.
            settling.header.newest = newest;
            file.write_header(&settling.header)?;
        }
        let runs =
            due.chunk_by(|(a, _), (b, _)| (a.space, run_of(a.page)) == (b.space, run_of(b.page)));
        let mut placed: Vec<Due<'_>> = runs
            .filter_map(|due| Some((self.slot_for(&file, due[0].0)?, due)))
            .collect();
        // Those side by side in the file together, of whatever tablespace they are.
        placed.sort_unstable_by_key(|&(slot, _)| slot);
        paranoid!(
            newest <= settling.header.newest,
            "an LSN of {newest} is settled in a map up to {}",
            settling.header.newest
        );
        for together in placed.chunks(SETTLED_TOGETHER) {
            self.settle_runs(&file, together)?;
        }
        file.write_index()
    }

    /// The slot of a page's run. `None`: its tablespace was dropped, or there is no room.
    fn slot_for(&self, file: &MapFile, id: PageId) -> Option<u32> {
        let run = (id.space, run_of(id.page));
        if file.slot(run).is_none() && !file.is_released(id.space) {
            // The map is younger than the tablespace; there may be no room for it.
            let page = id.page.0;
            let reserved = file.reserve(id.space, page..page.saturating_add(1));
            let _ = reserved.inspect_err(|_| self.failure());
        }
        file.slot(run)
    }

    fn settle_runs(&self, file: &MapFile, placed: &[Due<'_>]) -> Result<()> {
        let run_of_due = |due: &[(PageId, Lsn)]| (due[0].0.space, run_of(due[0].0.page));
        let known =
            |&(_, due): &Due<'_>| Some((run_of_due(due), self.cache.get(run_of_due(due)).ok()?));
        let mut known: HashMap<Run, Lsns> = placed.iter().filter_map(known).collect();
        let missing = placed.iter().map(|&(slot, due)| (slot, run_of_due(due)));
        let missing: Vec<_> = missing
            .filter(|(_, run)| !known.contains_key(run))
            .collect();
        // What cannot be read is given up.
        known.extend(self.fetch_from(file, &missing));
        let mut blocks = Vec::with_capacity(placed.len());
        for &(slot, due) in placed {
            let run = run_of_due(due);
            paranoid!(
                due.iter().all(|(id, _)| (id.space, run_of(id.page)) == run),
                "pages of several runs are settled in slot {slot}"
            );
            let found = known.remove(&run);
            let mut lsns = found.unwrap_or_else(|| [0; BLOCK_ENTRIES].into());
            let entries = Arc::make_mut(&mut lsns);
            for (id, lsn) in due {
                // Also downwards: redo has written the page so.
                entries[id.page.0 as usize % BLOCK_ENTRIES] = lsn.0;
            }
            blocks.push(Block { run, slot, lsns });
        }
        file.write(&mut blocks)?;
        for block in &blocks {
            self.cache.put(block.run, &block.lsns);
        }
        for &(id, lsn) in placed.iter().flat_map(|(_, due)| due.iter()) {
            self.notes.forget_settled(id, lsn);
        }
        Ok(())
    }

    /// Makes room for pages by which a tablespace is about to grow, if there is any: else a later
    /// settling tries again.
    pub(crate) fn reserve(&self, space: SpaceId, pages: Range<u32>) {
        let reserved = self.file().map(|file| file.reserve(space, pages));
        if reserved.is_some_and(|reserved| reserved.is_err()) {
            self.failure();
        }
    }

    /// A tablespace was dropped, for good.
    pub(crate) fn release(&self, space: SpaceId) {
        if let Some(file) = self.file() {
            file.release(space);
        }
        self.notes.forget(space);
        self.cache.forget(space);
    }

    /// Forgets every tablespace but these: the others have no file.
    pub fn retain(&self, spaces: &[SpaceId]) {
        let stays = |space| spaces.binary_search(&space).is_ok();
        if let Some(file) = self.file() {
            file.retain(stays);
        }
        self.notes.retain(stays);
        self.cache.retain(stays);
    }
}
