//! Files that cannot be read, written or grown for as long as it lasts: each file of the database,
//! the whole of it or some blocks, in each [life](super::work), from its beginning or from its
//! middle.
//!
//! What must hold stands in [`trial`](super::trial). And: what only makes the engine faster or
//! finds faults of the disk (the map of page LSNs, the dump of the buffer pool) refuses nothing; a
//! full disk keeps no database from opening, killed or closed; only the log's writes stop the
//! engine.

use super::every::Consequence;
use super::trial::{End, Promises, Trial};
use super::work::{Life, Start};
use crate::campaign::watched;
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::fmt;
use std::ops::Range;

/// What something is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The control file.
    Control,
    /// All segments of the log, and their directory.
    Log,
    /// The catalog's tablespace.
    Catalog,
    /// The tablespace of the table `rows`.
    Table,
    /// The place map of that table, where it is placed.
    PlaceMap,
    /// The doublewrite file.
    Doublewrite,
    /// The map of page LSNs.
    PageLsnMap,
    /// The undo file.
    Undo,
    /// The page numbers that were resident at the last close.
    PoolDump,
    /// The database's directory, and everything in it.
    Directory,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// Reads fail with `EIO`.
    Reads,
    /// Writes fail with `EIO`.
    Writes,
    /// There is no space for it to grow into.
    Full,
    /// There is no space, and overwriting needs some too, as on file systems that copy on write.
    FullForWrites,
    /// The right to open, rename and remove it is missing.
    Access,
    /// The right to list it is missing.
    Listing,
}

/// Bytes of the file that it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All.
    All,
    /// The first 4 KiB.
    FirstBlock,
    /// What is behind the first 8 KiB.
    Rest,
}

/// From when on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Before the database is opened.
    Opening,
    /// Before this step of the work.
    Step(u64),
}

/// Until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The end of the work.
    Work,
    /// The end of the process.
    Process,
}

/// One life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Which one.
    pub life: Life,
    /// Where something is wrong.
    pub place: Place,
    /// What.
    pub wrong: Wrong,
    /// With which bytes.
    pub extent: Extent,
    /// From when on.
    pub since: Since,
    /// Until when.
    pub until: Until,
}

const FILES: [Place; 8] = [
    Place::Control,
    Place::Log,
    Place::Catalog,
    Place::Table,
    Place::Doublewrite,
    Place::PageLsnMap,
    Place::Undo,
    Place::PoolDump,
];
/// Each file alone, and the whole disk.
const DISK: [Place; 9] = [
    Place::Control,
    Place::Log,
    Place::Catalog,
    Place::Table,
    Place::Doublewrite,
    Place::PageLsnMap,
    Place::Undo,
    Place::PoolDump,
    Place::Directory,
];
const ALL_BYTES: &[Extent] = &[Extent::All];
const EXTENTS: &[Extent] = &[Extent::All, Extent::FirstBlock, Extent::Rest];

/// What can be wrong, where, and with which bytes.
const TABLE: [(&[Place], Wrong, &[Extent]); 6] = [
    (&FILES, Wrong::Reads, EXTENTS),
    (&FILES, Wrong::Writes, EXTENTS),
    (&DISK, Wrong::Full, ALL_BYTES),
    (&FILES, Wrong::FullForWrites, EXTENTS),
    (&FILES, Wrong::Access, ALL_BYTES),
    (&[Place::Directory, Place::Log], Wrong::Listing, ALL_BYTES),
];
const SINCE: [Since; 4] = [
    Since::Opening,
    Since::Step(0),
    Since::Step(4),
    Since::Step(9),
];
const UNTIL: [Until; 2] = [Until::Work, Until::Process];

impl Place {
    /// Text in the paths that it stands for, and in errors that name it.
    fn texts(self) -> &'static [&'static str] {
        match self {
            Place::Control => &["control"],
            Place::Log => &["log"],
            Place::Catalog => &["catalog.ink"],
            Place::Table => &["t00000001.ink"],
            Place::PlaceMap => &["t00000001.places"],
            Place::Doublewrite => &["doublewrite"],
            Place::PageLsnMap => &["page_lsn_map"],
            Place::Undo => &["undo"],
            Place::PoolDump => &["buffer_pool.dump"],
            Place::Directory => &["db"],
        }
    }
}

