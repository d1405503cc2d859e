//! Applies gathered changes to pages, page by page, on several threads.
//!
//! [`apply_changes`] is all that recovery knows about one page: it needs the page and its changes
//! and nothing else, so pages may be brought up to date in any order, at any time, and again.
//!
//! A page that cannot be read, or that its changes do not fit, is not yet an error as long as there
//! is more of the log, which may tell why:
//! - A later part initialises the page: it was freed and used anew, and its last copy on disk,
//!   written without protection as the log rebuilds it, is torn; or its file was cut.
//! - A later part deletes its tablespace. The pool forgot its pages then, and no dirty page holds
//!   the checkpoint back any more: it may have passed changes that the disk never got, and only
//!   the changes since are left. (When the deletion is read in time they are dropped unapplied.)
//!
//! Such a page is set aside, and is an error if it is still there at the end.

use super::index::{Change, PageBatch, PageChanges};
use super::late::RedoLeft;
use super::spaces::TablespaceFiles;
use crate::buffer::{BufferPool, Exclusive};
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, thread};
use crate::{Error, Result};
use inkstone_format::header::{PageType, page_lsn, page_type};
use inkstone_format::tree_page::TreePage;
use inkstone_format::{Corrupt, Lsn, PageId, apply};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What was applied to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Start of the first frame that was applied.
    pub start: Lsn,
    /// End of the last one: the new page LSN, which the caller stamps.
    pub end: Lsn,
    /// Number of records.
    pub records: u64,
    /// Whether the whole page was set: nothing of what was there before is left.
    pub initialised: bool,
}

/// Applies to a page those of its changes, in LSN order, that it does not have. `None` if it has
/// them all. After an error the page is as it was before (`scratch` keeps a copy).
pub fn apply_changes<'c>(
    page: &mut [u8],
    id: PageId,
    changes: impl Iterator<Item = Change<'c>> + Clone,
    scratch: &mut Vec<u8>,
) -> std::result::Result<Option<Applied>, Corrupt> {
    let has = if mutants::on(Mutant::PageLsnUnchecked) {
        Lsn(0)
    } else {
        page_lsn(page)
    };
    paranoid!(
        changes.clone().is_sorted_by_key(|change| change.end),
        "the changes of page {id} are not in order"
    );
    // An initialisation makes those before it needless.
    let mut due = changes.skip_while(|change| change.end <= has);
    let (mut rest, mut first, mut last, mut count) = (due.clone(), None, Lsn(0), 0);
    let mut initialised = false;
    loop {
        let at = due.clone();
        let Some(change) = due.next() else { break };
        if change.initialises_page() {
            (rest, first, count, initialised) = (at, None, 0, true);
        }
        first = first.or(Some(change.start));
        last = change.end;
        count += 1;
    }
    let Some(start) = first else {
        return Ok(None);
    };
    scratch.clear();
    scratch.extend_from_slice(page);
    if let Err(corrupt) = replay_all(page, id, rest, initialised) {
        page.copy_from_slice(scratch);
        return Err(corrupt);
    }
    paranoid!(
        start < last && has < last,
        "page {id} of LSN {has} got the changes from LSN {start} to {last}"
    );
    Ok(Some(Applied {
        start,
        end: last,
        records: count,
        initialised,
    }))
}

fn replay_all<'c>(
    page: &mut [u8],
    id: PageId,
    due: impl Iterator<Item = Change<'c>>,
    initialised: bool,
) -> std::result::Result<(), Corrupt> {
    // A sound checksum does not mean sound contents.
    if !initialised {
        check_tree(page)?;
    }
    for change in due {
        let record = change.record()?;
        apply::replay(page, id, &record).map_err(|corrupt| {
            let (name, start) = (record.name(), change.start);
            let detail = format!("{name} of LSN {start} does not fit: {}", corrupt.detail);
            Corrupt::at(corrupt.offset, detail)
        })?;
    }
    // Replay keeps a sound page sound, but for an inner node whose children never came.
    if page_type(page) == Some(PageType::Inner) && TreePage(page).count() == 0 {
        return Err(Corrupt::at(
            0,
            "the log leaves an inner node without children",
        ));
    }
    if cfg!(debug_assertions) {
        check_tree(page)
    } else {
        Ok(())
    }
}

fn check_tree(page: &[u8]) -> std::result::Result<(), Corrupt> {
    match page_type(page) {
        Some(PageType::Leaf | PageType::Inner) => TreePage(page).check(),
        _ => Ok(()),
    }
}

