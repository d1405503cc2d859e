//! A limit on memory (of a container) that the pool would not fit is noticed, and everything is
//! made to fit it: also in recovery, which was killed again and again.

mod failure_support;

use failure_support::*;
use inkstone::{Database, Options};
use inkstone_io::sim::SimVfs;

fn frames(db: &Database) -> u64 {
    let all = db.status();
    all.iter()
        .find(|(name, _)| *name == "buffer_pool_frames")
        .unwrap()
        .1
}

#[test]
fn what_fits_stays_as_it_is() {
    for limit in [None, Some(1 << 40)] {
        let vfs = SimVfs::new(1);
        if let Some(limit) = limit {
            vfs.limit_memory(limit);
        }
        let db = open_sim(&vfs, small()).unwrap();
        assert_eq!(db.open_report().memory_bound, None);
        assert_eq!(db.options(), &small());
    }
}

#[test]
fn pool_and_recovery_share_four_fifths_of_the_limit() {
    let vfs = SimVfs::new(2);
    vfs.limit_memory(40 << 20);
    let asked = Options {
        buffer_pool_size: 100 << 20,
        ..small()
    };
    let db = open_sim(&vfs, asked.clone()).unwrap();
    let bound = db.open_report().memory_bound.unwrap();
    assert_eq!(
        (bound.limit, bound.buffer_pool_size.0),
        (40 << 20, 100 << 20)
    );
    assert_eq!(db.options().buffer_pool_size, bound.buffer_pool_size.1);
    assert_eq!(frames(&db), bound.buffer_pool_size.1 / 4096);
    let beside = asked.log_buffer_size + asked.version_store_memory;
    assert!(
        bound.buffer_pool_size.1 + beside <= (40 << 20) / 5 * 4,
        "{bound}"
    );
    assert_eq!(bound.recovery_memory, (50 << 20, 16 << 20));
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 0..500, &[3; 300]).unwrap();
    drop((table, db));

    // The same for a killed database, and where less than the least is left.
    let vfs = vfs.kill();
    vfs.limit_memory(1 << 20);
    let db = open_sim(&vfs, asked).unwrap();
    let bound = db.open_report().memory_bound.unwrap();
    assert_eq!(bound.buffer_pool_size.1, 64 * 4096, "{bound}");
    assert!(
        bound
            .to_string()
            .contains("buffer_pool_size was set to 262144"),
        "{bound}"
    );
    assert_eq!(rows(&db, &db.table("t").unwrap()).unwrap().len(), 500);
}
