//! A wish for a lock that cannot be granted at once.

use super::intervals::{Interval, low_bound};
use super::{Access, LockTarget, TreeKey};
use crate::mvcc::system::TrxState;
use crate::paranoid::paranoid;
use crate::sync::Instant;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A row, or the place of one.
    Row(Box<[u8]>),
    Range(Interval),
}

impl Target {
    pub fn for_people(&self) -> LockTarget {
        match self {
            Self::Row(key) => LockTarget::Row(key.to_vec()),
            Self::Range(interval) => {
                LockTarget::Range(low_bound(&interval.low), interval.high.as_bound())
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Request {
    pub trx: Arc<TrxState>,
    pub tree: TreeKey,
    pub target: Target,
    pub access: Access,
    pub since: Instant,
    granted: AtomicBool,
}

impl Request {
    pub fn new(trx: &Arc<TrxState>, tree: TreeKey, target: Target, access: Access) -> Arc<Self> {
        if let Target::Range(interval) = &target {
            paranoid!(
                !interval.is_before(&interval.low) && access != Access::Insert,
                "a wish for {interval:?}: {access:?}"
            );
        }
        Arc::new(Self {
            trx: trx.clone(),
            tree,
            target,
            access,
            since: Instant::now(),
            granted: AtomicBool::new(false),
        })
    }

    /// Called with the tree's latch held, after the waiter was made an owner.
    pub fn grant(&self) {
        self.granted.store(true, Ordering::Release);
        self.trx.wake_up();
    }

    /// Whether both are wishes for one row.
    pub fn wants_the_same_row(&self, other: &Self) -> bool {
        let same_row = match (&self.target, &other.target) {
            (Target::Row(one), Target::Row(other)) => one == other,
            _ => false,
        };
        same_row && self.tree == other.tree
    }

    pub fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire)
    }
}
