//! A segment: some entries, and the transactions that wrote them.

use super::entry::{self, Header, NewVersion, UNIT};
use super::spill::{Extent, SpillFile};
use super::{NO_PURGE, VersionRef, VersionView, address_of};
use crate::mutants::{self, Mutant};
use crate::mvcc::system::{TrxState, TrxStatus};
use crate::paranoid::{MANY, paranoid};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, RwLock};
use crate::{Error, Result};
use inkstone_format::{Corrupt, TrxId, VersionAddress};
use inkstone_io::File;
use std::path::Path;
use std::sync::Arc;

/// What a reader takes from the spill file at first: most entries are within.
const READ_AHEAD_BYTES: usize = 1024;
/// Memory that one writer is reckoned at: the list's entry and its shared state.
const WRITER_BYTES: u64 = 144;

/// A transaction that wrote to the segment.
#[derive(Debug)]
enum Writer {
    State(Arc<TrxState>),
    /// It has ended; only this was kept, to save memory in spilled segments.
    Ended(TrxId, TrxStatus),
}

impl Writer {
    fn state(&self) -> Arc<TrxState> {
        match self {
            Self::State(trx) => trx.clone(),
            Self::Ended(id, status) => TrxState::ended(*id, *status),
        }
    }
}

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

#[derive(Debug)]
struct Spilled {
    file: Arc<dyn File>,
    place: Place,
    /// Unit at which each entry begins, ascending, and its writer.
    index: Box<[(u16, u32)]>,
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

    /// All bytes of segment `number`, which match all checksums.
    fn read_all(&self, path: &Path, number: u64) -> Result<Vec<u8>> {
        let bytes = self.read(path, 0, self.place.bytes)?;
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
        Ok(bytes)
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
    writers: RwLock<Vec<Writer>>,
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
            memory: AtomicU64::new(capacity as u64),
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
        *segment.storage.write() = Storage::Spilled(Spilled {
            file,
            place,
            index: Box::default(),
        });
        segment.adopted(trx)
    }

