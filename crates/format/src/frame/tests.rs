use super::*;
use proptest::prelude::*;

fn whole(bytes: &[u8], start: u64, epoch: u64) -> RawFrame<'_> {
    match parse(bytes, Lsn(start), epoch) {
        Parsed::Frame(frame) => frame,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_bytes_are_as_documented() {
    let mut out = Vec::new();
    encode(b"abc", Some(Lsn(0x1122)), Lsn(0x2000), 7, &mut out);
    assert_eq!(out.len(), 1 + 1 + 4 + 8 + 3);
    assert_eq!(out[0] & 0xc0, 0xc0);
    assert_eq!(out[1], 3);
    assert_eq!(&out[6..14], &[0x22, 0x11, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&out[14..], b"abc");
    let mut covered = vec![3u8];
    covered.extend_from_slice(&out[6..]);
    let seed = u32::from_le_bytes(out[2..6].try_into().unwrap()) ^ crc32c::crc32c(&covered);
    assert_eq!(seed, mix(Lsn(0x2000), 7) as u32);
}

#[test]
fn other_places_and_epochs_do_not_pass() {
    let mut out = Vec::new();
    encode(&[5; 100], None, Lsn(4096), 3, &mut out);
    let mut passed_tag = 0;
    for lsn in 0..20_000u64 {
        for epoch in 0..6 {
            match parse(&out, Lsn(lsn), epoch) {
                Parsed::Frame(_) => assert_eq!((lsn, epoch), (4096, 3)),
                Parsed::Not(Defect::Checksum { .. }) => passed_tag += 1,
                Parsed::Not(Defect::Tag { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    // One in 64 of 120,000.
    assert!((1500..2300).contains(&passed_tag), "{passed_tag}");
}

#[test]
fn a_claim_beyond_the_frame_is_refused() {
    let mut out = Vec::new();
    encode(b"x", Some(Lsn(101)), Lsn(100), 1, &mut out);
    assert_eq!(
        parse(&out, Lsn(100), 1),
        Parsed::Not(Defect::Claim { claim: Lsn(101) })
    );
}

#[test]
fn sixteen_mebibytes_of_junk_are_searched_quickly() {
    let mut junk = vec![0u8; 16 << 20];
    let mut x = 1u64;
    for word in junk.chunks_exact_mut(8) {
        x = mix(Lsn(x), 5);
        word.copy_from_slice(&x.to_le_bytes());
    }
    let mut frame = Vec::new();
    let at = junk.len() - 1000;
    let base = 1u64 << 30;
    encode(
        b"proof",
        Some(Lsn(base + 7)),
        Lsn(base + at as u64),
        9,
        &mut frame,
    );
    junk[at..at + frame.len()].copy_from_slice(&frame);
    let began = std::time::Instant::now();
    let mut found = find_claims(&junk, Lsn(base), 0, Lsn(base)).expect("found");
    if found.offset == at - 1 {
        // The byte before may look like a tag, and the tag like a length byte.
        found = find_claims(&junk, Lsn(base), at, Lsn(base)).expect("found");
    }
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    assert_eq!(found.offset, at);
    assert_eq!(found.claim, Lsn(base + 7));
    assert_eq!(found.frame_len, frame.len());
    assert_eq!(find_claims(&junk, Lsn(base), at + 1, Lsn(base)), None);
    assert_eq!(find_claims(&junk, Lsn(base), 0, Lsn(base + 7)), None);
}

proptest! {
    #[test]
    fn frames_round_trip(
        payload in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..300),
            (120usize..140, any::<u8>()).prop_map(|(n, b)| vec![b; n]),
            (16_380usize..16_390, any::<u8>()).prop_map(|(n, b)| vec![b; n]),
            (FRAME_PAYLOAD_MAX - 1..=FRAME_PAYLOAD_MAX).prop_map(|n| vec![1; n]),
        ],
        start in 1u64..1 << 60,
        epoch: u64,
        claimed in proptest::option::of(0u64..1 << 60),
        cut: proptest::sample::Index,
        flip: proptest::sample::Index,
        bit in 0u8..8,
    ) {
        let claim = claimed.map(|c| Lsn(c.min(start)));
        let mut out = Vec::new();
        encode(&payload, claim, Lsn(start), epoch, &mut out);
        prop_assert!(out.len() <= FRAME_MAX);
        prop_assert_eq!(frame_len(out[..4].try_into().unwrap()), Some(out.len()));
        let frame = whole(&out, start, epoch);
        prop_assert_eq!(frame, RawFrame { len: out.len(), claim, payload: &payload });
        let part = &out[..cut.index(out.len())];
        match parse(part, Lsn(start), epoch) {
            Parsed::Short(needed) => prop_assert!(needed > part.len() && needed <= out.len()),
            other => prop_assert!(false, "{:?}", other),
        }
        let at = flip.index(out.len());
        out[at] ^= 1 << bit;
        out.extend_from_slice(&[0; 16]);
        prop_assert!(!matches!(parse(&out, Lsn(start), epoch), Parsed::Frame(_)), "flip at {}", at);
    }

    #[test]
    fn junk_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), start: u64, epoch: u64) {
        let _ = parse(&bytes, Lsn(start), epoch);
        for at in 0..bytes.len() {
            let _ = find_claims(&bytes, Lsn(start), at, Lsn(0));
        }
        // With a tag that passes, so that the rest is reached.
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = tag_of(mix(Lsn(start), epoch), *first & TAG_CLAIM != 0);
        }
        let _ = parse(&bytes, Lsn(start), epoch);
    }
}
