//! Many tables, slow syncs, several flushers: a sync fails once while others are under way, and
//! power is lost.
//!
//! A kernel reports a failed sync once. Pages that were written before it are lost, though a later
//! sync of the same file succeeds: the flusher that began that one, or waited for it, must not take
//! its pages for durable. A flusher that looked at the failure only when all files of its batch
//! were synced left the others time to do that, and to state a checkpoint behind it.
//!
//! # What must hold
//!
//! After the power loss each row is as of a commit that was tried, and not older than the last one
//! that was acknowledged. What no sync failed under works to its end.

use crate::Rng;
use crate::driver::{DIRECTORY, Marks};
use crate::schedule;
use inkstone::internals::options::{Doublewrite, Durability, FlushMethod, LogWrite};
use inkstone::internals::store::space_file_name;
use inkstone::internals::sync::thread;
use inkstone::{Database, Error, Isolation, Options, Table};
use inkstone_format::SpaceId;
use inkstone_io::sim::{Fault, FaultRule, OpKind, SimVfs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The mark of a run in which a sync failed.
pub const FAILED_MARK: &str = "slow syncs of which one failed";
/// Rows of a table, one of these.
const ROWS_OF_TABLE: [u64; 4] = [8, 40, 60, 160];
const VALUE_BYTES: usize = 240;
const WRITERS: u64 = 4;
const FLUSHERS: u64 = 3;
/// Rounds of [`Style::Rounds`].
const ROUNDS: u64 = 4;
const PAGE_BYTES: u64 = 4096;
/// Time between two checkpoints.
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(5);

/// What to run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Decides what the other fields do not.
    pub seed: u64,
    /// Tables, each in a file of its own.
    pub tables: u64,
    /// What a sync takes of a file whose path contains `slow`.
    pub sync_time: Duration,
    /// Syncs of other files take next to no time.
    pub slow: &'static str,
    /// Of which files alone the syncs fail.
    pub failing: Option<Failing>,
    /// A sync of a file fails whose path contains this.
    pub file: String,
    /// Which of them, from 1.
    pub nth: u64,
    /// How data files are written.
    pub flush_method: FlushMethod,
    /// Transactions of each writer.
    pub commits: u64,
    /// Whether there are copies of pages that are being written, from which recovery repairs much.
    /// (If not, the disk tears no page.)
    pub copies: bool,
    /// What the threads do.
    pub style: Style,
}

/// What the threads of a case do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// They write and flush all over the tables.
    Anywhere,
    /// Writers go through the tables in their order, so that old changes are in other files than
    /// new ones.
    Sweep,
    /// Again and again one flushes an old change of a table, and another newer ones of the same
    /// table and many more: it is that table's syncs of which one fails.
    Rounds {
        /// The table.
        hot: u64,
    },
}

/// Of which files alone the syncs fail: what some bugs need comes together seldom in any mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Failing {
    /// Of the log.
    Log,
    /// Of a table's pages, which two flush side by side.
    Pages,
}

impl Failing {
    /// What asks a command for it.
    pub fn argument(self) -> &'static str {
        match self {
            Failing::Log => "--failing=log",
            Failing::Pages => "--failing=pages",
        }
    }
}

impl Case {
    /// The case of a seed, in which a sync of any file fails, or of such a file.
    pub fn of_seed(seed: u64, failing: Option<Failing>) -> Self {
        let mut rng = Rng::new(seed ^ 0x0f5c);
        let rng = &mut rng;
        // Real sleeps are not to be slept through.
        let sync_millis = if cfg!(inkstone_sim) {
            rng.pick(&[1, 20, 60, 60])
        } else {
            2
        };
        let tables = rng.pick(&[3, 12, 42, 42]);
        let style = match failing {
            None => rng.below(4),
            Some(Failing::Log) => rng.below(2),
            Some(Failing::Pages) => 2,
        };
        let style = match style {
            0 => Style::Anywhere,
            1 => Style::Sweep,
            _ => Style::Rounds {
                hot: rng.below(tables / 2),
            },
        };
        let (file, nth) = match style {
            // The catalog's tablespace is the first.
            Style::Rounds { hot } => (space_file_name(SpaceId(hot as u32 + 1)), rng.below(9)),
            _ => {
                let files: &[_] = match failing {
                    Some(Failing::Log) => &["log/"],
                    _ => &[".ink", ".ink", "doublewrite", "log/", "log/"],
                };
                (rng.pick(files).to_owned(), rng.below(120))
            }
        };
        Self {
            seed,
            failing,
            tables,
            sync_time: Duration::from_millis(sync_millis),
            // In rounds no flusher is to wait for the log.
            slow: match style {
                Style::Rounds { .. } => rng.pick(&["", ".ink", ".ink", ".ink"]),
                _ => rng.pick(&["", ".ink"]),
            },
            file,
            nth: 1 + nth,
            flush_method: rng.pick(&[FlushMethod::ODirect, FlushMethod::Fsync]),
            commits: rng.from_to(20, 300),
            copies: rng.chance(50),
            style,
        }
    }

