//! Where pages are kept, as SQL says: what the files are, behind each statement that makes one,
//! and whatever the server's variables say by then.

use super::super::orphans;
use super::super::server::Server;
use super::super::smoke::check_tables;
use inkstone::{Database, Options};
use inkstone_testkit::build::Result;
use std::collections::BTreeMap;

/// Statements, and what tables of a database are behind them: name, placement and compression.
struct Phase {
    /// `inkstone_page_placement` and `inkstone_page_compression`.
    variables: (&'static str, &'static str),
    statements: &'static str,
    tables: &'static str,
}

/// The second phase has other variables, and names nothing: what there is stays what it was.
const PHASES: [Phase; 3] = [
    Phase {
        variables: ("in_place", "lz4"),
        statements: "CREATE TABLE plain (id INT PRIMARY KEY, a INT, b VARCHAR(1000), KEY (a)) ENGINE=Inkstone;
CREATE TABLE placed (id INT PRIMARY KEY, a INT, b VARCHAR(1000), KEY (a)) ENGINE=Inkstone PAGE_PLACEMENT=placed;
CREATE TABLE packed (id INT PRIMARY KEY, a INT, b VARCHAR(1000), KEY (a)) ENGINE=Inkstone PAGE_COMPRESSED=1;
CREATE TABLE raw (id INT PRIMARY KEY, a INT, b VARCHAR(1000)) ENGINE=Inkstone PAGE_PLACEMENT='PLACED' PAGE_COMPRESSED=off;
CREATE TABLE formatted (id INT PRIMARY KEY, a INT, b VARCHAR(1000)) ENGINE=Inkstone ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=4;
CREATE TABLE blocks (id INT PRIMARY KEY, a INT, b VARCHAR(1000)) ENGINE=Inkstone KEY_BLOCK_SIZE=8;
CREATE TABLE small (id INT PRIMARY KEY, a INT, b VARCHAR(1000)) ENGINE=Inkstone PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=9;
CREATE TABLE parts (id INT PRIMARY KEY, a INT, b VARCHAR(1000)) ENGINE=Inkstone PAGE_PLACEMENT=placed
  PARTITION BY HASH (id) PARTITIONS 2;
CREATE TABLE mixed (id INT PRIMARY KEY, a INT, b VARCHAR(1000)) ENGINE=Inkstone PAGE_PLACEMENT=in_place
  PARTITION BY HASH (id) PARTITIONS 3;
CREATE TABLE part (id INT PRIMARY KEY, a INT, b VARCHAR(1000)) ENGINE=Inkstone PAGE_PLACEMENT=placed PAGE_COMPRESSED=0;
ALTER TABLE mixed EXCHANGE PARTITION p0 WITH TABLE part;
CREATE TABLE innodb (id INT PRIMARY KEY, a INT, b VARCHAR(1000)) ENGINE=InnoDB PAGE_COMPRESSED=1;",
        tables: "blocks placed lz4, formatted placed lz4, mixed#P#p0 placed none, mixed#P#p1 in_place none, \
                 mixed#P#p2 in_place none, packed placed lz4, part in_place none, parts#P#p0 placed lz4, \
                 parts#P#p1 placed lz4, placed placed lz4, plain in_place none, raw placed none, small placed zstd 9",
    },
    Phase {
        variables: ("placed", "zstd"),
        statements: "ALTER TABLE plain FORCE, ALGORITHM=COPY; OPTIMIZE TABLE placed, packed, plain, formatted, blocks, small; CREATE INDEX b ON plain (b(9));
CREATE INDEX a ON blocks (a) ALGORITHM=COPY;
TRUNCATE TABLE formatted; INSERT INTO formatted SELECT * FROM plain; RENAME TABLE blocks TO block;
ALTER TABLE block MODIFY a BIGINT; ALTER TABLE packed COMMENT='kept', ALGORITHM=INSTANT;
CREATE TABLE like_plain LIKE plain; CREATE TABLE like_packed LIKE packed; CREATE TABLE by_variable LIKE raw;
CREATE OR REPLACE TABLE by_variable (id INT PRIMARY KEY) ENGINE=Inkstone;
ALTER TABLE parts ADD PARTITION PARTITIONS 1; ALTER TABLE parts TRUNCATE PARTITION p0;
ALTER TABLE mixed ADD PARTITION PARTITIONS 1; ALTER TABLE part FORCE;
ALTER TABLE innodb ENGINE=Inkstone; ALTER TABLE small FORCE, ALGORITHM=COPY;",
        tables: "block placed lz4, by_variable placed zstd 1, formatted placed lz4, innodb placed zstd 1, \
                 like_packed placed lz4, like_plain in_place none, mixed#P#p0 in_place none, \
                 mixed#P#p1 in_place none, mixed#P#p2 in_place none, mixed#P#p3 in_place none, packed placed lz4, \
                 part placed none, parts#P#p0 placed lz4, parts#P#p1 placed lz4, parts#P#p2 placed lz4, \
                 placed placed lz4, plain in_place none, raw placed none, small placed zstd 9",
    },
    Phase {
        variables: ("in_place", "lz4"),
        statements: "ALTER TABLE plain PAGE_PLACEMENT=placed; ALTER TABLE placed PAGE_PLACEMENT=in_place;
ALTER TABLE packed PAGE_COMPRESSED=0; ALTER TABLE formatted ROW_FORMAT=DYNAMIC; ALTER TABLE like_plain ROW_FORMAT=COMPRESSED;
ALTER TABLE raw PAGE_PLACEMENT=DEFAULT; ALTER TABLE by_variable ENGINE=Inkstone; ALTER TABLE parts PAGE_COMPRESSED=0;
ALTER TABLE like_packed PAGE_COMPRESSED=yes, ADD COLUMN c INT, ALGORITHM=INSTANT;
ALTER TABLE small PAGE_COMPRESSION_LEVEL=19; ALTER TABLE mixed EXCHANGE PARTITION p1 WITH TABLE part;
ALTER TABLE innodb PAGE_COMPRESSED=0, PAGE_PLACEMENT=placed, ADD INDEX (a), RENAME TO renamed;",
        tables: "block placed lz4, by_variable placed zstd 1, formatted in_place none, like_packed placed lz4, \
                 like_plain placed lz4, mixed#P#p0 in_place none, mixed#P#p1 placed none, mixed#P#p2 in_place none, \
                 mixed#P#p3 in_place none, packed in_place none, part in_place none, parts#P#p0 placed none, \
                 parts#P#p1 placed none, parts#P#p2 placed none, placed in_place none, \
                 plain placed lz4, raw in_place none, renamed placed none, \
                 small placed zstd 19",
    },
];

