//! Files that the database does not know are set aside: they keep their bytes under another name.
//!
//! Nothing in the engine reads, changes or removes a file of such a name. What becomes of it is the
//! operator's decision (it may come from a restored copy, another database, or a control file older
//! than the tables).

use crate::{Error, Result};
use inkstone_io::Directory;
use std::fmt;
use std::path::PathBuf;

/// What stands behind the name that a file had.
pub const ASIDE_SUFFIX: &str = ".unknown";

/// A file that was set aside when the database was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The name that it had.
    pub was: PathBuf,
    /// The name that it has.
    pub is: PathBuf,
    /// What it is not.
    pub why: &'static str,
}

impl fmt::Display for SetAside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (was, is) = (self.was.display(), self.is.display());
        write!(
            f,
            "{was} {}: it was kept, as {is}. If something is missing now, close the database, put back \
             files that are all of one time, and give this file its name again; otherwise remove it",
            self.why
        )
    }
}

/// Gives a file a name that is free and that the engine never reads. The caller syncs the
/// directory.
pub(crate) fn set_aside(
    directory: &dyn Directory,
    name: &str,
    why: &'static str,
) -> Result<SetAside> {
    let mut free = format!("{name}{ASIDE_SUFFIX}");
    let mut count = 1;
    while directory
        .exists(&free)
        .map_err(|e| Error::io("look for", &directory.path_of(&free), e))?
    {
        count += 1;
        free = format!("{name}{ASIDE_SUFFIX}-{count}");
    }
    let was = directory.path_of(name);
    let renamed = directory.rename(name, &free);
    renamed.map_err(|e| Error::io(format!("rename to {free}"), &was, e))?;
    let is = directory.path_of(&free);
    Ok(SetAside { was, is, why })
}
