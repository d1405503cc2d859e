//! The entries of an undo copy: each is coded against the entry of its tree before it.
//!
//! An entry begins with one byte:
//!
//! | bits | meaning                                                                         |
//! |------|---------------------------------------------------------------------------------|
//! | 0..3 | kind of undo                                                                    |
//! | 3    | the key is the one before it plus one; else a shared key follows                |
//! | 4..8 | number of the tree; 15: tablespace and tree follow, and get the next number     |
//!
//! Trees are numbered from 0 to 14 as they come, then from 0 on again: the number of the one that
//! was numbered longest ago goes to the new one. A row with entries in all trees of its table so
//! costs a byte or a few for each of them, whatever their order.

use super::decode::{get_u32v, get_undo};
use super::encode::{put_undo_body, undo_kind};
use super::{Undo, UndoEntry};
use crate::codec::{Reader, get_shared_key, increment, is_successor, put_shared_key, put_varint};
use crate::{Corrupt, SpaceId, TreeId};

const UNDO_KIND: u8 = 7;
const NEXT_KEY: u8 = 8;
const TREE_SHIFT: u8 = 4;
/// In place of a number: the tree has none yet.
const NEW_TREE: u8 = 15;

/// A tree that has a number, and what its next entry is coded against.
#[derive(Default)]
struct Numbered {
    space: SpaceId,
    tree: TreeId,
    /// Key of its last entry.
    key: Vec<u8>,
    /// The last whole value that an entry puts back.
    value: Vec<u8>,
}

/// The trees that have numbers. Writer and reader keep it alike.
#[derive(Default)]
struct Trees {
    numbered: Vec<Numbered>,
    /// Whose number goes to the next new tree, once all are taken.
    oldest: usize,
}

impl Trees {
    fn find(&self, space: SpaceId, tree: TreeId) -> Option<usize> {
        let is_it = |n: &Numbered| (n.space, n.tree) == (space, tree);
        self.numbered.iter().position(is_it)
    }

    fn add(&mut self, space: SpaceId, tree: TreeId) -> &mut Numbered {
        let new = Numbered {
            space,
            tree,
            ..Numbered::default()
        };
        let mut number = self.numbered.len();
        if number < usize::from(NEW_TREE) {
            self.numbered.push(new);
        } else {
            number = self.oldest;
            self.oldest = (number + 1) % usize::from(NEW_TREE);
            self.numbered[number] = new;
        }
        &mut self.numbered[number]
    }
}

/// Appends the number of entries, and the entries.
pub(super) fn put_entries(out: &mut Vec<u8>, entries: &[UndoEntry]) {
    put_varint(out, entries.len() as u64);
    let mut trees = Trees::default();
    for entry in entries {
        let kind = undo_kind(&entry.undo);
        let known = trees.find(entry.space, entry.tree);
        let (number, last) = match known {
            Some(at) => (at as u8, &mut trees.numbered[at]),
            None => (NEW_TREE, trees.add(entry.space, entry.tree)),
        };
        let next_key = is_successor(&entry.key, &last.key);
        out.push(kind | if next_key { NEXT_KEY } else { 0 } | number << TREE_SHIFT);
        if number == NEW_TREE {
            put_varint(out, u64::from(entry.space.0));
            put_varint(out, u64::from(entry.tree.0));
        }
        if !next_key {
            put_shared_key(out, &entry.key, &last.key);
        }
        put_undo_body(out, &entry.undo, &last.value);
        last.key.clone_from(&entry.key);
        if let Undo::Restore { value, .. } = &entry.undo {
            last.value.clone_from(value);
        }
    }
}

/// The inverse of [`put_entries`].
pub(super) fn get_entries(r: &mut Reader<'_>) -> Result<Vec<UndoEntry>, Corrupt> {
    let count = get_count(r)?;
    let mut trees = Trees::default();
    let mut entries = Vec::new();
    for _ in 0..count {
        let head = r.u8()?;
        let number = head >> TREE_SHIFT;
        let last = if number == NEW_TREE {
            let space = SpaceId(get_u32v(r, "tablespace")?);
            trees.add(space, TreeId(get_u32v(r, "tree")?))
        } else {
            let numbered = trees.numbered.get_mut(usize::from(number));
            numbered.ok_or_else(|| r.corrupt(format!("no tree has number {number} yet")))?
        };
        if head & NEXT_KEY == 0 {
            get_shared_key(r, &mut last.key)?;
        } else if increment(&mut last.key) {
            r.unpacks(last.key.len())?;
        } else {
            return Err(r.corrupt("the key has no successor"));
        }
        let undo = get_undo(r, head & UNDO_KIND, &last.value)?;
        if let Undo::Restore { value, .. } = &undo {
            last.value.clone_from(value);
        }
        entries.push(UndoEntry {
            space: last.space,
            tree: last.tree,
            key: last.key.clone(),
            undo,
        });
    }
    Ok(entries)
}

/// Entries as earlier versions wrote them, each for itself.
pub(super) fn get_plain_entries(r: &mut Reader<'_>) -> Result<Vec<UndoEntry>, Corrupt> {
    let count = get_count(r)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let space = SpaceId(get_u32v(r, "tablespace")?);
        let tree = TreeId(get_u32v(r, "tree")?);
        let key = r.bytes()?.to_vec();
        let kind = r.u8()?;
        entries.push(UndoEntry {
            space,
            tree,
            key,
            undo: get_undo(r, kind, &[])?,
        });
    }
    Ok(entries)
}

fn get_count(r: &mut Reader<'_>) -> Result<u64, Corrupt> {
    r.varint_max(1 << 20, "number of entries")
}
