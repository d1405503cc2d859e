//! `--experiments`: what was published about InnoDB, in SQL, for both engines in the same server,
//! one after the other.
//!
//! `mariadb/experiments/*.sql` are run by the client; `-- server: OPTIONS` in them adds options to
//! the server, and `-- measure LABEL [ROWS]` begins a part whose time, log and writes are measured.
//! `mariadb/experiments/*.sysbench` name a script of sysbench and what to vary.

use super::apt::output;
use super::bench::{Effort, FAIR};
use super::counters::{self, Part};
use super::inputs::{Input, inputs};
use super::plugin::Plugin;
use super::server::Server;
use super::sysbench::{Sysbench, Tables};
use super::tree::Tree;
use inkstone_bench::statistics::median;
use inkstone_testkit::build::Result;
use std::process::ExitCode;

const ENGINES: [&str; 2] = ["InnoDB", "Inkstone"];

/// Runs all files, or those whose name begins with `filter`.
pub fn run(
    tree: &Tree,
    plugin: &Plugin,
    filter: Option<&str>,
    effort: Effort,
    json: bool,
) -> Result<ExitCode> {
    let mut results = Vec::new();
    for Input { name, text } in inputs("experiments", filter, "")? {
        let sections = if name.ends_with(".sql") {
            run_sql(tree, plugin, &name, &text, effort)?
        } else {
            run_sysbench(tree, plugin, &name, &text, effort)?
        };
        if !json {
            sections.iter().for_each(Section::print);
        }
        results.extend(sections);
    }
    if json {
        let sections = results.iter().map(Section::as_json);
        println!("{:#}", sections.collect::<serde_json::Value>());
    }
    Ok(ExitCode::SUCCESS)
}

/// Figures of both engines under one setting of the server.
struct Section {
    title: String,
    /// What was measured; its unit; InnoDB's and Inkstone's figure.
    rows: Vec<(String, &'static str, f64, f64)>,
}

impl Section {
    fn print(&self) {
        println!("\n{}", self.title);
        println!(
            "{:30} {:14} {:>14} {:>14} {:>8}",
            "", "", "InnoDB", "Inkstone", "ratio"
        );
        for (label, unit, innodb, inkstone) in &self.rows {
            let ratio = if *innodb > 0.0 {
                format!("{:8.3}", inkstone / innodb)
            } else {
                "-".to_owned()
            };
            println!(
                "{label:30} {unit:14} {:>14} {:>14} {ratio:>8}",
                figure(*innodb),
                figure(*inkstone)
            );
        }
    }

