//! Writing batches of pages: copies first where they are needed, then in place, then syncs.
//!
//! A writer belongs to one thread and owns a queue of I/O operations. There may be any number of
//! writers. See the invariants of [the store](super).
//!
//! A write that fails costs its own pages only: they do not land, and the others of the batch do.
//! The copies of pages whose write in place failed are kept in the doublewrite file
//! (`doublewrite/areas.rs`); such a page is written in place without another copy next time, before
//! anything that needs an area. Where there are no copies (`doublewrite` off or atomic) and pages
//! can be torn after all, one whose write in place failed can be mended after a crash only if the
//! log initialises it; while the process lives it is in memory.

use super::doublewrite::{Area, DoublewriteFile, InUse};
use super::page_store::Protection;
use super::placed::Placing;
use super::space_file::SpaceFile;
use super::space_files::SpaceFiles;
use super::table_file::{FileInUse, sync_side_by_side};
use crate::buffer::{PageImage, PageWriter};
use crate::counters::{Counter, Counters, Timed};
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::poison::Poison;
use crate::{Error, Result, invariant};
use inkstone_format::header::{page_id, page_lsn, stamp_checksum};
use inkstone_format::image::{Compression, Packer};
use inkstone_io::AlignedBuffer;
use inkstone_io::{Batch, MemoryHandle, Op, Vfs};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Adjacent pages are combined into writes of at most this many bytes.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// I/O operations in flight.
const OPERATIONS_MAX: usize = 64;
/// Pages that are written together under `doublewrite=atomic`.
const ATOMIC_BATCH_PAGES: usize = 128;

/// Writes pages for one cleaner thread.
pub(crate) struct FilePageWriter {
    spaces: Arc<SpaceFiles>,
    protection: Protection,
    /// While pages are written that need copies.
    copies: Option<InUse>,
    batch: Box<dyn Batch>,
    /// With untorn writes: adjacent pages in one piece, as the kernel takes an untorn write from
    /// one buffer only.
    gather: AlignedBuffer,
    /// Compressed images of pages that are placed, and memory for making them.
    images: AlignedBuffer,
    packer: Packer,
    counters: Arc<Counters>,
    poison: Poison,
    /// The first failure of this call.
    refusal: Option<Error>,
}

/// A page, and the file that it goes to.
#[derive(Clone)]
struct Target<'a> {
    image: &'a PageImage<'a>,
    file: Arc<SpaceFile>,
}

/// Pages that are written at the same time. Their files are in use until they are synced.
struct OpenTargets<'t, 'a> {
    targets: &'t [Target<'a>],
    /// Each file, and which of the targets are its own.
    files: Vec<(FileInUse<'t>, Range<usize>)>,
}

/// A run of pages that one write can do, in a file.
struct Extent<'x, 't> {
    file: &'x FileInUse<'t>,
    /// Which of the targets they are.
    targets: Range<usize>,
    offset: u64,
    bytes: usize,
    /// Of pages that are placed, where the compressed image of each is; `None`: it goes to disk as
    /// it is. Of others there are none.
    images: Vec<Option<Range<usize>>>,
}

impl Extent<'_, '_> {
    fn is_placed(&self) -> bool {
        !self.images.is_empty()
    }
}

/// Pages of one file that is placed, with their units.
struct PlacedPart {
    /// Which of the files.
    file: usize,
    /// Which of the targets is the first.
    first: usize,
    placings: Vec<Placing>,
    /// Where the first compressed image is.
    images_at: usize,
}

