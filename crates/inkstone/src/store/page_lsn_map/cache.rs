//! Map blocks in memory: a bounded number of those that were used last. What is here is what the file
//! has; whoever changes a block in the file puts it here at once.

use crate::sync::{HashMap, Mutex};
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
    blocks: HashMap<Run, Cached>,
    /// Number of blocks that were changed or forgotten: what was read from the file before may be
    /// out of date.
    changes: u64,
}

/// See the module.
pub(super) struct BlockCache {
    shards: [Mutex<Shard>; SHARDS],
    shard_blocks_max: usize,
}

impl BlockCache {
    pub fn new(blocks_max: usize) -> Self {
        Self {
            shards: Default::default(),
            shard_blocks_max: (blocks_max / SHARDS).max(1),
        }
    }

    fn shard(&self, (space, run): Run) -> &Mutex<Shard> {
        &self.shards[(space.0.wrapping_mul(5).wrapping_add(run)) as usize % SHARDS]
    }

    /// The block; or, if it is not here, what [`BlockCache::fill`] asks for.
    pub fn get(&self, run: Run) -> std::result::Result<Lsns, u64> {
        let mut shard = self.shard(run).lock();
        let changes = shard.changes;
        let cached = shard.blocks.get_mut(&run).ok_or(changes)?;
        cached.used = true;
        Ok(cached.lsns.clone())
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

    fn insert(&self, shard: &mut Shard, run: Run, lsns: &Lsns) {
        if shard.blocks.len() >= self.shard_blocks_max && !shard.blocks.contains_key(&run) {
            shard
                .blocks
                .retain(|_, cached| std::mem::take(&mut cached.used));
            if shard.blocks.len() >= self.shard_blocks_max {
                shard.blocks.clear();
            }
        }
        let (lsns, used) = (lsns.clone(), true);
        shard.blocks.insert(run, Cached { lsns, used });
    }

    /// Forgets the blocks of the tablespaces that `which` selects.
    pub fn forget(&self, which: impl Fn(SpaceId) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.changes += 1;
            shard.blocks.retain(|&(space, _), _| !which(space));
        }
    }
}
