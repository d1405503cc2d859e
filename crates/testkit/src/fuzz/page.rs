//! Targets over tree pages.

use super::Target;
use super::input::Input;
use inkstone_format::header::{self, PageType};
use inkstone_format::tree_page::{
    CELL_DELETED, CELL_OVERFLOW, NOTHING_LIVE, TreePage, TreePageInit, TreePageMut, key_len_max,
};
use inkstone_format::{PageId, PageNo, SpaceId, TreeId, VersionAddress};
use std::collections::BTreeMap;

/// `page`: a page as it may come from disk.
pub const PAGE: Target = Target {
    name: "page",
    about: "a page from disk: checked, read through every accessor, then changed",
    run: page,
    seeds: page_seeds,
    input_max: 8 << 10,
    allocation_max_mib: 8,
};

/// `edits`: changes of a page beside a map.
pub const EDITS: Target = Target {
    name: "edits",
    about: "inserts, updates, removals, fences and compaction of a page, beside an ordered map",
    run: edits,
    seeds: edit_seeds,
    input_max: 4 << 10,
    allocation_max_mib: 8,
};

/// The page that targets change.
pub(super) const ID: PageId = PageId::new(SpaceId(3), PageNo(77));

/// A page whose middle, mostly zeroes, the input leaves out: size, length of its head, head, tail.
pub(super) fn sparse_page(data: &[u8]) -> Vec<u8> {
    let mut input = Input::new(data);
    let mut page = vec![0; input.pick(&[4096, 8192, 16384, 65536])];
    let head_len = usize::from(input.u16());
    let head = input.take(head_len.min(page.len()));
    page[..head.len()].copy_from_slice(head);
    let room = page.len() - head.len();
    let tail = input.take(room);
    let at = page.len() - tail.len();
    page[at..].copy_from_slice(tail);
    page
}

/// The input of which [`sparse_page`] makes this page.
pub(super) fn sparse_input(page: &[u8]) -> Vec<u8> {
    let zeroes = |from: usize| page[from..].iter().take_while(|&&b| b == 0).count();
    // A page's longest run of zeroes lies between its slots and its heap.
    let (mut at, mut gap) = (0, (0, 0));
    while at < page.len() {
        let length = zeroes(at);
        gap = std::cmp::max(gap, (length, at));
        at += length + 1;
    }
    let (length, at) = gap;
    let size = page.len().trailing_zeros() - 12;
    let mut input = vec![if size == 4 { 3 } else { size as u8 }];
    input.extend((at as u16).to_le_bytes());
    input.extend(&page[..at]);
    input.extend(&page[at + length..]);
    input
}

/// Pages of many shapes: full and empty, leaves and inner nodes, with and without fences.
pub(super) fn sample_pages() -> Vec<(String, Vec<u8>)> {
    let fences: [(&[u8], Option<&[u8]>); 3] = [
        (b"", None),
        (b"", Some(b"user9")),
        (b"user0", Some(b"user9")),
    ];
    let mut pages = Vec::new();
    for size in [4096, 16384] {
        for (n, (low, high)) in fences.into_iter().enumerate() {
            for level in [0, 1] {
                for count in [0u16, 3, 200] {
                    let page = sample_page(size, level, low, high, count);
                    pages.push((
                        format!("size{size}-fences{n}-level{level}-cells{count}"),
                        page,
                    ));
                }
            }
        }
    }
    pages
}

fn sample_page(size: usize, level: u8, low: &[u8], high: Option<&[u8]>, count: u16) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let mut page = TreePageMut(&mut bytes);
    let (low, high) = (low.to_vec(), high.map(<[u8]>::to_vec));
    page.init(
        ID,
        &TreePageInit {
            tree: TreeId(1),
            level,
            low: low.clone(),
            high,
        },
    );
    for n in 0..count {
        let key = if level > 0 && n == 0 {
            low.clone()
        } else {
            format!("user{:04}", 1000 + n).into_bytes()
        };
        let slot = page.read().count();
        let inserted = if level > 0 {
            page.insert_child(slot, &key, PageNo(100 + u32::from(n)))
        } else {
            let version = (n % 3 == 0).then_some(VersionAddress(7));
            let flags = if n % 5 == 0 { CELL_DELETED } else { 0 };
            let value = vec![n as u8; usize::from(n % 40)];
            page.insert(slot, flags, version, &key, &value, NOTHING_LIVE)
        };
        if inserted.is_err() {
            break;
        }
    }
    if level > 0 && count == 0 {
        let _ = page.insert_child(0, &low, PageNo(9));
    }
    header::stamp_checksum(&mut bytes);
    bytes
}

fn page_seeds() -> Vec<(String, Vec<u8>)> {
    let pages = sample_pages().into_iter();
    pages
        .map(|(name, page)| (name, sparse_input(&page)))
        .collect()
}

/// Whether the page is a tree page that may be read.
pub(super) fn is_sound_tree_page(page: &[u8]) -> bool {
    matches!(
        header::page_type(page),
        Some(PageType::Leaf | PageType::Inner)
    ) && TreePage(page).check().is_ok()
}

