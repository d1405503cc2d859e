//! Verification and statistics.

use super::checkpoint::Occasion;
use super::{Database, Inner};
use crate::btree::{RangeEstimates, Tree, TreeReport};
use crate::catalog::CLUSTERED;
use crate::mvcc::versions::{Cut, VersionKind};
use crate::paranoid::paranoid;
use crate::recovery::RedoStat;
use crate::rows::{Table, TableTree, TreeRef, chains};
use crate::space::SYSTEM_PAGES;
use crate::{Error, Result};
use inkstone_format::apply::map_pages;
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::tree_page::{CELL_DELETED, CELL_OVERFLOW, Cell};
use inkstone_format::{Corrupt, PageNo, TreeId, VersionAddress};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Rounds of purge that the log may cut off before a program is told.
const PURGE_ROUNDS_MAX: u32 = 1000;

/// What verifying a table found, when all is well.
#[derive(Clone, Debug, Default)]
pub struct TableReport {
    /// Name of the table.
    pub table: String,
    /// Each tree's name and what it holds.
    pub trees: Vec<(String, TreeReport)>,
    /// Pages of long values.
    pub overflow_pages: u64,
    /// Pages of the file that are allocated, with system pages.
    pub allocated_pages: u64,
    /// Pages of the file.
    pub file_pages: u64,
}

/// Estimates about a table, from a few page visits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStatistics {
    /// About how many rows it has.
    pub rows: u64,
    /// Levels of the clustered tree.
    pub height: u8,
    /// Pages of the clustered tree at each level, leaves first.
    pub pages_by_level: Vec<u64>,
    /// Pages of all other trees.
    pub secondary_pages: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the pages that are allocated, as they are in memory: pages that are placed take
    /// fewer in the file when they are compressed, and none before they are written.
    pub allocated_bytes: u64,
    /// Bytes of the file that no page has.
    pub free_bytes: u64,
    /// Bytes of those that are pages of no tree and not the file's own: long values, and pages
    /// about to be freed.
    pub long_value_bytes: u64,
}

/// Estimates about a tree, from a few page visits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeEstimates {
    /// About how many rows it has.
    pub rows: u64,
    /// Its levels.
    pub height: u8,
    /// Its pages at each level, leaves first.
    pub pages_by_level: Vec<u64>,
}

impl TableTree {
    /// Estimates about this tree.
    pub fn estimates(&self) -> Result<TreeEstimates> {
        let _trees = self.tree.space.keep_trees();
        let tree = self.not_dropped()?;
        let _shape = tree.space.keep_shape();
        Ok(TreeEstimates {
            rows: tree.estimate_rows()?,
            height: tree.height()?,
            pages_by_level: tree.pages_by_level()?,
        })
    }

    /// About how many different values the beginnings of the keys have, from about `leaves` leaves
    /// and the nodes above them; deleted rows count. `beginning_of` says how many bytes of a key
    /// its beginning is (the first columns of a key, as a rule), `None` for a key that is cut short
    /// before that. All keys between two of the same beginning must have it, too.
    pub fn estimate_values(
        &self,
        leaves: usize,
        beginning_of: &mut dyn FnMut(&[u8]) -> Option<usize>,
    ) -> Result<u64> {
        let _trees = self.tree.space.keep_trees();
        let tree = self.not_dropped()?;
        let _shape = tree.space.keep_shape();
        tree.estimate_values(leaves, beginning_of)
    }

