//! A log in memory, and a store in memory that tells how often it was read.

use crate::buffer::{BufferPool, PageImage, PageStore, PageWriter, PoolOptions, RedoLog};
use crate::counters::Counters;
use crate::poison::Poison;
use crate::recovery::{
    FrameSource, FrameView, Progress, RedoInputs, RedoOptions, RedoOutcome, TablespaceFiles, When,
    gather,
};
use crate::sync::Mutex;
use crate::{Error, Result};
use inkstone_format::header::{PageType, page_lsn};
use inkstone_format::header::{check_page, init_page, set_page_lsn, stamp_checksum};
use inkstone_format::record::Record;
use inkstone_format::tree_page::TreePageInit;
use inkstone_format::{Corrupt, Lsn, PageId, PageNo, SpaceId, TreeId};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub const PAGE: usize = 4096;
pub const SPACE: SpaceId = SpaceId(3);

pub fn page(number: u32) -> PageId {
    PageId::new(SPACE, PageNo(number))
}

pub fn leaf_init(page: PageId) -> Record {
    let init = TreePageInit {
        tree: TreeId(0),
        level: 0,
        low: vec![],
        high: None,
    };
    Record::TreeInit { page, init }
}

pub fn put_all(records: &[Record]) -> Vec<u8> {
    let mut payload = Vec::new();
    records.iter().for_each(|record| record.put(&mut payload));
    payload
}

/// A frame: start, end, payload.
pub type FrameBytes = (Lsn, Lsn, Vec<u8>);

/// A log under construction.
#[derive(Clone)]
pub struct LogBuilder {
    pub frames: Vec<FrameBytes>,
    pub end: Lsn,
}

impl LogBuilder {
    pub fn new() -> Self {
        Self {
            frames: Vec::new(),
            end: Lsn(5000),
        }
    }

    pub fn append(&mut self, payload: Vec<u8>) -> (Lsn, Lsn) {
        let start = self.end;
        self.end = Lsn(start.0 + 6 + payload.len() as u64);
        self.frames.push((start, self.end, payload));
        (start, self.end)
    }

    pub fn records(&mut self, records: &[Record]) -> (Lsn, Lsn) {
        self.append(put_all(records))
    }

    pub fn from(&self, scan_start: Lsn) -> MemorySource {
        let frames = self.frames.iter().filter(|f| f.0 >= scan_start);
        MemorySource {
            frames: frames.cloned().collect(),
            at: 0,
            position: scan_start,
            fail_at: usize::MAX,
        }
    }
}

pub struct MemorySource {
    frames: Vec<FrameBytes>,
    at: usize,
    position: Lsn,
    /// The frame whose reading fails.
    pub fail_at: usize,
}

impl FrameSource for MemorySource {
    fn next(&mut self) -> Result<Option<FrameView<'_>>> {
        if self.at == self.fail_at {
            return Err(Error::Unsupported("the machine stops here".to_owned()));
        }
        let Some((start, end, payload)) = self.frames.get(self.at) else {
            return Ok(None);
        };
        self.at += 1;
        self.position = *end;
        Ok(Some(FrameView {
            start: *start,
            end: *end,
            epoch: 7,
            payload,
        }))
    }
    fn position(&self) -> Lsn {
        self.position
    }
    fn epoch(&self) -> u64 {
        7
    }
    fn locate(&self, lsn: Lsn) -> (PathBuf, u64) {
        (PathBuf::from("log/0.log"), lsn.0)
    }
    fn bytes_total(&self) -> Option<u64> {
        None
    }
}

/// Pages of a tablespace's file.
type File = Vec<Vec<u8>>;

#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<DiskState>>);

#[derive(Default)]
pub struct DiskState {
    pub files: BTreeMap<SpaceId, File>,
    pub reads: Vec<PageId>,
    pub writes: usize,
}

impl MemoryDisk {
    pub fn state(&self) -> crate::sync::MutexGuard<'_, DiskState> {
        self.0.lock()
    }

    pub fn put(&self, id: PageId, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        stamp_checksum(&mut bytes);
        self.put_raw(id, bytes);
    }

    pub fn put_raw(&self, id: PageId, bytes: Vec<u8>) {
        let mut state = self.0.lock();
        let file = state.files.entry(id.space).or_default();
        let at = id.page.0 as usize;
        if file.len() <= at {
            file.resize(at + 1, vec![0; PAGE]);
        }
        file[at] = bytes;
    }

    /// A page of bytes with an LSN.
    pub fn put_page(&self, id: PageId, lsn: Lsn) {
        let mut bytes = vec![0; PAGE];
        init_page(&mut bytes, id, PageType::Overflow);
        set_page_lsn(&mut bytes, lsn);
        self.put(id, &bytes);
    }

    /// LSN of a page on disk, 0 for none.
    pub fn lsn(&self, id: PageId) -> Lsn {
        let state = self.0.lock();
        let file = state.files.get(&id.space);
        let bytes = file.and_then(|file| file.get(id.page.0 as usize));
        bytes.map_or(Lsn(0), |bytes| match check_page(bytes, id) {
            Ok(()) => page_lsn(bytes),
            Err(_) => Lsn(0),
        })
    }

    /// A copy that is independent from now on.
    pub fn snapshot(&self) -> Self {
        let copy = Self::default();
        copy.state().files = self.state().files.clone();
        copy
    }
}

