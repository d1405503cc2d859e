//! A transaction that replaces long values over and over rolls back. What went wrong: the entry of
//! a new chain was inserted into the tree of chains to be freed by the code of recovery, which
//! compacts a leaf without its version addresses; then the transaction did not know its own rows.

mod failure_support;

use failure_support::*;
use inkstone::Isolation;
use inkstone_io::sim::SimVfs;

#[test]
fn replaced_long_values_roll_back() {
    for count in [250, 350, 1200] {
        let vfs = SimVfs::new(3);
        let db = open_sim(&vfs, small()).unwrap();
        let table = db.create_table("t", &[]).unwrap();
        let txn = db.begin(Isolation::ReadCommitted).unwrap();
        for n in 0..count {
            txn.upsert(&table, &key(n % 100), &[n as u8; 3000]).unwrap();
        }
        txn.rollback().unwrap();
        assert_eq!(rows(&db, &table).unwrap(), []);
        for _ in 0..4 {
            db.purge().unwrap();
        }
        db.verify_table(&table).unwrap();
    }
}
