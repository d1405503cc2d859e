//! Mounting and unmounting.

use super::disk::Disk;
use super::server::Server;
use fuser::{BackgroundSession, Config, MountOption};
use inkstone_io::Result;
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Threads that answer the kernel: a sync must not wait for another file's write.
const SERVER_THREADS: usize = 4;
/// How long the end of the answering threads is waited for.
const END_WAIT: Duration = Duration::from_secs(10);

/// A mounted [`Disk`]. Unmounts when dropped, whatever is still open.
pub struct Mount {
    session: Option<BackgroundSession>,
    directory: PathBuf,
}

impl Mount {
    /// Mounts a disk on an empty directory.
    pub fn new(disk: &Disk, directory: &Path) -> Result<Self> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("inkstone-power-loss".to_owned()),
            MountOption::NoAtime,
        ];
        config.n_threads = Some(SERVER_THREADS);
        let session = fuser::spawn_mount(Server::new(disk.clone()), directory, &config)?;
        Ok(Self {
            session: Some(session),
            directory: directory.to_path_buf(),
        })
    }

    /// Where it is mounted.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        // With force the kernel answers for us what is still under way, and our threads end.
        // Without the right to it (fusermount has mounted it) the session asks fusermount.
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        let detached = rustix::mount::unmount(&self.directory, flags).is_ok();
        if !detached {
            let _ = session.umount_and_join();
            return;
        }
        let begin = Instant::now();
        while !session.guard.is_finished() && begin.elapsed() < END_WAIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        if session.guard.is_finished() {
            let _ = session.join();
        }
    }
}

/// Why nothing can be mounted here, if so.
pub fn unavailable() -> Option<String> {
    if let Err(error) = std::fs::metadata("/dev/fuse") {
        return Some(format!("/dev/fuse: {error}"));
    }
    let attempt = || {
        let directory = tempfile::tempdir()?;
        let disk = Disk::new(super::Surface::Plain);
        let mount = Mount::new(&disk, directory.path())?;
        std::fs::write(mount.directory().join("probe"), b"probe")?;
        std::fs::read(mount.directory().join("probe"))
    };
    match attempt() {
        Ok(bytes) if bytes == b"probe" => None,
        Ok(_) => Some("a mounted file does not hold what was written".to_owned()),
        Err(error) => Some(format!("mounting is not possible here: {error}")),
    }
}

/// Gives this thread, and those that it starts from now on, mounts of their own: however the
/// process ends, its mounts end with it. False where that is not allowed; then [`Mount`]'s drop has
/// to do.
pub fn own_mount_namespace() -> bool {
    // SAFETY: the flag splits off mounts and the working directory, not file descriptors.
    let split = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    split.is_ok() && rustix::mount::mount_change("/", flags).is_ok()
}
