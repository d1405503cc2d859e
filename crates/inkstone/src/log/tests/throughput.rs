//! How fast the log is: `cargo test --release -p inkstone throughput -- --ignored --nocapture`.

use super::*;
use crate::sync::Instant;

fn appends_a_second(threads: u64, appends: u64) -> f64 {
    let vfs = MemoryVfs::new();
    let (log, ..) = open(LogParams {
        segment_bytes: 64 << 20,
        start_lsn: Lsn(64 << 20),
        ..params_with(&vfs, |options| {
            options.buffer_bytes = 16 << 20;
            options.write_through = true;
        })
    });
    let began = Instant::now();
    crate::sync::test_scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..appends {
                    log.wait_for_space().unwrap();
                    log.append(&[5; 16], Claim::WhenDue, |_, _| {}).unwrap();
                }
            });
        }
    });
    (threads * appends) as f64 / began.elapsed().as_secs_f64()
}

#[test]
#[ignore = "a measurement"]
fn throughput() {
    for threads in [1, 2] {
        for _ in 0..3 {
            let rate = appends_a_second(threads, 4_000_000) / 1e6;
            eprintln!("{threads} threads: {rate:.1} million appends/s of 16 bytes");
        }
    }
}
