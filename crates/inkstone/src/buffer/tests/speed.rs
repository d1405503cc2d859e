//! How fast a hit is. Printed, not judged: `cargo test --release -p inkstone speed -- --nocapture`.

use super::mock::{Bench, page};
use crate::sync::Instant;

fn hits_per_second(bench: &Bench, threads: u64, hits: u64, by_hint: bool) -> f64 {
    let began = Instant::now();
    crate::sync::test_scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let frames: Vec<u32> = (0..1024)
                    .map(|n| bench.pool.optimistic(page(n)).unwrap().frame_index())
                    .collect();
                let mut valid = 0;
                for hit in 0..hits {
                    let number = (hit * 61 + thread * 7) % 1024;
                    let id = page(number as u32);
                    let guard = if by_hint {
                        bench
                            .pool
                            .optimistic_at(frames[number as usize], id)
                            .unwrap()
                    } else {
                        bench.pool.optimistic(id).unwrap()
                    };
                    // SAFETY: the first byte of a resident page.
                    std::hint::black_box(unsafe { guard.page_ptr().read_volatile() });
                    valid += u64::from(guard.validate());
                }
                assert_eq!(valid, hits);
            });
        }
    });
    (threads * hits) as f64 / began.elapsed().as_secs_f64()
}

#[test]
fn optimistic_hits() {
    let hits = if cfg!(debug_assertions) {
        100_000
    } else {
        20_000_000
    };
    let bench = Bench::new(2048, 1024, 8);
    for by_hint in [false, true] {
        for threads in [1, 2] {
            let rate = hits_per_second(&bench, threads, hits, by_hint);
            eprintln!(
                "optimistic hits by {}: {threads} threads, {:.1} million/s, {:.1} ns each",
                if by_hint { "hint" } else { "id" },
                rate / 1e6,
                1e9 / rate * threads as f64
            );
        }
    }
}
