//! A file system laid over another one: what is written stays in memory, and what lies below is
//! only read.
//!
//! # Promises
//!
//! 1. Nothing below is written, created, renamed or removed, no length is changed, no sync is asked
//!    for. Files below are opened for reading only, so a read-only mount will do. Tested by
//!    `a_file_reads_as_it_was_written`, `names_change_above_only`.
//! 2. What was written through this file system is read through it, by every reader; all else is as
//!    below. Tested by `a_file_reads_as_it_was_written`, `names_change_above_only`,
//!    `files_that_are_closed_hold_nothing_below`.
//! 3. Locks are shared locks of the files below: several overlays beside each other, none beside a
//!    process that has the file locked to change it. Tested by
//!    `a_running_database_and_an_overlay_exclude_each_other`.
//!
//! Memory holds each block of 4 KiB that was written, but for zeroes behind the end of what lies
//! below. Nothing survives the process. Operations of a [`Batch`] run one after the other.
//!
//! No latch is held while something below is asked: reads go on side by side. A read beside a
//! write, or beside a change of the length, of the same bytes gives either, as with any file.

use crate::posix::past_end;
use crate::{
    AtomicWriteLimits, Batch, Create, Directory, Error, ErrorKind, File, Op, OpenOptions, Result,
    Vfs,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BLOCK: usize = 4096;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct OverlayVfs {
    below: Arc<dyn Vfs>,
    names: Arc<Mutex<Names>>,
}

/// The names that are other than below.
#[derive(Debug, Default)]
struct Names {
    /// `None`: removed.
    files: BTreeMap<PathBuf, Option<Arc<Node>>>,
    directories: BTreeSet<PathBuf>,
}

impl OverlayVfs {
    /// Lays a file system over `below`.
    pub fn new(below: Arc<dyn Vfs>) -> Self {
        Self {
            below,
            names: Arc::default(),
        }
    }
}

impl Vfs for OverlayVfs {
    /// The directory must be there.
    fn open_directory(&self, path: &Path, _: Create) -> Result<Arc<dyn Directory>> {
        let below = self.below.open_directory(path, Create::Never)?;
        Ok(Arc::new(Folder {
            path: below.path().to_owned(),
            below: Some(below),
            names: self.names.clone(),
        }))
    }

    fn open_file(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        if options.read_only {
            self.below.open_file(path, options)
        } else {
            Err(crate::posix::read_only())
        }
    }

    fn batch(&self, _: usize) -> Result<Box<dyn Batch>> {
        Ok(Box::new(OneByOne))
    }

    fn name(&self) -> &'static str {
        "overlay"
    }

    fn memory_limit(&self) -> Option<u64> {
        self.below.memory_limit()
    }
}

/// Operations run one after the other.
pub(crate) struct OneByOne;

impl Batch for OneByOne {
    fn run(&mut self, operations: &mut [Op<'_>]) -> Vec<Result<()>> {
        operations.iter_mut().map(Op::run_alone).collect()
    }
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// `None`: it is new.
    below: Option<Arc<dyn Directory>>,
    names: Arc<Mutex<Names>>,
}

impl Folder {
    /// The file of a name, if there is one.
    fn find(&self, name: &str) -> Result<Option<OverlayFile>> {
        crate::check_inside(name)?;
        let path = self.path_of(name);
        let known = self.names.lock().files.get(&path).cloned();
        match (known, &self.below) {
            (Some(None), _) | (None, None) => return Ok(None),
            (Some(Some(node)), _) => return OverlayFile::open(node, path).map(Some),
            (None, Some(_)) => {}
        }
        let below = self.below.clone().map(|directory| Below {
            directory,
            name: name.to_owned(),
        });
        match OverlayFile::open(Arc::new(Node::over(below)), path.clone()) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(mut file) => {
                let length = file.below.as_ref().map_or(Ok(0), |below| below.len())?;
                file.node.begin(length);
                // Another thread may have been here meanwhile.
                let mut names = self.names.lock();
                match names.files.entry(path).or_insert(Some(file.node.clone())) {
                    Some(node) => file.node = node.clone(),
                    None => return Ok(None),
                }
                Ok(Some(file))
            }
        }
    }

