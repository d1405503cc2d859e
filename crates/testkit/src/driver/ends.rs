//! How transactions end: commit, rollback, prepare, and the decision on what is prepared.

use super::client::Client;
use super::{Outcome, Profile, Run, Stop, bug};
use crate::model::Event;
use inkstone::Error;
use inkstone::internals::options::{BulkLogging, Durability};
use std::sync::Arc;

/// Rows of a transaction of which some undo may be in its file.
pub(super) const LARGE: usize = 100;

impl Run {
    /// A round of checkpoints, which saves the undo of transactions that keep more log than this.
    fn maintain_all(&mut self, log_bytes: u64) -> Outcome {
        let result = self.database().maintain(log_bytes);
        result.or_else(|error| self.judge("a round of checkpoints", &error))
    }

    pub(super) fn commit(&mut self, n: usize, client: Client) -> Outcome {
        let durabilities = &self.plan.features.durabilities;
        let given = self.rng.chance(50).then(|| self.rng.pick(durabilities));
        let durability = given.unwrap_or(self.options.flush_log_at_trx_commit);
        let Client { txn, own, .. } = client;
        let Some(txn) = std::rc::Rc::into_inner(txn) else {
            return bug("the driver has lost a transaction");
        };
        // What a large one has saved is needed until the log that ends it is durable: no
        // checkpoint makes it so, as there was one just before.
        let is_profile = self.plan.profile == Some(Profile::LargeTransactions);
        let (percent, log_bytes) = if is_profile { (100, 0) } else { (30, u64::MAX) };
        let is_large = durability == Durability::Lazy && own.len() > LARGE;
        let looks = is_large && self.rng.chance(percent);
        if looks {
            self.maintain_all(log_bytes)?;
        }
        let result = match given {
            Some(durability) => txn.commit_with(durability),
            None => txn.commit(),
        };
        self.trace(|| format!("{n}: commit of {} {durability:?}: {result:?}", own.len()));
        self.marks.add("commits", 1);
        if let Some(outcome) = self.unsettled(&result) {
            return outcome;
        }
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
                if looks {
                    self.marks.add("lazy ends of large transactions", 1);
                    self.maintain_all(u64::MAX)?;
                    self.if_power_were_lost()?;
                }
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(error) => self.end_of_commit("commit", error),
        }
    }

    /// What comes of a transaction that was not committed, or prepared, as pages with rows that the
    /// log lacks could not be written.
    fn unsettled(&mut self, result: &Result<(), Error>) -> Option<Outcome> {
        let Err(error @ (Error::Io { .. } | Error::DiskFull { .. })) = result else {
            return None;
        };
        if self.options.bulk_logging != BulkLogging::Minimal {
            return None;
        }
        if self.vfs.is_dead() {
            return Some(Err(Stop::Dead));
        }
        self.excuses(error).then(|| {
            self.marks.add("commits refused with the pages", 1);
            Ok(())
        })
    }

    /// A commit that fails leaves its outcome to recovery: the engine must be poisoned.
    pub(super) fn end_of_commit(&self, what: &str, error: Error) -> Outcome {
        match error {
            error @ Error::Poisoned(_) if self.excuses(&error) || self.vfs.is_dead() => {
                Err(Stop::Dead)
            }
            error if self.vfs.is_dead() => bug(format!("{what}: not poisoned: {error}")),
            error => bug(format!("{what}: {error}")),
        }
    }

    pub(super) fn roll_back(&mut self, n: usize, client: Client) -> Outcome {
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

    pub(super) fn prepare(&mut self, n: usize, client: Client) -> Outcome {
        self.names += 1;
        let xid = format!("xid{}", self.names).into_bytes();
        self.trace(|| format!("{n}: prepare xid{} of {}", self.names, client.own.len()));
        let Some(txn) = std::rc::Rc::into_inner(client.txn) else {
            return bug("the driver has lost a transaction");
        };
        let result = txn.prepare(&xid);
        self.marks.add("prepares", 1);
        if let Some(outcome) = self.unsettled(&result) {
            return outcome;
        }
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
    pub(super) fn decide(&mut self) -> Outcome {
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
                    self.model.synced();
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
        if self.failing {
            // The pages that it needs find no frame, or cannot change. Instead of a wait the
            // process is ended.
            self.marks.add("rollbacks given up", 1);
            self.model.happened(Event::RollbackPrepared(xid));
            return Err(Stop::Dead);
        }
        bug(format!("{name} cannot be rolled back"))
    }
}
