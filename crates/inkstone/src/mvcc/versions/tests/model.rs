//! The store against a model, and beside many threads.

use super::*;

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
pub(super) type Cells = Vec<Mutex<(i64, VersionAddress)>>;

impl Fixture {
    /// What a snapshot sees of a row, from a copy of its cell.
    pub(super) fn visible(&self, cell: (i64, VersionAddress), snapshot: &Snapshot) -> i64 {
        let ((mut value, mut address), mut passed) = (cell, 0);
        let sees = |trx: &TrxState| snapshot.sees(TrxId(u64::MAX), trx);
        while let Some(trx) = self.store.trx_of(address, 0).unwrap() {
            if sees(&trx) {
                break;
            }
            let entry = self.store.read(address).unwrap();
            let mut entry = entry.expect("a version was lost that a snapshot needs");
            passed += 1;
            self.passed.fetch_add(1, Ordering::Relaxed);
            if passed == self.store.steps_between_milestones() {
                let oldest = self.store.oldest_unseen(&entry.view(), sees).unwrap();
                if let Some((_, oldest)) = oldest {
                    self.jumps.fetch_add(1, Ordering::Relaxed);
                    entry = oldest;
                }
            }
            value = i64::from_le_bytes(entry.view().kept_value[..8].try_into().unwrap());
            address = entry.view().previous;
        }
        value
    }

    /// Adds to a row if no other transaction has an uncommitted change there.
    pub(super) fn add(
        &self,
        trx: &mut Trx,
        cells: &Cells,
        row: usize,
        amount: i64,
        padding: usize,
    ) -> bool {
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

    pub(super) fn roll_back(&self, trx: Trx, cells: &Cells) {
        for entry in self.store.undo_entries(trx.last, NONE) {
            let (address, entry) = entry.unwrap();
            let view = entry.view();
            let mut cell = cells[usize::from(view.key[0])].lock();
            assert_eq!(cell.1, address);
            self.store.unlist_milestone(&view, address);
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
    assert!(f.jumps.load(Ordering::Relaxed) > 50);
    assert!(f.counters.get(Counter::VersionSegmentsSpilled) > 10);
    assert!(f.counters.get(Counter::VersionSegmentsRetired) > 10);
    f.expect_empty();
    assert_eq!(cells.iter().map(|c| c.lock().0).sum::<i64>(), 1600);
}
