//! The tablespace files of a database: one file for each tablespace, named by its id.
//!
//! # Promises
//!
//! 1. Files are opened when they are first asked for; how many are open at once is limited
//!    ([`open_files`](super::open_files)). Tested by `files_are_opened_when_first_asked_for`,
//!    `no_more_tables_than_the_option_says_are_open`.
//! 2. A created file is durable, name and size, when [`SpaceFiles::create`] returned; a failed
//!    creation leaves no file. Tested by
//!    `a_crash_while_files_are_created_leaves_nothing_half_made`, `a_full_disk_changes_nothing`.
//!    Tested by the simulator (`directory-unsynced`).
//! 3. After [`SpaceFiles::remove`] the name is gone for good (ids are never reused). A thread that
//!    is using the file may go on writing to it, to no effect; later uses get an error. Tested by
//!    `files_are_created_grown_in_steps_and_removed`, `a_file_in_use_outlives_its_name`.
//! 4. A file grows before pages are written into its new part, and a full disk changes nothing.
//!    Tested by `a_full_disk_changes_nothing`, `dirty_pages_have_their_place`.
//! 5. A file is cut only in two steps ([`SpaceFile::begin_cut`]): there are no reads or writes
//!    behind the new end while it is cut. Tested by `cuts_under_load`,
//!    `a_crash_at_every_step_around_a_cut`.
//! 6. Bytes and lengths found on disk lead to errors, never to panics. Tested by
//!    `missing_short_and_damaged_files_are_told_apart`, `a_page_of_another_place_is_not_taken`.
//!
//! [`SpaceFiles::get`] costs a hash look-up under a shared latch of one of 16 shards.
//!
//! The number of pages is the physical size of the file: how many of them are in use is written in
//! the tablespace's own pages.

use super::StoreOptions;
use super::open_files::OpenFiles;
use super::page_lsn_map::PageLsnMap;
use super::placed::{is_empty_place_map, parse_place_map_file_name, place_map_file_name};
use super::retrying_directory::RetryingDirectory;
use super::space_file::{Context, Layout, SpaceFile};
use super::table_file::{TableFile, sync_side_by_side};
use crate::aside::{ASIDE_SUFFIX, SetAside, set_aside};
use crate::counters::Counters;
use crate::mutants::{self, Mutant};
use crate::options::{
    Doublewrite, FlushMethod, NewTable, OPEN_FILES_MIN, PageCompression, PagePlacement,
    TableOptions,
};
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::sync::{HashMap, Mutex, RwLock, thread};
use crate::{Error, Result};
use inkstone_format::SpaceId;
use inkstone_format::image::{Compression, ZSTD_LEVELS};
use inkstone_io::{Batch, Create, Directory, ErrorKind, OpenOptions, Vfs};
use std::path::PathBuf;
use std::sync::Arc;

const SHARDS: usize = 16;
/// Syncs that are under way at once.
const SYNCS_MAX: usize = 64;
/// A thread more for so many place maps that may have to be settled, and threads at most.
const MAPS_OF_A_THREAD: usize = 8;
const SETTLERS_MAX: usize = 16;
/// Tablespace files that are open at once at most if the option does not say how many.
const OPEN_FILES_DEFAULT_MAX: u64 = 16 << 10;

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

/// How the pages of a new tablespace lie in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each at its own place.
    InPlace,
    /// Where there is room, by a map; stored so.
    Placed(Compression),
}

impl Placement {
    /// That of a table with these options.
    pub(crate) fn of(table: NewTable) -> Self {
        let level = table.level.clamp(
            u64::from(*ZSTD_LEVELS.start()),
            u64::from(*ZSTD_LEVELS.end()),
        );
        paranoid!(
            level == table.level || table.compression != PageCompression::Zstd,
            "{table:?} has a level that there is not"
        );
        match (table.placement, table.compression) {
            (PagePlacement::InPlace, _) => Self::InPlace,
            (PagePlacement::Placed, PageCompression::None) => Self::Placed(Compression::None),
            (PagePlacement::Placed, PageCompression::Lz4) => Self::Placed(Compression::Lz4),
            (PagePlacement::Placed, PageCompression::Zstd) => {
                Self::Placed(Compression::Zstd(level as u8))
            }
        }
    }

