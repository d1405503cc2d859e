//! A client: an open transaction and what the model knows about it.

use super::cursor::{Given, Open};
use crate::model::{Change, RowName, State, TableId, Value};
use inkstone::{Isolation, LockMode, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub(crate) struct Client {
    pub txn: Rc<Transaction>,
    pub isolation: Isolation,
    /// What it sees at repeatable read, and when that was.
    pub snapshot: Option<(State, u64)>,
    /// Its changes in their order.
    pub own: Vec<Change>,
    /// The newest of them for each row.
    pub overlay: BTreeMap<RowName, Option<Value>>,
    /// Rows that it has ever written or tried to: it may hold locks on them.
    pub touched: BTreeSet<RowName>,
    /// Whether it has taken explicit locks.
    pub locks: bool,
    /// Rows that it has locked by name, and not given back; how.
    pub locked: BTreeMap<RowName, LockMode>,
    pub savepoints: Vec<(String, usize)>,
    /// A cursor that is open.
    pub open: Option<Open>,
    pub given: Given,
}

impl Client {
    pub fn new(txn: Transaction, isolation: Isolation) -> Self {
        Self {
            txn: Rc::new(txn),
            isolation,
            snapshot: None,
            own: Vec::new(),
            overlay: BTreeMap::new(),
            touched: BTreeSet::new(),
            locks: false,
            locked: BTreeMap::new(),
            savepoints: Vec::new(),
            open: None,
            given: Given::new(),
        }
    }

    /// It is about to read or write: its snapshot is taken now if it has none.
    pub fn pin(&mut self, now: &State, clock: u64) {
        if self.isolation == Isolation::RepeatableRead && self.snapshot.is_none() {
            self.snapshot = Some((now.clone(), clock));
        }
    }

    /// What a plain read sees.
    pub fn view<'a>(&'a self, now: &'a State) -> &'a State {
        match &self.snapshot {
            Some((state, _)) => state,
            None => now,
        }
    }

    /// Whether its snapshot is older than the table: it must not read there.
    pub fn is_older_than(&self, table: TableId) -> bool {
        let snapshot = self.snapshot.as_ref();
        snapshot.is_some_and(|(state, _)| !state.tables.contains_key(&table))
    }

    pub fn read(&self, now: &State, row: &RowName) -> Option<Value> {
        match self.overlay.get(row) {
            Some(own) => own.clone(),
            None => self.view(now).get(row).cloned(),
        }
    }

    /// What a write finds.
    pub fn current(&self, now: &State, row: &RowName) -> Option<Value> {
        match self.overlay.get(row) {
            Some(own) => own.clone(),
            None => now.get(row).cloned(),
        }
    }

    pub fn changed(&mut self, change: Change) {
        let given = self.given.entry(change.row.clone()).or_default();
        given.push(change.value.clone());
        self.overlay
            .insert(change.row.clone(), change.value.clone());
        self.own.push(change);
    }

    /// Forgets the changes after the first `length`.
    pub fn undo_to(&mut self, length: usize) {
        self.own.truncate(length);
        self.overlay = self
            .own
            .iter()
            .map(|change| (change.row.clone(), change.value.clone()))
            .collect();
    }
}
