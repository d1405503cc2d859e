//! `#[derive(Key, Row)]`, fields of the program's own, and values through `serde`: their order,
//! rows that an older or newer program wrote, and bytes that are none of theirs.

mod common;

use common::open;
use inkstone::typed::{Descending, Field, Key, Row, Serde, TypedTable, starting_with};
use inkstone::{Error, Isolation};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Login,
    Named(String),
    Moved { from: i32, to: i32 },
    Logout,
}

#[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id(u32);

#[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EventId {
    user: Id,
    kind: Kind,
    at: i64,
}

#[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Nothing;

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Login),
        "[\u{0}-\u{2}a-b]{0,3}".prop_map(Kind::Named),
        (-2..3, -2..3).prop_map(|(from, to)| Kind::Moved { from, to }),
        Just(Kind::Logout),
    ]
}

fn ids() -> impl Strategy<Value = EventId> {
    (0..3u32, kinds(), -2..3i64).prop_map(|(user, kind, at)| EventId {
        user: Id(user),
        kind,
        at,
    })
}

proptest! {
    #[test]
    fn derived_keys_sort_as_the_types_do(a in ids(), b in ids()) {
        let (x, y) = (a.to_bytes(), b.to_bytes());
        prop_assert_eq!(a.cmp(&b), x.cmp(&y), "{:?} {:?}", a, b);
        prop_assert_eq!(EventId::from_bytes(&x).unwrap(), a);
        let both = (Descending(b.clone()), Nothing);
        prop_assert_eq!(<(Descending<EventId>, Nothing)>::from_bytes(&both.to_bytes()).unwrap(), both);
    }
}

/// A row as three versions of a program have it.
mod first {
    use super::*;
    #[derive(Row, Clone, Debug, PartialEq)]
    pub struct Person {
        pub name: String,
        pub address: Address,
    }
    #[derive(Row, Clone, Debug, PartialEq)]
    pub enum Address {
        Unknown,
        Street(String),
    }
}

mod second {
    use super::*;
    #[derive(Row, Clone, Debug, PartialEq)]
    pub struct Person {
        pub name: String,
        pub address: Address,
        #[inkstone(default)]
        pub age: Option<u32>,
        #[inkstone(default)]
        pub kind: u8,
    }
    #[derive(Row, Clone, Debug, PartialEq)]
    pub enum Address {
        Unknown,
        Street(String, #[inkstone(default)] u32),
        Island { name: String },
    }
}

/// A program that forgot to say that the new field has a default.
mod forgetful {
    use super::*;
    #[derive(Row, Clone, Debug, PartialEq)]
    pub struct Person {
        pub name: String,
        pub address: first::Address,
        pub age: u32,
    }
}

#[test]
fn a_row_grows() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let old = TypedTable::<u32, first::Person>::builder("people")
        .open(&db)
        .unwrap();
    let new = TypedTable::<u32, second::Person>::builder("people")
        .open(&db)
        .unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let ada = |address| first::Person {
        name: "Ada".to_owned(),
        address,
    };
    let street = |name: &str| first::Address::Street(name.to_owned());
    old.insert(&txn, &1, &ada(street("Wall"))).unwrap();
    old.insert(&txn, &2, &ada(first::Address::Unknown)).unwrap();
    let grown = |address| second::Person {
        name: "Ada".to_owned(),
        address,
        age: None,
        kind: 0,
    };
    let street = second::Address::Street("Wall".to_owned(), 0);
    assert_eq!(new.get(&txn, &1).unwrap(), Some(grown(street)));
    let unknown = second::Address::Unknown;
    assert_eq!(new.get(&txn, &2).unwrap(), Some(grown(unknown)));
    // What the new program writes the old one does not take for anything else.
    let full = second::Person {
        age: Some(36),
        kind: 1,
        ..grown(second::Address::Unknown)
    };
    new.update(&txn, &1, &full).unwrap();
    assert_eq!(new.get(&txn, &1).unwrap(), Some(full));
    let error = old.get(&txn, &1).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)));
    let text = error.to_string();
    for part in [
        "table people",
        "Person has 4 fields",
        "knows 2",
        "newer version",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_variant_grows_and_an_unknown_one_is_said() {
    let island = second::Address::Island {
        name: "Skye".to_owned(),
    };
    let bytes = island.to_bytes();
    assert_eq!(second::Address::from_bytes(&bytes).unwrap(), island);
    let text = first::Address::from_bytes(&bytes).unwrap_err().to_string();
    assert!(
        text.contains("variant 2 of Address") && text.contains("newer"),
        "{text}"
    );
    let numbered = second::Address::Street("Wall".to_owned(), 7).to_bytes();
    let text = first::Address::from_bytes(&numbered)
        .unwrap_err()
        .to_string();
    assert!(text.contains("Address::Street has 2 fields"), "{text}");
    let old = first::Person {
        name: String::new(),
        address: first::Address::Unknown,
    };
    let text = forgetful::Person::from_bytes(&old.to_bytes())
        .unwrap_err()
        .to_string();
    assert!(text.contains("#[inkstone(default)]"), "{text}");
}

/// The bytes are of the disk: they stay as they are, whatever becomes of the macro.
#[test]
fn bytes_of_derived_types() {
    let key = EventId {
        user: Id(7),
        kind: Kind::Moved { from: 0, to: -1 },
        at: 2,
    };
    let bytes = [
        0, 0, 0, 7, 2, 0x80, 0, 0, 0, 0x7f, 255, 255, 255, 0x80, 0, 0, 0, 0, 0, 0, 2,
    ];
    assert_eq!(key.to_bytes(), bytes);
    assert_eq!(Nothing.to_bytes(), []);
    let row = second::Person {
        name: "A".to_owned(),
        address: second::Address::Street("B".to_owned(), 3),
        age: Some(1),
        kind: 9,
    };
    let bytes = [
        4, b'A', 0, 0, 1, 2, b'B', 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 1, 9,
    ];
    assert_eq!(row.to_bytes(), bytes);
    assert_eq!(Serde((1u8, "ab".to_owned())).to_bytes(), [1, 2, b'a', b'b']);
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
enum Shape {
    Point,
    Lines(Vec<(i32, i32)>),
    Text { text: String, tags: Vec<String> },
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Point),
        any::<Vec<(i32, i32)>>().prop_map(Shape::Lines),
        any::<(String, Vec<String>)>().prop_map(|(text, tags)| Shape::Text { text, tags }),
    ]
}

