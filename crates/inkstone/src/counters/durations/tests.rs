use super::*;

#[test]
fn buckets_cover_everything_in_order() {
    let mut shortest = 0;
    for bucket in 0..BUCKETS {
        let longest = longest_in(bucket);
        assert_eq!((bucket_of(shortest), bucket_of(longest)), (bucket, bucket));
        assert!(longest - shortest <= shortest / STEPS, "{shortest}");
        shortest = longest + 1;
    }
    assert_eq!(shortest, LONGEST_NS + 1);
}

#[test]
fn percentiles_are_those_of_the_sorted_list_rounded_up() {
    let histogram = Histogram::new();
    let mut all: Vec<u64> = (0..3000u64).map(|n| (n * n * 7919) % 900_000_007).collect();
    for &nanoseconds in &all {
        histogram.record(Duration::from_nanos(nanoseconds));
    }
    all.sort_unstable();
    let found = histogram.summary("name", "help");
    let at = [found.p50, found.p90, found.p99, found.p999];
    for (per_mille, shown) in [500, 900, 990, 999].into_iter().zip(at) {
        let exact = all[(3000 * per_mille / 1000) - 1];
        let shown = shown.as_nanos() as u64;
        assert!(
            (exact..=exact + exact / STEPS + 1).contains(&shown),
            "{exact} {shown}"
        );
    }
    assert_eq!(
        (found.count, found.max),
        (3000, Duration::from_nanos(all[2999]))
    );
    assert_eq!(found.sum.as_nanos() as u64, all.iter().sum::<u64>());
}

#[test]
fn nothing_and_very_long() {
    let histogram = Histogram::new();
    let none = histogram.summary("name", "help");
    assert_eq!(
        (none.count, none.p50, none.max),
        (0, Duration::ZERO, Duration::ZERO)
    );
    histogram.record(Duration::from_secs(86_400));
    let one = histogram.summary("name", "help");
    assert_eq!(one.p50, Duration::from_nanos(LONGEST_NS));
    assert_eq!(one.max, Duration::from_secs(86_400));
}

#[test]
fn the_histogram_counts_each_once_by_powers_of_two() {
    let histogram = Histogram::new();
    for nanoseconds in [0, 7, 8, 15, 16, 1023, 1024, LONGEST_NS, 1 << 50] {
        histogram.record(Duration::from_nanos(nanoseconds));
    }
    let found: Vec<_> = histogram
        .powers("name")
        .map(|b| (b.longest.map(|l| l.as_nanos()), b.count))
        .collect();
    let expected = [
        (Some(7), 2),
        (Some(15), 2),
        (Some(31), 1),
        (Some(1023), 1),
        (Some(2047), 1),
        (None, 2),
    ];
    assert_eq!(found, expected);
}
