//! `inspect log`.

use super::page::parse_page_id;
use super::read::{Directory, control_bytes};
use super::records::{self, Show};
use super::show;
use crate::failure::{Failure, Result};
use clap::Args;
use inkstone::internals::log::{Frame, LogReader, ReadParams};
use inkstone_bench::output::Output;
use inkstone_format::control::{CONTROL_COPY_LEN, Control};
use inkstone_format::record::{DecodeError, Decoder, Record};
use inkstone_format::{Lsn, PageId};
use inkstone_io::Create;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `inspect log`.
#[derive(Args, Debug)]
#[command(long_about = "\
Show the redo log: each mini-transaction with its LSN, length and epoch, decoded record by record, as in

  lsn 1049022 length 34 epoch 1
    LEAF_INSERT page 1:2 slot 7 key 0000000000000007 value 0000000000000007 (tree 0, trx slot 0)

Reading begins where recovery would begin (the control file's scan start). Some inserts are coded \
against the insert before them of the same transaction; where that lies before the part that is read, \
the output says that the record lacks its context.

The log is read from its files, without opening the database. With --json one object a line for each \
mini-transaction.")]
pub struct LogArguments {
    /// The database's directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Begin at this LSN, which must be the start of a mini-transaction if it lies before where
    /// recovery begins
    #[arg(long, value_name = "LSN")]
    from: Option<u64>,
    /// Stop after so many mini-transactions
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Only records that change this page, as in 1:3
    #[arg(long, value_name = "SPACE:PAGE", value_parser = parse_page_id)]
    page: Option<PageId>,
    /// Show keys, values and rows whole
    #[arg(long)]
    full: bool,
}

pub fn run(arguments: &LogArguments, output: &Output) -> Result<()> {
    let directory = Directory::open(&arguments.directory)?;
    let control = &directory.control;
    let mut reader = match (arguments.from, earlier(&directory)?) {
        (None, Some(reader)) => reader,
        (from, _) => open(&directory, from)?,
    };
    let begin = reader.position();
    output.text(format!(
        "reading from LSN {begin}; checkpoint at {}, known to be durable up to {}, epoch {}",
        control.checkpoint_lsn, control.known_durable_lsn, control.epoch
    ));
    let from = Lsn(arguments.from.unwrap_or(0));
    let mut printer = Printer {
        decoder: Decoder::default(),
        show: Show {
            limit: (!arguments.full).then_some(show::SHORT),
        },
        page: arguments.page,
        from,
        printed: 0,
        output,
    };
    let limit = arguments.limit.unwrap_or(u64::MAX);
    let mut ended = false;
    while printer.printed < limit && !output.is_closed() {
        match reader.next()? {
            Some(frame) => printer.frame(&frame),
            None => {
                ended = true;
                break;
            }
        }
    }
    if ended {
        output.text(format!("the log ends at LSN {}", reader.position()));
    }
    Ok(())
}

fn params(directory: &Directory, from: Lsn, epoch: u64) -> Result<ReadParams> {
    let control = &directory.control;
    let log = directory.handle.subdirectory("log", Create::Never);
    let log = log.map_err(|e| Failure::io("open", &directory.path.join("log"), e))?;
    Ok(ReadParams {
        from,
        epoch,
        ..ReadParams::of(control, log)
    })
}

/// A reader at the scan start of the control file's other copy, if the log still goes back to it:
/// after an orderly close recovery itself would have nothing to read.
fn earlier(directory: &Directory) -> Result<Option<LogReader>> {
    let (bytes, _) = control_bytes(&directory.path)?;
    let other = bytes
        .chunks_exact(CONTROL_COPY_LEN)
        .filter_map(|copy| Control::parse(copy).ok())
        .find(|copy| copy.scan_start_lsn < directory.control.scan_start_lsn);
    let Some(other) = other else {
        return Ok(None);
    };
    let at = params(directory, other.scan_start_lsn, other.scan_start_epoch)?;
    let readable =
        LogReader::open(at.clone()).is_ok_and(|mut trial| matches!(trial.next(), Ok(Some(_))));
    Ok(if readable {
        Some(LogReader::open(at)?)
    } else {
        None
    })
}

/// A reader at the scan start, or before it if that is asked for.
fn open(directory: &Directory, from: Option<u64>) -> Result<LogReader> {
    let control = &directory.control;
    let start = match from {
        Some(from) if from < control.scan_start_lsn.0 => Lsn(from),
        _ => {
            let params = params(directory, control.scan_start_lsn, control.scan_start_epoch)?;
            return Ok(LogReader::open(params)?);
        }
    };
    // Old log: it may be there still. Its epoch is not noted anywhere, so each is tried.
    for epoch in (1..=control.epoch).rev() {
        let mut trial = LogReader::open(ReadParams {
            newest_epoch: epoch,
            must_reach: Lsn(0),
            ..params(directory, start, epoch)?
        })?;
        if matches!(trial.next(), Ok(Some(_))) {
            return Ok(LogReader::open(params(directory, start, epoch)?)?);
        }
    }
    Err(Failure::Usage(format!(
        "--from {start}: no mini-transaction starts there (recovery begins at LSN {})",
        control.scan_start_lsn
    )))
}

struct Printer<'o> {
    decoder: Decoder,
    show: Show,
    page: Option<PageId>,
    from: Lsn,
    printed: u64,
    output: &'o Output,
}

