//! A tablespace's file, copied page by page while its pages are written.
//!
//! A page is read where it lies, past the pool. What is found there is one version of it, as each
//! page has its checksum and no other may be older than the map of page LSNs, or of places, says;
//! if it is not, a write is under way, and the page is read again. The copy's pages are written as
//! a new database's are: placed ones to units of their own, by a map of their own.
//!
//! A file may be cut meanwhile, where the copy's recovery needs nothing of what goes: what is
//! behind the end then is copied as pages that were never written.

use super::space_file::SpaceFile;
use super::space_files::SpaceFiles;
use crate::paranoid::paranoid;
use crate::sync::thread;
use crate::{Error, Result};
use inkstone_format::header::{check_page, page_lsn};
use inkstone_format::{Corrupt, PageId, PageNo};
use inkstone_io::AlignedBuffer;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that are read and written at once, at most.
const STEP_BYTES: usize = 1 << 20;
/// How often a page is read that is no version of itself, and how long it is left alone before.
const READS_MAX: u32 = 200;
const READ_PAUSE: Duration = Duration::from_millis(5);

/// A file and its copy, under way.
pub(crate) struct SpaceCopy<'s> {
    spaces: &'s SpaceFiles,
    source: Arc<SpaceFile>,
    copy: Arc<SpaceFile>,
    page_size: usize,
    next: u32,
    /// Pages when the copy was begun: later ones are in the log, from their initialisation on.
    pages: u32,
    buffer: AlignedBuffer,
}

impl<'s> SpaceCopy<'s> {
    /// Begins a copy of `source`, one of the files of `spaces`, among the files of another
    /// database.
    pub fn begin(
        spaces: &'s SpaceFiles,
        source: Arc<SpaceFile>,
        copies: &SpaceFiles,
    ) -> Result<Self> {
        paranoid!(
            spaces.page_size() == copies.page_size(),
            "pages of {} bytes are copied as pages of {}",
            spaces.page_size(),
            copies.page_size()
        );
        let pages = source.pages();
        // The images of placed pages find room as they come: promises would take what they have
        // without compression.
        let initial = if source.is_placed() { 1 } else { pages };
        let copy = copies.create(source.space(), initial, source.placement())?;
        copy.reach_pages(pages)?;
        let page_size = spaces.page_size() as usize;
        Ok(Self {
            spaces,
            source,
            copy,
            page_size,
            next: 0,
            pages,
            buffer: AlignedBuffer::zeroed(STEP_BYTES.max(page_size)),
        })
    }

    /// Copies some pages. How many bytes of pages that was; 0: all are copied.
    pub fn step(&mut self) -> Result<u64> {
        let pages = (self.buffer.len() / self.page_size) as u32;
        let pages = pages.min(self.pages - self.next);
        let bytes = pages as usize * self.page_size;
        if pages == 0 {
            return Ok(0);
        }
        let first = self.next;
        if self.source.is_placed() {
            self.copy_placed(first, pages)?;
        } else {
            self.read_in_place(first, bytes)?;
            for n in 0..pages {
                self.check(first + n, n as usize)?;
            }
            self.write_in_place(first, bytes)?;
        }
        self.next += pages;
        Ok(bytes as u64)
    }

    /// Makes the copy durable.
    pub fn finish(self) -> Result<()> {
        paranoid!(
            self.next == self.pages,
            "a copy of {} pages ends with page {}",
            self.pages,
            self.next
        );
        self.copy.sync()
    }

    fn read_in_place(&mut self, first: u32, bytes: usize) -> Result<()> {
        let offset = self.source.offset(PageNo(first));
        let in_use = self.source.acquire()?;
        let read = in_use.bytes().read_at(&mut self.buffer[..bytes], offset);
        drop(in_use);
        let end = first as usize + bytes / self.page_size;
        match read {
            Ok(()) => Ok(()),
            // It was cut: page by page, as far as they are there.
            Err(_) if end > self.source.pages() as usize => {
                let pages = self.buffer[..bytes].chunks_exact_mut(self.page_size);
                let mut pages = (first..).zip(pages);
                pages.try_for_each(|(page, buffer)| read_one(&self.source, page, buffer))
            }
            Err(e) => {
                let action = format!("read pages from {first} on of");
                Err(Error::io(action, self.source.path(), e))
            }
        }
    }

    fn write_in_place(&mut self, first: u32, bytes: usize) -> Result<()> {
        let pages = &self.buffer[..bytes];
        if is_zero(pages) {
            return Ok(());
        }
        let in_use = self.copy.acquire()?;
        let offset = self.copy.offset(PageNo(first));
        let written = in_use.begin_write().write_at(pages, offset);
        written.map_err(|e| {
            Error::io(
                format!("write pages from {first} on to"),
                self.copy.path(),
                e,
            )
        })
    }

    fn copy_placed(&mut self, first: u32, pages: u32) -> Result<()> {
        for page in first..first + pages {
            self.source
                .read_unchecked(PageNo(page), &mut self.buffer[..self.page_size])?;
            self.check(page, 0)?;
            let bytes = &self.buffer[..self.page_size];
            if !is_zero(bytes) {
                self.copy.write_raw_page(PageNo(page), bytes)?;
            }
        }
        Ok(())
    }

    /// Sees that the page at place `n` of the buffer is whole and not stale; if it is not, reads it
    /// again.
    fn check(&mut self, page: u32, n: usize) -> Result<()> {
        let range = n * self.page_size..(n + 1) * self.page_size;
        for _ in 1..READS_MAX {
            if self.judge(page, range.clone()).is_ok() {
                return Ok(());
            }
            thread::sleep(READ_PAUSE);
            let bytes = &mut self.buffer[range.clone()];
            read_one(&self.source, page, bytes)?;
        }
        self.judge(page, range)
    }

    fn judge(&self, page: u32, range: std::ops::Range<usize>) -> Result<()> {
        let (id, bytes) = (
            PageId::new(self.source.space(), PageNo(page)),
            &self.buffer[range],
        );
        let corrupt = |c| Error::corrupt_page(self.source.path(), id, c);
        // One that is allocated and not written yet, or none.
        if is_zero(bytes) {
            return Ok(());
        }
        check_page(bytes, id).map_err(corrupt)?;
        if self.source.is_placed() {
            // Its map has said so.
            return Ok(());
        }
        let found = page_lsn(bytes);
        match self.spaces.page_lsns().newer_than(id, found) {
            None => Ok(()),
            Some(newest) => {
                let detail = format!(
                    "page LSN {found} is stale: the page was written with LSN {newest}; verify the \
                     database, and restore the file from a backup"
                );
                Err(corrupt(Corrupt::at(16, detail)))
            }
        }
    }
}

/// Reads a page as it is; zeroes where the file was cut.
fn read_one(source: &SpaceFile, page: u32, buffer: &mut [u8]) -> Result<()> {
    match source.read_unchecked(PageNo(page), buffer) {
        Err(_) if page >= source.pages() => {
            buffer.fill(0);
            Ok(())
        }
        read => read,
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<16>();
    chunks.iter().all(|chunk| *chunk == [0; 16]) && rest.iter().all(|byte| *byte == 0)
}
