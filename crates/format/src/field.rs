//! Typed fields as bytes that compare as the fields do.
//!
//! | type | bytes |
//! |---|---|
//! | `bool`, `u8` to `u64`, `u128` | big-endian |
//! | `i8` to `i64`, `i128` | big-endian, sign bit flipped |
//! | `f32`, `f64` | IEEE bits; the sign bit flipped if it is clear, all bits if it is set. -0.0 < 0.0, NaNs at the ends |
//! | `[u8; N]` | as they are |
//! | bytes, strings | each 0 byte as `00 ff`, then `00 00`: a prefix sorts before what it begins |
//! | `Option` | 0 for `None`, or 1 and the field: `None` sorts first |
//! | [`Descending`] | the field's bytes, all bits flipped |
//! | tuples | their fields one after the other |
//!
//! Every field delimits itself, so fields can be put one after the other and taken apart again.

use crate::Corrupt;
use crate::codec::Reader;

/// A value that can be written as bytes, and read back.
///
/// What implements it promises:
/// - The bytes delimit themselves: `get` reads all that `put` has appended and no more, whatever
///   follows. So fields can be put one after the other.
/// - `get` panics on no bytes, and takes no memory for what they only claim: they come from a disk.
///   [`Reader::corrupt`] is its error.
///
/// Values whose bytes sort as they do are [`Key`]s as well.
pub trait Field: Sized {
    /// Appends the bytes.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads a field back.
    fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt>;

    /// The bytes of this field alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// Reads a field that takes all of `bytes`.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut r = Reader::new(bytes);
        let field = Self::get(&mut r)?;
        if !r.is_empty() {
            return Err(r.corrupt("bytes are left after the last field"));
        }
        Ok(field)
    }
}

/// A [`Field`] whose bytes sort as its values do, compared as `memcmp` does: of two keys that are
/// different neither's bytes begin with the other's, and the lesser key has the lesser bytes. Equal
/// keys have equal bytes.
pub trait Key: Field {
    /// What the bytes are, in words that stay the same for as long as the bytes do, such as
    /// `(u32, String)`. A typed table's catalog keeps them for its keys and secondary keys, and
    /// refuses a program whose words are others.
    fn layout() -> String;
}

/// The layout of fields that lie one after the other; of one alone it is that one's.
#[doc(hidden)]
pub fn layout_of_fields(fields: &[String]) -> String {
    match fields {
        [one] => one.clone(),
        several => format!("({})", several.join(", ")),
    }
}

/// For `#[derive(Row)]`: how many fields of a row, or of one of an enum's variants, were written.
/// The row has at least `required`, and the program knows `known`.
#[doc(hidden)]
pub fn row_fields(r: &mut Reader<'_>, name: &str, required: u8, known: u8) -> Result<u8, Corrupt> {
    let found = r.u8()?;
    if found > known {
        return Err(r.corrupt(format!(
            "{name} has {found} fields there, and this program knows {known}: a newer version of \
             it wrote the row"
        )));
    }
    if found < required {
        return Err(r.corrupt(format!(
            "{name} has {found} fields there, and this program needs {required}: those that came \
             later want #[inkstone(default)]"
        )));
    }
    Ok(found)
}

/// For derived enums: the number of a variant that the program does not know.
#[doc(hidden)]
pub fn unknown_variant(r: &Reader<'_>, name: &str, found: u8, known: u8) -> Corrupt {
    r.corrupt(format!(
        "variant {found} of {name}, of which this program knows {known}: a newer version of it \
         wrote the row"
    ))
}

macro_rules! integers {
    ($($type:ty, $flip:expr;)+) => {
        $(impl Key for $type {
            fn layout() -> String {
                stringify!($type).to_owned()
            }
        }
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(*self ^ $flip).to_be_bytes());
            }
            fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
                let bytes = r.take(size_of::<$type>())?;
                Ok(<$type>::from_be_bytes(bytes.try_into().expect("as many as asked for")) ^ $flip)
            }
        })+
    };
}

integers! {
    u8, 0; u16, 0; u32, 0; u64, 0; u128, 0;
    i8, i8::MIN; i16, i16::MIN; i32, i32::MIN; i64, i64::MIN; i128, i128::MIN;
}

macro_rules! floats {
    ($($type:ty, $bits:ty;)+) => {
        $(impl Key for $type {
            fn layout() -> String {
                stringify!($type).to_owned()
            }
        }
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = self.to_bits();
                (if bits & SIGN == 0 { bits | SIGN } else { !bits }).put(out);
            }
            fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = <$bits>::get(r)?;
                Ok(<$type>::from_bits(if bits & SIGN != 0 { bits & !SIGN } else { !bits }))
            }
        })+
    };
}

floats! { f32, u32; f64, u64; }

impl Key for bool {
    fn layout() -> String {
        "bool".to_owned()
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
        match r.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(r.corrupt(format!("{other} is no bool"))),
        }
    }
}

/// Appends how a string or byte string begins that begins with `bytes`.
pub fn put_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for part in bytes.split_inclusive(|&b| b == 0) {
        out.extend_from_slice(part);
        if part.ends_with(&[0]) {
            out.push(0xff);
        }
    }
}

