//! Everything below the engine, put together in the order in which opening can have it.

use super::locked::Site;
use crate::buffer::BufferPool;
use crate::database::pool_ends::{CheckedStore, PoolLog};
use crate::log::{Log, LogParams};
use crate::mvcc::system::TrxSystem;
use crate::mvcc::versions::VersionStore;
use crate::paranoid::paranoid;
use crate::storage::Storage;
use crate::store::{FilePageStore, SpaceFiles};
use crate::sync::OnceLock;
use crate::txn::core::Core;
use crate::{Error, Result};
use inkstone_format::control::Control;
use inkstone_format::segment::LOG_BLOCK;
use inkstone_format::{Lsn, TrxId};
use inkstone_io::{Create, Directory, ErrorKind};
use std::sync::Arc;

/// Directory of the log segments.
pub(in crate::database) const LOG_DIRECTORY: &str = "log";

/// The directory of the log segments.
pub(super) fn log_directory(
    directory: &dyn Directory,
    create: Create,
) -> Result<Arc<dyn Directory>> {
    directory
        .subdirectory(LOG_DIRECTORY, create)
        .map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::NotADatabase {
                path: directory.path().to_owned(),
                reason: format!("the directory {LOG_DIRECTORY} is missing; put it back"),
            },
            _ => Error::io("open", &directory.path_of(LOG_DIRECTORY), e),
        })
}

/// Everything below the engine, set up for a directory. Until the log is opened the buffer pool
/// takes all that is applied to pages for durable, as it is while redo runs.
pub(super) struct Foundation {
    pub files: Arc<SpaceFiles>,
    pub pool: Arc<BufferPool>,
    pool_log: Arc<PoolLog>,
    pub site: Site,
}

impl Foundation {
    /// Opens the doublewrite file, or creates it, and makes the pool.
    pub fn new(site: Site, files: Arc<SpaceFiles>, control: &Control) -> Result<Self> {
        let (options, counters, poison) = (&site.options, &site.counters, &site.poison);
        paranoid!(
            options.store.page_size == control.page_size
                && options.pool.page_size == control.page_size as usize,
            "pages of {} bytes are opened as pages of {}, in a pool for {}",
            control.page_size,
            options.store.page_size,
            options.pool.page_size
        );
        let store = FilePageStore::new(
            site.vfs.clone(),
            site.directory.clone(),
            control.uuid,
            options.store,
            files.clone(),
            counters.clone(),
            poison.clone(),
        )?;
        let pool_log = Arc::new(PoolLog {
            log: OnceLock::new(),
            checkpoint: control.checkpoint_lsn,
            capacity: options.log.capacity_bytes,
        });
        let store = Arc::new(CheckedStore {
            store,
            files: files.clone(),
            log: pool_log.clone(),
        });
        let pool = BufferPool::new(
            options.pool,
            store,
            pool_log.clone(),
            counters.clone(),
            poison.clone(),
        )?;
        Ok(Self {
            files,
            pool,
            pool_log,
            site,
        })
    }

    /// Opens the log for writing behind `start`, and joins it to the pool. What a transaction needs
    /// is complete then.
    pub fn open_log(
        &self,
        control: &Control,
        start: LogStart,
        next_trx: TrxId,
    ) -> Result<Arc<Core>> {
        paranoid!(
            start.lsn >= control.checkpoint_lsn
                && start.end_block.len() as u64 == start.lsn.0 % LOG_BLOCK as u64,
            "the log goes on at LSN {} with {} bytes of its block",
            start.lsn,
            start.end_block.len()
        );
        let options = &self.site.options;
        let params = LogParams {
            vfs: self.site.vfs.clone(),
            directory: log_directory(&*self.site.directory, Create::Never)?,
            uuid: control.uuid,
            segment_bytes: control.log_segment_bytes,
            epoch: control.epoch,
            start_lsn: start.lsn,
            end_block: start.end_block,
            options: options.log,
            keep_from: control.scan_start_lsn,
            is_new: start.is_new,
            is_closed: start.is_closed,
            may_be_unused: true,
        };
        let log = Log::open(params, self.site.counters.clone(), self.site.poison.clone())?;
        let fresh = self.pool_log.log.set(log.clone()).is_ok();
        crate::invariant!(fresh, "the log was opened twice");
        self.core(log, control, next_trx)
    }

    fn core(&self, log: Arc<Log>, control: &Control, next_trx: TrxId) -> Result<Arc<Core>> {
        let options = &self.site.options;
        let storage = Storage {
            pool: self.pool.clone(),
            log,
            counters: self.site.counters.clone(),
            poison: self.site.poison.clone(),
            unlogged: Arc::default(),
            page_size: options.pool.page_size,
        };
        let versions = VersionStore::open(
            self.site.directory.clone(),
            options.version_memory,
            control.version_epoch,
            self.site.counters.clone(),
        )?;
        let trxs = TrxSystem::new(next_trx);
        Ok(Arc::new(Core::new(
            storage,
            versions,
            trxs,
            options.transactions,
            (self.files.clone(), control.uuid),
        )))
    }
}

/// Where a log goes on.
pub(super) struct LogStart {
    pub lsn: Lsn,
    /// The block in which that lies, up to there.
    pub end_block: Vec<u8>,
    /// There is no log so far.
    pub is_new: bool,
    /// It was closed in order, and ends where that was.
    pub is_closed: bool,
}
