//! Writes in place that are durable and not yet in the file of the map.

use crate::paranoid::{MANY, paranoid};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{HashMap, Mutex};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId};

const SHARDS: usize = 16;

/// A write in place of one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    /// START of the oldest change that this write brought to the disk.
    pub oldest: Lsn,
    /// The page LSN that was written.
    pub lsn: Lsn,
}

/// The notes of each page of a tablespace, in the order of its writes.
type OfSpace = HashMap<PageNo, Vec<Note>>;

/// The notes of each page.
#[derive(Default)]
pub(super) struct Notes {
    shards: [Mutex<HashMap<SpaceId, OfSpace>>; SHARDS],
    count: AtomicUsize,
}

impl Notes {
    fn shard(&self, id: PageId) -> &Mutex<HashMap<SpaceId, OfSpace>> {
        &self.shards[(id.space.0.wrapping_add(id.page.0)) as usize % SHARDS]
    }

    /// How many notes there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes a note of a page's newest write.
    pub fn add(&self, id: PageId, note: Note) {
        let mut shard = self.shard(id).lock();
        let of_space = shard.entry(id.space).or_default();
        let notes = of_space.entry(id.page).or_default();
        let before = notes.len();
        // Redo may build a page anew from an initialisation that is older than what was in place.
        notes.retain(|earlier| earlier.lsn < note.lsn);
        self.count
            .fetch_sub(before - notes.len(), Ordering::Relaxed);
        notes.push(note);
        paranoid!(
            note.oldest <= note.lsn,
            "page {id} of LSN {} was changed at LSN {} before",
            note.lsn,
            note.oldest
        );
        let first = notes.len().saturating_sub(MANY);
        paranoid!(
            notes[first..].is_sorted_by(|a, b| a.lsn < b.lsn),
            "the notes of page {id} are not in order"
        );
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The page LSN of a page's newest write.
    pub fn newest(&self, id: PageId) -> Option<Lsn> {
        let shard = self.shard(id).lock();
        let notes = shard.get(&id.space)?.get(&id.page)?;
        notes.last().map(|note| note.lsn)
    }

    /// Of each page with a write that brought changes from below `checkpoint` to the disk, the page
    /// LSN of the last such write; in order of the pages.
    pub fn due(&self, checkpoint: Lsn) -> Vec<(PageId, Lsn)> {
        let mut due = Vec::new();
        for shard in &self.shards {
            for (&space, of_space) in shard.lock().iter() {
                for (&page, notes) in of_space {
                    let last = notes.iter().rfind(|note| note.oldest < checkpoint);
                    due.extend(last.map(|note| (PageId::new(space, page), note.lsn)));
                }
            }
        }
        due.sort_unstable();
        paranoid!(
            due.is_sorted_by(|(a, _), (b, _)| a < b),
            "a page is to be settled twice"
        );
        due
    }

    /// Forgets a page's notes up to a page LSN: the file of the map says so now.
    pub fn forget_settled(&self, id: PageId, lsn: Lsn) {
        let mut shard = self.shard(id).lock();
        let Some(of_space) = shard.get_mut(&id.space) else {
            return;
        };
        let Some(notes) = of_space.get_mut(&id.page) else {
            return;
        };
        let before = notes.len();
        notes.retain(|note| note.lsn > lsn);
        self.count
            .fetch_sub(before - notes.len(), Ordering::Relaxed);
        if notes.is_empty() {
            of_space.remove(&id.page);
        }
        if of_space.is_empty() {
            shard.remove(&id.space);
        }
    }

    /// Forgets the notes of a tablespace.
    pub fn forget(&self, space: SpaceId) {
        for shard in &self.shards {
            let gone = shard.lock().remove(&space);
            self.forgotten(gone.as_ref());
        }
    }

    /// Forgets the notes of the tablespaces that `stays` does not select.
    pub fn retain(&self, stays: impl Fn(SpaceId) -> bool) {
        for shard in &self.shards {
            shard.lock().retain(|&space, of_space| {
                let stays = stays(space);
                self.forgotten((!stays).then_some(&*of_space));
                stays
            });
        }
    }

    fn forgotten(&self, of_space: Option<&OfSpace>) {
        let notes = of_space.into_iter().flat_map(HashMap::values);
        let count = notes.map(Vec::len).sum();
        self.count.fetch_sub(count, Ordering::Relaxed);
    }
}
