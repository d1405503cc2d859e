//! Writes in place that are durable and not yet in the file of the map.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{HashMap, Mutex};
use inkstone_format::{Lsn, PageId, SpaceId};

const SHARDS: usize = 16;

/// A write in place of one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    /// START of the oldest change that this write brought to the disk.
    pub oldest: Lsn,
    /// The page LSN that was written.
    pub lsn: Lsn,
}

/// The notes of each page, in the order of its writes.
#[derive(Default)]
pub(super) struct Notes {
    shards: [Mutex<HashMap<PageId, Vec<Note>>>; SHARDS],
    count: AtomicUsize,
}

impl Notes {
    fn shard(&self, id: PageId) -> &Mutex<HashMap<PageId, Vec<Note>>> {
        &self.shards[(id.space.0.wrapping_add(id.page.0)) as usize % SHARDS]
    }

    /// How many notes there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes a note of a page's newest write.
    pub fn add(&self, id: PageId, note: Note) {
        let mut shard = self.shard(id).lock();
        let notes = shard.entry(id).or_default();
        let before = notes.len();
        // Redo may build a page anew from an initialisation that is older than what was in place.
        notes.retain(|earlier| earlier.lsn < note.lsn);
        self.count
            .fetch_sub(before - notes.len(), Ordering::Relaxed);
        notes.push(note);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The page LSN of a page's newest write.
    pub fn newest(&self, id: PageId) -> Option<Lsn> {
        let shard = self.shard(id).lock();
        shard.get(&id)?.last().map(|note| note.lsn)
    }

    /// Of each page with a write that brought changes from below `checkpoint` to the disk, the page LSN
    /// of the last such write; in order of the pages.
    pub fn due(&self, checkpoint: Lsn) -> Vec<(PageId, Lsn)> {
        let mut due = Vec::new();
        for shard in &self.shards {
            for (&id, notes) in shard.lock().iter() {
                let last = notes.iter().rfind(|note| note.oldest < checkpoint);
                due.extend(last.map(|note| (id, note.lsn)));
            }
        }
        due.sort_unstable();
        due
    }

    /// Forgets a page's notes up to a page LSN: the file of the map says so now.
    pub fn forget_settled(&self, id: PageId, lsn: Lsn) {
        let mut shard = self.shard(id).lock();
        let Some(notes) = shard.get_mut(&id) else {
            return;
        };
        let before = notes.len();
        notes.retain(|note| note.lsn > lsn);
        self.count
            .fetch_sub(before - notes.len(), Ordering::Relaxed);
        if notes.is_empty() {
            shard.remove(&id);
        }
    }

    /// Forgets the notes of the tablespaces that `which` selects.
    pub fn forget(&self, which: impl Fn(SpaceId) -> bool) {
        for shard in &self.shards {
            shard.lock().retain(|id, notes| {
                let stays = !which(id.space);
                if !stays {
                    self.count.fetch_sub(notes.len(), Ordering::Relaxed);
                }
                stays
            });
        }
    }
}
