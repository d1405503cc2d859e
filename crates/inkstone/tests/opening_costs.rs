//! What an empty database costs: time, descriptors, bytes on disk, with default options and small
//! ones.
//! `cargo test --release -p inkstone --test opening_costs -- --nocapture` prints it.

use inkstone::{Database, Options};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Paths that this process has open below a directory.
fn descriptors(directory: &Path) -> Vec<String> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = links.filter_map(|link| std::fs::read_link(link.unwrap().path()).ok());
    let own = targets.filter_map(|path| {
        let below = path.strip_prefix(directory).ok()?;
        Some(below.display().to_string())
    });
    let mut own: Vec<_> = own.collect();
    own.sort();
    own
}

/// The tests here count descriptors of the process: one at a time.
static ONE_TEST: Mutex<()> = Mutex::new(());

fn all_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Bytes of the disk that the files of a directory take, by name.
fn bytes(directory: &Path) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(bytes(&entry.path()));
        } else {
            let name = entry.path().file_name().unwrap().display().to_string();
            all.push((name, entry.metadata().unwrap().blocks() * 512));
        }
    }
    all.sort();
    all
}

fn timed<T>(f: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    (f(), begun.elapsed())
}

/// Rings of io_uring that making a database may need.
const RINGS: usize = 2;

/// Makes a database, and opens it twice: descriptors that it had at most, without rings of its
/// making, and bytes that it takes.
fn costs(options: &Options) -> (usize, u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let (others, mut most) = (all_descriptors(), 0);
    for what in ["created", "opened", "opened again"] {
        let (db, opening) = timed(|| Database::open(&path, options.clone()).unwrap());
        let (own, all) = (descriptors(&path), all_descriptors() - others);
        // While it is made a batch of writes may have a ring of io_uring.
        let rings = if what == "created" { RINGS } else { 0 };
        most = most.max(all.saturating_sub(rings));
        let (_, closing) = timed(|| db.close().unwrap());
        println!("{what}: open {opening:?}, close {closing:?}, {all} descriptors: {own:?}");
    }
    let files = bytes(&path);
    let total: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    println!("{total} bytes: {files:?}");
    (most, total)
}

#[test]
fn an_empty_database_costs_little() {
    let _one = ONE_TEST.lock();
    let (descriptors, bytes) = costs(&Options::default());
    assert!(descriptors <= 10, "{descriptors}");
    assert!(bytes <= 5 << 20, "{bytes}");
    let small = Options {
        page_size: 4096,
        buffer_pool_size: 1 << 20,
        log_file_size: 4 << 20,
        log_buffer_size: 2 << 20,
        ..Options::default()
    };
    let (descriptors, bytes) = costs(&small);
    assert!(descriptors <= 10, "{descriptors}");
    assert!(bytes <= 1 << 20, "{bytes}");
}

/// Also where it stays open for longer than its threads pause. Once a row is written it has its
/// files at their sizes.
#[test]
fn an_empty_database_stays_small_until_it_is_written() {
    let _one = ONE_TEST.lock();
    let dir = tempfile::tempdir().unwrap();
    let total = || -> u64 { bytes(dir.path()).iter().map(|(_, bytes)| bytes).sum() };
    let db = Database::open(dir.path(), Options::default()).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(total() <= 5 << 20, "{}", total());
    let table = db.create_table("t", &[]).unwrap();
    let txn = db.begin(inkstone::Isolation::RepeatableRead).unwrap();
    txn.insert(&table, b"key", b"value").unwrap();
    txn.commit().unwrap();
    let began = Instant::now();
    let segments = || {
        let status = db.status();
        status
            .iter()
            .find(|(name, _)| *name == "log_segments")
            .unwrap()
            .1
    };
    while segments() < 3 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(10));
    }
    db.close().unwrap();
    assert!(total() > 48 << 20, "{}", total());
}
