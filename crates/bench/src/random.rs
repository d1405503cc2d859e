//! Random numbers for workloads: fast, and the same again from the same seed.

/// A splitmix64 generator.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator for a seed; different seeds give unrelated numbers.
    pub fn new(seed: u64) -> Self {
        let mut random = Self { state: seed };
        random.state = random.number() ^ seed.rotate_left(32);
        random
    }

    /// The next 64 bits.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// Fills with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let mut words = bytes.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.number().to_le_bytes());
        }
        let rest = words.into_remainder();
        let length = rest.len();
        rest.copy_from_slice(&self.number().to_le_bytes()[..length]);
    }

    /// Fills with random printable characters (64 different ones).
    pub fn fill_text(&mut self, bytes: &mut [u8]) {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 -";
        for chunk in bytes.chunks_mut(10) {
            let mut word = self.number();
            for byte in chunk {
                *byte = LETTERS[(word & 63) as usize];
                word >>= 6;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_below_the_limit_and_repeat_from_the_seed() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        for limit in 1..1000 {
            let n = a.below(limit);
            assert!(n < limit);
            assert_eq!(n, b.below(limit));
        }
        let mut text = [0; 33];
        a.fill_text(&mut text);
        assert!(text.iter().all(|b| b.is_ascii_graphic() || *b == b' '));
    }
}
