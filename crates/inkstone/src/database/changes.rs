//! Which rows of a tree change, while an index of them is built beside their writers.

use super::{Database, Inner};
use crate::mvcc::Isolation;
use crate::rows::TreeRef;
use crate::sync::{Instant, thread};
use crate::txn::Transaction;
use crate::txn::state::{HasChanged, LOOK_TIME_MAX};
use crate::txn::tracked::ChangedKeys;
use crate::{Error, Result};
use inkstone_format::SpaceId;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at a transaction that is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Tells which rows of a tree have changed: see [`Database::track_changes`]. Dropping it ends that.
pub struct ChangeTracker {
    inner: Arc<Inner>,
    keys: Arc<ChangedKeys>,
}

/// What [`ChangeTracker::changed_rows`] has found.
pub struct ChangedRows {
    /// A transaction whose snapshot sees the rows as they are after the changes.
    pub seen: Transaction,
    /// Keys of all rows that differ from what the snapshot before has seen, and of others, in
    /// order.
    pub keys: Vec<Vec<u8>>,
}

impl std::fmt::Debug for ChangeTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeTracker").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ChangedRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = self.keys.len();
        f.debug_struct("ChangedRows")
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Has the keys of all rows of a tree noted that are written from now on, up to `bytes_max` of
    /// memory (about a hundred bytes a row). With that an index is built while others write: from
    /// the rows that a first snapshot sees, and then, again and again, from those that have changed
    /// since.
    ///
    /// Waits for transactions that have changed rows of the tree's table before, at most
    /// `patience` ([`Error::LockTimeout`]); their undo is looked through. `None`: there are none,
    /// as the program has locks of its own.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// let people = db.create_table("people", &[])?;
    /// let txn = db.begin(Isolation::ReadCommitted)?;
    /// txn.insert(&people, b"1", b"Ada")?;
    /// txn.commit()?;
    /// let tracker = db.track_changes(&people, 1 << 20, Some(Duration::from_secs(10)))?;
    /// let mut before = tracker.changed_rows()?.expect("they fit").seen;
    /// // Build the index from all rows that `before` sees. Meanwhile:
    /// let txn = db.begin(Isolation::ReadCommitted)?;
    /// txn.update(&people, b"1", b"Grace")?;
    /// txn.commit()?;
    /// // Bring it up to date; the last time with writers kept away.
    /// let changed = tracker.changed_rows()?.expect("they fit");
    /// for key in &changed.keys {
    ///     let (old, new) = (before.get(&people, key)?, changed.seen.get(&people, key)?);
    ///     assert_eq!((old.as_deref(), new.as_deref()), (Some(&b"Ada"[..]), Some(&b"Grace"[..])));
    /// }
    /// before = changed.seen;
    /// # drop(before);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn track_changes(
        &self,
        tree: &impl TreeRef,
        bytes_max: u64,
        patience: Option<Duration>,
    ) -> Result<ChangeTracker> {
        let live = tree.tree_ref().live(&self.inner.core)?;
        let core = &self.inner.core;
        core.storage.poison.check()?;
        let tracker = ChangeTracker {
            inner: self.inner.clone(),
            keys: core.track(live.space.id, live.id, bytes_max),
        };
        if let Some(patience) = patience {
            self.wait_for_writers(live.space.id, &tree.tree_ref().table.name, patience)?;
        }
        Ok(tracker)
    }

    /// Waits until no transaction that has begun may have unfinished changes in a tablespace.
    pub(super) fn wait_for_writers(
        &self,
        space: SpaceId,
        table: &str,
        patience: Duration,
    ) -> Result<()> {
        let core = &self.inner.core;
        let begun = Instant::now();
        let recovered = core.recovered.lock().clone();
        for writer in core.writers().into_iter().chain(recovered) {
            loop {
                // One in the middle of a call may be of another table.
                let patience = match writer.has_changed(core, space)? {
                    HasChanged::No => break,
                    HasChanged::Yes => patience,
                    HasChanged::Busy => patience.max(LOOK_TIME_MAX),
                };
                core.storage.poison.check()?;
                let waited = begun.elapsed();
                if waited >= patience {
                    let place = format!("transactions that have changed table {table}");
                    let waited_ms = waited.as_millis() as u64;
                    return Err(Error::LockTimeout { waited_ms, place });
                }
                thread::sleep(LOOK_INTERVAL.min(patience - waited));
            }
        }
        Ok(())
    }
}

impl ChangeTracker {
    /// Takes a snapshot, and returns the keys of all rows of which it sees something else than
    /// the snapshot of the call before: the row was inserted, changed or deleted, by a transaction
    /// that has committed in between. Rows that were written and have not changed may be among
    /// them. Of the first call only the snapshot counts. `None`: the changed rows took more than
    /// `bytes_max`.
    pub fn changed_rows(&self) -> Result<Option<ChangedRows>> {
        let core = &self.inner.core;
        let seen = Transaction::begin(core, Isolation::RepeatableRead)?;
        // Before the keys: what it sees was noted before.
        let seq = seen.keep_snapshot()?;
        let keys = self.keys.take(seq, &core.trxs);
        Ok(keys.map(|keys| ChangedRows { seen, keys }))
    }
}

impl Drop for ChangeTracker {
    fn drop(&mut self) {
        self.inner.core.untrack(&self.keys);
    }
}