    fn options(&self, rng: &mut Rng) -> Options {
        Options {
            page_size: PAGE_BYTES,
            buffer_pool_size: PAGE_BYTES * rng.pick(&[128, 256, 1024]),
            buffer_pool_instances: rng.pick(&[1, 4]),
            log_file_size: 4 << 20,
            log_buffer_size: 2 << 20,
            flush_method: self.flush_method,
            log_file_buffering: rng.chance(50),
            log_write: rng.pick(&[LogWrite::Sync, LogWrite::Async]),
            doublewrite: if self.copies {
                Doublewrite::On
            } else {
                Doublewrite::Off
            },
            doublewrite_skip_fresh: rng.chance(50),
            flush_log_at_trx_commit: Durability::Sync,
            ..Options::default()
        }
    }
}

/// A row's last commits.
#[derive(Debug, Default)]
struct Row {
    tried: AtomicU64,
    acknowledged: AtomicU64,
}

/// What the threads of a run share.
struct Work {
    case: Case,
    db: Database,
    tables: Vec<Table>,
    /// Of each table.
    rows: Vec<Vec<Row>>,
    writers_left: AtomicU64,
    wrong: parking_lot::Mutex<Option<String>>,
    poisoned: AtomicBool,
}

/// Runs a case; the error says what was lost.
pub fn run(case: Case) -> (Marks, Result<(), String>) {
    schedule::under(case.seed, move || {
        let mut marks = Marks::default();
        let result = live(case, &mut marks);
        (marks, result)
    })
}

fn live(case: Case, marks: &mut Marks) -> Result<(), String> {
    let mut rng = Rng::new(case.seed);
    let vfs = SimVfs::new(rng.next());
    schedule::attach(&vfs);
    if !case.copies {
        vfs.set_untorn_bytes(PAGE_BYTES);
    }
    let options = case.options(&mut rng);
    let work =
        prepare(case, &vfs, &options, &mut rng).map_err(|error| format!("prepare: {error}"))?;
    vfs.set_sync_delay_of(work.case.slow, work.case.sync_time);
    vfs.fail(FaultRule {
        kind: Some(OpKind::Sync),
        path_contains: work.case.file.clone(),
        nth: work.case.nth,
        times: 1,
        fault: Fault::Eio,
    });
    work.work();
    let failed = !vfs.faulted().is_empty();
    let (rows, poisoned, wrong) = work.end();
    let disk = vfs.crash(rng.next());
    disk.set_sync_delay(Duration::ZERO);
    marks.add("power losses", 1);
    marks.add(FAILED_MARK, u64::from(failed));
    if let Some(text) = wrong {
        return Err(text);
    }
    if poisoned && !failed {
        return Err("poisoned, and no sync had failed".to_owned());
    }
    check(&disk, &options, &rows, marks)
}

/// A database whose pages are all on disk, and which the log does not initialise any more.
fn prepare(case: Case, vfs: &SimVfs, options: &Options, rng: &mut Rng) -> inkstone::Result<Work> {
    let db = open(vfs, options)?;
    let (mut tables, mut rows) = (Vec::new(), Vec::new());
    for table in 0..case.tables {
        let table = db.create_table(&name(table), &[])?;
        let txn = db.begin(Isolation::ReadCommitted)?;
        let rows_of_table = rng.pick(&ROWS_OF_TABLE);
        for row in 0..rows_of_table {
            txn.upsert(&table, &row.to_be_bytes(), &value(0))?;
        }
        txn.commit()?;
        tables.push(table);
        rows.push((0..rows_of_table).map(|_| Row::default()).collect());
    }
    db.checkpoint()?;
    Ok(Work {
        rows,
        case,
        db,
        tables,
        writers_left: AtomicU64::new(WRITERS),
        wrong: parking_lot::Mutex::default(),
        poisoned: AtomicBool::new(false),
    })
}

