//! Loads: many rows behind all others of a table, which the log may lack, rows of others amid them,
//! and an end.

use super::client::Client;
use super::generate::Shape;
use super::{Outcome, Run};
use crate::model::TableId;
use inkstone::Table;

/// Numbers between two rows of a load, so that others have keys between them.
const STRIDE: u64 = 3;

impl Run {
    /// One to three loads of a transaction into one table, and what becomes of it. The client goes
    /// back to its place unless the transaction ends.
    pub(super) fn load(&mut self, n: usize, mut client: Client) -> Outcome {
        let of = self.any_table();
        for _ in 0..self.rng.from_to(1, 3) {
            let count = self.rng.from_to(100, 600);
            let mut numbers = self.numbers_behind(&of.2, count, STRIDE);
            let first = numbers[0];
            if self.rng.chance(20) {
                numbers.reverse();
            }
            self.marks.add("loads", 1);
            self.bulk_of(n, &mut client, of.clone(), numbers, None)?;
            match self.rng.below(10) {
                // Others look for its locks where clients stand.
                0..=2 => {
                    self.clients[n] = Some(client);
                    self.write_amid(n, &of, first, count)?;
                    let Some(back) = self.clients[n].take() else {
                        return Ok(());
                    };
                    client = back;
                }
                3 => self.upkeep()?,
                4 if self.plan.features.savepoints => self.savepoint(n, &mut client)?,
                5 => self.write_loaded(n, &mut client, &of, first, count)?,
                _ => {}
            }
        }
        if self.rng.chance(10) {
            self.if_power_were_lost()?;
        }
        if self.tolerant && client.txn.savepoint("alive").is_err() {
            return Ok(());
        }
        match self.rng.below(10) {
            0..=5 => self.commit(n, client),
            6 => self.roll_back(n, client),
            7 if self.plan.features.xa && !client.own.is_empty() => self.prepare(n, client),
            _ => {
                self.clients[n] = Some(client);
                Ok(())
            }
        }
    }

    /// Another client writes a row between two of the load, and commits it or goes on.
    fn write_amid(
        &mut self,
        n: usize,
        (id, table, shape): &(TableId, Table, Shape),
        first: u64,
        count: u64,
    ) -> Outcome {
        let free = |&m: &usize| m != n && self.clients[m].is_none();
        let Some(m) = (0..self.clients.len()).find(free) else {
            return Ok(());
        };
        self.begin(m)?;
        let Some(mut other) = self.clients[m].take() else {
            return Ok(());
        };
        let number = first + self.rng.below(count) * STRIDE + 1;
        let key = shape.key(number, self.options.page_size);
        let value = shape.value(&mut self.rng, None, self.options.page_size);
        self.put_row(m, &mut other, table, (*id, 0, key), value)?;
        self.marks.add("rows of others amid a load", 1);
        if self.tolerant || self.rng.chance(50) {
            self.clients[m] = Some(other);
            return Ok(());
        }
        self.commit(m, other)
    }

    /// The client changes a row that it has loaded.
    fn write_loaded(
        &mut self,
        n: usize,
        client: &mut Client,
        (id, table, shape): &(TableId, Table, Shape),
        first: u64,
        count: u64,
    ) -> Outcome {
        let number = first + self.rng.below(count) * STRIDE;
        let key = shape.key(number, self.options.page_size);
        let value = shape.value(&mut self.rng, None, self.options.page_size);
        self.put_row(n, client, table, (*id, 0, key), value)
    }
}
