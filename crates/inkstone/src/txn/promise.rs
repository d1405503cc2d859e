//! How much log a transaction's rollback may need, and that so much is promised to it.
//!
//! Each change adds a bound of the log that undoing it takes:
//! - its compensation record, in a frame of its own ([`COMPENSATION_BYTES`] and the bytes that are
//!   put back);
//! - [`SPLIT_SHARE`] times the bytes by which a row shrank: to put them back where others have
//!   filled the leaf meanwhile, the leaf is split, which logs about as much as the half that moves.
//!
//! Before a transaction begins an operation it holds a promise for all this, and for one more
//! operation, done and undone. (One whose undo has moved needs only the latter: what it has written
//! does not keep the log, so that checkpoints give its rollback room.) So a disk that is full, and
//! stays so, is noticed by a transaction that wants to write more, and every transaction can roll
//! back.
//!
//! The share for splits is an amortised bound: rows of one transaction that shrank by little each,
//! on very many leaves, every one of which others have filled to the last byte, may need more. Then
//! the rollback stops with [`Error::DiskFull`] before it logs what the log cannot take, and purge
//! goes on with it when there is space (`Log::prepare_rollback_step`); until then its rows stay
//! locked. Merging emptied leaves is left out while space is short.

use crate::log::PROMISE_UNIT;
use crate::paranoid::{Check, paranoid};
use crate::txn::core::Core;
use crate::{Error, Result};

/// The most that a compensation record takes without the bytes that it puts back, its frame
/// included.
pub(crate) const COMPENSATION_BYTES: u64 = 56;
/// Bytes of log for each byte by which a row must grow again.
const SPLIT_SHARE: u64 = 4;
/// The log of one operation, in pages: what a statement may log, and undo, between two looks at its
/// promise. A long value is written eight pages at a time, or as many as were promised; a split
/// goes up to the root.
const OPERATION_PAGES: u64 = 16;
/// The least that it is taken for: a row and what comes with it.
const OPERATION_BYTES_MIN: u64 = 4 << 10;
/// The log of one step of a rollback, in pages: a split, up to the root.
const STEP_PAGES: u64 = 5;
/// What is asked for beyond the need, so that small changes ask seldom.
const AHEAD_BYTES: u64 = 64 << 10;

/// The bound for a change that puts back `bytes`, and by which a row shrank by `shrank`.
pub(crate) fn undo_log_bytes(bytes: usize, shrank: usize) -> u64 {
    // Bytes may be packed into tokens that take a little more than they save.
    let bytes = (bytes + bytes / 16) as u64;
    COMPENSATION_BYTES + bytes + SPLIT_SHARE * shrank as u64
}

/// One transaction's part.
#[derive(Debug, Default)]
pub(crate) struct LogPromise {
    /// What its rollback may need.
    need: u64,
    /// What it was promised, in whole units.
    promised: u64,
    /// Its undo has moved: no log is kept for it, so a checkpoint gives back what its rollback
    /// takes, as it goes on.
    is_moved: bool,
}

impl Check for LogPromise {
    fn check(&self) {
        paranoid!(
            self.promised.is_multiple_of(PROMISE_UNIT),
            "{} bytes of log promised, no whole units",
            self.promised
        );
    }
}

impl LogPromise {
    /// What rolling back may need now.
    pub fn need(&self) -> u64 {
        self.need
    }

    /// A change was made.
    pub fn add(&mut self, bytes: u64) {
        paranoid!(bytes > 0, "a change that takes no log to undo");
        if !self.is_moved {
            self.need += bytes;
        }
    }

    /// The transaction's undo has moved to the undo file, where it has its space.
    pub fn undo_moved(&mut self, core: &Core) {
        paranoid!(!self.is_moved, "undo moves that has moved");
        self.is_moved = true;
        self.undone_to(core, 0);
    }

    /// Before an operation, with no page latched: makes sure that it can be undone as well.
    pub fn cover_operation(&mut self, core: &Core) -> Result<()> {
        let wanted = self.need + operation_bytes(core);
        if wanted <= self.promised {
            return Ok(());
        }
        self.raise(core, wanted)
    }

    /// Whether that is sure already.
    #[inline]
    pub fn covers_operation(&self, core: &Core) -> bool {
        self.need + operation_bytes_max(core) <= self.promised
            || self.need + operation_bytes(core) <= self.promised
    }

    /// How many pages an operation may log, up to `most`: what it is promised, so that operations
    /// at the same time log no more than there is. One, at least: the floor has room for that.
    pub fn pages_at_once(&self, core: &Core, most: usize) -> usize {
        paranoid!(
            self.promised > self.need,
            "an operation goes on that was promised no log: {self:?}"
        );
        let pages = self.promised.saturating_sub(self.need) / core.storage.page_size as u64;
        (pages as usize).clamp(1, most)
    }

