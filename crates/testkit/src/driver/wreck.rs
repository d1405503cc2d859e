//! What a power loss left: looks at the disk before it is repaired.
//!
//! Everything here is told from the bytes: pages and copies by their checksums, the log by its
//! frames, a split by the records of its mini-transaction. Nothing rests on what the engine says.

use crate::marks::Marks;
use inkstone::internals::log::ReadParams;
use inkstone::internals::recovery::{FrameSource, LogSource};
use inkstone::internals::store::{DOUBLEWRITE_FILE, parse_space_file_name};
use inkstone_format::control::{CONTROL_COPY_LEN, Control};
use inkstone_format::doublewrite::{BLOCK_LEN, BatchHeader, Layout, image_crc};
use inkstone_format::frame::{Parsed, find_claims, parse};
use inkstone_format::header::{check_page, page_lsn};
use inkstone_format::record::{Decoder, Record};
use inkstone_format::segment::{LOG_BLOCK, parse_segment_file_name, segment_file_name};
use inkstone_format::{Lsn, PageId, PageNo, VersionAddress};
use inkstone_io::sim::SimVfs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Bytes behind the end of the log that are searched for frames of earlier lives of the segment.
const STALE_SEARCH_BYTES: usize = 256 << 10;
/// How far back an earlier life of a segment is looked for, in segments.
const STALE_SEARCH_SEGMENTS: u64 = 64;

/// A page as it stands in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InPlace {
    Whole(Lsn),
    /// Nothing but zeroes.
    Empty,
    Torn,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wreck {
    /// Pages that are neither whole nor empty in place, and have a whole copy that recovery may
    /// use.
    pub torn_pages: u64,
    half_batches: u64,
    splits_on_disk: u64,
    splits_in_lost_tail: u64,
    stale_frames: u64,
    /// Rows had been given the logged addresses to which their undo was to move, and the record was
    /// missing that moves it. (1 or 0.)
    cut_moves: u64,
}

impl Wreck {
    /// Compares what a process had written with what power loss left of it. `None`: no database
    /// yet.
    pub fn examine(process: &SimVfs, disk: &SimVfs, directory: &Path) -> Option<Self> {
        let control = control(disk, directory)?;
        let scene = Scene {
            disk,
            directory,
            control,
        };
        let pages = scene.pages();
        let (copies, half_batches) = scene.copies();
        let usable = |id: &PageId| copies.get(id).is_some_and(|&lsn| lsn > scene.checkpoint());
        let torn = pages.iter().filter(|(_, page)| **page == InPlace::Torn);
        let mut wreck = Self {
            torn_pages: torn.filter(|(id, _)| usable(id)).count() as u64,
            half_batches,
            ..Self::default()
        };
        // A log that cannot be read is for recovery to report.
        if let Some(log) = scene.log() {
            let (splits, end) = (log.splits, log.end);
            let is_cut = |split: &&BTreeSet<PageId>, at: Lsn| {
                let there = split.iter().filter_map(|id| pages.get(id));
                let (with, without): (Vec<&InPlace>, Vec<&InPlace>) =
                    there.partition(|page| matches!(page, InPlace::Whole(lsn) if *lsn >= at));
                !with.is_empty() && !without.is_empty()
            };
            let cut = splits.iter().filter(|(at, split)| is_cut(&split, *at));
            wreck.splits_on_disk = cut.count() as u64;
            wreck.splits_in_lost_tail = scene.lost_splits(process, end, log.decoder);
            wreck.stale_frames = scene.stale_frames(end, log.epoch);
            wreck.cut_moves = u64::from(!log.unmoved.is_empty());
        }
        Some(wreck)
    }

    /// Notes what is worth a mark by itself.
    pub fn note(&self, marks: &mut Marks) {
        marks.add("doublewrite batches half written", self.half_batches);
        marks.add("splits partly on disk", self.splits_on_disk);
        marks.add("splits in the lost tail", self.splits_in_lost_tail);
        marks.add("stale frames behind the end", self.stale_frames);
        marks.add("crashes while undo moved", self.cut_moves);
    }
}

