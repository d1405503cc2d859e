//! Bytes change on the disk between two lives of the process: in every file, in every region.
//!
//! # What must hold
//!
//! 1. Opening, reading or verifying fails with an error of its own kind (never a panic), or every
//!    row is right, now and after another opening.
//! 2. A tablespace file of a closed database that was cut short of pages in use is refused when the
//!    database or the table is opened, before a row of it is read. (After a crash recovery may let
//!    it grow again; then reading finds that its pages are zeroes.)
//! 3. Damage to the log may look like the log's end only where nothing behind it proves that it was
//!    durable: at most the last acknowledged commit is lost to it.
//! 4. So does what is replaced by an older version of itself, in its own place.
//! 5. When damage of a page, or of the undo file, was found, the rest can be salvaged
//!    ([`salvaged`]).
//! 6. What is nonsense under a checksum that fits ([`forged`]) gives an error, or is no harm.

use super::forged::{self, Forgery};
use super::salvaged;
use super::session::{self, History};
use super::work::{Life, Start};
use crate::campaign::watched;
use inkstone::{Database, Error};
use inkstone_format::place_map;
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;
/// Places in a page that are hit: checksum, number, type, LSN, tree, first slots, cells, last byte.
const IN_PAGE: [u64; 10] = [0, 9, 12, 17, 28, 48, 60, 1500, 3000, 4095];
/// Places in a file of no pages that are hit, at most.
const PLACES_MAX: u64 = 250;

/// Lives of which the beginning is damaged.
pub const IN_PLACE: [Life; 3] = [Life::Work, Life::AfterKill, Life::AfterTear];
/// Those of placed tables, of which only their own files are.
pub const PLACED: [Life; 2] = [Life::PlacedWork, Life::PlacedAfterKill];

/// Sorts of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The control file.
    Control,
    /// A log segment.
    Log,
    /// The doublewrite file.
    Doublewrite,
    /// The catalog's tablespace.
    Catalog,
    /// A table's tablespace.
    Data,
    /// The page LSN map.
    PageLsnMap,
    /// The undo file.
    Undo,
    /// A placed table's tablespace.
    Placed,
    /// Its place map.
    Places,
}

impl Part {
    fn of(path: &Path, life: Life) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        Some(match name {
            "catalog.ink" => Part::Catalog,
            name if name.ends_with(".ink") && life.is_placed() => Part::Placed,
            name if name.ends_with(".ink") => Part::Data,
            name if name.ends_with(".places") => Part::Places,
            name if name.ends_with(".log") => Part::Log,
            name if name.contains("doublewrite") => Part::Doublewrite,
            name if name.contains("page_lsn_map") => Part::PageLsnMap,
            name if name.contains("control") => Part::Control,
            "undo" => Part::Undo,
            _ => return None,
        })
    }

    /// Whether it is a tablespace.
    pub fn has_pages(self) -> bool {
        matches!(self, Part::Catalog | Part::Data | Part::Placed)
    }
}

/// What happens to the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// One bit of a byte flips.
    FlippedBit(u64),
    /// A page, or a block, becomes zeroes.
    Zeroed(u64),
    /// A page, or a block, is replaced by that of another place.
    Misdirected {
        /// The place.
        at: u64,
        /// The other file.
        other: PathBuf,
        /// The place there.
        from: u64,
    },
    /// A page, or a block, becomes what it was before the last life.
    Stale(u64),
    /// The file is cut.
    Truncated(u64),
    /// Two blocks side by side, the slots of a block of a place map: a bit of both flips, or they
    /// become zeroes.
    TwoSlots {
        /// The first of them.
        at: u64,
        /// They become zeroes.
        zeroed: bool,
    },
    /// The image of a placed page becomes the one that it had before the last life.
    OlderImage {
        /// Where it is.
        at: u64,
        /// Where that was.
        from: u64,
        /// Bytes of their units.
        length: u64,
    },
    /// So many bytes of no meaning stand behind the file's end.
    Longer(u64),
    /// The file is gone.
    Missing,
    /// A field is nonsense, and the checksum fits.
    Forged(Forgery),
}

