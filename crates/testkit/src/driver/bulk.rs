//! Bulk inserts, and inserts of many rows one by one.

use super::client::Client;
use super::expect::Expected;
use super::generate::{Shape, secondary_key};
use super::{Outcome, Run, bug};
use crate::Rng;
use crate::model::{Change, TableId};
use inkstone::{Database, Error, Table};

/// What the background does amid rows that are inserted one by one. They are coded against each
/// other, also over a save of their undo and over a checkpoint.
#[derive(Debug)]
pub(super) struct Upkeep {
    /// Before which row it begins.
    from: u64,
    /// How many rows lie between two times.
    between: u64,
    /// All pages are written each so many times.
    times_per_flush: u64,
    undo_bytes_max: u64,
    /// Behind each of the last so many times it is looked at what a power loss would leave: the
    /// scan begins at each boundary of frames in turn, also between an insert and the record that
    /// says that undo from before it is saved.
    looks: u64,
}

/// How often there is upkeep in one tree: over more log than a record's context may lie back.
const TIMES: u64 = 200;
/// See [`Upkeep::looks`]: in how many statements of a hundred, and how many.
const LOOKS_PERCENT: u64 = 25;
const LOOKS: u64 = 30;

impl Upkeep {
    fn draw(rng: &mut Rng, rows: u64) -> Self {
        Self {
            from: rng.below(rows.max(1)),
            between: rng.pick(&[1, 3, 10, 100]),
            times_per_flush: rng.pick(&[1, 20, TIMES]),
            undo_bytes_max: rng.pick(&[0, 0, u64::MAX]),
            looks: 0,
        }
    }

    /// Behind each of the last rows, with looks.
    fn with_looks(rows: u64) -> Self {
        Self {
            from: rows.saturating_sub(TIMES),
            between: 1,
            times_per_flush: 1,
            // A busy transaction says itself what is to be saved.
            undo_bytes_max: u64::MAX,
            looks: LOOKS,
        }
    }

    /// Whether it is to be looked at what a power loss would leave.
    fn before_row(&self, at: u64, db: &Database) -> inkstone::Result<bool> {
        let Some(behind) = at.checked_sub(self.from) else {
            return Ok(false);
        };
        let time = behind / self.between;
        if !behind.is_multiple_of(self.between) || time >= TIMES {
            return Ok(false);
        }
        db.maintain(self.undo_bytes_max)?;
        if time.is_multiple_of(self.times_per_flush) {
            db.checkpoint()?;
        }
        Ok(time >= TIMES - self.looks)
    }
}

impl Run {
    pub(super) fn bulk(&mut self, n: usize, client: &mut Client) -> Outcome {
        let (id, table, shape) = self.any_table();
        if self.features().saves_often() && self.rng.chance(LOOKS_PERCENT) {
            let count = self.rng.from_to(TIMES, 3 * TIMES);
            let numbers = self.numbers_behind(&shape, count, 1);
            let upkeep = Some(Upkeep::with_looks(count));
            return self.bulk_of(n, client, (id, table, shape), numbers, upkeep);
        }
        let features = &self.plan.features;
        let giant = features.giant && n == 0;
        let most = match (giant, features.heavy) {
            (true, _) => 4000,
            (_, true) => 1500,
            _ => 150,
        };
        let least = if giant { most / 4 } else { 1 };
        let count = self.rng.from_to(least, most).min(shape.domain);
        let first = self.rng.below(shape.domain);
        let (stride, sorted) = (self.rng.pick(&[1, 1, 3]), self.rng.chance(80));
        let mut numbers: Vec<u64> = (0..count).map(|i| first + i * stride).collect();
        if !sorted {
            numbers.reverse();
        }
        let upkeep = self
            .rng
            .chance(30)
            .then(|| Upkeep::draw(&mut self.rng, count));
        self.bulk_of(n, client, (id, table, shape), numbers, upkeep)
    }

    /// Numbers of so many rows behind all others.
    pub(super) fn numbers_behind(&mut self, shape: &Shape, count: u64, stride: u64) -> Vec<u64> {
        let first = self.load_end.max(shape.domain);
        self.load_end = first + count * stride;
        (0..count).map(|i| first + i * stride).collect()
    }

    /// Inserts rows of these numbers as one statement.
    pub(super) fn bulk_of(
        &mut self,
        n: usize,
        client: &mut Client,
        (id, table, shape): (TableId, Table, Shape),
        numbers: Vec<u64>,
        upkeep: Option<Upkeep>,
    ) -> Outcome {
        let count = numbers.len();
        let page_size = self.options.page_size;
        let mut trees: Vec<Vec<(Vec<u8>, Vec<u8>)>> = vec![Vec::new(); table.trees().len()];
        let mut steps = Vec::new();
        for number in numbers {
            let key = shape.key(number, page_size);
            let value = shape.value(&mut self.rng, None, page_size);
            for (tree, rows) in trees.iter_mut().enumerate() {
                let (key, value) = match tree {
                    0 => (key.clone(), value.to_vec()),
                    _ => (secondary_key(tree, &key, &value), Vec::new()),
                };
                let row = (id, tree, key.clone());
                let expected = self.expect(n, client, &row);
                steps.push((row, value.clone(), expected));
                rows.push((key, value));
            }
        }
        for rows in trees.iter_mut().skip(1) {
            rows.sort();
        }
        self.trace(|| format!("{n}: bulk insert of {count} into {id}, {upkeep:?}"));
        self.marks.add("bulk statements", 1);
        client.pin(&self.model.now, self.model.clock);
        client.touched.extend(steps.iter().map(|s| s.0.clone()));
        let db = self.database();
        let mut looked = Ok(());
        let result = client.txn.statement(|txn| {
            for (tree, rows) in table.trees().iter().zip(trees) {
                let Some(upkeep) = &upkeep else {
                    txn.insert_many(tree, rows)?;
                    continue;
                };
                for (at, (key, value)) in (0..).zip(rows) {
                    if upkeep.before_row(at, &db)? && looked.is_ok() {
                        looked = self.if_power_were_lost();
                    }
                    txn.insert(tree, &key, &value)?;
                }
            }
            Ok(())
        });
        looked?;
        let any = |test: &dyn Fn(&Expected) -> bool| steps.iter().any(|s| test(&s.2));
        match result {
            Ok(()) if any(&|e| e.exists || e.blocked || e.conflict) => {
                bug(format!("bulk insert into {id} passed rows that are there"))
            }
            Ok(()) => {
                for (row, value, _) in steps {
                    let value = Some(value.into());
                    client.changed(Change { row, value });
                }
                match upkeep {
                    Some(_) if self.rng.chance(50) => self.if_power_were_lost(),
                    _ => Ok(()),
                }
            }
            Err(Error::DuplicateKey { .. }) if any(&|e| e.exists) => Ok(()),
            Err(Error::WriteConflict) if any(&|e| e.conflict) => Ok(()),
            Err(Error::LockTimeout { .. }) if any(&|e| e.timeout) => Ok(()),
            Err(error) => self.judge("bulk insert", &error),
        }
    }
}
