//! The doublewrite file: each batch of pages has its copies in an area of its own (the bytes:
//! [`inkstone_format::doublewrite`]). A writer takes an area for each batch, and waits if all are
//! taken: whoever holds one is writing and waits for nobody.
//!
//! # The life of an area
//!
//! ```text
//!   free --take_area--> taken --write_batch--> holding --in_place_done--> taken --drop--> free
//!                                                 |
//!                                                 +--drop--> retired, until the next open
//! ```
//!
//! *Holding*: the area's copies may be all that is whole of some pages, because they are being
//! overwritten in place. Only `in_place_done`, called when the bytes in place are durable, lets
//! the area be written again. If a write in place fails, the area is retired with its copies.
//!
//! The file is filled with zeroes before it gets its name, so that writing a batch changes no
//! metadata of the file system.

use super::space_files::open_options;
use crate::buffer::PageImage;
use crate::counters::{Counter, Counters, Timed};
use crate::mutants::{self, Mutant};
use crate::options::FlushMethod;
use crate::poison::Poison;
use crate::poison::syncs::{FileSyncs, SyncMoment};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use crate::{Error, Result, invariant};
use inkstone_format::doublewrite::{
    BATCH_PAGES_MAX, BLOCK_LEN, BatchEntry, BatchHeader, DOUBLEWRITE_VERSION, Layout, LayoutError,
    image_crc,
};
use inkstone_format::header::{check_page, page_lsn};
use inkstone_format::{Lsn, PageId};
use inkstone_io::{AlignedBuffer, Batch, Create, Directory, File, Op, OpenOptions};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the doublewrite file in the database directory.
pub const DOUBLEWRITE_FILE: &str = "doublewrite";
/// Name under which it is created.
const DOUBLEWRITE_FILE_NEW: &str = "doublewrite.new";
/// Areas of a new file: so many batches can be under way, less the areas that were retired after
/// failed writes.
pub const AREAS: u32 = 4;
/// Pages in an area of a new file.
pub const BATCH_PAGES: u32 = 128;
/// Bytes in one write while a new file is filled.
const FILL_BYTES: usize = 1 << 20;

const _: () = assert!(BATCH_PAGES as usize <= BATCH_PAGES_MAX);

/// Where the areas are; those in neither field are retired.
#[derive(Debug)]
struct Areas {
    /// The first one given back is taken first. Syncs that were under way at that moment must end
    /// well before it is written.
    free: VecDeque<(u32, SyncMoment)>,
    taken: u32,
}

/// The open doublewrite file.
#[derive(Debug)]
pub struct DoublewriteFile {
    file: Arc<dyn File>,
    path: PathBuf,
    layout: Layout,
    /// Whether a batch is durable only after a sync.
    needs_sync: bool,
    syncs: FileSyncs,
    /// The next batch's sequence.
    sequence: AtomicU64,
    areas: Mutex<Areas>,
    /// Signalled when an area is given back or retired.
    given_back: Condvar,
    counters: Arc<Counters>,
    poison: Poison,
}

