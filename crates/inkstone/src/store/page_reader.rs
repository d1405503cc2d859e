//! Reading many pages at once: adjacent ones in one operation, and operations side by side.
//!
//! For scans, and the thread that warms the pool up: they know beforehand what will be wanted. A
//! page that does not come as it should is read once more by itself, as any page is
//! ([`PageStore::read`]).

use super::page_store::FilePageStore;
use super::placed::PlacedPages;
use super::table_file::FileInUse;
use crate::Result;
use crate::buffer::PageStore;
use crate::counters::{Counter, Counters};
use crate::paranoid::paranoid;
use crate::sync::Mutex;
use inkstone_format::header::{check_page, page_lsn};
use inkstone_format::image::UNIT_LEN;
use inkstone_format::place_map::Place;
use inkstone_format::{PageId, PageNo};
use inkstone_io::{AlignedBuffer, Batch, Op};
use std::ops::Range;

/// Most pages that are read together.
const PAGES_MAX: usize = 64;
/// Most bytes.
const BYTES_MAX: usize = 1 << 20;

/// Readers that are kept for the next caller: each has a queue and a buffer.
const IDLE_MAX: usize = 4;

/// See the module: a reader for each thread that reads.
#[derive(Default)]
pub(super) struct PageReaders {
    idle: Mutex<Vec<PageReader>>,
}

impl std::fmt::Debug for PageReaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageReaders").finish_non_exhaustive()
    }
}

impl PageReaders {
    /// Reads pages in the order of their ids: one result each.
    pub fn read(
        &self,
        store: &FilePageStore,
        pages: &mut [(PageId, &mut [u8])],
    ) -> Vec<Result<()>> {
        if let [(id, bytes)] = pages {
            // Nothing is read beside it: it needs no queue.
            return vec![store.read(*id, bytes)];
        }
        let idle = self.idle.lock().pop();
        let reader = idle.map_or_else(|| PageReader::new(store), Ok);
        let Ok(mut reader) = reader else {
            let read = |(id, bytes): &mut (PageId, &mut [u8])| store.read(*id, bytes);
            return pages.iter_mut().map(read).collect();
        };
        let results = reader.read(store, pages);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(reader);
        }
        results
    }
}

/// Belongs to one thread at a time.
struct PageReader {
    queue: Box<dyn Batch>,
    /// What is read, one page behind the other.
    bytes: AlignedBuffer,
}

impl PageReader {
    fn new(store: &FilePageStore) -> Result<Self> {
        let page_size = store.spaces().page_size() as usize;
        let pages = PAGES_MAX.min(BYTES_MAX / page_size);
        Ok(Self {
            queue: store.queue(pages)?,
            bytes: AlignedBuffer::zeroed(pages * page_size),
        })
    }

    /// Reads pages of one file; tells which of them have come.
    fn read_of_file(&mut self, store: &FilePageStore, ids: &[PageId]) -> Result<Vec<bool>> {
        let page_size = store.spaces().page_size() as usize;
        paranoid!(
            ids.len() * page_size <= self.bytes.len() && ids.is_sorted_by(|a, b| a < b),
            "{} pages to be read are too many, or in no order",
            ids.len()
        );
        paranoid!(
            ids.iter().all(|id| id.space == ids[0].space),
            "pages of several files are read as of one: {ids:?}"
        );
        let file = store.spaces().open(ids[0].space)?;
        let inside = ids.partition_point(|id| id.page.0 < file.pages());
        let in_use = file.acquire()?;
        let runs = runs(&ids[..inside]);
        let mut rest = &mut self.bytes[..];
        let mut operations = Vec::with_capacity(runs.len());
        for run in &runs {
            let (buffer, later) = rest.split_at_mut(run.len() * page_size);
            rest = later;
            operations.push(Op::Read {
                file: in_use.bytes(),
                buffer,
                offset: file.offset(ids[run.start].page),
            });
        }
        let results = self.queue.run(&mut operations);
        drop(operations);
        paranoid!(
            results.len() == runs.len(),
            "{} results of {} reads",
            results.len(),
            runs.len()
        );
        let counters = store.counters();
        counters.add(Counter::DataReadCalls, runs.len() as u64);
        counters.add(Counter::PagesRead, inside as u64);
        let mut come = vec![false; ids.len()];
        for (run, result) in runs.into_iter().zip(results) {
            come[run].fill(result.is_ok());
        }
        Ok(come)
    }

