//! Targets over the redo log: frames, and segments that are read as recovery reads them.

use super::Target;
use super::input::{Input, dice_seeds};
use inkstone::Error;
use inkstone::internals::log::{LogReader, ReadParams};
use inkstone_format::Lsn;
use inkstone_format::frame::{self, FRAME_MAX, Parsed};
use inkstone_format::segment::{LOG_BLOCK, SegmentHeader, segment_file_name};
use inkstone_io::sim::SimVfs;
use inkstone_io::{Create, OpenOptions};
use std::path::{Path, PathBuf};

/// `frames`: log as bytes.
pub const FRAMES: Target = Target {
    name: "frames",
    about: "bytes of log: parsed as frames at any LSN and epoch, and searched for claims",
    run: frames,
    seeds: frame_seeds,
    input_max: 8 << 10,
    allocation_max_mib: 4,
};

/// `log`: segments that are written, damaged and read.
pub const LOG: Target = Target {
    name: "log",
    about: "segments of frames of several epochs, damaged: read in order, damage never as data",
    run: log,
    seeds: log_seeds,
    input_max: 4 << 10,
    allocation_max_mib: 8,
};

fn frames(data: &[u8]) {
    let mut input = Input::new(data);
    let (start, epoch) = (input.u64(), u64::from(input.u8()));
    let bytes = input.rest();
    let (mut at, mut found) = (0, 0);
    while let Parsed::Frame(frame) =
        frame::parse(&bytes[at..], Lsn(start.wrapping_add(at as u64)), epoch)
    {
        assert!(frame.len > frame.payload.len() && frame.len <= bytes.len() - at);
        let mut again = Vec::new();
        let lsn = Lsn(start.wrapping_add(at as u64));
        frame::encode(frame.payload, frame.claim, lsn, epoch, &mut again);
        assert_eq!(again, bytes[at..at + frame.len], "written again it differs");
        at += frame.len;
        found += 1;
    }
    if let Parsed::Short(needed) = frame::parse(&bytes[at..], Lsn(start), epoch) {
        assert!(needed > bytes.len() - at && needed <= FRAME_MAX);
    }
    if let Some(first) = bytes.first_chunk::<4>() {
        let length = frame::frame_len(first);
        assert!(found == 0 || length.is_some());
    }
    let (base, beyond) = (Lsn(start >> 1), Lsn(start >> 2));
    let mut from = 0;
    while let Some(candidate) = frame::find_claims(bytes, base, from, beyond) {
        assert!(candidate.offset >= from && candidate.claim > beyond);
        let _ = frame::parse(&bytes[candidate.offset..], base, epoch);
        from = candidate.offset + 1;
    }
}

fn frame_seeds() -> Vec<(String, Vec<u8>)> {
    let mut one = vec![0; 9];
    one[8] = 3;
    for (n, claim) in [None, Some(Lsn(0)), None].into_iter().enumerate() {
        let lsn = Lsn(one.len() as u64 - 9);
        frame::encode(&vec![n as u8; 40 * n], claim, lsn, 3, &mut one);
    }
    let mut seeds = dice_seeds(2, 300);
    seeds.push(("three".to_owned(), one));
    seeds
}

const SEGMENT_BYTES: u64 = 16 << 10;
const SEGMENTS: u64 = 3;
const UUID: [u8; 16] = *b"fuzzed log's id.";
const DIRECTORY: &str = "log";

fn segment_path(number: u64) -> PathBuf {
    Path::new(DIRECTORY).join(segment_file_name(number))
}

/// A log as it was written, from segment 1 on.
struct Written {
    bytes: Vec<u8>,
    /// Start, epoch and payload.
    frames: Vec<(Lsn, u64, Vec<u8>)>,
    epoch: u64,
}

impl Written {
    fn from(input: &mut Input<'_>) -> Self {
        let mut log = Self {
            bytes: Vec::new(),
            frames: Vec::new(),
            epoch: 1,
        };
        let count = input.below(40);
        for n in 0..count {
            let start = Lsn(SEGMENT_BYTES + log.bytes.len() as u64);
            let choice = input.u8();
            // An epoch begins with a frame that claims just where it starts.
            let new_epoch = n > 0 && choice.is_multiple_of(8);
            log.epoch += u64::from(new_epoch);
            let claim = match (new_epoch, choice % 3) {
                (true, _) => Some(start),
                (false, 0) => Some(log.frames.last().map_or(start, |last| last.0)),
                _ => None,
            };
            let length = if choice >= 0xf0 { 40 } else { 1 } * usize::from(input.u8());
            let payload = vec![choice | 1; length];
            let length = (frame::FRAME_HEADER_MAX + payload.len()) as u64;
            if log.bytes.len() as u64 + length > SEGMENTS * SEGMENT_BYTES {
                break;
            }
            frame::encode(&payload, claim, start, log.epoch, &mut log.bytes);
            log.frames.push((start, log.epoch, payload));
        }
        log
    }

