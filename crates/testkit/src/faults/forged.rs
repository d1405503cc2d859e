//! A field of a block is nonsense, and the block's checksum fits: what a broken program, or a hand,
//! has written.
//!
//! # What must hold
//!
//! Opening, reading, verifying, writing, salvaging: each gives an error that says what is wrong, or
//! goes on. Never a panic, a hang, or an error that names a bug of the engine. What the rows are is
//! not known: a field may say that they are others.

use super::damage::{Damage, Finding, Part};
use super::session::{self, DIRECTORY};
use super::work::Start;
use inkstone::internals::salvage::salvage;
use inkstone::{Database, Error, Isolation};
use inkstone_format::{header, page_lsn_map};
use inkstone_io::Vfs;
use inkstone_io::overlay::OverlayVfs;
use inkstone_io::sim::SimVfs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const BLOCK: usize = 4096;
/// Every so many places of a page are hit.
const PLACES: usize = 16;

/// Where the places begin in a block of a place map; before them is what a slot has of its own.
const PLACES_FROM: usize = 16;

/// A field that becomes another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgery {
    /// Where it is in the file.
    pub at: u64,
    /// What stands there then.
    pub bytes: Vec<u8>,
}

/// Where the fields of a file are: in which of its blocks, at which bytes of them, how wide.
struct Fields {
    part: Part,
    blocks: Blocks,
    bytes: Range<usize>,
    width: usize,
}

#[derive(Clone, Copy)]
enum Blocks {
    /// The first one.
    First,
    /// All but the first.
    Others,
    All,
}

const fn fields(part: Part, blocks: Blocks, bytes: Range<usize>, width: usize) -> Fields {
    Fields {
        part,
        blocks,
        bytes,
        width,
    }
}

/// Behind magic numbers and checksums; what stands there is in docs/format.md.
const TABLE: &[Fields] = &[
    fields(Part::Control, Blocks::First, 8..16, 4),
    fields(Part::Control, Blocks::First, 32..96, 8),
    fields(Part::Control, Blocks::First, 96..104, 4),
    fields(Part::Control, Blocks::First, 104..105, 1),
    fields(Part::Control, Blocks::First, 112..120, 8),
    fields(Part::Log, Blocks::First, 8..12, 4),
    fields(Part::Log, Blocks::First, 16..40, 8),
    fields(Part::Doublewrite, Blocks::First, 8..16, 4),
    fields(Part::Doublewrite, Blocks::First, 32..40, 4),
    fields(Part::Doublewrite, Blocks::Others, 8..16, 8),
    fields(Part::Doublewrite, Blocks::Others, 32..60, 4),
    fields(Part::PageLsnMap, Blocks::First, 8..12, 4),
    fields(Part::PageLsnMap, Blocks::First, 32..48, 8),
    fields(Part::PageLsnMap, Blocks::Others, 4..16, 4),
    fields(Part::PageLsnMap, Blocks::Others, 16..40, 8),
    // The header of pages; the space header with its roots, or that of a node with its first slots.
    fields(Part::Catalog, Blocks::All, 4..80, 2),
    fields(Part::Catalog, Blocks::All, 16..24, 8),
    fields(Part::Data, Blocks::All, 4..80, 2),
    fields(Part::Data, Blocks::All, 16..24, 8),
    // Of a block, in both slots: the places of the first pages, of which each has a unit, a length
    // with a codec, and an LSN.
    fields(Part::Places, Blocks::First, 12..28, 4),
    fields(Part::Places, Blocks::First, 28..30, 1),
    fields(Part::Places, Blocks::Others, 4..8, 4),
    fields(Part::Places, Blocks::Others, 8..16, 8),
    fields(Part::Places, Blocks::Others, 16..112, 4),
];

/// All forgeries of a file of these bytes.
pub fn all(part: Part, bytes: &[u8]) -> Vec<Forgery> {
    let mut all = Vec::new();
    let blocks: Vec<_> = bytes.chunks_exact(BLOCK).enumerate().collect();
    for (n, block) in blocks
        .into_iter()
        .filter(|(_, block)| has_checksum(part, block))
    {
        for fields in TABLE.iter().filter(|fields| fields.part == part) {
            let here = match fields.blocks {
                Blocks::First => n == 0,
                Blocks::Others => n > 0,
                Blocks::All => true,
            };
            if !here {
                continue;
            }
            for field in fields.bytes.clone().step_by(fields.width) {
                // Each place of a page, in some pages.
                if part.has_pages() && !(n + field / 2).is_multiple_of(PLACES) {
                    continue;
                }
                let now = &block[field..field + fields.width];
                all.extend(values(now).into_iter().map(|bytes| Forgery {
                    at: (n * BLOCK + field) as u64,
                    bytes,
                }));
            }
        }
    }
    all
}

/// Whether a block is one that has a checksum, and not an image of a page, say.
fn has_checksum(part: Part, block: &[u8]) -> bool {
    match part {
        Part::Catalog | Part::Data | Part::PageLsnMap | Part::Places => !header::is_zero(block),
        Part::Control | Part::Log | Part::Doublewrite => {
            block.starts_with(b"INKST") && stored(block) == crc32c::crc32c(&block[..BLOCK - 4])
        }
        Part::Undo | Part::Placed => false,
    }
}

