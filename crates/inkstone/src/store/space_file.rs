//! The file of one tablespace: its pages, and how it grows and is cut.
//!
//! The object lives as long as anything refers to the tablespace; the file behind it is opened when
//! it is used, and may be closed in between ([`open_files`](super::open_files)). What [the files
//! together](super::space_files) promise, this does.

use super::open_files::OpenFiles;
use super::page_lsn_map::PageLsnMap;
use super::placed::{PlacedPages, Shared, place_map_file_name};
use super::space_files::Placement;
use super::table_file::{FileInUse, TableFile};
use crate::counters::{Counter, Counters, Timed};
use crate::mutants::{self, Mutant};
use crate::options::FlushMethod;
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::{Error, Result, invariant};
use inkstone_format::header::{check_page, page_lsn};
use inkstone_format::image::Compression;
use inkstone_format::place_map::{self, BLOCK_LEN, PlaceMapHeader};
use inkstone_format::{Corrupt, Lsn, PageId, PageNo, SpaceId};
use inkstone_io::{AlignedBuffer, AtomicWriteLimits, Create, ErrorKind, File};
use std::path::Path;
use std::sync::Arc;

/// A file doubles until it grows by this much at a time.
const GROWTH_BYTES_MAX: u64 = 16 << 20;
/// One of placed pages by this part of its pages, and at most by so many: each has a whole page of
/// the disk until it is written.
const PLACED_GROWTH_PARTS: u32 = 16;
const PLACED_GROWTH_MAX: u32 = 16;

/// What all files of a database share.
#[derive(Debug)]
pub(super) struct Context {
    pub page_size: u32,
    pub flush_method: FlushMethod,
    pub atomic: bool,
    pub counters: Arc<Counters>,
    pub poison: Poison,
    pub page_lsns: PageLsnMap,
    pub open_files: Arc<OpenFiles>,
}

/// The file of a tablespace.
#[derive(Debug)]
pub struct SpaceFile {
    space: SpaceId,
    file: Arc<TableFile>,
    context: Arc<Context>,
    /// What the file promises for untorn writes, if they are used.
    atomic: Option<AtomicWriteLimits>,
    /// Physical size, pages.
    pages: AtomicU32,
    /// Held while the size changes.
    grow: Mutex<()>,
    /// Where the pages are, if not each at its own place.
    placed: Option<PlacedPages>,
}

/// How the pages of a tablespace lie in its file.
#[derive(Debug)]
pub(super) enum Layout {
    InPlace,
    /// By this map; of a new file with the compression.
    Placed(Arc<TableFile>, Compression),
}

impl SpaceFile {
    /// Opens, or creates, the file and measures it.
    pub(super) fn open(
        space: SpaceId,
        file: TableFile,
        create: Create,
        layout: Layout,
        context: Arc<Context>,
    ) -> Result<Self> {
        let mut this = Self {
            space,
            file: Arc::new(file),
            context,
            atomic: None,
            pages: AtomicU32::new(0),
            grow: Mutex::new(()),
            placed: None,
        };
        if let Layout::Placed(map, compression) = layout {
            this.open_placed(map, compression, create)?;
            return Ok(this);
        }
        let in_use = this.file.acquire(&this.context.open_files, create)?;
        let checked = this.check(in_use.bytes());
        drop(in_use);
        if checked.is_err() && create == Create::New {
            // The first error is the one to tell.
            let _ = this.file.unmake();
        }
        this.atomic = checked?;
        Ok(this)
    }

    /// Makes the map first: a file that says that it needs one has it.
    fn open_placed(
        &mut self,
        map: Arc<TableFile>,
        compression: Compression,
        create: Create,
    ) -> Result<()> {
        let context = &self.context;
        let shared = Shared {
            open_files: context.open_files.clone(),
            counters: context.counters.clone(),
            poison: context.poison.clone(),
        };
        let header = PlaceMapHeader {
            space: self.space,
            page_size: context.page_size,
            compression,
        };
        let placed = if create == Create::New {
            let placed = PlacedPages::create(header, self.file.clone(), map, shared)?;
            self.write_placed_header(&header)?;
            placed
        } else {
            let in_use = self.file.acquire(&context.open_files, create)?;
            let length = in_use.bytes().len();
            drop(in_use);
            let length = length.map_err(|e| Error::io("measure", self.path(), e))?;
            PlacedPages::open(header, self.file.clone(), length, map, shared)?
        };
        self.pages.store(placed.pages(), Ordering::Release);
        self.placed = Some(placed);
        Ok(())
    }

