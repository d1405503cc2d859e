//! The tablespace files of a database: one file for each tablespace, named by its id.
//!
//! # Promises
//!
//! 1. [`SpaceFiles::get`] costs a hash look-up under a shared latch of one of 16 shards. Files are
//!    opened when they are first asked for.
//! 2. A created file is durable, name and size, when [`SpaceFiles::create`] returned; a failed
//!    creation leaves no file.
//! 3. After [`SpaceFiles::remove`] the name is gone for good (ids are never reused); whoever still
//!    holds the file may go on writing to it, to no effect.
//! 4. A file grows before pages are written into its new part, and a full disk changes nothing.
//! 5. A file is cut only in two steps ([`SpaceFile::begin_cut`]): nobody reads or writes behind the
//!    new end while it is cut.
//! 6. Bytes and lengths found on disk lead to errors, never to panics.
//!
//! The number of pages is the physical size of the file: how many of them are in use is written in
//! the tablespace's own pages.

use super::page_lsn_map::PageLsnMap;
use crate::aside::{ASIDE_SUFFIX, SetAside, set_aside};
use crate::counters::{Counter, Counters};
use crate::mutants::{self, Mutant};
use crate::options::{Doublewrite, FlushMethod, Options};
use crate::poison::Poison;
use crate::poison::syncs::{FileSyncs, SyncLead, SyncTurn, SyncUnderWay, WantedSync};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{HashMap, Mutex, MutexGuard, RwLock};
use crate::{Error, Result, invariant};
use inkstone_format::header::check_page;
use inkstone_format::{Corrupt, PageId, PageNo, SpaceId};
use inkstone_io::{AtomicWriteLimits, Create, Directory, ErrorKind, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SHARDS: usize = 16;
/// A file doubles until it grows by this much at a time.
const GROWTH_BYTES_MAX: u64 = 16 << 20;

/// Name of a tablespace's file in the database directory.
pub fn space_file_name(space: SpaceId) -> String {
    match space.0 {
        0 => "catalog.ink".to_owned(),
        id => format!("t{id:08x}.ink"),
    }
}

/// The tablespace of a file name, the inverse of [`space_file_name`].
pub fn parse_space_file_name(name: &str) -> Option<SpaceId> {
    let space = match name.strip_prefix('t').and_then(|n| n.strip_suffix(".ink")) {
        None => SpaceId(0),
        Some(digits) => SpaceId(u32::from_str_radix(digits, 16).ok()?),
    };
    (space_file_name(space) == name).then_some(space)
}

/// What all files of a database share.
#[derive(Debug)]
struct Context {
    page_size: u32,
    flush_method: FlushMethod,
    atomic: bool,
    counters: Arc<Counters>,
    poison: Poison,
    page_lsns: PageLsnMap,
}

#[derive(Debug)]
enum Entry {
    Open(Arc<SpaceFile>),
    /// Removed by this process.
    Removed,
}

/// The tablespace files of an open database.
#[derive(Debug)]
pub struct SpaceFiles {
    directory: Arc<dyn Directory>,
    context: Arc<Context>,
    /// Held while a file is created, opened or removed.
    ddl: Mutex<()>,
    shards: [RwLock<HashMap<SpaceId, Entry>>; SHARDS],
}

impl SpaceFiles {
    /// Prepares to open files of the database in `directory`; `options.page_size` is resolved.
    pub fn new(
        directory: Arc<dyn Directory>,
        options: &Options,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Result<Self> {
        let atomic = options.doublewrite == Doublewrite::Atomic;
        let direct = is_direct(options.flush_method);
        if atomic && !direct {
            return Err(Error::InvalidOption {
                name: "doublewrite".to_owned(),
                value: options.doublewrite.to_string(),
                reason: format!(
                    "untorn writes exist only past the page cache, and flush_method is {}; \
                     set it to O_DIRECT or O_DIRECT_NO_FSYNC",
                    options.flush_method
                ),
            });
        }
        let page_lsns = PageLsnMap::new(
            directory.clone(),
            direct,
            options.buffer_pool_size,
            counters.clone(),
            poison.clone(),
        );
        let context = Arc::new(Context {
            page_lsns,
            page_size: options.page_size as u32,
            flush_method: options.flush_method,
            atomic,
            counters,
            poison,
        });
        Ok(Self {
            directory,
            context,
            ddl: Mutex::new(()),
            shards: Default::default(),
        })
    }

    /// Bytes in a page.
    pub fn page_size(&self) -> u32 {
        self.context.page_size
    }

    /// What is known of the pages' LSNs.
    pub fn page_lsns(&self) -> &PageLsnMap {
        &self.context.page_lsns
    }

    /// Path of a tablespace's file.
    pub fn path(&self, space: SpaceId) -> PathBuf {
        self.directory.path_of(&space_file_name(space))
    }

    fn shard(&self, space: SpaceId) -> &RwLock<HashMap<SpaceId, Entry>> {
        &self.shards[space.0 as usize % SHARDS]
    }

    /// The file if it is open.
    pub fn get(&self, space: SpaceId) -> Option<Arc<SpaceFile>> {
        match self.shard(space).read().get(&space) {
            Some(Entry::Open(file)) => Some(file.clone()),
            Some(Entry::Removed) | None => None,
        }
    }

    /// The file, opened if need be; `None` if there is no such file.
    pub fn find(&self, space: SpaceId) -> Result<Option<Arc<SpaceFile>>> {
        if let Some(file) = self.get(space) {
            return Ok(Some(file));
        }
        let _ddl = self.ddl.lock();
        match self.shard(space).read().get(&space) {
            Some(Entry::Open(file)) => return Ok(Some(file.clone())),
            Some(Entry::Removed) => return Ok(None),
            None => {}
        }
        let exists = self.directory.exists(&space_file_name(space));
        if !exists.map_err(|e| Error::io("look for", &self.path(space), e))? {
            return Ok(None);
        }
        let file = self.open_file(space, Create::Never)?;
        self.insert(space, Entry::Open(file.clone()));
        Ok(Some(file))
    }

    /// The file, opened if need be.
    pub fn open(&self, space: SpaceId) -> Result<Arc<SpaceFile>> {
        match self.find(space)? {
            Some(file) => Ok(file),
            None if space == SpaceId(0) => Err(Error::NotADatabase {
                path: self.directory.path().to_owned(),
                reason: format!("{} is missing", space_file_name(space)),
            }),
            None => Err(Error::corrupt_file(
                &self.path(space),
                0,
                format!("the file of tablespace {space} is missing"),
            )),
        }
    }

    /// Creates the file of a new tablespace. Its pages are zeroes.
    pub fn create(&self, space: SpaceId, initial_pages: u32) -> Result<Arc<SpaceFile>> {
        self.context.poison.check()?;
        let _ddl = self.ddl.lock();
        if self.shard(space).read().contains_key(&space) {
            return Err(Error::AlreadyExists(format!("tablespace {space}")));
        }
        let file = self.open_file(space, Create::New)?;
        if let Err(error) = self.initialise(&file, initial_pages) {
            // The first error is the one to report. An empty file left behind is no danger: its
            // id is never given out again.
            let _ = self.directory.remove(&space_file_name(space));
            return Err(error);
        }
        self.insert(space, Entry::Open(file.clone()));
        Ok(file)
    }

    /// For recovery: the file, created if it does not exist (the crash may have come before its
    /// name was durable), with at least `pages` pages.
    pub fn open_or_create(&self, space: SpaceId, pages: u32) -> Result<Arc<SpaceFile>> {
        match self.find(space)? {
            Some(file) => {
                file.ensure_pages(pages)?;
                Ok(file)
            }
            None => self.create(space, pages),
        }
    }

    /// Removes a tablespace's file. Not an error if there is none: recovery may repeat it.
    pub fn remove(&self, space: SpaceId) -> Result<()> {
        self.context.poison.check()?;
        let _ddl = self.ddl.lock();
        match self.directory.remove(&space_file_name(space)) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("remove", &self.path(space), e)),
        }
        self.insert(space, Entry::Removed);
        self.page_lsns().release(space);
        self.sync_directory()
    }

    /// Gives the file of a tablespace that is not this database's another name: see
    /// [`SetAside`].
    pub(crate) fn set_aside(&self, space: SpaceId, why: &'static str) -> Result<SetAside> {
        self.context.poison.check()?;
        let _ddl = self.ddl.lock();
        let aside = set_aside(&*self.directory, &space_file_name(space), why)?;
        self.insert(space, Entry::Removed);
        self.page_lsns().release(space);
        self.sync_directory()?;
        Ok(aside)
    }

    /// The tablespaces that have a file, in order of their ids. Whether each has a table is for the
    /// catalog to say.
    pub fn list(&self) -> Result<Vec<SpaceId>> {
        let names = self.names()?;
        let mut spaces: Vec<_> = names
            .iter()
            .filter_map(|name| parse_space_file_name(name))
            .collect();
        spaces.sort_unstable();
        Ok(spaces)
    }

    /// The highest tablespace id that has a file, also one that was set aside: it may get its name again.
    pub fn highest(&self) -> Result<Option<SpaceId>> {
        let was = |name: &str| Some(name.split_once(ASIDE_SUFFIX)?.0.to_owned());
        let names = self.names()?;
        let spaces = names
            .iter()
            .filter_map(|name| parse_space_file_name(&was(name).unwrap_or_else(|| name.clone())));
        Ok(spaces.max())
    }

    fn names(&self) -> Result<Vec<String>> {
        let names = self.directory.list();
        names.map_err(|e| Error::io("list", self.directory.path(), e))
    }

    /// Makes everything written to any open file durable, whatever the flush method: for the end
    /// of recovery and for close.
    pub fn sync_all(&self) -> Result<()> {
        self.context.poison.check()?;
        for shard in &self.shards {
            let open = |entry: &Entry| match entry {
                Entry::Open(file) => Some(file.clone()),
                Entry::Removed => None,
            };
            let files: Vec<_> = shard.read().values().filter_map(open).collect();
            for file in files {
                file.sync()?;
            }
        }
        Ok(())
    }

    fn insert(&self, space: SpaceId, entry: Entry) {
        self.shard(space).write().insert(space, entry);
    }

    fn initialise(&self, file: &SpaceFile, pages: u32) -> Result<()> {
        file.ensure_pages_exact(pages)?;
        file.sync()?;
        self.sync_directory()
    }

    fn sync_directory(&self) -> Result<()> {
        if mutants::on(Mutant::DirectoryUnsynced) {
            return Ok(());
        }
        let poison = &self.context.poison;
        poison.sync(self.directory.path(), || self.directory.sync())
    }

    fn open_file(&self, space: SpaceId, create: Create) -> Result<Arc<SpaceFile>> {
        let path = self.path(space);
        let options = open_options(self.context.flush_method, create);
        let opened = self.directory.open(&space_file_name(space), options);
        let file = opened.map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => Error::AlreadyExists(format!("file {}", path.display())),
            _ => Error::io("open", &path, e),
        })?;
        let checked = SpaceFile::new(space, path, file, self.context.clone());
        if checked.is_err() && create == Create::New {
            let _ = self.directory.remove(&space_file_name(space));
        }
        checked.map(Arc::new)
    }
}