impl PageStore for MemoryDisk {
    fn read(&self, id: PageId, buffer: &mut [u8]) -> Result<()> {
        let corrupt = |c| Error::corrupt_page(Path::new("/db/file"), id, c);
        let mut state = self.0.lock();
        state.reads.push(id);
        let file = state.files.get(&id.space);
        let bytes = file.and_then(|file| file.get(id.page.0 as usize));
        let bytes = bytes.ok_or_else(|| corrupt(Corrupt::at(0, "beyond the end")))?;
        buffer.copy_from_slice(bytes);
        check_page(buffer, id).map_err(corrupt)
    }
    fn writer(&self) -> Result<Box<dyn PageWriter>> {
        Ok(Box::new(self.clone()))
    }
}

impl PageWriter for MemoryDisk {
    fn write(&mut self, pages: &mut [PageImage<'_>]) -> Result<()> {
        for image in pages {
            assert!((image.id.page.0 as usize) < self.state().files[&image.id.space].len());
            self.put(image.id, image.bytes);
            image.landed.set(true);
            self.state().writes += 1;
        }
        Ok(())
    }
}

impl TablespaceFiles for MemoryDisk {
    fn exists(&self, space: SpaceId) -> Result<bool> {
        Ok(self.0.lock().files.contains_key(&space))
    }
    fn create(&self, space: SpaceId, pages: u32) -> Result<()> {
        let file = vec![vec![0; PAGE]; pages as usize];
        assert!(self.0.lock().files.insert(space, file).is_none());
        Ok(())
    }
    fn ensure_pages(&self, space: SpaceId, pages: u32) -> Result<()> {
        let mut state = self.0.lock();
        let file = state.files.get_mut(&space).expect("the file exists");
        if file.len() < pages as usize {
            file.resize(pages as usize, vec![0; PAGE]);
        }
        Ok(())
    }
    fn path(&self, space: SpaceId) -> PathBuf {
        PathBuf::from(format!("/db/{space}"))
    }
}

/// A log that is durable.
pub struct Durable;

impl RedoLog for Durable {
    fn ready_lsn(&self) -> Lsn {
        Lsn(1 << 40)
    }
    fn make_durable(&self, _: Lsn) -> Result<()> {
        Ok(())
    }
    fn capacity_bytes(&self) -> u64 {
        1 << 40
    }
}

pub fn pool(disk: &MemoryDisk, frames: usize) -> Arc<BufferPool> {
    pool_with(disk, frames, Poison::default())
}

pub fn pool_with(disk: &MemoryDisk, frames: usize, poison: Poison) -> Arc<BufferPool> {
    let pool = pool_without_threads(disk, frames, poison);
    pool.start_cleaners().unwrap();
    pool
}

/// For tests that look at what is dirty: an idle cleaner would write it between two of their lines.
pub fn still_pool(disk: &MemoryDisk, frames: usize) -> Arc<BufferPool> {
    pool_without_threads(disk, frames, Poison::default())
}

fn pool_without_threads(disk: &MemoryDisk, frames: usize, poison: Poison) -> Arc<BufferPool> {
    let (store, counters) = (Arc::new(disk.clone()), Arc::new(Counters::default()));
    let log = Arc::new(Durable);
    let options = PoolOptions {
        page_size: PAGE,
        bytes: frames * PAGE,
        instances: 2,
    };
    BufferPool::new(options, store, log, counters, poison).unwrap()
}

#[derive(Clone, Copy)]
pub struct How {
    pub checkpoint: Lsn,
    pub threads: usize,
    pub budget: usize,
}

impl How {
    pub fn from(checkpoint: Lsn) -> Self {
        Self {
            checkpoint,
            threads: 1,
            budget: 1 << 30,
        }
    }
}

pub fn run(
    source: &mut dyn FrameSource,
    disk: &MemoryDisk,
    pool: &Arc<BufferPool>,
    how: How,
) -> Result<RedoOutcome> {
    run_when(source, disk, pool, how, When::Now)
}

/// Redo that leaves pages to their readers.
pub fn run_late(
    source: &mut dyn FrameSource,
    disk: &MemoryDisk,
    pool: &Arc<BufferPool>,
    how: How,
) -> Result<RedoOutcome> {
    run_when(source, disk, pool, how, When::Read)
}

fn run_when(
    source: &mut dyn FrameSource,
    disk: &MemoryDisk,
    pool: &Arc<BufferPool>,
    how: How,
    when: When,
) -> Result<RedoOutcome> {
    let progress = |_: Progress| {};
    let inputs = RedoInputs {
        pool: pool.clone(),
        files: Arc::new(disk.clone()),
        checkpoint: how.checkpoint,
        options: RedoOptions {
            threads: how.threads,
            index_bytes_max: how.budget,
        },
        spill: (when == When::Read).then(|| SimVfs::new(1).directory("db")),
        progress: &progress,
    };
    gather(source, inputs)?.redo(source, when)
}

/// Redo of a whole log with a checkpoint, in a pool of its own.
pub fn redo_from(log: &LogBuilder, disk: &MemoryDisk, checkpoint: Lsn) -> Result<RedoOutcome> {
    let pool = pool(disk, 64);
    run(&mut log.from(Lsn(5000)), disk, &pool, How::from(checkpoint))
}
