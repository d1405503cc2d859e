//! The steps of a run: what clients do, and what becomes of it.

use super::client::Client;
use super::generate::{Shape, secondary_key};
use super::{Outcome, Run, Stop, bug, is_fault};
use crate::model::{Change, Event, RowName, TableId, Value, show};
use inkstone::options::Durability;
use inkstone::{Error, Isolation, LockMode, Table, Transaction, Wait};
use std::sync::Arc;
use std::time::Duration;

/// A row operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Insert,
    Update,
    Upsert,
    Delete,
}

#[derive(Clone, Debug)]
struct RowStep {
    row: RowName,
    kind: Kind,
    value: Option<Value>,
}

/// What may come of a row operation.
#[derive(Debug)]
struct Expected {
    exists: bool,
    /// Another transaction has changed the row and not ended.
    blocked: bool,
    /// Another one may have it locked.
    timeout: bool,
    /// It was changed after the snapshot.
    conflict: bool,
}

const TABLES_MAX: usize = 4;

impl Run {
    /// One step by the dice.
    pub(super) fn one_step(&mut self) -> Outcome {
        if self.tables.is_empty() {
            return self.create();
        }
        match self.rng.below(1000) {
            0..=15 => self.create(),
            16..=23 => self.drop_table(),
            24..=31 => self.rename(),
            32..=45 => self.upkeep(),
            46..=60 => self.decide(),
            61..=62 => self.verify_all(),
            _ => {
                let n = self.rng.below(self.clients.len() as u64) as usize;
                match self.clients[n].take() {
                    None => self.begin(n),
                    Some(client) => self.client_step(n, client),
                }
            }
        }
    }

    fn begin(&mut self, n: usize) -> Outcome {
        let isolation = self.rng.pick(&[
            Isolation::RepeatableRead,
            Isolation::RepeatableRead,
            Isolation::ReadCommitted,
            Isolation::Serializable,
        ]);
        let txn = match self.database().begin(isolation) {
            Ok(txn) => txn,
            Err(error) => return self.judge("begin", &error),
        };
        txn.set_lock_wait_timeout(Duration::ZERO);
        self.trace(|| format!("{n}: begin {isolation:?} {:?}", txn.id()));
        let mut client = Client::new(txn, isolation);
        if isolation == Isolation::RepeatableRead && self.rng.chance(30) {
            if let Err(error) = client.txn.take_snapshot() {
                return self.judge("snapshot", &error);
            }
            client.pin(&self.model.now, self.model.clock);
        }
        self.clients[n] = Some(client);
        Ok(())
    }

    /// The client goes back to its place unless its transaction ends.
    fn client_step(&mut self, n: usize, mut client: Client) -> Outcome {
        let keep = match self.rng.below(100) {
            0..=7 => return self.commit(n, client),
            8..=9 => return self.roll_back(n, client),
            10..=11 if !client.own.is_empty() => return self.prepare(n, client),
            12..=21 => self.get(n, &mut client),
            22..=26 => self.range(n, &mut client),
            27..=30 => self.get_locking(n, &mut client),
            31..=38 => self.savepoint(n, &mut client),
            39..=44 => self.bulk(n, &mut client),
            45..=48 => self.failing_statement(n, &mut client),
            _ => {
                let count = self.rng.pick(&[1, 1, 1, 4, 20]);
                let mut outcome = Ok(());
                for _ in 0..count {
                    outcome = self.write_row(n, &mut client);
                    if outcome.is_err() {
                        break;
                    }
                }
                outcome
            }
        };
        let over = self.tolerant && client.txn.savepoint("alive").is_err();
        self.clients[n] = (!over).then_some(client);
        keep
    }

    fn any_table(&mut self) -> (TableId, Table, Shape) {
        let mut ids: Vec<_> = self.tables.keys().copied().collect();
        ids.sort_unstable();
        let id = self.rng.pick(&ids);
        (id, self.tables[&id].clone(), self.shapes[&id])
    }

    fn any_row(&mut self, client: &Client) -> (Table, Shape, RowName) {
        let (id, table, shape) = self.any_table();
        // Often a row that is there.
        if self.rng.chance(50) {
            if let Some(change) = client.own.last()
                && self.rng.chance(30)
                && change.row.0 == id
                && change.row.1 == 0
            {
                return (table, shape, change.row.clone());
            }
            let from = shape.random_key(&mut self.rng, self.options.page_size);
            let rows = &self.model.now.tables[&id].trees[0];
            if let Some((key, _)) = rows.range(from..).next() {
                return (table, shape, (id, 0, key.clone()));
            }
        }
        let key = shape.random_key(&mut self.rng, self.options.page_size);
        (table, shape, (id, 0, key))
    }

