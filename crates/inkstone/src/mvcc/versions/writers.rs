//! The transactions that wrote to a segment. As long as its versions are in memory, so are these;
//! in the spill file those that had ended by then stand behind the versions, a record each:
//!
//! ```text
//! bytes  0..8   the transaction's id
//!        8..16  its commit number; all ones: rolled back; 0: not ended, it is kept in memory
//!       16..20  CRC-32C of the bytes before, and of the segment's number and the place in the table
//!       20..24  0
//! ```

use crate::mvcc::system::{TrxState, TrxStatus};
use crate::paranoid::{MANY, paranoid};
use inkstone_format::{Corrupt, TrxId};
use std::sync::Arc;

/// Bytes of a writer in the spill file.
pub(super) const RECORD_BYTES: usize = 24;
/// Memory that one writer is reckoned at: the list's entry and its shared state.
pub(super) const WRITER_BYTES: u64 = 144;

const NOT_ENDED: u64 = 0;
const ROLLED_BACK: u64 = u64::MAX;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Writers {
    /// By their index in the segment, ascending; all, until those that had ended are forgotten.
    known: Vec<(u32, Arc<TrxState>)>,
}

impl Writers {
    /// Enters one. Its index.
    pub fn add(&mut self, trx: &Arc<TrxState>) -> u32 {
        let index = self.known.len() as u32;
        let is_it = |(_, known): &(u32, Arc<TrxState>)| Arc::ptr_eq(known, trx);
        paranoid!(
            !self.known.iter().rev().take(MANY).any(is_it),
            "{:?} entered a segment twice",
            trx.id()
        );
        paranoid!(
            self.known.last().is_none_or(|(last, _)| last + 1 == index),
            "writer {index} enters a segment that has forgotten some"
        );
        self.known.push((index, trx.clone()));
        index
    }

    /// A writer, if it is in memory.
    pub fn get(&self, index: u32) -> Option<&Arc<TrxState>> {
        // Until some are forgotten it stands at its index.
        let place = match self.known.get(index as usize) {
            Some((at, _)) if *at == index => index as usize,
            _ => self
                .known
                .binary_search_by_key(&index, |(at, _)| *at)
                .ok()?,
        };
        self.known.get(place).map(|(_, trx)| trx)
    }

    /// Memory that it is reckoned at.
    pub fn memory(&self) -> u64 {
        self.known.len() as u64 * WRITER_BYTES
    }

    /// All of them, for the spill file.
    pub fn table(&self, segment: u64) -> Vec<u8> {
        let mut table = Vec::with_capacity(self.known.len() * RECORD_BYTES);
        for (index, trx) in &self.known {
            let end = match trx.status() {
                TrxStatus::Committed(number) => number,
                TrxStatus::Aborted => ROLLED_BACK,
                _ => NOT_ENDED,
            };
            let begin = table.len();
            table.extend_from_slice(&trx.id().0.to_le_bytes());
            table.extend_from_slice(&end.to_le_bytes());
            let checksum = checksum(&table[begin..], segment, *index);
            table.extend_from_slice(&checksum.to_le_bytes());
            table.resize(begin + RECORD_BYTES, 0);
        }
        table
    }

    /// Forgets those of which a table has the end.
    pub fn forget(&mut self, table: &[u8]) {
        paranoid!(
            table.len() == self.known.len() * RECORD_BYTES,
            "a table of {} bytes for {} writers",
            table.len(),
            self.known.len()
        );
        let mut records = table.chunks(RECORD_BYTES);
        self.known
            .retain(|_| records.next().is_none_or(|record| end(record) == NOT_ENDED));
        self.known.shrink_to_fit();
    }
}

fn number(record: &[u8], at: usize) -> u64 {
    let bytes = record.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn end(record: &[u8]) -> u64 {
    number(record, 8)
}

fn checksum(ids: &[u8], segment: u64, index: u32) -> u32 {
    let ids = crc32c::crc32c(ids);
    let place = crc32c::crc32c_append(ids, &segment.to_le_bytes());
    crc32c::crc32c_append(place, &index.to_le_bytes())
}

/// What a record says of a transaction that has ended.
pub(super) fn ended(record: &[u8], segment: u64, index: u32) -> Result<Arc<TrxState>, Corrupt> {
    let wrong =
        |what: &str| Corrupt::at(0, format!("{what} of writer {index} of segment {segment}"));
    let whole = record
        .get(..RECORD_BYTES)
        .ok_or_else(|| wrong("no record"))?;
    let stored: Option<&[u8; 4]> = whole[16..].first_chunk();
    let is_right = stored.is_some_and(|stored| {
        u32::from_le_bytes(*stored) == checksum(&whole[..16], segment, index)
    });
    if !is_right {
        return Err(wrong("the checksum does not match the record"));
    }
    let status = match end(whole) {
        NOT_ENDED => return Err(wrong("no end is known")),
        ROLLED_BACK => TrxStatus::Aborted,
        number => TrxStatus::Committed(number),
    };
    Ok(TrxState::ended(TrxId(number(whole, 0)), status))
}
