//! Tables whose file has terabytes, nearly all of which the space maps call allocated.
//!
//! A small table is made and closed in order; then its file becomes as long as wanted, with maps
//! that say that all of it is in use. The simulated disk keeps the maps alone.
//!
//! # What must hold
//!
//! 1. No row that is written reads more than `READS_MAX` pages, however many maps there are:
//!    neither the first one after an opening nor those after a page low in the file was freed. (But
//!    for one, where there is no page number left behind the file's end.)
//! 2. What is free is found, wherever it lies.
//! 3. Where there is no page number left the statement fails and says so; the engine lives, reads
//!    and deletes, uses what is freed, and opens again.

use super::session::DIRECTORY;
use crate::campaign::watched;
use inkstone::internals::store::space_file_name;
use inkstone::{Database, Error, Isolation, Options, Table};
use inkstone_format::apply::{map_pages, set_bits};
use inkstone_format::header::{PageType, init_page, page_lsn, set_page_lsn, stamp_checksum};
use inkstone_format::space::{MORE_MAPS_AT, PAGES_MAX};
use inkstone_format::{PageId, PageNo, SpaceId};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most pages that the insertion of a row may read, what the background reads meanwhile
/// included.
const READS_MAX: u64 = 48;
/// The tablespace of the first table.
const SPACE: SpaceId = SpaceId(1);
/// Rows that the table begins with, each nearly half a page.
const ROWS: u64 = 60;

/// A file that is to be filled up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// One TiB in use, in pages of 4 KiB, and room behind it.
    Terabyte,
    /// All page numbers in use but for the last few.
    NearTheEnd,
    /// All page numbers in use but for a few in a region in the middle.
    HoleInTheMiddle,
}

impl Case {
    /// All cases.
    pub const ALL: [Case; 3] = [Case::Terabyte, Case::NearTheEnd, Case::HoleInTheMiddle];

    fn page_size(self) -> u64 {
        match self {
            Case::Terabyte => 4096,
            // Fewest maps.
            Case::NearTheEnd | Case::HoleInTheMiddle => 65_536,
        }
    }

    /// Pages that the file has.
    fn pages(self) -> u32 {
        match self {
            Case::Terabyte => (1 << 28) + 5_000,
            Case::NearTheEnd | Case::HoleInTheMiddle => PAGES_MAX,
        }
    }

    /// Pages that are free.
    fn free(self) -> std::ops::Range<u32> {
        let pages = self.pages();
        match self {
            Case::Terabyte => 1 << 28..pages,
            Case::NearTheEnd => pages - 10..pages,
            Case::HoleInTheMiddle => {
                let middle = pages / 2;
                middle..middle + 10
            }
        }
    }

    /// The most pages that the insertion of a row may read.
    fn reads_max(self) -> u64 {
        match self {
            Case::Terabyte => READS_MAX,
            Case::NearTheEnd | Case::HoleInTheMiddle => u64::MAX,
        }
    }

    /// Rows that are to find a page. None: all that ten pages take, which is twenty at most, and
    /// what the last leaf takes beside.
    fn rows(self) -> Option<u64> {
        (self == Case::Terabyte).then_some(400)
    }
}

/// Runs a case.
pub fn run(case: Case) -> Result<(), String> {
    let name = format!("huge {case:?}");
    watched(&name, || Run::new(case)?.run()).map_err(|text| format!("{name}: {text}"))
}

struct Run {
    case: Case,
    vfs: SimVfs,
    /// Keys that were acknowledged.
    keys: BTreeSet<u64>,
    next_key: u64,
}

fn failed(what: &'static str) -> impl Fn(Error) -> String {
    move |error| format!("{what}: {error}")
}

impl Run {
    fn new(case: Case) -> Result<Self, String> {
        let mut this = Self {
            case,
            vfs: SimVfs::new(1),
            keys: BTreeSet::new(),
            next_key: 0,
        };
        let db = this.open()?;
        let table = db.create_table("t", &[]).map_err(failed("creating"))?;
        for _ in 0..ROWS {
            this.insert(&db, &table).map_err(failed("filling"))?;
        }
        drop(table);
        db.close().map_err(failed("closing"))?;
        this.vfs = this.vfs.kill();
        this.fill_up()
            .map_err(|error| format!("filling up: {error}"))?;
        this.vfs
            .set_capacity_bytes(this.vfs.used_bytes() + (1 << 30));
        Ok(this)
    }

    fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(space_file_name(SPACE))
    }

    fn open(&self) -> Result<Database, String> {
        let page_size = self.case.page_size();
        let options = Options {
            page_size,
            buffer_pool_size: 64 * page_size,
            buffer_pool_instances: 1,
            buffer_pool_dump_at_shutdown: false,
            log_file_size: 16 << 20,
            log_buffer_size: 2 << 20,
            ..Options::default()
        };
        let vfs = Arc::new(self.vfs.clone());
        Database::open_on(vfs, Path::new(DIRECTORY), options, &|_| {}).map_err(failed("opening"))
    }

    /// Has the maps of the table's file say that all is in use but for what is to be free.
    fn fill_up(&self) -> std::io::Result<()> {
        let (path, page_size) = (self.path(), self.case.page_size() as usize);
        let (covered, pages, free) = (map_pages(page_size), self.case.pages(), self.case.free());
        let mut header = self.vfs.read_raw(&path)?;
        let lsn = page_lsn(&header[page_size..]);
        header.truncate(page_size);
        let region_last = (pages - 1) / covered;
        header[MORE_MAPS_AT..MORE_MAPS_AT + 4].copy_from_slice(&region_last.to_le_bytes());
        stamp_checksum(&mut header);
        self.vfs.write_raw(&path, 0, &header)?;
        let mut map = vec![0; page_size];
        for region in 0..=region_last {
            let first = region * covered;
            let id = PageId::new(SPACE, PageNo(first + 1));
            init_page(&mut map, id, PageType::SpaceMap);
            set_bits(&mut map, 0, covered.min(pages - first), true);
            let (from, to) = (
                free.start.max(first),
                free.end.min(first.saturating_add(covered)),
            );
            if from < to {
                set_bits(&mut map, from - first, to - from, false);
            }
            set_page_lsn(&mut map, lsn);
            stamp_checksum(&mut map);
            let offset = u64::from(first + 1) * page_size as u64;
            self.vfs.write_raw(&path, offset, &map)?;
        }
        let bytes = u64::from(pages) * page_size as u64;
        self.vfs.truncate_raw(&path, bytes)
    }

    fn insert(&mut self, db: &Database, table: &Table) -> Result<(), Error> {
        let key = self.next_key;
        let value = vec![key as u8; self.case.page_size() as usize * 9 / 20];
        let txn = db.begin(Isolation::ReadCommitted)?;
        txn.insert(table, &key.to_be_bytes(), &value)?;
        txn.commit()?;
        self.next_key += 1;
        self.keys.insert(key);
        Ok(())
    }

    fn run(mut self) -> Result<(), String> {
        let db = self.open()?;
        let table = db.table("t").map_err(failed("opening the table"))?;
        let rows = self.insert_until_full(&db, &table, self.case.rows().unwrap_or(100))?;
        if self.case.rows().is_none() && !(10..=22).contains(&rows) {
            return Err(format!("{rows} rows found a page, where there were ten"));
        }
        self.delete(&db, &table, 10)?;
        self.compare(&db, &table)?;
        let again = self.insert_until_full(&db, &table, 100)?;
        if again < 10 {
            return Err(format!(
                "pages of 10 rows were freed, and {again} found one"
            ));
        }
        self.compare(&db, &table)?;
        drop(table);
        db.close().map_err(failed("closing"))?;
        self.vfs = self.vfs.kill();
        let db = self.open()?;
        let table = db.table("t").map_err(failed("opening the table"))?;
        self.compare(&db, &table)
    }

    /// Inserts rows until there is no page, or so many. How many.
    fn insert_until_full(
        &mut self,
        db: &Database,
        table: &Table,
        rows_max: u64,
    ) -> Result<u64, String> {
        for done in 0..rows_max {
            let before = pages_read(db);
            let result = self.insert(db, table);
            let reads = pages_read(db) - before;
            match result {
                Ok(()) if reads <= self.case.reads_max() => {}
                Ok(()) => return Err(format!("row {done} read {reads} pages")),
                Err(Error::DiskFull { what }) if what.contains("4294967295 pages") => {
                    return Ok(done);
                }
                Err(error) => return Err(format!("row {done}: {error}")),
            }
        }
        Ok(rows_max)
    }

    /// Deletes the first rows, whose pages lie low, and has them purged.
    fn delete(&mut self, db: &Database, table: &Table, rows: usize) -> Result<(), String> {
        let keys: Vec<u64> = self.keys.iter().copied().take(rows).collect();
        let delete = || {
            let txn = db.begin(Isolation::ReadCommitted)?;
            for key in &keys {
                txn.delete(table, &key.to_be_bytes())?;
            }
            txn.commit()?;
            (0..4).try_for_each(|_| db.purge())
        };
        delete().map_err(failed("deleting"))?;
        keys.iter().for_each(|key| {
            self.keys.remove(key);
        });
        Ok(())
    }

    fn compare(&self, db: &Database, table: &Table) -> Result<(), String> {
        let read = || {
            let txn = db.begin(Isolation::ReadCommitted)?;
            let rows = txn.range(table, ..)?;
            rows.map(|row| {
                let key = row?.0.try_into().unwrap_or_default();
                Ok(u64::from_be_bytes(key))
            })
            .collect::<Result<BTreeSet<u64>, Error>>()
        };
        let found = read().map_err(failed("reading"))?;
        if found == self.keys {
            Ok(())
        } else {
            Err(format!("rows {found:?}, expected {:?}", self.keys))
        }
    }
}

fn pages_read(db: &Database) -> u64 {
    let all = db.status();
    let found = all.iter().find(|(name, _)| *name == "pages_read");
    found.map_or(0, |(_, value)| *value)
}
