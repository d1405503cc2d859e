//! `#[derive(Key)]` and `#[derive(Row)]` for the typed tables of
//! [Inkstone](https://docs.rs/inkstone). Use them as `inkstone::typed::{Key, Row}`, with the
//! feature `derive` of `inkstone`.
//!
//! What a field of a type is not good for is said where the field stands.
#![forbid(unsafe_code)]

mod item;
mod key;
mod row;

use proc_macro::TokenStream;

/// Makes a struct or an enum an `inkstone::typed::Field`, and a `Key`: its bytes sort as its fields
/// do, one after the other, and enums first in the order in which their variants are written (as
/// with `#[derive(PartialOrd, Ord)]`). A struct's first fields, as a tuple, are a `Prefix` of it.
///
/// Each field must be a `Key`. The type of a key cannot change: fields that come, go or change
/// places make another key of it. New variants at the end of an enum are fine.
#[proc_macro_derive(Key, attributes(inkstone))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    expand(input, key::expand)
}

/// Makes a struct or an enum an `inkstone::typed::Field` that may grow at its end. It is no `Key`.
///
/// Each field must be a `Field`. In front of them stands how many there are, so a type may get more
/// of them, with `#[inkstone(default)]`: a row that was written without them reads as if they had
/// `Default::default()`. For an enum this holds of each variant, and new variants may be added at
/// the end. A row with more fields than the program knows, or an unknown variant, is an error that
/// says so. Fields that are taken away, or change places or types, make another type of it.
#[proc_macro_derive(Row, attributes(inkstone))]
pub fn derive_row(input: TokenStream) -> TokenStream {
    expand(input, row::expand)
}

type Expand = fn(&syn::DeriveInput) -> syn::Result<proc_macro2::TokenStream>;

fn expand(input: TokenStream, expand: Expand) -> TokenStream {
    let expanded = syn::parse(input).and_then(|input| expand(&input));
    expanded
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}
