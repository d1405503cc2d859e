use super::saved::{RebuiltSegments, Saved};
use super::spill::SPILL_FILE;
use super::test_vfs::MemVfs;
use crate::poison::Poison;
use inkstone_format::record::UndoList;
use inkstone_io::Directory as _;
#[cfg(inkstone_shuttle)]
mod races;

use super::*;
use crate::mvcc::system::{Snapshot, TrxStatus, TrxSystem};
use crate::sync::Instant;
use crate::sync::atomic::AtomicBool;
use inkstone_format::{SpaceId, TreeId, TrxId};
use proptest::prelude::*;
use std::collections::HashMap;
use std::thread;
use std::time::Duration;

const NONE: VersionAddress = VersionAddress(0);
struct Fixture {
    vfs: Arc<MemVfs>,
    system: TrxSystem,
    counters: Arc<Counters>,
    store: VersionStore,
}

fn fixture(budget: u64) -> Fixture {
    let vfs = MemVfs::new();
    let counters = Arc::new(Counters::default());
    let store = VersionStore::open(vfs.clone(), budget, 1, counters.clone());
    Fixture {
        vfs,
        system: TrxSystem::new(TrxId(1)),
        counters,
        store: store.unwrap(),
    }
}

/// A transaction with what it must keep.
struct Trx {
    state: Arc<TrxState>,
    touched: TouchedSegments,
    last: VersionAddress,
}

impl Fixture {
    fn begin(&self) -> Trx {
        Trx {
            state: self.system.begin(self.system.next_trx_id()),
            touched: TouchedSegments::default(),
            last: NONE,
        }
    }

    fn update(
        &self,
        trx: &mut Trx,
        key: &[u8],
        old_value: &[u8],
        previous: VersionAddress,
    ) -> Result<VersionAddress> {
        let version = NewVersion {
            kind: VersionKind::Update,
            flags: 0,
            space: SpaceId(7),
            tree: TreeId(2),
            key,
            old_flags: 5,
            old_value,
            previous,
            undo_previous: trx.last,
        };
        trx.last = self.store.append(&trx.state, &mut trx.touched, version)?;
        Ok(trx.last)
    }

    fn commit(&self, trx: Trx) -> u64 {
        let seq = self.system.finish_commit(&trx.state);
        self.store.finish(trx.touched, seq);
        seq
    }

    fn abort(&self, trx: Trx) -> u64 {
        let seq = self.system.finish_abort(&trx.state);
        self.store.finish(trx.touched, seq);
        seq
    }

    fn retire(&self) -> usize {
        let oldest = self.system.oldest_snapshot();
        self.store
            .retire(oldest, Lsn(0), &mut |_, _| Ok(()))
            .unwrap()
    }

    fn spill_length(&self) -> Option<usize> {
        let file = self.vfs.file(SPILL_FILE)?;
        let length = file.bytes.read().len();
        Some(length)
    }

    /// Seals and retires what can be; then nothing may be left.
    fn expect_empty(&self) {
        self.store.seal_idle();
        self.store.seal_idle();
        self.retire();
        assert_eq!(self.store.stats(), VersionStats::default());
        assert!(self.spill_length().is_none_or(|length| length == 0));
        self.store.spill.lock().check_invariants();
    }
}

#[test]
fn an_entry_reads_as_it_was_written() {
    let f = fixture(64 << 20);
    let mut trx = f.begin();
    let version = NewVersion {
        kind: VersionKind::Unmark,
        flags: 0x82,
        space: SpaceId(u32::MAX),
        tree: TreeId(9),
        key: b"the key",
        old_flags: 0xfe,
        old_value: b"what it was",
        previous: VersionAddress(u64::MAX - 1),
        undo_previous: VersionAddress(77),
    };
    let address = f
        .store
        .append(&trx.state, &mut trx.touched, version)
        .unwrap();
    let check = |entry: VersionRef| {
        let view = entry.view();
        assert_eq!(format!("{:?}", view.kind), "Unmark");
        assert_eq!((view.flags, view.old_flags), (0x82, 0xfe));
        assert_eq!((view.space, view.tree), (version.space, version.tree));
        assert_eq!(
            (view.key, view.kept_value),
            (version.key, version.old_value)
        );
        assert_eq!(view.previous, version.previous);
        assert_eq!(view.undo_previous, version.undo_previous);
        assert_eq!(view.trx.id(), trx.state.id());
    };
    check(f.store.read(address).unwrap().unwrap());
    f.store.seal_idle();
    assert_eq!(f.store.seal_idle(), 1);
    assert_eq!(f.store.seal_idle(), 0);
    let kept = f.store.read(address).unwrap().unwrap();
    let id = trx.state.id();
    f.commit(trx);
    assert!(f.store.is_live(address));
    assert_eq!(f.store.trx_of(address, 0).unwrap().unwrap().id(), id);
    f.expect_empty();
    assert!(!f.store.is_live(address) && f.store.trx_of(address, 0).unwrap().is_none());
    assert!(f.store.read(address).unwrap().is_none());
    assert_eq!(kept.view().key, b"the key", "what is held stays readable");
    assert_eq!(f.spill_length(), None, "the file is created when needed");
}