fn stored(block: &[u8]) -> u32 {
    u32::from_le_bytes(block[BLOCK - 4..].try_into().expect("four bytes"))
}

/// What a field becomes: the ends of its range, a number that is no power of two, and what is near
/// the number that stands there.
fn values(now: &[u8]) -> Vec<Vec<u8>> {
    let width = now.len();
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(now);
    let now = u64::from_le_bytes(wide);
    let bits = 8 * width as u32;
    let max = u64::MAX >> (64 - bits);
    let mut values = vec![
        0,
        1,
        max,
        now.wrapping_add(1) & max,
        now.wrapping_sub(1) & max,
    ];
    if width > 2 {
        values.extend([3, max / 2 + 1, 1 << (bits / 2), now | 1 << (bits - 4)]);
    }
    values.sort_unstable();
    values.dedup();
    values.retain(|&value| value != now);
    let bytes = |value: u64| value.to_le_bytes()[..width].to_vec();
    values.into_iter().map(bytes).collect()
}

/// Changes the field, in the control file in both copies, and makes the checksum fit.
pub fn apply(disk: &SimVfs, path: &Path, part: Part, forgery: &Forgery) -> std::io::Result<()> {
    let file = disk.read_raw(path)?;
    let (first, field) = (forgery.at as usize / BLOCK, forgery.at as usize % BLOCK);
    let blocks = match part {
        Part::Control => 0..2,
        // From the first slot of the block.
        Part::Places if first > 0 && field >= PLACES_FROM => {
            let slot = first - (first - 1) % 2;
            slot..slot + 2
        }
        _ => first..first + 1,
    };
    for n in blocks {
        let mut block = file[n * BLOCK..(n + 1) * BLOCK].to_vec();
        block[field..field + forgery.bytes.len()].copy_from_slice(&forgery.bytes);
        stamp(part, &file, n, &mut block);
        disk.write_raw(path, (n * BLOCK) as u64, &block)?;
    }
    Ok(())
}

fn stamp(part: Part, file: &[u8], n: usize, block: &mut [u8]) {
    let sector = page_lsn_map::SECTOR_LEN;
    let (from, to, at) = match part {
        Part::Catalog | Part::Data => return header::stamp_checksum(block),
        Part::PageLsnMap if n > 0 => {
            let crc = crc32c::crc32c_append(crc32c::crc32c(&file[16..32]), &block[4..sector]);
            return block[..4].copy_from_slice(&crc.to_le_bytes());
        }
        Part::PageLsnMap => (0, sector - 4, sector - 4),
        Part::Places => (4, BLOCK, 0),
        _ => (0, BLOCK - 4, BLOCK - 4),
    };
    let crc = crc32c::crc32c(&block[from..to]);
    block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Does with a forged disk what programs do.
pub fn look(start: &Start, damage: &Damage, forgery: &Forgery) -> Result<Finding, String> {
    let disk = start.copy();
    let applied = apply(&disk, &damage.path, damage.part(), forgery);
    applied.map_err(|error| error.to_string())?;
    let overlay: Arc<dyn Vfs> = Arc::new(OverlayVfs::new(Arc::new(disk.clone())));
    if let Err(error) = salvage(&overlay, Path::new(DIRECTORY), &start.history.options()) {
        clear(&error, "salvaging")?;
    }
    let mut finding = Finding::NoneLeft;
    for when in ["opening", "opening again"] {
        let db = match session::open(&disk, &start.history) {
            Ok(db) => db,
            Err(error) => {
                clear(&error, when)?;
                return Ok(Finding::OnOpening);
            }
        };
        let steps: [(&str, Finding, Step<'_>); 3] = [
            ("reading", Finding::OnReading, &|db| {
                session::found(db).map(drop)
            }),
            ("writing", Finding::OnReading, &write),
            ("verifying", Finding::OnVerifying, &session::verify),
        ];
        for (name, found, step) in steps {
            if let Err(error) = step(&db) {
                clear(&error, name)?;
                finding = if finding == Finding::NoneLeft {
                    found
                } else {
                    finding
                };
            }
        }
        if let Err(error) = db.close() {
            clear(&error, "closing")?;
        }
    }
    Ok(finding)
}

type Step<'a> = &'a dyn Fn(&Database) -> Result<(), Error>;

/// Rows short and long in every table, and a new table.
fn write(db: &Database) -> Result<(), Error> {
    let txn = db.begin(Isolation::ReadCommitted)?;
    for name in db.tables()? {
        let table = db.table(&name)?;
        for n in [0_u8, 100, 255] {
            txn.upsert(&table, &[n; 3], &vec![n; 20 + 9000 * usize::from(n / 255)])?;
        }
    }
    txn.commit()?;
    db.create_table("new", &["tree"])?;
    db.checkpoint()
}

/// An error of bytes that are wrong says that they are.
fn clear(error: &Error, when: &str) -> Result<(), String> {
    match error {
        Error::Corrupt { .. }
        | Error::NotADatabase { .. }
        | Error::NewerFormat { .. }
        | Error::InvalidOption { .. }
        | Error::Poisoned(_)
        // Numbers are used up.
        | Error::Unsupported(_)
        | Error::NotFound(_)
        | Error::AlreadyExists(_) => Ok(()),
        error => Err(format!("{when} fails with \"{error}\" ({error:?})")),
    }
}
