//! Many threads on one table; pools far smaller than the data; versions that outgrow their memory;
//! space that comes back; transactions that stay open for long.

mod common;

use common::{Random, commit, is_retryable, key, log_bytes, num, number, open, options, within};
use inkstone::Isolation::{ReadCommitted, RepeatableRead, Serializable};
use inkstone::{Database, Error, Isolation, LockMode, Options, Result, Table, Transaction, Wait};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

fn status(db: &Database, name: &str) -> u64 {
    let all = db.status();
    all.iter().find(|(n, _)| *n == name).unwrap().1
}

/// Lets threads work for so long; where they are slow, as under ThreadSanitizer, longer, until
/// `enough`.
fn let_work(seconds: u64, enough: impl Fn() -> bool) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(if enough() { seconds } else { 30 }) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

const ACCOUNTS: u64 = 300;

fn sum(txn: &Transaction, table: &Table, backward: bool) -> Result<i64> {
    let rows = if backward {
        txn.range_backward(table, ..)?
    } else {
        txn.range(table, ..)?
    };
    let mut total = 0;
    for row in rows {
        // The value is padded, so that the table has several leaves, and changes its length.
        let value = row?.1;
        total += num(value.split(|&b| b == b' ').next().unwrap());
    }
    Ok(total)
}

fn padded(amount: i64, random: &mut Random) -> Vec<u8> {
    format!("{amount} {}", "x".repeat(random.below(200) as usize)).into_bytes()
}

fn transfer(txn: &Transaction, table: &Table, random: &mut Random) -> Result<()> {
    let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
    let amount = random.below(50) as i64;
    let balance = |k: u64| -> Result<i64> {
        let value = match txn.isolation() {
            ReadCommitted => txn.get_locking(table, &key(k), LockMode::Exclusive, Wait::Timeout)?,
            _ => txn.get(table, &key(k))?,
        };
        Ok(num(value.unwrap().split(|&b| b == b' ').next().unwrap()))
    };
    let first = balance(from)? - amount;
    txn.update(table, &key(from), &padded(first, random))?;
    if random.below(5) == 0 {
        txn.savepoint("s")?;
        txn.delete(table, &key(to))?;
        txn.rollback_to_savepoint("s")?;
    }
    let second = balance(to)? + amount;
    let value = padded(second, random);
    if random.below(4) == 0 {
        txn.delete(table, &key(to))?;
        txn.insert(table, &key(to), &value)
    } else {
        txn.update(table, &key(to), &value)
    }
}

#[test]
fn transfers_keep_the_sum() {
    for level in [ReadCommitted, RepeatableRead, Serializable] {
        within(120, move || transfers(level));
    }
}

