//! `--sessions`: two to four sessions, statement by statement in an order that a seed chooses, on InnoDB and on
//! Inkstone. What each statement comes to must be equal: rows, count, error, or that it waits; and who goes on
//! when another has ended.
//!
//! *Script*: what is there first, and who says what; see [`script`]. Those of `scripts/` run first, random ones
//! ([`generate`]) until the time is up. Both engines run a script ([`play`]) at the same time, each on a [`stage`];
//! what each step comes to is compared ([`compare`]). What is meant is on a list ([`meant`]) and ends the script; a
//! script that differs otherwise is shrunk to the fewest statements. Beside that Inkstone is asked whether what one
//! session has locked is left alone by the others ([`held`]).

mod ask;
mod compare;
mod evidence;
mod generate;
mod held;
mod meant;
mod play;
mod schema;
mod script;
mod stage;

use super::crash::Plan;
use super::plugin::Plugin;
use super::server::Server;
use super::tree::Tree;
use crate::build::Result;
use compare::Difference;
use meant::Reason;
use play::{Played, play};
use script::Script;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Nobody waits in vain: a wait ends with what it waits for, or is a difference.
const OPTIONS: [&str; 7] = [
    "--innodb-flush-log-at-trx-commit=2",
    "--inkstone-flush-log-at-trx-commit=2",
    "--innodb-lock-wait-timeout=3600",
    "--inkstone-lock-wait-timeout=3600",
    "--lock-wait-timeout=3600",
    "--innodb-buffer-pool-dump-at-shutdown=off",
    "--max-connections=400",
];
/// How long a script is shrunk.
const SHRINK: Duration = Duration::from_secs(40);

/// What a campaign has done so far.
#[derive(Default)]
struct Campaign {
    scripts: u64,
    statements: u64,
    waits: u64,
    /// Random scripts, and how many of them ended at a difference that is meant.
    random: u64,
    random_meant: u64,
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
}

/// Runs them, and prints what differs.
pub fn run(
    tree: &Tree,
    plugin: &Plugin,
    plan: Plan,
    choice: Choice<'_>,
    json: bool,
) -> Result<ExitCode> {
    let server = Server::temporary(tree, "sessions")
        .with_plugin(plugin)
        .with_options(OPTIONS);
    let mut server = server;
    server.start()?;
    let mut campaign = Campaign::default();
    let outcome = campaign.run(server.socket(), plan, choice);
    if let Err(error) = outcome {
        return Err(format!(
            "{error}\nthe server's files are kept: {:?}",
            server.folder()
        ));
    }
    server.remove();
    campaign.print(plan.seed, json);
    Ok(ExitCode::from(u8::from(!campaign.found.is_empty())))
}

impl Campaign {
    fn run(&mut self, socket: &Path, plan: Plan, choice: Choice<'_>) -> Result<()> {
        if let Some(number) = choice.case {
            return self.try_script(socket, generate::case(plan.seed, number));
        }
        for script in script::written()? {
            if choice.filter.is_none_or(|name| script.name.contains(name)) {
                self.try_script(socket, script)?;
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
            self.try_script(socket, generate::case(plan.seed, number))?;
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                eprintln!("{}", self.progress());
            }
        }
        Ok(())
    }

    /// Runs a script; one that differs in a new way is shrunk and told.
    fn try_script(&mut self, socket: &Path, script: Script) -> Result<()> {
        let Played {
            waits,
            meant,
            differs,
        } = play(socket, &script)?;
        self.scripts += 1;
        self.statements += script.steps.len() as u64;
        self.waits += waits;
        let is_random = script.name.starts_with(generate::NAME);
        self.random += u64::from(is_random);
        if let Some(reason) = meant {
            self.random_meant += u64::from(is_random);
            *self.meant.entry(reason).or_default() += 1;
        }
        let Some(difference) = differs else {
            return Ok(());
        };
        if let Some((_, _, times)) = self.found.get_mut(&difference.what) {
            *times += 1;
            return Ok(());
        }
        let what = difference.what.clone();
        let (shrunk, difference) = shrink(socket, script, difference)?;
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

    fn print(&self, seed: u64, json: bool) {
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
                "random": self.random,
                "random_meant": self.random_meant,
                "differences": found.collect::<Vec<_>>(),
            });
            println!("{result:#}");
            return;
        }
        for (reason, times) in &self.meant {
            println!("meant, {times} times: {}", reason.text());
        }
        println!(
            "{} of {} random scripts ended there",
            self.random_meant, self.random
        );
        for (what, (script, _, times)) in &self.found {
            println!("{times} times: {what} ({})", script.name);
        }
        println!("seed {seed}: {}", self.progress());
    }
}

/// The fewest statements that still differ in the same kind of way. What a shorter script gives elsewhere is
/// another difference, so only the last statement and its outcomes must stay.
fn shrink(socket: &Path, script: Script, difference: Difference) -> Result<(Script, Difference)> {
    let until = Instant::now() + SHRINK;
    let (mut best, mut last) = (script, difference);
    best.steps.truncate(last.at + 1);
    let mut try_one = |candidate: Script, best: &mut Script| -> Result<bool> {
        // What cannot be set up does not differ.
        let Ok(played) = play(socket, &candidate) else {
            return Ok(false);
        };
        match played.differs {
            Some(found) if found.what == last.what => {
                (*best, last) = (candidate, found);
                Ok(true)
            }
            _ => Ok(false),
        }
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
                match of_setup {
                    true => drop(candidate.setup.remove(end)),
                    false => drop(candidate.steps.remove(end)),
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
