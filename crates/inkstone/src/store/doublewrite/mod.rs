//! The doublewrite file: each batch of pages has its copies in an area of its own (the bytes:
//! [`inkstone_format::doublewrite`]). Which batch goes to which area, and which copies must stay:
//! `areas.rs`.
//!
//! The file is filled with zeroes before it gets its name, so that writing a batch changes no
//! metadata of the file system.

mod areas;
mod growing;

pub(crate) use areas::Area;
pub(crate) use growing::{Copies, InUse, create_first};

use super::space_files::open_options;
use crate::counters::{Counter, Counters, Timed};
use crate::mutants::{self, Mutant};
use crate::options::FlushMethod;
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::poison::syncs::FileSyncs;
use crate::sync::atomic::AtomicU64;
use crate::{Error, Result};
use areas::Areas;
use inkstone_format::doublewrite::{
    BATCH_PAGES_MAX, BLOCK_LEN, BatchHeader, DOUBLEWRITE_VERSION, Layout, LayoutError, image_crc,
};
use inkstone_format::header::{check_page, page_lsn};
use inkstone_format::{Lsn, PageId};
use inkstone_io::{AlignedBuffer, Create, Directory, ErrorKind, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the doublewrite file in the database directory.
pub const DOUBLEWRITE_FILE: &str = "doublewrite";
/// Name under which it is created.
const DOUBLEWRITE_FILE_NEW: &str = "doublewrite.new";
/// Areas of a new file: so many batches can be under way, less one (see `areas.rs`) and those with
/// copies that must stay after failed writes. One for each thread of a large pool that supplies
/// frames or cleans.
pub const AREAS: u32 = 6;
/// Pages in an area of a new file.
pub const BATCH_PAGES: u32 = 128;
/// Bytes in one write while a new file is filled.
const FILL_BYTES: usize = 1 << 20;

const _: () = assert!(BATCH_PAGES as usize <= BATCH_PAGES_MAX);

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
    areas: Areas,
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
            return Self::create(directory, layout, flush_method, counters, poison);
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
        let sequence = newest.saturating_add(1);
        Ok(Self::with(
            file,
            path,
            layout,
            flush_method,
            sequence,
            counters,
            poison,
        ))
    }

    /// Creates the file, in place of one that there may be. It is used by the handle that made it:
    /// once it has its name, nothing is left that may fail but the directory's sync.
    fn create(
        directory: &dyn Directory,
        layout: Layout,
        flush_method: FlushMethod,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Result<Arc<Self>> {
        let file = create(directory, &layout, flush_method, &poison)?;
        let path = directory.path_of(DOUBLEWRITE_FILE);
        Ok(Self::with(
            file,
            path,
            layout,
            flush_method,
            1,
            counters,
            poison,
        ))
    }

    fn with(
        file: Arc<dyn File>,
        path: PathBuf,
        layout: Layout,
        flush_method: FlushMethod,
        sequence: u64,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Arc<Self> {
        Arc::new(Self {
            file,
            path,
            layout,
            needs_sync: matches!(flush_method, FlushMethod::Fsync | FlushMethod::ODirect),
            syncs: FileSyncs::default(),
            sequence: AtomicU64::new(sequence),
            areas: Areas::new(layout.areas),
            counters,
            poison,
        })
    }

    /// The most pages in a batch.
    pub fn batch_pages(&self) -> usize {
        self.layout.batch_pages as usize
    }

    /// Reads the newest copy of a page into `page`, if there is one with a page LSN of `least` or
    /// more; else leaves `page` as it is. Areas may be written meanwhile: copies are whole or none.
    pub(crate) fn read_copy(&self, id: PageId, least: Lsn, page: &mut [u8]) -> Result<bool> {
        paranoid!(
            page.len() == self.layout.page_size as usize,
            "a copy of page {id} goes into {} bytes",
            page.len()
        );
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
        paranoid!(
            newest.is_none_or(|newest| newest == page_lsn(page) && newest >= least),
            "a copy of page {id} of LSN {newest:?} is taken for one of {least}"
        );
        Ok(newest.is_some())
    }

    /// Makes copies durable that were written.
    fn finish_batch(&self, written: std::io::Result<()>, pages: u64, bytes: u64) -> Result<()> {
        paranoid!(
            bytes == BLOCK_LEN as u64 + pages * u64::from(self.layout.page_size),
            "{bytes} bytes were written for {pages} copies and their header"
        );
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
) -> Result<Arc<dyn File>> {
    paranoid!(
        layout.check().is_ok(),
        "a doublewrite file is made that would be refused: {layout:?}"
    );
    let new = directory.path_of(DOUBLEWRITE_FILE_NEW);
    let options = open_options(flush_method, Create::IfMissing);
    let file = directory.open(DOUBLEWRITE_FILE_NEW, options);
    let file = file.map_err(|e| Error::io("create", &new, e))?;
    fill(&*file, layout).map_err(|e| Error::io("fill", &new, e))?;
    let under_way = poison.begin_sync();
    match file.sync() {
        // Nothing was entrusted to it yet: a full disk is not fatal here.
        Err(e) if e.kind() == ErrorKind::StorageFull => return Err(Error::io("sync", &new, e)),
        result => under_way.end(&new, result)?,
    }
    directory
        .rename(DOUBLEWRITE_FILE_NEW, DOUBLEWRITE_FILE)
        .map_err(|e| Error::io("rename", &new, e))?;
    poison.sync(directory.path(), || directory.sync())?;
    Ok(file)
}

fn fill(file: &dyn File, layout: &Layout) -> std::io::Result<()> {
    file.set_len(0)?;
    match file.allocate(0, layout.file_len()) {
        Err(e) if e.kind() != ErrorKind::Unsupported => return Err(e),
        _ => {}
    }
    let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
    block.copy_from_slice(&layout.encode());
    file.write_at(&block, 0)?;
    let zeroes = AlignedBuffer::zeroed(FILL_BYTES);
    let (mut at, end) = (BLOCK_LEN as u64, layout.file_len());
    paranoid!(
        Layout::parse(&block).is_ok_and(|parsed| parsed == *layout),
        "the header of a new doublewrite file is not one"
    );
    while at < end {
        let n = (end - at).min(FILL_BYTES as u64);
        file.write_at(&zeroes[..n as usize], at)?;
        at += n;
    }
    paranoid!(at == end, "a file of {end} bytes was filled to {at}");
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

/// How often the header of a doublewrite file is read before it passes for damaged.
const HEADER_READS: usize = 8;

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
    let mut layout = read_layout(&*file, &path, uuid, page_size);
    // With the file go copies of torn pages: some wrong reads in a row do not condemn it.
    for _ in 1..HEADER_READS {
        if !matches!(layout, Err(Error::Corrupt { .. })) {
            break;
        }
        layout = read_layout(&*file, &path, uuid, page_size);
    }
    match layout {
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
    paranoid!(
        area < layout.areas,
        "area {area} of {} is to be read",
        layout.areas
    );
    let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
    let read = file.read_at(&mut block, layout.area_offset(area));
    read.map_err(|e| Error::io(format!("read area {area} of"), path, e))?;
    Ok(BatchHeader::parse(layout, &block))
}
