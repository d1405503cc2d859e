//! Reading a database's files without opening it.

use crate::failure::{Failure, Result};
use inkstone::Error;
use inkstone::internals::control::CONTROL_FILE;
use inkstone::internals::counters::Counters;
use inkstone::internals::poison::Poison;
use inkstone::internals::store::{PageLsnMap, parse_space_file_name, space_file_name};
use inkstone_bench::database;
use inkstone_format::control::{
    CONTROL_COPY_LEN, CONTROL_FILE_LEN, Control, ControlError, FORMAT_VERSION,
};
use inkstone_format::header::page_lsn;
use inkstone_format::image::{self, Made, UNIT_LEN};
use inkstone_format::place_map::{self, Place};
use inkstone_format::{Corrupt, PageId, PageNo, SpaceId};
use inkstone_io::posix::PosixVfs;
use inkstone_io::{Create, File, OpenOptions, Vfs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const TO_READ: OpenOptions = OpenOptions {
    create: Create::Never,
    read_only: true,
    direct: false,
    dsync: false,
};

/// Where the pages of a tablespace are; `None`: each at its own place.
type Places = Option<Arc<Vec<Place>>>;

/// A database directory that is only read.
#[derive(Debug)]
pub struct Directory {
    pub path: PathBuf,
    pub control: Control,
    pub handle: Arc<dyn inkstone_io::Directory>,
    /// Of the tablespace that was read last.
    places: Mutex<Option<(SpaceId, Places)>>,
}

/// Where a tablespace's file is.
pub fn tablespace_path(directory: &Path, space: SpaceId) -> PathBuf {
    directory.join(space_file_name(space))
}

/// The bytes of the control file, padded with zeroes if it is short; and its length.
pub fn control_bytes(directory: &Path) -> Result<(Vec<u8>, usize)> {
    let handle = open_handle(&PosixVfs::new(), directory)?;
    read_control(&*handle).map_err(|e| Failure::io("read", &directory.join(CONTROL_FILE), e))
}

fn open_handle(vfs: &dyn Vfs, path: &Path) -> Result<Arc<dyn inkstone_io::Directory>> {
    database::require(vfs, path)?;
    let handle = vfs.open_directory(path, Create::Never);
    handle.map_err(|e| Failure::io("open", path, e))
}

fn read_control(directory: &dyn inkstone_io::Directory) -> std::io::Result<(Vec<u8>, usize)> {
    let file = directory.open(CONTROL_FILE, TO_READ)?;
    let length = file.len()? as usize;
    let mut bytes = vec![0; CONTROL_FILE_LEN];
    file.read_at(&mut bytes[..length.min(CONTROL_FILE_LEN)], 0)?;
    Ok((bytes, length))
}

/// The error for a control file that cannot be used.
pub fn control_failure(directory: &Path, error: ControlError) -> Failure {
    Failure::Engine(match error {
        ControlError::Newer { found } => Error::NewerFormat {
            path: directory.to_owned(),
            found,
            known: FORMAT_VERSION,
        },
        ControlError::Corrupt(c) => {
            Error::corrupt_file(&directory.join(CONTROL_FILE), c.offset as u64, c.detail)
        }
    })
}

impl Directory {
    /// Reads the control file.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_on(&PosixVfs::new(), path)
    }

    /// As [`Directory::open`], over a file system.
    pub fn open_on(vfs: &dyn Vfs, path: &Path) -> Result<Self> {
        let handle = open_handle(vfs, path)?;
        let (bytes, _) =
            read_control(&*handle).map_err(|e| Failure::io("read", &path.join(CONTROL_FILE), e))?;
        let (first, second) = bytes.split_at(CONTROL_COPY_LEN);
        let (control, _) =
            Control::choose([first, second]).map_err(|e| control_failure(path, e))?;
        Ok(Self {
            path: path.to_owned(),
            control,
            handle,
            places: Mutex::default(),
        })
    }

    /// The tablespaces that have a file, in order.
    pub fn spaces(&self) -> Result<Vec<SpaceId>> {
        let names = self.handle.list();
        let names = names.map_err(|e| Failure::io("list", &self.path, e))?;
        let mut spaces: Vec<SpaceId> = names
            .iter()
            .filter_map(|name| parse_space_file_name(name))
            .collect();
        spaces.sort();
        Ok(spaces)
    }

    fn space_file(&self, space: SpaceId) -> Result<Arc<dyn File>> {
        let path = tablespace_path(&self.path, space);
        let opened = self.handle.open(&space_file_name(space), TO_READ);
        opened.map_err(|e| Failure::io("open", &path, e))
    }

    /// Where the pages of a tablespace are, if they are placed.
    fn places(&self, space: SpaceId) -> Result<Places> {
        let mut known = self.places.lock().expect("no reader panics");
        if let Some((of, places)) = &*known
            && *of == space
        {
            return Ok(places.clone());
        }
        let path = tablespace_path(&self.path, space).with_extension("places");
        let name = path.file_name().and_then(|name| name.to_str());
        let failed = |e| Failure::io("read", &path, e);
        let places = match name.map(|name| self.handle.open(name, TO_READ)) {
            None => None,
            Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => None,
            Some(file) => {
                let file = file.map_err(failed)?;
                let mut bytes = vec![0; file.len().map_err(failed)? as usize];
                file.read_at(&mut bytes, 0).map_err(failed)?;
                let places = place_map::parse_damaged(&bytes).map(|(_, places)| Arc::new(places));
                Some(places.map_err(|c| {
                    Failure::Engine(Error::corrupt_file(&path, c.offset as u64, c.detail))
                })?)
            }
        };
        *known = Some((space, places.clone()));
        Ok(places)
    }

    /// Where a page is, if it is placed.
    pub fn place(&self, id: PageId) -> Result<Option<Place>> {
        let places = self.places(id.space)?;
        Ok(places.and_then(|places| places.get(id.page.0 as usize).copied()))
    }

    /// Bytes of a tablespace's file.
    pub fn space_bytes(&self, space: SpaceId) -> Result<u64> {
        let file = self.space_file(space)?;
        file.len().map_err(|e| Failure::io("size", file.path(), e))
    }

    /// Pages that a tablespace's file has; of one with placed pages those up to the last that has
    /// an image.
    pub fn space_pages(&self, space: SpaceId) -> Result<u64> {
        if let Some(places) = self.places(space)? {
            let last = places.iter().rposition(|place| !place.is_empty());
            return Ok(last.map_or(0, |last| last as u64 + 1));
        }
        Ok(self.space_bytes(space)? / u64::from(self.control.page_size))
    }

    /// What the page LSN map says; nothing, if there is none of this database.
    pub fn page_lsns(&self) -> Result<PageLsnMap> {
        let (handle, counters) = (self.handle.clone(), Arc::<Counters>::default());
        let (poison, cache_bytes) = (Poison::default(), 1 << 30);
        let map = PageLsnMap::new(handle, false, cache_bytes, counters, poison);
        map.open_to_look(self.control.uuid, self.control.epoch)
            .map_err(Failure::Engine)?;
        Ok(map)
    }

    /// The bytes of some pages.
    pub fn read_pages(&self, space: SpaceId, first: u64, count: u64) -> Result<Vec<u8>> {
        let file = self.space_file(space)?;
        let page_size = u64::from(self.control.page_size);
        let pages = self.space_pages(space)?;
        if first + count > pages {
            return Err(Failure::Usage(format!(
                "{} has pages 0 to {}, there is no page {}",
                file.path().display(),
                pages.saturating_sub(1),
                first + count - 1
            )));
        }
        let mut bytes = vec![0; (count * page_size) as usize];
        if let Some(places) = self.places(space)? {
            for (n, page) in bytes.chunks_exact_mut(page_size as usize).enumerate() {
                let number = first + n as u64;
                let id = PageId::new(space, PageNo(number as u32));
                self.read_image(&*file, id, &places[number as usize], page)?;
            }
            return Ok(bytes);
        }
        file.read_at(&mut bytes, first * page_size)
            .map_err(|e| Failure::io("read", file.path(), e))?;
        Ok(bytes)
    }

    /// Puts a page into `page` from where it is placed; nothing, if it has no image.
    fn read_image(
        &self,
        file: &dyn File,
        id: PageId,
        place: &Place,
        page: &mut [u8],
    ) -> Result<()> {
        if place.is_lost() {
            let lost = Corrupt::at(0, "the place map has lost where the page is");
            return Err(Failure::Engine(Error::corrupt_page(file.path(), id, lost)));
        }
        if place.is_empty() {
            return Ok(());
        }
        let mut image = vec![0; place.length as usize];
        let from = u64::from(place.unit) * UNIT_LEN as u64;
        let bytes = file
            .len()
            .map_err(|e| Failure::io("size", file.path(), e))?;
        if from + u64::from(place.length) > bytes {
            let detail =
                format!("its image begins at byte {from} of {bytes}: the file was cut short");
            let short = Corrupt::at(0, detail);
            return Err(Failure::Engine(Error::corrupt_page(file.path(), id, short)));
        }
        file.read_at(&mut image, from)
            .map_err(|e| Failure::io("read", file.path(), e))?;
        let made = Made {
            codec: place.codec,
            length: place.length,
        };
        let unpacked = image::unpack(made, id, &image, page).and_then(|()| {
            let found = page_lsn(page);
            if found == place.lsn {
                return Ok(());
            }
            let detail = format!("page LSN {found}, and it was placed with LSN {}", place.lsn);
            Err(Corrupt::at(16, detail))
        });
        unpacked.map_err(|c| Failure::Engine(Error::corrupt_page(file.path(), id, c)))
    }
}
