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

proptest! {
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
