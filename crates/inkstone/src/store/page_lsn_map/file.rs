//! The file of the page LSN map: its header, which tablespace has which slot, and reading and
//! writing blocks.

use super::cache::{Lsns, Run};
use super::slots::{Slots, group_of};
use crate::counters::{Counter, Counters};
use crate::paranoid::{Checked, paranoid};
use crate::poison::Poison;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::{Error, Result};
use inkstone_format::PageNo;
use inkstone_format::SpaceId;
use inkstone_format::page_lsn_map::{
    BLOCK_ENTRIES, BLOCK_LEN, MapHeader, SECTOR_ENTRIES, SECTOR_LEN, Sector, Subject, encode_block,
    index_entry, parse_block, run_of,
};
use inkstone_io::{AlignedBuffer, Create, Directory, File, OpenOptions};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the map's file in the database directory.
pub const PAGE_LSN_MAP_FILE: &str = "page_lsn_map";
/// Name under which it is created.
const FILE_NEW: &str = "page_lsn_map.new";
/// Blocks of a group: its index block and those that it is about.
const GROUP_BLOCKS: u64 = BLOCK_ENTRIES as u64 + 1;
/// Blocks that a new file has behind its header.
const FIRST_BLOCKS: u64 = 15;
/// The file doubles until it grows by so many blocks at a time.
const GROWTH_BLOCKS_MAX: u64 = 256;
/// Adjacent blocks are combined into writes of at most so many.
pub(super) const WRITE_BLOCKS_MAX: usize = 64;
/// As many at most are read at a time,
const READ_BLOCKS_MAX: usize = 64;
/// and the next one with them if it is no more blocks away than this: reading over what lies
/// between costs less than another operation.
const READ_OVER_BLOCKS: usize = 4;

/// A block to be written.
pub(super) struct Block {
    pub run: Run,
    pub slot: u32,
    pub lsns: Lsns,
}

/// What the open file of the map needs of its surroundings.
#[derive(Clone)]
pub(super) struct Context {
    pub directory: Arc<dyn Directory>,
    pub direct: bool,
    pub counters: Arc<Counters>,
    pub poison: Poison,
}

/// See the module.
pub(super) struct MapFile {
    file: Arc<dyn File>,
    path: PathBuf,
    uuid: [u8; 16],
    context: Context,
    slots: Checked<Slots>,
    /// The slot behind those that were read last because one was wanted.
    read_behind: AtomicU32,
    /// Held across I/O while the file grows.
    growing: Mutex<()>,
}

fn index_offset(group: u32) -> u64 {
    (1 + u64::from(group) * GROUP_BLOCKS) * BLOCK_LEN as u64
}

fn slot_offset(slot: u32) -> u64 {
    let (group, place) = (group_of(slot), slot as usize % BLOCK_ENTRIES);
    index_offset(group) + (1 + place as u64) * BLOCK_LEN as u64
}

/// Slots that a file of this length has room for.
fn capacity(length: u64) -> usize {
    let blocks = (length / BLOCK_LEN as u64).saturating_sub(1);
    let rest = (blocks % GROUP_BLOCKS).saturating_sub(1);
    (blocks / GROUP_BLOCKS) as usize * BLOCK_ENTRIES + rest as usize
}

impl Context {
    fn open(&self, name: &str, create: Create, read_only: bool) -> Result<Arc<dyn File>> {
        let options = OpenOptions {
            create,
            read_only,
            direct: self.direct && !read_only,
            dsync: false,
        };
        let file = self.directory.open(name, options);
        file.map_err(|e| Error::io("open", &self.directory.path_of(name), e))
    }

    fn unsynced(&self, path: &Path, error: std::io::Error) -> Error {
        let path = path.display();
        let reason = format_args!("{path} could not be synced: {error}");
        self.poison.set(reason)
    }
}

