//! What the rows of a workload hold, and which of them it takes.

use crate::random::Random;

/// What a value is filled with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Content {
    /// Random printable characters, 64 different ones
    #[default]
    Text,
    /// Groups of eleven random digits with dashes between, as in sysbench's columns `c` and `pad`
    Sysbench,
    /// Random bytes, which nothing compresses
    Random,
}

impl Content {
    /// Fills a value.
    pub fn fill(self, random: &mut Random, value: &mut [u8]) {
        match self {
            Self::Text => random.fill_text(value),
            Self::Sysbench => fill_digits(random, value),
            Self::Random => random.fill(value),
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Sysbench => "sysbench",
            Self::Random => "random",
        }
    }
}

/// Digits in a group of sysbench's.
const GROUP: usize = 11;

fn fill_digits(random: &mut Random, value: &mut [u8]) {
    for group in value.chunks_mut(GROUP + 1) {
        let mut digits = random.below(100_000_000_000);
        for byte in group.iter_mut().take(GROUP) {
            *byte = b'0' + (digits % 10) as u8;
            digits /= 10;
        }
        if let Some(last) = group.get_mut(GROUP) {
            *last = b'-';
        }
    }
}

/// Which rows are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Distribution {
    /// Each as often as any other
    #[default]
    Uniform,
    /// The n-th most wanted one as often as 1 / n^0.99; those are spread over the table
    Zipf,
}

impl Distribution {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
        }
    }
}

/// The skew that YCSB has.
const SKEW: f64 = 0.99;

/// Chooses rows. Zipf's after Gray et al., "Quickly Generating Billion-Record Synthetic Databases"
/// (SIGMOD 1994), section 3.2.
#[derive(Clone, Debug)]
pub struct Chooser {
    rows: u64,
    zipf: Option<Zipf>,
}

#[derive(Clone, Copy, Debug)]
struct Zipf {
    /// The sum of 1 / n^skew over all rows.
    sum: f64,
    exponent: f64,
    eta: f64,
}

impl Chooser {
    /// Of so many rows. For Zipf's this takes time in proportion to them.
    pub fn new(distribution: Distribution, rows: u64) -> Self {
        let zipf = (distribution == Distribution::Zipf).then(|| {
            let weight = |n: u64| (n as f64).powf(-SKEW);
            let sum: f64 = (1..=rows).map(weight).sum();
            let first_two = 1.0 + weight(2);
            let part = 1.0 - (2.0 / rows as f64).powf(1.0 - SKEW);
            Zipf {
                sum,
                exponent: 1.0 / (1.0 - SKEW),
                eta: part / (1.0 - first_two / sum),
            }
        });
        Self { rows, zipf }
    }

    /// A row's number.
    pub fn choose(&self, random: &mut Random) -> u64 {
        let Some(zipf) = self.zipf else {
            return random.below(self.rows);
        };
        let u = (random.number() >> 11) as f64 / (1u64 << 53) as f64;
        let at = u * zipf.sum;
        let rank = if at < 1.0 {
            0
        } else if at < 1.0 + 2f64.powf(-SKEW) {
            1
        } else {
            (self.rows as f64 * (zipf.eta * u - zipf.eta + 1.0).powf(zipf.exponent)) as u64
        };
        // Neighbours in rank are no neighbours in the table.
        let rank = rank.min(self.rows - 1);
        let spread = Random::new(rank).number();
        ((u128::from(spread) * u128::from(self.rows)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_in_groups_of_eleven() {
        let mut value = [0; 60];
        Content::Sysbench.fill(&mut Random::new(3), &mut value);
        for (at, byte) in value.iter().enumerate() {
            assert_eq!(*byte == b'-', at % 12 == 11, "{at}");
            assert!(*byte == b'-' || byte.is_ascii_digit());
        }
    }

    #[test]
    fn few_rows_are_wanted_often() {
        let rows = 10_000;
        let share_of_most = |distribution| {
            let chooser = Chooser::new(distribution, rows);
            let mut random = Random::new(5);
            let mut counts = vec![0u32; rows as usize];
            for _ in 0..100_000 {
                counts[chooser.choose(&mut random) as usize] += 1;
            }
            counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
            f64::from(counts[..100].iter().sum::<u32>()) / 100_000.0
        };
        // The sum of the first hundred terms over that of all ten thousand is 0.53.
        let zipf = share_of_most(Distribution::Zipf);
        assert!((0.48..0.58).contains(&zipf), "{zipf}");
        assert!(share_of_most(Distribution::Uniform) < 0.03);
    }
}
