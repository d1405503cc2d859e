//! The fixed piece of work in which operations fail: five lives of a process, of which four follow
//! one another.

use super::session::{DIRECTORY, Finish, History, Outcome, Session, Stop, Work, options};
use inkstone::internals::control::CONTROL_FILE;
use inkstone::internals::store::DOUBLEWRITE_FILE;
use inkstone_format::control::{CONTROL_COPY_LEN, Control};
use inkstone_format::header::page_lsn;
use inkstone_io::sim::SimVfs;
use std::collections::HashSet;
use std::path::Path;

/// A life of the process. Each begins with the disk that the one before it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Life {
    /// The database is created, filled, and closed.
    Creation,
    /// It is opened, changed, and killed, with a transaction open and another prepared.
    Work,
    /// It is recovered from the kill.
    AfterKill,
    /// It is recovered from the kill, and pages that were written last are torn.
    AfterTear,
    /// A database that was created, and killed before its first statement, is opened and filled.
    Unwritten,
    /// As `Creation`, with tables that are placed.
    PlacedCreation,
    /// As `Work`, with them.
    PlacedWork,
    /// As `AfterKill`, with them.
    PlacedAfterKill,
}

impl Life {
    /// All lives.
    pub const ALL: [Life; 8] = [
        Life::Creation,
        Life::Work,
        Life::AfterKill,
        Life::AfterTear,
        Life::Unwritten,
        Life::PlacedCreation,
        Life::PlacedWork,
        Life::PlacedAfterKill,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Life::Creation => "creation",
            Life::Work => "work",
            Life::AfterKill => "after-kill",
            Life::AfterTear => "after-tear",
            Life::Unwritten => "unwritten",
            Life::PlacedCreation => "placed-creation",
            Life::PlacedWork => "placed-work",
            Life::PlacedAfterKill => "placed-after-kill",
        }
    }

    /// What is done in it.
    pub fn work(self) -> &'static dyn Fn(&mut Session) -> Outcome {
        match self {
            Life::Creation | Life::PlacedCreation => &creation,
            Life::Unwritten => &first_statements,
            Life::Work | Life::PlacedWork => &changes,
            Life::AfterKill | Life::AfterTear | Life::PlacedAfterKill => &recovered,
        }
    }

    /// Whether the process ends without closing the database.
    pub fn is_killed(self) -> bool {
        matches!(self, Life::Work | Life::PlacedWork)
    }

    /// Whether the tables' pages are placed.
    pub fn is_placed(self) -> bool {
        self >= Life::PlacedCreation
    }

    /// Whether it begins with a database that is new, or was closed in order.
    pub fn begins_closed(self) -> bool {
        !matches!(
            self,
            Life::AfterKill | Life::AfterTear | Life::Unwritten | Life::PlacedAfterKill
        )
    }

    /// Whether there is nothing before it.
    pub fn is_creation(self) -> bool {
        matches!(self, Life::Creation | Life::PlacedCreation)
    }

    /// The life before this one, if it is one of these.
    pub fn before(self) -> Option<Self> {
        let at = (self as usize).checked_sub(1)?;
        let has_none = self.is_creation() || self == Life::Unwritten;
        (!has_none).then_some(Self::ALL[at])
    }
}

/// What a life begins with: a disk whose crashes are copies of it, and the states that the
/// database on it has gone through.
#[derive(Clone, Debug)]
pub struct Start {
    /// The disk.
    pub disk: SimVfs,
    /// What is on it.
    pub history: History,
}

impl Start {
    /// A copy of the disk, for a new process.
    pub fn copy(&self) -> SimVfs {
        self.disk.crash(0)
    }

    /// What a life has left.
    pub fn of(disk: SimVfs, history: History) -> Self {
        disk.settle();
        Self { disk, history }
    }
}

