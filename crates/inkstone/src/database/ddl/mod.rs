//! Creating, dropping and renaming tables. Each is one transaction on the catalog; the file comes
//! before its commit, and goes after it. What a crash leaves between is removed at the next open,
//! on the word of the log (see `unknown`): a file's creation is logged, its deletion stands in the
//! log with the commit that drops the table, and no checkpoint passes either until it is over.

use super::checkpoint::Hold;
use super::{Database, Inner};
use crate::btree::Tree;
use crate::catalog::{
    CATALOG_ISOLATION, CATALOG_SPACE, CLUSTERED, Catalog, TableDefinition, check_name,
};
use crate::mvcc::Interrupt;
use crate::options::{Durability, TableOptions};
use crate::paranoid::paranoid;
use crate::rows::{Table, TableInner, TableTree, TreeRef};
use crate::space::{SYSTEM_PAGES, Space};
use crate::store::Placement;
use crate::sync::{Instant, thread};
use crate::txn::Transaction;
use crate::txn::state::{HasChanged, LOOK_TIME_MAX};
use crate::{Error, Result};
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::{SpaceId, TreeId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Pages that a new tablespace file has.
const FIRST_PAGES: u32 = 16;
/// How often a thread that waits for prepared transactions looks again.
const PREPARED_LOOK_INTERVAL: Duration = Duration::from_millis(5);

impl Database {
    /// Creates a table with a clustered tree and secondary trees of these names, durably. Names
    /// have 1 to 768 bytes and no zero byte. [`Error::AlreadyExists`] if there is a table of this
    /// name, [`Error::Unsupported`] for more than 126 secondary trees.
    pub fn create_table(&self, name: &str, secondary: &[&str]) -> Result<Table> {
        self.create_table_with(name, secondary, &TableOptions::new())
    }

    /// As [`create_table`](Self::create_table), with options of its own. [`Error::InvalidOption`]
    /// for those that do not go together.
    pub fn create_table_with(
        &self,
        name: &str,
        secondary: &[&str],
        options: &TableOptions,
    ) -> Result<Table> {
        self.create_laid_out(name, secondary, options, &[])
    }

    /// As [`create_table_with`](Self::create_table_with), with what the catalog is to say of the
    /// layout of each tree; of none, if these are none.
    pub(crate) fn create_laid_out(
        &self,
        name: &str,
        secondary: &[&str],
        options: &TableOptions,
        layouts: &[String],
    ) -> Result<Table> {
        check_name("table", name)?;
        if secondary.len() + 1 > PENDING_FREE_TREE.0 as usize {
            return Err(Error::Unsupported(format!(
                "table {name} with {} trees: a table has at most {}",
                secondary.len() + 1,
                PENDING_FREE_TREE.0
            )));
        }
        for (n, tree) in secondary.iter().enumerate() {
            check_name("tree", tree)?;
            if *tree == CLUSTERED || secondary[..n].contains(tree) {
                return Err(Error::AlreadyExists(format!("tree {tree} of table {name}")));
            }
        }
        let inner = &self.inner;
        let kind = options.resolve(&inner.new_table)?;
        let _ddl = inner.begin_ddl()?;
        if self.definition(name)?.is_some() {
            return Err(Error::AlreadyExists(format!("table {name}")));
        }
        let space = inner.new_space()?;
        paranoid!(
            space > CATALOG_SPACE,
            "table {name} would be the catalog, {space}"
        );
        let hold = inner.hold_log();
        let made = inner.make_table(name, space, (secondary, layouts), Placement::of(kind));
        if made.is_err() {
            inner.unmake_space(space)?;
        }
        drop(hold);
        self.find_table(&made?.name)
    }

    /// Drops a table, durably: its rows are gone, and its file is removed. Open handles of the
    /// table get [`Error::NotFound`] from then on.
    ///
    /// It waits for transactions that have changed the table and not ended, prepared ones too, at
    /// most the option `lock_wait_timeout_ms`: [`Error::LockTimeout`], and the table is as it was.
    /// So it is with one of the thread's own, which must end first. A transaction that changes its
    /// first row of the table while it is being dropped may find it gone, or may commit changes
    /// that are gone with it; a program that does not want that keeps its writers away.
    ///
    /// ```
    /// # use inkstone::{Database, Error, Isolation, Options};
    /// # let options = Options { lock_wait_timeout_ms: 10, ..Options::default() };
    /// # let db = Database::in_memory(options)?;
    /// let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"a", b"1")?;
    /// assert!(matches!(db.drop_table("t"), Err(Error::LockTimeout { .. })));
    /// txn.commit()?;
    /// db.drop_table("t")?;
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let inner = &self.inner;
        let known = || -> Result<_> {
            let ddl = inner.begin_ddl()?;
            Ok((self.known_definition(name)?, ddl))
        };
        let (patience, begun) = (inner.core.options.lock_wait_timeout, Instant::now());
        loop {
            let space = known()?.0.space;
            self.wait_for_writers(space, name, patience.saturating_sub(begun.elapsed()))?;
            let (definition, _ddl) = known()?;
            // Not another table, that was given the name meanwhile.
            if definition.space == space {
                return self.drop_defined(&definition);
            }
        }
    }

    /// As [`drop_table`](Self::drop_table), but it waits for no transaction: one that has changed
    /// the table goes on, its other changes can be committed, and those of the table are gone
    /// whatever becomes of it. For programs that have locks of their own on tables, as a server
    /// has.
    pub fn drop_table_at_once(&self, name: &str) -> Result<()> {
        let _ddl = self.inner.begin_ddl()?;
        self.drop_defined(&self.known_definition(name)?)
    }

    /// Drops a table. The caller holds the latch of DDL.
    fn drop_defined(&self, definition: &TableDefinition) -> Result<()> {
        let inner = &self.inner;
        let _hold = inner.hold_log();
        let transaction = Transaction::begin_own(&inner.core, CATALOG_ISOLATION)?;
        Catalog::new(&inner.catalog, &transaction).remove(&definition.name)?;
        transaction.delete_file(definition.space)?;
        transaction.commit_with(Durability::Sync)?;
        inner.note_definition(&definition.name, None);
        inner.remove_space(definition.space)
    }

    /// Renames a table, durably. Open handles go on working. [References](Self::set_references) to
    /// it have its new name.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<()> {
        self.rename(from, to, true)
    }

    /// Adds an empty secondary tree to a table, durably. Filling it is up to the caller. A table
    /// has at most 127 trees ([`Error::Unsupported`]). After a crash while it is filled the tree is
    /// there, with a part of its entries, and no error says so: fill it under a name that says that
    /// it is not whole, and [rename](Self::rename_tree) it then.
    pub fn create_tree(&self, table: &str, name: &str) -> Result<Table> {
        self.create_filled_tree(table, name, None, |_| Ok(()))
    }

    /// As [`create_tree`](Self::create_tree), filled by `fill` before the catalog names it: the
    /// tree is there whole, or not at all, whatever happens meanwhile. What `fill` commits is in
    /// the log before the name is. It holds the latch of DDL.
    pub(crate) fn create_filled_tree(
        &self,
        table: &str,
        name: &str,
        layout: Option<String>,
        fill: impl FnOnce(&TableTree) -> Result<()>,
    ) -> Result<Table> {
        check_name("tree", name)?;
        let inner = &self.inner;
        let _ddl = inner.begin_ddl()?;
        let mut definition = self.known_definition(table)?;
        if definition.trees.iter().any(|(_, tree)| tree == name) {
            return Err(Error::AlreadyExists(format!(
                "tree {name} of table {table}"
            )));
        }
        // Opened first: that removes trees that no definition names, as this one for now.
        let shared = self.find_table(table)?.inner;
        let space = inner.space_of(&definition)?;
        let id = space.free_tree_id()?;
        paranoid!(
            definition.trees.iter().all(|(named, _)| *named != id),
            "the number {id} of a new tree of {table} is another's"
        );
        let made = TableTree {
            tree: Tree::create(space.clone(), id, inner.core.storage.clone())?,
            name: name.into(),
            table: shared,
        };
        definition.trees.push((id, name.to_owned()));
        definition.layouts.extend(layout.map(|layout| (id, layout)));
        if let Err(error) = fill(&made).and_then(|()| self.redefine(&definition)) {
            // After a crash an unnamed tree is removed when its table is opened.
            inner.core.drop_tree(&space, id);
            return Err(error);
        }
        inner.complete_tree(&space, id);
        self.find_table(table)
    }

    /// Says that a table, or a tree, is whole only now: snapshots from before get
    /// [`Error::TableChanged`] from it, and not some of its rows. Tables and trees are so when they
    /// are made; a caller that fills one while others begin transactions, as `ALTER TABLE` does,
    /// says it again when it is filled. Nothing of it is durable: no snapshot outlives the
    /// database's closing.
    pub fn complete_tree(&self, tree: &impl TreeRef) -> Result<()> {
        let tree = tree.tree_ref().live(&self.inner.core)?;
        self.inner.complete_tree(&tree.space, tree.id);
        Ok(())
    }

    /// Says that a tree is whole for every snapshot, however old: that of a table that only one
    /// client uses, which knows when it made it. Rows that other transactions of the client have
    /// committed since are no rows to its snapshot. Nothing of it is durable.
    ///
    /// ```
    /// # use inkstone::{Database, Error, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.take_snapshot()?;
    /// let table = db.create_table("own", &[])?;
    /// txn.insert(&table, b"a", b"1")?;
    /// assert!(matches!(txn.get(&table, b"a"), Err(Error::TableChanged { .. })));
    /// db.complete_tree_for_all(&table)?;
    /// assert_eq!(txn.get(&table, b"a")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn complete_tree_for_all(&self, tree: &impl TreeRef) -> Result<()> {
        let tree = tree.tree_ref().live(&self.inner.core)?;
        tree.space.set_complete_for_all(tree.id);
        paranoid!(
            tree.space.is_complete_at(tree.id, 0),
            "the first snapshot cannot read tree {} of {}",
            tree.id,
            tree.space.id
        );
        Ok(())
    }

    /// Waits until no prepared transaction has changed rows of a table, nor one that a crash has
    /// left and that is being rolled back. To be called before a tree is made of the rows that are
    /// there: what is prepared has left its other trees as they were,
    /// and may yet be rolled back, or commit without an entry in the new one.
    /// [`Error::LockTimeout`] after `patience`, or after ten seconds if that is longer while one is
    /// being prepared or ended, whose rows may be of any table; [`Error::Interrupted`] when
    /// `interrupt` is raised.
    ///
    /// ```
    /// # use inkstone::{Database, Error, Isolation, Options};
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"a", b"1")?;
    /// txn.prepare(b"branch-1")?;
    /// let waited = db.wait_for_prepared(&table, Duration::from_millis(1), None);
    /// assert!(matches!(waited, Err(Error::LockTimeout { .. })));
    /// db.commit_prepared(b"branch-1")?;
    /// db.wait_for_prepared(&table, Duration::from_millis(1), None)?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn wait_for_prepared(
        &self,
        table: &impl TreeRef,
        patience: Duration,
        interrupt: Option<&Interrupt>,
    ) -> Result<()> {
        let space = table.tree_ref().live(&self.inner.core)?.space.id;
        let core = &self.inner.core;
        let begun = Instant::now();
        loop {
            // One in the middle of a call may be of another table, for which nothing waits: that
            // it is will show when the call is over.
            let patience = match core.prepared_has_changed(space)? {
                HasChanged::No => return Ok(()),
                HasChanged::Yes => patience,
                HasChanged::Busy => patience.max(LOOK_TIME_MAX),
            };
            core.storage.poison.check()?;
            interrupt.map_or(Ok(()), Interrupt::check)?;
            let waited = begun.elapsed();
            if waited >= patience {
                let waited_ms = waited.as_millis() as u64;
                let name = &table.tree_ref().table.name;
                let place = format!("prepared transactions that have changed table {name}");
                return Err(Error::LockTimeout { waited_ms, place });
            }
            // No signal tells a waiter that a transaction of another process's coordinator has
            // ended.
            thread::sleep(PREPARED_LOOK_INTERVAL.min(patience - waited));
        }
    }

    /// Drops a secondary tree, durably. Its pages are freed in the background, once the
    /// transactions have ended that were there. Open handles of the tree get [`Error::NotFound`]
    /// from then on.
    pub fn drop_tree(&self, table: &str, name: &str) -> Result<Table> {
        let inner = &self.inner;
        let _ddl = inner.begin_ddl()?;
        let mut definition = self.known_definition(table)?;
        let at = secondary(&definition, name)?;
        paranoid!(at > 0, "the clustered tree of table {table} is dropped");
        let (id, _) = definition.trees.remove(at);
        definition.layouts.retain(|(tree, _)| *tree != id);
        let space = inner.space_of(&definition)?;
        self.redefine(&definition)?;
        inner.core.drop_tree(&space, id);
        self.find_table(table)
    }

    /// Renames a secondary tree, durably. Open handles go on working, under the old name.
    pub fn rename_tree(&self, table: &str, from: &str, to: &str) -> Result<Table> {
        check_name("tree", to)?;
        let inner = &self.inner;
        let _ddl = inner.begin_ddl()?;
        let mut definition = self.known_definition(table)?;
        let at = secondary(&definition, from)?;
        if definition.trees.iter().any(|(_, tree)| tree == to) {
            return Err(Error::AlreadyExists(format!("tree {to} of table {table}")));
        }
        definition.trees[at].1 = to.to_owned();
        self.redefine(&definition)?;
        self.find_table(table)
    }

    /// Drops table `to`, and gives its name and its references to table `from`, in one durable
    /// step: with an empty table, this is how to truncate one. It waits for no transaction: see
    /// [`drop_table_at_once`](Self::drop_table_at_once).
    pub fn replace_table(&self, from: &str, to: &str) -> Result<()> {
        self.replace_tables(&[(from, to)])
    }

    /// [`Database::replace_table`] for several pairs of `from` and `to` in one durable step: all or
    /// none. No table may be named twice.
    pub fn replace_tables(&self, pairs: &[(&str, &str)]) -> Result<()> {
        let mut names = BTreeSet::new();
        for name in pairs.iter().flat_map(|(from, to)| [from, to]) {
            if !names.insert(*name) {
                return Err(Error::AlreadyExists(format!("table {name}")));
            }
        }
        let inner = &self.inner;
        let _ddl = inner.begin_ddl()?;
        let _hold = inner.hold_log();
        let transaction = Transaction::begin_own(&self.inner.core, CATALOG_ISOLATION)?;
        let catalog = Catalog::new(&inner.catalog, &transaction);
        let mut replaced = Vec::new();
        let mut definitions = Vec::new();
        for (from, to) in pairs {
            let old = self.known_definition(to)?;
            let definition = TableDefinition {
                name: (*to).to_owned(),
                references: old.references,
                ..self.known_definition(from)?
            };
            catalog.remove(from)?;
            catalog.replace(&definition)?;
            transaction.delete_file(old.space)?;
            replaced.push(old.space);
            definitions.push((from, definition));
        }
        paranoid!(
            replaced.len() == pairs.len() && !replaced.contains(&CATALOG_SPACE),
            "tables {names:?} take the places of {replaced:?}"
        );
        transaction.commit_with(Durability::Sync)?;
        for (from, definition) in &definitions {
            inner.note_definition(from, None);
            inner.note_definition(&definition.name, Some(definition));
        }
        // It has happened: whatever one removal says, the others are tried.
        let removed: Vec<_> = replaced
            .into_iter()
            .map(|space| inner.remove_space(space))
            .collect();
        removed.into_iter().collect()
    }

    /// Writes a table's changed definition, durably. The caller holds the latch of DDL.
    pub(super) fn redefine(&self, definition: &TableDefinition) -> Result<()> {
        paranoid!(
            self.inner.is_ddl_latched(),
            "table {} is redefined beside other changes of tables",
            definition.name
        );
        let transaction = Transaction::begin_own(&self.inner.core, CATALOG_ISOLATION)?;
        Catalog::new(&self.inner.catalog, &transaction).replace(definition)?;
        transaction.commit_with(Durability::Sync)?;
        self.inner
            .note_definition(&definition.name, Some(definition));
        Ok(())
    }

    /// What the catalog says of the layout of a table's trees, by their names.
    pub(crate) fn layouts(&self, table: &str) -> Result<Vec<(String, String)>> {
        let definition = self.known_definition(table)?;
        let name_of = |id| definition.trees.iter().find(|(tree, _)| *tree == id);
        let layouts = definition.layouts.iter();
        let named = layouts.filter_map(|(id, layout)| Some((&name_of(*id)?.1, layout)));
        Ok(named
            .map(|(tree, layout)| (tree.clone(), layout.clone()))
            .collect())
    }

    /// Has the catalog say so of trees of which it says nothing yet.
    pub(crate) fn add_layouts(&self, table: &str, layouts: &[(String, String)]) -> Result<()> {
        let _ddl = self.inner.begin_ddl()?;
        let mut definition = self.known_definition(table)?;
        for (id, name) in &definition.trees {
            let is_told = definition.layouts.iter().any(|(tree, _)| tree == id);
            let told = layouts.iter().find(|(tree, _)| tree == name);
            if let (false, Some((_, layout))) = (is_told, told) {
                definition.layouts.push((*id, layout.clone()));
            }
        }
        paranoid!(
            definition.layouts.len() <= definition.trees.len(),
            "table {table} has more layouts than trees"
        );
        self.redefine(&definition)
    }

    /// Names of all tables.
    pub fn tables(&self) -> Result<Vec<String>> {
        Ok(self
            .definitions()?
            .into_iter()
            .map(|table| table.name)
            .collect())
    }

    /// What the catalog says of all tables.
    #[doc(hidden)]
    pub fn definitions(&self) -> Result<Vec<TableDefinition>> {
        let transaction = Transaction::begin_own(&self.inner.core, CATALOG_ISOLATION)?;
        Catalog::new(&self.inner.catalog, &transaction).all()
    }

    pub(super) fn definition(&self, name: &str) -> Result<Option<TableDefinition>> {
        let transaction = Transaction::begin_own(&self.inner.core, CATALOG_ISOLATION)?;
        Catalog::new(&self.inner.catalog, &transaction).find(name)
    }

    pub(super) fn known_definition(&self, name: &str) -> Result<TableDefinition> {
        let found = self.definition(name)?;
        paranoid!(
            found.as_ref().is_none_or(|found| found.name == name),
            "the definition of table {name} is that of another: {found:?}"
        );
        found.ok_or_else(|| Error::NotFound(format!("table {name}")))
    }

    /// Opens a table. [`Error::NotFound`] if there is none of this name.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.inner.core.storage.poison.check()?;
        if let Some(table) = self.inner.tables.lock().get(name) {
            return Ok(table.clone());
        }
        // Under the latch of DDL: what the catalog says must still be so when the handle is kept.
        let _ddl = self.inner.latch_ddl()?;
        self.find_table(name)
    }

    /// Opens a table; the caller holds the latch of DDL.
    pub(super) fn find_table(&self, name: &str) -> Result<Table> {
        if let Some(table) = self.inner.tables.lock().get(name) {
            return Ok(table.clone());
        }
        paranoid!(
            self.inner.is_ddl_latched(),
            "table {name} is opened beside changes of tables"
        );
        let definition = self.known_definition(name)?;
        let table = self.inner.open_table(&definition)?;
        paranoid!(
            table.trees().len() == definition.trees.len() && table.name() == name,
            "table {name} was opened as {} with {} trees",
            table.name(),
            table.trees().len()
        );
        Ok(self
            .inner
            .tables
            .lock()
            .entry(name.to_owned())
            .or_insert(table)
            .clone())
    }
}

