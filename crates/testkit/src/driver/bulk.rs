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
}

/// How often there is upkeep in one tree: over more log than a record's context may lie back.
const TIMES: u64 = 200;

impl Upkeep {
    fn draw(rng: &mut Rng, rows: u64) -> Self {
        Self {
            from: rng.below(rows.max(1)),
            between: rng.pick(&[1, 3, 10, 100]),
            times_per_flush: rng.pick(&[1, 20, TIMES]),
            undo_bytes_max: rng.pick(&[0, 0, u64::MAX]),
        }
    }

    fn before_row(&self, at: u64, db: &Database) -> inkstone::Result<()> {
        let Some(behind) = at.checked_sub(self.from) else {
            return Ok(());
        };
        let time = behind / self.between;
        if !behind.is_multiple_of(self.between) || time >= TIMES {
            return Ok(());
        }
        db.maintain(self.undo_bytes_max)?;
        if time.is_multiple_of(self.times_per_flush) {
            db.checkpoint()?;
        }
        Ok(())
    }
}

impl Run {
    pub(super) fn bulk(&mut self, n: usize, client: &mut Client) -> Outcome {
        let (id, table, shape) = self.any_table();
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
        let result = client.txn.statement(|txn| {
            for (tree, rows) in table.trees().iter().zip(trees) {
                let Some(upkeep) = &upkeep else {
                    txn.insert_many(tree, rows)?;
                    continue;
                };
                for (at, (key, value)) in (0..).zip(rows) {
                    upkeep.before_row(at, &db)?;
                    txn.insert(tree, &key, &value)?;
                }
            }
            Ok(())
        });
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
