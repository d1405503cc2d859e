//! Tables as files: export, so that a table's file may be copied, and import of such a copy.
//!
//! A copied file says of itself which tablespace it was, of which database. Import writes a new
//! file, page by page, that says what is true here:
//!
//! - every page that is allocated is read and checked (checksum, place), gets the new tablespace's
//!   number, an LSN of this log that is durable, and loses its version addresses, which would mean
//!   something else here: whatever is in the file counts as visible to all;
//! - pages that are free are left as zeroes: they are initialised before they are used.
//!
//! A table whose pages are placed is two files: the file, which says so of itself, and its place
//! map, which import finds beside the copy. How the pages of the new table lie is this database's
//! choice, whatever the source's was.
//!
//! The log says that the file is made before it is there, and says it again from time to time, so
//! that a checkpoint need not keep the log of a long import: a file without a catalog entry, and
//! which the log says was made, is what the next open removes. The pages are durable, and verified
//! as a table, before the catalog names it. So the table is there as a whole or not at all.

use super::checkpoint::Hold;
use super::{Database, Inner};
use crate::catalog::{CATALOG_SPACE, TableDefinition, check_name};
use crate::debug::debug_as;
use crate::mtr::Mtr;
use crate::options::TableOptions;
use crate::paranoid::paranoid;
use crate::rows::{Table, TreeRef};
use crate::space::Space;
use crate::store::Placement;
use crate::sync::{Instant, thread};
use crate::txn::state::{HasChanged, LOOK_TIME_MAX};
use crate::{Error, Result};
use inkstone_format::apply::{bit, map_pages};
use inkstone_format::header::{
    PageType, check_page, page_id, page_lsn, page_type, set_page_id, set_page_lsn, stamp_checksum,
};
use inkstone_format::image::{Made, UNIT_LEN, unpack};
use inkstone_format::place_map::{self, BLOCK_LEN, Place, PlaceMapHeader};
use inkstone_format::record::Record;
use inkstone_format::space::{self as format, PENDING_FREE_TREE, SPACE_VERSION};
use inkstone_format::tree_page::{TreePage, TreePageMut};
use inkstone_format::{Corrupt, Lsn, PageId, PageNo, SpaceId, TreeId};
use inkstone_io::{AlignedBuffer, Create, ErrorKind, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The extension of a place map's name; the rest is as of the file that it is of.
const MAP_EXTENSION: &str = "places";
/// How often the log is told that an import goes on.
const PAGES_BETWEEN_NOTES: u32 = 4096;

/// An export that goes on: the table's file is whole, and does not change. Dropping it ends the
/// export.
pub struct Export {
    space: Arc<Space>,
}

debug_as!(Export, "Export", |this| "files" = this.files());

impl Export {
    /// What is to be copied: the table's file, and its place map if its pages are placed. The copy
    /// of the map has the name of the file's with the extension `places`: import looks for it
    /// there.
    pub fn files(&self) -> Vec<PathBuf> {
        let file = self.space.file().path();
        let mut files = vec![file.to_owned()];
        if self.space.file().is_placed() {
            files.push(file.with_extension(MAP_EXTENSION));
        }
        files
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.space.freeze(false);
    }
}

impl Database {
    /// Writes everything of a table to its file, durably, and keeps background work away from it:
    /// its files ([`Export::files`]) may be copied until the export is dropped: that of
    /// [`Table::path`], and the place map beside it where the table's pages are placed. The caller
    /// keeps writers away. [`Error::TransactionState`] if a transaction has unfinished changes in
    /// the table, or another export of it goes on.
    pub fn export_table(&self, table: &Table) -> Result<Export> {
        // What recovery did to the file is in memory.
        self.inner.core.check_writable()?;
        let space = table.tree_ref().live(&self.inner.core)?.space.clone();
        // Whatever purge has begun is over then.
        let _no_purge = self.inner.core.purging.lock();
        if !space.freeze(true) {
            return Err(Error::TransactionState(
                "not alone: another export of the table goes on",
            ));
        }
        let export = Export { space };
        self.check_unchanged(export.space.id)?;
        self.flush_table(table)?;
        if export.space.file().is_placed() {
            // The map says where the pages are. No checkpoint cuts the file while it is copied.
            export.space.file().sync()?;
            export.space.file().settle_places(0)?;
        }
        paranoid!(
            export.files().len() == 1 + usize::from(export.space.file().is_placed()),
            "an export of {:?}",
            export.files()
        );
        Ok(export)
    }

    /// That no transaction would have to undo a change of a tablespace.
    fn check_unchanged(&self, space: SpaceId) -> Result<()> {
        let begun = Instant::now();
        for writer in self.inner.core.writers() {
            loop {
                match writer.has_changed(&self.inner.core, space)? {
                    HasChanged::No => break,
                    HasChanged::Yes => {
                        return Err(Error::TransactionState(
                            "not alone: another one has unfinished changes in the table",
                        ));
                    }
                    HasChanged::Busy if begun.elapsed() > LOOK_TIME_MAX => {
                        return Err(Error::TransactionState(
                            "not alone: another one is in a long statement, and may have changed the table",
                        ));
                    }
                    HasChanged::Busy => thread::sleep(Duration::from_millis(1)),
                }
            }
        }
        Ok(())
    }

    /// Makes a table of a copied table file, also of another database's: `trees` are the numbers of
    /// its trees there ([`TableTree::number`](crate::TableTree::number)) and their names here, the
    /// clustered tree first. Trees of the file that are not named are dropped (it may have one that
    /// was dropped already, and whose pages were not all free yet). Page size and format must be
    /// this database's ([`Error::InvalidOption`], [`Error::NewerFormat`]) and every page sound
    /// ([`Error::Corrupt`]). If the file's pages are placed, the place map is beside it, under the
    /// same name with the extension `places`. The files are only read. The table is there as a
    /// whole or not at all, whatever happens meanwhile.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let copy = dir.path().join("copy");
    /// let db = Database::open(dir.path().join("one"), Options::default())?;
    /// let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, b"a", b"1")?;
    /// txn.commit()?;
    /// let export = db.export_table(&table)?;
    /// std::fs::copy(table.path(), &copy).unwrap();
    /// drop(export);
    ///
    /// let other = Database::open(dir.path().join("two"), Options::default())?;
    /// let table = other.import_table("t", &copy, &[(0, "primary")])?;
    /// let txn = other.begin(Isolation::RepeatableRead)?;
    /// assert_eq!(txn.get(&table, b"a")?, Some(b"1".to_vec()));
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn import_table(&self, name: &str, file: &Path, trees: &[(u32, &str)]) -> Result<Table> {
        self.import_table_with(name, file, trees, &TableOptions::new())
    }

    /// As [`import_table`](Self::import_table), with options of the table: what its pages were in
    /// the other database does not matter. [`Error::InvalidOption`] for those that do not go
    /// together.
    pub fn import_table_with(
        &self,
        name: &str,
        file: &Path,
        trees: &[(u32, &str)],
        options: &TableOptions,
    ) -> Result<Table> {
        check_name("table", name)?;
        let inner = &self.inner;
        let placement = Placement::of(options.resolve(&inner.new_table)?);
        let _ddl = inner.begin_ddl()?;
        if self.definition(name)?.is_some() {
            return Err(Error::AlreadyExists(format!("table {name}")));
        }
        let source = Source::open(inner, file)?;
        let trees = source.named(trees)?;
        let space = inner.new_space()?;
        paranoid!(
            space > CATALOG_SPACE,
            "table {name} would be the catalog, {space}"
        );
        let definition = TableDefinition {
            name: name.to_owned(),
            space,
            trees,
            references: Vec::new(),
            layouts: Vec::new(),
        };
        let hold = inner.hold_log();
        let made = source
            .write_to(inner, (space, placement), &hold)
            .and_then(|()| inner.open_table(&definition))
            .and_then(|table| self.verify_table(&table))
            .and_then(|_| self.redefine(&definition));
        if made.is_err() {
            inner.unmake_space(space)?;
        }
        drop(hold);
        made?;
        // What the source had not freed yet, also if purge has looked meanwhile.
        inner.core.pending_free.lock().insert(space);
        self.find_table(name)
    }
}

/// A file to import.
struct Source<'a> {
    path: &'a Path,
    file: Arc<dyn File>,
    page_size: usize,
    pages: u32,
    /// Its tablespace, where it comes from.
    space: SpaceId,
    header: Vec<u8>,
    /// Where its pages are, if they are placed.
    places: Option<Places>,
}

