//! A row's change on its way: its version entry, how its record is coded, and the mini-transaction
//! that both are committed with.

use crate::Result;
use crate::log::Claim;
use crate::mtr::Mtr;
use crate::mvcc::versions::NewVersion;
use crate::paranoid::paranoid;
use crate::txn::core::Core;
use crate::txn::state::{Inner, Phase, Shared};
use inkstone_format::record::CONTEXT_CHAIN_MAX;
use inkstone_format::space::CLUSTERED_TREE;
use inkstone_format::version::version_bytes;
use inkstone_format::{TreeId, VersionAddress};
use std::sync::Arc;

/// A row change that is about to be made: what its version entry and its log record need.
pub(crate) struct Change<'a> {
    pub core: &'a Arc<Core>,
    pub shared: &'a Arc<Shared>,
    pub inner: &'a mut Inner,
}

/// A change that is in its mini-transaction, which is to commit.
pub(crate) struct Made {
    /// Its version entry.
    pub address: VersionAddress,
    pub tree: TreeId,
    /// Rows changed.
    pub rows: u64,
    /// A bound of the log that undoing them takes.
    pub undo_bytes: u64,
    pub coding: Coding,
    /// The version is that of a bulk insert, which was there before.
    pub is_of_bulk: bool,
}

/// How a change's record stands to the transaction's inserts, which are coded against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// It is none of them.
    Apart,
    /// An insert that stands for itself; later ones are coded against it.
    InFull,
    /// An insert that is coded against those before it.
    InContext,
}

impl Change<'_> {
    /// Stores the before-image. To be called last before the page is changed.
    pub fn version(&mut self, version: NewVersion<'_>) -> Result<VersionAddress> {
        paranoid!(
            version.undo_previous == self.inner.undo_last,
            "a version after {}, and the last one is {}",
            version.undo_previous,
            self.inner.undo_last
        );
        // Of a table's trees the first has its rows.
        if version.tree == CLUSTERED_TREE {
            self.shared.state.add_cost();
        }
        let bytes = version_bytes(version.key.len(), version.old_value.len());
        self.inner.undo_place.add(bytes as u64, self.shared);
        let Inner { touched, .. } = &mut *self.inner;
        let address = (self.core.versions).append(&self.shared.state, touched, version)?;
        self.core.versions.list_milestone(&version, address);
        Ok(address)
    }

    /// Readies the context for one more contextual insert: a full record from time to time, so
    /// that decoding never has to begin far back. How the insert is to be coded.
    pub fn ready_context(&mut self) -> Coding {
        let reach = self
            .core
            .storage
            .log
            .current_lsn()
            .0
            .saturating_sub(self.inner.context_from.0);
        if self.inner.context_chain >= CONTEXT_CHAIN_MAX
            || reach > self.core.storage.log.context_reach() / 2
        {
            self.inner.context.clear();
        }
        if self.inner.context.is_known() && self.inner.logged {
            Coding::InContext
        } else {
            Coding::InFull
        }
    }

    /// Commits the mini-transaction that made the change.
    pub fn commit(self, mtr: Mtr<'_>, made: Made) -> Result<()> {
        let Self {
            core,
            shared,
            inner,
        } = self;
        paranoid!(
            inner.phase == Phase::Active,
            "{:?} changes rows in phase {:?}",
            shared.state.id(),
            inner.phase
        );
        paranoid!(
            made.address != VersionAddress(0) && made.rows > 0,
            "{} rows changed, the last one's version {}",
            made.rows,
            made.address
        );
        let first = !inner.logged;
        if first {
            core.add_writer(shared);
        }
        let chain_from = inner.context_from;
        let (start, _) = mtr.commit_with(Claim::WhenDue, |start, _| {
            shared.state.note_first_lsn(start);
            if made.coding == Coding::InContext {
                core.note_context(start, chain_from);
            }
        })?;
        match made.coding {
            Coding::InFull => (inner.context_from, inner.context_chain) = (start, 0),
            Coding::InContext => inner.context_chain += 1,
            Coding::Apart => {}
        }
        inner.logged = true;
        if !made.is_of_bulk {
            inner.undo_last = made.address;
        }
        inner.undo_count += made.rows;
        inner.promise.add(made.undo_bytes);
        shared.state.add_weight(made.rows);
        if made.tree == CLUSTERED_TREE {
            shared.state.add_rows(made.rows);
        }
        Ok(())
    }
}
