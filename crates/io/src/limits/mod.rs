//! What the operating system allows this process.

use crate::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;

/// Where control groups are mounted.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";
/// Version 1 says "no limit" by a number near 2^63.
const NO_LIMIT: u64 = 1 << 60;

/// Raises the limit on open descriptors (`RLIMIT_NOFILE`) as far as this process may, and returns
/// it; `None` if there is none. A limit that cannot be raised stays as it is: that is no error.
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

/// The least limit on memory, in bytes, of the control groups that this process is in, parents with
/// them: of the container that it runs in, or of the service. `None` where there is none, or none
/// can be read.
pub fn memory() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    memory_of(&groups, Path::new(CONTROL_GROUPS))
}

/// `groups` is what `/proc/self/cgroup` says, `root` where control groups are mounted.
fn memory_of(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        // A number, the controllers of version 1 (version 2: none), and the path of the group.
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        if controllers.is_empty() {
            least(root, path, "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            least(&root.join("memory"), path, "memory.limit_in_bytes")
        } else {
            None
        }
    });
    limits.min()
}

/// The least limit of a group and its parents up to the mount. A container may see its own group as
/// the mount, while the path is as the host knows it: a part of the path that is not there has no
/// limit.
fn least(mount: &Path, group: &str, file: &str) -> Option<u64> {
    let group = Path::new(group.trim_start_matches('/'));
    let limit = |group: &Path| -> Option<u64> {
        let text = std::fs::read_to_string(mount.join(group).join(file)).ok()?;
        text.trim().parse().ok().filter(|&bytes| bytes < NO_LIMIT)
    };
    group.ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests;
