//! A client: random transactions on the engine, recorded as it sees them.

use super::life::{Plan, Shape};
use super::rows::{key_bytes, key_of, range_bytes, value_bytes, value_of};
use super::{Action, Key, Op, Outcome, Range, ScanKind, Time, Txn, Value};
use crate::Rng;
use inkstone::{
    Database, Durability, Error, Interrupt, Isolation, LockMode, Mark, Table, Transaction, Wait,
};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Elements in a list, about at most: then another list takes its place.
const LIST_LENGTH_MAX: usize = 48;
/// Lists that are worked on at a time.
const LISTS: u32 = 5;
const REGISTERS: u64 = 4;
const ROW_RANGES: u64 = 3;
/// Rows in a range, about.
const ROWS: usize = 8;

/// Longer than any wait lasts while no hand-off is lost and each deadlock is found.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the clients of a run share.
pub(super) struct World {
    pub plan: Plan,
    pub shape: Shape,
    /// Moments: see the module.
    pub clock: AtomicU64,
    /// The latest element that was given out.
    pub element: AtomicU64,
    /// The first of the lists that are worked on.
    pub lists: AtomicU32,
    /// Each client's: any client may raise it.
    pub interrupts: Vec<Interrupt>,
    /// Statements that were interrupted.
    pub interrupted: AtomicU64,
    pub merges: AtomicU64,
    pub range_deletes: AtomicU64,
    /// A client has found something wrong: the others need not go on.
    pub over: AtomicBool,
}

