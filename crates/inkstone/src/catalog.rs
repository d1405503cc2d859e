//! The catalog: which tables there are. Tree 0 of tablespace 0, from a table's name to its
//! definition. It is read and changed through ordinary transactions.
//!
//! A definition: format u8 (1), tablespace varint, number of trees varint, and for each tree its
//! number varint and its name (varint length, UTF-8). Tree 0 is the clustered one.

use crate::btree::Tree;
use crate::locks::LockMode;
use crate::mvcc::Isolation;
use crate::rows::Cursor;
use crate::txn::Transaction;
use crate::{Error, Result};
use inkstone_format::codec::{Reader, put_bytes, put_varint};
use inkstone_format::header::PAGE_SIZE_MIN;
use inkstone_format::space::TREES_MAX;
use inkstone_format::tree_page::key_len_max;
use inkstone_format::{Corrupt, SpaceId, TreeId};

/// The tablespace of the catalog.
pub const CATALOG_SPACE: SpaceId = SpaceId(0);
/// The catalog's tree in it.
pub const CATALOG_TREE: TreeId = TreeId(0);
/// Name of a table's clustered tree.
pub const CLUSTERED: &str = "primary";
/// The longest name of a table or tree, bytes: a key of the catalog on the smallest pages. SQL names of 64 characters
/// become up to 255 bytes each as file names, and a table's is that of its database, its own, and what marks
/// an unfinished statement.
pub const NAME_LEN_MAX: usize = 768;

const _: () = assert!(NAME_LEN_MAX <= key_len_max(PAGE_SIZE_MIN));

const DEFINITION_FORMAT: u8 = 1;

/// What the catalog says of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDefinition {
    /// Its name.
    pub name: String,
    /// Its tablespace: one file.
    pub space: SpaceId,
    /// Its trees, by number and name; the clustered one is the first.
    pub trees: Vec<(TreeId, String)>,
}

impl TableDefinition {
    /// The catalog row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![DEFINITION_FORMAT];
        put_varint(&mut out, u64::from(self.space.0));
        put_varint(&mut out, self.trees.len() as u64);
        for (id, name) in &self.trees {
            put_varint(&mut out, u64::from(id.0));
            put_bytes(&mut out, name.as_bytes());
        }
        out
    }

    /// Understands a catalog row.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, Corrupt> {
        let mut r = Reader::new(value);
        let format = r.u8()?;
        if format != DEFINITION_FORMAT {
            return Err(r.corrupt(format!("table definition of format {format}")));
        }
        let space = SpaceId(r.varint_max(u64::from(u32::MAX), "tablespace")? as u32);
        let count = r.varint_max(u64::from(TREES_MAX), "number of trees")?;
        let mut trees = Vec::new();
        for _ in 0..count {
            let id = TreeId(r.varint_max(u64::from(TREES_MAX) - 1, "tree")? as u32);
            let name = r.bytes()?.to_vec();
            let name = String::from_utf8(name).map_err(|_| r.corrupt("name is not UTF-8"))?;
            trees.push((id, name));
        }
        if trees.first().is_none_or(|(id, _)| *id != TreeId(0)) || !r.is_empty() {
            return Err(
                r.corrupt("a table definition without a clustered tree, or with bytes left")
            );
        }
        let name =
            String::from_utf8(key.to_vec()).map_err(|_| Corrupt::at(0, "name is not UTF-8"))?;
        Ok(Self { name, space, trees })
    }
}

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
        let value = self.transaction.read(self.tree, name.as_bytes())?;
        value
            .map(|value| self.understand(name.as_bytes(), &value))
            .transpose()
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
        }
        Ok(tables)
    }

    /// Adds a table; fails if there is one of its name.
    pub fn add(&self, table: &TableDefinition) -> Result<()> {
        if self.transaction.put_new(
            self.tree,
            table.name.as_bytes(),
            &table.encode(),
            LockMode::Shared,
        )? {
            Ok(())
        } else {
            Err(Error::AlreadyExists(format!("table {}", table.name)))
        }
    }

    /// Changes a table's definition.
    pub fn replace(&self, table: &TableDefinition) -> Result<()> {
        self.transaction
            .put(self.tree, table.name.as_bytes(), &table.encode())
    }

    /// Removes a table.
    pub fn remove(&self, name: &str) -> Result<()> {
        if self.transaction.remove(self.tree, name.as_bytes())? {
            Ok(())
        } else {
            Err(Error::NotFound(format!("table {name}")))
        }
    }
}

/// The isolation level of catalog transactions.
pub const CATALOG_ISOLATION: Isolation = Isolation::ReadCommitted;
