//! Looking at the whole database.

use super::{Outcome, Run, bug};
use crate::model::{End, Found};
use inkstone::{Database, Error, Isolation, LockMode, Wait};
use std::collections::BTreeMap;
use std::time::Duration;

impl Run {
    /// After an opening: the database is what the model says, whole, and goes on from there.
    pub(super) fn check_recovered(&mut self, end: End) -> Outcome {
        let db = self.database();
        let report = db.open_report().clone();
        if let Some(recovered) = &report.recovered {
            let marks = &mut self.marks;
            marks.add("recoveries", 1);
            marks.add("torn pages repaired", recovered.torn_pages_repaired);
            marks.add("losers", recovered.losers);
            marks.add("rows undone", recovered.rows_undone);
            marks.add("prepared recovered", recovered.prepared);
            marks.add("orphans removed", recovered.orphans_removed);
            marks.add("pages initialised", recovered.redo.pages_initialised);
            marks.add("pages applied", recovered.redo.pages_applied);
            marks.add(
                "frames without context",
                recovered.redo.frames_without_context,
            );
            marks.add("more than one batch", u64::from(recovered.redo.batches > 1));
        }
        self.trace(|| format!("opened: {report:?}"));
        let found = match self.found(&db) {
            Ok(found) => found,
            Err(error) => return self.judge("reading all after recovery", &error),
        };
        let events = self.model.events();
        match self.model.recovered(end, &found) {
            Ok(length) => {
                self.marks.add("commits checked", length as u64);
                self.marks
                    .add("commits lost legally", (events - length) as u64);
            }
            Err(text) => return bug(text),
        }
        self.model.written.clear();
        for (&id, table) in &self.model.now.tables {
            match db.table(&table.name) {
                Ok(handle) => self.tables.insert(id, handle),
                Err(error) => return self.judge("opening a table", &error),
            };
        }
        self.verify_all()?;
        self.check_prepared_locks(&db)
    }

    /// All rows of all tables.
    fn found(&self, db: &Database) -> Result<Found, Error> {
        let mut found = Found {
            prepared: db.prepared_transactions(),
            ..Found::default()
        };
        let txn = db.begin(Isolation::ReadCommitted)?;
        for name in db.tables()? {
            let table = db.table(&name)?;
            let mut trees = Vec::new();
            for tree in table.trees() {
                let rows: Result<BTreeMap<_, _>, _> = txn.range(tree, ..)?.collect();
                trees.push(rows?);
            }
            found.tables.insert(name, trees);
        }
        Ok(found)
    }

    /// Every page of every table. Purge runs in the background: what it had under way is no error.
    pub(super) fn verify_all(&mut self) -> Outcome {
        let db = self.database();
        for (id, table) in self.tables.clone() {
            for attempt in 0.. {
                let error = match db.verify_table(&table) {
                    Ok(_) => break,
                    Err(error) => error,
                };
                self.judge_io(&error)?;
                if attempt == 3 {
                    return bug(format!("verification of table {id}: {error}"));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        self.marks.add("verifications", 1);
        Ok(())
    }

    /// As `judge`, but an error that the plan does not explain is left to the caller.
    fn judge_io(&self, error: &Error) -> Outcome {
        if self.vfs.is_dead() || self.tolerant && super::is_fault(error) {
            return Err(super::Stop::Dead);
        }
        Ok(())
    }

    /// Rows that a prepared transaction has changed are locked.
    fn check_prepared_locks(&mut self, db: &Database) -> Outcome {
        let prepared = self.model.now.prepared.clone();
        for (xid, changes) in &prepared {
            let txn = match db.begin(Isolation::ReadCommitted) {
                Ok(txn) => txn,
                Err(error) => return self.judge("begin", &error),
            };
            for change in changes.iter().take(20) {
                let (table, tree, key) = &change.row;
                let Some(table) = self.tables.get(table) else {
                    continue;
                };
                let mode = LockMode::Exclusive;
                let locked = txn.get_locking(&table.trees()[*tree], key, mode, Wait::NoWait);
                match locked {
                    Err(Error::LockNotAvailable) => {}
                    Err(error) => return self.judge("locking a prepared row", &error),
                    Ok(value) => {
                        let key = crate::model::show(key);
                        // A row that it inserted and deleted again is nobody's.
                        if value.is_some() || self.model.now.get(&change.row).is_some() {
                            let xid = String::from_utf8_lossy(xid);
                            return bug(format!("row {key} of prepared {xid} is not locked"));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
