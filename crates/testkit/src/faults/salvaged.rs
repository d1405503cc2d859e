//! A database with a damaged page is salvaged: what is undamaged is all there.
//!
//! # What must hold
//!
//! 1. Salvage over an overlay leaves the disk as it was, and so does opening with `force_recovery`,
//!    which shows as much.
//! 2. Of a database that was closed in order: afterwards it opens and is whole, in every page of
//!    its files, free ones too, as `inkstone verify` asks; the rows that are missing are those of
//!    the leaves whose bytes are damaged, and rows whose long value is in a damaged page. A table
//!    whose definition was in a damaged page of the catalog is there under another name.
//! 3. Of one that was not closed: as much, or an error that says what is damaged. No row is there
//!    that the undamaged database does not have.
//! 4. Where the undo file is damaged: it opens and is whole; every row is right that no transaction
//!    changed whose undo was there; the report says that undo is lost.

use super::damage::{Damage, Part, What};
use super::session::{DIRECTORY, found, options, verify};
use super::work::{Life, Start, is_moved};
use crate::model::{Found, show};
use inkstone::internals::salvage::salvage;
use inkstone::internals::store::parse_space_file_name;
use inkstone::{Database, Error, Options};
use inkstone_format::header::{PageType, check_page, is_zero, page_type};
use inkstone_format::tree_page::TreePage;
use inkstone_format::{PageId, PageNo};
use inkstone_io::overlay::OverlayVfs;
use inkstone_io::sim::SimVfs;
use inkstone_io::{Create, OpenOptions, Vfs};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

const PAGE: usize = 4096;
/// Values that are longer may be in pages of their own.
const LONG: usize = 1000;

/// What may be missing.
#[derive(Default)]
struct Lost {
    /// Keys of rows in damaged leaves, of whatever table and tree.
    keys: BTreeSet<Vec<u8>>,
    /// A page of a long value is damaged.
    long_values: bool,
    /// The whole file is.
    file: bool,
}

/// Opens a database on an overlay, and closes it again; what it holds.
fn look(vfs: Arc<dyn Vfs>) -> Result<Found, Error> {
    let db = Database::open_on(vfs, Path::new(DIRECTORY), options(), &|_| {})?;
    let found = found(&db)?;
    db.close()?;
    Ok(found)
}

/// What `inkstone verify` does: all trees, and then every page of the files, free ones too.
fn verified(vfs: Arc<dyn Vfs>) -> Result<(), Error> {
    let db = Database::open_on(vfs.clone(), Path::new(DIRECTORY), options(), &|_| {})?;
    verify(&db)?;
    db.close()?;
    let failed = |error| Error::io("read", Path::new(DIRECTORY), error);
    let directory = vfs.open_directory(Path::new(DIRECTORY), Create::Never);
    let directory = directory.map_err(failed)?;
    for name in directory.list().map_err(failed)? {
        let Some(space) = parse_space_file_name(&name) else {
            continue;
        };
        let file = directory.open(&name, READ_ONLY).map_err(failed)?;
        let mut bytes = vec![0; file.len().map_err(failed)? as usize];
        file.read_at(&mut bytes, 0).map_err(failed)?;
        for (n, page) in bytes
            .chunks(PAGE)
            .enumerate()
            .filter(|(_, page)| !is_zero(page))
        {
            let id = PageId::new(space, PageNo(n as u32));
            let checked = check_page(page, id);
            checked.map_err(|corrupt| Error::corrupt_page(file.path(), id, corrupt))?;
        }
    }
    Ok(())
}

const READ_ONLY: OpenOptions = OpenOptions {
    create: Create::Never,
    read_only: true,
    direct: false,
    dsync: false,
};

/// Salvages a damaged disk, over an overlay, and compares.
pub fn check(start: &Start, damaged: &SimVfs, damage: &Damage) -> Result<(), String> {
    let expected = look(Arc::new(OverlayVfs::new(Arc::new(start.copy()))));
    let expected = expected.map_err(|error| format!("undamaged: {error}"))?;
    let below = Arc::new(damaged.clone());
    let before = bytes(&below)?;
    let overlay: Arc<dyn Vfs> = Arc::new(OverlayVfs::new(below.clone()));
    let is_closed = damage.life == Life::Work;
    let is_undo = damage.part() == Part::Undo;
    let report = match salvage(&overlay, Path::new(DIRECTORY), &options()) {
        Err(
            Error::Corrupt { .. }
            | Error::Poisoned(_)
            | Error::NotADatabase { .. }
            | Error::NotFound(_),
        ) if !is_closed && !is_undo => return Ok(()),
        salvaged => salvaged.map_err(|error| format!("salvage fails with \"{error}\""))?,
    };
    if is_undo && report.left_out.is_empty() {
        return Err("undo is lost, and salvage does not say so".to_owned());
    }
    if bytes(&below)? != before {
        return Err("salvage over an overlay changed the disk".to_owned());
    }
    let lost = if is_undo {
        Lost::default()
    } else {
        lost(start, damaged, damage)?
    };
    if let Some(what) = report.not_mended.first().filter(|_| !lost.file) {
        return Err(format!("still wrong after salvage: {what}"));
    }
    if lost.file {
        return Ok(());
    }
    let found = look(overlay.clone());
    let found = found.map_err(|error| format!("opening what was salvaged: {error}"))?;
    verified(overlay).map_err(|error| format!("verifying what was salvaged: {error}"))?;
    let forced = match forced(&below) {
        // Old versions of rows are read there, and nothing is rolled back.
        Err(Error::Corrupt { file, .. }) if is_undo && file.ends_with("undo") => None,
        forced => Some(forced.map_err(|error| format!("with force_recovery: {error}"))?),
    };
    if bytes(&below)? != before {
        return Err("an opening with force_recovery changed the disk".to_owned());
    }
    let (expected, lost) = if is_undo {
        (without_moved(expected), Some(&lost))
    } else {
        (expected, is_closed.then_some(&lost))
    };
    let shown = |found: Found| if is_undo { without_moved(found) } else { found };
    compare(&expected, &shown(found), lost)?;
    forced.map_or(Ok(()), |forced| {
        compare(&expected, &shown(forced), lost)
            .map_err(|text| format!("with force_recovery: {text}"))
    })
}

