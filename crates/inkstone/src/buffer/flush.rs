//! How copies of pages go to disk.
//!
//! A [`Flusher`] gathers a batch: each page is copied under a brief shared latch and marked *in
//! flight*, so that no other flusher copies it until this copy has landed (two copies of one page
//! could overtake each other). Then, with no latch held, the log is made durable up to the newest
//! page LSN, and the store writes the batch.
//!
//! A flusher that waits for a latch holds no latch, only flights; and nobody waits for a flight
//! while holding a latch. So waiting here is safe.

use super::PageImage;
use super::PageWriter;
use super::frame::Frame;
use super::pool::Inner;
use crate::mutants::{self, Mutant};
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, thread};
use crate::{Error, Result};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId, header};
use inkstone_io::AlignedBuffer;
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
    /// Somebody holds it exclusively, and waiting was not wanted.
    Latched,
}

struct Copied {
    index: u32,
    id: PageId,
    fresh: bool,
    oldest: Lsn,
    lsn: Lsn,
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
        let latched = match wait {
            true => frame.latch.lock_shared(|| frame.holds(id)),
            false => frame.latch.try_lock_shared(),
        };
        if !latched {
            return if frame.holds(id) {
                Join::Latched
            } else {
                Join::Clean
            };
        }
        // SAFETY: this thread holds the frame's latch in shared mode, and asks only while the frame holds
        // a page: before that its owner fills it without the latch.
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
        let size = pool.arena.page_size();
        let at = self.copied.len() * size;
        let target = &mut self.room[at..at + size];
        // SAFETY: the caller holds the frame's latch in shared mode.
        target.copy_from_slice(unsafe { pool.arena.bytes(index) });
        let lsn = header::page_lsn(target);
        let frame = pool.arena.frame(index);
        let fresh = frame.fresh.swap(false, Ordering::Relaxed);
        // It is dirty, and stays as it is while it is in flight.
        let oldest = frame.oldest_lsn().unwrap_or(lsn);
        self.copied.push(Copied {
            index,
            id,
            fresh,
            oldest,
            lsn,
        });
    }

    /// Writes the batch and ends the flights. Returns the number of pages. On `DiskFull` the pages stay
    /// dirty; any other error poisons.
    pub fn write(&mut self, pool: &Inner) -> Result<usize> {
        let pages = self.copied.len();
        if pages == 0 {
            return Ok(0);
        }
        let result = self.write_copies(pool).map_err(|error| match error {
            Error::DiskFull { .. } | Error::Poisoned(_) => error,
            other => pool
                .poison
                .set(format_args!("pages could not be written: {other}")),
        });
        for copied in self.copied.drain(..) {
            let frame = pool.arena.frame(copied.index);
            if result.is_err() && copied.fresh {
                // It has not been on disk since it was initialised, so it is fresh still.
                frame.fresh.store(true, Ordering::Relaxed);
            }
            pool.dirty.end_flight(frame, copied.index, result.is_ok());
        }
        pool.flights.announce();
        result.map(|()| pages)
    }

    fn write_copies(&mut self, pool: &Inner) -> Result<()> {
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
                bytes,
            })
            .collect();
        images.sort_unstable_by_key(|image| image.id);
        self.writer.write(&mut images)?;
        // A sync that failed in another writer's batch may have been of these pages.
        match mutants::on(Mutant::PageSyncsApart) {
            true => Ok(()),
            false => pool.poison.check(),
        }
    }
}

impl Inner {
    /// Batch size for this pool: small pools make small batches, so that a flight never holds most
    /// of the frames.
    pub(crate) fn batch_pages(&self) -> usize {
        (self.arena.len() / 4).clamp(1, BATCH_PAGES_MAX)
    }

    /// Returns when every page that was dirty at the call, and that `which` selects, has landed on disk in
    /// a copy made after the call. The calling thread writes, with [`FLUSHERS`] in all if there is
    /// much.
    pub(crate) fn flush_where(&self, which: impl Fn(PageId) -> bool) -> Result<()> {
        self.check()?;
        let dirty = self.dirty.all_frames().into_iter();
        let mut todo: Vec<(PageId, u32)> = dirty
            .filter_map(|index| Some((self.arena.frame(index).page_id()?, index)))
            .filter(|&(id, _)| which(id))
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
            todo = self.flush_once(&mut flushers, &todo)?;
            self.flights.wait_until(|| {
                let flying = |&(_, index): &(_, u32)| {
                    self.arena.frame(index).flushing.load(Ordering::Acquire)
                };
                !todo.iter().any(flying)
            });
        }
        Ok(())
    }

    /// Writes what is not in flight elsewhere, returns the rest. With several flushers each has a thread
    /// and takes one batch after the other: while the device is busy with one, the next is copied.
    fn flush_once(
        &self,
        flushers: &mut [Flusher],
        todo: &[(PageId, u32)],
    ) -> Result<Vec<(PageId, u32)>> {
        let [first, others @ ..] = flushers else {
            return Ok(todo.to_vec());
        };
        let batches = Mutex::new(todo.chunks(first.capacity()));
        let (later, outcome) = (Mutex::new(Vec::new()), Mutex::new(Ok(())));
        let work = |flusher: &mut Flusher| {
            while let Some(batch) = { batches.lock().next() } {
                match self.flush_batch(flusher, batch) {
                    Ok(in_flight) => later.lock().extend(in_flight),
                    Err(error) => {
                        *outcome.lock() = Err(error);
                        break;
                    }
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
        outcome.into_inner()?;
        Ok(later.into_inner())
    }

    /// Writes one batch; returns those of it that are in flight elsewhere.
    fn flush_batch(
        &self,
        flusher: &mut Flusher,
        batch: &[(PageId, u32)],
    ) -> Result<Vec<(PageId, u32)>> {
        let mut in_flight = Vec::new();
        for &(id, index) in batch {
            if flusher.join(self, index, id, true) == Join::InFlight {
                in_flight.push((id, index));
            }
        }
        flusher.write(self)?;
        Ok(in_flight)
    }

    /// Forgets these pages of a tablespace, dirty or not, each after its flight has landed. Takes as many
    /// steps as there are pages, or frames if those are fewer.
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
