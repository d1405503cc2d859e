//! Targets over redo records.

use super::Target;
use super::input::Input;
use super::page::{ID, is_sound_tree_page, sample_pages, sparse_input, sparse_page};
use inkstone_format::apply::replay;
use inkstone_format::record::{
    Decoder, Diff, KINDS, LoggedVersion, Record, Row, TrxRef, Undo, UndoEntry, UndoList,
    check_against_decoder,
};
use inkstone_format::tree_page::{TreePage, TreePageInit, TreePageMut};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId, TreeId, TrxId, VersionAddress};

/// `records`: payloads of frames.
pub const RECORDS: Target = Target {
    name: "records",
    about: "payloads of frames: decoded, encoded again, decoded again, skimmed, and still the same",
    run: records,
    seeds: record_seeds,
    input_max: 4 << 10,
    allocation_max_mib: 64,
};

/// `apply`: redo records and the page they meet.
pub const APPLY: Target = Target {
    name: "apply",
    about: "any records applied to any page: what is accepted leaves a sound page",
    run: apply,
    seeds: apply_seeds,
    input_max: 8 << 10,
    allocation_max_mib: 64,
};

/// Payloads one after the other, each behind its length.
fn payloads<'a>(input: &mut Input<'a>) -> Vec<&'a [u8]> {
    let mut payloads = Vec::new();
    while !input.is_empty() {
        let length = usize::from(input.u16());
        payloads.push(input.take(length));
    }
    payloads
}

fn with_length(payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u16;
    [&length.to_le_bytes(), payload].concat()
}

fn records(data: &[u8]) {
    let frames = payloads(&mut Input::new(data));
    check_against_decoder(
        &frames,
        1 + data.first().map_or(0, |byte| usize::from(byte & 7)),
    );
    let (mut decoder, mut shower) = (Decoder::default(), Decoder::default());
    for payload in frames {
        let decoded = decoder.decode(payload);
        let (shown, error) = shower.decode_prefix(payload);
        let Ok(records) = decoded else {
            assert!(
                error.is_some(),
                "one way to decode fails, the other does not"
            );
            return;
        };
        assert_eq!(error, None);
        assert!(shown.iter().map(|(_, record)| record).eq(&records));
        let mut again = Vec::new();
        for record in &records {
            let _ = (record.name(), record.page(), record.initialises_page());
            record.put(&mut again);
        }
        let decoded = Decoder::default().decode(&again);
        assert_eq!(decoded.as_ref(), Ok(&records), "encoded as {again:02x?}");
    }
}

fn apply(data: &[u8]) {
    let mut input = Input::new(data);
    let length = usize::from(input.u16());
    let mut page = sparse_page(input.take(length));
    // Recovery checks the pages that it reads.
    let tree = is_tree_page(&page);
    if tree && !is_sound_tree_page(&page) {
        page.fill(0);
    }
    let mut decoder = Decoder::default();
    for payload in payloads(&mut input) {
        let (records, _) = decoder.decode_prefix(payload);
        for (_, record) in records
            .into_iter()
            .filter(|(_, record)| record.page().is_some())
        {
            // After an error the page is not looked at.
            if replay(&mut page, ID, &record).is_err() {
                return;
            }
            // An inner node may wait for its children.
            let waits = TreePage(&page).count() == 0 && !TreePage(&page).is_leaf();
            if is_tree_page(&page)
                && !waits
                && let Err(corrupt) = TreePage(&page).check()
            {
                panic!("{record:?} was accepted, but the page is corrupt: {corrupt}");
            }
        }
    }
}

fn is_tree_page(page: &[u8]) -> bool {
    use inkstone_format::header::{PageType, page_type};
    matches!(page_type(page), Some(PageType::Leaf | PageType::Inner))
}

fn logged(unit: usize) -> VersionAddress {
    VersionAddress::of(VersionAddress::logged_segment(77), unit)
}