    /// Makes a file that says of itself that its pages are placed: durable but for its name.
    fn write_placed_header(&self, header: &PlaceMapHeader) -> Result<()> {
        let in_use = self.file.acquire(&self.context.open_files, Create::New)?;
        let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
        block.copy_from_slice(&header.encode_in_data());
        let written = in_use.change_size(|file| file.write_at(&block, 0));
        let made = written
            .map_err(|e| Error::io("write", self.path(), e))
            .and_then(|()| in_use.sync());
        drop(in_use);
        if made.is_err() {
            // The first error is the one to tell.
            let _ = self.file.unmake();
        }
        made
    }

    /// That the file is not one of placed pages: its map is missing.
    fn refuse_placed(&self, file: &dyn File) -> Result<()> {
        let failed = |e| Error::io("read", self.path(), e);
        if file.len().map_err(failed)? < BLOCK_LEN as u64 {
            return Ok(());
        }
        let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
        // Where it cannot be read, neither can a page: reads of those are what fails.
        if file.read_at(&mut block, 0).is_err() || !place_map::is_placed(&block) {
            return Ok(());
        }
        let detail = format!(
            "the pages of this file are placed, and the map that says where they are, {}, is \
             missing; restore it from where the file is from, or let `inkstone recover --salvage` \
             look for the pages",
            place_map_file_name(self.space)
        );
        Err(Error::corrupt_file(self.path(), 0, detail))
    }

    /// Whether its pages have no place of their own.
    pub fn is_placed(&self) -> bool {
        self.placed.is_some()
    }

    /// How its pages lie, and new ones are stored.
    pub fn placement(&self) -> Placement {
        self.placed.as_ref().map_or(Placement::InPlace, |placed| {
            Placement::Placed(placed.compression())
        })
    }

    /// Where the pages are, if not each at its own place.
    pub(super) fn placed(&self) -> Option<&PlacedPages> {
        self.placed.as_ref()
    }

    /// Looks at a file that was opened for the first time.
    fn check(&self, file: &dyn File) -> Result<Option<AtomicWriteLimits>> {
        let page_size = self.context.page_size;
        let limits = self
            .context
            .atomic
            .then(|| check_atomic(file, self.path(), page_size));
        self.measure(file)?;
        self.refuse_placed(file)?;
        limits.transpose()
    }

    /// The tablespace.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Limits of untorn writes under `doublewrite=atomic`.
    pub(crate) fn atomic_limits(&self) -> Option<AtomicWriteLimits> {
        self.atomic
    }

    /// Physical size, whole pages.
    pub fn pages(&self) -> u32 {
        self.pages.load(Ordering::Acquire)
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        match &self.placed {
            Some(placed) => placed.file_bytes(),
            None => self.offset(PageNo(self.pages())),
        }
    }

    /// Bytes of the file that no page has, when so many are allocated. Others may allocate
    /// meanwhile.
    pub fn free_bytes(&self, allocated_pages: u64) -> u64 {
        match &self.placed {
            Some(placed) => placed.free_bytes(),
            None => {
                let free = u64::from(self.pages()).saturating_sub(allocated_pages);
                free * u64::from(self.context.page_size)
            }
        }
    }

    /// File offset of a page.
    pub(crate) fn offset(&self, page: PageNo) -> u64 {
        u64::from(page.0) * u64::from(self.context.page_size)
    }

    /// Fails with a precise error if the file has fewer than `pages` pages: what the tablespace
    /// says of itself must be there.
    pub fn require_pages(&self, pages: u32) -> Result<()> {
        let found = self.pages();
        if found >= pages || mutants::on(Mutant::ShortFileAccepted) {
            return Ok(());
        }
        let offset = self.offset(PageNo(found));
        let detail = format!("the file has {found} pages, {pages} are in use: it was cut short");
        Err(Error::corrupt_file(self.path(), offset, detail))
    }

    /// Makes the file at least `pages` pages long, in steps that double up to 16 MiB. When the
    /// disk is full nothing changes.
    pub fn ensure_pages(&self, pages: u32) -> Result<()> {
        if self.promises(pages) {
            return Ok(());
        }
        let _grow = self.grow.lock();
        if self.promises(pages) {
            return Ok(());
        }
        let (now, step) = self.growth();
        let stepped = now.saturating_add(step).max(pages);
        let grown = match self.extend(now, stepped) {
            Err(Error::DiskFull { .. }) if stepped > pages => self.extend(now, pages),
            result => result,
        };
        // The latch is held: nothing cuts the file.
        paranoid!(
            grown.is_err() || self.pages() >= pages,
            "a file has {} pages after growing to {pages}",
            self.pages()
        );
        grown
    }

