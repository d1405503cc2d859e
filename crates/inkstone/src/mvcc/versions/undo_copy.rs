//! The undo file, while it is copied.
//!
//! A copy of the database goes by the log up to an LSN, its end, and needs what that names in the
//! undo file. So from before the end until the file is copied, nothing is written to an extent that
//! the log may have named at the hold's LSN or later ([`UndoHold`]): it is not given back, nor used
//! for another list. What is written meanwhile goes elsewhere in the file.
//!
//! # Promises
//!
//! 1. What the log names at an LSN at or behind the hold's is in the file, as it was, until the
//!    hold ends. Tested by `a_held_undo_file_keeps_what_the_log_names`.

use super::VersionStore;
use crate::paranoid::paranoid;
use inkstone_format::Lsn;

/// See the module. Ends when it is dropped.
pub(crate) struct UndoHold<'v>(&'v VersionStore);

impl VersionStore {
    /// Holds the undo file for a copy that goes by the log up to `durable` or a later LSN. One at a
    /// time: the caller sees to it.
    pub(crate) fn hold_undo(&self, durable: Lsn) -> UndoHold<'_> {
        let before = self.saving.hold(Some(durable));
        paranoid!(
            before.is_none(),
            "the undo file is held at LSN {before:?}, and at {durable}"
        );
        UndoHold(self)
    }
}

impl Drop for UndoHold<'_> {
    fn drop(&mut self) {
        let before = self.0.saving.hold(None);
        paranoid!(
            before.is_some(),
            "a hold of the undo file ended before its end"
        );
    }
}
