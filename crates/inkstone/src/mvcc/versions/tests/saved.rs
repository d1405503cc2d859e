//! Versions in the undo file: saved, named, read by a later run, damaged.

use super::*;

impl Fixture {
    /// A transaction with logged versions of `count` updates, and their addresses.
    pub(super) fn logged(&self, count: u64) -> (Trx, Vec<VersionAddress>) {
        let mut trx = self.begin();
        trx.touched.log_versions(true);
        let update = |n: u64| self.update(&mut trx, &n.to_be_bytes(), b"before", NONE);
        let addresses: Result<Vec<_>> = (0..count).map(update).collect();
        (trx, addresses.unwrap())
    }

    /// Saves its undo, and has the log, up to `end`, name that.
    pub(super) fn save(&self, trx: &mut Trx, end: u64) -> UndoList {
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

/// What the log may name behind the hold's LSN stays where it is, also where a list has two places
/// by turns; what is saved meanwhile goes elsewhere.
#[test]
fn a_held_undo_file_keeps_what_the_log_names() {
    let f = fixture(1 << 20);
    let (mut trx, addresses) = f.logged(100);
    f.store.reserve_undo(&mut trx.touched, 100_000).unwrap();
    f.save(&mut trx, 400);
    let named = f.save(&mut trx, 500);
    let hold = f.store.hold_undo(Lsn(450));
    for end in [600, 700, 800] {
        f.update(&mut trx, b"more", b"before", NONE).unwrap();
        let list = f.save(&mut trx, end);
        assert_ne!(list.offset, named.offset);
        f.store.reclaim(Lsn(end));
    }
    let seq = f.system.finish_commit(&trx.state);
    f.store.give_up_space(&mut trx.touched, Lsn(900));
    f.store.finish(trx.touched, seq);
    let oldest = f.system.oldest_snapshot();
    f.store
        .retire(oldest, Lsn(900), &mut |_, _| Ok(()))
        .unwrap();
    f.store.reclaim(Lsn(1000));
    let held = f.store.undo_file_bytes();
    let (mut other, _) = f.logged(2000);
    f.save(&mut other, 950);
    let (mut seen, _) = f.found_later(named, false).unwrap();
    seen.reverse();
    assert!(seen == addresses);
    drop(hold);
    f.store.reclaim(Lsn(1000));
    assert!(f.store.undo_file_bytes() < f.undo_bytes().len() as u64 - held / 2);
    f.store.give_up_space(&mut other.touched, Lsn(1100));
    let seq = f.system.finish_commit(&other.state);
    f.store.finish(other.touched, seq);
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
    pub(super) fn found_later(
        &self,
        list: UndoList,
        lossy: bool,
    ) -> Result<(Vec<VersionAddress>, usize)> {
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

    pub(super) fn undo_bytes(&self) -> Vec<u8> {
        self.vfs.file("undo").unwrap().bytes.read().clone()
    }

    pub(super) fn set_undo_bytes(&self, bytes: &[u8]) {
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