    fn get(&mut self, n: usize, client: &mut Client) -> Outcome {
        let (table, _, row) = self.any_row(client);
        client.pin(&self.model.now, self.model.clock);
        self.trace(|| format!("{n}: get {} {}", row.0, show(&row.2)));
        let serializable = client.isolation == Isolation::Serializable;
        let may_wait = serializable && self.expect(n, client, &row).timeout;
        client.locks |= serializable;
        match client.txn.get(&table, &row.2) {
            Ok(found) => {
                let wanted = client.read(&self.model.now, &row);
                same_value(&row, found.as_deref(), wanted.as_deref())
            }
            Err(Error::LockTimeout { .. }) if may_wait => Ok(()),
            Err(error) => self.judge("get", &error),
        }
    }

    fn range(&mut self, n: usize, client: &mut Client) -> Outcome {
        let (id, table, shape) = self.any_table();
        client.pin(&self.model.now, self.model.clock);
        let tree = self.rng.below(table.trees().len() as u64) as usize;
        let mut keys = [(); 2].map(|()| shape.random_key(&mut self.rng, self.options.page_size));
        keys.sort();
        let [low, high] = if self.rng.chance(40) || tree > 0 {
            [vec![], vec![0xff; 20]]
        } else {
            keys
        };
        let backward = self.rng.chance(40);
        self.trace(|| format!("{n}: range of {id}.{tree} {} {}", show(&low), show(&high)));
        let serializable = client.isolation == Isolation::Serializable;
        let may_wait = serializable && self.others_work_in(n, id);
        client.locks |= serializable;
        let bounds = &low[..]..&high[..];
        let cursor = match backward {
            true => client.txn.range_backward(&table.trees()[tree], bounds),
            false => client.txn.range(&table.trees()[tree], bounds),
        };
        let found: Result<Vec<_>, _> = match cursor {
            Ok(cursor) => cursor.collect(),
            Err(error) => Err(error),
        };
        let mut found = match found {
            Ok(found) => found,
            Err(Error::LockTimeout { .. }) if may_wait => return Ok(()),
            Err(error) => return self.judge("range", &error),
        };
        if backward {
            found.reverse();
        }
        let view = client.view(&self.model.now);
        let mut wanted = std::collections::BTreeMap::new();
        if let Some(table) = view.tables.get(&id) {
            let rows = table.trees[tree].range(low.clone()..high.clone());
            wanted.extend(rows.map(|(key, value)| (key.clone(), value.clone())));
        }
        for (row, value) in &client.overlay {
            if row.0 == id && row.1 == tree && row.2 >= low && row.2 < high {
                match value {
                    Some(value) => wanted.insert(row.2.clone(), value.clone()),
                    None => wanted.remove(&row.2),
                };
            }
        }
        let same = found.len() == wanted.len()
            && found
                .iter()
                .zip(&wanted)
                .all(|(a, b)| a.0 == *b.0 && a.1[..] == b.1[..]);
        if !same {
            let found: std::collections::BTreeMap<_, _> = found.into_iter().collect();
            let off = wanted
                .iter()
                .find(|(k, v)| found.get(*k).map(|f| &f[..]) != Some(&v[..]))
                .map(|(k, _)| k)
                .or_else(|| found.keys().find(|k| !wanted.contains_key(*k)));
            let off = off.map(|k| show(k)).unwrap_or_default();
            let (is, should) = (found.len(), wanted.len());
            let level = client.isolation;
            return bug(format!(
                "{level:?} range of {id}.{tree} (backward: {backward}) has {is} rows, expected {should}; first off: {off}"
            ));
        }
        Ok(())
    }

