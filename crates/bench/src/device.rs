//! What the kernel counts for a block device: the check on the engine's own counters of bytes. It
//! includes what others write to the device meanwhile.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A line of `/proc/diskstats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    major: u64,
    minor: u64,
}

/// Bytes in a sector of `/proc/diskstats`, whatever the device has.
const SECTOR: u64 = 512;

impl Device {
    /// The device of a path. It may have no counters: a file system of another machine, or in
    /// memory.
    pub fn of(path: &Path) -> Option<Self> {
        let number = std::fs::metadata(path).ok()?.dev();
        Some(Self {
            major: (number >> 8 & 0xfff) | (number >> 32 & !0xfff),
            minor: (number & 0xff) | (number >> 12 & !0xff & 0xffff_ffff),
        })
    }

    /// Bytes that were written to it since the machine started.
    pub fn bytes_written(self) -> Option<u64> {
        let table = std::fs::read_to_string("/proc/diskstats").ok()?;
        table.lines().find_map(|line| {
            let words: Vec<u64> = line
                .split_whitespace()
                .enumerate()
                .filter(|(n, _)| [0, 1, 9].contains(n))
                .map_while(|(_, word)| word.parse().ok())
                .collect();
            match words[..] {
                [major, minor, sectors] if (major, minor) == (self.major, self.minor) => {
                    Some(sectors * SECTOR)
                }
                _ => None,
            }
        })
    }
}

/// What a device is given between two moments.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    device: Option<Device>,
    before: Option<u64>,
}

impl Written {
    /// Counts from now on.
    pub fn begin(path: &Path) -> Self {
        let device = Device::of(path);
        Self {
            device,
            before: device.and_then(Device::bytes_written),
        }
    }

    /// Bytes since then, if the kernel counts them.
    pub fn bytes(self) -> Option<u64> {
        Some(self.device?.bytes_written()? - self.before?)
    }
}
