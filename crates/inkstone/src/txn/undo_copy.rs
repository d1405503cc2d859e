//! Copying a long transaction's undo forward, so that the log before need not be kept.
//!
//! Log is let go of at its old end only. So a copy says everything again that would undo the
//! transaction, also what an earlier copy said; from then on the log is kept from the copy's first
//! part on. What copies take stays in proportion, however long the transaction gets:
//! - A copy is due when the log has grown, since the last one, by more than the caller's limit and
//!   by more than twice what the copy is expected to take, going by the last one.
//! - A copy that turns out to take more than half of that growth is given up. Its last part never
//!   comes, so recovery does not count it (`recovery/losers.rs`).
//!
//! So all copies together take at most half of what is logged besides, and a part each. A
//! transaction whose changes take less log than their copies would (old values of which a little
//! was changed) keeps its log instead.

use crate::Result;
use crate::counters::Counter;
use crate::mtr::Mtr;
use crate::mvcc::versions::{VersionKind, VersionView};
use crate::paranoid::{CheckedGuard, paranoid};
use crate::txn::core::Core;
use crate::txn::transaction::{Inner, Phase, Shared};
use inkstone_format::record::{Record, Undo, UndoEntry};
use inkstone_format::{Lsn, VersionAddress};
use std::sync::Arc;

/// Keys and values of the entries in one frame, about.
const PART_BYTES: usize = 128 << 10;

type Addresses = std::iter::Peekable<std::vec::IntoIter<VersionAddress>>;

/// The last copy of a transaction's undo, whole or given up.
#[derive(Clone, Copy)]
pub(crate) struct UndoCopied {
    /// Where it ended in the log.
    end: Lsn,
    /// What it took there.
    bytes: u64,
    /// The changes that it had got to.
    changes: u64,
}

impl UndoCopied {
    /// What a copy of so many changes takes, going by this one.
    fn expected(&self, changes: u64) -> u64 {
        let bytes = u128::from(self.bytes) * u128::from(changes) / u128::from(self.changes.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

fn undo_entry(view: &VersionView<'_>) -> UndoEntry {
    let undo = match view.kind {
        VersionKind::Insert => Undo::Insert,
        // With the value: the transaction itself may have deleted the row.
        VersionKind::Update | VersionKind::Unmark => Undo::Restore {
            flags: view.old_flags,
            value: view.old_value.to_vec(),
        },
        VersionKind::DeleteMark => Undo::Mark,
    };
    UndoEntry {
        space: view.space,
        tree: view.tree,
        key: view.key.to_vec(),
        undo,
    }
}

impl Core {
    /// Logs all that would undo a transaction again, if that is due (see the module).
    /// Does nothing while the transaction is in the middle of a statement.
    pub(crate) fn copy_undo_forward(&self, shared: &Arc<Shared>, limit: u64) -> Result<()> {
        let Some(mut inner) = shared.inner.try_lock() else {
            return Ok(());
        };
        if inner.phase == Phase::Ended || !inner.logged || inner.undo_is_being_copied {
            return Ok(());
        }
        let end = self.storage.log.current_lsn();
        let (since, expected) = match inner.undo_copied {
            Some(last) => (last.end, last.expected(inner.undo_count)),
            None => (shared.state.first_lsn().unwrap_or(end), 0),
        };
        let grown = end.0.saturating_sub(since.0);
        if grown <= limit.max(expected.saturating_mul(2)) {
            return Ok(());
        }
        inner.undo_is_being_copied = true;
        let copied = self.copy_parts(shared, inner, grown);
        shared.inner.lock().undo_is_being_copied = false;
        copied
    }

    /// Copies part by part. A prepared transaction does nothing any more but end, and its end must
    /// not wait for a disk: its latch is held only while a part is appended.
    fn copy_parts(
        &self,
        shared: &Arc<Shared>,
        inner: CheckedGuard<'_, Inner>,
        grown: u64,
    ) -> Result<()> {
        let standing = inner.standing();
        let is_prepared = inner.phase == Phase::Prepared;
        let undo_last = inner.undo_last;
        let mut latched = (!is_prepared).then_some(inner);
        let mut rest = None;
        let (mut from, mut changes) = (None, 0);
        loop {
            let part = self.next_part(undo_last, &mut rest);
            let mut inner = match latched.take() {
                Some(inner) => inner,
                None => shared.inner.lock(),
            };
            if inner.standing() != standing {
                // It has ended, or is about to: what was read of it meanwhile says nothing.
                self.storage.counters.add(Counter::UndoCopiesGivenUp, 1);
                return Ok(());
            }
            let (entries, last) = part?;
            changes += entries.len() as u64;
            let mut mtr = Mtr::new(&self.storage);
            mtr.note(&Record::UndoCopy {
                trx_slot: shared.state.slot(),
                trx: shared.state.id(),
                first: from.is_none(),
                last,
                xid: inner.xid.clone(),
                entries,
            });
            let (start, end) = mtr.commit()?;
            let counters = &self.storage.counters;
            counters.add(Counter::UndoCopyBytes, end.0 - start.0);
            let from = *from.get_or_insert(start);
            let bytes = end.0 - from.0;
            paranoid!(
                from <= start && start < end && bytes >= end.0 - start.0,
                "a part of a copy from LSN {start} to {end}, begun at {from}"
            );
            paranoid!(
                changes <= inner.undo_count,
                "{changes} changes copied, of {}",
                inner.undo_count
            );
            inner.undo_copied = Some(UndoCopied {
                end,
                bytes,
                changes,
            });
            if last {
                // The next insert must not be coded against one that need not be kept.
                inner.context.clear();
                shared.state.move_first_lsn(from);
                counters.add(Counter::UndoCopies, 1);
                return Ok(());
            }
            if bytes > grown / 2 {
                counters.add(Counter::UndoCopiesGivenUp, 1);
                return Ok(());
            }
            latched = (!is_prepared).then_some(inner);
        }
    }

    /// The entries of the next frame, when there is room for it, and whether they are the last.
    fn next_part(
        &self,
        undo_last: VersionAddress,
        rest: &mut Option<Addresses>,
    ) -> Result<(Vec<UndoEntry>, bool)> {
        self.storage.log.prepare()?;
        self.storage.pool.throttle()?;
        self.storage.log.wait_for_space()?;
        let rest = match rest {
            Some(rest) => rest,
            None => rest.insert(self.undo_addresses(undo_last)?),
        };
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while bytes < PART_BYTES
            && let Some(address) = rest.next()
        {
            if let Some(version) = self.versions.read(address)? {
                let view = version.view();
                paranoid!(
                    view.undo_previous != address,
                    "version {address} was made before itself"
                );
                bytes += view.key.len() + view.old_value.len() + 8;
                entries.push(undo_entry(&view));
            }
        }
        Ok((entries, rest.peek().is_none()))
    }

    /// The addresses of a transaction's changes, the oldest first.
    fn undo_addresses(&self, undo_last: VersionAddress) -> Result<Addresses> {
        // Newest first in the store; the log wants the oldest first.
        let entries = self.versions.undo_entries(undo_last, VersionAddress(0));
        let mut addresses: Vec<_> = entries.map(|entry| Ok(entry?.0)).collect::<Result<_>>()?;
        addresses.reverse();
        Ok(addresses.into_iter().peekable())
    }
}