impl What {
    /// Its name in tables.
    pub fn name(&self) -> &'static str {
        match self {
            What::FlippedBit(_) => "flipped bit",
            What::Zeroed(_) => "zeroed",
            What::Misdirected { .. } => "misdirected",
            What::Stale(_) => "stale",
            What::TwoSlots { .. } => "two slots",
            What::OlderImage { .. } => "older image",
            What::Longer(_) => "longer",
            What::Truncated(_) => "truncated",
            What::Missing => "missing",
            What::Forged(_) => "forged",
        }
    }
}

/// One change of one file, before a life begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Before which life.
    pub life: Life,
    /// The file.
    pub path: PathBuf,
    /// The change.
    pub what: What,
}

/// How damage was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// The database, or the table, did not open.
    OnOpening,
    /// A read failed.
    OnReading,
    /// Every row was right, and verification failed.
    OnVerifying,
    /// It mattered to nothing, or was repaired.
    NoneLeft,
    /// The last commit is gone with the end of the log.
    LastCommitLost,
}

impl Finding {
    /// All findings.
    pub const ALL: [Finding; 5] = [
        Finding::OnOpening,
        Finding::OnReading,
        Finding::OnVerifying,
        Finding::NoneLeft,
        Finding::LastCommitLost,
    ];
}

/// How often damage was found how, by file and sort of damage.
pub type Tally = BTreeMap<(Part, &'static str), BTreeMap<Finding, u64>>;

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (life, path) = (self.life.name(), self.path.display());
        write!(f, "before life {life}, {path}: {:?}", self.what)
    }
}

impl Damage {
    /// The sort of the file.
    pub fn part(&self) -> Part {
        Part::of(&self.path, self.life).unwrap_or(Part::Data)
    }

    fn apply(&self, disk: &SimVfs, starts: &[Start]) -> std::io::Result<()> {
        let bytes = disk.read_raw(&self.path)?;
        let len = |at: u64| (bytes.len() as u64 - at).min(PAGE) as usize;
        match &self.what {
            What::FlippedBit(at) => disk.flip_bit(&self.path, *at, (*at % 8) as u8),
            What::Zeroed(at) => disk.write_raw(&self.path, *at, &vec![0; len(*at)]),
            What::Misdirected { at, other, from } => {
                let other = disk.read_raw(other)?;
                let from = *from as usize;
                disk.write_raw(&self.path, *at, &other[from..from + len(*at)])
            }
            What::Stale(at) => {
                let old = before(starts, self.life, &self.path).unwrap_or_default();
                disk.write_raw(&self.path, *at, &old[*at as usize..][..len(*at)])
            }
            What::TwoSlots { at, zeroed: true } => {
                disk.write_raw(&self.path, *at, &[0; 2 * PAGE as usize])
            }
            What::TwoSlots { at, zeroed: false } => {
                disk.flip_bit(&self.path, *at + 100, 1)?;
                disk.flip_bit(&self.path, *at + PAGE + 2000, 5)
            }
            What::OlderImage { at, from, length } => {
                let old = before(starts, self.life, &self.path).unwrap_or_default();
                let old = &old[*from as usize..][..*length as usize];
                disk.write_raw(&self.path, *at, old)
            }
            What::Longer(more) => {
                let noise: Vec<u8> = (0..*more).map(|n| (n * 7 + n / 251) as u8).collect();
                disk.write_raw(&self.path, bytes.len() as u64, &noise)
            }
            What::Truncated(length) => disk.truncate_raw(&self.path, *length),
            What::Missing => disk.remove_raw(&self.path),
            What::Forged(forgery) => forged::apply(disk, &self.path, self.part(), forgery),
        }
    }
}

