//! Rows read without the parts that lie outside: which pages that costs, and that the parts are
//! those of the row as it was seen, whatever comes behind it.

mod failure_support;

use failure_support::*;
use inkstone::internals::counters::Counter;
use inkstone::{Cursor, Database, Error, Isolation, Outline, Table};
use inkstone_io::sim::SimVfs;

/// A row of a number and two long columns with seven bytes between them.
fn value(number: u64, columns: [&[u8]; 2]) -> Vec<u8> {
    let [first, second] = columns;
    [&number.to_le_bytes()[..], first, b"between", second].concat()
}

fn put(db: &Database, table: &Table, n: u64, number: u64, columns: [&[u8]; 2]) {
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    put_in(&txn, table, n, number, columns);
    txn.commit().unwrap();
}

fn put_in(txn: &inkstone::Transaction, table: &Table, n: u64, number: u64, columns: [&[u8]; 2]) {
    let value = value(number, columns);
    let first = 8..8 + columns[0].len();
    let second = first.end + 7..value.len();
    txn.upsert_with_parts(table, &key(n), &value, &[first, second])
        .unwrap();
}

/// The whole value of an outline, its parts read in pieces.
fn whole(outline: &mut Outline, piece: usize) -> Vec<u8> {
    let (mut value, parts) = (outline.inline().to_vec(), outline.left_out().to_vec());
    for (n, part) in parts.iter().enumerate() {
        let mut bytes = vec![0; part.length as usize];
        for (at, to) in bytes.chunks_mut(piece).enumerate() {
            outline.read(n, (at * piece) as u64, to).unwrap();
        }
        let at = part.at as usize;
        value.splice(at..at, bytes);
    }
    assert_eq!(value.len() as u64, outline.value_len());
    value
}

/// The same of the cursor's row number `row`, of which `inline` is known.
fn whole_of(cursor: &mut Cursor, row: usize, inline: &[u8]) -> Vec<u8> {
    let (mut value, parts) = (inline.to_vec(), cursor.left_out(row).to_vec());
    for (n, part) in parts.iter().enumerate() {
        let mut bytes = vec![0; part.length as usize];
        cursor.read_left_out(row, n, 0, &mut bytes).unwrap();
        let at = part.at as usize;
        value.splice(at..at, bytes);
    }
    value
}

fn purge(db: &Database) {
    (0..6).for_each(|_| db.purge().unwrap());
}

#[test]
fn parts_are_fetched_when_they_are_read() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let columns = [noise(1, 1 << 20), noise(2, 300_000)];
    let columns = [&columns[0][..], &columns[1][..]];
    put(&db, &table, 1, 77, columns);
    db.close().unwrap();
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.table("t").unwrap();
    let levels = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ];
    for isolation in levels {
        let txn = db.begin(isolation).unwrap();
        assert!(txn.get_outline(&table, &key(2)).unwrap().is_none());
        let before = db.counters().get(Counter::PagesRead);
        let mut outline = txn.get_outline(&table, &key(1)).unwrap().unwrap();
        assert_eq!(outline.inline(), &value(77, [b"", b""])[..]);
        let parts: Vec<_> = outline
            .left_out()
            .iter()
            .map(|part| (part.at, part.length))
            .collect();
        assert_eq!(parts, [(8, 1 << 20), (8 + (1 << 20) + 7, 300_000)]);
        let mut cursor = txn.range(&table, ..).unwrap();
        cursor.set_outlines(true);
        let (_, inline) = cursor.next_row().unwrap().unwrap();
        assert_eq!(inline, &value(77, [b"", b""])[..]);
        assert_eq!(cursor.left_out(0), outline.left_out());
        assert_eq!(db.counters().get(Counter::PagesRead), before);
        assert!(whole(&mut outline, 1 << 20) == value(77, columns));
    }
    // Pieces: the pages before a piece are not looked for again.
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let mut outline = txn.get_outline(&table, &key(1)).unwrap().unwrap();
    let before = db.counters().get(Counter::BufferReadRequests);
    assert!(whole(&mut outline, 5000) == value(77, columns));
    let pages = db.counters().get(Counter::BufferReadRequests) - before;
    let pieces = ((1 << 20) + 300_000) / 5000;
    assert!(pages < 4 * pieces, "{pages} pages for {pieces} pieces");
    let mut two = [0; 2];
    for (part, from) in [(0, (1 << 20) - 1), (1, 300_000), (1, u64::MAX), (2, 0)] {
        let refused = failed(outline.read(part, from, &mut two));
        assert!(matches!(refused, Error::InvalidOption { .. }), "{refused}");
    }
}

