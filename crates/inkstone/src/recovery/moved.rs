//! Versions with logged addresses, made anew of the row records that name them.
//!
//! What a record has of the old row is less than the version had, and never more: so each version
//! has room where it was.

use crate::mvcc::versions::{
    BULK, MARK_ONLY, NO_PURGE, NewVersion, RUN, RebuiltSegments, SPLICED, VersionKind, bulk_end,
    run_of, spliced,
};
use crate::paranoid::paranoid;
use crate::sync::HashMap;
use inkstone_format::record::{Diff, LoggedVersion, Record, TrxRef, Undo, UndoEntry};
use inkstone_format::space::PENDING_FREE_TREE;
use inkstone_format::tree_page::{CELL_DELETED, CELL_OVERFLOW};
use inkstone_format::{Lsn, SpaceId, TreeId, VersionAddress};

/// A row record that names its version.
pub(super) struct Row<'r> {
    pub trx: TrxRef,
    /// How many rows it changes.
    pub rows: u64,
    version: LoggedVersion,
    space: SpaceId,
    tree: TreeId,
    key: &'r [u8],
    change: Change,
}

/// What the version says of the change.
struct Change {
    kind: VersionKind,
    flags: u8,
    old_flags: u8,
    old_value: Vec<u8>,
}

impl<'r> Row<'r> {
    /// The row of a record, if it names a version.
    pub fn of(record: &'r Record) -> Option<Self> {
        let (page, trx, tree) = match record {
            Record::RowsInsert {
                page, trx, tree, ..
            }
            | Record::RowUpdate {
                page, trx, tree, ..
            }
            | Record::RowMark {
                page, trx, tree, ..
            }
            | Record::RowRevive {
                page, trx, tree, ..
            } => (page, *trx, *tree),
            _ => return None,
        };
        let version = trx.version?;
        let (key, rows, change) = match record {
            // Its version was made before.
            Record::RowsInsert { rows, .. } if version.is_of_bulk() => (
                &rows.first()?.key,
                rows.len(),
                Change::insert(tree, Vec::new()),
            ),
            Record::RowsInsert { rows, .. } => {
                let keys = rows.iter().map(|row| row.key.as_slice());
                let others = match rows.len() {
                    1 => Vec::new(),
                    _ => run_of(keys),
                };
                (&rows.first()?.key, rows.len(), Change::insert(tree, others))
            }
            Record::RowUpdate {
                key,
                old_flags,
                diff,
                ..
            } => (key, 1, Change::update(tree, *old_flags, diff)),
            Record::RowMark { key, .. } => (key, 1, Change::mark()),
            Record::RowRevive { key, .. } => (key, 1, Change::revive(tree)),
            _ => return None,
        };
        Some(Self {
            trx,
            rows: rows as u64,
            version,
            space: page.space,
            tree,
            key,
            change,
        })
    }

    /// Puts the version where it was.
    pub fn rebuild(&self, segments: &mut RebuiltSegments, lsn: Lsn) -> Result<(), String> {
        paranoid!(self.rows > 0, "a version of no row");
        if self.version.is_of_bulk() {
            return Ok(());
        }
        let (row, version) = ((self.space, self.tree, self.key), self.version);
        let version_of = self.change.version(row, version.previous);
        segments.add(version.address, &version_of, lsn)
    }
}

impl Change {
    fn insert(tree: TreeId, others: Vec<u8>) -> Self {
        let run = if others.is_empty() { 0 } else { RUN };
        Self {
            kind: VersionKind::Insert,
            flags: run | kept_by_purge(tree),
            old_flags: 0,
            old_value: others,
        }
    }

    fn update(tree: TreeId, old_flags: u8, diff: &Diff) -> Self {
        let is_revival = old_flags & CELL_DELETED != 0;
        let purged = match is_revival {
            true => kept_by_purge(tree),
            false if old_flags & CELL_OVERFLOW != 0 => 0,
            false => NO_PURGE,
        };
        Self {
            kind: if is_revival {
                VersionKind::Unmark
            } else {
                VersionKind::Update
            },
            flags: SPLICED | purged,
            old_flags,
            old_value: spliced(diff.prefix, diff.suffix, &diff.old),
        }
    }

    fn mark() -> Self {
        Self {
            kind: VersionKind::DeleteMark,
            flags: 0,
            old_flags: 0,
            old_value: Vec::new(),
        }
    }

    fn revive(tree: TreeId) -> Self {
        Self {
            kind: VersionKind::Unmark,
            flags: MARK_ONLY | kept_by_purge(tree),
            old_flags: CELL_DELETED,
            old_value: Vec::new(),
        }
    }

