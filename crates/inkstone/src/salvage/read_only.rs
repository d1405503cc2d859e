//! Opening for reading only: over an `OverlayVfs`, so that recovery changes nothing but memory.
//!
//! With `force_recovery` the pages are salvaged first, in memory too. What becomes of transactions
//! that had not committed is `Losers`.

use super::{log_end, mend_files, mend_maps, read_control, redo};
use crate::options::{Doublewrite, Options};
use crate::paranoid::paranoid;
use crate::recovery::Progress;
use crate::salvage::SalvageReport;
use crate::{Database, Error, Result};
use inkstone_io::overlay::OverlayVfs;
use inkstone_io::{Create, Vfs};
use std::path::Path;
use std::sync::Arc;

impl Database {
    /// As [`Database::open`], over a file system of the caller's, told of recovery's progress.
    #[doc(hidden)]
    pub fn open_on(
        vfs: Arc<dyn Vfs>,
        directory: impl AsRef<Path>,
        options: Options,
        progress: &dyn Fn(Progress),
    ) -> Result<Self> {
        let directory = directory.as_ref();
        if !options.is_read_only() {
            return Self::open_over(vfs, directory, options, progress);
        }
        options.validate_force_recovery()?;
        let overlay: Arc<dyn Vfs> = Arc::new(OverlayVfs::new(vfs));
        let options = Options {
            // What is written stays in memory, and needs no copy.
            doublewrite: Doublewrite::Off,
            ..options
        };
        match options.force_recovery {
            0 => Self::open_over(overlay, directory, options, progress),
            _ => salvaged(&overlay, directory, options, progress),
        }
    }
}

/// Steps 1 to 3 of salvage. `vfs` keeps what is written in memory.
fn salvaged(
    vfs: &Arc<dyn Vfs>,
    path: &Path,
    options: Options,
    progress: &dyn Fn(Progress),
) -> Result<Database> {
    let mut report = SalvageReport::default();
    paranoid!(
        options.is_read_only(),
        "a database is salvaged in memory, and may be written"
    );
    let directory = vfs.open_directory(path, Create::Never);
    let directory = directory.map_err(|e| Error::io("open", path, e))?;
    let mut control = read_control(&*directory)?;
    mend_maps(&directory, &control, &mut report)?;
    let end = if control.clean_shutdown {
        control.known_durable_lsn.max(control.checkpoint_lsn)
    } else {
        redo(vfs, path, &options, &mut report)?;
        control = read_control(&*directory)?;
        log_end(&*directory, &control)?
    };
    mend_files(&directory, end, &mut report)?;
    Database::open_salvaged(vfs.clone(), path, options, report.left_out, progress)
}
