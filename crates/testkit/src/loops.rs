//! File systems of the kernel on loop devices: a file stands for the device.
//!
//! # Words
//!
//! - *Image*: the file below a loop device.
//! - *Case*: a file system, and how Inkstone is kept from torn pages on it.
//!
//! # Promises
//!
//! 1. A loop device made here goes with its last mount, and a mount with its [`Mounted`]. In a
//!    mount namespace of its own ([`crate::fuse::own_mount_namespace`]) it also goes with the
//!    processes that see it, however these end.
//! 2. What a [`Ground`] has made is gone when it is dropped; what a process that was killed has
//!    left on the disk, when the next one takes the folder.
//! 3. No device and no mount is touched but those made here.

use crate::fuse::own_mount_namespace;
use inkstone::internals::options::Doublewrite;
use inkstone_io::posix::PosixVfs;
use inkstone_io::{AlignedBuffer, Create, OpenOptions, Vfs};
use rustix::fs::FlockOperation;
use rustix::mount::UnmountFlags;
use std::fs::File;
use std::io::{Error, Result, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A file system, and how Inkstone is kept from torn pages on it.
#[derive(Debug, PartialEq, Eq)]
pub struct Case {
    /// What it is called on the command line and in results.
    pub name: &'static str,
    /// The type for `mount`.
    pub kind: &'static str,
    /// The program that makes it, and its options.
    pub make: &'static [&'static str],
    /// What `mount -o` gets.
    pub mount: &'static str,
    /// The option of the engine.
    pub doublewrite: Doublewrite,
    /// Bytes of a page of the engine.
    pub page_bytes: usize,
    /// Whether this is to survive a power loss.
    pub promise: Promise,
}

/// Whether a case is to survive a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Every page is whole or mended.
    Whole,
    /// The file system keeps parts of a page whole, not a page: it can be torn.
    Parts,
}

/// Nothing is discarded: that would make holes in an image, which a write then has to fill. No
/// zeroing is left to a thread of the kernel, whose writes would be counted.
const MAKE_EXT4: &[&str] = &["mkfs.ext4", "-q", "-F", "-b", "4096", "-E", EXTENDED];
const EXTENDED: &str = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";

/// Space for copies on write is set aside by the page, of four blocks: by 128 KiB, as is usual,
/// pages written at random fill the device with space that is set aside.
const MAKE_XFS: &[&str] = &["mkfs.xfs", "-q", "-f", "-K", REFLINK, COPIES];
const REFLINK: &str = "-mreflink=1";
const COPIES: &str = "-dcowextsize=4";

/// All of them. A case is a row here, and nothing else. ext4 takes a write apart into blocks of
/// 4 KiB, each of which goes into the transaction of its journal that is open just then: a page of
/// four blocks can be in two of them.
pub const CASES: [Case; 5] = [
    Case {
        name: "ext4-journal",
        kind: "ext4",
        make: MAKE_EXT4,
        mount: "data=journal",
        doublewrite: Doublewrite::Off,
        page_bytes: 16 << 10,
        promise: Promise::Parts,
    },
    Case {
        name: "ext4-journal-4k",
        kind: "ext4",
        make: MAKE_EXT4,
        mount: "data=journal",
        doublewrite: Doublewrite::Off,
        page_bytes: 4 << 10,
        promise: Promise::Whole,
    },
    Case {
        name: "ext4-ordered",
        kind: "ext4",
        make: MAKE_EXT4,
        mount: "data=ordered",
        doublewrite: Doublewrite::On,
        page_bytes: 16 << 10,
        promise: Promise::Whole,
    },
    Case {
        name: "ext4-ordered-4k",
        kind: "ext4",
        make: MAKE_EXT4,
        mount: "data=ordered",
        doublewrite: Doublewrite::On,
        page_bytes: 4 << 10,
        promise: Promise::Whole,
    },
    Case {
        name: "xfs-atomic",
        kind: "xfs",
        make: MAKE_XFS,
        mount: "nouuid",
        doublewrite: Doublewrite::Atomic,
        page_bytes: 16 << 10,
        promise: Promise::Whole,
    },
];

/// The smallest image that every case can be made in: XFS refuses less than 300 MiB.
pub const IMAGE_BYTES_MIN: u64 = 320 << 20;

/// The file in a [`Ground`] whose lock says that it is taken.
const LOCK: &str = "lock";

/// How often an unmount is tried while a process that was killed lets go of its files.
const UNMOUNT_TRIES: u32 = 200;

/// The case of a name on the command line.
pub fn case(name: &str) -> std::result::Result<&'static Case, String> {
    let names = CASES.each_ref().map(|case| case.name).join(", ");
    let found = CASES.iter().find(|case| case.name == name);
    found.ok_or_else(|| format!("expected one of {names}"))
}

impl Case {
    /// Whether the engine mends pages that were torn, from copies.
    pub fn mends(&self) -> bool {
        self.doublewrite == Doublewrite::On
    }

    /// Makes the file system in an image, which is there and long enough.
    pub fn make(&self, image: &Path) -> Result<()> {
        let mut command = Command::new(self.make[0]);
        run(command.args(&self.make[1..]).arg(image))
    }

    /// Why this case cannot be had here, if so. `folder`: where a small image may lie for a moment.
    pub fn unavailable(&self, folder: &Path) -> Option<String> {
        self.attempt(folder).err().map(|error| error.to_string())
    }

