//! Options: one declarative table, from which the struct, parsing, and the help text come. The
//! names are InnoDB's without the prefix wherever InnoDB has the option.

use crate::paranoid::paranoid;
use crate::{Error, Result};
use std::fmt;

/// An option's value as text: how it is parsed and shown.
pub trait OptionValue: Sized {
    /// Parses text; the error says what is accepted.
    fn parse(text: &str) -> std::result::Result<Self, String>;
    /// The inverse of `parse`.
    fn show(&self) -> String;
    /// What it accepts.
    const KIND: OptionKind;
}

/// One option, for a program that lists them: [`Options::describe`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionDescription {
    /// Its name, as [`Options::set`] takes it.
    pub name: &'static str,
    /// What it accepts.
    pub kind: OptionKind,
    /// Its default, as text.
    pub default: String,
    /// What it does, with units.
    pub help: &'static str,
}

/// What an option accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// on or off.
    Bool,
    /// A whole number; k, m and g are understood behind it.
    Number,
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl OptionValue for u64 {
    const KIND: OptionKind = OptionKind::Number;

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let (digits, shift) = match text.trim().to_ascii_lowercase() {
            t if t.ends_with('k') => (t[..t.len() - 1].to_owned(), 10),
            t if t.ends_with('m') => (t[..t.len() - 1].to_owned(), 20),
            t if t.ends_with('g') => (t[..t.len() - 1].to_owned(), 30),
            t => (t, 0),
        };
        let number: u64 = digits
            .parse()
            .map_err(|_| "a whole number, as in 65536, 64k, 16m or 2g".to_owned())?;
        number
            .checked_mul(1 << shift)
            .ok_or_else(|| "a number below 2^64".to_owned())
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl OptionValue for bool {
    const KIND: OptionKind = OptionKind::Bool;

    fn parse(text: &str) -> std::result::Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "on" | "1" | "true" => Ok(true),
            "off" | "0" | "false" => Ok(false),
            _ => Err("on or off".to_owned()),
        }
    }
    fn show(&self) -> String {
        if *self { "on" } else { "off" }.to_owned()
    }
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }
        impl OptionValue for $name {
            const KIND: OptionKind = OptionKind::Choice(&[$($text),+]);

            fn parse(text: &str) -> std::result::Result<Self, String> {
                $(if text.eq_ignore_ascii_case($text) { return Ok(Self::$variant); })+
                Err(["one of", $($text),+].join(" "))
            }
            fn show(&self) -> String {
                match self { $(Self::$variant => $text.to_owned(),)+ }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.show()) }
        }
    };
}

