//! What a crash does to the bytes of files.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SECTOR: usize = 512;
const SECTORS: usize = 40;
/// Not a multiple of a sector: the last one is cut.
const LENGTH: usize = SECTORS * SECTOR - 100;

#[derive(Clone, Debug)]
enum Step {
    Write {
        offset: usize,
        length: usize,
    },
    /// By a handle that writes through.
    WriteThrough {
        offset: usize,
        length: usize,
    },
    Sync,
    FailedSync,
    /// What is cached is given up, by a sync or by a read past the cache.
    Forget {
        direct: bool,
    },
    ShortWrite {
        offset: usize,
        length: usize,
    },
    /// Go on after a crash.
    Crash(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || {
        let any = (0..LENGTH - 1, 1..3 * 4096_usize)
            .prop_map(|(offset, length)| (offset, length.min(LENGTH - offset)));
        let aligned = (0..SECTORS / 2 - 1, 1..16_usize).prop_map(|(sector, sectors)| {
            (
                sector * SECTOR,
                (sectors * SECTOR).min(LENGTH - sector * SECTOR),
            )
        });
        prop_oneof![any, aligned]
    };
    let step = prop_oneof![
        8 => place().prop_map(|(offset, length)| Step::Write { offset, length }),
        2 => place().prop_map(|(offset, length)| Step::WriteThrough { offset, length }),
        1 => place().prop_map(|(offset, length)| Step::ShortWrite { offset, length }),
        2 => Just(Step::Sync),
        1 => Just(Step::FailedSync),
        1 => any::<bool>().prop_map(|direct| Step::Forget { direct }),
        1 => any::<u64>().prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..25)
}

/// What each sector may hold after a crash.
struct Model {
    current: Vec<u8>,
    /// For each sector: the durable image and later ones.
    versions: Vec<Vec<Version>>,
}

#[derive(Clone)]
struct Version {
    image: Vec<u8>,
    /// A sync failed since: later syncs do not make it durable.
    forsaken: bool,
}

impl Model {
    fn new() -> Self {
        let mut model = Self {
            current: vec![0; LENGTH],
            versions: vec![Vec::new(); SECTORS],
        };
        model.note(0, LENGTH);
        model
    }

    fn sector(bytes: &[u8], number: usize) -> &[u8] {
        &bytes[number * SECTOR..((number + 1) * SECTOR).min(LENGTH)]
    }

    fn note(&mut self, offset: usize, length: usize) {
        for number in offset / SECTOR..(offset + length).div_ceil(SECTOR) {
            let image = Self::sector(&self.current, number).to_vec();
            self.versions[number].push(Version {
                image,
                forsaken: false,
            });
        }
    }

    /// Of each touched sector the last version is the durable one.
    fn settle(&mut self, offset: usize, length: usize) {
        for number in offset / SECTOR..(offset + length).div_ceil(SECTOR) {
            let versions = &mut self.versions[number];
            versions.drain(..versions.len() - 1);
        }
    }

    /// The last version that a sync can still write becomes the durable one.
    fn sync(&mut self) {
        for versions in &mut self.versions {
            let last = versions.iter().rposition(|version| !version.forsaken);
            versions.drain(..last.expect("the durable one is not forsaken"));
        }
    }

    fn fail_sync(&mut self) {
        for versions in &mut self.versions {
            versions[1..]
                .iter_mut()
                .for_each(|version| version.forsaken = true);
        }
    }

    fn check_crashed(&self, found: &[u8]) {
        assert_eq!(found.len(), LENGTH);
        for (number, versions) in self.versions.iter().enumerate() {
            let image = Self::sector(found, number);
            assert!(
                versions.iter().any(|version| version.image == image),
                "sector {number} holds what it never held as a whole"
            );
        }
    }

