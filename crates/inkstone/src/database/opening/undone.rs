//! Transactions are where they were left, or gone.

use super::foundation::Foundation;
use super::locked::Ownership;
use super::redone::Redone;
use super::report::{OpenReport, Recovered};
use crate::btree::Tree;
use crate::catalog::{CATALOG_SPACE, CATALOG_TREE};
use crate::mtr::Mtr;
use crate::mutants::{self, Mutant};
use crate::mvcc::system::TrxState;
use crate::paranoid::paranoid;
use crate::recovery::RedoOutcome;
use crate::sync::HashMap;
use crate::txn::core::{Core, Losers};
use crate::{Error, Result};
use inkstone_format::TrxId;
use inkstone_format::record::Record;
use std::path::PathBuf;
use std::sync::Arc;

/// Stage 6. The log goes on at its proven end, in the new epoch. Losers are rolled back, or left to
/// purge where the disk has no page for that; prepared transactions have their versions, which are
/// their locks, again. So the catalog can be read.
pub(super) struct Undone {
    pub catalog: Tree,
    pub core: Arc<Core>,
    pub outcome: RedoOutcome,
    /// The highest tablespace number that was seen.
    pub highest_space: u32,
    pub report: OpenReport,
    pub foundation: Foundation,
    pub ownership: Ownership,
}

impl Redone {
    /// Opens the log for writing, and finishes transactions.
    pub fn undo(mut self) -> Result<Undone> {
        let (outcome, foundation) = (&self.outcome, &self.foundation);
        let control = &self.ownership.new;
        let next_trx = TrxId(
            control
                .next_trx_id
                .0
                .max(outcome.trx_id_max.0.saturating_add(1)),
        );
        let mut open = outcome.losers.iter().chain(&outcome.prepared);
        paranoid!(
            open.all(|open| open.id < next_trx),
            "a transaction of the log gets its number again: {next_trx} is the next"
        );
        let core = foundation.open_log(control, self.log_start, next_trx)?;
        paranoid!(
            core.storage.log.current_lsn() == outcome.end,
            "the log goes on at LSN {}, and ended at {}",
            core.storage.log.current_lsn(),
            outcome.end
        );
        let mut epoch = Mtr::new(&core.storage);
        epoch.note(&Record::Epoch {
            epoch: control.epoch,
            end_of_previous: outcome.end,
        });
        epoch.commit()?;
        let (highest_space, removed) = remove_deleted(foundation, &core, outcome)?;
        let space = core
            .space(CATALOG_SPACE)?
            .ok_or_else(|| Error::NotADatabase {
                path: foundation.files.path(CATALOG_SPACE),
                reason: "the file of the catalog is missing".to_owned(),
            })?;
        let catalog = Tree::open(space, CATALOG_TREE, core.storage.clone())?;
        let recovered = finish_transactions(&core, outcome, self.torn_pages)?;
        let is_news = !self.report.clean || recovered.has_transactions();
        self.report.recovered = is_news.then_some(recovered);
        self.report.removed = removed;
        Ok(Undone {
            catalog,
            core,
            outcome: self.outcome,
            highest_space,
            report: self.report,
            foundation: self.foundation,
            ownership: self.ownership,
        })
    }
}

/// Finishes removing the files of tablespaces that were dropped. Returns the highest tablespace
/// number seen, and what was removed. No other file is opened here: tables are, when they are used.
fn remove_deleted(
    foundation: &Foundation,
    core: &Core,
    redone: &RedoOutcome,
) -> Result<(u32, Vec<PathBuf>)> {
    let files = &foundation.files;
    let highest = files.highest()?.max(redone.space_id_max);
    let mut removed = Vec::new();
    for space in files.list()? {
        if redone.files_deleted.contains(&space) {
            core.forget_space(space);
            files.remove(space)?;
            removed.push(files.path(space));
        }
    }
    for &space in &redone.files_deleted {
        files.remove_place_map(space)?;
    }
    Ok((highest.map_or(0, |space| space.0), removed))
}

/// Rolls back losers, newest first, and takes prepared transactions up again.
fn finish_transactions(
    core: &Arc<Core>,
    redone: &RedoOutcome,
    torn_pages_repaired: u64,
) -> Result<Recovered> {
    let mut recovered = Recovered {
        redo: redone.report.clone(),
        torn_pages_repaired,
        losers: redone.losers.len() as u64,
        prepared: redone.prepared.len() as u64,
        instead: core.options.losers.instead_of_rollback(),
        ..Recovered::default()
    };
    if core.options.losers == Losers::Commit {
        // Nothing locks their rows, nor tells what they were.
        return Ok(recovered);
    }
    let all = redone.prepared.iter().chain(&redone.losers);
    let states: HashMap<TrxId, _> = all
        .map(|open| {
            Ok((
                open.id,
                core.recovered_state(open.id, open.slot, open.first_lsn)?,
            ))
        })
        .collect::<Result<_>>()?;
    let all = redone.prepared.iter().chain(&redone.losers);
    let moved: Vec<_> = all.filter(|open| open.moved.is_some()).collect();
    core.adopt_moved(&states, &moved)?;
    paranoid!(
        states.len() == redone.losers.len() + redone.prepared.len(),
        "two unfinished transactions have one number"
    );
    paranoid!(
        redone.losers.is_sorted_by(|a, b| a.id < b.id),
        "losers are not in order, and are rolled back newest first"
    );
    roll_back_losers(core, redone, &states, &mut recovered)?;
    for open in redone.prepared.iter().filter(|open| open.moved.is_none()) {
        core.adopt_prepared(&states[&open.id], open)?;
    }
    Ok(recovered)
}

/// Newest first; those with undo of their own are rolled back behind the opening.
fn roll_back_losers(
    core: &Arc<Core>,
    redone: &RedoOutcome,
    states: &HashMap<TrxId, Arc<TrxState>>,
    recovered: &mut Recovered,
) -> Result<()> {
    for open in redone.losers.iter().rev() {
        if mutants::on(Mutant::LoserForgotten) {
            continue;
        }
        if open.moved.is_some() {
            recovered.rows_to_undo += open.changes();
            continue;
        }
        if core.options.losers == Losers::Leave {
            core.leave_recovered(&states[&open.id], &open.undo)?;
            recovered.rows_to_undo += open.changes();
            continue;
        }
        let left = core.roll_back_recovered(&states[&open.id], open)? as u64;
        paranoid!(
            left <= open.undo.len() as u64,
            "{left} changes are left to undo of {}",
            open.undo.len()
        );
        recovered.rows_undone += open.undo.len() as u64 - left;
        recovered.rows_to_undo += left;
        recovered.rows_without_space += left;
    }
    let undo = crate::recovery::OpenTransaction::changes;
    paranoid!(
        recovered.rows_undone + recovered.rows_to_undo == redone.losers.iter().map(undo).sum()
            || mutants::on(Mutant::LoserForgotten),
        "{} changes were undone, {} are left",
        recovered.rows_undone,
        recovered.rows_to_undo
    );
    Ok(())
}
