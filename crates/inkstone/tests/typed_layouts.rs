//! What the catalog knows of typed tables: a program that declares a table's keys or indexes
//! otherwise than they are is refused, before it reads or writes a row.

mod common;

use common::{open, options};
use inkstone::typed::{Builder, Descending, Field, Key, TypedTable};
use inkstone::{Database, Error, Isolation, Options};

type People = TypedTable<u64, (String, u32)>;

fn made(db: &Database) -> People {
    let people = People::builder("people")
        .index("by_age", |_, row| row.1)
        .unique_index("by_name", |_, row| row.0.clone())
        .open(db)
        .unwrap();
    db.transact(Isolation::ReadCommitted, |txn| {
        (0..5).try_for_each(|id| people.insert(txn, &id, &(format!("name {id}"), id as u32)))
    })
    .unwrap();
    people
}

/// What an opening is refused with.
fn refused<K: Key, V: Field>(db: &Database, builder: Builder<K, V>) -> String {
    match builder.open(db).map(drop) {
        Err(Error::Unsupported(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// P1 of 2026-11-22: it opened, and returned garbage.
#[test]
fn p1_an_index_whose_key_type_has_changed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    made(&db);
    let names = |builder: Builder<u64, (String, u32)>| {
        builder.unique_index("by_name", |_, row: &(String, u32)| row.0.clone())
    };
    let signed = names(People::builder("people").index("by_age", |_, row| i64::from(row.1)));
    let text = refused(&db, signed);
    for part in [
        "index by_age of table people",
        "keys u32",
        "declares i64",
        "drop_tree",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // Of the same length, and another order.
    let order = names(People::builder("people").index("by_age", |_, row| Descending(row.1)));
    assert!(refused(&db, order).contains("Descending<u32>"));
    // Removed, it is made anew.
    db.drop_tree("people", "by_age").unwrap();
    let signed = names(People::builder("people").index("by_age", |_, row| i64::from(row.1)));
    let people = signed.open(&db).unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let old = people.by_index(&txn, "by_age", 3i64..).unwrap();
    assert_eq!(old.count(), 2);
}

/// P1 of 2026-11-22, too: rows of a tree that is unique lie otherwise.
#[test]
fn p1_an_index_that_became_unique_or_is_so_no_more_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    made(&db);
    let now_unique = People::builder("people")
        .unique_index("by_age", |_, row| row.1)
        .unique_index("by_name", |_, row| row.0.clone());
    assert!(refused(&db, now_unique).contains("declares unique u32"));
    let no_more = People::builder("people")
        .index("by_age", |_, row| row.1)
        .index("by_name", |_, row| row.0.clone());
    assert!(refused(&db, no_more).contains("has keys unique String"));
    made_again(&db);
}

fn made_again(db: &Database) {
    let people = People::builder("people")
        .unique_index("by_name", |_, row| row.0.clone())
        .index("by_age", |_, row| row.1)
        .open(db)
        .unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let name = "name 3".to_owned();
    let found = people.get_by_index(&txn, "by_name", &name).unwrap();
    assert_eq!(found, Some((3, (name, 3))));
}

#[test]
fn p1_a_table_with_other_keys_is_refused_also_when_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    made(&db);
    db.rename_table("people", "persons").unwrap();
    db.rename_tree("persons", "by_age", "by_years").unwrap();
    drop(db);
    let db = open(&dir);
    let other = TypedTable::<i64, (String, u32)>::builder("persons")
        .index("by_years", |_, row| row.1)
        .unique_index("by_name", |_, row| row.0.clone());
    let text = refused(&db, other);
    assert!(
        text.contains("the rows of table persons has keys u64"),
        "{text}"
    );
    let years = People::builder("persons")
        .index("by_years", |_, row| u64::from(row.1))
        .unique_index("by_name", |_, row| row.0.clone());
    assert!(refused(&db, years).contains("index by_years"));
}

/// Two `None`s are equal, as they are in Rust; SQL's NULLs are not.
#[test]
fn p1_a_unique_index_has_one_none() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    let table = TypedTable::<u32, Option<u8>>::builder("t")
        .unique_index("by_value", |_, value| *value)
        .open(&db)
        .unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    table.insert(&txn, &1, &None).unwrap();
    let again = table.insert(&txn, &2, &None);
    assert!(matches!(again, Err(Error::DuplicateKey { .. })));
    let found = table.get_by_index(&txn, "by_value", &None::<u8>).unwrap();
    assert_eq!(found, Some((1, None)));
}

/// One that was made without types, as those of an earlier version were.
#[test]
fn a_table_without_layouts_learns_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir);
    db.create_table("people", &["by_age"]).unwrap();
    let table = db.table("people").unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    let row = ("Ada".to_owned(), 36u32);
    txn.insert(&table, &7u64.to_bytes(), &row.to_bytes())
        .unwrap();
    txn.insert(
        table.tree("by_age").unwrap(),
        &(36u32, 7u64).to_bytes(),
        b"",
    )
    .unwrap();
    txn.commit().unwrap();
    drop((table, db));
    // One that is only read learns nothing, and is read all the same.
    let read_only = Options {
        read_only: true,
        ..options()
    };
    let builder = || People::builder("people").index("by_age", |_, row| row.1);
    let db = Database::open(dir.path(), read_only).unwrap();
    builder().open(&db).unwrap();
    drop(db);
    let db = open(&dir);
    let people = builder().open(&db).unwrap();
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    assert_eq!(people.by_index(&txn, "by_age", 36u32..).unwrap().count(), 1);
    drop((txn, people, db));
    let db = open(&dir);
    let other = People::builder("people").index("by_age", |_, row| u64::from(row.1));
    assert!(refused(&db, other).contains("keys u32"));
    builder().open(&db).unwrap();
}

#[derive(Key)]
struct Pair {
    _a: u16,
    _b: Option<String>,
}

#[derive(Key)]
struct Wrapped(Pair);

#[derive(Key)]
enum Either {
    _A,
    _B(u8),
}

/// They are in catalogs: they stay as they are.
#[test]
fn layouts_of_types() {
    assert_eq!(Wrapped::layout(), "(u16, Option<String>)");
    assert_eq!(
        <(Either, [u8; 16], Vec<u8>)>::layout(),
        "(enum, [u8; 16], Vec<u8>)"
    );
    assert_eq!(Descending::<f64>::layout(), "Descending<f64>");
    assert_eq!(<(i8,)>::layout(), "i8");
    assert_eq!(
        (<()>::layout(), bool::layout()),
        ("()".to_owned(), "bool".to_owned())
    );
}