fn open(vfs: &SimVfs, options: &Options) -> inkstone::Result<Database> {
    let vfs = Arc::new(vfs.clone());
    Database::open_on(vfs, Path::new(DIRECTORY), options.clone(), &|_| {})
}

fn name(table: u64) -> String {
    format!("table{table}")
}

fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(VALUE_BYTES, number as u8);
    value
}

impl Work {
    fn work(&self) {
        let spawned = thread::scope(|scope| {
            scope.spawn("checkpoints", || {
                self.upkeep(FLUSHERS, |_| self.checkpoint());
            })?;
            if let Style::Rounds { hot } = self.case.style {
                self.writers_left.store(1, Ordering::Relaxed);
                scope.spawn("rounds", move || self.rounds(hot))?;
                return Ok(());
            }
            for n in 0..FLUSHERS {
                let flush = move || self.upkeep(n, |rng| self.flush(rng));
                scope.spawn(format!("flusher {n}"), flush)?;
            }
            for n in 0..WRITERS {
                scope.spawn(format!("writer {n}"), move || self.write(n))?;
            }
            Ok(())
        });
        if let Err(error) = spawned {
            self.say(&Error::io("start", Path::new("a thread"), error));
        }
    }

    /// What [`Style::Rounds`] says.
    fn rounds(&self, hot: u64) {
        let mut rng = Rng::new(self.case.seed << 8);
        for round in 0..ROUNDS {
            if let Err(error) = self.round(&mut rng, hot, 2 * round + 1) {
                self.say(&error);
                break;
            }
        }
        self.writers_left.fetch_sub(1, Ordering::Relaxed);
    }

    fn round(&self, rng: &mut Rng, hot: u64, number: u64) -> inkstone::Result<()> {
        crate::campaign::alive();
        // Nothing is older than the change of the hot table.
        self.db.checkpoint()?;
        self.change(number, &[(hot, self.row(rng, hot, 0))])?;
        let delay = self.case.sync_time.mul_f64(rng.below(100) as f64 / 100.0);
        // The syncs of a batch end one after the other here. Where there are few, that of the hot
        // table is soon among them, before the other flush of it has ended, and yet not the last.
        let others = rng.pick(&[1, 1, 2, self.case.tables]);
        let newer: Vec<_> = (hot..self.case.tables.min(hot + 1 + others))
            .flat_map(|table| [(table, 0), (table, 1)])
            .map(|(table, writer)| (table, self.row(rng, table, writer)))
            .collect();
        let flush = || {
            if let Err(error) = self.db.flush_table(&self.tables[hot as usize]) {
                self.say(&error);
            }
        };
        thread::scope(|scope| {
            // Without the thread nothing is flushed side by side, and nothing is lost.
            let _ = scope.spawn("flusher", flush);
            thread::sleep(delay);
            self.change(number + 1, &newer)?;
            self.db.checkpoint()
        })
    }

    /// Takes notice of an error. Only what a failed sync explains is legal.
    fn say(&self, error: &Error) {
        match error {
            Error::Poisoned(_) => self.poisoned.store(true, Ordering::Relaxed),
            error => *self.wrong.lock() = Some(error.to_string()),
        }
    }

    /// Commits changes of rows of its own.
    fn write(&self, writer: u64) {
        let mut rng = Rng::new(self.case.seed << 8 | writer);
        for number in 1..=self.case.commits {
            crate::campaign::alive();
            if let Err(error) = self.commit(&mut rng, writer, number) {
                self.say(&error);
                break;
            }
        }
        self.writers_left.fetch_sub(1, Ordering::Relaxed);
    }

