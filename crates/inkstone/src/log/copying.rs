//! A copy of the log that is made while the log is written, for a copy of the database.
//!
//! The caller keeps what is not copied yet from being recycled. The copy is made in steps
//! ([`LogCopy::catch_up`]), each of what has become durable since the last one. What is durable
//! does not change in its place, so it is read there; the block in which it ends is copied again
//! with the next step.
//!
//! # Promises
//!
//! 1. The copy has the log up to its end, durably, and behind that zeroes: it is read to that end
//!    and no further. Tested by `a_copied_log_ends_where_it_is_said_to_end`.

use super::{Log, LogShared};
use crate::paranoid::paranoid;
use crate::{Error, Result};
use inkstone_format::Lsn;
use inkstone_format::segment::{LOG_BLOCK, segment_file_name};
use inkstone_io::{AlignedBuffer, Create, Directory, File, OpenOptions, open_past_cache};
use std::sync::Arc;

/// Bytes that are read and written at once, at most.
const PIECE_BYTES: u64 = 1 << 20;

/// A copy under way.
pub(crate) struct LogCopy<'l> {
    log: &'l Log,
    target: Arc<dyn Directory>,
    /// Copied up to here.
    next: u64,
    /// The segment that is being copied.
    open: Option<Pair>,
    buffer: AlignedBuffer,
}

/// A segment and its copy.
struct Pair {
    number: u64,
    source: Arc<dyn File>,
    copy: Arc<dyn File>,
}

impl Log {
    /// Begins a copy of the log from an LSN on, into an empty directory.
    pub(crate) fn begin_copy(&self, from: Lsn, target: Arc<dyn Directory>) -> LogCopy<'_> {
        paranoid!(
            from <= self.durable_lsn(),
            "a copy of the log begins at LSN {from}, behind its end"
        );
        LogCopy {
            log: self,
            target,
            next: from.0,
            open: None,
            buffer: AlignedBuffer::zeroed(PIECE_BYTES as usize),
        }
    }
}

impl LogCopy<'_> {
    /// How far the log is copied.
    pub fn copied(&self) -> Lsn {
        Lsn(self.next)
    }

    /// Copies what is durable and not copied yet. How many bytes that was.
    pub fn catch_up(&mut self) -> Result<u64> {
        self.copy_up_to(self.log.durable_lsn().0)
    }

    /// Copies the rest up to `end`, where a frame ends, and makes the copy durable. How many bytes
    /// that was.
    pub fn finish(mut self, end: Lsn) -> Result<u64> {
        paranoid!(
            end <= self.log.durable_lsn() && self.next <= end.0,
            "a copy of the log up to LSN {} ends at {end}",
            self.next
        );
        let bytes = self.copy_up_to(end.0)?;
        if let Some(last) = self.open.take() {
            last.close()?;
        }
        let synced = self.target.sync();
        synced.map_err(|e| Error::io("sync", self.target.path(), e))?;
        Ok(bytes)
    }

    fn copy_up_to(&mut self, end: u64) -> Result<u64> {
        let log: &LogShared = &self.log.shared;
        let before = self.next;
        while self.next < end {
            log.poison.check()?;
            let number = log.segments.number(self.next);
            let segment_end = (number + 1) * log.segments.segment_bytes();
            let piece_end = block_floor(self.next) + PIECE_BYTES;
            let to = end.min(segment_end).min(piece_end);
            self.copy_piece(number, to)?;
            self.next = to;
        }
        Ok(self.next - before)
    }

    /// Copies a part of one segment, from the block of `next` on.
    fn copy_piece(&mut self, number: u64, to: u64) -> Result<()> {
        paranoid!(
            self.open.as_ref().is_none_or(|open| open.number <= number),
            "a copy of the log goes back to segment {number:x}"
        );
        if self.open.as_ref().is_none_or(|open| open.number != number)
            && let Some(done) = self.open.replace(self.open(number)?)
        {
            done.close()?;
        }
        let Some(open) = &self.open else {
            return Ok(());
        };
        let from = block_floor(self.next);
        let bytes = (to - from).next_multiple_of(LOG_BLOCK as u64) as usize;
        paranoid!(
            bytes <= self.buffer.len() && to > from,
            "{bytes} bytes of log from LSN {from} to {to} are copied at once"
        );
        let offset = self.log.shared.segments.offset(from);
        open.read(&mut self.buffer[..bytes], offset)?;
        // What stands there is not durable, or will be copied with what follows.
        self.buffer[(to - from) as usize..bytes].fill(0);
        open.write(&self.buffer[..bytes], offset)
    }

    /// Opens a segment, and begins its copy with its header.
    fn open(&self, number: u64) -> Result<Pair> {
        let (name, segments) = (segment_file_name(number), &self.log.shared.segments);
        let source = open_past_cache(segments.directory(), &name)
            .map_err(|e| Error::io("open", &segments.path(number), e))?;
        let options = OpenOptions {
            create: Create::New,
            read_only: false,
            direct: false,
            dsync: false,
        };
        let copy = self.target.open(&name, options);
        let copy = copy.map_err(|e| Error::io("create", &self.target.path_of(&name), e))?;
        let pair = Pair {
            number,
            source,
            copy,
        };
        let mut header = AlignedBuffer::zeroed(LOG_BLOCK);
        pair.read(&mut header, 0)?;
        pair.write(&header, 0)?;
        Ok(pair)
    }
}

impl Pair {
    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let read = self.source.read_at(bytes, offset);
        read.map_err(|e| Error::io("read", self.source.path(), e))
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        paranoid!(
            bytes.len().is_multiple_of(LOG_BLOCK) && offset.is_multiple_of(LOG_BLOCK as u64),
            "{} bytes of log are copied to byte {offset}",
            bytes.len()
        );
        let written = self.copy.write_at(bytes, offset);
        written.map_err(|e| Error::io("write", self.copy.path(), e))
    }

    fn close(self) -> Result<()> {
        let synced = self.copy.sync();
        synced.map_err(|e| Error::io("sync", self.copy.path(), e))
    }
}

fn block_floor(lsn: u64) -> u64 {
    lsn - lsn % LOG_BLOCK as u64
}
