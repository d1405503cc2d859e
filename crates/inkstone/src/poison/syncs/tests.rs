//! Which thread waits for which sync, and what it is told.

use super::*;
use crate::sync::thread;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn io_error() -> std::io::Error {
    std::io::Error::other("the device failed")
}

/// Long enough that a thread that could go on would have.
fn a_while() {
    thread::sleep(Duration::from_millis(30));
}

#[test]
fn a_sync_wanted_while_one_runs_joins_the_next() {
    let (syncs, poison) = (FileSyncs::default(), Poison::default());
    let (running, most, runs) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let run = || {
        most.fetch_max(1 + running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        a_while();
        runs.fetch_add(1, Ordering::SeqCst);
        running.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    };
    thread::scope(|scope| {
        for n in 0..8 {
            let sync = || syncs.sync(&poison, Path::new("file"), run).unwrap();
            scope.spawn(format!("{n}"), sync).unwrap();
        }
    });
    assert_eq!(most.into_inner(), 1, "two syncs of a file overlapped");
    // The first one's, and the next for all threads that came meanwhile; a late thread may need a
    // third.
    assert!((2..=4).contains(&runs.into_inner()));
}

#[test]
fn a_sync_covers_only_what_was_written_before_it_began() {
    let (syncs, poison) = (FileSyncs::default(), Poison::default());
    let early = syncs.want();
    let SyncTurn::Lead(lead) = syncs.turn(early) else {
        panic!("no sync is before it");
    };
    let late = syncs.want();
    assert!(matches!(syncs.turn(late), SyncTurn::Busy));
    lead.end(poison.begin_sync().end(Path::new("file"), Ok(())))
        .unwrap();
    assert!(matches!(syncs.turn(early), SyncTurn::Done));
    assert!(matches!(syncs.turn(late), SyncTurn::Lead(_)));
}

/// The failure of one's sync is known before another one of the file can begin, and its success
/// is worth nothing then.
#[test]
fn a_failed_sync_poisons_before_any_thread_is_told() {
    let (syncs, poison) = (FileSyncs::default(), Poison::default());
    let began = AtomicBool::new(false);
    thread::scope(|scope| {
        let first = || {
            let failing = || {
                began.store(true, Ordering::SeqCst);
                a_while();
                Err(io_error())
            };
            let error = syncs
                .sync(&poison, Path::new("t1.ink"), failing)
                .unwrap_err();
            assert!(error.to_string().contains("t1.ink"), "{error}");
        };
        scope.spawn("first", first).unwrap();
        while !began.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let second = syncs.sync(&poison, Path::new("t1.ink"), || Ok(()));
        assert!(matches!(second, Err(crate::Error::Poisoned(_))));
    });
}

/// A checkpoint waits for the syncs that were under way when its own had ended, not for later ones.
#[test]
fn a_moment_is_settled_when_the_syncs_before_it_have_ended_well() {
    let poison = Poison::default();
    let (good, bad) = (poison.begin_sync(), poison.begin_sync());
    let moment = poison.sync_moment();
    let later = poison.begin_sync();
    let settled = AtomicBool::new(false);
    thread::scope(|scope| {
        let wait = || {
            poison.settle_syncs(moment).unwrap_err();
            settled.store(true, Ordering::SeqCst);
        };
        scope.spawn("waits", wait).unwrap();
        good.end(Path::new("a"), Ok(())).unwrap();
        a_while();
        assert!(!settled.load(Ordering::SeqCst), "one is under way yet");
        bad.end(Path::new("b"), Err(io_error())).unwrap_err();
    });
    drop(later);
}

#[test]
fn a_sync_that_was_not_ended_counts_as_failed() {
    let syncs = FileSyncs::default();
    let wanted = syncs.want();
    drop(syncs.turn(wanted));
    assert!(matches!(syncs.turn(wanted), SyncTurn::Lead(_)));
}
