//! The free end of the undo file goes back to the file system, and nothing else.

use super::*;
use crate::mvcc::versions::undo_end::{SPARE, WORTH};

impl Fixture {
    fn undo_length(&self) -> u64 {
        self.undo_bytes().len() as u64
    }

    /// A later store, which is not to change a file of several transactions, finds this of one.
    fn expect_saved(&self, list: UndoList, addresses: &[VersionAddress]) {
        let bytes = self.undo_bytes();
        let (mut found, lost) = self.found_later(list, false).unwrap();
        self.set_undo_bytes(&bytes);
        found.reverse();
        assert_eq!((&found[..], lost), (addresses, 0));
    }

    /// Takes space for so many bytes of versions. Where nothing can be allocated the file is
    /// written to.
    fn reserve(&self, trx: &mut Trx, bytes: u64) {
        self.store.reserve_undo(&mut trx.touched, bytes).unwrap();
    }

    /// Ends a transaction, as the log says up to `end`, and retires what it wrote.
    fn end(&self, mut trx: Trx, end: u64) {
        self.store.give_up_space(&mut trx.touched, Lsn(end));
        let seq = self.system.finish_commit(&trx.state);
        self.store.finish(trx.touched, seq);
        let oldest = self.system.oldest_snapshot();
        let retired = self.store.retire(oldest, Lsn(end), &mut |_, _| Ok(()));
        retired.unwrap();
    }
}

#[test]
fn what_is_in_use_is_not_cut() {
    let f = fixture(1 << 20);
    let giant = 4 * (SPARE + WORTH);
    // One lies below the giant, one among its space, both open.
    let (mut old, of_old) = f.logged(300);
    f.reserve(&mut old, 1);
    let low = f.save(&mut old, 10);
    let (mut first, _) = f.logged(300);
    f.reserve(&mut first, giant / 2);
    let (mut high, of_high) = f.logged(300);
    f.reserve(&mut high, 1);
    let high_list = f.save(&mut high, 20);
    let in_use = f.store.undo.lock().end();
    let (mut giant_one, _) = f.logged(300);
    f.reserve(&mut giant_one, giant);
    f.save(&mut giant_one, 30);
    let length = f.undo_length();
    assert!(length >= in_use + giant);
    f.end(giant_one, 40);
    f.end(first, 40);
    // What was reserved was never named. What was saved may be, until the log is durable.
    f.store.cut_undo_file(Cut::All, Lsn(39));
    assert!(f.undo_length() > in_use, "{} bytes", f.undo_length());
    assert_eq!(f.undo_length(), f.store.undo.lock().end());
    assert!(f.store.cut_undo_file(Cut::All, Lsn(40)) > 0);
    assert_eq!(f.undo_length(), in_use);
    f.expect_saved(low, &of_old);
    f.expect_saved(high_list, &of_high);
    // The next one has the space that is free below.
    let (mut next, _) = f.logged(300);
    f.reserve(&mut next, giant / 4);
    f.save(&mut next, 50);
    assert_eq!(f.undo_length(), in_use);
    f.end(next, 60);
    f.end(high, 60);
    f.store.cut_undo_file(Cut::All, Lsn(60));
    let low_end = f.store.undo.lock().end();
    assert_eq!(f.undo_length(), low_end);
    assert!(low_end < in_use - giant / 4, "{low_end} of {in_use}");
    f.expect_saved(low, &of_old);
    f.end(old, 70);
    f.store.cut_undo_file(Cut::All, Lsn(70));
    assert_eq!(f.undo_length(), 0);
    f.store.undo.lock().check_invariants();
}

#[test]
fn half_of_the_free_end_goes_in_each_round() {
    let f = fixture(1 << 20);
    let mut giant = f.begin();
    f.reserve(&mut giant, 16 * WORTH);
    let mut length = f.undo_length();
    f.end(giant, 10);
    assert_eq!(f.undo_length(), length, "nothing is cut at an end");
    let mut rounds = 0;
    loop {
        let cut = f.store.cut_undo_file(Cut::Half, Lsn(10));
        assert_eq!(f.undo_length(), length - cut);
        length -= cut;
        if cut == 0 {
            break;
        }
        assert!(cut >= WORTH);
        rounds += 1;
    }
    assert!((3..8).contains(&rounds), "{rounds} rounds");
    assert!((SPARE..SPARE + WORTH).contains(&length), "{length} bytes");
    let count = |counter| f.counters.get(counter);
    assert_eq!(count(Counter::UndoFileCuts), rounds);
    assert!(count(Counter::UndoFileBytesGivenBack) >= 14 * WORTH);
    // What is kept is used, and a little more does not grow the file and shrink it again.
    let mut small = f.begin();
    f.reserve(&mut small, SPARE / 2);
    assert_eq!(f.undo_length(), length);
    f.end(small, 20);
    assert_eq!(f.store.cut_undo_file(Cut::Most, Lsn(20)), 0);
    assert_eq!(f.store.undo_file_length(), length);
}

