//! Every way to write pages and log: a short load, the state that a killed process would leave,
//! recovery, and a reopen after an orderly close.

mod failure_support;

use failure_support::*;
use inkstone::internals::options::{Doublewrite, FlushMethod, IoBackend, LogWrite};
use inkstone::{Database, Isolation, Options};
use std::path::Path;

fn check(directory: &Path, options: &Options, what: &str) {
    let db = Database::open(directory, options.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let table = db.table("t").unwrap();
    assert_eq!(
        rows(&db, &table).unwrap(),
        (0..400).collect::<Vec<_>>(),
        "{what}"
    );
    db.verify_table(&table).unwrap();
    insert(&db, &table, 400..410, b"more").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 400..410 {
        txn.delete(&table, &key(n)).unwrap();
    }
    txn.commit().unwrap();
}

fn copy(from: &Path, to: &Path) {
    for (path, bytes) in contents(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        if path.is_dir() {
            std::fs::create_dir_all(target).unwrap();
        } else {
            std::fs::create_dir_all(target.parent().unwrap()).unwrap();
            std::fs::write(target, bytes).unwrap();
        }
    }
}

fn one(options: &Options, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (live, killed) = (dir.path().join("live"), dir.path().join("killed"));
    let db = match Database::open(&live, options.clone()) {
        Ok(db) => db,
        Err(error) if options.io_backend == IoBackend::IoUring => {
            println!("io_uring is not to be had here: {error}");
            return;
        }
        Err(error) => panic!("{what}: {error}"),
    };
    let table = db.create_table("t", &[]).unwrap();
    for part in 0..4 {
        insert(
            &db,
            &table,
            part * 100..part * 100 + 100,
            &[part as u8; 300],
        )
        .unwrap();
        if part % 2 == 0 {
            db.flush_table(&table).unwrap();
        }
    }
    let open = db.begin(Isolation::ReadCommitted).unwrap();
    open.insert(&table, b"never", b"committed").unwrap();
    db.flush_log().unwrap();
    copy(&live, &killed);
    drop((open, table));
    drop(db);
    check(&killed, options, what);
    check(&live, options, what);
}

fn all(flush_method: FlushMethod) {
    let on_off = [false, true];
    for (doublewrite, doublewrite_skip_fresh) in [
        (Doublewrite::On, true),
        (Doublewrite::On, false),
        (Doublewrite::Off, true),
    ] {
        for io_backend in [IoBackend::Posix, IoBackend::IoUring] {
            for log_write in [LogWrite::Sync, LogWrite::Async] {
                for log_file_buffering in on_off {
                    for log_write_through in on_off {
                        let options = Options {
                            flush_method,
                            doublewrite,
                            doublewrite_skip_fresh,
                            io_backend,
                            log_write,
                            log_file_buffering,
                            log_write_through,
                            ..small()
                        };
                        let what = format!(
                            "{flush_method} doublewrite {doublewrite} skip {doublewrite_skip_fresh} \
                             {io_backend} {log_write} buffering {log_file_buffering} through \
                             {log_write_through}"
                        );
                        one(&options, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn fsync() {
    all(FlushMethod::Fsync);
}

#[test]
fn o_dsync() {
    all(FlushMethod::ODsync);
}

#[test]
fn o_direct() {
    all(FlushMethod::ODirect);
}

#[test]
fn o_direct_no_fsync() {
    all(FlushMethod::ODirectNoFsync);
}
