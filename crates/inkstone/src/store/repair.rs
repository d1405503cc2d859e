//! Repairing torn pages from the doublewrite file, before anything else reads pages.
//!
//! # Why a copy may be used, and when it may not
//!
//! A page is torn only if power failed while it was being written in place. If it was not fresh,
//! its copy was durable before, and the area was not written again. So a page that is bad in place
//! has its copy in the doublewrite file, unless it is fresh (then the log rebuilds it).
//!
//! The reverse does not hold: a page may be bad for another reason (a decayed sector), and the
//! copy found may be of an older write of it. Putting that copy in place is right as long as
//! the log still has every change since, that is if the copy's page LSN is above the checkpoint
//! LSN. The copy of an interrupted write always is: the page was dirty, and no checkpoint passes
//! a dirty page's first change. A copy at or below the checkpoint LSN would silently take the page
//! back in time; it is never used. Such a page was fresh, and the log rebuilds it, or the storage
//! damaged it, and reading it will be an error.
//!
//! A page that is whole in place is left alone, even if its copy is newer: the log has the change.
//! Unless it is an older version than recovery needs, as the [page LSN map](super::PageLsnMap)
//! knows. Then the copy is put in place if it is new enough, by the same measure.
//!
//! A copy stands for itself (its checksum is in the batch header and in the page), so in
//! a batch torn while the copies were written those that are whole are whole copies.
//!
//! What a read gives once is no proof of what is there. A copy, or the header of a batch, that is
//! not whole is read again, several times, before it counts as torn; so is a header that does not
//! fit its copies, or is none, and a page that is older than its copy; and a copy is checked when
//! it is read to be put in place. A torn page whose only copy was misread would be lost: what the
//! log has of it begins at the checkpoint.
//!
//! Every step can be interrupted and repeated: the copies stay until a writer exists, and writers
//! come after repair. Files in which nothing was repaired are not synced: what a killed process
//! left is durable before this runs (`database/opening/settled.rs`).

use super::doublewrite::{DOUBLEWRITE_FILE, read_batch, read_layout};
use super::space_file::SpaceFile;
use super::space_files::SpaceFiles;
use crate::mutants::{self, Mutant};
use crate::paranoid::paranoid;
use crate::{Error, Result};
use inkstone_format::doublewrite::{BatchHeader, Layout, image_crc};
use inkstone_format::header::{check_page, page_lsn};
use inkstone_format::{Lsn, PageId};
use inkstone_io::{AlignedBuffer, Directory, ErrorKind, File};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Times that what is not whole is read, before it counts as torn.
const READS_MAX: usize = 8;

/// What repair found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Batches with a whole header.
    pub batches: u64,
    /// Areas whose header is torn or damaged.
    pub torn_batches: u64,
    /// Copies that are torn or damaged.
    pub torn_copies: u64,
    /// Pages whose bytes in place were checked, because there is a copy.
    pub pages_examined: u64,
    /// Pages that were put in place from their copies: torn ones, and older versions.
    pub repaired: Vec<PageId>,
    /// Pages that are bad in place, and whose copy is older than the checkpoint: unless the log
    /// initialises them, the storage has damaged them.
    pub stale: Vec<PageId>,
    /// Copies whose tablespace has no file (it was dropped).
    pub without_file: u64,
}

/// The best copy of a page.
struct Copy {
    lsn: Lsn,
    sequence: u64,
    /// Offset in the doublewrite file.
    offset: u64,
    /// The checksum of its bytes.
    crc: u32,
}

/// Puts whole copies in place of torn pages, and makes all pages with copies durable.
/// `checkpoint` is the LSN from which recovery will apply the log.
///
/// To be called whatever the option `doublewrite` says: it may have been on before the crash.
pub fn repair(
    directory: &dyn Directory,
    spaces: &SpaceFiles,
    uuid: [u8; 16],
    checkpoint: Lsn,
) -> Result<RepairReport> {
    let mut report = RepairReport::default();
    let path = directory.path_of(DOUBLEWRITE_FILE);
    let exists = directory.exists(DOUBLEWRITE_FILE);
    if !exists.map_err(|e| Error::io("look for", &path, e))? {
        return Ok(report);
    }
    let file = inkstone_io::open_past_cache(directory, DOUBLEWRITE_FILE);
    let file = file.map_err(|e| Error::io("open", &path, e))?;
    let layout = read_layout(&*file, &path, uuid, spaces.page_size())?;
    let mut repair = Repair {
        copies: Copies { file, path, layout },
        spaces,
        checkpoint,
        image: AlignedBuffer::zeroed(layout.page_size as usize),
        in_place: AlignedBuffer::zeroed(layout.page_size as usize),
        report: &mut report,
    };
    repair.run()?;
    Ok(report)
}

