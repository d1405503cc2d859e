//! Explicit locks of rows.
//!
//! A lock's name is a 64-bit keyed hash (SipHash, key drawn at random for each table) of space, tree
//! and key; the key itself is not kept. Two rows that share a name (one pair in 2^64) wait for each
//! other without need; the other way round is impossible. In return a lock costs a few words, however
//! long the key.

use super::{Blockers, LockInfo, LockMode, LockTarget, push_blocker};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{HashMap, Mutex, RandomState};
use crate::txn::system::TrxState;
use crossbeam_utils::CachePadded;
use inkstone_format::{SpaceId, TreeId};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Shards of the table; a power of two.
const SHARDS: usize = 128;

/// Passes a name through: it is a hash already.
#[derive(Default)]
struct NameHasher(u64);

impl Hasher for NameHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        crate::invariant!(false, "names are hashed as u64");
    }
    fn write_u64(&mut self, name: u64) {
        self.0 = name;
    }
}

type Holder = (Arc<TrxState>, LockMode);

/// Holders of one lock, compatible with each other (those that have ended excepted).
#[derive(Debug)]
struct RecordLock {
    /// Where the row is, for people: the name says it already.
    place: (SpaceId, TreeId),
    first: Holder,
    more: Vec<Holder>,
}

impl RecordLock {
    fn holders(&self) -> impl Iterator<Item = &Holder> {
        std::iter::once(&self.first).chain(&self.more)
    }

    fn blockers(&self, trx: &TrxState, mode: LockMode) -> Blockers {
        let mut blockers = Vec::new();
        for (holder, held) in self.holders() {
            if holder.id() != trx.id() && mode.conflicts(*held) {
                push_blocker(&mut blockers, holder);
            }
        }
        blockers
    }

    fn held_by(&mut self, trx: &TrxState) -> Option<&mut LockMode> {
        std::iter::once(&mut self.first)
            .chain(&mut self.more)
            .find(|(holder, _)| holder.id() == trx.id())
            .map(|(_, mode)| mode)
    }
}

type LockMap = HashMap<u64, RecordLock, BuildHasherDefault<NameHasher>>;

#[derive(Debug, Default)]
struct Shard {
    /// Holders in `locks`; changed under its latch.
    count: AtomicUsize,
    locks: Mutex<LockMap>,
}

#[derive(Debug)]
pub(super) struct RecordLocks {
    hasher: RandomState,
    /// False: there is no lock, and looking for one is this load. Set by whoever makes a lock, with
    /// its shard latched; cleared by [`RecordLocks::rest`] alone, with every shard latched.
    in_use: CachePadded<AtomicBool>,
    shards: Box<[CachePadded<Shard>]>,
}

impl Default for RecordLocks {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            in_use: CachePadded::default(),
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
        }
    }
}

impl RecordLocks {
    pub fn name(&self, space: SpaceId, tree: TreeId, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64((space.0 as u64) << 32 | tree.0 as u64);
        hasher.write(key);
        hasher.finish()
    }

    fn shard(&self, name: u64) -> &Shard {
        // Neither the lowest bits nor the top seven: the map uses those.
        &self.shards[(name >> 40) as usize % SHARDS]
    }

    /// `Ok(true)` if `trx` became a holder, `Ok(false)` if it was one.
    pub fn try_lock(
        &self,
        trx: &Arc<TrxState>,
        name: u64,
        place: (SpaceId, TreeId),
        mode: LockMode,
    ) -> Result<bool, Blockers> {
        let shard = self.shard(name);
        let mut locks = shard.locks.lock();
        let Some(lock) = locks.get_mut(&name) else {
            let first = (trx.clone(), mode);
            let more = Vec::new();
            locks.insert(name, RecordLock { place, first, more });
            shard.count.fetch_add(1, Ordering::SeqCst);
            // A load first: the line stays shared by those who only look.
            if !self.in_use() {
                self.in_use.store(true, Ordering::SeqCst);
            }
            return Ok(true);
        };
        let held = lock.held_by(trx).map(|held| *held);
        if held.is_some_and(|held| held >= mode) {
            return Ok(false);
        }
        let blockers = lock.blockers(trx, mode);
        if !blockers.is_empty() {
            return Err(blockers);
        }
        if let Some(held) = lock.held_by(trx) {
            *held = mode;
            return Ok(false);
        }
        lock.more.push((trx.clone(), mode));
        shard.count.fetch_add(1, Ordering::SeqCst);
        Ok(true)
    }

    /// Whether there may be locks.
    pub fn in_use(&self) -> bool {
        self.in_use.load(Ordering::SeqCst)
    }

    /// Notes that there are no locks any more, if so. To be called now and then.
    pub fn rest(&self) {
        let is_empty = |shard: &Shard| shard.count.load(Ordering::SeqCst) == 0;
        if !self.in_use() || !self.shards.iter().all(|shard| is_empty(shard)) {
            return;
        }
        // Nobody makes a lock meanwhile.
        let latched: Vec<_> = self.shards.iter().map(|shard| shard.locks.lock()).collect();
        if latched.iter().all(|locks| locks.is_empty()) {
            self.in_use.store(false, Ordering::SeqCst);
        }
    }

    pub fn blockers(&self, trx: &TrxState, name: u64, mode: LockMode) -> Blockers {
        let shard = self.shard(name);
        if shard.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let locks = shard.locks.lock();
        locks
            .get(&name)
            .map_or_else(Vec::new, |lock| lock.blockers(trx, mode))
    }

    pub fn holds(&self, trx: &TrxState, name: u64, mode: LockMode) -> bool {
        let mut locks = self.shard(name).locks.lock();
        let held = locks.get_mut(&name).and_then(|lock| lock.held_by(trx));
        held.is_some_and(|held| *held >= mode)
    }

    pub fn release(&self, trx: &TrxState, name: u64) {
        let shard = self.shard(name);
        let mut locks = shard.locks.lock();
        let Some(lock) = locks.get_mut(&name) else {
            crate::invariant!(false, "{trx:?} releases a lock that nobody holds");
            return;
        };
        let at = lock.holders().position(|(h, _)| h.id() == trx.id());
        match at {
            Some(0) => match lock.more.pop() {
                Some(other) => lock.first = other,
                None => {
                    locks.remove(&name);
                    if locks.is_empty() && locks.capacity() > 1024 {
                        *locks = LockMap::default();
                    }
                }
            },
            Some(at) => {
                lock.more.swap_remove(at - 1);
            }
            None => crate::invariant!(false, "{trx:?} releases a lock that it does not hold"),
        }
        shard.count.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn list(&self) -> Vec<LockInfo> {
        let mut all = Vec::new();
        for shard in &self.shards {
            for (&name, lock) in shard.locks.lock().iter() {
                all.extend(lock.holders().map(|(holder, mode)| LockInfo {
                    transaction: holder.id(),
                    space: lock.place.0,
                    tree: lock.place.1,
                    mode: *mode,
                    target: LockTarget::Row(name),
                }));
            }
        }
        all
    }

    pub fn count(&self) -> usize {
        let counts = self.shards.iter().map(|s| s.count.load(Ordering::Relaxed));
        counts.sum()
    }
}
