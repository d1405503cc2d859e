//! Several threads take the log apart as one does, and as the decoder does.

use super::model::{Model, Random};
use super::rig::{How, LogBuilder, MemorySource, SPACE, leaf_init, page, pool, run};
use crate::recovery::pipeline::{Batch, Outcome, Pipeline};
use crate::recovery::{FrameSource, RecoveryReport, RedoOutcome};
use inkstone_format::record::{
    Context, DecodeError, Decoder, Record, SkimError, Skimmer, TrxRef, decode_one, put_insert,
};
use inkstone_format::{Lsn, TreeId, TrxId};

type Taken = (Lsn, Lsn, Result<Vec<Record>, DecodeError>);

/// What the decoder makes of a log, and how it ends.
fn decoded(log: &mut MemorySource) -> (Vec<Taken>, Option<String>) {
    let (mut decoder, mut taken) = (Decoder::default(), Vec::new());
    loop {
        match log.next() {
            Ok(Some(frame)) => {
                let records = decoder.decode(frame.payload);
                taken.push((frame.start, frame.end, records));
            }
            Ok(None) => return (taken, None),
            Err(error) => return (taken, Some(error.to_string())),
        }
    }
}

/// What the pipeline makes of it, begun anew every so many batches.
fn piped(log: &mut MemorySource, threads: usize, batches: usize) -> (Vec<Taken>, Option<String>) {
    let pipeline = Pipeline::new(threads, 0);
    let (mut whole, mut taken) = (Skimmer::whole(), Vec::new());
    loop {
        let end = pipeline.run(log, |feed| {
            for _ in 0..batches {
                match feed.next() {
                    Ok(Some(mut batch)) => {
                        take(&mut batch, &mut whole, &mut taken);
                        feed.give_back(batch);
                    }
                    Ok(None) => return Some(None),
                    Err(error) => return Some(Some(error.to_string())),
                }
            }
            None
        });
        if let Some(end) = end {
            return (taken, end);
        }
    }
}

fn take(batch: &mut Batch, whole: &mut Skimmer, taken: &mut Vec<Taken>) {
    while let Some(number) = batch.next() {
        let frame = batch.frame(number);
        let records = match &frame.outcome {
            Outcome::Records(records) => Ok(records
                .clone()
                .map(|record| decode_one(batch.record(record).1).unwrap())
                .collect()),
            Outcome::Failed(error) => Err((**error).clone()),
            Outcome::Earlier => late(batch.payload(frame), whole),
        };
        taken.push((frame.place.start, frame.place.end, records));
    }
    batch.contexts.hand_on(whole);
}

fn late(payload: &[u8], whole: &mut Skimmer) -> Result<Vec<Record>, DecodeError> {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    match whole.skim(payload, &mut bytes, &mut records) {
        Ok(()) => Ok(records
            .iter()
            .map(|record| decode_one(&bytes[record.from as usize..record.to as usize]).unwrap())
            .collect()),
        Err(SkimError::Decode(error)) => Err(error),
        Err(SkimError::Earlier { .. }) => panic!("nothing is before the whole"),
    }
}

/// Both are the same, up to the first frame that is no frame.
fn check_same(expected: &(Vec<Taken>, Option<String>), found: &(Vec<Taken>, Option<String>)) {
    let is_damage = |taken: &Taken| matches!(taken.2, Err(DecodeError::Corrupt(_)));
    let until = |taken: &[Taken]| taken.iter().position(is_damage);
    if let Some(damaged) = until(&found.0) {
        assert_eq!(expected.0[..damaged], found.0[..damaged]);
        let (expected, found) = (&expected.0[damaged], &found.0[damaged]);
        if !format!("{found:?}").contains("rows of the transactions in slots") {
            assert_eq!(expected, found);
        }
        return;
    }
    assert!(expected == found, "another outcome");
}

fn workload(seed: u64, steps: usize) -> Model {
    let mut model = Model::new(seed);
    (0..steps).for_each(|_| model.step());
    model
}