    fn get_locking(&mut self, n: usize, client: &mut Client) -> Outcome {
        let (table, _, row) = self.any_row(client);
        client.pin(&self.model.now, self.model.clock);
        let mode = self.rng.pick(&[LockMode::Shared, LockMode::Exclusive]);
        let wait = self
            .rng
            .pick(&[Wait::NoWait, Wait::SkipLocked, Wait::Timeout]);
        let expected = self.expect(n, client, &row);
        client.locks = true;
        client.touched.insert(row.clone());
        self.trace(|| format!("{n}: lock {} {} {mode:?} {wait:?}", row.0, show(&row.2)));
        match client.txn.get_locking(&table, &row.2, mode, wait) {
            Ok(None) if wait == Wait::SkipLocked && expected.timeout => Ok(()),
            Ok(_) if expected.blocked => bug(format!("locked a changed row {}", show(&row.2))),
            Ok(found) => {
                let wanted = client.current(&self.model.now, &row);
                same_value(&row, found.as_deref(), wanted.as_deref())
            }
            Err(Error::WriteConflict) if expected.conflict => Ok(()),
            Err(Error::LockNotAvailable) if expected.timeout && wait == Wait::NoWait => Ok(()),
            Err(Error::LockTimeout { .. }) if expected.timeout && wait == Wait::Timeout => Ok(()),
            Err(error) => self.judge("locking read", &error),
        }
    }

    fn savepoint(&mut self, n: usize, client: &mut Client) -> Outcome {
        let choice = self.rng.below(10);
        if client.savepoints.is_empty() || choice < 4 {
            let name = format!("s{}", self.rng.below(3));
            self.trace(|| format!("{n}: savepoint {name}"));
            client.savepoints.retain(|(other, _)| *other != name);
            client.savepoints.push((name.clone(), client.own.len()));
            return match client.txn.savepoint(&name) {
                Ok(()) => Ok(()),
                Err(error) => self.judge("savepoint", &error),
            };
        }
        let at = self.rng.below(client.savepoints.len() as u64) as usize;
        let (name, length) = client.savepoints[at].clone();
        if choice == 4 {
            client.savepoints.truncate(at);
            return match client.txn.release_savepoint(&name) {
                Ok(()) => Ok(()),
                Err(error) => self.judge("release", &error),
            };
        }
        self.trace(|| format!("{n}: rollback to {name}"));
        client.savepoints.truncate(at + 1);
        client.undo_to(length);
        match client.txn.rollback_to_savepoint(&name) {
            Ok(()) => Ok(()),
            Err(error) => self.judge("rollback to a savepoint", &error),
        }
    }

    fn others_work_in(&self, n: usize, table: TableId) -> bool {
        let others = self.clients.iter().enumerate();
        let mut others = others
            .filter(|(m, _)| *m != n)
            .filter_map(|(_, c)| c.as_ref());
        others.any(|other| other.touched.iter().any(|row| row.0 == table) || other.locks)
            || self.prepared_in(|row| row.0 == table)
    }

    fn prepared_in(&self, mut test: impl FnMut(&RowName) -> bool) -> bool {
        let mut all = self.model.now.prepared.values();
        all.any(|changes| changes.iter().any(|change| test(&change.row)))
    }

    fn expect(&self, n: usize, client: &Client, row: &RowName) -> Expected {
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
        let result = match kind {
            Kind::Insert => txn.insert(tree, key, bytes).inspect(|()| agrees = !exists),
            Kind::Update => txn.update(tree, key, bytes).inspect(|()| agrees = exists),
            Kind::Upsert => txn
                .upsert(tree, key, bytes)
                .map(|new| agrees = new != exists),
            Kind::Delete => txn.delete(tree, key).map(|was| agrees = was == exists),
        };
        let name = format!("{kind:?} of {} in {}.{}", show(key), row.0, row.1);
        match &result {
            Ok(()) if expected.blocked => bug(format!("{name} passed another's change")),
            Ok(()) if expected.conflict && (exists || *kind != Kind::Delete) => {
                bug(format!("{name} overwrote a change after its snapshot"))
            }
            Ok(()) if !agrees => bug(format!("{name} found a row or not, wrongly: {exists}")),
            Ok(()) => Ok(result),
            Err(Error::DuplicateKey { .. }) if *kind == Kind::Insert && exists => Ok(result),
            Err(Error::RowNotFound { .. }) if *kind == Kind::Update && !exists => Ok(result),
            Err(Error::WriteConflict) if expected.conflict => Ok(result),
            Err(Error::LockTimeout { .. }) if expected.timeout => Ok(result),
            Err(error) => {
                self.judge(&name, error)?;
                Ok(result)
            }
        }
    }

