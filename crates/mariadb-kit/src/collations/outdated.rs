//! Tables of a build whose indexes sorted text otherwise (`images-v1.tar.gz`, made by the plugin of
//! commit 75e0bd4): they are read rightly or refused with a clear error, until ALTER TABLE ...
//! FORCE makes their indexes anew.

use super::super::apt::output;
use super::super::plugin::Plugin;
use super::super::server::Server;
use super::super::tree::Tree;
use inkstone_testkit::build::{Result, root};
use std::process::Command;

/// Tables of the fixture with text in their indexes: a secondary one, the primary key, partitions.
const OUTDATED: [&str; 3] = ["texts", "by_text", "parts"];

/// Tables of the fixture that are as this version makes them: text of one byte a character, none in
/// indexes.
const SOUND: [&str; 2] = ["plain", "unindexed"];

/// What outdated tables are asked: without a hint before the rebuild, and with `FORCE INDEX`
/// afterwards. The answers must be the same.
const QUESTIONS: [(&str, &str); 4] = [
    (
        "SELECT GROUP_CONCAT(id ORDER BY n) FROM (SELECT id, ROW_NUMBER() OVER () n FROM
         (SELECT id FROM texts HINT ORDER BY t, id LIMIT 40) a) b",
        "t",
    ),
    (
        "SELECT COUNT(*), SUM(id) FROM texts HINT WHERE t > CONCAT(REPEAT('constraint', 3), 'k')",
        "t",
    ),
    (
        "SELECT COUNT(*), SUM(n), MIN(m) FROM by_text HINT WHERE m BETWEEN '10 c' AND '3 constraint'",
        "PRIMARY",
    ),
    (
        "SELECT COUNT(*), SUM(id), MAX(m) FROM parts HINT WHERE m < CONCAT(REPEAT('constraint', 3), 'k')",
        "m",
    ),
];

/// Opens the fixture and does all that a user would.
pub fn check(tree: &Tree, plugin: &Plugin) -> Result<()> {
    let mut server = Server::temporary(tree, "outdated");
    server.start()?;
    server.stop()?;
    let fixture = root().join("crates/mariadb-kit/src/collations/images-v1.tar.gz");
    let mut tar = Command::new("tar");
    output(tar.arg("-xzf").arg(&fixture).arg("-C").arg(server.data()))?;
    let mut server = server.with_plugin(plugin);
    server.start()?;
    for table in SOUND {
        server.sql(&format!(
            "UPDATE old.{table} SET m = CONCAT(m, 'x') WHERE id = 7"
        ))?;
        expect(
            &server,
            &format!("CHECK TABLE old.{table} FOR UPGRADE"),
            "OK",
        )?;
        expect(&server, &format!("CHECK TABLE old.{table}"), "OK")?;
    }
    long_keys(&server)?;
    let before = answers(&server, "")?;
    refused(
        &server,
        "HANDLER old.texts OPEN AS h; HANDLER h READ t FIRST",
        "texts",
    )?;
    for table in OUTDATED {
        expect(
            &server,
            &format!("CHECK TABLE old.{table} FOR UPGRADE"),
            " required",
        )?;
        for change in [
            "INSERT INTO old.TABLE (m) VALUES ('a')",
            "DELETE FROM old.TABLE",
            "UPDATE old.TABLE SET m = m",
        ] {
            refused(&server, &change.replace("TABLE", table), table)?;
        }
        match table {
            // What the server itself advises of partitions.
            "parts" => expect(&server, "REPAIR TABLE old.parts", "OK")?,
            _ => drop(server.sql(&format!("ALTER TABLE old.{table} FORCE"))?),
        }
        expect(
            &server,
            &format!("CHECK TABLE old.{table} FOR UPGRADE"),
            "OK",
        )?;
        expect(&server, &format!("CHECK TABLE old.{table}"), "OK")?;
        server.sql(&format!("UPDATE old.{table} SET m = CONCAT(m, '')"))?;
    }
    server.stop()?;
    server.start()?;
    for hint in ["", "FORCE"] {
        let after = answers(&server, hint)?;
        if before != after {
            return Err(format!(
                "tables of an earlier build answer otherwise before and after their rebuild ({hint:?}):\n{before}\n{after}"
            ));
        }
    }
    server.stop()?;
    server.remove();
    Ok(())
}

/// A table whose indexes are sound, but of a build that did not cut long keys: it refuses such a
/// row, and nothing else.
fn long_keys(server: &Server) -> Result<()> {
    server.sql("ALTER TABLE old.plain ADD COLUMN w VARBINARY(3000), ALGORITHM=INSTANT")?;
    server.sql("ALTER TABLE old.plain ADD KEY w (w), ALGORITHM=NOCOPY")?;
    let change =
        |id, length| format!("UPDATE old.plain SET w = REPEAT(x'00', {length}) WHERE id = {id}");
    server.sql(&change(7, 1530))?;
    refused(server, &change(8, 1540), "plain")?;
    expect(server, "CHECK TABLE old.plain", "OK")?;
    server.sql("ALTER TABLE old.plain FORCE")?;
    server.sql(&change(8, 1540))?;
    expect(
        server,
        "SELECT GROUP_CONCAT(id ORDER BY w) FROM old.plain FORCE INDEX (w) WHERE w > ''",
        "7,8",
    )?;
    expect(server, "CHECK TABLE old.plain", "OK")
}

fn answers(server: &Server, hint: &str) -> Result<String> {
    let mut answers = String::new();
    for (question, index) in QUESTIONS {
        let hint = match hint {
            "" => String::new(),
            hint => format!("{hint} INDEX ({index})"),
        };
        answers += &server.sql(&format!("USE old; {}", question.replace("HINT", &hint)))?;
    }
    Ok(answers)
}

/// Runs a statement that must print `text`.
fn expect(server: &Server, statement: &str, text: &str) -> Result<()> {
    let printed = server.sql(statement)?;
    if printed.contains(text) {
        Ok(())
    } else {
        Err(format!("{statement} does not say {text:?} but\n{printed}"))
    }
}

/// Runs a statement that must fail with the advice what to do.
fn refused(server: &Server, statement: &str, table: &str) -> Result<()> {
    let advice = format!("ALTER TABLE `{table}` FORCE");
    match server.sql(statement) {
        Err(error) if error.contains(&advice) => Ok(()),
        answer => Err(format!(
            "{statement}, with indexes of an earlier build: {answer:?}"
        )),
    }
}
