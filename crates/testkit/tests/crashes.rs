//! A few hundred power losses, kills and interrupted recoveries under random work, with the
//! engine's own threads and without compiler switches. The campaigns: `cargo xtask sim`.

use inkstone_testkit::campaign::run_seeds;
use inkstone_testkit::marks::Marks;

#[test]
fn nothing_acknowledged_is_lost_in_a_crash() {
    // Each seed is a machine of its own.
    let halves = std::thread::scope(|scope| {
        let half = |first| scope.spawn(move || run_seeds(first, 18));
        [half(1), half(19)].map(|half| half.join().expect("a run does not panic"))
    });
    let mut marks = Marks::default();
    for (seen, result) in halves {
        marks.merge(&seen);
        result.unwrap_or_else(|text| panic!("{text}"));
    }
    for (name, count) in &marks.0 {
        println!("{count:>12}  {name}");
    }
    assert!(marks.crashes() > 200, "{} crashes", marks.crashes());
    // A simulation that never gets to these proves less than it seems to.
    for name in [
        "power losses",
        "kills",
        "closes",
        "crashes while opening",
        "crashes inside recovery",
        "other outcomes",
        "looks over an overlay",
        "losers",
        "prepared over a crash",
        "commits lost legally",
        "splits partly on disk",
        "more than one batch",
        "changes to redo in a file",
        "buffer_evictions",
        "page_merges",
        "rows_purged",
    ] {
        assert!(marks.get(name) > 0, "never seen: {name}");
    }
}
