//! Medians and percentiles of a few values. Those of many latencies are in the histograms of
//! [`crate::clients`].

/// The middle one of some numbers; the upper one of two, 0 of none.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle(&sorted).unwrap_or_default()
}

/// The [`median`] of what each of the runs has.
pub fn median_of<R>(runs: &[R], value: impl Fn(&R) -> f64) -> f64 {
    median(&runs.iter().map(value).collect::<Vec<_>>())
}

/// The middle one of values in order.
pub fn middle<T: Copy>(sorted: &[T]) -> Option<T> {
    sorted.get(sorted.len() / 2).copied()
}

/// The value that so many percent of values in order do not exceed.
pub fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get(last * percent / 100).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median_of(&[(1, 3.0), (2, 5.0)], |run| run.1), 5.0);
    }

    #[test]
    fn percentiles_are_values_that_were_there() {
        let values: Vec<u32> = (0..=100).collect();
        assert_eq!(percentile(&values, 99), Some(99));
        assert_eq!(percentile(&values[..10], 99), Some(8));
        assert_eq!(percentile(&values[..0], 50), None);
        assert_eq!(middle(&values), Some(50));
    }
}
