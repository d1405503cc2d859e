//! How fast redo is, in memory:
//! `cargo test --release -p inkstone redo_speed -- --ignored --nocapture`.

use super::rig::{How, LogBuilder, MemoryDisk, PAGE, SPACE, leaf_init, page, pool, run};
use inkstone_format::record::{Context, TrxRef, put_insert};
use inkstone_format::{Lsn, TreeId, TrxId};

#[test]
#[ignore = "a measurement"]
fn redo_speed() {
    const PAGES: u32 = 8000;
    const ROWS: u16 = 60;
    let (mut log, mut context) = (LogBuilder::new(), Context::default());
    for number in 0..PAGES {
        log.records(&[leaf_init(page(number))]);
        for slot in 0..ROWS {
            let row = u64::from(number) << 16 | u64::from(slot);
            let first = (row == 0).then_some(TrxId(1));
            let trx = TrxRef {
                slot: 0,
                first,
                version: None,
            };
            let (key, value) = (row.to_be_bytes(), row.wrapping_mul(77).to_le_bytes());
            let mut payload = Vec::new();
            let value = [value; 4].concat();
            put_insert(
                &mut payload,
                &mut context,
                trx,
                page(number),
                TreeId(0),
                slot,
                0,
                &key,
                &value,
            );
            log.append(payload);
        }
    }
    for (threads, budget) in [(1, 1 << 30), (2, 1 << 30), (2, 16 << 20)] {
        let disk = MemoryDisk::default();
        disk.state().files.insert(SPACE, Vec::new());
        let pool = pool(&disk, PAGES as usize + 2000);
        let how = How {
            checkpoint: Lsn(5000),
            threads,
            budget,
        };
        let outcome = run(&mut log.from(Lsn(5000)), &disk, &pool, how).unwrap();
        let report = outcome.report;
        eprintln!(
            "{threads} threads, {budget} bytes: {} records, {} MB of log, {} batches, scan {} ms, apply {} ms ({PAGE} byte pages)",
            report.records,
            report.bytes_scanned >> 20,
            report.batches,
            report.scan_ms,
            report.apply_ms
        );
    }
}
