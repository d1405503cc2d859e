//! A file system for what ends with the process: all of its files lie in one file of the real file
//! system that has no name.
//!
//! # Promises
//!
//! 1. No file of it has a name on the disk: however the process ends, the kernel takes back what it
//!    has used. Tested by `nothing_has_a_name`.
//! 2. Nothing is synced. Nothing survives, and no call waits for the device. Tested by
//!    `no_call_syncs`.
//! 3. What was written is read, through every handle. Tested by `reads_see_writes`,
//!    `what_was_given_back_is_not_read`.
//! 4. [`File::allocate`] has the room on the disk when it returns; `StorageFull` comes there, and
//!    from writes that make a file longer. Tested by `space_is_reserved`.
//! 5. What a file gives back, others take; the file on the disk ends with the last unit that is
//!    used. Tested by `what_is_given_back_is_used_again`.
//! 6. Of files in the directory that is to be *forgotten* only the first [`HEAD`] bytes and the
//!    length are kept, in memory; what is behind is never read as something else: reading it fails.
//!    Tested by `a_forgotten_file_keeps_its_head`.
//!
//! Names are kept in memory alone. Nothing is unbuffered. Operations of a [`Batch`] run one after
//! the other.
//!
//! Latches: `names`, a file's `content`, the `units` of the room, in this order; the second
//! is held while its file is read or written.

mod room;
#[cfg(test)]
mod tests;

use crate::overlay::OneByOne;
use crate::posix::{past_end, read_only};
use crate::{
    AtomicWriteLimits, Batch, Create, Directory, Error, ErrorKind, File, OpenOptions, Result, Vfs,
    check_inside,
};
use parking_lot::{Mutex, RwLock};
use room::{Room, UNIT};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that a forgotten file keeps.
pub const HEAD: usize = 4096;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct ScratchVfs {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    room: Arc<Room>,
    /// Name of directories whose files keep nothing but their heads.
    forgotten: String,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    files: BTreeMap<PathBuf, Arc<Node>>,
    directories: BTreeSet<PathBuf>,
    locked: BTreeSet<PathBuf>,
}

impl ScratchVfs {
    /// A file system without files, whose bytes will be in a file without a name in `folder`, which
    /// must be there. `forgotten`: the name of directories of which no bytes are kept.
    pub fn new(folder: &Path, forgotten: &str) -> Result<Self> {
        Ok(Self {
            shared: Arc::new(Shared {
                room: Arc::new(Room::new(folder)?),
                forgotten: forgotten.to_owned(),
                names: Mutex::default(),
            }),
        })
    }

    fn folder(&self, path: PathBuf) -> Folder {
        Folder {
            path,
            shared: self.shared.clone(),
        }
    }
}

impl Names {
    /// Makes a directory, if it is to be made.
    fn directory(&mut self, path: &Path, create: Create) -> Result<()> {
        let is_file = |path: &Path| self.files.contains_key(path);
        if path.ancestors().any(is_file) {
            return Err(ErrorKind::NotADirectory.into());
        }
        match (self.directories.contains(path), create) {
            (true, Create::New) => Err(ErrorKind::AlreadyExists.into()),
            (false, Create::Never) => Err(ErrorKind::NotFound.into()),
            _ => {
                self.directories
                    .extend(path.ancestors().map(Path::to_owned));
                Ok(())
            }
        }
    }
}

impl Shared {
    fn open(self: &Arc<Self>, path: PathBuf, options: OpenOptions) -> Result<Arc<dyn File>> {
        if options.direct {
            return Err(ErrorKind::Unsupported.into());
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let forgets = folder.file_name().is_some_and(|it| *it == *self.forgotten);
        let mut names = self.names.lock();
        if !names.directories.contains(folder) {
            return Err(ErrorKind::NotFound.into());
        }
        if names.directories.contains(&path) {
            return Err(ErrorKind::IsADirectory.into());
        }
        let node = match (names.files.get(&path), options.create) {
            (Some(_), Create::New) => return Err(ErrorKind::AlreadyExists.into()),
            (Some(node), _) => node.clone(),
            (None, Create::Never) => return Err(ErrorKind::NotFound.into()),
            (None, _) => {
                let node = Arc::new(Node::new(self.room.clone(), forgets));
                names.files.insert(path.clone(), node.clone());
                node
            }
        };
        let is_read_only = options.read_only;
        Ok(Arc::new(ScratchFile {
            node,
            is_read_only,
            path,
        }))
    }
}

impl Vfs for ScratchVfs {
    fn open_directory(&self, path: &Path, create: Create) -> Result<Arc<dyn Directory>> {
        self.shared.names.lock().directory(path, create)?;
        Ok(Arc::new(self.folder(path.to_owned())))
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.shared.open(path.to_owned(), options)
    }

