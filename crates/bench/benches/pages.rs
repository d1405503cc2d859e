//! Hot paths of the format: checksums, search in a page, insertion into a leaf, the split of a full
//! leaf, the head of a log frame, values packed for the log.
//! `cargo bench -p inkstone-bench --bench pages`.

#![expect(
    missing_docs,
    reason = "`criterion_group!` makes a function without any"
)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use inkstone_format::codec::pack;
use inkstone_format::frame::FrameHead;
use inkstone_format::header::{check_page, stamp_checksum};
use inkstone_format::tree_page::{TreePage, TreePageInit, TreePageMut};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId, TreeId, VersionAddress};
use std::hint::black_box;
use std::time::Duration;

const PAGE: usize = 16 << 10;
const ID: PageId = PageId {
    space: SpaceId(1),
    page: PageNo(3),
};
/// Bytes of a row's value.
const VALUE: [u8; 120] = [7; 120];

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// A leaf with rows of even keys: every odd one belongs between two of them.
fn leaf(rows: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    let mut page = TreePageMut(&mut bytes);
    page.init(
        ID,
        &TreePageInit {
            tree: TreeId(1),
            level: 0,
            low: Vec::new(),
            high: None,
        },
    );
    for n in 0..rows {
        let inserted = page.insert(n as usize, 0, None, &key(2 * n), &VALUE, &|_| false);
        inserted.expect("the rows fit");
    }
    bytes
}

fn checksum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checksum");
    group.throughput(Throughput::Bytes(PAGE as u64));
    let mut page = leaf(100);
    group.bench_function("stamp 16 KiB", |b| {
        b.iter(|| stamp_checksum(black_box(&mut page)));
    });
    stamp_checksum(&mut page);
    group.bench_function("check 16 KiB", |b| {
        b.iter(|| check_page(black_box(&page), ID).expect("right"));
    });
    group.finish();
}

fn page_search(criterion: &mut Criterion) {
    let page = leaf(110);
    let mut n = 0u64;
    criterion.bench_function("page search, 110 rows", |b| {
        b.iter(|| {
            n = n
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            TreePage(black_box(&page)).search(&key((n >> 33) % 220))
        });
    });
}

fn leaf_insert(criterion: &mut Criterion) {
    let half = leaf(55);
    criterion.bench_function("leaf insert in the middle of 55 rows", |b| {
        b.iter_batched_ref(
            || half.clone(),
            |bytes| {
                let slot = TreePage(bytes).search(&key(55)).expect_err("an odd key");
                TreePageMut(bytes).insert(slot, 0, None, &key(55), &VALUE, &|_| false)
            },
            BatchSize::SmallInput,
        );
    });
}

fn frame_head(criterion: &mut Criterion) {
    let payload = [7; 280];
    criterion.bench_function("log frame head, 280 bytes", |b| {
        b.iter(|| {
            let mut head = FrameHead::new(black_box(&payload), None);
            head.seal(Lsn(black_box(1 << 30)), 3).len()
        });
    });
}

/// Bytes of which no two neighbours are related.
fn random(len: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn packing(criterion: &mut Criterion) {
    let (value, other) = (random(1785, 1), random(1785, 2));
    let (text, mut updated) = (random(120, 3), random(120, 3));
    updated[40..60].copy_from_slice(&other[..20]);
    let cases: [(&str, &[u8], &[u8]); 4] = [
        ("random", &value, &other),
        ("blanks", &[b' '; 1785], &[]),
        ("120 bytes, 20 changed", &updated, &text),
        ("a counter", &key(0x1234), &key(0x1233)),
    ];
    let mut group = criterion.benchmark_group("pack");
    for (name, value, reference) in cases {
        let mut out = Vec::new();
        group.throughput(Throughput::Bytes(value.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear();
                pack(&mut out, black_box(value), black_box(reference));
                out.len()
            });
        });
    }
    group.finish();
}

/// The left page of a split at the end of a full leaf of short rows: the new fence shortens all
/// keys.
fn split(criterion: &mut Criterion) {
    let mut full = vec![0; PAGE];
    let mut page = TreePageMut(&mut full);
    let init = TreePageInit {
        tree: TreeId(1),
        level: 0,
        low: key(1 << 20).to_vec(),
        high: None,
    };
    page.init(ID, &init);
    let mut rows = 0;
    while page.read().free() > 40 {
        let (n, version) = (rows as u64 + (1 << 20), Some(VersionAddress(1 << 40)));
        let inserted = page.insert(rows, 0, version, &key(n), &key(n), &|_| true);
        inserted.expect("it fits");
        rows += 1;
    }
    let high = key(rows as u64 + (1 << 20));
    criterion.bench_function("set high fence of a full leaf", |b| {
        b.iter_batched_ref(
            || full.clone(),
            |bytes| TreePageMut(bytes).set_high(rows, Some(&high), &|_| true),
            BatchSize::SmallInput,
        );
    });
}

criterion_group! {
    name = pages;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = checksum, page_search, leaf_insert, split, frame_head, packing
}
criterion_main!(pages);
