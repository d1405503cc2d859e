//! Every option does something that can be seen.

mod failure_support;

use failure_support::*;
use inkstone::internals::options::{
    Doublewrite, FlushMethod, IoBackend, LogWrite, PageCompression, PagePlacement,
};
use inkstone::{Database, Durability, Error, Isolation, LockMode, Options, Table, Wait};
use inkstone_io::sim::{OpKind, SimVfs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

fn with_table(options: Options) -> (SimVfs, Database, Table) {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, options).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    (vfs, db, table)
}

fn status(db: &Database) -> BTreeMap<&'static str, u64> {
    db.status().into_iter().collect()
}

/// Looks until it is so, for at most `limit`; how long it took.
#[track_caller]
fn wait_until(limit: Duration, mut is_so: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < limit, "not within {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    begin.elapsed()
}

#[test]
fn every_option_has_a_test_here() {
    let tested = [
        "page_size",                    // bad_input.rs
        "buffer_pool_size",             // the_pool_has_the_frames_asked_for
        "buffer_pool_instances",        // any_number_of_instances
        "buffer_pool_dump_at_shutdown", // a_warm_start
        "log_file_size",                // the_log_keeps_to_its_size
        "log_buffer_size",              // the_ring_bounds_what_is_unwritten
        "log_file_buffering",           // how_files_are_opened
        "log_write",                    // how_files_are_opened
        "log_write_through",            // written_through
        "log_archive",                  // old_segments_are_archived
        "bulk_logging",                 // bulk_logging.rs
        "flush_log_at_trx_commit",      // durability_of_the_database_and_of_a_transaction
        "doublewrite",                  // copies_and_their_skip
        "doublewrite_skip_fresh",       // copies_and_their_skip
        "page_placement",               // pages_that_are_placed
        "page_compression",             // pages_that_are_placed
        "page_compression_level",       // levels_of_compression
        "flush_method",                 // how_files_are_opened
        "open_files",                   // open_files/mod.rs
        "io_backend",                   // how_files_are_opened
        "fast_shutdown",                // closing.rs
        "lock_wait_timeout_ms",         // waiting_for_a_lock
        "lock_memory_max",              // locks_are_joined
        "slow_wait_ms",                 // waits_that_are_slow
        "version_store_memory",         // versions_spill
        "read_only",                    // force_recovery.rs
        "force_recovery",               // force_recovery.rs
        "recovery_threads",             // recovery_in_parts_and_threads
        "redo_before_open",             // late_redo.rs
        "recovery_memory",              // recovery_in_parts_and_threads
    ];
    let all: Vec<_> = Options::describe()
        .into_iter()
        .map(|option| option.name)
        .collect();
    assert_eq!(all, tested);
    // What is shown can be set.
    let mut copy = Options::default();
    for (name, value) in small().show() {
        copy.set(name, &value).unwrap();
    }
    assert_eq!(copy, small());
}

#[test]
fn the_pool_has_the_frames_asked_for() {
    for size in [256 << 10, 1 << 20, 4 << 20] {
        let (_vfs, db, table) = with_table(Options {
            buffer_pool_size: size,
            ..small()
        });
        assert_eq!(status(&db)["buffer_pool_frames"], size / 4096);
        insert(&db, &table, 0..3000, &[1; 400]).unwrap();
        let before = status(&db)["pages_read"];
        rows(&db, &table).unwrap();
        let read = status(&db)["pages_read"] - before;
        assert_eq!(read == 0, size == 4 << 20, "{size}: {read}");
    }
}

#[test]
fn any_number_of_instances() {
    for buffer_pool_instances in [1, 3, 64] {
        let (_vfs, db, table) = with_table(Options {
            buffer_pool_instances,
            ..small()
        });
        insert(&db, &table, 0..3000, &[1; 400]).unwrap();
        db.verify_table(&table).unwrap();
    }
}

