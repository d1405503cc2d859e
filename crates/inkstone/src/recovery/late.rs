//! What redo leaves to the readers of pages: the index of the log, or of its last batch.
//!
//! # Promises
//!
//! 1. A page that is read has every change that the log has for it, whether it was redone by then
//!    or not. Tested by `pages_are_redone_when_they_are_read`.
//! 2. [`RedoLeft::oldest_lsn`] is never above the start of a change that is left. Tested by
//!    `pages_are_redone_when_they_are_read`.
//! 3. A page that cannot be read, or that its changes do not fit, stays: its readers get the error,
//!    no checkpoint passes its first change, and it may be tried again. Tested by
//!    `a_page_that_cannot_be_redone_stays`.
//!
//! What the pool promises of it stands in `buffer/late.rs`.
//!
//! Files are as the log has them: they were created and made long enough before.

use super::apply::{apply_changes, check_not_later};
use super::index::{PageBatch, PageChanges};
use super::spaces::TablespaceFiles;
use crate::buffer::{BufferPool, Late, LateRedo, Redone};
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{HashMap, Mutex};
use crate::{Error, Result};
use inkstone_format::{IdHash, Lsn, PageId, SpaceId};
use std::ops::Range;
use std::sync::Arc;

/// [`RedoLeft::oldest_lsn`] when nothing is left.
const NONE: u64 = u64::MAX;
/// Pages that a thread takes on together.
const PAGES_TOGETHER: usize = 64;

/// See the module.
pub struct RedoLeft {
    files: Arc<dyn TablespaceFiles>,
    /// Where the log was proven to end.
    end: Lsn,
    left: Mutex<Left>,
    /// Copies of what is in `left`, for a look without its latch.
    oldest: AtomicU64,
    pages: AtomicU64,
    bytes: AtomicU64,
}

impl std::fmt::Debug for RedoLeft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stat().fmt(f)
    }
}

/// How much of redo is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedoStat {
    /// Pages that have to be redone.
    pub pages: u64,
    /// Bytes of changes of theirs.
    pub bytes: u64,
}

#[derive(Default)]
struct Left {
    batch: Arc<PageBatch>,
    pages: HashMap<PageId, PageChanges, IdHash>,
    /// All pages that there were, those with the oldest first change first.
    order: Vec<(Lsn, PageId)>,
    /// The first of them of which something is left.
    first: usize,
    /// The next one that a thread is to take on.
    next: usize,
    /// Pages that could not be redone, and why the last of them could not.
    failed: HashMap<PageId, Error>,
}

impl RedoLeft {
    /// What is left of a batch, which is the last one of a log that ends at `end`.
    pub(super) fn new(batch: PageBatch, files: Arc<dyn TablespaceFiles>, end: Lsn) -> Self {
        let mut order = Vec::with_capacity(batch.pages.len());
        let mut bytes = 0;
        for page in &batch.pages {
            order.push((page.span().start, page.page));
            bytes += page.bytes;
        }
        order.sort_unstable();
        let pages: HashMap<_, _, _> = batch.pages.iter().map(|page| (page.page, *page)).collect();
        paranoid!(
            pages.len() == order.len(),
            "{} pages are in a batch of {}",
            pages.len(),
            order.len()
        );
        Self {
            files,
            end,
            oldest: AtomicU64::new(order.first().map_or(NONE, |(lsn, _)| lsn.0)),
            pages: AtomicU64::new(pages.len() as u64),
            bytes: AtomicU64::new(bytes),
            left: Mutex::new(Left {
                batch: Arc::new(batch),
                pages,
                order,
                ..Left::default()
            }),
        }
    }

