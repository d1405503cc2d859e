//! Redo gives exactly the pages and transactions of the model, however it is cut up.

use super::model::{Model, Random};
use super::rig::{How, MemoryDisk, pool, run};
use crate::buffer::BufferPool;
use crate::recovery::{OpenTransaction, RedoOutcome};
use inkstone_format::{Lsn, TrxId};

pub fn workload(seed: u64, steps: usize) -> Model {
    let mut model = Model::new(seed);
    for step in 0..steps {
        model.step();
        if step == steps / 2 {
            model.inner_node();
        }
    }
    model.tear();
    model
}

pub fn check_pages(model: &Model, pool: &BufferPool, what: &str) {
    for (&id, page) in &model.pages {
        let found = pool.shared(id).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(found[4..] == page.bytes[4..], "{what}: page {id} differs");
    }
}

fn check_transactions(model: &Model, outcome: &RedoOutcome, what: &str) {
    let mut expected: Vec<_> = model
        .open
        .iter()
        .map(|(&slot, open)| OpenTransaction {
            slot,
            id: open.id,
            first_lsn: open.first_lsn,
            undo: open.undo.iter().map(|(_, entry)| entry.clone()).collect(),
            moved: None,
            xid: open.xid.clone(),
        })
        .collect();
    expected.sort_by_key(|open| open.id);
    let (prepared, losers): (Vec<_>, Vec<_>) =
        expected.into_iter().partition(|open| open.xid.is_some());
    assert_eq!(outcome.losers, losers, "{what}");
    assert_eq!(outcome.prepared, prepared, "{what}");
    assert!(outcome.trx_id_max <= TrxId(model.next_id - 1));
}

/// No change that the disk lacks lies before the oldest dirty LSN.
pub fn check_oldest(
    model: &Model,
    disk: &MemoryDisk,
    pool: &BufferPool,
    checkpoint: Lsn,
    what: &str,
) {
    let oldest = pool.oldest_dirty_lsn();
    for (&id, page) in &model.pages {
        let lsn = disk.lsn(id);
        // A torn page lacks what is before the checkpoint too, which the log rebuilds without.
        let lacks = |(start, end): &&(Lsn, Lsn)| *end > lsn && *start >= checkpoint;
        let Some(&(bound, _)) = page.changes.iter().find(lacks) else {
            continue;
        };
        let oldest = oldest.unwrap_or_else(|| panic!("{what}: page {id} is not dirty"));
        assert!(
            oldest <= bound,
            "{what}: page {id}, change {bound}, oldest {oldest}"
        );
        assert!(oldest >= checkpoint, "{what}");
    }
}

const WAYS: [(usize, usize, usize); 5] = [
    (1, usize::MAX, 64),
    (4, usize::MAX, 64),
    (1, 1, 64),
    (4, 4000, 16),
    (2, 400, 16),
];

#[test]
fn redo_gives_the_model() {
    for seed in 1..60 {
        let model = workload(seed, 60 + 5 * seed as usize);
        let (checkpoint, scan_start) = model.checkpoint();
        for (threads, budget, frames) in WAYS {
            let what = format!("seed {seed}, {threads} threads, {budget} bytes, {frames} frames");
            let disk = model.disk.snapshot();
            let how = How {
                checkpoint,
                threads,
                budget,
            };
            for turn in 0..2 {
                // The second turn finds everything on disk, and must change nothing.
                let what = format!("{what}, turn {turn}");
                let pool = pool(&disk, frames);
                let mut source = model.log.from(scan_start);
                let outcome = run(&mut source, &disk, &pool, how)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!((outcome.end, outcome.epoch), (model.log.end, 7));
                if frames == 64 && turn == 0 {
                    check_oldest(&model, &disk, &pool, checkpoint, &what);
                }
                check_pages(&model, &pool, &what);
                check_transactions(&model, &outcome, &what);
                pool.flush_all().unwrap();
            }
        }
    }
}

#[test]
fn redo_may_be_interrupted_anywhere() {
    for seed in 100..130 {
        let model = workload(seed, 200);
        let (checkpoint, scan_start) = model.checkpoint();
        let mut random = Random::new(seed);
        let disk = model.disk.snapshot();
        for _ in 0..5 {
            let how = How {
                checkpoint,
                threads: 1 + random.below(3),
                budget: 1 + random.below(6000),
            };
            let pool = pool(&disk, 16);
            let mut source = model.log.from(scan_start);
            source.fail_at = random.below(model.log.frames.len());
            let _ = run(&mut source, &disk, &pool, how);
            if random.one_in(2) {
                pool.flush_all().unwrap();
            }
        }
        let pool = pool(&disk, 16);
        let mut source = model.log.from(scan_start);
        let outcome = run(&mut source, &disk, &pool, How::from(checkpoint)).unwrap();
        check_pages(&model, &pool, &format!("seed {seed}"));
        check_transactions(&model, &outcome, &format!("seed {seed}"));
    }
}

#[test]
fn an_earlier_scan_start_changes_nothing() {
    for seed in 200..230 {
        let model = workload(seed, 150);
        let (checkpoint, scan_start) = model.checkpoint();
        let mut random = Random::new(seed);
        let earlier: Vec<_> = model.log.frames.iter().map(|frame| frame.0).collect();
        let earlier: Vec<_> = earlier
            .into_iter()
            .filter(|lsn| *lsn <= scan_start)
            .collect();
        if earlier.is_empty() {
            continue;
        }
        let from = earlier[random.below(earlier.len())];
        let disk = model.disk.snapshot();
        let pool = pool(&disk, 64);
        let outcome = run(
            &mut model.log.from(from),
            &disk,
            &pool,
            How::from(checkpoint),
        );
        check_transactions(&model, &outcome.unwrap(), &format!("seed {seed}"));
        check_pages(&model, &pool, &format!("seed {seed}"));
    }
}