/// A segment may be sealed before anything was appended to it.
#[test]
fn an_extent_of_no_bytes_is_one() {
    let f = fixture(64 << 20);
    let mut file = f.store.spill.lock();
    let (_, empty) = file.write(&[]).unwrap();
    let (_, other) = file.write(&[7; 100]).unwrap();
    assert_ne!(empty.offset, other.offset);
    assert!(file.shorten(empty, 0).length > 0);
    file.release(empty);
    file.release(other);
    file.check_invariants();
    assert_eq!(file.used_bytes(), 0);
}

#[test]
fn addresses_that_were_never_given_out() {
    let f = fixture(1 << 20);
    let mut trx = f.begin();
    let address = f.update(&mut trx, b"key", &[1; 200], NONE).unwrap();
    for wrong in [0, 1, address.0 >> 1, address.0 + (1 << UNIT_BITS), u64::MAX] {
        assert!(!f.store.is_live(VersionAddress(wrong)));
        assert!(f.store.read(VersionAddress(wrong)).unwrap().is_none());
    }
    let inside = VersionAddress(address.0 + 1);
    let beyond = VersionAddress(address.0 + 300);
    for spilled in [false, true] {
        if spilled {
            f.store.seal_idle();
            f.store.seal_idle();
            let first = f.store.sealed.lock().in_memory.pop_first().unwrap().1;
            let mut file = f.store.spill.lock();
            f.store.spill_segment(&first, &mut file).unwrap();
        }
        assert!(f.store.trx_of(inside, 0).is_err() && f.store.trx_of(beyond, 0).is_err());
        assert!(matches!(f.store.read(inside), Err(Error::Corrupt { .. })));
        assert!(f.store.read(beyond).is_err());
        assert!(f.store.read(address).unwrap().is_some());
    }
    f.commit(trx);
    f.expect_empty();
}

/// 200,000 versions, each of a transaction of its own, under one snapshot. 30 bytes of memory and
/// more stayed for each, and every write looked for something to spill.
#[test]
fn spilled_versions_keep_no_memory() {
    let f = fixture(1 << 20);
    let snapshot = f.system.snapshot();
    let mut addresses = Vec::new();
    let mut waiting = None;
    for n in 0..200_000u32 {
        let mut trx = f.begin();
        let address = f.update(&mut trx, &n.to_be_bytes(), &[3; 20], NONE);
        addresses.push((address.unwrap(), trx.state.id()));
        if n == 100_000 {
            // Its segment is spilled before it ends.
            waiting = Some(trx);
        } else if n % 7 == 0 {
            f.abort(trx);
        } else {
            f.commit(trx);
        }
        if n % 100 == 0 {
            f.store.make_room().unwrap();
        }
    }
    let stats = f.store.stats();
    assert!(stats.spilled_bytes > 16 << 20, "{stats:?}");
    let kept = stats.memory_bytes.saturating_sub(5 << 18);
    assert!(kept * 20 < stats.spilled_bytes, "{stats:?}");
    assert!(f.store.in_memory() <= 5 << 18, "{stats:?}");
    let owner = |n: usize| f.store.trx_of(addresses[n].0, 0).unwrap().unwrap();
    for n in (0..addresses.len()).step_by(997).chain([100_000, 0]) {
        let (address, id) = addresses[n];
        let entry = f.store.read(address).unwrap().unwrap();
        assert_eq!(entry.view().key, (n as u32).to_be_bytes());
        assert_eq!((entry.view().trx.id(), owner(n).id()), (id, id));
        let status = match n {
            100_000 => TrxStatus::Active,
            n if n % 7 == 0 => TrxStatus::Aborted,
            _ => owner(n).status(),
        };
        assert_eq!(entry.view().trx.status(), status);
        let is_settled = f.store.trx_of(address, u64::MAX).unwrap().is_none();
        let beside = address.segment() == addresses[100_000].0.segment();
        assert_eq!(is_settled, !beside, "version {n}");
    }
    f.commit(waiting.unwrap());
    assert!(owner(100_000).is_ended());
    drop(snapshot);
    f.expect_empty();
}

