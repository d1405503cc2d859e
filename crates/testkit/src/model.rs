//! The reference model: tables as ordered maps, and the commits since the last recovery in their
//! order, so that any prefix can be replayed.
//!
//! Words: an *event* is what one record in the log makes happen to all (a commit, a prepare, a DDL
//! statement). The *floor* is the number of events that must have survived.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// A row's key.
pub type Key = Vec<u8>;
/// A row's value.
pub type Value = Arc<[u8]>;
/// The rows of a tree. Cheap to clone.
pub type Rows = Arc<BTreeMap<Key, Value>>;
/// Names a table for its life, over renames.
pub type TableId = u32;
/// A row: table, tree, key.
pub type RowName = (TableId, usize, Key);

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableState {
    /// Its name.
    pub name: String,
    /// Its trees: the clustered one, then the secondary ones.
    pub trees: Vec<Rows>,
}

/// One row change of a transaction; `None` deletes.
#[derive(Clone, Debug)]
pub struct Change {
    /// Table, tree, key.
    pub row: RowName,
    /// The new value.
    pub value: Option<Value>,
}

/// Everything that is committed, and what is prepared.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Tables by id.
    pub tables: BTreeMap<TableId, TableState>,
    /// Prepared transactions by XID.
    pub prepared: BTreeMap<Vec<u8>, Arc<Vec<Change>>>,
}

/// What happens at one point of the log.
#[derive(Clone, Debug)]
pub enum Event {
    /// A transaction commits.
    Commit(Vec<Change>),
    /// A transaction is prepared.
    Prepare(Vec<u8>, Arc<Vec<Change>>),
    /// A prepared transaction commits.
    CommitPrepared(Vec<u8>),
    /// A prepared transaction is rolled back.
    RollbackPrepared(Vec<u8>),
    /// A table is created with so many trees.
    Create(TableId, String, usize),
    /// A table is dropped.
    Drop(TableId),
    /// A table is renamed.
    Rename(TableId, String),
}

/// What the database holds, as it was read: by table name the rows of each tree, and the XIDs.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Tables by name.
    pub tables: BTreeMap<String, Vec<BTreeMap<Key, Vec<u8>>>>,
    /// XIDs of prepared transactions.
    pub prepared: Vec<Vec<u8>>,
}

impl State {
    /// Applies row changes; those of dropped tables are void.
    pub fn change(&mut self, changes: &[Change]) {
        for Change { row, value } in changes {
            let (table, tree, key) = row;
            let Some(table) = self.tables.get_mut(table) else {
                continue;
            };
            let rows = Arc::make_mut(&mut table.trees[*tree]);
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
    }

    /// Applies an event.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Commit(changes) => self.change(changes),
            Event::Prepare(xid, changes) => {
                self.prepared.insert(xid.clone(), changes.clone());
            }
            Event::CommitPrepared(xid) => {
                if let Some(changes) = self.prepared.remove(xid) {
                    self.change(&changes);
                }
            }
            Event::RollbackPrepared(xid) => {
                self.prepared.remove(xid);
            }
            Event::Create(id, name, trees) => {
                let table = TableState {
                    name: name.clone(),
                    trees: vec![Rows::default(); *trees],
                };
                self.tables.insert(*id, table);
            }
            Event::Drop(id) => {
                self.tables.remove(id);
            }
            Event::Rename(id, name) => {
                if let Some(table) = self.tables.get_mut(id) {
                    table.name.clone_from(name);
                }
            }
        }
    }

    /// The id of the table of a name.
    pub fn table_named(&self, name: &str) -> Option<TableId> {
        let found = self.tables.iter().find(|(_, table)| table.name == name);
        found.map(|(&id, _)| id)
    }

    /// A row's value.
    pub fn get(&self, (table, tree, key): &RowName) -> Option<&Value> {
        self.tables.get(table)?.trees.get(*tree)?.get(key)
    }

    /// What differs from what was found; `None` if nothing does.
    pub fn difference(&self, found: &Found) -> Option<String> {
        let names: Vec<_> = found.tables.keys().collect();
        let mut wanted: Vec<_> = self.tables.values().map(|table| &table.name).collect();
        wanted.sort();
        if names != wanted {
            return Some(format!("tables {names:?}, expected {wanted:?}"));
        }
        let xids: Vec<_> = self.prepared.keys().cloned().collect();
        if xids != found.prepared {
            let (is, should) = (show_all(&found.prepared), show_all(&xids));
            return Some(format!("prepared {is}, expected {should}"));
        }
        for table in self.tables.values() {
            let trees = &found.tables[&table.name];
            if trees.len() != table.trees.len() {
                return Some(format!("{} has {} trees", table.name, trees.len()));
            }
            for (n, (rows, found)) in table.trees.iter().zip(trees).enumerate() {
                if let Some(text) = difference(rows, found) {
                    return Some(format!("table {}, tree {n}: {text}", table.name));
                }
            }
        }
        None
    }
}

