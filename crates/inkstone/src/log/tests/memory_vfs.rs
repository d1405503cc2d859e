//! A disk in memory for the log's tests: knows what was synced, and fails on command.

use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use inkstone_io::*;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Default)]
pub struct Faults {
    /// Writes to segment files until one fails; never when negative.
    pub write_in: AtomicI64,
    /// Syncs until one fails; never when negative.
    pub sync_in: AtomicI64,
    pub disk_full: AtomicBool,
    /// While set, no file can be opened.
    pub no_access: AtomicBool,
    pub sync_micros: AtomicU64,
    pub write_micros: AtomicU64,
    /// While set, writes that have begun do not end.
    pub hold_writes: AtomicBool,
    /// While set, syncs that have begun do not end.
    pub hold_syncs: AtomicBool,
    pub writes: AtomicU64,
    /// Those of them that wait for no device.
    pub cached_writes: AtomicU64,
    pub syncs: AtomicU64,
    /// Bytes that were read.
    pub bytes_read: AtomicU64,
}

#[derive(Clone, Debug)]
pub struct MemoryVfs {
    files: Arc<Mutex<BTreeMap<PathBuf, Arc<Body>>>>,
    pub faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Body(Mutex<Content>);

#[derive(Clone, Debug, Default)]
struct Content {
    now: Vec<u8>,
    synced: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug)]
struct Handle {
    path: PathBuf,
    body: Arc<Body>,
    options: OpenOptions,
    faults: Arc<Faults>,
}

fn put(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    if bytes.len() < at + new.len() {
        bytes.resize(at + new.len(), 0);
    }
    bytes[at..at + new.len()].copy_from_slice(new);
}

fn due(counter: &AtomicI64) -> bool {
    counter.load(Ordering::SeqCst) >= 0 && counter.fetch_sub(1, Ordering::SeqCst) == 0
}

impl MemoryVfs {
    pub fn new() -> Self {
        let faults = Faults::default();
        faults.write_in.store(-1, Ordering::SeqCst);
        faults.sync_in.store(-1, Ordering::SeqCst);
        Self {
            files: Arc::default(),
            faults: Arc::new(faults),
        }
    }

    /// The disk after a power loss: of the unsynced writes, those that `keep` wants.
    pub fn crash(&self, mut keep: impl FnMut(&Path, usize) -> bool) -> Self {
        let after = Self::new();
        let files = self.files.lock();
        // All files at one moment: a power loss does not leave a file older than the one before it.
        let held: Vec<_> = files.iter().map(|(p, body)| (p, body.0.lock())).collect();
        for (path, content) in held {
            let mut bytes = content.synced.clone();
            for (i, (at, new)) in content.pending.iter().enumerate() {
                if keep(path, i) {
                    put(&mut bytes, *at, new);
                }
            }
            after.insert(path, bytes);
        }
        after
    }

    pub fn insert(&self, path: &Path, bytes: Vec<u8>) {
        let content = Content {
            now: bytes.clone(),
            synced: bytes,
            pending: Vec::new(),
        };
        let body = Arc::new(Body(Mutex::new(content)));
        self.files.lock().insert(path.to_owned(), body);
    }

    /// Changes a file from outside, past its open handles.
    pub fn edit(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let body = self.files.lock()[path].clone();
        let mut content = body.0.lock();
        change(&mut content.now);
        content.synced = content.now.clone();
        content.pending.clear();
    }

    pub fn names(&self) -> Vec<String> {
        let files = self.files.lock();
        files.keys().map(|p| p.display().to_string()).collect()
    }
}

impl MemoryVfs {
    pub fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        if self.faults.no_access.load(Ordering::SeqCst) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let mut files = self.files.lock();
        if !files.contains_key(path) {
            if options.create == Create::Never {
                return Err(ErrorKind::NotFound.into());
            }
            files.insert(path.to_owned(), Arc::default());
        }
        Ok(Arc::new(Handle {
            path: path.to_owned(),
            body: files[path].clone(),
            options,
            faults: self.faults.clone(),
        }))
    }
    pub fn remove(&self, path: &Path) -> Result<()> {
        let removed = self.files.lock().remove(path);
        removed.map(|_| ()).ok_or(ErrorKind::NotFound.into())
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut files = self.files.lock();
        let body = files.remove(from).ok_or(ErrorKind::NotFound)?;
        files.insert(to.to_owned(), body);
        Ok(())
    }
    fn read_dir(&self, directory: &Path) -> Result<Vec<String>> {
        let files = self.files.lock();
        let inside = files.keys().filter(|p| p.parent() == Some(directory));
        Ok(inside
            .map(|p| p.file_name().unwrap().to_str().unwrap().to_owned())
            .collect())
    }
    pub fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.files.lock().contains_key(path))
    }
    pub fn directory(&self, path: impl AsRef<Path>) -> Arc<dyn Directory> {
        Arc::new(Folder {
            disk: self.clone(),
            path: path.as_ref().to_owned(),
        })
    }
}

