//! What must hold of an engine alone: rows that a transaction has locked are changed by no other,
//! and ranges that it has locked get no new rows. Asked after every statement, with what reads
//! without locks see of the newest versions; and in the end by taking the locks again.
//!
//! *Held*: what a transaction has asked for with locks. At REPEATABLE READ and SERIALIZABLE that is
//! a whole range, below only the rows that it found, and those that it inserted.

use super::ask::{Ask, Kind};
use super::schema::Schema;
use super::stage::{Outcome, Stage, What};
use crate::client::{Cell, Reply};
use inkstone_testkit::build::Result;
use std::collections::BTreeSet;

type Rows = BTreeSet<Vec<Cell>>;

#[derive(Clone, Debug)]
struct Held {
    ask: Ask,
    /// What is read and not wanted is given back.
    unlocks: bool,
    /// No other transaction inserts into the range, either.
    whole: bool,
    rows: Rows,
}

/// What is known of a session.
#[derive(Clone, Debug, Default)]
struct Holder {
    level: Level,
    held: Vec<Held>,
    /// What its XA transaction has asked for, and whether it gives rows back, once it can be asked
    /// nothing more.
    past: Vec<(Ask, bool)>,
    /// Its transaction has said something of a table.
    began: bool,
    /// The savepoint is older than that: the server ends the engine's transaction instead of going
    /// back to it.
    savepoint_is_empty: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    ReadUncommitted,
    ReadCommitted,
    #[default]
    RepeatableRead,
    Serializable,
}

/// What the sessions of a case hold.
pub struct Holders {
    schema: Schema,
    sessions: Vec<Holder>,
    /// A DDL statement has waited: it kept even sessions that only look away from its table, so
    /// what was locked meanwhile is not known. Or FLUSH TABLES WITH READ LOCK keeps sessions that
    /// want to lock rows again.
    blind: bool,
}

/// Statements that end a transaction, whatever comes of them.
const ENDS: [&str; 11] = [
    "BEGIN",
    "START ",
    "COMMIT",
    "ROLLBACK",
    "XA ",
    "ALTER ",
    "CREATE ",
    "DROP ",
    "TRUNCATE ",
    "LOCK ",
    "UNLOCK ",
];

impl Holders {
    pub fn new(stage: &mut Stage, sessions: usize) -> Result<Self> {
        Ok(Self {
            schema: Schema::read(stage)?,
            sessions: vec![Holder::default(); sessions],
            blind: false,
        })
    }

    /// The tables as they were after the last statement that changed them.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// What these sessions have asked for in their transactions, and whether rows that were read
    /// and not wanted are to be given back.
    pub fn asks(&self, sessions: &[usize]) -> Vec<(Ask, bool)> {
        let of_session = |&session: &usize| {
            let holder: &Holder = &self.sessions[session - 1];
            let held = holder.held.iter();
            let held = held.map(|held| (held.ask.clone(), held.unlocks));
            held.chain(holder.past.iter().cloned())
        };
        sessions.iter().flat_map(of_session).collect()
    }

    /// Whether reads of this session's transaction take locks.
    pub fn is_serializable(&self, session: usize) -> bool {
        self.sessions[session - 1].level == Level::Serializable
    }

    /// Whether a statement of this session gives back rows that it has read and does not want.
    pub fn unlocks(&self, session: usize) -> bool {
        self.sessions[session - 1].level <= Level::ReadCommitted
    }

