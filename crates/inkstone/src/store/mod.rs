//! The page store: where pages live when they are not in memory, and how they get there.
//!
//! [`SpaceFiles`] knows the tablespace files, [`FilePageStore`] reads and writes their pages under
//! the policy that the options choose, [`DoublewriteFile`] keeps copies of pages while they are
//! being overwritten, and [`repair`] uses the copies when the database is opened after a crash.
//! [`PageLsnMap`] knows from which LSN on a page in place is the newest version of it. Pages of a
//! tablespace may be *placed* instead (`placed/mod.rs`): they need none of what pages in place do.
//!
//! # Words
//!
//! *In place*: at the page's own offset in its tablespace file. *Fresh*: a page that was
//! initialised (page init in the log) since it was last written; recovery rebuilds it without
//! reading it. *Torn*: neither the old nor the new bytes, because power failed during a write.
//! *Batch*: the pages of one [`PageWriter::write`](crate::buffer::PageWriter::write), or as many
//! of them as an area of the doublewrite file holds.
//!
//! # Promises
//!
//! 1. When a write of pages returned `Ok`, power loss neither loses nor tears them. Tested by
//!    `no_page_is_torn_but_fresh_ones`, `flush_methods_sync_when_they_must`. Tested by the
//!    simulator (`pages-unsynced`).
//! 2. `doublewrite=on`: before a page that is not fresh is overwritten in place, its new bytes are
//!    durable in the doublewrite file, and they stay there until the bytes in place are durable.
//!    Tested by `copies_are_durable_before_pages_are_overwritten`,
//!    `a_page_whose_write_failed_is_whole_after_power_loss`. Tested by the simulator
//!    (`doublewrite-skipped`, `doublewrite-unsynced`).
//! 3. `doublewrite=atomic`: each page goes to disk in a write that the file never tears. Tested by
//!    `untorn_writes_need_no_copies`, `untorn_writes_are_aligned_powers_of_two`.
//! 4. A page reaches the disk only with a checksum that fits its bytes. Tested by
//!    `copies_are_durable_before_pages_are_overwritten`.
//! 5. A failed sync poisons the engine, before another sync of the same file begins and before any
//!    page that it was to make durable counts as clean (`poison/syncs/mod.rs`). Nothing else here
//!    does: a page that could not be written stays dirty, and its copy in the doublewrite file
//!    stays until it is durable in place (`doublewrite/areas.rs`). Tested by
//!    `a_failed_sync_poisons`, `a_failed_write_costs_its_own_pages_only`,
//!    `a_page_whose_write_failed_is_whole_after_power_loss`. Tested by the simulator
//!    (`page-syncs-apart`).
//! 6. An older version of a page in the page's own place is never taken for the page
//!    ([`PageLsnMap`] says how far that goes): what reads find is the newest, or an error. Tested
//!    by `an_older_version_is_an_error_that_names_everything`,
//!    `each_page_that_goes_back_in_time_is_found`. Tested by the simulator
//!    (`page-lsn-map-unchecked`).
//! 7. The caller writes a page only when the log is durable up to its page LSN, and no page is
//!    in two writes at once. Checked by `FilePageWriter::targets`. Tested by
//!    `few_threads_small_log`. Tested by the simulator (`page-before-log`).
//!
//! # Latches
//!
//! In this order: `SpaceFiles::ddl` (held across I/O, creating, opening and removing files only),
//! `SpaceFile::grow` (held across I/O, changing a file's size only), those of the map
//! (`page_lsn_map/mod.rs`; a settler holds none of the others), those of the cache of open files
//! (`open_files/mod.rs`; never held across I/O, but a thread that waits for a handle waits for I/O
//! of others), a shard of `SpaceFiles::shards` (never held across I/O), the state of `Areas` (never
//! held across I/O; a writer waits there for an area while it holds nothing).

mod copying;
mod doublewrite;
mod open_files;
mod page_lsn_map;
mod page_reader;
mod page_store;
mod page_writer;
mod placed;
mod repair;
mod retrying_directory;
mod space_file;
mod space_files;
mod table_file;

pub(crate) use copying::SpaceCopy;
pub(crate) use doublewrite::create_first;
pub use doublewrite::{
    AREAS, BATCH_PAGES, DOUBLEWRITE_FILE, DoublewriteFile, DoublewriteFound, check_doublewrite,
};
pub use page_lsn_map::{PAGE_LSN_MAP_FILE, PageLsnMap};
pub use page_store::FilePageStore;
pub use placed::{is_place_map_file_name, place_map_file_name};
pub use repair::{RepairReport, repair};
pub use space_file::SpaceFile;
pub use space_files::{Placement, SpaceFiles, parse_space_file_name, space_file_name};

use crate::options::{Doublewrite, FlushMethod};

/// The options of the store.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Bytes in a page.
    pub page_size: u32,
    /// How pages are protected from torn writes.
    pub doublewrite: Doublewrite,
    /// Freshly initialised pages are written without a copy.
    pub doublewrite_skip_fresh: bool,
    /// How files with pages in them are opened and made durable.
    pub flush_method: FlushMethod,
    /// Files of tables that are open at once at most; 0: as many as the process's limit suggests.
    pub open_files: u64,
    /// `buffer_pool_size`: what is known of pages' LSNs is kept in memory in proportion to it.
    pub pool_bytes: u64,
}

#[cfg(test)]
pub(crate) use tests::disk as test_disk;
#[cfg(test)]
mod tests;
