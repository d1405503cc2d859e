//! [`FilePageStore`]: pages in tablespace files, protected as the option `doublewrite` says.

use super::doublewrite::DoublewriteFile;
use super::page_writer::FilePageWriter;
use super::space_files::SpaceFiles;
use crate::Result;
use crate::buffer::{PageStore, PageWriter};
use crate::counters::Counters;
use crate::options::{Doublewrite, Options};
use crate::poison::Poison;
use inkstone_format::PageId;
use inkstone_io::Vfs;
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
    Copies {
        file: Arc<DoublewriteFile>,
        skip_fresh: bool,
    },
}

/// The store of an open database. Made after [`repair`](super::repair()) has run.
#[derive(Debug)]
pub struct FilePageStore {
    vfs: Arc<dyn Vfs>,
    spaces: Arc<SpaceFiles>,
    protection: Protection,
    counters: Arc<Counters>,
    poison: Poison,
}

impl FilePageStore {
    /// A store over the files of `spaces`, which was made with the same options. With
    /// `doublewrite=on` the doublewrite file in `directory` is opened, or created.
    pub fn new(
        vfs: Arc<dyn Vfs>,
        directory: &Path,
        uuid: [u8; 16],
        options: &Options,
        spaces: Arc<SpaceFiles>,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Result<Self> {
        let protection = match options.doublewrite {
            Doublewrite::Off => Protection::Off,
            Doublewrite::Atomic => Protection::Atomic,
            Doublewrite::On => Protection::Copies {
                file: DoublewriteFile::open(
                    &*vfs,
                    directory,
                    uuid,
                    options.page_size as u32,
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
            counters,
            poison,
        })
    }

    /// The tablespace files.
    pub fn spaces(&self) -> &Arc<SpaceFiles> {
        &self.spaces
    }
}

impl PageStore for FilePageStore {
    fn read(&self, id: PageId, buffer: &mut [u8]) -> Result<()> {
        self.poison.check()?;
        self.spaces.open(id.space)?.read_page(id.page, buffer)
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