    /// Takes note of a step; gives what should not have happened.
    pub fn after(
        &mut self,
        stage: &mut Stage,
        acting: usize,
        before: &[usize],
        outcome: &Outcome,
    ) -> Result<Option<String>> {
        let waits_for_others = |what: &What| !matches!(what, What::Ended(_) | What::Gone);
        self.blind = self.blind
            || (outcome.iter()).any(|(&session, what)| {
                let statement = stage.statement(session);
                waits_for_others(what) && is_ddl(&statement) || statement.starts_with("FLUSH ")
            });
        if self.blind {
            return Ok(None);
        }
        let ended: Vec<(usize, String, What)> = outcome
            .iter()
            .map(|(&session, what)| (session, stage.statement(session), what.clone()))
            .collect();
        if ended.iter().any(|(_, statement, _)| is_ddl(statement)) {
            self.schema = Schema::read(stage)?;
        }
        let acted: Vec<usize> = [acting]
            .iter()
            .chain(before)
            .chain(outcome.keys())
            .copied()
            .collect();
        for (session, statement, what) in ended {
            self.note(stage, session, &statement, &what)?;
        }
        for session in 1..=self.sessions.len() {
            let own = acted.contains(&session);
            if let Some(wrong) = self.look(stage, session, own)? {
                return Ok(Some(wrong));
            }
        }
        Ok(None)
    }

    /// What a statement that has ended means for its transaction.
    fn note(
        &mut self,
        stage: &mut Stage,
        session: usize,
        statement: &str,
        what: &What,
    ) -> Result<()> {
        let holder = &mut self.sessions[session - 1];
        let What::Ended(reply) = what else {
            if *what == What::Gone {
                holder.held.clear();
            }
            return Ok(());
        };
        if statement.starts_with("SAVEPOINT") {
            holder.savepoint_is_empty = !holder.began;
            return Ok(());
        }
        if statement.starts_with("ROLLBACK TO") {
            if matches!(reply, Reply::Refused(_)) {
                return Ok(());
            }
            if holder.savepoint_is_empty {
                holder.held.clear();
                holder.began = false;
            }
            // Rows that were only changed are free; what was read with locks stays locked.
            holder
                .held
                .retain(|held| matches!(held.ask.kind, Kind::Shared | Kind::Exclusive));
            return Ok(());
        }
        if ["XA END", "XA PREPARE"]
            .iter()
            .any(|verb| statement.starts_with(verb))
        {
            let asked = holder.held.drain(..);
            holder
                .past
                .extend(asked.map(|held| (held.ask, held.unlocks)));
            holder.began = false;
            return Ok(());
        }
        if ENDS.iter().any(|verb| statement.starts_with(verb)) {
            holder.held.clear();
            holder.past.clear();
            holder.began = statement.starts_with("START ");
            return Ok(());
        }
        let open = is_open(stage, session)?;
        if !open {
            holder.held.clear();
        }
        holder.began = open && (holder.began || Ask::of(statement, &self.schema).is_some());
        if let Some((_, level)) = statement.split_once("ISOLATION LEVEL ") {
            holder.level = Level::of(level);
        }
        if !open || matches!(reply, Reply::Refused(refusal) if refusal.code != 1062) {
            return Ok(());
        }
        let ask = match reply {
            Reply::Refused(refusal) => Ask::of_duplicate(statement, &refusal.message, &self.schema),
            _ => Ask::of(statement, &self.schema),
        };
        let Some(mut ask) = ask else {
            return Ok(());
        };
        let refused = matches!(reply, Reply::Refused(_));
        if ask.kind == Kind::Plain && holder.level == Level::Serializable {
            ask.kind = Kind::Shared;
        }
        if ask.kind == Kind::Plain || refused && ask.kind == Kind::Change {
            return Ok(());
        }
        let locks_ranges = holder.level >= Level::RepeatableRead;
        if ask.kind == Kind::Change && !locks_ranges {
            // It has passed over rows that match in an uncommitted version only: which it has, is
            // not known.
            holder.held.push(Held {
                ask,
                unlocks: true,
                whole: false,
                rows: Rows::new(),
            });
            return Ok(());
        }
        let whole = locks_ranges && !ask.skips && ask.kind != Kind::Insert;
        let mut rows = newest(stage, &ask.select(whole))?;
        // Others that the same step has let go on may have made rows since.
        if !whole
            && statement.starts_with("SELECT * ")
            && let Reply::Rows(given) = reply
        {
            rows = given.rows.iter().cloned().collect();
        }
        holder.held.push(Held {
            unlocks: !locks_ranges && ask.kind != Kind::Insert,
            ask,
            whole,
            rows,
        });
        Ok(())
    }

