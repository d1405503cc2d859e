//! Changes that commute: what a transaction adds to a row, whatever others have added to it since
//! its snapshot was taken.
//!
//! At repeatable read the first committer wins: a change of a row that was committed after the
//! snapshot is refused, since it may rest on what was read before. A merge rests on nothing that
//! was read: its function gets the newest value, behind the row's lock. So nothing is lost when
//! the conflict is passed over, and only then it may be.

use crate::locks::LockMode;
use crate::rows::read::Wait;
use crate::rows::tables::TreeRef;
use crate::sync::thread;
use crate::txn::transaction::Transaction;
use crate::{Error, Result};

/// What it wrote was combined from a value that is no longer the row's.
pub(crate) const CHANGED_BY_COMBINE: &str =
    "merging into a row that the function which combines has changed itself";

impl Transaction {
    /// Gives `combine` the newest committed value of a row (`None`: there is no row) and makes what
    /// it returns the row's value. The row is locked first, and stays locked until the transaction
    /// ends.
    ///
    /// At repeatable read this is no [`Error::WriteConflict`] if others have changed the row since
    /// the snapshot, as [`update`](Self::update) is: for counters, sums, sets, and whatever else
    /// comes to the same in any order. `combine` must use nothing that the transaction has read of
    /// this row: that may be older. Once merged, the transaction reads what it has written. Rows
    /// that it reads beside are those of its snapshot.
    ///
    /// Waits and fails as [`insert`](Self::insert) does. `combine` is called again where a row has
    /// come between the look at it and the write. It may use the transaction, but for this row:
    /// [`Error::TransactionState`] if it has changed, deleted or restored it, and nothing of it is
    /// kept.
    ///
    /// ```
    /// # use inkstone::{Database, Error, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let add = |old: Option<&[u8]>| {
    ///     let count = old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap()));
    ///     (count + 1).to_le_bytes().to_vec()
    /// };
    /// let first = db.begin_with_snapshot()?;
    /// let second = db.begin_with_snapshot()?;
    /// first.merge(&table, b"visits", add)?;
    /// first.commit()?;
    /// second.merge(&table, b"visits", add)?; // newer than its snapshot, and no conflict
    /// second.commit()?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// assert_eq!(txn.get(&table, b"visits")?, Some(2_u64.to_le_bytes().to_vec()));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn merge(
        &self,
        tree: &impl TreeRef,
        key: &[u8],
        mut combine: impl FnMut(Option<&[u8]>) -> Vec<u8>,
    ) -> Result<()> {
        self.statement(|txn| {
            loop {
                let (mode, wait) = (LockMode::Exclusive, Wait::Timeout);
                let read = || txn.passing_over(|| txn.get_locking(tree, key, mode, wait));
                let old = read()?;
                let before = txn.progress()?;
                let new = combine(old.as_deref());
                if txn.progress()? != before && read()? != old {
                    return Err(Error::TransactionState(CHANGED_BY_COMBINE));
                }
                let written = txn.passing_over(|| match &old {
                    Some(_) => txn.update(tree, key, &new),
                    None => txn.insert_or_lock(tree, key, &new, mode),
                });
                match (old, written) {
                    // It has come since, and is locked now.
                    (None, Err(Error::DuplicateKey { .. })) => {}
                    (_, written) => return written,
                }
            }
        })
    }

    /// Has `work` read and write the newest versions of rows, also those that are newer than the
    /// transaction's snapshot. What it writes must rest on nothing else.
    pub(crate) fn passing_over<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        struct Passing<'t>(&'t Transaction);
        impl Drop for Passing<'_> {
            fn drop(&mut self) {
                self.0.shared.inner.lock().passes_over = None;
            }
        }
        self.active()?.passes_over = Some(thread::number());
        let _passing = Passing(self);
        work()
    }
}
