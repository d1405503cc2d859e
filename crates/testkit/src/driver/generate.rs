//! Random keys and values.

use super::Features;
use crate::Rng;
use crate::model::{Key, Value};

/// Bytes that a long value has beyond what fits a page, at most.
const LONG_MAX: u64 = 128 << 10;

/// What the rows of a table look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    style: u64,
    /// Keys are made from numbers below this.
    pub domain: u64,
    /// Percent of values that are long.
    long_percent: u64,
    value_max: u64,
    /// Values that the log cannot pack.
    noise: bool,
}

impl Shape {
    pub fn random(rng: &mut Rng, features: &Features) -> Self {
        let long_percent = if features.heavy {
            20
        } else {
            rng.pick(&[0, 0, 5, 20])
        };
        let giant = features.giant;
        Self {
            style: if giant { rng.below(2) } else { rng.below(5) },
            domain: if giant {
                20_000
            } else {
                rng.pick(&[20, 200, 1000, 4000])
            },
            long_percent: if features.long_values {
                long_percent
            } else {
                0
            },
            value_max: match (giant, features.heavy) {
                (true, _) => 60,
                (_, true) => 1000,
                _ => rng.pick(&[30, 300, 1000]),
            },
            noise: features.heavy || rng.chance(20),
        }
    }

    /// The key of a number.
    pub fn key(&self, number: u64, page_size: u64) -> Key {
        let limit = (page_size * 3 / 16).min(3072) as usize - 8;
        match self.style {
            0 => number.to_be_bytes().to_vec(),
            1 => format!("user{number:06}").into_bytes(),
            2 => {
                let mut key = (number as u32).to_be_bytes().to_vec();
                let pad = [0, 3, 40, limit - 4][(number % 4) as usize];
                key.resize(4 + pad, b'x');
                key
            }
            // Few keys fit an inner node: the tree is high.
            3 => {
                let mut key = number.to_be_bytes().to_vec();
                key.resize(limit, b'y');
                key.reverse();
                key[..8].copy_from_slice(&number.to_be_bytes());
                key
            }
            _ => {
                let mut key = vec![b'p'; 30];
                key.extend_from_slice(&(number as u16).to_be_bytes());
                key
            }
        }
    }

    /// A random key; often near to the last one.
    pub fn random_key(&self, rng: &mut Rng, page_size: u64) -> Key {
        self.key(rng.below(self.domain), page_size)
    }

    /// A random value, for a row that had another one before or not.
    pub fn value(&self, rng: &mut Rng, old: Option<&Value>, page_size: u64) -> Value {
        if let Some(old) = old.filter(|old| !old.is_empty())
            && rng.chance(40)
        {
            let mut value = old.to_vec();
            let at = rng.below(value.len() as u64) as usize;
            value[at] ^= 1 + rng.below(255) as u8;
            if rng.chance(20) {
                value.truncate(at);
            }
            return value.into();
        }
        let inline = inline_max(page_size);
        if rng.chance(self.long_percent) {
            return self.long_value(rng, page_size);
        }
        let length = if rng.chance(4) {
            inline - rng.below(3)
        } else {
            rng.skewed(self.value_max.min(inline))
        };
        self.value_of(rng, length)
    }

    /// A value that has pages of its own.
    pub fn long_value(&self, rng: &mut Rng, page_size: u64) -> Value {
        let most = (page_size * rng.pick(&[1, 3, 12, 30])).min(LONG_MAX);
        let length = inline_max(page_size) + 1 + rng.below(most);
        self.value_of(rng, length)
    }

    fn value_of(&self, rng: &mut Rng, length: u64) -> Value {
        let mut value = vec![rng.next() as u8; length as usize];
        let different = if self.noise {
            value.len()
        } else {
            rng.pick(&[0, 64])
        };
        let different = different.min(value.len());
        for bytes in value[..different].chunks_mut(8) {
            bytes.copy_from_slice(&rng.next().to_le_bytes()[..bytes.len()]);
        }
        value.into()
    }
}

/// Bytes of the longest value that stays in its row.
fn inline_max(page_size: u64) -> u64 {
    page_size / 2 - 128 - 8
}

/// The key of a row in secondary tree `n`: some bytes of the value, then the row's key.
pub(super) fn secondary_key(n: usize, key: &[u8], value: &[u8]) -> Key {
    let sum = value.iter().take(8).fold(n as u32, |sum, &byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    let mut out = vec![(sum % 7) as u8, sum as u8];
    out.extend_from_slice(key);
    out
}