/// How files with pages in them are opened under a flush method.
pub(crate) fn open_options(method: FlushMethod, create: Create) -> OpenOptions {
    OpenOptions {
        create,
        read_only: false,
        direct: is_direct(method),
        dsync: method == FlushMethod::ODsync,
    }
}

fn is_direct(method: FlushMethod) -> bool {
    matches!(method, FlushMethod::ODirect | FlushMethod::ODirectNoFsync)
}

/// The open file of a tablespace.
#[derive(Debug)]
pub struct SpaceFile {
    space: SpaceId,
    path: PathBuf,
    file: Arc<dyn File>,
    context: Arc<Context>,
    /// What the file promises for untorn writes, if they are used.
    atomic: Option<AtomicWriteLimits>,
    /// Physical size, pages.
    pages: AtomicU32,
    /// Held while the size changes.
    grow: Mutex<()>,
    /// Number of changes of size; the file begins with one, as nobody knows whether what was
    /// done before it was opened is durable.
    changes: AtomicU64,
    /// How many of them were there before the last finished sync began.
    changes_synced: AtomicU64,
    syncs: FileSyncs,
}

impl SpaceFile {
    fn new(
        space: SpaceId,
        path: PathBuf,
        file: Arc<dyn File>,
        context: Arc<Context>,
    ) -> Result<Self> {
        let atomic = match context.atomic {
            true => Some(check_atomic(&*file, &path, context.page_size)?),
            false => None,
        };
        let this = Self {
            space,
            path,
            file,
            context,
            atomic,
            pages: AtomicU32::new(0),
            grow: Mutex::new(()),
            changes: AtomicU64::new(1),
            changes_synced: AtomicU64::new(0),
            syncs: FileSyncs::default(),
        };
        this.measure()?;
        Ok(this)
    }