/// What a batch, or a thread's part of it, came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub records: u64,
    pub pages: u64,
    pub initialised: u64,
    pub read: u64,
    /// The highest page LSN that was read from disk, and where.
    highest: (Lsn, PageId),
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.pages += other.pages;
        self.initialised += other.initialised;
        self.read += other.read;
        self.highest = self.highest.max(other.highest);
    }
}

/// Room that a thread uses for one page after the other.
#[derive(Default)]
struct Scratch {
    changes: Vec<u8>,
    page: Vec<u8>,
}

/// See the module.
pub(super) struct Applier {
    pool: Arc<BufferPool>,
    files: Arc<dyn TablespaceFiles>,
    threads: usize,
    /// Pages set aside: why, and the start of the first change that could not be applied.
    set_aside: Mutex<BTreeMap<PageId, (Error, Lsn)>>,
    highest: (Lsn, PageId),
}

/// A batch that threads work on together.
struct Work {
    batch: PageBatch,
    /// The page that is next.
    next: AtomicUsize,
    done: AtomicU64,
    stop: AtomicBool,
    outcome: Mutex<(Tally, Option<Error>)>,
}

impl Applier {
    pub fn new(pool: Arc<BufferPool>, files: Arc<dyn TablespaceFiles>, threads: usize) -> Self {
        Self {
            pool,
            files,
            threads: threads.max(1),
            set_aside: Mutex::default(),
            highest: (Lsn(0), PageId::default()),
        }
    }

    /// Applies a batch. The calling thread takes part, and calls `tick` with the number of pages
    /// that are done after each of its own.
    pub fn run(&mut self, batch: PageBatch, tick: &dyn Fn(u64)) -> Result<Tally> {
        let helpers = self.threads.min(batch.pages.len()).saturating_sub(1);
        let work = Work {
            batch,
            next: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            outcome: Mutex::default(),
        };
        thread::scope(|scope| {
            for number in 1..=helpers {
                let helper = || self.take_part(&work, &|_| {});
                // With fewer threads it only takes longer.
                let _ = scope.spawn(format!("ink-redo-{number}"), helper);
            }
            self.take_part(&work, tick);
        });
        let (tally, error) = work.outcome.into_inner();
        let taken = work.next.into_inner();
        let left = work.batch.pages.len().saturating_sub(taken);
        work.batch.end();
        paranoid!(
            error.is_some() || left == 0,
            "{left} pages of a batch were left out"
        );
        paranoid!(
            tally.initialised <= tally.pages && tally.pages <= tally.records,
            "{} records of {} pages, {} initialised",
            tally.records,
            tally.pages,
            tally.initialised
        );
        self.highest = self.highest.max(tally.highest);
        error.map_or(Ok(tally), Err)
    }

    /// Applies the changes of the pages of a batch that are in the pool, and takes them out of it.
    pub fn run_resident(&mut self, batch: &mut PageBatch) -> Result<Tally> {
        let resident = |page: &PageChanges| self.pool.is_resident(page.page);
        let pages = std::mem::take(&mut batch.pages);
        let (resident, others): (Vec<_>, Vec<_>) = pages.into_iter().partition(resident);
        let (mut tally, mut scratch) = (Tally::default(), Scratch::default());
        for page in resident {
            self.apply(batch, page, &mut tally, &mut scratch)?;
        }
        batch.pages = others;
        paranoid!(
            batch.pages.is_sorted_by(|a, b| a.page < b.page),
            "{} pages that are left are not in order",
            batch.pages.len()
        );
        self.highest = self.highest.max(tally.highest);
        Ok(tally)
    }

    /// The pool redoes pages as it reads them.
    pub fn leave(&self, left: Arc<RedoLeft>) {
        self.pool.set_late_redo(left);
    }

    fn take_part(&self, work: &Work, tick: &dyn Fn(u64)) {
        let (mut tally, mut scratch) = (Tally::default(), Scratch::default());
        let mut error = None;
        while error.is_none() && !work.stop.load(Ordering::Relaxed) {
            let next = work.next.fetch_add(1, Ordering::Relaxed);
            let Some(&page) = work.batch.pages.get(next) else {
                break;
            };
            let applied = self.apply(&work.batch, page, &mut tally, &mut scratch);
            error = applied.err();
            tick(work.done.fetch_add(1, Ordering::Relaxed) + 1);
        }
        let mut outcome = work.outcome.lock();
        outcome.0.add(&tally);
        if error.is_some() {
            work.stop.store(true, Ordering::Relaxed);
            outcome.1 = outcome.1.take().or(error);
        }
    }

