//! One row that is changed many times.

use super::client::Client;
use super::{Outcome, Run};
use crate::model::RowName;

/// Changes behind which a read passes many versions at once, with the least memory for them.
const MANY: u64 = 16;

impl Run {
    /// Changes the first row of a table often, and takes that back; then commits a change, and many
    /// more behind a snapshot that sees the first one.
    pub(super) fn change_often(&mut self, n: usize, mut client: Client) -> Outcome {
        let (id, _, shape) = self.any_table();
        let row = (id, 0, shape.key(0, self.options.page_size));
        self.put_often(n, &mut client, &row, MANY)?;
        self.roll_back(n, client)?;
        self.commit_changes(n, &row, 1)?;
        let reader = (0..self.clients.len()).find(|&m| m != n && self.clients[m].is_none());
        if let Some(m) = reader {
            self.begin(m)?;
            self.read_hot(m, &row)?;
        }
        self.commit_changes(n, &row, MANY)?;
        match reader {
            Some(m) => self.read_hot(m, &row),
            None => Ok(()),
        }
    }

    fn put_often(&mut self, n: usize, client: &mut Client, row: &RowName, most: u64) -> Outcome {
        let (table, shape) = (self.tables[&row.0].clone(), self.shapes[&row.0]);
        for _ in 0..self.rng.from_to(1, most) {
            let value = shape.value(&mut self.rng, None, self.options.page_size);
            self.put_row(n, client, &table, row.clone(), value)?;
        }
        Ok(())
    }

    fn commit_changes(&mut self, n: usize, row: &RowName, most: u64) -> Outcome {
        self.begin(n)?;
        let Some(mut client) = self.clients[n].take() else {
            return Ok(());
        };
        self.put_often(n, &mut client, row, most)?;
        self.commit(n, client)
    }

    fn read_hot(&mut self, m: usize, row: &RowName) -> Outcome {
        let Some(mut client) = self.clients[m].take() else {
            return Ok(());
        };
        let table = self.tables[&row.0].clone();
        let outcome = self.get_row(m, &mut client, &table, row.clone());
        self.clients[m] = Some(client);
        outcome
    }
}
