//! Files of tablespaces: creating, growing, removing, and what damage is called.

use super::*;

fn rig() -> Rig {
    Rig::new(Doublewrite::Off, FlushMethod::ODirect)
}

fn detail(error: Error) -> String {
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn names_follow_from_ids() {
    assert_eq!(space_file_name(SpaceId(0)), "catalog.ink");
    assert_eq!(space_file_name(SpaceId(0xab)), "t000000ab.ink");
    for space in [0, 1, 0xab, u32::MAX] {
        let name = space_file_name(SpaceId(space));
        assert_eq!(parse_space_file_name(&name), Some(SpaceId(space)));
    }
    for name in [
        "t1.ink",
        "t000000AB.ink",
        "control",
        "t00000000.ink",
        "x.ink",
        "tzzzzzzzz.ink",
    ] {
        assert_eq!(parse_space_file_name(name), None, "{name}");
    }
}

#[test]
fn files_are_created_grown_in_steps_and_removed() {
    let rig = rig();
    let file = rig
        .spaces
        .create(SpaceId(1), 4, Placement::InPlace)
        .unwrap();
    assert_eq!(file.pages(), 4);
    file.ensure_pages(3).unwrap();
    assert_eq!(file.pages(), 4);
    file.ensure_pages(5).unwrap();
    assert_eq!(file.pages(), 8);
    file.ensure_pages(10_000).unwrap();
    assert_eq!(file.pages(), 10_000);
    file.ensure_pages(10_001).unwrap();
    assert_eq!(file.pages(), 10_000 + 4096);
    let mut cut = file.begin_cut();
    cut.lower(20);
    assert_eq!(file.pages(), 20);
    drop(cut);
    assert_eq!(file.pages(), 10_000 + 4096);
    let mut cut = file.begin_cut();
    cut.lower(20);
    cut.finish().unwrap();
    assert_eq!(file.pages(), 20);
    file.ensure_pages(21).unwrap();
    assert_eq!(file.pages(), 40);
    assert_eq!(rig.spaces.list().unwrap(), [SpaceId(1)]);
    assert!(matches!(
        rig.spaces.create(SpaceId(1), 1, Placement::InPlace),
        Err(Error::AlreadyExists(_))
    ));
    rig.spaces.remove(SpaceId(1)).unwrap();
    rig.spaces.remove(SpaceId(1)).unwrap();
    assert!(rig.spaces.get(SpaceId(1)).is_none());
    assert!(rig.spaces.find(SpaceId(1)).unwrap().is_none());
    assert!(rig.spaces.open(SpaceId(1)).is_err());
    assert!(
        rig.spaces
            .create(SpaceId(1), 1, Placement::InPlace)
            .is_err()
    );
    assert_eq!(rig.spaces.list().unwrap(), []);
}

#[test]
fn files_are_opened_when_first_asked_for() {
    let rig = rig();
    rig.spaces
        .create(SpaceId(7), 4, Placement::InPlace)
        .unwrap();
    let again = Rig::open(&rig.disk, options(Doublewrite::Off, FlushMethod::Fsync)).unwrap();
    assert!(again.spaces.get(SpaceId(7)).is_none());
    assert_eq!(again.spaces.open(SpaceId(7)).unwrap().pages(), 4);
    assert!(again.spaces.get(SpaceId(7)).is_some());
    assert_eq!(
        again.spaces.open_or_create(SpaceId(7), 9).unwrap().pages(),
        9
    );
    assert_eq!(
        again.spaces.open_or_create(SpaceId(8), 2).unwrap().pages(),
        2
    );
}

#[test]
fn missing_short_and_damaged_files_are_told_apart() {
    let rig = rig();
    let error = rig.spaces.open(SpaceId(0)).unwrap_err();
    assert!(matches!(error, Error::NotADatabase { .. }), "{error:?}");
    let error = detail(rig.spaces.open(SpaceId(3)).unwrap_err());
    assert!(
        error.contains("t00000003.ink") && error.contains("missing"),
        "{error}"
    );

    let file = rig
        .spaces
        .create(SpaceId(1), 4, Placement::InPlace)
        .unwrap();
    let error = detail(file.require_pages(5).unwrap_err());
    assert!(error.contains("has 4 pages, 5 are in use"), "{error}");
    let error = detail(rig.read(id(1, 4)).err().unwrap());
    assert!(
        error.contains("page 1:4") && error.contains("beyond the end"),
        "{error}"
    );
    let error = detail(rig.read(id(1, 3)).err().unwrap());
    assert!(error.contains("all zeroes"), "{error}");
    rig.disk.cut(file.path(), 2 * PAGE + 17);
    let error = detail(rig.read(id(1, 3)).err().unwrap());
    assert!(error.contains("beyond the end"), "{error}");
    let again = Rig::open(&rig.disk, options(Doublewrite::Off, FlushMethod::Fsync)).unwrap();
    assert_eq!(again.spaces.open(SpaceId(1)).unwrap().pages(), 2);
}

#[test]
fn a_page_of_another_place_is_not_taken() {
    let rig = rig();
    let file = rig
        .spaces
        .create(SpaceId(1), 8, Placement::InPlace)
        .unwrap();
    let mut writer = rig.store.writer().unwrap();
    write(&mut *writer, &pages(2, 2, 10, true)).unwrap();
    let third = rig.disk.bytes(file.path())[3 * PAGE..4 * PAGE].to_vec();
    rig.disk.damage(file.path(), 2 * PAGE, &third);
    let error = detail(rig.read(id(1, 2)).err().unwrap());
    assert!(error.contains("these bytes are page 1:3"), "{error}");
    rig.disk.damage(file.path(), 3 * PAGE + 100, &[1, 2, 3]);
    let error = detail(rig.read(id(1, 3)).err().unwrap());
    assert!(error.contains("checksum"), "{error}");
}

#[test]
fn a_full_disk_changes_nothing() {
    let rig = rig();
    let file = rig
        .spaces
        .create(SpaceId(1), 8, Placement::InPlace)
        .unwrap();
    rig.disk.set_capacity(10 * PAGE as u64);
    file.ensure_pages(9).unwrap();
    assert_eq!(file.pages(), 9, "the step did not fit, what was needed did");
    let error = file.ensure_pages(11).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
    assert_eq!(file.pages(), 9);
    let error = rig
        .spaces
        .create(SpaceId(2), 11, Placement::InPlace)
        .unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
    assert_eq!(rig.spaces.list().unwrap(), [SpaceId(1)]);
    let mut writer = rig.store.writer().unwrap();
    let error = write(&mut *writer, &[(id(1, 20), 5, true)]).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
    write(&mut *writer, &[(id(1, 8), 5, true)]).unwrap();
    assert!(!rig.poison.is_set());
}

#[test]
fn a_file_in_use_outlives_its_name() {
    let rig = rig();
    let file = rig
        .spaces
        .create(SpaceId(1), 8, Placement::InPlace)
        .unwrap();
    rig.spaces
        .create(SpaceId(2), 8, Placement::InPlace)
        .unwrap();
    let in_use = file.acquire().unwrap();
    rig.spaces.remove(SpaceId(1)).unwrap();
    in_use.sync().unwrap();
    assert_eq!(in_use.bytes().len().unwrap(), 8 * PAGE as u64);
    drop(in_use);
    let error = file.ensure_pages(9).unwrap_err();
    assert!(matches!(error, Error::NotFound(_)), "{error:?}");
    rig.disk.take_events();
    let mut writer = rig.store.writer().unwrap();
    write(&mut *writer, &[(id(1, 0), 5, false), (id(2, 3), 5, false)]).unwrap();
    assert_eq!(rig.count(Counter::PagesWritten), 1);
    assert!(rig.read(id(1, 0)).is_err());
    assert!(is_page(&rig.read(id(2, 3)).unwrap(), id(2, 3), 5));
}

#[test]
fn a_batch_of_more_files_than_may_be_open_is_written() {
    let few = StoreOptions {
        open_files: 10,
        ..options(Doublewrite::On, FlushMethod::Fsync)
    };
    let rig = Rig::open(&Disk::new(), few).unwrap();
    for space in 1..=30 {
        rig.spaces
            .create(SpaceId(space), 4, Placement::InPlace)
            .unwrap();
    }
    let all: Vec<_> = (1..=30)
        .flat_map(|n| [(id(n, 1), 5, false), (id(n, 3), 5, true)])
        .collect();
    write(&mut *rig.store.writer().unwrap(), &all).unwrap();
    assert_eq!(rig.count(Counter::PagesWritten), 60);
    for &(id, lsn, _) in &all {
        assert!(is_page(&rig.read(id).unwrap(), id, lsn));
    }
    assert_eq!(rig.spaces.open_files().count(), 10);
    let syncs = rig.count(Counter::DataSyncs);
    rig.spaces.sync_all(&rig.disk).unwrap();
    assert_eq!(rig.count(Counter::DataSyncs), syncs, "all was synced");
}

#[test]
fn failed_syncs_of_files_and_directories_poison() {
    for step in 0..2 {
        let rig = rig();
        rig.disk.set_fault(Fault::FailAt(step));
        let error = rig
            .spaces
            .create(SpaceId(1), 4, Placement::InPlace)
            .unwrap_err();
        assert!(
            matches!(error, Error::Poisoned(_)),
            "step {step}: {error:?}"
        );
        assert!(matches!(
            rig.spaces.remove(SpaceId(1)),
            Err(Error::Poisoned(_))
        ));
    }
}

#[test]
fn lookups_run_beside_creation_and_removal() {
    let rig = rig();
    crate::sync::test_scope(|scope| {
        for t in 0..3 {
            let spaces = &rig.spaces;
            scope.spawn(move || {
                for n in 0..50 {
                    let space = SpaceId(1 + t * 1000 + n);
                    spaces.create(space, 2, Placement::InPlace).unwrap();
                    spaces.open(space).unwrap().ensure_pages(4).unwrap();
                    spaces.find(SpaceId(1 + n)).unwrap();
                    if n % 2 == 0 {
                        spaces.remove(space).unwrap();
                        assert!(spaces.find(space).unwrap().is_none());
                    }
                }
            });
        }
    });
    assert_eq!(rig.spaces.list().unwrap().len(), 75);
}