/// All damage to the disk that a life begins with.
pub fn all(starts: &[Start], life: Life) -> std::io::Result<Vec<Damage>> {
    let disk = &starts[life as usize].disk;
    let mut all = Vec::new();
    for path in disk.files() {
        let Some(part) = Part::of(&path, life) else {
            continue;
        };
        // What is not a placed table's own is as in the other lives.
        if life.is_placed() && !matches!(part, Part::Placed | Part::Places) {
            continue;
        }
        let bytes = disk.read_raw(&path)?;
        let mut what = vec![What::Missing];
        let length = bytes.len() as u64;
        what.extend((0..8).map(|n| What::Truncated(length / 8 * n)));
        what.extend([1, 512, PAGE].map(|n| What::Truncated(length.saturating_sub(n))));
        let page_places = || (0..length / PAGE).map(|n| n * PAGE);
        let used = |at: &u64| {
            bytes[*at as usize..][..PAGE as usize]
                .iter()
                .any(|&b| b != 0)
        };
        if part.has_pages() {
            for at in page_places().filter(used) {
                what.extend(IN_PAGE.map(|offset| What::FlippedBit(at + offset)));
                what.push(What::Zeroed(at));
                what.extend(misdirected(disk, (&path, life), at)?);
                what.extend(stale(starts, life, &path, at, &bytes));
            }
        } else {
            let last_used = bytes.iter().rposition(|&b| b != 0).unwrap_or(0) as u64 + 1;
            let step = (last_used / PLACES_MAX).max(1) | 1;
            what.extend((0..last_used).step_by(step as usize).map(What::FlippedBit));
            let blocks = page_places()
                .filter(used)
                .step_by(1 + (length / PAGE / PLACES_MAX) as usize);
            for at in blocks {
                what.push(What::Zeroed(at));
                what.extend(stale(starts, life, &path, at, &bytes));
                let from = if at >= PAGE { at - PAGE } else { at + PAGE };
                if from + PAGE <= length && at + PAGE <= length {
                    let other = path.clone();
                    what.push(What::Misdirected { at, other, from });
                }
            }
        }
        if part == Part::Places {
            let blocks = (0..(length / PAGE).saturating_sub(1) / 2).map(|n| (1 + 2 * n) * PAGE);
            what.extend(
                blocks.flat_map(|at| [true, false].map(|zeroed| What::TwoSlots { at, zeroed })),
            );
            what.extend([1, 100, PAGE, 2 * PAGE, 5 * PAGE].map(What::Longer));
        }
        if part == Part::Placed {
            what.extend(older_images(starts, life, &path));
            what.extend([1, PAGE, 7 * PAGE].map(What::Longer));
        }
        what.extend(forged::all(part, &bytes).into_iter().map(What::Forged));
        let path = &path;
        all.extend(what.into_iter().map(|what| Damage {
            life,
            path: path.clone(),
            what,
        }));
    }
    Ok(all)
}

/// The page before it in the same file, and the page of the same number of another file.
fn misdirected(disk: &SimVfs, (path, life): (&Path, Life), at: u64) -> std::io::Result<Vec<What>> {
    let mut all = Vec::new();
    if at >= PAGE {
        let (other, from) = (path.to_owned(), at - PAGE);
        all.push(What::Misdirected { at, other, from });
    }
    for other in disk.files() {
        let pages = Part::of(&other, life).is_some_and(Part::has_pages);
        if pages && other != path && disk.read_raw(&other)?.len() as u64 >= at + PAGE {
            let from = at;
            all.push(What::Misdirected { at, other, from });
            break;
        }
    }
    Ok(all)
}

/// The page as it was before the last life, if it was another.
fn stale(starts: &[Start], life: Life, path: &Path, at: u64, bytes: &[u8]) -> Option<What> {
    let old = before(starts, life, path)?;
    let page = at as usize..(at + PAGE) as usize;
    let old = old.get(page.clone())?;
    let written = old.iter().any(|&byte| byte != 0);
    (written && old != &bytes[page]).then_some(What::Stale(at))
}

/// A file as it was before the last life.
fn before(starts: &[Start], life: Life, path: &Path) -> Option<Vec<u8>> {
    starts[life.before()? as usize].disk.read_raw(path).ok()
}

/// Images of pages that had others before the last life, which take as many units.
fn older_images(starts: &[Start], life: Life, path: &Path) -> Vec<What> {
    let map = path.with_extension("places");
    let places = |file: Option<Vec<u8>>| {
        let parsed = file.and_then(|file| place_map::parse(&file).ok());
        parsed.map(|(_, places)| places).unwrap_or_default()
    };
    let old = places(before(starts, life, &map));
    let now = places(starts[life as usize].disk.read_raw(&map).ok());
    let both = old.iter().zip(&now);
    let changed = both
        .filter(|(old, now)| !old.is_empty() && old.units() == now.units() && old.lsn != now.lsn);
    let unit = |unit: u32| u64::from(unit) * PAGE;
    let images = changed.map(|(old, now)| What::OlderImage {
        at: unit(now.unit),
        from: unit(old.unit),
        length: unit(now.units()),
    });
    images.collect()
}

