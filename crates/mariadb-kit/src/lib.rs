//! `cargo xtask mariadb`: the engine inside an unmodified MariaDB server.
//!
//! A matching server, its headers and its test suite come from Debian's packages, unpacked under
//! `target/mariadb`; nothing is installed ([docs/mariadb.md](../../../docs/mariadb.md)).

mod alter_matrix;
mod apt;
mod bench;
mod client;
mod collations;
mod compare;
mod copies;
mod counters;
mod crash;
mod differential;
mod experiments;
mod families;
mod full_disk;
mod giants;
mod group_commit;
mod histories;
mod idle;
mod import;
mod inputs;
pub mod journal;
mod kept;
mod kills;
mod libraries;
mod long_columns;
mod missing;
mod mtr;
mod online;
mod orphans;
mod own_tables;
mod packages;
mod pair;
mod partitioned;
mod plugin;
mod prompt;
mod random;
mod read_only;
mod replication;
mod sanitizer;
mod server;
mod session;
mod sessions;
mod shutdown;
mod smoke;
mod steps;
mod symbols;
mod sysbench;
mod tpcc;
mod tree;
mod watching;
mod workload;
mod wrong_indexes;

use inkstone_testkit::build::Result;
use plugin::Plugin;
use sanitizer::Sanitizer;
use std::path::PathBuf;
use std::process::ExitCode;
use tree::{Configuration, Tree};

/// Builds the plugin for MariaDB and opens the SQL prompt of a private server; or tests, measures,
/// stops (see docs/mariadb.md).
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    task: Task,
    #[command(flatten)]
    effort: bench::Effort,
    #[command(flatten)]
    plan: crash::Plan,
    #[command(flatten)]
    choice: differential::Choice,
    /// Print the result of --mtr, --bench, --experiments, --differential,
    /// --sessions or --histories as JSON
    #[arg(long)]
    json: bool,
    /// Build the handler with AddressSanitizer and UndefinedBehaviorSanitizer, and fail if they
    /// report anything in any server that is started
    #[arg(long)]
    sanitize: bool,
    /// How the primary of --replication writes its binary log [default: each for a third of the
    /// time]
    #[arg(long, value_enum, value_name = "FORMAT")]
    binlog_format: Option<pair::Format>,
    /// Build the engine with its deliberate bugs, and switch this one on
    #[arg(long, value_name = "NAME", conflicts_with = "sanitize")]
    mutant: Option<String>,
    /// What the private servers are configured by [default: debian; --smoke and --differential:
    /// both in turns]
    #[arg(long, value_enum)]
    config: Option<Configuration>,
}

