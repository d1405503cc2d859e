//! Log space that is promised to rollbacks.
//!
//! A rollback writes log too. On a disk that stays full only what exists already can take it: the
//! spare segments, and *reserve files*: files of a segment's length, allocated and not written yet,
//! out of which segments are made when nothing else is left. There are no more of both than fit
//! `log_file_size`: where that many exist, a thread that wants more waits for a checkpoint. (To
//! make one of them costs one call; its zeroes are written only if it becomes a segment.)
//!
//! # Promises
//! 1. A holder of promised bytes finds them, whatever others do with the disk: transactions begin
//!    to write only while what exists holds all that is promised, and [`floor`] on top, for what
//!    belongs to no transaction (checkpoints, purge, DDL). Tested by
//!    `a_full_disk_stops_writers_but_not_rollbacks`, `many_rollbacks_at_once_on_a_full_disk`.
//! 2. A promise that the disk cannot keep is refused before anything is logged on its strength.
//!    Tested by `a_full_disk_stops_writers_but_not_rollbacks`.
//! 3. Space that is not promised any more goes back to the file system, half of it each second.
//!    Tested by `reserve_files_come_and_go`.
//!
//! [`floor`]: Segments::floor

use super::Segments;
use crate::paranoid::paranoid;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{Error, Result};
use crossbeam_utils::CachePadded;
use inkstone_io::{Create, ErrorKind};

const PREFIX: &str = "reserve.";

/// The most space that is kept for what belongs to no transaction: checkpoints, a round of purge,
/// DDL.
const FLOOR_MAX: u64 = 4 << 20;
/// Promises are made in units of so many bytes.
pub(crate) const PROMISE_UNIT: u64 = 1 << 10;
/// This part of the log is for what transactions are in the middle of; and this part of what is
/// left of that for each one that comes.
const SHARED_PARTS: u64 = 4;
/// Low bits of [`Promised`]: there are at most 2^24 transactions, and 2^39 units are left, which
/// are more than a file system holds.
const HOLDER_BITS: u32 = 25;
const HOLDERS: u64 = (1 << HOLDER_BITS) - 1;

/// Bytes that are promised, in units, and in the low bits the number of transactions that hold
/// some. In one word, as every transaction that writes changes both.
#[derive(Debug, Default)]
struct Promised(CachePadded<AtomicU64>);

impl Promised {
    fn word(bytes: u64, holders: u64) -> u64 {
        crate::invariant!(
            bytes.is_multiple_of(PROMISE_UNIT),
            "a promise of {bytes} bytes is not in whole units"
        );
        ((bytes / PROMISE_UNIT) << HOLDER_BITS) + holders
    }

    fn add(&self, bytes: u64, holders: u64) {
        let word = Self::word(bytes, holders);
        let before = self.0.fetch_add(word, Ordering::AcqRel);
        paranoid!(
            before.checked_add(word).is_some(),
            "{bytes} more bytes promised than can be counted"
        );
        paranoid!(
            (before & HOLDERS) + holders <= HOLDERS,
            "too many transactions hold a promise"
        );
    }

    fn take_back(&self, bytes: u64, holders: u64) {
        let before = self
            .0
            .fetch_sub(Self::word(bytes, holders), Ordering::AcqRel);
        paranoid!(
            before >> HOLDER_BITS >= bytes / PROMISE_UNIT,
            "{bytes} bytes of a promise taken back, of {} units",
            before >> HOLDER_BITS
        );
        paranoid!(
            before & HOLDERS >= holders,
            "{holders} holders of a promise gone, of {}",
            before & HOLDERS
        );
    }

    fn bytes(&self) -> u64 {
        (self.0.load(Ordering::Acquire) >> HOLDER_BITS) * PROMISE_UNIT
    }

    fn holders(&self) -> u64 {
        self.0.load(Ordering::Acquire) & HOLDERS
    }
}

