//! What docs/format.md writes beside its examples: one fixed text for each decoded value.

use inkstone_format::apply::{MAP_BITS_AT, bit, map_pages};
use inkstone_format::control::Control;
use inkstone_format::doublewrite::{BatchHeader, Layout};
use inkstone_format::header::{PageType, page_id, page_lsn, page_type};
use inkstone_format::page_lsn_map::{MapHeader, Sector, Subject, parse_index_entry};
use inkstone_format::record::{Diff, KINDS, Record, Row, TrxRef, Undo, UndoEntry};
use inkstone_format::segment::SegmentHeader;
use inkstone_format::tree_page::{CELL_DELETED, CELL_OVERFLOW, CELL_VERSIONED, TreePage};
use inkstone_format::{PageNo, TreeId, VersionAddress, space};

/// Bytes: text where it can be read as such, else hex, and runs as such.
pub fn bytes(bytes: &[u8]) -> String {
    match bytes {
        [] => "\"\"".to_owned(),
        [first, ..] if bytes.len() > 8 && bytes.iter().all(|b| b == first) => {
            format!("{} x 0x{first:02x}", bytes.len())
        }
        _ if bytes.iter().all(|b| (0x20..0x7f).contains(b)) => {
            format!("{:?}", String::from_utf8_lossy(bytes))
        }
        _ => format!("0x{}", hex(bytes)),
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn fence(fence: Option<&Vec<u8>>) -> String {
    fence.map_or("none".to_owned(), |fence| bytes(fence))
}

fn flags(flags: u8) -> String {
    let names = [
        (CELL_DELETED, "deleted"),
        (CELL_VERSIONED, "versioned"),
        (CELL_OVERFLOW, "overflow"),
    ];
    let set: Vec<&str> = names
        .iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    if set.is_empty() {
        "0".to_owned()
    } else {
        set.join("+")
    }
}

fn trx(trx: TrxRef) -> String {
    let begins = match trx.first {
        Some(id) => format!("slot {} begins transaction {id}", trx.slot),
        None => format!("slot {}", trx.slot),
    };
    let Some(version) = trx.version else {
        return begins;
    };
    let previous = match version.previous.0 {
        0 => String::new(),
        _ => format!(" after {}", address(version.previous)),
    };
    format!("{begins} version {}{previous}", address(version.address))
}

fn address(address: VersionAddress) -> String {
    format!("{:#x}+{}", address.segment(), address.unit())
}

fn version(version: Option<VersionAddress>) -> String {
    version.map_or("none".to_owned(), address)
}

fn rows(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let marked = match row.flags {
            0 => String::new(),
            other => format!(" flags {}", flags(other)),
        };
        format!("{}={}{marked}", bytes(&row.key), bytes(&row.value))
    };
    rows.iter().map(row).collect::<Vec<_>>().join(", ")
}

fn diff(diff: &Diff) -> String {
    format!(
        "keep {} bytes, {} -> {}, keep {} bytes",
        diff.prefix,
        bytes(&diff.old),
        bytes(&diff.new),
        diff.suffix
    )
}

fn undo(undo: &Undo) -> String {
    match undo {
        Undo::Insert => "remove the row".to_owned(),
        Undo::Update { flags: f, diff: d } => {
            format!("change it back: flags {}, {}", flags(*f), diff(d))
        }
        Undo::Restore { flags: f, value } => {
            format!("put back: flags {}, value {}", flags(*f), bytes(value))
        }
        Undo::Mark => "clear the delete mark".to_owned(),
        Undo::Revive => "set the delete mark".to_owned(),
    }
}

fn entry(e: &UndoEntry) -> String {
    format!(
        "[space {} tree {} key {}: {}]",
        e.space,
        e.tree,
        bytes(&e.key),
        undo(&e.undo)
    )
}

/// The name of a kind byte, as in `KINDS`.
pub fn kind_name(kind: u8) -> &'static str {
    let kind = if (0x40..0x80).contains(&kind) {
        0x40
    } else {
        kind
    };
    let found = KINDS.iter().find(|(known, _, _)| *known == kind);
    found.map_or("UNKNOWN", |(_, name, _)| name)
}

