//! Pages are where the log ends.

use super::foundation::{Foundation, LogStart};
use super::locked::Ownership;
use super::repaired::Repaired;
use super::report::OpenReport;
use super::scanned::say_what_is_lost;
use crate::Result;
use crate::paranoid::paranoid;
use crate::recovery::RedoOutcome;

/// Stage 5. The end of the log is proven, and every page has, in the buffer pool or on disk, every
/// change that the log has for it. Nothing has been logged.
pub(super) struct Redone {
    pub outcome: RedoOutcome,
    pub log_start: LogStart,
    pub torn_pages: u64,
    pub report: OpenReport,
    pub foundation: Foundation,
    pub ownership: Ownership,
}

impl Repaired<'_> {
    /// Applies what the log says, and reads what is left of it.
    pub fn redo(mut self) -> Result<Redone> {
        let outcome = self.gathered.redo(&mut self.log);
        let outcome = outcome.map_err(|error| say_what_is_lost(error, &self.report))?;
        let control = &self.ownership.new;
        paranoid!(
            outcome.end >= control.checkpoint_lsn && outcome.epoch < control.epoch,
            "the log of epoch {} ends at LSN {}, for a checkpoint at {} of epoch {}",
            outcome.epoch,
            outcome.end,
            control.checkpoint_lsn,
            control.epoch
        );
        self.foundation.files.page_lsns().redo_done(outcome.end)?;
        Ok(Redone {
            log_start: LogStart {
                lsn: outcome.end,
                end_block: self.log.end_block().to_vec(),
                is_new: false,
            },
            outcome,
            torn_pages: self.torn_pages,
            report: self.report,
            foundation: self.foundation,
            ownership: self.ownership,
        })
    }
}