fn put_delimited(bytes: &[u8], out: &mut Vec<u8>) {
    put_escaped(bytes, out);
    out.extend_from_slice(&[0, 0]);
}

fn get_escaped(r: &mut Reader<'_>) -> Result<Vec<u8>, Corrupt> {
    let mut bytes = Vec::new();
    loop {
        match r.u8()? {
            0 => match r.u8()? {
                0 => return Ok(bytes),
                0xff => bytes.push(0),
                other => return Err(r.corrupt(format!("{other:02x} after a zero byte"))),
            },
            byte => bytes.push(byte),
        }
    }
}

impl<const N: usize> Key for [u8; N] {
    fn layout() -> String {
        format!("[u8; {N}]")
    }
}

impl<const N: usize> Field for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(r.take(N)?.try_into().expect("as many as asked for"))
    }
}

impl Key for Vec<u8> {
    fn layout() -> String {
        "Vec<u8>".to_owned()
    }
}

impl Field for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        put_delimited(self, out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
        get_escaped(r)
    }
}

impl Key for String {
    fn layout() -> String {
        "String".to_owned()
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_delimited(self.as_bytes(), out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
        String::from_utf8(get_escaped(r)?).map_err(|_| r.corrupt("a string is not UTF-8"))
    }
}

impl<T: Key> Key for Option<T> {
    fn layout() -> String {
        format!("Option<{}>", T::layout())
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(field) => {
                out.push(1);
                field.put(out);
            }
        }
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(if bool::get(r)? {
            Some(T::get(r)?)
        } else {
            None
        })
    }
}

/// A field that sorts in the opposite order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Descending<T>(pub T);

impl<T: Key> Key for Descending<T> {
    fn layout() -> String {
        format!("Descending<{}>", T::layout())
    }
}

impl<T: Field> Field for Descending<T> {
    fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        self.0.put(out);
        out[start..].iter_mut().for_each(|b| *b = !*b);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
        // How long the field is shows only while it is read, so all that is left is flipped back.
        let flipped: Vec<u8> = r.rest().iter().map(|b| !b).collect();
        let mut inner = Reader::new(&flipped);
        let field = T::get(&mut inner)?;
        r.take(inner.offset())?;
        Ok(Self(field))
    }
}

macro_rules! tuples {
    ($(($($name:ident)*),)+) => {
        $(impl<$($name: Key),*> Key for ($($name,)*) {
            fn layout() -> String {
                layout_of_fields(&[$($name::layout()),*])
            }
        }
        impl<$($name: Field),*> Field for ($($name,)*) {
            #[expect(non_snake_case, reason = "one name for each type and field")]
            fn put(&self, out: &mut Vec<u8>) {
                let ($($name,)*) = self;
                $($name.put(out);)*
            }
            fn get(r: &mut Reader<'_>) -> Result<Self, Corrupt> {
                Ok(($($name::get(r)?,)*))
            }
        })+
    };
}

tuples! { (A), (A B), (A B C), (A B C D), (A B C D E), (A B C D E F), (A B C D E F G), (A B C D E F G H), }

impl Key for () {
    fn layout() -> String {
        layout_of_fields(&[])
    }
}

impl Field for () {
    fn put(&self, _: &mut Vec<u8>) {}
    fn get(_: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check<T: Field + PartialOrd + PartialEq + std::fmt::Debug>(a: &T, b: &T) {
        let (x, y) = (a.to_bytes(), b.to_bytes());
        assert_eq!(&T::from_bytes(&x).unwrap(), a);
        assert_eq!(a.partial_cmp(b).unwrap(), x.cmp(&y), "{a:?} {b:?}");
        let (x, y) = (
            Descending(T::from_bytes(&x).unwrap()),
            Descending(T::from_bytes(&y).unwrap()),
        );
        assert_eq!(b.partial_cmp(a).unwrap(), x.to_bytes().cmp(&y.to_bytes()));
        assert_eq!(&Descending::<T>::from_bytes(&x.to_bytes()).unwrap().0, a);
    }

    proptest! {
        #[test]
        fn order_is_kept(
            a in any::<(i64, u16, bool, i8)>(), b in any::<(i64, u16, bool, i8)>(),
            s in "[\u{0}-\u{3}a-c]{0,4}", t in "[\u{0}-\u{3}a-c]{0,4}",
            x in proptest::num::f64::NORMAL | proptest::num::f64::ZERO, y in proptest::num::f64::NORMAL,
        ) {
            check(&a, &b);
            check(&(s.clone(), a.0), &(t.clone(), b.0));
            check(&Some(s.clone().into_bytes()), &Some(t.clone().into_bytes()));
            check(&(None::<u8>, s.clone()), &(Some(3), t.clone()));
            check(&(s, x), &(t, y));
            check(&(a.0.to_be_bytes(), a.1), &(b.0.to_be_bytes(), b.1));
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = <(String, Option<i32>, Vec<u8>, Descending<(f64, String)>)>::from_bytes(&bytes);
        }
    }
}
