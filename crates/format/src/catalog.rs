//! Rows of the catalog, which is tree 0 of tablespace 0: from a table's name to its definition.
//!
//! A definition: format u8 (1, 2 with references, or 3 with layouts), tablespace varint, number of
//! trees varint, and for each tree its number varint and its name (varint length, UTF-8). Tree 0 is
//! the clustered one. Formats 2 and 3 go on with the table's references (foreign keys): their
//! number varint, and for each its name, the parent table's name, what becomes of children when a
//! parent is deleted (u8) and when its key changes (u8): 0 restrict, 1 no action, 2 cascade, 3 set
//! null; the number of columns varint, and for each its name in this table and in the parent. Names
//! are as those of trees. Format 3 goes on with the layouts of trees: their number varint, and for
//! each the tree's number varint and a text (varint length, UTF-8).

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
const REFERENCES_FORMAT: u8 = 2;
const LAYOUTS_FORMAT: u8 = 3;

/// The most references of a table, and the most columns of one.
pub const REFERENCES_MAX: usize = 4096;

/// What becomes of rows when the row goes, or changes its key, that they refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReferenceAction {
    /// The change of the parent is refused.
    Restrict = 0,
    /// The same, under the name that SQL gives it where it is checked later.
    NoAction = 1,
    /// Children go, or change, with it.
    Cascade = 2,
    /// Their columns become NULL.
    SetNull = 3,
}

impl ReferenceAction {
    /// The action of a number.
    pub fn of(number: u8) -> Option<Self> {
        [Self::Restrict, Self::NoAction, Self::Cascade, Self::SetNull]
            .into_iter()
            .find(|action| *action as u8 == number)
    }
}

/// A rule of a table, its child: each row has a row of the parent table that it refers to, or a
/// NULL in its columns. Also called a foreign key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Its name.
    pub name: String,
    /// The table that is referred to.
    pub parent: String,
    /// Columns of the child, and those of the parent that they equal.
    pub columns: Vec<(String, String)>,
    /// When the parent's row is deleted.
    pub on_delete: ReferenceAction,
    /// When the parent's key changes.
    pub on_update: ReferenceAction,
}

impl Reference {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.name.as_bytes());
        put_bytes(out, self.parent.as_bytes());
        out.extend([self.on_delete as u8, self.on_update as u8]);
        put_varint(out, self.columns.len() as u64);
        for (own, of_parent) in &self.columns {
            put_bytes(out, own.as_bytes());
            put_bytes(out, of_parent.as_bytes());
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let (name, parent) = (text(r)?, text(r)?);
        let (on_delete, on_update) = (action(r)?, action(r)?);
        let count = r.varint_max(REFERENCES_MAX as u64, "number of columns")?;
        let mut columns = Vec::new();
        for _ in 0..count {
            columns.push((text(r)?, text(r)?));
        }
        Ok(Self {
            name,
            parent,
            columns,
            on_delete,
            on_update,
        })
    }
}

fn text(r: &mut Reader<'_>) -> Result<String, Corrupt> {
    let name = r.bytes()?.to_vec();
    String::from_utf8(name).map_err(|_| r.corrupt("name is not UTF-8"))
}

fn action(r: &mut Reader<'_>) -> Result<ReferenceAction, Corrupt> {
    let number = r.u8()?;
    ReferenceAction::of(number).ok_or_else(|| r.corrupt(format!("reference with action {number}")))
}

/// What the catalog says of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDefinition {
    /// Its name.
    pub name: String,
    /// Its tablespace: one file.
    pub space: SpaceId,
    /// Its trees, by number and name; the clustered one is the first.
    pub trees: Vec<(TreeId, String)>,
    /// Its references to other tables.
    pub references: Vec<Reference>,
    /// What the layer above says of how keys lie in trees, for those that it has told; at most one
    /// for each tree.
    pub layouts: Vec<(TreeId, String)>,
}

impl TableDefinition {
    /// The catalog row's value.
    pub fn encode(&self) -> Vec<u8> {
        // An older version reads what has none.
        let format = if !self.layouts.is_empty() {
            LAYOUTS_FORMAT
        } else if !self.references.is_empty() {
            REFERENCES_FORMAT
        } else {
            DEFINITION_FORMAT
        };
        let mut out = vec![format];
        put_varint(&mut out, u64::from(self.space.0));
        put_varint(&mut out, self.trees.len() as u64);
        for (id, name) in &self.trees {
            put_varint(&mut out, u64::from(id.0));
            put_bytes(&mut out, name.as_bytes());
        }
        if format >= REFERENCES_FORMAT {
            put_varint(&mut out, self.references.len() as u64);
            for reference in &self.references {
                reference.encode(&mut out);
            }
        }
        if format >= LAYOUTS_FORMAT {
            put_varint(&mut out, self.layouts.len() as u64);
            for (id, layout) in &self.layouts {
                put_varint(&mut out, u64::from(id.0));
                put_bytes(&mut out, layout.as_bytes());
            }
        }
        out
    }

    /// Understands a catalog row.
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self, Corrupt> {
        let mut r = Reader::new(value);
        let format = r.u8()?;
        if !(DEFINITION_FORMAT..=LAYOUTS_FORMAT).contains(&format) {
            return Err(r.corrupt(format!("table definition of format {format}")));
        }
        let space = SpaceId(r.varint_max(u64::from(u32::MAX), "tablespace")? as u32);
        let trees = texts_of_trees(&mut r, "number of trees")?;
        let mut references = Vec::new();
        if format >= REFERENCES_FORMAT {
            for _ in 0..r.varint_max(REFERENCES_MAX as u64, "number of references")? {
                references.push(Reference::decode(&mut r)?);
            }
        }
        let mut layouts = Vec::new();
        if format >= LAYOUTS_FORMAT {
            layouts = texts_of_trees(&mut r, "number of layouts")?;
            for (n, (id, _)) in layouts.iter().enumerate() {
                let names = |(other, _): &(TreeId, String)| other == id;
                if !trees.iter().any(names) || layouts[..n].iter().any(names) {
                    return Err(r.corrupt(format!("layouts of tree {id}, which has none or two")));
                }
            }
        }
        if trees.first().is_none_or(|(id, _)| *id != TreeId(0)) || !r.is_empty() {
            return Err(
                r.corrupt("a table definition without a clustered tree, or with bytes left")
            );
        }
        let name =
            String::from_utf8(key.to_vec()).map_err(|_| Corrupt::at(0, "name is not UTF-8"))?;
        Ok(Self {
            name,
            space,
            trees,
            references,
            layouts,
        })
    }
}

/// Numbers of trees, each with a text.
fn texts_of_trees(r: &mut Reader<'_>, what: &str) -> Result<Vec<(TreeId, String)>, Corrupt> {
    let mut all = Vec::new();
    for _ in 0..r.varint_max(u64::from(TREES_MAX), what)? {
        let id = TreeId(r.varint_max(u64::from(TREES_MAX) - 1, "tree")? as u32);
        all.push((id, text(r)?));
    }
    Ok(all)
}
