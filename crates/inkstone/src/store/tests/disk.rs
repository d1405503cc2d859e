//! A disk in memory for the tests of this module: unsynced changes are kept apart, and a power
//! failure keeps any subset of their sectors. Every write and sync is recorded and can fail.

use crate::sync::Mutex;
use inkstone_io::AlignedBuffer;
use inkstone_io::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SECTOR: usize = 512;

/// A seeded generator (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
}

/// What happened, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Write {
        name: String,
        offset: u64,
        length: usize,
        atomic: bool,
    },
    Sync {
        name: String,
    },
}

/// What goes wrong at a step (a write or sync), counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// This step fails, the ones after it work.
    FailAt(u64),
    /// Every write to this file fails, and may have done a part.
    Refuse(&'static str),
    /// Power fails at this step: it may have done a part, and nothing works afterwards.
    PowerAt(u64),
}

#[derive(Debug)]
enum Change {
    Write {
        offset: u64,
        bytes: Vec<u8>,
        atomic: bool,
    },
    SetLen(u64),
}

#[derive(Debug, Default)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

impl Inode {
    /// A sync: everything pending survives.
    fn settle(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            survive(&mut self.durable, change, 2, &mut Random(1));
        }
    }
}

#[derive(Debug)]
struct State {
    names: BTreeMap<PathBuf, Arc<Mutex<Inode>>>,
    durable_names: BTreeMap<PathBuf, Arc<Mutex<Inode>>>,
    events: Vec<Event>,
    fault: Fault,
    steps: u64,
    capacity: u64,
    limits: Option<AtomicWriteLimits>,
}

#[derive(Clone, Debug)]
pub struct Disk(Arc<Mutex<State>>);

impl Disk {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            events: Vec::new(),
            fault: Fault::None,
            steps: 0,
            capacity: u64::MAX,
            limits: None,
        })))
    }

    pub fn set_fault(&self, fault: Fault) {
        let mut state = self.0.lock();
        state.fault = fault;
        state.steps = 0;
    }
    pub fn steps(&self) -> u64 {
        self.0.lock().steps
    }
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity = bytes;
    }
    pub fn set_limits(&self, unit_min: u32, unit_max: u32, unit_max_opt: u32) {
        self.0.lock().limits = Some(AtomicWriteLimits {
            unit_min,
            unit_max,
            unit_max_opt,
        });
    }
    pub fn events_are_no_atomic_writes(&self) -> bool {
        let atomic = |e: &Event| matches!(e, Event::Write { atomic: true, .. });
        !self.0.lock().events.iter().any(atomic)
    }
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().events)
    }

    /// Overwrites bytes where the storage engine cannot see it.
    pub fn damage(&self, path: &Path, offset: usize, bytes: &[u8]) {
        let inode = self.0.lock().names[path].clone();
        let mut inode = inode.lock();
        inode.now[offset..offset + bytes.len()].copy_from_slice(bytes);
        inode.durable = inode.now.clone();
    }
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        self.0.lock().names[path].lock().now.clone()
    }
    pub fn cut(&self, path: &Path, length: usize) {
        let inode = self.0.lock().names[path].clone();
        let mut inode = inode.lock();
        inode.now.resize(length, 0);
        inode.durable = inode.now.clone();
    }

    /// Power fails: of what was not synced any subset of sectors survives. The disk works again.
    pub fn power_loss(&self, random: &mut Random) {
        let mut state = self.0.lock();
        if random.below(2) == 0 {
            state.names = state.durable_names.clone();
        }
        for inode in state.names.values() {
            let mut inode = inode.lock();
            let mut bytes = std::mem::take(&mut inode.durable);
            let mood = random.below(3); // Nothing, anything, everything.
            for change in std::mem::take(&mut inode.pending) {
                survive(&mut bytes, change, mood, random);
            }
            inode.now = bytes.clone();
            inode.durable = bytes;
        }
        state.durable_names = state.names.clone();
        state.fault = Fault::None;
    }

    /// Counts a write or sync; tells whether it happens, and whether it reports success.
    fn step(&self, event: Event) -> (bool, Result<()>) {
        let mut state = self.0.lock();
        let step = state.steps;
        state.steps += 1;
        let failure = || Err(Error::other("injected"));
        match state.fault {
            Fault::FailAt(at) if step == at => (false, failure()),
            Fault::PowerAt(at) if step > at => (false, failure()),
            Fault::PowerAt(at) if step == at => (matches!(event, Event::Write { .. }), failure()),
            Fault::Refuse(file) if matches!(&event, Event::Write { name, .. } if name == file) => {
                (true, failure())
            }
            _ => {
                state.events.push(event);
                (true, Ok(()))
            }
        }
    }

    fn powered(&self) -> Result<()> {
        let state = self.0.lock();
        match state.fault {
            Fault::PowerAt(at) if state.steps > at => Err(Error::other("no power")),
            _ => Ok(()),
        }
    }
}

