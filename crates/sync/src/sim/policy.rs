//! What a seed decides: the numbers it gives, and what kind of schedule it makes.

/// Numbers from a seed (splitmix64).
#[derive(Debug)]
pub(super) struct Dice(u64);

pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x6a09_e667_f3bc_c908))
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(bound)) >> 64) as u64
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// The kind of a schedule, the same for a whole run. Swarm testing: a bug that needs long turns is
/// not found by short ones, nor the other way round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// Mean number of units (see `cost`) that a thread runs before another may.
    turn_units: u64,
    /// The thread of highest priority runs; a thread whose turn is over draws a new priority.
    /// Otherwise any thread that can run is as likely as the others.
    pub priorities: bool,
    /// Virtual nanoseconds for each unit.
    pub unit_nanos: u64,
    /// How often, in percent of the turns, the clock jumps to the next deadline although threads
    /// can run: as if these had been held up.
    pub early_percent: u64,
    /// How often, in percent, an operation of the disk takes a while.
    pub slow_disk_percent: u64,
    /// How long it takes then, at most, in virtual microseconds.
    pub slow_disk_micros: u64,
    /// Processors that the engine is told of.
    pub processors: usize,
}

impl Policy {
    pub fn draw(dice: &mut Dice) -> Self {
        Self {
            turn_units: dice.pick(&[20, 100, 500, 2500, 10_000]),
            priorities: dice.chance(30),
            unit_nanos: dice.pick(&[20, 200, 2000]),
            early_percent: dice.pick(&[0, 1, 10]),
            slow_disk_percent: dice.pick(&[0, 2, 20]),
            slow_disk_micros: dice.pick(&[10, 100, 1000, 10_000]),
            processors: dice.pick(&[1, 2, 4]),
        }
    }

    /// Units of the next turn: memoryless, but for the cut.
    pub fn turn(&self, dice: &mut Dice) -> i64 {
        let even = (dice.roll() >> 11) as f64 / (1u64 << 53) as f64;
        let units = -(1.0 - even).ln() * self.turn_units as f64;
        units.min(self.turn_units as f64 * 10.0) as i64 + 1
    }
}