/// The starts of all lives, in their order.
pub fn starts() -> Result<Vec<Start>, String> {
    let new = SimVfs::new(1);
    new.create_dir_all(Path::new(DIRECTORY))
        .map_err(|error| error.to_string())?;
    let creation = Start::of(new, History::default());
    let work = undisturbed(&creation, Life::Creation)?;
    let after_kill = undisturbed(&work, Life::Work)?;
    let torn = after_kill.copy();
    if tear_pages(&torn).map_err(|error| error.to_string())? == 0 {
        return Err("no page has a copy in the doublewrite file".to_owned());
    }
    let after_tear = Start::of(torn, after_kill.history.clone());
    undisturbed(&after_kill, Life::AfterKill)?;
    undisturbed(&after_tear, Life::AfterTear)?;
    let unwritten = unwritten()?;
    undisturbed(&unwritten, Life::Unwritten)?;
    let mut starts = vec![creation, work, after_kill, after_tear, unwritten];
    starts.extend(placed_starts()?);
    Ok(starts)
}

/// A database that was created and killed.
fn unwritten() -> Result<Start, String> {
    let vfs = SimVfs::new(3);
    vfs.create_dir_all(Path::new(DIRECTORY))
        .map_err(|error| error.to_string())?;
    let session = Session::open(vfs.clone(), History::default());
    let session = session.map_err(|error| format!("creating a database: {error}"))?;
    let disk = vfs.kill();
    drop(session);
    Ok(Start::of(disk, History::default()))
}

/// Those of the lives in which tables are placed.
fn placed_starts() -> Result<[Start; 3], String> {
    let new = SimVfs::new(2);
    new.create_dir_all(Path::new(DIRECTORY))
        .map_err(|error| error.to_string())?;
    let creation = Start::of(new, History::placed());
    let work = undisturbed(&creation, Life::PlacedCreation)?;
    let after_kill = undisturbed(&work, Life::PlacedWork)?;
    undisturbed(&after_kill, Life::PlacedAfterKill)?;
    Ok([creation, work, after_kill])
}

/// Tears every page that was written after the checkpoint and whose copy is in the doublewrite
/// file: its second half is what it was before. How many.
fn tear_pages(disk: &SimVfs) -> std::io::Result<usize> {
    let page_size = options().page_size as usize;
    let control = disk.read_raw(&Path::new(DIRECTORY).join(CONTROL_FILE))?;
    let (first, second) = control.split_at(CONTROL_COPY_LEN);
    let Ok((control, _)) = Control::choose([first, second]) else {
        return Ok(0);
    };
    let copies = disk.read_raw(&Path::new(DIRECTORY).join(DOUBLEWRITE_FILE))?;
    let copies: HashSet<&[u8]> = copies.chunks_exact(page_size).collect();
    let mut torn = 0;
    for path in disk.files() {
        if path.extension().is_none_or(|extension| extension != "ink") {
            continue;
        }
        let bytes = disk.read_raw(&path)?;
        for (number, page) in bytes.chunks_exact(page_size).enumerate() {
            if page_lsn(page) > control.checkpoint_lsn && copies.contains(page) {
                let half = page_size / 2;
                let offset = number * page_size + half;
                disk.tear_raw(&path, offset as u64, half as u64)?;
                let now = disk.read_raw(&path)?;
                torn += usize::from(now[offset..offset + half] != page[half..]);
            }
        }
    }
    Ok(torn)
}

/// The start of the next life: the disk after one in which nothing failed.
fn undisturbed(start: &Start, life: Life) -> Result<Start, String> {
    let failed = |what: String| format!("{life:?}, with no fault: {what}");
    let vfs = start.copy();
    let session = Session::open(vfs.clone(), start.history.clone());
    let mut session = session.map_err(|error| failed(error.to_string()))?;
    match work(&mut session, life) {
        Ok(()) => {}
        Err(Stop::Bug(text)) => return Err(failed(text)),
        Err(Stop::Engine(error)) => return Err(failed(error.to_string())),
        Err(Stop::Refused) => return Err(failed("a statement was left out".to_owned())),
    }
    if let Some(error) = session.errors.first() {
        return Err(failed(error.to_string()));
    }
    let history = session.history.clone();
    if !life.is_killed() {
        let closed = session.close();
        closed.map_err(|error| failed(error.to_string()))?;
        return Ok(Start::of(vfs.kill(), history));
    }
    // First the process dies, then its handles are dropped: they would close the database.
    let disk = vfs.kill();
    drop(session);
    Ok(Start::of(disk, history))
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:06}").into_bytes()
}