    fn version<'v>(
        &'v self,
        (space, tree, key): (SpaceId, TreeId, &'v [u8]),
        previous: VersionAddress,
    ) -> NewVersion<'v> {
        NewVersion {
            kind: self.kind,
            flags: self.flags,
            space,
            tree,
            key,
            old_flags: self.old_flags,
            old_value: &self.old_value,
            previous,
            // The order of addresses takes the place of the chain.
            undo_previous: VersionAddress(0),
            steps: 0,
        }
    }
}

/// Puts the version of a bulk insert where it was.
pub(super) fn rebuild_bulk(
    segments: &mut RebuiltSegments,
    address: VersionAddress,
    (space, tree, from): (SpaceId, TreeId, &[u8]),
    lsn: Lsn,
) -> Result<(), String> {
    if tree == PENDING_FREE_TREE {
        return Err(format!("a bulk insert into tree {tree}, which has none"));
    }
    let mut bulk = Change::insert(tree, Vec::new());
    bulk.flags |= BULK;
    let version = bulk.version((space, tree, from), VersionAddress(0));
    segments.add(address, &version, lsn)
}

/// Puts the version of a bulk delete where it was.
pub(super) fn rebuild_bulk_delete(
    segments: &mut RebuiltSegments,
    address: VersionAddress,
    (space, tree, from): (SpaceId, TreeId, &[u8]),
    to: Option<&[u8]>,
    lsn: Lsn,
) -> Result<(), String> {
    if tree == PENDING_FREE_TREE {
        return Err(format!("a bulk delete in tree {tree}, which has none"));
    }
    let mut bulk = Change::mark();
    bulk.flags |= BULK;
    bulk.old_value = bulk_end(to);
    let version = bulk.version((space, tree, from), VersionAddress(0));
    segments.add(address, &version, lsn)
}

/// Purge looks at new entries of the tree of long values that wait to be freed, at no other
/// inserts.
fn kept_by_purge(tree: TreeId) -> u8 {
    match tree {
        PENDING_FREE_TREE => 0,
        _ => NO_PURGE,
    }
}

/// The versions of changes that were in the log, at the addresses to which they have moved, each of
/// so many rows.
pub(super) fn rebuild_moved(
    segments: &mut RebuiltSegments,
    undo: &[UndoEntry],
    addresses: &[(VersionAddress, u32)],
    lsn: Lsn,
) -> Result<(), String> {
    let rows: u64 = addresses.iter().map(|&(_, rows)| u64::from(rows)).sum();
    if rows != undo.len() as u64 {
        return Err(format!(
            "{} changes have moved to the place of {rows}",
            undo.len()
        ));
    }
    let mut newest: HashMap<(SpaceId, TreeId, &[u8]), VersionAddress> = HashMap::default();
    let mut rest = undo;
    for &(address, rows) in addresses {
        let (entries, others) = rest.split_at(rows as usize);
        rest = others;
        let Some(first) = entries.first() else {
            return Err(format!("version {address} is of no row"));
        };
        let change = match &first.undo {
            Undo::Insert => {
                let keys = entries.iter().map(|entry| entry.key.as_slice());
                let others = match entries.len() {
                    1 => Vec::new(),
                    _ => run_of(keys),
                };
                Change::insert(first.tree, others)
            }
            // The difference leads back from the newer value.
            Undo::Update { flags, diff } => {
                Change::update(first.tree, *flags, &diff.clone().reversed())
            }
            Undo::Restore { flags, value } => {
                let diff = Diff {
                    prefix: 0,
                    suffix: 0,
                    old: value.clone(),
                    new: Vec::new(),
                };
                Change::update(first.tree, *flags, &diff)
            }
            Undo::Mark => Change::mark(),
            Undo::Revive => Change::revive(first.tree),
        };
        if entries.len() > 1 && entries.iter().any(|entry| entry.undo != Undo::Insert) {
            return Err(format!(
                "version {address} is of rows that were not inserted"
            ));
        }
        let row = (first.space, first.tree, first.key.as_slice());
        let previous = newest.get(&row).copied().unwrap_or_default();
        segments.add(address, &change.version(row, previous), lsn)?;
        for entry in entries {
            newest.insert((entry.space, entry.tree, &entry.key), address);
        }
    }
    paranoid!(
        rest.is_empty() && newest.len() <= undo.len(),
        "{} changes have no version",
        rest.len()
    );
    Ok(())
}