/// What to do; without any, the SQL prompt.
#[derive(clap::Args)]
#[group(multiple = false)]
struct Task {
    /// One step by itself
    step: Option<Step>,
    /// Run a file of SQL, and print what it prints
    #[arg(long, value_name = "FILE")]
    sql: Option<PathBuf>,
    /// Run MariaDB's own tests for InnoDB and for Inkstone, and compare what they print: suites, or
    /// single tests as SUITE.TEST [default: storage_engine, its trx and parts, engines/iuds]
    #[arg(long, value_name = "SUITE", num_args = 0..)]
    mtr: Option<Vec<String>>,
    /// Run mariadb/tests/*.sql for InnoDB and for Inkstone, and compare what they print; or those
    /// whose name begins with NAME
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    smoke: Option<Option<String>>,
    /// Measure both engines with sysbench, in turns; or only workloads whose name has NAME in it.
    /// tpcc: a mix like TPC-C's; group_commit: syncs of commits with a binary log
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    bench: Option<Option<String>>,
    /// Repeat the published experiments of mariadb/experiments; or those whose name begins with
    /// NAME
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    experiments: Option<Option<String>>,
    /// Compare key images with the server's own comparison of texts, for every collation; or for
    /// those whose name has NAME in it
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    collations: Option<Option<String>>,
    /// Kill a server again and again under transactions and DDL, and check what is left
    #[arg(long)]
    crash: bool,
    /// Kill a server before each single step of DDL of partitioned tables, and check what is left;
    /// or of cases whose name begins with NAME
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    steps: Option<Option<String>>,
    /// Run random SQL on InnoDB and on Inkstone, and compare what each statement gives
    #[arg(long)]
    differential: bool,
    /// Run statements of two to four sessions in turns on InnoDB and on Inkstone, and compare what
    /// each gives, and which sessions wait: scripts, then random ones; or only the scripts whose
    /// name has NAME in it
    #[arg(long, value_name = "NAME", num_args = 0..=1)]
    sessions: Option<Option<String>>,
    /// Record concurrent transactions in SQL, and check them for what their isolation level forbids
    #[arg(long)]
    histories: bool,
    /// Kill a replica again and again while the primary works, and compare the two
    #[arg(long)]
    replication: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Step {
    /// Fetch the newest server whose binaries and source can both be had
    Fetch,
    /// Build the plugin
    Build,
    /// End the server of the SQL prompt
    Stop,
}

/// Does it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let task = &arguments.task;
    if let Some(Step::Fetch) = task.step {
        return packages::fetch().map(|_| ExitCode::SUCCESS);
    }
    let tree = packages::tree()?.configured(arguments.config.unwrap_or_default());
    if let Some(Step::Stop) = task.step {
        return prompt::stop(&tree);
    }
    if !arguments.sanitize {
        let mutant = arguments.mutant.as_deref();
        return serve(&tree, &plugin::build(&tree, None, mutant)?, arguments);
    }
    let sanitizer = Sanitizer::begin(&plugin::cxx())?;
    let plugin = plugin::build(&tree, Some(&sanitizer), None)?;
    sanitizer.prove(&tree, &plugin)?;
    sanitizer.finish(serve(&tree, &plugin, arguments))
}

/// What is done with the plugin.
fn serve(tree: &Tree, plugin: &Plugin, arguments: &Arguments) -> Result<ExitCode> {
    let task = &arguments.task;
    if let Some(suites) = &task.mtr {
        return mtr::run(tree, plugin, suites, arguments.json);
    }
    if let Some(filter) = &task.smoke {
        return smoke::run(tree, plugin, filter.as_deref(), arguments.config);
    }
    if let Some(filter) = &task.steps {
        return steps::run(tree, plugin, filter.as_deref());
    }
    if let Some(filter) = &task.collations {
        return collations::run(tree, plugin, filter.as_deref(), arguments.plan);
    }
    let (effort, json) = (arguments.effort, arguments.json);
    if let Some(filter) = &task.bench {
        return bench::run(tree, plugin, filter.as_deref(), effort, json);
    }
    if let Some(filter) = &task.experiments {
        return experiments::run(tree, plugin, filter.as_deref(), effort, json);
    }
    if task.differential {
        let (plan, choice) = (arguments.plan, &arguments.choice);
        return differential::run(tree, plugin, plan, choice, arguments.config, json);
    }
    if let Some(filter) = &task.sessions {
        let choice = sessions::Choice {
            filter: filter.as_deref(),
            case: arguments.choice.case,
            cases: arguments.choice.cases,
            whole: arguments.mutant.is_some(),
        };
        return sessions::run(tree, plugin, arguments.plan, choice, json);
    }
    if task.histories {
        return histories::run(tree, plugin, arguments.plan, json);
    }
    if task.crash {
        return crash::run(tree, plugin, arguments.plan);
    }
    if task.replication {
        return replication::run(tree, plugin, arguments.plan, arguments.binlog_format);
    }
    match (task.step, &task.sql) {
        (Some(_), _) => Ok(ExitCode::SUCCESS),
        (None, Some(file)) => prompt::run_file(tree, plugin, file),
        (None, None) => prompt::open(tree, plugin),
    }
}
