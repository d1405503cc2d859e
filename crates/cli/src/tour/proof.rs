//! Reads the recovered database and proves what it must hold.

use super::Tour;
use super::plan::{Account, BALANCE, Plan, QUEUE_LEN, balance_key, parse_journal_key, queue_key};
use super::watch::Heard;
use crate::failure::Result;
use crate::output::count;
use crate::progress;
use crate::wide::{self, Fill, WideValues};
use inkstone::{Database, Isolation, Transaction};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One thing that must hold.
#[derive(Clone, Debug)]
pub struct Proof {
    /// What must hold.
    pub claim: String,
    /// What was found otherwise; at most a few of many.
    pub violations: Vec<String>,
}

/// Violations that are shown of each proof.
const SHOWN: usize = 3;

impl Proof {
    pub fn new(claim: impl Into<String>) -> Self {
        Self {
            claim: claim.into(),
            violations: Vec::new(),
        }
    }

    /// Notes a violation unless `ok`.
    pub fn check(&mut self, ok: bool, violation: impl FnOnce() -> String) {
        if ok {
            return;
        }
        match self.violations.len() {
            n if n < SHOWN => self.violations.push(violation()),
            n if n == SHOWN => self.violations.push("and more".to_owned()),
            _ => {}
        }
    }

    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    pub fn to_json(&self) -> Value {
        json!({ "claim": self.claim, "holds": self.holds(), "violations": self.violations })
    }
}

/// Proves everything about the rows of the recovered database.
pub fn prove(db: &Database, tour: &Tour, heard: &Heard) -> Result<(Vec<Proof>, u64)> {
    let bar = progress::spinner("proving: transactions");
    let transaction = db.begin_with_snapshot()?;
    let prover = Prover {
        db,
        tour,
        heard,
        transaction: &transaction,
    };
    let (mut proofs, present) = prover.transactions()?;
    bar.set_message("proving: accounts");
    proofs.extend(prover.accounts(&present)?);
    proofs.push(prover.queue(&present)?);
    bar.finish_and_clear();
    proofs.push(prover.wide_table()?);
    let found = present.iter().map(|client| client.len() as u64).sum();
    Ok((proofs, found))
}

/// Sequence numbers of the transactions that are there, by client.
type Present = Vec<BTreeSet<u64>>;

struct Prover<'p> {
    db: &'p Database,
    tour: &'p Tour,
    heard: &'p Heard,
    transaction: &'p Transaction,
}

