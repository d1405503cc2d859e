//! Numbers from a seed, for workloads (splitmix64).

/// A sequence that its seed decides.
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.bits() % end.max(1)
    }

    /// A number from `first` to `last`.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True so many times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A place in something of this length.
    pub fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// One of these, of which there must be one.
    pub fn pick<'a, T>(&mut self, these: &'a [T]) -> &'a T {
        &these[self.place(these.len())]
    }

    /// One of these words.
    pub fn word(&mut self, words: &[&'static str]) -> &'static str {
        words[self.place(words.len())]
    }

    /// A number that says which of several things is done: each as often as its weight says.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (at, weight) in weights.iter().enumerate() {
            match left.checked_sub(*weight) {
                Some(less) => left = less,
                None => return at,
            }
        }
        0
    }
}
