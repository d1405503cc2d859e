//! Changing rows: one by one, as statements, and statements that fail.

use super::client::Client;
use super::generate::secondary_key;
use super::{Outcome, Run, bug};
use crate::model::{Change, RowName, Value, show};
use inkstone::{Error, Table, Transaction};
use std::cell::Cell;
use std::ops::Range;

/// A row operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Insert,
    Update,
    Upsert,
    Merge,
    Delete,
}

/// What a statement does beside changing rows.
#[derive(Debug, Default)]
struct Turns {
    /// It fails at its end.
    fails: bool,
    /// It first goes back to this savepoint, which was set before it began.
    back_to: Option<String>,
    /// It sets this savepoint before so many of its steps.
    sets: Option<(usize, String)>,
    /// It has come so far.
    has_set: Cell<bool>,
}

#[derive(Clone, Debug)]
struct RowStep {
    row: RowName,
    kind: Kind,
    value: Option<Value>,
}

/// What may leave a row: three parts of one value in two, which are where they were if the value is
/// as long as the one before; the other values lie in one chain.
fn parts_of(value: &[u8]) -> Vec<Range<usize>> {
    let length = value.len();
    if length.is_multiple_of(2) || length < 100 {
        return Vec::new();
    }
    let third = length / 3;
    vec![0..third, third..2 * third - 5, 2 * third + 3..length - 7]
}

impl Run {
    /// Runs one row operation and compares the outcome. `Ok(Err)`: it failed as it may.
    fn run_row(
        &self,
        n: usize,
        client: &Client,
        txn: &Transaction,
        step: &RowStep,
    ) -> Outcome<Result<(), Error>> {
        let RowStep { row, kind, value } = step;
        let tree = &self.tables[&row.0].trees()[row.1];
        let expected = self.expect(n, client, row);
        let exists = expected.exists;
        let bytes = value.as_deref().unwrap_or_default();
        let (key, mut agrees) = (&row.2, true);
        // A merge rests on the newest version, whatever the snapshot shows.
        let conflict = expected.conflict && *kind != Kind::Merge;
        let result = match kind {
            Kind::Insert => txn
                .insert_with_parts(tree, key, bytes, &parts_of(bytes))
                .inspect(|()| agrees = !exists),
            Kind::Update => txn
                .update_with_parts(tree, key, bytes, &parts_of(bytes))
                .inspect(|()| agrees = exists),
            Kind::Upsert => txn
                .upsert_with_parts(tree, key, bytes, &parts_of(bytes))
                .map(|new| agrees = new != exists),
            Kind::Merge => {
                let newest = client.current(&self.model.now, row);
                txn.merge(tree, key, |old| {
                    agrees = old == newest.as_deref();
                    bytes.to_vec()
                })
            }
            Kind::Delete => txn.delete(tree, key).map(|was| agrees = was == exists),
        };
        let name = format!("{kind:?} of {} in {}.{}", show(key), row.0, row.1);
        match &result {
            Ok(()) if expected.blocked => bug(format!("{name} passed another's change")),
            Ok(()) if conflict && (exists || *kind != Kind::Delete) => {
                bug(format!("{name} overwrote a change after its snapshot"))
            }
            Ok(()) if !agrees => bug(format!("{name} found a row or not, wrongly: {exists}")),
            Ok(()) => Ok(result),
            Err(Error::DuplicateKey { .. }) if *kind == Kind::Insert && exists => Ok(result),
            Err(Error::RowNotFound { .. }) if *kind == Kind::Update && !exists => Ok(result),
            Err(Error::WriteConflict) if conflict => Ok(result),
            Err(Error::LockTimeout { .. }) if expected.timeout => Ok(result),
            Err(error) => {
                self.judge(&name, error)?;
                Ok(result)
            }
        }
    }

    /// Runs row operations as one statement. Whether it succeeded.
    fn statement(
        &mut self,
        n: usize,
        client: &mut Client,
        steps: &[RowStep],
        turns: &Turns,
    ) -> Outcome<bool> {
        client.pin(&self.model.now, self.model.clock);
        let before = client.own.len();
        let touched = steps.iter().map(|step| step.row.clone());
        client.touched.extend(touched);
        let single = steps.len() == 1 && !turns.fails && self.rng.chance(60);
        let txn = client.txn.clone();
        let mut stop = None;
        let mut body = |txn: &Transaction| -> Result<(), Error> {
            if let Some(name) = &turns.back_to {
                txn.rollback_to_savepoint(name)?;
            }
            for (at, step) in steps.iter().enumerate() {
                match &turns.sets {
                    Some((place, name)) if *place == at => {
                        txn.savepoint(name)?;
                        turns.has_set.set(true);
                    }
                    _ => {}
                }
                match self.run_row(n, client, txn, step) {
                    Ok(Ok(())) => {
                        let (row, value) = (step.row.clone(), step.value.clone());
                        let absent = step.kind == Kind::Delete
                            && client.current(&self.model.now, &row).is_none();
                        if !absent {
                            client.changed(Change { row, value });
                        }
                    }
                    Ok(Err(error)) => return Err(error),
                    Err(why) => {
                        stop = Some(why);
                        return Err(Error::TransactionState("stopped"));
                    }
                }
            }
            if turns.fails {
                Err(Error::TransactionState("told to fail"))
            } else {
                Ok(())
            }
        };
        let result = if single {
            body(&txn)
        } else {
            txn.statement(body)
        };
        if let Some(stop) = stop {
            return Err(stop);
        }
        let Err(error) = result else { return Ok(true) };
        client.undo_to(before);
        self.trace(|| format!("{n}: statement fails: {error}"));
        match error {
            Error::DuplicateKey { .. }
            | Error::RowNotFound { .. }
            | Error::WriteConflict
            | Error::LockTimeout { .. }
            | Error::TransactionState("told to fail") => Ok(false),
            error => self.judge("statement", &error).map(|()| false),
        }
    }