/// The place map beside a file to import.
struct Places {
    path: PathBuf,
    places: Vec<Place>,
}

impl<'a> Source<'a> {
    fn open(inner: &Inner, path: &'a Path) -> Result<Self> {
        let page_size = inner.core.storage.page_size;
        let options = OpenOptions {
            create: Create::Never,
            read_only: true,
            direct: false,
            dsync: false,
        };
        let file = inner
            .vfs
            .open_file(path, options)
            .map_err(|e| Error::io("open", path, e))?;
        let length = file.len().map_err(|e| Error::io("measure", path, e))?;
        let mut source = Self {
            path,
            file,
            page_size,
            pages: u32::try_from(length / page_size as u64).unwrap_or(u32::MAX),
            space: SpaceId(0),
            header: vec![0; page_size],
            places: None,
        };
        source.find_places(inner)?;
        if source.pages == 0 {
            return Err(Error::corrupt_file(path, 0, "shorter than a page"));
        }
        let mut header = AlignedBuffer::zeroed(page_size);
        source.read_unchecked(PageNo(0), &mut header)?;
        let found = format::page_size(&header);
        if page_type(&header) == Some(PageType::SpaceHeader) && found as usize != page_size {
            return Err(source.other_page_size(found));
        }
        source.space = page_id(&header).space;
        source.check(PageNo(0), &header)?;
        if format::version(&header) > SPACE_VERSION {
            return Err(Error::NewerFormat {
                path: path.to_owned(),
                found: format::version(&header),
                known: SPACE_VERSION,
            });
        }
        format::check_header(&header, &format::uuid(&header))
            .map_err(|corrupt| source.corrupt(PageNo(0), corrupt))?;
        source.header.copy_from_slice(&header);
        Ok(source)
    }

