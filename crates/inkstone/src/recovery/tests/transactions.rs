//! What the log says about transactions.

use super::rig::{LogBuilder, MemoryDisk, leaf_init, page, put_all, redo_from};
use crate::recovery::RedoOutcome;
use crate::{Error, Result};
use inkstone_format::header::{PageType, init_page};
use inkstone_format::record::{
    Context, Diff, LoggedVersion, Record, Row, TrxRef, Undo, UndoEntry, UndoList, put_insert,
};
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::version::version_bytes;
use inkstone_format::{Lsn, SpaceId, TreeId, TrxId, VersionAddress};

const TREE: TreeId = TreeId(0);

fn slot(slot: u32) -> TrxRef {
    TrxRef {
        slot,
        first: None,
        version: None,
    }
}

fn first(slot: u32, id: u64) -> TrxRef {
    let first = Some(TrxId(id));
    TrxRef {
        slot,
        first,
        version: None,
    }
}

fn row(key: &[u8]) -> Row {
    Row {
        flags: 0,
        key: key.to_vec(),
        value: b"old".to_vec(),
    }
}

fn insert(trx: TrxRef, at: u16, keys: &[&[u8]]) -> Record {
    Record::RowsInsert {
        page: page(0),
        trx,
        tree: TREE,
        slot: at,
        rows: keys.iter().map(|key| row(key)).collect(),
    }
}

fn undo_insert(trx_slot: u32, at: u16) -> Record {
    Record::RowUndo {
        page: page(0),
        trx_slot,
        slot: at,
        undo: Undo::Insert,
    }
}

fn entry(key: &[u8], undo: Undo) -> UndoEntry {
    UndoEntry {
        space: page(0).space,
        tree: TREE,
        key: key.to_vec(),
        undo,
    }
}

fn copy(trx_slot: u32, trx: u64, parts: (bool, bool), entries: Vec<UndoEntry>) -> Record {
    Record::UndoCopy {
        trx_slot,
        trx: TrxId(trx),
        first: parts.0,
        last: parts.1,
        xid: None,
        entries,
    }
}

/// A log whose first frame makes page 0 a leaf.
fn log() -> LogBuilder {
    let mut log = LogBuilder::new();
    log.records(&[leaf_init(page(0))]);
    log
}

fn disk() -> MemoryDisk {
    let disk = MemoryDisk::default();
    disk.state().files.insert(page(0).space, Vec::new());
    disk
}

fn outcome(log: &LogBuilder) -> Result<RedoOutcome> {
    redo_from(log, &disk(), Lsn(5000))
}

fn detail(result: Result<RedoOutcome>) -> String {
    match result {
        Err(error @ Error::Corrupt { .. }) => error.to_string(),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("no error"),
    }
}

#[test]
fn each_change_is_undone_by_its_inverse() {
    let mut log = log();
    let start = log.end;
    log.records(&[insert(first(4, 77), 0, &[b"a", b"b"])]);
    log.records(&[Record::RowUpdate {
        page: page(0),
        trx: slot(4),
        tree: TREE,
        slot: 0,
        key: b"a".to_vec(),
        old_flags: 0,
        flags: 4,
        diff: Diff::between(b"old", b"new"),
    }]);
    log.records(&[Record::RowMark {
        page: page(0),
        trx: slot(4),
        tree: TREE,
        slot: 1,
        key: b"b".to_vec(),
    }]);
    log.records(&[Record::RowRevive {
        page: page(0),
        trx: slot(4),
        tree: TREE,
        slot: 1,
        flags: 0,
        key: b"b".to_vec(),
        value: b"again".to_vec(),
    }]);
    let outcome = outcome(&log).unwrap();
    let [loser] = &outcome.losers[..] else {
        panic!("{outcome:?}");
    };
    let update = Undo::Update {
        flags: 0,
        diff: Diff::between(b"new", b"old"),
    };
    let expected = [
        entry(b"a", Undo::Insert),
        entry(b"b", Undo::Insert),
        entry(b"a", update),
        entry(b"b", Undo::Mark),
        entry(b"b", Undo::Revive),
    ];
    assert_eq!(loser.undo, expected);
    assert_eq!(
        (loser.slot, loser.id, loser.first_lsn),
        (4, TrxId(77), start)
    );
    assert_eq!(outcome.trx_id_max, TrxId(77));
    assert_eq!(outcome.space_id_max, Some(page(0).space));
    assert_eq!(
        (outcome.report.losers, outcome.report.loser_changes),
        (1, 5)
    );
}

