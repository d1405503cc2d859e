use super::*;
use crate::sync::atomic::AtomicBool;

/// Eight threads, a small ring that wraps many times, all frames come back in order.
fn many_threads(change: impl FnOnce(&mut LogOptions)) {
    let vfs = MemoryVfs::new();
    let (log, counters, _) = open(params_with(&vfs, change));
    let starts = crate::sync::test_scope(|scope| {
        let threads: Vec<_> = (0..8u64)
            .map(|t| {
                let log = &log;
                scope.spawn(move || {
                    let mut starts = Vec::new();
                    for i in 0..3000u64 {
                        let len = [16, 40, 300, 5000][(i % 4) as usize];
                        let len = if i % 500 == 77 { 600_000 } else { len };
                        if i % 3 == 0 {
                            log.wait_for_space().unwrap();
                        }
                        let bytes = payload(t << 32 | i, len);
                        let mut seen = None;
                        let lsns = log
                            .append(&bytes, claim(i % 10 == 0), |s, e| {
                                // Not published before this ran.
                                assert!(log.shared.ring.ready_seen() <= s.0);
                                seen = Some((s, e));
                            })
                            .unwrap();
                        assert_eq!(seen, Some(lsns));
                        if i % 50 == 0 {
                            log.wait_durable(lsns.1).unwrap();
                            assert!(log.durable_lsn() >= lsns.1);
                        } else if i % 70 == 0 {
                            log.wait_written(lsns.1).unwrap();
                            assert!(log.written_lsn() >= lsns.1);
                        }
                        starts.push((lsns.0.0, bytes));
                    }
                    starts
                })
            })
            .collect();
        let mut all: Vec<_> = threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect();
        all.sort();
        all
    });
    log.close().unwrap();
    let end = log.current_lsn();
    assert_eq!(log.durable_lsn(), end);
    assert_eq!(counters.get(Counter::LogMiniTransactions), 24_000);
    assert_eq!(counters.get(Counter::LogBytes), end.0 - SEGMENT);
    let (frames, read_end) = read(read_params(&vfs.crash(|_, _| false), 1)).unwrap();
    assert_eq!(read_end, end);
    let frames: Vec<_> = frames.into_iter().map(|(s, _, p)| (s, p)).collect();
    assert!(frames == starts);
}

#[test]
fn many_threads_wrap_a_small_ring() {
    many_threads(|_| {});
}

#[test]
fn many_threads_asynchronously() {
    many_threads(|p| p.write = LogWrite::Async);
}

#[test]
fn many_threads_buffered_asynchronously() {
    many_threads(|p| {
        p.write = LogWrite::Async;
        p.buffering = true;
    });
}

#[test]
fn many_threads_write_through() {
    many_threads(|p| p.write_through = true);
}

/// What `wait_durable` returned for survives a power loss at that very moment, in all modes.
#[test]
fn durable_is_never_claimed_early() {
    for (write, buffering, write_through) in [
        (LogWrite::Sync, false, false),
        (LogWrite::Sync, true, false),
        (LogWrite::Sync, false, true),
        (LogWrite::Sync, true, true),
        (LogWrite::Async, false, false),
        (LogWrite::Async, true, false),
        (LogWrite::Async, false, true),
    ] {
        let vfs = MemoryVfs::new();
        let (log, ..) = open(params_with(&vfs, |options| {
            options.write = write;
            options.buffering = buffering;
            options.write_through = write_through;
        }));
        vfs.faults.sync_micros.store(200, Ordering::SeqCst);
        crate::sync::test_scope(|scope| {
            for t in 0..6u64 {
                let (log, vfs) = (&log, &vfs);
                scope.spawn(move || {
                    for i in 0..40 {
                        let len = if t == 5 { 9000 } else { 100 + 700 * t as usize };
                        let (_, end) = append(log, &payload(i, len));
                        if t == 4 {
                            log.wait_written(end).unwrap();
                        } else {
                            log.wait_durable(end).unwrap();
                        }
                        let durable = log.durable_lsn();
                        if i % 5 == t % 5 {
                            let (_, reached) =
                                read(read_params(&vfs.crash(|_, _| false), 1)).unwrap();
                            assert!(reached >= durable, "{reached} < {durable}");
                        }
                    }
                });
            }
        });
    }
}