#[derive(Row, Clone, Debug, PartialEq)]
struct Mixed {
    number: u16,
    shape: Serde<Shape>,
    #[inkstone(default)]
    last: [u8; 3],
}

proptest! {
    #[test]
    fn values_through_serde_delimit_themselves(a in shapes(), b in shapes(), n: u16) {
        let both = (Serde(a), n, Serde(b));
        let back = <(Serde<Shape>, u16, Serde<Shape>)>::from_bytes(&both.to_bytes()).unwrap();
        prop_assert_eq!(&back, &both);
        let row = Mixed { number: n, shape: both.0, last: [1, 2, 3] };
        prop_assert_eq!(Mixed::from_bytes(&row.to_bytes()).unwrap(), row);
    }

    #[test]
    fn bytes_that_are_none_of_theirs_never_panic(
        bytes in proptest::collection::vec(prop_oneof![0..5u8, any::<u8>()], 0..60)
    ) {
        let _ = EventId::from_bytes(&bytes);
        let _ = first::Person::from_bytes(&bytes);
        let _ = second::Person::from_bytes(&bytes);
        let _ = Mixed::from_bytes(&bytes);
        let _ = Serde::<Shape>::from_bytes(&bytes);
        let _ = Serde::<Vec<Vec<String>>>::from_bytes(&bytes);
        let _ = Descending::<EventId>::from_bytes(&bytes);
    }

    /// A row that was cut, or has a byte changed, is read as some row or is an error.
    #[test]
    fn damaged_rows_never_panic(shape in shapes(), at: prop::sample::Index, byte: u8) {
        let row = Mixed { number: 1, shape: Serde(shape), last: [0; 3] };
        let mut bytes = row.to_bytes();
        let at = at.index(bytes.len());
        prop_assert!(Mixed::from_bytes(&bytes[..at]).is_err());
        bytes[at] = byte;
        let _ = Mixed::from_bytes(&bytes);
    }
}

#[test]
fn derived_types_in_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let events = TypedTable::<EventId, Mixed>::builder("events")
        .index("by_kind", |id, _| id.kind.clone())
        .open(&db)
        .unwrap();
    let id = |user, kind, at| EventId {
        user: Id(user),
        kind,
        at,
    };
    let named = |name: &str| Kind::Named(name.to_owned());
    let ids = [
        id(1, Kind::Login, 5),
        id(1, named("a"), -3),
        id(1, named("a"), 4),
        id(1, named("b"), 0),
        id(2, named("a"), 9),
    ];
    let row = Mixed {
        number: 1,
        shape: Serde(Shape::Point),
        last: [0; 3],
    };
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in ids.iter().rev() {
        events.insert(&txn, id, &row).unwrap();
    }
    let keys = |rows: inkstone::typed::Rows<EventId, Mixed>| -> Vec<EventId> {
        rows.map(|row| row.unwrap().0).collect()
    };
    assert_eq!(keys(events.range(&txn, ..).unwrap()), ids);
    let of_1 = events.range(&txn, starting_with((Id(1),))).unwrap();
    assert_eq!(keys(of_1), ids[..4]);
    let of_a = starting_with((Id(1), named("a")));
    let backward = events.range_backward(&txn, of_a.clone()).unwrap();
    assert_eq!(keys(backward), [ids[2].clone(), ids[1].clone()]);
    let by_kind = events.by_index(&txn, "by_kind", named("a")..=named("a"));
    let users: Vec<u32> = by_kind
        .unwrap()
        .map(|entry| entry.unwrap().1.user.0)
        .collect();
    assert_eq!(users, [1, 1, 2]);
    assert_eq!(events.delete_range(&txn, of_a).unwrap(), 2);
    let left = events.by_index::<Kind>(&txn, "by_kind", ..).unwrap();
    assert_eq!(left.count(), 3);
}