#[test]
fn ends_compensation_and_preparation_count() {
    let mut log = log();
    log.records(&[insert(first(0, 1), 0, &[b"a"])]);
    log.records(&[insert(first(1, 2), 1, &[b"b", b"c"])]);
    log.records(&[insert(first(2, 3), 3, &[b"d"])]);
    log.records(&[Record::Commit { trx_slot: 0 }]);
    log.records(&[undo_insert(1, 2)]);
    let xid = b"xid".to_vec();
    let trx_slot = 2;
    log.records(&[Record::Prepare { trx_slot, xid }]);
    log.records(&[insert(first(0, 4), 2, &[b"c"])]);
    log.records(&[undo_insert(0, 2), Record::RollbackEnd { trx_slot: 0 }]);
    let outcome = outcome(&log).unwrap();
    let [loser] = &outcome.losers[..] else {
        panic!("{outcome:?}");
    };
    assert_eq!(loser.undo, [entry(b"b", Undo::Insert)]);
    let [prepared] = &outcome.prepared[..] else {
        panic!("{outcome:?}");
    };
    assert_eq!(prepared.xid.as_deref(), Some(&b"xid"[..]));
    assert_eq!((prepared.id, outcome.trx_id_max), (TrxId(3), TrxId(4)));
}

#[test]
fn a_whole_copy_replaces_the_stack_and_a_part_does_not() {
    let mut log = log();
    log.records(&[insert(first(0, 1), 0, &[b"a", b"b"])]);
    let at_copy = log.end;
    let copied = vec![entry(b"a", Undo::Insert), entry(b"b", Undo::Insert)];
    log.records(&[copy(0, 1, (true, false), copied[..1].to_vec())]);
    let part = outcome(&log).unwrap().losers;
    assert_eq!(part[0].undo, copied);
    assert!(part[0].first_lsn < at_copy);
    log.records(&[copy(0, 1, (false, true), copied[1..].to_vec())]);
    log.records(&[insert(slot(0), 2, &[b"c"])]);
    let whole = outcome(&log).unwrap().losers;
    assert_eq!((whole[0].undo.len(), whole[0].first_lsn), (3, at_copy));
    // The log before the copy is not needed.
    let end = log.end;
    let disk = disk();
    let later = LogBuilder {
        frames: log.frames[2..].to_vec(),
        end,
    };
    let pool = super::rig::pool(&disk, 64);
    let mut source = later.from(at_copy);
    let how = super::rig::How::from(end);
    let found = super::rig::run(&mut source, &disk, &pool, how).unwrap();
    assert_eq!(found.losers, whole);
}

#[test]
fn a_copy_that_was_given_up_is_ignored() {
    let mut log = log();
    log.records(&[insert(first(0, 1), 0, &[b"a"])]);
    log.records(&[copy(0, 1, (true, false), vec![])]);
    log.records(&[insert(slot(0), 1, &[b"b"])]);
    assert_eq!(outcome(&log).unwrap().losers[0].undo.len(), 2);
    let mut broken = log.clone();
    broken.records(&[copy(0, 1, (false, true), vec![])]);
    assert!(detail(outcome(&broken)).contains("not the first one"));
    log.records(&[copy(0, 1, (true, true), vec![entry(b"x", Undo::Mark)])]);
    assert_eq!(outcome(&log).unwrap().losers[0].undo.len(), 1);
}

#[test]
fn impossible_orders_are_errors() {
    let mut two = log();
    two.records(&[insert(first(0, 1), 0, &[b"a"])]);
    two.records(&[insert(first(0, 2), 0, &[b"b"])]);
    assert!(detail(outcome(&two)).contains("begins in slot 0"));
    let mut undone = log();
    undone.records(&[insert(first(0, 1), 0, &[b"a"])]);
    undone.records(&[undo_insert(0, 0)]);
    undone.records(&[undo_insert(0, 0)]);
    assert!(detail(outcome(&undone)).contains("has none left"));
    let mut other = log();
    other.records(&[insert(first(0, 1), 0, &[b"a"])]);
    other.records(&[copy(0, 2, (true, true), vec![])]);
    assert!(detail(outcome(&other)).contains("transaction 2"));
}

