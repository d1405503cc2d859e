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
//! 2. A log that was closed unused is opened so; after a crash it is completed first. Tested by
//!    `an_unused_log_is_a_part_of_a_segment`.
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
        let bytes = first.map_or(Ok(None), |first| self.unused_bytes(first))?;
        let within = start - number * self.params.segment_bytes;
        paranoid!(
            first.is_none_or(|first| first >= number),
            "segment {first:x?} is live, before LSN {start}"
        );
        let is_left = |bytes: u64| bytes >= within + self.unused_bytes_wanted() / 2;
        let begins = match first {
            None => self.params.is_new,
            Some(_) => first == Some(number) && last == first && bytes.is_some_and(is_left),
        };
        if !begins {
            self.want();
            if first == Some(number) && bytes.is_some() {
                let file = self.open_file(number, self.params.dsync)?;
                let len = file.len().map_err(|e| Error::io("size", file.path(), e))?;
                self.write_allocated(&*file, len - len % LOG_BLOCK as u64, self.file_bytes())?;
            }
        }
        Ok(begins)
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
        self.write_allocated(&*file, self.offset(end), self.file_bytes())?;
        self.end.store(whole, Ordering::Release);
        Ok(())
    }

    /// Allocates a part of a file, and fills it.
    pub(super) fn write_allocated(&self, file: &dyn File, from: u64, to: u64) -> Result<()> {
        paranoid!(
            from < to && to <= self.file_bytes() && from.is_multiple_of(LOG_BLOCK as u64),
            "bytes {from} to {to} of a segment's file are filled"
        );
        match file.allocate(from, to - from) {
            Err(e) if e.kind() != ErrorKind::Unsupported => {
                return Err(Error::io("allocate", file.path(), e));
            }
            _ => {}
        }
        self.write_zeroes_to(file, from, to)
    }
}
