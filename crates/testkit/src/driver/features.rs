//! What a run does and what it leaves out: swarm testing. A run that does everything at once does
//! nothing for long; one that never deletes fills its trees, one that never commits has giant
//! losers.

use crate::Rng;
use inkstone::internals::options::{
    BulkLogging, Doublewrite, Durability, FlushMethod, LogWrite, PageCompression, PagePlacement,
};
use inkstone::{Isolation, Options, Shutdown, TableOptions};
use inkstone_io::AtomicWriteLimits;
use inkstone_io::sim::SimVfs;

/// The features of one run. Where a list stands, each opening of the database (each transaction,
/// for isolation and durability) takes one of its choices.
#[derive(Clone, Debug)]
pub struct Features {
    /// Bytes in a page.
    pub page_size: u64,
    /// Whether the disk tears no page, tears none written atomically, or any.
    pub disk: Disk,
    /// Whether the disk has a cache that forgets.
    pub volatile_cache: bool,
    /// Protections from torn pages that suit the disk.
    pub doublewrite: Vec<Doublewrite>,
    /// Whether fresh pages skip the doublewrite file.
    pub skip_fresh: Vec<bool>,
    /// Where the pages of new tables are kept, and how those that are placed are compressed, by the
    /// database's options or the table's; none: in place.
    pub placements: Vec<(PagePlacement, PageCompression)>,
    /// How data files are written.
    pub flush_methods: Vec<FlushMethod>,
    /// Frames of the buffer pool; 64 are the least that the engine takes.
    pub pool_pages: Vec<u64>,
    /// Partitions of the buffer pool.
    pub pool_instances: Vec<u64>,
    /// Whether the pool is warmed after an orderly close.
    pub pool_dump: bool,
    /// Bytes of log that are kept.
    pub log_file_size: u64,
    /// Whether the log goes through the page cache.
    pub log_buffering: Vec<bool>,
    /// pwrite, or batches with several flushes in flight.
    pub log_write: Vec<LogWrite>,
    /// Whether the log is opened with `O_DSYNC`.
    pub log_write_through: Vec<bool>,
    /// Whether old segments are kept instead of recycled.
    pub log_archive: Vec<bool>,
    /// What the log has of bulk inserts; none: all rows.
    pub bulk_loggings: Vec<BulkLogging>,
    /// What commits wait for.
    pub durabilities: Vec<Durability>,
    /// Bytes of old versions in memory; 1 MiB is the least.
    pub version_store_memory: Vec<u64>,
    /// Bytes of changes that recovery gathers: few make many batches.
    pub recovery_memory: Vec<u64>,
    /// Levels of transactions.
    pub isolations: Vec<Isolation>,
    /// Clients whose transactions interleave.
    pub clients: usize,
    /// Tables at the same time.
    pub tables_max: usize,
    /// Tables have secondary trees.
    pub secondary_trees: bool,
    /// Tables are dropped and renamed, and new ones created after the first.
    pub ddl: bool,
    /// Savepoints, and rollbacks to them.
    pub savepoints: bool,
    /// Transactions are prepared, and decided later.
    pub xa: bool,
    /// Bulk inserts.
    pub bulk: bool,
    /// Values that lie in chains of overflow pages.
    pub long_values: bool,
    /// Rows are deleted.
    pub deletes: bool,
    /// All rows of a range are deleted at once.
    pub range_deletes: bool,
    /// Locking reads.
    pub locking_reads: bool,
    /// Statements that change rows and then fail.
    pub failing_statements: bool,
    /// Purge, checkpoints and page flushes at times of the driver's choosing, in percent of steps.
    pub upkeep_percent: u64,
    /// Percent of these that are compactions of a table.
    pub compaction_percent: u64,
    /// Long rows and large bulk inserts, so that the log comes round.
    pub heavy: bool,
    /// One client makes transactions of thousands of rows, and seldom ends them.
    pub giant: bool,
    /// How a life ends.
    pub ends: Vec<Ending>,
    /// What a close does, and what the last handle does where it closes.
    pub closes: Vec<Shutdown>,
    /// A power loss at a write or sync comes within so many of them.
    pub crash_within: Vec<u64>,
    /// Percent of openings that are interrupted, while interruptions in a row are fewer than
    /// [`Features::opening_crashes_max`].
    pub opening_crash_percent: u64,
    /// Interrupted openings in a row, at most.
    pub opening_crashes_max: u64,
    /// Other outcomes of the same power loss that are recovered and checked, at most.
    pub outcomes_max: u64,
    /// For a while pages cannot be written: for want of space, or because the device fails.
    pub spells: bool,
    /// One row of each table is changed and read more than all others: it has many versions.
    pub hot_rows: bool,
    /// Cursors stay open while their transactions go on.
    pub open_cursors: bool,
}

