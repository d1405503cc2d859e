//! What a replica makes of a case: it runs the case's binary log, and then has the rows of its
//! source.
//!
//! The server of the cases is a primary, whose binary log has the *format* of the case: ROW, MIXED
//! or STATEMENT. A replica follows it all the time, one event after the other. When a case is over,
//! and no session of it is left, the replica is waited for, and its tables are compared with the
//! source's, those of InnoDB and those of Inkstone.
//!
//! - *Apart*: the replica stopped with an error in an engine's database, or has other rows. The
//!   error's event is passed over, so that the other engine's side and the cases behind it are
//!   compared, too: each begins with databases of its own.
//! - In STATEMENT a statement may be one that the server calls unsafe. If InnoDB's copy is apart in
//!   the same way as Inkstone's, that is the server's doing, and counted. In ROW and MIXED there is
//!   no such excuse.
//!
//! Before the first case rows are changed that the binary log does not have, so that the replica
//! must be apart: a comparison that sees nothing does not begin.

use super::OPTIONS;
use super::compare::Difference;
use super::generate;
use super::script::{Script, Step};
use super::stage::{Engine, text_of};
use crate::client::{Client, Reply, Rows};
use crate::kept;
use crate::pair::{Format, Pair, Shape};
use crate::plugin::Plugin;
use crate::random::Random;
use crate::tree::Tree;
use inkstone_testkit::build::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Nothing is killed, so nothing is synced; positions are kept in a table of each engine, as rows
/// are. A replica never waits: its one thread does what others have done one after the other.
const OF_REPLICA: [&str; 5] = [
    "--skip-log-bin",
    "--skip-log-slave-updates",
    "--gtid-pos-auto-engines=innodb,inkstone",
    "--innodb-lock-wait-timeout=3",
    "--inkstone-lock-wait-timeout=3",
];
/// A replica that has not come so far by then does not go on.
const PATIENCE: Duration = Duration::from_secs(60);
/// Seconds that one question for the replica's position takes at most: it may have stopped
/// meanwhile.
const PART: &str = "0.2";
/// Where they stand in SHOW SLAVE STATUS.
const SQL_RUNNING: usize = 11;
const LAST_ERROR: [usize; 2] = [18, 19];

/// A replica of the cases' server, and what it has shown.
pub struct Replica {
    pair: Pair,
    primary: Client,
    replica: Client,
    /// Cases by their format: how many were compared, and how many rows their tables had.
    compared: BTreeMap<Format, [u64; 2]>,
    /// How often InnoDB's copy was apart in the same way as Inkstone's, by the way, and the first
    /// script of that.
    alike: BTreeMap<String, (u64, String)>,
}

/// How an engine's copy is not as its source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Apart {
    /// In words that are the same in both engines.
    kind: String,
    text: String,
}

impl Replica {
    /// Both servers, and the proof that they can be apart.
    pub fn start(tree: &Tree, plugin: &Plugin, seed: u64) -> Result<Self> {
        let chosen = kept::options(&mut Random(seed));
        let own = chosen.iter().map(String::as_str);
        let options: Vec<&str> = OPTIONS.into_iter().chain(own).collect();
        let shape = Shape {
            name: "sessions",
            synced: false,
            options: &options,
            of_replica: &OF_REPLICA,
            ..Shape::default()
        };
        let pair = Pair::start(tree, plugin, &shape)?;
        let connect = |socket: &Path| Client::connect(socket).map_err(|error| error.to_string());
        let mut this = Self {
            primary: connect(pair.primary.socket())?,
            replica: connect(pair.replica.socket())?,
            pair,
            compared: BTreeMap::new(),
            alike: BTreeMap::new(),
        };
        this.prove()?;
        Ok(this)
    }

    /// Of the server of the cases.
    pub fn socket(&self) -> &Path {
        self.pair.primary.socket()
    }

    /// Where the servers' files are.
    pub fn folders(&self) -> String {
        let folders = [self.pair.primary.folder(), self.pair.replica.folder()];
        format!("{folders:?}")
    }

