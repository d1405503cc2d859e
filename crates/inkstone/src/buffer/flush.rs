//! How copies of pages go to disk.
//!
//! A [`Flusher`] gathers a batch: each page is copied under a brief shared latch and marked *in
//! flight*, so that no other flusher copies it until this copy has landed (two copies of one page
//! could overtake each other). Then, with no latch held, the log is made durable up to the newest
//! page LSN, and the store writes the batch.
//!
//! A flusher that waits for a latch holds no latch, only flights; and no thread waits for a flight
//! while it holds a latch. So waiting here is safe.
//!
//! # Promises
//!
//! 1. What a mini-transaction has changed in memory and not in the log goes nowhere: it has set the
//!    poison before it let go of its pages, and a batch is written only if there is no poison after
//!    its pages were copied. The log would not object: such a page has its former LSN, or none.
//!    Checked by `FilePageWriter::targets`. Tested by
//!    `a_page_that_the_log_does_not_know_is_not_written`.

use super::PageImage;
use super::PageWriter;
use super::frame::Frame;
use super::pool::Inner;
use crate::mutants::{self, Mutant};
use crate::paranoid::{MANY, paranoid};
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, thread};
use crate::{Error, Result};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId, header};
use inkstone_io::AlignedBuffer;
use std::cell::Cell;
use std::ops::Range;

/// Pages in a batch, at most.
pub(crate) const BATCH_PAGES_MAX: usize = 256;

/// Threads that write what a caller wants flushed.
const FLUSHERS: usize = 2;

/// What became of a page that was to join a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// It is in the batch.
    Taken,
    /// It needs no write: clean, gone, or changed lately.
    Clean,
    /// Another flusher has it in flight.
    InFlight,
    /// It is latched exclusively, and waiting was not wanted.
    Latched,
}

struct Copied {
    index: u32,
    id: PageId,
    fresh: bool,
    refused: bool,
    oldest: Lsn,
    lsn: Lsn,
    landed: bool,
}

/// What became of a batch.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Pages that landed.
    pub pages: usize,
    /// Why the others did not: they are refused now.
    pub failed: Option<Error>,
}

/// What became of pages that were to be flushed.
#[derive(Default)]
struct Pass {
    landed: usize,
    /// In flight elsewhere.
    flying: usize,
    /// Those, and refused ones.
    left: Vec<(PageId, u32)>,
    failed: Option<Error>,
}

impl Pass {
    fn add(&mut self, other: Self) {
        self.landed += other.landed;
        self.flying += other.flying;
        self.left.extend(other.left);
        self.failed = self.failed.take().or(other.failed);
    }
}

/// A writer with room for one batch, for the use of one thread.
pub(crate) struct Flusher {
    writer: Box<dyn PageWriter>,
    /// Where the copies lie.
    room: AlignedBuffer,
    capacity: usize,
    copied: Vec<Copied>,
}

impl Flusher {
    /// A flusher for batches of `pages`.
    pub fn new(pool: &Inner, pages: usize) -> Result<Self> {
        paranoid!(
            (1..=BATCH_PAGES_MAX).contains(&pages),
            "a batch of {pages} pages"
        );
        let bytes = pages * pool.arena.page_size();
        let room = AlignedBuffer::try_zeroed(bytes).map_err(|error| Error::InvalidOption {
            name: "buffer_pool_size".to_owned(),
            value: (pool.arena.len() * pool.arena.page_size()).to_string(),
            reason: format!("no memory for copies of {pages} pages: {error}"),
        })?;
        let mut writer = pool.store.writer()?;
        writer.register(room.handle());
        Ok(Self {
            writer,
            room,
            capacity: pages,
            copied: Vec::with_capacity(pages),
        })
    }

    /// Pages that fit in a batch.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Copies the page if it is still in this frame and dirty. `wait`: for its latch.
    pub fn join(&mut self, pool: &Inner, index: u32, id: PageId, wait: bool) -> Join {
        self.join_unless_changed(pool, index, id, wait, Lsn(u64::MAX))
    }

