//! Every page size with keys and values of every length, against a plain map.

mod common;

use common::{Random, options, within};
use inkstone::Isolation::{ReadCommitted, RepeatableRead};
use inkstone::{Database, Error, Options, Table, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const PAGE_SIZES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

fn key_limit(page_size: u64) -> usize {
    (page_size as usize * 3 / 16).min(3072)
}

/// Short keys and long ones, with long common prefixes and without.
fn random_key(random: &mut Random, limit: usize) -> Vec<u8> {
    let number = random.below(400) as u32;
    let tail = number.to_be_bytes();
    match number % 5 {
        0 => tail[2..].to_vec(),
        1 => [&vec![b'p'; limit - 4][..], &tail].concat(),
        2 => [&tail[..], &vec![0xff; limit - 4]].concat(),
        3 => [&tail[3..], &vec![0; number as usize % 40][..]].concat(),
        _ => vec![number as u8; 1 + (number as usize * 37) % limit],
    }
}

fn random_value(random: &mut Random, page_size: usize) -> Vec<u8> {
    let inline = page_size / 2 - 128 - 8;
    let length = match random.below(40) {
        0..16 => random.below(60) as usize,
        16..24 => random.below(inline as u64) as usize,
        24 => inline,
        25 => inline + 1,
        26 => page_size - 32,
        27 => page_size - 31,
        28..31 => random.below(page_size as u64 * 10) as usize,
        31 if random.below(12) == 0 => (1 << 20) + random.below(2 << 20) as usize,
        _ => 0,
    };
    let first = random.next();
    (0..length)
        .map(|n| (first >> (n % 7)) as u8 ^ n as u8)
        .collect()
}

fn apply(txn: &Transaction, table: &Table, model: &mut Model, random: &mut Random, size: usize) {
    let k = random_key(random, key_limit(size as u64));
    match random.below(8) {
        0 | 1 => {
            let deleted = txn.delete(table, &k).unwrap();
            assert_eq!(deleted, model.remove(&k).is_some());
        }
        2 => {
            let value = random_value(random, size);
            match txn.insert(table, &k, &value) {
                Ok(()) => assert!(model.insert(k, value).is_none()),
                Err(Error::DuplicateKey { .. }) => assert!(model.contains_key(&k)),
                Err(other) => panic!("{other}"),
            }
        }
        3 => {
            let value = random_value(random, size);
            match txn.update(table, &k, &value) {
                Ok(()) => assert!(model.insert(k, value).is_some()),
                Err(Error::RowNotFound { .. }) => assert!(!model.contains_key(&k)),
                Err(other) => panic!("{other}"),
            }
        }
        4 => assert_eq!(txn.get(table, &k).unwrap().as_ref(), model.get(&k)),
        _ => {
            let value = random_value(random, size);
            let inserted = txn.upsert(table, &k, &value).unwrap();
            assert_eq!(inserted, model.insert(k, value).is_none());
        }
    }
}

fn check(txn: &Transaction, table: &Table, model: &Model, random: &mut Random, size: usize) {
    let mut expected = model.iter();
    for row in txn.range(table, ..).unwrap() {
        let (k, v) = row.unwrap();
        let (key, value) = expected.next().expect("a row too many");
        assert!(&k == key && &v == value);
    }
    assert!(expected.next().is_none());
    for _ in 0..10 {
        let mut bounds = [(); 2].map(|()| random_key(random, key_limit(size as u64)));
        bounds.sort();
        let [low, high] = bounds;
        let low = match random.below(3) {
            0 => Bound::Included(&low[..]),
            1 => Bound::Excluded(&low[..]),
            _ => Bound::Unbounded,
        };
        let high = match random.below(3) {
            0 => Bound::Included(&high[..]),
            1 => Bound::Excluded(&high[..]),
            _ => Bound::Unbounded,
        };
        if matches!((low, high), (Bound::Excluded(l), Bound::Excluded(h)) if l == h) {
            continue;
        }
        let expected: Vec<&Vec<u8>> = model.range::<[u8], _>((low, high)).map(|r| r.0).collect();
        let keys = |rows: inkstone::Cursor| rows.map(|r| r.unwrap().0).collect::<Vec<_>>();
        let forward = keys(txn.range(table, (low, high)).unwrap());
        assert!(forward.iter().eq(expected.iter().copied()));
        let backward = keys(txn.range_backward(table, (low, high)).unwrap());
        assert!(backward.iter().rev().eq(expected.iter().copied()));
    }
}

fn one_page_size(page_size: u64) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        page_size,
        buffer_pool_size: (64 * page_size).max(2 << 20),
        ..options()
    };
    let size = page_size as usize;
    let mut random = Random::new(page_size);
    let mut model = Model::new();
    let mut db = Database::open(dir.path(), options.clone()).unwrap();
    let mut table = db.create_table("t", &[]).unwrap();
    let limit = key_limit(page_size);
    for round in 0..9 {
        for _ in 0..12 {
            let txn = db.begin(ReadCommitted).unwrap();
            let mut now = model.clone();
            for _ in 0..random.below(25) {
                apply(&txn, &table, &mut now, &mut random, size);
            }
            if random.below(5) == 0 {
                txn.rollback().unwrap();
            } else {
                txn.commit().unwrap();
                model = now;
            }
        }
        let txn = db.begin(RepeatableRead).unwrap();
        let long = txn.insert(&table, &vec![1; limit + 1], b"");
        assert!(matches!(long, Err(Error::KeyTooLong { .. })));
        check(&txn, &table, &model, &mut random, size);
        drop(txn);
        let report = db.verify_table(&table).unwrap();
        assert_eq!(report.trees[0].1.rows, model.len() as u64);
        if round % 3 == 2 {
            drop(table);
            if round % 2 == 0 {
                db.close().unwrap();
            } else {
                drop(db);
            }
            db = Database::open(dir.path(), options.clone()).unwrap();
            table = db.table("t").unwrap();
            let txn = db.begin(RepeatableRead).unwrap();
            check(&txn, &table, &model, &mut random, size);
        }
    }
    // Many keys of the greatest length, in random order: deep trees of few keys a node.
    let txn = db.begin(ReadCommitted).unwrap();
    for n in 0..600u32 {
        let n = n * 7919 % 600;
        let mut k = vec![b'k'; limit];
        let at = [0, limit / 2, limit - 4][n as usize % 3];
        k[at..at + 4].copy_from_slice(&n.to_be_bytes());
        let value = vec![
            n as u8;
            if n % 2 == 0 {
                size / 2 - 128 - limit
            } else {
                3
            }
        ];
        txn.upsert(&table, &k, &value).unwrap();
        model.insert(k, value);
    }
    check(&txn, &table, &model, &mut random, size);
    txn.commit().unwrap();
    let report = db.verify_table(&table).unwrap();
    assert_eq!(report.trees[0].1.rows, model.len() as u64);
    let txn = db.begin(ReadCommitted).unwrap();
    for k in model.keys() {
        assert!(txn.delete(&table, k).unwrap());
    }
    txn.commit().unwrap();
    for _ in 0..30 {
        db.purge().unwrap();
    }
    let report = db.verify_table(&table).unwrap();
    // Marked rows of earlier runs stay in their leaves until a write needs the room.
    assert_eq!((report.trees[0].1.rows, report.overflow_pages), (0, 0));
}

#[test]
fn every_page_size_against_a_model() {
    for page_size in PAGE_SIZES {
        within(100, move || one_page_size(page_size));
    }
}

#[test]
fn a_value_of_100_mib() {
    within(100, || {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let value: Vec<u8> = (0..100u32 << 20).map(|n| (n / 3) as u8).collect();
        let txn = db.begin(RepeatableRead).unwrap();
        txn.insert(&table, b"undone", &value[..5 << 20]).unwrap();
        txn.rollback().unwrap();
        let txn = db.begin(RepeatableRead).unwrap();
        txn.insert(&table, b"large", &value).unwrap();
        assert!(txn.get(&table, b"large").unwrap().unwrap() == value);
        txn.commit().unwrap();
        drop((table, db));
        let db = Database::open(dir.path(), options()).unwrap();
        let table = db.table("t").unwrap();
        let txn = db.begin(RepeatableRead).unwrap();
        assert!(txn.get(&table, b"large").unwrap().unwrap() == value);
        txn.delete(&table, b"large").unwrap();
        txn.commit().unwrap();
        for _ in 0..30 {
            db.purge().unwrap();
        }
        let report = db.verify_table(&table).unwrap();
        assert!(report.allocated_pages < 20, "{}", report.allocated_pages);
    });
}