/// What is refused behind the last phase, and what the error says.
const REFUSED: [(&str, &str); 14] = [
    (
        "CREATE TABLE n (a INT) ENGINE=Inkstone PAGE_PLACEMENT=in_place PAGE_COMPRESSED=1",
        "PAGE_PLACEMENT=in_place with PAGE_COMPRESSED=1",
    ),
    (
        "CREATE TABLE n (a INT) ENGINE=Inkstone PAGE_PLACEMENT=in_place ROW_FORMAT=COMPRESSED",
        "PAGE_PLACEMENT=in_place with ROW_FORMAT=COMPRESSED",
    ),
    (
        "CREATE TABLE n (a INT) ENGINE=Inkstone ROW_FORMAT=COMPRESSED PAGE_COMPRESSED=0",
        "PAGE_COMPRESSED=0 with ROW_FORMAT=COMPRESSED",
    ),
    (
        "CREATE TABLE n (a INT) ENGINE=Inkstone ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE=8",
        "KEY_BLOCK_SIZE",
    ),
    (
        "CREATE TABLE n (a INT) ENGINE=Inkstone PAGE_PLACEMENT=elsewhere",
        "elsewhere",
    ),
    (
        "CREATE TABLE n (a INT) ENGINE=Inkstone PAGE_COMPRESSION_LEVEL=3",
        "PAGE_COMPRESSION_LEVEL without PAGE_COMPRESSED=1",
    ),
    (
        "CREATE TABLE n (a INT) ENGINE=Inkstone PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=20",
        "PAGE_COMPRESSION_LEVEL",
    ),
    (
        "ALTER TABLE placed PAGE_COMPRESSED=1",
        "PAGE_PLACEMENT=in_place with PAGE_COMPRESSED=1",
    ),
    (
        "ALTER TABLE placed PAGE_PLACEMENT=placed, ALGORITHM=INPLACE",
        "ALGORITHM=INPLACE is not supported",
    ),
    (
        "ALTER TABLE block PAGE_PLACEMENT=in_place",
        "'PAGE_PLACEMENT=in_place with KEY_BLOCK_SIZE'",
    ),
    (
        "ALTER TABLE mixed PAGE_PLACEMENT=in_place, ALGORITHM=INSTANT",
        "ALGORITHM=INSTANT is not supported",
    ),
    (
        "ALTER TABLE mixed PAGE_PLACEMENT=placed, ALGORITHM=INSTANT",
        "ALGORITHM=INSTANT is not supported",
    ),
    (
        "ALTER TABLE mixed EXCHANGE PARTITION p2 WITH TABLE small",
        "Non matching attribute 'ROW_FORMAT'",
    ),
    (
        "ALTER TABLE like_plain PAGE_PLACEMENT=in_place",
        "'PAGE_PLACEMENT=in_place with ROW_FORMAT=COMPRESSED'",
    ),
];

