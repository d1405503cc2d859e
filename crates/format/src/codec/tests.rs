use super::*;
use proptest::prelude::*;

fn packed(value: &[u8], reference: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    pack(&mut out, value, reference);
    let mut back = Vec::new();
    unpack(&mut Reader::new(&out), value.len(), reference, &mut back).unwrap();
    assert_eq!(back, value);
    out
}

#[test]
fn padding_is_a_run_and_a_repeat_is_a_copy() {
    let row = vec![b' '; 1785];
    assert!(packed(&row, &[]).len() <= 4);
    assert!(packed(&row, &row).len() <= 3);
    assert_eq!(packed(&8u64.to_be_bytes(), &7u64.to_be_bytes()).len(), 3);
}

#[test]
fn random_bytes_cost_a_few_bytes_more() {
    let value: Vec<u8> = (0..1785u32)
        .map(|i| (i.wrapping_mul(2654435761) >> 13) as u8)
        .collect();
    assert!(packed(&value, &[]).len() < value.len() + 40);
}

/// What [`pack`] would do without [`sure_literals`], which must change nothing but the time: every
/// byte is looked at.
fn tokens_byte_by_byte(value: &[u8], reference: &[u8]) -> Vec<(u8, usize)> {
    let (mut tokens, mut at, mut literal_from) = (Vec::new(), 0, 0);
    while at < value.len() {
        let alike = |(n, b): (usize, &u8)| reference.get(at + n) == Some(b);
        let copy = value[at..]
            .iter()
            .enumerate()
            .take_while(|&(n, b)| alike((n, b)))
            .count();
        let run = value[at..].iter().take_while(|&&b| b == value[at]).count();
        let best = copy.max(run);
        let ends = best == value.len() - at;
        if best >= WORTH || (ends && copy == best && literal_from == at) {
            if literal_from < at {
                tokens.push((LITERAL, at - literal_from));
            }
            tokens.push((if copy >= run { COPY } else { RUN }, best));
            at += best;
            literal_from = at;
        } else {
            at += if ends { best } else { 1 };
        }
    }
    if literal_from < at {
        tokens.push((LITERAL, at - literal_from));
    }
    tokens
}

fn tokens(packed: &[u8], length: usize) -> Vec<(u8, usize)> {
    let (mut r, mut done, mut tokens) = (Reader::new(packed), 0, Vec::new());
    while done < length {
        let token = r.u8().unwrap();
        let mut count = usize::from(token & 63);
        if count == LENGTH_EXTENDED {
            count += r.varint_max(1 << 31, "token length").unwrap() as usize;
        }
        match token >> 6 {
            LITERAL => drop(r.take(count).unwrap()),
            RUN => drop(r.u8().unwrap()),
            _ => {}
        }
        tokens.push((token >> 6, count));
        done += count;
    }
    tokens
}

proptest! {
    #[test]
    fn literals_are_skipped_without_missing_a_run_or_a_copy(
        value in proptest::collection::vec(prop_oneof![0u8..2, any::<u8>()], 0..300),
        changed in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..20),
        length in 0usize..300,
    ) {
        let mut reference = value.clone();
        for (at, byte) in changed {
            if !reference.is_empty() {
                let at = at.index(reference.len());
                reference[at] = byte;
            }
        }
        reference.truncate(length);
        for reference in [&reference[..], &[]] {
            let packed = packed(&value, reference);
            prop_assert_eq!(tokens(&packed, value.len()), tokens_byte_by_byte(&value, reference));
        }
    }

    #[test]
    fn pack_round_trips(value in proptest::collection::vec(0u8..3, 0..200), reference in proptest::collection::vec(0u8..3, 0..200)) {
        packed(&value, &reference);
    }

    #[test]
    fn shared_keys_round_trip(a in proptest::collection::vec(0u8..2, 0..40), b in proptest::collection::vec(0u8..2, 0..40)) {
        let mut out = Vec::new();
        put_shared_key(&mut out, &b, &a);
        let mut key = a.clone();
        get_shared_key(&mut Reader::new(&out), &mut key).unwrap();
        prop_assert_eq!(key, b);
    }

    #[test]
    fn compare_agrees_with_the_library(a in proptest::collection::vec(0u8..3, 0..20), b in proptest::collection::vec(0u8..3, 0..20)) {
        prop_assert_eq!(compare(&a, &b), a.cmp(&b));
        prop_assert_eq!(starts_with(&a, &b), a.starts_with(&b));
    }

    #[test]
    fn successor_agrees_with_increment(a in proptest::collection::vec(any::<u8>(), 0..4)) {
        let mut next = a.clone();
        if increment(&mut next) {
            prop_assert!(is_successor(&next, &a));
        }
        prop_assert!(!is_successor(&a, &a));
    }

    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60), length in 0usize..300) {
        let mut out = Vec::new();
        let _ = unpack(&mut Reader::new(&bytes), length, b"reference", &mut out);
        let mut key = b"previous".to_vec();
        let _ = get_shared_key(&mut Reader::new(&bytes), &mut key);
        let _ = Reader::new(&bytes).varint();
    }
}