/// The log of a model, as it is, cut off, with a spoilt byte, or unreadable from a frame on; and
/// from a frame on, so that what the first ones are coded against is missing.
fn sources(model: &Model, random: &mut Random) -> Vec<(LogBuilder, usize, Lsn)> {
    let whole = &model.log;
    let frames = whole.frames.len();
    let mut cut = whole.clone();
    cut.frames.truncate(random.below(frames));
    cut.end = cut.frames.last().map_or(Lsn(5000), |frame| frame.1);
    let mut spoilt = whole.clone();
    let payload = &mut spoilt.frames[random.below(frames)].2;
    let at = random.below(payload.len());
    payload[at] ^= 1 << random.below(8);
    let from = whole.frames[random.below(frames)].0;
    let (never, fails) = (usize::MAX, random.below(frames));
    vec![
        (whole.clone(), never, Lsn(5000)),
        (whole.clone(), never, from),
        (cut, never, Lsn(5000)),
        (spoilt, never, Lsn(5000)),
        (whole.clone(), fails, Lsn(5000)),
    ]
}

#[test]
fn threads_give_what_one_gives() {
    let mut batches_max = 0;
    for seed in 1..25 {
        let model = workload(seed, 900);
        let mut random = Random::new(seed);
        batches_max = batches_max.max(batches(&model.log));
        for (log, fail_at, from) in sources(&model, &mut random) {
            let source = || {
                let mut source = log.from(from);
                source.fail_at = fail_at;
                source
            };
            let expected = decoded(&mut source());
            for threads in 1..5 {
                let batches = [1, 2, usize::MAX][random.below(3)];
                check_same(&expected, &piped(&mut source(), threads, batches));
            }
            check_redo(&model, source, &mut random);
        }
    }
    assert!(batches_max > 10, "{batches_max} batches");
}

/// Of how many batches the pipeline makes a log.
fn batches(log: &LogBuilder) -> usize {
    let pipeline = Pipeline::new(1, 0);
    pipeline.run(&mut log.from(Lsn(5000)), |feed| {
        std::iter::from_fn(|| feed.next().unwrap()).count()
    })
}

/// Redo finds the same transactions, or is refused for the same reason.
fn check_redo(model: &Model, source: impl Fn() -> MemorySource, random: &mut Random) {
    let outcome = |threads, budget| {
        let disk = model.disk.snapshot();
        let how = How {
            checkpoint: model.checkpoint().0,
            threads,
            budget,
        };
        let pool = pool(&disk, 64);
        run(&mut source(), &disk, &pool, how).map_err(|error| error.to_string())
    };
    let budget = [usize::MAX, 4000][random.below(2)];
    let expected = outcome(1, budget).map(comparable);
    for threads in 2..4 {
        assert_eq!(expected, outcome(threads, budget).map(comparable));
    }
}

/// An outcome without what depends on time.
fn comparable(mut outcome: RedoOutcome) -> String {
    outcome.report = RecoveryReport {
        scan_ms: 0,
        apply_ms: 0,
        ..outcome.report
    };
    format!("{outcome:?}")
}

/// A row of 8 KiB that costs a few bytes in the log: batches are cut, so that the memory of those
/// that wait is bounded; and nothing is lost.
#[test]
fn a_batch_that_grows_is_cut() {
    let (mut log, mut context) = (LogBuilder::new(), Context::default());
    log.records(&[leaf_init(page(1))]);
    for row in 0..500_u16 {
        let trx = TrxRef {
            slot: 3,
            first: (row == 0).then_some(TrxId(9)),
            version: None,
        };
        let (mut payload, key) = (Vec::new(), row.to_be_bytes());
        let (page, value) = (page(1 + u32::from(row) / 9), [7; 8000]);
        put_insert(
            &mut payload,
            &mut context,
            trx,
            page,
            TreeId(0),
            row,
            0,
            &key,
            &value,
        );
        assert!(page.space == SPACE && payload.len() < 40);
        log.append(payload);
    }
    let expected = decoded(&mut log.from(Lsn(5000)));
    for threads in [1, 3] {
        let pipeline = Pipeline::new(threads, 0);
        pipeline.run(&mut log.from(Lsn(5000)), |feed| {
            while let Some(batch) = feed.next().unwrap() {
                assert!(batch.sizes().1 < 4096 + 8200, "{:?}", batch.sizes());
            }
        });
        check_same(&expected, &piped(&mut log.from(Lsn(5000)), threads, 3));
    }
}