#[test]
fn a_warm_start() {
    for warm in [true, false] {
        let options = Options {
            buffer_pool_dump_at_shutdown: warm,
            buffer_pool_size: 4 << 20,
            ..small()
        };
        let (vfs, db, table) = with_table(options.clone());
        insert(&db, &table, 0..3000, &[1; 400]).unwrap();
        let resident = status(&db)["buffer_pool_frames"] - status(&db)["buffer_pool_free"];
        assert!(resident > 300);
        drop(table);
        db.close().unwrap();
        assert_eq!(
            vfs.files().contains(&sim_dir().join("buffer_pool.dump")),
            warm
        );
        let db = open_sim(&vfs, options).unwrap();
        if warm {
            wait_until(Duration::from_secs(10), || {
                let now = status(&db);
                now["buffer_pool_frames"] - now["buffer_pool_free"] >= resident - 20
            });
            // Adjacent pages come in one read.
            let now = status(&db);
            assert!(now["data_read_calls"] * 4 < now["pages_read"], "{now:?}");
        }
        let before = status(&db)["pages_read"];
        let table = db.table("t").unwrap();
        assert_eq!(rows(&db, &table).unwrap().len(), 3000);
        let read = status(&db)["pages_read"] - before;
        assert_eq!(read < 20, warm, "{read}");
    }
}

#[test]
fn rubbish_in_the_dump_does_no_harm() {
    let options = Options {
        buffer_pool_dump_at_shutdown: true,
        ..small()
    };
    let (vfs, db, table) = with_table(options.clone());
    insert(&db, &table, 0..500, &[1; 400]).unwrap();
    drop(table);
    db.close().unwrap();
    let rubbish: Vec<u8> = (0..40_003u32).map(|n| (n * n % 253) as u8).collect();
    vfs.write_raw(&sim_dir().join("buffer_pool.dump"), 0, &rubbish)
        .unwrap();
    let db = open_sim(&vfs, options).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let table = db.table("t").unwrap();
    assert_eq!(rows(&db, &table).unwrap().len(), 500);
    db.verify_table(&table).unwrap();
}

fn write_log(db: &Database, table: &Table, bytes: u64) {
    let begin = status(db)["lsn_current"];
    for n in 0.. {
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for m in 0..20 {
            let value = noise(n * 20 + m, 900);
            txn.upsert(table, &key((n * 20 + m) % 1000), &value)
                .unwrap();
        }
        txn.commit_with(Durability::Lazy).unwrap();
        if status(db)["lsn_current"] - begin > bytes {
            return;
        }
    }
}

/// Writes the log in steps, each of which a checkpoint follows: where a scan of the log may begin
/// is noted ten times a second only, so after one burst much of the log is kept for long.
fn write_log_in_steps(db: &Database, table: &Table, steps: u64) {
    for _ in 0..steps {
        write_log(db, table, 1500 << 10);
        wait_until(Duration::from_secs(20), || {
            status(db)["checkpoint_age_bytes"] < 256 << 10
        });
    }
}

fn log_bytes(vfs: &SimVfs, directory: &str) -> u64 {
    let inside = |path: &std::path::PathBuf| path.parent() == Some(&sim_dir().join(directory));
    let files: Vec<_> = vfs.files().into_iter().filter(inside).collect();
    files
        .iter()
        .map(|path| vfs.read_raw(path).unwrap().len() as u64)
        .sum()
}

#[test]
fn the_log_keeps_to_its_size() {
    for size in [4 << 20, 16 << 20] {
        let (vfs, db, table) = with_table(Options {
            log_file_size: size,
            ..small()
        });
        write_log_in_steps(&db, &table, 2 + size / (1 << 20));
        assert!(status(&db)["log_segments_recycled"] > 0);
        // Some segments ahead of the writer come on top.
        let segment = (size / 8).max(1 << 20);
        wait_until(Duration::from_secs(20), || {
            log_bytes(&vfs, "log") <= size + 5 * segment
        });
    }
}

#[test]
fn the_ring_bounds_what_is_unwritten() {
    for log_buffer_size in [2 << 20, 8 << 20] {
        let (vfs, db, table) = with_table(Options {
            log_buffer_size,
            log_file_size: 64 << 20,
            ..small()
        });
        vfs.set_sync_delay(Duration::from_millis(2));
        let mut most = 0;
        let mut rounds = 0;
        // The thread that writes early begins at an eighth of the ring. On a busy machine it can be
        // through before this looks, so this looks until it was not.
        while rounds < 60 || most <= log_buffer_size / 16 {
            write_log(&db, &table, 100 << 10);
            let now = status(&db);
            most = most.max(now["lsn_current"].saturating_sub(now["lsn_written"]));
            rounds += 1;
            assert!(rounds < 3000, "{most}");
        }
        assert!(most <= log_buffer_size, "{most}");
    }
}

