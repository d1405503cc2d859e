//! A child: which role it has, and how it ends.

use super::plan::Load;
use super::protocol::Line;
use clap::ValueEnum;
use inkstone::internals::mutants;
use inkstone::{Database, Options, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::path::PathBuf;
use std::time::Duration;

/// What a child does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Runs transactions until it is killed.
    Work,
    /// Opens, and waits to be killed.
    Open,
    /// Opens, reads everything, says what is there, and closes.
    Check,
    /// As `Check`, but waits to be killed instead of closing.
    CheckAndWait,
}

/// Arguments of the hidden `child`.
#[derive(clap::Args, Clone, Debug)]
pub struct ChildArguments {
    /// The database.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// What to do.
    #[arg(long)]
    pub role: Role,
    /// The run's seed.
    #[arg(long)]
    pub seed: u64,
    /// The number of this worker's life, for what need not be known to others.
    #[arg(long, default_value_t = 0)]
    pub life: u64,
    /// Each client's first sequence number.
    #[arg(long, value_delimiter = ',')]
    pub first: Vec<u64>,
    /// DDL steps that have been done.
    #[arg(long, default_value_t = 0)]
    pub steps: u64,
    /// Options of the engine.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// A deliberate bug.
    #[arg(long)]
    pub mutant: Option<String>,
}

/// An orphan ends by itself.
pub const LIFETIME: Duration = Duration::from_secs(300);
/// The exit code of a child that has said its error.
pub const ERROR_EXIT: u8 = 3;

/// Does what the arguments say. The result is the exit code.
pub fn run_child(arguments: &ChildArguments) -> std::process::ExitCode {
    if let Some(Err(text)) = arguments.mutant.as_deref().map(mutants::switch_on) {
        Line::Error(text).say();
        return std::process::ExitCode::from(ERROR_EXIT);
    }
    // Where the kernel refuses this, the closed pipe and the lifetime have to do.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        std::process::abort();
    }));
    let done = options(&arguments.set).and_then(|options| match arguments.role {
        Role::Work => super::worker::work(&open(arguments, options)?, arguments),
        Role::Open => open(arguments, options).map(|db| wait_to_be_killed(&db)),
        Role::Check | Role::CheckAndWait => {
            let db = open(arguments, options)?;
            super::check::check(&db, &Load::of_seed(arguments.seed))?;
            if arguments.role == Role::CheckAndWait {
                wait_to_be_killed(&db);
            }
            db.close()
        }
    });
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            Line::Error(error.to_string()).say();
            std::process::ExitCode::from(ERROR_EXIT)
        }
    }
}

fn options(set: &[String]) -> Result<Options> {
    let mut options = Options::default();
    for assignment in set {
        let (name, value) = assignment.split_once('=').unwrap_or((assignment, ""));
        options.set(name, value)?;
    }
    Ok(options)
}

fn open(arguments: &ChildArguments, options: Options) -> Result<Database> {
    Line::Opening.say();
    let db = Database::open(&arguments.directory, options)?;
    Line::Open.say();
    // Rows of large losers are locked until they are undone, behind the opening.
    db.finish_rollbacks()?;
    Ok(db)
}

fn wait_to_be_killed(_open: &Database) {
    std::thread::sleep(LIFETIME);
}