choice! {
    /// What a commit waits for.
    Durability {
        /// 0: the commit is written and synced within about a second. A killed process may lose it.
        Lazy = "0",
        /// 1: the log is written and synced before commit returns. Survives power loss.
        Sync = "1",
        /// 2: the log is written before commit returns and synced within about a second. Survives
        /// a killed process, not power loss.
        Write = "2",
    }
}
choice! {
    /// How pages are protected from torn writes.
    Doublewrite {
        /// Each page is written to the doublewrite file first. Safe on every file system.
        On = "on",
        /// Pages are written in place only. Safe only where the file system never tears a page.
        Off = "off",
        /// Pages are written in place with `RWF_ATOMIC`; refused where the device cannot.
        Atomic = "atomic",
    }
}
choice! {
    /// Where the pages of a new table are kept.
    PagePlacement {
        /// Each at its own place in the file, over its older version. `doublewrite` protects it.
        InPlace = "in_place",
        /// Written once, compressed, where nothing is that recovery may need.
        Placed = "placed",
    }
}
choice! {
    /// How pages of a placed table are compressed.
    PageCompression {
        /// As they are.
        None = "none",
        /// LZ4: those of which that saves 4 KiB and more.
        Lz4 = "lz4",
        /// Zstandard, likewise: smaller, and slower to write and to read.
        Zstd = "zstd",
    }
}
choice! {
    /// How data files are opened and made durable.
    FlushMethod {
        /// Through the page cache, then fdatasync.
        Fsync = "fsync",
        /// Through the page cache, each write durable (`O_DSYNC`).
        ODsync = "O_DSYNC",
        /// Past the page cache, then fdatasync.
        ODirect = "O_DIRECT",
        /// Past the page cache; fdatasync only when a file has grown. For devices without a
        /// volatile cache.
        ODirectNoFsync = "O_DIRECT_NO_FSYNC",
    }
}
choice! {
    /// How the log is written.
    LogWrite {
        /// pwrite, then fdatasync.
        Sync = "sync",
        /// io_uring: write and sync are submitted together, and several flushes may be in flight.
        Async = "async",
    }
}
choice! {
    /// What the log has of large bulk inserts.
    BulkLogging {
        /// All rows.
        Full = "full",
        /// Not the rows of pages that such an insert has to itself: they are on disk before its
        /// transaction commits. With `log_archive` it is as `full`.
        Minimal = "minimal",
    }
}
choice! {
    /// What closing does before it returns. Whatever is committed is durable afterwards with each,
    /// also what was committed with [`Durability::Lazy`] or [`Durability::Write`].
    Shutdown {
        /// 0: what purge can remove is removed and what recovery has left to be undone is undone,
        /// then as 1. It takes as long as that takes.
        Slow = "0",
        /// 1: all pages are written. The next opening needs no recovery.
        Fast = "1",
        /// 2: only the log is written. The next opening recovers, as after a kill.
        LogOnly = "2",
    }
}
choice! {
    /// Which system calls do the I/O.
    IoBackend {
        /// io_uring where the kernel allows it, POSIX calls otherwise.
        Auto = "auto",
        /// pread, pwrite, fdatasync.
        Posix = "posix",
        /// io_uring; refused where the kernel forbids it.
        IoUring = "io_uring",
    }
}

impl FlushMethod {
    /// Whether files with pages in them are read and written past the page cache.
    pub(crate) fn is_direct(self) -> bool {
        matches!(self, Self::ODirect | Self::ODirectNoFsync)
    }
}

/// Files of tables that the database may have open at once at least.
pub const OPEN_FILES_MIN: u64 = 10;

macro_rules! options {
    ($($field:ident: $type:ty = $default:expr, $help:literal;)+) => {
        /// Everything that can be set when a database is opened. [`Options::describe`] lists the
        /// options with their defaults.
        ///
        /// ```
        /// use inkstone::{Durability, Options};
        /// let mut options = Options {
        ///     buffer_pool_size: 64 << 20, // bytes
        ///     flush_log_at_trx_commit: Durability::Write,
        ///     ..Options::default()
        /// };
        /// options.set("log_file_size", "256m")?; // as text, from a configuration file
        /// assert_eq!(options.log_file_size, 256 << 20);
        /// assert!(options.set("log_file_size", "much").is_err());
        /// options.validate()?;
        /// # Ok::<(), inkstone::Error>(())
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Options { $(#[doc = $help] pub $field: $type,)+ }

        impl Default for Options {
            fn default() -> Self { Self { $($field: $default,)+ } }
        }

        impl Options {
            /// Every option: its name, what it accepts, its default and its description.
            pub fn describe() -> Vec<OptionDescription> {
                let defaults = Self::default();
                vec![$(OptionDescription {
                    name: stringify!($field),
                    kind: <$type as OptionValue>::KIND,
                    default: defaults.$field.show(),
                    help: $help,
                },)+]
            }

            /// Sets one option by name from text, as in `set("doublewrite", "off")`.
            pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
                match name {
                    $(stringify!($field) => {
                        self.$field = <$type as OptionValue>::parse(value)
                            .map_err(|expected| invalid(name, value, &format!("expected {expected}")))?;
                    })+
                    _ => return Err(invalid(name, value, "there is no such option; `inkstone options` lists them")),
                }
                Ok(())
            }

            /// Name and value of every option.
            pub fn show(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($field), self.$field.show()),)+]
            }
        }
    };
}

