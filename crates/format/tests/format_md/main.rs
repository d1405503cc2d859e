//! docs/format.md is true: each of its examples is decoded by the real code, and means what the
//! text beside it says; each record kind has one.

#[path = "blocks.rs"]
mod blocks;
#[path = "print.rs"]
mod print;
#[path = "show.rs"]
mod show;

use blocks::{Block, blocks};
use inkstone_format::control::Control;
use inkstone_format::doublewrite::{BatchHeader, Layout};
use inkstone_format::field::{Descending, Field};
use inkstone_format::frame::{self, Parsed};
use inkstone_format::header::{check_page, page_id, page_type};
use inkstone_format::page_lsn_map::{MapHeader, SECTOR_LEN, Sector};
use inkstone_format::record::{Decoder, KINDS, Record};
use inkstone_format::segment::SegmentHeader;
use inkstone_format::tree_page::TreePage;
use inkstone_format::{Lsn, PageId};
use std::collections::BTreeSet;

/// Blocks that crates/inkstone/tests/format_md.rs checks: their code is the engine's.
const OF_THE_ENGINE: &[&str] = &["catalog"];

/// Read, and no longer written.
const UNDO_COPY_PLAIN: u8 = 0x23;

fn one_record(decoder: &mut Decoder, bytes: &[u8], line: usize) -> Record {
    let decoded = decoder.decode(bytes);
    let mut records = decoded.unwrap_or_else(|e| panic!("line {line}: {e:?}"));
    assert_eq!(records.len(), 1, "line {line}: one record a part");
    records.remove(0)
}

fn check_records(block: &Block) {
    let mut decoder = Decoder::default();
    let mut lines = Vec::new();
    for part in &block.parts {
        let record = one_record(&mut decoder, part, block.line);
        lines.push(show::record(part[0], &record));
        // What is coded against a context, and what only earlier versions wrote, is not encoded
        // like this.
        if !(0x40..0x80).contains(&part[0]) && part[0] != UNDO_COPY_PLAIN {
            let mut again = Vec::new();
            record.put(&mut again);
            assert_eq!(&again, part, "line {}: the encoder's bytes", block.line);
        }
    }
    block.check(&lines.join("\n"));
}

fn check_frames(block: &Block) {
    let mut decoder = Decoder::default();
    let (mut start, epoch) = (block.number("start"), block.number("epoch"));
    let mut lines = Vec::new();
    for part in &block.parts {
        let frame = match frame::parse(part, Lsn(start), epoch) {
            Parsed::Frame(frame) => frame,
            other => panic!("line {}: {other:?}", block.line),
        };
        assert_eq!(frame.len, part.len(), "line {}", block.line);
        let claim = frame.claim.map_or("no".to_owned(), |c| c.to_string());
        lines.push(format!(
            "frame {start} to {} claim {claim}",
            start + frame.len as u64
        ));
        let records = decoder.decode(frame.payload).expect("records");
        let kinds = kinds_of(frame.payload, &records);
        for (kind, record) in kinds.into_iter().zip(&records) {
            lines.push(format!("  {}", show::record(kind, record)));
        }
        start += frame.len as u64;
    }
    block.check(&lines.join("\n"));
}

/// The kind bytes of a payload's records. Only the first is known without decoding; the others
/// are found by encoding them again, so contextual inserts must stand alone in their frame.
fn kinds_of(payload: &[u8], records: &[Record]) -> Vec<u8> {
    if records.len() == 1 {
        return vec![payload[0]];
    }
    let mut at = 0;
    let mut kinds = Vec::new();
    for record in records {
        kinds.push(payload[at]);
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        assert_eq!(&payload[at..at + bytes.len()], &bytes[..]);
        at += bytes.len();
    }
    kinds
}

fn padded(block: &Block, len: usize) -> Vec<u8> {
    let mut bytes = block.bytes().to_vec();
    assert!(bytes.len() <= len, "line {}", block.line);
    bytes.resize(len, 0);
    bytes
}

fn check_one_page(block: &Block) {
    let page = padded(block, block.number("size") as usize);
    let id = page_id(&page);
    check_page(&page, id).unwrap_or_else(|e| panic!("line {}: {e}", block.line));
    use inkstone_format::header::PageType::{Inner, Leaf, SpaceHeader};
    match page_type(&page) {
        Some(Leaf | Inner) => TreePage(&page).check().expect("a sound tree page"),
        Some(SpaceHeader) => {
            let uuid = inkstone_format::space::uuid(&page);
            inkstone_format::space::check_header(&page, &uuid).expect("a sound header");
        }
        _ => {}
    }
    block.check(&show::page(&page));
}

fn check_dump(block: &Block) {
    let pages: Vec<String> = block
        .bytes()
        .chunks_exact(8)
        .map(|word| PageId::from_u64(u64::from_le_bytes(word.try_into().unwrap())).to_string())
        .collect();
    block.check(&pages.join("\n"));
}

