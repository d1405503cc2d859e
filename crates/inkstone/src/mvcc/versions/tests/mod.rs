use super::saved::{RebuiltSegments, Saved};
use super::spill::SPILL_FILE;
use super::test_vfs::MemVfs;
use crate::poison::Poison;
use inkstone_format::record::UndoList;
use inkstone_io::Directory as _;
mod milestones;
mod model;
#[cfg(inkstone_shuttle)]
mod races;
mod saved;
mod undo_end;

use super::*;
use crate::mvcc::system::{Snapshot, TrxStatus, TrxSystem};
use crate::sync::Instant;
use crate::sync::atomic::AtomicBool;
use inkstone_format::{Lsn, SpaceId, TreeId, TrxId};
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
    /// Times that a reader has gone on at a milestone.
    jumps: AtomicU64,
    /// Versions that readers have gone past.
    passed: AtomicU64,
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
        jumps: AtomicU64::new(0),
        passed: AtomicU64::new(0),
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
        let steps = self.store.steps_after(Some(previous));
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
            steps: self.store.or_milestone(steps),
        };
        trx.last = self.store.append(&trx.state, &mut trx.touched, version)?;
        self.store.list_milestone(&version, trx.last);
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
        steps: 3,
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
            steps: 0,
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
            steps: 0,
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