/// The least `log_buffer_size`.
pub(crate) const LOG_BUFFER_SIZE_MIN: u64 = 2 << 20;

options! {
    page_size: u64 = 16 << 10, "Bytes in a page: 4k, 8k, 16k, 32k or 64k. Chosen when a database is created; afterwards it must match (0: whatever the database has)";
    buffer_pool_size: u64 = 128 << 20, "Bytes of page frames in memory; at least 64 pages";
    buffer_pool_instances: u64 = 8, "Partitions of the buffer pool, 1 to 64";
    buffer_pool_dump_at_shutdown: bool = true, "Write the resident page numbers at close and load those pages in the background at open";
    log_file_size: u64 = 512 << 20, "Bytes that the files of the redo log take at most; flushing is paced so that they suffice, and writers wait where they do not. At least 4m";
    log_buffer_size: u64 = 16 << 20, "Bytes of the log ring in memory, a power of two, at least 2m; no more than a quarter of log_file_size is used";
    log_file_buffering: bool = false, "Write the log through the page cache (off: O_DIRECT). What a commit only hands to the operating system goes through it always";
    log_write: LogWrite = LogWrite::Sync, "sync: pwrite and fdatasync; async: io_uring with several flushes in flight";
    log_write_through: bool = false, "Open the log with O_DSYNC: each write is durable, no separate sync";
    log_archive: bool = false, "Keep log segments that recovery no longer needs (in log/archive) instead of recycling them";
    bulk_logging: BulkLogging = BulkLogging::Full, "What the log has of bulk inserts of several megabytes: full, all rows; minimal, not the rows of pages that the insert has to itself, which are on disk before it commits (log_archive=on: as full)";
    flush_log_at_trx_commit: Durability = Durability::Sync, "What a commit waits for: 1 written and synced, 2 written, 0 neither (both within about a second)";
    doublewrite: Doublewrite = Doublewrite::On, "Protection from torn pages: on, off, or atomic (RWF_ATOMIC)";
    doublewrite_skip_fresh: bool = true, "Freshly initialised pages skip the doublewrite file: recovery rebuilds them from the log";
    page_placement: PagePlacement = PagePlacement::InPlace, "Where the pages of new tables are kept that do not say it themselves: in_place, each over its older version, with doublewrite; placed, each written once, to free space of the file";
    page_compression: PageCompression = PageCompression::Lz4, "How pages of new placed tables are compressed that do not say it themselves: none, lz4 or zstd";
    page_compression_level: u64 = 1, "Level of zstd for new placed tables that do not say it themselves, 1 (fast) to 19 (small)";
    flush_method: FlushMethod = FlushMethod::ODirect, "How data files are written: fsync, O_DSYNC, O_DIRECT, O_DIRECT_NO_FSYNC";
    open_files: u64 = 0, "Files of tables that are open at once at most; the others are opened when they are used. At least 10 (0: half of the files that the process may have open, at most 16384)";
    io_backend: IoBackend = IoBackend::Auto, "auto, posix or io_uring";
    fast_shutdown: Shutdown = Shutdown::Fast, "What closing does: 0 purges and rolls back what is left, then as 1; 1 writes all pages, so that the next opening needs no recovery; 2 writes only the log, and the next opening recovers";
    lock_wait_timeout_ms: u64 = 5_000, "Milliseconds that a statement waits for a row lock, where its transaction does not say otherwise";
    lock_memory_max: u64 = 64 << 20, "Bytes of one transaction's locks in one tree, beyond which neighbouring ones are joined to ranges, which lock more (0: whatever can be joined)";
    slow_wait_ms: u64 = 100, "Waits for the disk, for room or for a lock of so many milliseconds and longer are kept with their reasons, the latest 64 (0: none)";
    version_store_memory: u64 = 64 << 20, "Bytes of old versions kept in memory; more go to a temporary file";
    read_only: bool = false, "Nothing on disk is changed: what recovery does stays in memory, and every write is refused";
    force_recovery: u64 = 0, "For a database that does not open, which is read_only then: 1 damaged pages are left out; 2 the same; 3 and 4 what was not committed is not rolled back, and stays invisible; 5 it counts as committed. 0: off";
    recovery_threads: u64 = 0, "Threads that read and apply the log during recovery (0: one for each core)";
    redo_before_open: bool = false, "Opening waits until recovery has changed all pages; otherwise a page is changed when it is first read, and the others in the background";
    recovery_memory: u64 = 0, "Bytes of changes that recovery gathers from the log in memory; more go to a temporary file (0: half of the buffer pool, at least 16m)";
}

