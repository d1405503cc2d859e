//! Prints the examples of docs/format.md from the real encoders:
//! `cargo test -p inkstone-format --test format_md -- --ignored --nocapture print`.

use super::show;
use inkstone_format::control::Control;
use inkstone_format::doublewrite::{BatchEntry, BatchHeader, Layout, image_crc};
use inkstone_format::header::{PageType, init_page, set_page_lsn, stamp_checksum};
use inkstone_format::page_lsn_map::{MapHeader, SECTOR_ENTRIES, Sector, Subject, index_entry};
use inkstone_format::record::{Context, Decoder, Diff, Record, Row, TrxRef, Undo, UndoEntry};
use inkstone_format::record::{LoggedVersion, UndoList, put_insert, put_rows_insert};
use inkstone_format::segment::SegmentHeader;
use inkstone_format::tree_page::{CELL_DELETED, CELL_OVERFLOW, NOTHING_LIVE};
use inkstone_format::tree_page::{TreePageInit, TreePageMut};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId, TreeId, TrxId, VersionAddress};
use inkstone_format::{apply, frame, space};

const UUID: [u8; 16] = *b"inkstone-example";
const SIZE: usize = 4096;

/// The doublewrite file of the examples.
pub const LAYOUT: Layout = Layout {
    page_size: SIZE as u32,
    uuid: UUID,
    areas: 4,
    batch_pages: 128,
};

const fn page(number: u32) -> PageId {
    PageId::new(SpaceId(2), PageNo(number))
}

