use super::*;
use proptest::prelude::*;

fn header() -> SegmentHeader {
    SegmentHeader {
        number: 0x1234,
        segment_bytes: 1 << 20,
        uuid: *b"0123456789abcdef",
    }
}

#[test]
fn headers_round_trip() {
    let mut block = vec![0xaa; LOG_BLOCK];
    header().encode(&mut block);
    assert_eq!(SegmentHeader::decode(&block), Ok(header()));
    assert_eq!(header().start_lsn(), Lsn(0x1234 << 20));
    assert!(header().check(&header()).is_ok());
    let other = SegmentHeader {
        uuid: [0; 16],
        ..header()
    };
    assert_eq!(header().check(&other).unwrap_err().offset, 40);
    let other = SegmentHeader {
        number: 1,
        ..header()
    };
    assert_eq!(header().check(&other).unwrap_err().offset, 16);
}

#[test]
fn every_flipped_bit_is_found() {
    let mut block = vec![0; LOG_BLOCK];
    header().encode(&mut block);
    for at in 0..LOG_BLOCK {
        block[at] ^= 1 << (at % 8);
        assert!(SegmentHeader::decode(&block).is_err(), "byte {at}");
        block[at] ^= 1 << (at % 8);
    }
}

#[test]
fn names_round_trip() {
    assert_eq!(segment_file_name(0xab), "00000000000000ab.log");
    assert_eq!(parse_segment_file_name("00000000000000ab.log"), Some(0xab));
    for other in [
        "ab.log",
        "00000000000000AB.log",
        "00000000000000ab",
        "+0000000000000ab.log",
        "prepare.tmp",
    ] {
        assert_eq!(parse_segment_file_name(other), None, "{other}");
    }
}

#[test]
fn sizes_fit_the_log() {
    assert_eq!(segment_bytes_for(4 << 20), 256 << 10);
    assert_eq!(segment_bytes_for(512 << 20), 16 << 20);
    assert_eq!(segment_bytes_for(1000 << 20), 16 << 20);
    assert_eq!(segment_bytes_for(1 << 40), 64 << 20);
}

proptest! {
    #[test]
    fn junk_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        let _ = SegmentHeader::decode(&bytes);
    }
}
