//! Long values in pages nearer the beginning of their file: a row whose value lies behind is
//! updated to what it is, by a transaction of the database's own. So what holds of updates holds of
//! this: old snapshots read the old pages, which purge frees behind them. But it is no conflict for
//! a transaction with an older snapshot (`TrxState::only_moves`): its update loses none.

use crate::Error;
use crate::Result;
use crate::btree::{Target, Tree};
use crate::locks::LockMode;
use crate::mvcc::Isolation;
use crate::options::Durability;
use crate::paranoid::paranoid;
use crate::rows::change::{Written, remove_dead_rows};
use crate::rows::parts::{Layout, parts_of};
use crate::rows::read::Seen;
use crate::rows::write::Write;
use crate::txn::core::Core;
use crate::txn::transaction::Transaction;
use inkstone_format::PageNo;
use inkstone_format::tree_page::{CELL_OVERFLOW, TreePage};
use std::sync::Arc;

/// The rows of a leaf that have long values: their keys, and their references.
type LongRows = Vec<(Vec<u8>, Vec<u8>)>;

impl Core {
    /// Removes what is dead in the leaf of a key.
    pub(crate) fn clean_leaf_of(&self, tree: &Tree, key: &[u8]) -> Result<()> {
        let leaf = tree.leaf_exclusive(Target::Key(key))?;
        remove_dead_rows(self, leaf, None).map(drop)
    }

    /// Keys and references of the rows with long values in the leaf of a key, and where the next
    /// leaf begins.
    pub(crate) fn long_rows_of_leaf(
        &self,
        tree: &Tree,
        key: &[u8],
    ) -> Result<(LongRows, Option<Vec<u8>>)> {
        let leaf = tree.leaf_shared(Target::Key(key))?;
        let page = TreePage(&leaf);
        let long = (0..page.count()).filter(|&slot| {
            let cell = page.cell(slot);
            cell.is_overflow() && !cell.is_deleted()
        });
        let rows = long.map(|slot| (page.key(slot), page.cell(slot).value.to_vec()));
        Ok((rows.collect(), page.high().map(<[u8]>::to_vec)))
    }

    /// How many pages a long value has, if some of them lie at `limit` or behind.
    pub(crate) fn pages_if_behind(
        &self,
        tree: &Tree,
        reference: &[u8],
        limit: PageNo,
    ) -> Result<Option<u64>> {
        let pages = self.long_value_pages(tree, reference)?;
        let behind = pages.iter().any(|&page| page >= limit);
        Ok(behind.then_some(pages.len() as u64))
    }

    /// Writes the long value of a row again, to the first free pages. Its bytes; `None`: it is
    /// left, as another transaction has the row, or it has no long value any more.
    pub(crate) fn store_again(self: &Arc<Self>, tree: &Tree, key: &[u8]) -> Result<Option<u64>> {
        let transaction = Transaction::begin_own(self, Isolation::ReadCommitted)?;
        transaction.shared.state.set_only_moves();
        let cell = match transaction.newest_without_waiting(tree, key) {
            Ok(Some(seen)) if seen.flags & CELL_OVERFLOW != 0 => seen.value,
            Ok(_) | Err(Error::LockNotAvailable) => return Ok(None),
            Err(error) => return Err(error),
        };
        let value = self.read_long_value(tree, &cell, &(0..u64::MAX))?;
        let parts = parts_of(&self.long_value(tree, &cell)?);
        let layout = Layout {
            parts: &parts,
            keep: false,
        };
        let written = transaction.write_as(tree, key, Write::Update(&value), layout)?;
        paranoid!(
            written == Written::Changed,
            "a row that was locked is {written:?} when it is written again"
        );
        transaction.commit_with(Durability::Lazy)?;
        Ok(Some(value.len() as u64))
    }
}

impl Transaction {
    fn newest_without_waiting(&self, tree: &Tree, key: &[u8]) -> Result<Option<Seen>> {
        let mut inner = self.active()?;
        self.pin_snapshot(&mut inner);
        let found = self.newest_cell(&mut inner, tree, key, LockMode::Exclusive, None);
        Ok(self.after_error(inner, found)?.map(|(seen, _)| seen))
    }
}