    /// The tablespace.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes.
    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// Limits of untorn writes under `doublewrite=atomic`.
    pub(crate) fn atomic_limits(&self) -> Option<AtomicWriteLimits> {
        self.atomic
    }

    /// Physical size, whole pages.
    pub fn pages(&self) -> u32 {
        self.pages.load(Ordering::Acquire)
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
        Err(Error::corrupt_file(&self.path, offset, detail))
    }

    /// Makes the file at least `pages` pages long, in steps that double up to 16 MiB. When the
    /// disk is full nothing changes.
    pub fn ensure_pages(&self, pages: u32) -> Result<()> {
        if pages <= self.pages() {
            return Ok(());
        }
        let _grow = self.grow.lock();
        let now = self.pages();
        if pages <= now {
            return Ok(());
        }
        let step_max = (GROWTH_BYTES_MAX / u64::from(self.context.page_size)) as u32;
        let stepped = now.saturating_add(now.min(step_max)).max(pages);
        match self.extend(now, stepped) {
            Err(Error::DiskFull { .. }) if stepped > pages => self.extend(now, pages),
            result => result,
        }
    }

    /// As [`SpaceFile::ensure_pages`], but not a page more.
    fn ensure_pages_exact(&self, pages: u32) -> Result<()> {
        let _grow = self.grow.lock();
        let now = self.pages();
        match pages > now {
            true => self.extend(now, pages),
            false => Ok(()),
        }
    }

