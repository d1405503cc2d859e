use super::*;
use crate::PageId;
use crate::SpaceId;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn page(low: &[u8], high: Option<&[u8]>, level: u8) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    TreePageMut(&mut bytes).init(
        PageId::new(SpaceId(1), PageNo(3)),
        &TreePageInit {
            tree: TreeId(0),
            level,
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
        },
    );
    bytes
}

#[test]
fn prefix_is_taken_from_the_fences() {
    let mut bytes = page(b"customer-1", Some(b"customer-9"), 0);
    let mut p = TreePageMut(&mut bytes);
    p.insert(0, 0, None, b"customer-42", b"v", NOTHING_LIVE)
        .unwrap();
    assert_eq!(p.read().prefix(), b"customer-");
    assert_eq!(p.read().cell(0).suffix, b"42");
    assert_eq!(p.read().key(0), b"customer-42");
    assert_eq!(p.read().search(b"customer-42"), Ok(0));
    assert_eq!(p.read().search(b"customer-5"), Err(1));
    p.set_high(1, Some(b"customer-43"), NOTHING_LIVE).unwrap();
    assert_eq!(p.read().prefix(), b"customer-");
    p.set_high(1, None, NOTHING_LIVE).unwrap();
    assert_eq!(p.read().key(0), b"customer-42");
    p.read().check().unwrap();
}

#[test]
fn inner_nodes_lead_to_the_child_that_covers_a_key() {
    let mut bytes = page(b"", None, 1);
    let mut p = TreePageMut(&mut bytes);
    for (i, key) in [&b""[..], b"g", b"p"].into_iter().enumerate() {
        p.insert_child(i, key, PageNo(10 + i as u32)).unwrap();
    }
    let p = p.read();
    p.check().unwrap();
    let child = |key: &[u8]| p.child(p.child_slot(key)).0;
    assert_eq!(
        [
            child(b""),
            child(b"f"),
            child(b"g"),
            child(b"o"),
            child(b"zz")
        ],
        [10, 10, 11, 11, 12]
    );
    assert_eq!(p.child_slot_before(b"g"), 0);
    assert_eq!(p.child_slot_before(b"ga"), 1);
    assert_eq!(p.child_slot_before(b"p"), 1);
}

#[test]
fn dead_version_addresses_make_room() {
    let mut bytes = page(b"", None, 0);
    let mut p = TreePageMut(&mut bytes);
    let mut n = 0u32;
    while p
        .insert(
            n as usize,
            0,
            Some(VersionAddress(7)),
            &n.to_be_bytes(),
            b"value",
            &|_| true,
        )
        .is_ok()
    {
        n += 1;
    }
    p.insert(
        n as usize,
        0,
        Some(VersionAddress(8)),
        &n.to_be_bytes(),
        b"value",
        &|v| v.0 == 8,
    )
    .unwrap();
    assert!(p.read().cell(0).version.is_none());
    p.read().check().unwrap();
}

proptest! {
    #[test]
    fn behaves_as_a_sorted_map(operations in proptest::collection::vec(
        (0u8..5, proptest::collection::vec(0u8..4, 0..6), 0usize..700), 1..200
    )) {
        let mut bytes = page(b"", None, 0);
        let mut model = BTreeMap::<Vec<u8>, (u8, Option<VersionAddress>, Vec<u8>)>::new();
        for (n, (op, key, len)) in operations.into_iter().enumerate() {
            let mut p = TreePageMut(&mut bytes);
            let value = vec![n as u8; len];
            let version = (n % 3 == 0).then_some(VersionAddress(n as u64 + 1));
            match (op, p.read().search(&key)) {
                (0..=1, Err(slot))
                    if p.insert(slot, 0, version, &key, &value, &|_| true).is_ok() => {
                        model.insert(key, (0, version, value));
                    }
                (0..=2, Ok(slot))
                    if p.replace(slot, CELL_DELETED, version, &value, &|_| true).is_ok() => {
                        model.insert(key, (CELL_DELETED, version, value));
                    }
                (3, Ok(slot)) => {
                    p.remove(slot, 1);
                    model.remove(&key);
                }
                (4, _) => p.compact(&|_| true),
                _ => {}
            }
            p.read().check().unwrap();
        }
        let p = TreePage(&bytes);
        prop_assert_eq!(p.count(), model.len());
        for (slot, (key, (flags, version, value))) in model.iter().enumerate() {
            let cell = p.cell(slot);
            prop_assert_eq!(&p.key(slot), key);
            prop_assert_eq!(cell.flags & !CELL_VERSIONED, *flags);
            prop_assert_eq!(cell.version, *version);
            prop_assert_eq!(cell.value, &value[..]);
            prop_assert_eq!(p.search(key), Ok(slot));
        }
    }

    #[test]
    fn check_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 4096), seed in any::<bool>()) {
        if seed {
            // Mostly valid: only a few bytes of the header and slots are random.
            let random = bytes.clone();
            bytes = page(b"", None, 0);
            TreePageMut(&mut bytes).insert(0, 0, None, b"key", b"value", NOTHING_LIVE).unwrap();
            for i in 0..6 {
                bytes[24 + usize::from(random[i]) % 40] = random[i + 10];
            }
        }
        let _ = TreePage(&bytes).check();
    }
}