/// The document's only example has fields of these types.
fn check_fields(block: &Block) {
    type Fields = (i32, String, Option<u16>, Descending<u8>, f64);
    let fields = Fields::from_bytes(block.bytes()).expect("fields");
    assert_eq!(fields.to_bytes(), block.bytes());
    block.check(&format!("{fields:?}"));
}

fn check_block(block: &Block) {
    match block.kind.as_str() {
        "record" => check_records(block),
        "frames" => check_frames(block),
        "page" => check_one_page(block),
        "control" => {
            let bytes = padded(block, 4096);
            let control = Control::parse(&bytes).expect("a control block");
            assert_eq!(control.encode()[..], bytes[..]);
            block.check(&show::control(&control));
        }
        "doublewrite-file" => {
            let bytes = padded(block, 4096);
            let layout = Layout::parse(&bytes).expect("a doublewrite file header");
            assert_eq!(layout.encode()[..], bytes[..]);
            block.check(&show::layout(&layout));
        }
        "doublewrite-batch" => {
            let bytes = padded(block, 4096);
            let header = BatchHeader::parse(&print::LAYOUT, &bytes);
            let header = header.expect("a batch header").expect("a batch");
            block.check(&show::batch(&header));
        }
        "page-lsn-map-header" => {
            let bytes = padded(block, SECTOR_LEN);
            let header = MapHeader::parse(&bytes).expect("a header");
            assert_eq!(header.encode()[..], bytes[..]);
            block.check(&show::map_header(&header));
        }
        "page-lsn-map-sector" => {
            let bytes = padded(block, SECTOR_LEN);
            let sector = Sector::parse(&print::LAYOUT.uuid, &bytes);
            let sector = sector.expect("a sound sector").expect("a sector");
            assert_eq!(sector.encode(&print::LAYOUT.uuid)[..], bytes[..]);
            block.check(&show::map_sector(&sector));
        }
        "segment" => {
            let bytes = padded(block, 4096);
            let header = SegmentHeader::decode(&bytes).expect("a segment header");
            block.check(&show::segment(&header));
        }
        "dump" => check_dump(block),
        "fields" => check_fields(block),
        other => assert!(
            OF_THE_ENGINE.contains(&other),
            "line {}: nothing checks blocks of kind {other:?}",
            block.line
        ),
    }
}

#[test]
fn every_example_means_what_the_text_says() {
    let blocks = blocks();
    blocks.iter().for_each(check_block);
    assert!(blocks.len() > 30, "{} examples", blocks.len());
}

/// A block that names a kind must have a record of that kind, and every kind has such a block.
#[test]
fn every_record_kind_has_an_example() {
    let mut shown = BTreeSet::new();
    for block in blocks().iter().filter(|block| block.kind == "record") {
        let kinds: BTreeSet<&str> = block.parts.iter().map(|p| show::kind_name(p[0])).collect();
        for word in &block.words {
            assert!(
                kinds.contains(word.as_str()),
                "line {}: the block names {word} and has {kinds:?}",
                block.line
            );
            shown.insert(word.clone());
        }
    }
    for (kind, name, _) in KINDS {
        assert!(
            shown.contains(*name),
            "docs/format.md has no example of {name} ({kind:02x})"
        );
    }
}

/// The text of `KINDS` stands in the document's table of kinds, word for word.
#[test]
fn the_table_of_kinds_is_the_declared_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    let document = std::fs::read_to_string(path).expect("docs/format.md");
    for (kind, name, follows) in KINDS {
        let row = format!("| `{kind:02x}` | {name} | {follows} |");
        assert!(document.contains(&row), "docs/format.md lacks\n{row}");
    }
}

/// The examples of contextual inserts show each flag set and clear, and each way to code a value.
#[test]
fn every_flag_of_a_contextual_insert_is_shown() {
    let (mut set, mut clear, mut modes) = (0u8, 0u8, BTreeSet::new());
    for block in blocks().iter().filter(|block| block.kind == "record") {
        for part in block.parts.iter().filter(|p| (0x40..0x80).contains(&p[0])) {
            set |= part[0];
            clear |= !part[0];
            modes.insert(part[0] >> 3 & 3);
        }
    }
    assert_eq!((set & 0x27, clear & 0x27, modes.len()), (0x27, 0x27, 4));
}

/// Each kind of undo is shown.
#[test]
fn every_kind_of_undo_is_shown() {
    let text: String = blocks()
        .iter()
        .filter(|block| block.kind == "record")
        .map(|block| block.text.clone())
        .collect();
    for way in [
        "remove the row",
        "change it back",
        "put back",
        "clear the delete mark",
        "set the delete mark",
    ] {
        assert!(text.contains(way), "no example of undo: {way}");
    }
}