    /// As `join`, if the page was last changed before `since`; without waiting.
    pub fn join_if_left(&mut self, pool: &Inner, index: u32, id: PageId, since: Lsn) -> Join {
        self.join_unless_changed(pool, index, id, false, since)
    }

    fn join_unless_changed(
        &mut self,
        pool: &Inner,
        index: u32,
        id: PageId,
        wait: bool,
        since: Lsn,
    ) -> Join {
        let frame = pool.arena.frame(index);
        let latched = if wait {
            frame.latch.lock_shared(|| frame.holds(id))
        } else {
            frame.latch.try_lock_shared()
        };
        if !latched {
            return if frame.holds(id) {
                Join::Latched
            } else {
                Join::Clean
            };
        }
        // SAFETY: this thread holds the frame's latch in shared mode, and asks only while the frame
        // holds a page: before that its owner fills it without the latch.
        let changed = || header::page_lsn(unsafe { pool.arena.bytes(index) });
        let outcome = if !frame.holds(id) || !frame.is_dirty() || changed() >= since {
            Join::Clean
        } else if frame.flushing.swap(true, Ordering::AcqRel) {
            Join::InFlight
        } else if !frame.is_dirty() {
            // Another flight ended between the two looks.
            frame.flushing.store(false, Ordering::Release);
            Join::Clean
        } else {
            self.copy(pool, index, id);
            Join::Taken
        };
        frame.latch.unlock_shared();
        outcome
    }

    /// The caller holds the latch shared and has set `flushing`.
    fn copy(&mut self, pool: &Inner, index: u32, id: PageId) {
        paranoid!(
            self.copied.len() < self.capacity,
            "page {id} does not fit a batch of {}",
            self.capacity
        );
        let mut last = self.copied.iter().rev().take(MANY);
        paranoid!(
            last.all(|copied| copied.index != index && copied.id != id),
            "page {id} is in a batch twice"
        );
        let size = pool.arena.page_size();
        let at = self.copied.len() * size;
        let target = &mut self.room[at..at + size];
        // SAFETY: the caller holds the frame's latch in shared mode.
        target.copy_from_slice(unsafe { pool.arena.bytes(index) });
        let lsn = header::page_lsn(target);
        let frame = pool.arena.frame(index);
        let fresh = frame.fresh.swap(false, Ordering::Relaxed);
        let refused = frame.refused.swap(false, Ordering::Relaxed);
        // It is dirty, and stays as it is while it is in flight.
        let oldest = frame.oldest_lsn().unwrap_or(lsn);
        // A mini-transaction that could not commit leaves its pages as it changed them (one that
        // it freed has no LSN), and has set the poison.
        paranoid!(
            oldest <= lsn || pool.poison.is_set(),
            "page {id} is dirty from LSN {oldest} on, and of LSN {lsn}"
        );
        self.copied.push(Copied {
            index,
            id,
            fresh,
            refused,
            oldest,
            lsn,
            landed: false,
        });
    }

    /// Writes the batch and ends the flights. Fails only once the engine is poisoned: what cannot
    /// be written now stays dirty.
    pub fn write(&mut self, pool: &Inner) -> Result<Written> {
        let mut written = Written::default();
        if self.copied.is_empty() {
            return Ok(written);
        }
        let result = self.write_copies(pool);
        let is_final = result.as_ref().is_err_and(Error::is_final);
        for copied in self.copied.drain(..) {
            let frame = pool.arena.frame(copied.index);
            let landed = copied.landed && !is_final;
            if !landed {
                frame.refused.store(true, Ordering::Relaxed);
                if copied.fresh {
                    // It has not been on disk since it was initialised, so it is fresh still.
                    frame.fresh.store(true, Ordering::Relaxed);
                }
            }
            written.pages += usize::from(landed);
            pool.dirty.end_flight(frame, copied.index, landed);
        }
        if let Err(error) = &result {
            pool.refusals.note(error);
        }
        pool.flights.announce();
        match result {
            Err(error) if is_final => Err(error),
            result => {
                written.failed = result.err();
                Ok(written)
            }
        }
    }

