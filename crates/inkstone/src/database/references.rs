//! References between tables (foreign keys): what the catalog says of them, kept at hand. They are
//! enforced by the layer that knows the columns of rows, as the SQL handler does; what it needs
//! from here is which there are, and to notice when that changes.
//!
//! - What is at hand is what the catalog has: each change of a definition is noted behind its
//!   commit. Tested by `what_is_at_hand_is_what_the_catalog_has`.

use super::{Database, Inner};
use crate::catalog::{CATALOG_ISOLATION, Catalog, Reference, TableDefinition, check_name};
use crate::options::Durability;
use crate::paranoid::paranoid;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::txn::Transaction;
use crate::{Error, Result};
use inkstone_format::catalog::REFERENCES_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The references of all tables.
#[derive(Default)]
pub struct References {
    /// Goes up with each change of a table's definition.
    version: AtomicU64,
    /// None before it is asked for: databases without references pay nothing.
    graph: Mutex<Option<Graph>>,
}

/// Which tables refer to which.
#[derive(Default, PartialEq, Eq, Debug)]
struct Graph {
    of_children: BTreeMap<String, Arc<[Reference]>>,
    /// By parent, the names of its children.
    children: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn of(definitions: &[TableDefinition]) -> Self {
        let mut graph = Self::default();
        for table in definitions {
            graph.set(&table.name, &table.references);
        }
        graph.check();
        graph
    }

    fn set(&mut self, child: &str, references: &[Reference]) {
        for old in self.of_children.remove(child).iter().flat_map(|old| &**old) {
            if let Some(children) = self.children.get_mut(&old.parent) {
                children.remove(child);
                if children.is_empty() {
                    self.children.remove(&old.parent);
                }
            }
        }
        if references.is_empty() {
            return;
        }
        for new in references {
            let children = self.children.entry(new.parent.clone()).or_default();
            children.insert(child.to_owned());
        }
        self.of_children.insert(child.to_owned(), references.into());
    }

    /// Both maps say the same.
    fn check(&self) {
        for (parent, children) in &self.children {
            paranoid!(!children.is_empty(), "{parent} is kept without children");
            for child in children {
                let references = self.of_children.get(child).map_or(&[][..], |of| of);
                paranoid!(
                    references.iter().any(|one| one.parent == *parent),
                    "{child} is a child of {parent}, and does not refer to it"
                );
            }
        }
    }

    fn to(&self, parent: &str) -> Vec<(String, Reference)> {
        let children = self.children.get(parent).into_iter().flatten();
        children
            .flat_map(|child| {
                let of_child = self.of_children.get(child).map_or(&[][..], |of| of);
                of_child.iter().map(move |reference| (child, reference))
            })
            .filter(|(_, reference)| reference.parent == parent)
            .map(|(child, reference)| (child.clone(), reference.clone()))
            .collect()
    }
}

impl Inner {
    /// Takes note of a change of the catalog that is committed: what it says of a table now.
    pub(super) fn note_definition(&self, name: &str, definition: Option<&TableDefinition>) {
        paranoid!(
            definition.is_none_or(|definition| definition.name == name),
            "the definition of another table is noted as that of {name}"
        );
        let references = definition.map_or(&[][..], |it| &it.references);
        if let Some(graph) = &mut *self.references.graph.lock() {
            graph.set(name, references);
            graph.check();
        }
        self.references.version.fetch_add(1, Ordering::Release);
        self.tables.lock().remove(name);
    }
}

impl Database {
    /// Calls `look` with the graph, which is read from the catalog for the first one.
    fn with_references<T>(&self, look: impl FnOnce(&Graph) -> T) -> Result<T> {
        // Latched while it is read: what is committed meanwhile is noted behind it.
        let mut graph = self.inner.references.graph.lock();
        let graph = match &mut *graph {
            Some(graph) => graph,
            empty => empty.insert(Graph::of(&self.definitions()?)),
        };
        Ok(look(graph))
    }

    /// The references of a table to its parents, in the order in which they were set. None for a
    /// table that is not there.
    pub fn references(&self, table: &str) -> Result<Vec<Reference>> {
        let of = |graph: &Graph| graph.of_children.get(table).cloned();
        Ok(self
            .with_references(of)?
            .map_or(Vec::new(), |found| found.to_vec()))
    }

    /// The references to a table, which need not be there, with the names of the tables that have
    /// them.
    pub fn references_to(&self, parent: &str) -> Result<Vec<(String, Reference)>> {
        self.with_references(|graph| graph.to(parent))
    }

