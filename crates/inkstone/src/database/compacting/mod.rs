//! Making the file of a table as short as what is in it, while it is in use.
//!
//! 1. Leaves are filled from their right neighbours, then the nodes above them
//!    (`btree/compact.rs`).
//! 2. Pages of trees behind what the file needs move to the first free ones before.
//! 3. Long values with pages behind it are written again (`rows/compact.rs`); purge frees the old
//!    ones when no snapshot needs them.
//! 4. The free end is cut behind a checkpoint (`space/tail.rs`).
//!
//! 5. Of a placed table the last images move to free units before them
//!    (`store/placed/gathering.rs`), and the free end of these is cut.
//!
//! The second to the fourth are repeated while they gain something: others allocate meanwhile. Each
//! step is a mini-transaction, or a transaction of one row, and holds nothing afterwards; a crash
//! between two of them leaves a right tree. Each step holds off exports (`Space::tidy`), and the
//! freeing of dropped trees.
//! [Decision 0048](../../../../../docs/decisions/0048-compaction-beside-readers-and-writers.md).

mod options;

pub use options::{CompactOptions, CompactReport};

use super::{Database, Inner};
use crate::btree::{Moving, Packing, Tree};
use crate::paranoid::paranoid;
use crate::rows::{Table, TreeRef, purge};
use crate::space::{SYSTEM_PAGES, Space};
use crate::sync::{Instant, thread};
use crate::{Error, Result};
use inkstone_format::header::{PageType, page_type};
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::tree_page::TreePage;
use inkstone_format::{PageNo, TreeId};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Rounds of moving and cutting, at most.
const ROUNDS_MAX: usize = 8;
/// Steps after which the caller is told how far it has come.
const STEPS_BETWEEN_REPORTS: u64 = 64;
/// The longest sleep: a closing database is noticed then.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Rounds of purge one after the other.
const PURGES: usize = 4;
/// Looks for the end of the file while others look, or allocate there.
const CUTS_MAX: usize = 4;

impl Database {
    /// Makes the file of a table as short as what is in it, as fast as that goes, while others read
    /// and write the table: see [`compact_table_with`](Self::compact_table_with).
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let table = db.create_table("events", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// for n in 0..1000_u32 {
    ///     txn.insert(&table, &n.to_be_bytes(), &[7; 1000])?;
    /// }
    /// txn.commit()?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// for n in (0..1000_u32).filter(|n| n % 10 > 0) {
    ///     txn.delete(&table, &n.to_be_bytes())?;
    /// }
    /// txn.commit()?;
    /// let report = db.compact_table(&table)?;
    /// assert!(report.bytes_after < report.bytes_before);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`compact_table_with`](Self::compact_table_with).
    pub fn compact_table(&self, table: &Table) -> Result<CompactReport> {
        self.compact_table_with(table, &CompactOptions::new())
    }

    /// As [`compact_table`](Self::compact_table), with a limit on its speed, and told how far it
    /// has come. Neighbouring leaves with room are made fewer, fifteen sixteenths full; pages move
    /// from the end of the file to free ones before them; the end is given back to the file system
    /// behind a checkpoint, as [`shrink_table`](Self::shrink_table) does it.
    ///
    /// What it does is logged and crash-safe, and each page counts against the log as a row does.
    /// Nothing has to be durable for it but that checkpoint. It locks no table. What snapshots
    /// still need stays: deleted rows, and old pages of long values. A row whose long value moves
    /// is locked for that moment; one that others have locked is left where it is, and so is a
    /// value that is longer than all that is free before it.
    ///
    /// ```
    /// # use inkstone::{CompactOptions, Database, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("events", &[])?;
    /// let slowly = CompactOptions::new().bytes_per_second(20 << 20);
    /// let report = db.compact_table_with(&table, &slowly)?;
    /// println!("{} of {} bytes are left", report.bytes_after, report.bytes_before);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A page that cannot be read or written; [`Error::DiskFull`] when the log or a long value
    /// finds no room; [`Error::NotFound`] when the table is dropped meanwhile;
    /// [`Error::TransactionState`] while it is exported, or the database is closing. What was
    /// gained until then is kept.
    pub fn compact_table_with(
        &self,
        table: &Table,
        options: &CompactOptions<'_>,
    ) -> Result<CompactReport> {
        self.inner.core.check_writable()?;
        let space = table.tree_ref().live(&self.inner.core)?.space.clone();
        let mut compaction = Compaction::new(self, table, space, options);
        match compaction.run()? {
            ControlFlow::Continue(()) | ControlFlow::Break(()) => Ok(compaction.report()),
        }
    }
}

/// Whether it goes on, or was told not to.
type Flow = Result<ControlFlow<()>>;

const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

struct Compaction<'d> {
    database: &'d Database,
    table: &'d Table,
    space: Arc<Space>,
    options: &'d CompactOptions<'d>,
    begun: Instant,
    steps: u64,
    /// Bytes of pages that were moved.
    moved: u64,
    /// Free pages before the limit, about: as many as there are pages in use behind it.
    room: u64,
    report: CompactReport,
}

