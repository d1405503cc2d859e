//! What everything that reads or changes pages works with: the pool, the log, counters, and the
//! switch that says that neither is to be trusted any more.

use crate::buffer::BufferPool;
use crate::counters::Counters;
use crate::log::Log;
use crate::poison::Poison;
use crate::unlogged::Unlogged;
use std::sync::Arc;

/// Pages and log of an open database. Clones are the same.
#[derive(Clone)]
pub struct Storage {
    /// The pages.
    pub pool: Arc<BufferPool>,
    /// The log.
    pub log: Arc<Log>,
    /// Counters of the database.
    pub counters: Arc<Counters>,
    /// The engine's one-way switch.
    pub poison: Poison,
    /// Bulk inserts of which the log lacks rows.
    pub unlogged: Arc<Unlogged>,
    /// Bytes in a page.
    pub page_size: usize,
}
