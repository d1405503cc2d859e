//! The pool: what callers see, and its threads.

use super::behind::WriteBehind;
use super::cleaner::{self, Cleaner, Role};
use super::dirty::DirtySets;
use super::flush::Flusher;
use super::frame::{Arena, Frame};
use super::free::{Budget, FreeFrames};
use super::guard::{Exclusive, Optimistic, Reservation, Shared};
use super::late::LateRedo;
use super::page_table::PageTable;
use super::pin::Pins;
use super::prefetch::Ahead;
use super::refused::Refusals;
use super::signal::{News, Signal};
use super::supplier::{self, Supplier};
use super::{PageStore, RedoLog};
use crate::counters::{Counter, Counters};
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Mutex, OnceLock};
use crate::{Error, Result};
use inkstone_format::header::page_size_is_valid;
use inkstone_format::{Lsn, PageId, SpaceId};
use std::ops::Range;
use std::sync::Arc;

/// The fewest frames that a pool works with.
const FRAMES_MIN: usize = 16;

/// One caller reads so small a part of the pool ahead.
const AHEAD_PARTS: usize = 16;

/// Pages of a dropped tablespace whose frames are free at once.
const DROPPED_AT_ONCE: u32 = 4096;

/// What the pool's threads and guards share.
pub(crate) struct Inner {
    pub arena: Arena,
    pub table: PageTable,
    pub dirty: DirtySets,
    pub free: FreeFrames,
    pub budget: Budget,
    /// Pins that are held (`pin.rs`).
    pub pinned: AtomicUsize,
    /// The clock hand: counts frames looked at.
    pub hand: AtomicUsize,
    /// The stock of free frames is refilled up to `stock_full` when it is below `stock_low`.
    pub stock_low: usize,
    pub stock_full: usize,
    pub store: Arc<dyn PageStore>,
    pub log: Arc<dyn RedoLog>,
    pub counters: Arc<Counters>,
    pub poison: Poison,
    /// Wakes `ink-frames`.
    pub supply: Signal,
    /// Wakes `ink-cleaner`.
    pub cleaning: Signal,
    /// Wakes the thread `ink-behind` when the pool closes.
    pub leaving: Signal,
    /// Announces that flights have landed.
    pub flights: News,
    /// Where the log grows to before writers are slowed down, as last looked at: it is never later
    /// than that for long.
    pub throttle_from: AtomicU64,
    /// Pages that cannot be written.
    pub refusals: Refusals,
    /// Whether the threads run.
    pub has_threads: AtomicBool,
    /// What is left of redo.
    pub late: OnceLock<Arc<dyn LateRedo>>,
    closing: AtomicBool,
}

impl Inner {
    /// Fails once the pool is poisoned or closing.
    pub fn check(&self) -> Result<()> {
        self.poison.check()?;
        if self.closing.load(Ordering::Relaxed) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    /// All frames with their indices.
    pub fn frames(&self) -> impl Iterator<Item = (u32, &Frame)> {
        (0..).zip(self.arena.frames())
    }
}

/// A background thread that panics must not leave others waiting for it.
struct PoisonOnPanic<'a>(&'a Poison, &'static str);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.set(format_args!("the thread {} panicked", self.1));
        }
    }
}

/// The options of the pool: `bytes / page_size` frames (at least 16) in `instances` partitions (1
/// to 64).
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Bytes in a page.
    pub page_size: usize,
    /// `buffer_pool_size`.
    pub bytes: usize,
    /// `buffer_pool_instances`.
    pub instances: usize,
}

/// How full the pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferStatus {
    /// Frames in all.
    pub frames: usize,
    /// Frames that hold nothing.
    pub free: usize,
    /// Frames whose page has changes that the disk lacks.
    pub dirty: usize,
    /// Those of them whose last write failed; they are tried again and again.
    pub refused: usize,
    /// Pages evicted since the pool was made.
    pub evictions: u64,
}

