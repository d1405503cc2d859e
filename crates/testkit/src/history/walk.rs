//! One transaction alone: which versions of others it read, what it wrote in the end, and whether
//! what it saw agrees with what it had done and seen before.

use super::check::{Anomaly, Class};
use super::{Action, Key, Op, ScanKind, Txn, Value};
use inkstone::Isolation;
use std::collections::{BTreeSet, HashMap, HashSet};

/// What became of something written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The transaction's last word on the key.
    Last,
    /// Written over by the same transaction.
    Intermediate,
    /// Undone by a rollback to a savepoint.
    Undone,
}

/// A version that a transaction made.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub key: Key,
    pub value: Value,
    pub fate: Fate,
    /// What it had last read of the key from others before it first wrote it.
    pub read_before: Option<Value>,
}

/// A version of another transaction's that a transaction read.
#[derive(Clone, Debug)]
pub(super) struct External {
    /// The place of the statement in the transaction.
    pub op: usize,
    pub key: Key,
    pub value: Value,
    /// Whether the key was not named, but belongs to a range that was read.
    pub predicate: bool,
    /// Whether the statement read all of it as of one moment.
    pub snapshot: bool,
}

/// A transaction taken apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Walked {
    pub reads: Vec<External>,
    pub writes: Vec<Written>,
    pub anomalies: Vec<Anomaly>,
}

struct Walk<'a> {
    txn: &'a Txn,
    name: usize,
    keys: &'a BTreeSet<Key>,
    /// What the transaction has made of keys, and not undone.
    own: HashMap<Key, Value>,
    saved: HashMap<Key, Value>,
    /// What it first read of others.
    base: HashMap<Key, Value>,
    /// Keys that it has locked by reading.
    locked: HashSet<Key>,
    out: Walked,
}

/// Takes a transaction apart. `keys`: all that there are, so that a scan also reads those that it
/// does not find.
pub(super) fn walk(name: usize, txn: &Txn, keys: &BTreeSet<Key>) -> Walked {
    let mut walk = Walk {
        txn,
        name,
        keys,
        own: HashMap::new(),
        saved: HashMap::new(),
        base: HashMap::new(),
        locked: HashSet::new(),
        out: Walked::default(),
    };
    let mut savepoint = 0;
    for (at, op) in txn.ops.iter().enumerate() {
        match &op.action {
            Action::Savepoint => {
                walk.saved = walk.own.clone();
                savepoint = walk.out.writes.len();
            }
            Action::RollBack => {
                walk.own = walk.saved.clone();
                for written in &mut walk.out.writes[savepoint..] {
                    written.fate = Fate::Undone;
                }
            }
            _ => walk.access(at, op),
        }
    }
    walk.settle();
    walk.out
}

impl Walk<'_> {
    fn access(&mut self, at: usize, op: &Op) {
        match &op.action {
            Action::Read {
                key,
                value,
                locking,
            } => {
                self.read(at, *key, value, false, true);
                if *locking {
                    self.lock(*key, value);
                }
            }
            Action::Scan { range, found, kind } => {
                let (low, high) = range.bounds();
                let nothing = Value::new();
                for &key in self.keys.range(low..high) {
                    let value = match found.get(&key) {
                        Some(value) => value,
                        None if *kind == ScanKind::SkipLocked => continue,
                        None => &nothing,
                    };
                    self.read(at, key, value, true, *kind == ScanKind::Plain);
                    if *kind != ScanKind::Plain && !value.is_empty() {
                        self.lock(key, value);
                    }
                }
            }
            Action::Write { key, value } => {
                self.own.insert(*key, value.clone());
                self.out.writes.push(Written {
                    key: *key,
                    value: value.clone(),
                    fate: Fate::Intermediate,
                    read_before: self.base.get(key).cloned(),
                });
            }
            Action::Savepoint | Action::RollBack => {}
        }
    }

    /// Writes that are the last of their key.
    fn settle(&mut self) {
        let mut later = HashSet::new();
        for written in self.out.writes.iter_mut().rev() {
            if written.fate != Fate::Undone && later.insert(written.key) {
                written.fate = Fate::Last;
            }
        }
    }

    fn lock(&mut self, key: Key, value: &Value) {
        self.locked.insert(key);
        if !self.own.contains_key(&key) {
            self.base.insert(key, value.clone());
        } else if self.txn.level == Isolation::ReadCommitted {
            // What lies below its own version was not read, and will not change from here on.
            self.base.remove(&key);
        }
    }

    fn read(&mut self, op: usize, key: Key, value: &Value, predicate: bool, snapshot: bool) {
        if let Some(own) = self.own.get(&key) {
            if own != value {
                let text = format!("had made {key} {own:?} and then read {value:?}");
                self.complain(Class::Internal, text);
            }
            return;
        }
        let read_committed = self.txn.level == Isolation::ReadCommitted;
        if let Some(before) = self.base.get(&key).filter(|before| *before != value) {
            let text = format!("read {key} as {before:?} and then as {value:?}");
            let class = match (read_committed, self.locked.contains(&key)) {
                (true, true) => Class::Internal,
                (true, false) => Class::FuzzyRead,
                (false, _) => Class::NotRepeatable,
            };
            self.complain(class, text);
        }
        if read_committed {
            self.base.insert(key, value.clone());
        } else {
            self.base.entry(key).or_insert_with(|| value.clone());
        }
        self.out.reads.push(External {
            op,
            key,
            value: value.clone(),
            predicate,
            snapshot,
        });
    }

    fn complain(&mut self, class: Class, what: String) {
        let anomaly = Anomaly::of(class, vec![self.name], what);
        self.out.anomalies.push(anomaly);
    }
}