    #[cold]
    fn raise(&mut self, core: &Core, wanted: u64) -> Result<()> {
        paranoid!(
            wanted > self.promised,
            "{wanted} bytes wanted, {} promised",
            self.promised
        );
        let (log, first) = (&core.storage.log, self.promised == 0);
        let least = (wanted - self.promised).next_multiple_of(PROMISE_UNIT);
        let ahead = operation_bytes(core).min(AHEAD_BYTES);
        let more = (least + ahead + self.need / 4).next_multiple_of(PROMISE_UNIT);
        let got = match log.promise(more, first) {
            Ok(()) => more,
            Err(Error::DiskFull { .. }) => {
                log.promise(least, first)?;
                least
            }
            Err(error) => return Err(error),
        };
        self.promised += got;
        paranoid!(
            self.promised >= wanted,
            "{} bytes promised of {wanted}",
            self.promised
        );
        Ok(())
    }

    /// For a transaction that recovery found.
    pub fn cover_recovered(&mut self, core: &Core, need: u64) {
        paranoid!(
            self.promised == 0,
            "{} bytes were promised before recovery did",
            self.promised
        );
        self.need = need;
        // Of an earlier build it may be larger than what others are to find room in.
        let most = core.storage.log.capacity_bytes() / 4;
        let promised = (need + operation_bytes(core)).min(most);
        self.promised = promised.next_multiple_of(PROMISE_UNIT);
        core.storage.log.promise_regardless(self.promised, true);
    }

    /// Changes were undone, up to a place where the need was `need`.
    pub fn undone_to(&mut self, core: &Core, need: u64) {
        let need = if self.is_moved { 0 } else { need };
        self.need = need;
        let kept = need + operation_bytes(core) + AHEAD_BYTES;
        let kept = kept.next_multiple_of(PROMISE_UNIT);
        if let Some(surplus) = self.promised.checked_sub(kept) {
            core.storage.log.take_back_promise(surplus, false);
            self.promised = kept;
        }
    }

    /// The transaction is over.
    pub fn end(&mut self, core: &Core) {
        if self.promised > 0 {
            core.storage.log.take_back_promise(self.promised, true);
        }
        *self = Self::default();
    }
}

/// What a transaction is promised for one operation: less where many transactions share a log that
/// is small for them, of which few are in the middle of a large one at the same time.
#[inline]
fn operation_bytes(core: &Core) -> u64 {
    let share = core.storage.log.promise_share().max(OPERATION_BYTES_MIN);
    operation_bytes_max(core).min(share)
}

#[inline]
fn operation_bytes_max(core: &Core) -> u64 {
    OPERATION_PAGES * core.storage.page_size as u64
}

/// The bound of one step of a rollback.
pub(crate) fn rollback_step_bytes(core: &Core) -> u64 {
    STEP_PAGES * core.storage.page_size as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use inkstone_format::frame::FRAME_HEADER_MAX;
    use inkstone_format::record::{Diff, Record, Undo};
    use inkstone_format::{PageId, PageNo, SpaceId};

    fn logged(undo: Undo) -> u64 {
        let mut payload = Vec::new();
        Record::RowUndo {
            page: PageId::new(SpaceId(u32::MAX), PageNo(u32::MAX)),
            trx_slot: u32::MAX,
            slot: u16::MAX,
            undo,
        }
        .put(&mut payload);
        (FRAME_HEADER_MAX + payload.len()) as u64
    }

    #[test]
    fn the_bound_holds() {
        for undo in [Undo::Insert, Undo::Mark, Undo::Revive] {
            assert!(logged(undo) <= undo_log_bytes(0, 0));
        }
        // Literals, runs and both in turn, the shortest ones that are worth a token.
        let patterns: [&[u8]; 4] = [&[0], &[1, 2, 3], &[7, 7, 7, 7, 1], &[9, 9, 9, 1, 2]];
        for pattern in patterns {
            for len in [1, 63, 64, 1000, 16_000, 64_000] {
                let value: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
                let other: Vec<u8> = value.iter().map(|b| b ^ 0x55).collect();
                let restore = Undo::Restore {
                    flags: 0xff,
                    value: value.clone(),
                };
                assert!(logged(restore) <= undo_log_bytes(len, 0), "{len}");
                let diff = Diff::between(&value, &other);
                let update = Undo::Update { flags: 0xff, diff };
                assert!(logged(update) <= undo_log_bytes(2 * len, 0), "{len}");
            }
        }
    }
}
