//! What happens to a database that is open while pages wait to be redone, or changes of an earlier
//! run to be undone.

use super::Run;
use crate::model::End;
use crate::nothing_is_open;
use inkstone::{Database, Error, Isolation, Shutdown};

/// A table that is there only within a step. The model knows nothing of it.
const TABLE: &str = "made while pages wait";

impl Run {
    /// Before anything else looks at a database that was opened: it is read and written, and may
    /// end again. Then that is returned.
    pub(super) fn while_pages_wait(&mut self, end: End) -> Result<Option<End>, String> {
        let db = self.database();
        let waits = db.redo_left().pages > 0;
        if self.tolerant || !waits && changes_to_undo(&db) == 0 {
            return Ok(None);
        }
        self.marks
            .add("openings with pages that wait", u64::from(waits));
        for _ in 0..self.rng.below(4) {
            let before = redone(&db);
            let (name, done) = match self.rng.below(4) {
                0 => ("commits while pages waited", write(&db, self.rng.below(60))),
                1 => {
                    let bytes = self.rng.pick(&[0, 1 << 16]);
                    ("checkpoints while pages waited", db.maintain(bytes))
                }
                _ => ("reads while pages waited", self.read_some(&db)),
            };
            done.map_err(|error| format!("{name}: {error}"))?;
            let waits = db.redo_left().pages > 0;
            let read = name != "reads while pages waited" || redone(&db) > before;
            self.marks.add(name, u64::from(waits && read));
        }
        match self.rng.below(10) {
            0 | 1 => self.end_while_pages_wait(db, end).map(Some),
            2 => self.close_while_pages_wait(db, end).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads the beginning of a tree.
    fn read_some(&mut self, db: &Database) -> Result<(), Error> {
        let names = db.tables()?;
        if names.is_empty() {
            return Ok(());
        }
        let name = &names[self.rng.below(names.len() as u64) as usize];
        let table = db.table(name)?;
        let txn = db.begin(Isolation::ReadCommitted)?;
        let tree = self.rng.below(table.trees().len() as u64) as usize;
        let rows = txn.range(&table.trees()[tree], ..)?;
        for row in rows.take(self.rng.pick(&[1, 100])) {
            row?;
        }
        Ok(())
    }

    fn end_while_pages_wait(&mut self, db: Database, end: End) -> Result<End, String> {
        let waits = u64::from(db.redo_left().pages > 0);
        self.marks.add("crashes while pages waited", waits);
        let undoes = u64::from(changes_to_undo(&db) > 0);
        self.marks.add("crashes while losers were undone", undoes);
        self.trace(|| format!("ends while {:?} waits", db.redo_left()));
        drop(db);
        let end = self.die(end)?;
        self.forget_process();
        Ok(end)
    }

    fn close_while_pages_wait(&mut self, db: Database, end: End) -> Result<End, String> {
        let how = self.rng.pick(&self.plan.features.closes);
        let waits = u64::from(db.redo_left().pages > 0);
        self.marks.add("closes while pages waited", waits);
        self.db = None;
        let closed = db.close_as(how);
        closed.map_err(|error| format!("{how:?} close while pages wait failed: {error}"))?;
        nothing_is_open(&self.vfs)?;
        // Another close may have come before.
        self.closed_log_only &= how == Shutdown::LogOnly;
        self.trace(|| format!("closed while pages wait: {how:?}"));
        self.die(end)
    }
}

/// Of an earlier run.
fn changes_to_undo(db: &Database) -> u64 {
    let mut gauges = db.status().into_iter();
    let found = gauges.find(|(name, _)| *name == "undo_recovered_changes");
    found.map_or(0, |(_, changes)| changes)
}

fn redone(db: &Database) -> u64 {
    let counted = db.counters().snapshot().into_iter();
    let mut redone = counted.filter(|(name, _)| *name == "pages_redone_late");
    redone.next().map_or(0, |(_, count)| count)
}

/// Makes a table with rows, reads them, and drops it.
fn write(db: &Database, rows: u64) -> Result<(), Error> {
    let table = db.create_table(TABLE, &[])?;
    let txn = db.begin(Isolation::RepeatableRead)?;
    for row in 0..rows {
        txn.insert(&table, &row.to_be_bytes(), &[7; 300])?;
    }
    txn.commit()?;
    let txn = db.begin(Isolation::RepeatableRead)?;
    let found = txn.range(&table, ..)?.count() as u64;
    drop(txn);
    assert_eq!(
        found, rows,
        "rows of a table that was made while pages wait"
    );
    db.drop_table_at_once(TABLE)
}