    /// The caller holds `grow`.
    fn extend(&self, from: u32, to: u32) -> Result<()> {
        self.context.poison.check()?;
        // First, as failing is harmless here, and would not be when the pages are written.
        self.context.page_lsns.reserve(self.space, from..to)?;
        let (start, end) = (self.offset(PageNo(from)), self.offset(PageNo(to)));
        let allocated = self.file.allocate(start, end - start);
        // Also counted after a failure: the file system may have reserved a part.
        self.changes.fetch_add(1, Ordering::AcqRel);
        if let Err(e) = allocated {
            self.measure()?;
            return Err(Error::io("extend", &self.path, e));
        }
        self.pages.store(to, Ordering::Release);
        Ok(())
    }

    fn measure(&self) -> Result<()> {
        let length = self.file.len();
        let length = length.map_err(|e| Error::io("measure", &self.path, e))?;
        // A part of a page at the end is a growth that a crash interrupted.
        let pages = length / u64::from(self.context.page_size);
        let pages = u32::try_from(pages).map_err(|_| {
            Error::corrupt_file(&self.path, 0, format!("{pages} pages: more than 2^32 - 1"))
        })?;
        self.pages.store(pages, Ordering::Release);
        Ok(())
    }

    /// Begins to give pages at the end back to the file system: the file does not grow until this is
    /// over. The caller holds no page latch.
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
        let read = self.file.read_at(buffer, self.offset(page));
        read.map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => self.beyond_end(id),
            _ => Error::io(format!("read page {id} of"), &self.path, e),
        })?;
        self.context.counters.add(Counter::PagesRead, 1);
        if mutants::on(Mutant::PageUnchecked) {
            return Ok(());
        }
        check_page(buffer, id).map_err(|c| Error::corrupt_page(&self.path, id, c))
    }

    fn beyond_end(&self, id: PageId) -> Error {
        let detail = format!(
            "the page is beyond the end of the file of {} pages",
            self.pages()
        );
        Error::corrupt_page(&self.path, id, Corrupt::at(0, detail))
    }

    /// Writes a page of a file that no table has yet, past pool and log: checksum and all are as they are
    /// to be.
    pub fn write_new_page(&self, page: PageNo, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_at(bytes, self.offset(page));
        written.map_err(|e| Error::io(format!("write page {page} of"), &self.path, e))
    }

    /// Makes everything written so far durable. A failure poisons the engine.
    pub fn sync(&self) -> Result<()> {
        let wanted = self.syncs.want();
        loop {
            self.context.poison.check()?;
            match self.sync_turn(wanted) {
                Turn::Done => return Ok(()),
                Turn::Busy => self.syncs.wait(wanted),
                Turn::Lead(sync) => return sync.end(self.file.sync()),
            }
        }
    }

    /// The syncs of this file, of which one is under way at a time.
    pub(crate) fn syncs(&self) -> &FileSyncs {
        &self.syncs
    }

    /// Whose turn it is to run the wanted sync. The caller checks the poison first.
    pub(crate) fn sync_turn(&self, wanted: WantedSync) -> Turn<'_> {
        match self.syncs.turn(wanted) {
            SyncTurn::Done => Turn::Done,
            SyncTurn::Busy => Turn::Busy,
            SyncTurn::Lead(lead) => Turn::Lead(SyncOfFile {
                file: self,
                changes: self.changes.load(Ordering::Acquire),
                under_way: self.context.poison.begin_sync(),
                lead,
            }),
        }
    }

    /// Whether pages that were just written must be followed by a sync. `first_writes`: some of
    /// the pages may never have been on disk, so the file system may have to note that their
    /// blocks now hold data.
    pub(crate) fn needs_sync(&self, first_writes: bool) -> bool {
        match self.context.flush_method {
            FlushMethod::Fsync | FlushMethod::ODirect => true,
            FlushMethod::ODsync => false,
            FlushMethod::ODirectNoFsync => {
                let synced = self.changes_synced.load(Ordering::Acquire);
                first_writes
                    || synced < self.changes.load(Ordering::Acquire)
                    || self
                        .atomic
                        .is_some_and(|a| a.unit_max_opt < self.context.page_size)
            }
        }
    }
}

