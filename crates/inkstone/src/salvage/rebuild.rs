//! A tablespace file rebuilt from the leaves that can be read.
//!
//! The leaves of a tree cover all keys, each its own. Where two cover the same, the newer one is
//! the tree's. What none covers is made an empty leaf. Inner nodes are made anew above them. The
//! numbers of pages that were lost, and of former inner nodes, are used for what is new.

use super::Table;
use super::image::{Image, Node, OWN};
use super::pages::Pages;
use crate::catalog::{CATALOG_SPACE, CATALOG_TREE, CLUSTERED, TableDefinition};
use crate::paranoid::paranoid;
use inkstone_format::apply::{map_pages, set_bits};
use inkstone_format::control::Control;
use inkstone_format::header::{PAGE_HEADER_LEN, PageType, init_page, set_page_lsn, stamp_checksum};
use inkstone_format::overflow::LongValue;
use inkstone_format::space::{
    CLUSTERED_TREE, MORE_MAPS_AT, PENDING_FREE_TREE, new_header, set_root,
};
use inkstone_format::tree_page::{NOTHING_LIVE, TreePage, TreePageInit, TreePageMut};
use inkstone_format::{Lsn, PageId, PageNo, TreeId};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Result;

/// What is left out: the page, if there is one, and what was in it.
type LeftOut = Vec<(Option<PageId>, String)>;

struct Rebuild<'f> {
    file: &'f Pages,
    image: Image,
    size: usize,
    /// What every page that is written is stamped with: no change of the log is newer.
    lsn: Lsn,
    /// Pages that are used by what was rebuilt so far.
    used: BTreeSet<PageNo>,
    /// Numbers for new pages.
    spare: Vec<PageNo>,
    /// The page behind the file's last.
    end: u32,
    left_out: LeftOut,
    /// Rows of the clustered tree are among it, or may be.
    rows_lost: bool,
    /// Definitions of tables that the catalog has lost.
    definitions: Vec<TableDefinition>,
}

/// A child of an inner node that is made: the smallest key that it may have, and its page.
type Child = (Vec<u8>, PageNo);

/// The definitions of tables in leaves of the catalog that can be read.
pub(super) fn definitions(
    file: &Pages,
    catalog: Image,
    at: (&Control, Lsn),
) -> Result<Vec<TableDefinition>> {
    Rebuild::new(file, catalog, at).definitions_left()
}

/// Rebuilds the file of a database whose control file is this, and whose log ends there; tells what
/// is left out. `tables`: those whose files are there, if the file is
/// the catalog's.
pub(super) fn rebuild(
    file: &Pages,
    image: Image,
    at: (&Control, Lsn),
    tables: &[Table],
) -> Result<LeftOut> {
    let mut rebuild = Rebuild::new(file, image, at);
    rebuild.definitions = rebuild.lost_definitions(tables)?;
    rebuild.run(at.0)?;
    Ok(rebuild.left_out)
}

/// Writes the free pages of a file anew whose bytes are no page; tells which.
pub(super) fn clear_wrecks(file: &Pages, image: Image, at: (&Control, Lsn)) -> Result<LeftOut> {
    let mut rebuild = Rebuild::new(file, image, at);
    for (page, why) in std::mem::take(&mut rebuild.image.wrecks) {
        let id = PageId::new(rebuild.image.space, page);
        let what = format!("page {id}, which is free: {why}");
        rebuild.left_out.push((Some(id), what));
        rebuild.free_page(page)?;
    }
    Ok(rebuild.left_out)
}

impl<'f> Rebuild<'f> {
    fn new(file: &'f Pages, image: Image, (control, end): (&Control, Lsn)) -> Self {
        Self {
            file,
            size: control.page_size as usize,
            lsn: end,
            used: BTreeSet::new(),
            spare: Vec::new(),
            end: image.pages.max(OWN),
            left_out: Vec::new(),
            rows_lost: false,
            definitions: Vec::new(),
            image,
        }
    }
}

