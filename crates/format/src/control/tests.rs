use super::*;
use proptest::prelude::*;

pub(crate) fn sample(sequence: u64) -> Control {
    Control {
        page_size: 16384,
        uuid: *b"0123456789abcdef",
        sequence,
        epoch: 3,
        checkpoint_lsn: Lsn(5000),
        scan_start_lsn: Lsn(4000),
        scan_start_epoch: 2,
        known_durable_lsn: Lsn(6000),
        log_segment_bytes: 64 << 20,
        next_trx_id: TrxId(77),
        next_space_id: SpaceId(9),
        version_epoch: 4,
        next_commit: 123,
        clean_shutdown: true,
    }
}

fn reseal(b: &mut [u8; CONTROL_COPY_LEN]) {
    let crc = crc32c::crc32c(&b[..CRC]);
    put_u32(b, CRC, crc);
}

#[test]
fn round_trip_and_documented_offsets() {
    let b = sample(8).encode();
    assert_eq!(Control::parse(&b).unwrap(), sample(8));
    assert_eq!(&b[..8], b"INKSTCTL");
    assert_eq!(b[32..40], 8u64.to_le_bytes());
    assert_eq!(b[96..100], 9u32.to_le_bytes());
    assert_eq!(b[104], 1);
    assert_eq!(b[112..120], 123u64.to_le_bytes());
    assert!(b[120..4092].iter().all(|&x| x == 0));
}

#[test]
fn the_higher_sequence_wins_and_a_torn_copy_never() {
    let (old, new) = (sample(8).encode(), sample(9).encode());
    assert_eq!(Control::choose([&old, &new]).unwrap(), (sample(9), 1));
    assert_eq!(Control::choose([&new, &old]).unwrap(), (sample(9), 0));
    for cut in [1, 33, 512, 2048, 4095] {
        let mut torn = sample(7).encode();
        torn[..cut].copy_from_slice(&new[..cut]);
        let (control, at) = Control::choose([&old, &torn]).unwrap();
        assert_eq!((control, at), (sample(8), 0), "cut at {cut}");
    }
    assert_eq!(Control::choose([&[0; 4096], &old]).unwrap(), (sample(8), 1));
    let both = Control::choose([&[0; 4096], &[1; 4096]]).unwrap_err();
    assert!(both.to_string().contains("both copies"), "{both}");
}

#[test]
fn newer_formats_and_bad_fields_are_told_apart() {
    let mut newer = sample(1).encode();
    put_u32(&mut newer, VERSION, 2);
    assert!(matches!(
        Control::parse(&newer),
        Err(ControlError::Corrupt(_))
    ));
    reseal(&mut newer);
    assert_eq!(
        Control::parse(&newer),
        Err(ControlError::Newer { found: 2 })
    );
    let old = sample(50).encode();
    assert_eq!(
        Control::choose([&old, &newer]),
        Err(ControlError::Newer { found: 2 })
    );
    for (at, byte) in [
        (105, 1),
        (111, 1),
        (120, 1),
        (4091, 1),
        (104, 2),
        (13, 0x41),
        (62, 1),
    ] {
        let mut b = sample(1).encode();
        b[at] = byte;
        reseal(&mut b);
        let error = Control::parse(&b).unwrap_err();
        assert!(matches!(error, ControlError::Corrupt(_)), "byte {at}");
    }
    for size in [0, 1, 4095, 3 << 20, u64::MAX] {
        let mut b = sample(1).encode();
        put_u64(&mut b, LOG_SEGMENT_BYTES, size);
        reseal(&mut b);
        let error = Control::parse(&b).unwrap_err().to_string();
        assert!(error.contains(&format!("of {size} bytes")), "{error}");
    }
    let mut zero = sample(1).encode();
    put_u32(&mut zero, VERSION, 0);
    reseal(&mut zero);
    assert!(
        Control::parse(&zero)
            .unwrap_err()
            .to_string()
            .contains("never was")
    );
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..8192), sealed: bool
    ) {
        let mut b = [0; CONTROL_COPY_LEN];
        let n = bytes.len().min(CONTROL_COPY_LEN);
        b[..n].copy_from_slice(&bytes[..n]);
        if sealed {
            b[..8].copy_from_slice(&CONTROL_MAGIC);
            put_u32(&mut b, VERSION, 1);
            reseal(&mut b);
        }
        let _ = Control::parse(&b);
        let _ = Control::parse(&bytes);
        let _ = Control::choose([&b, &bytes]);
    }

    #[test]
    fn every_flipped_bit_is_noticed(at in 0..CONTROL_COPY_LEN, bit in 0u32..8) {
        let mut b = sample(1).encode();
        b[at] ^= 1u8 << bit;
        prop_assert!(Control::parse(&b).is_err());
    }
}
