//! Which tablespace files there are, and what the log says about them.
//!
//! A change of a page whose file is missing is dropped while the log is scanned: if the log says
//! anywhere that the file was deleted, nothing is lost; if it does not, the end of the scan is an
//! error. A file whose creation is in the log, and which is missing, is created when its first
//! pages are applied, unless its deletion has been read by then. Nothing is removed here.

use super::index::PageChanges;
use crate::paranoid::paranoid;
use crate::{Error, Result};
use inkstone_format::{Lsn, PageNo, SpaceId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// What redo needs of the tablespace files.
pub trait TablespaceFiles: Send + Sync {
    /// Whether the file of a tablespace exists.
    fn exists(&self, space: SpaceId) -> Result<bool>;
    /// Creates the missing file of a tablespace with `pages` pages of zeroes, durably.
    fn create(&self, space: SpaceId, pages: u32) -> Result<()>;
    /// Makes the file at least `pages` pages long.
    fn ensure_pages(&self, space: SpaceId, pages: u32) -> Result<()>;
    /// Path of the file, for messages.
    fn path(&self, space: SpaceId) -> PathBuf;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The file exists.
    Present,
    /// The file is missing, its creation was read: it may be created.
    Creatable,
    /// The file is missing, and there was a change of it at this LSN.
    Missing(Lsn),
}

/// See the module.
pub(super) struct Spaces {
    pub files: Arc<dyn TablespaceFiles>,
    known: BTreeMap<SpaceId, State>,
    pub created: BTreeSet<SpaceId>,
    pub deleted: BTreeSet<SpaceId>,
    pub id_max: Option<SpaceId>,
    /// The last tablespace that was asked about, and the answer.
    last: Option<(SpaceId, bool)>,
}

impl Spaces {
    pub fn new(files: Arc<dyn TablespaceFiles>) -> Self {
        Self {
            files,
            known: BTreeMap::new(),
            created: BTreeSet::new(),
            deleted: BTreeSet::new(),
            id_max: None,
            last: None,
        }
    }

    /// Takes notice that the log mentions a tablespace.
    pub fn mention(&mut self, space: SpaceId) {
        self.id_max = self.id_max.max(Some(space));
    }

    /// A FILE_CREATE was read; `tail`: at or after the checkpoint. Before it the file was durable.
    pub fn note_create(&mut self, space: SpaceId, tail: bool) -> Result<()> {
        self.created.insert(space);
        if tail && !self.known.contains_key(&space) {
            let state = if self.files.exists(space)? {
                State::Present
            } else {
                State::Creatable
            };
            self.known.insert(space, state);
        }
        Ok(())
    }

    /// A FILE_DELETE was read.
    pub fn note_delete(&mut self, space: SpaceId) {
        self.deleted.insert(space);
        self.last = None;
    }

    /// Whether a change at `lsn` of a page of this tablespace is to be applied.
    pub fn accepts(&mut self, space: SpaceId, lsn: Lsn) -> Result<bool> {
        if let Some((last, accepted)) = self.last
            && last == space
        {
            return Ok(accepted);
        }
        paranoid!(
            self.id_max >= Some(space),
            "tablespace {space} was not mentioned, up to {:?}",
            self.id_max
        );
        let accepted = !self.deleted.contains(&space) && self.is_there(space, lsn)?;
        self.last = Some((space, accepted));
        Ok(accepted)
    }

    fn is_there(&mut self, space: SpaceId, lsn: Lsn) -> Result<bool> {
        let state = match self.known.get(&space) {
            Some(&state) => state,
            None => {
                let state = if self.files.exists(space)? {
                    State::Present
                } else {
                    State::Missing(lsn)
                };
                self.known.insert(space, state);
                state
            }
        };
        Ok(!matches!(state, State::Missing(_)))
    }

    /// Drops the pages of deleted tablespaces from a batch, which is in order, and makes the files
    /// of the others long enough. Tells how many pages were dropped.
    pub fn prepare(&mut self, batch: &mut Vec<PageChanges>) -> Result<u64> {
        paranoid!(
            batch.is_sorted_by(|a, b| a.page < b.page),
            "a batch of {} pages is not in order",
            batch.len()
        );
        let before = batch.len();
        batch.retain(|changes| !self.deleted.contains(&changes.page.space));
        let mut last_pages = BTreeMap::new();
        for PageChanges { page, .. } in batch.iter() {
            last_pages.insert(page.space, page.page);
        }
        for (space, PageNo(last)) in last_pages {
            let pages = last.checked_add(1).ok_or_else(|| {
                Error::corrupt_file(
                    &self.files.path(space),
                    0,
                    format!("the log names page {last}"),
                )
            })?;
            if self.known.get(&space) == Some(&State::Creatable) {
                self.files.create(space, pages)?;
                self.known.insert(space, State::Present);
            } else {
                self.files.ensure_pages(space, pages)?;
            }
        }
        let is_there = |space| matches!(self.known.get(space), Some(State::Present));
        paranoid!(
            batch.iter().all(|changes| is_there(&changes.page.space)),
            "changes of a tablespace without a file are applied"
        );
        Ok((before - batch.len()) as u64)
    }

    /// The whole log was read: fails if it changes a file that is missing and does not delete it.
    pub fn check_missing(&self) -> Result<()> {
        for (&space, &state) in &self.known {
            if let State::Missing(lsn) = state
                && !self.deleted.contains(&space)
            {
                let detail = format!(
                    "the file of tablespace {space} is missing; the log changes its pages at \
                     LSN {lsn} and does not say that the file was deleted; put the file back"
                );
                return Err(Error::corrupt_file(&self.files.path(space), 0, detail));
            }
        }
        Ok(())
    }

    /// The whole log was read and applied.
    pub fn finish(&mut self) -> Result<()> {
        self.check_missing()?;
        for (&space, &state) in &self.known {
            if state == State::Creatable && !self.deleted.contains(&space) {
                self.files.create(space, 0)?;
            }
        }
        Ok(())
    }
}
