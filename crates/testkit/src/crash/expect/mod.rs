//! What must, may and must not be there, from what was acknowledged.
//!
//! # The argument
//!
//! The lines of a worker come through one pipe, so their order is an order in time: whatever was
//! acknowledged before a client's last line was in the log before that client's next transaction
//! began. What survives is a prefix of the log. So if a transaction survived, all that was
//! acknowledged up to its client's line before it has survived, whatever its durability.

use super::plan::{Decision, Ending, Load, TxnId};
use super::protocol::{Ack, Line};
use super::schema::Schema;
use inkstone::Durability;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a checker found.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Committed transactions.
    pub present: BTreeSet<TxnId>,
    /// Prepared ones, before the checker decided them.
    pub prepared: BTreeSet<TxnId>,
    /// Tables of the schema, as [`Line::FoundTable`] says them.
    pub tables: BTreeSet<String>,
    /// What contradicts itself.
    pub violations: Vec<String>,
    /// Whether it has said everything.
    pub complete: bool,
}

impl Observed {
    /// Takes a line of a checker.
    pub fn take(&mut self, line: &Line) {
        match line {
            Line::Found(id) => drop(self.present.insert(*id)),
            Line::FoundPrepared(id) => drop(self.prepared.insert(*id)),
            Line::FoundTable(table) => drop(self.tables.insert(table.clone())),
            Line::Violation(text) => self.violations.push(text.clone()),
            Line::Complete => self.complete = true,
            _ => {}
        }
    }
}

/// What a worker's life has left to expect.
#[derive(Clone, Debug)]
pub struct Life {
    /// What it acknowledged, in order.
    pub acks: Vec<Ack>,
    /// The database's durability.
    pub durability: Durability,
    /// Whether power was lost between its beginning and the check.
    pub power_lost: bool,
    /// How many clients it had.
    pub clients: usize,
}

/// Counts of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Acknowledged commits that had to be there, of this life or an earlier one.
    pub commits: u64,
    /// Acknowledged commits that were lost as their durability allows.
    pub lost_legally: u64,
    /// Commits that are there though they were not acknowledged.
    pub unheard: u64,
}

/// What is known to be there, from check to check.
#[derive(Clone, Debug)]
pub struct Expectation {
    load: Load,
    proven: BTreeSet<TxnId>,
    /// Each client's next sequence number.
    pub next: Vec<u64>,
    /// DDL steps done.
    pub steps: u64,
}

/// Acknowledgements by transaction and position.
#[derive(Default)]
struct Heard {
    committed: HashMap<TxnId, usize>,
    prepared: HashMap<TxnId, usize>,
    decided_commit: HashMap<TxnId, usize>,
    decided_rollback: HashMap<TxnId, usize>,
    /// Positions of each client's lines, and each transaction's first.
    lines: BTreeMap<u32, Vec<usize>>,
    /// Transactions under way at the end, by client: nothing was heard of them.
    in_flight: Vec<TxnId>,
    /// Positions of DDL steps.
    steps: Vec<usize>,
}

impl Expectation {
    /// Of a new database.
    pub fn new(load: Load) -> Self {
        Self {
            load,
            proven: BTreeSet::new(),
            next: Vec::new(),
            steps: 0,
        }
    }

    /// Compares what was found with what was heard; says what is wrong. What is there is expected
    /// from now on.
    pub fn check(&mut self, life: &Life, found: &Observed) -> (Checked, Vec<String>) {
        self.next.resize(self.next.len().max(life.clients), 0);
        let heard = self.listen(life);
        let mut wrong = Vec::new();
        self.nothing_uncalled_for(&heard, found, &mut wrong);
        let mut bound = self.schema(&heard, found, &mut wrong);
        bound = bound.max(self.last_before_survivors(&heard, found));
        let checked = self.everything_due(&heard, life, found, bound, &mut wrong);
        self.go_on(&heard, found);
        (checked, wrong)
    }

    fn listen(&self, life: &Life) -> Heard {
        let mut heard = Heard::default();
        let mut next = self.next.clone();
        let mut undecided: BTreeMap<u32, TxnId> = BTreeMap::new();
        for (position, ack) in life.acks.iter().enumerate() {
            let id = match *ack {
                Ack::Committed(id) => {
                    heard.committed.insert(id, position);
                    id
                }
                Ack::RolledBack(id) => id,
                Ack::Prepared(id) => {
                    heard.prepared.insert(id, position);
                    if self.load.plan(id).ending != Ending::Prepare(Decision::Leave) {
                        undecided.insert(id.client, id);
                    }
                    id
                }
                Ack::DecidedCommit(id) => {
                    heard.decided_commit.insert(id, position);
                    undecided.remove(&id.client);
                    id
                }
                Ack::DecidedRollback(id) => {
                    heard.decided_rollback.insert(id, position);
                    undecided.remove(&id.client);
                    id
                }
                Ack::Steps(_) => {
                    heard.steps.push(position);
                    continue;
                }
            };
            heard.lines.entry(id.client).or_default().push(position);
            if let Some(next) = next.get_mut(id.client as usize) {
                *next = id.sequence + 1;
            }
        }
        let clients = (0..life.clients as u32).filter(|client| !undecided.contains_key(client));
        heard.in_flight = clients
            .map(|client| TxnId {
                client,
                sequence: next[client as usize],
            })
            .collect();
        heard
    }

    fn is_new(&self, id: TxnId) -> bool {
        let next = self.next.get(id.client as usize);
        next.is_some_and(|&next| id.sequence >= next)
    }