/// The place of a secondary tree in a definition.
fn secondary(definition: &TableDefinition, tree: &str) -> Result<usize> {
    let at = definition.trees.iter().position(|(_, name)| name == tree);
    match at {
        Some(0) => Err(Error::Unsupported(format!(
            "the clustered tree of table {} is the table: it is dropped with it, and has its name for ever",
            definition.name
        ))),
        Some(at) => Ok(at),
        None => Err(Error::NotFound(format!(
            "tree {tree} of table {}",
            definition.name
        ))),
    }
}

impl Inner {
    fn space_of(&self, definition: &TableDefinition) -> Result<Arc<Space>> {
        let space = self.core.space(definition.space)?;
        paranoid!(
            space
                .as_ref()
                .is_none_or(|space| space.id == definition.space),
            "table {} lies in tablespace {}, and another was found",
            definition.name,
            definition.space
        );
        space.ok_or_else(|| Error::NotFound(format!("the file of table {}", definition.name)))
    }

    fn make_table(
        &self,
        name: &str,
        space: SpaceId,
        (secondary, layouts): (&[&str], &[String]),
        placement: Placement,
    ) -> Result<TableDefinition> {
        let storage = &self.core.storage;
        let pages = FIRST_PAGES.max(SYSTEM_PAGES);
        let file = self.files.create(space, pages, placement)?;
        let opened = Arc::new(Space::new(space, storage.clone(), file));
        opened.initialise(&self.uuid)?;
        self.core.add_space(&opened);
        let names = std::iter::once(CLUSTERED).chain(secondary.iter().copied());
        let trees: Vec<(TreeId, String)> =
            (0..).map(TreeId).zip(names.map(str::to_owned)).collect();
        paranoid!(
            self.is_ddl_latched() && trees.len() == secondary.len() + 1,
            "table {name} gets {} trees, for {} names, beside other changes of tables",
            trees.len(),
            secondary.len()
        );
        for (id, _) in &trees {
            Tree::create(opened.clone(), *id, storage.clone())?;
        }
        let definition = TableDefinition {
            name: name.to_owned(),
            space,
            trees,
            references: Vec::new(),
            layouts: (0..).map(TreeId).zip(layouts.iter().cloned()).collect(),
        };
        let transaction = Transaction::begin_own(&self.core, CATALOG_ISOLATION)?;
        Catalog::new(&self.catalog, &transaction).add(&definition)?;
        transaction.commit_with(Durability::Sync)?;
        self.note_definition(name, Some(&definition));
        for (id, _) in &definition.trees {
            self.complete_tree(&opened, *id);
        }
        Ok(definition)
    }