impl DoublewriteFile {
    /// Opens the file, or creates it. Recovery has run: copies in it are not needed any more.
    pub fn open(
        directory: &dyn Directory,
        uuid: [u8; 16],
        page_size: u32,
        flush_method: FlushMethod,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Result<Arc<Self>> {
        let path = directory.path_of(DOUBLEWRITE_FILE);
        let exists = directory.exists(DOUBLEWRITE_FILE);
        if !exists.map_err(|e| Error::io("look for", &path, e))? {
            let layout = Layout {
                page_size,
                uuid,
                areas: AREAS,
                batch_pages: BATCH_PAGES,
            };
            create(directory, &layout, flush_method, &poison)?;
        }
        let file = directory.open(DOUBLEWRITE_FILE, open_options(flush_method, Create::Never));
        let file = file.map_err(|e| Error::io("open", &path, e))?;
        let layout = read_layout(&*file, &path, uuid, page_size)?;
        let mut newest = 0;
        for area in 0..layout.areas {
            if let Ok(Some(batch)) = read_batch(&*file, &path, &layout, area)? {
                newest = newest.max(batch.sequence);
            }
        }
        let needs_sync = matches!(flush_method, FlushMethod::Fsync | FlushMethod::ODirect);
        Ok(Arc::new(Self {
            file,
            path,
            layout,
            needs_sync,
            syncs: FileSyncs::default(),
            sequence: AtomicU64::new(newest.saturating_add(1)),
            areas: Mutex::new(Areas {
                free: (0..layout.areas)
                    .map(|area| (area, SyncMoment::default()))
                    .collect(),
                taken: 0,
            }),
            given_back: Condvar::new(),
            counters,
            poison,
        }))
    }

    /// The most pages in a batch.
    pub fn batch_pages(&self) -> usize {
        self.layout.batch_pages as usize
    }

    /// Reads the newest copy of a page into `page`, if there is one with a page LSN of `least` or more;
    /// else leaves `page` as it is. Areas may be written meanwhile: copies are whole or none.
    pub(crate) fn read_copy(&self, id: PageId, least: Lsn, page: &mut [u8]) -> Result<bool> {
        let mut image = AlignedBuffer::zeroed(self.layout.page_size as usize);
        let mut newest = None;
        for area in 0..self.layout.areas {
            let batch = read_batch(&*self.file, &self.path, &self.layout, area)?;
            let entries = batch.ok().flatten().map_or(Vec::new(), |b| b.entries);
            for (n, entry) in entries.iter().enumerate().filter(|(_, e)| e.id == id) {
                let offset = self.layout.image_offset(area, n as u32);
                let read = self.file.read_at(&mut image, offset);
                read.map_err(|e| Error::io("read a page copy from", &self.path, e))?;
                let lsn = page_lsn(&image);
                let whole = image_crc(&image) == entry.crc && check_page(&image, id).is_ok();
                if whole && lsn >= least && newest.is_none_or(|newest| lsn > newest) {
                    newest = Some(lsn);
                    page.copy_from_slice(&image);
                }
            }
        }
        Ok(newest.is_some())
    }

    /// An area for one batch. Waits while all are taken. Poisons the engine when all are retired.
    pub(crate) fn take_area(self: &Arc<Self>) -> Result<Area> {
        let mut areas = self.areas.lock();
        let (number, settled) = loop {
            if let Some(free) = areas.free.pop_front() {
                break free;
            }
            if areas.taken == 0 {
                return Err(self.poison.set(
                    "writes of pages failed so often that each area of the doublewrite file holds \
                     the only whole copy of some page",
                ));
            }
            self.given_back.wait(&mut areas);
        };
        areas.taken += 1;
        drop(areas);
        let mut area = Area {
            doublewrite: self.clone(),
            number,
            // Until it is known that nobody needs its copies.
            holding: true,
            header: AlignedBuffer::zeroed(BLOCK_LEN),
        };
        self.poison.settle_syncs(settled)?;
        area.holding = false;
        Ok(area)
    }
}

/// An area of the doublewrite file, taken for one batch.
pub(crate) struct Area {
    doublewrite: Arc<DoublewriteFile>,
    number: u32,
    /// Whether the copies here may be all that is whole of some pages.
    holding: bool,
    header: AlignedBuffer,
}

impl Area {
    /// Makes copies of the pages durable: one write, one sync. From here on the area is held,
    /// until [`Area::in_place_done`].
    pub fn write_batch(&mut self, batch: &mut dyn Batch, pages: &[&PageImage<'_>]) -> Result<()> {
        let doublewrite = self.doublewrite.clone();
        invariant!(
            !self.holding && pages.len() <= doublewrite.batch_pages(),
            "area {} takes no batch of {} pages now",
            self.number,
            pages.len()
        );
        let entries = pages.iter().map(|page| BatchEntry {
            id: page.id,
            crc: image_crc(page.bytes),
        });
        let header = BatchHeader {
            sequence: doublewrite.sequence.fetch_add(1, Ordering::Relaxed),
            entries: entries.collect(),
        };
        header.encode(&doublewrite.layout, &mut self.header);
        let header = std::iter::once(&*self.header);
        let buffers: Vec<_> = header.chain(pages.iter().map(|p| &*p.bytes)).collect();
        let bytes = buffers.iter().map(|b| b.len() as u64).sum();
        let file = &*doublewrite.file;
        let mut operations = [Op::Write {
            file,
            buffers,
            offset: doublewrite.layout.area_offset(self.number),
            atomic: false,
        }];
        let timing = doublewrite.counters.time(Timed::DoublewriteWrite);
        let written = batch.run(&mut operations).into_iter().collect();
        drop(timing);
        doublewrite.finish_batch(written, pages.len() as u64, bytes)?;
        self.holding = true;
        Ok(())
    }

    /// The pages of the last batch are durable in place.
    pub fn in_place_done(&mut self) {
        self.holding = false;
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        let mut areas = self.doublewrite.areas.lock();
        areas.taken -= 1;
        if !self.holding {
            let moment = self.doublewrite.poison.sync_moment();
            areas.free.push_back((self.number, moment));
        }
        drop(areas);
        // All of them: if this was the last area and it is retired, none will come.
        self.doublewrite.given_back.notify_all();
    }
}

impl DoublewriteFile {
    /// Makes copies durable that were written.
    fn finish_batch(&self, written: std::io::Result<()>, pages: u64, bytes: u64) -> Result<()> {
        written.map_err(|e| Error::io("write page copies to", &self.path, e))?;
        if self.needs_sync && !mutants::on(Mutant::DoublewriteUnsynced) {
            self.syncs.sync(&self.poison, &self.path, || {
                self.counters.add(Counter::DoublewriteSyncs, 1);
                let _timing = self.counters.time(Timed::DoublewriteSync);
                self.file.sync()
            })?;
        }
        self.counters.add(Counter::DoublewriteWriteCalls, 1);
        self.counters.add(Counter::DoublewritePages, pages);
        self.counters.add(Counter::DoublewriteBytes, bytes);
        Ok(())
    }
}

/// Creates the file under another name, makes it durable, and renames it.
fn create(
    directory: &dyn Directory,
    layout: &Layout,
    flush_method: FlushMethod,
    poison: &Poison,
) -> Result<()> {
    let new = directory.path_of(DOUBLEWRITE_FILE_NEW);
    let options = open_options(flush_method, Create::IfMissing);
    let file = directory.open(DOUBLEWRITE_FILE_NEW, options);
    let file = file.map_err(|e| Error::io("create", &new, e))?;
    fill(&*file, layout).map_err(|e| Error::io("fill", &new, e))?;
    poison.sync(&new, || file.sync())?;
    drop(file);
    directory
        .rename(DOUBLEWRITE_FILE_NEW, DOUBLEWRITE_FILE)
        .map_err(|e| Error::io("rename", &new, e))?;
    poison.sync(directory.path(), || directory.sync())
}

fn fill(file: &dyn File, layout: &Layout) -> std::io::Result<()> {
    file.set_len(0)?;
    let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
    block.copy_from_slice(&layout.encode());
    file.write_at(&block, 0)?;
    let zeroes = AlignedBuffer::zeroed(FILL_BYTES);
    let (mut at, end) = (BLOCK_LEN as u64, layout.file_len());
    while at < end {
        let n = (end - at).min(FILL_BYTES as u64);
        file.write_at(&zeroes[..n as usize], at)?;
        at += n;
    }
    Ok(())
}

/// What became of the doublewrite file since the database was used last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DoublewriteFound {
    /// It can be used.
    Whole,
    /// There is none.
    Missing,
    /// It is damaged, or another database's: what is wrong.
    Damaged(String),
}

/// Looks at the doublewrite file. Changes nothing.
pub fn check_doublewrite(
    directory: &dyn Directory,
    uuid: [u8; 16],
    page_size: u32,
) -> Result<DoublewriteFound> {
    let path = directory.path_of(DOUBLEWRITE_FILE);
    let exists = directory.exists(DOUBLEWRITE_FILE);
    if !exists.map_err(|e| Error::io("look for", &path, e))? {
        return Ok(DoublewriteFound::Missing);
    }
    let options = OpenOptions {
        create: Create::Never,
        read_only: true,
        direct: false,
        dsync: false,
    };
    let file = directory.open(DOUBLEWRITE_FILE, options);
    let file = file.map_err(|e| Error::io("open", &path, e))?;
    match read_layout(&*file, &path, uuid, page_size) {
        Ok(_) => Ok(DoublewriteFound::Whole),
        Err(Error::Corrupt { detail, .. }) => Ok(DoublewriteFound::Damaged(detail)),
        Err(error) => Err(error),
    }
}

/// Reads the file header, and checks that it is this database's and that the file is whole.
pub(crate) fn read_layout(
    file: &dyn File,
    path: &Path,
    uuid: [u8; 16],
    page_size: u32,
) -> Result<Layout> {
    let corrupt = |at, detail: String| Err(Error::corrupt_file(path, at, detail));
    let length = file.len().map_err(|e| Error::io("measure", path, e))?;
    if length < BLOCK_LEN as u64 {
        return corrupt(length, format!("{length} bytes hold no file header"));
    }
    let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
    let read = file.read_at(&mut block, 0);
    read.map_err(|e| Error::io("read", path, e))?;
    let layout = match Layout::parse(&block) {
        Ok(layout) => layout,
        Err(LayoutError::Corrupt(c)) => return corrupt(c.offset as u64, c.detail),
        Err(LayoutError::Newer { found }) => {
            return Err(Error::NewerFormat {
                path: path.to_owned(),
                found,
                known: DOUBLEWRITE_VERSION,
            });
        }
    };
    if layout.uuid != uuid {
        return corrupt(16, "the file belongs to another database".to_owned());
    }
    if layout.page_size != page_size {
        let found = layout.page_size;
        return corrupt(12, format!("pages of {found} bytes, not {page_size}"));
    }
    if length < layout.file_len() {
        let detail = format!("cut short: {} bytes expected", layout.file_len());
        return corrupt(length, detail);
    }
    Ok(layout)
}

/// Reads an area's batch header: `Err` in the inner result where it is torn or damaged, `None`
/// where there never was a batch.
pub(crate) fn read_batch(
    file: &dyn File,
    path: &Path,
    layout: &Layout,
    area: u32,
) -> Result<std::result::Result<Option<BatchHeader>, inkstone_format::Corrupt>> {
    let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
    let read = file.read_at(&mut block, layout.area_offset(area));
    read.map_err(|e| Error::io(format!("read area {area} of"), path, e))?;
    Ok(BatchHeader::parse(layout, &block))
}
