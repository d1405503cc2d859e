//! A tablespace file as it is: which of its pages can be used, and for what.

use super::pages::Pages;
use crate::catalog::TableDefinition;
use crate::paranoid::paranoid;
use crate::store::PageLsnMap;
use inkstone_format::apply::{bit, map_pages};
use inkstone_format::control::Control;
use inkstone_format::header::{PageType, check_page, is_zero, page_lsn, page_type};
use inkstone_format::overflow::OverflowPage;
use inkstone_format::space::{CLUSTERED_TREE, TREES_MAX, check_header, more_maps, root};
use inkstone_format::tree_page::TreePage;
use inkstone_format::{Lsn, PageId, PageNo, SpaceId, TreeId};
use std::collections::{BTreeMap, BTreeSet};

/// Pages of a file's own at the beginning of each region.
pub(super) const OWN: u32 = crate::space::SYSTEM_PAGES;

/// A node of a tree that can be read.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub page: PageNo,
    pub level: u8,
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
    pub lsn: Lsn,
}

/// Whether the bytes of a page can be used, which is in use or may be free; or why not.
type Usable<'u> = &'u dyn Fn(PageNo, &[u8], bool) -> Result<(), String>;

/// See the module.
pub(super) struct Image {
    pub space: SpaceId,
    /// Whole pages of the file.
    pub pages: u32,
    /// Page 0, if it can be used.
    pub header: Option<Vec<u8>>,
    /// Nodes of each tree, in use.
    pub nodes: BTreeMap<TreeId, Vec<Node>>,
    /// Pages of long values, in use: how many bytes, and the next one.
    pub chains: BTreeMap<PageNo, (u64, PageNo)>,
    /// Pages in use that cannot be read, or may be in use where the map is lost; and why.
    pub lost: BTreeMap<PageNo, String>,
    /// Free pages whose bytes are no page; and why.
    pub wrecks: BTreeMap<PageNo, String>,
    /// Trees that the file must have, where it does not say so itself.
    missing_trees: BTreeSet<TreeId>,
    /// The file's own pages are damaged, or its length is no number of pages.
    own_damage: bool,
}

impl Image {
    /// Reads the file. The outer error is of the operating system.
    pub fn read(
        file: &Pages,
        space: SpaceId,
        control: &Control,
        page_lsns: &PageLsnMap,
    ) -> std::io::Result<Self> {
        let size = u64::from(control.page_size);
        let length = file.bytes()?;
        let pages = (length / size).min(u64::from(u32::MAX - 1)) as u32;
        let mut image = Self {
            space,
            pages,
            header: None,
            nodes: BTreeMap::new(),
            chains: BTreeMap::new(),
            lost: BTreeMap::new(),
            wrecks: BTreeMap::new(),
            missing_trees: BTreeSet::new(),
            own_damage: length % size != 0,
        };
        let mut bytes = vec![0; size as usize];
        let usable = |page: PageNo, bytes: &[u8], in_use: bool| {
            let id = PageId::new(space, page);
            check_page(bytes, id).map_err(|corrupt| corrupt.detail)?;
            let lsn = page_lsn(bytes);
            match page_lsns.newer_than(id, lsn).filter(|_| in_use) {
                Some(newest) => Err(format!("LSN {lsn} is stale, it was written with {newest}")),
                None => Ok(()),
            }
        };
        image.read_header(file, control, &mut bytes, &usable)?;
        let covered = map_pages(size as usize);
        let mut map: Option<Vec<u8>> = None;
        for number in 0..pages {
            let page = PageNo(number);
            if number % covered == 0 {
                map = image.read_map(file, number + 1, size, &usable)?;
            }
            if number % covered < OWN {
                continue;
            }
            let in_use = map.as_ref().is_none_or(|map| bit(map, number % covered));
            if let Err(why) = file.read(page, &mut bytes)? {
                let kind = if in_use {
                    &mut image.lost
                } else {
                    &mut image.wrecks
                };
                kind.insert(page, why);
                continue;
            }
            if (!in_use || map.is_none()) && is_zero(&bytes) {
                continue;
            }
            if !in_use {
                let wreck = usable(page, &bytes, false).err();
                image.wrecks.extend(wreck.map(|why| (page, why)));
                continue;
            }
            match usable(page, &bytes, true).and_then(|()| image.take(page, &bytes)) {
                Ok(()) => {}
                Err(why) => {
                    image.lost.insert(page, why);
                }
            }
        }
        image.look_behind_the_end(map.as_deref(), covered);
        let is_lost = |page| image.lost.contains_key(page);
        paranoid!(
            !image.wrecks.keys().any(is_lost) && !image.chains.keys().any(is_lost),
            "a page of tablespace {space} is lost, and is not: {:?}",
            image.lost.keys()
        );
        Ok(image)
    }

