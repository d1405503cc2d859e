//! Reads the log once, from where the control file says to its end, and sorts what it says: changes
//! by page, transactions, files.

use super::apply::{Applier, Tally};
use super::index::{PageIndex, Place};
use super::late::{RedoLeft, RedoStat};
use super::losers::{TransactionTable, Unfinished};
use super::pipeline::{Batch, Feed, Outcome, Pipeline};
use super::progress::{Phase, Progress, RecoveryReport, Reporter};
use super::spaces::Spaces;
use super::{FrameSource, RedoInputs, RedoOutcome};
use crate::paranoid::paranoid;
use crate::sync::Instant;
use crate::{Error, Result, invariant};
use inkstone_format::record::{DecodeError, Record, SkimError, Skimmed, Skimmer, decode_one};
use inkstone_format::{Lsn, PageId, SpaceId};
use inkstone_io::Directory;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of room that is used again.
const LATE_KEPT: usize = 1 << 20;

/// Redo under way.
pub(super) struct Scan<'a> {
    checkpoint: Lsn,
    index_bytes_max: usize,
    /// Where a file may be made for what memory has no room for.
    spill: Option<Arc<dyn Directory>>,
    /// End of the last frame that was noted.
    read_to: Lsn,
    pipeline: Arc<Pipeline>,
    /// A batch that was noted in part.
    begun: Option<Batch>,
    /// What is known of transactions where the next batch begins.
    contexts: Skimmer,
    /// Room for the records of a frame.
    late: (Vec<u8>, Vec<Skimmed>),
    table: TransactionTable,
    spaces: Spaces,
    index: PageIndex,
    applier: Applier,
    reporter: Reporter<'a>,
    report: RecoveryReport,
    bytes_total: Option<u64>,
    pages_done: u64,
    applying: Duration,
    begin: Instant,
    /// Where reading began.
    scan_start: Lsn,
}

impl<'a> Scan<'a> {
    pub fn new(inputs: RedoInputs<'a>, log: &dyn FrameSource) -> Self {
        let memory = inputs.options.index_bytes_max;
        let pipeline = Pipeline::new(inputs.options.threads, memory / 8);
        Self {
            bytes_total: log.bytes_total(),
            checkpoint: inputs.checkpoint,
            index_bytes_max: memory - memory / 8,
            spill: inputs.spill,
            read_to: log.position(),
            pipeline: Arc::new(pipeline),
            begun: None,
            contexts: Skimmer::whole(),
            late: Default::default(),
            table: TransactionTable::default(),
            spaces: Spaces::new(inputs.files.clone()),
            index: PageIndex::default(),
            applier: Applier::new(inputs.pool, inputs.files, inputs.options.threads),
            reporter: Reporter::new(inputs.progress),
            report: RecoveryReport::default(),
            pages_done: 0,
            applying: Duration::ZERO,
            begin: Instant::now(),
            scan_start: log.position(),
        }
    }