    /// Runs row operations as one statement, which may be made to fail at its end. Whether it
    /// succeeded.
    fn statement(
        &mut self,
        n: usize,
        client: &mut Client,
        steps: &[RowStep],
        fail: bool,
    ) -> Outcome<bool> {
        client.pin(&self.model.now, self.model.clock);
        let before = client.own.len();
        let touched = steps.iter().map(|step| step.row.clone());
        client.touched.extend(touched);
        let single = steps.len() == 1 && !fail && self.rng.chance(60);
        let txn = client.txn.clone();
        let mut stop = None;
        let mut body = |txn: &Transaction| -> Result<(), Error> {
            for step in steps {
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
            match fail {
                true => Err(Error::TransactionState("told to fail")),
                false => Ok(()),
            }
        };
        let result = match single {
            true => body(&txn),
            false => txn.statement(body),
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
            Kind::Upsert,
            Kind::Delete,
            Kind::Delete,
        ];
        let kind = self.rng.pick(&kinds);
        let old = client.current(&self.model.now, &row);
        let value = (kind != Kind::Delete)
            .then(|| shape.value(&mut self.rng, old.as_ref(), self.options.page_size));
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

    fn write_row(&mut self, n: usize, client: &mut Client) -> Outcome {
        let steps = self.steps_for(client);
        let (row, kind) = (steps[0].row.clone(), steps[0].kind);
        let length = steps[0].value.as_ref().map_or(0, |v| v.len());
        self.trace(|| format!("{n}: {kind:?} {} {} of {length}", row.0, show(&row.2)));
        self.marks.add("row statements", 1);
        self.statement(n, client, &steps, false).map(drop)
    }

    fn failing_statement(&mut self, n: usize, client: &mut Client) -> Outcome {
        let mut steps = Vec::new();
        for _ in 0..self.rng.from_to(1, 5) {
            let more = self.steps_for(client);
            // A row twice would need the first change's outcome to plan the second.
            let twice = |step: &RowStep| steps.iter().any(|s: &RowStep| s.row == step.row);
            if !more.iter().any(twice) {
                steps.extend(more);
            }
        }
        self.trace(|| format!("{n}: failing statement of {}", steps.len()));
        self.marks.add("failing statements", 1);
        self.statement(n, client, &steps, true).map(drop)
    }

    fn bulk(&mut self, n: usize, client: &mut Client) -> Outcome {
        let (id, table, shape) = self.any_table();
        let most = if self.plan.heavy { 1500 } else { 150 };
        let count = self.rng.from_to(1, most).min(shape.domain);
        let first = self.rng.below(shape.domain);
        let (stride, sorted) = (self.rng.pick(&[1, 1, 3]), self.rng.chance(80));
        let mut numbers: Vec<u64> = (0..count).map(|i| first + i * stride).collect();
        if !sorted {
            numbers.reverse();
        }
        let page_size = self.options.page_size;
        let mut trees: Vec<Vec<(Vec<u8>, Vec<u8>)>> = vec![Vec::new(); table.trees().len()];
        let mut steps = Vec::new();
        for number in numbers {
            let key = shape.key(number, page_size);
            let value = shape.value(&mut self.rng, None, page_size);
            for (tree, rows) in trees.iter_mut().enumerate() {
                let (key, value) = match tree {
                    0 => (key.clone(), value.to_vec()),
                    _ => (secondary_key(tree, &key, &value), Vec::new()),
                };
                let row = (id, tree, key.clone());
                let expected = self.expect(n, client, &row);
                steps.push((row, value.clone(), expected));
                rows.push((key, value));
            }
        }
        for rows in trees.iter_mut().skip(1) {
            rows.sort();
        }
        self.trace(|| format!("{n}: bulk insert of {count} into {id}"));
        self.marks.add("bulk statements", 1);
        client.pin(&self.model.now, self.model.clock);
        client.touched.extend(steps.iter().map(|s| s.0.clone()));
        let result = client.txn.statement(|txn| {
            for (tree, rows) in table.trees().iter().zip(trees) {
                txn.insert_many(tree, rows)?;
            }
            Ok(())
        });
        let any = |test: &dyn Fn(&Expected) -> bool| steps.iter().any(|s| test(&s.2));
        match result {
            Ok(()) if any(&|e| e.exists || e.blocked || e.conflict) => {
                bug(format!("bulk insert into {id} passed rows that are there"))
            }
            Ok(()) => {
                for (row, value, _) in steps {
                    let value = Some(value.into());
                    client.changed(Change { row, value });
                }
                Ok(())
            }
            Err(Error::DuplicateKey { .. }) if any(&|e| e.exists) => Ok(()),
            Err(Error::WriteConflict) if any(&|e| e.conflict) => Ok(()),
            Err(Error::LockTimeout { .. }) if any(&|e| e.timeout) => Ok(()),
            Err(error) => self.judge("bulk insert", &error),
        }
    }

    fn commit(&mut self, n: usize, client: Client) -> Outcome {
        let durabilities = [Durability::Sync, Durability::Write, Durability::Lazy];
        let given = self.rng.chance(50).then(|| self.rng.pick(&durabilities));
        let durability = given.unwrap_or(self.options.flush_log_at_trx_commit);
        let Client { txn, own, .. } = client;
        let Some(txn) = std::rc::Rc::into_inner(txn) else {
            return bug("the driver has lost a transaction");
        };
        let result = match given {
            Some(durability) => txn.commit_with(durability),
            None => txn.commit(),
        };
        self.trace(|| format!("{n}: commit of {} {durability:?}: {result:?}", own.len()));
        self.marks.add("commits", 1);
        let wrote = !own.is_empty();
        if wrote {
            self.model.happened(Event::Commit(own));
        }
        match result {
            Ok(()) if wrote => {
                match durability {
                    Durability::Sync => self.model.synced(),
                    Durability::Write => self.model.written(),
                    Durability::Lazy => {}
                }
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(error) => self.end_of_commit("commit", error),
        }
    }

    /// A commit that fails leaves its outcome to recovery: the engine must be poisoned.
    fn end_of_commit(&self, what: &str, error: Error) -> Outcome {
        match error {
            Error::Poisoned(_) if self.tolerant || self.vfs.is_dead() => Err(Stop::Dead),
            error if self.vfs.is_dead() => bug(format!("{what}: not poisoned: {error}")),
            error => bug(format!("{what}: {error}")),
        }
    }

    fn roll_back(&mut self, n: usize, client: Client) -> Outcome {
        self.trace(|| format!("{n}: rollback of {}", client.own.len()));
        let Some(txn) = std::rc::Rc::into_inner(client.txn) else {
            return bug("the driver has lost a transaction");
        };
        if self.rng.chance(50) {
            drop(txn);
            return Ok(());
        }
        match txn.rollback() {
            Ok(()) => Ok(()),
            Err(error) => self.judge("rollback", &error),
        }
    }

    fn prepare(&mut self, n: usize, client: Client) -> Outcome {
        self.names += 1;
        let xid = format!("xid{}", self.names).into_bytes();
        self.trace(|| format!("{n}: prepare xid{} of {}", self.names, client.own.len()));
        let Some(txn) = std::rc::Rc::into_inner(client.txn) else {
            return bug("the driver has lost a transaction");
        };
        let result = txn.prepare(&xid);
        self.marks.add("prepares", 1);
        self.model
            .happened(Event::Prepare(xid, Arc::new(client.own)));
        match result {
            Ok(()) => {
                self.model.synced();
                Ok(())
            }
            Err(error) => self.end_of_commit("prepare", error),
        }
    }

    /// Decides a prepared transaction.
    fn decide(&mut self) -> Outcome {
        let xids: Vec<_> = self.model.now.prepared.keys().cloned().collect();
        if xids.is_empty() {
            return Ok(());
        }
        let xid = xids[self.rng.below(xids.len() as u64) as usize].clone();
        let commit = self.rng.chance(50);
        let name = String::from_utf8_lossy(&xid).into_owned();
        self.trace(|| format!("decide {name}: commit {commit}"));
        let db = self.database();
        if commit {
            let result = db.commit_prepared(&xid);
            self.model.happened(Event::CommitPrepared(xid));
            return match result {
                Ok(()) => {
                    self.model.synced();
                    Ok(())
                }
                Err(error) => self.end_of_commit("commit of a prepared transaction", error),
            };
        }
        for _ in 0..3 {
            let result = db.rollback_prepared(&xid);
            match result {
                Ok(()) => {
                    self.model.happened(Event::RollbackPrepared(xid));
                    return Ok(());
                }
                Err(error @ Error::NotFound(_)) => {
                    return bug(format!("{name} is lost after a failed rollback: {error}"));
                }
                Err(error) => {
                    if let Err(stop) = self.judge("rollback of a prepared transaction", &error) {
                        self.model.happened(Event::RollbackPrepared(xid));
                        return Err(stop);
                    }
                }
            }
        }
        bug(format!("{name} cannot be rolled back"))
    }

    /// What the background does, at a time of the driver's choosing.
    fn upkeep(&mut self) -> Outcome {
        let db = self.database();
        let choice = self.rng.below(14);
        self.trace(|| format!("upkeep {choice}"));
        let (result, durable) = match choice {
            0..=1 => (db.checkpoint(), true),
            2..=3 => (db.purge(), false),
            4 => (db.flush_log(), true),
            5..=6 => {
                let (_, table, _) = self.any_table();
                (db.flush_table(&table), false)
            }
            7..=8 => {
                let limit = self.rng.pick(&[0, 4 << 10, 1 << 20]);
                (db.maintain(limit), false)
            }
            9..=10 => {
                let (_, table, _) = self.any_table();
                (db.shrink_table(&table).map(drop), false)
            }
            _ => (db.maintain(self.options.log_file_size / 2), false),
        };
        match result {
            Ok(()) if durable => {
                self.model.synced();
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(error) => self.judge("upkeep", &error),
        }
    }

    fn new_name(&mut self) -> String {
        self.names += 1;
        format!("t{}", self.names)
    }

    fn create(&mut self) -> Outcome {
        if self.tables.len() >= TABLES_MAX {
            return Ok(());
        }
        let name = self.new_name();
        let trees = self.rng.pick(&["", "a", "a", "ab"]);
        let secondary: Vec<String> = trees.chars().map(|c| c.to_string()).collect();
        let secondary: Vec<&str> = secondary.iter().map(String::as_str).collect();
        let id = self.model.new_table_id();
        let shape = Shape::random(&mut self.rng, self.plan.heavy);
        self.shapes.insert(id, shape);
        self.trace(|| format!("create {name} as {id} with {trees:?}: {shape:?}"));
        self.marks.add("creates", 1);
        let result = self.database().create_table(&name, &secondary);
        let event = Event::Create(id, name.clone(), secondary.len() + 1);
        match result {
            Ok(table) => {
                self.model.happened(event);
                self.model.synced();
                self.tables.insert(id, table);
                Ok(())
            }
            Err(error) => self.failed_ddl("create", &error, event, |names| names.contains(&name)),
        }
    }

    fn drop_table(&mut self) -> Outcome {
        let (id, table, _) = self.any_table();
        drop(table);
        let name = self.model.now.tables[&id].name.clone();
        self.trace(|| format!("drop {name}, {id}"));
        self.marks.add("drops", 1);
        self.tables.remove(&id);
        match self.database().drop_table(&name) {
            Ok(()) => {
                self.model.happened(Event::Drop(id));
                self.model.synced();
                Ok(())
            }
            Err(error) => self.failed_ddl("drop", &error, Event::Drop(id), |names| {
                names.iter().all(|n| *n != name)
            }),
        }
    }

    fn rename(&mut self) -> Outcome {
        let (id, _, _) = self.any_table();
        let name = self.model.now.tables[&id].name.clone();
        let to = self.new_name();
        self.trace(|| format!("rename {name}, {id}, to {to}"));
        let event = Event::Rename(id, to.clone());
        match self.database().rename_table(&name, &to) {
            Ok(()) => {
                self.model.happened(event);
                self.model.synced();
                Ok(())
            }
            Err(error) => self.failed_ddl("rename", &error, event, |names| names.contains(&to)),
        }
    }

    /// DDL failed: it may have happened if the engine is dead; else the catalog says whether.
    fn failed_ddl(
        &mut self,
        what: &str,
        error: &Error,
        event: Event,
        happened: impl Fn(&[String]) -> bool,
    ) -> Outcome {
        if let Err(stop) = self.judge(what, error) {
            if matches!(stop, Stop::Dead) {
                self.model.happened(event);
            }
            return Err(stop);
        }
        let names = match self.database().tables() {
            Ok(names) => names,
            Err(error) if is_fault(&error) => self.database().tables().unwrap_or_default(),
            Err(error) => return bug(format!("list of tables: {error}")),
        };
        if happened(&names) {
            self.model.happened(event);
        }
        let db = self.database();
        self.tables.clear();
        for (&id, table) in &self.model.now.tables {
            if let Ok(handle) = db.table(&table.name) {
                self.tables.insert(id, handle);
            }
        }
        Ok(())
    }
}

fn same_value(row: &RowName, found: Option<&[u8]>, wanted: Option<&[u8]>) -> Outcome {
    if found == wanted {
        return Ok(());
    }
    let text = |value: Option<&[u8]>| value.map_or("nothing".into(), show);
    let (found, wanted) = (text(found), text(wanted));
    let (table, tree, key) = (row.0, row.1, show(&row.2));
    bug(format!(
        "key {key} in {table}.{tree} is {found}, expected {wanted}"
    ))
}
