//! Thin leaves that could not be merged with a neighbour at once, because readers had the pages
//! latched: each round of purge tries them again.

use crate::Result;
use crate::btree::{Merging, Tree};
use crate::paranoid::paranoid;
use crate::txn::core::Core;
use inkstone_format::{SpaceId, TreeId};
use std::collections::BTreeSet;

/// Bytes of keys that are remembered. Beyond them a thin leaf stays, as after a restart: it costs
/// room, until one of its rows changes.
const KEY_BYTES_MAX: usize = 1 << 20;
/// What a leaf costs beside its key.
const LEAF_BYTES: usize = 64;

/// A key of a thin leaf, with its tree.
pub(crate) type ThinLeaf = (SpaceId, TreeId, Vec<u8>);

/// Thin leaves, each by a key in it.
#[derive(Default)]
pub(crate) struct ThinLeaves {
    leaves: BTreeSet<ThinLeaf>,
    bytes: usize,
}

impl ThinLeaves {
    pub fn add(&mut self, leaf: ThinLeaf) {
        let bytes = LEAF_BYTES + leaf.2.len();
        if self.bytes + bytes <= KEY_BYTES_MAX && self.leaves.insert(leaf) {
            self.bytes += bytes;
        }
        paranoid!(
            self.bytes >= LEAF_BYTES * self.leaves.len(),
            "{} thin leaves in {} bytes",
            self.leaves.len(),
            self.bytes
        );
    }

    /// Takes all of them.
    pub fn take(&mut self) -> BTreeSet<ThinLeaf> {
        paranoid!(
            self.bytes <= KEY_BYTES_MAX,
            "thin leaves in {} bytes",
            self.bytes
        );
        std::mem::take(self).leaves
    }
}

impl Core {
    /// Merges the leaf of `key` with its neighbours if it is thin, now or in a later round of
    /// purge.
    pub(crate) fn merge_around(&self, tree: &Tree, key: &[u8]) -> Result<()> {
        let live = |address| self.keeps(address);
        if tree.merge_around(key, &live)? == Merging::GivenUp {
            let leaf = (tree.space.id, tree.id, key.to_vec());
            self.thin_leaves.lock().add(leaf);
        }
        Ok(())
    }
}
