//! Reads the log from a checkpoint to its end, and proves the end.
//!
//! # Promises
//! 1. [`LogReader::next`] returns the frames in order, each verified against its LSN and epoch.
//!    Tested by `random_power_losses`, `a_flipped_bit_in_the_middle_is_damage_not_an_end`.
//! 2. An epoch switch is taken only where a frame of a newer epoch verifies right at the end of
//!    the frames of the older one, and claims exactly that position, as the first frame of each
//!    epoch does. Tested by `a_restart_in_the_middle_of_a_block_goes_on_with_a_new_epoch`,
//!    `random_power_losses`.
//! 3. When no frame verifies at some LSN *P*, this is the end of the log unless there is proof of
//!    more: the control file (`must_reach`), or any valid frame further on, of this epoch or a
//!    newer one, which claims that the log was durable beyond *P*. Then *P* is damaged, and the
//!    error says where it is. Tested by `a_torn_tail_is_an_end`, `damage_is_found_across_epochs`,
//!    `leftovers_of_a_lost_write_are_a_legal_end`.
//! 4. Nor is it the end where a segment from that of *P* on is missing, or has no header of this
//!    log, and a later one is sound: they are made in order. Tested by
//!    `a_missing_segment_is_no_end`.
//!
//! # Why that is right
//! A claim is made only after a sync that covers it, so what it covers cannot be missing after a
//! power loss. What was not synced may be lost in any part and any order: frames beyond a lost one
//! are leftovers, and their claims, if any, are at most *P*. Frames of older epochs than the
//! one at *P* were found to be leftovers by an earlier recovery and are never looked at. While
//! the log is written, a frame with a claim follows at the latest 64 KiB after a sync, so all
//! damage is found but for that in the last stretch, which `must_reach` covers after a checkpoint
//! or a clean close.
//!
//! Where the control file says that the log was closed at *P* (`closed_at`), and no frame follows
//! there, nothing more is searched for: the next opening of the database would have written its
//! epoch to the control file before any log, and then a first frame at *P*
//! (docs/decisions/0050). Tested by `a_closed_log_is_searched_no_further`.
//!
//! Bytes are read past the page cache where that can be: what a failed sync of an earlier process
//! left there is no log (docs/decisions/0012).
//!
//! The log is read a piece ahead (`ahead.rs`), once it was read on from one piece to the next.
//!
//! Segment headers are checked where the log is read; in the search for proof they are not, so
//! that a damaged header cannot hide the proof of damage.

use super::ahead::{Ahead, Piece};
use crate::paranoid::paranoid;
use crate::{Error, Result};
use inkstone_format::control::Control;
use inkstone_format::frame::{self, FRAME_HEADER_MAX, FRAME_MAX, Parsed, RawFrame};
use inkstone_format::segment::{
    LOG_BLOCK, SegmentHeader, parse_segment_file_name, segment_file_name,
};
use inkstone_format::{Corrupt, Lsn};
use inkstone_io::{
    AlignedBuffer, Create, DIRECT_ALIGNMENT, Directory, File, OpenOptions, open_past_cache,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// Where to read, and what is known about the log.
#[derive(Clone, Debug)]
pub struct ReadParams {
    /// Directory of the segment files.
    pub directory: Arc<dyn Directory>,
    /// The database's UUID.
    pub uuid: [u8; 16],
    /// Bytes of log in a segment.
    pub segment_bytes: u64,
    /// Start of a frame: where reading begins.
    pub from: Lsn,
    /// Epoch of the frame at `from`, or an older one (then `from` is where an epoch ended).
    pub epoch: u64,
    /// The newest epoch that may have written.
    pub newest_epoch: u64,
    /// The log is known to have been durable up to here.
    pub must_reach: Lsn,
    /// The log was closed here: nothing was logged behind it that the control file does not know.
    pub closed_at: Option<Lsn>,
}

impl ReadParams {
    /// From where recovery begins, by what the control file says of the log in `directory`.
    pub fn of(control: &Control, directory: Arc<dyn Directory>) -> Self {
        Self {
            directory,
            uuid: control.uuid,
            segment_bytes: control.log_segment_bytes,
            from: control.scan_start_lsn,
            epoch: control.scan_start_epoch,
            newest_epoch: control.epoch,
            must_reach: control.known_durable_lsn,
            closed_at: None,
        }
    }
}

/// A frame of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Where it starts.
    pub start: Lsn,
    /// Where it ends, and the next one starts.
    pub end: Lsn,
    /// The opening of the database that wrote it.
    pub epoch: u64,
    /// The log was durable up to here when the frame was built.
    pub claim: Option<Lsn>,
    /// The mini-transaction's records.
    pub payload: &'a [u8],
}