/// Applies damage, and looks for it; the error says what promise is broken.
pub fn run(starts: &[Start], damage: &Damage) -> Result<Finding, String> {
    let text = damage.to_string();
    watched(&text, || look(starts, damage)).map_err(|error| format!("{text}: {error}"))
}

fn look(starts: &[Start], damage: &Damage) -> Result<Finding, String> {
    let start = &starts[damage.life as usize];
    if let What::Forged(forgery) = &damage.what {
        return forged::look(start, damage, forgery);
    }
    let disk = start.copy();
    let applied = damage.apply(&disk, starts);
    applied.map_err(|error| error.to_string())?;
    let finding = match Look::open(&disk, start)? {
        Err(finding) => finding,
        Ok(first) => first.rows(&disk, start, damage)?,
    };
    let is_found = !matches!(finding, Finding::NoneLeft | Finding::LastCommitLost);
    if is_found && (damage.part().has_pages() || matches!(damage.part(), Part::Undo | Part::Places))
    {
        let damaged = start.copy();
        let applied = damage.apply(&damaged, starts);
        applied.map_err(|error| error.to_string())?;
        salvaged::check(start, &damaged, damage)?;
    }
    let cut = matches!(damage.what, What::Truncated(_)) && damage.part().has_pages();
    if cut
        && damage.life.begins_closed()
        && !matches!(finding, Finding::OnOpening | Finding::NoneLeft)
    {
        return Err(format!("{finding:?}: a short file was opened"));
    }
    Ok(finding)
}

struct Look {
    db: Database,
}

impl Look {
    fn open(disk: &SimVfs, start: &Start) -> Result<Result<Self, Finding>, String> {
        let opened = session::open(disk, &start.history).and_then(|db| {
            let names = db.tables()?;
            names.iter().try_for_each(|name| db.table(name).map(drop))?;
            Ok(db)
        });
        match opened {
            Ok(db) => Ok(Ok(Self { db })),
            Err(
                Error::Corrupt { .. }
                | Error::NotADatabase { .. }
                | Error::NewerFormat { .. }
                // The file of a table is missing.
                | Error::NotFound(_),
            ) => Ok(Err(Finding::OnOpening)),
            Err(error) => Err(format!("opening fails with \"{error}\"")),
        }
    }

    /// Compares all rows, twice: as they are now, and after another opening.
    fn rows(self, disk: &SimVfs, start: &Start, damage: &Damage) -> Result<Finding, String> {
        let mut history = start.history.clone();
        let states = history.states();
        let lost_max = usize::from(damage.part() == Part::Log);
        if let Some(finding) = self.look(&mut history, lost_max)? {
            return Ok(finding);
        }
        let again = Look::open(disk, start)?.map_err(|_| "the second opening fails".to_owned())?;
        if let Some(finding) = again.look(&mut history, 0)? {
            return Err(format!("{finding:?} at the second opening"));
        }
        if history.states() < states {
            Ok(Finding::LastCommitLost)
        } else {
            Ok(Finding::NoneLeft)
        }
    }

    /// Compares all rows and verifies all pages; what is found.
    fn look(self, history: &mut History, lost_max: usize) -> Result<Option<Finding>, String> {
        let found = match session::found(&self.db) {
            Ok(found) => found,
            Err(error) => return corrupt(&error, Finding::OnReading),
        };
        history.settle(&found, lost_max)?;
        let verified = session::verify(&self.db);
        match verified.and_then(|()| self.db.close()) {
            Ok(()) => Ok(None),
            Err(error) => corrupt(&error, Finding::OnVerifying),
        }
    }
}

fn corrupt(error: &Error, finding: Finding) -> Result<Option<Finding>, String> {
    match error {
        Error::Corrupt { .. } | Error::Poisoned(_) => Ok(Some(finding)),
        error => Err(format!("{finding:?}: \"{error}\"")),
    }
}
