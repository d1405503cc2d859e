//! Databases for tests of the program.

use inkstone::{Database, Isolation, Options};
use std::path::{Path, PathBuf};

/// Options of a small database.
pub fn options() -> Options {
    Options {
        buffer_pool_size: 8 << 20,
        log_file_size: 16 << 20,
        ..Options::default()
    }
}

/// A database with a table `fruit`, and rows that are easy to find.
pub fn fruit(directory: &Path) -> Database {
    let db = Database::open(directory, options()).unwrap();
    let table = db.create_table("fruit", &["by_colour"]).unwrap();
    let transaction = db.begin(Isolation::ReadCommitted).unwrap();
    for (key, value) in [
        ("apple", "red"),
        ("banana", "yellow"),
        ("cherry", "dark red"),
    ] {
        transaction
            .insert(&table, key.as_bytes(), value.as_bytes())
            .unwrap();
        let by_colour = table.tree("by_colour").unwrap();
        transaction
            .insert(by_colour, format!("{value}/{key}").as_bytes(), b"")
            .unwrap();
    }
    transaction.update(&table, b"apple", b"green").unwrap();
    let long = vec![b'm'; 100_000];
    transaction.insert(&table, b"melon", &long).unwrap();
    transaction.delete(&table, b"cherry").unwrap();
    transaction.commit().unwrap();
    db
}

/// Copies files as they are.
pub fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Each file below a directory with what tells whether it was written.
pub fn traces(directory: &Path) -> Vec<(PathBuf, std::time::SystemTime, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(traces(&path));
        } else {
            let changed = path.metadata().unwrap().modified().unwrap();
            let bytes = std::fs::read(&path).unwrap();
            found.push((path, changed, bytes));
        }
    }
    found.sort();
    found
}
