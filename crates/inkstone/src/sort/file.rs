//! The file of runs: temporary, never synced, worthless to any other process. A run is a row of
//! chunks, each with its checksum, which memory holds.

use crate::mvcc::versions::{Extent, Lifetime, SpillFile};
use crate::paranoid::{Checked, paranoid};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::{Error, Result};
use inkstone_io::{Directory, File};
use std::sync::Arc;

/// Name of the file in the database's directory.
pub(super) const SORT_FILE: &str = "sort.tmp";
/// Bytes of a run that are written, and read, at once.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// The file that all sorters of a database share.
#[derive(Debug)]
pub(crate) struct SortFile {
    directory: Arc<dyn Directory>,
    /// `None`: the database is not open yet, or closed.
    file: Mutex<Option<Checked<SpillFile>>>,
    /// Sorters that gather rows.
    sorters: AtomicUsize,
}

impl SortFile {
    pub fn new(directory: Arc<dyn Directory>) -> Self {
        Self {
            directory,
            file: Mutex::new(None),
            sorters: AtomicUsize::new(0),
        }
    }

    /// Removes what an earlier process has left.
    pub fn open(&self) -> Result<()> {
        let file = SpillFile::open(self.directory.clone(), SORT_FILE, Lifetime::Temporary)?;
        *self.file.lock() = Some(Checked::new(file));
        Ok(())
    }

    /// Sorters that are left get [`Error::Closed`] where they would write: the name may be that of
    /// another opener's file from now on.
    pub fn close(&self) {
        drop(self.file.lock().take());
    }

    pub(super) fn enter(&self) {
        self.sorters.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        let were = self.sorters.fetch_sub(1, Ordering::Relaxed);
        paranoid!(were > 0, "a sorter ends that was never made");
    }

    /// A sorter's part of what all may have.
    pub(super) fn share(&self, all: usize) -> usize {
        all / self.sorters.load(Ordering::Relaxed).max(1)
    }

    fn write(&self, bytes: &[u8]) -> Result<(Arc<dyn File>, Extent)> {
        let open = self.file.lock();
        let file = open.as_ref().ok_or(Error::Closed)?;
        file.lock().write(bytes)
    }

    fn release(&self, chunks: impl Iterator<Item = Extent>) {
        if let Some(file) = self.file.lock().as_ref() {
            let mut file = file.lock();
            chunks.for_each(|chunk| file.release(chunk));
        }
    }

    #[cfg(test)]
    pub(super) fn used_bytes(&self) -> u64 {
        let open = self.file.lock();
        open.as_ref().map_or(0, |file| file.lock().used_bytes())
    }
}

/// A part of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    extent: Extent,
    crc: u32,
}

/// Runs of one sorter; their room is given back with it.
#[derive(Debug)]
pub(super) struct Runs {
    shared: Arc<SortFile>,
    /// Once something is written.
    file: Option<Arc<dyn File>>,
    runs: Vec<Vec<Chunk>>,
}

impl Runs {
    pub fn new(shared: Arc<SortFile>) -> Self {
        Self {
            shared,
            file: None,
            runs: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// The chunks of a run.
    pub fn chunks(&self, run: usize) -> usize {
        self.runs[run].len()
    }

    /// Begins another run.
    pub fn begin(&mut self) {
        paranoid!(
            self.runs.last().is_none_or(|run| !run.is_empty()),
            "run {} has no chunk, and another begins",
            self.runs.len()
        );
        self.runs.push(Vec::new());
    }

    /// Adds a chunk to the last run.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        paranoid!(
            !bytes.is_empty() && bytes.len() <= CHUNK_BYTES,
            "a chunk of {} bytes",
            bytes.len()
        );
        let (file, extent) = self.shared.write(bytes)?;
        paranoid!(
            extent.length >= bytes.len() as u64,
            "{} bytes were written into an extent of {}",
            bytes.len(),
            extent.length
        );
        self.file = Some(file);
        let crc = inkstone_format::doublewrite::image_crc(bytes);
        let extent = Extent {
            length: bytes.len() as u64,
            ..extent
        };
        self.runs
            .last_mut()
            .expect("a run was begun")
            .push(Chunk { extent, crc });
        Ok(())
    }

    /// Appends a chunk's bytes to `buffer`.
    pub fn read(&self, run: usize, chunk: usize, buffer: &mut Vec<u8>) -> Result<()> {
        let Chunk { extent, crc } = self.runs[run][chunk];
        paranoid!(
            extent.length > 0 && extent.length <= CHUNK_BYTES as u64,
            "chunk {chunk} of run {run} has {} bytes",
            extent.length
        );
        let file = self.file.as_ref().expect("a chunk was written");
        let at = buffer.len();
        buffer.resize(at + extent.length as usize, 0);
        let path = file.path();
        file.read_at(&mut buffer[at..], extent.offset)
            .map_err(|e| Error::io("read", path, e))?;
        if inkstone_format::doublewrite::image_crc(&buffer[at..]) != crc {
            let what = "a part of a run does not have its checksum";
            return Err(Error::corrupt_file(path, extent.offset, what));
        }
        Ok(())
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        let chunks = self.runs.iter().flatten();
        self.shared
            .release(chunks.map(|chunk| chunk.extent.whole_blocks()));
    }
}
