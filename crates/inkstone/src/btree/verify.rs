//! Walking a whole tree to check it.

use super::Tree;
use crate::Result;
use inkstone_format::header::{PAGE_TYPE_AT, PageType};
use inkstone_format::tree_page::TreePage;
use inkstone_format::{PageId, PageNo};

/// What [`Database::verify_table`](crate::Database::verify_table) found in a sound tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeReport {
    /// Rows, without delete-marked ones.
    pub rows: u64,
    /// Delete-marked rows that purge has not removed yet.
    pub deleted_rows: u64,
    /// Leaves.
    pub leaves: u64,
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Every page of the tree.
    pub pages: Vec<PageNo>,
}

impl Tree {
    /// Checks every page of the tree: structure, order, that fences meet, levels, and that every
    /// page is allocated. `each_leaf` sees each leaf. Others should not change the tree meanwhile.
    pub fn verify(
        &self,
        each_leaf: &mut dyn FnMut(PageId, TreePage<'_>) -> Result<()>,
    ) -> Result<TreeReport> {
        let mut report = TreeReport::default();
        let height = self.height()?;
        self.verify_node(self.root, height - 1, &[], None, &mut report, each_leaf)?;
        Ok(report)
    }

    fn verify_node(
        &self,
        id: PageId,
        level: u8,
        low: &[u8],
        high: Option<&[u8]>,
        report: &mut TreeReport,
        each_leaf: &mut dyn FnMut(PageId, TreePage<'_>) -> Result<()>,
    ) -> Result<()> {
        let copy = self.storage.pool.shared(id)?.to_vec();
        let page = self.check_node(id, &copy)?;
        page.check()
            .map_err(|c| self.corrupt(id, c.offset, c.detail))?;
        if page.level() != level {
            return Err(self.corrupt(
                id,
                28,
                format!("level {} where {level} is expected", page.level()),
            ));
        }
        if page.low() != low || page.high() != high {
            return Err(self.corrupt(
                id,
                40,
                "the fences differ from what the parent says".to_owned(),
            ));
        }
        if !self.space.is_allocated(id.page)? {
            return Err(self.corrupt(id, 0, "the page is in use but not allocated".to_owned()));
        }
        report.pages.push(id.page);
        if copy[PAGE_TYPE_AT] == PageType::Leaf as u8 {
            report.leaves += 1;
            let deleted = (0..page.count())
                .filter(|&slot| page.cell(slot).is_deleted())
                .count();
            report.deleted_rows += deleted as u64;
            report.rows += (page.count() - deleted) as u64;
            return each_leaf(id, page);
        }
        report.inner_nodes += 1;
        for slot in 0..page.count() {
            let (from, to) = (
                page.key(slot),
                (slot + 1 < page.count()).then(|| page.key(slot + 1)),
            );
            let to = to.as_deref().or(high);
            let child = self.space.page_id(page.child(slot));
            self.verify_node(child, level - 1, &from, to, report, each_leaf)?;
        }
        Ok(())
    }
}
