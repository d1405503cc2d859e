//! Rows that change while an index of them is built: the keys of those that transactions have
//! written, so that the builder can look at them again.
//!
//! A key is noted by every write, before the row changes. So what a snapshot sees of a tree that
//! is tracked differs from what an earlier one has seen only in rows whose keys are noted by then.
//! A key is forgotten when the builder's snapshot sees the last transaction that has noted it: it
//! sees those before, too, which had to end before that one could write the row. Behind one that
//! was rolled back it must be a snapshot that was taken later than the rollback. Tested by
//! `an_index_is_built_beside_writers`.

use crate::mvcc::system::{TrxState, TrxStatus, TrxSystem};
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, RwLock};
use crate::txn::core::Core;
use inkstone_format::{SpaceId, TreeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a key costs beside its bytes.
const KEY_BYTES: u64 = 96;

/// Keys of changed rows of one tree.
pub(crate) struct ChangedKeys {
    space: SpaceId,
    tree: TreeId,
    bytes_max: u64,
    noted: Mutex<Noted>,
}

/// Up to when a key is of use.
enum Until {
    /// Until a snapshot sees this transaction, the last one that has noted it.
    Seen(Arc<TrxState>),
    /// Until a snapshot has at least this number: the last one was rolled back.
    Number(u64),
}

impl Until {
    /// How it is behind a snapshot; `None`: it is over.
    fn after(&self, snapshot_seq: u64, trxs: &TrxSystem) -> Option<Self> {
        match self {
            Self::Seen(trx) if trx.is_visible_at(snapshot_seq) => None,
            Self::Seen(trx) if matches!(trx.status(), TrxStatus::Aborted) => {
                Some(Self::Number(trxs.last_seq()))
            }
            Self::Seen(trx) => Some(Self::Seen(trx.clone())),
            Self::Number(number) => (*number > snapshot_seq).then_some(Self::Number(*number)),
        }
    }
}

#[derive(Default)]
struct Noted {
    keys: BTreeMap<Vec<u8>, Until>,
    bytes: u64,
    /// There were more than `bytes_max`; none are noted any more.
    is_too_much: bool,
}

/// The trees that are tracked.
#[derive(Default)]
pub(crate) struct Tracked {
    any: AtomicBool,
    trees: RwLock<Vec<Arc<ChangedKeys>>>,
}

impl ChangedKeys {
    fn note(&self, key: &[u8], by: &Arc<TrxState>) {
        let mut noted = self.noted.lock();
        if noted.is_too_much {
            return;
        }
        if let Some(last) = noted.keys.get_mut(key) {
            *last = Until::Seen(by.clone());
            return;
        }
        noted.bytes += KEY_BYTES + key.len() as u64;
        if noted.bytes > self.bytes_max {
            *noted = Noted {
                is_too_much: true,
                ..Noted::default()
            };
            return;
        }
        paranoid!(!by.is_ended(), "{by:?} has ended, and changes row {key:x?}");
        noted.keys.insert(key.to_vec(), Until::Seen(by.clone()));
    }

    /// The keys that are noted, for a snapshot that was taken before this call. Those of which it
    /// sees all changes are forgotten. `None`: there were too many.
    pub fn take(&self, snapshot_seq: u64, trxs: &TrxSystem) -> Option<Vec<Vec<u8>>> {
        let mut noted = self.noted.lock();
        if noted.is_too_much {
            return None;
        }
        let keys = noted.keys.keys().cloned().collect();
        let mut left = 0;
        noted.keys.retain(|key, until| {
            let Some(after) = until.after(snapshot_seq, trxs) else {
                return false;
            };
            *until = after;
            left += KEY_BYTES + key.len() as u64;
            true
        });
        paranoid!(
            left <= noted.bytes,
            "{left} bytes of keys are left of {}",
            noted.bytes
        );
        noted.bytes = left;
        Some(keys)
    }
}

impl Core {
    /// Has the keys of changed rows of a tree noted from now on.
    pub(crate) fn track(&self, space: SpaceId, tree: TreeId, bytes_max: u64) -> Arc<ChangedKeys> {
        let keys = Arc::new(ChangedKeys {
            space,
            tree,
            bytes_max,
            noted: Mutex::default(),
        });
        let mut trees = self.tracked.trees.write();
        paranoid!(
            self.tracked.any.load(Ordering::Relaxed) != trees.is_empty(),
            "{} trees are tracked",
            trees.len()
        );
        trees.push(keys.clone());
        self.tracked.any.store(true, Ordering::Release);
        keys
    }

    /// Ends what [`Core::track`] has begun.
    pub(crate) fn untrack(&self, keys: &Arc<ChangedKeys>) {
        let mut trees = self.tracked.trees.write();
        let before = trees.len();
        trees.retain(|each| !Arc::ptr_eq(each, keys));
        paranoid!(
            trees.len() + 1 == before,
            "tree {} of tablespace {} is tracked {} times by one",
            keys.tree,
            keys.space,
            before - trees.len()
        );
        self.tracked.any.store(!trees.is_empty(), Ordering::Release);
    }

    /// To be called before a row changes, with its transaction latched.
    #[inline]
    pub(crate) fn note_change(
        &self,
        (space, tree): (SpaceId, TreeId),
        key: &[u8],
        by: &Arc<TrxState>,
    ) {
        if self.tracked.any.load(Ordering::Acquire) {
            self.note_tracked(space, tree, key, by);
        }
    }

    #[cold]
    fn note_tracked(&self, space: SpaceId, tree: TreeId, key: &[u8], by: &Arc<TrxState>) {
        let trees = self.tracked.trees.read();
        for keys in trees.iter() {
            if (keys.space, keys.tree) == (space, tree) {
                keys.note(key, by);
            }
        }
    }
}
