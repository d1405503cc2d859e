//! Targets over blocks that carry a checksum: as they are, and again with a checksum that fits,
//! because what is behind the checksum must hold against any bytes too.

use super::Target;
use super::input::Input;
use inkstone_format::apply::{bit, map_pages, set_bits};
use inkstone_format::control::{CONTROL_COPY_LEN, Control};
use inkstone_format::doublewrite::{BLOCK_LEN, BatchEntry, BatchHeader, Layout};
use inkstone_format::header::{PageType, init_page, stamp_checksum};
use inkstone_format::page_lsn_map::{
    self, MapHeader, SECTOR_LEN, Sector, Subject, encode_block, parse_block,
};
use inkstone_format::segment::{LOG_BLOCK, SegmentHeader, parse_segment_file_name};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId, TreeId, TrxId, space};

/// `control`: the control file.
pub const CONTROL: Target = Target {
    name: "control",
    about: "both copies of a control file: parsed, chosen, written again",
    run: control,
    seeds: control_seeds,
    input_max: 2 * CONTROL_COPY_LEN,
    allocation_max_mib: 1,
};

/// `doublewrite`: headers of the doublewrite file.
pub const DOUBLEWRITE: Target = Target {
    name: "doublewrite",
    about: "headers of the doublewrite file and of a batch: parsed, written again",
    run: doublewrite,
    seeds: doublewrite_seeds,
    input_max: 2 * BLOCK_LEN,
    allocation_max_mib: 1,
};

/// `space`: header and map of a tablespace.
pub const SPACE: Target = Target {
    name: "space",
    about: "page 0 and the map page of a tablespace: checked and read",
    run: space_pages,
    seeds: space_seeds,
    input_max: 8 << 10,
    allocation_max_mib: 1,
};

/// `segment`: header of a log segment.
pub const SEGMENT: Target = Target {
    name: "segment",
    about: "a log segment's header and file name: parsed, written again",
    run: segment,
    seeds: segment_seeds,
    input_max: LOG_BLOCK,
    allocation_max_mib: 1,
};

/// `page_lsn_map`: header and sectors of the page LSN map.
pub const PAGE_LSN_MAP: Target = Target {
    name: "page_lsn_map",
    about: "header and a block of the page LSN map: parsed, written again",
    run: page_lsn_map,
    seeds: page_lsn_map_seeds,
    input_max: SECTOR_LEN + page_lsn_map::BLOCK_LEN,
    allocation_max_mib: 1,
};

const UUID: [u8; 16] = *b"the fuzz targets";

/// A block of 4 KiB from the input: how long its beginning is, and that; zeroes follow.
fn block(input: &mut Input<'_>) -> Vec<u8> {
    let length = usize::from(input.u16()).min(4096);
    let mut block = input.take(length).to_vec();
    block.resize(4096, 0);
    block
}

fn block_input(block: &[u8]) -> Vec<u8> {
    let body = &block[..block.len() - 4];
    let length = body.iter().rposition(|&b| b != 0).map_or(0, |at| at + 1);
    [&(length as u16).to_le_bytes(), &block[..length]].concat()
}

/// The block with the checksum in its last four bytes that fits.
fn sealed(block: &[u8]) -> Vec<u8> {
    let body = &block[..block.len() - 4];
    [body, &crc32c::crc32c(body).to_le_bytes()].concat()
}

fn control(data: &[u8]) {
    let mut input = Input::new(data);
    let raw = [block(&mut input), block(&mut input)];
    let _ = Control::parse(&raw[0][..input.below(4097)]);
    let _ = Control::choose([&raw[0], &raw[1]]);
    let copies = raw.each_ref().map(|copy| sealed(copy));
    for copy in &copies {
        if let Ok(control) = Control::parse(copy) {
            assert_eq!(control.encode()[..], copy[..], "written again it differs");
        }
    }
    if let Ok((chosen, number)) = Control::choose([&copies[0], &copies[1]]) {
        assert_eq!(Control::parse(&copies[number]).as_ref(), Ok(&chosen));
        if let Ok(other) = Control::parse(&copies[1 - number]) {
            assert!(
                other.sequence <= chosen.sequence,
                "the older copy was chosen"
            );
        }
    }
}