    fn has_tree(&self, tree: TreeId) -> bool {
        format::root(&self.header, tree).is_some()
    }

    /// The trees of the file under the names that they are to have.
    fn named(&self, trees: &[(u32, &str)]) -> Result<Vec<(TreeId, String)>> {
        let refuse = |value: String, reason: &str| Error::InvalidOption {
            name: "trees".to_owned(),
            value,
            reason: reason.to_owned(),
        };
        let mut named: Vec<(TreeId, String)> = Vec::new();
        for &(number, name) in trees {
            check_name("tree", name)?;
            let twice = |(id, other): &(TreeId, String)| id.0 == number || other == name;
            if named.iter().any(twice) {
                return Err(refuse(name.to_owned(), "a tree is named twice"));
            }
            named.push((TreeId(number), name.to_owned()));
        }
        if named.first().is_none_or(|(id, _)| *id != TreeId(0)) {
            return Err(refuse(
                String::new(),
                "the first one must be tree 0, the clustered one",
            ));
        }
        for tree in (0..PENDING_FREE_TREE.0).map(TreeId) {
            if !self.has_tree(tree) && named.iter().any(|(id, _)| *id == tree) {
                return Err(refuse(tree.to_string(), "the file has no such tree"));
            }
        }
        match named.iter().find(|(id, _)| *id >= PENDING_FREE_TREE) {
            Some((id, _)) => Err(refuse(id.to_string(), "the file has no such tree")),
            None => Ok(named),
        }
    }

    fn read_unchecked(&self, page: PageNo, buffer: &mut [u8]) -> Result<()> {
        paranoid!(
            page.0 < self.pages && buffer.len() == self.page_size,
            "page {page} of {} is read into {} bytes",
            self.pages,
            buffer.len()
        );
        if let Some(places) = &self.places {
            return self.read_placed(places, page, buffer);
        }
        let offset = u64::from(page.0) * self.page_size as u64;
        let read = self.file.read_at(buffer, offset);
        read.map_err(|e| Error::io(format!("read page {page} of"), self.path, e))
    }

    fn other_page_size(&self, found: u32) -> Error {
        Error::InvalidOption {
            name: "page_size".to_owned(),
            value: found.to_string(),
            reason: format!(
                "{} has pages of that size, this database has pages of {} bytes",
                self.path.display(),
                self.page_size
            ),
        }
    }

