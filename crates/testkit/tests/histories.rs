//! Histories of concurrent transactions on the engine show nothing that their isolation level
//! forbids. Longer campaigns: `cargo xtask histories`.

use inkstone_testkit::history::Plan;
use inkstone_testkit::history::campaign::{Tally, run_plan};

#[test]
fn no_level_shows_what_it_forbids() {
    let mut tally = Tally::default();
    for seed in 1..=24 {
        let (seen, result) = run_plan(Plan::of_seed(seed));
        tally.merge(&seen);
        result.unwrap_or_else(|text| panic!("{text}"));
    }
    println!("{}", tally.table());
    for name in [
        "transactions committed",
        "edges",
        "power losses",
        "deadlocks",
    ] {
        assert!(tally.marks.get(name) > 0, "never seen: {name}");
    }
}