#[test]
fn epochs_do_not_share_addresses() {
    let vfs = MemVfs::new();
    let open = |epoch| {
        let counters = Arc::new(Counters::default());
        VersionStore::open(vfs.clone(), 1 << 20, epoch, counters)
    };
    assert!(open(0).is_err() && open(EPOCH_LIMIT).is_err());
    let system = TrxSystem::new(TrxId(1));
    let mut last = NONE;
    for epoch in [1, 2, EPOCH_LIMIT - 1] {
        let options = inkstone_io::OpenOptions {
            create: inkstone_io::Create::IfMissing,
            read_only: false,
            direct: false,
            dsync: false,
        };
        vfs.open(SPILL_FILE, options).unwrap();
        let store = open(epoch).unwrap();
        assert!(
            vfs.file(SPILL_FILE).is_none(),
            "a crash's leftover is removed"
        );
        assert_eq!(store.highest_epoch(), epoch);
        let trx = system.begin(system.next_trx_id());
        let mut touched = TouchedSegments::default();
        let version = NewVersion {
            kind: VersionKind::Insert,
            flags: NO_PURGE,
            space: SpaceId(0),
            tree: TreeId(0),
            key: b"k",
            old_flags: 0,
            old_value: b"",
            previous: last,
            undo_previous: NONE,
        };
        let address = store.append(&trx, &mut touched, version).unwrap();
        assert!(address > last && !store.is_live(last) && store.read(last).unwrap().is_none());
        last = address;
        store.directory.write().next_number = ((u64::from(epoch) + 1) << SEGMENT_BITS) - 10;
        assert_eq!(store.highest_epoch(), epoch + 1);
        store.finish(touched, system.finish_commit(&trx));
    }
}

#[test]
fn retiring_waits_for_snapshots_and_writers() {
    let f = fixture(1 << 20);
    let (mut a, mut b) = (f.begin(), f.begin());
    let first = f.update(&mut a, b"1", b"x", NONE).unwrap();
    f.update(&mut b, b"2", b"y", NONE).unwrap();
    let before = f.system.snapshot();
    f.commit(a);
    let between = f.system.snapshot();
    f.store.seal_idle();
    f.store.seal_idle();
    drop(before);
    assert_eq!(f.retire(), 0, "b is open");
    f.abort(b);
    assert_eq!(f.retire(), 0, "a reader may have a copy of what b wrote");
    assert!(f.store.is_live(first));
    drop(between);
    let mut seen = Vec::new();
    let result = f
        .store
        .retire(f.system.oldest_snapshot(), Lsn(0), &mut |address, view| {
            assert!(f.store.is_live(address));
            assert_eq!(f.store.read(address)?.unwrap().view().key, view.key);
            seen.push((view.key.to_vec(), view.trx.status()));
            Err(Error::Deadlock)
        });
    assert!(
        result.is_err() && f.store.is_live(first),
        "purge will be asked again"
    );
    f.store
        .retire(f.system.oldest_snapshot(), Lsn(0), &mut |_, view| {
            seen.push((view.key.to_vec(), view.trx.status()));
            Ok(())
        })
        .unwrap();
    let expected = [
        (b"1".to_vec(), TrxStatus::Committed(1)),
        (b"1".to_vec(), TrxStatus::Committed(1)),
        (b"2".to_vec(), TrxStatus::Aborted),
    ];
    assert_eq!(seen, expected);
    f.expect_empty();
    assert_eq!(f.counters.get(Counter::VersionSegmentsRetired), 1);
}

#[test]
fn any_segment_may_retire_and_large_entries_stand_alone() {
    let f = fixture(1 << 20);
    let mut pinning = f.begin();
    let pinned = f.update(&mut pinning, b"pin", b"", NONE).unwrap();
    let big = vec![0xab; 3 << 20];
    let mut trx = f.begin();
    let large = f.update(&mut trx, b"large", &big, pinned).unwrap();
    let entry = f.store.read(large).unwrap().unwrap();
    assert_eq!(entry.view().kept_value, big);
    f.commit(trx);
    f.store.make_room().unwrap();
    assert!(f.store.stats().spilled_bytes > 3 << 20);
    assert!(f.store.stats().memory_bytes < 1 << 20);
    assert_eq!(f.store.read(large).unwrap().unwrap().view().kept_value, big);
    assert_eq!(f.retire(), 1);
    assert!(f.store.is_live(pinned) && !f.store.is_live(large));
    f.abort(pinning);
    f.expect_empty();
}

#[test]
fn rollback_walks_back_through_spilled_segments() {
    let f = fixture(1 << 20);
    let mut trx = f.begin();
    let mut addresses = Vec::new();
    for i in 0..30_000_u32 {
        f.store.make_room().unwrap();
        let key = i.to_be_bytes();
        addresses.push(f.update(&mut trx, &key, &[i as u8; 100], NONE).unwrap());
    }
    assert!(f.counters.get(Counter::VersionSegmentsSpilled) > 50);
    assert!(f.store.stats().memory_bytes <= 2 << 20);
    let savepoint = addresses[12_345];
    let mut walk = f.store.undo_entries(trx.last, savepoint);
    for i in (12_346..30_000_u32).rev() {
        let (address, entry) = walk.next().unwrap().unwrap();
        assert_eq!(address, addresses[i as usize]);
        let view = entry.view();
        assert_eq!(
            (view.key, view.kept_value),
            (&i.to_be_bytes()[..], &[i as u8; 100][..])
        );
        assert!(Arc::ptr_eq(view.trx, &trx.state));
    }
    assert!(walk.next().is_none());
    assert_eq!(f.store.undo_entries(savepoint, NONE).count(), 12_346);
    f.abort(trx);
    f.expect_empty();
}

