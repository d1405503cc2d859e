//! Every page in the files of a database that is closed: checksum, identity, structure, and that it
//! is no older version of itself.

use crate::failure::{Damages, Failure, Result};
use crate::inspect::read::{Directory, tablespace_path};
use indicatif::ProgressBar;
use inkstone::Error;
use inkstone::internals::store::PageLsnMap;
use inkstone_bench::progress;
use inkstone_format::apply::{bit, map_pages};
use inkstone_format::header::{PageType, check_page, is_zero, page_lsn, page_type};
use inkstone_format::space::{is_spare, more_maps};
use inkstone_format::tree_page::TreePage;
use inkstone_format::{Corrupt, Lsn, PageId, PageNo, SpaceId};
use inkstone_io::Vfs;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Bytes that are read at a time.
const CHUNK: u64 = 1 << 20;

/// What checking a file found, when all is well.
#[derive(Clone, Debug)]
pub struct FileReport {
    pub file: PathBuf,
    pub space: SpaceId,
    pub pages: u64,
    /// Pages with a sound checksum.
    pub pages_checked: u64,
    /// Pages that were never written: allowed where nothing is allocated.
    pub pages_empty: u64,
    /// Pages of which the page LSN map knows how new they must be, and which are.
    pub pages_dated: u64,
}

impl FileReport {
    pub fn to_json(&self) -> Value {
        json!({
            "file": super::shown(&self.file),
            "space": self.space.0,
            "pages": self.pages,
            "pages_checked": self.pages_checked,
            "pages_empty": self.pages_empty,
            "pages_dated": self.pages_dated,
        })
    }
}

/// Checks the files of a closed database. Damage of one file does not keep it from looking at the
/// others.
pub fn check_files(vfs: &dyn Vfs, directory: &Path) -> Result<Vec<FileReport>> {
    let directory = Directory::open_on(vfs, directory)?;
    let page_size = u64::from(directory.control.page_size);
    let spaces = directory.spaces()?;
    let page_lsns = directory.page_lsns()?;
    let mut total = 0;
    for space in &spaces {
        total += directory.space_pages(*space)?;
    }
    let bar = progress::bar("checking pages on disk", total);
    let mut reports = Vec::new();
    let mut damages = Damages::default();
    for space in spaces {
        let file = FileCheck {
            report: FileReport {
                file: tablespace_path(&directory.path, space),
                space,
                pages: directory.space_pages(space)?,
                pages_checked: 0,
                pages_empty: 0,
                pages_dated: 0,
            },
            page_lsns: &page_lsns,
            maps: Vec::new(),
            page_size: page_size as usize,
        };
        reports.extend(damages.note(file.run(&directory, &bar))?);
    }
    bar.finish_and_clear();
    damages.into_result().map(|()| reports)
}

struct FileCheck<'m> {
    report: FileReport,
    page_lsns: &'m PageLsnMap,
    /// The space map pages in order.
    maps: Vec<Vec<u8>>,
    page_size: usize,
}

impl FileCheck<'_> {
    fn run(mut self, directory: &Directory, bar: &ProgressBar) -> Result<FileReport> {
        self.read_maps(directory)?;
        let (space, page_size) = (self.report.space, self.page_size);
        let mut page = 0;
        while page < self.report.pages {
            let chunk = (CHUNK / page_size as u64).max(1);
            let count = chunk.min(self.report.pages - page);
            let bytes = directory.read_pages(space, page, count)?;
            for (n, bytes) in bytes.chunks(page_size).enumerate() {
                self.check(PageNo((page + n as u64) as u32), bytes)?;
            }
            page += count;
            bar.inc(count);
        }
        Ok(self.report)
    }

    fn read_maps(&mut self, directory: &Directory) -> Result<()> {
        let space = self.report.space;
        let header = self.system_page(directory, 0)?;
        let id = PageId::new(space, PageNo(0));
        check_page(&header, id).map_err(|c| self.corrupt(id, c))?;
        inkstone_format::space::check_header(&header, &directory.control.uuid)
            .map_err(|c| self.corrupt(id, c))?;
        let covered = u64::from(map_pages(self.page_size));
        for region in 0..=u64::from(more_maps(&header)) {
            let page = region * covered + 1;
            let map = self.system_page(directory, page)?;
            let id = PageId::new(space, PageNo(page as u32));
            check_page(&map, id).map_err(|c| self.corrupt(id, c))?;
            self.maps.push(map);
        }
        Ok(())
    }

    /// A page that every file has, or that its header says it has.
    fn system_page(&self, directory: &Directory, page: u64) -> Result<Vec<u8>> {
        let (space, pages) = (self.report.space, self.report.pages);
        if page >= pages {
            let detail = format!("the page is beyond the end of the file of {pages} pages");
            let id = PageId::new(space, PageNo(page as u32));
            return Err(self.corrupt(id, Corrupt::at(0, detail)));
        }
        directory.read_pages(space, page, 1)
    }

    fn is_allocated(&self, page: PageNo) -> bool {
        if is_spare(self.page_size, page) {
            return false;
        }
        let covered = map_pages(self.page_size);
        let map = self.maps.get((page.0 / covered) as usize);
        map.is_some_and(|map| bit(map, page.0 % covered))
    }

    fn check(&mut self, page: PageNo, bytes: &[u8]) -> Result<()> {
        let id = PageId::new(self.report.space, page);
        if !self.is_allocated(page) && is_zero(bytes) {
            self.report.pages_empty += 1;
            return Ok(());
        }
        check_page(bytes, id).map_err(|c| self.corrupt(id, c))?;
        if matches!(page_type(bytes), Some(PageType::Leaf | PageType::Inner)) {
            TreePage(bytes).check().map_err(|c| self.corrupt(id, c))?;
        }
        self.report.pages_checked += 1;
        // A free page may be of a file that was cut and has grown again.
        let newest = self.page_lsns.newer_than(id, Lsn(0));
        if let Some(newest) = newest.filter(|_| self.is_allocated(page)) {
            let lsn = page_lsn(bytes);
            if lsn < newest {
                let detail =
                    format!("page LSN {lsn} is stale: the page was written with LSN {newest}");
                return Err(self.corrupt(id, Corrupt::at(16, detail)));
            }
            self.report.pages_dated += 1;
        }
        Ok(())
    }

    fn corrupt(&self, id: PageId, corrupt: Corrupt) -> Failure {
        Failure::Engine(Error::corrupt_page(&self.report.file, id, corrupt))
    }
}
