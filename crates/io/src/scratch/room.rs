//! The file without a name, in units that files take and give back.

use crate::posix::storage_error;
use crate::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a unit: a page of the default size.
pub(super) const UNIT: u64 = 16 << 10;
/// So many units are asked of the disk at a time, where it has them.
const GROWTH_UNITS: u32 = 64;

/// The file without a name; see above.
#[derive(Debug)]
pub(super) struct Room {
    file: File,
    units: Mutex<Units>,
}

#[derive(Debug, Default)]
struct Units {
    /// Given back; all below `end`.
    free: BTreeSet<u32>,
    /// Units that the file has.
    end: u32,
}

impl Room {
    pub fn new(folder: &Path) -> Result<Self> {
        Ok(Self {
            file: nameless(folder)?.into(),
            units: Mutex::default(),
        })
    }

    /// So many units, of which the disk has each, or none. What stands in them is left from before.
    pub fn take(&self, count: u64) -> Result<Vec<u32>> {
        let full = || Error::from(ErrorKind::StorageFull);
        let count = u32::try_from(count).map_err(|_| full())?;
        let mut units = self.units.lock();
        let missing = count.saturating_sub(units.free.len() as u32);
        if missing > 0 {
            let more = missing.max(GROWTH_UNITS);
            let end = match self.grow(units.end, more) {
                Err(error) if error.kind() == ErrorKind::StorageFull && more > missing => {
                    self.grow(units.end, missing)
                }
                other => other,
            }?;
            let fresh = units.end..end;
            units.free.extend(fresh);
            units.end = end;
        }
        Ok((0..count).map_while(|_| units.free.pop_first()).collect())
    }

    fn grow(&self, end: u32, more: u32) -> Result<u32> {
        let grown = end.checked_add(more).ok_or(ErrorKind::StorageFull)?;
        let (offset, length) = (u64::from(end) * UNIT, u64::from(more) * UNIT);
        let reserve = || {
            let no_flags = FallocateFlags::empty();
            rustix::fs::fallocate(&self.file, no_flags, offset, length)
        };
        match retry_on_intr(reserve) {
            Ok(()) => Ok(grown),
            // As for any file; then a full disk is noticed by the writes.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::INVAL) => {
                self.file.set_len(u64::from(grown) * UNIT)?;
                Ok(grown)
            }
            Err(error) => Err(storage_error(error)),
        }
    }

    /// The file is cut behind the last unit that is used.
    pub fn give_back(&self, gone: impl Iterator<Item = u32>) {
        let mut units = self.units.lock();
        units.free.extend(gone);
        let was = units.end;
        while units.end > 0 && units.free.last() == Some(&(units.end - 1)) {
            units.free.pop_last();
            units.end -= 1;
        }
        if units.end < was {
            // Where it fails the disk has the bytes until the file goes.
            let _ = self.file.set_len(u64::from(units.end) * UNIT);
        }
    }

    pub fn read(&self, unit: u32, at: u64, buffer: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buffer, u64::from(unit) * UNIT + at)
    }

    pub fn write(&self, unit: u32, at: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, u64::from(unit) * UNIT + at)
    }

    #[cfg(test)]
    pub fn len(&self) -> u64 {
        self.file.metadata().expect("a length").len()
    }
}

fn nameless(folder: &Path) -> Result<OwnedFd> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::openat(CWD, folder, flags | OFlags::TMPFILE, mode) {
        // Not every file system makes files without names: one is made, and its name is removed.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("inkstone-scratch-{}-{number}", std::process::id());
            let path = folder.join(name);
            let new = flags | OFlags::CREATE | OFlags::TRUNC;
            let file = rustix::fs::openat(CWD, &path, new, mode)?;
            rustix::fs::unlink(&path)?;
            Ok(file)
        }
        other => Ok(other?),
    }
}