#[test]
fn a_full_disk_fails_appenders_only() {
    let f = fixture(1 << 20);
    f.vfs.limit.store(300 << 10, Ordering::Relaxed);
    let mut trx = f.begin();
    let mut stored = Vec::new();
    let error = loop {
        let key = (stored.len() as u32).to_be_bytes();
        match f.update(&mut trx, &key, &[7; 500], NONE) {
            Ok(address) => stored.push(address),
            Err(error) => break error,
        }
        assert!(stored.len() < 10_000);
    };
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(matches!(f.store.make_room(), Err(Error::DiskFull { .. })));
    for (i, &address) in stored.iter().enumerate() {
        let entry = f.store.read(address).unwrap().unwrap();
        assert_eq!(entry.view().key, (i as u32).to_be_bytes());
    }
    f.store.spill.lock().check_invariants();
    f.abort(trx);
    f.store.seal_idle();
    f.store.seal_idle();
    f.retire();
    let mut trx = f.begin();
    f.update(&mut trx, b"k", &[7; 500], NONE).unwrap();
    f.commit(trx);
    f.expect_empty();
}

#[test]
fn damage_in_the_spill_file_is_found() {
    let f = fixture(1 << 20);
    let mut trx = f.begin();
    let large = f
        .update(&mut trx, b"large", &vec![1; 2 << 20], NONE)
        .unwrap();
    f.store.make_room().unwrap();
    let file = f.vfs.file(SPILL_FILE).unwrap();
    for at in [0, 6, 9, 15, 20, 41, 46, 48, 1 << 20] {
        file.bytes.write()[at] ^= 0x10;
        assert!(f.store.read(large).is_err(), "byte {at}");
        file.bytes.write()[at] ^= 0x10;
    }
    file.bytes.write()[1 << 20] ^= 1;
    f.commit(trx);
    let oldest = f.system.oldest_snapshot();
    let result = f.store.retire(oldest, Lsn(0), &mut |_, _| Ok(()));
    assert!(matches!(result, Err(Error::Corrupt { .. })));
    file.bytes.write()[1 << 20] ^= 1;
    f.expect_empty();
}

#[test]
fn nothing_to_purge_is_not_read_back() {
    let f = fixture(1 << 20);
    let mut trx = f.begin();
    for i in 0..20_000_u32 {
        let version = NewVersion {
            kind: VersionKind::Insert,
            flags: NO_PURGE,
            space: SpaceId(1),
            tree: TreeId(0),
            key: &i.to_be_bytes(),
            old_flags: 0,
            old_value: &[],
            previous: NONE,
            undo_previous: trx.last,
        };
        trx.last = f
            .store
            .append(&trx.state, &mut trx.touched, version)
            .unwrap();
        f.store.make_room().unwrap();
    }
    f.commit(trx);
    f.store.seal_idle();
    f.store.seal_idle();
    // Unreadable, but it need not be read.
    let file = f.vfs.file(SPILL_FILE).unwrap();
    file.bytes.write().clear();
    let oldest = f.system.oldest_snapshot();
    let retired = f.store.retire(oldest, Lsn(0), &mut |_, _| panic!("asked"));
    assert!(retired.unwrap() > 10);
    f.expect_empty();
}