#[test]
fn changes_of_dropped_tables_are_skipped_by_rollback() {
    let gone = SpaceId(8);
    let mut log = log();
    log.records(&[insert(first(0, 1), 0, &[b"a", b"b"])]);
    let dropped = UndoEntry {
        space: gone,
        ..entry(b"x", Undo::Insert)
    };
    let entries = vec![
        entry(b"a", Undo::Insert),
        entry(b"b", Undo::Insert),
        dropped,
    ];
    log.records(&[copy(0, 1, (true, true), entries)]);
    log.records(&[undo_insert(0, 1)]);
    let found = outcome(&log).unwrap();
    assert_eq!(found.losers[0].undo, [entry(b"a", Undo::Insert)]);
    let disk = disk();
    disk.state().files.insert(gone, Vec::new());
    let result = redo_from(&log, &disk, Lsn(5000));
    assert!(detail(result).contains("passed over changes of tablespace 8"));
}

/// A log with an insert coded against one in a frame before; LSNs of both.
fn contextual(end: bool) -> (LogBuilder, Lsn, Lsn) {
    let mut log = log();
    let mut context = Context::default();
    let mut put = |log: &mut LogBuilder, at: u16, key: &[u8]| {
        let mut payload = Vec::new();
        let first = (at == 0).then_some(TrxId(9));
        let trx = TrxRef {
            slot: 0,
            first,
            version: None,
        };
        put_insert(
            &mut payload,
            &mut context,
            trx,
            page(0),
            TREE,
            at,
            0,
            key,
            b"v",
        );
        log.append(payload).0
    };
    let full = put(&mut log, 0, b"a");
    let coded = put(&mut log, 1, b"b");
    if end {
        log.records(&[Record::Commit { trx_slot: 0 }]);
    }
    (log, full, coded)
}

