//! sysbench from Debian's package, against one engine of a private server.

use super::apt::output;
use super::server::Server;
use inkstone_testkit::build::Result;
use std::process::Command;

/// The tables that a run works on.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    pub count: u32,
    pub rows: u64,
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Measured {
    pub transactions_per_second: f64,
    pub latency_p99_ms: f64,
    pub latency_max_ms: f64,
    /// Transactions of each second but the last one.
    pub by_second: Vec<f64>,
}

/// sysbench over the tables of one engine, which are in a database of its name.
pub struct Sysbench<'a> {
    pub server: &'a Server,
    pub engine: &'static str,
    pub tables: Tables,
}

impl Sysbench<'_> {
    /// Makes and fills the tables.
    pub fn prepare(&self, script: &str) -> Result<()> {
        let database = self.database();
        self.server
            .sql(&format!("CREATE OR REPLACE DATABASE {database}"))?;
        let mut command = self.command(script, 2);
        output(command.arg("prepare")).map(drop)
    }

    /// Runs a script for some seconds.
    pub fn run(&self, script: &str, clients: u32, seconds: u64) -> Result<Measured> {
        let mut command = self.command(script, clients);
        command.args([
            format!("--time={seconds}"),
            "--percentile=99".to_owned(),
            "--report-interval=1".to_owned(),
            // A deadlock's victim, a lock wait that took too long, a row changed meanwhile.
            "--mysql-ignore-errors=1213,1205,1020".to_owned(),
            "run".to_owned(),
        ]);
        let printed = output(&mut command).map_err(|error| {
            format!(
                "sysbench {script} fails for {}: {error}\n{}",
                self.engine,
                self.server.end_of_log()
            )
        })?;
        parse(&printed).ok_or_else(|| format!("sysbench printed something else:\n{printed}"))
    }

    fn database(&self) -> String {
        format!("sysbench_{}", self.engine.to_lowercase())
    }

    fn command(&self, script: &str, clients: u32) -> Command {
        let tree = self.server.tree();
        let scripts = tree.usr().join("share/sysbench");
        let mut command = tree.command(&tree.program("sysbench"));
        command
            .env("LUA_PATH", format!("{}/?.lua", scripts.display()))
            .arg(scripts.join(format!("{script}.lua")))
            .args([
                "--db-driver=mysql".to_owned(),
                "--mysql-user=root".to_owned(),
                format!("--mysql-socket={}", self.server.socket().display()),
                format!("--mysql-db={}", self.database()),
                format!("--mysql-storage-engine={}", self.engine),
                format!("--tables={}", self.tables.count),
                format!("--table-size={}", self.tables.rows),
                format!("--threads={clients}"),
                "--rand-type=uniform".to_owned(),
                "--rand-seed=1".to_owned(),
            ]);
        command
    }
}

fn parse(printed: &str) -> Option<Measured> {
    let value = |label: &str| {
        let line = printed
            .lines()
            .find(|line| line.trim().starts_with(label))?;
        Some(line.split_once(':')?.1.trim())
    };
    let (_, rate) = value("transactions:")?.split_once('(')?;
    Some(Measured {
        transactions_per_second: rate.split_whitespace().next()?.parse().ok()?,
        latency_p99_ms: value("99th percentile")?.parse().ok()?,
        latency_max_ms: value("max")?.parse().ok()?,
        by_second: printed.lines().filter_map(second).collect(),
    })
}

/// The rate in a line of one second: `[ 1s ] thds: 16 tps: 2010.55 qps: ...`.
fn second(line: &str) -> Option<f64> {
    let (_, rest) = line.strip_prefix("[ ")?.split_once("tps: ")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sysbench_prints_is_understood() {
        let text = "[ 1s ] thds: 16 tps: 2011.50 qps: 2011.50 (r/w/o: 0.00/2011.50/0.00)\n\
                    SQL statistics:\n    transactions:                        20113  (2010.55 per sec.)\n\
                    Latency (ms):\n         min:                  0.1\n         max:      92.30\n\
                    99th percentile:                       21.50\n";
        let measured = parse(text).expect("numbers");
        assert_eq!(measured.transactions_per_second, 2010.55);
        assert_eq!(measured.latency_p99_ms, 21.5);
        assert_eq!(measured.latency_max_ms, 92.3);
        assert_eq!(measured.by_second, [2011.5]);
    }
}