    fn attempt(&self, folder: &Path) -> Result<()> {
        let probe = tempfile::tempdir_in(folder)?;
        let (image, mount_point) = (probe.path().join("image"), probe.path().join("mount"));
        std::fs::create_dir(&mount_point)?;
        File::create(&image)?.set_len(IMAGE_BYTES_MIN)?;
        self.make(&image)?;
        let mounted = Mounted::new(self, &image, &mount_point)?;
        if self.doublewrite == Doublewrite::Atomic {
            check_untorn(mounted.directory(), self.page_bytes)?;
        }
        Ok(())
    }
}

/// Whether the file system takes a write of a page that never tears.
fn check_untorn(directory: &Path, page_bytes: usize) -> Result<()> {
    let options = OpenOptions {
        create: Create::IfMissing,
        read_only: false,
        direct: true,
        dsync: false,
    };
    let path = directory.join("probe");
    let file = PosixVfs::new().open_file(&path, options)?;
    let page = AlignedBuffer::zeroed(page_bytes);
    match file.atomic_write_limits() {
        Some(limits) if limits.unit_max as usize >= page_bytes => file.write_atomic_at(&page, 0),
        limits => Err(Error::other(format!(
            "untorn writes (RWF_ATOMIC) of {page_bytes} bytes are not there: statx says {limits:?}"
        ))),
    }
}

/// A mounted image. Unmounts when dropped.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
}

impl Mounted {
    /// Mounts an image on an empty directory.
    pub fn new(case: &Case, image: &Path, directory: &Path) -> Result<Self> {
        // The device is detached by the kernel when it is closed last.
        let options = format!("loop,noatime,{}", case.mount);
        let mut command = Command::new("mount");
        command.args(["-t", case.kind, "-o", &options]);
        run(command.arg(image).arg(directory))?;
        Ok(Self {
            directory: directory.to_path_buf(),
        })
    }

    /// Where it is mounted.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Lets the device go past the page cache of the file system that the image lies on, so that
    /// it is as slow as what is below it.
    pub fn go_direct(&self) -> Result<()> {
        let device = std::fs::metadata(&self.directory)?.dev();
        let device = format!("/dev/loop{}", rustix::fs::minor(device));
        let mut command = Command::new("losetup");
        run(command.args(["--direct-io=on", &device]))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for _ in 0..UNMOUNT_TRIES {
            match rustix::mount::unmount(&self.directory, UnmountFlags::empty()) {
                Err(rustix::io::Errno::BUSY) => std::thread::sleep(Duration::from_millis(10)),
                _ => return,
            }
        }
        // What still has a file open keeps the file system alive, and no other process sees it.
        let _ = rustix::mount::unmount(&self.directory, UnmountFlags::DETACH);
    }
}

/// Why there is no [`Ground`].
#[derive(Debug)]
pub enum Refusal {
    /// This machine, or this user, cannot.
    Unavailable(String),
    /// Not now.
    Busy(String),
}

/// A folder for images and mounts, of one process at a time. What it makes is seen by this process
/// and its children alone, and what an earlier process has left in it is gone.
#[derive(Debug)]
pub struct Ground {
    folder: PathBuf,
    /// Locked while this is there.
    _lock: File,
}

impl Ground {
    /// Takes the folder. To be called before there are other threads.
    pub fn claim(folder: &Path) -> std::result::Result<Self, Refusal> {
        if !rustix::process::geteuid().is_root() {
            let why = "mounting needs root; run it as root";
            return Err(Refusal::Unavailable(why.to_owned()));
        }
        if let Err(error) = std::fs::metadata("/dev/loop-control") {
            let why = format!("there are no loop devices: /dev/loop-control: {error}");
            return Err(Refusal::Unavailable(why));
        }
        if !own_mount_namespace() {
            let why = "mounts of its own (a mount namespace) are not allowed here";
            return Err(Refusal::Unavailable(why.to_owned()));
        }
        let busy = |error| Refusal::Busy(format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(busy)?;
        let lock = File::create(folder.join(LOCK)).map_err(busy)?;
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let folder = folder.display();
            let why = format!("another process works in {folder}; wait for its end");
            return Err(Refusal::Busy(why));
        }
        let ground = Self {
            folder: folder.to_path_buf(),
            _lock: lock,
        };
        ground.clear().map_err(busy)?;
        Ok(ground)
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes what is there. It can be no mount: those of an earlier process ended with it.
    fn clear(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name() == LOCK {
                continue;
            }
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Makes a case's file system on a device of so many bytes, and mounts it. The image has no
    /// name from then on: its space is free when the device is gone.
    pub fn mount(&self, case: &Case, bytes: u64) -> Result<Mounted> {
        let (image, directory) = (self.folder.join("image"), self.folder.join(case.name));
        std::fs::create_dir(&directory)?;
        fill(&image, bytes.max(IMAGE_BYTES_MIN))?;
        case.make(&image)?;
        File::open(&image)?.sync_all()?;
        let mounted = Mounted::new(case, &image, &directory)?;
        std::fs::remove_file(&image)?;
        mounted.go_direct()?;
        Ok(mounted)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next one.
        let _ = self.clear();
    }
}

/// A file with all of its space: one with holes would grow while it is measured.
fn fill(image: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(image)?;
    let zeroes = vec![0; 1 << 20];
    for _ in 0..bytes.div_ceil(zeroes.len() as u64) {
        file.write_all(&zeroes)?;
    }
    file.sync_all()
}

/// Runs a command to its end; the error says what it complained about.
fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| Error::new(error.kind(), format!("{program} cannot be run: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.trim().replace('\n', "; ");
    Err(Error::other(format!(
        "{program} failed ({}): {complaint}",
        output.status
    )))
}
