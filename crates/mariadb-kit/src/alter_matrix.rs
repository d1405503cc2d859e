//! What each kind of ALTER TABLE needs, of both engines: the table of docs/mariadb.md, cell by
//! cell.

use super::client::{Client, Reply};
use super::server::Server;
use inkstone_testkit::build::Result;

const DOCUMENT: &str = include_str!("../../../docs/mariadb.md");
/// Before the rows of the document's table.
const HEADING: &str = "| Change | InnoDB | Inkstone |";

/// From the one that does least.
const ALGORITHMS: [&str; 4] = ["INSTANT", "NOCOPY", "INPLACE", "COPY"];
const LOCKS: [&str; 3] = ["NONE", "SHARED", "EXCLUSIVE"];

const COLUMNS: &str = "id INT NOT NULL PRIMARY KEY, a INT NOT NULL, b INT, c VARCHAR(20), d VARCHAR(20), \
    l VARCHAR(200), e ENUM('x','y') NOT NULL, s SET('p','q'), x TEXT, v INT AS (a + 1) VIRTUAL, \
    w INT AS (a + 2) STORED, m VARCHAR(20) CHARACTER SET utf8mb3, n CHAR(10), u INT NOT NULL, \
    t DATETIME, KEY kc (c), KEY kb (b, e), UNIQUE KEY ku (u), CONSTRAINT ck CHECK (a > -100)";
const ROWS: &str = "INSERT INTO t (id, a, b, c, d, e, u, x, m, n, t) SELECT seq, seq, seq, 'c', 'd', 'x', seq, \
    'x', 'm', 'n', '2026-01-01' FROM seq_1_to_50";
const COLUMNS_WITHOUT_KEY: &str = "a INT NOT NULL, b INT NOT NULL, c VARCHAR(20)";
const ROWS_WITHOUT_KEY: &str = "INSERT INTO t SELECT seq, seq, 'c' FROM seq_1_to_50";

/// Checks it on a server without other clients.
pub fn check(server: &Server) -> Result<()> {
    let mut client = Client::connect(server.socket()).map_err(|error| error.to_string())?;
    let mut wrong = Vec::new();
    for row in rows()? {
        for (engine, noted) in [("InnoDB", &row.innodb), ("Inkstone", &row.inkstone)] {
            let found = least(&mut client, engine, &row)?;
            if found != *noted {
                wrong.push(format!(
                    "{} of {engine}: {found}, docs/mariadb.md says {noted}",
                    row.change
                ));
            }
        }
    }
    run(&mut client, "DROP DATABASE matrix")?;
    if !wrong.is_empty() {
        return Err(wrong.join("\n"));
    }
    Ok(())
}

/// A row of the document's table.
struct Row {
    change: String,
    innodb: String,
    inkstone: String,
}

fn rows() -> Result<Vec<Row>> {
    let start = DOCUMENT
        .find(HEADING)
        .ok_or_else(|| format!("docs/mariadb.md lacks {HEADING:?}"))?;
    let rows = DOCUMENT[start..].lines().skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            match cells[..] {
                [change, innodb, inkstone] => Ok(Row {
                    change: change.trim_matches('`').to_owned(),
                    innodb: innodb.to_owned(),
                    inkstone: inkstone.to_owned(),
                }),
                _ => Err(format!(
                    "docs/mariadb.md: a row without three cells: {line}"
                )),
            }
        })
        .collect()
}

/// The algorithm that does least of those that an engine takes, with the lock that lets most others
/// go on.
fn least(client: &mut Client, engine: &str, row: &Row) -> Result<String> {
    let (change, without_key) = match row.change.strip_suffix("` of a table without a key") {
        Some(change) => (change, true),
        None => (row.change.as_str(), false),
    };
    let (columns, rows) = if without_key {
        (COLUMNS_WITHOUT_KEY, ROWS_WITHOUT_KEY)
    } else {
        (COLUMNS, ROWS)
    };
    run(
        client,
        "CREATE DATABASE IF NOT EXISTS matrix CHARACTER SET latin1",
    )?;
    run(client, "USE matrix")?;
    run(client, "DROP TABLE IF EXISTS t, p")?;
    run(
        client,
        &format!("CREATE TABLE p (id INT PRIMARY KEY) ENGINE = {engine}"),
    )?;
    run(client, "INSERT INTO p SELECT seq FROM seq_1_to_50")?;
    run(
        client,
        &format!("CREATE TABLE t ({columns}) ENGINE = {engine}"),
    )?;
    run(client, rows)?;
    for algorithm in ALGORITHMS {
        for lock in LOCKS {
            let statement =
                format!("ALTER TABLE t {change}, ALGORITHM = {algorithm}, LOCK = {lock}");
            match client.run(&statement) {
                Ok(Reply::Refused(refusal)) if matches!(refusal.code, 1845 | 1846) => {}
                Ok(Reply::Refused(refusal)) => return Ok(format!("error {}", refusal.code)),
                Ok(_) => {
                    check_table(client)?;
                    return Ok(match algorithm {
                        "INSTANT" => algorithm.to_owned(),
                        _ => format!("{algorithm}, {lock}"),
                    });
                }
                Err(error) => return Err(format!("{statement}: {error}")),
            }
        }
    }
    Err(format!(
        "ALTER TABLE t {change} is done by {engine} in no way"
    ))
}

fn check_table(client: &mut Client) -> Result<()> {
    let Reply::Rows(found) = run(client, "CHECK TABLE t EXTENDED")? else {
        return Err("CHECK TABLE gives no rows".to_owned());
    };
    let ends = found.rows.iter().map(|row| row.last().cloned().flatten());
    if !ends.clone().all(|end| end.as_deref() == Some(b"OK")) {
        return Err(format!("CHECK TABLE: {:?}", ends.collect::<Vec<_>>()));
    }
    Ok(())
}

fn run(client: &mut Client, statement: &str) -> Result<Reply> {
    match client.run(statement) {
        Ok(Reply::Refused(refusal)) => Err(format!(
            "{statement}: error {}: {}",
            refusal.code, refusal.message
        )),
        Ok(reply) => Ok(reply),
        Err(error) => Err(format!("{statement}: {error}")),
    }
}
