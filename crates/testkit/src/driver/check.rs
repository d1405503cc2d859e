//! Looking at the whole database.

use super::generate::secondary_key;
use super::{Outcome, Run, bug};
use crate::model::{End, Found, show};
use inkstone::internals::store::{is_place_map_file_name, parse_space_file_name};
use inkstone::{Database, Error, Isolation, LockMode, Recovered, Wait};
use std::collections::BTreeMap;

impl Run {
    /// After an opening: the database is what the model says, whole, and goes on from there.
    pub(super) fn check_recovered(&mut self, end: End) -> Outcome {
        let db = self.database();
        let report = db.open_report().clone();
        if let Some(recovered) = &report.recovered {
            self.mark_recovery(recovered, end);
        }
        let removed = report.removed.len() as u64;
        self.marks.add("orphans removed", removed);
        if let Some(aside) = report.set_aside.first() {
            return bug(format!(
                "a crash left a file that belongs to nothing: {aside}"
            ));
        }
        self.wreck = None;
        let log_only = std::mem::take(&mut self.closed_log_only);
        if log_only && report.clean {
            return bug("a close that writes only the log passes for one in order");
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
                    .add("closes that wrote only the log", u64::from(log_only));
                self.marks
                    .add("commits lost legally", (events - length) as u64);
            }
            Err(text) => return bug(text),
        }
        check_secondary_trees(&found)?;
        self.check_files()?;
        self.model.written.clear();
        for (&id, table) in &self.model.now.tables {
            match db.table(&table.name) {
                Ok(handle) => self.tables.insert(id, handle),
                Err(error) => return self.judge("opening a table", &error),
            };
        }
        self.verify_all()?;
        self.check_prepared_locks(&db)?;
        self.check_status(&db)?;
        let counters = db.counters().snapshot();
        let count_of = |name| counters.iter().find(|c| c.0 == name).map_or(0, |c| c.1);
        // This life has inserted and deleted none yet.
        let undone = count_of("bulk_inserts_undone");
        self.marks.add("bulk inserts undone after a crash", undone);
        let undone = count_of("bulk_deletes_undone");
        self.marks.add("bulk deletes undone after a crash", undone);
        Ok(())
    }

    fn mark_recovery(&mut self, recovered: &Recovered, end: End) {
        let marks = &mut self.marks;
        marks.add("recoveries", 1);
        marks.add("pages repaired", recovered.torn_pages_repaired);
        // Those that were seen torn; the others had not been written in place at all.
        let torn = self.wreck.map_or(0, |wreck| wreck.torn_pages);
        let repaired = torn.min(recovered.torn_pages_repaired);
        marks.add("torn pages repaired", repaired);
        let undone = recovered.rows_undone + recovered.rows_to_undo;
        let thousands = undone > 2000 * recovered.losers.max(1);
        marks.add("losers of thousands of rows", u64::from(thousands));
        let crashed = u64::from(end != End::Close);
        marks.add("prepared over a crash", crashed * recovered.prepared);
        marks.add("losers", recovered.losers);
        marks.add("rows undone", undone);
        marks.add("prepared recovered", recovered.prepared);
        marks.add("pages initialised", recovered.redo.pages_initialised);
        marks.add("pages applied", recovered.redo.pages_applied);
        marks.add(
            "frames without context",
            recovered.redo.frames_without_context,
        );
        marks.add("more than one batch", u64::from(recovered.redo.batches > 1));
        let spilled = u64::from(recovered.redo.bytes_spilled > 0);
        marks.add("changes to redo in a file", spilled);
    }

    /// There is a tablespace file for each table and for the catalog, and no other.
    fn check_files(&self) -> Outcome {
        let files = self.vfs.files();
        let is_space = |path: &&std::path::PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.and_then(parse_space_file_name).is_some()
        };
        let (found, tables) = (
            files.iter().filter(is_space).count(),
            self.model.now.tables.len(),
        );
        let is_map = |path: &&std::path::PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(is_place_map_file_name)
        };
        for map in files.iter().filter(is_map) {
            if !files.contains(&map.with_extension("ink")) {
                return bug(format!("{} maps no file: {files:?}", map.display()));
            }
        }
        if found == tables + 1 {
            Ok(())
        } else {
            bug(format!(
                "{tables} tables, the catalog, and {found} files: {files:?}"
            ))
        }
    }

    /// What the engine says of itself, while no client has a transaction. Purge, which frees long
    /// values in transactions of its own, may have one under way: what it shows must pass.
    fn check_status(&self, db: &Database) -> Outcome {
        const LOOKS: usize = 20;
        for _ in 1..LOOKS {
            if self.look_at_status(db).is_ok() {
                return Ok(());
            }
            // Waits for the round that is under way.
            match db.purge() {
                Ok(()) => {}
                Err(error) => self.judge_io(&error)?,
            }
        }
        self.look_at_status(db)
    }

    fn look_at_status(&self, db: &Database) -> Outcome {
        match db.finish_rollbacks() {
            Ok(()) => {}
            Err(error) => self.judge_io(&error)?,
        }
        let status: BTreeMap<_, _> = db.status().into_iter().collect();
        let prepared = self.model.now.prepared.len() as u64;
        let ordered = |names: [&str; 3]| names.map(|name| status[name]).is_sorted();
        let frames = self.options.buffer_pool_size / self.options.page_size;
        let sane = [
            (
                "log positions",
                ordered(["lsn_durable", "lsn_written", "lsn_current"]),
            ),
            ("frames", status["buffer_pool_frames"] == frames),
            ("free frames", status["buffer_pool_free"] <= frames),
            ("dirty frames", status["buffer_pool_dirty"] <= frames),
            ("transactions", status["active_transactions"] == prepared),
            ("row locks", status["row_locks"] == 0),
            ("range locks", status["range_locks"] == 0),
        ];
        match sane.iter().find(|(_, sane)| !sane) {
            None => Ok(()),
            Some((name, _)) => bug(format!("{name}: {prepared} prepared; {status:?}")),
        }
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
        if let Err(error) = db.verify_catalog() {
            self.judge_io(&error)?;
            return bug(format!("verification of the catalog: {error}"));
        }
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
                if let Err(error) = db.purge() {
                    return self.judge("purge", &error);
                }
            }
        }
        self.marks.add("verifications", 1);
        Ok(())
    }

    /// As `judge`, but an error that the plan does not explain is left to the caller.
    fn judge_io(&self, error: &Error) -> Outcome {
        if self.vfs.is_dead() || self.excuses(error) {
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
                        let key = show(key);
                        // A row that it inserted and deleted again does not exist.
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

/// Each secondary tree has one row for each row of its table, and no other.
fn check_secondary_trees(found: &Found) -> Outcome {
    for (name, trees) in &found.tables {
        for (n, tree) in trees.iter().enumerate().skip(1) {
            let missing = |(key, value): &(&Vec<u8>, &Vec<u8>)| {
                !tree.contains_key(&secondary_key(n, key, value))
            };
            if let Some((key, _)) = trees[0].iter().find(missing) {
                let key = show(key);
                return bug(format!("row {key} of {name} has no row in its tree {n}"));
            }
            let (rows, of_table) = (tree.len(), trees[0].len());
            if rows != of_table {
                return bug(format!(
                    "{rows} rows in tree {n} of {name}, {of_table} in the table"
                ));
            }
        }
    }
    Ok(())
}