/// The buffer pool. See the [module](super) for what it promises.
pub struct BufferPool {
    pub(super) inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl BufferPool {
    /// A pool that is empty.
    pub fn new(
        options: PoolOptions,
        store: Arc<dyn PageStore>,
        log: Arc<dyn RedoLog>,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Result<Arc<Self>> {
        let invalid = |name: &str, value: usize, reason: &str| Error::InvalidOption {
            name: name.to_owned(),
            value: value.to_string(),
            reason: reason.to_owned(),
        };
        let PoolOptions {
            page_size,
            bytes,
            instances,
        } = options;
        if !page_size_is_valid(page_size) {
            return Err(invalid("page_size", page_size, "is no page size"));
        }
        let frames = bytes / page_size;
        if !(FRAMES_MIN..u32::MAX as usize).contains(&frames) {
            return Err(invalid(
                "buffer_pool_size",
                bytes,
                "must hold at least 16 pages",
            ));
        }
        let partitions = instances.clamp(1, 64);
        let stock_full = (frames / 32).clamp(8, 2048).min(frames / 4);
        paranoid!(
            stock_full >= 2 && stock_full <= frames / 4,
            "a stock of {stock_full} free frames, of {frames}"
        );
        let inner = Inner {
            arena: Arena::new(page_size, frames)?,
            table: PageTable::new(frames),
            dirty: DirtySets::new(partitions),
            free: FreeFrames::new(partitions, frames as u32),
            budget: Budget::new(frames / 4),
            pinned: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
            stock_low: stock_full / 2,
            stock_full,
            store,
            log,
            counters,
            poison,
            supply: Signal::default(),
            cleaning: Signal::default(),
            leaving: Signal::default(),
            flights: News::default(),
            throttle_from: AtomicU64::new(0),
            refusals: Refusals::default(),
            has_threads: AtomicBool::new(false),
            late: OnceLock::new(),
            closing: AtomicBool::new(false),
        };
        Ok(Arc::new(Self {
            inner: Arc::new(inner),
            threads: Mutex::default(),
        }))
    }

    /// Starts the threads `ink-frames`, `ink-cleaner` and `ink-behind`: of the first three and of
    /// the second two in a large pool. Without them nothing is written but by `flush_space` and
    /// `flush_all`.
    pub fn start_cleaners(&self) -> Result<()> {
        let frames = self.inner.arena.len();
        self.start_threads(supplier::threads_for(frames), cleaner::threads_for(frames))
    }

    /// As [`BufferPool::start_cleaners`], with so many threads `ink-frames` and `ink-cleaner`.
    pub(crate) fn start_threads(&self, suppliers: usize, cleaners: usize) -> Result<()> {
        self.inner.check()?;
        let mut threads = self.threads.lock();
        if !threads.is_empty() {
            return Ok(());
        }
        for _ in 0..suppliers {
            threads.push(self.spawn("ink-frames", |pool, flusher| {
                Supplier::new(pool, flusher).run();
            })?);
        }
        for number in 0..cleaners {
            let run: fn(&Inner, Flusher) = match number {
                0 => |pool, flusher| Cleaner::new(pool, flusher, Role::Leader).run(),
                _ => |pool, flusher| Cleaner::new(pool, flusher, Role::Helper).run(),
            };
            threads.push(self.spawn("ink-cleaner", run)?);
        }
        threads.push(self.spawn("ink-behind", |pool, flusher| {
            WriteBehind::new(pool, flusher).run();
        })?);
        self.inner.has_threads.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn spawn(&self, name: &'static str, body: fn(&Inner, Flusher)) -> Result<JoinHandle<()>> {
        let inner = self.inner.clone();
        // Made here, so that a failure is the caller's to see.
        let flusher = Flusher::new(&inner, inner.batch_pages())?;
        let run = move || {
            let _guard = PoisonOnPanic(&inner.poison, name);
            body(&inner, flusher);
        };
        thread::spawn(name, run)
            .map_err(|e| Error::Unsupported(format!("cannot start the thread {name}: {e}")))
    }

    /// Stops the threads; later calls that would wait or read fail. Writes nothing: call
    /// `flush_all` first for a clean end.
    pub fn close(&self) {
        let inner = &self.inner;
        inner.closing.store(true, Ordering::Relaxed);
        inner.supply.end();
        inner.cleaning.end();
        inner.leaving.end();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
        inner.has_threads.store(false, Ordering::Relaxed);
        inner.flights.announce();
    }

    /// Bytes in a page.
    pub fn page_size(&self) -> usize {
        self.inner.arena.page_size()
    }

    /// The page for optimistic reading. Loads it if it is absent (so the caller holds no latch,
    /// or knows that it is resident), waits while it is held exclusively.
    #[inline]
    pub fn optimistic(&self, id: PageId) -> Result<Optimistic<'_>> {
        match self.inner.optimistic_hit(id) {
            Some(page) => Ok(page),
            None => self.inner.optimistic_miss(id),
        }
    }

    /// As `optimistic`, without loading (a page may be missed that is resident: a hint).
    #[inline]
    pub fn optimistic_if_resident(&self, id: PageId) -> Option<Optimistic<'_>> {
        self.inner.optimistic_hit(id)
    }

    /// Says that the page will be searched next. A hint, which may be wrong.
    #[inline]
    pub fn prefetch(&self, id: PageId) {
        self.inner.prefetch(id);
    }

    /// Says that so many bytes of the page's rows will be read after so many steps of another kind:
    /// to be fetched along with them. A hint, which may be wrong.
    #[inline]
    pub fn ahead(&self, id: PageId, bytes: usize, steps: usize) -> Ahead {
        self.inner.ahead(id, bytes, steps)
    }

    /// As `optimistic`, if the frame that a guard named before still holds the page.
    #[inline]
    pub fn optimistic_at(&self, frame_index: u32, id: PageId) -> Option<Optimistic<'_>> {
        self.inner.optimistic_at(frame_index, id)
    }

