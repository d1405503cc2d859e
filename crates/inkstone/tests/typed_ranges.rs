//! What typed tables read and change at once: prefixes, backward, many keys, ranges, rows that are
//! locked.

mod common;

use common::{blocked, open, within};
use inkstone::typed::{KeyRange, TypedTable, starting_with};
use inkstone::{Database, Error, Isolation, LockMode, Transaction, Wait};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

type Words = TypedTable<(String, u8), u32>;

fn words(db: &Database) -> Words {
    Words::builder("words")
        .index("by_number", |_, number| (*number % 3, *number))
        .unique_index("by_both", |key, number| (key.0.clone(), key.1, *number))
        .open(db)
        .unwrap()
}

fn keys<R: KeyRange<(String, u8)>>(
    words: &Words,
    txn: &Transaction,
    range: R,
) -> Vec<(String, u8)> {
    let rows = words.range(txn, range).unwrap();
    rows.map(|row| row.unwrap().0).collect()
}

/// Every entry of the indexes is one of a row, and each row has its entries.
fn check(words: &Words, txn: &Transaction) {
    let rows: Vec<_> = words.range(txn, ..).unwrap().map(Result::unwrap).collect();
    let mut by_number: Vec<_> = rows.iter().map(|(k, n)| ((n % 3, *n), k.clone())).collect();
    by_number.sort();
    let entries = words.by_index::<(u32, u32)>(txn, "by_number", ..).unwrap();
    let entries: Vec<_> = entries.map(Result::unwrap).collect();
    assert_eq!(entries, by_number);
    let backward = words.by_index_backward::<(u32, u32)>(txn, "by_number", ..);
    let mut backward: Vec<_> = backward.unwrap().map(Result::unwrap).collect();
    backward.reverse();
    assert_eq!(backward, by_number);
    for (key, number) in &rows {
        let both = (key.0.clone(), key.1, *number);
        let found = words.get_by_index(txn, "by_both", &both).unwrap();
        assert_eq!(found, Some((key.clone(), *number)));
    }
    let entries = words
        .by_index::<(String, u8, u32)>(txn, "by_both", ..)
        .unwrap();
    assert_eq!(entries.count(), rows.len());
}

#[derive(Clone, Debug)]
enum Step {
    Upsert(String, u8, u32),
    UpdateWith(String, u8, u32),
    Delete(String, u8),
    DeletePrefix(String),
    DeleteRange(String, String),
}

fn steps() -> impl Strategy<Value = Step> {
    let text = || "[\u{0}ab]{0,2}";
    let number = 0..3u8;
    prop_oneof![
        4 => (text(), number.clone(), 0..9u32).prop_map(|(s, n, v)| Step::Upsert(s, n, v)),
        2 => (text(), number.clone(), 0..9u32).prop_map(|(s, n, v)| Step::UpdateWith(s, n, v)),
        2 => (text(), number).prop_map(|(s, n)| Step::Delete(s, n)),
        1 => text().prop_map(Step::DeletePrefix),
        1 => (text(), text()).prop_map(|(a, b)| Step::DeleteRange(a, b)),
    ]
}