    /// For pages that there were before, as the log says: the file's pages reach as far as those.
    /// Placed ones had their units, and find them again when they are written.
    pub fn reach_pages(&self, pages: u32) -> Result<()> {
        let Some(placed) = &self.placed else {
            return self.ensure_pages(pages);
        };
        let _grow = self.grow.lock();
        self.context.poison.check()?;
        placed.reach_pages(pages)?;
        self.pages.fetch_max(pages, Ordering::AcqRel);
        paranoid!(
            placed.pages() >= self.pages(),
            "a map of {} pages is that of {}",
            placed.pages(),
            self.pages()
        );
        Ok(())
    }

    /// Whether each of the first `pages` pages can be written, however full the disk is.
    pub fn promises(&self, pages: u32) -> bool {
        let placed = self.placed.as_ref();
        pages <= self.pages() && placed.is_none_or(|placed| placed.promises(pages))
    }

    /// Whether there is room for what the images of so many dirty pages may become.
    pub fn has_room(&self, dirty: usize) -> bool {
        let placed = self.placed.as_ref();
        placed.is_none_or(|placed| placed.has_room(dirty.min(self.pages() as usize)))
    }

    /// Makes that room. When the disk is full nothing changes.
    pub fn make_room(&self, dirty: usize) -> Result<()> {
        let placed = self.placed.as_ref();
        let dirty = dirty.min(self.pages() as usize);
        placed.map_or(Ok(()), |placed| placed.make_room(dirty))
    }

    /// How many pages are promised, and how many more are to be.
    fn growth(&self) -> (u32, u32) {
        if let Some(placed) = &self.placed {
            let now = placed.promised();
            return (now, (now / PLACED_GROWTH_PARTS).min(PLACED_GROWTH_MAX));
        }
        let now = self.pages();
        let step_max = (GROWTH_BYTES_MAX / u64::from(self.context.page_size)) as u32;
        (now, now.min(step_max))
    }

    /// As [`SpaceFile::ensure_pages`], but not a page more.
    pub(super) fn ensure_pages_exact(&self, pages: u32) -> Result<()> {
        let _grow = self.grow.lock();
        if self.promises(pages) {
            return Ok(());
        }
        self.extend(self.growth().0, pages)
    }

    /// The caller holds `grow`.
    fn extend(&self, from: u32, to: u32) -> Result<()> {
        self.context.poison.check()?;
        if let Some(placed) = &self.placed {
            placed.ensure_pages(to)?;
            self.pages.fetch_max(to, Ordering::AcqRel);
            return Ok(());
        }
        paranoid!(from < to, "a file of {from} pages grows to {to}");
        // First, while there may be space for it.
        self.context.page_lsns.reserve(self.space, from..to);
        let (start, end) = (self.offset(PageNo(from)), self.offset(PageNo(to)));
        let in_use = self.acquire()?;
        let allocated = in_use.change_size(|file| file.allocate(start, end - start));
        if let Err(e) = allocated {
            self.measure(in_use.bytes())?;
            return Err(Error::io("extend", self.path(), e));
        }
        self.pages.store(to, Ordering::Release);
        Ok(())
    }

    fn measure(&self, file: &dyn File) -> Result<()> {
        let length = file.len();
        let length = length.map_err(|e| Error::io("measure", self.path(), e))?;
        // A part of a page at the end is a growth that a crash interrupted.
        let pages = length / u64::from(self.context.page_size);
        let pages = u32::try_from(pages).map_err(|_| {
            Error::corrupt_file(self.path(), 0, format!("{pages} pages: more than 2^32 - 1"))
        })?;
        self.pages.store(pages, Ordering::Release);
        Ok(())
    }

