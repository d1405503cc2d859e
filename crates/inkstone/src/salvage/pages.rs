//! The pages of a tablespace's file, whether each has a place of its own or they are placed.

use crate::counters::Counters;
use crate::options::{Doublewrite, FlushMethod};
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::store::{SpaceFile, SpaceFiles, StoreOptions, place_map_file_name, space_file_name};
use crate::{Error, Result};
use inkstone_format::control::Control;
use inkstone_format::{PageNo, SpaceId};
use inkstone_io::{AlignedBuffer, Create, Directory, ErrorKind, File, OpenOptions};
use std::path::PathBuf;
use std::sync::Arc;

/// What is known of pages that this writes is not kept.
const POOL_BYTES: u64 = 1 << 20;

/// See the module.
pub(super) struct Pages {
    /// The file, for messages.
    pub path: PathBuf,
    size: u32,
    file: Kind,
}

enum Kind {
    InPlace(Arc<dyn File>),
    Placed(Arc<SpaceFile>),
}

impl Pages {
    /// Opens the file of a tablespace of the database whose control file this is.
    pub fn open(
        directory: &Arc<dyn Directory>,
        space: SpaceId,
        control: &Control,
        create: Create,
    ) -> Result<Self> {
        let name = space_file_name(space);
        let path = directory.path_of(&name);
        let map = place_map_file_name(space);
        let is_placed = directory
            .exists(&map)
            .map_err(|e| Error::io("look for", &directory.path_of(&map), e))?;
        let file = if is_placed {
            let options = StoreOptions {
                page_size: control.page_size,
                doublewrite: Doublewrite::Off,
                doublewrite_skip_fresh: false,
                flush_method: FlushMethod::Fsync,
                open_files: 0,
                pool_bytes: POOL_BYTES,
            };
            let (counters, poison) = (Arc::<Counters>::default(), Poison::default());
            let files = SpaceFiles::new(directory.clone(), options, counters, poison)?;
            Kind::Placed(files.open(space)?)
        } else {
            let options = OpenOptions {
                create,
                read_only: false,
                direct: false,
                dsync: false,
            };
            let file = directory.open(&name, options);
            Kind::InPlace(file.map_err(|e| Error::io("open", &path, e))?)
        };
        Ok(Self {
            path,
            size: control.page_size,
            file,
        })
    }

    fn offset(&self, page: PageNo) -> u64 {
        u64::from(page.0) * u64::from(self.size)
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> std::io::Result<u64> {
        match &self.file {
            Kind::InPlace(file) => file.len(),
            Kind::Placed(file) => Ok(self.offset(PageNo(file.pages()))),
        }
    }

    /// Reads a page, whatever its bytes are. The inner error is why it has none: the image of a
    /// placed one is damaged, or where it is is not known. The outer one is of the system.
    pub fn read(
        &self,
        page: PageNo,
        bytes: &mut [u8],
    ) -> std::io::Result<std::result::Result<(), String>> {
        paranoid!(
            bytes.len() == self.size as usize,
            "page {page} is read into {} bytes",
            bytes.len()
        );
        match &self.file {
            Kind::InPlace(file) => file.read_at(bytes, self.offset(page)).map(Ok),
            Kind::Placed(file) => {
                let mut room = AlignedBuffer::zeroed(bytes.len());
                let read = file.read_unchecked(page, &mut room);
                bytes.copy_from_slice(&room);
                match read {
                    Ok(()) => Ok(Ok(())),
                    Err(Error::Corrupt { detail, .. }) => Ok(Err(detail)),
                    Err(error) => Err(of_system(error)),
                }
            }
        }
    }

    /// Writes a page; the file grows where it is too short.
    pub fn write(&self, page: PageNo, bytes: &[u8]) -> std::io::Result<()> {
        paranoid!(
            bytes.len() == self.size as usize,
            "{} bytes are written as page {page}",
            bytes.len()
        );
        match &self.file {
            Kind::InPlace(file) => file.write_at(bytes, self.offset(page)),
            Kind::Placed(file) => {
                let grown = file.ensure_pages(page.0.saturating_add(1));
                grown
                    .and_then(|()| file.write_raw_page(page, bytes))
                    .map_err(of_system)
            }
        }
    }

    /// The file gets so many pages.
    pub fn set_pages(&self, pages: u32) -> std::io::Result<()> {
        match &self.file {
            Kind::InPlace(file) => file.set_len(self.offset(PageNo(pages))),
            Kind::Placed(file) => file.ensure_pages(pages).map_err(of_system),
        }
    }

    /// Makes everything written durable.
    pub fn sync(&self) -> std::io::Result<()> {
        match &self.file {
            Kind::InPlace(file) => file.sync(),
            Kind::Placed(file) => file.sync().map_err(of_system),
        }
    }
}

/// An error of the store, for callers that know those of the system alone.
fn of_system(error: Error) -> std::io::Error {
    let kind = match error {
        Error::DiskFull { .. } => ErrorKind::StorageFull,
        _ => ErrorKind::Other,
    };
    std::io::Error::new(kind, error)
}
