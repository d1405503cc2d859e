//! What the log says, before any of it is applied.

use super::foundation::Foundation;
use super::locked::Ownership;
use super::report::OpenReport;
use super::settled::Settled;
use crate::aside::{SetAside, set_aside};
use crate::options::Doublewrite;
use crate::recovery::{self, Gathered, LogSource, Progress, RedoInputs};
use crate::store::{DOUBLEWRITE_FILE, DoublewriteFound, StoreOptions};
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
        let (renewed, aside) = renew_doublewrite(directory, self.doublewrite, options)?;
        self.report.doublewrite_renewed = renewed;
        self.report.set_aside.extend(aside);
        let mut log = LogSource::open(self.log)?;
        let control = &self.ownership.new;
        let foundation = Foundation::new(self.site, self.files, control)?;
        foundation.pool.start_cleaners()?;
        let inputs = RedoInputs {
            pool: foundation.pool.clone(),
            files: foundation.files.clone(),
            checkpoint: control.checkpoint_lsn,
            options: foundation.site.options.redo,
            progress,
        };
        let gathered = recovery::gather(&mut log, inputs);
        Ok(Scanned {
            gathered: gathered.map_err(|error| say_what_is_lost(error, &self.report))?,
            log,
            report: self.report,
            foundation,
            ownership: self.ownership,
        })
    }
}

/// Sets a doublewrite file aside that cannot be used. Why it will be made anew, if it will.
fn renew_doublewrite(
    directory: &dyn Directory,
    found: DoublewriteFound,
    options: &StoreOptions,
) -> Result<(Option<String>, Option<SetAside>)> {
    let wanted = options.doublewrite == Doublewrite::On;
    let why = match found {
        DoublewriteFound::Whole => return Ok((None, None)),
        DoublewriteFound::Missing => {
            return Ok((wanted.then(|| "it was missing".to_owned()), None));
        }
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

/// A page that recovery needs is damaged, and the file that may have had a copy of it was lost.
pub(super) fn say_what_is_lost(error: Error, report: &OpenReport) -> Error {
    match (error, &report.doublewrite_renewed) {
        (
            Error::Corrupt {
                file,
                page: Some(page),
                offset,
                detail,
            },
            Some(why),
        ) => Error::Corrupt {
            file,
            page: Some(page),
            offset,
            detail: format!(
                "{detail}; the crash may have torn the page, and its copy may have been in the file \
                 {DOUBLEWRITE_FILE}, which cannot be used ({why}): put the right one back, and open \
                 again, or restore the database from a backup"
            ),
        },
        (error, _) => error,
    }
}
