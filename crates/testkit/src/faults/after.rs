//! What a process leaves: the next one opens the database, finds it whole and not too old, and
//! works.

use super::session::{self, History};
use inkstone::{Error, Isolation};
use inkstone_io::sim::SimVfs;

/// What is wrong.
pub(super) enum After {
    /// This call fails.
    Error(&'static str, Error),
    /// A promise is broken.
    Wrong(String),
}

impl After {
    /// For people.
    pub fn text(self) -> String {
        match self {
            After::Error(what, error) => format!("afterwards, {what}: {error}"),
            After::Wrong(text) => text,
        }
    }
}

/// Opens, compares, verifies, changes and closes the database. It may be in any state of its
/// history that is not older than the last acknowledged one, but for `lost_max`.
pub(super) fn look(disk: &SimVfs, mut history: History, lost_max: usize) -> Result<(), After> {
    let after = |what: &'static str, error: Error| After::Error(what, error);
    let db = session::open(disk, &history).map_err(|e| after("opening", e))?;
    let found = session::found(&db).map_err(|e| after("reading", e))?;
    history.settle(&found, lost_max).map_err(After::Wrong)?;
    session::verify(&db).map_err(|e| after("verifying", e))?;
    let table = match db.table("after") {
        Ok(table) => table,
        Err(_) => db
            .create_table("after", &[])
            .map_err(|e| after("creating a table", e))?,
    };
    let txn = db.begin(Isolation::Serializable);
    let txn = txn.map_err(|e| after("beginning", e))?;
    let inserted = txn.insert(&table, b"key", b"value");
    inserted.map_err(|e| after("inserting", e))?;
    txn.commit().map_err(|e| after("committing", e))?;
    db.close().map_err(|e| after("closing", e))
}