#[test]
fn old_segments_are_archived() {
    for log_archive in [false, true] {
        let (vfs, db, table) = with_table(Options {
            log_archive,
            ..small()
        });
        write_log_in_steps(&db, &table, 8);
        if log_archive {
            wait_until(Duration::from_secs(20), || {
                log_bytes(&vfs, "log/archive") > 4 << 20
            });
        } else {
            assert_eq!(log_bytes(&vfs, "log/archive"), 0);
        }
        drop(table);
        db.close().unwrap();
        let db = open_sim(&vfs, small()).unwrap();
        db.verify_table(&db.table("t").unwrap()).unwrap();
    }
}

#[test]
fn durability_of_the_database_and_of_a_transaction() {
    let all = [Durability::Lazy, Durability::Sync, Durability::Write];
    for of_database in all {
        for of_transaction in all.map(Some).into_iter().chain([None]) {
            let (vfs, db, table) = with_table(Options {
                flush_log_at_trx_commit: of_database,
                ..small()
            });
            // Just after a tick of the background thread nothing else makes it durable.
            insert(&db, &table, 0..1, b"first").unwrap();
            wait_until(Duration::from_secs(3), || {
                status(&db)["lsn_durable"] == status(&db)["lsn_current"]
            });
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            txn.insert(&table, &key(1), b"second").unwrap();
            match of_transaction {
                Some(durability) => txn.commit_with(durability).unwrap(),
                None => txn.commit().unwrap(),
            }
            let now = status(&db);
            let end = now["lsn_current"];
            match of_transaction.unwrap_or(of_database) {
                Durability::Sync => assert!(now["lsn_durable"] >= end),
                Durability::Write => assert!(now["lsn_written"] >= end && now["lsn_durable"] < end),
                Durability::Lazy => assert!(now["lsn_durable"] < end),
            }
            let took = wait_until(Duration::from_millis(1500), || {
                status(&db)["lsn_durable"] >= end
            });
            drop(table);
            let vfs = vfs.crash(7);
            drop(db);
            let db = open_sim(&vfs, small()).unwrap();
            let table = db.table("t").unwrap();
            assert_eq!(rows(&db, &table).unwrap(), [0, 1], "{took:?}");
        }
    }
}

#[test]
fn written_through() {
    for log_write_through in [false, true] {
        let (vfs, db, table) = with_table(Options {
            log_write_through,
            ..small()
        });
        let before = status(&db);
        for n in 0..20 {
            insert(&db, &table, n..n + 1, b"row").unwrap();
        }
        let now = status(&db);
        assert_eq!(now["log_syncs"] == before["log_syncs"], log_write_through);
        assert!(now["log_write_calls"] >= before["log_write_calls"] + 20);
        drop(table);
        let vfs = vfs.crash(1);
        drop(db);
        let db = open_sim(&vfs, small()).unwrap();
        let table = db.table("t").unwrap();
        assert_eq!(rows(&db, &table).unwrap().len(), 20);
    }
}

#[test]
fn copies_and_their_skip() {
    let run = |doublewrite, doublewrite_skip_fresh| {
        let (vfs, db, table) = with_table(Options {
            doublewrite,
            doublewrite_skip_fresh,
            buffer_pool_size: 4 << 20,
            ..small()
        });
        insert(&db, &table, 0..1000, &[1; 400]).unwrap();
        db.checkpoint().unwrap();
        let file = vfs.files().contains(&sim_dir().join("doublewrite"));
        let now = status(&db);
        (
            file,
            now["doublewrite_pages"],
            now["doublewrite_skipped"],
            now["pages_written"],
        )
    };
    let (file, copied, skipped, written) = run(Doublewrite::On, true);
    assert!(file && skipped > 100 && copied < 20 && written > 100);
    let (file, copied, skipped, written) = run(Doublewrite::On, false);
    assert!(file && skipped == 0 && copied == written);
    let (file, copied, skipped, _) = run(Doublewrite::Off, true);
    assert_eq!((file, copied, skipped), (false, 0, 0));
}

