//! Map blocks in memory: a bounded number of those that were used last. What is here is what the
//! file has; a thread that changes a block in the file puts it here at once.

use crate::paranoid::{Check, Checked, paranoid};
use crate::sync::HashMap;
use inkstone_format::SpaceId;
use inkstone_format::page_lsn_map::BLOCK_ENTRIES;
use std::sync::Arc;

/// The page LSNs of a run.
pub(super) type Lsns = Arc<[u64; BLOCK_ENTRIES]>;
/// A run of a tablespace.
pub(super) type Run = (SpaceId, u32);

const SHARDS: usize = 16;

struct Cached {
    lsns: Lsns,
    /// Looked at since the last sweep.
    used: bool,
}

#[derive(Default)]
struct Shard {
    blocks: HashMap<SpaceId, HashMap<u32, Cached>>,
    count: usize,
    /// Number of blocks that were changed or forgotten: what was read from the file before may be
    /// out of date.
    changes: u64,
}

/// See the module.
pub(super) struct BlockCache {
    shards: [Checked<Shard>; SHARDS],
    shard_blocks_max: usize,
}

impl BlockCache {
    pub fn new(blocks_max: usize) -> Self {
        Self {
            shards: Default::default(),
            shard_blocks_max: (blocks_max / SHARDS).max(1),
        }
    }

    fn shard(&self, (space, run): Run) -> &Checked<Shard> {
        &self.shards[(space.0.wrapping_mul(5).wrapping_add(run)) as usize % SHARDS]
    }

    /// The block; or, if it is not here, what [`BlockCache::fill`] asks for.
    pub fn get(&self, run: Run) -> std::result::Result<Lsns, u64> {
        let mut shard = self.shard(run).lock();
        let changes = shard.changes;
        let (space, run) = run;
        let of_space = shard.blocks.get_mut(&space).ok_or(changes)?;
        let cached = of_space.get_mut(&run).ok_or(changes)?;
        cached.used = true;
        Ok(cached.lsns.clone())
    }

    /// What [`BlockCache::fill`] asks for, of a block that is not here.
    pub fn lacks(&self, (space, run): Run) -> Option<u64> {
        let shard = self.shard((space, run)).lock();
        let of_space = shard.blocks.get(&space);
        let is_here = of_space.is_some_and(|blocks| blocks.contains_key(&run));
        (!is_here).then_some(shard.changes)
    }

    /// Keeps a block that was read from the file, unless one of the shard has changed since `get`.
    pub fn fill(&self, run: Run, lsns: &Lsns, changes: u64) {
        let mut shard = self.shard(run).lock();
        if shard.changes == changes {
            self.insert(&mut shard, run, lsns);
        }
    }

    /// Keeps a block that was just written.
    pub fn put(&self, run: Run, lsns: &Lsns) {
        let mut shard = self.shard(run).lock();
        shard.changes += 1;
        self.insert(&mut shard, run, lsns);
    }

    fn insert(&self, shard: &mut Shard, (space, run): Run, lsns: &Lsns) {
        let cached = Cached {
            lsns: lsns.clone(),
            used: true,
        };
        if let Some(here) = shard.blocks.get_mut(&space).and_then(|of| of.get_mut(&run)) {
            *here = cached;
            return;
        }
        if shard.count >= self.shard_blocks_max {
            shard.retain(|cached| std::mem::take(&mut cached.used));
        }
        if shard.count >= self.shard_blocks_max {
            shard.retain(|_| false);
        }
        shard.blocks.entry(space).or_default().insert(run, cached);
        shard.count += 1;
        paranoid!(
            shard.count <= self.shard_blocks_max,
            "{} blocks in a shard for {}",
            shard.count,
            self.shard_blocks_max
        );
    }

    /// Forgets the blocks of a tablespace.
    pub fn forget(&self, space: SpaceId) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.changes += 1;
            let gone = shard.blocks.remove(&space);
            shard.count -= gone.map_or(0, |blocks| blocks.len());
        }
    }

    /// Forgets the blocks of the tablespaces that `stays` does not select.
    pub fn retain(&self, stays: impl Fn(SpaceId) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.changes += 1;
            shard.blocks.retain(|&space, _| stays(space));
            shard.count = shard.blocks.values().map(HashMap::len).sum();
        }
    }
}

impl Check for Shard {
    /// A tablespace without blocks takes no memory.
    fn check(&self) {
        paranoid!(
            self.blocks.len() <= self.count,
            "{} blocks of {} tablespaces",
            self.count,
            self.blocks.len()
        );
    }
}

impl Shard {
    fn retain(&mut self, mut stays: impl FnMut(&mut Cached) -> bool) {
        for blocks in self.blocks.values_mut() {
            blocks.retain(|_, cached| stays(cached));
        }
        self.blocks.retain(|_, blocks| !blocks.is_empty());
        self.count = self.blocks.values().map(HashMap::len).sum();
    }
}