impl Rebuild<'_> {
    fn run(&mut self, control: &Control) -> Result<()> {
        self.file.set_pages(self.end)?;
        let lost = std::mem::take(&mut self.image.lost);
        for (page, why) in &lost {
            let id = PageId::new(self.image.space, *page);
            self.left_out.push((Some(id), format!("page {id}: {why}")));
        }
        let roots = self.image.roots();
        let leaves: BTreeMap<TreeId, Vec<Node>> = roots
            .keys()
            .map(|&tree| (tree, self.leaves(tree)))
            .collect();
        self.used.extend(roots.values().flatten());
        self.used
            .extend(leaves.values().flatten().map(|leaf| leaf.page));
        for leaf in leaves
            .iter()
            .flat_map(|(&tree, all)| all.iter().map(move |leaf| (tree, leaf)))
        {
            self.keep_long_values(leaf.0, leaf.1)?;
        }
        self.spare = self.spare_pages(&lost);
        let mut new_roots = BTreeMap::new();
        for (tree, root) in roots {
            let root = root.unwrap_or_else(|| self.take_page());
            self.used.insert(root);
            let leaves = leaves.get(&tree).map_or(&[][..], Vec::as_slice);
            self.tree(tree, root, leaves)?;
            new_roots.insert(tree, root);
        }
        self.own_pages(&new_roots, control)?;
        let is_other = |tree: &TreeId| ![CLUSTERED_TREE, PENDING_FREE_TREE].contains(tree);
        if self.rows_lost && new_roots.keys().any(is_other) {
            // Only the program that made the entries knows of which rows they are.
            let what = "rows of which the table's other trees may still have entries: have them \
                        made anew by the program that has made them (in MariaDB: ALTER TABLE .. \
                        FORCE)";
            self.left_out.push((None, what.to_owned()));
        }
        let wrecks = std::mem::take(&mut self.image.wrecks);
        for page in lost.into_keys().chain(wrecks.into_keys()) {
            let is_own = page.0 % map_pages(self.size) < OWN;
            if !is_own && page.0 < self.end && !self.used.contains(&page) {
                self.free_page(page)?;
            }
        }
        Ok(())
    }

    /// Writes a page that nothing uses: of no type, but whole.
    fn free_page(&mut self, page: PageNo) -> Result<()> {
        let mut bytes = vec![0; self.size];
        init_page(
            &mut bytes,
            PageId::new(self.image.space, page),
            PageType::Free,
        );
        self.write(page, bytes)
    }

    /// The leaves of a tree, in order, none of which covers what another does.
    fn leaves(&self, tree: TreeId) -> Vec<Node> {
        let nodes = self.image.nodes.get(&tree).map_or(&[][..], Vec::as_slice);
        let mut found: Vec<&Node> = nodes.iter().filter(|node| node.level == 0).collect();
        found.sort_by_key(|node| std::cmp::Reverse(node.lsn));
        let mut kept: BTreeMap<&[u8], &Node> = BTreeMap::new();
        for leaf in found {
            let below =
                |high: &Option<Vec<u8>>, key: &[u8]| high.as_deref().is_none_or(|high| key < high);
            let before = kept.range(..=&leaf.low[..]).next_back();
            let overlaps_before = before.is_some_and(|(_, other)| below(&other.high, &leaf.low));
            let after = kept.range(&leaf.low[..]..).next();
            let overlaps_after = after.is_some_and(|(low, _)| below(&leaf.high, low));
            if !overlaps_before && !overlaps_after {
                kept.insert(&leaf.low, leaf);
            }
        }
        let leaves: Vec<Node> = kept.into_values().cloned().collect();
        let ends_before =
            |leaf: &Node, next: &Node| leaf.high.as_ref().is_some_and(|high| high <= &next.low);
        paranoid!(
            leaves.windows(2).all(|two| ends_before(&two[0], &two[1])),
            "two leaves of tree {tree} are kept that cover a key"
        );
        leaves
    }

    /// Definitions in leaves that can be read.
    fn definitions_left(&self) -> Result<Vec<TableDefinition>> {
        let mut all = Vec::new();
        for leaf in self.leaves(CATALOG_TREE) {
            let bytes = self.read(leaf.page)?;
            let page = TreePage(&bytes);
            let live = (0..page.count()).filter(|&slot| !page.is_deleted(slot));
            let rows =
                live.map(|slot| TableDefinition::decode(&page.key(slot), page.cell(slot).value));
            all.extend(rows.flatten());
        }
        Ok(all)
    }

    /// Definitions of the tables that no leaf of the catalog defines.
    fn lost_definitions(&self, tables: &[Table]) -> Result<Vec<TableDefinition>> {
        if tables.is_empty() {
            return Ok(Vec::new());
        }
        let mut known = BTreeSet::from([CATALOG_SPACE]);
        known.extend(
            self.definitions_left()?
                .into_iter()
                .map(|found| found.space),
        );
        let lost = tables.iter().filter(|(space, _)| !known.contains(space));
        let definitions = lost
            .filter(|(_, trees)| trees.contains(&CLUSTERED_TREE))
            .map(|(space, trees)| TableDefinition {
                name: format!("!salvaged-{space}"),
                space: *space,
                trees: trees
                    .iter()
                    .filter(|tree| **tree != PENDING_FREE_TREE)
                    .map(|&tree| match tree {
                        CLUSTERED_TREE => (tree, CLUSTERED.to_owned()),
                        tree => (tree, format!("tree {tree}")),
                    })
                    .collect(),
                references: Vec::new(),
                layouts: Vec::new(),
            });
        Ok(definitions.collect())
    }

    /// Writes an empty leaf, or in the catalog one with the definitions that it lacks.
    fn empty_leaf(
        &mut self,
        tree: TreeId,
        page: PageNo,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<()> {
        let mut bytes = self.new_node(tree, page, 0, low, high);
        let mut left = Vec::new();
        for definition in std::mem::take(&mut self.definitions) {
            // A name that belongs here.
            let fitting = String::from_utf8([low, definition.name.as_bytes()].concat());
            let fits = fitting
                .as_ref()
                .is_ok_and(|name| high.is_none_or(|high| name.as_bytes() < high));
            if let (true, Ok(name)) = (fits, fitting) {
                let value = definition.encode();
                let slot = TreePage(&bytes)
                    .search(name.as_bytes())
                    .unwrap_or_else(|slot| slot);
                let mut leaf = TreePageMut(&mut bytes);
                let placed = leaf.insert(slot, 0, None, name.as_bytes(), &value, NOTHING_LIVE);
                if placed.is_ok() {
                    let (what, space) = (
                        "the definition of the table of tablespace",
                        definition.space,
                    );
                    self.left_out
                        .push((None, format!("{what} {space}: it is called {name}")));
                    continue;
                }
            }
            left.push(definition);
        }
        self.definitions = left;
        self.write(page, bytes)
    }

    fn read(&self, page: PageNo) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.size];
        let read = self.file.read(page, &mut bytes)?;
        // It was read before.
        read.map_err(std::io::Error::other)?;
        Ok(bytes)
    }

    fn write(&mut self, page: PageNo, mut bytes: Vec<u8>) -> Result<()> {
        paranoid!(
            bytes.len() == self.size,
            "{} bytes are written as page {page}",
            bytes.len()
        );
        set_page_lsn(&mut bytes, self.lsn);
        stamp_checksum(&mut bytes);
        self.file.write(page, &bytes)
    }

    /// Keeps the pages of the leaf's long values; rows whose long value is not whole are removed.
    fn keep_long_values(&mut self, tree: TreeId, leaf: &Node) -> Result<()> {
        let mut bytes = self.read(leaf.page)?;
        let mut broken = Vec::new();
        let page = TreePage(&bytes);
        for slot in 0..page.count() {
            let cell = page.cell(slot);
            let chains = match tree {
                _ if cell.is_deleted() => continue,
                PENDING_FREE_TREE => {
                    let first = page.key(slot).try_into().map_or(0, u32::from_be_bytes);
                    vec![(PageNo(first), None)]
                }
                _ if !cell.is_overflow() => continue,
                _ => match LongValue::parse(cell.value) {
                    Some(value) => (value.parts.iter())
                        .map(|part| (part.first, Some(part.length)))
                        .collect(),
                    None => vec![(PageNo(0), Some(u64::MAX))],
                },
            };
            let pages = (chains.into_iter())
                .map(|(first, length)| self.chain(first, length))
                .collect::<Option<Vec<_>>>();
            match pages {
                Some(pages) => self.used.extend(pages.into_iter().flatten()),
                None => broken.push(slot),
            }
        }
        if broken.is_empty() {
            return Ok(());
        }
        for &slot in broken.iter().rev() {
            if tree != PENDING_FREE_TREE {
                self.rows_lost |= tree == CLUSTERED_TREE;
                let key = TreePage(&bytes).key(slot);
                let what = format!("the row {key:02x?} of tree {tree}: a page of its long value");
                self.left_out.push((None, what));
            }
            TreePageMut(&mut bytes).remove(slot, 1);
        }
        self.write(leaf.page, bytes)
    }

    /// The pages of a chain; `None` if one is lost, or they do not hold so many bytes.
    fn chain(&self, first: PageNo, length: Option<u64>) -> Option<Vec<PageNo>> {
        let (mut next, mut held, mut pages) = (first, 0, BTreeSet::new());
        while next != PageNo(0) && length.is_none_or(|length| held < length) {
            let (bytes, following) = self.image.chains.get(&next)?;
            if !pages.insert(next) {
                return None;
            }
            held += bytes;
            next = *following;
        }
        let whole = length.is_none_or(|length| held == length);
        whole.then(|| pages.into_iter().collect())
    }

    /// Numbers within the file that nothing uses any more: lost pages and former inner nodes.
    fn spare_pages(&self, lost: &BTreeMap<PageNo, String>) -> Vec<PageNo> {
        let covered = map_pages(self.size);
        let nodes = self.image.nodes.values().flatten().map(|node| node.page);
        let all = lost.keys().copied().chain(nodes);
        let spare = all.filter(|page| {
            page.0 % covered >= OWN && page.0 < self.end && !self.used.contains(page)
        });
        spare.collect::<BTreeSet<_>>().into_iter().rev().collect()
    }

    /// A number for a new page.
    fn take_page(&mut self) -> PageNo {
        let covered = map_pages(self.size);
        let page = self.spare.pop().unwrap_or_else(|| {
            while self.end % covered < OWN {
                self.end += 1;
            }
            self.end += 1;
            PageNo(self.end - 1)
        });
        let is_new = self.used.insert(page);
        paranoid!(
            is_new && page.0 % covered >= OWN && page.0 < self.end,
            "page {page} of {} is given to a second user",
            self.end
        );
        page
    }

    /// The nodes of a tree above its leaves, and empty leaves where some are missing.
    fn tree(&mut self, tree: TreeId, root: PageNo, leaves: &[Node]) -> Result<()> {
        if let [leaf] = leaves
            && (leaf.page, &leaf.low[..], &leaf.high) == (root, &[], &None)
        {
            return Ok(());
        }
        if leaves.is_empty() {
            self.rows_lost |= tree == CLUSTERED_TREE;
            return self.empty_leaf(tree, root, &[], None);
        }
        let mut children: Vec<Child> = Vec::new();
        let mut low: Option<Vec<u8>> = Some(Vec::new());
        for leaf in leaves {
            let from = low.take().unwrap_or_default();
            if from < leaf.low {
                self.gap(tree, from, Some(&leaf.low), &mut children)?;
            }
            children.push((leaf.low.clone(), leaf.page));
            low.clone_from(&leaf.high);
        }
        if let Some(from) = low {
            self.gap(tree, from, None, &mut children)?;
        }
        let mut level = 1;
        loop {
            let parts = self.parts(&children);
            paranoid!(
                parts.len() == 1 || parts.len() < children.len(),
                "{} nodes above {}: the tree would have no root",
                parts.len(),
                children.len()
            );
            if parts.len() == 1 {
                return self.node(tree, root, level, &[], None, &children);
            }
            let mut above = Vec::new();
            for (n, part) in parts.iter().enumerate() {
                let low = part[0].0.clone();
                let high = parts.get(n + 1).map(|next| next[0].0.clone());
                let page = self.take_page();
                self.node(tree, page, level, &low, high.as_deref(), part)?;
                above.push((low, page));
            }
            (children, level) = (above, level + 1);
        }
    }

    fn gap(
        &mut self,
        tree: TreeId,
        low: Vec<u8>,
        high: Option<&[u8]>,
        children: &mut Vec<Child>,
    ) -> Result<()> {
        let page = self.take_page();
        self.empty_leaf(tree, page, &low, high)?;
        let to = high.map_or("the end".to_owned(), |high| format!("{high:02x?}"));
        let what = format!("rows of tree {tree} from {low:02x?} to {to}, if there were any");
        self.rows_lost |= tree == CLUSTERED_TREE;
        self.left_out.push((None, what));
        children.push((low, page));
        Ok(())
    }

    /// Children dealt out to nodes that have room for them.
    fn parts(&self, children: &[Child]) -> Vec<Vec<Child>> {
        // Fences and a cell with its slot at most, beside each key.
        let key_max = children.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        let room = self.size - self.size / 8 - 64 - 2 * key_max;
        let (mut parts, mut taken) = (vec![Vec::new()], 0);
        for child in children {
            let need = child.0.len() + 32;
            let last = parts.len() - 1;
            if taken + need > room && parts[last].len() > 1 {
                parts.push(vec![child.clone()]);
                taken = need;
            } else {
                parts[last].push(child.clone());
                taken += need;
            }
        }
        paranoid!(
            parts.iter().map(Vec::len).sum::<usize>() == children.len(),
            "{} children were dealt out to {} nodes",
            children.len(),
            parts.len()
        );
        parts
    }

    fn node(
        &mut self,
        tree: TreeId,
        page: PageNo,
        level: u8,
        low: &[u8],
        high: Option<&[u8]>,
        children: &[Child],
    ) -> Result<()> {
        paranoid!(
            level > 0 && !children.is_empty(),
            "a node of level {level} over {} children",
            children.len()
        );
        let mut bytes = self.new_node(tree, page, level, low, high);
        let mut node = TreePageMut(&mut bytes);
        for (slot, (key, child)) in children.iter().enumerate() {
            node.insert_child(slot, key, *child)
                .map_err(|_| std::io::Error::other("a rebuilt node is too full"))?;
        }
        self.write(page, bytes)
    }

    fn new_node(
        &self,
        tree: TreeId,
        page: PageNo,
        level: u8,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Vec<u8> {
        let mut bytes = vec![0; self.size];
        let init = TreePageInit {
            tree,
            level,
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
        };
        TreePageMut(&mut bytes).init(PageId::new(self.image.space, page), &init);
        bytes
    }

    /// Header and space maps.
    fn own_pages(&mut self, roots: &BTreeMap<TreeId, PageNo>, control: &Control) -> Result<()> {
        let covered = map_pages(self.size);
        let last = self.used.last().map_or(0, |page| page.0);
        let regions = last / covered;
        self.end = self.end.max(regions * covered + OWN).max(last + 1);
        self.file.set_pages(self.end)?;
        for region in 0..=regions {
            let first = region * covered;
            let mut map = vec![0; self.size];
            let id = PageId::new(self.image.space, PageNo(first + 1));
            init_page(&mut map, id, PageType::SpaceMap);
            set_bits(&mut map, 0, OWN, true);
            let here = self.used.range(PageNo(first)..PageNo(first + covered));
            here.for_each(|page| set_bits(&mut map, page.0 - first, 1, true));
            self.write(PageNo(first + 1), map)?;
            if region > 0 {
                self.free_page(PageNo(first))?;
            }
        }
        let mut header = vec![0; self.size];
        init_page(
            &mut header,
            PageId::new(self.image.space, PageNo(0)),
            PageType::SpaceHeader,
        );
        let body = new_header(&control.uuid, control.page_size);
        header[PAGE_HEADER_LEN..PAGE_HEADER_LEN + body.len()].copy_from_slice(&body);
        header[MORE_MAPS_AT..MORE_MAPS_AT + 4].copy_from_slice(&regions.to_le_bytes());
        roots
            .iter()
            .for_each(|(&tree, &root)| set_root(&mut header, tree, root));
        self.write(PageNo(0), header)
    }
}
