//! What may come of a row operation.

use super::Run;
use super::client::Client;
use crate::model::{RowName, TableId};

/// What may come of a row operation.
#[derive(Debug)]
pub(super) struct Expected {
    pub exists: bool,
    /// Another transaction has changed the row and not ended.
    pub blocked: bool,
    /// Another one may have it locked.
    pub timeout: bool,
    /// It was changed after the snapshot.
    pub conflict: bool,
}

impl Run {
    pub(super) fn others_work_in(&self, n: usize, table: TableId) -> bool {
        let others = self.clients.iter().enumerate();
        let mut others = others
            .filter(|(m, _)| *m != n)
            .filter_map(|(_, c)| c.as_ref());
        others.any(|other| other.touched.iter().any(|row| row.0 == table) || other.locks)
            // Explicit locks of prepared transactions are not in the model.
            || !self.model.now.prepared.is_empty()
    }

    pub(super) fn prepared_in(&self, mut test: impl FnMut(&RowName) -> bool) -> bool {
        let mut all = self.model.now.prepared.values();
        all.any(|changes| changes.iter().any(|change| test(&change.row)))
    }

    pub(super) fn expect(&self, n: usize, client: &Client, row: &RowName) -> Expected {
        let others = self.clients.iter().enumerate();
        let others: Vec<_> = others
            .filter(|(m, _)| *m != n)
            .filter_map(|(_, c)| c.as_ref())
            .collect();
        let prepared = self.prepared_in(|other| other == row);
        let clock = client.snapshot.as_ref().map(|(_, clock)| *clock);
        let written = self.model.written.get(row).copied().unwrap_or_default();
        Expected {
            exists: client.current(&self.model.now, row).is_some(),
            blocked: prepared || others.iter().any(|o| o.overlay.contains_key(row)),
            timeout: prepared
                || others.iter().any(|o| o.touched.contains(row) || o.locks)
                // Explicit locks of prepared transactions are not in the model.
                || !self.model.now.prepared.is_empty(),
            conflict: clock.is_some_and(|clock| written > clock)
                && !client.overlay.contains_key(row),
        }
    }
}