    /// Tables that have references, with them.
    pub fn all_references(&self) -> Result<Vec<(String, Vec<Reference>)>> {
        self.with_references(|graph| {
            let all = graph.of_children.iter();
            all.map(|(child, of)| (child.clone(), of.to_vec()))
                .collect()
        })
    }

    /// A number that goes up whenever a table is made, dropped, renamed or defined anew: as long as
    /// it is the same, what was found out about references is so.
    pub fn references_version(&self) -> u64 {
        self.inner.references.version.load(Ordering::Acquire)
    }

    /// Gives a table these references in the place of those that it has, durably. The engine keeps
    /// them with the table's definition and checks no row by them: that is up to the caller. The
    /// parents need not be there.
    ///
    /// A table that is renamed takes the references to it along; see
    /// [`rename_table_alone`](Self::rename_table_alone) for one that does not. One that is dropped
    /// leaves them to its name.
    ///
    /// ```
    /// # use inkstone::{Database, Options, Reference, ReferenceAction};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// db.create_table("customers", &[])?;
    /// db.create_table("orders", &["by_customer"])?;
    /// let reference = Reference {
    ///     name: "orders_customer".to_owned(),
    ///     parent: "customers".to_owned(),
    ///     columns: vec![("customer".to_owned(), "id".to_owned())],
    ///     on_delete: ReferenceAction::Cascade,
    ///     on_update: ReferenceAction::Restrict,
    /// };
    /// db.set_references("orders", vec![reference.clone()])?;
    /// assert_eq!(db.references_to("customers")?, [("orders".to_owned(), reference)]);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such table; [`Error::AlreadyExists`] if two references
    /// have one name; [`Error::InvalidOption`] for a name that no table could have, or a reference
    /// without columns.
    pub fn set_references(&self, table: &str, references: Vec<Reference>) -> Result<()> {
        self.set_references_of(vec![(table, references)])
    }

    /// [`set_references`](Self::set_references) for several tables in one durable step: all or
    /// none. No table may be named twice.
    pub fn set_references_of(&self, tables: Vec<(&str, Vec<Reference>)>) -> Result<()> {
        let mut names = BTreeSet::new();
        for (table, references) in &tables {
            check_references(table, references)?;
            if !names.insert(*table) {
                return Err(Error::AlreadyExists(format!("table {table}")));
            }
        }
        let inner = &self.inner;
        let _ddl = inner.begin_ddl()?;
        let mut changed = Vec::new();
        for (table, references) in tables {
            changed.push(TableDefinition {
                references,
                ..self.known_definition(table)?
            });
        }
        paranoid!(
            inner.is_ddl_latched() && changed.len() == names.len(),
            "references of {names:?} are set beside other changes of tables"
        );
        let transaction = Transaction::begin_own(&inner.core, CATALOG_ISOLATION)?;
        let catalog = Catalog::new(&inner.catalog, &transaction);
        for definition in &changed {
            catalog.replace(definition)?;
        }
        transaction.commit_with(Durability::Sync)?;
        for definition in &changed {
            inner.note_definition(&definition.name, Some(definition));
        }
        Ok(())
    }

    /// Renames a table, durably, as [`rename_table`](Self::rename_table) does, and leaves
    /// references of other tables to the old name: of a table that takes another one's place, as
    /// the copy that an `ALTER TABLE` has made, or gives its own up for it.
    pub fn rename_table_alone(&self, from: &str, to: &str) -> Result<()> {
        self.rename(from, to, false)
    }

    pub(super) fn rename(&self, from: &str, to: &str, takes_references: bool) -> Result<()> {
        check_name("table", to)?;
        let inner = &self.inner;
        let _ddl = inner.begin_ddl()?;
        let old = self.known_definition(from)?;
        let mut changed = if takes_references {
            self.children_of(from)?
        } else {
            Vec::new()
        };
        changed.retain(|child| child.name != from);
        changed.push(TableDefinition {
            name: to.to_owned(),
            ..old
        });
        let transaction = Transaction::begin_own(&inner.core, CATALOG_ISOLATION)?;
        let catalog = Catalog::new(&inner.catalog, &transaction);
        for definition in &mut changed {
            if takes_references {
                for reference in &mut definition.references {
                    if reference.parent == from {
                        reference.parent = to.to_owned();
                    }
                }
            }
            if definition.name == to {
                catalog.add(definition)?;
            } else {
                catalog.replace(definition)?;
            }
        }
        catalog.remove(from)?;
        paranoid!(
            inner.is_ddl_latched() && changed.iter().filter(|it| it.name == to).count() == 1,
            "{from} is renamed to {to} with {} definitions",
            changed.len()
        );
        transaction.commit_with(Durability::Sync)?;
        inner.note_definition(from, None);
        for definition in &changed {
            inner.note_definition(&definition.name, Some(definition));
        }
        Ok(())
    }