    /// Whether what a session holds is as it was; what it does itself may change it.
    fn look(&mut self, stage: &mut Stage, session: usize, own: bool) -> Result<Option<String>> {
        for held in &mut self.sessions[session - 1].held {
            let select = held.ask.select(held.whole);
            let now = newest(stage, &select)?;
            let same = if held.whole {
                now == held.rows
            } else {
                now.is_superset(&held.rows)
            };
            if !same && !own {
                return Ok(Some(format!(
                    "session {session} has locked what `{select}` reads, and another has changed it\n    locked: {}\n    now:    {}",
                    shown(&held.rows),
                    shown(&now)
                )));
            }
            held.rows = if held.whole {
                now
            } else {
                held.rows.intersection(&now).cloned().collect()
            };
        }
        Ok(None)
    }

    /// Takes all locks again, which no other session can have: their holder gets them at once, and
    /// the same rows.
    pub fn again(&self, stage: &mut Stage) -> Result<Option<String>> {
        if self.blind {
            return Ok(None);
        }
        for session in stage.idle() {
            let held = self.sessions[session - 1].held.iter();
            // The row of an entry that is locked alone may be another's.
            let held = held.filter(|held| held.ask.is_of_rows());
            for held in held.filter(|held| held.whole || !held.rows.is_empty()) {
                let lock = held.ask.lock();
                let patience = if held.whole { "NOWAIT" } else { "SKIP LOCKED" };
                // A row of the range that an index has told not to be wanted is not locked, only
                // its entry there.
                let select = held.ask.select(false);
                let locked = if held.whole {
                    newest(stage, &select)?
                } else {
                    held.rows.clone()
                };
                let statement = format!("{select}{lock} {patience}");
                let mut outcome = stage.step(session, &statement)?;
                let what = outcome.remove(&session);
                let same = match &what {
                    Some(What::Ended(Reply::Rows(rows))) => {
                        let now: Rows = rows.rows.iter().cloned().collect();
                        if held.whole {
                            now == locked
                        } else {
                            now.is_superset(&locked)
                        }
                    }
                    _ => false,
                };
                if !same {
                    let got = what.map_or("nothing".to_owned(), |what| what.text());
                    return Ok(Some(format!(
                        "session {session} does not get again what it has locked: {statement}\n    locked: {}\n    now:    {got}",
                        shown(&locked)
                    )));
                }
            }
        }
        Ok(None)
    }
}

impl Level {
    fn of(name: &str) -> Self {
        match name {
            "READ UNCOMMITTED" => Self::ReadUncommitted,
            "READ COMMITTED" => Self::ReadCommitted,
            "SERIALIZABLE" => Self::Serializable,
            _ => Self::RepeatableRead,
        }
    }
}

/// Whether a session is in a transaction. An XA transaction that has ended its work says nothing:
/// it is.
pub(super) fn is_open(stage: &mut Stage, session: usize) -> Result<bool> {
    let mut outcome = stage.aside(session, "SELECT @@in_transaction")?;
    let Some(What::Ended(Reply::Rows(rows))) = outcome.remove(&session) else {
        return Ok(true);
    };
    Ok(rows.rows == [[Some(b"1".to_vec())]])
}

/// Whether a statement wants a table for itself, so that a session that waits with it keeps all
/// others away.
pub(super) fn is_ddl(statement: &str) -> bool {
    let verbs = [
        "ALTER ",
        "CREATE ",
        "DROP ",
        "TRUNCATE ",
        "RENAME ",
        "OPTIMIZE ",
        "LOCK ",
    ];
    verbs.iter().any(|verb| statement.starts_with(verb))
}

/// Rows in their newest versions, committed or not.
fn newest(stage: &mut Stage, select: &str) -> Result<Rows> {
    stage.ask("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")?;
    Ok(stage.ask(select)?.rows.into_iter().collect())
}

fn shown(rows: &Rows) -> String {
    let rows = rows.iter().cloned().collect();
    What::Ended(Reply::Rows(crate::client::Rows { rows, warnings: 0 })).text()
}