    /// Ends both.
    pub fn remove(self) {
        self.pair.primary.remove();
        self.pair.replica.remove();
    }

    /// What connects from now on logs in this format.
    pub fn log_in(&mut self, format: Format) -> Result<()> {
        let set = format!("SET GLOBAL binlog_format = {}", format.name());
        ask(&mut self.primary, &set).map(drop)
    }

    /// Compares what a case has left with its copy. All its sessions are gone.
    pub fn compare(&mut self, script: &Script) -> Result<Option<Difference>> {
        let format = script.format.unwrap_or(Format::Row);
        let (sides, rows) = self.apart()?;
        let [cases, of_all] = self.compared.entry(format).or_default();
        (*cases, *of_all) = (*cases + 1, *of_all + rows);
        let both_alike = match &sides {
            [None, None] => return Ok(None),
            [Some(innodb), Some(inkstone)] => innodb.kind == inkstone.kind,
            _ => false,
        };
        let kind = |side: &Option<Apart>| {
            let kind = side.as_ref().map(|apart| apart.kind.as_str());
            kind.unwrap_or("is as its source").to_owned()
        };
        if both_alike && format == Format::Statement {
            let first = (0, script.name.clone());
            self.alike.entry(kind(&sides[1])).or_insert(first).0 += 1;
            return Ok(None);
        }
        Ok(Some(Difference {
            what: format!(
                "on the replica, {}: InnoDB's copy {}, Inkstone's {}",
                format.name(),
                kind(&sides[0]),
                kind(&sides[1])
            ),
            at: script.steps.len(),
            sides: sides.map(|side| match side {
                Some(apart) => apart.text,
                None => "    is as its source\n".to_owned(),
            }),
        }))
    }

    /// What was compared.
    pub fn print(&self) {
        for (format, [cases, rows]) in &self.compared {
            let format = format.name();
            println!("{format}: {cases} scripts and their {rows} rows compared on the replica");
        }
        for (kind, (times, first)) in &self.alike {
            println!("{times} times, STATEMENT: each engine's copy {kind} (first in {first})");
        }
    }

    /// As [`Self::print`] says it.
    pub fn json(&self) -> serde_json::Value {
        let compared = self.compared.iter().map(|(format, [cases, rows])| {
            let counts = serde_json::json!({ "scripts": cases, "rows": rows });
            (format.name().to_owned(), counts)
        });
        serde_json::json!({
            "compared": compared.collect::<serde_json::Map<_, _>>(),
            "alike": self.alike,
        })
    }

    /// Both engines' copies beside their sources, and how many rows those have.
    fn apart(&mut self) -> Result<([Option<Apart>; 2], u64)> {
        let mut sides = self.catch_up()?;
        let mut all = 0;
        for (engine, side) in Engine::BOTH.into_iter().zip(&mut sides) {
            let (rows, apart) = self.compare_rows(engine)?;
            all += rows;
            // What comes behind an error is no news.
            *side = side.take().or(apart);
        }
        Ok((sides, all))
    }

    /// Waits until the replica has all that there is; the first error of each engine.
    fn catch_up(&mut self) -> Result<[Option<Apart>; 2]> {
        let position = word(&ask(&mut self.primary, "SELECT @@gtid_binlog_pos")?);
        let wait = format!("SELECT MASTER_GTID_WAIT('{position}', {PART})");
        let mut sides = [None, None];
        let began = Instant::now();
        while word(&ask(&mut self.replica, &wait)?) != "0" {
            let status = ask(&mut self.replica, "SHOW SLAVE STATUS")?;
            let status = status.rows.first().ok_or("the replica has no primary")?;
            let field = |at: usize| text_of(&status[at]);
            if field(SQL_RUNNING) == "No" {
                let [number, text] = LAST_ERROR.map(field);
                let whose = Engine::BOTH.map(|engine| text.contains(engine.database()));
                let (true, Some(whose)) = (number != "0", whose.iter().position(|is| *is)) else {
                    return Err(format!("the replica stopped: error {number}: {text}"));
                };
                sides[whose].get_or_insert(Apart {
                    kind: format!("stops with error {number}"),
                    text: format!("    error {number}: {text}\n"),
                });
                ask(&mut self.replica, "SET GLOBAL sql_slave_skip_counter = 1")?;
                ask(&mut self.replica, "START SLAVE")?;
            } else if began.elapsed() > PATIENCE {
                let doing = ask(&mut self.replica, "SHOW FULL PROCESSLIST")?;
                return Err(format!(
                    "the replica does not reach {position}:\n{}",
                    lines(&doing.rows)
                ));
            }
        }
        Ok(sides)
    }