#[derive(Clone, Debug)]
enum Step {
    Append { trx: usize, row: u8, length: usize },
    Commit(usize),
    Abort(usize),
    TakeSnapshot,
    DropSnapshot(usize),
    SealIdle,
    Retire,
    MakeRoom,
    DiskFull(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![8 => 0..400_usize, 4 => 400..2000_usize, 1 => 2000..200_000_usize];
    prop_oneof![
        30 => (0..4_usize, 0..8_u8, length)
            .prop_map(|(trx, row, length)| Step::Append { trx, row, length }),
        3 => (0..4_usize).prop_map(Step::Commit),
        1 => (0..4_usize).prop_map(Step::Abort),
        2 => Just(Step::TakeSnapshot),
        2 => (0..4_usize).prop_map(Step::DropSnapshot),
        2 => Just(Step::SealIdle),
        2 => Just(Step::Retire),
        2 => Just(Step::MakeRoom),
        1 => any::<bool>().prop_map(Step::DiskFull),
    ]
}

#[derive(Clone)]
struct ModelEntry {
    row: u8,
    length: usize,
    fill: u8,
    previous: VersionAddress,
    trx: Arc<TrxState>,
}

/// What is live is as it was written; what is dead is visible to all.
fn check_model(f: &Fixture, model: &HashMap<u64, ModelEntry>, snapshots: &[Snapshot]) {
    for (&address, expected) in model {
        let address = VersionAddress(address);
        let Some(entry) = f.store.read(address).unwrap() else {
            assert!(!f.store.is_live(address) && f.store.trx_of(address, 0).unwrap().is_none());
            let trx = &expected.trx;
            assert!(trx.is_ended(), "retired under {trx:?}");
            let hidden = snapshots.iter().find(|s| !trx.is_visible_at(s.seq()));
            let aborted = trx.status() == TrxStatus::Aborted;
            assert!(aborted || hidden.is_none(), "{hidden:?} needs {trx:?}");
            continue;
        };
        let view = entry.view();
        assert!(f.store.is_live(address));
        assert_eq!(view.key, [expected.row]);
        assert_eq!(view.previous, expected.previous);
        assert_eq!(view.kept_value.len(), expected.length);
        assert!(view.kept_value.iter().all(|&b| b == expected.fill));
        let trx = f.store.trx_of(address, 0).unwrap().unwrap();
        assert_eq!((trx.id(), view.trx.id()), (expected.trx.id(), trx.id()));
        assert_eq!(trx.status(), expected.trx.status());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn the_store_matches_a_model(steps in proptest::collection::vec(step(), 1..400)) {
        let f = fixture(512 << 10);
        let mut trx: Vec<Trx> = (0..4).map(|_| f.begin()).collect();
        let mut snapshots: Vec<Snapshot> = Vec::new();
        let mut model: HashMap<u64, ModelEntry> = HashMap::new();
        let mut newest = [NONE; 8];
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Append { trx: t, row, length } => {
                    let (fill, previous) = (number as u8, newest[usize::from(row)]);
                    match f.update(&mut trx[t], &[row], &vec![fill; length], previous) {
                        Ok(address) => {
                            newest[usize::from(row)] = address;
                            let trx = trx[t].state.clone();
                            let entry = ModelEntry { row, length, fill, previous, trx };
                            let other = model.insert(address.0, entry);
                            prop_assert!(other.is_none(), "address given twice");
                        }
                        Err(error) => assert!(matches!(error, Error::DiskFull { .. })),
                    }
                }
                Step::Commit(t) => {
                    f.commit(std::mem::replace(&mut trx[t], f.begin()));
                }
                Step::Abort(t) => {
                    f.abort(std::mem::replace(&mut trx[t], f.begin()));
                }
                Step::TakeSnapshot => snapshots.push(f.system.snapshot()),
                Step::DropSnapshot(i) if i < snapshots.len() => drop(snapshots.swap_remove(i)),
                Step::DropSnapshot(_) => {}
                Step::SealIdle => drop(f.store.seal_idle()),
                Step::Retire => drop(f.retire()),
                Step::MakeRoom => match f.store.make_room() {
                    Ok(()) => {}
                    Err(error) => assert!(matches!(error, Error::DiskFull { .. })),
                },
                Step::DiskFull(full) => {
                    f.vfs.limit.store(if full { 0 } else { u64::MAX }, Ordering::Relaxed);
                }
            }
            if number % 16 == 0 {
                check_model(&f, &model, &snapshots);
                f.store.spill.lock().check_invariants();
            }
        }
        check_model(&f, &model, &snapshots);
        for (i, trx) in trx.into_iter().enumerate() {
            if i % 2 == 0 { f.commit(trx) } else { f.abort(trx) };
        }
        snapshots.clear();
        f.expect_empty();
        check_model(&f, &model, &snapshots);
    }
}

/// Rows as cells of a page: value and version address; the mutex is the leaf's latch.
type Cells = Vec<Mutex<(i64, VersionAddress)>>;

impl Fixture {
    /// What a snapshot sees of a row, from a copy of its cell.
    fn visible(&self, cell: (i64, VersionAddress), snapshot: &Snapshot) -> i64 {
        let (mut value, mut address) = cell;
        while let Some(trx) = self.store.trx_of(address, 0).unwrap() {
            if snapshot.sees(TrxId(u64::MAX), &trx) {
                break;
            }
            let entry = self.store.read(address).unwrap();
            let entry = entry.expect("a version was lost that a snapshot needs");
            value = i64::from_le_bytes(entry.view().kept_value[..8].try_into().unwrap());
            address = entry.view().previous;
        }
        value
    }

    /// Adds to a row if no other transaction has an uncommitted change there.
    fn add(&self, trx: &mut Trx, cells: &Cells, row: usize, amount: i64, padding: usize) -> bool {
        if self.store.make_room().is_err() {
            return false;
        }
        let mut cell = cells[row].lock();
        let owner = self.store.trx_of(cell.1, 0).unwrap();
        if owner.is_some_and(|o| o.id() != trx.state.id() && !o.is_ended()) {
            return false;
        }
        let mut old = cell.0.to_le_bytes().to_vec();
        old.resize(8 + padding, 0);
        match self.update(trx, &[row as u8], &old, cell.1) {
            Ok(address) => *cell = (cell.0 + amount, address),
            Err(_) => return false,
        }
        true
    }