/// What a table is made with where that is to differ from the database's options; `None`: as those
/// say when it is made. It stays so, whatever they say later.
///
/// ```
/// use inkstone::{Database, Options, PageCompression, PagePlacement, TableOptions};
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path(), Options::default())?;
/// let placed = TableOptions::new().page_placement(PagePlacement::Placed);
/// let events = db.create_table_with("events", &[], &placed)?;
/// assert_eq!(events.page_placement(), PagePlacement::Placed);
/// assert_eq!(events.page_compression(), PageCompression::Lz4); // the database's option
///
/// let plain = db.create_table("plain", &[])?;
/// assert_eq!(plain.page_placement(), PagePlacement::InPlace);
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableOptions {
    /// Where its pages are kept.
    pub page_placement: Option<PagePlacement>,
    /// How its pages are compressed. A table with compressed pages is placed: beside
    /// [`PagePlacement::InPlace`] there is only [`PageCompression::None`].
    pub page_compression: Option<PageCompression>,
    /// The level of [`PageCompression::Zstd`], 1 to 19; no other has one.
    pub page_compression_level: Option<u64>,
}

impl TableOptions {
    /// All as the database's options say.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the table's pages are kept.
    pub fn page_placement(mut self, placement: PagePlacement) -> Self {
        self.page_placement = Some(placement);
        self
    }

    /// How the table's pages are compressed; any other than none makes it a placed one.
    pub fn page_compression(mut self, compression: PageCompression) -> Self {
        self.page_compression = Some(compression);
        self
    }

    /// How hard [`PageCompression::Zstd`] tries, 1 to 19.
    pub fn page_compression_level(mut self, level: u64) -> Self {
        self.page_compression_level = Some(level);
        self
    }

    /// Sets one by name from text, as in `set("page_placement", "placed")`.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let expected = |expected: String| invalid(name, value, &format!("expected {expected}"));
        match name {
            "page_placement" => {
                self.page_placement = Some(OptionValue::parse(value).map_err(expected)?);
            }
            "page_compression" => {
                self.page_compression = Some(OptionValue::parse(value).map_err(expected)?);
            }
            "page_compression_level" => {
                self.page_compression_level = Some(OptionValue::parse(value).map_err(expected)?);
            }
            _ => {
                let reason = "a table has no such option; there are page_placement, \
                              page_compression and page_compression_level";
                return Err(invalid(name, value, reason));
            }
        }
        Ok(())
    }

    /// Name and value of each that is set.
    pub fn show(&self) -> Vec<(&'static str, String)> {
        let placement = self.page_placement.map(|p| ("page_placement", p.show()));
        let compression = self
            .page_compression
            .map(|c| ("page_compression", c.show()));
        let level = self
            .page_compression_level
            .map(|level| ("page_compression_level", level.show()));
        let shown = placement.into_iter().chain(compression).chain(level);
        let shown: Vec<_> = shown.collect();
        let settable = |(name, value): &(&str, String)| Self::new().set(name, value).is_ok();
        paranoid!(shown.iter().all(settable), "{shown:?} cannot be set");
        shown
    }

    /// What a table with these is in a database where one that says nothing is `all`.
    pub(crate) fn resolve(&self, all: &NewTable) -> Result<NewTable> {
        let wanted = self.page_compression;
        let is_compressed = wanted.is_some_and(|wanted| wanted != PageCompression::None);
        let placement = match self.page_placement {
            None if is_compressed => PagePlacement::Placed,
            placement => placement.unwrap_or(all.placement),
        };
        let compression = match placement {
            PagePlacement::InPlace => wanted.unwrap_or(PageCompression::None),
            PagePlacement::Placed => wanted.unwrap_or(all.compression),
        };
        let goes_together =
            placement == PagePlacement::Placed || compression == PageCompression::None;
        paranoid!(
            goes_together || self.page_placement.is_some(),
            "{self:?} beside {all:?} makes compressed pages in place"
        );
        if !goes_together {
            return Err(invalid(
                "page_compression",
                &compression.show(),
                "the table's page_placement is in_place, and only placed pages are compressed; \
                 take page_placement=placed, or page_compression=none",
            ));
        }
        let resolved = NewTable {
            placement,
            compression,
            level: self.page_compression_level.unwrap_or(all.level),
        };
        resolved.check_level(self.page_compression_level)?;
        Ok(resolved)
    }
}