/// As [`SyncTurn`], of a tablespace's file.
pub(crate) enum Turn<'f> {
    Done,
    Busy,
    Lead(SyncOfFile<'f>),
}

/// A sync that the holder runs.
pub(crate) struct SyncOfFile<'f> {
    file: &'f SpaceFile,
    /// Changes of size that it covers.
    changes: u64,
    under_way: SyncUnderWay,
    lead: SyncLead<'f>,
}

impl<'f> SyncOfFile<'f> {
    /// The file.
    pub fn file(&self) -> &'f SpaceFile {
        self.file
    }

    /// Takes notice of the result.
    pub fn end(self, result: std::io::Result<()>) -> Result<()> {
        let context = &self.file.context;
        context.counters.add(Counter::DataSyncs, 1);
        let result = self.under_way.end(&self.file.path, result);
        if result.is_ok() {
            let synced = &self.file.changes_synced;
            synced.fetch_max(self.changes, Ordering::AcqRel);
        }
        self.lead.end(result)
    }
}

/// A file that is being cut. Dropped before it is finished, it is as long as it was.
pub struct Cut<'f> {
    file: &'f SpaceFile,
    /// Pages before.
    before: u32,
    /// Held until the end: whoever wants the file to grow waits.
    _growing: MutexGuard<'f, ()>,
}

impl Cut<'_> {
    /// From now on the file counts as having `pages` pages: nobody reads behind them, and who
    /// allocates there finds that the file must grow first. It must have at least as many.
    pub fn lower(&mut self, pages: u32) {
        invariant!(pages <= self.before, "a cut to {pages} pages lengthens");
        self.file.pages.store(pages, Ordering::Release);
    }

    /// Cuts the file to its lower size. No write to a page behind it may be under way or follow.
    pub fn finish(mut self) -> Result<()> {
        let file = self.file;
        file.context.poison.check()?;
        let pages = file.pages();
        let cut = file.file.set_len(file.offset(PageNo(pages)));
        // Also counted after a failure, as after one of growth.
        file.changes.fetch_add(1, Ordering::AcqRel);
        cut.map_err(|e| Error::io("cut", &file.path, e))?;
        self.before = pages;
        Ok(())
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
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