    fn roll_back(&self, trx: Trx, cells: &Cells) {
        for entry in self.store.undo_entries(trx.last, NONE) {
            let (address, entry) = entry.unwrap();
            let view = entry.view();
            let mut cell = cells[usize::from(view.key[0])].lock();
            assert_eq!(cell.1, address);
            cell.0 = i64::from_le_bytes(view.kept_value[..8].try_into().unwrap());
            cell.1 = view.previous;
        }
        self.abort(trx);
    }
}

fn transfer_forever(f: &Fixture, cells: &Cells, seed: u64, stop: &AtomicBool) {
    let mut x = seed;
    while !stop.load(Ordering::Relaxed) {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let n = cells.len();
        let (from, to) = ((x >> 33) as usize % n, (x >> 43) as usize % n);
        let padding = if x >> 58 == 0 {
            9000
        } else {
            (x >> 50 & 127) as usize
        };
        let mut trx = f.begin();
        let amount = (x >> 60) as i64;
        let done = f.add(&mut trx, cells, from, -amount, padding)
            && f.add(&mut trx, cells, to, amount, padding);
        if done && x >> 28 & 7 != 0 {
            f.commit(trx);
        } else {
            f.roll_back(trx, cells);
        }
    }
}

#[test]
fn snapshots_see_whole_transfers_while_segments_spill_and_retire() {
    let f = fixture(256 << 10);
    let cells: Cells = (0..16).map(|_| Mutex::new((100, NONE))).collect();
    let stop = AtomicBool::new(false);
    let checked = AtomicU64::new(0);
    crate::sync::test_scope(|scope| {
        for seed in 1..=3 {
            let (f, cells, stop) = (&f, &cells, &stop);
            scope.spawn(move || transfer_forever(f, cells, seed, stop));
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                f.store.seal_idle();
                f.retire();
                thread::sleep(Duration::from_millis(2));
            }
        });
        for hold_ms in [0, 40] {
            let (f, cells, stop, checked) = (&f, &cells, &stop, &checked);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = f.system.snapshot();
                    // Copies of the cells, resolved later: they may be out of date by then.
                    let copies: Vec<_> = cells.iter().map(|c| *c.lock()).collect();
                    thread::sleep(Duration::from_millis(hold_ms));
                    let sum = |cells: &mut dyn Iterator<Item = (i64, VersionAddress)>| {
                        cells.map(|c| f.visible(c, &snapshot)).sum::<i64>()
                    };
                    assert_eq!(sum(&mut copies.iter().copied()), 1600);
                    assert_eq!(sum(&mut cells.iter().map(|c| *c.lock())), 1600);
                    checked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            // The disk is full for a moment now and then.
            thread::sleep(Duration::from_millis(95));
            f.vfs.limit.store(0, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(5));
            f.vfs.limit.store(u64::MAX, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(checked.into_inner() > 50);
    assert!(f.counters.get(Counter::VersionSegmentsSpilled) > 10);
    assert!(f.counters.get(Counter::VersionSegmentsRetired) > 10);
    f.expect_empty();
    assert_eq!(cells.iter().map(|c| c.lock().0).sum::<i64>(), 1600);
}

impl Fixture {
    /// A transaction with logged versions of `count` updates, and their addresses.
    fn logged(&self, count: u64) -> (Trx, Vec<VersionAddress>) {
        let mut trx = self.begin();
        trx.touched.log_versions(true);
        let update = |n: u64| self.update(&mut trx, &n.to_be_bytes(), b"before", NONE);
        let addresses: Result<Vec<_>> = (0..count).map(update).collect();
        (trx, addresses.unwrap())
    }

    /// Saves its undo, and has the log, up to `end`, name that.
    fn save(&self, trx: &mut Trx, end: u64) -> UndoList {
        let sealed = self.store.seal_logged(&mut trx.touched, 0);
        let saved = self.store.save(&sealed, &Poison::default());
        let saved = saved.unwrap().unwrap();
        let touched = &mut trx.touched;
        self.store.list_named(touched, sealed, saved, Lsn(end));
        saved.list
    }
}

#[test]
fn a_saved_segment_is_read_by_a_later_store() {
    let f = fixture(64 << 10);
    let (mut trx, addresses) = f.logged(4000);
    assert!(addresses.iter().all(|address| address.is_logged()));
    let list = f.save(&mut trx, 1);
    let counters = Arc::new(Counters::default());
    let later = VersionStore::open(f.vfs.clone(), 64 << 10, 2, counters).unwrap();
    assert!(!later.is_live(addresses[0]), "nothing was taken over yet");
    let saved = later.adopt_saved(&[UndoList::default(), list], false);
    let saved = saved.unwrap();
    assert_eq!(saved[0], Saved::default());
    assert_eq!(saved[1].list, list);
    let state = f.system.begin(f.system.next_trx_id());
    let touched = later
        .adopt(&state, &saved[1], RebuiltSegments::default())
        .unwrap();
    let (mut seen, mut undone) = (Vec::new(), 0);
    let mut show = |address, view: &VersionView<'_>| {
        assert_eq!(view.trx.id(), state.id());
        assert_eq!(view.kept_value, b"before");
        seen.push(address);
        Ok(())
    };
    while later
        .last_logged(&touched, undone, false, &mut show)
        .unwrap()
    {
        undone += 1;
    }
    assert!(undone > 1, "{undone} segments");
    seen.reverse();
    assert_eq!(seen, addresses);
    assert_eq!(
        later.trx_of(addresses[7], 0).unwrap().unwrap().id(),
        state.id()
    );
    // Its space is in use: what comes next goes elsewhere.
    let used = later.undo_file_bytes();
    let (mut other, _) = f.logged(1);
    // The later store has files of its own.
    other.touched.segments[0].0.take_room();
    let sealed = f.store.seal_logged(&mut other.touched, 0);
    later.save(&sealed, &Poison::default()).unwrap();
    assert!(later.undo_file_bytes() > used);
    later.finish(touched, f.system.finish_abort(&state));
    f.store.finish(trx.touched, 1);
    f.store.finish(other.touched, 1);
}

#[test]
fn an_extent_is_kept_until_the_log_is_durable() {
    let f = fixture(1 << 20);
    let (mut trx, _) = f.logged(100);
    f.save(&mut trx, 400);
    let used = f.store.undo_file_bytes();
    f.save(&mut trx, 500);
    assert_eq!(f.store.undo_file_bytes(), used + 4096, "a list more");
    f.store.reclaim(Lsn(499));
    assert_eq!(f.store.undo_file_bytes(), used + 4096);
    let third = f.store.seal_logged(&mut trx.touched, 0);
    assert_eq!(third.after(), Lsn(500), "where the first list was");
    f.store.keep_room(&mut trx.touched, third);
    f.store.give_up_space(&mut trx.touched, Lsn(600));
    let seq = f.system.finish_commit(&trx.state);
    f.store.finish(trx.touched, seq);
    let oldest = f.system.oldest_snapshot();
    let retired = f.store.retire(oldest, Lsn(700), &mut |_, _| Ok(()));
    assert_eq!(retired.unwrap(), 1);
    f.store.reclaim(Lsn(599));
    assert_eq!(f.store.undo_file_bytes(), used + 4096);
    f.store.reclaim(Lsn(700));
    assert_eq!(f.store.undo_file_bytes(), 0);
}

/// A transaction that has reserved its space is saved again and again on a full disk, and has its
/// list written in two places by turns.
#[test]
fn what_was_reserved_is_saved_on_a_full_disk() {
    let f = fixture(1 << 20);
    let (mut trx, addresses) = f.logged(3000);
    f.store.reserve_undo(&mut trx.touched, 200_000).unwrap();
    let full = f.undo_bytes().len() as u64;
    f.vfs.limit.store(full, Ordering::Relaxed);
    let used = f.store.undo_file_bytes();
    for n in 1..4 {
        for key in 0..100u64 {
            f.update(&mut trx, &key.to_be_bytes(), b"before", NONE)
                .unwrap();
        }
        let list = f.save(&mut trx, n);
        let (seen, _) = f.found_later(list, false).unwrap();
        assert_eq!(seen.len() as u64, addresses.len() as u64 + 100 * n);
        assert!(f.store.undo_file_bytes() <= used);
    }
    let space = f.store.reserve_undo(&mut trx.touched, 1 << 20);
    assert!(matches!(space, Err(Error::DiskFull { .. })), "{space:?}");
    f.store.give_up_space(&mut trx.touched, Lsn(9));
    let seq = f.system.finish_commit(&trx.state);
    f.store.finish(trx.touched, seq);
}

/// It commits between the moment at which its segments were sealed and the write.
#[test]
fn a_transaction_may_end_while_it_is_being_saved() {
    let f = fixture(1 << 20);
    let (mut trx, _) = f.logged(100);
    let sealed = f.store.seal_logged(&mut trx.touched, 0);
    let seq = f.system.finish_commit(&trx.state);
    f.store.finish(trx.touched, seq);
    let oldest = f.system.oldest_snapshot();
    let retired = f.store.retire(oldest, Lsn(700), &mut |_, _| Ok(()));
    assert_eq!(retired.unwrap(), 1);
    let saved = f.store.save(&sealed, &Poison::default()).unwrap();
    assert!(saved.is_none());
    assert_eq!(f.store.undo_file_bytes(), 0);
}

impl Fixture {
    /// What a later store finds of a saved transaction: the addresses that it shows, newest first.
    fn found_later(&self, list: UndoList, lossy: bool) -> Result<(Vec<VersionAddress>, usize)> {
        let counters = Arc::new(Counters::default());
        let later = VersionStore::open(self.vfs.clone(), 64 << 10, 2, counters)?;
        let saved = later.adopt_saved(&[list], lossy)?;
        let state = self.system.begin(self.system.next_trx_id());
        let touched = later.adopt(&state, &saved[0], RebuiltSegments::default())?;
        let (mut seen, mut undone) = (Vec::new(), 0);
        let mut show = |address, _: &VersionView<'_>| {
            seen.push(address);
            Ok(())
        };
        let mut result = Ok(true);
        while let Ok(true) = result {
            result = later.last_logged(&touched, undone, lossy, &mut show);
            undone += 1;
        }
        later.finish(touched, self.system.finish_abort(&state));
        result.map(|_| (seen, later.lost_undo().len()))
    }

    fn undo_bytes(&self) -> Vec<u8> {
        self.vfs.file("undo").unwrap().bytes.read().clone()
    }

    fn set_undo_bytes(&self, bytes: &[u8]) {
        *self.vfs.file("undo").unwrap().bytes.write() = bytes.to_vec();
    }
}

