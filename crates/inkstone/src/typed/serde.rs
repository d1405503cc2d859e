//! Values of any type that `serde` can write.

use ::serde::Serialize;
use ::serde::de::DeserializeOwned;
use inkstone_format::Corrupt;
use inkstone_format::codec::Reader;
use inkstone_format::field::Field;

/// A value of any type with `Serialize` and `Deserialize`, in the [wire format of
/// `postcard`](https://postcard.jamesmunns.com/wire-format). It is no [`Key`](super::Key): its
/// bytes do not sort.
///
/// The format has neither names nor versions: a type that has changed reads its old rows as an
/// error, or as nonsense. `#[derive(Row)]` is for types that grow.
///
/// Panics when a value is written that its own `Serialize` refuses (a sequence that does not know
/// its length, as `#[serde(flatten)]` makes them).
///
/// ```
/// use inkstone::typed::{Serde, TypedTable};
/// use inkstone::{Database, Isolation, Options};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Debug, PartialEq)]
/// struct Note {
///     title: String,
///     tags: Vec<String>,
/// }
///
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path(), Options::default())?;
/// let notes = TypedTable::<u64, Serde<Note>>::builder("notes").open(&db)?;
/// let note = Note { title: "Ink".to_owned(), tags: vec!["black".to_owned(), "wet".to_owned()] };
/// let txn = db.begin(Isolation::RepeatableRead)?;
/// notes.insert(&txn, &1, &Serde(note))?;
/// let note = notes.get(&txn, &1)?.map(|Serde(note)| note.tags.len());
/// assert_eq!(note, Some(2));
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Serde<T>(pub T);

impl<T: Serialize + DeserializeOwned> Field for Serde<T> {
    fn put(&self, out: &mut Vec<u8>) {
        // Into memory it can only fail as the type's own code does.
        let bytes = postcard::to_stdvec(&self.0).unwrap_or_else(|error| {
            panic!("{} cannot be written: {error}", std::any::type_name::<T>())
        });
        out.extend_from_slice(&bytes);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let rest = r.rest();
        let (value, left) = postcard::take_from_bytes::<T>(rest)
            .map_err(|error| r.corrupt(format!("no {}: {error}", std::any::type_name::<T>())))?;
        r.take(rest.len() - left.len())?;
        Ok(Self(value))
    }
}
