//! Ranges of keys: of whole ones, and of all that begin alike.

use crate::paranoid::paranoid;
use inkstone_format::field::{Field, Key, put_escaped};
use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

/// Two ends of a range, as bytes.
pub(super) type ByteBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Which keys of type `K` a call is about: any range of them (`..`, `5..`, `a..=b`, a pair of
/// [`Bound`]s), or [`starting_with`].
pub trait KeyRange<K> {
    /// The range as bytes.
    fn byte_bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

/// The ranges of the standard library, of keys and of references to them.
macro_rules! ranges {
    ($($range:ty),+) => {
        $(impl<K: Key> KeyRange<K> for $range {
            fn byte_bounds(&self) -> ByteBounds {
                let bytes = |bound: Bound<&K>| bound.map(Field::to_bytes);
                (bytes(self.start_bound()), bytes(self.end_bound()))
            }
        })+
    };
}

ranges! {
    RangeFull,
    Range<K>, RangeFrom<K>, RangeTo<K>, RangeInclusive<K>, RangeToInclusive<K>, (Bound<K>, Bound<K>),
    Range<&K>, RangeFrom<&K>, RangeTo<&K>, RangeInclusive<&K>, RangeToInclusive<&K>,
    (Bound<&K>, Bound<&K>)
}

/// What keys of type `K` can begin with: a tuple or struct with its first fields, as a tuple; text
/// with a `&str`, bytes with a `&[u8]`. `#[derive(Key)]` makes it for structs.
pub trait Prefix<K> {
    /// Appends what the bytes of all keys that begin so begin with, and those of no other.
    fn put_prefix(&self, out: &mut Vec<u8>);
}

/// Keys that begin so. See [`starting_with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartingWith<P>(P);

/// All keys that begin with `prefix`: text or bytes that do, tuples and structs with these first
/// fields.
///
/// ```
/// use inkstone::typed::{TypedTable, starting_with};
/// # use inkstone::{Database, Isolation, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = Database::open(dir.path(), Options::default())?;
/// let events = TypedTable::<(String, u64), String>::builder("events")
///     .index("by_text", |_, text| text.clone())
///     .open(&db)?;
/// let txn = db.begin(Isolation::RepeatableRead)?;
/// for (user, at, text) in [("ada", 1, "login"), ("ada", 2, "logout"), ("alan", 1, "login")] {
///     events.insert(&txn, &(user.to_owned(), at), &text.to_owned())?;
/// }
/// let of_ada = events.range(&txn, starting_with(("ada".to_owned(),)))?;
/// assert_eq!(of_ada.count(), 2);
/// let logins = events.by_index::<String>(&txn, "by_text", starting_with("logi"))?;
/// assert_eq!(logins.count(), 2);
/// # Ok::<(), inkstone::Error>(())
/// ```
pub fn starting_with<P>(prefix: P) -> StartingWith<P> {
    StartingWith(prefix)
}

impl<K: Key, P: Prefix<K>> KeyRange<K> for StartingWith<P> {
    fn byte_bounds(&self) -> ByteBounds {
        let mut prefix = Vec::new();
        self.0.put_prefix(&mut prefix);
        let high = after_prefix(prefix.clone()).map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(prefix), high)
    }
}

impl Prefix<String> for &str {
    fn put_prefix(&self, out: &mut Vec<u8>) {
        put_escaped(self.as_bytes(), out);
    }
}

impl Prefix<Vec<u8>> for &[u8] {
    fn put_prefix(&self, out: &mut Vec<u8>) {
        put_escaped(self, out);
    }
}

impl<const N: usize> Prefix<Vec<u8>> for &[u8; N] {
    fn put_prefix(&self, out: &mut Vec<u8>) {
        put_escaped(*self, out);
    }
}

/// The first fields of longer tuples, as tuples.
macro_rules! prefixes {
    ($($all:tt: $(($($first:ident)+))+;)+) => {
        $($(prefixes!(@one $all, ($($first)+));)+)+
    };
    (@one ($($name:ident)+), ($($first:ident)+)) => {
        impl<$($name: Key),+> Prefix<($($name,)+)> for ($($first,)+) {
            #[expect(non_snake_case, reason = "one name for each type and field")]
            fn put_prefix(&self, out: &mut Vec<u8>) {
                let ($($first,)+) = self;
                $($first.put(out);)+
            }
        }
    };
}

prefixes! {
    (A B): (A);
    (A B C): (A) (A B);
    (A B C D): (A) (A B) (A B C);
    (A B C D E): (A) (A B) (A B C) (A B C D);
    (A B C D E F): (A) (A B) (A B C) (A B C D) (A B C D E);
    (A B C D E F G): (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F);
    (A B C D E F G H): (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G);
}

pub(super) fn as_slices((low, high): &ByteBounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (
        low.as_ref().map(Vec::as_slice),
        high.as_ref().map(Vec::as_slice),
    )
}

/// The least byte string that is above everything that begins with `prefix`. `None`: nothing is.
fn after_prefix(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while prefix.last() == Some(&0xff) {
        prefix.pop();
    }
    *prefix.last_mut()? += 1;
    Some(prefix)
}

/// The entries of a range of keys that others follow: a bound means all that begin with it.
pub(super) fn prefix_bounds((low, high): ByteBounds) -> ByteBounds {
    let high = match high {
        Bound::Included(prefix) => after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded),
        other => other,
    };
    match low {
        Bound::Excluded(prefix) => match after_prefix(prefix.clone()) {
            Some(after) => {
                paranoid!(
                    after > prefix && !after.starts_with(&prefix),
                    "{after:x?} is not behind all that begins with {prefix:x?}"
                );
                (Bound::Included(after), high)
            }
            // Nothing is above it.
            None => (Bound::Included(prefix.clone()), Bound::Excluded(prefix)),
        },
        other => (other, high),
    }
}
