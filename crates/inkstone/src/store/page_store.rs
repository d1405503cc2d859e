//! [`FilePageStore`]: pages in tablespace files, protected as the option `doublewrite` says.

use super::StoreOptions;
use super::doublewrite::Copies;
use super::page_reader::PageReaders;
use super::page_writer::FilePageWriter;
use super::space_file::SpaceFile;
use super::space_files::SpaceFiles;
use crate::buffer::{PageStore, PageWriter};
use crate::counters::{Counter, Counters};
use crate::options::Doublewrite;
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::{Error, Result};
use inkstone_format::header::page_lsn;
use inkstone_format::{Corrupt, Lsn, PageId};
use inkstone_io::{Batch, Directory, Vfs};
use std::path::Path;
use std::sync::Arc;

/// How pages are kept from being torn, with what that takes.
#[derive(Clone, Debug)]
pub(crate) enum Protection {
    /// Nothing.
    Off,
    /// Untorn writes.
    Atomic,
    /// Copies; fresh pages without one if `skip_fresh`.
    Copies { file: Arc<Copies>, skip_fresh: bool },
}

/// The store of an open database. Made after [`repair`](super::repair()) has run.
#[derive(Debug)]
pub struct FilePageStore {
    vfs: Arc<dyn Vfs>,
    spaces: Arc<SpaceFiles>,
    protection: Protection,
    readers: PageReaders,
    counters: Arc<Counters>,
    poison: Poison,
}

impl FilePageStore {
    /// A store over the files of `spaces`, which was made with the same options. With
    /// `doublewrite=on` the doublewrite file in `directory` is opened, or created.
    pub fn new(
        vfs: Arc<dyn Vfs>,
        directory: Arc<dyn Directory>,
        uuid: [u8; 16],
        options: StoreOptions,
        spaces: Arc<SpaceFiles>,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Result<Self> {
        paranoid!(
            options.page_size == spaces.page_size(),
            "a store of pages of {} bytes over files of pages of {}",
            options.page_size,
            spaces.page_size()
        );
        let protection = match options.doublewrite {
            Doublewrite::Off => Protection::Off,
            Doublewrite::Atomic => Protection::Atomic,
            Doublewrite::On => Protection::Copies {
                file: Copies::open(
                    directory,
                    uuid,
                    options.page_size,
                    options.flush_method,
                    counters.clone(),
                    poison.clone(),
                )?,
                skip_fresh: options.doublewrite_skip_fresh,
            },
        };
        Ok(Self {
            vfs,
            spaces,
            protection,
            readers: PageReaders::default(),
            counters,
            poison,
        })
    }

    /// The tablespace files.
    pub fn spaces(&self) -> &Arc<SpaceFiles> {
        &self.spaces
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The LSN that a page must have, if the one that was `found` in its place is older. If not,
    /// that is noted.
    pub(super) fn newer_than(&self, id: PageId, found: Lsn) -> Option<Lsn> {
        let page_lsns = self.spaces.page_lsns();
        let newest = page_lsns.newer_than(id, found);
        paranoid!(
            newest.is_none_or(|newest| newest > found),
            "page {id} of LSN {found} is older than its LSN {newest:?}"
        );
        if newest.is_none() {
            page_lsns.note_read(id, found);
        }
        newest
    }

    /// A queue for a thread of its own.
    pub(super) fn queue(&self, depth: usize) -> Result<Box<dyn Batch>> {
        let queue = self
            .spaces
            .open_files()
            .with_descriptor(|| self.vfs.batch(depth));
        let files = Path::new(self.vfs.name());
        queue.map_err(|e| Error::io("make a queue for pages of", files, e))
    }

    /// An older version of the page than the one with LSN `newest` was read in its place: the
    /// newest one from a second look, or from the doublewrite file, or an error.
    fn replace_stale(
        &self,
        file: &SpaceFile,
        id: PageId,
        newest: Lsn,
        buffer: &mut [u8],
    ) -> Result<()> {
        paranoid!(
            page_lsn(buffer) < newest,
            "page {id} of LSN {} passes for older than {newest}",
            page_lsn(buffer)
        );
        self.counters.add(Counter::StalePagesFound, 1);
        file.read_page(id.page, buffer)?;
        let found = page_lsn(buffer);
        if found < newest {
            self.take_copy(file, id, newest, buffer)?;
        }
        if page_lsn(buffer) < newest {
            let detail = format!(
                "page LSN {found} is stale: the page was written with LSN {newest}, and the storage \
                 lost that write or answered with older bytes; restore the file from a backup"
            );
            return Err(Error::corrupt_page(
                file.path(),
                id,
                Corrupt::at(16, detail),
            ));
        }
        self.counters.add(Counter::StalePagesReplaced, 1);
        Ok(())
    }

    /// Puts the doublewrite file's copy of a page in place if it is new enough. No other thread
    /// writes the page: a thread that wants it waits for this.
    fn take_copy(
        &self,
        file: &SpaceFile,
        id: PageId,
        newest: Lsn,
        buffer: &mut [u8],
    ) -> Result<()> {
        let Protection::Copies { file: copies, .. } = &self.protection else {
            return Ok(());
        };
        if copies.file().read_copy(id, newest, buffer)? {
            file.write_raw_page(id.page, buffer)?;
            file.sync()?;
        }
        Ok(())
    }
}

impl FilePageStore {
    fn read_newest(&self, id: PageId, buffer: &mut [u8]) -> Result<()> {
        let file = self.spaces.open(id.space)?;
        file.read_page(id.page, buffer)?;
        if file.placed().is_some() {
            return Ok(());
        }
        match self.newer_than(id, page_lsn(buffer)) {
            None => Ok(()),
            Some(newest) => self.replace_stale(&file, id, newest, buffer),
        }
    }
}

impl PageStore for FilePageStore {
    /// Of a table that was dropped meanwhile nothing is read, and nothing is damage: see
    /// [`SpaceFiles::set_dropped`].
    fn read(&self, id: PageId, buffer: &mut [u8]) -> Result<()> {
        self.poison.check()?;
        let read = self.read_newest(id, buffer);
        if read.is_err() && self.spaces.is_dropped(id.space) {
            let path = self.spaces.path(id.space);
            let what = format!("the table of {} (it was dropped)", path.display());
            return Err(Error::NotFound(what));
        }
        read
    }

    fn read_many(&self, pages: &mut [(PageId, &mut [u8])]) -> Vec<Result<()>> {
        self.readers.read(self, pages)
    }

    fn writer(&self) -> Result<Box<dyn PageWriter>> {
        let writer = FilePageWriter::new(
            &*self.vfs,
            self.spaces.clone(),
            self.protection.clone(),
            self.counters.clone(),
            self.poison.clone(),
        )?;
        Ok(Box::new(writer))
    }
}
