//! Estimates for optimizers: rows in a range, rows in a tree, from a few page visits; different values, in `values`.

mod values;

use super::{Target, Tree};
use crate::Result;
use inkstone_format::PageId;
use inkstone_format::header::PageType;
use inkstone_format::tree_page::TreePage;

/// Below this many leaves a range is counted exactly.
const COUNTED_LEAVES: usize = 8;

impl Tree {
    /// About how many cells lie in `low..high` (`None`: to the end). Exact (delete-marked rows
    /// included) when the range spans few leaves.
    pub fn estimate_range(&self, low: &[u8], high: Option<&[u8]>) -> Result<u64> {
        if let Some(exact) = self.count_few(low, high)? {
            return Ok(exact);
        }
        let from = self.position(Target::Key(low))?;
        let to = match high {
            Some(high) => self.position(Target::Key(high))?,
            None => 1.0,
        };
        let rows = self.estimate_rows()? as f64;
        Ok(((to - from).max(0.0) * rows).round().max(1.0) as u64)
    }

    /// Counts exactly, giving up after a few leaves.
    fn count_few(&self, low: &[u8], high: Option<&[u8]>) -> Result<Option<u64>> {
        let (mut at, mut total) = (low.to_vec(), 0);
        for _ in 0..COUNTED_LEAVES {
            let leaf = self.leaf_shared(Target::Key(&at))?;
            let page = TreePage(&leaf);
            let from = page.search(&at).unwrap_or_else(|slot| slot);
            let to = match high {
                Some(high) if page.covers(high) || page.low() >= high => {
                    return Ok(Some(
                        total + page.search(high).unwrap_or_else(|s| s).saturating_sub(from) as u64,
                    ));
                }
                _ => page.count(),
            };
            total += (to - from) as u64;
            match page.high() {
                Some(next) => at = next.to_vec(),
                None => return Ok(Some(total)),
            }
        }
        Ok(None)
    }

    /// Where in the tree a key lies, from 0 to 1, taking siblings to be of equal weight.
    fn position(&self, target: Target<'_>) -> Result<f64> {
        let (mut page, mut from, mut width) = (self.root, 0.0, 1.0);
        loop {
            let guard = self.redo.pool.shared(page)?;
            let node = TreePage(&guard);
            let Target::Key(key) = target else {
                return Ok(1.0);
            };
            let count = node.count().max(1) as f64;
            if guard[12] != PageType::Inner as u8 {
                let slot = if guard[12] == PageType::Leaf as u8 {
                    node.search(key).unwrap_or_else(|s| s)
                } else {
                    0
                };
                return Ok(from + width * slot as f64 / count);
            }
            let slot = node.child_slot(key);
            width /= count;
            from += width * slot as f64;
            page = self.space.page_id(node.child(slot));
        }
    }

    /// About how many cells the tree holds: fan-outs along a few paths, multiplied.
    pub fn estimate_rows(&self) -> Result<u64> {
        const PATHS: usize = 8;
        let mut total = 0.0;
        for path in 0..PATHS {
            let (mut page, mut product) = (self.root, 1.0);
            loop {
                let guard = self.redo.pool.shared(page)?;
                let node = TreePage(&guard);
                let (count, child) = match guard[12] {
                    t if t == PageType::Inner as u8 => (
                        node.count(),
                        Some(node.child(node.count() * (2 * path + 1) / (2 * PATHS))),
                    ),
                    t if t == PageType::Leaf as u8 => (node.count(), None),
                    _ => (0, None),
                };
                product *= count as f64;
                let Some(child) = child else { break };
                page = self.space.page_id(child);
            }
            total += product;
        }
        Ok((total / PATHS as f64).round() as u64)
    }

    /// Pages of the tree at each level, leaves first. Reads every inner node, no leaf.
    pub fn pages_by_level(&self) -> Result<Vec<u64>> {
        let height = usize::from(self.height()?);
        let mut counts = vec![0; height];
        let mut nodes: Vec<PageId> = vec![self.root];
        while let Some(id) = nodes.pop() {
            let guard = self.redo.pool.shared(id)?;
            let node = TreePage(&guard);
            let level = usize::from(node.level());
            if let Some(count) = counts.get_mut(level) {
                *count += 1;
            }
            if level == 1 {
                counts[0] += node.count() as u64;
            } else if level > 1 {
                nodes.extend((0..node.count()).map(|slot| self.space.page_id(node.child(slot))));
            }
        }
        Ok(counts)
    }
}
