//! A log and a store in memory that check what the pool promises them.

use crate::buffer::{
    BufferPool, Exclusive, PageImage, PageStore, PageWriter, PoolOptions, RedoLog,
};
use crate::counters::Counters;
use crate::poison::Poison;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::{Error, Result};
use inkstone_format::header::{self, PageType};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub const PAGE_SIZE: usize = 4096;
const RING_BYTES: u64 = 4000;

pub fn page(number: u32) -> PageId {
    PageId::new(SpaceId(1), PageNo(number))
}

/// Reserves with one addition, publishes out of order, like the real one.
pub struct MockLog {
    next: AtomicU64,
    published: Mutex<(u64, BTreeMap<u64, u64>)>,
    pub durable: AtomicU64,
    pub capacity: AtomicU64,
}

impl MockLog {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            next: AtomicU64::new(1000),
            published: Mutex::new((1000, BTreeMap::new())),
            durable: AtomicU64::new(1000),
            capacity: AtomicU64::new(1 << 30),
        })
    }

    pub fn append(&self, bytes: u64, stamp: impl FnOnce(Lsn, Lsn)) -> (Lsn, Lsn) {
        let start = self.next.fetch_add(bytes, Ordering::Relaxed);
        let end = start + bytes;
        // The ring: no thread runs far ahead of one that has not published.
        while start.saturating_sub(self.ready_lsn().0) > RING_BYTES {
            crate::sync::thread::sleep(Duration::from_micros(100));
        }
        stamp(Lsn(start), Lsn(end));
        let mut published = self.published.lock();
        published.1.insert(start, end);
        while let Some((&first, &upto)) = published.1.first_key_value()
            && first == published.0
        {
            published.1.pop_first();
            published.0 = upto;
        }
        (Lsn(start), Lsn(end))
    }
}