impl World {
    fn tick(&self) -> Time {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn new_element(&self) -> u64 {
        self.element.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// A client.
pub(super) struct Client<'w> {
    pub world: &'w World,
    pub db: &'w Database,
    pub table: &'w Table,
    pub vfs: &'w SimVfs,
    pub number: u32,
    pub rng: Rng,
}

/// Why a statement was not done.
enum Stop {
    Engine(Error),
    /// The engine does not do what it promises.
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

type Done<T = ()> = Result<T, Stop>;

/// A transaction under way.
struct Running {
    txn: Transaction,
    level: Isolation,
    ops: Vec<Op>,
    savepoint: bool,
    /// A mark behind the savepoint that was gone back to since.
    void: Option<Mark>,
    /// Rows that a scan found.
    rows: Vec<Key>,
    /// It only merges, and reads nothing but what it has merged: see [`Client::merge`].
    only_merges: bool,
}

impl Running {
    /// Whether it has changed anything since its savepoint.
    fn has_written(&self) -> bool {
        let since = self.ops.iter().rev();
        since
            .take_while(|op| !matches!(op.action, Action::Savepoint | Action::RollBack))
            .any(|op| matches!(op.action, Action::Write { .. }))
    }

    fn note(&mut self, at: Time, action: Action) {
        self.ops.push(Op { at, action });
    }

    /// Whether all of its reads lock.
    fn locks_all(&self) -> bool {
        self.level == Isolation::LockingRepeatableRead
    }
}

impl Client<'_> {
    /// Runs transactions until there are enough or the disk is dead. What was recorded, and what is
    /// wrong beyond what a check of the history would find.
    pub fn run(mut self) -> (Vec<Txn>, Option<String>) {
        let mut txns = Vec::new();
        while txns.len() < self.world.plan.transactions && !self.is_over() {
            crate::campaign::alive();
            match self.transaction() {
                Ok(Some(txn)) => txns.push(txn),
                Ok(None) => break,
                Err(text) => {
                    self.world.over.store(true, Ordering::SeqCst);
                    return (txns, Some(format!("client {}: {text}", self.number)));
                }
            }
        }
        (txns, None)
    }

    fn is_over(&self) -> bool {
        self.vfs.is_dead() || self.world.over.load(Ordering::SeqCst)
    }

    fn transaction(&mut self) -> Result<Option<Txn>, String> {
        const LEVELS: [Isolation; 3] = [
            Isolation::ReadCommitted,
            Isolation::RepeatableRead,
            Isolation::Serializable,
        ];
        let level = self.world.plan.level;
        let level = level.unwrap_or_else(|| self.rng.pick(&LEVELS));
        let begin = self.world.tick();
        let mut txn = match self.db.begin(level) {
            Ok(txn) => txn,
            Err(_) if self.vfs.is_dead() => return Ok(None),
            Err(error) => return Err(format!("begin: {error}")),
        };
        txn.set_interrupt(self.interrupt());
        // A transaction with patience gets its lock, or is part of a deadlock: it never waits in
        // vain.
        let patience = if self.rng.chance(40) {
            PATIENCE
        } else {
            Duration::from_millis(self.rng.from_to(5, 300))
        };
        txn.set_lock_wait_timeout(patience);
        let mut running = Running {
            txn,
            level,
            ops: Vec::new(),
            savepoint: false,
            void: None,
            rows: Vec::new(),
            only_merges: level == Isolation::RepeatableRead && self.rng.chance(20),
        };
        let steps = if self.rng.chance(4) {
            self.rng.from_to(15, 40)
        } else {
            self.rng.from_to(1, self.world.shape.steps_max)
        };
        let mut over = None;
        for _ in 0..steps {
            if self.world.over.load(Ordering::SeqCst) {
                over = Some("another client found something wrong".to_owned());
                break;
            }
            self.pause();
            self.interrupt().clear();
            over = match self.step(&mut running) {
                Ok(()) => None,
                Err(Stop::Wrong(text)) => return Err(text),
                Err(Stop::Engine(error)) => self.judge(level, &error)?,
            };
            if over.is_some() {
                break;
            }
        }
        self.pause();
        let Running { txn, ops, .. } = running;
        let outcome = match over {
            Some(why) => {
                drop(txn);
                Outcome::Aborted(why)
            }
            None => self.end(txn)?,
        };
        Ok(Some(Txn {
            client: self.number,
            level,
            begin,
            ops,
            outcome,
        }))
    }

    /// After an error: why the transaction is over, if it is.
    fn judge(&mut self, level: Isolation, error: &Error) -> Result<Option<String>, String> {
        if self.vfs.is_dead() {
            return Ok(Some("the process died".to_owned()));
        }
        let snapshot = level == Isolation::RepeatableRead;
        // Read committed locks no row that is not there.
        let free = level == Isolation::ReadCommitted;
        match error {
            Error::Deadlock => return Ok(Some("deadlock".to_owned())),
            Error::LockTimeout { waited_ms, .. }
                if u128::from(*waited_ms) >= PATIENCE.as_millis() =>
            {
                return Err(format!("{level:?}: a lock that never came: {error}"));
            }
            Error::DuplicateKey { .. } if free => {}
            Error::LockTimeout { .. } | Error::LockNotAvailable => {}
            Error::Interrupted => {
                self.world.interrupted.fetch_add(1, Ordering::Relaxed);
            }
            Error::WriteConflict | Error::DuplicateKey { .. } if snapshot => {}
            error => return Err(format!("{level:?} fails with: {error}")),
        }
        // The statement had no effect: the transaction may go on.
        Ok(self.rng.chance(60).then(|| error.to_string()))
    }

    fn end(&mut self, txn: Transaction) -> Result<Outcome, String> {
        if self.rng.chance(8) {
            return match txn.rollback() {
                Err(error) if !self.vfs.is_dead() => Err(format!("rollback: {error}")),
                _ => Ok(Outcome::Aborted("rollback".to_owned())),
            };
        }
        let durability = self.rng.pick(&[
            Durability::Sync,
            Durability::Sync,
            Durability::Write,
            Durability::Lazy,
        ]);
        match txn.commit_with(durability) {
            Ok(()) => Ok(Outcome::Committed {
                at: self.world.tick(),
                durability,
            }),
            Err(Error::Deadlock) => Ok(Outcome::Aborted("deadlock".to_owned())),
            Err(_) if self.vfs.is_dead() => Ok(Outcome::Unknown),
            Err(error) => Err(format!("commit: {error}")),
        }
    }

    fn interrupt(&self) -> &Interrupt {
        &self.world.interrupts[self.number as usize]
    }

    /// Lets others run, or interrupts one.
    fn pause(&mut self) {
        if self.rng.chance(self.world.shape.interrupt_percent) {
            let interrupts = &self.world.interrupts;
            interrupts[self.rng.below(interrupts.len() as u64) as usize].raise();
        }
        match self.rng.below(100) {
            chance if chance < self.world.shape.sleep_percent => {
                std::thread::sleep(Duration::from_micros(self.rng.below(300)));
            }
            chance if chance < 70 => std::thread::yield_now(),
            _ => {}
        }
    }

    fn step(&mut self, running: &mut Running) -> Done {
        if running.only_merges {
            return match self.rng.below(8) {
                0 => self.savepoint(running),
                1 => self.read_merged(running),
                _ => self.merge(running),
            };
        }
        match self.rng.below(self.world.shape.total()) {
            dice if dice < self.world.shape.lists => self.list(running),
            dice if dice < self.world.shape.lists + self.world.shape.registers => {
                self.register(running)
            }
            _ => match self.rng.below(8) {
                0 => self.savepoint(running),
                1 | 2 => self.scan_lists(running),
                _ => self.rows(running),
            },
        }
    }

    fn savepoint(&mut self, running: &mut Running) -> Done {
        let at = self.world.tick();
        if let Some(void) = running.void {
            match running.txn.rollback_to_mark(void) {
                Err(Error::TransactionState(_)) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => return Err(Stop::Wrong("a void mark is gone back to".to_owned())),
            }
        }
        if running.savepoint && self.rng.chance(60) {
            let mark = running.txn.mark()?;
            running.txn.rollback_to_savepoint("s")?;
            if running.has_written() {
                running.void = Some(mark);
            }
            running.note(at, Action::RollBack);
        } else {
            running.txn.savepoint("s")?;
            running.savepoint = true;
            running.note(at, Action::Savepoint);
        }
        Ok(())
    }

    fn wait(&mut self) -> Wait {
        if self.rng.chance(10) {
            Wait::NoWait
        } else {
            Wait::Timeout
        }
    }

    /// Reads a key.
    fn read(&mut self, running: &mut Running, key: Key, lock: Option<LockMode>) -> Done<Value> {
        let at = self.world.tick();
        let bytes = key_bytes(key);
        let lock = if running.locks_all() {
            lock.or(Some(LockMode::Shared))
        } else {
            lock
        };
        let found = match lock {
            Some(mode) => {
                let wait = self.wait();
                running.txn.get_locking(self.table, &bytes, mode, wait)?
            }
            None if self.rng.chance(30) => {
                running.txn.get_slice(self.table, &bytes, 0..u64::MAX)?
            }
            None => running.txn.get(self.table, &bytes)?,
        };
        let value = decoded(key, found.as_deref())?;
        // Read committed locks no row that is not there.
        let locks = found.is_some() || running.level != Isolation::ReadCommitted;
        let action = Action::Read {
            key,
            value: value.clone(),
            locking: lock.is_some() && locks,
        };
        running.note(at, action);
        Ok(value)
    }

    /// Makes a key's new version, of one that is there or not.
    fn write(&mut self, running: &mut Running, key: Key, value: Value, exists: bool) -> Done {
        let at = self.world.tick();
        let padding = self.rng.pick(&self.world.shape.paddings) as usize;
        let (key_bytes, bytes) = (key_bytes(key), value_bytes(&value, padding));
        let (txn, table) = (&running.txn, self.table);
        let parts = match self.rng.below(3) {
            0 => parts_of(&bytes),
            _ => Vec::new(),
        };
        match (exists, self.rng.below(10)) {
            // It would pass over a row that came after this transaction saw none.
            (false, _) if running.level == Isolation::ReadCommitted => {
                txn.insert_with_parts(table, &key_bytes, &bytes, &parts)?;
            }
            (_, 0..3) => drop(txn.upsert_with_parts(table, &key_bytes, &bytes, &parts)?),
            (false, _) => txn.insert_with_parts(table, &key_bytes, &bytes, &parts)?,
            // No other transaction may see it gone.
            (true, 3) => {
                if !txn.delete(table, &key_bytes)? {
                    return Err(Stop::Wrong(format!("{key} is gone: it cannot be deleted")));
                }
                let mut inserted = txn.insert(table, &key_bytes, &bytes);
                while matches!(inserted, Err(Error::Interrupted)) {
                    self.interrupt().clear();
                    inserted = txn.insert(table, &key_bytes, &bytes);
                }
                inserted.map_err(|error| self.unexpected("an insert after a delete", error))?;
            }
            (true, _) => txn.update_with_parts(table, &key_bytes, &bytes, &parts)?,
        }
        running.note(at, Action::Write { key, value });
        Ok(())
    }

    /// An error that only the death of the process explains.
    fn unexpected(&self, what: &str, error: Error) -> Stop {
        if self.vfs.is_dead() {
            Stop::Engine(error)
        } else {
            Stop::Wrong(format!("{what} fails with: {error}"))
        }
    }

    fn lock_mode(&mut self, percent: u64) -> Option<LockMode> {
        let mode = self.rng.pick(&[LockMode::Shared, LockMode::Exclusive]);
        self.rng.chance(percent).then_some(mode)
    }

    /// Reads a list or appends to it. At read committed an append locks what it read: the
    /// versions of lists must follow from each other.
    fn list(&mut self, running: &mut Running) -> Done {
        let first = self.world.lists.load(Ordering::Relaxed);
        let number = first + self.rng.below(u64::from(LISTS)) as u32;
        let key = Key::List(number);
        if self.rng.chance(45) {
            let lock = self.lock_mode(15);
            return self.read(running, key, lock).map(drop);
        }
        if running.level != Isolation::RepeatableRead && self.rng.chance(25) {
            return self.merge(running);
        }
        let lock = running.level == Isolation::ReadCommitted || self.rng.chance(30);
        let mut value = self.read(running, key, lock.then_some(LockMode::Exclusive))?;
        let exists = !value.is_empty();
        if value.len() >= LIST_LENGTH_MAX {
            let lists = &self.world.lists;
            let _ = lists.compare_exchange(first, first + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
        value.push(self.world.new_element());
        self.pause();
        self.write(running, key, value, exists)
    }

    /// Appends to a list without having read it.
    ///
    /// At repeatable read a merge passes over changes that are newer than the snapshot, and so may
    /// a read beside it not be repeatable with what was merged. A transaction that merges there
    /// reads nothing that it has not merged, and what the merge saw is no read of its.
    fn merge(&mut self, running: &mut Running) -> Done {
        let at = self.world.tick();
        let first = self.world.lists.load(Ordering::Relaxed);
        let key = Key::List(first + self.rng.below(u64::from(LISTS)) as u32);
        let element = self.world.new_element();
        let padding = self.rng.pick(&self.world.shape.paddings) as usize;
        let mut seen = Ok(Value::new());
        let merge = running.txn.merge(self.table, &key_bytes(key), |old| {
            seen = decoded(key, old);
            let mut value = seen.as_ref().map_or_else(|_| Value::new(), Value::clone);
            value.push(element);
            value_bytes(&value, padding)
        });
        merge?;
        let mut value = seen?;
        self.world.merges.fetch_add(1, Ordering::Relaxed);
        if running.level != Isolation::RepeatableRead {
            let action = Action::Read {
                key,
                value: value.clone(),
                locking: !value.is_empty() || running.level != Isolation::ReadCommitted,
            };
            running.note(at, action);
        }
        if value.len() >= LIST_LENGTH_MAX {
            let lists = &self.world.lists;
            let _ = lists.compare_exchange(first, first + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
        value.push(element);
        running.note(at, Action::Write { key, value });
        Ok(())
    }

    /// Reads what the transaction has merged, and not undone.
    fn read_merged(&mut self, running: &mut Running) -> Done {
        let ops = running.ops.iter().rev();
        let kept = ops.take_while(|op| !matches!(op.action, Action::RollBack));
        let merged: Vec<Key> = kept
            .filter_map(|op| match op.action {
                Action::Write { key, .. } => Some(key),
                _ => None,
            })
            .collect();
        if merged.is_empty() {
            return Ok(());
        }
        let key = merged[self.rng.below(merged.len() as u64) as usize];
        self.read(running, key, None).map(drop)
    }

    /// Reads a register, or writes it, having read it or not.
    fn register(&mut self, running: &mut Running) -> Done {
        let key = Key::Register(self.rng.below(REGISTERS) as u32);
        let lock = self.lock_mode(15);
        match self.rng.below(10) {
            0..4 => self.read(running, key, lock).map(drop),
            4..9 => {
                let value = self.read(running, key, lock)?;
                self.pause();
                // Without a lock it may have come or gone since.
                let exists = !value.is_empty() && running.level != Isolation::ReadCommitted;
                self.set(running, key, exists)
            }
            _ => self.set(running, key, false),
        }
    }

    fn set(&mut self, running: &mut Running, key: Key, exists: bool) -> Done {
        let value = vec![self.world.new_element()];
        if exists {
            return self.write(running, key, value, true);
        }
        let at = self.world.tick();
        let padding = self.rng.pick(&self.world.shape.paddings) as usize;
        let bytes = value_bytes(&value, padding);
        running.txn.upsert(self.table, &key_bytes(key), &bytes)?;
        running.note(at, Action::Write { key, value });
        Ok(())
    }

    fn scan(&mut self, running: &mut Running, range: Range) -> Done {
        let at = self.world.tick();
        let (low, high) = range_bytes(range);
        let (low, high) = (&low[..], &high[..]);
        let (txn, table) = (&running.txn, self.table);
        let kind = match self.rng.below(20) {
            0 => ScanKind::SkipLocked,
            1 | 2 => ScanKind::Locking,
            _ if running.locks_all() => ScanKind::Locking,
            _ => ScanKind::Plain,
        };
        let mode = self.rng.pick(&[LockMode::Shared, LockMode::Exclusive]);
        let rows: Vec<_> = match kind {
            ScanKind::Plain if self.rng.chance(30) => txn
                .range_backward(table, low..high)?
                .collect::<Result<_, _>>()?,
            ScanKind::Plain => txn.range(table, low..high)?.collect::<Result<_, _>>()?,
            ScanKind::Locking if self.rng.chance(30) => {
                let mut scan = txn.locking_scan_of(table, low..high, true, mode, Wait::Timeout)?;
                let mut rows = Vec::new();
                while scan.next_row(txn)? {
                    rows.push((scan.key().to_vec(), scan.value().to_vec()));
                }
                rows
            }
            ScanKind::Locking => txn
                .range_locking(table, low..high, mode, Wait::Timeout)?
                .collect::<Result<_, _>>()?,
            ScanKind::SkipLocked => txn
                .range_locking(table, low..high, mode, Wait::SkipLocked)?
                .collect::<Result<_, _>>()?,
        };
        let found = state(&rows)?;
        if let Range::Rows(_) = range {
            running.rows = found.keys().copied().collect();
        }
        running.note(at, Action::Scan { range, found, kind });
        Ok(())
    }

    fn scan_lists(&mut self, running: &mut Running) -> Done {
        let first = self.world.lists.load(Ordering::Relaxed);
        let low = first + self.rng.below(u64::from(LISTS)) as u32;
        let high = low + 1 + self.rng.below(u64::from(LISTS)) as u32;
        self.scan(running, Range::Lists(low, high))
    }

    /// Scans rows, and then adds some or deletes some: what it decides by may change meanwhile.
    fn rows(&mut self, running: &mut Running) -> Done {
        let range = self.rng.below(ROW_RANGES) as u32;
        self.scan(running, Range::Rows(range))?;
        self.pause();
        match self.rng.below(10) {
            0..5 => Ok(()),
            _ if running.rows.len() > 2 * ROWS && self.rng.chance(60) => {
                self.delete_range(running, range)
            }
            _ if running.rows.len() > ROWS => self.delete(running),
            5 if self.rng.chance(30) => self.delete_range(running, range),
            5 => self.insert_many(running, range),
            6 | 7 => self.insert(running, range),
            8 => self.insert(running, (range + 1) % ROW_RANGES as u32),
            _ => self.delete(running),
        }
    }

    fn insert(&mut self, running: &mut Running, range: u32) -> Done {
        let id = self.world.new_element();
        self.write(running, Key::Row { range, id }, vec![id], false)
    }

    fn insert_many(&mut self, running: &mut Running, range: u32) -> Done {
        let at = self.world.tick();
        // So many that a delete of the range gives them one version.
        let many = self.rng.chance(20) && running.rows.len() <= ROWS;
        let count = if many { 24 } else { self.rng.from_to(2, 4) };
        let ids: Vec<u64> = (0..count).map(|_| self.world.new_element()).collect();
        let padding = self.rng.pick(&self.world.shape.paddings) as usize;
        let mut rows: Vec<_> = ids
            .iter()
            .map(|&id| {
                (
                    key_bytes(Key::Row { range, id }),
                    value_bytes(&vec![id], padding),
                )
            })
            .collect();
        rows.sort();
        running.txn.insert_many(self.table, rows)?;
        for id in ids {
            let (key, value) = (Key::Row { range, id }, vec![id]);
            running.note(at, Action::Write { key, value });
        }
        Ok(())
    }

    /// Deletes all rows of a range, which it has locked before to know them.
    fn delete_range(&mut self, running: &mut Running, range: u32) -> Done {
        let (low, high) = range_bytes(Range::Rows(range));
        let (low, high) = (&low[..], &high[..]);
        let at = self.world.tick();
        let (mode, wait) = (LockMode::Exclusive, Wait::Timeout);
        let rows = running
            .txn
            .range_locking(self.table, low..high, mode, wait)?;
        let found = state(&rows.collect::<Result<Vec<_>, _>>()?)?;
        running.rows = found.keys().copied().collect();
        let (range, kind) = (Range::Rows(range), ScanKind::Locking);
        let keys = running.rows.clone();
        running.note(at, Action::Scan { range, found, kind });
        self.pause();
        let at = self.world.tick();
        let mark = running.txn.mark()?;
        let deleted = running.txn.delete_range(self.table, low..high)?;
        if deleted != keys.len() as u64 {
            // Read committed locks no row that is not there, so more may have come since.
            if running.level != Isolation::ReadCommitted || deleted < keys.len() as u64 {
                let text = format!("{} rows were locked, and {deleted} deleted", keys.len());
                return Err(Stop::Wrong(text));
            }
            running.txn.rollback_to_mark(mark)?;
            return Ok(());
        }
        self.world.range_deletes.fetch_add(1, Ordering::Relaxed);
        running.rows.clear();
        for key in keys {
            let value = Value::new();
            running.note(at, Action::Write { key, value });
        }
        Ok(())
    }

    /// Deletes a row that a scan found. If another transaction has done so, that is something read.
    fn delete(&mut self, running: &mut Running) -> Done {
        if running.rows.is_empty() {
            return Ok(());
        }
        let at = self.world.tick();
        let key = running.rows[self.rng.below(running.rows.len() as u64) as usize];
        if running.txn.delete(self.table, &key_bytes(key))? {
            let value = Value::new();
            running.note(at, Action::Write { key, value });
        } else if running.level == Isolation::ReadCommitted {
            let (value, locking) = (Value::new(), false);
            running.note(
                at,
                Action::Read {
                    key,
                    value,
                    locking,
                },
            );
        } else {
            let value = self.read(running, key, None)?;
            let text = format!("{key} is {value:?}, and a delete does not find it");
            return if value.is_empty() {
                Ok(())
            } else {
                Err(Stop::Wrong(text))
            };
        }
        Ok(())
    }
}

/// What may leave a row: two parts of its value.
fn parts_of(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let third = bytes.len() / 3;
    vec![4.min(third)..third, 2 * third..bytes.len()]
}

fn decoded(key: Key, bytes: Option<&[u8]>) -> Done<Value> {
    let value = bytes.map_or_else(|| Ok(Value::new()), value_of);
    value.map_err(|text| Stop::Wrong(format!("{key}: {text}")))
}

fn state(rows: &[(Vec<u8>, Vec<u8>)]) -> Done<BTreeMap<Key, Value>> {
    let mut found = BTreeMap::new();
    for (key, bytes) in rows {
        let key = key_of(key).ok_or_else(|| Stop::Wrong(format!("no key: {key:?}")))?;
        found.insert(key, decoded(key, Some(bytes))?);
    }
    if found.len() == rows.len() {
        Ok(found)
    } else {
        Err(Stop::Wrong("a scan returns a key twice".to_owned()))
    }
}

/// All that the table holds.
pub(super) fn everything(db: &Database, table: &Table) -> Result<BTreeMap<Key, Value>, String> {
    let read = || -> Done<BTreeMap<Key, Value>> {
        let txn = db.begin(Isolation::ReadCommitted)?;
        let rows: Vec<_> = txn.range(table, ..)?.collect::<Result<_, _>>()?;
        state(&rows)
    };
    read().map_err(|stop| match stop {
        Stop::Engine(error) => format!("reading everything: {error}"),
        Stop::Wrong(text) => text,
    })
}
