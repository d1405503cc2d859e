//! Time: virtual for scheduled threads, real for others.

use super::context::current;
use std::ops::{Add, AddAssign, Sub};
use std::sync::OnceLock;
use std::time::Duration;

/// `std::time::Instant`, or a moment of a run's virtual time. The two must not be mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

/// What real moments are counted from.
fn origin() -> std::time::Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    *ORIGIN.get_or_init(std::time::Instant::now)
}

impl Instant {
    /// This moment.
    pub fn now() -> Self {
        match current() {
            Some(me) => Self(Duration::from_nanos(me.scheduler.now(&me))),
            None => Self(origin().elapsed()),
        }
    }

    /// Virtual nanoseconds since the run began; the far future is as good as never.
    pub(super) fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn real(self) -> std::time::Instant {
        origin() + self.0
    }

    /// Time since then.
    pub fn elapsed(&self) -> Duration {
        Self::now().duration_since(*self)
    }

    /// Time from `earlier` to here; none if it is later.
    pub fn duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// As [`Instant::duration_since`].
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, time: Duration) {
        self.0 += time;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self(self.0 - time)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}
