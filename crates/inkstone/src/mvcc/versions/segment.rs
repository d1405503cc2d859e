//! A segment: some entries, and the transactions that wrote them.

use super::entry::{self, Header, NewVersion, UNIT};
use super::spill::{Extent, SpillFile};
use super::writers::{self, RECORD_BYTES, WRITER_BYTES, Writers};
use super::{NO_PURGE, VersionRef, VersionView, address_of};
use crate::mutants::{self, Mutant};
use crate::mvcc::system::TrxState;
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, RwLock};
use crate::{Error, Result};
use inkstone_format::{Corrupt, VersionAddress};
use inkstone_io::File;
use std::path::Path;
use std::sync::Arc;

/// What a reader takes from the spill file at first: most entries are within.
const READ_AHEAD_BYTES: usize = 1024;
/// Memory that a segment is reckoned at beside its versions: itself, and its places in the store's
/// lists.
const SEGMENT_BYTES: u64 = 320;

/// Where the bytes of a segment are. It only moves forward in this order (Sealed -> Retired too).
#[derive(Debug)]
enum Storage {
    /// In memory, growing. The capacity never changes.
    Open(Vec<u8>),
    /// In memory, unchangeable.
    Sealed(Arc<Vec<u8>>),
    Spilled(Spilled),
    Retired,
}

/// Where in a file the bytes of a segment are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub extent: Extent,
    pub bytes: usize,
    /// CRC-32C of the bytes of a segment of logged versions; 0 of another.
    pub checksum: u32,
}

/// All of a sealed segment.
struct Whole {
    bytes: Arc<Vec<u8>>,
    /// Of its writers those that the spill file has.
    table: Vec<u8>,
}

#[derive(Debug)]
struct Spilled {
    file: Arc<dyn File>,
    place: Place,
    /// Writers in the table behind the versions.
    writers: u32,
}

impl Spilled {
    fn read(&self, path: &Path, at: usize, bytes: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        self.file
            .read_at(&mut buffer, self.place.extent.offset + at as u64)
            .map_err(|e| Error::io("read", path, e))?;
        Ok(buffer)
    }

    fn corrupt(&self, path: &Path, at: usize, corrupt: Corrupt) -> Error {
        let offset = self.place.extent.offset + (at + corrupt.offset) as u64;
        Error::corrupt_file(path, offset, corrupt.detail)
    }

    /// Reads one whole entry, alone.
    fn read_entry(&self, path: &Path, at: usize, address: VersionAddress) -> Result<Vec<u8>> {
        let corrupt = |c| self.corrupt(path, at, c);
        let left = self.place.bytes.saturating_sub(at);
        let mut bytes = self.read(path, at, left.min(READ_AHEAD_BYTES))?;
        let header = Header::parse_prefix(&bytes, 0, address).map_err(corrupt)?;
        let length = header.encoded_bytes();
        if length > left {
            let beyond = Corrupt::at(0, "version entry runs beyond its segment");
            return Err(corrupt(beyond));
        }
        if length > bytes.len() {
            bytes = self.read(path, at, length)?;
        }
        bytes.truncate(length);
        entry::verify_checksum(&bytes, address).map_err(corrupt)?;
        Ok(bytes)
    }

    /// A writer of segment `number` that had ended when the segment was spilled.
    fn read_writer(&self, path: &Path, number: u64, index: u32) -> Result<Arc<TrxState>> {
        let at = self.place.bytes + index as usize * RECORD_BYTES;
        let record = if index < self.writers {
            self.read(path, at, RECORD_BYTES)?
        } else {
            Vec::new()
        };
        writers::ended(&record, number, index).map_err(|c| self.corrupt(path, at, c))
    }