/// What a page behind the limit was.
enum Behind {
    Node(TreeId, u8, Vec<u8>),
    LongValue,
    Other,
}

impl<'d> Compaction<'d> {
    fn new(
        database: &'d Database,
        table: &'d Table,
        space: Arc<Space>,
        options: &'d CompactOptions<'d>,
    ) -> Self {
        let report = CompactReport {
            bytes_before: space.file().file_bytes(),
            ..CompactReport::default()
        };
        Self {
            database,
            table,
            space,
            options,
            begun: Instant::now(),
            steps: 0,
            moved: 0,
            room: 0,
            report,
        }
    }

    fn inner(&self) -> &'d Inner {
        &self.database.inner
    }

    fn report(&self) -> CompactReport {
        CompactReport {
            bytes_after: self.space.file().file_bytes(),
            ..self.report
        }
    }

    fn run(&mut self) -> Flow {
        self.inner().finish_redo()?;
        self.purge()?;
        if self.pack()?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        for _ in 0..ROUNDS_MAX {
            let before = (self.report.pages_moved, self.report.long_values_moved);
            let limit = self.limit()?;
            let mut long = false;
            if self.move_pages(limit, &mut long)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if long && self.move_long_values(limit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.purge()?;
            let cut = self.cut()?;
            let after = (self.report.pages_moved, self.report.long_values_moved);
            if before == after && cut == 0 {
                break;
            }
        }
        if self.space.file().is_placed() {
            return self.gather();
        }
        Ok(GO_ON)
    }

    /// Moves the images of a placed table together.
    fn gather(&mut self) -> Flow {
        let pool = &self.inner().core.storage.pool;
        // What is dirty is written first: it needs units, and leaves others.
        self.database.checkpoint()?;
        loop {
            if self.step()?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let Some(_tidy) = self.space.tidy() else {
                return Err(Error::TransactionState("not alone: the table is exported"));
            };
            let dirty = pool.dirty_pages_of(self.space.id);
            let bytes = self.space.file().gather_places(dirty)?;
            self.moved += bytes;
            if bytes == 0 {
                self.space.file().settle_places(dirty)?;
                return Ok(GO_ON);
            }
        }
    }

    /// Before each step, with nothing latched: whether to go on, and not too fast.
    fn step(&mut self) -> Flow {
        let core = &self.inner().core;
        core.check_stopping()?;
        core.before_upkeep()?;
        if self.space.is_dropped() {
            let name = self.table.name();
            return Err(Error::NotFound(format!("table {name} (it was dropped)")));
        }
        self.steps += 1;
        let is_due = self.steps.is_multiple_of(STEPS_BETWEEN_REPORTS);
        if is_due
            && let Some(progress) = self.options.progress
            && !progress(self.report())
        {
            return Ok(ControlFlow::Break(()));
        }
        let Some(rate) = self.options.bytes_per_second else {
            return Ok(GO_ON);
        };
        paranoid!(rate > 0, "a compaction that is never to end");
        let due = Duration::from_secs_f64(self.moved as f64 / rate as f64);
        loop {
            let early = due.saturating_sub(self.begun.elapsed());
            if early.is_zero() {
                return Ok(GO_ON);
            }
            thread::sleep(early.min(PAUSE_MAX));
            core.check_stopping()?;
        }
    }

    /// Does a step with a tree of the table, while no export and no removal of dropped trees goes
    /// on. `None`: the tree is being removed.
    fn with_tree<T>(&self, id: TreeId, work: impl FnOnce(&Tree) -> Result<T>) -> Result<Option<T>> {
        let Some(_tidy) = self.space.tidy() else {
            return Err(Error::TransactionState("not alone: the table is exported"));
        };
        let _trees = self.space.keep_trees();
        let core = &self.inner().core;
        if core.dropped_trees_of(self.space.id).contains(&id) {
            return Ok(None);
        }
        let root = self.space.root(id)?;
        let open = |root| Tree::new(self.space.clone(), id, root, core.storage.clone());
        root.map(|root| work(&open(root))).transpose()
    }

    fn count_moved(&mut self, pages: u64) {
        self.moved += pages * self.inner().core.storage.page_size as u64;
    }

    fn pack(&mut self) -> Flow {
        for (id, _) in self.space.roots()? {
            let height = self.with_tree(id, Tree::height)?.unwrap_or(0);
            for level in 0..height.saturating_sub(1) {
                if self.pack_level(id, level)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            // The root goes down to what is left.
            let core = &self.inner().core;
            self.with_tree(id, |tree| core.merge_around(tree, &[]))?;
        }
        Ok(GO_ON)
    }

    fn pack_level(&mut self, id: TreeId, level: u8) -> Flow {
        let core = &self.inner().core;
        let mut key = Vec::new();
        loop {
            if self.step()?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let packed = self.with_tree(id, |tree| {
                if level == 0 && id != PENDING_FREE_TREE {
                    core.clean_leaf_of(tree, &key)?;
                }
                tree.pack(&key, level, &|address| core.keeps(address))
            })?;
            match packed {
                Some(Packing::Moved) => {
                    self.report.nodes_packed += 1;
                    self.count_moved(1);
                }
                Some(Packing::Next(next)) => {
                    paranoid!(next > key, "the node behind {key:x?} begins at {next:x?}");
                    key = next;
                }
                Some(Packing::End) | None => return Ok(GO_ON),
            }
        }
    }

    /// Where the file could end: so many pages are in use.
    fn limit(&self) -> Result<PageNo> {
        let _shape = self.space.keep_shape();
        let pages = self.space.allocated_pages()? as u32;
        paranoid!(
            pages >= SYSTEM_PAGES && pages <= self.space.file().pages(),
            "{pages} pages are in use of a file of {}",
            self.space.file().pages()
        );
        Ok(PageNo(pages))
    }

    /// Moves pages of trees that lie at `limit` or behind, from the last one on. `long`: whether
    /// long values lie there.
    fn move_pages(&mut self, limit: PageNo, long: &mut bool) -> Flow {
        self.room = 0;
        let mut end = PageNo(u32::MAX);
        while let Some(page) = self.space.last_allocated_before(end)? {
            paranoid!(page < end, "page {page} is the last one before page {end}");
            if page < limit {
                break;
            }
            end = page;
            if self.step()?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            match self.what_is(page)? {
                Behind::Node(id, level, low) => {
                    let id_of_page = self.space.page_id(page);
                    let moved =
                        self.with_tree(id, |tree| tree.move_node(id_of_page, level, &low))?;
                    match moved {
                        Some(Moving::Moved) => {
                            self.report.pages_moved += 1;
                            self.count_moved(1);
                        }
                        Some(Moving::Full) => {
                            self.room = 0;
                            break;
                        }
                        Some(Moving::Left) | None => self.room += 1,
                    }
                }
                Behind::LongValue => {
                    *long = true;
                    self.room += 1;
                }
                Behind::Other => self.room += 1,
            }
        }
        Ok(GO_ON)
    }

    fn what_is(&self, page: PageNo) -> Result<Behind> {
        let Some(bytes) = self.space.page_if_allocated(page)? else {
            return Ok(Behind::Other);
        };
        Ok(match page_type(&bytes) {
            Some(PageType::Leaf | PageType::Inner) => {
                let node = TreePage(&bytes);
                Behind::Node(node.tree(), node.level(), node.low().to_vec())
            }
            Some(PageType::Overflow) => Behind::LongValue,
            _ => Behind::Other,
        })
    }

    fn move_long_values(&mut self, limit: PageNo) -> Flow {
        for (id, _) in self.space.roots()? {
            if id == PENDING_FREE_TREE {
                continue;
            }
            if self.move_long_values_of(id, limit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(GO_ON)
    }

    fn move_long_values_of(&mut self, id: TreeId, limit: PageNo) -> Flow {
        let core = &self.inner().core;
        let mut from = Some(Vec::new());
        while let Some(key) = from {
            if self.step()?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let leaf = self.with_tree(id, |tree| core.long_rows_of_leaf(tree, &key))?;
            let Some((rows, next)) = leaf else { break };
            paranoid!(
                next.as_ref().is_none_or(|next| *next > key),
                "the leaf behind {key:x?} begins at {next:x?}"
            );
            for (key, reference) in rows {
                if self.step()?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                let room = self.room;
                let written = self.with_tree(id, |tree| {
                    // What cannot be read may have been freed meanwhile; else this finds it again.
                    let pages = core.pages_if_behind(tree, &reference, limit);
                    match pages.unwrap_or(Some(0)) {
                        // One that does not fit before the limit would end behind it once more, and
                        // leave the room that it came from: each round would only write it again.
                        Some(pages) if pages <= room => {
                            let bytes = core.store_again(tree, &key)?;
                            Ok(bytes.map(|bytes| (bytes, pages)))
                        }
                        _ => Ok(None),
                    }
                })?;
                if let Some((bytes, pages)) = written.flatten() {
                    self.report.long_values_moved += 1;
                    self.moved += bytes;
                    self.room -= pages;
                }
            }
            from = next;
        }
        Ok(GO_ON)
    }

    /// What a round of purge finds may make more ready for the next one: versions of which no more
    /// are written, then pages that they kept.
    fn purge(&self) -> Result<()> {
        let core = &self.inner().core;
        (0..PURGES).try_for_each(|_| purge::run(core).map(drop))
    }

    /// Gives the free end of the file back. How many bytes that was.
    fn cut(&self) -> Result<u64> {
        for _ in 0..CUTS_MAX {
            match self.database.shrink_table(self.table)? {
                0 => thread::yield_now(),
                bytes => return Ok(bytes),
            }
        }
        Ok(0)
    }
}