/// Reads a log; see the module.
#[derive(Debug)]
pub struct LogReader {
    source: Source,
    params: ReadParams,
    epoch: u64,
    position: u64,
    /// Bytes of the log from `window_start` on, read and partly consumed.
    window: Vec<u8>,
    window_start: u64,
    /// The end was proven.
    ended: bool,
}

/// Epoch, claim, header length and length of the frame at the position.
type Found = (u64, Option<Lsn>, usize, usize);

/// What a search for proof of damage found.
struct Proof {
    at: u64,
    epoch: u64,
    claim: Lsn,
}

impl LogReader {
    /// Opens the log for reading. The segment of `from` must exist and be sound.
    pub fn open(params: ReadParams) -> Result<Self> {
        let mut source = Source::open(&params)?;
        let number = params.from.0 / params.segment_bytes;
        let needed = params.from.0 % params.segment_bytes;
        if let Err((path, corrupt)) = source.check(number, needed) {
            let detail = format!("{}; recovery begins at LSN {}", corrupt.detail, params.from);
            return Err(Error::corrupt_file(&path, corrupt.offset as u64, detail));
        }
        Ok(Self {
            source,
            epoch: params.epoch,
            position: params.from.0,
            window: Vec::with_capacity(2 * CHUNK),
            window_start: block_floor(params.from.0),
            ended: false,
            params,
        })
    }

