use super::*;
use proptest::prelude::*;

const LAYOUT: Layout = Layout {
    page_size: 8192,
    uuid: *b"0123456789abcdef",
    areas: 4,
    batch_pages: 128,
};

fn batch(pages: u32) -> BatchHeader {
    let entries = (0..pages).map(|i| BatchEntry {
        id: PageId::new(SpaceId(i % 3), PageNo(i * 7)),
        crc: i ^ 0xdead_beef,
    });
    BatchHeader {
        sequence: 1 << 40,
        entries: entries.collect(),
    }
}

fn encoded(batch: &BatchHeader) -> [u8; BLOCK_LEN] {
    let mut b = [7; BLOCK_LEN];
    batch.encode(&LAYOUT, &mut b);
    b
}

#[test]
fn offsets_follow_from_the_layout() {
    assert_eq!(LAYOUT.area_len(), 4096 + 128 * 8192);
    assert_eq!(LAYOUT.area_offset(0), 4096);
    assert_eq!(LAYOUT.file_len(), 4096 + 4 * LAYOUT.area_len());
    let b = LAYOUT.encode();
    assert_eq!(Layout::parse(&b).unwrap(), LAYOUT);
    assert_eq!(b[32..36], 4u32.to_le_bytes());
    assert_eq!(b[36..40], 128u32.to_le_bytes());
}

#[test]
fn bad_file_headers_say_why() {
    let mut newer = LAYOUT.encode();
    put_u32(&mut newer, FILE_VERSION, 2);
    seal(&mut newer);
    assert_eq!(Layout::parse(&newer), Err(LayoutError::Newer { found: 2 }));
    for (at, value) in [
        (8, 0),
        (12, 5000),
        (32, 0),
        (32, 1025),
        (36, 0),
        (36, 400),
        (40, 1),
    ] {
        let mut b = LAYOUT.encode();
        put_u32(&mut b, at, value);
        seal(&mut b);
        let error = Layout::parse(&b).unwrap_err();
        assert!(matches!(error, LayoutError::Corrupt(_)), "{at} = {value}");
    }
}

#[test]
fn batches_round_trip() {
    for pages in [1, 2, 127, 128] {
        let b = encoded(&batch(pages));
        assert_eq!(BatchHeader::parse(&LAYOUT, &b).unwrap(), Some(batch(pages)));
    }
    let b = encoded(&batch(2));
    assert_eq!(b[36..40], 2u32.to_le_bytes());
    assert_eq!(b[48 + 12..48 + 16], 1u32.to_le_bytes());
    assert_eq!(BatchHeader::parse(&LAYOUT, &[0; BLOCK_LEN]).unwrap(), None);
}

#[test]
fn batches_of_others_are_refused() {
    let b = encoded(&batch(3));
    let mut other = LAYOUT;
    other.uuid[0] ^= 1;
    assert!(BatchHeader::parse(&other, &b).is_err());
    let other = Layout {
        page_size: 4096,
        ..LAYOUT
    };
    assert!(BatchHeader::parse(&other, &b).is_err());
    let other = Layout {
        batch_pages: 2,
        ..LAYOUT
    };
    assert!(BatchHeader::parse(&other, &b).is_err());
    assert!(BatchHeader::parse(&LAYOUT, &b[1..]).is_err());
    for (at, value) in [(36, 0), (36, u32::MAX), (40, 1), (48 + 36, 1), (4088, 1)] {
        let mut b = b;
        put_u32(&mut b, at, value);
        seal(&mut b);
        assert!(BatchHeader::parse(&LAYOUT, &b).is_err(), "{at} = {value}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        count in 0u32..400,
        batch_pages: u32,
    ) {
        let _ = Layout::parse(&bytes);
        let _ = BatchHeader::parse(&LAYOUT, &bytes);
        let mut b = [0; BLOCK_LEN];
        let n = bytes.len().min(BLOCK_LEN);
        b[..n].copy_from_slice(&bytes[..n]);
        b[..8].copy_from_slice(&FILE_MAGIC);
        put_u32(&mut b, FILE_VERSION, 1);
        seal(&mut b);
        let _ = Layout::parse(&b);
        b[..8].copy_from_slice(&BATCH_MAGIC);
        b[BATCH_UUID..BATCH_PAGE_SIZE].copy_from_slice(&LAYOUT.uuid);
        put_u32(&mut b, BATCH_PAGE_SIZE, LAYOUT.page_size);
        put_u32(&mut b, BATCH_COUNT, count);
        seal(&mut b);
        let _ = BatchHeader::parse(&Layout { batch_pages, ..LAYOUT }, &b);
    }

    #[test]
    fn every_flipped_bit_is_noticed(at in 0..BLOCK_LEN, bit in 0u32..8, pages in 1u32..=128) {
        let mut b = encoded(&batch(pages));
        b[at] ^= 1u8 << bit;
        prop_assert!(BatchHeader::parse(&LAYOUT, &b).is_err());
        let mut b = LAYOUT.encode();
        b[at] ^= 1u8 << bit;
        prop_assert!(Layout::parse(&b).is_err());
    }
}
