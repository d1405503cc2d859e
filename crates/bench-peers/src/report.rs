//! Medians of the rounds as a table, with the ratio to the first store.

use crate::workloads::{Measurement, Workload};
use inkstone_bench::statistics::median_of;
use std::collections::BTreeMap;

/// Measurements of one workload.
#[derive(Default)]
pub struct Report {
    /// By case, then by store: one measurement a round.
    taken: BTreeMap<(usize, String), BTreeMap<String, Vec<Measurement>>>,
}

impl Report {
    pub fn take(&mut self, store: &str, round: usize, measurement: Measurement) {
        let case = (measurement.order, measurement.case.clone());
        let rounds = self.taken.entry(case).or_default();
        let rounds = rounds.entry(store.to_owned()).or_default();
        debug_assert!(rounds.len() <= round);
        rounds.push(measurement);
    }

    pub fn print(&self, workload: Workload, stores: &[String]) {
        println!("{workload}: {}", workload.unit());
        println!(
            "  {:<14} {:<10} {:>14} {:>9} {:>11} {:>11} {:>16}",
            "case", "store", "median", "ratio", "p50 us", "p99 us", "device B/op"
        );
        for ((_, case), by_store) in &self.taken {
            let first = stores.first().and_then(|name| by_store.get(name));
            let first = first.map_or(f64::NAN, |rounds| median_of(rounds, |m| m.rate));
            for (name, rounds) in stores.iter().filter_map(|s| Some((s, by_store.get(s)?))) {
                let rate = median_of(rounds, |m| m.rate);
                println!(
                    "  {case:<14} {name:<10} {rate:>14.0} {:>9.2} {:>11.1} {:>11.1} {:>16.0}",
                    rate / first,
                    median_of(rounds, |m| m.p50_us),
                    median_of(rounds, |m| m.p99_us),
                    median_of(rounds, |m| m.device_bytes_per_operation),
                );
            }
        }
        println!();
    }
}
