//! Inode numbers, and what they stand for.

use super::disk::Disk;
use fuser::INodeNo;
use inkstone_io::{Create, ErrorKind, File, OpenOptions, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that the kernel has a number for.
#[derive(Debug)]
pub(super) struct FileNode {
    /// Through the cache: durable when synced.
    pub plain: Arc<dyn File>,
    /// Each write is durable when it returns.
    pub durable: Arc<dyn File>,
}

/// What an inode number stands for.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Directory(PathBuf),
    File(Arc<FileNode>),
}

#[derive(Debug)]
struct Entry {
    node: Node,
    /// Where it is; `None` once it was removed.
    path: Option<PathBuf>,
    /// How often the kernel was told of it and has not forgotten it.
    lookups: u64,
}

/// The table of inodes. Renames and removals go through it, so that an open file keeps its bytes.
#[derive(Debug)]
pub(super) struct Nodes {
    by_number: HashMap<u64, Entry>,
    by_path: HashMap<PathBuf, u64>,
    next: u64,
}

impl Nodes {
    /// The root alone.
    pub fn new() -> Self {
        let root = Entry {
            node: Node::Directory(PathBuf::new()),
            path: Some(PathBuf::new()),
            lookups: u64::MAX,
        };
        Self {
            by_number: [(INodeNo::ROOT.0, root)].into(),
            by_path: [(PathBuf::new(), INodeNo::ROOT.0)].into(),
            next: INodeNo::ROOT.0 + 1,
        }
    }

    /// What a number stands for, and whether it still has a name.
    pub fn get(&self, number: INodeNo) -> Result<(Node, bool)> {
        let entry = self.by_number.get(&number.0).ok_or(ErrorKind::NotFound)?;
        Ok((entry.node.clone(), entry.path.is_some()))
    }

    /// The path of a directory.
    pub fn directory(&self, number: INodeNo) -> Result<PathBuf> {
        match self.get(number)?.0 {
            Node::Directory(path) => Ok(path),
            Node::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// The file of a number.
    pub fn file(&self, number: INodeNo) -> Result<Arc<FileNode>> {
        match self.get(number)?.0 {
            Node::File(file) => Ok(file),
            Node::Directory(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// Finds what is at a path, or creates a file there; the kernel is told of it once more.
    pub fn look_up(&mut self, disk: &Disk, path: &Path, create: Create) -> Result<(INodeNo, Node)> {
        let number = match self.by_path.get(path) {
            Some(_) if create == Create::New => return Err(ErrorKind::AlreadyExists.into()),
            Some(&number) => number,
            None => {
                let node = find(disk, path, create)?;
                self.enter(node, path)
            }
        };
        let entry = self.by_number.get_mut(&number).ok_or(ErrorKind::NotFound)?;
        entry.lookups = entry.lookups.saturating_add(1);
        Ok((INodeNo(number), entry.node.clone()))
    }

    fn enter(&mut self, node: Node, path: &Path) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_path.insert(path.to_path_buf(), number);
        let entry = Entry {
            node,
            path: Some(path.to_path_buf()),
            lookups: 0,
        };
        self.by_number.insert(number, entry);
        number
    }

    /// Removes a file's name.
    pub fn remove(&mut self, disk: &Disk, path: &Path) -> Result<()> {
        disk.vfs().remove(path)?;
        self.lose_name(path);
        Ok(())
    }

    /// Renames a file.
    pub fn rename(&mut self, disk: &Disk, from: &Path, to: &Path) -> Result<()> {
        if disk.has_directory(from) || disk.has_directory(to) {
            return Err(ErrorKind::Unsupported.into());
        }
        disk.vfs().rename(from, to)?;
        if from == to {
            return Ok(());
        }
        self.lose_name(to);
        if let Some(number) = self.by_path.remove(from) {
            self.by_path.insert(to.to_path_buf(), number);
            if let Some(entry) = self.by_number.get_mut(&number) {
                entry.path = Some(to.to_path_buf());
            }
        }
        Ok(())
    }

    fn lose_name(&mut self, path: &Path) {
        let Some(number) = self.by_path.remove(path) else {
            return;
        };
        if let Some(entry) = self.by_number.get_mut(&number) {
            entry.path = None;
        }
    }

    /// The kernel forgets `count` lookups; a file without a name goes with the last one.
    pub fn forget(&mut self, number: INodeNo, count: u64) {
        let Some(entry) = self.by_number.get_mut(&number.0) else {
            return;
        };
        entry.lookups = entry.lookups.saturating_sub(count);
        if entry.lookups == 0 && entry.path.is_none() {
            self.by_number.remove(&number.0);
        }
    }
}

fn find(disk: &Disk, path: &Path, create: Create) -> Result<Node> {
    if disk.has_directory(path) {
        return Ok(Node::Directory(path.to_path_buf()));
    }
    // Never create what the first call did not.
    let options = |create, dsync| OpenOptions {
        create,
        read_only: false,
        direct: false,
        dsync,
    };
    let plain = match disk.vfs().open(path, options(create, false)) {
        // The simulated disk goes on knowing directories that a power loss has taken.
        Err(error) if error.kind() == ErrorKind::IsADirectory && create == Create::Never => {
            return Err(ErrorKind::NotFound.into());
        }
        opened => opened?,
    };
    let durable = disk.vfs().open(path, options(Create::Never, true))?;
    Ok(Node::File(Arc::new(FileNode { plain, durable })))
}
