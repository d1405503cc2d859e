//! Segment files: made ahead of the writer, recycled behind the checkpoint.
//!
//! # Promises
//! 1. A file of a segment's final name that the writer may use has a whole, synced header, its
//!    full length in written blocks, and a synced name: writing to it changes no metadata. Tested
//!    by `nothing_acknowledged_is_lost_in_a_crash`, `written_through`.
//! 2. Making and recycling go through the name `prepare.tmp`, so a crash leaves either the old
//!    segment, the new one, or a file that the next open removes. Tested by
//!    `a_recycled_segment_is_never_taken_for_a_strange_file`,
//!    `creation_interrupted_anywhere_can_be_repeated`.
//! 3. A segment is recycled, archived or removed only when it lies wholly below both `keep_from`
//!    and the durable LSN. Tested by `segments_are_recycled_and_their_stale_bytes_never_pass`,
//!    `archived_segments_are_kept_whole`. Tested by the simulator (`segment-recycled-early`).
//! 4. A full disk is remembered ([`Segments::shortage`]) and tried again; nothing that exists is
//!    harmed by it. Tested by `a_full_disk_stops_writers_but_not_rollbacks`.
//! 5. What is promised to rollbacks is there: `reserve`. Tested by
//!    `a_full_disk_stops_writers_but_not_rollbacks`.
//! 6. A log that goes on opens with the spare segments that are there, if the disk is too full for
//!    more: what recovery has to roll back was promised its room (5). One that is begun needs them
//!    all. Tested by `a_database_killed_on_a_full_disk_opens_on_it`,
//!    `a_new_database_on_a_full_disk_is_refused_and_leaves_nothing`.
//! 7. A file of a segment's name without this log's header for it is never removed or written to:
//!    it is set aside, or opening fails. Tested by `what_is_no_segment_of_the_log_keeps_its_bytes`,
//!    `opening_a_log_refuses_segments_of_others`.
//! 8. While checkpoints make room there are no more files than fit `log_file_size`, or four, or
//!    what an earlier run has left. Checked by `Segments::make`. Tested by
//!    `the_log_is_no_longer_than_its_size`, `files_are_made_up_to_the_size_of_the_log`.
//!
//! # Words
//! *live*: open for writing, from the durable LSN's segment on; *spare*: live, and wholly above
//! the reserved LSN; *old*: wholly durable, kept for recovery until `keep_from` passes it.
//!
//! Latches: `upkeep` (held over file operations, taken by one thread at a time) before `table`
//! (leaf, held for a lookup).

