//! Tablespaces: which pages of a file are allocated, and where its trees begin.
//!
//! One bit a page in space map pages tells what is allocated. Allocation prefers the page after
//! the last one that was allocated, so that pages filled one after the other lie side by side and
//! are written together. A file grows, physically, before any page in the new part is allocated:
//! a full disk is found by the statement that needs the space, never by a page cleaner.
//!
//! Latch order: a space map page is latched before any tree page.

use crate::buffer::Reservation;
use crate::mtr::{Mtr, Redo};
use crate::mutants::{self, Mutant};
use crate::store::SpaceFile;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::{Error, Result};
use inkstone_format::apply::{bit, map_pages};
use inkstone_format::header::{PAGE_HEADER_LEN, PageType, page_type};
use inkstone_format::record::Record;
use inkstone_format::space::{self as format, TREES_MAX};
use inkstone_format::{Corrupt, PageId, PageNo, SpaceId, TreeId};
use std::sync::Arc;

mod tail;
mod upkeep;

pub use tail::Worth;

use tail::Tails;
use upkeep::Upkeep;

/// Pages of a new tablespace: header and first space map.
pub const SYSTEM_PAGES: u32 = 2;

/// Looks at a space map that is not one, while others may be taking regions away.
const MAP_ATTEMPTS: u32 = 10;

/// An open tablespace.
pub struct Space {
    /// Its number.
    pub id: SpaceId,
    redo: Redo,
    file: Arc<SpaceFile>,
    /// Where the search for a free page begins.
    hint: AtomicU32,
    /// Its table was dropped.
    dropped: AtomicBool,
    tails: Tails,
    upkeep: Upkeep,
}

/// A free page, found under the exclusive latch of its space map page, not yet marked.
#[derive(Clone, Copy, Debug)]
pub struct FreePage {
    /// The page.
    pub page: PageNo,
    map_index: usize,
}

impl Space {
    /// An open tablespace over its file.
    pub fn new(id: SpaceId, redo: Redo, file: Arc<SpaceFile>) -> Self {
        Self {
            id,
            redo,
            file,
            hint: AtomicU32::new(SYSTEM_PAGES),
            dropped: AtomicBool::new(false),
            tails: Tails::default(),
            upkeep: Upkeep::default(),
        }
    }

    /// Writes the header and the first space map of a new tablespace, whose file exists.
    pub fn initialise(&self, uuid: &[u8; 16]) -> Result<()> {
        let mut frames = self.redo.pool.reserve(2)?;
        let mut mtr = Mtr::new(&self.redo);
        let header_id = self.page_id(PageNo(0));
        let header = mtr.push(self.redo.pool.create(header_id, &mut frames)?);
        let map_id = self.page_id(PageNo(1));
        let map = mtr.push(self.redo.pool.create(map_id, &mut frames)?);
        mtr.note(&Record::FileCreate { space: self.id });
        let page_type = PageType::SpaceHeader as u8;
        mtr.replay(
            header,
            &Record::PageInit {
                page: header_id,
                page_type,
            },
        );
        let bytes = format::new_header(uuid, self.redo.page_size as u32);
        let offset = PAGE_HEADER_LEN as u32;
        mtr.replay(
            header,
            &Record::Bytes {
                page: header_id,
                offset,
                bytes,
            },
        );
        let page_type = PageType::SpaceMap as u8;
        mtr.replay(
            map,
            &Record::PageInit {
                page: map_id,
                page_type,
            },
        );
        mtr.replay(
            map,
            &Record::Bits {
                page: map_id,
                first: 0,
                count: SYSTEM_PAGES,
                set: true,
            },
        );
        mtr.commit().map(drop)
    }

    /// Whether the table was dropped: nobody may use its trees any more.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Notes that the table was dropped.
    pub fn set_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// A page of this tablespace.
    pub fn page_id(&self, page: PageNo) -> PageId {
        PageId::new(self.id, page)
    }