impl Wrong {
    /// The operations that fail, and how.
    fn rules(self) -> &'static [(OpKind, Fault)] {
        match self {
            Wrong::Reads => &[(OpKind::Read, Fault::Eio)],
            Wrong::Writes => &[(OpKind::Write, Fault::Eio)],
            Wrong::Full => &[(OpKind::Allocate, Fault::Enospc)],
            Wrong::FullForWrites => &[
                (OpKind::Allocate, Fault::Enospc),
                (OpKind::Write, Fault::Enospc),
            ],
            Wrong::Access => &[
                (OpKind::Open, Fault::Eacces),
                (OpKind::Rename, Fault::Eacces),
                (OpKind::Remove, Fault::Eacces),
            ],
            Wrong::Listing => &[(OpKind::List, Fault::Eacces)],
        }
    }
}

impl Extent {
    fn bytes(self) -> Option<Range<u64>> {
        match self {
            Extent::All => None,
            Extent::FirstBlock => Some(0..4096),
            Extent::Rest => Some(8192..u64::MAX),
        }
    }
}

impl Case {
    /// All cases.
    pub fn all() -> Vec<Case> {
        let mut all = Vec::new();
        for life in Life::ALL {
            for (places, wrong, extents) in TABLE {
                // What is not a placed table's own is as in the other lives.
                let own: &[Place] = match wrong {
                    Wrong::Listing => &[],
                    Wrong::Full => &[Place::Table, Place::PlaceMap, Place::Directory],
                    _ => &[Place::Table, Place::PlaceMap],
                };
                for &place in if life.is_placed() { own } else { places } {
                    for &extent in extents {
                        for since in SINCE {
                            all.extend(UNTIL.map(|until| Case {
                                life,
                                place,
                                wrong,
                                extent,
                                since,
                                until,
                            }));
                        }
                    }
                }
            }
        }
        all
    }

    fn promises(&self) -> Promises {
        use Place::{Log, PageLsnMap, PoolDump};
        use Wrong::{Full, FullForWrites, Writes};
        Promises {
            may_poison: self.place == Log && matches!(self.wrong, Writes | FullForWrites),
            opens: self.place == PoolDump
                || (self.place == PageLsnMap && self.life != Life::Creation)
                || (self.wrong == Full && !self.life.is_creation()),
            works: self.place == PoolDump
                || (self.place == PageLsnMap && !matches!(self.wrong, Full | FullForWrites)),
            named: self.place.texts(),
        }
    }

    /// Makes it go wrong.
    fn begin(&self, vfs: &SimVfs) {
        for &(kind, fault) in self.wrong.rules() {
            let rule = FaultRule {
                kind: Some(kind),
                path_contains: self.place.texts()[0].to_owned(),
                nth: 1,
                times: u64::MAX,
                fault,
            };
            match self.extent.bytes() {
                Some(bytes) if matches!(kind, OpKind::Read | OpKind::Write) => {
                    vfs.fail_bytes(rule, bytes);
                }
                _ => vfs.fail(rule),
            }
        }
    }

    /// Decides what the case leaves open.
    fn seed(&self) -> u64 {
        u64::from(crc32c::crc32c(self.to_string().as_bytes()))
    }

    /// Runs the case; the error says what is wrong.
    pub fn run(&self, starts: &[Start]) -> Result<Consequence, String> {
        let line = format!("cargo xtask faults --case {self}");
        watched(&line, || self.trial(starts).run())
    }

    fn trial(&self, starts: &[Start]) -> Trial<'static> {
        let start = &starts[self.life as usize];
        let vfs = start.copy();
        if self.since == Since::Opening {
            self.begin(&vfs);
        }
        let (this, on) = (*self, vfs.clone());
        Trial {
            vfs,
            history: start.history.clone(),
            work: self.life.work(),
            before_step: Box::new(move |step| {
                if this.since == Since::Step(step) {
                    this.begin(&on);
                }
            }),
            end: End {
                relieved: self.until == Until::Work,
                killed: self.life.is_killed(),
                power_loss: self.seed().is_multiple_of(2).then_some(self.seed()),
            },
            promises: self.promises(),
        }
    }
}

impl Since {
    fn text(self) -> String {
        match self {
            Since::Opening => "opening".to_owned(),
            Since::Step(step) => format!("step{step}"),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lasting/{}/{:?}/{:?}/{:?}/{}/{:?}",
            self.life.name(),
            self.place,
            self.wrong,
            self.extent,
            self.since.text(),
            self.until,
        )
    }
}

impl std::str::FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Case::all()
            .into_iter()
            .find(|case| case.to_string() == text);
        found.ok_or_else(|| {
            format!("{text}: no such case; one is lasting/work/Table/Reads/All/opening/Work")
        })
    }
}
