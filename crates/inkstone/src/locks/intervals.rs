//! Intervals of keys.
//!
//! An interval lies between two *cuts*: places before or after a key. Half-open intervals of cuts
//! express every pair of bounds, and two overlap iff each begins before the other ends.

use crate::paranoid::{Check, paranoid};
use std::collections::BTreeMap;
use std::ops::Bound;

/// On which side of its key a cut is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Before,
    After,
}

/// A place between keys. The derived order is the order of places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cut {
    At(Box<[u8]>, Side),
    /// After all keys.
    End,
}

impl Cut {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::At(key, _) => key.len(),
                Self::End => 0,
            }
    }

    pub fn as_low(&self) -> Bound<Vec<u8>> {
        match self {
            Self::At(key, Side::Before) if key.is_empty() => Bound::Unbounded,
            Self::At(key, Side::Before) => Bound::Included(key.to_vec()),
            Self::At(key, Side::After) => Bound::Excluded(key.to_vec()),
            Self::End => Bound::Unbounded,
        }
    }

    pub fn as_high(&self) -> Bound<Vec<u8>> {
        match self {
            Self::At(key, Side::Before) => Bound::Excluded(key.to_vec()),
            Self::At(key, Side::After) => Bound::Included(key.to_vec()),
            Self::End => Bound::Unbounded,
        }
    }

    /// Nothing lies between a key and the same with a zero behind it: the cut between them has one
    /// name, so that intervals that touch there become one.
    pub fn before(key: &[u8]) -> Self {
        match key.split_last() {
            Some((0, shorter)) => Self::after(shorter),
            _ => Self::At(key.into(), Side::Before),
        }
    }

    pub fn after(key: &[u8]) -> Self {
        Self::At(key.into(), Side::After)
    }

    pub fn low(bound: Bound<&[u8]>) -> Self {
        match bound {
            Bound::Included(key) => Self::before(key),
            Bound::Excluded(key) => Self::after(key),
            // The empty key is the smallest.
            Bound::Unbounded => Self::before(&[]),
        }
    }

    pub fn high(bound: Bound<&[u8]>) -> Self {
        match bound {
            Bound::Included(key) => Self::after(key),
            Bound::Excluded(key) => Self::before(key),
            Bound::Unbounded => Self::End,
        }
    }

    /// Whether a key lies behind it.
    pub fn is_before(&self, key: &[u8]) -> bool {
        match self {
            Self::At(at, Side::Before) => **at <= *key,
            Self::At(at, Side::After) => **at < *key,
            Self::End => false,
        }
    }
}

/// What lies between two cuts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub low: Cut,
    pub high: Cut,
}

impl Interval {
    /// `None` if nothing lies between the bounds.
    pub fn new(low: Bound<&[u8]>, high: Bound<&[u8]>) -> Option<Self> {
        let (low, high) = (Cut::low(low), Cut::high(high));
        (low < high).then_some(Self { low, high })
    }

    pub fn of_key(key: &[u8]) -> Self {
        Self {
            low: Cut::before(key),
            high: Cut::after(key),
        }
    }

    pub fn has(&self, key: &[u8]) -> bool {
        self.low.is_before(key) && !self.high.is_before(key)
    }
}

/// Intervals of a set that a check looks at.
const CHECKED: usize = 8;

impl Check for IntervalSet {
    fn check(&self) {
        let mut before: Option<&Cut> = None;
        let mut bytes = 0;
        for (low, high) in self.cuts.iter().take(CHECKED) {
            paranoid!(
                low < high && before.is_none_or(|before| before < low),
                "an interval from {low:?} to {high:?}, behind one to {before:?}"
            );
            before = Some(high);
            bytes += low.bytes() + high.bytes();
        }
        let is_all = self.cuts.len() <= CHECKED;
        paranoid!(
            if is_all {
                bytes == self.bytes
            } else {
                bytes < self.bytes
            },
            "{} intervals take {} bytes, the first ones {bytes}",
            self.cuts.len(),
            self.bytes
        );
    }
}