/// A row is changed, purged, deleted behind an outline and a cursor that have seen it.
#[test]
fn parts_stay_as_long_as_they_can_be_read() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let (a, b, c) = (noise(1, 40_000), noise(2, 30_000), noise(3, 30_000));
    let levels = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
    ];
    for isolation in levels {
        put(&db, &table, 1, 1, [&a, &b]);
        put(&db, &table, 2, 2, [b"short", b"too"]);
        put(&db, &table, 3, 3, [&c, b"one"]);
        let txn = db.begin(isolation).unwrap();
        let mut outline = txn.get_outline(&table, &key(1)).unwrap().unwrap();
        let mut cursor = txn.range(&table, ..).unwrap();
        cursor.set_outlines(true);
        let rows = cursor.next_rows(10).unwrap().into_iter();
        let rows: Vec<_> = rows.map(|(_, inline)| inline.to_vec()).collect();
        assert_eq!(rows.len(), 3);
        drop(txn);
        put(&db, &table, 1, 4, [&c, &b]);
        put(&db, &table, 1, 5, [&c, &c]);
        purge(&db);
        let writer = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 1..=3 {
            writer.delete(&table, &key(n)).unwrap();
        }
        writer.commit().unwrap();
        purge(&db);
        put(&db, &table, 4, 9, [&noise(7, 90_000), &noise(8, 90_000)]);
        assert!(whole(&mut outline, 9000) == value(1, [&a, &b]));
        assert!(whole_of(&mut cursor, 0, &rows[0]) == value(1, [&a, &b]));
        assert_eq!(
            whole_of(&mut cursor, 1, &rows[1]),
            value(2, [b"short", b"too"])
        );
        assert!(whole_of(&mut cursor, 2, &rows[2]) == value(3, [&c, b"one"]));
        assert_eq!(cursor.left_out(3), []);
        drop((outline, cursor));
        purge(&db);
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        txn.delete(&table, &key(4)).unwrap();
        txn.commit().unwrap();
        purge(&db);
        db.verify_table(&table).unwrap();
    }
}

/// What a transaction has changed itself, and an older version that another snapshot sees.
#[test]
fn an_outline_is_of_the_version_that_is_seen() {
    let vfs = SimVfs::new(1);
    let db = open_sim(&vfs, small()).unwrap();
    let table = db.create_table("t", &[]).unwrap();
    let (a, b) = (noise(1, 40_000), noise(2, 30_000));
    put(&db, &table, 1, 1, [&a, &b]);
    let old = db.begin_with_snapshot().unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.savepoint("s").unwrap();
    put_in(&txn, &table, 1, 2, [&b, &a]);
    let read = |txn: &inkstone::Transaction| {
        let mut outline = txn.get_outline(&table, &key(1)).unwrap().unwrap();
        whole(&mut outline, 7777)
    };
    assert!(read(&txn) == value(2, [&b, &a]));
    assert!(read(&old) == value(1, [&a, &b]));
    // An outline of a row that is taken back, as long as the transaction goes on.
    let mut taken_back = txn.get_outline(&table, &key(1)).unwrap().unwrap();
    txn.rollback_to_savepoint("s").unwrap();
    purge(&db);
    assert!(whole(&mut taken_back, 7777) == value(2, [&b, &a]));
    assert!(read(&txn) == value(1, [&a, &b]));
    // A value in one chain is one part.
    txn.update(&table, &key(1), &a).unwrap();
    let mut outline = txn.get_outline(&table, &key(1)).unwrap().unwrap();
    assert_eq!((outline.inline().len(), outline.left_out().len()), (0, 1));
    assert!(whole(&mut outline, 7777) == a);
    txn.update(&table, &key(1), b"short").unwrap();
    let outline = txn.get_outline(&table, &key(1)).unwrap().unwrap();
    assert_eq!(
        (outline.inline(), outline.left_out().len()),
        (&b"short"[..], 0)
    );
    assert!(read(&old) == value(1, [&a, &b]));
}
