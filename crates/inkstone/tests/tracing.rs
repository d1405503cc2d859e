//! What a subscriber hears, with the feature `tracing`:
//! `cargo test -p inkstone --features tracing --test tracing`.
#![cfg(feature = "tracing")]

mod common;

use common::{key, val, within};
use inkstone::{Database, Error, Isolation, Options};
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps a line for each event and each span.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Heard {
    fn keep(&self, line: Line) {
        self.0.lock().unwrap().push(line.0);
    }

    /// The first line that has all these parts.
    fn find(&self, parts: &[&str]) -> String {
        let lines = self.0.lock().unwrap();
        let found = lines
            .iter()
            .find(|line| parts.iter().all(|part| line.contains(part)));
        let found = found.unwrap_or_else(|| panic!("nothing with {parts:?} in {lines:#?}"));
        found.clone()
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "inkstone"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(format!("span {}", span.metadata().name()));
        span.record(&mut line);
        self.keep(line);
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.keep(line);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn open(vfs: &SimVfs) -> inkstone::Result<Database> {
    let options = Options {
        page_size: 4096,
        buffer_pool_size: 4 << 20,
        log_file_size: 16 << 20,
        ..Options::default()
    };
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {})
}

#[test]
fn openings_checkpoints_waits_and_failures_are_told() {
    within(60, || {
        let heard = Heard::default();
        // Of all threads: the checkpoint's is another one.
        tracing::subscriber::set_global_default(heard.clone()).unwrap();
        let vfs = SimVfs::new(1);
        let db = open(&vfs).unwrap();
        heard.find(&["span open", "path=db"]);
        heard.find(&["INFO", "the database is open", "created=true"]);

        let table = db.create_table("t", &[]).unwrap();
        let insert = |n: u64| {
            let txn = db.begin(Isolation::RepeatableRead).unwrap();
            txn.insert(&table, &key(n), &val(1)).unwrap();
            txn
        };
        insert(1).commit().unwrap();
        heard.find(&["TRACE", "a wait", "name=\"log_write\""]);
        vfs.set_sync_delay(Duration::from_millis(120));
        insert(2).commit().unwrap();
        vfs.set_sync_delay(Duration::ZERO);
        heard.find(&[
            "WARN",
            "a slow wait",
            "\"commit_wait\"",
            "What a commit waited",
        ]);
        heard.find(&["WARN", "a slow wait", "\"log_sync\""]);

        let holder = insert(3);
        let other = db.begin(Isolation::RepeatableRead).unwrap();
        other.set_lock_wait_timeout(Duration::from_millis(20));
        let refused = other.insert(&table, &key(3), &val(2));
        assert!(matches!(refused, Err(Error::LockTimeout { .. })));
        heard.find(&[
            "WARN",
            "a lock was not given",
            &format!("transaction={}", other.id().0),
        ]);
        drop((holder, other));
        db.checkpoint().unwrap();
        heard.find(&["DEBUG", "checkpoint", "lsn="]);

        let vfs = {
            let disk = vfs.kill();
            drop((table, db));
            disk
        };
        let db = open(&vfs).unwrap();
        for stage in ["settle", "scan", "repair", "redo", "undo", "tidy"] {
            heard.find(&["span stage", &format!("\"{stage}\"")]);
        }
        heard.find(&["INFO", "the database is open", "clean=false"]);
        let twice = open(&vfs);
        assert!(matches!(twice, Err(Error::InUse { .. })));
        heard.find(&["ERROR", "the database could not be opened"]);

        let table = db.table("t").unwrap();
        vfs.fail(FaultRule {
            kind: Some(OpKind::Sync),
            path_contains: String::new(),
            nth: 1,
            times: u64::MAX,
            fault: Fault::Eio,
        });
        let txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.insert(&table, &key(9), &val(1)).unwrap();
        assert!(matches!(txn.commit(), Err(Error::Poisoned(_))));
        heard.find(&["ERROR", "the engine is poisoned"]);
    });
}