    fn require(&self, name: &str) -> Result<OverlayFile> {
        let found = self.find(name)?;
        found.ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Directory for Folder {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn File>> {
        let file = match (self.find(name)?, options.create) {
            (Some(_), Create::New) => return Err(ErrorKind::AlreadyExists.into()),
            (Some(file), _) => file,
            (None, Create::Never) => return Err(ErrorKind::NotFound.into()),
            (None, _) => {
                let path = self.path_of(name);
                let mut names = self.names.lock();
                let node = names.files.entry(path.clone()).or_default();
                let node = node.get_or_insert_default().clone();
                drop(names);
                OverlayFile::open(node, path)?
            }
        };
        Ok(Arc::new(file))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.require(name)?;
        let mut names = self.names.lock();
        names.files.insert(self.path_of(name), None);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        crate::check_inside(to)?;
        let file = self.require(from)?;
        let mut names = self.names.lock();
        names.files.insert(self.path_of(from), None);
        names.files.insert(self.path_of(to), Some(file.node));
        Ok(())
    }

    fn sync_file_system(&self) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>> {
        let below = self.below.as_ref().map_or(Ok(Vec::new()), |it| it.list())?;
        let mut found = BTreeSet::from_iter(below);
        let names = self.names.lock();
        for (path, node) in &names.files {
            let name = path.strip_prefix(&self.path).ok().and_then(Path::to_str);
            match (name.filter(|name| !name.contains('/')), node) {
                (Some(name), Some(_)) => _ = found.insert(name.to_owned()),
                (Some(name), None) => _ = found.remove(name),
                (None, _) => {}
            }
        }
        Ok(found.into_iter().collect())
    }

    fn exists(&self, name: &str) -> Result<bool> {
        crate::check_inside(name)?;
        let (names, path) = (self.names.lock(), self.path_of(name));
        if let Some(node) = names.files.get(&path) {
            return Ok(node.is_some());
        }
        if names.directories.contains(&path) {
            return Ok(true);
        }
        drop(names);
        self.below.as_ref().map_or(Ok(false), |it| it.exists(name))
    }

    fn subdirectory(&self, name: &str, create: Create) -> Result<Arc<dyn Directory>> {
        let path = self.path_of(name);
        let below = match &self.below {
            Some(below) => below.subdirectory(name, Create::Never).map(Some),
            None => Err(ErrorKind::NotFound.into()),
        };
        let mut names = self.names.lock();
        let below = match (below, create) {
            (Ok(_), Create::New) => return Err(ErrorKind::AlreadyExists.into()),
            (Err(error), _) if error.kind() != ErrorKind::NotFound => return Err(error),
            (Err(error), Create::Never) if !names.directories.contains(&path) => {
                return Err(error);
            }
            (Err(_), _) => {
                names.directories.insert(path.clone());
                None
            }
            (Ok(below), _) => below,
        };
        let names = self.names.clone();
        Ok(Arc::new(Self { path, below, names }))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn Send + Sync>> {
        match &self.below {
            Some(below) if below.exists(name)? => below.lock_shared(name),
            _ => Ok(Box::new(())),
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// A file: what lies below, and what was written over it. What lies below is open only while this
/// file is.
#[derive(Debug, Default)]
struct Node {
    below: Option<Below>,
    content: Mutex<Content>,
}

/// The name of a file below, which may have another one here.
#[derive(Debug)]
struct Below {
    directory: Arc<dyn Directory>,
    name: String,
}

impl Below {
    fn open(&self) -> Result<Arc<dyn File>> {
        let options = OpenOptions {
            create: Create::Never,
            read_only: true,
            direct: false,
            dsync: false,
        };
        self.directory.open(&self.name, options)
    }
}

#[derive(Debug, Default)]
struct Content {
    length: u64,
    /// Bytes of what lies below that count still.
    below_length: u64,
    /// Blocks that were written, by number.
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Node {
    fn over(below: Option<Below>) -> Self {
        Self {
            below,
            content: Mutex::default(),
        }
    }

    /// The file below has this length.
    fn begin(&self, length: u64) {
        let mut content = self.content.lock();
        (content.length, content.below_length) = (length, length);
    }
}

#[derive(Debug)]
struct OverlayFile {
    node: Arc<Node>,
    /// Of the node, open.
    below: Option<Arc<dyn File>>,
    path: PathBuf,
}

impl OverlayFile {
    fn open(node: Arc<Node>, path: PathBuf) -> Result<Self> {
        let below = node.below.as_ref().map(Below::open).transpose()?;
        Ok(Self { node, below, path })
    }

    /// What lies below, and zeroes behind it. `length`: bytes below that count.
    fn read_below(&self, length: u64, buffer: &mut [u8], offset: u64) -> Result<()> {
        let there = length.saturating_sub(offset);
        let there = there.min(buffer.len() as u64) as usize;
        let (old, new) = buffer.split_at_mut(there);
        new.fill(0);
        match &self.below {
            Some(below) if !old.is_empty() => below.read_at(old, offset),
            _ => Ok(()),
        }
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let content = self.node.content.lock();
        let end = offset.saturating_add(buffer.len() as u64);
        if end > content.length {
            return Err(past_end(offset, buffer.len()));
        }
        let below_length = content.below_length;
        drop(content);
        self.read_below(below_length, buffer, offset)?;
        let content = self.node.content.lock();
        let (first, last) = (offset / BLOCK as u64, end.div_ceil(BLOCK as u64));
        for (&number, block) in content.blocks.range(first..last) {
            let begin = number * BLOCK as u64;
            let (from, to) = (begin.max(offset), (begin + BLOCK as u64).min(end));
            buffer[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&block[(from - begin) as usize..(to - begin) as usize]);
        }
        Ok(())
    }

    fn write(&self, mut bytes: &[u8], mut offset: u64) -> Result<()> {
        while !bytes.is_empty() {
            let (number, at) = (offset / BLOCK as u64, (offset % BLOCK as u64) as usize);
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK - at));
            self.write_block(number, at, part)?;
            offset += part.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    fn write_block(&self, number: u64, at: usize, part: &[u8]) -> Result<()> {
        let begin = number * BLOCK as u64;
        let content = self.node.content.lock();
        let (is_new, below_length) = (!content.blocks.contains_key(&number), content.below_length);
        drop(content);
        let mut block = vec![0; BLOCK].into_boxed_slice();
        if is_new && part.len() < BLOCK {
            self.read_below(below_length, &mut block, begin)?;
        }
        let mut content = self.node.content.lock();
        let end = begin + (at + part.len()) as u64;
        content.length = content.length.max(end);
        let behind = begin >= below_length && !content.blocks.contains_key(&number);
        if behind && part.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        let block = content.blocks.entry(number).or_insert(block);
        block[at..at + part.len()].copy_from_slice(part);
        Ok(())
    }

    fn cut(&self, length: u64) {
        let mut content = self.node.content.lock();
        content.length = length;
        content.below_length = content.below_length.min(length);
        let _gone = content.blocks.split_off(&length.div_ceil(BLOCK as u64));
        if let Some(last) = content.blocks.get_mut(&(length / BLOCK as u64)) {
            last[(length % BLOCK as u64) as usize..].fill(0);
        }
    }
}

impl File for OverlayFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.read(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.write(buffer, offset)
    }

    fn write_atomic_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(Error::from(ErrorKind::Unsupported))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.node.content.lock().length)
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.cut(length);
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        let mut content = self.node.content.lock();
        content.length = content.length.max(offset + length);
        Ok(())
    }

    fn atomic_write_limits(&self) -> Option<AtomicWriteLimits> {
        None
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests;
