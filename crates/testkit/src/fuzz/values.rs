//! Targets over small encodings: typed fields, packed values, table definitions.

use super::Target;
use super::input::{Input, dice_seeds};
use inkstone::internals::catalog::{Reference, ReferenceAction, TableDefinition};
use inkstone_format::codec::{
    self, Reader, get_shared_key, is_successor, pack, put_shared_key, put_varint, unpack,
};
use inkstone_format::field::{Descending, Field};
use inkstone_format::record::Diff;
use inkstone_format::{SpaceId, TreeId};

/// `fields`: typed keys.
pub const FIELDS: Target = Target {
    name: "fields",
    about: "typed fields: bytes sort as the values do, and come back as they were",
    run: fields,
    seeds: field_seeds,
    input_max: 256,
    allocation_max_mib: 1,
};

/// `codec`: varints, shared keys, packed values, differences.
pub const CODEC: Target = Target {
    name: "codec",
    about: "varints, shared keys, packed values and differences, there and back",
    run: codec,
    seeds: codec_seeds,
    input_max: 2 << 10,
    allocation_max_mib: 8,
};

/// `catalog`: rows of the catalog.
pub const CATALOG: Target = Target {
    name: "catalog",
    about: "a row of the catalog: understood, written again, and still the same",
    run: catalog,
    seeds: catalog_seeds,
    input_max: 4 << 10,
    allocation_max_mib: 1,
};

type Key = (i64, (String, Option<u16>), Descending<(bool, Vec<u8>)>, f64);

/// Whatever can be read is written as the same bytes: so no two byte strings mean the same key.
fn read<T: Field>(bytes: &[u8]) -> Option<T> {
    let value = T::from_bytes(bytes).ok()?;
    assert_eq!(value.to_bytes(), bytes, "two encodings of one value");
    Some(value)
}

fn keys_sort<T: Field + PartialOrd>(a: &[u8], b: &[u8]) {
    if let (Some(x), Some(y)) = (read::<T>(a), read::<T>(b))
        && let Some(ordering) = x.partial_cmp(&y)
    {
        // -0.0 and 0.0 are equal but for their bytes.
        assert!(
            ordering.is_eq() || ordering == a.cmp(b),
            "bytes sort otherwise"
        );
    }
}

fn fields(data: &[u8]) {
    let mut input = Input::new(data);
    let a = input.short();
    let b = input.rest();
    keys_sort::<(i64, String, Option<u16>)>(&a, b);
    keys_sort::<(Vec<u8>, i8, f32)>(&a, b);
    keys_sort::<Option<(u128, i128)>>(&a, b);
    keys_sort::<(Option<String>, Option<Vec<u8>>, bool)>(&a, b);
    keys_sort::<f64>(&a, b);
    let (x, y) = (
        read::<Descending<(String, u32)>>(&a),
        read::<Descending<(String, u32)>>(b),
    );
    if let (Some(x), Some(y)) = (x, y) {
        assert_eq!(
            y.0.cmp(&x.0),
            a.as_slice().cmp(b),
            "descending bytes sort otherwise"
        );
    }
    let _ = read::<Key>(b);
}

fn field_seeds() -> Vec<(String, Vec<u8>)> {
    let pair = |a: Vec<u8>, b: Vec<u8>| [&[a.len() as u8], &a[..], &b].concat();
    let text = |n: i64, text: &str| (n, text.to_owned(), Some(n as u16)).to_bytes();
    let descending = |text: &str, n| Descending((text.to_owned(), n)).to_bytes();
    let key: Key = (
        -4,
        ("a\0b".to_owned(), None),
        Descending((true, vec![0, 255])),
        -0.5,
    );
    vec![
        ("texts".to_owned(), pair(text(-1, "ab"), text(1, "a\0b"))),
        (
            "bytes".to_owned(),
            pair(
                (vec![0u8, 1], -1i8, 1.5f32).to_bytes(),
                (vec![0u8], 1i8, -1.5f32).to_bytes(),
            ),
        ),
        (
            "floats".to_owned(),
            pair((-0.0f64).to_bytes(), f64::NAN.to_bytes()),
        ),
        (
            "descending".to_owned(),
            pair(descending("x", 3), descending("xy", 2)),
        ),
        (
            "options".to_owned(),
            pair(
                Some((1u128, -1i128)).to_bytes(),
                None::<(u128, i128)>.to_bytes(),
            ),
        ),
        ("key".to_owned(), pair(Vec::new(), key.to_bytes())),
    ]
}

