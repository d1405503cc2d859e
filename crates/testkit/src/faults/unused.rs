//! A database that rests while the disk becomes full: no statement has written in it, or it was
//! closed in order. Then it is opened, several times, where nothing has become free.
//!
//! # What must hold
//!
//! 1. It opens, is read and verified, and takes no more of the disk than it had: one in which
//!    nothing was written stays as small as it is, however often it is opened and killed, also
//!    where there is room.
//! 2. A statement that needs more than there is fails with an error that names a file, and gives
//!    back what it had taken; the process goes on, and closes the database.
//! 3. When there is space again everything succeeds.

use super::session::{DIRECTORY, found, options};
use crate::campaign::watched;
use inkstone::{Database, Error, Isolation, Table};
use inkstone_io::sim::SimVfs;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows that a written database has, and those that a statement adds, which do not fit.
const ROWS: u64 = 200;
const MORE_ROWS: u64 = 4000;
/// Times that it is opened on the full disk.
const OPENINGS: u64 = 3;
/// What may be taken without need: blocks of files that are written anew.
const SLACK: u64 = 8 << 10;
/// Bytes that the disk has left. The first ones are less than the first statement takes.
const SPARES: [u64; 4] = [0, 60_000, 200_000, 1 << 20];
const SPARE_TOO_SMALL: u64 = 60_000;
/// How long a shortage may be noticed after it has passed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How each process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Closed,
    Killed,
    PowerLoss,
}

/// A database, and the processes that open it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    is_written: bool,
    spare: u64,
    end: End,
}

impl Case {
    /// All cases. What a killed database needs in which rows were written is in
    /// [`full`](super::full).
    pub fn all() -> impl Iterator<Item = Case> {
        let begins = [
            (false, End::Closed),
            (false, End::Killed),
            (false, End::PowerLoss),
            (true, End::Closed),
        ];
        begins.into_iter().flat_map(|(is_written, end)| {
            SPARES.map(|spare| Case {
                is_written,
                spare,
                end,
            })
        })
    }

    /// Runs it; the error says what is wrong.
    pub fn run(self) -> Result<(), String> {
        let name = self.to_string();
        watched(&name, || Run::new(self).run()).map_err(|text| format!("{name}: {text}"))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begun = if self.is_written {
            "written"
        } else {
            "unwritten"
        };
        write!(f, "full/{begun}/{}/{:?}", self.spare, self.end)
    }
}

fn failed(what: &'static str) -> impl Fn(Error) -> String {
    move |error| format!("{what}: {error}")
}

struct Run {
    case: Case,
    vfs: SimVfs,
    /// The rows of each table.
    rows: BTreeMap<String, u64>,
    ends: u64,
}

impl Run {
    fn new(case: Case) -> Self {
        Self {
            case,
            vfs: SimVfs::new(1),
            rows: BTreeMap::new(),
            ends: 0,
        }
    }

    fn run(mut self) -> Result<(), String> {
        let db = self.open()?;
        if self.case.is_written {
            self.write(&db, "first", ROWS)
                .map_err(failed("filling a table"))?;
        }
        self.end(db)?;
        let capacity = self.vfs.used_bytes() + self.case.spare;
        for opening in 0..OPENINGS {
            self.vfs.set_capacity_bytes(capacity);
            let db = self.open_full(opening)?;
            self.end(db)?;
        }
        self.vfs.set_capacity_bytes(u64::MAX);
        let db = self.open()?;
        self.soon(&db)?;
        self.compare(&db)?;
        db.close().map_err(failed("closing"))?;
        let db = self.open()?;
        self.compare(&db)
    }

    fn open(&self) -> Result<Database, String> {
        let vfs = Arc::new(self.vfs.clone());
        Database::open_on(vfs, Path::new(DIRECTORY), options(), &|_| {}).map_err(failed("opening"))
    }

