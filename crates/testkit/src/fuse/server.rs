//! The kernel's requests.

use super::disk::{Disk, Surface};
use super::nodes::{Node, Nodes};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use inkstone_io::{Create, DIRECT_ALIGNMENT, Error, ErrorKind, Result};
use rustix::fs::{FallocateFlags, OFlags};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

/// Only the kernel changes the disk while it is mounted: it may cache what it knows.
const TTL: Duration = Duration::from_secs(3600);
const BLOCK_BYTES: u32 = 4096;

/// A name, whether it is a directory.
type Listing = Vec<(String, bool)>;

pub(super) struct Server {
    disk: Disk,
    nodes: Mutex<Nodes>,
    listings: Mutex<(u64, HashMap<u64, Listing>)>,
    user: u32,
    group: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// What the kernel is told of an error. A disk without power is an I/O error.
fn errno(error: Error) -> Errno {
    if let Some(code) = error.raw_os_error() {
        return Errno::from_i32(code);
    }
    match error.kind() {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::AlreadyExists => Errno::EEXIST,
        ErrorKind::IsADirectory => Errno::EISDIR,
        ErrorKind::NotADirectory => Errno::ENOTDIR,
        ErrorKind::InvalidInput => Errno::EINVAL,
        ErrorKind::Unsupported => Errno::EOPNOTSUPP,
        ErrorKind::StorageFull => Errno::ENOSPC,
        _ => Errno::EIO,
    }
}

fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32)
}

/// Whether the kernel's page cache is used: not with `O_DIRECT`, and then writes to one file may
/// run side by side, as on a disk's file system.
fn opened(flags: i32) -> FopenFlags {
    if open_flags(flags).contains(OFlags::DIRECT) {
        FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
    } else {
        FopenFlags::empty()
    }
}

/// Refuses what a disk's file system refuses without its page cache.
fn check_alignment(flags: OFlags, offset: u64, length: usize) -> Result<()> {
    let alignment = DIRECT_ALIGNMENT as u64;
    let aligned = (offset | length as u64).is_multiple_of(alignment);
    if flags.contains(OFlags::DIRECT) && !aligned {
        return Err(ErrorKind::InvalidInput.into());
    }
    Ok(())
}

impl Server {
    pub fn new(disk: Disk) -> Self {
        Self {
            disk,
            nodes: Mutex::new(Nodes::new()),
            listings: Mutex::default(),
            user: rustix::process::getuid().as_raw(),
            group: rustix::process::getgid().as_raw(),
        }
    }

    fn path_in(&self, nodes: &Nodes, parent: INodeNo, name: &OsStr) -> Result<PathBuf> {
        if self.disk.is_dead() {
            return Err(rustix::io::Errno::IO.into());
        }
        Ok(nodes.directory(parent)?.join(name))
    }

    fn attributes(&self, number: INodeNo, node: &Node, named: bool) -> Result<FileAttr> {
        let (kind, size, perm) = match node {
            Node::Directory(_) => (FileType::Directory, 0, 0o755),
            Node::File(file) => (FileType::RegularFile, file.plain.len()?, 0o644),
        };
        let time = SystemTime::UNIX_EPOCH;
        Ok(FileAttr {
            ino: number,
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: u32::from(named),
            uid: self.user,
            gid: self.group,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        })
    }

    fn attributes_of(&self, number: INodeNo) -> Result<FileAttr> {
        let (node, named) = lock(&self.nodes).get(number)?;
        self.attributes(number, &node, named)
    }

    fn look_up_or_create(&self, parent: INodeNo, name: &OsStr, create: Create) -> Result<FileAttr> {
        let mut nodes = lock(&self.nodes);
        let path = self.path_in(&nodes, parent, name)?;
        if create != Create::Never {
            self.disk.before_name();
        }
        let (number, node) = nodes.look_up(&self.disk, &path, create)?;
        self.attributes(number, &node, true)
    }

    fn make_directory(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr> {
        let mut nodes = lock(&self.nodes);
        let path = self.path_in(&nodes, parent, name)?;
        if !self.disk.make_directory(&path)? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let (number, node) = nodes.look_up(&self.disk, &path, Create::Never)?;
        self.attributes(number, &node, true)
    }

    fn read_some(&self, number: INodeNo, offset: u64, size: u32, flags: OFlags) -> Result<Vec<u8>> {
        check_alignment(flags, offset, size as usize)?;
        let file = lock(&self.nodes).file(number)?;
        loop {
            let left = file.plain.len()?.saturating_sub(offset);
            let mut bytes = vec![0; left.min(u64::from(size)) as usize];
            match file.plain.read_at(&mut bytes, offset) {
                // The file was cut in between.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
                read => return read.map(|()| bytes),
            }
        }
    }

    fn write_all(&self, number: INodeNo, offset: u64, data: &[u8], flags: OFlags) -> Result<()> {
        check_alignment(flags, offset, data.len())?;
        let file = lock(&self.nodes).file(number)?;
        let no_cache = self.disk.surface() == Surface::NoCache && flags.contains(OFlags::DIRECT);
        if no_cache || flags.contains(OFlags::DSYNC) {
            file.durable.write_at(data, offset)
        } else {
            file.plain.write_at(data, offset)
        }
    }

    fn reserve(&self, number: INodeNo, offset: u64, length: u64, mode: i32) -> Result<()> {
        let file = lock(&self.nodes).file(number)?;
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        if mode == FallocateFlags::KEEP_SIZE {
            // Memory is taken by writing. Nothing of this can be seen.
            Ok(())
        } else if mode.is_empty() {
            file.plain.allocate(offset, length)
        } else {
            Err(ErrorKind::Unsupported.into())
        }
    }

    fn rename_file(&self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr)) -> Result<()> {
        let mut nodes = lock(&self.nodes);
        let from = self.path_in(&nodes, from.0, from.1)?;
        let to = self.path_in(&nodes, to.0, to.1)?;
        self.disk.before_name();
        nodes.rename(&self.disk, &from, &to)
    }

