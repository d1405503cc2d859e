//! Rows of the catalog, which is tree 0 of tablespace 0: from a table's name to its definition.
//!
//! A definition: format u8 (1), tablespace varint, number of trees varint, and for each tree its
//! number varint and its name (varint length, UTF-8). Tree 0 is the clustered one.

use crate::codec::{Reader, put_bytes, put_varint};
use crate::header::PAGE_SIZE_MIN;
use crate::space::TREES_MAX;
use crate::tree_page::key_len_max;
use crate::{Corrupt, SpaceId, TreeId};

/// The tablespace of the catalog.
pub const CATALOG_SPACE: SpaceId = SpaceId(0);
/// The catalog's tree in it.
pub const CATALOG_TREE: TreeId = TreeId(0);
/// Name of a table's clustered tree.
pub const CLUSTERED: &str = "primary";
/// The longest name of a table or tree, bytes: a key of the catalog on the smallest pages. SQL
/// names of 64 characters become up to 255 bytes each as file names, and a table's is that of its
/// database, its own, and what marks an unfinished statement.
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