    /// About how many rows lie between two bounds, and in which leaves that begins and ends.
    pub fn estimate_range(
        &self,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<RangeEstimates> {
        // The place after a key is the place before the next possible one.
        let after = |key: &[u8]| [key, &[0]].concat();
        let low = match low {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => after(key),
        };
        let high = match high {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
        };
        let _trees = self.tree.space.keep_trees();
        self.not_dropped()?.estimate_range(&low, high.as_deref())
    }
}

impl Database {
    /// Statistics of a table.
    pub fn statistics(&self, table: &Table) -> Result<TableStatistics> {
        // Trees that are there now stay as long as this is held.
        let _trees = table.inner.space.keep_trees();
        let tree = table.tree_ref().live(&self.inner.core)?;
        let _shape = tree.space.keep_shape();
        let page_size = self.inner.core.storage.page_size as u64;
        let allocated = tree.space.allocated_pages()?;
        let regions = u64::from(tree.space.last_region()?) + 1;
        let mut secondary_pages = 0;
        for other in table.trees()[1..]
            .iter()
            .filter(|other| other.live(&self.inner.core).is_ok())
        {
            secondary_pages += other.tree.pages_by_level()?.iter().sum::<u64>();
        }
        let pages_by_level = tree.pages_by_level()?;
        let mut known = regions * u64::from(SYSTEM_PAGES);
        // With the tree of pages to be freed, and trees that this handle does not know: one that is
        // being built.
        for (id, root) in tree.space.roots()? {
            let storage = self.inner.core.storage.clone();
            let each = Tree::new(tree.space.clone(), id, root, storage);
            known += each.pages_by_level()?.iter().sum::<u64>();
        }
        Ok(TableStatistics {
            rows: tree.estimate_rows()?,
            height: tree.height()?,
            pages_by_level,
            secondary_pages,
            file_bytes: tree.space.file().file_bytes(),
            free_bytes: tree.space.file().free_bytes(allocated),
            allocated_bytes: allocated * page_size,
            // Others may allocate and free meanwhile.
            long_value_bytes: allocated.saturating_sub(known) * page_size,
        })
    }

    /// About how many rows lie in `low..high`.
    pub fn records_in_range(
        &self,
        tree: &impl TreeRef,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<u64> {
        let tree = tree.tree_ref();
        let _trees = tree.tree.space.keep_trees();
        Ok(tree.live(&self.inner.core)?.estimate_range(low, high)?.rows)
    }

    /// Writes all changed pages of a table to its file, durably.
    pub fn flush_table(&self, table: &Table) -> Result<()> {
        self.inner.core.storage.poison.check()?;
        let space = &table.tree_ref().live(&self.inner.core)?.space;
        self.inner.finish_redo()?;
        let log = &self.inner.core.storage.log;
        log.wait_durable(log.current_lsn())?;
        self.inner.core.storage.pool.flush_space(space.id)?;
        space.file().sync()
    }

    /// Writes all changed pages and a checkpoint, and gives the free end of the undo file back to
    /// the file system.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.core.storage.poison.check()?;
        self.inner.finish_redo()?;
        self.inner.core.storage.pool.flush_all()?;
        self.inner.checkpoint(Occasion::Demand)?;
        self.inner.cut_undo_file(Cut::Most);
        self.inner.log_checkpoint()
    }

    /// Runs now one round of what the background does about checkpoints: the undo of transactions
    /// that keep more than `undo_bytes_max` of the log is saved in the undo file, and a checkpoint
    /// is written of how far the cleaners have come. Of the free end of the undo file half is given
    /// back to the file system.
    pub fn maintain(&self, undo_bytes_max: u64) -> Result<()> {
        self.inner.core.storage.poison.check()?;
        self.inner.note_boundary();
        self.inner.save_long_undo(undo_bytes_max)?;
        self.inner.checkpoint(Occasion::Routine)?;
        self.inner.cut_undo_file(Cut::Half);
        Ok(())
    }

    /// Waits until what an earlier run has left of large transactions is rolled back, which happens
    /// in the background. Until then their rows are invisible, and locked.
    ///
    /// # Errors
    /// A page that cannot be read or written, or a full disk: it is tried again in the background.
    pub fn finish_rollbacks(&self) -> Result<()> {
        self.inner.core.storage.poison.check()?;
        self.inner.core.finish_recovered()?;
        paranoid!(
            self.inner.core.changes_to_undo() == 0,
            "an earlier run's changes are left after their rollback"
        );
        self.inner.core.finish_rollbacks()
    }