/// A record of each kind, for the page [`ID`], with small contents.
fn samples() -> Vec<Record> {
    let (page, tree, slot) = (ID, TreeId(1), 0);
    let trx = TrxRef {
        slot: 4,
        first: Some(TrxId(900)),
        version: None,
    };
    let row = |n: u8| Row {
        flags: 0,
        key: format!("user{:04}", 2000 + u32::from(n)).into_bytes(),
        value: vec![n; 20],
    };
    let key = b"user1000".to_vec();
    let diff = Diff::between(b"the old value", b"the new value");
    let init = |level| TreePageInit {
        tree,
        level,
        low: b"user0".to_vec(),
        high: Some(b"user9".to_vec()),
    };
    let update = Undo::Update {
        flags: 0,
        diff: diff.clone(),
    };
    let restore = Undo::Restore {
        flags: 0,
        value: b"before".to_vec(),
    };
    let entries = [
        Undo::Insert,
        update.clone(),
        restore.clone(),
        Undo::Mark,
        Undo::Revive,
    ];
    // In two trees, and each with the key after the last one of its tree.
    let entries = entries.into_iter().enumerate().flat_map(|(n, undo)| {
        [tree, TreeId(2)].map(|tree| UndoEntry {
            space: SpaceId(3),
            tree,
            key: format!("user100{n}").into_bytes(),
            undo: undo.clone(),
        })
    });
    let child = |n: u32| (format!("user{:04}", 2000 + n).into_bytes(), PageNo(n + 50));
    vec![
        Record::TreeInit {
            page,
            init: init(0),
        },
        Record::RowsInsert {
            page,
            trx,
            tree,
            slot,
            rows: vec![row(0), row(1)],
        },
        Record::RowUpdate {
            page,
            trx,
            tree,
            slot,
            key: key.clone(),
            old_flags: 0,
            flags: 0,
            diff,
        },
        Record::RowMark {
            page,
            trx,
            tree,
            slot,
            key: key.clone(),
        },
        Record::RowRevive {
            page,
            trx,
            tree,
            slot,
            flags: 0,
            key: key.clone(),
            value: vec![7; 30],
        },
        Record::RowUndo {
            page,
            trx_slot: 4,
            slot,
            undo: Undo::Insert,
        },
        Record::RowUndo {
            page,
            trx_slot: 4,
            slot,
            undo: update,
        },
        Record::RowUndo {
            page,
            trx_slot: 4,
            slot,
            undo: restore,
        },
        Record::LeafCells {
            page,
            slot,
            rows: vec![row(5), row(6), row(7)],
        },
        Record::Remove {
            page,
            slot,
            count: 1,
        },
        Record::SetHigh {
            page,
            keep: 1,
            high: Some(b"user3".to_vec()),
        },
        Record::TreeInit {
            page,
            init: init(1),
        },
        Record::InnerCells {
            page,
            slot,
            children: (0..3).map(child).collect(),
        },
        Record::PageInit { page, page_type: 2 },
        Record::Bits {
            page,
            first: 3,
            count: 9,
            set: true,
        },
        Record::PageInit { page, page_type: 5 },
        Record::Bytes {
            page,
            offset: 24,
            bytes: vec![b'v'; 60],
        },
        Record::PageFree { page },
        Record::Commit { trx_slot: 4 },
        Record::RollbackEnd { trx_slot: 4 },
        Record::Prepare {
            trx_slot: 4,
            xid: b"xid".to_vec(),
        },
        Record::UndoCopy {
            trx_slot: 4,
            trx: TrxId(900),
            first: true,
            last: true,
            xid: Some(b"xid".to_vec()),
            entries: entries.collect(),
        },
        Record::RowMark {
            page,
            trx: TrxRef {
                version: Some(LoggedVersion {
                    address: logged(3),
                    previous: logged(1),
                }),
                ..trx
            },
            tree,
            slot,
            key: b"user1000".to_vec(),
        },
        Record::SetVersions {
            page,
            versions: vec![(slot, Some(logged(9))), (slot + 1, None)],
        },
        Record::RowRestore {
            page,
            slot,
            version: Some(logged(4)),
            undo: Undo::Mark,
        },
        Record::UndoMoved {
            trx_slot: 4,
            addresses: vec![(logged(0), 3), (logged(7), 1)],
        },
        Record::BulkInsert {
            trx_slot: 4,
            address: logged(9),
            space: SpaceId(3),
            tree: TreeId(1),
            from: b"k".to_vec(),
        },
        Record::BulkDelete {
            trx_slot: 4,
            address: logged(10),
            space: SpaceId(3),
            tree: TreeId(1),
            from: b"k".to_vec(),
            to: Some(b"m".to_vec()),
        },
        Record::RowsMark {
            page,
            version: Some(logged(10)),
            slot,
            count: 2,
        },
        Record::UndoSaved {
            trx_slot: 4,
            trx: TrxId(900),
            since: Lsn(4096),
            changes: 4,
            xid: Some(b"xid".to_vec()),
            list: UndoList {
                offset: 4096,
                bytes: 48,
                checksum: 7,
            },
        },
        Record::FileCreate { space: SpaceId(3) },
        Record::FileDelete { space: SpaceId(3) },
        Record::Epoch {
            epoch: 5,
            end_of_previous: Lsn(4096),
        },
        Record::Checkpoint {
            checkpoint: Lsn(8192),
            scan_start: Lsn(4096),
        },
        Record::Unknown {
            kind: 0x93,
            body: b"of a later version".to_vec(),
        },
    ]
}

