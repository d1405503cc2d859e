use super::encode::put_page;
use super::*;
use crate::tree_page::CELL_OVERFLOW;
use proptest::prelude::*;

mod skim;

const PAGE: PageId = PageId::new(SpaceId(2), PageNo(1300));

fn insert(out: &mut Vec<u8>, context: &mut Context, slot: u16, key: &[u8], value: &[u8]) -> usize {
    let at = out.len();
    let first = (!context.is_known()).then_some(TrxId(77));
    put_insert(
        out,
        context,
        TrxRef {
            slot: 0,
            first,
            version: None,
        },
        PAGE,
        TreeId(0),
        slot,
        0,
        key,
        value,
    );
    out.len() - at
}

#[test]
fn a_narrow_row_costs_few_bytes() {
    let (mut out, mut context) = (Vec::new(), Context::default());
    insert(
        &mut out,
        &mut context,
        0,
        &1u64.to_be_bytes(),
        &1u64.to_be_bytes(),
    );
    // kind, transaction, copy of seven bytes, literal of one: plus six bytes of frame.
    assert_eq!(
        insert(
            &mut out,
            &mut context,
            1,
            &2u64.to_be_bytes(),
            &2u64.to_be_bytes()
        ),
        5
    );
    // A value that shares nothing: kind, transaction, eight bytes.
    assert_eq!(
        insert(
            &mut out,
            &mut context,
            2,
            &3u64.to_be_bytes(),
            b"\xfe\x01\x45\x98\x23\x11\x90\x77"
        ),
        10
    );
}

#[test]
fn a_row_of_padding_costs_few_bytes() {
    let (mut out, mut context) = (Vec::new(), Context::default());
    let row = vec![b' '; 1785];
    assert!(insert(&mut out, &mut context, 0, &1u64.to_be_bytes(), &row) < 40);
    assert_eq!(
        insert(&mut out, &mut context, 1, &2u64.to_be_bytes(), &row),
        2
    );
}

/// What the entries of an undo copy take beyond those of the first row.
fn further_entries(rows: u64, entries: impl Fn(u64) -> Vec<UndoEntry>) -> usize {
    let len = |rows| {
        let mut out = Vec::new();
        let record = Record::UndoCopy {
            trx_slot: 3,
            trx: TrxId(77),
            first: true,
            last: true,
            xid: None,
            entries: (0..rows).flat_map(&entries).collect(),
        };
        record.put(&mut out);
        assert_eq!(Decoder::default().decode(&out).unwrap(), [record]);
        out.len()
    };
    len(rows) - len(1)
}

#[test]
fn a_copied_insert_costs_few_bytes() {
    let entry = |tree: u32, key: Vec<u8>, undo| UndoEntry {
        space: SpaceId(300),
        tree: TreeId(tree),
        key,
        undo,
    };
    let by_key = |n: u64, undo| entry(0, (1000 + n).to_be_bytes().to_vec(), undo);
    assert_eq!(further_entries(101, |n| vec![by_key(n, Undo::Insert)]), 100);
    // Two bytes of the key are new.
    let sparse = |n| vec![by_key(300 * n, Undo::Insert)];
    assert!(further_entries(101, sparse) <= 400);
    // A row of a table with two more trees: their keys share a little with those before.
    let three = |n: u64| {
        let second = [(n % 2) as u8, 7, 7, n as u8].to_vec();
        let third = format!("name of {n:04}").into_bytes();
        vec![
            by_key(n, Undo::Insert),
            entry(1, second, Undo::Insert),
            entry(2, third, Undo::Insert),
        ]
    };
    assert!(further_entries(101, three) <= 1000);
    // Old values that are alike cost little more.
    let update = |n: u64| {
        let value = [&[b'v'; 100][..], &n.to_be_bytes()].concat();
        vec![by_key(n, Undo::Restore { flags: 0, value })]
    };
    assert!(further_entries(101, update) <= 800);
}

#[test]
fn an_undo_copy_names_no_tree_that_it_has_not_numbered() {
    // One entry: insert, of tree number 0.
    let bytes = [0x24, 6, 77, 3, 1, 0x00, 0x01, b'k'];
    let error = Decoder::default().decode(&bytes).unwrap_err();
    let DecodeError::Corrupt(corrupt) = error else {
        panic!("{error:?}");
    };
    assert!(corrupt.detail.contains("no tree has number 0"), "{corrupt}");
}

