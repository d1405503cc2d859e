//! The map over a simulated disk.

use super::*;
use crate::buffer::PageStore;
use crate::options::{Doublewrite, FlushMethod};
use crate::store::tests::{DIRECTORY, PAGE, UUID, id, is_page, options, page, write};
use crate::store::{FilePageStore, Placement, SpaceFiles, StoreOptions};
use inkstone_format::header::stamp_checksum;
use inkstone_format::page_lsn_map::{SECTOR_LEN, index_entry};
use inkstone_io::AlignedBuffer;
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::path::Path;

const ALL: Lsn = Lsn(u64::MAX);

/// A process with a store, and the map as it is after this opening.
struct Rig {
    vfs: SimVfs,
    spaces: Arc<SpaceFiles>,
    store: FilePageStore,
    counters: Arc<Counters>,
}

fn disk() -> SimVfs {
    let vfs = SimVfs::new(1);
    vfs.create_dir_all(Path::new(DIRECTORY)).unwrap();
    vfs
}

impl Rig {
    /// Without a file of the map.
    fn bare(vfs: &SimVfs, doublewrite: Doublewrite) -> Self {
        let options = StoreOptions {
            pool_bytes: 64 * PAGE as u64,
            ..options(doublewrite, FlushMethod::ODirect)
        };
        let (counters, poison) = (Arc::new(Counters::default()), Poison::default());
        let (shared, directory) = (Arc::new(vfs.clone()), vfs.directory(DIRECTORY));
        let spaces = Arc::new(
            SpaceFiles::new(directory.clone(), options, counters.clone(), poison.clone()).unwrap(),
        );
        let store = FilePageStore::new(
            shared,
            directory.clone(),
            UUID,
            options,
            spaces.clone(),
            counters.clone(),
            poison,
        )
        .unwrap();
        Self {
            vfs: vfs.clone(),
            spaces,
            store,
            counters,
        }
    }

    /// A new database, with a tablespace of 40 pages.
    fn new(doublewrite: Doublewrite) -> Self {
        let rig = Self::bare(&disk(), doublewrite);
        rig.map().create(UUID, 1).unwrap();
        rig.spaces
            .create(SpaceId(1), 40, Placement::InPlace)
            .unwrap();
        rig
    }

    /// The process dies, and another one opens the database, whose control file says `epoch`.
    fn reopen(&self, epoch: u64, log_end: u64) -> Self {
        let rig = Self::bare(&self.vfs.kill(), Doublewrite::Off);
        rig.map()
            .open(UUID, epoch, Lsn(0), Some(Lsn(log_end)))
            .unwrap();
        rig.map().redo_done(Lsn(log_end), None).unwrap();
        rig
    }

    fn map(&self) -> &PageLsnMap {
        self.spaces.page_lsns()
    }

    fn write(&self, pages: &[(PageId, u64)]) {
        let pages: Vec<_> = pages.iter().map(|&(id, lsn)| (id, lsn, false)).collect();
        write(&mut *self.store.writer().unwrap(), &pages).unwrap();
    }

    fn read(&self, id: PageId) -> Result<AlignedBuffer> {
        let mut buffer = AlignedBuffer::zeroed(PAGE);
        self.store.read(id, &mut buffer).map(|()| buffer)
    }

    /// What is known of a page.
    fn known(&self, id: PageId) -> u64 {
        self.map().newer_than(id, Lsn(0)).map_or(0, |lsn| lsn.0)
    }

    /// The disk has an older version of the page.
    fn put_old(&self, id: PageId, lsn: u64) {
        let mut old = page(id, lsn);
        stamp_checksum(&mut old);
        let path = self.spaces.path(id.space);
        let at = u64::from(id.page.0) * PAGE as u64;
        self.vfs.write_raw(&path, at, &old).unwrap();
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counters.get(counter)
    }

    fn map_path(&self) -> std::path::PathBuf {
        Path::new(DIRECTORY).join(PAGE_LSN_MAP_FILE)
    }
}