fn control_seeds() -> Vec<(String, Vec<u8>)> {
    let control = Control {
        page_size: 16384,
        uuid: UUID,
        sequence: 7,
        epoch: 3,
        checkpoint_lsn: Lsn(2 << 20),
        scan_start_lsn: Lsn(1 << 20),
        scan_start_epoch: 2,
        known_durable_lsn: Lsn(3 << 20),
        log_segment_bytes: 1 << 20,
        next_trx_id: TrxId(88),
        next_space_id: SpaceId(4),
        version_epoch: 1,
        next_commit: 55,
        clean_shutdown: false,
    };
    let newer = Control {
        sequence: 8,
        clean_shutdown: true,
        ..control.clone()
    };
    let (old, new) = (block_input(&control.encode()), block_input(&newer.encode()));
    vec![
        ("one".to_owned(), old.clone()),
        ("both".to_owned(), [&old[..], &new].concat()),
        ("newer-first".to_owned(), [new, old].concat()),
    ]
}

fn doublewrite(data: &[u8]) {
    let mut input = Input::new(data);
    let (file, batch) = (block(&mut input), block(&mut input));
    let _ = (
        Layout::parse(&file),
        Layout::parse(&file[..input.below(4097)]),
    );
    let mut layout = layout();
    if let Ok(found) = Layout::parse(&sealed(&file)) {
        assert_eq!(
            found.encode()[..],
            sealed(&file)[..],
            "written again it differs"
        );
        assert!(found.area_offset(found.areas - 1) + found.area_len() == found.file_len());
        layout = found;
    }
    let _ = BatchHeader::parse(&layout, &batch);
    let batch = sealed(&batch);
    if let Ok(Some(found)) = BatchHeader::parse(&layout, &batch) {
        let mut again = vec![0xaa; BLOCK_LEN];
        found.encode(&layout, &mut again);
        assert_eq!(again, batch, "written again it differs");
    }
}

fn layout() -> Layout {
    Layout {
        page_size: 4096,
        uuid: UUID,
        areas: 2,
        batch_pages: 64,
    }
}

fn doublewrite_seeds() -> Vec<(String, Vec<u8>)> {
    let file = block_input(&layout().encode());
    let batch = |count: u32| {
        let entries = (0..count).map(|n| BatchEntry {
            id: PageId::new(SpaceId(1), PageNo(n)),
            crc: n,
        });
        let mut block = vec![0; BLOCK_LEN];
        let header = BatchHeader {
            sequence: 9,
            entries: entries.collect(),
        };
        header.encode(&layout(), &mut block);
        [&file[..], &block_input(&block)].concat()
    };
    let counts = [1, 2, 64].into_iter();
    counts
        .map(|count| (format!("batch{count}"), batch(count)))
        .collect()
}

fn space_pages(data: &[u8]) {
    let mut input = Input::new(data);
    let page = block(&mut input);
    let map = block(&mut input);
    let _ = (
        space::version(&page),
        space::page_size(&page),
        space::uuid(&page),
    );
    let _ = space::more_maps(&page);
    if space::check_header(&page, &UUID).is_ok() {
        for tree in 0..space::TREES_MAX {
            let _ = space::root(&page, TreeId(tree));
        }
    }
    let bits = map_pages(map.len());
    let (first, count) = (input.u32() % bits, input.u32() % 64);
    let count = count.min(bits - first);
    let mut changed = map.clone();
    set_bits(&mut changed, first, count, true);
    let inside = |n: u32| (first..first + count).contains(&n);
    assert!((0..bits).all(|n| bit(&changed, n) == (bit(&map, n) || inside(n))));
}