fn transfers(level: Isolation) {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let table = db.create_table("t", &[]).unwrap();
    commit(&db, |txn| {
        let rows = (0..ACCOUNTS).map(|n| (key(n), b"1000 x".to_vec()));
        txn.insert_many(&table, rows).unwrap();
    });
    let total = ACCOUNTS as i64 * 1000;
    let (over, committed, scans) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    scope(|s| {
        for worker in 0..6 {
            let (db, table, over, committed) = (&db, &table, &over, &committed);
            s.spawn(move || {
                let mut random = Random::new(worker);
                while !over.load(Ordering::Relaxed) {
                    let txn = db.begin(level).unwrap();
                    match transfer(&txn, table, &mut random) {
                        Ok(()) if random.below(8) == 0 => txn.rollback().unwrap(),
                        Ok(()) => {
                            txn.commit().unwrap();
                            committed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => assert!(is_retryable(&error), "{error}"),
                    }
                }
            });
        }
        for backward in [false, true] {
            let (db, table, over, scans) = (&db, &table, &over, &scans);
            s.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let txn = db.begin(level).unwrap();
                    for _ in 0..3 {
                        match sum(&txn, table, backward) {
                            Ok(found) => {
                                assert_eq!(found, total, "{level:?}");
                                scans.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => {
                                assert!(is_retryable(&error), "{error}");
                                break;
                            }
                        }
                    }
                    drop(txn);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        let_work(2, || {
            committed.load(Ordering::Relaxed) > 50 && scans.load(Ordering::Relaxed) > 0
        });
        over.store(true, Ordering::Relaxed);
    });
    assert!(committed.load(Ordering::Relaxed) > 50);
    assert!(scans.load(Ordering::Relaxed) > 0);
    let txn = db.begin(RepeatableRead).unwrap();
    assert_eq!(sum(&txn, &table, false).unwrap(), total);
    drop(txn);
    assert_eq!(db.verify_table(&table).unwrap().trees[0].1.rows, ACCOUNTS);
    assert_eq!(
        (status(&db, "row_locks"), status(&db, "range_locks")),
        (0, 0)
    );
    assert_eq!(status(&db, "active_transactions"), 0);
}

/// Keys below `KEYS`; those that are 0 modulo 8 stay, the others belong to a thread each.
const KEYS: u64 = 24_000;

fn churn(db: &Database, table: &Table, over: &AtomicBool, mine: u64) -> BTreeMap<u64, usize> {
    let mut random = Random::new(mine);
    let mut model = BTreeMap::new();
    let mut inserting = true;
    while !over.load(Ordering::Relaxed) {
        let txn = db.begin(ReadCommitted).unwrap();
        let mut now = model.clone();
        for _ in 0..1 + random.below(30) {
            let k = random.below(KEYS / 8) * 8 + mine;
            if random.below(10) < if inserting { 9 } else { 1 } {
                let len = random.below(400) as usize;
                txn.upsert(table, &key(k), &vec![mine as u8; len]).unwrap();
                now.insert(k, len);
            } else {
                // Neighbours go together, so that leaves become empty.
                for k in (k..k + 400).step_by(8) {
                    let deleted = txn.delete(table, &key(k)).unwrap();
                    assert_eq!(deleted, now.remove(&k).is_some());
                }
            }
        }
        if random.below(10) == 0 {
            txn.rollback().unwrap();
        } else {
            txn.commit().unwrap();
            model = now;
        }
        if random.below(40) == 0 {
            inserting = !inserting;
        }
    }
    model
}

fn check_scan(txn: &Transaction, table: &Table, backward: bool) {
    let rows = if backward {
        txn.range_backward(table, ..).unwrap()
    } else {
        txn.range(table, ..).unwrap()
    };
    let mut stable = 0;
    let mut last = None;
    for row in rows {
        let (k, value) = row.unwrap();
        let k = number(&k);
        assert!(value.iter().all(|&b| u64::from(b) == k % 8));
        if let Some(last) = last {
            assert!(
                if backward { k < last } else { k > last },
                "{k} after {last}"
            );
        }
        last = Some(k);
        if k.is_multiple_of(8) {
            let expected = if backward {
                KEYS / 8 - 1 - stable
            } else {
                stable
            };
            assert_eq!(k, expected * 8);
            stable += 1;
        }
    }
    assert_eq!(stable, KEYS / 8);
}

#[test]
fn scans_while_leaves_split_and_merge() {
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            let rows = (0..KEYS / 8).map(|n| (key(n * 8), vec![0; 20]));
            txn.insert_many(&table, rows).unwrap();
        });
        let over = AtomicBool::new(false);
        let models: Vec<_> = scope(|s| {
            let (db, table, over) = (&db, &table, &over);
            let writers: Vec<_> = (1..8)
                .map(|mine| s.spawn(move || churn(db, table, over, mine)))
                .collect();
            for (level, backward) in [(ReadCommitted, false), (RepeatableRead, true)] {
                s.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let txn = db.begin(level).unwrap();
                        check_scan(&txn, table, backward);
                        check_scan(&txn, table, !backward);
                    }
                });
            }
            let changed = || status(db, "leaf_splits") > 10 && status(db, "page_merges") > 10;
            let_work(6, changed);
            over.store(true, Ordering::Relaxed);
            writers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        let mut expected: BTreeMap<u64, usize> = (0..KEYS / 8).map(|n| (n * 8, 20)).collect();
        for model in models {
            expected.extend(model);
        }
        let txn = db.begin(RepeatableRead).unwrap();
        let found: BTreeMap<u64, usize> = txn
            .range(&table, ..)
            .unwrap()
            .map(|row| row.unwrap())
            .map(|(k, v)| (number(&k), v.len()))
            .collect();
        assert!(found == expected);
        drop(txn);
        assert!(status(&db, "leaf_splits") > 10 && status(&db, "page_merges") > 10);
        db.verify_table(&table).unwrap();
    });
}