#[test]
fn pages_that_are_placed() {
    let run = |page_placement, page_compression| {
        let options = Options {
            page_placement,
            page_compression,
            doublewrite_skip_fresh: false,
            page_size: 16 << 10,
            buffer_pool_size: 4 << 20,
            ..small()
        };
        let (vfs, db, table) = with_table(options.clone());
        insert(&db, &table, 0..1000, &[1; 4000]).unwrap();
        db.checkpoint().unwrap();
        let copied = status(&db)["doublewrite_pages"];
        let maps = vfs.files();
        let is_map = |path: &&std::path::PathBuf| path.extension().is_some_and(|e| e == "places");
        let maps = maps.iter().filter(is_map).count();
        let name = table.name().to_owned();
        drop(table);
        db.close().unwrap();
        let mut files = vfs.files();
        files.retain(|path| path.to_string_lossy().ends_with("01.ink"));
        let bytes = vfs.read_raw(&files[0]).unwrap().len();
        let db = open_sim(&vfs, options).unwrap();
        let table = db.table(&name).unwrap();
        assert_eq!(db.verify_table(&table).unwrap().trees[0].1.rows, 1000);
        (maps, copied, bytes)
    };
    let (maps, copied, in_place) = run(PagePlacement::InPlace, PageCompression::Lz4);
    assert!(maps == 0 && copied > 100, "{maps} maps, {copied} copies");
    let (maps, catalog, whole) = run(PagePlacement::Placed, PageCompression::None);
    assert!(
        maps == 1 && catalog < copied,
        "{maps} maps, {catalog} copies"
    );
    let (maps, _, packed) = run(PagePlacement::Placed, PageCompression::Lz4);
    assert_eq!(maps, 1);
    assert!(
        packed * 2 < whole && packed * 2 < in_place,
        "{packed}, {whole}, {in_place} bytes"
    );
}

#[test]
fn levels_of_compression() {
    let bytes = |page_compression, page_compression_level| {
        let (_vfs, db, table) = with_table(Options {
            page_placement: PagePlacement::Placed,
            page_compression,
            page_compression_level,
            page_size: 64 << 10,
            buffer_pool_size: 16 << 20,
            log_file_size: 64 << 20,
            ..small()
        });
        let text = |n: u64| format!("row {} of {}; ", n * n % 977, n % 31).repeat(9);
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 0..20_000 {
            txn.insert(&table, &key(n), text(n).as_bytes()).unwrap();
        }
        txn.commit().unwrap();
        db.checkpoint().unwrap();
        status(&db)["page_bytes_written"]
    };
    let (fast, small) = (
        bytes(PageCompression::Zstd, 1),
        bytes(PageCompression::Zstd, 19),
    );
    let lz4 = bytes(PageCompression::Lz4, 19);
    assert!(small < fast && fast < lz4, "{small}, {fast}, {lz4} bytes");
}

#[test]
fn waiting_for_a_lock() {
    let (_vfs, db, table) = with_table(Options {
        lock_wait_timeout_ms: 100,
        ..small()
    });
    let holder = db.begin(Isolation::ReadCommitted).unwrap();
    holder.insert(&table, b"row", b"").unwrap();
    let waiter = db.begin(Isolation::ReadCommitted).unwrap();
    let begin = Instant::now();
    let error = failed(waiter.insert(&table, b"row", b""));
    assert!(
        matches!(
            error,
            Error::LockTimeout {
                waited_ms: 100..,
                ..
            }
        ),
        "{error}"
    );
    let place = "for key 726f77 in tree primary of table t";
    assert!(error.to_string().ends_with(place), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(5));
    waiter.set_lock_wait_timeout(Duration::ZERO);
    assert!(matches!(
        waiter.insert(&table, b"row", b""),
        Err(Error::LockTimeout { .. })
    ));
    holder.rollback().unwrap();
    waiter.insert(&table, b"row", b"").unwrap();
}

#[test]
fn waits_that_are_slow() {
    for (slow_wait_ms, is_kept) in [(30, true), (60_000, false), (0, false)] {
        let (_vfs, db, table) = with_table(Options {
            slow_wait_ms,
            lock_wait_timeout_ms: 40,
            ..small()
        });
        let holder = db.begin(Isolation::ReadCommitted).unwrap();
        holder.insert(&table, b"row", b"").unwrap();
        let waiter = db.begin(Isolation::ReadCommitted).unwrap();
        let waits = || {
            let of_locks = |wait: &inkstone::SlowWait| wait.name == "row_lock_wait";
            let waits = db.slow_waits();
            waits.into_iter().filter(of_locks).collect::<Vec<_>>()
        };
        for number in 1..=70 {
            failed(waiter.insert(&table, b"row", b""));
            let waits = waits();
            assert_eq!(waits.len(), if is_kept { number.min(64) } else { 0 });
            let Some(last) = waits.last() else {
                break;
            };
            assert!(last.took >= Duration::from_millis(40) && last.reason.contains("lock"));
            assert_eq!(last.thread.as_deref(), std::thread::current().name());
            assert!(waits[0].ago >= last.ago);
        }
    }
}

