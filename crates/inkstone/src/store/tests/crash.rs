//! Power loss at every write and sync: after repair each page is its old or its new version.

use super::*;
use std::collections::BTreeMap;

/// What a page may be after a crash.
#[derive(Clone, Debug, Default)]
struct Expected {
    /// LSN of the last write that returned.
    confirmed: u64,
    /// LSN and freshness of a write that did not.
    attempted: Option<(u64, bool)>,
}

type Model = BTreeMap<PageId, Expected>;

const PAGES: u32 = 12;

fn setup(disk: &Disk, options: StoreOptions) -> (Rig, Model) {
    let rig = Rig::open(disk, options).unwrap();
    let mut writer = rig.store.writer().unwrap();
    let mut model = Model::new();
    for space in 1..3 {
        rig.spaces
            .create(SpaceId(space), PAGES, Placement::InPlace)
            .unwrap();
        let ids = (0..PAGES).map(|n| id(space, n));
        write(
            &mut *writer,
            &ids.clone().map(|id| (id, 1, true)).collect::<Vec<_>>(),
        )
        .unwrap();
        let first = Expected {
            confirmed: 1,
            attempted: None,
        };
        model.extend(ids.map(|id| (id, first.clone())));
    }
    drop(writer);
    (rig, model)
}

/// Writes batches with two writers until something fails. Returns the last LSN below which
/// everything is durable: the checkpoint.
fn work(rig: &Rig, model: &mut Model, random: &mut Random) -> u64 {
    let mut writers = [rig.store.writer().unwrap(), rig.store.writer().unwrap()];
    for lsn in 2..8 {
        let count = 1 + random.below(8);
        let mut batch = BTreeMap::new();
        for _ in 0..count {
            let id = id(
                1 + random.below(2) as u32,
                random.below(u64::from(PAGES) + 2) as u32,
            );
            let fresh = random.below(4) == 0 || !model.contains_key(&id);
            batch.insert(id, (id, lsn, fresh));
        }
        let batch: Vec<_> = batch.into_values().collect();
        for &(id, lsn, fresh) in &batch {
            model.entry(id).or_default().attempted = Some((lsn, fresh));
        }
        let writer = &mut writers[random.below(2) as usize];
        if write(&mut **writer, &batch).is_err() {
            return lsn - 1;
        }
        for &(id, lsn, _) in &batch {
            model.insert(
                id,
                Expected {
                    confirmed: lsn,
                    attempted: None,
                },
            );
        }
    }
    7
}

fn recover(disk: &Disk, options: StoreOptions, checkpoint: u64) -> Result<RepairReport> {
    let spaces = space_files(disk, options, &Poison::default())?;
    let directory = disk.directory(DIRECTORY);
    repair(&*directory, &spaces, UUID, Lsn(checkpoint))
}

/// Checks every page; pages in flight that were written without a copy may be torn.
fn check(disk: &Disk, options: StoreOptions, model: &Model, torn_allowed: impl Fn(bool) -> bool) {
    let spaces = space_files(disk, options, &Poison::default()).unwrap();
    let mut bytes = AlignedBuffer::zeroed(PAGE);
    for (&id, expected) in model {
        let read = spaces
            .open(id.space)
            .unwrap()
            .read_page(id.page, &mut bytes);
        let whole = read.is_ok() && {
            let lsn = page_lsn(&bytes).0;
            let known = lsn == expected.confirmed
                || expected
                    .attempted
                    .is_some_and(|(attempted, _)| lsn == attempted);
            known && is_page(&bytes, id, lsn)
        };
        // A page that was never on disk may still not be there.
        let absent = expected.confirmed == 0
            && matches!(&read, Err(Error::Corrupt { detail, .. })
                if detail.contains("beyond the end") || detail.contains("all zeroes"));
        let torn = expected
            .attempted
            .is_some_and(|(_, fresh)| torn_allowed(fresh));
        assert!(
            whole || absent || torn,
            "page {id}, {expected:?}: {read:?}, LSN {}",
            page_lsn(&bytes)
        );
    }
}

