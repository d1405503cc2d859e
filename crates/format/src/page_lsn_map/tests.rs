use super::*;

const UUID: [u8; 16] = *b"a test's own map";
const SUBJECT: Subject = Subject::Pages(SpaceId(7), PageNo(992));

fn entries(step: u64) -> [u64; BLOCK_ENTRIES] {
    std::array::from_fn(|i| 1000 + step * i as u64)
}

fn block(step: u64) -> Vec<u8> {
    let mut bytes = vec![0xaa; BLOCK_LEN];
    encode_block(&UUID, SUBJECT, &entries(step), &mut bytes);
    bytes
}

#[test]
fn a_header_is_read_as_it_was_written_and_no_other() {
    let header = MapHeader {
        uuid: UUID,
        epoch: 9,
        newest: Lsn(77),
    };
    let bytes = header.encode();
    assert_eq!(MapHeader::parse(&bytes), Ok(header));
    for at in 0..SECTOR_LEN {
        let mut bytes = bytes;
        bytes[at] ^= 1;
        assert!(MapHeader::parse(&bytes).is_err(), "byte {at}");
    }
    assert!(MapHeader::parse(&bytes[..511]).is_err());
}

#[test]
fn a_torn_block_is_as_good_as_its_sectors() {
    let (old, new) = (block(1), block(2));
    assert_eq!(parse_block(&UUID, SUBJECT, &new), (entries(2), Vec::new()));
    let torn = [&new[..3 * SECTOR_LEN], &old[3 * SECTOR_LEN..]].concat();
    let (found, damaged) = parse_block(&UUID, SUBJECT, &torn);
    let kept = 3 * SECTOR_ENTRIES;
    assert_eq!(found[..kept], entries(2)[..kept]);
    assert_eq!(found[kept..], entries(1)[kept..]);
    assert_eq!(damaged, [0usize; 0]);
}

#[test]
fn what_is_damaged_or_about_others_says_nothing() {
    let mut bytes = block(1);
    bytes[2 * SECTOR_LEN + 100] ^= 4;
    let (found, damaged) = parse_block(&UUID, SUBJECT, &bytes);
    assert_eq!(damaged, [2]);
    let sector = 2 * SECTOR_ENTRIES..3 * SECTOR_ENTRIES;
    for (i, &entry) in found.iter().enumerate() {
        let expected = if sector.contains(&i) {
            0
        } else {
            entries(1)[i]
        };
        assert_eq!(entry, expected);
    }
    let nothing = [0; BLOCK_ENTRIES];
    let other = SUBJECT.after(BLOCK_ENTRIES);
    assert_eq!(parse_block(&UUID, other, &block(1)), (nothing, Vec::new()));
    let (found, damaged) = parse_block(b"another database", SUBJECT, &block(1));
    assert_eq!((found, damaged.len()), (nothing, 8));
    let empty = vec![0; BLOCK_LEN];
    assert_eq!(parse_block(&UUID, SUBJECT, &empty), (nothing, Vec::new()));
}

#[test]
fn index_entries_name_their_run() {
    for (space, run) in [(0, 0), (3, 17), (u32::MAX, run_of(PageNo(u32::MAX)))] {
        let entry = index_entry(SpaceId(space), run);
        assert_eq!(parse_index_entry(entry), Some((SpaceId(space), run)));
    }
    assert_eq!(parse_index_entry(0), None);
    assert_eq!(parse_index_entry(u64::MAX), None);
}