    fn write_copies(&mut self, pool: &Inner) -> Result<()> {
        // Behind the copies (promise 1).
        pool.poison.check()?;
        let newest = self.copied.iter().map(|c| c.lsn).max().expect("not empty");
        if !mutants::on(Mutant::PageBeforeLog) {
            pool.log.make_durable(newest)?;
        }
        let rooms = self.room.chunks_exact_mut(pool.arena.page_size());
        let mut images: Vec<PageImage<'_>> = rooms
            .zip(&self.copied)
            .map(|(bytes, copied)| PageImage {
                id: copied.id,
                fresh: copied.fresh,
                oldest: copied.oldest,
                again: copied.refused,
                landed: Cell::new(false),
                bytes,
            })
            .collect();
        images.sort_unstable_by_key(|image| image.id);
        let written = self.writer.write(&mut images);
        // A sync that failed in another writer's batch may have been of these pages.
        if !mutants::on(Mutant::PageSyncsApart) {
            pool.poison.check()?;
        }
        paranoid!(
            written.is_err() || images.iter().all(|image| image.landed.get()),
            "a batch was written whole, and a page of it did not land"
        );
        let landed = images.iter().filter(|image| image.landed.get());
        let landed: Vec<PageId> = landed.map(|image| image.id).collect();
        for copied in &mut self.copied {
            copied.landed = written.is_ok() || landed.binary_search(&copied.id).is_ok();
        }
        written
    }
}

impl Inner {
    /// Batch size for this pool: small pools make small batches, so that a flight never holds most
    /// of the frames.
    pub(crate) fn batch_pages(&self) -> usize {
        (self.arena.len() / 4).clamp(1, BATCH_PAGES_MAX)
    }

    /// Returns when every page that was dirty at the call, and that `which` selects, has landed on
    /// disk in a copy made after the call. The calling thread writes, with [`FLUSHERS`] in all if
    /// there is much.
    pub(crate) fn flush_where(&self, which: impl Fn(PageId, &Frame) -> bool) -> Result<()> {
        self.check()?;
        let dirty = self.dirty.all_frames().into_iter();
        let mut todo: Vec<(PageId, u32)> = dirty
            .filter_map(|index| Some((self.arena.frame(index).page_id()?, index)))
            .filter(|&(id, index)| which(id, self.arena.frame(index)))
            .collect();
        if todo.is_empty() {
            return Ok(());
        }
        todo.sort_unstable();
        todo.dedup();
        let flusher = || Flusher::new(self, self.batch_pages());
        let batches = todo.len().div_ceil(self.batch_pages());
        let mut flushers = (0..batches.min(FLUSHERS))
            .map(|_| flusher())
            .collect::<Result<Vec<_>>>()?;
        while !todo.is_empty() {
            let pass = self.flush_once(&mut flushers, &todo)?;
            match pass.failed {
                // Where some land, there may be room for others afterwards.
                Some(error) if pass.landed + pass.flying == 0 => return Err(error),
                _ => todo = pass.left,
            }
            // A page of which one flight has failed may have been found in that flight, too: in two
            // batches it would be in its own way for ever.
            todo.sort_unstable();
            todo.dedup();
            self.flights.wait_until(|| {
                let flying = |&(_, index): &(_, u32)| {
                    self.arena.frame(index).flushing.load(Ordering::Acquire)
                };
                !todo.iter().any(flying)
            });
        }
        Ok(())
    }