fn page(data: &[u8]) {
    let mut page = sparse_page(data);
    let _ = header::check_page(&page, ID);
    let _ = header::check_page(&page, header::page_id(&page));
    let _ = (header::page_lsn(&page), header::is_zero(&page));
    header::stamp_checksum(&mut page);
    let _ = header::check_page(&page, header::page_id(&page));
    if !is_sound_tree_page(&page) {
        return;
    }
    read_all(TreePage(&page));
    let keys: Vec<_> = (0..TreePage(&page).count())
        .map(|slot| TreePage(&page).key(slot))
        .collect();
    if TreePage(&page).is_leaf() {
        change_leaf(&page, &keys);
    } else {
        read_children(TreePage(&page), &keys);
    }
    let mut copy = page.clone();
    TreePageMut(&mut copy).compact(NOTHING_LIVE);
    assert_sound(&copy, "compaction");
    let after: Vec<_> = (0..keys.len())
        .map(|slot| TreePage(&copy).key(slot))
        .collect();
    assert_eq!(keys, after, "compaction changes keys");
}

/// Every accessor, on a page that was checked.
fn read_all(page: TreePage<'_>) {
    let _ = (
        page.tree(),
        page.level(),
        page.low(),
        page.high(),
        page.prefix(),
    );
    assert_eq!(page.used() + page.free(), page.capacity());
    assert!(page.contiguous_free() <= page.free());
    assert!(page.has_room(page.free(), NOTHING_LIVE));
    let mut cells = 0;
    for slot in 0..page.count() {
        let cell = page.cell(slot);
        let _ = (cell.is_deleted(), cell.is_overflow());
        cells += cell.len + inkstone_format::tree_page::SLOT_LEN;
    }
    assert_eq!(cells, page.used());
}

fn read_children(page: TreePage<'_>, keys: &[Vec<u8>]) {
    for (slot, key) in keys.iter().enumerate() {
        let _ = page.child(slot);
        assert!(page.child_slot(key) < keys.len());
        assert!(page.child_slot_before(key) < keys.len());
        // Slot 0 stands for whatever is below slot 1.
        if slot > 0 {
            assert_eq!(page.child_slot(key), slot);
            assert_eq!(page.child_slot_before(key), slot - 1);
        }
    }
}

/// Keys that are, or lie beside, those of a page.
fn near(key: &[u8]) -> [Vec<u8>; 3] {
    let shorter = &key[..key.len().saturating_sub(1)];
    [key.to_vec(), [key, &[0]].concat(), shorter.to_vec()]
}

fn change_leaf(page: &[u8], keys: &[Vec<u8>]) {
    let tree = TreePage(page);
    for key in keys.iter().flat_map(|key| near(key)) {
        assert_eq!(tree.search(&key), keys.binary_search(&key));
    }
    let slots = [0, keys.len() / 2, keys.len().saturating_sub(1)];
    for slot in slots.into_iter().filter(|&slot| slot < keys.len()) {
        let mut copy = page.to_vec();
        let cell = tree.cell(slot);
        let longer = [cell.value, b"and more"].concat();
        let (flags, version) = (cell.flags, Some(VersionAddress(1)));
        if TreePageMut(&mut copy)
            .replace(slot, flags, version, &longer, NOTHING_LIVE)
            .is_ok()
        {
            assert_sound(&copy, "a replaced value");
            assert_eq!(TreePage(&copy).cell(slot).value, longer);
        }
        let [.., between] = [keys[slot].clone(), [&keys[slot][..], &[0]].concat()];
        if let (true, Err(at)) = (tree.covers(&between), tree.search(&between)) {
            let mut copy = page.to_vec();
            if TreePageMut(&mut copy)
                .insert(at, 0, None, &between, b"new", NOTHING_LIVE)
                .is_ok()
            {
                assert_sound(&copy, "an insert");
                assert_eq!(TreePage(&copy).key(at), between);
            }
        }
        let mut copy = page.to_vec();
        TreePageMut(&mut copy).remove(slot, 1);
        assert_sound(&copy, "a removal");
        let mut copy = page.to_vec();
        if TreePageMut(&mut copy)
            .set_high(slot, Some(&keys[slot]), NOTHING_LIVE)
            .is_ok()
            && keys[slot].as_slice() > tree.low()
        {
            assert_sound(&copy, "a new fence");
        }
    }
}