/// What a new table is; of the database's options: one that does not say it itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTable {
    pub placement: PagePlacement,
    pub compression: PageCompression,
    pub level: u64,
}

impl NewTable {
    /// Whether a level that was asked for is one, and of use.
    fn check_level(&self, asked: Option<u64>) -> Result<()> {
        let Some(level) = asked else { return Ok(()) };
        let refuse = |reason: &str| invalid("page_compression_level", &level.show(), reason);
        if self.compression != PageCompression::Zstd {
            return Err(refuse(&format!(
                "the table's pages are stored with page_compression={}, which has no levels; \
                 take page_compression=zstd",
                self.compression
            )));
        }
        if !is_level(level) {
            return Err(refuse(LEVELS));
        }
        paranoid!(
            self.placement == PagePlacement::Placed && self.level == level,
            "level {level} was asked for, and the table is {self:?}"
        );
        Ok(())
    }
}

/// What is said of a level that there is not.
const LEVELS: &str = "must be from 1 to 19";

fn is_level(level: u64) -> bool {
    u8::try_from(level).is_ok_and(|level| inkstone_format::image::ZSTD_LEVELS.contains(&level))
}

fn invalid(name: &str, value: &str, reason: &str) -> Error {
    Error::InvalidOption {
        name: name.to_owned(),
        value: value.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Bytes that recovery gathers from the log at least, whatever the limits are.
pub(crate) const RECOVERY_MEMORY_MIN: u64 = 16 << 20;

/// What was made smaller because the system limits the memory of this process and those beside it
/// (a container, a service): above the limit it is killed, most likely in recovery, and again at
/// each new start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBound {
    /// The system's limit, bytes.
    pub limit: u64,
    /// `buffer_pool_size` as it was asked for, and as it is.
    pub buffer_pool_size: (u64, u64),
    /// `recovery_memory` as it was asked for, and as it is.
    pub recovery_memory: (u64, u64),
}

impl fmt::Display for MemoryBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memory is limited to {} bytes (control group): buffer_pool_size was set to {} instead of {}, \
             recovery_memory to {} instead of {}, so that all together stays below four fifths of it; raise the \
             limit, or lower buffer_pool_size, log_buffer_size or version_store_memory",
            self.limit,
            self.buffer_pool_size.1,
            self.buffer_pool_size.0,
            self.recovery_memory.1,
            self.recovery_memory.0
        )
    }
}

impl Options {
    /// Bytes of changes that recovery gathers before it applies them.
    pub fn recovery_memory_bytes(&self) -> u64 {
        match self.recovery_memory {
            0 => (self.buffer_pool_size / 2).max(RECOVERY_MEMORY_MIN),
            bytes => bytes,
        }
    }

