//! Tablespaces: which pages of a file are allocated, and where its trees begin.
//!
//! One bit a page in space map pages tells what is allocated (`space/allocate.rs`); memory knows
//! how many pages are free in each region (`space/regions.rs`). A file grows, physically, before
//! any page in the new part is allocated: a full disk is found by the statement that needs the
//! space, never by a page cleaner.
//!
//! Latch order: a space map page is latched before any tree page.

use crate::mtr::Mtr;
use crate::paranoid::paranoid;
use crate::storage::Storage;
use crate::store::SpaceFile;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::{Error, Result};
use inkstone_format::apply::{bit, count_clear_bits, map_pages};
use inkstone_format::header::{PAGE_HEADER_LEN, PageType, page_type};
use inkstone_format::record::Record;
use inkstone_format::space::{self as format, TREES_MAX};
use inkstone_format::{Corrupt, PageId, PageNo, SpaceId, TreeId};
use std::sync::Arc;

mod allocate;
mod compact;
mod complete;
mod regions;
mod tail;
mod upkeep;

pub use allocate::FreePage;
pub use compact::Place;
pub use tail::Worth;

use complete::Completeness;
use regions::Regions;
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
    storage: Storage,
    file: Arc<SpaceFile>,
    /// The page after the last one that was allocated, or a lower one that was freed since: the
    /// search for a free page in its region begins there.
    hint: AtomicU32,
    regions: Regions,
    /// Its table was dropped.
    dropped: AtomicBool,
    /// An earlier run has made it, and may have left trees in it that no definition names.
    untidy: AtomicBool,
    tails: Tails,
    upkeep: Upkeep,
    completeness: Completeness,
    /// How often a page was allocated or freed.
    changes: AtomicU64,
}

impl Space {
    /// An open tablespace over its file.
    pub fn new(id: SpaceId, storage: Storage, file: Arc<SpaceFile>) -> Self {
        Self {
            id,
            storage,
            file,
            hint: AtomicU32::new(SYSTEM_PAGES),
            regions: Regions::default(),
            dropped: AtomicBool::new(false),
            untidy: AtomicBool::new(false),
            tails: Tails::default(),
            upkeep: Upkeep::default(),
            completeness: Completeness::default(),
            changes: AtomicU64::new(0),
        }
    }

    /// A tablespace that an earlier run has made, or that was imported.
    pub fn found(id: SpaceId, storage: Storage, file: Arc<SpaceFile>) -> Self {
        Self {
            untidy: AtomicBool::new(true),
            ..Self::new(id, storage, file)
        }
    }

    /// Whether the search for trees that no definition names is still to be done.
    pub fn is_untidy(&self) -> bool {
        self.untidy.load(Ordering::Acquire)
    }

    /// Notes that it was done.
    pub fn set_tidy(&self) {
        self.untidy.store(false, Ordering::Release);
    }

    /// Writes the header and the first space map of a new tablespace, whose file exists.
    pub fn initialise(&self, uuid: &[u8; 16]) -> Result<()> {
        let mut frames = self.storage.pool.reserve(2)?;
        let mut mtr = Mtr::new(&self.storage);
        let header_id = self.page_id(PageNo(0));
        let header = mtr.push(self.storage.pool.create(header_id, &mut frames)?);
        let map_id = self.page_id(PageNo(1));
        let map = mtr.push(self.storage.pool.create(map_id, &mut frames)?);
        mtr.note(&Record::FileCreate { space: self.id });
        let page_type = PageType::SpaceHeader as u8;
        mtr.replay(
            header,
            &Record::PageInit {
                page: header_id,
                page_type,
            },
        );
        let bytes = format::new_header(uuid, self.storage.page_size as u32);
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
        paranoid!(
            format::check_header(mtr.page(header), uuid).is_ok(),
            "the header of a new tablespace {} is not one",
            self.id
        );
        let free = count_clear_bits(mtr.page(map), self.region_len(0));
        paranoid!(
            free == self.region_len(0) - SYSTEM_PAGES,
            "{free} pages are free in a new tablespace"
        );
        mtr.commit().map(drop)
    }