    /// Has `listener` told, in words, when redo that this opening has left to the background is
    /// complete, and when its rollbacks are; at once of what was complete before. One listener; it
    /// is called by background threads, which it must not hold up.
    ///
    /// ```
    /// # use inkstone::{Database, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path(), Options::default())?;
    /// db.tell_when_recovered(std::sync::Arc::new(|text| eprintln!("{text}")));
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn tell_when_recovered(&self, listener: Arc<dyn Fn(&str) + Send + Sync>) {
        self.inner.recovery_listener.listen(listener);
    }

    /// How much of redo this opening has left: pages that are redone when they are read, and in the
    /// background. Also in the gauges `redo_pages_left` and `redo_bytes_left`.
    pub fn redo_left(&self) -> RedoStat {
        self.inner.redo_left()
    }

    /// Waits until all pages are redone that opening has left, which happens in the background. The
    /// calling thread helps. What looks at files as a whole does that by itself: a checkpoint that
    /// is asked for, [`Database::flush_table`], an export, a close but for
    /// [`Shutdown::LogOnly`](crate::Shutdown::LogOnly).
    ///
    /// ```
    /// # use inkstone::{Database, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path(), Options::default())?;
    /// db.finish_redo()?;
    /// assert_eq!(db.redo_left().pages, 0);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// A page that cannot be read, or that its changes do not fit. The others are redone all the
    /// same; this one is tried again in the background. Until then its readers get that error, and
    /// no checkpoint passes its changes: the log is kept.
    pub fn finish_redo(&self) -> Result<()> {
        self.inner.finish_redo()
    }

    /// Runs one round of purge now, instead of waiting for the background thread. Where the log has
    /// no room it waits for a checkpoint, as a statement does.
    pub fn purge(&self) -> Result<()> {
        let core = &self.inner.core;
        let mut rounds = 0;
        loop {
            core.before_round()?;
            rounds += 1;
            match crate::rows::purge::run(core) {
                // Others have used what room there was: a round goes on where the last one ended.
                Err(Error::DiskFull { .. }) if rounds < PURGE_ROUNDS_MAX => {}
                purged => return purged.map(drop),
            }
        }
    }

    /// Reads all that the undo file has of transactions that have not ended: of this run, and of
    /// those that an earlier run has left, which are rolled back in the background, or prepared.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: they cannot be rolled back.
    pub fn verify_undo(&self) -> Result<()> {
        self.inner.core.storage.poison.check()?;
        for writer in self.inner.core.writers() {
            let inner = writer.inner.lock();
            let undone = inner.undo_place.undone;
            self.inner
                .core
                .versions
                .read_logged(&inner.touched, undone)?;
        }
        Ok(())
    }

    /// As [`Database::verify_table`], of the catalog, which is no table but lies in one's shape.
    pub fn verify_catalog(&self) -> Result<TableReport> {
        self.inner.core.storage.poison.check()?;
        self.verify_table(&Table::over(&self.inner.catalog, "(catalog)", CLUSTERED))
    }

    /// Checks every page of a table: structure, order, fences, and that the space adds up: every
    /// page of the file is in use in exactly one place and allocated, or free. Others may write
    /// meanwhile (purge waits). Where they allocate or free pages, the report has some of those
    /// twice or not at all, and whether the space adds up is not looked at. A tree may be built
    /// that the handle does not know yet: then pages that nothing uses are not looked for, as they
    /// may be its own.
    pub fn verify_table(&self, table: &Table) -> Result<TableReport> {
        self.inner.core.storage.poison.check()?;
        table.tree_ref().live(&self.inner.core)?;
        let _no_purge = self.inner.core.purging.lock();
        let _no_undo = self.inner.core.undoing.lock();
        let _shape = table.inner.space.keep_shape();
        let mut check = Check {
            inner: &self.inner,
            table,
            users: BTreeMap::new(),
            walked: BTreeSet::new(),
            changes: table.inner.space.changes(),
        };
        let mut report = TableReport {
            table: table.name().to_owned(),
            ..TableReport::default()
        };
        for tree in table.trees() {
            let (found, overflow) = check.tree(&tree.tree, tree.name())?;
            report.overflow_pages += overflow;
            report.trees.push((tree.name().to_owned(), found));
        }
        check.pending()?;
        check.dropped()?;
        report.allocated_pages = check.allocation()?;
        report.file_pages = u64::from(table.inner.space.file().pages());
        paranoid!(
            check.is_disturbed()
                || report.allocated_pages >= check.users.len() as u64
                    && report.allocated_pages <= report.file_pages,
            "{} pages are in use, {} allocated, of {}",
            check.users.len(),
            report.allocated_pages,
            report.file_pages
        );
        Ok(report)
    }
}

/// The verification of one table.
struct Check<'d> {
    inner: &'d Inner,
    table: &'d Table,
    /// What uses each page.
    users: BTreeMap<PageNo, User>,
    /// Trees whose pages are among them.
    walked: BTreeSet<TreeId>,
    /// [`Space::changes`](crate::space::Space::changes) at the beginning.
    changes: u64,
}

