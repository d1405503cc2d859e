//! The log and the tablespace files as redo sees them.

use super::spaces::TablespaceFiles;
use super::{FrameSource, FrameView};
use crate::Result;
use crate::log::{LogReader, ReadParams};
use crate::store::SpaceFiles;
use inkstone_format::segment::{LOG_BLOCK, segment_file_name};
use inkstone_format::{Lsn, SpaceId};
use std::path::PathBuf;

/// A [`LogReader`] as a [`FrameSource`].
#[derive(Debug)]
pub struct LogSource {
    reader: LogReader,
    directory: PathBuf,
    segment_bytes: u64,
    bytes_total: u64,
}

impl LogSource {
    /// Opens the log for reading.
    pub fn open(params: ReadParams) -> Result<Self> {
        let segment_bytes = params.segment_bytes;
        let directory = params.directory.path().to_owned();
        let last = LogReader::segments(&*params.directory)?
            .into_iter()
            .map(|segment| segment.number)
            .max();
        let limit = last.map_or(0, |number| {
            number.saturating_add(1).saturating_mul(segment_bytes)
        });
        let bytes_total = limit.saturating_sub(params.from.0);
        Ok(Self {
            reader: LogReader::open(params)?,
            directory,
            segment_bytes,
            bytes_total,
        })
    }
}

impl LogSource {
    /// See [`LogReader::end_block`].
    pub fn end_block(&self) -> &[u8] {
        self.reader.end_block()
    }
}

impl FrameSource for LogSource {
    fn next(&mut self) -> Result<Option<FrameView<'_>>> {
        let frame = self.reader.next()?;
        Ok(frame.map(|frame| FrameView {
            start: frame.start,
            end: frame.end,
            epoch: frame.epoch,
            payload: frame.payload,
        }))
    }

    fn position(&self) -> Lsn {
        self.reader.position()
    }

    fn epoch(&self) -> u64 {
        self.reader.epoch()
    }

    fn locate(&self, lsn: Lsn) -> (PathBuf, u64) {
        let name = segment_file_name(lsn.0 / self.segment_bytes);
        let offset = LOG_BLOCK as u64 + lsn.0 % self.segment_bytes;
        (self.directory.join(name), offset)
    }

    /// Segments are filled with zeroes ahead of their use, so this is more than there is to read.
    fn bytes_total(&self) -> Option<u64> {
        Some(self.bytes_total)
    }
}

impl TablespaceFiles for SpaceFiles {
    fn exists(&self, space: SpaceId) -> Result<bool> {
        SpaceFiles::exists(self, space)
    }

    fn create(&self, space: SpaceId, pages: u32) -> Result<()> {
        self.open_or_create(space, pages).map(drop)
    }

    fn ensure_pages(&self, space: SpaceId, pages: u32) -> Result<()> {
        self.open(space)?.reach_pages(pages)
    }

    fn path(&self, space: SpaceId) -> PathBuf {
        SpaceFiles::path(self, space)
    }
}
