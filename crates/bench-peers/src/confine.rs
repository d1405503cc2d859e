//! A memory limit for a child process, page cache included: without it, a store that leaves caching
//! to the system would have all of the machine's memory for its cache.

use crate::store::Result;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A control group with a limit; removed when dropped.
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// Makes a group of this size. Needs the right to make control groups (root, mostly).
    pub fn new(bytes: u64) -> Result<Self> {
        // Version 1 has a hierarchy for memory alone, version 2 one for everything.
        let (root, limit) = match Path::new("/sys/fs/cgroup/memory").is_dir() {
            true => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            false => ("/sys/fs/cgroup", "memory.max"),
        };
        let path = Path::new(root).join(format!("inkstone-peers-{}", std::process::id()));
        let told = |e| {
            format!(
                "a memory limit needs a control group ({}): {e}",
                path.display()
            )
        };
        fs::create_dir_all(&path).map_err(told)?;
        let group = Self { path: path.clone() };
        fs::write(path.join(limit), bytes.to_string()).map_err(told)?;
        Ok(group)
    }

    /// Lets a command begin its life in the group.
    pub fn confine(&self, command: &mut Command) {
        let list = self.path.join("cgroup.procs");
        // SAFETY: between fork and exec, a write to a file of a number that is formatted on the
        // stack and of a path that was made before; no lock or allocation of the parent's is
        // needed.
        unsafe {
            command.pre_exec(move || fs::write(&list, b"0"));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It is empty: its process has ended.
        let _ = fs::remove_dir(&self.path);
    }
}