/// It goes through the page cache, with whatever comes until all of that is durable.
#[test]
fn a_commit_that_is_only_written_waits_for_no_device() {
    for (write, buffering, write_through) in [
        (LogWrite::Sync, false, false),
        (LogWrite::Sync, false, true),
        (LogWrite::Sync, true, true),
        (LogWrite::Async, false, false),
        (LogWrite::Async, false, true),
    ] {
        let vfs = MemoryVfs::new();
        let (log, ..) = open(params_with(&vfs, |options| {
            options.write = write;
            options.buffering = buffering;
            options.write_through = write_through;
        }));
        let counts = || {
            let faults = &vfs.faults;
            let writes = [&faults.writes, &faults.cached_writes];
            writes.map(|count| count.load(Ordering::SeqCst))
        };
        for round in 0..3 {
            let before = counts();
            for n in 0..5 {
                log.wait_written(append(&log, &payload(n, 3000)).1).unwrap();
            }
            let written = counts();
            assert_eq!(written.map(|n| n - 5), before, "round {round}");
            assert!(log.durable_lsn() < log.written_lsn());
            // What is to be durable goes after it, is synced, and is there.
            let (_, end) = append(&log, &payload(7, 3000));
            log.wait_durable(end).unwrap();
            assert_eq!(counts()[1], written[1] + 1, "round {round}");
            let crashed = vfs.crash(|_, _| false);
            let (_, reached) = read(read_params(&crashed, 1)).unwrap();
            assert!(reached >= end, "{reached} < {end}");
            // From then on as the options say.
            log.wait_durable(append(&log, &payload(8, 3000)).1).unwrap();
            assert_eq!(counts().map(|n| n - 1)[0], written[0] + 1);
            assert_eq!(counts()[1], written[1] + 1, "round {round}");
        }
        log.close().unwrap();
    }
}

/// The files of a log that is opened again are open from then on; the second handle, through the
/// page cache, is done without where it cannot be had.
#[test]
fn a_log_without_the_right_to_open_its_files_goes_on() {
    for (buffering, write_through) in [(true, false), (false, false), (false, true)] {
        let vfs = MemoryVfs::new();
        let change = |options: &mut LogOptions| {
            options.buffering = buffering;
            options.write_through = write_through;
        };
        let (log, ..) = open(params_with(&vfs, change));
        let (_, end) = append(&log, &payload(1, 3000));
        log.wait_durable(end).unwrap();
        log.close().unwrap();
        let mut again = params_with(&vfs, change);
        (again.start_lsn, again.epoch) = (end, 2);
        (again.is_new, again.is_closed) = (false, true);
        let (log, _, poison) = open(again);
        vfs.faults.no_access.store(true, Ordering::SeqCst);
        let cached_writes = || vfs.faults.cached_writes.load(Ordering::SeqCst);
        let before = cached_writes();
        let (_, end) = append(&log, &payload(2, 3000));
        log.wait_written(end).unwrap();
        assert_eq!(cached_writes() - before, u64::from(buffering));
        log.wait_durable(end).unwrap();
        assert!(!poison.is_set());
        let crashed = vfs.crash(|_, _| false);
        let (_, reached) = read(read_params(&crashed, 2)).unwrap();
        assert!(reached >= end, "{reached} < {end}");
        vfs.faults.no_access.store(false, Ordering::SeqCst);
        let before = cached_writes();
        log.wait_written(append(&log, &payload(3, 3000)).1).unwrap();
        assert_eq!(cached_writes() - before, 1);
        log.close().unwrap();
    }
}

/// While one sync is under way, others gather: far fewer syncs than commits.
#[test]
fn commits_share_syncs() {
    for write in [LogWrite::Sync, LogWrite::Async] {
        let vfs = MemoryVfs::new();
        let (log, counters, _) = open(params_with(&vfs, |options| options.write = write));
        vfs.faults.sync_micros.store(1000, Ordering::SeqCst);
        crate::sync::test_scope(|scope| {
            for t in 0..64u64 {
                let log = &log;
                scope.spawn(move || {
                    for i in 0..30 {
                        let (_, end) = append(log, &payload(t << 32 | i, 64));
                        log.wait_durable(end).unwrap();
                    }
                });
            }
        });
        let syncs = counters.get(Counter::LogSyncs);
        assert!(syncs < 64 * 30 / 6, "{syncs} syncs for {} commits", 64 * 30);
        let writes = counters.get(Counter::LogWriteCalls);
        assert!(writes < 64 * 30 / 3, "{writes} writes");
    }
}

