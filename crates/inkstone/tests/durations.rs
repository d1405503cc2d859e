//! Histograms of durations name what a slow commit or statement waited for. The simulated disk is
//! slow where it is told to; nothing here depends on how fast the machine is.

mod failure_support;

use failure_support::*;
use inkstone::{Database, DurationSummary, Error, Isolation};
use inkstone_io::sim::SimVfs;
use std::time::{Duration, Instant};

const SLOW: Duration = Duration::from_millis(300);

fn duration(db: &Database, name: &str) -> DurationSummary {
    let all = db.durations();
    *all.iter().find(|d| d.name == name).unwrap()
}

/// A device that syncs slowly now and then: 3 of 100 commits take long.
#[test]
fn slow_commits_are_explained_by_syncs_of_the_log() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let mut took = Vec::new();
    for n in 0..100 {
        let slow = n % 33 == 5;
        vfs.set_sync_delay_of("log/", if slow { SLOW } else { Duration::ZERO });
        let begin = Instant::now();
        insert(&db, &table, n..n + 1, b"row").unwrap();
        took.push(begin.elapsed());
    }
    vfs.set_sync_delay_of("log/", Duration::ZERO);
    took.sort_unstable();
    let p99 = took[98];
    assert!(p99 >= SLOW);
    for name in ["commit_wait", "log_sync"] {
        let seen = duration(&db, name);
        assert!(
            seen.count >= 100 && seen.p99 >= SLOW && seen.max >= seen.p99,
            "{seen:?}"
        );
        assert!(seen.sum >= 3 * SLOW, "{seen:?}");
    }
    assert!(duration(&db, "log_write").count >= 100);
    // What did not happen explains nothing.
    for name in [
        "row_lock_wait",
        "frame_wait",
        "log_buffer_wait",
        "log_space_wait",
    ] {
        assert_eq!(duration(&db, name).count, 0, "{name}");
    }
    db.close().unwrap();
}

/// Data larger than the pool, files that sync slowly: writers wait for frames or for a checkpoint.
#[test]
fn slow_statements_are_explained_by_waits_for_pages() {
    let vfs = SimVfs::new(2);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    vfs.set_sync_delay_of(".ink", SLOW / 10);
    let happened = |name: &&str| duration(&db, name).count > 0;
    let waits = ["frame_wait", "log_space_wait"];
    // Fresh pages need no copy: a thread may wait before any page is written again.
    let writes = ["page_write", "doublewrite_write", "doublewrite_sync"];
    let mut n = 0;
    while !(waits.iter().any(happened) && writes.iter().all(happened)) {
        insert(&db, &table, n..n + 100, &[7; 500]).unwrap();
        n += 100;
        assert!(
            n < 1_000_000,
            "no thread waits, or no page is written again"
        );
    }
    vfs.set_sync_delay_of(".ink", Duration::ZERO);
    let sync = duration(&db, "page_sync");
    assert!(sync.max >= SLOW / 10, "{sync:?}");
    assert_eq!(rows(&db, &table).unwrap().len() as u64, n);
    assert!(duration(&db, "page_read").count > 0);
    db.close().unwrap();
}

#[test]
fn waits_for_rows_are_timed_however_they_end() {
    let vfs = SimVfs::new(3);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    insert(&db, &table, 1..2, b"row").unwrap();
    let holder = db.begin(Isolation::ReadCommitted).unwrap();
    holder.update(&table, &key(1), b"held").unwrap();
    let waiter = db.begin(Isolation::ReadCommitted).unwrap();
    waiter.set_lock_wait_timeout(SLOW);
    let refused = waiter.update(&table, &key(1), b"late");
    assert!(
        matches!(refused, Err(Error::LockTimeout { .. })),
        "{refused:?}"
    );
    let wait = duration(&db, "row_lock_wait");
    assert!(wait.count >= 1 && wait.sum >= SLOW, "{wait:?}");
    drop((waiter, holder));
    db.close().unwrap();
}