/// What the simulated disk does to pages in a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Tears writes at 512 or 4096 bytes.
    Tears,
    /// As `Tears`, but offers atomic writes of a page.
    AtomicWrites,
    /// Tears no page, as file systems that journal data.
    NeverTears,
}

/// How a life of the database ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Power is lost in the middle of a write or sync.
    PowerLossInside,
    /// Power is lost between two steps.
    PowerLoss,
    /// The process is killed.
    Kill,
    /// It is closed in order.
    Close,
}

/// What closes do. The log alone is what is easily done wrong.
const CLOSES: &[Shutdown] = &[
    Shutdown::Fast,
    Shutdown::LogOnly,
    Shutdown::LogOnly,
    Shutdown::Slow,
];

/// Some of the choices, at least one.
fn some<T: Copy>(rng: &mut Rng, choices: &[T]) -> Vec<T> {
    let keep = rng.pick(&[20, 50, 100]);
    let mut kept: Vec<T> = choices
        .iter()
        .copied()
        .filter(|_| rng.chance(keep))
        .collect();
    if kept.is_empty() {
        kept.push(rng.pick(choices));
    }
    kept
}

const PLACEMENTS: &[(PagePlacement, PageCompression)] = &[
    (PagePlacement::InPlace, PageCompression::None),
    (PagePlacement::Placed, PageCompression::None),
    (PagePlacement::Placed, PageCompression::Lz4),
    (PagePlacement::Placed, PageCompression::Zstd),
];

