//! Options, keys and values by the dice.

use crate::Rng;
use crate::model::{Key, Value};
use inkstone::Options;
use inkstone::options::{Doublewrite, Durability, FlushMethod, LogWrite};

/// Options for a new database.
pub(super) fn first_options(rng: &mut Rng, heavy: bool) -> Options {
    let sizes = [
        4096, 4096, 4096, 4096, 4096, 8192, 8192, 16384, 16384, 32768, 65536,
    ];
    let page_size = rng.pick(&sizes);
    let mut options = Options {
        page_size,
        doublewrite: if rng.chance(75) {
            Doublewrite::On
        } else {
            Doublewrite::Off
        },
        log_file_size: if heavy {
            4 << 20
        } else {
            rng.pick(&[4, 8, 16]) << 20
        },
        ..Options::default()
    };
    vary_options(rng, &mut options);
    options
}

/// Other options for the next opening. What belongs to the database stays.
pub(super) fn vary_options(rng: &mut Rng, options: &mut Options) {
    let methods = [
        FlushMethod::Fsync,
        FlushMethod::ODsync,
        FlushMethod::ODirect,
        FlushMethod::ODirect,
    ];
    let durabilities = [Durability::Sync, Durability::Write, Durability::Lazy];
    options.buffer_pool_size = options.page_size * rng.pick(&[64, 64, 100, 300]);
    options.buffer_pool_instances = rng.pick(&[1, 1, 2, 8]);
    options.buffer_pool_dump_at_shutdown = rng.chance(50);
    options.log_buffer_size = 2 << 20;
    options.log_file_buffering = rng.chance(40);
    options.log_write = rng.pick(&[LogWrite::Sync, LogWrite::Async]);
    options.log_write_through = rng.chance(20);
    options.flush_log_at_trx_commit = rng.pick(&durabilities);
    options.doublewrite_skip_fresh = rng.chance(70);
    options.flush_method = rng.pick(&methods);
    options.version_store_memory = 1 << 20;
    options.recovery_threads = rng.from_to(1, 3);
    options.recovery_memory = rng.pick(&[0, 1 << 12, 1 << 16, 1 << 20]);
}

/// What the rows of a table look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    style: u64,
    /// Keys are made from numbers below this.
    pub domain: u64,
    /// Percent of values that are long.
    long_percent: u64,
    value_max: u64,
}

impl Shape {
    pub fn random(rng: &mut Rng, heavy: bool) -> Self {
        Self {
            style: rng.below(5),
            domain: rng.pick(&[20, 200, 1000, 4000]),
            long_percent: if heavy { 20 } else { rng.pick(&[0, 0, 5, 20]) },
            value_max: rng.pick(&[30, 300, 1000]),
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

    /// A key by the dice; often near to the last one.
    pub fn random_key(&self, rng: &mut Rng, page_size: u64) -> Key {
        self.key(rng.below(self.domain), page_size)
    }

    /// A value by the dice, for a row that had another one before or not.
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
        let inline = page_size / 2 - 128 - 8;
        let length = if rng.chance(self.long_percent) {
            let most = page_size * rng.pick(&[1, 3, 12, 30]);
            inline + 1 + rng.below(most)
        } else if rng.chance(4) {
            inline - rng.below(3)
        } else {
            rng.skewed(self.value_max.min(inline))
        };
        let mut value = vec![rng.next() as u8; length as usize];
        if rng.chance(50) {
            for byte in value.iter_mut().take(64) {
                *byte = rng.next() as u8;
            }
        }
        value.into()
    }
}

/// The key of a row in secondary tree `n`: some bytes of the value, then the row's key.
pub(super) fn secondary_key(n: usize, key: &[u8], value: &[u8]) -> Key {
    let sum = value.iter().take(8).fold(n as u32, |sum, &byte| {
        sum.wrapping_mul(31) + u32::from(byte)
    });
    let mut out = vec![(sum % 7) as u8, sum as u8];
    out.extend_from_slice(key);
    out
}
