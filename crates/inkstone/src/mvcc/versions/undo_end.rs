//! Giving the free end of the undo file back to the file system while the database is open.
//!
//! Space is handed out first fit, from the low end of the file. So behind a giant transaction the
//! end is free, unless what an older or later one has saved lies there, which is not moved.
//!
//! # Promises
//!
//! 1. No recovery needs what is cut. Cut is what is free, which may be written to by the next
//!    transaction anyway: it was never named in the log, or the log that makes it needless is
//!    durable ([`VersionStore::reclaim`]). A scan from an older checkpoint meets older records that
//!    name it, and reads nothing on their word: lists are read when the whole log was, of
//!    transactions that have no end there, and of each only the last one. Tested by
//!    `what_is_in_use_is_not_cut`, `the_undo_file_is_cut_beside_an_open_transaction`. Tested by the
//!    simulator (`undo-cut-early`).
//! 2. A cut needs no sync. One that a power loss takes back leaves a longer file, of which the next
//!    opening knows nothing to be in use, and which it cuts; what is written behind a cut, and then
//!    named, was synced, and the cut with it. Tested by
//!    `an_undo_file_that_was_left_long_is_cut_at_the_next_opening`.
//! 3. A cut that fails does no harm, and is tried again. Tested by
//!    `a_cut_that_fails_is_tried_again`, `a_cut_that_fails_keeps_nothing_from_going_on`.
//!
//! Nothing is cut where undo was passed over ([`VersionStore::lost_undo`]): that may lie anywhere.

use super::VersionStore;
use crate::counters::Counter;
use crate::mutants::{self, Mutant};
use inkstone_format::Lsn;

/// What stays free behind the last extent in use: at least seven segments and their lists, so that
/// transactions that are large, and no giants, find it there.
pub(super) const SPARE: u64 = if cfg!(inkstone_sim) {
    16 << 10
} else {
    2 << 20
};
/// A cut of less is not worth it: so the file does not grow and shrink by a little all the time.
pub(super) const WORTH: u64 = SPARE;
/// Bytes that one call gives back. The file is latched meanwhile.
const STEP: u64 = if cfg!(inkstone_sim) {
    64 << 10
} else {
    256 << 20
};

/// How much of the free end goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Half of it. The rest goes in the rounds to come, unless another large transaction has taken
    /// it by then: one after the other they find most of the file as it was.
    Half,
    /// Most: the database was just opened, or it was asked for.
    Most,
    /// All: the disk is full.
    All,
}

impl VersionStore {
    /// Gives the free end of the undo file back, if it is worth it. `durable`: how far the log is.
    /// To be called where it may take a moment, and no page is latched. How many bytes went.
    pub(crate) fn cut_undo_file(&self, cut: Cut, durable: Lsn) -> u64 {
        self.reclaim(durable);
        if self.has_lost_undo() {
            return 0;
        }
        let Some(to) = self.undo_file_goal(cut) else {
            return 0;
        };
        let mut bytes = 0;
        loop {
            // Between two steps others take space, which stays.
            let step = self.undo.lock().cut(to, STEP);
            if step == 0 {
                break;
            }
            bytes += step;
        }
        if bytes > 0 {
            self.counters.add(Counter::UndoFileCuts, 1);
            self.counters.add(Counter::UndoFileBytesGivenBack, bytes);
        }
        bytes
    }

    /// How long the file is to be; `None`: as it is.
    fn undo_file_goal(&self, cut: Cut) -> Option<u64> {
        let mut file = self.undo.lock();
        let (length, end) = (file.find_length(), file.end());
        // Early, and all of it: what is cut too soon is seldom missed behind a power loss.
        let early = mutants::on(Mutant::UndoCutEarly);
        if file.take_refused() || cut == Cut::All || early {
            return Some(end);
        }
        let least = end + SPARE;
        let beyond = length.saturating_sub(least);
        let goal = match cut {
            Cut::Half => length.saturating_sub((beyond / 2).max(WORTH)),
            Cut::Most | Cut::All => least,
        };
        (beyond >= WORTH).then_some(goal)
    }
}
