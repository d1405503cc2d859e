//! docs/format.md against the engine: catalog rows, and the files of a database that was just
//! written, read at the offsets that the document gives.

#[expect(dead_code, reason = "shared with the test of the format crate")]
#[path = "../../format/tests/format_md/blocks.rs"]
mod blocks;

use inkstone::internals::catalog::TableDefinition;
use inkstone::{Database, Isolation, Options};
use inkstone_format::control::{CONTROL_COPY_LEN, Control};
use inkstone_format::doublewrite::Layout;
use inkstone_format::header::check_page;
use inkstone_format::segment::SegmentHeader;
use inkstone_format::tree_page::TreePage;
use inkstone_format::{PageId, PageNo, SpaceId, TreeId};
use std::path::Path;

#[test]
fn catalog_rows_mean_what_the_text_says() {
    let blocks = blocks::blocks();
    let mut seen = 0;
    for block in blocks.iter().filter(|block| block.kind == "catalog") {
        let [key, value] = &block.parts[..] else {
            panic!("line {}: key and value", block.line);
        };
        let table = TableDefinition::decode(key, value).unwrap();
        assert_eq!(&table.encode(), value);
        let listed = |what: &str, all: &[(TreeId, String)]| {
            let all: Vec<String> = all
                .iter()
                .map(|(id, text)| format!("{id} {text:?}"))
                .collect();
            if all.is_empty() {
                return String::new();
            }
            format!(" {what} {}", all.join(", "))
        };
        let (name, space) = (&table.name, table.space);
        let (trees, layouts) = (
            listed("trees", &table.trees),
            listed("layouts", &table.layouts),
        );
        block.check(&format!("table {name:?} space {space}{trees}{layouts}"));
        seen += 1;
    }
    assert!(seen > 0, "docs/format.md has no catalog row");
}

const PAGE: usize = 4096;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn page(file: &[u8], number: u32) -> &[u8] {
    &file[number as usize * PAGE..][..PAGE]
}

/// Writes a short and a long row, and closes.
fn write_a_database(directory: &Path, long: &[u8]) {
    let options = Options {
        page_size: PAGE as u64,
        buffer_pool_size: 4 << 20,
        log_file_size: 4 << 20,
        ..Options::default()
    };
    let db = Database::open(directory, options).unwrap();
    let table = db.create_table("accounts", &["by_name"]).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(&table, b"long", long).unwrap();
    txn.insert(&table, b"short", b"1").unwrap();
    txn.commit().unwrap();
    db.close().unwrap();
}

#[test]
fn a_database_on_disk_is_as_described() {
    let dir = tempfile::tempdir().unwrap();
    let long: Vec<u8> = (0..10_000u32).map(|n| (n % 251) as u8).collect();
    write_a_database(dir.path(), &long);
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();

    let control = read("control");
    assert_eq!(control.len(), 8192);
    let (first, second) = control.split_at(CONTROL_COPY_LEN);
    let (control, _) = Control::choose([first, second]).unwrap();
    assert!(control.clean_shutdown);

    let file = read("t00000001.ink");
    let space = SpaceId(1);
    let used = |n: u32| page(&file, 1)[32 + n as usize / 8] & 1 << (n % 8) != 0;
    assert!(used(0) && used(1));
    for n in (0..file.len() as u32 / PAGE as u32).filter(|&n| used(n)) {
        check_page(page(&file, n), PageId::new(space, PageNo(n))).unwrap();
    }
    assert_eq!(page(&file, 0)[28..44], control.uuid);
    assert_eq!(u32_at(page(&file, 0), 44) as usize, PAGE);
    assert_ne!(u32_at(page(&file, 0), 64 + 4 * 127), 0, "tree 127");
    let root = u32_at(page(&file, 0), 64);
    let leaf = TreePage(page(&file, root));
    leaf.check().unwrap();
    assert_eq!(leaf.key(1), b"short");
    assert_eq!(leaf.cell(1).value, b"1");

    let reference = leaf.cell(0);
    assert!(reference.is_overflow() && reference.value.len() == 12);
    assert_eq!(reference.value[..8], 10_000u64.to_le_bytes());
    let (mut next, mut value) = (u32_at(reference.value, 8), Vec::new());
    while next != 0 {
        let page = page(&file, next);
        assert!(used(next) && page[12] == 5);
        let here = u32_at(page, 28) as usize;
        value.extend_from_slice(&page[32..32 + here]);
        next = u32_at(page, 24);
        assert!(next == 0 || here == PAGE - 32);
    }
    assert_eq!(value, long);

    let doublewrite = read("doublewrite");
    let layout = Layout::parse(&doublewrite[..4096]).unwrap();
    assert_eq!(layout.file_len(), doublewrite.len() as u64);
    assert_eq!((layout.areas, layout.batch_pages), (6, 128));

    let segment = read("log/0000000000000001.log");
    let header = SegmentHeader::decode(&segment[..4096]).unwrap();
    assert_eq!(header.uuid, control.uuid);
    assert_eq!(segment.len() as u64, 4096 + header.segment_bytes);
    assert_eq!(header.segment_bytes, 256 << 10);

    let dump = read("buffer_pool.dump");
    assert!(dump.len() % 8 == 0);
    let resident: Vec<(u32, u32)> = dump
        .chunks_exact(8)
        .map(|entry| (u32_at(entry, 4), u32_at(entry, 0)))
        .collect();
    assert!(resident.contains(&(1, root)), "tablespace, page");

    let mut names: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "buffer_pool.dump",
        "catalog.ink",
        "control",
        "doublewrite",
        "lock",
        "log",
        "page_lsn_map",
        "t00000001.ink",
    ];
    assert_eq!(names, expected);
}