#[test]
fn a_cut_that_fails_is_tried_again() {
    let f = fixture(1 << 20);
    let mut giant = f.begin();
    f.reserve(&mut giant, 8 * WORTH);
    let length = f.undo_length();
    f.end(giant, 10);
    f.vfs.lengths_stay.store(true, Ordering::Relaxed);
    for cut in [Cut::Half, Cut::Most, Cut::All] {
        assert_eq!(f.store.cut_undo_file(cut, Lsn(10)), 0);
        assert_eq!(f.undo_length(), length);
    }
    let mut other = f.begin();
    f.reserve(&mut other, WORTH);
    assert_eq!(f.undo_length(), length);
    f.vfs.lengths_stay.store(false, Ordering::Relaxed);
    assert!(f.store.cut_undo_file(Cut::Most, Lsn(10)) > 0);
    assert_eq!(f.undo_length(), f.store.undo.lock().end() + SPARE);
    f.end(other, 20);
}

/// What an earlier run has left, of which nothing is in use, is found; and no file is made.
#[test]
fn a_file_of_an_earlier_run_is_cut() {
    let f = fixture(1 << 20);
    assert_eq!(f.store.cut_undo_file(Cut::Most, Lsn(1)), 0);
    assert!(f.vfs.file("undo").is_none(), "it was made");
    let mut giant = f.begin();
    f.reserve(&mut giant, 8 * WORTH);
    let later = VersionStore::open(f.vfs.clone(), 1 << 20, 2, f.counters.clone()).unwrap();
    assert!(later.cut_undo_file(Cut::Most, Lsn(0)) > 0);
    assert_eq!(f.undo_length(), SPARE);
    assert_eq!(later.undo_file_length(), SPARE);
    f.end(giant, 10);
}

/// Where undo could not be read, and was passed over, it may be read another time.
#[test]
fn nothing_is_cut_where_undo_was_passed_over() {
    let f = fixture(1 << 20);
    let (mut trx, _) = f.logged(300);
    f.reserve(&mut trx, 8 * WORTH);
    let list = f.save(&mut trx, 1);
    let length = f.undo_length();
    let later = VersionStore::open(f.vfs.clone(), 1 << 20, 2, f.counters.clone()).unwrap();
    let wrong = UndoList {
        checksum: !list.checksum,
        ..list
    };
    later.adopt_saved(&[wrong], true).unwrap();
    assert_eq!(later.lost_undo().len(), 1);
    assert_eq!(later.cut_undo_file(Cut::All, Lsn(1)), 0);
    assert_eq!(f.undo_length(), length);
    f.end(trx, 10);
}

/// Where the disk has no room, all of the free end goes, and the error says what for.
#[test]
fn a_full_disk_has_its_free_end_back() {
    let f = fixture(1 << 20);
    let mut trx = f.begin();
    f.reserve(&mut trx, WORTH);
    let mut other = f.begin();
    f.reserve(&mut other, SPARE);
    f.end(other, 10);
    let length = f.undo_length();
    assert_eq!(
        f.store.cut_undo_file(Cut::Most, Lsn(10)),
        0,
        "it is a little"
    );
    f.vfs.limit.store(length, Ordering::Relaxed);
    let unit = f.store.logged_segment_bytes() as u64;
    let wanted = f
        .store
        .reserve_undo(&mut trx.touched, length + WORTH + unit);
    let text = wanted.unwrap_err().to_string();
    let missing = (length + WORTH + unit).div_ceil(unit) * unit - WORTH.div_ceil(unit) * unit;
    let begin = format!("no space left for {missing} bytes of undo in ");
    assert!(text.starts_with(&begin), "{text}\n{begin}");
    assert!(text.contains("/undo; "), "{text}");
    f.end(trx, 20);
    f.store.cut_undo_file(Cut::Half, Lsn(20));
    assert_eq!(f.undo_length(), 0);
}
