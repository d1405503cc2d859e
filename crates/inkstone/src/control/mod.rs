//! Reading and writing the control file (its bytes: [`inkstone_format::control`]).
//!
//! # Promises
//!
//! 1. After [`ControlFile::write`] returned, every later open of the database sees what was
//!    written, or something newer. Tested by `power_loss_never_takes_the_last_finished_write`.
//! 2. A write that fails or is torn by power loss leaves the value before it: the copy that holds
//!    the current value is never written over. Tested by
//!    `power_loss_never_takes_the_last_finished_write`,
//!    `failed_writes_leave_the_old_contents_and_failed_syncs_poison`. Tested by the simulator
//!    (`control-copy-overwritten`).
//! 3. The file appears under its name only when both copies are durable: a crash in
//!    [`ControlFile::create`] leaves no control file. Tested by
//!    `power_loss_never_takes_the_last_finished_write`.
//! 4. What [`ControlFile::open`] read is durable: a process killed between write and sync, or one
//!    whose sync failed, leaves a copy that only the page cache holds, and the other copy must not
//!    be given up for it. Tested by `the_durable_copy_is_not_given_up_for_one_whose_sync_failed`.
//! 5. That the file is removed, renamed or replaced while it is open is noticed
//!    ([`ControlPlace::check`]): it is the lock that keeps other processes out. Tested by
//!    `a_replaced_control_file_stops_the_engine`. Tested by the simulator
//!    (`control-replaced-unseen`).
//! 6. A write that the device acknowledged and did not keep is noticed before anything relies on
//!    it: what was written is read back past the page cache. Otherwise a process could log a whole
//!    life under an epoch that the file does not know, and the next one would begin the same epoch
//!    again. Tested by `a_write_that_the_device_loses_is_noticed`.
//!
//! 7. An epoch of which there may be log is not begun again: where a copy cannot be read the next
//!    one may have begun already ([`ControlFile::next_epoch`]). Checked by [`ControlFile::write`].
//!    Tested by `a_control_file_of_an_earlier_opening`.
//!
//! No latches: the writer owns the file (`&mut self`).

