//! Typed tables: rows of Rust types, with secondary trees that are kept up to date by themselves.
//!
//! A [`TypedTable`] maps a [`Key`] to a [`Field`]: integers, floats, strings, bytes, options,
//! tuples of them, or types of the program's. Keys sort as the types do; `None` comes first, and
//! floats are in the order of `total_cmp`: -0.0 before 0.0 (a range that begins at 0.0 has no
//! -0.0), NaNs at the ends.
//!
//! ```
//! use inkstone::typed::TypedTable;
//! use inkstone::{Database, Isolation, Options};
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Database::open(dir.path(), Options::default())?;
//! let people = TypedTable::<u64, (String, u32)>::builder("people")
//!     .index("by_age", |_id, (_name, age)| *age)
//!     .unique_index("by_name", |_id, (name, _age)| name.clone())
//!     .open(&db)?;
//! let txn = db.begin(Isolation::RepeatableRead)?;
//! people.insert(&txn, &1, &("Ada".to_owned(), 36))?;
//! people.insert(&txn, &2, &("Alan".to_owned(), 41))?;
//! let older: Vec<u64> = people
//!     .by_index(&txn, "by_age", 40u32..)?
//!     .map(|entry| entry.map(|(_age, id)| id))
//!     .collect::<Result<_, _>>()?;
//! assert_eq!(older, [2]);
//! let ada = people.get_by_index(&txn, "by_name", &"Ada".to_owned())?;
//! assert_eq!(ada, Some((1, ("Ada".to_owned(), 36))));
//! people.update_with(&txn, &1, |(_name, age)| *age += 1)?;
//! txn.commit()?;
//! # Ok::<(), inkstone::Error>(())
//! ```
//!
//! # Types of the program's
//!
//! With the feature `derive`, `#[derive(Key)]` makes a struct or an enum a key (field by field,
//! enums in the order of their variants), and `#[derive(Row)]` a value whose type may grow: a new
//! field at the end, marked `#[inkstone(default)]`, has its default in rows that were written
//! without it.
//!
#![cfg_attr(feature = "derive", doc = "```")]
#![cfg_attr(not(feature = "derive"), doc = "```ignore")]
//! use inkstone::typed::{Key, Row, TypedTable, starting_with};
//! use inkstone::{Database, Isolation, Options};
//!
//! #[derive(Key, Clone, Debug, PartialEq)]
//! struct EventId {
//!     user: u64,
//!     at: i64,
//! }
//!
//! #[derive(Key, Clone, Debug, PartialEq)]
//! enum Kind {
//!     Login,
//!     Logout,
//! }
//!
//! #[derive(Row, Clone, Debug, PartialEq)]
//! struct Event {
//!     kind: Kind,
//!     from: String,
//!     #[inkstone(default)] // the first version had none
//!     browser: Option<String>,
//! }
//!
//! # let dir = tempfile::tempdir().unwrap();
//! let db = Database::open(dir.path(), Options::default())?;
//! let events = TypedTable::<EventId, Event>::builder("events")
//!     .index("by_kind", |_id, event| event.kind.clone())
//!     .open(&db)?;
//! let txn = db.begin(Isolation::RepeatableRead)?;
//! let id = EventId { user: 7, at: -1 };
//! let event = Event { kind: Kind::Logout, from: "here".to_owned(), browser: None };
//! events.insert(&txn, &id, &event)?;
//! let of_7: Vec<_> = events.range(&txn, starting_with((7,)))?.collect::<Result<_, _>>()?;
//! assert_eq!(of_7, [(id, event)]);
//! txn.commit()?;
//! # Ok::<(), inkstone::Error>(())
//! ```
//!
//! A type that others define, or that has what a [`Field`] cannot be, such as a list, goes through
//! `serde`: the feature of that name has a wrapper for values, `typed::Serde`. And a program can
//! write a [`Field`] itself, of others that are there, or of bytes:
//!
//! ```
//! use inkstone::Corrupt;
//! use inkstone::typed::{Field, Key, Reader};
//!
//! /// Seconds since 1970, in three bytes fewer than an `i64`.
//! #[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
//! struct Seconds(u64);
//!
//! impl Field for Seconds {
//!     fn put(&self, out: &mut Vec<u8>) {
//!         out.extend_from_slice(&self.0.to_be_bytes()[3..]);
//!     }
//!
//!     fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
//!         let mut bytes = [0; 8];
//!         bytes[3..].copy_from_slice(r.take(5)?);
//!         Ok(Self(u64::from_be_bytes(bytes)))
//!     }
//! }
//!
//! // Big-endian bytes of one length sort as the numbers do: it may be a key, too.
//! impl Key for Seconds {
//!     fn layout() -> String {
//!         "five bytes of seconds".to_owned()
//!     }
//! }
//!
//! /// A list, which has no field of its own: its length, and each.
//! #[derive(Debug, PartialEq)]
//! struct Tags(Vec<String>);
//!
//! impl Field for Tags {
//!     fn put(&self, out: &mut Vec<u8>) {
//!         (self.0.len() as u32).put(out);
//!         self.0.iter().for_each(|tag| tag.put(out));
//!     }
//!
//!     fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
//!         let count = u32::get(r)?; // not trusted: nothing is reserved for it
//!         (0..count).map(|_| String::get(r)).collect::<Result<_, _>>().map(Self)
//!     }
//! }
//!
//! let tags = Tags(vec!["black".to_owned(), "wet".to_owned()]);
//! assert_eq!(Tags::from_bytes(&tags.to_bytes())?, tags);
//! assert!(Tags::from_bytes(&[255; 9]).is_err());
//! assert!(Seconds(1).to_bytes() < Seconds(256).to_bytes());
//! # Ok::<(), Corrupt>(())
//! ```
//!
//! # Reading a row of another type
//!
//! The catalog knows what the table's keys are, and those of its indexes, and which are unique
//! ([`Key::layout`]): a program that declares them otherwise is refused. What values are is not
//! written anywhere. Bytes that cannot be a value of the type are an error, never a panic; a row of
//! a newer `Row` than the program's says that. A type whose fields have changed otherwise may be
//! read as nonsense: give the table another name.

mod builder;
mod cursors;
mod ranges;
#[cfg(feature = "serde")]
mod serde;
mod table;

pub use builder::Builder;
pub use cursors::{Entries, LockedRows, Rows};
pub use inkstone_format::codec::Reader;
pub use inkstone_format::field::{Descending, Field, Key};
pub use ranges::{KeyRange, Prefix, StartingWith, starting_with};
#[cfg(feature = "serde")]
pub use serde::Serde;
pub use table::TypedTable;

/// Makes a struct or an enum a [`Field`] and a [`Key`].
#[cfg(feature = "derive")]
pub use inkstone_derive::Key;
/// Makes a struct or an enum a [`Field`] that may grow.
#[cfg(feature = "derive")]
pub use inkstone_derive::Row;

/// What derived code calls.
#[cfg(feature = "derive")]
#[doc(hidden)]
pub use inkstone_format::field::{layout_of_fields, row_fields, unknown_variant};

use crate::rows::Table;
use crate::{Error, Result};
use inkstone_format::Corrupt;

/// What was decoded of the bytes of a table.
fn decoded<T>(table: &Table, decoded: Result<T, Corrupt>) -> Result<T> {
    decoded.map_err(|corrupt| {
        Error::Unsupported(format!(
            "a row of table {} is not of the type that it is read as: {corrupt}",
            table.name()
        ))
    })
}