fn space_seeds() -> Vec<(String, Vec<u8>)> {
    let mut page = vec![0; 4096];
    init_page(
        &mut page,
        PageId::new(SpaceId(1), PageNo(0)),
        PageType::SpaceHeader,
    );
    let header = space::new_header(&UUID, 4096);
    page[24..24 + header.len()].copy_from_slice(&header);
    space::set_root(&mut page, TreeId(0), PageNo(2));
    space::set_root(&mut page, TreeId(1), PageNo(3));
    stamp_checksum(&mut page);
    let mut map = vec![0; 4096];
    init_page(
        &mut map,
        PageId::new(SpaceId(1), PageNo(1)),
        PageType::SpaceMap,
    );
    set_bits(&mut map, 0, 40, true);
    stamp_checksum(&mut map);
    vec![(
        "header-and-map".to_owned(),
        [block_input(&page), block_input(&map)].concat(),
    )]
}

fn page_lsn_map(data: &[u8]) {
    let (header, block) = data.split_at(data.len().min(SECTOR_LEN));
    let _ = MapHeader::parse(header);
    let mut header = header.to_vec();
    header.resize(SECTOR_LEN, 0);
    if let Ok(found) = MapHeader::parse(&sealed(&header)) {
        assert_eq!(found.encode()[..], sealed(&header)[..]);
    }
    let mut block = block.to_vec();
    block.resize(page_lsn_map::BLOCK_LEN, 0);
    for bytes in block.chunks_exact_mut(SECTOR_LEN) {
        let _ = Sector::parse(&UUID, bytes);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&UUID), &bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        if let Ok(Some(sector)) = Sector::parse(&UUID, bytes) {
            assert_eq!(sector.encode(&UUID)[..], bytes[..]);
            for &entry in &sector.entries {
                if let Some((space, run)) = page_lsn_map::parse_index_entry(entry) {
                    assert_eq!(page_lsn_map::index_entry(space, run), entry);
                }
            }
            let (entries, damaged) = parse_block(&UUID, sector.subject, &block_of(bytes));
            assert_eq!(entries[..sector.entries.len()], sector.entries);
            assert_eq!(damaged, [0usize; 0]);
        }
    }
}

/// A block with this sector and empty ones.
fn block_of(sector: &[u8]) -> Vec<u8> {
    let mut block = sector.to_vec();
    block.resize(page_lsn_map::BLOCK_LEN, 0);
    block
}

fn page_lsn_map_seeds() -> Vec<(String, Vec<u8>)> {
    let header = MapHeader {
        uuid: UUID,
        epoch: 3,
        newest: Lsn(2 << 20),
    };
    let lsns = std::array::from_fn(|n| (1 << 20) + n as u64);
    let slots = std::array::from_fn(|n| page_lsn_map::index_entry(SpaceId(1), n as u32));
    let with = |subject, entries| {
        let mut block = vec![0; page_lsn_map::BLOCK_LEN];
        encode_block(&UUID, subject, entries, &mut block);
        [&header.encode()[..], &block].concat()
    };
    vec![
        ("header".to_owned(), header.encode().to_vec()),
        (
            "lsns".to_owned(),
            with(Subject::Pages(SpaceId(1), PageNo(496)), &lsns),
        ),
        ("slots".to_owned(), with(Subject::Slots(0), &slots)),
    ]
}

fn segment(data: &[u8]) {
    let mut input = Input::new(data);
    let bytes = block(&mut input);
    let _ = SegmentHeader::decode(&bytes[..input.below(4097)]);
    let _ = SegmentHeader::decode(&bytes);
    if let Ok(header) = SegmentHeader::decode(&sealed(&bytes)) {
        let mut again = vec![0xaa; LOG_BLOCK];
        header.encode(&mut again);
        assert_eq!(again, sealed(&bytes), "written again it differs");
        assert_eq!(header.check(&header), Ok(()));
    }
    let name = String::from_utf8_lossy(input.rest());
    if let Some(number) = parse_segment_file_name(&name) {
        assert_eq!(inkstone_format::segment::segment_file_name(number), name);
    }
}

fn segment_seeds() -> Vec<(String, Vec<u8>)> {
    let header = SegmentHeader {
        number: 3,
        segment_bytes: 1 << 20,
        uuid: UUID,
    };
    let mut block = vec![0; LOG_BLOCK];
    header.encode(&mut block);
    let name = b"\x00\x000000000000000003.log";
    vec![(
        "segment3".to_owned(),
        [&block_input(&block), &name[..]].concat(),
    )]
}
