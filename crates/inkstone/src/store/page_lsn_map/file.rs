//! The file of the page LSN map: its header, which slot is whose, and reading and writing blocks.

use super::cache::{Lsns, Run};
use crate::counters::{Counter, Counters};
use crate::poison::Poison;
use crate::sync::{HashMap, HashSet, Mutex};
use crate::{Error, Result};
use inkstone_format::PageNo;
use inkstone_format::SpaceId;
use inkstone_format::page_lsn_map::{
    BLOCK_ENTRIES, BLOCK_LEN, MapHeader, SECTOR_ENTRIES, SECTOR_LEN, Sector, Subject, encode_block,
    index_entry, parse_block, parse_index_entry, run_of,
};
use inkstone_io::{AlignedBuffer, Create, Directory, File, OpenOptions};
use std::collections::BTreeSet;
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
const WRITE_BLOCKS_MAX: usize = 64;

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

/// Whose slots are.
#[derive(Default)]
struct Slots {
    /// The index entries of all slots that the file has room for.
    entries: Vec<u64>,
    /// The slot of each run that has one.
    of_run: HashMap<Run, u32>,
    free: BTreeSet<u32>,
    /// Groups whose index block on disk says something else.
    changed: BTreeSet<u32>,
    /// Tablespaces that were dropped: they get no slots again.
    released: HashSet<SpaceId>,
}

/// See the module.
pub(super) struct MapFile {
    file: Arc<dyn File>,
    path: PathBuf,
    uuid: [u8; 16],
    context: Context,
    slots: Mutex<Slots>,
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

fn group_of(slot: u32) -> u32 {
    slot / BLOCK_ENTRIES as u32
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
            slots: Mutex::default(),
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
        Ok(())
    }

    fn failure(&self) {
        self.context.counters.add(Counter::PageLsnMapFailures, 1);
    }

    /// The file has room for so many slots.
    fn make_room(&self, capacity: usize) {
        let mut slots = self.slots.lock();
        let before = slots.entries.len();
        slots.free.extend(before as u32..capacity as u32);
        slots.entries.resize(capacity, 0);
    }

    /// Reads whose slots are.
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

    /// Finds out whose slots are by what stands in them.
    fn ask_blocks(&self, first: usize, entries: &mut [u64], start: usize) -> Result<()> {
        let capacity = self.slots.lock().entries.len();
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
        self.slots.lock().of_run.get(&run).copied()
    }

    /// Whether a tablespace was dropped.
    pub fn is_released(&self, space: SpaceId) -> bool {
        self.slots.lock().released.contains(&space)
    }

    /// Gives a slot to each run of these pages of a tablespace that has none; the file grows if need
    /// be. When the disk is full nothing changes.
    pub fn reserve(&self, space: SpaceId, pages: Range<u32>) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let _growing = self.growing.lock();
        let runs: Vec<Run> = {
            let slots = self.slots.lock();
            let all = run_of(PageNo(pages.start))..=run_of(PageNo(pages.end - 1));
            let all = all.map(|run| (space, run));
            match slots.released.contains(&space) {
                true => return Ok(()),
                false => all.filter(|run| !slots.of_run.contains_key(run)).collect(),
            }
        };
        let free = self.slots.lock().free.len();
        self.grow(runs.len().saturating_sub(free))?;
        let mut slots = self.slots.lock();
        for &(space, run) in &runs {
            let Some(slot) = slots.free.first().copied() else {
                break;
            };
            slots.assign(slot, index_entry(space, run));
            slots.changed.insert(group_of(slot));
        }
        Ok(())
    }

    /// Makes room for `more` slots. The caller holds `growing`.
    fn grow(&self, more: usize) -> Result<()> {
        if more == 0 {
            return Ok(());
        }
        let wanted = self.slots.lock().entries.len() + more;
        let length = self.file.len();
        let length = length.map_err(|e| Error::io("measure", &self.path, e))?;
        let block = BLOCK_LEN as u64;
        let least = slot_offset(wanted as u32 - 1) + block - length;
        let stepped = least.max(length.min(GROWTH_BLOCKS_MAX * block)) / block * block;
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
        self.make_room(capacity(grown));
        Ok(())
    }

    /// Takes their slots from the tablespaces that `which` selects; they are `dropped`: for good.
    pub fn release(&self, which: impl Fn(SpaceId) -> bool, dropped: Option<SpaceId>) {
        let mut slots = self.slots.lock();
        slots.released.extend(dropped);
        let runs: Vec<(Run, u32)> = slots
            .of_run
            .iter()
            .filter(|&(&(space, _), _)| which(space))
            .map(|(&run, &slot)| (run, slot))
            .collect();
        for (run, slot) in runs {
            slots.of_run.remove(&run);
            slots.entries[slot as usize] = 0;
            slots.free.insert(slot);
            slots.changed.insert(group_of(slot));
        }
    }

    /// The page LSNs of a run, as the file has them: nothing known is zero. Fails only if the file
    /// cannot be read.
    pub fn read(&self, run: Run) -> Result<Lsns> {
        let Some(slot) = self.slot(run) else {
            return Ok(Arc::new([0; BLOCK_ENTRIES]));
        };
        let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
        self.read_at(&mut block, slot_offset(slot))
            .or_else(|_| self.read_at(&mut block, slot_offset(slot)))?;
        self.context.counters.add(Counter::PageLsnMapBlocksRead, 1);
        let (lsns, damaged) = parse_block(&self.uuid, subject(run), &block);
        damaged.iter().for_each(|_| self.failure());
        Ok(Arc::new(lsns))
    }

    /// Writes blocks; they are durable after a sync.
    pub fn write(&self, blocks: &mut [Block]) -> Result<()> {
        blocks.sort_unstable_by_key(|block| block.slot);
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
            let mut entries = [0; BLOCK_ENTRIES];
            let mut slots = self.slots.lock();
            let Some(group) = slots.changed.pop_first() else {
                return Ok(());
            };
            let first = group as usize * BLOCK_ENTRIES;
            for (to, &from) in entries.iter_mut().zip(&slots.entries[first..]) {
                *to = from;
            }
            drop(slots);
            let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
            encode_block(
                &self.uuid,
                Subject::Slots(first as u32),
                &entries,
                &mut block,
            );
            if let Err(error) = self.write_at(&block, index_offset(group)) {
                self.slots.lock().changed.insert(group);
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

impl Slots {
    /// A free slot becomes whose the index entry says, if that run has none yet.
    fn assign(&mut self, slot: u32, entry: u64) {
        let Some(run) = parse_index_entry(entry) else {
            return;
        };
        if !self.of_run.contains_key(&run) && self.free.remove(&slot) {
            self.of_run.insert(run, slot);
            self.entries[slot as usize] = entry;
        }
    }
}

fn subject((space, run): Run) -> Subject {
    Subject::Pages(space, PageNo(run * BLOCK_ENTRIES as u32))
}