    /// A sealed segment of one transaction, of bytes that were made anew of the log.
    pub fn rebuilt(number: u64, trx: &Arc<TrxState>, bytes: Arc<Vec<u8>>) -> Self {
        let segment = Self::new(number, UNIT);
        segment.memory.store(bytes.len() as u64, Ordering::Relaxed);
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
        let mut writers = self.writers.write();
        let is_it =
            |writer: &Writer| matches!(writer, Writer::State(other) if Arc::ptr_eq(other, trx));
        paranoid!(
            !writers.iter().rev().take(MANY).any(is_it),
            "{:?} entered segment {} twice",
            trx.id(),
            self.number
        );
        writers.push(Writer::State(trx.clone()));
        ((writers.len() - 1) as u32, WRITER_BYTES as i64)
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

    /// Whether everything that its entries describe is visible to every snapshot from
    /// `oldest_snapshot` on. Never turns false again.
    pub fn is_retirable(&self, oldest_snapshot: u64) -> bool {
        // Sealed: no new writers. None open: max_seq is final.
        self.sealed.load(Ordering::Acquire)
            && self.open_writers.load(Ordering::Acquire) == 0
            && (self.max_seq.load(Ordering::Relaxed) <= oldest_snapshot
                || mutants::on(Mutant::VersionRetiredEarly))
    }

    pub fn wants_purge(&self) -> bool {
        self.purge_wanted.load(Ordering::Relaxed)
    }

    fn writer(&self, index: u32, address: VersionAddress) -> Result<Arc<TrxState>, Corrupt> {
        let writers = self.writers.read();
        let writer = writers.get(index as usize).map(Writer::state);
        writer.ok_or_else(|| Corrupt::at(12, format!("writer {index} of version {address:#x?}")))
    }

    /// The transaction that wrote the entry; `None` if retired or if no entry begins there. No I/O.
    pub fn trx_of(&self, unit: usize) -> Option<Arc<TrxState>> {
        let address = address_of(self.number, unit);
        let storage = self.storage.read();
        let in_memory =
            |bytes: &[u8]| Some(Header::parse(bytes, unit * UNIT, address).ok()?.writer);
        let writer = match &*storage {
            Storage::Open(bytes) => in_memory(bytes)?,
            Storage::Sealed(bytes) => in_memory(bytes)?,
            Storage::Spilled(_) if self.is_logged() => 0,
            Storage::Spilled(spilled) => {
                let key = |&(unit, _): &(u16, u32)| usize::from(unit);
                let at = spilled.index.binary_search_by_key(&unit, key).ok()?;
                spilled.index[at].1
            }
            Storage::Retired => return None,
        };
        self.writer(writer, address).ok()
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
        drop(storage);
        let header = Header::parse(&bytes, at, address).map_err(corrupt)?;
        let trx = self.writer(header.writer, address).map_err(corrupt)?;
        Ok(Some(VersionRef {
            bytes,
            at,
            header,
            trx,
        }))
    }

    /// All bytes of a sealed segment; from the spill file if need be. `None` if retired.
    fn sealed_bytes(&self, path: &Path) -> Result<Option<Arc<Vec<u8>>>> {
        let storage = self.storage.read();
        match &*storage {
            Storage::Sealed(bytes) => Ok(Some(bytes.clone())),
            Storage::Spilled(spilled) => Ok(Some(Arc::new(spilled.read_all(path, self.number)?))),
            Storage::Open(_) => {
                crate::invariant!(false, "segment {} is open", self.number);
                Ok(None)
            }
            Storage::Retired => Ok(None),
        }
    }

    /// Shows every entry that purge wants to see, in order. No latch is held meanwhile.
    pub fn purge(
        &self,
        path: &Path,
        purge: &mut dyn FnMut(VersionAddress, &VersionView<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(bytes) = self.sealed_bytes(path)? else {
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
                _ => self.writer(header.writer, address).map_err(corrupt)?,
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
        let (bytes, all) = match (self.sealed_bytes(path), lost) {
            (Ok(None), _) => return Ok(()),
            (Ok(Some(bytes)), _) => {
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
            let trx = self.writer(header.writer, address).map_err(corrupt)?;
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

    /// Moves a sealed segment to the spill file. Readers go on meanwhile.
    pub fn spill(&self, file: &mut SpillFile) -> Result<MemoryChange> {
        let bytes = match &*self.storage.read() {
            Storage::Sealed(bytes) => bytes.clone(),
            _ => return Ok(0),
        };
        let (image, index) = self.spill_image(&bytes);
        let checksum = if self.is_logged() {
            crc32c::crc32c(&image)
        } else {
            0
        };
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
            image.len() == bytes.len() && extent.length >= bytes.len() as u64,
            "segment {} of {} bytes in an extent of {}",
            self.number,
            bytes.len(),
            extent.length
        );
        let mut storage = self.storage.write();
        if !matches!(&*storage, Storage::Sealed(_)) {
            drop(storage);
            file.release(extent);
            return Ok(0);
        }
        let kept = index.len() * size_of::<(u16, u32)>();
        let place = Place {
            extent,
            bytes: bytes.len(),
            checksum,
        };
        *storage = Storage::Spilled(Spilled {
            file: handle,
            place,
            index,
        });
        drop(storage);
        let kept = (kept + self.compact_writers()) as u64;
        let before = self.memory.swap(kept, Ordering::Relaxed);
        Ok(kept as i64 - before as i64)
    }

    /// A copy of the bytes with checksums, and the index.
    fn spill_image(&self, bytes: &[u8]) -> (Vec<u8>, Box<[(u16, u32)]>) {
        let mut image = bytes.to_vec();
        let mut index = Vec::new();
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
            // All entries of a logged segment are of its one writer.
            if !self.is_logged() {
                index.push(((at / UNIT) as u16, header.writer));
            }
        }
        (image, index.into_boxed_slice())
    }

    /// Forgets the shared state of writers that have ended. Returns the bytes that remain.
    fn compact_writers(&self) -> usize {
        let mut writers = self.writers.write();
        let mut bytes = 0;
        for writer in writers.iter_mut() {
            bytes += size_of::<Writer>();
            if let Writer::State(trx) = writer {
                if trx.is_ended() {
                    *writer = Writer::Ended(trx.id(), trx.status());
                } else {
                    bytes += WRITER_BYTES as usize;
                }
            }
        }
        writers.shrink_to_fit();
        bytes
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
