//! Salvage: a database with damaged pages is made one that opens, without what those pages held.
//!
//! It is done on files, in this order:
//!
//! 0. The place maps of placed tables are made whole (`salvage/places.rs`).
//! 1. The log is applied, if the database was not closed in order. A page that this needs, and that
//!    can neither be read nor rebuilt, is set to nothing first, with the LSN of the log's end, so
//!    that no change of it is applied.
//! 2. Each tablespace file in which a page in use cannot be read is rebuilt (`salvage/rebuild.rs`)
//!    from the pages that can (`salvage/image.rs`). Leaves say which keys they cover, so inner
//!    nodes, space maps and the file's header are made anew; what no leaf covers becomes empty.
//! 3. What is unfinished is undone, where its rows are not lost.
//! 4. The database is opened, and all of it is verified. Prepared transactions whose rows or
//!    undo are lost in part are rolled back, as the database would not open with them.
//!
//! A table whose definition was lost with a page of the catalog comes back under a name that says
//! so (`!salvaged-7`, for tablespace 7), with its trees `tree 1`, `tree 2`, ..
//!
//! Where the undo file is damaged or missing, a transaction whose undo was in it is rolled back as
//! far as it can be read; rows whose undo is lost stay as they are.
//!
//! What is left out is named, page by page. Over an `OverlayVfs` nothing on disk changes.
//! `salvage/read_only.rs` takes steps 1 to 3 over one, and lets the database be read.
//!
//! What is not salvaged: a damaged log, a missing control file; the error says so.
//!
//! # Promises
//!
//! 1. Every row of a page that can be read is there afterwards, but for a long value of which a
//!    page was lost. Tested by `what_is_undamaged_is_salvaged`.
//! 2. A file in which every page in use can be read is not touched, but for free pages whose bytes
//!    are no page. Tested by `a_whole_database_is_left_as_it_is`.
//! 3. Every page of a file that was mended is whole, free ones too. Tested by
//!    `what_is_undamaged_is_salvaged`.

mod image;
mod pages;
mod places;
mod read_only;
mod rebuild;

use crate::catalog::CATALOG_SPACE;
use crate::control::{CONTROL_FILE, ControlFile};
use crate::counters::Counters;
pub use crate::database::LeftOut;
use crate::log::{LogReader, ReadParams};
use crate::options::Options;
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::store::{PageLsnMap, parse_space_file_name};
use crate::{Database, Error, Result};
use image::Image;
use inkstone_format::control::Control;
use inkstone_format::header::{PageType, check_page, init_page, set_page_lsn, stamp_checksum};
use inkstone_format::{Lsn, PageId, SpaceId, TreeId};
use inkstone_io::{Create, Directory, ErrorKind, OpenOptions, Vfs};
use pages::Pages;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What salvage did.
#[derive(Clone, Debug, Default)]
pub struct SalvageReport {
    /// What was left out.
    pub left_out: Vec<LeftOut>,
    /// Files that were rebuilt.
    pub rebuilt: Vec<PathBuf>,
    /// What is still wrong: a file that is missing, say.
    pub not_mended: Vec<String>,
}

/// A tablespace, and the trees that its file has.
type Table = (SpaceId, Vec<TreeId>);

/// Bytes of the page LSN map that are kept in memory.
const MAP_BYTES: u64 = 1 << 30;
/// Pages that recovery does without, at most.
const SET_TO_NOTHING_MAX: usize = 10_000;

/// Salvages the database in `path`. Nothing else may have it open.
pub fn salvage(vfs: &Arc<dyn Vfs>, path: &Path, options: &Options) -> Result<SalvageReport> {
    let mut report = SalvageReport::default();
    let open_directory = || {
        vfs.open_directory(path, Create::Never)
            .map_err(|e| Error::io("open", path, e))
    };
    let directory = open_directory()?;
    let control = read_control(&*directory)?;
    mend_maps(&directory, &control, &mut report)?;
    if !control.clean_shutdown {
        redo(vfs, path, options, &mut report)?;
        let control = read_control(&*directory)?;
        mend_files(&directory, log_end(&*directory, &control)?, &mut report)?;
        // What is unfinished is undone in trees that are whole.
        let db = open(vfs, path, options)?;
        db.finish_rollbacks()?;
        close(db, &mut report)?;
    }
    let control = read_control(&*directory)?;
    let end = control.known_durable_lsn.max(control.checkpoint_lsn);
    mend_files(&directory, end, &mut report)?;
    check(vfs, path, options, &mut report)?;
    Ok(report)
}