    /// How much is left.
    pub fn stat(&self) -> RedoStat {
        RedoStat {
            pages: self.pages.load(Ordering::Acquire),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Redoes the oldest pages that are left, some of them together: false if there are none but
    /// such as another try would not help. Several threads may do this.
    pub fn redo_some(&self, pool: &BufferPool) -> Result<bool> {
        let mut pages = self.take_on();
        pages.sort_unstable();
        paranoid!(
            pages.len() <= PAGES_TOGETHER && pages.is_sorted_by(|a, b| a < b),
            "pages are to be redone twice, or too many: {pages:?}"
        );
        if pages.is_empty() {
            return Ok(false);
        }
        pool.load_many(&pages)?;
        // Where frames were short, or a page could not be read.
        for &page in &pages {
            if self.of(page).is_none() {
                continue;
            }
            match pool.load(page) {
                Err(error) if error.is_final() => return Err(error),
                Err(error) if self.of(page).is_some() => self.note_failed(page, error),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Redoes all that is left. Fails if a page cannot be redone; the others are.
    pub fn redo_all(&self, pool: &BufferPool) -> Result<()> {
        self.left.lock().failed.clear();
        while self.redo_some(pool)? {}
        // Another thread may have noted an error that it met before this call began.
        let failed: Vec<PageId> = self.left.lock().failed.keys().copied().collect();
        let mut first = Ok(());
        for page in failed {
            match pool.load(page) {
                Err(error) if error.is_final() => return Err(error),
                Err(error) if self.of(page).is_some() => first = first.and(Err(error)),
                _ => {}
            }
        }
        let left = self.left.lock();
        paranoid!(
            left.failed.len() <= left.pages.len(),
            "{} pages could not be redone, of {}",
            left.failed.len(),
            left.pages.len()
        );
        first
    }

    /// Has those that failed tried again.
    pub fn try_again(&self) {
        self.left.lock().failed.clear();
    }

    /// The next pages, in the order of age, round and round.
    fn take_on(&self) -> Vec<PageId> {
        let mut left = self.left.lock();
        let Left {
            pages,
            order,
            first,
            next,
            failed,
            ..
        } = &mut *left;
        let mut taken = Vec::new();
        let is_due = |page: &PageId| pages.contains_key(page) && !failed.contains_key(page);
        for _ in 0..2 {
            *next = (*next).max(*first);
            while *next < order.len() && taken.len() < PAGES_TOGETHER {
                let page = order[*next].1;
                *next += 1;
                if is_due(&page) {
                    taken.push(page);
                }
            }
            if !taken.is_empty() {
                break;
            }
            // Once more from the start: other threads may be at work on those before.
            *next = *first;
        }
        taken
    }

    fn note_failed(&self, page: PageId, error: Error) {
        let mut left = self.left.lock();
        if left.pages.contains_key(&page) {
            left.failed.insert(page, error);
        }
    }

    /// Nothing is left of these pages.
    fn remove(&self, left: &mut Left, which: impl Iterator<Item = PageId>) {
        for page in which {
            let Some(changes) = left.pages.remove(&page) else {
                continue;
            };
            left.failed.remove(&page);
            self.pages.fetch_sub(1, Ordering::AcqRel);
            self.bytes.fetch_sub(changes.bytes, Ordering::Relaxed);
        }
        while let Some((_, page)) = left.order.get(left.first)
            && !left.pages.contains_key(page)
        {
            left.first += 1;
        }
        let oldest = left.order.get(left.first).map_or(NONE, |(lsn, _)| lsn.0);
        let before = self.oldest.swap(oldest, Ordering::AcqRel);
        paranoid!(
            before <= oldest && left.pages.is_empty() == (oldest == NONE),
            "the oldest change that is left was of LSN {before}, and is of {oldest}, of {} pages",
            left.pages.len()
        );
        if left.pages.is_empty() {
            // Its memory is given back.
            let batch = std::mem::take(left).batch;
            if let Some(batch) = Arc::into_inner(batch) {
                batch.end();
            }
        }
    }
}

impl LateRedo for RedoLeft {
    fn oldest_lsn(&self) -> Option<Lsn> {
        let oldest = self.oldest.load(Ordering::Acquire);
        (oldest != NONE).then_some(Lsn(oldest))
    }

    fn of(&self, id: PageId) -> Option<Late> {
        if self.pages.load(Ordering::Acquire) == 0 {
            return None;
        }
        let left = self.left.lock();
        left.pages.get(&id).map(PageChanges::span)
    }

    fn redo(&self, id: PageId, page: &mut [u8]) -> Result<Option<Redone>> {
        let left = self.left.lock();
        let Some(changes) = left.pages.get(&id).copied() else {
            return Ok(None);
        };
        let batch = left.batch.clone();
        drop(left);
        check_not_later(&*self.files, id, page, self.end)?;
        let (mut scratch, mut room) = (Vec::new(), Vec::new());
        let due = batch.changes(changes, &mut room)?;
        let applied = apply_changes(page, id, due, &mut scratch)
            .map_err(|corrupt| Error::corrupt_page(&self.files.path(id.space), id, corrupt))?;
        paranoid!(
            applied.is_none_or(|applied| applied.end <= self.end),
            "page {id} got changes from behind the log's end at LSN {}",
            self.end
        );
        Ok(applied.map(|applied| Redone {
            start: applied.start,
            end: applied.end,
            initialised: applied.initialised,
        }))
    }

    fn done(&self, id: PageId) {
        self.remove(&mut self.left.lock(), std::iter::once(id));
    }

    fn forget(&self, space: SpaceId, pages: &Range<u32>) {
        let mut left = self.left.lock();
        let is_one = |id: &&PageId| id.space == space && pages.contains(&id.page.0);
        let gone: Vec<PageId> = left.pages.keys().filter(is_one).copied().collect();
        if !gone.is_empty() {
            self.remove(&mut left, gone.into_iter());
        }
    }

    fn has_any(&self, space: SpaceId, pages: &Range<u32>) -> bool {
        let left = self.left.lock();
        let is_one = |id: &PageId| id.space == space && pages.contains(&id.page.0);
        left.pages.keys().any(is_one)
    }

    fn stuck(&self) -> Option<Error> {
        if self.pages.load(Ordering::Acquire) == 0 {
            return None;
        }
        let left = self.left.lock();
        let all = left.failed.len() == left.pages.len();
        left.failed.values().next().filter(|_| all).cloned()
    }
}
