//! The file of changes for which the page index had no room: parts, each with changes of one page
//! in the order of the log.
//!
//! It is temporary, never synced, worthless to any other process.
//!
//! A part is the changes one behind the other: start and end of the frame (8 bytes each), length of
//! the record (4), the record. Numbers are little-endian.

use super::index::{Change, Place};
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::{Error, Result};
use inkstone_format::Lsn;
use inkstone_io::{Create, Directory, File, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;

/// Name of the file in the database's directory.
const FILE: &str = "redo.tmp";
/// Bytes before a record.
const HEAD: usize = 8 + 8 + 4;
/// Bytes that are written together, about.
const WRITE: usize = 1 << 20;

/// The number of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartNumber(u32);

/// No part.
pub(super) const NO_PART: PartNumber = PartNumber(u32::MAX);

#[derive(Clone, Copy, Debug)]
struct Part {
    offset: u64,
    length: u64,
    /// The part with the changes before these.
    before: PartNumber,
    crc: u32,
}

/// Bytes of memory that a part takes.
pub(super) const PART_BYTES: usize = size_of::<Part>();

/// See the module.
pub(super) struct SpillFile {
    directory: Arc<dyn Directory>,
    path: PathBuf,
    file: Arc<dyn File>,
    parts: Vec<Part>,
    end: u64,
}

/// Removes what an earlier process has left.
pub(crate) fn remove_spill(directory: &dyn Directory) -> Result<()> {
    let remove = || {
        if directory.exists(FILE)? {
            directory.remove(FILE)
        } else {
            Ok(())
        }
    };
    remove().map_err(|e| Error::io("remove", &directory.path_of(FILE), e))
}

impl SpillFile {
    pub fn create(directory: Arc<dyn Directory>) -> Result<Self> {
        remove_spill(&*directory)?;
        let path = directory.path_of(FILE);
        let options = OpenOptions {
            create: Create::New,
            read_only: false,
            direct: false,
            dsync: false,
        };
        let file = directory.open(FILE, options);
        Ok(Self {
            file: file.map_err(|e| Error::io("create", &path, e))?,
            path,
            directory,
            parts: Vec::new(),
            end: 0,
        })
    }

    /// Parts so far.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Begins to add parts.
    pub fn append(&mut self) -> Append<'_> {
        Append {
            first: self.parts.len(),
            begin: self.end,
            is_kept: false,
            bytes: Vec::new(),
            file: self,
        }
    }

    /// Puts the changes of a part, and of those before it, into `room`.
    pub fn read(&self, last: PartNumber, room: &mut Vec<u8>) -> Result<()> {
        room.clear();
        let mut parts = Vec::new();
        let mut at = last;
        while at != NO_PART {
            let part = self.parts[at.0 as usize];
            parts.push(part);
            paranoid!(
                part.before == NO_PART || part.before.0 < at.0,
                "part {at:?} is behind a later one, {:?}",
                part.before
            );
            at = part.before;
        }
        for part in parts.into_iter().rev() {
            let from = room.len();
            room.resize(from + part.length as usize, 0);
            let read = self.file.read_at(&mut room[from..], part.offset);
            read.map_err(|e| Error::io("read", &self.path, e))?;
            if crc32c::crc32c(&room[from..]) != part.crc {
                let detail = "changes of a page were written here, and are not what is read";
                return Err(Error::corrupt_file(
                    &self.path,
                    part.offset,
                    detail.to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// Nothing of it is needed any more.
    pub fn remove(self) {
        // What stays is removed by the next opening.
        let _ = remove_spill(&*self.directory);
    }
}

/// Adds parts; all of them, or none.
pub(super) struct Append<'f> {
    file: &'f mut SpillFile,
    first: usize,
    begin: u64,
    is_kept: bool,
    bytes: Vec<u8>,
}

impl Append<'_> {
    /// Adds a part behind another one of its page.
    pub fn part<'c>(
        &mut self,
        before: PartNumber,
        changes: impl Iterator<Item = Change<'c>>,
    ) -> Result<PartNumber> {
        let from = self.bytes.len();
        for change in changes {
            let (Place { start, end }, record) = change.parts();
            self.bytes.extend_from_slice(&start.0.to_le_bytes());
            self.bytes.extend_from_slice(&end.0.to_le_bytes());
            let length = record.len() as u32;
            self.bytes.extend_from_slice(&length.to_le_bytes());
            self.bytes.extend_from_slice(record);
        }
        let part = &self.bytes[from..];
        paranoid!(part.len() > HEAD, "a part of {} bytes", part.len());
        let number = PartNumber(self.file.parts.len() as u32);
        self.file.parts.push(Part {
            offset: self.file.end + from as u64,
            length: part.len() as u64,
            before: if mutants::on(Mutant::SpilledChangesForgotten) {
                NO_PART
            } else {
                before
            },
            crc: crc32c::crc32c(part),
        });
        if self.bytes.len() >= WRITE {
            self.write()?;
        }
        Ok(number)
    }

    fn write(&mut self) -> Result<()> {
        let file = &mut *self.file;
        let written = file.file.write_at(&self.bytes, file.end);
        written.map_err(|e| Error::io("write", &file.path, e))?;
        file.end += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    /// Has them all; how many bytes they are.
    pub fn finish(mut self) -> Result<u64> {
        self.write()?;
        let last = self.file.parts.last().map_or(0, |p| p.offset + p.length);
        paranoid!(
            last == self.file.end && self.begin <= last,
            "parts end at {last}, what was written at {}",
            self.file.end
        );
        self.is_kept = true;
        Ok(self.file.end - self.begin)
    }
}

impl Drop for Append<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.file.parts.truncate(self.first);
            self.file.end = self.begin;
        }
    }
}

/// The changes that were read.
pub(super) fn changes(bytes: &[u8]) -> impl Iterator<Item = Change<'_>> + Clone {
    let mut at = 0;
    std::iter::from_fn(move || {
        let head = bytes.get(at..at + HEAD)?;
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let length = u32::from_le_bytes(std::array::from_fn(|i| head[16 + i])) as usize;
        let from = at + HEAD;
        at = from + length;
        let place = Place {
            start: Lsn(long(0)),
            end: Lsn(long(8)),
        };
        Some(Change::new(place, &bytes[from..at]))
    })
}