    /// All of segment `number`, of which the bytes match all checksums.
    fn read_all(&self, path: &Path, number: u64) -> Result<Whole> {
        let table = self.writers as usize * RECORD_BYTES;
        let mut bytes = self.read(path, 0, self.place.bytes + table)?;
        let table = bytes.split_off(self.place.bytes);
        for entry in entry::entries(&bytes, number) {
            let (at, header) = entry.map_err(|c| self.corrupt(path, 0, c))?;
            let entry = &bytes[at..at + header.encoded_bytes()];
            entry::verify_checksum(entry, address_of(number, at / UNIT))
                .map_err(|c| self.corrupt(path, at, c))?;
        }
        // Zeroes in place of a version would pass for the room between two.
        let is_logged = VersionAddress::of(number, 0).is_logged();
        if is_logged && crc32c::crc32c(&bytes) != self.place.checksum {
            let detail = format!(
                "{} bytes of versions do not match their checksum",
                bytes.len()
            );
            return Err(self.corrupt(path, 0, Corrupt::at(0, detail)));
        }
        let bytes = Arc::new(bytes);
        Ok(Whole { bytes, table })
    }

    /// Its bytes, with zeroes in place of those that cannot be read.
    fn read_what_can_be(&self, path: &Path) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.place.bytes);
        while bytes.len() < self.place.bytes {
            let count = (self.place.bytes - bytes.len()).min(READ_AHEAD_BYTES);
            let read = self.read(path, bytes.len(), count);
            bytes.extend(read.unwrap_or_else(|_| vec![0; count]));
        }
        bytes
    }
}

#[derive(Debug)]
pub(super) struct Segment {
    pub number: u64,
    capacity: usize,
    storage: RwLock<Storage>,
    writers: RwLock<Writers>,
    /// Writers that have not called `finish`.
    open_writers: AtomicUsize,
    /// Largest commit (or rollback) number of the writers that have.
    max_seq: AtomicU64,
    sealed: AtomicBool,
    /// Whether purge wants to see any of the entries.
    purge_wanted: AtomicBool,
    /// Bytes of memory that it is reckoned at.
    memory: AtomicU64,
    /// Space in its file that it is to be written to, taken before.
    room: Mutex<Option<Extent>>,
}

/// A change of the memory that the store is reckoned at, bytes.
pub(super) type MemoryChange = i64;

impl Segment {
    pub fn new(number: u64, capacity: usize) -> Self {
        paranoid!(
            number > 0 && capacity > 0 && capacity.is_multiple_of(UNIT),
            "segment {number} of {capacity} bytes"
        );
        Self {
            number,
            capacity,
            storage: RwLock::new(Storage::Open(Vec::with_capacity(capacity))),
            writers: RwLock::default(),
            open_writers: AtomicUsize::new(0),
            max_seq: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
            purge_wanted: AtomicBool::new(false),
            memory: AtomicU64::new(SEGMENT_BYTES + capacity as u64),
            room: Mutex::default(),
        }
    }

    /// It has space in its file, to be written to when it leaves memory.
    pub fn set_room(&self, room: Extent) {
        let before = self.room.lock().replace(room);
        paranoid!(
            before.is_none(),
            "segment {} has two rooms, {before:?} and {room:?}",
            self.number
        );
    }

    /// Takes away the space that it was not written to.
    pub fn take_room(&self) -> Option<Extent> {
        self.room.lock().take()
    }

    /// A sealed segment of one transaction, which an earlier run has saved.
    pub fn saved(number: u64, trx: &Arc<TrxState>, file: Arc<dyn File>, place: Place) -> Self {
        let segment = Self::new(number, UNIT);
        segment.memory.store(SEGMENT_BYTES, Ordering::Relaxed);
        *segment.storage.write() = Storage::Spilled(Spilled {
            file,
            place,
            writers: 0,
        });
        segment.adopted(trx)
    }

    /// A sealed segment of one transaction, of bytes that were made anew of the log.
    pub fn rebuilt(number: u64, trx: &Arc<TrxState>, bytes: Arc<Vec<u8>>) -> Self {
        let segment = Self::new(number, UNIT);
        let memory = SEGMENT_BYTES + bytes.len() as u64;
        segment.memory.store(memory, Ordering::Relaxed);
        *segment.storage.write() = Storage::Sealed(bytes);
        segment.adopted(trx)
    }