/// What is promised, and the files that exist for it alone.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    promised: Promised,
    /// Reserve files: `reserve.0` up to this. Changed under `upkeep`, or at open.
    files: AtomicU64,
}

impl Segments {
    /// Bytes that are kept for what belongs to no transaction.
    fn floor(&self) -> u64 {
        self.params.segment_bytes.min(FLOOR_MAX)
    }

    /// Bytes of log that can be written from `reserved` on if the disk gives nothing more.
    fn available(&self, reserved: u64) -> u64 {
        let end = self.end.load(Ordering::Acquire);
        let files = self.reserve.files.load(Ordering::Acquire);
        end.saturating_sub(reserved) + files * self.params.segment_bytes
    }

    /// Whether all promises can be kept.
    pub(in crate::log) fn has_room(&self, reserved: u64) -> bool {
        self.available(reserved) >= self.floor() + self.promised()
    }

    /// Whether a rollback that holds no promise may log one more step of up to `step` bytes: it
    /// takes nothing of what others were promised.
    pub(in crate::log) fn has_room_beside(&self, reserved: u64, step: u64) -> bool {
        self.available(reserved) >= self.floor() / 2 + self.promised() + step
    }

    /// Bytes of log that may be kept, for what is to be paced by it: less while much is promised,
    /// and, on a full disk, what the files hold that there are.
    pub(in crate::log) fn capacity(&self) -> u64 {
        let bound = self.bound.load(Ordering::Relaxed);
        let files = if self.is_short() {
            bound.min(self.total())
        } else {
            bound
        };
        let segment = self.params.segment_bytes;
        // The first and the last segment are in use in part.
        let kept = files.saturating_sub(2) * segment;
        let other = self.floor() + self.promised() + self.params.lag_bytes;
        let least = segment.min(self.params.capacity_bytes / 16);
        let capacity = kept.saturating_sub(other).max(least);
        paranoid!(
            capacity > 0 && capacity <= files.max(2) * segment,
            "{capacity} bytes may be kept in {files} files"
        );
        capacity
    }

    /// Whether a rollback may log one more step of up to `step` bytes, if all other holders of a
    /// promise do the same.
    pub(in crate::log) fn has_room_for_step(&self, reserved: u64, step: u64) -> bool {
        let holders = self.reserve.promised.holders() + 1;
        self.available(reserved) >= self.floor() / 2 + holders * step
    }

    /// Adds whole units to what is promised; the caller checks whether that can be kept.
    pub(in crate::log) fn add_promise(&self, bytes: u64, holders: u64) {
        self.reserve.promised.add(bytes, holders);
    }

    pub(in crate::log) fn take_back(&self, bytes: u64, holders: u64) {
        self.reserve.promised.take_back(bytes, holders);
    }

    pub(in crate::log) fn promised(&self) -> u64 {
        self.reserve.promised.bytes()
    }

    /// What a transaction may be promised for one operation: a part of what is left of the part of
    /// the log that all share, so that the sum of all stays below that.
    pub(in crate::log) fn promise_share(&self) -> u64 {
        let shared = self.params.files_max * self.params.segment_bytes / SHARED_PARTS;
        paranoid!(shared > 0, "a log of no bytes is shared");
        shared.saturating_sub(self.promised()) / SHARED_PARTS
    }

    pub(in crate::log) fn reserve_files(&self) -> u64 {
        self.reserve.files.load(Ordering::Relaxed)
    }

    /// Files, spare segments or of the reserve, that the promises want beyond the segment of
    /// `reserved`: one more than they need, so that no thread waits for a file to be made when that
    /// segment is full, or when more is promised.
    fn wanted(&self, reserved: u64) -> u64 {
        let needed = (self.floor() + self.promised()).div_ceil(self.params.segment_bytes);
        (needed + 1).saturating_sub(self.spares(reserved))
    }

    pub(in crate::log) fn lacks_reserve(&self, reserved: u64) -> bool {
        self.reserve.files.load(Ordering::Acquire) < self.wanted(reserved)
    }

