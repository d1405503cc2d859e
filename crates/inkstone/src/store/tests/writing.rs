//! What a writer writes, in which order, and what it counts.

use super::*;

fn rig(doublewrite: Doublewrite, flush_method: FlushMethod) -> Rig {
    let rig = Rig::new(doublewrite, flush_method);
    rig.spaces
        .create(SpaceId(1), 600, Placement::InPlace)
        .unwrap();
    rig.spaces
        .create(SpaceId(2), 600, Placement::InPlace)
        .unwrap();
    rig.disk.take_events();
    rig
}

fn written(name: &str, offset: usize, length: usize) -> Event {
    Event::Write {
        name: name.to_owned(),
        offset: offset as u64,
        length,
        atomic: false,
    }
}

fn synced(name: &str) -> Event {
    Event::Sync {
        name: name.to_owned(),
    }
}

const ONE: &str = "t00000001.ink";
const TWO: &str = "t00000002.ink";

#[test]
fn copies_are_durable_before_pages_are_overwritten() {
    let rig = rig(Doublewrite::On, FlushMethod::ODirect);
    let mut writer = rig.store.writer().unwrap();
    // Out of order, two files, two runs in one of them, one fresh page within a run.
    let mut batch = pages(10, 3, 7, false);
    batch[1].2 = true;
    batch.insert(0, (id(2, 5), 7, false));
    batch.push((id(1, 40), 7, false));
    write(&mut *writer, &batch).unwrap();
    assert_eq!(
        rig.disk.take_events(),
        [
            written(DOUBLEWRITE_FILE, 4096, 4096 + 4 * PAGE),
            synced(DOUBLEWRITE_FILE),
            written(ONE, 10 * PAGE, 3 * PAGE),
            written(ONE, 40 * PAGE, PAGE),
            written(TWO, 5 * PAGE, PAGE),
            synced(ONE),
            synced(TWO),
        ]
    );
    for (id, lsn, _) in batch {
        assert!(is_page(&rig.read(id).unwrap(), id, lsn));
    }
    for (counter, value) in [
        (Counter::PagesRead, 5),
        (Counter::PagesWritten, 5),
        (Counter::PageBytesWritten, 5 * PAGE as u64),
        (Counter::DataWriteCalls, 3),
        (Counter::DataSyncs, 4), // Two of them when the files were created.
        (Counter::DoublewritePages, 4),
        (Counter::DoublewriteBytes, 4096 + 4 * PAGE as u64),
        (Counter::DoublewriteWriteCalls, 1),
        (Counter::DoublewriteSyncs, 1),
        (Counter::DoublewriteSkipped, 1),
    ] {
        assert_eq!(rig.count(counter), value, "{counter:?}");
    }
}

#[test]
fn fresh_pages_alone_leave_the_doublewrite_file_alone() {
    let rig = rig(Doublewrite::On, FlushMethod::ODirect);
    let mut writer = rig.store.writer().unwrap();
    write(&mut *writer, &pages(0, 300, 7, true)).unwrap();
    // Writes of at most 1 MiB.
    assert_eq!(
        rig.disk.take_events(),
        [
            written(ONE, 0, 1 << 20),
            written(ONE, 1 << 20, 44 * PAGE),
            synced(ONE),
        ]
    );
    assert_eq!(rig.count(Counter::DoublewriteSkipped), 300);
    write(&mut *writer, &[]).unwrap();
    assert_eq!(rig.disk.take_events(), []);
}

#[test]
fn without_the_skip_fresh_pages_are_copied_too() {
    let mut options = options(Doublewrite::On, FlushMethod::Fsync);
    options.doublewrite_skip_fresh = false;
    let rig = Rig::open(&Disk::new(), options).unwrap();
    rig.spaces
        .create(SpaceId(1), 8, Placement::InPlace)
        .unwrap();
    let mut writer = rig.store.writer().unwrap();
    write(&mut *writer, &pages(0, 5, 7, true)).unwrap();
    assert_eq!(rig.count(Counter::DoublewritePages), 5);
    assert_eq!(rig.count(Counter::DoublewriteSkipped), 0);
}

