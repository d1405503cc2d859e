//! The last step before pages are changed.

use super::foundation::Foundation;
use super::locked::Ownership;
use super::redone::check_log_end;
use super::report::OpenReport;
use super::scanned::Scanned;
use super::vacant::finish_creation;
use crate::Result;
use crate::paranoid::paranoid;
use crate::recovery::{FrameSource, Gathered, LogSource};
use crate::store::{RepairReport, repair};

/// Stage 4. The new epoch is durable in the page LSN map and then in the control file, so log that
/// this process writes is never taken for older log, nor the other way round. Torn pages that had
/// a copy have been replaced by it; pages have not been changed otherwise.
pub(super) struct Repaired<'a> {
    pub gathered: Gathered<'a>,
    pub log: LogSource,
    pub torn_pages: u64,
    pub report: OpenReport,
    pub foundation: Foundation,
    pub ownership: Ownership,
}

impl<'a> Scanned<'a> {
    /// Makes the new epoch durable and repairs torn pages, before the areas of the doublewrite file
    /// are used again.
    pub fn repair(mut self) -> Result<Repaired<'a>> {
        if let Some(end) = self.gathered.log_end() {
            // Before anything is written: a log of another time is refused the next time too.
            check_log_end(
                &self.foundation.site,
                &self.ownership,
                self.log.epoch(),
                end,
            )?;
        }
        let repaired = self.write_epoch_and_repair();
        let repaired = repaired.map_err(|error| self.foundation.refused(error, &self.report))?;
        Ok(Repaired {
            gathered: self.gathered,
            log: self.log,
            torn_pages: repaired.repaired.len() as u64,
            report: self.report,
            foundation: self.foundation,
            ownership: self.ownership,
        })
    }

    fn write_epoch_and_repair(&mut self) -> Result<RepairReport> {
        let Ownership {
            file,
            old,
            new,
            was_closed,
            ..
        } = &mut self.ownership;
        let (site, files) = (&self.foundation.site, &self.foundation.files);
        finish_creation(&*site.directory, *was_closed, &site.poison)?;
        let (uuid, checkpoint) = (new.uuid, new.checkpoint_lsn);
        let log_end = self.gathered.log_end();
        let lost = files
            .page_lsns()
            .open(uuid, old.epoch, checkpoint, log_end)?;
        self.report.page_lsn_map_lost = lost.map(|error| error.to_string());
        paranoid!(
            new.epoch > old.epoch && new.version_epoch > old.version_epoch,
            "the epoch after {} is {}",
            old.epoch,
            new.epoch
        );
        file.write(&*site.directory, new)?;
        if *was_closed {
            // No page is torn, and a copy below the checkpoint is never used.
            return Ok(RepairReport::default());
        }
        repair(&*site.directory, files, uuid, checkpoint)
    }
}
