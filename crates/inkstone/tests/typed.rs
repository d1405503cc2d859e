//! Typed tables keep their secondary trees up to date.

use inkstone::typed::{Descending, TypedTable};
use inkstone::{Database, Error, Isolation, Options};

type People = TypedTable<u64, (String, u32)>;

fn open(db: &Database) -> People {
    People::builder("people")
        .index("by_age", |_, row| Descending(row.1))
        .unique_index("by_name", |_, row| row.0.clone())
        .open(db)
        .unwrap()
}

fn ages(people: &People, txn: &inkstone::Transaction) -> Vec<(u32, u64)> {
    let all = people
        .by_index::<Descending<u32>>(txn, "by_age", ..)
        .unwrap();
    all.map(|entry| entry.map(|(age, id)| (age.0, id)).unwrap())
        .collect()
}

#[test]
fn secondary_trees_follow_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let people = open(&db);
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    for (id, name, age) in [
        (1, "Ada", 36),
        (2, "Alan", 41),
        (3, "Grace", 85),
        (4, "Edgar", 41),
    ] {
        people.insert(&txn, &id, &(name.to_owned(), age)).unwrap();
    }
    assert_eq!(ages(&people, &txn), [(85, 3), (41, 2), (41, 4), (36, 1)]);
    let taken = people.insert(&txn, &5, &("Ada".to_owned(), 1));
    assert!(matches!(taken, Err(Error::DuplicateKey { tree, .. }) if tree == "by_name"));
    assert_eq!(people.get(&txn, &5).unwrap(), None);
    people.update(&txn, &2, &("Alan".to_owned(), 42)).unwrap();
    assert!(people.delete(&txn, &3).unwrap());
    assert!(
        people
            .upsert(&txn, &3, &("Barbara".to_owned(), 42))
            .unwrap()
    );
    assert_eq!(ages(&people, &txn), [(42, 2), (42, 3), (41, 4), (36, 1)]);
    let of_42 = Descending(42u32)..=Descending(42);
    assert_eq!(people.by_index(&txn, "by_age", of_42).unwrap().count(), 2);
    let named: Vec<_> = people
        .by_index(&txn, "by_name", "B".to_owned()..)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(named, [("Barbara".to_owned(), 3), ("Edgar".to_owned(), 4)]);
    txn.commit().unwrap();
    drop(db);
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let people = open(&db);
    let txn = db.begin(Isolation::ReadCommitted).unwrap();
    assert_eq!(ages(&people, &txn), [(42, 2), (42, 3), (41, 4), (36, 1)]);
    let backward: Vec<u64> = people
        .range_backward(&txn, 2..4)
        .unwrap()
        .map(|row| row.unwrap().0)
        .collect();
    assert_eq!(backward, [3, 2]);
}

#[test]
fn a_new_index_is_filled() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default()).unwrap();
    let plain = TypedTable::<u64, (String, u32)>::builder("people")
        .open(&db)
        .unwrap();
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in 0..1000 {
        plain
            .insert(&txn, &id, &(format!("name {id}"), id as u32 % 10))
            .unwrap();
    }
    txn.commit().unwrap();
    let people = open(&db);
    let txn = db.begin(Isolation::RepeatableRead).unwrap();
    let threes = people
        .by_index(&txn, "by_age", Descending(3u32)..=Descending(3))
        .unwrap();
    assert_eq!(threes.count(), 100);
}
