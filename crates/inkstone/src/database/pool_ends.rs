//! What the buffer pool stands between: the log above it, and the files below.

use super::opening::check_lsn;
use crate::buffer::{PageStore, PageWriter, RedoLog};
use crate::log::Log;
use crate::paranoid::paranoid;
use crate::store::{FilePageStore, SpaceFiles};
use crate::sync::OnceLock;
use crate::{Error, Result};
use inkstone_format::header::{PageType, page_type};
use inkstone_format::tree_page::TreePage;
use inkstone_format::{Lsn, PageId};
use std::sync::Arc;

/// The log as the pool sees it: while redo runs there is none yet, and everything that it applies
/// is durable.
pub(super) struct PoolLog {
    pub(super) log: OnceLock<Arc<Log>>,
    pub(super) checkpoint: Lsn,
    pub(super) capacity: u64,
}

impl RedoLog for PoolLog {
    fn ready_lsn(&self) -> Lsn {
        self.log
            .get()
            .map_or(self.checkpoint, |log| log.ready_lsn())
    }
    fn reserved_lsn(&self) -> Lsn {
        self.log
            .get()
            .map_or(self.checkpoint, |log| log.current_lsn())
    }
    fn make_durable(&self, lsn: Lsn) -> Result<()> {
        self.log.get().map_or(Ok(()), |log| log.wait_durable(lsn))
    }
    fn capacity_bytes(&self) -> u64 {
        self.log
            .get()
            .map_or(self.capacity, |log| log.capacity_bytes())
    }
}

/// A page store that checks the structure of tree pages as they are read, so that no later code
/// meets bytes that it does not expect.
pub(super) struct CheckedStore {
    pub(super) store: FilePageStore,
    pub(super) files: Arc<SpaceFiles>,
    pub(super) log: Arc<PoolLog>,
}

impl CheckedStore {
    /// Looks at a page that was read.
    fn check(&self, id: PageId, bytes: &[u8]) -> Result<()> {
        // While redo runs there is no log yet, and redo checks by itself.
        if let (Some(log), Some(file)) = (self.log.log.get(), self.files.get(id.space)) {
            check_lsn(&file, id.page, bytes, log.current_lsn())?;
        }
        if matches!(page_type(bytes), Some(PageType::Leaf | PageType::Inner)) {
            TreePage(bytes)
                .check()
                .map_err(|corrupt| Error::corrupt_page(&self.files.path(id.space), id, corrupt))?;
        }
        Ok(())
    }
}

impl PageStore for CheckedStore {
    fn read(&self, id: PageId, buffer: &mut [u8]) -> Result<()> {
        self.store.read(id, buffer)?;
        self.check(id, buffer)
    }
    fn read_many(&self, pages: &mut [(PageId, &mut [u8])]) -> Vec<Result<()>> {
        let results = self.store.read_many(pages);
        paranoid!(
            results.len() == pages.len(),
            "{} results of {} pages",
            results.len(),
            pages.len()
        );
        let results = results.into_iter();
        let checked = results
            .zip(pages)
            .map(|(result, (id, bytes))| result.and_then(|()| self.check(*id, bytes)));
        checked.collect()
    }
    fn writer(&self) -> Result<Box<dyn PageWriter>> {
        self.store.writer()
    }
}