    /// One process on the full disk.
    fn open_full(&mut self, opening: u64) -> Result<Database, String> {
        let before = self.vfs.used_bytes();
        let is_unwritten = self.rows.is_empty();
        let db = self.open()?;
        self.compare(&db)?;
        if is_unwritten {
            self.check_size(before, "opening and reading it")?;
        }
        // The first process only reads.
        if opening == 0 {
            return Ok(db);
        }
        let name = format!("more{opening}");
        match self.write(&db, &name, MORE_ROWS) {
            Ok(()) => return Err("there was room for what fits nowhere".to_owned()),
            Err(error) => self.check_refusal(&error)?,
        }
        if is_unwritten && self.case.spare <= SPARE_TOO_SMALL {
            if !self.rows.is_empty() {
                return Err("a table was made for which there is no room".to_owned());
            }
            self.check_size(before, "a statement that was refused")?;
        }
        self.compare(&db)?;
        Ok(db)
    }

    fn check_refusal(&self, error: &Error) -> Result<(), String> {
        let text = error.to_string();
        let names_a_file = [".log", ".ink", "prepare.tmp", "undo", "reserve"];
        match error {
            Error::DiskFull { .. } if names_a_file.iter().any(|name| text.contains(name)) => Ok(()),
            _ => Err(format!("on the full disk a statement fails with: {text}")),
        }
    }

    /// Nothing was made for a database in which nothing is written.
    fn check_size(&self, before: u64, what: &str) -> Result<(), String> {
        let now = self.vfs.used_bytes();
        if now <= before + SLACK {
            return Ok(());
        }
        Err(format!(
            "{what} made {now} bytes of {before}: {:?}",
            self.vfs.files()
        ))
    }

    /// Makes a table, and fills it in transactions of its own rows; notes what was committed.
    fn write(&mut self, db: &Database, name: &str, rows: u64) -> Result<(), Error> {
        let table = db.create_table(name, &[])?;
        self.rows.insert(name.to_owned(), 0);
        for first in (0..rows).step_by(50) {
            insert(db, &table, first..first + 50)?;
            self.rows.insert(name.to_owned(), first + 50);
        }
        Ok(())
    }

    fn compare(&self, db: &Database) -> Result<(), String> {
        let found = found(db).map_err(failed("reading"))?;
        let counts: BTreeMap<String, u64> = found
            .tables
            .iter()
            .map(|(name, trees)| (name.clone(), trees[0].len() as u64))
            .collect();
        if counts != self.rows {
            return Err(format!("rows {counts:?}, not {:?}", self.rows));
        }
        let verify = || {
            db.verify_catalog()?;
            let mut tables = self.rows.keys();
            tables.try_for_each(|name| db.verify_table(&db.table(name)?).map(drop))
        };
        verify().map_err(failed("verifying"))
    }

    /// There is space, which may be noticed late.
    fn soon(&mut self, db: &Database) -> Result<(), String> {
        let begin = Instant::now();
        for attempt in 0.. {
            match self.write(db, &format!("last{attempt}"), ROWS) {
                Ok(()) => break,
                Err(Error::DiskFull { .. }) if begin.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(format!("with space again: {error}")),
            }
        }
        Ok(())
    }

    fn end(&mut self, db: Database) -> Result<(), String> {
        self.ends += 1;
        match self.case.end {
            End::Closed => {
                db.close().map_err(failed("closing"))?;
                self.vfs = self.vfs.kill();
            }
            End::Killed => {
                self.vfs = self.vfs.kill();
                drop(db);
            }
            End::PowerLoss => {
                self.vfs = self.vfs.crash(self.case.spare + self.ends);
                drop(db);
            }
        }
        Ok(())
    }
}

fn insert(db: &Database, table: &Table, keys: std::ops::Range<u64>) -> Result<(), Error> {
    let txn = db.begin(Isolation::ReadCommitted)?;
    for key in keys {
        txn.insert(table, &key.to_be_bytes(), &[key as u8; 800])?;
    }
    txn.commit()
}