    /// Writes what is not in flight elsewhere. With several flushers each has a thread
    /// and takes one batch after the other: while the device is busy with one, the next is copied.
    fn flush_once(&self, flushers: &mut [Flusher], todo: &[(PageId, u32)]) -> Result<Pass> {
        let [first, others @ ..] = flushers else {
            return Ok(Pass::default());
        };
        let batches = Mutex::new(todo.chunks(first.capacity()));
        let pass = Mutex::new(Ok(Pass::default()));
        let work = |flusher: &mut Flusher| {
            while let Some(batch) = { batches.lock().next() } {
                let part = self.flush_batch(flusher, batch);
                let mut whole = pass.lock();
                match (&mut *whole, part) {
                    (Ok(whole), Ok(part)) => whole.add(part),
                    (_, Err(error)) => {
                        *whole = Err(error);
                        break;
                    }
                    (Err(_), Ok(_)) => break,
                }
            }
        };
        thread::scope(|scope| {
            for flusher in others {
                // Without the thread the work is done all the same.
                let _ = scope.spawn("ink-flush", || work(flusher));
            }
            work(first);
        });
        pass.into_inner()
    }

    /// Writes one batch.
    fn flush_batch(&self, flusher: &mut Flusher, batch: &[(PageId, u32)]) -> Result<Pass> {
        let mut pass = Pass::default();
        for &(id, index) in batch {
            if flusher.join(self, index, id, true) == Join::InFlight {
                pass.left.push((id, index));
            }
        }
        pass.flying = pass.left.len();
        let written = flusher.write(self)?;
        pass.landed = written.pages;
        pass.failed = written.failed;
        if pass.failed.is_some() {
            let refused = |index| self.arena.frame(index).refused.load(Ordering::Relaxed);
            let left = batch.iter().filter(|&&(_, index)| refused(index));
            pass.left.extend(left);
        }
        Ok(pass)
    }

    /// Forgets these pages of a tablespace, dirty or not, each after its flight has landed. Takes
    /// as many steps as there are pages, or frames if those are fewer.
    pub(crate) fn forget_pages(&self, space: SpaceId, pages: Range<u32>) {
        let is_one = |id: PageId| id.space == space && pages.contains(&id.page.0);
        self.table.supersede_loads(is_one);
        for index in self.resident_of(space, &pages) {
            while let Some(id) = self.arena.frame(index).page_id().filter(|&id| is_one(id)) {
                self.forget(index, id);
            }
        }
    }

    /// Frames that hold one of these pages of a tablespace: each that held one all the time.
    pub(crate) fn resident_of(&self, space: SpaceId, pages: &Range<u32>) -> Vec<u32> {
        if pages.len() > self.arena.len() {
            let is_one = |id: PageId| id.space == space && pages.contains(&id.page.0);
            let of_pages = |(index, frame): (u32, &Frame)| {
                let found = frame.page_id().is_some_and(is_one);
                found.then_some(index)
            };
            return self.frames().filter_map(of_pages).collect();
        }
        let ids = pages.clone().map(|page| PageId::new(space, PageNo(page)));
        ids.filter_map(|id| self.find(id)).collect()
    }

    fn forget(&self, index: u32, id: PageId) {
        let frame = self.arena.frame(index);
        self.flights
            .wait_until(|| !frame.flushing.load(Ordering::Acquire) || !frame.holds(id));
        if !frame.latch.lock_exclusive(|| frame.holds(id)) {
            return;
        }
        if frame.holds(id) && !frame.flushing.load(Ordering::Acquire) {
            self.dirty.forget(frame, index);
            self.unlink(index, id);
            frame.latch.unlock_exclusive_gone();
            self.free.push(index, frame);
        } else {
            frame.latch.unlock_exclusive();
        }
    }

    /// Forgets one page; see `forget_where`.
    pub(crate) fn discard_page(&self, id: PageId) {
        loop {
            let mut shard = self.table.shard(&self.arena, id);
            shard.supersede_load(id);
            let found = shard.find(id);
            drop(shard);
            match found {
                None => return,
                Some(index) => self.forget(index, id),
            }
        }
    }
}