fn encoded(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.put(&mut bytes);
    bytes
}

/// A transaction of contextual inserts, in a frame each.
fn contextual() -> Vec<u8> {
    let mut context = inkstone_format::record::Context::default();
    let mut input = Vec::new();
    for n in 0..12u64 {
        let trx = TrxRef {
            slot: 2,
            first: (n == 0).then_some(TrxId(31)),
            version: None,
        };
        let page = PageId::new(SpaceId(3), PageNo(77 + (n / 5) as u32));
        let (key, value) = (
            (n * (1 + n % 2)).to_be_bytes(),
            vec![b'v'; 10 + n as usize / 3],
        );
        let mut payload = Vec::new();
        let (slot, tree) = ((n % 5) as u16, TreeId(1));
        let put = inkstone_format::record::put_insert;
        put(
            &mut payload,
            &mut context,
            trx,
            page,
            tree,
            slot,
            0,
            &key,
            &value,
        );
        input.extend(with_length(&payload));
    }
    input
}

pub(super) fn record_seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = vec![("contextual".to_owned(), contextual())];
    for (n, record) in samples().iter().enumerate() {
        let name = format!("{n:02}-{}", record.name().to_lowercase());
        seeds.push((name, with_length(&encoded(record))));
    }
    // As earlier versions wrote it: two entries, each for itself.
    let plain = b"\x23\x04\x4d\x03\x02\x03\x01\x02k1\x00\x03\x01\x02k2\x02\x00\x02\x0242";
    seeds.push(("undo-copy-plain".to_owned(), with_length(plain)));
    // Each kind byte with nothing useful behind it.
    for (kind, name, _) in KINDS {
        let payload = [&[*kind], &[1; 40][..]].concat();
        seeds.push((
            format!("ones-{}", name.to_lowercase()),
            with_length(&payload),
        ));
    }
    seeds
}

fn apply_seeds() -> Vec<(String, Vec<u8>)> {
    let all: Vec<u8> = samples()
        .iter()
        .flat_map(|record| with_length(&encoded(record)))
        .collect();
    let mut seeds = Vec::new();
    for (name, page) in sample_pages()
        .into_iter()
        .filter(|(name, _)| name.starts_with("size4096"))
    {
        let page = with_length(&sparse_input(&page));
        seeds.push((format!("all-on-{name}"), [&page[..], &all].concat()));
        if name.ends_with("fences2-level0-cells3") {
            for (n, record) in samples().iter().enumerate() {
                let name = format!("{n:02}-{}", record.name().to_lowercase());
                seeds.push((name, [&page[..], &with_length(&encoded(record))].concat()));
            }
        }
    }
    let mut leaf = vec![0; 4096];
    TreePageMut(&mut leaf).init(
        ID,
        &TreePageInit {
            tree: TreeId(1),
            level: 0,
            low: vec![],
            high: None,
        },
    );
    let page = with_length(&sparse_input(&leaf));
    seeds.push(("contextual".to_owned(), [page, contextual()].concat()));
    seeds
}