/// Runs the workload, with a power failure at each step in turn, and in repair as well.
fn crash_everywhere(
    options: StoreOptions,
    prepare: impl Fn(&Disk),
    torn_allowed: impl Fn(bool) -> bool,
) {
    let (mut repaired, mut torn_batches, mut torn_copies) = (0, 0, 0);
    // With O_DSYNC there are fewer steps, and so fewer chances to meet each case.
    let seeds = match options.flush_method {
        FlushMethod::ODsync => 12,
        _ => 5,
    };
    for seed in 1..=seeds {
        let mut at = 0;
        loop {
            let mut random = Random(seed);
            let disk = Disk::new();
            prepare(&disk);
            let (rig, mut model) = setup(&disk, options);
            disk.set_fault(Fault::PowerAt(at));
            let checkpoint = work(&rig, &mut model, &mut random);
            let finished = disk.steps() <= at;
            drop(rig);
            let mut random = Random(seed * 1000 + at + 1);
            disk.power_loss(&mut random);
            // Repair is interrupted twice, and every time power fails again.
            for _ in 0..2 {
                disk.set_fault(Fault::PowerAt(random.below(4)));
                let _ = recover(&disk, options, checkpoint);
                disk.power_loss(&mut random);
            }
            disk.set_fault(Fault::None);
            let report = recover(&disk, options, checkpoint).unwrap();
            repaired += report.repaired.len();
            torn_batches += report.torn_batches;
            torn_copies += report.torn_copies;
            disk.power_loss(&mut random);
            check(&disk, options, &model, &torn_allowed);
            let again = recover(&disk, options, checkpoint).unwrap();
            assert_eq!(again.repaired, [], "repair is done once it returned");
            if finished {
                break;
            }
            at += 1;
        }
    }
    if options.doublewrite == Doublewrite::On {
        let reached = (repaired > 0, torn_batches > 0, torn_copies > 0);
        assert_eq!(reached, (true, true, true), "the interesting cases came up");
    }
}

#[test]
fn no_page_is_torn_but_fresh_ones() {
    for method in [FlushMethod::ODirect, FlushMethod::Fsync] {
        crash_everywhere(options(Doublewrite::On, method), |_| {}, |fresh| fresh);
    }
}

#[test]
fn no_page_is_torn_when_each_write_is_durable() {
    let options = options(Doublewrite::On, FlushMethod::ODsync);
    crash_everywhere(options, |_| {}, |fresh| fresh);
}

#[test]
fn no_page_at_all_is_torn_without_the_skip() {
    let options = StoreOptions {
        doublewrite_skip_fresh: false,
        ..options(Doublewrite::On, FlushMethod::ODirect)
    };
    crash_everywhere(options, |_| {}, |_| false);
}

#[test]
fn untorn_writes_need_no_copies() {
    let options = options(Doublewrite::Atomic, FlushMethod::ODirect);
    crash_everywhere(options, |disk| disk.set_limits(4096, 16384, 0), |_| false);
}

#[test]
#[should_panic(expected = "page 1:")]
fn without_protection_this_test_finds_torn_pages() {
    crash_everywhere(
        options(Doublewrite::Off, FlushMethod::ODirect),
        |_| {},
        |_| false,
    );
}

#[test]
fn a_crash_while_files_are_created_leaves_nothing_half_made() {
    let options = options(Doublewrite::On, FlushMethod::ODirect);
    for at in 0.. {
        let disk = Disk::new();
        disk.set_fault(Fault::PowerAt(at));
        let opened = Rig::open(&disk, options);
        let created = opened.and_then(|rig| rig.spaces.create(SpaceId(1), 3, Placement::InPlace));
        let mut random = Random(at + 1);
        disk.power_loss(&mut random);
        let rig = Rig::open(&disk, options).unwrap();
        for space in rig.spaces.list().unwrap() {
            assert!(rig.spaces.open(space).unwrap().pages() <= 3);
        }
        if created.is_ok() {
            assert_eq!(rig.spaces.open(SpaceId(1)).unwrap().pages(), 3);
            return;
        }
    }
}

/// A page with a copy of LSN 5 that is then damaged in place.
fn damaged() -> (Rig, StoreOptions) {
    let options = options(Doublewrite::On, FlushMethod::ODirect);
    let rig = Rig::open(&Disk::new(), options).unwrap();
    let file = rig
        .spaces
        .create(SpaceId(1), 4, Placement::InPlace)
        .unwrap();
    let mut writer = rig.store.writer().unwrap();
    write(&mut *writer, &[(id(1, 2), 5, false)]).unwrap();
    drop(writer);
    rig.disk.damage(file.path(), 2 * PAGE + 700, &[1, 2, 3]);
    (rig, options)
}

#[test]
fn a_copy_older_than_the_checkpoint_is_never_used() {
    let (rig, options) = damaged();
    let report = recover(&rig.disk, options, 5).unwrap();
    assert_eq!((report.repaired, report.stale), (vec![], vec![id(1, 2)]));
    assert!(rig.read(id(1, 2)).is_err());
    let report = recover(&rig.disk, options, 4).unwrap();
    assert_eq!((report.repaired, report.stale), (vec![id(1, 2)], vec![]));
    assert!(is_page(&rig.read(id(1, 2)).unwrap(), id(1, 2), 5));
}