impl Prover<'_> {
    fn plan(&self, client: u32, sequence: u64) -> Plan {
        Plan::of(self.tour.seed, client, sequence, self.tour.accounts)
    }

    fn transactions(&self) -> Result<(Vec<Proof>, Present)> {
        let mut whole = Proof::new(
            "no transaction is half there: each has all of its rows, byte for byte, and no others",
        );
        let mut present: Present = vec![BTreeSet::new(); self.tour.clients as usize];
        let journal = self.db.table("journal")?;
        let mut rows = self.transaction.range(&journal, ..)?;
        // The transaction whose rows are being read, and how many there were.
        let mut current: Option<(Plan, u16)> = None;
        let mut end = |current: &Option<(Plan, u16)>, whole: &mut Proof| {
            if let Some((plan, seen)) = current {
                whole.check(*seen == plan.parts, || {
                    format!(
                        "transaction {} of client {} has {seen} of {} rows",
                        plan.sequence, plan.client, plan.parts
                    )
                });
                present[plan.client as usize].insert(plan.sequence);
            }
        };
        while let Some((key, value)) = rows.next_row()? {
            let known = parse_journal_key(key).filter(|(client, ..)| *client < self.tour.clients);
            let Some((client, sequence, part)) = known else {
                whole.check(false, || "a journal row with a key of no client".to_owned());
                continue;
            };
            if !matches!(&current, Some((p, _)) if (p.client, p.sequence) == (client, sequence)) {
                end(&current, &mut whole);
                current = Some((self.plan(client, sequence), 0));
            }
            if let Some((plan, seen)) = &mut current {
                whole.check(part == *seen && value == plan.journal_value(part), || {
                    format!("transaction {sequence} of client {client}: row {part} is wrong")
                });
                *seen += 1;
            }
        }
        end(&current, &mut whole);
        let mut proofs = self.acknowledged(&present);
        proofs.insert(1, whole);
        Ok((proofs, present))
    }

    fn acknowledged(&self, present: &Present) -> Vec<Proof> {
        let mut kept = Proof::new(format!(
            "every acknowledged commit is there ({})",
            count(self.heard.commits())
        ));
        let mut undone = Proof::new(format!(
            "no transaction that was rolled back is there ({})",
            count(self.heard.rollbacks())
        ));
        let mut few = Proof::new("of each client at most its last commit is there unacknowledged");
        for (client, there) in present.iter().enumerate() {
            let (committed, gone) = (
                &self.heard.committed[client],
                &self.heard.rolled_back[client],
            );
            for sequence in committed {
                kept.check(there.contains(sequence), || {
                    format!("commit {sequence} of client {client} was acknowledged and is lost")
                });
            }
            for sequence in gone {
                undone.check(!there.contains(sequence), || {
                    format!(
                        "transaction {sequence} of client {client} was rolled back and is there"
                    )
                });
            }
            let last = committed.iter().chain(gone).max();
            for sequence in there.iter().filter(|s| !committed.contains(s)) {
                let next = last.map_or(0, |last| last + 1);
                few.check(*sequence == next, || {
                    format!("transaction {sequence} of client {client} was not acknowledged, the next was {next}")
                });
            }
        }
        vec![kept, undone, few]
    }

    fn accounts(&self, present: &Present) -> Result<Vec<Proof>> {
        let accounts = self.tour.accounts as usize;
        let mut expected = vec![BALANCE; accounts];
        for (client, sequences) in present.iter().enumerate() {
            for sequence in sequences {
                let plan = self.plan(client as u32, *sequence);
                expected[plan.from as usize] -= i64::from(plan.amount);
                expected[plan.to as usize] += i64::from(plan.amount);
            }
        }
        let mut balances = Proof::new(format!(
            "each of {} accounts has the balance that the transfers give; the sum is {}",
            count(accounts as u64),
            count(accounts as u64 * BALANCE as u64)
        ));
        let mut agree = Proof::new("the secondary tree has exactly the keys of the table's rows");
        let table = self.db.table("accounts")?;
        let mut rows = self.transaction.range(&table, ..)?;
        let (mut seen, mut sum, mut keys) = (0u32, 0, BTreeSet::new());
        while let Some((key, value)) = rows.next_row()? {
            let account = Account::decode(value).filter(|_| key == seen.to_be_bytes());
            let Some(account) = account.filter(|_| (seen as usize) < accounts) else {
                balances.check(false, || format!("a row that is not account {seen}"));
                break;
            };
            let want = expected[seen as usize];
            balances.check(account.balance == want, || {
                format!("account {seen} has {}, expected {want}", account.balance)
            });
            let writer = account.writer.is_none_or(|(client, sequence)| {
                let plan = self.plan(client, sequence);
                let there = present.get(client as usize);
                (plan.from == seen || plan.to == seen)
                    && there.is_some_and(|p| p.contains(&sequence))
            });
            balances.check(writer, || {
                format!("account {seen} was written by a transaction that is not there")
            });
            keys.insert(balance_key(account.balance, seen));
            sum += account.balance;
            seen += 1;
        }
        balances.check(seen as usize == accounts, || format!("{seen} accounts"));
        let right = accounts as i64 * BALANCE;
        balances.check(sum == right, || {
            format!("the sum is {sum}, expected {right}")
        });
        let mut rows = self.transaction.range(table.tree("by_balance")?, ..)?;
        while let Some((key, _)) = rows.next_row()? {
            let ours = key.try_into().is_ok_and(|key: [u8; 12]| keys.remove(&key));
            agree.check(ours, || "a key that no row has".to_owned());
        }
        agree.check(keys.is_empty(), || {
            format!("{} rows have no key", keys.len())
        });
        Ok(vec![balances, agree])
    }

    fn queue(&self, present: &Present) -> Result<Proof> {
        let mut proof =
            Proof::new("the queue holds each client's last commits, and nothing deleted");
        let mut expected = BTreeSet::new();
        for (client, sequences) in present.iter().enumerate() {
            let last = sequences.iter().rev().take(QUEUE_LEN);
            expected.extend(last.map(|sequence| queue_key(client as u32, *sequence)));
        }
        let table = self.db.table("queue")?;
        let mut rows = self.transaction.range(&table, ..)?;
        while let Some((key, value)) = rows.next_row()? {
            let ours = key
                .try_into()
                .is_ok_and(|key: [u8; 12]| expected.remove(&key));
            proof.check(ours && value.is_empty(), || {
                format!("an entry that must not be there: {key:02x?}")
            });
        }
        proof.check(expected.is_empty(), || {
            format!("{} entries are missing", expected.len())
        });
        Ok(proof)
    }

    fn wide_table(&self) -> Result<Proof> {
        let mut proof = Proof::new(format!(
            "the table of {} rows is as it was loaded: long transactions on it never committed",
            count(self.tour.rows)
        ));
        let bar = progress::bar("proving: the wide table", self.tour.rows);
        let mut values = WideValues::new(Fill::Padding);
        let value = values.next();
        let table = self.db.table("t1")?;
        let reader = self.db.begin(Isolation::ReadCommitted)?;
        let mut rows = reader.range(&table, ..)?;
        let mut seen = 0;
        while let Some((key, found)) = rows.next_row()? {
            proof.check(key == wide::key(seen) && found == value, || {
                format!("row {seen} is not as it was")
            });
            seen += 1;
            if seen % 4096 == 0 {
                bar.inc(4096);
            }
        }
        bar.finish_and_clear();
        proof.check(seen == self.tour.rows, || format!("{seen} rows"));
        Ok(proof)
    }
}