    /// The next frame; `None` at the proven end of the log, which [`LogReader::position`] then
    /// tells. Any damage before the end is [`Error::Corrupt`].
    #[expect(
        clippy::should_implement_trait,
        reason = "the frame borrows from the reader"
    )]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>> {
        if self.ended {
            return Ok(None);
        }
        let start = self.position;
        let Some((epoch, claim, header_len, len)) = self.find()? else {
            self.ended = true;
            self.source.ahead = None;
            return Ok(None);
        };
        self.epoch = epoch;
        self.position = start + len as u64;
        let at = (start - self.window_start) as usize;
        Ok(Some(Frame {
            start: Lsn(start),
            end: Lsn(self.position),
            epoch,
            claim,
            payload: &self.window[at + header_len..at + len],
        }))
    }

    /// The bytes of the last frame's block up to its end: verified, apart from those before where
    /// reading began.
    pub fn end_block(&self) -> &[u8] {
        let (from, to) = (block_floor(self.position), self.position);
        let range = (from - self.window_start) as usize..(to - self.window_start) as usize;
        self.window.get(range).unwrap_or_default()
    }

    /// End of the last frame.
    pub fn position(&self) -> Lsn {
        Lsn(self.position)
    }

    /// Epoch of the last frame (before the first one, as given to [`LogReader::open`]).
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Verifies the frame at the position: its epoch, claim, and lengths.
    #[inline]
    fn find(&mut self) -> Result<Option<Found>> {
        let mut why = String::new();
        for epoch in self.epoch..=self.params.newest_epoch.max(self.epoch) {
            match self.verify(epoch)? {
                Ok((claim, header_len, len)) => {
                    if epoch == self.epoch || claim == Some(Lsn(self.position)) {
                        return Ok(Some((epoch, claim, header_len, len)));
                    }
                }
                // What is wrong with a frame of the epoch in force says most.
                Err(reason) if epoch == self.epoch => why = reason,
                Err(_) => {}
            }
        }
        self.prove_end(&why)?;
        Ok(None)
    }

    #[expect(
        clippy::type_complexity,
        reason = "claim, header length, frame length; or why not"
    )]
    #[inline]
    fn verify(
        &mut self,
        epoch: u64,
    ) -> Result<std::result::Result<(Option<Lsn>, usize, usize), String>> {
        let mut needed = 1;
        loop {
            let missing = self.fill(needed)?;
            let at = (self.position - self.window_start) as usize;
            match frame::parse(&self.window[at..], Lsn(self.position), epoch) {
                Parsed::Frame(RawFrame {
                    len,
                    claim,
                    payload,
                }) => return Ok(Ok((claim, len - payload.len(), len))),
                Parsed::Not(defect) => return Ok(Err(defect.to_string())),
                Parsed::Short(_) if missing.is_some() => {
                    return Ok(Err(missing.unwrap_or_default()));
                }
                Parsed::Short(more) => needed = more,
            }
        }
    }

    /// Reads until `needed` bytes from the position on are in the window; why not, if not.
    fn fill(&mut self, needed: usize) -> Result<Option<String>> {
        // The beginning of the block stays, for `end_block`.
        let block = block_floor(self.position);
        let needed = (self.position - block) as usize + needed;
        let consumed = (block - self.window_start) as usize;
        if self.window.len() >= consumed + needed {
            return Ok(None);
        }
        self.window.drain(..consumed.min(self.window.len()));
        self.window_start = block;
        while self.window.len() < needed {
            let at = self.window_start + self.window.len() as u64;
            if let Err((path, corrupt)) = self.source.check(at / self.params.segment_bytes, 0) {
                return Ok(Some(format!("{}: {}", path.display(), corrupt.detail)));
            }
            if self.source.read_on(at, &mut self.window)? == 0 {
                let path = self.source.path(at / self.params.segment_bytes);
                return Ok(Some(format!("{} is cut off", path.display())));
            }
        }
        Ok(None)
    }

    /// `Ok` when the log may end at the position.
    fn prove_end(&mut self, why: &str) -> Result<()> {
        let at = self.position;
        if self.params.must_reach.0 > at {
            let known = self.params.must_reach;
            return Err(self.damage(format!(
                "no frame at LSN {at}: {why}; the control file says that the log was durable up to LSN {known}"
            )));
        }
        let is_closed = self.params.closed_at == Some(Lsn(at));
        let proof = if is_closed { None } else { self.search()? };
        match proof {
            None => self.source.check_behind(at / self.params.segment_bytes),
            Some(proof) => Err(self.damage(format!(
                "no frame at LSN {at}: {why}; the frame at LSN {} (epoch {}) says that the log was durable up to LSN {}",
                proof.at, proof.epoch, proof.claim
            ))),
        }
    }

    fn damage(&self, detail: String) -> Error {
        let path = self.source.path(self.position / self.params.segment_bytes);
        let offset = LOG_BLOCK as u64 + self.position % self.params.segment_bytes;
        Error::corrupt_file(&path, offset, detail)
    }

    /// Looks through all segment files after the position for a frame that claims more.
    fn search(&mut self) -> Result<Option<Proof>> {
        let mut at = self.position + 1;
        let mut bytes = Vec::with_capacity(CHUNK);
        let mut stretch = Stretch::default();
        loop {
            while bytes.len() < FRAME_HEADER_MAX {
                // A few bytes may be left at the end of a segment.
                let from = at + bytes.len() as u64;
                if self.source.read_on(from, &mut bytes)? == 0 {
                    break;
                }
            }
            if let Some(proof) = self.search_in(&bytes, at, &mut stretch)? {
                return Ok(Some(proof));
            }
            if bytes.len() < FRAME_HEADER_MAX {
                match self.source.next_segment(at + bytes.len().max(1) as u64) {
                    Some(start) => at = start,
                    None => return Ok(None),
                }
                bytes.clear();
            } else {
                // A header may begin in the last ones.
                let done = bytes.len() - (FRAME_HEADER_MAX - 1);
                bytes.drain(..done);
                at += done as u64;
            }
        }
    }

    fn search_in(
        &mut self,
        bytes: &[u8],
        base: u64,
        stretch: &mut Stretch,
    ) -> Result<Option<Proof>> {
        let beyond = Lsn(self.position);
        let epochs = self.epoch..=self.params.newest_epoch.max(self.epoch);
        let mut offset = 0;
        while let Some(found) = frame::find_claims(bytes, Lsn(base), offset, beyond) {
            let at = base + found.offset as u64;
            offset = found.offset + 1;
            // The tag alone refuses nearly all that rows may hold.
            let tag = &bytes[found.offset..=found.offset];
            let may_be =
                |&epoch: &u64| matches!(frame::parse(tag, Lsn(at), epoch), Parsed::Short(_));
            let epochs: Vec<u64> = epochs.clone().filter(may_be).collect();
            if epochs.is_empty() {
                continue;
            }
            let whole = stretch.read(&mut self.source, at, found.frame_len)?;
            for epoch in epochs {
                if let Parsed::Frame(frame) = frame::parse(whole, Lsn(at), epoch) {
                    return Ok(Some(Proof {
                        at,
                        epoch,
                        claim: frame.claim.unwrap_or(found.claim),
                    }));
                }
            }
        }
        Ok(None)
    }

    /// The segment files of a log directory, for `inspect`: also damaged ones.
    pub fn segments(directory: &dyn Directory) -> Result<Vec<SegmentInfo>> {
        let names = directory.list();
        let names = names.map_err(|e| Error::io("list", directory.path(), e))?;
        let mut segments = Vec::new();
        for name in names {
            let Some(number) = parse_segment_file_name(&name) else {
                continue;
            };
            let path = directory.path_of(&name);
            let file = open_to_read(directory, &name)?;
            let bytes = file.len().map_err(|e| Error::io("size", &path, e))?;
            let header = read_header(&*file, bytes)?;
            segments.push(SegmentInfo {
                number,
                path,
                bytes,
                header,
            });
        }
        Ok(segments)
    }
}

