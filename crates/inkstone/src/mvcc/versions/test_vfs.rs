//! A file system in memory, just enough for the spill file, with a limit on its size.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock};
use inkstone_io::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub struct MemVfs {
    pub files: Mutex<BTreeMap<String, Arc<MemFile>>>,
    /// No file grows beyond this.
    pub limit: Arc<AtomicU64>,
    /// The length of no file can be changed.
    pub lengths_stay: Arc<AtomicBool>,
}

#[derive(Debug)]
pub struct MemFile {
    path: PathBuf,
    pub bytes: RwLock<Vec<u8>>,
    limit: Arc<AtomicU64>,
    lengths_stay: Arc<AtomicBool>,
}

impl MemVfs {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            files: Mutex::default(),
            limit: Arc::new(AtomicU64::new(u64::MAX)),
            lengths_stay: Arc::default(),
        })
    }

    pub fn file(&self, name: &str) -> Option<Arc<MemFile>> {
        self.files.lock().get(name).cloned()
    }
}

fn unsupported<T>() -> Result<T> {
    Err(ErrorKind::Unsupported.into())
}

/// The one directory there is.
impl Directory for MemVfs {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn File>> {
        let mut files = self.files.lock();
        if options.create == Create::Never && !files.contains_key(name) {
            return Err(ErrorKind::NotFound.into());
        }
        let new = || {
            Arc::new(MemFile {
                path: self.path_of(name),
                bytes: RwLock::default(),
                limit: self.limit.clone(),
                lengths_stay: self.lengths_stay.clone(),
            })
        };
        Ok(files.entry(name.to_owned()).or_insert_with(new).clone())
    }
    fn remove(&self, name: &str) -> Result<()> {
        let removed = self.files.lock().remove(name);
        removed.map(|_| ()).ok_or(ErrorKind::NotFound.into())
    }
    fn rename(&self, _: &str, _: &str) -> Result<()> {
        unsupported()
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn sync_file_system(&self) -> Result<()> {
        unsupported()
    }
    fn list(&self) -> Result<Vec<String>> {
        unsupported()
    }
    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.files.lock().contains_key(name))
    }
    fn subdirectory(&self, _: &str, _: Create) -> Result<Arc<dyn Directory>> {
        unsupported()
    }
    fn lock(&self, _: &str) -> Result<Box<dyn Send + Sync>> {
        unsupported()
    }
    fn path(&self) -> &Path {
        Path::new("/db")
    }
}

impl File for MemFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let bytes = self.bytes.read();
        let from = bytes.get(offset as usize..offset as usize + buffer.len());
        buffer.copy_from_slice(from.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let end = offset as usize + buffer.len();
        if end as u64 > self.limit.load(Ordering::Relaxed) {
            return Err(ErrorKind::StorageFull.into());
        }
        let mut bytes = self.bytes.write();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(buffer);
        Ok(())
    }
    fn write_atomic_at(&self, _: &[u8], _: u64) -> Result<()> {
        unsupported()
    }
    fn sync(&self) -> Result<()> {
        let is_spill_file = self.path.ends_with(super::spill::SPILL_FILE);
        assert!(!is_spill_file, "the spill file is never synced");
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.read().len() as u64)
    }
    fn set_len(&self, length: u64) -> Result<()> {
        if self.lengths_stay.load(Ordering::Relaxed) {
            return Err(ErrorKind::Other.into());
        }
        self.bytes.write().resize(length as usize, 0);
        Ok(())
    }
    fn allocate(&self, _: u64, _: u64) -> Result<()> {
        unsupported()
    }
    fn atomic_write_limits(&self) -> Option<AtomicWriteLimits> {
        None
    }
    fn path(&self) -> &Path {
        &self.path
    }
}