fn codec(data: &[u8]) {
    let mut input = Input::new(data);
    let (number, a, b) = (input.u64(), input.short(), input.short());
    let rest = input.rest();
    let mut out = Vec::new();
    put_varint(&mut out, number);
    assert_eq!(Reader::new(&out).varint(), Ok(number));

    assert_eq!(codec::compare(&a, &b), a.cmp(&b));
    assert_eq!(codec::starts_with(&a, &b), a.starts_with(&b));
    let shared = codec::common_prefix(&a, &b);
    assert!(
        a[..shared] == b[..shared]
            && (a.get(shared) != b.get(shared) || a.len().min(b.len()) == shared)
    );
    let mut next = a.clone();
    assert_eq!(codec::increment(&mut next), is_successor(&next, &a));

    out.clear();
    put_shared_key(&mut out, &a, &b);
    let mut key = b.clone();
    assert_eq!(get_shared_key(&mut Reader::new(&out), &mut key), Ok(()));
    assert_eq!(key, a);

    for (value, reference) in [(rest, &a[..]), (&a, &b), (&b, rest)] {
        out.clear();
        pack(&mut out, value, reference);
        let mut again = Vec::new();
        assert_eq!(
            unpack(&mut Reader::new(&out), value.len(), reference, &mut again),
            Ok(())
        );
        assert_eq!(again, value);
        let diff = Diff::between(reference, value);
        assert_eq!(diff.apply(reference).as_deref(), Ok(value));
        assert_eq!(diff.reversed().apply(value).as_deref(), Ok(reference));
    }
    // And bytes that were never packed.
    let length = usize::from(number as u16);
    let mut any = Vec::new();
    if unpack(&mut Reader::new(rest), length, &a, &mut any).is_ok() {
        assert_eq!(any.len(), length);
    }
    let _ = get_shared_key(&mut Reader::new(rest), &mut any);
    let mut reader = Reader::new(rest);
    while reader.bytes().is_ok() && !reader.is_empty() {}
    let _ = Reader::new(rest).varint();
}

fn codec_seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = dice_seeds(3, 300);
    let with = |a: &[u8], b: &[u8], rest: &[u8]| {
        let lengths = [a.len() as u8, b.len() as u8];
        [
            &[40, 0, 0, 0, 0, 0, 0, 0],
            &lengths[..1],
            a,
            &lengths[1..],
            b,
            rest,
        ]
        .concat()
    };
    seeds.push((
        "alike".to_owned(),
        with(b"user000199", b"user000200", b"user000300"),
    ));
    let (mut packed, value) = (Vec::new(), [&[b' '; 30][..], b"literal!!!"].concat());
    pack(&mut packed, &value, b"reference");
    seeds.push(("packed".to_owned(), with(b"reference", &value, &packed)));
    seeds
}

fn catalog(data: &[u8]) {
    let mut input = Input::new(data);
    let (key, value) = (input.short(), input.rest());
    if let Ok(table) = TableDefinition::decode(&key, value) {
        assert_eq!(table.name.as_bytes(), key);
        let again = TableDefinition::decode(&key, &table.encode());
        assert_eq!(again.as_ref(), Ok(&table));
    }
}

fn catalog_seeds() -> Vec<(String, Vec<u8>)> {
    let table = |name: &str, trees: u32| {
        let references = (1..trees).map(|n| Reference {
            name: format!("to{n}"),
            parent: name.to_owned(),
            columns: vec![(format!("c{n}"), "id".to_owned())],
            on_delete: ReferenceAction::Cascade,
            on_update: ReferenceAction::NoAction,
        });
        let layouts = (2..trees).map(|n| (TreeId(n), "unique (u32, String)".to_owned()));
        let trees = (0..trees).map(|n| (TreeId(n), format!("tree{n}")));
        let table = TableDefinition {
            name: name.to_owned(),
            space: SpaceId(7),
            trees: trees.collect(),
            references: references.collect(),
            layouts: layouts.collect(),
        };
        (
            name.to_owned(),
            [&[name.len() as u8], name.as_bytes(), &table.encode()].concat(),
        )
    };
    vec![table("accounts", 1), table("orders", 3), table("wide", 40)]
}
