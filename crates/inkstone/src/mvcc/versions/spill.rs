//! The files of sealed segments: the spill file, where they go past the memory budget, and the undo
//! file, where those of large and old transactions go ([`super::saved`]).
//!
//! The spill file is temporary, never synced, worthless to any other process. Space is handed out
//! in extents of whole blocks, first fit, so that the end becomes free; free space at its end goes
//! back to the file system: at once, or, of a file that is kept, when [`SpillFile::cut`] is called.

use crate::paranoid::{Check, MANY, paranoid};
use crate::{Error, Result};
use inkstone_format::Corrupt;
use inkstone_io::{Create, Directory, ErrorKind, File, OpenOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the file in the database's directory.
pub(super) const SPILL_FILE: &str = "versions.tmp";

/// How long such a file lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// As long as the process.
    Temporary,
    /// As long as the database.
    Kept,
}
/// Extents are multiples of this many bytes.
const BLOCK: u64 = 4096;

/// A part of the spill file, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub offset: u64,
    pub length: u64,
}

impl Extent {
    /// With the rest of its last block, as it was handed out.
    pub fn whole_blocks(self) -> Self {
        Self {
            length: self.length.next_multiple_of(BLOCK),
            ..self
        }
    }
}

#[derive(Debug)]
pub(crate) struct SpillFile {
    directory: Arc<dyn Directory>,
    name: &'static str,
    lifetime: Lifetime,
    path: PathBuf,
    /// Created when it is first needed.
    file: Option<Arc<dyn File>>,
    /// Free extents below `end`, offset -> length; disjoint, none touch another or `end`.
    free: BTreeMap<u64, u64>,
    end: u64,
    /// Bytes of the file, as far as it was looked at; `None`: it was not, or a change failed.
    length: Option<u64>,
    /// A reservation has failed for want of space since the last [`SpillFile::take_refused`].
    refused: bool,
    /// Bytes ever written.
    written: u64,
}

impl SpillFile {
    /// A file of which nothing is in use. Removes what an earlier process left of a temporary one.
    pub fn open(
        directory: Arc<dyn Directory>,
        name: &'static str,
        lifetime: Lifetime,
    ) -> Result<Self> {
        let path = directory.path_of(name);
        let remove = || {
            if lifetime == Lifetime::Temporary && directory.exists(name)? {
                directory.remove(name)?;
            }
            Ok(())
        };
        remove().map_err(|e| Error::io("remove", &path, e))?;
        Ok(Self {
            directory,
            name,
            lifetime,
            path,
            file: None,
            free: BTreeMap::new(),
            end: 0,
            length: None,
            refused: false,
            written: 0,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes ever written.
    pub fn written_bytes(&self) -> u64 {
        self.written
    }

    /// Bytes of the file that are in use.
    pub fn used_bytes(&self) -> u64 {
        self.end - self.free.values().sum::<u64>()
    }

    /// Writes `bytes` to free space. After an error nothing is in use that was not before.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(Arc<dyn File>, Extent)> {
        self.file()?;
        let extent = self.allocate(bytes.len() as u64);
        match self.write_to(extent, bytes) {
            Ok(file) => Ok((file, extent)),
            Err(error) => {
                self.release(extent);
                Err(error)
            }
        }
    }

    /// Writes `bytes` to the beginning of an extent that is in use.
    pub fn write_to(&mut self, extent: Extent, bytes: &[u8]) -> Result<Arc<dyn File>> {
        let file = self.file()?;
        paranoid!(
            bytes.len() as u64 <= extent.length && extent.offset + extent.length <= self.end,
            "{} bytes for an extent of {} at {}",
            bytes.len(),
            extent.length,
            extent.offset
        );
        let written = file.write_at(bytes, extent.offset);
        written.map_err(|e| Error::io("write", &self.path, e))?;
        self.written += bytes.len() as u64;
        Ok(file)
    }

    /// Takes space that is there when it is written to, also on a disk that is full by then. After
    /// an error nothing is in use that was not before.
    pub fn reserve(&mut self, bytes: u64) -> Result<Extent> {
        let file = self.file()?;
        let extent = self.allocate(bytes);
        let taken = match file.allocate(extent.offset, extent.length) {
            // Where nothing can be allocated, only what is written is there for certain.
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                file.write_at(&vec![0; extent.length as usize], extent.offset)
            }
            taken => taken,
        };
        match taken {
            Ok(()) => Ok(extent),
            Err(error) => {
                self.release(extent);
                let error = Error::io("allocate", &self.path, error);
                self.refused |= matches!(error, Error::DiskFull { .. });
                Err(error)
            }
        }
    }

    /// Gives back what of an extent lies behind its first `bytes`. What is left of it, at least a
    /// block.
    pub fn shorten(&mut self, extent: Extent, bytes: u64) -> Extent {
        let kept = Extent {
            length: bytes.max(1),
            ..extent
        }
        .whole_blocks();
        if kept.length < extent.length {
            self.release(Extent {
                offset: kept.offset + kept.length,
                length: extent.length - kept.length,
            });
        }
        kept
    }

    /// Takes over extents that an earlier process has left in use. They do not overlap.
    pub fn adopt(&mut self, extents: &[Extent]) -> Result<Arc<dyn File>> {
        let file = self.file()?;
        // An empty segment has nothing there.
        let taken = extents.iter().filter(|extent| extent.length > 0);
        let mut used: Vec<_> = taken.map(|e| (e.offset, e.length)).collect();
        used.sort_unstable();
        for (offset, length) in used {
            let length = length.next_multiple_of(BLOCK);
            if offset < self.end || !offset.is_multiple_of(BLOCK) {
                let twice = Corrupt::at(0, "two extents of versions overlap");
                return Err(Error::corrupt_file(&self.path, offset, twice.detail));
            }
            if offset > self.end {
                self.free.insert(self.end, offset - self.end);
            }
            self.end = offset + length;
        }
        Ok(file)
    }

    /// The file, made if there is none yet.
    pub fn file(&mut self) -> Result<Arc<dyn File>> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let options = OpenOptions {
            create: Create::IfMissing,
            read_only: false,
            direct: false,
            dsync: false,
        };
        let opened = self.directory.open(self.name, options);
        let file = opened.map_err(|e| Error::io("create", &self.path, e))?;
        self.file = Some(file.clone());
        Ok(file)
    }

