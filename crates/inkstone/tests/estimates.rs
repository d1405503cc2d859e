//! Estimates of how many different values keys have: near the truth for few values over many rows,
//! for many, and for a mixture, from the same few pages. They were capped by the sample: 139 of 3
//! values over 600,000 rows.

mod common;

use common::*;
use inkstone::{Database, Isolation, Options, TableTree};
use std::ops::Bound;

const ROWS: u32 = 200_000;

/// A tree of rows whose keys have two parts of four bytes.
fn filled(dir: &tempfile::TempDir, parts: impl Fn(u32) -> (u32, u32)) -> (Database, TableTree) {
    let mut all = options();
    all.page_size = 4096;
    let db = Database::open(dir.path(), Options { ..all }).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let mut keys: Vec<Vec<u8>> = (0..ROWS)
        .map(parts)
        .map(|(one, other)| [one.to_be_bytes(), other.to_be_bytes()].concat())
        .collect();
    keys.sort();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for key in &keys {
        txn.insert(&table, key, b"a value").unwrap();
    }
    txn.commit().unwrap();
    let tree = table.trees()[0].clone();
    (db, tree)
}

/// Values of the first part, and of both.
fn values(tree: &TableTree, leaves: usize) -> [u64; 2] {
    [4, 8].map(|bytes| {
        let mut beginning = |key: &[u8]| (key.len() >= bytes).then_some(bytes);
        tree.estimate_values(leaves, &mut beginning).unwrap()
    })
}

fn check(truth: u64, parts: impl Fn(u32) -> (u32, u32) + Send + 'static) {
    within(120, move || {
        let dir = tempfile::tempdir().unwrap();
        let (db, tree) = filled(&dir, parts);
        let height = tree.estimates().unwrap().height;
        assert!(height >= 3, "of {height} levels");
        let [first, both] = values(&tree, 20);
        println!("{truth}: {first}, both {both}");
        assert!(
            first * 2 >= truth && first <= truth * 2,
            "{first} for {truth}"
        );
        assert!((ROWS / 2..ROWS * 2).contains(&(both as u32)), "{both} rows");
        if truth < 20 {
            assert_eq!(first, truth, "few values are counted");
        }
        db.close().unwrap();
    });
}

#[test]
fn three_values() {
    check(3, |row| (row % 3, row));
}

#[test]
fn more_values_than_leaves_that_are_looked_at() {
    check(150, |row| (row % 150, row));
}

#[test]
fn some_values_a_leaf() {
    check(10_000, |row| (row % 10_000, row));
}

#[test]
fn as_many_values_as_rows() {
    check(u64::from(ROWS), |row| (row, 0));
}

#[test]
fn one_value_in_most_rows_and_another_in_each_of_the_rest() {
    check(u64::from(ROWS / 10), |row| {
        (if row % 10 == 0 { row } else { 5 }, row)
    });
}

#[test]
fn an_empty_tree_has_no_value_and_a_small_one_is_counted() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        assert_eq!(values(&table.trees()[0], 20), [0, 0]);
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for row in 0..500u32 {
            let parts = [(row / 100).to_be_bytes(), row.to_be_bytes()].concat();
            txn.insert(&table, &parts, b"").unwrap();
        }
        txn.commit().unwrap();
        assert_eq!(values(&table.trees()[0], 20), [5, 500]);
        db.close().unwrap();
    });
}

#[test]
fn long_values_are_counted_apart() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let table = db.create_table("t", &["s"]).unwrap();
    let insert = |numbers: std::ops::Range<u64>, bytes: usize| {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in numbers {
            txn.insert(&table, &n.to_be_bytes(), &vec![7; bytes])
                .unwrap();
            txn.insert(table.tree("s").unwrap(), &n.to_be_bytes(), b"")
                .unwrap();
        }
        txn.commit().unwrap();
    };
    insert(0..5000, 100);
    let short = db.statistics(&table).unwrap();
    assert_eq!(short.long_value_bytes, 0, "{short:?}");
    assert!(short.secondary_pages >= 3, "{short:?}");
    insert(5000..5040, 100_000);
    let long = db.statistics(&table).unwrap();
    let least = 40 * 100_000;
    assert!(
        (least..least * 3 / 2).contains(&long.long_value_bytes),
        "{long:?}"
    );
}

#[test]
fn ranges_know_the_leaves_of_their_ends() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let key = |n: u64| n.to_be_bytes();
    for n in 0..20_000 {
        txn.insert(&table, &key(n), &[7; 100]).unwrap();
    }
    txn.commit().unwrap();
    let tree = &table.trees()[0];
    let estimate = |low: u64, high: u64| {
        let bounds = (
            Bound::Included(&key(low)[..]),
            Bound::Excluded(&key(high)[..]),
        );
        tree.estimate_range(bounds).unwrap()
    };
    let one = estimate(5, 6);
    assert_eq!((one.rows, one.first_page), (1, one.last_page));
    let few = estimate(5, 400);
    assert_eq!((few.rows, few.first_page), (395, one.first_page));
    assert_ne!(few.last_page, few.first_page);
    // More leaves than are counted; its ends are the same leaves.
    let many = estimate(5, 19_999);
    assert!((15_000..25_000).contains(&many.rows), "{many:?}");
    assert_eq!(many.first_page, one.first_page);
    let last = estimate(19_998, 19_999);
    assert_eq!(many.last_page, last.last_page);
    let all = tree
        .estimate_range((Bound::Unbounded, Bound::Unbounded))
        .unwrap();
    assert_eq!(
        (all.first_page, all.last_page),
        (one.first_page, last.last_page)
    );
}