/// The control file as a process sees it, if there is one.
pub(super) fn control(vfs: &SimVfs, directory: &Path) -> Option<Control> {
    let bytes = vfs.read_raw(&directory.join("control")).ok()?;
    let copies = bytes.split_at_checked(CONTROL_COPY_LEN)?;
    Some(Control::choose([copies.0, copies.1]).ok()?.0)
}

struct Scene<'a> {
    disk: &'a SimVfs,
    directory: &'a Path,
    control: Control,
}

/// What recovery will see of the log.
struct Log {
    /// By the end of their mini-transaction.
    splits: Vec<(Lsn, BTreeSet<PageId>)>,
    /// Logged addresses that rows were given, of transactions whose undo has not moved to them.
    unmoved: BTreeSet<VersionAddress>,
    end: Lsn,
    epoch: u64,
    /// It knows what comes before the end.
    decoder: Decoder,
}

impl Scene<'_> {
    fn checkpoint(&self) -> Lsn {
        self.control.checkpoint_lsn
    }

    fn page_size(&self) -> usize {
        self.control.page_size as usize
    }

    /// All pages of all tablespace files.
    fn pages(&self) -> BTreeMap<PageId, InPlace> {
        let mut pages = BTreeMap::new();
        for path in self.disk.files() {
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(space) = name.and_then(parse_space_file_name) else {
                continue;
            };
            if self.disk.read_raw(&path.with_extension("places")).is_ok() {
                // Its pages are somewhere else, and never torn.
                continue;
            }
            let bytes = self.disk.read_raw(&path).unwrap_or_default();
            for (n, page) in bytes.chunks_exact(self.page_size()).enumerate() {
                let id = PageId::new(space, PageNo(n as u32));
                let state = match check_page(page, id) {
                    _ if page.iter().all(|&byte| byte == 0) => InPlace::Empty,
                    Ok(()) => InPlace::Whole(page_lsn(page)),
                    Err(_) => InPlace::Torn,
                };
                pages.insert(id, state);
            }
        }
        pages
    }

    /// The newest whole copy of each page in the doublewrite file, and the batches of which the
    /// header is whole and a copy is not.
    fn copies(&self) -> (BTreeMap<PageId, Lsn>, u64) {
        let (mut copies, mut half) = (BTreeMap::new(), 0);
        let path = self.directory.join(DOUBLEWRITE_FILE);
        let bytes = self.disk.read_raw(&path).unwrap_or_default();
        let Some(Ok(layout)) = bytes.get(..BLOCK_LEN).map(Layout::parse) else {
            return (copies, half);
        };
        for area in 0..layout.areas {
            let at = layout.area_offset(area) as usize;
            let Some(header) = bytes.get(at..at + BLOCK_LEN) else {
                continue;
            };
            let Ok(Some(batch)) = BatchHeader::parse(&layout, header) else {
                continue;
            };
            let images = bytes[at + BLOCK_LEN..].chunks_exact(self.page_size());
            let mut torn = 0;
            for (entry, image) in batch.entries.iter().zip(images) {
                if image_crc(image) == entry.crc && check_page(image, entry.id).is_ok() {
                    let newest = copies.entry(entry.id).or_insert(Lsn(0));
                    *newest = page_lsn(image).max(*newest);
                } else {
                    torn += 1;
                }
            }
            half += u64::from(torn > 0);
        }
        (copies, half)
    }

    /// `None` if the log cannot be read.
    fn log(&self) -> Option<Log> {
        let control = &self.control;
        let log = self.disk.directory(self.directory.join("log"));
        let mut source = LogSource::open(ReadParams::of(control, log));
        let source = source.as_mut().ok()?;
        let (mut decoder, mut splits) = (Decoder::default(), Vec::new());
        let mut unmoved = BTreeSet::new();
        while let Some(frame) = source.next().ok()? {
            let (start, end) = (frame.start, frame.end);
            // Before the checkpoint the context of some records may be missing.
            let Ok(records) = decoder.decode(frame.payload) else {
                continue;
            };
            note_moves(&records, &mut unmoved);
            if start >= self.checkpoint()
                && let Some(pages) = split_pages(&records)
            {
                splits.push((end, pages));
            }
        }
        Some(Log {
            splits,
            unmoved,
            end: source.position(),
            epoch: source.epoch(),
            decoder,
        })
    }

    fn segment(&self, number: u64) -> PathBuf {
        self.directory.join("log").join(segment_file_name(number))
    }

    /// Splits that the process had written to the log behind what is its end now.
    fn lost_splits(&self, process: &SimVfs, end: Lsn, mut decoder: Decoder) -> u64 {
        let Some(epoch) = control(process, self.directory).map(|control| control.epoch) else {
            return 0;
        };
        let bytes_in = self.control.log_segment_bytes;
        let (mut bytes, mut skip) = (Vec::new(), (end.0 % bytes_in) as usize + LOG_BLOCK);
        for number in end.0 / bytes_in.. {
            let Ok(segment) = process.read_raw(&self.segment(number)) else {
                break;
            };
            bytes.extend_from_slice(segment.get(skip..).unwrap_or_default());
            skip = LOG_BLOCK;
        }
        let (mut at, mut lost) = (0, 0);
        while let Parsed::Frame(frame) = parse(&bytes[at..], Lsn(end.0 + at as u64), epoch) {
            let records = decoder.decode(frame.payload).unwrap_or_default();
            lost += u64::from(split_pages(&records).is_some());
            at += frame.len;
        }
        lost
    }

    /// Segments behind the end in which a whole frame of an earlier life stands. (1 or 0: the
    /// search ends with the first.)
    fn stale_frames(&self, end: Lsn, epoch: u64) -> u64 {
        let bytes_in = self.control.log_segment_bytes;
        let first = end.0 / bytes_in;
        let names = self.disk.files();
        let names = names.iter().filter_map(|path| path.file_name()?.to_str());
        for number in names.filter_map(parse_segment_file_name) {
            if number < first {
                continue;
            }
            let skip = if number == first { end.0 % bytes_in } else { 0 };
            let bytes = self
                .disk
                .read_raw(&self.segment(number))
                .unwrap_or_default();
            let bytes = bytes.get(skip as usize + LOG_BLOCK..).unwrap_or_default();
            let bytes = &bytes[..bytes.len().min(STALE_SEARCH_BYTES)];
            for back in 1..number.min(STALE_SEARCH_SEGMENTS) {
                let base = Lsn((number - back) * bytes_in + skip);
                if has_frame(bytes, base, epoch) {
                    return 1;
                }
            }
        }
        0
    }
}