    /// The file.
    pub fn file(&self) -> &Arc<SpaceFile> {
        &self.file
    }

    /// Checks that the file's header belongs to this database and page size.
    pub fn check_header(&self, uuid: &[u8; 16]) -> Result<()> {
        let id = self.page_id(PageNo(0));
        let header = self.redo.pool.shared(id)?;
        check_header(&header, uuid, &self.file)
    }

    /// Checks that the file is as long as its space maps say: one that was cut short must not grow
    /// again with zeroes where rows were.
    pub fn check_length(&self) -> Result<()> {
        let _shape = self.keep_shape();
        let covered = map_pages(self.redo.page_size);
        let region = self.last_region()?;
        let map = self.page_id(PageNo(region.saturating_mul(covered).saturating_add(1)));
        let map = self.redo.pool.shared(map)?;
        let last = (0..covered).rev().find(|&n| bit(&map, n)).unwrap_or(0);
        let pages = region.saturating_mul(covered).saturating_add(last + 1);
        self.file.require_pages(pages)
    }

    /// The root page of a tree, if there is such a tree.
    pub fn root(&self, tree: TreeId) -> Result<Option<PageNo>> {
        let header = self.redo.pool.shared(self.page_id(PageNo(0)))?;
        Ok(format::root(&header, tree))
    }

    /// Notes a tree's root page in the header, which the mini-transaction has latched as `header`.
    pub fn set_root(&self, mtr: &mut Mtr<'_>, header: usize, tree: TreeId, root: PageNo) {
        let page = mtr.id(header);
        let offset = format::root_offset(tree) as u32;
        mtr.replay(
            header,
            &Record::Bytes {
                page,
                offset,
                bytes: root.0.to_le_bytes().to_vec(),
            },
        );
    }

    /// The smallest number that no tree of this tablespace has.
    pub fn free_tree_id(&self) -> Result<TreeId> {
        let header = self.redo.pool.shared(self.page_id(PageNo(0)))?;
        (0..TREES_MAX - 1)
            .map(TreeId)
            .find(|&tree| format::root(&header, tree).is_none())
            .ok_or_else(|| {
                Error::Unsupported(format!("a table has at most {} trees", TREES_MAX - 1))
            })
    }

    fn map_of(&self, page: PageNo) -> PageNo {
        let covered = map_pages(self.redo.page_size);
        PageNo(page.0 / covered * covered + 1)
    }