    /// Reads pages of one file in which they are placed: images that lie side by side in one
    /// operation. Tells which of them have come.
    fn read_placed(
        &mut self,
        counters: &Counters,
        (placed, in_use): (&PlacedPages, &FileInUse<'_>),
        pages: &mut [(PageId, &mut [u8])],
    ) -> Vec<bool> {
        let mut wanted = Vec::with_capacity(pages.len());
        for (n, (id, page)) in pages.iter().enumerate() {
            let place = placed.place(id.page);
            if !place.is_empty() && image_bytes(&place) <= page.len() {
                wanted.push((n, place));
            }
        }
        wanted.sort_unstable_by_key(|(_, place)| place.unit);
        let adjacent = |(_, a): &(usize, Place), (_, b): &(usize, Place)| a.end() == b.unit;
        let mut rest = &mut self.bytes[..];
        let mut operations = Vec::with_capacity(wanted.len());
        for run in wanted.chunk_by(adjacent) {
            let bytes = run.iter().map(|(_, place)| image_bytes(place)).sum();
            let (buffer, later) = rest.split_at_mut(bytes);
            rest = later;
            operations.push(Op::Read {
                file: in_use.bytes(),
                buffer,
                offset: u64::from(run[0].1.unit) * UNIT_LEN as u64,
            });
        }
        counters.add(Counter::DataReadCalls, operations.len() as u64);
        counters.add(Counter::PagesRead, wanted.len() as u64);
        let results = self.queue.run(&mut operations);
        drop(operations);
        let (mut come, mut at) = (vec![false; pages.len()], 0);
        for (run, result) in wanted.chunk_by(adjacent).zip(results) {
            for (n, place) in run {
                let image = &self.bytes[at..];
                at += image_bytes(place);
                let (id, page) = &mut pages[*n];
                come[*n] = result.is_ok() && placed.unpack(id.page, place, image, page);
            }
        }
        come
    }

    fn read(
        &mut self,
        store: &FilePageStore,
        pages: &mut [(PageId, &mut [u8])],
    ) -> Vec<Result<()>> {
        let page_size = store.spaces().page_size() as usize;
        paranoid!(
            pages.iter().all(|(_, buffer)| buffer.len() == page_size),
            "pages of {page_size} bytes are read into other buffers"
        );
        let page_lsns = store.spaces().page_lsns();
        page_lsns.fetch(pages.iter().map(|(id, _)| *id));
        let mut results = Vec::with_capacity(pages.len());
        let of_files = pages.chunk_by_mut(|(a, _), (b, _)| a.space == b.space);
        let together = self.bytes.len() / page_size;
        for pages in of_files.flat_map(|of_file| of_file.chunks_mut(together)) {
            if let Ok(file) = store.spaces().open(pages[0].0.space)
                && let Some(placed) = file.placed()
                && let Ok(in_use) = file.acquire()
            {
                let come = self.read_placed(store.counters(), (placed, &in_use), pages);
                drop(in_use);
                for ((id, buffer), come) in pages.iter_mut().zip(come) {
                    results.push(if come && check_page(buffer, *id).is_ok() {
                        Ok(())
                    } else {
                        store.read(*id, buffer)
                    });
                }
                continue;
            }
            let ids: Vec<PageId> = pages.iter().map(|(id, _)| *id).collect();
            let come = self.read_of_file(store, &ids).unwrap_or_default();
            for (n, (id, buffer)) in pages.iter_mut().enumerate() {
                buffer.copy_from_slice(&self.bytes[n * page_size..(n + 1) * page_size]);
                let is_it = come.get(n).is_some_and(|&come| come)
                    && check_page(buffer, *id).is_ok()
                    && store.newer_than(*id, page_lsn(buffer)).is_none();
                results.push(if is_it {
                    Ok(())
                } else {
                    store.read(*id, buffer)
                });
            }
        }
        paranoid!(
            results.len() == pages.len(),
            "{} results of {} pages",
            results.len(),
            pages.len()
        );
        results
    }
}

/// Bytes of the units of an image.
fn image_bytes(place: &Place) -> usize {
    place.units() as usize * UNIT_LEN
}

/// Cuts sorted pages of a file into runs of adjacent ones.
fn runs(ids: &[PageId]) -> Vec<Range<usize>> {
    let adjacent = |a: &PageId, b: &PageId| PageNo(a.page.0.wrapping_add(1)) == b.page;
    let mut at = 0;
    let cut = ids.chunk_by(adjacent).map(|run| {
        let start = at;
        at += run.len();
        start..at
    });
    let cut: Vec<_> = cut.collect();
    paranoid!(
        cut.last().map_or(0, |last| last.end) == ids.len(),
        "{} pages were cut into runs {cut:?}",
        ids.len()
    );
    cut
}
