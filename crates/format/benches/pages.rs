//! Hot paths of the format: checksums, search in a page, insertion into a leaf, the head of a log
//! frame. `cargo bench -p inkstone-format`.

#![expect(
    missing_docs,
    reason = "`criterion_group!` makes a function without any"
)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use inkstone_format::frame::FrameHead;
use inkstone_format::header::{check_page, stamp_checksum};
use inkstone_format::tree_page::{TreePage, TreePageInit, TreePageMut};
use inkstone_format::{Lsn, PageId, PageNo, SpaceId, TreeId};
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
        b.iter(|| stamp_checksum(black_box(&mut page)))
    });
    stamp_checksum(&mut page);
    group.bench_function("check 16 KiB", |b| {
        b.iter(|| check_page(black_box(&page), ID).expect("right"))
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
        })
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
        )
    });
}

fn frame_head(criterion: &mut Criterion) {
    let payload = [7; 280];
    criterion.bench_function("log frame head, 280 bytes", |b| {
        b.iter(|| {
            let mut head = FrameHead::new(black_box(&payload), None);
            head.seal(Lsn(black_box(1 << 30)), 3).len()
        })
    });
}

criterion_group! {
    name = pages;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = checksum, page_search, leaf_insert, frame_head
}
criterion_main!(pages);