    fn disk(&self) -> SimVfs {
        let vfs = SimVfs::new(1);
        vfs.create_dir_all(Path::new(DIRECTORY))
            .expect("a directory");
        for number in 1..=SEGMENTS {
            let options = OpenOptions {
                create: Create::New,
                read_only: false,
                direct: false,
                dsync: false,
            };
            drop(vfs.open(&segment_path(number), options).expect("a file"));
            let mut file = vec![0; LOG_BLOCK + SEGMENT_BYTES as usize];
            let header = SegmentHeader {
                number,
                segment_bytes: SEGMENT_BYTES,
                uuid: UUID,
            };
            header.encode(&mut file[..LOG_BLOCK]);
            let from = ((number - 1) * SEGMENT_BYTES) as usize;
            let bytes = self.bytes.get(from..).unwrap_or_default();
            let count = bytes.len().min(SEGMENT_BYTES as usize);
            file[LOG_BLOCK..LOG_BLOCK + count].copy_from_slice(&bytes[..count]);
            vfs.write_raw(&segment_path(number), 0, &file)
                .expect("bytes on the disk");
        }
        vfs
    }
}

/// Damages the log; whether it can still be told for certain that damage is found: up to three
/// flipped bits never make another frame that verifies.
fn damage(vfs: &SimVfs, input: &mut Input<'_>) -> bool {
    let (flips, writes) = (input.below(4), input.below(4));
    for _ in 0..flips {
        let path = segment_path(1 + input.below(SEGMENTS as usize) as u64);
        let _ = vfs.flip_bit(&path, u64::from(input.u16()), input.u8());
    }
    for _ in 0..writes {
        let path = segment_path(1 + input.below(SEGMENTS as usize) as u64);
        let at = u64::from(input.u16()) % (SEGMENT_BYTES + LOG_BLOCK as u64);
        let _ = vfs.write_raw(&path, at, &input.short());
    }
    if input.u8() % 8 == 7 {
        let path = segment_path(1 + input.below(SEGMENTS as usize) as u64);
        let _ = vfs.truncate_raw(&path, u64::from(input.u16()));
    }
    writes == 0
}

fn log(data: &[u8]) {
    let mut input = Input::new(data);
    let log = Written::from(&mut input);
    let vfs = log.disk();
    let certain = damage(&vfs, &mut input);
    let end = SEGMENT_BYTES + log.bytes.len() as u64;
    let must_reach = if input.u8() % 2 == 1 { end } else { 0 };
    let params = ReadParams {
        directory: vfs.directory(DIRECTORY),
        uuid: UUID,
        segment_bytes: SEGMENT_BYTES,
        from: Lsn(SEGMENT_BYTES),
        epoch: 1,
        newest_epoch: log.epoch,
        must_reach: Lsn(must_reach),
        closed_at: None,
    };
    let (read, result) = read(params);
    if let Err(error) = &result {
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
    if certain {
        assert!(
            log.frames.starts_with(&read),
            "frames that were never written"
        );
        let all = read.len() == log.frames.len();
        assert!(
            result.is_err() || must_reach == 0 || all,
            "frames are lost silently"
        );
    }
}

type Frames = Vec<(Lsn, u64, Vec<u8>)>;

fn read(params: ReadParams) -> (Frames, Result<(), Error>) {
    let mut frames = Vec::new();
    let mut reader = match LogReader::open(params) {
        Ok(reader) => reader,
        Err(error) => return (frames, Err(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(frame)) => frames.push((frame.start, frame.epoch, frame.payload.to_vec())),
            Ok(None) => return (frames, Ok(())),
            Err(error) => return (frames, Err(error)),
        }
    }
}

fn log_seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = dice_seeds(8, 160);
    let long = [&[39][..], &[0xf7, 0xff].repeat(39)].concat();
    seeds.push(("three-segments".to_owned(), long));
    seeds
}
