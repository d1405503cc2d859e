//! Trees of a table: how many there may be, and a crash while one is created.

use inkstone::{Database, Isolation, Options};
use inkstone_io::sim::SimVfs;
use std::path::Path;
use std::sync::Arc;

fn options() -> Options {
    Options {
        page_size: 4096,
        buffer_pool_size: 4 << 20,
        log_file_size: 4 << 20,
        log_buffer_size: 2 << 20,
        ..Options::default()
    }
}

/// `create_table` does not count its trees. With 127 secondary ones tree 127 is the tree of long
/// values as well; with more the roots run out of their array in page 0, and the catalog row
/// cannot be read any more, so that no table can be listed.
#[test]
fn a_table_of_too_many_trees_is_refused() {
    for secondary in [127, 128, 200] {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        let names: Vec<String> = (0..secondary).map(|n| format!("tree {n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(db.create_table("t", &names).is_err(), "{secondary}");
        assert!(db.tables().unwrap().is_empty());
    }
}

/// `create_tree` makes the tree in one mini-transaction and names it in the catalog in a
/// transaction after that. A crash between leaves a tree without a name: its page is lost, its
/// number too, and `verify_table` calls it damage.
#[test]
fn a_crash_while_a_tree_is_created_leaves_no_lost_page() {
    for seed in 0..200 {
        let disk = SimVfs::new(seed);
        let open = |disk: &SimVfs| {
            let vfs = Arc::new(disk.clone());
            Database::open_on(vfs, Path::new("db"), options(), &|_| {}).unwrap()
        };
        let db = open(&disk);
        let table = db.create_table("t", &[]).unwrap();
        // Moves the end of the log, so that with some seed a sector ends between the two
        // mini-transactions; the next writes and syncs are those of the log.
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        let filler: Vec<u8> = (0..seed * 29 % 512).map(|n| (n * n % 251) as u8).collect();
        txn.insert(&table, b"k", &filler).unwrap();
        txn.commit().unwrap();
        drop(table);
        disk.crash_at(1 + seed % 3);
        let created = db.create_tree("t", &"late".repeat(60)).is_ok();
        let after = disk.crash(seed);
        drop(db);
        let db = open(&after);
        let table = db.table("t").unwrap();
        db.verify_table(&table)
            .unwrap_or_else(|e| panic!("seed {seed}, created {created}: {e}"));
    }
}
