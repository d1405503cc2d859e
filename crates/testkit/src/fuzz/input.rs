//! Bytes as a sequence of choices. Where they end all further choices are 0, so that every prefix
//! of an input is an input, and a short input is a simple one.

/// A cursor over an input.
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of an input.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Up to so many bytes, as many as are left.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        match bound {
            0..=0x100 => usize::from(self.u8()) % bound,
            0x101..=0x1_0000 => usize::from(self.u16()) % bound,
            _ => self.u32() as usize % bound,
        }
    }

    /// One of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A byte string: its length in one byte, then its bytes.
    pub fn short(&mut self) -> Vec<u8> {
        let count = usize::from(self.u8());
        self.take(count).to_vec()
    }
}

/// Seeds for targets whose bytes are choices: so many random inputs, of growing length.
pub fn dice_seeds(count: usize, length: usize) -> Vec<(String, Vec<u8>)> {
    let seeds = 1..=count;
    seeds
        .map(|n| {
            let mut rng = crate::Rng::new(n as u64);
            let bytes = (0..length * n / count).map(|_| rng.next() as u8).collect();
            (format!("dice{n}"), bytes)
        })
        .collect()
}