    /// At least a block: a segment may have been sealed before anything was appended, as one that
    /// was open for long.
    fn allocate(&mut self, bytes: u64) -> Extent {
        let length = bytes.max(1).next_multiple_of(BLOCK);
        let fitting = self.free.iter().find(|&(_, &free)| free >= length);
        let Some((&offset, &free)) = fitting else {
            let offset = self.end;
            self.end += length;
            self.length = self.length.map(|length| length.max(self.end));
            return Extent { offset, length };
        };
        self.free.remove(&offset);
        if free > length {
            self.free.insert(offset + length, free - length);
        }
        Extent { offset, length }
    }

    /// Gives an extent back.
    pub fn release(&mut self, extent: Extent) {
        let Extent {
            mut offset,
            mut length,
        } = extent;
        if length == 0 {
            return;
        }
        paranoid!(
            offset + length <= self.end,
            "an extent of {length} bytes at {offset} given back, of {}",
            self.end
        );
        paranoid!(
            self.free.range(offset..offset + length).next().is_none(),
            "the extent at {offset} is given back twice"
        );
        if let Some((&before, &free)) = self.free.range(..offset).next_back()
            && before + free == offset
        {
            self.free.remove(&before);
            (offset, length) = (before, free + length);
        }
        if let Some(after) = self.free.remove(&(offset + length)) {
            length += after;
        }
        if offset + length < self.end {
            self.free.insert(offset, length);
            return;
        }
        self.end = offset;
        if self.lifetime == Lifetime::Temporary
            && let Some(file) = &self.file
        {
            // A file that stays too long does no harm.
            let _ = file.set_len(self.end);
        }
    }

    /// Where the last extent in use ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of the file, as far as is known: at least those up to the last extent in use.
    pub fn length(&self) -> u64 {
        self.length.unwrap_or(self.end)
    }

    /// Bytes of the file, also of one that an earlier process has left and this one has not used.
    /// 0 if there is none: it is not made. Where that cannot be told, only what is known.
    pub fn find_length(&mut self) -> u64 {
        if self.length.is_none() {
            self.length = match self.directory.exists(self.name) {
                Ok(false) if self.file.is_none() => Some(0),
                Ok(_) => self.file().ok().and_then(|file| file.len().ok()),
                Err(_) => None,
            };
        }
        self.length()
    }

    /// Whether a reservation has failed for want of space since the last call.
    pub fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Shortens the file to so many bytes, or to where its last extent in use ends if that is more,
    /// by at most `most`. Bytes that were given back: 0 if there are none, or that failed.
    pub fn cut(&mut self, to: u64, most: u64) -> u64 {
        let (Some(file), Some(length)) = (&self.file, self.length) else {
            return 0;
        };
        let to = to.max(self.end).max(length.saturating_sub(most));
        if to >= length {
            return 0;
        }
        let cut = file.set_len(to);
        // After an error it is looked at anew.
        self.length = cut.is_ok().then_some(to);
        cut.map_or(0, |()| length - to)
    }

    /// Asserts that free extents are disjoint, do not touch, and lie below the end.
    #[cfg(test)]
    pub fn check_invariants(&self) {
        let mut last = None;
        for (&offset, &length) in &self.free {
            assert!(length > 0 && last.is_none_or(|end| end < offset));
            last = Some(offset + length);
        }
        assert!(last.is_none_or(|end| end < self.end));
    }
}

impl Check for SpillFile {
    /// Free extents are disjoint, do not touch, and lie below the end.
    fn check(&self) {
        let mut last = None;
        for (&offset, &length) in self.free.iter().take(MANY) {
            paranoid!(
                length > 0 && last.is_none_or(|end| end < offset),
                "{length} bytes of the spill file are free at {offset}, others to {last:?}"
            );
            paranoid!(
                offset.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK),
                "{length} bytes of the spill file are free at {offset}, no whole blocks"
            );
            last = Some(offset + length);
        }
        let last = self.free.last_key_value();
        paranoid!(
            last.is_none_or(|(offset, length)| offset + length < self.end),
            "the spill file ends at {}, and is free at its end: {last:?}",
            self.end
        );
        paranoid!(
            self.end == 0 || self.file.is_some(),
            "{} bytes of a spill file that was not made",
            self.end
        );
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        if self.file.take().is_some() && self.lifetime == Lifetime::Temporary {
            // The next open removes it if this does not.
            let _ = self.directory.remove(self.name);
        }
    }
}