    fn batch(&self, _: usize) -> Result<Box<dyn Batch>> {
        Ok(Box::new(OneByOne))
    }

    fn name(&self) -> &'static str {
        "scratch"
    }
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    shared: Arc<Shared>,
}

impl Folder {
    fn inside(&self, name: &str) -> Result<PathBuf> {
        Ok(self.path.join(check_inside(name)?))
    }
}

impl Directory for Folder {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.shared.open(self.inside(name)?, options)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let removed = self.shared.names.lock().files.remove(&self.inside(name)?);
        removed.map(drop).ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.inside(from)?, self.inside(to)?);
        let mut names = self.shared.names.lock();
        let node = names.files.remove(&from).ok_or(ErrorKind::NotFound)?;
        let replaced = names.files.insert(to, node);
        drop(names);
        drop(replaced);
        Ok(())
    }

    fn sync_file_system(&self) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>> {
        let names = self.shared.names.lock();
        let here = names.files.keys().filter_map(|path| {
            let is_here = path.parent() == Some(&self.path);
            let name = path.file_name().filter(|_| is_here);
            name.and_then(|name| name.to_str()).map(str::to_owned)
        });
        Ok(here.collect())
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let path = self.inside(name)?;
        let names = self.shared.names.lock();
        Ok(names.files.contains_key(&path) || names.directories.contains(&path))
    }

    fn subdirectory(&self, name: &str, create: Create) -> Result<Arc<dyn Directory>> {
        let path = self.inside(name)?;
        self.shared.names.lock().directory(&path, create)?;
        let shared = self.shared.clone();
        Ok(Arc::new(Self { path, shared }))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn Send + Sync>> {
        let options = OpenOptions {
            create: Create::IfMissing,
            read_only: false,
            direct: false,
            dsync: false,
        };
        self.open(name, options)?;
        let path = self.inside(name)?;
        if !self.shared.names.lock().locked.insert(path.clone()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let shared = self.shared.clone();
        Ok(Box::new(Locked { shared, path }))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

struct Locked {
    shared: Arc<Shared>,
    path: PathBuf,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.shared.names.lock().locked.remove(&self.path);
    }
}

/// A file; it gives its room back when it has neither name nor handle.
#[derive(Debug)]
struct Node {
    room: Arc<Room>,
    content: RwLock<Content>,
}

#[derive(Debug)]
struct Content {
    length: u64,
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
    /// Units that the file has, by number. What lies behind the length in them is zero.
    Whole(BTreeMap<u64, Unit>),
    /// Of a forgotten file.
    Head(Box<[u8; HEAD]>),
}

#[derive(Clone, Copy, Debug)]
struct Unit {
    place: u32,
    /// Else it is zero, whatever stands at its place.
    is_written: bool,
}

impl Node {
    fn new(room: Arc<Room>, forgets: bool) -> Self {
        let kept = if forgets {
            Kept::Head(Box::new([0; HEAD]))
        } else {
            Kept::Whole(BTreeMap::new())
        };
        Self {
            room,
            content: RwLock::new(Content { length: 0, kept }),
        }
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let content = self.content.read();
        let end = end_of(offset, buffer.len() as u64)?;
        if end > content.length {
            return Err(past_end(offset, buffer.len()));
        }
        let units = match &content.kept {
            Kept::Whole(units) => units,
            Kept::Head(head) => {
                let part = head.get(offset as usize..end as usize);
                buffer.copy_from_slice(part.ok_or_else(forgotten)?);
                return Ok(());
            }
        };
        let mut rest = buffer;
        for (number, at, length) in parts(offset, rest.len()) {
            let (part, behind) = rest.split_at_mut(length);
            match units.get(&number) {
                Some(unit) if unit.is_written => self.room.read(unit.place, at, part)?,
                _ => part.fill(0),
            }
            rest = behind;
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        end_of(offset, bytes.len() as u64)?;
        let mut rest = bytes;
        for (number, at, length) in parts(offset, bytes.len()) {
            let (part, behind) = rest.split_at(length);
            if !self.write_over(number, at, part)? {
                self.write_anew(number, at, part)?;
            }
            rest = behind;
        }
        Ok(())
    }

    /// A write into a unit that was written, beside others. False: it is none.
    fn write_over(&self, number: u64, at: u64, part: &[u8]) -> Result<bool> {
        let content = self.content.read();
        let Kept::Whole(units) = &content.kept else {
            return Ok(false);
        };
        let is_inside = number * UNIT + at + part.len() as u64 <= content.length;
        match units
            .get(&number)
            .filter(|unit| unit.is_written && is_inside)
        {
            None => Ok(false),
            Some(unit) => self.room.write(unit.place, at, part).map(|()| true),
        }
    }

    fn write_anew(&self, number: u64, at: u64, part: &[u8]) -> Result<()> {
        let mut content = self.content.write();
        let begin = number * UNIT + at;
        let end = begin + part.len() as u64;
        match &mut content.kept {
            Kept::Head(head) => {
                let kept = part.len().min(HEAD.saturating_sub(begin as usize));
                if kept > 0 {
                    head[begin as usize..begin as usize + kept].copy_from_slice(&part[..kept]);
                }
            }
            Kept::Whole(units) => {
                let unit = self.unit(units, number)?;
                if unit.is_written || part.len() as u64 == UNIT {
                    self.room.write(unit.place, at, part)?;
                } else {
                    let mut whole = vec![0; UNIT as usize];
                    whole[at as usize..at as usize + part.len()].copy_from_slice(part);
                    self.room.write(unit.place, 0, &whole)?;
                }
                unit.is_written = true;
            }
        }
        content.length = content.length.max(end);
        Ok(())
    }

    fn unit<'u>(&self, units: &'u mut BTreeMap<u64, Unit>, number: u64) -> Result<&'u mut Unit> {
        match units.entry(number) {
            Entry::Occupied(there) => Ok(there.into_mut()),
            Entry::Vacant(new) => {
                let place = self.room.take(1)?[0];
                let is_written = false;
                Ok(new.insert(Unit { place, is_written }))
            }
        }
    }

    fn set_len(&self, length: u64) -> Result<()> {
        end_of(length, 0)?;
        let mut content = self.content.write();
        let was = content.length;
        match &mut content.kept {
            Kept::Whole(units) => {
                let inside = length % UNIT;
                if let Some(last) = units.get(&(length / UNIT)).filter(|it| it.is_written)
                    && length < was
                {
                    let zeroes = vec![0; (UNIT - inside) as usize];
                    self.room.write(last.place, inside, &zeroes)?;
                }
                let gone = units.split_off(&length.div_ceil(UNIT));
                self.room.give_back(gone.values().map(|unit| unit.place));
            }
            Kept::Head(head) => head[(length as usize).min(HEAD)..].fill(0),
        }
        content.length = length;
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        let end = end_of(offset, length)?;
        let mut content = self.content.write();
        if let Kept::Whole(units) = &mut content.kept {
            let (first, last) = (offset / UNIT, end.div_ceil(UNIT));
            let there = units.range(first..last).count() as u64;
            let mut taken = self.room.take(last - first - there)?.into_iter();
            for number in first..last {
                let is_written = false;
                units.entry(number).or_insert_with(|| Unit {
                    place: taken.next().unwrap_or_default(),
                    is_written,
                });
            }
        }
        content.length = content.length.max(end);
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Kept::Whole(units) = &self.content.get_mut().kept {
            self.room.give_back(units.values().map(|unit| unit.place));
        }
    }
}

fn forgotten() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "what was written here was not kept: the file is one of a database for scratch data",
    )
}

