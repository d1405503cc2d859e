//! Where InnoDB goes on, and Inkstone waits: locks that InnoDB overlooks.
//!
//! Of an entry of a secondary index InnoDB asks whether the transaction has changed its row since
//! the oldest one that is active began, if anything on the entry's page was changed since then. It
//! takes that for a lock of the entry, though the change may have left the entry as it was, and so
//! passes over a lock that another transaction has been granted. Whether that happens depends on
//! what else lies on the page. Inkstone waits for the lock.

use super::ask::Ask;
use super::evidence::is_record;
use super::meant::{Case, seen};
use inkstone_testkit::build::Result;

impl Case<'_> {
    /// Whether InnoDB itself says that each of these sessions, which Inkstone waits for, has a lock
    /// that keeps this one from an entry that it asks for, and that it has none of its own there;
    /// the entry's row is changed by a transaction that is not over.
    pub(super) fn overlooks(&mut self, session: usize, blockers: &[usize]) -> Result<bool> {
        let statement = self.inkstone.statement(session);
        let Some(ask) = Ask::of(&statement, self.holders.schema()) else {
            return Ok(false);
        };
        let own = self.innodb.granted(session)?;
        for &blocker in blockers {
            let mut is_kept_out = false;
            for lock in self.innodb.granted(blocker)? {
                let is_of_entry = lock.of.table == ask.table
                    && lock.of.index != "PRIMARY"
                    && !lock.of.is_supremum
                    && !lock.is_gap
                    && (lock.exclusive || ask.exclusive)
                    && own
                        .iter()
                        .all(|one| one.of.key != lock.of.key || one.of.index != lock.of.index);
                let Some(record) = is_record(&lock.of, self.holders.schema()) else {
                    continue;
                };
                if !is_of_entry || !self.is_in(&ask, &record)? {
                    continue;
                }
                let row = format!("SELECT * FROM {} WHERE {record}", ask.table);
                let [newest, committed] = seen(self.inkstone, &row)?;
                is_kept_out |= newest != committed;
            }
            if !is_kept_out {
                return Ok(false);
            }
        }
        Ok(!blockers.is_empty())
    }
}