#[test]
fn long_batches_are_split_and_each_part_is_durable_before_the_next() {
    let rig = rig(Doublewrite::On, FlushMethod::ODirect);
    let mut writer = rig.store.writer().unwrap();
    let mut batch = pages(0, 300, 7, false);
    batch[0].2 = true;
    write(&mut *writer, &batch).unwrap();
    let area_len = 4096 + BATCH_PAGES as usize * PAGE;
    let copies =
        |area: usize, n: usize| written(DOUBLEWRITE_FILE, 4096 + area * area_len, 4096 + n * PAGE);
    assert_eq!(
        rig.disk.take_events(),
        [
            copies(0, 128),
            synced(DOUBLEWRITE_FILE),
            written(ONE, 0, 129 * PAGE),
            synced(ONE),
            copies(1, 128),
            synced(DOUBLEWRITE_FILE),
            written(ONE, 129 * PAGE, 128 * PAGE),
            synced(ONE),
            copies(2, 43),
            synced(DOUBLEWRITE_FILE),
            written(ONE, 257 * PAGE, 43 * PAGE),
            synced(ONE),
        ]
    );
}

#[test]
fn more_writers_than_areas_wait_for_each_other() {
    let rig = rig(Doublewrite::On, FlushMethod::ODirect);
    crate::sync::test_scope(|scope| {
        for n in 0..3 * AREAS {
            let rig = &rig;
            scope.spawn(move || {
                let mut writer = rig.store.writer().unwrap();
                for lsn in 1..20 {
                    write(&mut *writer, &pages(n * 20, 10, lsn, false)).unwrap();
                }
            });
        }
    });
    for n in 0..3 * AREAS {
        let id = id(1, n * 20 + 9);
        assert!(is_page(&rig.read(id).unwrap(), id, 19));
    }
}

