//! Pages are where the log ends, or will be when they are read.

use super::foundation::{Foundation, LOG_DIRECTORY, LogStart};
use super::locked::{Ownership, Site};
use super::repaired::Repaired;
use super::report::OpenReport;
use crate::buffer::LateRedo;
use crate::recovery::{RedoOutcome, When};
use crate::{Error, Result};
use inkstone_format::Lsn;
use std::sync::Arc;

/// Stage 5. The end of the log is proven, and every page that is read from the buffer pool has
/// every change that the log has for it. Nothing has been logged.
pub(super) struct Redone {
    pub outcome: RedoOutcome,
    pub log_start: LogStart,
    pub torn_pages: u64,
    pub report: OpenReport,
    pub foundation: Foundation,
    pub ownership: Ownership,
}

/// Fails if the log does not end where the control file leaves it to.
pub(super) fn check_log_end(
    site: &Site,
    ownership: &Ownership,
    epoch: u64,
    end: Lsn,
) -> Result<()> {
    let Ownership { old, new, .. } = ownership;
    if end >= new.checkpoint_lsn && epoch < new.epoch {
        return Ok(());
    }
    let log = site.directory.path_of(LOG_DIRECTORY);
    let detail = format!(
        "the log of epoch {epoch} ends at LSN {end}; the control file has a checkpoint at LSN {}, \
         and epoch {}: one of them is of another time",
        new.checkpoint_lsn, old.epoch
    );
    Err(Error::corrupt_file(&log, 0, detail))
}

impl Repaired<'_> {
    /// Whether pages wait for their readers. Not where a page that cannot be redone is for the
    /// opening to tell of, and not where all is to stay in memory.
    fn when(&self) -> When {
        let options = &self.foundation.site.options;
        let at_once = options.all.redo_before_open
            || options.all.is_read_only()
            || options.transactions.rows_may_be_lost
            || self.report.doublewrite_renewed.is_some();
        if at_once { When::Now } else { When::Read }
    }

    /// Applies what the log says, and reads what is left of it.
    pub fn redo(mut self) -> Result<Redone> {
        let when = self.when();
        let outcome = self.gathered.redo(&mut self.log, when);
        let outcome = outcome.map_err(|error| self.foundation.refused(error, &self.report))?;
        check_log_end(
            &self.foundation.site,
            &self.ownership,
            outcome.epoch,
            outcome.end,
        )?;
        let left = outcome.left.clone().map(|left| left as Arc<dyn LateRedo>);
        let page_lsns = self.foundation.files.page_lsns();
        page_lsns.redo_done(outcome.end, left)?;
        Ok(Redone {
            log_start: LogStart {
                lsn: outcome.end,
                end_block: self.log.end_block().to_vec(),
                is_new: false,
                // A commit beside the close would have gone on behind its end.
                is_closed: self.ownership.was_closed
                    && outcome.end == self.ownership.old.known_durable_lsn,
            },
            outcome,
            torn_pages: self.torn_pages,
            report: self.report,
            foundation: self.foundation,
            ownership: self.ownership,
        })
    }
}