    /// Reads the place map beside the file, if its pages are placed.
    fn find_places(&mut self, inner: &Inner) -> Result<()> {
        let path = self.path.with_extension(MAP_EXTENSION);
        let map = read_all(inner, &path);
        let mut block = [0; BLOCK_LEN];
        match self.file.read_at(&mut block, 0) {
            Ok(()) if place_map::is_placed(&block) => {}
            Ok(()) | Err(_) if map.is_ok() => {
                let detail = format!(
                    "a place map is beside the file, {}, and the file does not begin as one of \
                     placed pages",
                    path.display()
                );
                return Err(Error::corrupt_file(self.path, 0, detail));
            }
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(Error::io("read", self.path, e)),
        }
        let corrupt = |c: Corrupt| Error::corrupt_file(self.path, c.offset as u64, c.detail);
        let header = PlaceMapHeader::decode_in_data(&block).map_err(corrupt)?;
        if header.page_size as usize != self.page_size {
            return Err(self.other_page_size(header.page_size));
        }
        let bytes = map.map_err(|e| match e.kind() {
            ErrorKind::NotFound => {
                let detail = format!(
                    "the pages of this file are placed, and the map that says where they are is \
                     missing: {}; copy both files of the export",
                    path.display()
                );
                Error::corrupt_file(self.path, 0, detail)
            }
            _ => Error::io("read", &path, e),
        })?;
        let parsed = place_map::parse(&bytes);
        let (of_map, mut places) =
            parsed.map_err(|c| Error::corrupt_file(&path, c.offset as u64, c.detail))?;
        if (of_map.space, of_map.page_size) != (header.space, header.page_size) {
            let detail = format!(
                "this is the place map of tablespace {} with pages of {} bytes, and the file \
                 beside it is of {} with {}",
                of_map.space, of_map.page_size, header.space, header.page_size
            );
            return Err(Error::corrupt_file(&path, 0, detail));
        }
        let used = places.iter().rposition(|place| *place != Place::default());
        places.truncate(used.map_or(0, |last| last + 1));
        self.space = header.space;
        self.pages = places.len() as u32;
        self.places = Some(Places { path, places });
        Ok(())
    }

