//! The same load in SQL, on InnoDB in a server whose files are on the device.

use super::load::{CLIENTS, Load, Run, Sizes};
use crate::server::Server;
use crate::sysbench::{Sysbench, Tables};
use crate::tree::Tree;
use inkstone::internals::options::Doublewrite;
use inkstone_bench::device::Written;
use inkstone_bench::statistics::{middle, percentile};
use inkstone_testkit::build::Result;
use inkstone_testkit::loops::Case;
use std::path::Path;

const SCRIPT: &str = "oltp_update_non_index";
/// Bytes of a row of sysbench, with its entry in the secondary index.
const ROW_BYTES: u64 = 240;

/// A server for one case. It runs while it is measured only.
pub struct Innodb {
    server: Server,
    sizes: Sizes,
}

/// What InnoDB has written since its start: its counters, and how we call them.
const COUNTERS: [(&str, &str); 2] = [
    ("Innodb_os_log_written", "log"),
    ("Innodb_data_written", "data"),
];

impl Innodb {
    /// A server in a directory on the device; none if InnoDB has no such doublewrite.
    pub fn new(tree: &Tree, case: &Case, device: &Path, sizes: Sizes) -> Option<Self> {
        let doublewrite = match case.doublewrite {
            Doublewrite::On => "on",
            Doublewrite::Off => "off",
            Doublewrite::Atomic => return None,
        };
        let server = Server::new(tree, &device.join("innodb")).with_options([
            format!("--innodb-doublewrite={doublewrite}"),
            format!("--innodb-page-size={}", case.page_bytes),
            format!("--innodb-buffer-pool-size={}", sizes.pool_bytes),
            format!("--innodb-log-file-size={}", sizes.log_bytes),
            "--innodb-flush-log-at-trx-commit=1".to_owned(),
            "--innodb-flush-method=O_DIRECT".to_owned(),
            "--innodb-buffer-pool-dump-at-shutdown=off".to_owned(),
            "--performance-schema=off".to_owned(),
        ]);
        Some(Self { server, sizes })
    }

    fn sysbench(&self, load: Load) -> Sysbench<'_> {
        Sysbench {
            server: &self.server,
            engine: "InnoDB",
            tables: Tables {
                count: 1,
                rows: self.sizes.data_bytes(load) / ROW_BYTES,
            },
        }
    }

    /// Makes and fills the table of a load.
    pub fn prepare(&mut self, load: Load) -> Result<()> {
        self.server.start()?;
        self.sysbench(load).prepare(SCRIPT)?;
        self.server.stop()
    }

    /// Starts the server, warms up, runs the load, and stops it.
    pub fn run(&mut self, load: Load) -> Result<Run> {
        self.server.start()?;
        let sysbench = self.sysbench(load);
        sysbench.run(SCRIPT, CLIENTS, self.sizes.warm_up())?;
        let device = Written::begin(&self.server.data());
        let before = self.counters()?;
        let measured = sysbench.run(SCRIPT, CLIENTS, self.sizes.seconds)?;
        let (device, after) = (device.bytes(), self.counters()?);
        self.server.stop()?;
        let updates = measured.transactions_per_second * self.sizes.seconds as f64;
        let each = |bytes: f64| (bytes / updates.max(1.0) * 10.0).round() / 10.0;
        let written = COUNTERS.iter().zip(before.iter().zip(&after));
        Ok(Run {
            updates_per_s: measured.transactions_per_second,
            worst_over_median: worst_over_median(&measured.by_second),
            device_bytes_per_update: device.map(|bytes| each(bytes as f64)),
            written: written
                .map(|((_, class), (before, after))| ((*class).to_owned(), each(after - before)))
                .collect(),
        })
    }

    fn counters(&self) -> Result<Vec<f64>> {
        let counter = |(name, _): &(&str, &str)| {
            let value = self.server.sql(&format!(
                "SELECT variable_value FROM information_schema.global_status \
                 WHERE variable_name = '{name}'"
            ))?;
            let number = value.trim().parse();
            number.map_err(|_| format!("the server counts no {name}: {value:?}"))
        };
        COUNTERS.iter().map(counter).collect()
    }
}

/// One second is no distribution.
fn worst_over_median(by_second: &[f64]) -> Option<f64> {
    let mut sorted = by_second.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (worst, median) = (percentile(&sorted, 0)?, middle(&sorted)?);
    let share = (worst / median * 1000.0).round() / 1000.0;
    (sorted.len() >= 2 && median > 0.0).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::worst_over_median;

    #[test]
    fn the_worst_second_is_a_part_of_the_median_one() {
        assert_eq!(worst_over_median(&[100.0, 50.0, 200.0]), Some(0.5));
        assert_eq!(worst_over_median(&[100.0]), None);
        assert_eq!(worst_over_median(&[0.0, 0.0]), None);
    }
}