    /// Latches the space map page of `page`, which is allocated.
    pub fn latch_map_of<'p>(&'p self, mtr: &mut Mtr<'p>, page: PageNo) -> Result<usize> {
        self.latch_map_if_any(mtr, page)?.ok_or_else(|| {
            let what = Corrupt::at(
                format::MORE_MAPS_AT,
                format!("page {page} has no space map"),
            );
            Error::corrupt_page(self.file.path(), self.page_id(PageNo(0)), what)
        })
    }

    /// Latches the space map page of `page`; `None` if its region is gone, and the page with it.
    pub fn latch_map_if_any<'p>(
        &'p self,
        mtr: &mut Mtr<'p>,
        page: PageNo,
    ) -> Result<Option<usize>> {
        let (id, region) = (
            self.page_id(self.map_of(page)),
            page.0 / map_pages(self.redo.page_size),
        );
        let mut attempts = 0;
        loop {
            let error = match self.redo.pool.exclusive(id) {
                Ok(map) if page_type(&map) == Some(PageType::SpaceMap) => {
                    return Ok(Some(mtr.push(map)));
                }
                // The latch goes before the header is looked at, which may have to be read.
                Ok(map) => {
                    let what = format!("type {} where a space map is expected", map[12]);
                    Error::corrupt_page(self.file.path(), id, Corrupt::at(12, what))
                }
                Err(error) => error,
            };
            if self.last_region()? < region {
                return Ok(None);
            }
            // The region may have been gone just now, and be made again.
            attempts += 1;
            if attempts == MAP_ATTEMPTS {
                return Err(error);
            }
        }
    }

    /// Finds `count` free pages: latches a space map page (the mini-transaction must hold no latch
    /// yet) and makes sure that the file reaches that far. Nothing is changed before
    /// [`Space::mark`].
    pub fn find_free<'p>(
        &'p self,
        count: usize,
        frames: &mut Reservation<'p>,
        attempt: impl Fn() -> Mtr<'p>,
    ) -> Result<(Mtr<'p>, Vec<FreePage>)> {
        let covered = map_pages(self.redo.page_size);
        let mut region = self.hint.load(Ordering::Relaxed) / covered;
        let mut wrapped = false;
        loop {
            let mut mtr = attempt();
            let Some(map_index) = self.latch_region(&mut mtr, region, covered, frames)? else {
                continue;
            };
            let from = match self.hint.load(Ordering::Relaxed) {
                hint if hint / covered == region => hint % covered,
                _ => 0,
            };
            let found = find_zero_bits(mtr.page(map_index), from, covered, count);
            if found.len() == count {
                let last = region * covered + found[count - 1];
                if self.file.pages() <= last {
                    drop(mtr);
                    self.file.ensure_pages(last + 1)?;
                    continue;
                }
                let page = |bit: u32| FreePage {
                    page: PageNo(region * covered + bit),
                    map_index,
                };
                return Ok((mtr, found.into_iter().map(page).collect()));
            }
            drop(mtr);
            // The region is full: the next one; or, once, from the start of the file.
            region += 1;
            if !wrapped && self.file.pages() <= region.saturating_mul(covered) && region > 1 {
                (region, wrapped) = (0, true);
            }
            self.hint.store(
                region
                    .checked_mul(covered)
                    .ok_or_else(|| self.too_large())?,
                Ordering::Relaxed,
            );
        }
    }

    /// Latches the space map of a region, making it if the region is new. `None`: try again.
    fn latch_region<'p>(
        &'p self,
        mtr: &mut Mtr<'p>,
        region: u32,
        covered: u32,
        frames: &mut Reservation<'p>,
    ) -> Result<Option<usize>> {
        if region > 0 {
            let header = self.redo.pool.shared(self.page_id(PageNo(0)))?;
            let maps = format::more_maps(&header);
            drop(header);
            if maps < region {
                self.create_region(maps + 1, covered, frames)?;
                return Ok(None);
            }
        }
        self.latch_map_if_any(mtr, PageNo(region * covered))
    }

    /// Makes the space map of a region that the file has just grown into. The header page's latch
    /// keeps two threads from doing so at once.
    fn create_region(&self, region: u32, covered: u32, frames: &mut Reservation<'_>) -> Result<()> {
        let pages = region * covered + SYSTEM_PAGES;
        self.file.ensure_pages(pages)?;
        let id = self.page_id(PageNo(region * covered + 1));
        let mut mtr = Mtr::new(&self.redo);
        let header_id = self.page_id(PageNo(0));
        let header = mtr.push(self.redo.pool.exclusive(header_id)?);
        // The file may have been cut meanwhile, or a region be gone: the caller tries again.
        if format::more_maps(mtr.page(header)) + 1 != region || self.file.pages() < pages {
            return Ok(());
        }
        self.tails.note_marked(id.page);
        let map = mtr.push(self.redo.pool.create(id, frames)?);
        mtr.replay(
            map,
            &Record::PageInit {
                page: id,
                page_type: PageType::SpaceMap as u8,
            },
        );
        mtr.replay(
            map,
            &Record::Bits {
                page: id,
                first: 0,
                count: SYSTEM_PAGES,
                set: true,
            },
        );
        let offset = format::MORE_MAPS_AT as u32;
        let bytes = region.to_le_bytes().to_vec();
        mtr.replay(
            header,
            &Record::Bytes {
                page: header_id,
                offset,
                bytes,
            },
        );
        mtr.commit().map(drop)
    }

    fn too_large(&self) -> Error {
        Error::DiskFull {
            what: format!(
                "{}: a tablespace has at most 2^32 pages",
                self.file.path().display()
            ),
        }
    }

    /// Marks a page that `find_free` found as allocated.
    pub fn mark(&self, mtr: &mut Mtr<'_>, free: FreePage) {
        let covered = map_pages(self.redo.page_size);
        let page = mtr.id(free.map_index);
        let first = free.page.0 % covered;
        mtr.replay(
            free.map_index,
            &Record::Bits {
                page,
                first,
                count: 1,
                set: true,
            },
        );
        self.tails.note_marked(free.page);
        self.hint.store(free.page.0 + 1, Ordering::Relaxed);
    }

    /// Frees a page that the mini-transaction has latched as `page_index`, with its map.
    pub fn free(&self, mtr: &mut Mtr<'_>, map_index: usize, page_index: usize) {
        let (map, page) = (mtr.id(map_index), mtr.id(page_index));
        let first = page.page.0 % map_pages(self.redo.page_size);
        mtr.replay(page_index, &Record::PageFree { page });
        mtr.replay(
            map_index,
            &Record::Bits {
                page: map,
                first,
                count: 1,
                set: mutants::on(Mutant::PageLeaked),
            },
        );
        self.tails.note_freed();
        self.hint.fetch_min(page.page.0, Ordering::Relaxed);
    }

    /// Allocated pages, counted in the space maps. The caller keeps the shape
    /// ([`Space::keep_shape`]).
    pub fn allocated_pages(&self) -> Result<u64> {
        let covered = map_pages(self.redo.page_size);
        let mut total = 0;
        let maps = format::more_maps(&self.redo.pool.shared(self.page_id(PageNo(0)))?);
        for region in 0..=maps {
            let map = self
                .redo
                .pool
                .shared(self.page_id(PageNo(region * covered + 1)))?;
            total += (0..covered).filter(|&n| bit(&map, n)).count() as u64;
        }
        Ok(total)
    }

    /// Number of the last space map.
    pub fn last_region(&self) -> Result<u32> {
        Ok(format::more_maps(
            &self.redo.pool.shared(self.page_id(PageNo(0)))?,
        ))
    }

    /// Whether the space maps say that a page is allocated. The caller keeps the shape.
    pub fn is_allocated(&self, page: PageNo) -> Result<bool> {
        let map = self.redo.pool.shared(self.page_id(self.map_of(page)))?;
        Ok(bit(&map, page.0 % map_pages(self.redo.page_size)))
    }
}

/// Checks the header page of a tablespace file against what the database expects.
pub fn check_header(header: &[u8], uuid: &[u8; 16], file: &SpaceFile) -> Result<()> {
    let found = format::version(header);
    if page_type(header) == Some(PageType::SpaceHeader) && found > format::SPACE_VERSION {
        return Err(Error::NewerFormat {
            path: file.path().to_owned(),
            found,
            known: format::SPACE_VERSION,
        });
    }
    let id = PageId::new(file.space(), PageNo(0));
    format::check_header(header, uuid)
        .map_err(|corrupt| Error::corrupt_page(file.path(), id, corrupt))
}

fn find_zero_bits(map: &[u8], from: u32, covered: u32, count: usize) -> Vec<u32> {
    let mut found = Vec::with_capacity(count);
    let mut at = from;
    while at < covered && found.len() < count {
        // Whole bytes of allocated pages are passed over at once.
        if at.is_multiple_of(8)
            && map[inkstone_format::apply::MAP_BITS_AT + (at / 8) as usize] == 0xff
        {
            at += 8;
            continue;
        }
        if !bit(map, at) {
            found.push(at);
        }
        at += 1;
    }
    found
}