impl Printer<'_> {
    fn frame(&mut self, frame: &Frame<'_>) {
        // Also what is not shown is decoded: later records may be coded against it.
        let (records, error) = self.decoder.decode_prefix(frame.payload);
        if frame.start < self.from {
            return;
        }
        let wanted = |record: &Record| self.page.is_none_or(|page| record.page() == Some(page));
        let shown: Vec<&(u8, Record)> = records.iter().filter(|(_, r)| wanted(r)).collect();
        if self.page.is_some() && shown.is_empty() {
            return;
        }
        self.printed += 1;
        if self.output.is_json() {
            self.json(frame, &shown, error.as_ref());
        } else {
            self.text(frame, &shown, records.len(), error.as_ref());
        }
    }

    fn text(
        &self,
        frame: &Frame<'_>,
        shown: &[&(u8, Record)],
        all: usize,
        error: Option<&DecodeError>,
    ) {
        let mut head = format!(
            "lsn {} length {} epoch {}",
            frame.start,
            frame.end.0 - frame.start.0,
            frame.epoch
        );
        if let Some(claim) = frame.claim {
            head += &format!(" (durable up to {claim})");
        }
        if shown.len() < all {
            head += &format!(" ({} records of other pages)", all - shown.len());
        }
        self.output.text(head);
        for (kind, record) in shown {
            let text = self.show.record(record);
            self.output
                .text(format!("  {} {text}", records::name(*kind, record)).trim_end());
        }
        if let Some(error) = error {
            self.output.text(format!("  {}", why(error)));
        }
    }

    fn json(&self, frame: &Frame<'_>, shown: &[&(u8, Record)], error: Option<&DecodeError>) {
        let records: Vec<_> = shown
            .iter()
            .map(|(kind, record)| {
                json!({
                    "name": records::name(*kind, record),
                    "page": record.page().map(|page| page.to_string()),
                    "text": self.show.record(record),
                })
            })
            .collect();
        self.output.json(&json!({
            "lsn": frame.start.0,
            "end": frame.end.0,
            "length": frame.end.0 - frame.start.0,
            "epoch": frame.epoch,
            "claim": frame.claim.map(|claim| claim.0),
            "records": records,
            "undecoded": error.map(why),
        }));
    }
}

fn why(error: &DecodeError) -> String {
    match error {
        DecodeError::NoContext { trx_slot } => format!(
            "LEAF_INSERT of trx slot {trx_slot} lacks its context: it is coded against an insert before \
             the part of the log that is read"
        ),
        DecodeError::Corrupt(corrupt) => format!("UNDECODABLE {corrupt}"),
    }
}
