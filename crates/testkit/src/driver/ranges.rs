//! Deletes of all rows of a range.

use super::client::Client;
use super::generate::secondary_key;
use super::{Outcome, Run, bug};
use crate::model::{Change, Key, RowName, TableId, Value, show};
use inkstone::{Error, Transaction};
use std::collections::BTreeSet;
use std::ops::Bound;

/// What is deleted: keys of a table's first tree.
#[derive(Debug)]
struct Part {
    table: TableId,
    low: Bound<Key>,
    high: Bound<Key>,
}

/// What may come of it.
#[derive(Debug, Default)]
struct Expected {
    /// The rows that are there, with their values.
    rows: Vec<(Key, Value)>,
    blocked: bool,
    timeout: bool,
    conflict: bool,
    /// One of the rows has changed since the snapshot.
    row_conflict: bool,
}

impl Run {
    /// Deletes a range of rows, with their entries, as one statement.
    pub(super) fn delete_range(&mut self, n: usize, client: &mut Client) -> Outcome {
        let part = self.any_part(client);
        client.pin(&self.model.now, self.model.clock);
        let expected = self.expect_range(n, client, &part);
        self.trace(|| {
            let end = |bound: &Bound<Key>| match bound {
                Bound::Unbounded => "-".to_owned(),
                Bound::Included(key) | Bound::Excluded(key) => show(key),
            };
            let (low, high) = (end(&part.low), end(&part.high));
            let rows = expected.rows.len();
            format!(
                "{n}: deletes {rows} rows of {} from {low} to {high}",
                part.table
            )
        });
        self.marks.add("range deletes", 1);
        // The range itself is locked, which the model does not keep.
        client.locks = true;
        let changes = self.changes_of(&part, &expected);
        client
            .touched
            .extend(changes.iter().map(|change| change.row.clone()));
        let fail = self.rng.chance(15);
        let result = client.txn.clone().statement(|txn| {
            self.delete_part(txn, &part, &expected, &changes)?;
            if fail {
                return Err(Error::TransactionState("told to fail"));
            }
            Ok(())
        });
        let many = expected.rows.len() > 40;
        match result {
            Ok(()) if expected.blocked => bug(format!("{part:?} passed another's change")),
            Ok(()) if expected.row_conflict => bug(format!(
                "{part:?} was deleted after its snapshot: a change was lost"
            )),
            Ok(()) => {
                self.marks
                    .add("ranges of many rows deleted", u64::from(many));
                changes
                    .into_iter()
                    .for_each(|change| client.changed(change));
                Ok(())
            }
            Err(Error::TransactionState("told to fail")) => Ok(()),
            Err(Error::TransactionState("other rows")) => {
                bug(format!("{part:?} had other rows than {:?}", expected.rows))
            }
            Err(Error::WriteConflict) if expected.conflict => Ok(()),
            Err(Error::LockTimeout { .. }) if expected.timeout => Ok(()),
            Err(error) => self.judge("delete of a range", &error),
        }
    }

    /// All rows, those between two keys, or some hundreds side by side.
    fn any_part(&mut self, client: &Client) -> Part {
        let (table, _, shape) = self.any_table();
        let page_size = self.options.page_size;
        let mut key = || shape.random_key(&mut self.rng, page_size);
        let (one, other) = (key(), key());
        let (one, other) = (one.clone().min(other.clone()), one.max(other));
        let whole = Part {
            table,
            low: Bound::Unbounded,
            high: Bound::Unbounded,
        };
        match self.rng.below(10) {
            0..=3 => whole,
            4..=6 => Part {
                low: Bound::Excluded(one),
                high: Bound::Included(other),
                ..whole
            },
            _ => {
                let most = self.rng.pick(&[1, 5, 30, 300]);
                let rows = &self.model.now.tables[&table].trees[0];
                let last = rows.range(one.clone()..).nth(most).map(|row| row.0.clone());
                let own = client.own.last().map(|change| &change.row);
                let low = match own {
                    Some((of, 0, key)) if *of == table && self.rng.chance(20) => key.clone(),
                    _ => one,
                };
                let last = last.filter(|last| *last > low);
                Part {
                    low: Bound::Included(low),
                    high: last.map_or(Bound::Unbounded, Bound::Excluded),
                    ..whole
                }
            }
        }
    }