fn survive(bytes: &mut Vec<u8>, change: Change, mood: u64, random: &mut Random) {
    match change {
        Change::SetLen(length) => {
            if mood == 2 || mood == 1 && random.below(2) == 0 {
                bytes.resize(length as usize, 0);
            }
        }
        Change::Write {
            offset,
            bytes: written,
            atomic,
        } => {
            let unit = if atomic { written.len() } else { SECTOR };
            for (i, sector) in written.chunks(unit).enumerate() {
                if mood == 2 || mood == 1 && random.below(2) == 0 {
                    put(bytes, offset as usize + i * unit, sector);
                }
            }
        }
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    if bytes.len() < at + new.len() {
        bytes.resize(at + new.len(), 0);
    }
    bytes[at..at + new.len()].copy_from_slice(new);
}

#[derive(Debug)]
struct OpenFile {
    disk: Disk,
    path: PathBuf,
    inode: Arc<Mutex<Inode>>,
    options: OpenOptions,
}

impl OpenFile {
    /// The name that it has now, or had when it was opened.
    fn name(&self) -> String {
        let state = self.disk.0.lock();
        let mut names = state.names.iter();
        let now = names.find(|(_, inode)| Arc::ptr_eq(inode, &self.inode));
        let path = now.map_or(&self.path, |(path, _)| path);
        path.file_name().unwrap().to_string_lossy().into_owned()
    }

    fn write(&self, bytes: &[u8], offset: u64, atomic: bool) -> Result<()> {
        let aligned =
            bytes.as_ptr().addr().is_multiple_of(4096) && bytes.len().is_multiple_of(4096);
        assert!(
            !self.options.direct || aligned && offset.is_multiple_of(4096),
            "unaligned"
        );
        let bytes = bytes.to_vec();
        if atomic {
            let limits = self.atomic_write_limits().ok_or(ErrorKind::Unsupported)?;
            let length = bytes.len() as u32;
            assert!(
                (limits.unit_min..=limits.unit_max).contains(&length),
                "{length}"
            );
            assert!(length.is_power_of_two() && offset.is_multiple_of(u64::from(length)));
            assert!(
                self.options.direct,
                "the kernel refuses untorn buffered writes"
            );
        }
        let (happens, result) = self.disk.step(Event::Write {
            name: self.name(),
            offset,
            length: bytes.len(),
            atomic,
        });
        if happens {
            let mut inode = self.inode.lock();
            put(&mut inode.now, offset as usize, &bytes);
            inode.pending.push(Change::Write {
                offset,
                bytes,
                atomic,
            });
            if self.options.dsync && result.is_ok() {
                inode.settle();
            }
        }
        result
    }
}

impl File for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.disk.powered()?;
        let inode = self.inode.lock();
        let at = offset as usize;
        let bytes = inode.now.get(at..at + buffer.len());
        buffer.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.write(buffer, offset, false)
    }
    fn write_atomic_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.write(buffer, offset, true)
    }
    fn sync(&self) -> Result<()> {
        let (happens, result) = self.disk.step(Event::Sync { name: self.name() });
        if happens {
            self.inode.lock().settle();
        }
        result
    }
    fn len(&self) -> Result<u64> {
        self.disk.powered()?;
        Ok(self.inode.lock().now.len() as u64)
    }
    fn set_len(&self, length: u64) -> Result<()> {
        self.disk.powered()?;
        let mut inode = self.inode.lock();
        inode.now.resize(length as usize, 0);
        inode.pending.push(Change::SetLen(length));
        Ok(())
    }
    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.disk.powered()?;
        if offset + length > self.disk.0.lock().capacity {
            return Err(ErrorKind::StorageFull.into());
        }
        if offset + length > self.len()? {
            self.set_len(offset + length)?;
        }
        Ok(())
    }
    fn atomic_write_limits(&self) -> Option<AtomicWriteLimits> {
        self.disk.0.lock().limits
    }
    fn path(&self) -> &Path {
        &self.path
    }
}