/// A segment file, as found.
#[derive(Clone, Debug)]
pub struct SegmentInfo {
    /// The number that its name says.
    pub number: u64,
    /// The file.
    pub path: PathBuf,
    /// Length of the file, bytes.
    pub bytes: u64,
    /// What its header says, if that is sound.
    pub header: std::result::Result<SegmentHeader, Corrupt>,
}

fn block_floor(lsn: u64) -> u64 {
    lsn / LOG_BLOCK as u64 * LOG_BLOCK as u64
}

fn open_to_read(directory: &dyn Directory, name: &str) -> Result<Arc<dyn File>> {
    let options = OpenOptions {
        create: Create::Never,
        read_only: true,
        direct: false,
        dsync: false,
    };
    directory
        .open(name, options)
        .map_err(|e| Error::io("open", &directory.path_of(name), e))
}

fn read_header(file: &dyn File, len: u64) -> Result<std::result::Result<SegmentHeader, Corrupt>> {
    let mut block = vec![0; (LOG_BLOCK as u64).min(len) as usize];
    file.read_at(&mut block, 0)
        .map_err(|e| Error::io("read", file.path(), e))?;
    Ok(SegmentHeader::decode(&block))
}

/// A stretch of the log in memory, for looking at one possible frame after the other, which may
/// overlap: what rows hold may look like many long frames, and the log is read three times at most
/// for all.
#[derive(Default)]
struct Stretch {
    start: u64,
    bytes: Vec<u8>,
    /// Behind it lies nothing.
    is_last: bool,
}

