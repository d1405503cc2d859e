//! What the log says, before any of it is applied.

use super::foundation::Foundation;
use super::locked::Ownership;
use super::report::OpenReport;
use super::settled::{Settled, settle};
use crate::aside::{SetAside, set_aside};
use crate::options::Doublewrite;
use crate::recovery::{self, Gathered, LogSource, Progress, RedoInputs};
use crate::store::{DOUBLEWRITE_FILE, DoublewriteFound};
use crate::{Error, Result};
use inkstone_io::Directory;

/// Stage 3. The log has been read to its proven end, or as far as its changes fit the memory of
/// recovery: what is damaged so far, or does not fit the files, has been refused. No page, log or
/// control file has been changed; a doublewrite file that could not be used has been made anew.
pub(super) struct Scanned<'a> {
    pub gathered: Gathered<'a>,
    pub log: LogSource,
    pub report: OpenReport,
    pub foundation: Foundation,
    pub ownership: Ownership,
}

impl Settled {
    /// Makes the buffer pool, and reads the log.
    pub fn scan(mut self, progress: &dyn Fn(Progress)) -> Result<Scanned<'_>> {
        let (directory, options) = (&*self.site.directory, &self.site.options.store);
        let (lost, aside) = lost_copies(directory, self.doublewrite)?;
        let is_wanted = aside.is_some() || options.doublewrite == Doublewrite::On;
        self.report.doublewrite_renewed = lost.clone().filter(|_| is_wanted);
        self.report.copies_lost = lost;
        self.report.set_aside.extend(aside);
        recovery::remove_spill(directory)?;
        let mut log = LogSource::open(self.log)?;
        let control = &self.ownership.new;
        let foundation = Foundation::new(self.site, self.files, control)?;
        foundation.pool.start_cleaners()?;
        let inputs = RedoInputs {
            pool: foundation.pool.clone(),
            files: foundation.files.clone(),
            checkpoint: control.checkpoint_lsn,
            options: foundation.site.options.redo,
            spill: Some(foundation.site.directory.clone()),
            progress,
        };
        let gathered = recovery::gather(&mut log, inputs);
        Ok(Scanned {
            gathered: gathered.map_err(|error| foundation.refused(error, &self.report))?,
            log,
            report: self.report,
            foundation,
            ownership: self.ownership,
        })
    }
}

/// Why there are no copies of torn pages, if so. A doublewrite file that cannot be used is set
/// aside.
fn lost_copies(
    directory: &dyn Directory,
    found: DoublewriteFound,
) -> Result<(Option<String>, Option<SetAside>)> {
    let why = match found {
        DoublewriteFound::Whole => return Ok((None, None)),
        DoublewriteFound::Missing => return Ok((Some("it was missing".to_owned()), None)),
        DoublewriteFound::Damaged(why) => why,
    };
    let aside = set_aside(
        directory,
        DOUBLEWRITE_FILE,
        "is no whole doublewrite file of this database",
    )?;
    let synced = directory.sync();
    synced.map_err(|e| Error::io("sync", directory.path(), e))?;
    Ok((Some(why), Some(aside)))
}

impl Foundation {
    /// Recovery has failed. Where a page that it needs is damaged, and the file that may have had a
    /// copy of it was lost, the error says so, and so will the next opening.
    pub(super) fn refused(&self, error: Error, report: &OpenReport) -> Error {
        match (error, &report.copies_lost) {
            (
                Error::Corrupt {
                    file,
                    page: Some(page),
                    offset,
                    detail,
                },
                Some(why),
            ) => {
                if report.doublewrite_renewed.is_some() {
                    self.remove_renewed();
                }
                Error::Corrupt {
                    file,
                    page: Some(page),
                    offset,
                    detail: format!(
                        "{detail}; the crash may have torn the page, and its copy may have been in \
                         the file {DOUBLEWRITE_FILE}, which cannot be used ({why}): put the right \
                         one back, and open again, or restore the database from a backup"
                    ),
                }
            }
            (error, _) => error,
        }
    }

    /// Removes the doublewrite file that this opening has made anew: one that is there passes for
    /// one that has seen the crash. What was written with it is durable before.
    fn remove_renewed(&self) {
        self.pool.close();
        let directory = &*self.site.directory;
        let is_durable = settle(directory, false).is_ok();
        // If that fails the next opening says less.
        let _ =
            is_durable && directory.remove(DOUBLEWRITE_FILE).is_ok() && directory.sync().is_ok();
    }
}