    /// Latches the page shared; loads it if it is absent. The caller holds no latch.
    pub fn shared(&self, id: PageId) -> Result<Shared<'_>> {
        self.inner.shared(id)
    }

    /// Latches the page exclusively; loads it if it is absent. The caller holds no latch.
    pub fn exclusive(&self, id: PageId) -> Result<Exclusive<'_>> {
        self.inner.exclusive(id)
    }

    /// Latches the page shared if it is resident. May wait for the latch, never for I/O.
    pub fn shared_if_resident(&self, id: PageId) -> Option<Shared<'_>> {
        self.inner.shared_if_resident(id)
    }

    /// Latches the page exclusively if it is resident. May wait for the latch, never for I/O.
    pub fn exclusive_if_resident(&self, id: PageId) -> Option<Exclusive<'_>> {
        self.inner.exclusive_if_resident(id)
    }

    /// Latches the page exclusively if it is resident and its latch is free. Never waits.
    pub fn try_exclusive(&self, id: PageId) -> Option<Exclusive<'_>> {
        self.inner.try_exclusive(id)
    }

    /// Makes pages resident, in the order of their ids, as far as there are free frames: false if
    /// there are none left. A page that cannot be read is left out. The caller holds no latch.
    pub fn load_many(&self, ids: &[PageId]) -> Result<bool> {
        self.inner.load_many(ids)
    }

    /// Makes pages resident that will be wanted soon, in the order of their ids, as far as frames
    /// can be had without waiting. What cannot be read is left out. The caller holds no latch.
    pub fn read_ahead(&self, ids: &[PageId]) {
        self.inner.read_ahead(ids);
    }

    /// Most pages that one caller may have read ahead: they must still be there when it comes.
    pub fn ahead_max(&self) -> usize {
        self.inner.arena.len() / AHEAD_PARTS
    }

    /// Whether the page seems to be resident: a hint.
    pub fn seems_resident(&self, id: PageId) -> bool {
        self.inner.table.hint(&self.inner.arena, id).is_some()
    }

    /// Makes a page resident. The caller holds no latch.
    pub fn load(&self, id: PageId) -> Result<()> {
        self.inner.load(id)
    }

    /// For pages that must be resident together.
    pub fn pins(&self) -> Pins<'_> {
        Pins::new(&self.inner)
    }

    /// Pages that one caller can have pinned at once, if it is alone.
    pub fn pins_max(&self) -> usize {
        self.inner.pins_max()
    }

    /// Sets `frames` free frames aside. Waits for them, so the caller holds no latch and no other
    /// reservation. At most a quarter of all frames ([`BufferPool::reservation_max`]).
    pub fn reserve(&self, frames: usize) -> Result<Reservation<'_>> {
        self.inner.reserve(frames)
    }

    /// The largest number of frames that `reserve` gives.
    pub fn reservation_max(&self) -> usize {
        self.inner.budget.limit()
    }

    /// Latches exclusively a page that the caller will initialise, without reading it from disk.
    /// If it is resident it comes as it is; otherwise it takes a reserved frame (there must be
    /// one) and comes as an empty page of type `Free`. Waits for no I/O and no frame.
    pub fn create(&self, id: PageId, reservation: &mut Reservation<'_>) -> Result<Exclusive<'_>> {
        self.inner.create(id, reservation)
    }

    /// How many pages fit into it.
    pub fn frames(&self) -> usize {
        self.inner.arena.len()
    }

    /// START LSN of the oldest mini-transaction of which the disk lacks a change. For a checkpoint
    /// read the log's `ready_lsn` first, then this, and take the smaller. Reads one atomic for
    /// each partition.
    pub fn oldest_dirty_lsn(&self) -> Option<Lsn> {
        self.inner.oldest_lsn()
    }

    /// Pages of which the disk lacks a change.
    pub fn dirty_pages(&self) -> usize {
        self.inner.dirty.count()
    }

    /// Pages of a tablespace of which the disk lacks a change, some of them perhaps counted twice.
    /// Looks at each dirty one.
    pub fn dirty_pages_of(&self, space: SpaceId) -> usize {
        let dirty = self.inner.dirty.all_frames().into_iter();
        let ids = dirty.filter_map(|index| self.inner.arena.frame(index).page_id());
        ids.filter(|id| id.space == space).count()
    }

    /// From now on pages get what is left of redo when they are read. Once for a pool, while no
    /// other thread reads pages, and none is resident of which something is left.
    pub fn set_late_redo(&self, late: Arc<dyn LateRedo>) {
        let mut resident = self.resident_pages().into_iter();
        paranoid!(
            resident.all(|id| late.of(id).is_none()),
            "pages that are to be redone are in the pool"
        );
        let fresh = self.inner.late.set(late).is_ok();
        crate::invariant!(fresh, "redo was left to readers twice");
    }

    /// Whether the page is in a frame.
    pub fn is_resident(&self, id: PageId) -> bool {
        self.inner.find(id).is_some()
    }

    /// To be called where a transaction starts to write, under no latch: delays the caller when the
    /// checkpoint is far behind, so that the log does not outgrow its capacity.
    #[inline]
    pub fn throttle(&self) -> Result<()> {
        self.inner.throttle()
    }

    /// Returns when all pages of the tablespace that are dirty now are durable in place.
    pub fn flush_space(&self, space: SpaceId) -> Result<()> {
        self.inner.flush_where(|id, _| id.space == space)
    }

    /// Returns when all pages that are dirty now are durable in place.
    pub fn flush_all(&self) -> Result<()> {
        self.inner.flush_where(|_, _| true)
    }

    /// Returns when the pages of which the disk lacks a change from before an LSN are durable in
    /// place.
    pub fn flush_older(&self, lsn: Lsn) -> Result<()> {
        let is_older = |oldest: Lsn| oldest < lsn;
        self.inner
            .flush_where(|_, frame| frame.oldest_lsn().is_some_and(is_older))
    }

    /// Forgets the first `DROPPED_AT_ONCE` pages of a tablespace of so many, dirty or not; waits
    /// for those in flight. The others leave as unused pages do, and are written nowhere: the store
    /// skips them. So a drop costs little, however large pool and table are. The tablespace must
    /// not be in use, and its number is not used again. The caller holds no latch.
    pub fn drop_space(&self, space: SpaceId, pages: u32) {
        self.inner.forget_late(space, &(0..u32::MAX));
        let first = 0..pages.min(DROPPED_AT_ONCE);
        self.inner.forget_pages(space, first);
    }

    /// Whether the disk lacks a change of one of these pages of a tablespace.
    pub fn is_any_dirty(&self, space: SpaceId, pages: &Range<u32>) -> bool {
        let late = self.inner.late.get();
        if late.is_some_and(|late| late.has_any(space, pages)) {
            return true;
        }
        // A page in flight is dirty until it has landed.
        let resident = self.inner.resident_of(space, pages);
        let dirty = |&index: &u32| self.inner.arena.frame(index).is_dirty();
        resident.iter().any(dirty)
    }

    /// Forgets these pages of a tablespace, dirty or not; waits for those in flight. Before the
    /// file is cut. The caller holds no latch.
    pub fn discard_pages(&self, space: SpaceId, pages: Range<u32>) {
        self.inner.forget_late(space, &pages);
        self.inner.forget_pages(space, pages);
    }

    /// Forgets one page, dirty or not; waits if it is in flight. The caller holds no latch.
    pub fn discard_page(&self, id: PageId) {
        let number = id.page.0;
        self.inner
            .forget_late(id.space, &(number..number.saturating_add(1)));
        self.inner.discard_page(id);
    }

    /// The resident pages, in order.
    pub fn resident_pages(&self) -> Vec<PageId> {
        let frames = self.inner.arena.frames();
        let mut pages: Vec<PageId> = frames.iter().filter_map(Frame::page_id).collect();
        pages.sort_unstable();
        pages
    }

    /// How full the pool is.
    pub fn status(&self) -> BufferStatus {
        BufferStatus {
            frames: self.inner.arena.len(),
            free: self.inner.free.count(),
            dirty: self.inner.dirty.count(),
            refused: match self.inner.refusals.why() {
                None => 0,
                Some(_) => self.inner.dirty.count_refused(&self.inner.arena),
            },
            evictions: self.inner.counters.get(Counter::BufferEvictions),
        }
    }

    #[cfg(test)]
    pub(crate) fn inner_counters(&self) -> &Counters {
        &self.inner.counters
    }

    #[cfg(test)]
    pub(crate) fn inner_refusal(&self) -> Option<Error> {
        self.inner.refusals.why()
    }

    /// Checks what must hold when nothing moves.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        let inner = &self.inner;
        inner.dirty.check_invariants(&inner.arena);
        assert_eq!(inner.pinned.load(Ordering::Relaxed), 0);
        let mut seen: crate::sync::HashSet<PageId> = Default::default();
        for (index, frame) in inner.frames() {
            assert!(!frame.flushing.load(Ordering::Relaxed));
            assert!(!frame.latch.is_exclusive());
            assert_eq!(frame.pins.load(Ordering::Relaxed), 0);
            let Some(id) = frame.page_id() else { continue };
            assert!(seen.insert(id), "page {id} is in two frames");
            let found = inner.table.shard(&inner.arena, id).find(id);
            assert_eq!(found, Some(index));
        }
        assert_eq!(seen.len() + inner.free.count(), inner.arena.len());
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        self.close();
    }
}