    /// Nothing is there that no transaction committed.
    fn nothing_uncalled_for(&self, heard: &Heard, found: &Observed, wrong: &mut Vec<String>) {
        for &id in &found.present {
            let ending = self.load.plan(id).ending;
            let in_flight = heard.in_flight.contains(&id) && ending == Ending::Commit;
            let deciding = ending == Ending::Prepare(Decision::Commit);
            let may_be = if self.is_new(id) {
                heard.committed.contains_key(&id)
                    || in_flight
                    || deciding && heard.prepared.contains_key(&id)
            } else {
                self.proven.contains(&id)
            };
            if !may_be {
                wrong.push(format!(
                    "{id:?} is there, which did not commit ({ending:?})"
                ));
            }
        }
        for &id in &found.prepared {
            let ending = self.load.plan(id).ending;
            let in_flight = heard.in_flight.contains(&id) && matches!(ending, Ending::Prepare(_));
            let known = heard.prepared.contains_key(&id) || in_flight;
            if !(self.is_new(id) && known) {
                wrong.push(format!(
                    "{id:?} is prepared, and should not be ({ending:?})"
                ));
            }
        }
    }

    /// The DDL steps that were acknowledged are there, and at most one more. Returns up to where
    /// everything must have survived because a later step has.
    fn schema(
        &mut self,
        heard: &Heard,
        found: &Observed,
        wrong: &mut Vec<String>,
    ) -> Option<usize> {
        let acknowledged = self.steps + heard.steps.len() as u64;
        let text = |schema: &Schema| -> BTreeSet<String> {
            let show = |(name, trees): (&String, &super::schema::Trees)| {
                let trees = trees.iter().map(|(tree, rows)| format!(" {tree}={rows}"));
                format!("{name}{}", trees.collect::<String>())
            };
            schema.tables.iter().map(show).collect()
        };
        let mut schema = Schema::after(self.load.seed, acknowledged);
        let wanted = text(&schema);
        self.steps = acknowledged;
        if found.tables == wanted {
            return heard.steps.len().checked_sub(2).map(|n| heard.steps[n]);
        }
        let step = schema.next_step();
        schema.apply(&step);
        // Only a worker that does DDL can have had a step under way.
        if self.load.ddl && found.tables == text(&schema) {
            self.steps += 1;
            return heard.steps.last().copied();
        }
        let tables = &found.tables;
        wrong.push(format!(
            "after {acknowledged} DDL steps the tables are {tables:?}, not {wanted:?}, nor what {step:?} makes of them"
        ));
        None
    }

    /// The last position that came before the beginning of something that survived.
    fn last_before_survivors(&self, heard: &Heard, found: &Observed) -> Option<usize> {
        let survivors = found.present.iter().chain(&found.prepared);
        survivors
            .filter(|id| self.is_new(**id))
            .filter_map(|id| {
                let lines = heard.lines.get(&id.client)?;
                let own = heard.committed.get(id).or(heard.prepared.get(id));
                match own {
                    None => lines.last().copied(),
                    Some(own) => lines.iter().rev().find(|line| *line < own).copied(),
                }
            })
            .max()
    }

    /// Everything is there that must be: by its durability, or because something later is.
    fn everything_due(
        &self,
        heard: &Heard,
        life: &Life,
        found: &Observed,
        bound: Option<usize>,
        wrong: &mut Vec<String>,
    ) -> Checked {
        let mut checked = Checked::default();
        for &id in self.proven.difference(&found.present) {
            wrong.push(format!("{id:?} is gone, which an earlier check had found"));
        }
        checked.commits += self.proven.len() as u64;
        for (&id, &position) in &heard.committed {
            let durability = self.load.plan(id).durability.unwrap_or(life.durability);
            let promised = match durability {
                Durability::Sync => true,
                Durability::Write => !life.power_lost,
                Durability::Lazy => false,
            };
            let earlier = bound.is_some_and(|bound| position <= bound);
            let there = found.present.contains(&id);
            if promised || earlier {
                checked.commits += 1;
                if !there {
                    let why = if promised {
                        "its durability promised it"
                    } else {
                        "a later commit is there"
                    };
                    wrong.push(format!("commit of {id:?} ({durability:?}) is lost: {why}"));
                }
            } else {
                checked.lost_legally += u64::from(!there);
            }
        }
        for &id in heard.decided_commit.keys() {
            checked.commits += 1;
            if !found.present.contains(&id) {
                wrong.push(format!("commit of prepared {id:?} is lost"));
            }
        }
        for &id in heard.prepared.keys() {
            let rolls_back = Ending::Prepare(Decision::Rollback) == self.load.plan(id).ending;
            let there = found.prepared.contains(&id) || found.present.contains(&id);
            if !there && !rolls_back {
                wrong.push(format!("prepared {id:?} is lost"));
            }
        }
        for (&id, &position) in &heard.decided_rollback {
            let earlier = bound.is_some_and(|bound| position <= bound);
            if earlier && found.prepared.contains(&id) {
                wrong.push(format!("{id:?} was rolled back, and is prepared again"));
            }
        }
        let heard_of =
            |id: &&TxnId| heard.committed.contains_key(id) || heard.decided_commit.contains_key(id);
        let new = found.present.iter().filter(|id| self.is_new(**id));
        checked.unheard = new.filter(|id| !heard_of(id)).count() as u64;
        checked
    }

    /// What was found is expected from now on, with what the checker decided.
    fn go_on(&mut self, heard: &Heard, found: &Observed) {
        self.proven = found.present.clone();
        let left = found.prepared.iter().copied();
        self.proven
            .extend(left.filter(|&id| self.load.plan(id).commit_if_left));
        let all = heard.committed.keys().chain(heard.prepared.keys());
        let seen = found.present.iter().chain(&found.prepared);
        for id in all.chain(&heard.in_flight).chain(seen) {
            if let Some(next) = self.next.get_mut(id.client as usize) {
                *next = (*next).max(id.sequence + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests;