fn value(n: u64, round: u64, length: usize) -> Vec<u8> {
    let mut value = format!("{n}.{round}:").into_bytes();
    value.resize(length.max(value.len()), b'a' + (n % 26) as u8);
    value
}

/// Everything that a life does after it has opened the database.
pub fn work(session: &mut Session, life: Life) -> Outcome {
    life.work()(session)
}

/// The table of the transactions whose undo is in the undo file, and its rows; the keys of the last
/// of them no such transaction changes.
const MOVED: &str = "moved";
const MOVED_ROWS: u64 = 60;
const MOVED_CHANGED: u64 = 40;

/// Whether a row is one that only the undo file tells of what it was.
pub(super) fn is_moved(table: &str, key: &[u8]) -> bool {
    // Of a secondary tree each may be.
    let untouched = (MOVED_CHANGED..MOVED_ROWS).any(|n| self::key(n) == key);
    // The transaction that is left there is moved where the process was slow: when it is old.
    let left = |n: u64| self::key(n * 100) == key;
    table == MOVED && !untouched || table == "crowded" && (0..CROWDED).any(left)
}

/// Two transactions whose undo is saved in the undo file, and which go on then: one that will be
/// rolled back after the kill, and one that is prepared.
fn moved(s: &mut Session) -> Outcome {
    let half = MOVED_CHANGED / 2;
    let change = |t: &mut Work<'_>, from: u64, round: u64| {
        (from..from + half).try_for_each(|n| t.put(MOVED, &key(n), &value(n, round, 150)))?;
        (from..from + half).try_for_each(|n| t.put(MOVED, &key(200 + n), &value(n, round, 40)))
    };
    s.transaction(Finish::Leave, |t| {
        change(t, 0, 5)?;
        t.db().maintain(0)?;
        change(t, 0, 6)?;
        t.remove(MOVED, &key(3))
    })?;
    s.transaction(Finish::Prepare("third"), |t| {
        change(t, half, 5)?;
        t.db().maintain(0)?;
        t.remove(MOVED, &key(half + 3))
    })?;
    s.upkeep("maintenance", |db| db.maintain(0))
}

/// Rows of the table `crowded`.
const CROWDED: u64 = 60;

fn creation(s: &mut Session) -> Outcome {
    s.create("rows", &["by_name"])?;
    s.create("long", &[])?;
    s.transaction(Finish::Commit, |t| {
        (0..120).try_for_each(|n| t.put("rows", &key(n), &value(n, 1, 300)))
    })?;
    s.transaction(Finish::Commit, |t| {
        (0..6).try_for_each(|n| t.put("long", &key(n), &value(n, 1, 30_000)))
    })?;
    s.upkeep("flushing a table", |db| db.flush_table(&db.table("rows")?))?;
    s.transaction(Finish::Commit, |t| {
        (0..40).try_for_each(|n| t.put("rows", &key(n * 2), &value(n, 2, 200)))?;
        t.undone(|t| (0..10).try_for_each(|n| t.put("rows", &key(n), b"undone")))
    })?;
    s.transaction(Finish::Rollback, |t| {
        (0..10).try_for_each(|n| t.put("rows", &key(500 + n), b"rolled back"))?;
        t.put("long", &key(1), &value(1, 3, 9_000))
    })?;
    s.upkeep("a checkpoint", |db| db.checkpoint())?;
    s.create("bulk", &[])?;
    s.transaction(Finish::Commit, |t| {
        let rows: Vec<_> = (0..200).map(|n| (key(n), value(n, 1, 60))).collect();
        t.put_many("bulk", &rows)
    })?;
    s.rename("bulk", "many")?;
    s.create("crowded", &[])?;
    s.transaction(Finish::Commit, |t| {
        (0..CROWDED).try_for_each(|n| t.put("crowded", &key(n * 100), &value(n, 1, 300)))
    })?;
    s.create(MOVED, &["by_name"])?;
    s.transaction(Finish::Commit, |t| {
        (0..MOVED_ROWS).try_for_each(|n| t.put(MOVED, &key(n), &value(n, 1, 120)))
    })?;
    s.transaction(Finish::Prepare("first"), |t| {
        (100..110).try_for_each(|n| t.put("many", &key(n), &value(n, 2, 90)))
    })?;
    s.compare()
}

