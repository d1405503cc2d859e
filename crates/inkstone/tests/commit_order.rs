//! The first part of a commit takes its place in the log and waits for no other thread: programs
//! call it under a latch that orders all commits.

mod common;

use common::{key, within};
use inkstone::internals::options::Durability;
use inkstone::{Database, Isolation, Options, Transaction};
use inkstone_io::sim::{OpKind, SimVfs};
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;
use std::thread::{ThreadId, scope};

/// Old versions of so many rows are more than the version store keeps in memory.
const ROWS: u64 = 6_000;
/// Of the log, before undo is copied forward.
const SHARE: u64 = 16 << 10;

/// Stops one thread at its next sync of the undo file.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    stops: Option<ThreadId>,
    stopped: bool,
    is_over: bool,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock();
        if state.stops == Some(std::thread::current().id()) {
            state.stopped = true;
            self.changed.notify_all();
            self.changed
                .wait_while(&mut state, |state| state.stops.is_some());
        }
    }
    fn open(&self) {
        self.state.lock().stops = None;
        self.changed.notify_all();
    }
}

fn open(vfs: &SimVfs) -> Database {
    let options = Options {
        page_size: 4096,
        buffer_pool_size: 4 << 20,
        log_file_size: 16 << 20,
        version_store_memory: 1 << 20,
        ..Options::default()
    };
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

fn put_all(txn: &Transaction, table: &inkstone::Table, round: u8) {
    for n in 0..ROWS {
        txn.upsert(table, &key(n), &[round; 400]).unwrap();
    }
}

/// A database of which the undo is being saved, with a prepared transaction that ends meanwhile.
/// False: another thread of the engine had saved it before, and nothing is shown.
fn ends_while_undo_is_saved(commits: bool) -> bool {
    let vfs = SimVfs::new(1);
    let db = open(&vfs);
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    put_all(&txn, &table, 1);
    txn.commit_with(Durability::Sync).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    put_all(&txn, &table, 2);
    let prepared = txn.prepare_with(b"x", Durability::Sync).unwrap();
    let gate = Arc::new(Gate::default());
    let at_syncs = gate.clone();
    vfs.observe(move |kind, path, _| {
        if kind == OpKind::Sync && path.ends_with("undo") {
            at_syncs.pass();
        }
    });
    let was_stopped = scope(|s| {
        let saving = s.spawn(|| {
            gate.state.lock().stops = Some(std::thread::current().id());
            db.maintain(SHARE).unwrap();
            gate.state.lock().is_over = true;
            gate.changed.notify_all();
        });
        let mut state = gate.state.lock();
        gate.changed
            .wait_while(&mut state, |state| !state.stopped && !state.is_over);
        let was_stopped = state.stopped;
        drop(state);
        if commits {
            drop(prepared.commit_deferred(Durability::Lazy).unwrap());
        } else {
            // It reads what it undoes, and so may wait.
            drop(prepared);
        }
        gate.open();
        saving.join().unwrap();
        was_stopped
    });
    db.maintain(SHARE).unwrap();
    db.flush_log().unwrap();
    drop((table, db));
    let db = open(&vfs.kill());
    let table = db.table("t").unwrap();
    if !commits {
        assert_eq!(db.prepared_transactions(), [b"x"]);
        db.rollback_prepared(b"x").unwrap();
    }
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let round = if commits { 2 } else { 1 };
    let rows = txn.range(&table, ..).unwrap();
    let rows = rows.filter(|row| row.as_ref().unwrap().1 == [round; 400]);
    assert_eq!(rows.count() as u64, ROWS);
    was_stopped
}

/// The checkpoint saves undo, and waits for a disk meanwhile.
#[test]
fn it_does_not_wait_for_its_undo_to_be_saved() {
    within(120, || {
        for commits in [true, false] {
            let was_seen = (0..50).any(|_| ends_while_undo_is_saved(commits));
            assert!(
                was_seen,
                "another thread saves the undo first, again and again"
            );
        }
    });
}