    /// The definitions of the tables that refer to one.
    fn children_of(&self, parent: &str) -> Result<Vec<TableDefinition>> {
        let names: BTreeSet<String> = self
            .references_to(parent)?
            .into_iter()
            .map(|(child, _)| child)
            .collect();
        names
            .iter()
            .map(|child| self.known_definition(child))
            .collect()
    }
}

fn check_references(table: &str, references: &[Reference]) -> Result<()> {
    if references.len() > REFERENCES_MAX {
        return Err(Error::Unsupported(format!(
            "table {table} with {} references: a table has at most {REFERENCES_MAX}",
            references.len()
        )));
    }
    for (n, reference) in references.iter().enumerate() {
        let name = &reference.name;
        check_name("reference", name)?;
        check_name("parent", &reference.parent)?;
        if references[..n].iter().any(|other| other.name == *name) {
            return Err(Error::AlreadyExists(format!(
                "reference {name} of table {table}"
            )));
        }
        if reference.columns.is_empty() || reference.columns.len() > REFERENCES_MAX {
            return Err(Error::InvalidOption {
                name: format!("reference {name} of table {table}"),
                value: reference.columns.len().to_string(),
                reason: format!("it has 1 to {REFERENCES_MAX} columns"),
            });
        }
        for (own, of_parent) in &reference.columns {
            check_name("column", own)?;
            check_name("column", of_parent)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Graph, Reference};
    use crate::catalog::ReferenceAction;
    use crate::{Database, Error, Options};

    fn to(parent: &str) -> Reference {
        Reference {
            name: format!("to {parent}"),
            parent: parent.to_owned(),
            columns: vec![("a".to_owned(), "id".to_owned())],
            on_delete: ReferenceAction::Restrict,
            on_update: ReferenceAction::SetNull,
        }
    }

    fn check(db: &Database) {
        let in_catalog = Graph::of(&db.definitions().unwrap());
        db.with_references(|at_hand| assert_eq!(*at_hand, in_catalog))
            .unwrap();
    }

    #[test]
    fn what_is_at_hand_is_what_the_catalog_has() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Database::open(dir.path(), Options::default()).unwrap();
        let db = open();
        for table in ["parent", "child", "copy", "empty"] {
            db.create_table(table, &[]).unwrap();
        }
        assert!(db.all_references().unwrap().is_empty());
        let mut version = db.references_version();
        let mut check_changed = |db: &Database| {
            check(db);
            let before = std::mem::replace(&mut version, db.references_version());
            assert!(before < version);
        };
        db.set_references("child", vec![to("parent"), to("child"), to("none")])
            .unwrap();
        check_changed(&db);
        db.rename_table("parent", "mother").unwrap();
        check_changed(&db);
        assert_eq!(db.references("child").unwrap()[0].parent, "mother");
        db.rename_table("child", "son").unwrap();
        check_changed(&db);
        let of_son = db.references("son").unwrap();
        assert_eq!(of_son[1].parent, "son");
        // A copy takes its place.
        db.set_references("copy", vec![to("son"), to("mother")])
            .unwrap();
        db.rename_table_alone("son", "backup").unwrap();
        db.rename_table_alone("copy", "son").unwrap();
        check_changed(&db);
        let of_mother = db.references_to("mother").unwrap();
        assert_eq!(of_mother.len(), 2, "{of_mother:?}");
        assert_eq!(db.references_to("son").unwrap().len(), 2);
        db.drop_table("backup").unwrap();
        check_changed(&db);
        db.replace_table("empty", "son").unwrap();
        check_changed(&db);
        assert_eq!(db.references("son").unwrap(), [to("son"), to("mother")]);
        db.create_tree("son", "index").unwrap();
        check_changed(&db);
        db.close().unwrap();
        let db = open();
        assert_eq!(db.references("son").unwrap(), [to("son"), to("mother")]);
        check(&db);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), Options::default()).unwrap();
        db.create_table("t", &[]).unwrap();
        let twice = db.set_references("t", vec![to("t"), to("t")]);
        assert!(matches!(twice, Err(Error::AlreadyExists(_))), "{twice:?}");
        let mut empty = to("t");
        empty.columns.clear();
        let empty = db.set_references("t", vec![empty]);
        assert!(
            matches!(empty, Err(Error::InvalidOption { .. })),
            "{empty:?}"
        );
        let missing = db.set_references("u", vec![to("t")]);
        assert!(matches!(missing, Err(Error::NotFound(_))), "{missing:?}");
        assert!(db.references("t").unwrap().is_empty());
    }
}