fn run(words: &Words, txn: &Transaction, model: &mut BTreeMap<(String, u8), u32>, step: Step) {
    match step {
        Step::Upsert(text, n, value) => {
            let key = (text, n);
            let is_new = words.upsert(txn, &key, &value).unwrap();
            assert_eq!(is_new, model.insert(key, value).is_none());
        }
        Step::UpdateWith(text, n, value) => {
            let key = (text, n);
            let old = words.update_with(txn, &key, |v| std::mem::replace(v, value));
            match model.get_mut(&key) {
                Some(v) => assert_eq!(old.unwrap(), std::mem::replace(v, value)),
                None => assert!(matches!(old, Err(Error::RowNotFound { .. }))),
            }
        }
        Step::Delete(text, n) => {
            let key = (text, n);
            let was_there = words.delete(txn, &key).unwrap();
            assert_eq!(was_there, model.remove(&key).is_some());
        }
        Step::DeletePrefix(text) => {
            let before = model.len();
            model.retain(|key, _| key.0 != text);
            let deleted = words.delete_range(txn, starting_with((text,))).unwrap();
            assert_eq!(deleted as usize, before - model.len());
        }
        Step::DeleteRange(from, to) => {
            let range = (from, 1)..(to, 1);
            let before = model.len();
            model.retain(|key, _| !range.contains(key));
            let deleted = words.delete_range(txn, range).unwrap();
            assert_eq!(deleted as usize, before - model.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn changes_against_a_model(all in proptest::collection::vec(steps(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let words = words(&db);
        let mut model = BTreeMap::new();
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        for step in all {
            run(&words, &txn, &mut model, step);
        }
        check(&words, &txn);
        let all: Vec<_> = model.keys().cloned().collect();
        prop_assert_eq!(keys(&words, &txn, ..), all);
        for first in ["", "\0", "a", "ab"] {
            let wanted: Vec<_> = model.keys().filter(|k| k.0 == first).cloned().collect();
            prop_assert_eq!(keys(&words, &txn, starting_with((first.to_owned(),))), wanted);
        }
        let some: Vec<_> = ["", "a", "b\0", "nothing"].map(|s| (s.to_owned(), 1)).into();
        let wanted: Vec<_> = some.iter().map(|key| model.get(key).copied()).collect();
        prop_assert_eq!(words.get_many(&txn, &some).unwrap(), wanted);
    }
}

#[test]
fn text_and_bytes_that_begin_alike() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let texts = TypedTable::<String, Vec<u8>>::builder("texts")
        .index("by_bytes", |_, bytes| bytes.clone())
        .open(&db)
        .unwrap();
    let all = [
        "",
        "a",
        "a\0",
        "a\0b",
        "a\u{1}",
        "ab",
        "ab\u{10ffff}",
        "b",
        "\u{10ffff}",
    ];
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    for text in all {
        let bytes = text.as_bytes().to_vec();
        texts.insert(&txn, &text.to_owned(), &bytes).unwrap();
    }
    for prefix in ["", "a", "a\0", "ab", "ab\u{10ffff}", "b", "c", "\u{10ffff}"] {
        let mut wanted: Vec<_> = all.into_iter().filter(|t| t.starts_with(prefix)).collect();
        wanted.sort();
        let found = texts.range(&txn, starting_with(prefix)).unwrap();
        let found: Vec<_> = found.map(|row| row.unwrap().0).collect();
        assert_eq!(found, wanted, "{prefix:?}");
        let by_bytes = starting_with(prefix.as_bytes());
        let found = texts.by_index_backward::<Vec<u8>>(&txn, "by_bytes", by_bytes);
        let found: Vec<_> = found.unwrap().map(|entry| entry.unwrap().1).collect();
        wanted.reverse();
        assert_eq!(found, wanted, "{prefix:?}");
    }
    let found = texts.by_index::<Vec<u8>>(&txn, "by_bytes", starting_with(b"ab"));
    assert_eq!(found.unwrap().count(), 2);
}

#[test]
fn an_index_that_is_not_unique_has_no_one_row() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let words = words(&db);
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let error = words
        .get_by_index(&txn, "by_number", &(1u32, 1u32))
        .unwrap_err();
    assert!(error.to_string().contains("by_index"), "{error}");
    let error = words.get_by_index(&txn, "by_both", &7u8).unwrap_err();
    assert!(error.to_string().contains("u8"), "{error}");
    assert!(words.get_by_index(&txn, "none", &7u8).is_err());
    let none = ("a".to_owned(), 1u8, 1u32);
    assert_eq!(words.get_by_index(&txn, "by_both", &none).unwrap(), None);
}

/// At read committed each call has a snapshot of its own: the entry and the row of one of them.
#[test]
fn reads_by_index_and_of_many_keys_see_one_snapshot() {
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = TypedTable::<u32, u64>::builder("t")
            .unique_index("by_value", |key, value| {
                (u64::from(*key) << 32) | (*value % 2)
            })
            .open(&db)
            .unwrap();
        let keys: Vec<u32> = (0..200).collect();
        db.transact(Isolation::ReadCommitted, |txn| {
            keys.iter().try_for_each(|key| table.insert(txn, key, &0))
        })
        .unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 1..=60 {
                    db.transact(Isolation::ReadCommitted, |txn| {
                        keys.iter().try_for_each(|key| table.update(txn, key, &n))
                    })
                    .unwrap();
                }
            });
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            while !writer.is_finished() {
                let values = table.get_many(&txn, &keys).unwrap();
                assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                for parity in 0..2 {
                    let found = table
                        .get_by_index(&txn, "by_value", &((5 << 32) | parity))
                        .unwrap();
                    assert!(
                        found.is_none_or(|(_, value)| value % 2 == parity),
                        "{found:?}"
                    );
                }
            }
        });
    });
}