    /// Begins to give pages at the end back to the file system: the file does not grow until this
    /// is over. The caller holds no page latch.
    pub fn begin_cut(&self) -> Cut<'_> {
        let _growing = self.grow.lock();
        Cut {
            before: self.pages(),
            _growing,
            file: self,
        }
    }

    /// Reads a page and checks its checksum and id.
    pub fn read_page(&self, page: PageNo, buffer: &mut [u8]) -> Result<()> {
        let id = PageId::new(self.space, page);
        invariant!(
            buffer.len() == self.context.page_size as usize,
            "buffer of {} bytes for page {id}",
            buffer.len()
        );
        if page.0 >= self.pages() {
            return Err(self.beyond_end(id));
        }
        if let Some(placed) = &self.placed {
            return self.read_placed(placed, id, buffer);
        }
        let in_use = self.acquire()?;
        let timing = self.context.counters.time(Timed::PageRead);
        let read = in_use.bytes().read_at(buffer, self.offset(page));
        drop((timing, in_use));
        read.map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => self.beyond_end(id),
            _ => Error::io(format!("read page {id} of"), self.path(), e),
        })?;
        self.context.counters.add(Counter::DataReadCalls, 1);
        self.context.counters.add(Counter::PagesRead, 1);
        if mutants::on(Mutant::PageUnchecked) {
            return Ok(());
        }
        check_page(buffer, id).map_err(|c| Error::corrupt_page(self.path(), id, c))
    }

    /// Reads a page as it is, whatever is wrong with its bytes; zeroes, if it was never written. Of
    /// a placed one, an error where it is not the image that was placed.
    pub(crate) fn read_unchecked(&self, page: PageNo, buffer: &mut [u8]) -> Result<()> {
        paranoid!(
            buffer.len() == self.context.page_size as usize,
            "page {page} is read into {} bytes",
            buffer.len()
        );
        if let Some(placed) = &self.placed {
            let id = PageId::new(self.space, page);
            let newest = placed.read(page, buffer)?;
            return self.check_placed(id, newest, page_lsn(buffer));
        }
        let in_use = self.acquire()?;
        let read = in_use.bytes().read_at(buffer, self.offset(page));
        read.map_err(|e| Error::io(format!("read page {page} of"), self.path(), e))
    }

    /// Reads a page from where the map says it is: what is found there must be what was placed.
    fn read_placed(&self, placed: &PlacedPages, id: PageId, buffer: &mut [u8]) -> Result<()> {
        let timing = self.context.counters.time(Timed::PageRead);
        let newest = placed.read(id.page, buffer)?;
        drop(timing);
        self.context.counters.add(Counter::PagesRead, 1);
        check_page(buffer, id).map_err(|c| Error::corrupt_page(self.path(), id, c))?;
        self.check_placed(id, newest, page_lsn(buffer))
    }

    fn check_placed(&self, id: PageId, newest: Option<Lsn>, found: Lsn) -> Result<()> {
        match newest.filter(|&newest| newest != found) {
            None => Ok(()),
            Some(newest) => {
                let detail = format!(
                    "page LSN {found} is stale: the page was placed with LSN {newest}, and the \
                     storage lost that write or answered with older bytes; restore the file from a \
                     backup"
                );
                let corrupt = Corrupt::at(16, detail);
                Err(Error::corrupt_page(self.path(), id, corrupt))
            }
        }
    }

    fn beyond_end(&self, id: PageId) -> Error {
        let detail = format!(
            "the page is beyond the end of the file of {} pages",
            self.pages()
        );
        Error::corrupt_page(self.path(), id, Corrupt::at(0, detail))
    }

    /// Writes a page past pool and log: checksum and all are as they are to be. It is durable when
    /// the file is synced.
    pub fn write_raw_page(&self, page: PageNo, bytes: &[u8]) -> Result<()> {
        paranoid!(
            bytes.len() == self.context.page_size as usize,
            "{} bytes are written as page {page}",
            bytes.len()
        );
        if let Some(placed) = &self.placed {
            return placed.write(page, bytes);
        }
        let id = PageId::new(self.space, page);
        let in_use = self.acquire()?;
        let written = in_use.begin_write().write_at(bytes, self.offset(page));
        written.map_err(|e| Error::io(format!("write page {id} to"), self.path(), e))
    }

    /// Makes everything written so far durable. A failure poisons the engine.
    pub fn sync(&self) -> Result<()> {
        self.acquire()?.sync()?;
        self.placed.as_ref().map_or(Ok(()), PlacedPages::settle)
    }

    /// Writes what the place map lacks, durably, and gives the free end of the file back to the
    /// file system. One that is dropped meanwhile needs no map.
    pub(crate) fn settle_places(&self, dirty: usize) -> Result<()> {
        let settled = self.placed.as_ref().map_or(Ok(()), |placed| {
            placed.settle()?;
            placed.cut_file(dirty)
        });
        match settled {
            Err(_) if self.is_removed() => Ok(()),
            settled => settled,
        }
    }

    /// Moves some of the last images of a placed tablespace to free units before them, of which so
    /// many pages are dirty at most. How many bytes moved.
    pub(crate) fn gather_places(&self, dirty: usize) -> Result<u64> {
        let gathered = self.placed.as_ref().map(|placed| placed.gather(dirty));
        match gathered {
            Some(Err(_)) if self.is_removed() => Ok(0),
            gathered => gathered.unwrap_or(Ok(0)),
        }
    }

    /// Whether something was done to the file that no sync has covered.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.file.is_unsynced()
    }

    /// Whether its table was dropped: it will not be read again.
    pub(crate) fn is_removed(&self) -> bool {
        self.file.is_removed()
    }

    /// Its name is gone.
    pub(super) fn set_removed(&self) {
        self.file.set_removed(&self.context.open_files);
    }

    /// The open file, to be used. The caller has no other one in use: see
    /// [`open_files`](super::open_files).
    pub(crate) fn acquire(&self) -> Result<FileInUse<'_>> {
        let open_files = &self.context.open_files;
        self.file.acquire(open_files, Create::Never)
    }

    /// The open file, for a caller that has others in use; `None` if that would mean to wait.
    pub(crate) fn try_acquire(&self) -> Result<Option<FileInUse<'_>>> {
        self.file.try_acquire(&self.context.open_files)
    }

    /// Whether pages that were just written must be followed by a sync. `first_writes`: some of
    /// the pages may never have been on disk, so the file system may have to note that their
    /// blocks now hold data.
    pub(crate) fn needs_sync(&self, first_writes: bool) -> bool {
        if self.placed.is_some() {
            // To space that was perhaps never written.
            return self.context.flush_method != FlushMethod::ODsync
                && !mutants::on(Mutant::ImageUnsynced);
        }
        match self.context.flush_method {
            FlushMethod::Fsync | FlushMethod::ODirect => true,
            FlushMethod::ODsync => false,
            FlushMethod::ODirectNoFsync => {
                first_writes
                    || self.file.is_size_unsynced()
                    || self
                        .atomic
                        .is_some_and(|a| a.unit_max_opt < self.context.page_size)
            }
        }
    }
}

