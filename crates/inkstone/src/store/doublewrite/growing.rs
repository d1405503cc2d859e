//! The doublewrite file of a new database is a small one, and is replaced by one of the usual size
//! when a page first needs a copy.
//!
//! A small file ([`FIRST_AREAS`], [`FIRST_BATCH_PAGES`]) is a doublewrite file as any other, with
//! fewer and smaller areas. Where the disk is too full for a large one it is used as it is, by one
//! writer at a time, in smaller batches: pages can be written on a full disk.
//!
//! # Promises
//!
//! 1. The file is replaced only while no writer uses it and no copies are kept in it: all that it
//!    has copies of is durable in place. Checked by [`Copies::replace`]. Tested by
//!    `a_small_doublewrite_file_is_replaced_when_it_is_used`.
//! 2. A crash leaves the small file or the large one, each whole: the large one gets its name when
//!    it is durable. Tested by `a_small_doublewrite_file_is_replaced_when_it_is_used`.
//! 3. A full disk is no error, and is asked again a second later. Tested by
//!    `a_small_doublewrite_file_serves_a_full_disk`.
//!
//! Latches: `turn` (held for a look), before `current` (held for a look; by the one that replaces
//! the file, for a store).

use super::{AREAS, BATCH_PAGES, DOUBLEWRITE_FILE, DOUBLEWRITE_FILE_NEW, DoublewriteFile, create};
use crate::counters::Counters;
use crate::options::FlushMethod;
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Instant, Mutex, RwLock};
use crate::{Error, Result};
use inkstone_format::doublewrite::Layout;
use inkstone_io::Directory;
use std::sync::Arc;
use std::time::Duration;

/// Areas of the file of a new database: one for a batch, and one to gather in.
const FIRST_AREAS: u32 = 2;
/// Pages in an area of it.
const FIRST_BATCH_PAGES: u32 = 16;
/// How long a disk that was too full is not asked again.
const PAUSE_FULL: Duration = Duration::from_secs(1);

/// The doublewrite file of an open database, small or large.
#[derive(Debug)]
pub(crate) struct Copies {
    current: RwLock<Arc<DoublewriteFile>>,
    /// It is the file of a new database.
    is_small: AtomicBool,
    turn: Mutex<Turn>,
    ended: Condvar,
    directory: Arc<dyn Directory>,
    flush_method: FlushMethod,
    counters: Arc<Counters>,
    poison: Poison,
}

/// Whose turn it is to use a small file.
#[derive(Debug, Default)]
struct Turn {
    is_taken: bool,
    /// When the disk was too full for a large one.
    refused: Option<Instant>,
}

/// The file, for the use of one writer.
pub(crate) struct InUse {
    file: Arc<DoublewriteFile>,
    /// Of a small file.
    turn: Option<Arc<Copies>>,
}

impl InUse {
    pub fn file(&self) -> &Arc<DoublewriteFile> {
        &self.file
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(copies) = &self.turn {
            let was = std::mem::take(&mut copies.turn.lock().is_taken);
            paranoid!(was, "a small doublewrite file was used out of turn");
            copies.ended.notify_one();
        }
    }
}

impl Copies {
    /// Opens the file, or creates a large one.
    pub fn open(
        directory: Arc<dyn Directory>,
        uuid: [u8; 16],
        page_size: u32,
        flush_method: FlushMethod,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Result<Arc<Self>> {
        let file = DoublewriteFile::open(
            &*directory,
            uuid,
            page_size,
            flush_method,
            counters.clone(),
            poison.clone(),
        )?;
        let is_small = file.layout == first_layout(uuid, page_size);
        Ok(Arc::new(Self {
            current: RwLock::new(file),
            is_small: AtomicBool::new(is_small),
            turn: Mutex::default(),
            ended: Condvar::new(),
            directory,
            flush_method,
            counters,
            poison,
        }))
    }

    /// The file as it is now: to look for a copy, or for those that are kept.
    pub fn file(&self) -> Arc<DoublewriteFile> {
        self.current.read().clone()
    }

    /// The file for pages that need copies: a large one, if the disk has room for it.
    pub fn begin(self: &Arc<Self>) -> Result<InUse> {
        if !self.is_small.load(Ordering::Acquire) {
            return Ok(InUse {
                file: self.file(),
                turn: None,
            });
        }
        let mut turn = self.turn.lock();
        while turn.is_taken {
            self.ended.wait(&mut turn);
        }
        turn.is_taken = true;
        let refused = turn.refused;
        drop(turn);
        let mut used = InUse {
            file: self.file(),
            turn: Some(self.clone()),
        };
        let is_due = refused.is_none_or(|at| at.elapsed() >= PAUSE_FULL);
        if is_due && self.is_small.load(Ordering::Acquire) && !used.file.keeps_any() {
            match self.replace(&used.file) {
                Ok(()) => used.file = self.file(),
                Err(error) if error.is_final() => return Err(error),
                Err(_) => self.turn.lock().refused = Some(Instant::now()),
            }
        }
        Ok(used)
    }

    /// Puts a large file in place of the small one, whose turn the caller has.
    fn replace(&self, small: &DoublewriteFile) -> Result<()> {
        paranoid!(
            self.turn.lock().is_taken && !small.keeps_any(),
            "a doublewrite file that is needed would be replaced"
        );
        let layout = Layout {
            areas: AREAS,
            batch_pages: BATCH_PAGES,
            ..small.layout
        };
        let directory = &*self.directory;
        let (counters, poison) = (self.counters.clone(), self.poison.clone());
        let made = DoublewriteFile::create(directory, layout, self.flush_method, counters, poison);
        if made.is_err() {
            // Its space may be what others need; if this fails, the next attempt uses it.
            let _ = directory.remove(DOUBLEWRITE_FILE_NEW);
        }
        let file = made?;
        *self.current.write() = file;
        self.is_small.store(false, Ordering::Release);
        Ok(())
    }
}

fn first_layout(uuid: [u8; 16], page_size: u32) -> Layout {
    Layout {
        page_size,
        uuid,
        areas: FIRST_AREAS,
        batch_pages: FIRST_BATCH_PAGES,
    }
}

/// Creates the small file of a new database.
pub(crate) fn create_first(
    directory: &dyn Directory,
    uuid: [u8; 16],
    page_size: u32,
    flush_method: FlushMethod,
    poison: &Poison,
) -> Result<()> {
    let exists = directory.exists(DOUBLEWRITE_FILE);
    let path = directory.path_of(DOUBLEWRITE_FILE);
    if exists.map_err(|e| Error::io("look for", &path, e))? {
        return Ok(());
    }
    let layout = first_layout(uuid, page_size);
    create(directory, &layout, flush_method, poison).map(drop)
}
