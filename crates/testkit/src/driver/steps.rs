//! One random step, and the small ones: begin, savepoints, upkeep.

use super::client::Client;
use super::ends::LARGE;
use super::generate::Shape;
use super::{Outcome, Profile, Run};
use crate::model::{RowName, TableId};
use inkstone::{Isolation, Table};
use std::time::Duration;

impl Run {
    /// One random step.
    pub(super) fn one_step(&mut self) -> Outcome {
        if self.tables.is_empty() {
            return self.create();
        }
        if self.rng.chance(self.features().upkeep_percent) {
            return self.upkeep();
        }
        match self.rng.below(1000) {
            0..=15 => self.create(),
            16..=23 if self.features().ddl => self.drop_table(),
            24..=31 if self.features().ddl => self.rename(),
            32..=46 => self.decide(),
            47..=48 => self.verify_all(),
            49 => self.if_power_were_lost(),
            _ => {
                let n = self.rng.below(self.clients.len() as u64) as usize;
                match self.clients[n].take() {
                    None => self.begin(n),
                    Some(client) => self.client_step(n, client),
                }
            }
        }
    }

    pub(super) fn begin(&mut self, n: usize) -> Outcome {
        let isolation = self.rng.pick(&self.plan.features.isolations);
        let txn = match self.database().begin(isolation) {
            Ok(txn) => txn,
            Err(error) => return self.judge("begin", &error),
        };
        txn.set_lock_wait_timeout(Duration::ZERO);
        self.trace(|| format!("{n}: begin {isolation:?} {:?}", txn.id()));
        let mut client = Client::new(txn, isolation);
        if isolation == Isolation::RepeatableRead && self.rng.chance(30) {
            if let Err(error) = client.txn.take_snapshot() {
                return self.judge("snapshot", &error);
            }
            client.pin(&self.model.now, self.model.clock);
        }
        self.clients[n] = Some(client);
        Ok(())
    }

    /// The client goes back to its place unless its transaction ends.
    pub(super) fn client_step(&mut self, n: usize, mut client: Client) -> Outcome {
        let features = self.plan.features.clone();
        // The first client is the one of giant transactions.
        let giant = features.giant && n == 0;
        let is_profile = self.plan.profile == Some(Profile::LargeTransactions);
        let is_large = client.own.len() > LARGE;
        let keep = match self.rng.below(100) {
            0..=5 if is_profile && is_large => return self.commit(n, client),
            0..=11 if giant && self.rng.chance(90) => self.bulk(n, &mut client),
            0..=11 if features.loads() && self.rng.chance(70) => return self.load(n, client),
            0..=7 => return self.commit(n, client),
            8..=9 => return self.roll_back(n, client),
            10..=11 if features.xa && !client.own.is_empty() => return self.prepare(n, client),
            12..=21 => self.get(n, &mut client),
            22..=26 => self.range(n, &mut client),
            27..=30 if features.locking_reads => self.get_locking(n, &mut client),
            31..=38 if features.savepoints => self.savepoint(n, &mut client),
            39..=44 if features.bulk => self.bulk(n, &mut client),
            69..=74 if features.open_cursors => self.go_on_reading(n, &mut client),
            // Of several parts: one that a fault stops leaves a transaction that is over.
            75..=76 if features.reads_over_undo() && !self.tolerant => {
                self.read_over_undo(n, &mut client)
            }
            45..=48 if features.failing_statements => self.failing_statement(n, &mut client),
            // Of a row's many changes some are undone, and snapshots are between them.
            49..=52 if features.hot_rows => return self.roll_back(n, client),
            77..=78 if features.hot_rows && !self.tolerant => return self.change_often(n, client),
            79..=81 if features.range_deletes => self.delete_range(n, &mut client),
            53..=58 if features.hot_rows => return self.commit(n, client),
            59..=68 if features.hot_rows => self.get(n, &mut client),
            _ => {
                let count = self.rng.pick(&[1, 1, 1, 4, 20]);
                let mut outcome = Ok(());
                for _ in 0..count {
                    outcome = self.write_row(n, &mut client);
                    if outcome.is_err() {
                        break;
                    }
                }
                outcome
            }
        };
        if self.tolerant && client.snapshot.is_some() {
            // A statement that a fault has stopped may have come to no snapshot.
            let _ = client.txn.take_snapshot();
        }
        let over = self.tolerant && client.txn.savepoint("alive").is_err();
        self.clients[n] = (!over).then_some(client);
        keep
    }

