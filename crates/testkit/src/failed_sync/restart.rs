//! A sync fails, the process ends, and the next one must trust nothing that only the page cache
//! shows it: some lives of one small database, in which syncs of a kind of file fail, processes are
//! killed and power is lost, also while a database is being opened.
//!
//! # What must hold
//!
//! Each commit has a number. It writes the number to a row of its own choice and to the row
//! `count`. After any open all rows are as of the number in `count`; that is no lower than the last
//! commit that was acknowledged, and no lower than the number that an earlier open had found: what
//! was once seen after recovery is there for good.

use crate::Rng;
use crate::driver::{DIRECTORY, Marks};
use inkstone::internals::options::{Doublewrite, Durability, FlushMethod, LogWrite};
use inkstone::{Database, Error, Isolation, Options, Table};
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::path::Path;
use std::sync::Arc;

/// Rows besides `count`.
const ROWS: u64 = 24;
const LIVES: u64 = 4;
const TABLE: &str = "rows";

/// What to run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Decides what the other fields do not.
    pub seed: u64,
    /// Syncs of files fail whose path contains this.
    pub file: &'static str,
    /// The first of them that fails, from 1, in the first life.
    pub nth: u64,
    /// How data files are written.
    pub flush_method: FlushMethod,
    /// Whether the log goes through the page cache.
    pub log_file_buffering: bool,
    /// The file system does not take the advice to let go of what it cached.
    pub keeps_cache: bool,
}

struct Lives {
    case: Case,
    rng: Rng,
    vfs: SimVfs,
    options: Options,
    /// The table is there for good.
    created: bool,
    /// The last commit that is there for good.
    floor: u64,
    /// The last commit that was tried.
    tried: u64,
    marks: Marks,
}

/// Runs a case; the error says what was lost.
pub fn run(case: Case) -> (Marks, Result<(), String>) {
    let mut rng = Rng::new(case.seed);
    let vfs = SimVfs::new(rng.next());
    vfs.set_keeps_cache(case.keeps_cache);
    let mut options = Options {
        page_size: 4096,
        buffer_pool_size: 64 * 4096,
        buffer_pool_instances: 1,
        log_file_size: 4 << 20,
        log_buffer_size: 2 << 20,
        flush_method: case.flush_method,
        log_file_buffering: case.log_file_buffering,
        flush_log_at_trx_commit: Durability::Sync,
        recovery_threads: 1,
        ..Options::default()
    };
    if rng.chance(25) {
        options.doublewrite = Doublewrite::Off;
        vfs.set_untorn_bytes(options.page_size);
    }
    let mut lives = Lives {
        case,
        rng,
        vfs,
        options,
        created: false,
        floor: 0,
        tried: 0,
        marks: Marks::default(),
    };
    let result = lives.run();
    (lives.marks, result)
}

impl Lives {
    fn run(&mut self) -> Result<(), String> {
        for life in 0..LIVES {
            crate::campaign::alive();
            self.options.log_write = self.rng.pick(&[LogWrite::Sync, LogWrite::Async]);
            self.options.log_write_through = self.rng.chance(20);
            self.options.doublewrite_skip_fresh = self.rng.chance(70);
            self.options.recovery_memory = self.rng.pick(&[0, 1 << 12]);
            let db = self.open(life)?;
            if life == 0 {
                match self.fill(&db) {
                    Err(Error::Poisoned(_)) if self.met_a_fault() => {}
                    filled => filled.map_err(|error| format!("fill: {error}"))?,
                }
                self.fail_sync(self.case.nth);
            } else if life == 1 && self.rng.chance(50) {
                let nth = 1 + self.rng.below(10);
                self.fail_sync(nth);
            }
            let worked = self.work(&db);
            self.end(db);
            worked.map_err(|text| format!("life {life}: {text}"))?;
        }
        self.open(LIVES).map(drop)
    }

    /// Whether an operation of this process failed because it was to fail.
    fn met_a_fault(&self) -> bool {
        !self.vfs.faulted().is_empty()
    }

    fn fail_sync(&self, nth: u64) {
        self.vfs.fail(FaultRule {
            kind: Some(OpKind::Sync),
            path_contains: self.case.file.to_owned(),
            nth,
            times: 1,
            fault: Fault::Eio,
        });
    }

    /// Opens and checks the database, with failing syncs and ends of the process in the middle of
    /// it.
    fn open(&mut self, life: u64) -> Result<Database, String> {
        for attempt in 0..4 {
            let trouble = if attempt < 3 { self.rng.below(4) } else { 3 };
            match trouble {
                0 => {
                    let nth = 1 + self.rng.below(6);
                    self.fail_sync(nth);
                }
                1 => {
                    let mutation = 1 + self.rng.below(40);
                    self.vfs.crash_at(mutation);
                }
                _ => {}
            }
            let vfs = Arc::new(self.vfs.clone());
            let opened =
                Database::open_on(vfs, Path::new(DIRECTORY), self.options.clone(), &|_| {});
            self.vfs.crash_at(u64::MAX);
            match opened {
                Ok(db) if !self.vfs.is_dead() => {
                    self.vfs.clear_faults();
                    match self.check(&db) {
                        Ok(()) => return Ok(db),
                        // The sync that was to fail was a background thread's: the database was
                        // open by then.
                        Err(_) if self.met_a_fault() && is_poisoned(&db) => {
                            self.marks.add("failed opens", 1);
                            self.end_process();
                        }
                        Err(text) => return Err(format!("life {life}: {text}")),
                    }
                }
                Ok(db) => self.end(db),
                Err(_) if self.vfs.is_dead() => {
                    self.marks.add("crashes while opening", 1);
                    self.vfs = self.vfs.crash(self.rng.next());
                }
                Err(Error::Io { .. } | Error::Poisoned(_)) if trouble == 0 => {
                    self.marks.add("failed opens", 1);
                    self.end_process();
                }
                Err(error) => return Err(format!("life {life}: it does not open: {error}")),
            }
        }
        Err("a database that nothing troubles does not open".to_owned())
    }

