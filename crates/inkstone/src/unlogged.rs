//! Bulk inserts of which the log lacks rows
//! ([decision 0041](../../../docs/decisions/0041-bulk-inserts-without-their-rows-in-the-log.md)).
//!
//! A leaf of which the log may lack rows has rows of one such bulk insert and no others: all carry
//! its version's address. What the log says of it is true of its fences, and of some of its rows,
//! or none. So no record may name a slot of it: whatever changes it otherwise than the bulk's own
//! transaction logs all of it first (`Mtr::change`).
//!
//! # Promises
//!
//! 1. What the log lacks is of one bulk insert, and on pages that it has to itself. Tested by
//!    `rows_of_others_are_logged_with_the_page`. Tested by the simulator (`page-not-logged-whole`).

use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{HashSet, RwLock};
use inkstone_format::header::{PageType, page_type};
use inkstone_format::record::{Record, put_leaf_cells};
use inkstone_format::tree_page::TreePage;
use inkstone_format::tree_page::{CELL_VERSIONED, TreePageInit};
use inkstone_format::{PageId, VersionAddress};

/// The bulk inserts of which the log may lack rows, by their versions.
#[derive(Debug, Default)]
pub struct Unlogged {
    /// How many there are, for a look without the latch.
    count: AtomicUsize,
    bulks: RwLock<Bulks>,
}

#[derive(Debug, Default)]
struct Bulks {
    known: HashSet<VersionAddress>,
    /// No more begin.
    paused: bool,
}

impl Unlogged {
    /// From now on the log may lack rows of this bulk insert; false: not while that is paused.
    pub fn begin(&self, address: VersionAddress) -> bool {
        let mut bulks = self.bulks.write();
        if bulks.paused {
            return false;
        }
        let is_new = bulks.known.insert(address);
        paranoid!(
            is_new && address.is_logged(),
            "a bulk insert with version {address} begins to leave rows out of the log"
        );
        self.count.store(bulks.known.len(), Ordering::Release);
        true
    }

    /// Has no more bulk inserts begin to leave rows out. Whether there are some that have.
    pub fn pause(&self) -> bool {
        let mut bulks = self.bulks.write();
        let was_paused = std::mem::replace(&mut bulks.paused, true);
        paranoid!(
            !was_paused,
            "bulk inserts are kept from leaving rows out, twice"
        );
        !bulks.known.is_empty()
    }

    /// The end of a pause.
    pub fn resume(&self) {
        let was_paused = std::mem::take(&mut self.bulks.write().paused);
        paranoid!(was_paused, "a pause ends that has not begun");
    }

    /// The pages of these are on disk, and below the checkpoint; or their rows are gone.
    pub fn end(&self, addresses: &[VersionAddress]) {
        if addresses.is_empty() {
            return;
        }
        let mut bulks = self.bulks.write();
        let known = addresses
            .iter()
            .filter(|&address| bulks.known.remove(address));
        let known = known.count();
        paranoid!(
            known == addresses.len(),
            "{known} of {} bulk inserts were known to leave rows out of the log",
            addresses.len()
        );
        self.count.store(bulks.known.len(), Ordering::Release);
    }

    /// Whether the log may lack rows of the bulk insert.
    pub fn has(&self, address: VersionAddress) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.bulks.read().known.contains(&address)
    }

    /// Whether the log may lack rows of a page, which the caller has latched.
    pub fn has_page(&self, page: &[u8]) -> bool {
        if self.count.load(Ordering::Acquire) == 0 || page_type(page) != Some(PageType::Leaf) {
            return false;
        }
        let leaf = TreePage(page);
        let first = (leaf.count() > 0).then(|| leaf.version(0)).flatten();
        first.is_some_and(|first| first.is_logged() && self.has(first) && is_all_of(leaf, first))
    }
}

/// Whether all rows of a leaf have this version.
pub fn is_all_of(leaf: TreePage<'_>, address: VersionAddress) -> bool {
    leaf.is_leaf() && (0..leaf.count()).all(|slot| leaf.version(slot) == Some(address))
}

/// What makes a tree page of these fences, with no cell in it.
pub fn init_like(page: TreePage<'_>) -> TreePageInit {
    TreePageInit {
        tree: page.tree(),
        level: page.level(),
        low: page.low().to_vec(),
        high: page.high().map(<[u8]>::to_vec),
    }
}

/// Notes the records that make a leaf as it is, whatever the page held.
pub fn put_whole(payload: &mut Vec<u8>, page: PageId, leaf: TreePage<'_>) {
    let init = init_like(leaf);
    Record::TreeInit { page, init }.put(payload);
    let keys: Vec<Vec<u8>> = (0..leaf.count()).map(|slot| leaf.key(slot)).collect();
    put_cells(payload, (page, 0), leaf, 0, &keys);
}

/// Notes the records that put the cells of `from` from slot `first` on, which have these keys, into
/// a leaf at a slot. Of version addresses those are noted that outlive a restart.
pub fn put_cells(
    payload: &mut Vec<u8>,
    (page, at): (PageId, usize),
    from: TreePage<'_>,
    first: usize,
    keys: &[Vec<u8>],
) {
    paranoid!(
        first + keys.len() == from.count(),
        "{} keys of {} cells from slot {first} on",
        keys.len(),
        from.count()
    );
    if keys.is_empty() {
        return;
    }
    let rows = keys.iter().enumerate().map(|(n, key)| {
        let cell = from.cell(first + n);
        (cell.flags & !CELL_VERSIONED, &key[..], cell.value)
    });
    put_leaf_cells(payload, page, at as u16, keys.len(), rows);
    let logged = |n: usize| {
        let version = from.version(first + n).filter(|v| v.is_logged());
        version.map(|version| ((at + n) as u16, Some(version)))
    };
    let versions: Vec<_> = (0..keys.len()).filter_map(logged).collect();
    if !versions.is_empty() {
        Record::SetVersions { page, versions }.put(payload);
    }
}

/// Notes that rows of an unlogged bulk insert came into a leaf: that it has changed, and nothing
/// else. (The log has a record of each change of a page, for the page's LSN.)
pub fn put_rows_left_out(payload: &mut Vec<u8>, page: PageId) {
    let versions = Vec::new();
    Record::SetVersions { page, versions }.put(payload);
}