    /// Snapshots from before cannot read the tree from now on.
    pub(super) fn complete_tree(&self, space: &Space, tree: TreeId) {
        let now = self.core.trxs.snapshot().seq();
        space.set_complete_from(tree, now);
        paranoid!(
            space.is_complete_at(tree, now),
            "a snapshot of now cannot read tree {tree} of {}",
            space.id
        );
    }

    /// Keeps what is logged from now on for recovery to read. The caller holds the latch of DDL.
    pub(super) fn hold_log(&self) -> Hold<'_> {
        self.checkpoints.hold(self.core.storage.log.ready_lsn())
    }

    /// Removes a tablespace of which the log says, durably, that its file is no longer needed.
    fn remove_space(&self, space: SpaceId) -> Result<()> {
        paranoid!(space != CATALOG_SPACE, "the catalog is to be removed");
        self.core.forget_space(space);
        self.files.remove(space)
    }

    /// Removes a tablespace that is not to be after all.
    pub(super) fn unmake_space(&self, space: SpaceId) -> Result<()> {
        self.core.log_file_delete(space)?;
        self.remove_space(space)
    }

    pub(super) fn open_table(&self, definition: &TableDefinition) -> Result<Table> {
        let path = self.files.path(definition.space);
        let missing = || Error::NotADatabase {
            path: path.clone(),
            reason: format!(
                "the file of table {} is missing; restore it from a backup",
                definition.name
            ),
        };
        let space = self.core.space(definition.space)?.ok_or_else(missing)?;
        space.check_header(&self.uuid)?;
        space.check_length()?;
        if space.is_untidy() {
            self.core.remove_unnamed_trees(definition, &space)?;
            space.set_tidy();
        }
        let inner = Arc::new(TableInner {
            name: definition.name.clone(),
            space: space.clone(),
        });
        let trees = definition.trees.iter().map(|(id, name)| {
            let tree = Tree::open(space.clone(), *id, self.core.storage.clone())?;
            Ok(TableTree {
                tree,
                name: name.as_str().into(),
                table: inner.clone(),
            })
        });
        Ok(Table {
            trees: trees.collect::<Result<Arc<[_]>>>()?,
            inner,
        })
    }
}

#[cfg(test)]
mod tests;