    fn restart(&mut self, found: Vec<u8>) {
        *self = Self::new();
        self.current = found;
        self.note(0, LENGTH);
        self.settle(0, LENGTH);
    }
}

struct Handles {
    vfs: SimVfs,
    buffered: Arc<dyn File>,
    through: Arc<dyn File>,
}

impl Handles {
    fn open(vfs: SimVfs) -> Self {
        let dsync = OpenOptions {
            dsync: true,
            ..OPTIONS
        };
        Self {
            buffered: open_durable(&vfs, "file"),
            through: vfs.open(Path::new("file"), dsync).unwrap(),
            vfs,
        }
    }
}

fn run_step(step: &Step, number: usize, handles: &mut Handles, model: &mut Model) {
    let fill = |model: &mut Model, offset: usize, length: usize| -> Vec<u8> {
        let bytes: Vec<u8> = (0..length)
            .map(|at| (number * 7 + at / 3 + 1) as u8)
            .collect();
        model.current[offset..offset + length].copy_from_slice(&bytes);
        bytes
    };
    match *step {
        Step::Write { offset, length } => {
            let bytes = fill(model, offset, length);
            handles.buffered.write_at(&bytes, offset as u64).unwrap();
            model.note(offset, length);
        }
        Step::WriteThrough { offset, length } => {
            let bytes = fill(model, offset, length);
            handles.through.write_at(&bytes, offset as u64).unwrap();
            model.note(offset, length);
            model.settle(offset, length);
        }
        Step::ShortWrite { offset, length } => {
            handles.vfs.fail_nth(OpKind::Write, 1, Fault::ShortWrite);
            let bytes = vec![number as u8; length];
            handles
                .buffered
                .write_at(&bytes, offset as u64)
                .unwrap_err();
            let before = std::mem::replace(&mut model.current, bytes_of(handles));
            // What was not written is as before.
            assert!(before[..offset] == model.current[..offset]);
            assert!(before[offset + length..] == model.current[offset + length..]);
            let written = before
                .iter()
                .zip(&model.current)
                .rposition(|(old, new)| old != new);
            if let Some(last) = written {
                model.note(offset, last + 1 - offset);
            }
        }
        Step::Sync => {
            handles.buffered.sync().unwrap();
            model.sync();
        }
        Step::FailedSync => {
            handles.vfs.fail_nth(OpKind::Sync, 1, Fault::Eio);
            handles.buffered.sync().unwrap_err();
            model.fail_sync();
        }
        Step::Forget { direct } => {
            if direct {
                handles.buffered.sync().unwrap();
                let direct = OpenOptions {
                    direct: true,
                    ..OPTIONS
                };
                let file = handles.vfs.open(Path::new("file"), direct).unwrap();
                file.read_at(&mut AlignedBuffer::zeroed(4096), 0).unwrap();
            } else {
                handles.buffered.sync_and_forget().unwrap();
            }
            model.sync();
            let found = bytes_of(handles);
            model.check_crashed(&found);
            // From here on nothing else can be found.
            model.restart(found);
        }
        Step::Crash(seed) => {
            *handles = Handles::open(handles.vfs.crash(seed));
            let found = bytes_of(handles);
            model.check_crashed(&found);
            model.restart(found);
        }
    }
    assert!(bytes_of(handles) == model.current);
    check_invariants(&handles.vfs);
}

fn bytes_of(handles: &Handles) -> Vec<u8> {
    bytes(&handles.vfs, "file")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Promises 2 and 3 of the simulation, for bytes: each sector is as the last sync left it or
    /// as a later write made it.
    #[test]
    fn sectors_are_as_durable_or_as_written_later(steps in steps(), seed: u64) {
        let vfs = SimVfs::new(1);
        let mut handles = Handles::open(vfs);
        handles.buffered.write_at(&[0; LENGTH], 0).unwrap();
        handles.buffered.sync().unwrap();
        let mut model = Model::new();
        for (number, step) in steps.iter().enumerate() {
            run_step(step, number, &mut handles, &mut model);
        }
        for round in 0..4 {
            model.check_crashed(&bytes(&handles.vfs.crash(seed.wrapping_add(round)), "file"));
        }
        // The same seed gives the same disk.
        let twice = [(); 2].map(|()| bytes(&handles.vfs.crash(seed), "file"));
        prop_assert!(twice[0] == twice[1]);
    }
}

/// The first sector of each of two writes of two sectors, after crashes by many seeds.
fn crashed_twos(prepare: impl Fn(&SimVfs)) -> BTreeSet<[u8; 4]> {
    let outcome = |seed| {
        let vfs = SimVfs::new(1);
        prepare(&vfs);
        let mut found = bytes(&vfs.crash(seed), "file");
        found.resize(4 * SECTOR, 0);
        let sectors: Vec<u8> = found.chunks(SECTOR).map(|sector| sector[0]).collect();
        assert!(
            found
                .chunks(SECTOR)
                .all(|sector| sector.iter().all(|&b| b == sector[0]))
        );
        [sectors[0], sectors[1], sectors[2], sectors[3]]
    };
    (0..3000).map(outcome).collect()
}

#[test]
fn crashes_find_every_combination() {
    // Two writes of two sectors each: any sector may be old or new.
    let all = crashed_twos(|vfs| {
        let file = open_durable(vfs, "file");
        file.write_at(&[1; 4 * SECTOR], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&[2; 2 * SECTOR], 0).unwrap();
        file.write_at(&[3; 2 * SECTOR], 2 * SECTOR as u64).unwrap();
    });
    assert_eq!(all.len(), 16, "{all:?}");
    // The same with a sync between: the first write is whole.
    let some = crashed_twos(|vfs| {
        let file = open_durable(vfs, "file");
        file.write_at(&[2; 2 * SECTOR], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&[3; 2 * SECTOR], 2 * SECTOR as u64).unwrap();
    });
    assert!(some.iter().all(|found| found[..2] == [2, 2]));
    assert_eq!(some.len(), 4, "{some:?}");
}

#[test]
fn overlapping_writes_never_go_backwards_within_a_sector() {
    let all = crashed_twos(|vfs| {
        let file = open_durable(vfs, "file");
        file.write_at(&[1; 4 * SECTOR], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&[2; 4 * SECTOR], 0).unwrap();
        file.write_at(&[3; 2 * SECTOR], SECTOR as u64).unwrap();
    });
    assert!(
        all.contains(&[1, 3, 3, 1]),
        "the later one survives alone: {all:?}"
    );
    assert!(
        all.contains(&[2, 2, 2, 2]),
        "the earlier one survives alone: {all:?}"
    );
    assert!(
        all.contains(&[1, 1, 1, 1]) && all.contains(&[2, 3, 3, 2]),
        "{all:?}"
    );
}

#[test]
fn atomic_writes_are_not_torn() {
    let limits = AtomicWriteLimits {
        unit_min: 4096,
        unit_max: 65536,
        unit_max_opt: 65536,
    };
    let direct = OpenOptions {
        direct: true,
        ..OPTIONS
    };
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let vfs = SimVfs::new(1);
        vfs.set_atomic_write_limits(Some(limits));
        open_durable(&vfs, "file");
        let file = vfs.open(Path::new("file"), direct).unwrap();
        let mut page = AlignedBuffer::zeroed(16384);
        for fill in 1..4 {
            page.fill(fill);
            file.write_atomic_at(&page, 0).unwrap();
        }
        let after = vfs.crash(seed);
        let found = bytes(&after, "file");
        assert!(found.iter().all(|&byte| byte == found[0]));
        seen.insert((found.len(), found.first().copied()));
    }
    let page = |fill| (16384, Some(fill));
    assert_eq!(seen, BTreeSet::from([(0, None), page(1), page(2), page(3)]));
}