impl Stretch {
    /// So many bytes from `at` on, or as many as there are. Asked for with `at` rising.
    fn read(&mut self, source: &mut Source, at: u64, len: usize) -> Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        let is_here = at >= self.start && (at + len as u64 <= end || self.is_last && at < end);
        if !is_here {
            (self.start, self.is_last) = (at, false);
            self.bytes.clear();
            while self.bytes.len() < 2 * FRAME_MAX && !self.is_last {
                let from = at + self.bytes.len() as u64;
                self.is_last = source.read(from, &mut self.bytes)? == 0;
            }
        }
        let from = (at - self.start) as usize;
        let to = self.bytes.len().min(from + len);
        Ok(&self.bytes[from..to])
    }
}

/// The segment files, as one range of LSNs with gaps.
#[derive(Debug)]
struct Source {
    directory: PathBuf,
    segment_bytes: u64,
    files: BTreeMap<u64, Segment>,
    /// Where whole blocks are read to.
    blocks: AlignedBuffer,
    ahead: Option<Ahead>,
    /// Where the last piece ended that was read to read on.
    read_to: u64,
}

/// Bytes of a piece: a chunk, and the blocks in which it begins and ends.
const BLOCKS: usize = CHUNK + 2 * DIRECT_ALIGNMENT;

#[derive(Debug)]
struct Segment {
    file: Arc<dyn File>,
    /// Bytes of log that the file has.
    bytes: u64,
    header: std::result::Result<(), Corrupt>,
}

impl Source {
    fn open(params: &ReadParams) -> Result<Self> {
        let first = params.from.0 / params.segment_bytes;
        let mut files = BTreeMap::new();
        let directory = &*params.directory;
        for info in LogReader::segments(directory)? {
            // Numbers so large that their LSNs overflow are none of ours.
            let end = info.number.checked_add(1);
            let possible = end
                .and_then(|n| n.checked_mul(params.segment_bytes))
                .is_some();
            if info.number < first || !possible {
                continue;
            }
            let expected = SegmentHeader {
                number: info.number,
                segment_bytes: params.segment_bytes,
                uuid: params.uuid,
            };
            let segment = Segment {
                file: open_past_cache(directory, &segment_file_name(info.number))
                    .map_err(|e| Error::io("open", &info.path, e))?,
                bytes: info
                    .bytes
                    .saturating_sub(LOG_BLOCK as u64)
                    .min(params.segment_bytes),
                header: info.header.and_then(|h| h.check(&expected)),
            };
            files.insert(info.number, segment);
        }
        Ok(Self {
            directory: directory.path().to_owned(),
            segment_bytes: params.segment_bytes,
            files,
            blocks: AlignedBuffer::zeroed(BLOCKS),
            ahead: None,
            read_to: 0,
        })
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(segment_file_name(number))
    }

    /// Whether all segments from one on are sound, to the last one that is. (They are made one
    /// after the other, each with a synced header and name.)
    fn check_behind(&mut self, number: u64) -> Result<()> {
        let mut sound = self.files.iter().rev().filter(|(_, s)| s.header.is_ok());
        let Some((&last, _)) = sound.next() else {
            return Ok(());
        };
        for number in number..last {
            if let Err((path, corrupt)) = self.check(number, 0) {
                let last = self.path(last);
                let detail = format!("{}; the later {} is there", corrupt.detail, last.display());
                return Err(Error::corrupt_file(&path, corrupt.offset as u64, detail));
            }
        }
        Ok(())
    }