    /// An engine's tables on both sides: how many rows the source has, and whether they and the
    /// copy's differ.
    fn compare_rows(&mut self, engine: Engine) -> Result<(u64, Option<Apart>)> {
        let database = engine.database();
        let tables = format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}' ORDER BY 1"
        );
        let [source, copy] = self.both(&tables)?;
        let apart = |kind: &str, sides: [&Rows; 2]| Apart {
            kind: kind.to_owned(),
            text: format!(
                "    source: {}\n    replica: {}\n",
                lines(&sides[0].rows),
                lines(&sides[1].rows)
            ),
        };
        if source != copy {
            return Ok((0, Some(apart("has other tables", [&source, &copy]))));
        }
        let mut all = 0;
        for table in source.rows.iter().flatten().map(text_of) {
            let [mut source, mut copy] = self.both(&format!("SELECT * FROM {database}.{table}"))?;
            source.rows.sort();
            copy.rows.sort();
            all += source.rows.len() as u64;
            if source.rows != copy.rows {
                let kind = format!("has other rows in {table}");
                return Ok((all, Some(apart(&kind, [&source, &copy]))));
            }
            let check = format!("CHECK TABLE {database}.{table}");
            let checked = ask(&mut self.replica, &check)?;
            let is_ok = |row: &Vec<_>| row.last().is_some_and(|last| text_of(last) == "OK");
            if !checked.rows.iter().all(is_ok) {
                let kind = format!("does not pass CHECK TABLE {table}");
                return Ok((all, Some(apart(&kind, [&source, &checked]))));
            }
        }
        Ok((all, None))
    }

    fn both(&mut self, statement: &str) -> Result<[Rows; 2]> {
        Ok([
            ask(&mut self.primary, statement)?,
            ask(&mut self.replica, statement)?,
        ])
    }

    /// Has the replica be apart: a row that the binary log lacks, and one that the replica has
    /// already. Each is to be seen in the engine in which it is, and nothing of it afterwards.
    fn prove(&mut self) -> Result<()> {
        for format in Format::ALL {
            self.log_in(format)?;
            let mut session = Client::connect(self.socket()).map_err(|error| error.to_string())?;
            let begin = |client: &mut Client| -> Result<()> {
                for engine in Engine::BOTH {
                    let (database, engine) = (engine.database(), engine.name());
                    for statement in [
                        format!("CREATE OR REPLACE DATABASE {database}"),
                        format!(
                            "CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT) ENGINE={engine}"
                        ),
                        format!("INSERT INTO {database}.t VALUES (1, 1)"),
                    ] {
                        ask(client, &statement)?;
                    }
                }
                Ok(())
            };
            for (at, engine) in Engine::BOTH.into_iter().enumerate() {
                let table = format!("{}.t", engine.database());
                let expect = |this: &mut Self, expected: Option<&str>| -> Result<()> {
                    let (mut sides, _) = this.apart()?;
                    let found = sides[at].take().map(|apart| apart.kind);
                    match (found.as_deref() == expected, sides) {
                        (true, [None, None]) => Ok(()),
                        (_, sides) => Err(format!(
                            "the comparison with the replica does not work, {}, {}: {found:?} instead of {expected:?}, {sides:?}",
                            format.name(),
                            engine.name(),
                        )),
                    }
                };
                begin(&mut session)?;
                expect(self, None)?;
                ask(&mut session, "SET SESSION sql_log_bin = 0")?;
                ask(&mut session, &format!("INSERT INTO {table} VALUES (2, 2)"))?;
                ask(&mut session, "SET SESSION sql_log_bin = 1")?;
                expect(self, Some("has other rows in t"))?;
                begin(&mut session)?;
                expect(self, None)?;
                let own = format!("INSERT INTO {table} VALUES (3, 0)");
                ask(&mut self.replica, &own)?;
                ask(&mut session, &format!("USE {}", engine.database()))?;
                ask(&mut session, &format!("INSERT INTO {table} VALUES (3, 3)"))?;
                expect(self, Some("stops with error 1062"))?;
            }
        }
        Ok(())
    }
}