impl Drop for SpaceFile {
    fn drop(&mut self) {
        self.context.open_files.close(&self.file);
    }
}

/// A file that is being cut. Dropped before it is finished, it is as long as it was.
pub struct Cut<'f> {
    file: &'f SpaceFile,
    /// Pages before.
    before: u32,
    /// Held until the end: a thread that wants the file to grow waits.
    _growing: MutexGuard<'f, ()>,
}

impl Cut<'_> {
    /// From now on the file counts as having `pages` pages: there are no reads behind them, and a
    /// thread that allocates there finds that the file must grow first. It must have at least as
    /// many.
    pub fn lower(&mut self, pages: u32) {
        invariant!(pages <= self.before, "a cut to {pages} pages lengthens");
        self.file.pages.store(pages, Ordering::Release);
    }

    /// Cuts the file to its lower size. No write to a page behind it may be under way or follow.
    pub fn finish(mut self) -> Result<()> {
        let file = self.file;
        file.context.poison.check()?;
        let pages = file.pages();
        paranoid!(
            pages <= self.before,
            "a file of {} pages is cut to {pages}",
            self.before
        );
        if let Some(placed) = &file.placed {
            placed.cut(pages);
            self.before = pages;
            return Ok(());
        }
        let length = file.offset(PageNo(pages));
        let in_use = file.acquire()?;
        let cut = in_use.change_size(|file| file.set_len(length));
        cut.map_err(|e| Error::io("cut", file.path(), e))?;
        self.before = pages;
        Ok(())
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        paranoid!(
            self.file.pages() <= self.before,
            "a file of {} pages has {} while it is cut",
            self.before,
            self.file.pages()
        );
        self.file.pages.store(self.before, Ordering::Release);
    }
}

/// Refuses files that cannot take a page in an untorn write.
fn check_atomic(file: &dyn File, path: &Path, page_size: u32) -> Result<AtomicWriteLimits> {
    let path = path.display();
    let why = match file.atomic_write_limits() {
        None => "the file system or device offers none".to_owned(),
        Some(limits) if (limits.unit_min..=limits.unit_max).contains(&page_size) => {
            return Ok(limits);
        }
        Some(limits) => format!(
            "it offers {} to {} bytes, and a page has {page_size}",
            limits.unit_min, limits.unit_max
        ),
    };
    Err(Error::Unsupported(format!(
        "doublewrite=atomic needs untorn writes (RWF_ATOMIC) to {path}, but {why}; \
         use doublewrite=on, or XFS on Linux 6.16 or later"
    )))
}