impl RedoLog for MockLog {
    fn ready_lsn(&self) -> Lsn {
        Lsn(self.published.lock().0)
    }
    fn make_durable(&self, lsn: Lsn) -> Result<()> {
        while self.ready_lsn() < lsn {
            crate::sync::thread::sleep(Duration::from_millis(1));
        }
        self.durable.fetch_max(lsn.0, Ordering::SeqCst);
        Ok(())
    }
    fn capacity_bytes(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub struct StoreState {
    pub pages: Mutex<HashMap<PageId, Vec<u8>>>,
    /// Every image written: page, LSN, fresh.
    pub writes: Mutex<Vec<(PageId, Lsn, bool)>>,
    pub batches: AtomicUsize,
    pub reads: AtomicUsize,
    pub fail_reads: AtomicBool,
    pub fail_writes: AtomicBool,
    pub disk_full: AtomicBool,
    /// Writes of these pages fail.
    pub refuse: Mutex<HashSet<PageId>>,
    /// While set, writers wait inside `write`.
    pub hold_writes: AtomicBool,
    pub hold_reads: AtomicBool,
    /// Of batches with a page that is not refused.
    pub write_delay_us: AtomicU64,
    /// Batches under way.
    pub writing: AtomicUsize,
    in_writing: Mutex<HashSet<PageId>>,
}

pub struct MockStore {
    pub state: Arc<StoreState>,
    pub log: Arc<MockLog>,
}

struct MockWriter {
    state: Arc<StoreState>,
    log: Arc<MockLog>,
}

fn wait_while(flag: &AtomicBool) {
    while flag.load(Ordering::SeqCst) {
        crate::sync::thread::sleep(Duration::from_millis(1));
    }
}

fn io_error() -> Error {
    let source = std::io::Error::other("injected");
    Error::io("access", Path::new("mock"), source)
}

impl PageStore for MockStore {
    fn read(&self, id: PageId, buffer: &mut [u8]) -> Result<()> {
        self.state.reads.fetch_add(1, Ordering::Relaxed);
        wait_while(&self.state.hold_reads);
        if self.state.fail_reads.load(Ordering::SeqCst) {
            return Err(io_error());
        }
        assert_eq!(buffer.as_ptr().addr() % 4096, 0);
        let pages = self.state.pages.lock();
        let bytes = pages
            .get(&id)
            .ok_or_else(|| Error::NotFound(format!("page {id}")))?;
        header::check_page(bytes, id).map_err(|c| Error::corrupt_page(Path::new("mock"), id, c))?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn writer(&self) -> Result<Box<dyn PageWriter>> {
        Ok(Box::new(MockWriter {
            state: self.state.clone(),
            log: self.log.clone(),
        }))
    }
}

impl PageWriter for MockWriter {
    fn write(&mut self, images: &mut [PageImage<'_>]) -> Result<()> {
        let durable = self.log.durable.load(Ordering::SeqCst);
        assert!(images.windows(2).all(|w| w[0].id < w[1].id), "not sorted");
        for image in images.iter() {
            assert!(header::page_lsn(image.bytes).0 <= durable, "WAL rule");
            assert_eq!(header::page_id(image.bytes), image.id);
            check_pattern(image.bytes);
            let alone = self.state.in_writing.lock().insert(image.id);
            assert!(alone, "page {} is written twice at once", image.id);
        }
        self.state.writing.fetch_add(1, Ordering::SeqCst);
        wait_while(&self.state.hold_writes);
        let delay = self.state.write_delay_us.load(Ordering::Relaxed);
        let refused = self.state.refuse.lock().clone();
        if delay > 0 && images.iter().any(|image| !refused.contains(&image.id)) {
            crate::sync::thread::sleep(Duration::from_micros(delay));
        }
        let failure = if self.state.disk_full.load(Ordering::SeqCst) {
            Err(Error::DiskFull {
                what: "mock".to_owned(),
            })
        } else if self.state.fail_writes.load(Ordering::SeqCst) {
            Err(io_error())
        } else {
            Ok(())
        };
        let none = images.iter().all(|image| !refused.contains(&image.id));
        for image in images.iter_mut() {
            if failure.is_ok() && !refused.contains(&image.id) {
                image.landed.set(true);
                header::stamp_checksum(image.bytes);
                let lsn = header::page_lsn(image.bytes);
                self.state
                    .pages
                    .lock()
                    .insert(image.id, image.bytes.to_vec());
                self.state.writes.lock().push((image.id, lsn, image.fresh));
            }
            self.state.in_writing.lock().remove(&image.id);
        }
        self.state.writing.fetch_sub(1, Ordering::SeqCst);
        self.state.batches.fetch_add(1, Ordering::Relaxed);
        if none {
            failure
        } else {
            failure.and(Err(io_error()))
        }
    }
}

/// Everything behind the header is the page LSN, over and over.
pub fn write_pattern(bytes: &mut [u8], end: Lsn) {
    for word in bytes[header::PAGE_HEADER_LEN..].chunks_exact_mut(8) {
        word.copy_from_slice(&end.0.to_le_bytes());
    }
}

/// Panics on a page that mixes two states; returns its LSN.
pub fn check_pattern(bytes: &[u8]) -> Lsn {
    let lsn = header::page_lsn(bytes);
    for word in bytes[header::PAGE_HEADER_LEN..].chunks_exact(8) {
        assert_eq!(word, lsn.0.to_le_bytes(), "torn page");
    }
    lsn
}

pub struct Bench {
    pub pool: Arc<BufferPool>,
    pub store: Arc<StoreState>,
    pub log: Arc<MockLog>,
    pub poison: Poison,
    pub counters: Arc<Counters>,
}

impl Bench {
    /// A pool of `frames` over a store that has pages 0..`pages` of space 1.
    pub fn new(frames: usize, pages: u32, instances: usize) -> Self {
        let log = MockLog::new();
        let state = Arc::new(StoreState::default());
        for number in 0..pages {
            let mut bytes = vec![0; PAGE_SIZE];
            header::init_page(&mut bytes, page(number), PageType::Leaf);
            header::stamp_checksum(&mut bytes);
            state.pages.lock().insert(page(number), bytes);
        }
        let poison = Poison::default();
        let counters = Arc::new(Counters::default());
        let store = MockStore {
            state: state.clone(),
            log: log.clone(),
        };
        let pool = BufferPool::new(
            PoolOptions {
                page_size: PAGE_SIZE,
                bytes: frames * PAGE_SIZE,
                instances,
            },
            Arc::new(store),
            log.clone(),
            counters.clone(),
            poison.clone(),
        )
        .unwrap();
        Self {
            pool,
            store: state,
            log,
            poison,
            counters,
        }
    }

    /// One mini-transaction over latched pages: changes, stamps, publishes.
    pub fn change(&self, pages: &mut [Exclusive<'_>]) -> (Lsn, Lsn) {
        self.log.append(64, |start, end| {
            for page in pages {
                write_pattern(page, end);
                page.mark_dirty(start, end);
            }
        })
    }

    /// Changes one page.
    pub fn touch(&self, number: u32) -> (Lsn, Lsn) {
        let guard = self.pool.exclusive(page(number)).unwrap();
        self.change(&mut [guard])
    }

    /// What a checkpoint could be.
    pub fn checkpoint(&self) -> Lsn {
        let ready = self.log.ready_lsn();
        self.pool.oldest_dirty_lsn().map_or(ready, |o| o.min(ready))
    }

    pub fn stored_lsn(&self, number: u32) -> Lsn {
        header::page_lsn(&self.store.pages.lock()[&page(number)])
    }
}

/// Waits at most ten seconds.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if done() {
            return;
        }
        crate::sync::thread::sleep(Duration::from_millis(1));
    }
    panic!("waited in vain: {what}");
}

/// A small generator, seeded.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(n)) >> 32) as u32
    }
}