impl Disk {
    pub fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.powered()?;
        let mut state = self.0.lock();
        let present = state.names.get(path).cloned();
        let inode = match (present, options.create) {
            (Some(_), Create::New) => return Err(ErrorKind::AlreadyExists.into()),
            (None, Create::Never) => return Err(ErrorKind::NotFound.into()),
            (Some(inode), _) => inode,
            (None, _) => {
                let inode = Arc::<Mutex<Inode>>::default();
                state.names.insert(path.to_owned(), inode.clone());
                inode
            }
        };
        Ok(Arc::new(OpenFile {
            disk: self.clone(),
            path: path.to_owned(),
            inode,
            options,
        }))
    }
    pub fn remove(&self, path: &Path) -> Result<()> {
        self.powered()?;
        let removed = self.0.lock().names.remove(path);
        removed.map(drop).ok_or(ErrorKind::NotFound.into())
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.powered()?;
        let mut state = self.0.lock();
        let inode = state.names.remove(from).ok_or(ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), inode);
        Ok(())
    }
    fn sync_dir(&self, directory: &Path) -> Result<()> {
        let (happens, result) = self.step(Event::Sync {
            name: directory.to_string_lossy().into_owned(),
        });
        if happens {
            let mut state = self.0.lock();
            state.durable_names = state.names.clone();
        }
        result
    }
    fn read_dir(&self, directory: &Path) -> Result<Vec<String>> {
        let state = self.0.lock();
        let inside = state.names.keys().filter(|p| p.parent() == Some(directory));
        let name = |p: &PathBuf| p.file_name().unwrap().to_string_lossy().into_owned();
        Ok(inside.map(name).collect())
    }
    pub fn exists(&self, path: &Path) -> Result<bool> {
        self.powered()?;
        Ok(self.0.lock().names.contains_key(path))
    }
    pub fn directory(&self, path: impl AsRef<Path>) -> Arc<dyn Directory> {
        Arc::new(Folder {
            disk: self.clone(),
            path: path.as_ref().to_owned(),
        })
    }
}

impl Vfs for Disk {
    fn open_directory(&self, path: &Path, _: Create) -> Result<Arc<dyn Directory>> {
        Ok(self.directory(path))
    }
    fn open_file(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.open(path, options)
    }
    fn batch(&self, _: usize) -> Result<Box<dyn Batch>> {
        Ok(Box::new(InOrder))
    }
    fn name(&self) -> &'static str {
        "test"
    }
}

/// A directory is its path: none moves here.
#[derive(Debug)]
struct Folder {
    disk: Disk,
    path: PathBuf,
}

impl Directory for Folder {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.disk.open(&self.path_of(name), options)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.disk.remove(&self.path_of(name))
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.rename(&self.path_of(from), &self.path_of(to))
    }
    fn sync(&self) -> Result<()> {
        self.disk.sync_dir(&self.path)
    }
    fn sync_file_system(&self) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn list(&self) -> Result<Vec<String>> {
        self.disk.read_dir(&self.path)
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.disk.exists(&self.path_of(name))
    }
    fn subdirectory(&self, name: &str, _: Create) -> Result<Arc<dyn Directory>> {
        Ok(self.disk.directory(self.path_of(name)))
    }
    fn lock(&self, _: &str) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }
    fn path(&self) -> &Path {
        &self.path
    }
}

/// Runs one operation after the other.
struct InOrder;

impl Batch for InOrder {
    fn run(&mut self, operations: &mut [Op<'_>]) -> Vec<Result<()>> {
        let run = |operation: &mut Op<'_>| match operation {
            Op::Read {
                file,
                buffer,
                offset,
            } => file.read_at(buffer, *offset),
            Op::Sync { file } => file.sync(),
            Op::Write {
                file,
                buffers,
                offset,
                atomic: true,
            } => {
                assert_eq!(
                    buffers.len(),
                    1,
                    "the kernel refuses untorn writes of pieces"
                );
                file.write_atomic_at(buffers[0], *offset)
            }
            Op::Write {
                file,
                buffers,
                offset,
                atomic: false,
            } => {
                for piece in &*buffers {
                    assert!(piece.as_ptr().addr() % 4096 == 0, "unaligned");
                }
                let bytes = buffers.concat();
                let mut aligned = AlignedBuffer::zeroed(bytes.len());
                aligned.copy_from_slice(&bytes);
                file.write_at(&aligned, *offset)
            }
        };
        operations.iter_mut().map(run).collect()
    }
}