use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::{Error, Result};
use inkstone_format::control::{
    CONTROL_COPY_LEN, CONTROL_FILE_LEN, Control, ControlError, FORMAT_VERSION,
};
use inkstone_io::{AlignedBuffer, Create, Directory, ErrorKind, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the control file in the database directory.
pub const CONTROL_FILE: &str = "control";
/// Name under which it is created.
const CONTROL_FILE_NEW: &str = "control.new";

/// The open control file.
#[derive(Debug)]
pub struct ControlFile {
    file: Arc<dyn File>,
    path: PathBuf,
    current: Control,
    /// Which copy holds `current`.
    copy: usize,
    /// The other one could not be read when the file was opened.
    other_was_lost: bool,
    poison: Poison,
}

impl ControlFile {
    /// Whether the directory has a control file, that is: holds a database.
    pub fn exists(directory: &dyn Directory) -> Result<bool> {
        directory
            .exists(CONTROL_FILE)
            .map_err(|e| Error::io("look for", &directory.path_of(CONTROL_FILE), e))
    }

    /// Creates the control file of a new database. From the moment this returns the directory is
    /// a database, so everything else that must be there is made before.
    pub fn create(directory: &dyn Directory, control: &Control, poison: &Poison) -> Result<Self> {
        let path = directory.path_of(CONTROL_FILE);
        let new = directory.path_of(CONTROL_FILE_NEW);
        if Self::exists(directory)? {
            return Err(Error::AlreadyExists(format!(
                "the database in {}",
                directory.path().display()
            )));
        }
        let mut current = control.clone();
        current.sequence = 1;
        check(&current, &path)?;
        let file = open_file(directory, CONTROL_FILE_NEW, Create::IfMissing)?;
        let failed = |e| Error::io("write", &new, e);
        let block = current.encode();
        let copies = [block, block].concat();
        file.set_len(CONTROL_FILE_LEN as u64).map_err(failed)?;
        file.write_at(&copies, 0).map_err(failed)?;
        poison.sync(&new, || file.sync())?;
        drop(file);
        read_back(&*open_disk(directory, CONTROL_FILE_NEW)?, &new, &copies, 0)?;
        directory
            .rename(CONTROL_FILE_NEW, CONTROL_FILE)
            .map_err(|e| Error::io("rename", &new, e))?;
        poison.sync(directory.path(), || directory.sync())?;
        Ok(Self {
            file: open_file(directory, CONTROL_FILE, Create::Never)?,
            path,
            current,
            copy: 0,
            other_was_lost: false,
            poison: poison.clone(),
        })
    }

    /// Opens the control file and reads the newest whole copy.
    pub fn open(directory: &dyn Directory, poison: &Poison) -> Result<Self> {
        let path = directory.path_of(CONTROL_FILE);
        if !Self::exists(directory)? {
            return Err(Error::NotADatabase {
                path: directory.path().to_owned(),
                reason: format!("there is no file named {CONTROL_FILE}"),
            });
        }
        let file = open_file(directory, CONTROL_FILE, Create::Never)?;
        poison.sync(&path, || file.sync_and_forget())?;
        let mut bytes = AlignedBuffer::zeroed(CONTROL_FILE_LEN);
        let length = file.len().map_err(|e| Error::io("measure", &path, e))?;
        // What a short file lacks is read as zeroes, which no valid copy is.
        let present = length.min(CONTROL_FILE_LEN as u64) as usize;
        let disk = open_disk(directory, CONTROL_FILE)?;
        disk.read_at(&mut bytes[..present], 0)
            .map_err(|e| Error::io("read", &path, e))?;
        let (first, second) = bytes.split_at(CONTROL_COPY_LEN);
        let (current, copy) = Control::choose([first, second]).map_err(|e| match e {
            ControlError::Newer { found } => Error::NewerFormat {
                path: directory.path().to_owned(),
                found,
                known: FORMAT_VERSION,
            },
            ControlError::Corrupt(c) => {
                let length = format!("; the file has {length} bytes, {CONTROL_FILE_LEN} expected");
                let length = if present < CONTROL_FILE_LEN {
                    &length
                } else {
                    ""
                };
                Error::corrupt_file(&path, c.offset as u64, format!("{}{length}", c.detail))
            }
        })?;
        let other = [first, second][1 - copy];
        Ok(Self {
            file,
            path,
            current,
            copy,
            other_was_lost: Control::choose([other, other]).is_err(),
            poison: poison.clone(),
        })
    }

    /// An epoch that has not begun, though the copy that cannot be read was perhaps the newer one:
    /// each epoch begins with a write of one copy.
    pub fn next_epoch(&self) -> u64 {
        self.current.epoch + 1 + u64::from(self.other_was_lost)
    }

    /// Whether no copy was lost when the file was opened: then there was none that is newer.
    pub fn knows_the_newest(&self) -> bool {
        !self.other_was_lost
    }

    /// What the file says now.
    pub fn current(&self) -> &Control {
        &self.current
    }

    /// The file and its place, for the check that they still belong together.
    pub fn place(&self) -> ControlPlace {
        ControlPlace {
            file: self.file.clone(),
            path: self.path.clone(),
            poison: self.poison.clone(),
        }
    }

    /// Writes new contents, makes them durable and reads them back. The sequence is set here. A
    /// failed sync poisons the engine; after a failed write, or one that the device did not keep,
    /// the contents before it stand. `directory`: of the file, which is opened once more, past the
    /// page cache, for that.
    pub fn write(&mut self, directory: &dyn Directory, control: &Control) -> Result<()> {
        self.poison.check()?;
        let mut next = control.clone();
        next.sequence = self.current.sequence + 1;
        check(&next, &self.path)?;
        let copy = if mutants::on(Mutant::ControlCopyOverwritten) {
            self.copy
        } else {
            1 - self.copy
        };
        paranoid!(
            copy != self.copy || mutants::on(Mutant::ControlCopyOverwritten),
            "the copy that is in force would be overwritten"
        );
        let now = &self.current;
        paranoid!(
            next.epoch >= now.epoch && next.checkpoint_lsn >= now.checkpoint_lsn,
            "epoch {} with a checkpoint at LSN {}, after epoch {} and {}",
            next.epoch,
            next.checkpoint_lsn,
            now.epoch,
            now.checkpoint_lsn
        );
        paranoid!(
            next.epoch == now.epoch || next.epoch == self.next_epoch(),
            "epoch {} follows {}",
            next.epoch,
            now.epoch
        );
        let (block, offset) = (next.encode(), (copy * CONTROL_COPY_LEN) as u64);
        let disk = open_disk(directory, CONTROL_FILE)?;
        self.file
            .write_at(&block, offset)
            .map_err(|e| Error::io("write", &self.path, e))?;
        self.poison.sync(&self.path, || self.file.sync())?;
        read_back(&*disk, &self.path, &block, offset)?;
        self.current = next;
        self.copy = copy;
        self.other_was_lost = false;
        Ok(())
    }
}

/// The open control file, and where it was found.
#[derive(Debug)]
pub struct ControlPlace {
    file: Arc<dyn File>,
    path: PathBuf,
    poison: Poison,
}

impl ControlPlace {
    /// Poisons the engine if the file of this name in the database's directory is not the one that
    /// is open: then its lock keeps no other process out any more, and what is written to it is not
    /// found again.
    pub fn check(&self, directory: &dyn Directory) -> Result<()> {
        if mutants::on(Mutant::ControlReplacedUnseen) {
            return Ok(());
        }
        let own = self.file.identity();
        let own = own.map_err(|e| Error::io("look at", &self.path, e))?;
        let what = match directory.identity(CONTROL_FILE) {
            Ok(found) if found == own => return Ok(()),
            Ok(_) => "was replaced by another file",
            Err(e) if e.kind() == ErrorKind::NotFound => "was removed or renamed",
            Err(e) => return Err(Error::io("look at", &self.path, e)),
        };
        Err(self.poison.set(format_args!(
            "{} {what} while the database was open, and with it the lock that keeps other processes \
             out: nothing is written any more. If files were put back from a copy, see to it that all \
             of them are of one time",
            self.path.display()
        )))
    }
}

/// Nothing is written that could not be read again.
fn check(control: &Control, path: &Path) -> Result<()> {
    control
        .check()
        .map_err(|c| Error::corrupt_file(path, c.offset as u64, c.detail))
}

/// Compares what is on disk with what was written there and synced. A device may give an older
/// block once (see [`crate::store::page_lsn_map`]): it is asked twice.
fn read_back(disk: &dyn File, path: &Path, written: &[u8], offset: u64) -> Result<()> {
    let mut found = AlignedBuffer::zeroed(written.len());
    for _ in 0..2 {
        disk.read_at(&mut found, offset)
            .map_err(|e| Error::io("read back", path, e))?;
        if found[..] == *written {
            return Ok(());
        }
    }
    let length = written.len();
    let detail = format!(
        "{length} bytes were written and synced, and other bytes are read from the disk: it loses \
         writes. The contents before them stand; move the database to another disk"
    );
    Err(Error::corrupt_file(path, offset, detail))
}

fn open_disk(directory: &dyn Directory, name: &str) -> Result<Arc<dyn File>> {
    inkstone_io::open_past_cache(directory, name)
        .map_err(|e| Error::io("open", &directory.path_of(name), e))
}

fn open_file(directory: &dyn Directory, name: &str, create: Create) -> Result<Arc<dyn File>> {
    let options = OpenOptions {
        create,
        read_only: false,
        direct: false,
        dsync: false,
    };
    directory
        .open(name, options)
        .map_err(|e| Error::io("open", &directory.path_of(name), e))
}

#[cfg(test)]
mod tests;