/// A script with the format of its binary log, if it does not say it itself.
pub fn with_format(mut script: Script, seed: u64) -> Script {
    if script.format.is_some() {
        return script;
    }
    // From random numbers of its own, so that a case's statements stay the same.
    let mut hash = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(&(seed, &script.name), &mut hash);
    let mut random = Random(std::hash::Hasher::finish(&hash));
    let is_weak = |step: &Step| WEAK.iter().any(|level| step.statement.ends_with(level));
    let has_weak = script.steps.iter().any(is_weak);
    let mut format = *random.pick(&Format::ALL);
    // There both engines refuse every change (error 1665).
    if format == Format::Statement && has_weak && !random.chance(10) {
        if script.name.starts_with(generate::NAME) {
            strengthen(&mut script.steps, &mut random);
        } else {
            format = *random.pick(&[Format::Row, Format::Mixed]);
        }
    }
    script.format = Some(format);
    script
}

const WEAK: [&str; 2] = ["READ UNCOMMITTED", "READ COMMITTED"];
const STRONG: [&str; 2] = ["REPEATABLE READ", "SERIALIZABLE"];

fn strengthen(steps: &mut [Step], random: &mut Random) {
    for step in steps {
        for level in WEAK {
            if let Some(begin) = step.statement.strip_suffix(level) {
                step.statement = format!("{begin}{}", random.word(&STRONG));
            }
        }
    }
}

fn ask(client: &mut Client, statement: &str) -> Result<Rows> {
    match client.run(statement) {
        Ok(Reply::Rows(rows)) => Ok(rows),
        Ok(Reply::Done(_)) => Ok(Rows {
            rows: Vec::new(),
            warnings: 0,
        }),
        Ok(Reply::Refused(refusal)) => Err(format!("{statement}: {}", refusal.message)),
        Err(error) => Err(format!("{statement}: {error}")),
    }
}

/// The one value that a statement gives.
fn word(rows: &Rows) -> String {
    rows.rows
        .iter()
        .flatten()
        .next()
        .map_or_else(String::new, text_of)
}

fn lines(rows: &[Vec<Option<Vec<u8>>>]) -> String {
    let row = |row: &Vec<_>| row.iter().map(text_of).collect::<Vec<_>>().join(",");
    let rows: Vec<String> = rows.iter().map(row).collect();
    format!("({})", rows.join(") ("))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_decided_by_seed_and_name_and_leaves_something_to_log() {
        let mut seen = BTreeMap::<Format, u64>::new();
        let (mut weak, mut all) = (0, 0);
        for number in 0..300 {
            let case = || with_format(generate::case(5, number), 5);
            assert_eq!(case(), case());
            let format = case().format.unwrap();
            *seen.entry(format).or_default() += 1;
            if format == Format::Statement {
                all += 1;
                let is_weak = |step: &Step| WEAK.iter().any(|l| step.statement.ends_with(l));
                weak += u64::from(case().steps.iter().any(is_weak));
            }
        }
        assert!(
            seen.len() == 3 && seen.values().all(|&n| n > 60),
            "{seen:?}"
        );
        assert!(weak > 0 && weak * 5 < all, "{weak} of {all}");
        let mut script = generate::case(5, 1);
        script.format = Some(Format::Mixed);
        assert_eq!(with_format(script.clone(), 9), script);
    }
}
