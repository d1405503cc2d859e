//! Values without the parts that lie outside of their row, which are read when they are wanted: by
//! columns that nothing asks for no page is fetched, and a value of any length is read in pieces.
//!
//! A chain is freed when no snapshot can see a row that refers to it. An [`Outline`], as a cursor,
//! keeps the snapshot that has seen the row. Chains that its own transaction has made, and taken
//! back, are left until that ends.

use crate::btree::Tree;
use crate::debug::debug_as;
use crate::mvcc::system::{HolderPart, Snapshot};
use crate::paranoid::paranoid;
use crate::rows::overflow::ChainPlace;
use crate::rows::read::Seen;
use crate::rows::tables::TreeRef;
use crate::txn::core::Core;
use crate::txn::transaction::Transaction;
use crate::{Error, Result};
use inkstone_format::overflow::Part;
use inkstone_format::tree_page::CELL_OVERFLOW;
use std::sync::Arc;

/// A part of a value that lies outside of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutsidePart {
    /// Where it begins in the value.
    pub at: u64,
    /// Its bytes.
    pub length: u64,
}

/// Parts of one value, or of several, that have not been read; and where the last reading ended, so
/// that the next piece of the same part does not begin at its first page.
#[derive(Default)]
pub(super) struct Outside {
    parts: Vec<Part>,
    left_out: Vec<OutsidePart>,
    last: Option<(usize, ChainPlace)>,
}

impl Outside {
    pub fn clear(&mut self) {
        self.parts.clear();
        self.left_out.clear();
        self.last = None;
    }

    pub fn len(&self) -> usize {
        self.parts.len()
    }

    pub fn left_out(&self) -> &[OutsidePart] {
        &self.left_out
    }

    /// Takes the parts of a cell that was copied, and leaves its own bytes.
    pub fn take(&mut self, core: &Core, tree: &Tree, seen: &mut Seen) -> Result<()> {
        if seen.flags & CELL_OVERFLOW == 0 {
            return Ok(());
        }
        let value = core.long_value(tree, &seen.value)?;
        let inline_at = seen.value.len() - value.inline.len();
        self.left_out
            .extend(value.parts.iter().map(|part| OutsidePart {
                at: part.at,
                length: part.length,
            }));
        self.parts.extend(value.parts);
        seen.value.drain(..inline_at);
        paranoid!(
            self.parts.len() == self.left_out.len(),
            "{} parts are shown as {}",
            self.parts.len(),
            self.left_out.len()
        );
        Ok(())
    }

    /// Fills `to` with bytes of a part, from its byte `from` on.
    pub fn read(
        &mut self,
        (core, tree): (&Core, &Tree),
        n: usize,
        from: u64,
        to: &mut [u8],
    ) -> Result<()> {
        core.storage.poison.check()?;
        let part = self.parts.get(n).copied();
        let end = from.checked_add(to.len() as u64);
        let Some(part) = part.filter(|part| end.is_some_and(|end| end <= part.length)) else {
            return Err(Error::InvalidOption {
                name: "part".into(),
                value: format!("{} bytes from {from} on of part {n}", to.len()),
                reason: part.map_or_else(
                    || format!("there are {} parts", self.parts.len()),
                    |part| format!("it has {} bytes", part.length),
                ),
            });
        };
        let from = part.at + from;
        let start = match self.last {
            Some((of, place)) if of == n && place.at <= from => place,
            _ => ChainPlace::start_of(&part),
        };
        let last = core.read_part(tree, &part, (start, from), to)?;
        paranoid!(
            start.at <= last.at && last.at < from + to.len().max(1) as u64,
            "{} bytes from {from} on end in the page of {last:?}",
            to.len()
        );
        self.last = Some((n, last));
        Ok(())
    }
}

/// A row's value without the parts that lie outside of the row. It keeps a snapshot as long as it
/// has such parts, as a cursor does. It must not be read after its transaction was rolled back.
pub struct Outline {
    core: Arc<Core>,
    tree: Tree,
    inline: Vec<u8>,
    outside: Outside,
    /// As long as it is there, the parts are.
    snapshot: Option<Snapshot>,
}

debug_as!(
    Outline,
    "Outline",
    |this| "inline" = this.inline.len(),
    "left_out" = this.left_out()
);

impl Outline {
    /// The bytes that lie in the row, one behind the other: the value without its parts.
    pub fn inline(&self) -> &[u8] {
        &self.inline
    }

    /// The parts, in the order of the value.
    pub fn left_out(&self) -> &[OutsidePart] {
        self.outside.left_out()
    }

    /// Bytes of the whole value.
    pub fn value_len(&self) -> u64 {
        let outside: u64 = self.left_out().iter().map(|part| part.length).sum();
        self.inline.len() as u64 + outside
    }

    /// Fills `to` with the bytes of part number `part` from its byte `from` on; it must have as
    /// many ([`Error::InvalidOption`]). Pieces that follow each other cost no more than one call.
    pub fn read(&mut self, part: usize, from: u64, to: &mut [u8]) -> Result<()> {
        paranoid!(
            self.snapshot.is_some() || self.outside.len() == 0,
            "{} parts may be freed before they are read",
            self.outside.len()
        );
        self.outside.read((&self.core, &self.tree), part, from, to)
    }
}

impl Transaction {
    /// As [`get`](Self::get), without what lies outside of the row.
    ///
    /// ```
    /// # use inkstone::{Database, Isolation, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = Database::open(dir.path(), Options::default())?;
    /// # let table = db.create_table("t", &[])?;
    /// let txn = db.begin(Isolation::RepeatableRead)?;
    /// let value = [&b"name"[..], &[7; 1_000_000]].concat();
    /// txn.insert_with_parts(&table, b"key", &value, &[4..1_000_004])?;
    /// let mut row = txn.get_outline(&table, b"key")?.expect("a row");
    /// assert_eq!(row.inline(), b"name"); // one page
    /// let mut piece = [0; 4096];
    /// for from in (0..row.left_out()[0].length - 4096).step_by(4096) {
    ///     row.read(0, from, &mut piece)?;
    ///     assert_eq!(piece, [7; 4096]);
    /// }
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn get_outline(&self, tree: &impl TreeRef, key: &[u8]) -> Result<Option<Outline>> {
        let tree = tree.tree_ref().live(&self.core)?;
        let (mut inline, mut outside, mut kept) = (Vec::new(), Outside::default(), None);
        let found = self.read_cell(tree, key, &mut inline, |seen, snapshot| {
            outside.take(&self.core, tree, seen)?;
            if outside.len() > 0 {
                let again = |snapshot: &Snapshot| snapshot.clone_for(HolderPart::Own);
                kept = Some(snapshot.map_or_else(|| self.own_snapshot(), again));
            }
            Ok(())
        })?;
        Ok(found.then(|| Outline {
            core: self.core.clone(),
            tree: tree.clone(),
            inline,
            outside,
            snapshot: kept,
        }))
    }
}