    /// Whether nothing on disk is changed.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.force_recovery > 0
    }

    /// Threads that read and apply the log during recovery.
    pub fn recovery_thread_count(&self) -> usize {
        match self.recovery_threads {
            0 => crate::sync::thread::available_parallelism().map_or(1, usize::from),
            count => count as usize,
        }
    }

    /// Makes the pool, and what recovery gathers beside it, small enough for the system's limit on
    /// memory, if there is one: with log buffer and old versions they take at most four fifths of
    /// it. `page_size` must be resolved.
    pub(crate) fn fit_memory(&mut self, limit: Option<u64>) -> Option<MemoryBound> {
        let limit = limit?;
        paranoid!(self.page_size > 0, "memory is measured in pages of no size");
        let (pool, recovery) = (self.buffer_pool_size, self.recovery_memory_bytes());
        let beside = self
            .log_buffer_size
            .saturating_add(self.version_store_memory);
        let usable = (limit / 5 * 4).saturating_sub(beside);
        let least = 64 * self.page_size;
        let pages_fit = usable / self.page_size * self.page_size;
        self.buffer_pool_size = pool.min(pages_fit.max(least));
        let room = usable.saturating_sub(self.buffer_pool_size);
        let fitting = self.recovery_memory_bytes();
        if fitting > room {
            self.recovery_memory = fitting.min(room.max(RECOVERY_MEMORY_MIN));
        }
        let now = (self.buffer_pool_size, self.recovery_memory_bytes());
        paranoid!(
            now.0 <= pool && now.0 >= least.min(pool) && now.1 <= recovery,
            "{pool} and {recovery} bytes were made to fit {limit}: {now:?}"
        );
        (now != (pool, recovery)).then_some(MemoryBound {
            limit,
            buffer_pool_size: (pool, now.0),
            recovery_memory: (recovery, now.1),
        })
    }

    pub(crate) fn validate_force_recovery(&self) -> Result<()> {
        let reason = match self.force_recovery {
            0..=5 => return Ok(()),
            6 => {
                "opening without the log is not supported: pages that the log has not been applied to \
                 do not fit together; take 5 at most, or a backup"
            }
            _ => "must be from 0 to 5",
        };
        let value = self.force_recovery.to_string();
        Err(invalid("force_recovery", &value, reason))
    }

    /// Checks every option, alone and together. `page_size` must be resolved (not 0).
    pub fn validate(&self) -> Result<()> {
        let check = |ok: bool, name: &str, value: u64, reason: &str| {
            if ok {
                Ok(())
            } else {
                Err(invalid(name, &value.to_string(), reason))
            }
        };
        check(
            inkstone_format::header::page_size_is_valid(self.page_size as usize),
            "page_size",
            self.page_size,
            "must be 4096, 8192, 16384, 32768 or 65536",
        )?;
        check(
            (64..u64::from(u32::MAX)).contains(&(self.buffer_pool_size / self.page_size)),
            "buffer_pool_size",
            self.buffer_pool_size,
            "must hold at least 64 pages, and fewer than 2^32 - 1",
        )?;
        check(
            (1..=64).contains(&self.buffer_pool_instances),
            "buffer_pool_instances",
            self.buffer_pool_instances,
            "must be from 1 to 64",
        )?;
        check(
            (4 << 20..1 << 44).contains(&self.log_file_size),
            "log_file_size",
            self.log_file_size,
            "must be at least 4m, and less than 16t",
        )?;
        check(
            self.log_buffer_size.is_power_of_two()
                && (LOG_BUFFER_SIZE_MIN..=1 << 32).contains(&self.log_buffer_size),
            "log_buffer_size",
            self.log_buffer_size,
            "must be a power of two from 2m to 4g",
        )?;
        check(
            self.open_files == 0 || self.open_files >= OPEN_FILES_MIN,
            "open_files",
            self.open_files,
            "must be 0, or at least 10",
        )?;
        check(
            is_level(self.page_compression_level),
            "page_compression_level",
            self.page_compression_level,
            LEVELS,
        )?;
        self.validate_force_recovery()?;
        check(
            self.version_store_memory >= 1 << 20,
            "version_store_memory",
            self.version_store_memory,
            "must be at least 1m",
        )?;
        check(
            self.recovery_threads <= 256,
            "recovery_threads",
            self.recovery_threads,
            "must be from 0 to 256",
        )
    }
}
