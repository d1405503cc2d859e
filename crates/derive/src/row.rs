//! Rows: how many fields there are, and the fields; enums by a byte for their variant before that.

use crate::item::{Item, Shape, implementation, match_variant, read};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, Result};

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let item = Item::of(input)?;
    for shape in item.shapes() {
        check_order(shape)?;
    }
    let name = &input.ident;
    let (put, get) = match &item {
        Item::Struct(shape) => {
            let (pattern, puts) = (shape.pattern(), puts(shape));
            (quote!(let #pattern = self; #puts), made(shape))
        }
        Item::Enum(shapes) => {
            let puts = shapes.iter().enumerate().map(|(number, shape)| {
                let (number, pattern, puts) = (number as u8, shape.pattern(), puts(shape));
                quote!(#pattern => { out.push(#number); #puts })
            });
            let made: Vec<_> = shapes.iter().map(made).collect();
            let put = quote!(match self { #(#puts)* });
            (put, match_variant(&name.to_string(), &made))
        }
    };
    Ok(implementation(name, &put, &get))
}

fn puts(shape: &Shape<'_>) -> TokenStream {
    let (count, puts) = (shape.fields.len() as u8, shape.puts());
    quote!(out.push(#count); #puts)
}

fn required(shape: &Shape<'_>) -> usize {
    let defaults = shape.fields.iter().map(|field| field.default);
    defaults.take_while(Option::is_none).count()
}

/// Each field is read if it was written.
fn made(shape: &Shape<'_>) -> TokenStream {
    let (required, known) = (required(shape), shape.fields.len() as u8);
    let made = shape.made(|n, _| {
        let read = read();
        let number = n as u8;
        if n < required {
            read
        } else {
            quote!(if #number < written { #read } else { ::core::default::Default::default() })
        }
    });
    let (label, required) = (&shape.label, required as u8);
    quote! {{
        #[allow(unused_variables, reason = "all fields are required")]
        let written = ::inkstone::typed::row_fields(r, #label, #required, #known)?;
        #made
    }}
}

/// What came later stands at the end.
fn check_order(shape: &Shape<'_>) -> Result<()> {
    let behind = &shape.fields[required(shape)..];
    match behind.iter().find(|field| field.default.is_none()) {
        None => Ok(()),
        Some(field) => Err(Error::new_spanned(
            field.ty,
            "behind a field with #[inkstone(default)] each has one: rows that were written before \
             end there",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::expand;
    use syn::parse_quote;

    #[test]
    fn what_cannot_be_a_row_is_said() {
        let refused = |input: syn::DeriveInput, because: &str| {
            let message = expand(&input).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains(because), "{message}");
        };
        refused(
            parse_quote!(
                struct R {
                    #[inkstone(default)]
                    a: u8,
                    b: u8,
                }
            ),
            "behind a field",
        );
        refused(
            parse_quote!(
                enum R {
                    A(u8),
                    B(#[inkstone(default)] u8, u8),
                }
            ),
            "behind a field",
        );
        refused(
            parse_quote!(
                struct R {
                    #[inkstone(skip)]
                    a: u8,
                }
            ),
            "nothing else",
        );
        let fields = (0..256).map(|_| quote::quote!(u8));
        refused(parse_quote!(struct R(#(#fields),*);), "256 fields");
        let variants = (0..256).map(|n| quote::format_ident!("V{n}"));
        refused(parse_quote!(enum R { #(#variants),* }), "256 variants");
    }
}
