//! A database is opened over an overlay: everything is as an opening on disk finds it, and nothing
//! below is changed. `inkstone verify` works so.

mod failure_support;

use failure_support::*;
use inkstone::{Database, Error};
use inkstone_io::overlay::OverlayVfs;
use inkstone_io::sim::SimVfs;
use inkstone_io::{Create, Vfs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn open_over(vfs: &SimVfs) -> Result<Database, Error> {
    let overlay = OverlayVfs::new(Arc::new(vfs.clone()));
    Database::open_on(Arc::new(overlay), sim_dir(), small(), &|_| {})
}

fn files(vfs: &SimVfs) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = vfs.files().into_iter();
    paths
        .map(|path| (path.clone(), vfs.read_raw(&path).unwrap()))
        .collect()
}

#[test]
fn a_killed_database_is_recovered_in_memory() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &["by"]).unwrap();
    insert(&db, &table, 0..2000, &[3; 300]).unwrap();
    db.create_table("dropped", &[]).unwrap();
    db.drop_table("dropped").unwrap();
    let open = db.begin(inkstone::Isolation::ReadCommitted).unwrap();
    open.insert(&table, &key(9999), b"lost").unwrap();
    db.flush_log().unwrap();
    let vfs = vfs.kill();
    drop((open, table, db));
    let (before, mutations) = (files(&vfs), vfs.mutations());
    for _ in 0..2 {
        let db = open_over(&vfs).unwrap();
        assert_eq!(db.open_report().recovered.as_ref().unwrap().losers, 1);
        db.verify_catalog().unwrap();
        let table = db.table("t").unwrap();
        assert_eq!(db.verify_table(&table).unwrap().trees[0].1.rows, 2000);
        // What is written is read back, also through the log and the pool.
        insert(&db, &table, 5000..6000, &[4; 700]).unwrap();
        db.drop_table("t").unwrap();
        db.checkpoint().unwrap();
        assert!(matches!(db.table("t"), Err(Error::NotFound(_))));
        db.close().unwrap();
        assert_eq!(vfs.mutations(), mutations);
        assert!(files(&vfs) == before);
    }
    let db = open_sim(&vfs, small()).unwrap();
    assert_eq!(rows(&db, &db.table("t").unwrap()).unwrap().len(), 2000);
    db.close().unwrap();
}

#[test]
fn a_running_database_and_an_overlay_exclude_each_other() {
    let place = tempfile::tempdir().unwrap();
    let vfs = inkstone_io::default_vfs(inkstone_io::BackendChoice::Posix).unwrap();
    let open = |vfs: Arc<dyn Vfs>| {
        let options = inkstone::Options {
            page_size: 4096,
            ..small()
        };
        Database::open_on(vfs, place.path(), options, &|_| {})
    };
    let overlay = || Arc::new(OverlayVfs::new(vfs.clone()));
    open(vfs.clone()).unwrap().close().unwrap();
    let in_use = |opened: Result<Database, Error>| matches!(opened, Err(Error::InUse { .. }));
    let running = open(vfs.clone()).unwrap();
    assert!(in_use(open(overlay())));
    running.close().unwrap();
    let (one, two) = (open(overlay()).unwrap(), open(overlay()).unwrap());
    assert!(in_use(open(vfs.clone())));
    drop((one, two));
    open(vfs.clone()).unwrap().close().unwrap();
    let missing = overlay().open_directory(Path::new("/no/such"), Create::IfMissing);
    assert!(missing.is_err());
}