/// `threads` threads read and write a table of `rows` rows of about 1,000 bytes.
fn small_pool(options: Options, threads: u64, rows: u64, operations: u64) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let value = |k: u64, n: u64| -> Vec<u8> {
        let mut value = vec![k as u8; 900 + (k % 200) as usize];
        value[..8].copy_from_slice(&n.to_be_bytes());
        value
    };
    for from in (0..rows).step_by(2000) {
        commit(&db, |txn| {
            let batch = (from..(from + 2000).min(rows)).map(|k| (key(k), value(k, 0)));
            txn.insert_many(&table, batch).unwrap();
        });
    }
    let added = AtomicU64::new(0);
    scope(|s| {
        for worker in 0..threads {
            let (db, table, added, value) = (&db, &table, &added, &value);
            s.spawn(move || {
                let mut random = Random::new(worker);
                for n in 0..operations {
                    let txn = db.begin(ReadCommitted).unwrap();
                    let k = random.below(rows);
                    match random.below(6) {
                        0..=2 => {
                            let lock = LockMode::Exclusive;
                            let old = txn
                                .get_locking(table, &key(k), lock, Wait::Timeout)
                                .unwrap()
                                .unwrap();
                            assert_eq!(old[8..], value(k, 0)[8..]);
                            let count = number(&old[..8]) + 1;
                            txn.update(table, &key(k), &value(k, count)).unwrap();
                            added.fetch_add(1, Ordering::Relaxed);
                        }
                        3 => {
                            let new = key(rows + worker * operations + n);
                            let length = random.below(4) as usize * 60_000;
                            txn.insert(table, &new, &vec![1; length]).unwrap();
                        }
                        _ => {
                            let found = txn.get(table, &key(k)).unwrap().unwrap();
                            assert_eq!(found[8..], value(k, 0)[8..]);
                            let (low, high) = (key(k), key((k + 50).min(rows)));
                            let range = txn.range(table, &low[..]..&high[..]).unwrap();
                            let found: Vec<_> = range.map(|row| row.unwrap()).collect();
                            let count = found.len() as u64;
                            assert_eq!(count, 50.min(rows - k));
                        }
                    }
                    txn.commit().unwrap();
                }
            });
        }
    });
    let txn = db.begin(RepeatableRead).unwrap();
    let end = key(rows);
    let found: u64 = txn
        .range(&table, ..&end[..])
        .unwrap()
        .map(|row| number(&row.unwrap().1[..8]))
        .sum();
    assert_eq!(found, added.load(Ordering::Relaxed));
    drop(txn);
    db.verify_table(&table).unwrap();
    drop((table, db));
}

#[test]
fn a_pool_of_8_mib_serves_256_threads() {
    for page_size in [16 << 10, 64 << 10] {
        let options = Options {
            page_size,
            ..options()
        };
        within(120, move || small_pool(options, 256, 30_000, 12));
    }
}

#[test]
fn any_number_of_pool_instances() {
    for buffer_pool_instances in [1, 64] {
        let options = Options {
            buffer_pool_instances,
            ..options()
        };
        within(60, move || small_pool(options, 16, 15_000, 60));
    }
}

#[test]
fn versions_beyond_their_memory_go_to_a_file_and_come_back() {
    within(60, || {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            version_store_memory: 1 << 20,
            ..options()
        };
        let db = Database::open(dir.path(), options).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let value = |k: u64, n: u64| vec![(k * 31 + n) as u8; 500 + ((k + n) % 50) as usize];
        commit(&db, |txn| {
            txn.insert_many(&table, (0..1000).map(|k| (key(k), value(k, 0))))
                .unwrap();
        });
        let mut snapshots = vec![(0, db.begin_with_snapshot().unwrap())];
        for n in 1..=12 {
            // One half in large transactions, the other in small ones by several threads.
            commit(&db, |txn| {
                for k in 0..500 {
                    txn.update(&table, &key(k), &value(k, n)).unwrap();
                }
            });
            scope(|s| {
                for part in 0..4 {
                    let (db, table, value) = (&db, &table, &value);
                    s.spawn(move || {
                        for k in (500 + part..1000).step_by(4) {
                            commit(db, |txn| {
                                if (k + n) % 5 == 0 {
                                    txn.delete(table, &key(k)).unwrap();
                                    txn.insert(table, &key(k), &value(k, n)).unwrap();
                                } else {
                                    txn.update(table, &key(k), &value(k, n)).unwrap();
                                }
                            });
                        }
                    });
                }
            });
            // One that is rolled back out of the file.
            let undone = db.begin(ReadCommitted).unwrap();
            for k in 0..1000 {
                undone.update(&table, &key(k), &value(k, 77)).unwrap();
            }
            undone.rollback().unwrap();
            if n % 4 == 0 {
                snapshots.push((n, db.begin_with_snapshot().unwrap()));
            }
        }
        assert!(status(&db, "version_store_spilled_bytes") > 2 << 20);
        assert!(status(&db, "version_store_bytes") < 3 << 20);
        for (n, txn) in &snapshots {
            let rows = txn.range(&table, ..).unwrap().map(|row| row.unwrap());
            let mut count = 0;
            for (k, v) in rows {
                assert_eq!(v, value(number(&k), *n));
                count += 1;
            }
            assert_eq!(count, 1000);
        }
        drop(snapshots);
        let begin = Instant::now();
        while status(&db, "version_store_spilled_bytes") > 0 {
            assert!(begin.elapsed() < Duration::from_secs(10), "the file stays");
            std::thread::sleep(Duration::from_millis(20));
        }
        db.verify_table(&table).unwrap();
    });
}