/// Nothing else opens the database while this is held.
fn lock(directory: &dyn Directory) -> Result<Box<dyn Send + Sync>> {
    let locked = directory.lock(CONTROL_FILE);
    locked.map_err(|e| match e.kind() {
        ErrorKind::WouldBlock => Error::InUse {
            path: directory.path().to_owned(),
        },
        _ => Error::io("lock", &directory.path_of(CONTROL_FILE), e),
    })
}

/// Makes place maps whole.
fn mend_maps(
    directory: &Arc<dyn Directory>,
    control: &Control,
    report: &mut SalvageReport,
) -> Result<()> {
    let _locked = lock(&**directory)?;
    places::mend_maps(&**directory, control, report)
}

fn read_control(directory: &dyn Directory) -> Result<Control> {
    let file = ControlFile::open(directory, &Poison::default())?;
    Ok(file.current().clone())
}

fn open(vfs: &Arc<dyn Vfs>, path: &Path, options: &Options) -> Result<Database> {
    Database::open_salvaged(vfs.clone(), path, options.clone(), Vec::new(), &|_| {})
}

/// Closes the database; what of the undo file could not be read is told.
fn close(db: Database, report: &mut SalvageReport) -> Result<()> {
    for lost in db.lost_undo() {
        let (Error::Corrupt { file, .. } | Error::Io { path: file, .. }) = &lost else {
            return Err(lost);
        };
        let left_out = LeftOut {
            file: file.clone(),
            page: None,
            what: format!(
                "what was to be undone of a transaction stays where this is needed: {lost}"
            ),
        };
        if !report.left_out.contains(&left_out) {
            report.left_out.push(left_out);
        }
    }
    db.close()
}

