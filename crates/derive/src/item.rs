//! What is derived for: a struct, or the variants of an enum, and their fields.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Fields, Ident, Index, Member, Result, Type};

/// Fields of one struct or variant, and variants of one enum, are counted in a byte.
const MOST: usize = 255;

pub(crate) struct Field<'a> {
    pub member: Member,
    pub ty: &'a Type,
    /// The variable that has it where the struct was taken apart.
    pub name: Ident,
    /// Where it is marked with `#[inkstone(default)]`.
    pub default: Option<Span>,
}

/// A struct, or a variant of an enum.
pub(crate) struct Shape<'a> {
    /// `Self`, or `Self::Variant`.
    pub path: TokenStream,
    /// Its name for people.
    pub label: String,
    pub fields: Vec<Field<'a>>,
}

pub(crate) enum Item<'a> {
    Struct(Shape<'a>),
    Enum(Vec<Shape<'a>>),
}

impl<'a> Item<'a> {
    pub fn of(input: &'a DeriveInput) -> Result<Self> {
        if !input.generics.params.is_empty() {
            let message = "a type with parameters cannot be derived for: write `Field` for it, or \
                           name the types";
            return Err(Error::new_spanned(&input.generics, message));
        }
        let name = input.ident.to_string();
        match &input.data {
            Data::Struct(data) => {
                Shape::new(quote!(Self), name, &data.fields, &input.ident).map(Self::Struct)
            }
            Data::Enum(data) if data.variants.is_empty() => {
                let message = "an enum without variants has no values to write";
                Err(Error::new_spanned(&input.ident, message))
            }
            Data::Enum(data) => {
                at_most(data.variants.len(), "variants", &input.ident)?;
                let shapes = data.variants.iter().map(|variant| {
                    let ident = &variant.ident;
                    let label = format!("{name}::{ident}");
                    Shape::new(quote!(Self::#ident), label, &variant.fields, ident)
                });
                shapes.collect::<Result<_>>().map(Self::Enum)
            }
            Data::Union(data) => {
                let message = "a union does not say which of its fields it has";
                Err(Error::new(data.union_token.span, message))
            }
        }
    }

    pub fn shapes(&self) -> &[Shape<'a>] {
        match self {
            Self::Struct(shape) => std::slice::from_ref(shape),
            Self::Enum(shapes) => shapes,
        }
    }
}

impl<'a> Shape<'a> {
    fn new(path: TokenStream, label: String, fields: &'a Fields, at: &Ident) -> Result<Self> {
        at_most(fields.len(), "fields", at)?;
        let fields = fields.iter().enumerate().map(|(n, field)| {
            let member = match &field.ident {
                Some(ident) => Member::Named(ident.clone()),
                None => Member::Unnamed(Index::from(n)),
            };
            Ok(Field {
                member,
                ty: &field.ty,
                name: format_ident!("field_{n}"),
                default: default_of(field)?,
            })
        });
        Ok(Self {
            path,
            label,
            fields: fields.collect::<Result<_>>()?,
        })
    }

    /// A pattern that takes it apart, into one variable for each field.
    pub fn pattern(&self) -> TokenStream {
        let path = &self.path;
        let fields = self.fields.iter().map(|field| {
            let (member, name) = (&field.member, &field.name);
            quote!(#member: #name)
        });
        quote!(#path { #(#fields),* })
    }

    /// Appends each field to `out`.
    pub fn puts(&self) -> TokenStream {
        let names = self.fields.iter().map(|field| &field.name);
        quote!(#(::inkstone::typed::Field::put(#names, out);)*)
    }

    /// It, each field made as `make` says.
    pub fn made(&self, make: impl Fn(usize, &Field<'_>) -> TokenStream) -> TokenStream {
        let path = &self.path;
        let fields = self.fields.iter().enumerate().map(|(n, field)| {
            let (member, made) = (&field.member, make(n, field));
            quote!(#member: #made)
        });
        quote!(#path { #(#fields),* })
    }
}

/// A field read from `r`.
pub(crate) fn read() -> TokenStream {
    quote!(::inkstone::typed::Field::get(r)?)
}

/// The variant of the number that `r` has next, made as `shapes` say.
pub(crate) fn match_variant(name: &str, made: &[TokenStream]) -> TokenStream {
    let known = made.len() as u8;
    let numbers = 0..known;
    quote! {
        match r.u8()? {
            #(#numbers => #made,)*
            other => return ::core::result::Result::Err(
                ::inkstone::typed::unknown_variant(r, #name, other, #known)
            ),
        }
    }
}

/// The implementation of `Field`.
pub(crate) fn implementation(name: &Ident, put: &TokenStream, get: &TokenStream) -> TokenStream {
    quote! {
        #[automatically_derived]
        impl ::inkstone::typed::Field for #name {
            fn put(&self, out: &mut ::std::vec::Vec<u8>) {
                #put
            }

            fn get(
                r: &mut ::inkstone::typed::Reader<'_>,
            ) -> ::core::result::Result<Self, ::inkstone::Corrupt> {
                ::core::result::Result::Ok(#get)
            }
        }
    }
}

fn at_most(count: usize, what: &str, at: &Ident) -> Result<()> {
    if count > MOST {
        let message = format!("{count} {what}, and there may be {MOST}");
        return Err(Error::new_spanned(at, message));
    }
    Ok(())
}

/// Whether a field is marked with `#[inkstone(default)]`, and where.
fn default_of(field: &syn::Field) -> Result<Option<Span>> {
    let mut default = None;
    for attribute in &field.attrs {
        if attribute.path().is_ident("inkstone") {
            attribute.parse_nested_meta(|meta| {
                if !meta.path.is_ident("default") {
                    return Err(meta.error("there is `default`, and nothing else"));
                }
                default = Some(attribute.pound_token.span);
                Ok(())
            })?;
        }
    }
    Ok(default)
}
