//! The terms of parking by address, the same for every provider.

/// What [`unpark_filter`](super::parking::unpark_filter) does with a parked thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Wakes it.
    Wake,
    /// Leaves it parked, and all after it.
    Stop,
}

/// The threads that [`unpark_filter`](super::parking::unpark_filter) wakes.
#[derive(Clone, Copy, Debug)]
pub struct Woken {
    /// Threads that are being woken.
    pub count: usize,
    /// Others stay parked at this key.
    pub more: bool,
    /// It is time to hand over what is being released instead of letting others barge in.
    pub be_fair: bool,
}