#[test]
fn locks_are_joined() {
    for (lock_memory_max, joined) in [(20 << 10, true), (64 << 20, false)] {
        let (_vfs, db, table) = with_table(Options {
            lock_memory_max,
            ..small()
        });
        insert(&db, &table, 0..5000, &[1; 9]).unwrap();
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in (0..5000).step_by(2) {
            let row = txn.get_locking(&table, &key(n), LockMode::Exclusive, Wait::Timeout);
            assert!(row.unwrap().is_some());
        }
        assert_eq!(status(&db)["locks_joined"] > 0, joined);
        assert_eq!(status(&db)["row_locks"] == 2500, !joined);
        let other = db.begin(Isolation::ReadCommitted).unwrap();
        let is_locked = |n| {
            let row = other.get_locking(&table, &key(n), LockMode::Shared, Wait::NoWait);
            matches!(row, Err(Error::LockNotAvailable))
        };
        // What was locked is locked, also if more is.
        assert!((0..5000).step_by(50).all(&is_locked));
        assert_eq!(is_locked(2501), joined);
        txn.commit().unwrap();
        assert!(!is_locked(2500));
    }
}

#[test]
fn versions_spill() {
    for (version_store_memory, spills) in [(1 << 20, true), (64 << 20, false)] {
        let (vfs, db, table) = with_table(Options {
            version_store_memory,
            ..small()
        });
        insert(&db, &table, 0..500, &[1; 900]).unwrap();
        // Versions that it needs, of transactions that are short.
        let old = db.begin(Isolation::RepeatableRead).unwrap();
        old.take_snapshot().unwrap();
        for from in (0..5000).step_by(50) {
            let txn = db.begin(Isolation::ReadCommitted).unwrap();
            for n in from..from + 50 {
                txn.update(&table, &key(n % 500), &[n as u8; 900]).unwrap();
            }
            txn.commit().unwrap();
        }
        assert_eq!(status(&db)["version_segments_spilled"] > 0, spills);
        assert_eq!(
            vfs.files().contains(&sim_dir().join("versions.tmp")),
            spills
        );
        assert!(status(&db)["version_store_bytes"] <= version_store_memory + (1 << 20));
        assert_eq!(old.get(&table, &key(7)).unwrap(), Some(vec![1; 900]));
        old.rollback().unwrap();
        drop(table);
        db.close().unwrap();
        assert!(!vfs.files().contains(&sim_dir().join("versions.tmp")));
    }
}

#[test]
fn recovery_in_parts_and_threads() {
    let (vfs, db, table) = with_table(Options {
        log_file_size: 32 << 20,
        ..small()
    });
    write_log(&db, &table, 6 << 20);
    let expected = rows(&db, &table).unwrap();
    db.flush_log().unwrap();
    drop(table);
    let crashed = vfs.crash(1);
    drop(db);
    for (threads, memory) in [(1, 1 << 20), (2, 64 << 20), (0, 0), (256, 1 << 20)] {
        let disk = crashed.crash(2);
        let db = open_sim(
            &disk,
            Options {
                recovery_threads: threads,
                recovery_memory: memory,
                log_file_size: 32 << 20,
                ..small()
            },
        )
        .unwrap();
        let redo = &db.open_report().recovered.as_ref().unwrap().redo;
        assert!(redo.bytes_scanned > 1 << 20);
        let has_no_room = redo.batches > 1 || redo.bytes_spilled > 0;
        assert_eq!(has_no_room, memory == 1 << 20, "{redo:?}");
        let table = db.table("t").unwrap();
        assert_eq!(rows(&db, &table).unwrap(), expected);
        db.verify_table(&table).unwrap();
    }
    let threads = |recovery_threads| {
        let options = Options {
            recovery_threads,
            ..small()
        };
        options.recovery_thread_count()
    };
    assert_eq!((threads(1), threads(7)), (1, 7));
    assert!(threads(0) >= 1);
}