    fn commit(&self, rng: &mut Rng, writer: u64, number: u64) -> inkstone::Result<()> {
        let mut rows = Vec::new();
        for _ in 0..rng.from_to(1, 40) {
            let table = match self.case.style {
                Style::Sweep => (number + rng.below(2)) % self.case.tables,
                _ => rng.below(self.case.tables),
            };
            rows.push((table, self.row(rng, table, writer)));
        }
        self.change(number, &rows)
    }

    /// A row of a table that only this writer changes.
    fn row(&self, rng: &mut Rng, table: u64, writer: u64) -> u64 {
        let rows = self.rows[table as usize].len() as u64;
        rng.below(rows / WRITERS) * WRITERS + writer
    }

    /// Commits a change of rows, each with its table.
    fn change(&self, number: u64, rows: &[(u64, u64)]) -> inkstone::Result<()> {
        let txn = self.db.begin(Isolation::ReadCommitted)?;
        let noted = |&(table, row): &(u64, u64)| &self.rows[table as usize][row as usize];
        for at in rows {
            noted(at).tried.store(number, Ordering::Relaxed);
            let table = &self.tables[at.0 as usize];
            txn.upsert(table, &at.1.to_be_bytes(), &value(number))?;
        }
        txn.commit()?;
        for at in rows {
            noted(at).acknowledged.store(number, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Does something again and again, as long as there are writers.
    fn upkeep(&self, n: u64, mut work: impl FnMut(&mut Rng) -> inkstone::Result<()>) {
        let mut rng = Rng::new(self.case.seed << 8 | (WRITERS + n));
        while self.writers_left.load(Ordering::Relaxed) > 0 {
            if let Err(error) = work(&mut rng) {
                return self.say(&error);
            }
        }
    }

    fn flush(&self, rng: &mut Rng) -> inkstone::Result<()> {
        // Changes gather meanwhile.
        thread::sleep(self.case.sync_time * rng.below(40) as u32);
        if rng.chance(50) {
            self.db.checkpoint()
        } else {
            let table = rng.below(self.case.tables);
            self.db.flush_table(&self.tables[table as usize])
        }
    }

    /// States how far the flushers have come, and flushes nothing itself.
    fn checkpoint(&self) -> inkstone::Result<()> {
        thread::sleep(CHECKPOINT_PAUSE);
        self.db.maintain(u64::MAX)
    }

    fn end(self) -> (Vec<Vec<Row>>, bool, Option<String>) {
        let poisoned = self.poisoned.into_inner();
        (self.rows, poisoned, self.wrong.into_inner())
    }
}

/// What the [module](self) says.
fn check(
    disk: &SimVfs,
    options: &Options,
    rows: &[Vec<Row>],
    marks: &mut Marks,
) -> Result<(), String> {
    let failed = |error: Error| format!("after the power loss: {error}");
    let db = open(disk, options).map_err(failed)?;
    let (mut all, mut lost, mut first) = (0, 0, None);
    for (table, rows) in (0..).zip(rows) {
        for (key, row) in (0..).zip(rows) {
            let found = number_of(&db, &name(table), key).map_err(failed)?;
            let (acknowledged, tried) = (
                row.acknowledged.load(Ordering::Relaxed),
                row.tried.load(Ordering::Relaxed),
            );
            all += u64::from(acknowledged > 0);
            // A number that no commit wrote is as wrong as a lost one.
            if !(acknowledged..=tried).contains(&found) {
                lost += 1;
                first.get_or_insert(format!(
                    "row {key} of table {table} is of commit {found}, and {acknowledged} was acknowledged"
                ));
            }
        }
        let table = db.table(&name(table)).map_err(failed)?;
        db.verify_table(&table).map_err(failed)?;
    }
    marks.add("rows checked", all);
    match first {
        None => db.close().map_err(failed),
        Some(first) => Err(format!(
            "{lost} of {all} acknowledged rows are lost; the first: {first}"
        )),
    }
}

/// The number of the commit that a row is of.
fn number_of(db: &Database, table: &str, row: u64) -> inkstone::Result<u64> {
    let txn = db.begin(Isolation::ReadCommitted)?;
    let value = txn.get(&db.table(table)?, &row.to_be_bytes())?;
    let number = value.as_deref().and_then(|value| value.first_chunk());
    Ok(number.map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes)))
}