#[test]
fn without_its_context_a_record_is_not_guessed() {
    let (mut full, mut out, mut context) = (Vec::new(), Vec::new(), Context::default());
    insert(&mut full, &mut context, 0, b"a", b"b");
    insert(&mut out, &mut context, 1, b"b", b"c");
    let error = Decoder::default().decode(&out).unwrap_err();
    assert_eq!(error, DecodeError::NoContext { trx_slot: 0 });
    let mut decoder = Decoder::default();
    decoder.decode(&full).unwrap();
    decoder.decode(&out).unwrap();
}

#[test]
fn a_short_payload_does_not_unpack_to_much() {
    // 60,000 rows: the first value is a run of 128 KiB, the others are copies of it.
    let mut out = vec![0x06];
    put_page(&mut out, PAGE);
    out.push(0);
    crate::codec::put_varint(&mut out, 60_000);
    for n in 0..60_000 {
        let run: &[u8] = if n == 0 { b"\xbf" } else { b"\x7f" };
        out.extend_from_slice(b"\0\x01k");
        crate::codec::put_varint(&mut out, 1 << 17);
        out.extend_from_slice(run);
        crate::codec::put_varint(&mut out, (1 << 17) - 63);
        if n == 0 {
            out.push(b'r');
        }
    }
    assert!(out.len() < crate::frame::FRAME_PAYLOAD_MAX);
    let error = Decoder::default().decode(&out).unwrap_err();
    let DecodeError::Corrupt(corrupt) = error else {
        panic!("{error:?}");
    };
    assert!(corrupt.detail.contains("unpacks to more"), "{corrupt}");
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(b' '), 0u8..3, any::<u8>()], 0..max)
}

fn page_id() -> impl Strategy<Value = PageId> {
    (0u32..300, any::<u32>()).prop_map(|(s, p)| PageId::new(SpaceId(s), PageNo(p)))
}

fn row() -> impl Strategy<Value = Row> {
    (0u8..6, bytes(40), bytes(300)).prop_map(|(flags, key, value)| Row { flags, key, value })
}

fn trx() -> impl Strategy<Value = TrxRef> {
    let version =
        (logged(), proptest::option::of(logged())).prop_map(|(address, previous)| LoggedVersion {
            address,
            previous: previous.unwrap_or_default(),
        });
    let version = proptest::option::weighted(0.3, version);
    let first = proptest::option::of(any::<u64>());
    (0u32..3, first, version).prop_map(|(slot, first, version)| TrxRef {
        slot,
        first: first.map(TrxId),
        version,
    })
}

fn logged() -> impl Strategy<Value = VersionAddress> {
    (1u64..1 << 40, 0usize..1 << 14)
        .prop_map(|(n, unit)| VersionAddress::of(VersionAddress::logged_segment(n), unit))
}

fn undo() -> impl Strategy<Value = Undo> {
    prop_oneof![
        Just(Undo::Insert),
        Just(Undo::Mark),
        Just(Undo::Revive),
        (0u8..6, bytes(50)).prop_map(|(flags, value)| Undo::Restore { flags, value }),
        (0u8..6, bytes(50), bytes(50)).prop_map(|(flags, a, b)| Undo::Update {
            flags,
            diff: Diff::between(&a, &b)
        }),
    ]
}

/// Of more trees than have numbers at a time, many with the key that comes next.
fn undo_entries() -> impl Strategy<Value = Vec<UndoEntry>> {
    let step = (0u32..2, 0u32..10, any::<bool>(), bytes(20), undo());
    proptest::collection::vec(step, 0..60).prop_map(|steps| {
        let mut last = Vec::new();
        let entries = steps.into_iter().map(|(space, tree, next, key, undo)| {
            if !next || !crate::codec::increment(&mut last) {
                last = key;
            }
            UndoEntry {
                space: SpaceId(space),
                // Most are of the first few.
                tree: TreeId(tree * tree / 10),
                key: last.clone(),
                undo,
            }
        });
        entries.collect()
    })
}