/// Flags of the open files under a directory, of each handle, by file name.
fn open_flags(directory: &Path) -> BTreeMap<String, Vec<i32>> {
    let mut found = BTreeMap::<_, Vec<i32>>::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let Ok(path) = std::fs::read_link(entry.as_ref().unwrap().path()) else {
            continue;
        };
        if !path.starts_with(directory) {
            continue;
        }
        let number = entry.unwrap().file_name().into_string().unwrap();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
        let flags = info
            .lines()
            .find_map(|line| line.strip_prefix("flags:"))
            .unwrap();
        let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        found.entry(name).or_default().push(flags);
    }
    found
}

fn rings() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = links.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links
        .filter(|path| path.to_string_lossy().contains("io_uring"))
        .count()
}

/// Until a page was written that had a copy: then the doublewrite file is a large one.
fn wait_for_page_writes(directory: &Path) {
    let begin = Instant::now();
    let is_large = || {
        let found = std::fs::metadata(directory.join("doublewrite"));
        found.unwrap().len() > 1 << 20 && open_flags(directory).contains_key("doublewrite")
    };
    while !is_large() {
        assert!(begin.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The only test here that opens real files.
#[test]
fn how_files_are_opened() {
    const O_DSYNC: i32 = 0o10000;
    let o_direct = if cfg!(target_arch = "aarch64") {
        0o200_000
    } else {
        0o40000
    };
    let cases = [
        (FlushMethod::Fsync, true, true, false, false),
        (FlushMethod::ODsync, false, false, false, true),
        (FlushMethod::ODirect, false, true, true, false),
        (FlushMethod::ODirectNoFsync, true, false, true, false),
    ];
    for (flush_method, log_file_buffering, log_write_through, direct, dsync) in cases {
        for io_backend in [IoBackend::Posix, IoBackend::IoUring] {
            for log_write in [LogWrite::Sync, LogWrite::Async] {
                let dir = tempfile::tempdir().unwrap();
                let options = Options {
                    flush_method,
                    log_file_buffering,
                    log_write_through,
                    io_backend,
                    log_write,
                    ..small()
                };
                let db = match Database::open(dir.path(), options) {
                    Ok(db) => db,
                    Err(error) if io_backend == IoBackend::IoUring => {
                        println!("io_uring is not to be had here: {error}");
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                let table = db.create_table("t", &[]).unwrap();
                insert(&db, &table, 0..10, b"row").unwrap();
                let txn = db.begin(Isolation::ReadCommitted).unwrap();
                txn.insert(&table, b"through the cache", b"row").unwrap();
                txn.commit_with(Durability::Write).unwrap();
                wait_for_page_writes(dir.path());
                let flags = open_flags(dir.path());
                let ways = |name: &str| -> BTreeSet<(bool, bool)> {
                    let of = |flags: &i32| (flags & o_direct != 0, flags & O_DSYNC != 0);
                    flags[name].iter().map(of).collect()
                };
                for name in ["catalog.ink", "t00000001.ink", "doublewrite"] {
                    assert_eq!(ways(name), BTreeSet::from([(direct, dsync)]));
                }
                let (segment, _) = flags
                    .iter()
                    .find(|(name, _)| name.ends_with(".log"))
                    .unwrap();
                // As the options say, and through the page cache.
                let both = [(!log_file_buffering, log_write_through), (false, false)];
                assert_eq!(ways(segment), BTreeSet::from(both));
                // A thread makes its ring when it first writes.
                let begin = Instant::now();
                while rings() == 0 && io_backend == IoBackend::IoUring {
                    assert!(begin.elapsed() < Duration::from_secs(30));
                    std::thread::sleep(Duration::from_millis(10));
                }
                assert_eq!(rings() > 0, io_backend == IoBackend::IoUring);
                drop((db, table));
                assert_eq!(open_flags(dir.path()).len(), 0);
            }
        }
    }
}

/// What settings 0 and 2 promise, without any call: durable within about a second, and a few of a
/// loaded machine.
#[test]
fn lazy_commits_become_durable_by_themselves() {
    for durability in [Durability::Lazy, Durability::Write] {
        let (vfs, db, table) = with_table(Options {
            flush_log_at_trx_commit: durability,
            ..small()
        });
        let mut slowest = Duration::ZERO;
        for n in 0..3 {
            insert(&db, &table, n..n + 1, b"row").unwrap();
            let end = status(&db)["lsn_current"];
            slowest = slowest.max(wait_until(Duration::from_secs(20), || {
                status(&db)["lsn_durable"] >= end
            }));
        }
        assert!(slowest < Duration::from_secs(5), "{slowest:?}");
        assert!(vfs.operations_of(OpKind::Sync) > 0);
    }
}