    fn expect_range(&self, n: usize, client: &Client, part: &Part) -> Expected {
        let range = || (part.low.clone(), part.high.clone());
        let is_in = |row: &RowName| {
            use std::ops::RangeBounds;
            row.0 == part.table && row.1 == 0 && range().contains(&row.2)
        };
        let others = self.clients.iter().enumerate().filter(|(m, _)| *m != n);
        let others: Vec<_> = others.filter_map(|(_, c)| c.as_ref()).collect();
        let mut keys: BTreeSet<Key> = BTreeSet::new();
        let there = self.model.now.tables[&part.table].trees[0].range(range());
        keys.extend(there.map(|row| row.0.clone()));
        let own = client.overlay.keys().filter(|row| is_in(row));
        keys.extend(own.map(|row| row.2.clone()));
        let name = |key: &Key| (part.table, 0, key.clone());
        let row = |key: Key| {
            let value = client.current(&self.model.now, &name(&key));
            value.map(|value| (key, value))
        };
        let clock = client.snapshot.as_ref().map(|(_, clock)| *clock);
        let is_newer = |row: &RowName| {
            let written = self.model.written.get(row).copied().unwrap_or_default();
            clock.is_some_and(|clock| written > clock) && !client.overlay.contains_key(row)
        };
        let rows: Vec<_> = keys.into_iter().filter_map(row).collect();
        let prepared = self.prepared_in(is_in);
        let is_touched =
            |other: &&Client| other.locks || other.touched.iter().any(|r| r.0 == part.table);
        let mut written = self.model.written.keys().filter(|row| is_in(row));
        Expected {
            blocked: prepared || others.iter().any(|other| other.overlay.keys().any(is_in)),
            timeout: prepared
                || others.iter().any(|other| is_touched(&&**other))
                || !self.model.now.prepared.is_empty(),
            conflict: written.any(is_newer),
            row_conflict: rows.iter().any(|(key, _)| is_newer(&name(key))),
            rows,
        }
    }

    /// The rows, and their entries in the other trees.
    fn changes_of(&self, part: &Part, expected: &Expected) -> Vec<Change> {
        let trees = self.tables[&part.table].trees().len();
        let change = |tree: usize, key: Key| Change {
            row: (part.table, tree, key),
            value: None,
        };
        let mut changes = Vec::new();
        for (key, value) in &expected.rows {
            changes.push(change(0, key.clone()));
            for tree in 1..trees {
                changes.push(change(tree, secondary_key(tree, key, value)));
            }
        }
        changes
    }

    /// A failed comparison is an error of its own.
    fn delete_part(
        &self,
        txn: &Transaction,
        part: &Part,
        expected: &Expected,
        changes: &[Change],
    ) -> Result<(), Error> {
        let other = || Err(Error::TransactionState("other rows"));
        let trees = self.tables[&part.table].trees();
        let range = (
            part.low.as_ref().map(Vec::as_slice),
            part.high.as_ref().map(Vec::as_slice),
        );
        let whole = range == (Bound::Unbounded, Bound::Unbounded);
        let found = txn.delete_range(&trees[0], range)?;
        if found != expected.rows.len() as u64 {
            return other();
        }
        for (tree, handle) in trees.iter().enumerate().skip(1) {
            if whole {
                if txn.delete_range(handle, ..)? != found {
                    return other();
                }
                continue;
            }
            for change in changes.iter().filter(|change| change.row.1 == tree) {
                if !txn.delete(handle, &change.row.2)? {
                    return other();
                }
            }
        }
        Ok(())
    }
}
