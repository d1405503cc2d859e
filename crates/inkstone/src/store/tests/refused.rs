//! Pages that cannot be written in place for a while: what they cost, and what is left of them.

use super::*;
use std::collections::BTreeSet;

const ONE: &str = "t00000001.ink";

/// Two tablespaces of 64 pages, all written once, with LSN 1. From now on the first refuses writes.
fn rig() -> Rig {
    let rig = Rig::new(Doublewrite::On, FlushMethod::ODirect);
    let mut writer = rig.store.writer().unwrap();
    for space in 1..3 {
        rig.spaces
            .create(SpaceId(space), 64, Placement::InPlace)
            .unwrap();
        let pages: Vec<_> = (0..64).map(|n| (id(space, n), 1, true)).collect();
        write(&mut *writer, &pages).unwrap();
    }
    rig.disk.set_fault(Fault::Refuse(ONE));
    rig.disk.take_events();
    rig
}

fn areas(events: &[Event]) -> Vec<u64> {
    let area_len = 4096 + u64::from(BATCH_PAGES) * PAGE as u64;
    let area = |event: &Event| match event {
        Event::Write { name, offset, .. } if name == DOUBLEWRITE_FILE => {
            Some((offset - 4096) / area_len)
        }
        _ => None,
    };
    events.iter().filter_map(area).collect()
}

/// Power is lost, and pages are repaired.
fn recover(rig: &Rig, random: &mut Random) -> Arc<SpaceFiles> {
    rig.disk.power_loss(random);
    let options = options(Doublewrite::On, FlushMethod::ODirect);
    let spaces = space_files(&rig.disk, options, &Poison::default()).unwrap();
    let directory = rig.disk.directory(DIRECTORY);
    repair(&*directory, &spaces, UUID, Lsn(1)).unwrap();
    spaces
}

/// The LSN of a page, which is whole.
fn lsn_of(spaces: &SpaceFiles, id: PageId) -> u64 {
    let mut bytes = AlignedBuffer::zeroed(PAGE);
    let file = spaces.open(id.space).unwrap();
    file.read_page(id.page, &mut bytes).unwrap();
    let lsn = page_lsn(&bytes).0;
    assert!(is_page(&bytes, id, lsn), "page {id}");
    lsn
}

#[test]
fn a_failed_write_costs_its_own_pages_only() {
    let rig = rig();
    let mut writer = rig.store.writer().unwrap();
    let error = write(&mut *writer, &[(id(1, 3), 7, false), (id(2, 3), 7, false)]).unwrap_err();
    assert!(error.to_string().contains(ONE), "{error}");
    assert!(!rig.poison.is_set());
    assert_eq!(rig.count(Counter::PageWriteFailures), 1);
    assert!(is_page(&rig.read(id(2, 3)).unwrap(), id(2, 3), 7));
}

/// Its copy is all that is whole of it, and must outlive every batch that comes after it.
#[test]
fn a_page_whose_write_failed_is_whole_after_power_loss() {
    for seed in 1..60 {
        let (rig, mut random) = (rig(), Random(seed));
        let mut writer = rig.store.writer().unwrap();
        write(&mut *writer, &pages(0, 3, 7, false)).unwrap_err();
        for n in 0..3 * AREAS {
            write(&mut *writer, &[(id(2, n), 8, false)]).unwrap();
        }
        rig.disk.take_events();
        // Tried again, with newer bytes: the copy that is kept protects them.
        write(&mut *writer, &pages(1, 1, 9, false)).unwrap_err();
        assert_eq!(areas(&rig.disk.take_events()), [0; 0]);
        let spaces = recover(&rig, &mut random);
        for n in 0..3 {
            let lsn = lsn_of(&spaces, id(1, n));
            assert!([1, 7, 9].contains(&lsn), "seed {seed}, page {n}: LSN {lsn}");
        }
    }
}

#[test]
fn a_kept_copy_is_given_up_when_its_page_is_durable() {
    let rig = rig();
    let mut writer = rig.store.writer().unwrap();
    write(&mut *writer, &pages(0, 3, 7, false)).unwrap_err();
    rig.disk.set_fault(Fault::None);
    write(&mut *writer, &pages(0, 3, 8, false)).unwrap();
    assert_eq!(areas(&rig.disk.take_events()), [0]);
    for lsn in 9..9 + 2 * u64::from(AREAS) {
        write(&mut *writer, &pages(0, 3, lsn, false)).unwrap();
    }
    let used: BTreeSet<u64> = areas(&rig.disk.take_events()).into_iter().collect();
    assert_eq!(used.len(), AREAS as usize);
}

/// More failed batches than areas: their copies are gathered, and other files have room.
#[test]
fn a_file_that_cannot_be_written_does_not_stop_others() {
    for seed in 1..20 {
        let (rig, mut random) = (rig(), Random(seed));
        let mut writer = rig.store.writer().unwrap();
        for n in 0..4 * AREAS {
            write(&mut *writer, &pages(n, 1, 7, false)).unwrap_err();
            write(&mut *writer, &[(id(2, n), 7, false)]).unwrap();
        }
        let spaces = recover(&rig, &mut random);
        for n in 0..4 * AREAS {
            let lsn = lsn_of(&spaces, id(1, n));
            assert!([1, 7].contains(&lsn), "seed {seed}, page {n}: LSN {lsn}");
            assert_eq!(lsn_of(&spaces, id(2, n)), 7);
        }
    }
}

/// Without a bound one file would fill all areas with copies that must stay.
#[test]
fn a_file_with_many_kept_copies_gets_no_more() {
    let rig = rig();
    let mut writer = rig.store.writer().unwrap();
    for n in 0..40 {
        write(&mut *writer, &pages(n, 1, 7, false)).unwrap_err();
    }
    rig.disk.take_events();
    let error = write(&mut *writer, &pages(50, 1, 7, false)).unwrap_err();
    assert!(error.to_string().contains(ONE), "{error}");
    assert_eq!(rig.disk.take_events(), []);
    rig.disk.set_fault(Fault::None);
    write(&mut *writer, &pages(50, 1, 8, false)).unwrap_err();
    write(&mut *writer, &pages(0, 40, 8, false)).unwrap();
    write(&mut *writer, &pages(50, 1, 9, false)).unwrap();
}

#[test]
fn copies_of_a_dropped_table_are_given_up() {
    let rig = rig();
    let mut writer = rig.store.writer().unwrap();
    write(&mut *writer, &pages(0, 3, 7, false)).unwrap_err();
    rig.spaces.remove(SpaceId(1)).unwrap();
    rig.disk.take_events();
    for n in 0..2 * AREAS {
        write(&mut *writer, &[(id(2, n), 8, false)]).unwrap();
    }
    let used: BTreeSet<u64> = areas(&rig.disk.take_events()).into_iter().collect();
    assert_eq!(used.len(), AREAS as usize);
}