/// What the server shows behind the last phase: format and options of tables.
const SHOWN: &str = "block\tCompressed\tkey_block_size=8\n\
                     like_plain\tCompressed\trow_format=COMPRESSED\n\
                     placed\tDynamic\t`PAGE_PLACEMENT`=in_place\n\
                     plain\tCompressed\t`PAGE_PLACEMENT`=placed\n";

const ROWS: &str =
    "SELECT seq AS id, seq AS a, REPEAT(CONCAT('text ', seq), 20) AS b FROM seq_1_to_3000";

/// Runs the phases on a server without other clients.
pub fn check(server: &mut Server) -> Result<()> {
    server.sql("CREATE OR REPLACE DATABASE places")?;
    for (number, phase) in PHASES.iter().enumerate() {
        server.stop()?;
        let (placement, compression) = phase.variables;
        server.set_option("loose-inkstone-page-placement", placement);
        server.set_option("loose-inkstone-page-compression", compression);
        server.start()?;
        let say = |error: String| format!("places, phase {}: {error}", number + 1);
        server
            .sql(&format!("USE places; {}", phase.statements))
            .map_err(say)?;
        if number == 0 {
            fill(server)?;
        }
        orphans::check_running(server, "places").map_err(say)?;
        orphans::check_number(server).map_err(say)?;
        check_tables(server).map_err(say)?;
        let found = kinds(server).map_err(say)?;
        let expected: BTreeMap<String, String> = phase
            .tables
            .split(", ")
            .filter_map(|table| table.split_once(' '))
            .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
            .collect();
        if found != expected {
            return Err(say(format!("the files are {found:?}, not {expected:?}")));
        }
    }
    check_refused(server)?;
    check_shown(server)?;
    println!(
        "tables are kept where their definitions say, behind {} phases",
        PHASES.len()
    );
    server.sql("DROP DATABASE places")?;
    orphans::check_number(server)
}

fn fill(server: &Server) -> Result<()> {
    for table in [
        "plain",
        "placed",
        "packed",
        "raw",
        "small",
        "formatted",
        "blocks",
        "parts",
        "innodb",
    ] {
        server.sql(&format!("INSERT INTO places.{table} {ROWS}"))?;
    }
    Ok(())
}

/// What each table's file is, by the library, while no server has the directory. A file has a
/// place map if its table is placed, and no other has.
fn kinds(server: &mut Server) -> Result<BTreeMap<String, String>> {
    server.stop()?;
    let directory = server.data().join("inkstone");
    let say = |error| format!("{}: {error}", directory.display());
    let database = Database::open(&directory, Options::default()).map_err(say)?;
    let mut found = BTreeMap::new();
    for name in database.tables().map_err(say)? {
        let table = database.table(&name).map_err(say)?;
        let Some(name) = name.strip_prefix("places/") else {
            continue;
        };
        let kind: Vec<String> = table.options().show().into_iter().map(|it| it.1).collect();
        let has_map = table.path().with_extension("places").exists();
        if has_map != (kind[0] == "placed") {
            return Err(format!(
                "{name} is {kind:?}, and has a place map: {has_map}"
            ));
        }
        found.insert(name.to_owned(), kind.join(" "));
    }
    database.close().map_err(say)?;
    server.start()?;
    Ok(found)
}

fn check_refused(server: &mut Server) -> Result<()> {
    let before = kinds(server)?;
    for (statement, named) in REFUSED {
        match server.sql(&format!("USE places; {statement}")) {
            Err(error) if error.contains(named) => {}
            other => {
                return Err(format!(
                    "{statement}: not refused with {named}, but {other:?}"
                ));
            }
        }
    }
    let after = kinds(server)?;
    if after == before {
        Ok(())
    } else {
        Err(format!("refused statements made {after:?} of {before:?}"))
    }
}

fn check_shown(server: &Server) -> Result<()> {
    let shown = server.sql(
        "SELECT table_name, row_format, create_options FROM information_schema.tables \
         WHERE table_schema = 'places' AND table_name IN ('plain', 'placed', 'like_plain', 'block') ORDER BY table_name",
    )?;
    // A table's pages are longer than what they take in its file: that was taken for free room.
    let too_free = server.sql(
        "SELECT table_name, data_free FROM information_schema.tables \
         WHERE table_schema = 'places' AND data_free > data_length + (1 << 20)",
    )?;
    if !too_free.is_empty() {
        return Err(format!(
            "more room is said to be free than there is: {too_free}"
        ));
    }
    let definition = server.sql("SHOW CREATE TABLE places.plain")?;
    if shown == SHOWN && definition.contains("`PAGE_PLACEMENT`=placed") {
        Ok(())
    } else {
        Err(format!(
            "{shown:?} is shown, and not {SHOWN:?}; or {definition}"
        ))
    }
}