    fn as_json(&self) -> serde_json::Value {
        let rows = self.rows.iter().map(|(label, unit, innodb, inkstone)| {
            serde_json::json!({"label": label, "unit": unit, "innodb": innodb, "inkstone": inkstone})
        });
        serde_json::json!({"title": self.title, "rows": rows.collect::<serde_json::Value>()})
    }
}

fn figure(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

/// The words behind `-- KEY:` in a file.
fn directive<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines().filter_map(|line| {
        line.strip_prefix("-- ")?
            .strip_prefix(key)?
            .strip_prefix(':')
    });
    lines.flat_map(str::split_whitespace).collect()
}

/// A server with the options that a file asks for. What was published was measured with doublewrite
/// and without.
fn start(tree: &Tree, plugin: &Plugin, text: &str, doublewrite: &str) -> Result<Server> {
    let engines = ["innodb", "inkstone"];
    let mut server = Server::temporary(tree, "experiments")
        .with_plugin(plugin)
        .with_options(FAIR)
        .with_options(directive(text, "server"))
        .with_options(engines.map(|engine| format!("--{engine}-doublewrite={doublewrite}")));
    server.start()?;
    Ok(server)
}

fn run_sql(
    tree: &Tree,
    plugin: &Plugin,
    name: &str,
    text: &str,
    effort: Effort,
) -> Result<Vec<Section>> {
    let mut sections = Vec::new();
    for setting in ["on", "off"] {
        let server = start(tree, plugin, text, setting)?;
        let mut runs: [Vec<Vec<Part>>; 2] = Default::default();
        for round in 0..effort.rounds {
            for (engine, runs) in ENGINES.iter().zip(&mut runs) {
                eprintln!(
                    "{name}, doublewrite {setting}: {engine}, round {} of {}",
                    round + 1,
                    effort.rounds
                );
                runs.push(measure_file(&server, text, engine)?);
            }
        }
        server.stop()?;
        server.remove();
        sections.push(Section {
            title: format!("{name}, doublewrite {setting}"),
            rows: rows(&runs),
        });
    }
    Ok(sections)
}

/// Runs the file in one session; gives what each part took.
fn measure_file(server: &Server, text: &str, engine: &str) -> Result<Vec<Part>> {
    server.sql("CREATE OR REPLACE DATABASE experiment")?;
    let text = text.replace("Inkstone", engine);
    let mut client = server.client_for(&counters::with_marks(&text, engine, server.process()?))?;
    client.args(["--database=experiment", "--batch", "--skip-column-names"]);
    let printed = output(&mut client).map_err(|error| format!("{engine}: {error}"))?;
    counters::parts(&printed)
}

/// Medians of each part's figures.
fn rows(runs: &[Vec<Vec<Part>>; 2]) -> Vec<(String, &'static str, f64, f64)> {
    let mut rows = Vec::new();
    let Some(first) = runs[0].first() else {
        return rows;
    };
    for (at, part) in first.iter().enumerate() {
        let figure = |of: &dyn Fn(&Part) -> f64| {
            let of_engine = |runs: &Vec<Vec<Part>>| {
                median(
                    &runs
                        .iter()
                        .filter_map(|run| run.get(at))
                        .map(of)
                        .collect::<Vec<_>>(),
                )
            };
            (of_engine(&runs[0]), of_engine(&runs[1]))
        };
        let mut push = |unit, of: &dyn Fn(&Part) -> f64| {
            let (innodb, inkstone) = figure(of);
            rows.push((part.label.clone(), unit, innodb, inkstone));
        };
        push("s", &|part| part.seconds);
        push("processor s", &|part| part.processor_seconds);
        push("peak bytes", &|part| part.peak_bytes);
        push("log bytes", &|part| part.log_bytes);
        if part.rows > 0.0 {
            push("log bytes/row", &|part| part.log_bytes / part.rows);
        }
        push("data bytes", &|part| part.data_bytes);
        push("data writes", &|part| part.data_writes);
        push("dblwr pages", &|part| part.doublewrite_pages);
    }
    rows
}

/// `KEY VALUES` lines: script, tables, rows, clients, flush-log; and options of the server.
fn run_sysbench(
    tree: &Tree,
    plugin: &Plugin,
    name: &str,
    text: &str,
    effort: Effort,
) -> Result<Vec<Section>> {
    let number = |key| -> Result<u64> {
        let values = directive(text, key);
        let value = values.first().and_then(|value| value.parse().ok());
        value.ok_or_else(|| format!("{name} has no line \"-- {key}: NUMBER\""))
    };
    let scripts = directive(text, "script");
    let script = *scripts
        .first()
        .ok_or_else(|| format!("{name} names no script"))?;
    let tables = Tables {
        count: u32::try_from(number("tables")?).unwrap_or(1),
        rows: number("rows")?,
    };
    let clients: Vec<u32> = directive(text, "clients")
        .iter()
        .filter_map(|word| word.parse().ok())
        .collect();
    let mut sections = Vec::new();
    for setting in ["on", "off"] {
        let server = start(tree, plugin, text, setting)?;
        let engines = ENGINES.map(|engine| Sysbench {
            server: &server,
            engine,
            tables,
        });
        for engine in &engines {
            eprintln!(
                "{name}, doublewrite {setting}: filling tables of {}",
                engine.engine
            );
            engine.prepare(script)?;
            // To warm up; it does not count.
            engine.run(script, 8, 2)?;
        }
        for flush in directive(text, "flush-log") {
            server.sql(&format!(
                "SET GLOBAL innodb_flush_log_at_trx_commit={flush}; \
                 SET GLOBAL inkstone_flush_log_at_trx_commit={flush}"
            ))?;
            let title = format!("{name}, doublewrite {setting}, flush_log_at_trx_commit={flush}");
            eprintln!("{title}");
            let rows = sysbench_rows(&engines, script, &clients, effort)?;
            sections.push(Section { title, rows });
        }
        server.stop()?;
        server.remove();
    }
    Ok(sections)
}

fn sysbench_rows(
    engines: &[Sysbench<'_>; 2],
    script: &str,
    clients: &[u32],
    effort: Effort,
) -> Result<Vec<(String, &'static str, f64, f64)>> {
    let mut rows = Vec::new();
    for &clients in clients {
        let mut rates = [Vec::new(), Vec::new()];
        let mut latencies = [Vec::new(), Vec::new()];
        for _ in 0..effort.rounds {
            for (at, engine) in engines.iter().enumerate() {
                let measured = engine.run(script, clients, effort.seconds)?;
                rates[at].push(measured.transactions_per_second);
                latencies[at].push(measured.latency_max_ms);
            }
        }
        let label = format!("{clients} clients");
        rows.push((
            label.clone(),
            "commits/s",
            median(&rates[0]),
            median(&rates[1]),
        ));
        rows.push((
            label,
            "max ms",
            median(&latencies[0]),
            median(&latencies[1]),
        ));
    }
    Ok(rows)
}