    /// Makes what the promises lack: recycled segments if there are any, else reserve files.
    pub(super) fn fill_reserve(&self, reserved: u64) -> Result<()> {
        while self.lacks_reserve(reserved) && self.may_make() {
            if !self.params.archive && self.recyclable().is_some() {
                self.make_next()?;
            } else {
                self.make_reserve_file()?;
            }
        }
        Ok(())
    }

    /// Gives back half of what is not promised any more.
    pub(super) fn trim_reserve(&self, reserved: u64) -> Result<()> {
        let files = self.reserve.files.load(Ordering::Acquire);
        let surplus = files.saturating_sub(self.wanted(reserved));
        for number in (files - surplus.div_ceil(2)..files).rev() {
            self.reserve.files.store(number, Ordering::Release);
            self.remove(&reserve_name(number))?;
        }
        Ok(())
    }

    /// Whether `trim_reserve` would do something.
    pub(in crate::log) fn has_reserve_surplus(&self, reserved: u64) -> bool {
        self.reserve.files.load(Ordering::Acquire) > self.wanted(reserved)
    }

    fn make_reserve_file(&self) -> Result<()> {
        let number = self.reserve.files.load(Ordering::Acquire);
        let name = reserve_name(number);
        let made = self.allocate_file(&name);
        if made.is_err() {
            // A part of it may be what others need; if this fails, the next open removes it.
            let _ = self.remove(&name);
        }
        made?;
        self.reserve.files.store(number + 1, Ordering::Release);
        Ok(())
    }

    fn allocate_file(&self, name: &str) -> Result<()> {
        let file = self.open_name(name, Create::IfMissing, false)?;
        match file.allocate(0, self.file_bytes()) {
            Ok(()) => Ok(()),
            // Where nothing can be allocated, only what is written is there for certain.
            Err(e) if e.kind() == ErrorKind::Unsupported => self.write_zeroes(&*file, 0),
            Err(e) => Err(Error::io("allocate", file.path(), e)),
        }
    }

    /// Takes a reserve file, to make a segment of it. Under `upkeep`, or at open.
    pub(super) fn take_reserve_file(&self) -> Option<String> {
        let number = self.reserve.files.load(Ordering::Acquire).checked_sub(1)?;
        self.reserve.files.store(number, Ordering::Release);
        Some(reserve_name(number))
    }

    /// Takes over the reserve files that an earlier run left: what recovery rolls back may need
    /// them. Those that are not whole, or have a gap before them, are removed.
    pub(super) fn adopt_reserve(&self, names: &[String]) -> Result<()> {
        let mut numbers: Vec<u64> = names.iter().filter_map(|n| parse(n)).collect();
        numbers.sort_unstable();
        for number in numbers {
            let name = reserve_name(number);
            let file = self.open_name(&name, Create::Never, false)?;
            let len = file.len().map_err(|e| Error::io("size", file.path(), e))?;
            drop(file);
            if number == self.reserve_files() && len == self.file_bytes() {
                self.reserve.files.store(number + 1, Ordering::Release);
            } else {
                self.remove(&name)?;
            }
        }
        Ok(())
    }
}

fn reserve_name(number: u64) -> String {
    format!("{PREFIX}{number}")
}

fn parse(name: &str) -> Option<u64> {
    let number = name.strip_prefix(PREFIX)?.parse().ok()?;
    (name == reserve_name(number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises of half a tebibyte were taken for none.
    #[test]
    fn promises_of_terabytes_add_up() {
        let promised = Promised::default();
        let tebibyte = 1 << 40;
        for _ in 0..40 {
            promised.add(tebibyte, 1);
        }
        assert_eq!((promised.bytes(), promised.holders()), (40 * tebibyte, 40));
        promised.take_back(tebibyte + PROMISE_UNIT, 1);
        promised.add(PROMISE_UNIT, 0);
        assert_eq!((promised.bytes(), promised.holders()), (39 * tebibyte, 39));
    }
}