impl Features {
    /// The features of a seed.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xfea7);
        let rng = &mut rng;
        let all = rng.chance(15);
        let percent = rng.pick(&[40, 70, 90]);
        let on = move |rng: &mut Rng| all || rng.chance(percent);
        let sizes = [4096, 4096, 4096, 4096, 8192, 8192, 16384, 32768, 65536];
        let disk = match rng.below(100) {
            0..=11 => Disk::NeverTears,
            12..=24 => Disk::AtomicWrites,
            _ => Disk::Tears,
        };
        let doublewrite = match disk {
            Disk::Tears => vec![Doublewrite::On],
            Disk::AtomicWrites => some(rng, &[Doublewrite::Atomic, Doublewrite::On]),
            Disk::NeverTears => some(rng, &[Doublewrite::Off, Doublewrite::On]),
        };
        let volatile_cache = rng.chance(80);
        let methods = [
            FlushMethod::Fsync,
            FlushMethod::ODsync,
            FlushMethod::ODirect,
            // Unsafe where the cache forgets, as its documentation says.
            if volatile_cache {
                FlushMethod::ODirect
            } else {
                FlushMethod::ODirectNoFsync
            },
        ];
        let durabilities = [Durability::Sync, Durability::Write, Durability::Lazy];
        let isolations = [
            Isolation::RepeatableRead,
            Isolation::RepeatableRead,
            Isolation::ReadCommitted,
            Isolation::Serializable,
        ];
        let ends = [
            Ending::PowerLossInside,
            Ending::PowerLossInside,
            Ending::PowerLossInside,
            Ending::PowerLossInside,
            Ending::PowerLossInside,
            Ending::PowerLoss,
            Ending::Kill,
            Ending::Close,
            Ending::Close,
        ];
        let (heavy, giant) = match rng.below(100) {
            0..=7 => (true, false),
            8..=23 => (false, true),
            _ => (false, false),
        };
        Self {
            page_size: rng.pick(&sizes),
            disk,
            volatile_cache,
            doublewrite,
            skip_fresh: some(rng, &[true, false]),
            flush_methods: some(rng, &methods),
            pool_pages: some(rng, &[64, 64, 100, 300]),
            pool_instances: some(rng, &[1, 2, 8, 64]),
            pool_dump: on(rng),
            log_file_size: if heavy {
                4 << 20
            } else {
                rng.pick(&[4, 4, 8, 16]) << 20
            },
            log_buffering: some(rng, &[false, true]),
            log_write: some(rng, &[LogWrite::Sync, LogWrite::Async]),
            log_write_through: some(rng, &[false, false, true]),
            log_archive: some(rng, &[false, false, false, true]),
            durabilities: some(rng, &durabilities),
            version_store_memory: some(rng, &[1 << 20, 1 << 20, 16 << 20]),
            recovery_memory: some(rng, &[0, 1 << 12, 1 << 16, 1 << 20]),
            isolations: some(rng, &isolations),
            clients: rng.pick(&[1, 2, 4, 4, 8]),
            tables_max: rng.pick(&[1, 2, 4, 8]),
            secondary_trees: on(rng),
            ddl: on(rng),
            savepoints: on(rng),
            xa: on(rng),
            bulk: on(rng) || heavy || giant,
            long_values: on(rng) && !giant,
            deletes: on(rng),
            locking_reads: on(rng),
            failing_statements: on(rng),
            upkeep_percent: if heavy { 3 } else { rng.pick(&[0, 2, 2, 8]) },
            heavy,
            giant,
            ends: some(rng, &ends),
            crash_within: if heavy {
                vec![3000, 30_000]
            } else {
                some(rng, &[30, 300, 3000])
            },
            opening_crash_percent: rng.pick(&[0, 30, 70]),
            opening_crashes_max: rng.pick(&[1, 3, 6]),
            outcomes_max: rng.pick(&[0, 1, 3]),
            spells: rng.chance(30),
            closes: some(rng, CLOSES),
            hot_rows: rng.chance(30),
            open_cursors: on(rng),
            // One seed of four: the others are as they were.
            placements: if seed % 4 == 3 {
                some(rng, PLACEMENTS)
            } else {
                Vec::new()
            },
            // One seed of three: the others are as they were.
            bulk_loggings: if seed.is_multiple_of(3) {
                some(rng, &[BulkLogging::Minimal, BulkLogging::Full])
            } else {
                Vec::new()
            },
            // One seed of three: the others are as they were.
            range_deletes: seed % 3 == 1,
            // One seed of five: the others are as they were.
            compaction_percent: if seed.is_multiple_of(5) { 30 } else { 0 },
        }
    }

    /// Whether values that have pages of their own are taken back under open cursors.
    pub(super) fn reads_over_undo(&self) -> bool {
        self.open_cursors && self.long_values && self.savepoints
    }

    /// Whether the log is so large that the undo of a large transaction is saved every few rows.
    pub(super) fn saves_often(&self) -> bool {
        self.log_file_size >= 16 << 20
    }

    /// Whether there are loads, which minimal logging is for.
    pub(super) fn loads(&self) -> bool {
        !self.bulk_loggings.is_empty()
    }

    /// What a new table is made with: one of two says it itself, where they are to differ.
    pub(super) fn table_options(&self, rng: &mut Rng) -> TableOptions {
        if self.placements.is_empty() || rng.chance(50) {
            return TableOptions::new();
        }
        let (placement, compression) = rng.pick(&self.placements);
        TableOptions::new()
            .page_placement(placement)
            .page_compression(compression)
    }

    /// Prepares a disk.
    pub(super) fn set_up(&self, vfs: &SimVfs) {
        vfs.set_volatile_cache(self.volatile_cache);
        match self.disk {
            Disk::Tears => {}
            Disk::NeverTears => vfs.set_untorn_bytes(self.page_size),
            Disk::AtomicWrites => {
                let page = self.page_size as u32;
                vfs.set_atomic_write_limits(Some(AtomicWriteLimits {
                    unit_min: page.min(4096),
                    unit_max: page,
                    unit_max_opt: page,
                }));
            }
        }
    }

    /// Options for an opening.
    pub(super) fn options(&self, rng: &mut Rng) -> Options {
        let doublewrite = rng.pick(&self.doublewrite);
        let flush_method = match doublewrite {
            // Untorn writes exist only past the page cache.
            Doublewrite::Atomic if self.volatile_cache => FlushMethod::ODirect,
            Doublewrite::Atomic => rng.pick(&[FlushMethod::ODirect, FlushMethod::ODirectNoFsync]),
            _ => rng.pick(&self.flush_methods),
        };
        let (page_placement, page_compression) = if self.placements.is_empty() {
            PLACEMENTS[0]
        } else {
            rng.pick(&self.placements)
        };
        let bulk_logging = if self.bulk_loggings.is_empty() {
            BulkLogging::Full
        } else {
            rng.pick(&self.bulk_loggings)
        };
        Options {
            page_size: self.page_size,
            bulk_logging,
            page_placement,
            page_compression,
            buffer_pool_size: self.page_size * rng.pick(&self.pool_pages),
            buffer_pool_instances: rng.pick(&self.pool_instances),
            buffer_pool_dump_at_shutdown: self.pool_dump,
            log_file_size: self.log_file_size,
            log_buffer_size: 2 << 20,
            log_file_buffering: rng.pick(&self.log_buffering),
            log_write: rng.pick(&self.log_write),
            log_write_through: rng.pick(&self.log_write_through),
            log_archive: rng.pick(&self.log_archive),
            flush_log_at_trx_commit: rng.pick(&self.durabilities),
            doublewrite,
            doublewrite_skip_fresh: rng.pick(&self.skip_fresh),
            flush_method,
            version_store_memory: rng.pick(&self.version_store_memory),
            recovery_threads: rng.from_to(1, 3),
            recovery_memory: rng.pick(&self.recovery_memory),
            redo_before_open: rng.chance(15),
            ..Options::default()
        }
    }
}
