//! Keys: field by field, enums by a byte for their variant.

use crate::item::{Field, Item, Shape, implementation, match_variant, read};
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Error, Ident, Result};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let item = Item::of(input)?;
    let name = &input.ident;
    let fields = || item.shapes().iter().flat_map(|shape| &shape.fields);
    if let Some(default) = fields().find_map(|field| field.default) {
        let message = "a key cannot grow: its bytes would sort otherwise";
        return Err(Error::new(default, message));
    }
    let (put, get, prefixes) = match &item {
        Item::Struct(shape) => {
            let (pattern, puts) = (shape.pattern(), shape.puts());
            let get = shape.made(|_, _| read());
            (
                quote!(let #pattern = self; #puts),
                get,
                prefixes(name, shape),
            )
        }
        Item::Enum(shapes) => {
            let puts = shapes.iter().enumerate().map(|(number, shape)| {
                let (number, pattern, puts) = (number as u8, shape.pattern(), shape.puts());
                quote!(#pattern => { out.push(#number); #puts })
            });
            let made: Vec<_> = shapes
                .iter()
                .map(|shape| shape.made(|_, _| read()))
                .collect();
            let put = quote!(match self { #(#puts)* });
            (
                put,
                match_variant(&name.to_string(), &made),
                TokenStream::new(),
            )
        }
    };
    let implementation = implementation(name, &put, &get);
    let checks = fields().map(check);
    let layout = layout(&item);
    Ok(quote! {
        #implementation
        #[automatically_derived]
        impl ::inkstone::typed::Key for #name {
            fn layout() -> ::std::string::String {
                #layout
            }
        }
        #prefixes
        #(#checks)*
    })
}

/// A struct lies as a tuple of its fields does. An enum may get variants, so it says no more.
fn layout(item: &Item<'_>) -> TokenStream {
    match item {
        Item::Struct(shape) => {
            let types = shape.fields.iter().map(|field| field.ty);
            quote! {
                ::inkstone::typed::layout_of_fields(
                    &[#(<#types as ::inkstone::typed::Key>::layout()),*]
                )
            }
        }
        Item::Enum(_) => quote!(::std::string::String::from("enum")),
    }
}

/// An error at the field if its type is no key.
fn check(field: &Field<'_>) -> TokenStream {
    let ty = field.ty;
    quote_spanned! {ty.span()=>
        const _: () = {
            const fn is_key<T: ::inkstone::typed::Key>() {}
            is_key::<#ty>()
        };
    }
}

/// The first fields of a struct begin its bytes, but not all of them.
fn prefixes(name: &Ident, shape: &Shape<'_>) -> TokenStream {
    let prefixes = (1..shape.fields.len()).map(|count| {
        let fields = &shape.fields[..count];
        let types = fields.iter().map(|field| field.ty);
        let names: Vec<_> = fields.iter().map(|field| &field.name).collect();
        quote! {
            #[automatically_derived]
            impl ::inkstone::typed::Prefix<#name> for (#(#types,)*) {
                fn put_prefix(&self, out: &mut ::std::vec::Vec<u8>) {
                    let (#(#names,)*) = self;
                    #(::inkstone::typed::Field::put(#names, out);)*
                }
            }
        }
    });
    quote!(#(#prefixes)*)
}

#[cfg(test)]
mod tests {
    use super::expand;
    use syn::parse_quote;

    fn refused(input: syn::DeriveInput, because: &str) {
        let message = expand(&input).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains(because), "{message}");
    }

    #[test]
    fn what_cannot_be_a_key_is_said() {
        refused(
            parse_quote!(
                struct K<T> {
                    a: T,
                }
            ),
            "parameters",
        );
        refused(
            parse_quote!(
                enum K {}
            ),
            "without variants",
        );
        refused(parse_quote!(union K { a: u8, b: u16 }), "union");
        refused(
            parse_quote!(
                struct K {
                    a: u8,
                    #[inkstone(default)]
                    b: u8,
                }
            ),
            "cannot grow",
        );
    }

    #[test]
    fn a_prefix_is_made_of_each_but_all_first_fields() {
        let count = |input| {
            let expanded = expand(&input).unwrap().to_string();
            expanded.matches("typed :: Prefix").count()
        };
        assert_eq!(
            count(parse_quote!(
                struct K;
            )),
            0
        );
        assert_eq!(
            count(parse_quote!(
                struct K(u8);
            )),
            0
        );
        assert_eq!(
            count(parse_quote!(
                struct K {
                    a: u8,
                    b: u8,
                    c: u8,
                }
            )),
            2
        );
    }
}