    /// The options that it comes from; those that do not matter are none.
    pub(crate) fn options(self) -> TableOptions {
        let (placement, compression) = match self {
            Self::InPlace => (PagePlacement::InPlace, Compression::None),
            Self::Placed(compression) => (PagePlacement::Placed, compression),
        };
        let options = TableOptions::new().page_placement(placement);
        match compression {
            Compression::None => options.page_compression(PageCompression::None),
            Compression::Lz4 => options.page_compression(PageCompression::Lz4),
            Compression::Zstd(level) => options
                .page_compression(PageCompression::Zstd)
                .page_compression_level(level.into()),
        }
    }
}

#[derive(Debug)]
enum Entry {
    Known(Arc<SpaceFile>),
    /// Removed by this process.
    Removed,
}

/// The tablespace files of an open database.
#[derive(Debug)]
pub struct SpaceFiles {
    /// For all but tablespace files.
    directory: Arc<dyn Directory>,
    /// For tablespace files.
    tables: Arc<dyn Directory>,
    context: Arc<Context>,
    /// Held while a file is created, opened or removed.
    ddl: Mutex<()>,
    shards: [RwLock<HashMap<SpaceId, Entry>>; SHARDS],
}

impl SpaceFiles {
    /// Prepares to open files of the database in `directory`.
    pub fn new(
        directory: Arc<dyn Directory>,
        options: StoreOptions,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Result<Self> {
        let atomic = options.doublewrite == Doublewrite::Atomic;
        let direct = options.flush_method.is_direct();
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
        let open_files = Arc::new(OpenFiles::new(limit_of(options.open_files)));
        let tables = directory;
        let directory = RetryingDirectory::new(tables.clone(), open_files.clone());
        let directory: Arc<dyn Directory> = Arc::new(directory);
        let page_lsns = PageLsnMap::new(
            directory.clone(),
            direct,
            options.pool_bytes,
            counters.clone(),
            poison.clone(),
        );
        let context = Arc::new(Context {
            page_lsns,
            page_size: options.page_size,
            flush_method: options.flush_method,
            atomic,
            counters,
            poison,
            open_files,
        });
        Ok(Self {
            directory,
            tables,
            context,
            ddl: Mutex::new(()),
            shards: Default::default(),
        })
    }

    /// The directory of the database, for whatever is opened beside tablespace files: where there
    /// are too few descriptors, one of those is closed.
    pub fn directory(&self) -> &Arc<dyn Directory> {
        &self.directory
    }

    /// The cache of open files.
    pub(crate) fn open_files(&self) -> &OpenFiles {
        &self.context.open_files
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

    /// The file if it is known already.
    pub fn get(&self, space: SpaceId) -> Option<Arc<SpaceFile>> {
        match self.shard(space).read().get(&space) {
            Some(Entry::Known(file)) => {
                paranoid!(
                    file.space() == space,
                    "the file of tablespace {space} is that of {}",
                    file.space()
                );
                Some(file.clone())
            }
            Some(Entry::Removed) | None => None,
        }
    }

    /// Whether a tablespace has a file.
    pub fn exists(&self, space: SpaceId) -> Result<bool> {
        match self.shard(space).read().get(&space) {
            Some(Entry::Known(_)) => return Ok(true),
            Some(Entry::Removed) => return Ok(false),
            None => {}
        }
        let exists = self.directory.exists(&space_file_name(space));
        exists.map_err(|e| Error::io("look for", &self.path(space), e))
    }

    /// The file, opened if need be; `None` if there is no such file.
    pub fn find(&self, space: SpaceId) -> Result<Option<Arc<SpaceFile>>> {
        if let Some(file) = self.get(space) {
            return Ok(Some(file));
        }
        let _ddl = self.ddl.lock();
        if let Some(file) = self.get(space) {
            return Ok(Some(file));
        }
        if !self.exists(space)? {
            return Ok(None);
        }
        let has_map = self.has_place_map(space)?;
        let placement = if has_map {
            Placement::Placed(Compression::None)
        } else {
            Placement::InPlace
        };
        let file = self.open_file(space, Create::Never, placement)?;
        self.insert(space, Entry::Known(file.clone()));
        Ok(Some(file))
    }

    fn has_place_map(&self, space: SpaceId) -> Result<bool> {
        let name = place_map_file_name(space);
        let exists = self.directory.exists(&name);
        exists.map_err(|e| Error::io("look for", &self.directory.path_of(&name), e))
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
    pub fn create(
        &self,
        space: SpaceId,
        initial_pages: u32,
        placement: Placement,
    ) -> Result<Arc<SpaceFile>> {
        self.context.poison.check()?;
        let _ddl = self.ddl.lock();
        if self.shard(space).read().contains_key(&space) {
            return Err(Error::AlreadyExists(format!("tablespace {space}")));
        }
        // What a crash left of one that was being created or removed.
        self.remove_place_map(space)?;
        let file = self.open_file(space, Create::New, placement)?;
        if let Err(error) = self.initialise(&file, initial_pages) {
            // The first error is the one to report. An empty file left behind is no danger: its
            // id is never given out again.
            let _ = self.directory.remove(&space_file_name(space));
            let _ = self.remove_place_map(space);
            return Err(error);
        }
        paranoid!(
            file.pages() >= initial_pages,
            "a new file has {} pages of {initial_pages}",
            file.pages()
        );
        self.insert(space, Entry::Known(file.clone()));
        Ok(file)
    }

    /// For recovery: the file, created if it does not exist (the crash may have come before its
    /// name was durable), with at least `pages` pages.
    pub fn open_or_create(&self, space: SpaceId, pages: u32) -> Result<Arc<SpaceFile>> {
        match self.find(space)? {
            Some(file) => {
                file.reach_pages(pages)?;
                Ok(file)
            }
            None => self.create(space, pages, Placement::InPlace),
        }
    }

    /// A tablespace's place map goes after its file, which without it would pass for one of pages
    /// in place.
    pub fn remove_place_map(&self, space: SpaceId) -> Result<()> {
        let name = place_map_file_name(space);
        match self.directory.remove(&name) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(Error::io("remove", &self.directory.path_of(&name), e))
            }
            _ => Ok(()),
        }
    }

    /// Removes place maps without a file and without a place: a crash has left them of tablespaces
    /// that were being made.
    pub fn remove_empty_place_maps(&self) -> Result<()> {
        for name in self.names()? {
            let Some(space) = parse_place_map_file_name(&name) else {
                continue;
            };
            if !self.exists(space)? && is_empty_place_map(&*self.directory, &name)? {
                self.remove_place_map(space)?;
            }
        }
        Ok(())
    }

    /// Makes the place maps durable that do not say where their pages are, before a checkpoint that
    /// passes changes of these pages. Where there are many, by several threads: each waits for a
    /// few syncs of each of its maps, and syncs side by side take little longer than one. So many
    /// pages of theirs are dirty, at most.
    pub(crate) fn settle_places(&self, dirty: usize) -> Result<()> {
        if mutants::on(Mutant::PlacesUnsettled) {
            return Ok(());
        }
        let placed = self.placed_files();
        let helpers = (placed.len() / MAPS_OF_A_THREAD).min(SETTLERS_MAX);
        let left = Mutex::new(placed.into_iter());
        let outcome = Mutex::new(Ok(()));
        let work = || {
            while let Some(file) = { left.lock().next() } {
                if let Err(error) = file.settle_places(dirty) {
                    *outcome.lock() = Err(error);
                    break;
                }
            }
        };
        thread::scope(|scope| {
            for number in 1..=helpers {
                // With fewer threads it only takes longer.
                let _ = scope.spawn(format!("ink-settle-{number}"), work);
            }
            work();
        });
        let (left, outcome) = (left.into_inner().len(), outcome.into_inner());
        paranoid!(
            outcome.is_err() || left == 0,
            "{left} place maps were left out"
        );
        outcome
    }

    fn placed_files(&self) -> Vec<Arc<SpaceFile>> {
        let mut placed = Vec::new();
        for shard in &self.shards {
            placed.extend(shard.read().values().filter_map(|entry| match entry {
                Entry::Known(file) if file.placed().is_some() => Some(file.clone()),
                _ => None,
            }));
        }
        placed
    }

    /// The tablespace's table was dropped: its file is not read any more, as pages that it lacks
    /// are about to be forgotten. It is still there until [`remove`](Self::remove).
    pub fn set_dropped(&self, space: SpaceId) {
        if let Some(file) = self.get(space) {
            file.set_removed();
        }
    }

    /// Whether the tablespace's table was dropped by this process.
    pub(super) fn is_dropped(&self, space: SpaceId) -> bool {
        match self.shard(space).read().get(&space) {
            Some(Entry::Known(file)) => file.is_removed(),
            Some(Entry::Removed) => true,
            None => false,
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
        self.remove_place_map(space)?;
        self.note_removed(space);
        self.sync_directory()
    }

    fn note_removed(&self, space: SpaceId) {
        if let Some(file) = self.get(space) {
            file.set_removed();
        }
        self.insert(space, Entry::Removed);
        self.page_lsns().release(space);
    }

    /// Gives the file of a tablespace that is not this database's another name: see
    /// [`SetAside`].
    pub(crate) fn set_aside(&self, space: SpaceId, why: &'static str) -> Result<SetAside> {
        self.context.poison.check()?;
        let _ddl = self.ddl.lock();
        let aside = set_aside(&*self.directory, &space_file_name(space), why)?;
        self.note_removed(space);
        self.sync_directory()?;
        Ok(aside)
    }

    /// Whether this process has removed the tablespace's file, or set it aside.
    pub(crate) fn is_removed(&self, space: SpaceId) -> bool {
        matches!(self.shard(space).read().get(&space), Some(Entry::Removed))
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
        paranoid!(
            spaces.is_sorted_by(|a, b| a < b),
            "a tablespace has two files"
        );
        Ok(spaces)
    }

    /// The highest tablespace id that has a file, also one that was set aside: it may get its name
    /// again.
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

    /// Makes everything durable that was done to any file and no sync has covered, for the end of
    /// creation and for close. The number of syncs does not grow with unchanged files, and they run
    /// side by side.
    pub fn sync_all(&self, vfs: &dyn Vfs) -> Result<()> {
        self.context.poison.check()?;
        let unsynced = |entry: &Entry| match entry {
            Entry::Known(file) => file.is_unsynced().then(|| file.clone()),
            Entry::Removed => None,
        };
        let mut files = Vec::new();
        for shard in &self.shards {
            files.extend(shard.read().values().filter_map(unsynced));
        }
        if files.is_empty() {
            return Ok(());
        }
        let queue = self.open_files().with_descriptor(|| vfs.batch(SYNCS_MAX));
        let mut queue = queue.map_err(|e| Error::io("sync", self.directory.path(), e))?;
        let mut rest = &files[..];
        while !rest.is_empty() {
            let taken = self.sync_some(rest, &mut *queue)?;
            paranoid!(
                taken > 0,
                "{} files are left, and none is synced",
                rest.len()
            );
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Syncs as many files, from the first on, as are to be had at once; tells how many.
    fn sync_some(&self, files: &[Arc<SpaceFile>], queue: &mut dyn Batch) -> Result<usize> {
        let mut in_use = Vec::new();
        let mut taken = 0;
        for file in files {
            let used = if in_use.is_empty() {
                file.acquire().map(Some)
            } else {
                file.try_acquire()
            };
            match used {
                Ok(Some(used)) => in_use.push(used),
                Ok(None) => break,
                Err(_) if file.is_removed() => {}
                Err(error) => return Err(error),
            }
            taken += 1;
        }
        let wanted = in_use.iter().map(|file| (file, file.want_sync()));
        paranoid!(
            in_use.len() <= taken,
            "{} files are synced of {taken}",
            in_use.len()
        );
        sync_side_by_side(queue, &self.context.poison, wanted.collect())?;
        Ok(taken)
    }

    fn insert(&self, space: SpaceId, entry: Entry) {
        let is_new = matches!(entry, Entry::Known(_));
        let before = self.shard(space).write().insert(space, entry);
        paranoid!(
            !is_new || before.is_none(),
            "tablespace {space} has a file, or had one"
        );
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

    fn open_file(
        &self,
        space: SpaceId,
        create: Create,
        placement: Placement,
    ) -> Result<Arc<SpaceFile>> {
        paranoid!(
            parse_space_file_name(&space_file_name(space)) == Some(space),
            "the file of tablespace {space} is not found again"
        );
        let file_named = |name: String| {
            TableFile::new(
                self.tables.clone(),
                name,
                self.context.flush_method,
                self.context.counters.clone(),
                self.context.poison.clone(),
            )
        };
        let layout = match placement {
            Placement::InPlace => Layout::InPlace,
            Placement::Placed(compression) => {
                let map = Arc::new(file_named(place_map_file_name(space)));
                Layout::Placed(map, compression)
            }
        };
        let file = file_named(space_file_name(space));
        SpaceFile::open(space, file, create, layout, self.context.clone()).map(Arc::new)
    }
}

/// How many tablespace files are open at once at most, by the option.
fn limit_of(open_files: u64) -> usize {
    let limit = match open_files {
        0 => inkstone_io::limits::open_files().map_or(OPEN_FILES_DEFAULT_MAX, |all| {
            (all / 2).clamp(OPEN_FILES_MIN, OPEN_FILES_DEFAULT_MAX)
        }),
        files => files,
    };
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// How files with pages in them are opened under a flush method.
pub(crate) fn open_options(method: FlushMethod, create: Create) -> OpenOptions {
    OpenOptions {
        create,
        read_only: false,
        direct: method.is_direct(),
        dsync: method == FlushMethod::ODsync,
    }
}
