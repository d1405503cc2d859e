//! The file of a place map: its header, and two slots for each block.

use super::super::open_files::OpenFiles;
use super::super::table_file::{FileInUse, TableFile};
use super::settling::Due;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::{Error, Result};
use inkstone_format::SpaceId;
use inkstone_format::place_map::{
    BLOCK_LEN, PlaceBlock, PlaceMapHeader, file_bytes, newer_reading, slot_offset,
};
use inkstone_io::{AlignedBuffer, Batch, Create, Directory, File, Op, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// Bytes that are read together: slots of whole blocks.
const READ: usize = 256 * BLOCK_LEN;
/// Blocks that are written together, at most.
const TOGETHER: usize = 256;
/// How often the header is read, before it counts as damaged.
const READS_MAX: usize = 3;

/// Name of a tablespace's place map in the database directory.
pub fn place_map_file_name(space: SpaceId) -> String {
    format!("t{:08x}.places", space.0)
}

/// Whether a file's name is that of a place map.
pub fn is_place_map_file_name(name: &str) -> bool {
    parse_place_map_file_name(name).is_some()
}

/// The tablespace of a place map's file, by its name.
pub(in crate::store) fn parse_place_map_file_name(name: &str) -> Option<SpaceId> {
    let digits = name.strip_prefix('t')?.strip_suffix(".places")?;
    let space = SpaceId(u32::from_str_radix(digits, 16).ok()?);
    (place_map_file_name(space) == name).then_some(space)
}

/// Whether no block of a place map was ever written.
pub(in crate::store) fn is_empty_place_map(directory: &dyn Directory, name: &str) -> Result<bool> {
    let failed = |e| Error::io("read", &directory.path_of(name), e);
    let options = OpenOptions {
        create: Create::Never,
        read_only: true,
        direct: false,
        dsync: false,
    };
    let file = directory.open(name, options).map_err(failed)?;
    let length = file.len().map_err(failed)?;
    let mut at = (BLOCK_LEN as u64).min(length);
    let mut room = vec![0; READ];
    while at < length {
        let part = &mut room[..(length - at).min(READ as u64) as usize];
        file.read_at(part, at).map_err(failed)?;
        if part.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += part.len() as u64;
    }
    Ok(true)
}

/// See the module.
#[derive(Debug)]
pub(super) struct MapFile {
    file: Arc<TableFile>,
}

impl MapFile {
    /// A new file with a header: durable but for its name.
    pub fn create(
        file: Arc<TableFile>,
        open_files: &OpenFiles,
        header: &PlaceMapHeader,
    ) -> Result<Self> {
        let in_use = file.acquire(open_files, Create::New)?;
        let mut block = AlignedBuffer::zeroed(BLOCK_LEN);
        block.copy_from_slice(&header.encode());
        let written = in_use.change_size(|file| file.write_at(&block, 0));
        let made = written
            .map_err(|e| Error::io("write", file.path(), e))
            .and_then(|()| in_use.sync());
        drop(in_use);
        if made.is_err() {
            // The first error is the one to tell.
            let _ = file.unmake();
        }
        made?;
        Ok(Self { file })
    }

    /// Reads a file whole, and makes it durable as it is read. Of a block that cannot be read, why.
    pub fn open(
        file: Arc<TableFile>,
        open_files: &OpenFiles,
    ) -> Result<(Self, PlaceMapHeader, Vec<Result<PlaceBlock>>)> {
        let in_use = file.acquire(open_files, Create::Never)?;
        in_use.sync()?;
        let failed = |e| Error::io("read", file.path(), e);
        let length = in_use.bytes().len().map_err(failed)?;
        // A part of a block at the end is a growth that a crash interrupted.
        let whole = length / BLOCK_LEN as u64 * BLOCK_LEN as u64;
        if whole == 0 {
            return Err(Error::corrupt_file(
                file.path(),
                0,
                format!("the place map has no header: the file has {length} bytes"),
            ));
        }
        let header = read_header(in_use.bytes(), file.path())?;
        let mut rooms = [AlignedBuffer::zeroed(READ), AlignedBuffer::zeroed(READ)];
        let mut blocks = Vec::new();
        let mut offset = slot_offset(0, 0);
        while offset < whole {
            let bytes = (READ as u64).min(whole - offset) as usize;
            // Twice: nothing else tells that the storage has answered with older bytes.
            for room in &mut rooms {
                room[bytes..].fill(0);
                let read = in_use.bytes().read_at(&mut room[..bytes], offset);
                read.map_err(failed)?;
            }
            let [first, second] = rooms.each_ref().map(|room| {
                let slots = room.as_chunks::<BLOCK_LEN>().0.as_chunks::<2>().0;
                slots[..bytes.div_ceil(2 * BLOCK_LEN)].iter()
            });
            for (first, second) in first.zip(second) {
                let number = blocks.len() as u32;
                let slot = |n: usize| newer_reading(number, [&first[n], &second[n]]);
                let block = PlaceBlock::choose(number, [slot(0), slot(1)]);
                blocks.push(block.map_err(|c| {
                    let at = slot_offset(number, 0) + c.offset as u64;
                    Error::corrupt_file(file.path(), at, c.detail)
                }));
            }
            offset += bytes as u64;
        }
        drop(in_use);
        Ok((Self { file }, header, blocks))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Makes room for blocks.
    pub fn grow(&self, open_files: &OpenFiles, from: u32, to: u32) -> Result<()> {
        paranoid!(from < to, "a map of {from} blocks grows to {to}");
        let in_use = self.file.acquire(open_files, Create::Never)?;
        let (start, end) = (file_bytes(from), file_bytes(to));
        let grown = in_use.change_size(|file| file.allocate(start, end - start));
        grown.map_err(|e| Error::io("extend", self.path(), e))
    }

    /// Writes blocks, each to its slot, and syncs: side by side through a queue, if there is one.
    pub fn write(
        &self,
        open_files: &OpenFiles,
        due: &[Due],
        mut queue: Option<&mut dyn Batch>,
    ) -> Result<()> {
        let in_use = self.file.acquire(open_files, Create::Never)?;
        let mut room = AlignedBuffer::zeroed(due.len().min(TOGETHER) * BLOCK_LEN);
        paranoid!(
            due.is_sorted_by(|a, b| a.number < b.number),
            "a block of the map is written twice at once"
        );
        for due in due.chunks(TOGETHER) {
            let slots = room.as_chunks_mut::<BLOCK_LEN>().0.iter_mut();
            let slots = slots.zip(due).map(|(slot, due)| {
                *slot = due.bytes;
                (&*slot, slot_offset(due.number, due.written))
            });
            let written = match &mut queue {
                Some(queue) => write_together(&in_use, slots, &mut **queue),
                None => write_singly(&in_use, slots),
            };
            written.map_err(|e| Error::io("write", self.path(), e))?;
        }
        if mutants::on(Mutant::PlacesUnsynced) {
            return Ok(());
        }
        in_use.sync()
    }
}

type Slot<'s> = (&'s [u8; BLOCK_LEN], u64);

fn write_together<'s>(
    in_use: &FileInUse<'_>,
    slots: impl Iterator<Item = Slot<'s>>,
    queue: &mut dyn Batch,
) -> std::io::Result<()> {
    let operations = slots.map(|(slot, offset)| Op::Write {
        file: in_use.begin_write(),
        buffers: vec![slot],
        offset,
        atomic: false,
    });
    let mut operations: Vec<_> = operations.collect();
    let results = queue.run(&mut operations);
    paranoid!(
        results.len() == operations.len(),
        "{} results of {} writes of blocks",
        results.len(),
        operations.len()
    );
    results.into_iter().collect()
}

fn write_singly<'s>(
    in_use: &FileInUse<'_>,
    mut slots: impl Iterator<Item = Slot<'s>>,
) -> std::io::Result<()> {
    slots.try_for_each(|(slot, offset)| in_use.begin_write().write_at(slot, offset))
}

/// The header, which is read again where it is not whole: a reading may have been wrong.
fn read_header(file: &dyn File, path: &Path) -> Result<PlaceMapHeader> {
    let mut room = AlignedBuffer::zeroed(BLOCK_LEN);
    let mut decoded = None;
    for _ in 0..READS_MAX {
        file.read_at(&mut room, 0)
            .map_err(|e| Error::io("read", path, e))?;
        let block: &[u8; BLOCK_LEN] = room[..].try_into().expect("a block");
        match PlaceMapHeader::decode(block) {
            Ok(header) => return Ok(header),
            Err(corrupt) => decoded = Some(corrupt),
        }
    }
    let corrupt = decoded.expect("it was read");
    let detail = format!("the header of the place map: {}", corrupt.detail);
    Err(Error::corrupt_file(path, corrupt.offset as u64, detail))
}
