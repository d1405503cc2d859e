//! The names of a simulated disk as a process sees and changes them: by path, and through handles.

use super::faults::{OpKind, Process, Verdict, dead, input_output_error};
use super::file::SimFile;
use super::names::Names;
use super::{SimVfs, normal, not_found};
use crate::{
    Create, Directory, Error, ErrorKind, File, Identity, OpenOptions, Result, check_inside,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory of a simulated disk.
#[derive(Debug)]
pub(super) struct SimDirectory {
    vfs: SimVfs,
    path: PathBuf,
}

impl SimDirectory {
    pub fn at(vfs: &SimVfs, path: &Path) -> Self {
        vfs.process.opened();
        Self {
            vfs: vfs.clone(),
            path: normal(path),
        }
    }

    pub fn open(vfs: &SimVfs, path: &Path, create: Create) -> Result<Self> {
        let this = Self::at(vfs, path);
        if create == Create::Never {
            vfs.admit(OpKind::Open, path)?;
        }
        let names = vfs.disk.names.lock();
        let there = names.has_directory(&this.path);
        match create {
            Create::New if there => return Err(ErrorKind::AlreadyExists.into()),
            Create::Never if names.get(&this.path).is_some() => {
                return Err(ErrorKind::NotADirectory.into());
            }
            Create::Never if !there => return Err(not_found(path)),
            Create::Never => return Ok(this),
            Create::New | Create::IfMissing => {}
        }
        drop(names);
        vfs.create_dir_all(path)?;
        Ok(this)
    }
}

impl SimDirectory {
    /// The path of a name that cannot lead out of the directory.
    fn inside(&self, name: &str) -> Result<PathBuf> {
        Ok(self.path.join(check_inside(name)?))
    }
}

impl Directory for SimDirectory {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn File>> {
        self.vfs.open(&self.inside(name)?, options)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.vfs.remove(&self.inside(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.vfs.rename(&self.inside(from)?, &self.inside(to)?)
    }

    fn sync(&self) -> Result<()> {
        self.vfs.sync_dir(&self.path)
    }

    fn sync_file_system(&self) -> Result<()> {
        self.vfs.sync_all(&self.path)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.vfs.read_dir(&self.path)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.vfs.exists(&self.inside(name)?)
    }

    fn subdirectory(&self, name: &str, create: Create) -> Result<Arc<dyn Directory>> {
        Ok(Arc::new(Self::open(
            &self.vfs,
            &self.inside(name)?,
            create,
        )?))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn Send + Sync>> {
        self.vfs.lock(&self.inside(name)?)
    }

    fn lock_shared(&self, name: &str) -> Result<Box<dyn Send + Sync>> {
        if self.exists(name)? {
            self.lock(name)
        } else {
            Err(not_found(&self.inside(name)?))
        }
    }

    fn lock_itself(&self) -> Result<Box<dyn Send + Sync>> {
        self.vfs.admit(OpKind::Lock, &self.path)?;
        self.vfs.hold(&self.path)
    }

    fn identity(&self, name: &str) -> Result<Option<Identity>> {
        let path = self.inside(name)?;
        self.vfs.process.check_alive()?;
        let names = self.vfs.disk.names.lock();
        let node = names.get(&path).ok_or_else(|| not_found(&path))?;
        Ok(Some(node.identity()))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SimDirectory {
    fn drop(&mut self) {
        self.vfs.process.closed();
    }
}

/// Operations by path. A simulated disk has no current directory, and its directories do not move.
impl SimVfs {
    /// Opens a file.
    pub fn open(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn File>> {
        let path = normal(path);
        self.disk.observer.see(OpKind::Open, &path, &[]);
        let mut names = self.disk.names.lock();
        let found = names.get(&path).cloned();
        let creates = found.is_none() && options.create != Create::Never;
        let verdict = self.process.admit(OpKind::Open, &path, creates)?;
        let last_gasp = matches!(verdict, Verdict::LastGasp);
        if let Verdict::Fail(error) = verdict {
            return Err(error);
        }
        if names.has_directory(&path) {
            return Err(ErrorKind::IsADirectory.into());
        }
        let node = match (found, options.create) {
            (Some(_), Create::New) => return Err(ErrorKind::AlreadyExists.into()),
            (Some(node), _) => node,
            (None, Create::Never) => return Err(not_found(&path)),
            (None, _) => {
                check_parent(&names, &path)?;
                self.disk.create(&mut names, &path)
            }
        };
        if last_gasp {
            return Err(dead());
        }
        let (disk, process) = (Arc::clone(&self.disk), Arc::clone(&self.process));
        Ok(Arc::new(SimFile::new(disk, process, node, path, options)))
    }

    /// Removes a file's name.
    pub fn remove(&self, path: &Path) -> Result<()> {
        let path = normal(path);
        self.change_names(OpKind::Remove, &path, |names| {
            let node = names.get(&path).cloned().ok_or_else(|| not_found(&path))?;
            names.remove(path.clone());
            self.disk.unlink(&node);
            Ok(())
        })
    }

    /// Renames a file, replacing the target.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (normal(from), normal(to));
        self.change_names(OpKind::Rename, &to, |names| {
            let node = names.get(&from).cloned().ok_or_else(|| not_found(&from))?;
            check_parent(names, &to)?;
            if from == to {
                return Ok(());
            }
            let replaced = names.get(&to).cloned();
            names.rename(from.clone(), to.clone(), node);
            if let Some(replaced) = replaced {
                self.disk.unlink(&replaced);
            }
            Ok(())
        })
    }

    /// See [`Directory::sync`].
    pub fn sync_dir(&self, directory: &Path) -> Result<()> {
        let directory = normal(directory);
        self.disk.observer.see(OpKind::SyncDir, &directory, &[]);
        let mut names = self.disk.names.lock();
        match self.process.admit(OpKind::SyncDir, &directory, true)? {
            Verdict::LastGasp => return Err(dead()),
            Verdict::Fail(error) => return Err(error),
            Verdict::Proceed | Verdict::Short | Verdict::Lose | Verdict::Misread(_) => {}
        }
        if !names.has_directory(&directory) {
            return Err(not_found(&directory));
        }
        names.sync(&directory);
        Ok(())
    }

    /// See [`Directory::sync_file_system`]: one sync of everything, which fails as a whole or makes
    /// all files and names durable. What an earlier failed sync gave up stays given up.
    fn sync_all(&self, directory: &Path) -> Result<()> {
        self.disk.observer.see(OpKind::Sync, directory, &[]);
        let mut names = self.disk.names.lock();
        let verdict = self.process.admit(OpKind::Sync, directory, true)?;
        let nodes: Vec<_> = names.files().values().cloned().collect();
        for node in nodes {
            let mut state = node.state.lock();
            match verdict {
                Verdict::Proceed => {
                    let mark = state.sync_mark();
                    state.finish_sync(mark);
                }
                Verdict::LastGasp => {}
                _ => state.forsake(),
            }
        }
        match verdict {
            Verdict::Proceed => {
                for directory in names.directories.clone() {
                    names.sync(&directory);
                }
                Ok(())
            }
            Verdict::LastGasp => Err(dead()),
            Verdict::Fail(error) => Err(error),
            Verdict::Short | Verdict::Lose | Verdict::Misread(_) => Err(input_output_error()),
        }
    }

    /// Makes a directory and its parents, durably; not an error if it exists.
    pub fn create_dir_all(&self, directory: &Path) -> Result<()> {
        self.admit(OpKind::CreateDir, directory)?;
        let directory = normal(directory);
        let mut names = self.disk.names.lock();
        for ancestor in directory.ancestors() {
            if names.get(ancestor).is_some() {
                return Err(ErrorKind::AlreadyExists.into());
            }
        }
        let ancestors = directory.ancestors().map(Path::to_path_buf);
        names.directories.extend(ancestors);
        Ok(())
    }

    /// See [`Directory::list`].
    pub fn read_dir(&self, directory: &Path) -> Result<Vec<String>> {
        self.admit(OpKind::List, directory)?;
        let directory = normal(directory);
        let names = self.disk.names.lock();
        if !names.has_directory(&directory) {
            return Err(not_found(&directory));
        }
        let inside = names
            .files()
            .keys()
            .filter(|path| path.parent() == Some(&directory));
        let file_names = inside.filter_map(|path| path.file_name()?.to_str());
        let mut found: Vec<String> = file_names.map(str::to_owned).collect();
        found.sort();
        Ok(found)
    }

    /// Whether there is a file or a directory of this name.
    pub fn exists(&self, path: &Path) -> Result<bool> {
        self.admit(OpKind::Look, path)?;
        let path = normal(path);
        let names = self.disk.names.lock();
        Ok(names.get(&path).is_some() || names.has_directory(&path))
    }

    /// See [`Directory::lock`].
    pub fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.admit(OpKind::Lock, path)?;
        let path = normal(path);
        let mut names = self.disk.names.lock();
        if names.get(&path).is_none() {
            check_parent(&names, &path)?;
            self.disk.create(&mut names, &path);
        }
        drop(names);
        self.hold(&path)
    }

    /// A lock that is held only once in this process.
    fn hold(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        let path = path.to_owned();
        if !self.process.locks.lock().insert(path.clone()) {
            return Err(Error::new(
                ErrorKind::WouldBlock,
                "the lock is held already",
            ));
        }
        let process = Arc::clone(&self.process);
        process.opened();
        Ok(Box::new(LockGuard { process, path }))
    }
}

impl SimVfs {
    /// An operation that a power loss does not cut.
    fn admit(&self, kind: OpKind, path: &Path) -> Result<()> {
        match self.process.admit(kind, path, false)? {
            Verdict::Fail(error) => Err(error),
            _ => Ok(()),
        }
    }

    /// A change of names: `change` is done unless a fault forbids it.
    fn change_names(
        &self,
        kind: OpKind,
        path: &Path,
        change: impl FnOnce(&mut Names) -> Result<()>,
    ) -> Result<()> {
        self.disk.observer.see(kind, path, &[]);
        let mut names = self.disk.names.lock();
        match self.process.admit(kind, path, true)? {
            Verdict::Proceed => change(&mut names),
            Verdict::LastGasp => change(&mut names).and(Err(dead())),
            Verdict::Fail(error) => Err(error),
            Verdict::Short | Verdict::Lose | Verdict::Misread(_) => Err(input_output_error()),
        }
    }
}

fn check_parent(names: &Names, path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) if names.has_directory(parent) => Ok(()),
        _ => Err(not_found(path)),
    }
}

struct LockGuard {
    process: Arc<Process>,
    path: PathBuf,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.process.closed();
        self.process.locks.lock().remove(&self.path);
    }
}