#[test]
fn a_missing_context_is_harmless_before_the_checkpoint_only() {
    let (log, _, coded) = contextual(true);
    let disk = disk();
    let run = |checkpoint| {
        let pool = super::rig::pool(&disk, 64);
        let how = super::rig::How::from(checkpoint);
        super::rig::run(&mut log.from(coded), &disk, &pool, how)
    };
    let outcome = run(log.end).unwrap();
    assert_eq!(outcome.report.frames_without_context, 1);
    assert!(outcome.losers.is_empty());
    let error = run(coded).unwrap_err();
    let Error::Corrupt { file, offset, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((file.to_str(), *offset), (Some("log/0.log"), coded.0));
    assert!(error.to_string().contains("was not read"));
}

#[test]
fn a_missing_context_of_an_open_transaction_is_an_error() {
    let (mut log, ..) = contextual(false);
    // The copy makes the transaction known; its context was not cleared, which is wrong.
    let coded = log.frames.pop().unwrap();
    log.end = coded.0;
    let copied = log.records(&[copy(0, 9, (true, true), vec![])]).0;
    log.append(coded.2);
    let disk = disk();
    let pool = super::rig::pool(&disk, 64);
    let how = super::rig::How::from(log.end);
    let result = super::rig::run(&mut log.from(copied), &disk, &pool, how);
    assert!(detail(result).contains("was not read"));
}

#[test]
fn an_open_transaction_of_unknown_beginning_is_an_error() {
    let disk = disk();
    let mut bytes = vec![0; super::rig::PAGE];
    init_page(&mut bytes, page(1), PageType::Overflow);
    let mut log = log();
    let mark = Record::RowMark {
        page: page(0),
        trx: slot(6),
        tree: TREE,
        slot: 0,
        key: b"a".to_vec(),
    };
    let rows = vec![row(b"a")];
    let cells = Record::LeafCells {
        page: page(0),
        slot: 0,
        rows,
    };
    log.append(put_all(&[cells, mark]));
    let error = detail(redo_from(&log, &disk, Lsn(5000)));
    assert!(
        error.contains("slot 6") && error.contains("has not ended"),
        "{error}"
    );
    // It ended: redo only.
    log.records(&[Record::Commit { trx_slot: 6 }]);
    assert!(redo_from(&log, &disk, Lsn(5000)).unwrap().losers.is_empty());
}

fn saved(trx_slot: u32, trx: u64, (since, changes): (Lsn, u64)) -> Record {
    Record::UndoSaved {
        trx_slot,
        trx: TrxId(trx),
        since,
        changes,
        xid: None,
        list: UndoList::default(),
    }
}

/// Bytes of a log can say any number.
#[test]
fn numbers_that_no_transaction_can_have_are_errors() {
    let refused = |records: &[Record], why: &str| {
        let mut log = log();
        log.records(records);
        let error = detail(outcome(&log));
        assert!(error.contains(why) && error.contains("LSN"), "{error}");
    };
    let now = log().end;
    let later = Lsn(now.0 + 1);
    refused(&[saved(0, 900, (Lsn(0), 1))], "saved up to LSN 0");
    refused(&[saved(0, 900, (later, 1))], "saved up to LSN");
    refused(&[saved(0, 900, (now, u64::MAX))], "has made");
    refused(&[saved(0, 900, (Lsn(1), 1))], "the log is read from");
    for id in [0, u64::MAX, 1 << 62] {
        refused(&[saved(0, id, (now, 1))], "no number of a transaction");
        refused(&[insert(first(0, id), 0, &[b"a"])], "no number of a");
        let copy = copy(0, id, (true, true), vec![]);
        refused(&[copy], "no number of a transaction");
    }
    let twice = [saved(0, 9, (now, 1)), saved(1, 9, (now, 1))];
    refused(&twice, "is open in slot 0 and in slot 1");
    let moved = [saved(0, 9, (now, 1)), insert(slot(0), 0, &[b"a"])];
    refused(&moved, "name no version");
    let mut log = log();
    log.records(&[saved(0, 9, (now, 1))]);
    assert_eq!(outcome(&log).unwrap().losers[0].first_lsn, now);
}

/// The beginning of a transaction is where its saved undo ends.
#[test]
fn versions_behind_what_is_saved_are_made_anew() {
    let mut log = log();
    let version = LoggedVersion {
        address: VersionAddress::of(VersionAddress::logged_segment(7), 0),
        previous: VersionAddress(0),
    };
    let trx = TrxRef {
        version: Some(version),
        ..slot(3)
    };
    let since = log.end;
    log.records(&[saved(3, 9, (since, 20))]);
    log.records(&[insert(trx, 0, &[b"a"])]);
    let outcome = outcome(&log).unwrap();
    let moved = outcome.losers[0].moved.as_ref().unwrap();
    assert_eq!((outcome.losers[0].first_lsn, moved.changes), (since, 21));
    assert_eq!(outcome.losers[0].undo, []);
}

/// Any number of rows takes the memory of one version.
#[test]
fn rows_of_a_bulk_make_no_version() {
    let address = VersionAddress::of(VersionAddress::logged_segment(7), 0);
    let trx = TrxRef {
        version: Some(LoggedVersion::of_bulk(address)),
        ..slot(3)
    };
    let begin = |tree| Record::BulkInsert {
        trx_slot: 3,
        address,
        space: SpaceId(2),
        tree,
        from: Vec::new(),
    };
    let mut log = log();
    let since = log.end;
    log.records(&[saved(3, 9, (since, 20)), begin(TreeId(0))]);
    for key in 0..50u8 {
        let at = u16::from(key);
        log.records(&[insert(trx, 2 * at, &[&[key, b'a'], &[key, b'b']])]);
    }
    let outcome = outcome(&log).unwrap();
    let moved = outcome.losers[0].moved.as_ref().unwrap();
    assert_eq!((moved.changes, outcome.losers[0].undo.len()), (120, 0));
    assert_eq!(moved.rebuilt.bytes(), version_bytes(0, 0));
    let twice = [begin(TreeId(0)), begin(TreeId(0))];
    for (records, why) in [
        (&twice[..], "two versions have address"),
        (&[begin(PENDING_FREE_TREE)], "which has none"),
    ] {
        let mut log = self::log();
        log.records(&[saved(3, 9, (since, 20))]);
        log.records(records);
        let error = detail(self::outcome(&log));
        assert!(error.contains(why), "{error}");
    }
}