    fn read_header(
        &mut self,
        file: &Pages,
        control: &Control,
        bytes: &mut [u8],
        usable: Usable<'_>,
    ) -> std::io::Result<()> {
        let read = if self.pages > 0 {
            file.read(PageNo(0), bytes)?
        } else {
            Ok(())
        };
        let checked = read
            .and_then(|()| usable(PageNo(0), bytes, true))
            .and_then(|()| check_header(bytes, &control.uuid).map_err(|corrupt| corrupt.detail));
        match checked {
            Ok(()) => self.header = Some(bytes.to_vec()),
            Err(why) => self.lose_own(PageNo(0), why),
        }
        let regions = self.header.as_deref().map_or(0, more_maps);
        let covered = map_pages(bytes.len());
        if u64::from(regions) * u64::from(covered) + u64::from(OWN) > u64::from(self.pages) {
            self.own_damage = true;
        }
        Ok(())
    }

    fn lose_own(&mut self, page: PageNo, why: String) {
        self.own_damage = true;
        self.lost.insert(page, why);
    }

    fn read_map(
        &mut self,
        file: &Pages,
        number: u32,
        size: u64,
        usable: Usable<'_>,
    ) -> std::io::Result<Option<Vec<u8>>> {
        paranoid!(
            number % map_pages(size as usize) == 1,
            "page {number} is no place for a space map"
        );
        let mut bytes = vec![0; size as usize];
        let read = if number < self.pages {
            file.read(PageNo(number), &mut bytes)?
        } else {
            Ok(())
        };
        let why = match read.and_then(|()| usable(PageNo(number), &bytes, true)) {
            Ok(()) if page_type(&bytes) == Some(PageType::SpaceMap) => return Ok(Some(bytes)),
            Ok(()) => "it is no space map".to_owned(),
            Err(why) => why,
        };
        // A region that was never used has no map.
        let region = number / map_pages(size as usize);
        if self
            .header
            .as_deref()
            .is_none_or(|header| region <= more_maps(header))
        {
            self.lose_own(PageNo(number), why);
        }
        Ok(None)
    }

    /// Notes what a page in use holds; an error, if it is nothing that is ever in use.
    fn take(&mut self, page: PageNo, bytes: &[u8]) -> Result<(), String> {
        paranoid!(
            page.0 % map_pages(bytes.len()) >= OWN && page.0 < self.pages,
            "page {page} of {} is taken for one of a tree",
            self.pages
        );
        match page_type(bytes) {
            Some(PageType::Leaf | PageType::Inner) => {
                let node = TreePage(bytes);
                node.check().map_err(|corrupt| corrupt.detail)?;
                if node.tree().0 >= TREES_MAX {
                    return Err(format!("tree {}", node.tree()));
                }
                self.nodes.entry(node.tree()).or_default().push(Node {
                    page,
                    level: node.level(),
                    low: node.low().to_vec(),
                    high: node.high().map(<[u8]>::to_vec),
                    lsn: page_lsn(bytes),
                });
            }
            Some(PageType::Overflow) => {
                let chain = OverflowPage::of(bytes).and_then(|page| {
                    let data = page.data()?;
                    Some((data.len() as u64, page.next()))
                });
                let chain = chain.ok_or("a page of a long value without bytes")?;
                self.chains.insert(page, chain);
            }
            other => return Err(format!("it is in use, and of type {other:?}")),
        }
        Ok(())
    }

    /// Pages in use that the file is too short for.
    fn look_behind_the_end(&mut self, map: Option<&[u8]>, covered: u32) {
        let Some(map) = map else { return };
        let first = self.pages - self.pages % covered;
        let behind = (self.pages % covered..covered).filter(|&n| n >= OWN && bit(map, n));
        for n in behind.filter_map(|n| first.checked_add(n)) {
            let why = "the file ends before it".to_owned();
            self.lost.insert(PageNo(n), why);
        }
    }

    /// Notes which trees the catalog knows, for a file that has lost its header.
    pub fn note_trees(&mut self, definition: Option<&TableDefinition>) {
        if self.header.is_none() {
            let trees = definition
                .into_iter()
                .flat_map(|definition| &definition.trees);
            self.missing_trees.extend(trees.map(|(tree, _)| *tree));
            self.missing_trees.insert(CLUSTERED_TREE);
        }
    }

    /// Whether a page in use cannot be read.
    pub fn is_damaged(&self) -> bool {
        self.own_damage || !self.lost.is_empty()
    }

    /// The roots of the trees; where the header is lost, of those that have a node, found by what
    /// they cover.
    pub fn roots(&self) -> BTreeMap<TreeId, Option<PageNo>> {
        if let Some(header) = &self.header {
            let all = (0..TREES_MAX).map(TreeId);
            let known = all.filter_map(|tree| Some((tree, Some(root(header, tree)?))));
            return known.collect();
        }
        let root_of = |nodes: &[Node]| {
            let whole = nodes
                .iter()
                .filter(|n| n.low.is_empty() && n.high.is_none());
            whole.max_by_key(|node| node.level).map(|node| node.page)
        };
        let trees = self.nodes.iter();
        let mut roots: BTreeMap<_, _> =
            trees.map(|(&tree, nodes)| (tree, root_of(nodes))).collect();
        for &tree in &self.missing_trees {
            roots.entry(tree).or_insert(None);
        }
        roots
    }
}
