//! `--sessions`: two to four sessions, statement by statement in an order that a seed chooses, on
//! InnoDB and on Inkstone. What each statement comes to must be equal: rows, count, error, or that
//! it waits; and which sessions go on when another has ended.
//!
//! *Script*: what is there first, and what each session says; see [`script`]. Those of `scripts/`
//! run first, random ones ([`generate`]) until the time is up. Both engines run a script ([`play`])
//! at the same time, each on a [`stage`]; what each step comes to is compared ([`compare`]). What
//! is meant is on a list ([`meant`]) and ends the script; a script that differs otherwise is shrunk
//! to the fewest statements. Beside that Inkstone is asked whether what one session has locked is
//! left alone by the others ([`held`]).

mod ask;
mod compare;
mod deadlocks;
mod evidence;
mod generate;
mod held;
mod meant;
mod other_rows;
mod overlooked;
mod play;
mod replica;
mod schema;
mod script;
mod stage;
mod victims;
mod without;

use super::crash::Plan;
use super::pair::Format;
use super::plugin::Plugin;
use super::tree::Tree;
use compare::Difference;
use inkstone_testkit::build::Result;
use meant::Reason;
use play::{Played, play};
use replica::Replica;
use script::Script;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// No session waits in vain: a wait ends with what it waits for, or is a difference.
const OPTIONS: [&str; 9] = [
    "--innodb-flush-log-at-trx-commit=2",
    "--inkstone-flush-log-at-trx-commit=2",
    "--innodb-lock-wait-timeout=3600",
    "--inkstone-lock-wait-timeout=3600",
    "--lock-wait-timeout=3600",
    "--innodb-buffer-pool-dump-at-shutdown=off",
    "--innodb-print-all-deadlocks=on",
    "--inkstone-print-all-deadlocks=on",
    "--max-connections=400",
];
/// How long a script is shrunk.
const SHRINK: Duration = Duration::from_secs(40);

/// What a campaign has done so far.
#[derive(Default)]
struct Campaign {
    whole: bool,
    scripts: u64,
    statements: u64,
    waits: u64,
    /// Random scripts, and how many of them ended at a difference that is meant.
    random: u64,
    random_meant: u64,
    /// Of these, with a proof that took another run.
    run_again: u64,
    /// Scripts that ended at a difference that is meant, by its reason.
    meant: BTreeMap<Reason, u64>,
    /// Scripts that differ, shrunk, by what differs; how often, too.
    found: BTreeMap<String, (Script, Difference, u64)>,
}

/// Which scripts are run: all that are written, then random ones until the time is up.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    /// Only written ones that have this in their name.
    pub filter: Option<&'a str>,
    /// Only the random one of this number.
    pub case: Option<u64>,
    /// So many random ones, however long they take.
    pub cases: Option<u64>,
    /// Scripts that differ are told as they are: there is a bug in the engine that is known.
    pub whole: bool,
}

/// Runs them, and prints what differs.
pub fn run(
    tree: &Tree,
    plugin: &Plugin,
    plan: Plan,
    choice: Choice<'_>,
    json: bool,
) -> Result<ExitCode> {
    let mut replica = Replica::start(tree, plugin, plan.seed)?;
    let mut campaign = Campaign {
        whole: choice.whole,
        ..Campaign::default()
    };
    let outcome = campaign.run(&mut replica, plan, choice);
    if let Err(error) = outcome {
        return Err(format!(
            "{error}\nthe servers' files are kept: {}",
            replica.folders()
        ));
    }
    campaign.print(plan.seed, &replica, json);
    replica.remove();
    Ok(ExitCode::from(u8::from(!campaign.found.is_empty())))
}

