//! The log of a database in which no statement has written: a part of its first segment.
//!
//! An opening logs a few hundred bytes. So a new database has [`UNUSED_BYTES_MAX`] of its first
//! segment, and no others. The first statement that wants room ([`Segments::want`]) finds none,
//! as the floor alone is more, and has that segment completed before it writes anything: a disk
//! that is too full for it is an error of the statement, and the log that there is suffices for
//! checkpoints and a close. From then on all is made ahead, in the background, and stays.
//!
//! # Promises
//!
//! 1. Nothing is written behind what was filled, and what is filled was allocated before: an
//!    unused log is completed under `upkeep`, where no other thread writes. Checked by
//!    [`Segments::complete`]. Tested by `an_unused_log_is_a_part_of_a_segment`.
//! 2. A log that is a part of a segment is opened so, closed or not: no statement that has returned
//!    wanted more. What is rolled back in it (of a power loss that took the rest) wants room as a
//!    statement does, and waits where there is none. Tested by
//!    `an_unused_log_is_a_part_of_a_segment`,
//!    `an_unwritten_database_that_was_killed_stays_small_and_opens_on_a_full_disk`.
//! 3. Completing it on a full disk leaves the file as long as it was. Tested by
//!    `an_unwritten_database_that_was_killed_stays_small_and_opens_on_a_full_disk`.
//!
//! What is filled is not synced here: a sync beside one of the log's own could take its error away.
//! The next commit's sync has it, too, and until then nothing depends on it.

use super::Segments;
use crate::paranoid::paranoid;
use crate::sync::atomic::Ordering;
use crate::{Error, Result};
use inkstone_format::segment::{LOG_BLOCK, segment_file_name};
use inkstone_io::{Create, ErrorKind, File};

/// Bytes of log in the first segment of a new database; half of them in a shorter segment.
const UNUSED_BYTES_MAX: u64 = 256 << 10;
/// This part of them must be left for a log that was there to stay so, where there is room for
/// more; an opening and a close take a few hundred bytes.
const LEFT_PART: u64 = 2;
/// The same on a full disk.
const LEFT_PART_ON_FULL_DISK: u64 = 8;

impl Segments {
    /// Bytes of log of a segment that is made in an unused log.
    fn unused_bytes_wanted(&self) -> u64 {
        (self.params.segment_bytes / 2).clamp(LOG_BLOCK as u64, UNUSED_BYTES_MAX)
    }

    /// Length of a new segment's file.
    pub(super) fn new_bytes(&self) -> u64 {
        if self.is_wanted.load(Ordering::Relaxed) {
            self.file_bytes()
        } else {
            LOG_BLOCK as u64 + self.unused_bytes_wanted()
        }
    }

    /// Whether the log that ends at `start` may stay as short as it is. If there is a segment and
    /// it may not, it is completed.
    pub(super) fn begins_unused(&self, start: u64) -> Result<bool> {
        let number = self.number(start);
        let (first, last) = {
            let table = self.table.lock();
            let number = |live: Option<(&u64, _)>| live.map(|(&number, _)| number);
            let first = number(table.live.first_key_value());
            (
                first,
                table.live.last_key_value().map(|(&number, _)| number),
            )
        };
        if !self.params.may_be_unused {
            return Ok(false);
        }
        paranoid!(
            first.is_none_or(|first| first >= number),
            "segment {first:x?} is live, before LSN {start}"
        );
        if first.is_none() && self.params.is_new {
            return Ok(true);
        }
        let bytes = match first.filter(|&first| first == number) {
            Some(first) => self.unused_bytes(first)?,
            None => None,
        };
        if let Some(bytes) = bytes {
            let within = start - number * self.params.segment_bytes;
            let is_left =
                |part| last == first && bytes >= within + self.unused_bytes_wanted() / part;
            if is_left(LEFT_PART) {
                return Ok(true);
            }
            let file = self.open_file(number, self.params.dsync)?;
            match self.lengthen(&*file, LOG_BLOCK as u64 + bytes) {
                Err(Error::DiskFull { .. }) if is_left(LEFT_PART_ON_FULL_DISK) => return Ok(true),
                filled => filled?,
            }
        }
        self.want();
        Ok(false)
    }

    /// Bytes of log that a segment's file has, if it is not whole.
    pub(super) fn unused_bytes(&self, number: u64) -> Result<Option<u64>> {
        if !self.params.may_be_unused {
            return Ok(None);
        }
        let file = self.open_name(&segment_file_name(number), Create::Never, false)?;
        let len = file.len().map_err(|e| Error::io("size", file.path(), e))?;
        let bytes = len.saturating_sub(LOG_BLOCK as u64) / LOG_BLOCK as u64 * LOG_BLOCK as u64;
        Ok((bytes < self.params.segment_bytes).then_some(bytes))
    }

    /// Whether no statement has wanted room yet, or what it wanted is not there.
    pub(in crate::log) fn is_unused(&self) -> bool {
        let whole = (self.last.load(Ordering::Acquire) + 1) * self.params.segment_bytes;
        self.end.load(Ordering::Acquire) < whole
    }

    /// A statement wants room: from now on the log is as long as it is to be.
    pub(in crate::log) fn want(&self) {
        if !self.is_wanted.load(Ordering::Relaxed) {
            self.is_wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Fills the last segment up to its end. Under `upkeep`.
    pub(super) fn complete(&self) -> Result<()> {
        if !self.is_unused() {
            return Ok(());
        }
        let number = self.last.load(Ordering::Acquire);
        let whole = (number + 1) * self.params.segment_bytes;
        let end = self.end.load(Ordering::Acquire);
        paranoid!(
            self.number(end) == number && end.is_multiple_of(LOG_BLOCK as u64),
            "segment {number:x} is filled from LSN {end} on"
        );
        let file = self.open_file(number, self.params.dsync)?;
        self.lengthen(&*file, self.offset(end))?;
        self.end.store(whole, Ordering::Release);
        Ok(())
    }

    /// Fills a segment's file from `from` on, where it ends. A full disk gets back what was filled.
    fn lengthen(&self, file: &dyn File, from: u64) -> Result<()> {
        let filled = self.write_allocated(file, from, self.file_bytes());
        if matches!(filled, Err(Error::DiskFull { .. })) {
            // If that fails the file is longer than it need be, which does no harm.
            let _ = file.set_len(from);
        }
        filled
    }

    /// Allocates a part of a file, and fills it.
    pub(super) fn write_allocated(&self, file: &dyn File, from: u64, to: u64) -> Result<()> {
        paranoid!(
            from < to && to <= self.file_bytes() && from.is_multiple_of(LOG_BLOCK as u64),
            "bytes {from} to {to} of a segment's file are filled"
        );
        let allocated = match file.allocate(from, to - from) {
            Err(e) if e.kind() != ErrorKind::Unsupported => {
                Err(Error::io("allocate", file.path(), e))
            }
            _ => self.write_zeroes_to(file, from, to),
        };
        allocated.map_err(|error| match error {
            Error::DiskFull { what } => Error::DiskFull {
                what: format!("{} more bytes of {what}", to - from),
            },
            other => other,
        })
    }
}
