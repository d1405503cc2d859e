//! A primary and its replica: binary log of any format, GTIDs.

use super::apt::output;
use super::plugin::Plugin;
use super::server::Server;
use super::tree::Tree;
use inkstone_testkit::build::Result;
use std::time::{Duration, Instant};

/// How the primary writes changes to its binary log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Format {
    Row,
    Mixed,
    Statement,
}

impl Format {
    pub const ALL: [Self; 3] = [Self::Row, Self::Mixed, Self::Statement];

    /// As `binlog_format` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Row => "ROW",
            Self::Mixed => "MIXED",
            Self::Statement => "STATEMENT",
        }
    }
}

/// What a pair is like.
pub struct Shape<'a> {
    /// Of the servers' folders.
    pub name: &'a str,
    /// Workers of the replica; 0: one thread does all.
    pub parallel: u32,
    /// Of the primary's binary log.
    pub format: Format,
    /// What is synced: everything, or nothing, where no server is killed.
    pub synced: bool,
    /// The replica follows what the primary does in these; in all if there are none.
    pub databases: &'static [&'static str],
    /// More options of both.
    pub options: &'a [&'a str],
    /// More options of the replica.
    pub of_replica: &'a [&'a str],
}

impl Default for Shape<'_> {
    fn default() -> Self {
        Self {
            name: "pair",
            parallel: 0,
            format: Format::Row,
            synced: true,
            databases: &[],
            options: &[],
            of_replica: &[],
        }
    }
}

/// Two private servers.
pub struct Pair {
    pub primary: Server,
    pub replica: Server,
    databases: &'static [&'static str],
}

impl Pair {
    /// Starts both, and connects the replica.
    pub fn start(tree: &Tree, plugin: &Plugin, shape: &Shape<'_>) -> Result<Self> {
        let port = free_port()?;
        let Shape {
            name, databases, ..
        } = shape;
        let synced = u32::from(shape.synced);
        let common = |id: u32| {
            let own = [
                format!("--server-id={id}"),
                "--log-bin=binlog".to_owned(),
                "--log-slave-updates".to_owned(),
                format!("--binlog-format={}", shape.format.name()),
                format!("--sync-binlog={synced}"),
                "--gtid-strict-mode=1".to_owned(),
                format!("--innodb-flush-log-at-trx-commit={}", 2 - synced),
                "--slave-net-timeout=5".to_owned(),
            ];
            own.into_iter()
                .chain(shape.options.iter().map(|&option| option.to_owned()))
        };
        let mut primary = Server::temporary(tree, &format!("{name}-primary"))
            .with_plugin(plugin)
            .with_options(common(1))
            .with_options([
                format!("--port={port}"),
                "--bind-address=127.0.0.1".to_owned(),
            ]);
        let mut replica = Server::temporary(tree, &format!("{name}-replica"))
            .with_plugin(plugin)
            .with_options(common(2))
            .with_options([format!("--slave-parallel-threads={}", shape.parallel)])
            .with_options(["--skip-slave-start"])
            .with_options(shape.of_replica.iter().copied())
            .with_options(
                databases
                    .iter()
                    .map(|name| format!("--replicate-wild-do-table={name}.%")),
            );
        primary.start()?;
        replica.start()?;
        primary.sql(
            "CREATE USER replica@'127.0.0.1' IDENTIFIED BY 'replica'; \
             GRANT REPLICATION SLAVE ON *.* TO replica@'127.0.0.1'",
        )?;
        replica.sql(&format!(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='replica', \
             MASTER_PASSWORD='replica', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1; START SLAVE"
        ))?;
        Ok(Self {
            primary,
            replica,
            databases,
        })
    }

    /// Has a replica that was killed go on. All that its binary log has must be in its engines, and
    /// its position with it.
    pub fn resume(replica: &Server) -> Result<()> {
        let positions = replica.sql("SELECT @@gtid_slave_pos, @@gtid_binlog_pos")?;
        let (applied, logged) = positions.trim().split_once('\t').unwrap_or_default();
        if applied != logged {
            return Err(format!(
                "the replica's tables are at {applied}, and its binary log at {logged}"
            ));
        }
        replica.sql("START SLAVE").map(drop)
    }

    /// Waits until the replica has everything that the primary's binary log has.
    pub fn catch_up(&self) -> Result<()> {
        let position = self.primary.sql("SELECT @@gtid_binlog_pos")?;
        let began = Instant::now();
        loop {
            let waited = self.replica.sql(&format!(
                "SELECT MASTER_GTID_WAIT('{}', 5)",
                position.trim()
            ))?;
            if waited.trim() == "0" {
                return Ok(());
            }
            let mut client = self.replica.client();
            client.args(["--vertical", "--execute", "SHOW ALL SLAVES STATUS"]);
            let status = output(&mut client)?;
            let field = |name: &str| {
                let line = status
                    .lines()
                    .find_map(|line| line.trim().strip_prefix(name));
                line.unwrap_or_default()
                    .trim_start_matches(':')
                    .trim()
                    .to_owned()
            };
            let stopped = field("Slave_SQL_Running") == "No";
            if stopped || began.elapsed() > Duration::from_secs(120) {
                return Err(format!(
                    "the replica does not reach {}: {} {}\n{}",
                    position.trim(),
                    field("Last_SQL_Error"),
                    field("Last_IO_Error"),
                    self.replica
                        .sql("SHOW FULL PROCESSLIST; SHOW ENGINE INKSTONE STATUS")?,
                ));
            }
        }
    }

    /// Every table has the same rows on both, generated columns among them, whose values CHECKSUM
    /// TABLE does not ask for.
    pub fn compare(&self) -> Result<usize> {
        let sums = format!(
            "SELECT CONCAT('SELECT COUNT(*), SUM(CRC32(CONCAT_WS(''|'', ', \
             GROUP_CONCAT('IFNULL(`', column_name, '`, ''-'')' ORDER BY ordinal_position SEPARATOR ', '), \
             '))) FROM `', table_schema, '`.`', table_name, '`') \
             FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name) \
             WHERE table_schema IN ('{}') AND table_type = 'BASE TABLE' GROUP BY table_schema, table_name ORDER BY 1",
            self.databases.join("', '")
        );
        let of_primary = self.primary.sql(&sums)?;
        let of_replica = self.replica.sql(&sums)?;
        if of_primary != of_replica {
            return Err(format!(
                "the primary has tables\n{of_primary}the replica has\n{of_replica}"
            ));
        }
        for sum in of_primary.lines() {
            let (primary, replica) = (self.primary.sql(sum)?, self.replica.sql(sum)?);
            if primary != replica {
                return Err(format!(
                    "a table differs: primary {primary:?}, replica {replica:?} of {sum}"
                ));
            }
        }
        Ok(of_primary.lines().count())
    }
}

/// A port that is free just now.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port())
        .map_err(|error| format!("no free port: {error}"))
}