/// The end of a range that a file can have.
fn end_of(offset: u64, length: u64) -> Result<u64> {
    let end = offset.checked_add(length);
    end.filter(|&end| end <= i64::MAX as u64)
        .ok_or_else(|| ErrorKind::InvalidInput.into())
}

/// The parts of a range: number of the unit, first byte in it, bytes.
fn parts(mut offset: u64, length: usize) -> impl Iterator<Item = (u64, u64, usize)> {
    let end = offset + length as u64;
    std::iter::from_fn(move || {
        (offset < end).then(|| {
            let (number, at) = (offset / UNIT, offset % UNIT);
            let length = (UNIT - at).min(end - offset);
            offset += length;
            (number, at, length as usize)
        })
    })
}

#[derive(Debug)]
struct ScratchFile {
    node: Arc<Node>,
    is_read_only: bool,
    path: PathBuf,
}

impl ScratchFile {
    fn writable(&self) -> Result<&Node> {
        if self.is_read_only {
            Err(read_only())
        } else {
            Ok(&self.node)
        }
    }
}

impl File for ScratchFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.node.read(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.writable()?.write(buffer, offset)
    }

    fn write_atomic_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.node.content.read().length)
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.writable()?.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.writable()?.allocate(offset, length)
    }

    fn atomic_write_limits(&self) -> Option<AtomicWriteLimits> {
        None
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