impl Vfs for MemoryVfs {
    fn open_directory(&self, path: &Path, _: Create) -> Result<Arc<dyn Directory>> {
        Ok(self.directory(path))
    }
    fn open_file(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.open(path, options)
    }
    fn batch(&self, _: usize) -> Result<Box<dyn Batch>> {
        Ok(Box::new(OneByOne))
    }
    fn name(&self) -> &'static str {
        "memory"
    }
}

/// A directory is its path: none moves here.
#[derive(Debug)]
struct Folder {
    disk: MemoryVfs,
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
        Ok(())
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

pub struct OneByOne;

impl Batch for OneByOne {
    fn run(&mut self, operations: &mut [Op<'_>]) -> Vec<Result<()>> {
        let run = |op: &mut Op<'_>| match op {
            Op::Read {
                file,
                buffer,
                offset,
            } => file.read_at(buffer, *offset),
            Op::Write {
                file,
                buffers,
                offset,
                ..
            } => {
                let mut at = *offset;
                for buffer in buffers {
                    file.write_at(buffer, at)?;
                    at += buffer.len() as u64;
                }
                Ok(())
            }
            Op::Sync { file } => file.sync(),
        };
        operations.iter_mut().map(run).collect()
    }
}

impl Handle {
    fn aligned(&self, address: usize, len: usize, offset: u64) -> Result<()> {
        let all = address | len | offset as usize;
        if self.options.direct && !all.is_multiple_of(DIRECT_ALIGNMENT) {
            return Err(Error::new(ErrorKind::InvalidInput, "not aligned"));
        }
        Ok(())
    }
}

impl File for Handle {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.aligned(buffer.as_ptr() as usize, buffer.len(), offset)?;
        let bytes_read = &self.faults.bytes_read;
        bytes_read.fetch_add(buffer.len() as u64, Ordering::SeqCst);
        let content = self.body.0.lock();
        let range = offset as usize..offset as usize + buffer.len();
        let bytes = content.now.get(range).ok_or(ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        self.aligned(buffer.as_ptr() as usize, buffer.len(), offset)?;
        if self.path.extension().is_some_and(|e| e == "log") {
            self.faults.writes.fetch_add(1, Ordering::SeqCst);
            let cached = !self.options.direct && !self.options.dsync;
            let cached = u64::from(cached);
            self.faults
                .cached_writes
                .fetch_add(cached, Ordering::SeqCst);
            if due(&self.faults.write_in) {
                return Err(Error::other("injected write error"));
            }
        }
        let micros = self.faults.write_micros.load(Ordering::SeqCst);
        if micros > 0 {
            crate::sync::thread::sleep(Duration::from_micros(micros));
        }
        while self.faults.hold_writes.load(Ordering::SeqCst) {
            crate::sync::thread::sleep(Duration::from_millis(1));
        }
        let mut content = self.body.0.lock();
        put(&mut content.now, offset as usize, buffer);
        if self.options.dsync {
            put(&mut content.synced, offset as usize, buffer);
        } else {
            content.pending.push((offset as usize, buffer.to_vec()));
        }
        Ok(())
    }
    fn write_atomic_at(&self, _: &[u8], _: u64) -> Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn sync(&self) -> Result<()> {
        // Only what was written before the call began is promised.
        let before = self.body.0.lock().pending.len();
        self.faults.syncs.fetch_add(1, Ordering::SeqCst);
        let micros = self.faults.sync_micros.load(Ordering::SeqCst);
        if micros > 0 {
            crate::sync::thread::sleep(Duration::from_micros(micros));
        }
        while self.faults.hold_syncs.load(Ordering::SeqCst) {
            crate::sync::thread::sleep(Duration::from_millis(1));
        }
        if due(&self.faults.sync_in) {
            return Err(Error::other("injected sync error"));
        }
        let mut content = self.body.0.lock();
        let count = before.min(content.pending.len());
        let done: Vec<_> = content.pending.drain(..count).collect();
        for (at, new) in done {
            put(&mut content.synced, at, &new);
        }
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.body.0.lock().now.len() as u64)
    }
    fn set_len(&self, length: u64) -> Result<()> {
        let mut content = self.body.0.lock();
        content.now.resize(length as usize, 0);
        content.synced.resize(length as usize, 0);
        Ok(())
    }
    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        if self.faults.disk_full.load(Ordering::SeqCst) {
            return Err(ErrorKind::StorageFull.into());
        }
        let end = (offset + length).max(self.len()?);
        self.set_len(end)
    }
    fn atomic_write_limits(&self) -> Option<AtomicWriteLimits> {
        None
    }
    fn path(&self) -> &Path {
        &self.path
    }
    fn is_direct(&self) -> bool {
        self.options.direct
    }
}