/// Applies the log. Pages that this fails for are set to nothing, one by one.
fn redo(
    vfs: &Arc<dyn Vfs>,
    path: &Path,
    options: &Options,
    report: &mut SalvageReport,
) -> Result<()> {
    let mut known = BTreeSet::new();
    loop {
        let failed = match Database::redo_on(vfs.clone(), path, options.clone()) {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        let Error::Corrupt {
            page: Some(page),
            detail,
            file,
            ..
        } = &failed
        else {
            return Err(failed);
        };
        // It is more than a page.
        if !known.insert(*page) || known.len() > SET_TO_NOTHING_MAX {
            return Err(failed);
        }
        report.left_out.push(LeftOut {
            file: file.clone(),
            page: Some(*page),
            what: format!("page {page}, which recovery needs: {detail}"),
        });
        set_to_nothing(vfs, path, *page)?;
    }
}

/// Replaces a page by one of no type that has every change of the log.
fn set_to_nothing(vfs: &Arc<dyn Vfs>, path: &Path, id: PageId) -> Result<()> {
    let directory = vfs.open_directory(path, Create::Never);
    let directory = directory.map_err(|e| Error::io("open", path, e))?;
    let control = read_control(&*directory)?;
    let end = log_end(&*directory, &control)?;
    let mut page = vec![0; control.page_size as usize];
    init_page(&mut page, id, PageType::Free);
    set_page_lsn(&mut page, end);
    stamp_checksum(&mut page);
    paranoid!(
        check_page(&page, id).is_ok(),
        "page {id} is not one after it was set to nothing"
    );
    let file = Pages::open(&directory, id.space, &control, Create::Never)?;
    let failed = |e| Error::io("write", &file.path, e);
    file.write(id.page, &page).map_err(failed)?;
    file.sync().map_err(failed)
}

/// Where the log ends.
fn log_end(directory: &dyn Directory, control: &Control) -> Result<Lsn> {
    let log = directory.subdirectory("log", Create::Never);
    let log = log.map_err(|e| Error::io("open", &directory.path_of("log"), e))?;
    let mut reader = LogReader::open(ReadParams {
        newest_epoch: control.epoch + 1,
        ..ReadParams::of(control, log)
    })?;
    while reader.next()?.is_some() {}
    Ok(reader.position())
}

const TO_WRITE: OpenOptions = OpenOptions {
    create: Create::Never,
    read_only: false,
    direct: false,
    dsync: false,
};

/// The tablespaces that have files, and the catalog, which is the last: what the files say of their
/// trees, it may have lost.
fn spaces_to_mend(directory: &dyn Directory) -> Result<Vec<SpaceId>> {
    let names = directory.list();
    let names = names.map_err(|e| Error::io("list", directory.path(), e))?;
    let mut spaces: Vec<SpaceId> = names
        .iter()
        .filter_map(|name| parse_space_file_name(name))
        .collect();
    spaces.sort_by_key(|space| std::cmp::Reverse(*space));
    if spaces.last() != Some(&CATALOG_SPACE) {
        spaces.push(CATALOG_SPACE);
    }
    paranoid!(
        spaces.is_sorted_by(|a, b| a > b),
        "a file is mended twice, or behind the catalog: {spaces:?}"
    );
    paranoid!(
        spaces.last() == Some(&CATALOG_SPACE),
        "the catalog is not the last that is mended: {spaces:?}"
    );
    Ok(spaces)
}

/// Rebuilds the files that need it, of a database whose pages are where its log ends, at `end`.
fn mend_files(directory: &Arc<dyn Directory>, end: Lsn, report: &mut SalvageReport) -> Result<()> {
    let _locked = lock(&**directory)?;
    let control = read_control(&**directory)?;
    let (counters, poison) = (Arc::<Counters>::default(), Poison::default());
    let page_lsns = PageLsnMap::new(directory.clone(), false, MAP_BYTES, counters, poison);
    page_lsns.open_to_look(control.uuid, control.epoch)?;
    let spaces = spaces_to_mend(&**directory)?;
    let read = |space: SpaceId| {
        // The catalog's, if it is missing.
        let create = if space == CATALOG_SPACE {
            Create::IfMissing
        } else {
            Create::Never
        };
        let file = Pages::open(directory, space, &control, create)?;
        let image = Image::read(&file, space, &control, &page_lsns);
        let image = image.map_err(|e| Error::io("read", &file.path, e))?;
        Ok::<_, Error>((file, image))
    };
    let (file, catalog) = read(CATALOG_SPACE)?;
    let defined = rebuild::definitions(&file, catalog, (&control, end));
    let defined = defined.map_err(|e| Error::io("read", &file.path, e))?;
    let mut tables = Vec::new();
    for space in spaces {
        let (file, mut image) = read(space)?;
        let failed = |e| Error::io("read", &file.path, e);
        let definition = defined.iter().find(|definition| definition.space == space);
        image.note_trees(definition);
        tables.push((space, image.roots().into_keys().collect()));
        let is_damaged = image.is_damaged();
        if !is_damaged && image.wrecks.is_empty() {
            continue;
        }
        let found: &[Table] = if space == CATALOG_SPACE { &tables } else { &[] };
        let rebuilt = if is_damaged {
            rebuild::rebuild(&file, image, (&control, end), found)
        } else {
            rebuild::clear_wrecks(&file, image, (&control, end))
        };
        let rebuilt = rebuilt.map_err(failed)?;
        let left_out = rebuilt.into_iter().map(|(page, what)| LeftOut {
            file: file.path.clone(),
            page,
            what,
        });
        report.left_out.extend(left_out);
        file.sync().map_err(failed)?;
        if is_damaged {
            report.rebuilt.push(file.path.clone());
        }
    }
    Ok(())
}

/// Opens the database and verifies all of it.
fn check(
    vfs: &Arc<dyn Vfs>,
    path: &Path,
    options: &Options,
    report: &mut SalvageReport,
) -> Result<()> {
    let db = open(vfs, path, options)?;
    let mut note = |what: &str, result: Result<()>| {
        if let Err(error) = result {
            report.not_mended.push(format!("{what}: {error}"));
        }
    };
    note("the catalog", db.verify_catalog().map(drop));
    for name in db.tables()? {
        let verified = db.table(&name).and_then(|table| db.verify_table(&table));
        note(&format!("table {name}"), verified.map(drop));
    }
    db.finish_rollbacks()?;
    let prepared = db.read_prepared_undo();
    close(db, report)?;
    let reopen = || {
        let opened = Database::open_on(vfs.clone(), path, options.clone(), &|_| {});
        opened.and_then(Database::close)
    };
    if prepared.is_ok() && reopen().is_ok() {
        return Ok(());
    }
    let db = open(vfs, path, options)?;
    for xid in db.prepared_transactions() {
        db.rollback_prepared(&xid)?;
        let xid = xid.escape_ascii();
        report.left_out.push(LeftOut {
            file: path.to_owned(),
            page: None,
            what: format!(
                "the prepared transaction {xid} is rolled back: rows or undo of it are lost"
            ),
        });
    }
    close(db, report)?;
    reopen()
}
