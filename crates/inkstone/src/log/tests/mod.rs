//! The log over a disk in memory that knows what was synced.

mod ahead;
mod appending;
mod memory_vfs;
#[cfg(inkstone_shuttle)]
mod races;
mod reading;
mod throughput;
mod wakers;

use super::*;
use inkstone_format::segment::segment_file_name;
use inkstone_io::{Create, OpenOptions};
use memory_vfs::MemoryVfs;
use std::path::PathBuf;

const SEGMENT: u64 = 64 << 10;
const UUID: [u8; 16] = *b"log tests' uuid.";

fn params(vfs: &MemoryVfs) -> LogParams {
    LogParams {
        vfs: Arc::new(vfs.clone()),
        directory: vfs.directory("/db/log"),
        uuid: UUID,
        segment_bytes: SEGMENT,
        epoch: 1,
        start_lsn: Lsn(SEGMENT),
        end_block: Vec::new(),
        options: LogOptions {
            capacity_bytes: 16 * SEGMENT,
            buffer_bytes: 2 << 20,
            buffering: false,
            write: LogWrite::Sync,
            write_through: false,
            archive: false,
        },
        keep_from: Lsn(0),
        is_new: true,
        is_closed: false,
        may_be_unused: false,
    }
}

fn params_with(vfs: &MemoryVfs, change: impl FnOnce(&mut LogOptions)) -> LogParams {
    let mut params = params(vfs);
    change(&mut params.options);
    params
}

/// The bytes before `start` in its block, as they are on disk.
fn end_block(params: &LogParams) -> Vec<u8> {
    let segment = params.segment_bytes;
    let (number, at) = (params.start_lsn.0 / segment, params.start_lsn.0 % segment);
    let mut bytes = vec![0; at as usize % LOG_BLOCK];
    if !bytes.is_empty() {
        let options = OpenOptions {
            create: Create::Never,
            read_only: true,
            direct: false,
            dsync: false,
        };
        let opened = params.directory.open(&segment_file_name(number), options);
        let file = opened.expect("a segment file");
        let from = LOG_BLOCK as u64 + at - bytes.len() as u64;
        file.read_at(&mut bytes, from).expect("the last block");
    }
    bytes
}

fn open(mut params: LogParams) -> (Arc<Log>, Arc<Counters>, Poison) {
    let (counters, poison) = (Arc::<Counters>::default(), Poison::default());
    params.end_block = end_block(&params);
    let log = Log::open(params, counters.clone(), poison.clone()).expect("open the log");
    (log, counters, poison)
}

fn read_params(vfs: &MemoryVfs, newest_epoch: u64) -> ReadParams {
    ReadParams {
        directory: vfs.directory("/db/log"),
        uuid: UUID,
        segment_bytes: SEGMENT,
        from: Lsn(SEGMENT),
        epoch: 1,
        newest_epoch,
        must_reach: Lsn(0),
        closed_at: None,
    }
}

type Owned = (u64, u64, Vec<u8>);

/// Start, epoch and payload of all frames, and the end.
fn read(params: ReadParams) -> Result<(Vec<Owned>, Lsn)> {
    let mut reader = LogReader::open(params)?;
    let mut frames = Vec::new();
    while let Some(frame) = reader.next()? {
        frames.push((frame.start.0, frame.epoch, frame.payload.to_vec()));
    }
    assert_eq!(reader.next()?, None);
    Ok((frames, reader.position()))
}

fn segment_path(number: u64) -> PathBuf {
    PathBuf::from("/db/log").join(inkstone_format::segment::segment_file_name(number))
}

/// Payload `i` of `len` bytes, different for each.
fn payload(i: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![i as u8; len];
    let number = i.to_le_bytes();
    let n = len.min(8);
    bytes[..n].copy_from_slice(&number[..n]);
    bytes
}

fn append(log: &Log, payload: &[u8]) -> (Lsn, Lsn) {
    log.append(payload, Claim::IfNews, |_, _| {})
        .expect("append")
}

/// As a commit has it that is synced, and as any other frame has it.
fn claim(of_news: bool) -> Claim {
    if of_news {
        Claim::IfNews
    } else {
        Claim::WhenDue
    }
}