/// Without the rows that only the undo file tells of what they were.
fn without_moved(mut found: Found) -> Found {
    for (name, trees) in &mut found.tables {
        for rows in trees {
            rows.retain(|key, _| !is_moved(name, key));
        }
    }
    found
}

/// What the damaged database holds when it is opened to be read.
fn forced(damaged: &Arc<SimVfs>) -> Result<Found, Error> {
    let options = Options {
        force_recovery: 1,
        ..options()
    };
    let db = Database::open_on(damaged.clone(), Path::new(DIRECTORY), options, &|_| {})?;
    let found = found(&db)?;
    db.close()?;
    Ok(found)
}

fn bytes(disk: &SimVfs) -> Result<Vec<Vec<u8>>, String> {
    let files = disk.files().into_iter();
    let bytes = files.map(|path| disk.read_raw(&path));
    bytes
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
}

/// What was in the pages that are damaged.
fn lost(start: &Start, damaged: &SimVfs, damage: &Damage) -> Result<Lost, String> {
    let mut lost = Lost::default();
    let whole = start
        .disk
        .read_raw(&damage.path)
        .map_err(|error| error.to_string())?;
    let now = damaged.read_raw(&damage.path).unwrap_or_default();
    // A table's; that of the catalog is made anew.
    lost.file = now.is_empty() && damage.what == What::Missing && damage.part() == Part::Data;
    for (n, page) in whole.chunks_exact(PAGE).enumerate() {
        if now.get(n * PAGE..(n + 1) * PAGE) == Some(page) {
            continue;
        }
        match page_type(page) {
            // A torn one is made whole by its copy; what was lost then is not asked.
            Some(PageType::Leaf) if TreePage(page).check().is_ok() => {
                let leaf = TreePage(page);
                lost.keys
                    .extend((0..leaf.count()).map(|slot| leaf.key(slot)));
            }
            Some(PageType::Overflow) => lost.long_values = true,
            _ => {}
        }
    }
    Ok(lost)
}

/// `lost`: what may be missing; anything, if it is not known.
fn compare(expected: &Found, found: &Found, lost: Option<&Lost>) -> Result<(), String> {
    let mut renamed: Vec<_> = found
        .tables
        .iter()
        .filter(|(name, _)| is_renamed(name))
        .collect();
    for (name, trees) in &expected.tables {
        let is_lost = lost.is_none_or(|lost| lost.keys.contains(name.as_bytes()));
        let same = match found.tables.get(name) {
            Some(same) => same,
            None if !is_lost => return Err(format!("table {name} is missing")),
            None => {
                let at = renamed.iter().position(|(_, other)| *other == trees);
                let at = at.ok_or_else(|| format!("table {name} is there under no name"))?;
                renamed.swap_remove(at).1
            }
        };
        if same.len() != trees.len() {
            return Err(format!("table {name} has {} trees", same.len()));
        }
        for (tree, (rows, salvaged)) in trees.iter().zip(same).enumerate() {
            let text =
                |key: &[u8], what| format!("table {name}, tree {tree}, key {}: {what}", show(key));
            for (key, value) in rows {
                let may_miss = lost.is_none_or(|lost| {
                    lost.keys.contains(key) || (lost.long_values && value.len() > LONG)
                });
                match salvaged.get(key) {
                    Some(same) if same == value => {}
                    None if may_miss => {}
                    Some(_) => return Err(text(key, "another value")),
                    None => return Err(text(key, "it is missing, and its page is not damaged")),
                }
            }
            if let Some(key) = salvaged.keys().find(|key| !rows.contains_key(*key)) {
                return Err(text(key, "it should not be there"));
            }
        }
    }
    Ok(())
}

fn is_renamed(name: &str) -> bool {
    name.contains("!salvaged-")
}

/// Salvage of what is not damaged does nothing.
pub fn leaves_alone(start: &Start) -> Result<(), String> {
    let overlay: Arc<dyn Vfs> = Arc::new(OverlayVfs::new(Arc::new(start.copy())));
    let report = salvage(&overlay, Path::new(DIRECTORY), &options());
    let report = report.map_err(|error| error.to_string())?;
    if report.rebuilt.is_empty() && report.left_out.is_empty() && report.not_mended.is_empty() {
        Ok(())
    } else {
        Err(format!("{report:?}"))
    }
}