/// A record, by the kind byte that it was read from.
pub fn record(kind: u8, record: &Record) -> String {
    let rest = match record {
        Record::TreeInit { page, init } => format!(
            "page {page} tree {} level {} low {} high {}",
            init.tree,
            init.level,
            bytes(&init.low),
            fence(init.high.as_ref())
        ),
        Record::PageInit { page, page_type } => format!("page {page} type {page_type}"),
        Record::PageFree { page } => format!("page {page}"),
        Record::Bytes {
            page,
            offset,
            bytes: b,
        } => format!("page {page} offset {offset} bytes {}", bytes(b)),
        Record::Bits {
            page,
            first,
            count,
            set,
        } => format!(
            "page {page} first {first} count {count} {}",
            if *set { "set" } else { "clear" }
        ),
        Record::LeafCells {
            page,
            slot,
            rows: r,
        } => {
            format!("page {page} slot {slot} rows {}", rows(r))
        }
        Record::InnerCells {
            page,
            slot,
            children,
        } => {
            let child = |(key, child): &(Vec<u8>, PageNo)| format!("{} -> {child}", bytes(key));
            let children: Vec<String> = children.iter().map(child).collect();
            format!("page {page} slot {slot} children {}", children.join(", "))
        }
        Record::Remove { page, slot, count } => format!("page {page} slot {slot} count {count}"),
        Record::SetHigh { page, keep, high } => {
            format!("page {page} keep {keep} high {}", fence(high.as_ref()))
        }
        Record::RowsInsert {
            page,
            trx: t,
            tree,
            slot,
            rows: r,
        } => format!(
            "{} page {page} tree {tree} slot {slot} rows {}",
            trx(*t),
            rows(r)
        ),
        Record::RowUpdate {
            page,
            trx: t,
            tree,
            slot,
            key,
            old_flags,
            flags: f,
            diff: d,
        } => format!(
            "{} page {page} tree {tree} slot {slot} key {} flags {} -> {} value {}",
            trx(*t),
            bytes(key),
            flags(*old_flags),
            flags(*f),
            diff(d)
        ),
        Record::RowMark {
            page,
            trx: t,
            tree,
            slot,
            key,
        } => format!(
            "{} page {page} tree {tree} slot {slot} key {}",
            trx(*t),
            bytes(key)
        ),
        Record::RowRevive {
            page,
            trx: t,
            tree,
            slot,
            flags: f,
            key,
            value,
        } => format!(
            "{} page {page} tree {tree} slot {slot} flags {} key {} value {}",
            trx(*t),
            flags(*f),
            bytes(key),
            bytes(value)
        ),
        Record::RowUndo {
            page,
            trx_slot,
            slot,
            undo: u,
        } => format!("slot {trx_slot} page {page} slot {slot}: {}", undo(u)),
        Record::SetVersions { page, versions } => {
            let set = |(slot, v): &(u16, _)| format!("{slot}: {}", version(*v));
            let all: Vec<String> = versions.iter().map(set).collect();
            format!("page {page} slots {}", all.join(", "))
        }
        Record::RowsMark {
            page,
            version: v,
            slot,
            count,
        } => format!(
            "page {page} version {} slot {slot} count {count}",
            version(*v)
        ),
        Record::RowRestore {
            page,
            slot,
            version: v,
            undo: u,
        } => format!(
            "page {page} slot {slot} version {}: {}",
            version(*v),
            undo(u)
        ),
        Record::UndoMoved {
            trx_slot,
            addresses,
        } => {
            let moved = |(at, rows): &(_, u32)| format!("{rows} at {}", address(*at));
            let all: Vec<String> = addresses.iter().map(moved).collect();
            format!("slot {trx_slot} rows {}", all.join(", "))
        }
        Record::BulkInsert {
            trx_slot,
            address: at,
            space,
            tree,
            from,
        } => format!(
            "slot {trx_slot} version {} tablespace {space} tree {tree} from {}",
            address(*at),
            bytes(from)
        ),
        Record::BulkDelete {
            trx_slot,
            address: at,
            space,
            tree,
            from,
            to,
        } => format!(
            "slot {trx_slot} version {} tablespace {space} tree {tree} from {} to {}",
            address(*at),
            bytes(from),
            fence(to.as_ref())
        ),
        Record::UndoSaved {
            trx_slot,
            trx,
            since,
            changes,
            xid,
            list,
        } => format!(
            "slot {trx_slot} transaction {trx} since {since} changes {changes} xid {} list {} bytes \
             at {} checksum {:08x}",
            fence(xid.as_ref()),
            list.bytes,
            list.offset,
            list.checksum
        ),
        Record::Commit { trx_slot } | Record::RollbackEnd { trx_slot } => {
            format!("slot {trx_slot}")
        }
        Record::Prepare { trx_slot, xid } => format!("slot {trx_slot} xid {}", bytes(xid)),
        Record::UndoCopy {
            trx_slot,
            trx,
            first,
            last,
            xid,
            entries,
        } => format!(
            "slot {trx_slot} transaction {trx} first {first} last {last} xid {} entries {}",
            fence(xid.as_ref()),
            entries.iter().map(entry).collect::<Vec<_>>().join(" ")
        ),
        Record::FileCreate { space } | Record::FileDelete { space } => format!("space {space}"),
        Record::Epoch {
            epoch,
            end_of_previous,
        } => format!("epoch {epoch} end of previous {end_of_previous}"),
        Record::Checkpoint {
            checkpoint,
            scan_start,
        } => format!("checkpoint {checkpoint} scan start {scan_start}"),
        Record::Unknown { kind, body } => format!("kind {kind:02x} body {}", bytes(body)),
    };
    format!("{} {rest}", kind_name(kind))
}