fn first_statements(s: &mut Session) -> Outcome {
    s.compare()?;
    s.create("rows", &["by_name"])?;
    s.transaction(Finish::Commit, |t| {
        (0..60).try_for_each(|n| t.put("rows", &key(n), &value(n, 1, 300)))
    })?;
    s.upkeep("a checkpoint", |db| db.checkpoint())?;
    s.transaction(Finish::Rollback, |t| {
        (0..30).try_for_each(|n| t.put("rows", &key(n), &value(n, 2, 500)))
    })?;
    s.create("long", &[])?;
    s.transaction(Finish::Commit, |t| {
        t.put("long", &key(1), &value(1, 1, 30_000))?;
        (0..30).try_for_each(|n| t.remove("rows", &key(n)))
    })?;
    s.upkeep("purge", |db| db.purge())?;
    s.compare()
}

fn changes(s: &mut Session) -> Outcome {
    s.compare()?;
    s.decide("first", true)?;
    s.transaction(Finish::Commit, |t| {
        (0..60).try_for_each(|n| t.remove("rows", &key(n)))
    })?;
    s.create("short", &["by_name"])?;
    s.transaction(Finish::Commit, |t| t.put("short", &key(1), b"one"))?;
    s.upkeep("purge", |db| db.purge().and_then(|()| db.purge()))?;
    s.transaction(Finish::Commit, |t| {
        t.remove("long", &key(2))?;
        t.put("long", &key(3), &value(3, 4, 12_000))?;
        (0..50).try_for_each(|n| t.put("many", &key(n * 3), &value(n, 4, 80)))
    })?;
    s.drop_table("short")?;
    moved(s)?;
    s.transaction(Finish::Prepare("second"), |t| {
        (60..70).try_for_each(|n| t.put("rows", &key(n), &value(n, 5, 310)))
    })?;
    s.transaction(Finish::Leave, |t| {
        (80..110).try_for_each(|n| t.put("rows", &key(n), &value(n, 6, 320)))
    })?;
    // Others take the room that these rows leave: to undo it takes pages that the file has not got.
    s.transaction(Finish::Leave, |t| {
        (0..CROWDED).try_for_each(|n| t.put("crowded", &key(n * 100), b"small"))
    })?;
    s.transaction(Finish::Commit, |t| {
        let between = |n: u64| n * 100 + 1..n * 100 + 11;
        let rows = (0..CROWDED).flat_map(between);
        rows.into_iter()
            .try_for_each(|n| t.put("crowded", &key(n), &value(n, 6, 26)))
    })?;
    s.upkeep("flushing a table", |db| db.flush_table(&db.table("rows")?))?;
    s.upkeep("a checkpoint", |db| db.checkpoint())?;
    s.transaction(Finish::Commit, |t| {
        (0..30).try_for_each(|n| t.put("many", &key(300 + n), &value(n, 6, 100)))
    })?;
    s.upkeep("flushing a table", |db| db.flush_table(&db.table("many")?))?;
    s.transaction(Finish::Commit, |t| {
        t.put("long", &key(9), &value(9, 6, 5_000))
    })
}

fn recovered(s: &mut Session) -> Outcome {
    s.compare()?;
    s.decide("second", false)?;
    s.decide("third", false)?;
    s.upkeep("the end of rollbacks", |db| db.finish_rollbacks())?;
    s.transaction(Finish::Commit, |t| {
        (0..40).try_for_each(|n| t.put("rows", &key(n), &value(n, 7, 250)))
    })?;
    s.upkeep("purge", |db| db.purge())?;
    s.compare()
}