/// Wherever a bit flips, a block becomes zeroes, or the file ends: an error that names the file and
/// a place in it; and where that is passed over, all versions but those that were hit.
#[test]
fn damage_of_saved_versions_is_found_and_passed_over() {
    let f = fixture(64 << 10);
    let (mut trx, mut addresses) = f.logged(600);
    addresses.reverse();
    let list = f.save(&mut trx, 1);
    let whole = f.undo_bytes();
    assert_eq!(f.found_later(list, false).unwrap(), (addresses.clone(), 0));
    let in_use = |at: usize| {
        let list = list.offset as usize..(list.offset + u64::from(list.bytes)) as usize;
        list.contains(&at) || (at < list.start && whole[at & !15..][..16] != [0; 16])
    };
    let mut damaged = Vec::new();
    for at in (0..whole.len()).step_by(97).filter(|at| in_use(*at)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        damaged.push((format!("bit flipped at {at}"), bytes, 1));
    }
    for at in (0..whole.len()).step_by(4096).filter(|at| in_use(*at)) {
        let mut bytes = whole.clone();
        bytes[at..][..4096.min(whole.len() - at)].fill(0);
        damaged.push((format!("zeroes at {at}"), bytes, 4096 / 64 + 2));
    }
    for length in (0..=list.offset as usize).step_by(4096) {
        damaged.push((format!("cut to {length}"), whole[..length].to_vec(), 600));
    }
    assert!(damaged.len() > 100, "{}", damaged.len());
    for (what, bytes, lost_max) in damaged {
        f.set_undo_bytes(&bytes);
        match f.found_later(list, false) {
            Err(Error::Corrupt { file, offset, .. }) => {
                assert!(file.ends_with("undo"), "{what}: {file:?}");
                assert!(offset < whole.len() as u64, "{what}: offset {offset}");
            }
            other => panic!("{what}: {other:?}"),
        }
        let (found, notes) = f.found_later(list, true).unwrap();
        assert!(notes > 0, "{what}");
        assert!(
            found.iter().all(|address| addresses.contains(address)),
            "{what}"
        );
        let has_list = bytes.get(list.offset as usize..) == whole.get(list.offset as usize..);
        let lost = addresses.len() - found.len();
        assert!(!has_list || lost <= lost_max, "{what}: {lost} lost");
    }
    f.vfs.remove("undo").unwrap();
    let missing = f.found_later(list, false).unwrap_err().to_string();
    assert!(missing.contains("the file is missing"), "{missing}");
    assert!(missing.contains("recover --salvage"), "{missing}");
    assert!(f.vfs.file("undo").is_none(), "it was made anew");
    assert_eq!(f.found_later(list, true).unwrap(), (Vec::new(), 1));
    f.store.finish(trx.touched, 1);
}

#[test]
fn a_list_that_is_not_there_or_damaged_is_an_error() {
    let f = fixture(1 << 20);
    let (mut trx, _) = f.logged(100);
    let list = f.save(&mut trx, 1);
    let is_refused = |list| match f.store.adopt_saved(&[list], false) {
        Err(Error::Corrupt { .. }) => {}
        other => panic!("{other:?}"),
    };
    is_refused(UndoList {
        offset: 1 << 40,
        ..list
    });
    is_refused(UndoList {
        bytes: u32::MAX,
        ..list
    });
    f.vfs.file("undo").unwrap().bytes.write()[list.offset as usize + 9] ^= 1;
    is_refused(list);
    f.store.finish(trx.touched, 1);
}