    /// Rows whose pages are on disk, and which the log does not initialise any more.
    fn fill(&mut self, db: &Database) -> inkstone::Result<()> {
        for _ in 0..ROWS {
            self.commit(db)?;
        }
        db.flush_table(&db.table(TABLE)?)?;
        db.checkpoint()
    }

    /// Commits until something fails, or for a while.
    fn work(&mut self, db: &Database) -> Result<(), String> {
        // A life that only states what it takes for durable, and changes nothing itself.
        let quiet = self.rng.chance(35);
        let steps = if quiet { 1 } else { self.rng.from_to(1, 60) };
        for _ in 0..steps {
            let step = if quiet { 0 } else { self.rng.below(100) };
            let done = match step {
                0..6 => db.checkpoint(),
                6..16 => db.table(TABLE).and_then(|table| db.flush_table(&table)),
                16..20 => {
                    let name = format!("other{}", self.rng.next());
                    db.create_table(&name, &[]).map(drop)
                }
                _ => self.commit(db),
            };
            match done {
                Ok(()) => {}
                Err(Error::Poisoned(_) | Error::Io { .. }) => {
                    self.marks.add("poisoned", 1);
                    return Ok(());
                }
                Err(Error::NotFound(_)) if !self.created => {}
                Err(error) => return Err(format!("step {step}: {error}")),
            }
        }
        Ok(())
    }

    fn commit(&mut self, db: &Database) -> inkstone::Result<()> {
        let table = match db.table(TABLE) {
            Ok(table) => table,
            Err(_) if !self.created => db.create_table(TABLE, &[])?,
            Err(error) => return Err(error),
        };
        self.created = true;
        let number = self.tried + 1;
        let txn = db.begin(Isolation::ReadCommitted)?;
        let length = self.rng.from_to(8, 900) as usize;
        let mut value = number.to_be_bytes().to_vec();
        value.resize(length, number as u8);
        txn.upsert(&table, &(number % ROWS).to_be_bytes(), &value)?;
        txn.upsert(&table, b"count", &number.to_be_bytes())?;
        self.tried = number;
        txn.commit()?;
        self.floor = number;
        self.marks.add("commits", 1);
        Ok(())
    }

    /// What the [module](self) says.
    fn check(&mut self, db: &Database) -> Result<(), String> {
        let failed = |error: Error| error.to_string();
        db.verify_catalog().map_err(failed)?;
        let table = match db.table(TABLE) {
            Ok(table) => table,
            Err(_) if !self.created => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        self.created = true;
        db.verify_table(&table).map_err(failed)?;
        let count = number_of(db, &table, b"count").map_err(failed)?;
        let (floor, tried) = (self.floor, self.tried);
        if !(floor..=tried).contains(&count) {
            return Err(format!(
                "the last commit there is {count}; {floor} was durable, {tried} the last one"
            ));
        }
        for row in 0..ROWS {
            let found = number_of(db, &table, &row.to_be_bytes()).map_err(failed)?;
            let expected = (0..=count).rev().find(|n| n % ROWS == row).unwrap_or(0);
            if found != expected {
                return Err(format!(
                    "row {row} is {found}, not {expected} as of {count}"
                ));
            }
        }
        self.marks.add("checks", 1);
        (self.floor, self.tried) = (count, count);
        Ok(())
    }

    fn end(&mut self, db: Database) {
        if self.vfs.is_dead() {
            self.vfs = self.vfs.crash(self.rng.next());
        } else if self.rng.chance(15) {
            // An orderly end, if it can be.
            let _ = db.close();
            self.vfs = self.vfs.kill();
            return;
        } else {
            self.end_process();
        }
        drop(db);
    }

    fn end_process(&mut self) {
        if self.rng.chance(65) {
            self.marks.add("kills", 1);
            self.vfs = self.vfs.kill();
        } else {
            self.marks.add("power losses", 1);
            self.vfs = self.vfs.crash(self.rng.next());
        }
    }
}

fn is_poisoned(db: &Database) -> bool {
    let begun = db.begin(Isolation::ReadCommitted);
    matches!(begun, Err(Error::Poisoned(_)))
}

/// The number in a row; 0 if there is none.
fn number_of(db: &Database, table: &Table, key: &[u8]) -> inkstone::Result<u64> {
    let txn = db.begin(Isolation::ReadCommitted)?;
    let value = txn.get(table, key)?;
    let number = value.as_deref().and_then(|value| value.first_chunk());
    Ok(number.map_or(0, |bytes| u64::from_be_bytes(*bytes)))
}