    pub(super) fn any_table(&mut self) -> (TableId, Table, Shape) {
        let mut ids: Vec<_> = self.tables.keys().copied().collect();
        ids.sort_unstable();
        let id = self.rng.pick(&ids);
        (id, self.tables[&id].clone(), self.shapes[&id])
    }

    pub(super) fn any_row(&mut self, client: &Client) -> (Table, Shape, RowName) {
        let (id, table, shape) = self.any_table();
        if self.features().hot_rows && self.rng.chance(60) {
            return (table, shape, (id, 0, shape.key(0, self.options.page_size)));
        }
        // Often a row that is there.
        if self.rng.chance(50) {
            if let Some(change) = client.own.last()
                && self.rng.chance(30)
                && change.row.0 == id
                && change.row.1 == 0
            {
                return (table, shape, change.row.clone());
            }
            let from = shape.random_key(&mut self.rng, self.options.page_size);
            let rows = &self.model.now.tables[&id].trees[0];
            if let Some((key, _)) = rows.range(from..).next() {
                return (table, shape, (id, 0, key.clone()));
            }
        }
        let key = shape.random_key(&mut self.rng, self.options.page_size);
        (table, shape, (id, 0, key))
    }

    pub(super) fn savepoint(&mut self, n: usize, client: &mut Client) -> Outcome {
        let choice = self.rng.below(10);
        if client.savepoints.is_empty() || choice < 4 {
            let name = format!("s{}", self.rng.below(3));
            return self.set_savepoint(n, client, name);
        }
        let at = self.rng.below(client.savepoints.len() as u64) as usize;
        if choice == 4 {
            let (name, _) = client.savepoints[at].clone();
            client.savepoints.truncate(at);
            return match client.txn.release_savepoint(&name) {
                Ok(()) => Ok(()),
                Err(error) => self.judge("release", &error),
            };
        }
        self.roll_back_to_savepoint(n, client, at)
    }

    pub(super) fn set_savepoint(&mut self, n: usize, client: &mut Client, name: String) -> Outcome {
        self.trace(|| format!("{n}: savepoint {name}"));
        client.savepoints.retain(|(other, _)| *other != name);
        client.savepoints.push((name.clone(), client.own.len()));
        match client.txn.savepoint(&name) {
            Ok(()) => Ok(()),
            Err(error) => self.judge("savepoint", &error),
        }
    }

    /// To the one at this place of the client's savepoints.
    pub(super) fn roll_back_to_savepoint(
        &mut self,
        n: usize,
        client: &mut Client,
        at: usize,
    ) -> Outcome {
        let (name, length) = client.savepoints[at].clone();
        self.trace(|| format!("{n}: rollback to {name}"));
        client.savepoints.truncate(at + 1);
        client.undo_to(length);
        match client.txn.rollback_to_savepoint(&name) {
            Ok(()) => Ok(()),
            Err(error) => self.judge("rollback to a savepoint", &error),
        }
    }

    /// What the background does, at a time of the driver's choosing.
    pub(super) fn upkeep(&mut self) -> Outcome {
        let db = self.database();
        // Where there are none, the choice below is as it was.
        let compacts = self.plan.features.compaction_percent;
        let choice = if compacts > 0 && self.rng.chance(compacts) {
            14
        } else {
            self.rng.below(14)
        };
        self.trace(|| format!("upkeep {choice}"));
        let (result, durable) = match choice {
            14 => {
                let (_, table, _) = self.any_table();
                (db.compact_table(&table).map(drop), false)
            }
            0..=1 => (db.checkpoint(), true),
            2..=3 => (db.purge(), false),
            4 => (db.flush_log(), true),
            5..=6 => {
                let (_, table, _) = self.any_table();
                (db.flush_table(&table), false)
            }
            7..=8 => {
                let limit = self.rng.pick(&[0, 4 << 10, 1 << 20]);
                (db.maintain(limit), false)
            }
            9..=10 => {
                let (_, table, _) = self.any_table();
                (db.shrink_table(&table).map(drop), false)
            }
            _ => (db.maintain(self.options.log_file_size / 2), false),
        };
        match result {
            Ok(()) if durable => {
                self.model.synced();
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(error) => self.judge("upkeep", &error),
        }
    }
}
