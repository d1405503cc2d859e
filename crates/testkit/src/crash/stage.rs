//! Where a run's database lies.

use crate::fuse::{Disk, Mount, Surface, Trigger};
use crate::loops::{Case, IMAGE_BYTES_MIN, Mounted};
use inkstone_io::sim::Losses;
use std::fs::File;
use std::io::Result;
use std::path::{Path, PathBuf};

/// A file system of this machine, or one of ours.
pub struct Stage {
    /// The run's own directory, on a file system of this machine.
    home: PathBuf,
    power: Option<Power>,
}

/// A disk that loses power. Fields are dropped in this order: what lies above first.
struct Power {
    /// A file system of the kernel, whose device is a file on the disk.
    above: Option<(&'static Case, Option<Mounted>)>,
    mount: Option<Mount>,
    disk: Disk,
}

impl Stage {
    /// A database in a directory of this machine's file system.
    pub fn real(home: &Path) -> Result<Self> {
        std::fs::create_dir_all(home)?;
        Ok(Self {
            home: home.to_path_buf(),
            power: None,
        })
    }

    /// A database on a disk of ours, mounted in the directory.
    pub fn losing_power(home: &Path, surface: Surface) -> Result<Self> {
        let mut stage = Self::real(home)?;
        std::fs::create_dir_all(stage.mount_point())?;
        let disk = Disk::new(surface);
        let mount = Some(Mount::new(&disk, &stage.mount_point())?);
        let above = None;
        stage.power = Some(Power { above, mount, disk });
        Ok(stage)
    }

    /// A database on a file system of the kernel, whose device is a file on a disk of ours. What
    /// it has not flushed to the device is lost with the power, in any order, and torn at sectors.
    pub fn losing_power_below(home: &Path, case: &'static Case) -> Result<Self> {
        let mut stage = Self::real(home)?;
        std::fs::create_dir_all(stage.mount_point())?;
        let device = stage.device();
        std::fs::create_dir_all(&device)?;
        let disk = Disk::new(Surface::Plain);
        let mount = Some(Mount::new(&disk, &device)?);
        let image = File::create(stage.image())?;
        image.set_len(IMAGE_BYTES_MIN)?;
        case.make(&stage.image())?;
        image.sync_all()?;
        File::open(&device)?.sync_all()?;
        let mounted = Mounted::new(case, &stage.image(), &stage.mount_point())?;
        let above = Some((case, Some(mounted)));
        stage.power = Some(Power { above, mount, disk });
        Ok(stage)
    }

    fn mount_point(&self) -> PathBuf {
        self.home.join("mount")
    }

    /// Where the disk is mounted that holds an image.
    fn device(&self) -> PathBuf {
        self.home.join("device")
    }

    fn image(&self) -> PathBuf {
        self.device().join("image")
    }

    /// Whether the disk sees names: not those of a file system above it.
    pub fn sees_names(&self) -> bool {
        self.power
            .as_ref()
            .is_some_and(|power| power.above.is_none())
    }

    /// The database's directory.
    pub fn database(&self) -> PathBuf {
        match self.power {
            Some(_) => self.mount_point().join("db"),
            None => self.home.join("db"),
        }
    }

    /// Whether power can be lost here.
    pub fn loses_power(&self) -> bool {
        self.power.is_some()
    }

    /// Lets the power fail.
    pub fn arm(&self, trigger: Trigger) {
        if let Some(power) = &self.power {
            power.disk.arm(trigger);
        }
    }

    /// Undoes [`Stage::arm`].
    pub fn disarm(&self) {
        if let Some(power) = &self.power {
            power.disk.disarm();
        }
    }

    /// Whether the power has failed.
    pub fn is_dead(&self) -> bool {
        self.power
            .as_ref()
            .is_some_and(|power| power.disk.is_dead())
    }

    /// The power fails, if it has not yet, and comes back. What was lost, and how many directories.
    /// A file system above the disk replays its journal then.
    pub fn power_loss(&mut self, seed: u64) -> Result<(Losses, u64)> {
        let (mount_point, device, image) = (self.mount_point(), self.device(), self.image());
        let Some(power) = &mut self.power else {
            return Ok((Losses::default(), 0));
        };
        let (disk, losses, directories) = power.disk.power_loss(seed)?;
        power.disk = disk;
        // From above: what a file system writes while it is unmounted fails, the power is gone.
        if let Some((_, mounted)) = &mut power.above {
            *mounted = None;
        }
        power.mount = None;
        match &mut power.above {
            None => power.mount = Some(Mount::new(&power.disk, &mount_point)?),
            Some((case, mounted)) => {
                power.mount = Some(Mount::new(&power.disk, &device)?);
                *mounted = Some(Mounted::new(case, &image, &mount_point)?);
            }
        }
        Ok((losses, directories))
    }

    /// Copies the database to `before`, as it is now.
    pub fn keep_a_copy(&self) -> Result<PathBuf> {
        let copy = self.home.join("before");
        if copy.exists() {
            std::fs::remove_dir_all(&copy)?;
        }
        copy_directory(&self.database(), &copy)?;
        Ok(copy)
    }

    /// Leaves the database where it can be looked at after the end of this process; says where.
    /// A disk without power cannot be looked at.
    pub fn leave(&self) -> Result<Option<PathBuf>> {
        if self.is_dead() {
            return Ok(None);
        }
        if self.power.is_none() {
            return Ok(Some(self.database()));
        }
        let copy = self.home.join("db");
        copy_directory(&self.database(), &copy)?;
        Ok(Some(copy))
    }
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
