//! Creating a database is interrupted at every change of the disk.

use inkstone::{Database, Isolation, Options};
use inkstone_io::sim::{Fault, OpKind, SimVfs};
use inkstone_testkit::campaign::watched;
use std::path::Path;
use std::sync::Arc;

fn open(vfs: &SimVfs) -> inkstone::Result<Database> {
    let options = Options {
        page_size: 4096,
        buffer_pool_size: 1 << 20,
        log_file_size: 4 << 20,
        ..Options::default()
    };
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {})
}

/// What a database must be able to do.
fn work(db: &Database, key: &[u8]) {
    let table = if db.tables().unwrap().is_empty() {
        db.create_table("t", &["s"]).unwrap()
    } else {
        db.table("t").unwrap()
    };
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.upsert(&table, key, b"value").unwrap();
    txn.commit_with(inkstone::Durability::Sync).unwrap();
    db.verify_table(&table).unwrap();
}

#[test]
fn creation_interrupted_anywhere_can_be_repeated() {
    let vfs = SimVfs::new(0);
    drop(open(&vfs).unwrap());
    let mutations = vfs.mutations() + 5;
    assert!(mutations > 20, "{mutations}");
    for at in 1..=mutations {
        for seed in 0..2 {
            watched(&format!("creation, mutation {at}, seed {seed}"), || {
                let vfs = SimVfs::new(seed);
                vfs.crash_at(at);
                let interrupted = open(&vfs);
                // A kill, then a power loss: what a killed process left must be made durable.
                let next = match seed % 2 {
                    0 => vfs.crash(seed),
                    _ => vfs.kill(),
                };
                drop(interrupted);
                let db = open(&next).unwrap_or_else(|e| panic!("mutation {at}, seed {seed}: {e}"));
                work(&db, b"a");
                let last = next.crash(seed + 100);
                drop(db);
                let db = open(&last).unwrap_or_else(|e| panic!("mutation {at}, seed {seed}: {e}"));
                let table = db.table("t").unwrap();
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                assert_eq!(txn.get(&table, b"a").unwrap().unwrap(), b"value");
                drop(txn);
                work(&db, b"b");
            });
        }
    }
}

/// What a failed creation leaves is removed durably before the marker that says that it is rubbish:
/// after a power loss log segments were there and no marker, and the directory was refused.
#[test]
fn creation_that_failed_can_be_repeated_after_a_power_loss() {
    for nth in 1..12 {
        for seed in 0..10 {
            watched(&format!("creation, sync {nth} fails, seed {seed}"), || {
                let vfs = SimVfs::new(seed);
                vfs.fail_nth(OpKind::Sync, nth, Fault::Eio);
                let failed = open(&vfs);
                let next = vfs.crash(seed);
                drop(failed);
                let db = open(&next).unwrap_or_else(|e| panic!("sync {nth}, seed {seed}: {e}"));
                work(&db, b"a");
            });
        }
    }
}
