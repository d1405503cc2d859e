//! Iterators over rows and entries, decoded as they come.

use super::decoded;
use crate::Result;
use crate::debug::debug_as;
use crate::rows::{Cursor, LockingCursor, Table};
use inkstone_format::Corrupt;
use inkstone_format::codec::Reader;
use inkstone_format::field::Field;
use std::marker::PhantomData;

fn row<K: Field, V: Field>(key: &[u8], value: &[u8]) -> Result<(K, V), Corrupt> {
    Ok((K::from_bytes(key)?, V::from_bytes(value)?))
}

/// Rows of a range. See [`TypedTable::range`](super::TypedTable::range).
pub struct Rows<K, V> {
    pub(super) cursor: Cursor,
    pub(super) table: Table,
    pub(super) types: PhantomData<(K, V)>,
}

debug_as!(Rows<K, V>, "Rows", |this| "table" = this.table; K, V);

impl<K: Field, V: Field> Iterator for Rows<K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor
            .next_of_iterator(|key, value| decoded(&self.table, row(key, value)))
    }
}

/// Rows of a range that are locked one by one as they are read. See
/// [`TypedTable::range_locking`](super::TypedTable::range_locking).
pub struct LockedRows<'t, K, V> {
    pub(super) cursor: LockingCursor<'t>,
    pub(super) table: Table,
    pub(super) types: PhantomData<(K, V)>,
}

debug_as!(LockedRows<'_, K, V>, "LockedRows", |this| "table" = this.table; K, V);

impl<K, V> LockedRows<'_, K, V> {
    /// Gives back the lock of the row that was returned last: see
    /// [`LockingCursor::unlock_row`].
    pub fn unlock_row(&mut self) -> Result<bool> {
        self.cursor.unlock_row()
    }
}

impl<K: Field, V: Field> Iterator for LockedRows<'_, K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.cursor.next()?;
        Some(next.and_then(|(key, value)| decoded(&self.table, row(&key, &value))))
    }
}

/// Entries of a secondary tree. See [`TypedTable::by_index`](super::TypedTable::by_index).
pub struct Entries<I, K> {
    pub(super) cursor: Cursor,
    pub(super) unique: bool,
    pub(super) table: Table,
    pub(super) types: PhantomData<(I, K)>,
}

debug_as!(Entries<I, K>, "Entries", |this| "table" = this.table; I, K);

impl<I: Field, K: Field> Iterator for Entries<I, K> {
    type Item = Result<(I, K)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.next_of_iterator(|key, value| {
            let entry = if self.unique {
                row(key, value)
            } else {
                both(key)
            };
            decoded(&self.table, entry)
        })
    }
}

/// The secondary key and the row's, one after the other.
fn both<I: Field, K: Field>(bytes: &[u8]) -> Result<(I, K), Corrupt> {
    let mut r = Reader::new(bytes);
    let both = (I::get(&mut r)?, K::get(&mut r)?);
    if !r.is_empty() {
        return Err(r.corrupt("bytes are left after the row's key"));
    }
    Ok(both)
}