/// Whether bytes hold a whole frame with a claim that was written at `base` and what follows.
fn has_frame(bytes: &[u8], base: Lsn, newest_epoch: u64) -> bool {
    let mut from = 0;
    while let Some(found) = find_claims(bytes, base, from, Lsn(0)) {
        let at = Lsn(base.0 + found.offset as u64);
        let frame = |epoch| matches!(parse(&bytes[found.offset..], at, epoch), Parsed::Frame(_));
        if (1..=newest_epoch).any(frame) {
            return true;
        }
        from = found.offset + 1;
    }
    false
}

/// Follows undo that moves: first rows get the new addresses, each leaf in a mini-transaction that
/// does nothing else, then one record tells of them all. A rollback may come before it.
fn note_moves(records: &[Record], unmoved: &mut BTreeSet<VersionAddress>) {
    match records {
        [Record::SetVersions { versions, .. }] => {
            unmoved.extend(versions.iter().filter_map(|(_, address)| *address));
        }
        _ => {
            for record in records {
                match record {
                    Record::UndoMoved { addresses, .. } => {
                        for (address, _) in addresses {
                            unmoved.remove(address);
                        }
                    }
                    Record::RowRestore {
                        version: Some(address),
                        ..
                    } => {
                        unmoved.remove(address);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The tree pages that a mini-transaction changes, if it splits a node: it makes a tree page and
/// puts children into an inner one.
fn split_pages(records: &[Record]) -> Option<BTreeSet<PageId>> {
    let any = |test: fn(&Record) -> bool| records.iter().any(test);
    let splits = any(|r| matches!(r, Record::TreeInit { .. }))
        && any(|r| matches!(r, Record::InnerCells { .. }));
    let of_tree = |r: &&Record| !matches!(r, Record::Bits { .. });
    let pages = || records.iter().filter(of_tree).filter_map(Record::page);
    splits.then(|| pages().collect())
}