fn record_of_versions() -> impl Strategy<Value = Record> {
    let version = || proptest::option::of(logged());
    let cells = proptest::collection::vec((any::<u16>(), version()), 0..5);
    let addresses = proptest::collection::vec((logged(), 0u32..9), 0..5);
    let list = (any::<u64>(), any::<u32>(), any::<u32>());
    let list = list.prop_map(|(offset, bytes, checksum)| UndoList {
        offset,
        bytes,
        checksum,
    });
    let numbers = (0u32..9, any::<u64>(), any::<u64>(), any::<u64>());
    prop_oneof![
        (page_id(), cells).prop_map(|(page, versions)| Record::SetVersions { page, versions }),
        (page_id(), any::<u16>(), version(), undo()).prop_map(|(page, slot, version, undo)| {
            Record::RowRestore {
                page,
                slot,
                version,
                undo,
            }
        }),
        (page_id(), version(), any::<u16>(), any::<u16>()).prop_map(
            |(page, version, slot, count)| Record::RowsMark {
                page,
                version,
                slot,
                count,
            }
        ),
        (
            (0u32..9, logged(), 0u32..9, 0u32..9),
            bytes(20),
            proptest::option::of(bytes(20))
        )
            .prop_map(|((trx_slot, address, space, tree), from, to)| {
                Record::BulkDelete {
                    trx_slot,
                    address,
                    space: SpaceId(space),
                    tree: TreeId(tree),
                    from,
                    to,
                }
            }),
        (0u32..9, addresses).prop_map(|(trx_slot, addresses)| Record::UndoMoved {
            trx_slot,
            addresses
        }),
        (0u32..9, logged(), 0u32..9, 0u32..9, bytes(20)).prop_map(
            |(trx_slot, address, space, tree, from)| Record::BulkInsert {
                trx_slot,
                address,
                space: SpaceId(space),
                tree: TreeId(tree),
                from,
            }
        ),
        (numbers, proptest::option::of(bytes(20)), list).prop_map(
            |((trx_slot, trx, since, changes), xid, list)| Record::UndoSaved {
                trx_slot,
                trx: TrxId(trx),
                since: Lsn(since),
                changes,
                xid,
                list,
            }
        ),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let tree = || (0u32..9).prop_map(TreeId);
    let head = || (page_id(), trx(), tree(), any::<u16>());
    prop_oneof![
        (
            page_id(),
            tree(),
            0u8..5,
            bytes(30),
            proptest::option::of(bytes(30))
        )
            .prop_map(|(page, tree, level, low, high)| Record::TreeInit {
                page,
                init: TreePageInit {
                    tree,
                    level,
                    low,
                    high
                }
            }),
        (page_id(), 0u8..6).prop_map(|(page, page_type)| Record::PageInit { page, page_type }),
        page_id().prop_map(|page| Record::PageFree { page }),
        (page_id(), any::<u32>(), bytes(200)).prop_map(|(page, offset, bytes)| Record::Bytes {
            page,
            offset,
            bytes
        }),
        (page_id(), any::<u32>(), any::<u32>(), any::<bool>()).prop_map(
            |(page, first, count, set)| Record::Bits {
                page,
                first,
                count,
                set
            }
        ),
        (
            page_id(),
            any::<u16>(),
            proptest::collection::vec(row(), 0..5)
        )
            .prop_map(|(page, slot, rows)| Record::LeafCells { page, slot, rows }),
        (
            page_id(),
            any::<u16>(),
            proptest::collection::vec((bytes(30), any::<u32>().prop_map(PageNo)), 0..5)
        )
            .prop_map(|(page, slot, children)| Record::InnerCells {
                page,
                slot,
                children
            }),
        (page_id(), any::<u16>(), any::<u16>()).prop_map(|(page, slot, count)| Record::Remove {
            page,
            slot,
            count
        }),
        (page_id(), any::<u16>(), proptest::option::of(bytes(30)))
            .prop_map(|(page, keep, high)| Record::SetHigh { page, keep, high }),
        (head(), proptest::collection::vec(row(), 1..5)).prop_map(
            |((page, trx, tree, slot), rows)| {
                Record::RowsInsert {
                    page,
                    trx,
                    tree,
                    slot,
                    rows,
                }
            }
        ),
        (head(), bytes(30), 0u8..6, 0u8..6, bytes(90), bytes(90)).prop_map(
            |((page, trx, tree, slot), key, old_flags, flags, a, b)| Record::RowUpdate {
                page,
                trx,
                tree,
                slot,
                key,
                old_flags,
                flags,
                diff: Diff::between(&a, &b)
            }
        ),
        (head(), bytes(30)).prop_map(|((page, trx, tree, slot), key)| Record::RowMark {
            page,
            trx,
            tree,
            slot,
            key
        }),
        (head(), 0u8..6, bytes(30), bytes(90)).prop_map(
            |((page, trx, tree, slot), flags, key, value)| {
                Record::RowRevive {
                    page,
                    trx,
                    tree,
                    slot,
                    flags,
                    key,
                    value,
                }
            }
        ),
        (page_id(), 0u32..9, any::<u16>(), undo()).prop_map(|(page, trx_slot, slot, undo)| {
            Record::RowUndo {
                page,
                trx_slot,
                slot,
                undo,
            }
        }),
        (0u32..9).prop_map(|trx_slot| Record::Commit { trx_slot }),
        (0u32..9).prop_map(|trx_slot| Record::RollbackEnd { trx_slot }),
        (0u32..9, bytes(30)).prop_map(|(trx_slot, xid)| Record::Prepare { trx_slot, xid }),
        (
            0u32..9,
            any::<u64>(),
            any::<bool>(),
            any::<bool>(),
            proptest::option::of(bytes(20)),
            undo_entries(),
        )
            .prop_map(
                |(trx_slot, trx, first, last, xid, entries)| Record::UndoCopy {
                    trx_slot,
                    trx: TrxId(trx),
                    first,
                    last,
                    xid,
                    entries
                }
            ),
        any::<u32>().prop_map(|n| Record::FileCreate { space: SpaceId(n) }),
        record_of_versions(),
        any::<u32>().prop_map(|n| Record::FileDelete { space: SpaceId(n) }),
        (any::<u64>(), any::<u64>()).prop_map(|(epoch, l)| Record::Epoch {
            epoch,
            end_of_previous: Lsn(l)
        }),
        (any::<u64>(), any::<u64>()).prop_map(|(c, s)| Record::Checkpoint {
            checkpoint: Lsn(c),
            scan_start: Lsn(s)
        }),
        bytes(20).prop_map(|body| Record::Unknown { kind: 0x93, body }),
    ]
}

proptest! {
    #[test]
    fn records_round_trip(records in proptest::collection::vec(record(), 0..8)) {
        let mut out = Vec::new();
        records.iter().for_each(|r| r.put(&mut out));
        prop_assert_eq!(Decoder::default().decode(&out).unwrap(), records);
    }

    #[test]
    fn contextual_inserts_round_trip(rows in proptest::collection::vec((row(), page_id(), any::<bool>(), 0u16..4), 1..20)) {
        let (mut out, mut context, mut expected) = (Vec::new(), Context::default(), Vec::new());
        let (mut page, mut slot) = (PAGE, 0u16);
        for (n, (mut row, other, same, step)) in rows.into_iter().enumerate() {
            row.flags &= CELL_OVERFLOW;
            if !same { page = other; slot = step; } else { slot = slot.wrapping_add(step); }
            let trx = TrxRef { slot: 3, first: (n == 0).then_some(TrxId(9)), version: None };
            put_insert(&mut out, &mut context, trx, page, TreeId(1), slot, row.flags, &row.key, &row.value);
            expected.push(Record::RowsInsert { page, trx, tree: TreeId(1), slot, rows: vec![row] });
        }
        prop_assert_eq!(Decoder::default().decode(&out).unwrap(), expected);
    }

    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0usize..KINDS.len()) {
        let _ = Decoder::default().decode(&bytes);
        let mut with_kind = vec![KINDS[kind].0];
        with_kind.extend(&bytes);
        if let Ok(records) = Decoder::default().decode(&with_kind) {
            let mut page = vec![0; 4096];
            crate::tree_page::TreePageMut(&mut page)
                .init(PAGE, &TreePageInit { tree: TreeId(0), level: 0, low: vec![], high: None });
            for record in records.iter().filter(|r| r.page().is_some()) {
                let mut copy = page.clone();
                let _ = crate::apply::replay(&mut copy, PAGE, record);
            }
        }
    }

    #[test]
    fn diffs_apply_both_ways(a in bytes(60), b in bytes(60)) {
        let diff = Diff::between(&a, &b);
        prop_assert_eq!(&diff.apply(&a).unwrap(), &b);
        prop_assert_eq!(&diff.reversed().apply(&b).unwrap(), &a);
    }
}