struct Copies {
    file: Arc<dyn File>,
    path: PathBuf,
    layout: Layout,
}

impl Copies {
    fn read(&self, offset: u64, image: &mut [u8]) -> Result<()> {
        self.file
            .read_at(image, offset)
            .map_err(|e| Error::io("read a page copy from", &self.path, e))
    }
}

struct Repair<'a> {
    copies: Copies,
    spaces: &'a SpaceFiles,
    checkpoint: Lsn,
    image: AlignedBuffer,
    in_place: AlignedBuffer,
    report: &'a mut RepairReport,
}

impl Repair<'_> {
    fn run(&mut self) -> Result<()> {
        let copies = self.collect()?;
        let copies: Vec<_> = copies.into_iter().collect();
        for of_space in copies.chunk_by(|a, b| a.0.space == b.0.space) {
            let Some(file) = self.spaces.find(of_space[0].0.space)? else {
                self.report.without_file += of_space.len() as u64;
                continue;
            };
            let before = self.report.repaired.len();
            for (id, copy) in of_space {
                self.examine(&file, *id, copy)?;
            }
            paranoid!(
                self.report.repaired.len() - before <= of_space.len(),
                "{} pages were repaired of {}",
                self.report.repaired.len() - before,
                of_space.len()
            );
            if self.report.repaired.len() > before {
                file.sync()?;
            }
        }
        let report = &self.report;
        paranoid!(
            (report.repaired.len() + report.stale.len()) as u64 <= report.pages_examined,
            "{} pages were repaired and {} are stale, of {}",
            report.repaired.len(),
            report.stale.len(),
            report.pages_examined
        );
        Ok(())
    }

    /// The newest whole copy of each page.
    fn collect(&mut self) -> Result<BTreeMap<PageId, Copy>> {
        let mut best = BTreeMap::new();
        for area in 0..self.copies.layout.areas {
            let Copies { file, path, layout } = &self.copies;
            let mut batch = read_batch(&**file, path, layout, area)?;
            for _ in 1..READS_MAX {
                if !matches!(batch, Ok(Some(_))) {
                    batch = read_batch(&**file, path, layout, area)?;
                }
            }
            match batch {
                Ok(None) => {}
                Ok(Some(batch)) => {
                    self.report.batches += 1;
                    let mut torn = self.collect_batch(area, &batch, &mut best)?;
                    if torn > 0
                        && let Some(newer) = self.newer_batch(area, &batch)?
                    {
                        torn = self.collect_batch(area, &newer, &mut best)?;
                    }
                    self.report.torn_copies += torn;
                }
                Err(_) => self.report.torn_batches += 1,
            }
        }
        Ok(best)
    }

    /// What the header of a batch is, if it was read as it had been before: then it does not fit
    /// the copies behind it.
    fn newer_batch(&self, area: u32, found: &BatchHeader) -> Result<Option<BatchHeader>> {
        let Copies { file, path, layout } = &self.copies;
        for _ in 1..READS_MAX {
            let again = read_batch(&**file, path, layout, area)?.ok().flatten();
            if let Some(newer) = again.filter(|again| again.sequence > found.sequence) {
                return Ok(Some(newer));
            }
        }
        Ok(None)
    }

    /// Whether the copy of a page is whole, which is in `image` then.
    fn read_copy(&mut self, offset: u64, id: PageId, crc: u32) -> Result<bool> {
        paranoid!(
            offset > 0 && offset < self.copies.layout.file_len(),
            "the copy of page {id} at {offset}, of {}",
            self.copies.layout.file_len()
        );
        for _ in 0..READS_MAX {
            self.copies.read(offset, &mut self.image)?;
            if image_crc(&self.image) == crc && check_page(&self.image, id).is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes notice of the copies of a batch; how many are torn or damaged.
    fn collect_batch(
        &mut self,
        area: u32,
        batch: &BatchHeader,
        best: &mut BTreeMap<PageId, Copy>,
    ) -> Result<u64> {
        let mut torn = 0;
        for (n, entry) in batch.entries.iter().enumerate() {
            let offset = self.copies.layout.image_offset(area, n as u32);
            let is_whole = self.read_copy(offset, entry.id, entry.crc)?;
            let copy = Copy {
                lsn: page_lsn(&self.image),
                sequence: batch.sequence,
                offset,
                crc: entry.crc,
            };
            if !is_whole {
                torn += 1;
                continue;
            }
            let newer = |old: &Copy| (copy.lsn, copy.sequence) > (old.lsn, old.sequence);
            if best.get(&entry.id).is_none_or(newer) {
                best.insert(entry.id, copy);
            }
        }
        paranoid!(
            torn <= batch.entries.len() as u64,
            "{torn} copies are torn of {}",
            batch.entries.len()
        );
        Ok(torn)
    }

    /// Whether the whole page in place is an older version than recovery needs, and the copy is
    /// not.
    fn is_newer_than_stale(&self, id: PageId, copy: &Copy) -> bool {
        let found = page_lsn(&self.in_place);
        let newest = self.spaces.page_lsns().newer_than(id, found);
        newest.is_some_and(|newest| newest <= copy.lsn)
    }

    /// Whether the page in place is whole, which is in `in_place` then. One that is older than its
    /// copy may be torn, and have been read as it was before: it is read again.
    fn is_whole(&mut self, file: &SpaceFile, id: PageId, copy: &Copy) -> Result<bool> {
        if id.page.0 >= file.pages() {
            return Ok(false);
        }
        let offset = file.offset(id.page);
        for _ in 0..READS_MAX {
            match file.acquire()?.bytes().read_at(&mut self.in_place, offset) {
                Ok(()) if check_page(&self.in_place, id).is_err() => return Ok(false),
                Ok(()) if page_lsn(&self.in_place) >= copy.lsn => return Ok(true),
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(false),
                // What cannot be read is no better than torn, if there is a copy to be used.
                Err(_) if copy.lsn > self.checkpoint => return Ok(false),
                Err(e) => return Err(Error::io(format!("read page {id} of"), file.path(), e)),
            }
        }
        Ok(true)
    }

    /// Checks a page in place and repairs it if it is bad.
    fn examine(&mut self, file: &SpaceFile, id: PageId, copy: &Copy) -> Result<()> {
        self.report.pages_examined += 1;
        let whole = self.is_whole(file, id, copy)?;
        if mutants::on(Mutant::TornPageKept) {
            return Ok(());
        }
        let usable = if whole {
            self.is_newer_than_stale(id, copy)
        } else {
            copy.lsn > self.checkpoint
        };
        if !usable {
            // Behind the end of the file it is the copy of a page that was given back.
            if !whole && id.page.0 < file.pages() {
                self.report.stale.push(id);
            }
            return Ok(());
        }
        paranoid!(
            !whole || copy.lsn > page_lsn(&self.in_place),
            "page {id} of LSN {} is taken back to LSN {}",
            page_lsn(&self.in_place),
            copy.lsn
        );
        // It was whole, and need not be what is read now.
        if !self.read_copy(copy.offset, id, copy.crc)? {
            let detail = format!("the copy of page {id} was whole, and cannot be read again");
            let path = &self.copies.path;
            return Err(Error::corrupt_file(path, copy.offset, detail));
        }
        file.ensure_pages(id.page.0.saturating_add(1))?;
        paranoid!(
            id.page.0 < file.pages() && file.space() == id.space,
            "page {id} is put into tablespace {} of {} pages",
            file.space(),
            file.pages()
        );
        file.write_raw_page(id.page, &self.image)?;
        self.report.repaired.push(id);
        Ok(())
    }
}
