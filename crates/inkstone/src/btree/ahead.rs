//! Leaves that a scan will want are read together, before it comes to them.
//!
//! A scan knows the leaves that it goes to by their parent. Where one is missing after a few in a
//! row, those behind it come with it: in one operation where they are adjacent, side by side where
//! they are not. The window doubles from miss to miss, so that a scan that ends soon has read at
//! most about as many leaves for nothing as it has wanted. None is read beyond the end of its
//! range.
//!
//! What looks up many rows, as those that entries of a secondary tree are of, says their keys
//! before: their leaves come together, too.
//!
//! It is a hint: a leaf that does not come this way is read when it is wanted.

use super::{Descent, Target, Tree};
use crate::Result;
use crate::buffer::Optimistic;
use crate::paranoid::paranoid;
use inkstone_format::PageId;
use inkstone_format::tree_page::TreePage;
use std::collections::BTreeSet;

/// Leaves that a scan passes before any is read ahead.
const PASSED_MIN: usize = 2;
const WINDOW_MIN: usize = 4;
const WINDOW_MAX: usize = 64;
/// Bytes read ahead at once.
const WINDOW_BYTES_MAX: usize = 1 << 20;

/// How a scan has gone so far.
#[derive(Debug, Default)]
pub struct ReadAhead {
    /// Leaves passed in a row.
    passed: usize,
    last: Option<PageId>,
    /// Leaves read together last.
    window: usize,
}

impl ReadAhead {
    fn pass(&mut self, leaf: PageId) {
        if self.last != Some(leaf) {
            self.passed += 1;
            self.last = Some(leaf);
        }
    }
}

impl Tree {
    /// Before a scan latches the leaf `child`: reads it together with those behind it if it is not
    /// the first that is missing. `until`: the end of the scan's range. The caller holds no latch.
    pub(super) fn read_ahead(
        &self,
        (parent, child): (&Optimistic<'_>, PageId),
        target: Target<'_>,
        until: Option<&[u8]>,
        ahead: &mut ReadAhead,
    ) {
        ahead.pass(child);
        let pool = &self.storage.pool;
        if ahead.passed <= PASSED_MIN || pool.seems_resident(child) {
            return;
        }
        let most = WINDOW_MAX
            .min(WINDOW_BYTES_MAX / self.storage.page_size)
            .min(pool.ahead_max());
        ahead.window = (2 * ahead.window).max(WINDOW_MIN).min(most);
        let Some(mut leaves) = self.leaves_ahead(parent.id(), target, until, ahead.window) else {
            return;
        };
        paranoid!(
            leaves.len() <= most && leaves.iter().all(|leaf| leaf.space == self.space.id),
            "{} leaves are read ahead at once, of {most}, or of other trees: {leaves:?}",
            leaves.len()
        );
        if leaves.len() > 1 {
            leaves.sort_unstable();
            pool.read_ahead(&leaves);
        }
    }

    /// Reads the leaves of keys together, those that are missing, of the first keys if these are
    /// more than stay until they are wanted. How many. The caller holds no latch.
    pub(crate) fn read_leaves_of<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Result<usize> {
        let pool = &self.storage.pool;
        let most = pool.ahead_max();
        let mut missing = BTreeSet::new();
        for key in keys {
            let mut pins = pool.pins();
            let descent = self.descend(Target::Key(key), 0, &mut pins)?;
            let Descent::Child { parent, child, .. } = descent else {
                continue;
            };
            if parent.validate() && !pool.seems_resident(child) {
                missing.insert(child);
            }
            if missing.len() >= most {
                break;
            }
        }
        let missing: Vec<PageId> = missing.into_iter().collect();
        paranoid!(
            missing.iter().all(|leaf| leaf.space == self.space.id),
            "leaves of another tree are read ahead: {missing:?}"
        );
        // A single one comes when it is wanted.
        if missing.len() < 2 {
            return Ok(0);
        }
        pool.read_ahead(&missing);
        Ok(missing.len())
    }

    /// The leaf of the target and those behind it, or before it, as far as their parent knows them.
    fn leaves_ahead(
        &self,
        parent: PageId,
        target: Target<'_>,
        until: Option<&[u8]>,
        most: usize,
    ) -> Option<Vec<PageId>> {
        let parent = self.storage.pool.shared_if_resident(parent)?;
        let node = self.check_node(parent.id(), &parent).ok()?;
        if node.level() != 1 {
            return None;
        }
        let backward = !matches!(target, Target::Key(_));
        let slots = match target {
            Target::Key(key) if node.covers(key) => node.child_slot(key)..node.count(),
            Target::Before(key) if node.low() < key => 0..node.child_slot_before(key) + 1,
            Target::Last => 0..node.count(),
            _ => return None,
        };
        let is_wanted = |page: TreePage<'_>, slot: usize| match until {
            // The first slot stands for the low fence of the node.
            Some(high) if !backward => slot == slots.start || page.key(slot).as_slice() <= high,
            Some(low) => slot + 1 >= slots.end || page.key(slot + 1).as_slice() > low,
            None => true,
        };
        let page_of = |slot: usize| self.space.page_id(node.child(slot));
        let wanted = |slot: &usize| is_wanted(node, *slot);
        Some(if backward {
            slots
                .clone()
                .rev()
                .take(most)
                .take_while(wanted)
                .map(page_of)
                .collect()
        } else {
            slots
                .clone()
                .take(most)
                .take_while(wanted)
                .map(page_of)
                .collect()
        })
    }
}
