//! `--differential`: random tables and statements on InnoDB and on Inkstone, in one server. What
//! each statement gives must be equal: rows, their order where it is defined, counts, warnings,
//! errors, ids.
//!
//! *Case*: tables and some dozens of statements, decided by a seed and a number; each case begins
//! with empty databases. Now and then the server is restarted or killed within one. *Difference*: a
//! statement whose outcomes are unequal. The case ends there, and is shrunk to the fewest
//! statements that still differ in the same way. A campaign lasts for a time, or for a number of
//! cases: that does the same on every machine.
//!
//! One file, one subject: [`schema`], [`partitioning`], [`pages`], [`types`], [`text`] make tables,
//! [`dml`], [`query`], [`alter`] statements, [`objects`] what is not about one table; [`generate`]
//! cases of them; [`foreign_keys`] cases of their own; [`sides`] runs them, [`compare`] judges,
//! with a look at [`plans`], [`changes`], [`buffered`] and [`faults`], [`accepted`] lists what is
//! not judged, [`shrink`] shrinks.

mod accepted;
mod alter;
mod buffered;
mod changes;
mod compare;
mod dml;
mod faults;
mod foreign_keys;
mod generate;
mod objects;
mod pages;
mod partitioning;
mod plans;
mod query;
mod schema;
mod shrink;
mod sides;
mod sql;
mod step;
mod text;
mod topics;
mod types;

use super::crash::Plan;
use super::plugin::Plugin;
use super::tree::{Configuration, Tree};
use accepted::Accepted;
use compare::{Difference, Judged};
use generate::Generator;
use inkstone_testkit::build::Result;
use sides::Sides;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use step::{Step, Steps};
use topics::{Topic, Topics};

/// Cases in a row under one configuration of the server.
const BLOCK_CASES: u64 = 48;
/// How long a difference is shrunk in a campaign, and when its case is repeated alone.
const SHRINK: Duration = Duration::from_secs(25);
const SHRINK_ALONE: Duration = Duration::from_secs(300);

/// Which cases.
#[derive(Clone, Debug, clap::Args)]
pub struct Choice {
    /// Of --differential or --sessions, only the case of this number
    #[arg(long, value_name = "N")]
    pub case: Option<u64>,
    /// Of --differential or --sessions, the first N cases, however long they take
    #[arg(long, value_name = "N", conflicts_with_all = ["case", "minutes"])]
    pub cases: Option<u64>,
    /// What --differential leaves out
    #[arg(long, value_name = "TOPIC", value_delimiter = ',')]
    without: Vec<Topic>,
    /// Of --differential, only cases of foreign keys
    #[arg(long, conflicts_with = "case")]
    foreign_keys: bool,
}

impl Choice {
    fn numbers(&self) -> std::ops::Range<u64> {
        match (self.case, self.cases) {
            (Some(case), _) => case..case + 1,
            (None, Some(cases)) => 0..cases,
            (None, None) => 0..u64::MAX,
        }
    }

    fn is_timed(&self) -> bool {
        self.case.is_none() && self.cases.is_none()
    }
}

/// A difference, shrunk.
struct Found {
    case: u64,
    configuration: Configuration,
    difference: Difference,
    statements: Vec<String>,
    /// How many cases differed in these words.
    times: u64,
}

/// What a campaign has done so far.
#[derive(Default)]
struct Campaign {
    cases: u64,
    statements: u64,
    found: BTreeMap<String, Found>,
    accepted: Accepted,
}

