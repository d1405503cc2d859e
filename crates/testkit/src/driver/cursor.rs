//! Cursors that stay open while their transaction changes rows, takes changes back, and purge goes
//! by.

use super::client::Client;
use super::{Outcome, Run, bug};
use crate::model::{RowName, State, TableId, Value, show};
use inkstone::{Cursor, Error, Isolation};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Rows of one call, at most.
const ROWS_MAX: u64 = 12;

/// A cursor over the first tree of a table.
pub(crate) struct Open {
    table: TableId,
    /// Where it began.
    from: Vec<u8>,
    cursor: Cursor,
    /// What its snapshot sees.
    state: State,
    /// The keys that it gave.
    keys: BTreeSet<Vec<u8>>,
}

/// All values that a transaction has given each row, with those that it has taken back: a cursor
/// copies rows before it gives them.
pub(crate) type Given = BTreeMap<RowName, Vec<Option<Value>>>;

impl Run {
    /// Opens a cursor, or goes on with the one that is open.
    pub(super) fn go_on_reading(&mut self, n: usize, client: &mut Client) -> Outcome {
        // There a read waits for others.
        if client.isolation == Isolation::Serializable {
            return Ok(());
        }
        if !matches!(&client.open, Some(open) if self.tables.contains_key(&open.table)) {
            let (id, _, _) = self.any_table();
            self.open_cursor(n, client, id, Vec::new())?;
        }
        let count = self.rng.from_to(1, ROWS_MAX);
        self.read_rows(n, client, count)
    }

    /// Changes rows whose values have pages of their own, takes that back while a cursor is open
    /// that has copied them, and has others take those pages before it goes on.
    pub(super) fn read_over_undo(&mut self, n: usize, client: &mut Client) -> Outcome {
        if client.isolation == Isolation::Serializable {
            return Ok(());
        }
        let (id, _, shape) = self.any_table();
        let (first, count) = (self.rng.below(shape.domain), self.rng.from_to(1, 6));
        self.set_savepoint(n, client, "under a cursor".to_owned())?;
        self.put_long_values(n, client, id, first..first + count)?;
        let from = shape.key(first, self.options.page_size);
        self.open_cursor(n, client, id, from)?;
        self.read_rows(n, client, 1)?;
        self.roll_back_to_savepoint(n, client, client.savepoints.len() - 1)?;
        if self.rng.chance(70)
            && let Err(error) = self.database().purge()
        {
            return self.judge("purge", &error);
        }
        let first = first + self.rng.below(count);
        self.put_long_values(n, client, id, first..first + count)?;
        self.read_rows(n, client, ROWS_MAX)
    }

    fn put_long_values(
        &mut self,
        n: usize,
        client: &mut Client,
        id: TableId,
        numbers: Range<u64>,
    ) -> Outcome {
        let (table, shape) = (self.tables[&id].clone(), self.shapes[&id]);
        let page_size = self.options.page_size;
        for number in numbers {
            let value = shape.long_value(&mut self.rng, page_size);
            let row = (id, 0, shape.key(number, page_size));
            self.put_row(n, client, &table, row, value)?;
        }
        Ok(())
    }

    /// The next rows of the cursor that is open, if one is.
    fn read_rows(&mut self, n: usize, client: &mut Client, count: u64) -> Outcome {
        let Some(mut open) = client.open.take() else {
            return Ok(());
        };
        self.trace(|| format!("{n}: {count} rows of a cursor of {}", open.table));
        for _ in 0..count {
            let (key, value) = match open.cursor.next() {
                None => return self.end_cursor(client, &open),
                Some(Err(error)) => return self.judge("cursor", &error),
                Some(Ok(row)) => row,
            };
            if open.keys.last().is_some_and(|last| *last >= key) {
                return bug(format!("a cursor gives {} out of order", show(&key)));
            }
            let row = (open.table, 0, key.clone());
            let seen = open.state.get(&row);
            let given = client.given.get(&row).into_iter().flatten().flatten();
            if !seen
                .into_iter()
                .chain(given)
                .any(|one| one[..] == value[..])
            {
                let (key, value) = (show(&key), show(&value));
                return bug(format!(
                    "a cursor of {} gives {key} the value {value}, which it never had",
                    open.table
                ));
            }
            let has_other = client.overlay.contains_key(&row) || seen != self.model.now.get(&row);
            self.marks.add(
                "rows of open cursors that were changed",
                u64::from(has_other),
            );
            let has = client.read(&self.model.now, &row);
            let is_long = value.len() as u64 > self.options.page_size / 2;
            let is_taken_back = is_long
                && [seen, has.as_ref()]
                    .iter()
                    .all(|one| one.is_none_or(|one| one[..] != value[..]));
            self.marks.add(
                "long values given by open cursors that were taken back",
                u64::from(is_taken_back),
            );
            open.keys.insert(key);
        }
        client.open = Some(open);
        Ok(())
    }

    /// It has given all rows that the transaction has not changed.
    fn end_cursor(&mut self, client: &Client, open: &Open) -> Outcome {
        let table = open.state.tables.get(&open.table);
        let rows = table.iter().flat_map(|table| table.trees[0].keys());
        for key in rows.filter(|key| **key >= open.from) {
            let is_own = client.given.contains_key(&(open.table, 0, key.clone()));
            if !is_own && !open.keys.contains(key) {
                let (id, key) = (open.table, show(key));
                return bug(format!("a cursor of {id} has passed over {key}"));
            }
        }
        self.marks.add("cursors kept open to their ends", 1);
        Ok(())
    }

    fn open_cursor(
        &mut self,
        n: usize,
        client: &mut Client,
        id: TableId,
        from: Vec<u8>,
    ) -> Outcome {
        client.open = None;
        client.pin(&self.model.now, self.model.clock);
        self.trace(|| format!("{n}: opens a cursor of {id}"));
        match client.txn.range(&self.tables[&id], &from[..]..) {
            Ok(cursor) => {
                client.open = Some(Open {
                    table: id,
                    from,
                    cursor,
                    state: client.view(&self.model.now).clone(),
                    keys: BTreeSet::new(),
                });
                Ok(())
            }
            Err(Error::TableChanged { .. }) if client.is_older_than(id) => Ok(()),
            Err(error) => self.judge("opening a cursor", &error),
        }
    }
}