    fn remove_file(&self, parent: INodeNo, name: &OsStr) -> Result<()> {
        let mut nodes = lock(&self.nodes);
        let path = self.path_in(&nodes, parent, name)?;
        self.disk.before_name();
        nodes.remove(&self.disk, &path)
    }

    fn open_listing(&self, number: INodeNo) -> Result<u64> {
        let path = lock(&self.nodes).directory(number)?;
        let mut names = vec![(".".to_owned(), true), ("..".to_owned(), true)];
        names.extend(self.disk.list(&path)?);
        let mut listings = lock(&self.listings);
        let handle = listings.0;
        listings.0 += 1;
        listings.1.insert(handle, names);
        Ok(handle)
    }

    fn sync_directory(&self, number: INodeNo) -> Result<()> {
        let path = lock(&self.nodes).directory(number)?;
        self.disk.before_name();
        self.disk.sync_directory(&path)
    }
}

/// Answers with a result: `reply!(reply, result, value => reply.method(value))`.
macro_rules! reply {
    ($reply:ident, $result:expr, $value:pat => $answer:expr) => {
        match $result {
            Ok($value) => $answer,
            Err(error) => $reply.error(errno(error)),
        }
    };
}

impl Filesystem for Server {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> Result<()> {
        // What the kernel does not know of these it does without.
        let _ = config.add_capabilities(fuser::InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.add_capabilities(fuser::InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.look_up_or_create(parent, name, Create::Never);
        reply!(reply, found, it => reply.entry(&TTL, &it, Generation(0)));
    }

    fn forget(&self, _: &Request, number: INodeNo, count: u64) {
        lock(&self.nodes).forget(number, count);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply!(reply, self.attributes_of(number), it => reply.attr(&TTL, &it));
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        _mode: Option<u32>,
        _user: Option<u32>,
        _group: Option<u32>,
        size: Option<u64>,
        _accessed: Option<TimeOrNow>,
        _modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _: Option<FileHandle>,
        _created: Option<SystemTime>,
        _flags_changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let resized = size.map_or(Ok(()), |size| {
            lock(&self.nodes)
                .file(number)
                .and_then(|file| file.plain.set_len(size))
        });
        let found = resized.and_then(|()| self.attributes_of(number));
        reply!(reply, found, it => reply.attr(&TTL, &it));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let made = self.make_directory(parent, name);
        reply!(reply, made, it => reply.entry(&TTL, &it, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply!(reply, self.remove_file(parent, name), () => reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let renamed = self.rename_file((parent, name), (new_parent, new_name));
        reply!(reply, renamed, () => reply.ok());
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let create = if open_flags(flags).contains(OFlags::EXCL) {
            Create::New
        } else {
            Create::IfMissing
        };
        let created = self.look_up_or_create(parent, name, create);
        reply!(reply, created, it => {
            reply.created(&TTL, &it, Generation(0), FileHandle(0), opened(flags));
        });
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let found = lock(&self.nodes).file(number);
        reply!(reply, found, _ => reply.opened(FileHandle(0), opened(flags.0)));
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.read_some(number, offset, size, open_flags(flags.0));
        reply!(reply, read, bytes => reply.data(&bytes));
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.write_all(number, offset, data, open_flags(flags.0));
        reply!(reply, written, () => reply.written(data.len() as u32));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let file = lock(&self.nodes).file(number);
        reply!(reply, file.and_then(|file| file.plain.sync()), () => reply.ok());
    }

    fn fallocate(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let reserved = self.reserve(number, offset, length, mode);
        reply!(reply, reserved, () => reply.ok());
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.open_listing(number);
        reply!(reply, opened, it => reply.opened(FileHandle(it), FopenFlags::empty()));
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listings = lock(&self.listings);
        let names = listings.1.get(&handle.0).map_or(&[][..], Vec::as_slice);
        for (at, (name, directory)) in names.iter().enumerate().skip(offset as usize) {
            let kind = if *directory {
                FileType::Directory
            } else {
                FileType::RegularFile
            };
            // The number is only a hint here: the kernel asks for it when it needs it.
            if reply.add(number, at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        lock(&self.listings).1.remove(&handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply!(reply, self.sync_directory(number), () => reply.ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = inkstone_io::sim::CAPACITY_BYTES / u64::from(BLOCK_BYTES);
        let free = blocks - self.disk.vfs().used_bytes() / u64::from(BLOCK_BYTES);
        reply.statfs(
            blocks,
            free,
            free,
            1 << 20,
            1 << 20,
            BLOCK_BYTES,
            255,
            BLOCK_BYTES,
        );
    }
}
