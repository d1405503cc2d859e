//! How many different values the beginnings of a tree's keys have.
//!
//! A *beginning* is what the caller says it is (the first parts of a key, as a rule): two keys of
//! the same beginning have everything between them in common, too. A *step* is a pair of neighbours
//! whose beginnings differ; there is a value more than there are steps. The last key of a leaf is
//! compared with the leaf's high fence.
//!
//! A child between two separators of the same beginning has no step in it: an inner node tells that
//! of all of its children, and none of them is visited. Of the others as many are as there are
//! leaves to look at, or a sample, spread evenly; what is found below them is scaled by the number
//! of those left out, at each level (Knuth, 1975). So a few values over any number of rows are
//! counted exactly, and the estimate is unbiased for any mixture.

use super::super::Tree;
use crate::Result;
use inkstone_format::PageId;
use inkstone_format::header::{PAGE_TYPE_AT, PageType};
use inkstone_format::tree_page::TreePage;

/// How many bytes of a key are its beginning; `None` if the key is cut short before that.
pub type BeginningOf<'a> = &'a mut dyn FnMut(&[u8]) -> Option<usize>;

impl Tree {
    /// About how many different beginnings the keys have, deleted rows' included. Looks at about
    /// `leaves` leaves, and at the nodes above them.
    pub fn estimate_values(&self, leaves: usize, beginning_of: BeginningOf<'_>) -> Result<u64> {
        let mut sample = Sample {
            tree: self,
            beginning_of,
            draws: 0,
        };
        let root = self.root();
        let is_empty = {
            let guard = self.storage.pool.shared(root)?;
            let node = TreePage(&guard);
            node.is_leaf() && node.count() == 0
        };
        if is_empty {
            return Ok(0);
        }
        Ok(sample.steps_below(root, leaves.max(1))?.round() as u64 + 1)
    }
}

struct Sample<'a> {
    tree: &'a Tree,
    beginning_of: BeginningOf<'a>,
    /// Random numbers drawn so far: the same tree gives the same estimate.
    draws: u64,
}

/// What is looked at of a page, without its latch.
struct Visited {
    is_leaf: bool,
    /// Keys of a leaf; the low fence and all other separators of an inner node. Then the high
    /// fence, if any.
    keys: Vec<Vec<u8>>,
    has_high: bool,
    children: Vec<PageId>,
}

impl Sample<'_> {
    fn steps_below(&mut self, page: PageId, leaves: usize) -> Result<f64> {
        let Some(visited) = self.visit(page)? else {
            return Ok(0.0);
        };
        let begins: Vec<Option<&[u8]>> = visited
            .keys
            .iter()
            .map(|key| (self.beginning_of)(key).map(|end| &key[..end]))
            .collect();
        // A fence that is cut short is the beginning of no key before it.
        let is_step = |pair: &[Option<&[u8]>]| pair[0].is_none() || pair[0] != pair[1];
        if visited.is_leaf {
            return Ok(begins.windows(2).filter(|pair| is_step(pair)).count() as f64);
        }
        let last = (!visited.has_high)
            .then(|| visited.children.last())
            .flatten();
        let stepping: Vec<PageId> = (begins.windows(2).zip(&visited.children))
            .filter_map(|(pair, child)| is_step(pair).then_some(*child))
            .chain(last.copied())
            .collect();
        self.steps_of_children(&stepping, leaves)
    }

    fn steps_of_children(&mut self, children: &[PageId], leaves: usize) -> Result<f64> {
        let (count, mut steps) = (children.len(), 0.0);
        if count <= leaves {
            for (i, &child) in children.iter().enumerate() {
                let share = leaves / count + usize::from(i < leaves % count);
                steps += self.steps_below(child, share)?;
            }
            return Ok(steps);
        }
        let width = count as f64 / leaves as f64;
        for i in 0..leaves {
            let at = ((i as f64 + self.draw()) * width) as usize;
            steps += self.steps_below(children[at.min(count - 1)], 1)?;
        }
        Ok(steps * width)
    }

    /// `None`: the tree has changed, and the page is no longer one of it.
    fn visit(&self, page: PageId) -> Result<Option<Visited>> {
        let guard = self.tree.storage.pool.shared(page)?;
        let node = TreePage(&guard);
        let is_leaf = guard[PAGE_TYPE_AT] == PageType::Leaf as u8;
        if !(is_leaf || guard[PAGE_TYPE_AT] == PageType::Inner as u8) || node.tree() != self.tree.id
        {
            return Ok(None);
        }
        let slots = 0..node.count();
        let key = |slot| match (is_leaf, slot) {
            (false, 0) => node.low().to_vec(),
            _ => node.key(slot),
        };
        let mut keys: Vec<Vec<u8>> = slots.clone().map(key).collect();
        let high = node.high().filter(|_| !keys.is_empty());
        keys.extend(high.map(<[u8]>::to_vec));
        let children = if is_leaf {
            Vec::new()
        } else {
            slots
                .map(|slot| self.tree.space.page_id(node.child(slot)))
                .collect()
        };
        Ok(Some(Visited {
            is_leaf,
            keys,
            has_high: high.is_some(),
            children,
        }))
    }

    /// The next number from 0 to 1 (SplitMix64).
    fn draw(&mut self) -> f64 {
        self.draws += 1;
        let mut bits = self.draws.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