#[test]
fn a_sync_covers_only_what_was_written_before_it_began() {
    let mut lost = 0;
    for seed in 0..40 {
        let vfs = SimVfs::new(1);
        let file = open_durable(&vfs, "file");
        file.write_at(&[1; 512], 0).unwrap();
        vfs.set_sync_delay(Duration::from_millis(5));
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| file.sync());
            while vfs.operations_of(OpKind::Sync) == 0 {
                std::thread::yield_now();
            }
            file.write_at(&[2; 512], 512).unwrap();
            syncing.join().unwrap().unwrap();
        });
        let found = bytes(&vfs.crash(seed), "file");
        assert_eq!(found[..512], [1; 512]);
        lost += usize::from(found.len() == 512);
    }
    assert!(lost > 5, "{lost}");
}

#[test]
fn a_sync_does_not_mend_an_earlier_one_that_failed() {
    let mut lost = 0;
    for seed in 0..50 {
        let vfs = SimVfs::new(1);
        let file = open_durable(&vfs, "file");
        file.allocate(0, 1024).unwrap();
        file.write_at(&[1; 512], 0).unwrap();
        vfs.fail_nth(OpKind::Sync, 1, Fault::Eio);
        file.sync().unwrap_err();
        file.write_at(&[2; 512], 512).unwrap();
        file.sync().unwrap();
        let found = bytes(&vfs.crash(seed), "file");
        assert_eq!(found[512..], [2; 512]);
        lost += usize::from(found[..512] == [0; 512]);
    }
    assert!((5..45).contains(&lost), "{lost}");
}

