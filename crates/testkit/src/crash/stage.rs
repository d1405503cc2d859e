//! Where a run's database lies.

use crate::fuse::{Disk, Mount, Surface, Trigger};
use inkstone_io::sim::Losses;
use std::io::Result;
use std::path::{Path, PathBuf};

/// A file system of this machine, or one of ours.
pub struct Stage {
    /// The run's own directory, on a file system of this machine.
    home: PathBuf,
    power: Option<Power>,
}

/// A disk that loses power.
struct Power {
    disk: Disk,
    mount: Option<Mount>,
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
        let disk = Disk::new(surface);
        let mut stage = Self::real(home)?;
        std::fs::create_dir_all(stage.mount_point())?;
        let mount = Some(Mount::new(&disk, &stage.mount_point())?);
        stage.power = Some(Power { disk, mount });
        Ok(stage)
    }

    fn mount_point(&self) -> PathBuf {
        self.home.join("mount")
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
    pub fn power_loss(&mut self, seed: u64) -> Result<(Losses, u64)> {
        let mount_point = self.mount_point();
        let Some(power) = &mut self.power else {
            return Ok((Losses::default(), 0));
        };
        let (disk, losses, directories) = power.disk.power_loss(seed)?;
        power.mount = None;
        power.mount = Some(Mount::new(&disk, &mount_point)?);
        power.disk = disk;
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