impl Campaign {
    fn run(&mut self, replica: &mut Replica, plan: Plan, choice: Choice<'_>) -> Result<()> {
        let seed = plan.seed;
        if let Some(number) = choice.case {
            return self.try_script(replica, generate::case(seed, number), seed);
        }
        for script in script::written()? {
            if choice.filter.is_none_or(|name| script.name.contains(name)) {
                self.try_script(replica, script, seed)?;
            }
        }
        if choice.filter.is_some() {
            return Ok(());
        }
        let end = Instant::now() + Duration::from_secs_f64(plan.minutes * 60.0);
        let mut told = Instant::now();
        for number in 0..choice.cases.unwrap_or(u64::MAX) {
            if choice.cases.is_none() && Instant::now() >= end {
                break;
            }
            self.try_script(replica, generate::case(seed, number), seed)?;
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                eprintln!("{}", self.progress());
            }
        }
        Ok(())
    }

    /// Runs a script; one that differs in a new way is shrunk and told.
    fn try_script(&mut self, replica: &mut Replica, script: Script, seed: u64) -> Result<()> {
        let script = replica::with_format(script, seed);
        let Tried {
            played:
                Played {
                    waits,
                    meant,
                    differs,
                    ..
                },
            of_replica,
            ran_again,
        } = try_once(replica, &script)?;
        self.scripts += 1;
        self.statements += script.steps.len() as u64;
        self.waits += waits;
        let is_random = script.name.starts_with(generate::NAME);
        self.random += u64::from(is_random);
        self.run_again += u64::from(ran_again);
        if let Some(reason) = meant {
            self.random_meant += u64::from(is_random);
            *self.meant.entry(reason).or_default() += 1;
        }
        for difference in differs.into_iter().chain(of_replica) {
            self.note(replica, script.clone(), difference)?;
        }
        Ok(())
    }

    fn note(
        &mut self,
        replica: &mut Replica,
        script: Script,
        difference: Difference,
    ) -> Result<()> {
        if let Some((_, _, times)) = self.found.get_mut(&difference.what) {
            *times += 1;
            return Ok(());
        }
        let what = difference.what.clone();
        let (shrunk, difference) = if self.whole {
            (script, difference)
        } else {
            shrink(replica, script, difference)?
        };
        eprintln!("\nDIFFERS: {what}\n{}", told(&shrunk, &difference));
        self.found.insert(what, (shrunk, difference, 1));
        Ok(())
    }

    fn progress(&self) -> String {
        let times: u64 = self.found.values().map(|(_, _, times)| times).sum();
        format!(
            "{} scripts, {} statements, {} waits; {} ended at what is meant; {times} scripts differ, in {} ways",
            self.scripts,
            self.statements,
            self.waits,
            self.meant.values().sum::<u64>(),
            self.found.len()
        )
    }

    fn print(&self, seed: u64, replica: &Replica, json: bool) {
        if json {
            let found = self
                .found
                .iter()
                .map(|(what, (script, difference, times))| {
                    serde_json::json!({
                        "what": what,
                        "times": times,
                        "script": script.render(),
                        "innodb": difference.sides[0],
                        "inkstone": difference.sides[1],
                    })
                });
            let result = serde_json::json!({
                "seed": seed,
                "scripts": self.scripts,
                "statements": self.statements,
                "waits": self.waits,
                "meant": self.meant.iter().map(|(reason, times)| (reason.text(), times)).collect::<BTreeMap<_, _>>(),
                "replica": replica.json(),
                "random": self.random,
                "random_meant": self.random_meant,
                "run_again": self.run_again,
                "differences": found.collect::<Vec<_>>(),
            });
            println!("{result:#}");
            return;
        }
        for (reason, times) in &self.meant {
            println!("meant, {times} times: {}", reason.text());
        }
        println!(
            "{} of {} random scripts ended there, {} proved by another run without a session",
            self.random_meant, self.random, self.run_again
        );
        replica.print();
        for (what, (script, _, times)) in &self.found {
            println!("{times} times: {what} ({})", script.name);
        }
        println!("seed {seed}: {}", self.progress());
    }
}

/// What a script came to, on both engines and on the replica.
struct Tried {
    played: Played,
    of_replica: Option<Difference>,
    ran_again: bool,
}

/// Runs a script, and has the replica run what it has logged.
fn try_once(replica: &mut Replica, script: &Script) -> Result<Tried> {
    replica.log_in(script.format.unwrap_or(Format::Row))?;
    let mut played = play(replica.socket(), script)?;
    let in_script = |error| format!("{error}\n{}", script.render());
    let of_replica = replica.compare(script).map_err(in_script)?;
    let claim = played.claim.take();
    let ran_again = claim.is_some();
    if let Some(claim) = claim
        && !claim.holds(replica.socket(), script).map_err(in_script)?
    {
        played.meant = None;
        played.differs.get_or_insert(claim.difference);
    }
    Ok(Tried {
        played,
        of_replica,
        ran_again,
    })
}

/// The fewest statements that still differ in the same kind of way. What a shorter script gives
/// elsewhere is another difference, so only the last statement and its outcomes must stay.
fn shrink(
    replica: &mut Replica,
    script: Script,
    difference: Difference,
) -> Result<(Script, Difference)> {
    let until = Instant::now() + SHRINK;
    let (mut best, mut last) = (script, difference);
    best.steps.truncate(last.at + 1);
    let mut try_one = |candidate: Script, best: &mut Script| -> Result<bool> {
        // What cannot be set up does not differ.
        let Ok(tried) = try_once(replica, &candidate) else {
            return Ok(false);
        };
        let mut found = tried.played.differs.into_iter().chain(tried.of_replica);
        let found = found.find(|found| found.what == last.what);
        let is_one = found.is_some();
        if let Some(found) = found {
            (*best, last) = (candidate, found);
        }
        Ok(is_one)
    };
    let mut progress = true;
    while progress && Instant::now() < until {
        progress = false;
        for of_setup in [false, true] {
            let mut end = if of_setup {
                best.setup.len()
            } else {
                best.steps.len()
            };
            while end > 0 && Instant::now() < until {
                end -= 1;
                let mut candidate = best.clone();
                if of_setup {
                    drop(candidate.setup.remove(end));
                } else {
                    drop(candidate.steps.remove(end));
                }
                progress |= try_one(candidate, &mut best)?;
            }
        }
    }
    Ok((best, last))
}

/// A script and what its engines came to, at the place where they differ.
fn told(script: &Script, difference: &Difference) -> String {
    let [innodb, inkstone] = &difference.sides;
    format!(
        "{}-- InnoDB:\n{innodb}-- Inkstone:\n{inkstone}",
        script.render()
    )
}