/// A page, whatever its type.
pub fn page(page: &[u8]) -> String {
    let kind = page_type(page).expect("a checked page");
    let head = format!("{kind:?} page {} LSN {}", page_id(page), page_lsn(page));
    let body = match kind {
        PageType::Free => String::new(),
        PageType::SpaceHeader => space_header(page),
        PageType::SpaceMap => space_map(page),
        PageType::Leaf | PageType::Inner => tree_page(TreePage(page)),
        PageType::Overflow => {
            let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
            let (next, length) = (word(24), word(28) as usize);
            format!(
                "next {next} length {length}\n{}",
                bytes(&page[32..32 + length])
            )
        }
    };
    format!("{head}\n{body}")
}

fn space_header(page: &[u8]) -> String {
    let mut lines = vec![
        format!("uuid {}", hex(&space::uuid(page))),
        format!("page size {}", space::page_size(page)),
        format!("more maps {}", space::more_maps(page)),
    ];
    for tree in (0..space::TREES_MAX).map(TreeId) {
        if let Some(root) = space::root(page, tree) {
            lines.push(format!("root of tree {tree}: page {root}"));
        }
    }
    lines.join("\n")
}

fn space_map(page: &[u8]) -> String {
    let set: Vec<String> = (0..map_pages(page.len()))
        .filter(|&n| bit(page, n))
        .map(|n| n.to_string())
        .collect();
    assert!(page[24..MAP_BITS_AT].iter().all(|&b| b == 0));
    format!("set bits: {}", set.join(" "))
}

fn tree_page(page: TreePage<'_>) -> String {
    let mut lines = vec![format!(
        "tree {} level {} slots {} free {} low {} high {} prefix {}",
        page.tree(),
        page.level(),
        page.count(),
        page.free(),
        bytes(page.low()),
        fence(page.high().map(<[u8]>::to_vec).as_ref()),
        bytes(page.prefix())
    )];
    for slot in 0..page.count() {
        let cell = page.cell(slot);
        lines.push(if page.is_leaf() {
            let version = match cell.version {
                None => String::new(),
                Some(version) => format!(" version {version}"),
            };
            format!(
                "slot {slot}: key {} value {} flags {}{version}",
                bytes(&page.key(slot)),
                bytes(cell.value),
                flags(cell.flags)
            )
        } else {
            format!(
                "slot {slot}: from {} child {}",
                bytes(&page.key(slot)),
                page.child(slot)
            )
        });
    }
    lines.join("\n")
}

/// A control block.
pub fn control(c: &Control) -> String {
    [
        format!("page size {}", c.page_size),
        format!("uuid {}", hex(&c.uuid)),
        format!("sequence {} epoch {}", c.sequence, c.epoch),
        format!(
            "checkpoint {} scan start {}",
            c.checkpoint_lsn, c.scan_start_lsn
        ),
        format!("scan start epoch {}", c.scan_start_epoch),
        format!("known durable {}", c.known_durable_lsn),
        format!("log segment bytes {}", c.log_segment_bytes),
        format!(
            "next transaction {} space {}",
            c.next_trx_id, c.next_space_id
        ),
        format!("version epoch {}", c.version_epoch),
        format!("clean shutdown {}", c.clean_shutdown),
        format!("next commit {}", c.next_commit),
    ]
    .join("\n")
}

/// The header of the doublewrite file.
pub fn layout(l: &Layout) -> String {
    format!(
        "page size {} uuid {}\nareas {} of {} pages, {} bytes each, file {} bytes",
        l.page_size,
        hex(&l.uuid),
        l.areas,
        l.batch_pages,
        l.area_len(),
        l.file_len()
    )
}

/// A batch header.
pub fn batch(b: &BatchHeader) -> String {
    let entry = |e: &inkstone_format::doublewrite::BatchEntry| {
        format!("page {} image checksum {:08x}", e.id, e.crc)
    };
    let entries: Vec<String> = b.entries.iter().map(entry).collect();
    format!("sequence {}\n{}", b.sequence, entries.join("\n"))
}

/// The header of the page LSN map.
pub fn map_header(h: &MapHeader) -> String {
    let uuid = hex(&h.uuid);
    format!("uuid {uuid} epoch {} newest LSN {}", h.epoch, h.newest)
}

/// A sector of the page LSN map: what its entries that are not zero say.
pub fn map_sector(sector: &Sector) -> String {
    let known = (0..).zip(&sector.entries).filter(|&(_, &entry)| entry != 0);
    let lines = known.map(|(n, &entry)| match sector.subject.after(n) {
        Subject::Pages(space, page) => format!("page {space}:{page} LSN {entry}"),
        Subject::Slots(slot) => {
            let (space, run) = parse_index_entry(entry).expect("an index entry");
            format!("slot {slot}: tablespace {space} run {run}")
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The header block of a log segment.
pub fn segment(s: &SegmentHeader) -> String {
    format!(
        "segment {} of {} bytes, LSNs from {}, uuid {}",
        s.number,
        s.segment_bytes,
        s.start_lsn(),
        hex(&s.uuid)
    )
}