#[test]
fn rows_are_locked_waited_for_and_skipped() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let words = words(&db);
        let key = |n| ("w".to_owned(), n);
        db.transact(Isolation::ReadCommitted, |txn| {
            (0..4).try_for_each(|n| words.insert(txn, &key(n), &u32::from(n)))
        })
        .unwrap();
        let begin = || db.begin(Isolation::ReadCommitted).unwrap();
        let holder = begin();
        let get = |txn: &Transaction, n, mode, wait| words.get_locking(txn, &key(n), mode, wait);
        assert_eq!(
            get(&holder, 1, LockMode::Exclusive, Wait::Timeout).unwrap(),
            Some(1)
        );
        assert_eq!(
            get(&holder, 2, LockMode::Shared, Wait::Timeout).unwrap(),
            Some(2)
        );
        let other = begin();
        let refused = get(&other, 1, LockMode::Shared, Wait::NoWait);
        assert!(matches!(refused, Err(Error::LockNotAvailable)));
        assert_eq!(
            get(&other, 1, LockMode::Shared, Wait::SkipLocked).unwrap(),
            None
        );
        assert_eq!(
            get(&other, 2, LockMode::Shared, Wait::NoWait).unwrap(),
            Some(2)
        );
        let range = starting_with(("w".to_owned(),));
        let skipping = words
            .range_locking(&other, range, LockMode::Exclusive, Wait::SkipLocked)
            .unwrap();
        let free: Vec<u32> = skipping.map(|row| row.unwrap().1).collect();
        assert_eq!(free, [0, 3]);
        other.rollback().unwrap();
        std::thread::scope(|scope| {
            let waiter = blocked(scope, || {
                let txn = begin();
                words.update_with(&txn, &key(1), |n| *n += 10).unwrap();
                txn.commit().unwrap();
            });
            words.update(&holder, &key(1), &5).unwrap();
            holder.commit().unwrap();
            waiter.join().unwrap();
        });
        let txn = begin();
        assert_eq!(words.get(&txn, &key(1)).unwrap(), Some(15));
        check(&words, &txn);
    });
}

#[test]
fn a_row_that_is_not_wanted_is_unlocked() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let words = words(&db);
    let key = ("w".to_owned(), 1);
    db.transact(Isolation::ReadCommitted, |txn| words.insert(txn, &key, &1))
        .unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let mut rows = words
        .range_locking(&txn, .., LockMode::Exclusive, Wait::Timeout)
        .unwrap();
    rows.next().unwrap().unwrap();
    assert!(rows.unlock_row().unwrap());
    let other = db.begin(Isolation::ReadCommitted).unwrap();
    let free = words.get_locking(&other, &key, LockMode::Exclusive, Wait::NoWait);
    assert_eq!(free.unwrap(), Some(1));
}

/// A range of which one row is locked by another transaction: nothing of it is deleted.
#[test]
fn a_range_is_deleted_as_a_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let words = words(&db);
    let key = |n| ("w".to_owned(), n);
    db.transact(Isolation::ReadCommitted, |txn| {
        (0..9).try_for_each(|n| words.insert(txn, &key(n), &u32::from(n)))
    })
    .unwrap();
    let holder = db.begin(Isolation::ReadCommitted).unwrap();
    words.update(&holder, &key(6), &60).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.set_lock_wait_timeout(Duration::from_millis(5));
    let range = starting_with(("w".to_owned(),));
    let refused = words.delete_range(&txn, range.clone());
    assert!(matches!(refused, Err(Error::LockTimeout { .. })));
    assert_eq!(keys(&words, &txn, ..).len(), 9);
    holder.commit().unwrap();
    check(&words, &txn);
    assert_eq!(words.delete_range(&txn, range).unwrap(), 9);
    check(&words, &txn);
}