fn difference(rows: &BTreeMap<Key, Value>, found: &BTreeMap<Key, Vec<u8>>) -> Option<String> {
    if rows.len() == found.len()
        && rows
            .iter()
            .zip(found)
            .all(|(a, b)| a.0 == b.0 && **a.1 == **b.1)
    {
        return None;
    }
    let mut text = format!("{} rows, expected {};", found.len(), rows.len());
    let mut count = 0;
    for key in rows.keys().chain(found.keys()) {
        let (want, is) = (rows.get(key), found.get(key));
        let same = match (want, is) {
            (Some(want), Some(is)) => **want == **is,
            (want, is) => want.is_none() && is.is_none(),
        };
        if same || (want.is_some() && is.is_some() && count > 0 && text.contains(&show(key))) {
            continue;
        }
        count += 1;
        if count <= 8 {
            let (key, want) = (show(key), want.map_or("nothing".into(), |v| show(v)));
            let is = is.map_or("nothing".into(), |v| show(v));
            let _ = write!(text, " key {key}: found {is}, expected {want};");
        }
    }
    let _ = write!(text, " {count} rows differ");
    Some(text)
}

/// Bytes for people: the first ones in hex, and how many there are.
pub fn show(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes.iter().take(12) {
        let _ = write!(text, "{byte:02x}");
    }
    if bytes.len() > 12 {
        let _ = write!(text, "..({})", bytes.len());
    }
    text
}

fn show_all(all: &[Vec<u8>]) -> String {
    let texts: Vec<_> = all.iter().map(|xid| String::from_utf8_lossy(xid)).collect();
    format!("{texts:?}")
}

/// The model of one database.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// What the last recovery proved.
    base: State,
    /// What happened since, in commit order.
    events: Vec<Event>,
    /// `base` and all events.
    pub now: State,
    /// Events that survive power loss.
    sync_floor: usize,
    /// Events that survive a kill.
    write_floor: usize,
    /// Events ever.
    pub clock: u64,
    /// When each row was last written by a commit.
    pub written: BTreeMap<RowName, u64>,
    /// The next table's id.
    next_table: TableId,
}

/// How the process that had the database ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It closed it, or everything was made durable.
    Close,
    /// It was killed.
    Kill,
    /// The power failed.
    PowerLoss,
}

impl Model {
    /// An id for a new table.
    pub fn new_table_id(&mut self) -> TableId {
        self.next_table += 1;
        self.next_table
    }

    /// Something happened, or may have happened.
    pub fn happened(&mut self, event: Event) {
        self.clock += 1;
        let changes: &[Change] = match &event {
            Event::Commit(changes) => changes,
            Event::CommitPrepared(xid) => self.now.prepared.get(xid).map_or(&[], |c| c.as_slice()),
            _ => &[],
        };
        for change in changes {
            self.written.insert(change.row.clone(), self.clock);
        }
        self.now.apply(&event);
        self.events.push(event);
    }

    /// Everything so far survives power loss.
    pub fn synced(&mut self) {
        self.sync_floor = self.events.len();
    }

    /// Everything so far survives a kill.
    pub fn written(&mut self) {
        self.write_floor = self.events.len();
    }

    /// Events since the last recovery.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Compares what was found after a process's end. The prefix that it equals is the new base;
    /// returns how many events it has. Or says what is wrong.
    pub fn recovered(&mut self, end: End, found: &Found) -> Result<usize, String> {
        let floor = match end {
            End::Close => self.events.len(),
            End::Kill => self.sync_floor.max(self.write_floor),
            End::PowerLoss => self.sync_floor,
        };
        let mut state = self.base.clone();
        for event in &self.events[..floor] {
            state.apply(event);
        }
        let mut differences = Vec::new();
        for length in floor..=self.events.len() {
            if length > floor {
                state.apply(&self.events[length - 1]);
            }
            match state.difference(found) {
                None => {
                    self.base = state.clone();
                    self.now = state;
                    self.events.clear();
                    self.sync_floor = 0;
                    self.write_floor = 0;
                    return Ok(length);
                }
                Some(text) => differences.push(format!("  as of event {length}: {text}")),
            }
        }
        let total = differences.len();
        if total > 6 {
            differences.drain(3..total - 3);
        }
        // An older prefix means loss of what was acknowledged.
        let mut state = self.base.clone();
        for length in 0..floor {
            if length > 0 {
                state.apply(&self.events[length - 1]);
            }
            if state.difference(found).is_none() {
                differences.push(format!(
                    "  it is what event {length} left: commits are lost"
                ));
            }
        }
        let text = differences.join("\n");
        let count = self.events.len();
        Err(format!(
            "after {end:?} the database equals no prefix from {floor} to {count}:\n{text}"
        ))
    }
}