/// Runs cases until the time is up, or the one that was asked for.
pub fn run(
    tree: &Tree,
    plugin: &Plugin,
    plan: Plan,
    choice: &Choice,
    configuration: Option<Configuration>,
    json: bool,
) -> Result<ExitCode> {
    let mut sides = Sides::start(tree, plugin)?;
    let topics = Topics::without(&choice.without);
    let mut campaign = Campaign::default();
    let end = Instant::now() + Duration::from_secs_f64(plan.minutes * 60.0);
    let mut told = Instant::now();
    for case in choice.numbers() {
        if choice.is_timed() && Instant::now() > end {
            break;
        }
        if choice.foreign_keys && !foreign_keys::is_one(case) {
            continue;
        }
        let configuration = configuration.unwrap_or(match (case / BLOCK_CASES) % 2 {
            0 => Configuration::Debian,
            _ => Configuration::Plain,
        });
        sides.configure(configuration)?;
        let patience = if choice.case.is_some() {
            SHRINK_ALONE
        } else {
            SHRINK
        };
        let found = campaign.run_case(&mut sides, plan.seed, case, &topics, patience)?;
        if let Some(found) = found {
            let text = found.text(plan.seed, choice);
            eprintln!("{text}");
            campaign.found.insert(found.difference.what.clone(), found);
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            eprintln!("{}", campaign.progress());
        }
    }
    sides.remove();
    campaign.print(plan.seed, choice, json);
    Ok(ExitCode::from(u8::from(!campaign.found.is_empty())))
}

impl Campaign {
    /// Runs a case; gives a difference of a kind that was not seen before.
    fn run_case(
        &mut self,
        sides: &mut Sides,
        seed: u64,
        case: u64,
        topics: &Topics,
        patience: Duration,
    ) -> Result<Option<Found>> {
        self.cases += 1;
        sides.renew()?;
        let collations = sides.collations.clone();
        let mut generator = steps_of(seed, case, topics, &collations);
        let mut steps = Vec::new();
        let mut found = None;
        while let Some(step) = generator.next() {
            self.statements += 1;
            let (succeeded, judged) = run_step(sides, &step, &mut self.accepted);
            generator.observe(succeeded);
            steps.push(step);
            match judged {
                Judged::Equal => {}
                Judged::Differ(difference) => {
                    // Replaying takes the place of what the case was.
                    if sides.buffered_otherwise() && buffered::proved(sides, &steps) {
                        *self
                            .accepted
                            .entry(accepted::BUFFER_LOSES_ORDER)
                            .or_default() += 1;
                    } else {
                        found = Some(difference);
                    }
                    break;
                }
                Judged::Ends => break,
            }
        }
        let Some(difference) = found else {
            return Ok(None);
        };
        if let Some(known) = self.found.get_mut(&difference.what) {
            known.times += 1;
            return Ok(None);
        }
        let (steps, difference) = shrink_steps(sides, steps, difference, patience);
        Ok(Some(Found {
            case,
            configuration: sides.configuration(),
            difference,
            statements: steps.iter().map(rendered).collect(),
            times: 1,
        }))
    }

    fn progress(&self) -> String {
        let times: u64 = self.found.values().map(|found| found.times).sum();
        format!(
            "{} cases, {} statements, {times} cases differ in {} ways",
            self.cases,
            self.statements,
            self.found.len()
        )
    }

    fn print(&self, seed: u64, choice: &Choice, json: bool) {
        if json {
            let found: Vec<_> = self.found.values().map(Found::json).collect();
            let result = serde_json::json!({
                "seed": seed,
                "cases": self.cases,
                "statements": self.statements,
                "differences": found,
                "accepted": self.accepted,
            });
            println!("{result:#}");
            return;
        }
        for (reason, times) in &self.accepted {
            println!("accepted {times} times: {reason}");
        }
        for found in self.found.values() {
            println!(
                "{} times: {}; {}",
                found.times,
                found.difference.what,
                repeat(seed, found.case, choice)
            );
        }
        println!("seed {seed}: {}", self.progress());
    }
}

