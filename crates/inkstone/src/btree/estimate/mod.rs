//! Estimates for optimizers: rows in a range, rows in a tree, from a few page visits; different
//! values, in `values`.

mod values;

use super::{Target, Tree};
use crate::Result;
use crate::paranoid::paranoid;
use inkstone_format::header::{PAGE_TYPE_AT, PageType};
use inkstone_format::tree_page::TreePage;
use inkstone_format::{PageId, PageNo};

/// Below this many leaves a range is counted exactly.
const COUNTED_LEAVES: usize = 8;

/// Estimates about a range of keys, from a few page visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeEstimates {
    /// About how many rows lie in it.
    pub rows: u64,
    /// The leaf in which it begins. Ranges with the same leaf cost one read together.
    pub first_page: PageNo,
    /// The leaf in which it ends.
    pub last_page: PageNo,
}

impl Tree {
    /// About how many cells lie in `low..high` (`None`: to the end), and the leaves of its ends.
    /// The number is exact (delete-marked rows included) when the range spans few leaves.
    pub fn estimate_range(&self, low: &[u8], high: Option<&[u8]>) -> Result<RangeEstimates> {
        if let Some(exact) = self.count_few(low, high)? {
            return Ok(exact);
        }
        let (from, first_page) = self.position(Some(low))?;
        let (to, last_page) = self.position(high)?;
        let rows = self.estimate_rows()? as f64;
        Ok(RangeEstimates {
            rows: ((to - from).max(0.0) * rows).round().max(1.0) as u64,
            first_page,
            last_page,
        })
    }

    /// Counts exactly, giving up after a few leaves.
    fn count_few(&self, low: &[u8], high: Option<&[u8]>) -> Result<Option<RangeEstimates>> {
        let (mut at, mut rows) = (low.to_vec(), 0);
        let mut first_page = None;
        for _ in 0..COUNTED_LEAVES {
            let leaf = self.leaf_shared(Target::Key(&at))?;
            let last_page = leaf.id().page;
            let first_page = *first_page.get_or_insert(last_page);
            let page = TreePage(&leaf);
            let from = page.search(&at).unwrap_or_else(|slot| slot);
            let is_last = match high {
                Some(high) => page.covers(high) || page.low() >= high,
                None => page.high().is_none(),
            };
            let to = match high {
                Some(high) if is_last => page.search(high).unwrap_or_else(|slot| slot),
                _ => page.count(),
            };
            rows += to.saturating_sub(from) as u64;
            if is_last {
                return Ok(Some(RangeEstimates {
                    rows,
                    first_page,
                    last_page,
                }));
            }
            match page.high() {
                Some(next) => {
                    paranoid!(next > &at[..], "the leaf of {at:x?} ends at {next:x?}");
                    at = next.to_vec();
                }
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Where in the tree a key lies (`None`: the end), from 0 to 1, taking siblings to be of equal
    /// weight; and the leaf.
    fn position(&self, key: Option<&[u8]>) -> Result<(f64, PageNo)> {
        let (mut page, mut from, mut width) = (self.root(), 0.0, 1.0);
        loop {
            let guard = self.storage.pool.shared(page)?;
            let node = TreePage(&guard);
            let count = node.count();
            let each = width / count.max(1) as f64;
            if guard[PAGE_TYPE_AT] != PageType::Inner as u8 {
                let slot = match key {
                    _ if guard[PAGE_TYPE_AT] != PageType::Leaf as u8 => 0,
                    Some(key) => node.search(key).unwrap_or_else(|s| s),
                    None => count,
                };
                return Ok((from + each * slot as f64, page.page));
            }
            let slot = key.map_or(count - 1, |key| node.child_slot(key));
            from += each * slot as f64;
            width = each;
            page = self.space.page_id(node.child(slot));
        }
    }

    /// About how many cells the tree holds: fan-outs along a few paths, multiplied.
    pub fn estimate_rows(&self) -> Result<u64> {
        const PATHS: usize = 8;
        let mut total = 0.0;
        for path in 0..PATHS {
            let (mut page, mut product) = (self.root(), 1.0);
            loop {
                let guard = self.storage.pool.shared(page)?;
                let node = TreePage(&guard);
                let (count, child) = match guard[PAGE_TYPE_AT] {
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
        let mut nodes: Vec<PageId> = vec![self.root()];
        while let Some(id) = nodes.pop() {
            let guard = self.storage.pool.shared(id)?;
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