    fn adopted(self, trx: &Arc<TrxState>) -> Self {
        self.add_writer(trx);
        self.sealed.store(true, Ordering::Release);
        // What it holds is looked through when it retires.
        self.purge_wanted.store(true, Ordering::Relaxed);
        self
    }

    /// Whether its addresses are logged: its entries are all of one transaction.
    pub fn is_logged(&self) -> bool {
        VersionAddress::of(self.number, 0).is_logged()
    }

    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Where its bytes are in a file.
    pub fn place(&self) -> Option<Place> {
        match &*self.storage.read() {
            Storage::Spilled(spilled) => Some(spilled.place),
            _ => None,
        }
    }

    pub fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }

    /// Enters a transaction; the caller holds the segment's stripe, and it is not sealed.
    pub fn add_writer(&self, trx: &Arc<TrxState>) -> (u32, MemoryChange) {
        self.open_writers.fetch_add(1, Ordering::Relaxed);
        self.memory.fetch_add(WRITER_BYTES, Ordering::Relaxed);
        let index = self.writers.write().add(trx);
        (index, WRITER_BYTES as i64)
    }

    /// Whether it is open and takes an entry of so many bytes, as things are.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.is_room(&self.storage.read(), bytes)
    }

    fn is_room(&self, storage: &Storage, bytes: usize) -> bool {
        matches!(storage, Storage::Open(open) if open.len() + bytes <= self.capacity)
    }

    /// Appends an entry of `len` bytes of one of the writers, if the segment is open and has room.
    pub fn append(
        &self,
        writer: u32,
        version: &NewVersion<'_>,
        len: usize,
    ) -> Option<VersionAddress> {
        let mut storage = self.storage.write();
        if !self.is_room(&storage, len) {
            return None;
        }
        let Storage::Open(bytes) = &mut *storage else {
            return None;
        };
        let before = bytes.len();
        let address = address_of(self.number, before / UNIT);
        version.encode(bytes, address, writer);
        paranoid!(
            bytes.len() == before + len && bytes.len() <= self.capacity,
            "a version of {len} bytes brought segment {} from {before} to {} bytes of {}",
            self.number,
            bytes.len(),
            self.capacity
        );
        if version.flags & NO_PURGE == 0 {
            self.purge_wanted.store(true, Ordering::Relaxed);
        }
        Some(address)
    }

    /// Ends appending; the caller holds the segment's stripe, or no other thread knows it.
    pub fn seal(&self) -> MemoryChange {
        let mut storage = self.storage.write();
        let Storage::Open(bytes) = &mut *storage else {
            crate::invariant!(false, "segment {} sealed twice", self.number);
            return 0;
        };
        let mut bytes = std::mem::take(bytes);
        let before = bytes.capacity();
        if bytes.len() < before / 4 * 3 {
            bytes.shrink_to_fit();
        }
        paranoid!(
            bytes.capacity() <= before && bytes.len() <= self.capacity,
            "segment {} of {} bytes was sealed with {}",
            self.number,
            self.capacity,
            bytes.len()
        );
        let saved = (before - bytes.capacity()) as u64;
        *storage = Storage::Sealed(Arc::new(bytes));
        self.memory.fetch_sub(saved, Ordering::Relaxed);
        self.sealed.store(true, Ordering::Release);
        -(saved as i64)
    }

    /// One of the writers has ended.
    pub fn finish_writer(&self, seq: u64) {
        self.max_seq.fetch_max(seq, Ordering::Relaxed);
        let before = self.open_writers.fetch_sub(1, Ordering::Release);
        crate::invariant!(before > 0, "segment {} has no open writer", self.number);
    }

    /// Whether all transactions that wrote the entries that it has now have ended, with numbers up
    /// to this one.
    pub fn has_ended_by(&self, number: u64) -> bool {
        // What has finished has left its number before.
        self.open_writers.load(Ordering::Acquire) == 0
            && self.max_seq.load(Ordering::Relaxed) <= number
    }

    /// Whether everything that its entries describe is visible to every snapshot from
    /// `oldest_snapshot` on. Never turns false again.
    pub fn is_retirable(&self, oldest_snapshot: u64) -> bool {
        // Sealed: no new writers. None open: max_seq is final.
        let early = mutants::on(Mutant::VersionRetiredEarly);
        let by = if early { u64::MAX } else { oldest_snapshot };
        self.sealed.load(Ordering::Acquire) && self.has_ended_by(by)
    }

    pub fn wants_purge(&self) -> bool {
        self.purge_wanted.load(Ordering::Relaxed)
    }

    /// The writer with an index. Its storage is held: until it is let go the writer stays where it
    /// is.
    fn writer(
        &self,
        storage: &Storage,
        path: &Path,
        (index, address): (u32, VersionAddress),
    ) -> Result<Arc<TrxState>> {
        if let Some(trx) = self.writers.read().get(index) {
            return Ok(trx.clone());
        }
        match storage {
            Storage::Spilled(spilled) if !self.is_logged() => {
                spilled.read_writer(path, self.number, index)
            }
            _ => {
                let detail = format!("writer {index} of version {address:#x?} is unknown");
                Err(Error::corrupt_file(path, address.0, detail))
            }
        }
    }

    /// The transaction that wrote the entry; `None` if retired. Reads the spill file if the segment
    /// was spilled.
    pub fn trx_of(&self, unit: usize, path: &Path) -> Result<Option<Arc<TrxState>>> {
        let address = address_of(self.number, unit);
        let storage = self.storage.read();
        let corrupt = |c: Corrupt| Error::corrupt_file(path, address.0, c.detail);
        let in_memory = |bytes: &[u8]| Header::parse(bytes, unit * UNIT, address).map_err(corrupt);
        let header = match &*storage {
            Storage::Open(bytes) => in_memory(bytes)?,
            Storage::Sealed(bytes) => in_memory(bytes)?,
            Storage::Spilled(_) if self.is_logged() => {
                return self.writer(&storage, path, (0, address)).map(Some);
            }
            Storage::Spilled(spilled) => {
                let entry = spilled.read_entry(path, unit * UNIT, address)?;
                Header::parse(&entry, 0, address).map_err(corrupt)?
            }
            Storage::Retired => return Ok(None),
        };
        let writer = (header.writer, address);
        self.writer(&storage, path, writer).map(Some)
    }

    /// The steps that the entry at a unit has counted, if it is in memory.
    pub fn steps_of(&self, unit: usize) -> Option<u8> {
        let at = unit * UNIT + entry::STEPS;
        paranoid!(
            at < self.capacity || self.is_sealed(),
            "unit {unit} of a segment of {} bytes",
            self.capacity
        );
        match &*self.storage.read() {
            Storage::Open(bytes) => bytes.get(at).copied(),
            Storage::Sealed(bytes) => bytes.get(at).copied(),
            Storage::Spilled(_) | Storage::Retired => None,
        }
    }

    /// The entry at a unit; `None` if retired. `path` names the spill file in errors.
    pub fn read(&self, unit: usize, path: &Path) -> Result<Option<VersionRef>> {
        let address = address_of(self.number, unit);
        let mut at = unit * UNIT;
        // The latch is held while reading a spilled segment: retiring, which would free the extent
        // for another segment, waits. No other thread wants it exclusively for long.
        let storage = self.storage.read();
        let corrupt = |c: Corrupt| Error::corrupt_file(path, address.0, c.detail);
        let bytes = match &*storage {
            Storage::Open(bytes) => {
                let header = Header::parse(bytes, at, address).map_err(corrupt)?;
                let copy = bytes[at..at + header.encoded_bytes()].to_vec();
                at = 0;
                Arc::new(copy)
            }
            Storage::Sealed(bytes) => bytes.clone(),
            Storage::Spilled(spilled) => {
                let entry = spilled.read_entry(path, at, address)?;
                at = 0;
                Arc::new(entry)
            }
            Storage::Retired => return Ok(None),
        };
        let header = Header::parse(&bytes, at, address).map_err(corrupt)?;
        let trx = self.writer(&storage, path, (header.writer, address))?;
        Ok(Some(VersionRef {
            bytes,
            at,
            header,
            trx,
        }))
    }

    /// All of a sealed segment; from the spill file if need be. `None` if retired.
    fn read_sealed(&self, path: &Path) -> Result<Option<Whole>> {
        let storage = self.storage.read();
        match &*storage {
            Storage::Sealed(bytes) => Ok(Some(Whole {
                bytes: bytes.clone(),
                table: Vec::new(),
            })),
            Storage::Spilled(spilled) => spilled.read_all(path, self.number).map(Some),
            Storage::Open(_) => {
                crate::invariant!(false, "segment {} is open", self.number);
                Ok(None)
            }
            Storage::Retired => Ok(None),
        }
    }

    /// As [`Segment::writer`], with the table that was read.
    fn writer_of(
        &self,
        table: &[u8],
        path: &Path,
        (index, address): (u32, VersionAddress),
    ) -> Result<Arc<TrxState>> {
        if table.is_empty() {
            return self.writer(&self.storage.read(), path, (index, address));
        }
        if let Some(trx) = self.writers.read().get(index) {
            return Ok(trx.clone());
        }
        let record = table.chunks(RECORD_BYTES).nth(index as usize);
        let corrupt = |c: Corrupt| Error::corrupt_file(path, address.0, c.detail);
        writers::ended(record.unwrap_or_default(), self.number, index).map_err(corrupt)
    }

    /// Shows every entry that purge wants to see, in order. No latch is held meanwhile.
    pub fn purge(
        &self,
        path: &Path,
        purge: &mut dyn FnMut(VersionAddress, &VersionView<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(Whole { bytes, table }) = self.read_sealed(path)? else {
            return Ok(());
        };
        let mut last: Option<(u32, Arc<TrxState>)> = None;
        for entry in entry::entries(&bytes, self.number) {
            let corrupt = |c: Corrupt| Error::corrupt_file(path, c.offset as u64, c.detail);
            let (at, header) = entry.map_err(corrupt)?;
            if header.flags & NO_PURGE != 0 {
                continue;
            }
            let address = address_of(self.number, at / UNIT);
            let trx = match last.take() {
                Some((writer, trx)) if writer == header.writer => trx,
                _ => self.writer_of(&table, path, (header.writer, address))?,
            };
            purge(address, &VersionView::new(&header, &bytes, at, &trx))?;
            last = Some((header.writer, trx));
        }
        Ok(())
    }

    /// Shows every entry of a sealed segment, the newest first. No latch is held meanwhile. If it
    /// cannot be read as a whole, and `lost` wants to know of that, every entry that can be read.
    pub fn backward(
        &self,
        path: &Path,
        lost: Option<&dyn Fn(Error)>,
        show: &mut dyn FnMut(VersionAddress, &VersionView<'_>) -> Result<()>,
    ) -> Result<()> {
        let corrupt = |c: Corrupt| Error::corrupt_file(path, c.offset as u64, c.detail);
        let (bytes, all) = match (self.read_sealed(path), lost) {
            (Ok(None), _) => return Ok(()),
            (Ok(Some(Whole { bytes, .. })), _) => {
                let all: Result<Vec<_>, _> = entry::entries(&bytes, self.number).collect();
                (bytes, all.map_err(corrupt)?)
            }
            (Err(error), Some(lost)) => {
                lost(error);
                let bytes = self.what_can_be_read(path);
                let all = entry::whole_entries(&bytes, self.number).collect();
                (Arc::new(bytes), all)
            }
            (Err(error), None) => return Err(error),
        };
        for (at, header) in all.into_iter().rev() {
            let address = address_of(self.number, at / UNIT);
            let trx = self.writer(&self.storage.read(), path, (header.writer, address))?;
            show(address, &VersionView::new(&header, &bytes, at, &trx))?;
        }
        Ok(())
    }

    fn what_can_be_read(&self, path: &Path) -> Vec<u8> {
        match &*self.storage.read() {
            Storage::Spilled(spilled) => spilled.read_what_can_be(path),
            _ => Vec::new(),
        }
    }

    /// Moves a sealed segment to the spill file. Readers go on meanwhile. `None`: it is not in
    /// memory any more.
    pub fn spill(&self, file: &mut SpillFile) -> Result<Option<MemoryChange>> {
        let bytes = match &*self.storage.read() {
            Storage::Sealed(bytes) => bytes.clone(),
            _ => return Ok(None),
        };
        let mut image = self.spill_image(&bytes);
        let checksum = if self.is_logged() {
            crc32c::crc32c(&image)
        } else {
            0
        };
        // The one writer of a logged segment stays in memory.
        let table = (!self.is_logged()).then(|| self.writers.read().table(self.number));
        image.extend_from_slice(table.as_deref().unwrap_or_default());
        let (handle, extent) = match self.take_room() {
            Some(room) => match file.write_to(room, &image) {
                Ok(handle) => (handle, file.shorten(room, image.len() as u64)),
                Err(error) => {
                    *self.room.lock() = Some(room);
                    return Err(error);
                }
            },
            None => file.write(&image)?,
        };
        paranoid!(
            image.len() >= bytes.len() && extent.length >= image.len() as u64,
            "segment {} of {} bytes in an extent of {}",
            self.number,
            bytes.len(),
            extent.length
        );
        let mut storage = self.storage.write();
        if !matches!(&*storage, Storage::Sealed(_)) {
            drop(storage);
            file.release(extent);
            return Ok(None);
        }
        let place = Place {
            extent,
            bytes: bytes.len(),
            checksum,
        };
        *storage = Storage::Spilled(Spilled {
            file: handle,
            place,
            writers: (table.as_ref().map_or(0, Vec::len) / RECORD_BYTES) as u32,
        });
        let mut writers = self.writers.write();
        if let Some(table) = &table {
            writers.forget(table);
        }
        let kept = SEGMENT_BYTES + writers.memory();
        drop((writers, storage));
        let before = self.memory.swap(kept, Ordering::Relaxed);
        Ok(Some(kept as i64 - before as i64))
    }

    /// A copy of the bytes with checksums.
    fn spill_image(&self, bytes: &[u8]) -> Vec<u8> {
        let mut image = bytes.to_vec();
        for entry in entry::entries(bytes, self.number) {
            let Ok((at, header)) = entry else {
                crate::invariant!(false, "segment {} is broken", self.number);
                break;
            };
            let end = at + header.encoded_bytes();
            let address = address_of(self.number, at / UNIT);
            entry::seal_checksum(&mut image[at..end], address);
            paranoid!(
                end <= bytes.len() && u16::try_from(at / UNIT).is_ok(),
                "a version of segment {} from {at} to {end}, of {} bytes",
                self.number,
                bytes.len()
            );
        }
        image
    }

    /// Drops the bytes. Returns the extent that is free now.
    pub fn retire(&self) -> Option<Extent> {
        let old = std::mem::replace(&mut *self.storage.write(), Storage::Retired);
        paranoid!(
            matches!(old, Storage::Sealed(_) | Storage::Spilled(_)),
            "segment {} retired when it was open, or again",
            self.number
        );
        match old {
            Storage::Spilled(spilled) => Some(spilled.place.extent),
            _ => None,
        }
    }
}