impl MapFile {
    /// Removes the file, if there is one, and creates it with nothing in it.
    pub fn create(context: &Context, header: &MapHeader) -> Result<Self> {
        let directory = &*context.directory;
        let new = directory.path_of(FILE_NEW);
        let path = directory.path_of(PAGE_LSN_MAP_FILE);
        let exists = directory.exists(PAGE_LSN_MAP_FILE);
        if exists.map_err(|e| Error::io("look for", &path, e))? {
            // Also on a full disk: a map that must not be believed now must not be later.
            directory
                .remove(PAGE_LSN_MAP_FILE)
                .map_err(|e| Error::io("remove", &path, e))?;
            directory
                .sync()
                .map_err(|e| context.unsynced(directory.path(), e))?;
        }
        let file = context.open(FILE_NEW, Create::IfMissing, false)?;
        let length = (1 + FIRST_BLOCKS) * BLOCK_LEN as u64;
        file.set_len(0)
            .and_then(|()| file.allocate(0, length))
            .map_err(|e| Error::io("extend", &new, e))?;
        let this = Self::new(context, file, &path, header.uuid);
        this.write_header(header)?;
        this.sync()?;
        directory
            .rename(FILE_NEW, PAGE_LSN_MAP_FILE)
            .map_err(|e| Error::io("rename", &new, e))?;
        directory
            .sync()
            .map_err(|e| context.unsynced(directory.path(), e))?;
        this.make_room(capacity(length));
        Ok(this)
    }

    /// Opens the file. `None` if there is none, or none of this database that can be understood.
    pub fn open(
        context: &Context,
        uuid: [u8; 16],
        read_only: bool,
    ) -> Result<Option<(Self, MapHeader)>> {
        let path = context.directory.path_of(PAGE_LSN_MAP_FILE);
        let exists = context.directory.exists(PAGE_LSN_MAP_FILE);
        if !exists.map_err(|e| Error::io("look for", &path, e))? {
            return Ok(None);
        }
        let file = context.open(PAGE_LSN_MAP_FILE, Create::Never, read_only)?;
        let length = file.len().map_err(|e| Error::io("measure", &path, e))?;
        if length < BLOCK_LEN as u64 {
            return Ok(None);
        }
        let this = Self::new(context, file, &path, uuid);
        let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
        this.read_at(&mut block, 0)?;
        let header = match MapHeader::parse(&block[..SECTOR_LEN]) {
            Ok(header) if header.uuid == uuid => header,
            _ => return Ok(None),
        };
        this.make_room(capacity(length));
        this.read_index(capacity(length))?;
        Ok(Some((this, header)))
    }

    fn new(context: &Context, file: Arc<dyn File>, path: &Path, uuid: [u8; 16]) -> Self {
        Self {
            file,
            path: path.to_owned(),
            uuid,
            context: context.clone(),
            slots: Checked::default(),
            read_behind: AtomicU32::new(u32::MAX),
            growing: Mutex::new(()),
        }
    }

    fn read_at(&self, block: &mut [u8], offset: u64) -> Result<()> {
        self.file
            .read_at(block, offset)
            .map_err(|e| Error::io("read", &self.path, e))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file
            .write_at(bytes, offset)
            .map_err(|e| Error::io("write", &self.path, e))?;
        let counters = &self.context.counters;
        let blocks = (bytes.len() / BLOCK_LEN) as u64;
        counters.add(Counter::PageLsnMapBlocksWritten, blocks);
        counters.add(Counter::PageLsnMapWriteCalls, 1);
        Ok(())
    }

    fn failure(&self) {
        self.context.counters.add(Counter::PageLsnMapFailures, 1);
    }

    /// The file has room for so many slots.
    fn make_room(&self, capacity: usize) {
        self.slots.lock().make_room(capacity);
    }

    /// Reads which run has which slot.
    fn read_index(&self, capacity: usize) -> Result<()> {
        let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
        for first in (0..capacity).step_by(BLOCK_ENTRIES) {
            self.read_at(&mut block, index_offset(group_of(first as u32)))?;
            let subject = Subject::Slots(first as u32);
            let (mut entries, damaged) = parse_block(&self.uuid, subject, &block);
            for sector in damaged {
                self.failure();
                let damaged = sector * SECTOR_ENTRIES..(sector + 1) * SECTOR_ENTRIES;
                self.ask_blocks(first, &mut entries[damaged.clone()], damaged.start)?;
            }
            let mut slots = self.slots.lock();
            for (slot, &entry) in (first..capacity).zip(&entries) {
                slots.assign(slot as u32, entry);
            }
        }
        Ok(())
    }