/// Disjoint, not touching, not empty intervals: low cut -> high cut.
#[derive(Debug, Default)]
pub(crate) struct IntervalSet {
    cuts: BTreeMap<Cut, Cut>,
    bytes: usize,
}

impl IntervalSet {
    pub fn is_empty(&self) -> bool {
        self.cuts.is_empty()
    }

    pub fn len(&self) -> usize {
        self.cuts.len()
    }

    /// Memory, in bytes, but for what the allocator adds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Those that begin behind a cut, or all.
    pub fn iter_after(&self, after: Option<&Cut>) -> impl Iterator<Item = (&Cut, &Cut)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.cuts.range::<Cut, _>((from, Bound::Unbounded))
    }

    /// From the first interval that begins behind a cut, or of all, to the end of the next.
    pub fn two_after(&self, after: Option<&Cut>) -> Option<Interval> {
        let mut intervals = self.iter_after(after);
        let ((low, _), (_, high)) = (intervals.next()?, intervals.next()?);
        paranoid!(low < high, "two intervals from {low:?} to {high:?}");
        let (low, high) = (low.clone(), high.clone());
        Some(Interval { low, high })
    }

    pub fn overlaps(&self, with: &Interval) -> bool {
        // Of the intervals that begin before `high` the last one ends last.
        let last = self.cuts.range(..&with.high).next_back();
        last.is_some_and(|(_, end)| *end > with.low)
    }

    pub fn covers(&self, what: &Interval) -> bool {
        let last = self.cuts.range(..=&what.low).next_back();
        last.is_some_and(|(_, end)| *end >= what.high)
    }

    pub fn insert(&mut self, Interval { mut low, mut high }: Interval) {
        while let Some((l, h)) = self.cuts.range_mut(..=&high).next_back() {
            if *h < low {
                break;
            }
            // As a scan does it that comes to one row after the other.
            if *l <= low {
                if *h < high {
                    self.bytes = self.bytes - h.bytes() + high.bytes();
                    *h = high;
                }
                return;
            }
            let (l, h) = (l.clone(), h.clone());
            self.cuts.remove(&l);
            self.bytes -= l.bytes() + h.bytes();
            low = low.min(l);
            high = high.max(h);
        }
        paranoid!(
            low < high && !self.touches(&low, &high),
            "intervals overlap from {low:?} to {high:?}"
        );
        self.bytes += low.bytes() + high.bytes();
        let other = self.cuts.insert(low, high);
        paranoid!(
            other.is_none(),
            "two intervals begin at one place, one to {other:?}"
        );
    }

    /// An interval with those that end where it begins, and begin where it ends; `None`: there is
    /// none.
    pub fn with_neighbours(&self, of: &Interval) -> Option<Interval> {
        if self.cuts.is_empty() {
            return None;
        }
        let before = self.cuts.range(..&of.low).next_back();
        let low = before
            .filter(|(_, end)| **end == of.low)
            .map(|(low, _)| low);
        let high = self.cuts.get(&of.high);
        (low.is_some() || high.is_some()).then(|| Interval {
            low: low.unwrap_or(&of.low).clone(),
            high: high.unwrap_or(&of.high).clone(),
        })
    }

    /// Removes those that lie in an interval.
    pub fn remove_in(&mut self, Interval { low, high }: &Interval) {
        while let Some((l, h)) = self.cuts.range(low..high).next_back() {
            paranoid!(
                h <= high,
                "an interval to {h:?} is no part of one to {high:?}"
            );
            let l = l.clone();
            if let Some(h) = self.cuts.remove(&l) {
                self.bytes -= l.bytes() + h.bytes();
            }
        }
    }

    /// Whether an interval overlaps or touches one of these.
    fn touches(&self, low: &Cut, high: &Cut) -> bool {
        let last = self.cuts.range(..=high).next_back();
        last.is_some_and(|(_, end)| end >= low)
    }
}
