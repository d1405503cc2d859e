//! Entries of an index that are not those of the rows: CHECK TABLE says of each index what is wrong
//! with it, and QUICK, which looks at pages only, does not.

use super::server::Server;
use inkstone::{Database, Isolation, Options};
use inkstone_testkit::build::Result;

/// The indexes, and what is said of each.
const WRONG: [(&str, &str); 3] = [
    ("lacks", "index lacks lacks the entry of a row"),
    ("more", "index more has 101 entries for 100 rows"),
    ("other", "index other lacks the entry of a row"),
];

/// Checks it on a server without other clients.
pub fn check(server: &mut Server) -> Result<()> {
    server.sql("CREATE OR REPLACE DATABASE wrong")?;
    for (index, _) in WRONG {
        server.sql(&format!(
            "USE wrong; CREATE TABLE {index} (id INT PRIMARY KEY, v INT, s VARCHAR(20), KEY whole (s), KEY {index} (v)) \
             ENGINE = Inkstone; INSERT INTO {index} SELECT seq, seq % 7, CONCAT('row ', seq) FROM seq_1_to_100; \
             CHECK TABLE {index} EXTENDED"
        ))?;
    }
    server.stop()?;
    let directory = server.data().join("inkstone");
    harm(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    server.start()?;
    for (index, said) in WRONG {
        let quick = server.sql(&format!("CHECK TABLE wrong.{index} QUICK"))?;
        let whole = server.sql(&format!("CHECK TABLE wrong.{index}"))?;
        let is_named = whole.contains(said) && whole.contains("Corrupt");
        if !is_named || !quick.contains("OK") {
            return Err(format!(
                "CHECK TABLE of {index} says:\n{whole}and QUICK:\n{quick}"
            ));
        }
    }
    server.sql("DROP DATABASE wrong").map(drop)
}

fn harm(directory: &std::path::Path) -> inkstone::Result<()> {
    let database = Database::open(directory, Options::default())?;
    for (name, _) in WRONG {
        let table = database.table(&format!("wrong/{name}"))?;
        let index = table.tree(name)?;
        let transaction = database.begin(Isolation::RepeatableRead)?;
        let first = transaction.range(index, ..)?.next().transpose()?;
        let (key, value) = first.unwrap_or_default();
        let mut another = key.clone();
        another.extend_from_slice(b"another");
        if name != "more" {
            transaction.delete(index, &key)?;
        }
        if name != "lacks" {
            transaction.insert(index, &another, &value)?;
        }
        transaction.commit()?;
    }
    database.close()
}