    /// Whether the table was dropped: its trees may not be used any more.
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
        let header = self.storage.pool.shared(id)?;
        check_header(&header, uuid, &self.file)
    }

    /// Checks that the file is as long as its space maps say: one that was cut short must not grow
    /// again with zeroes where rows were.
    pub fn check_length(&self) -> Result<()> {
        let _shape = self.keep_shape();
        let region = self.last_region()?;
        let map = self.storage.pool.shared(self.map_id(region))?;
        let last = (0..self.region_len(region)).rev().find(|&n| bit(&map, n));
        let pages = self.region_start(region) + last.unwrap_or(0) + 1;
        self.file.require_pages(pages)
    }

    /// The root page of a tree, if there is such a tree.
    pub fn root(&self, tree: TreeId) -> Result<Option<PageNo>> {
        let header = self.storage.pool.shared(self.page_id(PageNo(0)))?;
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
        self.note_root(tree, root);
        let noted = format::root(mtr.page(header), tree);
        paranoid!(
            noted == (root != PageNo(0)).then_some(root),
            "the root of tree {tree} is {root}, and noted as {noted:?}"
        );
    }

    /// The smallest number that no tree of this tablespace has.
    pub fn free_tree_id(&self) -> Result<TreeId> {
        let header = self.storage.pool.shared(self.page_id(PageNo(0)))?;
        (0..TREES_MAX - 1)
            .map(TreeId)
            .find(|&tree| format::root(&header, tree).is_none())
            .ok_or_else(|| {
                Error::Unsupported(format!(
                    "a table has at most {} trees; one that was dropped counts until the \
                     transactions and snapshots that were open then have ended",
                    TREES_MAX - 1
                ))
            })
    }

    /// The root page of each tree that the file has, named in the catalog or not.
    pub fn roots(&self) -> Result<Vec<(TreeId, PageNo)>> {
        let header = self.storage.pool.shared(self.page_id(PageNo(0)))?;
        let all = (0..TREES_MAX).map(TreeId);
        Ok(all
            .filter_map(|tree| Some((tree, format::root(&header, tree)?)))
            .collect())
    }

    /// Allocated pages, counted in the space maps. The caller keeps the shape
    /// ([`Space::keep_shape`]).
    pub fn allocated_pages(&self) -> Result<u64> {
        let mut total = 0;
        for region in 0..=self.last_region()? {
            let map = self.storage.pool.shared(self.map_id(region))?;
            let len = self.region_len(region);
            total += u64::from(len - count_clear_bits(&map, len));
        }
        Ok(total)
    }

    /// The pages of a region that its map says are allocated.
    pub fn allocated_in(&self, region: u32) -> Result<Vec<PageNo>> {
        let map = self.storage.pool.shared(self.map_id(region))?;
        let allocated = (0..self.region_len(region)).filter(|&n| bit(&map, n));
        let start = self.region_start(region);
        Ok(allocated.map(|n| PageNo(start + n)).collect())
    }

    /// Number of the last space map.
    pub fn last_region(&self) -> Result<u32> {
        let header = self.storage.pool.shared(self.page_id(PageNo(0)))?;
        let (last, most) = (
            format::more_maps(&header),
            format::region_max(self.storage.page_size),
        );
        if last > most {
            let what = format!("{last} more space maps, where {most} are the most");
            let corrupt = Corrupt::at(format::MORE_MAPS_AT, what);
            return Err(Error::corrupt_page(self.file.path(), header.id(), corrupt));
        }
        Ok(last)
    }

    /// Whether the space maps say that a page is allocated. The caller keeps the shape.
    pub fn is_allocated(&self, page: PageNo) -> Result<bool> {
        let covered = map_pages(self.storage.page_size);
        let map = self.storage.pool.shared(self.map_id(page.0 / covered))?;
        Ok(bit(&map, page.0 % covered))
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
