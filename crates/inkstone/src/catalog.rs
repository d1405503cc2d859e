//! The catalog: which tables there are. Tree 0 of tablespace 0, from a table's name to its
//! definition ([`inkstone_format::catalog`]). It is read and changed through ordinary transactions.

use crate::btree::Tree;
use crate::locks::LockMode;
use crate::mvcc::Isolation;
use crate::paranoid::paranoid;
use crate::rows::{Cursor, Write, Written};
use crate::txn::Transaction;
use crate::{Error, Result};
use inkstone_format::catalog::NAME_LEN_MAX;
pub use inkstone_format::catalog::{
    CATALOG_SPACE, CATALOG_TREE, CLUSTERED, Reference, ReferenceAction, TableDefinition,
};

/// Checks the name of a table or tree.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_LEN_MAX || name.contains('\0') {
        return Err(Error::InvalidOption {
            name: what.to_owned(),
            value: name.chars().take(40).collect(),
            reason: format!("a name has 1 to {NAME_LEN_MAX} bytes and no zero byte"),
        });
    }
    Ok(())
}

/// The catalog's rows through a transaction.
pub struct Catalog<'t> {
    tree: &'t Tree,
    transaction: &'t Transaction,
}

impl<'t> Catalog<'t> {
    /// The catalog as `transaction` sees it.
    pub fn new(tree: &'t Tree, transaction: &'t Transaction) -> Self {
        Self { tree, transaction }
    }

    fn understand(&self, key: &[u8], value: &[u8]) -> Result<TableDefinition> {
        TableDefinition::decode(key, value).map_err(|corrupt| {
            let name = String::from_utf8_lossy(key);
            let path = self.tree.space.file().path();
            Error::corrupt_file(
                path,
                corrupt.offset as u64,
                format!("table {name}: {}", corrupt.detail),
            )
        })
    }

    /// The table of a name.
    pub fn find(&self, name: &str) -> Result<Option<TableDefinition>> {
        let (key, mut value) = (name.as_bytes(), Vec::new());
        let found = self.transaction.read_into(self.tree, key, &mut value)?;
        found.then(|| self.understand(key, &value)).transpose()
    }

    /// All tables in the order of their names.
    pub fn all(&self) -> Result<Vec<TableDefinition>> {
        use std::ops::Bound::Unbounded;
        let mut rows: Cursor = self
            .transaction
            .scan(self.tree, (Unbounded, Unbounded), false)?;
        let mut tables = Vec::new();
        while let Some((key, value)) = rows.next_row()? {
            tables.push(self.understand(key, value)?);
            if let [.., before, last] = &tables[..] {
                paranoid!(
                    before.name < last.name,
                    "table {} is listed behind {}",
                    last.name,
                    before.name
                );
            }
        }
        Ok(tables)
    }

    /// Nothing is written that could not be read again.
    fn check_written(table: &TableDefinition) {
        let read = TableDefinition::decode(table.name.as_bytes(), &table.encode());
        paranoid!(
            read.as_ref().is_ok_and(|read| read == table),
            "table {} would be read as {read:?}",
            table.name
        );
    }

    /// Adds a table; fails if there is one of its name.
    pub fn add(&self, table: &TableDefinition) -> Result<()> {
        Self::check_written(table);
        let row = table.encode();
        match self.write(&table.name, Write::Insert(&row, LockMode::Shared))? {
            Written::Inserted => Ok(()),
            _ => Err(Error::AlreadyExists(format!("table {}", table.name))),
        }
    }

    /// Changes a table's definition.
    pub fn replace(&self, table: &TableDefinition) -> Result<()> {
        Self::check_written(table);
        self.write(&table.name, Write::Upsert(&table.encode()))
            .map(drop)
    }

    /// Removes a table.
    pub fn remove(&self, name: &str) -> Result<()> {
        match self.write(name, Write::Delete)? {
            Written::Changed => Ok(()),
            _ => Err(Error::NotFound(format!("table {name}"))),
        }
    }

    fn write(&self, name: &str, write: Write<'_>) -> Result<Written> {
        paranoid!(
            (self.tree.space.id, self.tree.id) == (CATALOG_SPACE, CATALOG_TREE),
            "table {name} is entered in tree {} of tablespace {}",
            self.tree.id,
            self.tree.space.id
        );
        self.transaction.write(self.tree, name.as_bytes(), write)
    }
}

/// The isolation level of catalog transactions.
pub const CATALOG_ISOLATION: Isolation = Isolation::ReadCommitted;