fn line(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn sparse(info: &str, bytes: &[u8], text: &str) {
    println!("```hex {info}");
    for (n, row) in bytes.chunks(16).enumerate() {
        if row.iter().any(|&b| b != 0) {
            println!("{:04x}: {}", n * 16, line(row));
        }
    }
    println!("```\n```text\n{}\n```\n", text.trim());
}

fn records(records: &[Record]) {
    let mut decoder = Decoder::default();
    let names: std::collections::BTreeSet<_> = records
        .iter()
        .map(|record| {
            let mut bytes = Vec::new();
            record.put(&mut bytes);
            show::kind_name(bytes[0])
        })
        .filter(|name| *name != "UNKNOWN")
        .collect();
    let names: Vec<_> = names.into_iter().collect();
    println!("```hex record {}", names.join(" "));
    let mut text = String::new();
    for (n, record) in records.iter().enumerate() {
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        if n > 0 {
            println!();
        }
        println!("{}", line(&bytes));
        let decoded = decoder.decode(&bytes).unwrap().remove(0);
        text += &show::record(bytes[0], &decoded);
        text.push('\n');
    }
    println!("```\n```text\n{text}```\n");
}

fn row(key: &[u8], value: &[u8]) -> Row {
    Row {
        flags: 0,
        key: key.to_vec(),
        value: value.to_vec(),
    }
}

fn leaf_init() -> TreePageInit {
    TreePageInit {
        tree: TreeId(0),
        level: 0,
        low: b"user:a".to_vec(),
        high: Some(b"user:n".to_vec()),
    }
}

fn structure_records() {
    records(&[Record::TreeInit {
        page: page(13),
        init: leaf_init(),
    }]);
    records(&[Record::PageInit {
        page: page(20),
        page_type: PageType::Overflow as u8,
    }]);
    records(&[Record::PageFree { page: page(20) }]);
    let bytes = [&b"total"[..], &[b' '; 40]].concat();
    records(&[Record::Bytes {
        page: page(20),
        offset: 24,
        bytes,
    }]);
    records(&[Record::Bits {
        page: page(1),
        first: 13,
        count: 1,
        set: true,
    }]);
    records(&[Record::LeafCells {
        page: page(13),
        slot: 0,
        rows: vec![
            row(b"user:anna", b"42"),
            Row {
                flags: CELL_DELETED,
                ..row(b"user:bert", b"17")
            },
        ],
    }]);
    records(&[Record::InnerCells {
        page: page(3),
        slot: 1,
        children: vec![
            (b"user:n".to_vec(), PageNo(14)),
            (b"user:t".to_vec(), PageNo(300)),
        ],
    }]);
    records(&[Record::Remove {
        page: page(13),
        slot: 1,
        count: 1,
    }]);
    records(&[
        Record::SetHigh {
            page: page(13),
            keep: 20,
            high: Some(b"user:g".to_vec()),
        },
        Record::SetHigh {
            page: page(14),
            keep: 33,
            high: None,
        },
    ]);
}

const FIRST: TrxRef = TrxRef {
    slot: 1,
    first: Some(TrxId(77)),
    version: None,
};
const LATER: TrxRef = TrxRef {
    slot: 1,
    first: None,
    version: None,
};

fn row_update(trx: TrxRef) -> Record {
    Record::RowUpdate {
        page: page(13),
        trx,
        tree: TreeId(0),
        slot: 0,
        key: b"user:anna".to_vec(),
        old_flags: 0,
        flags: 0,
        diff: Diff::between(b"age 42 Rome", b"age 43 Rome"),
    }
}

/// Records of a transaction whose undo has moved.
fn moved_records() {
    let segment = VersionAddress::logged_segment(2 << 26 | 5);
    let address = |unit| VersionAddress::of(segment, unit);
    let with = |unit, previous| TrxRef {
        version: Some(LoggedVersion {
            address: address(unit),
            previous,
        }),
        ..LATER
    };
    let none = VersionAddress(0);
    records(&[Record::UndoMoved {
        trx_slot: 1,
        addresses: vec![(address(0), 3), (address(5), 1)],
    }]);
    records(&[Record::BulkInsert {
        trx_slot: 1,
        address: address(12),
        space: SpaceId(2),
        tree: TreeId(0),
        from: b"k1".to_vec(),
    }]);
    records(&[Record::RowsInsert {
        page: page(13),
        trx: with(12, address(12)),
        tree: TreeId(0),
        slot: 40,
        rows: vec![row(b"k1", b"one"), row(b"k2", b"two")],
    }]);
    records(&[Record::SetVersions {
        page: page(13),
        versions: vec![(0, Some(address(0))), (1, None)],
    }]);
    records(&[Record::BulkDelete {
        trx_slot: 1,
        address: address(14),
        space: SpaceId(2),
        tree: TreeId(0),
        from: b"k1".to_vec(),
        to: Some(b"k9".to_vec()),
    }]);
    records(&[Record::RowsMark {
        page: page(13),
        version: Some(address(14)),
        slot: 40,
        count: 2,
    }]);
    records(&[Record::RowsInsert {
        page: page(13),
        trx: with(9, none),
        tree: TreeId(0),
        slot: 40,
        rows: vec![row(b"k1", b"one"), row(b"k2", b"two")],
    }]);
    records(&[row_update(with(13, address(5)))]);
    records(&[Record::RowMark {
        page: page(13),
        trx: with(18, none),
        tree: TreeId(0),
        slot: 1,
        key: b"user:bert".to_vec(),
    }]);
    records(&[Record::RowRevive {
        page: page(13),
        trx: with(22, none),
        tree: TreeId(0),
        slot: 1,
        flags: 0,
        key: b"user:bert".to_vec(),
        value: b"18".to_vec(),
    }]);
    records(&[Record::RowRestore {
        page: page(13),
        slot: 0,
        version: Some(address(5)),
        undo: Undo::Mark,
    }]);
    records(&[Record::UndoSaved {
        trx_slot: 1,
        trx: TrxId(77),
        since: Lsn(0x10_2000),
        changes: 4,
        xid: None,
        list: UndoList {
            offset: 8192,
            bytes: 24,
            checksum: 0x0102_0304,
        },
    }]);
}

fn row_records() {
    records(&[Record::RowsInsert {
        page: page(13),
        trx: FIRST,
        tree: TreeId(0),
        slot: 40,
        rows: [(7u64, 16), (8, 16), (9, 16)]
            .map(|(key, len)| row(&key.to_be_bytes(), &vec![b' '; len]))
            .to_vec(),
    }]);
    records(&[row_update(LATER)]);
    records(&[Record::RowMark {
        page: page(13),
        trx: FIRST,
        tree: TreeId(0),
        slot: 1,
        key: b"user:bert".to_vec(),
    }]);
    records(&[Record::RowRevive {
        page: page(13),
        trx: LATER,
        tree: TreeId(0),
        slot: 1,
        flags: 0,
        key: b"user:bert".to_vec(),
        value: b"18".to_vec(),
    }]);
    moved_records();
    let undo = |slot, undo| Record::RowUndo {
        page: page(13),
        trx_slot: 1,
        slot,
        undo,
    };
    let diff = Diff::between(b"age 43 Rome", b"age 42 Rome");
    records(&[
        undo(40, Undo::Insert),
        undo(0, Undo::Update { flags: 0, diff }),
        undo(
            0,
            Undo::Restore {
                flags: 0,
                value: b"age 42 Rome".to_vec(),
            },
        ),
        undo(1, Undo::Mark),
        undo(1, Undo::Revive),
    ]);
    records(&[Record::Commit { trx_slot: 1 }]);
    records(&[Record::RollbackEnd { trx_slot: 1 }]);
    records(&[Record::Prepare {
        trx_slot: 1,
        xid: b"branch-1".to_vec(),
    }]);
    let entry = |key: &[u8], undo| UndoEntry {
        space: SpaceId(2),
        tree: TreeId(0),
        key: key.to_vec(),
        undo,
    };
    let copy = |first, last, xid: Option<&[u8]>, entries| Record::UndoCopy {
        trx_slot: 1,
        trx: TrxId(77),
        first,
        last,
        xid: xid.map(<[u8]>::to_vec),
        entries,
    };
    let restore = Undo::Restore {
        flags: 0,
        value: b"age 42".to_vec(),
    };
    let elsewhere = UndoEntry {
        tree: TreeId(1),
        ..entry(b"anna", Undo::Insert)
    };
    let more = Undo::Restore {
        flags: 0,
        value: b"age 43".to_vec(),
    };
    records(&[
        copy(
            true,
            false,
            None,
            vec![
                entry(b"key1", Undo::Insert),
                elsewhere,
                entry(b"key2", Undo::Insert),
                entry(b"key6", restore),
                entry(b"key7", more),
            ],
        ),
        copy(false, true, None, vec![entry(b"key3", Undo::Mark)]),
        copy(
            true,
            true,
            Some(b"branch-1"),
            vec![entry(b"key1", Undo::Insert)],
        ),
    ]);
    records(&[Record::FileCreate { space: SpaceId(2) }]);
    records(&[Record::FileDelete { space: SpaceId(2) }]);
    records(&[Record::Epoch {
        epoch: 2,
        end_of_previous: Lsn(0x10_2000),
    }]);
    records(&[Record::Checkpoint {
        checkpoint: Lsn(0x10_2000),
        scan_start: Lsn(0x10_0000),
    }]);
    records(&[Record::Unknown {
        kind: 0x93,
        body: vec![1, 2, 3],
    }]);
}

fn contextual() {
    let (mut context, mut decoder, mut text) =
        (Context::default(), Decoder::default(), String::new());
    println!("```hex record LEAF_INSERT ROWS_INSERT");
    let mut put = |trx, page, slot, flags, key: &[u8], value: &[u8]| {
        let mut out = Vec::new();
        put_insert(
            &mut out,
            &mut context,
            trx,
            page,
            TreeId(0),
            slot,
            flags,
            key,
            value,
        );
        println!("{}\n", line(&out));
        let decoded = decoder.decode(&out).unwrap().remove(0);
        text += &format!("{}\n", show::record(out[0], &decoded));
    };
    let key = |n: u64| n.to_be_bytes();
    put(FIRST, page(13), 40, 0, &key(7), &key(100));
    put(LATER, page(13), 41, 0, &key(8), &key(101));
    put(LATER, page(13), 42, 0, &key(9), &key(101));
    put(
        LATER,
        page(13),
        43,
        0,
        &key(10),
        b"\xfe\x01\x45\x98\x23\x11\x90\x77",
    );
    put(LATER, page(13), 50, 0, &key(33), b"short");
    put(LATER, page(14), 0, 0, &key(34), b"short");
    let reference = [&10_000u64.to_le_bytes()[..], &20u32.to_le_bytes()].concat();
    put(LATER, page(14), 7, CELL_OVERFLOW, &key(0x0200), &reference);
    println!("```\n```text\n{text}```\n");
}

fn lifecycle() {
    let (mut context, mut decoder, mut lsn) =
        (Context::default(), Decoder::default(), 0x10_2000u64);
    let mut text = String::new();
    println!("```hex frames start={lsn} epoch=2");
    let mut put = |claim: Option<u64>, payload: &[u8]| {
        let mut bytes = Vec::new();
        frame::encode(payload, claim.map(Lsn), Lsn(lsn), 2, &mut bytes);
        println!("{}\n", line(&bytes));
        let claimed = claim.map_or("no".to_owned(), |c| c.to_string());
        text += &format!(
            "frame {lsn} to {} claim {claimed}\n",
            lsn + bytes.len() as u64
        );
        lsn += bytes.len() as u64;
        for record in decoder.decode(payload).unwrap() {
            text += &format!("  {}\n", show::record(payload[0], &record));
        }
    };
    let one = |record: &Record| {
        let mut out = Vec::new();
        record.put(&mut out);
        out
    };
    put(
        Some(0x10_2000),
        &one(&Record::Epoch {
            epoch: 2,
            end_of_previous: Lsn(0x10_2000),
        }),
    );
    let mut rows = Vec::new();
    let first = [row(b"k1", b"one"), row(b"k2", b"two")];
    put_rows_insert(
        &mut rows,
        &mut context,
        FIRST,
        page(13),
        TreeId(0),
        0,
        first.len(),
        first
            .iter()
            .map(|row| (row.flags, &row.key[..], &row.value[..])),
    );
    put(None, &rows);
    let mut insert = Vec::new();
    put_insert(
        &mut insert,
        &mut context,
        LATER,
        page(13),
        TreeId(0),
        2,
        0,
        b"k3",
        b"six",
    );
    put(None, &insert);
    let mark = |trx, slot, key: &[u8]| Record::RowMark {
        page: page(13),
        trx,
        tree: TreeId(0),
        slot,
        key: key.to_vec(),
    };
    put(None, &one(&mark(LATER, 0, b"k1")));
    let undo = |slot, trx_slot, undo| Record::RowUndo {
        page: page(13),
        trx_slot,
        slot,
        undo,
    };
    put(None, &one(&undo(0, 1, Undo::Mark)));
    put(None, &one(&Record::Commit { trx_slot: 1 }));
    let second = TrxRef {
        slot: 1,
        first: Some(TrxId(78)),
        version: None,
    };
    put(None, &one(&mark(second, 1, b"k2")));
    put(
        Some(lsn_of_commit()),
        &one(&Record::Prepare {
            trx_slot: 1,
            xid: b"x".to_vec(),
        }),
    );
    put(None, &one(&undo(1, 1, Undo::Mark)));
    put(None, &one(&Record::RollbackEnd { trx_slot: 1 }));
    println!("```\n```text\n{text}```\n");
}

/// The durable LSN that the example's PREPARE claims: the end of the COMMIT frame.
fn lsn_of_commit() -> u64 {
    1_056_863
}

fn pages() {
    let stamped = |bytes: &mut Vec<u8>| {
        set_page_lsn(bytes, Lsn(0x10_2040));
        stamp_checksum(bytes);
    };
    let mut bytes = vec![0; SIZE];
    init_page(&mut bytes, page(20), PageType::Free);
    stamped(&mut bytes);
    sparse("page size=4096", &bytes, &show::page(&bytes));

    let mut tree = TreePageMut(&mut bytes);
    tree.init(page(13), &leaf_init());
    let address = VersionAddress(1 << 40 | 3);
    let rows = [
        ("user:anna", "42", 0, None),
        ("user:bert", "17", CELL_DELETED, Some(address)),
        ("user:carol", "23", 0, None),
    ];
    for (slot, (key, value, flags, version)) in rows.into_iter().enumerate() {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        tree.insert(slot, flags, version, key, value, NOTHING_LIVE)
            .unwrap();
    }
    tree.remove(2, 1);
    stamped(&mut bytes);
    sparse("page size=4096", &bytes, &show::page(&bytes));

    let mut tree = TreePageMut(&mut bytes);
    let init = TreePageInit {
        tree: TreeId(0),
        level: 1,
        low: Vec::new(),
        high: None,
    };
    tree.init(page(3), &init);
    tree.insert_child(0, b"", PageNo(13)).unwrap();
    tree.insert_child(1, b"user:n", PageNo(14)).unwrap();
    stamped(&mut bytes);
    sparse("page size=4096", &bytes, &show::page(&bytes));

    init_page(&mut bytes, page(0), PageType::SpaceHeader);
    let body = space::new_header(&UUID, SIZE as u32);
    bytes[24..24 + body.len()].copy_from_slice(&body);
    space::set_root(&mut bytes, TreeId(0), PageNo(3));
    space::set_root(&mut bytes, TreeId(1), PageNo(4));
    space::set_root(&mut bytes, space::PENDING_FREE_TREE, PageNo(21));
    stamped(&mut bytes);
    sparse("page size=4096", &bytes, &show::page(&bytes));

    init_page(&mut bytes, page(1), PageType::SpaceMap);
    apply::set_bits(&mut bytes, 0, 5, true);
    apply::set_bits(&mut bytes, 13, 2, true);
    apply::set_bits(&mut bytes, 20, 2, true);
    stamped(&mut bytes);
    sparse("page size=4096", &bytes, &show::page(&bytes));

    init_page(&mut bytes, page(20), PageType::Overflow);
    bytes[24..28].copy_from_slice(&0u32.to_le_bytes());
    bytes[28..32].copy_from_slice(&20u32.to_le_bytes());
    bytes[32..52].copy_from_slice(b"the end of the value");
    stamped(&mut bytes);
    sparse("page size=4096", &bytes, &show::page(&bytes));
}

fn page_lsn_map() {
    let header = MapHeader {
        uuid: UUID,
        epoch: 2,
        newest: Lsn(0x10_2040),
    };
    let text = show::map_header(&header);
    sparse("page-lsn-map-header", &header.encode(), &text);
    let sector = |subject, some: &[(usize, u64)]| {
        let mut entries = [0; SECTOR_ENTRIES];
        some.iter().for_each(|&(n, entry)| entries[n] = entry);
        let sector = Sector { subject, entries };
        let bytes = sector.encode(&UUID);
        sparse("page-lsn-map-sector", &bytes, &show::map_sector(&sector));
    };
    let catalog = index_entry(SpaceId(0), 0);
    let accounts = [0, 1].map(|run| index_entry(SpaceId(2), run));
    let slots = [(0, catalog), (1, accounts[0]), (2, accounts[1])];
    sector(Subject::Slots(0), &slots);
    let lsns = [(0, 0x10_1234), (1, 0x10_1234), (3, 0x10_2040)];
    sector(Subject::Pages(SpaceId(2), PageNo(0)), &lsns);
}

fn control_files() {
    let control = Control {
        page_size: SIZE as u32,
        uuid: UUID,
        sequence: 9,
        epoch: 2,
        checkpoint_lsn: Lsn(0x10_2000),
        scan_start_lsn: Lsn(0x10_0000),
        scan_start_epoch: 1,
        known_durable_lsn: Lsn(0x10_2040),
        log_segment_bytes: 1 << 20,
        next_trx_id: TrxId(79),
        next_space_id: SpaceId(3),
        version_epoch: 2,
        next_commit: 0,
        clean_shutdown: false,
    };
    sparse("control", &control.encode(), &show::control(&control));
    sparse("doublewrite-file", &LAYOUT.encode(), &show::layout(&LAYOUT));
    let header = BatchHeader {
        sequence: 5,
        entries: vec![
            BatchEntry {
                id: page(3),
                crc: image_crc(b"page 3"),
            },
            BatchEntry {
                id: page(13),
                crc: image_crc(b"page 13"),
            },
        ],
    };
    let mut bytes = vec![0; 4096];
    header.encode(&LAYOUT, &mut bytes);
    sparse("doublewrite-batch", &bytes, &show::batch(&header));
    let segment = SegmentHeader {
        number: 1,
        segment_bytes: 1 << 20,
        uuid: UUID,
    };
    segment.encode(&mut bytes);
    sparse("segment", &bytes, &show::segment(&segment));
    let dump: Vec<u8> = [page(0), page(13)]
        .iter()
        .flat_map(|page| page.to_u64().to_le_bytes())
        .collect();
    sparse("dump", &dump, "2:0\n2:13");
}

/// Not a test: the bytes for the document.
#[test]
#[ignore = "prints the examples of docs/format.md"]
fn print() {
    pages();
    control_files();
    page_lsn_map();
    structure_records();
    row_records();
    contextual();
    lifecycle();
}