    fn read_placed(&self, map: &Places, page: PageNo, buffer: &mut [u8]) -> Result<()> {
        paranoid!(
            (page.0 as usize) < map.places.len() && buffer.len() == self.page_size,
            "page {page} of {} is read into {} bytes",
            map.places.len(),
            buffer.len()
        );
        let place = map.places[page.0 as usize];
        if place.is_lost() {
            let detail = format!("the place map {} has lost it", map.path.display());
            return Err(self.corrupt(page, Corrupt::at(0, detail)));
        }
        if place.is_empty() {
            buffer.fill(0);
            return Ok(());
        }
        let bytes = place.units() as usize * UNIT_LEN;
        if bytes > self.page_size.next_multiple_of(UNIT_LEN) {
            let detail = format!("an image of {} bytes", place.length);
            return Err(self.corrupt(page, Corrupt::at(0, detail)));
        }
        let mut image = AlignedBuffer::zeroed(bytes);
        let offset = u64::from(place.unit) * UNIT_LEN as u64;
        match self.file.read_at(&mut image, offset) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                let detail = format!("its image at {offset} is beyond the file's end");
                return Err(self.corrupt(page, Corrupt::at(0, detail)));
            }
            Err(e) => return Err(Error::io(format!("read page {page} of"), self.path, e)),
        }
        let made = Made {
            codec: place.codec,
            length: place.length,
        };
        let id = PageId::new(self.space, page);
        unpack(made, id, &image, buffer).map_err(|c| self.corrupt(page, c))?;
        if page_lsn(buffer) != place.lsn {
            let detail = format!(
                "page LSN {}, and the place map {} says {}: the files are not of one time",
                page_lsn(buffer),
                map.path.display(),
                place.lsn
            );
            return Err(self.corrupt(page, Corrupt::at(16, detail)));
        }
        Ok(())
    }

    fn corrupt(&self, page: PageNo, corrupt: Corrupt) -> Error {
        Error::corrupt_page(self.path, PageId::new(self.space, page), corrupt)
    }

    fn check(&self, page: PageNo, bytes: &[u8]) -> Result<()> {
        let id = PageId::new(self.space, page);
        check_page(bytes, id).map_err(|corrupt| self.corrupt(page, corrupt))?;
        if matches!(page_type(bytes), Some(PageType::Leaf | PageType::Inner)) {
            let checked = TreePage(bytes).check();
            checked.map_err(|corrupt| self.corrupt(page, corrupt))?;
        }
        Ok(())
    }

    /// Writes the file of a new tablespace, durably.
    fn write_to(
        &self,
        inner: &Inner,
        (space, placement): (SpaceId, Placement),
        hold: &Hold<'_>,
    ) -> Result<()> {
        let log = &inner.core.storage.log;
        paranoid!(
            inner.is_ddl_latched(),
            "tablespace {space} is imported beside changes of tables"
        );
        let lsn = note_creation(inner, space)?;
        log.wait_durable(lsn)?;
        let mut copied = 0;
        let target = inner.files.create(space, self.pages, placement)?;
        let mut page = AlignedBuffer::zeroed(self.page_size);
        let mut copy = |number: PageNo| -> Result<()> {
            self.read_unchecked(number, &mut page)?;
            self.check(number, &page)?;
            adopt(&mut page, PageId::new(space, number), lsn, &inner.uuid);
            copied += 1;
            if copied % PAGES_BETWEEN_NOTES == 0 {
                let ready = log.ready_lsn();
                note_creation(inner, space)?;
                hold.renew(ready);
            }
            target.write_raw_page(number, &page)
        };
        copy(PageNo(0))?;
        target.sync()?;
        let covered = map_pages(self.page_size);
        let mut map = AlignedBuffer::zeroed(self.page_size);
        for region in 0..=format::more_maps(&self.header) {
            let first = region
                .checked_mul(covered)
                .filter(|first| first + 1 < self.pages);
            let Some(first) = first else {
                let what = Corrupt::at(format::MORE_MAPS_AT, "the file is cut short".to_owned());
                return Err(self.corrupt(PageNo(0), what));
            };
            let map_page = PageNo(first + 1);
            self.read_unchecked(map_page, &mut map)?;
            self.check(map_page, &map)?;
            for n in (0..covered).filter(|&n| bit(&map, n)) {
                let number = PageNo(first.saturating_add(n));
                if number.0 >= self.pages {
                    let what = Corrupt::at(0, format!("page {number} is beyond the file's end"));
                    return Err(self.corrupt(map_page, what));
                }
                // The first page of a later region is kept free of use, and was never written.
                if number.0 != 0 && !(region > 0 && n == 0) {
                    inner.core.storage.poison.check()?;
                    copy(number)?;
                }
            }
        }
        paranoid!(
            copied >= crate::space::SYSTEM_PAGES && copied <= self.pages,
            "{copied} pages were copied of {}",
            self.pages
        );
        target.sync()
    }
}

fn read_all(inner: &Inner, path: &Path) -> std::io::Result<Vec<u8>> {
    let options = OpenOptions {
        create: Create::Never,
        read_only: true,
        direct: false,
        dsync: false,
    };
    let file = inner.vfs.open_file(path, options)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Says in the log that a tablespace's file is being made; the end of that.
fn note_creation(inner: &Inner, space: SpaceId) -> Result<Lsn> {
    let mut mtr = Mtr::new(&inner.core.storage);
    mtr.note(&Record::FileCreate { space });
    let (start, end) = mtr.commit()?;
    paranoid!(
        start < end && space != CATALOG_SPACE,
        "the creation of tablespace {space} is logged from LSN {start} to {end}"
    );
    Ok(end)
}

/// Makes a page of another tablespace one of this.
fn adopt(page: &mut [u8], id: PageId, lsn: Lsn, uuid: &[u8; 16]) {
    match page_type(page) {
        Some(PageType::SpaceHeader) => format::set_uuid(page, uuid),
        Some(PageType::Leaf) => TreePageMut(page).compact(&|_| false),
        _ => {}
    }
    set_page_id(page, id);
    set_page_lsn(page, lsn);
    stamp_checksum(page);
    paranoid!(
        check_page(page, id).is_ok(),
        "page {id} is not one after it was imported"
    );
}