/// What is found after the cache was given up is what crashes leave; before that it need not be.
#[test]
fn giving_up_the_cache_shows_what_a_failed_sync_lost() {
    let mut found = BTreeSet::new();
    for seed in 0..60 {
        let vfs = SimVfs::new(seed);
        let file = open_durable(&vfs, "file");
        file.allocate(0, 1024).unwrap();
        file.write_at(&[1; 512], 0).unwrap();
        vfs.fail_nth(OpKind::Sync, 1, Fault::Eio);
        file.sync().unwrap_err();
        vfs.set_keeps_cache(true);
        file.sync_and_forget().unwrap();
        assert_eq!(bytes(&vfs, "file")[0], 1, "the advice is not taken");
        vfs.set_keeps_cache(false);
        file.write_at(&[2; 512], 512).unwrap();
        file.sync_and_forget().unwrap();
        check_invariants(&vfs);
        let now = bytes(&vfs, "file");
        assert_eq!(now[512..], [2; 512]);
        assert!((0..4).all(|crash| bytes(&vfs.crash(crash), "file") == now));
        found.insert(now[0]);
    }
    assert_eq!(found, BTreeSet::from([0, 1]));
}

/// A restart after a failed sync may find the bytes in the cache, or what the disk has.
#[test]
fn a_kill_may_come_after_the_cache_was_given_up() {
    let (mut cached, mut evicted) = (0, 0);
    for seed in 0..200 {
        let vfs = SimVfs::new(seed);
        let file = open_durable(&vfs, "file");
        file.allocate(0, 512).unwrap();
        file.sync().unwrap();
        file.write_at(&[1; 512], 0).unwrap();
        vfs.fail_nth(OpKind::Sync, 1, Fault::Eio);
        file.sync().unwrap_err();
        match bytes(&vfs.kill(), "file")[0] {
            1 => cached += 1,
            _ => evicted += 1,
        }
    }
    assert!(cached > 100 && evicted > 10, "{cached}, {evicted}");
}

#[test]
fn a_write_through_takes_along_the_length_that_it_rests_on() {
    for seed in 0..50 {
        let vfs = SimVfs::new(1);
        let handles = Handles::open(vfs);
        handles.buffered.write_at(&[1; 4096], 0).unwrap();
        handles.buffered.sync().unwrap();
        handles.buffered.set_len(0).unwrap();
        handles.through.write_at(&[2; 512], 0).unwrap();
        check_invariants(&handles.vfs);
        assert_eq!(bytes(&handles.vfs.crash(seed), "file"), [2; 512]);
    }
}

#[test]
fn lengths_survive_in_order() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let vfs = SimVfs::new(1);
        let file = open_durable(&vfs, "file");
        file.write_at(&[1; 12288], 0).unwrap();
        file.sync().unwrap();
        file.set_len(4096).unwrap();
        file.allocate(0, 12288).unwrap();
        file.write_at(&[2; 4096], 4096).unwrap();
        let found = bytes(&vfs.crash(seed), "file");
        let blocks = found.chunks(4096).map(|block| {
            let known = block.iter().all(|byte| [0, 1, 2].contains(byte));
            assert!(known && block.len() % 512 == 0);
            (block[0], block[block.len() - 1])
        });
        seen.insert(blocks.collect::<Vec<_>>());
    }
    // The cut is lost: so is what was written behind it.
    assert!(seen.contains(&vec![(1, 1), (1, 1), (1, 1)]), "{seen:?}");
    assert!(!seen.contains(&vec![(1, 1), (2, 2), (1, 1)]), "{seen:?}");
    // The cut alone; cut and allocation; all.
    assert!(seen.contains(&vec![(1, 1)]), "{seen:?}");
    assert!(seen.contains(&vec![(1, 1), (0, 0), (0, 0)]), "{seen:?}");
    assert!(seen.contains(&vec![(1, 1), (2, 2), (0, 0)]), "{seen:?}");
}