fn assert_sound(page: &[u8], after: &str) {
    if let Err(corrupt) = TreePage(page).check() {
        panic!("the page is corrupt after {after}: {corrupt}");
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    flags: u8,
    version: Option<VersionAddress>,
    value: Vec<u8>,
}

/// Odd addresses matter, even ones do not.
fn is_live(version: VersionAddress) -> bool {
    version.0 % 2 == 1
}

/// A leaf beside its model.
struct Leaf {
    page: Vec<u8>,
    rows: BTreeMap<Vec<u8>, Row>,
    high: Option<Vec<u8>>,
}

impl Leaf {
    fn new(input: &mut Input<'_>) -> Self {
        let mut page = vec![0; input.pick(&[4096, 16384, 65536])];
        let limit = key_len_max(page.len());
        let (mut low, mut high) = (input.short(), (input.u8() % 2 == 1).then(|| input.short()));
        low.resize(low.len() * usize::from(input.u8() % 4), b'l');
        low.truncate(limit);
        high = high.filter(|high| *high > low);
        let init = TreePageInit {
            tree: TreeId(1),
            level: 0,
            low,
            high: high.clone(),
        };
        TreePageMut(&mut page).init(ID, &init);
        Self {
            page,
            rows: BTreeMap::new(),
            high,
        }
    }

    fn key(&self, input: &mut Input<'_>) -> Vec<u8> {
        let mut key = TreePage(&self.page).low().to_vec();
        let keep = input.below(key.len() + 1);
        key.truncate(keep);
        key.extend(input.short());
        key.truncate(key_len_max(self.page.len()));
        key
    }

    fn row(input: &mut Input<'_>) -> Row {
        let flags = input.u8() & (CELL_DELETED | CELL_OVERFLOW);
        let version = (input.u8() % 2 == 1).then(|| VersionAddress(input.u64()));
        let (fill, count) = (input.u8(), input.u16() % 2100);
        let length = if fill % 4 == 0 { count } else { count % 40 };
        Row {
            flags,
            version,
            value: vec![fill; usize::from(length)],
        }
    }

    fn put(&mut self, key: Vec<u8>, row: Row) {
        let mut page = TreePageMut(&mut self.page);
        if !page.read().covers(&key) {
            return;
        }
        let before = page.read().free();
        let put = match page.read().search(&key) {
            Ok(slot) => page.replace(slot, row.flags, row.version, &row.value, &is_live),
            Err(slot) => page.insert(slot, row.flags, row.version, &key, &row.value, &is_live),
        };
        if put.is_ok() {
            self.rows.insert(key, row);
        } else {
            let needed = key.len() + row.value.len() + 32;
            assert!(
                before < needed,
                "no room for {needed} bytes where {before} are free"
            );
        }
    }

    fn remove(&mut self, input: &mut Input<'_>) {
        let slot = input.below(self.rows.len());
        let count = (1 + input.below(8)).min(self.rows.len() - slot);
        TreePageMut(&mut self.page).remove(slot, count);
        let keys: Vec<_> = self.rows.keys().skip(slot).take(count).cloned().collect();
        keys.iter().for_each(|key| drop(self.rows.remove(key)));
    }

    fn set_high(&mut self, input: &mut Input<'_>) {
        let keep = input.below(self.rows.len() + 1);
        let high = (!input.u8().is_multiple_of(4)).then(|| self.key(input));
        let above = |key: Option<&Vec<u8>>| match (key, &high) {
            (Some(key), Some(high)) => key < high,
            _ => true,
        };
        let low = TreePage(&self.page).low().to_vec();
        if !above(Some(&low)) || (keep > 0 && !above(self.rows.keys().nth(keep - 1))) {
            return;
        }
        if TreePageMut(&mut self.page)
            .set_high(keep, high.as_deref(), &is_live)
            .is_ok()
        {
            self.rows = std::mem::take(&mut self.rows)
                .into_iter()
                .take(keep)
                .collect();
            self.high = high;
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 8 {
            0..=3 => {
                let key = self.key(input);
                self.put(key, Self::row(input));
            }
            4 if !self.rows.is_empty() => {
                let at = input.below(self.rows.len());
                let key = self.rows.keys().nth(at).cloned().unwrap_or_default();
                self.put(key, Self::row(input));
            }
            5 if !self.rows.is_empty() => self.remove(input),
            6 => self.set_high(input),
            7 => TreePageMut(&mut self.page).compact(&is_live),
            _ => {}
        }
    }

    fn compare(&self) {
        assert_sound(&self.page, "a change");
        let page = TreePage(&self.page);
        assert_eq!(page.high(), self.high.as_deref());
        assert_eq!(page.count(), self.rows.len());
        for (slot, (key, row)) in self.rows.iter().enumerate() {
            let cell = page.cell(slot);
            assert_eq!(page.search(key), Ok(slot));
            assert_eq!(cell.value, row.value);
            assert_eq!(cell.flags & (CELL_DELETED | CELL_OVERFLOW), row.flags);
            // An address that does not matter may be dropped at any time.
            let wanted = row
                .version
                .filter(|&v| is_live(v) || cell.version.is_some());
            assert_eq!(cell.version, wanted);
        }
    }
}

fn edits(data: &[u8]) {
    let mut input = Input::new(data);
    let mut leaf = Leaf::new(&mut input);
    while !input.is_empty() {
        leaf.step(&mut input);
        leaf.compare();
    }
}

fn edit_seeds() -> Vec<(String, Vec<u8>)> {
    super::input::dice_seeds(6, 400)
}