/// What uses a page.
#[derive(Clone, Debug)]
enum User {
    /// A node of the tree of this name.
    Tree(String),
    /// A long value of the tree of this name.
    LongValue(String),
    /// A long value that is no longer needed, or not needed yet.
    ToBeFreed,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree(tree) => write!(f, "{tree}"),
            Self::LongValue(tree) => write!(f, "a long value of {tree}"),
            Self::ToBeFreed => write!(f, "a long value to be freed"),
        }
    }
}

impl Check<'_> {
    fn tree(&mut self, tree: &crate::btree::Tree, name: &str) -> Result<(TreeReport, u64)> {
        let mut overflow = Vec::new();
        let core = &self.inner.core;
        let found = tree.verify(&mut |_, page| {
            for slot in 0..page.count() {
                let cell = page.cell(slot);
                if cell.is_overflow() || cell.version.is_some() {
                    for first in self.chains_of(&cell) {
                        core.chain_pages(&tree.space, first, &mut overflow)?;
                    }
                }
            }
            Ok(())
        })?;
        for &page in &found.pages {
            self.claim(page, User::Tree(name.to_owned()))?;
        }
        for &page in &overflow {
            self.claim(page, User::LongValue(name.to_owned()))?;
        }
        let is_first = self.walked.insert(tree.id);
        paranoid!(
            is_first,
            "tree {} ({name}) was walked twice, and no page is used twice",
            tree.id
        );
        paranoid!(
            self.is_disturbed() || found.pages.len() + overflow.len() <= self.users.len(),
            "{} pages of {name} are used, and {} known",
            found.pages.len() + overflow.len(),
            self.users.len()
        );
        Ok((found, overflow.len() as u64))
    }

    /// The chains of a row: those that it has, and those that it gets back if a transaction without
    /// an end is rolled back. Of these no entry may say yet that they are to be freed: in the
    /// middle of a statement, or where a crash came amid it. Versions of a row can share a chain,
    /// rows cannot.
    fn chains_of(&self, cell: &Cell<'_>) -> BTreeSet<PageNo> {
        let versions = &self.inner.core.versions;
        let has_long = |flags: u8| flags & CELL_OVERFLOW != 0 && flags & CELL_DELETED == 0;
        let (mut flags, mut value) = (cell.flags, Cow::Borrowed(cell.value));
        let mut version = cell.version.unwrap_or(VersionAddress(0));
        let mut found = BTreeSet::new();
        loop {
            if has_long(flags) {
                found.extend(chains(&value));
            }
            // What the undo file says is not looked at here: a rollback will tell of damage.
            let Ok(Some(trx)) = versions.trx_of(version, u64::MAX) else {
                break;
            };
            if trx.is_ended() {
                break;
            }
            let Ok(Some(entry)) = versions.read(version) else {
                break;
            };
            let view = entry.view();
            if view.kind == VersionKind::Insert {
                break;
            }
            match view.kind {
                VersionKind::DeleteMark => flags &= !CELL_DELETED,
                _ => {
                    let Ok(old) = view.old_value(&value) else {
                        break;
                    };
                    (flags, value) = (view.old_flags, Cow::Owned(old.into_owned()));
                }
            }
            version = view.previous;
        }
        found
    }

    fn pending(&mut self) -> Result<()> {
        let space = &self.table.inner.space;
        if let Some(root) = space.root(PENDING_FREE_TREE)? {
            let storage = self.inner.core.storage.clone();
            let tree = Tree::new(space.clone(), PENDING_FREE_TREE, root, storage);
            self.tree(&tree, "the tree of pages to be freed")?;
            for page in self.inner.core.pending_pages(space)? {
                self.claim(page, User::ToBeFreed)?;
            }
        }
        Ok(())
    }

    /// Trees whose pages are still to be freed.
    fn dropped(&mut self) -> Result<()> {
        let space = &self.table.inner.space;
        let core = &self.inner.core;
        for id in core.dropped_trees_of(space.id) {
            let Some(root) = space.root(id)? else {
                continue;
            };
            let tree = Tree::new(space.clone(), id, root, core.storage.clone());
            let (mut pages, mut long) = (Vec::new(), Vec::new());
            tree.visit_pages(&mut |page, node| {
                pages.push(page.page);
                let slots = if node.is_leaf() { node.count() } else { 0 };
                for slot in 0..slots {
                    let cell = node.cell(slot);
                    if cell.is_overflow() && !cell.is_deleted() {
                        long.extend(core.long_value_pages(&tree, cell.value)?);
                    }
                }
                Ok(())
            })?;
            for page in pages.into_iter().chain(long) {
                self.claim(page, User::ToBeFreed)?;
            }
            self.walked.insert(id);
        }
        Ok(())
    }

    /// Whether pages were allocated or freed since it has begun.
    fn is_disturbed(&self) -> bool {
        self.table.inner.space.changes() != self.changes
    }

    fn claim(&mut self, page: PageNo, user: User) -> Result<()> {
        match (self.users.insert(page, user.clone()), user) {
            // A row that an old snapshot may still see can share its chain with an entry.
            (None, _) | (Some(User::LongValue(_)), User::ToBeFreed) => Ok(()),
            _ if self.is_disturbed() => Ok(()),
            (Some(other), user) => {
                Err(self.corrupt(page, format!("used by {other} and by {user}")))
            }
        }
    }

    fn corrupt(&self, page: PageNo, what: String) -> Error {
        let space = &self.table.inner.space;
        Error::corrupt_page(
            space.file().path(),
            space.page_id(page),
            Corrupt::at(0, what),
        )
    }

    /// Every page is in exactly one place: the file's own pages and those with a user are allocated
    /// and within the file, and nothing else is allocated. Returns how many are.
    fn allocation(&self) -> Result<u64> {
        let space = &self.table.inner.space;
        let covered = map_pages(self.inner.core.storage.page_size);
        let mut allocated = 0;
        let mut unused = None;
        for region in 0..=space.last_region()? {
            for page in space.allocated_in(region)? {
                allocated += 1;
                let own = page.0 % covered < SYSTEM_PAGES;
                if !own && !self.users.contains_key(&page) {
                    unused = unused.or(Some(page));
                }
                if page.0 >= space.file().pages() {
                    return Err(self.corrupt(page, "allocated behind the file's end".to_owned()));
                }
            }
        }
        // After the maps: a tree whose pages are in them has its root by now.
        let roots = space.roots()?;
        let is_built = roots.iter().any(|(tree, _)| !self.walked.contains(tree));
        if let Some(page) = unused.filter(|_| !is_built && !self.is_disturbed()) {
            return Err(self.corrupt(page, "allocated but not in use".to_owned()));
        }
        for (&page, user) in &self.users {
            if !space.is_allocated(page)? && !self.is_disturbed() {
                return Err(self.corrupt(page, format!("used by {user} but not allocated")));
            }
        }
        Ok(allocated)
    }
}