#[test]
fn syncs_in_a_batch_cover_the_writes_before_them() {
    for seed in 0..100 {
        let vfs = SimVfs::new(seed);
        let file = open_durable(&vfs, "file");
        let blocks: Vec<[u8; 512]> = (1..9).map(|fill| [fill; 512]).collect();
        let mut operations: Vec<_> = blocks
            .iter()
            .enumerate()
            .map(|(number, block)| Op::Write {
                file: &*file,
                buffers: vec![block],
                offset: number as u64 * 512,
                atomic: false,
            })
            .collect();
        operations.insert(5, Op::Sync { file: &*file });
        let results = vfs.batch(4).unwrap().run(&mut operations);
        assert!(results.iter().all(Result::is_ok));
        let found = bytes(&vfs.crash(seed), "file");
        for (number, block) in blocks.iter().enumerate().take(5) {
            assert!(
                found[number * 512..][..512] == *block,
                "seed {seed}, block {number}"
            );
        }
    }
}

#[test]
fn crashes_of_one_moment_are_independent_disks() {
    let vfs = SimVfs::new(1);
    let file = open_durable(&vfs, "file");
    file.write_at(&[1; 4096], 0).unwrap();
    file.sync().unwrap();
    let disks = [vfs.crash(1), vfs.crash(2)];
    open(&disks[0], "file").write_at(&[9; 4096], 0).unwrap();
    open(&disks[0], "file").sync().unwrap();
    assert_eq!(bytes(&disks[1], "file"), [1; 4096]);
    assert_eq!(bytes(&vfs, "file"), [1; 4096]);
    assert_eq!(bytes(&disks[0].crash(5), "file"), [9; 4096]);
}

#[test]
fn hundreds_of_megabytes_are_no_burden() {
    let vfs = SimVfs::new(1);
    let file = open_durable(&vfs, "file");
    let page = vec![7; 16384];
    for round in 0..2 {
        for number in 0..(128 << 20) / 16384_u64 {
            file.write_at(&page, number * 16384).unwrap();
        }
        file.sync().unwrap();
        assert_eq!(vfs.used_bytes(), 128 << 20, "round {round}");
    }
    let after = vfs.crash(1);
    assert_eq!(after.used_bytes(), 128 << 20);
}

/// Without a cache that forgets, an unbuffered write survives where it only replaces bytes.
#[test]
fn a_disk_without_a_cache_keeps_replaced_bytes_and_promises_no_more() {
    let path = Path::new("file");
    let unbuffered = OpenOptions {
        create: Create::IfMissing,
        read_only: false,
        direct: true,
        dsync: false,
    };
    let mut page = AlignedBuffer::zeroed(4096);
    let (mut lost, mut grown) = (0, 0);
    for seed in 0..60 {
        let vfs = SimVfs::new(seed);
        vfs.set_volatile_cache(false);
        let file = vfs.open(path, unbuffered).unwrap();
        page.fill(1);
        file.write_at(&page, 0).unwrap();
        file.allocate(4096, 4096).unwrap();
        file.sync().unwrap();
        vfs.sync_dir(Path::new("")).unwrap();
        page.fill(2);
        file.write_at(&page, 0).unwrap(); // replaces
        file.write_at(&page, 4096).unwrap(); // the first bytes in space that was only taken
        file.write_at(&page, 8192).unwrap(); // grows the file
        let left = vfs.crash(seed);
        let bytes = left.read_raw(path).unwrap();
        assert_eq!(bytes[..4096], page[..]);
        lost += u64::from(bytes[4096..8192] != page[..]);
        grown += u64::from(bytes.len() > 8192);
        // The next disk is of the same kind.
        page.fill(3);
        let file = left.open(path, unbuffered).unwrap();
        file.write_at(&page, 0).unwrap();
        assert_eq!(left.crash(seed).read_raw(path).unwrap()[..4096], page[..]);
    }
    assert!(lost > 0 && grown > 0 && grown < 60, "{lost} {grown}");
}

#[test]
fn a_disk_that_writes_through_loses_no_finished_write() {
    for through in [true, false] {
        let vfs = SimVfs::new(1);
        vfs.set_writes_through(through);
        let file = open_durable(&vfs, "file");
        file.allocate(0, 8192).unwrap();
        for n in 0..20u8 {
            file.write_at(&[n; 512], u64::from(n) * 512).unwrap();
        }
        let whole = |seed| {
            let bytes = bytes(&vfs.crash(seed), "file");
            bytes.len() == 20 * 512
                && bytes
                    .iter()
                    .enumerate()
                    .all(|(at, b)| at / 512 == *b as usize)
        };
        assert_eq!((0..20).all(whole), through);
    }
}