use crate::aside::{SetAside, set_aside};
use crate::counters::{Counter, Counters};
use crate::mutants::{self, Mutant};
use crate::paranoid::{Check, Checked, MANY, paranoid};
use crate::poison::Poison;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, OnceLock};
use crate::{Error, Result};
use inkstone_format::Corrupt;
use inkstone_format::segment::{
    LOG_BLOCK, SegmentHeader, parse_segment_file_name, segment_file_name,
};
use inkstone_io::{AlignedBuffer, Create, Directory, ErrorKind, File, OpenOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

mod reserve;
mod unused;

pub(crate) use reserve::PROMISE_UNIT;
use reserve::Reserve;

const PREPARE: &str = "prepare.tmp";
/// Directory in that of the log for segments that are kept.
const ARCHIVE: &str = "archive";
const ZERO_CHUNK: usize = 1 << 20;

/// What [`Segments::open`] needs.
#[derive(Debug)]
pub(super) struct SegmentParams {
    pub directory: Arc<dyn Directory>,
    pub uuid: [u8; 16],
    pub segment_bytes: u64,
    pub direct: bool,
    pub dsync: bool,
    pub archive: bool,
    /// Where recovery begins to read, at the least.
    pub keep_from: u64,
    /// Segments to have ready beyond the one that is being reserved in.
    pub ahead: u64,
    /// The log is begun: it needs all of them.
    pub is_new: bool,
    /// It was closed in order, and ends where that was: nothing in it is unsynced.
    pub is_closed: bool,
    /// Until a statement wants room the log may be a part of its first segment.
    pub may_be_unused: bool,
    /// Files that there may be.
    pub files_max: u64,
    /// Bytes of log that are kept (`log_file_size`).
    pub capacity_bytes: u64,
    /// Bytes of log that a checkpoint keeps behind itself.
    pub lag_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Segments {
    params: SegmentParams,
    counters: Arc<Counters>,
    poison: Poison,
    table: Checked<Table>,
    upkeep: Mutex<()>,
    /// Every segment from the durable one up to this exists.
    last: AtomicU64,
    /// Blocks are written up to here, in whole segments but for the one of a log that is unused.
    end: AtomicU64,
    /// A statement has wanted room.
    is_wanted: AtomicBool,
    keep_from: AtomicU64,
    /// Files that there may be now: more than `files_max` only while more are needed that an
    /// earlier run, with other options or of an earlier build, has left.
    bound: AtomicU64,
    /// Checkpoints make room, and writers wait for it.
    is_paced: AtomicBool,
    reserve: Reserve,
    short: AtomicBool,
    shortage: Mutex<Option<Error>>,
    set_aside: Mutex<Vec<SetAside>>,
}

/// What a segment is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Recycled(u64),
    New,
    Reserve,
}

/// What the header of a segment's file says, or what is wrong with it.
type Header = std::result::Result<SegmentHeader, Corrupt>;

/// The files of a segment that is written, each opened when it is first used.
#[derive(Debug, Default)]
struct Live {
    /// As the options say: past the page cache, say, and durable when it returns.
    file: OnceLock<Arc<dyn File>>,
    /// Through the page cache: what the operating system has is all that is wanted.
    cached: OnceLock<Arc<dyn File>>,
}

#[derive(Debug, Default)]
struct Table {
    live: BTreeMap<u64, Arc<Live>>,
    old: BTreeSet<u64>,
}

impl Check for Table {
    fn check(&self) {
        let last_old = self.old.last();
        paranoid!(
            last_old < self.live.first_key_value().map(|(number, _)| number)
                || self.live.is_empty(),
            "segment {last_old:x?} is old, above live ones"
        );
        for number in self.old.iter().take(MANY) {
            paranoid!(
                !self.live.contains_key(number),
                "segment {number:x} is live and old"
            );
        }
    }
}

impl Segments {
    /// Takes over the segments of a log that ends at `start`, removes what a crash left behind,
    /// syncs what may be unsynced, and makes spare segments. `end_block`: the bytes of the block of
    /// `start` that stand before it.
    pub(super) fn open(
        params: SegmentParams,
        start: u64,
        end_block: &[u8],
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Result<Self> {
        let current = start / params.segment_bytes;
        paranoid!(
            params.ahead > 0 && params.files_max > params.ahead,
            "{} segments ahead of at most {}",
            params.ahead,
            params.files_max
        );
        let segments = Self {
            counters,
            poison,
            table: Checked::default(),
            upkeep: Mutex::default(),
            last: AtomicU64::new(current),
            end: AtomicU64::new(0),
            is_wanted: AtomicBool::new(!params.may_be_unused),
            keep_from: AtomicU64::new(params.keep_from),
            bound: AtomicU64::new(params.files_max),
            is_paced: AtomicBool::new(false),
            reserve: Reserve::default(),
            short: AtomicBool::new(false),
            shortage: Mutex::default(),
            set_aside: Mutex::default(),
            params,
        };
        segments.adopt(start)?;
        let left = segments.total();
        if left > segments.params.files_max {
            segments.bound.store(left + 2, Ordering::Release);
        }
        let ahead = if segments.begins_unused(start)? {
            0
        } else {
            segments.params.ahead
        };
        segments.make_through(current + ahead, start)?;
        if !segments.params.is_closed {
            segments.seal_end(start, end_block)?;
        }
        Ok(segments)
    }

    fn adopt(&self, start: u64) -> Result<()> {
        let directory = &self.params.directory;
        let current = start / self.params.segment_bytes;
        let names = directory.list();
        let names = names.map_err(|e| Error::io("list", directory.path(), e))?;
        if names.iter().any(|n| n == PREPARE) {
            self.remove(PREPARE)?;
        }
        self.adopt_reserve(&names)?;
        for number in names.iter().filter_map(|n| parse_segment_file_name(n)) {
            if number < current {
                if !self.is_of_this_log(number)? {
                    self.set_aside(number)?;
                    continue;
                }
                // Recovery took these bytes as log; they may come from a process that was killed
                // before it synced them. Pages will be written on their strength.
                if !self.params.is_closed {
                    self.sync_file(&*self.open_file(number, false)?)?;
                }
                self.table.lock().old.insert(number);
            } else if self.adopt_one(number, start)? {
                if !self.params.is_closed {
                    self.sync_file(&*self.open_file(number, false)?)?;
                }
                // What is wrong with its file is an error of opening the database, and not of the
                // first write, which would stop it.
                let live = Arc::default();
                self.open_live(number, &live, false)?;
                self.table.lock().live.insert(number, live);
            }
        }
        Ok(())
    }

    /// What the header of a segment's file says, and the file's length.
    fn read_header(&self, file: &dyn File) -> Result<(Header, u64)> {
        let path = file.path();
        let len = file.len().map_err(|e| Error::io("size", path, e))?;
        if len < LOG_BLOCK as u64 {
            return Ok((SegmentHeader::decode(&[]), len));
        }
        let mut block = AlignedBuffer::zeroed(LOG_BLOCK);
        file.read_at(&mut block, 0)
            .map_err(|e| Error::io("read", path, e))?;
        Ok((SegmentHeader::decode(&block), len))
    }

    /// Whether the header of a segment's file says that it is that segment.
    fn is_of_this_log(&self, number: u64) -> Result<bool> {
        let (header, _) = self.read_header(&*self.open_file(number, false)?)?;
        Ok(header.is_ok_and(|header| header.check(&self.header(number)).is_ok()))
    }

    fn set_aside(&self, number: u64) -> Result<()> {
        let why = "is no segment of this log";
        let directory = &*self.params.directory;
        let aside = set_aside(directory, &segment_file_name(number), why)?;
        self.set_aside.lock().push(aside);
        // Before another file takes the name.
        self.sync_directory(directory)
    }

    /// The files that opening has set aside.
    pub(super) fn aside(&self) -> Vec<SetAside> {
        self.set_aside.lock().clone()
    }

    /// Whether the file of a segment at or after the current one can be used as it is.
    fn adopt_one(&self, number: u64, start: u64) -> Result<bool> {
        let path = self.path(number);
        let is_current = number == start / self.params.segment_bytes;
        let needed = is_current && !start.is_multiple_of(self.params.segment_bytes);
        let file = self.open_file(number, false)?;
        let (header, len) = self.read_header(&*file)?;
        let foreign = header.as_ref().is_ok_and(|h| h.uuid != self.params.uuid);
        let checked = header.and_then(|header| header.check(&self.header(number)));
        match checked {
            Ok(()) => {
                let full = self.file_bytes();
                // Whether the one that the log ends in is filled `begins_unused` decides.
                if len < full && !(is_current && self.params.may_be_unused) {
                    self.write_zeroes(&*file, len / LOG_BLOCK as u64 * LOG_BLOCK as u64)?;
                }
                Ok(true)
            }
            Err(corrupt) if needed || foreign => Err(Error::corrupt_file(
                &path,
                corrupt.offset as u64,
                corrupt.detail,
            )),
            // Beyond the end of the log: recovery proved that it holds nothing for us. It is made
            // anew.
            Err(_) => {
                self.set_aside(number)?;
                Ok(false)
            }
        }
    }

    /// Makes the end that recovery found durable, by zeroing the rest of its block. (Not behind an
    /// orderly close: no frame was begun behind that end.) Otherwise a
    /// torn frame that stands there could become whole again: when the log is written on, that is
    /// lost but for a later block, and this block happens to hold the bytes that the torn frame
    /// lacked (padding is alike everywhere). A transaction that was seen to be gone would come
    /// back.
    fn seal_end(&self, start: u64, prefix: &[u8]) -> Result<()> {
        let number = start / self.params.segment_bytes;
        paranoid!(
            prefix.len() < LOG_BLOCK && (prefix.len() as u64) <= start,
            "{} bytes before LSN {start} in its block",
            prefix.len()
        );
        let mut block = AlignedBuffer::zeroed(LOG_BLOCK);
        block[..prefix.len()].copy_from_slice(prefix);
        let at = start - prefix.len() as u64;
        let file = self.file(number, at + LOG_BLOCK as u64, 0, false)?;
        file.write_at(&block, self.offset(at))
            .map_err(|e| self.poison.set(Error::io("write", file.path(), e)))?;
        self.sync_file(&*file)
    }

    fn header(&self, number: u64) -> SegmentHeader {
        SegmentHeader {
            number,
            segment_bytes: self.params.segment_bytes,
            uuid: self.params.uuid,
        }
    }

    fn file_bytes(&self) -> u64 {
        LOG_BLOCK as u64 + self.params.segment_bytes
    }

    pub(super) fn path(&self, number: u64) -> PathBuf {
        self.params.directory.path_of(&segment_file_name(number))
    }

    /// Byte of an LSN in its segment's file.
    pub(super) fn offset(&self, lsn: u64) -> u64 {
        LOG_BLOCK as u64 + lsn % self.params.segment_bytes
    }

    pub(super) fn number(&self, lsn: u64) -> u64 {
        lsn / self.params.segment_bytes
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        self.params.segment_bytes
    }

    fn open_name(&self, name: &str, create: Create, dsync: bool) -> Result<Arc<dyn File>> {
        let options = OpenOptions {
            create,
            read_only: false,
            direct: self.params.direct,
            dsync,
        };
        self.open_with(name, options)
    }

    fn open_with(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn File>> {
        let directory = &self.params.directory;
        directory
            .open(name, options)
            .map_err(|e| Error::io("open", &directory.path_of(name), e))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let directory = &self.params.directory;
        directory
            .remove(name)
            .map_err(|e| Error::io("remove", &directory.path_of(name), e))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let directory = &self.params.directory;
        directory
            .rename(from, to)
            .map_err(|e| Error::io("rename", &directory.path_of(from), e))
    }

    fn open_file(&self, number: u64, dsync: bool) -> Result<Arc<dyn File>> {
        self.open_name(&segment_file_name(number), Create::Never, dsync)
    }

    /// The file of a live segment, opened if need be.
    fn open_live(&self, number: u64, live: &Live, cached: bool) -> Result<Arc<dyn File>> {
        // Also where only the other one is written: it is the one that is synced.
        let file = match live.file.get() {
            Some(file) => file,
            None => {
                let opened = self.open_file(number, self.params.dsync)?;
                live.file.get_or_init(|| opened)
            }
        };
        if cached
            && self.has_cached()
            // It serves as well where the right to open the other one is gone.
            && let Ok(file) = self.open_cached(number, live)
        {
            return Ok(file);
        }
        Ok(file.clone())
    }

    fn open_cached(&self, number: u64, live: &Live) -> Result<Arc<dyn File>> {
        if let Some(file) = live.cached.get() {
            return Ok(file.clone());
        }
        let through_cache = OpenOptions {
            create: Create::Never,
            read_only: false,
            direct: false,
            dsync: false,
        };
        let opened = self.open_with(&segment_file_name(number), through_cache)?;
        Ok(live.cached.get_or_init(|| opened).clone())
    }

    /// Whether writing through the page cache differs from what the options say.
    pub(super) fn has_cached(&self) -> bool {
        self.params.direct || self.params.dsync
    }

    fn sync_file(&self, file: &dyn File) -> Result<()> {
        self.poison.sync(file.path(), || file.sync())
    }

    fn sync_directory(&self, directory: &dyn Directory) -> Result<()> {
        self.poison.sync(directory.path(), || directory.sync())
    }

    /// The file of a live segment, to be written up to LSN `to`, through the page cache or as the
    /// options say; makes it if that was not done in time. The log is durable up to `durable`.
    pub(super) fn file(
        &self,
        number: u64,
        to: u64,
        durable: u64,
        cached: bool,
    ) -> Result<Arc<dyn File>> {
        let is_there = to <= self.end.load(Ordering::Acquire);
        if let Some(live) = self.find_live(number).filter(|_| is_there) {
            return self.open_live(number, &live, cached);
        }
        let _upkeep = self.upkeep.lock();
        self.demote(durable);
        self.want();
        while self.last.load(Ordering::Acquire) < number {
            self.make_next()?;
        }
        self.complete()?;
        paranoid!(
            to <= self.end.load(Ordering::Acquire),
            "log is written up to LSN {to}, where segment {number:x} is not filled"
        );
        match self.find_live(number) {
            Some(live) => self.open_live(number, &live, cached),
            None => crate::error::broken_invariant(
                format_args!("segment {number:x} is not live"),
                file!(),
                line!(),
            ),
        }
    }

    fn find_live(&self, number: u64) -> Option<Arc<Live>> {
        self.table.lock().live.get(&number).cloned()
    }

    /// The files that hold `[from, to)`, without those that were closed since because they are
    /// wholly durable, and those that nothing was written to.
    pub(super) fn live(&self, from: u64, to: u64) -> Vec<Arc<dyn File>> {
        paranoid!(from <= to, "segments from LSN {from} to {to}");
        let range = self.number(from)..=self.number(to.saturating_sub(1).max(from));
        let table = self.table.lock();
        let live = table.live.range(range);
        live.filter_map(|(_, live)| live.file.get().cloned())
            .collect()
    }

    /// Makes what is missing of the segments from that of `start` to `wanted`.
    fn make_through(&self, wanted: u64, start: u64) -> Result<()> {
        let (first, mut last) = (self.number(start), wanted);
        for number in first..=wanted {
            if self.table.lock().live.contains_key(&number) {
                continue;
            }
            if number == first && !start.is_multiple_of(self.params.segment_bytes) {
                let detail = format!("missing, but the log ends in it at LSN {start}");
                return Err(Error::corrupt_file(&self.path(number), 0, detail));
            }
            if number > first && !self.may_make() {
                last = number - 1;
                break;
            }
            match self.make(number) {
                Err(Error::DiskFull { .. }) if number > first && !self.params.is_new => {
                    last = number - 1;
                    break;
                }
                made => made?,
            }
        }
        let highest = self.table.lock().live.last_key_value().map(|(n, _)| *n);
        // Any live segment above `last` is used as it is when there is no gap before it.
        let mut end = last;
        while highest > Some(end) && self.table.lock().live.contains_key(&(end + 1)) {
            end += 1;
        }
        self.table.lock().live.retain(|n, _| *n <= end);
        self.last.store(end, Ordering::Release);
        let bytes = self.unused_bytes(end)?;
        self.end.store(
            bytes.map_or((end + 1) * self.params.segment_bytes, |bytes| {
                end * self.params.segment_bytes + bytes
            }),
            Ordering::Release,
        );
        Ok(())
    }

    fn make_next(&self) -> Result<()> {
        self.complete()?;
        let number = self.last.load(Ordering::Acquire) + 1;
        self.make(number)?;
        self.last.store(number, Ordering::Release);
        self.end
            .store((number + 1) * self.params.segment_bytes, Ordering::Release);
        Ok(())
    }

    /// Makes one segment: from a recyclable one if there is one; from a reserve file if there is no
    /// space for a new one. Under `upkeep`, or at open.
    fn make(&self, number: u64) -> Result<()> {
        let recyclable = if self.params.archive {
            None
        } else {
            self.recyclable()
        };
        if let Some(old) = recyclable {
            return self.make_from(Source::Recycled(old), number);
        }
        if !self.may_make() {
            // What is appended finds what was promised to it.
            if self.reserve_files() > 0 {
                return self.make_from(Source::Reserve, number);
            }
            paranoid!(
                !self.is_paced.load(Ordering::Relaxed),
                "{} files of the log, of {}, hold less than is logged",
                self.total(),
                self.bound.load(Ordering::Relaxed)
            );
        }
        match self.make_from(Source::New, number) {
            // Also at open: a spare segment and a reserve file are the same room.
            Err(Error::DiskFull { .. }) if self.reserve_files() > 0 => {
                self.make_from(Source::Reserve, number)
            }
            result => result,
        }
    }

    fn make_from(&self, source: Source, number: u64) -> Result<()> {
        let old = match source {
            Source::Recycled(old) => {
                let was_there = self.table.lock().old.remove(&old);
                paranoid!(was_there, "segment {old:x} was recycled and not old");
                Some(segment_file_name(old))
            }
            Source::Reserve => self.take_reserve_file(),
            Source::New => None,
        };
        if let Some(name) = old {
            self.rename(&name, PREPARE)?;
            // Before its header changes: a crash would leave a torn one under the old name.
            self.sync_directory(&*self.params.directory)?;
        }
        if let Err(error) = self.fill(number, source) {
            // Its space may be what others need; if this fails, the next open removes it.
            let _ = self.remove(PREPARE);
            return Err(error);
        }
        self.rename(PREPARE, &segment_file_name(number))?;
        self.sync_directory(&*self.params.directory)?;
        let before = self.table.lock().live.insert(number, Arc::default());
        paranoid!(before.is_none(), "segment {number:x} was made twice");
        self.counters.add(
            match source {
                Source::Recycled(_) => Counter::LogSegmentsRecycled,
                Source::New | Source::Reserve => Counter::LogSegmentsCreated,
            },
            1,
        );
        Ok(())
    }

    fn fill(&self, number: u64, source: Source) -> Result<()> {
        let create = match source {
            Source::New => Create::IfMissing,
            Source::Recycled(_) | Source::Reserve => Create::Never,
        };
        let file = self.open_name(PREPARE, create, false)?;
        let path = file.path();
        let recycled = matches!(source, Source::Recycled(_));
        match source {
            Source::New => self.write_allocated(&*file, 0, self.new_bytes())?,
            Source::Reserve => self.write_zeroes(&*file, 0)?,
            Source::Recycled(_) => {}
        }
        let mut block = AlignedBuffer::zeroed(LOG_BLOCK);
        self.header(number).encode(&mut block);
        file.write_at(&block, 0)
            .map_err(|e| Error::io("write", path, e))?;
        let under_way = self.poison.begin_sync();
        match file.sync() {
            // Nothing was entrusted to a fresh file yet: a full disk is not fatal here.
            Err(e) if !recycled && e.kind() == ErrorKind::StorageFull => {
                Err(Error::io("sync", path, e))
            }
            result => under_way.end(path, result),
        }
    }

    /// Fills the rest of a segment's file.
    fn write_zeroes(&self, file: &dyn File, from: u64) -> Result<()> {
        self.write_zeroes_to(file, from, self.file_bytes())
    }

    fn write_zeroes_to(&self, file: &dyn File, from: u64, to: u64) -> Result<()> {
        let zeroes = AlignedBuffer::zeroed(ZERO_CHUNK.min(self.params.segment_bytes as usize));
        let mut at = from;
        while at < to {
            let len = (zeroes.len() as u64).min(to - at) as usize;
            file.write_at(&zeroes[..len], at)
                .map_err(|e| Error::io("write zeroes to", file.path(), e))?;
            at += len as u64;
        }
        Ok(())
    }

    /// The lowest old segment that recovery no longer needs.
    fn recyclable(&self) -> Option<u64> {
        let keep_from = self.keep_from.load(Ordering::Acquire);
        let first = self.table.lock().old.first().copied()?;
        let done = (first + 1) * self.params.segment_bytes <= keep_from;
        (done || mutants::on(Mutant::SegmentRecycledEarly)).then_some(first)
    }

    /// Whether recovery no longer needs the lowest segment. It may still be live although it is
    /// durable, until `demote` runs again.
    fn is_any_done(&self) -> bool {
        let keep_from = self.keep_from.load(Ordering::Acquire);
        let table = self.table.lock();
        let lowest_live = table.live.first_key_value().map(|(&number, _)| number);
        let lowest = table.old.first().copied().or(lowest_live);
        lowest.is_some_and(|number| (number + 1) * self.params.segment_bytes <= keep_from)
    }

    /// The directory of the segment files.
    pub(super) fn directory(&self) -> &dyn Directory {
        &*self.params.directory
    }

    pub(super) fn set_keep_from(&self, lsn: u64) {
        self.keep_from.fetch_max(lsn, Ordering::AcqRel);
    }

    pub(super) fn keep_from(&self) -> u64 {
        self.keep_from.load(Ordering::Acquire)
    }

    /// Whether [`Segments::maintain`] would do something.
    pub(super) fn wants_upkeep(&self, reserved: u64) -> bool {
        if self.is_unused() {
            return self.is_wanted.load(Ordering::Relaxed);
        }
        let lacks = self.last.load(Ordering::Acquire) < self.number(reserved) + self.params.ahead
            || self.lacks_reserve(reserved);
        lacks && (self.may_make() || self.can_recycle())
            || self.is_any_done() && (self.params.archive || self.has_surplus())
    }

    /// Files that exist.
    pub(super) fn total(&self) -> u64 {
        self.count() as u64 + self.reserve_files()
    }

    fn has_surplus(&self) -> bool {
        self.total() > self.params.files_max
    }

    /// Whether one more file may be made, or there is one to be used again.
    fn may_make(&self) -> bool {
        self.total() < self.bound.load(Ordering::Acquire)
            || mutants::on(Mutant::LogUnbounded)
            || !self.params.archive && self.recyclable().is_some()
    }

    /// From now on there are checkpoints that make room.
    pub(super) fn pace(&self) {
        self.is_paced.store(true, Ordering::Relaxed);
    }

    /// Lets there be more files: what keeps the log cannot be moved.
    pub(super) fn raise_bound(&self) {
        paranoid!(
            self.is_paced.load(Ordering::Relaxed),
            "the log may grow where no checkpoint was waited for"
        );
        self.bound.fetch_max(self.total() + 2, Ordering::AcqRel);
    }

    /// Whether a shortage can be mended without the disk giving anything.
    pub(super) fn can_recycle(&self) -> bool {
        !self.params.archive && self.is_any_done()
    }

    /// Makes spare segments and the reserve, archives or removes what is not needed. An error is
    /// remembered as the shortage and is not fatal, unless the log is poisoned as well.
    pub(super) fn maintain(&self, durable: u64, reserved: u64) -> Result<()> {
        let _upkeep = self.upkeep.lock();
        self.demote(durable);
        let result = self.upkeep(reserved);
        let failed = result.as_ref().err().cloned();
        self.short.store(failed.is_some(), Ordering::Release);
        *self.shortage.lock() = failed;
        result
    }

    fn upkeep(&self, reserved: u64) -> Result<()> {
        if self.is_unused() {
            // A statement waits for that alone; more is made by the thread of the log.
            return self.complete();
        }
        if self.params.archive {
            while let Some(number) = self.recyclable() {
                self.move_to_archive(number)?;
            }
        }
        let ahead = self.number(reserved) + self.params.ahead;
        while self.last.load(Ordering::Acquire) < ahead && self.may_make() {
            self.make_next()?;
        }
        self.fill_reserve(reserved)?;
        let mut removed = false;
        while self.has_surplus() {
            let Some(number) = self.recyclable() else {
                break;
            };
            self.remove(&segment_file_name(number))?;
            let was_there = self.table.lock().old.remove(&number);
            paranoid!(was_there, "segment {number:x} was removed and not old");
            removed = true;
        }
        if removed {
            self.sync_directory(&*self.params.directory)?;
        }
        let files = self.total().max(self.params.files_max);
        let before = self.bound.fetch_min(files, Ordering::AcqRel);
        paranoid!(
            before >= self.params.files_max,
            "{before} files of the log may be, of {}",
            self.params.files_max
        );
        Ok(())
    }

    /// Closes the files of segments that are wholly durable.
    fn demote(&self, durable: u64) {
        let mut table = self.table.lock();
        let live = table.live.split_off(&self.number(durable));
        let done = std::mem::replace(&mut table.live, live);
        table.old.extend(done.keys());
        drop(table);
    }

    fn move_to_archive(&self, number: u64) -> Result<()> {
        let directory = &*self.params.directory;
        let archive = directory
            .subdirectory(ARCHIVE, Create::IfMissing)
            .map_err(|e| Error::io("create", &directory.path_of(ARCHIVE), e))?;
        let from = segment_file_name(number);
        self.rename(&from, &format!("{ARCHIVE}/{from}"))?;
        self.sync_directory(&*archive)?;
        self.sync_directory(directory)?;
        let was_there = self.table.lock().old.remove(&number);
        paranoid!(was_there, "segment {number:x} was archived and not old");
        Ok(())
    }

    /// Spare segments beyond the reserved LSN.
    pub(super) fn spares(&self, reserved: u64) -> u64 {
        self.last
            .load(Ordering::Acquire)
            .saturating_sub(self.number(reserved))
    }

    /// What a writer is told for which the log has no room.
    pub(super) fn used_up(&self) -> Error {
        let path = self.params.directory.path().display();
        Error::DiskFull {
            what: format!("the log in {path}, which log_file_size bounds"),
        }
    }

    /// Whether the last upkeep failed.
    pub(super) fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    /// Why the last upkeep failed, if it did.
    pub(super) fn shortage(&self) -> Option<Error> {
        self.shortage.lock().clone()
    }

    /// Gives back what the promises of the past second no longer need.
    pub(super) fn trim(&self, reserved: u64) -> Result<()> {
        let _upkeep = self.upkeep.lock();
        self.trim_reserve(reserved)
    }

    /// Segment files that exist.
    pub(super) fn count(&self) -> usize {
        let table = self.table.lock();
        table.live.len() + table.old.len()
    }
}