    /// A change of a row, and what goes with it in the secondary trees.
    fn steps_for(&mut self, client: &Client) -> Vec<RowStep> {
        let (table, shape, row) = self.any_row(client);
        let kinds = [
            Kind::Insert,
            Kind::Insert,
            Kind::Update,
            Kind::Update,
            Kind::Upsert,
            Kind::Merge,
            Kind::Delete,
            Kind::Delete,
        ];
        let deletes = self.plan.features.deletes;
        let kind = self.rng.pick(&kinds[..if deletes { 8 } else { 6 }]);
        let old = client.current(&self.model.now, &row);
        let value = (kind != Kind::Delete)
            .then(|| shape.value(&mut self.rng, old.as_ref(), self.options.page_size));
        steps_of(&table, row, kind, old, value)
    }

    pub(super) fn write_row(&mut self, n: usize, client: &mut Client) -> Outcome {
        let steps = self.steps_for(client);
        let (row, kind) = (steps[0].row.clone(), steps[0].kind);
        let length = steps[0].value.as_ref().map_or(0, |v| v.len());
        self.trace(|| format!("{n}: {kind:?} {} {} of {length}", row.0, show(&row.2)));
        self.marks.add("row statements", 1);
        self.statement(n, client, &steps, &Turns::default())
            .map(drop)
    }

    /// Gives a row of a table's first tree this value.
    pub(super) fn put_row(
        &mut self,
        n: usize,
        client: &mut Client,
        table: &Table,
        row: RowName,
        value: Value,
    ) -> Outcome {
        let (length, key) = (value.len(), show(&row.2));
        self.trace(|| format!("{n}: puts {length} bytes into {} {key}", row.0));
        let old = client.current(&self.model.now, &row);
        let steps = steps_of(table, row, Kind::Upsert, old, Some(value));
        self.statement(n, client, &steps, &Turns::default())
            .map(drop)
    }

    /// A statement that fails at its end. It may go back behind its own beginning, and set a
    /// savepoint, perhaps in the place of one that was there: neither outlives it.
    pub(super) fn failing_statement(&mut self, n: usize, client: &mut Client) -> Outcome {
        let back_to = self.any_savepoint(client);
        if let Some((name, length)) = &back_to {
            self.marks.add("failing statements that went back", 1);
            self.trace(|| format!("{n}: the next statement begins with a rollback to {name}"));
            client.undo_to(*length);
        }
        let mut steps = Vec::new();
        for _ in 0..self.rng.from_to(1, 5) {
            let more = self.steps_for(client);
            // A row twice would need the first change's outcome to plan the second.
            let twice = |step: &RowStep| steps.iter().any(|s: &RowStep| s.row == step.row);
            if !more.iter().any(twice) {
                steps.extend(more);
            }
        }
        let sets = self.plan.features.savepoints && self.rng.chance(30);
        let sets = sets.then(|| {
            let at = self.rng.below(steps.len() as u64) as usize;
            (at, format!("s{}", self.rng.below(3)))
        });
        self.trace(|| format!("{n}: failing statement of {}, sets {sets:?}", steps.len()));
        self.marks.add("failing statements", 1);
        let turns = Turns {
            fails: true,
            back_to: back_to.map(|(name, _)| name),
            sets,
            has_set: Cell::new(false),
        };
        self.statement(n, client, &steps, &turns)?;
        let Some((_, name)) = turns.sets.filter(|_| turns.has_set.get()) else {
            return Ok(());
        };
        // It went with its statement, and the one whose place it took went before.
        client.savepoints.retain(|(other, _)| *other != name);
        match client.txn.release_savepoint(&name) {
            Err(Error::NotFound(_)) => Ok(()),
            Ok(()) => bug(format!("savepoint {name} outlives its statement")),
            Err(error) => self.judge("release", &error),
        }
    }

    /// One of the client's savepoints, now and then. Later ones are forgotten.
    fn any_savepoint(&mut self, client: &mut Client) -> Option<(String, usize)> {
        // Where a fault may stop the rollback the model would not know how far it came.
        if client.savepoints.is_empty() || self.tolerant || !self.rng.chance(40) {
            return None;
        }
        let at = self.rng.below(client.savepoints.len() as u64) as usize;
        client.savepoints.truncate(at + 1);
        client.savepoints.last().cloned()
    }
}

/// A change of a row, and what goes with it in the secondary trees.
fn steps_of(
    table: &Table,
    row: RowName,
    kind: Kind,
    old: Option<Value>,
    value: Option<Value>,
) -> Vec<RowStep> {
    let mut steps = vec![RowStep {
        row: row.clone(),
        kind,
        value: value.clone(),
    }];
    for tree in 1..table.trees().len() {
        let name = |value: &[u8]| (row.0, tree, secondary_key(tree, &row.2, value));
        let (old, new) = (old.as_deref().map(name), value.as_deref().map(name));
        if old == new {
            continue;
        }
        if let Some(row) = old {
            let (kind, value) = (Kind::Delete, None);
            steps.push(RowStep { row, kind, value });
        }
        if let Some(row) = new {
            let (kind, value) = (Kind::Insert, Some(Value::from(&b""[..])));
            steps.push(RowStep { row, kind, value });
        }
    }
    steps
}
