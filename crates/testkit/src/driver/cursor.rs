//! Cursors that stay open while their transaction changes rows, takes changes back, and purge goes
//! by.

use super::client::Client;
use super::{Outcome, Run, bug};
use crate::model::{RowName, State, TableId, Value, show};
use inkstone::{Cursor, Error, Isolation};
use std::collections::{BTreeMap, BTreeSet};

/// Rows of one call, at most.
const ROWS_MAX: u64 = 12;

/// A cursor over the first tree of a table.
pub(crate) struct Open {
    table: TableId,
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
        let mut open = match client.open.take() {
            Some(open) if self.tables.contains_key(&open.table) => open,
            _ => match self.open_cursor(n, client)? {
                Some(open) => open,
                None => return Ok(()),
            },
        };
        let count = self.rng.from_to(1, ROWS_MAX);
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
            open.keys.insert(key);
        }
        client.open = Some(open);
        Ok(())
    }

    /// It has given all rows that the transaction has not changed.
    fn end_cursor(&mut self, client: &Client, open: &Open) -> Outcome {
        let table = open.state.tables.get(&open.table);
        let rows = table.iter().flat_map(|table| table.trees[0].keys());
        for key in rows {
            let is_own = client.given.contains_key(&(open.table, 0, key.clone()));
            if !is_own && !open.keys.contains(key) {
                let (id, key) = (open.table, show(key));
                return bug(format!("a cursor of {id} has passed over {key}"));
            }
        }
        self.marks.add("cursors kept open to their ends", 1);
        Ok(())
    }

    fn open_cursor(&mut self, n: usize, client: &mut Client) -> Outcome<Option<Open>> {
        let (id, table, _) = self.any_table();
        client.pin(&self.model.now, self.model.clock);
        self.trace(|| format!("{n}: opens a cursor of {id}"));
        match client.txn.range(&table, ..) {
            Ok(cursor) => Ok(Some(Open {
                table: id,
                cursor,
                state: client.view(&self.model.now).clone(),
                keys: BTreeSet::new(),
            })),
            Err(Error::TableChanged { .. }) if client.is_older_than(id) => Ok(None),
            Err(error) => self.judge("opening a cursor", &error).map(|()| None),
        }
    }
}