    /// Reads until the index is full, or to the end of the log: tells where that is. Changes
    /// nothing.
    pub fn read(&mut self, log: &mut dyn FrameSource) -> Result<Option<Lsn>> {
        let pipeline = self.pipeline.clone();
        match pipeline.run(log, |feed| self.note_all(feed)) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err((problem, lsn)) => return Err(problem.at(log, lsn)),
        }
        let end = log.position();
        if end < self.checkpoint {
            let detail = format!(
                "the log ends before the checkpoint at LSN {}",
                self.checkpoint
            );
            return Err(Problem::Log(detail).at(log, end));
        }
        self.spaces.check_missing()?;
        Ok(Some(end))
    }

    /// Whether all was noted, to the end of the log; or what is wrong, and where.
    fn note_all(&mut self, feed: &Feed<'_, '_>) -> std::result::Result<bool, (Problem, Lsn)> {
        loop {
            let next = match self.begun.take() {
                Some(batch) => Some(batch),
                None => feed.next().map_err(|error| (error.into(), Lsn(0)))?,
            };
            let Some(mut batch) = next else {
                return Ok(true);
            };
            while let Some(number) = batch.next() {
                let Place { start, end } = batch.frame(number).place;
                paranoid!(
                    start == self.read_to,
                    "a frame at LSN {start} behind one that ends at {}",
                    self.read_to
                );
                self.read_to = end;
                self.report.frames += 1;
                self.report.bytes_scanned = end.0 - self.scan_start.0;
                let noted = self.note_frame(&batch, number);
                noted.map_err(|problem| (problem, start))?;
                if self.index.bytes() > self.index_bytes_max {
                    self.begun = Some(batch);
                    return Ok(false);
                }
            }
            batch.contexts.hand_on(&mut self.contexts);
            feed.give_back(batch);
            self.report_progress();
        }
    }

    /// The whole log was read and applied: what it leaves to be done.
    pub fn finish(
        mut self,
        log: &dyn FrameSource,
        end: Lsn,
        left: Option<Arc<RedoLeft>>,
    ) -> Result<RedoOutcome> {
        let total = self.begin.elapsed();
        self.report.apply_ms = self.applying.as_millis() as u64;
        self.report.scan_ms = total.saturating_sub(self.applying).as_millis() as u64;
        let done = self.progress(Phase::Done, self.pages_done, self.pages_done);
        let deleted = |page: PageId| self.spaces.deleted.contains(&page.space);
        self.applier.finish(end, deleted)?;
        self.spaces.finish()?;
        let unfinished = self.table.finish();
        let unfinished = unfinished.map_err(|reason| Problem::Log(reason).at(log, end))?;
        check_begin(self.scan_start, &unfinished).map_err(|problem| problem.at(log, end))?;
        check_skipped(&self.spaces, &unfinished.skipped).map_err(|problem| problem.at(log, end))?;
        let changes = super::OpenTransaction::changes;
        self.report.losers = unfinished.losers.len() as u64;
        self.report.loser_changes = unfinished.losers.iter().map(changes).sum();
        self.report.prepared = unfinished.prepared.len() as u64;
        self.reporter.report(true, || done);
        Ok(RedoOutcome {
            end,
            epoch: log.epoch(),
            losers: unfinished.losers,
            prepared: unfinished.prepared,
            trx_id_max: unfinished.id_max,
            space_id_max: self.spaces.id_max,
            files_created: self.spaces.created,
            files_deleted: self.spaces.deleted,
            left,
            report: self.report,
        })
    }

    fn note_frame(&mut self, batch: &Batch, number: usize) -> std::result::Result<(), Problem> {
        let frame = batch.frame(number);
        let place @ Place { start, end } = frame.place;
        invariant!(start < end, "a frame from LSN {start} to {end}");
        let tail = start >= self.checkpoint;
        if !tail && end > self.checkpoint {
            let checkpoint = self.checkpoint;
            return Err(Problem::Log(format!(
                "the checkpoint at LSN {checkpoint} lies within a mini-transaction"
            )));
        }
        match &frame.outcome {
            Outcome::Records(records) => {
                self.report.records += records.len() as u64;
                for record in records.clone() {
                    let (record, bytes, within) = batch.record(record);
                    self.note_record(place, tail, &record, bytes, within)?;
                }
                Ok(())
            }
            Outcome::Failed(error) => self.note_failed((**error).clone(), start, tail),
            Outcome::Earlier => self.note_late(place, tail, batch.payload(frame)),
        }
    }

    /// A frame that needs what came before its batch.
    fn note_late(
        &mut self,
        place: Place,
        tail: bool,
        payload: &[u8],
    ) -> std::result::Result<(), Problem> {
        let (mut bytes, mut records) = std::mem::take(&mut self.late);
        bytes.clear();
        records.clear();
        match self.contexts.skim(payload, &mut bytes, &mut records) {
            Ok(()) => {}
            Err(SkimError::Decode(error)) => return self.note_failed(error, place.start, tail),
            Err(SkimError::Earlier { trx_slot }) => {
                return self.note_failed(DecodeError::NoContext { trx_slot }, place.start, tail);
            }
        }
        self.report.records += records.len() as u64;
        // The batch counts the transactions of other slots as whole without this frame.
        let mut slots = records.iter().filter_map(|record| record.slot);
        if let Some(slot) = slots.next()
            && let Some(other) = slots.find(|&other| other != slot)
        {
            let detail = format!("rows of slot {slot} and a record of slot {other} in a frame");
            return Err(Problem::Log(detail));
        }
        for record in &records {
            let bytes = &bytes[record.from as usize..record.to as usize];
            self.note_record(place, tail, record, bytes, false)?;
        }
        if bytes.capacity() <= LATE_KEPT {
            self.late = (bytes, records);
        }
        Ok(())
    }

    fn note_failed(
        &mut self,
        error: DecodeError,
        start: Lsn,
        tail: bool,
    ) -> std::result::Result<(), Problem> {
        match error {
            DecodeError::NoContext { trx_slot } if !tail => {
                self.table.note_undecoded(trx_slot, start);
                self.report.frames_without_context += 1;
                Ok(())
            }
            DecodeError::NoContext { trx_slot } => Err(Problem::Log(format!(
                "an insert in transaction slot {trx_slot} is coded against one that was not read"
            ))),
            DecodeError::Corrupt(corrupt) => {
                let (at, detail) = (corrupt.offset, corrupt.detail);
                Err(Problem::Log(format!("byte {at} of the payload: {detail}")))
            }
        }
    }

    /// `within`: the whole transaction lies within the batch, and has ended when that is noted.
    fn note_record(
        &mut self,
        place: Place,
        tail: bool,
        skimmed: &Skimmed,
        bytes: &[u8],
        within: bool,
    ) -> std::result::Result<(), Problem> {
        match skimmed.slot {
            Some(slot) if within => {
                if let Some(id) = skimmed.first {
                    let noted = self.table.note_whole(slot, id, place.start);
                    noted.map_err(Problem::Log)?;
                }
            }
            Some(_) => {
                let noted = self.table.note(&decode(bytes)?, place.start, tail);
                noted.map_err(Problem::Log)?;
            }
            None if skimmed.page.is_none() => self.note_file(&decode(bytes)?, tail)?,
            None => {}
        }
        if let Some(page) = skimmed.page {
            self.spaces.mention(page.space);
            if tail && self.spaces.accepts(page.space, place.start)? {
                let initialises = skimmed.initialises_page();
                self.index.push(page, place, initialises, bytes);
            }
        }
        Ok(())
    }

    fn note_file(&mut self, record: &Record, tail: bool) -> std::result::Result<(), Problem> {
        match *record {
            Record::FileCreate { space } => {
                self.spaces.mention(space);
                self.spaces.note_create(space, tail)?;
            }
            Record::FileDelete { space } => {
                self.spaces.mention(space);
                self.spaces.note_delete(space);
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes room in memory for more of the log; false if what was gathered must be applied: it
    /// takes too much memory all the same, or no file can be written (a full disk).
    pub fn spill(&mut self) -> bool {
        let Some(directory) = &self.spill else {
            return false;
        };
        match self.index.spill(directory, self.index_bytes_max) {
            Ok(Some(bytes)) => {
                self.report.bytes_spilled += bytes;
                true
            }
            _ => false,
        }
    }

    /// Applies what was read since the last call.
    pub fn apply_gathered(&mut self) -> Result<()> {
        let begin = Instant::now();
        let mut batch = self.index.take();
        self.report.pages_dropped += self.spaces.prepare(&mut batch.pages)?;
        if batch.pages.is_empty() {
            return Ok(());
        }
        let (before, count) = (self.pages_done, batch.pages.len() as u64);
        let (scanned, total) = (self.report.bytes_scanned, self.bytes_total);
        let reporter = &self.reporter;
        let tally = self.applier.run(batch, &|done| {
            reporter.report(false, || Progress {
                phase: Phase::Apply,
                bytes_done: scanned,
                bytes_total: total,
                pages_done: before + done,
                pages_total: before + count,
                seconds: 0,
            });
        })?;
        paranoid!(
            tally.pages <= count && tally.read <= count,
            "{} pages of {count} were changed, {} read",
            tally.pages,
            tally.read
        );
        self.pages_done += count;
        self.report.batches += 1;
        self.count(&tally);
        self.applying += begin.elapsed();
        Ok(())
    }

    /// Whether an earlier batch has left pages aside: then what is in this one is not left to
    /// readers, as it may mend them.
    pub fn needs_all(&self) -> bool {
        self.applier.has_set_aside()
    }

    /// Leaves the last batch to the readers of its pages: from now on the pool redoes a page when
    /// it is read. But a page that an earlier batch has brought into the pool is redone now.
    pub fn leave_gathered(&mut self, end: Lsn) -> Result<Arc<RedoLeft>> {
        let begin = Instant::now();
        let mut batch = self.index.take();
        self.report.pages_dropped += self.spaces.prepare(&mut batch.pages)?;
        let tally = self.applier.run_resident(&mut batch)?;
        self.count(&tally);
        self.report.batches += u64::from(!batch.pages.is_empty());
        let left = Arc::new(RedoLeft::new(batch, self.spaces.files.clone(), end));
        let RedoStat { pages, bytes } = left.stat();
        (self.report.pages_left, self.report.bytes_left) = (pages, bytes);
        self.applier.leave(left.clone());
        self.applying += begin.elapsed();
        Ok(left)
    }

    fn count(&mut self, tally: &Tally) {
        self.report.records_applied += tally.records;
        self.report.pages_applied += tally.pages;
        self.report.pages_initialised += tally.initialised;
        self.report.pages_read += tally.read;
    }

    pub fn report_progress(&self) {
        let progress = || self.progress(Phase::Scan, self.pages_done, self.pages_done);
        self.reporter.report(false, progress);
    }

    fn progress(&self, phase: Phase, pages_done: u64, pages_total: u64) -> Progress {
        Progress {
            phase,
            bytes_done: self.report.bytes_scanned,
            bytes_total: self.bytes_total,
            pages_done,
            pages_total,
            seconds: 0,
        }
    }
}

/// What undoes a transaction was read from its beginning, or from where its saved undo ends.
fn check_begin(scan_start: Lsn, unfinished: &Unfinished) -> std::result::Result<(), Problem> {
    let all = unfinished.losers.iter().chain(&unfinished.prepared);
    for open in all {
        if open.first_lsn < scan_start {
            return Err(Problem::Log(format!(
                "what undoes transaction {} is in the log from LSN {} on, and the log is read from \
                 LSN {scan_start} on",
                open.id, open.first_lsn
            )));
        }
    }
    Ok(())
}

/// Changes that a rollback passed over must be of tablespaces that are gone.
fn check_skipped(spaces: &Spaces, skipped: &BTreeSet<SpaceId>) -> std::result::Result<(), Problem> {
    for &space in skipped.difference(&spaces.deleted) {
        if spaces.files.exists(space)? {
            return Err(Problem::Log(format!(
                "a rollback passed over changes of tablespace {space}, which exists"
            )));
        }
    }
    Ok(())
}

/// Bytes that were skimmed are a record.
fn decode(bytes: &[u8]) -> std::result::Result<Record, Problem> {
    decode_one(bytes).map_err(|corrupt| Problem::Log(corrupt.to_string()))
}

/// What stops the scan.
enum Problem {
    /// The log is not what it must be.
    Log(String),
    /// Something else.
    Other(Error),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Problem {
    fn at(self, log: &dyn FrameSource, lsn: Lsn) -> Error {
        match self {
            Self::Log(detail) => {
                let (path, offset) = log.locate(lsn);
                Error::corrupt_file(&path, offset, format!("LSN {lsn}: {detail}"))
            }
            Self::Other(error) => error,
        }
    }
}
