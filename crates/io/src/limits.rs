//! What the operating system allows this process.

use crate::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit on open descriptors (`RLIMIT_NOFILE`) as far as this process may, and returns it;
/// `None` if there is none. A limit that cannot be raised stays as it is: that is no error.
///
/// ```
/// let limit = inkstone_io::limits::raise_open_files();
/// assert!(limit.is_none_or(|files| files > 0));
/// assert_eq!(inkstone_io::limits::open_files(), limit);
/// ```
pub fn raise_open_files() -> Option<u64> {
    let _ = try_raise();
    open_files()
}

/// How many descriptors this process may have open; `None` for as many as it likes.
pub fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

fn try_raise() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return Ok(());
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    Ok(setrlimit(Resource::Nofile, raised)?)
}
