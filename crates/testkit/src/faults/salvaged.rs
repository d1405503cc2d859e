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
use super::session::{DIRECTORY, PLACED_PAGE, found, verify};
use super::work::{Start, is_moved};
use crate::model::{Found, show};
use inkstone::internals::salvage::salvage;
use inkstone::internals::store::parse_space_file_name;
use inkstone::{Database, Error, Options};
use inkstone_format::header::{PageType, check_page, is_zero, page_type};
use inkstone_format::image::{self, Made, UNIT_LEN};
use inkstone_format::place_map::{self, Place};
use inkstone_format::tree_page::TreePage;
use inkstone_format::{Corrupt, PageId, PageNo, SpaceId};
use inkstone_io::overlay::OverlayVfs;
use inkstone_io::sim::SimVfs;
use inkstone_io::{Create, Directory, OpenOptions, Vfs};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

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
fn look(vfs: Arc<dyn Vfs>, options: &Options) -> Result<Found, Error> {
    let db = Database::open_on(vfs, Path::new(DIRECTORY), options.clone(), &|_| {})?;
    let found = found(&db)?;
    db.close()?;
    Ok(found)
}

/// What `inkstone verify` does: all trees, and then every page of the files, free ones too.
fn verified(vfs: Arc<dyn Vfs>, options: &Options) -> Result<(), Error> {
    let db = Database::open_on(vfs.clone(), Path::new(DIRECTORY), options.clone(), &|_| {})?;
    verify(&db)?;
    db.close()?;
    let failed = |error| Error::io("read", Path::new(DIRECTORY), error);
    let directory = vfs.open_directory(Path::new(DIRECTORY), Create::Never);
    let directory = directory.map_err(failed)?;
    for name in directory.list().map_err(failed)? {
        let Some(space) = parse_space_file_name(&name) else {
            continue;
        };
        let path = directory.path_of(&name);
        let bytes = read_file(&*directory, &name).map_err(failed)?;
        let map = name.replace(".ink", ".places");
        let is_placed = directory.exists(&map).map_err(failed)?;
        let pages = if is_placed {
            let map = read_file(&*directory, &map).map_err(failed)?;
            placed_pages(space, &bytes, &map)
                .map_err(|c| Error::corrupt_file(&path, 0, c.detail))?
        } else {
            let size = options.page_size as usize;
            let pages = bytes.chunks(size).map(<[u8]>::to_vec);
            (0..).map(PageNo).zip(pages).collect()
        };
        for (n, page) in pages.iter().filter(|(_, page)| !is_zero(page)) {
            let id = PageId::new(space, *n);
            let checked = check_page(page, id);
            checked.map_err(|corrupt| Error::corrupt_page(&path, id, corrupt))?;
        }
    }
    Ok(())
}

fn read_file(directory: &dyn Directory, name: &str) -> std::io::Result<Vec<u8>> {
    let file = directory.open(name, READ_ONLY)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The pages of a placed tablespace that have a place.
fn placed_pages(
    space: SpaceId,
    data: &[u8],
    map: &[u8],
) -> Result<Vec<(PageNo, Vec<u8>)>, Corrupt> {
    let (_, places) = place_map::parse(map)?;
    let all = (0..).map(PageNo).zip(places);
    let placed = all.filter(|(_, place)| !place.is_empty());
    let pages = placed.map(|(page, place)| {
        let mut bytes = vec![0; PLACED_PAGE as usize];
        let image = data.get(bytes_of(&place)).unwrap_or_default();
        let made = Made {
            codec: place.codec,
            length: place.length,
        };
        image::unpack(made, PageId::new(space, page), image, &mut bytes)?;
        Ok((page, bytes))
    });
    pages.collect()
}

/// The bytes of an image's units.
fn bytes_of(place: &Place) -> Range<usize> {
    let start = place.unit as usize * UNIT_LEN;
    start..start + place.units() as usize * UNIT_LEN
}

const READ_ONLY: OpenOptions = OpenOptions {
    create: Create::Never,
    read_only: true,
    direct: false,
    dsync: false,
};

/// Salvages a damaged disk, over an overlay, and compares.
pub fn check(start: &Start, damaged: &SimVfs, damage: &Damage) -> Result<(), String> {
    let options = &start.history.options();
    let expected = look(Arc::new(OverlayVfs::new(Arc::new(start.copy()))), options);
    let expected = expected.map_err(|error| format!("undamaged: {error}"))?;
    let below = Arc::new(damaged.clone());
    let before = bytes(&below)?;
    let overlay: Arc<dyn Vfs> = Arc::new(OverlayVfs::new(below.clone()));
    let is_closed = damage.life.begins_closed();
    let is_undo = damage.part() == Part::Undo;
    let report = match salvage(&overlay, Path::new(DIRECTORY), options) {
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
    let found = look(overlay.clone(), options);
    let found = found.map_err(|error| format!("opening what was salvaged: {error}"))?;
    verified(overlay, options).map_err(|error| format!("verifying what was salvaged: {error}"))?;
    let forced = match forced(&below, options) {
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
fn forced(damaged: &Arc<SimVfs>, options: &Options) -> Result<Found, Error> {
    let options = Options {
        force_recovery: 1,
        ..options.clone()
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
    let is_table = matches!(damage.part(), Part::Data | Part::Placed);
    lost.file = now.is_empty() && damage.what == What::Missing && is_table;
    let pages = match damage.part() {
        // The images say of which pages they are.
        Part::Places => Vec::new(),
        Part::Placed => placed_damaged(start, damage, (&whole, &now))?,
        _ => {
            let pages = whole.chunks_exact(start.history.options().page_size as usize);
            let mut at = 0;
            let damaged = pages.filter(|page| {
                at += page.len();
                now.get(at - page.len()..at) != Some(page)
            });
            damaged.map(<[u8]>::to_vec).collect()
        }
    };
    for page in &pages {
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

/// The pages of a placed tablespace whose images are damaged.
fn placed_damaged(
    start: &Start,
    damage: &Damage,
    (whole, now): (&[u8], &[u8]),
) -> Result<Vec<Vec<u8>>, String> {
    let map = start.disk.read_raw(&damage.path.with_extension("places"));
    let map = map.map_err(|error| error.to_string())?;
    let name = damage.path.file_name().and_then(|name| name.to_str());
    let space = name
        .and_then(parse_space_file_name)
        .ok_or("no tablespace")?;
    let (_, places) = place_map::parse(&map).map_err(|corrupt| corrupt.detail)?;
    let pages = placed_pages(space, whole, &map).map_err(|corrupt| corrupt.detail)?;
    let damaged = pages.into_iter().filter(|(page, _)| {
        let bytes = bytes_of(&places[page.0 as usize]);
        now.get(bytes.clone()) != Some(&whole[bytes])
    });
    Ok(damaged.map(|(_, page)| page).collect())
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
    let report = salvage(&overlay, Path::new(DIRECTORY), &start.history.options());
    let report = report.map_err(|error| error.to_string())?;
    if report.rebuilt.is_empty() && report.left_out.is_empty() && report.not_mended.is_empty() {
        Ok(())
    } else {
        Err(format!("{report:?}"))
    }
}