impl<'t, 'a> OpenTargets<'t, 'a> {
    /// Of these targets as many, from the first on, as files are to be had for without a wait: at
    /// least those of one file. A file that was removed meanwhile is none: it will not be read
    /// again.
    fn of(all: &'t [Target<'a>]) -> Result<Self> {
        let mut files: Vec<(FileInUse<'t>, Range<usize>)> = Vec::new();
        let mut end = 0;
        for of_file in all.chunk_by(|a, b| Arc::ptr_eq(&a.file, &b.file)) {
            let file = &of_file[0].file;
            let in_use = if files.is_empty() {
                file.acquire().map(Some)
            } else {
                file.try_acquire()
            };
            let range = end..end + of_file.len();
            match in_use {
                Ok(Some(in_use)) => files.push((in_use, range.clone())),
                Ok(None) => break,
                Err(_) if file.is_removed() => {}
                Err(_) if !files.is_empty() => break,
                Err(error) => return Err(error),
            }
            end = range.end;
        }
        paranoid!(
            all.is_empty() || end > 0 && end <= all.len(),
            "{end} of {} pages can be written",
            all.len()
        );
        let targets = &all[..end];
        Ok(Self { targets, files })
    }

    /// Of pages that have a place of their own.
    fn extents_in_place(&self, page_size: u32) -> Vec<Extent<'_, 't>> {
        let in_place = |(_, range): &&(FileInUse<'t>, Range<usize>)| {
            self.targets[range.start].file.placed().is_none()
        };
        let of_file = self
            .files
            .iter()
            .filter(in_place)
            .flat_map(|(file, range)| {
                let extents = extents(self.targets, range.clone(), page_size);
                extents.into_iter().map(move |targets| {
                    let first = &self.targets[targets.start];
                    Extent {
                        file,
                        offset: first.file.offset(first.image.id.page),
                        bytes: targets.len() * page_size as usize,
                        targets,
                        images: Vec::new(),
                    }
                })
            });
        of_file.collect()
    }

    /// Of images, those that go side by side into the file together.
    fn extents_of(&self, part: &PlacedPart) -> Vec<Extent<'_, 't>> {
        paranoid!(
            self.files[part.file].1.start == part.first,
            "the images of file {} begin with target {}",
            part.file,
            part.first
        );
        let file = &self.files[part.file].0;
        let mut extents: Vec<Extent<'_, 't>> = Vec::new();
        let mut at = part.images_at;
        for (target, placing) in (part.first..).zip(&part.placings) {
            let bytes = placing.unit_bytes();
            let image = placing.is_compressed().then(|| at..at + bytes);
            at = image.as_ref().map_or(at, |image| image.end);
            if let Some(last) = extents.last_mut()
                && last.offset + last.bytes as u64 == placing.offset()
                && last.bytes + bytes <= WRITE_BYTES_MAX as usize
            {
                last.bytes += bytes;
                last.targets.end = target + 1;
                last.images.push(image);
                continue;
            }
            extents.push(Extent {
                file,
                targets: target..target + 1,
                offset: placing.offset(),
                bytes,
                images: vec![image],
            });
        }
        extents
    }
}

impl FilePageWriter {
    pub fn new(
        vfs: &dyn Vfs,
        spaces: Arc<SpaceFiles>,
        protection: Protection,
        counters: Arc<Counters>,
        poison: Poison,
    ) -> Result<Self> {
        let batch = spaces
            .open_files()
            .with_descriptor(|| vfs.batch(OPERATIONS_MAX));
        let batch = batch
            .map_err(|e| Error::io("make a queue for page writes of", Path::new(vfs.name()), e))?;
        let gather_bytes = match &protection {
            Protection::Atomic => ATOMIC_BATCH_PAGES * spaces.page_size() as usize,
            Protection::Off | Protection::Copies { .. } => 0,
        };
        Ok(Self {
            spaces,
            protection,
            copies: None,
            batch,
            gather: AlignedBuffer::zeroed(gather_bytes),
            images: AlignedBuffer::zeroed(0),
            packer: Packer::default(),
            counters,
            poison,
            refusal: None,
        })
    }

    /// Some pages cannot be written now. Fails if none can be, ever.
    fn refuse(&mut self, error: Error) -> Result<()> {
        if error.is_final() {
            return Err(error);
        }
        self.counters.add(Counter::PageWriteFailures, 1);
        self.refusal.get_or_insert(error);
        Ok(())
    }