#[test]
fn batches_at_the_same_time_have_different_areas() {
    let rig = rig(Doublewrite::On, FlushMethod::ODirect);
    let file = DoublewriteFile::open(
        &*rig.disk.directory(DIRECTORY),
        UUID,
        PAGE as u32,
        FlushMethod::ODirect,
        rig.counters.clone(),
        rig.poison.clone(),
    );
    let file = file.unwrap();
    let taken: Vec<_> = (1..AREAS).map(|_| file.take_area().unwrap()).collect();
    crate::sync::test_scope(|scope| {
        // Waits until an area is given back.
        let waiting = scope.spawn(|| file.take_area().map(drop));
        drop(taken);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn flush_methods_sync_when_they_must() {
    use FlushMethod::*;
    // Syncs of data files and of the doublewrite file for: a first batch, a second one of pages
    // that were on disk, one of a fresh page, one that makes the file grow.
    for (method, data, doublewrite) in [
        (Fsync, [1, 1, 1, 1], [1, 1, 0, 1]),
        (ODirect, [1, 1, 1, 1], [1, 1, 0, 1]),
        (ODsync, [0, 0, 0, 0], [0, 0, 0, 0]),
        (ODirectNoFsync, [0, 0, 1, 1], [0, 0, 0, 0]),
    ] {
        let rig = rig(Doublewrite::On, method);
        let mut writer = rig.store.writer().unwrap();
        let batches = [
            pages(0, 2, 1, false),
            pages(0, 2, 2, false),
            pages(9, 1, 3, true),
            pages(1300, 1, 4, false),
        ];
        for (n, batch) in batches.iter().enumerate() {
            write(&mut *writer, batch).unwrap();
            let events = rig.disk.take_events();
            let count = |name| events.iter().filter(|&e| *e == synced(name)).count();
            assert_eq!(count(ONE), data[n], "{method}, batch {n}: {events:?}");
            assert_eq!(
                count(DOUBLEWRITE_FILE),
                doublewrite[n],
                "{method}, batch {n}"
            );
        }
    }
}

#[test]
fn untorn_writes_are_refused_with_a_reason() {
    let error = |limits: Option<(u32, u32)>, method| {
        let disk = Disk::new();
        if let Some((min, max)) = limits {
            disk.set_limits(min, max, 0);
        }
        let rig = Rig::open(&disk, options(Doublewrite::Atomic, method));
        let created = rig.and_then(|rig| rig.spaces.create(SpaceId(1), 4, Placement::InPlace));
        assert!(created.is_err() && disk.events_are_no_atomic_writes());
        created.unwrap_err().to_string()
    };
    let none = error(None, FlushMethod::ODirect);
    assert!(
        none.contains("offers none") && none.contains("doublewrite=on"),
        "{none}"
    );
    let small = error(Some((512, 2048)), FlushMethod::ODirect);
    assert!(
        small.contains("512 to 2048 bytes, and a page has 4096"),
        "{small}"
    );
    let large = error(Some((8192, 65536)), FlushMethod::ODirect);
    assert!(large.contains("8192 to 65536"), "{large}");
    let buffered = error(Some((4096, 65536)), FlushMethod::Fsync);
    assert!(buffered.contains("O_DIRECT"), "{buffered}");
}

#[test]
fn untorn_writes_are_aligned_powers_of_two() {
    let lengths = |unit_max, unit_max_opt| {
        let disk = Disk::new();
        disk.set_limits(4096, unit_max, unit_max_opt);
        let options = options(Doublewrite::Atomic, FlushMethod::ODirect);
        let rig = Rig::open(&disk, options).unwrap();
        rig.spaces
            .create(SpaceId(1), 64, Placement::InPlace)
            .unwrap();
        disk.take_events();
        let mut writer = rig.store.writer().unwrap();
        write(&mut *writer, &pages(3, 20, 7, false)).unwrap();
        for (id, lsn, _) in pages(3, 20, 7, false) {
            assert!(is_page(&rig.read(id).unwrap(), id, lsn));
        }
        let pages = |event: &Event| match event {
            Event::Write {
                length,
                atomic: true,
                ..
            } => Some(length / PAGE),
            _ => None,
        };
        disk.take_events()
            .iter()
            .filter_map(pages)
            .collect::<Vec<_>>()
    };
    assert_eq!(lengths(1 << 20, 0), [1, 4, 8, 4, 2, 1]);
    assert_eq!(lengths(16384, 0), [1, 4, 4, 4, 4, 2, 1]);
    assert_eq!(lengths(1 << 20, 8192), [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
    assert_eq!(lengths(4096, 4096), [1; 20]);
}

#[test]
fn a_failed_sync_poisons() {
    // Steps: copies written, copies synced, pages written, pages synced.
    for step in [1, 3] {
        let rig = rig(Doublewrite::On, FlushMethod::ODirect);
        let mut writer = rig.store.writer().unwrap();
        rig.disk.set_fault(Fault::FailAt(step));
        let error = write(&mut *writer, &pages(0, 3, 7, false)).unwrap_err();
        assert!(
            matches!(error, Error::Poisoned(_)),
            "step {step}: {error:?}"
        );
        assert!(write(&mut *writer, &pages(0, 3, 7, false)).is_err());
        assert!(matches!(rig.read(id(1, 0)), Err(Error::Poisoned(_))));
        let poisoned = |result: Result<()>| matches!(result, Err(Error::Poisoned(_)));
        assert!(poisoned(rig.spaces.sync_all(&rig.disk)));
        assert!(poisoned(
            rig.spaces
                .create(SpaceId(9), 1, Placement::InPlace)
                .map(drop)
        ));
    }
}

#[test]
fn a_failed_write_of_copies_costs_nothing() {
    let rig = rig(Doublewrite::On, FlushMethod::ODirect);
    let mut writer = rig.store.writer().unwrap();
    for _ in 0..2 * AREAS {
        rig.disk.set_fault(Fault::FailAt(0));
        let error = write(&mut *writer, &pages(0, 3, 7, false)).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
    }
    write(&mut *writer, &pages(0, 3, 8, false)).unwrap();
}

#[test]
fn an_existing_doublewrite_file_is_checked() {
    let rig = rig(Doublewrite::On, FlushMethod::ODirect);
    let options = options(Doublewrite::On, FlushMethod::ODirect);
    let path = Path::new(DIRECTORY).join(DOUBLEWRITE_FILE);
    let whole = rig.disk.bytes(&path);
    assert_eq!(
        whole.len(),
        4096 + AREAS as usize * (4096 + BATCH_PAGES as usize * PAGE)
    );
    Rig::open(&rig.disk, options).unwrap();
    for (at, bytes) in [(0, vec![0; 8]), (40, vec![1]), (20, vec![0])] {
        rig.disk.damage(&path, at, &bytes);
        let error = Rig::open(&rig.disk, options).err().unwrap();
        assert!(
            matches!(error, Error::Corrupt { .. }),
            "byte {at}: {error:?}"
        );
        rig.disk.damage(&path, 0, &whole);
    }
    let larger = StoreOptions {
        page_size: 8192,
        ..options
    };
    assert!(matches!(
        Rig::open(&rig.disk, larger),
        Err(Error::Corrupt { .. })
    ));
    for length in [0, 100, 4096, whole.len() - 1] {
        rig.disk.cut(&path, length);
        let error = Rig::open(&rig.disk, options).err().unwrap();
        assert!(
            matches!(error, Error::Corrupt { .. }),
            "{length} bytes: {error:?}"
        );
    }
}

/// A store of a new database: its doublewrite file is small.
fn new_rig() -> Rig {
    let (disk, options) = (Disk::new(), options(Doublewrite::On, FlushMethod::ODirect));
    let (directory, poison) = (disk.directory(DIRECTORY), Poison::default());
    let (page_size, method) = (options.page_size, options.flush_method);
    create_first(&*directory, UUID, page_size, method, &poison).unwrap();
    let rig = Rig::open(&disk, options).unwrap();
    let created = rig.spaces.create(SpaceId(1), 64, Placement::InPlace);
    created.unwrap();
    rig
}

fn doublewrite_bytes(rig: &Rig) -> usize {
    rig.disk
        .bytes(&Path::new(DIRECTORY).join(DOUBLEWRITE_FILE))
        .len()
}

/// Fresh pages need no copies, and no large file; the first page that does has it made. Whenever
/// power is lost there is one of the two, whole, and no page is torn.
#[test]
fn a_small_doublewrite_file_is_replaced_when_it_is_used() {
    let area = |pages: usize| 4096 + pages * PAGE;
    let (small, large) = (
        4096 + 2 * area(16),
        4096 + AREAS as usize * area(BATCH_PAGES as usize),
    );
    let faults = (0..40).flat_map(|step| [Fault::FailAt(step), Fault::PowerAt(step)]);
    for (seed, fault) in (1..).zip(faults) {
        let rig = new_rig();
        write(&mut *rig.store.writer().unwrap(), &pages(0, 64, 1, true)).unwrap();
        assert_eq!(doublewrite_bytes(&rig), small);
        rig.disk.set_fault(fault);
        // Some fail for good: the directory, or the file, could not be synced.
        let written = write(&mut *rig.store.writer().unwrap(), &pages(0, 64, 2, false));
        rig.disk.set_fault(Fault::None);
        if fault == Fault::FailAt(39) {
            written.unwrap();
            assert_eq!(doublewrite_bytes(&rig), large);
        }
        rig.disk.power_loss(&mut Random(seed));
        let found = doublewrite_bytes(&rig);
        assert!([small, large].contains(&found), "{found} bytes");
        let options = options(Doublewrite::On, FlushMethod::ODirect);
        let spaces = space_files(&rig.disk, options, &Poison::default()).unwrap();
        repair(&*rig.disk.directory(DIRECTORY), &spaces, UUID, Lsn(1)).unwrap();
        let again = Rig::open(&rig.disk, options).unwrap();
        for (id, ..) in pages(0, 64, 0, false) {
            let bytes = again.read(id).unwrap();
            assert!(
                is_page(&bytes, id, 1) || is_page(&bytes, id, 2),
                "page {id}"
            );
        }
    }
}

#[test]
fn a_small_doublewrite_file_serves_a_full_disk() {
    let rig = new_rig();
    let small = doublewrite_bytes(&rig);
    write(&mut *rig.store.writer().unwrap(), &pages(0, 64, 1, true)).unwrap();
    rig.disk.set_capacity(small as u64);
    // More pages than fit a batch, and two writers.
    crate::sync::test_scope(|scope| {
        for half in [0, 32] {
            let rig = &rig;
            scope.spawn(move || {
                let mut writer = rig.store.writer().unwrap();
                for lsn in 2..5 {
                    write(&mut *writer, &pages(half, 32, lsn, false)).unwrap();
                }
            });
        }
    });
    assert_eq!(doublewrite_bytes(&rig), small);
    for (id, ..) in pages(0, 64, 0, false) {
        assert!(is_page(&rig.read(id).unwrap(), id, 4), "page {id}");
    }
    rig.disk.set_capacity(u64::MAX);
    crate::sync::thread::sleep(std::time::Duration::from_millis(1100));
    write(&mut *rig.store.writer().unwrap(), &pages(0, 64, 5, false)).unwrap();
    assert!(doublewrite_bytes(&rig) > small);
    assert!(is_page(&rig.read(id(1, 9)).unwrap(), id(1, 9), 5));
}
