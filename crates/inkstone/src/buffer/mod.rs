//! The seam between the buffer pool and the page store.

use crate::Result;
use inkstone_format::PageId;

/// Where pages live when they are not in memory.
pub trait PageStore: Send + Sync {
    /// Reads a page and checks its checksum and id. The buffer is aligned to 4096 bytes.
    fn read(&self, id: PageId, buffer: &mut [u8]) -> Result<()>;
    /// A writer for one cleaner thread.
    fn writer(&self) -> Result<Box<dyn PageWriter>>;
}

/// Writes batches of pages so that they are durable and never torn when `write` returns.
pub trait PageWriter: Send {
    /// Writes the pages and makes them durable.
    fn write(&mut self, pages: &mut [PageImage<'_>]) -> Result<()>;
}

/// A page on its way to the disk.
pub struct PageImage<'a> {
    /// The page.
    pub id: PageId,
    /// Whether the page was initialised since it was last written.
    pub fresh: bool,
    /// Its bytes, aligned to 4096; the checksum is stamped by the writer.
    pub bytes: &'a mut [u8],
}