#[test]
fn the_newest_copy_is_used_and_a_whole_page_is_left_alone() {
    let (rig, options) = damaged();
    // The second area gets the newer copy.
    let mut writer = rig.store.writer().unwrap();
    write(&mut *writer, &[(id(1, 2), 9, false)]).unwrap();
    let file = rig.spaces.open(SpaceId(1)).unwrap();
    rig.disk.damage(file.path(), 2 * PAGE, &[0; PAGE]);
    let report = recover(&rig.disk, options, 1).unwrap();
    assert_eq!((report.batches, report.pages_examined), (2, 1));
    assert_eq!(report.repaired, [id(1, 2)]);
    assert!(is_page(&rig.read(id(1, 2)).unwrap(), id(1, 2), 9));
    // An older page that is whole stays: the log brings it forward.
    let mut old = page(id(1, 2), 3);
    inkstone_format::header::stamp_checksum(&mut old);
    rig.disk.damage(file.path(), 2 * PAGE, &old);
    assert_eq!(recover(&rig.disk, options, 1).unwrap().repaired, []);
    let again = Rig::open(&rig.disk, options).unwrap();
    assert!(is_page(&again.read(id(1, 2)).unwrap(), id(1, 2), 3));
    // But not to the process that wrote the newer one: it takes the copy.
    assert!(is_page(&rig.read(id(1, 2)).unwrap(), id(1, 2), 9));
    assert!(is_page(&again.read(id(1, 2)).unwrap(), id(1, 2), 9));
}

#[test]
fn dropped_tablespaces_are_skipped_and_short_files_extended() {
    let (rig, options) = damaged();
    let path = rig.spaces.path(SpaceId(1));
    rig.disk.cut(&path, PAGE + 5);
    assert_eq!(recover(&rig.disk, options, 5).unwrap().stale, []);
    let report = recover(&rig.disk, options, 4).unwrap();
    assert_eq!(report.repaired, [id(1, 2)]);
    let again = Rig::open(&rig.disk, options).unwrap();
    assert!(is_page(&again.read(id(1, 2)).unwrap(), id(1, 2), 5));
    rig.spaces.remove(SpaceId(1)).unwrap();
    let report = recover(&rig.disk, options, 4).unwrap();
    assert_eq!((report.without_file, report.pages_examined), (1, 0));
}

#[test]
fn torn_headers_and_copies_are_counted_and_not_used() {
    let (rig, options) = damaged();
    let path = Path::new(DIRECTORY).join(DOUBLEWRITE_FILE);
    let copy = 4096 + 4096;
    let whole = rig.disk.bytes(&path);
    rig.disk.damage(&path, copy + 999, &[0, 0]);
    let report = recover(&rig.disk, options, 4).unwrap();
    assert_eq!(
        (report.batches, report.torn_copies, report.pages_examined),
        (1, 1, 0)
    );
    rig.disk.damage(&path, 0, &whole);
    rig.disk.damage(&path, 4096 + 600, &[1]);
    let report = recover(&rig.disk, options, 4).unwrap();
    assert_eq!((report.batches, report.torn_batches), (0, 1));
    assert!(rig.read(id(1, 2)).is_err());
    // The sequence goes on although a header cannot be read.
    Rig::open(&rig.disk, options).unwrap();
}

#[test]
fn repair_needs_no_doublewrite_file_and_syncs_what_it_repaired() {
    let none = options(Doublewrite::Off, FlushMethod::Fsync);
    let report = recover(&Disk::new(), none, 0).unwrap();
    assert_eq!(report, RepairReport::default());
    let (rig, _) = damaged();
    rig.disk.take_events();
    recover(&rig.disk, none, 4).unwrap();
    let synced = Event::Sync {
        name: space_file_name(SpaceId(1)),
    };
    assert_eq!(rig.disk.take_events().last(), Some(&synced));
    assert_eq!(recover(&rig.disk, none, 4).unwrap().pages_examined, 1);
    assert_eq!(rig.disk.take_events(), []);
    // A failing sync, read or write is an error, and repeating it later succeeds.
    let file = rig.spaces.open(SpaceId(1)).unwrap();
    for step in 0..2 {
        rig.disk.damage(file.path(), 2 * PAGE + 700, &[1, 2, 3]);
        rig.disk.set_fault(Fault::FailAt(step));
        assert!(recover(&rig.disk, none, 4).is_err(), "step {step}");
    }
    rig.disk.set_fault(Fault::None);
    recover(&rig.disk, none, 4).unwrap();
    assert!(is_page(&rig.read(id(1, 2)).unwrap(), id(1, 2), 5));
}
