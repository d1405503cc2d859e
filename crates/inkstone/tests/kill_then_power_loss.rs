//! A process is killed between writing pages in place and syncing them. The next one finds these
//! pages in the page cache, newer than what is durable: recovery has nothing to change in them, a
//! checkpoint passes their changes, and then the power fails. Without page copies
//! (`doublewrite=off`) nothing else made such pages durable, and their changes were lost: seed
//! 100198 of the simulation found it.

use inkstone::internals::options::{Doublewrite, FlushMethod};
use inkstone::{Database, Isolation, Options};
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::Arc;

const ROWS: u64 = 400;

fn open(vfs: &SimVfs) -> Database {
    let options = Options {
        page_size: 4096,
        buffer_pool_size: 1 << 20,
        log_file_size: 4 << 20,
        doublewrite: Doublewrite::Off,
        flush_method: FlushMethod::Fsync,
        ..Options::default()
    };
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

fn write(db: &Database, value: &[u8]) {
    let table = db.table("t").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..ROWS {
        txn.upsert(&table, &n.to_be_bytes(), value).unwrap();
    }
    txn.commit().unwrap();
}

#[test]
fn pages_that_a_killed_process_did_not_sync_survive_the_next_power_loss() {
    let vfs = SimVfs::new(1);
    vfs.set_untorn_bytes(4096);
    let db = open(&vfs);
    db.create_table("t", &[]).unwrap();
    write(&db, b"old");
    db.close().unwrap();
    let closed = vfs.crash(1);
    // The sync after the writes in place is one of the first things that a checkpoint does.
    for mutation in 1..12 {
        let vfs = closed.crash(mutation);
        let db = open(&vfs);
        write(&db, b"new");
        vfs.crash_at(mutation);
        let _ = db.checkpoint();
        let next = vfs.kill();
        drop(db);
        let db = open(&next);
        db.checkpoint().unwrap();
        for seed in 0..10 {
            let left = next.crash(seed);
            let db = open(&left);
            let table = db.table("t").unwrap();
            db.verify_table(&table).unwrap();
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            for n in 0..ROWS {
                let found = txn.get(&table, &n.to_be_bytes()).unwrap();
                assert_eq!(
                    found.as_deref(),
                    Some(&b"new"[..]),
                    "row {n}, mutation {mutation}"
                );
            }
        }
    }
}
