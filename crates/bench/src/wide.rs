//! The wide table of writebench: `t1(a BIGINT PRIMARY KEY, b..h CHAR(255) NOT NULL DEFAULT '')`. A
//! row is an 8-byte key and seven columns of 255 characters, all blanks or random text.

use crate::random::Random;

/// Bytes in a row's value: seven columns of `CHAR(255)`.
pub const WIDE_VALUE_LEN: usize = 7 * 255;

/// The key of row `n`.
pub fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// What the columns hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fill {
    /// Empty strings, padded with blanks: `CHAR(255) DEFAULT ''`.
    Padding,
    /// Random text, which no log can shorten much.
    Random,
}

/// Makes the values of rows one after the other.
#[derive(Debug)]
pub struct WideValues {
    fill: Fill,
    random: Random,
    value: [u8; WIDE_VALUE_LEN],
}

impl WideValues {
    /// From the first row on.
    pub fn new(fill: Fill) -> Self {
        Self {
            fill,
            random: Random::new(1),
            value: [b' '; WIDE_VALUE_LEN],
        }
    }

    /// The next row's value.
    #[expect(clippy::should_implement_trait, reason = "it lends what it makes")]
    pub fn next(&mut self) -> &[u8] {
        if self.fill == Fill::Random {
            self.random.fill(&mut self.value);
        }
        &self.value
    }
}