    fn apply(
        &self,
        batch: &PageBatch,
        page: PageChanges,
        tally: &mut Tally,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (id, first) = (page.page, page.span());
        let changes = batch.changes(page, &mut scratch.changes)?;
        // The disk lacks what was passed over while the page was set aside.
        let mut since = None;
        let page = if first.initialises {
            since = self.set_aside.lock().remove(&id).map(|(_, start)| start);
            self.create(id)
        } else {
            self.find(id, first.start, tally)
        };
        let Some(mut page) = page? else {
            return Ok(());
        };
        let applied = match apply_changes(&mut page, id, changes, &mut scratch.page) {
            Ok(Some(applied)) => applied,
            Ok(None) => return Ok(()),
            Err(corrupt) => {
                let error = Error::corrupt_page(&self.files.path(id.space), id, corrupt);
                self.put_aside(id, error, since.unwrap_or(first.start));
                return Ok(());
            }
        };
        if applied.initialised {
            page.mark_fresh();
            tally.initialised += 1;
        }
        paranoid!(
            page.id() == id && since.is_none_or(|since| since <= applied.start),
            "page {} was set aside at LSN {since:?}, changed at {}",
            page.id(),
            applied.start
        );
        page.mark_dirty(since.unwrap_or(applied.start), applied.end);
        tally.pages += 1;
        tally.records += applied.records;
        Ok(())
    }

    /// The page without reading it, for changes that begin with its initialisation.
    fn create(&self, id: PageId) -> Result<Option<Exclusive<'_>>> {
        let mut frames = self.pool.reserve(1)?;
        self.pool.create(id, &mut frames).map(Some)
    }

    fn put_aside(&self, id: PageId, error: Error, start: Lsn) {
        let before = self.set_aside.lock().insert(id, (error, start));
        paranoid!(before.is_none(), "page {id} is set aside twice");
    }

    /// The page as it is, for changes from an LSN on; `None` if it is set aside.
    fn find(&self, id: PageId, first: Lsn, tally: &mut Tally) -> Result<Option<Exclusive<'_>>> {
        if self.set_aside.lock().contains_key(&id) {
            return Ok(None);
        }
        if let Some(page) = self.pool.exclusive_if_resident(id) {
            return Ok(Some(page));
        }
        match self.pool.exclusive(id) {
            Ok(page) => {
                tally.read += 1;
                tally.highest = tally.highest.max((page_lsn(&page), id));
                Ok(Some(page))
            }
            Err(error @ Error::Corrupt { .. }) => {
                self.put_aside(id, error, first);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a page is set aside.
    pub fn has_set_aside(&self) -> bool {
        !self.set_aside.lock().is_empty()
    }

    /// Forgets what is known to be wrong with pages of a deleted tablespace, then fails if a page
    /// is from beyond the end of the log, which was proven to be at `end`, or still set aside.
    pub fn finish(self, end: Lsn, deleted: impl Fn(PageId) -> bool) -> Result<()> {
        let (lsn, id) = self.highest;
        check_lsn_not_later(&*self.files, id, lsn, end)?;
        let mut set_aside = self.set_aside.into_inner();
        set_aside.retain(|id, _| !deleted(*id));
        match set_aside.into_values().next() {
            Some((error, _)) => Err(error),
            None => Ok(()),
        }
    }
}

/// Fails if a page is from beyond the end of the log.
pub(super) fn check_not_later(
    files: &dyn TablespaceFiles,
    id: PageId,
    page: &[u8],
    end: Lsn,
) -> Result<()> {
    check_lsn_not_later(files, id, page_lsn(page), end)
}

fn check_lsn_not_later(files: &dyn TablespaceFiles, id: PageId, lsn: Lsn, end: Lsn) -> Result<()> {
    if lsn <= end {
        return Ok(());
    }
    let detail = format!(
        "page LSN {lsn} is in the future: the log was proven to end at LSN {end}; log files are \
         missing or of another time than the tablespaces"
    );
    let path = files.path(id.space);
    Err(Error::corrupt_page(&path, id, Corrupt::at(16, detail)))
}