/// Rows are inserted at one end and deleted at the other: the file does not grow for ever.
#[test]
fn a_queue_uses_its_space_again() {
    within(100, || {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir);
        let table = db.create_table("t", &[]).unwrap();
        let (mut pages, mut allocated) = (Vec::new(), Vec::new());
        for round in 0..40u64 {
            commit(&db, |txn| {
                let rows = (round * 2000..(round + 1) * 2000).map(|k| (key(k), vec![1; 200]));
                txn.insert_many(&table, rows).unwrap();
                if round % 4 == 0 {
                    txn.insert(&table, &key(1 << 60 | round), &[2; 100_000])
                        .unwrap();
                }
            });
            if round >= 2 {
                commit(&db, |txn| {
                    for k in (round - 2) * 2000..(round - 1) * 2000 {
                        assert!(txn.delete(&table, &key(k)).unwrap());
                    }
                    txn.delete(&table, &key(1 << 60 | (round - 2))).unwrap();
                });
            }
            for _ in 0..6 {
                db.purge().unwrap();
            }
            let report = db.verify_table(&table).unwrap();
            pages.push(report.file_pages);
            allocated.push(report.allocated_pages);
        }
        let (early, late) = (allocated[8..12].iter().max(), allocated[36..].iter().max());
        assert!(late < early.map(|n| n + 10).as_ref(), "{allocated:?}");
        assert!(pages[39] <= pages[12] + 64, "{pages:?}");
        // Everything deleted: hardly anything is left.
        commit(&db, |txn| {
            let rows: Vec<_> = txn
                .range(&table, ..)
                .unwrap()
                .map(|r| r.unwrap().0)
                .collect();
            for k in rows {
                txn.delete(&table, &k).unwrap();
            }
        });
        for _ in 0..8 {
            db.purge().unwrap();
        }
        let report = db.verify_table(&table).unwrap();
        assert_eq!(report.trees[0].1.deleted_rows, 0);
        assert!(report.allocated_pages < 10, "{report:?}");
    });
}

#[test]
fn an_idle_transaction_does_not_pin_the_log() {
    within(120, || {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            log_file_size: 16 << 20,
            ..options()
        };
        let db = Database::open(dir.path(), options.clone()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        commit(&db, |txn| {
            txn.insert_many(&table, (0..2000).map(|k| (key(k), vec![1; 2000])))
                .unwrap();
        });
        let idle = db.begin(ReadCommitted).unwrap();
        for k in 0..100 {
            idle.update(&table, &key(k), &[2; 100]).unwrap();
            idle.delete(&table, &key(100 + k)).unwrap();
            idle.insert(&table, &key(10_000 + k), &[2; 500]).unwrap();
        }
        for k in 200..260 {
            idle.delete(&table, &key(k)).unwrap();
            idle.insert(&table, &key(k), &[4; 50]).unwrap();
        }
        idle.update(&table, &key(300), &vec![9; 50_000]).unwrap();
        let written = || status(&db, "lsn_current");
        let (begin, mut most) = (written(), 0);
        let mut random = Random::new(3);
        let mut block = vec![0u8; 1 << 20];
        block.fill_with(|| random.next() as u8);
        while written() - begin < 200 << 20 {
            commit(&db, |txn| {
                for _ in 0..100 {
                    let at = random.below((1 << 20) - 2000) as usize;
                    let k = key(1000 + random.below(1000));
                    txn.update(&table, &k, &block[at..at + 2000]).unwrap();
                }
            });
            most = most.max(log_bytes(dir.path()));
        }
        assert!(most < 64 << 20, "the log grew to {most} bytes");
        // It goes on after its undo was copied.
        idle.update(&table, &key(301), &[2; 100]).unwrap();
        idle.savepoint("s").unwrap();
        idle.update(&table, &key(0), &[3; 700]).unwrap();
        idle.rollback_to_savepoint("s").unwrap();
        drop(db);
        let db = Database::open(dir.path(), options).unwrap();
        drop(idle);
        let table = db.table("t").unwrap();
        let txn = db.begin(RepeatableRead).unwrap();
        for k in 0..302 {
            let value = txn.get(&table, &key(k)).unwrap();
            assert_eq!(value, Some(vec![1; 2000]), "{k}");
        }
        assert_eq!(txn.range(&table, ..).unwrap().count(), 2000);
        drop(txn);
        db.verify_table(&table).unwrap();
        assert!(matches!(db.table("u"), Err(Error::NotFound(_))));
    });
}