    /// The pages in order of their place on disk, with their files. Pages of tablespaces that were
    /// removed land nowhere: they will not be read again.
    fn targets<'a>(&mut self, pages: &'a [PageImage<'a>]) -> Result<Vec<Target<'a>>> {
        let mut sorted: Vec<_> = pages.iter().collect();
        sorted.sort_unstable_by_key(|page| page.id);
        let twice = sorted.windows(2).find(|pair| pair[0].id == pair[1].id);
        invariant!(
            twice.is_none(),
            "page {} stands twice in a batch",
            twice.map(|pair| pair[0].id).unwrap_or_default()
        );
        for page in &sorted {
            let lsn = page_lsn(page.bytes);
            paranoid!(
                page.oldest <= lsn,
                "page {} is written with LSN {lsn}, and was changed at LSN {}",
                page.id,
                page.oldest
            );
        }
        let mut targets = Vec::with_capacity(sorted.len());
        for of_space in sorted.chunk_by(|a, b| a.id.space == b.id.space) {
            let file = match self.spaces.find(of_space[0].id.space) {
                Ok(Some(file)) => file,
                Ok(None) => {
                    of_space.iter().for_each(|image| image.landed.set(true));
                    continue;
                }
                Err(error) => {
                    self.refuse(error)?;
                    continue;
                }
            };
            let last = of_space[of_space.len() - 1].id.page;
            if last.0 >= file.pages()
                && let Err(error) = file.ensure_pages(last.0.saturating_add(1))
            {
                self.refuse(error)?;
            }
            let pages = file.pages();
            let inside = of_space.iter().filter(|image| image.id.page.0 < pages);
            targets.extend(inside.map(|&image| Target {
                image,
                file: file.clone(),
            }));
        }
        Ok(targets)
    }

    /// The doublewrite file, if copies are kept there.
    fn keeping(&self) -> Option<Arc<DoublewriteFile>> {
        match &self.protection {
            Protection::Copies { file, .. } => Some(file.file()).filter(|file| file.keeps_any()),
            _ => None,
        }
    }

    /// The doublewrite file that is in use.
    fn copies(&self) -> Result<&Arc<DoublewriteFile>> {
        let none = || Error::Unsupported("there is no doublewrite file".to_owned());
        self.copies.as_ref().map(InUse::file).ok_or_else(none)
    }

    /// Writes pages with kept copies, and returns the others that can be written now.
    fn write_kept<'a>(&mut self, targets: Vec<Target<'a>>) -> Result<Vec<Target<'a>>> {
        let Some(copies) = self.keeping() else {
            return Ok(targets);
        };
        copies.give_up(|id| self.spaces.is_removed(id.space));
        let is_kept = |target: &Target<'_>| copies.keeps(target.image.id);
        let (kept, mut others): (Vec<_>, Vec<_>) = targets.into_iter().partition(is_kept);
        self.write_in_place(&kept)?;
        let mut crowded = None;
        others.retain(|target| {
            let crowd = if self.needs_copy(target) {
                copies.is_crowded_by(target.image.id.space)
            } else {
                None
            };
            let may_pass = crowd.is_none();
            crowded = crowded.take().or(crowd);
            may_pass
        });
        if let Some(error) = crowded {
            self.refuse(error)?;
        }
        if let Err(error) = copies.gather(&mut *self.batch) {
            self.refuse(error)?;
        }
        Ok(others)
    }

    fn needs_copy(&self, target: &Target<'_>) -> bool {
        match self.protection {
            _ if target.file.placed().is_some() => false,
            Protection::Off | Protection::Atomic => false,
            Protection::Copies { skip_fresh, .. } => !(skip_fresh && target.image.fresh),
        }
    }

    /// How many of the targets, from the first on, are written together.
    fn batch_len(&self, targets: &[Target<'_>]) -> usize {
        match &self.protection {
            Protection::Off => targets.len(),
            Protection::Atomic => targets.len().min(ATOMIC_BATCH_PAGES),
            Protection::Copies { .. } => {
                let mut copies = 0;
                let most = self.copies().map_or(usize::MAX, |file| file.batch_pages());
                let full = targets.iter().position(|target| {
                    copies += usize::from(self.needs_copy(target));
                    copies > most
                });
                full.unwrap_or(targets.len())
            }
        }
    }

    fn write_batch(&mut self, targets: &[Target<'_>]) -> Result<()> {
        let key = |target: &Target<'_>| target.image.id;
        paranoid!(
            targets.is_sorted_by(|a, b| key(a) < key(b)),
            "{} pages are written in no order",
            targets.len()
        );
        if !matches!(self.protection, Protection::Copies { .. }) {
            return self.write_in_place(targets);
        }
        let copied = targets.iter().filter(|target| self.needs_copy(target));
        let copies: Vec<_> = copied.map(|target| target.image).collect();
        let in_place = targets.iter().filter(|t| t.file.placed().is_none());
        let skipped = (in_place.count() - copies.len()) as u64;
        self.counters.add(Counter::DoublewriteSkipped, skipped);
        if copies.is_empty() || mutants::on(Mutant::DoublewriteSkipped) {
            return self.write_in_place(targets);
        }
        let area = match self.make_copies(&copies) {
            Ok(area) => area,
            Err(error) => {
                self.refuse(error)?;
                // What needs no copy is written all the same.
                let mut bare = targets.to_vec();
                bare.retain(|target| !self.needs_copy(target));
                return self.write_in_place(&bare);
            }
        };
        // On failure of a sync the area is dropped while it holds the copies, and not used again.
        self.write_in_place(targets)?;
        area.in_place_done(|n| copies[n].landed.get(), self.refusal.as_ref());
        Ok(())
    }

    /// Makes durable copies of the pages.
    fn make_copies(&mut self, pages: &[&PageImage<'_>]) -> Result<Area> {
        let file = self.copies()?;
        paranoid!(
            !pages.is_empty() && pages.len() <= file.batch_pages(),
            "copies of {} pages are made at once, of {} at most",
            pages.len(),
            file.batch_pages()
        );
        let mut area = file.take_area()?;
        let pages = pages.iter().map(|page| (page.id, &*page.bytes));
        area.write_batch(&mut *self.batch, &pages.collect::<Vec<_>>())?;
        Ok(area)
    }

    /// Writes the pages where they belong and makes them durable: those that can be written land.
    /// Fails only for good.
    fn write_in_place(&mut self, targets: &[Target<'_>]) -> Result<()> {
        let mut rest = targets;
        while let Some(first) = rest.first() {
            let done = match OpenTargets::of(rest) {
                Ok(open) => {
                    self.write_open(&open)?;
                    open.targets.len()
                }
                Err(error) => {
                    self.refuse(error)?;
                    let is_other = |target: &Target<'_>| !Arc::ptr_eq(&target.file, &first.file);
                    rest.iter().position(is_other).unwrap_or(rest.len())
                }
            };
            paranoid!(
                done > 0 && done <= rest.len(),
                "{done} of {} pages are done",
                rest.len()
            );
            rest = &rest[done..];
        }
        Ok(())
    }

    fn write_open(&mut self, open: &OpenTargets<'_, '_>) -> Result<()> {
        let page_size = self.spaces.page_size();
        let targets = open.targets;
        let parts = self.place(open)?;
        let mut extents = open.extents_in_place(page_size);
        if let Protection::Atomic = self.protection {
            self.gather(targets, &extents);
        }
        for part in &parts {
            extents.extend(open.extents_of(part));
        }
        let (protection, gather, images) = (&self.protection, &self.gather, &self.images);
        let operations = extents.iter().map(|extent| {
            let pages = &targets[extent.targets.clone()];
            let atomic = matches!(protection, Protection::Atomic) && !extent.is_placed();
            let buffers = if extent.is_placed() {
                let pieces = pages.iter().zip(&extent.images);
                let pieces = pieces.map(|(page, image)| match image {
                    Some(image) => &images[image.clone()],
                    None => &*page.image.bytes,
                });
                pieces.collect()
            } else if atomic && pages.len() > 1 {
                vec![&gather[byte_range(&extent.targets, page_size)]]
            } else {
                pages.iter().map(|page| &*page.image.bytes).collect()
            };
            Op::Write {
                file: extent.file.begin_write(),
                buffers,
                offset: extent.offset,
                atomic,
            }
        });
        let mut operations: Vec<_> = operations.collect();
        let timing = self.counters.time(Timed::PageWrite);
        let results = self.batch.run(&mut operations);
        drop((timing, operations));
        let mut written = self.check_writes(targets, &extents, results)?;
        drop(extents);
        self.sync_files(open, &written)?;
        for part in &parts {
            let file = &targets[part.first].file;
            let Some(placed) = file.placed() else {
                continue;
            };
            let is_written = |n: usize| written[part.first + n];
            let (landed, others): (Vec<_>, Vec<_>) =
                (0..part.placings.len()).partition(|&n| is_written(n));
            let chosen =
                |of: Vec<usize>| of.into_iter().map(|n| part.placings[n]).collect::<Vec<_>>();
            placed.land(&chosen(landed));
            placed.give_up(&chosen(others));
        }
        for (target, written) in targets.iter().zip(&mut written) {
            // It will not be read again.
            *written |= target.file.is_removed();
        }
        self.land(targets, &written);
        self.settle_places(targets, &parts)
    }

    /// Makes the images of pages that are placed and compressed, and finds units for all that are
    /// placed. Those for which there are none are refused.
    fn place(&mut self, open: &OpenTargets<'_, '_>) -> Result<Vec<PlacedPart>> {
        let page_size = self.spaces.page_size() as usize;
        let mut parts = Vec::new();
        let mut images_at = 0;
        for (file, (_, range)) in open.files.iter().enumerate() {
            let targets = &open.targets[range.clone()];
            let Some(placed) = targets[0].file.placed() else {
                continue;
            };
            if placed.compression() != Compression::None {
                self.make_room(images_at, targets.len() * page_size);
            }
            let pages = targets.iter().map(|target| {
                let image = target.image;
                (image.id.page, page_lsn(image.bytes), &*image.bytes)
            });
            let room = &mut self.images[images_at..];
            let (placings, error) = placed.prepare(pages, room, &mut self.packer);
            if let Some(error) = error {
                self.refuse(error)?;
            }
            let part = PlacedPart {
                file,
                first: range.start,
                images_at,
                placings,
            };
            paranoid!(
                part.placings.len() <= range.len(),
                "{} of {} pages have a place",
                part.placings.len(),
                range.len()
            );
            let compressed = part
                .placings
                .iter()
                .filter(|placing| placing.is_compressed());
            images_at += compressed.map(Placing::unit_bytes).sum::<usize>();
            parts.push(part);
        }
        Ok(parts)
    }

    /// Room for so many bytes of images behind those that are there.
    fn make_room(&mut self, images_at: usize, bytes: usize) {
        paranoid!(
            images_at <= self.images.len(),
            "images end at {images_at} of {} bytes",
            self.images.len()
        );
        let needed = images_at + bytes;
        if self.images.len() < needed {
            let mut images = AlignedBuffer::zeroed(needed.next_power_of_two());
            images[..images_at].copy_from_slice(&self.images[..images_at]);
            self.images = images;
        }
    }

    /// Writes maps for which much waits. What cannot be written now is later.
    fn settle_places(&mut self, targets: &[Target<'_>], parts: &[PlacedPart]) -> Result<()> {
        for part in parts {
            let file = &targets[part.first].file;
            if let Some(placed) = file.placed()
                && let Err(error) = placed.settle_if_due(Some(&mut *self.batch))
                && error.is_final()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// What was written is durable: older versions of these pages are stale from now on, and copies
    /// of them need not be kept.
    fn land(&self, targets: &[Target<'_>], written: &[bool]) {
        paranoid!(
            targets.len() == written.len(),
            "{} pages were to be written, and of {} it is known whether they were",
            targets.len(),
            written.len()
        );
        let landed = targets.iter().zip(written).filter(|(_, written)| **written);
        let mut ids = Vec::with_capacity(targets.len());
        let page_lsns = self.spaces.page_lsns();
        for (Target { image, file }, _) in landed {
            paranoid!(!image.landed.get(), "page {} landed twice", image.id);
            if file.placed().is_none() {
                page_lsns.note(image.id, image.oldest, page_lsn(image.bytes));
            }
            image.landed.set(true);
            ids.push(image.id);
        }
        page_lsns.bound_notes();
        if let Some(copies) = self.keeping() {
            copies.give_up(|id| ids.binary_search(&id).is_ok());
        }
    }

    /// Puts the pages of each extent of several pages into one piece.
    fn gather(&mut self, targets: &[Target<'_>], extents: &[Extent<'_, '_>]) {
        let page_size = self.spaces.page_size();
        let of_several = extents.iter().filter(|extent| extent.targets.len() > 1);
        paranoid!(
            targets.len() * page_size as usize <= self.gather.len(),
            "{} pages do not fit {} bytes",
            targets.len(),
            self.gather.len()
        );
        for index in of_several.flat_map(|extent| extent.targets.clone()) {
            self.gather[byte_range(&(index..index + 1), page_size)]
                .copy_from_slice(targets[index].image.bytes);
        }
    }

    /// Counts, and tells which of the pages were written.
    fn check_writes(
        &mut self,
        targets: &[Target<'_>],
        extents: &[Extent<'_, '_>],
        results: Vec<std::io::Result<()>>,
    ) -> Result<Vec<bool>> {
        invariant!(
            results.len() == extents.len(),
            "{} results of {} writes",
            results.len(),
            extents.len()
        );
        let mut written = vec![false; targets.len()];
        for (extent, result) in extents.iter().zip(results) {
            let pages = extent.targets.len() as u64;
            match result {
                Ok(()) => {
                    self.counters.add(Counter::DataWriteCalls, 1);
                    self.counters.add(Counter::PagesWritten, pages);
                    self.counters
                        .add(Counter::PageBytesWritten, extent.bytes as u64);
                    written[extent.targets.clone()].fill(true);
                }
                Err(e) => {
                    let first = &targets[extent.targets.start];
                    let action = format!("write {pages} pages from {} on to", first.image.id);
                    self.refuse(Error::io(action, first.file.path(), e))?;
                }
            }
        }
        Ok(written)
    }

    /// Each file that needs it, for what was written, is synced: by this writer, or by one that
    /// comes before it.
    fn sync_files(&mut self, open: &OpenTargets<'_, '_>, written: &[bool]) -> Result<()> {
        if mutants::on(Mutant::PagesUnsynced) {
            return Ok(());
        }
        let needy = open.files.iter().filter_map(|(file, range)| {
            let mut pages = range.clone().filter(|&n| written[n]).peekable();
            let file_of = &open.targets[*pages.peek()?].file;
            let first_writes = pages.any(|n| open.targets[n].image.fresh);
            let wanted = || (file, file.want_sync());
            file_of.needs_sync(first_writes).then(wanted)
        });
        sync_side_by_side(&mut *self.batch, &self.poison, needy.collect())
    }
}

impl PageWriter for FilePageWriter {
    /// Stamps the checksums and writes the pages, in any order of ids, none twice.
    fn write(&mut self, pages: &mut [PageImage<'_>]) -> Result<()> {
        self.poison.check()?;
        for page in pages.iter_mut() {
            invariant!(
                page.bytes.len() == self.spaces.page_size() as usize,
                "page {} has {} bytes",
                page.id,
                page.bytes.len()
            );
            invariant!(
                page_id(page.bytes) == page.id,
                "page {} says that it is {}",
                page.id,
                page_id(page.bytes)
            );
            stamp_checksum(page.bytes);
        }
        self.refusal = None;
        let written = self.write_stamped(pages);
        self.copies = None;
        written?;
        self.refusal.take().map_or(Ok(()), Err)
    }

    fn register(&mut self, memory: MemoryHandle) {
        self.batch.register(&[memory, self.gather.handle()]);
    }
}

impl FilePageWriter {
    fn write_stamped(&mut self, pages: &[PageImage<'_>]) -> Result<()> {
        let targets = self.targets(pages)?;
        if let Protection::Copies { file, .. } = &self.protection
            && targets.iter().any(|target| self.needs_copy(target))
        {
            self.copies = Some(file.begin()?);
        }
        let targets = self.write_kept(targets)?;
        let mut rest = &targets[..];
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(self.batch_len(rest));
            paranoid!(
                !batch.is_empty(),
                "{} pages are left, and none goes",
                later.len()
            );
            self.write_batch(batch)?;
            rest = later;
        }
        Ok(())
    }
}

/// Cuts some of the targets, which are of one file, into runs of adjacent pages that one write each
/// can do.
fn extents(targets: &[Target<'_>], of_file: Range<usize>, page_size: u32) -> Vec<Range<usize>> {
    let adjacent = |a: &Target<'_>, b: &Target<'_>| {
        let follows = a.image.id.page.0.checked_add(1) == Some(b.image.id.page.0);
        follows && !a.image.again && !b.image.again
    };
    let mut extents = Vec::new();
    let mut at = of_file.start;
    for run in targets[of_file].chunk_by(adjacent) {
        let end = at + run.len();
        while at < end {
            let pages = extent_len(&targets[at], end - at, page_size);
            paranoid!(
                pages > 0 && at + pages <= end,
                "{pages} pages of {} go into one write",
                end - at
            );
            extents.push(at..at + pages);
            at += pages;
        }
    }
    extents
}

/// How many of `run` adjacent pages from `first` on go into one write.
fn extent_len(first: &Target<'_>, run: usize, page_size: u32) -> usize {
    let Some(limits) = first.file.atomic_limits() else {
        return run.min((WRITE_BYTES_MAX / page_size) as usize);
    };
    // Sizes that the hardware does by itself are cheap; beyond them the file system copies.
    let bytes_max = if limits.unit_max_opt >= page_size {
        limits.unit_max_opt.min(limits.unit_max)
    } else {
        limits.unit_max
    };
    let pages_max = run.min((bytes_max.min(WRITE_BYTES_MAX) / page_size) as usize);
    paranoid!(
        pages_max > 0,
        "an untorn write of {bytes_max} bytes takes no page of {page_size}"
    );
    // An untorn write is a power of two long and begins at a multiple of its length.
    let mut pages = 1;
    while pages * 2 <= pages_max && (first.image.id.page.0 as usize).is_multiple_of(pages * 2) {
        pages *= 2;
    }
    pages
}

fn byte_range(pages: &Range<usize>, page_size: u32) -> Range<usize> {
    pages.start * page_size as usize..pages.end * page_size as usize
}