    /// Whether a segment is there, with a sound header and at least `needed` bytes of log.
    fn check(&mut self, number: u64, needed: u64) -> std::result::Result<(), (PathBuf, Corrupt)> {
        match self.files.get(&number) {
            None => Err((
                self.path(number),
                Corrupt::at(0, "the segment file is missing"),
            )),
            Some(segment) if segment.header.is_ok() && segment.bytes < needed => Err((
                self.path(number),
                Corrupt::at(
                    LOG_BLOCK + segment.bytes as usize,
                    format!(
                        "the file holds {} bytes of log, {needed} were written: it was cut short",
                        segment.bytes
                    ),
                ),
            )),
            Some(segment) => segment
                .header
                .clone()
                .map_err(|corrupt| (self.path(number), corrupt)),
        }
    }

    /// Appends bytes from an LSN on to `out`, within one segment and at most [`CHUNK`]; how many. 0
    /// where nothing is.
    fn read(&mut self, lsn: u64, out: &mut Vec<u8>) -> Result<usize> {
        let Some((piece, range)) = self.piece(lsn) else {
            return Ok(0);
        };
        let result = piece.read(&mut self.blocks);
        self.append(&piece, range, result, out)
    }

    /// As [`Self::read`], for a caller that reads on from there: what follows is read ahead.
    fn read_on(&mut self, lsn: u64, out: &mut Vec<u8>) -> Result<usize> {
        let Some((piece, range)) = self.piece(lsn) else {
            return Ok(0);
        };
        let ahead = self.ahead.as_ref();
        let come = ahead.and_then(|ahead| ahead.take(&piece, &mut self.blocks));
        let result = come.unwrap_or_else(|| piece.read(&mut self.blocks));
        let follows = self.read_to == lsn;
        self.read_to = lsn + range.len() as u64;
        // Most logs are short.
        if follows && self.ahead.is_none() {
            self.ahead = Ahead::start(BLOCKS);
        }
        if follows
            && let Some(ahead) = &self.ahead
            && let Some((next, _)) = self.piece(self.read_to)
        {
            ahead.ask(next);
        }
        self.append(&piece, range, result, out)
    }

    /// Where the bytes from an LSN on are, within one segment and at most [`CHUNK`]: the blocks to
    /// be read, and where in them the bytes are.
    fn piece(&self, lsn: u64) -> Option<(Piece, Range<usize>)> {
        let (number, at) = (lsn / self.segment_bytes, lsn % self.segment_bytes);
        let segment = self.files.get(&number)?;
        let len = segment.bytes.saturating_sub(at).min(CHUNK as u64) as usize;
        if len == 0 {
            return None;
        }
        let from = LOG_BLOCK as u64 + at;
        // Past the cache there are whole blocks only; elsewhere they do no harm, but may not be
        // there.
        let (before, read) = if segment.file.is_direct() {
            let before = (from % DIRECT_ALIGNMENT as u64) as usize;
            (before, (before + len).next_multiple_of(DIRECT_ALIGNMENT))
        } else {
            (0, len)
        };
        paranoid!(
            read <= BLOCKS,
            "a piece of {read} bytes does not fit its buffer"
        );
        let piece = Piece {
            file: segment.file.clone(),
            offset: from - before as u64,
            len: read,
        };
        Some((piece, before..before + len))
    }

    /// Appends what was read.
    fn append(
        &self,
        piece: &Piece,
        range: Range<usize>,
        result: std::io::Result<()>,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        paranoid!(
            !range.is_empty() && range.end <= piece.len,
            "bytes {range:?} of a piece of {}",
            piece.len
        );
        result.map_err(|e| Error::io("read", piece.file.path(), e))?;
        out.extend_from_slice(&self.blocks[range.clone()]);
        Ok(range.len())
    }

    /// First LSN of the first segment that begins at or after this one.
    fn next_segment(&self, lsn: u64) -> Option<u64> {
        let from = lsn.div_ceil(self.segment_bytes);
        let (number, _) = self.files.range(from..).next()?;
        Some(number * self.segment_bytes)
    }
}
