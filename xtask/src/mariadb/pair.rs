//! A primary and its replica: row-based binary log, GTIDs.

use super::apt::output;
use super::plugin::Plugin;
use super::server::Server;
use super::tree::Tree;
use crate::build::Result;
use std::time::{Duration, Instant};

/// Two private servers.
pub struct Pair {
    pub primary: Server,
    pub replica: Server,
    databases: &'static [&'static str],
}

impl Pair {
    /// Starts both, connects the replica, which follows what it does in `databases` of the
    /// primary with `parallel` workers (0: one thread does all). `options` are the replica's.
    pub fn start(
        tree: &Tree,
        plugin: &Plugin,
        name: &str,
        parallel: u32,
        databases: &'static [&'static str],
        options: &[&str],
    ) -> Result<Self> {
        let port = free_port()?;
        let common = |id: u32| {
            [
                format!("--server-id={id}"),
                "--log-bin=binlog".to_owned(),
                "--log-slave-updates".to_owned(),
                "--binlog-format=row".to_owned(),
                "--sync-binlog=1".to_owned(),
                "--gtid-strict-mode=1".to_owned(),
                "--innodb-flush-log-at-trx-commit=1".to_owned(),
                "--slave-net-timeout=5".to_owned(),
            ]
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
            .with_options([format!("--slave-parallel-threads={parallel}")])
            .with_options(["--skip-slave-start"])
            .with_options(options.iter().copied())
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

    /// Has a replica that was killed go on. All that its binary log has must be in its engines, and its
    /// position with it.
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

    /// Every table has the same rows on both.
    pub fn compare(&self) -> Result<usize> {
        let tables = format!(
            "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables \
             WHERE table_schema IN ('{}') AND table_type = 'BASE TABLE' ORDER BY 1",
            self.databases.join("', '")
        );
        let of_primary = self.primary.sql(&tables)?;
        let of_replica = self.replica.sql(&tables)?;
        if of_primary != of_replica {
            return Err(format!(
                "the primary has tables\n{of_primary}the replica has\n{of_replica}"
            ));
        }
        for table in of_primary.lines() {
            let checksum = |server: &Server| {
                server.sql(&format!(
                    "CHECKSUM TABLE {table} EXTENDED; SELECT COUNT(*) FROM {table}"
                ))
            };
            let (primary, replica) = (checksum(&self.primary)?, checksum(&self.replica)?);
            if primary != replica {
                return Err(format!(
                    "{table} differs: primary {primary:?}, replica {replica:?}"
                ));
            }
        }
        Ok(of_primary.lines().count())
    }
}

/// A port that nobody listens on just now.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port())
        .map_err(|error| format!("no free port: {error}"))
}
