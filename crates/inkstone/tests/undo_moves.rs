//! A transaction's undo moves in many mini-transactions, of which the last one counts: the log may
//! end behind each of them.

use inkstone::internals::counters::Counter;
use inkstone::internals::log::ReadParams;
use inkstone::internals::recovery::{FrameSource, LogSource};
use inkstone::{Database, Isolation, Options, TreeRef};
use inkstone_format::Lsn;
use inkstone_format::control::{CONTROL_COPY_LEN, Control};
use inkstone_format::record::{Decoder, Record};
use inkstone_format::segment::{LOG_BLOCK, parse_segment_file_name};
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::Arc;

const ROWS: u64 = 1_500;

/// Keys and values.
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn rows_of(db: &Database, table: &impl TreeRef) -> Rows {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let all = txn.range(table, ..).unwrap();
    all.map(|row| row.unwrap()).collect()
}

/// So many bytes, the first of them the number.
fn value(n: u64, len: usize) -> Vec<u8> {
    let mut bytes = n.to_be_bytes().to_vec();
    bytes.resize(len, b'v');
    bytes
}

/// No page is written before its time: the log can be cut anywhere.
fn open(vfs: &SimVfs) -> Database {
    let options = Options {
        page_size: 4096,
        buffer_pool_size: 8 << 20,
        log_file_size: 16 << 20,
        ..Options::default()
    };
    Database::open_on(Arc::new(vfs.clone()), Path::new("db"), options, &|_| {}).unwrap()
}

fn control(vfs: &SimVfs) -> Control {
    let bytes = vfs.read_raw(Path::new("db/control")).unwrap();
    let (first, second) = bytes.split_at(CONTROL_COPY_LEN);
    Control::choose([first, second]).unwrap().0
}

/// Where the mini-transactions end that give rows their new addresses, and the one that moves the
/// undo.
fn ends_of_move(vfs: &SimVfs) -> (Vec<Lsn>, Lsn) {
    let control = control(vfs);
    let mut source = LogSource::open(ReadParams::of(&control, vfs.directory("db/log"))).unwrap();
    let mut decoder = Decoder::default();
    let mut ends = Vec::new();
    while let Some(frame) = source.next().unwrap() {
        let records = decoder.decode(frame.payload).unwrap();
        match &records[..] {
            [Record::SetVersions { .. }] => ends.push(frame.end),
            [Record::UndoMoved { .. }] => return (ends, frame.end),
            _ => {}
        }
    }
    panic!("no undo has moved");
}

/// Takes away what the log has from an LSN on.
fn cut_log(vfs: &SimVfs, at: Lsn) {
    let segment_bytes = control(vfs).log_segment_bytes;
    for path in vfs.files() {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(number) = name.and_then(parse_segment_file_name) else {
            continue;
        };
        let header = LOG_BLOCK as u64;
        let from = header + at.0.saturating_sub(number * segment_bytes);
        let len = vfs.read_raw(&path).unwrap().len() as u64;
        if from < len {
            vfs.write_raw(&path, from, &vec![0; (len - from) as usize])
                .unwrap();
        }
    }
}

/// Wherever the log ends in the midst of a move, the transaction is undone; and before it is, its
/// rows are as they were.
#[test]
fn undo_that_a_crash_caught_on_its_way_is_where_it_was() {
    let vfs = SimVfs::new(1);
    let db = open(&vfs);
    let table = db.create_table("t", &["second"]).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..ROWS {
        txn.insert(&table, &n.to_be_bytes(), &value(n, 100))
            .unwrap();
    }
    txn.commit().unwrap();
    let before = rows_of(&db, &table);
    let loser = db.begin(Isolation::ReadCommitted).unwrap();
    for n in 0..ROWS {
        let key = (n * 7 % ROWS).to_be_bytes();
        match n % 3 {
            0 => drop(loser.upsert(&table, &key, &value(n, 120)).unwrap()),
            1 => loser.delete(&table, &key).map(drop).unwrap(),
            _ => {
                let second = table.tree("second").unwrap();
                loser.insert(second, &value(n, 9), &key).unwrap();
            }
        }
        if db.counters().get(Counter::UndoMoves) == 1 {
            break;
        }
    }
    assert_eq!(db.counters().get(Counter::UndoMoves), 1);
    db.flush_log().unwrap();
    let image = vfs.kill();
    drop((loser, table, db));
    let (renamed, moved) = ends_of_move(&image);
    assert!(renamed.len() > 20, "{} leaves", renamed.len());
    for (seed, end) in (1..).zip(renamed.into_iter().chain([moved])) {
        // Another disk each time.
        let vfs = image.crash(seed);
        cut_log(&vfs, end);
        check_undone(&vfs, end, &before);
    }
}

fn check_undone(vfs: &SimVfs, end: Lsn, before: &Rows) {
    let db = open(vfs);
    let recovered = db.open_report().recovered.clone().unwrap();
    assert_eq!(recovered.losers, 1, "log cut at {end}");
    let table = db.table("t").unwrap();
    for is_undone in [false, true] {
        if is_undone {
            db.finish_rollbacks().unwrap();
        }
        assert!(
            rows_of(&db, &table) == *before,
            "log cut at {end}: {is_undone}"
        );
        let second = table.tree("second").unwrap();
        assert_eq!(rows_of(&db, second), [], "log cut at {end}: {is_undone}");
    }
    db.verify_table(&table).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    for (key, _) in before.iter().step_by(10) {
        txn.update(&table, key, b"new").unwrap();
    }
    txn.commit().unwrap();
    db.close().unwrap();
}