fn until(done: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !done() {
        assert!(begin.elapsed().as_secs() < 60, "nothing goes on");
        crate::sync::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The commits that come while a sync is under way are made durable by the next one, together: also
/// where writes are slow, and a committer that wrote at once could begin the next sync before the
/// others wrote.
#[test]
fn one_sync_takes_all_commits_that_came_during_the_last() {
    let vfs = MemoryVfs::new();
    let (log, counters, _) = open(params(&vfs));
    vfs.faults.write_micros.store(10_000, Ordering::SeqCst);
    for round in 0..3 {
        let before = counters.get(Counter::LogSyncs);
        vfs.faults.hold_syncs.store(true, Ordering::SeqCst);
        crate::sync::test_scope(|scope| {
            let commit = || {
                let (_, end) = append(&log, &payload(7, 64));
                let log = &log;
                scope.spawn(move || log.wait_durable(end).unwrap());
            };
            commit();
            until(|| counters.get(Counter::LogSyncs) == before + 1);
            commit();
            until(|| log.shared.waiting() == 1);
            (0..6).for_each(|_| commit());
            until(|| log.shared.waiting() == 7);
            vfs.faults.hold_syncs.store(false, Ordering::SeqCst);
        });
        assert_eq!(counters.get(Counter::LogSyncs), before + 2, "{round}");
    }
}

/// A flight ends before frames of its own leader and of others, as a frame before those is not
/// published: what it has written is synced, and all of them go on when the frame is there.
#[test]
fn a_flight_that_ends_before_all_waiters_is_synced() {
    let vfs = MemoryVfs::new();
    let (log, ..) = open(params(&vfs));
    let faults = &vfs.faults;
    let before = faults.writes.load(Ordering::SeqCst);
    faults.hold_writes.store(true, Ordering::SeqCst);
    let publish = AtomicBool::new(false);
    crate::sync::test_scope(|scope| {
        let log = &*log;
        scope.spawn(|| log.wait_written(append(log, &payload(1, 64)).1).unwrap());
        until(|| faults.writes.load(Ordering::SeqCst) > before);
        let (_, published) = append(log, &payload(2, 64));
        scope.spawn(|| {
            let hold = |_, _| until(|| publish.load(Ordering::SeqCst));
            log.append(&payload(3, 64), Claim::IfNews, hold).unwrap();
        });
        until(|| log.current_lsn() > published);
        for n in 4..6 {
            scope.spawn(move || log.wait_durable(append(log, &payload(n, 64)).1).unwrap());
        }
        until(|| log.shared.waiting() == 2);
        faults.hold_writes.store(false, Ordering::SeqCst);
        until(|| {
            log.durable_lsn() >= published
                || log.written_lsn() >= published && log.shared.waiting() == 2
        });
        publish.store(true, Ordering::SeqCst);
    });
    assert_eq!(log.durable_lsn(), log.current_lsn());
}

#[test]
fn nothing_is_lost_when_640_threads_wait() {
    let vfs = MemoryVfs::new();
    let (log, ..) = open(params(&vfs));
    crate::sync::test_scope(|scope| {
        for t in 0..640u64 {
            let log = &log;
            scope.spawn(move || {
                for i in 0..20 {
                    let (_, end) = append(log, &payload(t << 32 | i, 120));
                    log.wait_durable(end).unwrap();
                }
            });
        }
    });
    assert_eq!(log.durable_lsn(), log.current_lsn());
}

#[test]
fn the_background_thread_flushes_what_no_commit_awaits() {
    let vfs = MemoryVfs::new();
    let (log, ..) = open(params(&vfs));
    let (_, end) = append(&log, b"lazy");
    let began = std::time::Instant::now();
    while log.durable_lsn() < end {
        assert!(began.elapsed().as_secs() < 5);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (_, end) = append(&log, b"sooner");
    log.flush_in_background();
    let began = std::time::Instant::now();
    while log.durable_lsn() < end {
        assert!(began.elapsed().as_secs() < 5);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(log.unwritten_bytes(), 0);
}

#[test]
fn segments_are_recycled_and_their_stale_bytes_never_pass() {
    let vfs = MemoryVfs::new();
    let (log, counters, _) = open(params_with(&vfs, |options| {
        options.capacity_bytes = 4 * SEGMENT;
    }));
    let mut from = Lsn(0);
    for i in 0..6020u64 {
        // All frames alike, so that stale ones stand exactly where new ones would.
        log.wait_for_space().unwrap();
        let (start, end) = append(&log, &[7; 1000]);
        log.wait_durable(end).unwrap();
        if i % 50 == 49 {
            from = start;
            log.set_keep_from(start);
        }
    }
    log.shared
        .segments
        .maintain(log.durable_lsn().0, log.current_lsn().0)
        .unwrap();
    assert!(
        counters.get(Counter::LogSegmentsRecycled) > 30,
        "{:?}",
        counters.snapshot()
    );
    assert!(counters.get(Counter::LogSegmentsCreated) < 40);
    let end = log.current_lsn();
    let after = vfs.crash(|_, _| true);
    let (frames, reached) = read(ReadParams {
        from,
        ..read_params(&after, 1)
    })
    .unwrap();
    assert_eq!(reached, end);
    assert_eq!(frames.len() as u64, 20 + 1);
}

#[test]
fn archived_segments_are_kept_whole() {
    let vfs = MemoryVfs::new();
    let (log, ..) = open(params_with(&vfs, |options| options.archive = true));
    let mut end = Lsn(0);
    for i in 0..400u64 {
        end = append(&log, &payload(i, 1000)).1;
        log.wait_durable(end).unwrap();
    }
    log.set_keep_from(end);
    log.shared.segments.maintain(end.0, end.0).unwrap();
    let names = vfs.names();
    let archived = names.iter().filter(|n| n.contains("archive/")).count() as u64;
    assert_eq!(archived, (end.0 - SEGMENT) / SEGMENT, "{names:?}");
}

#[test]
fn a_failed_write_poisons_and_wakes_all_waiters() {
    for write in [LogWrite::Sync, LogWrite::Async] {
        let vfs = MemoryVfs::new();
        let (log, _, poison) = open(params_with(&vfs, |options| options.write = write));
        let (_, end) = append(&log, b"safe");
        log.wait_durable(end).unwrap();
        vfs.faults.write_in.store(20, Ordering::SeqCst);
        vfs.faults.sync_micros.store(100, Ordering::SeqCst);
        fail_under_load(&log, &poison);
        // The process sees all that was written, and nothing of the write that failed.
        let written = log.written_lsn();
        let (_, reached) = read(read_params(&vfs.crash(|_, _| true), 1)).unwrap();
        assert!(reached >= written, "{reached} < {written}");
    }
}

#[test]
fn a_failed_sync_poisons_and_nothing_becomes_durable_after_it() {
    for write in [LogWrite::Sync, LogWrite::Async] {
        let vfs = MemoryVfs::new();
        let (log, _, poison) = open(params_with(&vfs, |options| options.write = write));
        vfs.faults.sync_in.store(15, Ordering::SeqCst);
        vfs.faults.sync_micros.store(100, Ordering::SeqCst);
        fail_under_load(&log, &poison);
        let durable = log.durable_lsn();
        let (_, reached) = read(read_params(&vfs.crash(|_, _| false), 1)).unwrap();
        assert!(reached >= durable);
    }
}

fn fail_under_load(log: &Arc<Log>, poison: &Poison) {
    let failed = AtomicBool::new(false);
    crate::sync::test_scope(|scope| {
        for t in 0..16u64 {
            let (log, failed) = (&log, &failed);
            scope.spawn(move || {
                for i in 0..10_000 {
                    let result = log
                        .append(&payload(i, 50 + t as usize), Claim::IfNews, |_, _| {})
                        .and_then(|(_, end)| log.wait_durable(end));
                    if let Err(error) = result {
                        assert!(matches!(error, Error::Poisoned(_)), "{error}");
                        failed.store(true, Ordering::SeqCst);
                        return;
                    }
                }
            });
        }
    });
    assert!(failed.load(Ordering::SeqCst) && poison.is_set());
    assert!(matches!(
        log.append(b"x", Claim::IfNews, |_, _| {}),
        Err(Error::Poisoned(_))
    ));
    assert!(matches!(log.close(), Err(Error::Poisoned(_))));
}

#[test]
fn a_full_disk_stops_writers_but_not_rollbacks() {
    let vfs = MemoryVfs::new();
    let mut params = params(&vfs);
    // Large segments, so that only two are made ahead.
    params.segment_bytes = 4 << 20;
    params.start_lsn = Lsn(4 << 20);
    params.options.capacity_bytes = 256 << 20;
    let (log, _, poison) = open(params);
    log.prepare().unwrap();
    assert_eq!(log.stat().spare_segments, 2);
    // Before the promise: that has a reserve file made, if there is room for one.
    vfs.faults.disk_full.store(true, Ordering::SeqCst);
    log.promise(1 << 20, true).unwrap();
    let write_to = |lsn: u64| {
        while log.current_lsn().0 < lsn {
            log.wait_for_space()?;
            let (_, end) = log.append(&[1; 100_000], Claim::IfNews, |_, _| {})?;
            log.wait_durable(end)?;
        }
        Ok::<(), Error>(())
    };
    let full = |result| matches!(result, Err(Error::DiskFull { .. }));
    // The log can go on up to 16 MiB. One segment is for all, 1 MiB is promised.
    write_to(10 << 20).unwrap();
    log.prepare().unwrap();
    assert!(full(log.promise(3 << 20, true)));
    assert_eq!(log.stat().promised_bytes, 1 << 20);
    write_to(11 << 20).unwrap();
    assert!(full(log.prepare()) && !log.has_room());
    // A rollback may use what is there, but never begins what does not fit.
    log.prepare_rollback_step(64 << 10).unwrap();
    write_to(14 << 20).unwrap();
    assert!(full(log.prepare_rollback_step(64 << 10)));
    assert!(!poison.is_set());
    log.take_back_promise(1 << 20, true);
    vfs.faults.disk_full.store(false, Ordering::SeqCst);
    let began = std::time::Instant::now();
    while log.prepare().is_err() {
        assert!(began.elapsed().as_secs() < 5);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    write_to(17 << 20).unwrap();
    vfs.faults.disk_full.store(true, Ordering::SeqCst);
    assert!(matches!(write_to(64 << 20), Err(Error::Poisoned(_))));
}

/// Files for a large promise are made at once, become segments when nothing else is left, are taken
/// over by the next run, and go when nothing is promised.
#[test]
fn reserve_files_come_and_go() {
    let vfs = MemoryVfs::new();
    let mut small = params(&vfs);
    small.segment_bytes = 4 << 20;
    small.start_lsn = Lsn(4 << 20);
    small.options.capacity_bytes = 256 << 20;
    let (log, counters, poison) = open(small.clone());
    log.promise(10 << 20, true).unwrap();
    // Those that it takes, and one more, which the background thread may still be making.
    let began = std::time::Instant::now();
    while log.stat().reserve_files < 3 {
        assert!(began.elapsed().as_secs() < 30);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(log.stat().reserve_files, 3);
    vfs.faults.disk_full.store(true, Ordering::SeqCst);
    log.prepare().unwrap();
    while log.current_lsn().0 < 20 << 20 {
        log.prepare_rollback_step(100_100).unwrap();
        log.wait_for_space().unwrap();
        let (_, end) = log.append(&[1; 100_000], Claim::IfNews, |_, _| {}).unwrap();
        log.wait_durable(end).unwrap();
    }
    assert!(counters.get(Counter::LogSegmentsCreated) > 3);
    assert!(log.stat().reserve_files <= 1);
    log.take_back_promise(10 << 20, true);
    vfs.faults.disk_full.store(false, Ordering::SeqCst);
    let began = std::time::Instant::now();
    while log.promise(20 << 20, true).is_err() {
        assert!(began.elapsed().as_secs() < 5);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let made = log.stat().reserve_files;
    assert!(made >= 3 && !poison.is_set());
    small.start_lsn = log.current_lsn();
    small.epoch += 1;
    log.close().unwrap();
    drop(log);
    let (log, ..) = open(small);
    assert_eq!(log.stat().reserve_files, made);
    while log.stat().reserve_files > 0 {
        assert!(began.elapsed().as_secs() < 15);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// A log of which nothing is recycled is full at its size, and goes on when something is. What is
/// paced by its capacity sees less of it while much is promised.
#[test]
fn files_are_made_up_to_the_size_of_the_log() {
    let vfs = MemoryVfs::new();
    let mut params = params(&vfs);
    params.segment_bytes = 1 << 20;
    params.start_lsn = Lsn(1 << 20);
    params.options.capacity_bytes = 12 << 20;
    let (log, _, poison) = open(params);
    let files = || {
        let stat = log.stat();
        stat.segments as u64 + stat.reserve_files
    };
    let whole = log.capacity_bytes();
    assert!((4 << 20..9 << 20).contains(&whole), "{whole}");
    log.promise(2 << 20, true).unwrap();
    assert_eq!(log.capacity_bytes(), whole - (2 << 20));
    let write = || {
        log.wait_for_space()?;
        let (_, end) = log.append(&[1; 100_000], Claim::IfNews, |_, _| {})?;
        log.wait_durable(end)?;
        Ok::<_, Error>(end.0)
    };
    let mut end = 0;
    let full = loop {
        match log.prepare() {
            Ok(()) => end = write().unwrap(),
            Err(error) => break error,
        }
    };
    assert!(full.to_string().contains("log_file_size"), "{full}");
    assert_eq!((files(), log.is_disk_full()), (11, false));
    // All but what is promised, the floor, and a part of the last file.
    assert!((9 << 20..10 << 20).contains(&end), "{end}");
    // What is promised is there.
    while end < 10 << 20 {
        log.prepare_rollback_step(64 << 10).unwrap();
        end = write().unwrap();
    }
    assert_eq!(files(), 11);
    log.set_keep_from(Lsn(9 << 20));
    log.prepare().unwrap();
    write().unwrap();
    assert!(files() <= 11 && !poison.is_set());
}

/// Until a statement wants room the log is a part of its first segment, also when it was closed, or
/// was not, and is opened again; a full disk is an error of the statement, and leaves the log as it
/// is.
#[test]
fn an_unused_log_is_a_part_of_a_segment() {
    let vfs = MemoryVfs::new();
    let mut params = params(&vfs);
    params.segment_bytes = 4 << 20;
    params.start_lsn = Lsn(4 << 20);
    params.options.capacity_bytes = 256 << 20;
    params.may_be_unused = true;
    let bytes = |number| {
        let name = segment_file_name(number);
        let options = OpenOptions {
            create: Create::Never,
            read_only: true,
            direct: false,
            dsync: false,
        };
        let file = params.directory.open(&name, options).unwrap();
        file.len().unwrap()
    };
    let unused = (256 << 10) + LOG_BLOCK as u64;
    for epoch in 1..4 {
        let (log, ..) = open(params.clone());
        for i in 0..10 {
            let (_, end) = append(&log, &payload(epoch << 32 | i, 500));
            log.wait_durable(end).unwrap();
        }
        assert!(log.is_unused() && !log.has_room());
        assert_eq!((bytes(1), log.stat().segments), (unused, 1));
        (params.start_lsn, params.epoch) = (log.current_lsn(), epoch + 1);
        // Behind a crash too.
        (params.is_new, params.is_closed) = (false, epoch % 2 == 0);
        log.close().unwrap();
    }
    // The disk is full.
    let (log, _, poison) = open(params.clone());
    vfs.faults.disk_full.store(true, Ordering::SeqCst);
    let full = log.prepare().unwrap_err();
    assert!(matches!(full, Error::DiskFull { .. }), "{full}");
    let wanted = format!("{} more bytes of ", (4 << 20) + LOG_BLOCK as u64 - unused);
    assert!(full.to_string().contains(&wanted), "{full}");
    assert_eq!(bytes(1), unused);
    let (_, end) = append(&log, &payload(7, 500));
    log.wait_durable(end).unwrap();
    assert!(log.is_unused() && !poison.is_set());
    vfs.faults.disk_full.store(false, Ordering::SeqCst);
    let began = std::time::Instant::now();
    while log.prepare().is_err() {
        assert!(began.elapsed().as_secs() < 15);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!log.is_unused() && log.has_room());
    // What is made ahead comes in the background.
    while log.stat().spare_segments < 2 {
        assert!(began.elapsed().as_secs() < 30);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let end = log.current_lsn();
    drop(log);
    let (frames, found) = read(ReadParams {
        from: Lsn(4 << 20),
        segment_bytes: 4 << 20,
        ..read_params(&vfs, 9)
    })
    .unwrap();
    assert_eq!((frames.len(), found), (31, end));
}
