//! Reads the log once, from where the control file says to its end, and sorts what it says: changes
//! by page, transactions, files.

use super::apply::Applier;
use super::index::{Change, PageIndex};
use super::losers::{TransactionTable, Unfinished};
use super::progress::{Phase, Progress, RecoveryReport, Reporter};
use super::spaces::Spaces;
use super::{FrameSource, RedoInputs, RedoOutcome};
use crate::paranoid::paranoid;
use crate::sync::Instant;
use crate::{Error, Result, invariant};
use inkstone_format::record::{DecodeError, Decoder, Record};
use inkstone_format::{Lsn, PageId, SpaceId};
use std::collections::BTreeSet;
use std::time::Duration;

/// Redo under way.
pub(super) struct Scan<'a> {
    checkpoint: Lsn,
    index_bytes_max: usize,
    decoder: Decoder,
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
        Self {
            bytes_total: log.bytes_total(),
            checkpoint: inputs.checkpoint,
            index_bytes_max: inputs.options.index_bytes_max,
            decoder: Decoder::default(),
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
        let mut read_to = log.position();
        while let Some(frame) = log.next()? {
            let (start, end) = (frame.start, frame.end);
            paranoid!(
                start == read_to,
                "a frame at LSN {start} behind one that ends at {read_to}"
            );
            read_to = end;
            let decoded = self.decoder.decode(frame.payload);
            self.report.frames += 1;
            self.report.bytes_scanned = end.0 - self.scan_start.0;
            let noted = self.note_frame(start, end, decoded);
            noted.map_err(|problem| problem.at(log, start))?;
            if self.index.bytes() > self.index_bytes_max {
                return Ok(None);
            }
            self.report_progress();
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

    /// The whole log was read and applied: what it leaves to be done.
    pub fn finish(mut self, log: &dyn FrameSource, end: Lsn) -> Result<RedoOutcome> {
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
            report: self.report,
        })
    }

    fn note_frame(
        &mut self,
        start: Lsn,
        end: Lsn,
        decoded: std::result::Result<Vec<Record>, DecodeError>,
    ) -> std::result::Result<(), Problem> {
        invariant!(start < end, "a frame from LSN {start} to {end}");
        let tail = start >= self.checkpoint;
        if !tail && end > self.checkpoint {
            let checkpoint = self.checkpoint;
            return Err(Problem::Log(format!(
                "the checkpoint at LSN {checkpoint} lies within a mini-transaction"
            )));
        }
        let records = match decoded {
            Ok(records) => records,
            // Its transaction ended before the checkpoint, and its pages are on disk.
            Err(DecodeError::NoContext { trx_slot }) if !tail && !self.table.is_open(trx_slot) => {
                self.report.frames_without_context += 1;
                return Ok(());
            }
            Err(DecodeError::NoContext { trx_slot }) => {
                return Err(Problem::Log(format!(
                    "an insert in transaction slot {trx_slot} is coded against one that was not read"
                )));
            }
            Err(DecodeError::Corrupt(corrupt)) => {
                let (at, detail) = (corrupt.offset, corrupt.detail);
                return Err(Problem::Log(format!("byte {at} of the payload: {detail}")));
            }
        };
        self.report.records += records.len() as u64;
        for record in records {
            self.note_record(start, end, tail, record)?;
        }
        Ok(())
    }

    fn note_record(
        &mut self,
        start: Lsn,
        end: Lsn,
        tail: bool,
        record: Record,
    ) -> std::result::Result<(), Problem> {
        let noted = self.table.note(&record, start, tail);
        noted.map_err(Problem::Log)?;
        if let Some(page) = record.page() {
            self.spaces.mention(page.space);
            if tail && self.spaces.accepts(page.space, start)? {
                self.index.push(page, Change { start, end, record });
            }
            return Ok(());
        }
        match record {
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

    /// Applies what was read since the last call.
    pub fn apply_gathered(&mut self) -> Result<()> {
        let begin = Instant::now();
        let mut pages = self.index.take();
        self.report.pages_dropped += self.spaces.prepare(&mut pages)?;
        if pages.is_empty() {
            return Ok(());
        }
        let (before, count) = (self.pages_done, pages.len() as u64);
        let (scanned, total) = (self.report.bytes_scanned, self.bytes_total);
        let reporter = &self.reporter;
        let tally = self.applier.run(pages, &|done| {
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
        self.report.records_applied += tally.records;
        self.report.pages_applied += tally.pages;
        self.report.pages_initialised += tally.initialised;
        self.report.pages_read += tally.read;
        self.applying += begin.elapsed();
        Ok(())
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
