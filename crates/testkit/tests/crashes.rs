//! Power losses, kills and interrupted recoveries under random work. Longer campaigns: the program
//! `sim` (`cargo xtask sim`), or `INKSTONE_SIM_SEEDS=500 cargo test --release -p inkstone-testkit --test crashes`.

use inkstone_testkit::campaign::run_seeds;

#[test]
fn nothing_acknowledged_is_lost_in_a_crash() {
    let given = std::env::var("INKSTONE_SIM_SEEDS").ok();
    let seeds = given.and_then(|text| text.parse().ok()).unwrap_or(150);
    let (marks, result) = run_seeds(1, seeds);
    for (name, count) in &marks.0 {
        println!("{count:>12}  {name}");
    }
    result.unwrap_or_else(|text| panic!("{text}"));
    // A simulation that never gets to these proves less than it seems to.
    for name in [
        "power losses",
        "kills",
        "closes",
        "crashes while opening",
        "torn pages repaired",
        "losers",
        "prepared recovered",
        "orphans removed",
        "commits lost legally",
        "more than one batch",
        "buffer_evictions",
        "page_merges",
        "rows_purged",
    ] {
        assert!(marks.get(name) > 0, "never seen: {name}");
    }
}