    /// Finds out which run has which slot by what stands in the slots.
    fn ask_blocks(&self, first: usize, entries: &mut [u64], start: usize) -> Result<()> {
        let capacity = self.slots.lock().capacity();
        let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
        for (slot, entry) in (first + start..capacity).zip(entries) {
            self.read_at(&mut block, slot_offset(slot as u32))?;
            let mut sectors = block.chunks_exact(SECTOR_LEN);
            *entry = sectors
                .find_map(|bytes| match Sector::parse(&self.uuid, bytes) {
                    Ok(Some(Sector {
                        subject: Subject::Pages(space, page),
                        ..
                    })) => Some(index_entry(space, run_of(page))),
                    _ => None,
                })
                .unwrap_or(0);
        }
        Ok(())
    }

    /// The slot of a run.
    pub fn slot(&self, run: Run) -> Option<u32> {
        self.slots.lock().slot(run)
    }

    /// Whether a tablespace was dropped.
    pub fn is_released(&self, space: SpaceId) -> bool {
        self.slots.lock().is_released(space)
    }

    /// Gives a slot to each run of these pages of a tablespace that has none; the file grows if
    /// need be. When the disk is full nothing changes.
    pub fn reserve(&self, space: SpaceId, pages: Range<u32>) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let _growing = self.growing.lock();
        let runs: Vec<Run> = {
            let slots = self.slots.lock();
            let all = run_of(PageNo(pages.start))..=run_of(PageNo(pages.end - 1));
            let all = all.map(|run| (space, run));
            if slots.is_released(space) {
                return Ok(());
            } else {
                all.filter(|&run| slots.slot(run).is_none()).collect()
            }
        };
        let free = self.slots.lock().free_count();
        self.grow(runs.len().saturating_sub(free))?;
        let mut slots = self.slots.lock();
        // Until there is none left.
        let _ = runs.into_iter().all(|run| slots.give(run));
        Ok(())
    }

    /// Makes room for `more` slots. The caller holds `growing`.
    fn grow(&self, more: usize) -> Result<()> {
        if more == 0 {
            return Ok(());
        }
        let wanted = self.slots.lock().capacity() + more;
        let length = self.file.len();
        let length = length.map_err(|e| Error::io("measure", &self.path, e))?;
        let block = BLOCK_LEN as u64;
        paranoid!(
            capacity(length) < wanted,
            "a map of {length} bytes grows to {wanted} slots"
        );
        let least = slot_offset(wanted as u32 - 1) + block - length;
        // The last block of a file that was cut short can be incomplete.
        let stepped = length.min(GROWTH_BLOCKS_MAX * block) / block * block;
        let stepped = least.max(stepped);
        let grown = match self.file.allocate(length, stepped) {
            Ok(()) => length + stepped,
            Err(e) => match Error::io("extend", &self.path, e) {
                Error::DiskFull { .. } if stepped > least => {
                    let allocated = self.file.allocate(length, least);
                    allocated.map_err(|e| Error::io("extend", &self.path, e))?;
                    length + least
                }
                error => return Err(error),
            },
        };
        paranoid!(
            capacity(grown) >= wanted,
            "a map of {grown} bytes has no room for {wanted} slots"
        );
        self.make_room(capacity(grown));
        Ok(())
    }

    /// A tablespace was dropped, for good: its slots are free.
    pub fn release(&self, space: SpaceId) {
        self.slots.lock().release(space);
    }

    /// Takes their slots from the tablespaces that `stays` does not select.
    pub fn retain(&self, stays: impl Fn(SpaceId) -> bool) {
        self.slots.lock().retain(stays);
    }

    /// The runs that have the slots from that of `run` on, as many as are worth a read now: one,
    /// or, if one shortly before it was read last, up to `most`. None: it has no slot.
    pub fn ahead(&self, run: Run, most: u32) -> Vec<(u32, Run)> {
        let slots = self.slots.lock();
        let Some(slot) = slots.slot(run) else {
            return Vec::new();
        };
        let behind = self.read_behind.load(Ordering::Relaxed);
        let more = if slot.wrapping_sub(behind) <= READ_OVER_BLOCKS as u32 {
            most
        } else {
            1
        };
        let found: Vec<_> = (slot..slot.saturating_add(more))
            .map_while(|slot| Some((slot, slots.run(slot)?)))
            .collect();
        paranoid!(
            found.first() == Some(&(slot, run)) && found.len() <= more as usize,
            "{} blocks are read ahead from slot {slot} on",
            found.len()
        );
        self.read_behind
            .store(slot + found.len() as u32, Ordering::Relaxed);
        found
    }

    /// Reads the page LSNs of runs, each with its slot, in order of the slots; those near each
    /// other in one operation. What cannot be read is left out, and counted.
    pub fn read(&self, wanted: &[(u32, Run)]) -> Vec<(Run, Lsns)> {
        paranoid!(
            wanted.is_sorted_by(|a, b| a.0 < b.0),
            "{} blocks to be read are not in order",
            wanted.len()
        );
        let place = |slot| slot_offset(slot) as usize / BLOCK_LEN;
        let near = |a: &(u32, Run), b: &(u32, Run)| place(b.0) - place(a.0) <= READ_OVER_BLOCKS;
        let mut found = Vec::with_capacity(wanted.len());
        let together = wanted.chunk_by(near);
        for wanted in together.flat_map(|near| near.chunks(READ_BLOCKS_MAX)) {
            let first = place(wanted[0].0);
            let blocks = place(wanted[wanted.len() - 1].0) - first + 1;
            let mut bytes = AlignedBuffer::zeroed(blocks * BLOCK_LEN);
            let offset = slot_offset(wanted[0].0);
            if self.read_twice(&mut bytes, offset).is_err() {
                // One of them may be to blame.
                if wanted.len() > 1 {
                    found.extend(wanted.iter().flat_map(|one| self.read(&[*one])));
                } else {
                    self.failure();
                }
                continue;
            }
            let counters = &self.context.counters;
            counters.add(Counter::PageLsnMapBlocksRead, blocks as u64);
            for &(slot, run) in wanted {
                let at = (place(slot) - first) * BLOCK_LEN;
                let block = &bytes[at..at + BLOCK_LEN];
                let (lsns, damaged) = parse_block(&self.uuid, subject(run), block);
                damaged.iter().for_each(|_| self.failure());
                found.push((run, Arc::new(lsns)));
            }
        }
        found
    }

    fn read_twice(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        let counters = &self.context.counters;
        counters.add(Counter::PageLsnMapReadCalls, 1);
        self.read_at(bytes, offset)
            .or_else(|_| self.read_at(bytes, offset))
    }

    /// Writes blocks; they are durable after a sync.
    pub fn write(&self, blocks: &mut [Block]) -> Result<()> {
        blocks.sort_unstable_by_key(|block| block.slot);
        paranoid!(
            blocks.is_sorted_by(|a, b| a.slot < b.slot),
            "two of {} blocks go to one slot",
            blocks.len()
        );
        let mut room = AlignedBuffer::zeroed(blocks.len().min(WRITE_BLOCKS_MAX) * BLOCK_LEN);
        let adjacent =
            |a: &Block, b: &Block| slot_offset(a.slot) + BLOCK_LEN as u64 == slot_offset(b.slot);
        let runs = blocks.chunk_by(adjacent);
        for blocks in runs.flat_map(|run| run.chunks(WRITE_BLOCKS_MAX)) {
            for (bytes, block) in room.chunks_exact_mut(BLOCK_LEN).zip(blocks) {
                encode_block(&self.uuid, subject(block.run), &block.lsns, bytes);
            }
            let bytes = &room[..blocks.len() * BLOCK_LEN];
            self.write_at(bytes, slot_offset(blocks[0].slot))?;
        }
        Ok(())
    }

    /// Writes the index blocks that have changed.
    pub fn write_index(&self) -> Result<()> {
        loop {
            let changed = self.slots.lock().take_changed();
            let Some((group, entries)) = changed else {
                return Ok(());
            };
            let first = group * BLOCK_ENTRIES as u32;
            let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
            encode_block(&self.uuid, Subject::Slots(first), &entries, &mut block);
            if let Err(error) = self.write_at(&block, index_offset(group)) {
                self.slots.lock().put_changed(group);
                return Err(error);
            }
        }
    }

    /// Writes the header.
    pub fn write_header(&self, header: &MapHeader) -> Result<()> {
        let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
        block[..SECTOR_LEN].copy_from_slice(&header.encode());
        self.write_at(&block, 0)
    }

    /// Makes everything written durable. A failure poisons the engine.
    pub fn sync(&self) -> Result<()> {
        self.context.counters.add(Counter::PageLsnMapSyncs, 1);
        let poison = &self.context.poison;
        poison.sync(&self.path, || self.file.sync())
    }
}

fn subject((space, run): Run) -> Subject {
    Subject::Pages(space, PageNo(run * BLOCK_ENTRIES as u32))
}
