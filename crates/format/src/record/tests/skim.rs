//! The skimmer agrees with the decoder.

use super::*;
use proptest::strategy::ValueTree;
use std::collections::BTreeSet;

/// A record, or an insert of the transaction in a slot, coded against the one before it.
#[derive(Clone, Debug)]
enum Step {
    Plain(Record),
    Insert(PageId, Row, Version),
}

/// Which version an insert names.
#[derive(Clone, Debug)]
enum Version {
    /// The one that its context expects.
    Next,
    This(Option<VersionAddress>),
}

fn step() -> impl Strategy<Value = Step> {
    let page = (0u32..3).prop_map(|page| PageId::new(SpaceId(2), PageNo(page)));
    let version = prop_oneof![
        4 => Just(Version::Next),
        1 => proptest::option::of(logged()).prop_map(Version::This),
    ];
    let insert = (page, row(), version);
    prop_oneof![
        1 => record().prop_map(Step::Plain),
        3 => insert.prop_map(|(page, row, version)| Step::Insert(page, row, version)),
    ]
}

/// A frame of the transaction in a slot, as the engine writes them; or plain records have others.
fn put_steps(slot: u32, is_mixed: bool, steps: &[Step], contexts: &mut [Context]) -> Vec<u8> {
    let mut out = Vec::new();
    for step in steps {
        match step {
            Step::Plain(record) if is_mixed => record.put(&mut out),
            Step::Plain(record) => in_slot(record, slot).put(&mut out),
            Step::Insert(page, row, version) => {
                let context = &mut contexts[slot as usize];
                let address = match version {
                    Version::Next => context.next_version(),
                    Version::This(address) => *address,
                };
                let version = address.map(|address| LoggedVersion {
                    address,
                    previous: VersionAddress(0),
                });
                let trx = TrxRef {
                    slot,
                    first: None,
                    version,
                };
                let (key, value) = (&row.key, &row.value);
                put_insert(&mut out, context, trx, *page, TreeId(1), 7, 0, key, value);
            }
        }
    }
    out
}

fn in_slot(record: &Record, slot: u32) -> Record {
    let mut record = record.clone();
    match &mut record {
        Record::RowsInsert { trx, .. }
        | Record::RowUpdate { trx, .. }
        | Record::RowMark { trx, .. }
        | Record::RowRevive { trx, .. } => trx.slot = slot,
        Record::Commit { trx_slot } | Record::RollbackEnd { trx_slot } => *trx_slot = slot,
        _ => {}
    }
    record
}

/// One record of each kind, with the kind's number.
fn one_of_each() -> Vec<(u8, Vec<u8>)> {
    // As earlier versions wrote it: two entries, each for itself.
    let plain = b"\x23\x00\x4d\x03\x02\x03\x01\x02k1\x00\x03\x01\x02k2\x02\x00\x02\x0242";
    let mut found = vec![(0x23, plain.to_vec())];
    let mut context = Context::default();
    let mut out = Vec::new();
    insert(&mut out, &mut context, 0, b"k1", b"one");
    out.clear();
    insert(&mut out, &mut context, 1, b"k2", b"two");
    found.push((0x40, out));
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    while found.len() < KINDS.len() {
        let record = in_slot(&record().new_tree(&mut runner).unwrap().current(), 0);
        let bytes = one(&record);
        if found.iter().all(|(kind, _)| *kind != bytes[0]) && bytes[0] != 0x93 {
            found.push((bytes[0], bytes));
        }
    }
    found
}

fn one(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.put(&mut bytes);
    bytes
}

/// Whole, cut anywhere, and with each byte changed: behind an insert of the transaction, in the
/// same batch and in the next one, and without one.
#[test]
fn each_kind_is_skimmed_as_decoded() {
    let all = one_of_each();
    let kinds: BTreeSet<u8> = all.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, KINDS.iter().map(|(kind, ..)| *kind).collect());
    let (mut first, mut context) = (Vec::new(), Context::default());
    insert(&mut first, &mut context, 0, b"k1", b"one");
    for (_, bytes) in &all {
        let mut spoilt: Vec<Vec<u8>> = (0..=bytes.len()).map(|to| bytes[..to].to_vec()).collect();
        for at in 0..bytes.len() {
            for byte in [0, 1, 3, 0x14, 0x47, 0x7f, 0x80, 0xc0, 0xff, bytes[at] ^ 1] {
                let mut bytes = bytes.clone();
                bytes[at] = byte;
                spoilt.push(bytes);
            }
        }
        for bytes in &spoilt {
            check_against_decoder(&[&first, bytes, bytes], 1);
            check_against_decoder(&[&first, bytes, bytes], 3);
            check_against_decoder(&[bytes, bytes], 1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn skimming_gives_what_decoding_gives(
        frames in proptest::collection::vec(
            (0u32..3, proptest::bool::weighted(0.02), proptest::collection::vec(step(), 1..4)),
            1..30,
        ),
        spoilt in proptest::option::of((any::<u16>(), any::<u16>(), any::<u8>())),
        batch in 1usize..9,
    ) {
        let mut contexts = vec![Context::default(); 3];
        let put = |(slot, is_mixed, steps): &(u32, bool, Vec<Step>)| {
            put_steps(*slot, *is_mixed, steps, &mut contexts)
        };
        let mut payloads: Vec<Vec<u8>> = frames.iter().map(put).collect();
        if let Some((frame, at, byte)) = spoilt {
            let frames = payloads.len();
            let payload = &mut payloads[usize::from(frame) % frames];
            let at = usize::from(at) % payload.len();
            payload[at] = byte;
        }
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        check_against_decoder(&payloads, batch);
    }
}