/// What makes the case of this number.
fn steps_of(
    seed: u64,
    case: u64,
    topics: &Topics,
    collations: &[text::Collation],
) -> Box<dyn Steps> {
    if foreign_keys::is_one(case) && topics.has(Topic::ForeignKeys) {
        let restarts = topics.has(Topic::Restarts);
        return Box::new(foreign_keys::ForeignKeys::new(seed, case, restarts));
    }
    Box::new(Generator::new(seed, case, topics, collations))
}

/// Runs a step; gives whether InnoDB did it, and how the outcomes compare.
fn run_step(sides: &mut Sides, step: &Step, accepted: &mut Accepted) -> (bool, Judged) {
    match (sides.run(step), step) {
        (Err(gone), _) if accepted::accept_end(&gone, accepted) => (false, Judged::Ends),
        (Err(gone), _) => {
            let difference = Difference {
                what: format!("the server is gone in a statement of {}", gone.engine),
                innodb: String::new(),
                inkstone: gone.how,
            };
            (false, Judged::Differ(difference))
        }
        (Ok(Some(outcomes)), Step::Run(statement)) => {
            let refused = matches!(outcomes[0].reply, super::client::Reply::Refused(_));
            let judged = match compare::compare(sides, statement, &outcomes, accepted) {
                Judged::Equal => buffered::unequal_rows(sides, &statement.sql.render())
                    .map_or(Judged::Equal, Judged::Differ),
                judged => judged,
            };
            (!refused, judged)
        }
        _ => (true, Judged::Equal),
    }
}

/// Runs steps in new databases until two outcomes differ.
fn replay(sides: &mut Sides, steps: &[Step]) -> Option<Difference> {
    sides.renew().ok()?;
    let mut accepted = Accepted::default();
    for (at, step) in steps.iter().enumerate() {
        match run_step(sides, step, &mut accepted).1 {
            Judged::Equal => {}
            Judged::Differ(difference) => {
                let is_meant = sides.buffered_otherwise() && buffered::proved(sides, &steps[..=at]);
                return (!is_meant).then_some(difference);
            }
            Judged::Ends => return None,
        }
    }
    None
}

/// Shrinks; gives the steps that are left, and what they give. Where a difference does not come
/// again, all steps.
fn shrink_steps(
    sides: &mut Sides,
    steps: Vec<Step>,
    difference: Difference,
    patience: Duration,
) -> (Vec<Step>, Difference) {
    let until = Instant::now() + patience;
    let what = difference.what.clone();
    let mut last = difference;
    let steps = shrink::shrink(steps, until, &mut |steps| match replay(sides, steps) {
        Some(again) if again.what == what => {
            last = again;
            true
        }
        _ => false,
    });
    (steps, last)
}

fn rendered(step: &Step) -> String {
    match step {
        Step::Run(statement) => statement.sql.render() + ";",
        Step::Restart => "-- the server is restarted".to_owned(),
        Step::Kill => "-- the server is killed, and started".to_owned(),
    }
}

fn repeat(seed: u64, case: u64, choice: &Choice) -> String {
    use clap::ValueEnum;
    let mut command =
        format!("repeat: cargo xtask mariadb --differential --seed {seed} --case {case}");
    let names = choice.without.iter().filter_map(Topic::to_possible_value);
    let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
    if !names.is_empty() {
        command += &format!(" --without {}", names.join(","));
    }
    command
}

impl Found {
    fn text(&self, seed: u64, choice: &Choice) -> String {
        let Difference {
            what,
            innodb,
            inkstone,
        } = &self.difference;
        format!(
            "\nDIFFERS: {what} (configuration {:?})\n{}\n{}\n-- InnoDB:\n{innodb}-- Inkstone:\n{inkstone}",
            self.configuration,
            repeat(seed, self.case, choice),
            self.statements.join("\n"),
        )
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "case": self.case,
            "times": self.times,
            "what": self.difference.what,
            "configuration": format!("{:?}", self.configuration),
            "statements": self.statements,
            "innodb": self.difference.innodb,
            "inkstone": self.difference.inkstone,
        })
    }
}
