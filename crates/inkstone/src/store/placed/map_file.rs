//! The file of a place map: its header, and two slots for each block.

use super::super::open_files::OpenFiles;
use super::super::table_file::TableFile;
use super::Due;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::{Error, Result};
use inkstone_format::SpaceId;
use inkstone_format::place_map::{BLOCK_LEN, PlaceBlock, PlaceMapHeader, file_bytes, slot_offset};
use inkstone_io::{AlignedBuffer, Create, Directory, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// Bytes that are read together.
const READ: usize = 256 * BLOCK_LEN;

/// Name of a tablespace's place map in the database directory.
pub(in crate::store) fn place_map_file_name(space: SpaceId) -> String {
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

    /// Reads a file whole, and makes it durable as it is read.
    pub fn open(
        file: Arc<TableFile>,
        open_files: &OpenFiles,
    ) -> Result<(Self, PlaceMapHeader, Vec<PlaceBlock>)> {
        let in_use = file.acquire(open_files, Create::Never)?;
        in_use.sync()?;
        let failed = |e| Error::io("read", file.path(), e);
        let corrupt = |offset: u64, c: inkstone_format::Corrupt| {
            Error::corrupt_file(file.path(), offset + c.offset as u64, c.detail)
        };
        let length = in_use.bytes().len().map_err(failed)?;
        let mut room = AlignedBuffer::zeroed(READ);
        let mut header = None;
        let mut slots: Vec<[u8; BLOCK_LEN]> = Vec::new();
        let mut offset = 0;
        // A part of a block at the end is a growth that a crash interrupted.
        let whole = length / BLOCK_LEN as u64 * BLOCK_LEN as u64;
        let mut blocks = Vec::new();
        while offset < whole {
            let bytes = (READ as u64).min(whole - offset) as usize;
            let room = &mut room[..bytes];
            in_use.bytes().read_at(room, offset).map_err(failed)?;
            for (n, block) in room.chunks_exact(BLOCK_LEN).enumerate() {
                let at = offset + (n * BLOCK_LEN) as u64;
                let block: &[u8; BLOCK_LEN] = block.try_into().expect("a block");
                if header.is_none() {
                    let read = PlaceMapHeader::decode(block);
                    header = Some(read.map_err(|c| corrupt(at, c))?);
                    continue;
                }
                slots.push(*block);
                if let [first, second] = &slots[..] {
                    let number = blocks.len() as u32;
                    let chosen = PlaceBlock::choose(number, [first, second]);
                    blocks.push(chosen.map_err(|c| corrupt(slot_offset(number, 0), c))?);
                    slots.clear();
                }
            }
            offset += bytes as u64;
        }
        let header = header.ok_or_else(|| {
            Error::corrupt_file(file.path(), 0, "the place map has no header".to_owned())
        })?;
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

    /// Writes blocks, each to its slot, and syncs.
    pub fn write(&self, open_files: &OpenFiles, due: &[Due]) -> Result<()> {
        if due.is_empty() {
            return Ok(());
        }
        let in_use = self.file.acquire(open_files, Create::Never)?;
        let mut room = AlignedBuffer::zeroed(BLOCK_LEN);
        paranoid!(
            due.is_sorted_by(|a, b| a.number < b.number),
            "a block of the map is written twice at once"
        );
        for due in due {
            room.copy_from_slice(&due.bytes);
            let offset = slot_offset(due.number, due.written);
            let written = in_use.begin_write().write_at(&room, offset);
            written.map_err(|e| Error::io("write", self.path(), e))?;
        }
        if mutants::on(Mutant::PlacesUnsynced) {
            return Ok(());
        }
        in_use.sync()
    }
}
