//! The page store over a disk that forgets and tears.

pub(crate) mod disk;

mod crash;
mod files;
mod placed;
mod reading;
mod refused;
mod writing;

use super::*;
use crate::buffer::{PageImage, PageStore};
use crate::counters::{Counter, Counters};
use crate::options::{Doublewrite, FlushMethod};
use crate::poison::Poison;
use crate::{Error, Result};
use disk::{Disk, Event, Fault, Random};
use inkstone_format::header::{PageType, check_page, init_page, page_lsn, set_page_lsn};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId};
use inkstone_io::AlignedBuffer;
use std::path::Path;
use std::sync::Arc;

pub const PAGE: usize = 4096;
pub const UUID: [u8; 16] = [9; 16];
pub const DIRECTORY: &str = "/db";

/// An opened store over a disk.
pub struct Rig {
    pub disk: Disk,
    pub spaces: Arc<SpaceFiles>,
    pub store: FilePageStore,
    pub counters: Arc<Counters>,
    pub poison: Poison,
}

pub fn options(doublewrite: Doublewrite, flush_method: FlushMethod) -> StoreOptions {
    StoreOptions {
        page_size: PAGE as u32,
        doublewrite,
        doublewrite_skip_fresh: true,
        flush_method,
        open_files: 0,
        pool_bytes: 128 << 20,
    }
}

pub fn space_files(disk: &Disk, options: StoreOptions, poison: &Poison) -> Result<Arc<SpaceFiles>> {
    let counters = Arc::new(Counters::default());
    let directory = disk.directory(DIRECTORY);
    SpaceFiles::new(directory, options, counters, poison.clone()).map(Arc::new)
}

impl Rig {
    pub fn open(disk: &Disk, options: StoreOptions) -> Result<Self> {
        let (counters, poison) = (Arc::new(Counters::default()), Poison::default());
        let (vfs, directory) = (Arc::new(disk.clone()), disk.directory(DIRECTORY));
        let spaces = SpaceFiles::new(directory.clone(), options, counters.clone(), poison.clone())?;
        let spaces = Arc::new(spaces);
        let store = FilePageStore::new(
            vfs,
            directory.clone(),
            UUID,
            options,
            spaces.clone(),
            counters.clone(),
            poison.clone(),
        )?;
        Ok(Self {
            disk: disk.clone(),
            spaces,
            store,
            counters,
            poison,
        })
    }

    pub fn new(doublewrite: Doublewrite, flush_method: FlushMethod) -> Self {
        Self::open(&Disk::new(), options(doublewrite, flush_method)).unwrap()
    }

    pub fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    pub fn read(&self, id: PageId) -> Result<AlignedBuffer> {
        let mut buffer = AlignedBuffer::zeroed(PAGE);
        self.store.read(id, &mut buffer).map(|()| buffer)
    }
}

pub fn id(space: u32, page: u32) -> PageId {
    PageId::new(SpaceId(space), PageNo(page))
}

/// A page of this LSN, filled with bytes that follow from id and LSN.
pub fn page(id: PageId, lsn: u64) -> AlignedBuffer {
    let mut bytes = AlignedBuffer::zeroed(PAGE);
    init_page(&mut bytes, id, PageType::Leaf);
    set_page_lsn(&mut bytes, Lsn(lsn));
    let mut random = Random(id.to_u64() ^ lsn << 20 | 1);
    for byte in &mut bytes[24..] {
        *byte = random.next() as u8;
    }
    bytes
}

/// Whether the bytes are what `page` made, but for the checksum.
pub fn is_page(bytes: &[u8], id: PageId, lsn: u64) -> bool {
    bytes[4..] == page(id, lsn)[4..] && check_page(bytes, id).is_ok()
}

/// Writes pages (id, LSN, fresh) as one batch of a writer.
pub fn write(
    writer: &mut dyn crate::buffer::PageWriter,
    pages: &[(PageId, u64, bool)],
) -> Result<()> {
    let mut bytes: Vec<_> = pages.iter().map(|&(id, lsn, _)| page(id, lsn)).collect();
    let mut images: Vec<_> = bytes
        .iter_mut()
        .zip(pages)
        .map(|(bytes, &(id, _, fresh))| PageImage {
            id,
            fresh,
            oldest: Lsn(0),
            again: false,
            landed: Default::default(),
            bytes,
        })
        .collect();
    writer.write(&mut images)
}

/// `count` pages of tablespace 1 from `first` on.
pub fn pages(first: u32, count: u32, lsn: u64, fresh: bool) -> Vec<(PageId, u64, bool)> {
    (first..first + count)
        .map(|n| (id(1, n), lsn, fresh))
        .collect()
}