#[test]
fn an_older_version_is_an_error_that_names_everything() {
    let rig = Rig::new(Doublewrite::Off);
    rig.write(&[(id(1, 7), 50)]);
    rig.put_old(id(1, 7), 40);
    let error = rig.read(id(1, 7)).unwrap_err().to_string();
    for part in ["t00000001.ink", "page 1:7", "byte 16", "LSN 40", "LSN 50"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    // Also to a later process, once a checkpoint has settled it.
    rig.map().settle_before(ALL).unwrap();
    let again = rig.reopen(1, 100);
    assert!(matches!(again.read(id(1, 7)), Err(Error::Corrupt { .. })));
    assert_eq!(again.count(Counter::StalePagesFound), 1);
    rig.put_old(id(1, 7), 50);
    assert!(is_page(&again.read(id(1, 7)).unwrap(), id(1, 7), 50));
}

#[test]
fn a_second_look_or_the_copy_replaces_it() {
    let rig = Rig::new(Doublewrite::On);
    rig.write(&[(id(1, 7), 40)]);
    rig.write(&[(id(1, 7), 50)]);
    let rule = FaultRule {
        kind: Some(OpKind::Read),
        path_contains: "t00000001".to_owned(),
        nth: 1,
        times: 1,
        fault: Fault::Stale,
    };
    rig.vfs.fail(rule);
    assert!(is_page(&rig.read(id(1, 7)).unwrap(), id(1, 7), 50));
    assert_eq!(rig.count(Counter::StalePagesReplaced), 1);
    rig.put_old(id(1, 7), 40);
    assert!(is_page(&rig.read(id(1, 7)).unwrap(), id(1, 7), 50));
    assert_eq!(rig.count(Counter::StalePagesReplaced), 2);
    // The copy is in place now.
    rig.read(id(1, 7)).unwrap();
    assert_eq!(rig.count(Counter::StalePagesFound), 2);
}

#[test]
fn redo_believes_what_it_makes_up_for_and_only_that() {
    let rig = Rig::new(Doublewrite::Off);
    let map = rig.map();
    // A write below the checkpoint, and one that brings changes from 60 on.
    map.note(id(1, 3), Lsn(10), Lsn(50));
    map.note(id(1, 3), Lsn(60), Lsn(80));
    map.settle_before(Lsn(60)).unwrap();
    assert_eq!(rig.known(id(1, 3)), 80);
    let again = rig.reopen(1, 100);
    assert_eq!(again.known(id(1, 3)), 50);
    // A page at or above the checkpoint is brought forward, whatever is settled.
    again.map().note(id(1, 3), Lsn(60), Lsn(80));
    again.map().settle_before(ALL).unwrap();
    let rig = Rig::bare(&again.vfs.kill(), Doublewrite::Off);
    let map = rig.map();
    map.open(UUID, 2, Lsn(60), None).unwrap();
    assert_eq!(map.newer_than(id(1, 3), Lsn(60)), None);
    assert_eq!(map.newer_than(id(1, 3), Lsn(59)), Some(Lsn(80)));
    // What redo has read may not be older later.
    map.note_read(id(1, 4), Lsn(59));
    map.note_read(id(1, 4), Lsn(70));
    // But redo itself may build a page anew from an older initialisation.
    map.note_read(id(1, 6), Lsn(70));
    map.note(id(1, 6), Lsn(60), Lsn(65));
    assert_eq!(map.newer_than(id(1, 6), Lsn(65)), None);
    assert_eq!(map.newer_than(id(1, 6), Lsn(64)), Some(Lsn(65)));
    map.redo_done(Lsn(100), None).unwrap();
    assert_eq!(map.newer_than(id(1, 3), Lsn(60)), Some(Lsn(80)));
    assert_eq!(map.newer_than(id(1, 4), Lsn(69)), Some(Lsn(70)));
    map.note_read(id(1, 5), Lsn(70));
    assert_eq!(map.newer_than(id(1, 5), Lsn(0)), None);
    // What redo wrote older than it was settled is settled so.
    map.note(id(1, 3), Lsn(60), Lsn(65));
    map.settle_before(Lsn(75)).unwrap();
    assert_eq!(rig.reopen(3, 100).known(id(1, 3)), 65);
}

#[test]
fn a_map_of_another_history_is_begun_anew() {
    let known = |epoch, log_end| {
        let rig = Rig::new(Doublewrite::Off);
        rig.map().note(id(1, 3), Lsn(10), Lsn(50));
        rig.map().settle_before(ALL).unwrap();
        rig.reopen(epoch, log_end).known(id(1, 3))
    };
    assert_eq!(known(1, 50), 50);
    // The log ends before what it says.
    assert_eq!(known(1, 49), 0);
    // The control file is older, or the database was opened without it.
    assert_eq!(known(0, 50), 50);
    assert_eq!(known(3, 50), 0);
}

#[test]
fn a_damaged_index_is_read_from_the_blocks() {
    let rig = Rig::new(Doublewrite::Off);
    rig.map().note(id(1, 3), Lsn(10), Lsn(50));
    rig.map().settle_before(ALL).unwrap();
    rig.vfs.flip_bit(&rig.map_path(), 4096 + 20, 3).unwrap();
    let again = rig.reopen(1, 100);
    assert_eq!(again.known(id(1, 3)), 50);
    assert_eq!(again.count(Counter::PageLsnMapFailures), 1);
}

#[test]
fn damage_finds_less_and_never_more() {
    let rig = Rig::new(Doublewrite::Off);
    rig.map().note(id(1, 3), Lsn(10), Lsn(50));
    rig.map().settle_before(ALL).unwrap();
    let length = rig.vfs.read_raw(&rig.map_path()).unwrap().len() as u64;
    for at in (0..length).step_by(SECTOR_LEN) {
        let vfs = rig.vfs.crash(0);
        vfs.write_raw(&rig.map_path(), at, &[0xaa; SECTOR_LEN])
            .unwrap();
        let again = Rig::bare(&vfs, Doublewrite::Off);
        let map = again.map();
        map.open(UUID, 1, Lsn(0), Some(Lsn(100))).unwrap();
        map.redo_done(Lsn(100), None).unwrap();
        assert!([0, 50].contains(&again.known(id(1, 3))), "damage at {at}");
        for n in (0..40).filter(|&n| n != 3) {
            assert_eq!(again.known(id(1, n)), 0);
        }
        map.note(id(1, 3), Lsn(60), Lsn(70));
        map.settle_before(ALL).unwrap();
        assert_eq!(again.known(id(1, 3)), 70);
    }
}

#[test]
fn slots_go_from_dropped_tablespaces_to_others() {
    let rig = Rig::new(Doublewrite::Off);
    rig.map().note(id(1, 3), Lsn(10), Lsn(50));
    rig.map().settle_before(ALL).unwrap();
    rig.spaces.remove(SpaceId(1)).unwrap();
    assert_eq!(rig.known(id(1, 3)), 0);
    // A writer that was late.
    rig.map().note(id(1, 3), Lsn(10), Lsn(55));
    rig.spaces
        .create(SpaceId(2), 40, Placement::InPlace)
        .unwrap();
    rig.map().note(id(2, 4), Lsn(20), Lsn(60));
    rig.map().settle_before(ALL).unwrap();
    assert_eq!(rig.count(Counter::PageLsnMapFailures), 0);
    let again = rig.reopen(1, 100);
    assert_eq!((again.known(id(1, 3)), again.known(id(2, 3))), (0, 0));
    assert_eq!(again.known(id(2, 4)), 60);
    again.map().retain(&[SpaceId(1)]);
    assert_eq!(again.known(id(2, 4)), 0);
}

#[test]
fn many_pages_take_many_groups() {
    let rig = Rig::new(Doublewrite::Off);
    let far = |n: u32| id(1, n * BLOCK_ENTRIES as u32 * 3 + n % 400);
    rig.map().reserve(SpaceId(1), 0..far(400).page.0 + 1);
    for n in 0..400 {
        rig.map().note(far(n), Lsn(1), Lsn(u64::from(1000 + n)));
    }
    rig.map().settle_before(ALL).unwrap();
    let again = rig.reopen(1, 10_000);
    for n in 0..400 {
        assert_eq!(again.known(far(n)), u64::from(1000 + n));
        let next = id(1, far(n).page.0 + 1);
        assert_eq!(again.known(next), 0);
    }
    let read = again.count(Counter::PageLsnMapBlocksRead);
    assert!(read >= 400, "{read} blocks read: the cache is bounded");
}

/// A file that was cut short, anywhere, gets its blocks back when tablespaces grow.
#[test]
fn a_map_that_was_cut_short_grows() {
    let rig = Rig::new(Doublewrite::Off);
    rig.map().note(id(1, 3), Lsn(10), Lsn(50));
    rig.map().settle_before(ALL).unwrap();
    let length = rig.vfs.read_raw(&rig.map_path()).unwrap().len() as u64;
    for cut in (0..length).step_by(SECTOR_LEN / 2 - 1) {
        let vfs = rig.vfs.crash(0);
        vfs.truncate_raw(&rig.map_path(), cut).unwrap();
        let again = Rig::bare(&vfs, Doublewrite::Off);
        let map = again.map();
        map.open(UUID, 1, Lsn(0), Some(Lsn(100))).unwrap();
        map.redo_done(Lsn(100), None).unwrap();
        let more = 40 + BLOCK_ENTRIES as u32;
        let file = again.spaces.open(SpaceId(1)).unwrap();
        file.ensure_pages(more).unwrap();
        map.note(id(1, 3), Lsn(60), Lsn(70));
        map.note(id(1, more - 1), Lsn(60), Lsn(80));
        map.settle_before(ALL).unwrap();
        let known = [again.known(id(1, 3)), again.known(id(1, more - 1))];
        assert_eq!(known, [70, 80], "cut to {cut} of {length} bytes");
    }
}

#[test]
fn a_full_disk_stops_growth_and_nothing_else() {
    let rig = Rig::new(Doublewrite::Off);
    rig.map().note(id(1, 3), Lsn(10), Lsn(50));
    rig.vfs.set_capacity_bytes(0);
    let more = 100 * BLOCK_ENTRIES as u32;
    let file = rig.spaces.open(SpaceId(1)).unwrap();
    assert!(matches!(
        file.ensure_pages(more),
        Err(Error::DiskFull { .. })
    ));
    assert_eq!(file.pages(), 40);
    rig.map().settle_before(ALL).unwrap();
    assert_eq!(rig.reopen(1, 100).known(id(1, 3)), 50);
}

#[test]
fn a_map_that_cannot_be_written_stops_nothing_and_is_written_later() {
    let rig = Rig::new(Doublewrite::Off);
    rig.map().note(id(1, 3), Lsn(10), Lsn(50));
    rig.vfs.fail(FaultRule {
        kind: Some(OpKind::Write),
        path_contains: PAGE_LSN_MAP_FILE.to_owned(),
        nth: 2,
        times: 1,
        fault: Fault::Eio,
    });
    rig.map().settle_before(ALL).unwrap();
    assert_eq!(rig.count(Counter::PageLsnMapFailures), 1);
    assert_eq!(rig.known(id(1, 3)), 50);
    rig.map().settle_before(ALL).unwrap();
    assert_eq!(rig.reopen(1, 100).known(id(1, 3)), 50);
}

#[test]
fn notes_are_bounded() {
    let rig = Rig::new(Doublewrite::Off);
    let map = rig.map();
    for n in 0..3 * map.notes_max as u32 {
        let (page, lsn) = (id(1, n % 19_000), u64::from(2000 + n));
        map.note(page, Lsn(lsn - 1), Lsn(lsn));
        map.bound_notes();
        assert!(map.notes.count() <= map.notes_max);
    }
    assert_eq!(rig.count(Counter::PageLsnMapFailures), 0);
    // What was settled before its time is durable with the next checkpoint.
    map.settle_before(Lsn(0)).unwrap();
    assert_eq!(rig.reopen(1, 100_000).known(id(1, 5)), 2005);
}

#[test]
fn an_index_entry_for_two_slots_counts_once() {
    let rig = Rig::new(Doublewrite::Off);
    rig.map().note(id(1, 3), Lsn(10), Lsn(50));
    rig.map().settle_before(ALL).unwrap();
    let mut entries = [0; BLOCK_ENTRIES];
    entries[..2].fill(index_entry(SpaceId(1), 0));
    let mut block = vec![0; BLOCK_LEN];
    let subject = inkstone_format::page_lsn_map::Subject::Slots(0);
    inkstone_format::page_lsn_map::encode_block(&UUID, subject, &entries, &mut block);
    rig.vfs.write_raw(&rig.map_path(), 4096, &block).unwrap();
    let again = rig.reopen(1, 100);
    assert_eq!(again.known(id(1, 3)), 50);
    again
        .spaces
        .create(SpaceId(2), 10, Placement::InPlace)
        .unwrap();
    again.map().note(id(2, 0), Lsn(60), Lsn(70));
    again.map().settle_before(ALL).unwrap();
    assert_eq!(again.known(id(1, 3)), 50);
}

/// A thousand tablespaces of one run each, a page of each noted.
fn thousand() -> Rig {
    let rig = Rig::new(Doublewrite::Off);
    for space in 2..1002 {
        rig.map().reserve(SpaceId(space), 0..40);
        rig.map().note(id(space, 3), Lsn(1), Lsn(100));
    }
    rig
}

/// A tablespace of six hundred runs, a page of each noted; between its runs others have grown.
fn large() -> Rig {
    let rig = Rig::new(Doublewrite::Off);
    for run in 0..600 {
        let page = run * BLOCK_ENTRIES as u32;
        rig.map().reserve(SpaceId(2), page..page + 1);
        rig.map().note(id(2, page + 7), Lsn(1), Lsn(100));
        if run % 3 == 0 {
            rig.map().reserve(SpaceId(3), page..page + 1);
            rig.map().note(id(3, page + 7), Lsn(1), Lsn(100));
        }
    }
    rig
}

/// Operations on the file that a checkpoint takes, which notes a page of each run; that reading all
/// those pages takes after the next opening, in their order; and a checkpoint that notes them
/// again.
fn operations(rig: &Rig, pages: &[PageId]) -> [u64; 4] {
    let calls = |rig: &Rig| {
        let calls = [Counter::PageLsnMapReadCalls, Counter::PageLsnMapWriteCalls];
        calls.map(|counter| rig.count(counter))
    };
    let before = calls(rig)[1];
    rig.map().settle_before(ALL).unwrap();
    let first = calls(rig)[1] - before;
    let again = rig.reopen(1, 10_000);
    assert!(pages.iter().all(|&page| again.known(page) == 100));
    let reads = calls(&again)[0];
    let again = again.reopen(2, 10_000);
    let noted = |&page: &PageId| again.map().note(page, Lsn(101), Lsn(200));
    pages.iter().for_each(noted);
    let before = calls(&again);
    again.map().settle_before(ALL).unwrap();
    let after = calls(&again);
    let later = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(again.count(Counter::PageLsnMapFailures), 0);
    [first, reads, later[0], later[1]]
}

/// Before: 1,002 reads of pages, one for each table.
#[test]
fn a_thousand_tables_take_few_operations() {
    let pages: Vec<_> = (2..1002).map(|space| id(space, 3)).collect();
    let [first, reads, later_reads, later_writes] = operations(&thousand(), &pages);
    eprintln!("{first} {reads} {later_reads} {later_writes}");
    assert!(first <= 25 && reads <= 150, "{first}, {reads}");
    let later = (later_reads, later_writes);
    assert!(later_reads <= 25 && later_writes <= 25, "{later:?}");
}

/// Before: 412 writes at the first checkpoint, 802 reads of pages.
#[test]
fn runs_of_two_large_tables_take_few_operations() {
    let own = |space, step| (0..600).step_by(step).map(move |run| (space, run));
    let pages: Vec<_> = (own(2, 1).chain(own(3, 3)))
        .map(|(space, run)| id(space, run * BLOCK_ENTRIES as u32 + 7))
        .collect();
    let [first, reads, later_reads, later_writes] = operations(&large(), &pages);
    eprintln!("{first} {reads} {later_reads} {later_writes}");
    assert!(first <= 20 && reads <= 250, "{first}, {reads}");
    let later = (later_reads, later_writes);
    assert!(later_reads <= 20 && later_writes <= 20, "{later:?}");
}
